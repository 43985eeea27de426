//! Recorded histories of several threads, checked for linearizability: a queue, a priority queue, a
//! dictionary and a sorted set, with 1, 2 and 4 replicas, while the log grows, while replicas join
//! and leave, and for the baselines.
#![cfg(not(any(corewise_loom, corewise_shuttle)))]

use crate::common;

use std::fmt::Debug;
use std::ops::{Bound, RangeBounds};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Barrier, Mutex, mpsc};
use std::thread;

use common::{Dictionary, DictionaryWrite, Queue, QueueWrite, Random, scaled};
use corewise_nr::baseline::{
    Batch, Combine, FlatCombining, FlatCombiningPlus, ReadersWriterLocked, SpinLocked,
};
use corewise_nr::sorted_set::{Conditions, Direction, Inserted, operation as set};
use corewise_nr::structures::priority_queue::{self as priority, SkipListQueue};
use corewise_nr::{Builder, Concurrent, NodeReplicated, Operation, Sequential, SortedSet};
use corewise_testkit::history::models::{EntryOp, EntryOutcome, MapEntry};
use corewise_testkit::history::{History, Model, Recorder, Recording, Verdict};

const THREADS: u64 = 4;
const KEYS: u64 = 3;

/// Operations of a thread in a history.
fn operations() -> u64 {
    scaled(400)
}

type Op = EntryOp<u64>;
type Outcome = EntryOutcome<u64>;

/// A structure that records the operations of a thread.
trait Recorded: Sequential + Clone + Default {
    type Op: Send;
    type Outcome: Send;
    /// Operations of a [turn](Self::turn).
    const TURN: u64 = 1;
    /// After this number of turns the threads wait for each other, and one empties the structure.
    const ROUND: u64 = u64::MAX;
    /// Calls a few operations; no two calls have the same `fresh`. `round` counts the times that
    /// the structure was emptied.
    fn turn(
        structure: &impl Concurrent<Self>,
        random: &mut Random,
        round_and_fresh: (u64, u64),
        recorder: &mut Recorder<u64, Self::Op, Self::Outcome>,
    );
    fn empty(_: &impl Concurrent<Self>, _: u64, _: &mut Recorder<u64, Self::Op, Self::Outcome>) {}
    fn check(history: &History<u64, Self::Op, Self::Outcome>) -> Verdict;
}

/// Declares a model whose operations have one outcome in each state, which `execute` returns.
/// Those of the pattern `$reads` only read.
macro_rules! model {
    ($model:ident, $state:ty, $op:ty, $outcome:ty, $reads:pat) => {
        struct $model;

        impl Model for $model {
            type State = $state;
            type Op = $op;
            type Outcome = $outcome;

            fn initial(&self) -> $state {
                Default::default()
            }

            fn step(&self, state: &$state, op: &$op, outcome: &$outcome) -> Option<$state> {
                let mut state = state.clone();
                (Self::execute(&mut state, op) == *outcome).then_some(state)
            }

            fn pending(&self, state: &$state, op: &$op) -> Vec<$state> {
                let mut state = state.clone();
                Self::execute(&mut state, op);
                vec![state]
            }

            fn only_reads(&self, op: &$op, _: &$outcome) -> bool {
                matches!(op, $reads)
            }
        }
    };
}

/// The items in a random order.
fn shuffled<T, const N: usize>(mut items: [T; N], random: &mut Random) -> [T; N] {
    for last in (1..N).rev() {
        items.swap(last, random.below(last as u64 + 1) as usize);
    }
    items
}

impl Recorded for Dictionary {
    type Op = Op;
    type Outcome = Outcome;

    fn turn(
        structure: &impl Concurrent<Self>,
        random: &mut Random,
        (_, fresh): (u64, u64),
        recorder: &mut Recorder<u64, Op, Outcome>,
    ) {
        let key = random.below(KEYS);
        let (op, operation) = match random.below(8) {
            0 | 1 => {
                let write = DictionaryWrite::Insert(key, fresh);
                (Op::Insert(fresh), Operation::Write(write))
            }
            2 => (Op::Remove, Operation::Write(DictionaryWrite::Remove(key))),
            3 => {
                let write = DictionaryWrite::Increment(Box::new(key));
                (Op::Update, Operation::Write(write))
            }
            _ => (Op::Get, Operation::Read(key)),
        };
        recorder.record(key, op.clone(), || {
            let held = structure.execute(operation);
            match op {
                Op::Update => Outcome::Updated {
                    old: held,
                    new: held.map(|held| held + 1),
                },
                _ => Outcome::Held(held),
            }
        });
    }

