//! One client's connection, between turns.
//!
//! An idle connection owns no buffer: it is read into the loop's arena and answered from the loop's
//! output buffer. Only what is left over (part of a request, or a reply that the socket did not
//! take) moves to the connection's buffers, which are freed when they become empty.
//!
//! | buffer | bound |
//! |---|---|
//! | `input` | the longest request: a multiget line (1 MiB) or the largest item with its line; in RESP the largest item and 1 MiB |
//! | `output` | [`OUTPUT_PAUSE`](crate::buffer_accounting::OUTPUT_PAUSE), one item or one reply to an administrative command, and the fixed replies of one batch |
//!
//! `buffer_accounting` bounds the memory that all connections hold together. A large value is
//! received in the memory of its item (see `receiving`), which the engine bounds.

use crate::codec::Codec;
use crate::commands::{ClientState, Command};
use crate::dump::Dump;
use crate::receiving::Receiving;
use crate::shared::{ClientView, ConnInfo, ConnState};
use crate::spare_inputs::{FREE, SpareInputs, input_capacity};
use crate::transport::{Transport, length};
use corewise_atomic::mutant;
use corewise_atomic::sync::atomic::Ordering;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A buffer with a larger capacity is freed once it is empty.
const KEEP_CAPACITY: usize = 4 << 10;

/// A page of memory. Larger pages take more than is counted.
const PAGE: usize = 4 << 10;

/// Bytes read from a connection into the arena per turn, if nothing is known of its requests.
pub(crate) const SLICE: usize = 16 << 10;
/// The same if the value of its last request was received in place. Bytes of the next value that
/// are read here must be copied, so few are read.
const HEAD_SLICE: usize = 2 << 10;
/// How long a connection waits for the memory of a large request.
pub(crate) const WAIT_MS: u64 = 1_000;

/// How long a turn waits for sockets, at most.
pub(crate) const MAX_WAIT: Duration = Duration::from_millis(64);

/// How long a value waits for its socket before the `rest` that the socket has not taken is copied:
/// about as long as the copy takes, some 1 ms for a MiB on fresh pages. So slow clients cost about
/// twice the time of a copy, and others none of its memory, which may be taken from items. 0 below
/// 1 MiB.
fn copy_time(rest: usize) -> Duration {
    Duration::from_millis((rest >> 20) as u64).min(MAX_WAIT)
}

/// Bytes that a connection's buffers take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Held {
    /// Incomplete requests, and those that wait for `EXEC`.
    pub(crate) input: usize,
    /// The part of `input` whose pages have not been written: it takes no memory yet.
    pub(crate) unwritten: usize,
    /// Waiting replies.
    pub(crate) output: usize,
}

impl Held {
    /// Bytes that count towards the limit of all connections.
    pub(crate) fn sum(self) -> usize {
        self.input + self.output
    }

    /// Bytes that are resident.
    pub(crate) fn resident(self) -> usize {
        self.sum() - self.unwritten
    }
}

/// Result of a request for more memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Growth {
    Done,
    /// The limit does not allow it now.
    OverLimit,
    /// The allocator has no memory.
    NoMemory,
}

/// Memory that a reply needs before its first byte is sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AwaitedRoom {
    pub(crate) bytes: u64,
    /// When the request is executed again even if there is not that much: connections that take
    /// nothing may be closed for it by then.
    pub(crate) retry_ms: u64,
}

/// A client's connection.
pub(crate) struct Conn {
    pub(crate) transport: Transport,
    pub(crate) codec: Codec,
    /// Bytes received and not yet parsed.
    pub(crate) input: Vec<u8>,
    /// The store whose value is being received; `input` is empty meanwhile.
    pub(crate) receiving: Option<Box<Receiving>>,
    /// Maximum bytes of one read into the arena.
    pub(crate) slice: usize,
    /// The length that `input` must reach before it is parsed again.
    pub(crate) need: usize,
    /// The memory that its next reply waits for.
    pub(crate) awaited_room: Option<AwaitedRoom>,
    /// When the connection began to wait for the memory of a large request.
    pub(crate) waits_since_ms: Option<u64>,
    /// Replies that the socket has not taken, from `sent` on.
    pub(crate) output: Vec<u8>,
    sent: usize,
    /// The dump being printed in steps; nothing is read or executed meanwhile.
    pub(crate) dump: Option<Box<Dump>>,
    /// What only a client of RESP has; `None` until it is needed.
    pub(crate) client: Option<Box<ClientState>>,
    /// Bytes of both buffers as the loop's accounting has them.
    pub(crate) noted: Held,
    /// The socket may have more bytes to read.
    pub(crate) readable: bool,
    /// The connection is in the loop's `ready` or `waiting` list.
    pub(crate) queued: bool,
    /// The poller reports when the socket becomes writable.
    pub(crate) awaits_writable: bool,
    /// The connection is closed once `output` is empty.
    pub(crate) closing: bool,
    /// The poller reported that the peer will send nothing more, so the socket is read to the end.
    pub(crate) read_closed: bool,
    /// The end of the stream was read.
    pub(crate) ended: bool,
    /// The socket has failed.
    pub(crate) failed: bool,
    /// When bytes were last received or sent, its requests last waited for the server, or its
    /// replies began to wait.
    pub(crate) active_ms: u64,
    pub(crate) info: Arc<ConnInfo>,
    /// The state that the info shows.
    state: ConnState,
}

