//! Memory that waits for a grace period: batches, and the budget that bounds them.
//!
//! A [`RetireList`] belongs to one thread at a time. Pushed objects collect in an open batch; a
//! full batch is closed with a [`Cookie`] and may be taken once the cookie is complete. So the
//! objects of a batch share the cost of a cookie, of reading the readers' words, and of a grace
//! period: some thousand objects that own nothing, and at most 32 others, unless the caller knows
//! what they weigh ([`default_weight`]).
//!
//! A [`Budget`] counts the bytes of the closed batches of many threads. Open batches are counted
//! where they are: each holds at most [`RetireList::BATCH_BYTES`], or one object that is larger.

use std::collections::VecDeque;

use corewise_atomic::mutant;
use corewise_atomic::sync::atomic::AtomicUsize;
use corewise_atomic::sync::atomic::Ordering::Relaxed;

use crate::Cookie;

/// Bytes that an object with a destructor is taken to own, its own size included, unless the caller
/// knows better: 32 such objects fill a batch ([`RetireList::BATCH_BYTES`]).
const OWNED_BYTES: usize = 2 << 10;

/// The weight of a retired object of this type of which nothing else is known, in bytes.
///
/// The size of the type if it has no destructor. An object with a destructor may own memory, a file
/// or a lock, so it weighs at least 2 KiB: the next power of two that is not below its size.
///
/// ```
/// use corewise_rcu::default_weight;
/// assert_eq!(default_weight::<[u64; 3]>(), 24);
/// assert_eq!(default_weight::<String>(), 2_048);
/// ```
pub const fn default_weight<T>() -> usize {
    let size = size_of::<T>();
    if !std::mem::needs_drop::<T>() || size > usize::MAX / 2 {
        return size;
    }
    let size = if size < OWNED_BYTES {
        OWNED_BYTES
    } else {
        size
    };
    size.next_power_of_two()
}

/// The limits of a backlog, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Above it, a caller outside sections waits for a grace period and reclaims, unless a reader
    /// stalls; a caller inside a section continues and gets [`Pressure::OverSoft`].
    pub soft: usize,
    /// Above it, `try_` calls return an error.
    pub hard: usize,
}

impl Limits {
    /// 16 MiB and 1 GiB.
    pub const DEFAULT: Limits = Limits {
        soft: 16 << 20,
        hard: 1 << 30,
    };

