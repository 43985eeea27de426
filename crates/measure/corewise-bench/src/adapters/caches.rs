//! The caches of \[CPHASH\], and those of other crates.
//!
//! Keys and values have 8 bytes. A cache for all keys gets a quarter more memory, so that the
//! fullest of its partitions evicts nothing.

use std::hint::spin_loop;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use corewise_cphash::{
    Anderson, CacheRequest, Client, Colocated, Config, CpHash, Eviction, LockHash, PartitionServer,
    PinPolicy, RawLock, Reply, Ttas,
};
use foldhash::fast::RandomState;
use hdrhistogram::Histogram;

use crate::adapters::listed;
use crate::clock;
use crate::entry::Entry;
use crate::subject::{Answers, CacheHandle, CacheSubject, Measurements, WithHandles};
use crate::table::Setup;
use crate::work::{Part, is_given_up};

/// Partitions of a table with locks (\[CPHASH\] §6.1).
const LOCKED_PARTITIONS: usize = 4096;
/// Partitions of a thread that serves and asks.
const COLOCATED_PARTITIONS: usize = 4;
/// Bytes of an element, of a table with locks and with servers.
const LOCKED_BYTES: usize = 64;
const SERVED_BYTES: usize = 128;
/// Operations between two polls of a thread that serves and asks.
const POLLED: u32 = 64;

/// Bytes that the fullest partition may need beyond its share if nothing is to be evicted, and
/// those that any partition needs.
const SLACK_BYTES: usize = 1024;
const LEAST_BYTES: usize = 256;

/// Returns the entries that there must be room for: more than the capacity if nothing is to be
/// evicted, as the fullest partition has more than its share.
fn room(setup: &Setup) -> usize {
    match setup.capacity >= setup.entries {
        true => setup.capacity + setup.capacity / 4,
        false => setup.capacity,
    }
}

fn config(setup: &Setup, partitions: usize, element_bytes: usize, eviction: Eviction) -> Config {
    let entries = room(setup);
    let slack = if entries > setup.capacity {
        SLACK_BYTES
    } else {
        0
    };
    let bytes = entries * element_bytes + partitions * slack;
    Config::new(bytes.max(partitions * LEAST_BYTES))
        .partitions(partitions)
        .element_bytes(element_bytes)
        .eviction(eviction)
        .pipeline(setup.batch.clamp(64, 1 << 14))
}

/// Returns the value of its bytes; 0 is of no key.
fn value_of(bytes: &[u8]) -> u64 {
    bytes.try_into().map_or(0, u64::from_le_bytes)
}

fn answer(answers: &mut Answers, key: u64, reply: &Reply<'_>) {
    match reply {
        Reply::Found(value) => answers.looked_up(key, Some(value_of(value))),
        Reply::Missing => answers.looked_up(key, None),
        Reply::Inserted(result) => answers.stored(result.is_ok()),
        _ => {} // to a request that is never sent: it stays unanswered
    }
}

/// LOCKHASH, one operation after the other.
struct Locked<L: RawLock, const RANDOM: bool>(LockHash<RandomState, L>);

fn eviction(is_random: bool) -> Eviction {
    if is_random {
        Eviction::Random
    } else {
        Eviction::Lru
    }
}

impl<L: RawLock + 'static, const RANDOM: bool> WithHandles for Locked<L, RANDOM> {
    fn build(setup: &Setup) -> Self {
        // A partition that evicts has room for four entries or more.
        let fitting = Some(setup.capacity / 4).filter(|_| setup.capacity < setup.entries);
        let fitting = fitting.map_or(LOCKED_PARTITIONS, |most| 1 << most.max(1).ilog2());
        let partitions = LOCKED_PARTITIONS.min(fitting);
        let config = config(setup, partitions, LOCKED_BYTES, eviction(RANDOM));
        let table = LockHash::with_hasher(&config, RandomState::default());
        Self(table.expect("within limits"))
    }
    shared_by_threads!(Part);
}

impl<L: RawLock, const RANDOM: bool> CacheHandle for &Locked<L, RANDOM> {
    #[inline]
    fn submit(&mut self, key: u64, value: Option<u64>, answers: &mut Answers) {
        match value {
            Some(value) => answers.stored(self.0.insert(key, &value.to_le_bytes()).is_ok()),
            None => answers.looked_up(key, self.0.get(key, value_of)),
        }
    }
}

/// A key, and the value that is stored under it; none for a lookup.
type CacheOperation = (u64, Option<[u8; 8]>);

fn request((key, value): &CacheOperation) -> CacheRequest<'_> {
    match value {
        Some(value) => CacheRequest::Insert((*key).into(), value),
        None => CacheRequest::Get((*key).into()),
    }
}

