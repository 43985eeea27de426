//! The parts of a chained table: links, the locks of its updates, and the interface behind the
//! façade [`ChainedMap`](super::ChainedMap).

use std::ptr::{self, NonNull};

use corewise_atomic::lock::{Mutex, MutexGuard};
use corewise_atomic::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use corewise_atomic::sync::atomic::{AtomicPtr, AtomicU32};
use corewise_atomic::{CachePadded, Slots, mutant, ordering};
use corewise_maps::relativistic::ResizeError;
use corewise_rcu::{Domain, Section};

/// A word of a bucket or a node: a pointer to the next node, or null.
pub(super) type Head = AtomicPtr<ChainLink>;

/// The header of every node.
pub struct ChainLink {
    /// The next node of the chain. The algorithm may use the word's other bits.
    pub next: Head,
    hash: u64,
}

impl ChainLink {
    /// The link of a node that is in no table, with the hash of its key.
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

/// Lookups in a table, while it is held.
///
/// # Safety
///
/// Implementations guarantee for `look_up` what [`Algorithm`] guarantees.
pub unsafe trait Lookups {
    /// Prefetches the cache line of a hash's bucket.
    ///
    /// # Safety
    ///
    /// 1. `section` is a section of the table's domain.
    unsafe fn fetch_bucket(&self, section: &impl Section, hash: u64);

    /// The address that `look_up` reads after the bucket, or null: a hint. Reads the bucket.
    ///
    /// # Safety
    ///
    /// 1. `section` is a section of the table's domain.
    unsafe fn first(&self, section: &impl Section, hash: u64) -> *const ChainLink;

    /// The address that `look_up` reads after the [first](Self::first), or null: a hint. Reads the
    /// first, which is a node unless a table has a `second` of another kind.
    ///
    /// # Safety
    ///
    /// 1. `section` is a section of the table's domain.
    #[inline(always)]
    unsafe fn second(&self, section: &impl Section, hash: u64) -> *const ChainLink {
        // SAFETY: the caller is in a section, which keeps the node that the bucket points to.
        let first = unsafe { self.first(section, hash).as_ref() };
        // A lookup of this hash would stop at the first.
        let first = first.filter(|link| link.hash() != hash);
        as_ptr(first.and_then(|link| follow(&link.next)))
    }

    /// The link with this hash for which `eq` returns true.
    ///
    /// # Safety
    ///
    /// 1. `section` is a section of the table's domain. The link is not used after the section.
    unsafe fn look_up(
        &self,
        section: &impl Section,
        hash: u64,
        eq: impl FnMut(NonNull<ChainLink>) -> bool,
    ) -> Option<NonNull<ChainLink>>;
}

/// A resizable table of links: the interface of the [variants](super#the-tables).
///
/// `eq` compares keys; it is called only for links with the hash that is looked for.
///
/// # Safety
///
/// Implementations guarantee:
///
/// 1. A link that they return was inserted, and was in the table at some time during the call.
/// 2. A section that begins after a link was removed does not find that link.
pub unsafe trait Algorithm: Send + Sync + Sized + 'static {
    /// The name in benchmarks and reports.
    const NAME: &'static str;

    /// What lookups run on: the table, or the guard of its lock.
    type Lookups: Lookups;

    /// An empty table with at least `buckets` buckets (the nearest number that it supports), or
    /// `None` if there is no memory for it.
    fn try_new(buckets: usize, domain: &Domain) -> Option<Self>;

    /// Calls `act` with the object for lookups, under the lock for lookups if the table has one.
    fn hold<R>(&self, act: impl FnOnce(&Self::Lookups) -> R) -> R;

    /// The link with this hash for which `eq` returns true.
    ///
    /// # Safety
    ///
    /// 1. `section` is a section of the table's domain. The link is not used after the section.
    #[inline(always)]
    unsafe fn find(
        &self,
        section: &impl Section,
        hash: u64,
        eq: impl FnMut(NonNull<ChainLink>) -> bool,
    ) -> Option<NonNull<ChainLink>> {
        // SAFETY: the section is of the table's domain, and the link is not used after it, as the
        // caller guarantees (1).
        self.hold(|table| unsafe { table.look_up(section, hash, eq) })
    }

    /// Inserts `link`, unless `eq` returns true for a link in the table, which is then returned.
    ///
    /// # Safety
    ///
    /// 1. As for [`Algorithm::find`].
    /// 2. `link` is in no table, and lives until a grace period after its removal.
    unsafe fn insert(
        &self,
        section: &impl Section,
        link: NonNull<ChainLink>,
        eq: impl FnMut(NonNull<ChainLink>) -> bool,
    ) -> Result<(), NonNull<ChainLink>>;

