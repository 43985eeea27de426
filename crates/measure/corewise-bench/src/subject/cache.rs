//! Caches: lookups, and inserts that replace and may evict another key (\[CPHASH\] §6).
//!
//! Operations are submitted and answered; a cache that executes in batches, or in other threads,
//! answers later. A lookup may miss at any time, but what it finds belongs to the key, and a thread
//! that has stored a value under a key that no other thread writes finds that value or none. All
//! operations are answered when a slice ends. Under uniform keys the share of lookups that hit must
//! be that of the keys that are resident in the end.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crate::dyn_table::DynTable;
use crate::plan::Plan;
use crate::record::OutcomeCounts;
use crate::stamp::{Numbers, stamp};
use crate::stream::GET;
use crate::subject::{Capability, Measurements, Operate, WithHandles, Work};
use crate::table::Setup;
use crate::work::{AuditReport, Evidence, OpCounts, Part, Sums, indices};

/// Keys of a thread that its audit replaces and looks up.
const AUDITED_KEYS: usize = 1 << 12;
/// Lookups below which a hit rate is not judged.
const LEAST_LOOKUPS: u64 = 10_000;
/// Tolerance of a hit rate. Evictions of a lock or a partition are not in the order of all.
const TOLERANCE: f64 = 0.02;
/// How far the number of entries may exceed the capacity: budgets count bytes.
const MOST_OVER_CAPACITY: f64 = 1.3;
/// The share of the keys, or of the capacity if that is less, that must be resident.
const LEAST_RESIDENT: f64 = 0.75;

/// A thread's handle to a cache.
pub trait CacheHandle {
    /// Looks up a key; or stores a value under it, in place of another one if it is present.
    fn submit(&mut self, key: u64, value: Option<u64>, answers: &mut Answers);
    /// Waits until all operations are answered.
    fn drain(&mut self, _answers: &mut Answers) {}
    /// Does what other threads need until all of them have ended their slice.
    fn leave(&mut self) {}
    /// Keeps what the handle has measured: its operations were those of a slice, and not those that
    /// fill or check the cache.
    fn end_mix(&mut self) {}
}

/// What a thread's operations returned.
#[derive(Clone, Copy, Debug, Default)]
pub struct Answers {
    counts: OutcomeCounts,
    sums: Sums,
    /// The number that an audit expects in values, and the bits in which one differed.
    expected: u32,
    differing: u32,
}

impl Answers {
    /// The result of a lookup.
    #[inline(always)]
    pub fn looked_up(&mut self, key: u64, value: Option<u64>) {
        self.counts.count_get(value.is_some());
        if let Some(value) = value {
            self.sums.check_if(true, key, value);
            self.differing |= value as u32 ^ self.expected;
        }
    }

    /// A value was stored, or refused.
    #[inline(always)]
    pub fn stored(&mut self, done: bool) {
        self.counts.count_insert(done);
    }
}

/// A cache, whose capacity is [`Setup::capacity`].
#[derive(Debug)]
pub struct CacheSubject<C> {
    cache: C,
    /// Entries that it was built for.
    capacity: usize,
    own_threads: usize,
    /// Operations without an answer, and operations answered twice.
    unanswered: AtomicU64,
    resident: AtomicU64,
    /// Workers so far; each has other values.
    workers: AtomicUsize,
}

/// A thread at a cache.
#[derive(Debug)]
pub struct CacheWorker<'s, H> {
    unanswered: &'s AtomicU64,
    handle: H,
    plan: Plan,
    numbers: Numbers,
    submitted: u64,
    answers: Answers,
}

impl<H: CacheHandle> CacheWorker<'_, H> {
    #[inline(always)]
    fn get(&mut self, key: u64) {
        self.submitted += 1;
        self.handle.submit(key, None, &mut self.answers);
    }

    #[inline(always)]
    fn replace(&mut self, key: u64) {
        let number = self.numbers.draw();
        self.replace_number(key, number);
    }

    #[inline(always)]
    fn replace_number(&mut self, key: u64, number: u32) {
        self.submitted += 1;
        let value = stamp(key, number);
        self.handle.submit(key, Some(value), &mut self.answers);
    }

    /// Waits for all answers, and for the other threads.
    fn end(&mut self) -> OpCounts {
        self.handle.drain(&mut self.answers);
        self.handle.leave();
        let answered = self.answers.counts.total();
        let off = answered.abs_diff(self.submitted);
        // Relaxed: read after the thread's part.
        self.unanswered.fetch_add(off, Ordering::Relaxed);
        OpCounts {
            counts: self.answers.counts,
            sums: self.answers.sums,
        }
    }
}

impl<H: CacheHandle> Work for CacheWorker<'_, H> {
    #[inline(always)]
    fn step(&mut self, index: u32, operation: u8) {
        let key = self.plan.key(index);
        if operation == GET {
            self.get(key);
        } else {
            self.replace(key);
        }
    }

    fn end(&mut self) -> OpCounts {
        let counts = self.end();
        self.handle.end_mix();
        counts
    }
}

