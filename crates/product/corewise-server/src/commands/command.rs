//! `COMMAND`: what clients and proxies ask about commands.

use super::table::{self, Command};
use super::{Context, first, glob, text};
use corewise_cache::Engine;
use corewise_wire::resp::{Args, Encoder};

/// Where a command has keys: the position of the first, of the last from the first (from the end,
/// if negative), and their distance.
type Place = [i8; 3];

/// What Redis 7.0 tells of a command or subcommand, beside its name. Words are separated by
/// blanks.
#[derive(Clone, Copy, Debug)]
struct Facts {
    /// A subcommand's name begins with its command's and `|`.
    name: &'static str,
    /// As [`Command::arity`].
    arity: i8,
    flags: &'static str,
    categories: &'static str,
    tips: &'static str,
    /// What the command does with keys, and where they are.
    keys: &'static [(&'static str, Place)],
}

const fn facts(
    name: &'static str,
    arity: i8,
    flags: &'static str,
    categories: &'static str,
    tips: &'static str,
    keys: &'static [(&'static str, Place)],
) -> Facts {
    Facts {
        name,
        arity,
        flags,
        categories,
        tips,
        keys,
    }
}

/// The most names in one `COMMAND INFO` or `COMMAND DOCS`, whose replies are much longer than the
/// request.
const MAX_NAMES: usize = 256;
const _: () = assert!(FACTS.len() <= MAX_NAMES);

