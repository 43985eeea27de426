//! `CLIENT`: what connections know of each other.

use super::session::Replies;
use super::{ClientState, Context, first, text};
use crate::shared::{ClientView, ConnInfo};
use corewise_atomic::sync::atomic::Ordering;
use corewise_engine::Engine;
use corewise_wire::resp::{Args, parse_integer};
use std::collections::HashSet;
use std::fmt::Write as _;
use std::sync::Arc;

/// The longest name that a client may give itself, in bytes.
const MAX_NAME: usize = 256;

/// The state of the client, with its number.
pub(super) fn client<'c, E: Engine>(cx: &'c mut Context<'_, E>) -> &'c mut ClientState {
    let id = cx.conn.info.client_id;
    let client = cx.conn.client.get_or_insert_default();
    client.id = id;
    client
}

/// Gives the client a name. Prints an error and returns false if it is none.
pub(super) fn set_name<E: Engine>(cx: &mut Context<'_, E>, name: &[u8]) -> bool {
    if !name.iter().all(|byte| (b'!'..=b'~').contains(byte)) {
        cx.error("ERR Client names cannot contain spaces, newlines or special characters.");
        return false;
    }
    if name.len() > MAX_NAME {
        cx.error("ERR Client names cannot be longer than 256 bytes");
        return false;
    }
    client(cx).name = name.to_vec();
    *cx.conn.info.client_name.lock() = name.to_vec();
    true
}

/// `CLIENT`.
pub(super) fn client_command<E: Engine>(cx: &mut Context<'_, E>, mut args: Args<'_>) {
    let subcommand = args.next().unwrap_or(b"");
    match subcommand.to_ascii_lowercase().as_slice() {
        b"id" => {
            let id = client(cx).id;
            cx.reply().integer(id as i64);
        }
        b"getname" => get_name(cx),
        b"setname" => {
            let [name] = first(&mut args);
            if set_name(cx, name) {
                cx.reply().simple("OK");
            }
        }
        b"info" => {
            let info = Arc::clone(&cx.conn.info);
            let line = line(cx, &info);
            cx.reply().verbatim(*b"txt", line.as_bytes());
        }
        b"list" => list(cx, args),
        b"kill" => kill(cx, args),
        b"no-evict" => no_evict(cx, args),
        b"tracking" => tracking(cx, args),
        b"trackinginfo" => tracking_info(cx),
        b"getredir" => cx.reply().integer(-1),
        b"caching" => cx.error(
            "ERR CLIENT CACHING can be called only when the client is in tracking mode with \
             OPTIN or OPTOUT mode enabled",
        ),
        b"reply" => set_replies(cx, args),
        b"unblock" => unblock(cx, subcommand, args),
        _ => cx.help(
            "CLIENT",
            "CACHING, GETNAME, GETREDIR, ID, INFO, KILL, LIST, NO-EVICT, REPLY, SETNAME, \
             TRACKING, TRACKINGINFO, UNBLOCK",
        ),
    }
}

/// `CLIENT REPLY ON | OFF | SKIP`.
fn set_replies<E: Engine>(cx: &mut Context<'_, E>, mut args: Args<'_>) {
    let [word] = first(&mut args);
    match word.to_ascii_lowercase().as_slice() {
        b"on" => {
            cx.codec.set_replies(Replies::All);
            cx.is_silent = false;
            cx.reply().simple("OK");
        }
        b"off" => cx.codec.set_replies(Replies::None),
        b"skip" if cx.codec.is_silent() => {}
        b"skip" => cx.codec.set_replies(Replies::AllButNext),
        _ => cx.error(text::SYNTAX),
    }
}

fn get_name<E: Engine>(cx: &mut Context<'_, E>) {
    let name = cx.conn.info.client_name.lock().clone();
    if name.is_empty() {
        cx.reply().null();
    } else {
        cx.reply().bulk(&name);
    }
}

/// `CLIENT NO-EVICT ON | OFF`. No client is closed because others need its memory, so both are the
/// state that there is.
fn no_evict<E: Engine>(cx: &mut Context<'_, E>, mut args: Args<'_>) {
    let [word] = first(&mut args);
    if word.eq_ignore_ascii_case(b"on") || word.eq_ignore_ascii_case(b"off") {
        cx.reply().simple("OK");
    } else {
        cx.error(text::SYNTAX);
    }
}

/// `CLIENT TRACKING ON | OFF [option …]`: only off is possible. As in Redis, it may have the
/// options of `ON`.
fn tracking<E: Engine>(cx: &mut Context<'_, E>, mut args: Args<'_>) {
    let [word] = first(&mut args);
    if let Err(error) = check_tracking(cx, args) {
        cx.error(error);
    } else if word.eq_ignore_ascii_case(b"on") {
        cx.error("ERR this server does not track keys for client-side caching");
    } else if word.eq_ignore_ascii_case(b"off") {
        cx.reply().simple("OK");
    } else {
        cx.error(text::SYNTAX);
    }
}

