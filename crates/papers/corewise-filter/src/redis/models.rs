//! Models of lookups beside updates, run by `scripts/models`.
//!
//! The filters are made of bytes, so that a path is known. The thread that only reads is spawned,
//! see the models of the other filters.

use corewise_atomic::sync::Arc;
use corewise_atomic::{model_bounded, thread};

use super::hash::{FiledItem, other_bucket};
use super::versions::MOVING;
use super::{AddError, CuckooShape, RedisCuckoo, WhileCompacting};

/// A hash with these buckets among four, and that number of fingerprints before it.
fn hash_in(buckets: [u64; 2], number: usize) -> u64 {
    let fits = |hash: &u64| FiledItem::new(*hash).buckets.map(|bucket| bucket % 4) == buckets;
    // A multiple of four more is another fingerprint in the same bucket.
    (0..).filter(fits).nth(number).expect("infinitely many")
}

fn fingerprint(hash: u64) -> u8 {
    FiledItem::new(hash).fingerprint
}

/// A filter of four buckets in a subfilter with these slots, the first in the oldest.
fn filter(bucket_slots: u16, subfilters: &[&[u8]]) -> Arc<RedisCuckoo> {
    let shape = CuckooShape {
        buckets: 4,
        bucket_slots,
        max_iterations: 8,
        expansion: 1,
    };
    let filter = RedisCuckoo::with_subfilters(shape, subfilters.len(), &mut |_| true).unwrap();
    let mut items = 0;
    for (subfilter, slots) in filter.in_use().zip(subfilters) {
        assert_eq!(subfilter.slots(), slots.len() as u64);
        for (slot, &value) in (0..).zip(*slots).filter(|(_, value)| **value != 0) {
            subfilter.set(slot, value);
            items += 1;
        }
    }
    filter.writer.lock().items = items;
    Arc::new(filter)
}

/// Slots of buckets of eight, each a word: the values that begin each bucket; the rest of a bucket
/// is this value.
fn buckets_of_eight(buckets: [(&[u8], u8); 4]) -> Vec<u8> {
    let bucket = |(values, rest): (&[u8], u8)| {
        let rest = std::iter::repeat_n(rest, 8 - values.len());
        values.iter().copied().chain(rest).collect::<Vec<u8>>()
    };
    buckets.into_iter().flat_map(bucket).collect()
}

fn add(filter: &RedisCuckoo, hash: u64) -> Result<(), AddError> {
    filter.add(hash, WhileCompacting::Refuse, &mut |_| true)
}

fn remove(filter: &RedisCuckoo, hash: u64) -> bool {
    let removal = filter.remove(hash, WhileCompacting::Refuse);
    removal.unwrap().is_removed
}

/// Lets another thread look up an item that is present all the time.
fn look_up(filter: &Arc<RedisCuckoo>, hash: u64) -> thread::JoinHandle<()> {
    let filter = filter.clone();
    thread::spawn(move || assert!(filter.contains(hash), "an item is missing"))
}

/// Buckets 0 and 1 are full, and an item in the first slot of bucket 0 can move to bucket 2.
/// Returns its hash, whose first bucket is 2, and the hash of an item of buckets 0 and 1.
fn with_a_movable_item() -> (Arc<RedisCuckoo>, u64, u64) {
    let (movable, new) = (hash_in([2, 0], 0), hash_in([0, 1], 0));
    let other = fingerprint(hash_in([0, 1], 1));
    let slots = buckets_of_eight([
        (&[fingerprint(movable)], other),
        (&[], other),
        (&[], 0),
        (&[], 0),
    ]);
    (filter(8, &[&slots]), movable, new)
}

#[test]
fn an_item_that_moves_is_never_missed() {
    model_bounded(3, || {
        // It moves from the bucket that is read second to the one that is read first.
        let (filter, movable, new) = with_a_movable_item();
        let reader = look_up(&filter, movable);
        add(&filter, new).unwrap();
        reader.join().unwrap();
        assert!(filter.contains(movable) && filter.contains(new));
        assert_eq!(filter.in_use().next().unwrap().get(0), fingerprint(new));
    });
}

/// Another thread begins a state after the move, and publishes the move by nothing else: a lookup
/// that reads the state must see the copy.
#[test]
fn an_item_that_has_moved_is_not_missed_in_a_later_state() {
    model_bounded(2, || {
        let (filter, movable, new) = with_a_movable_item();
        let reader = look_up(&filter, movable);
        add(&filter, new).unwrap();
        let opener = filter.clone();
        let opener = thread::spawn(move || {
            opener.versions.open(opener.versions.all(), MOVING);
            opener.versions.close(opener.versions.all());
        });
        reader.join().unwrap();
        opener.join().unwrap();
    });
}

