//! CHTBench: one fair benchmark for every concurrent hash table.

pub mod hash;
pub mod record;
pub mod subject;
pub mod table;
