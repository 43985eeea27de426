//! Waiting politely, and asking early.

/// Says that the caller spins.
///
/// The checkers take it as a yield: a loop without it, or without [`crate::thread::yield_now`],
/// is an endless schedule to them.
#[inline(always)]
pub fn spin_loop() {
    #[cfg(corewise_loom)]
    loom::hint::spin_loop();
    #[cfg(corewise_shuttle)]
    shuttle::hint::spin_loop();
    #[cfg(not(any(corewise_loom, corewise_shuttle)))]
    std::hint::spin_loop();
}

/// Asks for the cache line at `address`, to be read soon. Any address is allowed; nothing happens
/// where there is no such instruction.
#[inline(always)]
pub fn prefetch<T>(address: *const T) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: a prefetch is a hint; it neither faults nor changes memory, whatever the address.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(address.cast());
    }
    #[cfg(all(target_arch = "aarch64", not(miri)))]
    // SAFETY: as above, for PRFM.
    unsafe {
        std::arch::asm!("prfm pldl1keep, [{0}]", in(reg) address, options(nostack, readonly, preserves_flags));
    }
    #[cfg(any(miri, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
    let _ = address;
}
