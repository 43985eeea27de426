//! Accounting of the memory that the server uses for its connections.
//!
//! Each loop counts its own memory, and the sum over all loops is bounded. What is resident of the
//! sum, with a quarter for the allocator, is reported to the engine beyond [`uncharged`] bytes. The
//! engine then has that much less memory for items. Pages of an input that nothing has been written
//! to are not resident.
//!
//! | memory | counted |
//! |---|---|
//! | a connection's input and its waiting replies | as they grow and shrink |
//! | a loop's arena, output buffer, batch and lists | at every sweep |
//!
//! # Guarantees
//!
//! 1. Every connection may have [`FREE`] bytes of input, so an ordinary request is never refused.
//!    Nor is a transaction that takes no more.
//! 2. Beyond that, an input grows only if the limit has room for it. An input holds at most twice
//!    what has arrived, or the whole request once a quarter of it or [`FREE`] bytes are there,
//!    rounded up to one of few [sizes](input_capacity). From then on all of that is counted, so
//!    such a connection never needs memory that another one holds. If there is no room, the
//!    connection is not read for [`WAIT_MS`](crate::conn::WAIT_MS) at most. If there still is none
//!    then, the request is refused: it is answered with an error, and its data is swallowed. A
//!    client that announces a large value and sends little of it takes no memory from the others.
//! 3. Every connection may have [`FREE`] bytes of waiting replies. Beyond that, a reply is sent
//!    only if all of it could wait for its client while all buffers together stay below
//!    [`reply_limit`]. Otherwise connections of the same loop are closed whose clients have not
//!    taken a byte of a waiting reply for [`TAKES_NOTHING_MS`], longest silence first. If that is
//!    not enough, or while items have not made room for the replies that wait already, the request
//!    waits: it is executed again when there is room. So no client that takes its replies is
//!    closed. Waiting replies leave less room for large requests.
//! 4. Replies to requests that cannot be executed twice, and to calls, do not wait in this way. If
//!    there is no room, what the socket does not take is lost, and the connection is closed.
//! 5. While memory is short (a request or a reply was refused or put off within [`SHORT_MS`], or
//!    the limit is exceeded), a connection with more than [`FREE`] bytes that has neither sent nor
//!    taken a byte for [`STALLED_MS`] is closed.
//! 6. So the limits are exceeded only by what 1 and 3 allow each connection, and by what loops take
//!    at the same instant: one step of growth, and what one turn prints or one reply, for each
//!    loop.
//!
//! Accounting costs a turn a few additions and plain stores to memory that no other thread writes.
//! It costs a request nothing.

use crate::config::Eviction;
use crate::conn::{AwaitedRoom, Conn, Growth, Held, MAX_WAIT};
use crate::memory;
use crate::shared::Shared;
use crate::spare_inputs::{FREE, SpareInputs, input_capacity};
use crate::transport::length;
use corewise_atomic::sync::atomic::Ordering;
use corewise_engine::Engine;
use corewise_ops::Now;
use slab::Slab;
use std::time::Duration;

/// A batch pauses when this many bytes of replies wait to be written.
pub(crate) const OUTPUT_PAUSE: usize = 256 << 10;

/// A value of at least this many bytes is sent from its item rather than copied first. If a client
/// asks for several such values at a time, each costs a system call that a shared buffer would
/// save: with eight values, that is as much as copying some 40 KiB.
pub(crate) const LARGE_VALUE: usize = 48 << 10;

/// How long a connection may hold more than [`FREE`] bytes without sending or taking a byte while
/// memory is short.
pub(crate) const STALLED_MS: u64 = 5_000;
/// How long a client may take nothing of a waiting reply when another reply needs its memory.
pub(crate) const TAKES_NOTHING_MS: u64 = 1_000;
/// How long memory counts as short after a refusal. Stalled connections are found within that time.
pub(crate) const SHORT_MS: u64 = 2 * STALLED_MS;
/// How long a reply waits for memory before its request is executed again in any case.
const RETRY_REPLY_MS: u64 = 100;
/// While memory for replies is short, a turn prints this much before it sends it, and sends larger
/// values from their items: what one turn prints for a connection then stays below [`FREE`].
const SHORT_PAUSE: usize = 12 << 10;
/// A loop reports to the engine when its resident bytes have changed by this many bytes.
const REPORT_EVERY: u64 = 64 << 10;
/// Bytes of buffers for which the engine takes one step of maintenance. It looks through more than
/// that of its items, some of which stay.
const STEP: u64 = 8 << 10;
/// Maximum number of these steps behind one turn: about 10 ms. The rest follows behind the next.
const MOST_STEPS: u64 = 512;
/// When a turn has kept this many bytes of replies, memory counts as short for its rest: items make
/// room for buffers between turns.
const MOST_KEPT: usize = 256 << 10;
/// When items still have to give back this many bytes, memory for replies counts as short.
const MOST_BEHIND: u64 = 128 << 10;
/// When a connection's buffers shrink by more than this, freed memory is returned to the system.
const LARGE: usize = 128 << 10;
/// The same if many smaller buffers have shrunk by more than this together: the pages that the
/// allocator keeps of each size add up.
const KEEPS_FREED: usize = 512 << 10;
/// Bytes of freed buffers that are not returned at a sweep.
const KEEPS_AT_SWEEP: usize = 16 << 10;
/// The allocator takes up to this share (1/4) of the buffers in addition: it rounds their sizes,
/// and keeps pages in which few of them are left.
const SLACK_SHARE: u64 = 4;
/// Bytes of buffers that are not charged to the engine: they are part of the 5 % and 8 MiB that the
/// server may take beyond its limit. Otherwise a few connections would take half of a small cache,
/// and a reply of a tenth of a large one, which the client takes in parts, would displace an item.
fn uncharged(memory_limit: u64) -> u64 {
    (memory_limit / 32).max(512 << 10)
}

