//! Models of the raw table for the checkers: lookups and updates during every phase of a resize,
//! entered directly. As ordinary tests, each model runs once.
//!
//! The chain is the one in \[ATC11\]: 1 → 2 → 3 → 4 in one bucket, odd and even numbers in two.
//!
//! # Which model covers what
//!
//! *Two concurrent operations*: [`every_pair`] in each [`Phase`] of a resize. Other models examine
//! a pair in more detail, with more preemptions, or with a third thread:
//!
//! | | find | iterate | insert | remove | replace |
//! |---|---|---|---|---|---|
//! | insert | all phases; a | all phases | all phases; b | | |
//! | remove | all phases; c, d | all phases | all phases | all phases; e | |
//! | replace | all phases; f, d | all phases | all phases | all phases | all phases |
//!
//! All phases: at rest, `Zip`, zipped, `Unzip`, two zipped levels, `CrossLink`, `Open`.
//!
//! - a: `an_inserted_node_is_seen_whole`.
//! - b: `one_of_two_inserts_wins`.
//! - c: `a_removed_node_is_freed_after_its_readers`,
//!   `lookups_do_not_notice_removals_during_an_expansion`, and in every order of steps
//!   `a_slow_lookup_finds_its_key_beside_a_removal`.
//! - d: `the_way_on_from_a_removed_node_is_seen_whole`.
//! - e: `one_of_two_removals_wins`.
//! - f: `a_replaced_key_is_never_missing`.
//!
//! Words of a mirror: `words_of_the_larger_table_do_not_stray`.
//!
//! *An operation concurrent with a step* of a resize, after any number of steps: that is, with
//! linking a bucket, publishing, each cut, forwarding, opening, retiring and freeing a table.
//!
//! | | larger (`Zip`, zipped, `Unzip`, retired) | smaller (`CrossLink`, `Open`, retired) |
//! |---|---|---|
//! | find | [`beside_each_step`]; with all steps `lookups_do_not_notice_an_expansion` | the same; `lookups_do_not_notice_a_shrink` |
//! | iterate, replace | [`beside_each_step`] | the same |
//! | insert | `an_insert_beside_each_step_of_an_expansion` | `an_insert_beside_each_step_of_a_shrink` |
//! | remove | `a_removal_beside_each_step_of_an_expansion` | `a_removal_beside_each_step_of_a_shrink` |
//!
//! Iterations that pause during several resizes: `iteration`.
//!
//! Several steps and updates concurrent with lookups: `updates_and_lookups_during_resizes`, under
//! shuttle.

use std::num::NonZeroU32;
use std::ptr::NonNull;
// Not the checkers' atomics: see `Nodes`.
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering::SeqCst};
// Not the checkers': it carries a value out of a model.
use std::sync::{Arc as StdArc, OnceLock};

use corewise_atomic::cell::DataCell;
use corewise_atomic::sync::Arc;
use corewise_atomic::{hint, thread};
use corewise_rcu::{Domain, Guard};

#[cfg(not(corewise_stress))]
use super::RelativisticMap;
use super::chain::{Arena, Link};
use super::raw::RawTable;
use super::resizer::ResizePolicy;
use super::word::{NodeId, Probe, fold};
use crate::copy_map::numbers::beside;
use corewise_testkit::operation_pairs::{
    self, Answer, Operated, PairKeys, SetOperation, beside_a_resize, pairs_with_replacements,
};

mod iteration;

#[repr(C)]
struct Node {
    link: Link,
    key: u64,
    /// Written again after the node's grace period: a reader that still reads it is a data race.
    alive: DataCell<bool>,
}

/// Keys are their hashes; the filter's bits are derived from the key too.
fn hash(key: u64) -> u64 {
    key << 60 | key
}

/// The nodes of a model, by ID. The checkers do not see these atomics, so they order nothing for
/// the checkers and cannot hide a missing ordering.
struct Nodes {
    nodes: [AtomicPtr<Node>; 64],
    made: AtomicU32,
}

// SAFETY: nodes are boxed, and freed by `reclaim` alone.
unsafe impl Arena for Nodes {
    unsafe fn link(&self, id: NodeId) -> NonNull<Link> {
        NonNull::new(self.at(id).load(SeqCst)).unwrap().cast()
    }
}

