//! Overflow buckets, for entries that found no room in their buckets.

use std::ptr;

use corewise_atomic::lock::Mutex;
use corewise_atomic::sync::Arc;
use corewise_atomic::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use corewise_atomic::sync::atomic::{AtomicPtr, AtomicUsize};

use super::bucket::Node;
use super::state::ID_BITS;
use crate::copy_map::memory_budget::{Heads, MemoryBudget};

/// Segment `i` has 2^i buckets, whose IDs begin at 2^i.
const SEGMENTS: usize = ID_BITS as usize;

/// The overflow buckets of one table. They belong to it until it is freed, and each to the bucket
/// that it is linked to.
pub(super) struct Overflow<K, V> {
    segments: [AtomicPtr<Heads<Node<K, V>>>; SEGMENTS],
    ids: Mutex<Ids>,
    /// Number of buckets that are linked to others.
    linked: AtomicUsize,
    budget: Arc<MemoryBudget>,
}

/// Unused IDs.
struct Ids {
    /// The IDs from here on were never used.
    fresh: u32,
    /// The first of the returned IDs, or 0; its bucket holds the next.
    returned: u32,
}

impl<K: Copy, V: Copy> Overflow<K, V> {
    pub(super) fn new(budget: &Arc<MemoryBudget>) -> Self {
        Self {
            segments: std::array::from_fn(|_| AtomicPtr::new(ptr::null_mut())),
            ids: Mutex::new(Ids {
                fresh: 1,
                returned: 0,
            }),
            linked: AtomicUsize::new(0),
            budget: budget.clone(),
        }
    }

    /// The bucket with an ID taken from a [`Spare`] or a state.
    pub(super) fn node(&self, id: u32) -> &Node<K, V> {
        let segment = id.ilog2() as usize;
        // Acquire: pairs with the Release in `segment`. (A thread that reads an ID in a state has
        // seen the segment anyway.)
        let nodes = self.segments[segment].load(Acquire);
        // SAFETY: null, or a segment, which lives as long as the table.
        let nodes = unsafe { nodes.as_ref() }.expect("the ID was handed out");
        &nodes[id as usize - (1 << segment)]
    }

    /// The number of buckets that are linked to others. One that is being linked may be counted.
    pub(super) fn linked(&self) -> usize {
        // Relaxed: a number that publishes nothing, here and below.
        self.linked.load(Relaxed)
    }

    /// Returns an empty bucket, if there is memory and an unused ID.
    pub(super) fn spare(&self) -> Option<Spare<'_, K, V>> {
        let mut ids = self.ids.lock();
        let id = if ids.returned != 0 {
            let id = ids.returned;
            ids.returned = self.node(id).state().next().unwrap_or(0);
            id
        } else {
            let id = ids.fresh;
            self.segment(id, &mut ids)?;
            ids.fresh = id + 1;
            id
        };
        drop(ids);
        // SAFETY: the ID was unused, so only this thread can reach its bucket (1).
        unsafe { self.node(id).clear() };
        Some(Spare { overflow: self, id })
    }

    /// Takes back a bucket that was linked to one that no other thread could ever reach, and is
    /// linked no longer.
    ///
    /// # Safety
    ///
    /// 1. `id` is the ID of such a bucket, and only the caller has it.
    pub(super) unsafe fn take_back(&self, id: u32) -> Spare<'_, K, V> {
        // Relaxed: as in `linked`.
        self.linked.fetch_sub(1, Relaxed);
        let overflow = self;
        Spare { overflow, id }
    }

    /// Allocates the memory for an ID, with the lock `ids` held.
    fn segment(&self, id: u32, _ids: &mut Ids) -> Option<()> {
        let segment = self.segments.get(id.ilog2() as usize)?;
        // Relaxed: written under the lock.
        if segment.load(Relaxed).is_null() {
            let len = 1 << id.ilog2();
            let bytes = Heads::<Node<K, V>>::bytes(len);
            if !self.budget.take(bytes) {
                return None;
            }
            let Some(nodes) = Heads::try_new(len) else {
                self.budget.give(bytes);
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
            // Relaxed: no other thread has it.
            let nodes = segment.load(Relaxed);
            if !nodes.is_null() {
                // SAFETY: from a box, and no longer used.
                drop(unsafe { Box::from_raw(nodes) });
                self.budget.give(Heads::<Node<K, V>>::bytes(1 << i));
            }
        }
    }
}

/// An empty bucket that is linked to no other, owned exclusively. Dropping it returns its ID.
pub(super) struct Spare<'t, K: Copy, V: Copy> {
    overflow: &'t Overflow<K, V>,
    id: u32,
}

impl<'t, K: Copy, V: Copy> Spare<'t, K, V> {
    pub(super) fn node(&self) -> &'t Node<K, V> {
        self.overflow.node(self.id)
    }

    /// Whether it is one of this table's buckets.
    pub(super) fn is_of(&self, overflow: &Overflow<K, V>) -> bool {
        ptr::eq(self.overflow, overflow)
    }

    /// Counts the bucket as linked. Returns its ID, for the state of the bucket that it is linked
    /// to.
    pub(super) fn link(self) -> u32 {
        // Relaxed: as in `Overflow::linked`.
        self.overflow.linked.fetch_add(1, Relaxed);
        let id = self.id;
        std::mem::forget(self);
        id
    }
}

impl<K: Copy, V: Copy> Drop for Spare<'_, K, V> {
    fn drop(&mut self) {
        let mut ids = self.overflow.ids.lock();
        // SAFETY: only this value has the bucket until its ID is in the list (1).
        unsafe { self.node().set_returned(ids.returned) };
        ids.returned = self.id;
    }
}
