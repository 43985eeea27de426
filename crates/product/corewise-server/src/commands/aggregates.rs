//! Commands on several sorted sets: unions, intersections and differences; and the other ones that
//! store a set or take from the first of several.
//!
//! Each is one transaction on its keys, a source that is the destination among them. First the
//! result is computed, in memory of the thread; then it is shown, or becomes a set in parts of
//! [`PART`] members, whose bytes are counted as they grow, and which replaces the destination at
//! the end. So a command that fails, for lack of memory too, has changed nothing.
//!
//! # Costs
//!
//! | command | steps, each a look-up or a member that is read |
//! |---|---|
//! | `ZUNION` | the members of all sources |
//! | `ZINTER ZINTERCARD` | the members of the smallest source, times the sources |
//! | `ZDIFF` | the members of the first source, times the sources |
//! | `ZRANGESTORE` | the members of the range |
//!
//! A long member is one more step for each [`STEP_BYTES`] of it, because a look-up hashes and
//! compares all of it. A source that `ZINTERCARD` or `ZDIFF` names again is not asked again.
//!
//! A result of `n` members is sorted too, in `O(n log n)`. All of it is one call: the clients of
//! the loop wait, and so do those that use the keys. The engine's locks are released after each
//! part.
//! A command of more than [`MOST_STEPS`] is refused: before it reads anything if the numbers of
//! members tell, else as soon as it has taken them. In `EXEC` [each step](STEP) has its price.
//!
//! The memory of the results of all loops is bounded by [`most_computed`]. It is looked at after
//! each part is read, so a loop may exceed it by a part, which has [`PART_BYTES`] or one member,
//! and by one doubling of the arena or of a hash table.

use super::form::{ScoresShown, encode_members};
use super::operation::{Failure, integer};
use super::several::write_set;
use super::{Context, ReplyForm, first, float, sorted, text};
use crate::shared::{LoopState, Shared};
use bumpalo::Bump;
use corewise_atomic::sync::atomic::Ordering;
use corewise_engine::Engine;
use corewise_ops::sorted::{
    Bounds, Direction, MemberRange, Members, SetSlot, SortedOp, SortedRead, SortedResult,
    SortedWrite,
};
use corewise_ops::{Deadline, Delete, Outcome, Verb};
use corewise_wire::Tally;
use corewise_wire::resp::{Args, Encoder, parse_integer};
use std::cell::Cell;
use std::cmp;
use std::collections::{HashMap, HashSet};
use std::mem;

/// The members that one operation of a command reads or writes at most.
const PART: usize = 1 << 10;
/// The bytes of the members that one operation reads at most, unless it is one member.
const PART_BYTES: usize = 256 << 10;
/// The steps of one command: about a second.
const MOST_STEPS: usize = 1 << 22;
/// The bytes of a member that take as long as a step.
const STEP_BYTES: usize = 64;
/// What a step costs in a transaction, as the bytes that could be copied meanwhile.
pub(super) const STEP: usize = 256;
/// The memory that the result of each loop may take.
const FREE: u64 = 64 << 10;

const TOO_MANY: &str = "ERR the sets have too many members for one command";
const OUT_OF_MEMORY: &str = "OOM command not allowed when used memory > 'maxmemory'.";

/// The memory that the results of all loops may take together.
fn most_computed<E: Engine>(cx: &Context<'_, E>) -> u64 {
    (cx.engine.memory_limit() / 4).max(cx.shared.limits.resp.max_request as u64)
}

/// Why there is no result.
enum Stop {
    Error(&'static str),
    /// A source was evicted while it was read. It stays absent until the transaction ends.
    Evicted,
    /// What was read is enough.
    Enough,
}

impl From<&'static str> for Stop {
    fn from(text: &'static str) -> Self {
        Self::Error(text)
    }
}

/// A member and its score.
type Scored<'b> = (f64, &'b [u8]);

// ---- memory and steps

/// The memory of the thread's result, as others see it, and the steps that the command may take.
struct Computed<'c> {
    shared: &'c Shared,
    own: &'c LoopState,
    most: u64,
    /// The bytes of the result, without the part that is read.
    result: Cell<usize>,
    steps_left: Cell<usize>,
}

impl<'c> Computed<'c> {
    fn new<E: Engine>(cx: &Context<'c, E>) -> Self {
        Self {
            shared: cx.shared,
            own: &cx.shared.loops[cx.loop_index],
            most: most_computed(cx),
            result: Cell::new(0),
            steps_left: Cell::new(MOST_STEPS),
        }
    }

