//! Models of the raw table for the checkers: reads and updates against every phase of a resize,
//! entered directly. As ordinary tests each runs once.
//!
//! The chain is the paper's: 1 → 2 → 3 → 4 in one bucket, odd and even numbers in two.

use std::ptr::NonNull;

use corewise_atomic::cell::DataCell;
use corewise_atomic::sync::Arc;
use corewise_atomic::thread;
use corewise_rcu::{Domain, Guard};

use super::raw::{Link, Policy, RawTable};

#[repr(C)]
struct Node {
    link: Link,
    key: u64,
    /// Written again after the node's grace period: a reader that is still there is a race.
    alive: DataCell<bool>,
}

/// Keys are their hashes, with the filter's bits made of the key too.
fn hash(key: u64) -> u64 {
    key << 60 | key
}

fn node(key: u64) -> NonNull<Link> {
    let node = Node {
        link: Link::new(hash(key)),
        key,
        alive: DataCell::new(true),
    };
    NonNull::from(Box::leak(Box::new(node))).cast()
}

fn bury(link: NonNull<Link>) {
    // SAFETY: a node made above that nobody uses any more.
    drop(unsafe { Box::from_raw(link.cast::<Node>().as_ptr()) });
}

struct Set {
    raw: RawTable,
    domain: Domain,
}

impl Set {
    /// A table of keys, the first of which comes first in its chain.
    fn new(
        buckets: usize,
        keys: impl IntoIterator<Item = u64, IntoIter: DoubleEndedIterator>,
    ) -> Self {
        let domain = Domain::new();
        let policy = Policy {
            min_buckets: buckets,
            automatic: false,
        };
        let set = Self {
            raw: RawTable::new(buckets, policy, domain.clone()),
            domain,
        };
        for key in keys.into_iter().rev() {
            assert!(set.insert(key));
        }
        set
    }

    fn find(&self, guard: &Guard<'_>, key: u64) -> Option<NonNull<Link>> {
        // SAFETY: a guard of the table's domain, and nodes made by `node`.
        unsafe {
            let is_it = |link: NonNull<Link>| link.cast::<Node>().as_ref().key == key;
            let found = self.raw.find(guard, hash(key), is_it)?;
            assert!(
                found.cast::<Node>().as_ref().alive.read(),
                "a dead node was found"
            );
            Some(found)
        }
    }

    fn has(&self, key: u64) -> bool {
        self.find(&self.domain.pin(), key).is_some()
    }

    fn insert(&self, key: u64) -> bool {
        let new = node(key);
        let guard = self.domain.pin();
        let is_it = |link: NonNull<Link>| {
            // SAFETY: nodes made by `node`.
            unsafe { link.cast::<Node>().as_ref() }.key == key
        };
        // SAFETY: a guard of the table's domain; the node is new, and aligned by its link.
        let inserted = unsafe { self.raw.insert(&guard, new, is_it) }.is_ok();
        if !inserted {
            bury(new);
        }
        inserted
    }

    /// Removes a key; its node, if this call has removed it.
    fn remove(&self, key: u64) -> Option<NonNull<Link>> {
        let guard = self.domain.pin();
        let found = self.find(&guard, key)?;
        // SAFETY: found in this section.
        unsafe { self.raw.remove(&guard, found) }.then_some(found)
    }

    fn replace(&self, key: u64) -> Option<NonNull<Link>> {
        let guard = self.domain.pin();
        let found = self.find(&guard, key)?;
        let new = node(key);
        // SAFETY: found in this section; the new node is of the same key.
        if unsafe { self.raw.replace(&guard, found, new) } {
            return Some(found);
        }
        bury(new);
        None
    }

    /// Waits for readers and frees.
    fn free(&self, link: NonNull<Link>) {
        self.domain.synchronize();
        // SAFETY: no reader is left; the checkers say if one is.
        unsafe { link.cast::<Node>().as_ref().alive.write(false) };
        bury(link);
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
            thread::yield_now();
        }
    }

    fn keys(&self) -> Vec<u64> {
        let guard = self.domain.pin();
        // SAFETY: used within the section; nodes made by `node`.
        let mut keys: Vec<u64> = unsafe {
            let nodes = self.raw.iter(&guard);
            nodes.map(|link| link.cast::<Node>().as_ref().key).collect()
        };
        keys.sort_unstable();
        keys
    }
}