/// Sorted by name. There are facts on more commands than exist.
#[rustfmt::skip]
const FACTS: &[Facts] = &[
    facts("append", 3, "write denyoom fast", "write string fast", "", &[("RW insert", [1, 0, 1])]),
    facts("auth", -2, "noscript loading stale fast no_auth allow_busy", "fast connection", "", &[]),
    facts("bitcount", -2, "readonly", "read bitmap slow", "", &[("RO access", [1, 0, 1])]),
    facts("bitfield", -2, "write denyoom", "write bitmap slow", "", &[("RW access update variable_flags", [1, 0, 1])]),
    facts("bitfield_ro", -2, "readonly fast", "read bitmap fast", "", &[("RO access", [1, 0, 1])]),
    facts("bitop", -4, "write denyoom", "write bitmap slow", "", &[("OW update", [2, 0, 1]), ("RO access", [3, -1, 1])]),
    facts("bitpos", -3, "readonly", "read bitmap slow", "", &[("RO access", [1, 0, 1])]),
    facts("client", -2, "", "slow", "", &[]),
    facts("client|getname", 2, "noscript loading stale", "slow connection", "", &[]),
    facts("client|help", 2, "loading stale", "slow connection", "", &[]),
    facts("client|id", 2, "noscript loading stale", "slow connection", "", &[]),
    facts("client|info", 2, "noscript loading stale", "slow connection", "nondeterministic_output", &[]),
    facts("client|kill", -3, "admin noscript loading stale", "admin slow dangerous connection", "", &[]),
    facts("client|list", -2, "admin noscript loading stale", "admin slow dangerous connection", "nondeterministic_output", &[]),
    facts("client|no-evict", 3, "admin noscript loading stale", "admin slow dangerous connection", "", &[]),
    facts("client|reply", 3, "noscript loading stale", "slow connection", "", &[]),
    facts("client|setname", 3, "noscript loading stale", "slow connection", "", &[]),
    facts("client|unblock", -3, "admin noscript loading stale", "admin slow dangerous connection", "", &[]),
    facts("command", -1, "loading stale", "slow connection", "nondeterministic_output_order", &[]),
    facts("command|count", 2, "loading stale", "slow connection", "", &[]),
    facts("command|docs", -2, "loading stale", "slow connection", "nondeterministic_output_order", &[]),
    facts("command|getkeys", -4, "loading stale", "slow connection", "", &[]),
    facts("command|help", 2, "loading stale", "slow connection", "", &[]),
    facts("command|info", -2, "loading stale", "slow connection", "nondeterministic_output_order", &[]),
    facts("command|list", -2, "loading stale", "slow connection", "nondeterministic_output_order", &[]),
    facts("config", -2, "", "slow", "", &[]),
    facts("config|get", -3, "admin noscript loading stale", "admin slow dangerous", "", &[]),
    facts("config|help", 2, "loading stale", "slow", "", &[]),
    facts("config|resetstat", 2, "admin noscript loading stale", "admin slow dangerous", "", &[]),
    facts("config|set", -4, "admin noscript loading stale", "admin slow dangerous", "request_policy:all_nodes response_policy:all_succeeded", &[]),
    facts("copy", -3, "write denyoom", "keyspace write slow", "", &[("RO access", [1, 0, 1]), ("OW update", [2, 0, 1])]),
    facts("dbsize", 1, "readonly fast", "keyspace read fast", "request_policy:all_shards response_policy:agg_sum", &[]),
    facts("decr", 2, "write denyoom fast", "write string fast", "", &[("RW access update", [1, 0, 1])]),
    facts("decrby", 3, "write denyoom fast", "write string fast", "", &[("RW access update", [1, 0, 1])]),
    facts("del", -2, "write", "keyspace write slow", "request_policy:multi_shard response_policy:agg_sum", &[("RM delete", [1, -1, 1])]),
    facts("discard", 1, "noscript loading stale fast allow_busy", "fast transaction", "", &[]),
    facts("echo", 2, "loading stale fast", "fast connection", "", &[]),
    facts("exec", 1, "noscript loading stale skip_slowlog", "slow transaction", "", &[]),
    facts("exists", -2, "readonly fast", "keyspace read fast", "request_policy:multi_shard response_policy:agg_sum", &[("RO", [1, -1, 1])]),
    facts("expire", -3, "write fast", "keyspace write fast", "", &[("RW update", [1, 0, 1])]),
    facts("expireat", -3, "write fast", "keyspace write fast", "", &[("RW update", [1, 0, 1])]),
    facts("expiretime", 2, "readonly fast", "keyspace read fast", "", &[("RO access", [1, 0, 1])]),
    facts("flushall", -1, "write", "keyspace write slow dangerous", "request_policy:all_shards response_policy:all_succeeded", &[]),
    facts("flushdb", -1, "write", "keyspace write slow dangerous", "request_policy:all_shards response_policy:all_succeeded", &[]),
    facts("get", 2, "readonly fast", "read string fast", "", &[("RO access", [1, 0, 1])]),
    facts("getbit", 3, "readonly fast", "read bitmap fast", "", &[("RO access", [1, 0, 1])]),
    facts("getdel", 2, "write fast", "write string fast", "", &[("RW access delete", [1, 0, 1])]),
    facts("getex", -2, "write fast", "write string fast", "", &[("RW access update", [1, 0, 1])]),
    facts("getrange", 4, "readonly", "read string slow", "", &[("RO access", [1, 0, 1])]),
    facts("getset", 3, "write denyoom fast", "write string fast", "", &[("RW access update", [1, 0, 1])]),
    facts("hello", -1, "noscript loading stale fast no_auth allow_busy", "fast connection", "", &[]),
    facts("incr", 2, "write denyoom fast", "write string fast", "", &[("RW access update", [1, 0, 1])]),
    facts("incrby", 3, "write denyoom fast", "write string fast", "", &[("RW access update", [1, 0, 1])]),
    facts("incrbyfloat", 3, "write denyoom fast", "write string fast", "", &[("RW access update", [1, 0, 1])]),
    facts("info", -1, "loading stale", "slow dangerous", "nondeterministic_output request_policy:all_shards response_policy:special", &[]),
    facts("keys", 2, "readonly", "keyspace read slow dangerous", "request_policy:all_shards nondeterministic_output_order", &[]),
    facts("lcs", -3, "readonly", "read string slow", "", &[("RO access", [1, 1, 1])]),
    facts("memory", -2, "", "slow", "", &[]),
    facts("memory|help", 2, "loading stale", "slow", "", &[]),
    facts("memory|usage", -3, "readonly", "read slow", "", &[("RO", [2, 0, 1])]),
    facts("mget", -2, "readonly fast", "read string fast", "request_policy:multi_shard", &[("RO access", [1, -1, 1])]),
    facts("mset", -3, "write denyoom", "write string slow", "request_policy:multi_shard response_policy:all_succeeded", &[("OW update", [1, -1, 2])]),
    facts("msetnx", -3, "write denyoom", "write string slow", "request_policy:multi_shard response_policy:agg_min", &[("OW insert", [1, -1, 2])]),
    facts("multi", 1, "noscript loading stale fast allow_busy", "fast transaction", "", &[]),
    facts("object", -2, "", "slow", "", &[]),
    facts("object|encoding", 3, "readonly", "keyspace read slow", "nondeterministic_output", &[("RO", [2, 0, 1])]),
    facts("object|freq", 3, "readonly", "keyspace read slow", "nondeterministic_output", &[("RO", [2, 0, 1])]),
    facts("object|help", 2, "loading stale", "keyspace slow", "", &[]),
    facts("object|idletime", 3, "readonly", "keyspace read slow", "nondeterministic_output", &[("RO", [2, 0, 1])]),
    facts("object|refcount", 3, "readonly", "keyspace read slow", "nondeterministic_output", &[("RO", [2, 0, 1])]),
    facts("persist", 2, "write fast", "keyspace write fast", "", &[("RW update", [1, 0, 1])]),
    facts("pexpire", -3, "write fast", "keyspace write fast", "", &[("RW update", [1, 0, 1])]),
    facts("pexpireat", -3, "write fast", "keyspace write fast", "", &[("RW update", [1, 0, 1])]),
    facts("pexpiretime", 2, "readonly fast", "keyspace read fast", "", &[("RO access", [1, 0, 1])]),
    facts("ping", -1, "fast", "fast connection", "request_policy:all_shards response_policy:all_succeeded", &[]),
    facts("psetex", 4, "write denyoom", "write string slow", "", &[("OW update", [1, 0, 1])]),
    facts("pttl", 2, "readonly fast", "keyspace read fast", "nondeterministic_output", &[("RO access", [1, 0, 1])]),
    facts("quit", -1, "noscript loading stale fast no_auth allow_busy", "fast connection", "", &[]),
    facts("randomkey", 1, "readonly", "keyspace read slow", "request_policy:all_shards nondeterministic_output", &[]),
    facts("rename", 3, "write", "keyspace write slow", "", &[("RW access delete", [1, 0, 1]), ("OW update", [2, 0, 1])]),
    facts("renamenx", 3, "write fast", "keyspace write fast", "", &[("RW access delete", [1, 0, 1]), ("OW insert", [2, 0, 1])]),
    facts("reset", 1, "noscript loading stale fast no_auth allow_busy", "fast connection", "", &[]),
    facts("scan", -2, "readonly", "keyspace read slow", "nondeterministic_output request_policy:special", &[]),
    facts("select", 2, "loading stale fast", "fast connection", "", &[]),
    facts("set", -3, "write denyoom", "write string slow", "", &[("RW access update variable_flags", [1, 0, 1])]),
    facts("setbit", 4, "write denyoom", "write bitmap slow", "", &[("RW access update", [1, 0, 1])]),
    facts("setex", 4, "write denyoom", "write string slow", "", &[("OW update", [1, 0, 1])]),
    facts("setnx", 3, "write denyoom fast", "write string fast", "", &[("OW insert", [1, 0, 1])]),
    facts("setrange", 4, "write denyoom", "write string slow", "", &[("RW update", [1, 0, 1])]),
    facts("strlen", 2, "readonly fast", "read string fast", "", &[("RO", [1, 0, 1])]),
    facts("substr", 4, "readonly", "read string slow", "", &[("RO access", [1, 0, 1])]),
    facts("time", 1, "loading stale fast", "fast", "nondeterministic_output", &[]),
    facts("touch", -2, "readonly fast", "keyspace read fast", "request_policy:multi_shard response_policy:agg_sum", &[("RO", [1, -1, 1])]),
    facts("ttl", 2, "readonly fast", "keyspace read fast", "nondeterministic_output", &[("RO access", [1, 0, 1])]),
    facts("type", 2, "readonly fast", "keyspace read fast", "", &[("RO", [1, 0, 1])]),
    facts("unlink", -2, "write fast", "keyspace write fast", "request_policy:multi_shard response_policy:agg_sum", &[("RM delete", [1, -1, 1])]),
    facts("unwatch", 1, "noscript loading stale fast allow_busy", "fast transaction", "", &[]),
    facts("watch", -2, "noscript loading stale fast allow_busy", "fast transaction", "", &[("RO", [1, -1, 1])]),
];

