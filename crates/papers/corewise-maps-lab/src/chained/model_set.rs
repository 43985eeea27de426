//! The set of keys that the models of the tables use: it frees removed nodes, and fails if a reader
//! finds a freed one.
//!
//! # Which models cover what
//!
//! *Two concurrent operations* (find, insert, remove): [`every_pair`], at rest and in each phase of
//! a resize in which a table can be left. *An operation during a resize*:
//! [`every_operation_beside_a_resize`], both ways, or models of the table itself.
//!
//! | table | two operations | one beside a resize |
//! |---|---|---|
//! | `OutOfPlace` | at rest, zipped, between two cuts | all |
//! | `InPlace`, `NoAuxiliary` | zipped, between two cuts | all |
//! | `Atc11` | (expanded as `OutOfPlace`, shrunk as `InPlace`) | (the same) |
//! | `SortedByReversedHash` | at rest, zipped (there is one cut) | all |
//! | `Ddds` | at rest, before and after moving both ways, while moving (in an expansion lookups are preempted once) | own models, by phases |
//! | `LiteralDdds` | before and while moving, in an expansion (lookups are preempted once) | own models, by phases |
//! | `RwLocked` | at rest (a resize excludes them) | own models |
//!
//! The explorer also covers the algorithms of \[ATC11\]: all lookups at every store of a resize
//! with up to two updates in it. At rest they differ only in the order of chains.

use std::ptr::NonNull;

use corewise_atomic::cell::DataCell;
use corewise_atomic::mutant;
use corewise_atomic::sync::Arc;
use corewise_atomic::thread;
use corewise_rcu::{Domain, Guard};

use super::algorithm::{Algorithm, ChainLink};
use corewise_testkit::operation_pairs::{
    self, Answer, Operated, SetOperation, beside_a_resize, pairs,
};

#[repr(C)]
struct Node {
    link: ChainLink,
    key: u64,
    /// Written again after the node's grace period: a reader that is still there causes a data
    /// race.
    alive: DataCell<bool>,
}

/// Keys with the same lowest byte have the same hash.
pub(super) fn hash(key: u64) -> u64 {
    key & 0xff
}

/// A removed node.
#[must_use]
pub(super) struct Removed(NonNull<ChainLink>);

// SAFETY: the thread that removed the node is the only one to have it.
unsafe impl Send for Removed {}

/// A set of keys.
pub(super) struct Set<A: Algorithm> {
    pub(super) table: A,
    pub(super) domain: Domain,
    /// Nodes that are freed with the set. The checkers do not see this mutex, so it orders nothing
    /// for them.
    graves: std::sync::Mutex<Vec<Removed>>,
    /// The rest of a resize that is under way.
    rest: Option<Rest<A>>,
}

type Rest<A> = Box<dyn FnOnce(&A) + Send + Sync>;

/// Whether a link is the node of a key. Fails for a freed node.
fn is(key: u64) -> impl FnMut(NonNull<ChainLink>) -> bool {
    move |link| {
        // SAFETY: links of these sets belong to such nodes, and live while they are used.
        let node = unsafe { link.cast::<Node>().as_ref() };
        // SAFETY: written before it is linked and after its grace period: otherwise the checkers
        // fail.
        assert!(unsafe { node.alive.read() }, "a dead node is met");
        node.key == key
    }
}

fn reclaim(link: NonNull<ChainLink>) {
    // SAFETY: made from a box by `insert`; no other thread has it.
    drop(unsafe { Box::from_raw(link.cast::<Node>().as_ptr()) });
}

impl<A: Algorithm> Set<A> {
    /// A set in a table of `buckets` buckets. Keys are inserted in the order given.
    pub(super) fn new(buckets: usize, keys: &[u64]) -> Self {
        let domain = Domain::new();
        let table = A::try_new(buckets, &domain).expect("there is memory");
        let set = Self {
            table,
            domain,
            graves: std::sync::Mutex::default(),
            rest: None,
        };
        for key in keys {
            assert!(set.insert(*key));
        }
        set
    }

