//! Generated cache traces: from a seed to requests with a key, the size of its value, its time to
//! live and a virtual time. The same configuration gives the same requests on every machine.
//!
//! A trace is meant to be replayed *cache-aside*: a [`RequestKind::Fetch`] looks the key up and, on
//! a miss, stores the value; a [`RequestKind::Overwrite`] stores without a lookup.
//!
//! | trace | what it stresses |
//! |---|---|
//! | `zipf[:A]` | nothing: popularity never changes |
//! | `zipf-scan[:A]` | recency: in every second stretch every other request scans keys that occur only once |
//! | `short-ttl[:A]` | memory held by expired items: four keys of five live 1 to 30 s |
//! | `size-shift[:A]` | memory bound to a size: sizes, and with them all keys, change twice |
//! | `correlated[:small\|large]` | policies that ignore size: popular keys are small (or large) |
//! | `drift[:A]` | frequency: each rank passes to a new key from time to time |
//! | `turnover` | the memory itself: each request stores a new key, and sizes change twice |
//!
//! Except in `turnover`, key `k` has rank `k % keys`; 0 is the most popular. Size and time to live
//! are functions of the model and the key alone. Sizes follow the generalised Pareto distribution
//! fitted to a large memcached pool (Atikoglu et al., "Workload analysis of a large-scale key-value
//! store", 2012, pool ETC: scale 214.476, shape 0.348, mean 329 bytes), cut at [`MAX_VALUE_BYTES`],
//! unless [`TraceConfig::sizes`] replaces them.

use std::fmt;
use std::str::FromStr;

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::draw::{ZipfRanks, mix, spread};

/// The longest value of any trace whose sizes follow its model.
pub const MAX_VALUE_BYTES: u32 = 32 << 10;
/// Most keys of a population; keys of all phases then fit in 32 bits.
pub const MAX_KEYS: u64 = 1 << 26;
/// Most requests of a trace.
pub const MAX_REQUESTS: u64 = 1 << 36;
/// Times to live of `short-ttl`, in seconds.
pub const SHORT_TTL_S: std::ops::RangeInclusive<u32> = 1..=30;

const EXPONENT: f64 = 1.0;
const PARETO_SCALE: f64 = 214.476;
const PARETO_SHAPE: f64 = 0.348_468;
/// A rank of `drift` keeps its key for this many times `keys` requests.
const DRIFT_LIFE: u64 = 5;
/// Factors of the sizes in the phases of `size-shift`.
const SHIFTS: [f64; 3] = [1.0, 4.0, 0.5];

/// The model of a trace; see the table of this module.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum TraceModel {
    /// A Zipf distribution with this exponent.
    Zipf(f64),
    /// The same, with scans of keys that are never requested again.
    ZipfScan(f64),
    /// The same; most keys have a short time to live.
    ShortTtl(f64),
    /// The same; keys and their sizes change after each third.
    SizeShift(f64),
    /// A Zipf distribution with exponent 1; a key's size depends on its rank.
    Correlated {
        /// Whether popular keys have small values; otherwise large ones.
        popular_small: bool,
    },
    /// A Zipf distribution with this exponent; each rank passes to new keys.
    Drift(f64),
    /// Every request stores a key that did not exist before; sizes change after each third.
    Turnover,
}

/// Why the name of a model cannot be parsed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadTraceModel(String);

impl fmt::Display for BadTraceModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for BadTraceModel {}

impl FromStr for TraceModel {
    type Err = BadTraceModel;

    /// Parses `NAME` or `NAME:PARAM`. An exponent lies between 0.1 and 3.
    fn from_str(text: &str) -> Result<Self, BadTraceModel> {
        let (name, param) = match text.split_once(':') {
            Some((name, param)) => (name, Some(param)),
            None => (text, None),
        };
        Ok(match name {
            "zipf" => Self::Zipf(exponent(param)?),
            "zipf-scan" => Self::ZipfScan(exponent(param)?),
            "short-ttl" => Self::ShortTtl(exponent(param)?),
            "size-shift" => Self::SizeShift(exponent(param)?),
            "drift" => Self::Drift(exponent(param)?),
            "turnover" if param.is_none() => Self::Turnover,
            "correlated" => match param {
                None | Some("small") => Self::Correlated {
                    popular_small: true,
                },
                Some("large") => Self::Correlated {
                    popular_small: false,
                },
                Some(other) => {
                    return Err(BadTraceModel(format!(
                        "'{other}' is neither small nor large"
                    )));
                }
            },
            _ => {
                return Err(BadTraceModel(format!(
                    "no trace '{name}': zipf, zipf-scan, short-ttl, size-shift, correlated, drift or turnover"
                )));
            }
        })
    }
}

