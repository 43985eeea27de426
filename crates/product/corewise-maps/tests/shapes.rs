//! Contents of unusual sizes and alignments, and capacities beyond any memory.

use std::fmt::Debug;
use std::hash::Hash;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use corewise_maps::clht::LockBased;
use corewise_maps::copy_map::{CopyMap, Table, TryInsertError};
use corewise_maps::cuckoo::CuckooMap;
use corewise_maps::relativistic::{RelativisticMap, ResizeError};
use corewise_maps_lab::clht_lock_free::LockFree;
use corewise_maps_lab::hopscotch::HopscotchMap;

/// All operations on pairs of distinct keys, with resizes between them.
fn keeps_pairs<T: Table<Key: Debug, Value: PartialEq + Debug>>(
    map: &CopyMap<T>,
    pairs: &[(T::Key, T::Value)],
) {
    let are_there = || {
        let map = map.pin();
        for (key, value) in pairs {
            assert_eq!((map.get(key), map.contains_key(key)), (Some(*value), true));
            let mut values = [None; 3];
            map.get_many(&[*key; 3], &mut values);
            assert_eq!(values, [Some(*value); 3]);
        }
        let found = |pair: (T::Key, T::Value)| pairs.contains(&pair);
        assert!(map.iter().all(found));
        assert_eq!(map.iter().count(), pairs.len());
    };
    for (key, value) in pairs.iter().copied() {
        let map = map.pin();
        assert_eq!(map.get(&key), None);
        assert_eq!(map.insert(key, value), None);
        let occupied = Err(TryInsertError::Occupied(value));
        assert_eq!(map.try_insert(key, value), occupied);
        assert_eq!(map.insert(key, value), Some(value));
    }
    are_there();
    for buckets in [1, 256, 2, 64] {
        map.resize_to(buckets).unwrap();
        are_there();
    }
    assert_eq!(map.len(), pairs.len());
    for (key, value) in pairs.iter().copied() {
        let map = map.pin();
        let other = pairs[0].1;
        assert_eq!(map.update(&key, |_| other), Some(other));
        assert_eq!(map.remove(&key), Some(other));
        assert_eq!((map.remove(&key), map.get(&key)), (None, None));
        assert_eq!(map.try_insert(key, value), Ok(()));
    }
    are_there();
}

fn copies_are_kept<K, V>(pairs: impl IntoIterator<Item = (K, V)>)
where
    K: Copy + Eq + Hash + Debug,
    V: Copy + PartialEq + Debug,
{
    let pairs: Vec<_> = pairs.into_iter().collect();
    keeps_pairs(&HopscotchMap::new(), &pairs);
    keeps_pairs(&CuckooMap::new(), &pairs);
    // Large enough that its memory is mapped from the system.
    keeps_pairs(&HopscotchMap::with_buckets(1 << 17), &pairs);
    keeps_pairs(&CuckooMap::with_buckets(1 << 17), &pairs);
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Nothing;

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(align(64))]
struct NothingAligned;

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(align(16))]
struct Byte16(u8);

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(align(32))]
struct Byte32(u8);

#[test]
fn pairs_without_bytes_are_kept() {
    copies_are_kept([((), ())]);
    copies_are_kept([(Nothing, [0u64; 0])]);
    copies_are_kept([(NothingAligned, ())]);
    copies_are_kept([(7u64, ())]);
    copies_are_kept([((), 7u64)]);
    copies_are_kept([((), [1u64, 2, 3, 4])]);
}

#[test]
fn aligned_pairs_are_kept() {
    copies_are_kept([(Byte16(1), Byte16(2))]);
    copies_are_kept([(Byte32(1), ())]);
    copies_are_kept([((), Byte32(2))]);
    copies_are_kept([(u128::MAX, 1u128)]);
    copies_are_kept([(true, Some('c'))]);
}

#[test]
fn many_pairs_of_any_shape_are_kept() {
    let numbers = || 0..200u64;
    copies_are_kept(numbers().map(|n| ([0, (n >> 4) as u8, n as u8], n as u16)));
    copies_are_kept(numbers().map(|n| (u128::from(n) << 77, !n)));
    copies_are_kept(numbers().map(|n| (n as u8, ())));
    copies_are_kept(numbers().map(|n| (char::from_u32(n as u32 * 37), [n, 7, !n])));
    // With padding.
    copies_are_kept(numbers().map(|n| ((n as u8, n << 40), (n % 3 == 0).then_some(n as u32))));
    copies_are_kept(numbers().map(|n| (Some(n as u32), (n as u8, n as f64, false))));
    let towns = ["Aachen", "Bern", "Celle"];
    copies_are_kept(towns.map(|town| (town, town)));
}

