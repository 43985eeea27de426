//! Intel's restricted transactional memory (thesis §4.2.2), behind a runtime check.
//!
//! # Guarantees
//!
//! 1. *No instruction of RTM is executed on a processor without it*: the functions that do need an
//!    [`Rtm`], and only [`Rtm::detect`] creates one, after CPUID has reported RTM and has not
//!    reported that it always aborts, and after a trial in which transactions committed.
//! 2. *An attempt that is aborted leaves nothing behind*, neither in memory nor in registers:
//!    execution goes on behind `XBEGIN` with a status word, as if `begin` had returned it.
//! 3. *A panic does not leave a transaction*: unwinding aborts it. The section panics again under
//!    the lock.
//!
//! A section that makes a system call, allocates memory that is not mapped, or loops for ever is
//! aborted, by the kernel's timer at the latest.
//!
//! # Evidence
//!
//! `tests/emulated_rtm.rs` executes these instructions on an emulator, on processors without RTM:
//! it shows how they are encoded, what they clobber, and how each policy deals with an abort at any
//! instruction. Isolation and the undoing of a panic need the hardware: `tests/elide.rs` runs on
//! it where it exists, and has (2026-11).

use std::fmt;

use corewise_atomic::static_cell;
use corewise_atomic::sync::atomic::Ordering::{Acquire, Release};

use super::abort::{CODE_LOCKED, CODE_PANICKED};
use super::{Abort, Subscription, Transaction, TxAtomic, When};
use crate::RawLock;

/// Transactions of the trial; some abort for a page fault or an interrupt.
const TRIALS: u32 = 1_000;
/// The environment variable that switches transactions off, with the value `off`.
const SWITCH: &str = "COREWISE_RTM";

/// Proof that the processor has RTM and that transactions commit.
///
/// ```
/// use corewise_locks::elide::{NoTransactions, Rtm};
///
/// match Rtm::detect() {
///     Ok(_) => println!("transactions commit"),
///     Err(NoTransactions::Absent) => println!("the processor has no RTM"),
///     Err(error) => println!("{error}"),
/// }
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Rtm(());

/// Why there are no transactions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum NoTransactions {
    /// The processor, or the virtual machine, has no RTM. Also under Miri, ThreadSanitizer and the
    /// model checkers.
    Absent,
    /// The instructions exist, and microcode aborts every transaction.
    AlwaysAborts,
    /// The processor reports RTM, and none of 1,000 transactions committed.
    NeverCommits,
    /// The environment variable `COREWISE_RTM` is `off`.
    SwitchedOff,
}

impl fmt::Display for NoTransactions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Absent => "no transactions: the processor has no RTM",
            Self::AlwaysAborts => "no transactions: the processor aborts all of them",
            Self::NeverCommits => "no transactions: none committed in a trial",
            Self::SwitchedOff => "no transactions: COREWISE_RTM=off",
        })
    }
}

impl std::error::Error for NoTransactions {}

static_cell! {
    static DETECTED: Result<Rtm, NoTransactions> = find();
}

impl Rtm {
    /// Looks for usable transactions, once in a process: CPUID, then 1,000 small transactions.
    ///
    /// # Errors
    ///
    /// If there are none, the reason.
    pub fn detect() -> Result<Self, NoTransactions> {
        *DETECTED
    }

    /// Begins a transaction that does not end with a closure, for code that replaces the lock and
    /// unlock functions of other programs. [`Elided`](super::Elided) is the safe interface.
    ///
    /// # Errors
    ///
    /// Why the transaction was aborted. Execution then continues here a second time, and
    /// everything since the first return is undone.
    ///
    /// # Safety
    ///
    /// 1. Everything that runs until [`commit`](Self::commit) is sound if it is undone at any
    ///    instant, together with the return from the calling function.
    #[inline(always)]
    pub unsafe fn begin(self) -> Result<(), Abort> {
        match asm::begin(self) {
            asm::STARTED => Ok(()),
            status => Err(Abort::from_status(status)),
        }
    }

    /// Commits the innermost transaction that [`begin`](Self::begin) has begun.
    ///
    /// # Safety
    ///
    /// 1. The thread is in a transaction that `begin` has begun.
    #[inline(always)]
    pub unsafe fn commit(self) {
        asm::end(self);
    }

    /// Whether the thread is in a transaction.
    #[inline(always)]
    #[must_use]
    pub fn is_in_transaction(self) -> bool {
        asm::is_active(self)
    }

