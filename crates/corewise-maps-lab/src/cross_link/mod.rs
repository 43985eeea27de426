//! A map that gives an entry another key by cross-linking two chains, without copying the entry.
//!
//! Source: \[ATC11\] §8 announces this operation as a *significantly simplified variation* of the
//! authors' earlier move algorithm, which copied the entry and so broke references to it. The
//! paper gives no listing. What follows is derived from the rule for the order of writes that §8
//! states. [`rename`](crate::rename) names the sources of the earlier algorithm, among them a
//! patent; this crate is not published.
//!
//! [`RenameMap`](crate::rename::RenameMap) is the map to use: its keys are of any type, its renames
//! wait for nobody, and it can be resized. This one is the literal version to compare it with: its
//! lookups follow no pointer more than those of a map whose keys never change.
//!
//! # A move
//!
//! Node N goes from the chain of its old key to that of its new one, under the locks of both
//! buckets:
//!
//! ```text
//!            old chain     new chain        a lookup of the old key    of the new key
//!  at rest   A ▸ N ▸ B     C                finds N                    misses
//!  linked    A ▸ N ▸ B     C ▸ N ▸ B        finds N                    misses
//!  renamed   A ▸ N ▸ B     C ▸ N ▸ B        misses                     finds N
//!  unlinked  A ▸ B         C ▸ N ▸ B        misses                     finds N
//!            (wait for readers)
//!  cut       A ▸ B         C ▸ N            misses                     finds N
//! ```
//!
//! A bucket may contain entries of other buckets meanwhile; lookups compare keys, so they skip
//! these. The rule of §8: of two writes, the second needs a wait for readers if it is later in the
//! direction of traversal, because a lookup between the two places would see the second write and
//! not the first. If it is earlier, it needs to be published only.
//!
//! 1. *Renamed* after *linked*: no lookup can be between the two places, because the link that is
//!    written is the one that leads to N. A lookup in the old chain does not pass the first place.
//! 2. *Unlinked* after *renamed*: earlier in the old chain. Published.
//! 3. *Cut* after *unlinked*: later. A lookup that stands on N may have come along the old chain,
//!    and the rest of that chain is reached through N only. The move waits for readers.
//!
//! If both keys have one bucket, only the key is written.
//!
//! # Guarantees
//!
//! 1. *Lookups* are wait-free. A lookup strays into one other chain at most: that chain's bucket
//!    stays locked until the lookup has ended.
//! 2. *All operations are linearizable*, over all keys together; a move takes effect when it writes
//!    the key. So a thread that does not find an entry under its old key finds it under the new one
//!    afterwards.
//! 3. *Entries stay where they are*: a reference is valid as long as the section, however often the
//!    entry is moved.
//! 4. *Updates* lock a bucket's stripe, moves those of two buckets. A move holds them while it
//!    waits for readers, so updates wait for readers, too. Therefore no update may run in a section
//!    of the map's domain: updates check that, and panic.
//!
//! # Limits
//!
//! Keys are words, because readers read them while they change. The number of buckets is fixed.

#[cfg(test)]
mod models;

use std::hash::BuildHasher;
use std::ptr::{self, NonNull};

use corewise_atomic::lock::{Mutex, MutexGuard};
use corewise_atomic::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use corewise_atomic::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize};
use corewise_atomic::{CachePadded, Slots, mutant, ordering};
use corewise_maps::parts::{Panics, Shared};
use corewise_maps::relativistic::DefaultHasher;
use corewise_rcu::{Domain, Pressure, Section};

use crate::rename::RenameError;

/// The maximum number of locks, for a few hundred updating threads.
const MOST_LOCKS: usize = 1 << 10;

/// A word of a bucket or a node: the next node, or null.
type Link<V> = AtomicPtr<Node<V>>;

struct Node<V> {
    next: Link<V>,
    key: AtomicU64,
    value: V,
}

/// A concurrent hash map of words to values whose entries can be moved to another key; see the
/// [module](self).
///
/// ```
/// use corewise_maps_lab::cross_link::CrossLinkMap;
///
/// let map: CrossLinkMap<&str> = CrossLinkMap::with_buckets(64);
/// map.insert(1, "value").unwrap();
/// map.move_entry(1, 2).unwrap();
/// let section = map.domain().pin();
/// assert_eq!((map.get(&section, 1), map.get(&section, 2)), (None, Some(&"value")));
/// ```
pub struct CrossLinkMap<V, S = DefaultHasher> {
    buckets: Slots<Link<V>>,
    /// A power of two, at most the number of buckets.
    locks: Slots<CachePadded<Mutex<()>>>,
    domain: Domain,
    hasher: S,
    len: AtomicUsize,
}

// SAFETY: the map owns its values, and lends them to other threads.
unsafe impl<V: Send + Sync, S: Send> Send for CrossLinkMap<V, S> {}
// SAFETY: as above; a reference is enough to insert and to drop, so values must also be `Send`.
unsafe impl<V: Send + Sync, S: Sync> Sync for CrossLinkMap<V, S> {}

