//! How long the requests of one connection may hold its loop before other connections are served.
//!
//! A turn serves each ready connection once. When the requests of a connection have taken
//! [`BUDGET`] in a turn, the rest of them stays in its input, and the connection is served again in
//! the next turn. So a client waits for at most [`BUDGET`] and one *unit* for each busy connection
//! of its loop. A unit is a call; or up to a batch of operations, which ends early when
//! [`OUTPUT_PAUSE`](crate::buffer_accounting::OUTPUT_PAUSE) bytes of values were read or written. A
//! call that can be long does its work in parts, and is [unfinished](crate::commands) if the budget
//! is spent between two of them.
//!
//! # Guarantees
//!
//! 1. A connection that is served executes at least one of its requests, or part of one.
//! 2. The clock is read after a call and after a full batch, not for each operation.

use std::time::{Duration, Instant};

/// The time of a connection in a turn.
pub(crate) const BUDGET: Duration = Duration::from_millis(2);

/// Whose requests are executed, and since when.
pub(crate) struct Budget {
    /// Time since some moment; replaced by tests.
    pub(crate) clock: Box<dyn Fn() -> Duration + Send>,
    /// The connection's place among those of the turn.
    input: usize,
    since: Duration,
}

impl Budget {
    pub(crate) fn new() -> Self {
        let origin = Instant::now();
        Self {
            clock: Box::new(move || origin.elapsed()),
            input: usize::MAX,
            since: Duration::ZERO,
        }
    }

    /// Begins a turn.
    pub(crate) fn reset(&mut self) {
        self.input = usize::MAX;
    }

    /// The requests of this connection are executed from now on, unless they are already.
    pub(crate) fn begin(&mut self, input: usize) {
        if self.input != input {
            self.input = input;
            self.since = (self.clock)();
        }
    }

    /// Whether the connection whose requests are executed has spent its budget.
    pub(crate) fn is_spent(&self) -> bool {
        (self.clock)().saturating_sub(self.since) >= BUDGET
    }

    /// As [`Self::is_spent`], for a connection whose requests may have just begun.
    pub(crate) fn is_spent_by(&mut self, input: usize) -> bool {
        let has_begun = self.input == input;
        self.begin(input);
        has_begun && self.is_spent()
    }
}
