//! The records of a domain: a list that only grows, whose records pass from thread to thread.
//!
//! 1. *Progress.* Claiming is lock-free: nobody who waits for a grace period can keep a new thread
//!    from its first section. The list has as many records as there ever were threads at a time.
//! 2. *Seen in time.* A record is in the list before its first section begins, so 3 of
//!    [`reader`](crate::reader) holds for the head of the list too: a grace period that misses
//!    the record is seen by its section.

use corewise_atomic::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use corewise_atomic::sync::atomic::{AtomicPtr, AtomicUsize};
use corewise_atomic::{mutant, ordering};

use crate::domain::Shared;
use crate::reader::Reader;

pub(crate) struct Registry {
    head: AtomicPtr<Reader>,
    made: AtomicUsize,
}

impl Registry {
    pub(crate) fn new() -> Self {
        Self {
            head: AtomicPtr::new(std::ptr::null_mut()),
            made: AtomicUsize::new(0),
        }
    }

    /// All records, claimed or not.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Reader> {
        // SAFETY: it is ours.
        unsafe { self.iter_from(self.newest()) }
    }

    /// The record that was linked last; null if there is none.
    pub(crate) fn newest(&self) -> *mut Reader {
        // Acquire: pairs with the Release in `push`, so the record's fields are seen.
        self.head.load(ordering!(Acquire, "relaxed_first"))
    }

    /// A record, and those that were linked before it.
    ///
    /// # Safety
    ///
    /// 1. `newest` comes from [`Registry::newest`] of this registry.
    pub(crate) unsafe fn iter_from(&self, newest: *mut Reader) -> impl Iterator<Item = &Reader> {
        let mut at = newest;
        std::iter::from_fn(move || {
            // SAFETY: 1: records live as long as the registry.
            let reader = unsafe { at.as_ref() }?;
            // Relaxed: written before the record was published.
            at = reader.next.load(Relaxed);
            Some(reader)
        })
    }

    /// A record for the calling thread.
    pub(crate) fn claim(&self, shared: &Shared) -> &Reader {
        self.iter()
            .find(|reader| try_claim(reader))
            .unwrap_or_else(|| self.push(shared))
    }

    fn push(&self, shared: &Shared) -> &Reader {
        // Relaxed: a number that publishes nothing.
        let index = self.made.fetch_add(1, Relaxed);
        let reader = Box::into_raw(Box::new(Reader::new(index, shared)));
        // SAFETY: made above, freed with the registry.
        let reader_ref = unsafe { &*reader };
        // Relaxed: the exchange below brings the value that counts.
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

    /// Gives a record back, whose word is at rest.
    pub(crate) fn release(&self, reader: &Reader) {
        // Release: pairs with the Acquire in `try_claim`, so that the next owner sees the word
        // (and all else that was indexed by the record) as the last one left it.
        let release = ordering!(Release, "relaxed_release");
        reader.claimed.store(false, release);
    }

    /// In the child of a fork: forgets records that were linked after `newest`, whose threads are in
    /// the parent.
    ///
    /// # Safety
    ///
    /// 1. `newest` comes from [`Registry::newest`] of this registry.
    pub(crate) unsafe fn cut_to(&self, newest: *mut Reader) {
        // Relaxed: the process has one thread.
        self.head.store(newest, Relaxed);
    }

    /// Records made so far.
    pub(crate) fn len(&self) -> usize {
        // Relaxed: a number that publishes nothing.
        self.made.load(Relaxed)
    }
}

fn try_claim(reader: &Reader) -> bool {
    if mutant!("claim_without_exchange") {
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
        // Relaxed: nobody else has the registry any more.
        let mut at = self.head.load(Relaxed);
        while !at.is_null() {
            // SAFETY: made in `push`, and in the list once.
            let reader = unsafe { Box::from_raw(at) };
            at = reader.next.load(Relaxed);
        }
    }
}
