//! What happened within the last two seconds: `instantaneous_ops_per_sec` and the like.

use corewise_atomic::lock::Mutex;
use std::collections::VecDeque;

/// The samples that are kept. One loop takes one at each of its sweeps, which are half a second
/// apart.
const SAMPLES: usize = 4;

/// Operations, bytes received, and bytes sent.
pub(crate) type Totals = [u64; 3];

/// The latest samples of the totals, each with its time.
#[derive(Default)]
pub(crate) struct Rates(Mutex<VecDeque<(u64, Totals)>>);

/// How much the totals have grown, and in how many milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Growth {
    ms: u64,
    totals: Totals,
}

impl Rates {
    /// Takes a sample.
    pub(crate) fn note(&self, now_ms: u64, totals: Totals) {
        let mut samples = self.0.lock();
        if samples.len() == SAMPLES {
            samples.pop_front();
        }
        samples.push_back((now_ms, totals));
    }

    /// How much the totals have grown since the oldest sample.
    pub(crate) fn growth(&self, now_ms: u64, totals: Totals) -> Growth {
        let samples = self.0.lock();
        samples
            .front()
            .map_or(Growth::default(), |(ms, before)| Growth {
                ms: now_ms.saturating_sub(*ms),
                totals: std::array::from_fn(|index| totals[index].saturating_sub(before[index])),
            })
    }
}

impl Growth {
    fn each_s(self, index: usize) -> f64 {
        self.totals[index] as f64 * 1_000.0 / self.ms.max(1) as f64
    }

    pub(super) fn operations_per_s(self) -> u64 {
        self.each_s(0) as u64
    }

    /// KiB received each second.
    pub(super) fn input_kib_per_s(self) -> String {
        format!("{:.2}", self.each_s(1) / 1_024.0)
    }

    /// KiB sent each second.
    pub(super) fn output_kib_per_s(self) -> String {
        format!("{:.2}", self.each_s(2) / 1_024.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_those_since_the_oldest_of_four_samples() {
        let rates = Rates::default();
        assert_eq!(rates.growth(9_000, [5; 3]).operations_per_s(), 0);
        for sample in 0..6 {
            rates.note(500 * sample, [10 * sample, 1_024 * sample, 512 * sample]);
        }
        // The oldest is that of 1,000 ms.
        let growth = rates.growth(3_000, [60, 6_144, 3_072]);
        assert_eq!(growth.operations_per_s(), 20);
        assert_eq!(growth.input_kib_per_s(), "2.00");
        assert_eq!(growth.output_kib_per_s(), "1.00");
        assert_eq!(rates.growth(1_000, [60; 3]).ms, 0);
    }
}
