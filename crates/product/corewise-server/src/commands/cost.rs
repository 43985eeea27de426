//! What a transaction costs, before any of it is executed.
//!
//! Until a transaction ends, all connections of its loop wait, and so do other loops that execute
//! an operation on a key of one of its stripes. So `EXEC` first adds up what its requests cost at
//! most, in bytes that they read or write, and executes none of them if that is more than [`most`]
//! allows. The lengths of the values are those of the moment in which the transaction has begun,
//! and follow what its requests write.

use super::glob::Glob;
use super::table::{self, Command};
use super::{Context, aggregates, bits, filters, first, keys, keyspace, lcs, slowlog, sorted};
use crate::config::ScriptKeys;
use corewise_engine::Engine;
use corewise_ops::database::DATABASES;
use corewise_ops::filter::{
    CuckooInfo, CuckooSettings, MAX_BUCKET_SLOTS, MAX_SUBFILTERS, STEP_WORK,
};
use corewise_ops::sorted::Bounds;
use corewise_wire::Tally;
use corewise_wire::resp::{Args, RequestQueue, parse_integer};
use std::collections::HashMap;

/// The cost of a transaction, unless items may be larger than 1/8 of it: some tenths of a second.
const MOST: usize = 256 << 20;
/// A request, as the bytes that could be copied meanwhile; and each of its arguments.
const REQUEST: usize = 512;
const ARGUMENT: usize = 64;
/// An item that `KEYS` or `SCAN` visits, and each byte of a pattern that it is matched with.
const ITEM: usize = 64;
const PATTERN_BYTE: usize = 32;
/// A reply of a command without keys, unless it is fast.
const REPORT: usize = 64 << 10;
/// What a reply on the server adds up for each loop.
const LOOP: usize = 8 << 10;
/// A reply on all commands.
const LONG_REPORT: usize = 1 << 20;
/// A client in a reply, or which is looked for.
const CLIENT: usize = 1 << 10;
/// What a set takes for a member, beside twice its length.
const MEMBER: usize = 128;
/// The removal of a member with others, and a member drawn at random: reads of memory that is in no
/// cache, as the bytes that could be copied meanwhile.
const REMOVED: usize = 2 << 10;
const DRAWN: usize = 512;
/// The removal of a key by `FLUSHDB`.
const REMOVED_KEY: usize = 512;
/// A step of the match of a member with a pattern, and each byte of a pattern that is prepared.
const MATCH_STEP: usize = 2;
const PREPARED_BYTE: usize = 256;
/// The least that a large set takes for a member.
const LEAST_MEMBER: usize = 32;
/// A bucket of a filter that is read: memory that is in no cache; and each of its words.
const BUCKET: usize = 64;
const BUCKET_WORD: usize = 2;
/// A unit of the work of a compaction: a word, or a bucket of one word.
const COMPACTED: usize = 64;
/// The longest result of arithmetic: that of `INCRBYFLOAT`.
const LONGEST_NUMBER: usize = 8 << 10;

/// A key of a database.
type Place<'q> = (u8, &'q [u8]);

/// The most that a transaction may cost.
fn most<E: Engine>(cx: &Context<'_, E>) -> usize {
    MOST.max(cx.shared.config.max_item_size.saturating_mul(8))
}

/// Whether the requests of the transaction that has begun cost more than they may.
pub(super) fn is_too_high<E: Engine>(cx: &mut Context<'_, E>, requests: &RequestQueue) -> bool {
    let mut known = Lengths {
        strings: Some(HashMap::new()),
        ..Lengths::default()
    };
    // Nearly all transactions are cheap, whatever the lengths of their values are.
    let selected = cx.codec.database();
    let mut is_above = is_above_most(cx, requests, &mut Lengths::default());
    cx.codec.set_database(selected);
    if is_above {
        is_above = is_above_most(cx, requests, &mut known);
        cx.codec.set_database(selected);
    }
    is_above
}

