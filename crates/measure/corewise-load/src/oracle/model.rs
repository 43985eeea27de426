//! The oracle's knowledge of one key, and the replies that it allows.
//!
//! One connection sends all commands for a key, so replies arrive in the order in which the server
//! executed them, and the model is exact: a hit returns the value of the last acknowledged command.
//! Some outcomes remain open: an item may vanish at any time if the server evicts; a refused store
//! may remove the old item; an item that was stored while `flush_all` ran may have been flushed;
//! and around its expiry time an item may be present or absent.

use super::session::Reply;
use crate::value::Values;

/// How far the server's clock may be from the requested second, in milliseconds. The clock ticks
/// once a second, and a busy server ticks late.
const CLOCK_MS: u64 = 2_000;

/// The contents of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Content {
    /// Pieces, each identified by its write.
    Pieces(Vec<Piece>),
    /// A decimal number.
    Number(u64),
}

/// The bytes that one command wrote.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    /// The number of the write: no two have the same bytes.
    pub(super) write: u32,
    pub(super) len: u32,
}

impl Content {
    pub(super) fn render(&self, values: &Values, out: &mut Vec<u8>) {
        match self {
            Self::Number(n) => out.extend_from_slice(itoa::Buffer::new().format(*n).as_bytes()),
            Self::Pieces(pieces) => pieces
                .iter()
                .for_each(|piece| values.render(piece.write, piece.len, out)),
        }
    }

    pub(super) fn len(&self) -> usize {
        match self {
            Self::Number(n) => itoa::Buffer::new().format(*n).len(),
            Self::Pieces(pieces) => pieces.iter().map(|piece| piece.len as usize).sum(),
        }
    }

    fn matches(&self, values: &Values, mut bytes: &[u8]) -> bool {
        let pieces = match self {
            Self::Number(n) => return bytes == itoa::Buffer::new().format(*n).as_bytes(),
            Self::Pieces(pieces) => pieces,
        };
        for piece in pieces {
            let Some((head, rest)) = bytes.split_at_checked(piece.len as usize) else {
                return false;
            };
            if !values.matches(piece.write, 0, head) {
                return false;
            }
            bytes = rest;
        }
        bytes.is_empty()
    }
}

/// A command for one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Command {
    Get,
    /// Times to live are in seconds; 0 means forever.
    Set(Content, u32),
    Add(Content, u32),
    Replace(Content, u32),
    Append(Piece),
    Prepend(Piece),
    Delete,
    Touch(u32),
    Incr(u64),
    Decr(u64),
}

/// When a command was executed.
#[derive(Clone, Copy, Debug)]
pub(super) struct When {
    /// When it was sent, and when its reply had arrived, in milliseconds.
    pub(super) sent_ms: u64,
    pub(super) answered_ms: u64,
    pub(super) round: u64,
}

#[derive(Clone, Debug)]
struct Item {
    content: Content,
    /// No command of unknown effect was sent since it was stored.
    certain: bool,
    /// The round in which it was stored.
    round: u64,
    /// The item is present before the first time and absent after the second.
    expires_ms: Option<(u64, u64)>,
}

/// The known state of one key; without an item it is absent.
#[derive(Clone, Debug, Default)]
pub(super) struct Model {
    item: Option<Item>,
}

impl Model {
    /// Number of pieces of the value, if there may be one; a number has one.
    pub(super) fn pieces(&self) -> usize {
        match self.item.as_ref().map(|item| &item.content) {
            Some(Content::Pieces(pieces)) => pieces.len(),
            Some(Content::Number(_)) => 1,
            None => 0,
        }
    }

    /// Whether the key may have an item.
    pub(super) fn may_exist(&self) -> bool {
        self.item.is_some()
    }

    /// Checks a hit: `get` returned `bytes`.
    pub(super) fn hit(&mut self, values: &Values, bytes: &[u8], when: When) -> Result<(), String> {
        let item = self.existing("a hit", when)?;
        if item.content.matches(values, bytes) {
            return Ok(());
        }
        Err(format!(
            "a hit of {} bytes that are not the {} of the last acknowledged write",
            bytes.len(),
            item.content.len()
        ))
    }

    /// Checks a miss. The server must not have lost an item unless it may evict or a flush runs
    /// (`may_miss`).
    pub(super) fn miss(&mut self, may_miss: bool, when: When) -> Result<(), String> {
        let Some(item) = self.item.take() else {
            return Ok(());
        };
        let expired = item
            .expires_ms
            .is_some_and(|(first, _)| when.answered_ms >= first);
        if may_miss || expired || !item.certain {
            Ok(())
        } else {
            Err(format!(
                "an acknowledged item of {} bytes is lost",
                item.content.len()
            ))
        }
    }

