//! Latencies by operation and outcome.

use hdrhistogram::Histogram as Hdr;

use crate::record::Histogram;

/// The names of the outcomes (\[CHTBench\] §3.4.5), in the order of [`OutcomeIndex`].
pub const OUTCOMES: [&str; 6] = [
    "get hit",
    "get miss",
    "insert ok",
    "insert fail",
    "remove ok",
    "remove fail",
];

/// An index into [`OUTCOMES`].
pub type OutcomeIndex = usize;

/// The longest latency that a histogram resolves: 100 s.
const LONGEST_NS: u64 = 100_000_000_000;

/// One histogram per outcome, with three significant digits.
#[derive(Clone, Debug)]
pub struct Latencies {
    by_outcome: Vec<Hdr<u64>>,
    ns_per_tick: f64,
    overhead_ns: f64,
}

impl Default for Latencies {
    /// Creates empty histograms.
    fn default() -> Self {
        let empty = || Hdr::new_with_bounds(1, LONGEST_NS, 3).expect("constant bounds are valid");
        Self {
            by_outcome: (0..OUTCOMES.len()).map(|_| empty()).collect(),
            ns_per_tick: crate::clock::ns(1_000_000) / 1e6,
            overhead_ns: crate::clock::overhead_ns(),
        }
    }
}

impl Latencies {
    /// Adds an operation that took `ticks` ticks, timing included.
    #[inline]
    pub fn record(&mut self, outcome: OutcomeIndex, ticks: u64) {
        let ns = (ticks as f64 * self.ns_per_tick - self.overhead_ns).max(1.0);
        self.by_outcome[outcome].saturating_record(ns as u64);
    }

    /// Adds another thread's latencies.
    pub fn add(&mut self, other: &Self) {
        for (mine, theirs) in self.by_outcome.iter_mut().zip(&other.by_outcome) {
            mine.add(theirs).expect("all have the same bounds");
        }
    }

    /// Returns the longest latency.
    pub fn max_ns(&self) -> f64 {
        let longest = self.by_outcome.iter().map(Hdr::max).max();
        longest.unwrap_or(0) as f64
    }

    /// Returns the records of the outcomes that occurred.
    pub fn records(&self, cell: &str, table: &str) -> Vec<Histogram> {
        let named = OUTCOMES.iter().zip(&self.by_outcome);
        named
            .filter(|(_, histogram)| !histogram.is_empty())
            .map(|(name, histogram)| record(cell, table, name, histogram))
            .collect()
    }
}

fn record(cell: &str, table: &str, operation: &str, histogram: &Hdr<u64>) -> Histogram {
    let at = |percent: f64| {
        let ns = histogram.value_at_percentile(percent);
        (percent.to_string(), ns as f64)
    };
    Histogram {
        cell: cell.into(),
        table: table.into(),
        operation: operation.into(),
        count: histogram.len(),
        mean_ns: histogram.mean(),
        min_ns: histogram.min() as f64,
        max_ns: histogram.max() as f64,
        percentiles_ns: [50.0, 90.0, 99.0, 99.9, 99.99].map(at).into(),
        buckets: histogram
            .iter_recorded()
            .map(|step| (step.value_iterated_to(), step.count_at_value()))
            .collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outcomes_are_kept_apart_and_added_up() {
        let mut one = Latencies::default();
        let ticks = |ns: f64| crate::clock::ticks(((ns + one.overhead_ns) * 1e3) as u64) / 1_000;
        let (short, long) = (ticks(1_000.0), ticks(50_000.0));
        for _ in 0..99 {
            one.record(0, short);
        }
        let mut other = Latencies::default();
        other.record(3, long);
        one.add(&other);
        let records = one.records("c", "t");
        let names: Vec<&str> = records.iter().map(|r| r.operation.as_str()).collect();
        assert_eq!(names, ["get hit", "insert fail"]);
        assert!(
            (records[0].mean_ns - 1_000.0).abs() < 60.0,
            "{}",
            records[0].mean_ns
        );
        assert!((records[1].max_ns - 50_000.0).abs() < 1_000.0);
        assert_eq!((records[0].count, records[1].count), (99, 1));
        let counted: u64 = records[0].buckets.iter().map(|(_, count)| count).sum();
        assert_eq!(counted, 99);
    }
}
