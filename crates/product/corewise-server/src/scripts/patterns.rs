//! Lua's patterns, with a bound on their steps: the matcher of Lua's library backtracks for as long
//! as a pattern makes it, and nothing can stop it meanwhile.
//!
//! Source: the [Lua 5.1 manual](https://www.lua.org/manual/5.1/manual.html#5.4.1), and the
//! behaviour of redis-server 7.0.15.

use super::watchdog::{Stopped, Watchdog};
use std::ops::Range;

/// The most captures of a pattern, as in Lua.
const MAX_CAPTURES: usize = 32;
/// How deep items of a pattern may nest that try several lengths.
const MAX_DEPTH: usize = 200;
/// Steps between two looks at the clock.
const STEPS: usize = 1 << 16;

/// Why a match has no result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// The pattern is wrong.
    Malformed(&'static str),
    /// The script must end.
    Stopped(Stopped),
}

impl From<&'static str> for Failure {
    fn from(text: &'static str) -> Self {
        Self::Malformed(text)
    }
}

/// What a pair of parentheses has caught.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Capture {
    Text(Range<usize>),
    /// A place in the text, for `()`.
    Position(usize),
}

#[derive(Clone, Copy)]
enum End {
    Open,
    At(usize),
    Position,
}

/// Matches one pattern with one text.
pub(super) struct Matcher<'t> {
    text: &'t [u8],
    pattern: &'t [u8],
    captures: [(usize, End); MAX_CAPTURES],
    level: usize,
    depth: usize,
    steps: usize,
    watchdog: &'t Watchdog,
}

type Matched = Result<Option<usize>, Failure>;

impl<'t> Matcher<'t> {
    /// A pattern without `^`. As in Lua 5.1 it ends at a zero byte.
    pub(super) fn new(text: &'t [u8], pattern: &'t [u8], watchdog: &'t Watchdog) -> Self {
        let end = memchr::memchr(0, pattern).unwrap_or(pattern.len());
        Self {
            text,
            pattern: &pattern[..end],
            captures: [(0, End::Open); MAX_CAPTURES],
            level: 0,
            depth: 0,
            steps: 0,
            watchdog,
        }
    }

    /// Matches the pattern with the text from `start` on, and returns where the match ends.
    pub(super) fn matches_at(&mut self, start: usize) -> Matched {
        self.level = 0;
        self.depth = 0;
        self.go(start, 0)
    }

    /// The number of captures of the last match.
    pub(super) fn captures(&self) -> usize {
        self.level
    }

    /// A capture of the last match, which is `whole`; without captures, that is the first.
    pub(super) fn capture(&self, index: usize, whole: &Range<usize>) -> Result<Capture, Failure> {
        if index >= self.level {
            return if index == 0 {
                Ok(Capture::Text(whole.clone()))
            } else {
                Err("invalid capture index".into())
            };
        }
        match self.captures[index] {
            (start, End::At(end)) => Ok(Capture::Text(start..end)),
            (start, End::Position) => Ok(Capture::Position(start + 1)),
            (_, End::Open) => Err("unfinished capture".into()),
        }
    }

    fn step(&mut self) -> Result<(), Failure> {
        self.charge(1)
    }

    /// Counts a step for each byte that is looked at.
    fn charge(&mut self, bytes: usize) -> Result<(), Failure> {
        self.steps += bytes;
        if self.steps >= STEPS {
            self.steps = 0;
            return self.watchdog.check().map_err(Failure::Stopped);
        }
        Ok(())
    }

    /// Matches the pattern from `p` on.
    fn go(&mut self, s: usize, p: usize) -> Matched {
        if self.depth >= MAX_DEPTH {
            return Err("pattern too complex".into());
        }
        self.depth += 1;
        let matched = self.go_deeper(s, p);
        self.depth -= 1;
        matched
    }

