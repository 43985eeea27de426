//! The global allocator of a program that measures: mimalloc, and a count of bytes.
//!
//! ```
//! use corewise_bench::allocator::BenchAllocator;
//!
//! #[global_allocator]
//! static ALLOCATOR: BenchAllocator = BenchAllocator;
//! ```
//!
//! mimalloc takes its page policy from the environment: `MIMALLOC_ALLOW_THP=0` turns transparent
//! huge pages off for the whole process, and `2` advises them for all of mimalloc's memory.
//!
//! # Guarantees
//!
//! 1. A call costs one relaxed load and a predictable branch more than mimalloc's, as long as
//!    nothing is counted.
//! 2. Counting, once switched on, stays on. Bytes are those requested, not those that mimalloc
//!    rounds them to.
//! 3. C and C++ code in the process calls `malloc` and is not counted.

use std::alloc::{GlobalAlloc, Layout};
use std::path::Path;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicI64, AtomicU8};

use corewise_atomic::alloc::mapped_bytes;
use corewise_measure::machine::chosen;
use mimalloc::MiMalloc;

/// State of the process: whether it runs on [`BenchAllocator`], and whether bytes are counted.
static STATE: AtomicU8 = AtomicU8::new(0);
const INSTALLED: u8 = 1;
const COUNTING: u8 = 2;

/// Bytes allocated and not freed since counting began, and their peak. They guard no other memory,
/// and a reader needs exact sums only after it has joined or stopped the threads that allocate.
static LIVE: AtomicI64 = AtomicI64::new(0);
static PEAK: AtomicI64 = AtomicI64::new(0);

/// Bytes allocated through the program's allocator since counting began, and bucket arrays mapped
/// directly from the system. `live_bytes` is negative if more was freed of earlier allocations than
/// allocated since, so take differences.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// Allocated and not freed.
    pub live_bytes: i64,
    /// The peak of `live_bytes`.
    pub peak_bytes: i64,
}

/// The global allocator of a program that measures.
#[derive(Clone, Copy, Debug, Default)]
pub struct BenchAllocator;

/// Counts bytes, if that is switched on.
#[inline(always)]
fn count(delta: i64) {
    // Relaxed: the byte guards no other memory, and all threads set the same bit.
    let state = STATE.load(Relaxed);
    if state != INSTALLED {
        count_or_install(state, delta);
    }
}

#[cold]
fn count_or_install(state: u8, delta: i64) {
    STATE.fetch_or(INSTALLED, Relaxed); // Relaxed: see `count`
    if state & COUNTING != 0 {
        let live = LIVE.fetch_add(delta, Relaxed) + delta; // Relaxed: see `LIVE`
        PEAK.fetch_max(live + mapped_bytes() as i64, Relaxed); // Relaxed: see `LIVE`
    }
}

/// Counts a new block, unless there is none.
#[inline]
fn count_block(block: *mut u8, layout: Layout) {
    count(if block.is_null() {
        0
    } else {
        layout.size() as i64
    });
}

// SAFETY: mimalloc is a correct `GlobalAlloc` that gets the caller's own arguments. Counting
// neither allocates nor unwinds.
unsafe impl GlobalAlloc for BenchAllocator {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller guarantees that the layout is not of size 0.
        let block = unsafe { MiMalloc.alloc(layout) };
        count_block(block, layout);
        block
    }
    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller guarantees that the layout is not of size 0.
        let block = unsafe { MiMalloc.alloc_zeroed(layout) };
        count_block(block, layout);
        block
    }
    #[inline]
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the caller guarantees that the block came from this allocator with this layout.
        unsafe { MiMalloc.dealloc(block, layout) };
        count(-(layout.size() as i64));
    }
    #[inline]
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: as for `dealloc`; and the new size is not 0 and does not overflow.
        let moved = unsafe { MiMalloc.realloc(block, layout, size) };
        if !moved.is_null() {
            count(size as i64 - layout.size() as i64);
        }
        moved
    }
}

