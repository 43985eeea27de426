//! Commands on all keys, and on what the server knows of an item beside its value.

use super::{Context, first, glob, text};
use corewise_cache::{Cursor, Engine, ScanStep};
use corewise_ops::ItemView;
use corewise_wire::resp::{Args, Encoder, parse_integer};
use std::hash::{BuildHasher, Hasher, RandomState};

/// Items and buckets that one step of `KEYS` visits.
const STEP: usize = 10_000;
/// How often `KEYS` starts again if tables are resized meanwhile.
const ATTEMPTS: usize = 3;
/// `RANDOMKEY` visits all keys if there are so few.
const FEW_KEYS: u64 = 64;
/// Items and buckets that one step of `RANDOMKEY` visits otherwise.
const SMALL_STEP: usize = 64;
/// The longest value that Redis stores beside its key.
const LONGEST_EMBEDDED: usize = 44;

/// Redis's answer under all eviction policies that do not count accesses.
const NO_FREQUENCY: &str = "ERR An LFU maxmemory policy is not selected, access frequency not tracked. Please note that \
     when switching between policies at runtime LRU and LFU data will take some time to adjust.";

/// Why the keys were not listed.
enum Failure {
    TooLong,
    Resized,
}

/// `KEYS pattern`. Visits all items, which holds up the connections of its loop, as in Redis.
pub(super) fn keys<E: Engine>(cx: &mut Context<'_, E>, mut args: Args<'_>) {
    let [pattern] = first(&mut args);
    if pattern.len() > glob::MAX_PATTERN {
        return cx.error(text::LONG_PATTERN);
    }
    let start = cx.out.len();
    let mut printed = Err(Failure::Resized);
    for _ in 0..ATTEMPTS {
        printed = print_matching(cx, pattern);
        if !matches!(printed, Err(Failure::Resized)) {
            break;
        }
        cx.out.truncate(start);
    }
    let failure = match printed {
        Ok(count) => {
            let mut head = Vec::new();
            Encoder::new(cx.codec.version(), &mut head).array(count);
            cx.out.splice(start..start, head);
            return;
        }
        Err(Failure::TooLong) => "ERR the keys take too much memory for one reply, use SCAN",
        Err(Failure::Resized) => {
            "ERR the table was resized too often during the command, try again"
        }
    };
    cx.out.truncate(start);
    cx.error(failure);
}

/// Prints the keys that match a pattern, each of them once, and returns their number.
fn print_matching<E: Engine>(cx: &mut Context<'_, E>, pattern: &[u8]) -> Result<usize, Failure> {
    let (start, most) = (cx.out.len(), cx.most_replies());
    let (version, mut cursor) = (cx.codec.version(), Cursor::START);
    let mut list = Vec::new();
    loop {
        let mut is_too_long = false;
        let step = cx.engine.scan(cursor, STEP, cx.now, &mut |item| {
            let before = cx.out.len();
            is_too_long |= before - start + list.len() * size_of::<Printed>() > most;
            if !is_too_long && glob::matches(pattern, item.key) {
                Encoder::new(version, cx.out).bulk(item.key);
                list.push([before, cx.out.len()].map(|at| (at - start) as u32));
            }
        });
        match step {
            _ if is_too_long => return Err(Failure::TooLong),
            ScanStep::More(next) => cursor = next,
            ScanStep::Lost => return Err(Failure::Resized),
            ScanStep::Done => return Ok(print_once(cx.out, start, list)),
        }
    }
}

/// Where a key was printed: from and to, behind the start of the list.
type Printed = [u32; 2];

/// Removes the keys that were printed before, which some engines show again if their tables were
/// resized, from the `list` of keys behind `start`. Returns the number of those that are left.
fn print_once(out: &mut Vec<u8>, start: usize, mut list: Vec<Printed>) -> usize {
    let printed = list.len();
    let keys = &out[start..];
    let text = |[from, to]: Printed| &keys[from as usize..to as usize];
    list.sort_unstable_by_key(|key| text(*key));
    list.dedup_by_key(|key| text(*key));
    if list.len() < printed {
        let once: Vec<&[u8]> = list.iter().map(|key| text(*key)).collect();
        let once = once.concat();
        out.truncate(start);
        out.extend_from_slice(&once);
    }
    list.len()
}

/// `RANDOMKEY`. All keys are equally likely if they are few; otherwise one that many empty buckets
/// lie before is more likely than others.
pub(super) fn randomkey<E: Engine>(cx: &mut Context<'_, E>, _: Args<'_>) {
    let is_few = cx.engine.stats().items <= FEW_KEYS;
    let start = if is_few {
        Cursor::START
    } else {
        cx.engine.position(random() as u32)
    };
    let mut chosen = walk(cx, start, is_few);
    if chosen.is_none() {
        chosen = walk(cx, Cursor::START, is_few);
    }
    match chosen {
        Some(key) => cx.reply().bulk(&key),
        None => cx.reply().null(),
    }
}

