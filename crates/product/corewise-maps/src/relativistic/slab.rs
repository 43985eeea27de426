//! Memory for the nodes of one map: slabs of equal slots, handed out through magazines.
//!
//! ```text
//! directory      slab                              depot (one lock)        magazine (one thread)
//! ┌─────┐       ┌──────┬──────┬──────┬─ ─ ─┬──────┐  slabs, and the    ─┐     free slots ─┐
//! │  ●──┼──────▶│ slot │ slot │ slot │     │ slot │  free slots of each◀┘  fresh slots ──┤
//! │  ●  │       └──────┴──────┴──────┴─ ─ ─┴──────┘  64 slots at a time◀──────────────▶ alloc,
//! │  ⋮  │                                                                                free
//! └─────┘   ID of a slot, 32 bits: number of its slab, number of the slot in the slab
//! ```
//!
//! 1. *IDs* are turned into addresses through the directory: 8 bytes for each slab, so it stays in
//!    the nearest cache where that matters. The directory grows by doubling; earlier ones are kept
//!    because threads may be reading them.
//! 2. *Cost.* `alloc` and `free` push to or pop from the caller's magazine, and take the depot's
//!    lock at most once in [`MOVED`] calls. A magazine has room for the nodes that a thread retires
//!    at a time, so slots that are freed and reused do not reach the depot. Of a slab's untouched
//!    slots a magazine takes [`MOVED`], or a thousandth of all slots of the map if that is more: so
//!    many threads with magazines do not make a small map large. Pages are touched as slots are
//!    used.
//! 3. *Returning memory.* A slab whose slots are all in the depot goes back to the allocator,
//!    except for one spare. A magazine keeps [`KEPT_BYTES`] of slots, and nothing when the map has
//!    become small ([`Slabs::is_wasteful`]) or an owned handle is dropped.
//! 4. *Small maps* begin with small slabs: each is as large as all before it, up to [`USUAL`].
//!    Slabs of large maps are up to [`LARGEST`], a huge page, and a thirtieth of all slabs.
//! 5. A slot of more than [`LARGEST`] has its own slab, and there is no spare.
//!
//! Rejected: addresses as IDs. Nodes with two words of contents then take 32 bytes instead of 24.
//! IDs that are offsets in one address range need no directory, but need that range: 32 GiB of it
//! for every map, or 32 GiB for all maps together.

use std::collections::BTreeSet;
use std::marker::PhantomData;
use std::num::NonZeroU32;
use std::ptr::{self, NonNull};

use corewise_atomic::Slots;
use corewise_atomic::alloc::{HUGE_PAGE, Layout, MemoryNode, alloc, dealloc, map_zeroed, unmap};
use corewise_atomic::hint;
use corewise_atomic::lock::Mutex;
use corewise_atomic::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use corewise_atomic::sync::atomic::{AtomicPtr, AtomicUsize};

use super::chain::{Arena, Link};
use super::word::NodeId;

/// Bytes of the first slab.
const SMALLEST: usize = 512;
/// Bytes of a slab that is not small.
const USUAL: usize = 256 << 10;
/// Bytes of a slab of a large map.
const LARGEST: usize = HUGE_PAGE;
/// Allocations ahead for which a slot's cache line is prefetched.
const AHEAD: usize = 3;
/// Slots that are taken from the depot at a time.
const MOVED: usize = 64;
/// The part of all slots of a map that a magazine takes untouched, if that is more than [`MOVED`].
const FRESH_PART: usize = 1 << 10;
/// Bytes of free slots that a magazine keeps.
const KEPT_BYTES: usize = 256 << 10;
/// Bytes of slabs below which a map never counts as wasteful.
const FINE_BYTES: usize = 1 << 20;
/// Number of slabs in the first directory.
const FIRST_DIRECTORY: usize = 8;

/// The slabs of one map.
pub(super) struct Slabs {
    /// The slots of the newest directory. Each is the origin of a slab: the address that the slot
    /// with ID 0 would have if the slots of all IDs were contiguous.
    directory: AtomicPtr<AtomicPtr<u8>>,
    slot_bytes: usize,
    /// Number of bits of an ID that are the slot's number in its slab.
    slot_bits: u32,
    /// Number of free slots that a magazine keeps.
    kept: usize,
    /// Bytes of all slabs.
    bytes: AtomicUsize,
    align: usize,
    depot: Mutex<Depot>,
}

