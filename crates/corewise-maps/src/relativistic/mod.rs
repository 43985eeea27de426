//! The relativistic hash table.
mod iter;
mod map;
#[cfg(test)]
mod models;
mod ops;
mod owned;
mod raw;
mod resize;
mod slab;
mod table;
mod traits;
mod word;

#[cfg(feature = "rayon")]
pub use iter::ParIter;
pub use iter::{Iter, Keys, Values};
pub use map::{Builder, DefaultHasher, MapRef, RelativisticMap};
pub use ops::{Changed, Compute, Entry, OccupiedEntry, OccupiedError, Operation, VacantEntry};
pub use raw::{Link, Policy, RawIter, RawTable};
pub use resize::{ResizeError, ResizeState};