fn is_above_most<'q, E: Engine>(
    cx: &mut Context<'_, E>,
    requests: &'q RequestQueue,
    lengths: &mut Lengths<'q>,
) -> bool {
    let mut left = most(cx);
    let any = |is_one: fn(&Command) -> bool| {
        let mut commands = requests
            .iter()
            .filter_map(|request| table::find(request.name()));
        commands.any(|command| is_one(&command))
    };
    lengths.removes = any(removes_many);
    // A script that has all keys may select, too.
    lengths.selects = any(|command| matches!(command.name, "copy" | "move" | "select"))
        || (cx.shared.config.script_keys == ScriptKeys::All && any(|command| command.is_script()));
    lengths.sets =
        any(|command| writes_several(command) || command.name == "zscan").then(HashMap::new);
    lengths.makes_filters = any(|command| {
        writes_several(command) || matches!(command.name, "cf.reserve" | "cf.loadchunk")
    });
    lengths.grows_filters = any(inserts);
    for request in requests.iter() {
        let Some(command) = table::find_exactly(request) else {
            continue;
        };
        let cost = cost(cx, command, request.args(), lengths);
        let Some(rest) = left.checked_sub(cost) else {
            return true;
        };
        left = rest;
        lengths.follow(cx, command, request.args());
        let (selected, databases) = (cx.codec.database(), cx.shared.config.databases);
        let selected = command.database_after(request.args(), selected, databases);
        cx.codec.set_database(selected);
    }
    false
}

// What follows from the rows of the table is also right for commands that are not named here.

/// Whether a command may remove more members of sets than it names.
fn removes_many(command: &Command) -> bool {
    is_of_sets(command)
        && command.has_flag("write")
        && !command.has_flag("denyoom")
        && command.name != "zrem"
}

/// Whether a command inserts items into a filter.
fn inserts(command: &Command) -> bool {
    matches!(
        command.name,
        "cf.add" | "cf.addnx" | "cf.insert" | "cf.insertnx"
    )
}

fn is_of_sets(command: &Command) -> bool {
    command.group.starts_with("sortedset")
}

/// Whether a command may give a key what another has.
fn writes_several(command: &Command) -> bool {
    command.has_flag("write") && (command.keys.len() > 1 || command.name == "move")
}

/// Whether a command may read or copy the whole value of a key that it writes, or of another: those
/// that Redis does not call fast, and three that are fast in Redis only.
fn rewrites(command: &Command) -> bool {
    let is_read = |flags: &str| flags.contains("RW") || flags.contains("access");
    let is_slow = command.has_flag("write") && !command.has_flag("fast");
    is_slow && command.keys.iter().any(|(flags, _)| is_read(flags))
        || matches!(command.name, "append" | "move" | "renamenx")
}

/// The lengths of values.
#[derive(Default)]
struct Lengths<'q> {
    /// Of those strings that were asked for; each may be the longest if there is no map.
    strings: Option<HashMap<Place<'q>, usize>>,
    /// The bytes of sets, if the transaction copies, moves or scans any.
    sets: Option<HashMap<Place<'q>, usize>>,
    /// The transaction may make filters, whose settings are not known.
    makes_filters: bool,
    /// The transaction may let filters grow.
    grows_filters: bool,
    /// The transaction may use several databases.
    selects: bool,
    /// The transaction removes members that others of its requests may add.
    removes: bool,
    /// Members that requests before may have added, to all sets, and the bytes of these.
    added: usize,
    added_bytes: usize,
}

impl<'q> Lengths<'q> {
    fn of_set<E: Engine>(&mut self, cx: &mut Context<'_, E>, key: Place<'q>) -> usize {
        match &mut self.sets {
            None => 0,
            Some(sets) => *sets.entry(key).or_insert_with(|| set_bytes(cx, key)),
        }
    }

    /// The members of a set within the bounds, at most.
    fn members<E: Engine>(
        &mut self,
        cx: &mut Context<'_, E>,
        key: Place<'q>,
        bounds: Bounds<'_>,
    ) -> usize {
        match self.sets {
            None => cx.in_database(key.0, |cx| keyspace::members_within(cx, key.1, bounds)),
            Some(_) => self.of_set(cx, key).div_ceil(LEAST_MEMBER),
        }
    }

