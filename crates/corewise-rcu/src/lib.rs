//! Read-copy update (RCU): readers that write one word of their own, and writers that wait for
//! them.
//!
//! A reader brackets its accesses to a shared structure with a [`Guard`]: a *read-side critical
//! section*. A writer unlinks what it wants to free, waits until every section that was running has
//! ended (a *grace period*), and frees. Readers never wait, and execute no atomic read-modify-write
//! and no fence.
//!
//! Paper: Triplett, McKenney, Walpole, *Resizable, Scalable, Concurrent Hash Tables via
//! Relativistic Programming*, USENIX ATC 2011, §3. The userspace scheme with `membarrier` is that
//! of Desnoyers et al., *User-Level Implementations of Read-Copy Update*, IEEE TPDS 2012; the
//! differences are listed below.
//!
//! ```
//! use corewise_rcu::Domain;
//! use std::ptr::NonNull;
//! use std::sync::atomic::{AtomicPtr, Ordering};
//!
//! let shared = AtomicPtr::new(Box::into_raw(Box::new(1)));
//!
//! // A reader:
//! let guard = corewise_rcu::pin();
//! // SAFETY: what a writer unlinks lives until this guard is gone.
//! assert_eq!(unsafe { *shared.load(Ordering::Acquire) }, 1);
//! drop(guard);
//!
//! // A writer:
//! let old = shared.swap(Box::into_raw(Box::new(2)), Ordering::AcqRel);
//! let old = NonNull::new(old).unwrap();
//! // SAFETY: from a box that nobody else frees; no new reader can find it. It stays a pointer: a
//! // `Box` would assert that no reader has it.
//! unsafe { Domain::global().defer_drop(old) };
//! Domain::global().barrier();
//! # // SAFETY: the last user.
//! # drop(unsafe { Box::from_raw(shared.into_inner()) });
//! ```
//!
//! # Which flavour
//!
//! | | a section costs | the writer | for |
//! |---|---|---|---|
//! | [`Domain::pin`], *memb* | two plain stores | makes the kernel fence the readers (`membarrier`) | libraries: nothing to set up |
//! | [`Domain::qsbr`], *QSBR* | nothing | waits for a quiescent state that the thread announces | event loops |
//!
//! Both may be used in one domain, even by one thread, and whatever asks for a [`Section`] takes
//! the guards of both.
//!
//! # Guarantees
//!
//! 1. *Grace period.* Let a thread make an object unreachable and then call
//!    [`Domain::synchronize`] or [`Domain::start_poll`]. When the former has returned, or when
//!    [`Domain::poll`] of the latter's cookie says true, every section that could have reached
//!    the object has ended, and all its accesses happened before.
//! 2. *Readers.* Entering and leaving a section is wait-free: some ten instructions, none of them
//!    atomic read-modify-write, none a fence (`tests/machine_code.rs` looks). The first section
//!    of a thread registers it. Where `membarrier` is missing or filtered there is a fence.
//! 3. *Nesting.* Sections nest, up to [`MAX_NESTED`]; a guard may be dropped in any order. A guard
//!    beyond the limit is refused by a panic before anything has changed. A [`Qsbr`] handle that is
//!    offline keeps its place, so that it always comes back online.
//! 4. *Writers.* `start_poll`, `poll`, `defer` and `try_defer_drop` never wait for readers when
//!    called inside a section. `synchronize` and `barrier` inside a section would wait for
//!    themselves: they panic, [`Domain::try_synchronize`] returns an error.
//! 5. *Sharing.* One grace period serves all who asked before it began.
//! 6. *Backlog.* What is deferred and not yet reclaimed is bounded; see [`Limits`]. Nobody waits
//!    for a reader for ever on its account: a caller that settles goes on when the reader
//!    [stalls](Builder::stall_after), and is told.
//! 7. *Threads.* A thread's record is given back when it ends. Other thread-local destructors may
//!    still take guards then. A guard that outlives its thread-locals keeps its record until it is
//!    dropped. A guard that is forgotten (`mem::forget`) stops every later grace period of its
//!    domain; it is reported as a stall.
//! 8. *Stalls.* A reader that keeps a grace period waiting for longer than a second is reported
//!    with its thread's name; see [`Builder::on_stall`].
//! 9. *Panics.* A deferred closure that panics keeps no other from running and unwinds nobody.
//! 10. *Fork.* In the child of a `fork` all domains work. Grace periods wait for sections of the
//!     thread that forked, which go on in the child, and for no others; what other threads deferred
//!     is reclaimed in the child too, by [`Domain::barrier`] or over the soft limit. `fork` waits for
//!     the locks of all domains, which are held briefly. This is for domains alone: a thread that
//!     was in an update of a map may have left locks of that map. Calls that skip the handlers of
//!     `pthread_atfork`, such as `_Fork` and `vfork`, do none of this.
//!
//! # What it costs
//!
//! `cargo bench -p corewise-rcu` prints it, and says in its header what may be unfair. On
//! 2026-11-21, at commit 36e9195, on two virtual CPUs of an Intel Xeon (model 207) that other
//! work used too:
//!
//! | | |
//! |---|---|
//! | [`pin`], a load, and leaving | 1.8 ns: 0.15 of crossbeam-epoch 0.9.21, 0.16 of seize 0.5.1 |
//! | the same with [`Domain::pin`]; nested; [`Qsbr::quiescent`] | 1.4 ns; 1.0 ns; 0.7 ns |
//! | [`Domain::synchronize`] beside 0 to 8 sleeping threads | 0.3 to 0.4 µs |
//! | beside one that enters and leaves all the time | 1 µs |
//! | beside 8 such threads on the 2 CPUs | 32 ms: some are switched out in a section |
//! | allocate, swap and [`Domain::defer_drop`] in a guard | 14 M/s: 1.19 of crossbeam-epoch, 0.97 of seize |
//! | the same without a guard | 13 M/s: 0.83 of seize, whose batches are small enough for the cache |
//!
//! # How, and where it differs from the papers
//!
//! Each thread has a record with one word: how deeply it is nested, and which section this is, a
//! number that grows. A grace period notes the number of every record that is inside a section
//! and is over when each has left or changed its number. (liburcu has readers copy a global
//! phase instead and needs two rounds; here the reader reads nothing shared but the state of the
//! barrier.) A grace period is a state machine that any waiting thread moves on under a lock
//! that nobody waits for, so grace periods can be polled, and there is no helper thread.

mod backlog;
#[cfg(doctest)]
mod compile_fail;
mod deferred;
mod domain;
#[cfg_attr(any(corewise_loom, corewise_shuttle, not(unix)), allow(dead_code))]
mod fork;
mod grace;
mod local;
mod qsbr;
mod reader;
mod registry;

pub use backlog::{Budget, Limbo, Limits, Pressure};
pub use deferred::{is_reclaiming, reclaiming};
pub use domain::{BacklogFull, Builder, Domain, Guard, Pinned, Section, pin};
pub use grace::{Cookie, Stall};
pub use qsbr::{Qsbr, QsbrGuard};
pub use reader::MAX_NESTED;
