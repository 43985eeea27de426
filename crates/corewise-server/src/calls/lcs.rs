//! `LCS`: the longest common subsequence of two values.

use super::{Context, first, text};
use corewise_cache::Engine;
use corewise_ops::{Get, Outcome, Verb};
use corewise_wire::resp::{Args, parse_integer};

/// The most pairs of bytes that are compared. A call holds up the connections of its loop for some
/// ten milliseconds then, and takes a bit of memory for each pair.
const MAX_PAIRS: usize = 16 << 20;

/// A common substring that belongs to the subsequence: where it begins in each value.
struct Match {
    a: usize,
    b: usize,
    len: usize,
}

/// The options of the command.
#[derive(Default)]
struct Options {
    prints_length: bool,
    prints_matches: bool,
    prints_match_lengths: bool,
    least: i64,
}

impl Options {
    /// Reads options; returns the error text if they are wrong.
    fn parse(mut args: Args<'_>) -> Result<Self, &'static str> {
        let mut options = Self::default();
        while let Some(option) = args.next() {
            match option.to_ascii_lowercase().as_slice() {
                b"idx" => options.prints_matches = true,
                b"len" => options.prints_length = true,
                b"withmatchlen" => options.prints_match_lengths = true,
                b"minmatchlen" => {
                    let least = args.next().ok_or(text::SYNTAX)?;
                    options.least = parse_integer(least).ok_or(text::NOT_AN_INTEGER)?;
                }
                _ => return Err(text::SYNTAX),
            }
        }
        if options.prints_length && options.prints_matches {
            return Err("ERR If you want both the length and indexes, please just use IDX.");
        }
        Ok(options)
    }
}

/// `LCS key1 key2 [LEN] [IDX] [MINMATCHLEN length] [WITHMATCHLEN]`.
pub(super) fn lcs<E: Engine>(cx: &mut Context<'_, E>, mut args: Args<'_>) {
    let [first_key, second_key] = first(&mut args);
    // As in Redis, the look-ups count even if an option is wrong.
    let (a, b) = (value(cx, first_key), value(cx, second_key));
    let options = match Options::parse(args) {
        Ok(options) => options,
        Err(text) => return cx.error(text),
    };
    if (a.len() + 1).saturating_mul(b.len() + 1) > MAX_PAIRS {
        return cx.error("ERR Insufficient memory, LCS compares up to 16777216 pairs of bytes");
    }
    let table = Table::new(&a, &b);
    if options.prints_length {
        return cx.reply().integer(i64::from(table.length));
    }
    let matches = table.matches(&a, &b);
    if !options.prints_matches {
        let parts = matches.iter().rev().map(|found| &a[found.a..][..found.len]);
        return cx.reply().bulk(&parts.collect::<Vec<_>>().concat());
    }
    print_matches(cx, &matches, &options, table.length);
}

fn value<E: Engine>(cx: &mut Context<'_, E>, key: &[u8]) -> Vec<u8> {
    let mut value = None;
    cx.operate(key, Verb::Get(Get::default()), |outcome| {
        if let Outcome::Found(view) = outcome {
            value = Some(view.value.to_vec());
        }
    });
    cx.counters.count_lookup(value.is_some());
    value.unwrap_or_default()
}

fn print_matches<E: Engine>(
    cx: &mut Context<'_, E>,
    matches: &[Match],
    options: &Options,
    length: u32,
) {
    let is_wanted = |found: &&Match| found.len as i64 >= options.least;
    let mut reply = cx.reply();
    reply.map(2);
    reply.bulk(b"matches");
    reply.array(matches.iter().filter(is_wanted).count());
    for found in matches.iter().filter(is_wanted) {
        reply.array(if options.prints_match_lengths { 3 } else { 2 });
        for start in [found.a, found.b] {
            reply.array(2);
            reply.integer(start as i64);
            reply.integer((start + found.len - 1) as i64);
        }
        if options.prints_match_lengths {
            reply.integer(found.len as i64);
        }
    }
    reply.bulk(b"len");
    reply.integer(i64::from(length));
}

/// For each pair of prefixes, which of them to shorten to find their subsequence.
struct Table {
    /// A bit a pair: whether the first value is shortened.
    shortens_first: Vec<u64>,
    columns: usize,
    length: u32,
}

impl Table {
    /// Takes time in proportion to the product of the lengths, and a bit of memory a pair.
    fn new(a: &[u8], b: &[u8]) -> Self {
        let columns = b.len() + 1;
        let mut shortens_first = vec![0; ((a.len() + 1) * columns).div_ceil(64)];
        // The lengths for the prefix of `a` before, and for the present one.
        let (mut above, mut row) = (vec![0_u32; columns], vec![0_u32; columns]);
        for (i, byte) in a.iter().enumerate() {
            for (j, other) in b.iter().enumerate() {
                row[j + 1] = if byte == other {
                    above[j] + 1
                } else if above[j + 1] > row[j] {
                    let at = (i + 1) * columns + j + 1;
                    shortens_first[at / 64] |= 1 << (at % 64);
                    above[j + 1]
                } else {
                    row[j]
                };
            }
            std::mem::swap(&mut above, &mut row);
        }
        Self {
            shortens_first,
            columns,
            length: above[b.len()],
        }
    }

    fn shortens_first(&self, i: usize, j: usize) -> bool {
        let at = i * self.columns + j;
        self.shortens_first[at / 64] >> (at % 64) & 1 == 1
    }

    /// The matches, from the last to the first. As in Redis, a match ends where one of the values
    /// begins, even if the next pair of bytes would extend it.
    fn matches(&self, a: &[u8], b: &[u8]) -> Vec<Match> {
        let (mut i, mut j) = (a.len(), b.len());
        let mut matches: Vec<Match> = Vec::new();
        let mut is_open = false;
        while i > 0 && j > 0 {
            if a[i - 1] == b[j - 1] {
                (i, j) = (i - 1, j - 1);
                match matches.last_mut() {
                    Some(last) if is_open => (last.a, last.b, last.len) = (i, j, last.len + 1),
                    _ => matches.push(Match { a: i, b: j, len: 1 }),
                }
                is_open = true;
            } else {
                is_open = false;
                if self.shortens_first(i, j) {
                    i -= 1;
                } else {
                    j -= 1;
                }
            }
        }
        matches
    }
}

#[cfg(test)]
mod tests {
    use super::Table;
    use proptest::prelude::*;

    /// The length by the definition.
    fn length(a: &[u8], b: &[u8]) -> usize {
        match (a, b) {
            ([], _) | (_, []) => 0,
            ([x, a @ ..], [y, b @ ..]) if x == y => 1 + length(a, b),
            ([_, rest @ ..], _) => length(rest, b).max(length(a, &b[1..])),
        }
    }

    proptest! {
        #[test]
        fn matches_make_up_the_longest_subsequence(
            a in proptest::collection::vec(0u8..3, 0..9),
            b in proptest::collection::vec(0u8..3, 0..9),
        ) {
            let table = Table::new(&a, &b);
            prop_assert_eq!(table.length as usize, length(&a, &b));
            let matches = table.matches(&a, &b);
            prop_assert_eq!(matches.iter().map(|m| m.len).sum::<usize>(), length(&a, &b));
            let (mut end_a, mut end_b) = (a.len(), b.len());
            for found in matches {
                prop_assert_eq!(&a[found.a..][..found.len], &b[found.b..][..found.len]);
                prop_assert!(found.a + found.len <= end_a && found.b + found.len <= end_b);
                (end_a, end_b) = (found.a, found.b);
            }
        }
    }
}
