//! Service times of single operations while a cache grows, evicts and expires, compared with the
//! same operations while it does not: the engine's contribution to the tail, without a network, a
//! second process or a queue.
//!
//! ```text
//! cargo run --release -p corewise-cache --example tail -- [relativistic|locked] [ITEMS [ROUNDS]]
//! ```
//!
//! One thread alternates sets and gets, and lets the engine do its housekeeping after every 32
//! pairs, as an event loop does; the time for that is counted with the next set. Each row has a
//! measurement *during* and a *steady* one in the same engine, with sets of keys that are already
//! present. Figures are medians of the rounds (default 3). Time that the machine takes from the
//! thread is in both. Every value found is compared with the expected one.

use std::sync::Arc;
use std::time::Instant;

use corewise_cache::engines::{locked, relativistic};
use corewise_cache::{Engine, Session};
use corewise_ops::{
    Deadline, Flow, Get, Now, Op, Outcome, ReplySink, Store, StoreMode, Token, Verb,
};
use hdrhistogram::Histogram;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

const QUANTILES: [f64; 3] = [0.99, 0.999, 0.9999];
const VALUE_BYTES: usize = 32;
const PAIRS_PER_TURN: u64 = 32;

/// The outcome of the last operation.
#[derive(Default)]
struct Last {
    stored: bool,
    stamp: Option<u64>,
}

impl ReplySink for Last {
    fn complete(&mut self, _: Token, outcome: Outcome<'_>) -> Flow {
        match outcome {
            Outcome::Stored(_) => self.stored = true,
            Outcome::Found(view) => {
                self.stamp = view
                    .value
                    .first_chunk()
                    .map(|word| u64::from_le_bytes(*word));
            }
            _ => {}
        }
        Flow::Continue
    }
}

struct Client<E: Engine> {
    engine: Arc<E>,
    session: E::Session,
    begun: Instant,
    rng: SmallRng,
    pairs: u64,
}

/// Times of sets and of gets, in nanoseconds.
struct Times([Histogram<u64>; 2]);

impl Times {
    fn new() -> Self {
        // Up to ten seconds.
        let new = || Histogram::new_with_bounds(1, 10_000_000_000, 3).expect("three digits");
        Self([new(), new()])
    }

    fn quantiles(&self) -> [[f64; 3]; 2] {
        [0, 1].map(|kind| QUANTILES.map(|q| self.0[kind].value_at_quantile(q) as f64 / 1e3))
    }
}

impl<E: Engine> Client<E> {
    fn new(engine: E, seed: u64) -> Self {
        let engine = Arc::new(engine);
        Self {
            session: engine.session(),
            engine,
            begun: Instant::now(),
            rng: SmallRng::seed_from_u64(seed),
            pairs: 0,
        }
    }

    fn now(&self) -> Now {
        let ms = 10_000 + self.begun.elapsed().as_millis() as u64;
        Now {
            ms,
            unix_s: 1_700_000_000 + ms / 1_000,
        }
    }

    fn run(&mut self, now: Now, key: u64, verb: Verb<'_>) -> Last {
        let key = key.to_le_bytes();
        let mut last = Last::default();
        let ops = [Op {
            token: 0,
            key: &key,
            verb,
        }];
        assert_eq!(self.session.submit(now, &ops, &mut last), 1);
        last
    }

    fn set(&mut self, now: Now, key: u64, deadline: Deadline) {
        let mut value = [b'v'; VALUE_BYTES];
        value[..8].copy_from_slice(&key.to_le_bytes());
        let store = Store {
            mode: StoreMode::Set,
            value: &value,
            client_flags: 0,
            deadline,
            compare_cas: None,
            stale_if_older: false,
            new_cas: None,
            vivify: None,
        };
        assert!(self.run(now, key, Verb::Store(store)).stored);
    }

    /// Measures `pairs` pairs: a set of the key that `key` gives, and a get of any of `known` keys.
    fn measure(
        &mut self,
        pairs: u64,
        mut key: impl FnMut(u64, &mut SmallRng) -> u64,
        known: impl Fn(u64) -> u64,
    ) -> Times {
        let mut times = Times::new();
        let mut now = self.now();
        for pair in 0..pairs {
            let set_key = key(pair, &mut self.rng);
            let got_key = self.rng.random_range(0..known(pair).max(1));
            let start = Instant::now();
            if self.pairs.is_multiple_of(PAIRS_PER_TURN) {
                now = self.now();
                self.session.maintain(now);
            }
            self.pairs += 1;
            self.set(now, set_key, Deadline::NEVER);
            let middle = Instant::now();
            let seen = self.run(now, got_key, Verb::Get(Get::default()));
            let end = Instant::now();
            assert!(
                seen.stamp.is_none_or(|stamp| stamp == got_key),
                "another key's value"
            );
            times.0[0].saturating_record((middle - start).as_nanos() as u64);
            times.0[1].saturating_record((end - middle).as_nanos() as u64);
        }
        times
    }

