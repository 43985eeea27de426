//! The engine `global-lock`: one lock over one table, and a reference count in every item.
//!
//! What memcached's default engine did when the relativistic table was measured against it (Triplett,
//! McKenney and Walpole, USENIX ATC 2011, sections 5 and 6.2): one lock guards the table and the LRU
//! list, and a GET that finds its item holds a reference to it from the lookup until its reply is made,
//! so a hit takes the lock twice.
//!
//! ```text
//!   GET   lock │ look up, bump, references += 1 │ unlock   reply from the item   lock │ references -= 1 │ unlock
//!   SET   allocate, copy the value   lock │ link │ unlock   free what it replaces
//! ```
//!
//! It is there to be compared with and is no engine to choose. It is [`locked`](super::locked) with one
//! shard and [`ReferenceCount`] for its discipline, so a figure of the three engines differs in nothing
//! but what it shows. `corewise bench server --figure atc11-8` draws it.
//!
//! # Guarantees
//!
//! Those of [`locked`](super::locked), and:
//!
//! 1. A reply is made outside of the lock. The item that it is made of is not freed before, whatever
//!    becomes of its key meanwhile: whoever unlinks an item that has references leaves it to the one
//!    who drops the last.
//! 2. A session holds one reference at a time. So unlinked items that are still being replied with are
//!    at most one for each session; they are not charged against the budget.
//! 3. Progress: blocking, for every operation on any key.
//!
//! # Differences from memcached 1.4
//!
//! * A reply is copied to the event loop's output, and the reference dropped then; memcached writes
//!   from the item itself and drops the reference after the system call. The lock is taken as often,
//!   at other moments. Large values, which the server sends without a copy, do leave from the item.
//! * A SET takes the lock once. memcached takes it three times (allocate, link, drop the reference), so
//!   this is a stronger baseline where much is stored.
//! * Misses and stores are answered inside the lock; those replies are a few fixed bytes.
//! * Bumping: a hit moves its item if it was not moved for a minute, as in memcached, or for less where
//!   items are evicted within minutes.

use super::locked::{Locked, ReferenceCount};
use crate::alloc::GlobalHeap;

/// The engine. See the [module](self).
///
/// ```
/// use corewise_cache::Engine;
/// use corewise_cache::engines::global_lock::GlobalLock;
/// use corewise_cache::engines::locked::Config;
///
/// let cache = GlobalLock::new(Config { threads: 12, ..Config::default() });
/// assert_eq!((cache.name(), cache.stats().shards), ("global-lock", 1));
/// ```
pub type GlobalLock<A = GlobalHeap> = Locked<A, ReferenceCount>;
