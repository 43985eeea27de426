//! Models of the guarantees of every table with entries in place: of one bucket, of a resize, and
//! of both in a map. Models of one table's peculiarities are in its module. The tests of [`raw`]
//! are here too, because they have mutants.
#![cfg(feature = "raw")]

#[cfg(not(any(corewise_loom, corewise_shuttle)))]
mod raw;

use corewise_atomic::sync::Arc;
use corewise_atomic::sync::atomic::AtomicU64;
use corewise_atomic::sync::atomic::Ordering::Relaxed;
use corewise_maps::clht::LockBasedTable;
use corewise_maps::copy_map::numbers::{KeysAsHashes, Number, NumberTable, beside, hash_of};
use corewise_maps::copy_map::{CopyMap, Table};
use corewise_maps::cuckoo::CuckooTable;
use corewise_maps::parts::ResizeStep;
use corewise_maps_lab::clht_lock_free::LockFreeTable;
use corewise_maps_lab::hopscotch::HopscotchTable;
use corewise_rcu::Domain;

use corewise_testkit::for_every;

for_every! {
    clht_lock_based: LockBasedTable<u64, u64>,
    clht_lock_free: LockFreeTable<u64, u64>,
    hopscotch: HopscotchTable<u64, u64>,
    cuckoo: CuckooTable<u64, u64>,
    => {
        a_pair_is_never_mixed
        a_key_comes_back_with_another_value
        an_inserted_pair_is_seen_whole
        a_replaced_value_is_never_missing
        a_reader_of_a_value_sees_the_writes_before_its_insertion
        one_of_two_insertions_wins
        a_removal_beside_an_insertion
        a_removal_beside_an_insertion_of_the_same_key
        a_removal_beside_a_replacement
        two_updates_have_effect
        lookups_do_not_notice_a_resize
        updates_beside_a_resize
        two_threads_move_the_same_buckets
        a_table_is_freed_after_its_readers
        updates_and_lookups_beside_resizes
    }
}

// A value of two words could be half of one value and half of another.
for_every! {
    hopscotch_wide: HopscotchTable<u64, [u64; 2]>,
    cuckoo_wide: CuckooTable<u64, [u64; 2]>,
    => {
        a_replaced_value_is_never_missing
        updates_and_lookups_beside_resizes
    }
}

/// What these models need to know of a table.
trait Modelled: Table<Key = u64, Value: Number> + Send + Sync + Sized + 'static {
    /// Tables in which key 1 gets each kind of place once.
    const PLACES: &'static [PlaceCase];
    /// Preemption bound of the models in which all places are alike.
    const PREEMPTIONS: usize = 2;
}

/// A table in which key 1 gets a particular kind of place.
struct PlaceCase {
    buckets: usize,
    others: &'static [u64],
    preemptions: usize,
}

impl PlaceCase {
    /// Takes the keys inserted before key 1, and a preemption bound that the running time allows.
    const fn new(buckets: usize, others: &'static [u64], preemptions: usize) -> Self {
        Self {
            buckets,
            others,
            preemptions,
        }
    }
}

impl Modelled for LockBasedTable<u64, u64> {
    const PLACES: &'static [PlaceCase] = PLACES_IN_CHAINS;
}

impl Modelled for LockFreeTable<u64, u64> {
    const PLACES: &'static [PlaceCase] = PLACES_IN_CHAINS;
}

/// In a bucket with free slots, and in one that overflows.
const PLACES_IN_CHAINS: &[PlaceCase] =
    &[PlaceCase::new(1, &[], 3), PlaceCase::new(1, &[2, 3, 4], 3)];

impl Modelled for HopscotchTable<u64, u64> {
    // In a free cell, in a new node, and in an existing node.
    const PLACES: &'static [PlaceCase] = &[
        PlaceCase::new(1, &[], 3),
        PlaceCase::new(1, &[2], 2),
        PlaceCase::new(1, &[2, 3], 2),
    ];
    // Lookups by tag and by info have many interleavings.
    const PREEMPTIONS: usize = 1;
}