impl Conn {
    pub(crate) fn new(
        transport: Transport,
        codec: Codec,
        info: Arc<ConnInfo>,
        now_ms: u64,
    ) -> Self {
        Self {
            transport,
            codec,
            input: Vec::new(),
            receiving: None,
            slice: SLICE,
            need: 1,
            awaited_room: None,
            waits_since_ms: None,
            output: Vec::new(),
            sent: 0,
            dump: None,
            client: None,
            noted: Held::default(),
            readable: true,
            queued: false,
            awaits_writable: false,
            closing: false,
            read_closed: false,
            ended: false,
            failed: false,
            active_ms: now_ms,
            info,
            state: ConnState::New,
        }
    }

    /// Whether replies wait for the socket. Nothing is read or executed meanwhile.
    pub(crate) fn is_blocked(&self) -> bool {
        !self.output.is_empty()
    }

    /// Whether replies would have to wait, for the socket or for memory, or its client is gone.
    pub(crate) fn takes_no_replies(&self) -> bool {
        self.is_blocked() || self.failed || self.awaited_room.is_some()
    }

    /// Bytes that its buffers take.
    #[inline]
    pub(crate) fn held(&self) -> Held {
        let line = self.receiving.as_ref().map_or(0, |r| r.line.capacity());
        let client = self.client.as_ref().map_or(0, |client| client.held());
        let capacity = self.input.capacity();
        let written = self.input.len().next_multiple_of(PAGE).max(KEEP_CAPACITY);
        Held {
            input: capacity + line + client,
            unwritten: capacity.saturating_sub(written),
            output: self.output.capacity(),
        }
    }

    /// What other clients may know of it.
    pub(crate) fn view(&self) -> ClientView {
        let held = self.held();
        let client = self.client.as_ref();
        let (command, version, database) = match &self.codec {
            Codec::Resp(session) => (
                session.last(),
                session.version().number(),
                session.database(),
            ),
            _ => (Command::default(), 0, 0),
        };
        ClientView {
            command,
            version,
            database,
            queued: client.and_then(|client| client.queued()),
            query: self.input.len(),
            query_room: self.input.capacity() - self.input.len(),
            transaction: client.map_or(0, |client| client.held()),
            reply: self.output.len() - self.sent,
            reply_buffer: held.output,
            total: size_of::<Self>() + held.sum(),
        }
    }

    /// Bytes of the engine that are reserved for the value it is sending.
    pub(crate) fn reserved(&self) -> usize {
        self.receiving.as_ref().map_or(0, |r| r.reservation.len())
    }

    /// Whether `input` holds enough to be parsed.
    pub(crate) fn has_work(&self) -> bool {
        !self.input.is_empty() && self.input.len() >= self.need
    }

    /// Whether `input` holds a quarter or more of a large request, and more is to be read: an
    /// engine that had no memory for its value may have it now.
    pub(crate) fn much_has_arrived(&self) -> bool {
        let len = self.input.len();
        self.readable && len > FREE && len < self.need && self.need / 4 <= len
    }

    /// Begins to receive a value in place. Its `input` is empty, so it waits for no memory.
    pub(crate) fn begin_value(&mut self) {
        self.need = 1;
        self.waits_since_ms = None;
        self.slice = HEAD_SLICE;
    }

    /// Whether to give up its incomplete request: it asked for more memory (`room` is the result),
    /// and the allocator had none, or the limit left none for [`WAIT_MS`].
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

    /// Whether everything that came from the socket was read and executed. Part of a request may be
    /// left.
    pub(crate) fn is_answered(&self) -> bool {
        !self.readable && !self.has_work() && !self.is_blocked() && self.dump.is_none()
    }

    /// Records that bytes were received.
    #[inline]
    pub(crate) fn note_activity(&mut self, now_ms: u64) {
        self.active_ms = now_ms;
        // Relaxed: a statistic.
        self.info.active_ms.store(now_ms, Ordering::Relaxed);
        if self.state == ConnState::New {
            self.set_state(ConnState::Line);
        }
    }

