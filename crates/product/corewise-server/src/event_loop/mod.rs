//! One event loop: one thread, one poller, its own connections.
//!
//! ```text
//!   poll ─▶ accept what the main thread handed over
//!        ─▶ read every readable connection (into the arena, into its own
//!           buffer if it holds half a request, or into the item of a large
//!           value)
//!        ─▶ turn: parse, execute in batches, write replies
//!        ─▶ keep what is left over; close what is done; maintenance
//! ```
//!
//! The poller is edge-triggered. A connection whose transport may have more bytes to receive is on
//! the list for the next turn, which then begins without waiting. A connection whose socket is full
//! is neither read nor executed.
//!
//! Limits: a turn reads [`SLICE`] bytes from a connection, or four times the length of its last
//! request up to [`LARGE_SLICE`], and [`ARENA`] bytes in all; further readable connections wait for
//! the next turn.
//! So a turn executes at most the requests in [`ARENA`] bytes, those in the connections' own
//! buffers, and one store for each value that was [received in place](crate::receiving); but no
//! more of one connection than its time [`budget`](crate::budget) allows.

use crate::budget::Budget;
use crate::buffer_accounting::{BufferAccounting, ReplyRoom, SHORT_MS, STALLED_MS};
use crate::codec::{Codec, Parse};
use crate::config::Config;
use crate::conn::{Conn, FREE, Growth, SLICE};
use crate::metrics::health::Probe;
use crate::metrics::{self, Counters};
use crate::receiving::{Receiving, as_uninit};
use crate::shared::{ConnInfo, Shared};
use crate::spare_inputs::SpareInputs;
use crate::transport::{Received, Transport};
use crate::turn::{ConnectionInput, Late, RecycledBatch, Turn};
use bumpalo::Bump;
use corewise_atomic::lock::Mutex;
use corewise_atomic::sync::atomic::Ordering;
use corewise_engine::isolation::Member;
use corewise_engine::{Engine, Session};
use corewise_ops::Now;
use mio::event::Event;
use mio::{Events, Interest, Poll, Token, Waker};
use slab::Slab;
use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::task::Wake;
use std::time::Duration;

/// Maximum bytes per turn from a connection with long requests. The part of a request at the end
/// of what was read is copied to the connection's buffer: so only one request of several is.
const LARGE_SLICE: usize = 64 << 10;
/// Maximum size of the arena in bytes; the minimum is two connections' slices.
const ARENA: usize = 512 << 10;
const LEAST_ARENA: usize = 2 * SLICE;
/// The arenas of all loops together take at most this fraction (1/32) of the memory limit, unless
/// that is less than their minimum sizes.
const ARENA_SHARE: u64 = 32;
/// Maximum bytes per turn of a connection that has its own buffer.
const OWN_SLICE: usize = 256 << 10;
/// Least room behind the bytes that have arrived: a read that does not fill it has drained the
/// socket.
const PROBE: usize = 64;
/// Events taken from the poller at once.
const EVENTS: usize = 512;
/// Approximate size of a connection and its `ConnInfo`.
const CONN_BYTES: usize = size_of::<Conn>() + 256;
/// Interval between checks of timeouts.
pub(crate) const SWEEP_EVERY_MS: u64 = 500;
/// How long a stopping loop waits for its clients to read their replies.
const DRAIN_MS: u64 = 5_000;
/// How long a stopping loop serves clients that keep sending.
const SERVE_ON_MS: u64 = 1_000;
/// A client that has been silent for this long has no request under way.
const QUIET_MS: u64 = 100;
/// Interval at which connections that wait for memory are retried.
const RETRY_MS: u64 = 1;
/// An output buffer with a larger capacity is freed.
const KEEP_OUTPUT: usize = 1 << 20;

const WAKE: Token = Token(usize::MAX);

/// A connection on its way to a loop.
pub(crate) struct PendingConnection {
    pub(crate) transport: Transport,
    pub(crate) info: Arc<ConnInfo>,
    /// The codec of its protocol, in the state of a new connection.
    pub(crate) codec: Codec,
}

