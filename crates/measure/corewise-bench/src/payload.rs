//! What sections and subjects add to results, besides what every row has.

use std::collections::BTreeMap;

use corewise_measure::stats::Spread;
use serde::{Deserialize, Serialize};

pub use crate::table::Measurements;

/// A value with its spread over repetitions.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    /// Median, or for ratios the Hodges-Lehmann estimate.
    pub value: f64,
    /// Lower end of the 95 % interval.
    pub low: f64,
    /// Its upper end.
    pub high: f64,
}

impl From<Spread> for Interval {
    fn from(of: Spread) -> Self {
        Self {
            value: of.median,
            low: of.low,
            high: of.high,
        }
    }
}

/// What a section or a subject adds to a row.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RowFields {
    /// The measurements of the subject.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub measured: MeasuredRow,
    /// Lookups in batches.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub batch: Option<BatchSummary>,
    /// Slow operations of the writer and of the reader.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tails: Vec<Tail>,
    /// Operations beside a resizing thread.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resize: Option<ResizeSummary>,
}

/// What a section or a subject adds to a repetition.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SliceFields {
    /// The measurements of the subject.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub measurements: Measurements,
    /// Rates of single lookups: one for each short slice in batches, from the same round.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub singles: Vec<f64>,
}

/// Returns what the operations of a section are, if not a mix of lookups and updates.
pub(crate) fn operations(section: &str) -> Option<&'static str> {
    match section {
        "hot" => Some("each removed and inserted again"),
        _ => None,
    }
}

/// The measurements of a row: the median over its repetitions, with its interval.
pub type MeasuredRow = BTreeMap<String, Interval>;

/// Lookups in batches, against single lookups in the same table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BatchSummary {
    /// Keys per batch.
    pub keys: usize,
    /// Rounds that measured both.
    pub pairs: usize,
    /// Single lookups per second.
    pub single: Interval,
    /// Rate in batches over that of single lookups of the same round.
    pub ratio: Interval,
}

/// Slow operations of one of the two threads of a growth, and of an empty loop.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Tail {
    /// `writer` or `reader`.
    pub side: String,
    /// Its operations in all repetitions.
    pub operations: u64,
    /// The longest latency.
    pub max_ns: f64,
    /// Numbers of operations over each limit.
    pub slow: Vec<SlowCount>,
    /// The longest operation of the empty loop.
    pub empty_max_ns: f64,
}

/// Operations that took longer than a limit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SlowCount {
    /// The limit in microseconds.
    pub over_us: u64,
    /// Operations of the table over it.
    pub count: u64,
    /// Operations of the empty loop over it, scaled to the table's time.
    pub expected: f64,
}

/// Memory of a table at a number of entries.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MemoryPoint {
    /// The cell's id.
    pub cell: String,
    /// The table.
    pub table: String,
    /// Entries.
    pub entries: u64,
    /// Bytes of keys and values alone.
    pub payload_bytes: u64,
    /// Bytes allocated and not freed; `None` for memory outside the allocator.
    pub live_bytes: Option<u64>,
    /// Peak of `live_bytes` while the table was filled.
    pub peak_live_bytes: Option<u64>,
    /// Growth of the process's resident set.
    pub resident_bytes: u64,
    /// Peak of `resident_bytes` while the table was filled.
    pub peak_resident_bytes: u64,
    /// Bytes still allocated after all entries are removed and the table has settled.
    pub emptied_bytes: Option<u64>,
    /// Bytes still allocated after the table is dropped.
    pub dropped_bytes: Option<u64>,
    /// The most bytes, live or resident, beyond those before, while half of the operations inserted
    /// and half removed; 0 in earlier files.
    #[serde(default)]
    pub garbage_bytes: u64,
}

/// Rates of lookups, or of a mix with updates, while the table is resized back and forth without
/// pause.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ResizeSummary {
    /// Buckets at the two sizes, as the table counts them.
    pub buckets: (usize, usize),
    /// Rounds that measured all variants one after the other.
    pub pairs: usize,
    /// Operations per second at the smaller size, at rest.
    pub small: Interval,
    /// The same at the larger size, at rest.
    pub large: Interval,
    /// The same while the table was resized.
    pub resizing: Interval,
    /// `resizing` over the rate at the slower of the two sizes, round by round.
    pub to_slower: Interval,
    /// `resizing` over the rate at the faster size, round by round.
    pub to_faster: Interval,
    /// Rate at the larger size while the other CPU resizes a second table of the kind, over the
    /// same without: the share that the machine costs, whatever the table does.
    pub machine: Interval,
    /// Resizes per second.
    pub resizes_per_s: Interval,
    /// Share of the time in which a resize was in progress.
    pub busy_share: Interval,
    /// Whether the resizing thread had a separate CPU.
    pub own_cpu: bool,
}

impl ResizeSummary {
    /// Least share of the time with a resize in progress for a row of continuous resizing.
    pub const LEAST_BUSY: f64 = 0.9;

    /// Returns whether the median round reached [`Self::LEAST_BUSY`].
    pub fn is_continuous(&self) -> bool {
        self.busy_share.value >= Self::LEAST_BUSY
    }
}

#[cfg(test)]
mod tests {
    use crate::record::Record;

    #[test]
    fn a_record_of_another_form_is_refused() {
        let line = r#"{"type":"memory","cell":"c","table":"t","entries":1,"payload_bytes":16,
            "resident_bytes":1,"peak_resident_bytes":2}"#;
        let read = |line: &str| serde_json::from_str::<Record>(line);
        assert!(read(line).is_ok());
        let unknown = read(&line.replace("memory", "memories"));
        assert!(unknown.is_err_and(|error| error.to_string().contains("memories")));
        assert!(read(&line.replace(":16", ":\"16\"")).is_err());
        let earlier = r#"{"type":"timeline","cell":"c","table":"t","bin_ms":1.0}"#;
        assert_eq!(read(earlier).expect("it is not read"), Record::Earlier);
    }

    #[test]
    fn a_field_of_a_section_of_another_form_is_refused() {
        let read = serde_json::from_str::<super::RowFields>;
        assert!(read(r#"{"tails":[]}"#).is_ok());
        assert_eq!(read("{}").expect("no fields"), super::RowFields::default());
        assert!(read(r#"{"resize":2.0}"#).is_err());
        assert!(read(r#"{"tails":{}}"#).is_err());
    }
}