/// Returns name and version of the allocator, for the manifest; `other` for a program that does not
/// run on [`BenchAllocator`].
pub fn line() -> String {
    // Relaxed: see `count`.
    match STATE.load(Relaxed) {
        0 => "other".into(),
        _ => format!("mimalloc {}", mimalloc_version(MiMalloc.version())),
    }
}

/// Decodes mimalloc's version: 1.8.6 is 186, and since 3.3 version 3.3.2 is 30302.
fn mimalloc_version(number: u32) -> String {
    let base = if number < 10_000 { 10 } else { 100 };
    let (major, minor) = (number / (base * base), number / base % base);
    format!("{major}.{minor}.{}", number % base)
}

/// Returns the page policy of the system and of this process, for the manifest: `madvise`, or
/// `madvise, MIMALLOC_ALLOW_THP=0`.
pub fn pages_line() -> String {
    let own = std::env::var("MIMALLOC_ALLOW_THP").ok();
    pages_of(Path::new("/"), own.as_deref())
}

fn pages_of(root: &Path, own: Option<&str>) -> String {
    let file = root.join("sys/kernel/mm/transparent_hugepage/enabled");
    let text = std::fs::read_to_string(file).unwrap_or_default();
    let system = match chosen(&text) {
        "" => "unknown",
        word => word,
    };
    let own = own.map(|value| format!(", MIMALLOC_ALLOW_THP={value}"));
    format!("{system}{}", own.unwrap_or_default())
}

/// Switches counting on for good. Call it before the tables are made: earlier allocations are not
/// counted, and count negative when they are freed.
pub fn start_counting() {
    // Relaxed: a thread that sees the bit late does not count its allocations until then, and
    // threads started later see it.
    STATE.fetch_or(COUNTING, Relaxed);
}

/// Returns the live bytes, and their peak since counting began or [`reset_peak`]; `None` if nothing
/// is counted, or the program does not run on [`BenchAllocator`].
pub fn counted() -> Option<Counted> {
    // Relaxed: see `count`.
    if STATE.load(Relaxed) != INSTALLED | COUNTING {
        return None;
    }
    let live_bytes = live();
    // Relaxed: see `LIVE`.
    let peak_bytes = PEAK.fetch_max(live_bytes, Relaxed).max(live_bytes);
    Some(Counted {
        live_bytes,
        peak_bytes,
    })
}

fn live() -> i64 {
    LIVE.load(Relaxed) + mapped_bytes() as i64 // Relaxed: see `LIVE`
}

/// Resets the peak to the bytes that are live now. Call it while other threads do not allocate.
pub fn reset_peak() {
    PEAK.store(live(), Relaxed); // Relaxed: see `LIVE`
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_of_both_schemes_are_read() {
        assert_eq!(mimalloc_version(186), "1.8.6");
        assert_eq!(mimalloc_version(30_302), "3.3.2");
    }

    /// The test program has the standard allocator; `tests/allocator.rs` runs on
    /// [`BenchAllocator`].
    #[test]
    fn without_the_allocator_nothing_is_claimed() {
        assert_eq!((&*line(), counted()), ("other", None));
    }

    #[test]
    fn pages_are_those_of_the_system_and_of_the_environment() {
        let root = tempfile::tempdir().expect("a folder");
        assert_eq!(pages_of(root.path(), None), "unknown");
        let folder = root.path().join("sys/kernel/mm/transparent_hugepage");
        std::fs::create_dir_all(&folder).expect("a folder");
        std::fs::write(folder.join("enabled"), "always [madvise] never\n").expect("written");
        assert_eq!(pages_of(root.path(), None), "madvise");
        let own = pages_of(root.path(), Some("0"));
        assert_eq!(own, "madvise, MIMALLOC_ALLOW_THP=0");
    }
}
