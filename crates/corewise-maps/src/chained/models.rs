//! Models of the paper's algorithms for the checkers: what the explorer takes for granted, that a link which
//! is seen leads to what was written before it. As ordinary tests each runs once.

use std::ptr::NonNull;

use corewise_atomic::cell::DataCell;
use corewise_atomic::mutant;
use corewise_atomic::sync::Arc;
use corewise_atomic::thread;
use corewise_rcu::Domain;

use super::algorithm::{Algorithm, Link};
use super::paper::{InPlace, NoAuxiliary, OutOfPlace, SortedByReversedHash};

#[repr(C)]
struct Node {
    link: Link,
    /// Written again after the node's grace period: a reader that is still there is a race.
    alive: DataCell<bool>,
}

/// A table whose keys are their hashes.
struct Set<A> {
    table: A,
    domain: Domain,
}

impl<A: Algorithm> Set<A> {
    fn new(buckets: usize, hashes: &[u64]) -> Arc<Self> {
        let domain = Domain::new();
        let table = A::try_new(buckets, &domain).unwrap();
        let set = Arc::new(Self { table, domain });
        hashes.iter().for_each(|hash| set.insert(*hash));
        set
    }

    fn insert(&self, hash: u64) {
        let node = Box::leak(Box::new(Node {
            link: Link::new(hash),
            alive: DataCell::new(false),
        }));
        // SAFETY: nobody else has the node.
        unsafe { node.alive.write(true) };
        let section = self.domain.pin();
        // SAFETY: a section of the table's domain; a new node, freed by `remove` and `drop`.
        let inserted = unsafe {
            self.table
                .insert(&section, NonNull::from(node).cast(), |_| true)
        };
        assert!(inserted.is_ok());
    }

    fn has(&self, hash: u64) -> bool {
        let section = self.domain.pin();
        // SAFETY: a section of the table's domain.
        let found = unsafe { self.table.find(&section, hash, |_| true) };
        found.is_some_and(|link| {
            // SAFETY: links of these tables are those of such nodes, kept while we look; written before it
            // is linked and after its grace period: the checkers say if not.
            unsafe { link.cast::<Node>().as_ref().alive.read() }
        })
    }

    fn remove(&self, hash: u64) {
        // SAFETY: a section of the table's domain.
        let removed = unsafe { self.table.remove(&self.domain.pin(), hash, |_| true) };
        let node = removed.expect("it was there").cast::<Node>();
        if !mutant!("chained_frees_at_once") {
            self.domain.synchronize();
        }
        // SAFETY: removed, and readers have left it.
        let node = unsafe { Box::from_raw(node.as_ptr()) };
        // SAFETY: as above.
        unsafe { node.alive.write(false) };
    }

    fn resize(&self, buckets: usize) {
        self.table.resize(buckets).unwrap();
    }
}

/// The set's nodes go with it.
fn bury<A: Algorithm>(set: Arc<Set<A>>) {
    let mut set = Arc::try_unwrap(set).ok().expect("the last owner");
    // SAFETY: made from boxes; nobody else has them.
    set.table
        .take_all(|link| drop(unsafe { Box::from_raw(link.cast::<Node>().as_ptr()) }));
}

/// One thread looks for all keys while another does something to the table. (Both on threads of their own:
/// what the first thread of a model does after spawning another, loom does not try in all orders.)
fn beside<A: Algorithm>(
    buckets: usize,
    hashes: &'static [u64],
    what: fn(&Set<A>),
    look: fn(&Set<A>),
) {
    corewise_atomic::model_bounded(2, move || {
        let set = Set::<A>::new(buckets, hashes);
        let (its, others) = (Arc::clone(&set), Arc::clone(&set));
        let reader = thread::spawn(move || look(&its));
        let worker = thread::spawn(move || what(&others));
        reader.join().unwrap();
        worker.join().unwrap();
        look(&set);
        bury(set);
    });
}

fn has_both<A: Algorithm>(set: &Set<A>) {
    assert!(set.has(1) && set.has(2));
}

#[test]
fn an_inserted_node_is_seen_whole() {
    let look = |set: &Set<OutOfPlace>| {
        let _ = set.has(3);
        has_both(set);
    };
    beside(1, &[1, 2], |set| set.insert(3), look);
}

#[test]
fn a_removed_node_outlives_its_readers() {
    let look = |set: &Set<OutOfPlace>| {
        let _ = set.has(3);
        has_both(set);
    };
    beside(1, &[1, 3, 2], |set| set.remove(3), look);
}

#[test]
fn lookups_do_not_notice_an_expansion() {
    beside::<OutOfPlace>(1, &[1, 2], |set| set.resize(2), has_both);
}

#[test]
fn lookups_do_not_notice_an_expansion_without_auxiliary_storage() {
    beside::<NoAuxiliary>(1, &[1, 2], |set| set.resize(2), has_both);
}

#[test]
fn lookups_do_not_notice_an_expansion_in_place() {
    beside::<InPlace>(1, &[1, 2], |set| set.resize(2), has_both);
}

#[test]
fn lookups_do_not_notice_an_expansion_of_sorted_chains() {
    beside::<SortedByReversedHash>(1, &[1, 2], |set| set.resize(2), has_both);
}

#[test]
fn lookups_do_not_notice_a_shrink() {
    beside::<OutOfPlace>(2, &[1, 2], |set| set.resize(1), has_both);
}

#[test]
fn lookups_do_not_notice_a_shrink_in_place() {
    beside::<InPlace>(2, &[1, 2], |set| set.resize(1), has_both);
}

/// The other's updates are in the stripe that is divided.
#[test]
fn updates_go_on_beside_an_expansion() {
    let look = |set: &Set<OutOfPlace>| {
        if !set.has(4) {
            set.insert(4);
        }
        assert!(set.has(4));
        has_both(set);
    };
    beside(1, &[1, 2], |set| set.resize(2), look);
}