/// The number of bytes beyond which a reply may not wait for its client: half of the memory limit
/// if items make room for buffers, and at least the limit for requests.
fn reply_limit(shared: &Shared, memory_limit: u64) -> u64 {
    match shared.config.eviction {
        Eviction::None => shared.buffer_limit,
        _ => shared.buffer_limit.max(memory_limit / 2),
    }
}

/// One loop's part of the accounting.
pub(crate) struct BufferAccounting {
    /// Index of the loop.
    index: usize,
    /// The buffers of its connections.
    held: Held,
    /// Memory that the loop shares between its connections.
    common: u64,
    /// Its resident bytes when they were last reported to the engine.
    reported: u64,
    /// Bytes by which they have grown since the loop last made room for them.
    grown: u64,
    /// Bytes of buffers freed since freed memory was last returned to the system.
    freed: usize,
    pub(crate) spare_inputs: SpareInputs,
}

impl BufferAccounting {
    pub(crate) fn new(index: usize, spare_inputs: SpareInputs) -> Self {
        Self {
            index,
            held: Held::default(),
            common: 0,
            reported: 0,
            grown: 0,
            freed: 0,
            spare_inputs,
        }
    }

    /// Records what a connection holds now.
    #[inline]
    pub(crate) fn note(&mut self, conn: &mut Conn) {
        let held = conn.held();
        if held != conn.noted {
            self.replace(conn.noted, held);
            conn.noted = held;
        }
    }

    /// Records that a connection is gone.
    pub(crate) fn remove(&mut self, conn: &Conn) {
        self.replace(conn.noted, Held::default());
    }

    /// Counts `held` instead of `noted`.
    fn replace(&mut self, noted: Held, held: Held) {
        self.held.input = self.held.input - noted.input + held.input;
        self.held.output = self.held.output - noted.output + held.output;
        self.held.unwritten = self.held.unwritten - noted.unwritten + held.unwritten;
        self.freed += match noted.resident().saturating_sub(held.resident()) {
            freed if freed > LARGE => freed.max(KEEPS_FREED + 1),
            freed => freed,
        };
    }

    /// Gives `conn` room for `target` bytes of input. Changes nothing unless it returns
    /// [`Growth::Done`].
    pub(crate) fn grow(&mut self, shared: &Shared, conn: &mut Conn, target: usize) -> Growth {
        let target = input_capacity(target);
        let wanted = target.saturating_sub(conn.input.capacity()) as u64;
        if target > FREE && wanted > self.room(shared, shared.buffer_limit) {
            return Growth::OverLimit;
        }
        let more = target - conn.input.len();
        if conn.input.try_reserve_exact(more).is_err() {
            return Growth::NoMemory;
        }
        self.note(conn);
        self.publish(shared);
        Growth::Done
    }

    /// Bytes that a limit leaves.
    fn room(&self, shared: &Shared, limit: u64) -> u64 {
        // Relaxed: the sums of other loops may be slightly out of date (guarantee 6).
        let others = shared.loops.iter().enumerate();
        let others: u64 = others
            .filter(|(index, _)| *index != self.index)
            .map(|(_, state)| state.buffer_bytes.load(Ordering::Relaxed))
            .sum();
        limit.saturating_sub(others + self.sum())
    }

