//! What replacing values costs where readers may still have the old ones, and how many replaced
//! values are alive at once: the relativistic map, papaya, and the `HashIndex` of scc.
//!
//! ```text
//! cargo run --release --features bench --example retained [-- [time|alive] THREADS ...]
//! valgrind --tool=callgrind target/release/examples/retained count TABLE VALUE REPLACEMENTS
//! ```
//!
//! Threads replace the values of 1,000 entries at random. The times are wall-clock ns of a
//! replacement of one thread: medians over rounds in which the maps take turns, and the ratio to
//! the relativistic map in the same round, with its least and most. The values that are alive
//! beyond those in the map are from other runs, in which each value counts itself: medians, and the
//! largest in brackets.
//!
//! `count` replaces values with one thread in one map (`relativistic`, `papaya` or `scc`; `u64`,
//! `arc` or `page`); the difference of two runs is the cost of replacements alone.

use std::sync::Arc;
use std::sync::atomic::{AtomicIsize, Ordering::Relaxed};
use std::time::Instant;

use corewise_maps::RelativisticMap;
use corewise_measure::draw::mix;

type Hasher = corewise_maps::relativistic::DefaultHasher;

const ENTRIES: u64 = 1_000;

/// A map whose values can be replaced.
trait Map<V>: Sync + Default {
    fn replace(&self, key: u64, value: V);
}

type Relativistic<V> = RelativisticMap<u64, V, Hasher>;
type Papaya<V> = papaya::HashMap<u64, V, Hasher>;
type Scc<V> = scc::HashIndex<u64, V, Hasher>;

impl<V: Send + Sync> Map<V> for Relativistic<V> {
    fn replace(&self, key: u64, value: V) {
        self.pin().insert(key, value);
    }
}

impl<V: Send + Sync> Map<V> for Papaya<V> {
    fn replace(&self, key: u64, value: V) {
        self.pin().insert(key, value);
    }
}

impl<V: Send + Sync + 'static> Map<V> for Scc<V> {
    fn replace(&self, key: u64, value: V) {
        match self.entry_sync(key) {
            scc::hash_index::Entry::Occupied(mut entry) => entry.update(value),
            scc::hash_index::Entry::Vacant(entry) => drop(entry.insert_entry(value)),
        }
    }
}

/// A value of the measurements of time.
trait Value: Send + Sync + 'static {
    const NAME: &'static str;
    /// Replacements of a thread in a round.
    const TIMES: u64;
    fn new(number: u64) -> Self;
}

impl Value for u64 {
    const NAME: &'static str = "u64";
    const TIMES: u64 = 200_000;
    fn new(number: u64) -> Self {
        number
    }
}

impl Value for Arc<u64> {
    const NAME: &'static str = "arc";
    const TIMES: u64 = 200_000;
    fn new(number: u64) -> Self {
        Self::new(number)
    }
}

const PAGE: usize = 64 << 10;

impl Value for Arc<[u8; PAGE]> {
    const NAME: &'static str = "page";
    const TIMES: u64 = 5_000;
    fn new(number: u64) -> Self {
        Self::new([number as u8; PAGE])
    }
}

/// Calls `replace` with the keys of a thread.
fn draw(thread: u64, times: u64, mut replace: impl FnMut(u64)) {
    (0..times).for_each(|n| replace(mix(thread << 40 | n) % ENTRIES));
}

/// Wall-clock ns of a replacement.
fn time<V: Value, M: Map<V>>(threads: u64) -> f64 {
    let map = M::default();
    (0..ENTRIES).for_each(|key| map.replace(key, V::new(key)));
    let begin = Instant::now();
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let map = &map;
            scope.spawn(move || draw(thread, V::TIMES, |key| map.replace(key, V::new(key))));
        }
    });
    begin.elapsed().as_nanos() as f64 / V::TIMES as f64
}

/// A value that counts the instances that are alive.
struct Counted(
    Arc<AtomicIsize>,
    #[expect(dead_code, reason = "its memory takes time to write")] Option<Box<[u8; PAGE]>>,
);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

