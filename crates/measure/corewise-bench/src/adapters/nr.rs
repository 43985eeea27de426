//! Node replication and the baselines of \[NR\] §4, each with a priority queue, a sorted set and a
//! dictionary.
//!
//! The structures are the paper's: a skip list as priority queue and as dictionary, and a sorted
//! set like that of Redis.

use std::fmt::Debug;

use corewise_nr::baseline::{
    Batch, Combine, FlatCombining, FlatCombiningPlus, ReadersWriterLocked, SpinLocked,
};
use corewise_nr::sorted_set::Direction;
use corewise_nr::structures::dictionary::{self, SkipListDictionary};
use corewise_nr::structures::lock_free::{LockFreePriorityQueue, LockFreeSkipList};
use corewise_nr::structures::priority_queue::{Read, Response, SkipListQueue, Write};
use corewise_nr::{
    Builder, Concurrent, Handle as NodeHandle, NodeReplicated, Operation, Sequential, SortedSet,
};

use crate::adapters::listed;
use crate::entry::Entry;
use crate::subject::{
    Measurements, QueueHandle, QueueSubject, SortedSetHandle, SortedSetSubject, WithHandles,
};
use crate::table::{MapHandle, MeasuredMap, Setup, U64};
use crate::work::Part;

/// A sequential structure, empty by default, that every method here can make concurrent.
trait Structure:
    Combine
    + Sequential<Read: Clone + PartialEq + Debug, Write: Clone + PartialEq + Debug, Response: Clone>
    + Default
    + 'static
{
}

impl Structure for PriorityQueue {}
impl Structure for Ranking {}
impl Structure for Dictionary {}

/// What makes a sequential structure concurrent.
trait Method: Send + Sync + 'static {
    type Of<D: Structure>: Send + Sync + 'static;
    type Handle<'s, D: Structure>: Execute<D>;
    fn make<D: Structure>() -> Self::Of<D>;
    fn handle<D: Structure>(of: &Self::Of<D>, thread: usize) -> Self::Handle<'_, D>;
    /// Returns its exchanges that failed, if it counts them.
    fn failed_exchanges<D: Structure>(_: &Self::Of<D>) -> Option<u64> {
        None
    }
}

/// A thread's access to a structure.
trait Execute<D: Sequential> {
    fn execute(&mut self, operation: Operation<D>) -> D::Response;
}

impl<D: Sequential, C: Concurrent<D>> Execute<D> for &C {
    #[inline]
    fn execute(&mut self, operation: Operation<D>) -> D::Response {
        Concurrent::execute(*self, operation)
    }
}

/// Registered with a replica.
struct Registered<'s, D: Sequential>(NodeHandle<'s, D>);

impl<D: Sequential> Execute<D> for Registered<'_, D> {
    #[inline]
    fn execute(&mut self, operation: Operation<D>) -> D::Response {
        match operation {
            Operation::Read(operation) => self.0.read(&operation),
            Operation::Write(operation) => self.0.write(operation),
        }
    }
}

/// Node replication as in the paper: a replica for each NUMA node, whose threads use it.
struct ByNode;

impl Method for ByNode {
    type Of<D: Structure> = NodeReplicated<D>;
    type Handle<'s, D: Structure> = Registered<'s, D>;
    fn make<D: Structure>() -> NodeReplicated<D> {
        NodeReplicated::new(|_| D::default())
    }
    fn handle<D: Structure>(of: &NodeReplicated<D>, _: usize) -> Registered<'_, D> {
        Registered(of.handle(None).expect("no replica leaves"))
    }
    fn failed_exchanges<D: Structure>(of: &NodeReplicated<D>) -> Option<u64> {
        Some(failed_appends(of))
    }
}

/// Exchanges of the log's tail that failed.
fn failed_appends<D: Structure>(of: &NodeReplicated<D>) -> u64 {
    let replicas = of.stats().replicas;
    replicas.iter().map(|replica| replica.failed_appends).sum()
}

/// A number of replicas, wherever the threads are: they take turns in choosing one.
struct Replicated<const REPLICAS: usize>;

impl<const REPLICAS: usize> Method for Replicated<REPLICAS> {
    type Of<D: Structure> = NodeReplicated<D>;
    type Handle<'s, D: Structure> = Registered<'s, D>;
    fn make<D: Structure>() -> NodeReplicated<D> {
        let builder = Builder::new().replicas(REPLICAS);
        builder.build(|_| D::default()).expect("valid sizes")
    }
    fn handle<D: Structure>(of: &NodeReplicated<D>, thread: usize) -> Registered<'_, D> {
        let replicas = of.replicas();
        let replica = replicas[thread % replicas.len()];
        Registered(of.handle(Some(replica)).expect("no replica leaves"))
    }
    fn failed_exchanges<D: Structure>(of: &NodeReplicated<D>) -> Option<u64> {
        Some(failed_appends(of))
    }
}