impl Nodes {
    fn new() -> Self {
        Self {
            nodes: [const { AtomicPtr::new(std::ptr::null_mut()) }; 64],
            made: AtomicU32::new(1),
        }
    }

    fn at(&self, id: NodeId) -> &AtomicPtr<Node> {
        &self.nodes[id.0.get() as usize]
    }

    fn make(&self, key: u64) -> NodeId {
        let node = Node {
            link: Link::new(hash(key)),
            key,
            alive: DataCell::new(false),
        };
        let node = Box::leak(Box::new(node));
        // SAFETY: no other thread has the node. (For the checkers, creating a cell is not an
        // access; this write is.)
        unsafe { node.alive.write(true) };
        let id = NodeId(NonZeroU32::new(self.made.fetch_add(1, SeqCst)).unwrap());
        self.at(id).store(node, SeqCst);
        id
    }

    /// Frees a node that no thread uses any more.
    fn reclaim(&self, id: NodeId) {
        let node = self.at(id).swap(std::ptr::null_mut(), SeqCst);
        // SAFETY: `make` has leaked the box, and no thread uses the node any more.
        drop(unsafe { Box::from_raw(node) });
    }
}

/// The node of a link.
fn node(link: NonNull<Link>) -> &'static Node {
    // SAFETY: links of these models belong to such nodes, which are kept while they are used; the
    // link is the first field.
    unsafe { link.cast().as_ref() }
}

struct Set {
    raw: RawTable<Nodes>,
    domain: Domain,
    /// Nodes that are freed later, see [`Operated::settle`].
    graves: std::sync::Mutex<Vec<NodeId>>,
}

impl Set {
    /// A table of keys in one chain, in the given order.
    fn new(
        buckets: usize,
        keys: impl IntoIterator<Item = u64, IntoIter: DoubleEndedIterator>,
    ) -> Self {
        let domain = Domain::new();
        let policy = ResizePolicy {
            min_buckets: buckets,
            automatic: false,
            quadruple_below: 0,
            huge_pages: true,
        };
        let set = Self {
            raw: RawTable::new(buckets, policy, domain.clone(), Nodes::new()),
            domain,
            graves: std::sync::Mutex::default(),
        };
        for key in keys.into_iter().rev() {
            assert!(set.insert(key));
        }
        set
    }

    fn find(&self, guard: &Guard<'_>, key: u64) -> Option<NonNull<Link>> {
        let eq = |link| node(link).key == key;
        // SAFETY: a guard of the table's domain.
        let found = unsafe { self.raw.find(guard, hash(key), eq)? };
        // SAFETY: written before it is linked and after its grace period: the checkers report
        // violations.
        assert!(unsafe { node(found).alive.read() }, "a dead node was found");
        Some(found)
    }

    fn has(&self, key: u64) -> bool {
        self.find(&self.domain.pin(), key).is_some()
    }

    fn insert(&self, key: u64) -> bool {
        let new = self.raw.arena().make(key);
        let guard = self.domain.pin();
        let eq = |link| node(link).key == key;
        // SAFETY: a guard of the table's domain, and a new node.
        let inserted = unsafe { self.raw.insert(&guard, new, eq) }.is_ok();
        if !inserted {
            self.raw.arena().reclaim(new);
        }
        inserted
    }

    /// Removes a key; returns its node if this call removed it.
    fn remove(&self, key: u64) -> Option<NodeId> {
        let guard = self.domain.pin();
        let found = self.find(&guard, key)?;
        // SAFETY: the guard is of the table's domain, and the node was found in its section (1).
        unsafe { self.raw.remove(&guard, found) }
    }

    fn replace(&self, key: u64) -> Option<NodeId> {
        let guard = self.domain.pin();
        let found = self.find(&guard, key)?;
        let new = self.raw.arena().make(key);
        // SAFETY: found in this section; the new node is of the same key.
        let replaced = unsafe { self.raw.replace(&guard, found, new) };
        if replaced.is_none() {
            self.raw.arena().reclaim(new);
        }
        replaced
    }

    /// Calls `take` until it returns the node of a key, which goes to the graves, or the key is
    /// absent.
    fn take(&self, key: u64, take: impl Fn() -> Option<NodeId>) -> Answer {
        Answer::Found(loop {
            if let Some(node) = take() {
                self.graves.lock().unwrap().push(node);
                break true;
            }
            // Another node may have replaced the one that was found.
            if !self.has(key) {
                break false;
            }
        })
    }

