//! Concurrent hash tables.
pub mod relativistic;
pub use relativistic::RelativisticMap;