/// Checks the options of `CLIENT TRACKING`.
fn check_tracking<E: Engine>(
    cx: &Context<'_, E>,
    mut options: Args<'_>,
) -> Result<(), &'static str> {
    let mut redirects = false;
    while let Some(option) = options.next() {
        match (option.to_ascii_lowercase().as_slice(), options.len()) {
            (b"bcast" | b"optin" | b"optout" | b"noloop", _) => {}
            (b"prefix", 1..) => {
                options.next();
            }
            (b"redirect", 1..) if redirects => {
                return Err("ERR A client can only redirect to a single other client");
            }
            (b"redirect", 1..) => {
                let [id] = first(&mut options);
                let id = parse_integer(id).ok_or(text::NOT_AN_INTEGER)?;
                let connections = cx.shared.connections.lock();
                let is_client = |info: &Arc<ConnInfo>| i64::try_from(info.client_id) == Ok(id);
                // 0 is the number of connections of other protocols.
                redirects = id > 0 && connections.values().any(is_client);
                if !redirects {
                    return Err("ERR The client ID you want redirect to does not exist");
                }
            }
            _ => return Err(text::SYNTAX),
        }
    }
    Ok(())
}

/// `CLIENT TRACKINGINFO`.
fn tracking_info<E: Engine>(cx: &mut Context<'_, E>) {
    let mut reply = cx.reply();
    reply.map(3);
    reply.bulk(b"flags");
    reply.set(1);
    reply.bulk(b"off");
    reply.bulk(b"redirect");
    reply.integer(-1);
    reply.bulk(b"prefixes");
    reply.array(0);
}

/// `CLIENT UNBLOCK id [TIMEOUT | ERROR]`. No command blocks, so there is never a client to unblock.
fn unblock<E: Engine>(cx: &mut Context<'_, E>, name: &[u8], mut args: Args<'_>) {
    let given = args.len();
    let [id, reason] = first(&mut args);
    let is_reason = |word: &[u8]| reason.eq_ignore_ascii_case(word);
    if given == 2 && !is_reason(b"timeout") && !is_reason(b"error") {
        return cx.error("ERR CLIENT UNBLOCK reason should be TIMEOUT or ERROR");
    }
    match parse_integer(id) {
        _ if given > 2 => cx.unknown_arguments("CLIENT", name),
        Some(_) => cx.reply().integer(0),
        None => cx.error(text::NOT_AN_INTEGER),
    }
}

/// The address behind the kind of a socket, as memcached writes it.
fn address(place: &str) -> &str {
    place.split_once(':').map_or(place, |(_, address)| address)
}

/// The other end of a connection as Redis writes it.
pub(super) fn peer(info: &ConnInfo) -> &str {
    address(&info.peer)
}

/// This end of a connection.
fn own(info: &ConnInfo) -> &str {
    info.listener.as_deref().map_or("", address)
}

/// The user of a client: `default` until it authenticates as another one.
pub(super) fn user(info: &ConnInfo) -> Vec<u8> {
    let user = info.client_user.lock();
    if user.is_empty() {
        return b"default".to_vec();
    }
    user.clone()
}

/// A line on a client. What there is of its own is as of now; what there is of others, as of the
/// last sweep of their loop.
fn line<E: Engine>(cx: &Context<'_, E>, info: &ConnInfo) -> String {
    let view = if info.client_id == cx.conn.info.client_id {
        ClientView {
            command: cx.codec.last(),
            version: cx.codec.version().number(),
            database: cx.codec.database(),
            ..cx.conn.view()
        }
    } else {
        *info.view.lock()
    };
    let now_ms = cx.parse.now.ms;
    // Relaxed: a statistic.
    let idle_ms = now_ms.saturating_sub(info.active_ms.load(Ordering::Relaxed));
    let mut line = format!(
        "id={} addr={} laddr={} fd={} name=",
        info.client_id,
        peer(info),
        own(info),
        info.fd
    );
    line.push_str(&String::from_utf8_lossy(&info.client_name.lock()));
    let age_ms = now_ms.saturating_sub(info.opened_ms);
    // Writing to a String cannot fail.
    let _ = writeln!(
        line,
        " age={} idle={} flags={} db={} sub=0 psub=0 ssub=0 multi={} qbuf={} qbuf-free={} \
         argv-mem=0 multi-mem={} rbs=0 rbp=0 obl={} oll=0 omem={} tot-mem={} events={} cmd={} \
         user={} redir=-1 resp={}",
        age_ms / 1_000,
        idle_ms / 1_000,
        if view.queued.is_some() { "x" } else { "N" },
        view.database,
        view.queued.map_or(-1, |queued| queued as i64),
        view.query,
        view.query_room,
        view.transaction,
        view.reply,
        view.reply_buffer,
        view.total,
        if view.reply > 0 { "rw" } else { "r" },
        view.command.shown(),
        String::from_utf8_lossy(&user(info)),
        view.version.max(2),
    );
    line
}

/// The clients of RESP, by number.
fn clients<E: Engine>(cx: &Context<'_, E>) -> Vec<Arc<ConnInfo>> {
    let connections = cx.shared.connections.lock();
    let mut infos: Vec<_> = connections
        .values()
        .filter(|info| info.client_id > 0)
        .cloned()
        .collect();
    infos.sort_unstable_by_key(|info| info.client_id);
    infos
}

