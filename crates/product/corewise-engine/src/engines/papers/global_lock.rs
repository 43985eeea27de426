//! The engine `global-lock`: one lock over one table, and a reference count in every item.
//!
//! It follows memcached's default engine as \[ATC11\] §5 and §6.2 measured it against the
//! relativistic table: one lock guards the table and the LRU list. A GET that finds its item holds
//! a reference to it from the lookup until its reply is made, so a hit takes the lock twice.
//!
//! ```text
//!   GET   lock │ find, bump, references += 1 │ unlock   reply   lock │ references -= 1 │ unlock
//!   SET   allocate, copy the value   lock │ link │ unlock   free the old item
//! ```
//!
//! The engine exists for comparison; it is not meant for use. It is
//! [`locked`](crate::engines::locked) with one shard and [`ReferenceCount`] as its discipline, so a
//! figure of the three engines differs in nothing else. `corewise bench server --figure atc11-8`
//! draws the figure.
//!
//! # Guarantees
//!
//! The guarantees of [`locked`](crate::engines::locked), and:
//!
//! 1. A reply is made outside the lock. Its item is not freed before, whatever happens to its key
//!    meanwhile: a thread that unlinks a referenced item leaves it to the session that drops the
//!    last reference.
//! 2. A session holds one reference at a time. So there is at most one unlinked item in a reply per
//!    session; such items are not charged against the budget.
//! 3. Progress: blocking, for every operation on any key.
//!
//! # Differences from memcached 1.4
//!
//! * A reply is copied to the event loop's output, and the reference is dropped then. memcached
//!   writes from the item itself and drops the reference after the system call. The lock is taken
//!   equally often, at other moments. Large values, which the server sends without a copy, do leave
//!   from the item.
//! * A SET takes the lock once. memcached takes it three times (allocate, link, drop the
//!   reference), so this is a stronger baseline for store-heavy workloads.
//! * Misses and stores are answered inside the lock; those replies are a few fixed bytes.
//! * Bumping: a hit moves its item if it was not moved for a minute, as in memcached, or for less
//!   where items are evicted within minutes.

use crate::alloc::GlobalHeap;
use crate::engines::locked::{Locked, ReferenceCount};

/// The engine. See the [module](self).
///
/// ```
/// use corewise_engine::Engine;
/// use corewise_engine::engines::global_lock::GlobalLock;
/// use corewise_engine::engines::locked::Config;
///
/// let cache = GlobalLock::new(Config { threads: 12, ..Config::default() });
/// assert_eq!((cache.name(), cache.stats().shards), ("global-lock", 1));
/// ```
pub type GlobalLock<A = GlobalHeap> = Locked<A, ReferenceCount>;
