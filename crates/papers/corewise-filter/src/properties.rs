//! Properties of filters of every shape, by one thread.

use std::collections::{HashMap, HashSet};

use crate::pairing::ItemClass;
use crate::testing::{Random, times};
use crate::{Builder, CuckooFilter, InsertError};

/// The builders of all shapes: slots in a bucket, widths, semi-sorted or not.
fn all_shapes() -> impl Iterator<Item = (Builder, u32, u32)> {
    let packed = [2, 4, 8]
        .into_iter()
        .flat_map(|b| (1..=32).map(move |f| (b, f, false)));
    let sorted = (5..=32).map(|f| (4, f, true));
    packed.chain(sorted).map(|(b, f, is_sorted)| {
        let builder = CuckooFilter::builder()
            .bucket_slots(b)
            .bits(f)
            .semi_sorted(is_sorted);
        (builder, b, f)
    })
}

/// What a filter stores of an item, without the order of its buckets.
fn key(class: &ItemClass) -> (u32, u32) {
    (class.fingerprint, class.first.min(class.second))
}

/// A filter beside the multiset of the classes that were inserted.
struct Checked {
    filter: CuckooFilter,
    copies: HashMap<(u32, u32), usize>,
    most_copies: usize,
    random: Random,
}

impl Checked {
    fn count(&self, hash: u64) -> usize {
        let key = key(&self.filter.table.pairing.class(hash));
        self.copies.get(&key).copied().unwrap_or(0)
    }

    fn change(&mut self, hash: u64, by: isize) {
        let key = key(&self.filter.table.pairing.class(hash));
        let copies = self.copies.entry(key).or_default();
        *copies = copies.checked_add_signed(by).unwrap();
    }

    /// One call, and its outcome according to the multiset.
    fn step(&mut self, hash: u64) {
        let before = self.count(hash);
        let words = self.random.below(16) == 0;
        let words = words.then(|| self.filter.table.snapshot().0);
        match self.random.below(8) {
            0..3 => match self.filter.insert_hash(hash) {
                Ok(()) => self.change(hash, 1),
                Err(error) => self.check_refusal(error, before, words),
            },
            3 => match self.filter.insert_unique_hash(hash) {
                Ok(is_new) => {
                    assert_eq!(is_new, before == 0);
                    self.change(hash, is_new.into());
                }
                Err(error) => {
                    assert_eq!((error, before), (InsertError::Full, 0));
                    self.check_refusal(error, before, words);
                }
            },
            4..6 => {
                assert_eq!(self.filter.remove_hash(hash), before > 0);
                self.change(hash, -isize::from(before > 0));
            }
            _ => assert_eq!(self.filter.count_hash(hash), before),
        }
        assert_eq!(self.filter.contains_hash(hash), self.count(hash) > 0);
        assert!(self.count(hash) <= self.most_copies);
        assert_eq!(self.filter.len(), self.copies.values().sum::<usize>());
    }

    fn check_refusal(&self, error: InsertError, before: usize, words: Option<Vec<u64>>) {
        let is_all = before == self.most_copies;
        assert_eq!(
            error == InsertError::TooManyCopies,
            is_all,
            "{error}, {before} copies"
        );
        if let Some(words) = words {
            assert!(
                self.filter.table.snapshot().0 == words,
                "a refused item changed the filter"
            );
        }
    }

    /// The classes in the buckets are those of the multiset.
    fn check_all(&self) {
        let mut found = HashMap::new();
        for bucket in 0..self.filter.shape.buckets {
            for fingerprint in self.filter.table.fingerprints(bucket) {
                if fingerprint != 0 {
                    let class = self.filter.table.pairing.class_at(fingerprint, bucket);
                    *found.entry(key(&class)).or_insert(0) += 1;
                }
            }
        }
        let mut expected = self.copies.clone();
        expected.retain(|_, copies| *copies > 0);
        assert_eq!(found, expected);
    }
}

#[test]
fn every_shape_is_a_multiset_of_classes() {
    for (index, (builder, bucket_slots, bits)) in all_shapes().enumerate() {
        // 3 to 17 pairs of buckets, so mostly no power of two.
        let buckets = 6 + 2 * (index % 15);
        let slots = buckets * bucket_slots as usize;
        let filter = builder.slots(slots).build().unwrap();
        assert_eq!(filter.slots(), slots);
        let mut checked = Checked {
            filter,
            copies: HashMap::new(),
            most_copies: 2 * bucket_slots as usize,
            random: Random::new(index as u64),
        };
        // So few different items that copies and full buckets are frequent.
        let mut hashes = Random::new(u64::from(bits));
        let hashes: Vec<u64> = (0..slots * 3 / 4).map(|_| hashes.next()).collect();
        for _ in 0..times(1_200) {
            let hash = hashes[checked.random.below(hashes.len() as u64) as usize];
            checked.step(hash);
        }
        checked.check_all();
    }
}

#[test]
fn filters_take_their_capacity() {
    for seed in 0..times(1_000) {
        let bucket_slots = [2, 4, 8][seed as usize % 3];
        let items = 1 + (seed as usize * 7) % 2_000;
        let builder = CuckooFilter::builder().bucket_slots(bucket_slots);
        let bits = [6, 8, 12, 17, 5, 4, 3][seed as usize % 7];
        let filter = builder
            .capacity(items)
            .bits(bits)
            .seed(seed)
            .build()
            .unwrap();
        for item in 0..items {
            let inserted = filter.insert(&item);
            assert_eq!(inserted, Ok(()), "item {item} of {items}, {filter:?}");
        }
        assert!((0..items).all(|item| filter.contains(&item)));
    }
}

