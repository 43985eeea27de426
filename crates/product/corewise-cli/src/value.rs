//! Values as they are written on the command line and in the configuration file.

use std::fmt::{self, Display};
use std::str::FromStr;
use std::time::Duration;

use serde::de::{self, Deserialize, Deserializer, Visitor};

/// A value that is parsed from text in both places. In the file it may also be a plain number.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Parsed<T>(pub(crate) T);

impl<T: FromStr<Err: Display>> FromStr for Parsed<T> {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        text.parse()
            .map(Self)
            .map_err(|error: T::Err| error.to_string())
    }
}

impl<'de, T: FromStr<Err: Display>> Deserialize<'de> for Parsed<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(TextVisitor(std::marker::PhantomData))
    }
}

struct TextVisitor<T>(std::marker::PhantomData<T>);

impl<T: FromStr<Err: Display>> TextVisitor<T> {
    fn parse<E: de::Error>(value: &dyn Display) -> Result<Parsed<T>, E> {
        value.to_string().parse().map_err(E::custom)
    }
}

impl<T: FromStr<Err: Display>> Visitor<'_> for TextVisitor<T> {
    type Value = Parsed<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text or a number")
    }

    fn visit_str<E: de::Error>(self, value: &str) -> Result<Parsed<T>, E> {
        Self::parse(&value)
    }

    fn visit_i64<E: de::Error>(self, value: i64) -> Result<Parsed<T>, E> {
        Self::parse(&value)
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<Parsed<T>, E> {
        Self::parse(&value)
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<Parsed<T>, E> {
        Self::parse(&value)
    }
}

/// A number of bytes: `4096`, `64k`, `1g`, `512MiB`. Units are powers of 1024.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bytes(pub(crate) u64);

impl FromStr for Bytes {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{text}` is not a size such as 4096, 64k, 512m or 1g");
        let (number, unit) = number_and_unit(text);
        let unit_bytes: u64 = match unit.to_ascii_lowercase().as_str() {
            "" | "b" => 1,
            "k" | "kb" | "kib" => 1 << 10,
            "m" | "mb" | "mib" => 1 << 20,
            "g" | "gb" | "gib" => 1 << 30,
            "t" | "tb" | "tib" => 1 << 40,
            _ => return Err(wrong()),
        };
        let number: u64 = number.parse().map_err(|_| wrong())?;
        number.checked_mul(unit_bytes).map(Self).ok_or_else(wrong)
    }
}

impl Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = [
            (1 << 40, "t"),
            (1 << 30, "g"),
            (1 << 20, "m"),
            (1 << 10, "k"),
        ];
        match units
            .iter()
            .find(|(unit, _)| self.0 >= *unit && self.0.is_multiple_of(*unit))
        {
            Some((unit, name)) => write!(f, "{}{name}", self.0 / unit),
            None => self.0.fmt(f),
        }
    }
}

/// A length of time: `30` (seconds), `30s`, `500ms`, `5m`, `1h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span(pub(crate) Duration);

impl FromStr for Span {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{text}` is not a time such as 30, 500ms, 5m or 1h");
        let (number, unit) = number_and_unit(text);
        let unit_ms: u64 = match unit {
            "ms" => 1,
            "" | "s" => 1_000,
            "m" | "min" => 60_000,
            "h" => 3_600_000,
            _ => return Err(wrong()),
        };
        let number: u64 = number.parse().map_err(|_| wrong())?;
        number
            .checked_mul(unit_ms)
            .map(|ms| Self(Duration::from_millis(ms)))
            .ok_or_else(wrong)
    }
}

fn number_and_unit(text: &str) -> (&str, &str) {
    let end = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    text.split_at(end)
}

/// Permissions in octal, as in memcached's `-a` and `chmod`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mode(pub(crate) u32);

impl FromStr for Mode {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mode = u32::from_str_radix(text, 8)
            .ok()
            .filter(|&mode| mode <= 0o777);
        mode.map(Self)
            .ok_or_else(|| format!("`{text}` is not an octal mode such as 700"))
    }
}

/// A TCP port; -1 lets the system choose one, and 0 turns TCP off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Port {
    /// memcached's `-p 0`.
    Off,
    /// memcached's `-p -1`.
    Any,
    /// A port number.
    Number(u16),
}

impl FromStr for Port {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.parse::<i64>() {
            Ok(-1) => Ok(Self::Any),
            Ok(0) => Ok(Self::Off),
            Ok(port) => u16::try_from(port)
                .map(Self::Number)
                .map_err(|_| not_a_port(text)),
            Err(_) => Err(not_a_port(text)),
        }
    }
}

pub(crate) fn not_a_port(text: &str) -> String {
    format!("`{text}` is not a port between 0 and 65535")
}

/// A number above zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Positive(pub(crate) u32);

impl FromStr for Positive {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = text
            .parse()
            .ok()
            .filter(|&number| (1..=i32::MAX as u32).contains(&number));
        number
            .map(Self)
            .ok_or_else(|| format!("`{text}` is not a whole number above 0"))
    }
}

/// A number of megabytes above zero, as memcached's `-m` has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Megabytes(pub(crate) u32);

impl FromStr for Megabytes {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.parse() {
            Ok(Positive(number)) => Ok(Self(number)),
            Err(_) if text.parse().is_ok_and(|Bytes(size)| size > 0) => Err(format!(
                "`{text}` is not a whole number of megabytes: did you mean `--memory {text}`?"
            )),
            Err(_) => Err(format!(
                "`{text}` is not a whole number of megabytes above 0"
            )),
        }
    }
}

/// The byte between a key's prefix and the rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Delimiter(pub(crate) u8);

impl FromStr for Delimiter {
    type Err = String;

    /// memcached reads the first byte only.
    fn from_str(text: &str) -> Result<Self, String> {
        match text.as_bytes().first() {
            Some(&byte) if byte.is_ascii_graphic() => Ok(Self(byte)),
            _ => Err("a delimiter is one visible ASCII character".into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_binary_units_in_any_case() {
        let cases = [
            ("4096", 4096),
            ("64k", 65_536),
            ("1G", 1 << 30),
            ("2MiB", 2 << 20),
        ];
        for (text, bytes) in cases {
            assert_eq!(text.parse(), Ok(Bytes(bytes)), "{text}");
        }
        for text in [
            "",
            "k",
            "1x",
            "-1",
            "1.5g",
            "99999999999999999999",
            "20000000t",
        ] {
            assert!(text.parse::<Bytes>().is_err(), "{text}");
        }
    }

    #[test]
    fn sizes_are_written_with_the_largest_whole_unit() {
        assert_eq!(Bytes(1 << 30).to_string(), "1g");
        assert_eq!(Bytes(1536 << 10).to_string(), "1536k");
        assert_eq!(Bytes(1000).to_string(), "1000");
    }

    #[test]
    fn times_are_seconds_unless_they_say_otherwise() {
        for (text, ms) in [
            ("30", 30_000),
            ("30s", 30_000),
            ("5ms", 5),
            ("2m", 120_000),
            ("0", 0),
        ] {
            assert_eq!(text.parse(), Ok(Span(Duration::from_millis(ms))), "{text}");
        }
        assert!("soon".parse::<Span>().is_err());
    }

    #[test]
    fn modes_are_octal() {
        assert_eq!("0770".parse(), Ok(Mode(0o770)));
        assert!("0888".parse::<Mode>().is_err());
        assert!("7777".parse::<Mode>().is_err());
    }

    #[test]
    fn ports_have_two_special_values() {
        assert_eq!("-1".parse(), Ok(Port::Any));
        assert_eq!("0".parse(), Ok(Port::Off));
        assert_eq!("65535".parse(), Ok(Port::Number(65_535)));
        assert!("65536".parse::<Port>().is_err());
        assert!("http".parse::<Port>().is_err());
    }
}
