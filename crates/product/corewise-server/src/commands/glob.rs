//! Patterns of `COMMAND LIST`, `CONFIG GET`, `KEYS`, `SCAN MATCH` and `ZSCAN MATCH`.

use std::cell::OnceCell;

/// The longest pattern that these commands accept, in bytes: a long one takes much time for each
/// long text, and other clients of the thread wait.
pub(super) const MAX_PATTERN: usize = 1 << 10;

/// The [steps](Glob::steps) that one match may take: some 50 ms. Only members that are longer than
/// the default limit of items can need more.
pub(super) const MAX_STEPS: usize = 64 << 20;

/// The bytes of a segment up to which it is compared with the text at each place.
const SHORT: usize = 16;

/// A pattern that is matched with texts: `*` any bytes, `?` one byte, `[a-c]` and `[^a-c]` one byte
/// of a set or outside of it, and `\` before a byte that has no special meaning. As in Redis, the
/// empty text matches `*` and the empty pattern only, and not `**`.
///
/// The first segment must be at the start of the text and the last one at its end; each of the
/// others is wherever it is found first behind the one before. The search for a long segment is
/// bit-parallel (Baeza-Yates and Gonnet, CACM 35 (10), 1992): a byte of the text takes one step for
/// 64 elements of the segment.
pub(super) struct Glob<'p> {
    pattern: &'p [u8],
    /// What is between the stars; one more than there are stars.
    segments: Vec<Segment<'p>>,
}

/// A part of a pattern without stars.
struct Segment<'p> {
    elements: &'p [u8],
    /// The number of elements, each of which matches one byte.
    len: usize,
    /// For each byte, a bit for each element, which tells whether it matches.
    masks: OnceCell<Vec<u64>>,
}

impl<'p> Glob<'p> {
    pub(super) fn new(pattern: &'p [u8]) -> Self {
        let (mut segments, mut rest) = (Vec::new(), pattern);
        loop {
            let segment = Segment::first_of(rest);
            rest = &rest[segment.elements.len()..];
            segments.push(segment);
            match rest {
                [_, behind @ ..] => rest = behind,
                [] => return Self { pattern, segments },
            }
        }
    }

    /// Whether `text` matches the pattern. Takes [`steps`](Self::steps), and those of the pattern's
    /// length; the first match also computes masks, in 256 steps for each byte of the pattern.
    pub(super) fn matches(&self, text: &[u8]) -> bool {
        if text.is_empty() {
            return matches!(self.pattern, b"" | b"*");
        }
        let (first, middle, last) = match &self.segments[..] {
            [] => return false,
            [only] => return only.len == text.len() && only.is_at_start(text),
            [first, middle @ .., last] => (first, middle, last),
        };
        let Some(end) = text.len().checked_sub(last.len) else {
            return false;
        };
        if end < first.len || !first.is_at_start(text) || !last.is_at_start(&text[end..]) {
            return false;
        }
        let mut text = &text[first.len..end];
        middle.iter().all(|segment| {
            let found = segment.find(text);
            text = &text[found.unwrap_or(0)..];
            found.is_some()
        })
    }

    /// The steps that a search takes at most in a text of this length.
    pub(super) fn steps(&self, len: usize) -> usize {
        let for_each_byte = match &self.segments[..] {
            [_, middle @ .., _] => middle.iter().map(Segment::steps).max(),
            _ => None,
        };
        len.saturating_mul(for_each_byte.unwrap_or(0))
    }
}

impl<'p> Segment<'p> {
    /// The segment before the first star.
    fn first_of(pattern: &'p [u8]) -> Self {
        let (mut end, mut len) = (0, 0);
        while !matches!(pattern[end..], [] | [b'*', ..]) {
            end += one(&pattern[end..], 0).0;
            len += 1;
        }
        Self {
            elements: &pattern[..end],
            len,
            masks: OnceCell::new(),
        }
    }