    fn check(history: &History<u64, Op, Outcome>) -> Verdict {
        history.check(&MapEntry::new())
    }
}

/// What a thread does with a queue.
#[derive(Clone, Copy, Debug)]
enum QueueOp {
    Write(QueueWrite),
    Front,
}

impl QueueOp {
    fn record(
        self,
        structure: &impl Concurrent<Queue>,
        recorder: &mut Recorder<u64, Self, Option<u64>>,
    ) -> Option<u64> {
        *recorder.record(0, self, || match self {
            Self::Write(write) => structure.execute(Operation::Write(write)),
            Self::Front => structure.execute(Operation::Read(())),
        })
    }
}

model! { QueueModel, Vec<u64>, QueueOp, Option<u64>, QueueOp::Front }

impl QueueModel {
    fn execute(state: &mut Vec<u64>, op: &QueueOp) -> Option<u64> {
        match *op {
            QueueOp::Write(QueueWrite::Push(value)) => {
                state.push(value);
                None
            }
            QueueOp::Write(QueueWrite::Pop) => (!state.is_empty()).then(|| state.remove(0)),
            QueueOp::Front => state.first().copied(),
        }
    }
}

impl Recorded for Queue {
    type Op = QueueOp;
    type Outcome = Option<u64>;

    // The order of pushes that overlap is open until their values are popped, and the checker
    // keeps each possible order. With two pushes a thread between two moments at which the queue
    // is empty there are at most 8! / 2!^4 = 2,520 of them, whatever the scheduler does.
    const TURN: u64 = 4;
    const ROUND: u64 = 2;

    fn turn(
        structure: &impl Concurrent<Self>,
        random: &mut Random,
        (_, fresh): (u64, u64),
        recorder: &mut Recorder<u64, QueueOp, Option<u64>>,
    ) {
        let ops = [
            QueueOp::Write(QueueWrite::Push(fresh)),
            QueueOp::Write(QueueWrite::Pop),
            QueueOp::Write(QueueWrite::Pop),
            QueueOp::Front,
        ];
        for op in shuffled(ops, random) {
            op.record(structure, recorder);
        }
    }

    fn empty(
        structure: &impl Concurrent<Self>,
        _: u64,
        recorder: &mut Recorder<u64, QueueOp, Option<u64>>,
    ) {
        while QueueOp::Front.record(structure, recorder).is_some() {
            QueueOp::Write(QueueWrite::Pop).record(structure, recorder);
        }
    }

    fn check(history: &History<u64, QueueOp, Option<u64>>) -> Verdict {
        history.check(&QueueModel)
    }
}

/// What a thread does with a priority queue.
#[derive(Clone, Copy, Debug)]
enum PriorityOp {
    Write(priority::Write<u64>),
    Min,
}

impl PriorityOp {
    fn record(
        self,
        structure: &impl Concurrent<SkipListQueue<u64>>,
        recorder: &mut Recorder<u64, Self, priority::Response<u64>>,
    ) -> priority::Response<u64> {
        *recorder.record(0, self, || match self {
            Self::Write(write) => structure.execute(Operation::Write(write)),
            Self::Min => structure.execute(Operation::Read(priority::Read::Min)),
        })
    }
}

model! { PriorityModel, Vec<u64>, PriorityOp, priority::Response<u64>, PriorityOp::Min }

/// A sorted array of keys, no two of which are equal.
impl PriorityModel {
    fn execute(keys: &mut Vec<u64>, op: &PriorityOp) -> priority::Response<u64> {
        match *op {
            PriorityOp::Write(priority::Write::Insert(key)) => {
                keys.insert(keys.partition_point(|&other| other < key), key);
                priority::Response::Inserted
            }
            PriorityOp::Write(priority::Write::RemoveMin) => {
                priority::Response::Key((!keys.is_empty()).then(|| keys.remove(0)))
            }
            PriorityOp::Min => priority::Response::Key(keys.first().copied()),
        }
    }
}