impl<V, S: Default> CrossLinkMap<V, S> {
    /// An empty map with at least `buckets` buckets (a power of two), in the global domain.
    ///
    /// # Panics
    ///
    /// If there is no memory for the buckets.
    pub fn with_buckets(buckets: usize) -> Self {
        Self::in_domain(buckets, S::default(), Domain::global().clone())
    }
}

impl<V, S> CrossLinkMap<V, S> {
    /// An empty map with at least `buckets` buckets (a power of two), with a hasher, whose readers
    /// are sections of this domain.
    ///
    /// # Panics
    ///
    /// If there is no memory for the buckets.
    pub fn in_domain(buckets: usize, hasher: S, domain: Domain) -> Self {
        let len = buckets.checked_next_power_of_two();
        let array = len.and_then(Slots::try_zeroed);
        let buckets = array.unwrap_or_else(|| panic!("no memory for {buckets} buckets"));
        let lock = |_| CachePadded::from(Mutex::new(()));
        Self {
            locks: Slots::from_fn(buckets.len().min(MOST_LOCKS), lock),
            buckets,
            domain,
            hasher,
            len: AtomicUsize::new(0),
        }
    }

    /// The domain whose sections are the map's readers.
    pub fn domain(&self) -> &Domain {
        &self.domain
    }

    /// The number of entries, approximate while updates run.
    pub fn len(&self) -> usize {
        // Relaxed: a number, which publishes nothing.
        self.len.load(Relaxed)
    }

    /// Whether [`CrossLinkMap::len`] is 0.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Calls `each` with every entry, in no particular order.
    pub fn for_each(&mut self, mut each: impl FnMut(u64, &V)) {
        for bucket in &*self.buckets {
            let mut link = bucket;
            // SAFETY: we have the map alone, and no move is under way.
            while let Some(node) = unsafe { follow(link) } {
                // Relaxed: we have the map alone.
                each(node.key.load(Relaxed), &node.value);
                link = &node.next;
            }
        }
    }

    /// Fails in a section of the map's domain: a move that holds the lock would wait for it.
    fn refuse_sections(&self) {
        assert!(
            !self.domain.is_pinned(),
            "an update in a section of the map's domain"
        );
    }

    fn lock(&self, bucket: usize) -> MutexGuard<'_, ()> {
        self.locks[bucket & (self.locks.len() - 1)].lock()
    }

    /// Locks two buckets, in the order of their locks, so that two moves do not deadlock.
    fn lock_both(
        &self,
        one: usize,
        other: usize,
    ) -> (MutexGuard<'_, ()>, Option<MutexGuard<'_, ()>>) {
        let [one, other] = [one, other].map(|bucket| bucket & (self.locks.len() - 1));
        let first = self.lock(one.min(other));
        (first, (one != other).then(|| self.lock(one.max(other))))
    }

    /// The word that leads to the node of a key.
    ///
    /// # Safety
    ///
    /// 1. The caller holds the bucket's lock while it uses the word and the node.
    unsafe fn link_to(&self, bucket: usize, key: u64) -> Option<(&Link<V>, &Node<V>)> {
        let mut link = &self.buckets[bucket];
        // SAFETY: 1: no other thread unlinks nodes of this chain.
        while let Some(node) = unsafe { follow(link) } {
            // Relaxed: keys of this chain change under the lock only.
            if node.key.load(Relaxed) == key {
                return Some((link, node));
            }
            link = &node.next;
        }
        None
    }

    /// The null word at the end of a chain.
    ///
    /// # Safety
    ///
    /// 1. As for [`Self::link_to`].
    unsafe fn end_of(&self, bucket: usize) -> &Link<V> {
        let mut link = &self.buckets[bucket];
        // SAFETY: 1: no other thread unlinks nodes of this chain.
        while let Some(node) = unsafe { follow(link) } {
            link = &node.next;
        }
        link
    }
}

impl<V, S: BuildHasher> CrossLinkMap<V, S> {
    fn bucket_of(&self, key: u64) -> usize {
        self.hasher.hash_one(key) as usize & (self.buckets.len() - 1)
    }

    /// Returns the value of a key. Wait-free.
    ///
    /// # Panics
    ///
    /// If the section belongs to another domain than the map.
    #[inline]
    pub fn get<'g>(&'g self, section: &'g impl Section, key: u64) -> Option<&'g V> {
        assert_eq!(
            section.domain_id(),
            self.domain.id(),
            "the section is one of another domain"
        );
        let mut link = &self.buckets[self.bucket_of(key)];
        // SAFETY: 1: nodes are freed a grace period after they were unlinked.
        while let Some(node) = unsafe { follow(link) } {
            // Acquire: pairs with the Release in `move_entry`: a thread that sees the new key, and
            // so misses the old one, sees the link in the new key's chain afterwards.
            if node.key.load(Acquire) == key {
                return Some(&node.value);
            }
            link = &node.next;
        }
        None
    }
}

