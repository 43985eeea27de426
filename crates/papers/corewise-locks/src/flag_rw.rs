//! The distributed readers-writer lock of \[NR\] §3.8 with a number of flags chosen at run time,
//! and the core that it shares with [`DistributedRw`](crate::DistributedRw).
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
//!    each other without a pause. Threads that wait spin, yield and then sleep up to a millisecond.
//! 4. *Cost.* A reader executes one read-modify-write and one store of its flag, a writer one
//!    read-modify-write and a load of each flag in use.
//!
//! # Why no section is missed
//!
//! The reader's flag and the writer's word are written and then read crosswise, all SeqCst. In the
//! single order of these accesses either the flag is set before the writer looks at it, or the
//! reader looks at the word after it is set. The same holds for `high`, which a reader raises
//! before it sets a flag above it. On Arm the accesses compile to instructions that keep a store
//! before a later load (`SWPAL` or `LDADDAL`, then `LDAR`); acquire and release alone would not. No
//! fence is needed beside them.

use std::fmt;
use std::time::Duration;

use corewise_atomic::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use corewise_atomic::sync::atomic::{AtomicU32, AtomicU64};
use corewise_atomic::{Backoff, CachePadded, Sleeps, mutant, ordering};

/// Waiting for a section of a user: it may be long.
const SLEEPS: Sleeps = Sleeps {
    after_rounds: 32,
    shortest: Duration::from_micros(50),
    longest: Duration::from_millis(1),
};

/// How many readers hold the lock by a flag.
pub(crate) type FlagWord = CachePadded<AtomicU64>;

/// The lock without guards, over any storage of flags.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct RawFlagRw<F> {
    writer: AtomicU32,
    high: AtomicU32,
    flags: F,
}

/// The flag by which a reader holds a [`FlagRw`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReaderFlag {
    index: usize,
    is_shared: bool,
}

impl ReaderFlag {
    /// A flag that any number of readers use at the same time. All its readers write its line.
    #[inline]
    #[must_use]
    pub const fn shared(index: usize) -> Self {
        Self {
            index,
            is_shared: true,
        }
    }

    /// A flag that one reader at a time uses: clearing it costs only a store.
    ///
    /// # Safety
    ///
    /// In each lock that it is used with:
    ///
    /// 1. At most one guard at a time has the flag of this index, made by `own` or by `shared`.
    /// 2. The drop of a guard with this flag happens before the next one is made.
    #[inline]
    #[must_use]
    pub const unsafe fn own(index: usize) -> Self {
        Self {
            index,
            is_shared: false,
        }
    }
}

/// loom treats SeqCst accesses as AcqRel, and needs a fence in their place.
#[inline(always)]
fn store_load_order() {
    #[cfg(corewise_loom)]
    if !mutant!("flag_rw_no_fence") {
        // SeqCst: pairs with the other calls of this function; see the module's header.
        corewise_atomic::sync::atomic::fence(SeqCst);
    }
}

impl<F> RawFlagRw<F> {
    /// A free lock over flags that are 0.
    #[cfg(not(any(corewise_loom, corewise_shuttle)))]
    pub(crate) const fn with_flags(flags: F) -> Self {
        Self {
            writer: AtomicU32::new(0),
            high: AtomicU32::new(0),
            flags,
        }
    }

    /// Likewise; the atomics of loom and shuttle have no `const` constructor.
    #[cfg(any(corewise_loom, corewise_shuttle))]
    pub(crate) fn with_flags(flags: F) -> Self {
        Self {
            writer: AtomicU32::new(0),
            high: AtomicU32::new(0),
            flags,
        }
    }

    /// Whether a writer is there. A hint.
    #[inline]
    pub(crate) fn is_writing(&self) -> bool {
        // Relaxed: a hint.
        self.writer.load(Relaxed) != 0
    }

    /// Ends a section of the writer.
    #[inline]
    pub(crate) fn clear_writer(&self) {
        // Release: pairs with the load in `look` and with the exchange in `try_exclude_writers`.
        let release = ordering!(Release, "flag_rw_relaxed_unlock");
        self.writer.store(0, release);
    }

    /// The second look of a reader, after it has set its flag.
    #[inline(always)]
    fn look(&self) -> bool {
        store_load_order();
        // SeqCst: pairs with the exchange in `try_exclude_writers`; see the module's header. It
        // acquires what the last writer released.
        self.writer.load(SeqCst) == 0 || mutant!("flag_rw_no_second_look")
    }

    /// Sets the writer word if it is clear.
    #[inline]
    fn try_exclude_writers(&self) -> bool {
        // SeqCst: pairs with the load in `look`; see the module's header. It acquires what the last
        // writer released. Relaxed on failure: nothing is read then.
        let exchanged = self.writer.compare_exchange(0, 1, SeqCst, Relaxed);
        store_load_order();
        exchanged.is_ok() || mutant!("flag_rw_ignores_writers")
    }

