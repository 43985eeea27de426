//! `fork`: the child has a copy of all records, but only the thread that forked.
//!
//! 1. *Consistent state.* Before the fork a handler takes all locks of all domains; parent and
//!    child release them after it. So in the child the retire lists and the current grace period
//!    are consistent, and no lock is held by a thread that the child does not have.
//! 2. *No waiting for other threads.* The child ends the sections of other threads. It does not
//!    reuse their records: a thread may have been changing data indexed by its record. What these
//!    threads deferred stays in their retire lists, where
//!    [`Domain::barrier`](crate::Domain::barrier) and callers over the soft limit find it. The
//!    sections of owned guards continue: nothing tells whose they are, and the thread that forks
//!    may have one.
//! 3. *Lock order.* The list of domains, then for each domain its orphans, its retire lists, its
//!    driver, its owners. All other code that takes two of them follows this order, or only tries
//!    the second; and no user code runs under any of them, so the thread that forks holds none.
//! 4. *Late records.* Registration is lock-free. A record that is linked after the handler has read
//!    the list belongs to a thread that the child does not have, and the child cuts it off the
//!    list.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::ptr;

use corewise_atomic::lock::{Mutex, MutexGuard};
use corewise_atomic::mutant;
use corewise_atomic::thread::{self, ThreadId};

use crate::backlog::RetireList;
use crate::deferred::Deferred;
use crate::domain::{Domain, Shared};
use crate::grace::Driver;
use crate::reader::{Owner, Reader};

corewise_atomic::static_cell! {
    /// All domains, by ID.
    static DOMAINS: Mutex<BTreeMap<u64, Listed>> = {
        install();
        Mutex::new(BTreeMap::new())
    };
}

corewise_atomic::thread_local! {
    /// Passed by `before` to `in_parent` or `in_child`, which run on the same thread.
    static HELD: Cell<*mut Held> = const { Cell::new(ptr::null_mut()) };
}

/// loom and shuttle do not model `fork`.
const IS_POSSIBLE: bool = cfg!(all(unix, not(any(corewise_loom, corewise_shuttle))));

/// A domain that is not freed yet: a domain leaves the list before it is freed.
struct Listed(*const Shared);

// SAFETY: it stands for a shared reference to a domain, which is `Sync`.
unsafe impl Send for Listed {}

/// The locks of all domains.
struct Held {
    thread: ThreadId,
    domains: Vec<HeldDomain>,
    /// Released last: no domain is freed while it is held.
    _list: MutexGuard<'static, BTreeMap<u64, Listed>>,
}

/// The locks of a domain.
struct HeldDomain {
    shared: &'static Shared,
    /// The newest record when the locks were taken.
    newest: *mut Reader,
    _orphans: MutexGuard<'static, RetireList<Deferred>>,
    _retire_lists: Vec<MutexGuard<'static, RetireList<Deferred>>>,
    _driver: MutexGuard<'static, Driver>,
    owners: Vec<(&'static Reader, MutexGuard<'static, Owner>)>,
}

/// Adds a domain to the list.
///
/// # Safety
///
/// 1. [`forget`] is called before the domain is freed or moved.
pub(crate) unsafe fn remember(shared: &Shared) {
    if IS_POSSIBLE {
        DOMAINS.lock().insert(shared.id, Listed(shared));
    }
}

/// Removes a domain from the list. Waits for a fork in progress.
pub(crate) fn forget(shared: &Shared) {
    if IS_POSSIBLE {
        DOMAINS.lock().remove(&shared.id);
    }
}

#[cfg(not(unix))]
fn install() {}

#[cfg(unix)]
fn install() {
    // SAFETY: the functions live as long as the program.
    let failed = unsafe { libc::pthread_atfork(Some(before), Some(in_parent), Some(in_child)) };
    assert_eq!(failed, 0, "no memory for fork handlers");
}

extern "C" fn before() {
    // If another thread were initialising it during the fork, it would never be ready in the child.
    let _ = Domain::global();
    let list = DOMAINS.lock();
    // SAFETY: 1: the domain is in the list, so it is not freed while the list's lock is held, which
    // `Held` releases last.
    let domains = list
        .values()
        .map(|listed| unsafe { HeldDomain::new(listed.0) });
    let domains = domains.collect();
    let held = Box::new(Held {
        thread: thread::current().id(),
        domains,
        _list: list,
    });
    let _ = HELD.try_with(|place| place.set(Box::into_raw(held)));
}

extern "C" fn in_parent() {
    drop(take_held());
}

extern "C" fn in_child() {
    if let Some(held) = take_held() {
        let domains = held.domains.iter();
        // SAFETY: 1: this is the child, and runs on the thread that forked.
        domains.for_each(|domain| unsafe { domain.end_all_but(held.thread) });
    }
}

/// What `before` took; `None` if the handlers were installed too late for `before` to run.
fn take_held() -> Option<Box<Held>> {
    let held = HELD.try_with(|place| place.replace(ptr::null_mut())).ok()?;
    // SAFETY: made from a box in `before`, and taken once.
    (!held.is_null()).then(|| unsafe { Box::from_raw(held) })
}

impl HeldDomain {
    /// Takes the locks, in the order of 3 above.
    ///
    /// # Safety
    ///
    /// 1. The domain is not freed before the value is dropped.
    unsafe fn new(shared: *const Shared) -> Self {
        // SAFETY: 1: the value does not lend the reference.
        let shared: &'static Shared = unsafe { &*shared };
        let newest = shared.registry.newest();
        // SAFETY: `newest` comes from this registry.
        let readers = || unsafe { shared.registry.iter_from(newest) };
        Self {
            shared,
            newest,
            _orphans: shared.orphans.lock(),
            _retire_lists: readers().map(|reader| reader.retire_list.lock()).collect(),
            _driver: shared.grace.lock(),
            owners: readers()
                .map(|reader| (reader, reader.owner.lock()))
                .collect(),
        }
    }

    /// Runs in the child; see 2 and 4 above.
    ///
    /// # Safety
    ///
    /// 1. `thread` is the calling thread and the only one of the process.
    unsafe fn end_all_but(&self, thread: ThreadId) {
        // SAFETY: 1: `newest` comes from this registry. 2: records that were linked later belong to
        // threads that the process does not have, by 1: this thread was taking the locks then.
        unsafe { self.shared.registry.cut_to(self.newest) };
        for (reader, owner) in &self.owners {
            // A record without a thread is that of an owned guard, which may be the child's.
            let is_anothers = owner.thread.is_some_and(|owner| owner != thread);
            if is_anothers || mutant!("fork_ends_owned") && owner.thread.is_none() {
                // SAFETY: 1: by our 1, and because another thread owned the record.
                unsafe { reader.end_sections() };
            }
        }
    }
}
