//! Inline requests: a line of words, some of them in quotes.
//!
//! | in | special |
//! |---|---|
//! | a bare word | blanks end it; a quote begins a quoted part |
//! | `"…"` | `\n \r \t \b \a \xHH`; a backslash before another byte stands for that byte |
//! | `'…'` | `\'` only |
//!
//! A blank or the end of the line must follow a closing quote.

use bumpalo::Bump;

/// The quotes of the line do not match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Unbalanced;

/// Bytes before a word while it is being written: `$`, the digits of a length, and a line break.
const HEAD: usize = 1 + 20 + 2;

/// The words as bulk strings. Bytes for which there is no room are only counted.
struct Words<'i> {
    bytes: &'i mut [u8],
    len: usize,
}

impl<'i> Words<'i> {
    /// Room for the words of a line of `len` bytes. A word of `n` bytes takes `n + 1` bytes of the
    /// line at least, and as a bulk string `n + 6` and one more for each further digit of `n`.
    fn new(len: usize, scratch: &'i Bump) -> Self {
        Self {
            bytes: scratch.alloc_slice_fill_copy(4 * len + 2 * HEAD, 0),
            len: 0,
        }
    }

    #[inline]
    fn push(&mut self, byte: u8) {
        if let Some(place) = self.bytes.get_mut(self.len) {
            *place = byte;
        }
        self.len += 1;
    }

    fn extend(&mut self, bytes: &[u8]) {
        self.bytes[self.len..self.len + bytes.len()].copy_from_slice(bytes);
        self.len += bytes.len();
    }

    /// Puts the word that was pushed behind `start + HEAD` behind its head at `start`.
    fn close(&mut self, start: usize) {
        let word = start + HEAD..self.len;
        let mut digits = itoa::Buffer::new();
        self.len = start;
        self.push(b'$');
        self.extend(digits.format(word.len()).as_bytes());
        self.extend(b"\r\n");
        self.bytes.copy_within(word.clone(), self.len);
        self.len += word.len();
        self.extend(b"\r\n");
    }
}

/// Rewrites the words of `line` as bulk strings in `scratch`, and counts them.
///
/// Takes time and memory in proportion to the line.
pub(super) fn rewrite<'i>(line: &[u8], scratch: &'i Bump) -> Result<(&'i [u8], u32), Unbalanced> {
    let mut words = Words::new(line.len(), scratch);
    let mut rest = line;
    let mut count = 0;
    loop {
        let blanks = rest.iter().take_while(|byte| is_space(**byte)).count();
        rest = &rest[blanks..];
        if rest.is_empty() {
            return Ok((&words.bytes[..words.len], count));
        }
        let start = words.len;
        words.len += HEAD;
        rest = take_word(rest, &mut words)?;
        words.close(start);
        count += 1;
    }
}

/// The first word of the line at the start of `text`, decoded in `scratch`, and the text behind the
/// word. `None` if there is no word in the line.
///
/// Takes time and memory in proportion to the word and the blanks before it.
pub(super) fn first<'t, 'i>(text: &'t [u8], scratch: &'i Bump) -> Option<(&'i [u8], &'t [u8])> {
    let blanks = text.iter().take_while(|byte| is_blank(**byte)).count();
    let text = &text[blanks..];
    let mut counted = Words {
        bytes: &mut [],
        len: 0,
    };
    let rest = take_word(text, &mut counted).ok()?;
    if rest.len() == text.len() {
        return None;
    }
    let mut word = Words {
        bytes: scratch.alloc_slice_fill_copy(counted.len, 0),
        len: 0,
    };
    take_word(text, &mut word).ok()?;
    Some((word.bytes, rest))
}

/// A byte between words, and not at the end of the line.
fn is_blank(byte: u8) -> bool {
    byte != b'\n' && is_space(byte)
}

/// `isspace` of C.
fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t'..=b'\r')
}

/// Appends the word at the start of `text` to `words`, and returns what follows it.
fn take_word<'t>(mut text: &'t [u8], words: &mut Words<'_>) -> Result<&'t [u8], Unbalanced> {
    loop {
        text = match text {
            // Vertical tabs and form feeds end no bare word.
            [] | [b' ' | b'\n' | b'\r' | b'\t', ..] => return Ok(text),
            [b'"', rest @ ..] => return closed(take_double_quoted(rest, words)?),
            [b'\'', rest @ ..] => return closed(take_single_quoted(rest, words)?),
            [byte, rest @ ..] => {
                words.push(*byte);
                rest
            }
        };
    }
}

/// The text behind a closing quote, if it may stand there.
fn closed(text: &[u8]) -> Result<&[u8], Unbalanced> {
    match text.first() {
        Some(byte) if !is_space(*byte) => Err(Unbalanced),
        _ => Ok(text),
    }
}

/// Appends the text up to the closing quote, and returns what follows it.
fn take_double_quoted<'t>(
    mut text: &'t [u8],
    words: &mut Words<'_>,
) -> Result<&'t [u8], Unbalanced> {
    loop {
        text = match text {
            [] => return Err(Unbalanced),
            [b'"', rest @ ..] => return Ok(rest),
            [b'\\', b'x', high, low, rest @ ..]
                if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() =>
            {
                words.push(hex(*high) << 4 | hex(*low));
                rest
            }
            [b'\\', byte, rest @ ..] => {
                words.push(match byte {
                    b'n' => b'\n',
                    b'r' => b'\r',
                    b't' => b'\t',
                    b'b' => 0x08,
                    b'a' => 0x07,
                    other => *other,
                });
                rest
            }
            [byte, rest @ ..] => {
                words.push(*byte);
                rest
            }
        };
    }
}

/// Appends the text up to the closing quote, and returns what follows it.
fn take_single_quoted<'t>(
    mut text: &'t [u8],
    words: &mut Words<'_>,
) -> Result<&'t [u8], Unbalanced> {
    loop {
        let (byte, rest) = match text {
            [] => return Err(Unbalanced),
            [b'\'', rest @ ..] => return Ok(rest),
            [b'\\', b'\'', rest @ ..] => (b'\'', rest),
            [byte, rest @ ..] => (*byte, rest),
        };
        words.push(byte);
        text = rest;
    }
}

/// The value of a hexadecimal digit.
fn hex(digit: u8) -> u8 {
    match digit {
        b'0'..=b'9' => digit - b'0',
        _ => (digit | 0x20) - b'a' + 10,
    }
}
