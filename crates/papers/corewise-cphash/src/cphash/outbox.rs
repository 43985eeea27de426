//! The client's end of a lane.

use std::collections::VecDeque;

use corewise_atomic::sync::Arc;

use super::lane::{LaneState, Leftover};
use super::message::Word;
use crate::key::{Identity, KeyKind, MAX_KEY_BYTES};
use crate::ring::{Consumer, Producer};

// The lengths of keys have 32 bits.
const _: () = assert!(MAX_KEY_BYTES <= u32::MAX as usize);

/// An operation whose reply is outstanding.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pending {
    pub(super) token: u64,
    pub(super) what: What,
    pub(super) kind: KeyKind,
    pub(super) id: u64,
    /// Bytes of the key and of the value that wait in the outbox.
    pub(super) key_len: u32,
    pub(super) value_len: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum What {
    Get,
    Insert,
    InsertInline,
    Remove,
    Execute,
    /// The reply to `PUBLISH`, which ends an insertion.
    Publish,
}

impl Pending {
    /// Bytes of key and value.
    #[inline]
    pub(super) fn bytes(&self) -> usize {
        self.key_len as usize + self.value_len as usize
    }
}

pub(super) struct Outbox {
    requests: Producer,
    pub(super) replies: Consumer,
    pub(super) shared: Arc<LaneState>,
    pending: VecDeque<Pending>,
    /// Keys and values of pending operations, in their order.
    bytes: Bytes,
    /// Messages without a reply for which the ring had no room.
    unsent: VecDeque<Word>,
    /// Whether messages may be on their way.
    pub(super) is_used: bool,
    /// Whether messages became readable since the server was called.
    is_uncalled: bool,
}

impl Outbox {
    pub(super) fn new(requests: Producer, replies: Consumer, shared: Arc<LaneState>) -> Self {
        Self {
            requests,
            replies,
            shared,
            pending: VecDeque::new(),
            bytes: Bytes::default(),
            unsent: VecDeque::new(),
            is_used: false,
            is_uncalled: false,
        }
    }

    /// Whether a request of these words can be sent.
    #[inline]
    pub(super) fn has_room(&mut self, words: usize) -> bool {
        self.send_unsent() && self.requests.room(words) >= words
    }

    /// Sends what had no room before; whether all of it was sent.
    #[inline]
    pub(super) fn send_unsent(&mut self) -> bool {
        while let Some(&word) = self.unsent.front() {
            if !self.push(word) {
                return false;
            }
            self.unsent.pop_front();
        }
        true
    }

    /// Sends a request for which there is room.
    #[inline]
    pub(super) fn send(&mut self, word: Word) {
        self.is_used = true;
        let sent = self.push(word);
        debug_assert!(sent, "the caller has asked for room");
    }

    /// Writes a word if there is room.
    #[inline]
    fn push(&mut self, word: Word) -> bool {
        let has_room = self.requests.push(word);
        self.is_uncalled |= has_room && !self.requests.is_dirty();
        has_room
    }

    /// Makes all messages readable.
    #[inline]
    pub(super) fn flush(&mut self) {
        if self.requests.is_dirty() {
            self.requests.flush();
            self.is_uncalled = true;
        }
    }

    /// Whether the server must be called, because messages became readable since the last time.
    #[inline]
    pub(super) fn must_call(&mut self) -> bool {
        std::mem::take(&mut self.is_uncalled)
    }

    /// Sends a message that has no reply, now or later.
    #[inline]
    pub(super) fn post(&mut self, word: Word) {
        self.is_used = true;
        if !self.send_unsent() || !self.push(word) {
            self.unsent.push_back(word);
        }
    }

    /// Remembers an operation, and copies of its key, unless that is narrow, and of its value.
    #[inline]
    pub(super) fn expect(&mut self, token: u64, what: What, key: &Identity<'_>, value: &[u8]) {
        // Clients refuse longer keys and values.
        debug_assert!(key.bytes().len() <= MAX_KEY_BYTES && u32::try_from(value.len()).is_ok());
        self.bytes.push(key.bytes());
        self.bytes.push(value);
        self.pending.push_back(Pending {
            token,
            what,
            kind: key.kind,
            id: key.id,
            key_len: key.bytes().len() as u32,
            value_len: value.len() as u32,
        });
    }

    /// The operation that the next reply is for.
    #[inline]
    pub(super) fn pop(&mut self) -> Pending {
        let pending = self.pending.pop_front();
        pending.expect("there is one reply for each pending operation")
    }

    /// Key and value of the operation that was just popped.
    #[inline]
    pub(super) fn parts(&self, pending: &Pending) -> (&[u8], &[u8]) {
        let both = self.bytes.first(pending.bytes());
        both.split_at(pending.key_len as usize)
    }

    /// Removes key and value of the operation that was just popped.
    #[inline]
    pub(super) fn pop_bytes(&mut self, pending: &Pending) {
        self.bytes.pop(pending.bytes());
    }

    /// Whether every reply was received and every message sent.
    #[inline]
    pub(super) fn is_settled(&self) -> bool {
        self.pending.is_empty() && self.unsent.is_empty()
    }

    /// Whether an insertion of a key with this ID is outstanding.
    #[cold]
    pub(super) fn is_inserting(&self, id: u64) -> bool {
        let is_it = |pending: &Pending| pending.id == id && pending.what == What::Insert;
        self.pending.iter().any(is_it)
    }

    /// Sends everything and leaves.
    pub(super) fn close(self) {
        let Self {
            mut requests,
            replies,
            shared,
            unsent,
            ..
        } = self;
        requests.flush();
        shared.close(Leftover {
            replies,
            unsent: unsent.into(),
        });
    }
}

/// Bytes, first in, first out, and contiguous.
#[derive(Default)]
struct Bytes {
    buffer: Vec<u8>,
    start: usize,
}

impl Bytes {
    /// From this many unused bytes on, the used ones may be moved to the front.
    const SPARSE: usize = 1 << 16;

    #[inline]
    fn len(&self) -> usize {
        self.buffer.len() - self.start
    }

    #[inline]
    fn push(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    #[inline]
    fn first(&self, count: usize) -> &[u8] {
        &self.buffer[self.start..][..count]
    }

    #[inline]
    fn pop(&mut self, count: usize) {
        self.start += count;
        if self.start == self.buffer.len() {
            self.start = 0;
            self.buffer.clear();
            if self.buffer.capacity() > 16 * Self::SPARSE {
                self.buffer = Vec::new();
            }
        } else if self.start >= Self::SPARSE && self.start > self.len() {
            // Moves fewer bytes than were popped since the last move.
            self.buffer.drain(..self.start);
            self.start = 0;
        }
    }
}

#[cfg(all(test, not(any(corewise_loom, corewise_shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn bytes_leave_in_their_order_and_take_bounded_memory() {
        let mut bytes = Bytes::default();
        let chunk = |index: usize| vec![index as u8; index % 700];
        let mut popped = 0;
        for index in 0..5000 {
            bytes.push(&chunk(index));
            if index >= 100 {
                assert_eq!(bytes.first(popped % 700), chunk(popped));
                bytes.pop(popped % 700);
                popped += 1;
            }
        }
        assert!(bytes.buffer.len() < 100 * 700 + 2 * Bytes::SPARSE);
        (popped..5000).for_each(|index| bytes.pop(index % 700));
        assert_eq!(bytes.len(), 0);
    }
}