impl<C: WithHandles> Operate for CacheSubject<C>
where
    for<'s> C::Handle<'s>: CacheHandle,
{
    const CAPABILITY: Capability = Capability::Cache;
    type Worker<'s> = CacheWorker<'s, C::Handle<'s>>;

    fn own_threads_of(threads: usize) -> Option<usize> {
        C::own_threads(threads)
    }

    fn build(setup: &Setup) -> Self {
        Self {
            cache: C::build(setup),
            capacity: setup.capacity,
            own_threads: C::own_threads(setup.threads).unwrap_or(0),
            unanswered: AtomicU64::new(0),
            resident: AtomicU64::new(0),
            workers: AtomicUsize::new(0),
        }
    }

    fn worker(&self, plan: &Plan, part: Part) -> CacheWorker<'_, C::Handle<'_>> {
        CacheWorker {
            unanswered: &self.unanswered,
            handle: self.cache.handle(part),
            plan: *plan,
            // Relaxed: only the number counts.
            numbers: Numbers::of_thread(self.workers.fetch_add(1, Ordering::Relaxed)),
            submitted: 0,
            answers: Answers::default(),
        }
    }
}

impl<C: WithHandles> DynTable for CacheSubject<C>
where
    for<'s> C::Handle<'s>: CacheHandle,
{
    /// Stores a value under every key.
    fn fill(&self, plan: &Plan, part: Part) -> OpCounts {
        let mut worker = self.worker(plan, part);
        for index in indices(plan, part) {
            worker.replace(plan.key(index));
        }
        worker.end()
    }

    /// Looks up every key.
    fn probe(&self, plan: &Plan, part: Part) -> Sums {
        let mut worker = self.worker(plan, part);
        for index in indices(plan, part) {
            worker.get(plan.key(index));
        }
        let all = worker.end();
        // Relaxed: read after the thread's part.
        self.resident
            .fetch_add(all.counts.get_hits, Ordering::Relaxed);
        Sums {
            entries: all.counts.get_hits as i64,
            ..all.sums
        }
    }

    fn problems(&self, plan: &Plan, evidence: &Evidence) -> Option<Vec<String>> {
        let unanswered = self.unanswered.load(Ordering::Relaxed); // Relaxed: at rest
        let wrong = evidence.booked.wrong + evidence.found.wrong;
        let refused = evidence.stream.insert_failed;
        let resident = evidence.found.entries as f64;
        let (range, capacity) = (f64::from(plan.range), self.capacity as f64);
        let (lookups, hits) = (evidence.stream.gets(), evidence.stream.get_hits);
        let (rate, share) = (hits as f64 / lookups as f64, resident / range);
        let deviation = (0.25 / lookups as f64 + share * (1.0 - share) / range).sqrt();
        let is_off = (rate - share).abs() > TOLERANCE + 5.0 * deviation;
        Some(problems! {
            unanswered > 0 => "{unanswered} operations had no answer, or two";
            wrong > 0 => "{wrong} values of other keys were read";
            refused > 0 => "{refused} values were refused";
            resident > capacity * MOST_OVER_CAPACITY =>
                "{resident} entries in a cache for {capacity}";
            resident < range.min(capacity) * LEAST_RESIDENT =>
                "{resident} of {range} keys are in a cache for {capacity}";
            evidence.is_uniform && lookups >= LEAST_LOOKUPS && is_off =>
                "hit rate {:.1} %, but {:.1} % of the keys are resident", rate * 100.0, share * 100.0;
        })
    }

    /// Each thread stores values with one number under keys that no other thread writes now, and
    /// looks these up.
    fn audit(&self, plan: &Plan, part: Part, _: u64, _: u64) -> AuditReport {
        let mut worker = self.worker(plan, part);
        let mut report = AuditReport::default();
        let keys = || indices(plan, part).take(AUDITED_KEYS);
        let number = worker.numbers.draw();
        for index in keys() {
            worker.replace_number(plan.key(index), number);
        }
        worker.handle.drain(&mut worker.answers);
        (worker.answers.expected, worker.answers.differing) = (number | 1, 0);
        for index in keys() {
            worker.get(plan.key(index));
            report.audited += 1;
        }
        worker.handle.drain(&mut worker.answers);
        let off = worker.end().counts.total().abs_diff(worker.submitted);
        let is_stale = worker.answers.differing != 0;
        let all = problems! {
            is_stale => "a lookup gave a value that had been replaced";
            off > 0 => "{off} operations had no answer, or two";
        };
        report.problem = all.into_iter().next();
        report
    }

    fn own_threads(&self) -> usize {
        self.own_threads
    }

    fn measurements(&self) -> Measurements {
        let mut all = self.cache.measurements();
        let resident = self.resident.load(Ordering::Relaxed); // Relaxed: at rest
        all.insert("resident entries".into(), resident as f64);
        all
    }
}
