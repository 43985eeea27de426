//! The records of the calling thread, by domain.
//!
//! Two records are *at hand*, in thread-locals without a destructor: the record of the domain used
//! last (the global one, as long as no other is used), and the record of the global domain. All
//! other records, and the code that gives records back at thread exit, are in `MEMBERSHIPS`. The
//! order in which its destructor and those of other thread-locals run is unspecified; once it has
//! run, no record is at hand. A guard taken after that claims a record, which is given back with
//! the last section in it; guards nested in it share the record.
//!
//! A record is put at hand only after `barrier::prepare` has returned true on this thread, so that
//! entering a section there need not check the barrier again. On systems without `membarrier` no
//! record is ever at hand.

use std::cell::{Cell, RefCell};
use std::ptr::{self, NonNull};

use corewise_atomic::barrier;
use corewise_atomic::sync::Arc;
use corewise_atomic::thread;

use crate::domain::DomainState;
use crate::reader::{Reader, RecordOwner};

corewise_atomic::thread_local! {
    static GLOBAL: Cell<*const Reader> = const { Cell::new(ptr::null()) };
    /// The ID of the domain, which is never 0, and the record.
    static RECENT: Cell<(u64, *const Reader)> = const { Cell::new((0, ptr::null())) };
    static MEMBERSHIPS: Memberships = const { Memberships(RefCell::new(Vec::new())) };
}

struct Membership {
    shared: Arc<DomainState>,
    reader: *const Reader,
}

struct Memberships(RefCell<Vec<Membership>>);

impl Membership {
    fn reader(&self) -> &Reader {
        // SAFETY: records live as long as their domain, which we share.
        unsafe { &*self.reader }
    }
}

/// The calling thread's record in the global domain, if it is at hand.
#[inline(always)]
pub(crate) fn global() -> Option<NonNull<Reader>> {
    GLOBAL
        .try_with(|global| NonNull::new(global.get().cast_mut()))
        .unwrap_or(None)
}

/// The calling thread's record in a domain, if it is at hand.
#[inline(always)]
pub(crate) fn at_hand(shared: &DomainState) -> Option<NonNull<Reader>> {
    let (id, recent) = RECENT.try_with(Cell::get).unwrap_or((0, ptr::null()));
    if id == shared.id {
        // SAFETY: domain IDs are not 0, so a record was stored there.
        return Some(unsafe { NonNull::new_unchecked(recent.cast_mut()) });
    }
    if shared.is_global {
        return global();
    }
    None
}

/// The calling thread's record in a domain, claimed now if need be.
///
/// After the thread-locals are gone the record serves one section and the sections nested in it.
#[cold]
#[inline(never)]
pub(crate) fn join(shared: &Arc<DomainState>) -> *const Reader {
    join_for_good(shared).unwrap_or_else(|| {
        if let Some(reader) = shared.entered_reader_of(thread::current().id()) {
            return reader;
        }
        let reader = claim(shared);
        // SAFETY: the record lives as long as its domain, which the caller borrows; the thread has
        // just claimed it.
        unsafe { (*reader).set_one_shot() };
        reader
    })
}

/// The calling thread's record in a domain, claimed now if need be; `None` after the thread-locals
/// are gone.
#[inline]
pub(crate) fn record(shared: &Arc<DomainState>) -> Option<*const Reader> {
    match at_hand(shared) {
        Some(reader) => Some(reader.as_ptr()),
        None => join_for_good(shared),
    }
}

#[cold]
#[inline(never)]
fn join_for_good(shared: &Arc<DomainState>) -> Option<*const Reader> {
    let kept = MEMBERSHIPS.try_with(|memberships| memberships.find_or_claim(shared));
    let reader = kept.ok()?;
    // SAFETY: it is the calling thread's record in this domain: it comes from the memberships of
    // the thread, which `find_or_claim` searches by domain (1).
    unsafe { put_at_hand(shared, reader) };
    Some(reader)
}

/// Whether the calling thread's memberships were dropped already: the thread is ending.
pub(crate) fn are_gone() -> bool {
    MEMBERSHIPS.try_with(|_| ()).is_err()
}

/// The calling thread's record, if it has one.
pub(crate) fn find(shared: &DomainState) -> Option<*const Reader> {
    MEMBERSHIPS
        .try_with(|memberships| memberships.find(shared))
        .unwrap_or(None)
}

/// Puts a record at hand.
///
/// # Safety
///
/// 1. It is the calling thread's record in the domain, until the thread's memberships are dropped.
unsafe fn put_at_hand(shared: &DomainState, reader: *const Reader) {
    if !barrier::prepare() {
        return;
    }
    // loom and shuttle may have dropped these already; then no record is ever at hand.
    if shared.is_global {
        let _ = GLOBAL.try_with(|global| global.set(reader));
    }
    let _ = RECENT.try_with(|recent| recent.set((shared.id, reader)));
}

fn claim(shared: &Arc<DomainState>) -> *const Reader {
    // SAFETY: the registry is that of `shared`, and the `Arc` keeps the domain where it is (1).
    let reader = unsafe { shared.registry.claim(shared) };
    *reader.owner.lock() = RecordOwner::current();
    reader
}

impl Memberships {
    fn find(&self, shared: &DomainState) -> Option<*const Reader> {
        let memberships = self.0.borrow();
        let found = memberships
            .iter()
            .find(|membership| membership.shared.id == shared.id);
        found.map(|membership| membership.reader)
    }

    fn find_or_claim(&self, shared: &Arc<DomainState>) -> *const Reader {
        if let Some(reader) = self.find(shared) {
            return reader;
        }
        let abandoned = self.take_abandoned();
        let reader = claim(shared);
        self.0.borrow_mut().push(Membership {
            shared: Arc::clone(shared),
            reader,
        });
        // Freeing a domain may run destructors, so it is dropped last.
        drop(abandoned);
        reader
    }

    /// The memberships of domains that have no handle left.
    fn take_abandoned(&self) -> Vec<Membership> {
        let mut memberships = self.0.borrow_mut();
        memberships
            .extract_if(.., |membership| membership.shared.is_abandoned())
            .collect()
    }
}

impl Drop for Memberships {
    fn drop(&mut self) {
        let _ = GLOBAL.try_with(|global| global.set(ptr::null()));
        let _ = RECENT.try_with(|recent| recent.set((0, ptr::null())));
        for membership in self.0.take() {
            let reader = membership.reader();
            // SAFETY: the thread owns the records of its memberships, and no code finds them at
            // hand from here on. `give_back` is called only if `end_thread` has found the thread
            // in no section, running or paused.
            unsafe {
                if reader.end_thread() {
                    membership.shared.give_back(reader);
                }
            }
        }
    }
}