/// Fan et al., fig. 5.4 of the thesis: 95 % with four slots, 98 % with eight.
#[test]
fn filters_fill_to_the_load_of_the_paper() {
    for (bucket_slots, bits, load) in [(2, 12, 0.84), (4, 6, 0.95), (4, 12, 0.95), (8, 8, 0.98)] {
        let builder = CuckooFilter::builder().bucket_slots(bucket_slots);
        let filter = builder.slots(1 << 16).bits(bits).build().unwrap();
        let mut items = 0u64..;
        let full = items.find(|item| filter.insert(item) == Err(InsertError::Full));
        assert!(full.is_some_and(|items| items as usize == filter.len()));
        assert!(filter.load_factor() > load, "{filter:?}");
        assert!(filter.load_factor() <= 1.0);
    }
}

/// The same calls leave the same bits, everywhere: a sum of them is frozen. (The stress build
/// moves more items.)
#[test]
fn eviction_is_deterministic() {
    let sum = |is_semi_sorted| {
        let builder = CuckooFilter::builder().slots(4_096).bits(13);
        let filter = builder.semi_sorted(is_semi_sorted).build().unwrap();
        for item in 0..3_950u64 {
            filter.insert(&item).unwrap();
        }
        (0..50u64).for_each(|item| assert!(filter.remove(&item)));
        let words = filter.table.snapshot().0;
        words
            .iter()
            .fold(0u64, |sum, word| sum.rotate_left(5).wrapping_add(*word))
    };
    let sums = [sum(false), sum(true)];
    assert_eq!(sums, [sum(false), sum(true)]);
    if !cfg!(corewise_stress) {
        assert_eq!(sums, [0x20e0_dc5e_77e7_df3a, 0x9d84_690f_e0fa_8817]);
    }
}

/// The number of hits that theory expects less than once in a thousand runs to be exceeded or
/// missed: the mean, and 3.3 standard deviations.
fn interval(queries: u64, rate: f64) -> std::ops::RangeInclusive<f64> {
    let mean = queries as f64 * rate;
    let deviation = (mean * (1.0 - rate)).sqrt();
    mean - 3.3 * deviation..=mean + 3.3 * deviation
}

/// By 10^6 absent items for each shape, or by the number in `COREWISE_FPR_QUERIES`.
#[test]
fn false_positives_are_as_theory_has_them() {
    let queries = std::env::var("COREWISE_FPR_QUERIES").ok();
    let queries = queries.map_or(times(1_000_000), |text| text.parse().expect("a number"));
    for (bucket_slots, bits, is_semi_sorted, load) in [
        (4, 6, false, 95),
        (4, 8, false, 95),
        (4, 12, false, 95),
        (4, 13, true, 95),
        (4, 16, false, 50),
        (2, 9, false, 80),
        (8, 10, false, 97),
    ] {
        let builder = CuckooFilter::builder()
            .slots(50_000)
            .bits(bits)
            .semi_sorted(is_semi_sorted);
        let filter = builder.bucket_slots(bucket_slots).build().unwrap();
        let items = filter.slots() as u64 * load / 100;
        (0..items).for_each(|item| filter.insert(&item).unwrap());
        assert!((0..items).all(|item| filter.contains(&item)));
        let absent = items..items + queries;
        let hits = absent.filter(|item| filter.contains(item)).count();
        let expected = interval(queries, filter.fpr());
        assert!(
            expected.contains(&(hits as f64)),
            "{hits} of {expected:?}, {filter:?}"
        );
        println!("{bucket_slots} x {bits}: {hits} of {queries}, expected {expected:?}");
    }
}

/// Wider fingerprints have too few false positives to sample. But the rate is exactly the number of
/// classes in the filter over the number of all classes.
#[test]
fn wide_fingerprints_have_as_many_classes_as_theory_has() {
    for (bits, is_semi_sorted) in [
        (17, false),
        (20, true),
        (24, false),
        (32, false),
        (32, true),
    ] {
        let builder = CuckooFilter::builder().slots(60_000).bits(bits);
        let filter = builder.semi_sorted(is_semi_sorted).build().unwrap();
        let items = filter.slots() as u64 * 95 / 100;
        (0..items).for_each(|item| filter.insert(&item).unwrap());
        let mut classes = HashSet::new();
        for bucket in 0..filter.shape.buckets {
            let slots = filter.table.fingerprints(bucket);
            let class = |&slot: &u32| key(&filter.table.pairing.class_at(slot, bucket));
            classes.extend(slots.iter().filter(|&&slot| slot != 0).map(class));
        }
        let all = f64::from(filter.shape.fingerprints()) * f64::from(filter.shape.buckets / 2);
        let equal = items as f64 - filter.fpr() * all;
        let found = items as f64 - classes.len() as f64;
        assert!(
            (found - equal).abs() <= 3.3 * equal.sqrt() + 1.0,
            "{found}, {equal}"
        );
    }
}
