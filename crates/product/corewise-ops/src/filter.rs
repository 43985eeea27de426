//! Operations on cuckoo filters: those of RedisBloom's `CF.*`.
//!
//! An item is named by its [hash](item_hash), so an operation on one has a fixed size.

pub use corewise_filter::redis::{
    CuckooInfo, CuckooSettings, HEADER_BYTES, MAX_BUCKET_SLOTS, MAX_CHUNK, MAX_SUBFILTERS,
    STEP_WORK, WhileCompacting, item_hash,
};

/// An operation on one cuckoo filter.
///
/// Outcomes: [`Outcome::Filter`], [`Outcome::WrongKind`]; [`Outcome::OutOfMemory`] and
/// [`Outcome::TooLarge`] of those that may make a filter or let it grow. A write that fails leaves
/// the filter as it was.
///
/// [`Outcome::Filter`]: crate::Outcome::Filter
/// [`Outcome::WrongKind`]: crate::Outcome::WrongKind
/// [`Outcome::OutOfMemory`]: crate::Outcome::OutOfMemory
/// [`Outcome::TooLarge`]: crate::Outcome::TooLarge
#[derive(Clone, Copy, Debug)]
pub enum FilterOp<'a> {
    /// A read.
    Read(FilterRead),
    /// A write.
    Write(FilterWrite<'a>),
}

/// A read of a filter.
#[derive(Clone, Copy, Debug)]
pub enum FilterRead {
    /// Whether the filter has the item with this hash: [`FilterResult::Flag`].
    Contains(u64),
    /// The copies of the item with this hash: [`FilterResult::Count`].
    Count(u64),
    /// What is known of the filter: [`FilterResult::Info`], or [`FilterResult::Busy`].
    Info(WhileCompacting),
    /// A part of the dump: [`FilterResult::Dump`], or [`FilterResult::Busy`].
    Dump {
        /// Where it begins, as the part before has told.
        iterator: i64,
        /// Its most bytes.
        most: usize,
        /// What it does while a compaction runs.
        beside: WhileCompacting,
    },
}

/// A change of a filter. One that is told to [refuse](WhileCompacting::Refuse) reports
/// [`FilterResult::Busy`] while a compaction runs; of many such that have found no step made by
/// others, one makes it.
#[derive(Clone, Copy, Debug)]
pub enum FilterWrite<'a> {
    /// Makes a filter: [`FilterResult::Done`], or [`FilterResult::Exists`].
    Reserve(CuckooSettings),
    /// Inserts the item with a hash: [`FilterResult::Flag`], whether it was inserted;
    /// [`FilterResult::Full`] or [`FilterResult::MaxSubfilters`].
    Add {
        /// Of the item.
        hash: u64,
        /// Not if the filter has it.
        only_new: bool,
        /// The filter that is made if the key has none.
        create: Option<CuckooSettings>,
        /// What it does while a compaction runs.
        beside: WhileCompacting,
    },
    /// Removes a copy of the item with a hash: [`FilterResult::Removed`].
    Remove {
        /// Of the item.
        hash: u64,
        /// What it does while a compaction runs.
        beside: WhileCompacting,
    },
    /// Makes a filter from the header of a dump: [`FilterResult::Done`], [`FilterResult::Exists`]
    /// or [`FilterResult::Invalid`].
    LoadHeader(&'a [u8]),
    /// Loads a part of a dump: [`FilterResult::Done`] or [`FilterResult::Invalid`].
    LoadChunk {
        /// Where it ends.
        iterator: i64,
        /// The part.
        chunk: &'a [u8],
        /// What it does while a compaction runs.
        beside: WhileCompacting,
    },
    /// Begins a compaction and does a step of it: [`FilterResult::Done`], or
    /// [`FilterResult::Busy`] if another runs.
    StartCompaction,
    /// Does a step of the compaction that runs: [`FilterResult::Done`] if nothing is left to do,
    /// else [`FilterResult::Busy`].
    Step,
}

/// What a [`FilterOp`] reports. Without a filter it is [`FilterResult::Missing`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FilterResult<'a> {
    /// It was done.
    Done,
    /// The key has no filter.
    Missing,
    /// The key has a filter already.
    Exists,
    /// The filter has the item, or did insert it.
    Flag(bool),
    /// A number of copies.
    Count(u64),
    /// See [`FilterWrite::Remove`].
    Removed {
        /// Whether there was a copy.
        is_removed: bool,
        /// Whether a compaction has begun that has more [steps](FilterWrite::Step).
        must_compact: bool,
    },
    /// See [`FilterRead::Info`].
    Info(CuckooInfo),
    /// A part of a dump.
    Dump {
        /// The iterator of the next part; 0 without bytes after the last one.
        next: i64,
        /// The bytes.
        bytes: &'a [u8],
    },
    /// No slot is free, and the filter does not grow.
    Full,
    /// The filter has the most subfilters.
    MaxSubfilters,
    /// The bytes are no part of a dump of this filter, or of any.
    Invalid,
    /// A compaction runs: try again.
    Busy,
}

impl FilterResult<'_> {
    /// The result without the bytes of a dump.
    #[must_use]
    pub fn without_bytes(self) -> FilterResult<'static> {
        match self {
            Self::Dump { next, .. } => FilterResult::Dump { next, bytes: b"" },
            Self::Done => FilterResult::Done,
            Self::Missing => FilterResult::Missing,
            Self::Exists => FilterResult::Exists,
            Self::Flag(flag) => FilterResult::Flag(flag),
            Self::Count(count) => FilterResult::Count(count),
            Self::Removed {
                is_removed,
                must_compact,
            } => FilterResult::Removed {
                is_removed,
                must_compact,
            },
            Self::Info(info) => FilterResult::Info(info),
            Self::Full => FilterResult::Full,
            Self::MaxSubfilters => FilterResult::MaxSubfilters,
            Self::Invalid => FilterResult::Invalid,
            Self::Busy => FilterResult::Busy,
        }
    }
}
