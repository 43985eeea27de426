//! A hash map that can give an entry another key by cross-linking two chains, without copying the
//! entry.
//!
//! Source: \[ATC11\] §8 announces this operation as a *significantly simplified variation* of the
//! authors' earlier move algorithm, which copied the entry and so broke references to it: *Scalable
//! concurrent hash tables via relativistic programming*, ACM SIGOPS Operating Systems Review 44(3),
//! 2010, and US patent 7,668,851 (Triplett, *Lockless hash table lookups while performing key
//! update on hash table element*, granted in 2010). The paper gives no listing. The algorithm below
//! is derived from the rule for the order of writes in §8; nobody has examined whether the patent's
//! claims cover it. Therefore this crate, which is not published, has it.
//!
//! Its lookups follow as few pointers as those of a map whose keys never change.
//!
//! # A move
//!
//! A move takes node N from the chain of its old key to the chain of its new key. It holds the
//! locks of both buckets.
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
//! From *linked* to *cut*, the new chain leads into the rest of the old chain. Lookups compare
//! keys, so they skip those entries.
//!
//! §8 says when the second of two writes must wait for readers: if its place comes later in the
//! direction of traversal. A lookup between the two places would otherwise see the second write but
//! not the first. If its place comes earlier, it is enough to publish the second write.
//!
//! 1. *Renamed* after *linked*: published. In the new chain, every lookup that reaches N has
//!    followed the new link. A lookup in the old chain does not pass this link.
//! 2. *Unlinked* after *renamed*: published, because its place comes earlier in the old chain.
//! 3. *Cut* after *unlinked*: its place comes later. A lookup may have reached N along the old
//!    chain, and then reaches the rest of that chain only through N. The move waits for readers.
//!
//! If both keys have the same bucket, the move only writes the key.
//!
//! # Guarantees
//!
//! 1. *Lookups* are wait-free.
//! 2. *Operations on one key are linearizable*, including moves from it and to it. A move that
//!    succeeds takes effect on both keys at once, when it writes the key. So a thread that does not
//!    find an entry under its old key finds it under the new one afterwards, unless another update
//!    has moved or removed it since. (The opposite order has no such guarantee: the
//!    entry may be moved between a lookup of the new key and a lookup of the old one.)
//! 3. *Operations on different keys:* updates take effect in one order, because each holds the
//!    locks of its buckets until it has taken effect. Lookups are ordered by happens-before only: a
//!    lookup sees every update that happens before it, such as those that happened before an update
//!    that an earlier lookup of the same thread saw. So two threads that look up the same two keys
//!    may see updates of these keys in opposite orders. And if each of two threads inserts a key
//!    and then looks up the key of the other, both lookups may miss.
//! 4. *Entries stay where they are*: a reference is valid until its section ends, however often the
//!    entry is moved.
//! 5. *Updates* lock the stripe of a bucket; moves lock those of two buckets.
//! 6. *A move waits for readers* while it holds its locks, unless both keys have the same bucket.
//!    So other updates may wait for readers, too.
//!
//! # Which operations wait
//!
//! An update waits for ever if a section that it waits for ends only after the update. The calling
//! thread may itself be in such a section:
//!
//! - Updates detect a guard of the calling thread, also that of a
//!   [`Qsbr`](corewise_rcu::Qsbr) that is online, and panic.
//! - Updates do not detect an [`OwnedGuard`](corewise_rcu::OwnedGuard), because the domain does not
//!   know which thread holds it. A thread that calls [`CrossLinkMap::move_entry`] while it holds an
//!   `OwnedGuard` of the map's domain waits for itself for ever. If it inserts or removes, it waits
//!   for ever if a move of another thread holds the lock, because that move waits for the guard.
//!
//! # How far lookups stray
//!
//! A lookup may continue into the rest of another chain, and from there into the rest of a third
//! one, which may be its own chain again. It goes no further:
//!
//! - A move does not wait for a section that begins while the move already waits. A lookup in that
//!   section may stray through the moved node N into the old chain O. Then the move cuts, and
//!   unlocks both buckets.
//! - A later move may append an entry of a chain P to O. The lookup strays into P, if it is still
//!   in O. But this move waits for the lookup's section, and keeps O and P locked meanwhile. No
//!   other move can append an entry to P before the section ends.
//!
//! Two moves for which only the first bullet holds do not add up: both were waiting when the
//! section began, so they held the locks of different buckets.
//!
//! # Limits
//!
//! Keys are of type `u64`, because readers load them while a move writes them. The number of
//! buckets is fixed.