    /// Notes the steps of members, which have these bytes together; an error if that is too much.
    fn step(&self, members: usize, bytes: usize) -> Result<(), Stop> {
        let left = self.steps_left.get();
        let left = left.checked_sub(members + bytes / STEP_BYTES);
        self.steps_left.set(left.ok_or(TOO_MANY)?);
        Ok(())
    }

    /// Notes what the result takes; an error if that is too much.
    fn note(&self, bytes: usize) -> Result<(), Stop> {
        self.result.set(bytes);
        self.note_part(0)
    }

    /// Notes what a part takes beside the result; an error if that is too much.
    fn note_part(&self, bytes: usize) -> Result<(), Stop> {
        let bytes = (self.result.get() + bytes) as u64;
        // Relaxed: a gauge. Loops that note theirs at the same time may see each other too late,
        // and exceed the bound by a part.
        self.own.computed_bytes.store(bytes, Ordering::Relaxed);
        if bytes > FREE && self.shared.sum(|one| &one.computed_bytes) > self.most {
            return Err(OUT_OF_MEMORY.into());
        }
        Ok(())
    }
}

impl Drop for Computed<'_> {
    fn drop(&mut self) {
        // Relaxed: a gauge.
        self.own.computed_bytes.store(0, Ordering::Relaxed);
    }
}

/// The members of a result, whose bytes are in an arena.
struct Collected<'b, 'c> {
    arena: &'b Bump,
    members: Vec<Scored<'b>>,
    computed: &'b Computed<'c>,
}

impl<'b, 'c> Collected<'b, 'c> {
    fn new(arena: &'b Bump, computed: &'b Computed<'c>) -> Self {
        Self {
            arena,
            members: Vec::new(),
            computed,
        }
    }

    fn push(&mut self, score: f64, member: &[u8]) {
        let member = self.arena.alloc_slice_copy(member);
        self.members.push((score, member));
    }

    /// Notes the memory; an error if that is too much.
    fn check(&self) -> Result<(), Stop> {
        let pairs = self.members.capacity() * size_of::<Scored<'_>>();
        self.computed.note(self.arena.allocated_bytes() + pairs)
    }
}

/// Members that are shown.
struct Shown<'b>(&'b [Scored<'b>]);

impl Members for Shown<'_> {
    fn len(&self) -> usize {
        self.0.len()
    }

    fn show(&self, show: &mut dyn FnMut(&[u8], f64) -> bool) {
        let _ = self.0.iter().all(|(score, member)| show(member, *score));
    }
}

// ---- requests

/// How sets are combined.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Combination {
    Union,
    Intersection,
    Difference,
}

/// What becomes of the result.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Use {
    Shown,
    Stored,
    Counted,
}

/// A command.
#[derive(Clone, Copy)]
struct Kind {
    name: &'static str,
    combination: Combination,
    used: Use,
}

const ZUNION: Kind = Kind::new("zunion", Combination::Union, Use::Shown);
const ZUNIONSTORE: Kind = Kind::new("zunionstore", Combination::Union, Use::Stored);
const ZINTER: Kind = Kind::new("zinter", Combination::Intersection, Use::Shown);
const ZINTERSTORE: Kind = Kind::new("zinterstore", Combination::Intersection, Use::Stored);
const ZINTERCARD: Kind = Kind::new("zintercard", Combination::Intersection, Use::Counted);
const ZDIFF: Kind = Kind::new("zdiff", Combination::Difference, Use::Shown);
const ZDIFFSTORE: Kind = Kind::new("zdiffstore", Combination::Difference, Use::Stored);

static KINDS: [Kind; 7] = [
    ZUNION,
    ZUNIONSTORE,
    ZINTER,
    ZINTERSTORE,
    ZINTERCARD,
    ZDIFF,
    ZDIFFSTORE,
];

impl Kind {
    const fn new(name: &'static str, combination: Combination, used: Use) -> Self {
        Self {
            name,
            combination,
            used,
        }
    }
}

/// `ZUNION numkeys key … [WEIGHTS weight …] [AGGREGATE SUM | MIN | MAX] [WITHSCORES]`.
pub(super) fn zunion<E: Engine>(cx: &mut Context<'_, E>, args: Args<'_>) {
    aggregate(cx, args, ZUNION);
}

/// `ZUNIONSTORE destination numkeys key … [WEIGHTS weight …] [AGGREGATE SUM | MIN | MAX]`.
pub(super) fn zunionstore<E: Engine>(cx: &mut Context<'_, E>, args: Args<'_>) {
    aggregate(cx, args, ZUNIONSTORE);
}

