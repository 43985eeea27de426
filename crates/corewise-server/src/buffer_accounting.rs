//! Accounting of the memory that the server uses for its connections.
//!
//! Each loop counts its own memory, and the sum over all loops is bounded. The part of the sum
//! beyond [`uncharged`] bytes is reported to the engine, which then has that much less memory for
//! items.
//!
//! | memory | counted |
//! |---|---|
//! | a connection's input and its waiting replies | as they grow and shrink |
//! | a loop's arena, output buffer, batch and lists | at every sweep |
//!
//! # Guarantees
//!
//! 1. Every connection may have [`FREE`] bytes of input, so an ordinary request is never refused.
//! 2. Beyond that, an input grows only if the limit has room for everything that the request still
//!    needs, and all of that is counted from then on. So a connection that may grow never needs
//!    memory that another one holds. If there is no room, the connection is not read for
//!    [`WAIT_MS`](crate::conn::WAIT_MS) at most. If there still is none then, the request is
//!    refused: it is answered with an error, and its data is swallowed. A client that announces a
//!    large value and sends less than [`FREE`] bytes of it takes no memory from the others.
//! 3. Waiting replies are counted but never refused. They are bounded for each connection (see
//!    `conn`), and leave less room for large requests.
//! 4. While memory is short (a request was refused within [`SHORT_MS`], or the limit is exceeded),
//!    a connection with more than [`FREE`] bytes that has neither sent nor taken a byte for
//!    [`STALLED_MS`] is closed.
//! 5. So the limit is exceeded only by what 1 and 3 allow, and by what loops take at the same
//!    instant: one step of growth for each loop.
//!
//! Accounting costs a turn a few additions and plain stores to memory that no other thread writes.
//! It costs a request nothing.

use crate::conn::{Conn, FREE, Growth, Held};
use crate::memory;
use crate::shared::Shared;
use corewise_atomic::sync::atomic::Ordering;
use corewise_cache::Engine;

/// How long a connection may hold more than [`FREE`] bytes without sending or taking a byte while
/// memory is short.
pub(crate) const STALLED_MS: u64 = 5_000;
/// How long memory counts as short after a refusal. Stalled connections are found within that time.
pub(crate) const SHORT_MS: u64 = 2 * STALLED_MS;
/// A loop reports to the engine when its sum has changed by this many bytes.
const TELL: u64 = 64 << 10;
/// When a connection's buffers shrink by more than this, freed memory is returned to the system.
const LARGE: usize = 128 << 10;
/// Bytes of buffers that are not charged to the engine: they are part of the 5 % and 8 MiB that the
/// server may take beyond its limit. Otherwise a few connections would take half of a small cache,
/// and a reply of a tenth of a large one, which the client takes in parts, would displace an item.
fn uncharged(memory_limit: u64) -> u64 {
    (memory_limit / 32).max(1 << 20)
}

/// One loop's part of the accounting.
pub(crate) struct BufferAccounting {
    /// Index of the loop.
    index: usize,
    /// The buffers of its connections.
    held: Held,
    /// Memory that the loop shares between its connections.
    common: u64,
    /// The loop's sum when it was last reported to the engine.
    told: u64,
    /// A large buffer was freed.
    freed_large: bool,
}

impl BufferAccounting {
    pub(crate) fn new(index: usize) -> Self {
        Self {
            index,
            held: Held::default(),
            common: 0,
            told: 0,
            freed_large: false,
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
    pub(crate) fn forget(&mut self, conn: &Conn) {
        self.replace(conn.noted, Held::default());
    }

    /// Counts `held` instead of `noted`.
    fn replace(&mut self, noted: Held, held: Held) {
        self.held.input = self.held.input - noted.input + held.input;
        self.held.output = self.held.output - noted.output + held.output;
        self.freed_large |= noted.sum() > held.sum() + LARGE;
    }

    /// Gives `conn` room for `target` bytes of input, for a request that needs `whole` bytes in the
    /// end. Changes nothing unless it returns [`Growth::Done`].
    pub(crate) fn grow(
        &mut self,
        shared: &Shared,
        conn: &mut Conn,
        target: usize,
        whole: usize,
    ) -> Growth {
        let whole = whole.max(target);
        let wanted = whole.saturating_sub(conn.held().input) as u64;
        if target > FREE && wanted > self.room(shared) {
            return Growth::OverLimit;
        }
        let more = target - conn.input.len();
        if conn.input.try_reserve_exact(more).is_err() {
            return Growth::NoMemory;
        }
        if target > FREE {
            conn.granted = whole;
        }
        self.note(conn);
        self.publish(shared);
        Growth::Done
    }

    /// Bytes that the limit leaves.
    fn room(&self, shared: &Shared) -> u64 {
        // Relaxed: the sums of other loops may be slightly out of date (guarantee 5).
        let others = shared.loops.iter().enumerate();
        let others: u64 = others
            .filter(|(index, _)| *index != self.index)
            .map(|(_, card)| card.buffer_bytes.load(Ordering::Relaxed))
            .sum();
        shared.buffer_limit.saturating_sub(others + self.sum())
    }

    fn sum(&self) -> u64 {
        self.held.sum() as u64 + self.common
    }

    fn publish(&self, shared: &Shared) {
        let card = &shared.loops[self.index];
        // Relaxed: gauges.
        card.buffer_bytes.store(self.sum(), Ordering::Relaxed);
        card.input_bytes
            .store(self.held.input as u64, Ordering::Relaxed);
        card.output_bytes
            .store(self.held.output as u64, Ordering::Relaxed);
    }

    /// Records the memory that the loop shares between its connections.
    pub(crate) fn set_common(&mut self, bytes: usize) {
        self.common = bytes as u64;
    }

    /// Ends a turn: publishes the sum, and reports it to the engine if it has changed much.
    #[inline]
    pub(crate) fn close<E: Engine>(&mut self, shared: &Shared, engine: &E) {
        self.publish(shared);
        if std::mem::take(&mut self.freed_large) {
            memory::return_freed();
        }
        if self.sum().abs_diff(self.told) >= TELL {
            self.tell(shared, engine);
        }
    }

    #[cold]
    fn tell<E: Engine>(&mut self, shared: &Shared, engine: &E) {
        self.told = self.sum();
        // Under the lock, so that the last sum reported is the last one taken.
        let _telling = shared.telling.lock();
        let uncharged = uncharged(engine.memory_limit());
        engine.set_overhead(shared.buffer_bytes().saturating_sub(uncharged));
    }
}
