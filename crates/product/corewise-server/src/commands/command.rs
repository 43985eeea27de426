//! `COMMAND`: what clients and proxies ask about commands.

use super::glob::{self, Glob};
use super::table::{self, Command, KeyRange, Row};
use super::{Context, first, text, until_nul};
use corewise_engine::Engine;
use corewise_wire::resp::{Args, Encoder};
use std::iter;

/// The most names in one `COMMAND INFO` or `COMMAND DOCS`, whose replies are much longer than the
/// request.
const MAX_NAMES: usize = 256;

/// The categories that Redis has, in its order.
pub(super) const CATEGORIES: [&str; 21] = [
    "keyspace",
    "read",
    "write",
    "set",
    "sortedset",
    "list",
    "hash",
    "string",
    "bitmap",
    "hyperloglog",
    "geo",
    "stream",
    "pubsub",
    "admin",
    "fast",
    "slow",
    "blocking",
    "dangerous",
    "connection",
    "transaction",
    "scripting",
];

fn words(text: &'static str) -> std::str::SplitAsciiWhitespace<'static> {
    text.split_ascii_whitespace()
}

/// Whether the command is in this category.
fn is_in(command: &Row, category: &str) -> bool {
    let mut words = words(command.group);
    let of_group = match words.next() {
        // A command that only has subcommands.
        _ if command.flags.is_empty() => "",
        // `WAIT` is not about keys, and `PUBSUB HELP` is in no category: the others have a flag.
        Some("generic") if command.has_flag("noscript") => "",
        Some("pubsub") => "",
        Some("generic") => "keyspace",
        Some("transactions") => "transaction",
        group => group.unwrap_or(""),
    };
    let follows_from_flags = match category {
        // As in Redis, a script is in no category of what its commands do.
        "read" => command.has_flag("readonly") && of_group != "scripting",
        "slow" => !command.has_flag("fast"),
        "dangerous" => command.has_flag("admin"),
        flag => command.has_flag(flag),
    };
    follows_from_flags || category == of_group || words.any(|word| word == category)
}

fn categories(command: Command) -> impl Iterator<Item = &'static str> + Clone {
    CATEGORIES
        .into_iter()
        .filter(move |category| is_in(&command, category))
}

/// Prints what is known of a command and its subcommands.
fn print(command: Command, reply: &mut Encoder<'_>) {
    reply.array(10);
    reply.bulk(command.name.as_bytes());
    reply.integer(i64::from(command.arity));
    print_flags(reply, command.flags);
    command
        .range()
        .iter()
        .for_each(|at| reply.integer(i64::from(*at)));
    reply.set(categories(command).count());
    categories(command).for_each(|word| reply.simple(&format!("@{word}")));
    reply.set(words(command.tips).count());
    words(command.tips).for_each(|word| reply.bulk(word.as_bytes()));
    reply.set(command.keys.len());
    command
        .keys
        .iter()
        .for_each(|(flags, range)| print_keys(reply, flags, *range));
    let subcommands = command.subcommands();
    match subcommands.clone().count() {
        0 => reply.set(0), // as in Redis
        count => reply.array(count),
    }
    subcommands.for_each(|command| print(command, reply));
}

fn print_flags(reply: &mut Encoder<'_>, flags: &'static str) {
    reply.set(words(flags).count());
    words(flags).for_each(|flag| reply.simple(flag));
}

/// Prints where a command has keys.
fn print_keys(reply: &mut Encoder<'_>, flags: &'static str, [start, last, step]: KeyRange) {
    reply.map(3);
    reply.bulk(b"flags");
    print_flags(reply, flags);
    let find = if step == 0 { "keynum" } else { "range" };
    for (field, kind) in [("begin_search", "index"), ("find_keys", find)] {
        reply.bulk(field.as_bytes());
        reply.map(2);
        reply.bulk(b"type");
        reply.bulk(kind.as_bytes());
        reply.bulk(b"spec");
        let numbers: &[(&str, i8)] = match kind {
            "index" => &[("index", start)],
            "range" => &[("lastkey", last), ("keystep", step), ("limit", 0)],
            _ => &[("keynumidx", 0), ("firstkey", 1), ("keystep", 1)],
        };
        reply.map(numbers.len());
        for (name, number) in numbers {
            reply.bulk(name.as_bytes());
            reply.integer(i64::from(*number));
        }
    }
}

