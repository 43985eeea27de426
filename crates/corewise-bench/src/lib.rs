//! CHTBench: one fair benchmark for every concurrent hash table.
//!
//! Chapter 3 of the thesis asks for one framework in which any concurrent hash table is measured
//! without its author's thumb on the scale. This is one: the same keys, operations, hash function,
//! threads and allocator for all; tables in turn, in short slices, in random order; every
//! repetition verified; every ratio with its interval, beside the noise floor and the cost of the
//! harness.
//!
//! | module | what it is for |
//! |---|---|
//! | [`table`] | what a table must offer, and its fairness card |
//! | [`adapters`] | the tables, one file each |
//! | [`workload`], [`law`], [`stream`], [`plan`] | what is done to them |
//! | [`work`], [`subject`], [`crew`] | the measured loops and the threads that run them |
//! | [`verify`] | the checks that void a row |
//! | [`suite`], [`runner`], [`memory`], [`estimate`] | what is measured, in which order, and how long it takes |
//! | [`record`], [`sink`], [`results`] | the result file |
//! | [`report`], [`compare`], [`show`] | what is made of it |
//! | [`server`] | whole servers, as papers measured them |
//! | [`doctor`], [`counters`], [`allocator`], [`manifest`] | the machine |
//!
//! ```
//! use corewise_bench::suite::{Params, Suite};
//! use corewise_topology::Topology;
//!
//! let suite = Suite::find("quick").unwrap();
//! let tasks = suite.tasks(&Params::default(), &Topology::flat(2), false).unwrap();
//! assert!(tasks.iter().any(|task| task.workload.section == "scaling"));
//! ```

pub mod adapters;
pub mod allocator;
pub mod args;
pub mod clock;
pub mod compare;
pub mod counters;
pub mod crew;
pub mod doctor;
pub mod error;
pub mod estimate;
mod growth;
pub mod hash;
mod lane;
pub mod latencies;
pub mod law;
mod list;
pub mod manifest;
pub mod memory;
mod open;
pub mod plan;
pub mod record;
pub mod registry;
mod replay;
pub mod report;
mod resize;
pub mod results;
pub mod runner;
pub mod server;
pub mod show;
pub mod sink;
pub mod stamp;
pub mod stream;
pub mod subject;
pub mod suite;
pub mod table;
mod tails;
mod text;
pub mod verify;
pub mod work;
pub mod workload;
