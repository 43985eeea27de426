//! The seconds that phases take, for `estimate`.

use crate::task::Task;
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
