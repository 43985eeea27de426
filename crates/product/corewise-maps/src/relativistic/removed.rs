//! The removed entries of a map that wait for readers: the open batch of each thread, the closed
//! batches of all threads, and the grace periods that these share. What a map does with them, and
//! what it guarantees, is in [`reclaim`](super::reclaim).

use std::marker::PhantomData;

use corewise_atomic::lock::Mutex;
use corewise_atomic::mutant;
use corewise_atomic::sync::atomic::Ordering::Relaxed;
use corewise_atomic::sync::atomic::{AtomicBool, AtomicUsize};
use corewise_rcu::{Budget, Cookie, Domain, Limits, RetireList};

use super::lendable::Lendable;
use super::owned::PerThread;
use super::word::NodeId;

/// The weight of an entry: see [`Builder::weigher`](super::Builder::weigher).
pub(super) type Weigher<K, V> = fn(&K, &V) -> usize;

/// Closed batches that share a grace period, for each thread that closes batches, if there are
/// several.
#[cfg(not(any(corewise_loom, corewise_shuttle)))]
const SHARE: usize = 4;
/// Few, so that models share grace periods early.
#[cfg(any(corewise_loom, corewise_shuttle))]
const SHARE: usize = 1;
/// Time after the beginning of a grace period from which batches no longer wait for others. To
/// begin one takes about 10 µs while other threads run, a fifth of this.
const GAP_NS: u64 = 50_000;
/// Closed batches beyond those, of which the thread that closes one more lets others run.
const LAGGING: usize = 2;
/// How often threads let others run for a grace period. One that lasts longer waits for a reader
/// that stays in its section, and not for a processor.
const YIELDS: usize = 4;

/// A node that was removed.
pub(super) struct Retired<K, V>(pub(super) NodeId, PhantomData<(K, V)>);

// SAFETY: it represents the node's key and value.
unsafe impl<K: Send, V: Send> Send for Retired<K, V> {}

impl<K, V> Retired<K, V> {
    pub(super) fn new(node: NodeId) -> Self {
        Self(node, PhantomData)
    }
}

/// What one thread has removed lately.
pub(super) struct Waiting<K, V> {
    /// Its open batch; it has no other.
    pub(super) list: Lendable<RetireList<Retired<K, V>>>,
    /// Bytes of the batch; written by the thread that may change the list.
    bytes: AtomicUsize,
}

/// What became of a removed node.
pub(super) enum Pushed {
    Fits,
    /// The thread is to close the batch.
    Fills,
    /// The batch is lent: the thread is to put the node elsewhere, with this weight.
    Lent(NodeId, usize),
}

/// What all threads share.
pub(super) struct Removed<K, V> {
    pub(super) backlog: Budget,
    pub(super) weigh: Option<Weigher<K, V>>,
    pub(super) closed: Mutex<Closed<Retired<K, V>>>,
    pub(super) lent: Mutex<Lent>,
    /// Whether `lent` has any; a hint.
    pub(super) has_lent: AtomicBool,
    /// Counts closed batches; wraps.
    pub(super) closes: AtomicUsize,
}

/// Closed batches, and the grace periods that they share; see 3 of
/// [`reclaim`](super::reclaim).
pub(super) struct Closed<T> {
    /// The open batch has what threads removed whose own batch is lent.
    pub(super) list: RetireList<T>,
    /// The last cookie for which a grace period may begin.
    pub(super) due: Cookie,
    /// The threads that closed batches since `due` was set, and those that did so before: a bit for
    /// each, which few share.
    updaters: [u64; 2],
    /// When `due` was set.
    due_since_ns: u64,
    /// How often [`Closed::share`] has asked for a processor since `due` was set.
    yields: usize,
}

impl<T> Closed<T> {
    fn new() -> Self {
        Self {
            list: RetireList::new(),
            due: Cookie::DONE,
            updaters: [0; 2],
            due_since_ns: 0,
            yields: 0,
        }
    }

