//! One event loop: one thread, one poller, its own connections.
//!
//! ```text
//!   poll ─▶ accept what the main thread handed over
//!        ─▶ read every readable connection (into the arena, or into its own
//!           buffer if it holds half a request)
//!        ─▶ turn: parse, execute in batches, write replies
//!        ─▶ keep what is left over; close what is done; maintenance
//! ```
//!
//! The poller is edge-triggered. A read that returns less than was asked for
//! has drained the socket; one that fills its buffer puts the connection on the
//! list of those to be looked at in the next turn, without waiting. A
//! connection whose socket is full is neither read nor executed.
//!
//! Limits: [`SLICE`] bytes are read from a connection per turn, [`ARENA`] bytes
//! in all (further readable connections wait for the next turn), so a turn
//! executes at most what [`ARENA`] bytes can ask for.

use crate::conn::Conn;
use crate::counters::Counters;
use crate::ledger::{FREE, Ledger, STALLED_MS};
use crate::shared::{ConnCard, Shared};
use crate::stream::Stream;
use crate::turn::{Spare, Turn, Work};
use bumpalo::Bump;
use corewise_atomic::lock::Mutex;
use corewise_atomic::sync::atomic::Ordering;
use corewise_cache::{Clock, Engine, Session};
use corewise_ops::Now;
use corewise_wire::memcached::Codec;
use mio::event::Event;
use mio::{Events, Interest, Poll, Token, Waker};
use slab::Slab;
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// Bytes read from one connection per turn into the arena.
const SLICE: usize = 16 << 10;
/// Bytes of the arena.
const ARENA: usize = 512 << 10;
/// Bytes a connection with a buffer of its own reads per turn at most.
const OWN_SLICE: usize = 256 << 10;
/// Events taken from the poller at once.
const EVENTS: usize = 512;
/// A connection and its card, about.
const CONN_BYTES: usize = size_of::<Conn>() + 256;
/// Timeouts are looked at this often.
const SWEEP_EVERY_MS: u64 = 500;
/// How long a stopping loop waits for its clients to take their replies.
const DRAIN_MS: u64 = 5_000;
/// The output buffer is given back beyond this capacity.
const KEEP_OUTPUT: usize = 1 << 20;

const WAKE: Token = Token(usize::MAX);

/// A connection on its way to a loop.
pub(crate) struct Newcomer {
    pub(crate) stream: Stream,
    pub(crate) card: Arc<ConnCard>,
}

/// Where newcomers wait, and how to say so.
pub(crate) struct Inbox {
    newcomers: Mutex<Vec<Newcomer>>,
    waker: Waker,
}

impl Inbox {
    /// Hands a connection over.
    pub(crate) fn send(&self, newcomer: Newcomer) -> io::Result<()> {
        self.newcomers.lock().push(newcomer);
        self.waker.wake()
    }

    /// Makes the loop look around.
    pub(crate) fn wake(&self) -> io::Result<()> {
        self.waker.wake()
    }
}

