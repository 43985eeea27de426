//! Recorded histories of several threads in every engine, checked for linearizability by
//! `corewise-testkit`.
//!
//! Each round works on a few keys of a fresh engine: undisturbed, while the table grows, and while
//! items are evicted. During eviction a value may vanish at any time, but nothing may come back.
//! Some calls yield before they do anything, so that calls overlap on any machine. The checks must
//! detect two flawed caches: one that increments by reading and writing back, and one that brings
//! evicted items back.

use crate::common;

use common::{Cache, NOW, Seen, Setup, TestEngine, Worker, at_once, fewer, incr, number, store};
use corewise_engine::Session;
use corewise_ops::{Deadline, Delete, Get, Store, StoreMode, Verb};
use corewise_testkit::history::models::{
    CacheCall, EntryOp, EntryOutcome, EvictingEntry, ItemVersion, MapEntry,
};
use corewise_testkit::history::{CallRecord, History, Recorder, Recording};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

for_every_engine! {
    every_recorded_history_is_linearizable
    histories_are_linearizable_while_the_table_grows
    histories_are_linearizable_while_items_are_evicted
    a_cache_that_increments_in_two_steps_is_found_out
    a_cache_that_brings_evicted_items_back_is_found_out
}

const THREADS: usize = 3;
const KEYS: u8 = 3;
/// Values written under a key differ by multiples of this, and no counter is incremented that
/// often. So a value identifies its writer.
const APART: u64 = 100_000;

type Outcome = EntryOutcome<u64>;
type Calls = Recorder<u8, EntryOp<u64>, Outcome>;
type Recorded = History<u8, EntryOp<u64>, Outcome>;

/// How a thread performs calls.
trait Perform {
    fn perform(&mut self, key: u8, call: CacheCall) -> Outcome;
    fn flush(&mut self);
    fn maintain(&mut self);
    /// Stores some other items that the test does not check: a session may keep the item that it
    /// stored last in a separate place.
    fn pad(&mut self);
    /// The version that this thread saw last under a key, if any.
    fn seen(&self, key: u8) -> Option<ItemVersion>;
}

struct Real<E: TestEngine> {
    cache: Cache<E>,
    seen: [Option<ItemVersion>; KEYS as usize],
}

impl<E: TestEngine> Real<E> {
    fn over(engine: &Arc<E>) -> Self {
        Self {
            cache: Cache::over(engine),
            seen: [None; KEYS as usize],
        }
    }

    fn get(&mut self, key: u8, touch: Option<Deadline>) -> Outcome {
        let get = Get {
            touch,
            ..Get::default()
        };
        let seen = self.cache.run(&[key], Verb::Get(get));
        let version = number(&seen).map(|value| ItemVersion {
            value,
            cas: seen.cas(),
        });
        self.seen[key as usize] = version;
        CacheCall::read(version)
    }

    fn store(&mut self, key: u8, mode: StoreMode, value: u64, compare_cas: Option<u64>) -> Outcome {
        let text = value.to_string();
        let request = Store {
            compare_cas,
            ..store(mode, text.as_bytes())
        };
        let seen = self.cache.store(&[key], request);
        match seen {
            Seen::Stored { cas, .. } => {
                assert_eq!(number(&seen), Some(value));
                self.seen[key as usize] = Some(ItemVersion { value, cas });
                EntryOutcome::Done(true)
            }
            Seen::NotStored | Seen::Exists => EntryOutcome::Done(false),
            Seen::Missing(_) => EntryOutcome::Held(None),
            other => panic!("{other:?}"),
        }
    }
}

