//! Code of users that panics or calls back wherever a structure calls it, values that make no
//! sense, and threads that come and go by the thousands.
#![cfg(not(any(corewise_loom, corewise_shuttle)))]

use crate::common;

use std::cell::{Cell, RefCell};
use std::hash::{Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind, panic_any, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, mpsc};
use std::thread;

use common::{Dictionary, DictionaryWrite, Queue, QueueWrite, Random, panics, scaled};
use corewise_nr::baseline::{
    Batch, Combine, FlatCombining, FlatCombiningPlus, ReadersWriterLocked, SpinLocked,
};
use corewise_nr::structures::dictionary::{Read, SkipListDictionary, Write};
use corewise_nr::structures::lock_free::LockFreeSkipList;
use corewise_nr::structures::priority_queue::{self, SkipListQueue};
use corewise_nr::{BuildError, Builder, Concurrent, NodeReplicated, Operation, Sequential};
use corewise_testkit::stress::come_and_go;
use corewise_topology::{CpuId, NumaNode, Topology, current_cpu, run_on};

const EXPECTED: &str = "expected by the test";

fn build<D: Sequential>(replicas: usize, make: impl FnMut(usize) -> D) -> NodeReplicated<D> {
    let builder = Builder::new().replicas(replicas).log(4).max_log(16);
    builder.build(make).unwrap()
}

/// What every replica answers.
fn at_each<D: Sequential, R>(shared: &NodeReplicated<D>, read: impl Fn(&D) -> R) -> Vec<R> {
    let at = |id| shared.handle(Some(id)).unwrap().read_with(&read);
    shared.replicas().into_iter().map(at).collect()
}

#[test]
fn ids_of_other_structures_are_of_no_replica() {
    let large = build(3, |_| Queue::default());
    let small = Builder::new().replicas(2).max_replicas(2);
    let small = small.build(|_| Queue::default()).unwrap();
    for foreign in large.replicas() {
        small.combine_until(foreign, || panic!("there is nothing to combine"));
        assert!(small.handle(Some(foreign)).is_err());
        assert!(small.remove_replica(foreign).is_err());
        assert!(!small.replicas().contains(&foreign));
    }
    assert_eq!(small.replicas().len(), 2);
}

#[test]
fn nodes_may_name_cpus_that_do_not_exist() {
    let there = Topology::detect().allowed().next().unwrap().id;
    let odd = [usize::MAX, 1 << 40, 1 << 13].map(CpuId);
    let builder = Builder::new().nodes(vec![odd.to_vec(), vec![there, CpuId(usize::MAX)]]);
    let shared = builder.build(|_| Queue::default()).unwrap();
    shared.write(QueueWrite::Push(1));
    assert_eq!(at_each(&shared, |queue| queue.0.len()), [1, 1]);
    run_on(&[there], || {
        if current_cpu() == Some(there) {
            assert_eq!(shared.handle(None).unwrap().replica(), 1);
        }
    });
}

#[test]
fn neighbours_share_a_replica_if_a_machine_has_too_many_nodes() {
    let machine_of = |nodes: usize| {
        let mut machine = Topology::flat(nodes);
        let node = |id| NumaNode {
            id,
            cpus: vec![CpuId(id)],
        };
        machine.nodes = (0..nodes).map(node).collect();
        machine
    };
    let replicas = |builder: Builder| {
        let built = builder.build(|_| Queue::default());
        built.map(|built| built.replicas().len())
    };
    for (nodes, expected) in [(1, 1), (16, 16), (17, 17), (64, 64), (65, 64), (1_000, 64)] {
        let builder = Builder::new().topology(&machine_of(nodes));
        assert_eq!(replicas(builder.clone()), Ok(expected));
        assert_eq!(replicas(builder.max_replicas(8)), Ok(nodes.min(8)));
    }
    let explicit = Builder::new().nodes((0..65).map(|cpu| vec![CpuId(cpu)]).collect());
    assert_eq!(replicas(explicit), Err(BuildError::Replicas));
    assert_eq!(replicas(Builder::new().replicas(40)), Ok(40));
    let none = Builder::new().topology(&machine_of(4)).max_replicas(0);
    assert_eq!(replicas(none), Err(BuildError::Replicas));

    // The CPUs of neighbours belong to the shared replica.
    let builder = Builder::new().topology(&machine_of(100)).max_replicas(10);
    let shared = builder.build(|_| Queue::default()).unwrap();
    let there = Topology::detect().allowed().last().unwrap().id;
    run_on(&[there], || {
        if current_cpu() == Some(there) && there.0 < 100 {
            assert_eq!(shared.handle(None).unwrap().replica(), there.0 / 10);
        }
    });
}

