//! The results of the checker, for programs and for readers.

use crate::history::CallRecord;
use crate::history::timeline::Timeline;
use std::collections::BTreeSet;
use std::fmt;
use std::fmt::Debug;

/// Operations shown that returned before the violating one.
const SHOWN_BEFORE: usize = 4;
/// Operations shown in total.
const SHOWN: usize = 16;

/// Whether a history is linearizable.
///
/// Printed ([`Display`](fmt::Display)), a violation shows the operations around it on time lines.
#[derive(Clone, Debug)]
#[must_use]
pub enum Verdict {
    /// An order of the operations explains every outcome.
    Linearizable(Summary),
    /// No order explains them.
    Violation(Violation),
    /// The checker gave up.
    Undecided(Undecided),
}

impl Verdict {
    /// Returns the summary of the check, if the history is linearizable.
    ///
    /// # Panics
    ///
    /// Otherwise, with the violation or the reason why there is no verdict.
    ///
    /// ```
    /// # use corewise_testkit::history::models::{EntryOp, EntryOutcome, MapEntry};
    /// # use corewise_testkit::history::{History, CallRecord};
    /// let insert = CallRecord::new(0, "key", EntryOp::Insert(1), 0);
    /// let history = History::new(vec![insert.returning(EntryOutcome::Held(None), 1)]);
    /// let summary = history.check(&MapEntry::new()).assert_linearizable();
    /// assert_eq!((summary.operations, summary.concurrent), (1, 0));
    /// ```
    #[track_caller]
    #[allow(clippy::must_use_candidate)] // the assertion may be all that is wanted
    pub fn assert_linearizable(self) -> Summary {
        match self {
            Self::Linearizable(summary) => summary,
            failed => panic!("{failed}"),
        }
    }

    /// The violation, if there is one.
    ///
    /// ```
    /// # use corewise_testkit::history::models::{EntryOp, EntryOutcome, MapEntry};
    /// # use corewise_testkit::history::{History, CallRecord};
    /// let get = CallRecord::new(0, "key", EntryOp::Get, 0);
    /// let history = History::new(vec![get.returning(EntryOutcome::Held(Some(1)), 1)]);
    /// let violation = history.check(&MapEntry::new()).violation().unwrap();
    /// assert_eq!(violation.key(), "\"key\"");
    /// ```
    #[must_use]
    pub fn violation(self) -> Option<Violation> {
        match self {
            Self::Violation(violation) => Some(violation),
            _ => None,
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Linearizable(summary) => write!(f, "{summary}"),
            Self::Violation(violation) => write!(f, "{violation}"),
            Self::Undecided(undecided) => write!(f, "{undecided}"),
        }
    }
}

/// What a proof of linearizability covered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Keys in the history.
    pub keys: usize,
    /// Operations on them.
    pub operations: usize,
    /// Operations that overlap another on their key. If there are few, the history shows little:
    /// almost any implementation handles operations one after the other correctly.
    pub concurrent: usize,
    /// Configurations visited.
    pub configurations: usize,
}

impl Summary {
    pub(crate) fn add(&mut self, part: Self) {
        self.keys += part.keys;
        self.operations += part.operations;
        self.concurrent += part.concurrent;
        self.configurations += part.configurations;
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            keys,
            operations,
            concurrent,
            configurations,
        } = self;
        write!(
            f,
            "linearizable: {operations} operations on {keys} keys, {concurrent} of them \
             overlapping another, {configurations} configurations"
        )
    }
}

/// Why there is no verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reason {
    /// The search reached the limit of configurations.
    Configurations {
        /// The limit.
        limit: usize,
        /// Number of operations, in the order of their returns, that some order explains.
        explained: usize,
    },
    /// More operations than this were open at once ([`MAX_OPEN`](crate::history::MAX_OPEN)).
    Open(usize),
}

/// A key on which the checker gave up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Undecided {
    /// The key, as its `Debug` prints it.
    pub key: String,
    /// Number of operations on the key.
    pub operations: usize,
    /// Why the checker gave up.
    pub reason: Reason,
}

impl fmt::Display for Undecided {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "undecided: key {} with {} operations has ",
            self.key, self.operations
        )?;
        match self.reason {
            Reason::Configurations { limit, explained } => write!(
                f,
                "more than {limit} configurations; up to its return no. {explained} it can be \
                 explained"
            ),
            Reason::Open(limit) => write!(f, "more than {limit} operations open at once"),
        }
    }
}

