//! Measures how long single updates wait while a map grows from 2^10 buckets. For comparison, it
//! measures the same updates of a map that already has its size, and an empty loop, which shows
//! what the machine takes away.
//!
//! ```text
//! cargo run --release -p corewise-maps --example longest_wait -- [TABLE [ROUNDS [ENTRIES]]]
//! ```
//!
//! TABLE is `relativistic` (the default), `clht-lb`, `clht-lf`, `hopscotch` or `cuckoo`. The
//! default of ENTRIES is what 2^24 buckets of the relativistic table hold, 12 582 912.
//!
//! Two threads run: one inserts new keys until the map has ENTRIES entries; the other inserts and
//! removes its own keys. Every call is timed; the clock is read once between two calls. The empty
//! loop runs as long as the growth took, so that it is interrupted equally often; the map that
//! already has its size is filled and emptied repeatedly for the same time.
//!
//! The output per kind is: calls, percentiles, the longest call, and the number of calls over 100
//! µs and over 1 ms, first by the clock, then by the CPU time of the thread, which excludes what
//! other threads took. For the growth calls with the most CPU time it also lists what happened in
//! them: the change in bytes of buckets (a successor, or a table that was freed; the other thread's
//! included), and the number of pages that the system mapped. At the end come the medians of all
//! rounds.

use std::hint::black_box;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use corewise_maps::RelativisticMap;
use corewise_maps::clht::LockBasedTable;
use corewise_maps::copy_map::{CopyMap, Table};
use corewise_maps::cuckoo::CuckooTable;
use corewise_maps_lab::clht_lock_free::LockFreeTable;
use corewise_maps_lab::hopscotch::HopscotchTable;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

const FROM_LOG2: u32 = 10;
/// Number of keys of the thread that inserts and removes its own.
const KEYS: u64 = 1_000;
/// Number of calls with the most CPU time that are listed.
const TOP: usize = 10;

/// A map whose updates are timed.
trait MeasuredTable: Sync {
    fn with_buckets(buckets: usize) -> Self;
    fn with_room(entries: u64) -> Self;
    fn insert(&self, key: u64, value: u64);
    fn remove(&self, key: u64);
    fn contains(&self, key: u64) -> bool;
    /// Bytes of buckets, if the map counts them.
    fn bytes(&self) -> usize;
}

impl<T: Table<Key = u64, Value = u64> + Send + Sync> MeasuredTable for CopyMap<T> {
    fn with_buckets(buckets: usize) -> Self {
        CopyMap::with_buckets(buckets)
    }
    fn with_room(entries: u64) -> Self {
        CopyMap::with_capacity(entries as usize + KEYS as usize)
    }
    fn insert(&self, key: u64, value: u64) {
        self.pin().insert(key, value);
    }
    fn remove(&self, key: u64) {
        self.pin().remove(&key);
    }
    fn contains(&self, key: u64) -> bool {
        self.pin().contains_key(&key)
    }
    fn bytes(&self) -> usize {
        self.bytes()
    }
}

impl MeasuredTable for RelativisticMap<u64, u64> {
    fn with_buckets(buckets: usize) -> Self {
        Self::builder().buckets(buckets).build()
    }
    fn with_room(entries: u64) -> Self {
        let map = Self::with_capacity(entries as usize);
        map.reserve(entries as usize).expect("memory");
        map
    }
    fn insert(&self, key: u64, value: u64) {
        self.pin().insert(key, value);
    }
    fn remove(&self, key: u64) {
        self.pin().remove(&key);
    }
    fn contains(&self, key: u64) -> bool {
        self.pin().contains_key(&key)
    }
    fn bytes(&self) -> usize {
        0
    }
}

/// A histogram of times with sixteen steps per power of two: exact to 6 %.
struct Times {
    steps: Vec<u64>,
    longest_ns: u64,
    over: [u64; 2],
}

impl Times {
    fn new() -> Self {
        Self {
            steps: vec![0; 64 * 16],
            longest_ns: 0,
            over: [0; 2],
        }
    }

    fn note(&mut self, ns: u64) {
        let log2 = (ns | 16).ilog2();
        let step = log2 as usize * 16 + ((ns | 16) >> (log2 - 4) & 15) as usize;
        self.steps[step] += 1;
        self.longest_ns = self.longest_ns.max(ns);
        self.over[0] += u64::from(ns > 100_000);
        self.over[1] += u64::from(ns > 1_000_000);
    }

