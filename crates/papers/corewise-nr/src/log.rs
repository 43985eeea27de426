//! The shared log: a circular buffer of writes that every replica executes in order (\[NR\] §3.4).
//!
//! ```text
//!  tail       index of the next free entry << 6 | log2 of the capacity   ─┐ a padded line each
//!  min        least index that some replica has not executed yet         ─┘
//!  rings      [pointer; 64], by log2 of the capacity
//!
//!  Ring       2^k entries; the entry with index i is at i mod 2^k
//!  Entry      │ filled: u64 │ operation │       aligned to a line; operations of 48 bytes fit one
//!             i << 1 | GROW; 0: never filled
//! ```
//!
//! The paper's alternating bit is bit k of the index; the other bits let assertions find lost
//! entries. Indexes begin at 1, and all tails are one past the last entry. The paper's
//! `completedTail` is not needed: `replica.rs` says why.
//!
//! The log grows by a GROW entry in the old ring: entries after it are in the next ring, of twice
//! the size. One entry of each ring is kept free for it. A ring is freed when every replica has
//! passed its GROW entry.
//!
//! # Guarantees
//!
//! 1. *Order.* What the filler did happens before what a thread does that found the entry filled.
//! 2. *Reuse.* An entry is overwritten only after every live replica has executed it.
//! 3. *No wait between reserving and filling*, and no code of users: a thread that waits for an
//!    entry waits for a few instructions of another, unless that was preempted.
//! 4. *Progress.* [`Log::try_reserve`] is lock-free.

use std::ops::Range;

use corewise_atomic::cell::DataCell;
use corewise_atomic::hint::{prefetch, prefetch_for_write};
use corewise_atomic::lock::Mutex;
use corewise_atomic::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use corewise_atomic::sync::atomic::{AtomicPtr, AtomicU64};
use corewise_atomic::{CachePadded, Slots, mutant, ordering};

use crate::discard::discard;

/// The index of the first entry.
pub(crate) const FIRST: u64 = 1;

/// Bits of the tail that hold the log2 of the capacity.
const LOG2_BITS: u32 = 6;

const GROW: u64 = 1;

/// In models: in place of the index of an entry whose ring is freed.
const FREED: u64 = u64::MAX;

/// The end of the log and the ring that it is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tail {
    pub(crate) index: u64,
    pub(crate) log2: u32,
}

impl Tail {
    fn pack(self) -> u64 {
        self.index << LOG2_BITS | u64::from(self.log2)
    }

    fn unpack(word: u64) -> Self {
        Self {
            index: word >> LOG2_BITS,
            log2: (word & ((1 << LOG2_BITS) - 1)) as u32,
        }
    }

    pub(crate) fn capacity(self) -> u64 {
        1 << self.log2
    }
}

#[repr(align(64))]
struct Entry<W> {
    filled: AtomicU64,
    operation: DataCell<Option<W>>,
}

// Guarantee of the layout above.
#[cfg(not(any(corewise_loom, corewise_shuttle)))]
const _: () = {
    assert!(size_of::<Entry<[u64; 6]>>() == 64);
    assert!(align_of::<Entry<u8>>() == 64);
};

/// What became of an attempt to reserve entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reserved {
    /// The caller has them, from this index.
    From(u64),
    /// The tail was another one.
    Lost,
    /// The log is full.
    Full,
}

/// Entries of one capacity.
pub(crate) struct Ring<W> {
    entries: Slots<Entry<W>>,
    /// The index of its GROW entry, 0 before there is one.
    grown_at: AtomicU64,
}

/// What is at an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Content {
    /// Nothing yet, or the entry of the lap before.
    Empty,
    /// An operation.
    Write,
    /// The next entry is in the next ring.
    Grow,
}

impl Content {
    /// What is in the entry of an index, by its word.
    #[inline]
    pub(crate) fn load(filled: &AtomicU64, index: u64) -> Self {
        // Acquire: pairs with the Release in `fill` and `grow`: guarantee 1.
        let filled = filled.load(Acquire);
        if filled >> 1 != index {
            debug_assert!(filled >> 1 < index, "an entry is lost");
            Self::Empty
        } else if filled & GROW == 0 {
            Self::Write
        } else {
            Self::Grow
        }
    }
}

