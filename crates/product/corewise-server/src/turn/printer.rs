//! Prints the outcomes of a batch while the engine executes it.

use super::batch::{ConnectionInput, PendingReply, ReplyKind, Segment};
use crate::buffer_accounting::ReplyRoom;
use crate::codec::Form;
use crate::conn::Conn;
use crate::metrics::Counters;
use crate::shared::{LoopState, Shared};
use crate::transport::length;
use corewise_ops::{Flow, ItemFlags, ItemView, Now, Outcome, ReplySink, Token, Verb};
use corewise_wire::Tally;
use slab::Slab;

/// Maximum bytes of a reply beside its value: the key, numbers and flags.
const HEAD_BYTES: usize = 1 << 10;

/// Prints outcomes; passed to the engine.
pub(super) struct Printer<'t, 'i, 'r> {
    pub(super) inputs: &'t [ConnectionInput],
    pub(super) conns: &'t mut Slab<Conn>,
    pub(super) state: &'t LoopState,
    pub(super) replies: &'t [PendingReply<'i>],
    /// The first reply that is not answered.
    pub(super) next: usize,
    /// The connection that was answered last takes no more replies now.
    pub(super) blocked: bool,
    /// The batch pauses when this many bytes of replies wait: [`ReplyRoom::pause`], less the bytes
    /// of values that were read or written and not printed.
    pub(super) pause_at: usize,
    /// See [`ReplyRoom::large`].
    pub(super) large: usize,
    /// The last operation was not answered, and is to be executed again.
    pub(super) has_put_off: bool,
    pub(super) out: &'t mut Vec<u8>,
    pub(super) segments: &'t mut Vec<Segment>,
    pub(super) counters: &'t mut Counters,
    pub(super) room: &'t mut ReplyRoom<'r>,
    /// Present if prefixes are to be counted.
    pub(super) detail: Option<&'t Shared>,
    pub(super) now: Now,
}

impl Printer<'_, '_, '_> {
    #[inline]
    fn begin(&mut self, input: usize) {
        if self
            .segments
            .last()
            .is_none_or(|segment| segment.input != input)
        {
            self.segments.push(Segment {
                input,
                start: self.out.len(),
            });
        }
    }

    /// Prints bytes between outcomes, up to the reply `end`.
    #[inline]
    pub(super) fn bytes_until(&mut self, end: usize) {
        while self.next < end {
            let reply = self.replies[self.next];
            if let ReplyKind::Bytes(bytes) = reply.kind {
                self.begin(reply.input);
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
        reply: &PendingReply<'_>,
        form: &Form<'_>,
        outcome: &Outcome<'_>,
        is_admitted: bool,
    ) {
        let Some((value, tail)) = form.encode_parts(outcome, self.now, self.out) else {
            return;
        };
        // Before the reply leaves, so that a client that has it finds it counted.
        self.state.counts.publish(self.counters);
        let start = self.segments.last().map_or(0, |segment| segment.start);
        let key = self.inputs[reply.input].conn;
        let mut parts = [&self.out[start..], value, tail];
        let taken = self.conns[key].send_front(&mut parts, &mut self.room.wait);
        self.counters.bytes_written += taken as u64;
        self.counters.writes += 1;
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
    fn admits(&mut self, input: usize, verb: &Verb<'_>, outcome: &Outcome<'_>) -> Option<bool> {
        let Outcome::Found(view) = outcome else {
            return Some(false);
        };
        if !is_repeatable(verb, view) {
            return Some(false);
        }
        let key = self.inputs[input].conn;
        let segment = self.segments.last().filter(|last| last.input == input);
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
}

/// Counts an operation under the prefix of its key.
#[cold]
pub(super) fn count_prefix(shared: &Shared, form: &Form<'_>, hit: bool) {
    let column = match form.tally() {
        Tally::Get | Tally::Gat => 0,
        Tally::Store | Tally::Cas | Tally::Refused | Tally::Unread => 2,
        Tally::Delete => 3,
        _ => return,
    };
    shared.count_prefix(form.key(), column, hit && column == 0);
}

/// Whether a read that found `view` may be executed again: it has not won anything.
fn is_repeatable(verb: &Verb<'_>, view: &ItemView<'_>) -> bool {
    matches!(verb, Verb::Get(_)) && !view.flags.contains(ItemFlags::WON)
}

impl ReplySink for Printer<'_, '_, '_> {
    #[inline]
    fn complete(&mut self, token: Token, outcome: Outcome<'_>) -> Flow {
        let index = token as usize;
        self.bytes_until(index);
        self.next = index + 1;
        let reply = &self.replies[index];
        if let ReplyKind::Outcome(form, verb) = &reply.kind {
            let is_large =
                matches!(&outcome, Outcome::Found(view) if view.value.len() >= self.large);
            let mut is_admitted = false;
            if is_large {
                match self.admits(reply.input, verb, &outcome) {
                    Some(admitted) => is_admitted = admitted,
                    None => return Flow::Pause,
                }
            }
            self.begin(reply.input);
            let tally = form.tally();
            self.counters.count(tally, &outcome);
            form.count(self.counters, &self.state.commands, &outcome);
            let classes = &self.state.classes;
            classes.count(tally, form.key(), verb, &outcome);
            if is_large {
                self.complete_large(reply, form, &outcome, is_admitted);
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
                count_prefix(shared, form, matches!(outcome, Outcome::Found(_)));
            }
        }
        if self.out.len() < self.pause_at && !self.blocked {
            Flow::Continue
        } else {
            Flow::Pause
        }
    }
}
