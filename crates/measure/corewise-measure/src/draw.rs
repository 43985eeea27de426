//! Mixing, drawing and permuting integers, to make random keys.

use rand::distr::Distribution as _;
use rand_distr::Zipf;
use rand_xoshiro::Xoshiro256PlusPlus;

/// Mixes 64 bits (the finaliser of SplitMix64).
pub fn mix(value: u64) -> u64 {
    let mut z = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Maps a uniform draw of 64 bits to `min..=max` (`min` at least 1), log-uniformly: each order of
/// magnitude is equally likely.
pub fn spread(draw: u64, min: u32, max: u32) -> u32 {
    let unit = (draw >> 11) as f64 / (1u64 << 53) as f64;
    let (low, high) = (f64::from(min.max(1)), f64::from(max) + 1.0);
    ((low * (high / low).powf(unit)) as u32).clamp(min, max)
}

/// The mean of log-uniform draws from `min..=max`.
pub fn mean_of_spread(min: u32, max: u32) -> f64 {
    let (low, high) = (f64::from(min.max(1)), f64::from(max));
    if max > min {
        (high - low) / (high / low).ln()
    } else {
        min.into()
    }
}

/// Ranks `0..n`; the frequency of rank `k` is proportional to `k + 1` to the power of minus the
/// exponent. A draw takes about 100 ns.
#[derive(Clone, Copy, Debug)]
pub struct ZipfRanks {
    zipf: Zipf<f64>,
    n: u64,
}

impl ZipfRanks {
    /// Makes the distribution; `None` if there are no ranks or the exponent is negative.
    pub fn new(n: u64, exponent: f64) -> Option<Self> {
        let zipf = Zipf::new(n as f64, exponent).ok()?;
        Some(Self { zipf, n })
    }

    /// Draws a rank.
    pub fn draw(&self, rng: &mut Xoshiro256PlusPlus) -> u64 {
        (self.zipf.sample(rng) as u64).clamp(1, self.n) - 1
    }
}

/// A fixed permutation of `0..n`: four Feistel rounds on the smallest even
/// number of bits that holds `n`, walked until the result is below `n`. It puts
/// hot ranks far apart in the key space, the same way in every run.
#[derive(Clone, Copy, Debug)]
pub struct Scramble {
    n: u64,
    half: u32,
}

impl Scramble {
    /// Makes the permutation of `0..n`; `n` is at least 1.
    pub fn new(n: u64) -> Self {
        let bits = 64 - (n - 1).leading_zeros();
        Self {
            n,
            half: bits.div_ceil(2).max(1),
        }
    }

    /// The place of `rank`; the expected number of walking rounds is below four.
    pub fn apply(&self, rank: u64) -> u64 {
        debug_assert!(rank < self.n);
        let mut x = rank;
        loop {
            x = self.rounds(x);
            if x < self.n {
                return x;
            }
        }
    }

    fn rounds(&self, x: u64) -> u64 {
        let mask = (1 << self.half) - 1;
        let (mut left, mut right) = (x >> self.half, x & mask);
        for round in 0..4u64 {
            (left, right) = (right, left ^ (mix(right ^ (round << 56)) & mask));
        }
        left << self.half | right
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mean_of_a_range_is_log_uniform() {
        assert_eq!(mean_of_spread(200, 200), 200.0);
        assert_eq!(mean_of_spread(50, 200_000) as u64, 24_107);
    }

    #[test]
    fn scramble_is_a_permutation_that_parts_neighbours() {
        for n in [1u64, 2, 3, 7, 1000, 4096, 10_007] {
            let scramble = Scramble::new(n);
            let mut seen = vec![false; n as usize];
            for rank in 0..n {
                let at = scramble.apply(rank) as usize;
                assert!(!std::mem::replace(&mut seen[at], true), "{n}: {at} twice");
            }
        }
        let scramble = Scramble::new(1_000_000);
        let near = (0..100)
            .filter(|&r| scramble.apply(r).abs_diff(scramble.apply(r + 1)) < 64)
            .count();
        assert!(near <= 1, "{near} of 100 hot neighbours stay neighbours");
    }
}
