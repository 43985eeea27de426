//! The records of a domain: a list that only grows, whose records pass from thread to thread.
//!
//! 1. *Progress.* Claiming is lock-free: threads that wait for a grace period cannot delay a new
//!    thread's first section. The number of records is the largest number of threads that had one
//!    at the same time.
//! 2. *Visibility.* A record is in the list before its first section begins, so 3 of
//!    [`reader`](crate::reader) holds for the head of the list too: if a grace period misses the
//!    record, the record's section sees that grace period's unlinking.

use corewise_atomic::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use corewise_atomic::sync::atomic::{AtomicPtr, AtomicUsize};
use corewise_atomic::{mutant, ordering};

use crate::domain::DomainState;
use crate::reader::Reader;

pub(crate) struct Registry {
    head: AtomicPtr<Reader>,
    made: AtomicUsize,
    /// The record that was returned by `next_in_turn` last.
    in_turn: AtomicPtr<Reader>,
}

impl Registry {
    pub(crate) fn new() -> Self {
        Self {
            head: AtomicPtr::new(std::ptr::null_mut()),
            made: AtomicUsize::new(0),
            in_turn: AtomicPtr::new(std::ptr::null_mut()),
        }
    }

    /// All records, claimed or not.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Reader> {
        // Acquire: pairs with the Release in `push`, so the record's fields are seen.
        let mut at = self.head.load(ordering!(Acquire, "relaxed_first"));
        std::iter::from_fn(move || {
            // SAFETY: records live as long as the registry.
            let reader = unsafe { at.as_ref() }?;
            // Relaxed: written before the record was published.
            at = reader.next.load(Relaxed);
            Some(reader)
        })
    }

    /// Returns one record after the other, and the first again after the last.
    pub(crate) fn next_in_turn(&self) -> Option<&Reader> {
        // Acquire: pairs with the Release below, so that the record's fields are seen.
        let last = self.in_turn.load(Acquire);
        // SAFETY: records live as long as the registry.
        let last = unsafe { last.as_ref() };
        // Relaxed: written before the record was published.
        let next = last.map_or(std::ptr::null_mut(), |last| last.next.load(Relaxed));
        // SAFETY: records live as long as the registry.
        let next = unsafe { next.as_ref() }.or_else(|| self.iter().next())?;
        // Release: pairs with the Acquire above.
        self.in_turn
            .store(std::ptr::from_ref(next).cast_mut(), Release);
        Some(next)
    }

    /// Claims a record for the calling thread, which owns it from now on.
    ///
    /// # Safety
    ///
    /// 1. This is the registry of `shared`, which is not moved.
    pub(crate) unsafe fn claim(&self, shared: &DomainState) -> &Reader {
        let found = self.iter().find(|reader| try_claim(reader));
        // SAFETY: this is the registry of `shared`, which stays where it is, by 1.
        found.unwrap_or_else(|| unsafe { self.push(shared) })
    }

    /// # Safety
    ///
    /// 1. As for [`Registry::claim`].
    unsafe fn push(&self, shared: &DomainState) -> &Reader {
        // Relaxed: a number that publishes nothing.
        let index = self.made.fetch_add(1, Relaxed);
        // SAFETY: by 1 the domain stays where it is, and it owns this registry, which frees the
        // record.
        let reader = Box::into_raw(Box::new(unsafe { Reader::new(index, shared) }));
        // SAFETY: made above, freed with the registry.
        let reader_ref = unsafe { &*reader };
        // Relaxed: the exchange below checks the value.
        let mut head = self.head.load(Relaxed);
        loop {
            // Relaxed: not published yet.
            reader_ref.next.store(head, Relaxed);
            // AcqRel: Release pairs with the Acquire in `iter`, Acquire passes on what other
            // pushes released. Relaxed on failure: nothing is read through it.
            let success = ordering!(AcqRel, "relaxed_push");
            let linked = self
                .head
                .compare_exchange_weak(head, reader, success, Relaxed);
            match linked {
                Ok(_) => return reader_ref,
                Err(now) => head = now,
            }
        }
    }

    /// Gives back a record whose thread is in no section.
    ///
    /// # Safety
    ///
    /// 1. The calling thread owns the record, and no longer uses it.
    /// 2. It is in no section of the record and has none paused.
    pub(crate) unsafe fn release(&self, reader: &Reader) {
        // Release: pairs with the Acquire in `try_claim`, so that the next owner sees the word (and
        // all else that was indexed by the record) as the last owner left it.
        let release = ordering!(Release, "relaxed_release");
        reader.claimed.store(false, release);
    }

    /// The number of records made so far.
    pub(crate) fn len(&self) -> usize {
        // Relaxed: a number that publishes nothing.
        self.made.load(Relaxed)
    }
}

fn try_claim(reader: &Reader) -> bool {
    if mutant!("claim_without_exchange") {
        // Acquire as below; Relaxed, because the mistake is that two threads may store.
        return !reader.claimed.load(Acquire) && {
            reader.claimed.store(true, Relaxed);
            true
        };
    }
    // Relaxed: the exchange decides. Acquire: pairs with the Release in `release`.
    let acquire = ordering!(Acquire, "relaxed_claim");
    !reader.claimed.load(Relaxed)
        && reader
            .claimed
            .compare_exchange(false, true, acquire, Relaxed)
            .is_ok()
}

impl Drop for Registry {
    fn drop(&mut self) {
        // Relaxed: the registry is not shared.
        let mut at = self.head.load(Relaxed);
        while !at.is_null() {
            // SAFETY: made in `push`, and in the list once.
            let reader = unsafe { Box::from_raw(at) };
            at = reader.next.load(Relaxed);
        }
    }
}