/// One event loop.
pub(crate) struct EventLoop<E: Engine> {
    index: usize,
    shared: Arc<Shared>,
    engine: Arc<E>,
    session: E::Session,
    poll: Poll,
    inbox: Arc<Inbox>,
    conns: Slab<Conn>,
    /// Connections to look at in the next turn.
    ready: Vec<usize>,
    works: Vec<Work>,
    arena: Box<[u8]>,
    out: Vec<u8>,
    scratch: Bump,
    spare: Spare,
    counters: Counters,
    ledger: Ledger,
    /// Requests refused for lack of memory, by all loops, until the last sweep.
    refusals_seen: u64,
    next_sweep_ms: u64,
    /// When a stopping loop gives up on its clients.
    drain_until_ms: Option<u64>,
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
            newcomers: Mutex::new(Vec::new()),
            waker,
        });
        let session = engine.session();
        let event_loop = Self {
            index,
            shared,
            engine,
            session,
            poll,
            inbox: Arc::clone(&inbox),
            conns: Slab::new(),
            ready: Vec::new(),
            works: Vec::new(),
            arena: vec![0; ARENA].into_boxed_slice(),
            out: Vec::new(),
            scratch: Bump::new(),
            spare: Spare::default(),
            counters: Counters::default(),
            ledger: Ledger::new(index),
            refusals_seen: 0,
            next_sweep_ms: 0,
            drain_until_ms: None,
        };
        Ok((event_loop, inbox))
    }

    /// Serves until the server is told to stop and its clients are answered.
    pub(crate) fn run(mut self) {
        let mut events = Events::with_capacity(EVENTS);
        let mut more_maintenance = false;
        loop {
            let timeout = self.timeout(more_maintenance);
            if timeout != Some(Duration::ZERO) {
                self.session.offline();
            }
            let polled = self.poll.poll(&mut events, timeout);
            self.session.online();
            if let Err(error) = polled
                && error.kind() != io::ErrorKind::Interrupted
            {
                tracing::error!(%error, "an event loop lost its poller and stops");
                return self.close_all();
            }
            let now = self.shared.clock.now();
            let woken = events
                .iter()
                .fold(false, |woken, event| self.note(event) | woken);
            if woken {
                self.welcome(now);
            }
            self.turn(now);
            more_maintenance = self.session.maintain(now);
            self.sweep_if_due(now);
            if self.is_drained(now) {
                return self.close_all();
            }
        }
    }

    fn timeout(&self, more_maintenance: bool) -> Option<Duration> {
        if !self.ready.is_empty() || more_maintenance {
            return Some(Duration::ZERO);
        }
        if self.drain_until_ms.is_some() {
            return Some(Duration::from_millis(10));
        }
        (!self.conns.is_empty()).then_some(Duration::from_millis(SWEEP_EVERY_MS))
    }

    /// Takes note of an event. True: the inbox wants looking at.
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

    /// Takes in connections from the accepting thread.
    fn welcome(&mut self, now: Now) {
        let newcomers = std::mem::take(&mut *self.inbox.newcomers.lock());
        for Newcomer { mut stream, card } in newcomers {
            let entry = self.conns.vacant_entry();
            let key = entry.key();
            if let Err(error) =
                self.poll
                    .registry()
                    .register(&mut stream, Token(key), Interest::READABLE)
            {
                tracing::warn!(%error, "a connection could not be registered");
                self.forget(&card);
                continue;
            }
            let codec = Codec::new(self.shared.users.is_some());
            let conn = entry.insert(Conn::new(stream, codec, card, now.ms));
            conn.queued = true;
            self.ready.push(key);
        }
        if self.shared.is_stopping() && self.drain_until_ms.is_none() {
            self.drain_until_ms = Some(now.ms + DRAIN_MS);
            for (key, conn) in &mut self.conns {
                conn.readable = true;
                if !conn.queued {
                    conn.queued = true;
                    self.ready.push(key);
                }
            }
        }
    }

    /// Reads, executes and answers what is ready.
    fn turn(&mut self, now: Now) {
        if self.ready.is_empty() {
            return;
        }
        self.counters.turns += 1;
        let mut ready = std::mem::take(&mut self.ready);
        let mut works = std::mem::take(&mut self.works);
        let mut arena_used = 0;
        let mut taken = 0;
        for &key in &ready {
            if ARENA - arena_used < SLICE {
                break; // the rest waits for the next turn
            }
            taken += 1;
            self.read(key, now, &mut arena_used, &mut works);
        }
        let mut turn = Turn {
            shared: &self.shared,
            engine: &self.engine,
            session: &mut self.session,
            conns: &mut self.conns,
            counters: &mut self.counters,
            loop_index: self.index,
            now,
            out: &mut self.out,
            scratch: &self.scratch,
        };
        if !works.is_empty() {
            turn.run(&mut works, &self.arena, &mut self.spare);
        }
        self.scratch.reset();
        for work in works.drain(..) {
            self.finish(work);
        }
        for &key in &ready[..taken] {
            self.settle(key);
        }
        // Those that were not looked at come before those that want more.
        ready.drain(..taken);
        ready.append(&mut self.ready);
        self.ready = ready;
        self.works = works;
        if self.out.capacity() > KEEP_OUTPUT {
            self.out = Vec::new();
        }
        self.publish();
    }

    /// Makes visible what was counted.
    fn publish(&mut self) {
        self.shared.loops[self.index].counts.publish(&self.counters);
        self.ledger.close(&self.shared, &*self.engine);
    }

    /// Memory that the loop has for all its connections.
    fn common_bytes(&self) -> usize {
        ARENA
            + self.out.capacity()
            + self.scratch.allocated_bytes()
            + self.spare.held()
            + self.works.capacity() * size_of::<Work>()
            + self.ready.capacity() * size_of::<usize>()
            + self.conns.capacity() * CONN_BYTES
    }

    /// Sends what waits, then reads what came, then adds a work if there is
    /// anything to understand.
    fn read(&mut self, key: usize, now: Now, arena_used: &mut usize, works: &mut Vec<Work>) {
        let Some(conn) = self.conns.get_mut(key) else {
            return;
        };
        conn.queued = false;
        if conn.is_blocked() {
            let sent = conn.send_waiting();
            self.counters.bytes_written += sent as u64;
            if sent > 0 {
                conn.active_ms = now.ms;
            }
            if conn.is_blocked() || conn.failed || conn.closing {
                return;
            }
        }
        let mut work = Work {
            conn: key,
            own: Vec::new(),
            arena: 0..0,
            done: 0,
            refused: false,
        };
        let received = if conn.input.is_empty() {
            let slice = &mut self.arena[*arena_used..*arena_used + SLICE];
            let n = receive(conn, slice);
            work.arena = *arena_used..*arena_used + n;
            *arena_used += n;
            n
        } else {
            // What waits to be executed comes before what is to be read.
            let reads = conn.readable && !conn.has_work();
            work.refused = reads && !make_room(&mut self.ledger, &self.shared, conn);
            let n = if reads && !work.refused {
                receive_own(conn)
            } else {
                0
            };
            work.own = std::mem::take(&mut conn.input);
            n
        };
        if received > 0 {
            conn.note_activity(now.ms);
            self.counters.bytes_read += received as u64;
        }
        let ready = work.refused || work.own.len() >= conn.need.max(1);
        if ready || !work.arena.is_empty() {
            works.push(work);
        } else {
            conn.input = work.own;
        }
    }

    /// Puts back what a turn left of a connection's input.
    fn finish(&mut self, work: Work) {
        let conn = &mut self.conns[work.conn];
        let whole = if work.arena.is_empty() {
            work.own.len()
        } else {
            work.arena.len()
        };
        if work.done == whole {
            conn.need = 1;
        }
        let arena = &self.arena[work.arena.clone()];
        conn.keep_input(work.own, work.done, arena);
    }

    /// Decides what a connection waits for next.
    fn settle(&mut self, key: usize) {
        let Some(conn) = self.conns.get_mut(key) else {
            return;
        };
        self.ledger.note(conn);
        conn.note_state();
        let blocked = conn.is_blocked();
        let exhausted = conn.ended && !conn.has_work();
        let stopping = self.drain_until_ms.is_some() && conn.is_answered();
        if conn.failed || stopping || (!blocked && (conn.closing || exhausted)) {
            return self.close(key);
        }
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
                .reregister(&mut conn.stream, Token(key), interests)
                .is_err()
            {
                return self.close(key);
            }
        }
        if !blocked && !conn.queued && (conn.readable || conn.has_work()) {
            conn.queued = true;
            self.ready.push(key);
        }
    }

    fn close(&mut self, key: usize) {
        let mut conn = self.conns.remove(key);
        self.ledger.forget(&conn);
        // The socket is closed below, which also takes it out of the poller.
        let _ = self.poll.registry().deregister(&mut conn.stream);
        conn.stream.close_writing();
        self.forget(&conn.card);
    }

    fn forget(&self, card: &ConnCard) {
        self.shared.connections.lock().remove(&card.fd);
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
        let stalled = if self.memory_is_short() {
            STALLED_MS
        } else {
            u64::MAX
        };
        let mut expired = Vec::new();
        for (key, conn) in &self.conns {
            let silent = now.ms.saturating_sub(conn.active_ms);
            let kept = conn.is_blocked() && silent >= slow;
            if kept || (conn.noted.sum() > FREE && silent >= stalled) {
                self.counters.slow_kicks += 1;
                expired.push(key);
            } else if silent >= idle {
                self.counters.idle_kicks += 1;
                expired.push(key);
            }
        }
        for key in expired {
            if self.conns[key].queued {
                self.ready.retain(|&other| other != key);
            }
            self.close(key);
        }
        self.ledger.set_common(self.common_bytes());
        self.publish();
    }

    /// Whether a request was refused for lack of memory since the last sweep, or
    /// would be now.
    fn memory_is_short(&mut self) -> bool {
        let refusals = self.shared.counters().read_buf_oom;
        let refused = refusals != self.refusals_seen;
        self.refusals_seen = refusals;
        refused || self.shared.buffer_bytes() > self.shared.buffer_limit
    }

    /// Whether a stopping loop has answered everybody, or waited long enough.
    fn is_drained(&self, now: Now) -> bool {
        self.drain_until_ms
            .is_some_and(|until| now.ms >= until || self.conns.is_empty())
    }

    fn close_all(mut self) {
        let keys: Vec<usize> = self.conns.iter().map(|(key, _)| key).collect();
        for key in keys {
            self.close(key);
        }
    }
}

