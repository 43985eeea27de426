//! What users may rely on beside linearizability. The first tests are the failures of the
//! `node-replication` crate (0.1.1 and 0.2):
//!
//! | what fails there | test |
//! |---|---|
//! | an operation that panics blocks the next writer for ever (0.1.1) | 1 |
//! | one panicking write poisons all later ones (0.2) | 1 |
//! | an idle replica stops writers once the log is full | 2 |
//! | thread 193 of a replica panics on its first read | 3 |
//! | a replica added after the log wrapped panics | 4 |
//! | a response that is not `Send` moves between threads | 5 |
//! | orderings that only x86 provides | 6 |
//! | replicas cannot join and leave (its issue 52) | 7 |
//! | writers wait for a slow reader (left-right, evmap) | 8 |
//!
//! 1. `an_operation_that_panics_harms_only_its_caller`
//! 2. `an_idle_replica_does_not_stop_writers`
//! 3. `more_threads_than_slots_use_a_replica`
//! 4. `stress.rs`: `threads_and_replicas_come_and_go_with_a_tiny_log`
//! 5. `ResponsesAreSent` of `src/compile_fail.rs`, and `responses_need_not_be_sync`
//! 6. the loom models of `models.table`, each with a mutant
//! 7. `replicas_join_and_leave`, and `stress.rs`
//! 8. `hostile.rs`: `the_memory_of_the_log_is_bounded_while_a_replica_is_idle_or_read`
#![cfg(not(any(corewise_loom, corewise_shuttle)))]

use crate::common;

use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Barrier, Weak};
use std::thread;

use common::{Dictionary, DictionaryWrite, Queue, QueueWrite, panics, scaled};
use corewise_nr::baseline::{FlatCombining, FlatCombiningPlus, ReadersWriterLocked, SpinLocked};
use corewise_nr::{
    BuildError, Builder, Concurrent, NodeReplicated, Operation, RemoveError, Sequential, TooMany,
};
use corewise_testkit::stress::together;
use corewise_topology::{Topology, allowed_cpus, run_on};

/// A counter that panics when it is told to, after it has counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Touchy(u64);

#[derive(Clone, Copy, Debug)]
enum TouchyWrite {
    Add(u64),
    AddAndPanic(u64),
}

impl Sequential for Touchy {
    type Read = bool;
    type Write = TouchyWrite;
    type Response = u64;

    fn read(&self, panics: &bool) -> u64 {
        assert!(!panics, "expected by the test");
        self.0
    }

    fn write(&mut self, operation: &TouchyWrite) -> u64 {
        match *operation {
            TouchyWrite::Add(more) => self.0 += more,
            TouchyWrite::AddAndPanic(more) => {
                self.0 += more;
                panic!("expected by the test");
            }
        }
        self.0
    }

    fn digest(&self) -> Option<u64> {
        Some(self.0)
    }
}

fn queue(replicas: usize, log: usize) -> NodeReplicated<Queue> {
    let builder = Builder::new().replicas(replicas).log(log).max_log(log);
    builder.build(|_| Queue::default()).unwrap()
}

#[test]
fn an_operation_that_panics_harms_only_its_caller() {
    for replicas in [1, 2] {
        let builder = Builder::new().replicas(replicas).compare_every(1);
        let shared = builder.build(|_| Touchy::default()).unwrap();
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    for _ in 0..10 {
                        assert!(panics(|| shared.write(TouchyWrite::AddAndPanic(1))));
                        assert!(shared.write(TouchyWrite::Add(1)) > 1);
                        assert!(panics(|| shared.read(&true)));
                    }
                });
            }
        });
        for id in shared.replicas() {
            // Replicas agree on what the panics left.
            assert_eq!(
                shared.handle(Some(id)).unwrap().read_with(Touchy::clone),
                Touchy(60)
            );
        }
        assert_eq!(shared.divergence(), None);
        let stats = shared.stats();
        assert!(
            stats.replicas.iter().all(|replica| replica.panics == 30),
            "{stats:?}"
        );
    }
}