/// The facts on a command or subcommand, in lower case.
fn find(name: &str) -> Option<&'static Facts> {
    let at = FACTS.binary_search_by(|facts| facts.name.cmp(name)).ok()?;
    FACTS.get(at)
}

fn words(text: &'static str) -> std::str::SplitAsciiWhitespace<'static> {
    text.split_ascii_whitespace()
}

impl Facts {
    /// The facts on its subcommands.
    fn subcommands(&self) -> impl Iterator<Item = &'static Facts> + Clone {
        let name = self.name;
        FACTS.iter().filter(move |facts| {
            let rest = facts.name.strip_prefix(name);
            rest.is_some_and(|rest| rest.starts_with('|'))
        })
    }

    /// Positions of the first key, of the last (from the end, if negative), and their distance.
    fn range(&self) -> Place {
        match self.keys {
            [] => [0, 0, 0],
            [(_, [start, _, step]), ..] => {
                let last = self.keys.last().map_or(
                    0,
                    |(_, [start, last, _])| {
                        if *last < 0 { *last } else { start + last }
                    },
                );
                [*start, last, *step]
            }
        }
    }

    /// Prints the facts. The keys of its requests are at `range`.
    fn print(&self, range: Place, reply: &mut Encoder<'_>) {
        reply.array(10);
        reply.bulk(self.name.as_bytes());
        reply.integer(i64::from(self.arity));
        print_flags(reply, self.flags);
        range.iter().for_each(|at| reply.integer(i64::from(*at)));
        reply.set(words(self.categories).count());
        words(self.categories).for_each(|word| reply.simple(&format!("@{word}")));
        reply.set(words(self.tips).count());
        words(self.tips).for_each(|word| reply.bulk(word.as_bytes()));
        reply.set(self.keys.len());
        self.keys
            .iter()
            .for_each(|(flags, place)| print_keys(reply, flags, *place));
        let subcommands = self.subcommands();
        match subcommands.clone().count() {
            0 => reply.set(0), // as in Redis
            count => reply.array(count),
        }
        subcommands.for_each(|facts| facts.print(facts.range(), reply));
    }
}

