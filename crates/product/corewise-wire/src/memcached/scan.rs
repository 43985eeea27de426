//! Finds tokens and parses numbers, a word at a time where it pays.

/// Every byte of a word set to one.
const ONES: u64 = 0x0101_0101_0101_0101;
/// The top bit of every byte of a word.
const TOPS: u64 = 0x8080_8080_8080_8080;

/// The index of the first byte that is a blank or a control character
/// (`<= 0x20`), or `bytes.len()`.
#[inline]
pub(super) fn token_end(bytes: &[u8]) -> usize {
    const LIMIT: u64 = ONES * 0x21;
    let mut at = 0;
    while let Some(chunk) = bytes[at..].first_chunk::<8>() {
        let word = u64::from_le_bytes(*chunk);
        // Bytes below 0x21 borrow into their own top bit; bytes that had it set before are masked
        // out. The lowest hit is exact: a borrow only propagates upwards, and starts at a true hit.
        let hits = word.wrapping_sub(LIMIT) & !word & TOPS;
        if hits != 0 {
            return at + hits.trailing_zeros() as usize / 8;
        }
        at += 8;
    }
    let rest = &bytes[at..];
    at + rest.iter().position(|&b| b <= b' ').unwrap_or(rest.len())
}

/// The index of the first blank, or `bytes.len()`.
#[inline]
pub(super) fn find_space(bytes: &[u8]) -> usize {
    const BLANKS: u64 = ONES * b' ' as u64;
    let mut at = 0;
    while let Some(chunk) = bytes[at..].first_chunk::<8>() {
        let word = u64::from_le_bytes(*chunk) ^ BLANKS;
        let hits = word.wrapping_sub(ONES) & !word & TOPS;
        if hits != 0 {
            return at + hits.trailing_zeros() as usize / 8;
        }
        at += 8;
    }
    let rest = &bytes[at..];
    at + rest.iter().position(|&b| b == b' ').unwrap_or(rest.len())
}

/// The number of leading blanks.
#[inline]
pub(super) fn skip_spaces(bytes: &[u8]) -> usize {
    bytes.iter().position(|&b| b != b' ').unwrap_or(bytes.len())
}

/// The tokens of a line: runs of bytes other than blanks.
#[derive(Clone, Copy)]
pub(super) struct Words<'i>(pub(super) &'i [u8]);

impl<'i> Iterator for Words<'i> {
    type Item = &'i [u8];

    #[inline]
    fn next(&mut self) -> Option<&'i [u8]> {
        let rest = &self.0[skip_spaces(self.0)..];
        if rest.is_empty() {
            self.0 = rest;
            return None;
        }
        let (word, tail) = rest.split_at(find_space(rest));
        self.0 = tail;
        Some(word)
    }
}

/// Maximum number of tokens that are kept separately; no command takes more.
const KEPT: usize = 5;

/// The arguments of a command, split at blanks.
pub(super) struct Args<'i> {
    words: [&'i [u8]; KEPT],
    /// The number of arguments, kept or not.
    pub(super) count: usize,
    /// The last argument, empty if there is none.
    pub(super) last: &'i [u8],
}

impl<'i> Args<'i> {
    /// Splits the text after the command word.
    pub(super) fn split(text: &'i [u8]) -> Self {
        let mut args = Self {
            words: [b""; KEPT],
            count: 0,
            last: b"",
        };
        for word in Words(text) {
            if let Some(slot) = args.words.get_mut(args.count) {
                *slot = word;
            }
            args.last = word;
            args.count += 1;
        }
        args
    }

    /// The argument at `index`, empty if there is none.
    #[inline]
    pub(super) fn get(&self, index: usize) -> &'i [u8] {
        self.words.get(index).copied().unwrap_or(b"")
    }

    /// Whether the last argument is `noreply`.
    #[inline]
    pub(super) fn noreply(&self) -> bool {
        self.last == b"noreply"
    }
}

/// Parses decimal digits at the start of `bytes`: their value and their number. At least one and at
/// most ten digits, so nothing overflows.
#[inline]
pub(super) fn short_digits(bytes: &[u8]) -> Option<(u64, usize)> {
    let mut value = 0;
    let mut at = 0;
    while let Some(digit) = bytes
        .get(at)
        .map(|b| b.wrapping_sub(b'0'))
        .filter(|d| *d < 10)
    {
        if at == 10 {
            return None;
        }
        value = value * 10 + u64::from(digit);
        at += 1;
    }
    (at > 0).then_some((value, at))
}

/// Whether the byte is white space in C.
fn is_c_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t'..=b'\r')
}