#[test]
fn an_operation_that_panics_harms_only_its_caller_in_baselines() {
    fn check(shared: impl Concurrent<Touchy>) {
        let write = |operation| shared.execute(Operation::Write(operation));
        assert!(panics(|| write(TouchyWrite::AddAndPanic(2))));
        assert!(panics(|| shared.execute(Operation::Read(true))));
        thread::scope(|scope| {
            scope.spawn(|| assert_eq!(write(TouchyWrite::Add(1)), 3));
        });
        assert_eq!(shared.execute(Operation::Read(false)), 3);
    }
    check(SpinLocked::new(Touchy::default()));
    check(ReadersWriterLocked::new(Touchy::default()));
    check(FlatCombining::new(Touchy::default()));
    check(FlatCombiningPlus::new(Touchy::default()));
}

#[test]
fn an_idle_replica_does_not_stop_writers() {
    let shared = queue(2, 16);
    let [one, other] = shared.replicas()[..] else {
        unreachable!("there are two")
    };
    let writer = shared.handle(Some(one)).unwrap();
    for value in 0..1000 {
        writer.write(QueueWrite::Push(value));
    }
    let stats = shared.stats();
    // It was helped ahead of time: no writer has found the log full.
    assert_eq!(stats.replicas[0].full_log_waits, 0, "{stats:?}");
    assert!(
        stats.replicas[0].helped > 0 && stats.log_capacity == 16,
        "{stats:?}"
    );
    let reader = shared.handle(Some(other)).unwrap();
    assert_eq!(reader.read_with(|queue| queue.0.len()), 1000);
}

#[test]
fn more_threads_than_slots_use_a_replica() {
    let few = Builder::new().replicas(1).slots(2).shared_slots(2);
    for builder in [few, Builder::new().replicas(1)] {
        many_threads_use(&builder.build(|_| Queue::default()).unwrap());
    }
}

fn many_threads_use(shared: &NodeReplicated<Queue>) {
    let threads = scaled(200);
    let barrier = Barrier::new(threads as usize);
    together(threads, |value| {
        shared.read_with(|queue| queue.0.len());
        barrier.wait();
        shared.write(QueueWrite::Push(value));
        assert!(shared.read_with(|queue| queue.0.contains(&value)));
    });
    let values: BTreeSet<u64> = shared.read_with(|queue| queue.0.iter().copied().collect());
    assert_eq!(values, (0..threads).collect());
    assert_eq!(
        shared.stats().replicas[0].threads,
        1,
        "only this thread is left"
    );
}

#[test]
fn responses_need_not_be_sync() {
    #[derive(Clone)]
    struct Cells;
    impl Sequential for Cells {
        type Read = ();
        type Write = ();
        type Response = std::cell::Cell<u32>;
        fn read(&self, (): &()) -> Self::Response {
            1.into()
        }
        fn write(&mut self, (): &()) -> Self::Response {
            2.into()
        }
    }
    let shared = Builder::new().replicas(2).build(|_| Cells).unwrap();
    thread::scope(|scope| {
        scope.spawn(|| assert_eq!(shared.write(()).get(), 2));
    });
}

#[test]
fn an_operation_does_not_call_its_structure() {
    let shared = queue(2, 16);
    assert!(panics(
        || shared.read_with(|_| shared.write(QueueWrite::Pop))
    ));
    assert!(panics(|| shared.read_with(|_| shared.read_with(|_| ()))));
    let handle = shared.handle(None).unwrap();
    assert!(panics(|| shared.read_with(|_| handle.read_with(|_| ()))));
    assert!(panics(|| shared.read_with(|_| shared.add_replica(None))));
    // Another structure may be called.
    let other = queue(1, 16);
    assert_eq!(shared.read_with(|_| other.write(QueueWrite::Push(1))), None);
    assert_eq!(shared.write(QueueWrite::Push(3)), None);
}

