//! One turn of an event loop: executes the requests of all readable connections in batches, and
//! answers each connection in one write.
//!
//! ```text
//!  arena   │ conn 7: get a … get b … │ conn 3: set c … │ conn 9: get d … │
//!             └─ codec ─▶ ops   [a7, b7, c3, d9]  ─▶ engine.submit
//!             └─────────▶ replies [a7, b7, "ERROR"7, c3, d9]   (what to print, where to rewind to)
//!  output  │ replies to 7            │ replies to 3    │ replies to 9    │ ─▶ one write each
//! ```
//!
//! # Guarantees
//!
//! 1. Replies leave in the order of the requests of their connection.
//! 2. A request is executed only if its connection's earlier replies are written or fit the output
//!    buffer. When the buffer is full ([`OUTPUT_PAUSE`]) the batch pauses and the replies are
//!    written. If the socket of a connection is full, its later requests are *rewound*: they stay
//!    in the input, unexecuted, until the socket takes bytes again.
//! 3. A value of [`LARGE_VALUE`] bytes or more is not copied, except for the part that the socket
//!    does not take. Inside the engine's critical section, one vectored write, which never blocks,
//!    sends the replies of its connection so far, its head, the value from the item, and its tail.
//!    If the socket is full then, the batch pauses as in 2.
//! 4. An operation allocates nothing: all vectors are reused.
//! 5. A [call](crate::codec::Call) runs alone: all operations before it in the batch have
//!    completed, and the next request is parsed when it is over.
//! 6. The requests of one connection take its time [`budget`](crate::budget) and one unit. The
//!    others are rewound, or are not parsed yet.
//!
//! For an engine that completes operations [later](Session::LATE), [`late`] takes the place of 2
//! and 3: replies are saved, and a value is copied once more.
//!
//! [`LARGE_VALUE`]: crate::buffer_accounting::LARGE_VALUE

mod batch;
mod late;
mod printer;

use crate::admin;
use crate::budget::Budget;
use crate::buffer_accounting::{OUTPUT_PAUSE, ReplyRoom};
use crate::codec::{Answered, Call, Codec, Parse, Protocol, StepOf, with_codec};
use crate::commands;
use crate::config::BindingProtocol;
use crate::conn::Conn;
use crate::metrics::Counters;
use crate::receiving::Receiving;
use crate::shared::{BATCH, Shared};
use crate::transport::length;
use batch::{Batch, PendingReply, ReplyKind, Segment};
pub(crate) use batch::{ConnectionInput, RecycledBatch};
use bumpalo::Bump;
use corewise_atomic::sync::atomic::Ordering;
use corewise_engine::isolation::Member;
use corewise_engine::{Engine, Session};
use corewise_ops::{Now, Op};
use corewise_wire::memcached::Admin;
use corewise_wire::{Step, Tally, binary};
pub(crate) use late::Late;
#[cfg(test)]
pub(crate) use late::{MOST_BYTES, MOST_OF_CONN, MOST_REPLIES};
use printer::Printer;
use slab::Slab;
use std::sync::Arc;
use std::time::{Duration, Instant};

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
    /// Replies of earlier turns.
    pub(crate) late: &'t mut Late,
}

