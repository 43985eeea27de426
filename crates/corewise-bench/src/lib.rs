//! CHTBench: one fair benchmark for every concurrent hash table.

pub mod allocator;
pub mod clock;
pub mod counters;
pub mod crew;
pub mod error;
mod growth;
pub mod hash;
mod lane;
pub mod latencies;
pub mod law;
mod memory;
mod open;
pub mod plan;
pub mod record;
pub mod registry;
pub mod runner;
pub mod sink;
pub mod stamp;
pub mod stream;
pub mod subject;
pub mod suite;
pub mod table;
pub mod verify;
pub mod work;
pub mod workload;