    fn steady(&mut self, pairs: u64, keys: u64) -> Times {
        self.measure(pairs, |_, rng| rng.random_range(0..keys), |_| keys)
    }
}

type Rounds = Vec<[Times; 2]>;

fn grow<E: Engine>(make: &impl Fn(u64) -> E, items: u64, rounds: u64) -> Rounds {
    let one = |round| {
        let mut client = Client::new(make(items * 128 + (64 << 20)), round);
        let during = client.measure(items, |pair, _| pair, |pair| pair);
        let steady = client.steady(items / 5, items);
        assert_eq!(client.engine.stats().items, items, "nothing was evicted");
        [during, steady]
    };
    (0..rounds).map(one).collect()
}

fn evict<E: Engine>(make: &impl Fn(u64) -> E, items: u64, rounds: u64) -> Rounds {
    let one = |round| {
        let mut client = Client::new(make(items * 12), round);
        let fits = items / 20;
        client.measure(fits, |pair, _| pair, |pair| pair);
        let steady = client.steady(items / 5, fits);
        client.measure(items / 5, |pair, _| fits + pair, |_| fits);
        let from = fits + items / 5;
        let during = client.measure(items / 5, |pair, _| from + pair, |pair| from + pair);
        assert!(client.engine.stats().evictions > items / 10);
        [during, steady]
    };
    (0..rounds).map(one).collect()
}

fn expire<E: Engine>(make: &impl Fn(u64) -> E, items: u64, rounds: u64) -> Rounds {
    let one = |round| {
        let mut client = Client::new(make(items * 128), round);
        let (doomed, kept) = (items / 10, items / 10);
        client.measure(kept, |pair, _| pair, |pair| pair);
        let steady = client.steady(items / 10, kept);
        // All expire in the same second, when all of them are stored.
        let at = Deadline::at_ms(client.now().ms + 5_000 + items / 2_000);
        for key in 0..doomed {
            let now = client.now();
            client.set(now, kept + key, at);
        }
        while !at.is_past(client.now()) {
            client.steady(1_000, kept);
        }
        let mut during = Times::new();
        while client.engine.stats().items > kept {
            let part = client.steady(PAIRS_PER_TURN * 100, kept);
            for (all, part) in during.0.iter_mut().zip(&part.0) {
                all.add(part).expect("of one make");
            }
            assert!(during.0[0].len() < 100 * items, "expired items are found");
        }
        [during, steady]
    };
    (0..rounds).map(one).collect()
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn print(row: &str, rounds: &Rounds) {
    for (kind, name) in ["set", "get"].iter().enumerate() {
        let mut line = format!("{row} | {name}");
        for q in 0..QUANTILES.len() {
            let of = |part: usize, round: &[Times; 2]| round[part].quantiles()[kind][q];
            let all = |part: usize| median(rounds.iter().map(|round| of(part, round)).collect());
            let mut ratios: Vec<f64> = rounds
                .iter()
                .map(|round| of(0, round) / of(1, round))
                .collect();
            ratios.sort_by(f64::total_cmp);
            let (least, most) = (ratios[0], ratios[ratios.len() - 1]);
            line += &format!(
                " | {:.2} {:.2} {:.2} [{least:.2}-{most:.2}]",
                all(1),
                all(0),
                median(ratios)
            );
        }
        println!("{line}");
    }
}

fn rows<E: Engine>(name: &str, make: &impl Fn(u64) -> E, items: u64, rounds: u64) {
    println!("engine {name}; {items} items in grow; {rounds} rounds; µs");
    println!("row | operation | p99 steady, during, ratio [range] | p99.9 | p99.99");
    print("grow", &grow(make, items, rounds));
    print("evict", &evict(make, items, rounds));
    print("expire", &expire(make, items, rounds));
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let engine = arguments.next().unwrap_or_else(|| "relativistic".into());
    let mut number = |default| {
        arguments
            .next()
            .map_or(default, |text| text.parse().expect("a number"))
    };
    let (items, rounds) = (number(10_000_000), number(3).max(1));
    match &*engine {
        "relativistic" => {
            let make = |memory| {
                let config = relativistic::Config {
                    memory,
                    ..relativistic::Config::default()
                };
                relativistic::Relativistic::try_new(config).expect("memory")
            };
            rows("relativistic", &make, items, rounds);
        }
        "locked" => {
            let make = |memory| -> locked::Locked {
                locked::Locked::new(locked::Config {
                    memory,
                    ..locked::Config::default()
                })
            };
            rows("locked", &make, items, rounds);
        }
        other => panic!("no engine '{other}': relativistic or locked"),
    }
}
