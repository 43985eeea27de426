//! Cache-line hash tables: a bucket is one cache line, and most operations touch no other.
//!
//! Paper: David, Guerraoui, Trigonakis, *Asynchronized Concurrency: The Secret to Scaling Concurrent Search Data
//! Structures*, ASPLOS 2015: its cache-line hash table, CLHT, in both its forms. They have one layout, look up in the
//! same way and are resized in the same way; they differ in how updates go on beside each other:
//!
//! | form | an update | writes, to insert, remove, replace | interrupted in the middle of it |
//! |---|---|---|---|
//! | [`LockBased`], CLHT-lb | locks its chain | an exchange, and 3, 1, 2 stores | it holds up all updates of the chain |
//! | [`LockFree`], CLHT-lf | is decided in one word | 2, 1, 2 exchanges, and 2, 0, 1 stores | it holds up nobody; a replacement, those of the same entry |
//!
//! All that is said below about lookups and moves is true of both; what is said about updates, of CLHT-lb.
//! [`lock_free`] has the other.
//!
//! # Layout
//!
//! ```text
//!  bucket: 64 bytes at a multiple of 64
//! ┌───────┬───────┬───────┬───────┬─────────┬─────────┬─────────┬──────┐
//! │ state │ key 0 │ key 1 │ key 2 │ value 0 │ value 1 │ value 2 │ next ├──▶ a bucket that overflows
//! └───┬───┴───────┴───────┴───────┴─────────┴─────────┴─────────┴──────┘    from this one, or null
//!     │  bit 63 ........................ 5   4   3   2     1      0
//!     └▶ entries removed from this bucket   slot is held  MOVED  LOCK
//! ```
//!
//! A slot holds an entry if its bit says so: no key and no value is reserved, and zeroed memory is an empty table.
//! The LOCK and MOVED bits of a chain are those of its first bucket. What overflows is taken from
//! chunks of the table, of up to 1 % of it, and hangs there until that is freed; its slots are used again.
//!
//! # Operations
//!
//! A *lookup* reads the state, compares the keys of the slots that are held, and where one is equal reads the value
//! and the state once more. If no entry of this bucket was removed in between, the pair is one; otherwise it looks at
//! the bucket again. At MOVED it goes on in the next table.
//!
//! An *update* looks first, without the lock. Unless that settles it, it locks the chain, looks again, and writes: an
//! insertion the key and the value in a free slot, then the state of the bucket with the slot's bit; a removal the
//! state alone, with the bit cleared and one more removal; a replacement the value alone. If the bucket is the first
//! of its chain, writing its state unlocks the chain, too.
//!
//! A *resize* goes as [`copy_map`](crate::copy_map) says. A group is a bucket of the smaller table and all of the
//! other whose entries go there or come from there. Its old buckets are locked, their entries copied, and MOVED set.
//!
//! # Why it is right
//!
//! - *A hit is a pair that was there.* A slot is written only while it is not held, and it is not held again before
//!   its bit was cleared, which counts a removal. Say a lookup read the state at some time, and then in a slot that
//!   was held a key or a value of a later entry. These are stored with Release, the removal was before, and the
//!   lookup has a fence (Acquire) between its loads and its second look: which therefore sees the removal. A value
//!   that replaced another belongs to the same entry. An insertion into another slot changes nothing that the lookup
//!   compares.
//! - *A miss needs no second look.* An entry stays in its slot until it is removed. If the key was there when the
//!   lookup began, its slot is held in whatever state is read later, or it was removed meanwhile; if the slot is
//!   held, it has the key, or was removed meanwhile. So if the lookup finds nothing there was a time during it when
//!   the key was not there. The same goes for a second look at one bucket, whose reason was a removal of that very
//!   entry or of another in its bucket.
//! - *Buckets that were moved do not change.* Updates lock the chain and MOVED means there is no lock to be had. So
//!   who is in an old chain when it is marked reads what was in the map at that time, which is during its own.
//! - *Nobody is in a new bucket before its entries are.* Hashes lead there from the old buckets of its group, once
//!   they are marked, which is after all of them were copied, or from `current`, when all groups are done.
//!
//! The original's lookup reads value, key, and the value again, and takes the pair if both are equal. That is sound
//! if a value is never used again while somebody looks (there, values are fresh addresses and memory is reclaimed
//! accordingly), and not for words of any kind: a lookup of B reads the value 7, which is A's; A is removed, B
//! inserted with 8 into the same slot; the lookup reads the key B; B is removed, A inserted with 7 again; the lookup
//! reads 7 once more and takes it for B's.
//!
//! # Guarantees
//!
//! The paper's four patterns for *asynchronized concurrency* are, in our words: (1) a search does not wait, write or
//! start again; (2) an update that is still looking for its place does neither; (3) an update that finds nothing to
//! do writes nothing; (4) one that does writes about as much as a sequential one.
//!
//! 1. *Lookups* write nothing and wait for nobody, not for a lock or a resize either (ASCY 1). They are lock-free and
//!    not wait-free: a bucket is looked at again if the key was there and an entry of that bucket was removed between
//!    two looks, some nanoseconds apart.
//! 2. *Updates* look before they lock, as lookups do (ASCY 2). The exception is
//!    [`insert`](crate::copy_map::CopyMapRef::insert), which writes in any case.
//! 3. *An update without effect writes nothing*: an insertion of a key that is there (`try_insert`), a removal or
//!    `update` of one that is not (ASCY 3). Only if another thread was faster it has locked the bucket in vain.
//! 4. *An update with effect* takes the lock and writes: three words to insert, one to remove, two to replace, in one
//!    line unless the bucket has overflowed (ASCY 4). Besides, an insertion or removal counts, in a line shared by a
//!    few threads.
//! 5. *Linearizable*, also beside a resize. A lookup that begins after an update has returned sees it.
//! 6. *Progress of updates*: those of one bucket wait for each other, for a handful of stores; while it is moved,
//!    until its group is (with hashing, and allocation of what overflows). A thread that is interrupted with the lock
//!    holds the others up.
//!
//! Besides, what [`copy_map`](crate::copy_map) promises of all its tables.
//!
//! # Limits
//!
//! | what | bound | beyond |
//! |---|---|---|
//! | keys and values | a word each: [`WordKey`](crate::WordKey), [`Word`](crate::Word) | |
//! | overflowing buckets | one for 8, if there is an entry for each bucket | the table doubles |
//! | removals from one bucket during one lookup | 2^59 | a wrong pair |
//! | processors | pointers of 64 bits | not compiled |
//!
//! An entry of 16 bytes takes 38 to 66 while a table grows, and up to 105 while there are two (example
//! `bytes_per_entry`).
//!
//! # Choices, and what was rejected
//!
//! - *Removals are counted, not changes*: with a version that insertions change as well, a lookup in a bucket that
//!   fills up would look twice for nothing.
//! - *A count for each slot*, so that removals of neighbours do not matter: 19 bits each, which a thread that lost
//!   its processor for a moment may miss the wrap of.
//! - *MOVED is a bit of the state*, so lookups need not ask whether there is a resize.
//! - *A bucket that was moved is updated in the new table* at once. In the original's library, its updates wait for
//!   the end of the resize.
//! - *Memory is asked for without the lock*: an insertion that needs a bucket locks twice.