/// A history that no order explains: the operations on one key around the return that cannot be
/// explained.
///
/// ```
/// use corewise_testkit::history::models::{EntryOp, EntryOutcome::Held, MapEntry};
/// use corewise_testkit::history::{History, CallRecord};
///
/// let history = History::new(vec![
///     CallRecord::new(0, "key", EntryOp::Insert(1), 0).returning(Held(None), 1),
///     CallRecord::new(0, "key", EntryOp::Insert(2), 2).returning(Held(Some(1)), 4),
///     CallRecord::new(1, "key", EntryOp::Get, 5).returning(Held(Some(1)), 6),
/// ]);
/// let violation = history.check(&MapEntry::new()).violation().unwrap();
/// assert_eq!(violation.to_string(), r#"
/// not linearizable: key "key", once Get -> Held(Some(1)) has returned
/// before that, the state can be: Holds(Some(2))
///   thread 0  ├─┤         Insert(1) -> Held(None)
///   thread 0      ├─┤     Insert(2) -> Held(Some(1))
///   thread 1          ├─┤ Get -> Held(Some(1))  <- fits nowhere
/// "#.trim_start());
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    key: String,
    operation: String,
    states: Vec<String>,
    lines: Vec<OperationBar>,
    width: usize,
    left_out: usize,
}

/// One operation on its time line.
#[derive(Clone, Debug, PartialEq, Eq)]
struct OperationBar {
    thread: usize,
    /// The columns of its invocation and its return.
    from: usize,
    to: Option<usize>,
    what: String,
    fits_nowhere: bool,
}

impl Violation {
    /// The key, as its `Debug` prints it.
    #[must_use]
    pub fn key(&self) -> &str {
        &self.key
    }

    /// The operation whose return cannot be explained.
    #[must_use]
    pub fn operation(&self) -> &str {
        &self.operation
    }

    /// Makes the violation at a step that no configuration gets past.
    pub(crate) fn new<K, O: Debug, R: Debug, S: Debug>(
        key: String,
        timeline: &Timeline<'_, K, O, R>,
        step: usize,
        states: &[S],
    ) -> Self {
        let (shown, left_out) = excerpt(timeline, step);
        let last = timeline.operations[timeline.open(step)[0]];
        let stamps: BTreeSet<u64> = shown.iter().flat_map(|o| [o.invoked, o.end()]).collect();
        let column = |stamp: u64| 2 * stamps.range(..stamp).count();
        let line = |operation: &&CallRecord<K, O, R>| OperationBar {
            thread: operation.thread,
            from: column(operation.invoked),
            to: operation.response.as_ref().map(|r| column(r.returned)),
            what: describe(operation),
            fits_nowhere: std::ptr::eq(*operation, last),
        };
        Self {
            key,
            operation: describe(last),
            states: states.iter().map(|state| format!("{state:?}")).collect(),
            lines: shown.iter().map(line).collect(),
            width: 2 * stamps.len() - 1,
            left_out,
        }
    }
}

/// The operations to show for a step, by invocation: the open ones, and those that returned last
/// before it. Also the number of open ones left out.
fn excerpt<'h, K, O, R>(
    timeline: &Timeline<'h, K, O, R>,
    step: usize,
) -> (Vec<&'h CallRecord<K, O, R>>, usize) {
    let before = step.saturating_sub(SHOWN_BEFORE)..step;
    let open = timeline.open(step);
    let room = SHOWN - before.len();
    let shown = open.iter().take(room).copied();
    let shown = shown.chain(before.map(|earlier| timeline.open(earlier)[0]));
    let mut shown: Vec<_> = shown.map(|index| timeline.operations[index]).collect();
    shown.sort_by_key(|operation| (operation.invoked, operation.thread));
    (shown, open.len().saturating_sub(room))
}

fn describe<K, O: Debug, R: Debug>(operation: &CallRecord<K, O, R>) -> String {
    match &operation.response {
        Some(response) => format!("{:?} -> {:?}", operation.op, response.outcome),
        None => format!("{:?}, pending", operation.op),
    }
}

impl OperationBar {
    /// Draws `├─────┤` in its columns, or `├─────┄` to the end of the picture.
    fn bar(&self, width: usize) -> String {
        let blank = " ".repeat(self.from);
        let to = self.to.unwrap_or(width - 1).max(self.from + 1);
        let inside = "─".repeat(to - self.from - 1);
        let end = if self.to.is_some() { '┤' } else { '┄' };
        format!("{blank}├{inside}{end}")
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { key, operation, .. } = self;
        writeln!(
            f,
            "not linearizable: key {key}, once {operation} has returned"
        )?;
        let states = self.states.join(" or ");
        writeln!(f, "before that, the state can be: {states}")?;
        let threads = self.lines.iter().map(|line| line.thread);
        let digits = threads.max().unwrap_or(0).to_string().len();
        for line in &self.lines {
            let OperationBar { thread, what, .. } = line;
            let bar = line.bar(self.width);
            let mark = if line.fits_nowhere {
                "  <- fits nowhere"
            } else {
                ""
            };
            writeln!(
                f,
                "  thread {thread:digits$}  {bar:width$} {what}{mark}",
                width = self.width
            )?;
        }
        match self.left_out {
            0 => Ok(()),
            more => writeln!(f, "  and {more} more that overlap it"),
        }
    }
}
