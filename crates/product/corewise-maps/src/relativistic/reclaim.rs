//! Removed entries: where they wait for readers, and who drops them.
//!
//! ```text
//!  one thread's slot             the map, one lock             any thread
//! ┌─────────────────┐  closes   ┌───────────────────────┐  a grace period later
//! │ its open batch  ├──────────▶│ closed batches, by age├──────────▶ drops, frees the slots
//! └────────┬────────┘           └───────────────────────┘
//!          │  ▲ idle, or `settle`: lent, and a grace period later taken
//!          └──┴───────────────────────▲
//! ```
//!
//! 1. *A removed entry costs what it weighs*: see [`Builder::weigher`](super::Builder::weigher). A
//!    batch is full at [`RetireList::BATCH_BYTES`]. The thread that fills one closes it, and drops
//!    the oldest batches that no longer wait, of every thread.
//! 2. *Nothing stays with a thread.* Its open batch is lent ([`Lendable`]) and closed by others if
//!    it is unchanged between two visits, which happen each [`VISIT_EVERY`] closed batches: the
//!    thread is idle, or it has ended. [`RelativisticMap::settle`] does the same to all threads at
//!    once. Threads whose batches are lent meanwhile share one batch, under the lock. It is closed
//!    with the next batch of any thread.
//! 3. *Threads share grace periods.* To begin one costs a system call, which is dear while other
//!    threads run. So if several threads close batches, these wait until there are [`SHARE`] for
//!    each thread, or until [`GAP_NS`] have passed since a grace period began; then one is for all
//!    of them. The batches are smaller then. A thread that updates alone waits for nobody.
//! 4. *No wait.* Only `settle`, and beyond the soft limit an update after its section, wait for a
//!    grace period; neither holds a lock then. An update that ends a batch while readers hold up
//!    others yields its processor, after its section: a reader may be switched out in one. A few
//!    yields are enough for a grace period, and more would help no reader that stays.
//! 5. *Foreign code*: keys and values are dropped, and weighed, outside of locks; they are dropped
//!    outside of sections too. A drop that removes more entries leaves them to later calls, so no
//!    chain of drops needs stack.

use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::time::Duration;

use corewise_atomic::lock::{Mutex, MutexGuard};
use corewise_atomic::sync::atomic::Ordering::Relaxed;
use corewise_atomic::sync::atomic::{AtomicBool, AtomicUsize};
use corewise_atomic::time::now_ns;
use corewise_atomic::{mutant, thread};
use corewise_rcu::{Budget, Cookie, Domain, Limits, Pinned, Pressure, RetireList, Section};
use corewise_rcu::{default_weight, is_reclaiming, reclaiming};

use super::builder::Weigher;
use super::lendable::Lendable;
use super::map::{Node, Own, RelativisticMap};
use super::owned::PerThread;
use super::word::NodeId;
use crate::panics;

/// How long an update waits for readers when the backlog is over its soft limit.
const PATIENCE: Duration = Duration::from_secs(1);
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
/// Batches closed between two visits to all threads.
pub(super) const VISIT_EVERY: usize = 16;

/// A node that was removed.
struct Retired<K, V>(NodeId, PhantomData<Node<K, V>>);

// SAFETY: it represents the node's key and value.
unsafe impl<K: Send, V: Send> Send for Retired<K, V> {}

impl<K, V> Retired<K, V> {
    fn new(node: NodeId) -> Self {
        Self(node, PhantomData)
    }
}

/// What one thread has removed lately.
pub(super) struct Waiting<K, V> {
    /// Its open batch; it has no other.
    list: Lendable<RetireList<Retired<K, V>>>,
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
    backlog: Budget,
    weigh: Option<Weigher<K, V>>,
    closed: Mutex<Closed<Retired<K, V>>>,
    lent: Mutex<Lent>,
    /// Whether `lent` has any; a hint.
    has_lent: AtomicBool,
    /// Counts closed batches; wraps.
    closes: AtomicUsize,
}

