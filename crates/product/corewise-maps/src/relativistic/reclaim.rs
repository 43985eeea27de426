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
//! 2. *Nothing stays with a thread.* Its open batch is lent ([`Lendable`](super::lendable)) and
//!    closed by others if it is unchanged between two visits, which happen each [`VISIT_EVERY`]
//!    closed batches: the thread is idle, or it has ended. [`RelativisticMap::settle`] does the
//!    same to all threads at once. Threads whose batches are lent meanwhile share one batch, under
//!    the lock. It is closed with the next batch of any thread.
//! 3. *Threads share grace periods.* To begin one costs a system call, which is dear while other
//!    threads run. So if several threads close batches, these wait until there are a few for each
//!    thread, or until some time has passed since a grace period began (`SHARE` and `GAP_NS` in
//!    [`removed`](super::removed)); then one is for all of them. The batches are smaller then. A
//!    thread that updates alone waits for nobody.
//! 4. *No wait.* Only `settle`, and beyond the soft limit an update after its section, wait for a
//!    grace period; neither holds a lock then. An update that ends a batch while readers hold up
//!    others yields its processor, after its section: a reader may be switched out in one. A few
//!    yields are enough for a grace period, and more would help no reader that stays.
//! 5. *Foreign code*: keys and values are dropped, and weighed, outside of locks; they are dropped
//!    outside of sections too. A drop that removes more entries leaves them to later calls, so no
//!    chain of drops needs stack.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::time::Duration;

use corewise_atomic::lock::MutexGuard;
use corewise_atomic::sync::atomic::Ordering::Relaxed;
use corewise_atomic::thread;
use corewise_atomic::time::now_ns;
use corewise_rcu::{Cookie, Pinned, Pressure, RetireList, Section};
use corewise_rcu::{default_weight, is_reclaiming, reclaiming};

use super::map::{Node, Own, RelativisticMap};
use super::removed::{Closed, Lent, Removed, Retired};
use super::word::NodeId;
use crate::panics;

/// How long an update waits for readers when the backlog is over its soft limit.
const PATIENCE: Duration = Duration::from_secs(1);
/// Batches closed between two visits to all threads.
const VISIT_EVERY: usize = 16;

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
                // SAFETY: the thread's magazine is used with the slabs of this map only (1).
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

#[cfg(all(test, not(any(corewise_loom, corewise_shuttle, corewise_stress))))]
mod tests {
    use corewise_atomic::sync::Arc;
    use corewise_rcu::Domain;

    use super::*;

    /// A thread whose batch is lent for long fills others.
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
