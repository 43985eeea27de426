//! Partitions with a lock each.

use corewise_atomic::cell::DataCell;
use corewise_atomic::lock::Mutex;
use corewise_atomic::{CachePadded, Slots};
use corewise_locks::Lock;

use super::{Buffer, COPIED_BYTES, FoundValue, Owner, ValueRef};
use crate::RawLock;
use crate::config::{ConfigError, share_of_budget};
use crate::key::{Identity, Mixer};
use crate::partition::{InsertError, Partition, Settings, Stats};

/// A lock and its partition; the lock shares its cache line with what a lookup uses.
#[repr(C)]
pub(super) struct Shelf<L> {
    lock: Lock<(), L>,
    partition: DataCell<Partition>,
}

// SAFETY: the partition is used by the holder of the lock only, and may be sent.
unsafe impl<L: RawLock> Sync for Shelf<L> {}

impl<L: RawLock> Shelf<L> {
    /// Calls `body` with the partition. `body` runs no code of users and does not lock.
    #[inline(always)]
    pub(super) fn with<R>(&self, body: impl FnOnce(&mut Partition) -> R) -> R {
        let _held = self.lock.lock();
        // SAFETY: the lock is held, and `body` does not take it again.
        self.partition
            .with_mut(|partition| body(unsafe { &mut *partition }))
    }
}

pub(super) struct Shelves<L: RawLock> {
    shelves: Slots<CachePadded<Shelf<L>>>,
    /// Locked while the budget changes, so all shelves get the same share.
    resize: Mutex<()>,
}

impl<L: RawLock> Shelves<L> {
    pub(super) fn new(count: usize, settings: &Settings) -> Result<Self, ConfigError> {
        let partitions = (0..count).map(|_| Partition::new(settings));
        let mut partitions = partitions.collect::<Result<Vec<_>, _>>()?.into_iter();
        let shelf = |_| {
            let partition = partitions.next().expect("there is one for each shelf");
            CachePadded::new(Shelf {
                lock: Lock::new(()),
                partition: DataCell::new(partition),
            })
        };
        Ok(Self {
            shelves: Slots::from_fn(count, shelf),
            resize: Mutex::new(()),
        })
    }

    #[inline(always)]
    pub(super) fn index_of(&self, hash: u64) -> usize {
        Mixer::partition_of(hash, self.shelves.len())
    }

    #[inline(always)]
    pub(super) fn shelf(&self, index: usize) -> &Shelf<L> {
        &self.shelves[index]
    }

    #[inline(always)]
    fn shelf_of(&self, hash: u64) -> &Shelf<L> {
        self.shelf(self.index_of(hash))
    }

    #[inline(always)]
    pub(super) fn fetch(
        &self,
        hash: u64,
        key: &Identity<'_>,
        buffer: &mut Buffer,
    ) -> Option<FoundValue<'_, L>> {
        let shelf = self.shelf_of(hash);
        shelf.with(|partition| {
            let element = partition.lookup(hash, key)?;
            let value = partition.value(element);
            let len = value.len();
            Some(if buffer.copy(value) {
                FoundValue::Copied(len)
            } else {
                partition.acquire(element);
                let owner = Owner::Shelf(shelf);
                FoundValue::Referenced(ValueRef { element, owner })
            })
        })
    }

    #[inline]
    pub(super) fn reference(&self, hash: u64, key: &Identity<'_>) -> Option<ValueRef<'_, L>> {
        let shelf = self.shelf_of(hash);
        shelf.with(|partition| {
            let element = partition.lookup(hash, key)?;
            partition.acquire(element);
            let owner = Owner::Shelf(shelf);
            Some(ValueRef { element, owner })
        })
    }

    #[inline]
    pub(super) fn insert(
        &self,
        hash: u64,
        key: &Identity<'_>,
        value: &[u8],
    ) -> Result<(), InsertError> {
        let shelf = self.shelf_of(hash);
        if value.len() <= COPIED_BYTES {
            return shelf.with(|partition| partition.insert(hash, key, value));
        }
        // The element is NOT READY during the copy, as in `CpHash`.
        let (element, layout) = shelf.with(|partition| {
            let element = partition.allocate(key, value.len())?;
            Ok((element, partition.layout()))
        })?;
        // SAFETY: allocated for these lengths, and this thread is its inserting thread. Its
        // reference is given up once.
        unsafe {
            element.fill(layout, key.bytes(), value);
            shelf.with(|partition| partition.publish(element));
        }
        Ok(())
    }

    pub(super) fn remove(&self, hash: u64, key: &Identity<'_>) -> bool {
        self.shelf_of(hash)
            .with(|partition| partition.remove(hash, key))
    }

    pub(super) fn clear(&self) {
        for shelf in self.shelves.iter() {
            shelf.with(Partition::clear);
        }
    }

    pub(super) fn set_budget(&self, bytes: usize) -> Result<(), ConfigError> {
        let share = share_of_budget(bytes, self.shelves.len())?;
        let _resize = self.resize.lock();
        for shelf in self.shelves.iter() {
            shelf.with(|partition| partition.set_budget(share));
        }
        Ok(())
    }

    pub(super) fn stats(&self) -> Stats {
        let mut sum = Stats::default();
        for shelf in self.shelves.iter() {
            sum += shelf.with(|partition| partition.stats());
        }
        sum
    }
}
