//! Returning memory: when a map is empty again, it keeps almost none of the memory that it had.
#![cfg(not(any(corewise_loom, corewise_shuttle)))]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use corewise_maps::RelativisticMap;

/// The system's allocator, which counts the bytes that it has allocated.
struct Counting(AtomicUsize);

#[global_allocator]
static ALLOCATOR: Counting = Counting(AtomicUsize::new(0));

// SAFETY: forwards to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        self.0.fetch_add(layout.size(), Relaxed);
        // SAFETY: the caller upholds the contract.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        self.0.fetch_sub(layout.size(), Relaxed);
        // SAFETY: the caller upholds the contract.
        unsafe { System.dealloc(memory, layout) }
    }
}

/// Bytes from the allocator, and those mapped directly from the system.
fn bytes() -> usize {
    ALLOCATOR.0.load(Relaxed) + corewise_atomic::alloc::mapped_bytes()
}

fn entries() -> u64 {
    let fewer = cfg!(corewise_stress) || std::env::var_os("COREWISE_FEWER").is_some();
    if fewer { 20_000 } else { 600_000 }
}

/// Bytes that may remain: slabs and magazines of two threads. (\[ATC11\] §4.2 shrinks tables to
/// save memory.)
const LEFT_OVER: usize = 5 << 20;

fn fill(map: &RelativisticMap<u64, u64>) {
    std::thread::scope(|scope| {
        for half in 0..2 {
            scope.spawn(move || {
                for key in (half..entries()).step_by(2) {
                    map.pin().insert(key, key);
                }
            });
        }
    });
    assert_eq!(map.len() as u64, entries());
}

#[test]
fn an_emptied_map_frees_nearly_all_of_its_memory() {
    let before = bytes();
    let empty = RelativisticMap::<u64, u64>::new();
    let of_an_empty_one = bytes() - before;
    let map = RelativisticMap::new();
    for round in 0..2 {
        fill(&map);
        let full = bytes() - before;
        assert!(full as u64 > entries() * 24, "{full} bytes when full");
        map.pin().clear();
        map.shrink_to_fit();
        map.settle().unwrap();
        let left = bytes() - before - 2 * of_an_empty_one;
        assert!(
            left <= LEFT_OVER,
            "{left} bytes are left after round {round}"
        );
        assert!(map.is_empty());
    }
    drop((map, empty));
}
