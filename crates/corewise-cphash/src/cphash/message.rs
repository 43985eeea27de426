//! Messages: words of 60 bits of payload and an opcode of 4 bits (\[CPHASH\] §3.4, §6.2).
//!
//! | request | payload | second word | reply |
//! |---|---|---|---|
//! | `LOOKUP` | ID | | `FOUND` or `MISSING` |
//! | `LOOKUP_BYTES` | ID | | `FOUND`, `CANDIDATES` or `MISSING` |
//! | `INSERT`, `INSERT_BYTES` | ID | lengths | `ALLOCATED` or `REFUSED` |
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
//! `PUBLISH` is `READY` with a reply.

use corewise_atomic::sync::atomic::AtomicU64;

use crate::element::{Element, Header};
use crate::key::{ID_BITS, Kind};
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
pub(super) fn lengths(kind: Kind, key_len: usize, value_len: usize) -> Word {
    u64::from(kind == Kind::Wide) << 63 | (key_len as u64) << 32 | value_len as u64
}

#[inline(always)]
pub(super) fn lengths_of(word: Word) -> (Kind, usize, usize) {
    let kind = match word >> 63 {
        0 => Kind::Bytes,
        _ => Kind::Wide,
    };
    let key_len = (word << 1 >> 33) as usize;
    (kind, key_len, word as u32 as usize)
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

/// How many words the request has that begins with this one.
#[inline(always)]
pub(super) fn words_of(request: Word) -> usize {
    1 + usize::from(matches!(op_of(request), op::INSERT | op::INSERT_BYTES))
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
        for kind in [Kind::Wide, Kind::Bytes] {
            let (key_len, value_len) = (crate::MAX_KEY_BYTES, u32::MAX as usize);
            let word = lengths(kind, key_len, value_len);
            assert_eq!(lengths_of(word), (kind, key_len, value_len));
        }
        for error in [InsertError::NoRoom, InsertError::TooLarge] {
            assert_eq!(refusal_of(refused(error)), error);
        }
        assert_eq!(words_of(word(op::INSERT, 1)), 2);
        assert_eq!(words_of(word(op::LOOKUP, 1)), 1);
    }
}
