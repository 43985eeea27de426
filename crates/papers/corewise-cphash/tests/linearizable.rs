//! Recorded histories of several threads on a few keys, checked for linearizability key by key,
//! while budgets change, servers and clients come and go, and partitions change hands.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Barrier, Mutex};

use corewise_cphash::{
    CacheRequest, Client, Colocated, Config, CpHash, Entry, Eviction, LockHash, PipelineFull,
    Replace, Reply,
};
use corewise_testkit::history::models::{EntryOp, EntryOutcome, MapEntry};
use corewise_testkit::history::{CallRecord, History, Recorder, Recording};
use corewise_testkit::random::{Random, is_short};

type Op = EntryOp<u64>;
type Outcome = EntryOutcome<u64>;

const THREADS: u64 = 3;
const KEYS: u64 = 4;
/// Calls of a thread, fewer under sanitizers.
fn calls() -> u64 {
    if is_short() { 100 } else { 300 }
}
/// Calls of a thread for each turn of what goes on meanwhile.
const CALLS_PER_TURN: u64 = 20;
/// Room for all keys in every partition, whatever their values, so nothing is evicted.
const BUDGET: usize = 1 << 16;

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

/// What a reply says about the operation.
fn outcome_in(reply: Reply<'_>) -> Outcome {
    match reply {
        Reply::Found(value) => EntryOutcome::Held(Some(number(value))),
        Reply::Missing => EntryOutcome::Held(None),
        Reply::Inserted(inserted) => {
            inserted.unwrap();
            EntryOutcome::Silent
        }
        Reply::Removed(present) => EntryOutcome::Present(present),
        Reply::Executed(result) => *result.unwrap().downcast().unwrap(),
        other => panic!("{other:?}"),
    }
}

/// Polls until an outcome is delivered.
fn outcome_of(event_loop: &mut Colocated) -> Outcome {
    let mut outcome = None;
    while outcome.is_none() {
        let polled = event_loop.poll(|_, reply| outcome = Some(outcome_in(reply)));
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
                self.submit(0, CacheRequest::Insert(key.into(), &value))
                    .unwrap();
            }
            EntryOp::Remove => self.submit(0, CacheRequest::Remove(key.into())).unwrap(),
            EntryOp::Get => self.submit(0, CacheRequest::Get(key.into())).unwrap(),
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
    turns: &SyncSender<()>,
) {
    let mut random = Random((seed << 8 | thread) * 2 + 1);
    let mut seen = [None; KEYS as usize];
    for call in 0..calls() {
        if thread == 0 && call.is_multiple_of(CALLS_PER_TURN) {
            // A turn that is going on is enough.
            let _ = turns.try_send(());
        }
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

/// Records what threads do, each with what `join` gives it, while another repeats `meanwhile`: once
/// for some calls of theirs, so that the amount of work does not depend on their speed.
fn record<P: Perform + Send>(
    mix: Mix,
    seed: u64,
    join: impl Fn() -> P,
    mut meanwhile: impl FnMut() + Send,
) -> History<u64, Op, Outcome> {
    let recording = Recording::new();
    let start = Barrier::new(THREADS as usize + 1);
    let (sender, turns) = sync_channel(1);
    std::thread::scope(|scope| {
        let start = &start;
        scope.spawn(move || {
            start.wait();
            turns.into_iter().for_each(|()| meanwhile());
        });
        for thread in 0..THREADS {
            let recorder = recording.recorder(calls() as usize);
            let (mut table, sender) = (join(), sender.clone());
            scope.spawn(move || {
                start.wait();
                run_thread(&mut table, mix, (thread, seed), recorder, &sender);
            });
        }
        drop(sender);
    });
    recording.finish().expect("all recorders are back")
}

#[test]
fn histories_of_lockhash_are_linearizable() {
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
        history.check(&MapEntry::new()).assert_linearizable();
    }
}

#[test]
fn histories_of_cphash_are_linearizable_while_clients_come_and_go() {
    for seed in 0..3 {
        let config = Config::new(BUDGET * 4).partitions(4).pipeline(64);
        let table = CpHash::new(&config, seed as usize % 3).unwrap();
        let history = record(
            Mix::All,
            seed,
            || table.client(),
            || {
                // Leaves requests behind, on other keys.
                let mut client = table.client();
                client
                    .submit(0, CacheRequest::Get((KEYS + 1).into()))
                    .unwrap();
                let inserted = client.submit(1, CacheRequest::Insert((KEYS + 2).into(), b"value"));
                inserted.unwrap();
            },
        );
        history.check(&MapEntry::new()).assert_linearizable();
    }
}

#[test]
fn histories_are_linearizable_while_partitions_change_hands() {
    for seed in 0..3 {
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
        history.check(&MapEntry::new()).assert_linearizable();
    }
}

/// A history whose time stamps the test takes, because a thread has several operations outstanding.
struct Pipelined<'c> {
    thread: u64,
    client: Client,
    clock: &'c AtomicU64,
    outstanding: HashMap<u64, CallRecord<u64, Op, Outcome>>,
    done: Vec<CallRecord<u64, Op, Outcome>>,
}

