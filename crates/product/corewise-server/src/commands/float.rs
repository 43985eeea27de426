//! Floating-point numbers of `INCRBYFLOAT`: the 80-bit extended format, which Redis calculates in
//! on x86, with its texts.
//!
//! A number has 64 bits of mantissa and is rounded to the nearest, ties to even. Text is read as by
//! `strtold` of C, and printed with 17 digits behind the point, without trailing zeros.

use std::cmp::Ordering;

/// Reads a score: a number, or the name of infinity, without blanks before it. `None` if it is too
/// large, or rounded to zero though it is not.
pub(super) fn double(text: &[u8]) -> Option<f64> {
    let value = any_double(text)?;
    let is_named = |text: &[u8]| text.iter().any(|byte| byte.eq_ignore_ascii_case(&b'n'));
    let is_exact = if value.is_infinite() {
        is_named(text)
    } else {
        value != 0.0 || is_zero(text)
    };
    (is_exact && !value.is_nan()).then_some(value)
}

/// Reads a number as `strtod` reads all of a text that does not begin with blanks.
pub(super) fn any_double(text: &[u8]) -> Option<f64> {
    let (is_negative, digits) = match text {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        _ => (false, text),
    };
    let value = match digits {
        [b'0', b'x' | b'X', digits @ ..] => hexadecimal_double(&Scientific::parse(digits, 16)?),
        [b'+' | b'-', ..] => return None,
        _ => std::str::from_utf8(digits).ok()?.parse().ok()?,
    };
    Some(if is_negative { -value } else { value })
}

/// Whether no digit before the exponent of a number is other than 0.
fn is_zero(text: &[u8]) -> bool {
    let digits = match text {
        [b'+' | b'-', rest @ ..] => rest,
        _ => text,
    };
    let (digits, markers) = match digits {
        [b'0', b'x' | b'X', rest @ ..] => (rest, *b"pP"),
        _ => (digits, *b"eE"),
    };
    let mut digits = digits.iter().take_while(|byte| !markers.contains(byte));
    digits.all(|byte| matches!(byte, b'0' | b'.'))
}

/// The double that is nearest to a hexadecimal number, ties to even.
fn hexadecimal_double(parsed: &Scientific) -> f64 {
    let (mut mantissa, mut exponent) = (0_u128, parsed.exponent);
    for digit in &parsed.digits {
        if mantissa >> 120 == 0 {
            mantissa = mantissa << 4 | u128::from(*digit);
        } else {
            exponent = exponent.saturating_add(4);
            // Only matters for ties, so a bit far below stands for all that follow.
            mantissa |= u128::from(*digit > 0);
        }
    }
    if mantissa == 0 {
        return 0.0;
    }
    let bits = 128 - i64::from(mantissa.leading_zeros());
    // The exponent of the last bit of the result.
    let last = exponent.saturating_add(bits - 53).max(-1_074);
    let dropped = last.saturating_sub(exponent);
    let kept = match dropped {
        ..=0 => mantissa << dropped.unsigned_abs().min(127),
        dropped => shift_right_rounding(mantissa, dropped.unsigned_abs()),
    };
    if last > 1_023 {
        return f64::INFINITY;
    }
    // Both factors are powers of two and the mantissa has 54 bits at most, so this is exact.
    let half = last / 2;
    kept as f64 * 2_f64.powi(half as i32) * 2_f64.powi((last - half) as i32)
}

/// Text of this length or longer is no number, as in Redis.
const TEXT_LIMIT: usize = 5 << 10;
/// The exponents of the least and the greatest numbers.
const MIN_EXPONENT: i64 = -16_445;
const MAX_EXPONENT: i64 = 16_320;
/// Decimal exponents beyond which a number is zero or infinite, whatever its digits are.
const DECIMAL_LIMIT: i64 = 5_000;
/// Digits behind the point of a printed number.
const FRACTION_DIGITS: usize = 17;
const FRACTION: u128 = 10_u128.pow(FRACTION_DIGITS as u32);

/// A number: `mantissa` times two to the power of `exponent`. The top bit of the mantissa is set
/// unless the exponent is the least one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Extended {
    is_negative: bool,
    is_infinite: bool,
    mantissa: u64,
    exponent: i64,
}

