//! The sections: kinds of experiment, one folder each.
//!
//! A `Section` owns everything that only its experiment has:
//!
//! | part | in the trait | usual file |
//! |---|---|---|
//! | name, purpose, default parameters | `Rules::name`, `Section::preset` | `mod.rs`, `presets.toml` |
//! | what it varies besides the common parameters | `Section::variants` | `mod.rs` |
//! | checks of parameters, number of keys, names of cells | `Rules::checks`, `Section::range`, `Rules::id_suffix`, ... | `mod.rs` |
//! | the loop of its threads, compiled for each table | a `Loop` | in `work` |
//! | how a cell is measured and verified | `Section::run` | `cells.rs` |
//! | what it adds to results | fields of rows and slices, records | in `payload` |
//! | text, figures and plots of results | `Section::row_figures`, `Section::details`, `Section::plots` | `plot.rs` |
//!
//! Everything else is shared. `closed_loop` measures a mix of operations in interleaved slices,
//! which is what a section does unless it overrides `Section::run`; `in_turn` measures tables one
//! after the other. `measured` draws the table of a section's figures. `contender` makes, fills,
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
//! | memory | `plot-memory-N`, `plot-garbage-N` | bytes per entry; bytes while churned | `live`, `live, most`, `resident`, `resident, most`, `emptied`, `dropped`: bytes an entry; `garbage, most` |
//! | pinning | `plot-pinning-N` | throughput by pin policy | |
//! | filter | `plot-filter-N` | lookups and updates against threads | `bits an item`, `false positives`; nearly full ones also `load when full`, `bits an item when full`, `false positives when full` |
//! | queue | `plot-queue-N` | operations of priority queues against threads | |
//! | sortedset | `plot-sortedset-N` | operations of sorted sets against threads | |
//! | cache | `plot-cache-N` | operations of caches by number of keys | `resident entries` |
//! | lock | `plot-lock-N` | sections a second against threads | `fairness`: sections of the slowest thread over those of the fastest |
//! | sync | `plot-sync-N` | throughput by lock, with contention | |
//!
//! Rows of elided locks have `under the lock` in any section, the share of their sections that did
//! not end as transactions, and shares of transactions: `conflicts`, `capacity aborts`, `explicit
//! aborts`, `other aborts` (\[CHTBench\] tables 4.2 to 4.4).
//!
//! # Adding a section
//!
//! Write a preset in `presets.toml` and `mix`, or a module with a unit struct that implements
//! `Section`; add it to `SECTIONS`, and name it in `suites/choosing.toml`. A parameter that no
//! section has yet is a line in `suite/params.rs`, and a case of `workload::Variant` if it has
//! several values.
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
mod in_turn;
pub(crate) mod iterate;
pub(crate) mod latency;
mod measured;
pub mod memory;
pub(crate) mod mix;
pub(crate) mod paced;
mod presets;
pub mod resize;

use itertools::Itertools;
use maud::Markup;

use self::presets::{PRESETS, Preset};

use crate::contender::Contender;
use crate::dyn_table::{Entry, Maker};
use crate::error::BenchError;
use crate::estimate;
use crate::figure::Figure;
use crate::plot::style::Looks;
use crate::plot::{Part, Plot};
use crate::record::Row;
use crate::results::{Results, RowResults};
use crate::runner::CellRun;
use crate::subject::Capability;
use crate::suite::{Params, Task};
use crate::workload::{Rules, Variant, Workload};

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
    &growth::GROWTH,
    &growth::TAILS,
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

/// Returns the section of a name.
pub(crate) fn find(name: &str) -> Option<&'static dyn Section> {
    SECTIONS
        .iter()
        .copied()
        .find(|section| section.name() == name)
}

/// Returns the names of all sections, comma-separated.
pub(crate) fn names() -> String {
    SECTIONS.iter().map(|section| section.name()).join(", ")
}

/// A kind of experiment. All methods but `plots` have defaults, which are those of a
/// section that measures the throughput of a mix in closed loop.
pub(crate) trait Section: Rules {
    /// Returns its defaults and its texts, from `presets.toml`.
    fn preset(&self) -> &'static Preset {
        &PRESETS[self.name()]
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
    fn range(&self, initial: u64, _updates: f64, _insert_share: f64) -> Option<u64> {
        self.preset().all_keys.then_some(initial)
    }

    /// Sets parameters that the section does not leave to the suite.
    fn adapt(&self, _: &mut Workload) {}

    /// Returns what a subject needs to take part.
    fn capability(&self) -> Capability {
        Capability::Map
    }

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
    fn run(&self, run: &mut CellRun<'_, '_>) -> Result<(), BenchError> {
        let measured = closed_loop::measure(run, |_, _| Ok(closed_loop::mix))?;
        run.write(measured)
    }

    /// Estimates the seconds of a task with `rows` rows in each cell.
    fn seconds(&self, task: &Task, rows: usize) -> f64 {
        estimate::repeated(task, rows, estimate::closed_loop(&task.workload))
    }

    /// Returns the end of a row's line on the terminal: its figures, unless it has details.
    fn remark(&self, row: &Row) -> String {
        if !self.details(row).is_empty() {
            return String::new();
        }
        let figures = self.row_figures(row).into_iter();
        let texts = figures.map(|of| format!("  {} {}", of.name, of.text()));
        texts.collect()
    }

    /// Returns what is said of a row in place of its figures: lines below its line on the terminal,
    /// and in the table below the plots.
    fn details(&self, _: &Row) -> Vec<LineFields> {
        Vec::new()
    }

    /// Returns the figures in the summary of a row: the time of an operation if the preset names
    /// it, and what the subject or the section measured.
    fn row_figures(&self, row: &Row) -> Vec<Figure> {
        measured::figures(self.preset(), row)
    }

    /// Returns the figures of a row besides rate, latencies and contention, for `bench show`.
    fn figures(&self, row: &RowResults) -> Vec<Figure> {
        self.row_figures(&row.row)
    }

    /// Draws its plots.
    fn plots(&self, results: &Results, looks: &Looks) -> Vec<Plot>;

    /// Returns the tables below its plots: the details or the figures of its rows.
    fn below(&self, results: &Results, _: &Looks) -> Markup {
        measured::summaries(results, self)
    }

    /// Returns the part of the page with its plots.
    fn part(&self, results: &Results, looks: &Looks) -> Part {
        let preset = self.preset();
        let plots = self.plots(results, looks);
        Part {
            below: self.below(results, looks),
            ..Part::new(self.name(), &preset.heading, &preset.lead, plots)
        }
    }

    /// Returns all its parts of the page; those without plots are omitted.
    fn parts(&self, results: &Results, looks: &Looks) -> Vec<Part> {
        vec![self.part(results, looks)]
    }
}

/// The fields of a line: their names and their texts.
pub(crate) type LineFields = Vec<(String, String)>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_differ_and_each_has_a_preset() {
        let names: Vec<&str> = SECTIONS.iter().map(|section| section.name()).collect();
        let different: std::collections::HashSet<&str> = names.iter().copied().collect();
        assert_eq!(different.len(), names.len(), "{names:?}");
        let presets: std::collections::HashSet<&str> = PRESETS.keys().map(|name| &**name).collect();
        assert_eq!(different, presets);
    }
}
