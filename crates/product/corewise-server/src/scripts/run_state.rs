//! Whether a loop executes a script, and whether that may be killed.

use corewise_atomic::sync::atomic::{AtomicU8, Ordering};

const IDLE: u8 = 0;
/// A script runs that has written nothing.
const READS: u8 = 1;
/// A script runs that has written.
const HAS_WRITTEN: u8 = 2;
/// A script runs that must end; it has written nothing.
const KILLED: u8 = 3;

/// What one loop does.
///
/// All accesses are Relaxed: the word is all that threads tell each other here.
#[derive(Default)]
pub(crate) struct RunState(AtomicU8);

/// What has become of a `SCRIPT KILL`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kill {
    Done,
    /// The script must end already.
    WasKilled,
    HasWritten,
    NothingRuns,
}

impl RunState {
    pub(super) fn begin(&self) {
        // Relaxed: see the type.
        self.0.store(READS, Ordering::Relaxed);
    }

    /// Returns whether the script was killed.
    pub(super) fn end(&self) -> bool {
        // Relaxed: see the type.
        self.0.swap(IDLE, Ordering::Relaxed) == KILLED
    }

    pub(super) fn is_killed(&self) -> bool {
        // Relaxed: see the type.
        self.0.load(Ordering::Relaxed) == KILLED
    }

    /// Notes that the script is about to write. Returns false if it was killed before.
    pub(crate) fn may_write(&self) -> bool {
        // Relaxed: see the type.
        let relaxed = Ordering::Relaxed;
        match self
            .0
            .compare_exchange(READS, HAS_WRITTEN, relaxed, relaxed)
        {
            Ok(_) => true,
            Err(state) => state != KILLED,
        }
    }

    /// Kills the script unless it has written.
    pub(super) fn kill(&self) -> Kill {
        // Relaxed: see the type.
        let relaxed = Ordering::Relaxed;
        match self.0.compare_exchange(READS, KILLED, relaxed, relaxed) {
            Ok(_) => Kill::Done,
            Err(KILLED) => Kill::WasKilled,
            Err(HAS_WRITTEN) => Kill::HasWritten,
            Err(_) => Kill::NothingRuns,
        }
    }
}