impl<E: TestEngine> Perform for Real<E> {
    fn perform(&mut self, key: u8, call: CacheCall) -> Outcome {
        match call {
            CacheCall::Get => self.get(key, None),
            CacheCall::Touch => self.get(key, Some(Deadline::after_ms(NOW, 1_000))),
            CacheCall::Expire => self.get(key, Some(Deadline::PAST)),
            CacheCall::Set(value) => self.store(key, StoreMode::Set, value, None),
            CacheCall::Add(value) => self.store(key, StoreMode::Add, value, None),
            CacheCall::Swap { seen, new } => self.store(key, StoreMode::Set, new, Some(seen.cas)),
            CacheCall::Incr => {
                let new = match self.cache.arith(&[key], incr(1)) {
                    Seen::Counter { value, .. } => Some(value),
                    Seen::Missing(_) => None,
                    other => panic!("{other:?}"),
                };
                CacheCall::incremented(new)
            }
            CacheCall::Delete => {
                let seen = self.cache.delete(&[key], Delete::default());
                EntryOutcome::Done(seen == Seen::Deleted)
            }
        }
    }

    fn flush(&mut self) {
        self.cache.engine.flush_all(Deadline::PAST, NOW);
    }

    fn maintain(&mut self) {
        self.cache.session.maintain(NOW);
    }

    fn pad(&mut self) {
        for i in 0..100u64 {
            // A store is refused if other threads were descheduled inside an operation for too
            // long.
            let mut set = || self.cache.set(&(1_000_000 + i).to_le_bytes(), &[b'p'; 400]);
            assert!((0..10).any(|_| set().is_stored()), "no memory");
        }
    }

    fn seen(&self, key: u8) -> Option<ItemVersion> {
        self.seen[key as usize]
    }
}

/// A cache whose increment is a read and a write, with another thread's turn in between.
struct TwoSteps<P>(P);

impl<P: Perform> Perform for TwoSteps<P> {
    fn perform(&mut self, key: u8, call: CacheCall) -> Outcome {
        let CacheCall::Incr = call else {
            return self.0.perform(key, call);
        };
        let EntryOutcome::Held(old) = self.0.perform(key, CacheCall::Get) else {
            unreachable!("a read tells what was held")
        };
        std::thread::yield_now();
        let new = old.map(|old| old + 1);
        if let Some(new) = new {
            self.0.perform(key, CacheCall::Set(new));
        }
        EntryOutcome::Updated { old, new }
    }

    fn flush(&mut self) {
        self.0.flush();
    }

    fn maintain(&mut self) {
        self.0.maintain();
    }

    fn pad(&mut self) {
        self.0.pad();
    }

    fn seen(&self, key: u8) -> Option<ItemVersion> {
        self.0.seen(key)
    }
}

/// A cache in which a read that finds nothing brings back the value that the thread saw last.
struct Remembers<P>(P);

impl<P: Perform> Perform for Remembers<P> {
    fn perform(&mut self, key: u8, call: CacheCall) -> Outcome {
        let remembered = self.0.seen(key);
        let outcome = self.0.perform(key, call);
        match (call, remembered) {
            (CacheCall::Get, Some(version)) if outcome == EntryOutcome::Held(None) => {
                self.0.perform(key, CacheCall::Add(version.value));
                self.0.perform(key, CacheCall::Get)
            }
            _ => outcome,
        }
    }

    fn flush(&mut self) {
        self.0.flush();
    }

    fn maintain(&mut self) {
        self.0.maintain();
    }

    fn pad(&mut self) {
        self.0.pad();
    }

    fn seen(&self, key: u8) -> Option<ItemVersion> {
        self.0.seen(key)
    }
}

/// The work of each thread of a round.
#[derive(Clone, Copy)]
struct Round {
    seed: u64,
    calls: u64,
    /// Whether one call in a hundred is a flush.
    flushes: bool,
    /// How often the memory is refilled after every [`BURST`] calls.
    refills: u64,
}

/// Calls without a pause in which items can age.
const BURST: u64 = 20;

/// Progress that the threads of a round share.
struct RoundProgress {
    /// Threads that still make calls.
    running: AtomicU64,
    /// How often the memory has been refilled.
    refills: AtomicU64,
}

impl RoundProgress {
    fn is_over(&self, worker: &Worker<'_>) -> bool {
        // Relaxed: a hint; the threads are joined.
        self.running.load(Ordering::Relaxed) == 0 || worker.is_over()
    }

