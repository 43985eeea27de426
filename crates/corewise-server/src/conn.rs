//! One client's connection, between turns.
//!
//! A connection owns no buffer while it is idle: it is read into the loop's
//! arena and answered from the loop's output buffer. Only what is left over
//! (half a request, a reply the socket did not take) moves into buffers of its
//! own, which are given back when they empty.
//!
//! | buffer | bound |
//! |---|---|
//! | `input` | the longest request: a multiget line (1 MiB) or the largest item with its line |
//! | `output` | [`OUTPUT_PAUSE`](crate::turn::OUTPUT_PAUSE), one item and the fixed replies of one batch |
//!
//! What all connections hold together is bounded in `ledger`. A large value is received in the memory of its
//! item (see `receiving`), which is bounded by the engine.

use crate::dump::Dump;
use crate::event_loop::SLICE;
use crate::ledger::{FREE, Growth, Held, WAIT_MS};
use crate::receiving::Receiving;
use crate::shared::{ConnCard, ConnState};
use crate::stream::Stream;
use corewise_atomic::sync::atomic::Ordering;
use corewise_wire::memcached::Codec;
use std::io::{self, IoSlice};
use std::sync::Arc;

/// A buffer larger than this is given back once it is empty.
const KEEP_CAPACITY: usize = 4 << 10;

/// A client's connection.
pub(crate) struct Conn {
    pub(crate) stream: Stream,
    pub(crate) codec: Codec,
    /// Received and not yet understood.
    pub(crate) input: Vec<u8>,
    /// The store whose value is being received; `input` is empty then.
    pub(crate) receiving: Option<Box<Receiving>>,
    /// How many bytes are read at once where it has no input.
    pub(crate) slice: usize,
    /// How long `input` must be before it is worth looking at.
    pub(crate) need: usize,
    /// How long `input` may become for the large request at its front; zero if there is none.
    pub(crate) granted: usize,
    /// Since when it has been waiting for memory for that.
    pub(crate) waits_since_ms: Option<u64>,
    /// Replies the socket has not taken, from `sent` on.
    pub(crate) output: Vec<u8>,
    sent: usize,
    /// What is being printed in steps; nothing is read or executed meanwhile.
    pub(crate) dump: Option<Box<Dump>>,
    /// Bytes of both buffers as the loop's ledger has them.
    pub(crate) noted: Held,
    /// The socket may hold more to read.
    pub(crate) readable: bool,
    /// In the loop's list of connections to look at next, or of those that wait for memory.
    pub(crate) queued: bool,
    /// The poller reports when the socket takes bytes again.
    pub(crate) awaits_writable: bool,
    /// To be closed once `output` is empty.
    pub(crate) closing: bool,
    /// The poller said that the peer will send nothing more: read to the end.
    pub(crate) read_closed: bool,
    /// The end was read.
    pub(crate) ended: bool,
    /// The socket is of no further use.
    pub(crate) failed: bool,
    /// Last time a request came or a reply went.
    pub(crate) active_ms: u64,
    pub(crate) card: Arc<ConnCard>,
    /// As the card has it.
    state: ConnState,
}

impl Conn {
    pub(crate) fn new(stream: Stream, codec: Codec, card: Arc<ConnCard>, now_ms: u64) -> Self {
        Self {
            stream,
            codec,
            input: Vec::new(),
            receiving: None,
            slice: SLICE,
            need: 1,
            granted: 0,
            waits_since_ms: None,
            output: Vec::new(),
            sent: 0,
            dump: None,
            noted: Held::default(),
            readable: true,
            queued: false,
            awaits_writable: false,
            closing: false,
            read_closed: false,
            ended: false,
            failed: false,
            active_ms: now_ms,
            card,
            state: ConnState::New,
        }
    }

    /// Whether replies wait for the socket; nothing is read or executed then.
    pub(crate) fn is_blocked(&self) -> bool {
        !self.output.is_empty()
    }

    /// Memory that its buffers take, or will for the request that is being read.
    #[inline]
    pub(crate) fn held(&self) -> Held {
        let line = self.receiving.as_ref().map_or(0, |r| r.line.capacity());
        Held {
            input: self.input.capacity().max(self.granted) + line,
            output: self.output.capacity(),
        }
    }

    /// Memory of the engine's that waits for what it sends.
    pub(crate) fn reserved(&self) -> usize {
        self.receiving.as_ref().map_or(0, |r| r.reservation.len())
    }

    /// Whether its own buffer holds enough to be looked at.
    pub(crate) fn has_work(&self) -> bool {
        !self.input.is_empty() && self.input.len() >= self.need
    }

    /// Whether its unfinished request is to be given up: it was to have more `room`, and there was none or
    /// none within [`WAIT_MS`].
    pub(crate) fn is_refused(&mut self, room: Option<Growth>, now_ms: u64) -> bool {
        self.waits_since_ms = match room {
            Some(Growth::OverLimit) => self.waits_since_ms.or(Some(now_ms)),
            _ => None,
        };
        let waited_ms = self
            .waits_since_ms
            .map_or(0, |since| now_ms.saturating_sub(since));
        let is_refused = room == Some(Growth::NoMemory) || waited_ms >= WAIT_MS;
        if is_refused {
            self.waits_since_ms = None;
        }
        is_refused
    }

