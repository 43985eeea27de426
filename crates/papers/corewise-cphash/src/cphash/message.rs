//! Messages: words of 60 bits of payload and an opcode of 4 bits (\[CPHASH\] §3.4, §6.2).
//!
//! | request | payload | second word | reply |
//! |---|---|---|---|
//! | `LOOKUP` | ID | | `FOUND` or `MISSING` |
//! | `LOOKUP_BYTES` | ID | | `FOUND`, `CANDIDATES` or `MISSING` |
//! | `INSERT`, `INSERT_BYTES` | ID | lengths | `ALLOCATED` or `REFUSED` |
//! | `INSERT_INLINE`, `INSERT_INLINE_BYTES` | ID | lengths; then key and value | `PUBLISHED` or `REFUSED` |
//! | `READY` | element | | |
//! | `PUBLISH` | element | | `PUBLISHED` |
//! | `DECREF` | element | | |
//! | `DECREF_ALL` | candidates | | |
//! | `REMOVE` | ID | | `REMOVED` |
//! | `EXECUTE` | task | | `EXECUTED` |
//!
//! `LOOKUP`, `INSERT` and `REMOVE` are for narrow keys, whose ID says everything. The server knows
//! only the ID of other keys, so the client compares the keys. If several keys have the ID, the
//! reply is a list of referenced elements, the candidates, and one `DECREF_ALL` returns the list.
//! So a lookup takes one round trip, and is executed in its place among the client's operations.
//! `PUBLISH` is `READY` with a reply. An inline insertion carries up to [`INLINE_BYTES`] of key and
//! value, so it needs no second message.

use corewise_atomic::sync::atomic::AtomicU64;

use crate::element::{Element, Header};
use crate::key::{ID_BITS, KeyKind};
use crate::partition::InsertError;

/// A request or a reply.
pub(super) type Word = u64;

/// Opcodes of requests.
pub(super) mod op {
    pub(in crate::cphash) const LOOKUP: u64 = 0;
    pub(in crate::cphash) const LOOKUP_BYTES: u64 = 1;
    pub(in crate::cphash) const INSERT: u64 = 2;
    pub(in crate::cphash) const INSERT_BYTES: u64 = 3;
    pub(in crate::cphash) const READY: u64 = 4;
    pub(in crate::cphash) const DECREF: u64 = 5;
    pub(in crate::cphash) const REMOVE: u64 = 6;
    pub(in crate::cphash) const EXECUTE: u64 = 7;
    pub(in crate::cphash) const PUBLISH: u64 = 8;
    pub(in crate::cphash) const DECREF_ALL: u64 = 9;
    pub(in crate::cphash) const INSERT_INLINE: u64 = 10;
    pub(in crate::cphash) const INSERT_INLINE_BYTES: u64 = 11;
}

/// Opcodes of replies.
pub(super) mod answer {
    pub(in crate::cphash) const MISSING: u64 = 8;
    pub(in crate::cphash) const FOUND: u64 = 9;
    pub(in crate::cphash) const ALLOCATED: u64 = 10;
    pub(in crate::cphash) const REFUSED: u64 = 11;
    pub(in crate::cphash) const REMOVED: u64 = 12;
    pub(in crate::cphash) const EXECUTED: u64 = 13;
    pub(in crate::cphash) const CANDIDATES: u64 = 14;
    pub(in crate::cphash) const PUBLISHED: u64 = 15;
}

/// The elements with one ID that a lookup has met, each with a reference that the message carries.
pub(super) type Candidates = Vec<Element>;

#[inline(always)]
pub(super) fn word(op: u64, payload: u64) -> Word {
    debug_assert!(payload >> ID_BITS == 0);
    op << ID_BITS | payload
}

#[inline(always)]
pub(super) fn op_of(word: Word) -> u64 {
    word >> ID_BITS
}

#[inline(always)]
pub(super) fn payload_of(word: Word) -> u64 {
    word & ((1 << ID_BITS) - 1)
}

/// A message about a pointer. Pointers have fewer than 60 bits on all targets.
#[inline(always)]
pub(super) fn pointer<T>(op: u64, pointer: *mut T) -> Word {
    word(op, pointer.expose_provenance() as u64)
}

#[inline(always)]
pub(super) fn pointer_of<T>(word: Word) -> *mut T {
    std::ptr::with_exposed_provenance_mut(payload_of(word) as usize)
}

/// The element of a message that has one.
#[inline(always)]
pub(super) fn element_of(word: Word) -> Element {
    Element::from_ptr(pointer_of::<Header>(word)).expect("messages have no null pointers")
}

/// The second word of an insertion: the lengths, and whether the key is a wide number.
#[inline(always)]
pub(super) fn lengths(kind: KeyKind, key_len: usize, value_len: usize) -> Word {
    u64::from(kind == KeyKind::Wide) << 63 | (key_len as u64) << 32 | value_len as u64
}