type Call = Box<dyn Fn() -> u64 + Send + Sync>;

/// Executes calls.
struct Caller;

impl Sequential for Caller {
    type Read = Call;
    type Write = Call;
    type Response = u64;
    fn read(&self, call: &Call) -> u64 {
        call()
    }
    fn write(&mut self, call: &Call) -> u64 {
        call()
    }
}

/// It would wait for itself for ever.
#[test]
fn an_operation_that_calls_its_structure_gets_a_panic() {
    fn check<S: Concurrent<Caller> + 'static>(shared: S) {
        let shared = Arc::new(shared);
        let simple = || -> Call { Box::new(|| 7) };
        for kinds in 0..4 {
            let operation = |is_read, call| match is_read {
                true => Operation::Read(call),
                false => Operation::Write(call),
            };
            // Weak, because the log may keep the operation as long as the structure lives.
            let same = Arc::downgrade(&shared);
            let nested: Call = Box::new(move || {
                let same = same.upgrade().expect("in use");
                same.execute(operation(kinds % 2 == 0, simple()))
            });
            let outer = operation(kinds / 2 == 0, nested);
            assert!(panics(|| shared.execute(outer)));
            // Nothing is left locked.
            assert_eq!(shared.execute(operation(kinds % 2 == 0, simple())), 7);
            thread::scope(|scope| {
                let other = scope.spawn(|| shared.execute(operation(kinds / 2 == 0, simple())));
                assert_eq!(other.join().unwrap(), 7);
            });
        }
    }
    check(SpinLocked::new(Caller));
    check(ReadersWriterLocked::new(Caller));
    check(FlatCombining::new(Caller));
    check(FlatCombiningPlus::new(Caller));
    check(build(1, |_| Caller));
    check(build(2, |_| Caller));
}

#[test]
fn a_dedicated_combiner_must_not_be_inside_an_operation() {
    let shared = build(1, |_| Queue::default());
    let id = shared.replicas()[0];
    let inside = || panics(|| shared.combine_until(id, || true));
    // There is no work.
    assert!(shared.handle(Some(id)).unwrap().read_with(|_| inside()));
    assert!(!inside());
}

/// Counts those that are alive, and panics when it is dropped if it is armed.
struct Bomb {
    alive: Arc<AtomicUsize>,
    is_armed: bool,
}

impl Bomb {
    fn new(alive: &Arc<AtomicUsize>, is_armed: bool) -> Self {
        alive.fetch_add(1, SeqCst);
        Self {
            alive: alive.clone(),
            is_armed,
        }
    }
}

impl Drop for Bomb {
    fn drop(&mut self) {
        self.alive.fetch_sub(1, SeqCst);
        if self.is_armed {
            resume_unwind(Box::new(EXPECTED));
        }
    }
}

/// A structure that panics when it is copied or dropped.
struct Fragile {
    writes: u64,
    bomb: Bomb,
    may_be_copied: Arc<AtomicBool>,
}

impl Clone for Fragile {
    fn clone(&self) -> Self {
        if !self.may_be_copied.load(SeqCst) {
            resume_unwind(Box::new(EXPECTED));
        }
        Self {
            writes: self.writes,
            bomb: Bomb::new(&self.bomb.alive, self.bomb.is_armed),
            may_be_copied: self.may_be_copied.clone(),
        }
    }
}

enum FragileWrite {
    /// The response is armed or not.
    Respond(Bomb, bool),
    /// Panics with a bomb that is armed or not.
    Panic(Bomb, bool),
}

impl Sequential for Fragile {
    type Read = ();
    type Write = FragileWrite;
    type Response = Bomb;
    fn read(&self, (): &()) -> Bomb {
        Bomb::new(&self.bomb.alive, false)
    }
    fn write(&mut self, operation: &FragileWrite) -> Bomb {
        self.writes += 1;
        match operation {
            FragileWrite::Respond(bomb, is_armed) => Bomb::new(&bomb.alive, *is_armed),
            FragileWrite::Panic(bomb, is_armed) => {
                resume_unwind(Box::new(Bomb::new(&bomb.alive, *is_armed)))
            }
        }
    }
}

