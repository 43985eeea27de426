//! The sections: kinds of experiment, one folder each.
//!
//! A `Section` owns everything that only its experiment has:
//!
//! | part | in the trait | usual file |
//! |---|---|---|
//! | name, purpose, default parameters | `Section::name`, `Section::about`, `Section::defaults` | `mod.rs` |
//! | what it varies besides the common parameters | `Section::variants`, read by `Variant::get` | `mod.rs` |
//! | checks of parameters, number of keys, names of cells | `Section::checks`, `Section::range`, `Section::id_suffix`, ... | `mod.rs` |
//! | the loop of its threads, compiled for each table | `Section::Loop` | `worker.rs` |
//! | how a cell is measured and verified | `Section::run` | `cells.rs` |
//! | what it adds to results | `Section::payloads`: types that implement [`Payload`] | `mod.rs`, `cells.rs` |
//! | text, figures and plots of results | `Section::lines`, `Section::figures`, `Section::parts` | `plot.rs` |
//!
//! Everything else is shared. `closed_loop` measures a mix of operations in interleaved slices,
//! which is what a section does unless it overrides `Section::run`. `contender` makes, fills,
//! verifies and drops tables, `runner` accumulates rows and writes them, `work` has the phases
//! that every repetition has, and `plot` has what plots are drawn with.
//!
//! # Plots and figures
//!
//! | section | plot | shows | figures besides rate and latencies |
//! |---|---|---|---|
//! | scaling | `plot-scaling-N` | throughput against threads, with the ideal line | |
//! | updates | `plot-updates-N` | throughput over the share of updates | |
//! | workingset | `plot-workingset-N` | throughput against entries, with the caches | |
//! | distribution | `plot-distribution-N` | throughput by distribution | |
//! | resizing | `plot-resizing-N` | throughput while resizing | |
//! | hot | `plot-hot-N` | pairs of remove and insert of the same key | `pair` |
//! | batch | `plot-batch-N` | lookups in batches, by their size | `single`: the rate one by one, `batch over single` |
//! | resize | `plot-resize-fixed-N`, `plot-resize-moving-N`, `plot-resize-table-N` | \[ATC11\] figures 3 to 7 | |
//! | resize | `plot-resize-N` | operations beside a resizing thread, and at both sizes at rest | `of the slower size`, `of the faster size`, `resizes a second`, `in progress` |
//! | iterate | `plot-iterate-N` | entries visited per second | `entry`: nanoseconds an entry |
//! | latency | `plot-latency-N` | percentiles by operation, closed loop | |
//! | paced | `plot-paced-N` | the same in open loop | |
//! | growth | `plot-growth-N` | operations and stalls over time | `longest`: the longest operation of a repetition |
//! | tails | `plot-tails-N` | inserts beside a reader, and slow operations | `writer > 50 µs`, ... of 10,000 operations; `empty loop > 50 µs` in the same time |
//! | memory | `plot-memory-N`, `plot-garbage-N` | bytes per entry; bytes while churned | `live`, `live, most`, `resident`, `resident, most`: bytes an entry; `garbage, most` |
//! | pinning | `plot-pinning-N` | throughput by pin policy | |
//! | sync | `plot-sync-N` | throughput by lock, with contention | |
//!
//! # Adding a section
//!
//! Write a folder with a unit struct that implements `Section`, add its module and its line to
//! the registry below, and name it in `suites/choosing.toml`. A parameter that no section has yet
//! is a field of [`Params`] and an option in `args/params.rs`.
//!
//! # Measured loops
//!
//! A section's loop implements [`Loop`]. `run_loop` is compiled for each table and selects the
//! loop by the type of the job, once for each slice of each thread. Inside the loop there is no
//! indirect call.

pub mod batch;
pub(crate) mod closed_loop;
pub(crate) mod distribution;
pub mod growth;
pub mod hot;
pub(crate) mod iterate;
pub(crate) mod latency;
pub mod memory;
pub(crate) mod paced;
pub(crate) mod pinning;
pub mod resize;
pub(crate) mod resizing;
pub(crate) mod scaling;
pub(crate) mod sync;
pub mod tails;
pub(crate) mod updates;
pub(crate) mod workingset;

use std::any::Any;
use std::fmt::Debug;
use std::sync::Arc;

use crate::contender::Contender;
use crate::dyn_table::{Entry, Maker};
use crate::error::BenchError;
use crate::estimate;
use crate::figure::Figure;
use crate::plan::{Kept, Plan};
use crate::plot::Part as PagePart;
use crate::plot::style::Looks;
use crate::record::{Cell, Fields, Payload, Record, Row};
use crate::results::{Results, RowResults};
use crate::runner::Runner;
use crate::suite::{Params, Task};
use crate::table::{Kind, Table};
use crate::work::{Loop, Part};
use crate::workload::{Check, Workload};

