//! The guarantees of replicated structures: one test program, since each links for itself.

mod common;

mod behaviour;
mod hostile;
mod linearizable;
mod replicated_sorted_set;
mod sorted_set;
mod stress;
mod structures;
