//! Memory for the nodes of one map: slabs of equal slots, handed out through magazines.
//!
//! ```text
//!  slab                              depot (one lock)             magazine (one thread)
//! ┌──────┬──────┬──────┬─ ─ ─┬──────┐   slabs by address,  ─┐        free slots ─┐
//! │ slot │ slot │ slot │     │ slot │   their free slots  ◀─┘     a fresh slab ─┤
//! └──────┴──────┴──────┴─ ─ ─┴──────┘    64 slots at a time ◀─────────────────▶ alloc, free
//! ```
//!
//! 1. *Cost.* `alloc` and `free` are a push or pop of the caller's magazine; the depot's lock is
//!    taken once in [`MOVED`] of them at most, and looks each slab up by its address, in
//!    logarithmic time. A magazine has room for what a thread retires at a time, so that slots
//!    which come and go do not reach the depot at all. A fresh slab goes to one magazine as a whole
//!    and is touched as its slots are used.
//! 2. *Given back.* A slab all of whose slots are in the depot goes back to the allocator, but for
//!    one spare. Magazines keep [`KEPT_BYTES`] of slots each, and nothing when the map has become
//!    small ([`Slabs::is_wasteful`]).
//! 3. *Small maps* begin with small slabs: each is as large as all before it, up to [`LARGEST`].
//! 4. Slots of more than an eighth of the largest slab are the allocator's, one by one.
//!
//! Rejected: slabs aligned to their size with a header that a mask finds. An allocator that has no
//! such memory at hand takes twice as much (mimalloc 3: 887 MB resident for 10^7 entries, 642 without), and headers that are 64 KiB apart share a few cache sets.

use std::collections::{BTreeMap, BTreeSet};
use std::ptr::{self, NonNull};

use corewise_atomic::alloc::{Layout, Node, alloc, dealloc};
use corewise_atomic::hint;
use corewise_atomic::lock::Mutex;
use corewise_atomic::sync::atomic::AtomicUsize;
use corewise_atomic::sync::atomic::Ordering::Relaxed;

/// Bytes of the first slab.
const SMALLEST: usize = 512;
/// Bytes of a slab of a large map.
const LARGEST: usize = 256 << 10;
/// How many allocations ahead a slot's cache line is asked for.
const AHEAD: usize = 3;
/// Slots that come from the depot at a time.
const MOVED: usize = 64;
/// Bytes of free slots that a magazine keeps.
const KEPT_BYTES: usize = 256 << 10;
/// Bytes of slabs that no map is asked to give back.
const FINE_BYTES: usize = 1 << 20;

/// The slabs of one map.
pub(super) struct Slabs {
    slot: Layout,
    /// Free slots that a magazine keeps.
    kept: usize,
    /// Of all slabs, and of slots that are the allocator's.
    bytes: AtomicUsize,
    /// Whether each slot is an allocation of its own.
    alone: bool,
    depot: Mutex<Depot>,
}

/// Free slots in reach of one thread.
pub(super) struct Magazine {
    free: Vec<NonNull<u8>>,
    /// The untouched rest of a fresh slab.
    fresh: *mut u8,
    fresh_slots: usize,
}

#[derive(Default)]
struct Depot {
    /// All slabs, by address.
    slabs: BTreeMap<usize, Slab>,
    /// Those that have free slots here.
    partial: BTreeSet<usize>,
    /// How many of them have all their slots here.
    empty: usize,
}

struct Slab {
    memory: NonNull<u8>,
    slots: usize,
    /// Free slots that the depot has.
    free: Vec<NonNull<u8>>,
}

// SAFETY: the pointers are to memory that the slabs own; all access is under the lock.
unsafe impl Send for Depot {}
// SAFETY: a magazine's slots are its own.
unsafe impl Send for Magazine {}

impl Magazine {
    pub(super) const fn new() -> Self {
        Self {
            free: Vec::new(),
            fresh: ptr::null_mut(),
            fresh_slots: 0,
        }
    }

    /// A free slot; asks for the cache line of one that will be used soon, since slots that waited
    /// for readers have left the near caches.
    #[inline]
    fn pop(&mut self) -> Option<NonNull<u8>> {
        let slot = self.free.pop()?;
        if let Some(soon) = self.free.len().checked_sub(AHEAD) {
            hint::prefetch(self.free[soon].as_ptr());
        }
        Some(slot)
    }
}

