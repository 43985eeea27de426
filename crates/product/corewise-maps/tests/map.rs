//! The guarantees that the map gives its users.

use std::sync::Arc;
use std::sync::atomic::{AtomicIsize, Ordering::SeqCst};

use corewise_maps::RelativisticMap;
use corewise_maps::relativistic::{Entry, ResizeError};
use corewise_rcu::{BacklogFull, Domain, Limits, Pressure};
use corewise_testkit::random::is_short;

use crate::common::Counted;

#[test]
fn every_key_and_value_is_dropped_once() {
    let alive = Arc::new(AtomicIsize::new(0));
    let new = |n| Counted::new(n, &alive);
    let map = RelativisticMap::new();
    for n in 0..5_000 {
        map.pin().insert(new(n % 1_000), new(n));
        let _ = map.pin().try_insert(new(n % 500), new(n));
        map.pin().get_or_insert_with(new(n % 700), || new(n));
        map.pin().update(&new(n % 900), |old| new(old.n + 1));
        if n % 3 == 0 {
            map.pin().remove(&new(n % 1_000));
        }
        if let Entry::Vacant(entry) = map.pin().entry(new(n % 1_100)) {
            let _ = entry.insert(new(n));
        }
    }
    let entries = map.len() as isize;
    map.settle().unwrap();
    assert_eq!(alive.load(SeqCst), 2 * entries);
    map.pin().clear();
    drop(map);
    assert_eq!(alive.load(SeqCst), 0);
}

#[test]
fn many_inserts_under_one_handle() {
    let map = RelativisticMap::new();
    let handle = map.pin();
    fill_and_look(&handle);
    drop(handle);
    map.settle().unwrap();
    assert_eq!(map.resize_state().zipped, 0);
    // Where every operation resizes, the size does not depend on the number of entries.
    let longest = map.longest_chain();
    assert!(longest < 20 || cfg!(corewise_stress), "{longest}");
}

#[test]
fn many_inserts_under_an_outer_guard() {
    let map = RelativisticMap::new();
    let guard = corewise_rcu::pin();
    let many = many();
    for n in 0..many {
        map.pin().insert(n, n);
    }
    assert!(map.longest_chain() < 60, "{}", map.longest_chain());
    let handle = map.within(&guard);
    assert!((0..many).all(|n| handle.get(&n) == Some(&n)));
}

/// Ten million with `COREWISE_MORE`; fewer where every operation resizes or is instrumented.
fn many() -> u64 {
    if cfg!(corewise_stress) || is_short() {
        20_000
    } else if std::env::var_os("COREWISE_MORE").is_some() {
        10_000_000
    } else {
        300_000
    }
}

fn fill_and_look(handle: &corewise_maps::relativistic::MapRef<'_, u64, u64>) {
    let many = many();
    for n in 0..many {
        assert_eq!(handle.insert(n, n), None);
    }
    assert_eq!(handle.len(), many as usize);
    assert!((0..many).all(|n| handle.get(&n) == Some(&n)));
}

#[test]
fn the_table_follows_the_number_of_entries() {
    let map = RelativisticMap::new();
    let small = map.resize_state().buckets;
    (0..100_000).for_each(|n| {
        map.pin().insert(n, n);
    });
    map.settle().unwrap();
    let large = map.resize_state().buckets;
    if !cfg!(corewise_stress) {
        // Enough, and at most four times that: a table of 2^17 has just quadrupled.
        assert!((1 << 17..=1 << 19).contains(&large), "{large}");
    }
    (0..100_000).for_each(|n| assert_eq!(map.pin().remove(&n), Some(&n)));
    map.settle().unwrap();
    if !cfg!(corewise_stress) {
        assert_eq!(map.resize_state().buckets, small);
        assert!(map.node_bytes() < 2 << 20, "{}", map.node_bytes());
    }
}

/// Each resize of a map that only grows is to more buckets: what it has grown for is not so little
/// that it shrinks.
#[test]
#[cfg(not(corewise_stress))]
fn a_map_that_has_grown_does_not_shrink_at_once() {
    let map = RelativisticMap::builder().domain(Domain::new()).build();
    let mut buckets = map.resize_state().buckets;
    let mut grown = 0;
    for n in 0..10_000 {
        map.pin().insert(n, n);
        map.settle().unwrap();
        let state = map.resize_state();
        grown += u64::from(state.buckets > buckets);
        buckets = state.buckets;
        assert_eq!(state.completed, grown, "{n} entries, {buckets} buckets");
    }
    assert!(grown >= 4, "{grown}");
}

