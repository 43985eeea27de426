//! Commands on all keys, and on what the server knows of an item beside its value.

use super::glob::{self, Glob};
use super::{Context, Progress, first, text};
use corewise_engine::{Cursor, Engine, ScanStep};
use corewise_ops::sorted::{Bounds, SortedOp, SortedRead, SortedResult};
use corewise_ops::{Delete, ItemKind, ItemView, Outcome, Verb, database};
use corewise_wire::Tally;
use corewise_wire::resp::{Args, Encoder, Version, parse_integer};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::{BuildHasher, Hasher, RandomState};

/// Items and buckets that one step of a walk over all keys visits.
const STEP: usize = 64;
/// How often a walk over all keys starts again if tables are resized meanwhile.
const ATTEMPTS: usize = 3;
/// `RANDOMKEY` visits all keys if there are so few.
const FEW_KEYS: u64 = 64;
/// The longest value that Redis stores beside its key.
const LONGEST_EMBEDDED: usize = 44;

const RESIZED: &str = "ERR the table was resized too often during the command, try again";

/// Redis's answer under all eviction policies that do not count accesses.
const NO_FREQUENCY: &str = "ERR An LFU maxmemory policy is not selected, access frequency not tracked. Please note that \
     when switching between policies at runtime LRU and LFU data will take some time to adjust.";

/// The keys that `KEYS` has found so far. Some engines show a key again if their tables were
/// resized; it is listed once.
pub(super) struct Listing {
    cursor: Cursor,
    /// How often the listing was begun.
    attempts: usize,
    /// The keys as they are printed.
    text: Vec<u8>,
    count: usize,
    /// Where each key is in the text, from and to, by its hash.
    places: HashMap<u64, KeySpan>,
    hasher: RandomState,
}

type KeySpan = [u32; 2];

/// Why the keys are not listed.
enum Failure {
    TooLong,
    Resized,
}

impl Listing {
    fn new() -> Self {
        Self {
            cursor: Cursor::START,
            attempts: 0,
            text: Vec::new(),
            count: 0,
            places: HashMap::new(),
            hasher: RandomState::new(),
        }
    }

    /// Bytes that it takes.
    pub(super) fn held(&self) -> usize {
        self.text.capacity() + self.places.capacity() * size_of::<(u64, KeySpan)>()
    }

    /// Bytes of the keys, and of their places about.
    fn len(&self) -> usize {
        self.text.len() + self.count * size_of::<KeySpan>()
    }

    fn add(&mut self, key: &[u8]) {
        let start = self.text.len();
        // A bulk string has the same form in all versions.
        Encoder::new(Version::Resp2, &mut self.text).bulk(key);
        let hash = self.hasher.hash_one(key);
        self.count += 1;
        match self.places.entry(hash) {
            Entry::Vacant(place) => _ = place.insert([start, self.text.len()].map(|at| at as u32)),
            Entry::Occupied(place) => {
                let [from, to] = place.get().map(|at| at as usize);
                // Of different keys with the same hash, all are listed.
                if self.text[from..to] == self.text[start..] {
                    self.text.truncate(start);
                    self.count -= 1;
                }
            }
        }
    }

    /// Visits the next items. Returns whether all have been visited.
    fn advance<E: Engine>(
        &mut self,
        cx: &Context<'_, E>,
        glob: &Glob<'_>,
    ) -> Result<bool, Failure> {
        let (most, selected) = (cx.most_replies(), cx.codec.database());
        let step = cx
            .engine
            .scan(self.cursor, STEP, cx.parse.now, &mut |item| {
                let (database, key) = database::split(item.key);
                if database == selected && self.len() <= most && glob.matches(key) {
                    self.add(key);
                }
            });
        // Unfinished listings count as buffers.
        let is_over_limit = cx.shared.buffer_bytes() > cx.shared.buffer_limit;
        match step {
            _ if self.len() > most || is_over_limit => Err(Failure::TooLong),
            ScanStep::Done => Ok(true),
            ScanStep::More(next) => {
                self.cursor = next;
                Ok(false)
            }
            ScanStep::Lost if self.attempts < ATTEMPTS => {
                *self = Self {
                    attempts: self.attempts + 1,
                    ..Self::new()
                };
                Ok(false)
            }
            ScanStep::Lost => Err(Failure::Resized),
        }
    }
}

