//! Segments: which cells are taken, and nodes for pairs without a place in their neighbourhood.

use std::ptr::{self, NonNull};

use corewise_atomic::alloc::{self, Layout, MemoryNode};
use corewise_atomic::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use corewise_atomic::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, AtomicU64, fence};
use corewise_atomic::{Backoff, mutant, ordering};
use corewise_maps::parts::{MemoryBudget, PairCell, Torn, ZeroedBucket};

/// Buckets in a segment.
pub(super) const BUCKETS: usize = 64;

/// Pairs in a node.
#[cfg(not(any(corewise_loom, corewise_shuttle, corewise_stress)))]
const SLOTS: usize = 6;
#[cfg(any(corewise_loom, corewise_shuttle, corewise_stress))]
const SLOTS: usize = 2;

/// A segment, drawn in the module's header.
#[repr(C)]
pub(super) struct Segment<K, V> {
    taken: AtomicU64,
    /// Protects `nodes` and `scratch`. Its owner has the lock of a home of this segment, and waits
    /// for no thread.
    lock: AtomicBool,
    nodes: AtomicPtr<Node<K, V>>,
    scratch: PairCell<K, V>,
}

// SAFETY:
// 1. Null, false, zero, and an empty cell are all zero bytes.
unsafe impl<K: Copy, V: Copy> ZeroedBucket for Segment<K, V> {
    fn empty() -> Self {
        Self {
            taken: AtomicU64::new(0),
            lock: AtomicBool::new(false),
            nodes: AtomicPtr::new(ptr::null_mut()),
            scratch: PairCell::empty(),
        }
    }
}

impl<K: Copy, V: Copy> Segment<K, V> {
    /// Claims the first free cell among the bits of `wanted`. `Err` if another thread was faster.
    pub(super) fn claim(&self, wanted: u64) -> Result<Option<usize>, ()> {
        // Relaxed: a hint.
        let free = !self.taken.load(Relaxed) & wanted;
        if free == 0 {
            return Ok(None);
        }
        let first = free.trailing_zeros();
        // Acquire: pairs with the Release in `free`: the cell's hop bit was cleared, and that was
        // counted, before.
        let before = self.taken.fetch_or(1 << first, Acquire);
        if before & 1 << first != 0 && !mutant!("hop_claims_twice") {
            return Err(());
        }
        Ok(Some(first as usize))
    }

    /// Frees a cell.
    ///
    /// # Safety
    ///
    /// 1. The caller has claimed the cell, or has taken the pair out of it and counted that.
    pub(super) unsafe fn free(&self, cell: usize) {
        // Release: pairs with the Acquire in `claim`.
        self.taken
            .fetch_and(!(1 << cell), ordering!(Release, "hop_relaxed_free"));
    }

    #[inline(always)]
    pub(super) fn scratch(&self) -> &PairCell<K, V> {
        &self.scratch
    }

    pub(super) fn nodes(&self) -> impl Iterator<Item = &Node<K, V>> {
        // Acquire: pairs with the Release in `Nodes::insert`, so that the node is seen whole; the
        // thread that inserted it had seen the nodes after it.
        // SAFETY: nodes in the list live as long as the segment, and change only through atomics.
        let first = unsafe { self.nodes.load(Acquire).as_ref() };
        std::iter::successors(first, |node| {
            // SAFETY: in the list, as long as the segment.
            node.next.map(|next| unsafe { next.as_ref() })
        })
    }

    fn try_lock(&self) -> bool {
        // Relaxed: a hint.
        // Acquire: pairs with the Release in `Nodes::drop`.
        !self.lock.load(Relaxed)
            && self
                .lock
                .compare_exchange(false, true, Acquire, Relaxed)
                .is_ok()
    }

    /// Waits for the lock, for a few stores.
    pub(super) fn lock(&self) -> Nodes<'_, K, V> {
        let mut backoff = Backoff::new();
        while !self.try_lock() && !mutant!("hop_segment_unlocked") {
            backoff.snooze();
        }
        Nodes { segment: self }
    }
}

