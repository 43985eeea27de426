//! The distributed readers-writer lock of \[NR\] §3.8: a flag for each reader, one word for
//! writers.
//!
//! ```text
//!  ┌────────┬──────┐   ┌────────┐ ┌────────┐     ┌────────┐
//!  │ writer │ high │   │ flag 0 │ │ flag 1 │  …  │ flag n │   a padded line each
//!  └────────┴──────┘   └────────┘ └────────┘     └────────┘
//!  0 or 1    flags that were ever used        readers that hold it
//! ```
//!
//! A reader sets its flag and then checks the writer word. A writer sets the writer word and then
//! waits until each flag is clear, without acquiring it. So both write one line to enter. A reader
//! that finds a writer clears its flag and waits.
//!
//! Deviations from the paper: writers look at the flags below `high` only; a flag counts, so that
//! several readers can share one; a reader sets its flag before its first look at the writer word,
//! since the second look is needed in any case.
//!
//! # Guarantees
//!
//! 1. *Exclusion.* A writer excludes readers and writers.
//! 2. *Order.* Everything in a section happens before every later section that it excludes.
//! 3. *Progress.* Blocking. Readers do not disturb each other. Readers may starve if writers follow
//!    each other without a pause.
//!
//! # Why no section is missed
//!
//! The reader's flag and the writer's word are written and then read crosswise, all SeqCst. In the
//! single order of these accesses either the flag is set before the writer looks at it, or the
//! reader looks at the word after it is set. The same holds for `high`, which a reader raises
//! before it sets a flag above it. On Arm the accesses compile to instructions that keep a store
//! before a later load (`SWPAL` or `LDADDAL`, then `LDAR`); acquire and release alone would not.

use std::time::Duration;

use corewise_atomic::sync::atomic::AtomicU32;
use corewise_atomic::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use corewise_atomic::{Backoff, CachePadded, Sleeps, Slots, mutant};

/// Waiting for a section of a user: it may be long.
const SLEEPS: Sleeps = Sleeps {
    after_rounds: 32,
    shortest: Duration::from_micros(50),
    longest: Duration::from_millis(1),
};

pub(crate) struct DistributedLock {
    writer: AtomicU32,
    high: AtomicU32,
    flags: Slots<CachePadded<AtomicU32>>,
}

/// A reader's flag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Flag {
    pub(crate) index: usize,
    /// Whether other threads may use it at the same time.
    pub(crate) is_shared: bool,
}

/// The lock is held for reading until this is dropped.
pub(crate) struct ReadGuard<'a> {
    flag: &'a AtomicU32,
    is_shared: bool,
}

/// The lock is held for writing until this is dropped.
pub(crate) struct WriteGuard<'a>(&'a AtomicU32);

/// loom treats SeqCst accesses as AcqRel, and needs a fence in their place.
#[inline(always)]
fn store_load_order() {
    #[cfg(corewise_loom)]
    if !mutant!("lock_no_fence") {
        // SeqCst: pairs with the other calls of this function; see the module's header.
        corewise_atomic::sync::atomic::fence(SeqCst);
    }
}

impl DistributedLock {
    pub(crate) fn new(flags: usize) -> Self {
        Self {
            writer: AtomicU32::new(0),
            high: AtomicU32::new(0),
            flags: Slots::from_fn(flags, |_| CachePadded::new(AtomicU32::new(0))),
        }
    }

    /// Waits until no writer holds the lock.
    ///
    /// At most one thread uses a flag at a time unless `is_shared`, and no thread uses one twice.
    #[inline]
    pub(crate) fn read(&self, flag: Flag) -> ReadGuard<'_> {
        self.cover(flag);
        loop {
            let guard = self.set(flag);
            store_load_order();
            // SeqCst: pairs with the exchange in `write`; see the module's header. It acquires what
            // the last writer released.
            if mutant!("lock_no_recheck") || self.writer.load(SeqCst) == 0 {
                return guard;
            }
            drop(guard);
            self.wait_for_writer();
        }
    }

    /// Acquires the lock for reading while no writer can hold it: the caller excludes writers by
    /// other means, and what ends that exclusion is a Release that the next writer acquires.
    #[inline]
    pub(crate) fn read_while_excluding_writers(&self, flag: Flag) -> ReadGuard<'_> {
        self.cover(flag);
        self.set(flag)
    }

    /// Makes writers look at the flag.
    #[inline]
    fn cover(&self, flag: Flag) {
        let needed = flag.index as u32 + 1;
        // Acquire: pairs with the exchange below on another thread, which is thus before our flag
        // in the order of the SeqCst accesses. Not in loom: see `combining::LOOK_IS_HIDDEN`.
        if cfg!(corewise_loom) || self.high.load(Acquire) < needed {
            // SeqCst: pairs with the load in `write`; see the module's header.
            self.high.fetch_max(needed, SeqCst);
        }
    }

    #[inline]
    fn set(&self, flag: Flag) -> ReadGuard<'_> {
        let word = &*self.flags[flag.index];
        // SeqCst: pairs with the load in `write`; see the module's header.
        word.fetch_add(1, SeqCst);
        ReadGuard {
            flag: word,
            is_shared: flag.is_shared,
        }
    }

    #[cold]
    #[inline(never)]
    fn wait_for_writer(&self) {
        let mut backoff = Backoff::new();
        // Relaxed: a hint that the next attempt may succeed.
        while self.writer.load(Relaxed) != 0 {
            backoff.snooze_or_sleep(&SLEEPS);
        }
    }

    /// Waits until no thread holds the lock.
    #[inline]
    pub(crate) fn write(&self) -> WriteGuard<'_> {
        let guard = self.try_exclude_writers();
        let guard = guard.unwrap_or_else(|| self.wait_to_exclude_writers());
        for flag in self.flags_in_use() {
            // SeqCst: pairs with the addition in `set`; see the module's header. It acquires what
            // the readers released.
            if flag.load(SeqCst) != 0 {
                wait_for_readers(flag);
            }
        }
        guard
    }

    #[cold]
    #[inline(never)]
    fn wait_to_exclude_writers(&self) -> WriteGuard<'_> {
        let mut backoff = Backoff::new();
        loop {
            backoff.snooze_or_sleep(&SLEEPS);
            if let Some(guard) = self.try_exclude_writers() {
                return guard;
            }
        }
    }

    /// Acquires the lock for writing unless a thread holds it. Readers that come meanwhile may have
    /// to try again.
    pub(crate) fn try_write(&self) -> Option<WriteGuard<'_>> {
        let guard = self.try_exclude_writers()?;
        // SeqCst: as in `write`.
        let is_clear = |flag: &CachePadded<AtomicU32>| flag.load(SeqCst) == 0;
        self.flags_in_use().iter().all(is_clear).then_some(guard)
    }

    /// Sets the writer word if it is clear.
    #[inline]
    fn try_exclude_writers(&self) -> Option<WriteGuard<'_>> {
        // SeqCst: pairs with the load in `read`; see the module's header. It acquires what the last
        // writer released. Relaxed on failure: nothing is read then.
        let exchanged = self.writer.compare_exchange(0, 1, SeqCst, Relaxed);
        if exchanged.is_err() && !mutant!("lock_ignores_writers") {
            return None;
        }
        store_load_order();
        Some(WriteGuard(&self.writer))
    }

    #[inline]
    fn flags_in_use(&self) -> &[CachePadded<AtomicU32>] {
        // SeqCst: pairs with the exchange in `cover`; see the module's header.
        let high = self.high.load(SeqCst) as usize;
        let first = usize::from(mutant!("lock_skips_flag"));
        &self.flags[first.min(high)..high]
    }
}

