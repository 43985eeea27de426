//! One turn of an event loop: executes the requests of all readable connections in batches, and
//! answers each connection in one write.
//!
//! ```text
//!  arena   │ conn 7: get a … get b … │ conn 3: set c … │ conn 9: get d … │
//!             └─ codec ─▶ ops   [a7, b7, c3, d9]  ─▶ engine.submit
//!             └─────────▶ marks [a7, b7, "ERROR"7, c3, d9]   (what to print, where to rewind to)
//!  output  │ replies to 7            │ replies to 3    │ replies to 9    │ ─▶ one write each
//! ```
//!
//! # Guarantees
//!
//! 1. Replies leave in the order of the requests of their connection.
//! 2. A request is executed only if its connection's earlier replies are written or fit the output
//!    buffer. When the buffer is full ([`OUTPUT_PAUSE`]) the batch pauses and the replies are
//!    written. If the socket of a connection is full, its later requests are *rewound*: they stay
//!    in the input, unexecuted, until the socket takes bytes again. Operations that the engine has
//!    accepted but not completed are not rewound; their replies wait for the socket.
//! 3. A value of [`LARGE`] bytes or more is not copied, except for the part that the socket does
//!    not take. Inside the engine's critical section, one vectored write, which never blocks, sends
//!    the replies of its connection so far, its head, the value from the item, and its tail. If the
//!    socket is full then, the batch pauses as in 2.
//! 4. An operation allocates nothing: all vectors are reused.
//! 5. A [call](crate::codec::Call) runs alone: all operations before it in the batch have
//!    completed, and the next request is parsed when it is over.
//! 6. The requests of one connection take its time [`budget`](crate::budget) and one unit. The
//!    others are rewound, or are not parsed yet.

use crate::admin;
use crate::budget::Budget;
use crate::buffer_accounting::ReplyRoom;
use crate::codec::{Call, Codec, Form, Parse, Protocol, StepOf, with_codec};
use crate::commands;
use crate::config::BindingProtocol;
use crate::conn::Conn;
use crate::metrics::Counters;
use crate::receiving::Receiving;
use crate::shared::{BATCH, LoopCard, Shared};
use crate::transport::length;
use bumpalo::Bump;
use corewise_atomic::Backoff;
use corewise_atomic::sync::atomic::Ordering;
use corewise_engine::isolation::Member;
use corewise_engine::{Engine, Session};
use corewise_ops::{Flow, ItemFlags, ItemView, Now, Op, Outcome, ReplySink, Token, Verb};
use corewise_wire::memcached::Admin;
use corewise_wire::{Step, Tally, binary};
use slab::Slab;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

/// A batch pauses when this many bytes of replies wait to be written.
pub(crate) const OUTPUT_PAUSE: usize = 256 << 10;

/// How often in a row an engine may be polled without completing anything; this takes some minutes,
/// since the thread yields in between.
/// An engine that exceeds it is broken: the loop panics and the server ends with an error, rather
/// than spin forever.
const MOST_IDLE_ROUNDS: u64 = 1 << 28;

/// A value of at least this many bytes is sent from its item rather than copied first. If a client
/// asks for several such values at a time, each costs a system call that a shared buffer would
/// save: with eight values, that is as much as copying some 40 KiB.
pub(crate) const LARGE: usize = 48 << 10;

/// Maximum bytes of a reply beside its value: the key, numbers and flags.
const HEAD_BYTES: usize = 1 << 10;

/// A connection's part in this turn.
#[derive(Default)]
pub(crate) struct ConnectionInput {
    /// The connection's key in the loop's slab.
    pub(crate) conn: usize,
    /// The connection's buffer, if it has one; otherwise it was read into the arena.
    pub(crate) own: Vec<u8>,
    /// The connection's part of the arena; empty if `own` is used.
    pub(crate) arena: Range<usize>,
    /// How much of the input has been consumed.
    pub(crate) done: usize,
    /// There is no memory for the rest of its incomplete request.
    pub(crate) refused: bool,
    /// A store whose value was received in place; executed before the input.
    pub(crate) received: Option<Box<Receiving>>,
}

impl ConnectionInput {
    fn input<'a>(&'a self, arena: &'a [u8]) -> &'a [u8] {
        if self.arena.is_empty() {
            &self.own
        } else {
            &arena[self.arena.clone()]
        }
    }
}