    /// What a request on sorted sets costs beside its arguments and its reply.
    fn of_members<E: Engine>(
        &mut self,
        cx: &mut Context<'_, E>,
        command: Command,
        mut args: Args<'q>,
    ) -> usize {
        let whole = args;
        if let Some(cost) = self.of_aggregate(cx, command, whole) {
            return cost;
        }
        let [key, number] = first(&mut args);
        let key = (cx.codec.database(), key);
        match command.name {
            "zscan" => {
                let pattern =
                    keys::ScanOptions::parse(args, false).map_or(&b"*"[..], |o| o.pattern);
                let most = keys::ENOUGH_BYTES + cx.shared.config.max_item_size;
                let steps = Glob::new(pattern).steps(self.of_set(cx, key).min(most));
                let of_each = keys::scan_items(whole).saturating_mul(ITEM + pattern.len());
                of_each
                    .saturating_add(steps.saturating_mul(MATCH_STEP))
                    .saturating_add(pattern.len() * PREPARED_BYTE)
            }
            // One that is added may be removed later, once.
            "zadd" | "zincrby" if self.removes => (whole.len() / 2).saturating_mul(REMOVED),
            "zpopmax" | "zpopmin" if whole.len() > 1 => {
                let most = parse_integer(number).unwrap_or(0).max(0) as usize;
                let members = self.members(cx, key, Bounds::ALL);
                most.min(members).saturating_mul(REMOVED)
            }
            "zmpop" => match aggregates::most_popped(whole) {
                0 | 1 => 0,
                most => {
                    let keys = places_of(cx, command, whole);
                    let members = keys.map(|key| self.members(cx, key, Bounds::ALL)).sum();
                    most.min(members).saturating_mul(REMOVED)
                }
            },
            // With more arguments it is no request.
            "zrandmember" if (2..=3).contains(&whole.len()) => {
                let count = parse_integer(number).unwrap_or(0);
                let drawn = usize::try_from(count.unsigned_abs()).unwrap_or(usize::MAX);
                let members = self.members(cx, key, Bounds::ALL);
                let most = match (count, members.saturating_add(self.added)) {
                    (_, 0) => 0,
                    (..0, _) => usize::MAX,
                    (_, members) => members,
                };
                drawn.min(most).saturating_mul(DRAWN)
            }
            name => {
                let members = match sorted::removed_range(name, whole) {
                    Some(bounds) => self.members(cx, key, bounds),
                    None if rewrites(&command) => {
                        let keys = places_of(cx, command, whole);
                        keys.map(|key| self.members(cx, key, Bounds::ALL)).sum()
                    }
                    None => 0,
                };
                members.saturating_mul(REMOVED)
            }
        }
    }

    /// What a command costs that combines sets, or stores a part of one.
    fn of_aggregate<E: Engine>(
        &mut self,
        cx: &mut Context<'_, E>,
        command: Command,
        args: Args<'q>,
    ) -> Option<usize> {
        aggregates::steps(command.name, &[])?;
        let stored = match command.name {
            "zrangestore" => aggregates::most_stored(args),
            _ => usize::MAX,
        };
        // The sizes of sets that are followed include what was added.
        let is_followed = self.sets.is_some();
        let (added, added_bytes) = if is_followed {
            (0, 0)
        } else {
            (self.added, self.added_bytes)
        };
        let sources = places_of(cx, command, args).skip(writes_several(&command).into());
        let (lens, bytes): (Vec<usize>, Vec<usize>) = sources
            .map(|key| {
                let len = self.members(cx, key, Bounds::ALL).saturating_add(added);
                let bytes = if is_followed {
                    self.of_set(cx, key)
                } else {
                    set_bytes(cx, key)
                };
                (len, bytes.saturating_add(added_bytes))
            })
            .unzip();
        let steps = aggregates::steps(command.name, &lens)?.min(stored);
        let longest = stored.saturating_mul(cx.shared.config.max_item_size);
        let bytes = aggregates::bytes(command.name, &bytes)?.min(longest);
        Some(bytes.max(steps.saturating_mul(aggregates::STEP)))
    }

    /// Notes how large the sets may be that a request writes.
    fn follow_sets<E: Engine>(
        &mut self,
        cx: &mut Context<'_, E>,
        command: Command,
        args: Args<'q>,
    ) {
        let (database, databases) = (cx.codec.database(), cx.shared.config.databases);
        let keys = || command.places_of(args, database, databases);
        let (mut largest, mut added) = (0, 0);
        if is_of_sets(&command) && command.has_flag("denyoom") {
            self.added += args.len() / 2;
            added = args.map(|arg| MEMBER + 2 * arg.len()).sum();
            self.added_bytes += added;
        } else if !writes_several(&command) {
            return;
        }
        if self.sets.is_none() {
            return;
        }
        let mut written = usize::MAX;
        if is_of_sets(&command) && writes_several(&command) {
            // The destination gets the members of all sources at most.
            let sources = keys().skip(1).map(|key| self.of_set(cx, key));
            largest = sources.fold(0, usize::saturating_add);
            written = 1;
        } else if writes_several(&command) {
            largest = keys().map(|key| self.of_set(cx, key)).max().unwrap_or(0);
        }
        for key in keys().take(written) {
            let after = self.of_set(cx, key).max(largest).saturating_add(added);
            if let Some(sets) = &mut self.sets {
                sets.insert(key, after);
            }
        }
    }

