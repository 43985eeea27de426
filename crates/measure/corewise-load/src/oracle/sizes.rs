//! Value sizes of a fill: one size, two sizes interleaved, one size after the other, growing sizes,
//! or sizes spread over orders of magnitude.

use std::fmt;
use std::str::FromStr;

use corewise_measure::draw::{mix, spread};

use crate::config::MAX_VALUE_BYTES;

/// Number of steps in which sizes grow.
const STEPS: u64 = 32;

/// The sizes of the values that a fill stores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sizes {
    /// `N`: all values have this size.
    One(u32),
    /// `A+B`: two sizes, interleaved, with half of the bytes each.
    Mix(u32, u32),
    /// `A,B`: the first half of the bytes has values of size `A`, the second half of size `B`.
    Shift(u32, u32),
    /// `A..B`: sizes grow (or shrink) from `A` to `B` in geometric steps of equal bytes.
    Grow(u32, u32),
    /// `A-B`: each key draws its size from the range, log-uniformly.
    Spread(u32, u32),
}

impl FromStr for Sizes {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bad = || {
            format!(
                "bad value size '{text}'; expected N, A+B, A,B, A..B or A-B, each 1 to {MAX_VALUE_BYTES}"
            )
        };
        let size = |part: &str| {
            let size = part.parse::<u32>().map_err(|_| bad())?;
            let fits = (1..=MAX_VALUE_BYTES).contains(&size);
            fits.then_some(size).ok_or_else(bad)
        };
        type Pair = fn(u32, u32) -> Sizes;
        let forms: [(&str, Pair); 4] = [
            ("..", Self::Grow),
            ("+", Self::Mix),
            (",", Self::Shift),
            ("-", Self::Spread),
        ];
        for (mark, make) in forms {
            if let Some((a, b)) = text.split_once(mark) {
                let (a, b) = (size(a)?, size(b)?);
                let spread_ok = mark != "-" || a <= b;
                return spread_ok.then(|| make(a, b)).ok_or_else(bad);
            }
        }
        size(text).map(Self::One)
    }
}

impl fmt::Display for Sizes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::One(n) => write!(f, "{n}"),
            Self::Mix(a, b) => write!(f, "{a}+{b}"),
            Self::Shift(a, b) => write!(f, "{a},{b}"),
            Self::Grow(a, b) => write!(f, "{a}..{b}"),
            Self::Spread(a, b) => write!(f, "{a}-{b}"),
        }
    }
}

impl Sizes {
    /// The largest size.
    pub fn largest(self) -> u32 {
        match self {
            Self::One(n) => n,
            Self::Mix(a, b) | Self::Shift(a, b) | Self::Grow(a, b) | Self::Spread(a, b) => a.max(b),
        }
    }

    /// The smallest size.
    pub fn smallest(self) -> u32 {
        match self {
            Self::One(n) => n,
            Self::Mix(a, b) | Self::Shift(a, b) | Self::Grow(a, b) | Self::Spread(a, b) => a.min(b),
        }
    }
}

/// A range of keys in which every `period`-th value is `large` and the others are `small`.
#[derive(Clone, Copy, Debug)]
struct Phase {
    first: u64,
    small: u32,
    large: u32,
    period: u64,
}

/// The size of each key's value when keys `0..` are stored in order.
#[derive(Clone, Debug)]
pub(super) struct SizePlan {
    phases: Vec<Phase>,
    spread: Option<(u32, u32)>,
    key_bytes: u64,
}

impl SizePlan {
    /// A plan for about `total` bytes of keys and values. Later keys have the sizes of the last
    /// phase.
    pub(super) fn new(sizes: Sizes, key_bytes: usize, total: u64) -> Self {
        let mut plan = Self {
            phases: Vec::new(),
            spread: None,
            key_bytes: key_bytes as u64,
        };
        match sizes {
            Sizes::One(n) => plan.push(n, total),
            Sizes::Mix(a, b) => plan.push_mix(a.min(b), a.max(b)),
            Sizes::Shift(a, b) => [a, b].iter().for_each(|&n| plan.push(n, total / 2)),
            Sizes::Grow(a, b) => {
                let ratio = f64::from(b) / f64::from(a);
                for step in 0..STEPS {
                    let power = step as f64 / (STEPS - 1) as f64;
                    plan.push(
                        (f64::from(a) * ratio.powf(power)).round() as u32,
                        total / STEPS,
                    );
                }
            }
            Sizes::Spread(a, b) => plan.spread = Some((a, b)),
        }
        plan.end_at_last_phase();
        plan
    }