impl Recorded for SkipListQueue<u64> {
    type Op = PriorityOp;
    type Outcome = priority::Response<u64>;

    // The keys present are those inserted less those returned, whatever the order of the operations
    // that are done. So each set of done operations has one state, and while no more than four
    // operations overlap, a step has at most 2^4 = 16 configurations. Rounds keep the arrays of the
    // model short.
    const TURN: u64 = 4;
    const ROUND: u64 = 8;

    fn turn(
        structure: &impl Concurrent<Self>,
        random: &mut Random,
        (_, fresh): (u64, u64),
        recorder: &mut Recorder<u64, PriorityOp, Self::Outcome>,
    ) {
        let key = random.below(KEYS) << 32 | fresh;
        let ops = [
            PriorityOp::Write(priority::Write::Insert(key)),
            PriorityOp::Write(priority::Write::RemoveMin),
            PriorityOp::Write(match random.below(2) {
                0 => priority::Write::Insert(key + 1),
                _ => priority::Write::RemoveMin,
            }),
            PriorityOp::Min,
        ];
        for op in shuffled(ops, random) {
            op.record(structure, recorder);
        }
    }

    fn empty(
        structure: &impl Concurrent<Self>,
        _: u64,
        recorder: &mut Recorder<u64, PriorityOp, Self::Outcome>,
    ) {
        while PriorityOp::Min.record(structure, recorder) != priority::Response::Key(None) {
            PriorityOp::Write(priority::Write::RemoveMin).record(structure, recorder);
        }
    }

    fn check(history: &History<u64, PriorityOp, Self::Outcome>) -> Verdict {
        history.check(&PriorityModel)
    }
}

/// What a thread does with a sorted set.
#[derive(Clone, Debug)]
enum SetOp {
    Read(set::Read),
    Write(set::Write),
}

impl SetOp {
    fn record(
        self,
        structure: &impl Concurrent<SortedSet>,
        round: u64,
        recorder: &mut Recorder<u64, Self, set::Response>,
    ) {
        recorder.record(round, self.clone(), || {
            structure.execute(match self {
                Self::Read(read) => Operation::Read(read),
                Self::Write(write) => Operation::Write(write),
            })
        });
    }
}

const MEMBERS: u64 = 3;
/// Insertions set scores below this.
const SCORES: u64 = 3;

fn member(number: u64) -> Box<[u8]> {
    [number as u8].into()
}

type SetState = [Option<i64>; MEMBERS as usize];

model! { SetModel, SetState, SetOp, set::Response, SetOp::Read(_) }

/// An array of the members' scores, which is sorted when an order is needed.
impl SetModel {
    fn entries(state: &SetState) -> Vec<set::ScoredMember> {
        let present = (0..MEMBERS).filter_map(|it| Some((state[it as usize]?, it)));
        let mut sorted: Vec<(i64, u64)> = present.collect();
        sorted.sort_unstable();
        let entry = |(score, it)| (member(it), score as f64);
        sorted.into_iter().map(entry).collect()
    }

    fn is_within(bounds: &set::OwnedBounds, score: i64) -> bool {
        let set::OwnedBounds::Score(lower, upper) = bounds else {
            unreachable!("the test has no other bounds")
        };
        (*lower, *upper).contains(&(score as f64))
    }

    fn read(state: &SetState, read: &set::Read) -> set::Response {
        let entries = Self::entries(state);
        match read {
            set::Read::Len => set::Response::Count(entries.len()),
            set::Read::Score(member) => {
                set::Response::Score(state[member[0] as usize].map(|score| score as f64))
            }
            set::Read::Rank(member, _) => {
                let rank = entries.iter().position(|(other, _)| other == member);
                set::Response::Rank(rank.map(|rank| (rank, entries[rank].1)))
            }
            set::Read::Count(bounds) => {
                let scores = state.iter().flatten();
                let within = scores.filter(|&&score| Self::is_within(bounds, score));
                set::Response::Count(within.count())
            }
            set::Read::Range { limit, .. } => {
                set::Response::Entries(entries.into_iter().take(*limit).collect())
            }
            other => unreachable!("the test has no {other:?}"),
        }
    }

