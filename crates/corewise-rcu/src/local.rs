//! Which record of which domain the calling thread has.
//!
//! Two records are *at hand*, in thread-locals without a destructor: that of the domain used last
//! (of the global one, as long as no other is used), and that of the global domain. Everything else,
//! and the giving back at thread exit, is in `MEMBERSHIPS`, whose destructor runs in no particular
//! order with those of others: after it nothing is at hand. A guard claims a record then, which is
//! given back with the last section in it; guards inside of it share the record.
//!
//! A record is put at hand only by a thread that has seen that the light half of the barrier pair is
//! free, so that entering a section there need not ask again. Where the system gives no help, nothing
//! is ever at hand.

use std::cell::{Cell, RefCell};
use std::ptr::{self, NonNull};

use corewise_atomic::barrier;
use corewise_atomic::sync::Arc;
use corewise_atomic::thread;

use crate::domain::Shared;
use crate::reader::{Owner, Reader};

corewise_atomic::thread_local! {
    static GLOBAL: Cell<*const Reader> = const { Cell::new(ptr::null()) };
    /// The domain's number, which is never 0, and the record.
    static RECENT: Cell<(u64, *const Reader)> = const { Cell::new((0, ptr::null())) };
    static MEMBERSHIPS: Memberships = const { Memberships(RefCell::new(Vec::new())) };
}

struct Membership {
    shared: Arc<Shared>,
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
pub(crate) fn at_hand(shared: &Shared) -> Option<NonNull<Reader>> {
    let (id, recent) = RECENT.try_with(Cell::get).unwrap_or((0, ptr::null()));
    if id == shared.id {
        // SAFETY: numbers of domains are not 0, so a record was put there.
        return Some(unsafe { NonNull::new_unchecked(recent.cast_mut()) });
    }
    if shared.is_global {
        return global();
    }
    None
}

/// The calling thread's record in a domain, claimed now if need be.
///
/// After the thread-locals are gone it is a record for one section, and those inside of it.
#[cold]
#[inline(never)]
pub(crate) fn join(shared: &Arc<Shared>) -> *const Reader {
    join_for_good(shared).unwrap_or_else(|| {
        if let Some(reader) = shared.entered_reader_of(thread::current().id()) {
            return reader;
        }
        let reader = claim(shared);
        // SAFETY: as in `Membership::reader`; the caller's guard keeps the domain.
        unsafe { &*reader }.for_one_section();
        reader
    })
}

/// The calling thread's record in a domain, claimed now if need be; `None` after the thread-locals
/// are gone.
#[inline]
pub(crate) fn record(shared: &Arc<Shared>) -> Option<*const Reader> {
    match at_hand(shared) {
        Some(reader) => Some(reader.as_ptr()),
        None => join_for_good(shared),
    }
}

#[cold]
#[inline(never)]
fn join_for_good(shared: &Arc<Shared>) -> Option<*const Reader> {
    let kept = MEMBERSHIPS.try_with(|memberships| memberships.find_or_claim(shared));
    let reader = kept.ok()?;
    remember(shared, reader);
    Some(reader)
}

/// Whether the calling thread's memberships were dropped already: it ends.
pub(crate) fn are_gone() -> bool {
    MEMBERSHIPS.try_with(|_| ()).is_err()
}

/// The record that the calling thread has, if it has one.
pub(crate) fn find(shared: &Shared) -> Option<*const Reader> {
    MEMBERSHIPS
        .try_with(|memberships| memberships.find(shared))
        .unwrap_or(None)
}

fn remember(shared: &Shared, reader: *const Reader) {
    if !barrier::prepare() {
        return;
    }
    // The checkers may have dropped these already; then there is nothing to remember.
    if shared.is_global {
        let _ = GLOBAL.try_with(|global| global.set(reader));
    }
    let _ = RECENT.try_with(|recent| recent.set((shared.id, reader)));
}

fn claim(shared: &Arc<Shared>) -> *const Reader {
    let reader = shared.registry.claim(shared);
    *reader.owner.lock() = Owner::current();
    reader
}

impl Memberships {
    fn find(&self, shared: &Shared) -> Option<*const Reader> {
        let memberships = self.0.borrow();
        let found = memberships
            .iter()
            .find(|membership| membership.shared.id == shared.id);
        found.map(|membership| membership.reader)
    }

    fn find_or_claim(&self, shared: &Arc<Shared>) -> *const Reader {
        if let Some(reader) = self.find(shared) {
            return reader;
        }
        let forgotten = self.take_abandoned();
        let reader = claim(shared);
        self.0.borrow_mut().push(Membership {
            shared: Arc::clone(shared),
            reader,
        });
        // A domain that is freed may run destructors, so it is dropped last.
        drop(forgotten);
        reader
    }

    /// The memberships of domains that nobody else has any more.
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
            if reader.thread_ends() {
                membership.shared.give_back(reader);
            }
        }
    }
}
