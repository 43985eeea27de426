//! What memcached does, without eviction, limits and threads: the oracle of engines and codecs.
//!
//! [`MemcachedModel`] executes the operations of `corewise-ops`, a few lines for each verb.
//! Differential tests compare engines with it; tests of codecs and of the event loop of the server
//! use it as an engine. [`Seen`] is an owned outcome that can be compared.

mod model;
mod seen;

pub use model::{MemcachedModel, ModelItem};
pub use seen::{Collect, Seen, SeenSet};
