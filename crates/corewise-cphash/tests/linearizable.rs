//! Recorded histories of several threads on a few keys, checked for linearizability key by key,
//! while budgets change, servers and clients come and go, and partitions change hands.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Barrier, Mutex};

use corewise_cphash::{
    Client, Colocated, Config, CpHash, Entry, Eviction, LockHash, Replace, Reply, Request,
};
use corewise_history::models::{EntryOp, EntryOutcome, MapEntry};
use corewise_history::{History, Recorder, Recording};

type Op = EntryOp<u64>;
type Outcome = EntryOutcome<u64>;

const THREADS: u64 = 3;
const KEYS: u64 = 4;
const CALLS: u64 = 1_500;
/// Room for all keys in every partition, whatever their values, so nothing is evicted.
const BUDGET: usize = 1 << 16;

/// A small pseudo-random sequence.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 20) % bound
    }
}

/// The bytes that stand for a number: of 8 to 200 bytes, so that some values are overwritten in
/// their place and others are not, and such that a mixture of two of them stands for none.
fn bytes(number: u64) -> Vec<u8> {
    number.to_le_bytes().repeat(1 + (number >> 4) as usize % 25)
}

fn number(bytes: &[u8]) -> u64 {
    let number = u64::from_le_bytes(*bytes.first_chunk().expect("eight bytes at least"));
    assert_eq!(bytes, self::bytes(number), "a mixture of values");
    number
}

/// How a thread performs an operation.
trait Perform {
    fn perform(&mut self, key: u64, op: &Op) -> Outcome;
}

impl Perform for &LockHash {
    fn perform(&mut self, key: u64, op: &Op) -> Outcome {
        match *op {
            EntryOp::Insert(value) => {
                self.insert(key, &bytes(value)).unwrap();
                EntryOutcome::Silent
            }
            EntryOp::Remove => EntryOutcome::Present(self.remove(key)),
            // As a copy, or by reference.
            _ if key.is_multiple_of(2) => EntryOutcome::Held(self.get(key, number)),
            _ => EntryOutcome::Held(self.get_ref(key).map(|value| number(&value))),
        }
    }
}

/// A read-modify-write, executed at the partition.
fn change(entry: &mut Entry<'_>, op: &Op) -> Outcome {
    let old = entry.get().map(number);
    match *op {
        EntryOp::Update => {
            let new = old.map(|old| old + 1);
            new.into_iter()
                .for_each(|new| entry.insert(&bytes(new)).unwrap());
            EntryOutcome::Updated { old, new }
        }
        EntryOp::CompareExchange { expected, new } => {
            match new {
                _ if old != expected => {}
                Some(new) => entry.insert(&bytes(new)).unwrap(),
                None => assert_eq!(entry.remove(), old.is_some()),
            }
            EntryOutcome::Held(old)
        }
        _ => unreachable!("other operations have messages of their own"),
    }
}

impl Perform for Client {
    fn perform(&mut self, key: u64, op: &Op) -> Outcome {
        match *op {
            EntryOp::Insert(value) => {
                self.insert(key, &bytes(value)).unwrap();
                EntryOutcome::Silent
            }
            EntryOp::Remove => EntryOutcome::Present(self.remove(key)),
            EntryOp::Get if key.is_multiple_of(2) => EntryOutcome::Held(self.get(key, number)),
            EntryOp::Get => EntryOutcome::Held(self.get_ref(key).map(|value| number(&value))),
            _ => {
                let op = op.clone();
                self.execute(key, move |entry| change(entry, &op))
            }
        }
    }
}

/// Polls until an outcome is delivered.
fn outcome_of(event_loop: &mut Colocated) -> Outcome {
    let mut outcome = None;
    while outcome.is_none() {
        let polled = event_loop.poll(|_, reply| {
            outcome = Some(match reply {
                Reply::Found(value) => EntryOutcome::Held(Some(number(value))),
                Reply::Missing => EntryOutcome::Held(None),
                Reply::Inserted(inserted) => {
                    inserted.unwrap();
                    EntryOutcome::Silent
                }
                Reply::Removed(present) => EntryOutcome::Present(present),
                Reply::Executed(result) => *result.unwrap().downcast().unwrap(),
                other => panic!("{other:?}"),
            });
        });
        if polled == 0 {
            std::thread::yield_now();
        }
    }
    outcome.unwrap()
}

impl Perform for Colocated {
    fn perform(&mut self, key: u64, op: &Op) -> Outcome {
        match op {
            EntryOp::Insert(value) => {
                let value = bytes(*value);
                self.submit(0, Request::Insert(key.into(), &value)).unwrap();
                let outcome = outcome_of(self);
                // Visible to all once a later operation on the key is complete.
                self.submit(0, Request::Get(key.into())).unwrap();
                outcome_of(self);
                return outcome;
            }
            EntryOp::Remove => self.submit(0, Request::Remove(key.into())).unwrap(),
            EntryOp::Get => self.submit(0, Request::Get(key.into())).unwrap(),
            _ => {
                let op = op.clone();
                let change = move |entry: &mut Entry<'_>| change(entry, &op);
                self.submit_execute(0, key, change).unwrap();
            }
        }
        outcome_of(self)
    }
}

/// Which operations are drawn.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mix {
    /// Lookups, insertions and removals.
    Plain,
    /// Also read-modify-writes.
    All,
}