impl<W> Drop for Ring<W> {
    fn drop(&mut self) {
        if !std::mem::needs_drop::<W>() {
            return;
        }
        // One by one: of two panics of an array's elements, the second would end the process.
        for entry in self.entries.iter() {
            // SAFETY: no other thread has the ring.
            let operation = entry.operation.with_mut(|place| unsafe { (*place).take() });
            discard(operation);
        }
    }
}

impl<W> Ring<W> {
    fn new(log2: u32) -> Self {
        Self {
            entries: Slots::from_fn(1 << log2, |_| Entry {
                filled: AtomicU64::new(0),
                operation: DataCell::new(None),
            }),
            grown_at: AtomicU64::new(0),
        }
    }

    #[inline]
    fn entry(&self, index: u64) -> &Entry<W> {
        &self.entries[index as usize & (self.entries.len() - 1)]
    }

    /// The word that says whether the entry is filled: see [`Content::load`].
    #[inline]
    pub(crate) fn filled(&self, index: u64) -> &AtomicU64 {
        &self.entry(index).filled
    }

    #[inline]
    pub(crate) fn content(&self, index: u64) -> Content {
        Content::load(self.filled(index), index)
    }

    /// Puts an operation into an entry, and returns the one of the lap before.
    ///
    /// # Safety
    ///
    /// 1. The caller has reserved the index in this ring and not filled it.
    #[inline]
    pub(crate) unsafe fn fill(&self, index: u64, operation: W) -> Option<W> {
        let entry = self.entry(index);
        let place = &entry.operation;
        // SAFETY: by 1 no other thread writes, and `try_reserve` has found that all replicas have
        // executed what is there.
        let old = place.with_mut(|place| unsafe { (*place).replace(operation) });
        // Release: pairs with the Acquire in `content`: guarantee 1.
        let release = ordering!(Release, "log_relaxed_filled");
        entry.filled.store(index << 1, release);
        old
    }

    /// Calls `execute` with the operation at an index.
    ///
    /// # Safety
    ///
    /// 1. [`Ring::content`] has found a write there.
    /// 2. The caller holds the combiner's lock of a live replica that has not executed it yet.
    #[inline]
    pub(crate) unsafe fn with<R>(&self, index: u64, execute: impl FnOnce(&W) -> R) -> R {
        let place = &self.entry(index).operation;
        place.with(|place| {
            // SAFETY: the write is complete by 1, and by 2 it is not overwritten.
            let operation = unsafe { &*place };
            execute(operation.as_ref().expect("a filled entry"))
        })
    }

    /// The end of the run of writes at the start of a range, and what ends it.
    #[inline]
    pub(crate) fn filled_run(&self, range: Range<u64>) -> (u64, Content) {
        for index in range.clone() {
            let content = self.content(index);
            if content != Content::Write {
                return (index, content);
            }
        }
        (range.end, Content::Write)
    }

    /// Asks for the cache line of an entry that is to be executed.
    #[inline]
    pub(crate) fn prefetch(&self, index: u64) {
        prefetch(self.entry(index));
    }

    /// Asks for the cache line of an entry that is to be filled.
    #[inline]
    pub(crate) fn prefetch_for_filling(&self, index: u64) {
        prefetch_for_write(self.entry(index));
    }
}

/// See the [module](self).
pub(crate) struct Log<W> {
    tail: CachePadded<AtomicU64>,
    min: CachePadded<AtomicU64>,
    rings: Slots<AtomicPtr<Ring<W>>>,
    max_log2: u32,
    growing: Mutex<()>,
}

impl<W> Log<W> {
    /// Makes a log of `2^log2` entries that may grow to `2^max_log2`.
    pub(crate) fn new(log2: u32, max_log2: u32) -> Self {
        let tail = Tail { index: FIRST, log2 };
        let log = Self {
            tail: CachePadded::new(AtomicU64::new(tail.pack())),
            min: CachePadded::new(AtomicU64::new(FIRST)),
            rings: Slots::from_fn(max_log2 as usize + 1, |_| {
                AtomicPtr::new(std::ptr::null_mut())
            }),
            max_log2: max_log2.max(log2),
            growing: Mutex::new(()),
        };
        log.install(log2);
        log
    }

    fn install(&self, log2: u32) {
        let ring = Box::into_raw(Box::new(Ring::new(log2)));
        // Release: pairs with the Acquire in `ring`.
        self.rings[log2 as usize].store(ring, Release);
    }

