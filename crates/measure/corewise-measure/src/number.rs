//! Numbers as people write them: `100k`, `64Ki`, `12.3 M/s`, `1.50 µs`.
//!
//! What [`count`] prints, [`parse_count`] reads as the same number. [`parse_rate`] reads what
//! [`rate`] prints; that has three digits.

/// Units of counts, the greatest first of its kind.
const UNITS: [(&str, u64); 6] = [
    ("Gi", 1 << 30),
    ("Mi", 1 << 20),
    ("Ki", 1 << 10),
    ("G", 1_000_000_000),
    ("M", 1_000_000),
    ("k", 1_000),
];

/// Formats a count exactly: `64Ki`, `100k`, `1.5M`, or all digits if no unit shortens it.
///
/// ```
/// use corewise_measure::number::count;
/// let texts = [65_536, 100_000, 1_500_000, 1_000, 1_234_567].map(count);
/// assert_eq!(texts, ["64Ki", "100k", "1.5M", "1000", "1234567"]);
/// ```
pub fn count(value: u64) -> String {
    let fits = |(name, unit): &&(&str, u64)| {
        if name.ends_with('i') {
            value >= *unit && value.is_multiple_of(*unit)
        } else {
            // Two decimals are short; 1000 reads better than 1k.
            value >= *unit && value >= 10_000 && value.is_multiple_of(unit / 100)
        }
    };
    match UNITS.iter().find(fits) {
        Some((name, unit)) => {
            let (whole, hundredths) = (value / unit, value % unit * 100 / unit);
            match (hundredths, hundredths % 10) {
                (0, _) => format!("{whole}{name}"),
                (_, 0) => format!("{whole}.{}{name}", hundredths / 10),
                _ => format!("{whole}.{hundredths:02}{name}"),
            }
        }
        None => value.to_string(),
    }
}

/// Formats a number with at most this number of decimals, without zeros at the end.
///
/// ```
/// use corewise_measure::number::trimmed;
/// assert_eq!([trimmed(1.5, 2), trimmed(2.0, 6), trimmed(-0.001, 2)], ["1.5", "2", "0"]);
/// ```
pub fn trimmed(value: f64, decimals: usize) -> String {
    let text = format!("{value:.decimals$}");
    let text = if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.')
    } else {
        &text
    };
    if text == "-0" { "0" } else { text }.to_owned()
}

/// Formats a number without zeros at the end.
pub fn plain(value: f64) -> String {
    trimmed(value, 6)
}

/// Formats a number with three digits, or all digits before the point: `1.50`, `15.0`, `1500`.
pub fn three_digits(value: f64) -> String {
    match value.abs() {
        large if large >= 99.95 => format!("{value:.0}"),
        middle if middle >= 9.995 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

/// Formats a rate per second: `12.3 M/s`.
pub fn rate(value: f64) -> String {
    match value.abs() {
        v if v >= 1e9 => format!("{} G/s", three_digits(value / 1e9)),
        v if v >= 1e6 => format!("{} M/s", three_digits(value / 1e6)),
        v if v >= 1e3 => format!("{} k/s", three_digits(value / 1e3)),
        0.0 => "0".to_owned(),
        _ => format!("{}/s", three_digits(value)),
    }
}

/// Formats a value in the greatest unit that it reaches, or else in the last one.
fn in_unit(value: f64, units: &[(f64, &str)]) -> String {
    let reached = units.iter().find(|(size, _)| value.abs() >= *size);
    let &(size, unit) = reached.or(units.last()).unwrap_or(&(1.0, ""));
    let value = value / size;
    let text = if value.fract() == 0.0 {
        plain(value)
    } else {
        three_digits(value)
    };
    format!("{text}{unit}")
}

/// Formats a time in nanoseconds: `1.50 µs`.
pub fn time(ns: f64) -> String {
    in_unit(ns, &[(1e9, " s"), (1e6, " ms"), (1e3, " µs"), (1.0, " ns")])
}

/// Formats bytes: `32 KiB`.
pub fn bytes(value: f64) -> String {
    const KIB: f64 = 1024.0;
    let units = [
        (KIB * KIB * KIB, " GiB"),
        (KIB * KIB, " MiB"),
        (KIB, " KiB"),
        (1.0, " B"),
    ];
    in_unit(value, &units)
}

/// Formats a count in decimal units with three digits, for the ticks of an axis: `50k`, `1.50M`.
pub fn count_tick(value: f64) -> String {
    in_unit(value, &[(1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, "")])
}

/// Formats a whole number with separated thousands.
pub fn grouped(value: u64) -> String {
    let digits = value.to_string();
    let mut out = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push('\u{202f}');
        }
        out.push(digit);
    }
    out
}

