//! Cache-line hash tables: a bucket is one cache line, and most operations touch no other.

mod bucket;
mod iter;
mod lock_based;
#[cfg(test)]
mod models;
mod space;
mod table;

pub use iter::Iter;
pub use lock_based::{Builder, LockBased, LockBasedRef};

/// There is no memory for another entry; see [`Builder::max_bytes`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

impl std::fmt::Display for Full {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("there is no memory for another entry")
    }
}

impl std::error::Error for Full {}

/// Why [`LockBasedRef::try_insert`] did not insert.
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
