//! What accesses cost on a machine: caches, directory, queues, store buffers, TLBs.
//!
//! The model knows where copies of lines are and when transfers end, never values: those are in the
//! program's memory, and sequentially consistent.
//!
//! # An access
//!
//! A miss is evaluated at once, as a whole: it waits for the line's last transfer, then for the
//! ports on its way, each a queue with a service time, and takes the latency of its kind and
//! distance. At its end the line is *ready*, and a later request for it begins no earlier. So
//! requests for one line are served one after the other, in the order of their clocks.
//!
//! A store that misses goes into the store buffer, and its thread goes on; the line is ready when
//! the store has left the buffer, in order (total store order). A read-modify-write waits for the
//! buffer to be empty.
//!
//! # Invariants
//!
//! The tests check them for all lines after each access of random programs.
//!
//! 1. *One writer.* A line that is dirty in a private cache has an owner, which is a sharer, and a
//!    core hits with a write only if it is the owner and the only sharer.
//! 2. *The last write is read.* A core that hits holds a copy that was made after the last write.
//! 3. *Inclusion.* The directory's sharers are the cores whose second level holds the line; a first
//!    level holds nothing else, and an inclusive shared cache holds all of that.
//! 4. *Lookahead.* No write reaches another core in less than [`Model::lookahead`] cycles.
//!
//! # What it leaves out
//!
//! Prefetching by hardware, instruction caches, pages other than 4 KiB, false sharing of pairs of
//! lines, unfair arbitration, orderings, frequency changes. Second levels include the first ones,
//! which is not so in all machines. A miss of a load holds up its thread until it ends; only lines
//! of one announced access overlap. The hardware threads of a core see each other's misses as
//! ended.

mod cache;
mod machine;
mod queue;
#[cfg(test)]
mod tests;

use crate::AccessKind;
use crate::lines::Line;
use cache::LineSets;
pub use machine::{
    CacheShape, CoherenceProtocol, MachineError, MachineParameters, MachineShape, ParameterSample,
    SharedCachePolicy, SimMachine,
};
use queue::{InFlight, Port};

/// Where accesses of a simulation were served.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AccessCounts {
    /// By the first level.
    pub l1: u64,
    /// By the second level.
    pub l2: u64,
    /// By the shared cache of the socket.
    pub l3: u64,
    /// By a core of the same socket.
    pub peer: u64,
    /// By a cache of another socket.
    pub remote: u64,
    /// By the memory of the socket.
    pub memory: u64,
    /// By the memory of another socket.
    pub remote_memory: u64,
    /// Writes of a line that the core had, but had to take from others.
    pub upgrades: u64,
    /// Copies that private caches lost to writes of other cores.
    pub invalidations: u64,
    /// Dirty lines that went to memory.
    pub write_backs: u64,
    /// Requests that met their line in transfer.
    pub conflicts: u64,
    /// Walks of the page table.
    pub tlb_walks: u64,
    /// Cycles that stores waited for a place in the buffer.
    pub store_stalls: u64,
}

/// A core's caches, and what it waits for.
struct Core {
    l1: LineSets,
    l2: LineSets,
    tlb: LineSets,
    /// The page of the last access, which the TLB has.
    page: u32,
    /// Prefetches.
    fills: InFlight,
}

/// The state of a machine.
pub(crate) struct Model {
    pub(crate) machine: MachineParameters,
    cores: Vec<Core>,
    /// The store buffer of each processor.
    stores: Vec<InFlight>,
    /// The shared cache of each socket, and its port.
    shared: Vec<LineSets>,
    shared_ports: Vec<Port>,
    /// Of each node, its banks.
    memory: Vec<Port>,
    /// From each socket to each other one.
    links: Vec<Port>,
    pub(crate) counts: AccessCounts,
}

/// An access, as the model sees it.
#[derive(Clone, Copy)]
pub(crate) struct Request {
    /// The hardware thread.
    pub(crate) processor: usize,
    pub(crate) line: u32,
    pub(crate) kind: AccessKind,
    /// The clock of the thread, at which the request arrives at ports. Requests come in this order;
    /// one that waits for a line or a buffer keeps no port from others.
    pub(crate) clock: u64,
    /// When the request is made; at first the clock.
    pub(crate) now: u64,
    /// For a part of the latency.
    pub(crate) random: u64,
}

/// When the thread goes on, and when a write reaches others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Timing {
    pub(crate) resumes: u64,
    pub(crate) visible: u64,
}

/// Where a line comes from.
#[derive(Clone, Copy)]
enum Supplier {
    Shared,
    /// A cache of this socket.
    Caches(usize),
    Memory,
}