impl Modelled for HopscotchTable<u64, [u64; 2]> {
    // In a cell, and in a node.
    const PLACES: &'static [PlaceCase] = &[PlaceCase::new(1, &[], 1), PlaceCase::new(1, &[2], 1)];
}

impl<V: Number> Modelled for CuckooTable<u64, V> {
    // In an empty table, in one whose first bucket is full, and in one whose two buckets are full.
    const PLACES: &'static [PlaceCase] = &[
        PlaceCase::new(2, &[], 3),
        PlaceCase::new(2, &[3, 5, 7, 9], 2),
        PlaceCase::new(1, &[2, 3, 4, 5], 2),
    ];
}

/// Runs a model once for each kind of place of key 1, in a table with the other keys.
fn in_each_place<T: Modelled>(model: fn(&Arc<NumberTable<T>>)) {
    for place in T::PLACES {
        corewise_atomic::model_bounded(place.preemptions, move || {
            let numbers = Arc::new(NumberTable::new(place.buckets, place.others));
            model(&numbers);
            let kept = |key: &u64| numbers.get(*key) == Some(key * 10);
            assert!(place.others.iter().all(kept));
            let more = usize::from(numbers.get(1).is_some());
            assert_eq!(numbers.pairs().len(), place.others.len() + more);
        });
    }
}

fn a_pair_is_never_mixed<T: Modelled>() {
    corewise_atomic::model_bounded(T::PREEMPTIONS, || {
        let numbers = Arc::new(NumberTable::<T>::new(1, &[1]));
        beside(
            &numbers,
            |numbers| {
                assert_eq!(numbers.remove(1), Some(10));
                assert_eq!(numbers.try_insert(2, 20), Ok(()));
            },
            |numbers| {
                assert!([None, Some(20)].contains(&numbers.get(2)));
                assert!([None, Some(10)].contains(&numbers.get(1)));
            },
        );
        assert!(numbers.are(&[2]));
    });
}

fn a_key_comes_back_with_another_value<T: Modelled>() {
    corewise_atomic::model_bounded(T::PREEMPTIONS, || {
        let numbers = Arc::new(NumberTable::<T>::new(1, &[1]));
        beside(
            &numbers,
            |numbers| {
                assert_eq!(numbers.remove(1), Some(10));
                assert_eq!(numbers.try_insert(1, 11), Ok(()));
            },
            |numbers| {
                // The old value must not be seen after it was seen to be gone, nor after the new
                // one.
                let seen = [numbers.get(1), numbers.get(1)];
                let orders = [[Some(10); 2], [Some(10), None], [Some(10), Some(11)]];
                let later = [[None, None], [None, Some(11)], [Some(11), Some(11)]];
                assert!(orders.contains(&seen) || later.contains(&seen), "{seen:?}");
            },
        );
    });
}

fn an_inserted_pair_is_seen_whole<T: Modelled>() {
    in_each_place::<T>(|numbers| {
        beside(
            numbers,
            |numbers| assert_eq!(numbers.try_insert(1, 10), Ok(())),
            |numbers| assert!([None, Some(10)].contains(&numbers.get(1))),
        );
        assert_eq!(numbers.get(1), Some(10));
    });
}

fn a_replaced_value_is_never_missing<T: Modelled>() {
    in_each_place::<T>(|numbers| {
        assert_eq!(numbers.try_insert(1, 10), Ok(()));
        beside(
            numbers,
            |numbers| assert_eq!(numbers.replace(1, 11), 10),
            |numbers| assert!([Some(10), Some(11)].contains(&numbers.get(1))),
        );
        assert_eq!(numbers.get(1), Some(11));
    });
}

