//! The guarantees of the tables: one test program, since each compiles them for itself.
#![cfg(not(any(corewise_loom, corewise_shuttle)))]

mod common;

mod chained;
mod cross_link;
mod elided_clht;
mod elided_filter;