/// Executes operations in batches.
trait ExecuteBatch {
    fn execute(&mut self, operations: &[CacheOperation], answers: &mut Answers);
    /// As [`CacheHandle::end_mix`].
    fn end_mix(&mut self) {}
}

/// Collects the operations of a thread until a batch is full.
struct Batch<E> {
    executor: E,
    size: usize,
    operations: Vec<CacheOperation>,
}

impl<E: ExecuteBatch> Batch<E> {
    fn new(executor: E, size: usize) -> Self {
        let operations = Vec::with_capacity(size);
        Self {
            executor,
            size,
            operations,
        }
    }
}

impl<E: ExecuteBatch> CacheHandle for Batch<E> {
    #[inline]
    fn submit(&mut self, key: u64, value: Option<u64>, answers: &mut Answers) {
        self.operations.push((key, value.map(u64::to_le_bytes)));
        if self.operations.len() >= self.size {
            self.drain(answers);
        }
    }
    fn drain(&mut self, answers: &mut Answers) {
        self.executor.execute(&self.operations, answers);
        self.operations.clear();
    }
    fn end_mix(&mut self) {
        self.executor.end_mix();
    }
}

/// LOCKHASH, whose operations of a batch are executed partition by partition.
struct Batching {
    table: LockHash<RandomState, Ttas>,
    batch: usize,
}

impl WithHandles for Batching {
    type Handle<'s> = Batch<&'s LockHash<RandomState, Ttas>>;
    fn build(setup: &Setup) -> Self {
        let Locked(table) = Locked::<Ttas, false>::build(setup);
        Self {
            table,
            batch: setup.batch,
        }
    }
    fn handle(&self, _: Part) -> Self::Handle<'_> {
        Batch::new(&self.table, self.batch)
    }
}

impl ExecuteBatch for &LockHash<RandomState, Ttas> {
    fn execute(&mut self, operations: &[CacheOperation], answers: &mut Answers) {
        let requests: Vec<CacheRequest<'_>> = operations.iter().map(request).collect();
        self.execute_batch(&requests, |index, reply| {
            answer(answers, operations[index].0, &reply);
        });
    }
}

/// CPHASH on one thread, which is client and server in turn: what an operation takes on each side
/// while no line moves between processors (\[CPHASH\] figure 6). The client checks each value, too.
struct OneThread {
    table: CpHash<RandomState>,
    batch: usize,
    ticks: Mutex<SideTicks>,
}

/// Ticks of batches at the client and at the server.
type SideTicks = [Histogram<u64>; 2];

/// The most ticks of a batch that a histogram resolves: minutes.
const MOST_TICKS: u64 = 1 << 40;

fn no_ticks() -> SideTicks {
    let empty = || Histogram::new_with_bounds(1, MOST_TICKS, 3);
    [(); 2].map(|()| empty().expect("constant bounds are valid"))
}

impl WithHandles for OneThread {
    type Handle<'s> = Batch<BothSides<'s>>;
    fn own_threads(threads: usize) -> Option<usize> {
        (threads == 1).then_some(0)
    }
    fn build(setup: &Setup) -> Self {
        let config = config(setup, 1, SERVED_BYTES, Eviction::Lru);
        let table = CpHash::with_hasher(&config, 0, RandomState::default());
        Self {
            table: table.expect("within limits"),
            batch: setup.batch,
            ticks: Mutex::new(no_ticks()),
        }
    }
    fn handle(&self, _: Part) -> Self::Handle<'_> {
        let sides = BothSides {
            client: self.table.client(),
            server: self.table.server(|| ()),
            cache: self,
            ticks: no_ticks(),
        };
        Batch::new(sides, self.batch)
    }
    /// Medians of the batches, so it does not matter if other work interrupts some of them.
    fn measurements(&self) -> Measurements {
        let ticks = self.ticks.lock().unwrap_or_else(PoisonError::into_inner);
        let sides = ["client ns", "server ns"].into_iter().zip(&*ticks);
        let median = |of: &Histogram<u64>| clock::ns(of.value_at_quantile(0.5)) / self.batch as f64;
        let measured = sides.filter(|(_, of)| !of.is_empty());
        measured
            .map(|(side, of)| (side.into(), median(of)))
            .collect()
    }
}

/// The sides of a table on the thread that is both.
struct BothSides<'s> {
    client: Client<RandomState>,
    server: PartitionServer,
    cache: &'s OneThread,
    ticks: SideTicks,
}

impl BothSides<'_> {
    /// Lets the server execute what was submitted, delivers the outcomes, and returns the ticks of
    /// the server.
    fn exchange(&mut self, answers: &mut Answers) -> u64 {
        self.client.flush();
        let begin = clock::now();
        self.server.poll();
        let ticks = clock::now().wrapping_sub(begin);
        self.client.poll(|key, reply| answer(answers, key, &reply));
        ticks
    }
}