    /// The number of threads that have closed batches lately.
    fn threads(&self) -> usize {
        (self.updaters[0] | self.updaters[1]).count_ones() as usize
    }

    /// The bytes at which a thread is to close its batch. Smaller batches leave room for more that
    /// share a grace period, so that no more wait in all.
    pub(super) fn batch_bytes(&self) -> usize {
        let parts = if self.threads() > 1 { 2 } else { 1 };
        RetireList::<T>::BATCH_BYTES / parts
    }

    /// Notes that this thread has closed batches, and decides whether a grace period may begin;
    /// returns whether the thread is to let readers run: more batches wait than those that are to
    /// share one, and they have not waited for long.
    pub(super) fn share(&mut self, thread: usize, now_ns: u64) -> bool {
        self.updaters[1] |= 1 << (thread % 64);
        let bound = match self.threads() {
            1 => 0,
            threads => SHARE * threads - 1,
        };
        let is_rested = now_ns.saturating_sub(self.due_since_ns) >= GAP_NS;
        let enough = if is_rested { 0 } else { bound };
        if self.list.closed_after(self.due) > enough {
            self.due_since_ns = now_ns;
            self.due = self.list.newest().unwrap_or(self.due);
            let kept = if mutant!("updaters_for_ever") {
                self.updaters[0]
            } else {
                0
            };
            self.updaters = [self.updaters[1] | kept, 0];
            self.yields = 0;
        }
        let lags = self.list.closed() > bound + LAGGING && self.yields < YIELDS;
        self.yields += usize::from(lags);
        lags
    }

    /// Closes the open batch of the list.
    pub(super) fn close(&mut self, domain: &Domain, backlog: &Budget) {
        if self.list.open_bytes() > 0 {
            self.list.close(domain.start_poll(), backlog);
        }
    }

    /// Takes the oldest batch that no longer waits, unless its cookie is beyond `newest`.
    pub(super) fn take_ready(
        closed: &Mutex<Self>,
        newest: Option<Cookie>,
        domain: &Domain,
        backlog: &Budget,
    ) -> Option<Vec<T>> {
        let is_complete = |cookie| domain.is_complete(cookie);
        loop {
            let (oldest, due) = {
                let closed = closed.lock();
                (closed.list.oldest(), closed.due)
            };
            let oldest = oldest.filter(|oldest| Some(*oldest) <= newest)?;
            // Quietly: the handler of a stall may use the map, and call this function again.
            let poll = || domain.poll_quietly(oldest) || mutant!("due_is_complete");
            let is_over = is_complete(oldest) || (oldest <= due && poll());
            if !is_over {
                return None;
            }
            let is_ready = |cookie| is_complete(cookie) || mutant!("due_is_complete");
            // `None` if another thread has taken it; there may be more.
            let batch = closed.lock().list.take_ready(backlog, is_ready);
            if batch.is_some() {
                return batch;
            }
        }
    }
}

/// The slots whose batches are lent.
#[derive(Default)]
pub(super) struct Lent {
    /// The slot's index, and the grace period after which its batch may be taken.
    pub(super) slots: Vec<(usize, Cookie)>,
    /// The bytes of each slot at the last visit.
    pub(super) seen: Vec<usize>,
}

impl<K, V> Default for Waiting<K, V> {
    fn default() -> Self {
        Self {
            list: Lendable::new(RetireList::new()),
            bytes: AtomicUsize::new(0),
        }
    }
}

impl<K, V> Waiting<K, V> {
    /// Keeps a removed node until readers have left it.
    ///
    /// # Safety
    ///
    /// 1. The slot is that of the calling thread, which is in a section of the map's domain.
    /// 2. The caller has removed the node from the table of the map that the slot belongs to.
    #[inline]
    pub(super) unsafe fn push(&self, node: NodeId, weight: usize) -> Pushed {
        let push = |list: &mut RetireList<_>| {
            let is_full = list.push(Retired::new(node), weight);
            self.count(list);
            is_full
        };
        // SAFETY: the slot is this thread's, which is in a section (1).
        match unsafe { self.list.with(push) } {
            Some(false) => Pushed::Fits,
            Some(true) => Pushed::Fills,
            None => Pushed::Lent(node, weight),
        }
    }

