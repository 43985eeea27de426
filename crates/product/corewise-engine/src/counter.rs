//! Counters: values in decimal ASCII, as in memcached.

/// The length of the longest decimal `u64`.
const MAX_DIGITS: usize = 20;

/// Whether a value of `len` bytes can be a counter.
#[must_use]
pub(crate) fn has_length(len: usize) -> bool {
    (1..=MAX_DIGITS).contains(&len)
}

/// Parses a counter: decimal digits below 2^64, up to the end or the first blank, in at most 20
/// bytes.
///
/// A counter that shrank leaves blanks behind it; as in memcached, the bytes after the first blank
/// do not matter.
#[must_use]
pub(crate) fn parse(value: &[u8]) -> Option<u64> {
    if !has_length(value.len()) {
        return None;
    }
    let digits = value.split(u8::is_ascii_whitespace).next()?;
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0u64, |n, &c| {
        let digit = c.is_ascii_digit().then(|| u64::from(c - b'0'))?;
        n.checked_mul(10)?.checked_add(digit)
    })
}

/// Adds, wrapping at 2^64, or subtracts, stopping at zero.
#[must_use]
pub(crate) fn apply(value: u64, delta: u64, decrement: bool) -> u64 {
    if decrement {
        value.saturating_sub(delta)
    } else {
        value.wrapping_add(delta)
    }
}

/// A buffer for a counter's text.
pub(crate) struct Text {
    bytes: [u8; MAX_DIGITS],
    len: usize,
}

impl Text {
    /// `value` in decimal, padded with blanks to `former_len` if it has become shorter (and
    /// `former_len` is not longer than a counter can be).
    #[must_use]
    pub(crate) fn new(value: u64, former_len: usize) -> Self {
        let mut buffer = itoa::Buffer::new();
        let digits = buffer.format(value).as_bytes();
        let mut bytes = [b' '; MAX_DIGITS];
        bytes[..digits.len()].copy_from_slice(digits);
        Self {
            bytes,
            len: digits.len().max(former_len.min(MAX_DIGITS)),
        }
    }

    /// The text.
    #[must_use]
    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_decimal_numbers_below_two_to_the_64_are_counters() {
        assert_eq!(parse(b"0"), Some(0));
        assert_eq!(parse(b"9  "), Some(9));
        assert_eq!(parse(b"9 x"), Some(9));
        assert_eq!(parse(b"18446744073709551615"), Some(u64::MAX));
        for bad in [
            &b""[..],
            b"   ",
            b" 1",
            b"-1",
            b"1x",
            b"18446744073709551616",
            b"0x10",
        ] {
            assert_eq!(parse(bad), None, "{:?}", bad.escape_ascii().to_string());
        }
    }

    #[test]
    fn adding_wraps_and_subtracting_stops_at_zero() {
        assert_eq!(apply(u64::MAX, 1, false), 0);
        assert_eq!(apply(3, 5, true), 0);
    }

    #[test]
    fn a_shrunken_counter_keeps_its_length() {
        assert_eq!(Text::new(9, 2).as_bytes(), b"9 ");
        assert_eq!(Text::new(10, 1).as_bytes(), b"10");
        assert_eq!(Text::new(u64::MAX, 1_000).as_bytes().len(), 20);
    }
}
