//! What memcached does, without eviction, limits and threads: the oracle of engines and codecs.
//!
//! [`Model`] executes the operations of `corewise-ops`, a few lines for each verb. Differential
//! tests compare engines with it; tests of codecs and of the server's event loop use it as an
//! engine. [`Seen`] is an owned outcome that can be compared.

mod model;
mod seen;

pub use model::{Item, Model};
pub use seen::{Collect, Seen};