impl<K, V> Segment<K, V> {
    /// Frees the nodes.
    ///
    /// # Safety
    ///
    /// 1. No other thread uses the segment, now or later.
    pub(super) unsafe fn free_nodes(&mut self, budget: &MemoryBudget) {
        // Relaxed: no other thread has it, by 1.
        let mut next = NonNull::new(self.nodes.load(Relaxed));
        while let Some(node) = next {
            // SAFETY: `insert` put it there, from a `Spare`, and no other thread uses it, by 1.
            next = unsafe { node.as_ref() }.next;
            drop(Spare { node, budget });
        }
    }
}

/// A few pairs of any homes of a segment. Aligned to a cache line.
#[repr(C, align(64))]
pub(super) struct Node<K, V> {
    state: AtomicU64,
    /// Not changed after the node is in a list.
    next: Option<NonNull<Node<K, V>>>,
    /// For each slot, the index of the home in the segment.
    homes: [AtomicU8; SLOTS],
    cells: [PairCell<K, V>; SLOTS],
}

/// Which slots are held, and a count of removals: 58 bits.
#[derive(Clone, Copy)]
pub(super) struct NodeState(u64);

impl NodeState {
    const REMOVAL: u64 = 1 << SLOTS;

    fn holds(self, slot: usize) -> bool {
        self.0 & 1 << slot != 0
    }

    fn removals(self) -> u64 {
        self.0 / Self::REMOVAL
    }

    fn without(self, slot: usize) -> Self {
        let more = if mutant!("hop_node_uncounted") {
            0
        } else {
            Self::REMOVAL
        };
        Self((self.0 & !(1 << slot)).wrapping_add(more))
    }
}

impl<K: Copy, V: Copy> Node<K, V> {
    pub(super) fn state(&self) -> NodeState {
        // Acquire: pairs with the Release in `publish`, so that the pairs it describes are seen.
        NodeState(self.state.load(Acquire))
    }

    /// Whether nothing was removed between `state` and the loads before this call.
    pub(super) fn is_unchanged(&self, state: NodeState) -> bool {
        // Acquire: pairs with the Release in `write`: a lookup that has read a word of a later pair
        // sees the removal before it.
        fence(Acquire);
        // Relaxed: only compared.
        NodeState(self.state.load(Relaxed)).removals() == state.removals()
    }

    /// The slots that hold pairs of a home.
    pub(super) fn slots_of(&self, state: NodeState, home: u8) -> impl Iterator<Item = usize> {
        // Relaxed: written before the slot was held.
        (0..SLOTS).filter(move |slot| state.holds(*slot) && self.homes[*slot].load(Relaxed) == home)
    }

    /// Reads a slot, which may be torn; [`is_unchanged`](Self::is_unchanged) tells whether it is a
    /// pair.
    pub(super) fn torn(&self, slot: usize) -> Torn<K, V> {
        self.cells[slot].load()
    }

    pub(super) fn cell(&self, slot: usize) -> &PairCell<K, V> {
        &self.cells[slot]
    }

    fn write(&self, slot: usize, home: u8, (key, value): (K, V)) {
        // Release, both: pairs with the fence in `is_unchanged`.
        self.homes[slot].store(home, Release);
        self.cells[slot].store(key, value, Release);
    }

    fn publish(&self, state: NodeState) {
        // Release: pairs with the Acquire in `state`.
        self.state
            .store(state.0, ordering!(Release, "hop_relaxed_slot"));
    }
}

/// The nodes and the scratch of a segment, locked until this is dropped.
pub(super) struct Nodes<'s, K: Copy, V: Copy> {
    segment: &'s Segment<K, V>,
}