impl fmt::Display for TraceModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Zipf(a) => write!(f, "zipf:{a}"),
            Self::ZipfScan(a) => write!(f, "zipf-scan:{a}"),
            Self::ShortTtl(a) => write!(f, "short-ttl:{a}"),
            Self::SizeShift(a) => write!(f, "size-shift:{a}"),
            Self::Drift(a) => write!(f, "drift:{a}"),
            Self::Turnover => f.write_str("turnover"),
            Self::Correlated {
                popular_small: true,
            } => f.write_str("correlated:small"),
            Self::Correlated {
                popular_small: false,
            } => f.write_str("correlated:large"),
        }
    }
}

fn exponent(param: Option<&str>) -> Result<f64, BadTraceModel> {
    let Some(text) = param else {
        return Ok(EXPONENT);
    };
    match text.parse::<f64>() {
        Ok(a) if (0.1..=3.0).contains(&a) => Ok(a),
        _ => Err(BadTraceModel(format!(
            "'{text}' is no exponent between 0.1 and 3"
        ))),
    }
}

/// The operation of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestKind {
    /// Looks the key up and stores the value on a miss.
    Fetch,
    /// Stores the value.
    Overwrite,
}

/// One request of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceRequest {
    /// The key, below [`TraceConfig::key_bound`].
    pub key: u64,
    /// Length of its value, 1 to [`TraceConfig::max_value_bytes`].
    pub value_bytes: u32,
    /// Time to live after being stored, in whole seconds; 0 is unlimited.
    pub ttl_ms: u32,
    /// Virtual time since the start.
    pub at_ms: u64,
    /// The operation.
    pub kind: RequestKind,
}

/// The parameters of a trace.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TraceConfig {
    /// The model.
    pub model: TraceModel,
    /// Number of keys of the population, 1 to [`MAX_KEYS`].
    pub keys: u64,
    /// Number of requests, up to [`MAX_REQUESTS`].
    pub requests: u64,
    /// Requests per second of virtual time, at least 1.
    pub rate_per_s: u64,
    /// The share of overwrites, 0 to 1.
    pub overwrites: f64,
    /// The seed of the draws; sizes and times to live do not depend on it.
    pub seed: u64,
    /// Least and greatest length of values, log-uniform between them, instead of the model's sizes.
    pub sizes: Option<(u32, u32)>,
}

impl Default for TraceConfig {
    /// A million keys, ten million requests, 50 000 a second; one request in thirty overwrites, as
    /// in the pool that the sizes are from.
    fn default() -> Self {
        Self {
            model: TraceModel::Zipf(EXPONENT),
            keys: 1_000_000,
            requests: 10_000_000,
            rate_per_s: 50_000,
            overwrites: 1.0 / 30.0,
            seed: 1,
            sizes: None,
        }
    }
}

impl TraceConfig {
    /// An exclusive upper bound of all keys.
    pub fn key_bound(&self) -> u64 {
        let generations = match self.model {
            TraceModel::SizeShift(_) => SHIFTS.len() as u64,
            TraceModel::Drift(_) => self.requests / (DRIFT_LIFE * self.keys) + 2,
            TraceModel::ZipfScan(_) => return self.keys + self.requests / 2 + 1,
            TraceModel::Turnover => return self.requests,
            _ => 1,
        };
        self.keys * generations
    }

    /// The longest value.
    pub fn max_value_bytes(&self) -> u32 {
        self.sizes.map_or(MAX_VALUE_BYTES, |(_, max)| max)
    }