fn print_flags(reply: &mut Encoder<'_>, flags: &'static str) {
    reply.set(words(flags).count());
    words(flags).for_each(|flag| reply.simple(flag));
}

/// Prints where a command has keys.
fn print_keys(reply: &mut Encoder<'_>, flags: &'static str, [start, last, step]: Place) {
    reply.map(3);
    reply.bulk(b"flags");
    print_flags(reply, flags);
    for (field, kind) in [("begin_search", "index"), ("find_keys", "range")] {
        reply.bulk(field.as_bytes());
        reply.map(2);
        reply.bulk(b"type");
        reply.bulk(kind.as_bytes());
        reply.bulk(b"spec");
        let numbers: &[(&str, i8)] = if kind == "index" {
            &[("index", start)]
        } else {
            &[("lastkey", last), ("keystep", step), ("limit", 0)]
        };
        reply.map(numbers.len());
        for (name, number) in numbers {
            reply.bulk(name.as_bytes());
            reply.integer(i64::from(*number));
        }
    }
}

/// The facts on a command or subcommand that exists, by its name in any case.
fn existing<E: Engine>(name: &[u8]) -> Option<&'static Facts> {
    let name = name.to_ascii_lowercase();
    let command = name.split(|byte| *byte == b'|').next()?;
    table::find::<E>(command)?;
    find(std::str::from_utf8(&name).ok()?)
}