/// Reads into `slice`. A read that does not fill it has drained the socket.
fn receive(conn: &mut Conn, slice: &mut [u8]) -> usize {
    if !conn.readable {
        return 0;
    }
    match conn.stream.read(slice) {
        Ok(0) => {
            conn.readable = false;
            conn.ended = true;
            0
        }
        Ok(n) => {
            conn.readable = n == slice.len() || conn.read_closed;
            n
        }
        Err(error) => {
            conn.readable = false;
            conn.failed = error.kind() != io::ErrorKind::WouldBlock;
            0
        }
    }
}

/// Makes room for a read behind what is in the connection's own buffer: for the
/// rest of the request, or a good piece of it. False: there is no memory.
fn make_room(ledger: &mut Ledger, shared: &Shared, conn: &mut Conn) -> bool {
    let (len, capacity) = (conn.input.len(), conn.input.capacity());
    let enough = conn.need.saturating_sub(len).clamp(1, SLICE);
    if capacity - len >= enough {
        return true;
    }
    // Twice as much each time, so that little is copied; of a request whose length
    // is known no more than that.
    let wanted = conn.need.saturating_sub(len).clamp(SLICE, OWN_SLICE);
    let most = if wanted > SLICE {
        conn.need
    } else {
        usize::MAX
    };
    let target = (len + wanted).max(2 * capacity).min(most);
    ledger.grow(shared, conn, target, conn.need)
}

/// Reads behind what is in the connection's own buffer, as far as there is room.
fn receive_own(conn: &mut Conn) -> usize {
    let before = conn.input.len();
    let mut input = std::mem::take(&mut conn.input);
    input.resize(input.capacity().min(before + OWN_SLICE), 0);
    let n = receive(conn, &mut input[before..]);
    input.truncate(before + n);
    conn.input = input;
    n
}
