//! Batches do what single calls do, in any number of threads.
#![cfg(not(any(corewise_loom, corewise_shuttle)))]

use std::num::NonZeroUsize;

use corewise_filter::{BatchError, CuckooFilter, InsertError};
use corewise_testkit::random::is_short;

fn hashes(filter: &CuckooFilter, items: std::ops::Range<u64>) -> Vec<u64> {
    items.map(|item| filter.hash(&item)).collect()
}

fn threads(count: usize) -> NonZeroUsize {
    NonZeroUsize::new(count).unwrap()
}

#[test]
fn batches_do_what_single_calls_do() {
    for items in [0, 1, 11, 12, 13, 100, 3_000] {
        let [one, other] = [0, 1].map(|_| CuckooFilter::with_fpr(3_000, 0.01).unwrap());
        (0..items).for_each(|item| one.insert(&item).unwrap());
        assert_eq!(other.insert_hashes(&hashes(&other, 0..items)), Ok(()));
        assert!(one.to_bytes() == other.to_bytes());
        let hashes = hashes(&one, 0..2 * items);
        let mut found = vec![false; hashes.len()];
        one.contains_hashes(&hashes, &mut found);
        let single: Vec<bool> = hashes.iter().map(|&hash| one.contains_hash(hash)).collect();
        assert_eq!(found, single);
    }
}

#[test]
#[should_panic(expected = "an answer for each hash")]
fn every_hash_needs_an_answer() {
    let filter = CuckooFilter::with_fpr(10, 0.01).unwrap();
    filter.contains_hashes(&[1, 2], &mut [false]);
}

#[test]
fn a_batch_ends_at_the_first_item_that_is_refused() {
    let filter = CuckooFilter::builder().slots(1_000).build().unwrap();
    let hashes = hashes(&filter, 0..2_000);
    let BatchError {
        inserted, error, ..
    } = filter.insert_hashes(&hashes).unwrap_err();
    assert_eq!(error, InsertError::Full);
    assert_eq!(filter.len(), inserted);
    assert!(
        hashes[..inserted]
            .iter()
            .all(|&hash| filter.contains_hash(hash))
    );
    assert_eq!(filter.insert_hash(hashes[inserted]), Err(InsertError::Full));
}

#[test]
fn parallel_builds_insert_everything() {
    for count in [1, 2, 3, 16] {
        let filter = CuckooFilter::builder()
            .slots(40_000)
            .bits(16)
            .build()
            .unwrap();
        let hashes = hashes(&filter, 0..38_000);
        assert_eq!(filter.insert_parallel(&hashes, threads(count)), Ok(()));
        assert_eq!(filter.len(), 38_000);
        assert!(hashes.iter().all(|&hash| filter.contains_hash(hash)));
    }
    let filter = CuckooFilter::with_fpr(10, 0.01).unwrap();
    assert_eq!(filter.insert_parallel(&[], threads(4)), Ok(()));
}

#[test]
fn parallel_builds_end_when_the_filter_is_full() {
    let filter = CuckooFilter::builder().slots(40_000).build().unwrap();
    let hashes = hashes(&filter, 0..100_000);
    let error = filter.insert_parallel(&hashes, threads(3)).unwrap_err();
    assert_eq!(error.error, InsertError::Full);
    assert_eq!(error.inserted, filter.len());
    assert!(filter.load_factor() > 0.9);
}

/// A remover makes room in a full filter meanwhile. Whatever it does: after `Ok` all items are in
/// the filter, and otherwise the number that the error tells.
#[test]
fn parallel_builds_forget_nothing_beside_a_remover() {
    for round in 0..if is_short() { 4 } else { 24 } {
        let builder = CuckooFilter::builder().slots(20_000).bits(32);
        let filter = builder.build().unwrap();
        let mut old = hashes(&filter, 0..19_500);
        old.retain(|hash| filter.insert_hash(*hash).is_ok());
        let new = hashes(&filter, 100_000..100_000 + [300, 9_000, 15_000][round % 3]);
        let result = std::thread::scope(|scope| {
            scope.spawn(|| assert!(old.iter().all(|&hash| filter.remove_hash(hash))));
            filter.insert_parallel(&new, threads(1 + round % 4))
        });
        let found = new.iter().filter(|&&hash| filter.contains_hash(hash));
        let inserted = result.map_or_else(|error| error.inserted, |()| new.len());
        assert_eq!((found.count(), filter.len()), (inserted, inserted));
    }
}