/// Free slots of one thread.
#[derive(Default)]
pub(super) struct Magazine {
    free: Vec<NodeId>,
    /// Untouched slots, contiguous: the ID of the next one, and their number.
    fresh: u32,
    fresh_slots: u32,
}

#[derive(Default)]
struct Depot {
    /// All slabs by number. No slab has the number 0, so that no ID is 0.
    slabs: Vec<Slab>,
    /// Numbers that no slab has.
    unused: Vec<u32>,
    /// Slabs with free or untouched slots in the depot.
    partial: BTreeSet<u32>,
    /// The number of these slabs whose slots are all in the depot.
    empty: usize,
    /// The newest is the last. Each directory is a leaked box, so it does not move.
    directories: Vec<NonNull<Directory>>,
}

type Directory = Slots<AtomicPtr<u8>>;

#[derive(Default)]
struct Slab {
    /// `None` if no slab has this number.
    memory: Option<NonNull<u8>>,
    /// Whether it is a huge page, mapped directly from the system.
    mapped: bool,
    slots: usize,
    /// Slots at the end that no magazine has had.
    untouched: usize,
    /// Free slots that are in the depot.
    free: Vec<NodeId>,
}

// SAFETY: the pointers are to memory that the slabs own; all access is under the lock.
unsafe impl Send for Depot {}

// SAFETY: a slab stays where it is while any of its slots is in use.
unsafe impl Arena for Slabs {
    #[inline(always)]
    unsafe fn link(&self, id: NodeId) -> NonNull<Link> {
        // SAFETY: the caller guarantees that the ID is valid.
        unsafe { self.address(id) }.cast()
    }
}

/// A view of the slabs for nodes of type `T`; it only translates IDs.
pub(super) struct View<'s, T>(&'s Slabs, PhantomData<fn() -> T>);

impl<'s, T> View<'s, T> {
    /// # Safety
    ///
    /// 1. The slabs were made for the layout of `T`.
    #[inline(always)]
    pub(super) unsafe fn new(slabs: &'s Slabs) -> Self {
        debug_assert_eq!(slabs.slot_bytes, Self::BYTES);
        Self(slabs, PhantomData)
    }

    const BYTES: usize = Layout::new::<T>().pad_to_align().size();
}

// SAFETY: a slab stays where it is while any of its slots is in use.
unsafe impl<T> Arena for View<'_, T> {
    #[inline(always)]
    unsafe fn link(&self, id: NodeId) -> NonNull<Link> {
        const { assert!(Self::BYTES.is_multiple_of(size_of::<u64>())) };
        // In words: x86 can multiply an index by the size of a word within a load.
        let words = (id.0.get() as usize).wrapping_mul(Self::BYTES / size_of::<u64>());
        let words = hint::opaque(words);
        // SAFETY: the caller guarantees that the ID is valid, and the caller of `new` the rest.
        let origin = unsafe { self.0.origin(id, const { slot_bits(Self::BYTES) }) };
        // SAFETY: the slot lies within its slab, whose address is not null, so the sum is not null:
        // see `directory`.
        unsafe { NonNull::new_unchecked(origin.cast::<u64>().wrapping_add(words)) }.cast()
    }
}

/// Number of bits of an ID that are the slot's number in its slab.
const fn slot_bits(slot_bytes: usize) -> u32 {
    match LARGEST / slot_bytes {
        0 => 0,
        slots => slots.next_power_of_two().ilog2(),
    }
}

impl Magazine {
    pub(super) const fn new() -> Self {
        Self {
            free: Vec::new(),
            fresh: 0,
            fresh_slots: 0,
        }
    }
}

impl Slabs {
    /// # Panics
    ///
    /// If the slot's size is 0.
    pub(super) fn new(slot: Layout) -> Self {
        let slot = slot.pad_to_align();
        assert!(slot.size() > 0);
        Self {
            directory: AtomicPtr::new(ptr::null_mut()),
            slot_bytes: slot.size(),
            slot_bits: slot_bits(slot.size()),
            kept: (KEPT_BYTES / slot.size()).min(1 << 13),
            bytes: AtomicUsize::new(0),
            align: slot.align(),
            depot: Mutex::new(Depot::default()),
        }
    }

