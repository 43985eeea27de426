//! Commands of RESP: what each request means, and how calls are executed and answered.
//!
//! A command is a row of the [table]. Its `parse` reads the arguments; the `session` does so for
//! each request, and turns most requests on one key into operations, which are executed in batches.
//! The others are calls, which are executed here: at their place in the order of their connection's
//! requests, once all earlier operations have completed, so a call may use the session of its loop.
//! Requests that `EXEC` executes are read in the same way. Each family of commands has a file,
//! whose name stands in their rows.
//!
//! # Guarantees
//!
//! 1. A command on one key is atomic: it is one operation or one [`Update`] of the engine.
//! 2. `BITOP COPY EVAL EVALSHA MOVE MSET MSETNX RENAME RENAMENX EXEC FLUSHALL` and the commands
//!    of [`aggregates`] are atomic: they are transactions of
//!    [`isolation`](corewise_engine::isolation), and so is `FLUSHDB` in database 0 if no other one
//!    has keys. All other commands on several keys (`DEL EXISTS FLUSHDB LCS MGET TOUCH UNLINK`) are
//!    a sequence of operations, one for each key in order, and other clients may change the keys
//!    between two of them, except in `EXEC` and in scripts.
//! 3. A command that fails changes nothing, except that `MSET`, `MSETNX` and `CF.INSERT` may run
//!    out of memory when they have done a part, and that a script may fail between two commands.
//! 4. Error texts are those of Redis 7.0, and of RedisBloom for `CF.*`.
//!
//! # Long calls
//!
//! `DEL EXISTS FLUSHDB KEYS RANDOMKEY TOUCH UNLINK` look at the clock after each part of their
//! work, and are *unfinished* if their connection has spent its time [`budget`](crate::budget) of
//! the turn: the request stays at the front of the input, its [`Progress`] in the state of the
//! client, and the next turn calls it again. So are requests on a [filter](filters) that is
//! compacted, and those that insert or look for several items: they look at the clock after each
//! step, and each item. `SCAN` ends its step instead. All other calls end in the turn in which they
//! begin:
//!
//! | call | takes time in proportion to |
//! |---|---|
//! | `BITCOUNT BITPOS COPY MOVE RENAME RENAMENX SETBIT` and others on one value | the length of the value, one item at most |
//! | `BITOP` | the values that it reads, [`MAX_READ`] bytes or four items of the largest size |
//! | `LCS` | [pairs of bytes](lcs), 16,777,216 at most |
//! | `BITFIELD COMMAND INFO MSET MSETNX WATCH` | the request |
//! | `CF.LOADCHUNK CF.SCANDUMP` | a part of the dump, 16 MiB at most |
//! | `CLIENT KILL`, `CLIENT LIST` | the connections of the server |
//! | `EVAL EVALSHA` | the script, whose time is [bounded](crate::scripts) |
//! | those of [`aggregates`] | the members that they read, 4 Mi at most |
//! | `EXEC` | the [cost] of its requests, which is bounded, and the time of its scripts |

mod acl;
mod aggregates;
mod bits;
mod client;
mod cluster;
mod command;
mod compare;
mod connection;
mod cost;
mod counts;
mod filters;
mod float;
mod form;
mod glob;
mod keys;
mod keyspace;
mod latency;
mod lcs;
mod operation;
mod pubsub;
mod scripting;
mod server;
mod session;
mod several;
mod slowlog;
mod sorted;
mod strings;
mod table;
#[cfg(test)]
mod tests;
mod transactions;

use crate::budget::Budget;
use crate::classes::ClassCounts;
use crate::codec::{Answered, Parse};
use crate::conn::Conn;
use crate::metrics::Counters;
use crate::shared::Shared;
use corewise_engine::Engine;
use corewise_engine::isolation::{IsolatedTransaction, Isolation, Member};
use corewise_ops::sorted::SortedOp;
use corewise_ops::{
    Change, Decision, Flow, Get, ItemView, Now, Op, Outcome, ReplySink, Token, Update, Updated,
    Verb, database,
};
use corewise_wire::Tally;
use corewise_wire::resp::{Args, Encoder, Request, until_nul};
pub(crate) use counts::{CommandCounts, CommandSums, is_timed};
pub(crate) use form::ReplyForm;
use form::ReplyShape;
use operation::{Action, Operation};
pub(crate) use session::RespSession;
pub(crate) use slowlog::SlowLog;
use std::borrow::Cow;
use std::sync::Arc;
use std::time::{Duration, Instant};
pub(crate) use table::Command;

