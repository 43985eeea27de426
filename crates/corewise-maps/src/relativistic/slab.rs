//! Memory for the nodes of one map: slabs of equal slots, handed out through magazines.
//!
//! ```text
//!  slab, aligned to its size                     depot (one lock)          magazine (one thread)
//! ┌────────┬──────┬──────┬─ ─ ─┬──────┐   slabs with free slots ─┐       free slots ─┐
//! │ header │ slot │ slot │     │ slot │ ◀────────────────────────┘      a fresh slab ─┤
//! └────────┴──────┴──────┴─ ─ ─┴──────┘    64 slots at a time ◀────────────────────▶ alloc, free
//! ```
//!
//! 1. *Cost.* `alloc` and `free` are a push or pop of the caller's magazine; the depot's lock is
//!    taken once in [`MOVED`] of them at most. A magazine has room for what a thread retires at a
//!    time, so that slots which come and go do not reach the depot at all: there each of them
//!    costs the cache line of its slab's header. A fresh slab goes to one magazine as a whole and
//!    is touched as its slots are used.
//! 2. *Given back.* A slab all of whose slots are in the depot goes back to the allocator, but for
//!    one spare. Magazines keep [`KEPT_BYTES`] of slots each, and nothing when the map has become
//!    small ([`Slabs::is_wasteful`]).
//! 3. *Small maps* begin with small slabs ([`FIRST`]), which are kept until the end.
//! 4. Slots of more than an eighth of the largest slab are the allocator's, one by one.

use std::ptr::{self, NonNull};

use corewise_atomic::alloc::{Layout, Node, alloc, dealloc};
use corewise_atomic::hint;
use corewise_atomic::lock::Mutex;
use corewise_atomic::sync::atomic::AtomicUsize;
use corewise_atomic::sync::atomic::Ordering::Relaxed;

/// Bytes of the first slabs; those that follow have the full size.
const FIRST: [usize; 3] = [512, 2 << 10, 16 << 10];
const SMALLEST: usize = 64 << 10;
const LARGEST: usize = 1 << 20;
/// Slots that a slab has room for if it can be had below [`LARGEST`] bytes.
const WANTED_SLOTS: usize = 64;

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
    /// Of all slabs.
    bytes: AtomicUsize,
    /// Bytes of a slab, a power of two; 0 if slots are the allocator's.
    slab_bytes: usize,
    depot: Mutex<Depot>,
}

/// Free slots in reach of one thread.
pub(super) struct Magazine {
    free: Vec<NonNull<u8>>,
    /// The untouched rest of a fresh slab.
    fresh: *mut u8,
    fresh_slots: usize,
}

struct Depot {
    /// Small slabs, and how many sizes of [`FIRST`] are behind us.
    first: Vec<(NonNull<u8>, usize)>,
    first_tried: usize,
    /// Free slots of those.
    first_free: Vec<NonNull<u8>>,
    /// All full-sized slabs.
    slabs: Vec<NonNull<Header>>,
    /// Those that have free slots here: a list.
    partial: *mut Header,
    /// Those whose slots are all here.
    empty: usize,
}

