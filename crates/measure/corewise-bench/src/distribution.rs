//! The distributions of keys (\[CHTBench\] §3.4.2).
//!
//! A distribution draws *ranks*, 0 the most frequent; a permutation maps them to *indices*, so that
//! popular keys are not neighbours; the key map maps indices to *keys*.

use std::fmt;
use std::str::FromStr;

use corewise_measure::draw::{Scramble, ZipfRanks};
use rand::RngExt;
use rand_xoshiro::Xoshiro256PlusPlus;

/// Ranks whose frequencies are computed one by one; the rest are grouped.
const SINGLE_RANKS: u64 = 1 << 14;

/// A distribution of keys.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Distribution {
    /// All keys are equally frequent.
    Uniform,
    /// The frequency of the k-th most frequent key is proportional to k to the power of minus the
    /// exponent.
    Zipf(f64),
    /// A share of the draws goes to a share of the keys, the rest to the others.
    Hotspot {
        /// Share of the draws.
        draws: f64,
        /// Share of the keys.
        keys: f64,
    },
    /// One key.
    Single,
    /// One key after the other; each thread starts at another key.
    Sequential,
}

impl FromStr for Distribution {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let percent = |word: &str| {
            let number: f64 = word.trim_end_matches('%').parse().ok()?;
            (number > 0.0 && number < 100.0).then_some(number / 100.0)
        };
        let hotspot = |(draws, keys)| Self::Hotspot { draws, keys };
        let words: Vec<&str> = text.split(':').collect();
        let known = match words[..] {
            ["uniform"] => Some(Self::Uniform),
            ["single"] => Some(Self::Single),
            ["sequential"] => Some(Self::Sequential),
            ["zipf", exponent] => {
                let exponent = exponent.parse().ok();
                let valid = exponent.filter(|&exponent| exponent > 0.0 && exponent <= 5.0);
                valid.map(Self::Zipf)
            }
            ["hotspot"] => Some(hotspot((0.9, 0.1))),
            ["hotspot", draws, keys] => percent(draws).zip(percent(keys)).map(hotspot),
            _ => None,
        };
        known.ok_or_else(|| {
            format!(
                "unknown distribution `{text}` (uniform, zipf:EXPONENT with 0 < EXPONENT <= 5, \
                 hotspot:DRAWS%:KEYS%, single, sequential)"
            )
        })
    }
}

impl fmt::Display for Distribution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Uniform => f.write_str("uniform"),
            Self::Zipf(exponent) => write!(f, "zipf:{exponent}"),
            Self::Hotspot { draws, keys } => {
                let percent = |share: f64| (share * 1e6).round() / 1e4;
                write!(f, "hotspot:{}%:{}%", percent(*draws), percent(*keys))
            }
            Self::Single => f.write_str("single"),
            Self::Sequential => f.write_str("sequential"),
        }
    }
}

/// Draws keys of a range from a distribution.
#[derive(Clone, Debug)]
pub struct Sampler {
    distribution: Distribution,
    range: u64,
    zipf: Option<ZipfRanks>,
    order: Scramble,
}

/// Keys with the same frequency.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Group {
    /// Number of keys.
    pub keys: u64,
    /// The share of the draws that each key gets.
    pub share: f64,
    /// The index, if the group is one key.
    pub index: Option<u64>,
}

impl Sampler {
    /// A sampler of the indices `0..range`; `range` is at least 1.
    pub fn new(distribution: Distribution, range: u64) -> Self {
        let zipf = match distribution {
            Distribution::Zipf(exponent) => ZipfRanks::new(range, exponent),
            _ => None,
        };
        Self {
            distribution,
            range,
            zipf,
            order: Scramble::new(range),
        }
    }

    /// Returns the distribution.
    pub fn distribution(&self) -> Distribution {
        self.distribution
    }

    /// Draws an index. Takes about 100 ns for a Zipf distribution, so streams are drawn beforehand.
    pub fn draw(&self, rng: &mut Xoshiro256PlusPlus) -> u32 {
        let rank = match self.distribution {
            Distribution::Uniform => return rng.random_range(0..self.range) as u32,
            Distribution::Single | Distribution::Sequential => 0,
            Distribution::Zipf(_) => self.zipf.map_or(0, |ranks| ranks.draw(rng)),
            Distribution::Hotspot { draws, .. } => {
                let hot = self.hot();
                if rng.random::<f64>() < draws || hot == self.range {
                    rng.random_range(0..hot)
                } else {
                    rng.random_range(hot..self.range)
                }
            }
        };
        self.order.apply(rank) as u32
    }

    /// Returns the number of keys of the hot spot, at least one.
    fn hot(&self) -> u64 {
        match self.distribution {
            Distribution::Hotspot { keys, .. } => {
                ((self.range as f64 * keys).round() as u64).clamp(1, self.range)
            }
            _ => self.range,
        }
    }

