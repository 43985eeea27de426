//! Transactions: `MULTI` to `EXEC`, and the keys that are watched for them.
//!
//! After `MULTI` the codec makes every request a call, and the requests are kept until `EXEC`,
//! which executes all of them as one transaction of [`isolation`](corewise_engine::isolation), on
//! the keys that their arguments name.
//!
//! # Bounds
//!
//! A transaction has at most [`MAX_REQUESTS`] requests, which together are no longer than one
//! request may be. A client watches at most [`MAX_WATCHED`] keys. Requests and keys count as
//! input of the connection, and are refused beyond the limit of all buffers. The replies to a
//! transaction take at most [`Context::most_replies`] bytes; if they are longer, all requests are
//! executed, and the connection is closed instead of a reply. A transaction that [costs](cost) too
//! much time is refused, and none of it is executed.

use super::client::client;
use super::table::{self, Command};
use super::{Context, cost, text};
use crate::codec::Answered;
use crate::config::ScriptKeys;
use corewise_engine::Engine;
use corewise_engine::isolation::{IsolatedTransaction, Watches};
use corewise_ops::database;
use corewise_wire::resp::{Args, Request, RequestQueue};
use std::borrow::Cow;
use std::collections::HashSet;

/// The most requests of a transaction.
const MAX_REQUESTS: usize = 1 << 16;
/// The most keys that a client watches.
const MAX_WATCHED: usize = 1 << 10;

const OUT_OF_MEMORY: &str = "OOM command not allowed when used memory > 'maxmemory'.";

/// What a client has of transactions.
#[derive(Default)]
pub(super) struct State {
    /// The requests since `MULTI`.
    queue: Option<Queue>,
    watches: Option<Watches>,
    /// How many requests `EXEC` executes now.
    executing: Option<usize>,
}

#[derive(Default)]
struct Queue {
    requests: RequestQueue,
    /// A request was refused, so `EXEC` executes none.
    is_refused: bool,
}

impl State {
    /// How many requests there are since `MULTI`, if there was one, until the end of its `EXEC`.
    pub(super) fn queued(&self) -> Option<usize> {
        let queue = self.queue.as_ref();
        queue.map_or(self.executing, |queue| Some(queue.requests.len()))
    }

    /// Bytes that it takes.
    pub(super) fn held(&self) -> usize {
        let queue = self.queue.as_ref().map_or(0, |queue| queue.requests.held());
        queue + self.watches.as_ref().map_or(0, Watches::held_bytes)
    }
}

/// The state of the client, if it has one.
fn state<'s, E: Engine>(cx: &'s mut Context<'_, E>) -> Option<&'s mut State> {
    let client = cx.conn.client.as_mut()?;
    Some(&mut client.transactions)
}

/// The requests since `MULTI`.
fn queue<'s, E: Engine>(cx: &'s mut Context<'_, E>) -> Option<&'s mut Queue> {
    state(cx)?.queue.as_mut()
}

/// Forgets the transaction and the watches.
pub(super) fn reset<E: Engine>(cx: &mut Context<'_, E>) {
    if let Some(state) = state(cx) {
        *state = State::default();
        cx.codec.end_calls();
    }
}

/// Notes that a request cannot be executed: if a transaction has begun, `EXEC` will fail.
pub(super) fn refuse<E: Engine>(cx: &mut Context<'_, E>) {
    if let Some(queue) = queue(cx) {
        queue.is_refused = true;
    }
}

/// The answer to a request with a wrong number of arguments.
#[cold]
pub(super) fn refuse_arguments<E: Engine>(cx: &mut Context<'_, E>, command: &str) {
    if command == "exec" {
        return abort(cx, "wrong number of arguments for 'exec' command");
    }
    refuse(cx);
    cx.wrong_arguments(command);
}

/// The answer to a request of a client that must authenticate first.
#[cold]
pub(super) fn refuse_unauthenticated<E: Engine>(cx: &mut Context<'_, E>, command: &str) {
    if command == "exec" {
        return abort(cx, text::NO_AUTH);
    }
    cx.error(text::NO_AUTH);
}

/// Ends the transaction for an error in the request `EXEC` itself.
fn abort<E: Engine>(cx: &mut Context<'_, E>, error: &str) {
    reset(cx);
    let cause = "EXECABORT Transaction discarded because of: ";
    cx.reply().error(&[cause.as_bytes(), error.as_bytes()]);
}

