//! How long single updates wait while a map grows from 2^10 to 2^24 buckets, beside the same updates of a map
//! that has its size already, and beside a loop that does nothing: what the machine takes away.
//!
//! ```text
//! cargo run --release -p corewise-maps --example longest_wait -- [LOG2 [ROUNDS]]
//! ```
//!
//! Two threads: one inserts new keys until there are as many as 2^24 buckets hold; the other inserts and
//! removes keys of its own. Every call is timed. Per kind: calls, percentiles, the longest, and how many of a
//! million took more than 100 µs and more than 1 ms. The clock is read once between two calls.

use std::hint::black_box;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Instant;

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
        let of_a_million = |count: u64| count as f64 * 1e6 / self.count().max(1) as f64;
        println!(
            "{what} | {} | {:.2} | {:.2} | {:.1} | {:.0} | {:.2} | {:.3}",
            self.count(),
            self.percentile(0.5),
            self.percentile(0.999),
            self.percentile(0.9999),
            self.longest_ns as f64 / 1e3,
            of_a_million(self.over[0]),
            of_a_million(self.over[1]),
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

/// What both threads' calls took, while `map` comes to have so many entries.
fn run(map: &RelativisticMap<u64, u64>, entries: u64, works: bool) -> [Times; 2] {
    let (start, stop) = (Barrier::new(2), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let other = scope.spawn(|| {
            let mut rng = SmallRng::seed_from_u64(1);
            start.wait();
            timed(|turn| {
                let key = 1 << 40 | rng.random_range(0..1_000);
                if works && turn % 2 == 0 {
                    map.pin().insert(key, turn);
                } else if works {
                    map.pin().remove(&key);
                } else {
                    black_box(key);
                }
                !stop.load(Relaxed)
            })
        });
        start.wait();
        let inserts = timed(|key| {
            if works {
                map.pin().insert(key, key);
            } else {
                // About as long as an insertion.
                (0..100).for_each(|n| {
                    black_box(n);
                });
            }
            key + 1 < entries
        });
        stop.store(true, Relaxed);
        [inserts, other.join().expect("it does not panic")]
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
    println!("from 2^{FROM_LOG2} to 2^{log2} buckets; µs; counts of a million calls");
    println!("what | calls | p50 | p99.9 | p99.99 | longest | over 100 µs | over 1 ms");
    for _ in 0..rounds {
        for (what, buckets, works) in [
            ("growing", 1 << FROM_LOG2, true),
            ("its size already", 1 << log2, true),
            ("nothing", 1, false),
        ] {
            let map = RelativisticMap::builder().buckets(buckets).build();
            if buckets == 1 << log2 {
                // Pages and all.
                map.reserve(entries as usize).expect("memory");
                (0..entries).for_each(|key| {
                    map.pin().insert(key, 0);
                });
                map.pin().clear();
            }
            let [inserts, others] = run(&map, entries, works);
            inserts.line(&format!("{what}: insert"));
            others.line(&format!("{what}: insert or remove beside it"));
            if works {
                let full = map.resize_state().buckets;
                assert!(full >= 1 << log2, "{full} buckets");
                assert!(
                    (0..entries)
                        .step_by(997)
                        .all(|key| map.pin().contains_key(&key))
                );
            }
        }
    }
}