impl ExecuteBatch for BothSides<'_> {
    fn execute(&mut self, operations: &[CacheOperation], answers: &mut Answers) {
        let (begin, mut served) = (clock::now(), 0);
        for operation in operations {
            let key = operation.0;
            while self.client.submit(key, request(operation)).is_err() && !is_given_up() {
                served += self.exchange(answers);
            }
        }
        while self.client.outstanding() > 0 && !is_given_up() {
            served += self.exchange(answers);
        }
        let all = clock::now().wrapping_sub(begin);
        if operations.len() == self.cache.batch {
            let [client, server] = &mut self.ticks;
            client.saturating_record(all.saturating_sub(served));
            server.saturating_record(served);
        }
    }
    fn end_mix(&mut self) {
        let mut all = self
            .cache
            .ticks
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        for (all, of) in all.iter_mut().zip(&self.ticks) {
            all.add(of).expect("the same bounds");
        }
    }
}

/// CPHASH: half of the threads serve.
struct Dedicated<const RANDOM: bool>(CpHash<RandomState>);

impl<const RANDOM: bool> WithHandles for Dedicated<RANDOM> {
    type Handle<'s> = Client<RandomState>;
    fn own_threads(threads: usize) -> Option<usize> {
        (threads > 1).then_some(threads / 2)
    }
    fn build(setup: &Setup) -> Self {
        let servers = (setup.threads / 2).max(1);
        let placement = match &*setup.own_cpus {
            [] => PinPolicy::None,
            cpus => PinPolicy::List(cpus.to_vec()),
        };
        let config = config(setup, servers, SERVED_BYTES, eviction(RANDOM)).placement(placement);
        let table = CpHash::with_hasher(&config, servers, RandomState::default());
        Self(table.expect("within limits"))
    }
    fn handle(&self, _: Part) -> Client<RandomState> {
        self.0.client()
    }
}

/// Polls without an answer after which a thread yields: its server may wait for its processor.
const SPINS: u32 = 256;

/// Waits for a server.
struct Idle(u32);

impl Idle {
    /// Notes the number of answers of a poll.
    #[inline]
    fn polled(&mut self, answers: usize) {
        self.0 = if answers > 0 { 0 } else { self.0 + 1 };
        if self.0 >= SPINS {
            self.0 = 0;
            std::thread::yield_now();
        } else if answers == 0 {
            spin_loop();
        }
    }
}

/// Polls a pipeline while a condition holds.
macro_rules! poll_while {
    ($condition:expr, $pipeline:expr, $answers:expr) => {
        let mut idle = Idle(0);
        while $condition && !is_given_up() {
            idle.polled($pipeline.poll(|key, reply| answer($answers, key, &reply)));
        }
    };
}

impl CacheHandle for Client<RandomState> {
    #[inline]
    fn submit(&mut self, key: u64, value: Option<u64>, answers: &mut Answers) {
        let operation = (key, value.map(u64::to_le_bytes));
        poll_while!(
            Self::submit(self, key, request(&operation)).is_err(),
            self,
            answers
        );
    }
    fn drain(&mut self, answers: &mut Answers) {
        poll_while!(self.outstanding() > 0, self, answers);
    }
}

/// CPHASH: every thread serves and asks.
struct ColocatedTable {
    table: CpHash<RandomState>,
    /// Handles that were created, and those whose thread has ended its part.
    created: AtomicUsize,
    left: AtomicUsize,
}

struct ColocatedHandle<'s> {
    event_loop: Colocated<RandomState>,
    cache: &'s ColocatedTable,
    since_poll: u32,
}

impl WithHandles for ColocatedTable {
    type Handle<'s> = ColocatedHandle<'s>;
    fn build(setup: &Setup) -> Self {
        let partitions = COLOCATED_PARTITIONS * setup.threads;
        let config = config(setup, partitions, SERVED_BYTES, Eviction::Lru);
        let table = CpHash::with_hasher(&config, 0, RandomState::default());
        Self {
            table: table.expect("within limits"),
            created: AtomicUsize::new(0),
            left: AtomicUsize::new(0),
        }
    }
    fn handle(&self, _: Part) -> ColocatedHandle<'_> {
        self.created.fetch_add(1, Ordering::Relaxed); // Relaxed: the counts order nothing
        ColocatedHandle {
            event_loop: self.table.colocated(|| ()),
            cache: self,
            since_poll: 0,
        }
    }
}

