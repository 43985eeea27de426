//! Subjects by capability: what the benchmark measures besides maps.
//!
//! | capability | adapter implements | operations of the stream | what is conserved |
//! |---|---|---|---|
//! | map | [`Table`](crate::table::Table) | lookup, insert, remove | entries, keys and values |
//! | filter | [`MeasuredFilter`] | lookup, insert, remove | items; no false negative |
//! | lock | [`MeasuredLock`] | shared and exclusive sections | sections counted inside |
//! | queue | [`MeasuredQueue`] | least key, insert, remove the least key | keys; their order |
//! | cache | [`MeasuredCache`] | lookup; insert that replaces | values stay with their keys; every operation is answered |
//! | sorted set | [`MeasuredSortedSet`] | rank, increment by 1 or -1 | scores; ranks differ |
//!
//! An adapter has the operations. The harness adds, once for each capability, a thread's loop, what
//! is there at the start, and the checks: see [`Operate`]. `Erased` hides the type behind the same
//! [`DynTable`] as a map's, so cells, slices, rows and the page do not know the capability.

mod cache;
mod external;
mod filter;
mod lock;
mod queue;
mod sorted_set;

use std::sync::Arc;

pub use cache::{Answers, CacheHandle, CacheSubject, MeasuredCache};
pub use filter::{FilterSubject, MeasuredFilter};
pub use lock::{LockSubject, MeasuredLock};
pub use queue::{MeasuredQueue, QueueHandle, QueueSubject};
use serde::Serialize;
pub use sorted_set::{MeasuredSortedSet, SortedSetHandle, SortedSetSubject};

pub(crate) use self::external::External;
use crate::dyn_table::DynTable;
pub use crate::payload::{MeasuredRow, Measurements};
use crate::plan::Plan;
use crate::stream::shifted;
use crate::table::{Contention, Setup};
use crate::work::loops::Loops;
use crate::work::{AuditReport, Drive, DriveReport, Evidence, OpCounts, Part, Sums};

/// What a subject can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Capability {
    /// Lookup, insert and remove of keys with values.
    Map,
    /// Approximate membership of items.
    Filter,
    /// Shared and exclusive sections.
    Lock,
    /// Insert, remove the least key, find the least key.
    Queue,
    /// Ranks of members by score, increments of scores.
    SortedSet,
    /// Lookups, and inserts that replace and evict.
    Cache,
}

/// A subject of a capability other than a map, with what the harness adds to its adapter.
pub trait Operate: Send + Sync + Sized + 'static {
    /// Its capability.
    const CAPABILITY: Capability;

    /// A thread's state at the subject in a slice.
    type Worker<'s>: Work
    where
        Self: 's;

    /// Returns the threads that it brings, of as many threads in all; `None` if it needs more.
    fn own_threads(_threads: usize) -> Option<usize> {
        Some(0)
    }

    /// Constructs an empty subject.
    fn build(setup: &Setup) -> Self;

    /// Returns the state of a thread, on that thread.
    fn worker(&self, plan: &Plan, part: Part) -> Self::Worker<'_>;

    /// Adds a thread's part of the initial entries.
    fn fill(&self, plan: &Plan, part: Part) -> OpCounts;

    /// Runs operations of a thread whose outcome is known; called after [`Operate::probe`].
    fn audit(&self, _: &Plan, _: Part, _: u64, _: u64) -> AuditReport {
        AuditReport::default()
    }

    /// Returns a thread's part of what is there after the last slice.
    fn probe(&self, plan: &Plan, part: Part) -> Sums;

    /// Returns what is wrong, besides lookups that missed what was there all the time.
    fn problems(&self, plan: &Plan, evidence: &Evidence) -> Vec<String>;

    /// Returns its lock statistics, if it counts them.
    fn contention(&self) -> Option<Contention> {
        None
    }

    /// Returns further measurements; called once, after the last check.
    fn measurements(&self) -> Measurements {
        Measurements::default()
    }
}

/// Returns the problems whose conditions hold.
fn problems<const N: usize>(all: [(bool, String); N]) -> Vec<String> {
    let those = all.into_iter().filter(|(holds, _)| *holds);
    those.map(|(_, text)| text).collect()
}

/// A thread's state at a subject.
pub trait Work {
    /// Runs one operation of a stream.
    fn step(&mut self, index: u32, operation: u8);

    /// Ends the slice: waits for outcomes that are outstanding, and returns all of them.
    fn end(&mut self) -> OpCounts;

    /// Returns the lookups so far that missed what was there all the time.
    fn kept_misses(&self) -> u64 {
        0
    }
}

/// Hides the type of a subject.
struct Erased<S> {
    subject: S,
    own_threads: usize,
}

impl<S: Operate> Loops for Erased<S> {
    fn mix(&self, plan: &Plan, part: Part, drive: &mut Drive) -> DriveReport {
        let mut worker = self.subject.worker(plan, part);
        let measured = drive.measure(|chunk| {
            for (&index, &operation) in chunk.keys.iter().zip(chunk.operations) {
                worker.step(shifted(index, chunk.shift, plan.range), operation);
            }
        });
        let tally = worker.end();
        measured.report(tally, worker.kept_misses())
    }
}

impl<S: Operate> DynTable for Erased<S> {
    fn fill(&self, plan: &Plan, part: Part) -> OpCounts {
        self.subject.fill(plan, part)
    }
    fn probe(&self, plan: &Plan, part: Part) -> Sums {
        self.subject.probe(plan, part)
    }
    fn audit(&self, plan: &Plan, part: Part, operations: u64, seed: u64) -> AuditReport {
        self.subject.audit(plan, part, operations, seed)
    }
    fn problems(&self, plan: &Plan, evidence: &Evidence) -> Option<Vec<String>> {
        Some(self.subject.problems(plan, evidence))
    }
    fn contention(&self) -> Option<Contention> {
        self.subject.contention()
    }
    fn measurements(&self) -> Measurements {
        self.subject.measurements()
    }
    fn own_threads(&self) -> usize {
        self.own_threads
    }
}

/// Constructs a subject and hides its type.
pub(crate) fn make<S: Operate>(setup: &Setup) -> Arc<dyn DynTable> {
    Arc::new(Erased {
        subject: S::build(setup),
        own_threads: S::own_threads(setup.threads).unwrap_or(0),
    })
}