    /// Waits for readers and frees a node.
    fn free(&self, id: NodeId) {
        self.domain.synchronize();
        // SAFETY: no reader is left; the checkers report violations.
        unsafe { node(self.raw.arena().link(id)).alive.write(false) };
        self.raw.arena().reclaim(id);
    }

    fn want(&self, buckets: usize) {
        self.raw.resizer.lock().ask(buckets);
    }

    fn step(&self) {
        self.raw.step(1);
    }

    /// Steps until the resize is complete.
    fn finish(&self) {
        while !self.raw.is_settled() {
            self.raw.step(1);
            // Yields, under the checkers only: they try thousands of schedules in which other
            // threads must run.
            hint::spin_loop();
        }
    }

    /// After a resize, each chain contains nodes of one bucket only.
    fn assert_unzipped(&self) {
        let guard = self.domain.pin();
        // SAFETY: a guard of the table's domain.
        let length = |bucket| unsafe { self.raw.longest_chain_of(&guard, bucket, 1) }.0;
        let lengths = (0..self.raw.buckets()).map(length);
        assert_eq!(lengths.sum::<usize>(), self.keys().len());
    }

    fn keys(&self) -> Vec<u64> {
        let guard = self.domain.pin();
        // SAFETY: the guard is of the table's domain, and outlives the iterator and its nodes (1).
        let nodes = unsafe { self.raw.iter(&guard) }.map(node);
        // SAFETY: written before it is linked and after its grace period: the checkers report
        // violations.
        let alive =
            nodes.inspect(|node| assert!(unsafe { node.alive.read() }, "a dead node is met"));
        let mut keys: Vec<u64> = alive.map(|node| node.key).collect();
        keys.sort_unstable();
        keys
    }
}

impl Drop for Set {
    fn drop(&mut self) {
        self.raw.for_each_mut(Nodes::reclaim);
    }
}

impl Operated for Set {
    fn operate(&self, operation: SetOperation) -> Answer {
        match operation {
            SetOperation::Find(key) => Answer::Found(self.has(key)),
            SetOperation::Insert(key) => Answer::Found(self.insert(key)),
            SetOperation::Remove(key) => self.take(key, || self.remove(key)),
            SetOperation::Replace(key) => self.take(key, || self.replace(key)),
            SetOperation::Iterate => Answer::Keys(self.keys()),
            SetOperation::Resize => {
                self.step();
                Answer::Done
            }
        }
    }

    fn settle(self) -> Vec<u64> {
        for node in self.graves.lock().unwrap().drain(..) {
            self.free(node);
        }
        let keys = self.keys();
        self.finish();
        assert_eq!(self.keys(), keys);
        self.assert_unzipped();
        let guard = self.domain.pin();
        assert!(keys.iter().all(|key| self.find(&guard, *key).is_some()));
        drop(guard);
        keys
    }
}

/// A set in which `steps` steps of a resize to `buckets` are done.
fn under_way(set: Set, buckets: usize, steps: usize) -> Arc<Set> {
    set.want(buckets);
    (0..steps).for_each(|_| set.step());
    Arc::new(set)
}

const EXPAND_STEPS: usize = 6;
const SHRINK_STEPS: usize = 4;

/// The phase of a resize in which two operations run.
#[derive(Clone, Copy, Debug)]
enum Phase {
    AtRest,
    /// The larger table is linked, readers use the smaller one.
    Zip,
    /// The larger table is published.
    Zipped,
    /// The chain was cut once.
    Unzip,
    /// Two expansions are published.
    Stacked,
    /// The smaller table is linked, readers use the larger one.
    CrossLink,
    /// The smaller table is published, the bucket still locked through the larger one.
    Open,
}

impl Phase {
    fn keys(self) -> PairKeys {
        match self {
            // In a table of two buckets the other bucket is opened first.
            Phase::Open => [1, 3, 5, 7, 9],
            _ => [1, 2, 3, 4, 5],
        }
    }

    fn present(self) -> [u64; 3] {
        let [first, second, third, ..] = self.keys();
        [first, second, third]
    }