macro_rules! baselines {
    ($($name:ident: $type:ident::$make:ident),*) => {$(
        struct $name;
        impl Method for $name {
            type Of<D: Structure> = $type<D>;
            type Handle<'s, D: Structure> = &'s $type<D>;
            fn make<D: Structure>() -> $type<D> {
                $type::$make(D::default())
            }
            fn handle<D: Structure>(of: &$type<D>, _: usize) -> &$type<D> {
                of
            }
        }
    )*};
}

baselines!(Spin: SpinLocked::new, ReadersWriter: ReadersWriterLocked::new,
    Combining: FlatCombining::with_combining, CombiningPlus: FlatCombiningPlus::with_combining);

type PriorityQueue = SkipListQueue<u64>;
type Dictionary = SkipListDictionary<u64, u64>;

/// A structure made concurrent.
struct Shared<M: Method, D: Structure>(M::Of<D>);

/// A thread's access to it.
struct Access<'s, M: Method, D: Structure>(M::Handle<'s, D>);

impl<M: Method, D: Structure> WithHandles for Shared<M, D> {
    type Handle<'s> = Access<'s, M, D>;
    fn build(_: &Setup) -> Self {
        Self(M::make())
    }
    fn handle(&self, part: Part) -> Access<'_, M, D> {
        Access(M::handle(&self.0, part.thread))
    }
    fn measurements(&self) -> Measurements {
        failed_exchanges(M::failed_exchanges(&self.0))
    }
}

/// The exchanges that failed (\[NR\] §4.1), where they are counted.
fn failed_exchanges(failed: Option<u64>) -> Measurements {
    let named = |failed| ("failed exchanges".into(), failed as f64);
    failed.map(named).into_iter().collect()
}

impl<M: Method> QueueHandle for Access<'_, M, PriorityQueue> {
    #[inline]
    fn insert(&mut self, key: u64) -> bool {
        let response = self.0.execute(Operation::Write(Write::Insert(key)));
        matches!(response, Response::Inserted)
    }
    #[inline]
    fn delete_min(&mut self) -> Option<u64> {
        key_of(self.0.execute(Operation::Write(Write::RemoveMin)))
    }
    #[inline]
    fn find_min(&mut self) -> Option<u64> {
        key_of(self.0.execute(Operation::Read(Read::Min)))
    }
}

fn key_of(response: Response<u64>) -> Option<u64> {
    match response {
        Response::Key(key) => key,
        Response::Inserted | Response::Len(_) => None,
    }
}

#[derive(Default)]
struct Ranking(SortedSet);

#[derive(Clone, Debug, PartialEq)]
struct Increment(u32, f64);

impl Sequential for Ranking {
    type Read = u32;
    type Write = Increment;
    type Response = Option<i64>;
    fn read(&self, member: &u32) -> Option<i64> {
        let rank = self.0.rank(&member.to_be_bytes(), Direction::Ascending);
        rank.map(|rank| rank as i64)
    }
    fn write(&mut self, Increment(member, delta): &Increment) -> Option<i64> {
        let score = self.0.increment(&member.to_be_bytes(), *delta).ok()?;
        Some(score as i64)
    }
}

/// One by one: of the operations of a batch on 10,000 members, few are of one member, and to find
/// those takes longer than they save.
impl Combine for Ranking {
    fn combine(&mut self, _: &mut Batch<Self>) {}
}

impl<M: Method> SortedSetHandle for Access<'_, M, Ranking> {
    #[inline]
    fn rank(&mut self, member: u32) -> Option<u64> {
        let rank = self.0.execute(Operation::Read(member))?;
        u64::try_from(rank).ok()
    }
    #[inline]
    fn increment(&mut self, member: u32, delta: i64) -> Option<i64> {
        let increment = Increment(member, delta as f64);
        self.0.execute(Operation::Write(increment))
    }
}

impl<M: Method> MeasuredMap<U64> for Shared<M, Dictionary> {
    type Handle<'t> = Access<'t, M, Dictionary>;
    fn build(_: &Setup) -> Self {
        Self(M::make())
    }
    /// Threads of the harness have no numbers here, but their handles are created in turn.
    fn handle(&self) -> Access<'_, M, Dictionary> {
        use std::sync::atomic::{AtomicUsize, Ordering};
        static TURN: AtomicUsize = AtomicUsize::new(0);
        // Relaxed: only the number counts.
        Access(M::handle(&self.0, TURN.fetch_add(1, Ordering::Relaxed)))
    }
    fn measurements(&self) -> Measurements {
        failed_exchanges(M::failed_exchanges(&self.0))
    }
}

