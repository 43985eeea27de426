//! One module per engine.

pub mod locked;