    /// Returns the frequencies of all keys.
    pub fn groups(&self) -> Vec<Group> {
        let even = |keys: u64, share: f64| Group {
            keys,
            share: share / keys as f64,
            index: None,
        };
        match self.distribution {
            Distribution::Single => vec![Group {
                keys: 1,
                share: 1.0,
                index: Some(self.order.apply(0)),
            }],
            Distribution::Hotspot { draws, .. } if self.hot() < self.range => {
                vec![
                    even(self.hot(), draws),
                    even(self.range - self.hot(), 1.0 - draws),
                ]
            }
            Distribution::Zipf(exponent) => self.zipf_groups(exponent),
            Distribution::Uniform | Distribution::Sequential | Distribution::Hotspot { .. } => {
                vec![even(self.range, 1.0)]
            }
        }
    }

    fn zipf_groups(&self, exponent: f64) -> Vec<Group> {
        let weight = |rank: u64| (rank as f64).powf(-exponent);
        let single = self.range.min(SINGLE_RANKS);
        let mut groups: Vec<Group> = (1..=single)
            .map(|rank| Group {
                keys: 1,
                share: weight(rank),
                index: Some(self.order.apply(rank - 1)),
            })
            .collect();
        let mut from = single;
        while from < self.range {
            let to = (from + from / 64).max(from + 1).min(self.range);
            // The group is narrow, so its middle represents all of it.
            let share = ((from + to + 1) as f64 / 2.0).powf(-exponent);
            groups.push(Group {
                keys: to - from,
                share,
                index: None,
            });
            from = to;
        }
        let sum: f64 = groups
            .iter()
            .map(|group| group.share * group.keys as f64)
            .sum();
        groups.iter_mut().for_each(|group| group.share /= sum);
        groups
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;
    use std::collections::HashMap;

    const DISTRIBUTIONS: [Distribution; 6] = [
        Distribution::Uniform,
        Distribution::Zipf(0.5),
        Distribution::Zipf(1.5),
        Distribution::Hotspot {
            draws: 0.9,
            keys: 0.1,
        },
        Distribution::Single,
        Distribution::Sequential,
    ];

    #[test]
    fn a_printed_name_parses_to_the_same_value() {
        for distribution in DISTRIBUTIONS {
            assert_eq!(distribution.to_string().parse(), Ok(distribution));
        }
        for bad in [
            "",
            "zipf",
            "zipf:0",
            "zipf:nan",
            "zipf:9",
            "hotspot:0:1",
            "hotspot:1",
            "sequential:1",
        ] {
            assert!(bad.parse::<Distribution>().is_err(), "{bad}");
        }
    }

    #[test]
    fn shares_add_up_to_one_and_keys_to_all() {
        for distribution in DISTRIBUTIONS {
            for range in [1, 2, 100, 16_384, 1_000_000] {
                let groups = Sampler::new(distribution, range).groups();
                let sum: f64 = groups.iter().map(|g| g.share * g.keys as f64).sum();
                assert!((sum - 1.0).abs() < 1e-9, "{distribution} {range}: {sum}");
                let keys: u64 = groups.iter().map(|g| g.keys).sum();
                assert!(
                    keys == range || distribution == Distribution::Single,
                    "{distribution} {range}: {keys}"
                );
            }
        }
    }

    #[test]
    fn draws_follow_the_groups() {
        for distribution in [
            Distribution::Zipf(0.99),
            Distribution::Zipf(1.5),
            Distribution::Single,
        ] {
            let sampler = Sampler::new(distribution, 5_000);
            let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
            let mut counts = HashMap::new();
            for _ in 0..200_000 {
                *counts
                    .entry(u64::from(sampler.draw(&mut rng)))
                    .or_insert(0.0) += 1.0;
            }
            for group in sampler.groups().iter().take(50) {
                let index = group.index.expect("the first ranks stand alone");
                let seen = counts.get(&index).copied().unwrap_or(0.0);
                let expected = group.share * 200_000.0;
                assert!(
                    (seen - expected).abs() < 6.0 * f64::sqrt(expected),
                    "{distribution}: {seen} for {expected}"
                );
            }
        }
    }

    #[test]
    fn the_hot_spot_gets_its_share() {
        let sampler = Sampler::new(
            Distribution::Hotspot {
                draws: 0.8,
                keys: 0.05,
            },
            1_000,
        );
        let hot: Vec<u64> = (0..50).map(|rank| sampler.order.apply(rank)).collect();
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(2);
        let hits = (0..100_000)
            .filter(|_| hot.contains(&sampler.draw(&mut rng).into()))
            .count();
        assert!((79_000..81_000).contains(&hits), "{hits}");
    }
}