/// One of the keys that are visited from `cursor` on: up to the end, or else up to the end of the
/// first step that visits any.
fn walk<E: Engine>(cx: &Context<'_, E>, mut cursor: Cursor, to_the_end: bool) -> Option<Vec<u8>> {
    let (mut chosen, mut visited) = (None, 0);
    let looks = if to_the_end { STEP } else { SMALL_STEP };
    loop {
        let step = cx.engine.scan(cursor, looks, cx.now, &mut |item| {
            visited += 1;
            if random().is_multiple_of(visited) {
                chosen = Some(item.key.to_vec());
            }
        });
        match step {
            ScanStep::More(next) if to_the_end || chosen.is_none() => cursor = next,
            ScanStep::More(_) | ScanStep::Done | ScanStep::Lost => return chosen,
        }
    }
}

/// A random number: std chooses random keys for its hashers.
fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}

/// Prints what `tell` says of the item of a key, null if there is none. Returns whether there is
/// one.
fn describe<E: Engine>(
    cx: &mut Context<'_, E>,
    key: &[u8],
    tell: impl Fn(&ItemView<'_>) -> Description,
) -> bool {
    let mut description = None;
    cx.peek(key, |item| description = item.map(&tell));
    let exists = description.is_some();
    match description {
        None => cx.reply().null(),
        Some(Description::Number(number)) => cx.reply().integer(number),
        Some(Description::Word(word)) => cx.reply().bulk(word.as_bytes()),
        Some(Description::Error(text)) => cx.error(text),
    }
    exists
}

/// What is told of an item.
enum Description {
    Number(i64),
    Word(&'static str),
    Error(&'static str),
}

/// The encoding that Redis would give a value that it has not changed.
fn encoding(value: &[u8]) -> &'static str {
    if parse_integer(value).is_some() {
        "int"
    } else if value.len() <= LONGEST_EMBEDDED {
        "embstr"
    } else {
        "raw"
    }
}

/// `OBJECT ENCODING | FREQ | IDLETIME | REFCOUNT key`.
pub(super) fn object<E: Engine>(cx: &mut Context<'_, E>, mut args: Args<'_>) {
    let [subcommand] = first(&mut args);
    let [key] = first(&mut args);
    let exists = match subcommand.to_ascii_lowercase().as_slice() {
        b"encoding" => describe(cx, key, |item| Description::Word(encoding(item.value))),
        b"idletime" => describe(cx, key, |item| Description::Number(i64::from(item.idle_s))),
        b"refcount" => describe(cx, key, |_| Description::Number(1)),
        b"freq" => describe(cx, key, |_| Description::Error(NO_FREQUENCY)),
        _ => return cx.help("OBJECT", "ENCODING, FREQ, IDLETIME, REFCOUNT"),
    };
    cx.counters.count_lookup(exists);
}

/// `MEMORY USAGE key [SAMPLES count]`: the bytes that the item takes.
pub(super) fn memory<E: Engine>(cx: &mut Context<'_, E>, mut args: Args<'_>) {
    let [subcommand] = first(&mut args);
    match subcommand.to_ascii_lowercase().as_slice() {
        b"usage" => memory_usage(cx, args),
        _ => cx.help("MEMORY", "USAGE"),
    }
}

fn memory_usage<E: Engine>(cx: &mut Context<'_, E>, mut args: Args<'_>) {
    let [key] = first(&mut args);
    while let Some(option) = args.next() {
        let samples = args
            .next()
            .filter(|_| option.eq_ignore_ascii_case(b"samples"));
        match samples.map(parse_integer) {
            Some(Some(0..)) => {} // a string is never sampled
            Some(None) => return cx.error(text::NOT_AN_INTEGER),
            Some(Some(_)) | None => return cx.error(text::SYNTAX),
        }
    }
    describe(cx, key, |item| Description::Number(item.footprint as i64));
}

#[cfg(test)]
mod tests {
    use super::print_once;

    #[test]
    fn a_key_that_was_shown_twice_is_listed_once() {
        let mut out = b"before$1\r\nb\r\n$1\r\na\r\n$1\r\nb\r\n".to_vec();
        let list = vec![[0, 7], [7, 14], [14, 21]];
        assert_eq!(print_once(&mut out, 6, list), 2);
        assert_eq!(out, b"before$1\r\na\r\n$1\r\nb\r\n");
    }

    #[test]
    fn keys_that_were_shown_once_stay_in_place() {
        let mut out = b"$1\r\nb\r\n$1\r\na\r\n".to_vec();
        assert_eq!(print_once(&mut out, 0, vec![[0, 7], [7, 14]]), 2);
        assert_eq!(out, b"$1\r\nb\r\n$1\r\na\r\n");
    }
}