    fn count(&self) -> u64 {
        self.steps.iter().sum()
    }

    /// In microseconds, rounded up.
    fn percentile(&self, share: f64) -> f64 {
        let wanted = (self.count() as f64 * share) as u64;
        let mut seen = 0;
        let step = self.steps.iter().position(|count| {
            seen += count;
            seen > wanted
        });
        let step = step.unwrap_or(0);
        let (log2, sixteenth) = (step / 16, step % 16 + 1);
        (16 + sixteenth) as f64 * 2f64.powi(log2 as i32 - 4) / 1e3
    }

    fn line(&self, what: &str) {
        println!(
            "{what} | {} | {:.2} | {:.2} | {:.1} | {:.0} | {} | {}",
            self.count(),
            self.percentile(0.5),
            self.percentile(0.999),
            self.percentile(0.9999),
            self.longest_ns as f64 / 1e3,
            self.over[0],
            self.over[1],
        );
    }
}

/// The times of a thread's calls, and details of the calls with the most CPU time.
struct Calls {
    wall: Times,
    own: Times,
    top: Vec<Call>,
}

#[derive(Clone, Copy)]
struct Call {
    turn: u64,
    wall_ns: u64,
    own_ns: u64,
    bytes: isize,
    faults: i64,
}

/// What is read between two calls.
#[derive(Clone, Copy)]
struct Point {
    at: Instant,
    own_ns: u64,
    faults: i64,
    bytes: usize,
}

impl Point {
    fn now(map: &impl MeasuredTable) -> Self {
        let mut own = libc::timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        // SAFETY: all bytes zero are a value of it.
        let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
        // SAFETY: both write to the given pointers, which are valid.
        unsafe {
            libc::getrusage(libc::RUSAGE_THREAD, &mut usage);
            libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut own);
        }
        Self {
            at: Instant::now(),
            own_ns: own.tv_sec as u64 * 1_000_000_000 + own.tv_nsec as u64,
            faults: usage.ru_minflt,
            bytes: map.bytes(),
        }
    }
}

impl Calls {
    fn note(&mut self, turn: u64, from: Point, to: Point) {
        let call = Call {
            turn,
            wall_ns: (to.at - from.at).as_nanos() as u64,
            own_ns: to.own_ns - from.own_ns,
            bytes: to.bytes.wrapping_sub(from.bytes).cast_signed(),
            faults: to.faults - from.faults,
        };
        self.wall.note(call.wall_ns);
        self.own.note(call.own_ns);
        if self.top.len() < TOP || call.own_ns > self.top[TOP - 1].own_ns {
            let place = self
                .top
                .partition_point(|other| other.own_ns >= call.own_ns);
            self.top.insert(place, call);
            self.top.truncate(TOP);
        }
    }

    fn lines(&self, what: &str) {
        self.wall.line(what);
        self.own.line(&format!("{what}, own time"));
    }

    fn top_lines(&self) {
        println!("  own time | by the clock | call | KiB more | pages");
        for call in &self.top {
            let us = |ns: u64| ns as f64 / 1e3;
            println!(
                "  {:.0} | {:.0} | {} | {:.1} | {}",
                us(call.own_ns),
                us(call.wall_ns),
                call.turn,
                call.bytes as f64 / 1024.0,
                call.faults,
            );
        }
    }
}

/// Calls `call` until it returns false, and times each call.
fn timed(map: &impl MeasuredTable, mut call: impl FnMut(u64) -> bool) -> Calls {
    let mut calls = Calls {
        wall: Times::new(),
        own: Times::new(),
        top: Vec::with_capacity(TOP + 1),
    };
    let mut before = Point::now(map);
    for turn in 0.. {
        let go_on = call(turn);
        let now = Point::now(map);
        calls.note(turn, before, now);
        before = now;
        if !go_on {
            break;
        }
    }
    calls
}

/// The work of the two threads.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Work {
    /// Insert `entries` entries.
    Grow,
    /// Insert and remove them for this long.
    Refill(Duration),
    /// Do nothing for this long.
    Nothing(Duration),
}