#[cfg(test)]
mod models;

use std::fmt;
use std::hash::BuildHasher;
use std::ptr::{self, NonNull};

use corewise_atomic::lock::{Mutex, MutexGuard};
use corewise_atomic::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use corewise_atomic::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize};
use corewise_atomic::{CachePadded, Slots, mutant, ordering};
use corewise_maps::parts::{Panics, Shared};
use corewise_maps::relativistic::DefaultHasher;
use corewise_rcu::{Domain, Section, default_weight};

/// The maximum number of locks: enough for a few hundred threads that update.
const MOST_LOCKS: usize = 1 << 10;

/// The pointer in a bucket or a node to the next node, or null.
type Link<V> = AtomicPtr<Node<V>>;

struct Node<V> {
    next: Link<V>,
    key: AtomicU64,
    value: V,
}

/// A concurrent hash map with keys of type `u64` whose entries can be moved to another key; see the
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
// SAFETY: the map owns its values; a reference to it is enough to look up, to insert and to drop
// them, so they must be `Send` and `Sync`.
unsafe impl<V: Send + Sync, S: Sync> Sync for CrossLinkMap<V, S> {}

impl<V, S: Default> CrossLinkMap<V, S> {
    /// Creates an empty map in the global domain. `buckets` is rounded up to a power of two.
    ///
    /// # Panics
    ///
    /// If there is no memory for the buckets.
    pub fn with_buckets(buckets: usize) -> Self {
        Self::in_domain(buckets, S::default(), Domain::global().clone())
    }
}

