//! A complete request: the name of a command and its arguments.

use std::fmt;
use std::iter::FusedIterator;

use bumpalo::Bump;

use super::inline;
use super::number::short_number;

/// A complete request, at least one element long.
///
/// A view of bytes in the multibulk form that the codec has checked: 24 bytes, `Copy`.
///
/// ```
/// use bumpalo::Bump;
/// use corewise_wire::resp::{Codec, Limits, Parsed};
///
/// let (limits, scratch) = (Limits::default(), Bump::new());
/// let input = b"*2\r\n$4\r\necho\r\n$5\r\nhello\r\n";
/// let Parsed::Request { request, .. } = Codec::new(true).next(input, &limits, &scratch)
/// else { panic!() };
/// assert!(request.name().eq_ignore_ascii_case(b"ECHO"));
/// assert_eq!(request.args().collect::<Vec<_>>(), [b"hello"]);
/// ```
#[derive(Clone, Copy)]
pub struct Request<'i> {
    name: &'i [u8],
    args: Args<'i>,
}

impl<'i> Request<'i> {
    /// The request with these elements. `elements` are `count` bulk strings, one at least.
    #[inline]
    pub(super) fn new(elements: &'i [u8], count: u32) -> Self {
        let mut args = Args {
            rest: elements,
            left: count,
        };
        let name = args.next().unwrap_or(b"");
        Self { name, args }
    }

    /// The first element: the name of the command as the client wrote it.
    #[inline]
    #[must_use]
    pub fn name(&self) -> &'i [u8] {
        self.name
    }

    /// The other elements.
    #[inline]
    #[must_use]
    pub fn args(&self) -> Args<'i> {
        self.args
    }
}

impl fmt::Debug for Request<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let args = self.args.map(<[u8]>::escape_ascii);
        write!(f, "Request({}", self.name.escape_ascii())?;
        for arg in args {
            write!(f, ", {arg}")?;
        }
        f.write_str(")")
    }
}

/// The arguments of a [`Request`], in order.
///
/// `Copy`: copy it to look ahead. Each step takes constant time.
#[derive(Clone, Copy, Debug)]
pub struct Args<'i> {
    rest: &'i [u8],
    left: u32,
}

impl<'i> Args<'i> {
    /// How the arguments stand in `input`, which begins with their request of `consumed` bytes, and
    /// how many bytes are before them.
    #[must_use]
    pub fn position_in(&self, input: &[u8], consumed: usize, scratch: &Bump) -> (ArgForm, usize) {
        if input.first() == Some(&b'*') {
            // The elements of the request are followed by the rest of the input.
            return (ArgForm::Bulk, consumed - self.rest.len());
        }
        let rest = inline::first(input, scratch).map_or(0, |(_, rest)| rest.len());
        (ArgForm::Words, input.len() - rest)
    }
}

/// How the arguments of a request stand in the input, for a caller that takes them one at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArgForm {
    /// Bulk strings.
    Bulk,
    /// The words of an inline request.
    Words,
}

impl ArgForm {
    /// The argument at the start of `input`, and how many bytes it takes: up to the end of the
    /// request if it `is_last`.
    #[must_use]
    pub fn take<'i>(self, input: &'i [u8], is_last: bool, scratch: &'i Bump) -> (&'i [u8], usize) {
        let (arg, rest) = match self {
            Self::Words => inline::first(input, scratch).unwrap_or((b"", input)),
            Self::Bulk => split_element(input).unwrap_or((b"", input)),
        };
        let mut consumed = input.len() - rest.len();
        if is_last && self == Self::Words {
            consumed += memchr::memchr(b'\n', rest).map_or(rest.len(), |at| at + 1);
        }
        (arg, consumed)
    }
}

impl<'i> Iterator for Args<'i> {
    type Item = &'i [u8];

    #[inline]
    fn next(&mut self) -> Option<&'i [u8]> {
        if self.left == 0 {
            return None;
        }
        let (element, rest) = split_element(self.rest)?;
        self.rest = rest;
        self.left -= 1;
        Some(element)
    }

    #[inline]
    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left as usize, Some(self.left as usize))
    }
}

impl ExactSizeIterator for Args<'_> {}
impl FusedIterator for Args<'_> {}

/// Splits `$LENGTH\r\nBYTES\r\n` off text that the codec has checked; `None` for other text.
/// Inlined: the arguments of a `SET` with options are a tenth of its parsing.
#[inline(always)]
fn split_element(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let (len, after) = match short_number(text, b'$') {
        Some(found) => found,
        None => long_number(text)?,
    };
    let (element, rest) = text.get(after..)?.split_at_checked(len)?;
    Some((element, rest.get(2..)?))
}

/// The same as [`short_number`] for any number.
#[cold]
fn long_number(text: &[u8]) -> Option<(usize, usize)> {
    let mut at = 1;
    let mut len = 0_usize;
    loop {
        let digit = text.get(at)?.wrapping_sub(b'0');
        at += 1;
        if digit > 9 {
            break;
        }
        len = len.checked_mul(10)?.checked_add(usize::from(digit))?;
    }
    Some((len, at + 1))
}