fn fragile(alive: &Arc<AtomicUsize>, is_armed: bool, may_be_copied: &Arc<AtomicBool>) -> Fragile {
    Fragile {
        writes: 0,
        bomb: Bomb::new(alive, is_armed),
        may_be_copied: may_be_copied.clone(),
    }
}

/// Every value is dropped once although half of them panic then; replicas agree.
#[test]
fn destructors_of_operations_and_outcomes_may_panic() {
    let alive = Arc::default();
    for replicas in [1, 2, 3] {
        let shared = build(replicas, |_| fragile(&alive, false, &Arc::default()));
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    for turn in 0..40 {
                        let bomb = Bomb::new(&alive, turn % 2 == 0);
                        if turn % 4 < 2 {
                            let write = || shared.write(FragileWrite::Respond(bomb, true));
                            // The response is dropped here.
                            assert!(panics(|| drop(write())));
                        } else {
                            let write = || shared.write(FragileWrite::Panic(bomb, true));
                            let caught = catch_unwind(AssertUnwindSafe(write)).err().unwrap();
                            assert!(caught.is::<Bomb>());
                            assert!(panics(|| drop(caught)));
                        }
                    }
                });
            }
        });
        assert_eq!(at_each(&shared, |it| it.writes), vec![80; replicas]);
        drop(shared);
        assert_eq!(alive.load(SeqCst), 0);
    }
}

/// Counts writes; its digest panics with what panics when it is dropped.
struct BadDigest(u64, Arc<AtomicUsize>);

impl Sequential for BadDigest {
    type Read = ();
    type Write = ();
    type Response = u64;
    fn read(&self, (): &()) -> u64 {
        self.0
    }
    fn write(&mut self, (): &()) -> u64 {
        self.0 += 1;
        self.0
    }
    fn digest(&self) -> Option<u64> {
        resume_unwind(Box::new(Bomb::new(&self.1, true)))
    }
}

#[test]
fn digests_may_panic() {
    let alive = Arc::default();
    let builder = Builder::new().replicas(2).compare_every(1);
    let shared = builder.build(|_| BadDigest(0, Arc::clone(&alive))).unwrap();
    for expected in 1..=5 {
        assert_eq!(shared.write(()), expected);
    }
    assert_eq!(at_each(&shared, |it| it.0), [5, 5]);
    assert_eq!(shared.divergence(), None);
    assert_eq!(alive.load(SeqCst), 0);
}

#[test]
fn a_replica_may_panic_when_it_is_made_copied_or_dropped() {
    let (alive, may_be_copied) = (Arc::default(), Arc::new(AtomicBool::new(false)));
    let make = |number| {
        if number == 2 {
            resume_unwind(Box::new(EXPECTED));
        }
        fragile(&alive, false, &may_be_copied)
    };
    assert!(panics(|| build(3, make)));
    assert_eq!(alive.load(SeqCst), 0, "those that were made are dropped");

    let shared = build(2, |_| fragile(&alive, true, &may_be_copied));
    let write = || {
        let operation = FragileWrite::Respond(Bomb::new(&alive, false), false);
        drop(shared.write(operation));
    };
    write();
    assert!(panics(|| shared.add_replica(None)));
    assert_eq!(shared.replicas().len(), 2);
    write();
    may_be_copied.store(true, SeqCst);
    let joined = shared.add_replica(None).unwrap();
    write();
    assert_eq!(at_each(&shared, |it| it.writes), [3, 3, 3]);
    assert_eq!(shared.remove_replica(joined), Ok(()));
    write();
    assert_eq!(at_each(&shared, |it| it.writes), [4, 4]);
    assert!(panics(|| drop(shared)), "the caller owns the replicas");
    assert_eq!(alive.load(SeqCst), 0, "another replica leaks");
}

#[test]
fn keys_and_values_of_a_lock_free_list_may_panic_when_they_are_dropped() {
    let alive = Arc::default();
    let list = LockFreeSkipList::new();
    for key in 0..20 {
        assert_eq!(list.insert(key, Bomb::new(&alive, true)), Ok(true));
        assert!(panics(|| list.insert(key, Bomb::new(&alive, true))));
    }
    assert!(panics(|| drop(list)), "the caller owns them");
    assert_eq!(alive.load(SeqCst), 0);
}

