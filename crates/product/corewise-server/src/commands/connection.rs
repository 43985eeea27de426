//! Commands on the connection itself.

use super::RespSession;
use super::client::{client, set_name};
use super::{Context, first, text, transactions, until_nul};
use crate::metrics::REDIS_VERSION;
use corewise_engine::Engine;
use corewise_wire::resp::{Args, Version, parse_integer};

/// `PING [message]`.
pub(super) fn ping<E: Engine>(cx: &mut Context<'_, E>, mut args: Args<'_>) {
    match (args.next(), args.next()) {
        (None, _) => cx.reply().fixed(b"+PONG\r\n"),
        (Some(message), None) => cx.reply().bulk(message),
        _ => cx.wrong_arguments("ping"),
    }
}

/// `ECHO message`.
pub(super) fn echo<E: Engine>(cx: &mut Context<'_, E>, mut args: Args<'_>) {
    let [message] = first(&mut args);
    cx.reply().bulk(message);
}

/// `QUIT`.
pub(super) fn quit<E: Engine>(cx: &mut Context<'_, E>, _: Args<'_>) {
    transactions::reset(cx);
    cx.reply().simple("OK");
    cx.conn.closing = true;
}

/// `RESET`.
pub(super) fn reset<E: Engine>(cx: &mut Context<'_, E>, _: Args<'_>) {
    transactions::reset(cx);
    if cx.codec.is_silent() {
        cx.is_silent = false; // `CLIENT REPLY OFF` ends here, `CLIENT REPLY SKIP` behind this reply
    }
    *cx.codec = RespSession::new(!cx.shared.asks_for_users());
    if let Some(client) = &mut cx.conn.client {
        client.name = Vec::new();
    }
    *cx.conn.info.client_name.lock() = Vec::new();
    *cx.conn.info.client_user.lock() = Vec::new();
    cx.reply().simple("RESET");
}

/// `SELECT index`.
pub(super) fn select<E: Engine>(cx: &mut Context<'_, E>, mut args: Args<'_>) {
    let [index] = first(&mut args);
    match database(index, cx.shared.config.databases) {
        Ok(database) => {
            cx.codec.set_database(database);
            cx.reply().simple("OK");
        }
        Err(text) => cx.error(text),
    }
}

/// The database of this index, or an error text. There are `databases`.
pub(super) fn database(index: &[u8], databases: u8) -> Result<u8, &'static str> {
    match parse_integer(index).map(i32::try_from) {
        Some(Ok(index)) => match u8::try_from(index) {
            Ok(index) if index < databases => Ok(index),
            _ => Err("ERR DB index is out of range"),
        },
        Some(Err(_)) => {
            Err("ERR value is out of range, value must between -2147483648 and 2147483647")
        }
        None => Err(text::NOT_AN_INTEGER),
    }
}

/// `AUTH [username] password`.
pub(super) fn auth<E: Engine>(cx: &mut Context<'_, E>, args: Args<'_>) {
    let mut words = args;
    let (user, password) = match (args.len(), first(&mut words)) {
        (1, _) if !cx.shared.asks_for_users() => {
            return cx.error(
                "ERR AUTH <password> called without any password configured for the default \
                 user. Are you sure your configuration is correct?",
            );
        }
        (1, [password, _]) => (&b"default"[..], password),
        (2, [user, password]) => (user, password),
        _ => return cx.error(text::SYNTAX),
    };
    if admit(cx, user, password) {
        cx.reply().simple("OK");
    }
}

/// Checks credentials. Prints an error and returns false if they are wrong.
fn admit<E: Engine>(cx: &mut Context<'_, E>, user: &[u8], password: &[u8]) -> bool {
    cx.counters.auth_cmds += 1;
    let users = cx.shared.users.lock().clone();
    let is_admitted = match users {
        Some(users) => users.admit(user, password),
        None => user == b"default",
    };
    if is_admitted {
        cx.codec.set_authenticated();
        *cx.conn.info.client_user.lock() = user.to_vec();
    } else {
        cx.counters.auth_errors += 1;
        cx.error("WRONGPASS invalid username-password pair or user is disabled.");
    }
    is_admitted
}

/// `HELLO [version [AUTH username password] [SETNAME name]]`.
pub(super) fn hello<E: Engine>(cx: &mut Context<'_, E>, mut args: Args<'_>) {
    let version = match args.next().map(parse_integer) {
        None => cx.codec.version(),
        Some(Some(2)) => Version::Resp2,
        Some(Some(3)) => Version::Resp3,
        Some(Some(_)) => return cx.error("NOPROTO unsupported protocol version"),
        Some(None) => {
            return cx.error("ERR Protocol version is not an integer or out of range");
        }
    };
    // As in Redis, an option has its effect even if a later one is wrong.
    while let Some(option) = args.next() {
        if option.eq_ignore_ascii_case(b"auth") && args.len() >= 2 {
            let [user, password] = first(&mut args);
            if !admit(cx, user, password) {
                return;
            }
        } else if option.eq_ignore_ascii_case(b"setname") && args.len() >= 1 {
            let [name] = first(&mut args);
            if !set_name(cx, name) {
                return;
            }
        } else {
            return cx.reply().error(&[
                b"ERR Syntax error in HELLO option '",
                until_nul(option),
                b"'",
            ]);
        }
    }
    if !cx.codec.is_authenticated() {
        return cx.error(
            "NOAUTH HELLO must be called with the client already authenticated, otherwise the \
             HELLO AUTH <user> <pass> option can be used to authenticate the client and \
             select the RESP protocol version at the same time",
        );
    }
    cx.codec.set_version(version);
    greet(cx);
}

/// The reply to `HELLO`: what Redis tells, and the version of this server.
fn greet<E: Engine>(cx: &mut Context<'_, E>) {
    let id = client(cx).id;
    let mut reply = cx.reply();
    reply.map(8);
    for (field, value) in [("server", "redis"), ("version", REDIS_VERSION)] {
        reply.bulk(field.as_bytes());
        reply.bulk(value.as_bytes());
    }
    reply.bulk(b"proto");
    reply.integer(i64::from(reply.version().number()));
    reply.bulk(b"id");
    reply.integer(id as i64);
    for (field, value) in [("mode", "standalone"), ("role", "master")] {
        reply.bulk(field.as_bytes());
        reply.bulk(value.as_bytes());
    }
    reply.bulk(b"modules");
    reply.array(0);
    reply.bulk(b"corewise_version");
    reply.bulk(env!("CARGO_PKG_VERSION").as_bytes());
}