    /// The address of a slot.
    ///
    /// # Safety
    ///
    /// 1. `id` came from `alloc` of these slabs and was not given to `free` since.
    #[inline(always)]
    unsafe fn address(&self, id: NodeId) -> NonNull<u8> {
        // SAFETY: the slot is allocated, by 1, and the bits are those of these slabs.
        let origin = unsafe { self.origin(id, self.slot_bits) };
        let slot = origin.wrapping_add((id.0.get() as usize).wrapping_mul(self.slot_bytes));
        // SAFETY: within the slab, by 1: see `directory`.
        unsafe { NonNull::new_unchecked(slot) }
    }

    /// The origin of a slot's slab.
    ///
    /// # Safety
    ///
    /// 1. As for [`Slabs::address`]; and `bits` is `slot_bits` of these slabs.
    #[inline(always)]
    unsafe fn origin(&self, id: NodeId, bits: u32) -> *mut u8 {
        // Acquire: pairs with the Release in `number`, so that the directory's slots are seen, also
        // of a directory that is newer than the ID. Relaxed, below: a thread that has an ID has it
        // from `add_slab`, which wrote the slab's address first, or through a lock or a link that
        // was stored with Release and read with Acquire after that.
        let directory = self.directory.load(Acquire);
        // SAFETY: a directory seen by a thread that has an ID has a place for its slab; directories
        // are kept as long as the slabs.
        unsafe { &*directory.add((id.0.get() >> bits) as usize) }.load(Relaxed)
    }

    /// Allocates a slot, uninitialized; `None` if no memory or no ID is left.
    ///
    /// # Safety
    ///
    /// 1. The magazine is used with these slabs only.
    #[inline]
    pub(super) unsafe fn alloc(&self, magazine: &mut Magazine) -> Option<NodeId> {
        // SAFETY: the magazine is used with these slabs only, by 1.
        if let Some(slot) = unsafe { self.pop(magazine) } {
            return Some(slot);
        }
        if magazine.fresh_slots == 0 && !self.refill(magazine) {
            return None;
        }
        if let Some(slot) = magazine.free.pop() {
            return Some(slot);
        }
        magazine.fresh_slots -= 1;
        let slot = NonZeroU32::new(magazine.fresh).map(NodeId);
        // No ID follows the last one; the wrapped value is not used, since the slab has no more
        // slots.
        magazine.fresh = magazine.fresh.wrapping_add(1);
        slot
    }

    /// Pops a free slot. Prefetches the cache line of a slot that will be used soon, because slots
    /// that waited for readers have left the near caches.
    ///
    /// # Safety
    ///
    /// 1. The magazine is used with these slabs only.
    #[inline]
    unsafe fn pop(&self, magazine: &mut Magazine) -> Option<NodeId> {
        let slot = magazine.free.pop()?;
        if let Some(soon) = magazine.free.len().checked_sub(AHEAD) {
            // SAFETY: slots in a magazine belong to slabs that exist, and the magazine is one of
            // these slabs, by 1.
            hint::prefetch(unsafe { self.address(magazine.free[soon]) }.as_ptr());
        }
        Some(slot)
    }

    /// Frees a slot.
    ///
    /// # Safety
    ///
    /// 1. It came from `alloc` of these slabs, and no thread uses it any more.
    /// 2. The magazine is used with these slabs only.
    #[inline]
    pub(super) unsafe fn free(&self, magazine: &mut Magazine, slot: NodeId) {
        magazine.free.push(slot);
        if magazine.free.len() > self.kept {
            // SAFETY: the magazine is used with these slabs only, by 2.
            unsafe { self.give(magazine, self.kept / 4 + 1) };
        }
    }

    /// Moves all free slots of a magazine to the depot.
    ///
    /// # Safety
    ///
    /// 1. The magazine is used with these slabs only.
    pub(super) unsafe fn flush(&self, magazine: &mut Magazine) {
        let Magazine { free, fresh, .. } = magazine;
        let untouched = std::mem::take(&mut magazine.fresh_slots);
        if free.is_empty() && untouched == 0 {
            return;
        }
        let mut depot = self.depot.lock();
        let mut dead = Vec::new();
        if untouched > 0 {
            dead.extend(depot.put_untouched(*fresh, untouched, self.slot_bits));
        }
        dead.extend(
            free.drain(..)
                .filter_map(|slot| depot.put(slot, self.slot_bits)),
        );
        drop(depot);
        *free = Vec::new();
        // SAFETY: `put` returns a slab of which all slots are free, and these are slots of these
        // slabs, by 1.
        unsafe { self.free_slabs(dead) };
    }

