//! CHTBench: one fair benchmark for every concurrent hash table.
//!
//! It follows the framework of \[CHTBench\] (chapter 3), in which any concurrent hash table is
//! measured on equal terms: the same keys, operations, hash function, threads and allocator for
//! all. Tables are measured in turn, in short slices, in random order. Every repetition is
//! verified. Every ratio comes with its interval, the noise floor and the cost of the harness.
//!
//! | module | contents |
//! |---|---|
//! | [`table`] | what a table must offer, and its fairness card |
//! | [`subject`] | what a filter, a lock and so on must offer |
//! | [`adapters`] | the tables, one file each |
//! | [`workload`], [`distribution`], [`stream`], [`plan`] | operations and keys |
//! | [`work`], [`dyn_table`] | the phases of a repetition |
//! | [`verify`] | the checks that void a row |
//! | [`sections`] | the kinds of experiment, one folder each |
//! | [`suite`], [`params`], [`task`], [`claims`], [`runner`], [`estimate`] | what is measured, in which order, and how long it takes |
//! | [`record`], [`payload`], [`sink`], [`results`] | the result file |
//! | [`report`], [`compare`], [`show`] | the analysis of results |
//! | [`server`] | benchmarks of whole servers: from papers, and beside other servers |
//! | [`doctor`], [`counters`], [`allocator`], [`manifest`] | the machine |
//!
//! ```
//! use corewise_bench::params::Params;
//! use corewise_bench::suite::Suite;
//! use corewise_topology::Topology;
//!
//! let suite = Suite::find("quick").unwrap();
//! let tasks = suite.tasks(&Params::default(), &Topology::flat(2), false).unwrap();
//! assert!(tasks.iter().any(|task| task.workload.section_name() == "scaling"));
//! ```

pub mod adapters;
pub mod allocator;
pub mod args;
mod cell_run;
mod claim;
pub mod claims;
pub mod clock;
mod closed_loop;
pub mod compare;
mod contender;
pub mod counters;
pub mod distribution;
pub mod doctor;
pub mod dyn_table;
pub mod entry;
pub mod error;
pub mod estimate;
mod figure;
mod format;
pub mod hash;
mod in_turn;
mod judge;
pub mod latencies;
mod list;
pub mod manifest;
pub mod params;
pub mod payload;
pub mod plan;
mod plot;
mod price;
mod progress;
pub mod record;
pub mod registry;
mod replay;
pub mod report;
pub mod results;
pub mod runner;
mod section;
pub mod sections;
pub mod server;
pub mod show;
pub mod sink;
pub mod stamp;
pub mod stream;
pub mod subject;
pub mod suite;
pub mod table;
pub mod task;
mod text;
pub mod verify;
pub mod work;
pub mod workload;
