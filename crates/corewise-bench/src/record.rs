//! The result file: JSON Lines, one [`Record`] a line.
//!
//! ```text
//! manifest   once, first: machine, toolchain, command, cards of the tables
//! slice      one repetition of one row, with its verification      } in the order in which they
//! row        the summary of a row, after its last repetition       } were measured
//! histogram, timeline, memory, garbage   what a section has besides
//! end        once, last: a file without it was cut off
//! ```
//!
//! Lines are appended and flushed one at a time, so a run that dies leaves a file that is valid up
//! to its last line; a reader skips a last line that is not whole. A reader refuses a file whose
//! [`SCHEMA`] is newer than its own.
//!
//! A *cell* is a workload at a number of threads; a *row* is a table in a cell. Rates are
//! operations per second over all threads; times are nanoseconds.

use std::collections::BTreeMap;

use corewise_measure::stats::{Ratio, Spread};
use serde::{Deserialize, Serialize};

use crate::table::{Card, Contention};

/// The version of the format that this program writes.
pub const SCHEMA: u32 = 1;

/// A line of a result file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Record {
    /// The head of the file.
    Manifest(Box<Manifest>),
    /// One repetition of a row.
    Slice(Box<Slice>),
    /// The summary of a row.
    Row(Box<Row>),
    /// Latencies of one operation of a row.
    Histogram(Box<Histogram>),
    /// Progress over time of a row.
    Timeline(Box<Timeline>),
    /// Memory taken by a table at a size.
    Memory(Box<MemoryPoint>),
    /// Memory over time while a table is churned.
    Garbage(Box<Garbage>),
    /// The end of a file that is whole.
    End(End),
}

/// What a result was measured with and on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    /// [`SCHEMA`] of the writer.
    pub schema: u32,
    /// Start of the run, UTC.
    pub date: String,
    /// The command line.
    pub command: Vec<String>,
    /// Name of the suite, or "command line".
    pub suite: String,
    /// The suite as run, in TOML, so that rows can be replayed.
    pub plan: String,
    /// Seed of all random streams.
    pub seed: u64,
    /// Commit of the program, "unknown" outside a repository.
    pub commit: String,
    /// Whether the sources differed from that commit.
    pub dirty: bool,
    /// Version of the compiler.
    pub rustc: String,
    /// Target, profile and flags of the build.
    pub build: String,
    /// Features that were compiled in.
    pub features: Vec<String>,
    /// Memory allocator and its version.
    pub allocator: String,
    /// Page policy: what was asked for and what the system's setting is.
    pub pages: String,
    /// The machine.
    pub machine: MachineFacts,
    /// Cards of the tables of this run.
    pub cards: Vec<Card>,
}

/// The machine of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MachineFacts {
    /// CPU model.
    pub cpu: String,
    /// CPUs this process may use.
    pub cpus: usize,
    /// Cores and sockets that they belong to.
    pub cores: usize,
    /// Sockets.
    pub sockets: usize,
    /// Kernel release.
    pub kernel: String,
    /// Physical memory in bytes.
    pub memory_bytes: u64,
    /// Data and unified caches of the first CPU, by level.
    pub caches: Vec<CacheFacts>,
    /// Runnable processes averaged over a minute, at the start.
    pub load_1min: f64,
    /// Whether a hypervisor is present.
    pub virtual_machine: bool,
    /// Ticks of the timestamp counter in a second.
    pub tsc_hz: f64,
    /// What a timed operation costs in timing alone; subtracted from all latencies.
    pub timing_overhead_ns: f64,
}

/// A cache.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CacheFacts {
    /// 1 is next to the core.
    pub level: u8,
    /// Bytes it holds.
    pub size_bytes: u64,
    /// CPUs that share it.
    pub shared_by: usize,
}