    fn enter(self) -> Set {
        // Buckets before and after, steps, and then the published buckets, those being built, and
        // the zipped levels.
        let (from, to, steps, state) = match self {
            Phase::AtRest => (1, 1, 0, (1, None, 0)),
            Phase::Zip => (1, 2, 1, (1, Some(2), 0)),
            Phase::Zipped => (1, 2, 2, (2, None, 1)),
            Phase::Unzip => (1, 2, 3, (2, None, 1)),
            Phase::Stacked => (1, 2, 2, (4, None, 2)),
            Phase::CrossLink => (2, 1, 1, (2, Some(1), 0)),
            Phase::Open => (4, 2, 3, (2, Some(2), 0)),
        };
        let set = Set::new(from, self.present());
        set.want(to);
        (0..steps).for_each(|_| set.step());
        if let Phase::Stacked = self {
            // The guard prevents cuts meanwhile.
            let _reader = set.domain.pin();
            set.want(4);
            (0..3).for_each(|_| set.step());
        }
        let entered = set.raw.resize_state();
        assert_eq!(state, (entered.buckets, entered.building, entered.zipped));
        set
    }
}

fn every_pair(phase: Phase) {
    for pair in pairs_with_replacements(phase.keys()) {
        corewise_atomic::model_bounded(2, move || {
            operation_pairs::pair(phase.enter(), phase.present(), pair);
        });
    }
}

#[test]
fn every_pair_at_rest() {
    every_pair(Phase::AtRest);
}

#[test]
fn every_pair_while_a_larger_table_is_linked() {
    every_pair(Phase::Zip);
}

#[test]
fn every_pair_while_chains_are_zipped() {
    every_pair(Phase::Zipped);
}

#[test]
fn every_pair_while_chains_are_unzipped() {
    every_pair(Phase::Unzip);
}

#[test]
fn every_pair_while_expansions_are_stacked() {
    every_pair(Phase::Stacked);
}

#[test]
fn every_pair_while_a_smaller_table_is_linked() {
    every_pair(Phase::CrossLink);
}

#[test]
fn every_pair_while_a_smaller_table_is_opened() {
    every_pair(Phase::Open);
}

/// Runs operations concurrently with the next step, after each number of steps.
fn beside_each_step(buckets: (usize, usize), steps: usize) {
    use SetOperation::{Find, Iterate, Replace};
    for steps in 0..=steps {
        for pair in beside_a_resize(&[Find(3), Replace(1), Replace(2), Iterate]) {
            corewise_atomic::model_bounded(2, move || {
                let set = Set::new(buckets.0, [1, 2, 3]);
                set.want(buckets.1);
                (0..steps).for_each(|_| set.step());
                operation_pairs::pair(set, [1, 2, 3], pair);
            });
        }
    }
}

#[test]
fn lookups_replacements_and_iterations_beside_each_step_of_an_expansion() {
    beside_each_step((1, 2), EXPAND_STEPS);
}

#[test]
fn lookups_replacements_and_iterations_beside_each_step_of_a_shrink() {
    beside_each_step((2, 1), SHRINK_STEPS);
}

#[test]
fn an_inserted_node_is_seen_whole() {
    corewise_atomic::model_bounded(3, || {
        let set = Arc::new(Set::new(1, [1]));
        beside(
            &set,
            |set| assert!(set.insert(2)),
            |set| {
                set.has(2);
                assert!(set.has(1));
            },
        );
        assert_eq!(set.keys(), [1, 2]);
    });
}

#[test]
fn one_of_two_inserts_wins() {
    corewise_atomic::model_bounded(3, || {
        let set = Arc::new(Set::new(1, []));
        let inserts = [set.clone(), set.clone()].map(|set| thread::spawn(move || set.insert(2)));
        let inserted = inserts.map(|thread| thread.join().unwrap());
        assert!(inserted[0] ^ inserted[1]);
        assert_eq!(set.keys(), [2]);
    });
}

#[test]
fn one_of_two_removals_wins() {
    corewise_atomic::model_bounded(3, || {
        let set = Arc::new(Set::new(1, [1, 2, 3]));
        let remove = |set: Arc<Set>| {
            thread::spawn(move || set.remove(2).map(|node| set.free(node)).is_some())
        };
        let removals = [set.clone(), set.clone()].map(remove);
        let removed = removals.map(|thread| thread.join().unwrap());
        assert!(removed[0] ^ removed[1]);
        assert_eq!(set.keys(), [1, 3]);
    });
}

