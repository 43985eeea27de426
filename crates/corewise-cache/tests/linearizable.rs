//! Recorded histories of several threads, checked for linearizability by `corewise-history`.
//!
//! Each round works on one key of a fresh engine. Some calls yield before they do anything, so that
//! calls overlap on any machine. A cache that increments by reading and writing back must be found
//! out.

#[macro_use]
mod common;

use common::{Cache, NOW, Seen, Setup, TestEngine, incr, number, store};
use corewise_history::models::{EntryOp, EntryOutcome, MapEntry};
use corewise_history::{History, Operation, Recorder, Recording};
use corewise_ops::{Deadline, Delete, StoreMode};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use std::sync::{Arc, Barrier};

for_every_engine! {
    every_recorded_history_is_linearizable
    a_cache_that_increments_in_two_steps_is_found_out
}

const THREADS: usize = 3;
/// Enough that threads which start a few microseconds apart meet.
const PER_THREAD: usize = 250;
const ROUNDS: u64 = 100;

#[derive(Clone, Copy, Debug)]
enum Call {
    Get,
    Set(u64),
    Add(u64),
    Incr,
    Delete,
    Flush,
}

/// What a call returned, as far as the checker cares: a value, or none.
type Return = Option<u64>;

impl Call {
    /// The call as an operation on one entry of a map.
    fn op(self) -> EntryOp<u64> {
        match self {
            Self::Get => EntryOp::Get,
            Self::Set(value) => EntryOp::Insert(value),
            Self::Add(value) => EntryOp::TryInsert(value),
            Self::Incr => EntryOp::Update,
            Self::Delete | Self::Flush => EntryOp::Remove,
        }
    }

    /// What the operation answered if the call returned this. A flush does not say whether there
    /// was an item, and an increment saw one less than it returned.
    fn outcome(self, returned: Return) -> EntryOutcome<u64> {
        match self {
            Self::Get => EntryOutcome::Held(returned),
            Self::Set(_) | Self::Add(_) | Self::Delete => EntryOutcome::Done(returned.is_some()),
            Self::Incr => EntryOutcome::Updated {
                old: returned.map(|new| new.wrapping_sub(1)),
                new: returned,
            },
            Self::Flush => EntryOutcome::Silent,
        }
    }
}

/// How a thread performs calls.
trait Perform {
    fn perform(&mut self, call: Call) -> Return;
}

struct Real<E: TestEngine>(Cache<E>);

impl<E: TestEngine> Real<E> {
    fn write(&mut self, mode: StoreMode, value: u64) -> Return {
        let text = value.to_string();
        let stored = self.0.store(b"key", store(mode, text.as_bytes()));
        let returned = number(&stored);
        assert!(returned.is_none_or(|stored| stored == value), "{stored:?}");
        returned
    }
}

impl<E: TestEngine> Perform for Real<E> {
    fn perform(&mut self, call: Call) -> Return {
        match call {
            Call::Get => number(&self.0.get(b"key")),
            Call::Set(value) => self.write(StoreMode::Set, value),
            Call::Add(value) => self.write(StoreMode::Add, value),
            Call::Incr => match self.0.arith(b"key", incr(1)) {
                Seen::Counter { value, .. } => Some(value),
                _ => None,
            },
            Call::Delete => {
                let seen = self.0.delete(b"key", Delete::default());
                (seen == Seen::Deleted).then_some(0)
            }
            Call::Flush => {
                self.0.engine.flush_all(Deadline::PAST, NOW);
                None
            }
        }
    }
}

/// A cache whose increment is a read and a write, with another thread's turn in between.
struct Mutant<P>(P);

impl<P: Perform> Perform for Mutant<P> {
    fn perform(&mut self, call: Call) -> Return {
        let Call::Incr = call else {
            return self.0.perform(call);
        };
        let value = self.0.perform(Call::Get)?;
        std::thread::yield_now();
        self.0.perform(Call::Set(value + 1))
    }
}

fn random_call(random: &mut SmallRng, unique: u64) -> Call {
    match random.random_range(0..16) {
        0..4 => Call::Get,
        4..7 => Call::Set(unique),
        7 => Call::Add(unique),
        8..14 => Call::Incr,
        14 => Call::Delete,
        _ => Call::Flush,
    }
}

type Calls = Recorder<(), EntryOp<u64>, EntryOutcome<u64>>;

fn perform_all(seed: u64, thread: usize, mut performer: impl Perform, mut recorder: Calls) {
    let mut random = SmallRng::seed_from_u64(seed * 64 + thread as u64);
    for i in 0..PER_THREAD {
        let call = random_call(&mut random, (thread * PER_THREAD + i) as u64 * 1_000);
        let yields = random.random_bool(0.05);
        recorder.record((), call.op(), || {
            if yields {
                std::thread::yield_now();
            }
            call.outcome(performer.perform(call))
        });
    }
}

fn record<P: Perform + Send>(
    seed: u64,
    performers: Vec<P>,
) -> History<(), EntryOp<u64>, EntryOutcome<u64>> {
    let recording = Recording::new();
    let start = Barrier::new(performers.len());
    std::thread::scope(|scope| {
        for (thread, performer) in performers.into_iter().enumerate() {
            let (recorder, start) = (recording.recorder(PER_THREAD), &start);
            scope.spawn(move || {
                start.wait();
                perform_all(seed, thread, performer, recorder);
            });
        }
    });
    recording.finish().unwrap()
}

fn performers<E: TestEngine>() -> Vec<Real<E>> {
    let engine = Arc::new(E::make(Setup::roomy()));
    (0..THREADS).map(|_| Real(Cache::over(&engine))).collect()
}

fn every_recorded_history_is_linearizable<E: TestEngine>() {
    let mut concurrent = 0;
    for seed in 0..ROUNDS {
        let verdict = record(seed, performers::<E>()).check(&MapEntry::new());
        println!("seed {seed}: {verdict}");
        concurrent += verdict.assert_linearizable().concurrent;
    }
    assert!(concurrent > 0, "no operation overlapped another");
}

fn a_cache_that_increments_in_two_steps_is_found_out<E: TestEngine>() {
    let caught = (0..20 * ROUNDS).any(|seed| {
        let mutants = performers::<E>().into_iter().map(Mutant).collect();
        let verdict = record(seed, mutants).check(&MapEntry::new());
        verdict.violation().is_some()
    });
    assert!(caught, "no lost increment in {} histories", 20 * ROUNDS);
}

#[test]
fn a_stale_read_is_no_linearizable_history() {
    let call = |call: Call, returned, invoked, done| {
        Operation::new(0, (), call.op(), invoked).returning(call.outcome(returned), done)
    };
    let check = |read| {
        let set = |value, at| call(Call::Set(value), Some(value), at, at + 1);
        History::new(vec![set(1, 0), set(2, 2), read]).check(&MapEntry::new())
    };
    let stale = check(call(Call::Get, Some(1), 4, 5));
    assert!(stale.violation().is_some());
    let overlapping = check(call(Call::Get, Some(1), 2, 5));
    overlapping.assert_linearizable();
}
