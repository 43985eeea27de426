//! A table under test with its type forgotten, and the list entry that makes one.
//!
//! [`Subject`] is what the harness calls, once for thousands of operations; behind it stands a
//! loop compiled for the one table, in `work/`.

use std::fmt;
use std::sync::Arc;

use crate::plan::Plan;
use crate::table::{Bytes, Card, Contention, Kind, Resize, Setup, Table, U64};
use crate::work::{
    self, AuditReport, Drive, DriveReport, Grow, GrowReport, Hot, HotReport, Pace, PaceReport,
    Part, ResizeReport, Resizing, Sums, Tails, TailsReport, Tally,
};

/// A table whose type is known only inside. Every call is one thread's part of a phase; the part's
/// thread number tells it which.
pub trait Subject: Send + Sync {
    /// Inserts the entries that are there at the start.
    fn fill(&self, plan: &Plan, part: Part) -> Tally;
    /// Removes and reinserts entries, so that the table has a past.
    fn churn(&self, plan: &Plan, part: Part, entries: u64) -> Tally;
    /// Runs a stream of operations for a time.
    fn drive(&self, plan: &Plan, part: Part, job: &mut Drive) -> DriveReport;
    /// Removes and reinserts keys of its own for a time.
    fn hot(&self, plan: &Plan, part: Part, job: &mut Hot) -> HotReport;
    /// Runs a stream of operations at a rate.
    fn pace(&self, plan: &Plan, part: Part, job: &mut Pace) -> PaceReport;
    /// Inserts all keys of the range into the empty table.
    fn grow(&self, plan: &Plan, part: Part, job: &Grow) -> GrowReport;
    /// Inserts all keys of the range into the empty table, or looks up what is there by then.
    fn tails(&self, plan: &Plan, part: Part, job: &Tails) -> TailsReport;
    /// Looks up every key of the range.
    fn probe(&self, plan: &Plan, part: Part) -> Sums;
    /// Runs operations on keys that no other thread writes and compares every outcome.
    fn audit(&self, plan: &Plan, part: Part, operations: u64, seed: u64) -> AuditReport;
    /// Removes every key of the range.
    fn empty(&self, plan: &Plan, part: Part) -> Tally;
    /// Entries as the table counts them.
    fn size(&self) -> Option<usize>;
    /// Frees what has been put off.
    fn settle(&self);
    /// What the locks saw so far.
    fn contention(&self) -> Option<Contention>;
    /// Takes so many buckets; how many it has then. `None` if it cannot resize on request.
    fn resize_to(&self, buckets: usize) -> Option<usize>;
    /// How many buckets it has. `None` if it cannot resize on request.
    fn buckets(&self) -> Option<usize>;
    /// Resizes back and forth until told to stop. `None` if it cannot resize on request.
    fn resize(&self, job: &Resizing) -> Option<ResizeReport>;
}

/// A table, its type, and the way back.
struct Erased<K, T> {
    table: T,
    /// How to resize it, if it can be told to. Called through pointers: a resize is no operation.
    calls: Option<ResizeCalls<T>>,
    kind: std::marker::PhantomData<fn(K)>,
}

/// The two calls of [`Resize`].
struct ResizeCalls<T> {
    resize_to: fn(&T, usize),
    buckets: fn(&T) -> usize,
}

impl<K: Kind, T: Table<K>> Subject for Erased<K, T> {
    fn fill(&self, plan: &Plan, part: Part) -> Tally {
        work::phases::fill(&self.table, plan, part)
    }
    fn churn(&self, plan: &Plan, part: Part, entries: u64) -> Tally {
        work::phases::churn(&self.table, plan, part, entries)
    }
    fn drive(&self, plan: &Plan, part: Part, job: &mut Drive) -> DriveReport {
        work::drive::drive(&self.table, plan, part, job)
    }
    fn hot(&self, plan: &Plan, part: Part, job: &mut Hot) -> HotReport {
        work::hot::hot(&self.table, plan, part, job)
    }
    fn pace(&self, plan: &Plan, part: Part, job: &mut Pace) -> PaceReport {
        work::pace::pace(&self.table, plan, part, job)
    }
    fn grow(&self, plan: &Plan, part: Part, job: &Grow) -> GrowReport {
        work::grow::grow(&self.table, plan, part, job)
    }
    fn tails(&self, plan: &Plan, part: Part, job: &Tails) -> TailsReport {
        work::tails::tails(&self.table, plan, part, job)
    }
    fn probe(&self, plan: &Plan, part: Part) -> Sums {
        work::phases::probe(&self.table, plan, part)
    }
    fn audit(&self, plan: &Plan, part: Part, operations: u64, seed: u64) -> AuditReport {
        work::audit::audit(&self.table, plan, part, operations, seed)
    }
    fn empty(&self, plan: &Plan, part: Part) -> Tally {
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
    fn resize_to(&self, buckets: usize) -> Option<usize> {
        let calls = self.calls.as_ref()?;
        (calls.resize_to)(&self.table, buckets);
        Some((calls.buckets)(&self.table))
    }
    fn buckets(&self) -> Option<usize> {
        let calls = self.calls.as_ref()?;
        Some((calls.buckets)(&self.table))
    }
    fn resize(&self, job: &Resizing) -> Option<ResizeReport> {
        let calls = self.calls.as_ref()?;
        let resize_to = |buckets| (calls.resize_to)(&self.table, buckets);
        Some(work::resize::resize(
            resize_to,
            || (calls.buckets)(&self.table),
            job,
        ))
    }
}

/// Makes a table.
pub type Maker = fn(&Setup) -> Arc<dyn Subject>;

/// A table in the list: its card and the ways to make it.
#[derive(Clone)]
pub struct Entry {
    /// What it is.
    pub card: Card,
    /// Threads it can serve; `None` if any number.
    pub max_threads: Option<usize>,
    /// Whether it stores nothing, so that there is nothing to verify.
    pub null: bool,
    u64_common: Option<Maker>,
    u64_native: Option<Maker>,
    bytes_common: Option<Maker>,
    bytes_native: Option<Maker>,
    u64_resize: Option<Maker>,
    bytes_resize: Option<Maker>,
}

impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Entry")
            .field("card", &self.card)
            .finish_non_exhaustive()
    }
}

