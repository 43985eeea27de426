//! Buckets for entries that found no room in theirs.

use std::ptr;

use corewise_atomic::lock::Mutex;
use corewise_atomic::sync::Arc;
use corewise_atomic::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use corewise_atomic::sync::atomic::{AtomicPtr, AtomicUsize};

use super::bucket::Node;
use super::state::NAME_BITS;
use crate::copy_map::space::{Heads, Space};

/// Segment `i` has 2^i buckets, whose names are from 2^i on.
const SEGMENTS: usize = NAME_BITS as usize;

/// The buckets that overflow in one table. They belong to it until it is freed, and to the bucket that they were
/// hung on.
pub(super) struct Overflow<K, V> {
    segments: [AtomicPtr<Heads<Node<K, V>>>; SEGMENTS],
    names: Mutex<Names>,
    /// Buckets that hang on others.
    hung: AtomicUsize,
    space: Arc<Space>,
}

/// Names that nobody has.
struct Names {
    /// Those from here on.
    fresh: u32,
    /// The first of those that were given back, or 0; each one's bucket has the next.
    returned: u32,
}

impl<K: Copy, V: Copy> Overflow<K, V> {
    pub(super) fn new(space: &Arc<Space>) -> Self {
        Self {
            segments: std::array::from_fn(|_| AtomicPtr::new(ptr::null_mut())),
            names: Mutex::new(Names {
                fresh: 1,
                returned: 0,
            }),
            hung: AtomicUsize::new(0),
            space: space.clone(),
        }
    }

    /// The bucket of a name that a [`Spare`] or a state had.
    pub(super) fn node(&self, name: u32) -> &Node<K, V> {
        let segment = name.ilog2() as usize;
        // Acquire: pairs with the Release in `segment`. (Who reads a name in a state saw it anyway.)
        let nodes = self.segments[segment].load(Acquire);
        // SAFETY: the name was given out, and its segment lives as long as the table.
        let nodes = unsafe { &*nodes };
        &nodes[name as usize - (1 << segment)]
    }

    /// Buckets that hang on others, give or take those being hung.
    pub(super) fn hung(&self) -> usize {
        // Relaxed: a number that publishes nothing, here and below.
        self.hung.load(Relaxed)
    }

    /// An empty bucket, if there is memory, and a name left.
    pub(super) fn spare(&self) -> Option<Spare<'_, K, V>> {
        let mut names = self.names.lock();
        let name = if names.returned != 0 {
            let name = names.returned;
            names.returned = self.node(name).state().next().unwrap_or(0);
            name
        } else {
            let name = names.fresh;
            self.segment(name)?;
            names.fresh = name + 1;
            name
        };
        drop(names);
        self.node(name).clear();
        Some(Spare {
            overflow: self,
            name,
        })
    }

    /// A bucket that hung on one that nobody else could ever reach, and does no more.
    pub(super) fn unhang(&self, name: u32) -> Spare<'_, K, V> {
        self.hung.fetch_sub(1, Relaxed);
        let overflow = self;
        Spare { overflow, name }
    }

    /// Sees to the memory of a name. The caller holds the lock `names`.
    fn segment(&self, name: u32) -> Option<()> {
        let segment = self.segments.get(name.ilog2() as usize)?;
        // Relaxed: written under the lock.
        if segment.load(Relaxed).is_null() {
            let len = 1 << name.ilog2();
            let bytes = Heads::<Node<K, V>>::bytes(len);
            if !self.space.take(bytes) {
                return None;
            }
            let Some(nodes) = Heads::try_new(len) else {
                self.space.give(bytes);
                return None;
            };
            // Release: pairs with the Acquire in `node`.
            segment.store(Box::into_raw(Box::new(nodes)), Release);
        }
        Some(())
    }
}

impl<K, V> Drop for Overflow<K, V> {
    fn drop(&mut self) {
        for (i, segment) in self.segments.iter().enumerate() {
            // Relaxed: nobody else is there.
            let nodes = segment.load(Relaxed);
            if !nodes.is_null() {
                // SAFETY: from a box, and nobody uses it any more.
                drop(unsafe { Box::from_raw(nodes) });
                self.space.give(Heads::<Node<K, V>>::bytes(1 << i));
            }
        }
    }
}

/// A bucket that hangs nowhere: empty, and its owner's alone. Dropped, it is given back.
pub(super) struct Spare<'t, K: Copy, V: Copy> {
    overflow: &'t Overflow<K, V>,
    name: u32,
}

impl<'t, K: Copy, V: Copy> Spare<'t, K, V> {
    pub(super) fn node(&self) -> &'t Node<K, V> {
        self.overflow.node(self.name)
    }

    /// Whether it is one of this table's.
    pub(super) fn is_of(&self, overflow: &Overflow<K, V>) -> bool {
        ptr::eq(self.overflow, overflow)
    }

    /// The name, for the state of the bucket that it is hung on.
    pub(super) fn hang(self) -> u32 {
        self.overflow.hung.fetch_add(1, Relaxed);
        let name = self.name;
        std::mem::forget(self);
        name
    }
}

impl<K: Copy, V: Copy> Drop for Spare<'_, K, V> {
    fn drop(&mut self) {
        let mut names = self.overflow.names.lock();
        self.node().set_returned(names.returned);
        names.returned = self.name;
    }
}
