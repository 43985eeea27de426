//! The asymmetric barrier pair: [`light`] for frequent callers, [`heavy`] for callers that can
//! wait.
//!
//! # Guarantees
//!
//! 1. *The pair.* Let thread R write `x`, call [`light`] and read `y`, and thread W write `y`, call
//!    [`heavy`] and read `x`. At least one of them sees the other's write. Relaxed accesses
//!    suffice. A store-load fence on both sides gives the same guarantee.
//! 2. *Two lights guarantee nothing*, unlike two fences. (Under loom and shuttle both halves are a
//!    SeqCst fence, which is stronger in this case; do not rely on it.)
//! 3. *Light is free.* Once [`prepare`] or [`heavy`] has found that the system supports the heavy
//!    half, [`light`] is one load of a word that never changes again, a predicted branch and a
//!    compiler fence; no fence instruction. Before that, and on systems without support, it is a
//!    full fence, out of line.
//! 4. *Progress.* [`light`] is wait-free. [`heavy`] is a system call that interrupts the cores
//!    running threads of this process: some microseconds.
//!
//! # How it works
//!
//! On Linux [`heavy`] is `membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED)`: the kernel makes every
//! running thread of the process execute a full fence. A thread that is not running executed one
//! when it was switched out. So the fence that [`light`] omits is executed whenever it matters.
//!
//! The state changes once, from unknown to available or missing, and the two sides agree in every
//! interleaving:
//!
//! - R saw *available*: some thread has registered the process, so W, whatever state it saw, finds
//!   the call available too and uses it.
//! - R saw *unknown* or *missing*: R executed a full fence, and W executes one in each case.
//!
//! If the call fails after it was available (a filter was installed while threads ran), R may be
//! running without a fence and the guarantee is lost: the process prints one line and aborts.
//!
//! On other systems both halves execute the fence.

#[cfg(all(target_os = "linux", not(any(corewise_loom, corewise_shuttle))))]
mod membarrier;
#[cfg(not(any(corewise_loom, corewise_shuttle)))]
mod pair;

/// Padded: writes to neighbouring data would slow every `light` down.
#[cfg(not(any(corewise_loom, corewise_shuttle)))]
static PAIR: crate::CachePadded<pair::Pair> =
    crate::CachePadded::new(pair::Pair::new(pair::SYSTEM));

/// The cheap half of the pair; see guarantee 1 of the module.
#[inline(always)]
pub fn light() {
    #[cfg(not(any(corewise_loom, corewise_shuttle)))]
    PAIR.light();
    // SeqCst: pairs with the fence in `heavy`.
    #[cfg(any(corewise_loom, corewise_shuttle))]
    crate::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
}

/// Like [`light`], for a thread that has seen [`prepare`] return true: only a compiler fence.
///
/// # Safety
///
/// 1. [`prepare`] returned true on the calling thread, or on one that it has synchronised with
///    since.
#[inline(always)]
pub unsafe fn light_prepared() {
    // SeqCst: as in `light`, which would find the system's support available: that state is final.
    #[cfg(not(any(corewise_loom, corewise_shuttle)))]
    std::sync::atomic::compiler_fence(std::sync::atomic::Ordering::SeqCst);
    #[cfg(any(corewise_loom, corewise_shuttle))]
    light();
}

/// The costly half of the pair; see guarantee 1 of the module.
pub fn heavy() {
    #[cfg(corewise_sim)]
    if let Some(simulator) = crate::sim::simulator() {
        return simulator.fence_all();
    }
    #[cfg(not(any(corewise_loom, corewise_shuttle)))]
    PAIR.heavy();
    // SeqCst: pairs with the fence in `light`.
    #[cfg(any(corewise_loom, corewise_shuttle))]
    crate::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
}

/// Asks for the system's support ahead of the first [`heavy`], so that [`light`] is cheap from the
/// start. True if `light` is free from now on. Call it when creating a structure that will call
/// `light`.
pub fn prepare() -> bool {
    #[cfg(not(any(corewise_loom, corewise_shuttle)))]
    return PAIR.prepare();
    #[cfg(any(corewise_loom, corewise_shuttle))]
    return true;
}