    /// Bytes of all slabs.
    pub(super) fn bytes(&self) -> usize {
        // Relaxed: a number that publishes nothing, here and below.
        self.bytes.load(Relaxed)
    }

    /// Whether the slabs are much larger than `used` slots need, so that magazines should be
    /// flushed.
    pub(super) fn is_wasteful(&self, used: usize) -> bool {
        self.bytes() > FINE_BYTES + 4 * used * self.slot_bytes
    }

    #[cold]
    fn refill(&self, magazine: &mut Magazine) -> bool {
        let mut depot = self.depot.lock();
        let most = MOVED.min(self.kept.max(1));
        // Relaxed: as in `bytes`.
        let fresh = (self.bytes() / self.slot_bytes / FRESH_PART).max(most);
        if depot.partial.is_empty() && !self.add_slab(&mut depot) {
            return false;
        }
        depot.take_some(&mut magazine.free, most);
        if magazine.free.is_empty() {
            (magazine.fresh, magazine.fresh_slots) = depot.take_untouched(fresh, self.slot_bits);
        }
        true
    }

    /// Adds a slab whose slots are untouched; returns false if no memory or no ID is left.
    fn add_slab(&self, depot: &mut Depot) -> bool {
        let all = self.bytes();
        let bytes = all.clamp(SMALLEST, USUAL).max(all / 30).min(LARGEST);
        let slots = (bytes / self.slot_bytes).max(1);
        let Some(number) = self.number(depot) else {
            return false;
        };
        let is_huge = slots > 1 && slots == LARGEST / self.slot_bytes;
        let mapped = is_huge.then(|| map_zeroed(LARGEST)).flatten();
        let allocated = || alloc(self.slab_layout(slots), MemoryNode::Local);
        let Some(memory) = mapped.or_else(allocated) else {
            depot.unused.push(number);
            return false;
        };
        depot.slabs[number as usize] = Slab {
            memory: Some(memory),
            mapped: mapped.is_some(),
            slots,
            untouched: slots,
            free: Vec::new(),
        };
        depot.partial.insert(number);
        depot.empty += 1;
        // Relaxed: written under the lock that we have.
        let directory = self.directory.load(Relaxed);
        // SAFETY: `number` has ensured that the directory has the place.
        let place = unsafe { &*directory.add(number as usize) };
        // The origin: the address that the slot with ID 0 would have.
        let first = (number << self.slot_bits) as usize;
        let before = first.wrapping_mul(self.slot_bytes);
        // Relaxed: read only by threads that have an ID of the slab; see `origin`.
        place.store(memory.as_ptr().wrapping_sub(before), Relaxed);
        // Relaxed: as in `bytes`.
        self.bytes.fetch_add(slots * self.slot_bytes, Relaxed);
        true
    }

    /// A number for a new slab, with a place in the directory; `None` if all numbers are in use.
    fn number(&self, depot: &mut Depot) -> Option<u32> {
        if let Some(number) = depot.unused.pop() {
            return Some(number);
        }
        let number = depot.slabs.len().max(1);
        if number > (u32::MAX >> self.slot_bits) as usize {
            return None;
        }
        // SAFETY: directories live as long as the slabs.
        let old: Option<&Directory> = depot.directories.last().map(|old| unsafe { old.as_ref() });
        let places = old.map_or(0, |old| old.len());
        if number >= places {
            let copy = |place: usize| match old {
                // Relaxed: written under the lock that we have.
                Some(old) if place < places => old[place].load(Relaxed),
                _ => ptr::null_mut(),
            };
            let new = Slots::from_fn((2 * places).max(FIRST_DIRECTORY), |place| {
                AtomicPtr::new(copy(place))
            });
            let new = Box::leak(Box::new(new));
            // Release: pairs with the Acquire in `origin`.
            self.directory.store(new.as_ptr().cast_mut(), Release);
            depot.directories.push(NonNull::from(new));
        }
        depot.slabs.resize_with(number + 1, Slab::default);
        Some(number as u32)
    }

    fn slab_layout(&self, slots: usize) -> Layout {
        let bytes = slots * self.slot_bytes;
        Layout::from_size_align(bytes, self.align).expect("a layout of a node, or a small one")
    }