fn draw(random: &mut Random, mix: Mix, fresh: u64, seen: Option<u64>) -> Op {
    match random.below(12) {
        0..=2 => EntryOp::Insert(fresh),
        3 | 4 => EntryOp::Remove,
        5 | 6 if mix == Mix::All => EntryOp::Update,
        7 | 8 if mix == Mix::All => EntryOp::CompareExchange {
            expected: seen,
            new: (random.below(10) < 7).then_some(fresh),
        },
        _ => EntryOp::Get,
    }
}

fn run_thread(
    table: &mut impl Perform,
    mix: Mix,
    (thread, seed): (u64, u64),
    mut recorder: Recorder<u64, Op, Outcome>,
) {
    let mut random = Random((seed << 8 | thread) * 2 + 1);
    let mut seen = [None; KEYS as usize];
    for call in 0..CALLS {
        let key = random.below(KEYS);
        // No two writes have the same value, apart from increments.
        let fresh = (call * THREADS + thread) << 16;
        let op = draw(&mut random, mix, fresh, seen[key as usize]);
        let late = random.below(20) == 0;
        let outcome = recorder.record(key, op.clone(), || {
            if late {
                std::thread::yield_now();
            }
            table.perform(key, &op)
        });
        if let EntryOutcome::Held(held) = outcome {
            seen[key as usize] = *held;
        }
    }
}

/// Records what threads do, each with what `join` gives it, while another repeats `meanwhile`.
fn record<P: Perform + Send>(
    mix: Mix,
    seed: u64,
    join: impl Fn() -> P,
    mut meanwhile: impl FnMut() + Send,
) -> History<u64, Op, Outcome> {
    let recording = Recording::new();
    let (start, stop) = (Barrier::new(THREADS as usize + 1), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            start.wait();
            while !stop.load(Relaxed) {
                meanwhile();
                std::thread::yield_now();
            }
        });
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| {
                let recorder = recording.recorder(CALLS as usize);
                let (mut table, start) = (join(), &start);
                scope.spawn(move || {
                    start.wait();
                    run_thread(&mut table, mix, (thread, seed), recorder);
                })
            })
            .collect();
        let done: Vec<_> = threads.into_iter().map(|thread| thread.join()).collect();
        stop.store(true, Relaxed);
        assert!(done.iter().all(Result::is_ok), "a thread has panicked");
    });
    recording.finish().expect("all recorders are back")
}

#[test]
fn histories_of_lockhash_are_linearizable() {
    let mut overlapping = 0;
    for seed in 0..6u64 {
        let eviction = if seed.is_multiple_of(2) {
            Eviction::Lru
        } else {
            Eviction::Random
        };
        let partitions = [1, 2, 64][seed as usize / 2];
        let config = Config::new(BUDGET * partitions).partitions(partitions);
        let table = LockHash::new(&config.eviction(eviction)).unwrap();
        let mut more = 0;
        let history = record(
            Mix::Plain,
            seed,
            || &table,
            || {
                more = (more + 1) % 3;
                table
                    .set_budget_bytes((BUDGET + more * 4096) * partitions)
                    .unwrap();
            },
        );
        let summary = history.check(&MapEntry::new()).assert_linearizable();
        overlapping += summary.concurrent;
    }
    assert!(overlapping > 0, "no call overlapped another");
}

#[test]
fn histories_of_cphash_are_linearizable_while_clients_come_and_go() {
    for seed in 0..4 {
        let config = Config::new(BUDGET * 4).partitions(4).pipeline(64);
        let table = CpHash::new(&config, seed as usize % 3).unwrap();
        let history = record(
            Mix::All,
            seed,
            || table.client(),
            || {
                // Leaves requests behind, on other keys.
                let mut client = table.client();
                client.submit(0, Request::Get((KEYS + 1).into())).unwrap();
                let inserted = client.submit(1, Request::Insert((KEYS + 2).into(), b"value"));
                inserted.unwrap();
            },
        );
        history.check(&MapEntry::new()).assert_linearizable();
    }
}

#[test]
fn histories_are_linearizable_while_partitions_change_hands() {
    for seed in 0..4 {
        let config = Config::new(BUDGET * 4).partitions(4).pipeline(64);
        let table = Mutex::new(CpHash::new(&config, 1).unwrap());
        let mut servers = 0;
        let history = record(
            Mix::All,
            seed,
            || table.lock().unwrap().client(),
            || {
                servers = (servers + 1) % 4;
                table.lock().unwrap().set_server_threads(servers).unwrap();
            },
        );
        history.check(&MapEntry::new()).assert_linearizable();
    }
}

#[test]
fn histories_of_event_loops_are_linearizable() {
    let mut overlapping = 0;
    for seed in 0..4 {
        let config = Config::new(BUDGET * 8).partitions(8).pipeline(64);
        let table = CpHash::new(&config, 0).unwrap();
        let history = record(
            Mix::All,
            seed,
            || table.colocated(|| ()),
            || {
                // A loop that joins, takes partitions over, serves them, and leaves.
                let mut passing = table.colocated(|| ());
                (0..20).for_each(|_| _ = passing.poll(|_, _| ()));
            },
        );
        let summary = history.check(&MapEntry::new()).assert_linearizable();
        overlapping += summary.concurrent;
    }
    assert!(overlapping > 0, "no call overlapped another");
}

/// The paper's replacement removes the old element before the new one is complete.
#[test]
fn replacement_at_allocation_is_found_out() {
    let found = (0..50).any(|seed| {
        let config = Config::new(BUDGET).partitions(1).pipeline(64);
        let table = CpHash::new(&config.replace(Replace::AtAllocation), 1).unwrap();
        let history = record(Mix::Plain, seed, || table.client(), || ());
        history.check(&MapEntry::new()).violation().is_some()
    });
    assert!(found, "no history shows that a key is absent for a moment");
}