impl Pipelined<'_> {
    fn stamp(&self) -> u64 {
        // SeqCst: as in the recorder of `corewise-testkit`.
        self.clock.fetch_add(1, SeqCst)
    }

    fn submit(&mut self, token: u64, key: u64, op: &Op) -> Result<(), PipelineFull> {
        match op {
            EntryOp::Insert(value) => {
                let value = bytes(*value);
                self.client
                    .submit(token, CacheRequest::Insert(key.into(), &value))
            }
            EntryOp::Remove => self.client.submit(token, CacheRequest::Remove(key.into())),
            EntryOp::Get => self.client.submit(token, CacheRequest::Get(key.into())),
            _ => {
                let op = op.clone();
                let change = move |entry: &mut Entry<'_>| change(entry, &op);
                self.client.submit_execute(token, key, change)
            }
        }
    }

    fn poll(&mut self) {
        let (done, clock) = (&mut self.done, self.clock);
        let outstanding = &mut self.outstanding;
        let polled = self.client.poll(|token, reply| {
            let outcome = outcome_in(reply);
            let operation = outstanding.remove(&token).expect("one outcome for each");
            // SeqCst: as above.
            done.push(operation.returning(outcome, clock.fetch_add(1, SeqCst)));
        });
        if polled == 0 {
            std::thread::yield_now();
        }
    }

    /// Submits operations with up to eight outstanding.
    fn run(mut self, seed: u64) -> Vec<CallRecord<u64, Op, Outcome>> {
        let mut random = Random((seed << 8 | self.thread) * 2 + 1);
        for call in 0..calls() {
            let key = random.below(KEYS);
            let fresh = (call * THREADS + self.thread) << 16;
            let op = draw(&mut random, Mix::All, fresh, None);
            // Stamped before the operation is accepted, and again if it was not.
            let operation = loop {
                let operation =
                    CallRecord::new(self.thread as usize, key, op.clone(), self.stamp());
                match self.submit(call, key, &op) {
                    Ok(()) => break operation,
                    Err(PipelineFull) => self.poll(),
                }
            };
            self.outstanding.insert(call, operation);
            while self.outstanding.len() >= 8 {
                self.poll();
            }
        }
        while !self.outstanding.is_empty() {
            self.poll();
        }
        self.done
    }
}

#[test]
fn histories_of_pipelines_are_linearizable() {
    for seed in 0..3 {
        let config = Config::new(BUDGET * 4).partitions(4).pipeline(64);
        let table = CpHash::new(&config, seed as usize).unwrap();
        let clock = AtomicU64::new(0);
        let operations = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..THREADS)
                .map(|thread| {
                    let pipelined = Pipelined {
                        thread,
                        client: table.client(),
                        clock: &clock,
                        outstanding: HashMap::new(),
                        done: Vec::new(),
                    };
                    scope.spawn(move || pipelined.run(seed))
                })
                .collect();
            let of_one = |thread: std::thread::ScopedJoinHandle<'_, Vec<_>>| thread.join().unwrap();
            threads.into_iter().flat_map(of_one).collect()
        });
        let history: History<u64, Op, Outcome> = History::new(operations);
        history.check(&MapEntry::new()).assert_linearizable();
    }
}

/// A replacement by one client, during which another one looks the key up at the given poll of the
/// server, and whether the history of that is linearizable. All on one thread.
fn is_linearizable(config: &Config, lookup_at: usize) -> bool {
    let table = CpHash::new(config, 0).unwrap();
    let mut server = table.server(|| ());
    let (mut reader, mut writer) = (table.client(), table.client());
    let mut stamp = 0;
    let mut operations = Vec::new();
    let mut outstanding: Vec<Option<CallRecord<u64, Op, Outcome>>> = vec![None, None];
    // The reader's lane is the first one that the server looks at.
    reader.submit(9, CacheRequest::Get(2.into())).unwrap();
    reader.flush();
    server.poll();
    reader.poll(|_, _| ());
    writer
        .submit(9, CacheRequest::Insert(1.into(), &bytes(1)))
        .unwrap();
    while writer.outstanding() > 0 {
        writer.poll(|_, _| ());
        server.poll();
    }
    operations.push(
        CallRecord::new(0, 1, EntryOp::Insert(1), stamp).returning(EntryOutcome::Silent, stamp + 1),
    );
    stamp += 2;
    outstanding[0] = Some(CallRecord::new(0, 1, EntryOp::Insert(2), stamp));
    writer
        .submit(0, CacheRequest::Insert(1.into(), &bytes(2)))
        .unwrap();
    for poll in 0..8 {
        stamp += 1;
        for client in [&mut writer, &mut reader] {
            client.poll(|token, reply| {
                stamp += 1;
                let operation = outstanding[token as usize].take().unwrap();
                operations.push(operation.returning(outcome_in(reply), stamp));
            });
        }
        if poll == lookup_at {
            stamp += 1;
            outstanding[1] = Some(CallRecord::new(1, 1, EntryOp::Get, stamp));
            reader.submit(1, CacheRequest::Get(1.into())).unwrap();
            reader.flush();
        }
        server.poll();
    }
    assert_eq!(operations.len(), 3);
    let history = History::new(operations);
    history.check(&MapEntry::new()).violation().is_none()
}

/// The paper removes the old element before the new one is complete, and tells the outcome before
/// the new one is visible. Neither is the default.
#[test]
fn what_the_paper_does_is_found_out() {
    let config = Config::new(BUDGET).partitions(1).pipeline(64);
    assert!((0..4).all(|poll| is_linearizable(&config, poll)));
    let config = config.inline_values(false);
    let all = |config: &Config| (0..4).all(|poll| is_linearizable(config, poll));
    assert!(all(&config));
    assert!(!all(&config.clone().replace(Replace::AtAllocation)));
    assert!(!all(&config.early_outcomes(true)));
}