/// A path visits the first slot twice: two items change places, and a third goes on.
#[test]
fn a_path_that_visits_a_slot_twice_hides_no_item() {
    model_bounded(3, || {
        let [first, second] = [0, 1].map(|number| hash_in([0, 1], number));
        let new = hash_in([0, 2], 0);
        let full = fingerprint(hash_in([2, 3], 0));
        // Both buckets of the new item are full; the path ends in one that a removal has freed.
        let slots = [fingerprint(first), fingerprint(second), full, 0];
        let filter = filter(1, &[&slots]);
        let other = other_bucket(fingerprint(new), 0) % 4;
        assert_eq!(other, 2);
        let reader = look_up(&filter, second);
        add(&filter, new).unwrap();
        reader.join().unwrap();
        assert_eq!(filter.in_use().count(), 1);
        let all = [first, second, new];
        assert!(all.into_iter().all(|hash| filter.contains(hash)));
        let subfilter = filter.in_use().next().unwrap();
        assert_eq!(subfilter.get(0), fingerprint(second));
    });
}

/// An item of the newer subfilter, of which the older one has room in bucket 2.
fn with_two_subfilters() -> (Arc<RedisCuckoo>, u64) {
    let movable = hash_in([2, 0], 0);
    let newer = buckets_of_eight([(&[fingerprint(movable)], 0), (&[], 0), (&[], 0), (&[], 0)]);
    (filter(8, &[&[0; 32], &newer]), movable)
}

#[test]
fn compaction_hides_no_item() {
    model_bounded(3, || {
        let (filter, movable) = with_two_subfilters();
        let reader = look_up(&filter, movable);
        filter.start_compaction().unwrap();
        assert!(!filter.compact_step(100));
        reader.join().unwrap();
        assert_eq!(filter.in_use().count(), 1);
        assert!(filter.contains(movable));
    });
}

/// One thread moves the item, another pops the subfilter, and publishes the copy by nothing else.
#[test]
fn an_item_that_moved_in_another_threads_step_is_not_missed() {
    model_bounded(2, || {
        let (filter, movable) = with_two_subfilters();
        let reader = look_up(&filter, movable);
        filter.start_compaction().unwrap();
        assert!(filter.compact_step(1));
        let other = filter.clone();
        let other = thread::spawn(move || assert!(!other.compact_step(100)));
        reader.join().unwrap();
        other.join().unwrap();
        assert_eq!(filter.in_use().count(), 1);
    });
}

#[test]
fn an_item_that_moves_is_counted_once() {
    model_bounded(3, || {
        let (filter, movable) = with_two_subfilters();
        let shared = filter.clone();
        let reader = thread::spawn(move || assert_eq!(shared.count(movable), 1));
        filter.start_compaction().unwrap();
        assert!(!filter.compact_step(100));
        reader.join().unwrap();
    });
}

/// A copy is in the bucket that is read last. Another is inserted into the other, and the first is
/// removed: nothing moves, and a copy is present at all times.
#[test]
fn removing_one_of_two_equal_items_does_not_hide_the_other() {
    model_bounded(3, || {
        let [hash, turned] = [[2, 0], [0, 2]].map(|buckets| {
            let same = |hash: &u64| {
                let item = FiledItem::new(*hash);
                item.fingerprint == fingerprint(hash_in([2, 0], 0))
                    && item.buckets.map(|bucket| bucket % 4) == buckets
            };
            (0..).find(same).expect("it exists")
        });
        let slots = buckets_of_eight([(&[fingerprint(hash)], 0), (&[], 0), (&[], 0), (&[], 0)]);
        let filter = filter(8, &[&slots]);
        let reader = look_up(&filter, hash);
        add(&filter, hash).unwrap();
        assert!(remove(&filter, turned));
        reader.join().unwrap();
        assert_eq!(filter.count(hash), 1);
    });
}

/// Two threads change full buckets, one compacts, and two look up, under shuttle.
#[test]
fn four_threads_hide_no_item() {
    model_bounded(1, || {
        let stable = hash_in([2, 0], 0);
        let full = buckets_of_eight([(&[fingerprint(stable)], 0), (&[], 0), (&[], 0), (&[], 0)]);
        let filter = filter(8, &[&full, &full]);
        assert!(remove(&filter, stable));
        let threads = [0, 1].map(|n| {
            let filter = filter.clone();
            thread::spawn(move || {
                let beside = WhileCompacting::Proceed;
                let hashes = (0..6).map(|number| hash_in([n, 2], number + 1));
                let hashes: Vec<u64> = hashes.collect();
                for &hash in &hashes {
                    filter.add(hash, beside, &mut |_| true).unwrap();
                }
                for &hash in &hashes {
                    assert!(filter.contains(hash));
                    assert!(filter.remove(hash, beside).unwrap().is_removed);
                }
            })
        });
        let compactor = filter.clone();
        let compactor = thread::spawn(move || {
            let _ = compactor.start_compaction();
            while compactor.compact_step(1) {}
        });
        let reader = look_up(&filter, stable);
        assert!(filter.contains(stable));
        threads
            .into_iter()
            .for_each(|thread| thread.join().unwrap());
        compactor.join().unwrap();
        reader.join().unwrap();
        assert_eq!(filter.count(stable), 1);
    });
}
