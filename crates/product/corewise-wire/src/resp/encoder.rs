//! Prints replies.

use std::io::Write as _;

/// The version of the protocol that a client has chosen with `HELLO`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Version {
    /// RESP2, which every connection begins with.
    #[default]
    Resp2,
    /// RESP3, which also has maps, sets, doubles, booleans, big numbers, verbatim strings and
    /// pushes.
    Resp3,
}

impl Version {
    /// The number of the version: 2 or 3.
    #[must_use]
    pub fn number(self) -> u8 {
        match self {
            Self::Resp2 => 2,
            Self::Resp3 => 3,
        }
    }
}

/// Prints replies in one version of the protocol to the end of a buffer.
///
/// A type that the version does not have is printed as the type that Redis replaces it with. An
/// aggregate is its head, followed by its elements, which the caller prints. Nothing but the buffer
/// allocates, and each method takes time in proportion to what it prints.
///
/// ```
/// use corewise_wire::resp::{Encoder, Version};
///
/// let print = |version| {
///     let mut out = Vec::new();
///     let mut reply = Encoder::new(version, &mut out);
///     reply.map(1);
///     reply.bulk(b"pi");
///     reply.double(3.25);
///     out
/// };
/// assert_eq!(print(Version::Resp2), b"*2\r\n$2\r\npi\r\n$4\r\n3.25\r\n");
/// assert_eq!(print(Version::Resp3), b"%1\r\n$2\r\npi\r\n,3.25\r\n");
/// ```
#[derive(Debug)]
pub struct Encoder<'o> {
    version: Version,
    out: &'o mut Vec<u8>,
}

impl<'o> Encoder<'o> {
    /// Prints to the end of `out`.
    #[inline]
    #[must_use]
    pub fn new(version: Version, out: &'o mut Vec<u8>) -> Self {
        Self { version, out }
    }

    /// The version of the protocol.
    #[inline]
    #[must_use]
    pub fn version(&self) -> Version {
        self.version
    }

    /// A simple string, such as `OK`. Line breaks in it are printed as blanks.
    #[inline]
    pub fn simple(&mut self, text: &str) {
        self.line(b'+', &[text.as_bytes()]);
    }

    /// A reply in the form in which it is sent.
    #[inline]
    pub fn fixed(&mut self, reply: &'static [u8]) {
        self.out.extend_from_slice(reply);
    }

    /// An error, whose parts are printed one after the other: a code, a blank, and a text. Line
    /// breaks in it are printed as blanks, so a part may be the client's words.
    ///
    /// ```
    /// # use corewise_wire::resp::{Encoder, Version};
    /// let mut out = Vec::new();
    /// Encoder::new(Version::Resp2, &mut out).error(&[b"ERR no '", b"a\r\nb", b"'"]);
    /// assert_eq!(out, b"-ERR no 'a  b'\r\n");
    /// ```
    pub fn error(&mut self, parts: &[&[u8]]) {
        self.line(b'-', parts);
    }

    /// An integer.
    #[inline]
    pub fn integer(&mut self, value: i64) {
        self.out.push(b':');
        let mut digits = itoa::Buffer::new();
        self.out.extend_from_slice(digits.format(value).as_bytes());
        self.end();
    }

    /// A bulk string.
    #[inline]
    pub fn bulk(&mut self, bytes: &[u8]) {
        self.out.reserve(bytes.len() + 24);
        self.bulk_head(bytes.len());
        self.out.extend_from_slice(bytes);
        self.end();
    }

    /// The head of a bulk string of `len` bytes. The caller sends the bytes and `\r\n` after it.
    #[inline]
    pub fn bulk_head(&mut self, len: usize) {
        self.head(b'$', len);
    }

    /// The absence of a value.
    #[inline]
    pub fn null(&mut self) {
        self.out.extend_from_slice(match self.version {
            Version::Resp2 => b"$-1\r\n",
            Version::Resp3 => b"_\r\n",
        });
    }

    /// The absence of an array, which RESP2 distinguishes from the absence of a value.
    pub fn null_array(&mut self) {
        self.out.extend_from_slice(match self.version {
            Version::Resp2 => b"*-1\r\n",
            Version::Resp3 => b"_\r\n",
        });
    }

    /// The head of an array of `len` elements.
    #[inline]
    pub fn array(&mut self, len: usize) {
        self.head(b'*', len);
    }

    /// The head of a map of `len` pairs; in RESP2 of an array of twice as many elements. The caller
    /// prints the key and the value of each pair.
    pub fn map(&mut self, len: usize) {
        match self.version {
            Version::Resp2 => self.head(b'*', len.saturating_mul(2)),
            Version::Resp3 => self.head(b'%', len),
        }
    }

    /// The head of a set of `len` members; in RESP2 of an array.
    pub fn set(&mut self, len: usize) {
        self.head(self.of_resp3(b'~', b'*'), len);
    }

    /// The head of a push of `len` elements, data that the client has not asked for; in RESP2 of an
    /// array.
    pub fn push(&mut self, len: usize) {
        self.head(self.of_resp3(b'>', b'*'), len);
    }

    /// A floating-point number with up to 17 digits, as Redis 7.0 prints it; in RESP2 as a bulk
    /// string.
    ///
    /// ```
    /// # use corewise_wire::resp::{Encoder, Version};
    /// let mut out = Vec::new();
    /// for value in [0.1, -3.0, 1e21, f64::INFINITY, f64::NAN] {
    ///     Encoder::new(Version::Resp3, &mut out).double(value);
    /// }
    /// assert_eq!(out, b",0.10000000000000001\r\n,-3\r\n,1e+21\r\n,inf\r\n,nan\r\n");
    /// ```
    pub fn double(&mut self, value: f64) {
        let mut text = DoubleText::default();
        text.print(value);
        self.scalar(b',', &text.bytes[..text.len]);
    }

