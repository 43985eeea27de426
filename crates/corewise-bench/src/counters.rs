//! Hardware counters of the measured time (stub until perf events arrive).

use crate::record::HardwareCounters;

/// Starts counting on this thread.
pub fn resume() {}

/// Stops, and says what was counted.
pub fn pause() -> HardwareCounters {
    HardwareCounters::default()
}

/// Adds a thread's counters; `first` if nothing was added before.
pub fn sum(all: HardwareCounters, more: HardwareCounters, first: bool) -> HardwareCounters {
    let add = |all: Option<u64>, more: Option<u64>| match (all, more) {
        (Some(all), Some(more)) => Some(all + more),
        (None, more) if first => more,
        _ => None,
    };
    HardwareCounters {
        instructions: add(all.instructions, more.instructions),
        cycles: add(all.cycles, more.cycles),
        cache_misses: add(all.cache_misses, more.cache_misses),
        branch_misses: add(all.branch_misses, more.branch_misses),
    }
}
