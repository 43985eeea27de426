//! About how long a run takes, reckoned before anything is measured: `bench run --dry-run`.
//!
//! ```text
//! a repetition of a row    make and fill | age | measured slices | look up every key | audit | drop
//! what is known of it                          duration + warm-up
//! what is reckoned         by operations, each at a price that grows with the entries
//! ```
//!
//! The prices are guesses that fit two runs on the machine of the README: `--suite quick` took 247 s, and
//! `--suite choosing` 1,450 s. Both are reckoned within a fifth of that.
//!
//! Left out is
//!
//! - that tables differ. A price is that of the mean table of `choosing`, where two threads filled the
//!   fastest with 10^6 entries in 105 ns an entry and the slowest in 424. A run of fast tables alone is shorter
//!   than reckoned, and one of tables whose chains get longer as they grow (cds-michael in the section `memory`)
//!   is longer;
//! - a phase that is given up: that takes 20 s and 10 µs a key, and happened once in 1,450 s;
//! - drawing the keys of a cell, and starting its threads: some tens of milliseconds.

use std::fmt::Write;

use crate::error::BenchError;
use crate::registry::Registry;
use crate::runner::lanes;
use crate::suite::Task;
use crate::workload::{Method, Workload};

/// Nanoseconds of an operation on a table of up to so many entries.
const PRICES: [(u64, f64); 4] = [
    (1 << 14, 50.0),
    (1 << 18, 90.0),
    (1 << 21, 150.0),
    (u64::MAX, 300.0),
];
/// Operations of a thread's audit.
const AUDIT: u64 = 20_000;
/// Seconds that a process of the section `memory` needs besides its operations: most of them churn.
const PROCESS_S: f64 = 0.65;
/// What starting and ending phases adds to everything.
const HANDING_OVER: f64 = 1.4;

/// Seconds that a task takes with so many rows.
pub fn seconds(task: &Task, rows: usize) -> f64 {
    let of = &task.workload;
    // A process for each table, once.
    if of.method == Method::Memory {
        return (PROCESS_S + 4.0 * on_all(of, of.initial)) * rows as f64;
    }
    let once = match of.method {
        Method::Growth => 2.0 * on_all(of, of.range) + around(of),
        // One thread inserts, at its slowest while the table grows; then an empty loop runs for as long.
        Method::Tails => 4.0 * on_one(of, of.range) + around(of),
        Method::Resize(_) => 4.0 * measured(of) + 2.0 * around(of),
        Method::Batch(_) => 2.0 * measured(of) + around(of),
        _ => measured(of) + around(of),
    };
    once * rows as f64 * task.repetitions as f64 * HANDING_OVER
}

/// Seconds of slices.
fn measured(of: &Workload) -> f64 {
    (of.duration_ms + of.slices as f64 * of.warm_ms) / 1e3
}

/// Seconds of filling, ageing, looking everything up, auditing and dropping, which one thread does.
fn around(of: &Workload) -> f64 {
    let filled = of.initial as f64 * (1.0 + 2.0 * of.churn);
    let dropped = of.initial / 2;
    on_all(of, filled as u64 + of.range) + on_one(of, AUDIT + dropped)
}

/// Seconds of operations of one thread.
fn on_one(of: &Workload, operations: u64) -> f64 {
    operations as f64 * price(of) / 1e9
}

/// Seconds of operations that all threads share.
fn on_all(of: &Workload, operations: u64) -> f64 {
    on_one(of, operations) / of.threads as f64
}

fn price(of: &Workload) -> f64 {
    let entries = of.initial.max(of.range / 2);
    let step = PRICES.iter().find(|(most, _)| entries <= *most);
    step.map_or(0.0, |(_, ns)| *ns)
}

/// A line for each cell, and one for all.
pub(crate) fn text(registry: &Registry, tasks: &[Task]) -> Result<String, BenchError> {
    let mut out = format!(
        "{:<44} {:>4} {:>5} {:>6}\n",
        "cell", "rows", "reps", "about"
    );
    let (mut all_rows, mut all_seconds) = (0, 0.0);
    for task in tasks {
        let rows = match task.workload.method {
            Method::Memory => stored(registry, task)?,
            Method::Resize(_) => lanes(registry, task)?.len() * task.workload.ids().len(),
            _ => lanes(registry, task)?.len(),
        };
        let cells = task.workload.ids().len();
        let some = seconds(task, rows / cells);
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

/// Rows of a cell of the section `memory`: neither the reference again nor the harness.
fn stored(registry: &Registry, task: &Task) -> Result<usize, BenchError> {
    use crate::record::Role;
    let all = lanes(registry, task)?;
    let stores = |lane: &&crate::lane::Lane| lane.role != Role::Again && !lane.entry.null;
    Ok(all.iter().filter(stores).count())
}

#[cfg(test)]
mod tests {
    use corewise_topology::Topology;

    use super::*;
    use crate::suite::{Params, Suite};

    /// What a suite takes on two CPUs where every table it names is in the build.
    fn whole(suite: &str) -> f64 {
        let suite = Suite::find(suite).expect("it is shipped");
        let tasks = suite.tasks(&Params::default(), &Topology::flat(2), false);
        let rows = |task: &Task| match task.workload.method {
            Method::Memory => task.tables.len() + 1,
            Method::Resize(_) => 14,
            _ if task.workload.kind == "bytes" => 12,
            _ => task.tables.len() + 4,
        };
        let tasks = tasks.expect("valid");
        tasks.iter().map(|task| seconds(task, rows(task))).sum()
    }

    #[test]
    fn the_suites_whose_length_is_known_are_reckoned_within_a_fifth() {
        for (suite, took) in [("quick", 247.0), ("choosing", 1_450.0)] {
            let reckoned = whole(suite);
            let off = reckoned / took;
            assert!(
                (0.8..1.2).contains(&off),
                "{suite}: {reckoned} s, not {took}"
            );
        }
    }
}
