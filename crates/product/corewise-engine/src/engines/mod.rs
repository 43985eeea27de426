//! The engines, one module each.

mod delayed_flush;
mod expiry;
pub mod locked;
mod lru;
pub mod papers;
pub mod relativistic;
mod sharded;
mod tally;
pub(crate) mod verbs;

pub use papers::{global_lock, lockhash};
