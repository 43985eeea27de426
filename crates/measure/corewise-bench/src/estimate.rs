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
use crate::sections::section_of;
use crate::task::Task;

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
        let (rows, some) = (
            tables * cells,
            section_of(&task.workload).seconds(task, tables),
        );
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
    use crate::params::Params;
    use crate::suite::Suite;

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
            .map(|task| section_of(&task.workload).seconds(task, rows(task)))
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
