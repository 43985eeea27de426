//! Hash tables for comparison, which measurements and tests use: the resize variants that
//! [`RelativisticMap`] was chosen from ([`chained`]), the tables that its paper compares it
//! with ([`baseline`]), a CLHT whose updates are hardware transactions ([`elided_clht`]), a cuckoo
//! filter whose operations are ([`elided_filter`]), two tables that are the best of ours in few
//! workloads: CLHT with lock-free updates ([`clht_lock_free`]) and [`hopscotch`] hashing, and maps
//! whose entries can be given another key ([`rename`]).
//! Programs should use the tables of [`corewise_maps`].

#[cfg(doc)]
use corewise_maps::RelativisticMap;

pub mod baseline;
pub mod chained;
pub mod clht_lock_free;
#[cfg(doctest)]
mod compile_fail;
pub mod elided_clht;
pub mod elided_filter;
pub mod hopscotch;
pub mod rename;
