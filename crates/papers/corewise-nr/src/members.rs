//! Building a structure, and replicas that join and leave.

use std::fmt;

use corewise_atomic::sync::atomic::AtomicU64;
use corewise_atomic::sync::atomic::Ordering::{AcqRel, Relaxed, Release};
use corewise_atomic::{Backoff, Sleeps, mutant};
use corewise_topology::{CpuId, Topology};

use crate::discard::discard;
use crate::log::{FIRST, Log};
use crate::registration::{ANY_NODE, Registry};
use crate::replica::Replica;
use crate::replicated::{Garbage, Settings};
use crate::{NodeReplicated, Sequential};

corewise_atomic::static_cell! {
    /// The last epoch given to a replica of any structure; none has epoch 0.
    static LAST_EPOCH: AtomicU64 = const { AtomicU64::new(0) };
}

/// The most replicas of a structure.
pub const MAX_REPLICAS: usize = 64;

/// The usual limit of replicas at a time, unless a structure begins with more.
const USUAL_REPLICAS: usize = 16;

/// The most entries of a log.
pub const MAX_LOG: usize = 1 << 24;

/// The most slots of a replica.
pub const MAX_SLOTS: usize = 1 << 15;

/// Sleeping between two looks of a dedicated combiner that has nothing to do.
const IDLE: Sleeps = Sleeps {
    after_rounds: 64,
    shortest: std::time::Duration::from_micros(100),
    longest: std::time::Duration::from_micros(100),
};

/// Sizes and policies of a [`NodeReplicated`].
///
/// | what | default | range |
/// |---|---|---|
/// | replicas | one for each NUMA node with CPUs that the process may use | 1 to the next |
/// | [`max_replicas`](Self::max_replicas) | 16, or the replicas if more | 1 to [`MAX_REPLICAS`] |
/// | [`log`](Self::log) | 1,024 entries | 4 to [`MAX_LOG`], a power of two |
/// | [`max_log`](Self::max_log) | 65,536 entries | `log` to [`MAX_LOG`], a power of two |
/// | [`max_batch`](Self::max_batch) | 64 writes | 1 to `log / 2 - 1` |
/// | [`min_batch`](Self::min_batch) | 1 write | 1 to `max_batch` |
/// | [`slots`](Self::slots) | two for each CPU of the largest node, 16 to 256 | 1 to [`MAX_SLOTS`] |
/// | [`shared_slots`](Self::shared_slots) | 4 | 1 to [`MAX_SLOTS`] |
///
/// Memory, besides the replicas and their operations: a cache line for each entry of the log if an
/// operation has up to 48 bytes; for each replica 256 bytes a slot.
///
/// ```
/// use corewise_nr::structures::priority_queue::{Read, Response, SkipListQueue, Write};
/// use corewise_nr::Builder;
/// let builder = Builder::new().replicas(2).log(256).max_batch(32);
/// let queue = builder.build(|_| SkipListQueue::new())?;
/// queue.write(Write::Insert(5));
/// assert_eq!(queue.read(&Read::Min), Response::Key(Some(5)));
/// # Ok::<(), corewise_nr::BuildError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Builder {
    placement: Placement,
    max_replicas: Option<usize>,
    log: usize,
    max_log: Option<usize>,
    min_batch: usize,
    max_batch: Option<usize>,
    slots: Option<usize>,
    shared_slots: usize,
    bypass_single: bool,
    compare_every: u64,
}

#[derive(Clone, Debug)]
enum Placement {
    /// A replica for each node.
    Nodes(Vec<Vec<CpuId>>),
    /// A replica for each node of a machine, or for several neighbours if there are too many; of
    /// this machine if the list is empty.
    Machine(Vec<Vec<CpuId>>),
    /// A number of replicas that belong to no node.
    Anywhere(usize),
}

/// Why a structure cannot be built: a value is not within its range, see [`Builder`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BuildError {
    /// The number of replicas, or their limit.
    Replicas,
    /// The entries of the log, or their limit.
    Log,
    /// The least or the largest batch.
    Batch,
    /// The slots.
    Slots,
}

impl fmt::Display for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Replicas => "a structure has 1 to max_replicas replicas, which is at most 64",
            Self::Log => "a log has 4 to max_log entries, at most 2^24, and both are powers of two",
            Self::Batch => "a batch has 1 to log / 2 - 1 writes",
            Self::Slots => "a replica has 1 to 32,768 slots of either kind",
        })
    }
}

