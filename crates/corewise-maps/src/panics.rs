//! Going on after foreign code has panicked, where stopping would leave something undone.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

type Payload = Box<dyn Any + Send>;

/// Panics that were caught, of which the first one goes on in the end.
#[derive(Default)]
pub(crate) struct Panics(Option<Payload>);

impl Panics {
    /// Calls foreign code. The caller sees to it that whatever the code may have left behind is not looked at.
    pub(crate) fn catch(&mut self, act: impl FnOnce()) {
        if let Err(payload) = catch_unwind(AssertUnwindSafe(act)) {
            match self.0 {
                None => self.0 = Some(payload),
                Some(_) => discard(payload),
            }
        }
    }

    /// Lets the first panic go on, unless the thread is unwinding already, which a second panic would abort.
    pub(crate) fn resume(self) {
        match self.0 {
            Some(payload) if !std::thread::panicking() => resume_unwind(payload),
            Some(payload) => discard(payload),
            None => {}
        }
    }
}

/// How often what is thrown by the drop of what was thrown is dropped in its turn.
const MOST_THROWS: u32 = 8;

/// Drops what a panic has thrown, which may throw again. What goes on throwing is leaked in the end.
pub(crate) fn discard(mut payload: Payload) {
    for _ in 0..MOST_THROWS {
        match catch_unwind(AssertUnwindSafe(|| drop(payload))) {
            Ok(()) => return,
            Err(next) => payload = next,
        }
    }
    std::mem::forget(payload);
}
