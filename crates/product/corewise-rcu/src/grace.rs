//! Grace periods: numbered, shared, polled.
//!
//! Grace periods of a domain run one after the other. `started` and `completed` count them; they
//! differ while one runs. A caller that needs one takes a [`Cookie`], the number of the first grace
//! period that begins after the call, and advances grace periods until the cookie is complete.
//!
//! 1. *The cookie is late enough.* A writer unlinks, executes a fence and reads `started` = n; the
//!    driver stores `started` = n + 1, executes the heavy half of the barrier pair and looks at the
//!    readers. If the writer did not see n + 1, its fence comes before the driver's, and so its
//!    unlinking before the look: a reader that the look misses sees the object unlinked. If the
//!    writer did see n + 1, its cookie is n + 2.
//! 2. *Readers' accesses happen before.* The driver reads each reader's word with Acquire and
//!    stores `completed` with Release; a cookie is found complete with Acquire.
//! 3. *Progress.* Advancing never waits: it only tries the driver's lock.

use std::time::Duration;

use corewise_atomic::lock::Mutex;
use corewise_atomic::sync::atomic::AtomicU64;
use corewise_atomic::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use corewise_atomic::sync::atomic::fence;
use corewise_atomic::time::now_ns;
use corewise_atomic::{barrier, mutant, ordering};

use crate::reader::Reader;
use crate::registry::Registry;
use crate::stall::Stall;

/// The number of a grace period to wait for. Returned by
/// [`Domain::start_poll`](crate::Domain::start_poll).
///
/// A cookie is meaningful only in its domain. A later cookie is never smaller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cookie(u64);

impl Cookie {
    /// A cookie that is complete from the start.
    pub const DONE: Cookie = Cookie(0);
}

pub(crate) struct Grace {
    started: AtomicU64,
    completed: AtomicU64,
    driver: Mutex<Driver>,
}

/// The current grace period.
pub(crate) struct Driver {
    /// The readers it waits for.
    pending: Vec<Pending>,
    begun_ns: u64,
    stall_reported: bool,
}

/// A reader, and the section that it was in.
struct Pending {
    reader: *const Reader,
    section: u64,
}

// SAFETY: it stands for a shared reference to a record, which is `Sync`.
unsafe impl Send for Pending {}

impl Pending {
    fn of(reader: &Reader) -> Option<Self> {
        let section = reader.section()?;
        Some(Self { reader, section })
    }

    fn reader(&self) -> &Reader {
        // SAFETY: records live as long as their registry, and so does this driver, by the contract
        // of `advance`.
        unsafe { &*self.reader }
    }

    fn is_inside(&self) -> bool {
        self.reader().section() == Some(self.section)
    }
}

impl Grace {
    pub(crate) fn new() -> Self {
        Self {
            started: AtomicU64::new(0),
            completed: AtomicU64::new(0),
            driver: Mutex::new(Driver {
                pending: Vec::new(),
                begun_ns: 0,
                stall_reported: false,
            }),
        }
    }

    /// A cookie for the first grace period that begins after the call.
    pub(crate) fn cookie(&self) -> Cookie {
        // SeqCst: pairs with the fence in the heavy barrier of `begin`, see 1 above.
        if !mutant!("no_cookie_fence") {
            fence(SeqCst);
        }
        // Relaxed: the fence orders it.
        let started = self.started.load(Relaxed);
        Cookie(started + u64::from(!mutant!("early_cookie")))
    }

    #[inline]
    pub(crate) fn is_complete(&self, cookie: Cookie) -> bool {
        // Acquire: pairs with the Release in `check`, see 2 above.
        let acquire = ordering!(Acquire, "relaxed_is_complete");
        self.completed.load(acquire) >= cookie.0
    }

    /// Advances as far as possible without waiting; true if the cookie is complete.
    ///
    /// # Safety
    ///
    /// 1. `readers` is the registry of the domain that this belongs to, and is freed with it.
    pub(crate) unsafe fn advance(&self, readers: &Registry, cookie: Cookie) -> bool {
        if self.is_complete(cookie) {
            return true;
        }
        let Some(mut driver) = self.driver.try_lock() else {
            return false;
        };
        // The current one and the next: no cookie of this domain is later.
        for _ in 0..2 {
            // Relaxed, both: written under the lock that we hold.
            if self.started.load(Relaxed) == self.completed.load(Relaxed) {
                // SAFETY: the readers are those of this domain, by the contract of this function.
                unsafe { self.begin(&mut driver, readers) };
            }
            if !self.check(&mut driver) {
                return false;
            }
            if self.is_complete(cookie) {
                return true;
            }
        }
        false
    }

    /// # Safety
    ///
    /// 1. As for [`Grace::advance`].
    unsafe fn begin(&self, driver: &mut Driver, readers: &Registry) {
        // Relaxed: the lock is held.
        let number = self.started.load(Relaxed) + 1;
        // Relaxed: the barrier below orders it, see 1 above.
        self.started.store(number, Relaxed);
        if !mutant!("no_heavy") {
            barrier::heavy();
        }
        driver.begun_ns = now_ns();
        driver.stall_reported = false;
        driver.pending.clear();
        if !mutant!("no_wait") {
            let inside = readers.iter().filter_map(Pending::of);
            driver.pending.extend(inside);
        }
    }

    /// Removes the readers that have left their sections from the pending list. If none is left,
    /// completes the grace period and returns true.
    fn check(&self, driver: &mut Driver) -> bool {
        driver.pending.retain(Pending::is_inside);
        if !driver.pending.is_empty() {
            return false;
        }
        // Relaxed: the lock is held. Release: see 2 above.
        let number = self.started.load(Relaxed);
        let release = ordering!(Release, "relaxed_complete");
        self.completed.store(number, release);
        true
    }

    /// The readers that have kept the current grace period waiting for `after` or longer. With
    /// `once`, only if they were not reported before.
    pub(crate) fn stalls(&self, domain: &str, after: Duration, once: bool) -> Vec<Stall> {
        let Some(mut driver) = self.driver.try_lock() else {
            return Vec::new();
        };
        let waited = Duration::from_nanos(now_ns().saturating_sub(driver.begun_ns));
        if driver.pending.is_empty() || waited < after || (once && driver.stall_reported) {
            return Vec::new();
        }
        driver.stall_reported |= once;
        let stalled = driver.pending.iter().filter(|pending| pending.is_inside());
        stalled
            .map(|pending| Stall {
                thread: pending.reader().owner.lock().name.clone(),
                waited,
                domain: domain.to_owned(),
            })
            .collect()
    }

    /// The number of completed grace periods.
    pub(crate) fn completed(&self) -> u64 {
        // Relaxed: a number that publishes nothing.
        self.completed.load(Relaxed)
    }
}
