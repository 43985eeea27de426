//! Filters: sets of items that may answer "present" for an absent item, never the reverse.
//!
//! ```text
//! items of a thread   0 ─────── first ══════════ next ─────────▶
//!                       removed         present         not yet inserted
//! ```
//!
//! A filter must not be asked to remove an item that is not in it, so each thread has its own
//! items, numbered in the order of their insertion: an insert adds the next one, a remove takes the
//! first. Half of the lookups are of items that are present and must be found; the others are of
//! items that are never inserted, and those found are false positives. The number of items stays
//! within half of the initial one, and below the load of a full filter: beyond that, an insert
//! becomes a remove and the reverse.
//!
//! In the audit, threads remove items, look up these and others that are absent, and insert as
//! many. After that, a filter that was nearly full at the start is filled until it refuses an item.
//! If it still has all of them, its load, its bits an item and its false positives are then those
//! of figures 5.4 and 5.5 of \[CHTBench\].

use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use crossbeam_utils::CachePadded;

use crate::dyn_table::DynTable;
use crate::plan::Plan;
use crate::stream::{GET, INSERT};
use crate::subject::{Capability, Measurements, Operate, Work};
use crate::table::{Contention, Setup};
use crate::work::{AuditReport, Evidence, OpCounts, Part, Sums, is_given_up};

/// Where the number of its thread begins in an item.
const THREAD_SHIFT: u32 = 40;
/// Marks items that are never inserted.
const ABSENT: u64 = 1 << 63;
/// Items of a thread that its audit removes, and most absent ones that it looks up besides.
const AUDITED_ITEMS: u64 = 1 << 12;
/// How far above the filter's own expectation the rate of false positives may lie: the expectation
/// is that of the number of items at the end.
const MOST_OVER_EXPECTED: f64 = 2.0;

/// The load up to which a filter must take every item.
const FULL_LOAD: f64 = 0.94;

/// The load at the start from which a filter is filled up in the end. A filter that is half full
/// would take longer for that than for all that is measured.
const NEARLY_FULL: f64 = 0.75;
/// Marks the items with which it is filled up.
const FILLING: u64 = 1 << 62;
/// Absent items that are looked up in a full filter.
const ABSENT_WHEN_FULL: u64 = 1 << 20;

/// A filter under test. Its hash function is part of it.
pub trait MeasuredFilter: Send + Sync + Sized + 'static {
    /// Creates an empty filter with [`Setup::capacity`] slots, or as near as it can.
    fn build(setup: &Setup) -> Self;
    /// Inserts an item; returns false if it is full.
    fn insert(&self, item: u64) -> bool;
    /// Removes an item that was inserted; returns whether it was found.
    fn remove(&self, item: u64) -> bool;
    /// Returns whether an item may be present.
    fn contains(&self, item: u64) -> bool;
    /// Returns the share of absent items that it expects to report as present.
    fn false_positive_rate(&self) -> f64;
    /// Returns the number of items that there is memory for.
    fn slots(&self) -> usize;
    /// Returns the bytes that it occupies.
    fn bytes(&self) -> usize;
    /// Returns the counts of its transactions, if it has a lock that is elided.
    fn contention(&self) -> Option<Contention> {
        None
    }
}

/// A filter and the items of each thread.
#[derive(Debug)]
pub struct FilterSubject<F> {
    filter: F,
    /// Items that each thread may have besides the initial ones.
    room: u64,
    is_nearly_full: bool,
    threads: Box<[CachePadded<Mutex<ThreadItems>>]>,
    /// The rate of false positives that it expects, from before the audit.
    expected: OnceLock<f64>,
}

/// The items of a thread, as its last part left them.
#[derive(Clone, Copy, Debug, Default)]
struct ThreadItems {
    first: u64,
    next: u64,
    refused: u64,
    absent_lookups: u64,
    false_positives: u64,
}

/// A thread at a filter.
#[derive(Debug)]
pub struct FilterWorker<'s, F> {
    filter: &'s F,
    /// Where its items are kept between two parts.
    kept_items: &'s Mutex<ThreadItems>,
    items: ThreadItems,
    /// Upper bits of all items of the thread.
    thread: u64,
    /// Items at the start, and how far their number may differ from that.
    initial: u64,
    spread: u64,
    /// 2^32 over the number of indices.
    share_of_index: u64,
    kept_misses: u64,
    op_counts: OpCounts,
}

impl<F> Drop for FilterWorker<'_, F> {
    fn drop(&mut self) {
        *lock(self.kept_items) = self.items;
    }
}

