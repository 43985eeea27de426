//! Replies that outlive the turn, for engines that complete operations [later](Session::LATE).
//!
//! ```text
//!  turn 1   submit a7 b7 c3          saved:  a7 b7 "ERROR"7 c3 │ room for more
//!  turn 2   poll ─▶ a7 b7            saved:                 c3 │ one write to connection 7
//! ```
//!
//! What is needed to print a reply is saved before its operation is submitted: the input belongs to
//! the turn. A reply of fixed bytes waits behind the operations that were submitted before it.
//!
//! # Guarantees
//!
//! 1. Replies leave in the order of the requests, since operations complete in the order in which
//!    they were submitted.
//! 2. At most [`MOST_OF_CONN`] replies of a connection are saved, [`MOST_REPLIES`] of a loop, and
//!    [`MOST_BYTES`] of copies, beyond which only a single reply may go. Requests beyond these
//!    limits, and those that the engine does not accept, stay in the input.
//! 3. A connection whose requests stay is *stalled*. It is served again when an operation has
//!    completed, or if none is pending.
//! 4. The reply for a connection that is closed is dropped, also if another connection has its key
//!    meanwhile. If the socket is full, the reply waits in the connection's output.
//! 5. A [call](crate::codec::Call) is executed when nothing is pending, and until then nothing is
//!    gathered. So it waits for no more than what was pending when it was found.
//! 6. Once a stopping loop gathers nothing, it saves nothing: the replies that are saved come to an
//!    end. A connection with saved replies is not closed as one that is answered.

use super::batch::{ConnectionInput, PendingReply, ReplyKind};
use super::printer::count_prefix;
use super::{Batch, Turn};
use crate::classes::stored_len;
use crate::codec::Form;
use crate::conn::Conn;
use crate::metrics::Counters;
use crate::shared::{BATCH, LoopState, Shared};
use crate::transport::length;
use corewise_atomic::sync::atomic::Ordering;
use corewise_atomic::{Backoff, mutant};
use corewise_engine::{Engine, Session};
use corewise_ops::{Flow, Now, Op, Outcome, ReplySink, Token};
use slab::Slab;
use std::collections::VecDeque;
use std::time::Duration;

/// Saved replies of one connection.
pub(crate) const MOST_OF_CONN: usize = 256;
/// Saved replies of one loop.
pub(crate) const MOST_REPLIES: usize = 4_096;
/// Bytes that the saved replies of one loop have copied.
pub(crate) const MOST_BYTES: usize = 1 << 20;

/// What is saved of a [`PendingReply`].
struct SavedReply {
    conn: usize,
    /// Distinguishes the connections that have had the key.
    serial: u64,
    /// Lengths of its two copies: the key and the flags of a form, or the bytes to send.
    lengths: [usize; 2],
    /// How to print an outcome, and the length of the value that was stored; `None` for bytes.
    form: Option<(Form<'static>, Option<usize>)>,
}

/// What is known of a key of the loop's slab.
#[derive(Clone, Copy, Default)]
struct LateConn {
    /// The number of connections with this key that were closed.
    serial: u64,
    /// Saved replies of the present one.
    saved: usize,
}

/// The saved replies of a loop.
#[derive(Default)]
pub(crate) struct Late {
    replies: VecDeque<SavedReply>,
    /// The copies of the saved replies, from `first` on.
    copies: Vec<u8>,
    first: usize,
    conns: Vec<LateConn>,
    /// Connections that wait until an operation has completed.
    stalled: Vec<usize>,
    /// The connection whose call waits until nothing is pending.
    caller: Option<usize>,
    /// Whose replies are printed in the output, and where they begin.
    segments: Vec<(usize, usize)>,
    /// Connections that were answered in this turn.
    pub(crate) answered: Vec<usize>,
    /// Operations have completed in this turn.
    has_completed: bool,
}

impl Late {
    /// Whether turns are needed although no connection is ready.
    pub(crate) fn is_waiting(&self) -> bool {
        !self.replies.is_empty() || !self.stalled.is_empty()
    }

    /// Whether operations are pending.
    pub(crate) fn is_pending(&self) -> bool {
        !self.replies.is_empty()
    }

    /// Whether replies of this connection are saved.
    pub(crate) fn awaits(&self, conn: usize) -> bool {
        self.saved_of(conn) > 0
    }

