//! A façade over atomics, cells, locks and threads, so that concurrent code can be model-checked.
//!
//! Code that shares memory between threads takes its atomics, data cells, barriers, locks, threads,
//! statics and clock from here, never from `std`. A normal build compiles to the `std` items at no
//! cost. A cfg replaces them, so that the code that ships is the code that is model-checked:
//!
//! | build | atomics and threads | what it checks |
//! |---|---|---|
//! | normal | `std` | the program itself |
//! | `--cfg corewise_loom` | loom | weak memory, every schedule of two or three threads |
//! | `--cfg corewise_shuttle` | shuttle | many threads, sequentially consistent, random schedules |
//! | `--cfg corewise_sim` | `std`, and a simulator that sees each access | nothing: it runs programs on simulated processors |
//!
//! shuttle is sequentially consistent: it is never cited as evidence for an ordering.
//!
//! loom and shuttle need the feature of the same name, which brings the checker:
//!
//! ```text
//! RUSTFLAGS="--cfg corewise_loom" cargo test --features corewise-atomic/loom
//! ```
//!
//! # What code written against the façade promises
//!
//! 1. It assumes no size and no `const` constructor of an atomic, cell or lock: both hold in the
//!    normal build only.
//! 2. It casts no memory into atomics. Arrays of atomics are [`Slots`].
//! 3. It declares its statics with [`static_cell!`] and its thread-locals with [`thread_local!`].
//! 4. Plain data shared between threads sits in a [`DataCell`](cell::DataCell), or each access to
//!    it is announced with [`touch`](cell::touch).
//! 5. Every model has a mutant that must make it fail; `scripts/models` runs both.
//!
//! # What the façade promises
//!
//! 1. *No cost.* In the normal build every type is the `std` type or has its size and alignment
//!    (asserted at compile time), and every function is inlined to the `std` call.
//! 2. *The barrier pair.* See [`barrier`].
//! 3. *No poison.* A panic inside a [`lock::Mutex`] leaves it usable by others.
//!
//! ```
//! use corewise_atomic::sync::atomic::{AtomicBool, Ordering};
//! use corewise_atomic::{cell::DataCell, sync::Arc, thread};
//!
//! struct Mailbox { full: AtomicBool, letter: DataCell<u32> }
//!
//! corewise_atomic::model(|| {
//!     let mailbox = Arc::new(Mailbox { full: AtomicBool::new(false), letter: DataCell::new(0) });
//!     let sender = mailbox.clone();
//!     let handle = thread::spawn(move || {
//!         // SAFETY: no thread reads the letter before `full` is set.
//!         sender.letter.with_mut(|letter| unsafe { *letter = 7 });
//!         sender.full.store(true, Ordering::Release); // pairs with the Acquire below
//!     });
//!     if mailbox.full.load(Ordering::Acquire) { // pairs with the Release above
//!         // SAFETY: `full` is set after the last write.
//!         assert_eq!(mailbox.letter.with(|letter| unsafe { *letter }), 7);
//!     }
//!     handle.join().unwrap();
//! });
//! ```
//!
//! # Targets
//!
//! Targets with `std` and with atomics of 64 bits; others do not compile. Linux has the barrier
//! pair, memory that is returned by the page, and huge pages. Elsewhere both halves of the pair are
//! fences, and memory comes from the allocator. The tests run on x86-64 Linux only; for AArch64 and
//! 32-bit x86 Linux, macOS, Windows and FreeBSD it is only checked that the crate compiles.

#[cfg(all(corewise_loom, corewise_shuttle))]
compile_error!("choose one of the cfgs corewise_loom and corewise_shuttle");

#[cfg(all(corewise_loom, not(feature = "loom")))]
compile_error!("the cfg corewise_loom needs the feature `loom` of corewise-atomic");

#[cfg(all(corewise_shuttle, not(feature = "shuttle")))]
compile_error!("the cfg corewise_shuttle needs the feature `shuttle` of corewise-atomic");

#[cfg(not(all(target_has_atomic = "64", target_has_atomic = "ptr")))]
compile_error!("corewise-atomic needs a target with atomics of 64 bits");

#[cfg(all(corewise_sim, any(corewise_loom, corewise_shuttle)))]
compile_error!("choose one of the cfgs corewise_loom, corewise_shuttle and corewise_sim");

pub mod alloc;
mod backoff;
pub mod barrier;
pub mod cell;
#[cfg(doctest)]
mod compile_fail;
/// Its program, as a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}
pub mod hint;
pub mod lock;
mod model;
mod pad;
#[cfg(corewise_sim)]
pub mod sim;
mod slots;
mod statics;
pub mod sync;
pub mod thread;
pub mod time;

pub use backoff::{Backoff, Sleeps};
pub use model::{model, model_bounded};
pub use pad::CachePadded;
pub use slots::{Slots, ZeroInit};

/// Items that the exported macros need; not for direct use.
#[doc(hidden)]
pub mod __private {
    #[cfg(corewise_loom)]
    pub use loom;
    #[cfg(corewise_shuttle)]
    pub use shuttle;

    #[cfg(corewise_sim)]
    pub use crate::sim::statics::{LocalKey, StaticKey};

    /// See [`mutant!`](crate::mutant).
    #[cfg(not(corewise_mutants))]
    #[inline(always)]
    #[must_use]
    pub const fn is_mutant(_: &str) -> bool {
        false
    }

    /// See [`mutant!`](crate::mutant).
    #[cfg(corewise_mutants)]
    #[must_use]
    pub fn is_mutant(name: &str) -> bool {
        // Uses `std`, not loom or shuttle: the value is the same in every schedule.
        static WANTED: std::sync::OnceLock<Option<String>> = std::sync::OnceLock::new();
        let wanted = WANTED.get_or_init(|| std::env::var("COREWISE_MUTANT").ok());
        wanted.as_deref() == Some(name)
    }
}

/// Whether to make the named mistake, which models must detect.
///
/// True only in a build with the cfg `corewise_mutants` that runs with the name in the environment
/// variable `COREWISE_MUTANT`. So one build has all mutants. Without the cfg it is constant, and
/// the mistake is compiled out.
#[doc(hidden)]
#[macro_export]
macro_rules! mutant {
    ($name:literal) => {
        $crate::__private::is_mutant($name)
    };
}

/// An ordering, or `Relaxed` if the [mutant](crate::mutant) of this name is active.
#[doc(hidden)]
#[macro_export]
macro_rules! ordering {
    ($right:expr, $mutant:literal) => {
        if $crate::mutant!($mutant) {
            $crate::sync::atomic::Ordering::Relaxed
        } else {
            $right
        }
    };
}