/// A key without bytes that hashes differently each time and equals no key.
#[derive(Clone, Copy, Debug)]
struct NeverEqual;

impl PartialEq for NeverEqual {
    fn eq(&self, _: &Self) -> bool {
        false
    }
}

impl Eq for NeverEqual {}

impl Hash for NeverEqual {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        state.write_usize(NEXT.fetch_add(1, Relaxed));
    }
}

#[test]
fn many_pairs_without_bytes_are_counted() {
    fn count<T: Table<Key = NeverEqual, Value = ()>>(map: &CopyMap<T>) {
        for _ in 0..20_000 {
            assert_eq!(map.pin().insert(NeverEqual, ()), None);
        }
        assert_eq!((map.len(), map.pin().iter().count()), (20_000, 20_000));
    }
    count(&HopscotchMap::new());
    count(&CuckooMap::new());
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
#[repr(align(8192))]
struct Page(u64);

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
#[repr(align(131072))]
struct Pages(u64);

/// Whether a reference is aligned for its type.
fn is_aligned<T>(value: &T) -> bool {
    std::ptr::from_ref(value).is_aligned()
}

#[test]
fn nodes_are_aligned_and_of_any_size() {
    let map = RelativisticMap::new();
    // Enough entries that slabs are mapped from the system.
    for n in 0..9_000 {
        map.pin().insert(n, Page(n));
    }
    let handle = map.pin();
    assert!(
        handle
            .iter()
            .all(|(n, page)| is_aligned(page) && page.0 == *n)
    );
    drop(handle);
    // Without optimization each move of a value is a copy on the stack.
    let pages = std::thread::Builder::new().stack_size(64 << 20).spawn(|| {
        let map: RelativisticMap<u64, Pages> = (0..40).map(|n| (n, Pages(n))).collect();
        assert!(map.pin().values().all(is_aligned));
    });
    pages.unwrap().join().unwrap();
    let map = RelativisticMap::new();
    for n in 0..20u64 {
        map.pin().insert(NothingAligned, n);
        map.pin().insert(NothingAligned, n);
    }
    assert!(map.pin().keys().all(is_aligned));
    assert_eq!((map.len(), map.pin().get(&NothingAligned)), (1, Some(&19)));
    let map: RelativisticMap<(), ()> = RelativisticMap::new();
    assert_eq!(
        (map.pin().insert((), ()), map.pin().remove(&())),
        (None, Some(&()))
    );
}

#[test]
fn capacities_beyond_memory_are_refused() {
    fn fails<R>(make: impl FnOnce() -> R) -> bool {
        catch_unwind(AssertUnwindSafe(|| drop(make()))).is_err()
    }
    for most in [usize::MAX, usize::MAX / 2 + 2, usize::MAX / 8, 1 << 60] {
        assert!(fails(|| RelativisticMap::<u64, u64>::with_capacity(most)));
        assert!(fails(|| RelativisticMap::<u64, u64>::builder()
            .buckets(most)
            .build()));
        // By default these have 2^40 buckets at most.
        assert!(fails(|| LockBased::<u64, u64>::builder()
            .max_buckets(most)
            .buckets(most)
            .build()));
        assert!(fails(|| LockFree::<u64, u64>::builder()
            .max_buckets(most)
            .capacity(most)
            .build()));
        assert!(fails(|| CuckooMap::<u64, u64>::builder()
            .max_buckets(most)
            .buckets(most)
            .build()));
        assert!(fails(|| HopscotchMap::<u64, u64>::builder()
            .max_buckets(most)
            .capacity(most)
            .build()));
        assert!(fails(|| CuckooMap::<(), ()>::builder()
            .max_buckets(most)
            .buckets(most)
            .build()));
        assert!(fails(|| HopscotchMap::<(), ()>::builder()
            .max_buckets(most)
            .buckets(most)
            .build()));
        let map = RelativisticMap::from([(1, 2)]);
        assert_eq!(map.reserve(most), Err(ResizeError::NoMemory));
        assert_eq!(map.resize_to(most), Err(ResizeError::NoMemory));
        assert_eq!(map.pin().get(&1), Some(&2));
        let map = CuckooMap::<(), ()>::builder().max_buckets(most).build();
        assert_eq!(map.resize_to(most), Err(ResizeError::NoMemory));
        let map = HopscotchMap::<(), ()>::builder().max_buckets(most).build();
        assert_eq!(map.resize_to(most), Err(ResizeError::NoMemory));
    }
}