/// What a [`PendingReply`] stands for.
#[derive(Clone, Copy)]
enum Kind<'i> {
    /// An operation, and how to print its outcome.
    Op(Form<'i>, Verb<'i>),
    /// Bytes between the replies to operations.
    Fixed(&'i [u8]),
    /// Rewound: neither executed nor answered.
    Void,
}

/// One request of the batch: what to answer, and where to rewind to.
#[derive(Clone, Copy)]
struct PendingReply<'i> {
    work: usize,
    /// Offset in the input at which the request begins, and the codec's state there.
    at: usize,
    codec: Codec,
    kind: Kind<'i>,
}

/// Where a connection's replies begin in the output.
#[derive(Clone, Copy)]
struct Segment {
    work: usize,
    start: usize,
}

/// Prints outcomes; passed to the engine.
struct Printer<'t, 'i, 'r> {
    works: &'t [ConnectionInput],
    conns: &'t mut Slab<Conn>,
    card: &'t LoopCard,
    marks: &'t [PendingReply<'i>],
    /// The first mark that is not answered.
    next: usize,
    /// The connection that was answered last takes no more replies now.
    blocked: bool,
    /// The batch pauses when this many bytes of replies wait: [`ReplyRoom::pause`], less the bytes
    /// of values that were read or written and not printed.
    pause_at: usize,
    /// See [`ReplyRoom::large`].
    large: usize,
    /// Whether the engine executes nothing behind an operation at which the printer pauses.
    may_put_off: bool,
    /// The last operation was not answered, and is to be executed again.
    has_put_off: bool,
    out: &'t mut Vec<u8>,
    segments: &'t mut Vec<Segment>,
    counters: &'t mut Counters,
    room: &'t mut ReplyRoom<'r>,
    /// Present if prefixes are to be counted.
    detail: Option<&'t Shared>,
    now: Now,
}

impl Printer<'_, '_, '_> {
    #[inline]
    fn begin(&mut self, work: usize) {
        if self
            .segments
            .last()
            .is_none_or(|segment| segment.work != work)
        {
            self.segments.push(Segment {
                work,
                start: self.out.len(),
            });
        }
    }

    /// Prints fixed replies up to the mark `end`.
    #[inline]
    fn fixed_until(&mut self, end: usize) {
        while self.next < end {
            let mark = self.marks[self.next];
            if let Kind::Fixed(bytes) = mark.kind {
                self.begin(mark.work);
                self.out.extend_from_slice(bytes);
            }
            self.next += 1;
        }
    }

    /// Sends a large value straight from the item, behind the replies that its connection has not
    /// been sent yet. What the socket does not take is copied to the connection's waiting output,
    /// if there is room. The engine then pauses, so that the connection's further requests can be
    /// rewound.
    #[cold]
    fn complete_large(
        &mut self,
        mark: &PendingReply<'_>,
        form: &Form<'_>,
        outcome: &Outcome<'_>,
        is_admitted: bool,
    ) {
        let Some((value, tail)) = form.encode_parts(outcome, self.now, self.out) else {
            return;
        };
        // Before the reply leaves, so that a client that has it finds it counted.
        self.card.counts.publish(self.counters);
        let start = self.segments.last().map_or(0, |segment| segment.start);
        let key = self.works[mark.work].conn;
        let mut parts = [&self.out[start..], value, tail];
        let taken = self.conns[key].send_front(&mut parts, &mut self.room.wait);
        self.counters.bytes_written += taken as u64;
        if length(&parts) > 0 && !self.room.keep(self.conns, key, parts, is_admitted) {
            self.counters.replies_refused += 1;
        }
        self.blocked = self.conns[key].takes_no_replies();
        self.touch(value.len());
        self.out.truncate(start);
    }

    /// Whether the reply with a large value may wait for its client; `None` if its connection waits
    /// until it may, and the read is to be executed again.
    #[cold]
    fn admits(&mut self, work: usize, verb: &Verb<'_>, outcome: &Outcome<'_>) -> Option<bool> {
        let Outcome::Found(view) = outcome else {
            return Some(false);
        };
        if !self.may_put_off || !is_repeatable(verb, view) {
            return Some(false);
        }
        let key = self.works[work].conn;
        let segment = self.segments.last().filter(|last| last.work == work);
        let printed = self.out.len() - segment.map_or(self.out.len(), |last| last.start);
        let length = printed + view.value.len() + HEAD_BYTES;
        if self.conns[key].failed || self.room.admits(self.conns, key, length) {
            return Some(true);
        }
        self.room.put_off(&mut self.conns[key], length);
        (self.blocked, self.has_put_off) = (true, true);
        None
    }

    /// Lets the batch pause earlier for bytes of values that were not printed.
    #[inline]
    fn touch(&mut self, bytes: usize) {
        self.pause_at = self.pause_at.saturating_sub(bytes);
    }

    #[cold]
    fn count_prefix(&self, shared: &Shared, form: &Form<'_>, hit: bool) {
        let column = match form.tally() {
            Tally::Get | Tally::Gat => 0,
            Tally::Store | Tally::Cas | Tally::Refused | Tally::Unread => 2,
            Tally::Delete => 3,
            _ => return,
        };
        shared.count_prefix(form.key(), column, hit && column == 0);
    }
}

