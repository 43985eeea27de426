//! Statistics per size class: hits and stores, counted by the loops, and the age of the oldest
//! item, found by a background walk.

use corewise_atomic::lock::Mutex;
use corewise_atomic::sync::atomic::{AtomicU64, Ordering};
use corewise_engine::{Cursor, Engine, ScanStep, size_class};
use corewise_ops::{Now, Outcome, Verb};
use corewise_wire::Tally;

/// Items and buckets that the walk visits in one critical section of the engine.
const LOOKS_PER_STEP: usize = 1_024;
/// Critical sections in one call of [`Ages::walk`].
const STEPS: usize = 4;

/// The length of the value that a store brings.
pub(crate) fn stored_len(verb: &Verb<'_>) -> Option<usize> {
    match verb {
        Verb::Store(store) => Some(store.value.len()),
        _ => None,
    }
}

/// A counter that each class has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Column {
    GetHits,
    CmdSet,
    IncrHits,
    DecrHits,
    CasHits,
    TouchHits,
    OutOfMemory,
}

pub(crate) const COLUMNS: usize = 7;

/// Counts of one loop, or their sums: one row of columns for each class.
pub(crate) type Sums = Vec<[u64; COLUMNS]>;

/// One loop's counts, written by that loop only.
pub(crate) struct ClassCounts(Box<[[AtomicU64; COLUMNS]]>);

impl Default for ClassCounts {
    fn default() -> Self {
        let row = |_| std::array::from_fn(|_| AtomicU64::new(0));
        Self((0..size_class::COUNT).map(row).collect())
    }
}

impl ClassCounts {
    #[inline]
    pub(crate) fn add(&self, class: u32, column: Column) {
        let row = (class as usize).wrapping_sub(1);
        if let Some(row) = self.0.get(row) {
            let count = &row[column as usize];
            // Relaxed, both: a statistic with one writer.
            let before = count.load(Ordering::Relaxed);
            count.store(before + 1, Ordering::Relaxed);
        }
    }

    /// Counts one completed operation on `key`.
    #[inline(always)]
    pub(crate) fn count(&self, tally: Tally, key: &[u8], verb: &Verb<'_>, outcome: &Outcome<'_>) {
        self.count_stored(tally, key, || stored_len(verb), outcome);
    }

    /// As [`count`](Self::count), with the length of the value that a store has brought.
    #[inline(always)]
    pub(crate) fn count_stored(
        &self,
        tally: Tally,
        key: &[u8],
        stored_len: impl FnOnce() -> Option<usize>,
        outcome: &Outcome<'_>,
    ) {
        match (tally, outcome) {
            (Tally::Get, Outcome::Found(item)) => self.add(item.size_class, Column::GetHits),
            (Tally::Touch, Outcome::Found(item)) => self.add(item.size_class, Column::TouchHits),
            (Tally::Gat, Outcome::Found(item)) => {
                self.add(item.size_class, Column::GetHits);
                self.add(item.size_class, Column::TouchHits);
            }
            (Tally::Store | Tally::Cas, Outcome::Stored(item)) => {
                self.add(item.size_class, Column::CmdSet);
                if tally == Tally::Cas {
                    self.add(item.size_class, Column::CasHits);
                }
            }
            (Tally::Store | Tally::Cas, Outcome::OutOfMemory) => {
                if let Some(len) = stored_len() {
                    // Counted under the class that the item would have had.
                    let class = size_class::of(size_class::HEADER + key.len() + len);
                    self.add(class, Column::OutOfMemory);
                }
            }
            (Tally::Incr, Outcome::Counter { view, .. }) => {
                self.add(view.size_class, Column::IncrHits);
            }
            (Tally::Decr, Outcome::Counter { view, .. }) => {
                self.add(view.size_class, Column::DecrHits);
            }
            _ => {}
        }
    }

    /// Adds these counts to `sums`.
    pub(crate) fn add_to(&self, sums: &mut Sums) {
        sums.resize(self.0.len(), [0; COLUMNS]);
        for (sums, row) in sums.iter_mut().zip(&self.0) {
            for (sum, count) in sums.iter_mut().zip(row) {
                // Relaxed: a statistic.
                *sum += count.load(Ordering::Relaxed);
            }
        }
    }
}

/// The oldest item of each class that a background walk over all items has visited, in the current
/// round or in the previous one. So an item counts for up to two rounds after it is gone.
#[derive(Default)]
pub(crate) struct Ages(Mutex<Walk>);

struct Walk {
    cursor: Cursor,
    /// Last use of the item of each class that has been unused for longest, in seconds of the
    /// clock; `u32::MAX` if the round has visited none.
    round: Box<[u32]>,
    before: Box<[u32]>,
}

impl Default for Walk {
    fn default() -> Self {
        let none = || vec![u32::MAX; size_class::COUNT].into_boxed_slice();
        Self {
            cursor: Cursor::START,
            round: none(),
            before: none(),
        }
    }
}

impl Ages {
    /// Visits some more items, unless another loop is doing so.
    pub(crate) fn walk<E: Engine>(&self, engine: &E, now: Now) {
        let Some(mut walk) = self.0.try_lock() else {
            return;
        };
        for _ in 0..STEPS {
            walk.step(engine, now);
        }
    }

    /// Seconds since the last use of a class's oldest item; 0 if no item was visited.
    pub(crate) fn age_s(&self, class: u32, now: Now) -> u32 {
        let walk = self.0.lock();
        let row = (class as usize).wrapping_sub(1);
        let of = |rows: &[u32]| rows.get(row).copied().unwrap_or(u32::MAX);
        match of(&walk.round).min(of(&walk.before)) {
            u32::MAX => 0,
            used_s => now.seconds().saturating_sub(used_s),
        }
    }
}

impl Walk {
    fn step<E: Engine>(&mut self, engine: &E, now: Now) {
        let step = engine.scan(self.cursor, LOOKS_PER_STEP, now, &mut |item| {
            let row = (item.size_class as usize).wrapping_sub(1);
            if let Some(used_s) = self.round.get_mut(row) {
                *used_s = (*used_s).min(now.seconds().saturating_sub(item.idle_s));
            }
        });
        match step {
            ScanStep::More(cursor) => self.cursor = cursor,
            ScanStep::Done | ScanStep::Lost => {
                std::mem::swap(&mut self.round, &mut self.before);
                self.round.fill(u32::MAX);
                self.cursor = Cursor::START;
            }
        }
    }
}
