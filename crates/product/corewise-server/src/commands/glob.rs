//! Patterns of `COMMAND LIST`, `CONFIG GET`, `KEYS` and `SCAN MATCH`.

/// The longest pattern that these commands accept, in bytes: a long one takes much time for each
/// long key, and other clients of the thread wait.
pub(super) const MAX_PATTERN: usize = 1 << 10;

/// Whether `text` matches the pattern: `*` any bytes, `?` one byte, `[a-c]` and `[^a-c]` one byte
/// of a set or outside of it, and `\` before a byte that has no special meaning. As in Redis, the
/// empty text matches `*` and the empty pattern only, and not `**`.
///
/// Takes time in proportion to the product of the lengths, and no memory.
pub(super) fn matches(pattern: &[u8], text: &[u8]) -> bool {
    if text.is_empty() {
        return matches!(pattern, b"" | b"*");
    }
    let (mut p, mut t) = (0, 0);
    // Where the last `*` is, and the text that it has not been tried to match.
    let mut star: Option<(usize, usize)> = None;
    loop {
        if pattern.get(p) == Some(&b'*') {
            p += 1;
            star = Some((p, t));
            continue;
        }
        if t == text.len() && p == pattern.len() {
            return true;
        }
        if let Some((len, true)) = one(&pattern[p..], text.get(t)) {
            p += len;
            t += 1;
            continue;
        }
        match star {
            Some((after, from)) if from < text.len() => {
                star = Some((after, from + 1));
                (p, t) = (after, from + 1);
            }
            _ => return false,
        }
    }
}

/// The length of the element at the start of `pattern`, which is no `*`, and whether it matches the
/// byte; `None` if there is no element.
fn one(pattern: &[u8], byte: Option<&u8>) -> Option<(usize, bool)> {
    let byte = *byte?;
    match pattern {
        [] => None,
        [b'?', ..] => Some((1, true)),
        [b'\\', literal, ..] => Some((2, *literal == byte)),
        [b'[', set @ ..] => {
            let (len, is_member) = set_matches(set, byte);
            Some((len + 1, is_member))
        }
        [literal, ..] => Some((1, *literal == byte)),
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
    use super::matches;

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

    #[test]
    fn many_stars_take_no_exponential_time() {
        let pattern = b"*a".repeat(50);
        assert!(!matches(&pattern, &[b'b'; 10_000]));
        assert!(!matches(&[&pattern[..], b"c"].concat(), &[b'a'; 10_000]));
    }
}