/// A printer of this turn, for replies from `next` on.
macro_rules! printer {
    ($turn:ident, $inputs:expr, $replies:expr, $next:expr, $segments:expr) => {{
        // Relaxed: a switch; a stale value counts a few operations more or less.
        let detail = $turn.shared.detail.load(Ordering::Relaxed);
        Printer {
            inputs: $inputs,
            conns: &mut *$turn.conns,
            state: &$turn.shared.loops[$turn.loop_index],
            replies: $replies,
            next: $next,
            blocked: false,
            pause_at: $turn.room.pause,
            large: $turn.room.large,
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
    /// Executes the requests in `inputs` and answers them. Afterwards the `consumed` of each is the
    /// number of its consumed bytes.
    pub(crate) fn run(
        &mut self,
        inputs: &mut [ConnectionInput],
        arena: &[u8],
        recycled: &mut RecycledBatch,
    ) {
        self.budget.reset();
        let mut batch = recycled.take(inputs.len());
        let parse = Parse::new(self.shared, self.now, self.scratch);
        if E::Session::LATE {
            self.check_caller(inputs);
        }
        for index in 0..inputs.len() {
            if let Some(received) = inputs[index].received.take() {
                if E::Session::LATE {
                    self.finish_late();
                }
                self.store_received(index, *received, &parse, inputs, &mut batch.segments);
            }
        }
        // Before any other reply: a connection has one segment in a batch, and a large value is
        // sent behind that segment.
        if !batch.segments.is_empty() {
            self.write_out(inputs, &mut batch.segments);
        }
        for (index, source) in inputs.iter().enumerate() {
            if self.conns[source.conn].is_blocked() {
                continue; // by the reply to its received value; its input stays where it is
            }
            batch.has_flushed = false; // for the requests of other connections
            let input = source.bytes(arena);
            with_codec!(self.conns[source.conn].codec, codec => {
                self.gather(index, codec, input, &parse, inputs, &mut batch);
            });
        }
        self.execute(inputs, &mut batch);
        self.write_out(inputs, &mut batch.segments);
        *recycled = batch.recycle();
        for (input, &consumed) in inputs.iter_mut().zip(recycled.consumed()) {
            input.consumed = consumed;
        }
    }

    /// Executes a store whose value was received in place. Its connection has no other replies yet
    /// in this turn, and its socket is not full.
    fn store_received(
        &mut self,
        index: usize,
        received: Receiving,
        parse: &Parse<'_>,
        inputs: &[ConnectionInput],
        segments: &mut Vec<Segment>,
    ) {
        let Some(end) = received.end() else {
            return debug_assert!(false, "the value has come");
        };
        let Receiving {
            line, reservation, ..
        } = received;
        let codec = &mut self.conns[inputs[index].conn].codec;
        let before = *codec;
        let (kind, op) = with_codec!(codec, codec => match Protocol::next_apart(codec, &line, end, parse) {
            Step::Op { key, verb, form, .. } => (ReplyKind::Outcome(form.into(), verb), Some((key, verb))),
            Step::Frame { bytes, .. } => (ReplyKind::Bytes(bytes), None),
            _ => (ReplyKind::Rewound, None),
        });
        let replies = [PendingReply::new(index, 0, before, kind)];
        self.counters.batches += 1;
        let mut printer = printer!(self, inputs, &replies, 0, segments);
        let Some((key, verb)) = op else {
            return printer.bytes_until(1);
        };
        let op = Op::new(0, key, verb);
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
        inputs: &[ConnectionInput],
        batch: &mut Batch<'i>,
    ) {
        let conn = inputs[index].conn;
        self.conns[conn].need = 1; // unless the codec sets it below
        let Some(mut limit) = self.batch_limit(conn) else {
            return;
        };
        let mut at = 0;
        while at < input.len() {
            let before = codec.into();
            let reply = |kind| PendingReply::new(index, at, before, kind);
            match self.step(&mut codec, &input[at..], parse, inputs[index].refused) {
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
                    batch.push_op(key, verb, reply(ReplyKind::Outcome(form.into(), verb)));
                    at += consumed;
                }
                Step::Frame { consumed, bytes } => {
                    batch.replies.push(reply(ReplyKind::Bytes(bytes)));
                    at += consumed;
                }
                Step::Call { consumed, call } => {
                    if !self.run_batch(index, before, at, inputs, batch)
                        || !self.may_call(conn)
                        || self.call(index, conn, call.into(), &mut codec, batch)
                            == Answered::NotYet
                    {
                        return;
                    }
                    at += consumed;
                    if self.conns[conn].closing {
                        at = input.len();
                    }
                    if self.conns[conn].dump.is_some() || self.yields(index, at < input.len()) {
                        break; // the rest waits
                    }
                }
                Step::Close { reply: bytes } => {
                    batch.replies.push(reply(ReplyKind::Bytes(bytes)));
                    at = input.len();
                    self.conns[conn].closing = true;
                }
            }
            if batch.replies.len() >= limit {
                match self.run_full(index, codec.into(), at, input.len(), inputs, batch) {
                    Some(next) => limit = next,
                    None => return,
                }
            }
        }
        self.conns[conn].codec = codec.into();
        batch.consumed[index] = at;
    }

    /// As [`Self::run_batch`], for a batch that is full. Returns how many replies the next one may
    /// have, or `None` if the connection must not go on, also because its budget is spent.
    fn run_full(
        &mut self,
        index: usize,
        codec: Codec,
        at: usize,
        end: usize,
        inputs: &[ConnectionInput],
        batch: &mut Batch<'_>,
    ) -> Option<usize> {
        let conn = inputs[index].conn;
        let goes_on =
            self.run_batch(index, codec, at, inputs, batch) && !self.yields(index, at < end);
        if goes_on {
            self.batch_limit(conn)
        } else {
            None
        }
    }

    /// How many replies a batch may have, at most. `None` if the connection must wait until
    /// operations have completed.
    #[inline]
    fn batch_limit(&mut self, conn: usize) -> Option<usize> {
        if E::Session::LATE {
            self.late_limit(conn)
        } else {
            Some(BATCH)
        }
    }

    /// Whether the connection has spent its budget. It may have more requests.
    fn yields(&mut self, index: usize, has_more: bool) -> bool {
        let is_spent = self.budget.is_spent_by(index);
        self.counters.conn_yields += u64::from(is_spent && has_more);
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
        inputs: &[ConnectionInput],
        batch: &mut Batch<'_>,
    ) -> bool {
        let conn = inputs[index].conn;
        self.conns[conn].codec = codec;
        batch.consumed[index] = at;
        self.execute(inputs, batch);
        // Also if the batch was empty: administrative commands print without being part of one.
        if self.out.len() >= self.room.pause {
            self.write_out(inputs, &mut batch.segments);
        }
        !self.conns[conn].takes_no_replies() && batch.rewound != Some(index)
    }

    /// Executes the batch gathered so far, in order, and prints its replies.
    fn execute(&mut self, inputs: &[ConnectionInput], batch: &mut Batch<'_>) {
        if E::Session::LATE {
            return self.execute_late(inputs, batch);
        }
        if batch.replies.is_empty() {
            return;
        }
        batch.has_flushed = false;
        let is_timed = commands::is_timed(self.counters.batches);
        let since = is_timed.then(Instant::now);
        self.counters.batches += 1;
        let mut first = 0; // first operation that is not executed
        let mut next = 0; // first reply that is not answered
        let mut pause_at = OUTPUT_PAUSE;
        loop {
            let mut printer = printer!(self, inputs, &batch.replies, next, &mut batch.segments);
            printer.pause_at = printer.pause_at.min(pause_at);
            let ops = &batch.ops[first..];
            let counts = self.member.run(self.session, self.now, ops, &mut printer);
            // An operation that was put off is the last one that the engine accepted.
            first += counts.accepted - usize::from(printer.has_put_off);
            // The tokens of operations that are still pending would mean later replies.
            assert_eq!(counts.pending, 0, "the engine completes in `submit`");
            if first == batch.ops.len() {
                printer.bytes_until(batch.replies.len());
                break;
            }
            assert!(counts.accepted > 0, "the engine makes no progress");
            let blocked = printer.blocked;
            pause_at = printer.pause_at;
            next = printer.next;
            let full = self.out.len() >= self.room.pause;
            let mut spent = None;
            if self.out.len() >= pause_at {
                pause_at = OUTPUT_PAUSE;
                spent = self.spent(batch, next);
            }
            if full {
                self.write_out(inputs, &mut batch.segments);
            }
            if full || blocked || spent.is_some() {
                first = self.rewind(inputs, batch, first, spent);
            }
        }
        if let Some(since) = since {
            self.count_times(batch, since.elapsed());
        }
        batch.ops.clear();
        batch.replies.clear();
    }

    /// Counts how long the operations of a batch took, which is the same for each.
    #[cold]
    fn count_times(&self, batch: &Batch<'_>, time: Duration) {
        let each = time / batch.ops.len().max(1) as u32;
        for reply in &batch.replies {
            if let ReplyKind::Outcome(form, _) = &reply.kind {
                form.count_time(&self.shared.loops[self.loop_index].commands, each);
            }
        }
    }

    /// The connection that was answered last, with the reply before `next`, if it has spent its
    /// budget.
    fn spent(&mut self, batch: &Batch<'_>, next: usize) -> Option<usize> {
        let last = batch.replies.get(next.checked_sub(1)?)?.input;
        self.budget.is_spent_by(last).then_some(last)
    }

    /// Skips the operations of connections whose sockets are full, or which have `spent` their
    /// budget, and rewinds each of those connections to the first of them. Returns the first
    /// operation to go on with.
    fn rewind(
        &mut self,
        inputs: &[ConnectionInput],
        batch: &mut Batch<'_>,
        mut first: usize,
        spent: Option<usize>,
    ) -> usize {
        while let Some(op) = batch.ops.get(first) {
            let token = op.token as usize;
            let reply = batch.replies[token];
            let conn = &mut self.conns[inputs[reply.input].conn];
            if !conn.takes_no_replies() && spent != Some(reply.input) {
                break;
            }
            batch.rewound = Some(reply.input);
            conn.codec = reply.codec_before;
            conn.closing = false; // what closed it will be read again
            conn.need = 1;
            batch.consumed[reply.input] = reply.start;
            for later in &mut batch.replies[token..] {
                if later.input == reply.input {
                    later.kind = ReplyKind::Rewound;
                }
            }
            while batch
                .ops
                .get(first)
                .is_some_and(|op| batch.replies[op.token as usize].input == reply.input)
            {
                first += 1;
            }
            self.counters.conn_yields += 1;
        }
        first
    }

    /// Writes the replies printed so far, one write for each connection.
    fn write_out(&mut self, inputs: &[ConnectionInput], segments: &mut Vec<Segment>) {
        self.shared.loops[self.loop_index]
            .counts
            .publish(self.counters);
        let is_admitted = !self.room.is_short();
        for (index, segment) in segments.iter().enumerate() {
            let end = segments
                .get(index + 1)
                .map_or(self.out.len(), |next| next.start);
            let key = inputs[segment.input].conn;
            let mut parts = [&self.out[segment.start..end], &[], &[]];
            let taken = self.conns[key].send_front(&mut parts, &mut Duration::default());
            self.counters.bytes_written += taken as u64;
            self.counters.writes += 1;
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
            .is_none_or(|segment| segment.input != index)
        {
            batch.segments.push(Segment {
                input: index,
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
                tally: Tally::None,
                is_silent: false,
                follows_flush,
                script_time: self.shared.config.script_time,
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
            fd: self.conns[conn].info.fd,
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