/// `ZINTER numkeys key … [WEIGHTS weight …] [AGGREGATE SUM | MIN | MAX] [WITHSCORES]`.
pub(super) fn zinter<E: Engine>(cx: &mut Context<'_, E>, args: Args<'_>) {
    aggregate(cx, args, ZINTER);
}

/// `ZINTERSTORE destination numkeys key … [WEIGHTS weight …] [AGGREGATE SUM | MIN | MAX]`.
pub(super) fn zinterstore<E: Engine>(cx: &mut Context<'_, E>, args: Args<'_>) {
    aggregate(cx, args, ZINTERSTORE);
}

/// `ZINTERCARD numkeys key … [LIMIT limit]`.
pub(super) fn zintercard<E: Engine>(cx: &mut Context<'_, E>, args: Args<'_>) {
    aggregate(cx, args, ZINTERCARD);
}

/// `ZDIFF numkeys key … [WITHSCORES]`.
pub(super) fn zdiff<E: Engine>(cx: &mut Context<'_, E>, args: Args<'_>) {
    aggregate(cx, args, ZDIFF);
}

/// `ZDIFFSTORE destination numkeys key …`.
pub(super) fn zdiffstore<E: Engine>(cx: &mut Context<'_, E>, args: Args<'_>) {
    aggregate(cx, args, ZDIFFSTORE);
}

/// A set that others are combined with.
#[derive(Clone, Copy)]
struct Source<'i> {
    key: &'i [u8],
    /// The number of its members.
    len: usize,
    weight: f64,
}

/// Of scores of the same member, which one is that of the result.
#[derive(Clone, Copy, Default)]
enum Function {
    #[default]
    Sum,
    Min,
    Max,
}

impl Function {
    fn of(name: &[u8]) -> Option<Self> {
        match name.to_ascii_lowercase().as_slice() {
            b"sum" => Some(Self::Sum),
            b"min" => Some(Self::Min),
            b"max" => Some(Self::Max),
            _ => None,
        }
    }

    fn apply(self, score: &mut f64, other: f64) {
        *score = match self {
            Self::Sum => number(*score + other),
            Self::Min if other < *score => other,
            Self::Max if other > *score => other,
            Self::Min | Self::Max => *score,
        };
    }
}

/// The score, or 0 if it is no number.
fn number(score: f64) -> f64 {
    if score.is_nan() { 0.0 } else { score }
}

/// The arguments behind the keys.
struct Options {
    weights: Option<Vec<f64>>,
    function: Function,
    scores: ScoresShown,
    /// The most members that are counted.
    limit: usize,
}

impl Options {
    fn parse(mut args: Args<'_>, kind: Kind, sources: usize) -> Result<Self, Failure<'static>> {
        let mut options = Self {
            weights: None,
            function: Function::Sum,
            scores: ScoresShown::Not,
            limit: usize::MAX,
        };
        let has_scores = kind.combination != Combination::Difference && kind.used != Use::Counted;
        while let Some(option) = args.next() {
            match option.to_ascii_lowercase().as_slice() {
                b"weights" if has_scores && args.len() >= sources => {
                    let weights = args.by_ref().take(sources).map(float::double);
                    let weights: Option<Vec<f64>> = weights.collect();
                    options.weights = Some(weights.ok_or("ERR weight value is not a float")?);
                }
                b"aggregate" if has_scores && args.len() >= 1 => {
                    let [name] = first(&mut args);
                    options.function = Function::of(name).ok_or(text::SYNTAX)?;
                }
                b"withscores" if kind.used == Use::Shown => options.scores = ScoresShown::Pairs,
                b"limit" if kind.used == Use::Counted && args.len() >= 1 => {
                    let [limit] = first(&mut args);
                    let limit = parse_integer(limit).and_then(|limit| usize::try_from(limit).ok());
                    options.limit = match limit.ok_or("ERR LIMIT can't be negative")? {
                        0 => usize::MAX,
                        limit => limit,
                    };
                }
                _ => return Err(text::SYNTAX.into()),
            }
        }
        Ok(options)
    }
}

/// The keys at the beginning of the arguments, whose number is the first one.
fn sources<'i>(args: &mut Args<'i>, name: &'static str) -> Result<Vec<&'i [u8]>, Failure<'static>> {
    let [count] = first(args);
    let count = integer(count)?;
    if count < 1 {
        let start = b"ERR at least 1 input key is needed for '";
        return Err(Failure([start, name.as_bytes(), b"' command"]));
    }
    match usize::try_from(count) {
        Ok(count) if count <= args.len() => Ok(args.by_ref().take(count).collect()),
        _ => Err(text::SYNTAX.into()),
    }
}