    fn write(state: &mut SetState, write: &set::Write) -> set::Response {
        match write {
            set::Write::Insert { member, score, .. } => {
                let old = state[member[0] as usize].replace(*score as i64);
                set::Response::Inserted(Ok(match old {
                    None => Inserted::Added,
                    Some(old) if old == *score as i64 => Inserted::Unchanged,
                    Some(old) => Inserted::Changed { old: old as f64 },
                }))
            }
            set::Write::Increment { member, delta, .. } => {
                let score = state[member[0] as usize].unwrap_or(0) + *delta as i64;
                state[member[0] as usize] = Some(score);
                set::Response::Incremented(Ok(Some(score as f64)))
            }
            set::Write::Remove(member) => {
                let old = state[member[0] as usize].take();
                set::Response::Score(old.map(|score| score as f64))
            }
            set::Write::RemoveRange(bounds) => {
                let is_within =
                    |score: &Option<i64>| score.is_some_and(|score| Self::is_within(bounds, score));
                let within = state.iter_mut().filter(|score| is_within(score));
                set::Response::Count(within.map(|score| *score = None).count())
            }
            set::Write::Pop { count, .. } => {
                let mut popped = Self::entries(state);
                popped.truncate(*count);
                for (member, _) in &popped {
                    state[member[0] as usize] = None;
                }
                set::Response::Entries(popped)
            }
            set::Write::Clear => {
                let count = state.iter().flatten().count();
                *state = SetState::default();
                set::Response::Count(count)
            }
        }
    }

    fn execute(state: &mut SetState, op: &SetOp) -> set::Response {
        match op {
            SetOp::Read(read) => Self::read(state, read),
            SetOp::Write(write) => Self::write(state, write),
        }
    }
}

impl Recorded for SortedSet {
    type Op = SetOp;
    type Outcome = set::Response;

    // Each round is a history under its key, which begins and ends with an empty set. In a
    // round a thread calls four operations, one of them an increment by one. So no score is above
    // SCORES - 1 + 4 = 6, there are at most 8^3 = 512 states, and at most 5^4 = 625 sets of
    // operations that are done: less than 320,000 configurations, whatever the scheduler does,
    // where the checker allows 4 million.
    const TURN: u64 = 4;
    const ROUND: u64 = 1;

    fn turn(
        structure: &impl Concurrent<Self>,
        random: &mut Random,
        (round, _): (u64, u64),
        recorder: &mut Recorder<u64, SetOp, set::Response>,
    ) {
        let mut any = || member(random.below(MEMBERS));
        let (incremented, inserted, removed, looked_up) = (any(), any(), any(), any());
        let score = random.below(SCORES) as f64;
        let bounds = set::OwnedBounds::Score(Bound::Excluded(0.0), Bound::Included(score + 1.0));
        let conditions = Conditions::default();
        let direction = Direction::Ascending;
        let ops = [
            SetOp::Write(set::Write::Increment {
                member: incremented,
                delta: 1.0,
                conditions,
            }),
            SetOp::Write(set::Write::Insert {
                member: inserted,
                score,
                conditions,
            }),
            SetOp::Write(match random.below(4) {
                0 => set::Write::Pop {
                    direction,
                    count: 1,
                },
                1 => set::Write::RemoveRange(bounds.clone()),
                _ => set::Write::Remove(removed),
            }),
            SetOp::Read(match random.below(4) {
                0 => set::Read::Count(bounds),
                1 => set::Read::Score(looked_up),
                2 => set::Read::Rank(looked_up, direction),
                _ => set::Read::Range {
                    bounds: set::OwnedBounds::Rank(0, -1),
                    direction,
                    offset: 0,
                    limit: MEMBERS as usize,
                },
            }),
        ];
        for op in shuffled(ops, random) {
            op.record(structure, round, recorder);
        }
    }

    fn empty(
        structure: &impl Concurrent<Self>,
        round: u64,
        recorder: &mut Recorder<u64, SetOp, set::Response>,
    ) {
        SetOp::Write(set::Write::Clear).record(structure, round, recorder);
        SetOp::Read(set::Read::Len).record(structure, round, recorder);
    }

