//! Restricted transactional memory: the four instructions, behind a runtime check.
//!
//! An aborted transaction undoes its changes to memory and registers and continues behind `XBEGIN`
//! with a status, so the code after [`begin`] runs as if it had run once. Any transaction may abort
//! every time, so callers need a fallback.

/// Status of [`begin`]: the transaction runs.
pub(super) const STARTED: u32 = u32::MAX;
/// `XABORT` aborted the transaction: the lock was taken.
pub(super) const EXPLICIT: u32 = 1;
/// The processor suggests that a retry may succeed.
pub(super) const RETRY: u32 = 1 << 1;
/// Another thread touched the same cache lines.
pub(super) const CONFLICT: u32 = 1 << 2;

/// Proof that the processor has the instructions and does not always abort.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rtm(());

impl Rtm {
    /// Detects the instructions, once for each lock.
    pub(super) fn detect() -> Option<Self> {
        let there = cfg!(target_arch = "x86_64")
            && corewise_measure::cpu::rtm() == corewise_measure::cpu::Rtm::Present;
        there.then_some(Self(()))
    }

    /// Begins a transaction: returns [`STARTED`], or why it was aborted.
    #[inline(always)]
    pub(super) fn begin(self) -> u32 {
        #[cfg(target_arch = "x86_64")]
        {
            let mut status = STARTED;
            // SAFETY: `self` proves that the instruction exists. After an abort, execution
            // continues at the label with the registers restored and the status in EAX, which the
            // operand declares to the compiler; memory is restored too, so no `nomem`.
            unsafe { std::arch::asm!("xbegin 2f", "2:", inout("eax") status, options(nostack)) };
            status
        }
        #[cfg(not(target_arch = "x86_64"))]
        0
    }

    /// Ends the running transaction.
    #[inline(always)]
    pub(super) fn end(self) {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the instruction exists; outside of a transaction it would fault, which callers
        // exclude by the status of `begin`.
        unsafe {
            std::arch::asm!("xend", options(nostack));
        }
    }

    /// Aborts the transaction; does nothing outside of one.
    #[inline(always)]
    pub(super) fn abort(self) {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the instruction exists and does nothing outside of a transaction.
        unsafe {
            std::arch::asm!("xabort 0xff", options(nostack));
        }
    }
}