#[test]
fn fake_updates_are_reads() {
    let shared = Builder::new()
        .replicas(2)
        .build(|_| Dictionary::default())
        .unwrap();
    assert_eq!(shared.write_or_read(DictionaryWrite::Remove(1)), None);
    assert_eq!(shared.stats().writes(), 0);
    shared.write(DictionaryWrite::Insert(1, 2));
    assert_eq!(shared.write_or_read(DictionaryWrite::Remove(1)), Some(2));
    assert_eq!(shared.stats().writes(), 2);
}

#[test]
fn a_dedicated_combiner_executes_the_writes_of_others() {
    let shared = queue(2, 64);
    let id = shared.replicas()[0];
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let combiner = scope.spawn(|| shared.combine_until(id, || stop.load(SeqCst)));
        let writers: Vec<_> = (0..3)
            .map(|_| {
                scope.spawn(|| {
                    let handle = shared.handle(Some(id)).unwrap();
                    (0..100).for_each(|value| _ = handle.write(QueueWrite::Push(value)));
                })
            })
            .collect();
        writers
            .into_iter()
            .for_each(|writer| writer.join().unwrap());
        stop.store(true, SeqCst);
        combiner.join().unwrap();
    });
    assert_eq!(shared.read_with(|queue| queue.0.len()), 300);
}

#[test]
fn replicas_join_and_leave() {
    let builder = Builder::new().replicas(1).max_replicas(2);
    let shared = builder.build(|_| Queue::default()).unwrap();
    let first = shared.replicas()[0];
    assert_eq!(shared.remove_replica(first), Err(RemoveError::Last));
    let second = shared.add_replica(None).unwrap();
    assert_eq!(shared.add_replica(None), Err(TooMany));
    let handle = shared.handle(Some(first)).unwrap();
    handle.write(QueueWrite::Push(1));
    assert_eq!(shared.remove_replica(first), Ok(()));
    assert_eq!(shared.remove_replica(first), Err(RemoveError::Gone));
    // The handle moves on.
    assert_eq!(handle.read_with(|queue| queue.0.len()), 1);
    assert_eq!(handle.replica(), second.number());
    assert!(shared.handle(Some(first)).is_err());
    let third = shared.add_replica(None).unwrap();
    assert_eq!(third.number(), first.number());
    assert!(third != first && shared.handle(Some(third)).is_ok());
}

#[test]
fn limits_are_checked() {
    let build = |builder: Builder| builder.build(|_| Queue::default()).err();
    let new = || Builder::new().replicas(1);
    assert_eq!(build(new().log(6)), Some(BuildError::Log));
    assert_eq!(build(new().log(2)), Some(BuildError::Log));
    assert_eq!(build(new().log(64).max_log(32)), Some(BuildError::Log));
    assert_eq!(build(new().log(16).max_batch(8)), Some(BuildError::Batch));
    assert_eq!(
        build(new().max_batch(4).min_batch(5)),
        Some(BuildError::Batch)
    );
    assert_eq!(build(new().slots(0)), Some(BuildError::Slots));
    assert_eq!(build(new().shared_slots(0)), Some(BuildError::Slots));
    assert_eq!(
        build(new().replicas(3).max_replicas(2)),
        Some(BuildError::Replicas)
    );
    assert_eq!(build(new().replicas(0)), Some(BuildError::Replicas));
    assert_eq!(build(new().log(16).max_batch(7).min_batch(7)), None);
}

/// A coupled structure (\[NR\] practical considerations): a table and an index that are changed
/// together, as one structure with combined operations.
#[derive(Clone, Default)]
struct Scores {
    by_member: HashMap<u64, u64>,
    by_score: BTreeSet<(u64, u64)>,
}

impl Sequential for Scores {
    type Read = u64;
    type Write = (u64, u64);
    type Response = Option<usize>;

    /// The rank of a member.
    fn read(&self, member: &u64) -> Option<usize> {
        let score = *self.by_member.get(member)?;
        Some(self.by_score.range(..(score, *member)).count())
    }