impl Slabs {
    /// # Panics
    ///
    /// If the slot has no size.
    pub(super) fn new(slot: Layout) -> Self {
        let slot = slot.pad_to_align();
        assert!(slot.size() > 0);
        Self {
            slot,
            kept: (KEPT_BYTES / slot.size()).clamp(MOVED, 1 << 13),
            bytes: AtomicUsize::new(0),
            alone: slot.size() > LARGEST / 8,
            depot: Mutex::new(Depot::default()),
        }
    }

    /// A slot, not initialised; `None` when there is no memory.
    #[inline]
    pub(super) fn alloc(&self, magazine: &mut Magazine) -> Option<NonNull<u8>> {
        if let Some(slot) = magazine.pop() {
            return Some(slot);
        }
        if magazine.fresh_slots == 0 && !self.refill(magazine) {
            return self.alloc_alone();
        }
        if let Some(slot) = magazine.free.pop() {
            return Some(slot);
        }
        magazine.fresh_slots -= 1;
        let slot = NonNull::new(magazine.fresh);
        magazine.fresh = magazine.fresh.wrapping_add(self.slot.size());
        slot
    }

    /// Takes a slot back.
    ///
    /// # Safety
    ///
    /// 1. It came from `alloc` of these slabs, and nobody uses it any more.
    #[inline]
    pub(super) unsafe fn free(&self, magazine: &mut Magazine, slot: NonNull<u8>) {
        if self.alone {
            self.bytes.fetch_sub(self.slot.size(), Relaxed);
            // SAFETY: 1, and all slots are the allocator's.
            unsafe { dealloc(slot, self.slot) };
            return;
        }
        magazine.free.push(slot);
        if magazine.free.len() > self.kept {
            self.give(magazine, self.kept / 4);
        }
    }

    /// Leaves no free slot in a magazine.
    pub(super) fn flush(&self, magazine: &mut Magazine) {
        self.give(magazine, usize::MAX);
    }

    /// Bytes of all slabs and slots.
    pub(super) fn bytes(&self) -> usize {
        // Relaxed: a number that publishes nothing, here and below.
        self.bytes.load(Relaxed)
    }

    /// Whether so many slots in use should do with much less: then magazines are to be flushed.
    pub(super) fn is_wasteful(&self, used: usize) -> bool {
        self.bytes() > FINE_BYTES + 4 * used * self.slot.size()
    }

    fn alloc_alone(&self) -> Option<NonNull<u8>> {
        let alone = self.alone;
        let slot = alone.then(|| alloc(self.slot, Node::Local)).flatten()?;
        self.bytes.fetch_add(self.slot.size(), Relaxed);
        Some(slot)
    }

    #[cold]
    fn refill(&self, magazine: &mut Magazine) -> bool {
        if self.alone {
            return false;
        }
        let mut depot = self.depot.lock();
        depot.take_some(&mut magazine.free) || self.take_fresh(&mut depot, magazine)
    }

    /// Gives the magazine a new slab.
    fn take_fresh(&self, depot: &mut Depot, magazine: &mut Magazine) -> bool {
        let bytes = self.bytes().clamp(SMALLEST, LARGEST);
        let slots = (bytes / self.slot.size()).max(1);
        let Some(memory) = alloc(self.slab_layout(slots), Node::Local) else {
            return false;
        };
        let free = Vec::new();
        let slab = Slab {
            memory,
            slots,
            free,
        };
        depot.slabs.insert(memory.addr().get(), slab);
        magazine.fresh = memory.as_ptr();
        magazine.fresh_slots = slots;
        self.bytes.fetch_add(slots * self.slot.size(), Relaxed);
        true
    }

    fn slab_layout(&self, slots: usize) -> Layout {
        let bytes = slots * self.slot.size();
        Layout::from_size_align(bytes, self.slot.align()).expect("slabs are small")
    }

    /// Moves up to `most` free slots to the depot, and frees slabs that are empty then.
    #[cold]
    fn give(&self, magazine: &mut Magazine, most: usize) {
        let keep = magazine.free.len().saturating_sub(most);
        let mut depot = self.depot.lock();
        let dead: Vec<Slab> = magazine
            .free
            .drain(keep..)
            .filter_map(|slot| depot.put(slot))
            .collect();
        drop(depot);
        for slab in dead {
            self.bytes.fetch_sub(slab.slots * self.slot.size(), Relaxed);
            // SAFETY: the depot has let go of it and has had all of its slots.
            unsafe { self.free_slab(&slab) };
        }
    }