/// The largest number of values beyond those in the map that are alive at once, and their number
/// when all threads have ended.
fn alive<M: Map<Counted>>(threads: u64, is_page: bool) -> (isize, isize) {
    let map = M::default();
    let (alive, most) = (Arc::new(AtomicIsize::new(0)), AtomicIsize::new(0));
    let replace = |key| {
        let now = alive.fetch_add(1, Relaxed) + 1;
        most.fetch_max(now, Relaxed);
        let page = is_page.then(|| Box::new([key as u8; PAGE]));
        map.replace(key, Counted(alive.clone(), page));
    };
    (0..ENTRIES).for_each(replace);
    let times = if is_page { 5_000 } else { 100_000 };
    std::thread::scope(|scope| {
        for thread in 0..threads {
            scope.spawn(move || draw(thread, times, replace));
        }
    });
    let beyond = |number: &AtomicIsize| number.load(Relaxed) - ENTRIES as isize;
    (beyond(&most), beyond(&alive))
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

const NAMES: [&str; 3] = ["relativistic", "papaya", "scc"];

fn print_times<V: Value>(threads: u64) {
    let round = |_| {
        [
            time::<V, Relativistic<V>>(threads),
            time::<V, Papaya<V>>(threads),
            time::<V, Scc<V>>(threads),
        ]
    };
    let rounds: Vec<_> = (0..11).map(round).collect();
    print!("{}, {threads} threads, ns:", V::NAME);
    for (at, name) in NAMES.iter().enumerate() {
        let ratios: Vec<f64> = rounds.iter().map(|times| times[at] / times[0]).collect();
        let least = ratios.iter().copied().fold(f64::INFINITY, f64::min);
        let most = ratios.iter().copied().fold(0.0, f64::max);
        print!(
            " {name} {:.0}",
            median(rounds.iter().map(|times| times[at]).collect())
        );
        if at > 0 {
            print!(" ({:.2} x [{least:.2}, {most:.2}])", median(ratios));
        }
    }
    println!();
}

fn print_alive(threads: u64, is_page: bool) {
    let what = if is_page { "page" } else { "arc" };
    print!("{what}, {threads} threads, alive at most, and at the end:");
    for (at, name) in NAMES.iter().enumerate() {
        let round = |_| match at {
            0 => alive::<Relativistic<_>>(threads, is_page),
            1 => alive::<Papaya<_>>(threads, is_page),
            _ => alive::<Scc<_>>(threads, is_page),
        };
        let rounds: Vec<_> = (0..7).map(round).collect();
        let most = median(rounds.iter().map(|round| round.0 as f64).collect());
        let end = median(rounds.iter().map(|round| round.1 as f64).collect());
        let peak = rounds.iter().map(|round| round.0).max().unwrap_or(0);
        print!(" {name} {most} [{peak}], {end};");
    }
    println!();
}

fn count<V: Value>(table: &str, times: u64) {
    fn run<V: Value, M: Map<V>>(times: u64) {
        let map = M::default();
        draw(0, times, |key| map.replace(key, V::new(key)));
    }
    match table {
        "relativistic" => run::<V, Relativistic<V>>(times),
        "papaya" => run::<V, Papaya<V>>(times),
        "scc" => run::<V, Scc<V>>(times),
        _ => panic!("{table} is not a table"),
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |text: &String| text.parse::<u64>().expect("a number");
    if let [first, table, value, times] = &arguments[..]
        && first == "count"
    {
        return match &**value {
            "u64" => count::<u64>(table, number(times)),
            "arc" => count::<Arc<u64>>(table, number(times)),
            "page" => count::<Arc<[u8; PAGE]>>(table, number(times)),
            _ => panic!("{value} is not a value"),
        };
    }
    let only = arguments.first().map_or("", String::as_str);
    let has_only = ["time", "alive"].contains(&only);
    let threads: Vec<u64> = arguments[usize::from(has_only)..]
        .iter()
        .map(number)
        .collect();
    let threads = if threads.is_empty() {
        vec![1, 2, 4, 16]
    } else {
        threads
    };
    println!("allocator: the system's; papaya 0.2, scc 3");
    for threads in threads {
        if only != "alive" {
            print_times::<u64>(threads);
            print_times::<Arc<u64>>(threads);
            print_times::<Arc<[u8; PAGE]>>(threads);
        }
        if only != "time" {
            print_alive(threads, false);
            print_alive(threads, true);
        }
    }
}