/// `KEYS pattern`. Visits all items, in steps.
pub(super) fn keys<E: Engine>(cx: &mut Context<'_, E>, mut args: Args<'_>) {
    let [pattern] = first(&mut args);
    if pattern.len() > glob::MAX_PATTERN {
        return cx.error(text::LONG_PATTERN);
    }
    let mut listing = match cx.take_progress() {
        Some(Progress::Listing(listing)) => listing,
        _ => Listing::new(),
    };
    let glob = Glob::new(pattern);
    loop {
        match listing.advance(cx, &glob) {
            Ok(false) if cx.must_pause() => return cx.pause(Progress::Listing(listing)),
            Ok(false) => {}
            Ok(true) => break,
            Err(Failure::TooLong) => {
                return cx.error("ERR the keys take too much memory for one reply, use SCAN");
            }
            Err(Failure::Resized) => {
                return cx.error(RESIZED);
            }
        }
    }
    cx.reply().array(listing.count);
    cx.out.extend_from_slice(&listing.text);
}

/// The keys that `RANDOMKEY` has looked at so far.
pub(super) struct Choice {
    cursor: Cursor,
    /// The walk began somewhere in the table, and has yet to be made from the beginning if it finds
    /// nothing.
    is_partial: bool,
    /// How many keys were found, of which one is chosen.
    found: u64,
    chosen: Option<Vec<u8>>,
}

impl Choice {
    fn new<E: Engine>(cx: &Context<'_, E>, visits_all: bool) -> Self {
        Self {
            cursor: if visits_all {
                Cursor::START
            } else {
                cx.engine.position(random() as u32)
            },
            is_partial: !visits_all,
            found: 0,
            chosen: None,
        }
    }

    /// Visits the next items. Returns whether the choice is made: at the end, or else once a key
    /// was found.
    fn advance<E: Engine>(&mut self, cx: &Context<'_, E>, visits_all: bool) -> bool {
        let selected = cx.codec.database();
        let step = cx
            .engine
            .scan(self.cursor, STEP, cx.parse.now, &mut |item| {
                let (database, key) = database::split(item.key);
                if database == selected {
                    self.found += 1;
                    if random().is_multiple_of(self.found) {
                        self.chosen = Some(key.to_vec());
                    }
                }
            });
        let is_done = self.chosen.is_some() && !visits_all;
        match step {
            _ if is_done => true,
            ScanStep::More(next) => {
                self.cursor = next;
                false
            }
            ScanStep::Done | ScanStep::Lost => {
                let was_partial = std::mem::take(&mut self.is_partial);
                self.cursor = Cursor::START;
                !was_partial
            }
        }
    }
}

/// `RANDOMKEY`. All keys are equally likely if they are few; otherwise one that many empty buckets,
/// or keys of other databases, lie before is more likely than others.
pub(super) fn randomkey<E: Engine>(cx: &mut Context<'_, E>, _: Args<'_>) {
    let keys = cx.engine.stats().items_of(cx.codec.database());
    let visits_all = keys <= FEW_KEYS;
    let mut choice = match cx.take_progress() {
        Some(Progress::Choice(choice)) => choice,
        _ if keys == 0 => return cx.reply().null(),
        _ => Choice::new(cx, visits_all),
    };
    while !choice.advance(cx, visits_all) {
        if cx.must_pause() {
            return cx.pause(Progress::Choice(choice));
        }
    }
    match choice.chosen {
        Some(key) => cx.reply().bulk(&key),
        None => cx.reply().null(),
    }
}

/// A `FLUSHDB` that deletes the keys of the database that is selected, one after the other.
pub(super) struct Removal {
    cursor: Cursor,
    attempts: usize,
}

impl Removal {
    pub(super) fn new() -> Self {
        Self {
            cursor: Cursor::START,
            attempts: 0,
        }
    }

    /// Deletes the keys that are left. Returns false if the call goes on in the next turn, or has
    /// printed an error.
    pub(super) fn finish<E: Engine>(mut self, cx: &mut Context<'_, E>) -> bool {
        let selected = cx.codec.database();
        let mut keys: Vec<Vec<u8>> = Vec::new();
        loop {
            let now = cx.parse.now;
            let step = cx.engine.scan(self.cursor, STEP, now, &mut |item| {
                let (database, key) = database::split(item.key);
                if database == selected {
                    keys.push(key.to_vec());
                }
            });
            for key in keys.drain(..) {
                let delete = Verb::Delete(Delete::default());
                cx.operate(Tally::None, &key, delete, |_| ());
            }
            match step {
                ScanStep::More(next) => self.cursor = next,
                ScanStep::Done => return true,
                ScanStep::Lost if self.attempts < ATTEMPTS => {
                    self.cursor = Cursor::START;
                    self.attempts += 1;
                }
                ScanStep::Lost => {
                    cx.error(RESIZED);
                    return false;
                }
            }
            if cx.must_pause() {
                cx.pause(Progress::Removal(self));
                return false;
            }
        }
    }
}

