//! `Instant`, in nanoseconds since the first reading.

// The twin is compiled everywhere, and not all of it is used where there is better.
#![allow(dead_code)]

use std::sync::OnceLock;
use std::time::Instant;

pub(super) const NAME: &str = "Instant";

/// It needs no calibration, so it is never used as the machine's own counter.
pub(super) fn is_usable() -> bool {
    false
}

#[inline(always)]
pub(super) fn now() -> u64 {
    static START: OnceLock<Instant> = OnceLock::new();
    START.get_or_init(Instant::now).elapsed().as_nanos() as u64
}

#[inline(always)]
pub(super) fn coarse() -> u64 {
    now()
}
