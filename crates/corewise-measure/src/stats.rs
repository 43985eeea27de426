//! Medians, ratios and their uncertainty.

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use serde::Serialize;

/// Number of bootstrap resamples.
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
    /// Number of rounds with a value.
    pub rounds: usize,
}

impl Spread {
    /// Computes the spread of the finite values; `None` if there are none.
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

/// The median of sorted values.
fn median(sorted: &[f64]) -> f64 {
    let middle = sorted.len() / 2;
    if sorted.len() % 2 == 1 {
        sorted[middle]
    } else {
        (sorted[middle - 1] + sorted[middle]) / 2.0
    }
}

/// The central 95 % of the medians of resamples. The seed is fixed, so that equal samples give
/// equal reports.
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

/// The least and the greatest ratio that count as equivalent.
pub const EQUIVALENCE: (f64, f64) = (0.97, 1.03);

/// Result of a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum SpeedVerdict {
    /// The whole interval is above 1.
    Faster,
    /// The whole interval is below 1.
    Slower,
    /// The whole interval is within 3 % of 1.
    Equivalent,
    /// None of these: more repetitions are needed.
    Undecided,
}

impl SpeedVerdict {
    /// The verdict for an interval of ratios. A difference that is certain but under 3 % counts as
    /// none.
    pub fn of(low: f64, high: f64) -> Self {
        if low >= EQUIVALENCE.0 && high <= EQUIVALENCE.1 {
            Self::Equivalent
        } else if low > 1.0 {
            Self::Faster
        } else if high < 1.0 {
            Self::Slower
        } else {
            Self::Undecided
        }
    }

    /// The verdict in one word.
    pub fn word(self) -> &'static str {
        match self {
            Self::Faster => "faster",
            Self::Slower => "slower",
            Self::Equivalent => "equivalent",
            Self::Undecided => "undecided",
        }
    }
}

/// A ratio of measurements.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Ratio {
    /// Hodges-Lehmann estimate: as robust as a median needs to be, and nearly as sharp as a mean.
    pub value: f64,
    /// Lower end of the 95 % bootstrap interval.
    pub low: f64,
    /// Upper end of the 95 % bootstrap interval.
    pub high: f64,
    /// The verdict for this interval.
    pub verdict: SpeedVerdict,
}

impl Ratio {
    /// Compares pairs that were measured side by side, as first over second. `None` without any
    /// pair of positive numbers.
    pub fn paired(pairs: impl IntoIterator<Item = (f64, f64)>) -> Option<Self> {
        let logs: Vec<f64> = pairs
            .into_iter()
            .map(|(one, other)| (one / other).ln())
            .filter(|log| log.is_finite())
            .collect();
        if logs.is_empty() {
            return None;
        }
        let (low, high) = interval(|rng| hodges_lehmann(&resample(&logs, rng)));
        Some(Self::of_logs(hodges_lehmann(&logs), low, high))
    }

    /// Compares two samples that were measured separately, as first over second.
    pub fn unpaired(one: &[f64], other: &[f64]) -> Option<Self> {
        let logs = |values: &[f64]| -> Vec<f64> {
            let logs = values.iter().map(|value| value.ln());
            logs.filter(|log| log.is_finite()).collect()
        };
        let (one, other) = (logs(one), logs(other));
        if one.is_empty() || other.is_empty() {
            return None;
        }
        let difference = |one: &[f64], other: &[f64]| hodges_lehmann(one) - hodges_lehmann(other);
        let (low, high) = interval(|rng| difference(&resample(&one, rng), &resample(&other, rng)));
        Some(Self::of_logs(difference(&one, &other), low, high))
    }

    fn of_logs(value: f64, low: f64, high: f64) -> Self {
        let [value, low, high] = [value, low, high].map(f64::exp);
        let verdict = SpeedVerdict::of(low, high);
        Self {
            value,
            low,
            high,
            verdict,
        }
    }
}

fn resample(values: &[f64], rng: &mut Xoshiro256PlusPlus) -> Vec<f64> {
    let draws = (0..values.len()).map(|_| values[rng.random_range(0..values.len())]);
    draws.collect()
}

/// The central 95 % of a statistic over resamples.
fn interval(mut statistic: impl FnMut(&mut Xoshiro256PlusPlus) -> f64) -> (f64, f64) {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(0x0b00_7574);
    let mut values: Vec<f64> = (0..RESAMPLES).map(|_| statistic(&mut rng)).collect();
    values.sort_by(f64::total_cmp);
    let at = |share: f64| values[(share * (RESAMPLES - 1) as f64).round() as usize];
    (at(0.025), at(0.975))
}

/// The median of the means of all pairs, including each value paired with itself.
fn hodges_lehmann(values: &[f64]) -> f64 {
    let pairs = values.iter().enumerate();
    let mut means: Vec<f64> = pairs
        .flat_map(|(at, one)| values[at..].iter().map(move |other| (one + other) / 2.0))
        .collect();
    let middle = means.len() / 2;
    let (_, upper, _) = means.select_nth_unstable_by(middle, f64::total_cmp);
    *upper
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

    fn noise(rng: &mut Xoshiro256PlusPlus) -> f64 {
        // Approximately normal, with a deviation of 4 % and an occasional outlier.
        let sum: f64 = (0..12).map(|_| rng.random::<f64>()).sum::<f64>() - 6.0;
        let outlier = if rng.random_range(0..20) == 0 {
            0.5
        } else {
            1.0
        };
        (1.0 + 0.04 * sum) * outlier
    }

    #[test]
    fn equal_things_are_rarely_told_apart_and_a_twentieth_usually_is() {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(4);
        let mut verdicts = |truth: f64| -> Vec<SpeedVerdict> {
            let mut pair = || (truth * noise(&mut rng), noise(&mut rng));
            (0..100)
                .filter_map(|_| Ratio::paired((0..25).map(|_| pair())))
                .map(|ratio| ratio.verdict)
                .collect()
        };
        let wrong = |v: &&SpeedVerdict| matches!(v, SpeedVerdict::Faster | SpeedVerdict::Slower);
        assert!(verdicts(1.0).iter().filter(wrong).count() <= 10);
        assert!(
            verdicts(0.95)
                .iter()
                .filter(|&&v| v == SpeedVerdict::Slower)
                .count()
                >= 80
        );
        assert!(
            verdicts(1.15)
                .iter()
                .filter(|&&v| v == SpeedVerdict::Faster)
                .count()
                >= 95
        );
    }

    #[test]
    fn verdicts_follow_from_intervals() {
        for (low, high, verdict) in [
            (0.98, 1.02, SpeedVerdict::Equivalent),
            (1.01, 1.02, SpeedVerdict::Equivalent),
            (1.01, 1.05, SpeedVerdict::Faster),
            (0.90, 0.99, SpeedVerdict::Slower),
            (0.90, 1.01, SpeedVerdict::Undecided),
        ] {
            assert_eq!(SpeedVerdict::of(low, high), verdict);
        }
    }

    #[test]
    fn ratios_are_of_the_first_over_the_second() {
        let ratio = Ratio::paired([(2.0, 1.0), (4.0, 2.0), (6.0, 3.0)]).expect("pairs");
        assert!((ratio.value - 2.0).abs() < 1e-12 && (ratio.low - 2.0).abs() < 1e-12);
        let ratio = Ratio::unpaired(&[2.0, 2.0], &[4.0]).expect("values");
        assert!((ratio.value - 0.5).abs() < 1e-12);
        assert!(Ratio::paired([(0.0, 1.0)]).is_none() && Ratio::unpaired(&[], &[1.0]).is_none());
    }
}
