//! Values of users whose destructors may panic.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use corewise_atomic::thread;

/// Drops a value of a user. A panic in its destructor must not harm the calling thread, to which
/// the value does not belong.
#[inline]
pub(crate) fn discard<T>(value: T) {
    if std::mem::needs_drop::<T>() {
        let dropped = catch_unwind(AssertUnwindSafe(|| drop(value)));
        // What it panicked with may panic again when it is dropped, and only then is leaked.
        if let Err(payload) = dropped {
            let dropped = catch_unwind(AssertUnwindSafe(|| drop(payload)));
            dropped.unwrap_or_else(std::mem::forget);
        }
    }
}

/// Drops several values of a user. All are dropped, also if destructors panic; the second panic of
/// a plain destructor would end the process.
#[derive(Default)]
pub(crate) struct Drops {
    first_panic: Option<Box<dyn Any + Send>>,
}

impl Drops {
    pub(crate) fn drop<T>(&mut self, value: T) {
        let dropped = catch_unwind(AssertUnwindSafe(|| drop(value)));
        match dropped.err() {
            Some(payload) if self.first_panic.is_none() => self.first_panic = Some(payload),
            payload => discard(payload),
        }
    }

    /// Lets the first panic go on, if there was one and the thread is not panicking.
    pub(crate) fn finish(self) {
        match self.first_panic {
            Some(payload) if !thread::panicking() => resume_unwind(payload),
            payload => discard(payload),
        }
    }
}
