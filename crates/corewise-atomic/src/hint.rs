//! Waiting politely.

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