impl<V, S> CrossLinkMap<V, S> {
    /// Creates an empty map with this hasher, whose readers are sections of this domain. `buckets`
    /// is rounded up to a power of two.
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
        // Relaxed: a counter, which publishes nothing.
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
            // SAFETY: the exclusive borrow excludes updates (1).
            while let Some(node) = unsafe { follow(link) } {
                // Relaxed: no other thread uses the map.
                each(node.key.load(Relaxed), &node.value);
                link = &node.next;
            }
        }
    }

    /// Panics in a section of the map's domain: the update would wait for the section, or for a
    /// move that does.
    fn refuse_sections(&self) {
        assert!(
            !self.domain.is_pinned(),
            "an update in a section of the map's domain"
        );
    }

    fn lock(&self, bucket: usize) -> MutexGuard<'_, ()> {
        self.locks[bucket & (self.locks.len() - 1)].lock()
    }

    /// Locks two buckets, in the order of the indices of their locks, so that two moves do not
    /// deadlock.
    fn lock_both(
        &self,
        one: usize,
        other: usize,
    ) -> (MutexGuard<'_, ()>, Option<MutexGuard<'_, ()>>) {
        let [one, other] = [one, other].map(|bucket| bucket & (self.locks.len() - 1));
        let first = self.lock(one.min(other));
        (first, (one != other).then(|| self.lock(one.max(other))))
    }

    /// The node of a key, and the link that leads to it.
    ///
    /// # Safety
    ///
    /// 1. The caller holds the bucket's lock while it uses the link and the node.
    unsafe fn link_to(&self, bucket: usize, key: u64) -> Option<(&Link<V>, &Node<V>)> {
        let mut link = &self.buckets[bucket];
        // SAFETY: no other thread unlinks nodes of this chain (1).
        while let Some(node) = unsafe { follow(link) } {
            // Relaxed: keys of this chain change under the lock only.
            if node.key.load(Relaxed) == key {
                return Some((link, node));
            }
            link = &node.next;
        }
        None
    }

    /// The link at the end of a chain, which is null.
    ///
    /// # Safety
    ///
    /// 1. As for [`Self::link_to`].
    unsafe fn end_of(&self, bucket: usize) -> &Link<V> {
        let mut link = &self.buckets[bucket];
        // SAFETY: no other thread unlinks nodes of this chain (1).
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
        // SAFETY: nodes are freed a grace period after they were unlinked (1).
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
    /// Inserts a value if the key is absent. Waits for a move that holds the bucket's lock.
    ///
    /// # Errors
    ///
    /// The value, if the key is present.
    ///
    /// # Panics
    ///
    /// If the caller is in a section of the map's domain. An `OwnedGuard` is not detected; see the
    /// [module](self#which-operations-wait).
    pub fn insert(&self, key: u64, value: V) -> Result<(), V> {
        self.refuse_sections();
        let bucket = self.bucket_of(key);
        let _locked = self.lock(bucket);
        // SAFETY: `_locked` is the lock of the bucket (1).
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
        // Relaxed: a counter, which publishes nothing.
        self.len.fetch_add(1, Relaxed);
        Ok(())
    }

    /// Removes a key; returns whether it was present. The value is dropped after a grace period.
    /// Waits for a move that holds the bucket's lock.
    ///
    /// # Panics
    ///
    /// If the caller is in a section of the map's domain. An `OwnedGuard` is not detected; see the
    /// [module](self#which-operations-wait).
    pub fn remove(&self, key: u64) -> bool {
        self.refuse_sections();
        let bucket = self.bucket_of(key);
        let removed = {
            let _locked = self.lock(bucket);
            // SAFETY: `_locked` is the lock of the bucket, and only the address of the node leaves
            // its scope (1).
            let Some((link, node)) = (unsafe { self.link_to(bucket, key) }) else {
                return false;
            };
            // Relaxed: under the lock.
            lead(link, node.next.load(Relaxed));
            NonNull::from(node)
        };
        // Relaxed: a counter, which publishes nothing.
        self.len.fetch_sub(1, Relaxed);
        // SAFETY: kept by `insert`, and unlinked once. Not a box: readers may still use it.
        let node = unsafe { Shared::of(removed) };
        (self.domain).defer(default_weight::<Node<V>>(), move || drop(node));
        true
    }

    /// Gives the entry of one key another key, in one step. Changes nothing if both are equal.
    ///
    /// Waits until all sections of the map's domain that are running have ended, unless both keys
    /// have the same bucket. A thread that holds an [`OwnedGuard`](corewise_rcu::OwnedGuard) of the
    /// domain waits for itself for ever.
    ///
    /// A thread that does not find the entry under the old key finds it under the new one
    /// afterwards.
    ///
    /// # Errors
    ///
    /// [`MoveError`] if the old key has no entry, or the new key has one.
    ///
    /// # Panics
    ///
    /// If the caller is in a section of the map's domain, except that of an `OwnedGuard`.
    pub fn move_entry(&self, old: u64, new: u64) -> Result<(), MoveError> {
        self.refuse_sections();
        let (from, to) = (self.bucket_of(old), self.bucket_of(new));
        let locks = self.lock_both(from, to);
        // SAFETY: both buckets are locked until the end (1).
        let (link, node) = unsafe { self.link_to(from, old) }.ok_or(MoveError::NotFound)?;
        if old == new {
            return Ok(());
        }
        // SAFETY: both buckets are locked until the end (1).
        if unsafe { self.link_to(to, new) }.is_some() {
            return Err(MoveError::Occupied);
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
        // SAFETY: both buckets are locked until the end (1).
        lead(unsafe { self.end_of(to) }, ptr::from_ref(node).cast_mut());
        rename();
        let waits_early = mutant!("cross_link_waits_early");
        if waits_early {
            self.domain.synchronize();
        }
        // Relaxed: under the lock.
        lead(link, node.next.load(Relaxed));
        if !waits_early && !mutant!("cross_link_cuts_at_once") {
            self.domain.synchronize();
        }
        if mutant!("cross_link_cuts_unlocked") {
            drop(locks);
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
            // Relaxed: no other thread uses the map; here and below.
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

/// Why an entry was not moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MoveError {
    /// The old key has no entry.
    NotFound,
    /// The new key already has an entry.
    Occupied,
}

impl fmt::Display for MoveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            MoveError::NotFound => "there is no entry of the old key",
            MoveError::Occupied => "the new key has an entry already",
        })
    }
}

impl std::error::Error for MoveError {}

/// The node that a link leads to.
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

/// Makes a link lead to a node, which readers may not have seen yet, or to null.
fn lead<V>(link: &Link<V>, to: *mut Node<V>) {
    // Release: pairs with the Acquire in `follow`.
    link.store(to, Release);
}