    /// Moves up to `most` free slots to the depot, and frees slabs that this makes empty.
    ///
    /// # Safety
    ///
    /// 1. The magazine is used with these slabs only.
    #[cold]
    unsafe fn give(&self, magazine: &mut Magazine, most: usize) {
        let keep = magazine.free.len().saturating_sub(most);
        let mut depot = self.depot.lock();
        let put = |slot: NodeId| depot.put(slot, self.slot_bits);
        let dead = magazine.free.drain(keep..).filter_map(put).collect();
        drop(depot);
        // SAFETY: `put` returns a slab of which all slots are free, and these are slots of these
        // slabs, by 1.
        unsafe { self.free_slabs(dead) };
    }

    /// Frees slabs that the depot has removed.
    ///
    /// # Safety
    ///
    /// 1. No thread uses their slots any more.
    unsafe fn free_slabs(&self, dead: Vec<(u32, Slab)>) {
        for (number, slab) in dead {
            // Relaxed: as in `bytes`.
            self.bytes.fetch_sub(slab.slots * self.slot_bytes, Relaxed);
            // SAFETY: no thread uses the slab's slots any more, by 1.
            unsafe { self.free_slab(&slab) };
            self.depot.lock().unused.push(number);
        }
    }

    /// # Safety
    ///
    /// 1. No thread uses the slab's slots any more.
    unsafe fn free_slab(&self, slab: &Slab) {
        match slab.memory {
            // SAFETY: `add_slab` has mapped these bytes, and no thread uses its slots any more, by
            // 1.
            Some(memory) if slab.mapped => unsafe { unmap(memory, LARGEST) },
            // SAFETY: allocated by `add_slab` with this layout; 1.
            Some(memory) => unsafe { dealloc(memory, self.slab_layout(slab.slots)) },
            None => {}
        }
    }
}

impl Slab {
    /// Whether all slots are in the depot.
    fn is_empty(&self) -> bool {
        self.free.len() + self.untouched == self.slots
    }

    /// Whether no slot is in the depot.
    fn has_none(&self) -> bool {
        self.free.is_empty() && self.untouched == 0
    }
}

impl Depot {
    /// Fills a magazine with up to `most` slots that were used before, of the slabs with the lowest
    /// numbers, as far as one that has only untouched slots.
    fn take_some(&mut self, free: &mut Vec<NodeId>, most: usize) {
        while free.len() < most
            && let Some(&number) = self.partial.first()
            && let slab = &mut self.slabs[number as usize]
            && !slab.free.is_empty()
        {
            self.empty -= usize::from(slab.is_empty());
            let rest = slab.free.len().saturating_sub(most - free.len());
            free.extend(slab.free.drain(rest..));
            if slab.has_none() {
                self.partial.remove(&number);
            }
        }
    }

    /// Takes up to `most` untouched slots of the slab with the lowest number that has free slots,
    /// all of which are untouched. Returns the first ID, and how many follow each other.
    fn take_untouched(&mut self, most: usize, slot_bits: u32) -> (u32, u32) {
        let Some(&number) = self.partial.first() else {
            return (0, 0);
        };
        let slab = &mut self.slabs[number as usize];
        self.empty -= usize::from(slab.is_empty());
        let first = slab.slots - slab.untouched;
        let taken = slab.untouched.min(most);
        slab.untouched -= taken;
        if slab.untouched == 0 {
            self.partial.remove(&number);
        }
        ((number << slot_bits) + first as u32, taken as u32)
    }

    /// Takes a free slot; returns its slab if the slab is to be freed.
    fn put(&mut self, slot: NodeId, slot_bits: u32) -> Option<(u32, Slab)> {
        let number = slot.0.get() >> slot_bits;
        let slab = &mut self.slabs[number as usize];
        let had_none = slab.has_none();
        slab.free.push(slot);
        self.after_gain(number, had_none)
    }

    /// Takes untouched slots that a magazine did not use; returns their slab if it is to be freed.
    fn put_untouched(&mut self, first: u32, slots: u32, slot_bits: u32) -> Option<(u32, Slab)> {
        let number = first >> slot_bits;
        let slab = &mut self.slabs[number as usize];
        let had_none = slab.has_none();
        let next = (number << slot_bits) as usize + slab.slots - slab.untouched;
        if first as usize + slots as usize == next {
            slab.untouched += slots as usize;
        } else {
            // Other magazines have taken the slots that follow. Slots are taken from the end of the
            // list, so the first one goes last.
            let ids = (0..slots).rev().map(|at| first + at);
            slab.free
                .extend(ids.filter_map(NonZeroU32::new).map(NodeId));
        }
        self.after_gain(number, had_none)
    }

