//! Filters that grow: nothing is missed while links are added, and bounds hold.
#![cfg(not(any(corewise_loom, corewise_shuttle)))]

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use corewise_filter::{BuildError, CuckooFilter, GrowingFilter, Growth, InsertError, MAX_LINKS};
use corewise_testkit::random::{Random, is_short};

fn growth(max_links: usize) -> Growth {
    Growth {
        max_links,
        ..Growth::default()
    }
}

#[test]
fn filters_grow_to_255_times_their_capacity() {
    let filter = GrowingFilter::with_fpr(500, 0.01, growth(8)).unwrap();
    let items = 500 * 255u64;
    for item in 0..items {
        assert_eq!(filter.insert(&item), Ok(()), "item {item}, {filter:?}");
    }
    assert!((0..items).all(|item| filter.contains(&item)));
    assert_eq!((filter.len() as u64, filter.link_count()), (items, 8));
    let absent = 100_000;
    let hits = (items..items + absent)
        .filter(|item| filter.contains(item))
        .count() as f64;
    let mean = absent as f64 * filter.fpr();
    assert!(filter.fpr() <= 0.01);
    assert!(
        (hits - mean).abs() < 3.3 * mean.sqrt(),
        "{hits} hits, {mean} expected"
    );
    assert!((0..items).all(|item| filter.remove(&item)));
    assert!(filter.is_empty());
}

#[test]
fn a_filter_does_not_outgrow_its_bounds() {
    for max_links in [1, 3] {
        let filter = GrowingFilter::with_fpr(1_000, 0.01, growth(max_links)).unwrap();
        let full = (0u64..).find(|item| filter.insert(item) == Err(InsertError::Full));
        assert_eq!(filter.link_count(), max_links);
        assert!(filter.load_factor() > 0.93, "{filter:?}");
        assert!((0..full.unwrap()).all(|item| filter.contains(&item)));
        assert!(filter.fpr() <= 0.01);
    }
    let all = GrowingFilter::with_fpr(100, 0.01, growth(usize::MAX)).unwrap();
    (0..20_000).for_each(|item| all.insert(&item).unwrap());
    assert!(all.link_count() <= MAX_LINKS);
}

/// Every constructor gives this reason.
#[track_caller]
fn refused_everywhere(capacity: usize, rate: f64, reason: BuildError) {
    let filter = CuckooFilter::with_fpr(capacity, rate).map(|_| ());
    assert_eq!(filter, Err(reason), "{rate} for {capacity}");
    for bucket_slots in [2, 4, 8] {
        let builder = CuckooFilter::builder().bucket_slots(bucket_slots);
        let builder = builder.semi_sorted(bucket_slots == 4);
        for builder in [builder.capacity(capacity), builder.slots(capacity)] {
            let filter = builder.fpr(rate).build().map(|_| ());
            assert_eq!(filter, Err(reason), "{rate} for {builder:?}");
            let filter = GrowingFilter::with_builder(&builder, rate, Growth::default());
            assert_eq!(filter.err(), Some(reason), "{rate} for {builder:?}");
        }
    }
    for links in [0, 1, 8, usize::MAX] {
        let filter = GrowingFilter::with_fpr(capacity, rate, growth(links));
        assert_eq!(filter.err(), Some(reason), "{rate}, {links} links");
    }
}

/// Without a number of links, memory is what ends growth, whatever the first capacity was. Nothing
/// is missed until then, and the rate of false positives is kept.
#[test]
fn a_filter_grows_until_its_memory_is_used() {
    for (capacity, rate, max_bytes) in
        [(1, 0.3, 1 << 15), (100, 0.01, 1 << 19), (10, 1e-6, 1 << 18)]
    {
        let limits = Growth {
            max_bytes,
            ..Growth::default()
        };
        let filter = GrowingFilter::with_fpr(capacity, rate, limits).unwrap();
        let items = (0u64..).find(|item| filter.insert(item) == Err(InsertError::Full));
        let items = items.expect("it has a bound");
        assert!(filter.link_count() > 8, "{filter:?}");
        let used = filter.size_in_bytes();
        assert!(used > max_bytes / 3 && used <= max_bytes, "{used} bytes");
        assert!(filter.load_factor() > 0.8, "{filter:?}");
        assert!((0..items).all(|item| filter.contains(&item)));
        assert!(filter.fpr() <= rate);
        let hits = (items + 1..)
            .take(50_000)
            .filter(|item| filter.contains(item));
        let mean = 50_000.0 * rate;
        let most = mean + 5.0 * mean.sqrt() + 5.0;
        assert!((hits.count() as f64) < most, "{filter:?}");
        assert!((0..items).all(|item| filter.remove(&item)));
        assert!(filter.is_empty());
    }
}

