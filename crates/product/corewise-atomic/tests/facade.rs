//! The façade in the normal build.

use std::time::Duration;

use corewise_atomic::alloc::{self, Layout, MemoryNode};
use corewise_atomic::lock::Mutex;
use corewise_atomic::sync::Arc;
use corewise_atomic::sync::atomic::{AtomicPtr, AtomicU64, Ordering::Relaxed};
use corewise_atomic::{CachePadded, Slots, barrier, thread, time};

#[test]
fn a_panic_under_the_lock_poisons_nothing() {
    let total = Arc::new(Mutex::new(1));
    let copy = total.clone();
    let panicked = thread::spawn(move || {
        let _guard = copy.lock();
        panic!("on purpose");
    });
    assert!(panicked.join().is_err());
    assert_eq!(*total.lock(), 1);
    assert_eq!(total.try_lock().map(|guard| *guard), Some(1));
}

#[test]
fn a_held_lock_cannot_be_tried() {
    let lock = Mutex::new(());
    let guard = lock.lock();
    assert!(lock.try_lock().is_none());
    drop(guard);
    assert!(lock.try_lock().is_some());
}

#[test]
fn zeroed_slots_are_zero_and_writable() {
    let numbers = Slots::<AtomicU64>::zeroed(10_000);
    assert!(numbers.iter().all(|number| number.load(Relaxed) == 0));
    numbers[9_999].store(3, Relaxed);
    assert_eq!(numbers[9_999].load(Relaxed), 3);
    assert!(Slots::<AtomicPtr<u8>>::zeroed(2)[1].load(Relaxed).is_null());
    assert!(Slots::<AtomicU64>::zeroed(0).is_empty());
}

/// Held by tests that map memory: the count of mapped bytes is global to the process.
static MAPPING: std::sync::Mutex<()> = std::sync::Mutex::new(());

#[test]
#[cfg(target_os = "linux")]
fn large_slots_come_from_the_system_and_go_back() {
    let _alone = MAPPING.lock();
    let before = alloc::mapped_bytes();
    for len in [1 << 17, (1 << 17) + 1, 1 << 18, (1 << 20) + 3] {
        let mut numbers = Slots::<AtomicU64>::zeroed(len);
        assert_eq!(alloc::mapped_bytes() - before, 8 * len);
        if len >= 1 << 18 {
            assert_eq!(numbers.as_ptr() as usize % alloc::HUGE_PAGE, 0);
        }
        for (n, number) in numbers.iter().enumerate() {
            assert_eq!(number.swap(n as u64, Relaxed), 0);
        }
        numbers.discard(0..len);
        assert_eq!(numbers[len / 2].load(Relaxed), 0);
        drop(numbers);
        assert_eq!(alloc::mapped_bytes(), before);
    }
    assert!(alloc::map_zeroed(0).is_none());
    assert!(alloc::map_zeroed(usize::MAX).is_none());
    assert!(alloc::map_zeroed(1 << 60).is_none());
    assert!(Slots::<AtomicU64>::try_zeroed(1 << 57).is_none());
    assert_eq!(alloc::mapped_bytes(), before);
}

#[test]
fn a_page_that_is_put_in_place_keeps_what_is_in_it() {
    let _alone = MAPPING.lock();
    let Some(memory) = alloc::map_zeroed(2 * alloc::HUGE_PAGE) else {
        return;
    };
    for at in [0, 5_000, alloc::HUGE_PAGE + 7] {
        let byte = memory.as_ptr().wrapping_add(at);
        // SAFETY: a byte of the mapping, which only this test uses.
        unsafe { byte.write(9) };
        alloc::populate(byte, 1);
        // SAFETY: a byte of the mapping, which only this test uses.
        assert_eq!(unsafe { byte.read() }, 9);
    }
    // SAFETY: the memory comes from `map_zeroed` with the same number of bytes (1), and it is not
    // used again (2).
    unsafe { alloc::unmap(memory, 2 * alloc::HUGE_PAGE) };
    // The memory is no longer mapped.
    alloc::populate(memory.as_ptr(), 1);
}

#[test]
fn memory_is_given_zeroed_and_taken_back() {
    let layout = Layout::from_size_align(256, 64).unwrap();
    let memory = alloc::alloc_zeroed(layout, MemoryNode::Local).unwrap();
    assert_eq!(memory.as_ptr() as usize % 64, 0);
    // SAFETY: 256 zeroed bytes that only this test uses.
    let bytes = unsafe { std::slice::from_raw_parts(memory.as_ptr(), 256) };
    assert!(bytes.iter().all(|&byte| byte == 0));
    // SAFETY: the memory comes from `alloc_zeroed` with this layout (1), and `bytes` is not used
    // again (2).
    unsafe { alloc::dealloc(memory, layout) };
    let nothing = Layout::from_size_align(0, 1).unwrap();
    assert!(alloc::alloc(nothing, MemoryNode::Number(1)).is_none());
}

#[test]
fn padded_values_share_no_line() {
    assert!(align_of::<CachePadded<u8>>() >= 64);
    assert_eq!(
        size_of::<CachePadded<[u8; 129]>>() % align_of::<CachePadded<u8>>(),
        0
    );
    let mut padded = CachePadded::new(1);
    *padded += 1;
    assert_eq!(padded.into_inner(), 2);
}

#[test]
fn the_clock_goes_forward() {
    let before = time::now_ns();
    thread::sleep(Duration::from_millis(2));
    assert!(time::now_ns() - before >= 2_000_000);
}

#[test]
fn threads_carry_their_names() {
    let name = || thread::current().name().map(str::to_owned);
    let handle = thread::spawn_named("worker 3", name).unwrap();
    assert_eq!(handle.join().unwrap().as_deref(), Some("worker 3"));
}

/// Guarantee 1 of `barrier`, on the real machine.
#[test]
fn light_and_heavy_forbid_both_missing_the_other_on_this_machine() {
    barrier::prepare();
    for _ in 0..500 {
        let shared = Arc::new((AtomicU64::new(0), AtomicU64::new(0)));
        let reader = shared.clone();
        let handle = thread::spawn(move || {
            reader.0.store(1, Relaxed);
            barrier::light();
            reader.1.load(Relaxed)
        });
        shared.1.store(1, Relaxed);
        barrier::heavy();
        let seen_by_writer = shared.0.load(Relaxed);
        assert!(handle.join().unwrap() == 1 || seen_by_writer == 1);
    }
}
