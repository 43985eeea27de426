//! Locks behind one trait, a readers-writer lock with a cache line for each reader, and lock
//! elision with hardware transactions.
//!
//! ```
//! use corewise_locks::{Lock, Mcs};
//!
//! let total: Lock<u64> = Lock::new(0); // a parking lock, the default
//! let fair: Lock<u64, Mcs> = Lock::new(0);
//! std::thread::scope(|scope| {
//!     for _ in 0..4 {
//!         scope.spawn(|| {
//!             *total.lock() += 1;
//!             *fair.lock() += 1;
//!         });
//!     }
//! });
//! assert_eq!(total.into_inner() + fair.into_inner(), 8);
//! ```
//!
//! # Which lock?
//!
//! | lock | bytes | fair | a waiting thread reads | choose it if |
//! |---|---|---|---|---|
//! | [`Tas`] | 1 | no | and writes the lock's line | never; it is the baseline of comparisons |
//! | [`Ttas`] | 1 | no | the lock's line | two or three threads, short sections |
//! | [`TtasBackoff`] | 1 | no | the lock's line, more and more rarely | more threads, unfairness is acceptable |
//! | [`Ticket`] | 8 | FIFO | the lock's line | few threads, fairness matters |
//! | [`Anderson`] | 128 (N + 1) | FIFO | a line that up to N threads do not share | it is compared with others |
//! | [`Clh`] | 16 | FIFO | the predecessor's line | many threads |
//! | [`Mcs`] | 8 | FIFO | its own line | many threads, each with a CPU; many locks |
//! | [`Parking`] | 24 | no | nothing: it sleeps | in doubt: it is the default; long sections, more threads than CPUs |
//! | [`Adaptive`] | 256 | no | as one of three above | contention is not known in advance |
//! | [`DistributedRw`] | 128 (S + 1) | writers first | the writer's line | nearly all sections only read |
//! | [`FlagRw`] | 24 + 128 S | writers first | the writer's line | likewise, and your threads have numbers |
//!
//! # More threads than CPUs
//!
//! Threads that wait spin and then yield. At the FIFO locks, `Parking`, `Adaptive`, `DistributedRw`
//! and `FlagRw` they sleep in the end; at the others they keep using their CPUs. A lock without
//! FIFO order goes to a thread that runs, so its throughput does not fall.
//!
//! A FIFO lock goes to the thread that has waited longest, which often does not run. *The bound*:
//! each section then costs a context switch, no matter how short it is, and no more: the threads
//! that wait yield or sleep, so the next one in the queue runs at once and not when their time
//! slices end. Eight threads on two CPUs execute 0.4 to 1 million empty sections a second (1 to
//! 3 µs each), 0.05 to 0.11 of what two threads do, and 0.34 to 0.36 of it with sections of 1 µs.
//! Take `Parking`, or `Adaptive` where contention varies, if threads may outnumber CPUs; they kept
//! 0.99 to 1.04 and 0.87 to 0.95. (2 AMD EPYC CPUs, 2026-11-25, commit 8516758, by its
//! `--example locks -- 100 9 oversubscribed`. Today `corewise bench run --section lock
//! --oversubscribe -n 2,8` measures the rates.)
//!
//! MCS could avoid that price only by giving up FIFO order, which is what `Adaptive` does in park
//! mode: an unlock that passes over nodes whose threads sleep or have not published the time lately
//! (He, Scherer and Scott 2005, *MCS-TP*) needs a state machine for each node, and a clock read in
//! each round of a waiting thread. Waiting threads already spin and then park, so the queue keeps
//! its order, and programs that need throughput take one of the two locks above.
//!
//! A thread that slept at a lock leaves its unpark token set: the next
//! [`park`](std::thread::park) may return at once, and no `unpark` of other code is lost.
//!
//! # Guarantees of every lock
//!
//! 1. *Exclusion.* At most one thread holds a lock.
//! 2. *Order.* Everything before an unlock happens before everything after the next lock.
//! 3. *Progress.* Blocking. No wake-up is lost: if the lock is free and threads wait, one of them
//!    gets it once it runs.
//! 4. *Fairness* is stated at each lock.
//! 5. *No poison.* A panic in a critical section unlocks the lock.
//! 6. *No recursion.* A thread that locks a lock that it holds waits for ever.
//!
//! # Sources
//!
//! - T. E. Anderson, *The performance of spin lock alternatives for shared-memory
//!   multiprocessors*, IEEE TPDS 1(1), 1990.
//! - J. M. Mellor-Crummey, M. L. Scott, *Algorithms for scalable synchronization on
//!   shared-memory multiprocessors*, ACM TOCS 9(1), 1991: ticket lock, MCS.
//! - \[NR\]: I. Calciu et al., *Black-box concurrent data structures for NUMA architectures*, CACM
//!   2018, §3.8: the distributed readers-writer lock, after D. Vyukov's.
//! - T. S. Craig, *Building FIFO and priority-queuing spin locks from atomic swap*, 1993; P.
//!   Magnusson, A. Landin, E. Hagersten, *Queue locks on cache coherent multiprocessors*, IPPS
//!   1994: CLH.
//!
//! Locks that are patented are not implemented: Hemlock, TWA, partitioned ticket locks, CNA,
//! reciprocating locks.

mod adaptive;
mod anderson;
mod clh;
#[cfg(doctest)]
mod compile_fail;
mod distributed_rw;
pub mod elide;
mod flag_rw;
#[cfg(all(feature = "lock_api", not(any(corewise_loom, corewise_shuttle))))]
mod lock_api;
mod mcs;
mod mutex;
mod node;
mod parking;
mod raw;
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}
mod shared;
mod tas;
mod thread_index;
mod ticket;
mod turn;
mod wait;

pub use adaptive::{Adaptive, Mode};
pub use anderson::Anderson;
pub use clh::Clh;
pub use distributed_rw::DistributedRw;
pub use flag_rw::{FlagReadGuard, FlagRw, FlagWriteGuard, ReaderFlag};
pub use mcs::Mcs;
pub use mutex::{Lock, LockGuard};
pub use parking::Parking;
pub use raw::{RawLock, RawSharedLock};
pub use shared::{DistributedRwLock, SharedLock, SharedReadGuard, SharedWriteGuard};
pub use tas::{Tas, Ttas, TtasBackoff};
pub use ticket::Ticket;

/// Declares `new`, which is `const` except under loom and shuttle, whose atomics have no `const`
/// constructor, and `Default`.
macro_rules! constructor {
    ([$($generics:tt)*] $name:ty, $(#[$doc:meta])* $vis:vis fn new() -> Self $body:block) => {
        impl<$($generics)*> $name {
            $(#[$doc])*
            #[cfg(not(any(corewise_loom, corewise_shuttle)))]
            #[must_use]
            $vis const fn new() -> Self $body

            $(#[$doc])*
            #[cfg(any(corewise_loom, corewise_shuttle))]
            #[must_use]
            $vis fn new() -> Self $body
        }

        impl<$($generics)*> Default for $name {
            fn default() -> Self {
                Self::new()
            }
        }
    };
}
pub(crate) use constructor;

#[cfg(all(test, not(any(corewise_loom, corewise_shuttle))))]
mod fifo_tests;
#[cfg(all(test, not(any(corewise_loom, corewise_shuttle))))]
mod sleep_tests;