/// At the beginning of each full-sized slab; under the depot's lock.
struct Header {
    /// Free slots that the depot has, linked through their first word.
    free: *mut u8,
    free_slots: usize,
    slots: usize,
    /// Its place among all slabs.
    index: usize,
    next: *mut Header,
    previous: *mut Header,
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
        let wanted = (slot.size() * WANTED_SLOTS).next_power_of_two();
        let slab_bytes = wanted.clamp(SMALLEST, LARGEST);
        let kept = (KEPT_BYTES / slot.size()).clamp(MOVED, 1 << 13);
        let fits = slot.size() <= slab_bytes / 8 && slot.align() <= SMALLEST / 8;
        Self {
            slot,
            kept,
            bytes: AtomicUsize::new(0),
            slab_bytes: if fits { slab_bytes } else { 0 },
            depot: Mutex::new(Depot {
                first: Vec::new(),
                first_tried: 0,
                first_free: Vec::new(),
                slabs: Vec::new(),
                partial: ptr::null_mut(),
                empty: 0,
            }),
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
        if self.slab_bytes == 0 {
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

    /// Bytes of all slabs.
    pub(super) fn bytes(&self) -> usize {
        // Relaxed: a number that publishes nothing, here and below.
        self.bytes.load(Relaxed)
    }

    /// Whether so many slots in use should do with much less: then magazines are to be flushed.
    pub(super) fn is_wasteful(&self, used: usize) -> bool {
        self.bytes() > FINE_BYTES + 4 * used * self.slot.size()
    }

    fn alloc_alone(&self) -> Option<NonNull<u8>> {
        (self.slab_bytes == 0)
            .then(|| alloc(self.slot, Node::Local))
            .flatten()
    }

    #[cold]
    fn refill(&self, magazine: &mut Magazine) -> bool {
        if self.slab_bytes == 0 {
            return false;
        }
        let mut depot = self.depot.lock();
        depot.take_some(&mut magazine.free) || self.take_fresh(&mut depot, magazine)
    }

    /// Gives the magazine a new slab.
    fn take_fresh(&self, depot: &mut Depot, magazine: &mut Magazine) -> bool {
        let small = FIRST[depot.first_tried..]
            .iter()
            .position(|bytes| *bytes >= self.slot.size());
        let (memory, begin, bytes) = match small {
            Some(skipped) => {
                depot.first_tried += skipped + 1;
                self.new_first(depot, FIRST[depot.first_tried - 1])
            }
            None => self.new_slab(depot),
        };
        let Some(memory) = memory else { return false };
        magazine.fresh = memory.as_ptr().wrapping_add(begin);
        magazine.fresh_slots = (bytes - begin) / self.slot.size();
        self.bytes.fetch_add(bytes, Relaxed);
        true
    }

    /// Memory, where its slots begin, and its size.
    fn new_first(&self, depot: &mut Depot, bytes: usize) -> (Option<NonNull<u8>>, usize, usize) {
        let memory = alloc(self.first_layout(bytes), Node::Local);
        depot.first.extend(memory.map(|memory| (memory, bytes)));
        (memory, 0, bytes)
    }

    fn new_slab(&self, depot: &mut Depot) -> (Option<NonNull<u8>>, usize, usize) {
        let begin = size_of::<Header>().next_multiple_of(self.slot.align());
        let memory = alloc(self.slab_layout(), Node::Local);
        if let Some(memory) = memory {
            let slab = memory.cast::<Header>();
            let header = Header {
                free: ptr::null_mut(),
                free_slots: 0,
                slots: (self.slab_bytes - begin) / self.slot.size(),
                index: depot.slabs.len(),
                next: ptr::null_mut(),
                previous: ptr::null_mut(),
            };
            // SAFETY: the memory is large enough, aligned to its size, and ours alone.
            unsafe { slab.write(header) };
            depot.slabs.push(slab);
        }
        (memory, begin, self.slab_bytes)
    }

    fn first_layout(&self, bytes: usize) -> Layout {
        Layout::from_size_align(bytes, self.slot.align()).expect("small sizes are valid")
    }

    fn slab_layout(&self) -> Layout {
        let bytes = self.slab_bytes;
        Layout::from_size_align(bytes, bytes).expect("powers of two are valid")
    }

    /// Moves up to `most` free slots to the depot, and frees slabs that are empty then.
    #[cold]
    fn give(&self, magazine: &mut Magazine, most: usize) {
        let keep = magazine.free.len().saturating_sub(most);
        let mut dead = Vec::new();
        let mut depot = self.depot.lock();
        for slot in magazine.free.drain(keep..) {
            if depot.is_of_first(slot) {
                depot.first_free.push(slot);
            } else {
                // SAFETY: the slot is free and in a full-sized slab.
                dead.extend(unsafe { depot.put(slot, self.slab_bytes) });
            }
        }
        drop(depot);
        for slab in dead {
            self.bytes.fetch_sub(self.slab_bytes, Relaxed);
            // SAFETY: the depot has let go of it and has had all of its slots.
            unsafe { dealloc(slab.cast(), self.slab_layout()) };
        }
    }
}

impl Depot {
    fn is_of_first(&self, slot: NonNull<u8>) -> bool {
        let mut first = self.first.iter();
        first.any(|(memory, bytes)| slot.addr().get().wrapping_sub(memory.addr().get()) < *bytes)
    }

    /// Fills a magazine with slots that are free already; false if there are none.
    fn take_some(&mut self, free: &mut Vec<NonNull<u8>>) -> bool {
        let from_first = self.first_free.len().saturating_sub(MOVED);
        free.extend(self.first_free.drain(from_first..));
        while free.len() < MOVED && !self.partial.is_null() {
            // SAFETY: slabs in the list are alive, and under the lock that we hold.
            unsafe { self.take_from(NonNull::new_unchecked(self.partial), free) };
        }
        !free.is_empty()
    }

    /// # Safety
    ///
    /// 1. `slab` is one of this depot's, in the list of those with free slots.
    unsafe fn take_from(&mut self, mut slab: NonNull<Header>, free: &mut Vec<NonNull<u8>>) {
        // SAFETY: 1.
        let header = unsafe { slab.as_mut() };
        self.empty -= usize::from(header.free_slots == header.slots);
        while free.len() < MOVED
            && let Some(slot) = NonNull::new(header.free)
        {
            // SAFETY: `put` wrote the word.
            header.free = unsafe { slot.cast::<*mut u8>().read() };
            header.free_slots -= 1;
            free.push(slot);
        }
        if header.free.is_null() {
            // SAFETY: 1.
            unsafe { self.unlist(slab) };
        }
    }

    /// Takes a free slot; returns its slab if that is to be freed.
    ///
    /// # Safety
    ///
    /// 1. The slot is free and in a full-sized slab of this depot.
    unsafe fn put(&mut self, slot: NonNull<u8>, slab_bytes: usize) -> Option<NonNull<Header>> {
        let slab = slot.as_ptr().map_addr(|addr| addr & !(slab_bytes - 1));
        // SAFETY: slabs are aligned to their size and begin with a header, by 1.
        let mut slab = unsafe { NonNull::new_unchecked(slab.cast::<Header>()) };
        // SAFETY: as above; the lock is held.
        let header = unsafe { slab.as_mut() };
        // SAFETY: slots have room for a word, and this one is free.
        unsafe { slot.cast::<*mut u8>().write(header.free) };
        header.free = slot.as_ptr();
        header.free_slots += 1;
        if header.free_slots == 1 {
            self.list(slab);
        }
        if header.free_slots < header.slots {
            return None;
        }
        self.empty += 1;
        if self.empty == 1 {
            return None;
        }
        self.empty -= 1;
        // SAFETY: it is in the list.
        unsafe { self.unlist(slab) };
        self.forget(slab);
        Some(slab)
    }

    fn list(&mut self, mut slab: NonNull<Header>) {
        // SAFETY: the slab is this depot's and alive; the lock is held.
        let header = unsafe { slab.as_mut() };
        header.previous = ptr::null_mut();
        header.next = self.partial;
        // SAFETY: as above.
        if let Some(next) = unsafe { self.partial.as_mut() } {
            next.previous = slab.as_ptr();
        }
        self.partial = slab.as_ptr();
    }

    /// # Safety
    ///
    /// 1. The slab is in the list.
    unsafe fn unlist(&mut self, slab: NonNull<Header>) {
        // SAFETY: slabs in the list are alive; the lock is held. Here and below.
        let (next, previous) = unsafe { (slab.as_ref().next, slab.as_ref().previous) };
        // SAFETY: as above.
        if let Some(next) = unsafe { next.as_mut() } {
            next.previous = previous;
        }
        // SAFETY: as above.
        match unsafe { previous.as_mut() } {
            Some(previous) => previous.next = next,
            None => self.partial = next,
        }
    }

    fn forget(&mut self, slab: NonNull<Header>) {
        // SAFETY: the slab is alive until the caller frees it; the lock is held.
        let index = unsafe { slab.as_ref() }.index;
        self.slabs.swap_remove(index);
        if let Some(moved) = self.slabs.get_mut(index) {
            // SAFETY: all slabs in the list are alive.
            unsafe { moved.as_mut() }.index = index;
        }
    }
}

impl Drop for Slabs {
    /// Frees all slabs, whatever is in use. (Slots of the allocator's own were freed one by one.)
    fn drop(&mut self) {
        let slab_layout = (self.slab_bytes != 0).then(|| self.slab_layout());
        let depot = self.depot.get_mut();
        let (first, slabs) = (
            std::mem::take(&mut depot.first),
            std::mem::take(&mut depot.slabs),
        );
        for (memory, bytes) in first {
            // SAFETY: allocated by `new_first` with this layout.
            unsafe { dealloc(memory, self.first_layout(bytes)) };
        }
        for (slab, layout) in slabs.into_iter().zip(slab_layout.into_iter().cycle()) {
            // SAFETY: allocated by `new_slab` with this layout.
            unsafe { dealloc(slab.cast(), layout) };
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
        assert!(slabs.bytes() < 300_000, "{}", slabs.bytes());
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
        assert!(slabs.bytes() < 300_000, "{}", slabs.bytes());
    }
}