#[test]
fn a_removed_node_is_freed_after_its_readers() {
    corewise_atomic::model_bounded(3, || {
        let set = Arc::new(Set::new(1, [1, 2]));
        beside(
            &set,
            |set| {
                let removed = set.remove(1).unwrap();
                set.free(removed);
            },
            |set| {
                set.has(1);
                assert!(set.has(2));
            },
        );
    });
}

#[test]
fn a_replaced_key_is_never_missing() {
    for steps in 0..=EXPAND_STEPS {
        corewise_atomic::model_bounded(3, move || {
            let set = under_way(Set::new(1, [1, 2, 3]), 2, steps);
            beside(
                &set,
                |set| {
                    let replaced = set.replace(2).unwrap();
                    set.free(replaced);
                },
                |set| assert!(set.has(2)),
            );
        });
    }
}

/// A reader on a removed node goes on to a node that a third thread has linked there. (One
/// preemption, of the reader, is enough.)
#[test]
fn the_way_on_from_a_removed_node_is_seen_whole() {
    corewise_atomic::model_bounded(1, || {
        let set = Arc::new(Set::new(1, [1, 2]));
        let (its, one, other) = (set.clone(), set.clone(), set.clone());
        let reader = thread::spawn(move || assert!(its.has(2)));
        let replaced = thread::spawn(move || one.replace(2).unwrap());
        let removed = thread::spawn(move || other.remove(1).unwrap());
        reader.join().unwrap();
        set.raw.arena().reclaim(replaced.join().unwrap());
        set.raw.arena().reclaim(removed.join().unwrap());
        assert_eq!(set.keys(), [2]);
    });
}

#[test]
fn lookups_do_not_notice_an_expansion() {
    corewise_atomic::model_bounded(3, || {
        let set = Arc::new(Set::new(1, [1, 2, 3, 4]));
        set.want(2);
        beside(&set, Set::finish, |set| assert!(set.has(4)));
        assert_eq!(set.keys(), [1, 2, 3, 4]);
    });
}

#[test]
fn lookups_do_not_notice_a_shrink() {
    corewise_atomic::model_bounded(3, || {
        let set = Arc::new(Set::new(2, [1, 2, 3, 4]));
        set.want(1);
        beside(&set, Set::finish, |set| {
            assert!(set.has(1));
            assert!(set.has(4));
        });
        assert_eq!(set.keys(), [1, 2, 3, 4]);
    });
}

/// Inserts 6 concurrently with the step that comes after `steps` steps.
fn insert_in_phase(buckets: (usize, usize), steps: usize) {
    corewise_atomic::model_bounded(3, move || {
        let set = under_way(Set::new(buckets.0, [1, 2, 3, 4]), buckets.1, steps);
        beside(&set, Set::step, |set| {
            assert!(set.insert(6));
            assert!(set.has(6));
        });
        assert!(set.has(6) && set.has(4));
        set.finish();
        assert_eq!(set.keys(), [1, 2, 3, 4, 6]);
        set.assert_unzipped();
        assert!((1..5).all(|key| set.has(key)) && set.has(6));
    });
}

#[test]
fn an_insert_beside_each_step_of_an_expansion() {
    (0..=EXPAND_STEPS).for_each(|steps| insert_in_phase((1, 2), steps));
}

/// A bucket whose nodes all belong to one child needs no cut, until a node of another child comes.
#[test]
fn an_insert_into_a_pure_bucket_survives_each_step_of_an_expansion() {
    for steps in 0..=EXPAND_STEPS {
        corewise_atomic::model_bounded(2, move || {
            let set = under_way(Set::new(1, [1, 3]), 2, steps);
            beside(&set, Set::step, |set| assert!(set.insert(2)));
            set.finish();
            assert_eq!(set.keys(), [1, 2, 3]);
            set.assert_unzipped();
        });
    }
}

#[test]
fn an_insert_beside_each_step_of_a_shrink() {
    (0..=SHRINK_STEPS).for_each(|steps| insert_in_phase((2, 1), steps));
}