/// Runs both threads; returns the times of their calls, and the total time.
fn run(map: &impl MeasuredTable, entries: u64, work: Work) -> ([Calls; 2], Duration) {
    let (start, stop) = (Barrier::new(2), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let other = scope.spawn(|| {
            let mut rng = SmallRng::seed_from_u64(1);
            start.wait();
            timed(map, |turn| {
                let key = 1 << 40 | rng.random_range(0..KEYS);
                match work {
                    Work::Nothing(_) => _ = black_box(key),
                    _ if turn % 2 == 0 => map.insert(key, turn),
                    _ => map.remove(key),
                }
                !stop.load(Relaxed)
            })
        });
        start.wait();
        let begun = Instant::now();
        let inserts = timed(map, |turn| match work {
            Work::Grow => {
                map.insert(turn, turn);
                turn + 1 < entries
            }
            Work::Refill(time) => {
                let key = turn % entries;
                if (turn / entries).is_multiple_of(2) {
                    map.insert(key, turn);
                } else {
                    map.remove(key);
                }
                turn % 1024 != 0 || begun.elapsed() < time
            }
            Work::Nothing(time) => {
                // About as long as an insertion.
                (0..100).for_each(|n| _ = black_box(n));
                turn % 1024 != 0 || begun.elapsed() < time
            }
        });
        let took = begun.elapsed();
        stop.store(true, Relaxed);
        ([inserts, other.join().expect("it does not panic")], took)
    })
}

/// An empty map that has held `entries` entries, so its memory is mapped.
fn filled<M: MeasuredTable>(entries: u64) -> M {
    let map = M::with_room(entries);
    (0..entries).for_each(|key| map.insert(key, 0));
    (0..entries).for_each(|key| map.remove(key));
    map
}

fn median(mut all: Vec<f64>) -> f64 {
    all.sort_by(f64::total_cmp);
    all[all.len() / 2]
}

fn measure<M: MeasuredTable>(rounds: u64, entries: u64) {
    println!("from 2^{FROM_LOG2} buckets to {entries} entries, times in µs");
    println!("what | calls | p50 | p99.9 | p99.99 | longest | over 100 µs | over 1 ms");
    // By the clock, and by CPU time.
    let mut longest = [const { [Vec::new(), Vec::new()] }; 3];
    for _ in 0..rounds {
        let mut time = Duration::ZERO;
        for (kind, longest) in longest.iter_mut().enumerate() {
            let (what, map, work) = match kind {
                0 => ("growing", M::with_buckets(1 << FROM_LOG2), Work::Grow),
                1 => ("its size already", filled(entries), Work::Refill(time)),
                _ => ("nothing", M::with_buckets(1), Work::Nothing(time)),
            };
            let ([inserts, others], took) = run(&map, entries, work);
            inserts.lines(&format!("{what}: one thread"));
            if work == Work::Grow {
                time = took;
                inserts.top_lines();
                let mut some = (0..entries).step_by(997);
                assert!(some.all(|key| map.contains(key)));
            }
            others.lines(&format!("{what}: the other"));
            let most = |of: fn(&Calls) -> u64| of(&inserts).max(of(&others)) as f64 / 1e3;
            longest[0].push(most(|calls| calls.wall.longest_ns));
            longest[1].push(most(|calls| calls.own.longest_ns));
        }
    }
    let medians = longest.map(|all| all.map(median));
    println!(
        "longest by the clock and of own time, medians of {rounds} rounds, growing, at its size, nothing: {medians:.0?}"
    );
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let table = arguments.next().unwrap_or_else(|| "relativistic".into());
    let mut number = |default: u64| {
        let argument = arguments.next();
        argument.map_or(default, |text| text.parse().expect("a number"))
    };
    let (rounds, entries) = (number(3), number((1 << 24) / 4 * 3));
    match &*table {
        "relativistic" => measure::<RelativisticMap<u64, u64>>(rounds, entries),
        "clht-lb" => measure::<CopyMap<LockBasedTable<u64, u64>>>(rounds, entries),
        "clht-lf" => measure::<CopyMap<LockFreeTable<u64, u64>>>(rounds, entries),
        "hopscotch" => measure::<CopyMap<HopscotchTable<u64, u64>>>(rounds, entries),
        "cuckoo" => measure::<CopyMap<CuckooTable<u64, u64>>>(rounds, entries),
        _ => panic!("no table {table}"),
    }
}
