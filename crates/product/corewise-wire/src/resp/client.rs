//! The client's side: requests to bytes, and bytes to the values of a reply.

use std::num::NonZeroU64;

use super::number::parse_integer;

/// Appends a request in multibulk form to `out`.
///
/// ```
/// use corewise_wire::resp::encode_request;
/// let mut out = Vec::new();
/// encode_request(&[b"GET", b"k"], &mut out);
/// assert_eq!(out, b"*2\r\n$3\r\nGET\r\n$1\r\nk\r\n");
/// ```
pub fn encode_request(elements: &[&[u8]], out: &mut Vec<u8>) {
    head(b'*', elements.len(), out);
    for element in elements {
        encode_bulk(element, out);
    }
}

/// Appends an element of a request.
pub(super) fn encode_bulk(element: &[u8], out: &mut Vec<u8>) {
    head(b'$', element.len(), out);
    out.extend_from_slice(element);
    out.extend_from_slice(b"\r\n");
}

fn head(kind: u8, len: usize, out: &mut Vec<u8>) {
    out.push(kind);
    let mut digits = itoa::Buffer::new();
    out.extend_from_slice(digits.format(len).as_bytes());
    out.extend_from_slice(b"\r\n");
}

/// One value of a reply. The elements of an aggregate follow it as values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value<'i> {
    /// A simple string.
    Simple(&'i [u8]),
    /// An error: a code, a blank, and a text.
    Error(&'i [u8]),
    /// An integer.
    Integer(i64),
    /// A bulk string.
    Bulk(&'i [u8]),
    /// The absence of a value or, in RESP2, of an array.
    Null,
    /// An array of this number of elements.
    Array(usize),
    /// A map of this number of pairs.
    Map(usize),
    /// A set of this number of members.
    Set(usize),
    /// A push of this number of elements. It is not a reply to a request.
    Push(usize),
    /// Attributes of the value that follows them, of this number of pairs.
    Attributes(usize),
    /// A floating-point number.
    Double(f64),
    /// A truth value.
    Boolean(bool),
    /// The decimal digits of an integer of any size.
    BigNumber(&'i [u8]),
    /// A text and the three letters of its format.
    Verbatim([u8; 3], &'i [u8]),
}

impl Value<'_> {
    /// How many values must follow before the value is complete.
    fn elements(self) -> u64 {
        match self {
            Self::Array(len) | Self::Set(len) | Self::Push(len) => len as u64,
            Self::Map(len) => (len as u64).saturating_mul(2),
            // Not a value itself: the value that it belongs to follows.
            Self::Attributes(len) => (len as u64).saturating_mul(2).saturating_add(1),
            _ => 0,
        }
    }
}

/// The input is no reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed;

impl std::fmt::Display for Malformed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the input is no reply of RESP2 or RESP3")
    }
}

impl std::error::Error for Malformed {}

/// Reads replies of both versions of the protocol, one [`Value`] at a time.
///
/// It keeps the number of values that the current reply lacks: 8 bytes, however deep arrays are
/// nested.
///
/// ```
/// use corewise_wire::resp::{ReplyReader, Value};
///
/// let mut reader = ReplyReader::default();
/// let input = b"*2\r\n:1\r\n$2\r\nhi\r\n";
/// let Some((consumed, Value::Array(2))) = reader.next(input)? else { panic!() };
/// let Some((more, Value::Integer(1))) = reader.next(&input[consumed..])? else { panic!() };
/// assert!(!reader.is_complete());
/// let Some((_, Value::Bulk(b"hi"))) = reader.next(&input[consumed + more..])? else { panic!() };
/// assert!(reader.is_complete());
/// # Ok::<(), corewise_wire::resp::Malformed>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReplyReader {
    /// Values that the current reply lacks; `None` between replies.
    missing: Option<NonZeroU64>,
}

/// The length of a line that is no simple string or error, without its line break.
const MAX_SHORT_LINE: usize = 64 << 10;