impl<F: MeasuredFilter> FilterWorker<'_, F> {
    #[inline(always)]
    fn lookup(&mut self, index: u32) {
        let live = self.items.next - self.items.first;
        let is_present = index.is_multiple_of(2) & (live > 0);
        let place = ((u64::from(index) * self.share_of_index) * (live & 0xffff_ffff)) >> 32;
        let present = self.thread | (self.items.first + place);
        let absent = ABSENT | self.thread | u64::from(index);
        let found = self
            .filter
            .contains(if is_present { present } else { absent });
        self.op_counts.counts.count_get(found);
        self.kept_misses += u64::from(is_present & !found);
        self.items.absent_lookups += u64::from(!is_present);
        self.items.false_positives += u64::from(!is_present & found);
    }

    #[inline(always)]
    fn insert(&mut self) {
        let item = self.thread | self.items.next;
        let inserted = self.filter.insert(item);
        self.items.next += u64::from(inserted);
        self.items.refused += u64::from(!inserted);
        self.op_counts.counts.count_insert(inserted);
        self.op_counts.sums.gain_if(inserted, item, 0);
    }

    #[inline(always)]
    fn remove(&mut self) {
        let item = self.thread | self.items.first;
        let removed = self.filter.remove(item);
        self.items.first += 1;
        self.op_counts.counts.count_remove(removed);
        self.op_counts.sums.lose_if(true, item, 0);
    }
}

impl<F: MeasuredFilter> Work for FilterWorker<'_, F> {
    #[inline(always)]
    fn step(&mut self, index: u32, operation: u8) {
        let live = self.items.next - self.items.first;
        if operation == GET {
            self.lookup(index);
        } else if operation == INSERT && live < self.initial + self.spread
            || live + self.spread <= self.initial
            || live == 0
        {
            self.insert();
        } else {
            self.remove();
        }
    }

    fn end(&mut self) -> OpCounts {
        self.op_counts
    }

    fn kept_misses(&self) -> u64 {
        self.kept_misses
    }
}

/// The number of initial items of a thread.
fn initial_items(plan: &Plan, part: Part) -> u64 {
    let (all, threads) = (u64::from(plan.initial), part.threads as u64);
    all / threads + u64::from((part.thread as u64) < all % threads)
}

impl<F: MeasuredFilter> Operate for FilterSubject<F> {
    const CAPABILITY: Capability = Capability::Filter;
    type Worker<'s> = FilterWorker<'s, F>;

    fn build(setup: &Setup) -> Self {
        let most = setup.capacity as f64 * FULL_LOAD;
        let room = (most - setup.entries as f64) / setup.threads.max(1) as f64;
        Self {
            filter: F::build(setup),
            room: room as u64, // 0 if it is full at the start
            is_nearly_full: setup.entries as f64 >= NEARLY_FULL * setup.capacity as f64,
            threads: (0..setup.threads).map(|_| CachePadded::default()).collect(),
            expected: OnceLock::new(),
        }
    }

    fn worker(&self, plan: &Plan, part: Part) -> FilterWorker<'_, F> {
        let kept_items = &*self.threads[part.thread];
        let initial = initial_items(plan, part);
        FilterWorker {
            filter: &self.filter,
            kept_items,
            items: *lock(kept_items),
            thread: (part.thread as u64) << THREAD_SHIFT,
            initial,
            spread: (initial / 2).min(self.room).max(1),
            share_of_index: (1 << 32) / u64::from(plan.range),
            kept_misses: 0,
            op_counts: OpCounts::default(),
        }
    }
}

impl<F: MeasuredFilter> DynTable for FilterSubject<F> {
    fn fill(&self, plan: &Plan, part: Part) -> OpCounts {
        let mut worker = self.worker(plan, part);
        let items = 0..initial_items(plan, part);
        items
            .take_while(|_| !is_given_up())
            .for_each(|_| worker.insert());
        worker.end()
    }

    fn probe(&self, plan: &Plan, part: Part) -> Sums {
        let worker = self.worker(plan, part);
        let mut found = Sums::default();
        for number in (worker.items.first..worker.items.next).take_while(|_| !is_given_up()) {
            let item = worker.thread | number;
            found.gain_if(self.filter.contains(item), item, 0);
        }
        found
    }

    fn problems(&self, plan: &Plan, evidence: &Evidence) -> Option<Vec<String>> {
        let missed = evidence.booked.entries - evidence.found.entries;
        let all = self.all_items();
        // Each thread asks for half of the indices again and again, with the same answer. If some
        // are more frequent than others, only the audit tells.
        let items = u64::from(plan.range / 2) * self.threads.len() as u64;
        let lookups = match evidence.is_uniform {
            true => all.absent_lookups.min(items),
            false => 0,
        };
        let rate = all.false_positives as f64 / all.absent_lookups.max(1) as f64;
        let found = rate * lookups as f64;
        let outcomes = self.outcomes(all.refused, evidence.stream.remove_failed, found, lookups);
        let is_missed = missed != 0 || evidence.booked.keys != evidence.found.keys;
        let mut all = problems! {
            is_missed => "{missed} of the items that are present are not found";
        };
        all.extend(outcomes);
        Some(all)
    }

