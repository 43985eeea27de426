//! The result file: JSON Lines, one [`Record`] a line.
//!
//! ```text
//! manifest   once, first: machine, toolchain, command, cards of the tables
//! slice      one repetition of one row, with its verification      } in the order in which they
//! row        the summary of a row, after its last repetition       } were measured
//! histogram  latencies of one operation of a row
//! timeline, memory, garbage: of one section each
//! end        once, last: a file without it was cut off
//! ```
//!
//! Lines are appended and flushed one at a time, so a run that dies leaves a file that is valid up
//! to its last line; a reader skips an incomplete last line. A reader refuses a file whose
//! [`SCHEMA`] is newer than its own.
//!
//! A *cell* is a workload at a number of threads; a *row* is a table in a cell. Rates are
//! operations per second over all threads; times are nanoseconds. What one section alone adds to
//! rows, slices and files is in [`payload`](crate::payload).

use std::collections::BTreeMap;

use corewise_measure::stats::Ratio;
use serde::{Deserialize, Serialize};

pub use crate::payload::Interval;
use crate::payload::{Garbage, MemoryPoint, RowFields, SliceFields, Timeline};
use crate::plan::KeyMap;
use crate::table::{Contention, TableInfo};

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
    /// Progress of a table over time.
    Timeline(Box<Timeline>),
    /// Memory of a table at a number of entries.
    Memory(Box<MemoryPoint>),
    /// Memory of a table while it is churned.
    Garbage(Box<Garbage>),
    /// The end of a complete file.
    End(End),
}

/// Program, build and machine of a run.
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
    /// The page policy, and the system's setting.
    pub pages: String,
    /// The machine.
    pub machine: MachineFacts,
    /// Cards of the tables of this run.
    pub cards: Vec<TableInfo>,
}

impl Manifest {
    /// Returns the commit, and whether the sources differed from it.
    pub(crate) fn named_commit(&self) -> String {
        let changed = if self.dirty { " with changes" } else { "" };
        format!("{}{changed}", self.commit)
    }
}

/// The machine of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MachineFacts {
    /// CPU model.
    pub cpu: String,
    /// CPUs this process may use.
    pub cpus: usize,
    /// Cores of these CPUs.
    pub cores: usize,
    /// Sockets of these CPUs.
    pub sockets: usize,
    /// CPUs of the first NUMA node, of the first two, and so on; empty in earlier files.
    #[serde(default)]
    pub node_ends: Vec<usize>,
    /// Kernel release.
    pub kernel: String,
    /// Physical memory in bytes.
    pub memory_bytes: u64,
    /// Data and unified caches of the first CPU, by level.
    pub caches: Vec<CacheFacts>,
    /// Load average over a minute, at the start.
    pub load_1min: f64,
    /// Whether a hypervisor is present.
    pub virtual_machine: bool,
    /// Ticks of the timestamp counter per second.
    pub tsc_hz: f64,
    /// Cost of timing an operation; subtracted from all latencies.
    pub timing_overhead_ns: f64,
}

/// Load average per CPU from which on something else disturbs what is measured.
pub(crate) const MOST_LOAD: f64 = 0.5;

impl MachineFacts {
    /// Returns a warning if the machine was busy when the run began.
    pub(crate) fn loaded(&self) -> Option<String> {
        let is_busy = self.load_1min > MOST_LOAD * self.cpus.max(1) as f64;
        let (load, cpus) = (self.load_1min, self.cpus);
        is_busy.then(|| {
            format!(
                "the machine was busy when the run began (a load of {load:.1} on {cpus} CPUs), so \
                 expect noise; `corewise bench doctor` looks for its causes"
            )
        })
    }

    /// Returns the CPU and the number of CPUs.
    pub(crate) fn named(&self) -> String {
        format!("{}, {} CPUs", self.cpu, self.cpus)
    }
}

/// A cache.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CacheFacts {
    /// Level; 1 is next to the core.
    pub level: u8,
    /// Size in bytes.
    pub size_bytes: u64,
    /// Number of CPUs that share it.
    pub shared_by: usize,
}