/// A workload at a number of threads: the parameters of the thesis (section 3.3.1) and ours.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cell {
    /// Its name, unique in a file: `scaling/i=1048576,u=10,uniform,n=2`.
    pub id: String,
    /// The section of the run: the dimension that is looked at.
    pub section: String,
    /// Threads (n).
    pub threads: usize,
    /// Measured milliseconds of a repetition (d).
    pub duration_ms: f64,
    /// Percentage of updates (u), of which inserts and removes.
    pub update_percent: f64,
    /// Percentage of inserts.
    pub insert_percent: f64,
    /// Percentage of removes.
    pub remove_percent: f64,
    /// Entries at the start (i).
    pub initial: u64,
    /// Keys are drawn from this many (r).
    pub range: u64,
    /// The law keys are drawn by.
    pub distribution: String,
    /// `u64`, or `bytes` with the sizes below.
    pub kind: String,
    /// Bytes of keys: least and most.
    pub key_bytes: (usize, usize),
    /// Bytes of values.
    pub value_bytes: usize,
    /// How keys are made of drawn numbers: `mixed` or `dense`.
    pub keys: String,
    /// `common` or `native`.
    pub hash: String,
    /// `all` threads filled the table at the start, or `one`.
    pub prefill: String,
    /// Pin policy.
    pub pin: String,
    /// The CPUs it came to; empty if threads were not pinned.
    pub cpus: Vec<usize>,
    /// Load mode: `closed`, or `open` at a rate.
    pub mode: String,
    /// Operations per second of all threads in open loop.
    pub rate_per_s: Option<f64>,
    /// What its section varies besides: in `resize`, the buckets.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub variant: String,
    /// Tables that were asked for and cannot do what the section asks: in `resize`, to resize on
    /// request.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<String>,
}

/// What happened to operations in a repetition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Lookups that found their key.
    pub get_hits: u64,
    /// Lookups that did not.
    pub get_misses: u64,
    /// Inserts that inserted.
    pub inserted: u64,
    /// Inserts that found the key present.
    pub insert_failed: u64,
    /// Removes that removed.
    pub removed: u64,
    /// Removes that found nothing.
    pub remove_failed: u64,
}

impl Counts {
    /// All operations.
    pub fn total(&self) -> u64 {
        self.gets() + self.inserts() + self.removes()
    }

    /// Lookups.
    pub fn gets(&self) -> u64 {
        self.get_hits + self.get_misses
    }

    /// Tried inserts.
    pub fn inserts(&self) -> u64 {
        self.inserted + self.insert_failed
    }

    /// Tried removes.
    pub fn removes(&self) -> u64 {
        self.removed + self.remove_failed
    }

    /// Adds another thread's counts.
    pub fn add(&mut self, other: &Self) {
        self.get_hits += other.get_hits;
        self.get_misses += other.get_misses;
        self.inserted += other.inserted;
        self.insert_failed += other.insert_failed;
        self.removed += other.removed;
        self.remove_failed += other.remove_failed;
    }
}

/// Hardware counters of all threads of a repetition; `None` where the machine has none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct HardwareCounters {
    /// Instructions.
    pub instructions: Option<u64>,
    /// Core cycles.
    pub cycles: Option<u64>,
    /// Misses of the last cache.
    pub cache_misses: Option<u64>,
    /// Mispredicted branches.
    pub branch_misses: Option<u64>,
}

/// Why a row is in its cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// A table to be compared.
    Subject,
    /// The table that the others are compared with.
    Reference,
    /// The reference once more: the noise floor.
    Again,
    /// No table: the cost of the harness.
    Null,
}

/// What the checks of a repetition said.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Verdicts {
    /// What is wrong, in words; empty if nothing is. Any entry voids the row.
    pub problems: Vec<String>,
    /// Keys looked up one by one after the repetition.
    pub probed: u64,
    /// Operations whose outcome was known beforehand and compared.
    pub audited: u64,
    /// Share of lookups that should hit, and that did.
    pub expected_hit_rate: Option<f64>,
    /// Share of lookups that hit.
    pub hit_rate: Option<f64>,
    /// Entries there should be at the end.
    pub expected_size: Option<u64>,
    /// Entries found.
    pub size: Option<u64>,
    /// Entries as the table counts them itself.
    pub reported_size: Option<u64>,
}

