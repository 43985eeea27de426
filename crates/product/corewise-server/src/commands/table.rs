//! The table of commands.

use super::{
    Context, bits, client, command, connection, keys, keyspace, lcs, server, several, strings,
    transactions,
};
use corewise_cache::Engine;
use corewise_wire::resp::Args;
use std::marker::PhantomData;

/// The longest name of a command, in bytes.
const LONGEST: usize = 16;

/// A command.
pub(super) struct Command<E: Engine> {
    /// In lower case.
    pub(super) name: &'static str,
    /// The number of elements of its requests; if negative, the least number of them.
    pub(super) arity: i8,
    /// `w` for a command that writes, `r` for one that reads, `o` for one that is open to clients
    /// that have not authenticated.
    kind: u8,
    /// Positions of the first key, of the last (from the end, if negative), and their distance.
    pub(super) keys: [i8; 3],
    /// The group in Redis's documentation.
    pub(super) group: &'static str,
    pub(super) run: fn(&mut Context<'_, E>, Args<'_>),
}

impl<E: Engine> Command<E> {
    /// Whether it may have this number of arguments.
    pub(super) fn accepts(&self, args: usize) -> bool {
        accepts(self.arity, args + 1)
    }

    /// Whether clients may use it that have not authenticated.
    pub(super) fn is_open(&self) -> bool {
        self.kind == b'o'
    }

    /// Whether its first argument is the name of a subcommand.
    pub(super) fn has_subcommands(&self) -> bool {
        matches!(
            self.name,
            "client" | "command" | "config" | "memory" | "object"
        )
    }

    /// Whether it has to do with keys that its arguments do not name.
    pub(super) fn concerns_all_keys(&self) -> bool {
        matches!(self.kind, b'w' | b'r') && self.keys == NO_KEY
    }

    /// The keys among its arguments, of which it accepts the number.
    pub(super) fn keys_of<'i>(&self, args: Args<'i>) -> impl Iterator<Item = &'i [u8]> {
        let [first, last, step] = self.keys.map(isize::from);
        let end = match last {
            ..0 => args.len() as isize + last + 1,
            last => last,
        };
        let skipped = (first - 1).max(0);
        args.skip(skipped as usize)
            .step_by(step.max(1) as usize)
            .take(((end - skipped) as usize).div_ceil(step.max(1) as usize))
    }
}

/// Whether a request of this arity may have this number of elements.
pub(super) fn accepts(arity: i8, elements: usize) -> bool {
    let (elements, arity) = (elements as i64, i64::from(arity));
    if arity < 0 {
        elements >= -arity
    } else {
        elements == arity
    }
}

const NO_KEY: [i8; 3] = [0, 0, 0];
const ONE_KEY: [i8; 3] = [1, 1, 1];
const TWO_KEYS: [i8; 3] = [1, 2, 1];
const ALL_KEYS: [i8; 3] = [1, -1, 1];
const PAIRS: [i8; 3] = [1, -1, 2];

const fn command<E: Engine>(
    name: &'static str,
    arity: i8,
    kind: u8,
    keys: [i8; 3],
    group: &'static str,
    run: fn(&mut Context<'_, E>, Args<'_>),
) -> Command<E> {
    assert!(name.len() <= LONGEST);
    Command {
        name,
        arity,
        kind,
        keys,
        group,
        run,
    }
}

struct Table<E>(PhantomData<E>);