/// A workload at a number of threads: the parameters of \[CHTBench\] §3.3.1 and ours.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cell {
    /// Its name, unique in a file: `scaling/i=1048576,u=10,uniform,n=2`.
    pub id: String,
    /// The section, which names the dimension under study.
    pub section: String,
    /// Threads (n).
    pub threads: usize,
    /// Measured milliseconds of a repetition (d).
    pub duration_ms: f64,
    /// Percentage of updates (u), the sum of the next two.
    pub update_percent: f64,
    /// Percentage of inserts.
    pub insert_percent: f64,
    /// Percentage of removes.
    pub remove_percent: f64,
    /// Entries at the start (i).
    pub initial: u64,
    /// Number of keys (r).
    pub range: u64,
    /// Distribution of keys.
    pub distribution: String,
    /// `u64`, or `bytes` with the sizes below.
    pub kind: String,
    /// Least and greatest length of keys in bytes.
    pub key_bytes: (usize, usize),
    /// Length of values in bytes.
    pub value_bytes: usize,
    /// How keys are made of indices.
    pub keys: KeyMap,
    /// Hash functions: `common` or `native`.
    pub hash: String,
    /// Whether `all` threads or `one` filled the table at the start.
    pub prefill: String,
    /// Pin policy.
    pub pin: String,
    /// The CPUs that the policy chose; empty if threads were not pinned.
    pub cpus: Vec<usize>,
    /// Load mode: `closed`, or `open` at a rate.
    pub mode: String,
    /// Operations per second of all threads in open loop.
    pub rate_per_s: Option<f64>,
    /// What else the section varies: in `resize`, the buckets.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub variant: String,
    /// Requested tables that lack what the section needs: in `resize`, resizing on request.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<String>,
}

/// Outcomes of the operations of a repetition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutcomeCounts {
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

impl OutcomeCounts {
    /// Returns the number of all operations.
    pub fn total(&self) -> u64 {
        self.gets() + self.inserts() + self.removes()
    }

    /// Returns the number of lookups.
    pub fn gets(&self) -> u64 {
        self.get_hits + self.get_misses
    }

    /// Returns the number of attempted inserts.
    pub fn inserts(&self) -> u64 {
        self.inserted + self.insert_failed
    }

    /// Returns the number of attempted removes.
    pub fn removes(&self) -> u64 {
        self.removed + self.remove_failed
    }

    /// Adds a lookup, by whether it found its key.
    #[inline(always)]
    pub(crate) fn count_get(&mut self, found: bool) {
        self.get_hits += u64::from(found);
        self.get_misses += u64::from(!found);
    }

    /// Adds an insert, by whether it inserted.
    #[inline(always)]
    pub(crate) fn count_insert(&mut self, done: bool) {
        self.inserted += u64::from(done);
        self.insert_failed += u64::from(!done);
    }

