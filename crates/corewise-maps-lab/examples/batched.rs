//! Measures the time of a lookup in a batch, by batch size, against a single lookup.
//!
//! ```text
//! cargo run --release -p corewise-maps-lab --example batched -- [ENTRIES [ROUNDS]]
//! ```
//!
//! 10^7 entries by default, one thread, random keys, every second of which is present. A round
//! measures each table with single lookups and with batches of every size, all of the same keys, in
//! turn, under one handle. The output has the median of the CPU time of a single lookup, and of the
//! ratios to it of the same round, with the lowest and the highest: a ratio of 2 means half of the
//! time.

use std::hint::black_box;

use corewise_maps::RelativisticMap;
#[cfg(target_pointer_width = "64")]
use corewise_maps::clht::LockBased;
use corewise_maps_lab::chained::{
    ChainedMap, ChainedTable, Ddds, OutOfPlace, PerEntry, RwLocked, SplitOrdered,
};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

/// Number of lookups that are timed together.
const CALLS: usize = 1 << 18;
const SIZES: [usize; 7] = [1, 4, 8, 16, 24, 32, 64];

/// A table of numbers.
trait Lookups {
    /// Number of keys that are present, looked up one by one.
    fn alone(&self, keys: &[u64]) -> usize;
    /// The same, in batches of `size` keys, up to 64.
    fn batched(&self, keys: &[u64], size: usize) -> usize;
}

#[cfg(target_pointer_width = "64")]
impl Lookups for LockBased<u64, u64> {
    fn alone(&self, keys: &[u64]) -> usize {
        let map = self.pin();
        keys.iter().filter_map(|key| map.get(key)).count()
    }
    fn batched(&self, keys: &[u64], size: usize) -> usize {
        let (map, mut found, mut count) = (self.pin(), [None; 64], 0);
        for keys in keys.chunks(size) {
            let found = &mut found[..keys.len()];
            map.get_many(keys, found);
            count += found.iter().flatten().count();
        }
        count
    }
}

macro_rules! of_nodes {
    ($($map:ty $(where $table:ident)?;)*) => {$(
        impl $(<$table: ChainedTable>)? Lookups for $map {
            fn alone(&self, keys: &[u64]) -> usize {
                let map = self.pin();
                let values = keys.iter().filter_map(|key| map.get(key));
                values.filter(|value| **value != 0).count()
            }
            fn batched(&self, keys: &[u64], size: usize) -> usize {
                let (map, mut found, mut count) = (self.pin(), [None; 64], 0);
                for keys in keys.chunks(size) {
                    let found = &mut found[..keys.len()];
                    map.get_many(keys, found);
                    count += found.iter().flatten().filter(|value| ***value != 0).count();
                }
                count
            }
        }
    )*};
}

of_nodes! {
    RelativisticMap<u64, u64>;
    ChainedMap<u64, u64, A> where A;
}

/// CPU time of this thread in nanoseconds.
fn cpu_ns() -> f64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: a valid pointer for the result.
    let failed = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    assert_eq!(failed, 0, "this thread has no clock");
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}

/// CPU time in nanoseconds per call of `act`, which makes [`CALLS`] calls.
fn time(act: impl FnOnce() -> usize) -> f64 {
    let begin = cpu_ns();
    black_box(act());
    (cpu_ns() - begin) / CALLS as f64
}

/// Times of a single lookup, and of a lookup in batches of each size.
fn round(table: &impl Lookups, keys: &[u64]) -> Vec<f64> {
    let alone = time(|| table.alone(keys));
    let batched = |size| time(|| table.batched(keys, size));
    std::iter::once(alone).chain(SIZES.map(batched)).collect()
}

/// The median, the lowest and the highest.
fn spread(mut all: Vec<f64>) -> [f64; 3] {
    all.sort_unstable_by(f64::total_cmp);
    [all[all.len() / 2], all[0], all[all.len() - 1]]
}

fn measure(name: &str, table: &impl Lookups, entries: u64, rounds: u64) {
    let rounds: Vec<Vec<f64>> = (0..rounds)
        .map(|seed| {
            let mut rng = SmallRng::seed_from_u64(seed);
            let keys: Vec<u64> = (0..CALLS)
                .map(|_| rng.random_range(0..2 * entries))
                .collect();
            round(table, &keys)
        })
        .collect();
    let [alone, ..] = spread(rounds.iter().map(|round| round[0]).collect());
    print!("{name} | {alone:.0}");
    for nth in 1..=SIZES.len() {
        let ratios = rounds.iter().map(|round| round[0] / round[nth]);
        let [middle, least, most] = spread(ratios.collect());
        print!(" | {middle:.2} ({least:.2} - {most:.2})");
    }
    println!();
}

fn chained<A: ChainedTable>(entries: u64, rounds: u64) {
    let buckets = entries as usize + entries as usize / 3 + 1;
    let map = ChainedMap::<u64, u64, A>::with_buckets(buckets);
    for key in 0..entries {
        assert!(map.pin().insert(2 * key, key + 1));
    }
    measure(map.name(), &map, entries, rounds);
}

fn main() {
    let mut words = std::env::args().skip(1);
    let mut number = |usual| {
        let word = words.next();
        word.map_or(usual, |word| word.parse().expect("a number"))
    };
    let (entries, rounds) = (number(10_000_000), number(15));
    print!("table | alone, ns");
    SIZES.iter().for_each(|size| print!(" | {size}"));
    println!();
    let map = RelativisticMap::with_capacity(entries as usize);
    for key in 0..entries {
        map.pin().insert(2 * key, key + 1);
    }
    measure("relativistic", &map, entries, rounds);
    drop(map);
    #[cfg(target_pointer_width = "64")]
    {
        let map = LockBased::with_capacity(entries as usize);
        for key in 0..entries {
            assert_eq!(map.pin().insert(2 * key, key + 1), None);
        }
        measure("clht-lb", &map, entries, rounds);
    }
    chained::<OutOfPlace>(entries, rounds);
    chained::<SplitOrdered>(entries, rounds);
    chained::<PerEntry>(entries, rounds);
    chained::<Ddds>(entries, rounds);
    chained::<RwLocked>(entries, rounds);
}