impl Model {
    pub(crate) fn new(machine: MachineParameters) -> Self {
        let shape = &machine.shape;
        let sets = |size: CacheShape, hashed| LineSets::new(size.entries, size.ways, hashed);
        let core = || Core {
            l1: sets(shape.l1, false),
            l2: sets(shape.l2, false),
            tlb: sets(shape.tlb, false),
            page: u32::MAX,
            fills: InFlight::new(shape.fill_buffers),
        };
        let stores = (shape.store_buffer / shape.threads).max(1);
        let sockets = shape.sockets;
        Self {
            cores: (0..machine.all_cores()).map(|_| core()).collect(),
            stores: (0..machine.processors())
                .map(|_| InFlight::new(stores))
                .collect(),
            shared: (0..sockets).map(|_| sets(shape.l3, true)).collect(),
            shared_ports: vec![Port::default(); sockets],
            memory: vec![Port::default(); sockets * shape.memory_banks],
            links: vec![Port::default(); sockets * sockets],
            counts: AccessCounts::default(),
            machine,
        }
    }

    /// How far a thread may run ahead of others with hits of its first level.
    pub(crate) fn lookahead(&self) -> u64 {
        self.machine.peer.min(self.machine.remote_1)
    }

    /// The core of a processor: processors are numbered by their place in a core, then by core,
    /// then by socket.
    #[inline]
    pub(crate) fn core_of(&self, processor: usize) -> usize {
        processor % self.cores.len()
    }

    #[inline]
    pub(crate) fn socket_of(&self, core: usize) -> usize {
        core / self.machine.shape.cores
    }

    /// An access that needs nothing but the first level of its core, if it is one.
    #[inline]
    pub(crate) fn hit(&mut self, lines: &mut [Line], request: Request) -> Option<Timing> {
        let Request {
            line: number,
            kind,
            now,
            processor,
            ..
        } = request;
        let index = self.core_of(processor);
        let core = &mut self.cores[index];
        let line = &mut lines[number as usize];
        if core.page != number / 64 || !core.fills.is_empty_at(now) || !core.l1.is_hit(number) {
            return None;
        }
        let cost = match kind {
            AccessKind::Load => self.machine.l1,
            AccessKind::Prefetch => 1,
            _ if !is_exclusive(line, index) || !self.stores[processor].is_empty_at(now) => {
                return None;
            }
            AccessKind::Store => 1,
            AccessKind::Rmw => self.machine.l1 + self.machine.rmw,
            AccessKind::PrefetchForWrite => 1,
        };
        line.is_dirty |= kind.writes();
        self.counts.l1 += 1;
        Some(Timing {
            resumes: now + cost,
            visible: now + cost,
        })
    }

    /// Any access.
    pub(crate) fn access(&mut self, lines: &mut [Line], request: Request) -> Timing {
        let Request {
            processor, kind, ..
        } = request;
        let core = self.core_of(processor);
        let begin = request.now + self.walk(core, request.line / 64);
        let request = Request {
            now: begin,
            ..request
        };
        match kind {
            AccessKind::Load => {
                let end = self.read(lines, core, request);
                Timing {
                    resumes: end,
                    visible: end,
                }
            }
            AccessKind::Store => self.store(lines, core, request),
            AccessKind::Rmw => {
                let drained = self.stores[processor].empty_at().max(begin);
                let request = Request {
                    now: drained,
                    ..request
                };
                let end = self.write(lines, core, request) + self.machine.rmw;
                let line = &mut lines[request.line as usize];
                line.ready = line.ready.max(end);
                Timing {
                    resumes: end,
                    visible: end,
                }
            }
            AccessKind::Prefetch | AccessKind::PrefetchForWrite => {
                let begin = self.cores[core].fills.place_at(begin);
                let request = Request {
                    now: begin,
                    ..request
                };
                let end = if kind == AccessKind::Prefetch {
                    self.read(lines, core, request)
                } else {
                    self.write(lines, core, request)
                };
                self.cores[core].fills.add(request.line, end);
                Timing {
                    resumes: begin + 1,
                    visible: end,
                }
            }
        }
    }

    /// When the last store of a processor has left its buffer.
    pub(crate) fn drained_at(&self, processor: usize) -> u64 {
        self.stores[processor].empty_at()
    }

    fn walk(&mut self, core: usize, page: u32) -> u64 {
        let here = &mut self.cores[core];
        if here.page == page {
            return 0;
        }
        here.page = page;
        if here.tlb.is_hit(page) {
            return 0;
        }
        here.tlb.insert(page);
        self.counts.tlb_walks += 1;
        self.machine.tlb_walk
    }