/// Small bounds, of which the stripes of a link are a large part.
#[test]
fn a_filter_never_has_more_bytes_than_its_bound() {
    for max_bytes in (0..20_000).step_by(491) {
        for bucket_slots in [2, 4, 8] {
            let builder = CuckooFilter::builder()
                .capacity(1)
                .bucket_slots(bucket_slots);
            let limits = Growth {
                max_bytes,
                ..Growth::default()
            };
            let filter = GrowingFilter::with_builder(&builder, 0.5, limits).unwrap();
            let most = filter.size_in_bytes().max(max_bytes);
            assert!((0u64..).any(|item| filter.insert(&item) == Err(InsertError::Full)));
            let used = filter.size_in_bytes();
            assert!(used <= most, "{used} of {max_bytes} bytes");
        }
    }
}

/// Both kinds of filters take the same rates, and the same capacities for 0.
#[test]
fn rates_that_mean_nothing_are_refused() {
    let below = f64::from_bits(1f64.to_bits() - 1);
    let wrong = [
        0.0,
        -0.0,
        -0.1,
        -5e-324,
        -1.0,
        f64::NEG_INFINITY,
        1.0,
        1.0 + f64::EPSILON,
        1.5,
        7.9,
        8.0,
        1e300,
        f64::INFINITY,
        f64::NAN,
        -f64::NAN,
    ];
    let tiny = [5e-324, 3e-310, f64::MIN_POSITIVE, 1e-300, 1e-15];
    for capacity in [0, 1, 1_000] {
        for rate in wrong {
            refused_everywhere(capacity, rate, BuildError::Fpr);
        }
        for rate in tiny {
            refused_everywhere(capacity, rate, BuildError::FprTooLow);
        }
        for rate in [below, 0.5, 1e-3, 1e-6] {
            let filter = CuckooFilter::with_fpr(capacity, rate).unwrap();
            assert!(filter.slots() >= capacity.max(1));
            let filter = GrowingFilter::with_fpr(capacity, rate, growth(3)).unwrap();
            assert!(filter.insert("item").is_ok() && filter.fpr() <= rate);
        }
    }
    let [zero, one] = [0, 1].map(|capacity| CuckooFilter::with_fpr(capacity, 0.001).unwrap());
    assert!(zero.to_bytes() == one.to_bytes());
}

/// The rate of false positives that is promised holds, and is the one that `fpr` tells, for first
/// links of every kind of size: powers of two, multiples of them, odd multiples.
/// `COREWISE_FPR_QUERIES` replaces the number of lookups for each.
#[test]
fn rates_are_as_promised_whatever_the_size_of_the_first_link() {
    let absent = std::env::var("COREWISE_FPR_QUERIES").ok();
    let absent = absent.map_or(if is_short() { 10_000 } else { 60_000 }, |text| {
        text.parse().expect("a number")
    });
    let slots = [
        8,
        1 << 9,
        1 << 11,
        1 << 12,
        1 << 13,
        1 << 14,
        3 << 10,
        5 << 11,
        1_000,
        4_104,
        9_000,
    ];
    for (index, slots) in slots.into_iter().enumerate() {
        for (budget, max_links) in [(0.3, 2), (0.05, 4), (0.01, 3)] {
            let builder = CuckooFilter::builder()
                .slots(slots)
                .bucket_slots([4, 2, 8][index % 3])
                .semi_sorted(index % 3 == 0 && max_links == 4)
                .seed(index as u64);
            let filter = GrowingFilter::with_builder(&builder, budget, growth(max_links)).unwrap();
            let items = (0u64..).find(|item| filter.insert(item) == Err(InsertError::Full));
            let items = items.expect("it has bounds");
            assert_eq!(filter.link_count(), max_links);
            let hits = (items + 1..)
                .take(absent)
                .filter(|item| filter.contains(item));
            let (hits, mean) = (hits.count() as f64, absent as f64 * filter.fpr());
            // Of the hits, and of the number of different classes in so small filters, of which
            // each slot has one or more. Five deviations: no test in 10^4 fails by chance.
            let variance = mean + mean * mean / (2.0 * slots as f64);
            let deviation = 5.0 * variance.sqrt() + 5.0;
            assert!(
                (hits - mean).abs() < deviation,
                "{hits} hits, not {mean}: {filter:?}"
            );
            assert!(filter.fpr() <= budget, "{filter:?}");
            assert!(
                hits < absent as f64 * budget + deviation,
                "{hits} hits: {filter:?}"
            );
        }
    }
}

