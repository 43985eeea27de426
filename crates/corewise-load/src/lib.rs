//! The network load generator of Corewise.
//!
//! It puts servers of the memcached text and meta protocols and of the Redis
//! protocol under load, checks every reply, and prints what a request costs.
//!
//! # Method
//!
//! * **Closed loop**: each connection sends a batch of `pipeline` requests in
//!   one write and the next one when it has all replies of the last. Connections
//!   do not wait for each other and start staggered, so the batches a server
//!   sees are those it causes itself. Latency counts from the write of a batch
//!   to the read that brought a reply: the *service time within a batch*.
//! * **Open loop**: requests are due by a schedule, Poisson or constant, and
//!   leave when they are due, whatever has been answered. Latency counts from
//!   the time a request was due, so a server that stalls is charged for all
//!   requests it kept waiting (no coordinated omission), and so is a client that
//!   is late: its own lateness is printed beside it.
//! * **Interleaving**: with two servers, slices of half a second alternate in an
//!   order drawn anew each round; the connections of the others stay open and
//!   idle. Ratios are formed within a round and reported as their median, its
//!   95 % bootstrap interval, and the range.
//! * **CPU time** per request is user plus system time of the server process over
//!   a slice, from one source for all servers of a run. Both ends of a slice are
//!   drained (no request outstanding, the server asleep), so time and requests
//!   belong together.
//! * **Floor**: an empty responder, see [`floor`], gets slices of its own. What
//!   it costs is charged to the kernel, and `net` figures subtract it, round by
//!   round. Two targets that differ in protocol or socket family get a responder
//!   each.
//!
//! * **Replay**: a generated cache trace, get and on a miss set, against one server: what is
//!   measured is the hit ratio. See [`replay()`].
//! * **Oracle**: what a server keeps of the items that it acknowledged. See [`check_server`].
//!
//! # Guarantees
//!
//! 1. Every reply is read to its end and every byte of every value is compared
//!    with what its key demands; a wrong reply fails the run.
//! 2. Uniform keys are drawn over the whole key space each time. Zipf keys come
//!    from a table of 2^21 draws per thread, of which 2^16 are renewed between
//!    slices; ranks are spread over the key space by a fixed permutation.
//! 3. Everything is bounded: see the constants of [`config`].
//!
//! # Bias: what this does not measure
//!
//! * Over the loopback interface the sender's system call also runs the
//!   receiver's half of the network stack: the client pays for the server's
//!   receiving and the server for the client's. No network card is involved.
//! * A closed loop settles at the pace of the slower side. A fast server in front
//!   of a slow client sees few ready connections per poll and pays more system
//!   calls per request than a slow server that finds them queued. So compare CPU
//!   time at equal load too (open loop).
//! * Draining both ends of a slice adds two ramps per slice, about 1 % of it, in
//!   which fewer connections are active.
//! * The empty responder makes one read and one write per ready connection. A
//!   server that saves system calls can come below it; such rounds are left out
//!   of net ratios, and the report says how many.
//! * In a virtual machine, time stolen by the host counts as CPU time of whoever
//!   was running: hence short slices, medians and intervals.
//! * CPU time excludes what the kernel does in other contexts (softirq threads)
//!   and threads of the server that ended during the run.
//! * A slice's p99.9 rests on a thousandth of its requests; for few requests per
//!   slice use the percentiles of the whole run.
//! * In the open loop the client spins for waits below 50 µs: give it a CPU of
//!   its own.
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
mod codec;
pub mod config;
mod conn;
mod cpu;
mod crew;
mod driver;
mod error;
pub mod floor;
mod keys;
mod oracle;
mod probe;
mod replay;
pub mod report;
mod schedule;
mod slices;
mod socket;
mod tally;
mod text;
mod value;

pub use args::LoadArgs;
pub use config::LoadConfig;
pub use corewise_measure::machine::{Machine, Memory};
pub use corewise_measure::stats::Spread;
pub use cpu::CpuSource;
pub use error::LoadError;
pub use oracle::{
    Check, FillReport, MixedReport, OracleConfig, OracleReport, RefillReport, RefuseReport, Sizes,
    check_server,
};
pub use probe::Identity;
pub use replay::{LiveBytes, ReplayConfig, ReplayReport, replay};
pub use report::Report;
pub use slices::{Role, run};