    #[inline]
    pub(super) fn count(&self, list: &RetireList<Retired<K, V>>) {
        // Relaxed: a number that publishes nothing.
        self.bytes.store(list.open_bytes(), Relaxed);
    }

    /// Bytes of the open batch.
    pub(super) fn bytes(&self) -> usize {
        // Relaxed: as in `count`.
        self.bytes.load(Relaxed)
    }
}

impl<K, V> Removed<K, V> {
    pub(super) fn new(limits: Limits, weigh: Option<Weigher<K, V>>) -> Self {
        Self {
            backlog: Budget::new(limits),
            weigh,
            closed: Mutex::new(Closed::new()),
            lent: Mutex::new(Lent::default()),
            has_lent: AtomicBool::new(false),
            closes: AtomicUsize::new(0),
        }
    }

    pub(super) fn limits(&self) -> Limits {
        self.backlog.limits()
    }

    pub(super) fn weigher(&self) -> Option<Weigher<K, V>> {
        self.weigh
    }

    /// Bytes of the closed batches, and of what threads removed whose batch is lent.
    pub(super) fn bytes(&self) -> usize {
        let open = self.closed.lock().list.open_bytes();
        self.backlog.bytes().saturating_add(open)
    }

    /// Calls `visit` with all removed nodes, for the exclusive owner of the map.
    pub(super) fn take_all(
        &mut self,
        threads: &mut PerThread<impl Default, Waiting<K, V>>,
        mut visit: impl FnMut(NodeId),
    ) {
        let backlog = &self.backlog;
        let mut visit_all = |list: &mut RetireList<Retired<K, V>>| {
            let all = list.take_all(backlog);
            all.into_iter().for_each(|retired| visit(retired.0));
        };
        threads.for_each_mut(|waiting| waiting.list.with_exclusive(&mut visit_all));
        visit_all(&mut self.closed.get_mut().list);
    }
}

#[cfg(test)]
mod tests {
    use corewise_atomic::cell::DataCell;
    use corewise_atomic::sync::Arc;
    use corewise_atomic::sync::atomic::Ordering::{AcqRel, Acquire};
    use corewise_atomic::thread;
    use corewise_rcu::Section;

    use super::*;

    /// A place whose object two threads replace and one of them reads.
    struct ReplacedObject {
        domain: Domain,
        /// The index of the present object.
        present: AtomicUsize,
        /// What the objects hold, until they are reclaimed.
        objects: [DataCell<bool>; 3],
        closed: Mutex<Closed<usize>>,
        backlog: Budget,
    }

    impl ReplacedObject {
        fn read(&self) {
            let _section = self.domain.pin();
            // Acquire: pairs with the AcqRel in `replace`.
            let present = &self.objects[self.present.load(Acquire)];
            // SAFETY: the object was present in our section, and is reclaimed a grace period after
            // it was replaced.
            assert!(present.with(|object| unsafe { *object }));
        }

        /// Replaces the object in a section, closes a batch, and then reclaims, as a map does.
        fn replace(&self, object: usize) {
            let section = self.domain.pin();
            // AcqRel: pairs with the Acquire in `read` and with itself.
            let old = self.present.swap(object, AcqRel);
            let mut list = RetireList::new();
            list.push(old, 1);
            list.close(self.domain.start_poll(), &self.backlog);
            self.closed.lock().list.adopt(&mut list);
            let thread = section.reader_index();
            drop(section);
            let due = {
                let mut closed = self.closed.lock();
                closed.share(thread, 0);
                closed.due
            };
            self.domain.poll_quietly(due);
            self.reclaim();
        }