/// Whether a read that found `view` may be executed again: it has not won anything.
fn is_repeatable(verb: &Verb<'_>, view: &ItemView<'_>) -> bool {
    matches!(verb, Verb::Get(_)) && !view.flags.contains(ItemFlags::WON)
}

impl ReplySink for Printer<'_, '_, '_> {
    #[inline]
    fn complete(&mut self, token: Token, outcome: Outcome<'_>) -> Flow {
        let index = token as usize;
        self.fixed_until(index);
        self.next = index + 1;
        let mark = &self.marks[index];
        if let Kind::Op(form, verb) = &mark.kind {
            let is_large =
                matches!(&outcome, Outcome::Found(view) if view.value.len() >= self.large);
            let mut is_admitted = false;
            if is_large {
                match self.admits(mark.work, verb, &outcome) {
                    Some(admitted) => is_admitted = admitted,
                    None => return Flow::Pause,
                }
            }
            self.begin(mark.work);
            let tally = form.tally();
            self.counters.count(tally, &outcome);
            self.counters.cmd_meta += u64::from(form.is_meta());
            let classes = &self.card.classes;
            classes.count(tally, form.key(), verb, &outcome);
            if is_large {
                self.complete_large(mark, form, &outcome, is_admitted);
            } else {
                form.encode(&outcome, self.now, self.out);
                // The engine may have copied these bytes.
                match &outcome {
                    Outcome::Stored(view) => self.touch(view.value.len()),
                    Outcome::Edited { old: Some(old), .. } => self.touch(old.len()),
                    _ => {}
                }
            }
            if let Some(shared) = self.detail {
                self.count_prefix(shared, form, matches!(outcome, Outcome::Found(_)));
            }
        }
        if self.out.len() < self.pause_at && !self.blocked {
            Flow::Continue
        } else {
            Flow::Pause
        }
    }
}

/// The state that a turn works with.
pub(crate) struct Turn<'t, E: Engine> {
    pub(crate) shared: &'t Shared,
    pub(crate) engine: &'t Arc<E>,
    pub(crate) session: &'t mut E::Session,
    /// Operations go through it.
    pub(crate) member: &'t mut Member,
    pub(crate) conns: &'t mut Slab<Conn>,
    pub(crate) counters: &'t mut Counters,
    pub(crate) room: ReplyRoom<'t>,
    pub(crate) budget: &'t mut Budget,
    pub(crate) loop_index: usize,
    pub(crate) now: Now,
    /// Replies printed and not yet written.
    pub(crate) out: &'t mut Vec<u8>,
    /// Decoded keys, kept until the turn ends.
    pub(crate) scratch: &'t Bump,
}

/// How a call was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answered {
    Fully,
    /// Fully, and it was a flush. One that follows it at once has nothing to do: it had arrived
    /// before the first one was executed, so both may take effect together.
    ByFlush,
    /// It goes on in the next turn.
    NotYet,
    /// Not at all: the connection has changed its codec, which reads the request in the next turn.
    ByNewCodec,
}

/// The batch being gathered.
struct Batch<'i> {
    ops: Vec<Op<'i>>,
    marks: Vec<PendingReply<'i>>,
    segments: Vec<Segment>,
    /// For each work: how much of its input is consumed.
    progress: Vec<usize>,
    /// The work that was rewound last.
    rewound: Option<usize>,
    /// The last request was a flush, and nothing has been executed since.
    has_flushed: bool,
}