/// What the accepting thread has handed over and the loop has not taken yet. One lock guards both,
/// so a loop that finds `is_last` has all its connections.
#[derive(Default)]
struct HandOver {
    connections: Vec<PendingConnection>,
    /// No further connections follow: the loop answers those that it has, and ends.
    is_last: bool,
    /// The loop takes no more connections.
    has_ended: bool,
    /// A question whether the loop runs.
    probe: Option<Arc<Probe>>,
}

/// New connections of a loop, and the waker that announces them.
pub(crate) struct Inbox {
    pending: Mutex<HandOver>,
    waker: Waker,
}

impl Inbox {
    /// Hands a connection to the loop; returns it if the loop has ended.
    pub(crate) fn send(&self, pending: PendingConnection) -> Result<(), PendingConnection> {
        let mut hand_over = self.pending.lock();
        if hand_over.has_ended {
            return Err(pending);
        }
        hand_over.connections.push(pending);
        drop(hand_over);
        self.notify();
        Ok(())
    }

    /// Tells the loop to stop. Called after the last `send`.
    pub(crate) fn close(&self) {
        self.pending.lock().is_last = true;
        self.notify();
    }

    /// Asks the loop whether it runs. A new question replaces one that is not answered.
    pub(crate) fn ask(&self, probe: &Arc<Probe>) {
        self.pending.lock().probe = Some(Arc::clone(probe));
        self.notify();
    }

    fn notify(&self) {
        if let Err(error) = self.waker.wake() {
            tracing::error!(%error, "an event loop cannot be woken");
        }
    }
}

/// Wakes the loop to poll its engine.
impl Wake for Inbox {
    fn wake(self: Arc<Self>) {
        self.notify();
    }
}

/// One event loop.
pub(crate) struct EventLoop<E: Engine> {
    index: usize,
    shared: Arc<Shared>,
    engine: Arc<E>,
    session: E::Session,
    member: Member,
    poll: Poll,
    inbox: Arc<Inbox>,
    conns: Slab<Conn>,
    /// Connections to serve in the next turn.
    ready: Vec<usize>,
    /// Connections that wait for memory for a large request.
    waiting: Vec<usize>,
    /// Connections with an unfinished dump whose clients have taken what was printed.
    dumping: VecDeque<usize>,
    inputs: Vec<ConnectionInput>,
    /// In the last turn, some values began to be received in place.
    began_values: bool,
    arena: Box<[u8]>,
    out: Vec<u8>,
    scratch: Bump,
    recycled: RecycledBatch,
    /// Replies that wait for an engine that completes operations later.
    late: Late,
    budget: Budget,
    counters: Counters,
    accounting: BufferAccounting,
    /// Requests and replies that all loops had refused or put off for lack of memory at the last
    /// sweep.
    refusals_seen: u64,
    /// Memory counts as short until this time.
    short_until_ms: u64,
    next_sweep_ms: u64,
    /// When the loop began to stop.
    stopped_ms: Option<u64>,
}

/// A loop that panics or loses its poller takes no more connections, and closes those that it has.
impl<E: Engine> Drop for EventLoop<E> {
    fn drop(&mut self) {
        let mut hand_over = self.inbox.pending.lock();
        hand_over.has_ended = true;
        let connections = std::mem::take(&mut hand_over.connections);
        drop(hand_over);
        for pending in connections {
            self.unregister(&pending.info);
        }
        for (_, conn) in std::mem::take(&mut self.conns) {
            if conn.dump.is_some() {
                self.shared.end_dump();
            }
            self.unregister(&conn.info);
        }
        self.accounting.end(&self.shared);
    }
}