    /// Aborts the thread's transaction with [`Cause::Explicit`](super::Cause::Explicit); does
    /// nothing outside of one. Codes from 128 are used by this crate.
    #[inline(always)]
    pub fn leave<const CODE: u8>(self) {
        const { assert!(CODE < 128, "higher codes are used by this crate") };
        asm::abort::<CODE>(self);
    }
}

/// Not inlined, so that a disassembly shows that CPUID precedes the trial (`instructions.rs`).
#[inline(never)]
fn find() -> Result<Rtm, NoTransactions> {
    let reported = cpuid::rtm();
    // What CPUID reports comes first: the switch of a processor without RTM is of no interest.
    if reported == Err(NoTransactions::Absent) {
        return Err(NoTransactions::Absent);
    }
    if std::env::var_os(SWITCH).is_some_and(|value| value == "off") {
        return Err(NoTransactions::SwitchedOff);
    }
    reported?;
    let rtm = Rtm(());
    if trial(rtm) {
        Ok(rtm)
    } else {
        Err(NoTransactions::NeverCommits)
    }
}

/// Whether a transaction commits. Not inlined, as [`find`].
#[inline(never)]
fn trial(rtm: Rtm) -> bool {
    (0..TRIALS).any(|_| {
        let has_begun = asm::begin(rtm) == asm::STARTED;
        if has_begun {
            asm::end(rtm);
        }
        has_begun
    })
}

/// Aborts the transaction if the section unwinds.
struct AbortOnUnwind(Rtm);

impl Drop for AbortOnUnwind {
    fn drop(&mut self) {
        asm::abort::<CODE_PANICKED>(self.0);
    }
}

// SAFETY: the processor's guarantees, and the checks of the lock below, which put the lock in the
// transaction's read set: a thread that takes it before the commit aborts the transaction (1 and
// 2). At begin, the check is the first access, so the lock is free until the commit or abort (3).
unsafe impl Transaction for Rtm {
    const NESTS: bool = true;

    #[inline(always)]
    fn attempt<L: RawLock, R>(
        self,
        lock: Subscription<'_, L>,
        section: impl FnOnce() -> R,
    ) -> Result<R, Abort> {
        let status = asm::begin(self);
        if status != asm::STARTED {
            return Err(Abort::from_status(status));
        }
        if lock.at == When::Begin && lock.is_locked() {
            asm::abort::<CODE_LOCKED>(self);
        }
        if lock.is_inside && !lock.lock.try_lock() {
            asm::abort::<CODE_LOCKED>(self);
        }
        let guard = AbortOnUnwind(self);
        let result = section();
        std::mem::forget(guard);
        if lock.at == When::Commit && lock.is_locked() {
            asm::abort::<CODE_LOCKED>(self);
        }
        if lock.is_inside {
            // SAFETY: taken above by this thread, in the same transaction.
            unsafe { lock.lock.unlock() };
        }
        asm::end(self);
        Ok(result)
    }

    #[inline(always)]
    fn is_active(self) -> bool {
        asm::is_active(self)
    }

    #[inline(always)]
    fn abort<const CODE: u8>(self) -> ! {
        asm::abort::<CODE>(self);
        unreachable!("an abort outside of a transaction");
    }

    #[inline(always)]
    unsafe fn load<A: TxAtomic>(self, atomic: &A) -> A::Value {
        atomic.get(Acquire) // pairs with the Release in `store`, for readers beside the lock
    }

    #[inline(always)]
    unsafe fn store<A: TxAtomic>(self, atomic: &A, value: A::Value) {
        atomic.set(value, Release); // pairs with the Acquire in `load`
    }

    #[inline(always)]
    fn after_lock(self) {}
}

#[cfg(all(
    target_arch = "x86_64",
    not(any(miri, corewise_loom, corewise_shuttle, corewise_tsan))
))]
mod cpuid {
    use std::arch::x86_64::{__cpuid, __cpuid_count};

    use super::NoTransactions;

    /// The leaf of structured extended features.
    const FEATURES: u32 = 7;
    /// EBX of that leaf.
    const RTM: u32 = 1 << 11;
    /// EDX of that leaf.
    const RTM_ALWAYS_ABORT: u32 = 1 << 11;

    pub(super) fn rtm() -> Result<(), NoTransactions> {
        if __cpuid(0).eax < FEATURES {
            return Err(NoTransactions::Absent);
        }
        let leaf = __cpuid_count(FEATURES, 0);
        decode(leaf.ebx, leaf.edx)
    }

