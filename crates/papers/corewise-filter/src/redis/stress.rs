//! Lookups beside updates, where each store of a path is followed by a pause: no member is missed.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use corewise_testkit::random::{Random, fewer};
use corewise_testkit::stress::{beside, together};

use super::{CuckooSettings, RedisCuckoo, WhileCompacting, item_hash};

fn new([capacity, bucket_slots, max_iterations, expansion]: [u16; 4]) -> RedisCuckoo {
    let settings = CuckooSettings {
        capacity: capacity.into(),
        bucket_slots,
        max_iterations,
        expansion,
    };
    RedisCuckoo::new(settings, &mut |_| true).unwrap()
}

/// The fingerprint and the buckets among 16, in order.
fn class(hash: u64) -> (u64, [u64; 2]) {
    let fingerprint = hash % 255 + 1;
    let mut buckets = [hash % 16, (hash ^ (fingerprint * 0x5bd1_e995)) % 16];
    buckets.sort_unstable();
    (fingerprint, buckets)
}

/// Hashes of items that no subfilter mistakes for another one, if the first has 16 buckets.
fn distinct_hashes(count: usize) -> Vec<u64> {
    let mut seen = HashSet::new();
    let hashes = (0_u64..).map(|n| item_hash(&n.to_le_bytes()));
    let is_new = |hash: &u64| {
        let (_, [first, second]) = class(*hash);
        first != second && seen.insert(class(*hash))
    };
    hashes.filter(is_new).take(count).collect()
}

/// Inserts and removes these items, with growth and compactions. Returns how often a subfilter was
/// popped.
fn churn(filter: &RedisCuckoo, hashes: &[u64]) -> u64 {
    let mut random = Random::from_seed(hashes[0]);
    let (mut absent, mut present) = (hashes.to_vec(), Vec::new());
    let (mut popped, mut fills) = (0, true);
    for _ in 0..fewer(6_000) {
        let before = filter.info(WhileCompacting::Proceed).unwrap().subfilters;
        fills = (fills && before < 6 && absent.len() > 10) || present.len() < 5;
        let from = if fills == (random.below(8) > 0) {
            &mut absent
        } else {
            &mut present
        };
        if from.is_empty() {
            continue;
        }
        let hash = from.swap_remove(random.index(from.len()));
        if filter.contains(hash) {
            let removal = filter.remove(hash, WhileCompacting::Proceed).unwrap();
            assert!(removal.is_removed);
            absent.push(hash);
        } else {
            filter
                .add(hash, WhileCompacting::Proceed, &mut |_| true)
                .unwrap();
            assert_eq!(filter.count(hash), 1);
            present.push(hash);
        }
        if random.below(16) == 0 {
            let _ = filter.start_compaction();
        }
        if random.below(2) == 0 {
            filter.compact_step(1 + random.below(8));
        }
        let after = filter.info(WhileCompacting::Proceed).unwrap().subfilters;
        popped += u64::from(after < before);
    }
    popped
}

/// Tiny buckets and long paths: most insertions swap, many paths visit a slot twice, and items move
/// between subfilters all the time.
#[test]
fn lookups_beside_swaps_and_compactions_never_miss_a_member() {
    for (bucket_slots, expansion) in [(1, 1), (1, 2), (2, 1), (3, 4)] {
        let filter = new([16 * bucket_slots, bucket_slots, 500, expansion]);
        let hashes = distinct_hashes(300);
        let (stable, others) = hashes.split_at(20);
        for &hash in stable {
            filter
                .add(hash, WhileCompacting::Refuse, &mut |_| true)
                .unwrap();
        }
        let (is_over, popped) = (AtomicBool::new(false), AtomicU64::new(0));
        let writer = || popped.store(churn(&filter, others), Relaxed);
        beside(2, &is_over, writer, |reader| {
            let lookups = (0..).map(|n| stable[(n + 7 * reader as usize) % stable.len()]);
            for hash in lookups.take_while(|_| !is_over.load(Relaxed)) {
                assert!(filter.contains(hash), "{hash} is missing");
                assert_eq!(filter.count(hash), 1);
            }
        });
        assert!(popped.into_inner() > 0);
    }
}

#[test]
fn several_writers_share_a_filter_and_lose_nothing() {
    let filter = new([64, 2, 500, 2]);
    let hashes = distinct_hashes(400);
    together(4, |writer| {
        let own = hashes.chunks(100).nth(writer as usize).unwrap();
        for _ in 0..fewer(20) {
            for &hash in own {
                filter
                    .add(hash, WhileCompacting::Proceed, &mut |_| true)
                    .unwrap();
                assert!(filter.contains(hash));
            }
            for &hash in own {
                assert!(filter.contains(hash));
                let removal = filter.remove(hash, WhileCompacting::Proceed).unwrap();
                assert!(removal.is_removed);
            }
            while filter.compact_step(10) {}
        }
    });
    let info = filter.info(WhileCompacting::Refuse).unwrap();
    assert_eq!(info.items, 0);
    assert!(!hashes.iter().any(|hash| filter.contains(*hash)));
}