/// Splits a text into its number and its unit.
fn split(text: &str) -> (&str, &str) {
    let is_number = |c: char| c.is_ascii_digit() || c == '.' || c == '_' || c == '\u{202f}';
    let end = text.find(|c| !is_number(c)).unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    (number, unit.trim_start())
}

/// Returns the value of a unit; `None` if there is no such unit. `K` is read as `k`.
fn unit(name: &str) -> Option<u64> {
    let name = name.replacen('K', "k", 1).replacen("ki", "Ki", 1);
    let named = UNITS.iter().find(|(known, _)| *known == name);
    if name.is_empty() {
        return Some(1);
    }
    named.map(|(_, value)| *value)
}

/// Reads a count: `65536`, `65_536`, `100k`, `1.5M`, `64Ki`, `64 Ki`. `k`, `M` and `G` are powers
/// of 1000, `Ki`, `Mi` and `Gi` of 1024.
///
/// # Errors
///
/// A message if the text is no number with one of these units, if the number is not whole (`1.5`),
/// or if it is greater than `u64::MAX`.
///
/// ```
/// use corewise_measure::number::parse_count;
/// assert_eq!(parse_count("1.5k"), Ok(1500));
/// assert!(parse_count("1.5").is_err());
/// ```
pub fn parse_count(text: &str) -> Result<u64, String> {
    let wrong = || format!("`{text}` is not a count such as 1000, 100k, 1.5M or 64Ki");
    let large = || format!("`{text}` is too large, the greatest count is {}", u64::MAX);
    let (number, name) = split(text.trim());
    let unit = unit(name).ok_or_else(wrong)?;
    let number = number.replace(['_', '\u{202f}'], "");
    let (whole, decimals) = number.split_once('.').unwrap_or((&number, ""));
    let decimals = decimals.trim_end_matches('0');
    let is_digits = |digits: &str| digits.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || number.ends_with('.') || !is_digits(decimals) {
        return Err(wrong());
    }
    let whole: u64 = whole.parse().map_err(|_| large())?;
    let whole = whole.checked_mul(unit).ok_or_else(large)?;
    let fraction = match decimals {
        "" => Some(0),
        // More than nine decimals of the greatest decimal unit are a fraction of one.
        digits => (digits.len() <= 30)
            .then(|| digits.parse::<u128>().ok())
            .flatten(),
    };
    let scale = 10u128.pow(decimals.len().min(30) as u32);
    let part = fraction.and_then(|fraction| fraction.checked_mul(u128::from(unit)));
    let part = part.filter(|part| part.is_multiple_of(scale));
    let part = part.ok_or_else(|| format!("`{text}` is not a whole number"))? / scale;
    whole.checked_add(part as u64).ok_or_else(large)
}

/// Reads a count that fits into a `usize`.
///
/// # Errors
///
/// As [`parse_count`].
pub fn parse_size(text: &str) -> Result<usize, String> {
    let count = parse_count(text)?;
    usize::try_from(count).map_err(|_| format!("`{text}` is too large"))
}