    /// With RTM_ALWAYS_ABORT, some processors still report RTM and others do not.
    pub(super) fn decode(ebx: u32, edx: u32) -> Result<(), NoTransactions> {
        if edx & RTM_ALWAYS_ABORT != 0 {
            Err(NoTransactions::AlwaysAborts)
        } else if ebx & RTM == 0 {
            Err(NoTransactions::Absent)
        } else {
            Ok(())
        }
    }
}

#[cfg(not(all(
    target_arch = "x86_64",
    not(any(miri, corewise_loom, corewise_shuttle, corewise_tsan))
)))]
mod cpuid {
    use super::NoTransactions;

    pub(super) fn rtm() -> Result<(), NoTransactions> {
        Err(NoTransactions::Absent)
    }
}

/// The instructions. Each function needs an [`Rtm`], which proves that they exist.
#[cfg(target_arch = "x86_64")]
mod asm {
    use std::arch::asm;

    use super::Rtm;

    /// The transaction runs.
    pub(super) const STARTED: u32 = u32::MAX;

    /// Begins a transaction: returns [`STARTED`], or, after an abort, the status word.
    #[inline(always)]
    pub(super) fn begin(_: Rtm) -> u32 {
        let mut status = STARTED;
        // SAFETY: the instruction exists. After an abort, execution goes on at the label with all
        // registers restored except EAX, which is declared; memory is restored too, and `nomem` is
        // not claimed. Flags are declared as clobbered by default.
        unsafe { asm!("xbegin 2f", "2:", inout("eax") status, options(nostack)) };
        status
    }

    /// Commits the transaction.
    #[inline(always)]
    pub(super) fn end(_: Rtm) {
        // SAFETY: the instruction exists. Outside of a transaction it would fault; callers have
        // seen STARTED and have not ended it since.
        unsafe { asm!("xend", options(nostack)) };
    }

    /// Aborts the transaction; does nothing outside of one.
    #[inline(always)]
    pub(super) fn abort<const CODE: u8>(_: Rtm) {
        // SAFETY: an `Rtm` proves that the processor has the instruction, which does nothing
        // outside of a transaction.
        unsafe { asm!("xabort {code}", code = const CODE, options(nostack)) };
    }

    /// Whether the thread is in a transaction.
    #[inline(always)]
    pub(super) fn is_active(_: Rtm) -> bool {
        let active: u8;
        // SAFETY: the instruction exists, and only sets flags.
        unsafe {
            asm!("xtest", "setnz {active}", active = out(reg_byte) active, options(nostack, nomem));
        }
        active != 0
    }
}

/// No `Rtm` is ever created on other processors.
#[cfg(not(target_arch = "x86_64"))]
mod asm {
    use super::Rtm;

    pub(super) const STARTED: u32 = u32::MAX;

    pub(super) fn begin(_: Rtm) -> u32 {
        0
    }
    pub(super) fn end(_: Rtm) {}
    pub(super) fn abort<const CODE: u8>(_: Rtm) {}
    pub(super) fn is_active(_: Rtm) -> bool {
        false
    }
}

#[cfg(all(
    test,
    target_arch = "x86_64",
    not(any(corewise_loom, corewise_shuttle))
))]
mod tests {
    use super::*;

    #[cfg(not(any(miri, corewise_tsan)))]
    #[test]
    fn the_features_are_decoded() {
        assert_eq!(cpuid::decode(0, 0), Err(NoTransactions::Absent));
        assert_eq!(cpuid::decode(1 << 11, 0), Ok(()));
        assert_eq!(
            cpuid::decode(1 << 11, 1 << 11),
            Err(NoTransactions::AlwaysAborts)
        );
        assert_eq!(cpuid::decode(0, 1 << 11), Err(NoTransactions::AlwaysAborts));
    }

    /// What the kernel reports in `/proc/cpuinfo` agrees: without the flag nothing is detected.
    #[cfg(target_os = "linux")]
    #[test]
    fn nothing_is_detected_where_the_kernel_reports_no_rtm() {
        let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let flags = text.lines().find(|line| line.starts_with("flags"));
        let has_rtm = flags.is_some_and(|line| line.split_whitespace().any(|flag| flag == "rtm"));
        println!(
            "back end: {:?}; /proc/cpuinfo has rtm: {has_rtm}",
            Rtm::detect()
        );
        if !text.is_empty() && !has_rtm {
            assert!(Rtm::detect().is_err());
        }
    }
}
