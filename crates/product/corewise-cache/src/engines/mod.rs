//! The engines, one module each.

mod delayed_flush;
mod expiry;
pub mod global_lock;
pub mod locked;
pub mod lockhash;
mod lru;
mod partitioned;
pub mod relativistic;
mod tally;
mod verbs;
