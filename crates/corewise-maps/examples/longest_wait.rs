//! How long single updates wait while a map grows from 2^10 to 2^24 buckets, beside the same updates of a map
//! that has its size already, and beside a loop that does nothing: what the machine takes away.
//!
//! ```text
//! cargo run --release -p corewise-maps --example longest_wait -- [LOG2 [ROUNDS]]
//! ```
//!
//! Two threads: one inserts new keys until there are as many as 2^24 buckets hold; the other inserts and
//! removes keys of its own. Every call is timed; the clock is read once between two calls. The loop that does
//! nothing goes on for as long as the growth took, so that it is as often interrupted; the map that has its
//! size is filled again and again for as long. Per kind: calls, percentiles, the longest, and how many took
//! more than 100 µs and more than 1 ms; at the end the medians of all rounds' longest.

use std::hint::black_box;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use corewise_maps::RelativisticMap;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

const FROM_LOG2: u32 = 10;

/// Times by powers of two, sixteen steps each: exact to 6 %.
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

/// Calls `call` until it says no, and times each call.
fn timed(mut call: impl FnMut(u64) -> bool) -> Times {
    let mut times = Times::new();
    let mut before = Instant::now();
    for turn in 0.. {
        let go_on = call(turn);
        let now = Instant::now();
        times.note((now - before).as_nanos() as u64);
        before = now;
        if !go_on {
            break;
        }
    }
    times
}

/// What the two threads do.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Work {
    /// Insert so many entries.
    Grow,
    /// Insert and remove them, for so long.
    Refill(Duration),
    /// Nothing, for so long.
    Nothing(Duration),
}

/// What both threads' calls took, and all of it.
fn run(map: &RelativisticMap<u64, u64>, entries: u64, work: Work) -> ([Times; 2], Duration) {
    let (start, stop) = (Barrier::new(2), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let other = scope.spawn(|| {
            let mut rng = SmallRng::seed_from_u64(1);
            start.wait();
            timed(|turn| {
                let key = 1 << 40 | rng.random_range(0..1_000);
                match work {
                    Work::Nothing(_) => _ = black_box(key),
                    _ if turn % 2 == 0 => _ = map.pin().insert(key, turn),
                    _ => _ = map.pin().remove(&key),
                }
                !stop.load(Relaxed)
            })
        });
        start.wait();
        let begun = Instant::now();
        let inserts = timed(|turn| match work {
            Work::Grow => {
                map.pin().insert(turn, turn);
                turn + 1 < entries
            }
            Work::Refill(time) => {
                let key = turn % entries;
                if (turn / entries).is_multiple_of(2) {
                    map.pin().insert(key, turn);
                } else {
                    map.pin().remove(&key);
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

fn main() {
    let mut arguments = std::env::args().skip(1);
    let mut number = |default: u32| {
        arguments
            .next()
            .map_or(default, |text| text.parse().expect("a number"))
    };
    let (log2, rounds) = (number(24), number(3));
    let entries = (1u64 << log2) / 4 * 3;
    println!("from 2^{FROM_LOG2} to 2^{log2} buckets, times in µs");
    println!("what | calls | p50 | p99.9 | p99.99 | longest | over 100 µs | over 1 ms");
    let mut longest = [const { Vec::new() }; 3];
    for _ in 0..rounds {
        let mut time = Duration::ZERO;
        for (kind, longest) in longest.iter_mut().enumerate() {
            let (what, buckets, work) = [
                ("growing", 1 << FROM_LOG2, Work::Grow),
                ("its size already", 1 << log2, Work::Refill(time)),
                ("nothing", 1, Work::Nothing(time)),
            ][kind];
            let map = RelativisticMap::builder().buckets(buckets).build();
            if let Work::Refill(_) = work {
                // Pages and all.
                map.reserve(entries as usize).expect("memory");
                (0..entries).for_each(|key| _ = map.pin().insert(key, 0));
                map.pin().clear();
            }
            let ([inserts, others], took) = run(&map, entries, work);
            if work == Work::Grow {
                time = took;
                assert!(map.resize_state().buckets >= 1 << log2);
                let mut some = (0..entries).step_by(997);
                assert!(some.all(|key| map.pin().contains_key(&key)));
            }
            inserts.line(&format!("{what}: one thread"));
            others.line(&format!("{what}: the other"));
            longest.push(inserts.longest_ns.max(others.longest_ns));
        }
    }
    let medians = longest.map(|mut all| {
        all.sort_unstable();
        all[all.len() / 2] as f64 / 1e3
    });
    println!("longest, median of {rounds} rounds, growing, at its size, nothing: {medians:.0?}");
}