/// Registers sections in the order in which `bench list` names them.
macro_rules! registry {
    ($($section:path),* $(,)?) => {
        /// All sections.
        pub(crate) static SECTIONS: &[&dyn Section] = &[$(&$section),*];

        /// Runs the loop that `job` belongs to, on one thread.
        ///
        /// # Panics
        ///
        /// Panics if `job` is the loop of no registered section.
        pub(crate) fn run_loop<K: Kind, T: Table<K>>(
            table: &T,
            plan: &Plan,
            part: Part,
            job: &mut dyn Any,
        ) -> Box<dyn Any + Send> {
            $(
                if let Some(job) = job.downcast_mut::<<$section as Section>::Loop>() {
                    return run_as(table, plan, part, job);
                }
            )*
            panic!("the loop of a section that is not registered");
        }
    };
}

registry! {
    scaling::ScalingSection,
    distribution::DistributionSection,
    resizing::ResizingSection,
    updates::UpdatesSection,
    workingset::WorkingSetSection,
    latency::LatencySection,
    pinning::PinningSection,
    sync::SyncSection,
    memory::MemorySection,
    growth::GrowthSection,
    tails::TailsSection,
    hot::HotSection,
    resize::ResizeSection,
    batch::BatchSection,
    iterate::IterateSection,
    paced::PacedSection,
}

/// Compiled once for each loop and table, although several sections share a loop.
#[inline(never)]
fn run_as<K: Kind, T: Table<K>, L: Loop>(
    table: &T,
    plan: &Plan,
    part: Part,
    job: &mut L,
) -> Box<dyn Any + Send> {
    Box::new(job.run(table, plan, part))
}

/// Returns the section of a name.
pub(crate) fn find(name: &str) -> Option<&'static dyn Section> {
    SECTIONS
        .iter()
        .copied()
        .find(|section| section.name() == name)
}

/// Returns the names of all sections, comma-separated.
pub(crate) fn names() -> String {
    let names: Vec<&str> = SECTIONS.iter().map(|section| section.name()).collect();
    names.join(", ")
}

/// Parameters of one section, in a type of that section.
#[derive(Clone, Debug)]
pub(crate) struct Variant(Arc<dyn Parameters>);

/// What a [`Variant`] can hold.
pub(crate) trait Parameters: Any + Debug + Send + Sync {}

impl<T: Any + Debug + Send + Sync> Parameters for T {}

impl Variant {
    pub(crate) fn of(parameters: impl Parameters) -> Self {
        Self(Arc::new(parameters))
    }

    /// Returns the parameters.
    ///
    /// # Panics
    ///
    /// Panics if they are of another type: a section reads only what it made.
    pub(crate) fn get<T: Any>(&self) -> &T {
        let any: &dyn Any = &*self.0;
        any.downcast_ref()
            .expect("a section reads the variants that it made")
    }
}

impl Default for Variant {
    fn default() -> Self {
        Self::of(())
    }
}

/// The record that a payload belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RecordKind {
    Row,
    Slice,
    Detail,
}

/// A type that a section adds to results, for the check of files that are read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Schema {
    place: RecordKind,
    name: &'static str,
    check: fn(&Fields) -> Result<(), String>,
}

impl Schema {
    const fn new<P: Payload>(place: RecordKind, check: fn(&Fields) -> Result<(), String>) -> Self {
        let name = P::NAME;
        Self { place, name, check }
    }

    /// A field of rows.
    pub(crate) const fn row<P: Payload>() -> Self {
        Self::new::<P>(RecordKind::Row, Fields::check::<P>)
    }

    /// A field of slices.
    pub(crate) const fn slice<P: Payload>() -> Self {
        Self::new::<P>(RecordKind::Slice, Fields::check::<P>)
    }

    /// A record of its type.
    pub(crate) const fn record<P: Payload>() -> Self {
        Self::new::<P>(RecordKind::Detail, Fields::check_all::<P>)
    }
}

/// Checks what sections added to a record.
///
/// # Errors
///
/// A description of the first payload that has another form, or of a record of unknown type.
pub(crate) fn check(record: &Record) -> Result<(), String> {
    let (place, fields) = match record {
        Record::Row(row) => (RecordKind::Row, &row.fields),
        Record::Slice(slice) => (RecordKind::Slice, &slice.fields),
        Record::Detail(detail) => (RecordKind::Detail, &detail.fields),
        _ => return Ok(()),
    };
    let schemas = SECTIONS.iter().flat_map(|section| section.payloads());
    let mut of_place = schemas.filter(|schema| schema.place == place);
    match record {
        Record::Detail(detail) => match of_place.find(|schema| schema.name == detail.kind) {
            Some(schema) => (schema.check)(&detail.all()),
            None => Err(format!("unknown type of record `{}`", detail.kind)),
        },
        _ => of_place.try_for_each(|schema| (schema.check)(fields)),
    }
}

/// A kind of experiment. All methods but the first three have defaults, which are those of a
/// section that measures the throughput of a mix in closed loop.
pub(crate) trait Section: Debug + Sync {
    /// The loop that its threads run in the measured time.
    type Loop: Loop
    where
        Self: Sized;

    /// Returns its name in suites and results.
    fn name(&self) -> &'static str;

    /// Returns what it measures, in a line.
    fn about(&self) -> &'static str;

