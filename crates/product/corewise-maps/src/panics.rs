//! Continuing after a panic in foreign code, where stopping would leave work undone.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

type Payload = Box<dyn Any + Send>;

/// Caught panics, of which the first is resumed at the end.
#[derive(Default)]
pub struct Panics(Option<Payload>);

impl Panics {
    /// Calls foreign code. The caller must not use any state that the code may have left
    /// inconsistent.
    pub fn catch(&mut self, act: impl FnOnce()) {
        if let Err(payload) = catch_unwind(AssertUnwindSafe(act)) {
            match self.0 {
                None => self.0 = Some(payload),
                Some(_) => discard(payload),
            }
        }
    }

    /// Resumes the first panic, unless the thread is already unwinding: a second panic would abort.
    pub fn resume(self) {
        match self.0 {
            Some(payload) if !std::thread::panicking() => resume_unwind(payload),
            Some(payload) => discard(payload),
            None => {}
        }
    }
}

/// How often a payload whose drop panics is replaced by the new payload and dropped in turn.
const MOST_THROWS: u32 = 8;

/// Drops the payload of a panic, whose drop may panic again. A payload that keeps panicking is
/// leaked in the end.
pub(crate) fn discard(mut payload: Payload) {
    for _ in 0..MOST_THROWS {
        match catch_unwind(AssertUnwindSafe(|| drop(payload))) {
            Ok(()) => return,
            Err(next) => payload = next,
        }
    }
    std::mem::forget(payload);
}
