//! The program as its users start it: one test program, since each links for itself.

#[macro_use]
mod common;

mod abuse;
mod binary;
mod clients;
mod command;
mod cphash;
mod databases;
mod dump;
mod info;
mod large_values;
mod linearizable;
mod look_ups;
mod memory;
mod metrics;
mod operate;
mod probes;
mod protocol;
mod resp;
mod scripts;
mod sorted_sets;
mod stats;
mod transactions;
