//! `LCS`: the longest common subsequence of two values.

use super::{Context, first, text};
use corewise_engine::Engine;
use corewise_ops::{Get, Outcome, Verb};
use corewise_wire::resp::{Args, parse_integer};

/// The most pairs of bytes that are compared. A call holds up the connections of its loop for about
/// a millisecond then, and takes a bit of memory for each pair.
const MAX_PAIRS: usize = 16 << 20;

/// The time that values of these lengths take, or longer ones, in bytes that could be copied
/// meanwhile.
pub(super) fn cost(a: usize, b: usize) -> usize {
    let words = a.saturating_mul(b.div_ceil(64)).min(MAX_PAIRS / 64 + a);
    words.saturating_mul(4)
}

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
    let (Some(a), Some(b)) = (value(cx, first_key), value(cx, second_key)) else {
        return cx.error("ERR The specified keys must contain string values");
    };
    let options = match Options::parse(args) {
        Ok(options) => options,
        Err(text) => return cx.error(text),
    };
    if (a.len() + 1).saturating_mul(b.len() + 1) > MAX_PAIRS {
        return cx.error("ERR Insufficient memory, LCS compares up to 16777216 pairs of bytes");
    }
    let table = LengthTable::new(&a, &b);
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

/// The string of a key, which may be absent; `None` if the item is no string.
fn value<E: Engine>(cx: &mut Context<'_, E>, key: &[u8]) -> Option<Vec<u8>> {
    let mut value = Some(Vec::new());
    cx.operate(cx.tally, key, Verb::Get(Get::default()), |outcome| {
        value = match outcome {
            Outcome::Found(view) => Some(view.value.to_vec()),
            Outcome::WrongKind => None,
            _ => Some(Vec::new()),
        };
    });
    value
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

/// The lengths of the subsequences of all pairs of prefixes, as the steps between them.
///
/// A row belongs to a prefix of the first value. It has a bit for each byte of the second value:
/// whether the subsequence is longer with this byte than without it. The next row follows from it
/// with a few instructions for 64 bytes (\[LCS01\]).
struct LengthTable {
    /// The rows for the prefixes of the first value, from that of one byte on.
    steps: Vec<u64>,
    columns: usize,
    length: u32,
}

/// Where the bytes of `a` are in `b`: for each byte, where its row of bits begins in the vector.
fn places(a: &[u8], b: &[u8]) -> ([usize; 256], Vec<u64>) {
    let (mut rows, mut starts) = (Vec::new(), [usize::MAX; 256]);
    for byte in a {
        let start = &mut starts[usize::from(*byte)];
        if *start == usize::MAX {
            *start = rows.len();
            rows.resize(rows.len() + b.len().div_ceil(64), 0);
        }
    }
    for (j, byte) in b.iter().enumerate() {
        let start = starts[usize::from(*byte)];
        if start != usize::MAX {
            rows[start + j / 64] |= 1 << (j % 64);
        }
    }
    (starts, rows)
}

impl LengthTable {
    /// Takes time in proportion to the first length and to the second in units of 64 bytes, and a
    /// bit of memory a pair.
    fn new(a: &[u8], b: &[u8]) -> Self {
        let (starts, places) = places(a, b);
        let mut steps = vec![0; (a.len() * b.len()).div_ceil(64) + 1];
        // The paper's row, in which a step is a zero.
        let mut row = vec![u64::MAX; b.len().div_ceil(64)];
        for (i, byte) in a.iter().enumerate() {
            let place = &places[starts[usize::from(*byte)]..];
            let mut carry = false;
            for (index, (word, place)) in row.iter_mut().zip(place).enumerate() {
                let (sum, overflows) = word.overflowing_add(*word & place);
                let (sum, carries) = sum.overflowing_add(u64::from(carry));
                carry = overflows | carries;
                *word = sum | *word & !place;
                let at = i * b.len() + index * 64;
                steps[at / 64] |= !*word << (at % 64);
                steps[at / 64 + 1] |= (!*word >> 1) >> (63 - at % 64);
            }
        }
        Self {
            steps,
            columns: b.len(),
            length: row.iter().map(|word| word.count_zeros()).sum(),
        }
    }

    /// Whether to shorten the first of two prefixes that do not end in the same byte: the last byte
    /// of the second one makes the subsequence longer.
    fn shortens_first(&self, i: usize, j: usize) -> bool {
        let at = (i - 1) * self.columns + j - 1;
        self.steps[at / 64] >> (at % 64) & 1 == 1
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
    use super::LengthTable;
    use proptest::prelude::*;

    /// The length by the definition.
    fn length(a: &[u8], b: &[u8]) -> usize {
        match (a, b) {
            ([], _) | (_, []) => 0,
            ([x, a @ ..], [y, b @ ..]) if x == y => 1 + length(a, b),
            ([_, rest @ ..], _) => length(rest, b).max(length(a, &b[1..])),
        }
    }

    /// The matches by the table of all lengths.
    fn matches_by_lengths(a: &[u8], b: &[u8]) -> (usize, Vec<(usize, usize)>) {
        let mut lengths = vec![vec![0; b.len() + 1]; a.len() + 1];
        for i in 1..=a.len() {
            for j in 1..=b.len() {
                lengths[i][j] = if a[i - 1] == b[j - 1] {
                    lengths[i - 1][j - 1] + 1
                } else {
                    lengths[i - 1][j].max(lengths[i][j - 1])
                };
            }
        }
        let (mut i, mut j, mut pairs) = (a.len(), b.len(), Vec::new());
        while i > 0 && j > 0 {
            if a[i - 1] == b[j - 1] {
                (i, j) = (i - 1, j - 1);
                pairs.push((i, j));
            } else if lengths[i - 1][j] > lengths[i][j - 1] {
                i -= 1;
            } else {
                j -= 1;
            }
        }
        (lengths[a.len()][b.len()], pairs)
    }

    proptest! {
        #[test]
        fn long_values_have_the_matches_of_the_table_of_lengths(
            a in proptest::collection::vec(0u8..4, 0..200),
            b in proptest::collection::vec(0u8..4, 0..200),
        ) {
            let table = LengthTable::new(&a, &b);
            let (length, pairs) = matches_by_lengths(&a, &b);
            prop_assert_eq!(table.length as usize, length);
            let matches = table.matches(&a, &b);
            let found = matches.iter().flat_map(|found| {
                (0..found.len).rev().map(|at| (found.a + at, found.b + at))
            });
            prop_assert_eq!(found.collect::<Vec<_>>(), pairs);
        }

        #[test]
        fn matches_make_up_the_longest_subsequence(
            a in proptest::collection::vec(0u8..3, 0..9),
            b in proptest::collection::vec(0u8..3, 0..9),
        ) {
            let table = LengthTable::new(&a, &b);
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