    /// A store leaves the buffer after those before it. Its thread waits only for a place.
    fn store(&mut self, lines: &mut [Line], core: usize, request: Request) -> Timing {
        let Request { processor, now, .. } = request;
        let begin = self.stores[processor].place_at(now);
        self.counts.store_stalls += begin - now;
        let request = Request {
            now: begin,
            ..request
        };
        let is_hit = is_exclusive(&lines[request.line as usize], core);
        let end = self.write(lines, core, request);
        // A hit writes the cache while the thread goes on.
        let end = if is_hit {
            begin + 1
        } else {
            end + self.machine.store
        };
        let end = end.max(self.stores[processor].empty_at());
        self.stores[processor].add(request.line, end);
        let line = &mut lines[request.line as usize];
        line.ready = line.ready.max(end);
        Timing {
            resumes: begin + 1,
            visible: end,
        }
    }

    /// The latency of a hit in the private caches.
    fn private_hit(&mut self, lines: &[Line], core: usize, request: Request) -> Option<u64> {
        let here = &mut self.cores[core];
        let number = request.line;
        if !has(&lines[number as usize].sharers, core) {
            return None;
        }
        let latency = if here.l1.is_hit(number) {
            self.counts.l1 += 1;
            self.machine.l1
        } else {
            here.l2.is_hit(number);
            // What it replaces stays in the second level.
            here.l1.insert(number);
            self.counts.l2 += 1;
            self.machine.l2
        };
        // A prefetch may still be on its way.
        let filled = here.fills.end_of(number).unwrap_or(0);
        Some((request.now + latency).max(filled))
    }

    /// When the data is there.
    fn read(&mut self, lines: &mut [Line], core: usize, request: Request) -> u64 {
        if let Some(end) = self.private_hit(lines, core, request) {
            return end;
        }
        let begin = self.begin_transfer(lines, core, request);
        let line = &lines[request.line as usize];
        let supplier = self.supplier(line, core);
        let end = self.fetch(line, core, supplier, request, begin);
        self.give_copy(lines, request.line, core, request.clock);
        let line = &mut lines[request.line as usize];
        if line.sharers == [0, 0] && line.shared & !self.bit_of(core) == 0 {
            line.owner = core as u16 + 1;
        }
        add(&mut line.sharers, core);
        line.ready = end;
        self.fill(lines, core, request.line, request.clock);
        end
    }

    /// When the core may write.
    fn write(&mut self, lines: &mut [Line], core: usize, request: Request) -> u64 {
        let number = request.line;
        if is_exclusive(&lines[number as usize], core) {
            lines[number as usize].is_dirty = true;
            let end = self.private_hit(lines, core, request);
            return end.unwrap_or(request.now);
        }
        let begin = self.begin_transfer(lines, core, request);
        let line = &lines[number as usize];
        let is_upgrade = has(&line.sharers, core);
        let farthest = self.farthest_copy(line, core);
        let taken = begin + farthest.map_or(0, |hops| self.machine.transfer(hops));
        let end = if is_upgrade {
            self.counts.upgrades += 1;
            // The shared cache answers for copies that the directory does not know to be gone.
            taken.max(begin + self.machine.l3)
        } else {
            let supplier = self.supplier(line, core);
            taken.max(self.fetch(line, core, supplier, request, begin))
        };
        self.invalidate(lines, number, core);
        let line = &mut lines[number as usize];
        line.sharers = [0, 0];
        add(&mut line.sharers, core);
        line.owner = core as u16 + 1;
        line.is_dirty = true;
        line.ready = end;
        if is_upgrade {
            let here = &mut self.cores[core];
            here.l2.is_hit(number);
            if !here.l1.is_hit(number) {
                here.l1.insert(number);
            }
        } else {
            self.fill(lines, core, number, request.clock);
        }
        end
    }

    /// When a request reaches the line: after the transfer before it, through the port of the
    /// socket.
    fn begin_transfer(&mut self, lines: &[Line], core: usize, request: Request) -> u64 {
        let ready = lines[request.line as usize].ready;
        let mut begin = request.now;
        if ready > begin {
            self.counts.conflicts += 1;
            begin = ready + self.machine.conflict;
        }
        let socket = self.socket_of(core);
        let wait = self.shared_ports[socket].wait(request.clock, self.machine.l3_service);
        begin + wait + request.random % (self.machine.jitter + 1)
    }