impl<M: Method> MapHandle<U64> for Access<'_, M, Dictionary> {
    #[inline]
    fn get(&mut self, key: &u64) -> Option<u64> {
        value_of(self.0.execute(Operation::Read(dictionary::Read::Get(*key))))
    }
    #[inline]
    fn insert(&mut self, key: &u64, value: u64) -> bool {
        let insert = dictionary::Write::TryInsert(*key, value);
        value_of(self.0.execute(Operation::Write(insert))).is_none()
    }
    #[inline]
    fn remove(&mut self, key: &u64) -> Option<u64> {
        let remove = dictionary::Write::Remove(*key);
        value_of(self.0.execute(Operation::Write(remove)))
    }
}

fn value_of(response: dictionary::Response<u64>) -> Option<u64> {
    match response {
        dictionary::Response::Value(value) => value,
        dictionary::Response::Len(_) => None,
    }
}

struct LockFree(LockFreePriorityQueue<u64>);

impl WithHandles for LockFree {
    fn build(_: &Setup) -> Self {
        Self(LockFreePriorityQueue::new())
    }
    shared_by_threads!(Part);
    fn measurements(&self) -> Measurements {
        failed_exchanges(Some(self.0.failed_exchanges()))
    }
}

impl QueueHandle for &LockFree {
    #[inline]
    fn insert(&mut self, key: u64) -> bool {
        self.0.insert(key).is_ok()
    }
    #[inline]
    fn delete_min(&mut self) -> Option<u64> {
        self.0.remove_min().copied()
    }
    #[inline]
    fn find_min(&mut self) -> Option<u64> {
        self.0.min().copied()
    }
}

struct LockFreeDictionary(LockFreeSkipList<u64, u64>);

impl MeasuredMap<U64> for LockFreeDictionary {
    fn build(_: &Setup) -> Self {
        Self(LockFreeSkipList::new())
    }
    shared_by_threads!();
    fn measurements(&self) -> Measurements {
        failed_exchanges(Some(self.0.failed_exchanges()))
    }
}

impl MapHandle<U64> for &LockFreeDictionary {
    #[inline]
    fn get(&mut self, key: &u64) -> Option<u64> {
        self.0.get(key).copied()
    }
    #[inline]
    fn insert(&mut self, key: &u64, value: u64) -> bool {
        self.0.insert(*key, value) == Ok(true)
    }
    #[inline]
    fn remove(&mut self, key: &u64) -> Option<u64> {
        self.0.remove(key).copied()
    }
}

#[cfg(feature = "bench")]
mod peer {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::{Arc, Mutex, PoisonError};

    use crossbeam_utils::CachePadded;
    use node_replication::{Dispatch, Log, Replica, ReplicaToken};

    use super::{Execute, Method, Operation, Structure};
    use crate::work::is_given_up;

    /// The crate `node-replication`. It has one replica: an idle one would stop the writers of
    /// others once the log is full.
    pub(super) struct Crate;

    /// Bytes of the log.
    const LOG_BYTES: usize = 2 << 20;

    /// Threads that may use a replica. The crate announces 256, but the reads of thread 193 panic.
    pub(super) const MAX_THREADS: usize = 192;

    /// A structure, as the crate sees it. A write of nothing makes its thread combine.
    pub(super) struct Dispatched<D>(D);

    impl<D: Structure> Dispatch for Dispatched<D> {
        type ReadOperation = D::Read;
        type WriteOperation = Option<D::Write>;
        type Response = Option<D::Response>;
        #[inline]
        fn dispatch(&self, operation: D::Read) -> Option<D::Response> {
            Some(self.0.read(&operation))
        }
        #[inline]
        fn dispatch_mut(&mut self, operation: Option<D::Write>) -> Option<D::Response> {
            operation.map(|operation| self.0.write(&operation))
        }
    }

    pub(super) struct SoleReplica<D: Structure> {
        replica: Arc<Replica<'static, Dispatched<D>>>,
        /// Those of handles that were dropped: the crate takes none back.
        free_tokens: Mutex<Vec<ReplicaToken>>,
        /// Beginnings and ends of the writes of each token: odd during a write.
        writes: Box<[CachePadded<AtomicUsize>]>,
    }