    /// The ring of a capacity.
    ///
    /// # Safety
    ///
    /// While the reference is used:
    ///
    /// 1. The caller holds the combiner's lock of a live replica.
    /// 2. That replica is in the ring, or the caller has reserved an entry in it that the replica
    ///    has not passed.
    #[inline]
    pub(crate) unsafe fn ring(&self, log2: u32) -> &Ring<W> {
        // Acquire: pairs with the Release in `install`.
        let ring = self.rings[log2 as usize].load(Acquire);
        assert!(!ring.is_null(), "a ring is freed too early");
        // SAFETY: not null, and `take_passed_ring` frees it only after every live replica has
        // passed it, which excludes the one of 2.
        unsafe { &*ring }
    }

    #[inline]
    pub(crate) fn tail(&self) -> Tail {
        // Acquire: pairs with the exchange in `try_reserve`, so that rings are seen.
        Tail::unpack(self.tail.load(Acquire))
    }

    #[inline]
    pub(crate) fn min(&self) -> u64 {
        // Acquire: pairs with the Release in `set_min`: guarantee 2.
        self.min.load(ordering!(Acquire, "log_relaxed_min"))
    }

    /// Reserves `count` entries if it can.
    ///
    /// `seen` is a former tail, or a guess: the exchange is tried with it, because loading the
    /// present one costs as much as a failed exchange. Afterwards it is the tail after the reserved
    /// entries, whose `log2` names their ring, or the present one.
    #[inline]
    pub(crate) fn try_reserve(&self, seen: &mut Tail, count: u64) -> Reserved {
        // One entry is kept for GROW.
        if !self.has_room(*seen, count + 1) {
            let now = self.tail();
            let is_full = now == *seen;
            *seen = now;
            return if is_full {
                Reserved::Full
            } else {
                Reserved::Lost
            };
        }
        match self.exchange(*seen, seen.index + count, seen.log2) {
            Ok(()) => {
                let start = seen.index;
                seen.index += count;
                Reserved::From(start)
            }
            Err(now) => {
                *seen = now;
                Reserved::Lost
            }
        }
    }

    /// Whether `count` entries at the tail are free.
    pub(crate) fn has_room(&self, tail: Tail, count: u64) -> bool {
        mutant!("log_ignores_min") || tail.index + count <= self.min() + tail.capacity()
    }

    #[inline]
    fn exchange(&self, old: Tail, index: u64, log2: u32) -> Result<(), Tail> {
        let new = Tail { index, log2 };
        // AcqRel: Acquire pairs with the Release of the exchange that brought a new ring; Release
        // passes it on, and pairs with `tail`.
        self.tail
            .compare_exchange(old.pack(), new.pack(), AcqRel, Acquire)
            .map(drop)
            .map_err(Tail::unpack)
    }

    /// Doubles the capacity. False if it is as large as it may become, or if another thread is
    /// doubling it.
    pub(crate) fn grow(&self) -> bool {
        let Some(_growing) = self.growing.try_lock() else {
            return false;
        };
        let mut old = self.tail();
        let log2 = old.log2 + 1;
        if log2 > self.max_log2 {
            return false;
        }
        let is_late = mutant!("log_tail_before_ring");
        if !is_late {
            self.install(log2);
        }
        loop {
            // The entry that `try_reserve` keeps.
            debug_assert!(mutant!("log_ignores_min") || self.has_room(old, 1));
            match self.exchange(old, old.index + 1, log2) {
                Ok(()) => break,
                Err(now) => old = now,
            }
        }
        if is_late {
            self.install(log2);
        }
        // Acquire: pairs with the Release in `install`.
        let ring = self.rings[old.log2 as usize].load(Acquire);
        // SAFETY: no replica passes the GROW entry, which is reserved, before it is filled below;
        // and the ring is not freed before `grown_at` is set.
        let ring = unsafe { &*ring };
        let filled = old.index << 1 | GROW;
        // Release: pairs with the Acquire in `content`.
        ring.entry(old.index).filled.store(filled, Release);
        // Release: pairs with the Acquire in `take_passed_ring`: our last access to the ring.
        ring.grown_at.store(old.index, Release);
        true
    }