    fn go_deeper(&mut self, mut s: usize, mut p: usize) -> Matched {
        loop {
            self.step()?;
            let Some(&item) = self.pattern.get(p) else {
                return Ok(Some(s));
            };
            match (item, self.pattern.get(p + 1)) {
                (b'(', Some(b')')) => return self.open(s, p + 2, End::Position),
                (b'(', _) => return self.open(s, p + 1, End::Open),
                (b')', _) => return self.close(s, p + 1),
                (b'$', None) => return Ok((s == self.text.len()).then_some(s)),
                (b'%', Some(b'b')) => match self.balanced(s, p + 2)? {
                    Some(end) => (s, p) = (end, p + 4),
                    None => return Ok(None),
                },
                (b'%', Some(b'f')) => match self.frontier(s, p + 2)? {
                    Some(end) => p = end,
                    None => return Ok(None),
                },
                (b'%', Some(digit @ b'0'..=b'9')) => match self.repeated(s, *digit)? {
                    Some(end) => (s, p) = (end, p + 2),
                    None => return Ok(None),
                },
                _ => match self.single(s, p)? {
                    Single::Next(next_s, next_p) => (s, p) = (next_s, next_p),
                    Single::Done(matched) => return Ok(matched),
                },
            }
        }
    }

    /// One character of the pattern with what says how often it may be there.
    fn single(&mut self, s: usize, p: usize) -> Result<Single, Failure> {
        let end = self.class_end(p)?;
        self.charge(end - p)?;
        let fits = self.fits(s, p, end);
        Ok(match self.pattern.get(end) {
            Some(b'?') => {
                if fits && let Some(found) = self.go(s + 1, end + 1)? {
                    return Ok(Single::Done(Some(found)));
                }
                Single::Next(s, end + 1)
            }
            Some(b'*') => Single::Done(self.longest(s, p, end)?),
            Some(b'+') if fits => Single::Done(self.longest(s + 1, p, end)?),
            Some(b'-') => Single::Done(self.shortest(s, p, end)?),
            Some(b'+') => Single::Done(None),
            _ if fits => Single::Next(s + 1, end),
            _ => Single::Done(None),
        })
    }

    fn longest(&mut self, s: usize, p: usize, end: usize) -> Matched {
        let mut count = 0;
        while self.fits(s + count, p, end) {
            self.charge(end - p)?;
            count += 1;
        }
        loop {
            if let Some(found) = self.go(s + count, end + 1)? {
                return Ok(Some(found));
            }
            match count.checked_sub(1) {
                Some(less) => count = less,
                None => return Ok(None),
            }
        }
    }

    fn shortest(&mut self, mut s: usize, p: usize, end: usize) -> Matched {
        loop {
            if let Some(found) = self.go(s, end + 1)? {
                return Ok(Some(found));
            }
            self.charge(end - p)?;
            if !self.fits(s, p, end) {
                return Ok(None);
            }
            s += 1;
        }
    }

    fn open(&mut self, s: usize, p: usize, end: End) -> Matched {
        let Some(place) = self.captures.get_mut(self.level) else {
            return Err("too many captures".into());
        };
        *place = (s, end);
        self.level += 1;
        let matched = self.go(s, p)?;
        if matched.is_none() {
            self.level -= 1;
        }
        Ok(matched)
    }

    fn close(&mut self, s: usize, p: usize) -> Matched {
        let open = |(_, end): &(usize, End)| matches!(end, End::Open);
        let Some(index) = self.captures[..self.level].iter().rposition(open) else {
            return Err("invalid pattern capture".into());
        };
        self.captures[index].1 = End::At(s);
        let matched = self.go(s, p)?;
        if matched.is_none() {
            self.captures[index].1 = End::Open;
        }
        Ok(matched)
    }

    /// `%bxy`, whose two characters are at `p`.
    fn balanced(&mut self, s: usize, p: usize) -> Matched {
        let (Some(&open), Some(&close)) = (self.pattern.get(p), self.pattern.get(p + 1)) else {
            return Err("unbalanced pattern".into());
        };
        if self.text.get(s) != Some(&open) {
            return Ok(None);
        }
        let mut depth = 1_usize;
        for at in s + 1..self.text.len() {
            self.step()?;
            let byte = self.text[at];
            if byte == close {
                depth -= 1;
                if depth == 0 {
                    return Ok(Some(at + 1));
                }
            } else if byte == open {
                depth += 1;
            }
        }
        Ok(None)
    }