#[test]
fn a_dedicated_combiner_may_panic() {
    let shared = build(2, |_| Queue::default());
    let id = shared.replicas()[0];
    let combine = || shared.combine_until(id, || panic_any(EXPECTED));
    assert!(panics(combine));
    thread::scope(|scope| _ = scope.spawn(|| shared.write(QueueWrite::Push(1))));
    assert_eq!(at_each(&shared, |queue| queue.0.len()), [1, 1]);
}

/// A key whose comparison with [`Touchy::POISON`] panics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Touchy(u64);

impl Touchy {
    const POISON: Self = Self(u64::MAX);
}

impl Ord for Touchy {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        if [self, other].contains(&&Self::POISON) {
            resume_unwind(Box::new(EXPECTED));
        }
        self.0.cmp(&other.0)
    }
}

impl PartialOrd for Touchy {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

#[test]
fn comparisons_of_keys_may_panic() {
    type Words = SkipListDictionary<Touchy, u64>;
    let builder = Builder::new().replicas(2).log(8).compare_every(1);
    let shared = builder.build(|_| Words::new()).unwrap();
    let mut model = Words::new();
    // An insertion into an empty dictionary compares nothing.
    let first = Write::Insert(Touchy(100), 0);
    assert_eq!(shared.write(first), model.write(&first));
    let mut random = Random::from_seed(3);
    for step in 0..400 {
        let key = Touchy(random.below(20));
        let write = || match step % 3 {
            0 => Write::Remove(key),
            _ => Write::Insert(key, step),
        };
        assert_eq!(shared.write(write()), model.write(&write()));
        assert!(panics(|| shared.write(Write::Insert(Touchy::POISON, 0))));
        assert!(panics(|| shared.write(Write::Remove(Touchy::POISON))));
        let read = |key| Operation::<Words>::Read(Read::Get(key));
        assert!(panics(|| shared.execute(read(Touchy::POISON))));
        assert_eq!(shared.execute(read(key)), model.read(&Read::Get(key)));
    }
    shared.refresh();
    assert_eq!(shared.divergence(), None);
    assert_eq!(at_each(&shared, Words::digest), [model.digest(); 2]);
}

thread_local! {
    static IS_ARMED: Cell<bool> = const { Cell::new(false) };
}

/// Equal to all others. Comparing two panics if that is armed.
#[derive(Clone)]
struct Equal(u64);

impl Hash for Equal {
    fn hash<H: Hasher>(&self, _: &mut H) {}
}

impl Ord for Equal {
    fn cmp(&self, _: &Self) -> std::cmp::Ordering {
        if IS_ARMED.get() {
            resume_unwind(Box::new(EXPECTED));
        }
        std::cmp::Ordering::Equal
    }
}

impl PartialOrd for Equal {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Eq for Equal {}

impl PartialEq for Equal {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

#[test]
fn equal_keys_keep_their_order_if_a_comparison_panics() {
    use priority_queue::{Response, Write};
    let mut queue = SkipListQueue::new();
    for number in 0..6 {
        IS_ARMED.set(number == 1);
        let insert = || queue.write(&Write::Insert(Equal(number)));
        assert_eq!(panics(insert), number == 1);
    }
    let remove = || match queue.write(&Write::RemoveMin) {
        Response::Key(key) => key.map(|key| key.0),
        _ => unreachable!("the response is a key"),
    };
    let removed: Vec<_> = std::iter::from_fn(remove).collect();
    assert!(removed.len() >= 5, "{removed:?}");
    assert!(removed.is_sorted(), "{removed:?}");
}

/// Answers some operations of a batch, and panics.
#[derive(Default)]
struct HalfCombined(u64);

impl Sequential for HalfCombined {
    type Read = ();
    type Write = u64;
    type Response = u64;
    fn read(&self, (): &()) -> u64 {
        self.0
    }
    fn write(&mut self, more: &u64) -> u64 {
        self.0 += more;
        *more
    }
}

impl Combine for HalfCombined {
    fn combine(&mut self, batch: &mut Batch<Self>) {
        for place in (0..batch.len()).step_by(2) {
            if let Operation::Write(more) = *batch.operation(place) {
                let response = self.write(&more);
                batch.answer(place, response);
            }
        }
        resume_unwind(Box::new(EXPECTED));
    }
}

#[test]
fn combining_of_a_structure_may_panic() {
    let shared = FlatCombining::with_combining(HalfCombined::default());
    let each = scaled(400);
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                for more in 1..=each {
                    assert_eq!(shared.execute(Operation::Write(more)), more);
                }
            });
        }
    });
    let sum = shared.execute(Operation::Read(()));
    assert_eq!(
        sum,
        3 * each * (each + 1) / 2,
        "each write is executed once"
    );
}