    /// The number of saved replies, and the bytes of their copies.
    #[cfg(test)]
    pub(crate) fn saved(&self) -> (usize, usize) {
        (self.replies.len(), self.copies.len() - self.first)
    }

    /// Bytes of memory that it takes.
    pub(crate) fn held(&self) -> usize {
        self.replies.capacity() * size_of::<SavedReply>()
            + self.copies.capacity()
            + self.conns.capacity() * size_of::<LateConn>()
    }

    fn saved_of(&self, conn: usize) -> usize {
        self.conns.get(conn).map_or(0, |conn| conn.saved)
    }

    /// How many replies of a connection may be saved beyond those that are, at most.
    fn room(&self, conn: usize) -> usize {
        let of_conn = MOST_OF_CONN.saturating_sub(self.saved_of(conn));
        let has_bytes = self.copies.len() - self.first < MOST_BYTES;
        let of_loop = MOST_REPLIES.saturating_sub(self.replies.len());
        of_conn.min(of_loop) * usize::from(has_bytes)
    }

    /// Saves a reply, unless it goes beyond a limit.
    fn save(&mut self, conn: usize, kind: &ReplyKind<'_>) -> bool {
        let (parts, form) = match kind {
            ReplyKind::Outcome(form, verb) => {
                let saved = form.with_borrowed([b"", b""]);
                (form.borrowed(), Some((saved, stored_len(verb))))
            }
            ReplyKind::Bytes(bytes) => ([*bytes, b""], None),
            ReplyKind::Rewound => ([&b""[..], b""], None),
        };
        let lengths = parts.map(<[u8]>::len);
        let bytes = self.copies.len() - self.first + lengths[0] + lengths[1];
        let is_alone = self.replies.is_empty();
        if self.room(conn) == 0 || (bytes > MOST_BYTES && !is_alone) {
            return false;
        }
        if self.conns.len() <= conn {
            self.conns.resize(conn + 1, LateConn::default());
        }
        self.conns[conn].saved += 1;
        parts
            .iter()
            .for_each(|part| self.copies.extend_from_slice(part));
        self.replies.push_back(SavedReply {
            conn,
            serial: self.conns[conn].serial,
            lengths,
            form,
        });
        true
    }

    /// Takes back the replies that were saved last.
    fn unsave(&mut self, count: usize) {
        for reply in self.replies.drain(self.replies.len() - count..) {
            self.conns[reply.conn].saved -= 1;
            let kept = self.copies.len() - reply.lengths[0] - reply.lengths[1];
            self.copies.truncate(kept);
        }
    }

    /// Ends a reply whose copies have been used. Returns whether its connection is still open.
    fn remove(&mut self, reply: &SavedReply) {
        self.first += reply.lengths[0] + reply.lengths[1];
        // Moves no more bytes than have been used since the last time.
        if self.first * 2 >= self.copies.len() {
            self.copies.drain(..self.first);
            self.first = 0;
        }
        if self.is_open(reply) {
            self.conns[reply.conn].saved -= 1;
        }
    }

    /// Whether the connection that made the request is open.
    fn is_open(&self, reply: &SavedReply) -> bool {
        self.conns[reply.conn].serial == reply.serial || mutant!("keeps_reply_of_closed")
    }

    /// Lets a connection wait until an operation has completed.
    fn stall(&mut self, conns: &mut Slab<Conn>, conn: usize) {
        if mutant!("forgets_to_requeue") {
            conns[conn].queued = true;
            return;
        }
        if !self.stalled.contains(&conn) {
            conns[conn].queued = true;
            self.stalled.push(conn);
        }
    }

    /// As [`stall`](Self::stall), until nothing is pending: for a call.
    fn stall_call(&mut self, conns: &mut Slab<Conn>, conn: usize) {
        self.stall(conns, conn);
        self.caller = Some(conn);
        // It comes first when the stalled connections are served again.
        self.stalled.retain(|&other| other != conn);
        self.stalled.insert(0, conn);
    }

    /// Whether a connection must wait for the call of another one, or for its own.
    fn is_held_back(&mut self, conn: usize) -> bool {
        let Some(caller) = self.caller else {
            return false;
        };
        let is_turn = caller == conn && self.replies.is_empty();
        if is_turn {
            self.caller = None;
        }
        !is_turn
    }

