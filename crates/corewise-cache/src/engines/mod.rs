//! One module per engine.

pub mod locked;
pub mod relativistic;
mod verbs;