/// The kinds of clients that Redis has; here all are normal.
fn is_normal<E: Engine>(cx: &mut Context<'_, E>, kind: &[u8]) -> Option<bool> {
    match kind.to_ascii_lowercase().as_slice() {
        b"normal" => Some(true),
        b"master" | b"replica" | b"slave" | b"pubsub" => Some(false),
        _ => {
            let shown = super::until_nul(kind);
            cx.reply()
                .error(&[b"ERR Unknown client type '", shown, b"'"]);
            None
        }
    }
}

/// `CLIENT LIST [TYPE type | ID id …]`.
fn list<E: Engine>(cx: &mut Context<'_, E>, mut args: Args<'_>) {
    let given = args.len();
    let [option] = first(&mut args);
    let mut infos = clients(cx);
    if given == 2 && option.eq_ignore_ascii_case(b"type") {
        let [kind] = first(&mut args);
        let Some(is_normal) = is_normal(cx, kind) else {
            return;
        };
        infos.retain(|_| is_normal);
    } else if given > 1 && option.eq_ignore_ascii_case(b"id") {
        let ids: Option<HashSet<i64>> = args.map(parse_integer).collect();
        let Some(ids) = ids else {
            return cx.error("ERR Invalid client ID");
        };
        infos.retain(|info| ids.contains(&(info.client_id as i64)));
    } else if given > 0 {
        return cx.error(text::SYNTAX);
    }
    let lines: String = infos.iter().map(|info| line(cx, info)).collect();
    cx.reply().verbatim(*b"txt", lines.as_bytes());
}

/// Which clients to close.
#[derive(Default)]
struct Filter<'i> {
    id: Option<u64>,
    peer: Option<&'i [u8]>,
    own: Option<&'i [u8]>,
    user: Option<&'i [u8]>,
    matches_none: bool,
    closes_self: bool,
}

impl<'i> Filter<'i> {
    /// Reads the options; `None` after it has printed an error.
    fn parse<E: Engine>(cx: &mut Context<'_, E>, mut args: Args<'i>) -> Option<Self> {
        let mut filter = Self::default();
        while let Some(option) = args.next() {
            let Some(value) = args.next() else {
                cx.error(text::SYNTAX);
                return None;
            };
            match option.to_ascii_lowercase().as_slice() {
                b"id" => match parse_integer(value) {
                    Some(id @ 1..) => filter.id = Some(id as u64),
                    _ => {
                        cx.error("ERR client-id should be greater than 0");
                        return None;
                    }
                },
                b"addr" => filter.peer = Some(value),
                b"laddr" => filter.own = Some(value),
                b"type" => filter.matches_none |= !is_normal(cx, value)?,
                b"user" if is_user(cx, value) => filter.user = Some(value),
                b"user" => {
                    let shown = super::until_nul(value);
                    cx.reply().error(&[b"ERR No such user '", shown, b"'"]);
                    return None;
                }
                b"skipme" if value.eq_ignore_ascii_case(b"yes") => filter.closes_self = false,
                b"skipme" if value.eq_ignore_ascii_case(b"no") => filter.closes_self = true,
                _ => {
                    cx.error(text::SYNTAX);
                    return None;
                }
            }
        }
        Some(filter)
    }

    fn matches(&self, info: &ConnInfo) -> bool {
        !self.matches_none
            && self.id.is_none_or(|id| id == info.client_id)
            && self.peer.is_none_or(|text| text == peer(info).as_bytes())
            && self.own.is_none_or(|text| text == own(info).as_bytes())
            && self.user.is_none_or(|name| name == user(info))
    }
}

/// Whether there is such a user. There is always `default`, which a client is at first.
pub(super) fn is_user<E: Engine>(cx: &Context<'_, E>, name: &[u8]) -> bool {
    let users = cx.shared.users.lock();
    name == b"default" || users.as_ref().is_some_and(|users| users.has(name))
}

/// `CLIENT KILL address`, `CLIENT KILL option value …`.
fn kill<E: Engine>(cx: &mut Context<'_, E>, args: Args<'_>) {
    let is_old_form = args.len() == 1;
    let filter = if is_old_form {
        let mut words = args;
        let [address] = first(&mut words);
        Filter {
            peer: Some(address),
            closes_self: true,
            ..Filter::default()
        }
    } else {
        let Some(filter) = Filter::parse(cx, args) else {
            return;
        };
        filter
    };
    let mut count = 0;
    for info in clients(cx).iter().filter(|info| filter.matches(info)) {
        if info.client_id != cx.conn.info.client_id {
            count += i64::from(cx.shared.hang_up(info));
        } else if filter.closes_self {
            cx.conn.closing = true;
            count += 1;
        }
    }
    match (is_old_form, count) {
        (false, count) => cx.reply().integer(count),
        (true, 0) => cx.error("ERR No such client"),
        (true, _) => cx.reply().simple("OK"),
    }
}
