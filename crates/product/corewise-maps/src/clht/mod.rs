//! Cache-line hash tables (CLHT): a bucket is one cache line, and most operations touch only one.
//!
//! Paper: \[CLHT\] (David, Guerraoui, Trigonakis, *Asynchronized Concurrency: The Secret to Scaling
//! Concurrent Search Data Structures*, ASPLOS 2015). This is its lock-based variant, CLHT-lb: an
//! update locks its chain. It writes one exchange and 3, 1 or 2 stores to insert, remove or
//! replace. If its thread is preempted meanwhile, the other updates of the chain wait.
//!
//! # Layout
//!
//! ```text
//!  bucket: 64 bytes at a multiple of 64
//! ┌───────┬───────┬───────┬───────┬─────────┬─────────┬─────────┬──────┐
//! │ state │ key 0 │ key 1 │ key 2 │ value 0 │ value 1 │ value 2 │ next ├──▶ the overflow bucket of
//! └───┬───┴───────┴───────┴───────┴─────────┴─────────┴─────────┴──────┘    this one, or null
//!     │  bit 63 ........................ 5   4   3   2     1      0
//!     └▶ entries removed from this bucket   slot is used  MOVED  LOCK
//! ```
//!
//! A slot holds an entry if its bit is set. No key and no value is reserved, and zeroed memory is
//! an empty table. The LOCK and MOVED bits of a chain are those of its first bucket. Overflow
//! buckets come from chunks that belong to the table, each up to 1 % of its size. An overflow
//! bucket stays in its chain until the table is freed; its slots are reused.
//!
//! # Operations
//!
//! A *lookup* reads the state and compares the keys of the used slots. If one is equal, it reads
//! the value, then the state again. If no entry of this bucket was removed in between, the key and
//! the value belong together; otherwise the lookup searches the bucket again. If it finds MOVED, it
//! continues in the next table.
//!
//! An *update* first searches without the lock. If that does not decide the outcome, it locks the
//! chain, searches again, and writes. An insertion writes the key and the value to a free slot,
//! then the state of the bucket with the slot's bit set. A removal writes the state alone, with the
//! bit cleared and the count of removals incremented. A replacement writes the value alone. If the
//! bucket is the first of its chain, writing its state also unlocks the chain.
//!
//! A *resize* works as described in [`copy_map`](crate::copy_map). A group is a bucket of the
//! smaller table and the buckets of the other table that it is divided into or merged from. The
//! resize locks the old buckets of a group, copies their entries, and sets MOVED.
//!
//! # Correctness
//!
//! - *A hit returns a pair that was in the table.* A slot is written only while it is free, and it
//!   becomes free only when its bit is cleared, which counts a removal. Suppose that a lookup reads
//!   the state, and then, from a slot that was used, a key or a value of a later entry. The later
//!   entry was stored with Release, after the removal, and the lookup has an Acquire fence between
//!   these loads and its second load of the state. So the second load sees the removal. A value
//!   that replaced another one belongs to the same entry. An insertion into another slot changes
//!   nothing that the lookup compares.
//! - *A miss needs no second load.* An entry stays in its slot until it is removed. If the key was
//!   present when the lookup began, then in every state that is read later its slot is used, or the
//!   entry was removed meanwhile; if the slot is used, it has the key, or the entry was removed
//!   meanwhile. So if the lookup finds nothing, there was a time during the lookup at which the key
//!   was absent. The same holds when a bucket is searched again: the reason was a removal of that
//!   entry or of another one in its bucket.
//! - *Moved buckets do not change.* Updates lock the chain, and a chain with MOVED set cannot be
//!   locked. So a reader that is in an old chain when MOVED is set reads the contents of the map at
//!   that time, which lies within its call.
//! - *New buckets are not visible before their entries.* A thread reaches a new bucket through the
//!   old buckets of its group, which are marked after all of their entries were copied, or through
//!   `current`, which is changed when all groups are moved.
//!
//! The lookup of the paper reads the value, the key, and the value again, and accepts the pair if
//! both values are equal. That is sound only if no value is reused while a lookup runs. It holds in
//! the original, where values are fresh addresses and memory is reclaimed accordingly, but not for
//! arbitrary words: a lookup of B reads the value 7, which is A's; A is removed, and B is inserted
//! with 8 into the same slot; the lookup reads the key B; B is removed, and A is inserted with 7
//! again; the lookup reads 7 once more and takes it for B's value.
//!
//! # Guarantees
//!
//! The paper states four patterns of *asynchronized concurrency* (ASCY). In our words: (1) a search
//! does not wait, write or restart; (2) neither does an update while it searches for its place; (3)
//! an update without effect writes nothing; (4) an update with effect writes about as much as a
//! sequential one.
//!
//! 1. *Lookups* write nothing and never wait, neither for a lock nor for a resize (ASCY 1). They
//!    are lock-free but not wait-free: a bucket is searched again if the key was found and an entry
//!    of that bucket was removed between the two loads of the state, which are some nanoseconds
//!    apart.
//! 2. *Updates* search before they lock, as lookups do (ASCY 2). The exception is
//!    [`insert`](crate::copy_map::CopyMapRef::insert), which writes in any case.
//! 3. *An update without effect writes nothing* (ASCY 3): an insertion of a present key
//!    (`try_insert`), and a removal or `update` of an absent one. The exception is an update that
//!    locks the bucket and then finds that another thread was faster.
//! 4. *An update with effect* takes the lock and writes three words to insert, one to remove, two
//!    to replace, all in one cache line unless the bucket has overflowed (ASCY 4). An insertion or
//!    removal also updates an entry count, in a cache line shared by a few threads.
//! 5. *Linearizable*, also during a resize. A lookup that begins after an update has returned sees
//!    it.
//! 6. *Progress of updates*: updates of one bucket wait for each other, for a handful of stores.
//!    While the bucket is moved, they wait until its group is moved, which includes hashing and the
//!    allocation of overflow buckets. A thread that is preempted while it holds the lock blocks the
//!    others.
//!
//! The guarantees of [`copy_map`](crate::copy_map) hold as well.
//!
//! # Limits
//!
//! | what | bound | beyond |
//! |---|---|---|
//! | keys and values | a word each: [`WordKey`](crate::WordKey), [`Word`](crate::Word) | |
//! | overflow buckets | one per 8 buckets, once there is an entry per bucket | the table grows |
//! | removals from one bucket during one lookup | 2^59 | a wrong pair |
//! | platforms | 64-bit pointers | does not compile |
//!
//! An entry of 16 bytes takes 38 to 66 bytes in a table that grows, and up to 105 while two tables
//! exist (example `bytes_per_entry`). In a table below 1 MiB, which quadruples, it takes up to 185.
//! Overflow buckets stay in their chain when they are empty, so a table whose keys come and go at a
//! constant number takes several times as much in the end.
//!
//! # Choices and rejected designs
//!
//! - *The state counts removals, not all changes.* With a version that insertions change as well,
//!   lookups in a bucket that fills up would search twice for nothing.
//! - *Rejected: a count for each slot*, so that removals of neighbours do not matter. Each count
//!   would have 19 bits, and a thread that is preempted for a moment could miss a wrap.
//! - *MOVED is a bit of the state*, so lookups need no separate check for a resize.
//! - *A moved bucket is updated in the new table* at once. In the original library, its updates
//!   wait for the end of the resize.
//! - *Memory is allocated without the lock*: an insertion that needs an overflow bucket locks
//!   twice.

