//! One module per engine.

pub mod global_lock;
pub mod locked;
pub mod relativistic;
mod verbs;