/// What is wrong with the subcommand of a request.
pub(super) enum Wrong {
    /// There is none of this name.
    Unknown,
    /// The one of this name does not take this number of arguments.
    Arguments(&'static str),
}

/// Checks the subcommand of a request for this command, and the number of its arguments.
pub(super) fn check_subcommand<E: Engine>(
    command: &Command<E>,
    mut args: Args<'_>,
) -> Result<(), Wrong> {
    let elements = args.len() + 1;
    let name = args.next().filter(|_| command.has_subcommands());
    let Some(name) = name else {
        return Ok(());
    };
    let is_named = |facts: &&Facts| {
        let subcommand = facts.name.split_once('|').map_or("", |(_, name)| name);
        name.eq_ignore_ascii_case(subcommand.as_bytes())
    };
    let mut subcommands = find(command.name).into_iter().flat_map(Facts::subcommands);
    match subcommands.find(is_named) {
        None => Err(Wrong::Unknown),
        Some(facts) if table::accepts(facts.arity, elements) => Ok(()),
        Some(facts) => Err(Wrong::Arguments(facts.name)),
    }
}

/// `COMMAND`, `COMMAND COUNT`, `COMMAND DOCS [name …]`, `COMMAND GETKEYS command [argument …]`,
/// `COMMAND INFO [name …]`, `COMMAND LIST [FILTERBY MODULE name | ACLCAT category | PATTERN
/// pattern]`.
pub(super) fn command<E: Engine>(cx: &mut Context<'_, E>, mut args: Args<'_>) {
    let Some(subcommand) = args.next() else {
        return command_info(cx, args);
    };
    match subcommand.to_ascii_lowercase().as_slice() {
        b"count" => cx.reply().integer(table::all::<E>().len() as i64),
        b"list" if args.len() == 0 => list(cx, |_| true),
        b"list" if args.len() == 3 => filtered_list(cx, args),
        b"list" => cx.error(text::SYNTAX),
        b"info" | b"docs" if args.len() > MAX_NAMES => cx.error("ERR too many names of commands"),
        b"info" => command_info(cx, args),
        b"docs" => command_docs(cx, args),
        b"getkeys" => get_keys(cx, args),
        _ => cx.help("COMMAND", "COUNT, DOCS, GETKEYS, INFO, LIST"),
    }
}

/// Information on the commands that are named, or on all.
fn command_info<E: Engine>(cx: &mut Context<'_, E>, names: Args<'_>) {
    let mut reply = cx.reply();
    if names.len() == 0 {
        let all = table::all::<E>();
        let known = all
            .iter()
            .filter_map(|command| Some((command.keys, find(command.name)?)));
        reply.array(known.clone().count());
        return known.for_each(|(range, facts)| facts.print(range, &mut reply));
    }
    reply.array(names.len());
    for name in names {
        match existing::<E>(name) {
            Some(facts) => facts.print(facts.range(), &mut reply),
            None => reply.null(),
        }
    }
}

/// The groups of the commands that are named, or of all.
fn command_docs<E: Engine>(cx: &mut Context<'_, E>, names: Args<'_>) {
    let all = table::all::<E>();
    let wanted: Vec<&Command<E>> = match names.len() {
        0 => all.iter().collect(),
        _ => names.filter_map(table::find).collect(),
    };
    let mut reply = cx.reply();
    reply.map(wanted.len());
    for command in wanted {
        reply.bulk(command.name.as_bytes());
        reply.map(1);
        reply.bulk(b"group");
        reply.bulk(command.group.as_bytes());
    }
}

/// The names of commands and subcommands.
fn list<E: Engine>(cx: &mut Context<'_, E>, is_wanted: impl Fn(&Facts) -> bool) {
    let all = table::all::<E>();
    let known = all.iter().filter_map(|command| find(command.name));
    let names = known.flat_map(|facts| std::iter::once(facts).chain(facts.subcommands()));
    let names: Vec<_> = names.filter(|facts| is_wanted(facts)).collect();
    let mut reply = cx.reply();
    reply.array(names.len());
    names
        .iter()
        .for_each(|facts| reply.bulk(facts.name.as_bytes()));
}

fn filtered_list<E: Engine>(cx: &mut Context<'_, E>, mut args: Args<'_>) {
    let [filter_by, kind, word] = first(&mut args);
    if !filter_by.eq_ignore_ascii_case(b"filterby") {
        return cx.error(text::SYNTAX);
    }
    if word.len() > glob::MAX_PATTERN {
        return cx.error(text::LONG_PATTERN);
    }
    let word = word.to_ascii_lowercase();
    match kind.to_ascii_lowercase().as_slice() {
        b"module" => list(cx, |_| false),
        b"aclcat" => list(cx, |facts| {
            words(facts.categories).any(|category| category.as_bytes() == word)
        }),
        b"pattern" => list(cx, |facts| glob::matches(&word, facts.name.as_bytes())),
        _ => cx.error(text::SYNTAX),
    }
}

/// `COMMAND GETKEYS command argument …`.
fn get_keys<E: Engine>(cx: &mut Context<'_, E>, args: Args<'_>) {
    let elements: Vec<&[u8]> = args.collect();
    let subcommand = [elements[0], b"|", elements[1]].concat();
    let facts = existing::<E>(&subcommand).or_else(|| existing::<E>(elements[0]));
    let Some(facts) = facts else {
        return cx.error("ERR Invalid command specified");
    };
    if facts.keys.is_empty() {
        return cx.error("ERR The command has no key arguments");
    }
    if !table::accepts(facts.arity, elements.len()) {
        return cx.error("ERR Invalid number of arguments specified for command");
    }
    let mut keys = Vec::new();
    for (_, [start, last, step]) in facts.keys {
        let start = i64::from(*start);
        let last = match i64::from(*last) {
            last @ ..0 => elements.len() as i64 + last,
            last => start + last,
        };
        let positions = (start..=last).step_by(*step as usize);
        keys.extend(positions.filter_map(|at| elements.get(at as usize).copied()));
    }
    let mut reply = cx.reply();
    reply.array(keys.len());
    keys.iter().for_each(|key| reply.bulk(key));
}

#[cfg(test)]
mod tests {
    use super::{FACTS, find};
    use crate::commands::table;
    use crate::fake_engine::FakeEngine;

    #[test]
    fn facts_are_sorted() {
        assert!(FACTS.is_sorted_by(|a, b| a.name < b.name));
    }

    #[test]
    fn the_table_of_commands_agrees_with_the_facts() {
        for command in table::all::<FakeEngine>() {
            let facts = find(command.name).expect(command.name);
            assert_eq!(facts.arity, command.arity, "{}", command.name);
            assert_eq!(facts.range(), command.keys, "{}", command.name);
            let has_subcommands = facts.subcommands().next().is_some();
            assert_eq!(
                has_subcommands,
                command.has_subcommands(),
                "{}",
                command.name
            );
        }
    }
}
