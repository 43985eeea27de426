//! When a script must end.

use super::cache::Script;
use super::run_state::RunState;
use std::cell::Cell;
use std::sync::Arc;
use std::time::Instant;

/// Why a script was ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stopped {
    /// It took longer than it may.
    TimedOut,
    /// `SCRIPT KILL` of another client.
    Killed,
    /// It has no memory left. What it catches then may be half done.
    OutOfMemory,
    /// It has used all places for values on a stack, or all references to them from Rust.
    OutOfStack,
}

impl Stopped {
    /// The error text.
    pub(super) fn text(self) -> &'static str {
        match self {
            Self::TimedOut => "ERR Script exceeded its time limit, see --script-time.",
            Self::Killed => "ERR Script killed by user with SCRIPT KILL.",
            Self::OutOfMemory => "ERR not enough memory, see --script-memory.",
            Self::OutOfStack => "ERR stack overflow: the script uses too many values at once.",
        }
    }

    /// The error text for a script that has begun.
    pub(super) fn of(self, script: &Script) -> String {
        let digest = script.digest.escape_ascii();
        format!("{} script: {digest}", self.text())
    }
}

/// Ends the script that runs on this thread.
pub(crate) struct Watchdog {
    deadline: Cell<Option<Instant>>,
    stopped: Cell<Option<Stopped>>,
    pub(super) state: Arc<RunState>,
    #[cfg(test)]
    pub(super) looks: super::tests::looks::Looks,
}

impl Watchdog {
    pub(super) fn new(state: Arc<RunState>) -> Self {
        Self {
            deadline: Cell::new(None),
            stopped: Cell::new(None),
            state,
            #[cfg(test)]
            looks: super::tests::looks::Looks::default(),
        }
    }

    /// A script is compiled or begins, and must end at the deadline, if it has one.
    pub(super) fn begin(&self, deadline: Option<Instant>) {
        self.state.begin();
        self.stopped.set(None);
        self.deadline.set(deadline);
        #[cfg(test)]
        self.looks.begin();
    }

    /// The script has ended. Returns why it must fail, if it was killed after the last
    /// [look](Self::check): who kills a script is told that it does not succeed.
    pub(super) fn end(&self) -> Option<Stopped> {
        #[cfg(test)]
        if self.looks.note() {
            self.state.kill();
        }
        let is_killed = self.state.end();
        self.deadline.set(None);
        (is_killed && self.stopped.get().is_none()).then_some(Stopped::Killed)
    }

    /// Why the script must end, if it must. Once it must, that stays so.
    pub(super) fn check(&self) -> Result<(), Stopped> {
        #[cfg(test)]
        if self.looks.note() {
            self.state.kill();
        }
        if let Some(stopped) = self.stopped.get() {
            return Err(stopped);
        }
        let why = if self.state.is_killed() {
            Stopped::Killed
        } else if self.deadline.get().is_some_and(|at| Instant::now() >= at) {
            Stopped::TimedOut
        } else {
            return Ok(());
        };
        self.stopped.set(Some(why));
        Err(why)
    }

    /// The script must end, unless it must already.
    pub(super) fn stop(&self, why: Stopped) {
        self.stopped.set(self.stopped.get().or(Some(why)));
    }

    /// Why it was ended, if it was.
    pub(super) fn stopped(&self) -> Option<Stopped> {
        self.stopped.get()
    }
}