    /// Adds a remove, by whether it removed.
    #[inline(always)]
    pub(crate) fn count_remove(&mut self, done: bool) {
        self.removed += u64::from(done);
        self.remove_failed += u64::from(!done);
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

/// Declares [`HardwareCounters`]: each counter with its name in reports.
macro_rules! counters {
    ($($(#[$about:meta])* $field:ident $name:literal)*) => {
        /// Hardware counters and processor time of all threads of a repetition; `None` if the
        /// machine does not count it, or the file is older than the field.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
        pub struct HardwareCounters {
            $($(#[$about])* pub $field: Option<u64>,)*
            /// Processor time of the threads.
            pub processor_ns: Option<u64>,
        }

        impl HardwareCounters {
            /// Returns the counts of events with their names in reports.
            pub(crate) fn named(&self) -> [(&'static str, Option<u64>); 8] {
                [$(($name, self.$field)),*]
            }

            /// Counters with these counts of events, in the order of the fields.
            #[cfg_attr(not(feature = "bench"), allow(dead_code))]
            pub(crate) fn of(mut counts: impl Iterator<Item = Option<u64>>) -> Self {
                $(let $field = counts.next().flatten();)*
                Self { $($field,)* processor_ns: None }
            }

            /// Adds those of another thread; a count that one thread lacks is `None`.
            pub(crate) fn plus(self, other: Self) -> Self {
                let add = |a: Option<u64>, b: Option<u64>| Some(a?.saturating_add(b?));
                Self {
                    $($field: add(self.$field, other.$field),)*
                    processor_ns: add(self.processor_ns, other.processor_ns),
                }
            }
        }
    };
}

counters! {
    /// Instructions.
    instructions "instructions"
    /// Core cycles.
    cycles "cycles"
    /// Misses of the last-level cache.
    cache_misses "cache misses"
    /// Mispredicted branches.
    branch_misses "branch misses"
    /// Loads that missed the first-level data cache.
    l1d_load_misses "L1 load misses"
    /// Loads that missed the last-level cache.
    last_level_load_misses "LLC load misses"
    /// Hardware transactions that were started (Intel RTM).
    transactions "transactions"
    /// Hardware transactions that aborted.
    transaction_aborts "transaction aborts"
}

/// The role of a row in its cell, in the order of the lines of a cell on the page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// The table that the others are compared with.
    Reference,
    /// The reference once more, for the noise floor.
    Again,
    /// A table under comparison.
    #[default]
    #[serde(rename = "subject")]
    DynTable,
    /// The null table, for the cost of the harness.
    Null,
}

/// Results of the checks of a repetition.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Verdicts {
    /// Failed checks, in words; empty if none failed. Any entry voids the row.
    pub problems: Vec<String>,
    /// Keys looked up one by one after the repetition.
    pub probed: u64,
    /// Operations whose outcome was known beforehand and compared.
    pub audited: u64,
    /// Expected share of lookups that hit.
    pub expected_hit_rate: Option<f64>,
    /// Share of lookups that hit.
    pub hit_rate: Option<f64>,
    /// Expected number of entries at the end.
    pub expected_size: Option<u64>,
    /// Number of entries found.
    pub size: Option<u64>,
    /// Number of entries as the table counts them.
    pub reported_size: Option<u64>,
}

/// One repetition of a row.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Slice {
    /// The cell's id.
    pub cell: String,
    /// The table.
    pub table: String,
    /// Its role.
    pub role: Role,
    /// Repetition, from 0.
    pub repetition: usize,
    /// Operations per second: the median over the short slices of the repetition.
    pub rate: f64,
    /// The rates of the short slices.
    pub rates: Vec<f64>,
    /// Number of measured operations.
    pub operations: u64,
    /// Measured time.
    pub elapsed_ns: u64,
    /// All operations since the prefill, measured or not.
    pub counts: OutcomeCounts,
    /// Time to fill the table.
    pub prefill_ns: u64,
    /// Results of the checks.
    pub checks: Verdicts,
    /// Hardware counters of the measured time.
    pub hardware: HardwareCounters,
    /// Contention of locks and transactions.
    pub contention: Option<Contention>,
    /// CPUs that the threads ran on at the end.
    pub ran_on: Vec<usize>,
    /// What the section adds.
    #[serde(flatten)]
    pub fields: SliceFields,
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
    /// Its role.
    pub role: Role,
    /// Number of repetitions.
    pub repetitions: usize,
    /// Operations per second; `None` in sections that measure something else.
    pub rate: Option<Interval>,
    /// Rate over the reference's in the same repetitions; `None` for the reference.
    pub ratio: Option<Interval>,
    /// `faster`, `slower`, `equivalent` or `undecided`; `void` if a check failed; empty for the
    /// reference and if there is no ratio.
    pub verdict: String,
    /// Version of the table's library.
    pub version: String,
    /// Memory allocator.
    pub allocator: String,
    /// Page policy.
    pub pages: String,
    /// The first problems, if void.
    pub problems: Vec<String>,
    /// Sums over the repetitions.
    pub contention: Option<Contention>,
    /// Instructions per operation and so on, by name; absent if not available.
    pub per_operation: BTreeMap<String, f64>,
    /// What the section adds; nothing if the row is void.
    #[serde(flatten)]
    pub fields: RowFields,
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
    /// Number of samples.
    pub count: u64,
    /// Mean.
    pub mean_ns: f64,
    /// Least.
    pub min_ns: f64,
    /// Greatest.
    pub max_ns: f64,
    /// Percentiles by name: `50`, `90`, `99`, `99.9`, `99.99`.
    pub percentiles_ns: BTreeMap<String, f64>,
    /// The whole histogram: nanoseconds and samples of each nonempty bucket, three significant
    /// digits.
    pub buckets: Vec<(u64, u64)>,
}

/// The end of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct End {
    /// Number of rows.
    pub rows: usize,
    /// Number of void rows.
    pub void: usize,
    /// Seconds the run took.
    pub seconds: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Files of earlier versions have these names.
    #[test]
    fn roles_keep_their_names_in_files() {
        let roles = [Role::DynTable, Role::Reference, Role::Again, Role::Null];
        let names = serde_json::to_value(roles).expect("names");
        assert_eq!(
            names,
            serde_json::json!(["subject", "reference", "again", "null"])
        );
    }
}
