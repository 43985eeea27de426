//! Raw memory, with a hint on where it should live.
//!
//! loom reports memory that is allocated here and never given back.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

pub use std::alloc::Layout;

/// Bytes of a huge page on processors with 4 KiB pages.
pub const HUGE_PAGE: usize = 2 << 20;

/// Bytes of a page of this system, a power of two: 4 KiB on most processors, 16 or 64 KiB on some
/// with Arm or POWER. [`discard`] gives back whole pages only.
///
/// Complexity: a load; the first call makes a system call.
pub fn page_bytes() -> usize {
    // Uses `std`: loom and shuttle need not see it.
    static BYTES: AtomicUsize = AtomicUsize::new(0);
    // Relaxed, both: every thread computes the same number.
    match BYTES.load(Relaxed) {
        0 => {
            let bytes = ask_page_bytes();
            BYTES.store(bytes, Relaxed);
            bytes
        }
        bytes => bytes,
    }
}

/// The page size to assume if the system does not report one.
const USUAL_PAGE: usize = 4096;

#[cfg(unix)]
fn ask_page_bytes() -> usize {
    // SAFETY: the call only reads a system setting.
    let bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(bytes)
        .ok()
        .filter(|bytes| bytes.is_power_of_two())
        .unwrap_or(USUAL_PAGE)
}

#[cfg(not(unix))]
fn ask_page_bytes() -> usize {
    USUAL_PAGE
}

/// The NUMA node that the memory is for.
///
/// A hint: callers pass it, but the allocator ignores it and the system places pages where they are
/// first touched. So the thread that will use the memory should touch it first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MemoryNode {
    /// The node on which the caller runs.
    #[default]
    Local,
    /// The node with this number.
    Number(u32),
}

/// Allocates uninitialised memory of `layout`; `None` if there is none, or if `layout` has size
/// zero.
///
/// Complexity: the global allocator's. Give the memory back with [`dealloc`].
#[track_caller]
pub fn alloc(layout: Layout, node: MemoryNode) -> Option<NonNull<u8>> {
    let _ = node;
    if layout.size() == 0 {
        return None;
    }
    // SAFETY: the size of the layout is not zero, by the check above.
    NonNull::new(unsafe { imp::alloc(layout) })
}

/// Like [`alloc`], with every byte zero.
#[track_caller]
pub fn alloc_zeroed(layout: Layout, node: MemoryNode) -> Option<NonNull<u8>> {
    let _ = node;
    if layout.size() == 0 {
        return None;
    }
    // SAFETY: the size of the layout is not zero, by the check above.
    NonNull::new(unsafe { imp::alloc_zeroed(layout) })
}

/// Gives memory back to the allocator.
///
/// # Safety
///
/// 1. `memory` came from [`alloc`] or [`alloc_zeroed`] with the same `layout` and was not given
///    back before.
/// 2. No code uses it afterwards.
#[track_caller]
pub unsafe fn dealloc(memory: NonNull<u8>, layout: Layout) {
    // SAFETY: the memory was allocated with this layout (1), and no code uses it afterwards (2).
    unsafe { imp::dealloc(memory.as_ptr(), layout) }
}

/// Gives the whole pages within `bytes` bytes from `memory` back to the system, if it accepts them;
/// they read as zero when touched again. The memory stays allocated.
///
/// Complexity: a system call, and about 50 ns per page that was in use. Does nothing on systems
/// other than Linux.
///
/// # Safety
///
/// 1. The memory came from [`alloc`], [`alloc_zeroed`], [`map_zeroed`] or [`reserve`] (private
///    anonymous memory).
/// 2. No other code uses it, and its owner accepts both zeros and the former contents.
pub unsafe fn discard(memory: *mut u8, bytes: usize) {
    #[cfg(target_os = "linux")]
    if let Some((start, bytes)) = whole_pages(memory.addr(), bytes, page_bytes()) {
        let first = memory.with_addr(start).cast();
        // If the system refuses (pages of another size), the memory stays as it was.
        // SAFETY: the caller guarantees 1 and 2; the range lies within the memory.
        unsafe { libc::madvise(first, bytes, libc::MADV_DONTNEED) };
    }
    #[cfg(not(target_os = "linux"))]
    let _ = (memory, bytes);
}

