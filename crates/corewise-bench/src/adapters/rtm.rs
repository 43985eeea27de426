//! Restricted transactional memory: the four instructions, behind a check that they are there.
//!
//! A transaction that aborts takes back everything it did to memory and registers and goes on
//! behind `XBEGIN` with a status, so the code after [`begin`] runs as if it had run once. Every
//! transaction may abort, for ever; whoever uses this needs another way.

/// Status of [`begin`]: the transaction runs.
pub(super) const STARTED: u32 = u32::MAX;
/// It was aborted by `XABORT`: the lock was taken.
pub(super) const EXPLICIT: u32 = 1;
/// The processor thinks that another try may do.
pub(super) const RETRY: u32 = 1 << 1;
/// Another thread touched the same cache lines.
pub(super) const CONFLICT: u32 = 1 << 2;

/// Proof that the processor has the instructions and does not always abort.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rtm(());

impl Rtm {
    /// Looks, once for each lock.
    pub(super) fn detect() -> Option<Self> {
        let there = cfg!(target_arch = "x86_64")
            && corewise_measure::cpu::rtm() == corewise_measure::cpu::Rtm::Present;
        there.then_some(Self(()))
    }

    /// Begins a transaction: [`STARTED`], or why it was aborted.
    #[inline(always)]
    pub(super) fn begin(self) -> u32 {
        #[cfg(target_arch = "x86_64")]
        {
            let mut status = STARTED;
            // SAFETY: `self` proves that the instruction exists. On an abort it continues at the
            // label with the registers of before and the status in EAX, which the operand tells
            // the compiler; memory is as before, so no `nomem`.
            unsafe { std::arch::asm!("xbegin 2f", "2:", inout("eax") status, options(nostack)) };
            status
        }
        #[cfg(not(target_arch = "x86_64"))]
        0
    }

    /// Ends the transaction, which must be running.
    #[inline(always)]
    pub(super) fn end(self) {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the instruction exists; outside of a transaction it would fault, which callers
        // exclude by the status of `begin`.
        unsafe {
            std::arch::asm!("xend", options(nostack));
        }
    }

    /// Aborts the transaction; without one it does nothing.
    #[inline(always)]
    pub(super) fn abort(self) {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the instruction exists and does nothing outside of a transaction.
        unsafe {
            std::arch::asm!("xabort 0xff", options(nostack));
        }
    }
}