impl Extended {
    pub(super) const ZERO: Self = Self {
        is_negative: false,
        is_infinite: false,
        mantissa: 0,
        exponent: MIN_EXPONENT,
    };

    const INFINITY: Self = Self {
        is_infinite: true,
        ..Self::ZERO
    };

    /// The number nearest to `mantissa` times two to the power of `exponent`. `has_more` says that
    /// the exact value is a little larger; the mantissa then has at least 66 bits.
    fn round(mantissa: u128, exponent: i64, has_more: bool) -> Self {
        let bits = 128 - i64::from(mantissa.leading_zeros());
        let dropped = (bits - 64).max(MIN_EXPONENT - exponent);
        if mantissa == 0 {
            return Self::ZERO;
        }
        let mut exponent = exponent + dropped;
        let mut kept = match dropped {
            ..=0 => mantissa << -dropped,
            1..=127 => mantissa >> dropped,
            _ => 0,
        };
        if (1..=128).contains(&dropped) {
            let half = 1_u128 << (dropped - 1);
            let rest = if dropped == 128 {
                mantissa
            } else {
                mantissa & ((half << 1) - 1)
            };
            let is_tie = rest == half && !has_more;
            let rounds_up = rest >= half && (!is_tie || kept & 1 == 1);
            kept += u128::from(rounds_up);
        }
        if kept == 1 << 64 {
            (kept, exponent) = (1 << 63, exponent + 1);
        }
        if exponent > MAX_EXPONENT {
            return Self::INFINITY;
        }
        Self {
            mantissa: kept as u64,
            exponent,
            ..Self::ZERO
        }
    }

    /// Reads decimal or hexadecimal text, or the name of infinity. `None` if it is no number, one
    /// that is too large, or one other than zero that would be rounded to zero.
    pub(super) fn parse(text: &[u8]) -> Option<Self> {
        if text.len() >= TEXT_LIMIT {
            return None;
        }
        let (is_negative, digits) = match text {
            [b'-', rest @ ..] => (true, rest),
            [b'+', rest @ ..] => (false, rest),
            _ => (false, text),
        };
        let number =
            if digits.eq_ignore_ascii_case(b"inf") || digits.eq_ignore_ascii_case(b"infinity") {
                Self::INFINITY
            } else if let [b'0', b'x' | b'X', digits @ ..] = digits {
                finite(hexadecimal(Scientific::parse(digits, 16)?))?
            } else {
                finite(decimal(Scientific::parse(digits, 10)?))?
            };
        Some(Self {
            is_negative,
            ..number
        })
    }

    /// The sum, unless it is infinite or no number.
    pub(super) fn checked_add(self, other: Self) -> Option<Self> {
        if self.is_infinite || other.is_infinite {
            return None;
        }
        let size = |number: &Self| (number.exponent, number.mantissa);
        let (large, small) = if size(&self) >= size(&other) {
            (self, other)
        } else {
            (other, self)
        };
        // 63 bits behind the mantissa, of which the last also stands for all that follow.
        let difference = (large.exponent - small.exponent) as u64;
        let shifted = |mantissa: u64| u128::from(mantissa) << 63;
        let (a, mut b) = (shifted(large.mantissa), shifted(small.mantissa));
        b = match difference {
            0..=127 => {
                let kept = b >> difference;
                kept | u128::from(kept << difference != b)
            }
            _ => u128::from(b != 0),
        };
        let is_sum = large.is_negative == small.is_negative;
        let mantissa = if is_sum { a + b } else { a - b };
        let sum = Self::round(mantissa, large.exponent - 63, false);
        finite(Some(sum)).map(|sum| Self {
            is_negative: large.is_negative && mantissa != 0,
            ..sum
        })
    }

    /// Prints a finite number.
    pub(super) fn print(self) -> String {
        let mut text = if self.exponent > 0 {
            let mut whole = Natural::from(u128::from(self.mantissa));
            whole.shift_left(self.exponent as usize);
            whole.print()
        } else {
            let scaled = u128::from(self.mantissa) * FRACTION;
            let digits = shift_right_rounding(scaled, -self.exponent as u64);
            let (whole, fraction) = (digits / FRACTION, digits % FRACTION);
            let text = format!("{whole}.{fraction:0FRACTION_DIGITS$}");
            text.trim_end_matches('0').trim_end_matches('.').to_owned()
        };
        if self.is_negative && text != "0" {
            text.insert(0, '-');
        }
        text
    }
}

