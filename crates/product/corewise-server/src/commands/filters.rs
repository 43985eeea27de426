//! `CF.*`: the cuckoo filters of RedisBloom, as its version 2.8 and its documentation have them.
//!
//! Every command is a call, because it may have to wait for a compaction: the steps of a
//! [compaction](corewise_ops::filter::FilterWrite::Step) are made by the request that has begun it,
//! over several turns. The others ask once in each turn. A request in a transaction does not wait,
//! but runs beside the compaction: its answer is the same, and its item may be in another slot.
//! `CF.DEL` and `CF.COMPACT` do one step there at most, and leave the others to later requests.
//!
//! `CF.INSERT`, `CF.INSERTNX` and `CF.MEXISTS` are a sequence of operations, one for each item, and
//! may go on in the next turn after each: an item may take 65,535 swaps, or a look at two buckets
//! of each of 32 subfilters.

use super::{Context, Progress, ReplyForm, first};
use corewise_engine::Engine;
use corewise_ops::filter::{
    CuckooInfo, CuckooSettings, FilterOp, FilterRead, FilterResult, FilterWrite, HEADER_BYTES,
    MAX_CHUNK, WhileCompacting, item_hash,
};
use corewise_ops::{Outcome, Verb};
use corewise_wire::Tally;
use corewise_wire::resp::{Args, Encoder, Version, parse_integer};

/// The greatest numbers that options may have.
const MOST_CAPACITY: i64 = 1 << 30;
const MOST_BUCKET_SLOTS: i64 = 255;
const MOST_ITERATIONS: i64 = 65_535;
const MOST_EXPANSION: i64 = 32_768;
/// Bytes of a `CF.LOADCHUNK` request beside key and chunk.
const REQUEST: usize = 256;

mod error {
    pub(super) const NOT_FOUND: &str = "ERR not found";
    pub(super) const EXISTS: &str = "ERR item exists";
    pub(super) const NO_MEMORY: &str = "ERR Insufficient memory";
    pub(super) const NOT_CREATED: &str = "Couldn't create Cuckoo Filter";
    pub(super) const CAPACITY: &str = "Bad capacity";
    pub(super) const UNKNOWN: &str = "Unknown argument received";
    pub(super) const FULL: &str = "Filter is full";
    pub(super) const MOST_SUBFILTERS: &str = "Maximum expansions reached";
    pub(super) const POSITION: &str = "Invalid position";
    pub(super) const HEADER: &str = "Invalid header";
    pub(super) const NO_FILTER: &str = "Couldn't create filter!";
    pub(super) const CHUNK: &str = "Couldn't load chunk!";
}

