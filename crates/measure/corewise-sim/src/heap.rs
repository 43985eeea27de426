//! A global allocator whose addresses are the same in every simulation, but for a base.
//!
//! Each simulation has a region of addresses, at a multiple of 2 MiB. A simulated thread allocates
//! from blocks of its region that no other thread uses, so which objects share a cache line depends
//! on the program only. The engine itself, and code outside of a simulation, use the system's heap.
//!
//! # Guarantees
//!
//! 1. *Memory outlives its simulation.* A region is used again only when the simulation is over and
//!    everything in it was given back. Statics of the program are never dropped, and keep theirs: a
//!    process that simulates such programs has regions for 8,192 of them.
//! 2. *A remote free* gives the memory to the thread that frees it.
//! 3. Without a region (all are in use, or the system has no addresses) memory comes from the
//!    system's heap: the program runs, and its digest may change between runs.
//!    `Finished::has_region` tells.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::ptr;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed, Ordering::SeqCst};

/// Bytes of a region.
const REGION: usize = 4 << 30;
/// Regions; their sum, 32 TiB of the 128 that a process has, are addresses only.
const REGIONS: usize = 8192;
/// Threads with blocks; further ones use the last thread's.
const THREADS: usize = 1024;
/// Bytes that a thread takes from its region at once, for objects of up to [`SMALL`] bytes.
const BLOCK: usize = 64 << 10;
const SMALL: usize = 16 << 10;
/// The greatest alignment; more comes from the system's heap.
const MAX_ALIGN: usize = 4096;
/// Size classes: multiples of 16 bytes up to 1,024, then powers of two.
const CLASSES: usize = 64 + 22;

/// Memory of simulations, and the system's heap for all else: see the module's header.
///
/// ```no_run
/// #[global_allocator]
/// static HEAP: corewise_sim::SimHeap = corewise_sim::SimHeap;
/// ```
#[derive(Debug)]
pub struct SimHeap;

/// The first address of all regions; 0 before the first simulation, 1 if there are none.
static BASE: AtomicUsize = AtomicUsize::new(0);
/// The users of each region: its objects, and its simulation while it runs; or [`CLEARING`].
static LIVE: [AtomicU64; REGIONS] = [const { AtomicU64::new(0) }; REGIONS];

const CLEARING: u64 = u64::MAX;

std::thread_local! {
    /// The blocks of the simulated thread that runs on this OS thread; null outside of it.
    static BLOCKS: Cell<*mut Blocks> = const { Cell::new(ptr::null_mut()) };
}

/// The beginning of a region.
struct Region {
    next: usize,
    end: usize,
    threads: [Blocks; THREADS],
}

/// What a thread allocates from. All zero bits are a valid value.
struct Blocks {
    region: *mut Region,
    next: usize,
    end: usize,
    /// Objects that were given back, linked by their first word.
    free: [*mut u8; CLASSES],
}

/// The heap of one simulation.
pub(crate) struct SimRegion(*mut Region);

impl SimRegion {
    /// Takes a region; null if there is none.
    pub(crate) fn take() -> Self {
        let base = base();
        let free = (0..REGIONS).find(|&index| {
            // SeqCst, both: pairs with `give_back`, so nothing of the last user is left.
            base != 1 && LIVE[index].compare_exchange(0, 1, SeqCst, SeqCst).is_ok()
        });
        let Some(index) = free else {
            return Self(ptr::null_mut());
        };
        let region = (base + index * REGION) as *mut Region;
        let first = (region.addr() + size_of::<Region>()).next_multiple_of(BLOCK);
        // SAFETY: the region's memory is zeroed, which is a valid `Region`, and it is ours alone.
        unsafe {
            (*region).next = first;
            (*region).end = region.addr() + REGION;
        }
        Self(region)
    }

    pub(crate) fn is_there(&self) -> bool {
        !self.0.is_null()
    }

    /// What [`resume`] needs to run a simulated thread for the first time.
    pub(crate) fn blocks_of(&self, thread: u32) -> Left {
        if self.0.is_null() {
            return Left(ptr::null_mut());
        }
        let index = (thread as usize).min(THREADS - 1);
        // SAFETY: within the region, which lives until `self` is dropped.
        unsafe {
            let blocks = &raw mut (*self.0).threads[index];
            (*blocks).region = self.0;
            Left(blocks)
        }
    }
}

impl Drop for SimRegion {
    fn drop(&mut self) {
        BLOCKS.set(ptr::null_mut());
        if !self.0.is_null() {
            give_back(self.0.addr());
        }
    }
}

/// From now on this OS thread runs the engine; returns what [`resume`] needs.
#[inline]
pub(crate) fn leave() -> Left {
    Left(BLOCKS.replace(ptr::null_mut()))
}

pub(crate) struct Left(*mut Blocks);

/// From now on this OS thread runs the thread that it had left.
#[inline]
pub(crate) fn resume(left: Left) {
    BLOCKS.set(left.0);
}

/// Reserves the addresses, once.
fn base() -> usize {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        const BYTES: usize = REGION * (REGIONS + 1);
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a new mapping at an address that the system chooses touches no existing memory.
        let first = unsafe { libc::mmap(ptr::null_mut(), BYTES, access, kind, -1, 0) };
        let is_there = first != libc::MAP_FAILED;
        let base = if is_there {
            first.addr().next_multiple_of(REGION)
        } else {
            1
        };
        // Relaxed: `call_once` orders it for callers of this function; others have an address of a
        // region from one of them.
        BASE.store(base, Relaxed);
    });
    // Relaxed: as above.
    BASE.load(Relaxed)
}

