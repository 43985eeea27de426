//! Threads, parking and yielding.

use std::io;
use std::time::Duration;

#[cfg(corewise_loom)]
use loom::thread as imp;
#[cfg(corewise_shuttle)]
use shuttle::thread as imp;
#[cfg(not(any(corewise_loom, corewise_shuttle)))]
use std::thread as imp;

pub use imp::{JoinHandle, Thread, ThreadId, current, park, yield_now};
pub use std::thread::panicking;

/// Runs `body` on a new thread.
///
/// # Panics
///
/// When the system has no thread to give; [`spawn_named`] returns the error instead.
#[track_caller]
pub fn spawn<T: Send + 'static>(body: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
    imp::spawn(body)
}

/// Runs `body` on a new thread called `name`: what debuggers and `top` show (15 bytes of it on
/// Linux).
///
/// # Errors
///
/// When the system has no thread to give.
pub fn spawn_named<T: Send + 'static>(
    name: impl Into<String>,
    body: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    imp::Builder::new().name(name.into()).spawn(body)
}

/// Wakes `thread` from [`park`], or lets its next one pass.
#[inline]
pub fn unpark(thread: &Thread) {
    thread.unpark();
}

/// Parks until unparked or for `timeout` at most; may return early. The checkers, which have no
/// clock, return after letting others run.
pub fn park_timeout(timeout: Duration) {
    #[cfg(any(corewise_loom, corewise_shuttle))]
    pass(timeout);
    #[cfg(not(any(corewise_loom, corewise_shuttle)))]
    imp::park_timeout(timeout);
}

/// Sleeps for `duration` at least. The checkers let others run and move the clock of
/// [`crate::time`] on.
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
