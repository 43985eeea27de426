//! Read-copy update (RCU): threads read shared data without a lock or a reference count, while
//! others replace it.
//!
//! ```
//! use corewise_rcu::RcuCell;
//!
//! let config = RcuCell::new(String::from("port = 80"));
//! std::thread::scope(|scope| {
//!     scope.spawn(|| {
//!         let seen = config.load(); // costs about a nanosecond, and never waits
//!         assert!(seen.starts_with("port")); // `seen` stays as it is until it is dropped
//!     });
//!     scope.spawn(|| config.store(String::from("port = 8080")));
//! });
//! assert_eq!(*config.load(), "port = 8080");
//! ```
//!
//! # Which type, and which crate
//!
//! | if you need | use |
//! |---|---|
//! | one value that many threads read and few replace | [`RcuCell`] |
//! | the same, but readers keep the value, or await with it | an [`RcuCell`] of an `Arc`, with [`RcuCell::load_full`]; or `arc-swap` |
//! | a value that is set once | [`OnceLock`](std::sync::OnceLock), [`LazyLock`](std::sync::LazyLock) |
//! | values changed in place, or written as often as read | [`Mutex`](std::sync::Mutex), [`RwLock`](std::sync::RwLock), atomics |
//! | a map that is read without locks | `corewise-maps` |
//! | a collection with one writer, read through two copies | `left-right`, `evmap` |
//! | a data structure of your own, with waiting for readers | [`Domain`], in unsafe code |
//! | the same, with tagged pointers, or without system calls | `crossbeam-epoch` |
//! | the same, from a crate that is older and used more widely | `crossbeam-epoch`, `seize` |
//!
//! A reader of an [`RcuCell`] holds a [`CellGuard`]: as long as one lives, no replaced value of its
//! domain is freed, so a reader must not sleep, block or await with it. `arc-swap` counts
//! references instead: a read costs three times as much or more, but a value may be kept for as
//! long as one likes, and replacing one costs a tenth. (Its `Cache`, of which each thread has its
//! own, reads fastest of all.)
//!
//! `new`, `load`, `load_full`, `store`, `swap`, `rcu`, `map` and `into_inner` do what they do in
//! `arc-swap`, for values of any type instead of `Arc`s. [`RcuCell::compare_exchange`] is its
//! `compare_and_swap`.
//!
//! # Sections and grace periods
//!
//! Underneath, a reader brackets its accesses to a shared structure with a [`Guard`]: a *read-side
//! critical section*. A writer unlinks an object, waits until every section that was running has
//! ended (a *grace period*), and frees the object. A reader writes only a word of its own record:
//! it never waits, and executes no atomic read-modify-write and no fence.
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
//! # // SAFETY: no other thread uses the object any more.
//! # drop(unsafe { Box::from_raw(shared.into_inner()) });
//! ```
//!
//! # Which flavour
//!
//! | | cost of a section | the writer | use it for |
//! |---|---|---|---|
//! | [`Domain::pin`], *memb* | two plain stores | makes the kernel fence the readers (`membarrier`) | libraries: nothing to set up |
//! | [`Domain::qsbr`], *QSBR* | nothing | waits for a quiescent state that the thread announces | event loops |
//! | [`Domain::pin_owned`] | claims a record: some dozen nanoseconds, more with many records | as for *memb* | tasks that hold a section over an `.await` |
//!
//! One domain, and even one thread, may use all of them. A function that takes a [`Section`]
//! accepts the guards of all.
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
//! 8. *Stalls.* A reader that keeps a grace period waiting for longer than a second is reported,
//!    with its thread's name, to the function of its domain ([`Builder::on_stall`]), or to the hook
//!    that the program has set ([`set_stall_hook`]). Without them nothing is reported: this crate
//!    prints nothing.
//! 9. *Panics.* A deferred closure that panics neither prevents other closures from running nor
//!    unwinds the thread that runs it. The same holds for a stall hook.
//! 10. *Fork.* The child of a `fork` must not use a domain of its parent, the global one included,
//!     unless it calls `exec`: it has the records of threads that it does not have, so a call may
//!     wait for ever. A process that forks before it first uses a domain is not affected.
//! 11. *Owned guards.* The section of an [`OwnedGuard`] lasts until the guard is dropped, on
//!     whichever thread. Everything that any thread did in it happened before the end of the grace
//!     period that waited for it.
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
//! And by `cargo bench -p corewise-rcu -- cells`, on 2026-11-23 at commit a334da2, on two virtual
//! CPUs of an AMD EPYC shared with much other work; medians of three runs, by one thread and two:
//!
//! | | |
//! |---|---|
//! | [`RcuCell::load`] and reading a word of the value | 1.2 to 1.5 ns |
//! | as a share of arc-swap 1.9.5 | `load` 0.26 to 0.33, `load_full` 0.04 to 0.15, `Cache::load` 2.9 to 5.0 |
//! | as a share of `RwLock<Arc<_>>` | `read` 0.06 to 0.28, the same and a clone 0.04 to 0.16 |
//! | [`RcuCell::within`] a section | 0.9 ns |
//! | [`RcuCell::store`], which frees the old value too | 0.5 to 0.7 µs: 15 to 22 times `ArcSwap::store` |
//! | the same beside a thread that reads | 0.5 µs, in some slices several: 7 to 11 times |
//!
//! # How it works, and where it differs from the papers
//!
//! Each thread has a record with one word: its nesting depth, and the number of its current
//! section, which grows. A grace period notes the number of every record that is inside a section,
//! and is over when each of them has left or changed its number. (In liburcu readers copy a global
//! phase instead, which needs two rounds; here the reader reads no shared data but the state of the
//! barrier.) A grace period is a state machine that any waiting thread advances under a lock that
//! is only tried, so grace periods can be polled, and there is no helper thread.
//!
//! # Targets
//!
//! Targets with `std` and with atomics of 64 bits; others do not compile. The costs above are those
//! of Linux with `membarrier` (4.14 or later). On other systems, and where a filter refuses the
//! call, entering a section executes a fence. The tests run on x86-64 Linux only; for AArch64 and
//! 32-bit x86 Linux, macOS, Windows and FreeBSD it is only checked that the crate compiles.

mod backlog;
mod cell;
#[cfg(doctest)]
mod compile_fail;
/// Its program, as a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}
mod deferred;
mod domain;
mod grace;
mod local;
mod owned;
mod qsbr;
mod reader;
mod registry;
mod stall;

pub use backlog::{Budget, Limits, Pressure, RetireList, default_weight};
pub use cell::{CellGuard, MappedCell, RcuCell, Replaced};
pub use deferred::{is_reclaiming, reclaiming};
pub use domain::{BacklogFull, Builder, Domain, Guard, Pinned, Section, pin};
pub use grace::Cookie;
pub use owned::OwnedGuard;
pub use qsbr::{Qsbr, QsbrGuard};
pub use reader::MAX_NESTED;
pub use stall::{Stall, StallHookIsSet, set_stall_hook};
