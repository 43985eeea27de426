//! The virtual counter of the generic timer.

use std::arch::asm;

pub(super) const NAME: &str = "CNTVCT_EL0";

pub(super) fn is_usable() -> bool {
    crate::cpu::has_invariant_counter()
}

/// Reads the counter. The first barrier makes the read wait for earlier instructions, the second
/// holds back later ones. Not `nomem`, so that the compiler keeps memory accesses on their side,
/// too.
#[inline(always)]
pub(super) fn now() -> u64 {
    let ticks: u64;
    // SAFETY: it reads a register that Linux makes readable for programs, and writes one of ours.
    unsafe {
        asm!(
            "isb", "mrs {}, cntvct_el0", "isb",
            out(reg) ticks,
            options(nostack, preserves_flags)
        );
    }
    ticks
}

#[inline(always)]
pub(super) fn coarse() -> u64 {
    let ticks: u64;
    // SAFETY: it reads a register that Linux makes readable for programs, and writes one of ours;
    // it touches no memory.
    unsafe {
        asm!(
            "mrs {}, cntvct_el0",
            out(reg) ticks,
            options(nomem, nostack, preserves_flags)
        );
    }
    ticks
}