/// Closed batches, and the grace periods that they share; see 3 above.
struct Closed<T> {
    /// The open batch has what threads removed whose own batch is lent.
    list: RetireList<T>,
    /// The last cookie for which a grace period may begin.
    due: Cookie,
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
    fn batch_bytes(&self) -> usize {
        let parts = if self.threads() > 1 { 2 } else { 1 };
        RetireList::<T>::BATCH_BYTES / parts
    }

    /// Notes that this thread has closed batches, and decides whether a grace period may begin;
    /// returns whether the thread is to let readers run: more batches wait than those that are to
    /// share one, and they have not waited for long.
    fn share(&mut self, thread: usize, now_ns: u64) -> bool {
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
    fn close(&mut self, domain: &Domain, backlog: &Budget) {
        if self.list.open_bytes() > 0 {
            self.list.close(domain.start_poll(), backlog);
        }
    }

    /// Takes the oldest batch that no longer waits, unless its cookie is beyond `newest`.
    fn take_ready(
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
struct Lent {
    /// The slot's index, and the grace period after which its batch may be taken.
    slots: Vec<(usize, Cookie)>,
    /// The bytes of each slot at the last visit.
    seen: Vec<usize>,
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
    fn count(&self, list: &RetireList<Retired<K, V>>) {
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
        threads: &mut PerThread<Own, Waiting<K, V>>,
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

impl<K, V, S> RelativisticMap<K, V, S> {
    /// What a node will cost once it is removed.
    #[inline]
    pub(super) fn weight(&self, node: &Node<K, V>) -> usize {
        match self.removed.weigh {
            None => const { default_weight::<Node<K, V>>() },
            Some(weigh) => size_of::<Node<K, V>>().saturating_add(weigh(&node.key, &node.value)),
        }
    }

    /// Keeps a removed node, of a thread whose batch is lent, until readers have left it; returns
    /// whether that filled a batch.
    ///
    /// # Safety
    ///
    /// 1. The caller has removed the node from this map's table.
    #[cold]
    pub(super) unsafe fn push_elsewhere(&self, node: NodeId, weight: usize) -> bool {
        let mut closed = self.removed.closed.lock();
        let is_full = closed.list.push(Retired::new(node), weight);
        if is_full {
            closed.close(self.domain(), &self.removed.backlog);
        }
        is_full
    }

    /// Closes the batch of the section's thread, unless it is lent.
    ///
    /// # Safety
    ///
    /// 1. The section is one of the map's domain.
    pub(super) unsafe fn close_batch(&self, section: &impl Section) {
        let cookie = self.domain().start_poll();
        let waiting = self.threads.public(section);
        let close = |list: &mut RetireList<_>| {
            list.close(cookie, &self.removed.backlog);
            waiting.count(list);
            let mut closed = self.removed.closed.lock();
            closed.list.adopt(list);
            list.set_batch_bytes(closed.batch_bytes());
        };
        // SAFETY: the slot is the section's, which is one of the map's domain (1).
        unsafe { waiting.list.with(close) };
    }

    /// Runs after a handle that closed a batch: drops what is ready. Beyond the soft limit, if the
    /// thread holds no other guard, also waits for readers to make more ready.
    #[cold]
    pub(super) fn relieve(&self) {
        if self.is_reclaiming() {
            return;
        }
        self.visit_others();
        let thread = self.domain().pin().reader_index();
        let (lags, due) = {
            let mut closed = self.removed.closed.lock();
            closed.close(self.domain(), &self.removed.backlog);
            (closed.share(thread, now_ns()), closed.due)
        };
        // No lock is held: this reports readers that stall.
        self.domain().poll(due);
        self.reclaim_ready();
        if lags && !self.domain().is_pinned() && self.waits_for_readers() {
            // A reader that was switched out in its section may need this processor.
            thread::yield_now();
            self.reclaim_ready();
        }
        if self.removed.backlog.pressure() == Pressure::Fine || !self.domain().stalls().is_empty() {
            return;
        }
        // The wait is bounded: a reader may be waiting for this thread.
        if self.domain().synchronize_timeout(PATIENCE) == Ok(true) {
            self.reclaim_ready();
        }
    }

    /// Drops all entries that were removed before the call, a grace period after taking them from
    /// the threads that have them.
    pub(super) fn collect(&self) -> Result<(), Pinned> {
        if self.domain().is_pinned() {
            return Err(Pinned);
        }
        if self.lend(|_, _| true) {
            self.domain().try_synchronize()?;
        }
        self.take_lent(self.removed.lent.lock());
        let mut closed = self.removed.closed.lock();
        closed.close(self.domain(), &self.removed.backlog);
        drop(closed);
        self.domain().try_synchronize()?;
        self.reclaim_ready();
        Ok(())
    }

    /// Takes the batches of threads that do nothing; see 2 above.
    fn visit_others(&self) {
        // Relaxed, both: hints.
        let turn = self.removed.closes.fetch_add(1, Relaxed);
        if self.removed.has_lent.load(Relaxed)
            && let Some(lent) = self.removed.lent.try_lock()
        {
            self.take_lent(lent);
        }
        if turn % VISIT_EVERY == VISIT_EVERY - 1 {
            let _ = self.lend(|before, now| before == now);
        }
    }

    /// Lends the batches whose bytes at the last visit and now say that they are to be taken;
    /// returns whether any batch is lent now.
    fn lend(&self, is_to_go: impl Fn(usize, usize) -> bool) -> bool {
        let mut lent = self.removed.lent.lock();
        let Lent { slots, seen } = &mut *lent;
        let known = slots.len();
        for (index, waiting) in self.threads.all_public().enumerate() {
            let now = waiting.bytes();
            if index == seen.len() {
                seen.push(0);
            }
            let before = std::mem::replace(&mut seen[index], now);
            let is_lent = slots[..known].iter().any(|slot| slot.0 == index);
            if now > 0 && is_to_go(before, now) && !is_lent {
                waiting.list.lend();
                slots.push((index, Cookie::DONE));
            }
        }
        let cookie = self.domain().start_poll();
        slots[known..].iter_mut().for_each(|slot| slot.1 = cookie);
        // Relaxed: a hint.
        self.removed.has_lent.store(!slots.is_empty(), Relaxed);
        !slots.is_empty()
    }

    /// Closes the lent batches that their threads have left, and gives the slots back.
    #[cold]
    fn take_lent(&self, mut lent: MutexGuard<'_, Lent>) {
        // Advances the grace period; a lock is held, but nothing waits.
        let newest = lent.slots.iter().map(|slot| slot.1).max();
        self.domain().poll_quietly(newest.unwrap_or(Cookie::DONE));
        let mut closed = self.removed.closed.lock();
        let mut threads = self.threads.all_public().enumerate();
        lent.slots.sort_unstable_by_key(|slot| slot.0);
        lent.slots.retain(|&(index, lent_at)| {
            if !self.domain().is_complete(lent_at) {
                return true;
            }
            let found = threads.find(|slot| slot.0 == index);
            let waiting = found.expect("slots stay").1;
            let close = |list: &mut RetireList<_>| {
                // After the last push, which happened before the grace period ended.
                list.close(self.domain().start_poll(), &self.removed.backlog);
                waiting.count(list);
                closed.list.adopt(list);
            };
            // SAFETY: it is in `lent`, whose lock is held (1), since its cookie was taken (2).
            unsafe { waiting.list.take_back(close) };
            false
        });
        // Relaxed: a hint.
        let has_lent = !lent.slots.is_empty();
        self.removed.has_lent.store(has_lent, Relaxed);
    }

    /// Whether this thread is dropping entries of the map in an outer call.
    fn is_reclaiming(&self) -> bool {
        is_reclaiming(ptr::from_ref(self).cast())
    }

    /// Drops the batches that are closed by now and no longer wait, unless this thread is already
    /// reclaiming.
    fn reclaim_ready(&self) {
        if !self.is_reclaiming() {
            let newest = self.removed.closed.lock().list.newest();
            let Removed {
                closed, backlog, ..
            } = &self.removed;
            let take = || Closed::take_ready(closed, newest, self.domain(), backlog);
            reclaiming(ptr::from_ref(self).cast(), || {
                while let Some(batch) = take() {
                    // SAFETY: retired by handles of this map, and no longer waiting (1).
                    unsafe { self.reclaim_batch(batch) };
                }
            });
        }
    }

    /// Whether a grace period that may begin is not over for some batch.
    fn waits_for_readers(&self) -> bool {
        let closed = self.removed.closed.lock();
        closed
            .list
            .oldest()
            .is_some_and(|oldest| oldest <= closed.due)
    }

    /// Drops a batch that no longer waits for readers. A panic in the drop of a key or value is
    /// reported by the panic hook and goes no further: the thread that reclaims an entry is rarely
    /// the one that removed it.
    ///
    /// # Safety
    ///
    /// 1. The batch is one of this map, and a grace period has passed since it was closed.
    unsafe fn reclaim_batch(&self, mut batch: Vec<Retired<K, V>>) {
        let mut nodes = batch.iter();
        // SAFETY: a grace period has passed since the node was removed, by 1, so no other thread
        // has it; the iterator yields it once.
        let drop_all = |retired: &Retired<K, V>| unsafe { self.node(retired.0).drop_in_place() };
        while let Err(payload) =
            catch_unwind(AssertUnwindSafe(|| nodes.by_ref().for_each(drop_all)))
        {
            panics::discard(payload);
        }
        let section = self.domain().pin();
        let give = |own: &mut Own| {
            for retired in batch.drain(..) {
                // SAFETY: dropped above, and a slot of these slabs (1); a magazine of this map (2).
                unsafe { self.slabs().free(&mut own.magazine, retired.0) };
            }
            if self.slabs().is_wasteful(self.raw.count()) {
                // SAFETY: a magazine of this map (1).
                unsafe { self.slabs().flush(&mut own.magazine) };
            }
        };
        // SAFETY: sections of a map are of its domain (1).
        unsafe { self.threads.with(&section, give) };
        let recycle = |list: &mut RetireList<_>| list.recycle(batch);
        // SAFETY: the slot is that of the section (1).
        unsafe { self.threads.public(&section).list.with(recycle) };
    }
}

#[cfg(test)]
mod tests {
    use corewise_atomic::cell::DataCell;
    use corewise_atomic::sync::Arc;
    use corewise_atomic::sync::atomic::Ordering::{AcqRel, Acquire};

    use super::*;

    /// A place whose object two threads replace and one of them reads.
    struct Place {
        domain: Domain,
        /// The index of the present object.
        present: AtomicUsize,
        /// What the objects hold, until they are reclaimed.
        objects: [DataCell<bool>; 3],
        closed: Mutex<Closed<usize>>,
        backlog: Budget,
    }

    impl Place {
        fn read(&self) {
            let _section = self.domain.pin();
            // Acquire: pairs with the AcqRel in `replace`.
            let present = &self.objects[self.present.load(Acquire)];
            // SAFETY: reclaimed after our section.
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
            let place = Arc::new(Place {
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

    /// A thread whose batch is lent for long fills others.
    #[cfg(not(any(corewise_loom, corewise_shuttle, corewise_stress)))]
    #[test]
    fn a_thread_whose_batch_is_lent_closes_few_batches() {
        let map = RelativisticMap::builder().domain(Domain::new()).build();
        let guard = map.guard();
        for n in 0..10 {
            map.insert(0, Arc::new(n));
        }
        assert!(map.lend(|_, _| true));
        for n in 0..1_000 {
            map.insert(0, Arc::new(n));
        }
        let closed = map.removed.closed.lock().list.closed();
        assert!((1..=1_000 / 32).contains(&closed), "{closed} batches");
        assert_eq!(map.backlog_bytes(), 1_009 * 2_048);
        drop(guard);
        map.settle().unwrap();
        assert_eq!(map.backlog_bytes(), 0);
    }
}
