//! The clock of the measured loops, in ticks.

use corewise_measure::ticks::Ticks;

/// Reads the counter without ordering it against the instructions around it: for deadlines.
#[inline(always)]
pub fn coarse() -> u64 {
    Ticks::get().coarse()
}

/// Reads the counter after everything before it and before everything after it: for latencies.
#[inline(always)]
pub fn now() -> u64 {
    Ticks::get().now()
}

/// Converts ticks to nanoseconds.
pub fn ns(ticks: u64) -> f64 {
    Ticks::get().ns_f64(ticks)
}

/// Converts nanoseconds to ticks.
pub fn ticks(ns: u64) -> u64 {
    Ticks::get().ticks_of(std::time::Duration::from_nanos(ns))
}

/// Returns the cost of timing an operation.
pub fn overhead_ns() -> f64 {
    ns(Ticks::get().overhead())
}
