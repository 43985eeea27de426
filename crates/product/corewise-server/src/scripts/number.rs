//! Numbers as C prints them, which scripts and clients see.

/// The number as `%.{precision}g` of C prints it.
pub(super) fn print_g(precision: usize, value: f64) -> String {
    if value.is_nan() {
        return if value.is_sign_negative() {
            "-nan"
        } else {
            "nan"
        }
        .to_owned();
    }
    if value.is_infinite() {
        return if value < 0.0 { "-inf" } else { "inf" }.to_owned();
    }
    let precision = precision.max(1);
    let scientific = format!("{:.*e}", precision - 1, value);
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if exponent < -4 || exponent >= precision as i32 {
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{}e{sign}{:02}", trimmed(digits), exponent.unsigned_abs());
    }
    let decimals = (precision as i32 - 1 - exponent).max(0) as usize;
    trimmed(&format!("{value:.decimals$}")).to_owned()
}

/// The number without zeros at its end that say nothing.
fn trimmed(digits: &str) -> &str {
    if !digits.contains('.') {
        return digits;
    }
    digits.trim_end_matches('0').trim_end_matches('.')
}

/// The integer that C makes of a number on x86-64: towards zero, and the least one for numbers that
/// have none.
pub(super) fn truncate(value: f64) -> i64 {
    // 2^63 is a number that `f64` has; the greatest integer is not.
    if value >= -(2_f64.powi(63)) && value < 2_f64.powi(63) {
        value as i64
    } else {
        i64::MIN
    }
}

#[cfg(test)]
mod tests {
    use super::{print_g, truncate};

    #[test]
    fn numbers_are_printed_as_by_c() {
        for (precision, value, expected) in [
            (17, 3.0, "3"),
            (17, 0.1, "0.10000000000000001"),
            (17, 12_345_678_901_234_567_890.0, "1.2345678901234567e+19"),
            (17, 1e15, "1000000000000000"),
            (17, -0.0, "-0"),
            (17, f64::INFINITY, "inf"),
            (14, 0.1, "0.1"),
            (14, 1e100, "1e+100"),
            (14, 1e-5, "1e-05"),
            (14, 0.0001, "0.0001"),
            (14, 123_456_789_012_345.0, "1.2345678901234e+14"),
            (14, 99_999_999_999_999.9, "1e+14"),
        ] {
            assert_eq!(print_g(precision, value), expected);
        }
    }

    #[test]
    fn numbers_without_an_integer_become_the_least() {
        for (value, expected) in [
            (3.9, 3),
            (-3.9, -3),
            (1e30, i64::MIN),
            (f64::NAN, i64::MIN),
            (9_223_372_036_854_775_808.0, i64::MIN),
            (-9_223_372_036_854_775_808.0, i64::MIN),
        ] {
            assert_eq!(truncate(value), expected);
        }
    }
}