impl<V, S> CrossLinkMap<V, S>
where
    V: Send + Sync + 'static,
    S: BuildHasher,
{
    /// Inserts a value if the key is absent.
    ///
    /// # Errors
    ///
    /// The value, if the key is present.
    ///
    /// # Panics
    ///
    /// In a section of the map's domain.
    pub fn insert(&self, key: u64, value: V) -> Result<(), V> {
        self.refuse_sections();
        let bucket = self.bucket_of(key);
        let _locked = self.lock(bucket);
        // SAFETY: 1: the bucket is locked.
        if unsafe { self.link_to(bucket, key) }.is_some() {
            return Err(value);
        }
        let head = &self.buckets[bucket];
        let node = Shared::new(Node {
            // Relaxed: under the lock; published by the store below.
            next: AtomicPtr::new(head.load(Relaxed)),
            key: AtomicU64::new(key),
            value,
        });
        lead(head, node.keep().as_ptr());
        // Relaxed: a number, which publishes nothing.
        self.len.fetch_add(1, Relaxed);
        Ok(())
    }

    /// Removes a key; returns whether it was present. The value is dropped a grace period later.
    ///
    /// # Panics
    ///
    /// In a section of the map's domain.
    pub fn remove(&self, key: u64) -> bool {
        self.refuse_sections();
        let bucket = self.bucket_of(key);
        let removed = {
            let _locked = self.lock(bucket);
            // SAFETY: 1: the bucket is locked.
            let Some((link, node)) = (unsafe { self.link_to(bucket, key) }) else {
                return false;
            };
            // Relaxed: under the lock.
            lead(link, node.next.load(Relaxed));
            NonNull::from(node)
        };
        // Relaxed: a number, which publishes nothing.
        self.len.fetch_sub(1, Relaxed);
        // SAFETY: kept by `insert`, and unlinked once. Not a box: readers may still use it.
        let node = unsafe { Shared::of(removed) };
        let pressure = (self.domain).defer(size_of::<Node<V>>(), move || drop(node));
        if pressure != Pressure::Fine {
            self.domain.barrier();
        }
        true
    }

    /// Gives the entry of one key another key, in one step. Changes nothing if both are equal.
    /// Waits for readers, unless both keys have one bucket.
    ///
    /// A thread that does not find the old key finds the new one afterwards.
    ///
    /// # Errors
    ///
    /// [`RenameError`] if the old key has no entry, or the new key has one.
    ///
    /// # Panics
    ///
    /// In a section of the map's domain.
    pub fn move_entry(&self, old: u64, new: u64) -> Result<(), RenameError> {
        self.refuse_sections();
        let (from, to) = (self.bucket_of(old), self.bucket_of(new));
        let _locked = self.lock_both(from, to);
        // SAFETY: 1: both buckets are locked until the end.
        let (link, node) = unsafe { self.link_to(from, old) }.ok_or(RenameError::NotFound)?;
        if old == new {
            return Ok(());
        }
        // SAFETY: 1: as above.
        if unsafe { self.link_to(to, new) }.is_some() {
            return Err(RenameError::Occupied);
        }
        // Release: pairs with the Acquire in `get`.
        let rename = || {
            node.key
                .store(new, ordering!(Release, "cross_link_relaxed_key"))
        };
        if from == to {
            rename();
            return Ok(());
        }
        if mutant!("cross_link_renames_first") {
            rename();
        }
        // SAFETY: 1: as above.
        lead(unsafe { self.end_of(to) }, ptr::from_ref(node).cast_mut());
        rename();
        // Relaxed: under the lock.
        lead(link, node.next.load(Relaxed));
        if !mutant!("cross_link_cuts_at_once") {
            self.domain.synchronize();
        }
        lead(&node.next, ptr::null_mut());
        Ok(())
    }
}

impl<V, S> Drop for CrossLinkMap<V, S> {
    /// If values panic when they are dropped, the others are still dropped, and the first panic is
    /// resumed.
    fn drop(&mut self) {
        let mut panics = Panics::default();
        for bucket in &*self.buckets {
            // Relaxed: we have the map alone; here and below.
            let mut next = bucket.load(Relaxed);
            while let Some(node) = NonNull::new(next) {
                // SAFETY: a node that is linked was not freed.
                next = unsafe { node.as_ref() }.next.load(Relaxed);
                // SAFETY: kept by `insert`, and reached once; no other thread has the map.
                let node = unsafe { Shared::of(node) };
                panics.catch(|| drop(node));
            }
        }
        panics.resume();
    }
}

/// The node that a word leads to.
///
/// # Safety
///
/// 1. The caller is in a section, or excludes updates, while it uses the node.
#[inline(always)]
unsafe fn follow<V>(link: &Link<V>) -> Option<&Node<V>> {
    // Acquire: pairs with the Release in `lead`: the contents of the node are seen.
    // SAFETY: null or a node, which is freed a grace period after it was unlinked, by 1.
    unsafe { link.load(Acquire).as_ref() }
}

/// Leads a word to a node that may be new to readers, or to null.
fn lead<V>(link: &Link<V>, to: *mut Node<V>) {
    // Release: pairs with the Acquire in `follow`.
    link.store(to, Release);
}
