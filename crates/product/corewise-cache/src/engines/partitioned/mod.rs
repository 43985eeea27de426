//! Partitions of [`corewise_cphash`] whose elements are items.
//!
//! ```text
//!  element │ header, 40 │ 8 │ links, 8 │ header, 24 │ client flags │ key │ value │ unused
//!          └ corewise_cphash ┴ the item, as in `item.rs` ────────────────────────┘
//! ```
//!
//! [`Partition`] owns the items, the eviction order and the accounting of its part of the hashes.
//! [`Execution`] executes one operation on it. Both run while the caller has the partition
//! exclusively, and know neither locks nor messages.

mod exec;
mod partition;

pub(super) use exec::Execution;
pub(super) use partition::{Partition, Rules};

/// The index of the partition, of `count`, that a hash belongs to; `count` is a power of two.
#[inline]
pub(super) fn index_of(hash: u64, count: usize) -> usize {
    // The ID of an element is the lower 60 bits, which the partition mixes before it uses them.
    (hash >> 40) as usize & (count - 1)
}
