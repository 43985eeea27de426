//! When to try a transaction again, and when to take the lock.
//!
//! | policy | reads the lock | attempts alone + with the auxiliary lock | thesis §4.5.3 |
//! |---|---|---|---|
//! | [`Retry<N>`] | at begin | N | HTM-retry |
//! | [`Scm`] | at begin | 1 + 10 | scm-ttas |
//! | [`ScmOpt`] | at begin | 10 + 2, which lock and unlock the main lock inside | scm-ttas-opt |
//! | [`Slr`] | at commit | 10 | slr-mcs |
//! | [`SlrScm`] | at commit | 10 + 10 | slr-scm-mcs |
//!
//! What an abort costs depends on its cause:
//!
//! | cause | reaction |
//! |---|---|
//! | `Locked` | waits until the lock is free; 64 times, without counting an attempt |
//! | `Conflict`, `BadPrefix`, `Panicked` | the next attempt |
//! | `Capacity` | one more attempt, because some conflicts are reported so; then the main lock |
//! | `Unspecified` | two more attempts; then the main lock |
//! | `Nested`, `Explicit`, `Debug` | the main lock at once |
//!
//! After `Nested` another attempt would end as this one did: what does not nest never does, and no
//! attempt of the outer section waits for the inner lock. Under the main lock the inner section has
//! its own attempts.
//!
//! The thesis does not define scm-ttas-opt beyond one sentence ("after ten retries a thread
//! acquires the lock transactionally"); [`ScmOpt`] is our definition.

use super::Cause;

/// When a transaction reads the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// First of all, so that a thread that takes the lock aborts the transaction.
    Begin,
    /// Last of all, so that only a transaction that commits while the lock is held is aborted.
    Commit,
}

mod sealed {
    pub trait Sealed {}
}

/// When to try again. Sealed: the argument for soundness depends on the policy.
pub trait Policy: sealed::Sealed + Send + Sync + 'static {
    /// When transactions read the lock.
    const READS_LOCK: When;
    /// Attempts without the auxiliary lock.
    const ALONE: u32;
    /// Attempts with the auxiliary lock.
    const AIDED: u32;
    /// Whether the latter take the main lock inside of the transaction.
    const LOCKS_INSIDE: bool = false;
}

/// A policy whose transactions never see the changes of an unfinished section: they read the lock
/// at begin. Sealed.
pub trait Opaque: Policy {}

/// `N` attempts, then the lock (Intel's recommendation). `Retry<0>` takes the lock at once.
#[derive(Clone, Copy, Debug)]
pub struct Retry<const N: u32 = 10>;
/// Software-assisted conflict management: threads in conflict take an auxiliary lock and try
/// again, so that they run one after the other, beside those that do not conflict.
#[derive(Clone, Copy, Debug)]
pub struct Scm;
/// Optimistic conflict management: ten attempts, then two with the auxiliary lock that also take
/// the main lock inside of the transaction.
#[derive(Clone, Copy, Debug)]
pub struct ScmOpt;
/// Software-assisted lock removal: transactions read the lock at commit only, so they run beside a
/// section that holds the lock, and may see its intermediate states.
#[derive(Clone, Copy, Debug)]
pub struct Slr;
/// Lock removal, then conflict management after ten conflicts (algorithms 4.6 and 4.7).
#[derive(Clone, Copy, Debug)]
pub struct SlrScm;

impl<const N: u32> sealed::Sealed for Retry<N> {}
impl sealed::Sealed for Scm {}
impl sealed::Sealed for ScmOpt {}
impl sealed::Sealed for Slr {}
impl sealed::Sealed for SlrScm {}

impl<const N: u32> Policy for Retry<N> {
    const READS_LOCK: When = When::Begin;
    const ALONE: u32 = N;
    const AIDED: u32 = 0;
}
impl Policy for Scm {
    const READS_LOCK: When = When::Begin;
    const ALONE: u32 = 1;
    const AIDED: u32 = 10;
}
impl Policy for ScmOpt {
    const READS_LOCK: When = When::Begin;
    const ALONE: u32 = 10;
    const AIDED: u32 = 2;
    const LOCKS_INSIDE: bool = true;
}
impl Policy for Slr {
    const READS_LOCK: When = When::Commit;
    const ALONE: u32 = 10;
    const AIDED: u32 = 0;
}
impl Policy for SlrScm {
    const READS_LOCK: When = When::Commit;
    const ALONE: u32 = 10;
    const AIDED: u32 = 10;
}
impl<const N: u32> Opaque for Retry<N> {}
impl Opaque for Scm {}
impl Opaque for ScmOpt {}

/// Aborts because of a held lock that are not counted as attempts.
pub(crate) const LOCKED_LIMIT: u32 = 64;
/// Further attempts after aborts for capacity.
const CAPACITY_RETRIES: u32 = 1;
/// Further attempts after unspecified aborts.
const UNSPECIFIED_RETRIES: u32 = 2;

/// What to do after an abort.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Wait until the lock is free, then try again.
    Wait,
    /// Try again.
    Again,
    /// Take the auxiliary lock, then try again.
    Aid,
    /// Take the main lock.
    Lock,
}

/// The attempts of one section.
#[derive(Debug)]
pub(crate) struct Budget {
    /// Attempts left in this phase.
    left: u32,
    /// Attempts of the phase with the auxiliary lock, if it is to come.
    aided: u32,
    locked: u32,
    capacity: u32,
    unspecified: u32,
}

impl Budget {
    #[inline]
    pub(crate) fn new<P: Policy>() -> Self {
        Self {
            left: P::ALONE,
            aided: P::AIDED,
            locked: LOCKED_LIMIT,
            capacity: CAPACITY_RETRIES,
            unspecified: UNSPECIFIED_RETRIES,
        }
    }

    pub(crate) fn after(&mut self, cause: Cause) -> Next {
        let spend = |left: &mut u32| match left.checked_sub(1) {
            Some(less) => {
                *left = less;
                true
            }
            None => false,
        };
        let may_retry = match cause {
            Cause::Locked if spend(&mut self.locked) => return Next::Wait,
            Cause::Locked | Cause::Nested | Cause::Explicit(_) | Cause::Debug => false,
            Cause::Capacity => spend(&mut self.capacity),
            Cause::Unspecified => spend(&mut self.unspecified),
            Cause::Conflict | Cause::BadPrefix | Cause::Panicked => true,
        };
        if !may_retry {
            return Next::Lock;
        }
        self.left = self.left.saturating_sub(1);
        if self.left > 0 {
            Next::Again
        } else if self.aided > 0 {
            self.left = std::mem::take(&mut self.aided);
            Next::Aid
        } else {
            Next::Lock
        }
    }
}
