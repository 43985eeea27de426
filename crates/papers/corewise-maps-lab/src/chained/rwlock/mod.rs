//! A table under a reader-writer lock: the first baseline of \[ATC11\] §5, *the best-known method
//! based on mutual exclusion*.
//!
//! Lookups hold the lock for reading. A resize allocates its table, takes the lock for writing,
//! moves all entries, and frees the old table at once: no other thread can be in it.
//!
//! # Choices
//!
//! 1. *Updates* hold the lock for reading, too, and also lock one of up to 1,024 stripes of
//!    buckets. If they held the lock for writing, they would stop all lookups, and `std`'s lock
//!    admits no reader while a writer waits: a few updates would then be enough to make readers
//!    queue. The price is a second lock for an update.
//! 2. *The lock* is `std`'s: one word that every lookup changes twice. Locks with a place per
//!    reader scale where this one does not, and are other algorithms. The paper's reader-writer
//!    lock is one word as well.
//! 3. *Nodes* are freed by RCU, because the façade lends values that outlive the lock and because
//!    updates run concurrently with lookups. This works against the baseline: entering and leaving
//!    a section takes one to two nanoseconds of a lookup that spends ten times that on the
//!    uncontended lock. The paper's readers had no section there, and read values under the lock.
//!
//! # Guarantees
//!
//! 1. *Lookups* block while a resize moves entries, and while a resize waits for the lock. They
//!    find what is in the table.
//! 2. *Updates* are linearizable. They block as lookups do, and for updates of their stripe.
//! 3. *A resize* blocks until all lookups and updates that hold the lock are done, and then blocks
//!    all others while it moves entries: some ten nanoseconds for each entry. It does not wait for
//!    sections of readers.
//! 4. Keys are compared under the lock, and those of a batch are hashed under it: `K::eq` must not
//!    use the map, nor must `K::hash` in `get_many`, or the thread may wait for itself.

use std::mem;
use std::ptr::NonNull;

use corewise_atomic::lock::{MutexGuard, RwLock};
use corewise_atomic::{hint, mutant};
use corewise_maps::relativistic::ResizeError;
use corewise_rcu::{Domain, Section};

use super::algorithm::{
    Algorithm, ChainLink, Head, Lookups, Resized, Stripes, as_ptr, follow, lead, log2_of,
};
use super::bucket_array::Heads;
use super::unsorted::{insert, prepend, remove, search, take_all};

/// The table under a reader-writer lock (\[ATC11\] §5); the [module](crate::baseline) describes its
/// costs.
pub struct RwLocked {
    table: RwLock<RwLockedTable>,
    /// Locked while the lock is held for reading; changed while it is held for writing.
    stripes: Stripes,
}

/// The data that the lock protects.
pub struct RwLockedTable {
    mask: usize,
    heads: Heads,
}

impl RwLockedTable {
    fn try_new(log2: u32) -> Option<Self> {
        let len = 1usize << log2;
        Some(Self {
            mask: len - 1,
            heads: Heads::try_new(len)?,
        })
    }

    fn log2(&self) -> u32 {
        self.heads.len().ilog2()
    }

    #[inline(always)]
    fn head(&self, hash: u64) -> &Head {
        // SAFETY: the mask is one less than the length of the array.
        unsafe { self.heads.at(hash as usize & self.mask) }
    }

    /// Moves all links of another table into this one.
    fn take_over(&mut self, other: Self) {
        for head in &*other.heads {
            while let Some(node) = follow(head) {
                // SAFETY: we have both tables alone, and so the links of their nodes.
                unsafe {
                    let link = node.as_ref();
                    lead(head, follow(&link.next));
                    prepend(self.head(link.hash()), node);
                }
            }
        }
    }
}

// SAFETY: a thread that has the table holds the lock, so that links stay where they are: see the
// implementation of `Algorithm` below.
unsafe impl Lookups for RwLockedTable {
    #[inline(always)]
    unsafe fn fetch_bucket(&self, _: &impl Section, hash: u64) {
        hint::prefetch(self.head(hash));
    }

    #[inline(always)]
    unsafe fn first(&self, _: &impl Section, hash: u64) -> *const ChainLink {
        as_ptr(follow(self.head(hash)))
    }

    #[inline(always)]
    unsafe fn look_up(
        &self,
        _: &impl Section,
        hash: u64,
        eq: impl FnMut(NonNull<ChainLink>) -> bool,
    ) -> Option<NonNull<ChainLink>> {
        // SAFETY: the caller is in a section.
        unsafe { search(self.head(hash), hash, eq) }
    }
}

// SAFETY: a link is returned while it is in its chain, or when it was removed from it under the
// stripe's lock, together with the one pointer to it.
unsafe impl Algorithm for RwLocked {
    const NAME: &'static str = "rwlock-table";

    type Lookups = RwLockedTable;

    #[inline(always)]
    fn hold<R>(&self, act: impl FnOnce(&RwLockedTable) -> R) -> R {
        act(&self.table.read())
    }

    fn try_new(buckets: usize, _: &Domain) -> Option<Self> {
        let log2 = log2_of(buckets)?;
        Some(Self {
            table: RwLock::new(RwLockedTable::try_new(log2)?),
            stripes: Stripes::new(log2),
        })
    }

    unsafe fn insert(
        &self,
        _: &impl Section,
        link: NonNull<ChainLink>,
        eq: impl FnMut(NonNull<ChainLink>) -> bool,
    ) -> Result<(), NonNull<ChainLink>> {
        // SAFETY: the caller's link, which no other thread has yet.
        let hash = unsafe { link.as_ref() }.hash();
        let table = self.table.read();
        let _locked = self.lock_stripe(hash);
        // SAFETY: the stripe is locked, and the link is in no table.
        unsafe { insert(table.head(hash), link, eq) }
    }

    unsafe fn remove(
        &self,
        _: &impl Section,
        hash: u64,
        eq: impl FnMut(NonNull<ChainLink>) -> bool,
    ) -> Option<NonNull<ChainLink>> {
        let table = self.table.read();
        let _locked = self.lock_stripe(hash);
        // SAFETY: `_locked` is the lock of the stripe that covers the chain (1).
        unsafe { remove(table.head(hash), hash, eq) }
    }

    fn buckets(&self) -> usize {
        self.table.read().heads.len()
    }

    unsafe fn resize(&self, buckets: usize) -> Result<Resized, ResizeError> {
        let log2 = log2_of(buckets).ok_or(ResizeError::NoMemory)?;
        if self.table.read().log2() == log2 {
            return Ok(Resized::default());
        }
        let new = RwLockedTable::try_new(log2).ok_or(ResizeError::NoMemory)?;
        let mut table = self.table.write();
        self.stripes.lock_all().set_for_buckets(log2);
        let old = mem::replace(&mut *table, new);
        if mutant!("rwlocked_lets_go") {
            drop(table);
            table = self.table.write();
        }
        table.take_over(old);
        Ok(Resized {
            passes: 1,
            waits: 0,
        })
    }

    fn take_all(&mut self, each: impl FnMut(NonNull<ChainLink>)) {
        // SAFETY: we have the table alone.
        unsafe { take_all(&self.table.get_mut().heads, each) };
    }
}

impl RwLocked {
    fn lock_stripe(&self, hash: u64) -> MutexGuard<'_, ()> {
        self.stripes.lock(|log2| hash as usize & ((1 << log2) - 1))
    }
}

#[cfg(test)]
mod models;