impl<E: Engine> EventLoop<E> {
    pub(crate) fn new(
        index: usize,
        shared: Arc<Shared>,
        engine: Arc<E>,
    ) -> io::Result<(Self, Arc<Inbox>)> {
        let poll = Poll::new()?;
        let waker = Waker::new(poll.registry(), WAKE)?;
        let inbox = Arc::new(Inbox {
            pending: Mutex::default(),
            waker,
        });
        let mut session = engine.session();
        session.set_waker(Arc::clone(&inbox).into());
        let member = shared.isolation.member();
        let arena = vec![0; arena_bytes(&shared.config)].into_boxed_slice();
        let spare_inputs = SpareInputs::new(arena.len() / 4);
        let event_loop = Self {
            index,
            shared,
            engine,
            session,
            member,
            poll,
            inbox: Arc::clone(&inbox),
            conns: Slab::new(),
            ready: Vec::new(),
            waiting: Vec::new(),
            dumping: VecDeque::new(),
            inputs: Vec::new(),
            began_values: false,
            arena,
            out: Vec::new(),
            scratch: Bump::new(),
            recycled: RecycledBatch::default(),
            late: Late::default(),
            budget: Budget::new(),
            counters: Counters::default(),
            accounting: BufferAccounting::new(index, spare_inputs),
            refusals_seen: 0,
            short_until_ms: 0,
            next_sweep_ms: 0,
            stopped_ms: None,
        };
        Ok((event_loop, inbox))
    }

    /// Serves until the inbox is closed and the clients are answered, or the poller fails.
    pub(crate) fn run(mut self) -> io::Result<()> {
        let mut events = Events::with_capacity(EVENTS);
        let mut more_maintenance = false;
        loop {
            let timeout = self.timeout(more_maintenance);
            if let Err(error) = self.wait(&mut events, timeout) {
                tracing::error!(%error, "an event loop lost its poller and stops");
                self.close_all();
                return Err(error);
            }
            let now = self.shared.clock.now();
            self.serve(&events, now);
            more_maintenance = self.maintain(now);
            self.sweep_if_due(now);
            self.drain(now);
            if self.is_drained(now) {
                self.close_all();
                return Ok(());
            }
        }
    }

    /// Does some maintenance of the engine, and more of it if buffers have grown: otherwise they
    /// take memory faster than items give it back.
    fn maintain(&mut self, now: Now) -> bool {
        let mut more = self.session.maintain(now);
        for _ in 0..self.accounting.take_steps() {
            if !more {
                break;
            }
            more = self.session.maintain(now);
        }
        more
    }

    /// Waits for events.
    fn wait(&mut self, events: &mut Events, mut timeout: Option<Duration>) -> io::Result<()> {
        if timeout != Some(Duration::ZERO) && !self.session.offline() {
            timeout = Some(Duration::ZERO);
        }
        let polled = self.poll.poll(events, timeout);
        self.session.online();
        match polled {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => Err(error),
            _ => Ok(()),
        }
    }

    /// Serves the connections that have events, and those that an earlier turn left.
    fn serve(&mut self, events: &Events, now: Now) {
        let woken = events
            .iter()
            .fold(false, |woken, event| self.note(event) | woken);
        if woken {
            self.take_connections(now);
        }
        // Other loops may have freed memory.
        self.ready.append(&mut self.waiting);
        self.turn(now);
        if std::mem::take(&mut self.began_values) {
            self.turn(now); // usually the rest of them has arrived
        }
    }

    fn timeout(&self, more_maintenance: bool) -> Option<Duration> {
        if !self.ready.is_empty() || !self.dumping.is_empty() || more_maintenance {
            return Some(Duration::ZERO);
        }
        if !self.waiting.is_empty() {
            return Some(Duration::from_millis(RETRY_MS));
        }
        if self.stopped_ms.is_some() {
            return Some(Duration::from_millis(10));
        }
        // One loop wakes for the engine's upkeep although it has no connection: items expire.
        let wakes = self.index == 0 || !self.conns.is_empty();
        wakes.then_some(Duration::from_millis(SWEEP_EVERY_MS))
    }

    /// Records an event. Returns whether the inbox must be checked.
    fn note(&mut self, event: &Event) -> bool {
        let key = event.token().0;
        if event.token() == WAKE {
            return true;
        }
        let Some(conn) = self.conns.get_mut(key) else {
            return false;
        };
        conn.readable |= event.is_readable() || event.is_read_closed() || event.is_error();
        conn.read_closed |= event.is_read_closed() || event.is_error();
        if !conn.queued {
            conn.queued = true;
            self.ready.push(key);
        }
        false
    }

