//! `fork`: the child has a copy of all records, but only the thread that forked.
//!
//! 1. *Nothing is half-way.* Before the fork a handler takes all locks of all domains, and both
//!    processes release them after it. So limbos and the grace period under way are whole in the
//!    child, and no lock is held by a thread that the child does not have.
//! 2. *No waiting for others.* The child ends the sections of other threads. It does not hand their
//!    records out again: a thread may have been changing data indexed by its record. What these
//!    threads deferred stays in their limbos, where [`Domain::barrier`](crate::Domain::barrier) and
//!    callers over the soft limit find it.
//! 3. *Order of locks.* The list of domains, then for each domain its orphans, its limbos, its driver,
//!    its owners. Elsewhere two of them are taken together in this order, or the second is only tried;
//!    and no user code runs under one of them, so the thread that forks holds none.
//! 4. *Late records.* Registration is lock-free. A record that is linked after the handler has read
//!    the list belongs to a thread that the child does not have, and the child cuts it off the list.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::ptr;

use corewise_atomic::lock::{Mutex, MutexGuard};
use corewise_atomic::thread::{self, ThreadId};

use crate::backlog::Limbo;
use crate::deferred::Deferred;
use crate::domain::{Domain, Shared};
use crate::grace::Driver;
use crate::reader::{Owner, Reader};

corewise_atomic::static_cell! {
    /// All domains, by their numbers.
    static DOMAINS: Mutex<BTreeMap<u64, Listed>> = {
        install();
        Mutex::new(BTreeMap::new())
    };
}

corewise_atomic::thread_local! {
    /// What `before` hands to `in_parent` or `in_child`, which the same thread calls.
    static HELD: Cell<*mut Held> = const { Cell::new(ptr::null_mut()) };
}

/// The checkers know of no `fork`.
const IS_POSSIBLE: bool = cfg!(all(unix, not(any(corewise_loom, corewise_shuttle))));

/// A domain that is not freed yet: that takes it out of the list first.
struct Listed(*const Shared);

// SAFETY: it stands for a shared reference to a domain, which is `Sync`.
unsafe impl Send for Listed {}

/// All locks.
struct Held {
    thread: ThreadId,
    domains: Vec<HeldDomain>,
    /// Released last: the domains live as long as it is held.
    _list: MutexGuard<'static, BTreeMap<u64, Listed>>,
}

/// The locks of a domain.
struct HeldDomain {
    shared: &'static Shared,
    /// The newest record when the locks were taken.
    newest: *mut Reader,
    _orphans: MutexGuard<'static, Limbo<Deferred>>,
    _limbos: Vec<MutexGuard<'static, Limbo<Deferred>>>,
    _driver: MutexGuard<'static, Driver>,
    owners: Vec<(&'static Reader, MutexGuard<'static, Owner>)>,
}

/// Enters a domain into the list. It must call [`forget`] before it is freed.
pub(crate) fn remember(shared: &Shared) {
    if IS_POSSIBLE {
        DOMAINS.lock().insert(shared.id, Listed(shared));
    }
}

/// Takes a domain out of the list. Waits for a fork that is under way.
pub(crate) fn forget(shared: &Shared) {
    if IS_POSSIBLE {
        DOMAINS.lock().remove(&shared.id);
    }
}

#[cfg(not(unix))]
fn install() {}

#[cfg(unix)]
fn install() {
    // SAFETY: functions that live as long as the program.
    let failed = unsafe { libc::pthread_atfork(Some(before), Some(in_parent), Some(in_child)) };
    assert_eq!(failed, 0, "no memory for fork handlers");
}

extern "C" fn before() {
    // In the child it would never be ready if another thread were making it.
    let _ = Domain::global();
    let list = DOMAINS.lock();
    // SAFETY: in the list, and so not freed while we hold its lock.
    let domains = list.values().map(|listed| unsafe { &*listed.0 });
    let domains = domains.map(HeldDomain::new).collect();
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
        domains.for_each(|domain| domain.end_all_but(held.thread));
    }
}

/// What `before` took, unless it was installed after its turn.
fn take_held() -> Option<Box<Held>> {
    let held = HELD.try_with(|place| place.replace(ptr::null_mut())).ok()?;
    // SAFETY: made from a box in `before`, and taken once.
    (!held.is_null()).then(|| unsafe { Box::from_raw(held) })
}

impl HeldDomain {
    /// Takes the locks, in the order of 3 above.
    fn new(shared: &'static Shared) -> Self {
        let newest = shared.registry.newest();
        // SAFETY: it is the registry's.
        let readers = || unsafe { shared.registry.iter_from(newest) };
        Self {
            shared,
            newest,
            _orphans: shared.orphans.lock(),
            _limbos: readers().map(|reader| reader.limbo.lock()).collect(),
            _driver: shared.grace.lock(),
            owners: readers()
                .map(|reader| (reader, reader.owner.lock()))
                .collect(),
        }
    }

    /// In the child; see 2 and 4 above.
    fn end_all_but(&self, thread: ThreadId) {
        // SAFETY: it is the registry's.
        unsafe { self.shared.registry.cut_to(self.newest) };
        for (reader, owner) in &self.owners {
            if owner.thread != Some(thread) {
                reader.end_sections();
            }
        }
    }
}