    /// `%f[set]`, whose set is at `p`: where the set ends, if the place is a frontier.
    fn frontier(&mut self, s: usize, p: usize) -> Matched {
        if self.pattern.get(p) != Some(&b'[') {
            return Err("missing '[' after '%f' in pattern".into());
        }
        let end = self.class_end(p)?;
        self.charge(2 * (end - p))?;
        let before = match s {
            0 => 0,
            _ => self.text[s - 1],
        };
        let after = self.text.get(s).copied().unwrap_or(0);
        let is_frontier = !self.is_in_set(before, p, end) && self.is_in_set(after, p, end);
        Ok(is_frontier.then_some(end))
    }

    /// `%1`, the text of a capture.
    fn repeated(&mut self, s: usize, digit: u8) -> Matched {
        let index = usize::from(digit).wrapping_sub(usize::from(b'1'));
        match self.captures[..self.level].get(index) {
            Some(&(start, End::At(end))) => {
                self.charge(end - start)?;
                let is_same = self.text[s..].starts_with(&self.text[start..end]);
                Ok(is_same.then_some(s + end - start))
            }
            // As long as no text is: it fits nowhere.
            Some((_, End::Position)) => Ok(None),
            _ => Err("invalid capture index".into()),
        }
    }

    /// Where the character or set at `p` ends.
    fn class_end(&self, p: usize) -> Result<usize, Failure> {
        match self.pattern[p] {
            b'%' if p + 1 == self.pattern.len() => Err("malformed pattern (ends with '%')".into()),
            b'%' => Ok(p + 2),
            b'[' => {
                let mut at = p + 1;
                if self.pattern.get(at) == Some(&b'^') {
                    at += 1;
                }
                loop {
                    let Some(&byte) = self.pattern.get(at) else {
                        return Err("malformed pattern (missing ']')".into());
                    };
                    at += 1;
                    if byte == b'%' && at < self.pattern.len() {
                        at += 1;
                    }
                    // A bracket directly behind the beginning is an ordinary character.
                    if self.pattern.get(at) == Some(&b']') {
                        return Ok(at + 1);
                    }
                }
            }
            _ => Ok(p + 1),
        }
    }

    /// Whether the character at `s` is one that the class from `p` to `end` means.
    fn fits(&self, s: usize, p: usize, end: usize) -> bool {
        let Some(&byte) = self.text.get(s) else {
            return false;
        };
        match self.pattern[p] {
            b'.' => true,
            b'%' => is_in_class(byte, self.pattern[p + 1]),
            b'[' => self.is_in_set(byte, p, end),
            literal => literal == byte,
        }
    }

    /// Whether the set from `p` to `end` has the byte.
    fn is_in_set(&self, byte: u8, p: usize, end: usize) -> bool {
        let inner = &self.pattern[p + 1..end - 1];
        let (is_negated, mut rest) = match inner {
            [b'^', rest @ ..] => (true, rest),
            rest => (false, rest),
        };
        let mut found = false;
        loop {
            match rest {
                [b'%', class, after @ ..] => {
                    found |= is_in_class(byte, *class);
                    rest = after;
                }
                [low, b'-', high, after @ ..] => {
                    found |= (*low..=*high).contains(&byte);
                    rest = after;
                }
                [one, after @ ..] => {
                    found |= *one == byte;
                    rest = after;
                }
                [] => return found != is_negated,
            }
        }
    }
}

/// What a single character leads to.
enum Single {
    Next(usize, usize),
    Done(Option<usize>),
}

/// Whether `%class` means the byte.
fn is_in_class(byte: u8, class: u8) -> bool {
    let is_in = match class.to_ascii_lowercase() {
        b'a' => byte.is_ascii_alphabetic(),
        b'c' => byte.is_ascii_control(),
        b'd' => byte.is_ascii_digit(),
        b'l' => byte.is_ascii_lowercase(),
        b'p' => byte.is_ascii_punctuation(),
        b's' => byte.is_ascii_whitespace() || byte == 0x0b,
        b'u' => byte.is_ascii_uppercase(),
        b'w' => byte.is_ascii_alphanumeric(),
        b'x' => byte.is_ascii_hexdigit(),
        b'z' => byte == 0,
        _ => return class == byte,
    };
    is_in != class.is_ascii_uppercase()
}

/// Whether the text is searched for as it is: it has no character that means something else.
pub(super) fn is_plain(pattern: &[u8]) -> bool {
    let end = memchr::memchr(0, pattern).unwrap_or(pattern.len());
    !pattern[..end]
        .iter()
        .any(|byte| b"^$*+?.([%-".contains(byte))
}