impl Entry {
    /// An entry that cannot make anything yet.
    pub fn new(card: Card) -> Self {
        Self {
            card,
            max_threads: None,
            null: false,
            u64_common: None,
            u64_native: None,
            bytes_common: None,
            bytes_native: None,
            u64_resize: None,
            bytes_resize: None,
        }
    }

    /// Integers with the common hash function.
    pub fn u64<T: Table<U64>>(mut self) -> Self {
        self.u64_common = Some(make::<U64, T>);
        self
    }

    /// Integers with the table's own hash function.
    pub fn u64_native<T: Table<U64>>(mut self) -> Self {
        self.u64_native = Some(make::<U64, T>);
        self
    }

    /// Byte strings with the common hash function.
    pub fn bytes<T: Table<Bytes>>(mut self) -> Self {
        self.bytes_common = Some(make::<Bytes, T>);
        self
    }

    /// Byte strings with the table's own hash function.
    pub fn bytes_native<T: Table<Bytes>>(mut self) -> Self {
        self.bytes_native = Some(make::<Bytes, T>);
        self
    }

    /// Integers with the common hash function, in a table that resizes on request.
    pub fn u64_resize<T: Resize<U64>>(mut self) -> Self {
        self.u64_resize = Some(make_resizable::<U64, T>);
        self
    }

    /// Byte strings with the common hash function, in a table that resizes on request.
    pub fn bytes_resize<T: Resize<Bytes>>(mut self) -> Self {
        self.bytes_resize = Some(make_resizable::<Bytes, T>);
        self
    }

    /// Serves no more threads than this.
    pub fn max_threads(mut self, threads: usize) -> Self {
        self.max_threads = Some(threads);
        self
    }

    /// Stores nothing.
    pub fn null(mut self) -> Self {
        self.null = true;
        self
    }

    /// How to make it for a kind of keys, `u64` or `bytes`, and a hash function; `None` if it
    /// cannot be had.
    pub fn maker(&self, kind: &str, native: bool) -> Option<Maker> {
        match (kind, native) {
            ("u64", false) => self.u64_common,
            ("u64", true) => self.u64_native,
            ("bytes", false) => self.bytes_common,
            ("bytes", true) => self.bytes_native,
            _ => None,
        }
    }

    /// How to make it so that it resizes on request; `None` if it cannot be had so.
    pub fn resizable_maker(&self, kind: &str, native: bool) -> Option<Maker> {
        match (kind, native) {
            ("u64", false) => self.u64_resize,
            ("bytes", false) => self.bytes_resize,
            _ => None,
        }
    }

    /// Whether it resizes on request.
    pub fn resizes(&self) -> bool {
        self.u64_resize.is_some() || self.bytes_resize.is_some()
    }
}

/// No table, for a kind of keys: the empty loop of [`Subject::tails`].
pub(crate) fn nothing(kind: &str) -> Arc<dyn Subject> {
    let setup = Setup {
        capacity: 0,
        threads: 0,
        value_bytes: 0,
        key_bytes: 0,
    };
    match kind {
        "bytes" => make::<Bytes, work::tails::Nothing>(&setup),
        _ => make::<U64, work::tails::Nothing>(&setup),
    }
}

fn make<K: Kind, T: Table<K>>(setup: &Setup) -> Arc<dyn Subject> {
    Arc::new(Erased::<K, T> {
        table: T::build(setup),
        calls: None,
        kind: std::marker::PhantomData,
    })
}

fn make_resizable<K: Kind, T: Resize<K>>(setup: &Setup) -> Arc<dyn Subject> {
    Arc::new(Erased::<K, T> {
        table: T::build(setup),
        calls: Some(ResizeCalls {
            resize_to: T::resize_to,
            buckets: T::buckets,
        }),
        kind: std::marker::PhantomData,
    })
}