        fn reclaim(&self) {
            let newest = self.closed.lock().list.newest();
            let take = || Closed::take_ready(&self.closed, newest, &self.domain, &self.backlog);
            while let Some(batch) = take() {
                for old in batch {
                    // SAFETY: a grace period has passed since it was replaced.
                    self.objects[old].with_mut(|object| unsafe {
                        assert!(std::mem::replace(&mut *object, false), "reclaimed twice");
                    });
                }
            }
        }
    }

    /// A batch waits for readers, also if another thread began the grace period that it shares.
    #[test]
    fn threads_that_share_grace_periods_wait_for_readers() {
        corewise_atomic::model_bounded(2, || {
            let mut closed = Closed::new();
            // Both have closed batches before.
            closed.updaters[0] = 0b11;
            let place = Arc::new(ReplacedObject {
                domain: Domain::new(),
                present: AtomicUsize::new(0),
                objects: std::array::from_fn(|_| DataCell::new(true)),
                closed: Mutex::new(closed),
                backlog: Budget::new(Limits::DEFAULT),
            });
            let other = place.clone();
            let other = thread::spawn(move || other.replace(1));
            place.replace(2);
            place.read();
            other.join().unwrap();
            place.read();
        });
    }

    /// Once a thread goes on alone, each of its batches gets a grace period.
    #[test]
    fn a_thread_that_goes_on_alone_shares_with_nobody() {
        let domain = Domain::new();
        let backlog = Budget::new(Limits::DEFAULT);
        let mut closed = Closed::new();
        let mut share = |thread| {
            closed.list.push((), 1);
            closed.close(&domain, &backlog);
            closed.share(thread, 0);
            let is_due = closed.list.newest() == Some(closed.due);
            if is_due {
                domain.synchronize();
                while closed.list.take_ready(&backlog, |_| true).is_some() {}
            }
            is_due
        };
        assert!(share(0));
        for n in 0..10 * SHARE {
            share(n % 2);
        }
        // Those of the period in which the other was last seen, and of the next.
        for _ in 0..5 * SHARE {
            share(0);
        }
        assert!((0..10).all(|_| share(0)));
    }

    /// Batches of several threads wait for each other, but not if no grace period began lately.
    #[test]
    fn batches_wait_for_others_while_grace_periods_are_frequent() {
        let domain = Domain::new();
        let backlog = Budget::new(Limits::DEFAULT);
        let mut closed = Closed::new();
        closed.updaters[0] = 0b11;
        let mut is_due = |number: usize, now_ns| {
            closed.list.push((), 1);
            closed.close(&domain, &backlog);
            closed.share(number % 2, now_ns);
            let is_due = closed.list.newest() == Some(closed.due);
            if is_due {
                domain.synchronize();
            }
            is_due
        };
        assert!(is_due(0, GAP_NS));
        let due: Vec<_> = (1..=4 * SHARE).map(|n| is_due(n, GAP_NS + 1)).collect();
        let expected: Vec<_> = (1..=4 * SHARE).map(|n| n % (2 * SHARE) == 0).collect();
        assert_eq!(due, expected);
        assert!(!is_due(0, 2 * GAP_NS));
        assert!(is_due(1, 2 * GAP_NS + 1));
    }

    /// A reader that stays costs updates a few yields, not one for each batch.
    #[test]
    fn a_reader_that_stays_costs_few_yields() {
        let domain = Domain::new();
        let backlog = Budget::new(Limits::DEFAULT);
        let mut closed = Closed::new();
        let _section = domain.pin();
        let batch = |n: usize| {
            closed.list.push((), 1);
            closed.close(&domain, &backlog);
            let lags = closed.share(n % 2, 0);
            domain.poll_quietly(closed.due);
            usize::from(lags)
        };
        let yields: usize = (0..1_000).map(batch).sum();
        // The grace period that begins first, and the one after it.
        assert!((1..=2 * YIELDS).contains(&yields), "{yields} yields");
    }
}
