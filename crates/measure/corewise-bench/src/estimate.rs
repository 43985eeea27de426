//! Estimates the duration of a run before anything is measured: `bench run --dry-run`.
//!
//! ```text
//! a repetition of a row    make and fill | age | measured slices | look up every key | audit | drop
//! what is known of it                          duration + warm-up
//! what is reckoned         by operations, each at a price that grows with the entries
//! ```
//!
//! The prices are estimates that fit two runs on the machine of the README: `--suite quick` took
//! 247 s, and `--suite choosing` 1,450 s. The estimates of both are within a fifth of that.
//!
//! The estimate ignores
//!
//! - differences between tables. A price is that of the mean table of `choosing`, where two threads
//!   filled the fastest with 10^6 entries in 105 ns an entry and the slowest in 424. A run of fast
//!   tables alone is shorter than estimated, and one of tables whose chains get longer as they grow
//!   (cds-michael in the section `memory`) is longer;
//! - a phase that is given up: that takes 20 s and 10 µs a key, and happened once in 1,450 s;
//! - drawing keys and starting threads: some tens of milliseconds a cell.

use std::fmt::Write;

use crate::error::BenchError;
use crate::registry::Registry;
use crate::runner::contenders;
use crate::suite::Task;
use crate::workload::Workload;

/// Table sizes with the nanoseconds of an operation on a table up to that size.
const PRICES: [(u64, f64); 4] = [
    (1 << 14, 50.0),
    (1 << 18, 90.0),
    (1 << 21, 150.0),
    (u64::MAX, 300.0),
];
/// Operations of a thread's audit.
const AUDIT: u64 = 20_000;
/// Factor for the overhead of starting and ending phases.
const HANDING_OVER: f64 = 1.4;

/// Estimates the seconds of a task with `rows` rows, of which each repetition takes `once`.
pub(crate) fn repeated(task: &Task, rows: usize, once: f64) -> f64 {
    once * rows as f64 * task.repetitions as f64 * HANDING_OVER
}

/// Seconds of a repetition in closed loop.
pub(crate) fn closed_loop(workload: &Workload) -> f64 {
    measured(workload) + around(workload)
}

/// Seconds of the slices.
pub(crate) fn measured(workload: &Workload) -> f64 {
    (workload.duration_ms + workload.slices as f64 * workload.warm_ms) / 1e3
}

/// Seconds of filling, churning, looking everything up, auditing and dropping by one thread.
pub(crate) fn around(workload: &Workload) -> f64 {
    let filled = workload.initial as f64 * (1.0 + 2.0 * workload.churn);
    let dropped = workload.initial / 2;
    on_all(workload, filled as u64 + workload.range) + on_one(workload, AUDIT + dropped)
}

/// Seconds of `operations` operations by one thread.
pub(crate) fn on_one(workload: &Workload, operations: u64) -> f64 {
    operations as f64 * price(workload) / 1e9
}

/// Seconds of `operations` operations divided among all threads.
pub(crate) fn on_all(workload: &Workload, operations: u64) -> f64 {
    on_one(workload, operations) / workload.threads as f64
}

fn price(workload: &Workload) -> f64 {
    let entries = workload.initial.max(workload.range / 2);
    let step = PRICES.iter().find(|(most, _)| entries <= *most);
    step.map_or(0.0, |(_, ns)| *ns)
}

/// Returns a line for each cell, and one for the total.
pub(crate) fn text(registry: &Registry, tasks: &[Task]) -> Result<String, BenchError> {
    let mut out = format!(
        "{:<44} {:>4} {:>5} {:>6}\n",
        "cell", "rows", "reps", "about"
    );
    let (mut all_rows, mut all_seconds) = (0, 0.0);
    for task in tasks {
        let cells = task.workload.ids().len();
        let tables = contenders(registry, task)?.len();
        let (rows, some) = (tables * cells, task.section.seconds(task, tables));
        let id = task.workload.id();
        let _ = writeln!(
            out,
            "{id:<44} {rows:>4} {:>5} {some:>4.0} s",
            task.repetitions
        );
        (all_rows, all_seconds) = (all_rows + rows, all_seconds + some);
    }
    let minutes = all_seconds / 60.0;
    let _ = write!(
        out,
        "{} cells, {all_rows} rows, about {minutes:.0} min",
        tasks.len()
    );
    Ok(out)
}

#[cfg(test)]
mod tests {
    use corewise_topology::Topology;

    use super::*;
    use crate::suite::{Params, Suite};

    /// Estimates a suite on two CPUs with every table it names in the build.
    fn whole(suite: &str) -> f64 {
        let suite = Suite::find(suite).expect("it is shipped");
        let tasks = suite.tasks(&Params::default(), &Topology::flat(2), false);
        let rows = |task: &Task| match task.workload.section_name() {
            "memory" => task.tables.len() + 1,
            "resize" => 14,
            _ if task.workload.kind == "bytes" => 12,
            _ => task.tables.len() + 4,
        };
        let tasks = tasks.expect("valid");
        tasks
            .iter()
            .map(|task| task.section.seconds(task, rows(task)))
            .sum()
    }

    #[test]
    fn a_suite_whose_length_is_known_is_reckoned_within_a_fifth() {
        let (reckoned, took) = (whole("choosing"), 1_450.0);
        let off = reckoned / took;
        assert!((0.8..1.2).contains(&off), "{reckoned} s, not {took}");
    }

    #[test]
    fn the_first_run_takes_under_five_minutes() {
        const MOST_SECONDS: f64 = 240.0;
        let reckoned = whole("quick");
        assert!(reckoned < MOST_SECONDS, "{reckoned} s");
    }
}
