//! Classifies the head of a reply: a line, or the size of a value.

use super::Codec;
use crate::config::{MAX_VALUE_BYTES, Protocol};
use corewise_wire::cphash;

/// The meaning of the head of a reply.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ReplyHead {
    /// A value of `len` bytes follows; `key` if the line names one.
    Value { key: Option<u32>, len: u32 },
    /// The next key has no value.
    Miss,
    /// A multiget with this number of keys follows.
    Array(u32),
    /// The reply to the get is complete.
    End,
    /// The set was executed.
    Stored,
    /// The server has no memory for the set.
    Refused,
}

/// Parses a decimal number without sign, at most [`MAX_VALUE_BYTES`].
fn number(digits: &[u8]) -> Option<u32> {
    if digits.is_empty() || digits.len() > 10 {
        return None;
    }
    let mut value = 0u64;
    for &byte in digits {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        value = value * 10 + u64::from(digit);
    }
    u32::try_from(value).ok().filter(|&v| v <= MAX_VALUE_BYTES)
}

impl Codec {
    /// Classifies a head, which is given without its line break. `None` if it is none of the above.
    #[inline]
    pub(super) fn classify(&self, line: &[u8]) -> Option<ReplyHead> {
        match self.protocol {
            Protocol::Memcached => self.classify_text(line),
            Protocol::Meta => self.classify_meta(line),
            Protocol::Resp => classify_resp(line),
            Protocol::Cphash => classify_size(line),
        }
    }

    #[inline]
    fn classify_text(&self, line: &[u8]) -> Option<ReplyHead> {
        if let Some(rest) = line.strip_prefix(b"VALUE ") {
            let (key, rest) = rest.split_at_checked(self.keys.len())?;
            let len = number(rest.strip_prefix(b" 0 ")?)?;
            return Some(ReplyHead::Value {
                key: self.named(key)?,
                len,
            });
        }
        match line {
            b"END" => Some(ReplyHead::End),
            b"STORED" => Some(ReplyHead::Stored),
            _ => refused(line),
        }
    }

    #[inline]
    fn classify_meta(&self, line: &[u8]) -> Option<ReplyHead> {
        if let Some(rest) = line.strip_prefix(b"VA ") {
            if self.multiget == 1 {
                return Some(ReplyHead::Value {
                    key: None,
                    len: number(rest)?,
                });
            }
            let at = rest.len().checked_sub(self.keys.len() + 2)?;
            let (len, key) = rest.split_at(at);
            let key = self.named(key.strip_prefix(b" k")?)?;
            return Some(ReplyHead::Value {
                key,
                len: number(len)?,
            });
        }
        match line {
            b"EN" => Some(ReplyHead::Miss),
            b"MN" => Some(ReplyHead::End),
            b"HD" => Some(ReplyHead::Stored),
            _ => refused(line),
        }
    }

    /// Parses the key that a reply names: `Some(None)` where keys are not checked, `None` if it is
    /// not a key of this run.
    #[inline]
    fn named(&self, key: &[u8]) -> Option<Option<u32>> {
        if self.verify {
            self.keys.parse(key).map(Some)
        } else {
            Some(None)
        }
    }
}

fn classify_size(head: &[u8]) -> Option<ReplyHead> {
    match cphash::decode_size(head.try_into().ok()?) {
        0 => Some(ReplyHead::Miss),
        len => (len <= MAX_VALUE_BYTES).then_some(ReplyHead::Value { key: None, len }),
    }
}

fn classify_resp(line: &[u8]) -> Option<ReplyHead> {
    match line {
        b"$-1" => Some(ReplyHead::Miss),
        b"+OK" => Some(ReplyHead::Stored),
        [b'$', len @ ..] => Some(ReplyHead::Value {
            key: None,
            len: number(len)?,
        }),
        [b'*', n @ ..] => Some(ReplyHead::Array(number(n)?)),
        _ if line.starts_with(b"-OOM ") => Some(ReplyHead::Refused),
        _ => None,
    }
}

/// The reply of memcached's protocols when nothing can be evicted for an item.
fn refused(line: &[u8]) -> Option<ReplyHead> {
    line.starts_with(b"SERVER_ERROR out of memory storing")
        .then_some(ReplyHead::Refused)
}

#[cfg(test)]
mod tests {
    use super::super::tests::codec;
    use super::*;

    #[test]
    fn lines_of_the_text_protocol() {
        let codec = codec(Protocol::Memcached, 2, 4);
        let value = codec.classify(b"VALUE key:00000007 0 4");
        assert_eq!(
            value,
            Some(ReplyHead::Value {
                key: Some(7),
                len: 4
            })
        );
        assert_eq!(codec.classify(b"END"), Some(ReplyHead::End));
        assert_eq!(codec.classify(b"STORED"), Some(ReplyHead::Stored));
        let full = b"SERVER_ERROR out of memory storing object";
        assert_eq!(codec.classify(full), Some(ReplyHead::Refused));
        for bad in [
            &b"VALUE key:00000007 1 4"[..],
            b"VALUE key:00000007 0 4 9",
            b"VALUE key:00000007 0 ",
            b"VALUE other 0 4",
            b"VALUE key:00000007 0 4294967296",
            b"NOT_STORED",
            b"SERVER_ERROR out of memory",
            b"",
        ] {
            assert_eq!(codec.classify(bad), None, "{}", bad.escape_ascii());
        }
    }

    #[test]
    fn lines_of_the_meta_protocol() {
        let one = codec(Protocol::Meta, 1, 4);
        assert_eq!(
            one.classify(b"VA 4"),
            Some(ReplyHead::Value { key: None, len: 4 })
        );
        assert_eq!(one.classify(b"EN"), Some(ReplyHead::Miss));
        assert_eq!(one.classify(b"NS"), None);
        let many = codec(Protocol::Meta, 2, 4);
        let value = many.classify(b"VA 4 kkey:00000007");
        assert_eq!(
            value,
            Some(ReplyHead::Value {
                key: Some(7),
                len: 4
            })
        );
        assert_eq!(many.classify(b"VA 4"), None);
        assert_eq!(many.classify(b"MN"), Some(ReplyHead::End));
    }

    #[test]
    fn sizes_of_cphash() {
        let codec = codec(Protocol::Cphash, 1, 4);
        assert_eq!(codec.classify(&[0; 4]), Some(ReplyHead::Miss));
        let value = ReplyHead::Value {
            key: None,
            len: 0x0201,
        };
        assert_eq!(codec.classify(&[1, 2, 0, 0]), Some(value));
        assert_eq!(codec.classify(&[1, 0, 0, 8]), None, "too large");
    }

    #[test]
    fn lines_of_redis() {
        let codec = codec(Protocol::Resp, 2, 4);
        assert_eq!(
            codec.classify(b"$4"),
            Some(ReplyHead::Value { key: None, len: 4 })
        );
        assert_eq!(codec.classify(b"$-1"), Some(ReplyHead::Miss));
        assert_eq!(codec.classify(b"*2"), Some(ReplyHead::Array(2)));
        assert_eq!(codec.classify(b"+OK"), Some(ReplyHead::Stored));
        assert_eq!(codec.classify(b"-ERR no"), None);
    }
}
