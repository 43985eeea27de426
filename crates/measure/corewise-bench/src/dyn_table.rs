//! A type-erased table under test.
//!
//! The harness calls [`DynTable`] once for thousands of operations; each implementation runs a loop
//! compiled for its table: a phase of `work/`, or the loop of a section.

use crate::payload::Measurements;
use crate::plan::Plan;
use crate::table::{Contention, Kind, MeasuredMap};
use crate::work::loops::{Dispatch, Erased, Loops};
use crate::work::{self, AuditReport, DriveReport, Evidence, OpCounts, Part, Sums};

/// A type-erased table. Every call runs one thread's part of a phase; the part's thread number
/// identifies it.
pub trait DynTable: Loops + Send + Sync {
    /// Inserts the initial entries.
    fn fill(&self, plan: &Plan, part: Part) -> OpCounts;
    /// Removes and reinserts entries, so that the table has seen deletions.
    fn churn(&self, _: &Plan, _: Part, _entries: u64) -> OpCounts {
        OpCounts::default()
    }
    /// Looks up every key of the range; returns a thread's part of what is there.
    fn probe(&self, plan: &Plan, part: Part) -> Sums;
    /// Runs operations on keys that no other thread writes and checks every outcome; called after
    /// [`DynTable::probe`].
    fn audit(&self, _: &Plan, _: Part, _operations: u64, _seed: u64) -> AuditReport {
        AuditReport::default()
    }
    /// Removes every key of the range.
    fn empty(&self, _: &Plan, _: Part) -> OpCounts {
        OpCounts::default()
    }
    /// Returns the number of entries as the table counts them.
    fn size(&self) -> Option<usize> {
        None
    }
    /// Reclaims deferred memory.
    fn settle(&self) {}
    /// Returns the lock statistics so far.
    fn contention(&self) -> Option<Contention> {
        None
    }
    /// Resizes to about `buckets` buckets. `None` if it cannot resize on request.
    fn resize_to(&self, _buckets: usize) -> Option<()> {
        None
    }
    /// Returns the number of buckets. `None` if it cannot resize on request.
    fn buckets(&self) -> Option<usize> {
        None
    }
    /// Returns what is wrong, by the checks of its capability, besides lookups that missed what was
    /// there all the time; `None` for a map, which is compared with its workload.
    fn problems(&self, _: &Plan, _: &Evidence) -> Option<Vec<String>> {
        None
    }
    /// Returns the threads that it brings; the harness uses it with that number of threads fewer.
    fn own_threads(&self) -> usize {
        0
    }
    /// Returns what else it measured; called once, after the last check.
    fn measurements(&self) -> Measurements {
        Measurements::default()
    }
}

impl dyn DynTable + '_ {
    pub(crate) fn run<L: Dispatch>(&self, plan: &Plan, part: Part, job: &mut L) -> DriveReport {
        job.call(self, plan, part)
    }
}

impl<K: Kind, T: MeasuredMap<K>> DynTable for Erased<K, T> {
    fn fill(&self, plan: &Plan, part: Part) -> OpCounts {
        work::phases::fill(&self.table, plan, part)
    }
    fn churn(&self, plan: &Plan, part: Part, entries: u64) -> OpCounts {
        work::phases::churn(&self.table, plan, part, entries)
    }
    fn probe(&self, plan: &Plan, part: Part) -> Sums {
        work::phases::probe(&self.table, plan, part)
    }
    fn audit(&self, plan: &Plan, part: Part, operations: u64, seed: u64) -> AuditReport {
        work::audit::audit(&self.table, plan, part, operations, seed)
    }
    fn empty(&self, plan: &Plan, part: Part) -> OpCounts {
        work::phases::empty(&self.table, plan, part)
    }
    fn size(&self) -> Option<usize> {
        self.table.size()
    }
    fn settle(&self) {
        self.table.settle();
    }
    fn contention(&self) -> Option<Contention> {
        self.table.contention()
    }
    fn measurements(&self) -> Measurements {
        self.table.measurements()
    }
    fn resize_to(&self, buckets: usize) -> Option<()> {
        self.calls
            .map(|(resize_to, _)| resize_to(&self.table, buckets))
    }
    fn buckets(&self) -> Option<usize> {
        self.calls.map(|(_, buckets)| buckets(&self.table))
    }
}
