//! Hints to the processor, spinning and prefetching, and to the compiler.

/// Tells the processor that the caller spins.
///
/// loom and shuttle treat it as a yield: for them a loop without it, or without
/// [`crate::thread::yield_now`], is an endless schedule. Loops that wait use [`crate::Backoff`].
#[inline(always)]
pub fn spin_loop() {
    #[cfg(corewise_loom)]
    loom::hint::spin_loop();
    #[cfg(corewise_shuttle)]
    shuttle::hint::spin_loop();
    #[cfg(corewise_sim)]
    if let Some(simulator) = crate::sim::simulator() {
        return simulator.pause(1);
    }
    #[cfg(not(any(corewise_loom, corewise_shuttle)))]
    std::hint::spin_loop();
}

/// Some spin hints at once, of which the simulation is to see that they belong together.
#[cfg(corewise_sim)]
pub(crate) fn spin_times(times: u32) {
    match crate::sim::simulator() {
        Some(simulator) => simulator.pause(times),
        None => (0..times).for_each(|_| std::hint::spin_loop()),
    }
}

/// A number for the object at `place`, to hash it or to seed a generator: its address. In a
/// simulation, whose objects have other addresses in every run, a number that is the same in each.
#[inline(always)]
#[must_use]
pub fn number_of<T>(place: *const T) -> usize {
    #[cfg(corewise_sim)]
    if let Some(simulator) = crate::sim::simulator() {
        return simulator.number_of(place.cast());
    }
    place.addr()
}

/// Prefetches the cache line at `address` for reading. Any address is allowed; does nothing on
/// processors without such an instruction.
#[inline(always)]
pub fn prefetch<T>(address: *const T) {
    #[cfg(corewise_sim)]
    if let Some(simulator) = crate::sim::simulator() {
        return simulator.access(address.cast(), 1, crate::sim::AccessClass::Prefetch);
    }
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: a prefetch is a hint; it neither faults nor changes memory, whatever the address.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(address.cast());
    }
    #[cfg(all(target_arch = "aarch64", not(miri)))]
    // SAFETY: PRFM is a hint; it neither faults nor changes memory, whatever the address.
    unsafe {
        std::arch::asm!("prfm pldl1keep, [{0}]", in(reg) address, options(nostack, readonly, preserves_flags));
    }
    #[cfg(any(miri, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
    let _ = address;
}

/// Prefetches the cache line at `address` for writing: other processors lose it. Any address is
/// allowed; does nothing on processors without such an instruction.
#[inline(always)]
pub fn prefetch_for_write<T>(address: *const T) {
    #[cfg(corewise_sim)]
    if let Some(simulator) = crate::sim::simulator() {
        return simulator.access(address.cast(), 1, crate::sim::AccessClass::PrefetchForWrite);
    }
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: a prefetch is a hint; it neither faults nor changes memory, whatever the address.
    // Processors without PREFETCHW execute it as a NOP.
    unsafe {
        use std::arch::asm;
        asm!("prefetchw [{0}]", in(reg) address, options(nostack, readonly, preserves_flags));
    }
    #[cfg(all(target_arch = "aarch64", not(miri)))]
    // SAFETY: PRFM is a hint; it neither faults nor changes memory, whatever the address.
    unsafe {
        use std::arch::asm;
        asm!("prfm pstl1keep, [{0}]", in(reg) address, options(nostack, readonly, preserves_flags));
    }
    #[cfg(any(miri, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
    let _ = address;
}

/// Returns `number`, and keeps the compiler from combining the computation of it with later ones.
///
/// For an index whose product with the size of an element is cheaper in two steps: on x86 the
/// second step, a factor of 2, 4 or 8, is part of the load.
#[inline(always)]
#[must_use]
pub fn opaque(number: usize) -> usize {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        let mut number = number;
        // SAFETY: the comment is no instruction, so nothing changes, as the options state.
        unsafe {
            use std::arch::asm;
            asm!("/* {0} */", inout(reg) number, options(pure, nomem, nostack, preserves_flags));
        }
        number
    }
    #[cfg(any(miri, not(target_arch = "x86_64")))]
    number
}
