//! The asymmetric barrier pair: [`light`] for those who run often, [`heavy`] for those who can
//! wait.
//!
//! # Guarantees
//!
//! 1. *The pair.* Let thread R write `x`, call [`light`] and read `y`, and thread W write `y`,
//!    call [`heavy`] and read `x`. At least one of them sees the other's write. Relaxed accesses
//!    suffice. This is what a store-load fence on both sides gives.
//! 2. *Light beside light promises nothing*, unlike two fences. (The checkers use a SeqCst fence
//!    for both, which is stronger in that one case; do not lean on it.)
//! 3. *Light is free.* Once [`prepare`] or [`heavy`] has found the system's help, [`light`] is one
//!    load of a word that never changes again, a predicted branch and a compiler fence; no fence
//!    instruction. Before that, and where there is no help, it is a full fence, out of line.
//! 4. *Progress.* [`light`] is wait-free. [`heavy`] is a system call that interrupts the cores
//!    running threads of this process: some microseconds.
//!
//! # How
//!
//! On Linux [`heavy`] is `membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED)`: the kernel makes every
//! running thread of the process execute a full fence. A thread that is not running executed one
//! when it was switched out. So the fence that [`light`] leaves out is put in whenever it matters.
//!
//! The state moves once, from unknown to available or missing, and the two sides agree in every
//! interleaving:
//!
//! - R saw *available*: some thread has registered the process, so W, whatever state it saw, will
//!   find the call available too and use it.
//! - R saw *unknown* or *missing*: R executed a full fence, and W executes one in each case.
//!
//! If the call fails after it was available (a filter was installed while threads ran), R may be
//! running without a fence and nothing is safe: the process aborts with one line.
//!
//! Other systems have no such call here yet: they take the fence.

#[cfg(all(target_os = "linux", not(any(corewise_loom, corewise_shuttle))))]
mod membarrier;
#[cfg(not(any(corewise_loom, corewise_shuttle)))]
mod pair;

/// Alone on its line: a neighbour's writes would slow every `light` down.
#[cfg(not(any(corewise_loom, corewise_shuttle)))]
static PAIR: crate::CachePadded<pair::Pair> =
    crate::CachePadded::new(pair::Pair::new(pair::SYSTEM));

/// The cheap half of the pair; see the module's guarantee 1.
#[inline(always)]
pub fn light() {
    #[cfg(not(any(corewise_loom, corewise_shuttle)))]
    PAIR.light();
    // SeqCst: pairs with the fence in `heavy`.
    #[cfg(any(corewise_loom, corewise_shuttle))]
    crate::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
}

/// As [`light`], for a thread that has seen [`prepare`] return true: nothing but a compiler fence.
///
/// # Safety
///
/// 1. [`prepare`] returned true to the calling thread, or to one that it has synchronised with since.
#[inline(always)]
pub unsafe fn light_prepared() {
    // SeqCst: as in `light`, which would find help available: that state is never left again.
    #[cfg(not(any(corewise_loom, corewise_shuttle)))]
    std::sync::atomic::compiler_fence(std::sync::atomic::Ordering::SeqCst);
    #[cfg(any(corewise_loom, corewise_shuttle))]
    light();
}

/// The costly half of the pair; see the module's guarantee 1.
pub fn heavy() {
    #[cfg(not(any(corewise_loom, corewise_shuttle)))]
    PAIR.heavy();
    // SeqCst: pairs with the fence in `light`.
    #[cfg(any(corewise_loom, corewise_shuttle))]
    crate::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
}

/// Asks the system for its help ahead of the first [`heavy`], so that [`light`] is cheap from the
/// start. True if `light` is free from now on. Call it when making whatever will call `light`.
pub fn prepare() -> bool {
    #[cfg(not(any(corewise_loom, corewise_shuttle)))]
    return PAIR.prepare();
    #[cfg(any(corewise_loom, corewise_shuttle))]
    return true;
}
