//! Whether the event loops run: each is asked, and must answer in time.
//!
//! A question goes to the inbox of every loop and wakes it, since a loop without work sleeps. A
//! loop answers at the beginning of its next turn. There is one question at a time, and it stays
//! until all loops have answered. Its answer serves all who ask within [`CACHED`]. So questions
//! cost the loops little however many clients ask them.

use corewise_atomic::lock::Mutex;
use mio::Waker;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A loop must answer within this time.
pub(super) const ANSWER_IN: Duration = Duration::from_secs(1);
/// How long it is repeated that all loops have answered.
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
    /// The question that some loops have not answered.
    question: Option<Question>,
    /// When all loops had answered the last question.
    answered: Option<Instant>,
}

struct Question {
    probe: Arc<Probe>,
    /// When the loops must have answered; `None` if this has passed.
    deadline: Option<Instant>,
}

impl Health {
    pub(super) fn new(inboxes: Vec<Arc<dyn AskLoop>>, waker: Arc<Waker>) -> Self {
        Self {
            inboxes,
            waker,
            question: None,
            answered: None,
        }
    }

    /// The verdict, if it is known: all loops have answered lately, or some are late. Otherwise
    /// asks them, unless a question is in progress.
    pub(super) fn ask(&mut self, now: Instant) -> Option<Stalled> {
        if let Some(question) = &self.question {
            let is_overdue = question.deadline.is_none();
            return is_overdue.then(|| question.probe.missing.lock().clone());
        }
        if self.answered.is_some_and(|at| now < at + CACHED) {
            return Some(Stalled::new());
        }
        let probe = Arc::new(Probe {
            missing: Mutex::new((0..self.inboxes.len()).collect()),
            waker: Arc::clone(&self.waker),
        });
        self.inboxes.iter().for_each(|inbox| inbox.ask(&probe));
        self.question = Some(Question {
            probe,
            deadline: Some(now + ANSWER_IN),
        });
        None
    }

    /// When the loops must have answered the question in progress, if that is to come.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.question.as_ref()?.deadline
    }

    /// The verdict, when it becomes known and when it changes: once when the time for the question
    /// in progress is over, and once when all loops have answered it.
    pub(super) fn settle(&mut self, now: Instant) -> Option<Stalled> {
        let question = self.question.as_mut()?;
        let stalled = question.probe.missing.lock().clone();
        if stalled.is_empty() {
            self.question = None;
            self.answered = Some(now);
            return Some(stalled);
        }
        question.deadline.take_if(|deadline| *deadline <= now)?;
        Some(stalled)
    }
}