impl<'i> Batch<'i> {
    #[inline]
    fn push_op(&mut self, key: &'i [u8], verb: Verb<'i>, mark: PendingReply<'i>) {
        let token = self.marks.len() as Token;
        self.ops.push(Op { token, key, verb });
        self.marks.push(mark);
    }
}

/// The vectors of a batch between turns, when they are empty.
#[derive(Default)]
pub(crate) struct Spare {
    ops: Vec<Op<'static>>,
    marks: Vec<PendingReply<'static>>,
    segments: Vec<Segment>,
    progress: Vec<usize>,
}

impl Spare {
    /// Bytes of memory that they take.
    pub(crate) fn held(&self) -> usize {
        self.ops.capacity() * size_of::<Op<'static>>()
            + self.marks.capacity() * size_of::<PendingReply<'static>>()
            + self.segments.capacity() * size_of::<Segment>()
            + self.progress.capacity() * size_of::<usize>()
    }
}

/// Clears a vector and reuses its allocation with another lifetime.
fn recycle<A, B>(mut vec: Vec<A>) -> Vec<B> {
    vec.clear();
    // Collecting in place reuses the allocation; there are no elements to map.
    vec.into_iter()
        .map(|_| -> B { unreachable!("the vector is empty") })
        .collect()
}

/// A printer of this turn, for marks from `next` on.
macro_rules! printer {
    ($turn:ident, $works:expr, $marks:expr, $next:expr, $segments:expr) => {{
        // Relaxed: a switch; a stale value counts a few operations more or less.
        let detail = $turn.shared.detail.load(Ordering::Relaxed);
        Printer {
            works: $works,
            conns: &mut *$turn.conns,
            card: &$turn.shared.loops[$turn.loop_index],
            marks: $marks,
            next: $next,
            blocked: false,
            pause_at: $turn.room.pause,
            large: $turn.room.large,
            may_put_off: $turn.session.completes_in_submit(),
            has_put_off: false,
            out: &mut *$turn.out,
            segments: $segments,
            counters: &mut *$turn.counters,
            room: &mut $turn.room,
            detail: detail.then_some($turn.shared),
            now: $turn.now,
        }
    }};
}

