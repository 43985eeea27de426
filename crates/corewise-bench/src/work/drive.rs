//! The closed loop: a stream of operations, as fast as the table answers.
//!
//! # Batches
//!
//! With [`Drive::batch`] the keys of the stream are looked up several at a time. Half of the keys are there from the
//! start to the end and the others never, so every outcome is known but for the value's number. The section `batch`
//! runs slices of batches and of single lookups in turn, on the same table.
//!
//! How it could mislead:
//!
//! 1. *Single lookups overlap, too.* Those of a stream do not wait for each other, and a processor looks ahead. The
//!    ratio is to that. A program that needs an answer before it knows its next key has slower single lookups, and
//!    cannot batch them.
//! 2. *A batch has one guard* (or registration), where single lookups have one each. In tables that fit in a cache
//!    that is most of the difference; batches of one key, a cell of their own, do not have it.
//! 3. *Keys come from nowhere.* Byte keys are written before they are hashed, in batches as for single lookups; in a
//!    server they would have come from a buffer that is in a cache already.

use std::cell::RefCell;
use std::sync::Arc;

use crate::clock;
use crate::counters::Counters;
use crate::latencies::{Latencies, Outcome};
use crate::plan::{Kept, Plan};
use crate::record::HardwareCounters;
use crate::stamp::Numbers;
use crate::stream::{CHUNK, Chunk, Cursor, Stream};
use crate::table::{Kind, Table};
use crate::work::seat::Seat;
use crate::work::{Part, Start, Tally};

thread_local! {
    /// Opened once per thread; where the system has none, starting and stopping do nothing.
    static COUNTERS: RefCell<Counters> = RefCell::new(Counters::open_for_this_thread());
}

/// One thread's part of a short slice.
#[derive(Debug)]
pub struct Drive {
    /// What to do.
    pub stream: Arc<Stream>,
    /// Where to go on.
    pub cursor: Cursor,
    /// The value stream, to go on with.
    pub numbers: Numbers,
    /// Everybody starts here.
    pub start: Start,
    /// Time that is not measured, for caches to warm.
    pub warm_ticks: u64,
    /// Time that is.
    pub run_ticks: u64,
    /// If set, one operation in [`CHUNK`] is timed.
    pub latencies: Option<Latencies>,
    /// If set, all operations are lookups, in batches of so many keys.
    pub batch: Option<usize>,
}

/// What came of it.
#[derive(Clone, Debug)]
pub struct DriveReport {
    /// All operations, measured or not.
    pub tally: Tally,
    /// Lookups, measured or not, that missed a key that stays ([`Plan::keeps`]).
    pub kept_misses: u64,
    /// Measured operations.
    pub operations: u64,
    /// Measured time.
    pub ticks: u64,
    /// Hardware counters of the measured time.
    pub hardware: HardwareCounters,
}

/// Runs a slice.
pub(crate) fn drive<K: Kind, T: Table<K>>(
    table: &T,
    plan: &Plan,
    part: Part,
    job: &mut Drive,
) -> DriveReport {
    if let Some(keys) = job.batch {
        return run(table, plan, part, job, |seat, chunk| {
            for keys in chunk.keys.chunks(keys) {
                seat.get_many(keys, chunk.shift);
            }
        });
    }
    match (job.latencies.take(), plan.kept) {
        (None, Kept::Half) => run(table, plan, part, job, |seat, chunk| {
            plain(seat, chunk, Seat::step_beside_kept);
        }),
        (None, Kept::None | Kept::All) => run(table, plan, part, job, |seat, chunk| {
            plain(seat, chunk, Seat::step);
        }),
        (Some(mut latencies), _) => {
            debug_assert_ne!(
                plan.kept,
                Kept::Half,
                "no section times operations beside kept keys"
            );
            let mut place = job.cursor_seed();
            let report = run(table, plan, part, job, |seat, chunk| {
                place = place.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
                timed::<K, T>(seat, chunk, (place >> 58) as usize, &mut latencies);
            });
            job.latencies = Some(latencies);
            report
        }
    }
}

impl Drive {
    /// Something to draw the places of timed operations from.
    fn cursor_seed(&self) -> u64 {
        self.run_ticks ^ std::ptr::from_ref(self) as u64
    }
}

#[inline(always)]
fn run<'t, K: Kind, T: Table<K>>(
    table: &'t T,
    plan: &Plan,
    part: Part,
    job: &mut Drive,
    mut execute: impl FnMut(&mut Seat<'t, K, T>, Chunk<'_>),
) -> DriveReport {
    let mut seat = Seat::<K, T>::new(table, plan, part, Some(job.numbers));
    let stream = &*job.stream;
    job.start.wait();
    let begin = clock::coarse();
    while clock::coarse().wrapping_sub(begin) < job.warm_ticks {
        execute(&mut seat, stream.chunk(&mut job.cursor));
    }
    COUNTERS.with_borrow_mut(Counters::start);
    let begin = clock::coarse();
    let (mut chunks, mut ticks) = (0, 0);
    while ticks < job.run_ticks {
        execute(&mut seat, stream.chunk(&mut job.cursor));
        chunks += 1;
        ticks = clock::coarse().wrapping_sub(begin);
    }
    let hardware = COUNTERS.with_borrow_mut(Counters::stop);
    job.numbers = seat.numbers;
    DriveReport {
        tally: seat.tally(),
        kept_misses: match plan.kept {
            Kept::All => seat.counts.get_misses,
            Kept::None | Kept::Half => seat.kept_misses,
        },
        operations: chunks * CHUNK as u64,
        ticks,
        hardware,
    }
}

/// Each operation of a chunk by a kind of step, which takes an index, an operation and a shift.
#[inline(always)]
fn plain<'t, K: Kind, T: Table<K>>(
    seat: &mut Seat<'t, K, T>,
    chunk: Chunk<'_>,
    step: impl Fn(&mut Seat<'t, K, T>, u32, u8, u32) -> Outcome,
) {
    for (&key, &operation) in chunk.keys.iter().zip(chunk.operations) {
        step(seat, key, operation, chunk.shift);
    }
}

/// As [`plain`], with the operation at `place` timed.
#[inline(always)]
fn timed<K: Kind, T: Table<K>>(
    seat: &mut Seat<'_, K, T>,
    chunk: Chunk<'_>,
    place: usize,
    latencies: &mut Latencies,
) {
    for (at, (&key, &operation)) in chunk.keys.iter().zip(chunk.operations).enumerate() {
        if at != place {
            seat.step(key, operation, chunk.shift);
        } else {
            let begin = clock::now();
            let outcome = seat.step(key, operation, chunk.shift);
            latencies.record(outcome, clock::now().wrapping_sub(begin));
        }
    }
}
