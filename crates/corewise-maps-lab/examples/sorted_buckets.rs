//! Measures what sorted buckets save and cost. (\[ATC11\] §4.3 expects that failed lookups and
//! removals end sooner.) It compares the same chains unsorted, sorted by the reversed hash, and
//! sorted by the hash with buckets by its high bits.
//!
//! ```text
//! cargo run --release -p corewise-maps-lab --example sorted_buckets -- [ROUNDS]
//! ```
//!
//! 2^16 entries in 2^13 and in 2^14 buckets, one thread, random keys. A round measures every table,
//! in turn. The output has the medians of the ratios to the unsorted table of the same round, with
//! the lowest and the highest, and the unsorted table's own median.

use std::hint::black_box;
use std::time::Instant;

use corewise_maps_lab::chained::{
    ChainedMap, ChainedTable, OutOfPlace, SortedByHighBits, SortedByReversedHash,
};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

const ENTRIES: u64 = 1 << 16;
const CALLS: u64 = 1 << 18;
const WHAT: [&str; 4] = ["hit", "miss", "failed removal", "removal and insertion"];

/// Nanoseconds per call, for each kind of call.
fn round<A: ChainedTable>(map: &ChainedMap<u64, u64, A>, seed: u64) -> [f64; 4] {
    let there = || {
        let mut rng = SmallRng::seed_from_u64(seed);
        move || 2 * rng.random_range(0..ENTRIES)
    };
    let time = |mut call: Box<dyn FnMut(u64) + '_>| {
        let mut next = there();
        let begun = Instant::now();
        (0..CALLS).for_each(|_| call(next()));
        begun.elapsed().as_nanos() as f64 / CALLS as f64
    };
    [
        time(Box::new(|key| {
            assert!(map.pin().contains_key(black_box(&key)))
        })),
        time(Box::new(|key| {
            assert!(!map.pin().contains_key(black_box(&(key + 1))));
        })),
        time(Box::new(|key| {
            assert!(map.pin().remove(black_box(&(key + 1))).is_none());
        })),
        time(Box::new(|key| {
            let map = map.pin();
            assert!(map.remove(black_box(&key)).is_some());
            assert!(map.insert(key, key));
        })),
    ]
}

fn map<A: ChainedTable>(buckets: usize) -> ChainedMap<u64, u64, A> {
    let map = ChainedMap::with_buckets(buckets);
    for key in 0..ENTRIES {
        assert!(map.pin().insert(2 * key, key));
    }
    map
}

fn median(mut all: Vec<f64>) -> [f64; 3] {
    all.sort_unstable_by(f64::total_cmp);
    [all[all.len() / 2], all[0], all[all.len() - 1]]
}

fn main() {
    let rounds = std::env::args().nth(1);
    let rounds = rounds.map_or(15, |text| text.parse().expect("a number of rounds"));
    println!("buckets | call | unsorted, ns | sorted by reversed hash | by high bits");
    for buckets in [1 << 13, 1 << 14] {
        let unsorted = map::<OutOfPlace>(buckets);
        let reversed = map::<SortedByReversedHash>(buckets);
        let high = map::<SortedByHighBits>(buckets);
        let all: Vec<_> = (0..rounds)
            .map(|seed| {
                [
                    round(&unsorted, seed),
                    round(&reversed, seed),
                    round(&high, seed),
                ]
            })
            .collect();
        for (nth, what) in WHAT.iter().enumerate() {
            let own = median(all.iter().map(|round| round[0][nth]).collect());
            let ratio = |table: usize| {
                let ratios = all.iter().map(|round| round[table][nth] / round[0][nth]);
                let [middle, least, most] = median(ratios.collect());
                format!("{middle:.2} ({least:.2} - {most:.2})")
            };
            println!(
                "{buckets} | {what} | {:.0} | {} | {}",
                own[0],
                ratio(1),
                ratio(2)
            );
        }
    }
}