/// Reads operations per second: `1500000`, `1.5M`, `1.50 M/s`.
///
/// # Errors
///
/// A message if the text is no positive number with one of the units of [`parse_count`].
pub fn parse_rate(text: &str) -> Result<f64, String> {
    let wrong = || format!("`{text}` is not a rate such as 1000, 100k or 1.5M");
    let plain = text.trim();
    let plain = plain.strip_suffix("/s").unwrap_or(plain).trim_end();
    if let Ok(rate) = plain.parse::<f64>() {
        return if rate.is_finite() {
            Ok(rate)
        } else {
            Err(wrong())
        };
    }
    let (number, name) = split(plain);
    let unit = unit(name).ok_or_else(wrong)?;
    let number: f64 = number
        .replace(['_', '\u{202f}'], "")
        .parse()
        .map_err(|_| wrong())?;
    Ok(number * unit as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_printed_can_be_read() {
        let powers = (0..64).map(|bit| 1u64 << bit);
        let tens = (0..19).map(|power| 10u64.pow(power));
        let near = |value: u64| [value.saturating_sub(1), value, value.saturating_add(1)];
        let more = |value: u64| {
            [
                value,
                value.saturating_mul(15) / 10,
                value.saturating_mul(3),
            ]
        };
        for value in powers.chain(tens).flat_map(more).flat_map(near) {
            assert_eq!(parse_count(&count(value)), Ok(value), "{}", count(value));
        }
        assert_eq!(parse_count(&count(u64::MAX)), Ok(u64::MAX));
    }

    #[test]
    fn numbers_have_three_digits_and_a_unit() {
        let rates = [12.34e6, 999.0, 0.0, 2.5e9].map(rate);
        assert_eq!(rates, ["12.3 M/s", "999/s", "0", "2.50 G/s"]);
        let times = [1_500.0, 2e6, 0.5, 123_456.0].map(time);
        assert_eq!(times, ["1.50 µs", "2 ms", "0.50 ns", "123 µs"]);
        assert_eq!([bytes(32_768.0), bytes(1_500.0)], ["32 KiB", "1.46 KiB"]);
        assert_eq!([count_tick(50e3), count_tick(2e6)], ["50k", "2M"]);
        assert_eq!(trimmed(100.0, 0), "100");
        assert_eq!(parse_count(&grouped(1_234_567)), Ok(1_234_567));
        assert_eq!(parse_rate(&rate(1.5e6)), Ok(1.5e6));
    }

    #[test]
    fn counts_have_units() {
        for (text, value) in [
            ("0", 0),
            ("100k", 100_000),
            ("100K", 100_000),
            ("1.5k", 1_500),
            ("0.25M", 250_000),
            ("64Ki", 65_536),
            ("64 Ki", 65_536),
            ("1.5Mi", 3 << 19),
            ("2G", 2_000_000_000),
            ("1_000_000", 1_000_000),
            ("1\u{202f}000", 1_000),
            ("1.50", 0),
        ] {
            match value {
                0 if text != "0" => assert!(parse_count(text).is_err(), "{text}"),
                value => assert_eq!(parse_count(text), Ok(value), "{text}"),
            }
        }
    }

    #[test]
    fn wrong_counts_name_what_is_wrong() {
        for (text, reason) in [
            ("", "not a count"),
            ("k", "not a count"),
            (".5k", "not a count"),
            ("1.k", "not a count"),
            ("1.2.3k", "not a count"),
            ("-1", "not a count"),
            ("1e6", "not a count"),
            ("100m", "not a count"),
            ("100kk", "not a count"),
            ("1.5", "not a whole number"),
            ("1.0005k", "not a whole number"),
            ("0.3Ki", "not a whole number"),
            ("18446744073709551616", "too large"),
            ("18446744073709551615k", "too large"),
            ("99999999999G", "too large"),
        ] {
            let said = parse_count(text).expect_err(text);
            assert!(said.contains(reason), "{text}: {said}");
        }
        let long = format!("1.{}1k", "0".repeat(60));
        assert!(parse_count(&long).is_err_and(|said| said.contains("whole")));
    }

    #[test]
    fn rates_have_units_and_decimals() {
        for (text, rate) in [
            ("1e6", 1e6),
            ("12.5", 12.5),
            ("1.50 M/s", 1.5e6),
            ("250k", 250e3),
            ("700/s", 700.0),
        ] {
            assert_eq!(parse_rate(text), Ok(rate), "{text}");
        }
        for text in ["", "fast", "inf", "NaN", "1 m/s", "1/h"] {
            assert!(parse_rate(text).is_err(), "{text}");
        }
    }
}