    /// Checks the reply to a command other than `get`.
    pub(super) fn answered(
        &mut self,
        command: Command,
        reply: &Reply,
        may_miss: bool,
        when: When,
    ) -> Result<(), String> {
        match (command, reply) {
            (Command::Get, _) => Err(format!("{reply:?} to a get")),
            (_, Reply::NoMemory) => {
                self.item.iter_mut().for_each(|item| item.certain = false);
                Ok(())
            }
            (Command::Set(content, ttl), Reply::Stored) => {
                self.item = Some(Item::new(content, ttl, when));
                Ok(())
            }
            (Command::Add(content, ttl), Reply::Stored) => {
                let gone = self.miss(may_miss, when);
                self.item = Some(Item::new(content, ttl, when));
                gone.map_err(|text| format!("add was done: {text}"))
            }
            (Command::Add(..), Reply::NotStored) => self.existing("a refused add", when).map(drop),
            (Command::Replace(content, ttl), Reply::Stored) => {
                let there = self.existing("a replace", when).map(drop);
                self.item = Some(Item::new(content, ttl, when));
                there
            }
            (Command::Delete, Reply::Deleted) => {
                let there = self.existing("a delete", when).map(drop);
                self.item = None;
                there
            }
            (Command::Touch(ttl), Reply::Touched) => {
                self.existing("a touch", when)?.expires_ms = expiry(ttl, when);
                Ok(())
            }
            (Command::Append(piece), Reply::Stored) => self.joined(piece, false, when),
            (Command::Prepend(piece), Reply::Stored) => self.joined(piece, true, when),
            (Command::Incr(by), Reply::Number(n)) => self.counted(*n, |old| old + by, when),
            (Command::Decr(by), Reply::Number(n)) => {
                self.counted(*n, |old| old.saturating_sub(by), when)
            }
            // memcached also replies this for lack of memory, and keeps the item.
            (Command::Append(_) | Command::Prepend(_), Reply::NotStored) => Ok(()),
            (Command::Replace(..), Reply::NotStored)
            | (
                Command::Delete | Command::Touch(_) | Command::Incr(_) | Command::Decr(_),
                Reply::NotFound,
            ) => self.miss(may_miss, when),
            (command, reply) => Err(format!("{reply:?} to {command:?}")),
        }
    }

    /// Records an acknowledged `flush_all`, which ran at some time of `round`.
    pub(super) fn flushed(&mut self, round: u64) {
        match &mut self.item {
            Some(item) if item.round == round => item.certain = false,
            item => *item = None,
        }
    }

    /// The item whose existence `what` proves.
    fn existing(&mut self, what: &str, when: When) -> Result<&mut Item, String> {
        let Some(item) = &mut self.item else {
            return Err(format!("{what} of a key that is absent"));
        };
        match item.expires_ms {
            Some((_, last)) if when.sent_ms > last => Err(format!(
                "{what} of an item that expired {} ms ago",
                when.sent_ms - last
            )),
            _ => Ok(item),
        }
    }

    fn joined(&mut self, piece: Piece, before: bool, when: When) -> Result<(), String> {
        let item = self.existing("an append or prepend", when)?;
        item.round = when.round;
        match &mut item.content {
            Content::Pieces(pieces) => {
                let at = if before { 0 } else { pieces.len() };
                pieces.insert(at, piece);
                Ok(())
            }
            Content::Number(_) => Err("an append to a number".into()),
        }
    }

    fn counted(&mut self, n: u64, next: impl Fn(u64) -> u64, when: When) -> Result<(), String> {
        let item = self.existing("an incr or decr", when)?;
        item.round = when.round;
        let Content::Number(old) = item.content else {
            return Err(format!("{n} to an incr of a value that is no number"));
        };
        item.content = Content::Number(n);
        if next(old) == n {
            Ok(())
        } else {
            Err(format!("{n} after {old} by an incr or decr"))
        }
    }
}

impl Item {
    fn new(content: Content, ttl_s: u32, when: When) -> Self {
        Self {
            content,
            certain: true,
            round: when.round,
            expires_ms: expiry(ttl_s, when),
        }
    }
}

