//! The guarantees of the filters: one test program, since each links for itself.

mod batch;
mod format;
mod growing;
mod linearizable;
mod redis;
mod stress;