impl<'s, K: Copy, V: Copy> Nodes<'s, K, V> {
    /// Inserts a pair in a free slot, or in `spare`, which is then added to the list; false if
    /// there is neither.
    pub(super) fn insert(
        &self,
        home: u8,
        pair: (K, V),
        spare: &mut Option<Spare<'_, K, V>>,
    ) -> bool {
        for node in self.segment.nodes() {
            let state = node.state();
            if let Some(slot) = (0..SLOTS).find(|slot| !state.holds(*slot)) {
                node.write(slot, home, pair);
                node.publish(NodeState(state.0 | 1 << slot));
                return true;
            }
        }
        let Some(spare) = spare.take() else {
            return false;
        };
        // Relaxed: changed only under the lock, which we hold.
        let next = NonNull::new(self.segment.nodes.load(Relaxed));
        let mut node = spare.into_ptr();
        // SAFETY: it was ours alone, and from now on lives as long as the segment.
        unsafe { node.as_mut() }.next = next;
        // SAFETY: it lives as long as the segment, and changes only through atomics from now on.
        let new = unsafe { node.as_ref() };
        new.write(0, home, pair);
        // Relaxed: no other thread has it yet.
        new.state.store(1, Relaxed);
        // Release: pairs with the Acquire in `Segment::nodes`.
        self.segment.nodes.store(node.as_ptr(), Release);
        true
    }

    /// Removes the pair of a held slot; returns whether its home has others in nodes.
    ///
    /// # Safety
    ///
    /// 1. The node is one of this segment, and the slot has a pair of this home.
    pub(super) unsafe fn remove(&self, node: &Node<K, V>, slot: usize, home: u8) -> bool {
        node.publish(node.state().without(slot));
        let mut nodes = self.segment.nodes();
        nodes.any(|node| node.slots_of(node.state(), home).next().is_some())
    }

    /// Writes another pair of the same key in a slot. Lookups do not find it in the slot meanwhile.
    ///
    /// # Safety
    ///
    /// 1. The node is one of this segment, and the slot has a pair of this home.
    pub(super) unsafe fn rewrite(&self, node: &Node<K, V>, slot: usize, home: u8, pair: (K, V)) {
        let hidden = node.state().without(slot);
        node.publish(hidden);
        node.write(slot, home, pair);
        node.publish(NodeState(hidden.0 | 1 << slot));
    }

    pub(super) fn write_scratch(&self, (key, value): (K, V)) {
        // Release: pairs with the fence in `HomeBucket::is_unchanged`: a lookup that was directed
        // here earlier and reads a word of this pair sees that its home's version has changed
        // since.
        self.segment.scratch.store(key, value, Release);
    }
}

impl<K: Copy, V: Copy> Drop for Nodes<'_, K, V> {
    fn drop(&mut self) {
        // Release: pairs with the Acquire in `lock`.
        self.segment.lock.store(false, Release);
    }
}

/// A node that is in no list.
pub(super) struct Spare<'s, K, V> {
    node: NonNull<Node<K, V>>,
    budget: &'s MemoryBudget,
}

impl<'s, K, V> Spare<'s, K, V> {
    const LAYOUT: Layout = Layout::new::<Node<K, V>>();

    /// Allocates an empty node, if there is memory and room in `budget`.
    pub(super) fn new(budget: &'s MemoryBudget) -> Option<Self>
    where
        K: Copy,
        V: Copy,
    {
        if !budget.take(Self::LAYOUT.size()) {
            return None;
        }
        let Some(memory) = alloc::alloc(Self::LAYOUT, MemoryNode::Local) else {
            budget.give(Self::LAYOUT.size());
            return None;
        };
        let node = memory.cast::<Node<K, V>>();
        let empty = Node {
            state: AtomicU64::new(0),
            next: None,
            homes: std::array::from_fn(|_| AtomicU8::new(0)),
            cells: std::array::from_fn(|_| PairCell::empty()),
        };
        // SAFETY: the memory was just allocated with the layout of a node.
        unsafe { node.write(empty) };
        Some(Self { node, budget })
    }

    /// Releases the node to a list: `free_nodes` frees it.
    fn into_ptr(self) -> NonNull<Node<K, V>> {
        let node = self.node;
        std::mem::forget(self);
        node
    }
}

impl<K, V> Drop for Spare<'_, K, V> {
    fn drop(&mut self) {
        // SAFETY: a node made by `new`, in no list, and no other thread has it.
        unsafe {
            self.node.drop_in_place();
            alloc::dealloc(self.node.cast(), Self::LAYOUT);
        }
        self.budget.give(Self::LAYOUT.size());
    }
}