/// Needed for values that are addresses.
fn a_reader_of_a_value_sees_the_writes_before_its_insertion<T: Modelled>() {
    corewise_atomic::model_bounded(3, || {
        let numbers = Arc::new((NumberTable::<T>::new(2, &[1]), AtomicU64::new(0)));
        beside(
            &numbers,
            |(numbers, written)| {
                // Relaxed: the model checks the table's orderings.
                written.store(1, Relaxed);
                numbers.replace(1, 11);
            },
            |(numbers, written)| {
                if numbers.get(1) == Some(11) {
                    // Relaxed: as above.
                    assert_eq!(written.load(Relaxed), 1);
                }
            },
        );
    });
}

fn one_of_two_insertions_wins<T: Modelled>() {
    in_each_place::<T>(|numbers| {
        let (one, other) = beside(
            numbers,
            |numbers| numbers.try_insert(1, 10),
            |numbers| numbers.try_insert(1, 11),
        );
        let there = match (one, other) {
            (Ok(()), Err(10)) => 10,
            (Err(11), Ok(())) => 11,
            answers => panic!("{answers:?}"),
        };
        assert_eq!(numbers.get(1), Some(there));
    });
}

fn a_removal_beside_an_insertion<T: Modelled>() {
    in_each_place::<T>(|numbers| {
        assert_eq!(numbers.try_insert(1, 10), Ok(()));
        let (removed, inserted) = beside(
            numbers,
            |numbers| numbers.remove(1),
            |numbers| numbers.try_insert(13, 130),
        );
        assert_eq!((removed, inserted), (Some(10), Ok(())));
        assert_eq!((numbers.get(1), numbers.remove(13)), (None, Some(130)));
    });
}

fn a_removal_beside_an_insertion_of_the_same_key<T: Modelled>() {
    in_each_place::<T>(|numbers| {
        assert_eq!(numbers.try_insert(1, 10), Ok(()));
        let (removed, inserted) = beside(
            numbers,
            |numbers| numbers.remove(1),
            |numbers| numbers.try_insert(1, 11),
        );
        let then = match (removed, inserted) {
            (Some(10), Ok(())) => Some(11),
            (Some(10), Err(10)) => None,
            answers => panic!("{answers:?}"),
        };
        assert_eq!(numbers.get(1), then);
    });
}

fn a_removal_beside_a_replacement<T: Modelled>() {
    in_each_place::<T>(|numbers| {
        assert_eq!(numbers.try_insert(1, 10), Ok(()));
        let (removed, replaced) = beside(
            numbers,
            |numbers| numbers.remove(1),
            |numbers| numbers.put(1, 11, true),
        );
        let then = match (removed, replaced) {
            (Some(10), Ok(())) => Some(11),
            (Some(11), Err(10)) => None,
            answers => panic!("{answers:?}"),
        };
        assert_eq!(numbers.get(1), then);
    });
}

fn two_updates_have_effect<T: Modelled>() {
    corewise_atomic::model_bounded(3, || {
        let numbers = Arc::new(NumberTable::<T>::new(2, &[1]));
        let increment = |numbers: &NumberTable<T>| numbers.increment(1).unwrap();
        let (one, other) = beside(&numbers, increment, increment);
        assert_eq!([one.min(other), one.max(other)], [11, 12]);
        assert_eq!(numbers.get(1), Some(12));
    });
}

/// Runs a model in tables with keys 1 and 2 whose resize has begun, to more buckets and to fewer.
fn beside_each_resize<T: Modelled>(preemptions: usize, model: fn(&Arc<NumberTable<T>>)) {
    for (from, to) in [(1, 2), (2, 1)] {
        corewise_atomic::model_bounded(preemptions, move || {
            model(&Arc::new(NumberTable::resizing(from, to, &[1, 2])));
        });
    }
}

fn lookups_do_not_notice_a_resize<T: Modelled>() {
    beside_each_resize::<T>(3, |numbers| {
        beside(numbers, NumberTable::move_all, |numbers| {
            assert_eq!(numbers.get(1), Some(10));
            assert_eq!(numbers.get(2), Some(20));
            assert_eq!(numbers.get(3), None);
        });
        assert!(numbers.are(&[1, 2]));
    });
}

