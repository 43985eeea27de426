//! The sections: kinds of experiment, one folder each.
//!
//! A `Section` owns everything that only its experiment has:
//!
//! | part | in the trait | usual file |
//! |---|---|---|
//! | name, purpose, default parameters | `Section::name`, `Section::about`, `Section::defaults` | `mod.rs` |
//! | what it varies besides the common parameters | `Section::variants`, read by `Variant::get` | `mod.rs` |
//! | checks of parameters, number of keys, names of cells | `Section::checks`, `Section::range`, `Section::id_suffix`, ... | `mod.rs` |
//! | the loop of its threads, compiled for each table | a `Loop` | in `work` |
//! | how a cell is measured and verified | `Section::run` | `cells.rs` |
//! | what it adds to results | `Section::payloads`: types that implement [`Payload`] | `mod.rs`, `cells.rs` |
//! | text, figures and plots of results | `Section::lines`, `Section::figures`, `Section::parts` | `plot.rs` |
//!
//! Everything else is shared. `closed_loop` measures a mix of operations in interleaved slices,
//! which is what a section does unless it overrides `Section::run`. `contender` makes, fills,
//! verifies and drops tables, `runner` accumulates rows and writes them, `work` has the phases
//! that every repetition has, and `plot` has what plots are drawn with.
//!
//! Sections that measure nothing but a mix are presets of one type, in `mix`.
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
//! | filter | `plot-filter-N` | lookups and updates against threads | `bits an item`, `false positives` |
//! | queue | `plot-queue-N` | operations of priority queues against threads | |
//! | sortedset | `plot-sortedset-N` | operations of sorted sets against threads | |
//! | cache | `plot-cache-N` | operations of caches by number of keys | `resident entries` |
//! | lock | `plot-lock-N` | sections a second against threads | `fairness`: sections of the slowest thread over those of the fastest |
//! | sync | `plot-sync-N` | throughput by lock, with contention | |
//!
//! # Adding a section
//!
//! Write a preset in `mix`, or a folder with a unit struct that implements `Section`; add it to
//! [`SECTIONS`], and name it in `suites/choosing.toml`. A parameter that no section has yet is a
//! line in `suite/params.rs`.
//!
//! # Measured loops
//!
//! The loops are in `work`, below the table whose type is hidden: a loop implements
//! [`Loop`](crate::work::Loop) and has a method in [`Loops`](crate::work::loops::Loops), which is
//! called once for each slice of each thread. Inside the loop there is no indirect call.

pub mod batch;
pub(crate) mod closed_loop;
pub mod growth;
pub mod hot;
pub(crate) mod iterate;
pub(crate) mod latency;
pub mod memory;
pub(crate) mod mix;
pub(crate) mod paced;
pub mod resize;
pub mod tails;

use std::any::Any;
use std::fmt::Debug;
use std::sync::Arc;

use crate::contender::Contender;
use crate::dyn_table::{Entry, Maker};
use crate::error::BenchError;
use crate::estimate;
use crate::figure::Figure;
use crate::plan::Kept;
use crate::plot::Part as PagePart;
use crate::plot::style::Looks;
use crate::record::{Cell, Fields, Payload, Record, Row};
use crate::results::{Results, RowResults};
use crate::runner::Runner;
use crate::subject::{Capability, MeasuredRow, Measurements};
use crate::suite::{Params, Task};
use crate::workload::{Check, Workload};

/// All sections, in the order in which `bench list` names them.
pub(crate) static SECTIONS: &[&dyn Section] = &[
    &mix::SCALING,
    &mix::DISTRIBUTION,
    &mix::RESIZING,
    &mix::UPDATES,
    &mix::WORKING_SET,
    &latency::LatencySection,
    &mix::PINNING,
    &mix::SYNC,
    &memory::MemorySection,
    &growth::GrowthSection,
    &tails::TailsSection,
    &hot::HotSection,
    &resize::ResizeSection,
    &batch::BatchSection,
    &iterate::IterateSection,
    &paced::PacedSection,
    &mix::FILTER,
    &mix::LOCK,
    &mix::QUEUE,
    &mix::SORTED_SET,
    &mix::CACHE,
];

/// What every section may add to results.
const SHARED: [Schema; 2] = [
    Schema::row::<MeasuredRow>(),
    Schema::slice::<Measurements>(),
];

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
    let mut of_place = schemas
        .chain(&SHARED)
        .filter(|schema| schema.place == place);
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

    /// Returns the operations that a thread may have in flight.
    fn batch(&self, _: &Workload) -> usize {
        1
    }

    /// Returns the work beside an operation, for subjects that are not maps.
    fn work(&self, _: &Workload) -> u32 {
        0
    }

    /// Returns what a subject needs to take part.
    fn capability(&self) -> Capability {
        Capability::Map
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

    /// Returns the maker of a subject; `None` if it lacks what the workload needs.
    fn maker(&self, entry: &Entry, workload: &Workload) -> Option<Maker> {
        match self.capability() {
            Capability::Map => entry.maker(&workload.kind, workload.native_hash),
            other => entry.subject_maker(other, workload.threads),
        }
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
        let payloads = payloads.chain(&SHARED);
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