/// `value` divided by two to the power of `bits`, rounded to the nearest, ties to even.
fn shift_right_rounding(value: u128, bits: u64) -> u128 {
    if bits == 0 {
        return value;
    }
    if bits >= 128 {
        return 0; // `value` is less than 2^122, so the quotient is less than a half
    }
    let (kept, half) = (value >> bits, 1 << (bits - 1));
    let rest = value & ((half << 1) - 1);
    kept + u128::from(rest > half || rest == half && kept & 1 == 1)
}

/// The number, unless it is infinite or there is none.
fn finite(number: Option<Extended>) -> Option<Extended> {
    number.filter(|number| !number.is_infinite)
}

/// The parts of a number: digits without the point, and the power of the base, or of two if the
/// base is 16, that they are multiplied with.
struct Scientific {
    /// Values of digits; the first is not zero.
    digits: Vec<u8>,
    exponent: i64,
}

impl Scientific {
    fn parse(text: &[u8], base: u32) -> Option<Self> {
        let mut parsed = Self {
            digits: Vec::new(),
            exponent: 0,
        };
        let (mut has_digit, mut has_point) = (false, false);
        let power = if base == 16 { 4 } else { 1 };
        let mut rest = text;
        while let [byte, after @ ..] = rest {
            match char::from(*byte).to_digit(base) {
                Some(digit) => {
                    has_digit = true;
                    if digit > 0 || !parsed.digits.is_empty() {
                        parsed.digits.push(digit as u8);
                    }
                    parsed.exponent -= if has_point { power } else { 0 };
                }
                None if *byte == b'.' && !has_point => has_point = true,
                None => break,
            }
            rest = after;
        }
        let marker = if base == 16 { b'p' } else { b'e' };
        if let [byte, after @ ..] = rest
            && byte.eq_ignore_ascii_case(&marker)
        {
            parsed.exponent = parsed.exponent.saturating_add(power_of(after)?);
            rest = b"";
        }
        (has_digit && rest.is_empty()).then_some(parsed)
    }
}

/// The exponent after `e` or `p`. An exponent that does not fit saturates at `i64::MAX / 4`, or at
/// the negative of that.
fn power_of(text: &[u8]) -> Option<i64> {
    let (sign, digits) = match text {
        [b'-', digits @ ..] => (-1, digits),
        [b'+', digits @ ..] => (1, digits),
        digits => (1, digits),
    };
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let add = |power: i64, digit: &u8| {
        let more = power
            .saturating_mul(10)
            .saturating_add(i64::from(digit - b'0'));
        more.min(i64::MAX / 4)
    };
    Some(sign * digits.iter().fold(0, add))
}

fn hexadecimal(parsed: Scientific) -> Option<Extended> {
    let (mut mantissa, mut exponent, mut has_more) = (0_u128, parsed.exponent, false);
    for digit in &parsed.digits {
        if mantissa >> 120 == 0 {
            mantissa = mantissa << 4 | u128::from(*digit);
        } else {
            exponent = exponent.saturating_add(4);
            has_more |= *digit > 0;
        }
    }
    let exponent = exponent.clamp(-4 * DECIMAL_LIMIT, 4 * DECIMAL_LIMIT);
    let number = Extended::round(mantissa, exponent, has_more);
    (mantissa == 0 || number.mantissa > 0 || number.is_infinite).then_some(number)
}

fn decimal(parsed: Scientific) -> Option<Extended> {
    let Scientific { digits, exponent } = parsed;
    if digits.is_empty() {
        return Some(Extended::ZERO);
    }
    let power = exponent.saturating_add(digits.len() as i64);
    if !(-DECIMAL_LIMIT..=DECIMAL_LIMIT).contains(&power) {
        return None;
    }
    let mut numerator = Natural::from(0);
    digits
        .iter()
        .for_each(|digit| numerator.multiply_add(10, u32::from(*digit)));
    let number = if exponent >= 0 {
        (0..exponent).for_each(|_| numerator.multiply_add(10, 0));
        let (top, power, has_more) = numerator.top();
        Extended::round(top, power, has_more)
    } else {
        let mut denominator = Natural::from(1);
        (exponent..0).for_each(|_| denominator.multiply_add(10, 0));
        let (quotient, power, has_more) = divide(numerator, denominator);
        Extended::round(quotient, power, has_more)
    };
    (number.mantissa > 0 || number.is_infinite).then_some(number)
}