/// Removes `key` of `keys` concurrently with the step that comes after `steps` steps.
fn remove_in_phase(keys: &[u64], buckets: (usize, usize), steps: usize, key: u64) {
    let keys = keys.to_vec();
    corewise_atomic::model_bounded(2, move || {
        let set = under_way(Set::new(buckets.0, keys.clone()), buckets.1, steps);
        beside(&set, Set::step, move |set| {
            let removed = set.remove(key).unwrap();
            assert!(!set.has(key));
            set.free(removed);
        });
        set.finish();
        let rest: Vec<u64> = keys.iter().copied().filter(|other| *other != key).collect();
        assert!(rest.iter().all(|key| set.has(*key)));
        assert_eq!(set.keys(), rest);
        set.assert_unzipped();
    });
}

#[test]
fn a_removal_beside_each_step_of_an_expansion() {
    for steps in 0..=EXPAND_STEPS {
        (1..5).for_each(|key| remove_in_phase(&[1, 2, 3, 4], (1, 2), steps, key));
    }
}

#[test]
fn a_removal_from_a_pure_bucket_beside_each_step_of_an_expansion() {
    for steps in 0..=EXPAND_STEPS {
        for key in [1, 3] {
            remove_in_phase(&[1, 3], (1, 2), steps, key);
        }
    }
}

#[test]
fn a_removal_beside_each_step_of_a_shrink() {
    for steps in 0..=SHRINK_STEPS {
        (1..5).for_each(|key| remove_in_phase(&[1, 2, 3, 4], (2, 1), steps, key));
    }
}

/// Until a shrink is published, the larger table's words lead only to nodes of their own buckets:
/// updates of other buckets do not look there. (Found by a recorded history.)
#[test]
fn words_of_the_larger_table_do_not_stray() {
    corewise_atomic::model(|| {
        // The chain will be 2, 4, 1, 3.
        let set = under_way(Set::new(2, [1, 2, 3, 4]), 1, 1);
        assert_eq!(set.raw.resize_state().building, Some(1));
        assert!(set.insert(5));
        for key in [5, 2, 4] {
            set.free(set.remove(key).unwrap());
        }
        set.free(set.replace(1).unwrap());
        assert!(set.has(1) && set.has(3));
        set.finish();
        assert_eq!(set.keys(), [1, 3]);
    });
}

/// A removal in the middle of unzipping and the steps after it, concurrent with a lookup.
fn find_during_removal(steps: usize, removed: u64, sought: u64) {
    corewise_atomic::model_bounded(2, move || {
        let set = under_way(Set::new(1, [1, 2, 3, 4]), 2, steps);
        // The grace period before the next cut is over: the removal must delay the cut.
        set.domain.synchronize();
        beside(
            &set,
            move |set| {
                let node = set.remove(removed).unwrap();
                set.finish();
                set.free(node);
            },
            move |set| assert!(set.has(sought)),
        );
    });
}

#[test]
fn lookups_do_not_notice_removals_during_an_expansion() {
    for steps in 1..=EXPAND_STEPS {
        find_during_removal(steps, 1, 4);
        find_during_removal(steps, 2, 4);
        find_during_removal(steps, 3, 4);
        find_during_removal(steps, 2, 3);
    }
}

/// Expansions while a reader keeps every grace period from ending.
#[test]
fn expansions_are_stacked_and_updated() {
    corewise_atomic::model_bounded(2, || {
        let set = Arc::new(Set::new(1, [1, 2, 3, 4]));
        let guard = set.domain.pin();
        for buckets in [2, 4] {
            set.want(buckets);
            (0..3 * buckets).for_each(|_| set.step());
        }
        assert_eq!(set.raw.resize_state().zipped, 2);
        let removed = set.remove(3).unwrap();
        beside(
            &set,
            |set| assert!(set.insert(6) && set.insert(8)),
            |set| assert!(set.has(4) && !set.has(3)),
        );
        drop(guard);
        set.free(removed);
        set.finish();
        assert_eq!(set.keys(), [1, 2, 4, 6, 8]);
        assert!([1, 2, 4, 6, 8].iter().all(|key| set.has(*key)));
    });
}