/// The times until which an item with this time to live is present, and after which it is absent.
fn expiry(ttl_s: u32, when: When) -> Option<(u64, u64)> {
    let ttl_ms = u64::from(ttl_s) * 1000;
    let first = (when.sent_ms + ttl_ms).saturating_sub(CLOCK_MS);
    (ttl_s != 0).then_some((first, when.answered_ms + ttl_ms + CLOCK_MS))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::ValueSize;

    fn values() -> Values {
        Values::new(ValueSize { min: 0, max: 0 })
    }

    fn at(ms: u64, round: u64) -> When {
        When {
            sent_ms: ms,
            answered_ms: ms,
            round,
        }
    }

    fn piece(write: u32) -> Piece {
        Piece { write, len: 20 }
    }

    fn content(write: u32) -> Content {
        Content::Pieces(vec![piece(write)])
    }

    fn bytes(writes: &[u32]) -> Vec<u8> {
        let mut out = Vec::new();
        Content::Pieces(writes.iter().copied().map(piece).collect()).render(&values(), &mut out);
        out
    }

    fn stored(write: u32, ttl: u32) -> Model {
        let mut model = Model::default();
        let set = Command::Set(content(write), ttl);
        model
            .answered(set, &Reply::Stored, false, at(0, 0))
            .expect("stored");
        model
    }

    #[test]
    fn only_the_last_acknowledged_value_may_come_back() {
        let mut model = stored(1, 0);
        let set = Command::Set(content(2), 0);
        model
            .answered(set, &Reply::Stored, true, at(1, 0))
            .expect("stored");
        model
            .hit(&values(), &bytes(&[2]), at(2, 0))
            .expect("the last");
        let stale = model.hit(&values(), &bytes(&[1]), at(2, 0));
        assert!(stale.expect_err("stale").contains("last acknowledged"));
        let append = Command::Append(piece(3));
        model
            .answered(append, &Reply::Stored, true, at(3, 0))
            .expect("appended");
        let prepend = Command::Prepend(piece(4));
        model
            .answered(prepend, &Reply::Stored, true, at(3, 0))
            .expect("prepended");
        model
            .hit(&values(), &bytes(&[4, 2, 3]), at(4, 0))
            .expect("all pieces");
        assert!(model.hit(&values(), &bytes(&[4, 2]), at(4, 0)).is_err());
    }

    #[test]
    fn what_is_deleted_or_missed_does_not_come_back() {
        let mut model = stored(1, 0);
        model
            .answered(Command::Delete, &Reply::Deleted, false, at(1, 0))
            .expect("deleted");
        let hit = model.hit(&values(), &bytes(&[1]), at(2, 0));
        assert!(hit.expect_err("deleted").contains("absent"));
        let mut model = stored(1, 0);
        model.miss(true, at(1, 0)).expect("evicted");
        assert!(model.hit(&values(), &bytes(&[1]), at(2, 0)).is_err());
        assert!(
            model
                .answered(Command::Touch(0), &Reply::Touched, true, at(2, 0))
                .is_err()
        );
    }

    #[test]
    fn a_server_that_does_not_evict_must_not_lose_items() {
        assert!(
            stored(1, 0)
                .miss(false, at(1, 0))
                .expect_err("lost")
                .contains("lost")
        );
        stored(1, 0).miss(true, at(1, 0)).expect("evicted");
        let mut model = stored(1, 0);
        let set = Command::Set(content(2), 0);
        model
            .answered(set, &Reply::NoMemory, false, at(1, 0))
            .expect("refused");
        model
            .hit(&values(), &bytes(&[1]), at(1, 0))
            .expect("the old value");
        model
            .miss(false, at(1, 0))
            .expect("a refused set may remove the old value");
        let add = Command::Add(content(3), 0);
        let error = stored(1, 0).answered(add, &Reply::Stored, false, at(1, 0));
        assert!(error.expect_err("lost").contains("lost"));
    }

    #[test]
    fn items_expire_when_they_should() {
        let mut model = stored(1, 5);
        model
            .hit(&values(), &bytes(&[1]), at(5_000, 0))
            .expect("about now");
        assert!(model.hit(&values(), &bytes(&[1]), at(7_001, 0)).is_err());
        assert!(stored(1, 5).miss(false, at(2_999, 0)).is_err());
        stored(1, 5).miss(false, at(3_000, 0)).expect("about now");
        let mut model = stored(1, 5);
        model
            .answered(Command::Touch(0), &Reply::Touched, false, at(1, 0))
            .expect("touched");
        assert!(model.miss(false, at(60_000, 0)).is_err());
    }

    #[test]
    fn flush_all_removes_what_was_stored_before_its_round() {
        let mut model = stored(1, 0);
        model.flushed(1);
        assert!(model.hit(&values(), &bytes(&[1]), at(1, 1)).is_err());
        let mut model = stored(1, 0);
        model.flushed(0);
        model
            .hit(&values(), &bytes(&[1]), at(1, 1))
            .expect("stored after it");
        model.miss(false, at(1, 1)).expect("stored before it");
    }

    #[test]
    fn counters_count() {
        let mut model = Model::default();
        let set = Command::Set(Content::Number(10), 0);
        model
            .answered(set, &Reply::Stored, false, at(0, 0))
            .expect("stored");
        let mut ask = |command, n| model.answered(command, &Reply::Number(n), false, at(0, 0));
        ask(Command::Incr(5), 15).expect("15");
        ask(Command::Decr(20), 0).expect("0");
        assert!(ask(Command::Incr(5), 6).is_err());
    }

    #[test]
    fn impossible_replies_are_errors() {
        for (command, reply) in [
            (Command::Delete, Reply::Stored),
            (Command::Set(content(1), 0), Reply::NotStored),
            (Command::Incr(1), Reply::Other("ERROR".into())),
            (Command::Get, Reply::Stored),
        ] {
            assert!(
                stored(1, 0)
                    .answered(command, &reply, true, at(0, 0))
                    .is_err()
            );
        }
    }
}