    /// Whether all that came from the socket was read and executed; a part of a
    /// request may be left.
    pub(crate) fn is_answered(&self) -> bool {
        !self.readable && !self.has_work() && !self.is_blocked() && self.dump.is_none()
    }

    /// Takes note that bytes came.
    #[inline]
    pub(crate) fn note_activity(&mut self, now_ms: u64) {
        self.active_ms = now_ms;
        // Relaxed: a statistic.
        self.card.active_ms.store(now_ms, Ordering::Relaxed);
        if self.state == ConnState::New {
            self.set_state(ConnState::Line);
        }
    }

    /// Makes visible what it waits for.
    #[inline]
    pub(crate) fn note_state(&mut self) {
        let state = if self.is_blocked() {
            ConnState::Output
        } else if self.codec.is_swallowing() {
            ConnState::Swallow
        } else if self.receiving.is_some() || self.need > self.input.len() + 1 {
            ConnState::Data
        } else {
            ConnState::Line
        };
        if state != self.state && self.state != ConnState::New {
            self.set_state(state);
        }
    }

    #[cold]
    fn set_state(&mut self, state: ConnState) {
        self.state = state;
        self.card.set_state(state);
    }

    /// Sends `bytes`, keeping what the socket does not take. Returns how many
    /// it took.
    pub(crate) fn send(&mut self, bytes: &[u8]) -> usize {
        if self.failed {
            return 0;
        }
        let taken = if self.is_blocked() {
            0
        } else {
            self.write(bytes)
        };
        self.output.extend_from_slice(&bytes[taken..]);
        taken
    }

    /// Sends `parts` in one piece, keeping what the socket does not take.
    /// Returns how many bytes it took.
    pub(crate) fn send_parts(&mut self, mut parts: [&[u8]; 3]) -> usize {
        let mut taken = 0;
        while !self.is_blocked() && !self.failed && parts.iter().any(|part| !part.is_empty()) {
            match self.stream.write_vectored(&parts.map(IoSlice::new)) {
                Ok(n) if n > 0 => {
                    taken += n;
                    skip(&mut parts, n);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Ok(_) | Err(_) => self.failed = true,
            }
        }
        if !self.failed {
            self.output
                .reserve_exact(parts.iter().map(|part| part.len()).sum());
            parts
                .iter()
                .for_each(|part| self.output.extend_from_slice(part));
        }
        taken
    }

    /// Sends what waits. Returns how many bytes the socket took.
    pub(crate) fn send_waiting(&mut self) -> usize {
        let mut waiting = std::mem::take(&mut self.output);
        let start = std::mem::take(&mut self.sent);
        let taken = self.write(&waiting[start..]);
        if start + taken < waiting.len() {
            self.sent = start + taken;
            self.output = waiting;
        } else if waiting.capacity() <= KEEP_CAPACITY {
            waiting.clear();
            self.output = waiting;
        }
        taken
    }

    /// Writes until the socket is full or fails; returns how many bytes it took.
    fn write(&mut self, bytes: &[u8]) -> usize {
        let mut taken = 0;
        while taken < bytes.len() && !self.failed {
            match self.stream.write(&bytes[taken..]) {
                Ok(n) if n > 0 => taken += n,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Ok(_) | Err(_) => self.failed = true,
            }
        }
        taken
    }

    /// Takes back what was not understood of this turn's input.
    pub(crate) fn keep_input(&mut self, mut own: Vec<u8>, rest_from: usize, arena: &[u8]) {
        if arena.is_empty() {
            let rest = own.len() - rest_from;
            if own.capacity() > KEEP_CAPACITY && rest <= own.capacity() / 4 {
                // A large request is done with: its memory is not for what follows.
                own = own[rest_from..].to_vec();
            } else {
                own.drain(..rest_from);
            }
            self.input = own;
        } else {
            let rest = &arena[rest_from..];
            if !rest.is_empty() {
                // Room for the whole request at once, if much of it has come and every connection may
                // hold as much.
                let is_near = self.need <= FREE && self.need / 4 <= rest.len();
                let room = if is_near { self.need } else { 0 };
                self.input.reserve_exact(room.max(rest.len()));
            }
            self.input.extend_from_slice(rest);
        }
    }
}

/// Takes `n` bytes off the front of `parts`.
fn skip(parts: &mut [&[u8]; 3], mut n: usize) {
    for part in parts {
        let gone = n.min(part.len());
        *part = &part[gone..];
        n -= gone;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_skipped_as_if_they_were_one() {
        for n in 0..=6 {
            let mut parts = [&b"ab"[..], b"cdef", b""];
            skip(&mut parts, n);
            assert_eq!(parts.concat(), b"abcdef"[n..]);
        }
    }
}