impl Drop for Set {
    fn drop(&mut self) {
        let mut all = Vec::new();
        self.raw.for_each_mut(|link| all.push(link));
        all.into_iter().for_each(bury);
    }
}

/// Runs one body beside another.
fn beside(set: &Arc<Set>, other: impl FnOnce(&Set) + Send + 'static, own: impl FnOnce(&Set)) {
    let theirs = set.clone();
    let thread = thread::spawn(move || other(&theirs));
    own(set);
    thread.join().unwrap();
}

/// A set in which a resize to `buckets` has had `steps` steps.
fn under_way(set: Set, buckets: usize, steps: usize) -> Arc<Set> {
    set.want(buckets);
    (0..steps).for_each(|_| set.step());
    Arc::new(set)
}

const EXPAND_STEPS: usize = 4;
const SHRINK_STEPS: usize = 3;

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
        let theirs = set.clone();
        let thread = thread::spawn(move || theirs.insert(2));
        let ours = set.insert(2);
        assert!(thread.join().unwrap() ^ ours);
        assert_eq!(set.keys(), [2]);
    });
}

#[test]
fn one_of_two_removals_wins() {
    corewise_atomic::model_bounded(3, || {
        let set = Arc::new(Set::new(1, [1, 2, 3]));
        let theirs = set.clone();
        let thread = thread::spawn(move || theirs.remove(2).map(|node| node.addr()));
        let ours = set.remove(2);
        assert!(thread.join().unwrap().is_some() ^ ours.is_some());
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

/// The insertion of 6 beside the step that comes after `steps` steps.
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
        assert!((1..5).all(|key| set.has(key)) && set.has(6));
    });
}

#[test]
fn an_insert_beside_each_step_of_an_expansion() {
    (0..=EXPAND_STEPS).for_each(|steps| insert_in_phase((1, 2), steps));
}

#[test]
fn an_insert_beside_each_step_of_a_shrink() {
    (0..=SHRINK_STEPS).for_each(|steps| insert_in_phase((2, 1), steps));
}

/// The removal of `key` beside the step that comes after `steps` steps.
fn remove_in_phase(buckets: (usize, usize), steps: usize, key: u64) {
    corewise_atomic::model_bounded(3, move || {
        let set = under_way(Set::new(buckets.0, [1, 2, 3, 4]), buckets.1, steps);
        beside(&set, Set::step, |set| {
            let removed = set.remove(key).unwrap();
            assert!(!set.has(key));
            set.free(removed);
        });
        set.finish();
        let rest: Vec<u64> = (1..5).filter(|other| *other != key).collect();
        assert!(rest.iter().all(|key| set.has(*key)));
        assert_eq!(set.keys(), rest);
    });
}

#[test]
fn a_removal_beside_each_step_of_an_expansion() {
    for steps in 0..=EXPAND_STEPS {
        (1..5).for_each(|key| remove_in_phase((1, 2), steps, key));
    }
}

#[test]
fn a_removal_beside_each_step_of_a_shrink() {
    for steps in 0..=SHRINK_STEPS {
        (1..5).for_each(|key| remove_in_phase((2, 1), steps, key));
    }
}

/// A removal in the middle of unzipping, and what follows, beside a lookup.
fn find_during_removal(steps: usize, removed: u64, sought: u64) {
    corewise_atomic::model_bounded(3, move || {
        let set = under_way(Set::new(1, [1, 2, 3, 4]), 2, steps);
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
    corewise_atomic::model_bounded(3, || {
        let set = Arc::new(Set::new(1, [1, 2, 3, 4]));
        let guard = set.domain.pin();
        for buckets in [2, 4] {
            set.want(buckets);
            (0..4).for_each(|_| set.step());
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

/// Everything at once, for the checker of long schedules.
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