    /// Whether a connection whose reply was put off goes on waiting.
    #[cold]
    pub(crate) fn still_waits(
        &self,
        shared: &Shared,
        engine: &impl Engine,
        conn: &mut Conn,
        now: Now,
    ) -> bool {
        let Some(awaited) = conn.awaited_room else {
            return false;
        };
        let room = self.room(shared, reply_limit(shared, engine.memory_limit()));
        let has_room = room >= awaited.bytes && engine.excess() <= MOST_BEHIND;
        let waits = !has_room && now.ms < awaited.retry_ms;
        if waits {
            conn.active_ms = now.ms; // it waits for the server
        } else {
            conn.awaited_room = None;
        }
        waits
    }

    fn sum(&self) -> u64 {
        self.held.sum() as u64 + self.common
    }

    fn resident(&self) -> u64 {
        self.held.resident() as u64 + self.common
    }

    fn publish(&self, shared: &Shared) {
        let state = &shared.loops[self.index];
        let unwritten = self.held.unwritten as u64;
        // Relaxed: gauges.
        state.buffer_bytes.store(self.sum(), Ordering::Relaxed);
        state.unwritten_bytes.store(unwritten, Ordering::Relaxed);
        let input = self.held.input as u64 - unwritten;
        state.input_bytes.store(input, Ordering::Relaxed);
        let output = self.held.output as u64;
        state.output_bytes.store(output, Ordering::Relaxed);
    }

    /// Publishes that the loop, which ends, holds nothing: the others may have the memory.
    pub(crate) fn end(&mut self, shared: &Shared) {
        (self.held, self.common) = Default::default();
        self.publish(shared);
    }

    /// Records the memory that the loop shares between its connections.
    pub(crate) fn set_common(&mut self, bytes: usize) {
        self.common = bytes as u64;
    }

    /// Ends a turn: publishes the sum, and reports it to the engine if it has changed much.
    #[inline]
    pub(crate) fn close<E: Engine>(&mut self, shared: &Shared, engine: &E) {
        self.publish(shared);
        if self.must_return() {
            memory::return_freed();
        }
        if self.resident().abs_diff(self.reported) >= REPORT_EVERY {
            self.report(shared, engine);
        }
    }

    /// At a sweep, returns what has been freed since memory was last returned.
    pub(crate) fn return_rest(&mut self) {
        if self.freed > KEEPS_AT_SWEEP {
            self.freed = 0;
            memory::return_freed();
        }
    }

    /// Whether freed memory is to be returned to the system now.
    #[inline]
    fn must_return(&mut self) -> bool {
        let must = self.freed > KEEPS_FREED;
        if must {
            self.freed = 0;
        }
        must
    }

    /// The number of steps of the engine's maintenance that evict about the bytes by which buffers
    /// have grown.
    #[inline]
    pub(crate) fn take_steps(&mut self) -> u64 {
        let steps = self.grown.div_ceil(STEP).min(MOST_STEPS);
        self.grown = self.grown.saturating_sub(steps * STEP);
        steps
    }

    #[cold]
    fn report<E: Engine>(&mut self, shared: &Shared, engine: &E) {
        self.grown += self.resident().saturating_sub(self.reported);
        self.reported = self.resident();
        // Under the lock, so that the last sum reported is the last one taken.
        let _reporting = shared.reporting.lock();
        let resident = shared.resident_buffer_bytes();
        let uncharged = uncharged(engine.memory_limit());
        engine.set_overhead((resident + resident / SLACK_SHARE).saturating_sub(uncharged));
    }
}

/// What the replies of one turn may cost the loop when clients do not read.
pub(crate) struct ReplyRoom<'t> {
    accounting: &'t BufferAccounting,
    shared: &'t Shared,
    limit: u64,
    now: Now,
    /// Bytes that waiting replies may still take, from the first time that the turn needs some.
    bytes: Option<u64>,
    /// Bytes of this turn's replies that wait.
    kept: usize,
    /// Items have not yet made room for buffers.
    is_behind: bool,
    /// The turn prints at most this many bytes before it sends them.
    pub(crate) pause: usize,
    /// Values of at least this many bytes are sent from their items.
    pub(crate) large: usize,
    /// How long the turn may still wait for sockets.
    pub(crate) wait: Duration,
    /// Connections that were given up to make room. They are to be closed.
    pub(crate) given_up: Vec<usize>,
}

impl<'t> ReplyRoom<'t> {
    pub(crate) fn new(
        accounting: &'t BufferAccounting,
        shared: &'t Shared,
        engine: &impl Engine,
        now: Now,
    ) -> Self {
        let mut room = Self {
            accounting,
            shared,
            limit: reply_limit(shared, engine.memory_limit()),
            now,
            bytes: None,
            kept: 0,
            is_behind: engine.excess() > MOST_BEHIND,
            pause: OUTPUT_PAUSE,
            large: LARGE_VALUE,
            wait: MAX_WAIT,
            given_up: Vec::new(),
        };
        // A loop that keeps no replies looks only when one must wait (guarantee 6).
        if accounting.held.output > 0 || room.is_behind {
            room.set_bytes(accounting.room(shared, room.limit));
        }
        room
    }