/// The command or subcommand of this name, in any case.
fn find(name: &[u8]) -> Option<Command> {
    match name.iter().position(|byte| *byte == b'|') {
        Some(end) => table::find(&name[..end])?.subcommand(&name[end + 1..]),
        None => table::find(name),
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
        b"count" => cx.reply().integer(table::all().count() as i64),
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
        reply.array(table::all().count());
        return table::all().for_each(|command| print(command, &mut reply));
    }
    reply.array(names.len());
    for name in names {
        match find(name) {
            Some(command) => print(command, &mut reply),
            None => reply.null(),
        }
    }
}

/// Prints the commands and subcommands of a category, if there is such a category.
pub(super) fn list_category<E: Engine>(cx: &mut Context<'_, E>, category: &[u8]) {
    let name = category.to_ascii_lowercase();
    if !CATEGORIES.iter().any(|one| one.as_bytes() == name) {
        let shown = until_nul(category);
        return cx.reply().error(&[b"ERR Unknown category '", shown, b"'"]);
    }
    list(cx, |command| {
        categories(command).any(|one| one.as_bytes() == name)
    });
}

/// The groups of the commands that are named, or of all.
fn command_docs<E: Engine>(cx: &mut Context<'_, E>, names: Args<'_>) {
    let wanted: Vec<Command> = match names.len() {
        0 => table::all().collect(),
        _ => names.filter_map(table::find).collect(),
    };
    let mut reply = cx.reply();
    reply.map(wanted.len());
    for command in wanted {
        reply.bulk(command.name.as_bytes());
        reply.map(1);
        reply.bulk(b"group");
        reply.bulk(words(command.group).next().unwrap_or("").as_bytes());
    }
}

/// The names of commands and subcommands.
fn list<E: Engine>(cx: &mut Context<'_, E>, is_wanted: impl Fn(Command) -> bool) {
    let all = table::all().flat_map(|command| iter::once(command).chain(command.subcommands()));
    let names: Vec<_> = all.filter(|command| is_wanted(*command)).collect();
    let mut reply = cx.reply();
    reply.array(names.len());
    names
        .iter()
        .for_each(|command| reply.bulk(command.name.as_bytes()));
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
        b"aclcat" => list(cx, |command| {
            categories(command).any(|category| category.as_bytes() == word)
        }),
        b"pattern" => {
            let glob = Glob::new(&word);
            list(cx, |command| glob.matches(command.name.as_bytes()));
        }
        _ => cx.error(text::SYNTAX),
    }
}

/// `COMMAND GETKEYS command argument …`.
fn get_keys<E: Engine>(cx: &mut Context<'_, E>, args: Args<'_>) {
    let mut request = args;
    let [name] = first(&mut request);
    let command = table::find(name).and_then(|all| match all.subcommands().next() {
        Some(_) => all.subcommand(first::<1>(&mut { request })[0]),
        None => Some(all),
    });
    let Some(command) = command else {
        return cx.error("ERR Invalid command specified");
    };
    if !command.has_keys() {
        return cx.error("ERR The command has no key arguments");
    }
    if !command.accepts(args.len()) {
        return cx.error("ERR Invalid number of arguments specified for command");
    }
    let Some(keys) = command.told_keys_of(request) else {
        return cx.error("ERR Invalid arguments specified for command");
    };
    let mut reply = cx.reply();
    reply.array(keys.len());
    keys.iter().for_each(|key| reply.bulk(key));
}