    /// A set in the middle of a resize, which `rest` completes at the end.
    pub(super) fn under_way(
        buckets: usize,
        keys: &[u64],
        begin: impl FnOnce(&A),
        rest: impl FnOnce(&A) + Send + Sync + 'static,
    ) -> Self {
        let mut set = Self::new(buckets, keys);
        begin(&set.table);
        set.rest = Some(Box::new(rest));
        set
    }

    pub(super) fn has(&self, key: u64) -> bool {
        self.has_within(&self.domain.pin(), key)
    }

    fn has_within(&self, guard: &Guard<'_>, key: u64) -> bool {
        // SAFETY: a guard of the table's domain.
        unsafe { self.table.find(guard, hash(key), is(key)) }.is_some()
    }

    pub(super) fn insert(&self, key: u64) -> bool {
        let node = Node {
            link: ChainLink::new(hash(key)),
            key,
            alive: DataCell::new(false),
        };
        let node = Box::leak(Box::new(node));
        // SAFETY: no other thread has the node. (The checkers do not count the construction of a
        // cell as an access; they count this write.)
        unsafe { node.alive.write(true) };
        let link = NonNull::from(node).cast();
        // SAFETY: a guard of the table's domain, and a new node.
        let inserted = unsafe { self.table.insert(&self.domain.pin(), link, is(key)) }.is_ok();
        if !inserted {
            reclaim(link);
        }
        inserted
    }

    /// Removes a key and returns its node, if this call has removed it.
    pub(super) fn remove(&self, key: u64) -> Option<Removed> {
        let guard = self.domain.pin();
        // SAFETY: a guard of the table's domain.
        unsafe { self.table.remove(&guard, hash(key), is(key)) }.map(Removed)
    }

    /// Waits for readers and frees the node.
    pub(super) fn free(&self, Removed(link): Removed) {
        if !mutant!("chained_frees_at_once") {
            self.domain.synchronize();
        }
        // SAFETY: no reader is left; otherwise the checkers fail.
        unsafe { link.cast::<Node>().as_ref().alive.write(false) };
        reclaim(link);
    }

    /// Removes a present key, and frees its node.
    pub(super) fn drop_key(&self, key: u64) {
        let removed = self.remove(key).expect("it was there");
        self.free(removed);
    }

    /// Called by one thread at a time.
    pub(super) fn resize(&self, buckets: usize) {
        // SAFETY: in a model one thread resizes, and it holds no section (1).
        unsafe { self.table.resize(buckets) }.unwrap();
        assert_eq!(self.table.buckets(), buckets);
    }

    /// Completes the resize and returns all keys.
    fn take(mut self) -> Vec<u64> {
        if let Some(rest) = self.rest.take() {
            rest(&self.table);
        }
        let mut seen = Vec::new();
        self.table.take_all(|link| {
            // SAFETY: a node of the set, which is freed afterwards.
            let node = unsafe { link.cast::<Node>().as_ref() };
            // SAFETY: written before the node is linked and after its grace period; the checkers
            // report violations.
            assert!(unsafe { node.alive.read() }, "a dead node is left");
            seen.push(node.key);
            reclaim(link);
        });
        seen.sort_unstable();
        seen
    }

    /// Fails unless exactly these keys are present, each once.
    fn check(self, keys: &[u64]) {
        for key in keys {
            assert!(self.has(*key), "{key:#x} is missing");
        }
        assert_eq!(self.take(), keys);
    }
}

impl<A: Algorithm> Operated for Set<A> {
    fn operate(&self, operation: SetOperation) -> Answer {
        Answer::Found(match operation {
            SetOperation::Find(key) => self.has(key),
            SetOperation::Insert(key) => self.insert(key),
            SetOperation::Remove(key) => {
                let removed = self.remove(key);
                let is_removed = removed.is_some();
                self.graves.lock().unwrap().extend(removed);
                is_removed
            }
            SetOperation::Resize => {
                self.resize(if self.table.buckets() == 1 { 2 } else { 1 });
                return Answer::Done;
            }
            SetOperation::Replace(_) | SetOperation::Iterate => {
                unreachable!("these tables have none")
            }
        })
    }

