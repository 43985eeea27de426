//! A bounded concurrent cache: [`Cache<K, V>`].
//!
//! Entries are in a [`RelativisticMap`]. Eviction is S3-FIFO (Yang et al., SOSP 2023): the small
//! queue has a tenth of the weight. Updates share one lock; lookups take none.
//!
//! # Guarantees
//!
//! 1. *Order*: a lookup that finds a value sees all that happened before its insertion.
//! 2. *Linearizability*: `get`, `insert` and `remove` of a key are linearizable, except that an
//!    entry may leave at any time, by eviction or expiry.
//! 3. *Progress*: lookups are wait-free and run beside everything. Updates wait for each other.
//! 4. *Hits* write the entry's frequency only when it changes (it stops at 3), with a time to idle
//!    the time of the last access when it changed, and a counter of the thread's stripe.
//! 5. *Weight*: insertions of new keys make room first; replacing a value with a heavier one
//!    exceeds the maximum by at most that entry, until the call has evicted others.
//! 6. *Listener*: called once for each value that leaves, after the lock is released; not for
//!    values that the cache still has when it is dropped. If it panics, what else the same call
//!    removed is not reported.
//! 7. *Initialisers*: of calls of `get_with` for one key that overlap, one runs its initialiser.
//!    If that fails, panics or its future is dropped, the others try again. An initialiser that
//!    asks for its own key waits for itself forever.
//!
//! Values are dropped after the readers that may use them have left, which may be later than their
//! removal. `Drop`, `Hash` and `Eq` of keys and values must not call the cache.
#![forbid(unsafe_code)]

mod builder;
mod cache;
#[cfg(doctest)]
mod compile_fail;
mod flight;
mod initialise;
mod policy;
/// Its program, as a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}
mod stats;

pub use builder::Builder;
pub use cache::{Cache, RemovalCause, TooHeavy};
pub use stats::Statistics;

#[cfg(doc)]
use corewise_maps::RelativisticMap;