    /// # Safety
    ///
    /// 1. Nobody uses the slab's slots any more.
    unsafe fn free_slab(&self, slab: &Slab) {
        // SAFETY: allocated by `take_fresh` with this layout; 1.
        unsafe { dealloc(slab.memory, self.slab_layout(slab.slots)) };
    }
}

impl Depot {
    /// Fills a magazine with slots that are free already; false if there are none.
    fn take_some(&mut self, free: &mut Vec<NonNull<u8>>) -> bool {
        while free.len() < MOVED
            && let Some(&address) = self.partial.last()
            && let Some(slab) = self.slabs.get_mut(&address)
        {
            self.empty -= usize::from(slab.free.len() == slab.slots);
            let rest = slab.free.len().saturating_sub(MOVED - free.len());
            free.extend(slab.free.drain(rest..));
            if slab.free.is_empty() {
                self.partial.remove(&address);
            }
        }
        !free.is_empty()
    }

    /// Takes a free slot; returns its slab if that is to be freed.
    fn put(&mut self, slot: NonNull<u8>) -> Option<Slab> {
        let below = self.slabs.range_mut(..=slot.addr().get());
        let (&address, slab) = below.last().expect("a slot is in one of its slabs");
        slab.free.push(slot);
        if slab.free.len() == 1 {
            self.partial.insert(address);
        }
        if slab.free.len() < slab.slots {
            return None;
        }
        if self.empty == 0 {
            self.empty = 1;
            return None;
        }
        self.partial.remove(&address);
        self.slabs.remove(&address)
    }
}

impl Drop for Slabs {
    /// Frees all slabs, whatever is in use. (Slots of the allocator's own were freed one by one.)
    fn drop(&mut self) {
        let slabs = std::mem::take(&mut self.depot.get_mut().slabs);
        for slab in slabs.values() {
            // SAFETY: the map goes, and with it whoever used a slot.
            unsafe { self.free_slab(slab) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slabs(size: usize) -> Slabs {
        Slabs::new(Layout::from_size_align(size, 16).unwrap())
    }

    #[test]
    fn slots_do_not_overlap_and_are_aligned() {
        for size in [16, 32, 48, 1000, 40_000, 200_000] {
            let (slabs, mut magazine) = (slabs(size), Magazine::new());
            let count = 300_000 / size + 500;
            let mut slots: Vec<_> = (0..count)
                .map(|_| slabs.alloc(&mut magazine).unwrap())
                .collect();
            slots.sort();
            assert!(slots.iter().all(|slot| slot.addr().get() % 16 == 0));
            let size = size.next_multiple_of(16);
            let apart = |pair: &[NonNull<u8>]| pair[1].addr().get() - pair[0].addr().get() >= size;
            assert!(slots.windows(2).all(apart));
            for slot in slots {
                // SAFETY: allocated above.
                unsafe {
                    slot.write_bytes(0xee, size);
                    slabs.free(&mut magazine, slot);
                }
            }
        }
    }

    #[test]
    fn empty_slabs_are_given_back() {
        let (slabs, mut magazine) = (slabs(32), Magazine::new());
        let slots: Vec<_> = (0..100_000)
            .map(|_| slabs.alloc(&mut magazine).unwrap())
            .collect();
        assert!(slabs.bytes() >= 3_200_000);
        for slot in slots {
            // SAFETY: allocated above.
            unsafe { slabs.free(&mut magazine, slot) };
        }
        slabs.flush(&mut magazine);
        assert!(slabs.bytes() <= 2 * LARGEST, "{}", slabs.bytes());
    }

    #[test]
    fn freed_slots_are_used_again() {
        let (slabs, mut magazine) = (slabs(64), Magazine::new());
        for _ in 0..100 {
            let slots: Vec<_> = (0..1000)
                .map(|_| slabs.alloc(&mut magazine).unwrap())
                .collect();
            for slot in slots {
                // SAFETY: allocated above.
                unsafe { slabs.free(&mut magazine, slot) };
            }
        }
        assert!(slabs.bytes() <= 2 * LARGEST, "{}", slabs.bytes());
    }
}