    /// Where the copy of a core comes from.
    fn supplier(&self, line: &Line, core: usize) -> Supplier {
        let socket = self.socket_of(core);
        if let Some(owner) = owner_of(line)
            && owner != core
        {
            return Supplier::Caches(self.socket_of(owner));
        }
        if line.shared & self.bit_of(core) != 0 {
            return Supplier::Shared;
        }
        let forwards = line.is_dirty || self.machine.shape.protocol == CoherenceProtocol::Mesif;
        let nearest = |from: &usize| (self.machine.hops(socket, *from), *from);
        let sources = self.sockets_with(line);
        match bits(sources).min_by_key(nearest) {
            Some(from) if from == socket || forwards => Supplier::Caches(from),
            _ => Supplier::Memory,
        }
    }

    /// The sockets whose caches, private or shared, hold a line, as bits.
    fn sockets_with(&self, line: &Line) -> u8 {
        let sharers = cores(&line.sharers).map(|core| self.bit_of(core));
        sharers.fold(line.shared, |all, bit| all | bit)
    }

    #[inline]
    fn bit_of(&self, core: usize) -> u8 {
        1 << self.socket_of(core)
    }

    /// When a line arrives that is requested now.
    fn fetch(
        &mut self,
        line: &Line,
        core: usize,
        supplier: Supplier,
        request: Request,
        begin: u64,
    ) -> u64 {
        let socket = self.socket_of(core);
        let machine = &self.machine;
        match supplier {
            Supplier::Shared => {
                self.counts.l3 += 1;
                begin + machine.l3
            }
            Supplier::Caches(from) if from == socket => {
                self.counts.peer += 1;
                begin + machine.peer
            }
            Supplier::Caches(from) => {
                self.counts.remote += 1;
                let asks_home = usize::from(line.home) != from;
                let lookup = if asks_home { machine.home_lookup } else { 0 };
                let latency = machine.transfer(machine.hops(socket, from)) + lookup;
                begin + self.send(from, socket, request.clock) + latency
            }
            Supplier::Memory => {
                let home = usize::from(line.home);
                let latency = machine.memory_at(machine.hops(socket, home));
                let served = begin + self.serve_memory(home, request.line, request.clock);
                if home == socket {
                    self.counts.memory += 1;
                    served + latency
                } else {
                    self.counts.remote_memory += 1;
                    served + self.send(home, socket, request.clock) + latency
                }
            }
        }
    }

    /// How long data waits for a link.
    fn send(&mut self, from: usize, to: usize, at: u64) -> u64 {
        let link = &mut self.links[from * self.shared.len() + to];
        link.wait(at, self.machine.link_service)
    }

    /// How long a request waits for the memory of a node.
    fn serve_memory(&mut self, node: usize, number: u32, at: u64) -> u64 {
        let banks = self.machine.shape.memory_banks;
        let bank = (u64::from(number).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40) as usize % banks;
        let service = self.machine.memory_service * banks as u64;
        self.memory[node * banks + bank].wait(at, service)
    }

    /// A dirty line goes to the memory of its node, for which nobody waits.
    fn write_back(&mut self, line: &mut Line, number: u32, at: u64) {
        self.counts.write_backs += 1;
        line.is_dirty = false;
        self.serve_memory(usize::from(line.home), number, at);
    }

    /// What a read of another core does to the owner of a line, and to a dirty shared cache.
    fn give_copy(&mut self, lines: &mut [Line], number: u32, core: usize, at: u64) {
        let is_moesi = self.machine.shape.protocol == CoherenceProtocol::Moesi;
        let line = &mut lines[number as usize];
        let sources = self.sockets_with(line);
        let leaves = sources & !self.bit_of(core) != 0;
        let keeps = self.machine.shape.shared_cache != SharedCachePolicy::None && !leaves;
        if line.is_dirty && is_moesi && line.owner != 0 {
            return;
        }
        line.owner = 0;
        // What has not left the socket goes to memory when its shared cache evicts it.
        if line.is_dirty && !keeps {
            self.write_back(line, number, at);
        }
    }

    /// How far the farthest other copy is.
    fn farthest_copy(&self, line: &Line, core: usize) -> Option<u8> {
        let socket = self.socket_of(core);
        let others = cores(&line.sharers).filter(|&other| other != core);
        let sharers = others.map(|other| self.machine.hops(socket, self.socket_of(other)));
        let shared = bits(line.shared & !self.bit_of(core));
        let shared = shared.map(|other| self.machine.hops(socket, other));
        sharers.chain(shared).max()
    }

