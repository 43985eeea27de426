//! What the models of every table must be told of both forms.

use super::table::{Chains, Form};
use crate::copy_map::models::{Modelled, Place};

impl<F: Form> Modelled for Chains<F, u64, u64> {
    // In a bucket with room, and in one that overflows.
    const PLACES: &'static [Place] = &[Place::new(1, &[], 3), Place::new(1, &[2, 3, 4], 3)];
}