/// A random number: std chooses random keys for its hashers.
pub(super) fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}

/// Prints what `tell` says of the item of a key, null if there is none. Looking it up counts as
/// `tally`.
fn describe<E: Engine>(
    cx: &mut Context<'_, E>,
    tally: Tally,
    key: &[u8],
    tell: impl Fn(&ItemView<'_>) -> Description,
) {
    let mut description = None;
    cx.peek(tally, key, |item| description = item.map(&tell));
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
fn encoding(item: &ItemView<'_>) -> &'static str {
    match item.kind {
        ItemKind::String => encoding_of_string(item.value),
        ItemKind::FlatSet => "listpack",
        ItemKind::Set => "skiplist",
        ItemKind::Filter => "raw",
    }
}

fn encoding_of_string(value: &[u8]) -> &'static str {
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
    use Description::{Error, Number, Word};
    let [subcommand] = first(&mut args);
    let [key] = first(&mut args);
    let tally = cx.tally;
    match subcommand.to_ascii_lowercase().as_slice() {
        b"encoding" => describe(cx, tally, key, |item| Word(encoding(item))),
        b"idletime" => describe(cx, tally, key, |item| Number(item.idle_s.into())),
        b"refcount" => describe(cx, tally, key, |_| Number(1)),
        b"freq" => describe(cx, tally, key, |_| Error(NO_FREQUENCY)),
        _ => cx.help("OBJECT", "ENCODING, FREQ, IDLETIME, REFCOUNT"),
    }
}

/// `MEMORY USAGE key [SAMPLES count]`: the bytes that the item takes.
pub(super) fn memory<E: Engine>(cx: &mut Context<'_, E>, mut args: Args<'_>) {
    let [subcommand] = first(&mut args);
    match subcommand.to_ascii_lowercase().as_slice() {
        b"usage" => memory_usage(cx, args),
        _ => cx.help("MEMORY", "USAGE"),
    }
}

/// The bytes of a sorted set or a filter, and its item; `None` if the key has none.
pub(super) fn set_usage<E: Engine>(cx: &mut Context<'_, E>, key: &[u8]) -> Option<u64> {
    number_of_set(cx, key, SortedRead::Usage)
}

/// The members of a set within the bounds; 0 without a set.
pub(super) fn members_within<E: Engine>(
    cx: &mut Context<'_, E>,
    key: &[u8],
    bounds: Bounds<'_>,
) -> usize {
    let count = number_of_set(cx, key, SortedRead::Count(bounds)).unwrap_or(0);
    usize::try_from(count).unwrap_or(usize::MAX)
}

/// The number that a read of a set returns; `None` without a set.
fn number_of_set<E: Engine>(
    cx: &mut Context<'_, E>,
    key: &[u8],
    read: SortedRead<'_>,
) -> Option<u64> {
    let mut found = None;
    let op = SortedOp::Read(read);
    cx.operate(Tally::None, key, Verb::Sorted(&op), |outcome| {
        if let Outcome::Sorted {
            result: SortedResult::Number(number),
            is_found: true,
            ..
        } = outcome
        {
            found = Some(*number);
        }
    });
    found
}

fn memory_usage<E: Engine>(cx: &mut Context<'_, E>, mut args: Args<'_>) {
    let [key] = first(&mut args);
    while let Some(option) = args.next() {
        let samples = args
            .next()
            .filter(|_| option.eq_ignore_ascii_case(b"samples"));
        match samples.map(parse_integer) {
            Some(Some(0..)) => {} // nothing is sampled: the bytes are known
            Some(None) => return cx.error(text::NOT_AN_INTEGER),
            Some(Some(_)) | None => return cx.error(text::SYNTAX),
        }
    }
    match set_usage(cx, key) {
        Some(bytes) => cx.reply().integer(bytes as i64),
        // A string, or nothing.
        None => describe(cx, Tally::None, key, |item| {
            Description::Number(item.footprint as i64)
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::Listing;

    #[test]
    fn a_key_that_was_shown_twice_is_listed_once() {
        let mut listing = Listing::new();
        ["b", "a", "b", "", "a", ""]
            .iter()
            .for_each(|key| listing.add(key.as_bytes()));
        assert_eq!(listing.text, b"$1\r\nb\r\n$1\r\na\r\n$0\r\n\r\n");
        assert_eq!(listing.count, 3);
    }
}
