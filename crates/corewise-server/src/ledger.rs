//! The memory that the server itself uses for its connections: counted by each
//! loop, bounded for all of them together, and told to the engine beyond
//! [`UNCHARGED`] bytes, which has that much less for items.
//!
//! | what | counted |
//! |---|---|
//! | a connection's input and its waiting replies | as they grow and shrink |
//! | a loop's arena, output buffer, batch and lists | at every sweep |
//!
//! # Guarantees
//!
//! 1. [`FREE`] bytes of input are every connection's right, so an ordinary
//!    request is never refused.
//! 2. Beyond that an input grows only if the limit has room for all that the
//!    request still wants, and all of it is counted from then on: of those that
//!    may grow, none needs what another one holds. If there is no room, the
//!    connection is not read for [`WAIT_MS`] at most; if there is none then, the
//!    request is refused: answered with an error, and its data swallowed. A
//!    client that announces much and sends less than [`FREE`] bytes keeps nothing
//!    from the others.
//! 3. Waiting replies are counted and not refused; they are bounded for each
//!    connection (see `conn`), and crowd out large requests.
//! 4. While memory is short (a request was refused within [`SHORT_MS`], or the limit is
//!    exceeded), a connection with more than [`FREE`] bytes that has neither sent
//!    nor taken a byte for [`STALLED_MS`] is closed.
//! 5. So the limit is exceeded by what 1 and 3 allow, and by what loops take in
//!    the same instant: one step of growth for each.
//!
//! Counting costs a turn a few additions and plain stores to memory that no
//! other thread writes, and a request nothing.

use crate::conn::Conn;
use crate::memory;
use crate::shared::Shared;
use corewise_atomic::sync::atomic::Ordering;
use corewise_cache::Engine;

/// Bytes of input that no connection is refused.
pub(crate) const FREE: usize = 32 << 10;
/// How long a connection may hold more while memory is short, without a byte
/// coming or going.
pub(crate) const STALLED_MS: u64 = 5_000;
/// For how long memory counts as short after a refusal: those that stall are found out within that time.
pub(crate) const SHORT_MS: u64 = 2 * STALLED_MS;
/// How long a connection waits for the memory of a large request.
pub(crate) const WAIT_MS: u64 = 1_000;
/// The engine is told when a loop's sum has changed by so much.
const TELL: u64 = 64 << 10;
/// A connection whose buffers shrink by more than this has freed memory returned to the system.
const LARGE: usize = 128 << 10;
/// Bytes of buffers that the engine is not told of: they are among the 8 MiB that the server may take beside
/// its limit. A small cache would lose half of it to a few connections.
const UNCHARGED: u64 = 1 << 20;

/// Memory of buffers in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Held {
    /// Requests that are not whole yet.
    pub(crate) input: usize,
    /// Replies that wait.
    pub(crate) output: usize,
}

impl Held {
    pub(crate) fn sum(self) -> usize {
        self.input + self.output
    }
}

/// What became of a wish for more memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Growth {
    Done,
    /// The limit does not allow it now.
    OverLimit,
    /// The allocator has none.
    NoMemory,
}

/// One loop's part of the count.
pub(crate) struct Ledger {
    /// Which loop.
    index: usize,
    /// The own buffers of its connections.
    held: Held,
    /// What the loop has for all of them.
    common: u64,
    /// The loop's sum when the engine was told last.
    told: u64,
    /// A large buffer was freed.
    freed_large: bool,
}

impl Ledger {
    pub(crate) fn new(index: usize) -> Self {
        Self {
            index,
            held: Held::default(),
            common: 0,
            told: 0,
            freed_large: false,
        }
    }

    /// Takes note of what a connection holds now.
    #[inline]
    pub(crate) fn note(&mut self, conn: &mut Conn) {
        let held = conn.held();
        if held != conn.noted {
            self.replace(conn.noted, held);
            conn.noted = held;
        }
    }

    /// Takes note that a connection is gone.
    pub(crate) fn forget(&mut self, conn: &Conn) {
        self.replace(conn.noted, Held::default());
    }

    /// Counts `held` instead of `noted`.
    fn replace(&mut self, noted: Held, held: Held) {
        self.held.input = self.held.input - noted.input + held.input;
        self.held.output = self.held.output - noted.output + held.output;
        self.freed_large |= noted.sum() > held.sum() + LARGE;
    }

    /// Gives `conn` room for `target` bytes of input, of a request that wants
    /// `whole` in the end. If it does not, nothing has changed.
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

    /// What the limit leaves.
    fn room(&self, shared: &Shared) -> u64 {
        // Relaxed: the others' sums, as they were a moment ago (guarantee 5).
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

    /// Takes note of what the loop has for all its connections.
    pub(crate) fn set_common(&mut self, bytes: usize) {
        self.common = bytes as u64;
    }

    /// Closes a turn: publishes the sum, and tells the engine if it has changed
    /// much.
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
        // Under the lock, so that the sum told last was taken last.
        let _telling = shared.telling.lock();
        engine.set_overhead(shared.buffer_bytes().saturating_sub(UNCHARGED));
    }
}
