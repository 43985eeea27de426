//! Subjects by capability: what the benchmark measures besides maps.
//!
//! | capability | adapter implements | operations of the stream | what is conserved |
//! |---|---|---|---|
//! | map | [`MeasuredMap`](crate::table::MeasuredMap) | lookup, insert, remove | entries, keys and values |
//! | filter | [`MeasuredFilter`] | lookup, insert, remove | items; no false negative |
//! | lock | [`MeasuredLock`] | shared and exclusive sections | sections counted inside |
//! | queue | [`QueueHandle`] | least key, insert, remove the least key | keys; their order |
//! | cache | [`CacheHandle`] | lookup; insert that replaces | values stay with their keys; every operation is answered |
//! | sorted set | [`SortedSetHandle`] | rank, increment by 1 or -1 | scores; ranks differ |
//!
//! An adapter has the operations; handles are those of [`WithHandles`]. The harness adds, once for
//! each capability, a thread's loop, what is there at the start, and the checks: see [`Operate`]. A
//! subject is a [`DynTable`] as a map is, so cells, slices, rows and the page do not know the
//! capability.

/// The problems whose conditions hold, each in the words of a `format!`.
macro_rules! problems {
    ($($holds:expr => $($text:expr),+;)*) => {{
        let mut found = Vec::<String>::new();
        $(if $holds {
            found.push(format!($($text),+));
        })*
        found
    }};
}

mod cache;
mod external;
mod filter;
mod lock;
mod queue;
mod sorted_set;

pub use cache::{Answers, CacheHandle, CacheSubject};
pub use filter::{FilterSubject, MeasuredFilter};
pub use lock::{LockSubject, MeasuredLock};
pub use queue::{QueueHandle, QueueSubject};
use serde::Serialize;
pub use sorted_set::{SortedSetHandle, SortedSetSubject};

pub(crate) use self::external::External;
use crate::dyn_table::DynTable;
pub use crate::payload::{MeasuredRow, Measurements};
use crate::plan::Plan;
use crate::stream::shifted;
use crate::table::Setup;
use crate::work::loops::Loops;
use crate::work::{Drive, DriveReport, OpCounts, Part};

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
pub trait Operate: DynTable + Sized + 'static {
    /// Its capability.
    const CAPABILITY: Capability;

    /// A thread's state at the subject in a slice.
    type Worker<'s>: Work
    where
        Self: 's;

    /// Returns how many of the given number of threads it brings; `None` if it needs more.
    fn own_threads_of(_threads: usize) -> Option<usize> {
        Some(0)
    }

    /// Constructs an empty subject.
    fn build(setup: &Setup) -> Self;

    /// Returns the state of a thread, on that thread.
    fn worker(&self, plan: &Plan, part: Part) -> Self::Worker<'_>;
}

/// A subject under test that each thread uses through a handle: a queue, a sorted set or a cache.
pub trait WithHandles: Send + Sync + Sized + 'static {
    /// A thread's handle.
    type Handle<'s>
    where
        Self: 's;
    /// Returns how many of the given number of threads it brings; `None` if it needs more.
    fn own_threads(_threads: usize) -> Option<usize> {
        Some(0)
    }
    /// Creates an empty subject.
    fn build(setup: &Setup) -> Self;
    /// Creates the handle of a thread, on that thread, which uses it until all threads have.
    fn handle(&self, part: Part) -> Self::Handle<'_>;
    /// Returns what the subject itself has measured; called after the last operation.
    fn measurements(&self) -> Measurements {
        Measurements::default()
    }
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

impl<S: Operate> Loops for S {
    fn mix(&self, plan: &Plan, part: Part, drive: &mut Drive) -> DriveReport {
        let mut worker = self.worker(plan, part);
        let measured = drive.measure(|chunk| {
            for (&index, &operation) in chunk.keys.iter().zip(chunk.operations) {
                worker.step(shifted(index, chunk.shift, plan.range), operation);
            }
        });
        let tally = worker.end();
        measured.report(tally, worker.kept_misses())
    }
}
