//! Threads, parking and yielding.

use std::io;
use std::time::Duration;

#[cfg(corewise_sim)]
use crate::sim::thread as imp;
#[cfg(corewise_loom)]
use loom::thread as imp;
#[cfg(corewise_shuttle)]
use shuttle::thread as imp;
#[cfg(not(any(corewise_loom, corewise_shuttle, corewise_sim)))]
use std::thread as imp;

pub use imp::{JoinHandle, Thread, ThreadId, current, park, yield_now};
pub use std::thread::panicking;

/// Runs `body` on a new thread.
///
/// # Panics
///
/// If the system cannot create a thread; [`spawn_named`] returns the error instead.
#[track_caller]
pub fn spawn<T: Send + 'static>(body: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
    imp::spawn(body)
}

/// Runs `body` on a new thread called `name`, which debuggers and `top` show (15 bytes of it on
/// Linux).
///
/// # Errors
///
/// If the system cannot create a thread.
pub fn spawn_named<T: Send + 'static>(
    name: impl Into<String>,
    body: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    #[cfg(corewise_sim)]
    return imp::start(Some(name.into()), body);
    #[cfg(not(corewise_sim))]
    imp::Builder::new().name(name.into()).spawn(body)
}

/// Wakes `thread` from [`park`], or makes its next `park` return at once.
#[inline]
pub fn unpark(thread: &Thread) {
    thread.unpark();
}

/// Parks until unparked or for at most `timeout`; may return early. Under loom and shuttle, which
/// have no clock, it returns after other threads have run.
pub fn park_timeout(timeout: Duration) {
    #[cfg(any(corewise_loom, corewise_shuttle))]
    pass(timeout);
    #[cfg(not(any(corewise_loom, corewise_shuttle)))]
    imp::park_timeout(timeout);
}

/// Sleeps for at least `duration`. Under loom and shuttle it lets other threads run and advances
/// the clock of [`crate::time`].
pub fn sleep(duration: Duration) {
    #[cfg(any(corewise_loom, corewise_shuttle))]
    pass(duration);
    #[cfg(not(any(corewise_loom, corewise_shuttle)))]
    imp::sleep(duration);
}

#[cfg(any(corewise_loom, corewise_shuttle))]
fn pass(duration: Duration) {
    crate::time::advance_model_clock(duration);
    yield_now();
}