    /// Waits until the memory has been refilled `count` times from now on.
    fn await_refills(&self, count: u64, worker: &Worker<'_>) {
        // Relaxed: determines only how long to wait.
        let until = self.refills.load(Ordering::Relaxed) + count;
        while self.refills.load(Ordering::Relaxed) < until && !worker.is_over() {
            std::thread::yield_now();
        }
    }
}

/// The work of one thread of a round.
enum Job<P, B> {
    Record(P, Calls),
    Beside(B),
}

impl Round {
    fn perform(
        self,
        worker: &Worker<'_>,
        progress: &RoundProgress,
        mut performer: impl Perform,
        mut recorder: Calls,
    ) {
        let thread = worker.thread;
        let mut random = SmallRng::seed_from_u64(self.seed * 64 + thread);
        for i in 0..self.calls {
            if i % BURST == 0 && self.refills > 0 {
                performer.pad();
                progress.await_refills(self.refills, worker);
            }
            let yields = random.random_bool(0.05);
            let turn = || {
                if yields {
                    std::thread::yield_now();
                }
            };
            match random.random_range(0..100) {
                0 => performer.maintain(),
                1 if self.flushes => recorder.record_on_each(0..KEYS, EntryOp::Remove, || {
                    turn();
                    performer.flush();
                    EntryOutcome::Silent
                }),
                _ => {
                    let key = random.random_range(0..KEYS);
                    let unique = (thread * self.calls + i + 1) * APART;
                    let face = random.random_range(0..CacheCall::FACES);
                    let call = CacheCall::draw(face, unique, performer.seen(key));
                    recorder.record(key, call.op(), || {
                        turn();
                        performer.perform(key, call)
                    });
                }
            }
        }
    }
}