    /// Adds a phase of one size. `first` is the number of keys until `end_at_last_phase` is called.
    fn push(&mut self, size: u32, bytes: u64) {
        let keys = (bytes / (u64::from(size) + self.key_bytes)).max(1);
        self.phases.push(Phase {
            first: keys,
            small: size,
            large: size,
            period: 1,
        });
    }

    fn push_mix(&mut self, small: u32, large: u32) {
        let whole = |size: u32| u64::from(size) + self.key_bytes;
        let smalls = (whole(large) as f64 / whole(small) as f64).round() as u64;
        self.phases.push(Phase {
            first: 0,
            small,
            large,
            period: smalls + 1,
        });
    }

    /// Replaces each phase's number of keys by its first key.
    fn end_at_last_phase(&mut self) {
        let mut next = 0;
        for phase in &mut self.phases {
            next += std::mem::replace(&mut phase.first, next);
        }
    }

    /// Length of the value of `key`.
    pub(super) fn len(&self, key: u32) -> u32 {
        if let Some((min, max)) = self.spread {
            return spread(mix(u64::from(key) ^ 0x51 << 40), min, max);
        }
        let key = u64::from(key);
        let at = self.phases.partition_point(|phase| phase.first <= key);
        let phase = &self.phases[at.max(1) - 1];
        if (key - phase.first) % phase.period == phase.period - 1 {
            phase.large
        } else {
            phase.small
        }
    }

    /// Bytes of `key` and its value.
    pub(super) fn bytes(&self, key: u32) -> u64 {
        self.key_bytes + u64::from(self.len(key))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(text: &str, total: u64) -> SizePlan {
        SizePlan::new(text.parse().expect("sizes"), 10, total)
    }

    /// Bytes of each size that the first `total` bytes hold.
    fn bytes_by_size(text: &str, total: u64) -> Vec<(u32, u64)> {
        let plan = plan(text, total);
        let (mut all, mut sum) = (std::collections::BTreeMap::new(), 0);
        for key in 0.. {
            if sum >= total {
                break;
            }
            *all.entry(plan.len(key)).or_default() += plan.bytes(key);
            sum += plan.bytes(key);
        }
        all.into_iter().collect()
    }

    #[test]
    fn sizes_are_read_and_written_alike() {
        for text in ["50", "50+8000", "8000,50", "50..8000", "50-8000"] {
            let sizes: Sizes = text.parse().expect(text);
            assert_eq!(sizes.to_string(), text);
        }
        for bad in ["", "0", "x", "50+", "8000-50", "1..2..3", "999999999"] {
            let error = bad.parse::<Sizes>().expect_err(bad);
            assert!(error.contains("bad value size"), "{error}");
        }
    }

    #[test]
    fn two_sizes_have_half_of_the_bytes_each() {
        for text in ["50+8000", "8000,50", "50,8000"] {
            let by_size = bytes_by_size(text, 1 << 20);
            assert_eq!(by_size.len(), 2, "{text}");
            for (size, bytes) in by_size {
                assert!(
                    (490_000..560_000).contains(&bytes),
                    "{text}: {size} {bytes}"
                );
            }
        }
        let shift = plan("8000,50", 1 << 20);
        assert_eq!((shift.len(0), shift.len(10_000)), (8000, 50));
    }

    #[test]
    fn sizes_grow_from_the_first_to_the_last() {
        let grow = plan("50..8000", 1 << 20);
        let lens: Vec<_> = (0..5_000).map(|key| grow.len(key)).collect();
        assert!(lens.is_sorted());
        assert_eq!((lens[0], lens[4_999]), (50, 8000));
    }

    #[test]
    fn one_and_spread_sizes_stay_in_their_bounds() {
        let (one, spread) = (plan("77", 1000), plan("50-5000", 1000));
        let mut decades = [0; 2];
        for key in 0..10_000 {
            assert_eq!(one.len(key), 77);
            assert!((50..=5000).contains(&spread.len(key)));
            decades[usize::from(spread.len(key) >= 500)] += 1;
        }
        assert!(
            decades.iter().all(|&n| (4_800..5_200).contains(&n)),
            "{decades:?}"
        );
    }
}
