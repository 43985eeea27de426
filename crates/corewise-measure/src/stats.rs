//! Medians and their spread.

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use serde::Serialize;

/// Resamples of the bootstrap.
const RESAMPLES: usize = 2_000;

/// A median with its uncertainty, over the rounds of a run.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Spread {
    /// The median.
    pub median: f64,
    /// Lower end of the 95 % bootstrap interval of the median.
    pub low: f64,
    /// Upper end of the 95 % bootstrap interval of the median.
    pub high: f64,
    /// Least value of any round.
    pub min: f64,
    /// Greatest value of any round.
    pub max: f64,
    /// Rounds with a value.
    pub rounds: usize,
}

impl Spread {
    /// `None` without any finite value.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut values: Vec<f64> = values.into_iter().filter(|v| v.is_finite()).collect();
        values.sort_by(f64::total_cmp);
        let (&min, &max) = (values.first()?, values.last()?);
        let (low, high) = bootstrap(&values);
        Some(Self {
            median: median(&values),
            low,
            high,
            min,
            max,
            rounds: values.len(),
        })
    }
}

/// The middle of sorted values.
fn median(sorted: &[f64]) -> f64 {
    let middle = sorted.len() / 2;
    if sorted.len() % 2 == 1 {
        sorted[middle]
    } else {
        (sorted[middle - 1] + sorted[middle]) / 2.0
    }
}

/// The central 95 % of medians of resamples; the seed is fixed, so that equal
/// samples give equal reports.
fn bootstrap(sorted: &[f64]) -> (f64, f64) {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(0x0b00_7574);
    let mut sample = vec![0.0; sorted.len()];
    let mut medians: Vec<f64> = (0..RESAMPLES)
        .map(|_| {
            sample.fill_with(|| sorted[rng.random_range(0..sorted.len())]);
            sample.sort_by(f64::total_cmp);
            median(&sample)
        })
        .collect();
    medians.sort_by(f64::total_cmp);
    let at = |share: f64| medians[(share * (RESAMPLES - 1) as f64).round() as usize];
    (at(0.025), at(0.975))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_of_odd_and_even_samples() {
        let spread = Spread::of([3.0, 1.0, 2.0]).expect("values");
        assert_eq!(
            (spread.median, spread.min, spread.max, spread.rounds),
            (2.0, 1.0, 3.0, 3)
        );
        assert_eq!(Spread::of([4.0, 1.0]).expect("values").median, 2.5);
        assert!(Spread::of([f64::NAN]).is_none());
        assert!(Spread::of([]).is_none());
    }

    #[test]
    fn a_constant_sample_has_no_spread() {
        let spread = Spread::of([5.0; 9]).expect("values");
        assert_eq!((spread.low, spread.high), (5.0, 5.0));
    }

    #[test]
    fn the_interval_holds_the_true_median_about_as_often_as_it_says() {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(9);
        let held = (0..200)
            .filter(|_| {
                let spread = Spread::of((0..25).map(|_| rng.random::<f64>())).expect("values");
                spread.low <= 0.5 && 0.5 <= spread.high
            })
            .count();
        assert!((176..=200).contains(&held), "{held} of 200");
    }
}