/// Runs each performer's part, with other work beside it.
fn record<P: Perform + Send>(
    round: Round,
    performers: Vec<P>,
    beside: impl FnOnce(&RoundProgress, &Worker<'_>) + Send,
) -> Recorded {
    let recording = Recording::new();
    let progress = RoundProgress {
        running: AtomicU64::new(performers.len() as u64),
        refills: AtomicU64::new(0),
    };
    let records = |performer| Job::Record(performer, recording.recorder(2 * round.calls as usize));
    let jobs = performers.into_iter().map(records);
    at_once(jobs.chain([Job::Beside(beside)]), |job, worker| match job {
        Job::Beside(beside) => beside(&progress, &worker),
        Job::Record(performer, recorder) => {
            round.perform(&worker, &progress, performer, recorder);
            // Relaxed: see `is_over`.
            progress.running.fetch_sub(1, Ordering::Relaxed);
        }
    });
    recording.finish().unwrap()
}

fn nothing(_: &RoundProgress, _: &Worker<'_>) {}

/// A round with no other work beside it.
fn quiet(seed: u64) -> Round {
    Round {
        seed,
        calls: 500,
        flushes: true,
        refills: 0,
    }
}

fn performers<E: TestEngine>(engine: &Arc<E>) -> Vec<Real<E>> {
    (0..THREADS).map(|_| Real::over(engine)).collect()
}

fn roomy<E: TestEngine>() -> Arc<E> {
    Arc::new(E::make(Setup::roomy()))
}

fn every_recorded_history_is_linearizable<E: TestEngine>() {
    let mut concurrent = 0;
    for seed in 0..fewer(50) {
        let history = record(quiet(seed), performers(&roomy::<E>()), nothing);
        let verdict = history.check(&MapEntry::new());
        println!("seed {seed}: {verdict}");
        concurrent += verdict.assert_linearizable().concurrent;
    }
    assert!(concurrent > 0, "no operation overlapped another");
}

/// The table grows from empty, by another thread's items. A flush would restart the growth.
fn histories_are_linearizable_while_the_table_grows<E: TestEngine>() {
    let mut concurrent = 0;
    for seed in 0..fewer(4) {
        let engine = roomy::<E>();
        let round = Round {
            seed,
            calls: 2_000,
            flushes: false,
            refills: 0,
        };
        let mut grower = Cache::over(&engine);
        let history = record(round, performers(&engine), |progress, worker| {
            for i in 0..100_000u64 {
                if progress.is_over(worker) {
                    return;
                }
                grower.set(&i.to_le_bytes(), b"x");
            }
        });
        let verdict = history.check(&MapEntry::new());
        println!("seed {seed}: {verdict}, {} items", engine.stats().items);
        concurrent += verdict.assert_linearizable().concurrent;
    }
    assert!(concurrent > 0, "no operation overlapped another");
}

/// Records histories in the least memory while another thread refills it again and again. Between
/// bursts of calls it refills the memory often enough that unused items leave, even if they were
/// used several times.
fn record_with_evictions<E: TestEngine, P: Perform + Send>(
    seed: u64,
    with: impl Fn(Real<E>) -> P,
) -> Recorded {
    // Items have about the size of those of the histories: smaller ones would stay beside larger
    // ones.
    const LENGTH: usize = 64;
    let setup = Setup::tight::<E>(THREADS + 1);
    let parts = setup.memory / (2 * LENGTH as u64);
    let engine = Arc::new(E::make(setup));
    let mut filler = Cache::over(&engine);
    let value = [b'x'; LENGTH];
    let performers = performers(&engine).into_iter().map(with).collect();
    let round = Round {
        seed,
        calls: 500,
        flushes: true,
        refills: 5,
    };
    let history = record(round, performers, |progress, worker| {
        for i in 1u64.. {
            if progress.is_over(worker) {
                return;
            }
            let seen = filler.set(&(i % (2 * parts)).to_le_bytes(), &value);
            assert!(seen.is_stored(), "{seen:?}");
            if i.is_multiple_of(parts) {
                // Relaxed: see `await_refills`.
                progress.refills.fetch_add(1, Ordering::Relaxed);
            }
        }
    });
    filler.assert_within_budget();
    history
}

fn histories_are_linearizable_while_items_are_evicted<E: TestEngine>() {
    let (mut concurrent, mut forgetful) = (0, 0);
    for seed in 0..fewer(3) {
        let history = record_with_evictions::<E, _>(seed, |real| real);
        let verdict = history.check(&EvictingEntry::new());
        println!("seed {seed}: {verdict}");
        concurrent += verdict.assert_linearizable().concurrent;
        forgetful += u64::from(history.check(&MapEntry::new()).violation().is_some());
    }
    assert!(concurrent > 0, "no operation overlapped another");
    assert!(forgetful > 0, "no call met an eviction");
}

fn a_cache_that_increments_in_two_steps_is_found_out<E: TestEngine>() {
    let caught = (0..2_000).any(|seed| {
        let mutants = performers(&roomy::<E>()).into_iter().map(TwoSteps);
        let history = record(quiet(seed), mutants.collect(), nothing);
        history.check(&MapEntry::new()).violation().is_some()
    });
    assert!(caught, "no lost increment in 2,000 histories");
}

fn a_cache_that_brings_evicted_items_back_is_found_out<E: TestEngine>() {
    let caught = (0..500).any(|seed| {
        let history = record_with_evictions::<E, _>(seed, Remembers);
        history.check(&EvictingEntry::new()).violation().is_some()
    });
    assert!(caught, "nothing that came back in 500 histories");
}

#[test]
fn a_stale_read_is_no_linearizable_history() {
    let call = |call: CacheCall, outcome, invoked, done| {
        CallRecord::new(0, 0, call.op(), invoked).returning(outcome, done)
    };
    let check = |read| {
        let set = |value, at| call(CacheCall::Set(value), EntryOutcome::Done(true), at, at + 1);
        History::new(vec![set(1, 0), set(2, 2), read]).check(&MapEntry::new())
    };
    let one = || EntryOutcome::Held(Some(1));
    let stale = check(call(CacheCall::Get, one(), 4, 5));
    assert!(stale.violation().is_some());
    let overlapping = check(call(CacheCall::Get, one(), 2, 5));
    overlapping.assert_linearizable();
}