fn aggregate<E: Engine>(cx: &mut Context<'_, E>, mut args: Args<'_>, kind: Kind) {
    let destination = (kind.used == Use::Stored).then(|| first::<1>(&mut args)[0]);
    let keys = match sources(&mut args, kind.name) {
        Ok(keys) => keys,
        Err(failure) => return cx.reply().error(&failure.0),
    };
    let room = ReplyRoom::of(cx);
    let all = destination.into_iter().chain(keys.iter().copied());
    cx.atomically(all, |cx| {
        // Each source may be evicted once.
        attempt(cx, keys.len(), |cx, tally| {
            combine(cx, tally, kind, (destination, &keys), args, room)
        });
    });
}

/// Executes a command again, `times` at most, if a source was evicted while it was read. Prints an
/// error if it fails.
fn attempt<E: Engine>(
    cx: &mut Context<'_, E>,
    times: usize,
    mut run: impl FnMut(&mut Context<'_, E>, Tally) -> Result<(), Stop>,
) {
    let mut tally = cx.tally;
    for _ in 0..=times {
        match run(cx, tally) {
            Ok(()) => return,
            Err(Stop::Error(text)) => return cx.error(text),
            Err(Stop::Enough | Stop::Evicted) => tally = Tally::None,
        }
    }
    debug_assert!(false, "a source comes back");
    cx.error(OUT_OF_MEMORY);
}

/// Executes the command, and prints its reply if it succeeds.
fn combine<E: Engine>(
    cx: &mut Context<'_, E>,
    tally: Tally,
    kind: Kind,
    (destination, keys): (Option<&[u8]>, &[&[u8]]),
    options: Args<'_>,
    room: ReplyRoom,
) -> Result<(), Stop> {
    let mut sources = Vec::with_capacity(keys.len());
    for key in keys {
        sources.push(Source {
            key,
            len: len(cx, tally, key)?,
            weight: 1.0,
        });
    }
    let options = match Options::parse(options, kind, keys.len()) {
        Ok(options) => options,
        Err(failure) => {
            cx.reply().error(&failure.0);
            return Ok(());
        }
    };
    for (source, weight) in sources.iter_mut().zip(options.weights.iter().flatten()) {
        source.weight = *weight;
    }
    if kind.used == Use::Shown && room.is_in_transaction && cx.replies_are_cut {
        return Ok(()); // it would be computed for nothing
    }
    if kind.combination != Combination::Difference {
        // The order in which scores are added, as in Redis.
        sources.sort_by_key(|source| source.len);
    }
    drop_repeated(kind, &mut sources);
    if steps_of(kind.combination, sources.iter().map(|source| source.len)) > MOST_STEPS {
        return Err(TOO_MANY.into());
    }
    let (arena, computed) = (Bump::new(), Computed::new(cx));
    let mut result = Collected::new(&arena, &computed);
    if kind.used == Use::Counted {
        let count = count_common(cx, &sources, &computed, options.limit)?;
        cx.reply().integer(count as i64);
        return Ok(());
    }
    match kind.combination {
        Combination::Union => unite(cx, &sources, options.function, &mut result)?,
        Combination::Intersection => intersect(cx, &sources, options.function, &mut result)?,
        Combination::Difference => subtract(cx, &sources, &mut result)?,
    }
    let order = |a: &Scored<'_>, b: &Scored<'_>| {
        let scores = a.0.partial_cmp(&b.0).unwrap_or(cmp::Ordering::Equal);
        scores.then_with(|| a.1.cmp(b.1))
    };
    result.members.sort_unstable_by(order);
    match destination {
        Some(key) => store(cx, key, &mut result.members)?,
        None => room.show(cx, &Shown(&result.members), options.scores),
    }
    Ok(())
}

/// Drops sources that are named again, where only their members matter and not how often they
/// are named.
fn drop_repeated(kind: Kind, sources: &mut Vec<Source<'_>>) {
    let is_difference = kind.combination == Combination::Difference;
    if !is_difference && kind.used != Use::Counted {
        return;
    }
    let mut seen = HashSet::new();
    // The first source of a difference is no subtrahend.
    let mut is_whole = is_difference;
    sources.retain(|source| mem::take(&mut is_whole) || seen.insert(source.key));
}

// ---- costs

/// The steps that a combination takes of sources with these numbers of members.
fn steps_of(combination: Combination, lens: impl Iterator<Item = usize> + Clone) -> usize {
    let count = lens.clone().count();
    match combination {
        Combination::Union => lens.fold(0, usize::saturating_add),
        Combination::Intersection => lens.min().unwrap_or(0).saturating_mul(count),
        Combination::Difference => { lens }.next().unwrap_or(0).saturating_mul(count),
    }
}

/// The steps that a command of this name takes, whose sources have these numbers of members;
/// `None` if it is none of these commands.
pub(super) fn steps(name: &str, lens: &[usize]) -> Option<usize> {
    if name == "zrangestore" {
        return Some(lens.first().copied().unwrap_or(0));
    }
    let kind = KINDS.iter().find(|kind| kind.name == name)?;
    Some(steps_of(kind.combination, lens.iter().copied()))
}

/// The most bytes of members that such a command looks up or copies, whose sources have these
/// numbers of bytes; `None` if it is none of these commands.
pub(super) fn bytes(name: &str, of_sources: &[usize]) -> Option<usize> {
    let sum = || of_sources.iter().copied().fold(0, usize::saturating_add);
    if name == "zrangestore" {
        return Some(sum());
    }
    let kind = KINDS.iter().find(|kind| kind.name == name)?;
    Some(match kind.combination {
        Combination::Intersection if of_sources.contains(&0) => 0,
        // Of an intersection, those that are looked up in a source are members of the one before.
        Combination::Union | Combination::Intersection => sum(),
        Combination::Difference => steps_of(kind.combination, of_sources.iter().copied()),
    })
}

// ---- reading

/// The number of members of a set, 0 without one.
fn len<E: Engine>(cx: &mut Context<'_, E>, tally: Tally, key: &[u8]) -> Result<usize, Stop> {
    let op = SortedOp::Read(SortedRead::Len);
    let mut len = Ok(0);
    cx.operate(tally, key, Verb::Sorted(&op), |outcome| {
        len = match outcome {
            Outcome::Sorted {
                result: SortedResult::Number(number),
                ..
            } => Ok(usize::try_from(*number).unwrap_or(usize::MAX)),
            outcome => Err(ReplyForm::error_text(outcome).into()),
        };
    });
    len
}

/// A part of a range that was read.
struct Part {
    len: usize,
    /// Nothing is left behind it.
    is_last: bool,
}

/// Shows the next part of a range to `look`, [`PART_BYTES`] at most unless it is one member.
/// `None` without a set.
fn read_part<E: Engine>(
    cx: &mut Context<'_, E>,
    tally: Tally,
    computed: &Computed<'_>,
    (key, range): (&[u8], MemberRange<'_>),
    mut look: impl FnMut(f64, &[u8]),
) -> Result<Option<Part>, Stop> {
    let range = MemberRange {
        most: range.most.min(PART),
        ..range
    };
    let op = SortedOp::Read(SortedRead::Range(range));
    let mut shown = Ok(None);
    let (mut len, mut bytes, mut is_cut) = (0, 0, false);
    cx.operate(tally, key, Verb::Sorted(&op), |outcome| {
        shown = match outcome {
            Outcome::Sorted {
                result: SortedResult::Members(members),
                is_found,
                ..
            } => {
                members.show(&mut |member, score| {
                    is_cut = len > 0 && bytes + member.len() > PART_BYTES;
                    if !is_cut {
                        (len, bytes) = (len + 1, bytes + member.len());
                        look(score, member);
                    }
                    !is_cut
                });
                let is_last = !is_cut && len < range.most;
                Ok(is_found.then_some(Part { len, is_last }))
            }
            outcome => Err(ReplyForm::error_text(outcome).into()),
        };
    });
    computed.step(len, bytes)?;
    shown
}

/// The members of a part of a source that has more; an error if it was evicted.
fn read_len(part: Option<Part>) -> Result<usize, Stop> {
    let len = part.map_or(0, |part| part.len);
    if len == 0 {
        Err(Stop::Evicted)
    } else {
        Ok(len)
    }
}

/// Calls `look` with the members of each part of a source.
fn each_part<E: Engine>(
    cx: &mut Context<'_, E>,
    source: Source<'_>,
    computed: &Computed<'_>,
    mut look: impl FnMut(&mut Context<'_, E>, &[Scored<'_>]) -> Result<(), Stop>,
) -> Result<(), Stop> {
    let mut done = 0;
    while done < source.len {
        let arena = Bump::new();
        let mut members = Vec::with_capacity(PART);
        let part = (source.key, rest(done));
        let read = read_part(cx, Tally::None, computed, part, |score, member| {
            members.push((score, &*arena.alloc_slice_copy(member)));
        })?;
        computed.note_part(arena.allocated_bytes())?;
        done += read_len(read)?;
        look(cx, &members)?;
    }
    Ok(())
}

/// The members of a set from this rank on.
fn rest(from: usize) -> MemberRange<'static> {
    MemberRange {
        bounds: Bounds::ALL,
        direction: Direction::Ascending,
        skip: from,
        most: usize::MAX,
    }
}

