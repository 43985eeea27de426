//! The distributed readers-writer lock of \[NR\] (Calciu et al., CACM 2018, §3.8).
//!
//! ```text
//! DistributedRw<S>, 128 (S + 1) bytes, in lines of 128:
//!   is_writing, used: the writer's word, and the number of own slots that were ever used
//!   slots[0] ... slots[S-2]: read locks of the thread with this index
//!   slots[S-1]: read locks of all other threads
//! ```
//!
//! A *reader* waits while a writer is there, sets its own slot, and looks for a writer again; if
//! there is one, the reader resets its slot and starts over. A *writer* sets its word and waits
//! until all slots are 0. Slots belong to threads: a thread has a small number while it lives.
//!
//! # Guarantees
//!
//! Those of every lock of the crate for the writer, and:
//!
//! 1. *Sharing.* Any number of threads hold the lock for reading while none holds it for writing.
//!    Everything before an unlock for reading happens before everything after the next lock for
//!    writing.
//! 2. *Cost of a reader.* Two stores and a fence, in a line that no other reader writes; no
//!    read-modify-write. A thread without its own slot executes read-modify-writes on a line that
//!    it shares.
//! 3. *Cost of a writer.* A read-modify-write, a fence, and a load of each slot in use.
//! 4. *Fairness.* Writers go first: readers may starve while writers keep coming. Writers are not
//!    FIFO among themselves.
//! 5. *Recursion.* A thread that holds the lock for reading may lock it for reading again, if it
//!    has its own slot; otherwise it may wait for ever for a writer in between.
//! 6. *Leaked guards.* A thread that leaks a read lock keeps its number for ever.
//!
//! # Correctness
//!
//! Both sides write, execute a SeqCst fence and read. Of a reader and a writer, the one whose fence
//! comes second sees the other's write: the reader resets its slot, or the writer waits for it.

use corewise_atomic::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use corewise_atomic::sync::atomic::{AtomicU32, AtomicU64, fence};
use corewise_atomic::{Backoff, CachePadded, mutant, ordering};

use crate::raw::RawSharedLock;
use crate::{RawLock, constructor, thread_index};

/// A readers-writer lock whose readers write to different cache lines, for `S - 1` threads; others
/// share one line. Readers scale, writers cost more.
///
/// ```
/// use corewise_locks::{DistributedRw, SharedLock};
///
/// static ROUTES: SharedLock<Vec<&str>, DistributedRw<17>> =
///     SharedLock::with_raw(DistributedRw::new(), Vec::new());
/// ROUTES.write().push("10.0.0.0/8");
/// let (one, other) = (ROUTES.read(), ROUTES.read());
/// assert_eq!((one.len(), other.len()), (1, 1));
/// ```
#[derive(Debug)]
pub struct DistributedRw<const S: usize = 65> {
    writer: CachePadded<Writer>,
    slots: [CachePadded<AtomicU64>; S],
}

#[derive(Debug)]
struct Writer {
    is_writing: AtomicU32,
    used: AtomicU32,
}

constructor! { [const S: usize] DistributedRw<S>,
    /// Creates an unlocked lock.
    fn new() -> Self {
        const { assert!(S > 0, "the last slot is for threads without one") };
        Self {
            writer: CachePadded::new(Writer {
                is_writing: AtomicU32::new(0),
                used: AtomicU32::new(0),
            }),
            #[cfg(not(any(corewise_loom, corewise_shuttle)))]
            slots: [const { CachePadded::new(AtomicU64::new(0)) }; S],
            #[cfg(any(corewise_loom, corewise_shuttle))]
            slots: std::array::from_fn(|_| CachePadded::new(AtomicU64::new(0))),
        }
    }
}

impl<const S: usize> DistributedRw<S> {
    #[inline(always)]
    fn shared_slot(&self) -> &AtomicU64 {
        &self.slots[S - 1]
    }

    /// The slot of the calling thread, and its number; none for threads that share one.
    #[inline(always)]
    fn own_slot(&self) -> Option<(&AtomicU64, u32)> {
        let index = thread_index::current();
        let own = &self.slots[..S - 1];
        own.get(index as usize).map(|slot| (&**slot, index))
    }

    /// The second look of a reader, after it has written its slot.
    #[inline(always)]
    fn is_free_of_writers(&self) -> bool {
        if !mutant!("drw_no_fence") {
            // SeqCst: pairs with the fence in `try_writer`; see the header.
            fence(SeqCst);
        }
        // Acquire: pairs with the Release in `unlock`.
        self.writer.is_writing.load(Acquire) == 0 || mutant!("drw_no_second_look")
    }

    /// Reads once in the thread's own slot, which is 0.
    #[inline]
    fn try_own(&self, slot: &AtomicU64, index: u32) -> bool {
        // Relaxed, both: published by the fence in `is_free_of_writers`, as the slot is.
        if self.writer.used.load(Relaxed) <= index {
            self.writer.used.fetch_max(index + 1, Relaxed);
        }
        slot.store(1, Relaxed);
        let is_reading = self.is_free_of_writers();
        if !is_reading {
            // Relaxed: the fence orders this 0, which a writer may read, after the thread's last
            // unlock, whose 0 the writer may not read any more.
            slot.store(0, Relaxed);
        }
        is_reading
    }

