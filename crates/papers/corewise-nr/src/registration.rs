//! Which replica and which slot a thread uses, and whether it is inside an operation.
//!
//! A thread registers with a structure at its first operation: it gets a replica (that of its
//! node, or the one with the fewest threads) and claims the lowest free *own* slot there. If none
//! is free, it uses a *shared* slot. Shared slots are not claimed: any number of threads may use
//! one. A thread that ends gives its own slots back.
//!
//! The slots' contents are elsewhere. A [`Registry`] only records which are claimed, so that a
//! thread may outlive the structure, whose type need not be `'static`.
//!
//! # Guarantees
//!
//! 1. *One owner.* At most one thread or handle has an own slot at a time, and what its last owner
//!    did happens before what the next owner does.
//! 2. *Any number of threads.* Registration never fails while a replica is live.
//! 3. *No nesting.* [`Registry::enter`] panics if the thread is inside an operation of the same
//!    structure already, with whatever slot.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::ptr;

use corewise_atomic::sync::Arc;
use corewise_atomic::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use corewise_atomic::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};
use corewise_atomic::{CachePadded, Slots, ordering, thread};
use corewise_locks::ReaderFlag;
use corewise_topology::CpuId;

corewise_atomic::static_cell! {
    /// The last ID given to a registry; none has ID 0.
    static LAST_ID: AtomicU64 = const { AtomicU64::new(0) };
    /// Distributes threads over shared slots.
    static NEXT_SHARED: AtomicU32 = const { AtomicU32::new(0) };
}

corewise_atomic::thread_local! {
    // No destructor: usable until the thread is gone.
    static LOCAL: Local = const {
        Local {
            id: Cell::new(0),
            generation: Cell::new(0),
            place: Cell::new(SlotAddress(0)),
            inside: Cell::new(ptr::null()),
        }
    };
    static MEMBERSHIPS: Memberships = Memberships(RefCell::new(HashMap::new()));
}

/// A replica and a slot of it: the slot in 16 bits, the replica in 15, and [`SlotAddress::SHARED`].
/// One word without invalid values, which is read and compared faster than three fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SlotAddress(u32);

impl SlotAddress {
    const SHARED: u32 = 1 << 31;

    pub(crate) fn new(replica: usize, slot: usize, is_shared: bool) -> Self {
        debug_assert!(replica < 1 << 15 && slot < 1 << 16);
        let shared = if is_shared { Self::SHARED } else { 0 };
        Self((replica as u32) << 16 | slot as u32 | shared)
    }

    #[inline]
    pub(crate) fn replica(self) -> usize {
        (self.0 >> 16) as usize & 0x7fff
    }

    #[inline]
    pub(crate) fn slot(self) -> usize {
        self.0 as usize & 0xffff
    }

    /// Whether other threads may use the slot at the same time.
    #[inline]
    pub(crate) fn is_shared(self) -> bool {
        self.0 & Self::SHARED != 0
    }

    /// The flag of the slot in the readers-writer lock of the replica.
    ///
    /// # Safety
    ///
    /// 1. The slot is the calling thread's, or a shared one. By its flag the thread holds the lock
    ///    for one read at a time.
    #[inline]
    pub(crate) unsafe fn flag(self) -> ReaderFlag {
        if self.is_shared() {
            ReaderFlag::shared(self.slot())
        } else {
            // SAFETY: no other thread uses the flag: the slot is the caller's (1), is claimed by
            // one thread at a time (guarantee 1 of the module), and shared slots have other
            // indexes.
            unsafe { ReaderFlag::own(self.slot()) }
        }
    }
}

struct Local {
    /// The place that the thread used last, and for which registry and generation of it.
    place: Cell<SlotAddress>,
    id: Cell<u64>,
    generation: Cell<u64>,
    /// The operations that the thread is inside of, innermost first.
    inside: Cell<*const Frame>,
}

/// An operation that a thread is inside of. Lives on its stack.
struct Frame {
    id: u64,
    outer: *const Frame,
}