    fn of<E: Engine>(&mut self, cx: &mut Context<'_, E>, key: Place<'q>) -> usize {
        match &mut self.strings {
            None => cx.shared.config.max_item_size,
            Some(lengths) => *lengths.entry(key).or_insert_with(|| {
                let mut len = 0;
                cx.in_database(key.0, |cx| {
                    cx.peek(Tally::None, key.1, |item| {
                        len = item.map_or(0, |item| item.value.len())
                    });
                });
                len
            }),
        }
    }

    fn longest<E: Engine>(
        &mut self,
        cx: &mut Context<'_, E>,
        keys: impl Iterator<Item = Place<'q>>,
    ) -> usize {
        keys.map(|key| self.of(cx, key)).max().unwrap_or(0)
    }

    /// Notes how long the values may be that a request writes.
    fn follow<E: Engine>(&mut self, cx: &mut Context<'_, E>, command: Command, args: Args<'q>) {
        self.follow_sets(cx, command, args);
        if self.strings.is_none() {
            return;
        }
        let mut words = args;
        let [_, second, third] = first(&mut words);
        let number = |text| parse_integer(text).unwrap_or(0).max(0) as usize;
        let is_appended = command.name == "append";
        let written = match command.name {
            "append" => second.len(),
            "setrange" => number(second).saturating_add(third.len()),
            "setbit" => number(second) / 8 + 1,
            "bitfield" => bits::written_bytes(args),
            _ if writes_several(&command) => {
                let keys = places_of(cx, command, args);
                self.longest(cx, keys)
            }
            _ if command.has_flag("denyoom") => {
                let longest = args.map(<[u8]>::len).max().unwrap_or(0);
                longest.max(LONGEST_NUMBER)
            }
            _ => return,
        };
        let most = cx.shared.config.max_item_size;
        for key in places_of(cx, command, args) {
            let before = self.of(cx, key);
            let after = if is_appended {
                before + written
            } else {
                before.max(written)
            };
            if let Some(lengths) = &mut self.strings {
                lengths.insert(key, after.min(most));
            }
        }
    }
}

/// The bytes that `GETRANGE` with these arguments reads of a long value.
fn range_len(mut args: Args<'_>) -> usize {
    let [_, start, end] = first(&mut args);
    match (parse_integer(start), parse_integer(end)) {
        (Some(start @ 0..), Some(end @ 0..)) => end.saturating_sub(start).max(0) as usize + 1,
        _ => usize::MAX,
    }
}

/// The bytes of the sorted set of a key, 0 if it has none. They may be more than the largest item.
fn set_bytes<E: Engine>(cx: &mut Context<'_, E>, (database, key): Place<'_>) -> usize {
    if cx.engine.stats().set_bytes == 0 {
        return 0;
    }
    let bytes = cx.in_database(database, |cx| keyspace::set_usage(cx, key));
    usize::try_from(bytes.unwrap_or(0)).unwrap_or(usize::MAX)
}

/// The keys of a request, each with its database.
fn places_of<'q, E: Engine>(
    cx: &Context<'_, E>,
    command: Command,
    args: Args<'q>,
) -> impl Iterator<Item = Place<'q>> + use<'q, E> {
    command.places_of(args, cx.codec.database(), cx.shared.config.databases)
}

/// Whether database 0 is selected, and no other one has keys.
fn is_alone<E: Engine>(cx: &Context<'_, E>) -> bool {
    let stats = cx.engine.stats();
    cx.codec.database() == 0 && (1..DATABASES as u8).all(|other| stats.is_empty(other))
}

/// The bytes that a walk over all keys costs.
fn walk<E: Engine>(cx: &Context<'_, E>, of_each: usize) -> usize {
    let items = usize::try_from(cx.engine.stats().items).unwrap_or(usize::MAX);
    items.saturating_mul(of_each)
}

/// What a request on objects costs, but for the members of sets that it removes.
fn of_object<'q, E: Engine>(
    cx: &mut Context<'_, E>,
    command: Command,
    args: Args<'q>,
    lengths: &mut Lengths<'q>,
) -> usize {
    match (command.name, places_of(cx, command, args).next()) {
        ("copy" | "move", Some(key)) => lengths.of_set(cx, key),
        (_, Some((_, key))) if is_of_items(&command) => {
            let is_known = !lengths.makes_filters && !lengths.selects;
            let known = is_known.then(|| filters::known(cx, key));
            of_filter(command, args, known, lengths.grows_filters)
        }
        // A range of a set reads no more than it prints, as a part of a dump, and all that a
        // transaction prints is bounded by `Context::most_replies`.
        _ => 0,
    }
}