    /// Registers the connections that the accepting thread has handed over, and begins to stop if
    /// they are the last.
    fn take_connections(&mut self, now: Now) {
        let mut hand_over = self.inbox.pending.lock();
        let connections = std::mem::take(&mut hand_over.connections);
        let is_last = std::mem::take(&mut hand_over.is_last);
        let probe = hand_over.probe.take();
        drop(hand_over);
        if let Some(probe) = probe {
            probe.answer(self.index);
        }
        for pending in connections {
            let PendingConnection {
                mut transport,
                info,
                codec,
            } = pending;
            let entry = self.conns.vacant_entry();
            let key = entry.key();
            if let Err(error) =
                self.poll
                    .registry()
                    .register(&mut transport, Token(key), Interest::READABLE)
            {
                tracing::warn!(%error, "a connection could not be registered");
                self.unregister(&info);
                continue;
            }
            let conn = entry.insert(Conn::new(transport, codec, info, now.ms));
            conn.queued = true;
            self.ready.push(key);
        }
        if is_last {
            self.stopped_ms = Some(now.ms);
            for (key, conn) in &mut self.conns {
                conn.readable = true;
                if !conn.queued {
                    conn.queued = true;
                    self.ready.push(key);
                }
            }
        }
    }

    /// Reads, executes and answers the connections that are ready.
    fn turn(&mut self, now: Now) {
        let is_waiting = E::Session::LATE && self.late.is_waiting();
        if self.ready.is_empty() && self.dumping.is_empty() && !is_waiting {
            return;
        }
        self.counters.turns += 1;
        let mut ready = std::mem::take(&mut self.ready);
        let mut inputs = std::mem::take(&mut self.inputs);
        let mut arena_used = 0;
        let mut taken = 0;
        for &key in &ready {
            if self.arena.len() - arena_used < SLICE {
                break; // the rest waits for the next turn
            }
            taken += 1;
            self.read(key, now, &mut arena_used, &mut inputs);
        }
        let mut turn = Turn {
            shared: &self.shared,
            engine: &self.engine,
            session: &mut self.session,
            member: &mut self.member,
            conns: &mut self.conns,
            counters: &mut self.counters,
            room: ReplyRoom::new(&self.accounting, &self.shared, &*self.engine, now),
            budget: &mut self.budget,
            loop_index: self.index,
            now,
            out: &mut self.out,
            scratch: &self.scratch,
            late: &mut self.late,
        };
        if E::Session::LATE {
            turn.poll_late();
        }
        if !inputs.is_empty() {
            turn.run(&mut inputs, &self.arena, &mut self.recycled);
        }
        let given_up = turn.room.given_up;
        self.counters.replies_refused += given_up.len() as u64;
        for input in inputs.drain(..) {
            self.finish(input, now);
        }
        self.scratch.reset();
        for &key in &ready[..taken] {
            self.decide_next(key);
        }
        for key in given_up {
            if self.conns.contains(key) {
                ready.retain(|&other| other != key);
                self.evict(key);
            }
        }
        self.dump(now);
        // Connections that this turn did not reach come before those that have more to read.
        ready.drain(..taken);
        ready.append(&mut self.ready);
        self.ready = ready;
        self.inputs = inputs;
        if E::Session::LATE {
            self.end_late();
        }
        if self.out.capacity() > KEEP_OUTPUT {
            self.out = Vec::new();
        }
        self.publish();
    }

    /// Decides what the connections wait for next whose operations have completed in this turn.
    fn end_late(&mut self) {
        self.late.end_turn(&mut self.ready);
        let answered = std::mem::take(&mut self.late.answered);
        for &key in &answered {
            self.decide_next(key);
        }
        self.late.answered = answered;
        self.late.answered.clear();
    }

    /// Publishes the loop's counts.
    fn publish(&mut self) {
        self.shared.loops[self.index].counts.publish(&self.counters);
        self.accounting.close(&self.shared, &*self.engine);
    }