/// Claims and counts of the threads of a structure.
pub(crate) struct Registry {
    id: u64,
    /// Increases when a replica joins or leaves.
    generation: CachePadded<AtomicU64>,
    /// Whether the structure was dropped.
    is_closed: AtomicBool,
    own_slots: usize,
    shared_slots: usize,
    /// The node of each CPU, by CPU; empty if replicas belong to no node. Sorted rather than
    /// indexed, because users may name any numbers.
    node_of_cpu: Vec<(CpuId, u32)>,
    groups: Slots<Group>,
}

/// The threads of a replica.
struct Group {
    /// The node of the replica; [`ANY_NODE`] if it has none, [`NOT_LIVE`] if the group is unused.
    node: AtomicU32,
    threads: AtomicU32,
    claimed: Slots<AtomicBool>,
}

const NOT_LIVE: u32 = u32::MAX;
/// A replica that belongs to no node.
pub(crate) const ANY_NODE: u32 = u32::MAX - 1;

impl Registry {
    /// Makes a registry for up to `replicas` replicas, none of which is live. `nodes` has the CPUs
    /// of each node, if replicas belong to nodes.
    pub(crate) fn new(
        replicas: usize,
        own_slots: usize,
        shared_slots: usize,
        nodes: &[Vec<CpuId>],
    ) -> Arc<Self> {
        let cpus_of = |(node, cpus): (usize, &Vec<CpuId>)| {
            let with_node = |cpu: &CpuId| (*cpu, node as u32);
            cpus.iter().map(with_node).collect::<Vec<_>>()
        };
        let mut node_of_cpu: Vec<_> = nodes.iter().enumerate().flat_map(cpus_of).collect();
        node_of_cpu.sort_unstable();
        node_of_cpu.dedup_by_key(|(cpu, _)| *cpu);
        Arc::new(Self {
            // Relaxed: only uniqueness matters.
            id: LAST_ID.fetch_add(1, Relaxed) + 1,
            generation: CachePadded::new(AtomicU64::new(0)),
            is_closed: AtomicBool::new(false),
            own_slots,
            shared_slots,
            node_of_cpu,
            groups: Slots::from_fn(replicas, |_| Group {
                node: AtomicU32::new(NOT_LIVE),
                threads: AtomicU32::new(0),
                claimed: Slots::from_fn(own_slots, |_| AtomicBool::new(false)),
            }),
        })
    }

    /// A registry for a structure with one replica, which is live.
    pub(crate) fn single(own_slots: usize, shared_slots: usize) -> Arc<Self> {
        let registry = Self::new(1, own_slots, shared_slots, &[]);
        registry.join(0, ANY_NODE);
        registry
    }

    /// Slots of a replica.
    pub(crate) fn slots(&self) -> usize {
        self.own_slots + self.shared_slots
    }

    /// Lets threads register with a replica.
    pub(crate) fn join(&self, replica: usize, node: u32) {
        // Release: pairs with the Acquire in `choose`, so that the replica is complete.
        self.groups[replica].node.store(node, Release);
        // Release: pairs with the Acquire in `place`.
        self.generation.fetch_add(1, Release);
    }

    /// Lets no more threads register with a replica, and makes its threads register elsewhere at
    /// their next operation.
    pub(crate) fn leave(&self, replica: usize) {
        // Relaxed: a thread that comes too late is turned away by the replica.
        self.groups[replica].node.store(NOT_LIVE, Relaxed);
        // Release: pairs with the Acquire in `place`.
        self.generation.fetch_add(1, Release);
    }

    /// Threads that have registered with a replica.
    pub(crate) fn threads(&self, replica: usize) -> usize {
        // Relaxed: a number for people.
        self.groups[replica].threads.load(Relaxed) as usize
    }

    /// Lets threads forget this registry.
    pub(crate) fn close(&self) {
        // Relaxed: a hint that publishes nothing.
        self.is_closed.store(true, Relaxed);
    }