/// Asks the system to map the pages of `bytes` bytes from `memory` now, huge ones where those were
/// requested, so that the first access need not wait for them. The contents do not change, even if
/// other threads use the pages meanwhile.
///
/// Complexity: a system call, and the time to clear the pages that were not mapped. Does nothing on
/// systems other than Linux, on Linux before 5.14, if there is no memory, and from the first
/// address on that is not mapped.
pub fn populate(memory: *const u8, bytes: usize) {
    #[cfg(target_os = "linux")]
    {
        let page = page_bytes();
        let start = memory.with_addr(memory.addr() & !(page - 1));
        let bytes = (memory.addr() - start.addr() + bytes).next_multiple_of(page);
        // SAFETY: the call changes no byte of any memory.
        unsafe { libc::madvise(start.cast_mut().cast(), bytes, libc::MADV_POPULATE_WRITE) };
    }
    #[cfg(not(target_os = "linux"))]
    let _ = (memory, bytes);
}

/// The whole pages of `page` bytes within `bytes` bytes from the address `from`: their start and
/// their length in bytes.
#[cfg(target_os = "linux")]
fn whole_pages(from: usize, bytes: usize, page: usize) -> Option<(usize, usize)> {
    let start = from.next_multiple_of(page);
    let end = (from + bytes) & !(page - 1);
    (start < end).then(|| (start, end - start))
}

/// Maps memory from the system, every byte zero and no page resident before it is touched; `None`
/// if there is none, and on systems other than Linux.
///
/// For large memory that is filled gradually, and not all at random: an allocator that has kept
/// such memory must zero all of it at once, and the caller waits for that. From [`HUGE_PAGE`] on,
/// the memory begins at a multiple of [`HUGE_PAGE`], and huge pages are requested (`madvise`),
/// which the system may or may not provide: they mean fewer page faults and fewer TLB misses.
///
/// Complexity: some system calls. Give the memory back with [`unmap`].
pub fn map_zeroed(bytes: usize) -> Option<NonNull<u8>> {
    #[cfg(target_os = "linux")]
    let memory = map(bytes, 0)?;
    #[cfg(target_os = "linux")]
    if bytes >= HUGE_PAGE {
        advise_huge(memory, bytes);
    }
    #[cfg(not(target_os = "linux"))]
    let memory: NonNull<u8> = None?;
    // Relaxed: a sum that publishes nothing.
    MAPPED.fetch_add(bytes, Relaxed);
    Some(memory)
}

/// Reserves a range of addresses for far more memory than will be used: no memory is set aside for
/// it, and every page reads as zero until it is touched.
///
/// `None` if the system has no such range, or forbids overcommitting memory, and on systems other
/// than Linux.
///
/// The range begins at a multiple of [`HUGE_PAGE`]. The caller must count the memory it touches;
/// [`discard`] gives pages back, [`release`] the whole range.
///
/// Complexity: some system calls.
pub fn reserve(bytes: usize) -> Option<NonNull<u8>> {
    #[cfg(target_os = "linux")]
    return map(bytes.max(HUGE_PAGE), libc::MAP_NORESERVE);
    #[cfg(not(target_os = "linux"))]
    {
        let _ = bytes;
        None
    }
}

/// Requests huge pages (`madvise`) for the first `bytes` of a range from [`reserve`].
///
/// The system may or may not provide them. Touching a byte then makes 2 MiB resident, so this pays
/// only if all of that memory will be used.
///
/// # Safety
///
/// 1. `memory` came from [`reserve`], with no fewer bytes, and was not given back.
pub unsafe fn prefer_huge(memory: NonNull<u8>, bytes: usize) {
    #[cfg(target_os = "linux")]
    advise_huge(memory, bytes.next_multiple_of(page_bytes()));
    #[cfg(not(target_os = "linux"))]
    let _ = (memory, bytes);
}

/// Requests small pages (`madvise`) for `bytes` bytes from `memory`, which is useful before they
/// are touched: the first access to a huge page waits until all of it is cleared.
///
/// Complexity: a system call. Does nothing on systems other than Linux.
///
/// # Safety
///
/// 1. `memory` came from [`map_zeroed`] or [`reserve`], with no fewer bytes, and was not given
///    back.
pub unsafe fn prefer_small(memory: NonNull<u8>, bytes: usize) {
    #[cfg(target_os = "linux")]
    {
        let bytes = bytes.next_multiple_of(page_bytes());
        // If the system refuses (it has no huge pages), the pages are small in any case.
        // SAFETY: the call changes no byte of any memory, and the caller guarantees 1.
        unsafe { libc::madvise(memory.as_ptr().cast(), bytes, libc::MADV_NOHUGEPAGE) };
    }
    #[cfg(not(target_os = "linux"))]
    let _ = (memory, bytes);
}