/// One repetition of a row.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Slice {
    /// The cell's id.
    pub cell: String,
    /// The table.
    pub table: String,
    /// Its part.
    pub role: Role,
    /// Repetition, from 0.
    pub repetition: usize,
    /// Operations per second: the median over the short slices of the repetition.
    pub rate: f64,
    /// The rates of the short slices.
    pub rates: Vec<f64>,
    /// In the section `batch`, rates of single lookups: one for each of `rates`, from the same round.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub singles: Vec<f64>,
    /// Measured operations.
    pub operations: u64,
    /// Measured time.
    pub elapsed_ns: u64,
    /// All operations since the prefill, measured or not.
    pub counts: Counts,
    /// Time it took to fill the table.
    pub prefill_ns: u64,
    /// The checks.
    pub checks: Verdicts,
    /// Counters of the measured time.
    pub hardware: HardwareCounters,
    /// Locks and transactions.
    pub contention: Option<Contention>,
    /// CPUs that the threads ran on at the end.
    pub ran_on: Vec<usize>,
}

/// A value with its spread over repetitions.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    /// Median, or for ratios the Hodges-Lehmann estimate.
    pub value: f64,
    /// Lower end of the 95 % bootstrap interval.
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

impl From<Ratio> for Interval {
    fn from(of: Ratio) -> Self {
        Self {
            value: of.value,
            low: of.low,
            high: of.high,
        }
    }
}

/// The summary of a row.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// The cell.
    pub cell: Cell,
    /// The table.
    pub table: String,
    /// Its part.
    pub role: Role,
    /// Repetitions.
    pub repetitions: usize,
    /// Operations per second; `None` in sections that measure something else.
    pub rate: Option<Interval>,
    /// Rate over the reference's in the same repetitions; `None` for the reference.
    pub ratio: Option<Interval>,
    /// `faster`, `slower`, `equivalent` or `undecided`; `void` if a check failed; empty for the
    /// reference and where there is no ratio.
    pub verdict: String,
    /// Version of the table's library.
    pub version: String,
    /// Memory allocator.
    pub allocator: String,
    /// Page policy.
    pub pages: String,
    /// First problems, if void.
    pub problems: Vec<String>,
    /// Sums over the repetitions.
    pub contention: Option<Contention>,
    /// Instructions per operation and so on, by name; absent where not available.
    pub per_operation: BTreeMap<String, f64>,
    /// Nanoseconds that a thread takes to remove a key and insert it again (section `hot`); there,
    /// `rate` counts such pairs of all threads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pair_ns: Option<Interval>,
    /// Slow operations of the writer and of the reader (section `tails`).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tails: Vec<Tail>,
    /// Lookups beside a thread that resizes, against those at rest (section `resize`, the cell
    /// with both sizes).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resize: Option<ResizeSummary>,
    /// Lookups in batches, against single ones (section `batch`); there, `rate` is of lookups in batches.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batch: Option<BatchSummary>,
}

/// Lookups in batches, against single ones in the same table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BatchSummary {
    /// Keys of a batch.
    pub keys: usize,
    /// Rounds in which both were measured.
    pub pairs: usize,
    /// Single lookups per second.
    pub single: Interval,
    /// Lookups in batches over single ones of the same round.
    pub ratio: Interval,
}

/// One of the two threads of a growth: how slow it was at times, and how slow an empty loop was.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Tail {
    /// `writer` or `reader`.
    pub side: String,
    /// Its operations in all repetitions.
    pub operations: u64,
    /// Its time in all repetitions.
    pub elapsed_ns: u64,
    /// The latency that 99.9 % of them did not exceed.
    pub p999_ns: f64,
    /// The longest.
    pub max_ns: f64,
    /// Counts of those over a limit.
    pub slow: Vec<SlowCount>,
    /// Operations of the empty loop.
    pub empty_operations: u64,
    /// Its time.
    pub empty_elapsed_ns: u64,
    /// Its longest operation.
    pub empty_max_ns: f64,
}

/// Operations that took longer than a limit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SlowCount {
    /// The limit in microseconds.
    pub over_us: u64,
    /// Operations of the table over it.
    pub count: u64,
    /// By repetition.
    pub counts: Vec<u64>,
    /// Operations of the empty loop over it.
    pub empty_count: u64,
    /// By repetition.
    pub empty_counts: Vec<u64>,
    /// `empty_count`, scaled to the table's time.
    pub expected: f64,
    /// That and three standard deviations, of at least 1.
    pub allowed: f64,
    /// Whether `count` is at most `allowed`.
    pub within: bool,
}