/// The region of an address.
#[inline]
fn index_of(address: usize) -> Option<usize> {
    // Relaxed: an address in a region was made after the store of the base, by a thread that the
    // caller has synchronised with.
    let base = BASE.load(Relaxed);
    let index = address.wrapping_sub(base) / REGION;
    (base > 1 && index < REGIONS).then_some(index)
}

/// One user of the region of this address less. The last one clears it.
fn give_back(address: usize) {
    let Some(index) = index_of(address) else {
        return;
    };
    // SeqCst, all: a user that goes pairs with the one that clears, and that with `take`.
    let mut users = LIVE[index].load(SeqCst);
    loop {
        let left = if users == 1 { CLEARING } else { users - 1 };
        match LIVE[index].compare_exchange(users, left, SeqCst, SeqCst) {
            Ok(_) if left == CLEARING => break,
            Ok(_) => return,
            Err(now) => users = now, // SeqCst: as above
        }
    }
    // Relaxed: there is a region, so the base is known.
    let start = (BASE.load(Relaxed) + index * REGION) as *mut libc::c_void;
    // SAFETY: no object of the region is in use, and no simulation; the pages then read as zero.
    unsafe { libc::madvise(start, REGION, libc::MADV_DONTNEED) };
    LIVE[index].store(0, SeqCst); // SeqCst: as above
}

/// The class of a size, and the bytes of its objects.
#[inline]
fn class_of(layout: Layout) -> (usize, usize) {
    let size = layout.size().max(16).next_multiple_of(16);
    if size <= 1024 && layout.align() <= 16 {
        return (size / 16 - 1, size);
    }
    let size = size.max(layout.align()).max(2048).next_power_of_two();
    (64 + size.trailing_zeros() as usize - 11, size)
}

/// Allocates from the blocks of a thread; null if the region is full.
///
/// # Safety
///
/// 1. `blocks` are those of the calling simulated thread.
unsafe fn allocate(blocks: *mut Blocks, layout: Layout) -> *mut u8 {
    let (class, size) = class_of(layout);
    // SAFETY: by 1 no other code uses the blocks, and their region lives. The blocks lie in the
    // region, so references are to their fields only, which do not overlap.
    let (blocks_next, blocks_end, free, region_next, region_end) = unsafe {
        let region = (*blocks).region;
        (
            &mut (*blocks).next,
            &mut (*blocks).end,
            &mut (*blocks).free[class],
            &mut (*region).next,
            (*region).end,
        )
    };
    let first = *free;
    if !first.is_null() {
        // SAFETY: an object that was given back, and whose first word is the link.
        *free = unsafe { first.cast::<*mut u8>().read() };
        return first;
    }
    if size > SMALL {
        return take_from(region_next, region_end, size, MAX_ALIGN);
    }
    let align = if size <= 1024 {
        16
    } else {
        size.min(MAX_ALIGN)
    };
    let object = take_from(blocks_next, *blocks_end, size, align);
    if !object.is_null() {
        return object;
    }
    let block = take_from(region_next, region_end, BLOCK, MAX_ALIGN);
    if block.is_null() {
        return block;
    }
    (*blocks_next, *blocks_end) = (block.addr(), block.addr() + BLOCK);
    take_from(blocks_next, *blocks_end, size, align)
}

fn take_from(next: &mut usize, end: usize, size: usize, align: usize) -> *mut u8 {
    let start = next.next_multiple_of(align);
    if *next == 0 || start + size > end {
        return ptr::null_mut();
    }
    *next = start + size;
    start as *mut u8
}

// SAFETY: memory comes from a region, where objects do not overlap, or from the system's heap; the
// address tells which one.
unsafe impl GlobalAlloc for SimHeap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let blocks = BLOCKS.get();
        if !blocks.is_null() && layout.align() <= MAX_ALIGN && layout.size() < REGION / 4 {
            // SAFETY: `BLOCKS` has those of the simulated thread that runs (1).
            let object = unsafe { allocate(blocks, layout) };
            if !object.is_null() {
                let index = index_of(object.addr()).unwrap_or_default();
                LIVE[index].fetch_add(1, Relaxed); // Relaxed: the simulation itself is a user
                return object;
            }
        }
        // SAFETY: the caller's promise about the layout.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, object: *mut u8, layout: Layout) {
        let Some(index) = index_of(object.addr()) else {
            // SAFETY: no address of a region, so it is from the system's heap.
            return unsafe { System.dealloc(object, layout) };
        };
        let blocks = BLOCKS.get();
        // SAFETY: the blocks are those of the simulated thread that runs.
        if !blocks.is_null() && index_of(unsafe { (*blocks).region }.addr()) == Some(index) {
            let (class, _) = class_of(layout);
            // SAFETY: as above; the object has 16 bytes at least, and nobody uses it.
            unsafe {
                object.cast::<*mut u8>().write((*blocks).free[class]);
                (*blocks).free[class] = object;
            }
            LIVE[index].fetch_sub(1, Relaxed); // Relaxed: the simulation itself is a user
        } else {
            give_back(object.addr());
        }
    }
}
