//! The timestamp counter.

use std::arch::asm;

pub(super) const NAME: &str = "rdtsc";

pub(super) fn is_usable() -> bool {
    crate::cpu::has_invariant_counter()
}

/// Reads the counter. The first fence makes the read wait for earlier instructions, the second
/// holds back later ones. Not `nomem`, so that the compiler keeps memory accesses on their side,
/// too.
#[inline(always)]
pub(super) fn now() -> u64 {
    let (low, high): (u32, u32);
    // SAFETY: `rdtsc` writes EAX and EDX and nothing else; every x86-64 processor has it, and Linux
    // forbids it only to programs that ask for that themselves (PR_SET_TSC).
    unsafe {
        asm!(
            "lfence", "rdtsc", "lfence",
            out("eax") low, out("edx") high,
            options(nostack, preserves_flags)
        );
    }
    u64::from(high) << 32 | u64::from(low)
}

#[inline(always)]
pub(super) fn coarse() -> u64 {
    let (low, high): (u32, u32);
    // SAFETY: `rdtsc` writes EAX and EDX and nothing else, and programs may execute it, see `now`;
    // it touches no memory.
    unsafe {
        asm!(
            "rdtsc",
            out("eax") low, out("edx") high,
            options(nomem, nostack, preserves_flags)
        );
    }
    u64::from(high) << 32 | u64::from(low)
}
