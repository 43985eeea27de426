//! Hash tables for comparison, which measurements and tests use. Programs should use the tables of
//! [`corewise_maps`].
//!
//! - [`chained`]: the resize variants that [`RelativisticMap`] was chosen from.
//! - [`baseline`]: the tables that its paper compares it with.
//! - [`cross_link`]: a map whose entries can be given another key.
//! - [`clht_lock_free`] and [`hopscotch`]: tables that are the best of ours in few workloads.
//! - [`elided_clht`] and [`elided_filter`]: a CLHT and a cuckoo filter whose updates are hardware
//!   transactions.

#[cfg(doc)]
use corewise_maps::RelativisticMap;

pub mod baseline;
pub mod chained;
pub mod clht_lock_free;
pub mod cross_link;
pub mod elided_clht;
pub mod elided_filter;
pub mod hopscotch;