    /// Memory that the loop shares between its connections.
    fn common_bytes(&self) -> usize {
        self.arena.len()
            + self.out.capacity()
            + self.scratch.allocated_bytes()
            + self.recycled.held()
            + self.late.held()
            + self.accounting.spare_inputs.bytes()
            + self.inputs.capacity() * size_of::<ConnectionInput>()
            + (self.ready.capacity() + self.waiting.capacity()) * size_of::<usize>()
            + self.conns.capacity() * CONN_BYTES
    }

    /// Sends waiting replies, then reads, then adds an input if there is anything to parse.
    fn read(
        &mut self,
        key: usize,
        now: Now,
        arena_used: &mut usize,
        inputs: &mut Vec<ConnectionInput>,
    ) {
        let Some(conn) = self.conns.get_mut(key) else {
            return;
        };
        conn.queued = false;
        if conn.is_blocked() && !send_waiting(conn, &mut self.counters, now) {
            return;
        }
        if conn.dump.is_some() {
            return;
        }
        if conn.awaited_room.is_some()
            && self
                .accounting
                .still_waits(&self.shared, &*self.engine, conn, now)
        {
            return;
        }
        let mut input = ConnectionInput {
            conn: key,
            ..ConnectionInput::default()
        };
        if conn.much_has_arrived() {
            self.begin_late(key, now);
        }
        let conn = &mut self.conns[key];
        let received = if conn.receiving.is_some() {
            let slice = &mut self.arena[*arena_used..*arena_used + SLICE];
            let (n, behind) = receive_value(conn, slice);
            input.in_arena = *arena_used + behind.start..*arena_used + behind.end;
            *arena_used += behind.end;
            input.received = conn.receiving.take_if(|value| value.end().is_some());
            n
        } else if conn.input.is_empty() {
            let end = self.arena.len().min(*arena_used + conn.slice);
            let n = receive(conn, &mut self.arena[*arena_used..end]);
            input.in_arena = *arena_used..*arena_used + n;
            *arena_used += n;
            n
        } else {
            // Buffered input that can be parsed is executed before more is read.
            let reads = conn.readable && !conn.has_work();
            let room = reads.then(|| make_room(&mut self.accounting, &self.shared, conn));
            let n = match room {
                Some(Growth::Done) => receive_own(conn),
                _ => 0,
            };
            input.refused = conn.is_refused(room, now.ms);
            input.buffered = std::mem::take(&mut conn.input);
            n
        };
        if received > 0 {
            conn.note_activity(now.ms);
            self.counters.bytes_read += received as u64;
            self.counters.reads += 1;
        }
        let is_whole = input.buffered.len() >= conn.need.max(1);
        let ready = input.refused || input.received.is_some() || is_whole;
        if ready || !input.in_arena.is_empty() {
            inputs.push(input);
        } else {
            conn.input = input.buffered;
        }
    }

    /// Begins to receive a value in place of which a part is in the connection's buffer, if the
    /// engine has memory for it now.
    #[cold]
    fn begin_late(&mut self, key: usize, now: Now) {
        let (conn, session) = (&mut self.conns[key], &mut self.session);
        let parse = Parse::new(&self.shared, now, &self.scratch);
        conn.receiving = Receiving::begin(session, &conn.codec, &conn.input, &parse);
        if conn.receiving.is_some() {
            let input = std::mem::take(&mut conn.input);
            self.accounting.spare_inputs.put(input);
            conn.begin_value();
        }
    }

    /// Advances the next dump in turn; see `dump`.
    fn dump(&mut self, now: Now) {
        let Some(key) = self.dumping.pop_front() else {
            return;
        };
        let conn = &mut self.conns[key];
        let Some(dump) = &mut conn.dump else {
            return;
        };
        self.out.clear();
        let before = dump.looked_at;
        let is_over = dump.advance(&*self.engine, now, &mut self.out);
        self.counters.dumped_items += dump.looked_at - before;
        if is_over {
            conn.dump = None;
            self.shared.end_dump();
        }
        let taken = conn.send(&self.out);
        self.out.clear();
        self.counters.bytes_written += taken as u64;
        self.counters.writes += 1;
        conn.active_ms = now.ms;
        self.decide_next(key);
    }

