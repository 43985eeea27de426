//! The databases of Redis: how the keys of several of them share one keyspace.
//!
//! An engine knows one keyspace of *stored keys*. The first byte of a stored key tells its
//! database:
//!
//! ```text
//!  key of                       stored key
//!  database 0, first byte ≥ 16  │ key ……………………│           as it is; the empty key too
//!  database 0, first byte < 16  │ 0 │ key ………………│
//!  database n > 0               │ n │ key ………………│
//! ```
//!
//! # Guarantees
//!
//! 1. *No forgery.* Different keys, or equal keys of different databases, have different stored
//!    keys, whatever bytes they consist of.
//! 2. *Database 0 is free.* Keys that memcached's text protocol can name begin with a byte above
//!    32, and are stored as they are.

use std::borrow::Cow;

/// The number of databases. A stored key that begins with a byte below this number has a prefix.
pub const DATABASES: usize = 16;

/// Whether the stored key of this key is the key itself.
#[inline]
#[must_use]
pub fn is_stored_as_is(database: u8, key: &[u8]) -> bool {
    let has_plain_start = match key {
        [first, ..] => usize::from(*first) >= DATABASES,
        [] => true,
    };
    has_plain_start & (database == 0)
}

/// The stored key of a key.
///
/// ```
/// use corewise_ops::database::{split, stored};
///
/// assert_eq!(*stored(0, b"a"), *b"a");
/// assert_eq!(*stored(3, b"a"), *b"\x03a");
/// // No key of database 0 is stored as that.
/// assert_eq!(*stored(0, b"\x03a"), *b"\0\x03a");
/// assert_eq!(split(b"\x03a"), (3, &b"a"[..]));
/// ```
#[inline]
#[must_use]
pub fn stored(database: u8, key: &[u8]) -> Cow<'_, [u8]> {
    if is_stored_as_is(database, key) {
        Cow::Borrowed(key)
    } else {
        Cow::Owned([&[database], key].concat())
    }
}

/// The prefix of a stored key, if it has one.
#[inline]
#[must_use]
pub fn prefix(stored: &[u8]) -> Option<u8> {
    let first = stored.first().copied();
    first.filter(|first| usize::from(*first) < DATABASES)
}

/// The database of a stored key, and the key: the inverse of [`stored`].
#[inline]
#[must_use]
pub fn split(stored: &[u8]) -> (u8, &[u8]) {
    match prefix(stored) {
        Some(database) => (database, &stored[1..]),
        None => (0, stored),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    /// Guarantee 1, over all keys of up to two bytes from both sides of the border.
    #[test]
    fn no_two_keys_have_the_same_stored_key() {
        let bytes = [0, 1, 2, 14, 15, 16, 17, b'a', 255];
        let mut keys = vec![vec![]];
        keys.extend(bytes.map(|first| vec![first]));
        keys.extend(bytes.iter().flat_map(|a| bytes.map(|b| vec![*a, b])));
        let mut owners = HashMap::new();
        for database in 0..DATABASES as u8 {
            for key in &keys {
                let stored = stored(database, key).into_owned();
                assert_eq!(split(&stored), (database, &key[..]));
                assert_eq!(stored == *key, is_stored_as_is(database, key));
                let before = owners.insert(stored, (database, key));
                assert_eq!(before, None);
            }
        }
    }

    /// Guarantee 2.
    #[test]
    fn what_memcached_can_name_is_stored_as_it_is() {
        for first in 33..=255 {
            assert!(is_stored_as_is(0, &[first]));
            assert_eq!(prefix(&[first]), None);
        }
    }
}