/// How lookups, or a mix with updates, fare while their table is resized back and forth without pause.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ResizeSummary {
    /// Buckets at the two sizes, as the table counts them.
    pub buckets: (usize, usize),
    /// Rounds in which all variants were measured one after the other.
    pub pairs: usize,
    /// Operations per second at the smaller size, at rest.
    pub small: Interval,
    /// At the larger size, at rest.
    pub large: Interval,
    /// While the table was resized.
    pub resizing: Interval,
    /// `resizing` over the slower of the two sizes, round by round.
    pub to_slower: Interval,
    /// Over the faster one.
    pub to_faster: Interval,
    /// `between`, `below`, `above` or `undecided`.
    pub position: String,
    /// At the larger size, with another table of the kind resized on the other CPU, over the
    /// same without: what the machine takes, whatever the table does.
    pub machine: Interval,
    /// Resizes per second.
    pub resizes_per_s: Interval,
    /// Share of the time in which a resize was in progress.
    pub busy_share: Interval,
    /// Whether the thread that resizes had a CPU of its own.
    pub own_cpu: bool,
}

impl ResizeSummary {
    /// Share of the time in which a resize must be in progress for a row to be of continuous
    /// resizing.
    pub const LEAST_BUSY: f64 = 0.9;

    /// Whether a resize was in progress for so much of the time, in the median round.
    pub fn is_continuous(&self) -> bool {
        self.busy_share.value >= Self::LEAST_BUSY
    }
}

/// Latencies of one operation of a row.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Histogram {
    /// The cell's id.
    pub cell: String,
    /// The table.
    pub table: String,
    /// `get hit`, `get miss`, `insert ok`, `insert fail`, `remove ok`, `remove fail`, or `all`.
    pub operation: String,
    /// Samples.
    pub count: u64,
    /// Mean.
    pub mean_ns: f64,
    /// Least and greatest.
    pub min_ns: f64,
    /// Greatest.
    pub max_ns: f64,
    /// Percentiles by name: `50`, `90`, `99`, `99.9`, `99.99`.
    pub percentiles_ns: BTreeMap<String, f64>,
    /// The whole histogram: nanoseconds and samples of each bucket that has any, 3 digits exact.
    pub buckets: Vec<(u64, u64)>,
}

/// Progress over time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Timeline {
    /// The cell's id.
    pub cell: String,
    /// The table.
    pub table: String,
    /// Repetition, from 0.
    pub repetition: usize,
    /// Milliseconds of a bin.
    pub bin_ms: f64,
    /// Operations that ended in each bin.
    pub operations: Vec<u64>,
    /// The longest operation that ended in each bin.
    pub longest_ns: Vec<u64>,
}

/// Memory of a table that holds a number of entries.
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
    /// Bytes allocated and not freed; `None` for memory that the allocator does not see.
    pub live_bytes: Option<u64>,
    /// Most of them at any time while the table was filled.
    pub peak_live_bytes: Option<u64>,
    /// Growth of the process's resident set.
    pub resident_bytes: u64,
    /// Most of it at any time while the table was filled.
    pub peak_resident_bytes: u64,
    /// What stays allocated after all entries are removed and the table has settled.
    pub emptied_bytes: Option<u64>,
    /// What stays allocated after the table is dropped.
    pub dropped_bytes: Option<u64>,
}

/// Memory over time while a table of steady size is churned.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Garbage {
    /// The cell's id.
    pub cell: String,
    /// The table.
    pub table: String,
    /// Entries.
    pub entries: u64,
    /// Milliseconds between two samples.
    pub interval_ms: f64,
    /// Live bytes, or the resident set, less what it was before the churn.
    pub over_bytes: Vec<i64>,
    /// `live` or `resident`.
    pub source: String,
    /// What is left of it after the table has settled.
    pub settled_bytes: i64,
}

/// The end of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct End {
    /// Rows.
    pub rows: usize,
    /// Of these void.
    pub void: usize,
    /// Seconds the run took.
    pub seconds: u64,
}
