//! The clock of the measured loops, in ticks.

use corewise_measure::ticks::Ticks;

/// The counter, in no order with the instructions around it: for deadlines.
#[inline(always)]
pub fn coarse() -> u64 {
    Ticks::get().coarse()
}

/// The counter, read after everything before it and before everything after it: for latencies.
#[inline(always)]
pub fn now() -> u64 {
    Ticks::get().now()
}

/// Ticks as nanoseconds.
pub fn ns(ticks: u64) -> f64 {
    Ticks::get().ns_f64(ticks)
}

/// Nanoseconds as ticks.
pub fn ticks(ns: u64) -> u64 {
    Ticks::get().ticks_of(std::time::Duration::from_nanos(ns))
}

/// What timing an operation costs by itself.
pub fn overhead_ns() -> f64 {
    ns(Ticks::get().overhead())
}