    /// Length of the value of `key`.
    pub fn value_bytes(&self, key: u64) -> u32 {
        if let Some((min, max)) = self.sizes {
            return spread(mix(key ^ 0x5126 << 40), min, max);
        }
        let noise = unit(mix(key ^ 0x5126 << 40));
        let (quantile, scale) = match self.model {
            TraceModel::SizeShift(_) => (noise, SHIFTS[(key / self.keys) as usize % SHIFTS.len()]),
            TraceModel::Turnover => (noise, SHIFTS[self.phase(key) as usize % SHIFTS.len()]),
            TraceModel::Correlated { popular_small } => {
                let rank = (key % self.keys) as f64 / self.keys as f64;
                let rank = if popular_small { rank } else { 1.0 - rank };
                (0.8 * rank + 0.2 * noise, 1.0)
            }
            _ => (noise, 1.0),
        };
        let tail = (1.0 - quantile).max(f64::EPSILON);
        let bytes = scale * PARETO_SCALE / PARETO_SHAPE * (tail.powf(-PARETO_SHAPE) - 1.0);
        (bytes as u32).clamp(1, MAX_VALUE_BYTES)
    }

    /// The third of the trace that request number `at` is in.
    fn phase(&self, at: u64) -> u64 {
        at * SHIFTS.len() as u64 / self.requests.max(1)
    }

    /// Time to live of the value of `key`; 0 is unlimited.
    pub fn ttl_ms(&self, key: u64) -> u32 {
        let draw = mix(key ^ 0x771 << 40);
        match self.model {
            TraceModel::ShortTtl(_) if !draw.is_multiple_of(5) => {
                let span = SHORT_TTL_S.end() - SHORT_TTL_S.start() + 1;
                1000 * (SHORT_TTL_S.start() + (draw >> 32) as u32 % span)
            }
            _ => 0,
        }
    }
}

/// A number in `[0, 1)` of 53 random bits.
fn unit(bits: u64) -> f64 {
    (bits >> 11) as f64 / (1u64 << 53) as f64
}

/// The requests of a trace. A draw costs about 100 ns.
#[derive(Clone, Debug)]
pub struct Trace {
    config: TraceConfig,
    ranks: ZipfRanks,
    rng: Xoshiro256PlusPlus,
    next: u64,
    scanned: u64,
}

impl Trace {
    /// Begins a trace; clamps `config` to its bounds.
    pub fn new(mut config: TraceConfig) -> Self {
        config.keys = config.keys.clamp(1, MAX_KEYS);
        config.requests = config.requests.min(MAX_REQUESTS);
        config.rate_per_s = config.rate_per_s.max(1);
        let a = match config.model {
            TraceModel::Zipf(a) | TraceModel::ZipfScan(a) | TraceModel::ShortTtl(a) => a,
            TraceModel::SizeShift(a) | TraceModel::Drift(a) => a,
            TraceModel::Correlated { .. } | TraceModel::Turnover => EXPONENT,
        };
        Self {
            config,
            ranks: ZipfRanks::new(config.keys, a).expect("positive exponent, at least one key"),
            rng: Xoshiro256PlusPlus::seed_from_u64(mix(config.seed)),
            next: 0,
            scanned: 0,
        }
    }

    /// The configuration, clamped to its bounds.
    pub fn config(&self) -> &TraceConfig {
        &self.config
    }

    fn rank(&mut self) -> u64 {
        self.ranks.draw(&mut self.rng)
    }

    /// Whether the next request is one of a scan. A scan begins every four times `keys` requests,
    /// is as long as the population, and takes every other request while it lasts.
    fn scans(&self) -> bool {
        let keys = self.config.keys;
        (self.next / (2 * keys)) % 2 == 1 && self.next % 2 == 1
    }

    fn key(&mut self) -> u64 {
        let (keys, at) = (self.config.keys, self.next);
        match self.config.model {
            TraceModel::ZipfScan(_) if self.scans() => {
                self.scanned += 1;
                keys + self.scanned - 1
            }
            TraceModel::SizeShift(_) => self.config.phase(at) * keys + self.rank(),
            TraceModel::Turnover => at,
            TraceModel::Drift(_) => {
                let (rank, life) = (self.rank(), DRIFT_LIFE * keys);
                let generation = (at + mix(rank ^ 0xd81f << 40) % life) / life;
                generation * keys + rank
            }
            _ => self.rank(),
        }
    }
}

