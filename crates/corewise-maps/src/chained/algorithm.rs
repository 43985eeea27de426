//! What a chained table is made of: links, the locks of its updaters, and the interface that
//! [`ChainedMap`](super::ChainedMap) is a façade of.

use std::ptr::{self, NonNull};

use corewise_atomic::lock::{Mutex, MutexGuard};
use corewise_atomic::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use corewise_atomic::sync::atomic::{AtomicPtr, AtomicU32};
use corewise_atomic::{CachePadded, Slots, mutant, ordering};
use corewise_rcu::{Domain, Section};

use crate::relativistic::ResizeError;

/// A word that leads to a node, or null: a bucket's or a node's.
pub(super) type Head = AtomicPtr<Link>;

/// The beginning of every node.
pub struct Link {
    /// The next node of the chain. What else is in the word is the algorithm's affair.
    pub next: Head,
    hash: u64,
}

impl Link {
    /// The link of a node that is in no table, whose key has this hash.
    pub fn new(hash: u64) -> Self {
        Self {
            next: Head::new(ptr::null_mut()),
            hash,
        }
    }

    /// The hash of the node's key.
    #[inline(always)]
    pub fn hash(&self) -> u64 {
        self.hash
    }
}

/// Lookups in a table that is held while they go on.
///
/// # Safety
///
/// Implementations promise of `look_up` what [`Algorithm`] promises.
pub unsafe trait Lookups {
    /// Asks for the cache line of the bucket of a hash.
    ///
    /// # Safety
    ///
    /// 1. `section` is one of the table's domain.
    unsafe fn fetch_bucket(&self, section: &impl Section, hash: u64);

    /// The address that `look_up` reads after the bucket, or null: a hint. Reads the bucket.
    ///
    /// # Safety
    ///
    /// 1. `section` is one of the table's domain.
    unsafe fn first(&self, section: &impl Section, hash: u64) -> *const Link;

    /// The address that `look_up` reads after the [first](Self::first), or null: a hint. Reads that.
    ///
    /// # Safety
    ///
    /// 1. `section` is one of the table's domain.
    unsafe fn second(&self, section: &impl Section, hash: u64) -> *const Link;

    /// The link with this hash for which `is_it` says so.
    ///
    /// # Safety
    ///
    /// 1. `section` is one of the table's domain. The link is not used after it.
    unsafe fn look_up(
        &self,
        section: &impl Section,
        hash: u64,
        is_it: impl FnMut(NonNull<Link>) -> bool,
    ) -> Option<NonNull<Link>>;
}

/// A resizable table of links: what the [variants](super#the-tables) implement.
///
/// Keys are compared by `is_it`, which is asked only about links with the hash that is looked for.
///
/// # Safety
///
/// Implementations promise:
///
/// 1. What they return was inserted, and was in the table at some time during the call.
/// 2. A link that was removed is found by nobody who enters a section afterwards.
pub unsafe trait Algorithm: Send + Sync + Sized + 'static {
    /// Its name in benchmarks and reports.
    const NAME: &'static str;

    /// What lookups are done in: the table, or what its lock gives.
    type Lookups: Lookups;

    /// An empty table of so many buckets, or of the nearest number above that it can have; `None` if there
    /// is no memory for it.
    fn try_new(buckets: usize, domain: &Domain) -> Option<Self>;

    /// Calls `act` with what lookups are done in, under the lock that they take if they take one.
    fn hold<R>(&self, act: impl FnOnce(&Self::Lookups) -> R) -> R;

    /// The link with this hash for which `is_it` says so.
    ///
    /// # Safety
    ///
    /// 1. `section` is one of the table's domain. The link is not used after it.
    #[inline(always)]
    unsafe fn find(
        &self,
        section: &impl Section,
        hash: u64,
        is_it: impl FnMut(NonNull<Link>) -> bool,
    ) -> Option<NonNull<Link>> {
        // SAFETY: the caller's.
        self.hold(|table| unsafe { table.look_up(section, hash, is_it) })
    }

    /// Inserts `link` unless there is one for which `is_it` says so, which is then returned.
    ///
    /// # Safety
    ///
    /// 1. As for [`Algorithm::find`].
    /// 2. `link` is in no table, and lives until a grace period after it was removed.
    unsafe fn insert(
        &self,
        section: &impl Section,
        link: NonNull<Link>,
        is_it: impl FnMut(NonNull<Link>) -> bool,
    ) -> Result<(), NonNull<Link>>;

    /// Removes the link with this hash for which `is_it` says so. It may be freed a grace period later.
    ///
    /// # Safety
    ///
    /// 1. As for [`Algorithm::find`].
    unsafe fn remove(
        &self,
        section: &impl Section,
        hash: u64,
        is_it: impl FnMut(NonNull<Link>) -> bool,
    ) -> Option<NonNull<Link>>;

    /// How many buckets readers use.
    fn buckets(&self) -> usize;

    /// Takes so many buckets, or the nearest number above that it can have, and waits until that is done.
    /// The façade lets one thread at a time in, and none that is in a section.
    ///
    /// # Errors
    ///
    /// [`ResizeError`]; nothing is changed then.
    fn resize(&self, buckets: usize) -> Result<Resized, ResizeError>;

    /// Hands out every link and forgets it; for an owner that nobody shares the table with.
    fn take_all(&mut self, each: impl FnMut(NonNull<Link>));
}