    fn set_bytes(&mut self, bytes: u64) {
        self.bytes = Some(bytes);
        if bytes < (OUTPUT_PAUSE + LARGE_VALUE) as u64 || self.must_wait() {
            (self.pause, self.large) = (SHORT_PAUSE, SHORT_PAUSE);
        }
    }

    /// Whether each reply that is printed now fits what every connection may have.
    pub(crate) fn is_short(&self) -> bool {
        self.pause < OUTPUT_PAUSE
    }

    /// Whether a reply of `length` bytes may be sent to connection `key`: if the socket takes
    /// nothing of it, it may wait. May give up other connections.
    pub(crate) fn admits(&mut self, conns: &mut Slab<Conn>, key: usize, length: usize) -> bool {
        let fits = conns[key].held().output + length <= FREE;
        let has_none_waiting = || self.kept == 0 && self.shared.sum(|one| &one.output_bytes) == 0;
        let may_wait = !self.must_wait();
        fits || has_none_waiting() || (may_wait && self.has_room(conns, key, length as u64))
    }

    /// Whether replies had better wait until items have made room for those that wait.
    fn must_wait(&self) -> bool {
        self.is_behind || self.kept >= MOST_KEPT
    }

    /// Lets connection `key` wait until there is room for a reply of `length` bytes.
    #[cold]
    pub(crate) fn put_off(&self, conn: &mut Conn, length: usize) {
        // Relaxed: a statistic.
        self.shared.replies_put_off.fetch_add(1, Ordering::Relaxed);
        conn.awaited_room = Some(AwaitedRoom {
            bytes: length as u64,
            retry_ms: self.now.ms + RETRY_REPLY_MS,
        });
    }

    /// Keeps `rest`, which the socket of connection `key` has not taken. If it was not admitted and
    /// there is no room, gives the connection up. Returns whether it kept it.
    #[cold]
    pub(crate) fn keep(
        &mut self,
        conns: &mut Slab<Conn>,
        key: usize,
        rest: [&[u8]; 3],
        is_admitted: bool,
    ) -> bool {
        let conn = &mut conns[key];
        if conn.failed {
            return true; // its client is gone
        }
        let before = conn.held().output;
        let length = length(&rest);
        let fits = before + length <= FREE || is_admitted;
        if !fits && !self.has_room(conns, key, length as u64) {
            conns[key].give_up();
            return false;
        }
        let conn = &mut conns[key];
        if !conn.is_blocked() {
            conn.active_ms = self.now.ms; // it took all that came before
        }
        conn.keep(&rest);
        self.kept += length;
        let bytes = self
            .bytes
            .unwrap_or_else(|| self.accounting.room(self.shared, self.limit));
        self.set_bytes(bytes.saturating_sub((conn.held().output - before) as u64));
        true
    }

    /// Whether there is room for `length` bytes, if need be after giving up other connections.
    fn has_room(&mut self, conns: &mut Slab<Conn>, key: usize, length: u64) -> bool {
        let room = || self.accounting.room(self.shared, self.limit);
        let mut bytes = self.bytes.unwrap_or_else(room);
        while bytes < length {
            let silence = |conn: &Conn| self.now.ms.saturating_sub(conn.active_ms);
            let takes_nothing = |(other, conn): &(usize, &mut Conn)| {
                *other != key && conn.is_blocked() && silence(conn) >= TAKES_NOTHING_MS
            };
            let silent = conns.iter_mut().filter(takes_nothing);
            let Some((other, conn)) = silent.max_by_key(|(_, conn)| silence(conn)) else {
                break;
            };
            bytes += conn.held().output as u64;
            conn.give_up();
            self.given_up.push(other);
        }
        self.set_bytes(bytes);
        bytes >= length
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_small_frees_return_memory_as_one_large_free_does() {
        let mut accounting = BufferAccounting::new(0, SpareInputs::new(0));
        for (input, most) in [(2 * LARGE, 1), (LARGE / 2, 20), (LARGE, 20)] {
            let held = Held {
                input,
                ..Held::default()
            };
            let mut kept = 0;
            for _ in 0..most {
                accounting.replace(Held::default(), held);
                accounting.replace(held, Held::default());
                kept = if accounting.must_return() {
                    0
                } else {
                    kept + input
                };
                assert!(kept <= KEEPS_FREED, "{input}: {kept}");
            }
            accounting.freed = 0;
        }
    }
}