    /// Called when a slab has got slots back. Removes the slab if all its slots are here, unless it
    /// is kept as the spare.
    fn after_gain(&mut self, number: u32, had_none: bool) -> Option<(u32, Slab)> {
        if had_none {
            self.partial.insert(number);
        }
        let slab = &mut self.slabs[number as usize];
        if !slab.is_empty() {
            return None;
        }
        if self.empty == 0 && slab.slots > 1 {
            self.empty = 1;
            return None;
        }
        self.partial.remove(&number);
        Some((number, std::mem::take(slab)))
    }
}

impl Drop for Slabs {
    /// Frees all slabs, even if slots are in use.
    fn drop(&mut self) {
        let depot = std::mem::take(self.depot.get_mut());
        for slab in &depot.slabs {
            // SAFETY: the map is being dropped, so no thread uses a slot.
            unsafe { self.free_slab(slab) };
        }
        for directory in depot.directories {
            // SAFETY: made from a box by `number`.
            drop(unsafe { Box::from_raw(directory.as_ptr()) });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slabs(size: usize) -> Slabs {
        Slabs::new(Layout::from_size_align(size, 16).unwrap())
    }

    fn alloc(slabs: &Slabs, magazine: &mut Magazine) -> Option<NodeId> {
        // SAFETY: each test has one allocator, and uses its magazines with it only (1).
        unsafe { slabs.alloc(magazine) }
    }

    #[test]
    fn slots_do_not_overlap_and_are_aligned() {
        for size in [16, 32, 48, 1000, 40_000, 200_000] {
            let (slabs, mut magazine) = (slabs(size), Magazine::new());
            let count = 300_000 / size + 500;
            // SAFETY: `alloc` has returned the slots whose addresses are taken, and none was freed
            // since (1).
            let address = |id| unsafe { slabs.address(id) };
            let mut slots: Vec<_> = (0..count)
                .map(|_| alloc(&slabs, &mut magazine).unwrap())
                .collect();
            slots.sort_by_key(|slot| address(*slot));
            assert!(
                slots
                    .iter()
                    .all(|slot| address(*slot).addr().get() % 16 == 0)
            );
            let size = size.next_multiple_of(16);
            let apart = |pair: &[NodeId]| {
                address(pair[1]).addr().get() - address(pair[0]).addr().get() >= size
            };
            assert!(slots.windows(2).all(apart));
            for slot in slots {
                // SAFETY: `alloc` has returned the slot, which has `size` bytes and is freed once
                // (1); there is one magazine (2).
                unsafe {
                    address(slot).write_bytes(0xee, size);
                    slabs.free(&mut magazine, slot);
                }
            }
        }
    }

    #[test]
    fn empty_slabs_are_given_back() {
        let (slabs, mut magazine) = (slabs(32), Magazine::new());
        let slots: Vec<_> = (0..100_000)
            .map(|_| alloc(&slabs, &mut magazine).unwrap())
            .collect();
        assert!(slabs.bytes() >= 3_200_000);
        for slot in slots {
            // SAFETY: `alloc` has returned the slot, which is freed once (1); there is one magazine
            // (2).
            unsafe { slabs.free(&mut magazine, slot) };
        }
        // SAFETY: the magazine is used with these slabs only (1).
        unsafe { slabs.flush(&mut magazine) };
        assert!(slabs.bytes() <= 2 * LARGEST, "{}", slabs.bytes());
    }

    #[test]
    fn many_magazines_do_not_make_small_slabs_large() {
        for size in [16, 24, 200, 5000] {
            let slabs = slabs(size);
            let mut magazines: Vec<_> = (0..300).map(|_| Magazine::new()).collect();
            for magazine in &mut magazines {
                alloc(&slabs, magazine).unwrap();
            }
            let size = size.next_multiple_of(16);
            assert!(
                slabs.bytes() <= 300 * MOVED * size + 2 * USUAL,
                "{size}: {}",
                slabs.bytes()
            );
            let used = 300 * size;
            for magazine in &mut magazines {
                // SAFETY: the magazines are used with these slabs only (1).
                unsafe { slabs.flush(magazine) };
            }
            // What was flushed is used again, untouched or not.
            let before = slabs.bytes();
            for magazine in magazines.iter_mut().take(100) {
                alloc(&slabs, magazine).unwrap();
            }
            assert!(slabs.bytes() <= before.max(used + 100 * MOVED * size + 2 * USUAL));
        }
    }

    #[test]
    fn magazines_in_turn_neither_lose_slots_nor_share_them() {
        let slabs = slabs(32);
        let mut magazines = [const { Magazine::new() }; 5];
        let (mut used, mut random) = (Vec::new(), 1_u64);
        for turn in 0..60_000 {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            let magazine = &mut magazines[(random >> 60) as usize % 5];
            match random >> 33 & 15 {
                // Slots in use, more and then fewer.
                action if action < if turn < 40_000 { 9 } else { 4 } => {
                    used.push(alloc(&slabs, magazine).unwrap());
                }
                15 if turn % 16 == 0 => {
                    // SAFETY: the magazines are used with these slabs only (1).
                    unsafe { slabs.flush(magazine) };
                }
                _ if used.is_empty() => {}
                _ => {
                    let slot = used.swap_remove((random >> 20) as usize % used.len());
                    // SAFETY: the slot was allocated above and is not used any more (1). The
                    // magazines are used with these slabs only (2).
                    unsafe { slabs.free(magazine, slot) };
                }
            }
        }
        let all: BTreeSet<_> = used.iter().map(|slot| slot.0).collect();
        assert_eq!(all.len(), used.len(), "a slot has two owners");
        for slot in used.drain(..) {
            // SAFETY: the slot was allocated above and is not used any more (1). The magazines are
            // used with these slabs only (2).
            unsafe { slabs.free(&mut magazines[0], slot) };
        }
        for magazine in &mut magazines {
            // SAFETY: the magazines are used with these slabs only (1).
            unsafe { slabs.flush(magazine) };
        }
        let depot = slabs.depot.lock();
        let in_use = depot.slabs.iter().filter(|slab| slab.memory.is_some());
        assert!(in_use.clone().all(Slab::is_empty), "a slot was lost");
        assert_eq!((in_use.count(), depot.empty), (1, 1), "one spare is kept");
    }

    #[test]
    fn freed_slots_are_used_again() {
        let (slabs, mut magazine) = (slabs(64), Magazine::new());
        for _ in 0..100 {
            let slots: Vec<_> = (0..1000)
                .map(|_| alloc(&slabs, &mut magazine).unwrap())
                .collect();
            for slot in slots {
                // SAFETY: `alloc` has returned the slot, which is freed once a round (1); there is
                // one magazine (2).
                unsafe { slabs.free(&mut magazine, slot) };
            }
        }
        assert!(slabs.bytes() <= 2 * LARGEST, "{}", slabs.bytes());
    }

    #[test]
    fn the_last_id_is_given_out() {
        let (slabs, mut magazine) = (slabs(16), Magazine::new());
        let last = u32::MAX >> slabs.slot_bits;
        // All slabs but the last one exist, in a map so large that the last one is of the largest
        // kind.
        slabs.bytes.store(1 << 40, Relaxed);
        let mut depot = slabs.depot.lock();
        while slabs.number(&mut depot) != Some(last - 1) {}
        drop(depot);
        let ids: Vec<_> = std::iter::from_fn(|| alloc(&slabs, &mut magazine)).collect();
        assert_eq!(ids.len(), LARGEST / 16);
        assert!(ids.is_sorted_by_key(|id| id.0));
        assert_eq!(ids.last().map(|id| id.0.get()), Some(u32::MAX));
        assert!(
            alloc(&slabs, &mut magazine).is_none(),
            "an ID after the last one"
        );
    }

    #[test]
    fn ids_are_used_again_and_run_out() {
        // 16 slabs of 8 MiB whose pages are never touched; 2^32 IDs would be too many.
        let (mut slabs, mut magazine) = (slabs(8 << 20), Magazine::new());
        slabs.slot_bits = 28;
        for _ in 0..3 {
            let slots: Vec<_> = std::iter::from_fn(|| alloc(&slabs, &mut magazine)).collect();
            assert_eq!(slots.len(), 15);
            for slot in slots {
                // SAFETY: `alloc` has returned the slot, which is freed once a round (1); there is
                // one magazine (2).
                unsafe { slabs.free(&mut magazine, slot) };
            }
            assert!(slabs.bytes() <= 8 << 20);
        }
    }
}