    /// Whether a text begins with the segment.
    fn is_at_start(&self, text: &[u8]) -> bool {
        let mut elements = self.elements;
        text.len() >= self.len
            && text[..self.len].iter().all(|byte| {
                let (len, is_match) = one(elements, *byte);
                elements = &elements[len..];
                is_match
            })
    }

    /// The end of the first place where the segment is in a text.
    fn find(&self, text: &[u8]) -> Option<usize> {
        if self.len == 0 {
            return Some(0);
        }
        if self.elements.len() <= SHORT {
            let mut places = text.windows(self.len);
            let found = places.position(|place| self.is_at_start(place));
            return found.map(|start| start + self.len);
        }
        let masks = self.masks.get_or_init(|| self.masks());
        let words = self.words();
        let is_whole = 1 << ((self.len - 1) % 64);
        // A bit for each element: it and those before it match the last bytes.
        let mut matched = vec![0_u64; words];
        text.iter()
            .position(|byte| {
                let mut carried = 1;
                let of_byte = &masks[usize::from(*byte) * words..][..words];
                for (matched, mask) in matched.iter_mut().zip(of_byte) {
                    let next = *matched >> 63;
                    *matched = (*matched << 1 | carried) & mask;
                    carried = next;
                }
                matched[words - 1] & is_whole != 0
            })
            .map(|last| last + 1)
    }

    /// The steps for a byte of the text in which it is searched.
    fn steps(&self) -> usize {
        match self.elements.len() {
            ..=SHORT => self.elements.len(),
            _ => self.words(),
        }
    }

    fn words(&self) -> usize {
        self.len.div_ceil(64)
    }

    fn masks(&self) -> Vec<u64> {
        let words = self.words();
        let mut masks = vec![0; 256 * words];
        let mut elements = self.elements;
        for at in 0..self.len {
            let mut len = 1;
            for byte in 0..=u8::MAX {
                let (element, is_match) = one(elements, byte);
                masks[usize::from(byte) * words + at / 64] |= u64::from(is_match) << (at % 64);
                len = element;
            }
            elements = &elements[len..];
        }
        masks
    }
}

/// The length of the element at the start of `pattern`, which has one, and is no `*`; and whether
/// it matches the byte.
fn one(pattern: &[u8], byte: u8) -> (usize, bool) {
    match pattern {
        [] => (0, false),
        [b'?', ..] => (1, true),
        [b'\\', literal, ..] => (2, *literal == byte),
        [b'[', set @ ..] => {
            let (len, is_member) = set_matches(set, byte);
            (len + 1, is_member)
        }
        [literal, ..] => (1, *literal == byte),
    }
}

