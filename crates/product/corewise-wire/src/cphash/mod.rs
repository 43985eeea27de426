//! The protocol of CPSERVER and LOCKSERVER (\[CPHASH\] §4.1): LOOKUP and INSERT with a fixed binary
//! header.
//!
//! `docs/CPHASH-PROTOCOL.md` specifies every byte, and lists what the paper leaves open.
//!
//! ```text
//!  request  0           4           8                       16
//!           │ operation │ size      │ hash key              │ value, `size` bytes (INSERT only)
//!  reply to LOOKUP      0           4
//!                       │ size      │ value, `size` bytes; size 0 means a miss
//!  reply to INSERT      none
//! ```
//!
//! All numbers are little-endian. [`Codec`] is the server's side, [`encode_lookup`],
//! [`encode_insert`] and [`decode_size`] are the client's.
//!
//! # Guarantees
//!
//! 1. **Total.** No input causes a panic; every call consumes bytes, asks for more, or closes.
//! 2. **Independent of splits.** Operations and replies do not depend on how the input was split
//!    into reads.
//! 3. **In step.** A request is either consumed whole, its value included, or the connection is
//!    closed.
//! 4. **No allocation.** Parsing allocates only the text of keys, 15 bytes for each request, in the
//!    scratch arena.
//! 5. **Rewindable.** [`Codec`] is a value, as in [`memcached`](crate::memcached).
//! 6. **One keyspace.** A hash key names the item that memcached's clients know under the key
//!    [`KeyNumber::text`].

mod client;
mod codec;

pub use client::{decode_size, encode_insert, encode_lookup};
pub use codec::{Codec, max_value_len};

/// Bytes of a request before the value.
pub const HEADER_LEN: usize = 16;
/// Bytes of a reply before the value.
pub const REPLY_HEADER_LEN: usize = 4;
/// The operation LOOKUP.
pub const LOOKUP: u32 = 1;
/// The operation INSERT.
pub const INSERT: u32 = 2;

/// A hash key of 60 bits (\[CPHASH\] §8.2).
///
/// ```
/// use corewise_wire::cphash::KeyNumber;
/// let key = KeyNumber::new(0xbeef).unwrap();
/// assert_eq!(&key.text(), b"00000000000beef");
/// assert_eq!(KeyNumber::new(1 << 60), None);
/// assert_eq!(KeyNumber::of_hash(u64::MAX), KeyNumber::new(KeyNumber::MAX).unwrap());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct KeyNumber(u64);

impl KeyNumber {
    /// The largest key.
    pub const MAX: u64 = (1 << 60) - 1;
    /// Bytes of [`KeyNumber::text`].
    pub const TEXT_LEN: usize = 15;

    /// The key with this number; `None` if it has more than 60 bits.
    #[inline]
    #[must_use]
    pub fn new(number: u64) -> Option<Self> {
        (number <= Self::MAX).then_some(Self(number))
    }

    /// The low 60 bits of a hash.
    #[inline]
    #[must_use]
    pub fn of_hash(hash: u64) -> Self {
        Self(hash & Self::MAX)
    }

    /// The number.
    #[inline]
    #[must_use]
    pub fn get(self) -> u64 {
        self.0
    }

    /// The key of the item: fifteen lowercase hexadecimal digits, the highest first.
    #[inline]
    #[must_use]
    pub fn text(self) -> [u8; Self::TEXT_LEN] {
        let mut text = [0; Self::TEXT_LEN];
        let mut rest = self.0;
        for byte in text.iter_mut().rev() {
            *byte = b"0123456789abcdef"[(rest & 15) as usize];
            rest >>= 4;
        }
        text
    }
}