/// Sign and magnitude of a token, as `strtoull` would read it: leading white space, an optional
/// sign, digits, then the end or white space.
fn magnitude(token: &[u8]) -> Option<(bool, u64)> {
    let start = token.iter().position(|&b| !is_c_space(b))?;
    let (negative, digits) = match token[start] {
        b'-' => (true, &token[start + 1..]),
        b'+' => (false, &token[start + 1..]),
        _ => (false, &token[start..]),
    };
    let mut value = 0u64;
    let mut count = 0;
    for &byte in digits.iter().take_while(|b| b.is_ascii_digit()) {
        value = value.checked_mul(10)?.checked_add(u64::from(byte - b'0'))?;
        count += 1;
    }
    let ends = digits.get(count).is_none_or(|&b| is_c_space(b));
    (count > 0 && ends).then_some((negative, value))
}

/// An unsigned 64-bit number. Negative ones are refused.
pub(super) fn u64_token(token: &[u8]) -> Option<u64> {
    let (negative, value) = magnitude(token)?;
    (!negative || value == 0).then_some(value)
}

/// An unsigned 32-bit number. Larger and negative ones are refused.
pub(super) fn u32_token(token: &[u8]) -> Option<u32> {
    u32::try_from(u64_token(token)?).ok()
}

/// A signed 64-bit number.
pub(super) fn i64_token(token: &[u8]) -> Option<i64> {
    let (negative, value) = magnitude(token)?;
    if negative {
        0i64.checked_sub_unsigned(value)
    } else {
        i64::try_from(value).ok()
    }
}

/// An expiry time: a signed 64-bit number, of which memcached keeps the low 32 bits. So clients may
/// send a negative time as an unsigned one, as libmemcached does.
pub(super) fn exptime_token(token: &[u8]) -> Option<i32> {
    i64_token(token).map(|seconds| seconds as i32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn token_end_stops_at_the_first_blank_or_control_byte_wherever_it_lies() {
        for len in 0..40 {
            let mut bytes = vec![b'x'; len];
            assert_eq!(token_end(&bytes), len);
            for at in 0..len {
                for stop in [b' ', b'\r', b'\n', 0, 0x1f] {
                    bytes[at] = stop;
                    assert_eq!(token_end(&bytes), at);
                }
                bytes[at] = [0x21, 0x7f, 0x80, 0xa0, 0xff][at % 5];
                assert_eq!(token_end(&bytes), len);
            }
        }
    }

    #[test]
    fn find_space_stops_at_blanks_only() {
        for len in 0..40 {
            let mut bytes: Vec<u8> = (0..len as u8).map(|b| b.wrapping_mul(37) | 0x80).collect();
            assert_eq!(find_space(&bytes), len);
            for at in (0..len).rev() {
                bytes[at] = b' ';
                assert_eq!(find_space(&bytes), at);
            }
        }
        assert_eq!(find_space(b"\x21\x1f\x00\x20"), 3);
    }

    #[test]
    fn numbers_are_read_as_strtol_would() {
        assert_eq!(i64_token(b"0"), Some(0));
        assert_eq!(i64_token(b"-12"), Some(-12));
        assert_eq!(i64_token(b"+12"), Some(12));
        assert_eq!(i64_token(b"\t12\r"), Some(12));
        assert_eq!(i64_token(b"12\tx"), Some(12));
        assert_eq!(i64_token(b"12x"), None);
        assert_eq!(i64_token(b""), None);
        assert_eq!(i64_token(b"-"), None);
        assert_eq!(i64_token(b"9223372036854775807"), Some(i64::MAX));
        assert_eq!(i64_token(b"9223372036854775808"), None);
        assert_eq!(i64_token(b"-9223372036854775808"), Some(i64::MIN));
        assert_eq!(i64_token(b"-9223372036854775809"), None);
        assert_eq!(u64_token(b"18446744073709551615"), Some(u64::MAX));
        assert_eq!(u64_token(b"18446744073709551616"), None);
        assert_eq!(u64_token(b"-1"), None);
        assert_eq!(u64_token(b"-0"), Some(0));
        assert_eq!(u32_token(b"4294967295"), Some(u32::MAX));
        assert_eq!(u32_token(b"4294967296"), None);
    }

    #[test]
    fn short_digits_take_one_to_ten() {
        assert_eq!(short_digits(b"12 "), Some((12, 2)));
        assert_eq!(short_digits(b"9999999999\r"), Some((9_999_999_999, 10)));
        assert_eq!(short_digits(b"99999999999"), None);
        assert_eq!(short_digits(b""), None);
        assert_eq!(short_digits(b"-1"), None);
    }

    #[test]
    fn args_count_all_and_keep_the_first_five() {
        let args = Args::split(b"  a b  c d e f g h i noreply ");
        assert_eq!(args.count, 10);
        assert_eq!(args.get(0), b"a");
        assert_eq!(args.get(4), b"e");
        assert_eq!(args.get(5), b"");
        assert!(args.noreply());
        assert_eq!(Args::split(b"   ").count, 0);
    }
}