    /// Removes the link with this hash for which `eq` returns true. It may be freed a grace period
    /// later.
    ///
    /// # Safety
    ///
    /// 1. As for [`Algorithm::find`].
    unsafe fn remove(
        &self,
        section: &impl Section,
        hash: u64,
        eq: impl FnMut(NonNull<ChainLink>) -> bool,
    ) -> Option<NonNull<ChainLink>>;

    /// The number of buckets that readers use.
    fn buckets(&self) -> usize;

    /// Changes the number of buckets to `buckets`, or the nearest larger number that the table
    /// supports, and waits until that is done.
    ///
    /// # Errors
    ///
    /// [`ResizeError`]; then nothing is changed.
    ///
    /// # Safety
    ///
    /// 1. The caller is the only thread that resizes the table, and in no section of its domain.
    unsafe fn resize(&self, buckets: usize) -> Result<Resized, ResizeError>;

    /// Removes every link and passes it to `each`, for an owner that has the table alone.
    fn take_all(&mut self, each: impl FnMut(NonNull<ChainLink>));
}

/// The cost of a resize.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Resized {
    /// Walks over all buckets that changed links of entries.
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

/// The locks for updates, each of which covers a part of the buckets. There is a lock per bucket,
/// but at most 2^[`Stripes::MOST_LOG2`].
///
/// Their number follows the smaller of the tables in use, so that a bucket has one lock even while
/// it is divided or merged. It is changed under all locks.
pub(super) struct Stripes {
    log2: AtomicU32,
    locks: Slots<CachePadded<Mutex<()>>>,
}

/// All locks, held.
pub(super) struct AllStripes<'s> {
    stripes: &'s Stripes,
    _locked: Vec<MutexGuard<'s, ()>>,
}

impl Stripes {
    /// The maximum number of locks, as a logarithm: for a few hundred updating threads.
    pub(super) const MOST_LOG2: u32 = if cfg!(any(corewise_loom, corewise_shuttle, corewise_stress))
    {
        1
    } else {
        10
    };

    /// The locks for a table of 2^`buckets_log2` buckets.
    pub(super) fn new(buckets_log2: u32) -> Self {
        let lock = |_| CachePadded::from(Mutex::new(()));
        Self {
            log2: AtomicU32::new(buckets_log2.min(Self::MOST_LOG2)),
            locks: Slots::from_fn(1 << Self::MOST_LOG2, lock),
        }
    }

    /// Locks a bucket's stripe; `stripe_of(n)` is its index among 2^n stripes.
    #[inline]
    pub(super) fn lock(&self, stripe_of: impl Fn(u32) -> usize) -> MutexGuard<'_, ()> {
        loop {
            // Relaxed: read again under a lock; a thread that changes it holds all of them.
            let log2 = self.log2.load(Relaxed);
            // As if there were a bucket per lock.
            let wrong = mutant!("chained_no_stripe").then_some(Self::MOST_LOG2);
            let locked = self.locks[stripe_of(wrong.unwrap_or(log2))].lock();
            if self.log2.load(Relaxed) == log2 || mutant!("chained_old_stripe") {
                return locked;
            }
        }
    }

    /// Takes all locks, so that no update runs.
    pub(super) fn lock_all(&self) -> AllStripes<'_> {
        AllStripes {
            stripes: self,
            // In order, so that two threads that do this do not deadlock.
            _locked: self.locks.iter().map(|lock| lock.lock()).collect(),
        }
    }
}

impl AllStripes<'_> {
    /// Sets the number of locks in use for 2^`buckets_log2` buckets.
    pub(super) fn set_for_buckets(&self, buckets_log2: u32) {
        // Relaxed: ordered by the locks.
        let log2 = buckets_log2.min(Stripes::MOST_LOG2);
        self.stripes.log2.store(log2, Relaxed);
    }
}

/// The node that a word points to.
#[inline(always)]
pub(super) fn follow(head: &Head) -> Option<NonNull<ChainLink>> {
    // Acquire: pairs with the Release in `lead`: the contents of the node are seen, and its next
    // word.
    NonNull::new(head.load(Acquire))
}

/// Points a word to a node that may be new to readers.
#[inline(always)]
pub(super) fn lead(head: &Head, to: Option<NonNull<ChainLink>>) {
    // Release: pairs with the Acquire in `follow`.
    let release = ordering!(Release, "chained_relaxed_lead");
    head.store(as_ptr(to), release);
    #[cfg(all(test, not(any(corewise_loom, corewise_shuttle))))]
    super::explorer::after_store();
}

/// A node's address, or null.
#[inline(always)]
pub(super) fn as_ptr(link: Option<NonNull<ChainLink>>) -> *mut ChainLink {
    link.map_or(ptr::null_mut(), NonNull::as_ptr)
}

/// The logarithm of the smallest power of two that is at least `buckets`; `None` if it overflows.
pub(super) fn log2_of(buckets: usize) -> Option<u32> {
    Some(buckets.checked_next_power_of_two()?.ilog2())
}
