//! The guarantees of domains and cells. A test that needs a process to itself starts this program
//! again.
#![cfg(not(any(corewise_loom, corewise_shuttle)))]

mod common;

mod auto_traits;
mod denied;
mod domain;
mod hostile;
mod machine_code;
mod nesting;
mod rcu_cell;
mod stall;
mod stress;
