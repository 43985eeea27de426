//! Locks: sections that increment the harness's words, or compare them.
//!
//! An update of the stream is an exclusive section: it increments eight words of two cache lines,
//! each by a load and a store, so that a count is lost if two threads are inside at once. A lookup
//! is a shared section, in which the first word must be equal to the last. A section of n
//! nanoseconds spins for n nanoseconds ([`Plan::work`]); outside of it the thread spins as long, so
//! that threads can overlap.

use std::hint::black_box;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use crossbeam_utils::CachePadded;

use crate::dyn_table::DynTable;
use crate::plan::Plan;
use crate::record::OutcomeCounts;
use crate::stream::GET;
use crate::subject::{Capability, Measurements, Operate, Work};
use crate::table::{Contention, Setup};
use crate::work::{Evidence, OpCounts, Part, Sums};

/// Words that a section increments.
const WORDS: usize = 8;
/// Iterations of a calibration of the spinning loop, and the number of calibrations.
const CALIBRATED: (u64, usize) = (200_000, 7);

/// A lock under test. Hardware may roll back and rerun a section; it takes effect once.
pub trait MeasuredLock: Send + Sync + Sized + 'static {
    /// Creates an unlocked lock.
    fn build() -> Self;
    /// Runs a section that excludes all others.
    fn exclusive(&self, section: impl FnMut());
    /// Runs a section that excludes exclusive ones, if the lock distinguishes readers.
    fn shared(&self, section: impl FnMut()) {
        self.exclusive(section);
    }
    /// Returns the counts of its transactions, if it is elided.
    fn contention(&self) -> Option<Contention> {
        None
    }
}

/// A lock and what it protects.
#[derive(Debug)]
pub struct LockSubject<L> {
    lock: CachePadded<L>,
    words: ProtectedWords,
    /// Sections of each thread so far.
    sections: Box<[CachePadded<AtomicU64>]>,
    torn: AtomicU64,
}

/// The first four words and the last four are in different lines.
#[derive(Debug, Default)]
struct ProtectedWords([CachePadded<[AtomicU64; WORDS / 2]>; 2]);

impl ProtectedWords {
    fn all(&self) -> impl DoubleEndedIterator<Item = &AtomicU64> {
        self.0.iter().flat_map(|half| half.iter())
    }

    /// Relaxed: the lock under test orders them, and a broken one must lose counts, not the
    /// program's definedness.
    #[inline(always)]
    fn increment(&self) {
        for word in self.all() {
            word.store(word.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        }
    }

    /// Returns whether the first word differs from the last.
    #[inline(always)]
    fn is_torn(&self) -> bool {
        let first = self.0[0][0].load(Ordering::Relaxed); // Relaxed: see `increment`
        let last = self.0[1][WORDS / 2 - 1].load(Ordering::Relaxed); // Relaxed: see `increment`
        first != last
    }
}

/// A thread at a lock.
#[derive(Debug)]
pub struct LockWorker<'s, L> {
    subject: &'s LockSubject<L>,
    thread: usize,
    /// Iterations of the spinning loop.
    spins: u64,
    exclusive: u64,
    shared: u64,
    torn: u64,
}

impl<L> Drop for LockWorker<'_, L> {
    fn drop(&mut self) {
        let add = |sum: &AtomicU64, more| {
            sum.fetch_add(more, Ordering::Relaxed); // Relaxed: read after the thread's part
        };
        add(
            &self.subject.sections[self.thread],
            self.exclusive + self.shared,
        );
        add(&self.subject.torn, self.torn);
    }
}

#[inline(always)]
fn spin(iterations: u64) {
    for iteration in 0..iterations {
        black_box(iteration);
    }
}

/// Returns the iterations of [`spin`] in these nanoseconds. The fastest of some calibrations
/// counts, as other programs make the others longer.
fn spins(ns: u32) -> u64 {
    static PER_NS: OnceLock<f64> = OnceLock::new();
    let per_ns = PER_NS.get_or_init(|| {
        let (iterations, times) = CALIBRATED;
        let calibrate = |_| {
            let begin = Instant::now();
            spin(iterations);
            iterations as f64 / begin.elapsed().as_nanos().max(1) as f64
        };
        (0..times).map(calibrate).fold(0.0, f64::max)
    });
    (f64::from(ns) * per_ns).round() as u64
}

impl<L: MeasuredLock> Work for LockWorker<'_, L> {
    #[inline(always)]
    fn step(&mut self, _: u32, operation: u8) {
        let (words, spins) = (&self.subject.words, self.spins);
        if operation == GET {
            let mut is_torn = false;
            self.subject.lock.shared(|| {
                is_torn = words.is_torn();
                spin(spins);
            });
            self.shared += 1;
            self.torn += u64::from(is_torn);
        } else {
            self.subject.lock.exclusive(|| {
                words.increment();
                spin(spins);
            });
            self.exclusive += 1;
        }
        spin(spins);
    }

    fn end(&mut self) -> OpCounts {
        OpCounts {
            counts: OutcomeCounts {
                get_hits: self.shared,
                inserted: self.exclusive,
                ..OutcomeCounts::default()
            },
            sums: Sums {
                entries: self.exclusive as i64,
                ..Sums::default()
            },
        }
    }
}

impl<L: MeasuredLock> Operate for LockSubject<L> {
    const CAPABILITY: Capability = Capability::Lock;
    type Worker<'s> = LockWorker<'s, L>;

    fn build(setup: &Setup) -> Self {
        Self {
            lock: CachePadded::new(L::build()),
            words: ProtectedWords::default(),
            sections: (0..setup.threads).map(|_| CachePadded::default()).collect(),
            torn: AtomicU64::new(0),
        }
    }

    fn worker(&self, plan: &Plan, part: Part) -> LockWorker<'_, L> {
        LockWorker {
            subject: self,
            thread: part.thread,
            spins: spins(plan.work),
            exclusive: 0,
            shared: 0,
            torn: 0,
        }
    }
}

impl<L: MeasuredLock> DynTable for LockSubject<L> {
    fn fill(&self, _: &Plan, _: Part) -> OpCounts {
        OpCounts::default()
    }

    /// The count of the word that lost the most.
    fn probe(&self, _: &Plan, part: Part) -> Sums {
        let counts = self.words.all().map(|word| word.load(Ordering::Relaxed)); // Relaxed: at rest
        let least = counts.min().filter(|_| part.thread == 0);
        Sums {
            entries: least.unwrap_or(0) as i64,
            ..Sums::default()
        }
    }

    fn problems(&self, _: &Plan, evidence: &Evidence) -> Option<Vec<String>> {
        let (run, counted) = (evidence.booked.entries, evidence.found.entries);
        let torn = self.torn.load(Ordering::Relaxed); // Relaxed: at rest
        Some(problems! {
            run != counted =>
                "{counted} of {run} exclusive sections counted: two threads were inside at once";
            torn > 0 => "{torn} shared sections ran beside an exclusive one";
        })
    }

    fn contention(&self) -> Option<Contention> {
        self.lock.contention()
    }

    /// The sections of the slowest thread over those of the fastest.
    fn measurements(&self) -> Measurements {
        // Relaxed: at rest.
        let load = |count: &CachePadded<AtomicU64>| count.load(Ordering::Relaxed);
        let sections = || self.sections.iter().map(load);
        let (least, most) = (sections().min(), sections().max());
        let mut all = Measurements::default();
        if let (Some(least), Some(most @ 1..)) = (least, most) {
            all.insert("fairness".into(), least as f64 / most as f64);
        }
        all
    }
}
