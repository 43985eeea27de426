//! `Instant`, in nanoseconds since the first reading.

// Compiled on every machine; parts are unused where there is a native counter.
#![allow(dead_code)]

use std::sync::OnceLock;
use std::time::Instant;

pub(super) const NAME: &str = "Instant";

/// `false`: it needs no calibration, so it never serves as the machine's native counter.
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