/// The most bytes that [`Context::most_replies`] returns, unless requests may be longer.
const MAX_REPLIES: usize = 64 << 20;

/// The bytes of values that `BITOP` reads at most, unless items may be larger.
const MAX_READ: usize = 64 << 20;
/// The keys after which a call on many of them looks at the clock, unless they are more than
/// [`MAX_PARTS`] times this number.
const KEYS_PART: usize = 64;
/// The parts of a call on many keys: in each turn the whole request is parsed again.
const MAX_PARTS: usize = 32;

/// Error texts that several commands have.
mod text {
    pub(super) const SYNTAX: &str = "ERR syntax error";
    pub(super) const NOT_AN_INTEGER: &str = "ERR value is not an integer or out of range";
    pub(super) const NOT_A_FLOAT: &str = "ERR value is not a valid float";
    pub(super) const LONG_PATTERN: &str = "ERR the pattern exceeds the maximum length";
    pub(super) const NO_SUCH_KEY: &str = "ERR no such key";
    pub(super) const NO_AUTH: &str = "NOAUTH Authentication required.";
}

/// What a connection of RESP has beside what all connections have.
#[derive(Default)]
pub(crate) struct ClientState {
    /// The number of the client, for `CLIENT ID`.
    id: u64,
    /// The name that the client has given itself.
    name: Vec<u8>,
    /// The transaction that it has begun with `MULTI`, and the keys that it watches.
    transactions: transactions::State,
    /// What the request at the front of the input has done, if it is unfinished.
    progress: Option<Progress>,
    /// The time that the parts of that request have taken.
    spent: Duration,
}

/// What an unfinished call has done.
enum Progress {
    /// The keys that were looked at, and the reply so far.
    Keys {
        done: usize,
        count: i64,
    },
    Listing(keyspace::Listing),
    /// It waits for a compaction of a filter, which it may have begun.
    Compaction {
        is_own: bool,
    },
    /// The replies to the items that were inserted into a filter, or looked for in it.
    Items {
        done: usize,
        replies: Vec<u8>,
    },
    Choice(keyspace::Choice),
    Removal(keyspace::Removal),
}

impl ClientState {
    /// The requests that wait for `EXEC`, if there is a transaction.
    pub(crate) fn queued(&self) -> Option<usize> {
        self.transactions.queued()
    }

    /// Bytes that wait for `EXEC`, and those of an unfinished call.
    pub(crate) fn held(&self) -> usize {
        let listing = match &self.progress {
            Some(Progress::Listing(listing)) => listing.held(),
            Some(Progress::Items { replies, .. }) => replies.capacity(),
            _ => 0,
        };
        self.transactions.held() + listing
    }
}

/// What a command needs.
pub(crate) struct Context<'c, E: Engine> {
    pub(crate) shared: &'c Shared,
    pub(crate) engine: &'c Arc<E>,
    /// Nothing is pending in it.
    pub(crate) session: &'c mut E::Session,
    /// Operations go through it, or through the transaction if there is one.
    pub(crate) member: &'c mut Member,
    /// The transaction that the command runs in.
    pub(crate) transaction: Option<IsolatedTransaction<'c>>,
    pub(crate) counters: &'c mut Counters,
    /// The index of the loop.
    pub(crate) loop_index: usize,
    pub(crate) parse: Parse<'c>,
    pub(crate) budget: &'c Budget,
    pub(crate) conn: &'c mut Conn,
    pub(crate) codec: &'c mut RespSession,
    pub(crate) out: &'c mut Vec<u8>,
    /// What the operations of the command count as, according to its row.
    pub(crate) tally: Tally,
    /// The client does not want the reply to this command.
    pub(crate) is_silent: bool,
    /// The command directly follows a flush of the same connection.
    pub(crate) follows_flush: bool,
    /// How long a script may take, or the scripts of the transaction that are left.
    pub(crate) script_time: Duration,
    /// The replies to the transaction are too long, so they are no longer printed.
    pub(crate) replies_are_cut: bool,
    pub(crate) answered: Answered,
}