/// The length of a set behind its `[`, and whether it has the byte. The end of the pattern closes a
/// set, as in Redis.
fn set_matches(set: &[u8], byte: u8) -> (usize, bool) {
    let is_negated = set.first() == Some(&b'^');
    let mut at = usize::from(is_negated);
    let mut found = false;
    loop {
        match &set[at..] {
            [] => return (at, found != is_negated),
            [b']', ..] => return (at + 1, found != is_negated),
            [b'\\', literal, ..] => {
                found |= *literal == byte;
                at += 2;
            }
            [a, b'-', b, ..] => {
                found |= (*a.min(b)..=*a.max(b)).contains(&byte);
                at += 3;
            }
            [literal, ..] => {
                found |= *literal == byte;
                at += 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Glob, MAX_PATTERN, MAX_STEPS, one};
    use proptest::prelude::*;

    fn matches(pattern: &[u8], text: &[u8]) -> bool {
        Glob::new(pattern).matches(text)
    }

    #[test]
    fn patterns_match_as_in_redis() {
        for (pattern, text, expected) in [
            ("", "", true),
            ("", "a", false),
            ("a", "", false),
            ("*", "", true),
            ("**", "", false),
            ("*", "abc", true),
            ("a**", "a", true),
            ("a*c", "abbc", true),
            ("a*c", "abcb", false),
            ("a*b*c", "aXbXbXc", true),
            ("*a", "aaab", false),
            ("h?llo", "hello", true),
            ("h?llo", "hllo", false),
            ("h[ae]llo", "hallo", true),
            ("h[ae]llo", "hillo", false),
            ("h[^e]llo", "hallo", true),
            ("h[^e]llo", "hello", false),
            ("h[a-b]llo", "hbllo", true),
            ("h[b-a]llo", "hbllo", true),
            ("h[a-b]llo", "hcllo", false),
            ("\\*", "*", true),
            ("\\*", "a", false),
            ("[\\]]", "]", true),
            ("a[", "a", false),
            ("[a", "a", true),
            ("**", "x", true),
            ("a?", "a", false),
            ("a\\", "a\\", true),
        ] {
            let seen = matches(pattern.as_bytes(), text.as_bytes());
            assert_eq!(seen, expected, "{pattern:?} {text:?}");
        }
    }

    /// What the pattern means, in exponential time.
    fn is_match(pattern: &[u8], text: &[u8]) -> bool {
        match (pattern, text) {
            ([], _) => text.is_empty(),
            ([b'*', rest @ ..], _) => (0..=text.len()).any(|from| is_match(rest, &text[from..])),
            (_, []) => false,
            (_, [byte, behind @ ..]) => {
                let (len, is_one) = one(pattern, *byte);
                is_one && is_match(&pattern[len..], behind)
            }
        }
    }

    /// Short and long segments of bytes that often match.
    fn pattern() -> impl Strategy<Value = Vec<u8>> {
        let element = || prop::sample::select(&["a", "a", "b", "?", "[ab]", "[^b]", "\\a", "\\*"]);
        let segment = prop_oneof![
            3 => prop::collection::vec(element(), 0..4),
            1 => prop::collection::vec(element(), 17..20),
            1 => prop::collection::vec(Just("a"), 60..70),
            1 => prop::collection::vec(prop::sample::select(&["?", "a"]), 127..131),
        ];
        prop::collection::vec(segment.prop_map(|elements| elements.concat()), 1..4)
            .prop_map(|segments| segments.join("*").into_bytes())
    }

    fn text() -> impl Strategy<Value = Vec<u8>> {
        let run = prop_oneof![
            4 => (Just(b'a'), 0..80_usize),
            1 => (Just(b'a'), 120..140_usize),
            4 => (Just(b'b'), 0..3_usize),
        ];
        let runs = prop::collection::vec(run, 1..4);
        runs.prop_map(|runs| {
            let runs = runs.into_iter().map(|(byte, len)| vec![byte; len]);
            runs.collect::<Vec<_>>().concat()
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 4 } else { 256 }))]

        #[test]
        fn segments_are_found_wherever_they_are(pattern in pattern(), text in text()) {
            prop_assume!(!text.is_empty());
            prop_assert_eq!(matches(&pattern, &text), is_match(&pattern, &text));
        }
    }

    #[test]
    fn many_stars_take_no_exponential_time() {
        let pattern = b"*a".repeat(50);
        assert!(!matches(&pattern, &[b'b'; 10_000]));
        assert!(!matches(&[&pattern[..], b"c"].concat(), &[b'a'; 10_000]));
    }

    /// The longest pattern takes few steps for each byte of a text.
    #[test]
    fn steps_are_bounded() {
        let longest = [&b"*"[..], &vec![b'a'; MAX_PATTERN - 3], b"b*"].concat();
        let short = b"*aaaaaaaaaaaaaaab".repeat(60);
        for pattern in [&longest, &short] {
            assert!(pattern.len() <= MAX_PATTERN);
            let glob = Glob::new(pattern);
            assert_eq!(glob.steps(1 << 20), 16 << 20, "{}", pattern.len());
            assert!(glob.steps(1 << 20) < MAX_STEPS);
            assert!(!glob.matches(&[b'a'; 10_000]));
        }
        assert_eq!(Glob::new(b"a*b").steps(usize::MAX), 0);
    }
}
