//! The network load generator of Corewise.
//!
//! It puts servers of the memcached text and meta protocols, of the Redis protocol and of the
//! protocol of \[CPHASH\] under load, checks every reply, and reports what a request costs.
//!
//! # Method
//!
//! * **Closed loop**: each connection sends a batch of `pipeline` requests in one write, and sends
//!   the next batch when it has all replies to the last. Connections do not wait for each other and
//!   start staggered, so the server alone determines the batches that it sees. Latency is measured
//!   from the write of a batch to the read that returned a reply: the *service time within a
//!   batch*.
//! * **Open loop**: requests are due by a schedule, Poisson or constant, and are sent when they are
//!   due, whether or not earlier ones have been answered. Latency is measured from the time at
//!   which a request was due. So a server that stalls is charged for all requests that it delays
//!   (no coordinated omission). A client that is late also adds to the latency; its lateness is
//!   reported beside it.
//! * **Requests without replies**: an INSERT of \[CPHASH\] is done when the reply to a later LOOKUP
//!   of its connection arrives, and its latency counts up to that reply. If a batch (open loop: a
//!   write) ends with an INSERT, a LOOKUP of the same key follows. It counts as a request, so there
//!   are fewer INSERTs than asked for. A refused INSERT shows as a miss.
//! * **Interleaving**: with two servers, slices of half a second alternate in an order drawn anew
//!   for each round. The connections of the other servers stay open and idle. Ratios are computed
//!   within a round and reported as their median, its 95 % interval, and the range.
//! * **CPU time** per request is user plus system time of the server process over a slice, from one
//!   source for all servers of a run. Both ends of a slice are drained (no request is outstanding,
//!   the server is asleep), so the time belongs to the requests of the slice.
//! * **Floor**: an empty responder, see [`floor`], gets its own slices. Its cost is attributed to
//!   the kernel, and `net` figures subtract it, round by round. Two targets that differ in protocol
//!   or socket family get one responder each.
//! * **Replay**: a generated cache trace against one server, with a get and, after a miss, a set.
//!   It measures the hit ratio. See [`replay()`].
//! * **Oracle**: which of the acknowledged items a server still has. See [`check_server`].
//!
//! # Guarantees
//!
//! 1. Every reply is read to its end, and every byte of every value is compared with the expected
//!    value of its key. A wrong reply fails the run.
//! 2. Uniform keys are drawn over the whole key space each time. Zipf keys come from a table of
//!    2^21 draws per thread, of which 2^16 are renewed between slices. A fixed permutation spreads
//!    ranks over the key space.
//! 3. Everything is bounded: see the constants of [`config`].
//!
//! # Bias: what this does not measure
//!
//! * Over the loopback interface, the sender's system call also runs the receiver's half of the
//!   network stack: the client pays for the server's receiving, and the server for the client's. No
//!   network card is involved.
//! * A closed loop settles at the pace of the slower side. A fast server in front of a slow client
//!   sees few ready connections per poll, and makes more system calls per request than a slow
//!   server that finds requests queued. So compare CPU time at equal load too (open loop).
//! * Draining both ends of a slice adds two ramps per slice, about 1 % of it, in which fewer
//!   connections are active.
//! * The empty responder makes one read and one write per ready connection. A server that saves
//!   system calls can cost less. Such rounds are left out of net ratios, and the report counts
//!   them.
//! * In a virtual machine, time stolen by the host counts as CPU time of the process that was
//!   running. Short slices, medians and intervals reduce the effect.
//! * CPU time excludes the kernel's work in other contexts (softirq threads), and threads of the
//!   server that ended during the run.
//! * A slice's p99.9 rests on a thousandth of its requests. With few requests per slice, use the
//!   percentiles of the whole run.
//! * In the open loop the client spins for waits below 50 µs: give it a dedicated CPU.
//!
//! # Example
//!
//! ```no_run
//! use corewise_load::{LoadConfig, run};
//!
//! let config = LoadConfig { prefill: true, pipeline: 32, ..LoadConfig::default() };
//! match run(&config, &mut |line| eprintln!("{line}")) {
//!     Ok(report) => println!("{report}"),
//!     Err(e) => eprintln!("{e}"),
//! }
//! ```

pub mod args;
mod clients;
mod codec;
pub mod config;
mod conn;
mod cpu;
mod driver;
mod error;
pub mod floor;
mod keys;
mod load_stats;
mod measured_target;
mod oracle;
mod player;
mod probe;
mod replay;
pub mod report;
mod schedule;
mod slices;
mod socket;
mod value;

pub use args::LoadArgs;
pub use config::{LoadConfig, ReplayConfig};
pub use corewise_measure::machine::{Machine, Memory};
pub use corewise_measure::stats::Spread;
pub use cpu::{CpuMeter, CpuSource};
pub use error::LoadError;
pub use measured_target::TargetRole;
pub use oracle::{
    Check, FillReport, MixedReport, OracleConfig, OracleReport, RefillReport, RefuseReport, Sizes,
    check_server,
};
pub use probe::{Identity, statistic};
pub use replay::{LiveBytes, ReplayReport, replay};
pub use report::Report;
pub use slices::run;