    fn check(history: &History<u64, SetOp, set::Response>) -> Verdict {
        history.check(&SetModel)
    }
}

/// Lets other threads run before it executes an operation if it is `late`.
struct Late<'a, S> {
    structure: &'a S,
    late: bool,
}

impl<D: Sequential, S: Concurrent<D>> Concurrent<D> for Late<'_, S> {
    fn execute(&self, operation: Operation<D>) -> D::Response {
        if self.late {
            thread::yield_now();
        }
        self.structure.execute(operation)
    }
}

/// Calls and records `operations` of a thread, which `wait`s for the others before and after one
/// of them empties the structure.
fn work<D: Recorded>(
    structure: &impl Concurrent<D>,
    operations: u64,
    (seed, number): (u64, u64),
    mut recorder: Recorder<u64, D::Op, D::Outcome>,
    wait: impl Fn(),
) {
    let mut random = Random::from_seed(seed << 8 | number);
    for turn in 0..operations / D::TURN {
        // The number of the round that ends, or goes on.
        let its = turn / D::ROUND;
        if turn % D::ROUND == D::ROUND - 1 {
            wait();
            if number == 0 {
                D::empty(structure, its, &mut recorder);
            }
            wait();
        }
        let its = (turn + 1) / D::ROUND;
        // No two writes have the same value, apart from increments.
        let fresh = (turn * THREADS + number) << 16;
        let late = random.below(16) == 0;
        let structure = Late { structure, late };
        D::turn(&structure, &mut random, (its, fresh), &mut recorder);
    }
}

/// Records threads that use a structure while another repeats `meanwhile`, and checks the history.
fn check<D: Recorded, S: Concurrent<D>>(
    seed: u64,
    structure: &S,
    mut meanwhile: impl FnMut() + Send,
) {
    let recording = Recording::new();
    let (start, stop) = (Barrier::new(THREADS as usize + 1), AtomicBool::new(false));
    let round = Barrier::new(THREADS as usize);
    thread::scope(|scope| {
        let workers: Vec<_> = (0..THREADS)
            .map(|number| {
                // Twice as much: room for the operations that empty the structure.
                let recorder = recording.recorder(2 * operations() as usize);
                let (start, round) = (&start, &round);
                scope.spawn(move || {
                    start.wait();
                    let wait = || _ = round.wait();
                    work(structure, operations(), (seed, number), recorder, wait);
                })
            })
            .collect();
        scope.spawn(|| {
            start.wait();
            while !stop.load(Relaxed) {
                meanwhile();
                thread::yield_now();
            }
        });
        let done: Vec<_> = workers.into_iter().map(|worker| worker.join()).collect();
        stop.store(true, Relaxed);
        assert!(done.iter().all(Result::is_ok), "a thread has panicked");
    });
    D::check(&recording.finish().expect("all recorders are back")).assert_linearizable();
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    None,
    /// Reads miss the last write, as at a replica that is behind.
    StaleRead,
    /// One write in [`WRITES_PER_FAULT`] takes no effect.
    LostWrite,
    /// One write in [`WRITES_PER_FAULT`] is executed again.
    RepeatedWrite,
}

const WRITES_PER_FAULT: u64 = 5;
/// Operations in a history that shows a fault.
const FAULTY_OPERATIONS: u64 = 200;

/// A structure that is wrong if it has a fault.
struct Faulty<D> {
    fault: Fault,
    state: Mutex<FaultyState<D>>,
}

#[derive(Default)]
struct FaultyState<D> {
    before: D,
    now: D,
    writes: u64,
}

impl<D: Recorded> Concurrent<D> for Faulty<D> {
    fn execute(&self, operation: Operation<D>) -> D::Response {
        let mut state = self.state.lock().unwrap();
        let operation = match operation {
            Operation::Read(operation) if self.fault == Fault::StaleRead => {
                return state.before.read(&operation);
            }
            Operation::Read(operation) => return state.now.read(&operation),
            Operation::Write(operation) => operation,
        };
        state.before = state.now.clone();
        state.writes += 1;
        let response = state.now.write(&operation);
        match self.fault {
            Fault::LostWrite if state.writes.is_multiple_of(WRITES_PER_FAULT) => {
                state.now = state.before.clone();
            }
            Fault::RepeatedWrite if state.writes.is_multiple_of(WRITES_PER_FAULT) => {
                state.now.write(&operation);
            }
            _ => {}
        }
        response
    }
}