    /// Reads once more in the slot that other threads use too.
    #[inline]
    fn try_shared(&self, slot: &AtomicU64) -> bool {
        // Relaxed: published by the fence in `is_free_of_writers`.
        slot.fetch_add(1, Relaxed);
        let is_reading = self.is_free_of_writers();
        if !is_reading {
            // Relaxed: as in `try_own`.
            slot.fetch_sub(1, Relaxed);
        }
        is_reading
    }

    /// Tries to read once.
    #[inline]
    fn try_read(&self) -> bool {
        let Some((slot, index)) = self.own_slot() else {
            return self.try_shared(self.shared_slot());
        };
        // Relaxed, both: only this thread writes the slot. If it is not 0, the thread holds the
        // lock for reading already, so no writer does.
        let count = slot.load(Relaxed);
        if count > 0 {
            slot.store(count + 1, Relaxed);
        } else if !self.try_own(slot, index) {
            return false;
        }
        thread_index::hold();
        true
    }

    /// Whether a reader's slot is set. Acquire: pairs with the Release of an unlock.
    fn has_reader(&self) -> bool {
        let acquire = ordering!(Acquire, "drw_relaxed_wait_for_readers");
        // Relaxed: the writer's fence orders it.
        let used = (self.writer.used.load(Relaxed) as usize).min(S - 1);
        let is_set = |slot: &CachePadded<AtomicU64>| slot.load(acquire) != 0;
        is_set(&self.slots[S - 1]) || self.slots[..used].iter().any(is_set)
    }

    /// Becomes the writer, if there is none; readers may still be there.
    #[inline]
    fn try_writer(&self) -> bool {
        // Acquire: pairs with the Release in `unlock`. Relaxed on failure: nothing is read.
        let is_writer = self
            .writer
            .is_writing
            .compare_exchange(0, 1, Acquire, Relaxed)
            .is_ok();
        if is_writer {
            // SeqCst: pairs with the fence in `is_free_of_writers`; see the header.
            fence(SeqCst);
        }
        is_writer
    }

    #[inline]
    fn is_writer_there(&self) -> bool {
        // Relaxed: a hint.
        self.writer.is_writing.load(Relaxed) != 0
    }
}

// SAFETY: 1: `is_writing` excludes writers, and the fences exclude a reader beside a writer, as the
// header explains. 2: Release in `unlock` and `unlock_shared`, Acquire in `try_writer`,
// `is_free_of_writers` and `has_reader`.
unsafe impl<const S: usize> RawLock for DistributedRw<S> {
    fn new() -> Self {
        Self::new()
    }

    fn lock(&self) {
        let mut backoff = Backoff::new();
        while self.is_writer_there() || !self.try_writer() {
            backoff.snooze();
        }
        backoff.reset();
        while self.has_reader() {
            backoff.snooze();
        }
    }

    fn try_lock(&self) -> bool {
        if self.is_writer_there() || !self.try_writer() {
            return false;
        }
        let is_taken = !self.has_reader();
        if !is_taken {
            // Release: hands on what the Acquire in `try_writer` has seen.
            self.writer.is_writing.store(0, Release);
        }
        is_taken
    }

    #[inline]
    unsafe fn unlock(&self) {
        // Release: pairs with the Acquire in `is_free_of_writers` and `try_writer`.
        let release = ordering!(Release, "drw_relaxed_unlock");
        self.writer.is_writing.store(0, release);
    }

    /// Whether a thread holds the lock for writing or reading, or is about to.
    fn is_locked(&self) -> bool {
        self.is_writer_there() || self.has_reader()
    }
}

// SAFETY: 1: by `is_free_of_writers` and `has_reader`. 2: as for `RawLock`.
unsafe impl<const S: usize> RawSharedLock for DistributedRw<S> {
    #[inline]
    fn lock_shared(&self) {
        let mut backoff = Backoff::new();
        // The first attempt does not wait: it is in the thread's own slot if that is set already.
        while !self.try_read() {
            while self.is_writer_there() {
                backoff.snooze();
            }
        }
    }

    #[inline]
    fn try_lock_shared(&self) -> bool {
        self.try_read()
    }

    #[inline]
    unsafe fn unlock_shared(&self) {
        // Release, both: pairs with the Acquire in `has_reader`.
        let release = ordering!(Release, "drw_relaxed_unlock_shared");
        match self.own_slot() {
            Some((slot, _)) => {
                // Relaxed: only this thread writes it.
                slot.store(slot.load(Relaxed) - 1, release);
                thread_index::let_go();
            }
            None => {
                self.shared_slot().fetch_sub(1, release);
            }
        }
    }

    #[inline]
    fn is_write_locked(&self) -> bool {
        self.is_writer_there()
    }
}

#[cfg(not(any(corewise_loom, corewise_shuttle)))]
const _: () = assert!(size_of::<DistributedRw<3>>() == 4 * size_of::<CachePadded<u8>>());
