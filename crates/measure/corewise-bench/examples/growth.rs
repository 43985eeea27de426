//! What growing costs a table: CPU time of an insertion into a map that starts empty, and into one
//! that was created with capacity, beside the maps of other crates.
//!
//! ```text
//! cargo run --release --features bench --example growth [-- [short] THREADS [ENTRIES ...]]
//! ```
//!
//! `short` leaves only the rows of `u64` keys in maps that start empty.
//!
//! Keys are random numbers, or the same numbers as strings of 20 bytes. In each round every map is
//! filled once; figures are medians over the rounds, and the ratio is that of the paired rounds,
//! with their least and most. All maps have the same hasher: those of `std` and of ours differ by
//! more than a fast insertion takes. Without the harness of the benchmark, and with the system's
//! allocator, so it confirms `corewise bench run --section growth`.

use std::hint::black_box;

use corewise_maps::clht::LockBasedTable;
use corewise_maps::copy_map::{CopyMap, Table};
use corewise_maps::cuckoo::CuckooTable;
use corewise_maps::relativistic::RelativisticMap;
use corewise_maps_lab::clht_lock_free::LockFreeTable;
use corewise_maps_lab::hopscotch::HopscotchTable;
use corewise_measure::draw::mix;
use rustix::time::{ClockId, clock_gettime};

type Hasher = corewise_maps::relativistic::DefaultHasher;

/// CPU time of the thread in ns.
fn cpu_ns() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}

/// The keys of a round, one list for each thread.
trait Key: Clone + Eq + std::hash::Hash + Send + Sync + 'static {
    const NAME: &'static str;
    fn new(number: u64) -> Self;
}

impl Key for u64 {
    const NAME: &'static str = "u64";
    fn new(number: u64) -> Self {
        number
    }
}

impl Key for String {
    const NAME: &'static str = "string";
    fn new(number: u64) -> Self {
        format!("{number:020}")
    }
}

fn keys<K: Key>(round: u64, threads: u64, entries: u64) -> Vec<Vec<K>> {
    let key = |at: u64| K::new(mix(round << 40 | at));
    let part = |thread: u64| (thread..entries).step_by(threads as usize).map(key);
    (0..threads).map(|thread| part(thread).collect()).collect()
}

/// CPU time in ns of each insertion of all keys, by one thread for each list.
fn fill<K: Key, M: Sync>(map: &M, keys: Vec<Vec<K>>, insert: impl Fn(&M, K) + Sync) -> f64 {
    let entries: usize = keys.iter().map(Vec::len).sum();
    let insert = &insert;
    let work = |keys: Vec<K>| {
        let begin = cpu_ns();
        keys.into_iter().for_each(|key| insert(map, key));
        cpu_ns() - begin
    };
    let cpu: f64 = std::thread::scope(|scope| {
        let threads: Vec<_> = keys
            .into_iter()
            .map(|keys| scope.spawn(move || work(keys)))
            .collect();
        threads.into_iter().map(|t| t.join().unwrap()).sum()
    });
    cpu / entries as f64
}

/// Fills one map of each crate; returns the CPU times per insertion.
fn round<K: Key>(number: u64, threads: u64, entries: u64, capacity: usize) -> Vec<f64> {
    let keys = || keys::<K>(number, threads, entries);
    let check = |len: usize| assert_eq!(len as u64, entries, "insertions were lost");
    let relativistic =
        RelativisticMap::<K, u64, Hasher>::with_capacity_and_hasher(capacity, Hasher::default());
    let papaya =
        papaya::HashMap::<K, u64, Hasher>::with_capacity_and_hasher(capacity, Hasher::default());
    let dashmap =
        dashmap::DashMap::<K, u64, Hasher>::with_capacity_and_hasher(capacity, Hasher::default());
    let scc = scc::HashMap::<K, u64, Hasher>::with_capacity_and_hasher(capacity, Hasher::default());
    let times = vec![
        fill(&relativistic, keys(), |map, key| {
            black_box(map.pin().insert(key, 1));
        }),
        fill(&papaya, keys(), |map, key| {
            black_box(map.pin().insert(key, 1));
        }),
        fill(&dashmap, keys(), |map, key| {
            black_box(map.insert(key, 1));
        }),
        fill(&scc, keys(), |map, key| {
            let _ = black_box(map.insert_sync(key, 1));
        }),
    ];
    check(relativistic.pin().iter().count());
    check(papaya.len());
    check(dashmap.len());
    check(scc.len());
    times
}

const NAMES: [&str; 4] = ["relativistic", "papaya", "dashmap", "scc"];