#[rustfmt::skip]
impl<E: Engine> Table<E> {
    /// Sorted by name.
    const ALL: &'static [Command<E>] = &[
        command("append", 3, b'w', ONE_KEY, "string", strings::append),
        command("auth", -2, b'o', NO_KEY, "connection", connection::auth),
        command("bitcount", -2, b'r', ONE_KEY, "bitmap", bits::bitcount),
        command("bitfield", -2, b'w', ONE_KEY, "bitmap", bits::bitfield),
        command("bitfield_ro", -2, b'r', ONE_KEY, "bitmap", bits::bitfield_ro),
        command("bitop", -4, b'w', [2, -1, 1], "bitmap", bits::bitop),
        command("bitpos", -3, b'r', ONE_KEY, "bitmap", bits::bitpos),
        command("client", -2, b' ', NO_KEY, "connection", client::client_command),
        command("command", -1, b' ', NO_KEY, "server", command::command),
        command("config", -2, b' ', NO_KEY, "server", server::config),
        command("copy", -3, b'w', TWO_KEYS, "generic", several::copy),
        command("dbsize", 1, b'r', NO_KEY, "server", server::dbsize),
        command("decr", 2, b'w', ONE_KEY, "string", strings::decr),
        command("decrby", 3, b'w', ONE_KEY, "string", strings::decrby),
        command("del", -2, b'w', ALL_KEYS, "generic", keys::del),
        command("discard", 1, b' ', NO_KEY, "transactions", transactions::discard),
        command("echo", 2, b' ', NO_KEY, "connection", connection::echo),
        command("exec", 1, b' ', NO_KEY, "transactions", transactions::exec),
        command("exists", -2, b'r', ALL_KEYS, "generic", keys::exists),
        command("expire", -3, b'w', ONE_KEY, "generic", keys::expire),
        command("expireat", -3, b'w', ONE_KEY, "generic", keys::expireat),
        command("expiretime", 2, b'r', ONE_KEY, "generic", keys::expiretime),
        command("flushall", -1, b'w', NO_KEY, "server", server::flush),
        command("flushdb", -1, b'w', NO_KEY, "server", server::flush),
        command("get", 2, b'r', ONE_KEY, "string", strings::get),
        command("getbit", 3, b'r', ONE_KEY, "bitmap", bits::getbit),
        command("getdel", 2, b'w', ONE_KEY, "string", strings::getdel),
        command("getex", -2, b'w', ONE_KEY, "string", strings::getex),
        command("getrange", 4, b'r', ONE_KEY, "string", strings::getrange),
        command("getset", 3, b'w', ONE_KEY, "string", strings::getset),
        command("hello", -1, b'o', NO_KEY, "connection", connection::hello),
        command("incr", 2, b'w', ONE_KEY, "string", strings::incr),
        command("incrby", 3, b'w', ONE_KEY, "string", strings::incrby),
        command("incrbyfloat", 3, b'w', ONE_KEY, "string", strings::incrbyfloat),
        command("info", -1, b' ', NO_KEY, "server", server::info),
        command("keys", 2, b'r', NO_KEY, "generic", keyspace::keys),
        command("lcs", -3, b'r', [1, 2, 1], "string", lcs::lcs),
        command("memory", -2, b'r', NO_KEY, "server", keyspace::memory),
        command("mget", -2, b'r', ALL_KEYS, "string", several::mget),
        command("mset", -3, b'w', PAIRS, "string", several::mset),
        command("msetnx", -3, b'w', PAIRS, "string", several::msetnx),
        command("multi", 1, b' ', NO_KEY, "transactions", transactions::multi),
        command("object", -2, b'r', NO_KEY, "generic", keyspace::object),
        command("persist", 2, b'w', ONE_KEY, "generic", keys::persist),
        command("pexpire", -3, b'w', ONE_KEY, "generic", keys::pexpire),
        command("pexpireat", -3, b'w', ONE_KEY, "generic", keys::pexpireat),
        command("pexpiretime", 2, b'r', ONE_KEY, "generic", keys::pexpiretime),
        command("ping", -1, b' ', NO_KEY, "connection", connection::ping),
        command("psetex", 4, b'w', ONE_KEY, "string", strings::psetex),
        command("pttl", 2, b'r', ONE_KEY, "generic", keys::pttl),
        command("quit", -1, b'o', NO_KEY, "connection", connection::quit),
        command("randomkey", 1, b'r', NO_KEY, "generic", keyspace::randomkey),
        command("rename", 3, b'w', TWO_KEYS, "generic", several::rename),
        command("renamenx", 3, b'w', TWO_KEYS, "generic", several::renamenx),
        command("reset", 1, b'o', NO_KEY, "connection", connection::reset),
        command("scan", -2, b'r', NO_KEY, "generic", keys::scan),
        command("select", 2, b' ', NO_KEY, "connection", connection::select),
        command("set", -3, b'w', ONE_KEY, "string", strings::set),
        command("setbit", 4, b'w', ONE_KEY, "bitmap", bits::setbit),
        command("setex", 4, b'w', ONE_KEY, "string", strings::setex),
        command("setnx", 3, b'w', ONE_KEY, "string", strings::setnx),
        command("setrange", 4, b'w', ONE_KEY, "string", strings::setrange),
        command("strlen", 2, b'r', ONE_KEY, "string", strings::strlen),
        command("substr", 4, b'r', ONE_KEY, "string", strings::getrange),
        command("time", 1, b' ', NO_KEY, "server", server::time),
        command("touch", -2, b'r', ALL_KEYS, "generic", keys::touch),
        command("ttl", 2, b'r', ONE_KEY, "generic", keys::ttl),
        command("type", 2, b'r', ONE_KEY, "generic", keys::type_of),
        command("unlink", -2, b'w', ALL_KEYS, "generic", keys::del),
        command("unwatch", 1, b' ', NO_KEY, "transactions", transactions::unwatch),
        command("watch", -2, b' ', ALL_KEYS, "transactions", transactions::watch),
    ];
}