/// Records one thread, so that nothing depends on a schedule.
fn faults_are_found<D: Recorded>() {
    for fault in [
        Fault::None,
        Fault::StaleRead,
        Fault::LostWrite,
        Fault::RepeatedWrite,
    ] {
        let state = Mutex::new(FaultyState::default());
        let recording = Recording::new();
        let recorder = recording.recorder(0);
        let structure = Faulty { fault, state };
        work::<D>(&structure, FAULTY_OPERATIONS, (1, 0), recorder, || ());
        let verdict = D::check(&recording.finish().expect("the recorder is back"));
        let is_found = verdict.violation().is_some();
        assert_eq!(is_found, fault != Fault::None, "{fault:?}");
    }
}

#[test]
fn histories_show_faults() {
    faults_are_found::<Dictionary>();
    faults_are_found::<Queue>();
    faults_are_found::<SkipListQueue<u64>>();
    faults_are_found::<SortedSet>();
}

/// All replicas have the same data.
fn assert_equal_replicas<D: Recorded + Debug>(shared: &NodeReplicated<D>) {
    let read = |id| shared.handle(Some(id)).unwrap().read_with(D::clone);
    let all: Vec<D> = shared.replicas().into_iter().map(read).collect();
    let digests: Vec<u64> = all.iter().map(|data| data.digest().unwrap()).collect();
    assert!(digests.iter().all(|&it| it == digests[0]), "{all:?}");
    assert_eq!(shared.divergence(), None);
}

fn replicas_are_linearizable<D: Recorded + Debug>() {
    for (replicas, log, is_direct) in [
        (1, 1024, true),
        (1, 16, false),
        (2, 1024, true),
        (2, 8, true),
        (4, 16, true),
    ] {
        let builder = Builder::new().replicas(replicas).log(log);
        let builder = builder.bypass_single(is_direct).compare_every(7);
        let shared = builder.build(|_| D::default()).unwrap();
        check(replicas as u64, &shared, || ());
        assert_equal_replicas(&shared);
        let stats = shared.stats();
        let is_logged = stats.log_index > 1;
        assert_eq!(is_logged, replicas > 1 || !is_direct, "{stats:?}");
    }
}

#[test]
fn a_dictionary_is_linearizable() {
    replicas_are_linearizable::<Dictionary>();
}

#[test]
fn a_queue_is_linearizable() {
    replicas_are_linearizable::<Queue>();
}

#[test]
fn a_priority_queue_is_linearizable() {
    replicas_are_linearizable::<SkipListQueue<u64>>();
}

#[test]
fn a_sorted_set_is_linearizable() {
    replicas_are_linearizable::<SortedSet>();
}

fn histories_are_linearizable_while_the_log_grows<D: Recorded + Debug>(largest: usize) {
    for seed in 0..3 {
        let builder = Builder::new().replicas(2).log(4).max_log(largest);
        let shared = builder.compare_every(5).build(|_| D::default()).unwrap();
        let last = shared.replicas()[1];
        let capacity = || shared.stats().log_capacity;
        thread::scope(|scope| {
            let (inside, entered) = mpsc::channel();
            let (shared, capacity) = (&shared, &capacity);
            scope.spawn(move || {
                let reader = shared.handle(Some(last)).unwrap();
                // The replica falls behind until others find the log full. At least two threads use
                // the other replica, and call more than four writes before they wait for these.
                reader.read_with(|_| {
                    inside.send(()).unwrap();
                    while capacity() == 4 {
                        thread::yield_now();
                    }
                });
            });
            entered.recv().unwrap();
            let reader = shared.handle(Some(last)).unwrap();
            check(seed, shared, move || {
                let before = capacity();
                if before < largest {
                    // Not until it has grown: the threads may wait for one that waits for us.
                    let mut looks = 0..20;
                    reader
                        .read_with(|_| looks.any(|_| (thread::yield_now(), capacity()).1 > before));
                }
            });
        });
        assert!(capacity() > 4);
        assert_equal_replicas(&shared);
    }
}

