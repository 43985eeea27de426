//! Hash tables for comparison, which measurements and tests use: the resize variants that
//! [`RelativisticMap`] was chosen from ([`chained`]), the tables that its paper compares it
//! with ([`baseline`]), a CLHT whose updates are hardware transactions ([`elided_clht`]), a cuckoo
//! filter whose operations are ([`elided_filter`]), two tables that are the best of ours in few
//! workloads: CLHT with lock-free updates ([`clht_lock_free`]) and [`hopscotch`] hashing, and maps
//! whose entries can be given another key ([`rename`]). Programs should use the tables of [`corewise_maps`].
//!
//! The example `memory_policies` compares the miss ratios of memory managers and eviction policies.

#[cfg(doc)]
use corewise_maps::RelativisticMap;

pub mod baseline;
pub mod chained;
pub mod clht_lock_free;
#[cfg(doctest)]
mod compile_fail;
pub mod elided_clht;
pub mod elided_filter;
#[cfg(test)]
#[path = "../../corewise-maps/tests/common/every.rs"]
mod every;
#[cfg(all(test, not(any(corewise_loom, corewise_shuttle))))]
#[path = "../../corewise-maps/tests/common/hashing.rs"]
mod hashing;
pub mod hopscotch;
#[cfg(test)]
#[path = "../../corewise-maps/tests/common/operation_pairs.rs"]
mod operation_pairs;
#[cfg(doctest)]
#[path = "../../corewise-maps/tests/common/refused.rs"]
mod refused;
pub mod rename;