/// Whether the command waits for `EXEC`.
pub(super) fn keeps<E: Engine>(cx: &mut Context<'_, E>, command: &str) -> bool {
    let at_once = ["discard", "exec", "multi", "quit", "reset", "watch"];
    queue(cx).is_some() && !at_once.contains(&command)
}

/// Keeps a request for `EXEC`. Prints an error and returns false if it cannot be kept.
pub(super) fn keep<E: Engine>(cx: &mut Context<'_, E>, request: Request<'_>) -> bool {
    if is_client_reply(request) {
        // It would leave `EXEC` without some of its replies.
        refuse(cx);
        cx.error("ERR Command not allowed inside a transaction");
        return false;
    }
    let shared = cx.shared;
    let Some(queue) = queue(cx) else {
        return true;
    };
    if !queue.is_refused {
        let args = request.args().map(<[u8]>::len).sum::<usize>();
        let len = queue.requests.byte_len() + request.name().len() + args;
        let error = if len > shared.limits.resp.max_request || queue.requests.len() >= MAX_REQUESTS
        {
            Some("ERR the transaction exceeds the maximum length")
        } else if !shared.has_room(len, queue.requests.held()) {
            Some(OUT_OF_MEMORY)
        } else {
            queue.requests.push(request);
            None
        };
        if let Some(text) = error {
            *queue = Queue {
                is_refused: true,
                ..Queue::default()
            };
            cx.error(text);
            return false;
        }
    }
    cx.reply().simple("QUEUED");
    true
}

fn is_client_reply(request: Request<'_>) -> bool {
    let subcommand = request.args().next().unwrap_or(b"");
    request.name().eq_ignore_ascii_case(b"client") && subcommand.eq_ignore_ascii_case(b"reply")
}

/// `MULTI`.
pub(super) fn multi<E: Engine>(cx: &mut Context<'_, E>, _: Args<'_>) {
    if queue(cx).is_some() {
        return cx.error("ERR MULTI calls can not be nested");
    }
    let client = cx.conn.client.get_or_insert_default();
    client.transactions.queue = Some(Queue::default());
    cx.codec.begin_calls();
    cx.reply().simple("OK");
}

/// `DISCARD`.
pub(super) fn discard<E: Engine>(cx: &mut Context<'_, E>, _: Args<'_>) {
    if queue(cx).is_none() {
        return cx.error("ERR DISCARD without MULTI");
    }
    reset(cx);
    cx.reply().simple("OK");
}

/// `EXEC`.
pub(super) fn exec<E: Engine>(cx: &mut Context<'_, E>, _: Args<'_>) {
    let state = state(cx).map(std::mem::take).unwrap_or_default();
    let Some(queue) = state.queue else {
        if let Some(client) = &mut cx.conn.client {
            client.transactions = state; // its watches
        }
        return cx.error("ERR EXEC without MULTI");
    };
    if cx.codec.end_calls() || queue.is_refused {
        return cx.error("EXECABORT Transaction discarded because of previous errors.");
    }
    // Dropped when the transaction has ended: the drop locks stripes.
    let watches = state.watches;
    let transaction = begin(cx, &queue.requests, watches.as_ref());
    let is_unchanged = watches
        .as_ref()
        .is_none_or(|watches| watches.are_unchanged(&transaction, cx.session, cx.parse.now));
    if !is_unchanged {
        drop(transaction);
        return cx.reply().null_array();
    }
    client(cx).transactions.executing = Some(queue.requests.len());
    execute(cx, transaction, &queue.requests);
    client(cx).transactions.executing = None;
}

