//! The guarantees of replicated structures: one test program, since each links for itself.

mod common;

mod behaviour;
mod hostile;
mod linearizable;
mod sorted_set;
mod stress;
mod structures;
