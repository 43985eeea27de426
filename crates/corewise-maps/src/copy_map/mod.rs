//! Maps of `Copy` keys and values, kept in place: one façade for the tables of [`clht`](crate::clht),
//! [`hopscotch`](crate::hopscotch) and [`cuckoo`](crate::cuckoo).
//!
//! A table whose entries lie in its buckets has no nodes to free, and so nothing to hand out references to: its
//! operations take and return copies. What such tables have in common is here: [`CopyMap`] with its [`Builder`], its
//! handle [`CopyMapRef`] and its [`Iter`]; [`BoxMap`] for values that are not `Copy`; how they grow; and how tables that were replaced are freed. A table
//! itself says where an entry lies, how it is found and changed beside others, and how a group of buckets is moved.
//!
//! ```text
//!  CopyMap          Stage            buckets           Stage, while it is resized
//! ┌─────────┐      ┌───────┐       ┌──┬──┬──┬─ ─     ┌───────┐
//! │ current ├─────▶│ table ├──────▶│  │  │M │        │ table ├──▶ ...
//! └─────────┘      │ next  ├────┐  └──┴──┴──┴─ ─     │ next  │
//!                  └───────┘    └───────────────────▶└───────┘
//! ```
//!
//! # Resizing
//!
//! A resize hangs a table on the current one. Whoever has updated something moves a few groups of buckets: a group
//! is a bucket of the smaller table and all of the other whose entries go there or come from there. Buckets that were moved say so, and operations go on in the successor. Who moves the
//! last group makes the new table the current one; the old one is freed a grace period later, a share by each update.
//!
//! A group that does not fit in the new table stays where it is, and so a resize can be held up in the middle.
//! [`CopyMap::resize_to`] avoids this where it can be expected, which is if the new table is smaller or the map has a limit
//! of bytes. Before it hangs the new table on the current one, it copies every group into it and wipes it again. If
//! there is memory for what overflows then, the table keeps that memory. If there is not, the table is dropped.
//!
//! # The longest update of a map that grows
//!
//! An update that also begins a resize, moves a share or frees one is a long one, and its thread knows nothing of it.
//! What takes that long was measured (2026-11, two shared processors of a virtual machine, growth to 10^6 entries,
//! example `longest_wait`; of its thread's own time, since what others take is more than all of this):
//!
//! | what | before | now |
//! |---|---|---|
//! | freeing CLHT's table of 16 MiB | 3 to 8 ms: a look at every chain, each bucket that had overflowed by itself | 2 MiB at a time: 0.2 to 0.5 ms with pages of 4 KiB, next to nothing with huge ones |
//! | the C library's allocator afterwards, in the next bucket that overflows | 1 to 4 ms: it put the small pieces in order | they come in chunks |
//! | freeing tables of the others | 0.4 to 2 ms | the same shares |
//! | moving a share to pages that nobody has touched | 2 huge pages and more: 10 to 11 ms, or 0.4 if the machine has the memory at hand | one of them, by an update that does nothing else: 5 to 7 ms, or 0.2 |
//! | allocating the successor | 0.1 to 0.4 ms | the same |
//!
//! What is left is one huge page: clearing 2 MiB, or finding them where the host takes back what is not used.
//! Without huge pages (`PR_SET_THP_DISABLE`) all of this takes an update 0.5 ms at most, and larger tables miss
//! the address caches more often.
//!
//! # Guarantees
//!
//! These hold for every table; its own module says what else does.
//!
//! 1. *Linearizable*, also beside a resize: every operation but [`len`](CopyMap::len) and [`iter`](CopyMapRef::iter).
//! 2. *Nobody waits for readers* but [`CopyMap::resize_to`] and [`CopyMap::settle`], and these without a lock.
//! 3. *Without memory* nothing is lost. An insertion that needs some says [`Full`], with nothing changed. A growth does
//!    not begin. [`CopyMap::resize_to`] says so and leaves the map as it was, unless other threads insert meanwhile:
//!    then, and while a map grows by itself, groups whose entries do not fit in the new table stay in the old one, and
//!    later updates try again.
//! 4. *Foreign code* (a hasher, the closure of `update`) runs without a lock, but for the hasher while entries are
//!    moved; if it panics there, what is being moved is unlocked and as before. An operation calls foreign code before it
//!    changes something, or when it has taken effect. Whatever a hasher says, a value of a [`BoxMap`] is dropped once.
//! 5. *Nothing is locked between calls*: a handle may be held as long as wanted, and used with others of the same
//!    map. It delays nobody; only memory that was replaced since cannot be freed.
//!
//! # Limits
//!
//! | what | bound | beyond |
//! |---|---|---|
//! | buckets | [`Builder::max_buckets`] | chains get longer |
//! | bytes of buckets | [`Builder::max_bytes`], memory | [`Full`] |
//! | tables that wait for readers | what was in use while a section lasts; freed by updates, 2 MiB each, or at once by one that finds no memory and by [`CopyMap::settle`] | |
//!
//! # Choices, and what was rejected
//!
//! - *A resize has one successor*: the next one begins when all is moved. Stacked ones would let lookups pass through
//!   several tables.
//! - *Groups are tried, not waited for*, by those who help: a thread that moves one holds up no more than its group.
//! - *Pages of the successor are put in place before they are needed*, by updates that do only that, and not all when it
//!   is made: that would be the same wait, dozens of times in one update.
//! - *A failed shrink is not taken back*: groups that were moved would have to be moved back, to buckets in which lookups
//!   may still be, and whose marks say for good that they were moved. To try it on a copy first costs a second walk over
//!   the entries, of resizes that somebody asked for.
//! - *It does not shrink by itself*: what is crowded says little about what is empty.

mod boxed;
mod iter;
mod map;
#[cfg(test)]
pub(crate) mod models;
#[cfg(test)]
pub(crate) mod numbers;
pub(crate) mod space;
mod stage;
#[cfg(all(test, not(any(corewise_loom, corewise_shuttle))))]
mod tests;

pub use boxed::{BoxMap, BoxMapRef, Refused};
pub use iter::Iter;
pub use map::{Builder, CopyMap, CopyMapRef};
pub use stage::Table;
pub(crate) use stage::{Held, Moved, Moving, NoMemory, Put, Stage, Step};

/// There is no memory for another entry; see [`Builder::max_bytes`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

impl std::fmt::Display for Full {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("there is no memory for another entry")
    }
}

impl std::error::Error for Full {}

/// Why [`CopyMapRef::try_insert`] did not insert.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TryInsertError<V> {
    /// The key is there, with this value.
    Occupied(V),
    /// See [`Full`].
    Full,
}

impl<V> std::fmt::Display for TryInsertError<V> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            TryInsertError::Occupied(_) => f.write_str("the key is there"),
            TryInsertError::Full => Full.fmt(f),
        }
    }
}

impl<V: std::fmt::Debug> std::error::Error for TryInsertError<V> {}