/// Fills a map of each table whose entries lie in place, and one of dashmap, as [`round`].
fn round_in_place(number: u64, threads: u64, entries: u64, capacity: usize) -> Vec<f64> {
    fn fill_table<T>(keys: Vec<Vec<u64>>, capacity: usize) -> f64
    where
        T: Table<Key = u64, Value = u64> + Send + Sync,
    {
        let entries: usize = keys.iter().map(Vec::len).sum();
        let map = CopyMap::<T, Hasher>::with_capacity_and_hasher(capacity, Hasher::default());
        let time = fill(&map, keys, |map, key| {
            black_box(map.pin().insert(key, 1));
        });
        assert_eq!(map.pin().iter().count(), entries, "insertions were lost");
        time
    }
    let keys = || keys::<u64>(number, threads, entries);
    let dashmap =
        dashmap::DashMap::<u64, u64, Hasher>::with_capacity_and_hasher(capacity, Hasher::default());
    let times = vec![
        fill_table::<LockBasedTable<_, _>>(keys(), capacity),
        fill_table::<LockFreeTable<_, _>>(keys(), capacity),
        fill_table::<CuckooTable<_, _>>(keys(), capacity),
        fill_table::<HopscotchTable<_, _>>(keys(), capacity),
        fill(&dashmap, keys(), |map, key| {
            black_box(map.insert(key, 1));
        }),
    ];
    assert_eq!(dashmap.len() as u64, entries, "insertions were lost");
    times
}

const NAMES_IN_PLACE: [&str; 5] = ["clht-lb", "clht-lf", "cuckoo", "hopscotch", "dashmap"];

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// How a map is filled: by how many threads, with how many entries, and the capacity that it is
/// created with.
#[derive(Clone, Copy)]
struct Cell {
    threads: u64,
    entries: u64,
    capacity: usize,
}

impl Cell {
    fn times(self, round: fn(u64, u64, u64, usize) -> Vec<f64>) -> Vec<Vec<f64>> {
        let rounds = (2_000_000 / self.entries).clamp(5, 100);
        let round = |number| round(number, self.threads, self.entries, self.capacity);
        (0..rounds).map(round).collect()
    }

    fn print_medians(self, key: &str, names: &[&str], times: &[Vec<f64>]) {
        let (threads, entries) = (self.threads, self.entries);
        let begins = match self.capacity {
            0 => "empty",
            _ => "with capacity",
        };
        print!("{key}, {threads} threads, {entries}, {begins}:");
        for (at, name) in names.iter().enumerate() {
            let median = median(times.iter().map(|round| round[at]).collect());
            print!(" {name} {median:.0}");
        }
    }
}

/// Prints how often table `one` is as fast as `other`, from the times of the rounds.
fn print_ratio(times: &[Vec<f64>], one: usize, other: usize, text: &str) {
    let ratios: Vec<f64> = times
        .iter()
        .map(|round| round[other] / round[one])
        .collect();
    let least = ratios.iter().copied().fold(f64::INFINITY, f64::min);
    let most = ratios.iter().copied().fold(0.0, f64::max);
    print!("; {:.2} x {text} [{least:.2}, {most:.2}]", median(ratios));
}

fn row<K: Key>(cell: Cell) {
    let times = cell.times(round::<K>);
    cell.print_medians(K::NAME, &NAMES, &times);
    for (at, name) in NAMES.iter().enumerate().skip(1) {
        print_ratio(&times, 0, at, name);
    }
    println!();
}

fn row_in_place(cell: Cell) {
    let times = cell.times(round_in_place);
    cell.print_medians("u64", &NAMES_IN_PLACE, &times);
    let dashmap = NAMES_IN_PLACE.len() - 1;
    for (at, name) in NAMES_IN_PLACE.iter().enumerate().take(dashmap) {
        print_ratio(&times, at, dashmap, &format!("dashmap ({name})"));
    }
    println!();
}

fn main() {
    let mut arguments = std::env::args().skip(1).peekable();
    let is_short = arguments.next_if_eq("short").is_some();
    let mut arguments = arguments.map(|argument| {
        let number = argument.replace('_', "").parse::<u64>();
        number.unwrap_or_else(|_| panic!("{argument} is not a number of threads or entries"))
    });
    let threads = arguments.next().unwrap_or(1).max(1);
    let sizes: Vec<u64> = arguments.collect();
    let sizes = match sizes[..] {
        [] => vec![1_000, 100_000, 1_000_000],
        _ => sizes,
    };
    println!("CPU ns per insertion, and the speed of relativistic over that of the others, or of");
    println!("the tables with entries in place over that of dashmap");
    println!("allocator: the system's; papaya 0.2, dashmap 6, scc 3");
    for &entries in &sizes {
        for capacity in [0, entries as usize] {
            let cell = Cell {
                threads,
                entries,
                capacity,
            };
            if is_short {
                if capacity == 0 {
                    row::<u64>(cell);
                }
                continue;
            }
            row::<u64>(cell);
            row::<String>(cell);
            row_in_place(cell);
        }
    }
}
