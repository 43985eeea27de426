//! Machines and plans: one test program, since each links for itself.

mod common;

mod detection;
mod planning;