#[cold]
#[inline(never)]
fn wait_for_readers(flag: &AtomicU32) {
    let mut backoff = Backoff::new();
    // SeqCst: as in `write`.
    while flag.load(SeqCst) != 0 {
        backoff.snooze_or_sleep(&SLEEPS);
    }
}

impl Drop for ReadGuard<'_> {
    #[inline]
    fn drop(&mut self) {
        // Release, both: pairs with the load of flags in `write`, so that the section is over
        // before the writer's begins. A store is enough for a flag that no other thread changes.
        if self.is_shared {
            self.flag.fetch_sub(1, Release);
        } else {
            self.flag.store(0, Release);
        }
    }
}

impl Drop for WriteGuard<'_> {
    #[inline]
    fn drop(&mut self) {
        // Release: pairs with the load in `read` and with the exchange in `write`.
        self.0.store(0, Release);
    }
}

#[cfg(test)]
mod models {
    use super::*;
    use corewise_atomic::cell::DataCell;
    use corewise_atomic::sync::Arc;
    use corewise_atomic::{model_bounded, thread};

    const OWN: [Flag; 2] = [flag(0, false), flag(1, false)];

    const fn flag(index: usize, is_shared: bool) -> Flag {
        Flag { index, is_shared }
    }

    /// Two words that only sections change together.
    struct Pair(DistributedLock, DataCell<[u32; 2]>);

    impl Pair {
        fn new() -> Arc<Self> {
            Arc::new(Self(DistributedLock::new(2), DataCell::new([0; 2])))
        }

        fn add(&self) {
            let _guard = self.0.write();
            // SAFETY: the lock is held for writing.
            self.1
                .with_mut(|pair| unsafe { *pair = (*pair).map(|word| word + 1) });
        }

        fn check(&self, flag: Flag) -> u32 {
            let _guard = self.0.read(flag);
            // SAFETY: the lock is held for reading.
            let [one, other] = unsafe { self.1.read() };
            assert_eq!(one, other);
            one
        }
    }

    #[test]
    fn a_writer_excludes_readers() {
        model_bounded(3, || {
            let pair = Pair::new();
            let other = pair.clone();
            let reader = thread::spawn(move || other.check(OWN[0]));
            pair.add();
            reader.join().unwrap();
            assert_eq!(pair.check(OWN[1]), 1);
        });
    }

    #[test]
    fn two_readers_share_a_flag() {
        model_bounded(1, || {
            let pair = Pair::new();
            let readers = [(); 2].map(|()| {
                let other = pair.clone();
                thread::spawn(move || other.check(flag(1, true)))
            });
            pair.add();
            let _ = readers.map(|reader| reader.join().unwrap());
            assert_eq!(pair.check(OWN[0]), 1);
        });
    }

    #[test]
    fn a_writer_that_tries_excludes_readers() {
        model_bounded(3, || {
            let pair = Pair::new();
            let other = pair.clone();
            let reader = thread::spawn(move || other.check(OWN[0]));
            let added = pair.0.try_write().map(|_guard| {
                // SAFETY: the lock is held for writing.
                pair.1.with_mut(|pair| unsafe { *pair = [1; 2] });
            });
            reader.join().unwrap();
            assert_eq!(pair.check(OWN[1]), u32::from(added.is_some()));
        });
    }

    #[test]
    fn writers_exclude_each_other() {
        model_bounded(3, || {
            let pair = Pair::new();
            let other = pair.clone();
            let writer = thread::spawn(move || other.add());
            pair.add();
            writer.join().unwrap();
            assert_eq!(pair.check(OWN[0]), 2);
        });
    }
}
