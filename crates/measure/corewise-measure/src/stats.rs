//! Medians, ratios and their uncertainty.

use serde::Serialize;

/// A median with its uncertainty, over the rounds of a run.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Spread {
    /// The median.
    pub median: f64,
    /// Lower end of the 95 % interval, by the ranks of [`Ratio`]'s; the value itself if it is the
    /// only one.
    pub low: f64,
    /// Upper end of the 95 % interval.
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
        let (median, estimate) = (median(&values), Estimate::of(&values));
        // Student's interval of few values that cannot be negative may reach below zero.
        let low = if min >= 0.0 {
            estimate.low.max(0.0)
        } else {
            estimate.low
        };
        Some(Self {
            median,
            low: low.min(median),
            high: estimate.high.max(median),
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
    /// Lower end of the 95 % interval.
    pub low: f64,
    /// Upper end of the 95 % interval.
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
        let estimate = Estimate::of(&logs);
        Some(Self::of_logs(
            estimate.value,
            estimate.low,
            estimate.high,
            logs.len(),
        ))
    }

    /// Compares two samples that were measured separately, as first over second. The interval is
    /// that of the difference of two estimates (Zou and Donner 2008).
    pub fn unpaired(one: &[f64], other: &[f64]) -> Option<Self> {
        let logs = |values: &[f64]| -> Vec<f64> {
            let logs = values.iter().map(|value| value.ln());
            logs.filter(|log| log.is_finite()).collect()
        };
        let (one, other) = (logs(one), logs(other));
        if one.is_empty() || other.is_empty() {
            return None;
        }
        let samples = one.len().min(other.len());
        let (one, other) = (Estimate::of(&one), Estimate::of(&other));
        let value = one.value - other.value;
        let below = (one.value - one.low).hypot(other.high - other.value);
        let above = (one.high - one.value).hypot(other.value - other.low);
        Some(Self::of_logs(value, value - below, value + above, samples))
    }

    /// A single sample has no spread, so nothing is known of its error.
    fn of_logs(value: f64, low: f64, high: f64, samples: usize) -> Self {
        let [value, low, high] = [value, low, high].map(f64::exp);
        let verdict = match samples {
            1 => SpeedVerdict::Undecided,
            _ => SpeedVerdict::of(low, high),
        };
        Self {
            value,
            low,
            high,
            verdict,
        }
    }
}

/// The location of a symmetric distribution, with an interval of at least 95 %.
///
/// The value is the Hodges-Lehmann estimate: the median of the means of all pairs, including each
/// value paired with itself. The ends are those means whose ranks Wilcoxon's signed-rank test
/// accepts, which holds for every symmetric distribution. Logarithms of ratios of a table to itself
/// have one, as the two swap places at random. (Percentiles of a bootstrap are too narrow for few
/// samples.)
///
/// That test cannot exclude anything at 5 % with fewer than [`FEWEST_RANKED`] values. For these the
/// interval also covers Student's.
struct Estimate {
    value: f64,
    low: f64,
    high: f64,
}

/// Fewest values that the signed-rank test can tell from zero at 5 %.
const FEWEST_RANKED: usize = 6;
/// Student's 97.5 % quantiles for two to five values.
const STUDENT: [f64; FEWEST_RANKED - 2] = [12.706, 4.303, 3.182, 2.776];
/// Most values whose signed ranks are counted; for more they are approximately normal.
const MOST_COUNTED: usize = 30;
/// Probability of a value beyond one end of the interval, and its quantile of the normal
/// distribution.
const TAIL: (f64, f64) = (0.025, 1.96);

impl Estimate {
    /// Estimates from one value or more.
    fn of(values: &[f64]) -> Self {
        let pairs = values.iter().enumerate();
        let mut means: Vec<f64> = pairs
            .flat_map(|(at, one)| values[at..].iter().map(move |other| (one + other) / 2.0))
            .collect();
        means.sort_by(f64::total_cmp);
        let rank = least_rank(values.len());
        let (mut low, mut high) = (means[rank - 1], means[means.len() - rank]);
        if let Some((mean, error)) = student(values) {
            (low, high) = (low.min(mean - error), high.max(mean + error));
        }
        let value = means[means.len() / 2];
        Self { value, low, high }
    }
}

/// Returns the mean of few values and the half width of its interval.
fn student(values: &[f64]) -> Option<(f64, f64)> {
    let quantile = STUDENT.get(values.len().checked_sub(2)?)?;
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    Some((mean, quantile * (squares / (count - 1.0) / count).sqrt()))
}