/// What a resize took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Resized {
    /// Walks over all buckets, in which links of entries were changed.
    pub passes: u64,
    /// Waits for readers.
    pub waits: u64,
}

impl std::ops::AddAssign for Resized {
    fn add_assign(&mut self, other: Self) {
        self.passes += other.passes;
        self.waits += other.waits;
    }
}

/// Locks for updates, each of a part of the buckets: as many as there are buckets, at most
/// [`Stripes::MOST`].
///
/// The number follows the smaller of the tables in use, so that a bucket has one lock, also while it is
/// divided or joined. It is changed under all locks.
pub(super) struct Stripes {
    log2: AtomicU32,
    locks: Slots<CachePadded<Mutex<()>>>,
}

/// All locks.
pub(super) struct AllStripes<'s> {
    stripes: &'s Stripes,
    _locked: Vec<MutexGuard<'s, ()>>,
}

impl Stripes {
    /// The most locks: for a few hundred threads that update.
    pub(super) const MOST_LOG2: u32 = if cfg!(any(corewise_loom, corewise_shuttle, corewise_stress))
    {
        1
    } else {
        10
    };

    /// Locks for a table of 2^`buckets_log2` buckets.
    pub(super) fn new(buckets_log2: u32) -> Self {
        let lock = |_| CachePadded::from(Mutex::new(()));
        Self {
            log2: AtomicU32::new(buckets_log2.min(Self::MOST_LOG2)),
            locks: Slots::from_fn(1 << Self::MOST_LOG2, lock),
        }
    }

    /// The lock of a bucket, where `stripe_of` says which of 2^n locks that would be.
    #[inline]
    pub(super) fn lock(&self, stripe_of: impl Fn(u32) -> usize) -> MutexGuard<'_, ()> {
        loop {
            // Relaxed: looked at again under a lock; who changes it has all of them.
            let log2 = self.log2.load(Relaxed);
            // As if there were as many buckets as locks.
            let wrong = mutant!("chained_no_stripe").then_some(Self::MOST_LOG2);
            let locked = self.locks[stripe_of(wrong.unwrap_or(log2))].lock();
            if self.log2.load(Relaxed) == log2 || mutant!("chained_old_stripe") {
                return locked;
            }
        }
    }

    /// All locks: nobody updates.
    pub(super) fn lock_all(&self) -> AllStripes<'_> {
        AllStripes {
            stripes: self,
            // In order, so that two who do this do not wait for each other.
            _locked: self.locks.iter().map(|lock| lock.lock()).collect(),
        }
    }
}

impl AllStripes<'_> {
    /// From now on there are locks for so many buckets.
    pub(super) fn suit(&self, buckets_log2: u32) {
        // Relaxed: ordered by the locks.
        let log2 = buckets_log2.min(Stripes::MOST_LOG2);
        self.stripes.log2.store(log2, Relaxed);
    }
}

/// The node that a word leads to.
#[inline(always)]
pub(super) fn follow(head: &Head) -> Option<NonNull<Link>> {
    // Acquire: pairs with the Release in `lead`: what the node was made of is seen, and where it leads.
    NonNull::new(head.load(Acquire))
}

/// Makes a word lead to a node that may be new to readers.
#[inline(always)]
pub(super) fn lead(head: &Head, to: Option<NonNull<Link>>) {
    // Release: pairs with the Acquire in `follow`.
    let release = ordering!(Release, "chained_relaxed_lead");
    head.store(as_ptr(to), release);
    #[cfg(all(test, not(any(corewise_loom, corewise_shuttle))))]
    super::explorer::after_store();
}

/// The node behind one that a lookup of this hash would not stop at; null if there is none.
///
/// # Safety
///
/// 1. `link` is null or that of a node, which is kept.
#[inline(always)]
pub(super) unsafe fn behind(link: *const Link, hash: u64) -> *const Link {
    // SAFETY: 1.
    let link = unsafe { link.as_ref() }.filter(|link| link.hash() != hash);
    as_ptr(link.and_then(|link| follow(&link.next)))
}

/// A node's address, or null.
#[inline(always)]
pub(super) fn as_ptr(link: Option<NonNull<Link>>) -> *mut Link {
    link.map_or(ptr::null_mut(), NonNull::as_ptr)
}

/// The power of two, by its logarithm, of buckets that are at least so many; `None` if none is.
pub(super) fn log2_of(buckets: usize) -> Option<u32> {
    Some(buckets.checked_next_power_of_two()?.ilog2())
}