impl ReplyReader {
    /// Whether no reply is unfinished.
    #[inline]
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.missing.is_none()
    }

    /// Reads the value at the start of `input`: the number of bytes that it takes, and the value.
    /// `None` if it is incomplete; the next call must then see the same bytes with more behind
    /// them.
    ///
    /// Takes time in proportion to the length of the value's first line.
    ///
    /// # Errors
    ///
    /// [`Malformed`] if no reply begins so. Strings and aggregates in several parts (`$?`) count as
    /// malformed; no version of Redis sends them.
    #[inline]
    pub fn next<'i>(&mut self, input: &'i [u8]) -> Result<Option<(usize, Value<'i>)>, Malformed> {
        let Some((consumed, value)) = value(input)? else {
            return Ok(None);
        };
        let missing = self.missing.map_or(1, NonZeroU64::get);
        self.missing = NonZeroU64::new((missing - 1).saturating_add(value.elements()));
        Ok(Some((consumed, value)))
    }
}

/// Reads one value.
fn value(input: &[u8]) -> Result<Option<(usize, Value<'_>)>, Malformed> {
    let Some(&kind) = input.first() else {
        return Ok(None);
    };
    let Some(end) = memchr::memchr(b'\n', input) else {
        let is_long = input.len() > MAX_SHORT_LINE && !matches!(kind, b'+' | b'-' | b'(');
        return if is_long || !b"+-:$*%~>|,#(=_".contains(&kind) {
            Err(Malformed)
        } else {
            Ok(None)
        };
    };
    let [_, text @ .., b'\r'] = &input[..end] else {
        return Err(Malformed);
    };
    let after = end + 1;
    let value = match kind {
        b'+' => Value::Simple(text),
        b'-' => Value::Error(text),
        b':' => Value::Integer(parse_integer(text).ok_or(Malformed)?),
        b'(' => Value::BigNumber(big_number(text)?),
        b',' => Value::Double(double(text)?),
        b'$' | b'*' if text == b"-1" => Value::Null,
        b'_' if text.is_empty() => Value::Null,
        b'#' if text == b"t" => Value::Boolean(true),
        b'#' if text == b"f" => Value::Boolean(false),
        b'$' | b'=' => return string(kind, input, after, length(text)?),
        b'*' => Value::Array(length(text)?),
        b'%' => Value::Map(length(text)?),
        b'~' => Value::Set(length(text)?),
        b'>' => Value::Push(length(text)?),
        b'|' => Value::Attributes(length(text)?),
        _ => return Err(Malformed),
    };
    Ok(Some((after, value)))
}

/// Reads the `len` bytes and the line break of a bulk or verbatim string.
fn string(
    kind: u8,
    input: &[u8],
    start: usize,
    len: usize,
) -> Result<Option<(usize, Value<'_>)>, Malformed> {
    let end = start.checked_add(len).ok_or(Malformed)?;
    let Some(tail) = input.get(end..).and_then(|tail| tail.first_chunk::<2>()) else {
        return Ok(None);
    };
    if tail != b"\r\n" {
        return Err(Malformed);
    }
    let value = match (kind, &input[start..end]) {
        (b'$', bytes) => Value::Bulk(bytes),
        (_, [a, b, c, b':', text @ ..]) => Value::Verbatim([*a, *b, *c], text),
        _ => return Err(Malformed),
    };
    Ok(Some((end + 2, value)))
}

fn length(text: &[u8]) -> Result<usize, Malformed> {
    parse_integer(text)
        .and_then(|len| usize::try_from(len).ok())
        .ok_or(Malformed)
}

fn big_number(text: &[u8]) -> Result<&[u8], Malformed> {
    let digits = text.strip_prefix(b"-").unwrap_or(text);
    let is_number = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
    if is_number { Ok(text) } else { Err(Malformed) }
}

fn double(text: &[u8]) -> Result<f64, Malformed> {
    let text = std::str::from_utf8(text).map_err(|_| Malformed)?;
    text.parse().map_err(|_| Malformed)
}
