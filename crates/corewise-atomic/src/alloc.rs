//! Raw memory, with a word about where it should live.
//!
//! loom reports memory taken here and never given back.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

pub use std::alloc::Layout;

/// Bytes of a huge page, on the processors with pages of 4 KiB.
pub const HUGE_PAGE: usize = 2 << 20;

/// Bytes of a page of this system, a power of two: 4 KiB on most processors, 16 or 64 KiB on some with Arm
/// or POWER. [`discard`] gives back whole pages only.
///
/// Complexity: a load; a system call the first time.
pub fn page_bytes() -> usize {
    // Not the façade's: no checker needs to see it.
    static BYTES: AtomicUsize = AtomicUsize::new(0);
    // Relaxed, both: every thread finds the same number.
    match BYTES.load(Relaxed) {
        0 => {
            let bytes = ask_page_bytes();
            BYTES.store(bytes, Relaxed);
            bytes
        }
        bytes => bytes,
    }
}

/// The page size where the system does not tell.
const USUAL_PAGE: usize = 4096;

#[cfg(unix)]
fn ask_page_bytes() -> usize {
    // SAFETY: it only asks.
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

/// Which NUMA node the memory is for.
///
/// A wish: it is recorded by the callers today and ignored by the allocator, which places pages
/// where they are first touched. So the thread that will use the memory should touch it first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Node {
    /// Wherever the caller runs.
    #[default]
    Local,
    /// The node with this number.
    Number(u32),
}

/// Memory of `layout`, not initialised; `None` when there is none, or when `layout` has no size.
///
/// Complexity: the global allocator's. Give it back with [`dealloc`].
#[track_caller]
pub fn alloc(layout: Layout, node: Node) -> Option<NonNull<u8>> {
    let _ = node;
    if layout.size() == 0 {
        return None;
    }
    // SAFETY: the layout has a size.
    NonNull::new(unsafe { imp::alloc(layout) })
}

/// As [`alloc`], with every byte zero.
#[track_caller]
pub fn alloc_zeroed(layout: Layout, node: Node) -> Option<NonNull<u8>> {
    let _ = node;
    if layout.size() == 0 {
        return None;
    }
    // SAFETY: the layout has a size.
    NonNull::new(unsafe { imp::alloc_zeroed(layout) })
}

/// Gives memory back.
///
/// # Safety
///
/// 1. `memory` came from [`alloc`] or [`alloc_zeroed`] with the same `layout` and was not given
///    back before.
/// 2. Nobody uses it any more.
#[track_caller]
pub unsafe fn dealloc(memory: NonNull<u8>, layout: Layout) {
    // SAFETY: the caller answers for 1 and 2.
    unsafe { imp::dealloc(memory.as_ptr(), layout) }
}

/// Gives the whole pages within `bytes` from `memory` on back to the system, if it takes them; they
/// read as zero when touched again. The memory stays allocated.
///
/// Complexity: a system call, and some 50 ns a page that was in use. Nothing happens on systems
/// other than Linux.
///
/// # Safety
///
/// 1. The memory came from [`alloc`], [`alloc_zeroed`], [`map_zeroed`] or [`reserve`] (private anonymous
///    memory).
/// 2. Nobody else uses it, and its owner can do with zeros or with what was there.
pub unsafe fn discard(memory: *mut u8, bytes: usize) {
    #[cfg(target_os = "linux")]
    if let Some((start, bytes)) = whole_pages(memory.addr(), bytes, page_bytes()) {
        let first = memory.with_addr(start).cast();
        // A refusal (pages of another size) leaves the memory as it was.
        // SAFETY: the caller answers for 1 and 2; the range lies within the memory.
        unsafe { libc::madvise(first, bytes, libc::MADV_DONTNEED) };
    }
    #[cfg(not(target_os = "linux"))]
    let _ = (memory, bytes);
}

/// Has the system put the page of `memory` in place, a huge one where those were asked for: whoever touches it first
/// need not wait for that. What is in it stays as it is, whoever uses it meanwhile.
///
/// Complexity: a system call, and if the page was not there the time to clear it. Nothing happens on systems other
/// than Linux, before 5.14, where there is no memory, and where `memory` is not mapped.
pub fn populate(memory: *const u8) {
    #[cfg(target_os = "linux")]
    {
        let bytes = page_bytes();
        let page = memory.with_addr(memory.addr() & !(bytes - 1));
        // SAFETY: it changes no byte of any memory.
        unsafe { libc::madvise(page.cast_mut().cast(), bytes, libc::MADV_POPULATE_WRITE) };
    }
    #[cfg(not(target_os = "linux"))]
    let _ = memory;
}