    /// A truth value; in RESP2 the integer 1 or 0.
    pub fn boolean(&mut self, value: bool) {
        match (self.version, value) {
            (Version::Resp2, _) => self.integer(i64::from(value)),
            (Version::Resp3, true) => self.out.extend_from_slice(b"#t\r\n"),
            (Version::Resp3, false) => self.out.extend_from_slice(b"#f\r\n"),
        }
    }

    /// An integer of any size, given by its decimal digits; in RESP2 as a bulk string.
    pub fn big_number(&mut self, digits: &str) {
        self.scalar(b'(', digits.as_bytes());
    }

    /// Text to be shown to a person, with three letters for its format, such as `txt` or `mkd`; in
    /// RESP2 as a bulk string without the format.
    pub fn verbatim(&mut self, format: [u8; 3], text: &[u8]) {
        match self.version {
            Version::Resp2 => self.bulk(text),
            Version::Resp3 => {
                self.head(b'=', text.len() + 4);
                self.out.extend_from_slice(&format);
                self.out.push(b':');
                self.out.extend_from_slice(text);
                self.end();
            }
        }
    }

    /// A line of RESP3, or a bulk string in RESP2.
    fn scalar(&mut self, kind: u8, text: &[u8]) {
        match self.version {
            Version::Resp2 => self.bulk(text),
            Version::Resp3 => self.line(kind, &[text]),
        }
    }

    fn of_resp3(&self, resp3: u8, resp2: u8) -> u8 {
        match self.version {
            Version::Resp2 => resp2,
            Version::Resp3 => resp3,
        }
    }

    #[inline]
    fn head(&mut self, kind: u8, len: usize) {
        self.out.push(kind);
        let mut digits = itoa::Buffer::new();
        self.out.extend_from_slice(digits.format(len).as_bytes());
        self.end();
    }

    fn line(&mut self, kind: u8, parts: &[&[u8]]) {
        self.out.push(kind);
        let start = self.out.len();
        for part in parts {
            self.out.extend_from_slice(part);
        }
        for byte in &mut self.out[start..] {
            if matches!(byte, b'\r' | b'\n') {
                *byte = b' ';
            }
        }
        self.end();
    }

    #[inline]
    fn end(&mut self) {
        self.out.extend_from_slice(b"\r\n");
    }
}

/// Significant digits of a printed double: enough to read the same number again.
const DIGITS: usize = 17;
/// A sign, the digits, a point, an exponent, and zeros in front.
const DOUBLE_LEN: usize = 32;

/// The decimal form of a floating-point number, as `%.17g` of C prints it.
#[derive(Default)]
struct DoubleText {
    bytes: [u8; DOUBLE_LEN],
    len: usize,
}

impl DoubleText {
    fn push(&mut self, bytes: &[u8]) {
        let (_, rest) = self.bytes.split_at_mut(self.len);
        let len = bytes.len().min(rest.len());
        rest[..len].copy_from_slice(&bytes[..len]);
        self.len += len;
    }

    fn zeros(&mut self, count: usize) {
        for _ in 0..count {
            self.push(b"0");
        }
    }

    fn print(&mut self, value: f64) {
        if !value.is_finite() {
            return self.push(match value {
                f64::INFINITY => b"inf",
                f64::NEG_INFINITY => b"-inf",
                _ => b"nan",
            });
        }
        if value.is_sign_negative() {
            self.push(b"-");
        }
        let value = value.abs();
        if value == value.trunc() && value < 1e15 {
            return self.push(itoa::Buffer::new().format(value as u64).as_bytes());
        }
        let mut text = [0; DOUBLE_LEN];
        let mut rest = &mut text[..];
        // A digit, the others behind a point, `e`, and the power of the first digit.
        let written = write!(rest, "{value:.*e}", DIGITS - 1);
        debug_assert!(written.is_ok(), "24 bytes are enough for any number");
        let mut digits = [0; DIGITS];
        digits[0] = text[0];
        digits[1..].copy_from_slice(&text[2..=DIGITS]);
        let end = text.iter().position(|byte| *byte == 0);
        let power = std::str::from_utf8(&text[DIGITS + 2..end.unwrap_or(DOUBLE_LEN)]);
        let first = power.ok().and_then(|text| text.parse().ok()).unwrap_or(0);
        self.place(&digits, first);
    }

    /// Prints digits of which the first counts ten to the power of `first`, without the zeros at
    /// their end.
    fn place(&mut self, digits: &[u8], first: i32) {
        let count = digits.iter().rposition(|digit| *digit != b'0');
        let digits = &digits[..count.map_or(1, |last| last + 1)];
        if (-4..0).contains(&first) {
            self.push(b"0.");
            self.zeros(first.unsigned_abs() as usize - 1);
            return self.push(digits);
        }
        let has_exponent = !(0..DIGITS as i32).contains(&first);
        let whole = if has_exponent { 1 } else { first as usize + 1 };
        let (whole, fraction) = (whole.min(digits.len()), whole);
        self.push(&digits[..whole]);
        self.zeros(fraction - whole);
        if whole < digits.len() {
            self.push(b".");
            self.push(&digits[whole..]);
        }
        if has_exponent {
            self.push(if first < 0 { b"e-" } else { b"e+" });
            let power = first.unsigned_abs();
            self.zeros(usize::from(power < 10));
            self.push(itoa::Buffer::new().format(power).as_bytes());
        }
    }
}