    /// What a thread has removed is absent.
    fn audit(&self, plan: &Plan, part: Part, _: u64, _: u64) -> AuditReport {
        let mut worker = self.worker(plan, part);
        let first = worker.items.first;
        let items = (worker.items.next - first).min(AUDITED_ITEMS);
        let numbers = || (0..items).take_while(|_| !is_given_up());
        numbers().for_each(|_| worker.remove());
        let removed = numbers().map(|number| worker.thread | (first + number));
        let absent = numbers().map(|number| ABSENT | FILLING | worker.thread | number);
        let found = removed
            .chain(absent)
            .filter(|item| self.filter.contains(*item));
        let found = found.count() as f64;
        numbers().for_each(|_| worker.insert());
        let counts = worker.op_counts.counts;
        let outcomes = self.outcomes(counts.insert_failed, counts.remove_failed, found, 2 * items);
        AuditReport {
            audited: 4 * items,
            problem: outcomes.into_iter().next(),
        }
    }

    fn contention(&self) -> Option<Contention> {
        self.filter.contention()
    }

    fn measurements(&self) -> Measurements {
        let items = self.all_items();
        let live = items.next - items.first;
        let mut all = Measurements::default();
        all.insert("bits an item".into(), self.bits_an_item(live));
        if items.absent_lookups > 0 {
            let rate = items.false_positives as f64 / items.absent_lookups as f64;
            all.insert("false positives".into(), rate);
        }
        if self.is_nearly_full {
            self.fill_up(live, &mut all);
        }
        all
    }
}

impl<F: MeasuredFilter> FilterSubject<F> {
    fn bits_an_item(&self, items: u64) -> f64 {
        self.filter.bytes() as f64 * 8.0 / items.max(1) as f64
    }

    /// Returns what may be wrong: inserts that were refused, removes that found no item, and absent
    /// items that were found, in lookups of different ones.
    fn outcomes(&self, refused: u64, lost: u64, found: f64, lookups: u64) -> Vec<String> {
        let get = || self.filter.false_positive_rate();
        let expected = *self.expected.get_or_init(get);
        let mean = expected * lookups as f64;
        let most = MOST_OVER_EXPECTED * mean + 5.0 * mean.sqrt() + 3.0;
        let rate = found / lookups.max(1) as f64;
        // An expectation that is not a number is wrong, too.
        let is_too_much = found > most || most.is_nan();
        let (percent, usual) = (rate * 100.0, expected * 100.0);
        problems! {
            refused > 0 => "{refused} items were refused by a filter with room";
            lost > 0 => "{lost} removes did not find a present item";
            is_too_much => "{percent:.3} % of absent items are found, expected {usual:.3} %";
        }
    }

    /// Inserts into a filter with `live` items until it refuses one.
    fn fill_up(&self, live: u64, all: &mut Measurements) {
        let slots = self.filter.slots() as u64;
        let mut more = 0..slots.saturating_sub(live);
        let refused = more.find(|number| !self.filter.insert(FILLING | number));
        let filled = refused.unwrap_or(more.end);
        let own = self.threads.iter().zip(0..).flat_map(|(items, thread)| {
            let items = *lock(items);
            (items.first..items.next).map(move |number| thread << THREAD_SHIFT | number)
        });
        let mut present = own.chain((0..filled).map(|number| FILLING | number));
        if present.any(|item| !self.filter.contains(item)) {
            return; // of a filter that has lost an item when it was full, nothing is reported
        }
        let items = live + filled;
        let absent = (0..ABSENT_WHEN_FULL).map(|number| ABSENT | FILLING | number);
        let found = absent.filter(|item| self.filter.contains(*item)).count();
        for (name, value) in [
            ("load when full", items as f64 / slots as f64),
            ("bits an item when full", self.bits_an_item(items)),
            (
                "false positives when full",
                found as f64 / ABSENT_WHEN_FULL as f64,
            ),
        ] {
            all.insert(name.into(), value);
        }
    }
}

impl<F> FilterSubject<F> {
    /// Returns the sums over all threads.
    fn all_items(&self) -> ThreadItems {
        let items = self.threads.iter().map(|items| *lock(items));
        items.fold(ThreadItems::default(), |sum, of| ThreadItems {
            first: sum.first + of.first,
            next: sum.next + of.next,
            refused: sum.refused + of.refused,
            absent_lookups: sum.absent_lookups + of.absent_lookups,
            false_positives: sum.false_positives + of.false_positives,
        })
    }
}

fn lock(items: &Mutex<ThreadItems>) -> MutexGuard<'_, ThreadItems> {
    items.lock().unwrap_or_else(PoisonError::into_inner)
}