/// Bits of a quotient, one more or less.
const QUOTIENT_BITS: i64 = 67;

/// The quotient times two to the power of the second result, and whether it has a remainder.
fn divide(mut numerator: Natural, mut denominator: Natural) -> (u128, i64, bool) {
    let shift = QUOTIENT_BITS + denominator.bits() - numerator.bits();
    if shift > 0 {
        numerator.shift_left(shift as usize);
    } else {
        denominator.shift_left(-shift as usize);
    }
    denominator.shift_left(QUOTIENT_BITS as usize + 1);
    let mut quotient = 0;
    for _ in 0..=QUOTIENT_BITS + 1 {
        let fits = numerator.compare(&denominator) != Ordering::Less;
        if fits {
            numerator.subtract(&denominator);
        }
        quotient = quotient << 1 | u128::from(fits);
        denominator.halve();
    }
    (quotient, -shift, numerator.bits() > 0)
}

/// A natural number of any size, in words of 32 bits, the least first; the last is not zero.
struct Natural(Vec<u32>);

impl From<u128> for Natural {
    fn from(value: u128) -> Self {
        let mut number = Self((0..4).map(|word| (value >> (32 * word)) as u32).collect());
        number.trim();
        number
    }
}

impl Natural {
    fn trim(&mut self) {
        while self.0.last() == Some(&0) {
            self.0.pop();
        }
    }

    /// The number of bits without leading zeros.
    fn bits(&self) -> i64 {
        let last = self.0.last().map_or(0, |word| 32 - word.leading_zeros());
        32 * (self.0.len() as i64 - 1).max(0) + i64::from(last)
    }

    /// The top 128 bits, the power of two that they are multiplied with, and whether others follow.
    fn top(&self) -> (u128, i64, bool) {
        let skipped = self.0.len().saturating_sub(4);
        let (rest, top) = self.0.split_at(skipped);
        let add = |number, word: &u32| number << 32 | u128::from(*word);
        let mantissa = top.iter().rev().fold(0, add);
        (
            mantissa,
            32 * skipped as i64,
            rest.iter().any(|word| *word > 0),
        )
    }

    fn multiply_add(&mut self, factor: u32, summand: u32) {
        let mut carry = u64::from(summand);
        for word in &mut self.0 {
            carry += u64::from(*word) * u64::from(factor);
            *word = carry as u32;
            carry >>= 32;
        }
        if carry > 0 {
            self.0.push(carry as u32);
        }
    }

    fn shift_left(&mut self, bits: usize) {
        self.multiply_add(1 << (bits % 32), 0);
        let zeros = std::iter::repeat_n(0, bits / 32);
        self.0.splice(0..0, zeros);
        self.trim();
    }

    fn halve(&mut self) {
        let mut carry = 0;
        for word in self.0.iter_mut().rev() {
            let low = *word & 1;
            *word = *word >> 1 | carry << 31;
            carry = low;
        }
        self.trim();
    }

    fn compare(&self, other: &Self) -> Ordering {
        let (a, b) = (&self.0, &other.0);
        let by_length = a.len().cmp(&b.len());
        by_length.then_with(|| a.iter().rev().cmp(b.iter().rev()))
    }

    /// Subtracts a number that is not larger.
    fn subtract(&mut self, other: &Self) {
        let mut borrow = false;
        for (at, word) in self.0.iter_mut().enumerate() {
            let (less, first) = word.overflowing_sub(other.0.get(at).copied().unwrap_or(0));
            let (less, second) = less.overflowing_sub(u32::from(borrow));
            (*word, borrow) = (less, first || second);
        }
        self.trim();
    }

