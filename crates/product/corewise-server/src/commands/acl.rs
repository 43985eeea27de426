//! `ACL`: who may do what. Every user of the authentication file may do everything; without that
//! file, every client is the user `default` and needs no password.

use super::client::{is_user, user};
use super::{Context, command, first, text};
use corewise_engine::Engine;
use corewise_wire::resp::{Args, parse_integer};

const NO_FILE: &str = "ERR This Redis instance is not configured to use an ACL file. You may want \
                       to specify users via the ACL SETUSER command and then issue a CONFIG \
                       REWRITE (assuming you have a Redis configuration file set) in order to \
                       store users in the Redis configuration.";

/// `ACL subcommand …`.
pub(super) fn acl<E: Engine>(cx: &mut Context<'_, E>, mut args: Args<'_>) {
    let [subcommand] = first(&mut args);
    match subcommand.to_ascii_lowercase().as_slice() {
        b"whoami" => {
            let name = user(&cx.conn.info);
            cx.reply().bulk(&name);
        }
        b"users" => {
            let names = names(cx);
            print(cx, names.iter().map(Vec::as_slice));
        }
        b"list" => {
            let lines = names(cx).into_iter().map(|name| {
                let rights = format!(" {} ~* &* +@all", flags(cx, &name).join(" "));
                [b"user ", &*name, rights.as_bytes()].concat()
            });
            let lines: Vec<Vec<u8>> = lines.collect();
            print(cx, lines.iter().map(Vec::as_slice));
        }
        b"getuser" => get_user(cx, args),
        b"cat" if args.len() > 1 => cx.unknown_arguments("ACL", subcommand),
        b"cat" => match args.next() {
            None => print(cx, command::CATEGORIES.iter().map(|name| name.as_bytes())),
            Some(category) => command::list_category(cx, category),
        },
        b"log" => log(cx, args),
        b"load" | b"save" => cx.error(NO_FILE),
        _ => cx.help("ACL", "CAT, GETUSER, LIST, LOAD, LOG, SAVE, USERS, WHOAMI"),
    }
}

/// Prints an array of texts.
fn print<'t, E: Engine>(cx: &mut Context<'_, E>, texts: impl ExactSizeIterator<Item = &'t [u8]>) {
    let mut reply = cx.reply();
    reply.array(texts.len());
    texts.for_each(|text| reply.bulk(text));
}

/// The users, sorted; `default` is always one.
fn names<E: Engine>(cx: &Context<'_, E>) -> Vec<Vec<u8>> {
    let users = cx.shared.users.lock();
    let mut names = vec![b"default".to_vec()];
    if let Some(users) = users.as_ref() {
        names.extend(users.names().map(<[u8]>::to_vec));
    }
    names.sort();
    names.dedup();
    names
}

/// Whether the user may authenticate, and needs no password.
fn flags<E: Engine>(cx: &Context<'_, E>, name: &[u8]) -> Vec<&'static str> {
    let users = cx.shared.users.lock();
    match users.as_ref() {
        None => vec!["on", "nopass"],
        Some(users) if users.has(name) => vec!["on"],
        Some(_) => vec!["off"],
    }
}

/// `ACL GETUSER name`. Hashes of passwords are not shown.
fn get_user<E: Engine>(cx: &mut Context<'_, E>, mut args: Args<'_>) {
    let [name] = first(&mut args);
    if !is_user(cx, name) {
        return cx.reply().null();
    }
    let flags = flags(cx, name);
    let mut reply = cx.reply();
    reply.map(6);
    reply.bulk(b"flags");
    reply.set(flags.len());
    flags.iter().for_each(|flag| reply.bulk(flag.as_bytes()));
    reply.bulk(b"passwords");
    reply.array(0);
    for (field, rights) in [("commands", "+@all"), ("keys", "~*"), ("channels", "&*")] {
        reply.bulk(field.as_bytes());
        reply.bulk(rights.as_bytes());
    }
    reply.bulk(b"selectors");
    reply.array(0);
}

/// `ACL LOG [count | RESET]`: nothing is denied to a user, and so nothing is logged.
fn log<E: Engine>(cx: &mut Context<'_, E>, mut args: Args<'_>) {
    let given = args.len();
    let [word] = first(&mut args);
    match parse_integer(word) {
        _ if given > 1 => cx.unknown_arguments("ACL", b"log"),
        _ if given == 0 => cx.reply().array(0),
        _ if word.eq_ignore_ascii_case(b"reset") => cx.reply().simple("OK"),
        Some(_) => cx.reply().array(0),
        None => cx.error(text::NOT_AN_INTEGER),
    }
}