/// Operations that are alive: at most those that the log has room for. It grows, so that writers do
/// not wait for a long read.
#[test]
fn the_memory_of_the_log_is_bounded_while_a_replica_is_idle_or_read() {
    const MAX_LOG: usize = 64;
    let alive: Arc<AtomicUsize> = Arc::default();
    let builder = Builder::new().replicas(2).log(8).max_log(MAX_LOG);
    let shared = builder
        .build(|_| fragile(&alive, false, &Arc::default()))
        .unwrap();
    let ids = shared.replicas();
    let writer = shared.handle(Some(ids[0])).unwrap();
    let write = || {
        let operation = FragileWrite::Respond(Bomb::new(&alive, false), false);
        drop(writer.write(operation));
        alive.load(SeqCst) - 2 // without the replicas
    };
    // The other replica is idle: the log does not grow.
    assert!((0..1_000).all(|_| write() <= 8));
    // It is read: the log grows.
    let (inside, entered) = mpsc::channel();
    let (leave, left) = mpsc::channel::<()>();
    thread::scope(|scope| {
        let shared = &shared;
        scope.spawn(move || {
            shared.handle(Some(ids[1])).unwrap().read_with(|_| {
                inside.send(()).unwrap();
                left.recv().unwrap();
            });
        });
        entered.recv().unwrap();
        assert!((0..MAX_LOG / 2).all(|_| write() < 2 * MAX_LOG));
        leave.send(()).unwrap();
    });
    assert_eq!(shared.stats().log_capacity, MAX_LOG);
    assert!((0..1_000).all(|_| write() < 2 * MAX_LOG));
    let writes = 2_000 + MAX_LOG as u64 / 2;
    assert_eq!(at_each(&shared, |it| it.writes), [writes; 2]);
}

/// Uses a structure when its thread ends.
struct AtExit(Arc<dyn Fn() + Send + Sync>);

impl Drop for AtExit {
    fn drop(&mut self) {
        self.0();
    }
}

thread_local! {
    static AT_EXIT: RefCell<Vec<AtExit>> = const { RefCell::new(Vec::new()) };
}

#[test]
fn threads_come_and_go_by_the_thousands() {
    fn check(shared: impl Concurrent<Dictionary> + 'static) -> Arc<impl Concurrent<Dictionary>> {
        let shared = Arc::new(shared);
        let count = scaled(600);
        let increment = |shared: &dyn Concurrent<Dictionary>| {
            let write = DictionaryWrite::Increment(Box::new(1));
            shared.execute(Operation::Write(write)).unwrap()
        };
        shared.execute(Operation::Write(DictionaryWrite::Insert(1, 0)));
        come_and_go(count / 4, 4, |group, number| {
            let last = shared.clone();
            let at_exit = AtExit(Arc::new(move || _ = increment(&*last)));
            // Half of the threads have registered before their destructors, half after.
            let is_early = (group + number) % 2 == 0;
            let first = is_early.then(|| increment(&*shared));
            AT_EXIT.with_borrow_mut(|all| all.push(at_exit));
            first.unwrap_or_else(|| increment(&*shared));
        });
        let sum = shared.execute(Operation::Read(1));
        assert_eq!(sum, Some(2 * (count - count % 4)));
        shared
    }
    check(SpinLocked::new(Dictionary::default()));
    check(ReadersWriterLocked::new(Dictionary::default()));
    check(FlatCombining::new(Dictionary::default()));
    check(FlatCombiningPlus::new(Dictionary::default()));
    let builder = Builder::new().replicas(2).slots(2).shared_slots(1);
    let shared = Arc::new(builder.build(|_| Dictionary::default()).unwrap());
    check(ByArc(shared.clone()));
    let threads = shared
        .stats()
        .replicas
        .iter()
        .map(|it| it.threads)
        .sum::<usize>();
    assert_eq!(threads, 1, "only this thread is left");
}

struct ByArc(Arc<NodeReplicated<Dictionary>>);

impl Concurrent<Dictionary> for ByArc {
    fn execute(&self, operation: Operation<Dictionary>) -> Option<u64> {
        self.0.execute(operation)
    }
}