    /// Ends a turn: the stalled connections are ready, before the others, if something has changed.
    pub(crate) fn end_turn(&mut self, ready: &mut Vec<usize>) {
        let has_completed = std::mem::take(&mut self.has_completed);
        if has_completed || self.replies.is_empty() {
            ready.splice(0..0, self.stalled.drain(..));
        }
    }

    /// A connection is closed; its key may be used again.
    pub(crate) fn close(&mut self, conn: usize) {
        self.stalled.retain(|&other| other != conn);
        self.caller = self.caller.filter(|&caller| caller != conn);
        if let Some(conn) = self.conns.get_mut(conn) {
            conn.serial += 1;
            conn.saved = 0;
        }
    }
}

/// Prints saved replies; passed to the engine.
struct LatePrinter<'t> {
    late: &'t mut Late,
    state: &'t LoopState,
    out: &'t mut Vec<u8>,
    counters: &'t mut Counters,
    /// Present if prefixes are to be counted.
    detail: Option<&'t Shared>,
    pause_at: usize,
    has_paused: bool,
    now: Now,
}

impl LatePrinter<'_> {
    /// Prints bytes that wait for no outcome.
    fn print_bytes(&mut self) {
        while self.late.replies.front().is_some_and(|r| r.form.is_none()) {
            self.print_next(None);
        }
    }

    fn print_next(&mut self, outcome: Option<&Outcome<'_>>) {
        let Some(reply) = self.late.replies.pop_front() else {
            return debug_assert!(false, "the engine completes what was submitted");
        };
        let late = &mut *self.late;
        let is_open = late.is_open(&reply);
        if is_open && late.segments.last().is_none_or(|last| last.0 != reply.conn) {
            late.segments.push((reply.conn, self.out.len()));
        }
        let (key, rest) = late.copies[late.first..].split_at(reply.lengths[0]);
        let start = self.out.len();
        match (&reply.form, outcome) {
            (Some((form, stored)), Some(outcome)) => {
                let form = form.with_borrowed([key, &rest[..reply.lengths[1]]]);
                self.counters.count(form.tally(), outcome);
                form.count(self.counters, &self.state.commands, outcome);
                let classes = &self.state.classes;
                classes.count_stored(form.tally(), form.key(), || *stored, outcome);
                if let Some(shared) = self.detail {
                    count_prefix(shared, &form, matches!(outcome, Outcome::Found(_)));
                }
                form.encode(outcome, self.now, self.out);
            }
            _ => self.out.extend_from_slice(key),
        }
        if !is_open {
            self.out.truncate(start);
        }
        late.remove(&reply);
    }
}

impl ReplySink for LatePrinter<'_> {
    fn complete(&mut self, _: Token, outcome: Outcome<'_>) -> Flow {
        self.late.has_completed = true;
        self.print_bytes();
        self.print_next(Some(&outcome));
        self.print_bytes();
        self.has_paused = self.out.len() >= self.pause_at;
        if self.has_paused {
            Flow::Pause
        } else {
            Flow::Continue
        }
    }
}

