//! `fill`: writes new keys until the limit is exceeded several times, and samples what the server
//! holds.

use serde::Serialize;

use super::{Fleet, OracleConfig, Sample, SizePlan, Sizes};
use crate::error::LoadError;

/// Samples in each turnover.
const SAMPLES: u64 = 32;

/// Result of a fill. Live bytes are those of keys and values.
#[derive(Clone, Debug, Default, Serialize)]
pub struct FillReport {
    /// Acknowledged sets.
    pub stored: u64,
    /// Bytes of their keys and values.
    pub stored_bytes: u64,
    /// Sets that the server refused for lack of memory.
    pub refused: u64,
    /// Samples after the first filling, that is, after the limit was written once.
    pub samples: u64,
    /// Minimum live share of the limit in these samples.
    pub min_live: f64,
    /// How many times the limit had been written at that sample.
    pub min_live_at: f64,
    /// Live share of the limit at the end: keys that were read and found.
    pub end_live: f64,
    /// Items that were found at the end.
    pub end_items: u64,
    /// Difference between the last sample and `end_live`, as a share of the limit.
    pub sample_error: f64,
    /// Largest share of the limit that was lost between two samples.
    pub largest_drop: f64,
    /// Evictions, as the server reports them.
    pub evictions: u64,
    /// The server's peak resident set, in KiB.
    pub peak_rss_kib: Option<u64>,
    /// CPU time of the server after the first filling, in milliseconds.
    pub cpu_ms: Option<f64>,
    /// Bytes of keys and values stored in that time.
    pub cpu_bytes: u64,
}

pub(super) fn run(
    config: &OracleConfig,
    fleet: &mut Fleet,
    progress: &mut dyn FnMut(&str),
) -> Result<FillReport, LoadError> {
    let limit = config.limit_bytes;
    let total = (limit as f64 * config.turnovers) as u64;
    let plan = SizePlan::new(config.sizes, config.key_size, total);
    let mut report = FillReport::default();
    let (mut next, mut samples) = (0u32, Vec::new());
    let mut full = None;
    let mut tried = 0;
    // Refused bytes count as well, so that the check ends even if the server refuses everything.
    while tried < total {
        let mut done = |key: u32, stored: bool| {
            tried += plan.bytes(key);
            report.stored += u64::from(stored);
            report.refused += u64::from(!stored);
            report.stored_bytes += if stored { plan.bytes(key) } else { 0 };
        };
        fleet.set_round(&plan, &mut take(&mut next), &mut done)?;
        let due = (samples.len() as u64 + 1) * (limit / SAMPLES).max(1);
        if report.stored_bytes >= due {
            samples.push(fleet.sample(report.stored_bytes)?);
        }
        if full.is_none() && report.stored_bytes >= limit {
            full = Some((fleet.cpu_ns(), report.stored_bytes));
        }
    }
    if let Some((before, bytes)) = full {
        let spent = fleet.cpu_ns().zip(before).map(|(now, before)| now - before);
        report.cpu_ms = spent.map(|ns| ns as f64 / 1e6);
        report.cpu_bytes = report.stored_bytes - bytes;
    }
    samples.push(fleet.sample(report.stored_bytes)?);
    report.peak_rss_kib = fleet.status_kib("VmHWM");
    progress(&format!("stored {} keys; asking for each", report.stored));
    let (mut items, mut bytes) = (0, 0);
    fleet.read_back(&plan, &mut (0..next), &mut |key, found| {
        items += u64::from(found);
        bytes += if found { plan.bytes(key) } else { 0 };
    })?;
    report.end_items = items;
    report.end_live = bytes as f64 / limit as f64;
    let item = item_bytes(config);
    report.judge(&live_shares(&samples, limit, item), &samples, limit);
    Ok(report)
}

/// Bytes of each item, if all have the same size.
fn item_bytes(config: &OracleConfig) -> Option<u64> {
    match config.sizes {
        Sizes::One(n) => Some(u64::from(n) + config.key_size as u64),
        _ => None,
    }
}

/// Endless keys from `next` on; advances `next`.
fn take(next: &mut u32) -> impl Iterator<Item = u32> {
    std::iter::repeat_with(move || {
        *next += 1;
        *next - 1
    })
}

/// The live share of the limit at each sample. With one size it is the number of items times their
/// size. Otherwise it is the number of bytes that the server reports, less a constant for each
/// item: the excess over the items' bytes in the first sample, before anything was evicted.
fn live_shares(samples: &[Sample], limit: u64, item: Option<u64>) -> Vec<f64> {
    let overhead = samples.first().map_or(0.0, |first| {
        (first.bytes as f64 - first.stored_bytes as f64) / first.items.max(1) as f64
    });
    let live = |sample: &Sample| match item {
        Some(bytes) => (sample.items * bytes) as f64,
        None => sample.bytes as f64 - overhead * sample.items as f64,
    };
    samples
        .iter()
        .map(|sample| live(sample) / limit as f64)
        .collect()
}

impl FillReport {
    /// Sets the fields that follow from the samples after the first filling.
    fn judge(&mut self, live: &[f64], samples: &[Sample], limit: u64) {
        self.evictions = samples.last().map_or(0, |last| last.evictions);
        self.sample_error = live.last().map_or(0.0, |last| (last - self.end_live).abs());
        let mut before = None;
        self.min_live = f64::INFINITY;
        for (&live, sample) in live.iter().zip(samples) {
            if sample.stored_bytes < limit {
                continue;
            }
            self.samples += 1;
            if live < self.min_live {
                self.min_live = live;
                self.min_live_at = sample.stored_bytes as f64 / limit as f64;
            }
            let drop = before.map_or(0.0, |before: f64| before - live);
            self.largest_drop = self.largest_drop.max(drop);
            before = Some(live);
            let peak = self.peak_rss_kib.max(sample.rss_kib);
            self.peak_rss_kib = peak;
        }
        if self.samples == 0 {
            self.min_live = self.end_live;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(stored_bytes: u64, items: u64, bytes: u64) -> Sample {
        Sample {
            stored_bytes,
            items,
            bytes,
            evictions: 3,
            rss_kib: Some(stored_bytes),
        }
    }

    #[test]
    fn one_size_counts_items_and_several_sizes_take_off_a_constant_for_each_item() {
        let samples = [sample(500, 5, 700), sample(2000, 10, 1400)];
        assert_eq!(live_shares(&samples, 1000, Some(100)), [0.5, 1.0]);
        assert_eq!(live_shares(&samples, 1000, None), [0.5, 1.0]);
    }

    #[test]
    fn the_smallest_sample_after_the_first_filling_counts() {
        let samples = [
            sample(500, 0, 0),
            sample(1000, 0, 0),
            sample(2000, 0, 0),
            sample(3000, 0, 0),
        ];
        let mut report = FillReport {
            end_live: 0.75,
            ..FillReport::default()
        };
        report.judge(&[0.1, 0.9, 0.4, 0.8], &samples, 1000);
        assert_eq!((report.min_live, report.min_live_at), (0.4, 2.0));
        assert_eq!((report.samples, report.evictions), (3, 3));
        assert!((report.largest_drop - 0.5).abs() < 1e-9);
        assert!((report.sample_error - 0.05).abs() < 1e-9);
        assert_eq!(report.peak_rss_kib, Some(3000));
    }
}
