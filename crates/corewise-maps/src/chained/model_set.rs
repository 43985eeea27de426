//! What models of the tables are made of: a set of keys that frees what it removes, with an alarm.

use std::ptr::NonNull;

use corewise_atomic::cell::DataCell;
use corewise_atomic::mutant;
use corewise_atomic::sync::Arc;
use corewise_atomic::thread;
use corewise_rcu::{Domain, Guard};

use super::algorithm::{Algorithm, Link};

#[repr(C)]
struct Node {
    link: Link,
    key: u64,
    /// Written again after the node's grace period: a reader that is still there is a race.
    alive: DataCell<bool>,
}

/// Keys of the same lowest byte have the same hash.
pub(super) fn hash(key: u64) -> u64 {
    key & 0xff
}

/// A removed node.
#[must_use]
pub(super) struct Removed(NonNull<Link>);

// SAFETY: whoever removed the node is the only one to have it.
unsafe impl Send for Removed {}

/// A set of keys.
pub(super) struct Set<A: Algorithm> {
    pub(super) table: A,
    pub(super) domain: Domain,
    /// Nodes that are freed with the set. What the checkers do not see here orders nothing for them.
    graves: std::sync::Mutex<Vec<Removed>>,
}

/// Whether it is the node of a key. Nobody is asked about a dead one.
fn is(key: u64) -> impl FnMut(NonNull<Link>) -> bool {
    move |link| {
        // SAFETY: links of these sets are those of such nodes, kept while they are looked at.
        let node = unsafe { link.cast::<Node>().as_ref() };
        // SAFETY: written before it is linked and after its grace period: the checkers say if not.
        assert!(unsafe { node.alive.read() }, "a dead node is met");
        node.key == key
    }
}

fn bury(link: NonNull<Link>) {
    // SAFETY: made from a box by `insert`; nobody else has it.
    drop(unsafe { Box::from_raw(link.cast::<Node>().as_ptr()) });
}

impl<A: Algorithm> Set<A> {
    /// A set in a table of so many buckets. Keys are inserted one after the other.
    pub(super) fn new(buckets: usize, keys: &[u64]) -> Self {
        let domain = Domain::new();
        let table = A::try_new(buckets, &domain).expect("there is memory");
        let set = Self {
            table,
            domain,
            graves: std::sync::Mutex::default(),
        };
        for key in keys {
            assert!(set.insert(*key));
        }
        set
    }

    pub(super) fn has(&self, key: u64) -> bool {
        self.has_within(&self.domain.pin(), key)
    }

    pub(super) fn has_within(&self, guard: &Guard<'_>, key: u64) -> bool {
        // SAFETY: a guard of the table's domain.
        unsafe { self.table.find(guard, hash(key), is(key)) }.is_some()
    }

    pub(super) fn insert(&self, key: u64) -> bool {
        let node = Node {
            link: Link::new(hash(key)),
            key,
            alive: DataCell::new(false),
        };
        let node = Box::leak(Box::new(node));
        // SAFETY: nobody else has the node. (Making a cell is no access to the checkers, this is.)
        unsafe { node.alive.write(true) };
        let link = NonNull::from(node).cast();
        // SAFETY: a guard of the table's domain, and a new node.
        let inserted = unsafe { self.table.insert(&self.domain.pin(), link, is(key)) }.is_ok();
        if !inserted {
            bury(link);
        }
        inserted
    }

    /// Removes a key; its node, if this call has removed it.
    pub(super) fn remove(&self, key: u64) -> Option<Removed> {
        let guard = self.domain.pin();
        // SAFETY: a guard of the table's domain.
        unsafe { self.table.remove(&guard, hash(key), is(key)) }.map(Removed)
    }

    /// Waits for readers and frees.
    pub(super) fn free(&self, Removed(link): Removed) {
        if !mutant!("chained_frees_at_once") {
            self.domain.synchronize();
        }
        // SAFETY: no reader is left; the checkers say if one is.
        unsafe { link.cast::<Node>().as_ref().alive.write(false) };
        bury(link);
    }

    /// Removes a key that is there; its node is freed with the set.
    pub(super) fn leave_key(&self, key: u64) {
        let removed = self.remove(key).expect("it was there");
        self.graves.lock().unwrap().push(removed);
    }

    /// Removes a key that is there, and frees its node.
    pub(super) fn drop_key(&self, key: u64) {
        let removed = self.remove(key).expect("it was there");
        self.free(removed);
    }

    pub(super) fn resize(&self, buckets: usize) {
        self.table.resize(buckets).unwrap();
        assert_eq!(self.table.buckets(), buckets);
    }

    /// Fails unless these keys and no others are there, each once.
    pub(super) fn check(mut self, keys: &[u64]) {
        for key in keys {
            assert!(self.has(*key), "{key:#x} is missing");
        }
        let mut seen = Vec::new();
        self.table.take_all(|link| {
            // SAFETY: a node of the set, which is buried afterwards.
            seen.push(unsafe { link.cast::<Node>().as_ref() }.key);
            bury(link);
        });
        seen.sort_unstable();
        assert_eq!(seen, keys);
    }
}

impl<A: Algorithm> Drop for Set<A> {
    fn drop(&mut self) {
        self.table.take_all(bury);
        let graves = self.graves.get_mut().unwrap();
        graves.drain(..).for_each(|Removed(link)| bury(link));
    }
}

/// What threads do in a model.
type Part<A> = fn(&Set<A>);

/// Runs some parts beside each other, then checks what is there. (All on threads of their own: what the first
/// thread of a model does after spawning another, loom does not try in all orders.)
pub(super) fn beside<A: Algorithm>(set: Set<A>, parts: &[Part<A>], keys: &[u64]) {
    let set = Arc::new(set);
    let spawn = |part: &Part<A>| {
        let (set, part) = (set.clone(), *part);
        thread::spawn(move || part(&set))
    };
    let threads: Vec<_> = parts.iter().map(spawn).collect();
    for thread in threads {
        thread.join().unwrap();
    }
    let set = Arc::try_unwrap(set).ok();
    set.expect("all threads are done").check(keys);
}