    fn write(&mut self, &(member, score): &(u64, u64)) -> Option<usize> {
        if let Some(old) = self.by_member.insert(member, score) {
            self.by_score.remove(&(old, member));
        }
        self.by_score.insert((score, member));
        self.read(&member)
    }
}

#[test]
fn coupled_structures_change_together() {
    let shared = Builder::new()
        .replicas(2)
        .log(16)
        .build(|_| Scores::default())
        .unwrap();
    thread::scope(|scope| {
        for member in 0..3 {
            let shared = &shared;
            scope.spawn(move || {
                for score in 0..scaled(200) {
                    assert!(shared.write((member, score * 7 % 11)).is_some());
                    shared.read_with(|scores| {
                        assert_eq!(scores.by_member.len(), scores.by_score.len());
                        let is_indexed = |(&member, &score): (&u64, &u64)| {
                            scores.by_score.contains(&(score, member))
                        };
                        assert!(scores.by_member.iter().all(is_indexed));
                    });
                }
            });
        }
    });
}

type WithCallbacks = NodeReplicated<Callbacks>;

/// Counts writes.
#[derive(Clone, Default)]
struct Callbacks(u64);

/// Writes and reads when it is dropped, if it has a structure.
struct Callback {
    shared: Weak<WithCallbacks>,
    /// Callbacks that have written, and all that tried to.
    counts: Arc<[AtomicUsize; 2]>,
}

impl Callback {
    fn silent() -> Self {
        Self {
            shared: Weak::new(),
            counts: Arc::default(),
        }
    }
}

impl Drop for Callback {
    fn drop(&mut self) {
        let Some(shared) = self.shared.upgrade() else {
            return;
        };
        self.counts[1].fetch_add(1, SeqCst);
        let before = shared.read_with(|callbacks| callbacks.0);
        assert!(shared.write((Self::silent(), false)).0 > before);
        self.counts[0].fetch_add(1, SeqCst);
    }
}

impl Sequential for Callbacks {
    type Read = ();
    type Write = (Callback, bool);
    /// The writes so far, and another callback if the operation asks for it.
    type Response = (u64, Option<Callback>);
    fn read(&self, (): &()) -> Self::Response {
        (self.0, None)
    }
    fn write(&mut self, (callback, has_response): &Self::Write) -> Self::Response {
        self.0 += 1;
        let response = || Callback {
            shared: callback.shared.clone(),
            counts: callback.counts.clone(),
        };
        (self.0, has_response.then(response))
    }
}

/// Destructors of operations and responses may call the structure, wherever their values end:
/// operations when their entry of the log is used again, responses at other replicas while the
/// log is executed. The latter is nested, so it gets a panic, which is swallowed.
#[test]
fn destructors_may_call_the_structure() {
    for (replicas, is_direct) in [(1, true), (1, false), (2, true)] {
        let builder = Builder::new().replicas(replicas).log(4).max_log(4);
        let built = builder
            .bypass_single(is_direct)
            .build(|_| Callbacks::default());
        let shared = Arc::new(built.unwrap());
        let counts: Arc<[AtomicUsize; 2]> = Arc::default();
        let each = scaled(40) as usize;
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    for turn in 0..each {
                        let callback = Callback {
                            shared: Arc::downgrade(&shared),
                            counts: counts.clone(),
                        };
                        // The response is dropped here, after the call.
                        drop(shared.write((callback, turn % 2 == 0)));
                    }
                });
            }
        });
        let [written, tried] = [0, 1].map(|it| counts[it].load(SeqCst));
        let writes = shared.read_with(|callbacks| callbacks.0) as usize;
        assert_eq!(writes, 3 * each + written);
        // All callbacks of operations are done, except those that are still in the log, and one
        // callback of each response; the others were refused.
        let responses = 3 * each.div_ceil(2);
        assert!((3 * each + responses - 4..=3 * each + responses).contains(&written));
        assert_eq!(tried > written, replicas == 2, "{written} of {tried}");
    }
}

