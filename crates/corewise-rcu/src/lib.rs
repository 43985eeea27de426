//! Read-copy update (RCU): each reader writes only a word of its record, and writers wait for
//! readers.
//!
//! A reader brackets its accesses to a shared structure with a [`Guard`]: a *read-side critical
//! section*. A writer unlinks an object, waits until every section that was running has ended (a
//! *grace period*), and frees the object. Readers never wait, and execute no atomic
//! read-modify-write and no fence.
//!
//! Sources: \[ATC11\] §3 (Triplett, McKenney, Walpole, *Resizable, Scalable, Concurrent Hash Tables
//! via Relativistic Programming*, USENIX ATC 2011). The userspace scheme with `membarrier` is that
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
//! | | cost of a section | the writer | use it for |
//! |---|---|---|---|
//! | [`Domain::pin`], *memb* | two plain stores | makes the kernel fence the readers (`membarrier`) | libraries: nothing to set up |
//! | [`Domain::qsbr`], *QSBR* | nothing | waits for a quiescent state that the thread announces | event loops |
//!
//! One domain, and even one thread, may use both. A function that takes a [`Section`] accepts the
//! guards of both.
//!
//! # Guarantees
//!
//! 1. *Grace period.* Let a thread make an object unreachable and then call [`Domain::synchronize`]
//!    or [`Domain::start_poll`]. When `synchronize` has returned, or when [`Domain::poll`] returns
//!    true for the cookie, every section that could have reached the object has ended, and all
//!    accesses of these sections happened before.
//! 2. *Readers.* Entering and leaving a section is wait-free: about ten instructions, none of them
//!    an atomic read-modify-write or a fence (checked by `tests/machine_code.rs`). The first
//!    section of a thread registers the thread. Where `membarrier` is missing or filtered, entering
//!    executes a fence.
//! 3. *Nesting.* Sections nest, up to [`MAX_NESTED`]; guards may be dropped in any order. Taking a
//!    guard beyond the limit panics before anything has changed. A [`Qsbr`] handle that is offline
//!    keeps its place, so it can always come back online.
//! 4. *Writers.* `start_poll`, `poll`, `defer` and `try_defer_drop` never wait for readers when
//!    called inside a section. `synchronize` and `barrier` inside a section would wait for
//!    themselves: they panic, and [`Domain::try_synchronize`] returns an error.
//! 5. *Sharing.* One grace period serves all callers that asked before it began.
//! 6. *Backlog.* Memory that is deferred and not yet reclaimed is bounded; see [`Limits`]. The
//!    bound makes no caller wait for a reader for ever: a caller over the soft limit stops waiting
//!    when the reader [stalls](Builder::stall_after), and learns of it from the returned
//!    [`Pressure`].
//! 7. *Threads.* A thread's record is given back when the thread ends. Other thread-local
//!    destructors may still take guards then. A guard that outlives its thread-locals keeps its
//!    record until the guard is dropped. A guard that is forgotten (`mem::forget`) stops every
//!    later grace period of its domain; it is reported as a stall.
//! 8. *Stalls.* A reader that keeps a grace period waiting for longer than a second is reported
//!    with its thread's name; see [`Builder::on_stall`].
//! 9. *Panics.* A deferred closure that panics neither prevents other closures from running nor
//!    unwinds the thread that runs it.
//! 10. *Fork.* In the child of a `fork` all domains work. Grace periods wait for the sections of
//!     the thread that forked, which continue in the child, and for no others. What other threads
//!     deferred is reclaimed in the child too, by [`Domain::barrier`] or by callers over the soft
//!     limit. `fork` waits for the locks of all domains, which are held briefly. This guarantee
//!     covers domains only: a thread that was updating a map may have left locks of that map held.
//!     Calls that skip the handlers of `pthread_atfork`, such as `_Fork` and `vfork`, do none of
//!     this.
//!
//! # What it costs
//!
//! Measured by `cargo bench -p corewise-rcu`, whose header lists what may be unfair, on 2026-11-21
//! at commit 36e9195, on two virtual CPUs of an Intel Xeon (model 207) shared with other work:
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
//! # How it works, and where it differs from the papers
//!
//! Each thread has a record with one word: its nesting depth, and the number of its current
//! section, which grows. A grace period notes the number of every record that is inside a section,
//! and is over when each of them has left or changed its number. (In liburcu readers copy a global
//! phase instead, which needs two rounds; here the reader reads no shared data but the state of the
//! barrier.) A grace period is a state machine that any waiting thread advances under a lock that
//! is only tried, so grace periods can be polled, and there is no helper thread.

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

pub use backlog::{Budget, Limits, Pressure, RetireList};
pub use deferred::{is_reclaiming, reclaiming};
pub use domain::{BacklogFull, Builder, Domain, Guard, Pinned, Section, pin};
pub use grace::{Cookie, Stall};
pub use qsbr::{Qsbr, QsbrGuard};
pub use reader::MAX_NESTED;
