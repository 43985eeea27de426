//! Prints the response to one operation.

use corewise_ops::{ItemView, Outcome};

use super::HEADER_LEN;
use super::request::Command;
use super::response::{Body, Echo, Failure};
use crate::step::Tally;

/// Bytes of client flags in the response to a read.
const FLAGS_LEN: u8 = 4;

/// How to print the response to one operation.
#[derive(Clone, Copy, Debug)]
pub struct ReplyForm<'i> {
    key: &'i [u8],
    echo: Echo,
    command: Command,
    is_quiet: bool,
    tally: Tally,
}

impl<'i> ReplyForm<'i> {
    #[inline]
    pub(super) fn new(command: Command, is_quiet: bool, echo: Echo, key: &'i [u8]) -> Self {
        use Command as C;
        let tally = match command {
            C::Get | C::GetKey => Tally::Get,
            C::Touch => Tally::Touch,
            C::GetAndTouch | C::GetKeyAndTouch => Tally::Gat,
            C::Set | C::Add | C::Replace | C::Append | C::Prepend => Tally::Store,
            C::Delete => Tally::Delete,
            C::Increment => Tally::Incr,
            C::Decrement => Tally::Decr,
            _ => Tally::None,
        };
        Self {
            key,
            echo,
            command,
            is_quiet,
            tally,
        }
    }

    /// The same, but it counts as `tally`.
    #[inline]
    pub(super) fn counting(self, tally: Tally) -> Self {
        Self { tally, ..self }
    }

    /// What the operation counts as.
    #[inline]
    #[must_use]
    pub fn tally(&self) -> Tally {
        self.tally
    }

    /// The key.
    #[inline]
    #[must_use]
    pub fn key(&self) -> &'i [u8] {
        self.key
    }

    /// The same form with a copy of the key, so that it may outlive the request.
    #[must_use]
    pub fn with_key<'o>(&self, key: &'o [u8]) -> ReplyForm<'o> {
        ReplyForm {
            key,
            echo: self.echo,
            command: self.command,
            is_quiet: self.is_quiet,
            tally: self.tally,
        }
    }

    /// Appends the response, which may be empty, to `out`.
    pub fn encode(&self, outcome: &Outcome<'_>, out: &mut Vec<u8>) {
        if let Some((value, _)) = self.encode_parts(outcome, out) {
            out.extend_from_slice(value);
        }
    }

    /// Like [`encode`](Self::encode), but omits the value of an item that was found, and returns it
    /// and the bytes after it, of which there are none. `None` if the response contains no value of
    /// an item; it is then complete.
    pub fn encode_parts<'v>(
        &self,
        outcome: &Outcome<'v>,
        out: &mut Vec<u8>,
    ) -> Option<(&'v [u8], &'static [u8])> {
        match (self.command, outcome) {
            (Command::Touch, Outcome::Found(view)) => self.push_found(view, b"", 0, out),
            (Command::Get | Command::GetAndTouch, Outcome::Found(view)) => {
                self.push_found(view, b"", view.value.len(), out);
                return Some((view.value, b""));
            }
            (Command::GetKey | Command::GetKeyAndTouch, Outcome::Found(view)) => {
                self.push_found(view, self.key, view.value.len(), out);
                return Some((view.value, b""));
            }
            (Command::Get | Command::GetAndTouch | Command::Touch, _) => self.push_miss(b"", out),
            (Command::GetKey | Command::GetKeyAndTouch, _) => self.push_miss(self.key, out),
            _ => self.push_change(outcome, out),
        }
        None
    }

    /// Appends the response to a hit up to the value, which has `value_len` bytes.
    #[inline]
    fn push_found(&self, view: &ItemView<'_>, key: &[u8], value_len: usize, out: &mut Vec<u8>) {
        let body = Body {
            extras: FLAGS_LEN,
            key: key.len(),
            value: value_len,
        };
        out.reserve(HEADER_LEN + usize::from(FLAGS_LEN) + key.len() + value_len);
        out.extend_from_slice(&self.echo.header(0, body, view.cas));
        out.extend_from_slice(&view.client_flags.to_be_bytes());
        out.extend_from_slice(key);
    }

    /// Appends the response to a miss: the key instead of a text, if it was asked for.
    fn push_miss(&self, key: &[u8], out: &mut Vec<u8>) {
        if self.is_quiet {
            return;
        }
        if key.is_empty() {
            self.echo.push_failure(Failure::NOT_FOUND, out);
        } else {
            self.echo.push_missing_key(key, out);
        }
    }

    /// Appends the response to a command that changes an item.
    fn push_change(&self, outcome: &Outcome<'_>, out: &mut Vec<u8>) {
        match (self.tally, outcome) {
            (Tally::Refused, _) => self.echo.push_failure(Failure::TOO_LARGE, out),
            (Tally::Unread, _) => self.echo.push_failure(Failure::NO_ROOM_FOR_ITEM, out),
            (_, Outcome::Stored(_) | Outcome::Deleted | Outcome::Counter { .. })
                if self.is_quiet => {}
            (_, Outcome::Stored(view)) => self.echo.push_success(view.cas, out),
            (_, Outcome::Deleted) => self.echo.push_success(0, out),
            (_, Outcome::Counter { value, view }) => {
                let body = Body {
                    value: size_of::<u64>(),
                    ..Body::default()
                };
                out.extend_from_slice(&self.echo.header(0, body, view.cas));
                out.extend_from_slice(&value.to_be_bytes());
            }
            _ => self.echo.push_failure(failure(self.command, outcome), out),
        }
    }
}

/// Why a change was not made.
#[cold]
fn failure(command: Command, outcome: &Outcome<'_>) -> Failure {
    use Command::{Add, Append, Decrement, Increment, Prepend, Replace};
    match (command, outcome) {
        (_, Outcome::Exists) | (Add, Outcome::NotStored) => Failure::EXISTS,
        (_, Outcome::NonNumeric) => Failure::NON_NUMERIC,
        // An item to which nothing can be appended or prepended is unchanged.
        (Append | Prepend, _) => Failure::NOT_STORED,
        (_, Outcome::Missing(_) | Outcome::WrongKind) | (Replace, Outcome::NotStored) => {
            Failure::NOT_FOUND
        }
        (Increment | Decrement, Outcome::TooLarge | Outcome::OutOfMemory) => {
            Failure::NO_ROOM_FOR_COUNTER
        }
        (_, Outcome::TooLarge) => Failure::TOO_LARGE,
        (_, Outcome::OutOfMemory) => Failure::NO_ROOM_FOR_ITEM,
        _ => Failure::NOT_STORED,
    }
}
