//! Commands on all keys, and on what the server knows of an item beside its value.

use super::{Context, first, glob, text};
use corewise_cache::{Cursor, Engine, ScanStep};
use corewise_ops::ItemView;
use corewise_wire::resp::{Args, parse_integer};
use std::hash::{BuildHasher, Hasher, RandomState};

/// Items and buckets that one step of `KEYS` visits.
const STEP: usize = 10_000;
/// Bytes of the keys that one `KEYS` may print.
const MAX_KEYS_BYTES: usize = 64 << 20;
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
    TooMany,
    Resized,
}

/// `KEYS pattern`. Visits all items, which holds up the connections of its loop, as in Redis.
pub(super) fn keys<E: Engine>(cx: &mut Context<'_, E>, mut args: Args<'_>) {
    let [pattern] = first(&mut args);
    match matching(cx, pattern) {
        Ok(keys) => {
            let mut reply = cx.reply();
            reply.array(keys.len());
            keys.iter().for_each(|key| reply.bulk(key));
        }
        Err(Failure::TooMany) => cx.error("ERR the keys would take over 64 MiB, use SCAN"),
        Err(Failure::Resized) => {
            cx.error("ERR the table was resized too often during the command, try again");
        }
    }
}

/// The keys that match a pattern, each of them once.
fn matching<E: Engine>(cx: &Context<'_, E>, pattern: &[u8]) -> Result<Vec<Vec<u8>>, Failure> {
    for _ in 0..ATTEMPTS {
        let (mut keys, mut bytes, mut cursor) = (Vec::new(), 0, Cursor::START);
        loop {
            let step = cx.engine.scan(cursor, STEP, cx.now, &mut |item| {
                if bytes <= MAX_KEYS_BYTES && glob::matches(pattern, item.key) {
                    keys.push(item.key.to_vec());
                    bytes += item.key.len() + size_of::<Vec<u8>>();
                }
            });
            if bytes > MAX_KEYS_BYTES {
                return Err(Failure::TooMany);
            }
            match step {
                ScanStep::More(next) => cursor = next,
                ScanStep::Lost => break,
                ScanStep::Done => {
                    // Some engines show an item again if its table was resized.
                    keys.sort_unstable();
                    keys.dedup();
                    return Ok(keys);
                }
            }
        }
    }
    Err(Failure::Resized)
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

/// Prints what `tell` says of the item of a key, null if there is none.
fn describe<E: Engine>(
    cx: &mut Context<'_, E>,
    key: &[u8],
    tell: impl Fn(&ItemView<'_>) -> Description,
) {
    let mut description = None;
    cx.peek(key, |item| description = item.map(&tell));
    match description {
        None => cx.reply().null(),
        Some(Description::Number(number)) => cx.reply().integer(number),
        Some(Description::Word(word)) => cx.reply().bulk(word.as_bytes()),
        Some(Description::Error(text)) => cx.error(text),
    }
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
    let mut key = args;
    let [key] = first(&mut key);
    match (subcommand.to_ascii_lowercase().as_slice(), args.len()) {
        (b"encoding", 1) => describe(cx, key, |item| Description::Word(encoding(item.value))),
        (b"encoding", _) => cx.wrong_arguments("object|encoding"),
        (b"idletime", 1) => {
            describe(cx, key, |item| Description::Number(i64::from(item.idle_s)));
        }
        (b"idletime", _) => cx.wrong_arguments("object|idletime"),
        (b"refcount", 1) => describe(cx, key, |_| Description::Number(1)),
        (b"refcount", _) => cx.wrong_arguments("object|refcount"),
        (b"freq", 1) => describe(cx, key, |_| Description::Error(NO_FREQUENCY)),
        (b"freq", _) => cx.wrong_arguments("object|freq"),
        (b"help", 0) => cx.help("OBJECT", "ENCODING, FREQ, IDLETIME, REFCOUNT"),
        (b"help", _) => cx.wrong_arguments("object|help"),
        _ => cx.unknown_subcommand("OBJECT", subcommand),
    }
}

/// `MEMORY USAGE key [SAMPLES count]`: the bytes that the item takes.
pub(super) fn memory<E: Engine>(cx: &mut Context<'_, E>, mut args: Args<'_>) {
    let [subcommand] = first(&mut args);
    match (subcommand.to_ascii_lowercase().as_slice(), args.len()) {
        (b"usage", 1..) => memory_usage(cx, args),
        (b"usage", _) => cx.wrong_arguments("memory|usage"),
        (b"help", 0) => cx.help("MEMORY", "USAGE"),
        (b"help", _) => cx.wrong_arguments("memory|help"),
        _ => cx.unknown_subcommand("MEMORY", subcommand),
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