/// Items come, go and are copied in a chain, beside a multiset: copies are counted exactly, and
/// refused if and only if the newest link has 2b of them.
#[test]
fn copies_in_a_chain_are_a_multiset() {
    for bucket_slots in [2, 4, 8] {
        let builder = CuckooFilter::builder().slots(64).bucket_slots(bucket_slots);
        // With about 40 bits of fingerprint and bucket no two items are equal.
        let filter = GrowingFilter::with_builder(&builder, 1e-7, growth(5)).unwrap();
        let most = 2 * bucket_slots as usize;
        let (mut copies, mut random) = (HashMap::<u64, usize>::new(), Random(5));
        let (mut refused, mut above) = (0, 0);
        for round in 0..20_000u64 {
            // Few items that are copied often, among many that make the filter grow.
            let item = match random.below(4) {
                0 => 1_000 + round,
                _ => random.below(20),
            };
            let before = copies.entry(item).or_default();
            assert_eq!(filter.count(&item), *before);
            if random.below(5) < 3 {
                match filter.insert(&item) {
                    Ok(()) => *before += 1,
                    Err(InsertError::TooManyCopies) => {
                        assert!(*before >= most, "{before} copies were too many");
                        refused += 1;
                    }
                    Err(error) => {
                        assert_eq!(error, InsertError::Full);
                        assert_eq!(filter.link_count(), 5);
                    }
                }
            } else {
                assert_eq!(filter.remove(&item), *before > 0);
                *before = before.saturating_sub(1);
            }
            assert_eq!(filter.count(&item), *before);
            assert!(*before <= most * filter.link_count());
            above += u64::from(*before > most);
        }
        assert_eq!(filter.len(), copies.values().sum::<usize>());
        assert!(
            filter.link_count() > 2 && refused > 0 && above > 0,
            "{filter:?}"
        );
        for (item, &count) in &copies {
            assert!((0..count).all(|_| filter.remove(item)));
            assert!(!filter.remove(item));
        }
        assert!(filter.is_empty());
    }
}

/// Copies beyond 2b are refused although there is room: they would fill every link.
#[test]
fn copies_do_not_make_a_filter_grow() {
    let filter = GrowingFilter::with_fpr(1_000, 0.01, growth(8)).unwrap();
    (0..8).for_each(|_| filter.insert("item").unwrap());
    assert_eq!(filter.insert("item"), Err(InsertError::TooManyCopies));
    assert_eq!((filter.count("item"), filter.link_count()), (8, 1));
}

/// Items come and go while links are added, with so few bits that fingerprints of different items
/// are often equal in one link and not in another: a removal must never hide another item.
#[test]
fn removals_hide_no_item_in_any_link() {
    let mut random = Random(7);
    for is_semi_sorted in [false, true] {
        let builder = CuckooFilter::builder()
            .capacity(300)
            .semi_sorted(is_semi_sorted);
        let filter = GrowingFilter::with_builder(&builder, 0.9, growth(5)).unwrap();
        let mut copies: HashMap<u64, usize> = HashMap::new();
        let mut present: Vec<u64> = Vec::new();
        for round in 0..30_000u64 {
            let is_growing = round % 10_000 < 6_000;
            let wanted = if is_growing { 2 } else { 1 };
            if random.below(3) < wanted && filter.insert(&round).is_ok() {
                *copies.entry(round).or_default() += 1;
                present.push(round);
            } else if !present.is_empty() {
                let item = present.swap_remove(random.index(present.len()));
                assert!(filter.remove(&item), "{item} is missing in round {round}");
            }
            if round % 500 == 0 {
                assert!(
                    present.iter().all(|item| filter.contains(item)),
                    "round {round}"
                );
                assert_eq!(filter.len(), present.len());
            }
        }
        assert!(filter.link_count() > 2, "{filter:?}");
    }
}