    /// Publishes what the connection waits for.
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
        self.info.set_state(state);
    }

    /// Sends `bytes`, and keeps what the socket does not take. Returns how many bytes it took.
    pub(crate) fn send(&mut self, bytes: &[u8]) -> usize {
        let mut parts = [bytes, &[], &[]];
        let taken = self.send_front(&mut parts, &mut Duration::default());
        if !self.failed {
            self.keep(&parts);
        }
        taken
    }

    /// Sends the front of `parts`, as much as the socket takes, unless older replies wait. Takes it
    /// off them, and returns its length. Waits for the socket as [`copy_time`] explains, for at
    /// most `wait`, from which it subtracts what it waited.
    #[inline]
    pub(crate) fn send_front(&mut self, parts: &mut [&[u8]; 3], wait: &mut Duration) -> usize {
        if self.is_blocked() {
            return 0;
        }
        self.write(parts, wait)
    }

    /// Keeps `rest`, which the socket has not taken, behind the replies that wait.
    pub(crate) fn keep(&mut self, rest: &[&[u8]; 3]) {
        self.output.reserve_exact(length(rest));
        rest.iter()
            .for_each(|part| self.output.extend_from_slice(part));
    }

    /// Drops the replies that wait. The connection is to be closed.
    pub(crate) fn give_up(&mut self) {
        self.failed = true;
        self.output = Vec::new();
        self.sent = 0;
    }

    /// Sends waiting replies. Returns how many bytes the socket took. Keeps no memory when it has
    /// sent all: others may wait until no replies wait.
    pub(crate) fn send_waiting(&mut self) -> usize {
        let waiting = std::mem::take(&mut self.output);
        let start = std::mem::take(&mut self.sent);
        let mut parts = [&waiting[start..], &[], &[]];
        let taken = self.write(&mut parts, &mut Duration::default());
        if start + taken < waiting.len() && !mutant!("drops_unsent") {
            self.sent = start + taken;
            self.output = waiting;
        }
        taken
    }

    /// As [`Conn::send_front`], although older replies may wait.
    fn write(&mut self, parts: &mut [&[u8]; 3], wait: &mut Duration) -> usize {
        let (mut taken, mut until) = (0, None);
        while length(parts) > 0 && !self.failed {
            match self.transport.send(parts) {
                Ok(n) if n > 0 => taken += n,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    if !self.wait_until_writable(length(parts), &mut until, wait) {
                        break;
                    }
                }
                Ok(_) | Err(_) => self.failed = true,
            }
        }
        taken
    }

    /// Waits for the socket to take some of the `rest`. Returns false if it does not until `until`,
    /// which the first call sets.
    #[cold]
    fn wait_until_writable(
        &self,
        rest: usize,
        until: &mut Option<Instant>,
        wait: &mut Duration,
    ) -> bool {
        let now = Instant::now();
        let until = until.get_or_insert_with(|| now + copy_time(rest).min(*wait));
        let left = until.saturating_duration_since(now);
        let is_writable = !left.is_zero() && self.transport.wait_until_writable(left);
        *wait = wait.saturating_sub(now.elapsed());
        is_writable
    }

    /// Takes back the input that this turn did not consume.
    pub(crate) fn keep_input(
        &mut self,
        mut own: Vec<u8>,
        rest_from: usize,
        arena: &[u8],
        spares: &mut SpareInputs,
    ) {
        if arena.is_empty() {
            let (rest, capacity) = (own.len() - rest_from, own.capacity());
            let is_mostly_free = capacity > FREE || rest <= capacity / 2;
            if rest_from > 0 && capacity > KEEP_CAPACITY && is_mostly_free {
                // A large request is complete: its memory is not kept for the next ones.
                self.input = Vec::with_capacity(input_capacity(rest));
                self.input.extend_from_slice(&own[rest_from..]);
                spares.put(own);
            } else {
                own.drain(..rest_from);
                self.input = own;
            }
            return;
        }
        let rest = &arena[rest_from..];
        if !rest.is_empty() {
            // Reserves room for the whole request at once if much of it has arrived and every
            // connection may hold that much.
            let is_near = self.need <= FREE && self.need / 4 <= rest.len();
            let room = rest.len().max(if is_near { self.need } else { 0 });
            match spares.take(room).filter(|_| self.input.is_empty()) {
                Some(spare) => self.input = spare,
                None => self.input.reserve_exact(input_capacity(room)),
            }
        }
        self.input.extend_from_slice(rest);
    }

    /// Moves the input to a spare buffer with room for `target` bytes, if there is one.
    pub(crate) fn move_input(&mut self, target: usize, spares: &mut SpareInputs) -> bool {
        let Some(mut spare) = spares.take(target) else {
            return false;
        };
        spare.extend_from_slice(&self.input);
        spares.put(std::mem::replace(&mut self.input, spare));
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_large_values_wait_and_not_for_long() {
        assert_eq!(copy_time((1 << 20) - 1), Duration::ZERO);
        assert_eq!(copy_time(16_000_000), Duration::from_millis(15));
        assert_eq!(copy_time(usize::MAX), Duration::from_millis(64));
    }
}