    /// Publishes that every live replica has executed all entries below `min`.
    ///
    /// # Safety
    ///
    /// 1. That is so, and the caller has acquired what those replicas did until then.
    /// 2. Calls are ordered, with values that never decrease.
    pub(crate) unsafe fn set_min(&self, min: u64) {
        // Release: pairs with the Acquire in `min`: guarantee 2.
        self.min.store(min, Release);
    }

    /// Takes the ring of a capacity out if every live replica has passed it.
    ///
    /// # Safety
    ///
    /// 1. As for [`Log::set_min`], which was called before.
    pub(crate) unsafe fn take_passed_ring(&self, log2: u32) -> Option<Ring<W>> {
        let place = self.rings.get(log2 as usize)?;
        // Acquire: pairs with the Release in `install`.
        let ring = place.load(Acquire);
        // SAFETY: a ring is only freed by this function, whose calls are ordered (1).
        let grown_at = unsafe { ring.as_ref() }?.grown_at.load(Acquire); // pairs with `grow`
        let is_passed = grown_at < self.min() || mutant!("log_frees_early");
        if grown_at == 0 || !is_passed {
            return None;
        }
        if cfg!(corewise_loom) {
            // SAFETY: not freed yet. loom does not see that memory is freed, but it sees these.
            let entries = unsafe { &(*ring).entries };
            // Relaxed: nothing is published.
            entries
                .iter()
                .for_each(|entry| entry.filled.store(FREED, Relaxed));
        }
        // Relaxed: no thread looks for the ring any more.
        place.store(std::ptr::null_mut(), Relaxed);
        // SAFETY: from `install`, taken out once. Every live replica has passed it, so no caller of
        // `ring` uses it, and `grow` is done with it.
        Some(*unsafe { Box::from_raw(ring) })
    }
}

impl<W> Drop for Log<W> {
    fn drop(&mut self) {
        for ring in self.rings.iter() {
            // Relaxed: the log is not shared.
            let ring = ring.load(Relaxed);
            if !ring.is_null() {
                // SAFETY: from `install`, and not taken out.
                drop(unsafe { Box::from_raw(ring) });
            }
        }
    }
}

/// The log alone: loom orders all threads that pass a SeqCst access or fence, and those of the
/// readers-writer lock would hide an ordering that is missing here.
#[cfg(test)]
mod models {
    use super::*;
    use corewise_atomic::sync::Arc;
    use corewise_atomic::{hint, model, thread};

    fn append(log: &Log<Box<u64>>, value: u64) {
        let mut seen = log.tail();
        let start = loop {
            match log.try_reserve(&mut seen, 1) {
                Reserved::From(start) => break start,
                _ => hint::spin_loop(),
            }
        };
        // SAFETY: the log does not grow, so the ring is not freed.
        let ring = unsafe { log.ring(seen.log2) };
        // SAFETY: `try_reserve` has reserved the index, which is filled here only (1).
        drop(unsafe { ring.fill(start, Box::new(value)) });
    }

    /// Executes the entry at an index.
    fn execute(log: &Log<Box<u64>>, index: u64) -> u64 {
        // SAFETY: the log does not grow, so the ring is not freed.
        let ring = unsafe { log.ring(2) };
        while ring.content(index) == Content::Empty {
            hint::spin_loop();
        }
        // SAFETY: filled, and `min` is not above it.
        unsafe { ring.with(index, |value| **value) }
    }

    #[test]
    fn an_entry_is_read_as_it_was_filled() {
        model(|| {
            let log = Arc::new(Log::new(2, 2));
            let other = log.clone();
            let appending = thread::spawn(move || append(&other, 7));
            assert_eq!(execute(&log, FIRST), 7);
            appending.join().unwrap();
        });
    }

    #[test]
    fn an_entry_is_used_again_when_it_was_executed() {
        model(|| {
            let log = Arc::new(Log::new(2, 2));
            (1..=3).for_each(|value| append(&log, value));
            let other = log.clone();
            let appending = thread::spawn(move || {
                append(&other, 4);
                append(&other, 5); // in the place of the first
            });
            assert_eq!(execute(&log, FIRST), 1);
            assert_eq!(execute(&log, FIRST + 1), 2);
            // SAFETY: the only replica has executed the two entries; calls are ordered.
            unsafe { log.set_min(FIRST + 2) };
            appending.join().unwrap();
            assert_eq!(execute(&log, FIRST + 4), 5);
        });
    }
}