#[test]
fn a_dictionary_is_linearizable_while_the_log_grows() {
    histories_are_linearizable_while_the_log_grows::<Dictionary>(64);
}

#[test]
fn queues_are_linearizable_while_the_log_grows() {
    // Two threads call at least twelve writes in a round.
    histories_are_linearizable_while_the_log_grows::<Queue>(16);
    histories_are_linearizable_while_the_log_grows::<SkipListQueue<u64>>(16);
}

#[test]
fn a_sorted_set_is_linearizable_while_the_log_grows() {
    // A round has too few writes to fill a larger log while the other replica is behind.
    histories_are_linearizable_while_the_log_grows::<SortedSet>(8);
}

fn histories_are_linearizable_while_replicas_come_and_go<D: Recorded + Debug>() {
    for seed in 0..3 {
        let builder = Builder::new().replicas(1 + seed as usize).log(8);
        let builder = builder.max_replicas(4).compare_every(5);
        let shared = builder.build(|_| D::default()).unwrap();
        let mut random = Random::from_seed(seed);
        check(seed, &shared, || {
            let live = shared.replicas();
            let one = live[random.below(live.len() as u64) as usize];
            if random.below(2) == 0 {
                let added = shared.add_replica(None);
                assert_eq!(added.is_err(), live.len() == 4);
            } else {
                let removed = shared.remove_replica(one);
                assert_eq!(removed.is_err(), live.len() == 1);
            }
        });
        assert_equal_replicas(&shared);
    }
}

#[test]
fn a_dictionary_is_linearizable_while_replicas_come_and_go() {
    histories_are_linearizable_while_replicas_come_and_go::<Dictionary>();
}

#[test]
fn a_queue_is_linearizable_while_replicas_come_and_go() {
    histories_are_linearizable_while_replicas_come_and_go::<Queue>();
}

#[test]
fn a_priority_queue_is_linearizable_while_replicas_come_and_go() {
    histories_are_linearizable_while_replicas_come_and_go::<SkipListQueue<u64>>();
}

#[test]
fn a_sorted_set_is_linearizable_while_replicas_come_and_go() {
    histories_are_linearizable_while_replicas_come_and_go::<SortedSet>();
}

/// Removes an element for each pop in one pass, and answers the pushes afterwards.
impl Combine for Queue {
    fn combine(&mut self, batch: &mut Batch<Self>) {
        let is_pop = |place: &usize| {
            let operation = batch.operation(*place);
            matches!(operation, Operation::Write(QueueWrite::Pop))
        };
        let pops: Vec<usize> = (0..batch.len()).filter(is_pop).collect();
        let present = pops.len().min(self.0.len());
        let mut popped = self.0.drain(..present);
        for place in pops {
            batch.answer(place, popped.next());
        }
    }
}

#[test]
fn baselines_are_linearizable() {
    fn queue(structure: impl Concurrent<Queue>) {
        check(1, &structure, || ());
    }
    fn dictionary(structure: impl Concurrent<Dictionary>) {
        check(2, &structure, || ());
    }
    queue(SpinLocked::new(Queue::default()));
    queue(ReadersWriterLocked::new(Queue::default()));
    queue(FlatCombining::new(Queue::default()));
    queue(FlatCombining::with_combining(Queue::default()));
    queue(FlatCombiningPlus::new(Queue::default()));
    dictionary(SpinLocked::new(Dictionary::default()));
    dictionary(ReadersWriterLocked::new(Dictionary::default()));
    dictionary(FlatCombining::new(Dictionary::default()));
    dictionary(FlatCombiningPlus::new(Dictionary::default()));
    fn sorted_set(structure: impl Concurrent<SortedSet>) {
        check(3, &structure, || ());
    }
    sorted_set(ReadersWriterLocked::new(SortedSet::default()));
    sorted_set(FlatCombiningPlus::new(SortedSet::default()));
    sorted_set(FlatCombining::with_combining(SortedSet::default()));
    fn priority_queue(structure: impl Concurrent<SkipListQueue<u64>>) {
        check(4, &structure, || ());
    }
    priority_queue(FlatCombining::with_combining(SkipListQueue::new()));
    priority_queue(FlatCombiningPlus::with_combining(SkipListQueue::new()));
}