pub(crate) mod bucket;
pub(crate) mod lock_based;
pub(crate) mod overflow;
pub(crate) mod table;

use crate::copy_map::{CopyMap, Unlimited, operations};
use crate::relativistic::DefaultHasher;

use table::ClhtTable;

/// The table of [`LockBased`].
pub type LockBasedTable<K, V> = ClhtTable<lock_based::LockBasedForm, K, V>;

/// CLHT-lb: a map of words whose updates lock their chain, and whose lookups cost one cache line
/// and write nothing. See the [module](self) for how it works.
///
/// It is the table to begin with if keys and values are a [`Word`](crate::Word) each: the fastest
/// one in most workloads. Other keys and larger values need
/// [`CuckooMap`](crate::cuckoo::CuckooMap) or, for any types,
/// [`RelativisticMap`](crate::RelativisticMap). With `()` as its values it is a set.
///
/// ```
/// use corewise_maps::clht::LockBased;
///
/// let visits = LockBased::<u64, u32>::with_capacity(1_000);
/// std::thread::scope(|scope| {
///     for _ in 0..4 {
///         scope.spawn(|| {
///             for page in 0..100 {
///                 visits.pin().update_or_insert(page, |n| n + 1, 1);
///             }
///         });
///     }
/// });
/// visits.pin().retain(|page, _| page % 2 == 0);
/// assert!((visits.len(), visits.pin().get(&8)) == (50, Some(4)));
/// ```
///
/// The methods below are those of [`CopyMap`]. Its handle, from [`pin`](CopyMap::pin), has:
///
#[doc = operations!("CopyMapRef")]
pub type LockBased<K, V, S = DefaultHasher, L = Unlimited> = CopyMap<LockBasedTable<K, V>, S, L>;
