//! The guarantees of every map: one test program, since each compiles the maps for itself.
#![cfg(not(any(corewise_loom, corewise_shuttle)))]

mod common;

mod asynchronized;
mod auto_traits;
mod copies;
mod copies_beside;
mod cuckoo;
mod differential;
mod exclusive;
mod hostile;
mod interface;
mod large_tables;
mod limits;
mod linearizable;
mod map;
mod operations;
mod panics;
mod reentry;
mod regressions;
mod retained;
mod shapes;
mod stress;
mod upserts;
mod words;