/// The whole pages of `page` bytes within `bytes` from the address `from` on: where they begin, and their
/// bytes.
#[cfg(target_os = "linux")]
fn whole_pages(from: usize, bytes: usize, page: usize) -> Option<(usize, usize)> {
    let start = from.next_multiple_of(page);
    let end = (from + bytes) & !(page - 1);
    (start < end).then(|| (start, end - start))
}

/// Memory straight from the system, every byte zero and no page in place before it is touched; `None`
/// when there is none, and on systems other than Linux.
///
/// For large memory that is filled little by little, and not all at random: an allocator that has
/// kept such memory must write zeros over all of it at once, and somebody waits for that.
/// From [`HUGE_PAGE`] on it begins at a multiple of that, and huge pages are asked for (`madvise`),
/// which the system may give or not: fewer faults, and fewer misses of the address caches.
///
/// Complexity: some system calls. Give it back with [`unmap`].
pub fn map_zeroed(bytes: usize) -> Option<NonNull<u8>> {
    #[cfg(target_os = "linux")]
    let memory = map(bytes, 0)?;
    #[cfg(target_os = "linux")]
    if bytes >= HUGE_PAGE {
        advise_huge(memory, bytes);
    }
    #[cfg(not(target_os = "linux"))]
    let memory: NonNull<u8> = None?;
    MAPPED.fetch_add(bytes, Relaxed);
    Some(memory)
}

/// A range of addresses for far more memory than will be used: nothing is set aside for it, and every
/// page reads as zero until it is touched. `None` when the system has no such range, or lets nobody
/// ask for more than there is, and on systems other than Linux.
///
/// Begins at a multiple of [`HUGE_PAGE`]. What is touched is the caller's to count; [`discard`] gives pages
/// back, [`release`] all.
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

/// Asks for huge pages (`madvise`) for the first `bytes` of what [`reserve`] gave, which the system may give
/// or not. Touching a byte then makes 2 MiB resident: so only where all of it will be used.
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

/// Gives a range of addresses back, with what is in it.
///
/// # Safety
///
/// 1. `memory` came from [`reserve`] with the same number of bytes and was not given back before.
/// 2. Nobody uses it any more.
pub unsafe fn release(memory: NonNull<u8>, bytes: usize) {
    #[cfg(target_os = "linux")]
    // SAFETY: the caller answers for 1 and 2.
    unsafe {
        let bytes = bytes.max(HUGE_PAGE).next_multiple_of(page_bytes());
        libc::munmap(memory.as_ptr().cast(), bytes);
    }
    #[cfg(not(target_os = "linux"))]
    let _ = (memory, bytes);
}

#[cfg(target_os = "linux")]
fn advise_huge(memory: NonNull<u8>, bytes: usize) {
    // A refusal leaves small pages.
    // SAFETY: advice on a mapping of the caller's.
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
    // SAFETY: a new mapping wherever there is room touches nothing that exists.
    let first = unsafe { libc::mmap(std::ptr::null_mut(), room, access, kind, -1, 0) };
    if first == libc::MAP_FAILED {
        return None;
    }
    let before = first.addr().next_multiple_of(align) - first.addr();
    let memory = first.wrapping_byte_add(before);
    let unmap = |from: *mut libc::c_void, bytes| {
        if bytes > 0 {
            // SAFETY: a part of the new mapping that nobody will use.
            unsafe { libc::munmap(from, bytes) };
        }
    };
    unmap(first, before);
    unmap(memory.wrapping_byte_add(bytes), room - before - bytes);
    NonNull::new(memory.cast())
}

/// Gives memory back.
///
/// # Safety
///
/// 1. `memory` came from [`map_zeroed`] with the same number of bytes and was not given back before.
/// 2. Nobody uses it any more.
pub unsafe fn unmap(memory: NonNull<u8>, bytes: usize) {
    #[cfg(target_os = "linux")]
    {
        // SAFETY: the caller answers for 1 and 2.
        unsafe { libc::munmap(memory.as_ptr().cast(), bytes.next_multiple_of(page_bytes())) };
        MAPPED.fetch_sub(bytes, Relaxed);
    }
    #[cfg(not(target_os = "linux"))]
    let _ = (memory, bytes);
}

/// Bytes of [`map_zeroed`] that were not given back yet: what an allocator's own count lacks.
pub fn mapped_bytes() -> usize {
    // Relaxed: a number that publishes nothing, here and above.
    MAPPED.load(Relaxed)
}

// Not the façade's: no checker needs to see it.
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