    #[cold]
    #[inline(never)]
    fn wait_to_exclude_writers(&self) {
        let mut backoff = Backoff::new();
        loop {
            backoff.snooze_or_sleep(&SLEEPS);
            if self.try_exclude_writers() {
                return;
            }
        }
    }

    #[cold]
    #[inline(never)]
    pub(crate) fn wait_for_writer(&self) {
        let mut backoff = Backoff::new();
        while self.is_writing() {
            backoff.snooze_or_sleep(&SLEEPS);
        }
    }
}

impl<F: AsRef<[FlagWord]>> RawFlagRw<F> {
    #[inline(always)]
    pub(crate) fn flag(&self, index: usize) -> &AtomicU64 {
        &self.flags.as_ref()[index]
    }

    /// Makes writers look at a flag.
    #[inline]
    fn cover(&self, index: usize) {
        let needed = index as u32 + 1;
        // Acquire: pairs with the exchange below on another thread, which is thus before our flag
        // in the order of the SeqCst accesses. Not in loom, which remembers only the last access,
        // so that this look would hide that the exchange conflicts with the load of a writer.
        if cfg!(corewise_loom) || self.high.load(Acquire) < needed {
            // SeqCst: pairs with the load in `flags_in_use`; see the module's header.
            self.high.fetch_max(needed, SeqCst);
        }
    }

    /// Sets a flag, without a look at the writer word.
    #[inline]
    pub(crate) fn set(&self, flag: ReaderFlag) -> &AtomicU64 {
        let word = self.flag(flag.index); // panics before `cover` if there is no such flag
        self.cover(flag.index);
        // SeqCst, both: pairs with the loads of flags by writers; see the module's header.
        if flag.is_shared {
            word.fetch_add(1, SeqCst);
        } else {
            word.swap(1, SeqCst);
        }
        word
    }

    /// Clears a flag that `set` has set.
    #[inline]
    pub(crate) fn clear(&self, flag: ReaderFlag) {
        clear(self.flag(flag.index), flag.is_shared);
    }

    /// Acquires the lock for reading unless a writer is there.
    #[inline]
    pub(crate) fn try_read(&self, flag: ReaderFlag) -> Option<&AtomicU64> {
        let word = self.set(flag);
        if self.look() {
            return Some(word);
        }
        clear(word, flag.is_shared);
        None
    }

    /// Waits until no writer holds the lock, and acquires it for reading.
    #[inline]
    pub(crate) fn read(&self, flag: ReaderFlag) -> &AtomicU64 {
        loop {
            match self.try_read(flag) {
                Some(word) => return word,
                None => self.wait_for_writer(),
            }
        }
    }

    /// Waits until no thread holds the lock, and acquires it for writing.
    #[inline]
    pub(crate) fn write(&self) {
        if !self.try_exclude_writers() {
            self.wait_to_exclude_writers();
        }
        for flag in self.flags_in_use() {
            if Self::is_set(flag) {
                Self::wait_for_readers(flag);
            }
        }
    }

    /// Acquires the lock for writing unless a thread holds it. Readers that come meanwhile may have
    /// to try again.
    #[inline]
    pub(crate) fn try_write(&self) -> bool {
        if !self.try_exclude_writers() {
            return false;
        }
        let is_free = !self.has_reader();
        if !is_free {
            self.clear_writer();
        }
        is_free
    }

    /// Whether a reader's flag is set.
    #[inline]
    pub(crate) fn has_reader(&self) -> bool {
        self.flags_in_use().iter().any(|flag| Self::is_set(flag))
    }

    #[inline]
    fn is_set(flag: &AtomicU64) -> bool {
        // SeqCst: pairs with the accesses in `set`; see the module's header. It acquires what the
        // readers released.
        flag.load(ordering!(SeqCst, "flag_rw_relaxed_wait_for_readers")) != 0
    }

    #[inline]
    fn flags_in_use(&self) -> &[FlagWord] {
        // SeqCst: pairs with the exchange in `cover`; see the module's header.
        let high = self.high.load(SeqCst) as usize;
        let first = usize::from(mutant!("flag_rw_skips_flag"));
        &self.flags.as_ref()[first.min(high)..high]
    }

    #[cold]
    #[inline(never)]
    fn wait_for_readers(flag: &AtomicU64) {
        let mut backoff = Backoff::new();
        while Self::is_set(flag) {
            backoff.snooze_or_sleep(&SLEEPS);
        }
    }
}

/// Clears a flag that a reader has set.
#[inline]
fn clear(word: &AtomicU64, is_shared: bool) {
    // Release, both: pairs with the loads of flags by writers, so that the section is over before
    // the writer's begins. A store is enough for a flag that no other thread changes.
    let release = ordering!(Release, "flag_rw_relaxed_unlock_shared");
    if is_shared {
        word.fetch_sub(1, release);
    } else {
        word.store(0, release);
    }
}