/// The scores that these members have in another source.
fn scores_in<E: Engine>(
    cx: &mut Context<'_, E>,
    source: Source<'_>,
    computed: &Computed<'_>,
    members: &[Scored<'_>],
) -> Result<Vec<Option<f64>>, Stop> {
    if source.len == 0 {
        return Ok(vec![None; members.len()]);
    }
    let bytes = members.iter().map(|(_, member)| member.len()).sum();
    computed.step(members.len(), bytes)?;
    let names: Vec<&[u8]> = members.iter().map(|(_, member)| *member).collect();
    let op = SortedOp::Read(SortedRead::Scores(&names));
    let mut found = Err(Stop::Evicted);
    cx.operate(Tally::None, source.key, Verb::Sorted(&op), |outcome| {
        if let Outcome::Sorted {
            result: SortedResult::Scores(scores),
            is_found: true,
            ..
        } = outcome
        {
            let mut all = Vec::with_capacity(names.len());
            scores.show(&mut |score| all.push(score));
            found = Ok(all);
        }
    });
    found
}

// ---- combinations

fn unite<'b, E: Engine>(
    cx: &mut Context<'_, E>,
    sources: &[Source<'_>],
    function: Function,
    result: &mut Collected<'b, '_>,
) -> Result<(), Stop> {
    let arena = result.arena;
    let mut scores: HashMap<&'b [u8], f64> = HashMap::new();
    for source in sources {
        let mut done = 0;
        while done < source.len {
            let part = (source.key, rest(done));
            let read = read_part(cx, Tally::None, result.computed, part, |score, member| {
                let score = number(score * source.weight);
                match scores.get_mut(member) {
                    Some(sum) => function.apply(sum, score),
                    None => _ = scores.insert(arena.alloc_slice_copy(member), score),
                }
            })?;
            done += read_len(read)?;
            // A byte of the table tells what each entry is; and each becomes one of the result.
            let entry = 2 * size_of::<Scored<'_>>() + 1;
            let entries = scores.capacity() * entry;
            result.computed.note(arena.allocated_bytes() + entries)?;
        }
    }
    let pairs = scores.into_iter().map(|(member, score)| (score, member));
    result.members = pairs.collect();
    Ok(())
}

/// Calls `look` with the members that all sources have, a part of the smallest one at a time.
fn each_common<E: Engine>(
    cx: &mut Context<'_, E>,
    sources: &[Source<'_>],
    computed: &Computed<'_>,
    function: Function,
    mut look: impl FnMut(&[Scored<'_>]) -> Result<(), Stop>,
) -> Result<(), Stop> {
    let Some((smallest, others)) = sources.split_first() else {
        return Ok(());
    };
    each_part(cx, *smallest, computed, |cx, members| {
        let weighted = members.iter();
        let weighted = weighted.map(|(score, member)| (number(score * smallest.weight), *member));
        let mut common: Vec<Scored<'_>> = weighted.collect();
        for source in others {
            if common.is_empty() {
                break;
            }
            let mut scores = scores_in(cx, *source, computed, &common)?.into_iter();
            common.retain_mut(|(score, _)| {
                let other = scores.next().flatten();
                if let Some(other) = other {
                    // As in Redis, a product that is no number makes the sum 0, unlike in a union.
                    function.apply(score, other * source.weight);
                }
                other.is_some()
            });
        }
        look(&common)
    })
}

fn intersect<E: Engine>(
    cx: &mut Context<'_, E>,
    sources: &[Source<'_>],
    function: Function,
    result: &mut Collected<'_, '_>,
) -> Result<(), Stop> {
    each_common(cx, sources, result.computed, function, |common| {
        for (score, member) in common {
            result.push(*score, member);
        }
        result.check()
    })
}

/// The number of members that all sources have, `limit` at most.
fn count_common<E: Engine>(
    cx: &mut Context<'_, E>,
    sources: &[Source<'_>],
    computed: &Computed<'_>,
    limit: usize,
) -> Result<usize, Stop> {
    let mut count = 0;
    let counted = each_common(cx, sources, computed, Function::Sum, |common| {
        count += common.len();
        if count < limit {
            Ok(())
        } else {
            Err(Stop::Enough)
        }
    });
    match counted {
        Ok(()) | Err(Stop::Enough) => Ok(count.min(limit)),
        Err(why) => Err(why),
    }
}

fn subtract<E: Engine>(
    cx: &mut Context<'_, E>,
    sources: &[Source<'_>],
    result: &mut Collected<'_, '_>,
) -> Result<(), Stop> {
    let Some((whole, others)) = sources.split_first() else {
        return Ok(());
    };
    let computed = result.computed;
    each_part(cx, *whole, computed, |cx, members| {
        let mut left = members.to_vec();
        for source in others {
            if left.is_empty() {
                break;
            }
            let mut scores = scores_in(cx, *source, computed, &left)?.into_iter();
            left.retain(|_| scores.next().flatten().is_none());
        }
        for (score, member) in left {
            result.push(score, member);
        }
        result.check()
    })
}

// ---- results

/// The bytes that members may take in a reply.
#[derive(Clone, Copy)]
struct ReplyRoom {
    bytes: usize,
    /// Of a script or of `EXEC`, whose replies are bounded together.
    is_in_transaction: bool,
}

impl ReplyRoom {
    /// The room for the reply to a command that has not begun its own transaction.
    fn of<E: Engine>(cx: &Context<'_, E>) -> Self {
        let is_in_transaction = cx.transaction.is_some();
        let used = if is_in_transaction { cx.out.len() } else { 0 };
        Self {
            bytes: cx.most_replies().saturating_sub(used),
            is_in_transaction,
        }
    }

    /// Appends members as an array, or an error if they have no room.
    fn show<E: Engine>(self, cx: &mut Context<'_, E>, members: &dyn Members, scores: ScoresShown) {
        let (start, version) = (cx.out.len(), cx.codec.version());
        encode_members(members, scores, self.bytes, version, cx.out);
        let is_cut = cx.out[start..].starts_with(b"-");
        cx.replies_are_cut |= is_cut && self.is_in_transaction;
    }
}

/// Makes the members the set of a key, and prints their number. Without members, the key has
/// nothing afterwards.
fn store<E: Engine>(
    cx: &mut Context<'_, E>,
    key: &[u8],
    members: &mut [Scored<'_>],
) -> Result<(), Stop> {
    if members.is_empty() {
        cx.operate(Tally::None, key, Verb::Delete(Delete::default()), |_| ());
        cx.reply().integer(0);
        return Ok(());
    }
    let (slot, place) = (&SetSlot::new(), (cx.codec.database(), key));
    let mut stored = Ok(false);
    for pairs in members.chunks_mut(PART) {
        for (score, _) in &mut *pairs {
            *score += 0.0; // there is one zero in a set
        }
        stored = write_set(cx, place, SortedWrite::Gather { slot, pairs });
        if stored.is_err() {
            break;
        }
    }
    let deadline = Deadline::NEVER;
    let stored = stored.and_then(|_| write_set(cx, place, SortedWrite::Put { slot, deadline }));
    let ended = write_set(cx, place, SortedWrite::EndCopy(slot));
    stored.and(ended)?;
    cx.reply().integer(members.len() as i64);
    Ok(())
}

/// `ZRANGESTORE destination source min max [BYSCORE | BYLEX] [REV] [LIMIT offset count]`.
pub(super) fn zrangestore<E: Engine>(cx: &mut Context<'_, E>, mut args: Args<'_>) {
    let [destination, source] = first(&mut args);
    let range = match sorted::member_range(args, None, None, false) {
        Ok((range, _)) => range,
        Err(failure) => return cx.reply().error(&failure.0),
    };
    cx.atomically([destination, source], |cx| {
        attempt(cx, 1, |cx, tally| {
            store_range(cx, tally, [destination, source], range)
        });
    });
}

/// The most members that `ZRANGESTORE` stores, as far as that does not depend on the source.
pub(super) fn most_stored(mut args: Args<'_>) -> usize {
    let [_, _] = first(&mut args);
    sorted::member_range(args, None, None, false).map_or(0, |(range, _)| sorted::most_shown(&range))
}

fn store_range<E: Engine>(
    cx: &mut Context<'_, E>,
    mut tally: Tally,
    [destination, source]: [&[u8]; 2],
    mut range: MemberRange<'_>,
) -> Result<(), Stop> {
    let (arena, computed) = (Bump::new(), Computed::new(cx));
    let mut result = Collected::new(&arena, &computed);
    loop {
        // Also if there is nothing left to read: what the source is matters.
        let read = read_part(cx, tally, &computed, (source, range), |score, member| {
            result.push(score, member);
        })?;
        let Some(part) = read else {
            if result.members.is_empty() {
                break;
            }
            return Err(Stop::Evicted);
        };
        result.check()?;
        range.most -= part.len;
        range.skip = range.skip.saturating_add(part.len);
        if part.is_last || range.most == 0 {
            break;
        }
        tally = Tally::None;
    }
    store(cx, destination, &mut result.members)
}

// ---- pops

/// What `ZMPOP` pops.
struct Popped<'i> {
    keys: Vec<&'i [u8]>,
    direction: Direction,
    most: usize,
}

impl<'i> Popped<'i> {
    /// `numkeys key … MIN | MAX [COUNT count]`.
    fn parse(mut args: Args<'i>) -> Result<Self, &'static str> {
        let positive = |text| {
            let number = parse_integer(text).filter(|number| *number > 0);
            number.and_then(|number| usize::try_from(number).ok())
        };
        let [count] = first(&mut args);
        let count = positive(count).ok_or("ERR numkeys should be greater than 0")?;
        if count >= args.len() {
            return Err(text::SYNTAX);
        }
        let keys = args.by_ref().take(count).collect();
        let [end] = first(&mut args);
        let direction = match end.to_ascii_lowercase().as_slice() {
            b"min" => Direction::Ascending,
            b"max" => Direction::Descending,
            _ => return Err(text::SYNTAX),
        };
        let mut most = None;
        while let Some(option) = args.next() {
            if most.is_some() || !option.eq_ignore_ascii_case(b"count") || args.len() == 0 {
                return Err(text::SYNTAX);
            }
            let [count] = first(&mut args);
            most = Some(positive(count).ok_or("ERR count should be greater than 0")?);
        }
        Ok(Self {
            keys,
            direction,
            most: most.unwrap_or(1),
        })
    }
}

/// The most members that a request pops, as far as that does not depend on the sets.
pub(super) fn most_popped(args: Args<'_>) -> usize {
    Popped::parse(args).map_or(0, |popped| popped.most)
}

/// `ZMPOP numkeys key … MIN | MAX [COUNT count]`.
pub(super) fn zmpop<E: Engine>(cx: &mut Context<'_, E>, args: Args<'_>) {
    let popped = match Popped::parse(args) {
        Ok(popped) => popped,
        Err(text) => return cx.error(text),
    };
    let room = ReplyRoom::of(cx);
    cx.atomically(popped.keys.iter().copied(), |cx| {
        if !popped.keys.iter().any(|key| pop(cx, key, &popped, room)) {
            cx.reply().null_array();
        }
    });
}

/// Pops from the set of a key, and prints what it has popped, or an error. Returns false if there
/// is no item.
fn pop<E: Engine>(
    cx: &mut Context<'_, E>,
    key: &[u8],
    &Popped {
        direction, most, ..
    }: &Popped<'_>,
    room: ReplyRoom,
) -> bool {
    let op = SortedOp::Write(SortedWrite::Pop { direction, most });
    let (start, version) = (cx.out.len(), cx.codec.version());
    let mut out = mem::take(cx.out);
    let (mut is_over, mut is_cut) = (true, false);
    cx.operate(Tally::None, key, Verb::Sorted(&op), |outcome| {
        let mut reply = Encoder::new(version, &mut out);
        match outcome {
            Outcome::Sorted {
                is_found: false, ..
            } => is_over = false,
            Outcome::Sorted {
                result: SortedResult::Members(members),
                ..
            } => {
                reply.array(2);
                reply.bulk(key);
                let behind = out.len();
                encode_members(*members, ScoresShown::Nested, room.bytes, version, &mut out);
                is_cut = out[behind..].starts_with(b"-");
                if is_cut {
                    out.drain(start..behind);
                }
            }
            outcome => reply.error(&[ReplyForm::error_text(outcome).as_bytes()]),
        }
    });
    *cx.out = out;
    cx.replies_are_cut |= is_cut && room.is_in_transaction;
    is_over
}
