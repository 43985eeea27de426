//! The engines, one module each.

mod delayed_flush;
pub mod global_lock;
pub mod locked;
pub mod relativistic;
mod verbs;