    /// Puts back the input of a connection that a turn did not consume.
    fn finish(&mut self, input: ConnectionInput, now: Now) {
        let conn = &mut self.conns[input.conn];
        let whole = if input.in_arena.is_empty() {
            input.buffered.len()
        } else {
            input.in_arena.len()
        };
        if input.consumed == whole {
            conn.need = 1;
        }
        let arena = &self.arena[input.in_arena.clone()];
        let bytes = if arena.is_empty() {
            &input.buffered
        } else {
            arena
        };
        let rest = &bytes[input.consumed..];
        if arena.len() >= conn.slice && conn.need <= rest.len() + 1 {
            conn.slice = SLICE; // many small requests
        }
        // An unterminated line asks for one more byte.
        if conn.need > rest.len() + 1 && conn.receiving.is_none() {
            let parse = Parse::new(&self.shared, now, &self.scratch);
            conn.receiving = Receiving::begin(&mut self.session, &conn.codec, rest, &parse);
            if conn.receiving.is_some() {
                conn.begin_value();
                self.began_values = true;
                self.accounting.spare_inputs.put(input.buffered);
                return;
            }
            conn.slice = conn.need.saturating_mul(4).clamp(SLICE, LARGE_SLICE);
        }
        conn.keep_input(
            input.buffered,
            input.consumed,
            arena,
            &mut self.accounting.spare_inputs,
        );
        if conn.has_work() {
            conn.active_ms = now.ms; // it waits for the server
        }
    }

    /// Decides what a connection waits for next.
    fn decide_next(&mut self, key: usize) {
        let Some(conn) = self.conns.get_mut(key) else {
            return;
        };
        self.accounting.note(conn);
        conn.note_state();
        let blocked = conn.is_blocked();
        let dumps = conn.dump.is_some();
        let exhausted = conn.ended && !conn.has_work() && !dumps;
        let awaits = E::Session::LATE && self.late.awaits(key);
        // It closes once all replies are out: those that wait for its socket, and those that an
        // engine owes. What failed has nobody to reply to.
        if conn.failed || (!blocked && !awaits && (conn.closing || exhausted)) {
            return self.evict(key);
        }
        // A connection that can write reports each time that it can, so the poller is asked for it
        // only while output waits.
        if blocked != conn.awaits_writable {
            let interests = if blocked {
                Interest::READABLE | Interest::WRITABLE
            } else {
                Interest::READABLE
            };
            conn.awaits_writable = blocked;
            if self
                .poll
                .registry()
                .reregister(&mut conn.transport, Token(key), interests)
                .is_err()
            {
                return self.close(key);
            }
        }
        // A dump is the reply to its request: what the client sent after it waits.
        if dumps {
            if !blocked && !self.dumping.contains(&key) {
                self.dumping.push_back(key);
            }
            return;
        }
        // The poller reports an edge once, so what is left of one must be in a list.
        if !blocked && !conn.queued && (conn.readable || conn.has_work()) {
            conn.queued = true;
            // A turn does not help one that waits for memory.
            if conn.waits_since_ms.is_some() || conn.awaited_room.is_some() {
                self.waiting.push(key);
            } else {
                self.ready.push(key);
            }
        }
    }

    /// Closes a connection that may be in a list.
    fn evict(&mut self, key: usize) {
        if self.conns[key].queued {
            self.ready.retain(|&other| other != key);
            self.waiting.retain(|&other| other != key);
        }
        self.close(key);
    }

    fn close(&mut self, key: usize) {
        let mut conn = self.conns.remove(key);
        if conn.dump.is_some() {
            self.dumping.retain(|&other| other != key);
            self.shared.end_dump();
        }
        if E::Session::LATE {
            self.late.close(key);
        }
        self.accounting.remove(&conn);
        if conn.closing && conn.readable {
            // What is left unread would make the kernel take back the last reply. No turn uses the
            // arena now.
            let _ = conn
                .transport
                .receive([as_uninit(&mut self.arena), &mut []]);
        }
        // The socket is closed below, which also removes it from the poller.
        let _ = self.poll.registry().deregister(&mut conn.transport);
        conn.transport.close_writing();
        self.unregister(&conn.info);
    }

