//! Whether the event loops run: each is asked, and must answer in time.
//!
//! A question goes to the inbox of every loop and wakes it, since a loop without work sleeps. A
//! loop answers at the beginning of its next turn. The answer of a round serves all who ask within
//! [`CACHED`], so that questions cost the loops little however many clients ask them.

use corewise_atomic::lock::Mutex;
use mio::Waker;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A loop must answer within this time.
pub(super) const ANSWER_IN: Duration = Duration::from_secs(1);
/// How long a verdict is repeated.
const CACHED: Duration = Duration::from_secs(1);

/// A question to all loops.
pub(crate) struct Probe {
    /// The loops that have not answered.
    missing: Mutex<Vec<usize>>,
    /// Wakes the thread that asks.
    waker: Arc<Waker>,
}

impl Probe {
    /// Records the answer of a loop. The last one wakes the thread that asks.
    pub(crate) fn answer(&self, index: usize) {
        let mut missing = self.missing.lock();
        missing.retain(|other| *other != index);
        let is_last = missing.is_empty();
        drop(missing);
        if is_last && let Err(error) = self.waker.wake() {
            tracing::error!(%error, "the thread of the metrics cannot be woken");
        }
    }
}

/// The loops that have not answered in time; none if all are well.
pub(super) type Stalled = Vec<usize>;

/// An event loop that can be asked whether it runs.
pub(crate) trait AskLoop: Send + Sync {
    /// Asks it. A new question replaces one that is not answered.
    fn ask(&self, probe: &Arc<Probe>);
}

/// Asks the loops.
pub(super) struct Health {
    inboxes: Vec<Arc<dyn AskLoop>>,
    waker: Arc<Waker>,
    /// The round in progress, and when it ends.
    round: Option<(Arc<Probe>, Instant)>,
    last: Option<(Stalled, Instant)>,
}

impl Health {
    pub(super) fn new(inboxes: Vec<Arc<dyn AskLoop>>, waker: Arc<Waker>) -> Self {
        Self {
            inboxes,
            waker,
            round: None,
            last: None,
        }
    }

    /// The verdict of a round that ended lately. Otherwise begins a round, unless one is in
    /// progress.
    pub(super) fn ask(&mut self, now: Instant) -> Option<&Stalled> {
        let is_fresh = |at: &Instant| now < *at + CACHED;
        if !self.last.as_ref().is_some_and(|(_, at)| is_fresh(at)) {
            self.last = None;
            if self.round.is_none() {
                let probe = Arc::new(Probe {
                    missing: Mutex::new((0..self.inboxes.len()).collect()),
                    waker: Arc::clone(&self.waker),
                });
                self.inboxes.iter().for_each(|inbox| inbox.ask(&probe));
                self.round = Some((probe, now + ANSWER_IN));
            }
        }
        self.last.as_ref().map(|(stalled, _)| stalled)
    }

    /// When the round in progress ends.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.round.as_ref().map(|(_, deadline)| *deadline)
    }

    /// Ends the round in progress if all loops have answered, or had the time to. Returns its
    /// verdict.
    pub(super) fn settle(&mut self, now: Instant) -> Option<&Stalled> {
        let (probe, deadline) = self.round.as_ref()?;
        let stalled = probe.missing.lock().clone();
        if !stalled.is_empty() && now < *deadline {
            return None;
        }
        self.round = None;
        self.last = Some((stalled, now));
        self.last.as_ref().map(|(stalled, _)| stalled)
    }
}
