//! Hash tables for comparison, which measurements and tests use: the resize variants that
//! [`RelativisticMap`] was chosen from ([`chained`]), the tables that its paper compares it
//! with ([`baseline`]), a CLHT whose updates are hardware transactions ([`elided_clht`]), a cuckoo
//! filter whose operations are ([`elided_filter`]), and [`hopscotch`] hashing, which is the best of
//! ours in few workloads.
//! Programs should use the tables of [`corewise_maps`].

#[cfg(doc)]
use corewise_maps::RelativisticMap;

pub mod baseline;
pub mod chained;
#[cfg(doctest)]
mod compile_fail;
pub mod elided_clht;
pub mod elided_filter;
pub mod hopscotch;