impl Iterator for Trace {
    type Item = TraceRequest;

    fn next(&mut self) -> Option<TraceRequest> {
        if self.next == self.config.requests {
            return None;
        }
        let key = self.key();
        let overwrite = self.config.model == TraceModel::Turnover
            || unit(self.rng.random::<u64>()) < self.config.overwrites;
        let request = TraceRequest {
            key,
            value_bytes: self.config.value_bytes(key),
            ttl_ms: self.config.ttl_ms(key),
            at_ms: self.next * 1000 / self.config.rate_per_s,
            kind: if overwrite {
                RequestKind::Overwrite
            } else {
                RequestKind::Fetch
            },
        };
        self.next += 1;
        Some(request)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = (self.config.requests - self.next) as usize;
        (left, Some(left))
    }
}

impl ExactSizeIterator for Trace {}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    const MODELS: [&str; 8] = [
        "zipf:0.8",
        "zipf-scan:1.2",
        "short-ttl:1",
        "size-shift:0.9",
        "correlated:small",
        "correlated:large",
        "drift:1",
        "turnover",
    ];

    fn config(model: &str) -> TraceConfig {
        TraceConfig {
            model: model.parse().expect("a model"),
            keys: 1000,
            requests: 60_000,
            ..TraceConfig::default()
        }
    }

    #[test]
    fn a_seed_gives_one_trace_and_another_seed_another() {
        for model in MODELS {
            let config = config(model);
            assert_eq!(config.model.to_string(), model);
            let first: Vec<_> = Trace::new(config).collect();
            assert_eq!(first.len(), 60_000);
            assert!(first.iter().copied().eq(Trace::new(config)), "{model}");
            let other = Trace::new(TraceConfig { seed: 2, ..config });
            // Nothing is drawn where every key is new.
            let same = config.model == TraceModel::Turnover;
            assert_eq!(first.iter().copied().eq(other), same, "{model}");
        }
    }

    #[test]
    fn keys_sizes_and_times_to_live_stay_in_bounds_and_belong_to_the_key() {
        for model in MODELS {
            let config = config(model);
            let mut last = 0;
            for request in Trace::new(config) {
                assert!(request.key < config.key_bound(), "{model}: {}", request.key);
                assert!((1..=MAX_VALUE_BYTES).contains(&request.value_bytes));
                assert_eq!(request.value_bytes, config.value_bytes(request.key));
                assert_eq!(request.ttl_ms, config.ttl_ms(request.key));
                assert!(request.ttl_ms.is_multiple_of(1000) && request.ttl_ms <= 30_000);
                assert!(request.at_ms >= last);
                last = request.at_ms;
            }
            assert_eq!(last, 59_999 * 1000 / config.rate_per_s);
        }
    }

    #[test]
    fn popularity_follows_the_law() {
        let mut counts = [0u64; 1000];
        for request in Trace::new(config("zipf:0.8")) {
            counts[request.key as usize] += 1;
        }
        let sum: f64 = (1..=1000).map(|r| f64::from(r).powf(-0.8)).sum();
        for rank in [1u32, 2, 3, 10, 100, 1000] {
            let expected = 60_000.0 * f64::from(rank).powf(-0.8) / sum;
            let seen = counts[rank as usize - 1] as f64;
            let tolerance = 5.0 * expected.sqrt();
            assert!(
                (seen - expected).abs() < tolerance,
                "rank {rank}: {seen} for {expected}"
            );
        }
    }

    #[test]
    fn sizes_have_the_mean_of_the_pool() {
        let config = config("zipf");
        let sum: u64 = (0..100_000)
            .map(|key| u64::from(config.value_bytes(key)))
            .sum();
        assert!((310..350).contains(&(sum / 100_000)), "{}", sum / 100_000);
    }

    #[test]
    fn sizes_that_replace_those_of_the_law_are_spread_over_orders_of_magnitude() {
        let config = TraceConfig {
            sizes: Some((50, 200_000)),
            ..config("zipf")
        };
        let mut halves = [0; 2];
        for request in Trace::new(config) {
            assert_eq!(request.value_bytes, config.value_bytes(request.key));
        }
        for key in 0..10_000 {
            let bytes = config.value_bytes(key);
            assert!((50..=200_000).contains(&bytes));
            halves[usize::from(bytes > 3_162)] += 1;
        }
        assert!(
            halves.iter().all(|&n| (4_700..5_300).contains(&n)),
            "{halves:?}"
        );
        let one = TraceConfig {
            sizes: Some((77, 77)),
            ..config
        };
        assert_eq!((one.value_bytes(1), one.max_value_bytes()), (77, 77));
    }

    #[test]
    fn a_scanned_key_comes_once_and_a_scan_is_as_long_as_the_population() {
        let config = config("zipf-scan");
        let scanned: Vec<_> = Trace::new(config)
            .map(|r| r.key)
            .filter(|&k| k >= 1000)
            .collect();
        let distinct: HashSet<_> = scanned.iter().collect();
        assert_eq!(distinct.len(), scanned.len());
        assert_eq!(scanned.len(), 15_000);
        assert!(scanned.is_sorted());
    }

    #[test]
    fn four_keys_of_five_expire_within_half_a_minute() {
        let config = config("short-ttl");
        let short = (0..10_000).filter(|&key| config.ttl_ms(key) != 0).count();
        assert!((7_800..8_200).contains(&short), "{short}");
        let mean = (0..10_000)
            .map(|key| u64::from(config.ttl_ms(key)))
            .sum::<u64>()
            / short as u64;
        assert!((15_000..16_000).contains(&mean), "{mean}");
    }

    #[test]
    fn sizes_and_keys_change_twice() {
        let mut bytes = [0u64; 3];
        for (at, request) in Trace::new(config("size-shift")).enumerate() {
            assert_eq!(request.key / 1000, at as u64 / 20_000);
            bytes[at / 20_000] += u64::from(request.value_bytes);
        }
        assert!(bytes[1] > 2 * bytes[0] && bytes[0] > bytes[2], "{bytes:?}");
    }

    #[test]
    fn turnover_stores_new_keys_only_and_their_sizes_change_twice() {
        let mut bytes = [0u64; 3];
        for (at, request) in Trace::new(config("turnover")).enumerate() {
            assert_eq!(
                (request.key, request.kind),
                (at as u64, RequestKind::Overwrite)
            );
            bytes[at / 20_000] += u64::from(request.value_bytes);
        }
        assert!(bytes[1] > 2 * bytes[0] && bytes[0] > bytes[2], "{bytes:?}");
    }

    #[test]
    fn size_goes_with_popularity_in_both_directions() {
        for (model, grows) in [("correlated", true), ("correlated:large", false)] {
            let config = config(model);
            let sum = |from: u64| -> u64 {
                (from..from + 100)
                    .map(|key| u64::from(config.value_bytes(key)))
                    .sum()
            };
            assert_eq!(sum(900) > 4 * sum(0), grows, "{model}");
            assert_eq!(sum(0) > 4 * sum(900), !grows, "{model}");
        }
    }

    #[test]
    fn ranks_pass_to_new_keys_one_after_the_other() {
        let config = config("drift");
        let keys: HashSet<_> = Trace::new(config).map(|r| r.key).collect();
        let owners = (0..1000).map(|rank| keys.iter().filter(|&k| k % 1000 == rank).count());
        assert!(
            owners.take(10).all(|n| n >= 12),
            "12 lives of 5000 requests"
        );
    }

    #[test]
    fn overwrites_have_their_share() {
        let writes = Trace::new(TraceConfig {
            overwrites: 0.25,
            ..config("zipf")
        })
        .filter(|r| r.kind == RequestKind::Overwrite)
        .count();
        assert!((14_400..15_600).contains(&writes), "{writes}");
    }

    #[test]
    fn bad_laws_are_one_clear_line() {
        for bad in [
            "",
            "zip",
            "zipf:",
            "zipf:0",
            "zipf:x",
            "zipf:4",
            "correlated:1.0",
            "zipf:nan",
        ] {
            let error = bad.parse::<TraceModel>().expect_err(bad).to_string();
            assert!(!error.is_empty() && !error.contains('\n'), "{bad}: {error}");
        }
    }
}