fn updates_beside_a_resize<T: Modelled>() {
    beside_each_resize::<T>(2, |numbers| {
        beside(numbers, NumberTable::move_all, |numbers| {
            assert_eq!(numbers.remove(1), Some(10));
            assert_eq!(numbers.try_insert(3, 30), Ok(()));
            assert_eq!(numbers.increment(2), Some(21));
            assert_eq!(numbers.get(1), None);
        });
        assert_eq!(numbers.pairs(), [(2, 21), (3, 30)]);
    });
}

fn two_threads_move_the_same_buckets<T: Modelled>() {
    beside_each_resize::<T>(2, |numbers| {
        let step = |numbers: &NumberTable<T>| numbers.version.step(2, &hash_of);
        let (one, other) = beside(numbers, step, step);
        // A thread does not wait, so each may have left the last group to the other.
        let lasts = [one, other].into_iter();
        let mut lasts = lasts.filter(|step| *step == Ok(ResizeStep::Last)).count();
        while lasts == 0 {
            lasts += usize::from(step(numbers) == Ok(ResizeStep::Last));
        }
        assert_eq!(lasts, 1);
        assert!(numbers.are(&[1, 2]));
    });
}

type Map<T> = CopyMap<T, KeysAsHashes>;

/// A map with all keys up to `last`, each with ten times itself.
fn map<T: Modelled>(buckets: usize, last: u64) -> Map<T> {
    let builder = CopyMap::<T>::builder().buckets(buckets);
    let builder = builder.automatic_resize(false).domain(Domain::new());
    let map = builder.hasher(KeysAsHashes::default()).build();
    (1..=last).for_each(|key| assert_eq!(insert(&map, key, key * 10), None));
    map
}

fn insert<T: Modelled>(map: &Map<T>, key: u64, value: u64) -> Option<u64> {
    let old = map.pin().insert(key, Number::of(value));
    old.map(Number::number)
}

fn get<T: Modelled>(map: &Map<T>, key: u64) -> Option<u64> {
    map.pin().get(&key).map(Number::number)
}

fn a_table_is_freed_after_its_readers<T: Modelled>() {
    corewise_atomic::model_bounded(2, || {
        let map = Arc::new(map::<T>(1, 1));
        beside(
            &map,
            |map| map.resize_to(2).unwrap(),
            |map| assert_eq!(get(map, 1), Some(10)),
        );
        let new = self::map::<T>(2, 1);
        assert_eq!((map.buckets(), map.bytes()), (2, new.bytes()));
    });
}

fn updates_and_lookups_beside_resizes<T: Modelled>() {
    corewise_atomic::model_bounded(3, || {
        let map = Arc::new(map::<T>(1, 8));
        let updates = |map: &Map<T>| {
            for key in [3, 2, 5, 3, 2] {
                let removed = map.pin().remove(&key).map(Number::number);
                assert_eq!((removed, get(map, key)), (Some(key * 10), None));
                assert!(map.pin().try_insert(key, Number::of(0)).is_ok());
                assert_eq!(insert(map, key, key * 10), Some(0));
                let kept = |key: &u64| get(map, *key) == Some(key * 10);
                assert!([1, 4, 6, 7, 8].iter().all(kept));
            }
        };
        let resizes = |map: &Map<T>| {
            for buckets in [2, 8, 4, 1] {
                map.resize_to(buckets).unwrap();
            }
        };
        beside(&map, resizes, updates);
        let handle = map.pin();
        let pairs = handle.iter().map(|(key, value)| (key, value.number()));
        let mut pairs: Vec<_> = pairs.collect();
        pairs.sort_unstable();
        assert!(pairs.into_iter().eq((1..=8).map(|key| (key, key * 10))));
    });
}