    fn settle(self) -> Vec<u64> {
        let graves = std::mem::take(&mut *self.graves.lock().unwrap());
        self.domain.synchronize();
        for Removed(link) in &graves {
            // SAFETY: no reader is left; otherwise the checkers fail.
            unsafe { link.cast::<Node>().as_ref().alive.write(false) };
        }
        let guard = self.domain.pin();
        let found: Vec<u64> = (1..=5)
            .filter(|key| self.has_within(&guard, *key))
            .collect();
        drop(guard);
        let keys = self.take();
        assert_eq!(found, keys);
        graves.into_iter().for_each(|Removed(link)| reclaim(link));
        keys
    }
}

impl<A: Algorithm> Drop for Set<A> {
    fn drop(&mut self) {
        self.table.take_all(reclaim);
        let graves = self.graves.get_mut().unwrap();
        graves.drain(..).for_each(|Removed(link)| reclaim(link));
    }
}

/// The code of a thread in a model.
type Part<A> = fn(&Set<A>);
/// The same, with captured variables.
type BoxedPart<A> = Box<dyn FnOnce(&Set<A>) + Send>;

/// Runs the parts concurrently, then checks the keys. (Each part has its own thread: loom does not
/// try all orders of what a model's first thread does after a spawn.)
pub(super) fn beside<A: Algorithm>(set: Set<A>, parts: &[Part<A>], keys: &[u64]) {
    let parts = parts.iter().map(|part| Box::new(*part) as BoxedPart<A>);
    run(set, parts).check(keys);
}

/// As [`beside`], for two parts that are closures.
pub(super) fn both<A: Algorithm>(
    set: Set<A>,
    one: impl FnOnce(&Set<A>) + Send + 'static,
    other: impl FnOnce(&Set<A>) + Send + 'static,
    keys: &[u64],
) {
    let parts: [BoxedPart<A>; 2] = [Box::new(one), Box::new(other)];
    run(set, parts.into_iter()).check(keys);
}

fn run<A: Algorithm>(set: Set<A>, parts: impl Iterator<Item = BoxedPart<A>>) -> Set<A> {
    let set = Arc::new(set);
    let spawn = |part: BoxedPart<A>| {
        let set = set.clone();
        thread::spawn(move || part(&set))
    };
    let threads: Vec<_> = parts.map(spawn).collect();
    for thread in threads {
        thread.join().unwrap();
    }
    let set = Arc::try_unwrap(set).ok();
    set.expect("all threads are done")
}

/// The keys that are present in [`every_pair`], as [`Set::new`] takes them: the last is the first
/// of its chain.
pub(super) const PRESENT: [u64; 3] = [3, 2, 1];

/// Each operation concurrent with each other one, in a set of [`PRESENT`].
pub(super) fn every_pair<A: Algorithm>(make: fn() -> Set<A>) {
    every_pair_bounded(make, 2);
}

/// As [`every_pair`], for sets in which that has too many schedules: lookups beside updates are
/// preempted at most `lookups` times.
pub(super) fn every_pair_bounded<A: Algorithm>(make: fn() -> Set<A>, lookups: usize) {
    for pair in pairs([1, 2, 3, 4, 5]) {
        let looks = matches!(pair[0], SetOperation::Find(_));
        let bound = if looks { lookups } else { 2 };
        corewise_atomic::model_bounded(bound, move || operation_pairs::pair(make(), PRESENT, pair));
    }
}

/// Each operation during an expansion and during a shrink.
pub(super) fn every_operation_beside_a_resize<A: Algorithm>() {
    use SetOperation::{Find, Insert, Remove};
    for buckets in [1, 2] {
        for pair in beside_a_resize(&[Find(1), Find(3), Insert(4), Remove(2)]) {
            corewise_atomic::model_bounded(2, move || {
                operation_pairs::pair(Set::<A>::new(buckets, &PRESENT), PRESENT, pair);
            });
        }
    }
}