/// A readers-writer lock without data whose readers name the flag by which they hold it, for
/// structures that give numbers to their threads. Readers with different flags write different
/// cache lines. The number of flags is chosen when the lock is made; writers look at those that
/// were ever used. See [`DistributedRw`](crate::DistributedRw) for a lock that numbers threads
/// itself.
///
/// Readers do not wait for each other. Writers go first: readers may starve while writers keep
/// coming. Waiting threads spin, yield, and then sleep up to a millisecond. Blocking.
///
/// ```
/// use corewise_locks::{FlagRw, ReaderFlag};
///
/// let lock = FlagRw::new(2);
/// {
///     let _one = lock.read(ReaderFlag::shared(0));
///     let _other = lock.read(ReaderFlag::shared(1));
///     assert!(lock.try_write().is_none());
/// }
/// assert!(lock.try_write().is_some());
/// ```
///
/// Source: \[NR\] §3.8.
pub struct FlagRw {
    raw: RawFlagRw<Box<[FlagWord]>>,
}

/// A [`FlagRw`] is held for reading until this is dropped.
#[must_use = "dropping the guard unlocks the lock"]
pub struct FlagReadGuard<'a> {
    word: &'a AtomicU64,
    is_shared: bool,
}

/// A [`FlagRw`] is held for writing until this is dropped.
#[must_use = "dropping the guard unlocks the lock"]
pub struct FlagWriteGuard<'a>(&'a FlagRw);

impl FlagRw {
    /// Creates a free lock with this many flags.
    #[must_use]
    pub fn new(flags: usize) -> Self {
        let flags = (0..flags).map(|_| CachePadded::new(AtomicU64::new(0)));
        Self {
            raw: RawFlagRw::with_flags(flags.collect()),
        }
    }

    /// Waits until no writer holds the lock, and holds it for reading.
    ///
    /// # Panics
    ///
    /// If the lock has no such flag.
    #[inline]
    pub fn read(&self, flag: ReaderFlag) -> FlagReadGuard<'_> {
        FlagReadGuard {
            word: self.raw.read(flag),
            is_shared: flag.is_shared,
        }
    }

    /// Holds the lock for reading while no writer can hold it, without a look.
    ///
    /// # Panics
    ///
    /// If the lock has no such flag.
    ///
    /// # Safety
    ///
    /// 1. The caller excludes writers by other means from before the call until after it.
    /// 2. What the next writer does first happens after the call.
    #[inline]
    pub unsafe fn read_excluding_writers(&self, flag: ReaderFlag) -> FlagReadGuard<'_> {
        FlagReadGuard {
            word: self.raw.set(flag),
            is_shared: flag.is_shared,
        }
    }

    /// Waits until no thread holds the lock, and holds it for writing.
    #[inline]
    pub fn write(&self) -> FlagWriteGuard<'_> {
        self.raw.write();
        FlagWriteGuard(self)
    }

    /// Holds the lock for writing unless a thread holds it. Does not wait. Readers that come
    /// meanwhile may have to try again.
    #[inline]
    pub fn try_write(&self) -> Option<FlagWriteGuard<'_>> {
        self.raw.try_write().then(|| FlagWriteGuard(self))
    }
}

impl fmt::Debug for FlagRw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FlagRw")
            .field("flags", &self.raw.flags.len())
            .field("is_writing", &self.raw.is_writing())
            .finish_non_exhaustive()
    }
}

impl Drop for FlagReadGuard<'_> {
    #[inline]
    fn drop(&mut self) {
        clear(self.word, self.is_shared);
    }
}

impl Drop for FlagWriteGuard<'_> {
    #[inline]
    fn drop(&mut self) {
        self.0.raw.clear_writer();
    }
}

#[cfg(test)]
mod models {
    use super::*;
    use corewise_atomic::cell::DataCell;
    use corewise_atomic::sync::Arc;
    use corewise_atomic::{model_bounded, thread};

    // SAFETY: each model uses a flag in one thread at a time, which it then joins (1 and 2).
    const OWN: [ReaderFlag; 2] = unsafe { [ReaderFlag::own(0), ReaderFlag::own(1)] };

    /// Two words that only sections change together.
    struct Pair(FlagRw, DataCell<[u32; 2]>);

    impl Pair {
        fn new() -> Arc<Self> {
            Arc::new(Self(FlagRw::new(2), DataCell::new([0; 2])))
        }

        fn add(&self) {
            let _guard = self.0.write();
            // SAFETY: the lock is held for writing.
            self.1
                .with_mut(|pair| unsafe { *pair = (*pair).map(|word| word + 1) });
        }

        fn check(&self, flag: ReaderFlag) -> u32 {
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
                thread::spawn(move || other.check(ReaderFlag::shared(1)))
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