#[test]
fn no_item_is_missed_while_links_are_added() {
    let filter = GrowingFilter::with_fpr(500, 0.01, growth(8)).unwrap();
    let (is_over, reached) = (AtomicBool::new(false), [0; 2].map(AtomicU64::new));
    std::thread::scope(|scope| {
        for writer in 0..2u64 {
            let (filter, reached) = (&filter, &reached);
            scope.spawn(move || {
                for n in 0..30_000u64 {
                    filter.insert(&(writer, n)).unwrap();
                    // Release: the reader may rely on all items up to this one.
                    reached[writer as usize].store(n + 1, std::sync::atomic::Ordering::Release);
                    let other = (writer + 2, n);
                    filter.insert(&other).unwrap();
                    assert!(filter.contains(&(writer, n / 2)));
                    assert!(filter.remove(&other));
                }
            });
        }
        scope.spawn(|| {
            let mut random = Random(3);
            while !is_over.load(Relaxed) {
                for writer in 0..2u64 {
                    let count = &reached[writer as usize];
                    let count = count.load(std::sync::atomic::Ordering::Acquire);
                    if count > 0 {
                        let n = random.below(count);
                        assert!(filter.contains(&(writer, n)), "{n} of {writer}");
                    }
                    if count == 30_000 && writer == 1 {
                        is_over.store(true, Relaxed);
                    }
                }
            }
        });
    });
    assert_eq!(filter.len(), 60_000);
    assert!(filter.link_count() >= 6);
    assert!((0..2u64).all(|w| (0..30_000u64).all(|n| filter.contains(&(w, n)))));
}

#[test]
fn unique_items_are_inserted_once_while_links_are_added() {
    // With 40 bits of fingerprint and bucket no two of the items are equal.
    let filter = GrowingFilter::with_fpr(500, 1e-7, growth(6)).unwrap();
    let inserted = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let new = (0..15_000u64).filter(|item| filter.insert_unique(item).unwrap());
                inserted.fetch_add(new.count() as u64, Relaxed);
            });
        }
    });
    assert_eq!(inserted.into_inner(), filter.len() as u64);
    let counts: Vec<usize> = (0..15_000u64).map(|item| filter.count(&item)).collect();
    assert!(counts.iter().all(|&count| count == 1));
}

/// A copy answers as the original did, whatever becomes of that, and a cleared filter as a new one.
#[test]
fn copies_and_cleared_filters_are_as_they_should() {
    for items in [0, 10, 500, 5_000] {
        let new = || GrowingFilter::with_fpr(300, 0.01, growth(6)).unwrap();
        let mut filter = new();
        (0..items).for_each(|item: u64| filter.insert(&item).unwrap());
        let answers = |filter: &GrowingFilter| {
            let answers = (0..2 * items).map(|item| (filter.count(&item), filter.contains(&item)));
            (
                answers.collect::<Vec<_>>(),
                filter.len(),
                filter.link_count(),
            )
        };
        let before = answers(&filter);
        let copy = filter.clone();
        assert_eq!(answers(&copy), before);
        // Both go on alike.
        assert!((items..2 * items).all(|item| filter.insert(&item) == copy.insert(&item)));
        assert_eq!(answers(&filter), answers(&copy));
        assert!((items..2 * items).all(|item| copy.remove(&item)));
        filter.clear();
        assert_eq!((filter.len(), filter.link_count()), (0, 1));
        assert!((0..2 * items).all(|item| !filter.contains(&item)));
        assert_eq!((copy.len() as u64, copy.fpr() > 0.0), (items, items > 0));
        assert!((0..items).all(|item| copy.contains(&item)));
        // A cleared filter grows again.
        let fresh = new();
        for item in 0..items {
            assert_eq!(filter.insert(&item), fresh.insert(&item));
        }
        assert_eq!(answers(&filter), answers(&fresh));
    }
}

/// Copies beside writers, while links are added: items that stay are in each.
#[test]
fn a_copy_beside_updates_misses_no_item() {
    let filter = GrowingFilter::with_fpr(500, 0.001, growth(7)).unwrap();
    (0..400u64).for_each(|item| filter.insert(&item).unwrap());
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for item in 1_000..16_000u64 {
                filter.insert(&item).unwrap();
                assert!(item % 2 == 0 || filter.remove(&item));
            }
            is_over.store(true, Relaxed);
        });
        loop {
            // The last copy is made after the writer has ended.
            let is_last = is_over.load(Relaxed);
            let copy = filter.clone();
            assert!((0..400u64).all(|item| copy.contains(&item)));
            assert_eq!(copy.clone().len(), copy.len());
            if is_last {
                break;
            }
        }
    });
    assert_eq!(filter.clone().len(), 400 + 7_500);
}