/// What became of an operation.
enum Answer {
    Result(FilterResult<'static>),
    NoMemory,
    /// With its error text.
    Failed(&'static str),
}

impl Answer {
    fn of(outcome: &Outcome<'_>) -> Self {
        match outcome {
            Outcome::Filter { result, .. } => Self::Result(result.without_bytes()),
            Outcome::OutOfMemory => Self::NoMemory,
            outcome => Self::Failed(ReplyForm::error_text(outcome)),
        }
    }

    fn is_busy(&self) -> bool {
        matches!(self, Self::Result(FilterResult::Busy))
    }

    /// The error text of what is an error for each command.
    fn error(&self) -> &'static str {
        match *self {
            Self::Result(FilterResult::Missing) => error::NOT_FOUND,
            Self::Result(FilterResult::Exists) => error::EXISTS,
            Self::Result(FilterResult::MaxSubfilters) => error::MOST_SUBFILTERS,
            Self::Result(FilterResult::Full) => error::FULL,
            Self::Failed(text) => text,
            Self::NoMemory | Self::Result(_) => error::NO_MEMORY,
        }
    }
}

/// Executes an operation once.
fn ask<E: Engine>(cx: &mut Context<'_, E>, tally: Tally, key: &[u8], op: FilterOp<'_>) -> Answer {
    let mut answer = Answer::NoMemory;
    cx.operate(tally, key, Verb::Filter(&op), |outcome| {
        answer = Answer::of(outcome);
    });
    answer
}

/// Executes an operation. `None` if a compaction is in its way: the call goes on in the next
/// turn.
fn wait<E: Engine>(
    cx: &mut Context<'_, E>,
    tally: Tally,
    key: &[u8],
    op: FilterOp<'_>,
) -> Option<Answer> {
    let answer = ask(cx, tally, key, op);
    if answer.is_busy() {
        cx.pause(Progress::Compaction { is_own: false });
        return None;
    }
    Some(answer)
}

/// Does the steps of the compaction that runs. Returns false if the call goes on in the next turn.
fn finish<E: Engine>(cx: &mut Context<'_, E>, key: &[u8], is_own: bool) -> bool {
    while ask(cx, Tally::None, key, FilterOp::Write(FilterWrite::Step)).is_busy() {
        if cx.must_pause() {
            cx.pause(Progress::Compaction { is_own });
            return false;
        }
    }
    true
}

/// What an operation does while a compaction runs.
fn beside<E: Engine>(cx: &Context<'_, E>) -> WhileCompacting {
    if cx.transaction.is_some() {
        WhileCompacting::Proceed
    } else {
        WhileCompacting::Refuse
    }
}

/// The tally of a call that may go on: it is counted in its first turn. Whether it has begun a
/// compaction.
fn resume<E: Engine>(cx: &mut Context<'_, E>) -> (Tally, bool) {
    match cx.take_progress() {
        Some(Progress::Compaction { is_own }) => (Tally::None, is_own),
        _ => (cx.tally, false),
    }
}

// ---- creation

/// The number of an option; the error text otherwise.
fn number(option: &str, text: Option<&[u8]>, least: i64, most: i64) -> Result<i64, String> {
    let number = text.and_then(parse_integer);
    let number = number.ok_or_else(|| format!("Couldn't parse {option}"))?;
    if (least..=most).contains(&number) {
        return Ok(number);
    }
    Err(format!(
        "{option}: value must be in the range [{least}, {most}]"
    ))
}

fn capacity(text: &[u8], bucket_slots: i64) -> Result<u64, String> {
    let capacity = parse_integer(text).ok_or(error::CAPACITY)?;
    check_capacity(capacity, bucket_slots)
}

fn check_capacity(capacity: i64, bucket_slots: i64) -> Result<u64, String> {
    if (2 * bucket_slots..=MOST_CAPACITY).contains(&capacity) {
        return Ok(capacity as u64);
    }
    Err(format!(
        "Capacity must be in the range [2 * BUCKETSIZE, {MOST_CAPACITY}]"
    ))
}

/// The settings that `CF.RESERVE` is told; unknown words mean nothing.
fn settings(text: &[u8], options: Args<'_>) -> Result<CuckooSettings, String> {
    let default = CuckooSettings::default();
    let asked = parse_integer(text).ok_or(error::CAPACITY)?;
    let option = |name: &str, least: i64, most: i64, default: u16| {
        let mut words = options;
        if !words.any(|word| word.eq_ignore_ascii_case(name.as_bytes())) {
            return Ok(default);
        }
        // At most 65,535.
        number(name, words.next(), least, most).map(|number| number as u16)
    };
    let max_iterations = option("MAXITERATIONS", 1, MOST_ITERATIONS, default.max_iterations)?;
    let bucket_slots = option("BUCKETSIZE", 1, MOST_BUCKET_SLOTS, default.bucket_slots)?;
    let expansion = option("EXPANSION", 0, MOST_EXPANSION, default.expansion)?;
    Ok(CuckooSettings {
        capacity: check_capacity(asked, bucket_slots.into())?,
        bucket_slots,
        max_iterations,
        expansion,
    })
}

/// `CF.RESERVE key capacity [BUCKETSIZE n] [MAXITERATIONS n] [EXPANSION n]`.
pub(super) fn reserve<E: Engine>(cx: &mut Context<'_, E>, mut args: Args<'_>) {
    if !args.len().is_multiple_of(2) {
        return cx.wrong_arguments("cf.reserve");
    }
    let [key, capacity] = first(&mut args);
    let settings = match settings(capacity, args) {
        Ok(settings) => settings,
        Err(text) => return cx.error(&text),
    };
    let op = FilterOp::Write(FilterWrite::Reserve(settings));
    match ask(cx, Tally::None, key, op) {
        Answer::Result(FilterResult::Done) => cx.reply().simple("OK"),
        Answer::NoMemory | Answer::Result(FilterResult::Invalid) => cx.error(error::NOT_CREATED),
        answer => cx.error(answer.error()),
    }
}

// ---- items

/// `CF.ADD key item`.
pub(super) fn add<E: Engine>(cx: &mut Context<'_, E>, args: Args<'_>) {
    add_one(cx, args, false);
}

/// `CF.ADDNX key item`.
pub(super) fn addnx<E: Engine>(cx: &mut Context<'_, E>, args: Args<'_>) {
    add_one(cx, args, true);
}

fn add_one<E: Engine>(cx: &mut Context<'_, E>, mut args: Args<'_>, only_new: bool) {
    let [key, item] = first(&mut args);
    let (tally, _) = resume(cx);
    let op = FilterOp::Write(FilterWrite::Add {
        hash: item_hash(item),
        only_new,
        create: Some(CuckooSettings::default()),
        beside: beside(cx),
    });
    match wait(cx, tally, key, op) {
        None => {}
        Some(Answer::Result(FilterResult::Flag(is_added))) => cx.reply().boolean(is_added),
        Some(answer) => cx.error(answer.error()),
    }
}

/// `CF.INSERT key [CAPACITY n] [NOCREATE] ITEMS item …`.
pub(super) fn insert<E: Engine>(cx: &mut Context<'_, E>, args: Args<'_>) {
    insert_all(cx, args, "cf.insert", false);
}

/// `CF.INSERTNX key [CAPACITY n] [NOCREATE] ITEMS item …`.
pub(super) fn insertnx<E: Engine>(cx: &mut Context<'_, E>, args: Args<'_>) {
    insert_all(cx, args, "cf.insertnx", true);
}

fn insert_all<E: Engine>(
    cx: &mut Context<'_, E>,
    mut args: Args<'_>,
    command: &str,
    only_new: bool,
) {
    let [key] = first(&mut args);
    let default = CuckooSettings::default();
    let (mut create, mut creates, mut has_items) = (default, true, false);
    while !has_items && let Some(option) = args.next() {
        // RedisBloom looks at the first letter.
        match option.first().map(u8::to_ascii_lowercase) {
            Some(b'c') => {
                let Some(text) = args.next() else {
                    return cx.wrong_arguments(command);
                };
                match capacity(text, default.bucket_slots.into()) {
                    Ok(capacity) => create.capacity = capacity,
                    Err(text) => return cx.error(&text),
                }
            }
            Some(b'n') => creates = false,
            Some(b'i') => has_items = true,
            _ => return cx.error(error::UNKNOWN),
        }
    }
    if args.len() == 0 {
        return cx.wrong_arguments(command);
    }
    let (mut done, mut replies) = match cx.take_progress() {
        Some(Progress::Items { done, replies }) => (done, replies),
        _ => (0, Vec::new()),
    };
    let count = args.len();
    for item in args.skip(done) {
        let insertion = FilterWrite::Add {
            hash: item_hash(item),
            only_new,
            create: creates.then_some(create),
            beside: beside(cx),
        };
        let answer = ask(cx, Tally::None, key, FilterOp::Write(insertion));
        if done == 0 && !answer.is_busy() && !is_inserted_or_full(&answer) {
            return cx.error(answer.error());
        }
        let is_busy = answer.is_busy();
        if !is_busy {
            done += 1;
            print_insertion(cx.codec.version(), &answer, only_new, &mut replies);
        }
        // Also for an item that may have been looked for long.
        if is_busy || done < count && cx.must_pause() {
            return cx.pause(Progress::Items { done, replies });
        }
    }
    cx.reply().array(count);
    cx.out.extend_from_slice(&replies);
}

/// Whether the answer to the first item of several is an element of the reply.
fn is_inserted_or_full(answer: &Answer) -> bool {
    use FilterResult::{Flag, Full};
    matches!(answer, Answer::Result(Flag(_) | Full))
}

/// Prints what became of one of several items. Where there is no room it is -1, which RESP3 has for
/// `CF.INSERTNX` only.
fn print_insertion(version: Version, answer: &Answer, only_new: bool, out: &mut Vec<u8>) {
    let has_booleans = version == Version::Resp3 && !only_new;
    let mut reply = Encoder::new(version, out);
    match *answer {
        Answer::Result(FilterResult::Flag(is_added)) if has_booleans => reply.boolean(is_added),
        Answer::Result(FilterResult::Flag(is_added)) => reply.integer(is_added.into()),
        Answer::NoMemory | Answer::Failed(_) => reply.error(&[answer.error().as_bytes()]),
        Answer::Result(_) if has_booleans => reply.boolean(false),
        Answer::Result(_) => reply.integer(-1),
    }
}

/// What `CF.INFO` tells of the filter of a key; `None` if there is none.
pub(super) fn known<E: Engine>(cx: &mut Context<'_, E>, key: &[u8]) -> Option<CuckooInfo> {
    let op = FilterOp::Read(FilterRead::Info(WhileCompacting::Proceed));
    match ask(cx, Tally::None, key, op) {
        Answer::Result(FilterResult::Info(info)) => Some(info),
        _ => None,
    }
}

/// Whether a filter has an item; not if there is none.
fn has<E: Engine>(cx: &mut Context<'_, E>, tally: Tally, key: &[u8], item: &[u8]) -> bool {
    let op = FilterOp::Read(FilterRead::Contains(item_hash(item)));
    let answer = ask(cx, tally, key, op);
    matches!(answer, Answer::Result(FilterResult::Flag(true)))
}

/// `CF.EXISTS key item`.
pub(super) fn exists<E: Engine>(cx: &mut Context<'_, E>, mut args: Args<'_>) {
    let [key, item] = first(&mut args);
    let tally = cx.tally;
    let found = has(cx, tally, key, item);
    cx.reply().boolean(found);
}

/// `CF.MEXISTS key item …`.
pub(super) fn mexists<E: Engine>(cx: &mut Context<'_, E>, mut args: Args<'_>) {
    let [key] = first(&mut args);
    // The items are one look-up.
    let (mut tally, mut done, mut replies) = match cx.take_progress() {
        Some(Progress::Items { done, replies }) => (Tally::None, done, replies),
        _ => (cx.tally, 0, Vec::new()),
    };
    let count = args.len();
    for item in args.skip(done) {
        let found = has(cx, tally, key, item);
        Encoder::new(cx.codec.version(), &mut replies).boolean(found);
        tally = Tally::None;
        done += 1;
        if done < count && cx.must_pause() {
            return cx.pause(Progress::Items { done, replies });
        }
    }
    cx.reply().array(count);
    cx.out.extend_from_slice(&replies);
}

/// `CF.COUNT key item`.
pub(super) fn count<E: Engine>(cx: &mut Context<'_, E>, mut args: Args<'_>) {
    let [key, item] = first(&mut args);
    let op = FilterOp::Read(FilterRead::Count(item_hash(item)));
    let tally = cx.tally;
    let count = match ask(cx, tally, key, op) {
        Answer::Result(FilterResult::Count(count)) => count,
        _ => 0,
    };
    cx.reply().integer(count as i64);
}

/// `CF.DEL key item`. A compaction that it begins is finished before the reply, but not in a
/// transaction.
pub(super) fn del<E: Engine>(cx: &mut Context<'_, E>, mut args: Args<'_>) {
    let [key, item] = first(&mut args);
    let (tally, mut is_removed) = resume(cx);
    if !is_removed {
        let op = FilterOp::Write(FilterWrite::Remove {
            hash: item_hash(item),
            beside: beside(cx),
        });
        let Some(answer) = wait(cx, tally, key, op) else {
            return;
        };
        let Answer::Result(FilterResult::Removed {
            is_removed: has_removed,
            must_compact,
        }) = answer
        else {
            return cx.error("Not found");
        };
        if !must_compact || cx.transaction.is_some() {
            return cx.reply().boolean(has_removed);
        }
        is_removed = has_removed;
    }
    if finish(cx, key, true) {
        cx.reply().boolean(is_removed);
    }
}

/// `CF.COMPACT key`. In a transaction it only begins.
pub(super) fn compact<E: Engine>(cx: &mut Context<'_, E>, mut args: Args<'_>) {
    let [key] = first(&mut args);
    let (tally, has_begun) = resume(cx);
    if !has_begun {
        let op = FilterOp::Write(FilterWrite::StartCompaction);
        let answer = if cx.transaction.is_some() {
            Some(ask(cx, tally, key, op))
        } else {
            wait(cx, tally, key, op)
        };
        match answer {
            None => return,
            Some(Answer::Result(FilterResult::Done | FilterResult::Busy)) => {}
            Some(_) => return cx.error("Cuckoo filter was not found"),
        }
        if cx.transaction.is_some() {
            return cx.reply().simple("OK");
        }
    }
    if finish(cx, key, true) {
        cx.reply().simple("OK");
    }
}

// ---- the whole filter

/// `CF.INFO key`.
pub(super) fn info<E: Engine>(cx: &mut Context<'_, E>, mut args: Args<'_>) {
    let [key] = first(&mut args);
    let (tally, _) = resume(cx);
    let op = FilterOp::Read(FilterRead::Info(beside(cx)));
    let info: CuckooInfo = match wait(cx, tally, key, op) {
        None => return,
        Some(Answer::Result(FilterResult::Info(info))) => info,
        Some(answer) => return cx.error(answer.error()),
    };
    let fields = [
        ("Size", info.size),
        ("Number of buckets", info.buckets),
        ("Number of filters", info.subfilters),
        ("Number of items inserted", info.items),
        ("Number of items deleted", info.deletions),
        ("Bucket size", info.bucket_slots.into()),
        ("Expansion rate", info.expansion.into()),
        ("Max iterations", info.max_iterations.into()),
    ];
    let mut reply = cx.reply();
    reply.map(fields.len());
    for (name, number) in fields {
        reply.simple(name);
        reply.integer(number as i64);
    }
}

/// `CF.SCANDUMP key iterator`. A part is no longer than `CF.LOADCHUNK` takes here.
pub(super) fn scandump<E: Engine>(cx: &mut Context<'_, E>, mut args: Args<'_>) {
    let [key, iterator] = first(&mut args);
    let (tally, _) = resume(cx);
    let Some(iterator) = parse_integer(iterator) else {
        return cx.error(error::POSITION);
    };
    let longest = cx.shared.limits.resp.max_request;
    let mut most = longest.saturating_sub(key.len() + REQUEST);
    if cx.transaction.is_some() {
        most = most.min(cx.most_replies().saturating_sub(cx.out.len()));
    }
    let op = FilterOp::Read(FilterRead::Dump {
        iterator,
        most: most.clamp(HEADER_BYTES, MAX_CHUNK),
        beside: beside(cx),
    });
    let version = cx.codec.version();
    let (mut answer, mut out) = (Answer::NoMemory, std::mem::take(cx.out));
    cx.operate(tally, key, Verb::Filter(&op), |outcome| {
        answer = Answer::of(outcome);
        if let Outcome::Filter {
            result: FilterResult::Dump { next, bytes },
            ..
        } = outcome
        {
            let mut reply = Encoder::new(version, &mut out);
            reply.array(2);
            reply.integer(*next);
            match next {
                0 => reply.null(),
                _ => reply.bulk(bytes),
            }
        }
    });
    *cx.out = out;
    match answer {
        Answer::Result(FilterResult::Dump { .. }) => {}
        Answer::Result(FilterResult::Busy) => cx.pause(Progress::Compaction { is_own: false }),
        answer => cx.error(answer.error()),
    }
}

/// `CF.LOADCHUNK key iterator data`.
pub(super) fn loadchunk<E: Engine>(cx: &mut Context<'_, E>, mut args: Args<'_>) {
    let [key, iterator, data] = first(&mut args);
    let (tally, _) = resume(cx);
    let Some(iterator) = parse_integer(iterator).filter(|iterator| *iterator != 0) else {
        return cx.error(error::POSITION);
    };
    let (write, invalid) = match iterator {
        1 if data.len() == HEADER_BYTES => (FilterWrite::LoadHeader(data), error::NO_FILTER),
        1 => (FilterWrite::LoadHeader(data), error::HEADER),
        _ => {
            let chunk = FilterWrite::LoadChunk {
                iterator,
                chunk: data,
                beside: beside(cx),
            };
            (chunk, error::CHUNK)
        }
    };
    match wait(cx, tally, key, FilterOp::Write(write)) {
        None => {}
        Some(Answer::Result(FilterResult::Done)) => cx.reply().simple("OK"),
        Some(Answer::Result(FilterResult::Invalid)) => cx.error(invalid),
        Some(Answer::NoMemory) if iterator == 1 => cx.error(error::NO_FILTER),
        Some(answer) => cx.error(answer.error()),
    }
}