    /// Returns its defaults, where they differ from those of all sections.
    fn defaults(&self) -> Params {
        Params::default()
    }

    /// Returns the values of what it varies besides the common parameters.
    fn variants(&self, _: &Params) -> Vec<Variant> {
        vec![Variant::default()]
    }

    /// Returns its numbers of threads on a machine, if no parameter decides them.
    fn thread_counts(&self, _cpus: usize, _oversubscribe: bool) -> Option<Vec<usize>> {
        None
    }

    /// Returns the number of keys for `initial` entries, a percentage of updates and a share of
    /// inserts among them; `None` if the parameters decide it.
    fn range(&self, _initial: u64, _updates: f64, _insert_share: f64) -> Option<u64> {
        None
    }

    /// Sets parameters that the section does not leave to the suite.
    fn adapt(&self, _: &mut Workload) {}

    /// Returns the conditions on its parameters, each with the message if it does not hold.
    fn checks(&self, _: &Workload) -> Vec<Check> {
        Vec::new()
    }

    /// Returns which keys stay while a cell runs.
    fn kept(&self, _: &Workload) -> Kept {
        Kept::None
    }

    /// Returns whether tables are built for the entries; if not, they start small and grow.
    fn is_presized(&self) -> bool {
        true
    }

    /// Returns whether all keys are present at the start and at the end.
    fn is_full(&self, workload: &Workload) -> bool {
        self.kept(workload) == Kept::All
    }

    /// Returns whether the name of a cell with all keys present has the distribution.
    fn names_distribution(&self) -> bool {
        false
    }

    /// Returns the end of a cell's name, which distinguishes it from the section's other cells.
    fn id_suffix(&self, _: &Workload) -> String {
        String::new()
    }

    /// Returns the names of all cells that are measured together, its own first; `id` is that.
    fn ids(&self, _: &Workload, id: String) -> Vec<String> {
        vec![id]
    }

    /// Completes the description of a cell.
    fn describe(&self, _: &Workload, _: &mut Cell) {}

    /// Returns the maker of a table for a kind of keys and a hash function; `None` if the table
    /// lacks what the section needs.
    fn maker(&self, entry: &Entry, kind: &str, native: bool) -> Option<Maker> {
        entry.maker(kind, native)
    }

    /// Returns whether a contender has a row.
    fn takes_part(&self, _: &Contender) -> bool {
        true
    }

    /// Measures the cells of a task, and writes their rows and all other records.
    fn run(
        &self,
        runner: &mut Runner<'_>,
        task: &Task,
        contenders: &[Contender],
    ) -> Result<(), BenchError> {
        closed_loop::run(runner, task, contenders)
    }

    /// Estimates the seconds of a task with `rows` rows in each cell.
    fn seconds(&self, task: &Task, rows: usize) -> f64 {
        estimate::repeated(task, rows, estimate::closed_loop(&task.workload))
    }

    /// Returns the types that it adds to results.
    fn payloads(&self) -> &'static [Schema] {
        &[]
    }

    /// Returns why requested tables have no row, for the line that names them.
    fn left_out(&self) -> &'static str {
        "left out"
    }

    /// Returns the end of a row's line on the terminal.
    fn remark(&self, _: &Row) -> String {
        String::new()
    }

    /// Returns lines below a row's line on the terminal.
    fn lines(&self, _: &Row) -> Vec<String> {
        Vec::new()
    }

    /// Returns the figures of a row besides rate, latencies and contention, for `bench show`.
    fn figures(&self, _: &RowResults) -> Vec<Figure> {
        Vec::new()
    }

    /// Returns what its operations are, if not a mix of lookups and updates.
    fn operations(&self) -> Option<&'static str> {
        None
    }

    /// Returns its rank among the sections of the page, the least first.
    fn page_rank(&self) -> u32 {
        u32::MAX
    }

    /// Draws its parts of the page; those without plots are omitted.
    fn parts(&self, results: &Results, looks: &Looks) -> Vec<PagePart>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_differ_in_all_registries() {
        let names: Vec<&str> = SECTIONS.iter().map(|section| section.name()).collect();
        let payloads = SECTIONS.iter().flat_map(|section| section.payloads());
        let payloads: Vec<&str> = payloads.map(|schema| schema.name).collect();
        for list in [names, payloads] {
            let different: std::collections::HashSet<_> = list.iter().collect();
            assert_eq!(different.len(), list.len(), "{list:?}");
        }
    }

    #[test]
    fn a_record_of_no_section_is_refused() {
        let line = r#"{"type":"timeline","cell":"c","table":"t","repetition":0,"bin_ms":1.0,
            "operations":[1],"longest_ns":[2]}"#;
        let read = |line: &str| serde_json::from_str::<Record>(line).expect("a record");
        assert_eq!(check(&read(line)), Ok(()));
        let unknown = line.replace("timeline", "timeliness");
        assert!(check(&read(&unknown)).is_err_and(|what| what.contains("timeliness")));
        let damaged = line.replace("[2]", "\"2\"");
        assert!(check(&read(&damaged)).is_err());
    }
}