/// Returns the rank, from 1, of the lower end among the sorted means of pairs of `count` values:
/// the greatest for which the sum of the positive signed ranks is less with a probability of at
/// most [`TAIL`], or 1.
fn least_rank(count: usize) -> usize {
    if count > MOST_COUNTED {
        let n = count as f64;
        let deviation = (n * (n + 1.0) * (2.0 * n + 1.0) / 24.0).sqrt();
        return (n * (n + 1.0) / 4.0 - TAIL.1 * deviation) as usize;
    }
    // The subsets of the ranks 1 to `count` by their sum.
    let mut subsets = vec![1_u64];
    for rank in 1..=count {
        let with: Vec<u64> = [vec![0; rank], subsets.clone()].concat();
        subsets.resize(with.len(), 0);
        for (all, more) in subsets.iter_mut().zip(with) {
            *all += more;
        }
    }
    let most = TAIL.0 * (1_u64 << count) as f64;
    let below = subsets.iter().scan(0, |sum, subsets| {
        *sum += subsets;
        Some(*sum as f64)
    });
    below.take_while(|below| *below <= most).count().max(1)
}

#[cfg(test)]
mod tests {
    use rand::{RngExt, SeedableRng};
    use rand_xoshiro::Xoshiro256PlusPlus;

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
        /// Five deviations below 95 %: these values are uniform, and Student assumes normal ones.
        const LEAST: usize = 1_850;
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(9);
        for count in [5, 6, 7, 15, 25] {
            let mut hits = |_: &_| {
                let spread = Spread::of((0..count).map(|_| rng.random::<f64>())).expect("values");
                spread.low <= 0.5 && 0.5 <= spread.high
            };
            let held = (0..2_000).filter(|at| hits(at)).count();
            assert!(held >= LEAST, "{held} of 2000 with {count} values");
        }
    }

    #[test]
    fn the_interval_of_few_rates_is_wide_and_not_negative() {
        let spread = Spread::of([1.0, 3.0]).expect("values");
        assert_eq!((spread.low, spread.median), (0.0, 2.0));
        assert!(spread.high > 10.0, "{spread:?}");
        assert!(Spread::of([-1.0, 1.0]).expect("values").low < -10.0);
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

    /// Returns the verdicts of comparisons of `pairs` pairs, the first `truth` times the second.
    fn verdicts(truth: f64, pairs: usize, comparisons: usize) -> Vec<SpeedVerdict> {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(4);
        let mut pair = || (truth * noise(&mut rng), noise(&mut rng));
        (0..comparisons)
            .filter_map(|_| Ratio::paired((0..pairs).map(|_| pair())))
            .map(|ratio| ratio.verdict)
            .collect()
    }

    #[test]
    fn a_table_against_itself_is_told_apart_in_one_of_twenty_runs() {
        const RUNS: usize = 2_000;
        /// Three deviations above a twentieth.
        const MOST: usize = 130;
        for pairs in [1, 2, 3, 5, 6, 7, 15, 25, 40] {
            let wrong = |v: &&SpeedVerdict| v.word() == "faster" || v.word() == "slower";
            let told = verdicts(1.0, pairs, RUNS).iter().filter(wrong).count();
            assert!(told <= MOST, "{told} of {RUNS} with {pairs} pairs");
        }
    }

    #[test]
    fn a_difference_is_usually_found() {
        for (truth, pairs, word, least) in [
            (0.95, 25, "slower", 80),
            (1.15, 25, "faster", 95),
            (0.95, 15, "slower", 70),
            (0.5, 3, "slower", 80),
        ] {
            let is = |v: &&SpeedVerdict| v.word() == word;
            let found = verdicts(truth, pairs, 100).iter().filter(is).count();
            assert!(found >= least, "{found} of 100: {truth} by {pairs} pairs");
        }
    }

    #[test]
    fn ranks_are_those_of_the_tables_of_the_signed_rank_test() {
        // The critical values of the two-sided test at 5 %, plus one.
        for (count, rank) in [
            (1, 1),
            (5, 1),
            (6, 1),
            (7, 3),
            (8, 4),
            (10, 9),
            (15, 26),
            (30, 138),
        ] {
            assert_eq!(least_rank(count), rank, "{count}");
        }
        let (counted, normal) = (least_rank(MOST_COUNTED), least_rank(MOST_COUNTED + 1));
        assert!(counted < normal && normal < counted + 13, "{normal}");
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
