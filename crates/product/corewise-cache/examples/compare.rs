//! Speed of hits and hit ratios beside moka and quick_cache, with the defaults of each.
//!
//! `cargo run --release -p corewise-cache --example compare`. Runs of the caches alternate. Each
//! figure is the median, with the least and the greatest.

use std::hint::black_box;
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use corewise_cache::Cache;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use rand_distr::{Distribution, Zipf};

const ROUNDS: usize = 9;
const SEEDS: u64 = 3;
const HIT_KEYS: u64 = 10_000;
const HIT_TIME: Duration = Duration::from_millis(200);
const FOOTPRINT: u64 = 500_000;
const REQUESTS: usize = 2_000_000;

trait Rival: Sync {
    fn get(&self, key: u64) -> Option<u64>;
    fn insert(&self, key: u64, value: u64);
}

impl Rival for Cache<u64, u64> {
    fn get(&self, key: u64) -> Option<u64> {
        self.get(&key)
    }

    fn insert(&self, key: u64, value: u64) {
        let _fits = self.insert(key, value);
    }
}

impl Rival for moka::sync::Cache<u64, u64> {
    fn get(&self, key: u64) -> Option<u64> {
        self.get(&key)
    }

    fn insert(&self, key: u64, value: u64) {
        self.insert(key, value);
    }
}

impl Rival for quick_cache::sync::Cache<u64, u64> {
    fn get(&self, key: u64) -> Option<u64> {
        self.get(&key)
    }

    fn insert(&self, key: u64, value: u64) {
        self.insert(key, value);
    }
}

type Make = fn(u64) -> Box<dyn Rival>;

fn with_time_to_live(entries: u64) -> Box<dyn Rival> {
    let hour = Duration::from_secs(3600);
    Box::new(Cache::builder(entries).time_to_live(hour).build())
}

const RIVALS: [(&str, Make); 4] = [
    ("corewise-cache", |n| Box::new(Cache::new(n))),
    ("corewise-cache, time to live", with_time_to_live),
    ("quick_cache", |n| {
        Box::new(quick_cache::sync::Cache::new(n as usize))
    }),
    ("moka", |n| Box::new(moka::sync::Cache::new(n))),
];

/// Millions of hits a second, of all threads together.
fn hits(cache: &dyn Rival, threads: u64) -> f64 {
    (0..HIT_KEYS).for_each(|key| cache.insert(key, key));
    let start = Barrier::new(threads as usize);
    let work = |seed| {
        let mut rng = SmallRng::seed_from_u64(seed);
        start.wait();
        let (began, mut done) = (Instant::now(), 0_u64);
        while began.elapsed() < HIT_TIME {
            for _ in 0..1000 {
                black_box(cache.get(rng.random_range(0..HIT_KEYS)));
            }
            done += 1000;
        }
        done as f64 / began.elapsed().as_secs_f64() / 1e6
    };
    thread::scope(|scope| {
        let all: Vec<_> = (0..threads)
            .map(|seed| scope.spawn(move || work(seed)))
            .collect();
        all.into_iter()
            .map(|one| one.join().expect("no panic"))
            .sum()
    })
}

/// Keys drawn from a Zipf distribution; with scans, every fourth block of requests asks for keys
/// that occur once.
fn trace(exponent: f64, scans: bool, seed: u64) -> Vec<u64> {
    let zipf = Zipf::new(FOOTPRINT as f64, exponent).expect("the exponent is positive");
    let mut rng = SmallRng::seed_from_u64(seed);
    let key = |at: usize| {
        if scans && at / 20_000 % 4 == 3 {
            return FOOTPRINT + 1 + at as u64;
        }
        zipf.sample(&mut rng) as u64
    };
    (0..REQUESTS).map(key).collect()
}

/// The share of hits in the second half of the trace.
fn hit_ratio(cache: &dyn Rival, trace: &[u64]) -> f64 {
    let mut hits = 0;
    for (at, key) in trace.iter().enumerate() {
        match cache.get(*key) {
            Some(_) => hits += usize::from(at >= trace.len() / 2),
            None => cache.insert(*key, *key),
        }
    }
    hits as f64 / (trace.len() / 2) as f64
}

fn show(figures: &mut [f64], digits: usize) -> String {
    figures.sort_by(f64::total_cmp);
    let (least, greatest) = (figures[0], figures[figures.len() - 1]);
    let median = figures[figures.len() / 2];
    format!("{median:.digits$} ({least:.digits$}-{greatest:.digits$})")
}

fn compare_hits() {
    println!("Millions of hits a second: 1 thread | 2 threads | 2 threads / 1 thread");
    let mut figures = [const { [const { Vec::new() }; 3] }; RIVALS.len()];
    for _ in 0..ROUNDS {
        for ((_, make), figures) in RIVALS.iter().zip(&mut figures) {
            let cache = make(2 * HIT_KEYS);
            let (one, two) = (hits(&*cache, 1), hits(&*cache, 2));
            figures[0].push(one);
            figures[1].push(two);
            figures[2].push(two / one);
        }
    }
    for ((name, _), figures) in RIVALS.iter().zip(&mut figures) {
        let [one, two, ratio] = figures.each_mut().map(|figures| show(figures, 2));
        println!("{name} | {one} | {two} | {ratio}");
    }
}

fn compare_hit_ratios() {
    for (name, exponent, scans) in [
        ("zipf 0.8", 0.8, false),
        ("zipf 1.0", 1.0, false),
        ("zipf 1.0 and scans", 1.0, true),
    ] {
        let traces: Vec<_> = (0..SEEDS)
            .map(|seed| trace(exponent, scans, seed))
            .collect();
        for percent in [1, 10] {
            let entries = FOOTPRINT * percent / 100;
            for (rival, make) in RIVALS.iter().filter(|(name, _)| !name.contains("live")) {
                let ratio = |trace: &Vec<u64>| hit_ratio(&*make(entries), trace);
                let mut ratios: Vec<f64> = traces.iter().map(ratio).collect();
                println!(
                    "{name}, room for {percent} % | {rival} | {}",
                    show(&mut ratios, 4)
                );
            }
        }
    }
}

fn main() {
    compare_hits();
    compare_hit_ratios();
}
