//! What a sorted set says about its memory is what the allocator was asked for. The allocator
//! counts for the whole process, so this test has one to itself.
#![cfg(not(any(corewise_loom, corewise_shuttle)))]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use corewise_nr::SortedSet;
use corewise_nr::sorted_set::{Bounds, Direction};
use corewise_testkit::random::{Random, fewer};

thread_local! {
    /// Bytes of this thread; tests of one program run on threads of their own.
    static BYTES: Cell<isize> = const { Cell::new(0) };
    /// The most bytes that were copied by one reallocation.
    static COPIED: Cell<usize> = const { Cell::new(0) };
}

struct Counting;

fn count(bytes: isize) {
    // A thread that ends frees its locals first, and then what they counted.
    let _ = BYTES.try_with(|total| total.set(total.get() + bytes));
}

// SAFETY: every request is passed on to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: the caller's layout is valid.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: the caller's layout is valid.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(-(layout.size() as isize));
        // SAFETY: the caller's pointer is one that `alloc` of this allocator, so of the system's,
        // returned for this layout.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(size as isize - layout.size() as isize);
        let _ = COPIED.try_with(|most| most.set(most.get().max(layout.size().min(size))));
        // SAFETY: the caller's pointer is one that `alloc` of this allocator, so of the system's,
        // returned for this layout, and the new size is valid for its alignment.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn allocated() -> isize {
    BYTES.with(Cell::get)
}

/// Members of 0 to 80 bytes, and some that have a chunk to themselves.
fn member(number: u64) -> Vec<u8> {
    let mut member = number.to_string().into_bytes();
    let length = if number.is_multiple_of(997) {
        20_000
    } else {
        number % 81
    };
    member.resize(member.len().max(length as usize), b'-');
    member
}

/// Grows, changes, shrinks to nothing; the sum is checked after every operation.
#[test]
fn memory_is_what_the_allocator_was_asked_for() {
    let mut random = Random::from_seed(11);
    let before = allocated();
    let mut set = SortedSet::new();
    assert_eq!(
        (allocated(), set.memory()),
        (before, 0),
        "an empty set has no memory"
    );
    let numbers = fewer(15_000);
    for growth in [95, 50, 10, 80, 0] {
        for _ in 0..2 * numbers {
            let member = member(random.below(numbers));
            let base = allocated() - set.memory() as isize;
            if random.below(100) < growth {
                let score = random.below(1 << 40) as f64 / 1e3;
                set.insert(&member, score).expect("a number, and room");
            } else if random.below(20) == 0 {
                drop(set.pop(Direction::Descending));
            } else {
                set.remove(&member);
            }
            assert_eq!(allocated() - set.memory() as isize, base);
        }
        set.assert_valid();
        let with_clone = allocated();
        let clone = set.clone();
        assert_eq!(allocated() - with_clone, clone.memory() as isize);
        assert!(clone.memory() <= set.memory() && clone == set);
    }
    set.remove_range(Bounds::Rank(10, -10));
    set.remove_range(Bounds::ALL);
    assert_eq!(set.memory(), 0);
    drop(set);
    assert_eq!(allocated(), before, "memory is lost");
}

/// Guarantee 5: whatever the size, no operation copies more than a chunk or a list of chunks.
#[test]
fn no_operation_copies_what_grows_with_the_set() {
    let count = fewer(100_000);
    let mut set = SortedSet::new();
    let most_before = COPIED.replace(0);
    for number in 0..count {
        let score = (number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20) as f64;
        set.insert(&number.to_be_bytes(), score)
            .expect("a number, and room");
    }
    for number in 0..count {
        set.remove(&number.to_be_bytes());
    }
    let copied = COPIED.replace(most_before);
    // A stress build has a chunk of 256 bytes for each 14 records, and 32 bytes in a list for each.
    let lists = count as usize * if cfg!(corewise_stress) { 50 } else { 1 } / 20;
    assert!(copied <= (64 << 10) + lists, "{copied} bytes were copied");
}

/// A set that is dropped in steps frees a bounded part in each.
#[test]
fn a_set_is_dropped_in_steps() {
    let before = allocated();
    let mut set = SortedSet::new();
    for number in 0..fewer(60_000) {
        set.insert(&member(number), number as f64)
            .expect("a number, and room");
    }
    let mut left = allocated();
    assert!(set.drop_some(0) && set.is_empty());
    set.insert(b"new", 1.0).expect("a number, and room");
    let mut steps = 0;
    while set.drop_some(4) {
        assert_eq!(allocated() - before, set.memory() as isize);
        assert!(left - allocated() < 5 * (64 << 10), "a step frees too much");
        left = allocated();
        steps += 1;
    }
    assert!(steps > 4);
    set.assert_valid();
    assert_eq!(set.score(b"new"), Some(1.0));
    assert!(set.drop_some(0));
    while set.drop_some(1) {}
    assert!(set.is_empty() && !set.drop_some(1));
    assert_eq!((set.memory(), allocated()), (0, before));
}