/// Begins a transaction on the keys of these requests and on those that are watched.
fn begin<'c, E: Engine>(
    cx: &Context<'c, E>,
    requests: &RequestQueue,
    watches: Option<&Watches>,
) -> IsolatedTransaction<'c> {
    let (isolation, now) = (&cx.shared.isolation, cx.parse.now);
    let commands = || {
        requests
            .iter()
            .filter_map(|request| Some((table::find_exactly(request)?, request.args())))
    };
    let scripts_use_all = cx.shared.config.script_keys == ScriptKeys::All;
    let needs_all =
        |command: Command| command.concerns_all_keys() || scripts_use_all && command.is_script();
    if commands().any(|(command, _)| needs_all(command)) {
        return isolation.begin_all(now);
    }
    let watched = watches.into_iter().flat_map(Watches::keys);
    let (mut selected, databases) = (cx.codec.database(), cx.shared.config.databases);
    let keys = commands().flat_map(|(command, args)| {
        let keys = command.places_of(args, selected, databases);
        selected = command.database_after(args, selected, databases);
        keys.map(|(n, key)| database::stored(n, key))
    });
    isolation.begin(now, keys.chain(watched.map(Cow::Borrowed)))
}

/// Executes requests in a transaction, and prints their replies.
fn execute<'c, E: Engine>(
    cx: &mut Context<'c, E>,
    transaction: IsolatedTransaction<'c>,
    requests: &RequestQueue,
) {
    let start = cx.out.len();
    let mut inner = Context {
        transaction: Some(transaction),
        shared: cx.shared,
        engine: cx.engine,
        session: cx.session,
        member: cx.member,
        counters: cx.counters,
        loop_index: cx.loop_index,
        parse: cx.parse,
        budget: cx.budget,
        conn: cx.conn,
        codec: cx.codec,
        out: cx.out,
        tally: cx.tally,
        is_silent: cx.is_silent,
        follows_flush: false,
        script_time: cx.script_time,
        replies_are_cut: false,
        answered: Answered::Fully,
    };
    if cost::is_too_high(&mut inner, requests) {
        return inner.error("EXECABORT Transaction discarded because it would take too long.");
    }
    inner.reply().array(requests.len());
    for request in requests.iter() {
        let (Some(command), Some(exactly)) =
            (table::find(request.name()), table::find_exactly(request))
        else {
            continue;
        };
        inner.counters.resp_calls += 1;
        inner.perform(command, exactly, request);
        inner.replies_are_cut |= is_too_long(&inner);
        if inner.replies_are_cut {
            inner.out.truncate(start);
        }
    }
    if inner.replies_are_cut {
        inner.out.truncate(start);
        inner.conn.closing = true;
    }
}

/// Whether no more replies may be printed.
pub(super) fn is_too_long<E: Engine>(cx: &Context<'_, E>) -> bool {
    cx.out.len() > cx.most_replies()
}

/// `WATCH key …`.
pub(super) fn watch<E: Engine>(cx: &mut Context<'_, E>, keys: Args<'_>) {
    if queue(cx).is_some() {
        return cx.error("ERR WATCH inside MULTI is not allowed");
    }
    let (shared, database) = (cx.shared, cx.codec.database());
    let state = &mut cx.conn.client.get_or_insert_default().transactions;
    let Some(keys) = unwatched(state.watches.as_ref(), keys, database) else {
        return cx.error("ERR too many watched keys");
    };
    let more = keys.iter().map(|key| Watches::bytes_of(key)).sum::<usize>();
    if !shared.has_room(state.held() + more, state.held() + more) {
        return cx.error(OUT_OF_MEMORY);
    }
    let isolation = &shared.isolation;
    let watches = state
        .watches
        .get_or_insert_with(|| Watches::new(isolation, cx.parse.now));
    for key in keys {
        watches.add(cx.session, cx.parse.now, &key);
    }
    cx.reply().simple("OK");
}

/// The stored keys that are not watched yet, each once; `None` if the client would watch too many.
fn unwatched<'i>(
    watches: Option<&Watches>,
    keys: Args<'i>,
    database: u8,
) -> Option<Vec<Cow<'i, [u8]>>> {
    let watched = watches.into_iter().flat_map(Watches::keys);
    let mut watched: HashSet<_> = watched.map(Cow::Borrowed).collect();
    let mut more = Vec::new();
    for key in keys {
        let key = database::stored(database, key);
        if watched.insert(key.clone()) {
            more.push(key);
        }
        if watched.len() > MAX_WATCHED {
            return None;
        }
    }
    Some(more)
}

/// `UNWATCH`.
pub(super) fn unwatch<E: Engine>(cx: &mut Context<'_, E>, _: Args<'_>) {
    if let Some(state) = state(cx) {
        state.watches = None;
    }
    cx.reply().simple("OK");
}
