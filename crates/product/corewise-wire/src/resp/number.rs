//! Decimal integers as Redis reads them.

/// Reads a decimal integer in the form in which Redis prints it: digits without leading zeros, and
/// a minus sign before negative numbers. `None` for everything else, `-0` and `+1` included.
///
/// Takes time in proportion to the length, which is 20 at most for an integer.
///
/// ```
/// use corewise_wire::resp::parse_integer;
/// assert_eq!(parse_integer(b"-9223372036854775808"), Some(i64::MIN));
/// assert_eq!(parse_integer(b"9223372036854775808"), None);
/// assert_eq!(parse_integer(b"007"), None);
/// ```
#[inline]
#[must_use]
pub fn parse_integer(text: &[u8]) -> Option<i64> {
    let (is_negative, digits) = match text {
        [b'-', digits @ ..] => (true, digits),
        digits => (false, digits),
    };
    match digits {
        [b'0'] => return (!is_negative).then_some(0),
        [] | [b'0', ..] => return None,
        _ => {}
    }
    // 19 digits fit 64 bits without a sign; whether they fit with one is seen at the end.
    if digits.len() > 19 {
        return None;
    }
    let mut value = 0_u64;
    for &byte in digits {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        value = 10 * value + u64::from(digit);
    }
    if is_negative {
        0_i64.checked_sub_unsigned(value)
    } else {
        i64::try_from(value).ok()
    }
}

/// The text up to the first NUL, which is as far as a function of C reads it.
///
/// ```
/// use corewise_wire::resp::until_nul;
/// assert_eq!(until_nul(b"17\0x"), b"17");
/// assert_eq!(until_nul(b"17"), b"17");
/// ```
#[inline]
#[must_use]
pub fn until_nul(text: &[u8]) -> &[u8] {
    let end = text.iter().position(|byte| *byte == 0);
    &text[..end.unwrap_or(text.len())]
}

/// Reads a line of `first`, up to three digits and `\r` with a byte behind it: the number, and the
/// length of the line with its end.
///
/// `None` for all other text, and for text of less than six bytes; [`parse_integer`] reads more.
#[inline(always)]
pub(super) fn short_number(text: &[u8], first: u8) -> Option<(usize, usize)> {
    let &[kind, a, b, c, d, _] = text.first_chunk()?;
    let digit = |byte: u8| usize::from(byte.wrapping_sub(b'0'));
    let (x, y, z) = (digit(a), digit(b), digit(c));
    if kind != first || x > 9 {
        return None;
    }
    if b == b'\r' {
        return Some((x, 4));
    }
    // Leading zeros are refused.
    if x == 0 || y > 9 {
        return None;
    }
    if c == b'\r' {
        return Some((10 * x + y, 5));
    }
    (z <= 9 && d == b'\r').then_some((100 * x + 10 * y + z, 6))
}

#[cfg(test)]
mod tests {
    use super::{parse_integer, short_number};
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn printed_integers_are_read(value in any::<i64>()) {
            prop_assert_eq!(parse_integer(value.to_string().as_bytes()), Some(value));
        }

        #[test]
        fn what_is_read_is_printed_the_same(text in "-?[0-9]{1,21}") {
            let expected = text.parse::<i64>().ok().filter(|value| value.to_string() == text);
            prop_assert_eq!(parse_integer(text.as_bytes()), expected);
        }
    }

    #[test]
    fn other_text_is_no_integer() {
        for text in [
            "", "-", "+1", "-0", "00", " 1", "1 ", "1\n", "1.0", "1e3", "0x1", ":", "/",
        ] {
            assert_eq!(parse_integer(text.as_bytes()), None, "{text:?}");
        }
    }

    #[test]
    fn short_numbers_are_those_that_the_general_way_reads() {
        for text in (0..1_100).map(|number| number.to_string()) {
            let line = format!("${text}\r\nabc");
            let expected = (text.len() <= 3).then_some((text.parse().unwrap(), text.len() + 3));
            assert_eq!(short_number(line.as_bytes(), b'$'), expected, "{line:?}");
            assert_eq!(short_number(line.as_bytes(), b'*'), None);
        }
        for text in [
            "", "-1", "+1", "00", "01", "007", "1x", "12x", "123x", "x", "1\n",
        ] {
            assert!(parse_integer(text.as_bytes()).is_none_or(|number| number < 0));
            let line = format!("${text}\r\nabc");
            assert_eq!(short_number(line.as_bytes(), b'$'), None, "{line:?}");
        }
        assert_eq!(short_number(b"$12\r\n", b'$'), None);
    }
}