#[inline(always)]
pub(super) fn lengths_of(word: Word) -> (KeyKind, usize, usize) {
    let kind = match word >> 63 {
        0 => KeyKind::Bytes,
        _ => KeyKind::Wide,
    };
    let key_len = (word << 1 >> 33) as usize;
    (kind, key_len, word as u32 as usize)
}

/// Bytes of key and value that a message can carry: with its first two words it takes seven, which
/// are a line of the single buffer with its state.
pub(super) const INLINE_BYTES: usize = 40;

/// The most words of an inline insertion.
pub(super) const INLINE_WORDS: usize = 2 + INLINE_BYTES / 8;

/// Whether key and value follow the lengths.
#[inline(always)]
pub(super) fn is_inline(request: Word) -> bool {
    matches!(op_of(request), op::INSERT_INLINE | op::INSERT_INLINE_BYTES)
}

/// How many words an inline insertion has behind its lengths.
#[inline(always)]
pub(super) fn words_behind(lengths: Word) -> usize {
    let (_, key_len, value_len) = lengths_of(lengths);
    (key_len + value_len).div_ceil(8)
}

/// An inline insertion, and the number of its words. `bytes` and `value` are at most
/// [`INLINE_BYTES`] together.
#[inline]
pub(super) fn insert_inline(
    (id, kind): (u64, KeyKind),
    bytes: &[u8],
    value: &[u8],
) -> ([Word; INLINE_WORDS], usize) {
    let mut place = [0; INLINE_BYTES];
    place[..bytes.len()].copy_from_slice(bytes);
    place[bytes.len()..][..value.len()].copy_from_slice(value);
    let mut words = [0; INLINE_WORDS];
    words[0] = match kind {
        KeyKind::Narrow => word(op::INSERT_INLINE, id),
        _ => word(op::INSERT_INLINE_BYTES, id),
    };
    words[1] = lengths(kind, bytes.len(), value.len());
    for (word, &chunk) in words[2..].iter_mut().zip(place.as_chunks().0) {
        *word = u64::from_ne_bytes(chunk);
    }
    let count = 2 + words_behind(words[1]);
    (words, count)
}

/// Key and value of an inline insertion, from the words behind its lengths.
#[inline]
pub(super) fn inline_bytes(words: &[Word; INLINE_WORDS - 2]) -> [u8; INLINE_BYTES] {
    let mut place = [0; INLINE_BYTES];
    for (chunk, word) in place.as_chunks_mut().0.iter_mut().zip(words) {
        *chunk = word.to_ne_bytes();
    }
    place
}

pub(super) fn refused(error: InsertError) -> Word {
    word(answer::REFUSED, u64::from(error == InsertError::TooLarge))
}

pub(super) fn refusal_of(word: Word) -> InsertError {
    match payload_of(word) {
        0 => InsertError::NoRoom,
        _ => InsertError::TooLarge,
    }
}

/// How many words the request has that begins with this one, without an inline key and value.
#[inline(always)]
pub(super) fn words_of(request: Word) -> usize {
    let is_insert = matches!(op_of(request), op::INSERT | op::INSERT_BYTES);
    1 + usize::from(is_insert || is_inline(request))
}

// IDs fit, and so do the addresses of all supported targets.
const _: () = assert!(ID_BITS == 60 && size_of::<AtomicU64>() >= size_of::<Word>());

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_taken_apart_as_they_were_made() {
        let id = (1 << 60) - 1;
        let request = word(op::EXECUTE, id);
        assert_eq!((op_of(request), payload_of(request)), (op::EXECUTE, id));
        for kind in [KeyKind::Wide, KeyKind::Bytes] {
            let (key_len, value_len) = (crate::MAX_KEY_BYTES, u32::MAX as usize);
            let word = lengths(kind, key_len, value_len);
            assert_eq!(lengths_of(word), (kind, key_len, value_len));
        }
        for error in [InsertError::NoRoom, InsertError::TooLarge] {
            assert_eq!(refusal_of(refused(error)), error);
        }
        for (key, value) in [
            ("", ""),
            ("k", ""),
            ("", "8 bytes!"),
            ("20 bytes of a key...", "20 bytes of a value."),
        ] {
            let (key, value) = (key.as_bytes(), value.as_bytes());
            let (words, count) = insert_inline((id, KeyKind::Bytes), key, value);
            assert_eq!(count, 2 + (key.len() + value.len()).div_ceil(8));
            assert_eq!(words_behind(words[1]), count - 2);
            assert_eq!(
                lengths_of(words[1]),
                (KeyKind::Bytes, key.len(), value.len())
            );
            let bytes = inline_bytes(words[2..].try_into().unwrap());
            assert_eq!(bytes[..key.len()], *key);
            assert_eq!(bytes[key.len()..][..value.len()], *value);
        }
        assert_eq!(words_of(word(op::INSERT, 1)), 2);
        assert_eq!(words_of(word(op::LOOKUP, 1)), 1);
    }
}
