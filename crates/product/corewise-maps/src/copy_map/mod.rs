//! Maps of `Copy` keys and values stored in place: one façade for the tables of
//! [`clht`](crate::clht) and [`cuckoo`](crate::cuckoo).
//!
//! A table whose entries lie in its buckets has no nodes to free and cannot hand out references:
//! its operations take and return copies. This module holds what these tables share: [`CopyMap`]
//! with its [`Builder`], its handle [`CopyMapRef`] and its [`Iter`]; growth; and the freeing of
//! replaced tables. Each table defines where an entry lies, how it is found and changed under
//! concurrency, and how a group of buckets is moved.
//!
//! ```text
//!  CopyMap        TableVersion       buckets       TableVersion, while it is resized
//! ┌─────────┐      ┌───────┐       ┌──┬──┬──┬─ ─     ┌───────┐
//! │ current ├─────▶│ table ├──────▶│  │  │M │        │ table ├──▶ ...
//! └─────────┘      │ next  ├────┐  └──┴──┴──┴─ ─     │ next  │
//!                  └───────┘    └───────────────────▶└───────┘
//! ```
//!
//! # Resizing
//!
//! A table that grows by itself doubles, or quadruples while its arrays take less than 512 KiB and
//! the map has no byte limit: so it grows half as often, for 2 MiB at most.
//!
//! A resize links a successor to the current table. Every update then moves a few groups of
//! buckets. A group is one bucket of the smaller table together with all buckets of the larger one
//! whose entries go there or come from there. A moved bucket is marked, and operations that see the
//! mark continue in the successor. The thread that moves the last group makes the successor the
//! current table. The old table is freed a grace period later, one share per update.
//!
//! A group that does not fit in the new table stays where it is, so a resize can stall halfway.
//! [`CopyMap::resize_to`] prevents this where it is likely, that is, if the new table is smaller or
//! the map has a byte limit. Before it links the new table, it copies every group into it and wipes
//! it again. If there is memory for the overflow buckets, the new table keeps them. Otherwise the
//! new table is dropped.
//!
//! # The longest update of a map that grows
//!
//! Some updates also begin a resize, move a share or free one, and their callers cannot know that
//! in advance. The table shows what takes the time (measured 2026-11, two shared processors of a
//! virtual machine, growth to 10^6 entries, example `longest_wait` of commit `d11e241`; thread CPU
//! time, since the time taken by other threads is more than all of this):
//!
//! | what | before | now |
//! |---|---|---|
//! | freeing CLHT's table of 16 MiB | 3 to 8 ms: walks every chain, frees each overflow bucket separately | 2 MiB at a time: 0.2 to 0.5 ms with pages of 4 KiB, next to nothing with huge ones |
//! | the C library's allocator afterwards, in the next bucket that overflows | 1 to 4 ms: it consolidates the small pieces | overflow buckets come in chunks |
//! | freeing tables of the others | 0.4 to 2 ms | the same shares |
//! | moving a share to untouched pages | 2 or more huge pages: 10 to 11 ms, or 0.4 if the machine has the memory at hand | one huge page, by an update that does nothing else: 5 to 7 ms, or 0.2 |
//! | allocating the successor | 0.1 to 0.4 ms | the same |
//!
//! What remains is one huge page: clearing 2 MiB, or obtaining it where the host takes back unused
//! memory. Without huge pages (`PR_SET_THP_DISABLE`) all of this takes an update 0.5 ms at most,
//! and larger tables miss in the TLB more often.
//!
//! # Guarantees
//!
//! These hold for every table; each table's module adds its own.
//!
//! 1. *Linearizable*, also during a resize: every operation on one key. (Those on all entries
//!    perform one such operation for each key that [`iter`](CopyMapRef::iter) returns;
//!    [`len`](CopyMap::len) is a count.)
//! 2. *No operation waits for readers* except [`CopyMap::resize_to`] and [`CopyMap::settle`], and
//!    these wait without a lock.
//! 3. *Out of memory*, nothing is lost. An insertion that needs memory changes nothing: it returns
//!    [`Full`] if the map has a byte limit, and otherwise panics ([`Limit`]). A growth does not
//!    begin. [`CopyMap::resize_to`] returns an error and leaves the map as it was, unless other
//!    threads insert meanwhile: then, and while a map grows by itself, groups whose entries do not
//!    fit in the new table stay in the old one, and later updates try again. Such a group keeps the
//!    overflow buckets that it has found so far; another insertion may lack them.
//! 4. *Foreign code* (a hasher, the closure of an operation) runs without a lock, except the hasher
//!    while entries are moved: there it must not use the map, since it may wait for its own thread.
//!    If it panics there, the buckets being moved are unlocked and unchanged. An operation calls
//!    foreign code before it changes anything or after it has taken effect. A closure that decides
//!    about an entry runs once for a value, and again if the value was changed meanwhile; if a pair
//!    of the types has padding, also if the entry was moved, since tables compare the bytes of
//!    pairs. If hashers or comparisons are inconsistent, entries may be missed or occur twice, an
//!    operation may repeat for as long as they contradict themselves, and [`len`](CopyMap::len) may
//!    differ from the number of entries from then on; still, no value is taken out twice.
//! 5. *Iterations, [`retain`](CopyMapRef::retain), [`extract_if`](CopyMapRef::extract_if),
//!    [`clear`](CopyMapRef::clear) and [`drain`](CopyMapRef::drain)* visit a key that is present
//!    throughout exactly once, whatever updates and resizes run beside them. An entry goes to one
//!    operation: what `drain` or `extract_if` returns, no other operation has removed. `retain` and
//!    `extract_if` remove an entry only with a value that they have decided about.
//! 6. *Nothing is locked between calls*: a handle may be held for any time and used together with
//!    others of the same map. It delays no thread; it only keeps memory replaced since then from
//!    being freed.
//!
//! # Limits
//!
//! | what | bound | beyond |
//! |---|---|---|
//! | buckets | [`Builder::max_buckets`] | chains get longer |
//! | bytes of buckets | [`Builder::max_bytes`], memory | [`Full`] |
//! | replaced tables that wait for readers | those in use while a section lasts; freed by updates, 2 MiB each, or at once by an update that finds no memory and by [`CopyMap::settle`] | |
//!
//! # Choices, and rejected alternatives
//!
//! - *One operation of the tables, [`Table::change`], for everything that depends on a value*: it
//!   looks the value up, asks a closure without a lock, and carries the decision out if the value
//!   is still the same. An operation that inserts if the key is absent tries that and an insertion
//!   in turn, until one of them has effect. Each of them alone decides when the operation takes
//!   effect, so a table needs nothing else to be linearizable.
//! - *The aliases are the documented types*, and not types that wrap the maps. Rustdoc adds the
//!   methods of a map to the page of its alias, and the macro `operations` a list of its handle's:
//!   one line for each alias. Wrappers would repeat some forty methods and twenty traits for six
//!   aliases and their handles.
//! - *A resize has one successor*: the next resize begins when everything is moved. With stacked
//!   resizes lookups would pass through several tables.
//! - *Helpers try groups and do not wait for them*: a thread that moves a group delays the
//!   operations on that group only. An insertion that finds no memory does wait, for its own group:
//!   moved, it may have room.
//! - *Pages of the successor are faulted in before they are needed*, by updates that do nothing
//!   else, and not all when the successor is made: that would be the same wait, dozens of times in
//!   one update.
//! - *A failed shrink is not rolled back*: moved groups would have to return to buckets that
//!   lookups may still be reading and whose moved marks are permanent. Trying it on a copy first
//!   costs a second walk over the entries, in explicit resizes only.
//! - *It does not shrink by itself*: crowded buckets say little about how many are empty.