#[test]
fn a_map_has_as_many_buckets_as_were_asked_for() {
    let map = RelativisticMap::builder()
        .automatic_resize(false)
        .buckets(12)
        .build();
    (0..1_000u64).for_each(|n| {
        map.pin().insert(n, n);
    });
    for buckets in [12, 36, 18, 1, 7, 49, 64, 1024, 3] {
        map.resize_to(buckets).unwrap();
        assert_eq!(map.resize_state().buckets, buckets);
        assert!((0..1_000).all(|n| map.pin().get(&n) == Some(&n)));
        assert_eq!(map.pin().iter().count(), 1_000);
    }
    assert_eq!(map.resize_to(0), Err(ResizeError::NoBuckets));
    assert_eq!(map.resize_to(usize::MAX / 4), Err(ResizeError::NoMemory));
    let guard = corewise_rcu::pin();
    assert_eq!(map.resize_to(6), Err(ResizeError::Pinned));
    assert_eq!(map.settle(), Err(ResizeError::Pinned));
    drop(guard);
    assert!((0..1_000).all(|n| map.pin().contains_key(&n)));
}

#[test]
fn reserving_makes_room_at_once_also_under_a_guard() {
    let map: RelativisticMap<u64, u64> = RelativisticMap::new();
    let _guard = corewise_rcu::pin();
    map.reserve(10_000).unwrap();
    assert!(map.resize_state().buckets >= 10_000);
    assert!(map.reserve(usize::MAX).is_err());
}

#[test]
fn a_backlog_beyond_its_limits_is_reported_refused_and_settled() {
    let limits = Limits {
        soft: 100_000,
        hard: 400_000,
    };
    let map = RelativisticMap::builder()
        .backlog_limits(limits)
        .domain(Domain::new())
        .build();
    let guard = map.domain().pin();
    let mut refused = None;
    for n in 0..100_000u64 {
        if let Err(BacklogFull((key, _))) = map.within(&guard).try_upsert(0u64, n) {
            refused = Some(key);
            break;
        }
    }
    assert_eq!(refused, Some(0));
    assert_eq!(map.pressure(), Pressure::OverHard);
    assert_eq!(map.within(&guard).try_remove(&0), Err(BacklogFull(())));
    drop(guard);
    for n in 0..10_000 {
        map.pin().insert(0, n);
    }
    assert_eq!(map.pressure(), Pressure::Fine);
    assert_eq!(map.pin().get(&0), Some(&9_999));
}

#[test]
fn a_section_of_the_same_domain_is_accepted_and_one_of_another_is_refused() {
    let domain = Domain::new();
    let map = RelativisticMap::builder().domain(domain.clone()).build();
    let mut qsbr = domain.qsbr();
    for n in 0..1_000 {
        map.within(&qsbr.section()).insert(n, n);
        qsbr.quiescent();
    }
    assert_eq!(map.len(), 1_000);
    let wrong = corewise_rcu::pin();
    let tried = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| map.within(&wrong).len()));
    assert!(tried.is_err());
}

#[test]
#[cfg(feature = "serde")]
fn maps_are_serialized_as_maps() {
    let map = RelativisticMap::from([(1, "one".to_owned()), (2, "two".to_owned())]);
    let json = serde_json::to_string(&map).unwrap();
    let back: RelativisticMap<i32, String> = serde_json::from_str(&json).unwrap();
    assert_eq!(back, map);
    let as_std: std::collections::HashMap<i32, String> = serde_json::from_str(&json).unwrap();
    assert_eq!(as_std.len(), 2);
}

#[test]
#[cfg(feature = "serde")]
fn sets_are_serialized_as_sequences() {
    use corewise_maps::RelativisticSet;
    let set = RelativisticSet::from(["one".to_owned(), "two".to_owned()]);
    let json = serde_json::to_string(&set).unwrap();
    let back: RelativisticSet<String> = serde_json::from_str(&json).unwrap();
    assert_eq!(back, set);
    let as_std: std::collections::HashSet<String> = serde_json::from_str(&json).unwrap();
    assert_eq!(as_std.len(), 2);
}

#[test]
#[cfg(feature = "rayon")]
fn parallel_iteration_sees_every_entry_once() {
    use rayon::iter::ParallelIterator;
    let map: RelativisticMap<u64, u64> = (0..50_000).map(|n| (n, 2 * n)).collect();
    let handle = map.pin();
    let mut seen: Vec<u64> = handle.par_iter().map(|(key, _)| *key).collect();
    seen.sort_unstable();
    assert!(seen.into_iter().eq(0..50_000));
    let sum: u64 = handle.par_iter().map(|(_, value)| value).sum();
    assert_eq!(sum, 49_999 * 50_000);
}

#[test]
fn a_removed_value_lives_as_long_as_its_readers() {
    let map = RelativisticMap::from([(1, vec![1]), (2, vec![2])]);
    let reader = map.pin();
    let value = reader.get(&1).unwrap();
    map.pin().remove(&1);
    map.pin().insert(2, vec![3]);
    (0..10_000).for_each(|n| {
        map.pin().insert(3, vec![n]);
    });
    assert_eq!(*value, [1]);
    assert!(!reader.contains_key(&1));
}