/// All commands, sorted by name.
pub(super) fn all<E: Engine>() -> &'static [Command<E>] {
    Table::<E>::ALL
}

/// The command of this name, in any case.
pub(super) fn find<E: Engine>(name: &[u8]) -> Option<&'static Command<E>> {
    let mut lower = [0; LONGEST];
    let lower = lower.get_mut(..name.len())?;
    lower.copy_from_slice(name);
    lower.make_ascii_lowercase();
    let all = all::<E>();
    let at = all
        .binary_search_by(|command| command.name.as_bytes().cmp(lower))
        .ok()?;
    all.get(at)
}

#[cfg(test)]
mod tests {
    use super::{all, find};
    use crate::fake_engine::FakeEngine;
    use corewise_wire::resp::{Codec, Limits, Parsed};

    #[test]
    fn the_keys_of_a_command_are_found_among_its_arguments() {
        let (limits, scratch) = (Limits::default(), bumpalo::Bump::new());
        for (line, expected) in [
            ("ping a b", ""),
            ("get a", "a"),
            ("set a b px 1", "a"),
            ("del a b c", "abc"),
            ("mset a 1 b 2 c 3", "abc"),
            ("mset a 1 b", "ab"),
            ("rename a b", "ab"),
            ("copy a b replace", "ab"),
            ("flushall", ""),
        ] {
            let line = format!("{line}\r\n");
            let parsed = Codec::new(true).next(line.as_bytes(), &limits, &scratch);
            let Parsed::Request { request, .. } = parsed else {
                panic!("{parsed:?}");
            };
            let command = find::<FakeEngine>(request.name()).unwrap();
            let keys: Vec<&[u8]> = command.keys_of(request.args()).collect();
            assert_eq!(keys.concat(), expected.as_bytes(), "{line}");
            let concerns_all = command.name == "flushall";
            assert_eq!(command.concerns_all_keys(), concerns_all, "{line}");
        }
    }

    #[test]
    fn every_command_is_found_in_any_case() {
        for command in all::<FakeEngine>() {
            for name in [command.name.to_owned(), command.name.to_uppercase()] {
                let found = find::<FakeEngine>(name.as_bytes()).expect(&name);
                assert_eq!(found.name, command.name);
            }
        }
        for name in [
            "",
            "ge",
            "gett",
            "lpush",
            "a name that no command has",
            "get\0",
        ] {
            assert!(find::<FakeEngine>(name.as_bytes()).is_none(), "{name:?}");
        }
    }
}