    /// All other copies go, except that of the core's shared cache.
    fn invalidate(&mut self, lines: &mut [Line], number: u32, core: usize) {
        let line = &mut lines[number as usize];
        for other in cores(&line.sharers).filter(|&other| other != core) {
            self.counts.invalidations += 1;
            self.cores[other].l1.remove(number);
            self.cores[other].l2.remove(number);
        }
        for socket in bits(line.shared & !(1 << (core / self.machine.shape.cores))) {
            self.shared[socket].remove(number);
        }
        line.shared &= self.bit_of(core);
    }

    /// Puts a line into the caches of a core, which does not have it.
    fn fill(&mut self, lines: &mut [Line], core: usize, number: u32, at: u64) {
        let socket = self.socket_of(core);
        let is_there = lines[number as usize].shared & self.bit_of(core) != 0;
        match self.machine.shape.shared_cache {
            SharedCachePolicy::Inclusive if is_there => _ = self.shared[socket].is_hit(number),
            SharedCachePolicy::Inclusive => self.fill_shared(lines, socket, number, at),
            SharedCachePolicy::Victim if is_there => {
                self.shared[socket].remove(number);
                lines[number as usize].shared &= !self.bit_of(core);
            }
            SharedCachePolicy::Victim | SharedCachePolicy::None => {}
        }
        if let Some(evicted) = self.cores[core].l2.insert(number) {
            self.cores[core].l1.remove(evicted);
            self.leave_core(lines, core, evicted, at);
        }
        self.cores[core].l1.insert(number);
    }

    /// The second level of a core has evicted a line.
    fn leave_core(&mut self, lines: &mut [Line], core: usize, number: u32, at: u64) {
        let socket = self.socket_of(core);
        let line = &mut lines[number as usize];
        take(&mut line.sharers, core);
        let owned = owner_of(line) == Some(core);
        if owned {
            line.owner = 0;
        }
        match self.machine.shape.shared_cache {
            SharedCachePolicy::Inclusive => {}
            SharedCachePolicy::Victim if line.shared & 1 << socket == 0 => {
                self.fill_shared(lines, socket, number, at);
            }
            SharedCachePolicy::Victim => {}
            SharedCachePolicy::None if owned && line.is_dirty => self.write_back(line, number, at),
            SharedCachePolicy::None => {}
        }
    }

    /// Puts a line into the shared cache of a socket, which does not have it.
    fn fill_shared(&mut self, lines: &mut [Line], socket: usize, number: u32, at: u64) {
        lines[number as usize].shared |= 1 << socket;
        let Some(evicted) = self.shared[socket].insert(number) else {
            return;
        };
        let line = &mut lines[evicted as usize];
        line.shared &= !(1 << socket);
        if self.machine.shape.shared_cache == SharedCachePolicy::Inclusive {
            let cores_of_socket = self.machine.shape.cores;
            for core in cores(&line.sharers).filter(|core| core / cores_of_socket == socket) {
                self.cores[core].l1.remove(evicted);
                self.cores[core].l2.remove(evicted);
                take(&mut line.sharers, core);
                if owner_of(line) == Some(core) {
                    line.owner = 0;
                }
            }
        }
        // An owner elsewhere keeps it dirty, and no other socket has a dirty copy without one.
        if line.is_dirty && line.owner == 0 {
            self.write_back(line, evicted, at);
        }
    }
}

/// Whether a core may write a line without asking.
#[inline]
fn is_exclusive(line: &Line, core: usize) -> bool {
    let mut alone = [0, 0];
    add(&mut alone, core);
    owner_of(line) == Some(core) && line.sharers == alone
}

#[inline]
fn owner_of(line: &Line) -> Option<usize> {
    usize::from(line.owner).checked_sub(1)
}

#[inline]
fn has(sharers: &[u64; 2], core: usize) -> bool {
    sharers[core / 64] >> (core % 64) & 1 != 0
}

#[inline]
fn add(sharers: &mut [u64; 2], core: usize) {
    sharers[core / 64] |= 1 << (core % 64);
}

#[inline]
fn take(sharers: &mut [u64; 2], core: usize) {
    sharers[core / 64] &= !(1 << (core % 64));
}

/// The cores of a set, as it is now.
fn cores(sharers: &[u64; 2]) -> impl Iterator<Item = usize> + use<> {
    let [low, high] = *sharers;
    places(low).chain(places(high).map(|place| place + 64))
}

fn bits(set: u8) -> impl Iterator<Item = usize> {
    places(set.into())
}

fn places(mut set: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let place = set.trailing_zeros() as usize;
        // Clears the lowest bit, if there is one.
        set &= set.wrapping_sub(1);
        (place < 64).then_some(place)
    })
}