/// A reader keeps each kind of requested resize from going on: to fewer buckets, to the present
/// number while chains are zipped, and to more through a common divisor.
#[test]
#[cfg(not(corewise_stress))]
fn growth_does_not_wait_for_a_requested_resize() {
    for requested in [16, 64, 96] {
        let map = RelativisticMap::builder();
        let map = map.buckets(8).domain(Domain::new()).build();
        let guard = map.domain().pin();
        for n in 0..40u64 {
            map.pin().insert(n, n);
        }
        let state = map.resize_state();
        assert_eq!((state.buckets, state.zipped), (64, 1));
        map.raw.resizer.lock().ask(requested);
        for n in 40..3_000 {
            map.pin().insert(n, n);
        }
        assert!(
            map.longest_chain() < 40,
            "{requested}: {}",
            map.longest_chain()
        );
        assert!(map.resize_state().buckets >= 4_096, "{requested}");
        drop(guard);
        map.settle().unwrap();
        assert_eq!(map.resize_state().zipped, 0);
        assert!((0..3_000).all(|n| map.pin().contains_key(&n)));
    }
}

/// A request that nothing delays is met before the table grows, also if it is full then.
#[test]
#[cfg(not(corewise_stress))]
fn a_requested_resize_that_need_not_wait_is_not_dropped() {
    let map = RelativisticMap::builder().domain(Domain::new()).build();
    for n in 0..40u64 {
        map.pin().insert(n, n);
    }
    map.settle().unwrap();
    let completed = map.resize_state().completed;
    map.resize_to(32).unwrap();
    map.settle().unwrap();
    // Down, and up again.
    assert_eq!(map.resize_state().completed, completed + 2);
}

/// All operations together, for the checker of long schedules.
#[test]
fn updates_and_lookups_during_resizes() {
    corewise_atomic::model_bounded(3, || {
        let set = Arc::new(Set::new(1, [1, 2, 3, 4, 5, 6]));
        let resizer = set.clone();
        let resizer = thread::spawn(move || {
            for buckets in [2, 6, 3, 1] {
                resizer.want(buckets);
                resizer.finish();
            }
        });
        let reader = set.clone();
        let reader = thread::spawn(move || {
            for key in [4, 1, 6, 4, 1, 6] {
                assert!(reader.has(key), "{key} is missing");
            }
        });
        for key in [3, 2, 5, 3, 2] {
            let removed = set.remove(key).unwrap();
            assert!(!set.has(key));
            set.free(removed);
            assert!(set.insert(key));
            let replaced = set.replace(4).unwrap();
            set.free(replaced);
        }
        resizer.join().unwrap();
        reader.join().unwrap();
        assert_eq!(set.keys(), [1, 2, 3, 4, 5, 6]);
    });
}

/// A lookup that runs step by step.
struct SlowReader<'s> {
    set: &'s Set,
    sought: u64,
    guard: Option<Guard<'s>>,
    /// The next node of the chain, once the bucket was read.
    next: Option<Option<NodeId>>,
    found: Option<bool>,
}

impl<'s> SlowReader<'s> {
    fn new(set: &'s Set, sought: u64) -> Self {
        Self {
            set,
            sought,
            guard: None,
            next: None,
            found: None,
        }
    }

    /// Enters the section, reads the bucket, reads a link, ..., leaves. As `search` does.
    fn step(&mut self) {
        let Some(_) = self.guard else {
            self.guard = self.found.is_none().then(|| self.set.domain.pin());
            return;
        };
        let Some(next) = self.next else {
            let hash = fold(hash(self.sought));
            // SAFETY: the reference ends with the statement, before the guard is dropped (1).
            let word = unsafe { self.set.raw.current() }.word(hash);
            let may_hold = word.may_hold(Probe::new(hash));
            self.next = Some(word.first().filter(|_| may_hold));
            return;
        };
        let Some(id) = next else {
            return self.leave(false);
        };
        // SAFETY: the ID was read in the guard's section, for which removed nodes are kept (1).
        let node = node(unsafe { self.set.raw.arena().link(id) });
        if node.key == self.sought {
            return self.leave(true);
        }
        self.next = Some(node.link.next());
    }

    fn leave(&mut self, found: bool) {
        self.found = Some(found);
        self.guard = None;
    }
}

/// A resize with one update in it, and a lookup of a key that is present all the time.
#[derive(Clone, Copy, Debug)]
struct Scenario {
    buckets: (usize, usize),
    /// The key that is removed or replaced, and after how many steps of the resize.
    updated: u64,
    after: usize,
    replace: bool,
    sought: u64,
}

const SCENARIO_STEPS: usize = 9;
const READER_STEPS: usize = 6;

/// The turns of a scenario, out of all, that are the reader's; ascending.
type Order = [usize; READER_STEPS];

/// The first order.
fn first_order() -> Order {
    std::array::from_fn(|step| step)
}

