//! The promises of all engines and of each: one test program, since each compiles the engines for
//! itself.

#[macro_use]
mod common;

mod differential;
mod engine;
mod expiry;
mod filters;
mod global_lock;
mod linearizable;
mod locked;
mod memory;
mod sessions;
mod sets;
mod update;
