//! The distributed readers-writer lock of \[NR\] (Calciu et al., CACM 2018, §3.8), whose flags
//! belong to threads.
//!
//! ```text
//! DistributedRw<S>, 128 (S + 1) bytes, in lines of 128:
//!   the writer's word, and the number of flags that were ever used
//!   flag 0:              read locks of threads without a flag
//!   flags 1 ... S - 1:   read locks of the thread with this number, which counts from 1
//! ```
//!
//! A thread has a small number while it lives, and the flag of that number. `flag_rw` has the lock
//! itself, and why it is correct.
//!
//! # Guarantees
//!
//! Those of every lock of the crate for the writer, and:
//!
//! 1. *Sharing.* Any number of threads hold the lock for reading while none holds it for writing.
//!    Everything before an unlock for reading happens before everything after the next lock for
//!    writing.
//! 2. *Cost of a reader.* One read-modify-write and one store, in a line that no other reader
//!    writes. A thread without its own flag executes two read-modify-writes on a line that it
//!    shares.
//! 3. *Cost of a writer.* A read-modify-write, and a load of each flag in use.
//! 4. *Fairness.* Writers go first: readers may starve while writers keep coming. Writers are not
//!    FIFO among themselves.
//! 5. *Recursion.* A thread that holds the lock for reading may lock it for reading again, if it
//!    has its own flag; otherwise it may wait for ever for a writer in between.
//! 6. *Leaked guards.* A thread that leaks a read lock keeps its number for ever.
//! 7. *Waiting.* Threads that wait spin, yield, and then sleep up to a millisecond.

use corewise_atomic::sync::atomic::AtomicU64;
use corewise_atomic::sync::atomic::Ordering::{Relaxed, Release};
use corewise_atomic::{CachePadded, ordering};

use crate::flag_rw::{FlagWord, RawFlagRw, ReaderFlag};
use crate::raw::RawSharedLock;
use crate::{RawLock, constructor, thread_index};

/// The flag of all threads that have none.
const SHARED: ReaderFlag = ReaderFlag::shared(0);

/// A readers-writer lock whose readers write to different cache lines, for `S - 1` threads; others
/// share one line. Readers scale, writers cost more.
///
/// ```
/// use corewise_locks::{DistributedRw, SharedLock};
///
/// static ROUTES: SharedLock<Vec<&str>, DistributedRw<17>> = SharedLock::new(Vec::new());
/// ROUTES.write().push("10.0.0.0/8");
/// let (one, other) = (ROUTES.read(), ROUTES.read());
/// assert_eq!((one.len(), other.len()), (1, 1));
/// ```
#[derive(Debug)]
pub struct DistributedRw<const S: usize = 65> {
    raw: RawFlagRw<[FlagWord; S]>,
}

constructor! { [const S: usize] DistributedRw<S>,
    /// Creates an unlocked lock.
    pub fn new() -> Self {
        const { assert!(S > 0, "flag 0 is for threads without one") };
        Self {
            #[cfg(not(any(corewise_loom, corewise_shuttle)))]
            raw: RawFlagRw::with_flags([const { CachePadded::new(AtomicU64::new(0)) }; S]),
            #[cfg(any(corewise_loom, corewise_shuttle))]
            raw: RawFlagRw::with_flags(std::array::from_fn(|_| CachePadded::new(AtomicU64::new(0)))),
        }
    }
}

impl<const S: usize> DistributedRw<S> {
    /// The place of the calling thread's flag; none for threads that share one.
    #[inline(always)]
    fn own_index() -> Option<usize> {
        let index = thread_index::current() as usize;
        (index < S - 1).then_some(index + 1)
    }

    /// Reads once by the thread's own flag.
    #[inline]
    fn try_own(&self, index: usize) -> bool {
        let word = self.raw.flag(index);
        // Relaxed, both: only this thread writes the flag. If it is not 0, the thread holds the
        // lock for reading already, so no writer does.
        let count = word.load(Relaxed);
        if count > 0 {
            word.store(count + 1, Relaxed);
        } else {
            // SAFETY: no other thread has this number, and the flag is 0 (1). Numbers change hands
            // under a mutex (2).
            let flag = unsafe { ReaderFlag::own(index) };
            if self.raw.try_read(flag).is_none() {
                return false;
            }
        }
        thread_index::hold();
        true
    }

    /// Tries to read once.
    #[inline]
    fn try_read(&self) -> bool {
        match Self::own_index() {
            Some(index) => self.try_own(index),
            None => self.raw.try_read(SHARED).is_some(),
        }
    }
}

// SAFETY: a writer excludes readers and writers (1), and its section happens before those that
// follow (2): guarantees 1 and 2 of `flag_rw`.
unsafe impl<const S: usize> RawLock for DistributedRw<S> {
    #[cfg(not(any(corewise_loom, corewise_shuttle)))]
    const UNLOCKED: Self = Self::new();

    fn lock(&self) {
        self.raw.write();
    }

    fn try_lock(&self) -> bool {
        !self.raw.is_writing() && self.raw.try_write()
    }

    #[inline]
    unsafe fn unlock(&self) {
        self.raw.clear_writer();
    }

    /// Whether a thread holds the lock for writing or reading, or is about to.
    fn is_locked(&self) -> bool {
        self.raw.is_writing() || self.raw.has_reader()
    }
}

// SAFETY: a writer excludes readers and writers (1), and its section happens before those that
// follow (2): guarantees 1 and 2 of `flag_rw`.
unsafe impl<const S: usize> RawSharedLock for DistributedRw<S> {
    #[inline]
    fn lock_shared(&self) {
        // The first attempt does not wait: it is by the thread's own flag if that is set already.
        while !self.try_read() {
            self.raw.wait_for_writer();
        }
    }

    #[inline]
    fn try_lock_shared(&self) -> bool {
        self.try_read()
    }

    #[inline]
    unsafe fn unlock_shared(&self) {
        match Self::own_index() {
            Some(index) => {
                let word = self.raw.flag(index);
                // Release: pairs with the loads of flags by writers.
                let release = ordering!(Release, "drw_relaxed_unlock_shared");
                // Relaxed: only this thread writes it.
                word.store(word.load(Relaxed) - 1, release);
                thread_index::let_go();
            }
            None => self.raw.clear(SHARED),
        }
    }

    #[inline]
    fn is_write_locked(&self) -> bool {
        self.raw.is_writing()
    }
}

#[cfg(not(any(corewise_loom, corewise_shuttle)))]
const _: () = assert!(size_of::<DistributedRw<3>>() == 4 * size_of::<CachePadded<u8>>());