mod bucket;
mod lock_based;
pub mod lock_free;
#[cfg(test)]
mod models;
mod overflow;
mod table;
#[cfg(all(test, not(any(corewise_loom, corewise_shuttle))))]
mod tests;

use std::ptr::NonNull;

use crate::copy_map::{BoxMap, CopyMap};
use crate::relativistic::DefaultHasher;

use table::Chains;

/// The table of [`LockBased`].
pub type LockBasedTable<K, V> = Chains<lock_based::LockBasedForm, K, V>;

/// CLHT-lb: updates lock their chain, lookups cost one cache line and write nothing. See the [module](self).
///
/// ```
/// use corewise_maps::clht::LockBased;
///
/// let prices: LockBased<u32, f64> = LockBased::new();
/// prices.pin().insert(7, 1.25).unwrap();
/// assert_eq!(prices.pin().update(&7, |price| price * 2.0), Some(2.5));
/// ```
pub type LockBased<K, V, S = DefaultHasher> = CopyMap<LockBasedTable<K, V>, S>;

/// CLHT-lb with values of any type, in boxes. See [`BoxMap`].
pub type Boxed<K, V, S = DefaultHasher> = BoxMap<V, LockBasedTable<K, NonNull<V>>, S>;

/// The table of [`LockFree`].
pub type LockFreeTable<K, V> = Chains<lock_free::LockFreeForm, K, V>;

/// CLHT-lf: insertions and removals are decided by one exchange of a word, lookups cost one cache line and write
/// nothing. See [`lock_free`].
///
/// ```
/// use corewise_maps::clht::LockFree;
///
/// let prices: LockFree<u32, f64> = LockFree::new();
/// prices.pin().insert(7, 1.25).unwrap();
/// assert_eq!(prices.pin().update(&7, |price| price * 2.0), Some(2.5));
/// ```
pub type LockFree<K, V, S = DefaultHasher> = CopyMap<LockFreeTable<K, V>, S>;
