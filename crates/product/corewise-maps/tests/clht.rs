//! Guarantees of both variants of `clht` beyond those of every map of words (`tests/words.rs`):
//! mainly about memory.
#![cfg(not(any(corewise_loom, corewise_shuttle)))]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use corewise_maps::clht::LockBasedTable;
use corewise_maps::copy_map::{Builder, CopyMap, Full, Limit, Table, TryInsertError, Unlimited};
use corewise_maps::relativistic::ResizeError;
use corewise_maps_lab::clht_lock_free::LockFreeTable;
use corewise_rcu::Domain;

use corewise_testkit::for_every;
use corewise_testkit::hashing::Hashing;

thread_local! {
    /// Whether bucket allocations fail in this thread, and the bytes that it has allocated and not
    /// freed.
    static REFUSED: Cell<bool> = const { Cell::new(false) };
    static BYTES: Cell<isize> = const { Cell::new(0) };
}

/// The system's allocator, which refuses buckets (memory with an alignment of 64) while `REFUSED`
/// is set.
struct RefusingAllocator;

#[global_allocator]
static ALLOCATOR: RefusingAllocator = RefusingAllocator;

// SAFETY: forwards to the system's allocator, or returns null.
unsafe impl GlobalAlloc for RefusingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if layout.align() == 64 {
            if REFUSED.get() {
                return std::ptr::null_mut();
            }
            BYTES.set(BYTES.get() + layout.size().cast_signed());
        }
        // SAFETY: the caller upholds the contract.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        if layout.align() == 64 {
            BYTES.set(BYTES.get() - layout.size().cast_signed());
        }
        // SAFETY: the caller upholds the contract.
        unsafe { System.dealloc(memory, layout) }
    }
}

fn without_memory<R>(run: impl FnOnce() -> R) -> R {
    REFUSED.set(true);
    let answer = run();
    REFUSED.set(false);
    answer
}

for_every! {
    lock_based: LockBasedTable<u64, u64>,
    lock_free: LockFreeTable<u64, u64>,
    => {
        a_full_table_reports_it_and_loses_nothing
        an_allocator_without_memory_loses_nothing
        a_table_that_may_not_grow_gets_longer_chains
        a_map_with_a_limit_of_bytes_fills_it
        all_memory_comes_back
        tables_are_kept_while_a_handle_is
        a_map_is_updated_under_a_handle_that_stays
        #[should_panic = "another domain"]
        a_section_of_another_domain_is_refused
    }
}

for_every! {
    lock_based_pointers: LockBasedTable<*const String, &'static String>,
    lock_free_pointers: LockFreeTable<*const String, &'static String>,
    => {
        pointers_are_keys_and_values
    }
}

/// A table of numbers.
trait Numbers: Table<Key = u64, Value = u64> {}

impl<T: Table<Key = u64, Value = u64>> Numbers for T {}

type Map<T, L> = CopyMap<T, Hashing, L>;

fn builder<T: Numbers>(hashing: Hashing) -> Builder<T, Hashing> {
    let builder = CopyMap::<T>::builder().domain(Domain::new());
    builder.hasher(hashing)
}

fn fill<T: Numbers, L: Limit>(map: &Map<T, L>, keys: std::ops::Range<u64>) {
    keys.for_each(|key| assert_eq!(map.pin().try_insert(key, !key), Ok(())));
}

fn has<T: Numbers, L>(map: &Map<T, L>, keys: std::ops::Range<u64>) -> bool {
    let mut keys = keys;
    keys.all(|key| map.pin().get(&key) == Some(!key))
}

fn a_full_table_reports_it_and_loses_nothing<T: Numbers>() {
    let limits = builder::<T>(Hashing::Own).buckets(4).max_buckets(4);
    let map = limits.max_bytes(64 * 6).build();
    // Two buckets may overflow: those of numbers that end in 0 and in 1.
    for ending in 0..2 {
        (0..6).for_each(|n| assert_eq!(map.pin().insert(n * 4 + ending, n), Ok(None)));
    }
    (0..3).for_each(|n| assert_eq!(map.pin().insert(n * 4 + 2, n), Ok(None)));
    let before: Vec<_> = map.pin().iter().collect();
    let map = map.pin();
    for full in [24, 25, 14] {
        assert_eq!(map.insert(full, 0), Err(Full));
        assert_eq!(map.try_insert(full, 0), Err(TryInsertError::Full));
        assert_eq!(map.get(&full), None);
    }
    assert_eq!(map.iter().collect::<Vec<_>>(), before);
    // Operations that need no memory still work.
    assert_eq!(map.insert(3, 3), Ok(None));
    assert_eq!(map.insert(20, 7), Ok(Some(5)));
    assert_eq!(map.try_insert(20, 8), Err(TryInsertError::Occupied(7)));
    assert_eq!(map.update(&20, |value| value + 1), Some(8));
    assert_eq!(map.remove(&4), Some(1));
    assert_eq!(map.insert(24, 6), Ok(None));
    assert_eq!(map.insert(28, 7), Err(Full));
}

fn an_allocator_without_memory_loses_nothing<T: Numbers>() {
    let map = builder::<T>(Hashing::Own)
        .buckets(1)
        .automatic_resize(false);
    let map = map.build();
    fill(&map, 0..3);
    without_memory(|| {
        assert_eq!(map.pin().try_insert(3, 0), Err(TryInsertError::Full));
        assert_eq!(map.resize_to(2), Err(ResizeError::NoMemory));
    });
    assert_eq!((map.buckets(), map.len(), map.bytes()), (1, 3, 64));
    assert!(has(&map, 0..3));
    assert_eq!(map.pin().insert(3, !3), None);
    map.resize_to(2).unwrap();
    assert!(has(&map, 0..4));
}