impl<E: Engine> Turn<'_, E> {
    /// Prints and sends the replies to what has completed since the last turn.
    pub(crate) fn poll_late(&mut self) {
        self.submit_late(&[]);
    }

    /// Waits until nothing is pending: for a store whose value was received in place.
    #[cold]
    pub(super) fn finish_late(&mut self) {
        let mut backoff = Backoff::new();
        while self.late.is_pending() {
            self.submit_late(&[]);
            backoff.snooze();
        }
    }

    /// How many replies a batch may have in which a connection takes part, at most. If there is no
    /// room, the connection waits.
    pub(super) fn late_limit(&mut self, conn: usize) -> Option<usize> {
        let room = match self.late.is_held_back(conn) {
            true => 0,
            false => self.session.room().min(self.late.room(conn)),
        };
        if room == 0 {
            self.late.stall(self.conns, conn);
        }
        (room > 0).then_some(room.min(BATCH))
    }

    /// Whether a call may be executed now. Otherwise its connection waits.
    pub(super) fn may_call(&mut self, conn: usize) -> bool {
        let may = !E::Session::LATE || !self.late.is_pending() || mutant!("calls_in_flight");
        if !may {
            self.late.stall_call(self.conns, conn);
        }
        may
    }

    /// Nobody waits for a call whose connection is not served, because its socket is full or it
    /// waits for memory.
    pub(super) fn check_caller(&mut self, inputs: &[ConnectionInput]) {
        let is_served = |caller: &usize| inputs.iter().any(|input| input.conn == *caller);
        let late = &mut *self.late;
        late.caller = late
            .caller
            .filter(|caller| late.stalled.contains(caller) || is_served(caller));
    }

    /// Saves the replies of the batch, and submits its operations. Rewinds the requests for which
    /// there is no room.
    pub(super) fn execute_late(&mut self, inputs: &[ConnectionInput], batch: &mut Batch<'_>) {
        if batch.replies.is_empty() {
            return;
        }
        // The replies to calls, which have been printed, come first.
        self.write_out(inputs, &mut batch.segments);
        batch.has_flushed = false;
        self.counters.batches += 1;
        let saves = |reply: &PendingReply<'_>| {
            let conn = inputs[reply.input].conn;
            self.late.save(conn, &reply.kind)
        };
        let saved = batch.replies.iter().map(saves).take_while(|saved| *saved);
        let saved = saved.count();
        let end = batch.ops.partition_point(|op| (op.token as usize) < saved);
        let accepted = self.submit_late(&batch.ops[..end]);
        let kept = match batch.ops[..end].get(accepted) {
            Some(op) => op.token as usize,
            None => saved,
        };
        self.late.unsave(saved - kept);
        self.rewind_late(inputs, batch, kept);
        batch.ops.clear();
        batch.replies.clear();
    }

    /// Rewinds all requests from the reply `first` on, and lets their connections wait.
    fn rewind_late(&mut self, inputs: &[ConnectionInput], batch: &mut Batch<'_>, first: usize) {
        // From the last to the first, so that each connection ends at its first request.
        for reply in batch.replies[first..].iter().rev() {
            let key = inputs[reply.input].conn;
            let conn = &mut self.conns[key];
            conn.codec = reply.codec_before;
            conn.closing = false; // what closed it will be read again
            conn.need = 1;
            batch.consumed[reply.input] = reply.start;
            self.late.stall(self.conns, key);
        }
        // The connection that is being parsed is the last one, if it takes part.
        if let Some(last) = batch.replies[first..].last() {
            batch.rewound = Some(last.input);
        }
    }

    /// Submits operations, and prints and sends what has completed. Returns how many were accepted.
    fn submit_late(&mut self, ops: &[Op<'_>]) -> usize {
        // Relaxed: a switch; a stale value counts a few operations more or less.
        let detail = self.shared.detail.load(Ordering::Relaxed);
        let mut accepted = 0;
        loop {
            let mut printer = LatePrinter {
                late: self.late,
                state: &self.shared.loops[self.loop_index],
                out: self.out,
                counters: self.counters,
                detail: detail.then_some(self.shared),
                pause_at: self.room.pause,
                has_paused: false,
                now: self.now,
            };
            printer.print_bytes();
            let rest = &ops[accepted..];
            let counts = self.member.run(self.session, self.now, rest, &mut printer);
            accepted += counts.accepted;
            let has_paused = printer.has_paused;
            self.write_late();
            if !has_paused {
                return accepted;
            }
        }
    }

    /// Sends the saved replies that have been printed, one write for each connection.
    fn write_late(&mut self) {
        if self.late.segments.is_empty() {
            return;
        }
        self.shared.loops[self.loop_index]
            .counts
            .publish(self.counters);
        let is_admitted = !self.room.is_short();
        for (index, &(key, start)) in self.late.segments.iter().enumerate() {
            let next = self.late.segments.get(index + 1);
            let end = next.map_or(self.out.len(), |next| next.1);
            let mut parts = [&self.out[start..end], &[], &[]];
            let taken = self.conns[key].send_front(&mut parts, &mut Duration::default());
            self.counters.bytes_written += taken as u64;
            self.counters.writes += 1;
            self.conns[key].active_ms = self.now.ms; // it waited for the server
            if length(&parts) > 0 && !self.room.keep(self.conns, key, parts, is_admitted) {
                self.counters.replies_refused += 1;
            }
            self.late.answered.push(key);
        }
        self.late.segments.clear();
        self.out.clear();
    }
}
