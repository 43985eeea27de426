//! Outcomes that outlive the call which reports them.

use corewise_ops::filter::FilterResult;
use corewise_ops::sorted::SortedResult;
use corewise_ops::{Absence, Deadline, Flow, ItemFlags, Outcome, ReplySink, Token};

/// An owned copy of an outcome.
#[derive(Clone, Debug, PartialEq)]
pub enum Seen {
    /// See [`Outcome::Found`].
    Found {
        /// The item's value.
        value: Vec<u8>,
        /// Not interpreted.
        client_flags: u32,
        /// The item's cas value.
        cas: u64,
        /// When the item expires.
        deadline: Deadline,
        /// Win token, staleness, fetched bit.
        flags: ItemFlags,
    },
    /// See [`Outcome::Stored`].
    Stored {
        /// The item's value.
        value: Vec<u8>,
        /// The item's cas value.
        cas: u64,
    },
    /// See [`Outcome::Counter`].
    Counter {
        /// The number.
        value: u64,
        /// The item's value after the operation.
        text: Vec<u8>,
    },
    /// See [`Outcome::Deleted`].
    Deleted,
    /// See [`Outcome::Missing`].
    Missing(Absence),
    /// See [`Outcome::NotStored`].
    NotStored,
    /// See [`Outcome::Exists`].
    Exists,
    /// See [`Outcome::NonNumeric`].
    NonNumeric,
    /// See [`Outcome::TooLarge`].
    TooLarge,
    /// See [`Outcome::OutOfMemory`].
    OutOfMemory,
    /// See [`Outcome::Edited`].
    Edited {
        /// What the edit reports.
        number: i64,
        /// The value before.
        old: Option<Vec<u8>>,
    },
    /// See [`Outcome::Refused`].
    Refused(&'static str),
    /// See [`Outcome::WrongKind`].
    WrongKind,
    /// See [`Outcome::Sorted`].
    Sorted(SeenSet),
    /// See [`Outcome::Filter`]: the result without the bytes of a dump, and these.
    Filter(FilterResult<'static>, Vec<u8>),
}

/// A copy of a [`SortedResult`].
#[derive(Clone, Debug, PartialEq)]
pub enum SeenSet {
    /// See [`SortedResult::Number`].
    Number(u64),
    /// See [`SortedResult::Inserted`]: members that were added, and that have changed.
    Inserted(u64, u64),
    /// See [`SortedResult::Score`].
    Score(Option<f64>),
    /// See [`SortedResult::Scores`].
    Scores(Vec<Option<f64>>),
    /// See [`SortedResult::Rank`].
    Rank(Option<u64>),
    /// See [`SortedResult::Members`].
    Members(Vec<(Vec<u8>, f64)>),
    /// See [`SortedResult::Scan`]: all members, in steps of 16.
    Scanned(Vec<(Vec<u8>, f64)>),
    /// See [`SortedResult::NotANumber`].
    NotANumber,
}

impl SeenSet {
    /// Copies a result.
    ///
    /// # Panics
    ///
    /// If the number of members or scores is not that of those that are shown.
    #[must_use]
    pub fn of(result: &SortedResult<'_>) -> Self {
        match *result {
            SortedResult::Number(number) => Self::Number(number),
            SortedResult::Inserted { added, changed } => Self::Inserted(added, changed),
            SortedResult::Score(score) => Self::Score(score),
            SortedResult::Rank(rank) => Self::Rank(rank),
            SortedResult::NotANumber => Self::NotANumber,
            SortedResult::Scores(scores) => {
                let mut seen = Vec::new();
                scores.show(&mut |score| seen.push(score));
                assert_eq!(seen.len(), scores.len(), "the number of scores");
                Self::Scores(seen)
            }
            SortedResult::Scan(scan) => {
                let (mut seen, mut cursor) = (Vec::new(), 0);
                loop {
                    cursor = scan.step(cursor, 16, &mut |member, score| {
                        seen.push((member.to_vec(), score));
                    });
                    if cursor == 0 {
                        return Self::Scanned(seen);
                    }
                }
            }
            SortedResult::Members(members) => {
                let mut seen = Vec::new();
                members.show(&mut |member, score| {
                    seen.push((member.to_vec(), score));
                    true
                });
                assert_eq!(seen.len(), members.len(), "the number of members");
                Self::Members(seen)
            }
        }
    }
}

impl Seen {
    /// The only outcome that `run` reports to the sink it is given.
    ///
    /// # Panics
    ///
    /// If it reports none or several.
    pub fn by<R>(run: impl FnOnce(&mut Collect) -> R) -> Self {
        let mut sink = Collect::new();
        run(&mut sink);
        let (_, seen) = sink.seen.pop().expect("one outcome");
        assert!(sink.seen.is_empty(), "one outcome");
        seen
    }

    /// Copies an outcome.
    #[must_use]
    pub fn of(outcome: &Outcome<'_>) -> Self {
        match *outcome {
            Outcome::Found(v) => Self::Found {
                value: v.value.to_vec(),
                client_flags: v.client_flags,
                cas: v.cas,
                deadline: v.deadline,
                flags: v.flags,
            },
            Outcome::Stored(v) => Self::Stored {
                value: v.value.to_vec(),
                cas: v.cas,
            },
            Outcome::Counter { value, view } => Self::Counter {
                value,
                text: view.value.to_vec(),
            },
            Outcome::Deleted => Self::Deleted,
            Outcome::Missing(absence) => Self::Missing(absence),
            Outcome::NotStored => Self::NotStored,
            Outcome::Exists => Self::Exists,
            Outcome::NonNumeric => Self::NonNumeric,
            Outcome::TooLarge => Self::TooLarge,
            Outcome::OutOfMemory => Self::OutOfMemory,
            Outcome::Edited { number, old, .. } => Self::Edited {
                number,
                old: old.map(<[u8]>::to_vec),
            },
            Outcome::Refused(why) => Self::Refused(why),
            Outcome::WrongKind => Self::WrongKind,
            Outcome::Sorted { result, .. } => Self::Sorted(SeenSet::of(&result)),
            Outcome::Filter { result, .. } => Self::of_filter(result),
        }
    }

    fn of_filter(result: FilterResult<'_>) -> Self {
        let bytes = match result {
            FilterResult::Dump { bytes, .. } => bytes.to_vec(),
            _ => Vec::new(),
        };
        Self::Filter(result.without_bytes(), bytes)
    }

    /// The value of an item that was found or stored.
    #[must_use]
    pub fn value(&self) -> Option<&[u8]> {
        match self {
            Self::Found { value, .. } | Self::Stored { value, .. } => Some(value),
            _ => None,
        }
    }

    /// The cas value of an item that was found or stored.
    ///
    /// # Panics
    ///
    /// For other outcomes.
    #[must_use]
    pub fn cas(&self) -> u64 {
        match self {
            Self::Found { cas, .. } | Self::Stored { cas, .. } => *cas,
            other => panic!("{other:?} has no cas value"),
        }
    }

    /// When an item that was found expires.
    ///
    /// # Panics
    ///
    /// For other outcomes.
    #[must_use]
    pub fn deadline(&self) -> Deadline {
        match self {
            Self::Found { deadline, .. } => *deadline,
            other => panic!("{other:?} has no deadline"),
        }
    }

    /// Whether a read or a conditional write found nothing. Engines may differ in the reported
    /// reason.
    #[must_use]
    pub fn is_absent(&self) -> bool {
        matches!(self, Self::Missing(_))
    }

    /// Whether an item was stored.
    #[must_use]
    pub fn is_stored(&self) -> bool {
        matches!(self, Self::Stored { .. })
    }

    /// The flags of an item that was found.
    ///
    /// # Panics
    ///
    /// For other outcomes.
    #[must_use]
    pub fn flags(&self) -> ItemFlags {
        match self {
            Self::Found { flags, .. } => *flags,
            other => panic!("{other:?} has no flags"),
        }
    }
}

/// A sink that collects outcomes, and pauses once it has `pause_after`.
#[derive(Debug)]
pub struct Collect {
    /// The outcomes, in order.
    pub seen: Vec<(Token, Seen)>,
    /// After how many outcomes it pauses.
    pub pause_after: usize,
}

impl Collect {
    /// A sink that never pauses.
    #[must_use]
    pub fn new() -> Self {
        Self {
            seen: Vec::new(),
            pause_after: usize::MAX,
        }
    }
}

impl Default for Collect {
    fn default() -> Self {
        Self::new()
    }
}

impl ReplySink for Collect {
    fn complete(&mut self, token: Token, outcome: Outcome<'_>) -> Flow {
        self.seen.push((token, Seen::of(&outcome)));
        if self.seen.len() >= self.pause_after {
            Flow::Pause
        } else {
            Flow::Continue
        }
    }
}