impl CacheHandle for ColocatedHandle<'_> {
    #[inline]
    fn submit(&mut self, key: u64, value: Option<u64>, answers: &mut Answers) {
        let operation = (key, value.map(u64::to_le_bytes));
        let pipeline = &mut self.event_loop;
        poll_while!(
            pipeline.submit(key, request(&operation)).is_err(),
            pipeline,
            answers
        );
        self.since_poll += 1;
        if self.since_poll == POLLED {
            self.since_poll = 0;
            pipeline.poll(|key, reply| answer(answers, key, &reply));
        }
    }
    fn drain(&mut self, answers: &mut Answers) {
        let pipeline = &mut self.event_loop;
        poll_while!(pipeline.outstanding() > 0, pipeline, answers);
    }
    /// Others may still need the thread's partitions.
    fn leave(&mut self) {
        let cache = self.cache;
        cache.left.fetch_add(1, Ordering::Relaxed); // Relaxed, all: the counts order nothing
        let is_last = || {
            let created = cache.created.load(Ordering::Relaxed);
            cache.left.load(Ordering::Relaxed) >= created
        };
        while !is_last() && !is_given_up() {
            if self.event_loop.poll(|_, _| ()) == 0 {
                std::thread::yield_now();
            }
        }
    }
}

#[cfg(feature = "bench")]
mod peers {
    use std::hash::BuildHasher;
    use std::num::NonZeroUsize;

    use super::{Answers, CacheHandle, Part, RandomState, Setup, WithHandles, room};

    type Shard = parking_lot::Mutex<lru::LruCache<u64, u64, RandomState>>;

    /// `lru` behind a number of locks.
    pub(super) struct Lru<const SHARDS: usize>(RandomState, Vec<Shard>);

    impl<const SHARDS: usize> WithHandles for Lru<SHARDS> {
        fn build(setup: &Setup) -> Self {
            let hasher = RandomState::default();
            let mean = room(setup) / SHARDS;
            // Room for the fullest shard, if nothing is to be evicted.
            let slack = match room(setup) > setup.capacity {
                true => 6 * mean.isqrt(),
                false => 0,
            };
            let each = NonZeroUsize::new((mean + slack).max(16)).expect("at least 16");
            let shard = |_| lru::LruCache::with_hasher(each, hasher.clone()).into();
            Self(hasher.clone(), (0..SHARDS).map(shard).collect())
        }
        shared_by_threads!(Part);
    }

    impl<const SHARDS: usize> CacheHandle for &Lru<SHARDS> {
        #[inline]
        fn submit(&mut self, key: u64, value: Option<u64>, answers: &mut Answers) {
            let shard = &self.1[(self.0.hash_one(key) >> 40) as usize % SHARDS];
            let Some(value) = value else {
                let found = shard.lock().get(&key).copied();
                return answers.looked_up(key, found);
            };
            shard.lock().put(key, value);
            answers.stored(true);
        }
    }

    pub(super) struct Quick(
        quick_cache::sync::Cache<u64, u64, quick_cache::UnitWeighter, RandomState>,
    );

    impl WithHandles for Quick {
        fn build(setup: &Setup) -> Self {
            let capacity = room(setup).max(64);
            Self(quick_cache::sync::Cache::with(
                capacity,
                capacity as u64,
                quick_cache::UnitWeighter,
                RandomState::default(),
                Default::default(),
            ))
        }
        shared_by_threads!(Part);
    }

    impl CacheHandle for &Quick {
        #[inline]
        fn submit(&mut self, key: u64, value: Option<u64>, answers: &mut Answers) {
            let Some(value) = value else {
                return answers.looked_up(key, self.0.get(&key));
            };
            self.0.insert(key, value);
            answers.stored(true);
        }
    }
}

fn entry<C: WithHandles>(name: &str) -> Entry
where
    for<'s> C::Handle<'s>: CacheHandle,
{
    listed(name).subject::<CacheSubject<C>>()
}

pub(super) fn entries() -> Vec<Entry> {
    vec![
        entry::<Locked<Ttas, false>>("cphash:lockhash"),
        entry::<Locked<Ttas, true>>("cphash:lockhash-random"),
        entry::<Locked<Anderson, false>>("cphash:lockhash-anderson"),
        entry::<Batching>("cphash:lockhash-batch"),
        entry::<Dedicated<false>>("cphash:dedicated"),
        entry::<Dedicated<true>>("cphash:dedicated-random"),
        entry::<ColocatedTable>("cphash:colocated"),
        entry::<OneThread>("cphash:one-thread"),
        #[cfg(feature = "bench")]
        entry::<peers::Quick>("cphash:quick-cache"),
        #[cfg(feature = "bench")]
        entry::<peers::Lru<1>>("cphash:mutex-lru"),
        #[cfg(feature = "bench")]
        entry::<peers::Lru<4096>>("cphash:sharded-lru"),
    ]
}