/// The next order that differs in the first `used` turns of the reader; the others decide nothing
/// if its lookup has ended by then. False after the last one.
fn next_order(order: &mut Order, used: usize) -> bool {
    let is_last = |step: usize| order[step] == SCENARIO_STEPS + step;
    let Some(step) = (0..used).rfind(|&step| !is_last(step)) else {
        return false;
    };
    let turns = order[step] + 1..;
    for (turn, next) in order[step..].iter_mut().zip(turns) {
        *turn = next;
    }
    true
}

/// Runs a scenario; returns how many of its turns the reader used before its lookup ended.
fn run_in_order(scenario: Scenario, order: Order) -> usize {
    let set = Set::new(scenario.buckets.0, [1, 2, 3, 4]);
    set.want(scenario.buckets.1);
    let mut reader = SlowReader::new(&set, scenario.sought);
    let (mut steps, mut updated, mut used) = (0, None, 0);
    for turn in 0..(SCENARIO_STEPS + READER_STEPS) {
        if order.contains(&turn) {
            used += usize::from(reader.found.is_none());
            reader.step();
            continue;
        }
        if steps == scenario.after {
            // Without a reader the next cut could follow at once: the removal must delay it.
            set.domain.poll(set.domain.start_poll());
        } else if steps == scenario.after + 1 {
            updated = if scenario.replace {
                set.replace(scenario.updated)
            } else {
                set.remove(scenario.updated)
            };
        } else {
            set.step();
        }
        steps += 1;
    }
    while reader.found.is_none() {
        reader.step();
    }
    assert_eq!(
        reader.found,
        Some(true),
        "{scenario:?} in the order {order:?}"
    );
    set.finish();
    set.free(updated.unwrap());
    assert!(set.has(scenario.sought));
    assert_eq!(set.keys().len(), if scenario.replace { 4 } else { 3 });
    used
}

/// In all orders, without those that differ only in turns after the end of the lookup.
fn run_in_every_order(scenario: Scenario) {
    let mut order = first_order();
    loop {
        let used = StdArc::new(OnceLock::new());
        let result = StdArc::clone(&used);
        corewise_atomic::model(move || {
            let _ = result.set(run_in_order(scenario, order));
        });
        if !next_order(&mut order, *used.get().expect("the scenario has ended")) {
            return;
        }
    }
}

#[test]
#[cfg(not(any(corewise_loom, corewise_shuttle)))]
fn no_order_is_left_out() {
    // Turns used, and the ways to choose them beside the steps of the scenario.
    for (used, ways) in [(1, 10), (2, 55), (READER_STEPS, 5005)] {
        let mut orders = std::collections::BTreeSet::from([first_order()]);
        let mut order = first_order();
        while next_order(&mut order, used) {
            assert!(orders.insert(order));
        }
        assert_eq!(orders.len(), ways);
        let prefixes: std::collections::BTreeSet<_> = orders.iter().map(|o| &o[..used]).collect();
        assert_eq!(prefixes.len(), ways);
    }
}

/// Every order of a lookup's loads and a resize's steps, with one key removed or replaced at every
/// point. (Weak memory is not modelled here, but no schedule is left out.)
#[test]
#[cfg(not(any(corewise_loom, corewise_shuttle)))]
fn a_slow_lookup_finds_its_key_in_every_order() {
    // A subset of the scenarios where each takes longer.
    let stride = 1 + 3 * usize::from(std::env::var_os("COREWISE_FEWER").is_some());
    for after in (0..SCENARIO_STEPS - 1).step_by(stride) {
        for (updated, sought) in [(1, 4), (2, 4), (2, 3), (3, 4), (3, 1), (4, 3), (4, 2)] {
            for (buckets, replace) in [((1, 2), false), ((2, 1), false), ((1, 2), true)] {
                run_in_every_order(Scenario {
                    buckets,
                    updated,
                    after,
                    replace,
                    sought,
                });
            }
        }
    }
}

/// The orders that concern a removal in a trunk and the wait between sweeps.
#[test]
#[cfg(not(corewise_shuttle))]
fn a_slow_lookup_finds_its_key_beside_a_removal() {
    for after in [1, 2, 3, 4] {
        run_in_every_order(Scenario {
            buckets: (1, 2),
            updated: 2,
            after,
            replace: false,
            sought: 4,
        });
    }
}
