//! One lock around the structure: SL and RWL.

use corewise_atomic::cell::DataCell;
use corewise_atomic::sync::Arc;
use corewise_atomic::sync::atomic::AtomicUsize;
use corewise_atomic::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use corewise_atomic::{Backoff, CachePadded};
use corewise_locks::FlagRw;

use super::{OWN_SLOTS, SHARED_SLOTS};
use crate::registration::Registry;
use crate::{Concurrent, Operation, Sequential};

/// No thread.
const NONE: usize = 0;

corewise_atomic::thread_local! {
    /// Its address stands for the thread: it is unique while the thread lives, and not
    /// [`NONE`].
    static THREAD: u8 = const { 0 };
}

/// SL: a test-and-test-and-set spin lock around the structure.
///
/// Waiting threads spin and then yield. An operation that panics releases the lock. An operation
/// that calls the structure that executes it gets a panic.
///
/// ```
/// use corewise_nr::structures::priority_queue::{Read, Response, SkipListQueue, Write};
/// use corewise_nr::{Concurrent, Operation, baseline::SpinLocked};
/// let queue = SpinLocked::new(SkipListQueue::new());
/// assert_eq!(queue.execute(Operation::Write(Write::Insert(3))), Response::Inserted);
/// assert_eq!(queue.execute(Operation::Read(Read::Min)), Response::Key(Some(3)));
/// ```
pub struct SpinLocked<D> {
    /// The thread that holds the lock, or [`NONE`].
    holder: CachePadded<AtomicUsize>,
    data: DataCell<D>,
}

impl<D: Sequential> SpinLocked<D> {
    /// Protects a structure.
    pub fn new(data: D) -> Self {
        Self {
            holder: CachePadded::new(AtomicUsize::new(NONE)),
            data: DataCell::new(data),
        }
    }

    fn lock(&self) -> Unlock<'_> {
        let this = THREAD.with(|thread| std::ptr::from_ref(thread).addr());
        let mut backoff = Backoff::new();
        // Acquire: pairs with the Release in `Unlock`. Relaxed on failure: nothing is read then.
        while self
            .holder
            .compare_exchange_weak(NONE, this, Acquire, Relaxed)
            .is_err()
        {
            // Relaxed: a hint that the exchange may succeed. A thread sees what it has stored.
            while let holder = self.holder.load(Relaxed)
                && holder != NONE
            {
                assert!(
                    holder != this,
                    "an operation calls the structure that executes it"
                );
                backoff.snooze();
            }
        }
        Unlock(&self.holder)
    }
}

struct Unlock<'a>(&'a AtomicUsize);

impl Drop for Unlock<'_> {
    fn drop(&mut self) {
        // Release: pairs with the Acquire in `lock`.
        self.0.store(NONE, Release);
    }
}

impl<D: Sequential> Concurrent<D> for SpinLocked<D> {
    fn execute(&self, operation: Operation<D>) -> D::Response {
        let _held = self.lock();
        self.data.with_mut(|data| {
            // SAFETY: the lock is held until `_held` is dropped, so no other thread accesses the
            // data.
            let data = unsafe { &mut *data };
            match &operation {
                Operation::Read(operation) => data.read(operation),
                Operation::Write(operation) => data.write(operation),
            }
        })
    }
}

/// RWL: the readers-writer lock of §3.8 around the structure.
///
/// Threads register as in a [`NodeReplicated`](crate::NodeReplicated). An operation that panics
/// releases the lock. An operation that calls the structure that executes it gets a panic.
///
/// ```
/// use corewise_nr::structures::priority_queue::{Read, Response, SkipListQueue, Write};
/// use corewise_nr::{Concurrent, Operation, baseline::ReadersWriterLocked};
/// let queue = ReadersWriterLocked::new(SkipListQueue::new());
/// assert_eq!(queue.execute(Operation::Write(Write::Insert(3))), Response::Inserted);
/// assert_eq!(queue.execute(Operation::Read(Read::Min)), Response::Key(Some(3)));
/// ```
pub struct ReadersWriterLocked<D> {
    lock: CachePadded<FlagRw>,
    registry: Arc<Registry>,
    data: DataCell<D>,
}

impl<D: Sequential> ReadersWriterLocked<D> {
    /// Protects a structure.
    pub fn new(data: D) -> Self {
        let registry = Registry::single(OWN_SLOTS, SHARED_SLOTS);
        Self {
            lock: CachePadded::new(FlagRw::new(registry.slots())),
            registry,
            data: DataCell::new(data),
        }
    }
}

impl<D: Sequential> Concurrent<D> for ReadersWriterLocked<D> {
    fn execute(&self, operation: Operation<D>) -> D::Response {
        self.registry.enter(|| match &operation {
            Operation::Read(operation) => {
                // SAFETY: the thread's place, inside one operation (1).
                let flag = unsafe { Registry::place(&self.registry).flag() };
                let _guard = self.lock.read(flag);
                // SAFETY: the lock is held for reading.
                self.data.with(|data| unsafe { &*data }.read(operation))
            }
            Operation::Write(operation) => {
                let _guard = self.lock.write();
                // SAFETY: the lock is held for writing.
                self.data
                    .with_mut(|data| unsafe { &mut *data }.write(operation))
            }
        })
    }
}

impl<D> Drop for ReadersWriterLocked<D> {
    fn drop(&mut self) {
        self.registry.close();
    }
}
