//! A set of numbers over a table, for the models: nodes whose every use the checkers see.

use std::ptr::NonNull;

use corewise_atomic::cell::DataCell;
use corewise_atomic::sync::Arc;
use corewise_atomic::thread;
use corewise_rcu::Domain;

use super::algorithm::{Algorithm, Link};

#[repr(C)]
struct Node {
    link: Link,
    key: u64,
    /// Written again after the node's grace period: a reader that is still there is a race.
    alive: DataCell<bool>,
}

/// The node of a link.
fn node<'n>(link: NonNull<Link>) -> &'n Node {
    // SAFETY: links of a set are those of its nodes, kept while they are looked at; the link is the first
    // field.
    unsafe { link.cast().as_ref() }
}

/// Keys are their hashes: with two buckets, odd and even numbers.
pub(super) struct Set<A: Algorithm> {
    pub(super) table: A,
    pub(super) domain: Domain,
}

impl<A: Algorithm> Set<A> {
    /// A table of keys, the first of which comes first in its chain.
    pub(super) fn new(buckets: usize, keys: impl DoubleEndedIterator<Item = u64>) -> Self {
        let domain = Domain::new();
        let set = Self {
            table: A::try_new(buckets, &domain).unwrap(),
            domain,
        };
        for key in keys.rev() {
            assert!(set.insert(key));
        }
        set
    }

    fn is(key: u64) -> impl FnMut(NonNull<Link>) -> bool {
        move |link| {
            let node = node(link);
            // SAFETY: written before it is linked and after its grace period: the checkers say if not.
            assert!(unsafe { node.alive.read() }, "a dead node was found");
            node.key == key
        }
    }

    pub(super) fn has(&self, key: u64) -> bool {
        let section = self.domain.pin();
        // SAFETY: a section of the table's domain.
        unsafe { self.table.find(&section, key, Self::is(key)) }.is_some()
    }

    pub(super) fn insert(&self, key: u64) -> bool {
        let node = Box::new(Node {
            link: Link::new(key),
            key,
            alive: DataCell::new(false),
        });
        // SAFETY: nobody else has the node. (Making a cell is no access to the checkers, this is.)
        unsafe { node.alive.write(true) };
        let link = NonNull::from(Box::leak(node)).cast();
        let section = self.domain.pin();
        // SAFETY: a section of the table's domain, and a new node.
        let inserted = unsafe { self.table.insert(&section, link, Self::is(key)) }.is_ok();
        if !inserted {
            bury(link);
        }
        inserted
    }

    /// Removes a key, waits for readers, and frees its node; whether it was there.
    pub(super) fn remove(&self, key: u64) -> bool {
        let section = self.domain.pin();
        // SAFETY: a section of the table's domain.
        let removed = unsafe { self.table.remove(&section, key, Self::is(key)) };
        drop(section);
        let Some(link) = removed else {
            return false;
        };
        self.domain.synchronize();
        // SAFETY: no reader is left; the checkers say if one is.
        unsafe { node(link).alive.write(false) };
        bury(link);
        true
    }

    /// All keys, sorted; the set is empty then.
    pub(super) fn take(self) -> Vec<u64> {
        let mut set = self;
        let mut keys = Vec::new();
        set.table.take_all(|link| {
            keys.push(node(link).key);
            bury(link);
        });
        keys.sort_unstable();
        keys
    }
}

impl<A: Algorithm> Drop for Set<A> {
    fn drop(&mut self) {
        self.table.take_all(bury);
    }
}

fn bury(link: NonNull<Link>) {
    // SAFETY: made by `insert`, in no table, and nobody looks at it.
    drop(unsafe { Box::from_raw(link.cast::<Node>().as_ptr()) });
}

/// Runs two bodies beside each other, each on a thread of its own (what the first thread of a model does after
/// spawning another, loom does not try in all orders); the set afterwards.
pub(super) fn beside<A: Algorithm>(
    set: Set<A>,
    one: impl FnOnce(&Set<A>) + Send + 'static,
    other: impl FnOnce(&Set<A>) + Send + 'static,
) -> Set<A> {
    let set = Arc::new(set);
    let (its, others) = (set.clone(), set.clone());
    let one = thread::spawn(move || one(&its));
    let other = thread::spawn(move || other(&others));
    one.join().unwrap();
    other.join().unwrap();
    Arc::try_unwrap(set).ok().expect("both are done")
}