/// A structure may borrow, and threads may outlive it.
#[test]
fn a_structure_may_borrow() {
    let names = [String::from("one"), String::from("two")];
    struct Names<'a>(Vec<&'a str>);
    impl<'a> Sequential for Names<'a> {
        type Read = usize;
        type Write = &'a str;
        type Response = Option<&'a str>;
        fn read(&self, place: &usize) -> Option<&'a str> {
            self.0.get(*place).copied()
        }
        fn write(&mut self, name: &&'a str) -> Option<&'a str> {
            self.0.push(name);
            Some(name)
        }
    }
    let shared = NodeReplicated::new(|_| Names(Vec::new()));
    names.iter().for_each(|name| _ = shared.write(name));
    assert_eq!(shared.execute(Operation::Read(1)), Some("two"));
}

/// Records on which CPUs its thread might run whenever it was made or copied.
struct Placed(Vec<Option<Vec<usize>>>);

impl Clone for Placed {
    fn clone(&self) -> Self {
        let mut all = self.0.clone();
        all.push(allowed_cpus());
        Self(all)
    }
}

impl Sequential for Placed {
    type Read = ();
    type Write = ();
    type Response = ();
    fn read(&self, (): &()) {}
    fn write(&mut self, (): &()) {}
}

#[test]
fn replicas_are_made_on_their_nodes() {
    let before = allowed_cpus();
    let machine = Topology::detect();
    let last = machine.allowed().last().unwrap().id;
    // What a thread sees that runs on the node; the system may refuse.
    let there = run_on(&[last], allowed_cpus);
    let builder = Builder::new().nodes(vec![vec![last], Vec::new()]);
    let built = builder.build(|_| Placed(vec![allowed_cpus()])).unwrap();
    let placed = |id| {
        built
            .handle(Some(id))
            .unwrap()
            .read_with(|data| data.0.clone())
    };
    let ids = built.replicas();
    assert_eq!(placed(ids[0]).first(), Some(&there));
    assert_eq!(placed(ids[1]).first(), Some(&before)); // a node without CPUs
    let joined = built.add_replica(Some(0)).unwrap();
    assert_eq!(placed(joined).last(), Some(&there));
    let anywhere = built.add_replica(None).unwrap();
    assert_eq!(placed(anywhere).last(), Some(&before));
    built.combine_until(ids[0], || {
        assert_eq!(allowed_cpus(), there);
        true
    });
    assert_eq!(allowed_cpus(), before);
    let stats = built.stats();
    let nodes: Vec<_> = stats.replicas.iter().map(|replica| replica.node).collect();
    assert_eq!(nodes, [Some(0), Some(1), Some(0), None]);
}

#[test]
fn any_number_may_be_the_node_of_a_replica() {
    let largest = u32::MAX as usize;
    for (number, node) in [
        (7, Some(7)),
        (largest - 2, Some(largest - 2)),
        (largest - 1, None),
        (largest, None),
        (largest + 1, None),
        (usize::MAX, None),
    ] {
        let built = Builder::new()
            .replicas(1)
            .build(|_| Placed(Vec::new()))
            .unwrap();
        let first = built.replicas()[0];
        built.add_replica(Some(number)).unwrap();
        built.remove_replica(first).unwrap();
        built.write(());
        assert_eq!(built.stats().replicas[0].node, node, "{number}");
    }
}

#[test]
fn stats_say_how_far_replicas_are() {
    let built = queue(2, 8);
    let ids = built.replicas();
    let one = built.handle(Some(ids[0])).unwrap();
    one.write(QueueWrite::Push(1));
    let applied = || {
        built
            .stats()
            .replicas
            .iter()
            .map(|it| it.applied)
            .collect::<Vec<_>>()
    };
    let [ahead, behind] = applied()[..] else {
        panic!("two replicas")
    };
    assert_eq!(ahead, behind + 1);
    built.refresh();
    assert_eq!(applied(), [ahead, ahead]);
}
