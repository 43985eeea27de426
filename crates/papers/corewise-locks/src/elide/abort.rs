//! Why a transaction was aborted.

/// Why a transaction was aborted (thesis table 4.1, with our codes of explicit aborts).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cause {
    /// A thread held the lock.
    Locked,
    /// The transaction began inside of another one, whose lock or kind does not permit that.
    Nested,
    /// What a prefix had found was outdated ([`Cop::verify`](super::Cop::verify)).
    BadPrefix,
    /// The section panicked. The panic happens again under the lock, and is raised from there.
    Panicked,
    /// An explicit abort with another code.
    Explicit(u8),
    /// Another thread accessed the same cache lines.
    Conflict,
    /// The section accessed more lines than the processor tracks.
    Capacity,
    /// A debug exception.
    Debug,
    /// None of these: an instruction that aborts, an interrupt, a page fault.
    Unspecified,
}

/// The number of kinds of causes; all explicit codes are one kind.
pub(crate) const KINDS: usize = 9;

/// Bits of the status word of RTM.
pub(crate) const STATUS_EXPLICIT: u32 = 1;
pub(crate) const STATUS_RETRY: u32 = 1 << 1;
pub(crate) const STATUS_CONFLICT: u32 = 1 << 2;
pub(crate) const STATUS_CAPACITY: u32 = 1 << 3;
pub(crate) const STATUS_DEBUG: u32 = 1 << 4;

/// Codes of explicit aborts.
pub(crate) const CODE_LOCKED: u8 = 0xff;
pub(crate) const CODE_NESTED: u8 = 0xfe;
pub(crate) const CODE_BAD_PREFIX: u8 = 0xfd;
pub(crate) const CODE_PANICKED: u8 = 0xfc;

/// An aborted attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Abort {
    /// The cause that the policies react to.
    pub cause: Cause,
    /// The status word of RTM, or what it would be.
    pub status: u32,
}

impl Abort {
    /// Decodes a status word. If it reports a conflict and something else, the conflict counts: it
    /// is what a retry helps against.
    #[must_use]
    pub fn from_status(status: u32) -> Self {
        let has = |bit| status & bit != 0;
        let cause = if has(STATUS_EXPLICIT) {
            Cause::from_code((status >> 24) as u8)
        } else if has(STATUS_CONFLICT) {
            Cause::Conflict
        } else if has(STATUS_CAPACITY) {
            Cause::Capacity
        } else if has(STATUS_DEBUG) {
            Cause::Debug
        } else {
            Cause::Unspecified
        };
        Self { cause, status }
    }
}

impl Cause {
    fn from_code(code: u8) -> Self {
        match code {
            CODE_LOCKED => Self::Locked,
            CODE_NESTED => Self::Nested,
            CODE_BAD_PREFIX => Self::BadPrefix,
            CODE_PANICKED => Self::Panicked,
            code => Self::Explicit(code),
        }
    }

    /// The position of this kind of cause in [`Counts::aborted`](super::Counts::aborted).
    #[must_use]
    pub fn kind(self) -> usize {
        match self {
            Self::Locked => 0,
            Self::Nested => 1,
            Self::BadPrefix => 2,
            Self::Panicked => 3,
            Self::Explicit(_) => 4,
            Self::Conflict => 5,
            Self::Capacity => 6,
            Self::Debug => 7,
            Self::Unspecified => 8,
        }
    }

    /// The status word with which a processor reports this cause.
    pub(crate) fn status(self) -> u32 {
        let explicit = |code: u8| STATUS_EXPLICIT | u32::from(code) << 24;
        match self {
            Self::Locked => explicit(CODE_LOCKED),
            Self::Nested => explicit(CODE_NESTED),
            Self::BadPrefix => explicit(CODE_BAD_PREFIX),
            Self::Panicked => explicit(CODE_PANICKED),
            Self::Explicit(code) => explicit(code),
            Self::Conflict => STATUS_CONFLICT | STATUS_RETRY,
            Self::Capacity => STATUS_CAPACITY,
            Self::Debug => STATUS_DEBUG,
            Self::Unspecified => 0,
        }
    }
}

impl From<Cause> for Abort {
    fn from(cause: Cause) -> Self {
        Self {
            cause,
            status: cause.status(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_word_is_decoded_as_it_was_encoded() {
        let causes = [
            Cause::Locked,
            Cause::Nested,
            Cause::BadPrefix,
            Cause::Panicked,
            Cause::Explicit(3),
            Cause::Conflict,
            Cause::Capacity,
            Cause::Debug,
            Cause::Unspecified,
        ];
        assert!(causes.iter().map(|cause| cause.kind()).eq(0..KINDS));
        for cause in causes {
            assert_eq!(Abort::from_status(cause.status()), cause.into());
        }
        let both = STATUS_CONFLICT | STATUS_CAPACITY;
        assert_eq!(Abort::from_status(both).cause, Cause::Conflict);
    }
}