    /// The decimal digits.
    fn print(mut self) -> String {
        const STEP: u64 = 1_000_000_000;
        let mut groups = Vec::new();
        while !self.0.is_empty() {
            let mut rest = 0;
            for word in self.0.iter_mut().rev() {
                rest = rest << 32 | u64::from(*word);
                *word = (rest / STEP) as u32;
                rest %= STEP;
            }
            self.trim();
            groups.push(rest);
        }
        let first = groups.pop().unwrap_or(0).to_string();
        let others = groups.iter().rev().map(|group| format!("{group:09}"));
        std::iter::once(first).chain(others).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::Extended;
    use proptest::prelude::*;

    fn sum(a: &str, b: &str) -> Option<String> {
        let number = |text: &str| Extended::parse(text.as_bytes()).expect("a number");
        number(a).checked_add(number(b)).map(Extended::print)
    }

    #[test]
    fn sums_are_those_of_redis() {
        for (a, b, expected) in [
            ("0", "1", "1"),
            ("1", "-1.1", "-0.1"),
            ("10.50", "0.1", "10.6"),
            ("5.0e3", "2.0e2", "5200"),
            ("1.23", "0.77", "2"),
            ("17179869184", "17179869184", "34359738368"),
            ("3", "0.000000000000000001", "3"),
            ("-0", "-0", "0"),
            ("-1e-30", "0", "0"),
            ("0x1.8p1", ".5", "3.5"),
            ("0x10", "+5.", "21"),
            ("1e19", "1", "10000000000000000001"),
            ("1e20", "1", "100000000000000000000"),
            ("18446744073709551615", "1", "18446744073709551616"),
            ("18446744073709551616", "1", "18446744073709551616"),
            ("18446744073709551616", "3", "18446744073709551620"),
            ("1e-4940", "1e-4940", "0"),
            ("3.0", "1e-17", "3.00000000000000001"),
        ] {
            assert_eq!(sum(a, b).as_deref(), Some(expected), "{a} + {b}");
            assert_eq!(sum(b, a).as_deref(), Some(expected), "{b} + {a}");
        }
        assert_eq!(sum("1.1e4932", "1").unwrap().len(), 4_933);
        for (a, b) in [("inf", "1"), ("inf", "-inf"), ("1.18e4932", "1.18e4932")] {
            assert_eq!(sum(a, b), None, "{a} + {b}");
        }
    }

    #[test]
    fn other_text_is_no_number() {
        let long = "1".repeat(5_120);
        for text in [
            "",
            " 1",
            "1 ",
            "1a",
            "+",
            "-",
            ".",
            "e5",
            "1e",
            "1e+",
            "0x",
            "0x.",
            "0x1p",
            "nan",
            "1\0",
            "1.2.3",
            "--1",
            "infin",
            "1e5000",
            "1e-5000",
            "0x1p16384",
            "0x1p-16447",
            &long,
        ] {
            assert_eq!(Extended::parse(text.as_bytes()), None, "{text:?}");
        }
        assert!(
            Extended::parse(&long.as_bytes()[1..]).is_none(),
            "over the greatest number"
        );
        assert!(Extended::parse(&long.as_bytes()[..4_900]).is_some());
        assert!(Extended::parse(b"0x1p-16445").is_some());
        assert!(Extended::parse(b"0e99999999999999999999").is_some());
    }

    proptest! {
        /// Decimal and hexadecimal text of the same number, by two different algorithms.
        #[test]
        fn texts_of_one_number_are_read_the_same(bits in any::<u64>(), power in -120_i32..60) {
            let exact = bits as f64 * f64::from(power).exp2();
            let hex = format!("0x{:x}p{}", bits as f64 as u128, power);
            let decimal = format!("{exact:.200}");
            let read = |text: &str| Extended::parse(text.as_bytes());
            prop_assert_eq!(read(&decimal), read(&hex));
        }

        #[test]
        fn whole_numbers_are_added_exactly(a in -1_i128 << 62..1 << 62, b in -1_i128 << 62..1 << 62) {
            prop_assert_eq!(sum(&a.to_string(), &b.to_string()), Some((a + b).to_string()));
        }

        #[test]
        fn what_is_printed_is_read_the_same(mantissa in any::<u32>(), power in 0_i32..56) {
            let number = Extended::parse(format!("0x{mantissa:x}p-{}", power % 17).as_bytes());
            let text = number.unwrap().print();
            prop_assert_eq!(Extended::parse(text.as_bytes()), number);
        }
    }
}