impl<E: Engine> Turn<'_, E> {
    /// Executes the requests in `works` and answers them. Afterwards each work's `done` is the
    /// number of consumed bytes of its input.
    pub(crate) fn run(&mut self, works: &mut [ConnectionInput], arena: &[u8], spare: &mut Spare) {
        self.budget.reset();
        let old = std::mem::take(spare);
        let mut batch = Batch {
            ops: recycle(old.ops),
            marks: recycle(old.marks),
            segments: old.segments,
            progress: old.progress,
            rewound: None,
            has_flushed: false,
        };
        batch.progress.clear();
        batch.progress.resize(works.len(), 0);
        let parse = Parse::new(self.shared, self.now, self.scratch);
        for index in 0..works.len() {
            if let Some(received) = works[index].received.take() {
                self.store_received(index, *received, &parse, works, &mut batch.segments);
            }
        }
        // Before any other reply: a connection has one segment in a batch, and a large value is
        // sent behind that segment.
        if !batch.segments.is_empty() {
            self.write_out(works, &mut batch.segments);
        }
        for (index, work) in works.iter().enumerate() {
            if self.conns[work.conn].is_blocked() {
                continue; // by the reply to its received value; its input stays where it is
            }
            batch.has_flushed = false; // for the requests of other connections
            let input = work.input(arena);
            with_codec!(self.conns[work.conn].codec, codec => {
                self.gather(index, codec, input, &parse, works, &mut batch);
            });
        }
        self.execute(works, &mut batch);
        self.write_out(works, &mut batch.segments);
        *spare = Spare {
            ops: recycle(batch.ops),
            marks: recycle(batch.marks),
            segments: batch.segments,
            progress: batch.progress,
        };
        for (work, &done) in works.iter_mut().zip(&spare.progress) {
            work.done = done;
        }
    }

    /// Executes a store whose value was received in place. Its connection has no other replies yet
    /// in this turn, and its socket is not full.
    fn store_received(
        &mut self,
        index: usize,
        received: Receiving,
        parse: &Parse<'_>,
        works: &[ConnectionInput],
        segments: &mut Vec<Segment>,
    ) {
        let Some(end) = received.end() else {
            return debug_assert!(false, "the value has come");
        };
        let Receiving {
            line, reservation, ..
        } = received;
        let codec = &mut self.conns[works[index].conn].codec;
        let before = *codec;
        let (kind, op) = with_codec!(codec, codec => match Protocol::next_apart(codec, &line, end, parse) {
            Step::Op { key, verb, form, .. } => (Kind::Op(form.into(), verb), Some((key, verb))),
            Step::Frame { bytes, .. } => (Kind::Fixed(bytes), None),
            _ => (Kind::Void, None),
        });
        let marks = [PendingReply {
            work: index,
            at: 0,
            codec: before,
            kind,
        }];
        self.counters.batches += 1;
        let mut printer = printer!(self, works, &marks, 0, segments);
        let Some((key, verb)) = op else {
            return printer.fixed_until(1);
        };
        let op = Op {
            token: 0,
            key,
            verb,
        };
        self.member
            .run_reserved(self.session, self.now, &op, reservation, &mut printer);
    }

    /// Parses one connection's input, and executes the batch whenever it is full, until the
    /// connection has spent its budget.
    fn gather<'i, P: Protocol>(
        &mut self,
        index: usize,
        mut codec: P,
        input: &'i [u8],
        parse: &Parse<'i>,
        works: &[ConnectionInput],
        batch: &mut Batch<'i>,
    ) {
        let conn = works[index].conn;
        self.conns[conn].need = 1; // unless the codec sets it below
        let mut at = 0;
        while at < input.len() {
            let before = codec.into();
            let mark = |kind| PendingReply {
                work: index,
                at,
                codec: before,
                kind,
            };
            match self.step(&mut codec, &input[at..], parse, works[index].refused) {
                Step::Incomplete { need } => {
                    self.conns[conn].need = need;
                    break;
                }
                Step::Skip { consumed } => at += consumed,
                Step::Op {
                    consumed,
                    key,
                    verb,
                    form,
                } => {
                    batch.push_op(key, verb, mark(Kind::Op(form.into(), verb)));
                    at += consumed;
                }
                Step::Frame { consumed, bytes } => {
                    batch.marks.push(mark(Kind::Fixed(bytes)));
                    at += consumed;
                }
                Step::Call { consumed, call } => {
                    if !self.run_batch(index, before, at, works, batch) {
                        return;
                    }
                    if self.call(index, conn, call.into(), &mut codec, batch) == Answered::NotYet {
                        return;
                    }
                    at += consumed;
                    if self.conns[conn].closing {
                        at = input.len();
                    }
                    if self.conns[conn].dump.is_some() || self.yields(index, &input[at..]) {
                        break; // the rest waits
                    }
                }
                Step::Close { reply } => {
                    batch.marks.push(mark(Kind::Fixed(reply)));
                    at = input.len();
                    self.conns[conn].closing = true;
                }
            }
            if batch.marks.len() >= BATCH
                && (!self.run_batch(index, codec.into(), at, works, batch)
                    || self.yields(index, &input[at..]))
            {
                return;
            }
        }
        self.conns[conn].codec = codec.into();
        batch.progress[index] = at;
    }

    /// Whether the connection, of which `rest` is not parsed yet, has spent its budget.
    fn yields(&mut self, index: usize, rest: &[u8]) -> bool {
        let is_spent = self.budget.is_spent_by(index);
        self.counters.conn_yields += u64::from(is_spent && !rest.is_empty());
        is_spent
    }

    /// The codec's next step. Gives up an incomplete request that is `refused` more memory.
    #[inline]
    fn step<'i, P: Protocol>(
        &mut self,
        codec: &mut P,
        input: &'i [u8],
        parse: &Parse<'i>,
        refused: bool,
    ) -> StepOf<'i, P> {
        let mut step = codec.next(input, parse);
        if refused && matches!(step, Step::Incomplete { .. }) {
            self.counters.read_buf_oom += 1;
            step = codec.refuse(input, parse);
        }
        step
    }

    /// Executes the batch, and writes the replies if there are many. Connection `index` has been
    /// parsed up to `at`. Returns false if the connection must not go on because its socket is
    /// full, or because its requests were rewound.
    fn run_batch(
        &mut self,
        index: usize,
        codec: Codec,
        at: usize,
        works: &[ConnectionInput],
        batch: &mut Batch<'_>,
    ) -> bool {
        let conn = works[index].conn;
        self.conns[conn].codec = codec;
        batch.progress[index] = at;
        self.execute(works, batch);
        // Also if the batch was empty: administrative commands print without being part of one.
        if self.out.len() >= self.room.pause {
            self.write_out(works, &mut batch.segments);
        }
        !self.conns[conn].takes_no_replies() && batch.rewound != Some(index)
    }

    /// Executes the batch gathered so far, in order, and prints its replies.
    fn execute(&mut self, works: &[ConnectionInput], batch: &mut Batch<'_>) {
        if batch.marks.is_empty() {
            return;
        }
        batch.has_flushed = false;
        self.counters.batches += 1;
        let mut first = 0; // first operation that is not executed
        let mut next = 0; // first mark that is not answered
        let mut pause_at = OUTPUT_PAUSE;
        let mut idle_rounds = 0;
        let mut backoff = Backoff::new();
        loop {
            let mut printer = printer!(self, works, &batch.marks, next, &mut batch.segments);
            printer.pause_at = printer.pause_at.min(pause_at);
            let ops = &batch.ops[first..];
            let progress = self.member.run(self.session, self.now, ops, &mut printer);
            // An operation that was put off is the last one that the engine accepted.
            first += progress.accepted - usize::from(printer.has_put_off);
            if first == batch.ops.len() && progress.pending == 0 {
                printer.fixed_until(batch.marks.len());
                break;
            }
            let blocked = printer.blocked;
            pause_at = printer.pause_at;
            // Every engine completes something, or waits for another session for a bounded time.
            if printer.next == next {
                idle_rounds += 1;
            } else {
                idle_rounds = 0;
                backoff.reset();
            }
            assert!(
                idle_rounds < MOST_IDLE_ROUNDS,
                "the engine makes no progress"
            );
            next = printer.next;
            backoff.snooze();
            let full = self.out.len() >= self.room.pause;
            let mut spent = None;
            if self.out.len() >= pause_at {
                pause_at = OUTPUT_PAUSE;
                spent = self.spent(batch, next);
            }
            if full {
                self.write_out(works, &mut batch.segments);
            }
            if full || blocked || spent.is_some() {
                first = self.rewind(works, batch, first, spent);
            }
        }
        batch.ops.clear();
        batch.marks.clear();
    }

    /// The connection that was answered last, with the mark before `next`, if it has spent its
    /// budget.
    fn spent(&mut self, batch: &Batch<'_>, next: usize) -> Option<usize> {
        let last = batch.marks.get(next.checked_sub(1)?)?.work;
        self.budget.is_spent_by(last).then_some(last)
    }

    /// Skips the operations of connections whose sockets are full, or which have `spent` their
    /// budget, and rewinds each of those connections to the first of them. Returns the first
    /// operation to go on with.
    fn rewind(
        &mut self,
        works: &[ConnectionInput],
        batch: &mut Batch<'_>,
        mut first: usize,
        spent: Option<usize>,
    ) -> usize {
        while let Some(op) = batch.ops.get(first) {
            let token = op.token as usize;
            let mark = batch.marks[token];
            let conn = &mut self.conns[works[mark.work].conn];
            if !conn.takes_no_replies() && spent != Some(mark.work) {
                break;
            }
            batch.rewound = Some(mark.work);
            conn.codec = mark.codec;
            conn.closing = false; // what closed it will be read again
            conn.need = 1;
            batch.progress[mark.work] = mark.at;
            for later in &mut batch.marks[token..] {
                if later.work == mark.work {
                    later.kind = Kind::Void;
                }
            }
            while batch
                .ops
                .get(first)
                .is_some_and(|op| batch.marks[op.token as usize].work == mark.work)
            {
                first += 1;
            }
            self.counters.conn_yields += 1;
        }
        first
    }

    /// Writes the replies printed so far, one write for each connection.
    fn write_out(&mut self, works: &[ConnectionInput], segments: &mut Vec<Segment>) {
        self.shared.loops[self.loop_index]
            .counts
            .publish(self.counters);
        let is_admitted = !self.room.is_short();
        for (index, segment) in segments.iter().enumerate() {
            let end = segments
                .get(index + 1)
                .map_or(self.out.len(), |next| next.start);
            let key = works[segment.work].conn;
            let mut parts = [&self.out[segment.start..end], &[], &[]];
            let taken = self.conns[key].send_front(&mut parts, &mut Duration::default());
            self.counters.bytes_written += taken as u64;
            if length(&parts) > 0 && !self.room.keep(self.conns, key, parts, is_admitted) {
                self.counters.replies_refused += 1;
            }
        }
        segments.clear();
        self.out.clear();
    }

    /// Executes a call, and prints its reply behind the replies to the requests before it, unless
    /// the result is [`Answered::NotYet`]: the next turn goes on with the same request.
    fn call<P: Protocol>(
        &mut self,
        index: usize,
        conn: usize,
        call: Call<'_>,
        codec: &mut P,
        batch: &mut Batch<'_>,
    ) -> Answered {
        self.budget.begin(index);
        let mut changed = (*codec).into();
        let answered = self.answer(index, conn, call, &mut changed, batch);
        if answered == Answered::ByNewCodec {
            return Answered::NotYet;
        }
        *codec = P::try_from(changed).unwrap_or(*codec);
        batch.has_flushed = answered == Answered::ByFlush;
        self.counters.conn_yields += u64::from(answered == Answered::NotYet);
        answered
    }

    fn answer(
        &mut self,
        index: usize,
        conn: usize,
        call: Call<'_>,
        codec: &mut Codec,
        batch: &mut Batch<'_>,
    ) -> Answered {
        if batch
            .segments
            .last()
            .is_none_or(|segment| segment.work != index)
        {
            batch.segments.push(Segment {
                work: index,
                start: self.out.len(),
            });
        }
        self.shared.loops[self.loop_index]
            .counts
            .publish(self.counters);
        let follows_flush = batch.has_flushed;
        match (call, codec) {
            (Call::Memcached(Admin::Binary(_)), codec) if self.may_be_binary(codec) => {
                self.conns[conn].codec = binary::Codec::default().into();
                Answered::ByNewCodec
            }
            (Call::Memcached(admin), codec) => self.administer(conn, admin, codec, follows_flush),
            (Call::Binary(call), codec) => {
                let replies = std::mem::take(self.out);
                let answered = self.administer(conn, call.admin, codec, follows_flush);
                let text = std::mem::replace(self.out, replies);
                call.encode(&text, self.out);
                answered
            }
            (Call::Resp(request), Codec::Resp(codec)) => commands::Context {
                shared: self.shared,
                engine: self.engine,
                session: self.session,
                member: self.member,
                transaction: None,
                counters: self.counters,
                loop_index: self.loop_index,
                parse: Parse::new(self.shared, self.now, self.scratch),
                budget: self.budget,
                conn: &mut self.conns[conn],
                codec,
                out: self.out,
                is_silent: false,
                follows_flush,
                answered: Answered::Fully,
            }
            .answer(request),
            (Call::Resp(_), _) => {
                debug_assert!(false, "only the codec of RESP makes this call");
                Answered::Fully
            }
        }
    }

    /// Whether a connection may go on in memcached's binary protocol, which has no authentication
    /// here.
    fn may_be_binary(&self, codec: &Codec) -> bool {
        let is_admitted = matches!(codec, Codec::Memcached(codec) if codec.is_authenticated());
        is_admitted && self.shared.config.binding == BindingProtocol::Auto
    }

    fn administer(
        &mut self,
        conn: usize,
        admin: Admin<'_>,
        codec: &mut Codec,
        follows_flush: bool,
    ) -> Answered {
        let mut context = admin::Context {
            shared: self.shared,
            engine: &**self.engine,
            counters: self.counters,
            now: self.now,
            fd: self.conns[conn].card.fd,
            out: self.out,
            follows_flush,
        };
        match context.answer(admin) {
            admin::After::GoOn => {}
            admin::After::Flushed => return Answered::ByFlush,
            admin::After::Admitted => {
                if let Codec::Memcached(codec) = codec {
                    codec.set_authenticated();
                }
            }
            admin::After::Dumps(dump) => {
                // Relaxed: a gauge.
                self.shared.dumps.fetch_add(1, Ordering::Relaxed);
                self.counters.dumps += 1;
                self.conns[conn].dump = Some(Box::new(dump));
            }
            admin::After::Close => self.conns[conn].closing = true,
        }
        Answered::Fully
    }
}