    /// How full a backlog of this size is.
    pub fn pressure(&self, bytes: usize) -> Pressure {
        match bytes {
            bytes if bytes <= self.soft => Pressure::Fine,
            bytes if bytes <= self.hard => Pressure::OverSoft,
            _ => Pressure::OverHard,
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// How full a backlog is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Pressure {
    /// Within its soft limit.
    Fine,
    /// Over its soft limit: the thread should leave its sections for a while.
    OverSoft,
    /// Over its hard limit: `try_` calls fail.
    OverHard,
}

/// The bytes of a backlog, counted by many threads.
#[derive(Debug)]
pub struct Budget {
    bytes: AtomicUsize,
    limits: Limits,
}

impl Budget {
    /// Creates an empty backlog with these limits.
    pub fn new(limits: Limits) -> Self {
        Self {
            bytes: AtomicUsize::new(0),
            limits,
        }
    }

    /// Bytes in closed batches.
    #[inline]
    pub fn bytes(&self) -> usize {
        // Relaxed: a number that publishes nothing.
        self.bytes.load(Relaxed)
    }

    /// The limits.
    pub fn limits(&self) -> Limits {
        self.limits
    }

    /// How full the backlog is.
    #[inline]
    pub fn pressure(&self) -> Pressure {
        self.limits.pressure(self.bytes())
    }

    /// Adds the bytes, up to the maximum of the counter; returns how many were added.
    fn add(&self, bytes: usize) -> usize {
        let add = |before: usize| Some(before.saturating_add(bytes));
        // Relaxed: as in `bytes`.
        let before = self.bytes.fetch_update(Relaxed, Relaxed, add);
        let before = before.unwrap_or_else(|before| before);
        bytes.min(usize::MAX - before)
    }

    fn sub(&self, bytes: usize) {
        // Relaxed: as in `bytes`.
        self.bytes.fetch_sub(bytes, Relaxed);
    }
}

/// Objects that one thread retired and that cannot be freed yet.
#[derive(Debug)]
pub struct RetireList<T> {
    open: Vec<T>,
    open_bytes: usize,
    /// The bytes at which the open batch is full.
    batch_bytes: usize,
    closed: VecDeque<Batch<T>>,
}

#[derive(Debug)]
struct Batch<T> {
    items: Vec<T>,
    /// Bytes as the budget counts them.
    bytes: usize,
    cookie: Cookie,
}

impl<T> Default for RetireList<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> RetireList<T> {
    /// Maximum number of objects in a batch.
    #[cfg(not(any(corewise_stress, corewise_loom, corewise_shuttle)))]
    pub const BATCH: usize = 2048;
    /// Maximum number of objects in a batch: small, so that the stress build, loom and shuttle
    /// close batches early.
    #[cfg(any(corewise_stress, corewise_loom, corewise_shuttle))]
    pub const BATCH: usize = 2;
    /// Number of bytes at which a batch is full, unless [`RetireList::set_batch_bytes`] changes it.
    pub const BATCH_BYTES: usize = 64 << 10;

    /// Creates an empty list; allocates nothing.
    pub const fn new() -> Self {
        Self {
            open: Vec::new(),
            open_bytes: 0,
            batch_bytes: Self::BATCH_BYTES,
            closed: VecDeque::new(),
        }
    }

    /// Adds an object of `bytes` bytes; true if the open batch is now full and the caller should
    /// call [`RetireList::close`]. Amortised constant time.
    #[inline]
    pub fn push(&mut self, item: T, bytes: usize) -> bool {
        self.open.push(item);
        self.open_bytes = self.open_bytes.saturating_add(bytes);
        self.open.len() >= Self::BATCH || self.open_bytes >= self.batch_bytes
    }

    /// Sets the number of bytes at which a batch is full, from the next [`RetireList::push`] on.
    #[inline]
    pub fn set_batch_bytes(&mut self, bytes: usize) {
        self.batch_bytes = bytes;
    }

    /// Closes the open batch, if it is not empty. `cookie` must have been taken after the last
    /// push; it may be earlier than that of a batch that is closed already.
    pub fn close(&mut self, cookie: Cookie, budget: &Budget) {
        if self.open.is_empty() {
            return;
        }
        let bytes = std::mem::take(&mut self.open_bytes);
        let batch = Batch {
            items: std::mem::take(&mut self.open),
            bytes: budget.add(bytes),
            cookie,
        };
        // The oldest batch stays in front, as in `adopt`.
        let at = self.closed.len() - self.closed_after(cookie);
        self.closed.insert(at, batch);
    }

    /// The cookie of the oldest closed batch.
    #[inline]
    pub fn oldest(&self) -> Option<Cookie> {
        self.closed.front().map(|batch| batch.cookie)
    }

    /// The cookie of the newest closed batch.
    pub fn newest(&self) -> Option<Cookie> {
        self.closed.back().map(|batch| batch.cookie)
    }

    /// Takes the oldest closed batch, if `is_complete` returns true for its cookie. The caller must
    /// reclaim it after every borrow of this list has ended: dropped objects may retire more.
    pub fn take_ready(
        &mut self,
        budget: &Budget,
        is_complete: impl FnOnce(Cookie) -> bool,
    ) -> Option<Vec<T>> {
        if !mutant!("reclaim_at_once") && !is_complete(self.oldest()?) {
            return None;
        }
        let batch = self.closed.pop_front()?;
        budget.sub(batch.bytes);
        Some(batch.items)
    }

    /// Keeps the memory of an emptied batch for the open batch, if that has none yet.
    #[inline]
    pub fn recycle(&mut self, items: Vec<T>) {
        debug_assert!(items.is_empty());
        if self.open.capacity() == 0 {
            self.open = items;
        }
    }

    /// Takes everything, ready or not: for an owner that no reader can use any longer.
    pub fn take_all(&mut self, budget: &Budget) -> Vec<T> {
        let mut all = std::mem::take(&mut self.open);
        self.open_bytes = 0;
        for batch in self.closed.drain(..) {
            budget.sub(batch.bytes);
            all.extend(batch.items);
        }
        all
    }

    /// Bytes of the open batch, which no budget counts.
    #[inline]
    pub fn open_bytes(&self) -> usize {
        self.open_bytes
    }

    /// The number of closed batches.
    pub fn closed(&self) -> usize {
        self.closed.len()
    }

    /// The number of closed batches whose cookie is later than `cookie`.
    pub fn closed_after(&self, cookie: Cookie) -> usize {
        self.closed.len() - self.closed.partition_point(|batch| batch.cookie <= cookie)
    }

    /// Whether the list has no objects.
    pub fn is_empty(&self) -> bool {
        self.open.is_empty() && self.closed.is_empty()
    }

    /// Whether the open batch has objects.
    pub(crate) fn has_open(&self) -> bool {
        !self.open.is_empty()
    }

    /// Takes the closed batches of `other`. The oldest batch stays in front, so that no batch waits
    /// for a later one's grace period.
    pub fn adopt(&mut self, other: &mut RetireList<T>) {
        let is_later = other.oldest() >= self.newest();
        self.closed.append(&mut other.closed);
        if !is_later {
            let batches = self.closed.make_contiguous();
            batches.sort_by_key(|batch| batch.cookie);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_closed_with_an_earlier_cookie_goes_first() {
        let domain = crate::Domain::new();
        let budget = Budget::new(Limits::DEFAULT);
        let mut retire_list = RetireList::new();
        let earlier = domain.start_poll();
        domain.synchronize();
        let later = domain.start_poll();
        for (item, cookie) in [(1, later), (2, earlier), (3, later), (4, earlier)] {
            retire_list.push(item, 1);
            retire_list.close(cookie, &budget);
        }
        assert_eq!(
            (retire_list.oldest(), retire_list.newest()),
            (Some(earlier), Some(later))
        );
        assert_eq!(retire_list.closed_after(earlier), 2);
        let mut take = || retire_list.take_ready(&budget, |cookie| domain.is_complete(cookie));
        assert_eq!(
            [take(), take(), take()],
            [Some(vec![2]), Some(vec![4]), None]
        );
    }

    #[test]
    fn no_batch_waits_behind_a_later_one() {
        let domain = crate::Domain::new();
        let budget = Budget::new(Limits::DEFAULT);
        let (mut orphans, mut ended) = (RetireList::new(), RetireList::new());
        let close = |retire_list: &mut RetireList<u32>, item| {
            retire_list.push(item, 1);
            retire_list.close(domain.start_poll(), &budget);
        };
        close(&mut ended, 1);
        domain.synchronize();
        close(&mut orphans, 2);
        orphans.adopt(&mut ended);
        let is_complete = |cookie| domain.is_complete(cookie);
        assert_eq!(orphans.take_ready(&budget, is_complete), Some(vec![1]));
        assert_eq!(orphans.take_ready(&budget, is_complete), None);
    }
}