    fn unregister(&self, info: &ConnInfo) {
        self.shared.connections.lock().remove(&info.fd);
        // Relaxed: see `Shared::open_connections`.
        self.shared.loops[self.index]
            .connections
            .fetch_sub(1, Ordering::Relaxed);
    }

    /// Closes connections that have been idle, or have not read, for too long.
    fn sweep_if_due(&mut self, now: Now) {
        if now.ms < self.next_sweep_ms {
            return;
        }
        self.next_sweep_ms = now.ms + SWEEP_EVERY_MS;
        let idle = self
            .shared
            .config
            .idle_timeout
            .map_or(u64::MAX, |t| t.as_millis() as u64);
        let slow = self.shared.config.slow_reader_timeout.as_millis() as u64;
        let stalled = if self.memory_is_short(now) {
            STALLED_MS
        } else {
            u64::MAX
        };
        let mut expired = Vec::new();
        for (key, conn) in &self.conns {
            *conn.info.view.lock() = conn.view();
            let silent = now.ms.saturating_sub(conn.active_ms);
            let kept = conn.is_blocked() && silent >= slow;
            if kept || (conn.noted.sum() + conn.reserved() > FREE && silent >= stalled) {
                self.counters.slow_kicks += 1;
                expired.push(key);
            } else if silent >= idle {
                self.counters.idle_kicks += 1;
                expired.push(key);
            }
        }
        for key in expired {
            self.evict(key);
        }
        self.accounting.set_common(self.common_bytes());
        self.accounting.return_rest();
        if self.index == 0 {
            self.shared.ages.walk(&*self.engine, now);
            metrics::sample(&self.shared, &*self.engine, now);
        }
        self.publish();
    }

    /// Whether a request or a reply recently was refused or waited for memory, or would be refused
    /// now.
    fn memory_is_short(&mut self, now: Now) -> bool {
        let counts = self.shared.counters();
        // Relaxed: a statistic.
        let put_off = self.shared.replies_put_off.load(Ordering::Relaxed);
        let refusals = counts.read_buf_oom + counts.replies_refused + put_off;
        if refusals != self.refusals_seen {
            self.refusals_seen = refusals;
            self.short_until_ms = now.ms + SHORT_MS;
        }
        let is_over = self.shared.buffer_bytes() > self.shared.buffer_limit;
        is_over || now.ms < self.short_until_ms
    }

    /// In a stopping loop, closes the connections that are answered and have been silent for
    /// [`QUIET_MS`]: a client with requests under way is not silent for that long. After
    /// [`SERVE_ON_MS`], closes all that are answered.
    fn drain(&mut self, now: Now) {
        let Some(stopped_ms) = self.stopped_ms else {
            return;
        };
        let is_late = now.ms >= stopped_ms + SERVE_ON_MS;
        let is_done = |conn: &Conn| {
            let silent_ms = now.ms.saturating_sub(conn.active_ms);
            conn.is_answered() && !conn.queued && (is_late || silent_ms >= QUIET_MS)
        };
        let done = self.conns.iter();
        let done = done.filter(|(key, conn)| is_done(conn) && !self.late.awaits(*key));
        let done: Vec<usize> = done.map(|(key, _)| key).collect();
        for key in done {
            self.close(key);
        }
    }

    /// Whether a stopping loop has answered all clients, or has waited long enough.
    fn is_drained(&self, now: Now) -> bool {
        self.stopped_ms
            .is_some_and(|stopped| now.ms >= stopped + DRAIN_MS || self.conns.is_empty())
    }

    fn close_all(mut self) {
        let keys: Vec<usize> = self.conns.iter().map(|(key, _)| key).collect();
        for key in keys {
            self.close(key);
        }
    }
}