fn a_table_that_may_not_grow_gets_longer_chains<T: Numbers>() {
    Hashing::ALL.into_iter().for_each(longer_chains::<T>);
}

fn longer_chains<T: Numbers>(hashing: Hashing) {
    let map = builder::<T>(hashing).buckets(3).max_buckets(7).build();
    fill(&map, 0..1_000);
    assert_eq!(map.buckets(), 4);
    assert!(has(&map, 0..1_000));
    assert_eq!(map.resize_to(8), Err(ResizeError::NoMemory));
    assert_eq!(map.resize_to(0), Err(ResizeError::NoBuckets));
    assert_eq!(map.resize_to(usize::MAX), Err(ResizeError::NoMemory));
    assert!(has(&map, 0..1_000));
}

/// A growth does not begin if its memory would exceed the limit.
fn a_map_with_a_limit_of_bytes_fills_it<T: Numbers>() {
    const LIMIT: usize = 64 << 10;
    let map = builder::<T>(Hashing::Mixed).max_bytes(LIMIT).build();
    let fits = |key: &u64| map.pin().insert(*key, !key) != Err(Full);
    let entries = (0..).take_while(fits).count() as u64;
    assert!(map.bytes() <= LIMIT);
    assert!(has(&map, 0..entries));
    assert_eq!(map.len() as u64, entries);
    // Either two tables at a time take half of the limit each, or overflow takes most of it.
    assert!(entries as usize > LIMIT / 64, "{entries}");
}

fn all_memory_comes_back<T: Numbers>() {
    let before = BYTES.get();
    let map = builder::<T>(Hashing::Mixed).buckets(1).build();
    for round in 0..3 {
        fill(&map, 0..5_000);
        map.resize_to(1 << (8 + round)).unwrap();
        assert!(has(&map, 0..5_000));
        assert_eq!(BYTES.get() - before, map.bytes().cast_signed());
        (0..5_000).for_each(|key| assert_eq!(map.pin().remove(&key), Some(!key)));
    }
    map.resize_to(1).unwrap();
    assert_eq!(map.bytes(), 64);
    // Dropped in the middle of a resize, while a retired table waits for a reader.
    let domain = map.domain().clone();
    let held = domain.pin();
    fill(&map, 0..700);
    assert!(map.bytes() > 64);
    drop(map);
    drop(held);
    assert_eq!(BYTES.get(), before);
}

fn tables_are_kept_while_a_handle_is<T: Numbers>() {
    let map = builder::<T>(Hashing::Own)
        .buckets(1)
        .automatic_resize(false);
    let map = map.build();
    fill(&map, 0..3);
    let held = map.pin();
    assert_eq!(held.get(&1), Some(!1));
    // Does not wait for readers: the caller is one.
    map.resize_to(4).unwrap();
    assert_eq!(map.bytes(), 64 * 5);
    assert_eq!(held.get(&1), Some(!1));
    assert_eq!(held.iter().count(), 3);
    drop(held);
    map.settle();
    assert_eq!(map.bytes(), 64 * 4);
}

fn a_map_is_updated_under_a_handle_that_stays<T: Numbers>() {
    for hashing in [Hashing::Mixed, Hashing::Own] {
        update_under_a_handle::<T>(&builder::<T>(hashing).build());
    }
}

fn update_under_a_handle<T: Numbers>(map: &Map<T, Unlimited>) {
    let held = map.pin();
    for key in 0..20_000u64 {
        assert_eq!(held.insert(key, !key), None);
    }
    assert!((0..20_000).all(|key| held.get(&key) == Some(!key)));
    assert!(map.buckets() > 1_000);
}

fn a_section_of_another_domain_is_refused<T: Numbers>() {
    let map = builder::<T>(Hashing::Mixed).build();
    map.within(&corewise_rcu::pin()).get(&1);
}

fn pointers_are_keys_and_values<T>()
where
    T: Table<Key = *const String, Value = &'static String>,
{
    static NAMES: [String; 2] = [String::new(), String::new()];
    let map = CopyMap::<T>::new();
    for name in &NAMES {
        assert!(map.pin().insert(&raw const *name, name).is_none());
    }
    let found = map.pin().get(&(&raw const NAMES[1])).unwrap();
    assert!(std::ptr::eq(found, &NAMES[1]));
    assert_eq!(map.len(), 2);
}

/// A limit that only the lock-free variant has.
#[test]
fn a_lock_free_chain_has_a_last_bucket() {
    const MOST: u64 = 3 * (1 + 21_844);
    let map = builder::<LockFreeTable<u64, u64>>(Hashing::Own).buckets(1 << 15);
    let map = map.automatic_resize(false).build();
    fill(&map, 0..MOST + 1);
    assert_eq!(map.resize_to(1), Err(ResizeError::NoMemory));
    assert!(has(&map, 0..MOST + 1));
    assert_eq!(map.pin().remove(&7), Some(!7));
    map.resize_to(1).unwrap();
    let map = map.pin();
    assert_eq!(map.try_insert(7, 0), Err(TryInsertError::Full));
    assert_eq!(map.insert(MOST, 0), Some(!MOST));
    assert_eq!(map.remove(&MOST), Some(0));
    assert_eq!(map.insert(7, !7), None);
    assert_eq!(map.remove(&6), Some(!6));
    assert_eq!(map.get(&7), Some(!7));
    assert_eq!(map.iter().count() as u64, MOST - 1);
}
