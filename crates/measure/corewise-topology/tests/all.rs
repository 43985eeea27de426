//! Machines and plans: one test program, since each links for itself.

mod common;

mod auto_traits;
mod detection;
mod planning;