/// Sends waiting replies. Returns whether the connection goes on.
fn send_waiting(conn: &mut Conn, counters: &mut Counters, now: Now) -> bool {
    let sent = conn.send_waiting();
    counters.bytes_written += sent as u64;
    counters.writes += 1;
    if sent > 0 {
        conn.active_ms = now.ms;
    }
    !(conn.is_blocked() || conn.failed || conn.closing)
}

/// Reads into `slice`.
fn receive(conn: &mut Conn, slice: &mut [u8]) -> usize {
    if !conn.readable {
        return 0;
    }
    let received = conn.transport.receive([as_uninit(slice), &mut []]);
    note_received(conn, received)
}

/// Records what was received. Returns how many bytes it was.
fn note_received(conn: &mut Conn, received: io::Result<Received>) -> usize {
    match received {
        Ok(Received { bytes: 0, .. }) => {
            conn.readable = false;
            conn.ended = true;
            0
        }
        Ok(Received { bytes, has_more }) => {
            conn.readable = has_more || conn.read_closed;
            bytes
        }
        Err(error) => {
            conn.readable = false;
            conn.failed = error.kind() != io::ErrorKind::WouldBlock;
            0
        }
    }
}

/// Bytes of a loop's arena. A small cache with many loops gets less than is best for its speed.
fn arena_bytes(config: &Config) -> usize {
    let share = config.memory / ARENA_SHARE / config.threads.max(1) as u64;
    usize::try_from(share)
        .unwrap_or(ARENA)
        .clamp(LEAST_ARENA, ARENA)
}

/// Reads into the item whose value a connection is sending, and reads what follows into `slice`.
/// Returns how many bytes were read, and which part of `slice` is input.
fn receive_value(conn: &mut Conn, slice: &mut [u8]) -> (usize, Range<usize>) {
    let Some(receiving) = conn.receiving.as_mut().filter(|_| conn.readable) else {
        return (0, 0..0);
    };
    match receiving.receive(&mut conn.transport, slice) {
        Ok((received, behind)) => (note_received(conn, Ok(received)), behind),
        Err(error) => (note_received(conn, Err(error)), 0..0),
    }
}

/// Makes room for a read behind the bytes in the connection's buffer: as much as the request
/// needs once a quarter of it has arrived, and otherwise the smallest size for the bytes that have
/// arrived. So a client that sends part of a request gets memory for that part.
fn make_room(accounting: &mut BufferAccounting, shared: &Shared, conn: &mut Conn) -> Growth {
    let (len, capacity) = (conn.input.len(), conn.input.capacity());
    let need = conn.need;
    if capacity - len >= need.saturating_sub(len).clamp(1, SLICE) {
        return Growth::Done;
    }
    // An unterminated line asks for one more byte, because its length is unknown.
    let is_near = |bytes: usize| need > len + 1 && (bytes > FREE || need / 4 <= bytes);
    let mut arrived = len;
    if !is_near(len) {
        arrived += conn.transport.readable_bytes().min(OWN_SLICE);
    }
    if is_near(arrived) {
        if need <= FREE && conn.move_input(need, &mut accounting.spare_inputs) {
            accounting.note(conn);
            return Growth::Done;
        }
        // All at once: pages that are never written take no memory.
        return accounting.grow(shared, conn, need);
    }
    match accounting.grow(shared, conn, arrived + PROBE) {
        Growth::OverLimit if capacity < FREE => accounting.grow(shared, conn, FREE),
        growth => growth,
    }
}

/// Reads behind the bytes in the connection's buffer, as far as there is room.
fn receive_own(conn: &mut Conn) -> usize {
    let before = conn.input.len();
    let spare = conn.input.spare_capacity_mut();
    let asked = spare.len().min(OWN_SLICE);
    let received = conn.transport.receive([&mut spare[..asked], &mut []]);
    let n = note_received(conn, received);
    // SAFETY: the transport has initialised these bytes.
    unsafe { conn.input.set_len(before + n) };
    n
}

#[cfg(test)]
mod tests;