/// Gives a range of addresses and its contents back to the system.
///
/// # Safety
///
/// 1. `memory` came from [`reserve`] with the same number of bytes and was not given back before.
/// 2. No code uses it afterwards.
pub unsafe fn release(memory: NonNull<u8>, bytes: usize) {
    #[cfg(target_os = "linux")]
    // SAFETY: `reserve` has mapped these bytes (1), and no code uses them afterwards (2).
    unsafe {
        let bytes = bytes.max(HUGE_PAGE).next_multiple_of(page_bytes());
        libc::munmap(memory.as_ptr().cast(), bytes);
    }
    #[cfg(not(target_os = "linux"))]
    let _ = (memory, bytes);
}

#[cfg(target_os = "linux")]
fn advise_huge(memory: NonNull<u8>, bytes: usize) {
    // If the system refuses, small pages remain.
    // SAFETY: the call changes no byte of any memory; it fails where nothing is mapped.
    unsafe { libc::madvise(memory.as_ptr().cast(), bytes, libc::MADV_HUGEPAGE) };
}

#[cfg(target_os = "linux")]
fn map(bytes: usize, flags: libc::c_int) -> Option<NonNull<u8>> {
    let page = page_bytes();
    let align = if bytes < HUGE_PAGE {
        page
    } else {
        HUGE_PAGE.max(page)
    };
    let bytes = bytes.checked_next_multiple_of(page)?;
    let room = bytes.checked_add(align - page)?;
    let access = libc::PROT_READ | libc::PROT_WRITE;
    let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | flags;
    // SAFETY: a new mapping at an address that the system chooses touches no existing memory.
    let first = unsafe { libc::mmap(std::ptr::null_mut(), room, access, kind, -1, 0) };
    if first == libc::MAP_FAILED {
        return None;
    }
    let before = first.addr().next_multiple_of(align) - first.addr();
    let memory = first.wrapping_byte_add(before);
    let behind = (memory.wrapping_byte_add(bytes), room - before - bytes);
    for (from, bytes) in [(first, before), behind] {
        if bytes > 0 {
            // SAFETY: a part of the new mapping that no code will use.
            unsafe { libc::munmap(from, bytes) };
        }
    }
    NonNull::new(memory.cast())
}

/// Gives memory back to the system.
///
/// # Safety
///
/// 1. `memory` came from [`map_zeroed`] with the same number of bytes and was not given back
///    before.
/// 2. No code uses it afterwards.
pub unsafe fn unmap(memory: NonNull<u8>, bytes: usize) {
    #[cfg(target_os = "linux")]
    {
        // SAFETY: `map_zeroed` has mapped these bytes (1), and no code uses them afterwards (2).
        unsafe { libc::munmap(memory.as_ptr().cast(), bytes.next_multiple_of(page_bytes())) };
        // Relaxed: a sum that publishes nothing.
        MAPPED.fetch_sub(bytes, Relaxed);
    }
    #[cfg(not(target_os = "linux"))]
    let _ = (memory, bytes);
}

/// Bytes of [`map_zeroed`] that were not given back yet; the global allocator does not count them.
pub fn mapped_bytes() -> usize {
    // Relaxed: a sum that publishes nothing.
    MAPPED.load(Relaxed)
}

// Uses `std`: loom and shuttle need not see it.
static MAPPED: AtomicUsize = AtomicUsize::new(0);

#[cfg(corewise_loom)]
use loom::alloc as imp;
#[cfg(not(corewise_loom))]
use std::alloc as imp;

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn only_whole_pages_are_given_back_whatever_their_size() {
        for page in [4 << 10, 16 << 10, 64 << 10] {
            let base = 1 << 30;
            assert_eq!(whole_pages(base, page - 1, page), None);
            assert_eq!(whole_pages(base + 1, 2 * page - 2, page), None);
            assert_eq!(whole_pages(base, page, page), Some((base, page)));
            for (before, bytes) in [(0, 5 * page), (1, 5 * page), (page - 1, 3 * page + 7)] {
                let (start, whole) = whole_pages(base + before, bytes, page).expect("some");
                assert_eq!((start % page, whole % page), (0, 0));
                assert!(start >= base + before && start < base + before + page);
                let end = base + before + bytes;
                assert!(start + whole <= end && start + whole + page > end);
            }
        }
    }

    #[test]
    fn the_page_size_is_the_systems() {
        assert!(page_bytes().is_power_of_two());
        assert!(page_bytes() >= 4096);
    }
}