/// Whether a command looks for items in a filter, or moves them.
fn is_of_items(command: &Command) -> bool {
    let name = command.name;
    inserts(command)
        || matches!(
            name,
            "cf.compact" | "cf.count" | "cf.del" | "cf.exists" | "cf.mexists"
        )
}

/// What a request costs that looks for items in a filter, or moves them. `known` is what is known
/// of the filter, which may be that there is none.
fn of_filter(
    command: Command,
    args: Args<'_>,
    known: Option<Option<CuckooInfo>>,
    grows: bool,
) -> usize {
    let default = CuckooSettings::default();
    let (swaps, bucket_slots) = match known {
        None => (u16::MAX, MAX_BUCKET_SLOTS),
        Some(None) => (default.max_iterations, default.bucket_slots),
        Some(Some(info)) => (info.max_iterations, info.bucket_slots),
    };
    let words = usize::from(bucket_slots).div_ceil(8);
    let bucket = BUCKET + BUCKET_WORD * words;
    // A request before may have let it grow.
    let look = 2 * MAX_SUBFILTERS * bucket;
    let compaction = || {
        let work = match known {
            _ if grows => STEP_WORK,
            None => STEP_WORK,
            Some(None) => 0,
            Some(Some(info)) if info.subfilters == 1 => 0,
            // Each slot has a fingerprint, and all older subfilters are full.
            Some(Some(info)) => {
                let of_each = (2 * info.subfilters).saturating_mul(words as u64);
                info.size.saturating_mul(of_each).min(STEP_WORK)
            }
        };
        work as usize * COMPACTED
    };
    match command.name {
        "cf.compact" => compaction(),
        "cf.del" => look + compaction(),
        _ if inserts(&command) => args
            .len()
            .saturating_mul(look + usize::from(swaps) * bucket),
        _ => args.len().saturating_mul(look),
    }
}

/// What a request costs at most.
fn cost<'q, E: Engine>(
    cx: &mut Context<'_, E>,
    command: Command,
    args: Args<'q>,
    lengths: &mut Lengths<'q>,
) -> usize {
    let words = args.map(|arg| ARGUMENT + arg.len()).sum::<usize>();
    let clients = || cx.shared.open_connections().saturating_mul(CLIENT);
    let copied = of_object(cx, command, args, lengths);
    let extra = match command.name {
        "bitcount" | "bitpos" => {
            let keys = places_of(cx, command, args);
            lengths.longest(cx, keys) / 4
        }
        "getrange" | "substr" => {
            let keys = places_of(cx, command, args);
            let len = lengths.longest(cx, keys);
            len.min(range_len(args))
        }
        "lcs" => {
            let database = cx.codec.database();
            let [a, b] = first(&mut { args }).map(|key| lengths.of(cx, (database, key)));
            a + b + lcs::cost(a, b)
        }
        "keys" => {
            let pattern = args.last().filter(|pattern| *pattern != b"*");
            let pattern = pattern.map_or(0, |pattern| pattern.len() * PATTERN_BYTE);
            walk(cx, ITEM + pattern)
        }
        "randomkey" if lengths.selects || !is_alone(cx) => walk(cx, ITEM),
        "flushdb" if lengths.selects || !is_alone(cx) => walk(cx, ITEM + REMOVED_KEY),
        "scan" => keys::scan_items(args).saturating_mul(ITEM + words * PATTERN_BYTE),
        "client|kill" | "client|list" | "client|tracking" => clients(),
        "command" | "command|docs" | "command|info" | "command|list" => LONG_REPORT,
        "dbsize" => REPORT,
        "info" | "config|resetstat" => {
            REPORT.saturating_mul(2) + cx.shared.loops.len().saturating_mul(LOOP)
        }
        "slowlog|get" => slowlog::most_bytes(args),
        // Without options it reads nothing.
        "set" if args.len() == 2 => 0,
        _ if is_of_sets(&command) => lengths.of_members(cx, command, args),
        // They read no strings.
        _ if command.group == "module" => 0,
        _ if command.reads_strings() => {
            let keys = places_of(cx, command, args);
            keys.map(|key| lengths.of(cx, key)).sum()
        }
        _ if rewrites(&command) => {
            // Several copies of a value that is changed.
            let keys = places_of(cx, command, args).map(|key| lengths.of(cx, key));
            keys.sum::<usize>().saturating_mul(2)
        }
        _ if command.keys.is_empty() && !command.has_flag("fast") => REPORT,
        _ => 0,
    };
    extra.saturating_add(copied).saturating_add(REQUEST + words)
}
