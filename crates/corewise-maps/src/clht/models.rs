//! The CLHT tables for the models that all tables share.

use super::table::{Chains, ClhtVariant};
use crate::copy_map::models::{Modelled, PlaceCase};

impl<F: ClhtVariant> Modelled for Chains<F, u64, u64> {
    // In a bucket with free slots, and in one that overflows.
    const PLACES: &'static [PlaceCase] =
        &[PlaceCase::new(1, &[], 3), PlaceCase::new(1, &[2, 3, 4], 3)];
}
