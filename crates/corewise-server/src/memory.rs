//! Items' memory in the engine `locked`: mimalloc, asked for the true size of what it gave. And what the
//! allocator may do with its pages where it does not have the items.

use corewise_cache::alloc::{ITEM_ALIGN, ItemAllocator};
use mimalloc::MiMalloc;
use rustix::mm::{Advice, madvise};
use std::alloc::{GlobalAlloc, Layout};
use std::ptr::NonNull;

/// mimalloc for items, whatever the process's global allocator is.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ItemHeap;

fn layout(size: usize) -> Option<Layout> {
    Layout::from_size_align(size.max(1), ITEM_ALIGN).ok()
}

// SAFETY: mimalloc returns memory of at least the layout's size and alignment,
// exclusively, from any thread.
unsafe impl ItemAllocator for ItemHeap {
    #[inline]
    fn alloc(&self, size: usize) -> Option<(NonNull<u8>, usize)> {
        // SAFETY: the layout's size is not zero; `usable_size` gets a live
        // pointer from the same allocator.
        unsafe {
            let ptr = NonNull::new(MiMalloc.alloc(layout(size)?))?;
            Some((ptr, MiMalloc.usable_size(ptr.as_ptr())))
        }
    }

    #[inline]
    unsafe fn dealloc(&self, ptr: NonNull<u8>, size: usize) {
        if let Some(layout) = layout(size) {
            // SAFETY: by contract `ptr` came from `alloc(size)`.
            unsafe { MiMalloc.dealloc(ptr.as_ptr(), layout) }
        }
    }

    fn name(&self) -> &'static str {
        "mimalloc"
    }
}

/// Asks the system for small pages where the allocator has its memory now.
///
/// mimalloc asks for huge pages. Where the allocator has nothing but connections' buffers and the like,
/// here and there, each then holds up to 2 MiB: some 15 MiB for an idle server, beside the memory limit.
/// Nothing happens where there is no `/proc`.
pub(crate) fn prefer_small_pages() {
    let probe = Box::new(0u64);
    let address = std::ptr::from_ref(&*probe).addr();
    let Ok(maps) = std::fs::read_to_string("/proc/self/maps") else {
        return;
    };
    let Some(range) = maps
        .lines()
        .filter_map(range_of)
        .find(|r| r.contains(&address))
    else {
        return;
    };
    let start = std::ptr::with_exposed_provenance_mut::<std::ffi::c_void>(range.start);
    // A refusal leaves pages as they are.
    // SAFETY: advice on a mapping that is in use: which pages it has changes nothing of what it holds.
    let _ = unsafe { madvise(start, range.len(), Advice::LinuxNoHugepage) };
}

/// The addresses of a line of `/proc/self/maps`.
fn range_of(line: &str) -> Option<std::ops::Range<usize>> {
    let (start, rest) = line.split_once('-')?;
    let end = rest.split(' ').next()?;
    let hex = |text| usize::from_str_radix(text, 16).ok();
    Some(hex(start)?..hex(end)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_the_map_have_ranges() {
        let line = "7f8fe00000-7f90000000 rw-p 00000000 00:00 0 ";
        assert_eq!(range_of(line), Some(0x7f_8fe0_0000..0x7f_9000_0000));
        assert_eq!(range_of("nothing"), None);
    }

    #[test]
    fn asking_for_small_pages_changes_nothing_that_is_stored() {
        let before: Vec<u64> = (0..100_000).collect();
        prefer_small_pages();
        assert!(
            before
                .iter()
                .enumerate()
                .all(|(n, value)| n as u64 == *value)
        );
    }
}