/// The operations of a handle, as a table for the pages of types: a type alias has no page with
/// methods of the handle.
macro_rules! operations {
    ($handle:literal) => {
        operations!(@ "](crate::copy_map::", $handle)
    };
    (@ $path:literal, $handle:literal) => {
        concat!(
            "| to | use |\n|---|---|\n",
            operations!(@ "| look up", $path, $handle, "get", "get_many", "contains_key"),
            operations!(
                @ "| insert", $path, $handle,
                "insert", "try_insert", "get_or_insert", "get_or_insert_with"
            ),
            operations!(
                @ "| change", $path, $handle,
                "update", "update_or_insert", "update_or_insert_with", "compute"
            ),
            operations!(@ "| remove", $path, $handle, "remove", "remove_if"),
            operations!(
                @ "| visit all entries", $path, $handle,
                "iter", "keys", "values", "retain", "extract_if", "drain", "clear"
            ),
            "\nThose of the first four rows are linearizable. Closures run without a lock and may ",
            "use the map; one that decides about an entry runs again if the entry was changed ",
            "meanwhile. If a closure panics, its operation has changed nothing.",
        )
    };
    (@ $what:literal, $path:literal, $handle:literal, $first:literal $(, $name:literal)*) => {
        concat!(
            $what, " | [`", $first, "`", $path, $handle, "::", $first, ")",
            $(", [`", $name, "`", $path, $handle, "::", $name, ")",)*
            " |\n",
        )
    };
}

pub(crate) use operations;

mod builder;
mod direct;
mod handle;
mod iter;
mod limit;
mod map;
pub(crate) mod memory_budget;
#[cfg(any(test, feature = "raw"))]
pub mod numbers;
pub(crate) mod table_version;
mod traits;

pub use crate::relativistic::Operation;
pub use builder::Builder;
pub use direct::PinnedIter;
pub use handle::{Computed, CopyMapRef};
#[cfg(feature = "rayon")]
pub use iter::ParIter;
pub use iter::{IntoIter, Iter, Keys, Values};
pub use limit::{Limit, Limited, Unlimited};
pub use map::CopyMap;
pub use table_version::Table;
pub(crate) use table_version::{
    EntryChange, HeldBucket, Moved, Moving, NoMemory, Put, ResizeStep, TableVersion, grows_by,
};

/// There is no memory for another entry; see [`Builder::max_bytes`] and [`Limit`].
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
    /// The key is present, with this value.
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