    /// The calling thread's place, in which it registers if need be.
    #[inline]
    pub(crate) fn place(this: &Arc<Self>) -> SlotAddress {
        // Acquire: pairs with the Release in `join` and `leave`.
        let generation = this.generation.load(Acquire);
        let recent = LOCAL.try_with(|local| {
            let is_known = local.id.get() == this.id && local.generation.get() == generation;
            is_known.then(|| local.place.get())
        });
        match recent {
            Ok(Some(place)) => place,
            _ => Self::register(this, generation),
        }
    }

    #[cold]
    #[inline(never)]
    fn register(this: &Arc<Self>, generation: u64) -> SlotAddress {
        let found = MEMBERSHIPS.try_with(|all| all.find_or_register(this, generation));
        let Ok(place) = found else {
            // The thread is ending: a shared slot needs no registration.
            return this.shared_place(this.choose(None));
        };
        let _ = LOCAL.try_with(|local| {
            local.id.set(this.id);
            local.generation.set(generation);
            local.place.set(place);
        });
        place
    }

    /// Claims a slot in a replica, for a thread or a handle.
    pub(crate) fn claim(&self, replica: usize) -> SlotAddress {
        let group = &self.groups[replica];
        // Relaxed: a number that only guides `choose`.
        group.threads.fetch_add(1, Relaxed);
        // Acquire: pairs with the Release in `release`: guarantee 1. Relaxed: the exchange decides.
        let acquire = ordering!(Acquire, "slot_relaxed_claim");
        let slot = group.claimed.iter().position(|claimed| {
            !claimed.load(Relaxed)
                && claimed
                    .compare_exchange(false, true, acquire, Relaxed)
                    .is_ok()
        });
        match slot {
            Some(slot) => SlotAddress::new(replica, slot, false),
            None => self.shared_place(replica),
        }
    }

    fn shared_place(&self, replica: usize) -> SlotAddress {
        // Relaxed: it only distributes threads.
        let turn = NEXT_SHARED.fetch_add(1, Relaxed) as usize;
        SlotAddress::new(replica, self.own_slots + turn % self.shared_slots, true)
    }

    /// Gives a place back that came from [`Registry::claim`]. Its owner uses it no longer.
    pub(crate) fn release(&self, place: SlotAddress) {
        let group = &self.groups[place.replica()];
        // Relaxed: a number that only guides `choose`.
        group.threads.fetch_sub(1, Relaxed);
        if !place.is_shared() {
            // Release: pairs with the Acquire in `claim`: guarantee 1.
            let release = ordering!(Release, "slot_relaxed_release");
            group.claimed[place.slot()].store(false, release);
        }
    }

    /// A live replica for the calling thread: on its node if there is one, with the fewest threads.
    /// A thread that has a replica, `now`, keeps it if it is no worse.
    pub(crate) fn choose(&self, now: Option<usize>) -> usize {
        let node = self.current_node();
        loop {
            let rank = |replica: usize| {
                let group = &self.groups[replica];
                // Acquire: pairs with the Release in `join`.
                let its = group.node.load(Acquire);
                // Relaxed: a number that only guides the choice. The caller does not count itself.
                let threads = group.threads.load(Relaxed) - u32::from(now == Some(replica));
                (its != NOT_LIVE).then_some((its != node, threads, now != Some(replica)))
            };
            let ranks = (0..self.groups.len()).filter_map(|it| Some((rank(it)?, it)));
            if let Some((_, best)) = ranks.min() {
                return best;
            }
            // A replica joined and another left while we looked.
            thread::yield_now();
        }
    }

    /// The CPUs of a node; none for [`ANY_NODE`].
    pub(crate) fn cpus_of(&self, node: u32) -> Vec<CpuId> {
        let is_there = |(cpu, its): &(CpuId, u32)| (*its == node).then_some(*cpu);
        self.node_of_cpu.iter().filter_map(is_there).collect()
    }

    /// The node of a replica, if it is live and belongs to one.
    pub(crate) fn node_of(&self, replica: usize) -> Option<u32> {
        // Relaxed: a number.
        let node = self.groups[replica].node.load(Relaxed);
        (node != ANY_NODE && node != NOT_LIVE).then_some(node)
    }