impl std::error::Error for BuildError {}

/// A replica, until it leaves. Its number may be used again, the ID is not: no two replicas of a
/// process have the same ID. Functions that get the ID of a replica of another structure do what
/// they do if the replica has left.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ReplicaId {
    index: usize,
    epoch: u64,
}

impl ReplicaId {
    /// Its number, which [`ReplicationStats`] and [`Divergence`](crate::Divergence) use.
    pub fn number(self) -> usize {
        self.index
    }
}

/// There is no room for another replica: [`Builder::max_replicas`] are live.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooMany;

impl fmt::Display for TooMany {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the largest number of replicas is live")
    }
}

impl std::error::Error for TooMany {}

/// Why a replica cannot be removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RemoveError {
    /// It is the last one.
    Last,
    /// It has left already.
    Gone,
}

impl fmt::Display for RemoveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Last => "the last replica cannot be removed",
            Self::Gone => "the replica has left already",
        })
    }
}

impl std::error::Error for RemoveError {}

/// Declares methods that set the field of the same name.
macro_rules! setters {
    ($($(#[$doc:meta])* $field:ident($value:ident: $type:ty);)+) => {$(
        $(#[$doc])*
        #[must_use]
        pub fn $field(mut self, $value: $type) -> Self {
            self.$field = $value.into();
            self
        }
    )+};
}

impl Default for Builder {
    fn default() -> Self {
        Self::new()
    }
}

impl Builder {
    /// The defaults: see the table above.
    #[must_use]
    pub fn new() -> Self {
        let is_tiny = cfg!(corewise_stress);
        Self {
            placement: Placement::Machine(Vec::new()),
            max_replicas: None,
            log: if is_tiny { 4 } else { 1024 },
            max_log: None,
            min_batch: 1,
            max_batch: None,
            slots: is_tiny.then_some(1),
            shared_slots: if is_tiny { 1 } else { 4 },
            bypass_single: true,
            compare_every: 0,
        }
    }

    /// Makes `count` replicas that belong to no node. A thread uses the one with the fewest
    /// threads.
    #[must_use]
    pub fn replicas(mut self, count: usize) -> Self {
        self.placement = Placement::Anywhere(count);
        self
    }

    /// Makes a replica for each node of a machine that has CPUs for this process. If it has more
    /// nodes than [`max_replicas`](Self::max_replicas) allows, neighbours share a replica, and
    /// count as one node.
    #[must_use]
    pub fn topology(mut self, machine: &Topology) -> Self {
        let is_allowed = |cpu: &CpuId| machine.allowed().any(|allowed| allowed.id == *cpu);
        let nodes = machine.nodes.iter().map(|node| {
            let cpus = node.cpus.iter().copied();
            cpus.filter(is_allowed).collect::<Vec<_>>()
        });
        self.placement = Placement::Machine(nodes.filter(|cpus| !cpus.is_empty()).collect());
        self
    }

    /// Makes a replica for each of these sets of CPUs, on one of which the building thread runs
    /// meanwhile, so that the replica's memory is local. A thread uses the replica of the CPU on
    /// which it runs when it registers, which is the reason to pin threads.
    ///
    /// A number that no CPU has names no thread's CPU; it is not an error. If sets overlap, a CPU
    /// belongs to the first one. An empty list stands for the nodes of this machine.
    #[must_use]
    pub fn nodes(mut self, nodes: Vec<Vec<CpuId>>) -> Self {
        self.placement = match nodes.is_empty() {
            true => Placement::Machine(nodes),
            false => Placement::Nodes(nodes),
        };
        self
    }

    setters! {
        /// Limits the number of replicas at a time.
        max_replicas(count: usize);

        /// Sets the entries of the log at first.
        log(entries: usize);

        /// Limits the entries of the log. It doubles when it is full because a replica is behind
        /// whose combiner is busy. At the limit writers wait for that replica.
        max_log(entries: usize);

        /// Limits the writes of a batch.
        max_batch(writes: usize);

        /// Lets a combiner with fewer writes look for more, four times, while it executes the log.
        min_batch(writes: usize);

        /// Sets how many threads of a replica have a slot to themselves.
        slots(count: usize);

        /// Sets the number of slots that all further threads of a replica share.
        shared_slots(count: usize);

        /// Sets whether a lone replica skips the log (the default). Then it is a structure with
        /// flat combining and a readers-writer lock.
        bypass_single(is_on: bool);

        /// Compares the digests of replicas at every multiple of `entries` of the log; 0, the
        /// default, for never. Costs a [`digest`](Sequential::digest) of each replica each time;
        /// meant for tests. See [`NodeReplicated::divergence`].
        compare_every(entries: u64);
    }

    /// Builds a structure. `make` makes the replicas, all equal, and gets their numbers.
    ///
    /// # Errors
    ///
    /// If a value is not within its range.
    pub fn build<D: Sequential>(
        self,
        mut make: impl FnMut(usize) -> D,
    ) -> Result<NodeReplicated<D>, BuildError> {
        let nodes = self.resolve_nodes();
        let count = match self.placement {
            Placement::Anywhere(count) => count,
            Placement::Nodes(_) | Placement::Machine(_) => nodes.len(),
        };
        let settings = self.settings()?;
        let max_replicas = self.max_replicas.unwrap_or(count.max(USUAL_REPLICAS));
        if max_replicas > MAX_REPLICAS || !(1..=max_replicas).contains(&count) {
            return Err(BuildError::Replicas);
        }
        let slots = self.slots.unwrap_or_else(|| default_slots(&nodes));
        let slots_range = 1..=MAX_SLOTS;
        if !slots_range.contains(&slots) || !slots_range.contains(&self.shared_slots) {
            return Err(BuildError::Slots);
        }
        let max_log = self.resolved_max_log().ilog2();
        let log2 = self.log.ilog2();
        let registry = Registry::new(max_replicas, slots, self.shared_slots, &nodes);
        let log = Log::new(log2, max_log);
        let built = NodeReplicated::from_parts(log, log2, max_replicas, registry, settings);
        for index in 0..count {
            let node = if nodes.is_empty() {
                ANY_NODE
            } else {
                index as u32
            };
            let data = built.on_node(node, || make(index));
            built.install(index, node, data, Origin::new(log2));
        }
        Ok(built)
    }

    fn resolve_nodes(&self) -> Vec<Vec<CpuId>> {
        let most = self.max_replicas.unwrap_or(MAX_REPLICAS);
        match &self.placement {
            Placement::Anywhere(_) => Vec::new(),
            Placement::Nodes(nodes) => nodes.clone(),
            Placement::Machine(nodes) if !nodes.is_empty() => join_neighbours(nodes, most),
            Placement::Machine(_) => match Self::new().topology(&Topology::detect()).placement {
                Placement::Machine(nodes) if !nodes.is_empty() => join_neighbours(&nodes, most),
                _ => vec![Vec::new()],
            },
        }
    }

    fn resolved_max_log(&self) -> usize {
        let usual = if cfg!(corewise_stress) { 16 } else { 1 << 16 };
        self.max_log.unwrap_or(usual.max(self.log))
    }

    fn settings(&self) -> Result<Settings, BuildError> {
        let max_log = self.resolved_max_log();
        let are_powers = self.log.is_power_of_two() && max_log.is_power_of_two();
        if !are_powers || self.log < 4 || self.log > max_log || max_log > MAX_LOG {
            return Err(BuildError::Log);
        }
        let largest = self.log / 2 - 1;
        let max_batch = self.max_batch.unwrap_or(largest.min(64));
        if !(1..=largest).contains(&max_batch) || !(1..=max_batch).contains(&self.min_batch) {
            return Err(BuildError::Batch);
        }
        Ok(Settings {
            min_batch: self.min_batch,
            max_batch,
            bypass_single: self.bypass_single,
            compare_every: self.compare_every,
        })
    }
}

/// The CPUs of at most `most` groups of nodes; all groups have about the same number of nodes.
fn join_neighbours(nodes: &[Vec<CpuId>], most: usize) -> Vec<Vec<CpuId>> {
    let groups = nodes.len().min(most);
    let group = |number: usize| {
        let [first, end] = [number, number + 1].map(|it| it * nodes.len() / groups);
        nodes[first..end].concat()
    };
    (0..groups).map(group).collect()
}

fn default_slots(nodes: &[Vec<CpuId>]) -> usize {
    let cpus = nodes.iter().map(Vec::len).max().unwrap_or(0);
    let cpus = match cpus {
        0 => std::thread::available_parallelism().map_or(1, usize::from),
        cpus => cpus,
    };
    (2 * cpus).clamp(16, 256)
}

/// Where in the log a replica begins.
struct Origin {
    applied: u64,
    log2: u32,
    panics: u64,
}

impl Origin {
    fn new(log2: u32) -> Self {
        Self {
            applied: FIRST,
            log2,
            panics: 0,
        }
    }
}

impl<D: Sequential> NodeReplicated<D> {
    /// Makes a structure with the defaults of [`Builder`]. `make` makes the replicas, all equal,
    /// and gets their numbers. On a machine with more than [`MAX_REPLICAS`] nodes, neighbours
    /// share a replica.
    pub fn new(make: impl FnMut(usize) -> D) -> Self {
        let built = Builder::new().build(make);
        built.expect("the defaults are within their ranges")
    }

    /// Calls `f` where the memory that it touches first is local to the node.
    fn on_node<R>(&self, node: u32, f: impl FnOnce() -> R) -> R {
        match node {
            ANY_NODE => f(),
            node => corewise_topology::run_on(&self.registry.cpus_of(node), f),
        }
    }

    /// Makes a replica live. Under `changes`, or while the structure is being built.
    fn install(&self, index: usize, node: u32, data: D, origin: Origin) -> ReplicaId {
        let replica = self.replica_or_new(index);
        // Threads that were registered with a former replica of this number may still come; they
        // only find that it has left.
        let held = replica.publications.lock.lock();
        // SAFETY: the combiner's lock is held, and the replica is not live.
        unsafe { replica.with_place(|place| *place = Some(data)) };
        replica.state.with_mut(|state| {
            // SAFETY: the lock is held, so the state is ours.
            let state = unsafe { &mut *state };
            state.index = index;
            state.is_live = true;
            state.applied = origin.applied;
            state.log2 = origin.log2;
            state.tail = self.log.tail();
            state.panics = origin.panics;
        });
        let epoch = {
            // Under the mutex, so that no scan sees this replica absent and then its source ahead.
            let mut members = self.members.lock();
            // SAFETY: the lock is held. The replica is about to be live, and under the mutex no
            // ring is freed; its source is in this ring, and does not go on before this
            // one is live.
            let ring = unsafe { self.log.ring(origin.log2) };
            replica.set_applied(origin.applied, ring);
            members.live.push(index);
            // Relaxed: only uniqueness matters.
            let epoch = LAST_EPOCH.fetch_add(1, Relaxed) + 1;
            members.epochs[index] = epoch;
            // AcqRel: pairs with the Acquire in `is_alone`.
            self.live.fetch_add(1, AcqRel);
            epoch
        };
        drop(held);
        self.registry.join(index, node);
        ReplicaId { index, epoch }
    }

    /// The replicas that are live.
    pub fn replicas(&self) -> Vec<ReplicaId> {
        let members = self.members.lock();
        let id = |&index: &usize| ReplicaId {
            index,
            epoch: members.epochs[index],
        };
        members.live.iter().map(id).collect()
    }

    /// Adds a replica, a copy of another one, while threads go on using the structure. `node` is
    /// its node, by its place among those that [`Builder::nodes`] names; `None`, and any number
    /// from 2^32 - 2 on, for none. Threads of that node move to it, and others if that evens the
    /// numbers out.
    ///
    /// Complexity: that of `clone`, which delays the threads of the copied replica.
    ///
    /// # Errors
    ///
    /// If the largest number of replicas is live.
    ///
    /// # Panics
    ///
    /// If `clone` panics; then nothing has changed. If the thread is inside an operation of this
    /// structure.
    pub fn add_replica(&self, node: Option<usize>) -> Result<ReplicaId, TooMany>
    where
        D: Clone,
    {
        self.registry.enter(|| {
            let _changes = self.changes.lock();
            let index = self.vacant_index().ok_or(TooMany)?;
            let source = self.replica(self.most_advanced());
            // Held until the copy is live: no scan may find the source ahead of the copy, and a
            // lone source does not skip the log any more.
            let mut held = Some(source.publications.lock.lock());
            let origin = source.state.with_mut(|state| {
                // SAFETY: the lock is held, so the state is ours.
                let state = unsafe { &*state };
                Origin {
                    applied: state.applied,
                    log2: state.log2,
                    panics: state.panics,
                }
            });
            let node = node.and_then(|node| u32::try_from(node).ok());
            let node = node.filter(|node| *node < ANY_NODE).unwrap_or(ANY_NODE);
            // SAFETY: the combiner's lock is held, and the source is live: it leaves under
            // `changes` only.
            let copy = self.on_node(node, || unsafe { source.with_data(D::clone) });
            held.take_if(|_| mutant!("join_publishes_late"));
            let id = self.install(index, node, copy, origin);
            drop(held);
            Ok(id)
        })
    }

    fn vacant_index(&self) -> Option<usize> {
        let members = self.members.lock();
        (0..self.max_replicas()).find(|index| !members.live.contains(index))
    }

    fn most_advanced(&self) -> usize {
        let members = self.members.lock();
        let applied = |index: &usize| self.replica(*index).applied();
        let best = members.live.iter().copied().max_by_key(applied);
        best.expect("one replica is live")
    }

    /// Removes a replica while threads go on using the structure. Its threads move to others.
    ///
    /// Complexity: waits for the operations that the replica executes, and drops it.
    ///
    /// # Errors
    ///
    /// If it is the last one, or has left already.
    ///
    /// # Panics
    ///
    /// If the thread is inside an operation of this structure.
    pub fn remove_replica(&self, id: ReplicaId) -> Result<(), RemoveError> {
        let data = self.registry.enter(|| {
            let _changes = self.changes.lock();
            {
                let members = self.members.lock();
                let is_live = members.live.contains(&id.index);
                if !is_live || members.epochs[id.index] != id.epoch {
                    return Err(RemoveError::Gone);
                }
                if members.live.len() == 1 {
                    return Err(RemoveError::Last);
                }
            }
            Ok(self.take_out(id.index))
        })?;
        discard(data);
        Ok(())
    }

    /// Ends the life of a replica, which is not the last one. Under `changes`.
    fn take_out(&self, index: usize) -> Option<D> {
        let replica = self.replica(index);
        self.registry.leave(index);
        let held = replica.publications.lock.lock();
        replica.state.with_mut(|state| {
            // SAFETY: the lock is held, so the state is ours.
            unsafe { (*state).is_live = false };
        });
        let writing = replica.lock().write();
        {
            let mut members = self.members.lock();
            members.live.retain(|&live| live != index);
            replica.end_life();
            // Release: pairs with the Acquire in `is_alone`.
            self.live.fetch_sub(1, Release);
        }
        // SAFETY: `held` is the guard of the combiner's lock (1), and `writing` that of the
        // readers-writer lock (2).
        let data = unsafe { replica.with_place(Option::take) };
        drop(writing);
        if !mutant!("leave_without_bounce") {
            // SAFETY: the lock is held, and no request is taken.
            unsafe { replica.publications.bounce() };
        }
        drop(held);
        data
    }

    /// Executes the log on every replica, except those whose combiner is busy and those that are
    /// being read.
    ///
    /// A replica whose threads do nothing falls behind. Writers care for it when the log needs
    /// room, so calling this is never necessary; called now and then by a background thread, it
    /// makes the first read of a thread that was idle fast.
    ///
    /// # Panics
    ///
    /// If the thread is inside an operation of this structure.
    ///
    /// Source: \[NR\] practical considerations, *inactive replica*.
    pub fn refresh(&self) {
        self.registry.enter(|| {
            for index in 0..self.max_replicas() {
                if self.replica_at(index).is_some() {
                    self.help(index);
                }
            }
        });
    }

    /// Makes the calling thread the dedicated combiner of a replica until `stop` returns true, or
    /// until the replica leaves. It executes the writes of the replica's threads, which post them
    /// and wait, and keeps the replica up to date. If it is slow to come, they combine themselves.
    ///
    /// `stop` is called between batches. Without work the thread spins, yields, and then looks
    /// every 100 µs. A thread that has a core to itself is useful for a replica with many threads.
    /// Meanwhile it runs on the CPUs of the replica's node, if that has one. Returns at once if the
    /// replica has left.
    ///
    /// # Panics
    ///
    /// If the thread is inside an operation of this structure. A panic in `stop` ends it.
    ///
    /// Source: \[NR\] §3.2, the additional optimization.
    pub fn combine_until(&self, id: ReplicaId, mut stop: impl FnMut() -> bool) {
        // Panics if the thread is inside an operation, also if there is no work.
        self.registry.enter(|| ());
        if !self.is_live(id) {
            return;
        }
        let replica = self.replica(id.index);
        let _dedicated = replica.dedicate();
        let node = self.registry.node_of(id.index).unwrap_or(ANY_NODE);
        self.on_node(node, || {
            let mut backoff = Backoff::new();
            while self.is_live(id) && !stop() {
                if self.combine_once(replica) {
                    backoff.reset();
                } else {
                    backoff.snooze_or_sleep(&IDLE);
                }
            }
        });
    }

    pub(crate) fn is_live(&self, id: ReplicaId) -> bool {
        let members = self.members.lock();
        members.live.contains(&id.index) && members.epochs[id.index] == id.epoch
    }

    /// Combines a batch of a replica if there is work. False if there is none, or if another thread
    /// combines.
    fn combine_once(&self, replica: &Replica<D>) -> bool {
        let is_behind = replica.applied() < self.log.tail().index;
        if !is_behind && !replica.publications.is_any_posted() {
            return false;
        }
        let mut garbage = Garbage::new();
        let has_combined = self.registry.enter(|| {
            let held = replica.publications.lock.try_lock();
            if held.is_none() && !mutant!("dedicated_takes_no_lock") {
                return false;
            }
            replica.state.with_mut(|state| {
                // SAFETY: the lock is held, so the state is ours.
                unsafe { self.combine(replica, &mut *state, None, &mut garbage) };
            });
            true
        });
        garbage.discard();
        has_combined
    }

    /// Counts of the structure.
    pub fn stats(&self) -> ReplicationStats {
        let tail = self.log.tail();
        let replicas = self.members.lock().live.clone();
        let stats = |index: usize| {
            let replica = self.replica(index);
            let counters = &replica.counters;
            ReplicaStats {
                number: index,
                node: self.registry.node_of(index).map(|node| node as usize),
                threads: self.registry.threads(index),
                applied: replica.applied(),
                behind: tail.index.saturating_sub(replica.applied()),
                batches: counters.batches.get(),
                writes: counters.writes.get(),
                direct_writes: counters.direct_writes.get(),
                panics: counters.panics.get(),
                failed_appends: counters.failed_appends.get(),
                full_log_waits: counters.full_log_waits.get(),
                helped: counters.helped.get(),
            }
        };
        ReplicationStats {
            log_capacity: tail.capacity() as usize,
            log_index: tail.index,
            log_min: self.log.min(),
            replicas: replicas.into_iter().map(stats).collect(),
        }
    }
}

/// Counts of a [`NodeReplicated`], read one by one while it is used.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReplicationStats {
    /// The present entries of the log.
    pub log_capacity: usize,
    /// The index of the next free entry of the log.
    pub log_index: u64,
    /// The least index that some replica has not executed, as it was determined last.
    pub log_min: u64,
    /// The live replicas.
    pub replicas: Vec<ReplicaStats>,
}

impl ReplicationStats {
    /// Writes of all live replicas' threads.
    pub fn writes(&self) -> u64 {
        self.replicas.iter().map(|replica| replica.writes).sum()
    }
}

/// Counts of a replica. They go on if a replica leaves and another one gets its number.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReplicaStats {
    /// Its number.
    pub number: usize,
    /// Its node, by its place among those that [`Builder::nodes`] names.
    pub node: Option<usize>,
    /// Threads and handles registered with it.
    pub threads: usize,
    /// The index of the next entry of the log that it executes; 0 if it has just left.
    pub applied: u64,
    /// Entries of the log that it has not executed.
    pub behind: u64,
    /// Batches combined by its threads.
    pub batches: u64,
    /// Writes in these batches.
    pub writes: u64,
    /// Those that skipped the log.
    pub direct_writes: u64,
    /// Writes that panicked, including those of other replicas' threads.
    pub panics: u64,
    /// Exchanges of the log's tail that failed.
    pub failed_appends: u64,
    /// Rounds in which a combiner found the log full.
    pub full_log_waits: u64,
    /// How often its combiners executed entries on another replica that was far behind.
    pub helped: u64,
}