    pub(super) struct CrateHandle<'s, D: Structure> {
        of: &'s SoleReplica<D>,
        token: ReplicaToken,
    }

    impl Method for Crate {
        type Of<D: Structure> = SoleReplica<D>;
        type Handle<'s, D: Structure> = CrateHandle<'s, D>;
        fn make<D: Structure>() -> SoleReplica<D> {
            SoleReplica {
                replica: Replica::with_data(
                    &Arc::new(Log::new(LOG_BYTES)),
                    Dispatched(D::default()),
                ),
                free_tokens: Mutex::default(),
                writes: (0..MAX_THREADS).map(|_| CachePadded::default()).collect(),
            }
        }
        fn handle<D: Structure>(of: &SoleReplica<D>, _: usize) -> CrateHandle<'_, D> {
            let mut free = of
                .free_tokens
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            let token = free.pop().or_else(|| of.replica.register());
            let token = token.expect("no more than the most threads");
            CrateHandle { of, token }
        }
    }

    /// Yields before a thread that is still in the same write counts as one that waits.
    const YIELDS: usize = 64;

    impl<D: Structure> CrateHandle<'_, D> {
        #[inline]
        fn write(&self, operation: Option<D::Write>) -> Option<D::Response> {
            let writes = &self.of.writes[self.token.id() - 1];
            let begun = writes.load(Ordering::Relaxed) + 1; // Relaxed: only this thread's
            // Relaxed, both: a thread that is seen late waits as long as without help.
            writes.store(begun, Ordering::Relaxed);
            let response = self.of.replica.execute_mut(operation, self.token);
            writes.store(begun + 1, Ordering::Relaxed);
            response
        }

        /// Returns whether a thread is in the same write from the beginning to the end of a pause.
        fn has_waiting_thread(&self) -> bool {
            // Relaxed: see `write`.
            let all = || self.of.writes.iter().map(|of| of.load(Ordering::Relaxed));
            let before: Vec<usize> = all().collect();
            let is_idle = before.iter().all(|writes| writes.is_multiple_of(2));
            let pauses = if is_idle { 0 } else { YIELDS };
            (0..pauses).for_each(|_| std::thread::yield_now());
            let mut pairs = before.into_iter().zip(all());
            pairs.any(|(before, after)| !before.is_multiple_of(2) && before == after)
        }
    }

    impl<D: Structure> Execute<D> for CrateHandle<'_, D> {
        #[inline]
        fn execute(&mut self, operation: Operation<D>) -> D::Response {
            let response = match operation {
                Operation::Read(operation) => self.of.replica.execute(operation, self.token),
                Operation::Write(operation) => self.write(Some(operation)),
            };
            response.expect("an operation has a response")
        }
    }

    impl<D: Structure> Drop for CrateHandle<'_, D> {
        /// Combines for others that wait: a thread of the crate that has found another one
        /// combining spins 2^29 times, for a second or longer, before it tries to combine again.
        fn drop(&mut self) {
            std::thread::yield_now();
            while !is_given_up() && self.has_waiting_thread() {
                self.write(None);
            }
            let free = self.of.free_tokens.lock();
            free.unwrap_or_else(PoisonError::into_inner)
                .push(self.token);
        }
    }
}

fn entry<M: Method>(name: &str) -> Entry {
    listed(name)
        .map::<U64, Shared<M, Dictionary>>()
        .subject::<QueueSubject<Shared<M, PriorityQueue>>>()
        .subject::<SortedSetSubject<Shared<M, Ranking>>>()
}

/// All methods, and the queues that need none.
pub(super) fn entries() -> Vec<Entry> {
    vec![
        entry::<ByNode>("nr:nodes"),
        entry::<Replicated<1>>("nr:1"),
        entry::<Replicated<2>>("nr:2"),
        entry::<Spin>("nr:sl"),
        entry::<ReadersWriter>("nr:rwl"),
        entry::<Combining>("nr:fc"),
        entry::<CombiningPlus>("nr:fc+"),
        listed("nr:lf")
            .map::<U64, LockFreeDictionary>()
            .subject::<QueueSubject<LockFree>>(),
        #[cfg(feature = "bench")]
        entry::<peer::Crate>("nr:crate").max_threads(peer::MAX_THREADS),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::subject::Capability;

    #[test]
    fn replicated_and_lock_free_structures_count_exchanges_that_fail() {
        for entry in entries() {
            let name = &*entry.card.name;
            let expected = ["nr:nodes", "nr:1", "nr:2", "nr:lf"].contains(&name);
            let setup = Setup {
                threads: 1,
                ..Setup::default()
            };
            let map = entry.maker("u64").expect(name)(&setup);
            let queue = entry.subject_maker(Capability::Queue, 1).expect(name)(&setup);
            for subject in [map, queue] {
                let measured = subject.measurements();
                let counts = measured.get("failed exchanges").copied();
                assert_eq!(counts, expected.then_some(0.0), "{name}");
            }
        }
    }
}