/// An [`Update`] by a function, whose new value is in the buffer.
struct Updating<F> {
    value: Vec<u8>,
    decide: F,
    any_kind: bool,
}

impl<F: FnMut(Option<&ItemView<'_>>, &mut Vec<u8>) -> Decision> Update for Updating<F> {
    fn update(&mut self, old: Option<&ItemView<'_>>) -> Change<'_> {
        self.value.clear();
        (self.decide)(old, &mut self.value).with(&self.value)
    }

    fn takes_any_kind(&self) -> bool {
        self.any_kind
    }
}

/// Counts operations, whose tokens are their places, and shows their outcomes to a function.
struct Counting<'s, F> {
    counters: &'s mut Counters,
    classes: &'s ClassCounts,
    tally: Tally,
    ops: &'s [Op<'s>],
    look: F,
}

impl<F: FnMut(&Outcome<'_>)> ReplySink for Counting<'_, F> {
    fn complete(&mut self, token: Token, outcome: Outcome<'_>) -> Flow {
        let op = &self.ops[token as usize];
        self.counters.count(self.tally, &outcome);
        self.classes.count(self.tally, op.key, &op.verb, &outcome);
        (self.look)(&outcome);
        Flow::Continue
    }
}

impl<'c, E: Engine> Context<'c, E> {
    /// Executes the command, or keeps it for `EXEC`, and prints its reply if it has one.
    pub(crate) fn answer(&mut self, request: Request<'_>) -> Answered {
        let start = self.out.len();
        self.is_silent = self.codec.takes_silence();
        let client = self.conn.client.as_ref();
        let goes_on = client.is_some_and(|client| client.progress.is_some());
        self.counters.resp_calls += u64::from(!goes_on);
        if let Some(refused) = self.execute(request) {
            self.count_refusal(refused, start);
        }
        if self.is_silent {
            self.out.truncate(start);
        }
        self.answered
    }

    /// Executes the request. Returns the command that was refused, if one was.
    fn execute(&mut self, request: Request<'_>) -> Option<Command> {
        let args = request.args();
        let Some(command) = table::find(request.name()) else {
            if is_http(request.name()) {
                transactions::reset(self);
                self.conn.closing = true;
                return None;
            }
            transactions::refuse(self);
            self.unknown(request);
            return Some(Command::NONE);
        };
        self.codec.note(command);
        if !command.accepts(args.len() + 1) {
            transactions::refuse_arguments(self, command.name);
            return Some(command);
        }
        let mut exactly = command;
        if let Some(subcommand) = { args }.next()
            && command.subcommands().next().is_some()
        {
            let subcommand = command.subcommand(subcommand);
            let Some(subcommand) = subcommand else {
                transactions::refuse(self);
                self.unknown_subcommand(command.name, args);
                return Some(Command::NONE);
            };
            exactly = subcommand;
            self.codec.note(exactly);
            if !exactly.accepts(args.len() + 1) {
                transactions::refuse(self);
                self.wrong_arguments(exactly.name);
                return Some(exactly);
            }
        }
        if !self.codec.is_authenticated() && !command.has_flag("no_auth") {
            transactions::refuse_unauthenticated(self, command.name);
            return Some(exactly);
        }
        if !self.shared.config.enable_scripts && command.group == "scripting" {
            transactions::refuse(self);
            self.not_permitted(exactly.name);
            return Some(exactly);
        }
        if transactions::keeps(self, command.name) {
            let is_kept = transactions::keep(self, request);
            return (!is_kept).then_some(exactly);
        }
        self.perform(command, exactly, request);
        None
    }

    /// Counts that a request was refused; the reply begins at `start`.
    #[cold]
    fn count_refusal(&mut self, command: Command, start: usize) {
        if let Some(error) = error_at(self.out, start) {
            let counts = &self.shared.loops[self.loop_index].commands;
            counts.rejected(command, error);
        }
    }

    /// Executes a command or its subcommand, and prints its reply. Counts and times the call, of
    /// which this may be a part.
    fn perform(&mut self, command: Command, exactly: Command, request: Request<'_>) {
        let (since, start) = (Instant::now(), self.out.len());
        self.perform_uncounted(command, request.args());
        let (time, is_over) = (since.elapsed(), self.answered != Answered::NotYet);
        let total = self.add_spent(time, is_over);
        let slow_log = &self.shared.slow_log;
        if is_over && slow_log.is_slow(total) && !exactly.has_flag("skip_slowlog") {
            let times = (self.parse.unix_ms / 1_000, total);
            slow_log.add(request, command, &self.conn.info, times);
        }
        let counts = &self.shared.loops[self.loop_index].commands;
        counts.took(exactly, time);
        if is_over {
            counts.called(exactly);
            if let Some(error) = error_at(self.out, start) {
                counts.failed(exactly, error);
            }
        }
    }

    /// Adds the time of a part of a call to that of the earlier ones. Returns the sum, which begins
    /// anew if the call is over.
    fn add_spent(&mut self, time: Duration, is_over: bool) -> Duration {
        let Some(client) = &mut self.conn.client else {
            return time; // a call that pauses makes it
        };
        let total = client.spent + time;
        client.spent = if is_over { Duration::ZERO } else { total };
        total
    }

    fn perform_uncounted(&mut self, command: Command, args: Args<'_>) {
        self.tally = command.tally;
        match (command.parse)(args, &self.parse) {
            Ok(Action::Op(operation) | Action::Alone(operation)) => self.run(&operation),
            Ok(Action::Count(operation)) => self.count(args, operation),
            Ok(Action::GetEach) => self.get_each(args),
            Ok(Action::Call) => command.run()(self, args),
            Err(failure) => self.reply().error(&failure.0),
        }
    }

    /// Runs `run` as one transaction on these keys of the database that is selected, or in the one
    /// that runs already.
    fn atomically<'k, R>(
        &mut self,
        keys: impl IntoIterator<Item = &'k [u8]>,
        run: impl FnOnce(&mut Self) -> R,
    ) -> R {
        let database = self.codec.database();
        self.atomically_on(keys.into_iter().map(|key| (database, key)), run)
    }

    /// Runs `run` as one transaction on these keys, each of a database, or in the one that runs
    /// already.
    fn atomically_on<'k, R>(
        &mut self,
        keys: impl IntoIterator<Item = (u8, &'k [u8])>,
        run: impl FnOnce(&mut Self) -> R,
    ) -> R {
        let stored = keys.into_iter().map(|(n, key)| database::stored(n, key));
        self.in_transaction(|isolation, now| isolation.begin(now, stored), run)
    }

    /// Runs `run` with another database selected.
    fn in_database<R>(&mut self, database: u8, run: impl FnOnce(&mut Self) -> R) -> R {
        let before = self.codec.database();
        self.codec.set_database(database);
        let result = run(self);
        self.codec.set_database(before);
        result
    }

    /// The stored key of a key of the database that is selected.
    fn stored<'k>(&self, key: &'k [u8]) -> Cow<'k, [u8]> {
        database::stored(self.codec.database(), key)
    }

    /// Runs `run` as one transaction on all keys, or in the one that runs already.
    fn atomically_on_all<R>(&mut self, run: impl FnOnce(&mut Self) -> R) -> R {
        self.in_transaction(Isolation::begin_all, run)
    }

    fn in_transaction<R>(
        &mut self,
        begin: impl FnOnce(&'c Isolation, Now) -> IsolatedTransaction<'c>,
        run: impl FnOnce(&mut Self) -> R,
    ) -> R {
        if self.transaction.is_some() {
            return run(self);
        }
        self.transaction = Some(begin(&self.shared.isolation, self.parse.now));
        let result = run(self);
        self.transaction = None;
        result
    }

    fn reply(&mut self) -> Encoder<'_> {
        Encoder::new(self.codec.version(), self.out)
    }

    fn error(&mut self, text: &str) {
        self.reply().error(&[text.as_bytes()]);
    }

    /// An unknown command: its name and the beginning of its arguments are shown.
    #[cold]
    fn unknown(&mut self, request: Request<'_>) {
        const MOST: usize = 128;
        let mut args = Vec::new();
        for arg in request.args() {
            if args.len() >= MOST {
                break;
            }
            let shown = until_nul(arg);
            let room = MOST - args.len();
            args.push(b'\'');
            args.extend_from_slice(&shown[..shown.len().min(room)]);
            args.extend_from_slice(b"' ");
        }
        let name = until_nul(request.name());
        let name = &name[..name.len().min(MOST)];
        self.reply().error(&[
            b"ERR unknown command '",
            name,
            b"', with args beginning with: ",
            &args,
        ]);
    }

    #[cold]
    fn wrong_arguments(&mut self, command: &str) {
        self.reply().error(&[
            b"ERR wrong number of arguments for '",
            command.as_bytes(),
            b"' command",
        ]);
    }

    /// A command that the operator has turned off, as one that a user of Redis may not have.
    #[cold]
    fn not_permitted(&mut self, command: &str) {
        self.reply().error(&[
            b"NOPERM this user has no permissions to run the '",
            command.as_bytes(),
            b"' command",
        ]);
    }

    /// A subcommand with other arguments than it has.
    #[cold]
    fn unknown_arguments(&mut self, command: &str, subcommand: &[u8]) {
        self.reply().error(&[
            b"ERR unknown subcommand or wrong number of arguments for '",
            subcommand,
            b"'. Try ",
            command.as_bytes(),
            b" HELP.",
        ]);
    }

    #[cold]
    fn unknown_subcommand(&mut self, command: &str, mut args: Args<'_>) {
        let [subcommand] = first(&mut args);
        let shown = until_nul(subcommand);
        self.reply().error(&[
            b"ERR unknown subcommand '",
            &shown[..shown.len().min(128)],
            b"'. Try ",
            command.to_ascii_uppercase().as_bytes(),
            b" HELP.",
        ]);
    }

    /// The most bytes of the replies to a transaction, and of the keys that `KEYS` prints: a
    /// quarter of the memory limit, but [`MAX_REPLIES`] at most, and at least as much as a request
    /// may have.
    fn most_replies(&self) -> usize {
        let quarter = usize::try_from(self.engine.memory_limit() / 4).unwrap_or(MAX_REPLIES);
        quarter
            .min(MAX_REPLIES)
            .max(self.shared.limits.resp.max_request)
    }

    /// Whether a long call must go on in the next turn. A transaction is executed at once.
    fn must_pause(&self) -> bool {
        self.transaction.is_none() && self.budget.is_spent()
    }

    /// What this request has done in earlier turns.
    fn take_progress(&mut self) -> Option<Progress> {
        self.conn.client.as_mut()?.progress.take()
    }

    /// Ends the call for this turn.
    fn pause(&mut self, progress: Progress) {
        self.conn.client.get_or_insert_default().progress = Some(progress);
        self.answered = Answered::NotYet;
    }

    /// Executes an operation on each key, and prints how many have found an item. Other requests
    /// may be executed between two of them.
    fn count<'i>(&mut self, keys: Args<'i>, operation: fn(&'i [u8]) -> Operation<'i>) {
        let (mut done, mut count) = match self.take_progress() {
            Some(Progress::Keys { done, count }) => (done, count),
            _ => (0, 0),
        };
        let part = KEYS_PART.max(keys.len() / MAX_PARTS);
        for key in keys.skip(done) {
            let operation = operation(key);
            self.operate(
                operation.tally(self.tally),
                key,
                operation.verb,
                |outcome| {
                    count += i64::from(matches!(outcome, Outcome::Found(_) | Outcome::Deleted));
                },
            );
            done += 1;
            if done.is_multiple_of(part) && self.must_pause() {
                return self.pause(Progress::Keys { done, count });
            }
        }
        self.reply().integer(count);
    }

    /// Prints the values of the keys, unless the replies to a transaction become too long.
    fn get_each(&mut self, keys: Args<'_>) {
        self.reply().array(keys.len());
        for key in keys {
            self.run(&Operation::read(key, ReplyShape::StringOrNull));
            if transactions::is_too_long(self) {
                return; // `EXEC` closes the connection
            }
        }
    }

    /// Executes one operation, and prints its reply.
    fn run(&mut self, operation: &Operation<'_>) {
        // The call is counted by `perform`.
        let form = operation.form(Command::NONE, self.tally, self.codec.version());
        let (mut most, is_range) = (self.most_replies(), form.is_range());
        if self.transaction.is_some() {
            let is_write = matches!(operation.verb, Verb::Sorted(SortedOp::Write(_)));
            if is_range && !is_write && self.replies_are_cut {
                return; // it would be printed for nothing, and `cost` does not know how long it is
            }
            most = most.saturating_sub(self.out.len());
        }
        let form = form.with_room(most);
        let now = self.parse.now;
        let mut out = std::mem::take(self.out);
        let (start, mut is_cut) = (out.len(), false);
        self.operate(form.tally(), operation.key, operation.verb, |outcome| {
            form.encode(outcome, now, &mut out);
            // Instead of members that have no room there is an error.
            let has_members = matches!(outcome, Outcome::Sorted { .. });
            is_cut = is_range && has_members && out[start..].starts_with(b"-");
        });
        *self.out = out;
        self.replies_are_cut |= is_cut && self.transaction.is_some();
    }

    /// Lists the subcommands of a command.
    #[cold]
    fn help(&mut self, command: &str, subcommands: &str) {
        let mut reply = self.reply();
        reply.array(2);
        reply.simple(&format!("{command} has these subcommands, and HELP:"));
        reply.simple(subcommands);
    }

    /// Executes one operation, counts it, and shows its outcome to `look`.
    fn operate(
        &mut self,
        tally: Tally,
        key: &[u8],
        verb: Verb<'_>,
        look: impl FnMut(&Outcome<'_>),
    ) {
        let key = self.stored(key);
        let ops = [Op::new(0, &key, verb)];
        let mut sink = Counting {
            counters: self.counters,
            classes: &self.shared.loops[self.loop_index].classes,
            tally,
            ops: &ops,
            look,
        };
        match &mut self.transaction {
            Some(transaction) => transaction.run(self.session, self.parse.now, &ops[0], &mut sink),
            None => self
                .member
                .run_one(self.session, self.parse.now, &ops[0], &mut sink),
        }
    }

    /// Executes operations of the transaction that runs, counts each, and shows their outcomes to
    /// `look`. Their tokens are their places.
    fn operate_on_all(&mut self, ops: &[Op<'_>], look: impl FnMut(&Outcome<'_>)) {
        debug_assert!(self.transaction.is_some());
        let keys: Vec<_> = ops.iter().map(|op| self.stored(op.key)).collect();
        let ops = ops.iter().zip(&keys).map(|(op, key)| Op { key, ..*op });
        let ops: &[Op<'_>] = &ops.collect::<Vec<_>>();
        let Some(transaction) = &mut self.transaction else {
            return;
        };
        let mut sink = Counting {
            counters: self.counters,
            classes: &self.shared.loops[self.loop_index].classes,
            tally: self.tally,
            ops,
            look,
        };
        transaction.run_all(self.session, self.parse.now, ops, &mut sink);
    }

    /// Whether the key exists. Does not count as a use of the item.
    fn exists(&mut self, tally: Tally, key: &[u8]) -> bool {
        let mut found = false;
        self.peek(tally, key, |item| found = item.is_some());
        found
    }

    /// Shows the item of the key. Does not count as a use of the item.
    fn peek(&mut self, tally: Tally, key: &[u8], mut look: impl FnMut(Option<&ItemView<'_>>)) {
        let get = Get::QUIET;
        self.operate(tally, key, Verb::Get(get), |outcome| match outcome {
            Outcome::Found(view) => look(Some(view)),
            _ => look(None),
        });
    }

    /// Changes the string of the key as `decide` says, which may be called several times. Prints an
    /// error and returns false if that fails.
    fn update(
        &mut self,
        key: &[u8],
        decide: impl FnMut(Option<&ItemView<'_>>, &mut Vec<u8>) -> Decision,
    ) -> bool {
        self.update_with(key, decide, false)
    }

    /// As [`update`](Self::update), for an item of any kind.
    fn update_any_kind(
        &mut self,
        key: &[u8],
        decide: impl FnMut(Option<&ItemView<'_>>, &mut Vec<u8>) -> Decision,
    ) -> bool {
        self.update_with(key, decide, true)
    }

    fn update_with(
        &mut self,
        key: &[u8],
        decide: impl FnMut(Option<&ItemView<'_>>, &mut Vec<u8>) -> Decision,
        any_kind: bool,
    ) -> bool {
        self.counters.operations += 1;
        let key = &*self.stored(key);
        let mut update = Updating {
            value: Vec::new(),
            decide,
            any_kind,
        };
        let updated = match &mut self.transaction {
            Some(transaction) => transaction.update(self.session, self.parse.now, key, &mut update),
            None => self
                .member
                .update(self.session, self.parse.now, key, &mut update),
        };
        let failure = match updated {
            Updated::Done => return true,
            Updated::TooLarge => Outcome::TooLarge,
            Updated::OutOfMemory => Outcome::OutOfMemory,
            Updated::WrongKind => Outcome::WrongKind,
        };
        self.error(ReplyForm::error_text(&failure));
        false
    }
}

/// The names of all commands and subcommands, and how many elements their requests have.
#[cfg(test)]
pub(crate) fn rows() -> impl Iterator<Item = (&'static str, i8)> {
    table::rows().map(|command| (command.name, command.arity))
}

/// The shortest request of each command whose arguments name keys, but for those that no
/// transaction has, and for scripts, whose time is bounded while they run: its name, the request,
/// and whether it may read whole strings. All keys are `key`, and the other arguments are 1.
#[cfg(test)]
pub(crate) fn requests_on(key: &str) -> Vec<(&'static str, String, bool)> {
    let with_keys =
        table::all().filter(|row| row.has_keys() && !row.is_script() && row.name != "watch");
    let request = |command: Command| {
        let [first, last, step] = command.range().map(isize::from);
        let elements = isize::from(command.arity).abs();
        let last = if last < 0 { elements + last } else { last };
        let words = (1..elements).map(|at| {
            let in_range = (first..=last).contains(&at) && (at - first) % step == 0;
            let is_numbered = command.numbered_at().is_some_and(|n| at == n as isize + 1);
            if in_range || is_numbered { key } else { "1" }
        });
        let words: Vec<&str> = std::iter::once(command.name).chain(words).collect();
        (command.name, words.join(" "), command.reads_strings())
    };
    with_keys.map(request).collect()
}

/// Whether a request is a line of HTTP, as a web page can make a browser send it. The connection is
/// then closed without a reply, as in Redis, before commands in the body are executed.
fn is_http(name: &[u8]) -> bool {
    name.eq_ignore_ascii_case(b"post") || name.eq_ignore_ascii_case(b"host:")
}

/// The error that the reply at `start` is, without `-`.
fn error_at(out: &[u8], start: usize) -> Option<&[u8]> {
    out.get(start..)?.strip_prefix(b"-")
}

/// The first `N` arguments. Missing ones are empty; arities are checked before.
fn first<'i, const N: usize>(args: &mut Args<'i>) -> [&'i [u8]; N] {
    std::array::from_fn(|_| args.next().unwrap_or(b""))
}