    fn current_node(&self) -> u32 {
        if self.node_of_cpu.is_empty() {
            return ANY_NODE;
        }
        let find = |cpu| self.node_of_cpu.binary_search_by_key(&cpu, |it| it.0);
        let found = corewise_topology::current_cpu().and_then(|cpu| find(cpu).ok());
        found.map_or(ANY_NODE, |at| self.node_of_cpu[at].1)
    }

    /// Calls `operation`, during which the thread is inside an operation of this structure.
    ///
    /// # Panics
    ///
    /// If it is already.
    #[inline]
    pub(crate) fn enter<R>(&self, operation: impl FnOnce() -> R) -> R {
        let outer = innermost();
        self.check_not_inside(outer);
        let frame = Frame { id: self.id, outer };
        let _restore = Restore(outer);
        set_innermost(&raw const frame);
        operation()
    }

    #[inline]
    fn check_not_inside(&self, innermost: *const Frame) {
        let mut at = innermost;
        // SAFETY: frames are on the stack of this thread below ours, and `Restore` removes each
        // before its function returns or unwinds.
        while let Some(frame) = unsafe { at.as_ref() } {
            assert!(
                frame.id != self.id,
                "an operation calls the structure that executes it"
            );
            at = frame.outer;
        }
    }
}

#[inline]
fn innermost() -> *const Frame {
    let inside = LOCAL.try_with(|local| local.inside.get());
    inside.unwrap_or(ptr::null())
}

#[inline]
fn set_innermost(frame: *const Frame) {
    // loom and shuttle may have dropped it at the end of a thread.
    let _ = LOCAL.try_with(|local| local.inside.set(frame));
}

/// Leaves a frame, also if the operation panics.
struct Restore(*const Frame);

impl Drop for Restore {
    #[inline]
    fn drop(&mut self) {
        set_innermost(self.0);
    }
}

/// The registrations of a thread, by the ID of the registry.
struct Memberships(RefCell<HashMap<u64, Membership>>);

struct Membership {
    registry: Arc<Registry>,
    generation: u64,
    place: SlotAddress,
}

impl Memberships {
    fn find_or_register(&self, registry: &Arc<Registry>, generation: u64) -> SlotAddress {
        let mut all = self.0.borrow_mut();
        if let Some(membership) = all.get_mut(&registry.id) {
            membership.renew(generation);
            return membership.place;
        }
        // Relaxed: a hint, see `close`.
        all.retain(|_, membership| !membership.registry.is_closed.load(Relaxed));
        let place = registry.claim(registry.choose(None));
        let membership = Membership {
            registry: registry.clone(),
            generation,
            place,
        };
        all.insert(registry.id, membership);
        place
    }
}

impl Membership {
    /// Moves to a better replica if replicas have joined or left.
    fn renew(&mut self, generation: u64) {
        if self.generation == generation {
            return;
        }
        self.generation = generation;
        let now = self.place.replica();
        let best = self.registry.choose(Some(now));
        if best != now {
            self.registry.release(self.place);
            self.place = self.registry.claim(best);
        }
    }
}

impl Drop for Membership {
    fn drop(&mut self) {
        self.registry.release(self.place);
    }
}

impl Drop for Memberships {
    fn drop(&mut self) {
        let _ = LOCAL.try_with(|local| local.id.set(0));
    }
}

/// A claim that belongs to a handle.
pub(crate) struct Claim {
    registry: Arc<Registry>,
    place: Cell<SlotAddress>,
}

impl Claim {
    pub(crate) fn new(registry: &Arc<Registry>, replica: Option<usize>) -> Self {
        let replica = replica.unwrap_or_else(|| registry.choose(None));
        Self {
            registry: registry.clone(),
            place: Cell::new(registry.claim(replica)),
        }
    }

    #[inline]
    pub(crate) fn place(&self) -> SlotAddress {
        self.place.get()
    }

    /// Moves to another replica, because this one has left.
    pub(crate) fn move_on(&self) {
        self.registry.release(self.place.get());
        let replica = self.registry.choose(None);
        self.place.set(self.registry.claim(replica));
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.registry.release(self.place.get());
    }
}
