//! What a lookup costs in the relativistic table and in the paper's own (\[ATC11\] §4), by the load
//! of their buckets: CPU time here, instructions and cache lines under callgrind.
//!
//! ```text
//! cargo run --release --example lookup_counts [-- ENTRIES [LOAD ...]]
//! valgrind --tool=callgrind --cache-sim=yes target/release/examples/lookup_counts \
//!     count TABLE ENTRIES LOAD LOOKUPS
//! ```
//!
//! `count` makes one table (`relativistic` or `atc11`), then looks up present keys in random order,
//! one handle for each lookup; the difference of two runs with different LOOKUPS is the cost of
//! lookups alone. Both tables have the same keys, hasher, allocator and domain, and the same number
//! of buckets.

use std::hint::black_box;

use corewise_maps::RelativisticMap;
use corewise_maps_lab::chained::{Atc11, ChainedMap};
use corewise_measure::draw::mix;
use rustix::time::{ClockId, clock_gettime};

type Hasher = foldhash::quality::FixedState;
type Paper = ChainedMap<u64, u64, Atc11, Hasher>;
type Relativistic = RelativisticMap<u64, u64, Hasher>;

/// CPU time of the thread in ns.
fn cpu_ns() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}

/// The number of the key that the lookup `at` asks for.
fn drawn(at: u64, entries: u64) -> u64 {
    ((u128::from(mix(at ^ 0x5eed << 40)) * u128::from(entries)) >> 64) as u64
}

fn paper(entries: u64, buckets: usize) -> Paper {
    let map = Paper::with_buckets(buckets);
    for number in 0..entries {
        assert!(map.pin().insert(mix(number), number));
    }
    assert_eq!(map.buckets(), buckets);
    map
}

fn relativistic(entries: u64, buckets: usize) -> Relativistic {
    let map = RelativisticMap::builder()
        .hasher(Hasher::default())
        .buckets(buckets)
        .automatic_resize(false)
        .build();
    for number in 0..entries {
        assert!(map.pin().insert(mix(number), number).is_none());
    }
    assert_eq!(map.resize_state().buckets, buckets);
    map
}

/// Performs lookups `from..to`, and checks each.
#[inline(never)]
fn look_up(entries: u64, from: u64, to: u64, mut get: impl FnMut(u64) -> Option<u64>) {
    for at in from..to {
        let number = drawn(at, entries);
        assert_eq!(get(black_box(mix(number))), Some(number));
    }
}

fn count(table: &str, entries: u64, load: f64, lookups: u64) {
    let buckets = buckets(entries, load);
    match table {
        "atc11" => {
            let map = paper(entries, buckets);
            look_up(entries, 0, lookups, |key| map.pin().get(&key).copied());
        }
        "relativistic" => {
            let map = relativistic(entries, buckets);
            look_up(entries, 0, lookups, |key| map.pin().get(&key).copied());
        }
        other => panic!("no table {other}"),
    }
}

fn buckets(entries: u64, load: f64) -> usize {
    ((entries as f64 / load).round() as usize).next_power_of_two()
}

/// Lookups of one slice of time.
const SLICE: u64 = 200_000;
const ROUNDS: u64 = 15;

fn compare(entries: u64, load: f64) {
    let buckets = buckets(entries, load);
    let (paper, ours) = (paper(entries, buckets), relativistic(entries, buckets));
    let (mut times, mut ratios) = ([vec![], vec![]], vec![]);
    for round in 0..ROUNDS {
        let (from, to) = (round * SLICE, (round + 1) * SLICE);
        let started = cpu_ns();
        look_up(entries, from, to, |key| paper.pin().get(&key).copied());
        let middle = cpu_ns();
        look_up(entries, from, to, |key| ours.pin().get(&key).copied());
        let (theirs, own) = (middle - started, cpu_ns() - middle);
        times[0].push(theirs / SLICE as f64);
        times[1].push(own / SLICE as f64);
        ratios.push(theirs / own);
    }
    for list in times.iter_mut().chain([&mut ratios]) {
        list.sort_by(f64::total_cmp);
    }
    let median = |list: &[f64]| list[list.len() / 2];
    println!(
        "{entries:>9} entries, {buckets:>8} buckets: atc11 {:6.1} ns, relativistic {:6.1} ns, \
         {:.2} times as fast ({:.2} to {:.2})",
        median(&times[0]),
        median(&times[1]),
        median(&ratios),
        ratios[0],
        ratios[ratios.len() - 1],
    );
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize| {
        args.get(at)
            .map(|arg| arg.parse::<f64>().expect("a number"))
    };
    if args.first().is_some_and(|arg| arg == "count") {
        let (entries, load) = (number(2).expect("ENTRIES"), number(3).expect("LOAD"));
        let lookups = number(4).expect("LOOKUPS") as u64;
        return count(&args[1], entries as u64, load, lookups);
    }
    let entries = number(0).unwrap_or(65_536.0) as u64;
    let loads: Vec<f64> = (1..args.len()).filter_map(number).collect();
    let default = [0.5, 1.0, 2.0, 4.0, 8.0];
    for &load in if loads.is_empty() {
        &default[..]
    } else {
        &loads
    } {
        compare(entries, load);
    }
}
