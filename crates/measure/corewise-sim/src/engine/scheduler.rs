//! Simulated threads as coroutines, and the loop that resumes the one with the smallest clock.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::hash::BuildHasherDefault;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use corosensei::stack::DefaultStack;
use corosensei::{Coroutine, CoroutineResult, Yielder};

use super::locals::Locals;
use super::{SIMULATION, with};
use crate::heap::{self, SimRegion};
use crate::lines::{AddressHasher, Lines, Watcher};
use crate::model::{AccessCounts, Model};
use crate::{Blocked, BlockedOn, Config, Finished, SimError, SimLimit};

/// How often threads that spin are resumed because no other one can run, before this is a deadlock:
/// for each of them, as long as none makes progress.
const MAX_RESCUES: usize = 100_000;
/// The same for all of them together.
const MAX_RESCUES_IN_ALL: usize = 2_000_000;
/// Lines that a thread remembers between two pauses.
const MAX_READS: usize = 64;

/// The state of a simulation.
pub(super) struct Simulation {
    /// See [`simulation`](super::simulation).
    pub(super) number: u64,
    pub(super) config: Config,
    pub(super) region: SimRegion,
    pub(super) threads: Vec<Thread>,
    /// The thread that runs, or ran last.
    pub(super) current: u32,
    /// When threads may run: (clock, thread, wait). Entries of waits that are over are skipped.
    queue: BinaryHeap<Reverse<(u64, u32, u32)>>,
    /// The first entry, taken out by a thread that gives way to it.
    next: Option<Reverse<(u64, u32, u32)>>,
    /// The first entry of the queue; the current thread runs while it is before it.
    pub(super) limit: (u64, u32),
    pub(super) lines: Lines,
    /// With a machine only.
    pub(super) model: Option<Box<Model>>,
    pub(super) processors: Processors,
    /// The threads that wait for an address, in the order of their coming.
    pub(super) waiting: HashMap<usize, VecDeque<u32>, BuildHasherDefault<AddressHasher>>,
    pub(super) statics: Locals,
    /// Stacks of threads that have ended.
    stacks: Vec<DefaultStack>,
    pub(super) error: Option<SimError>,
    /// Rescues since a thread was woken or has made progress.
    pub(super) rescues: usize,
    random: u64,
    pub(super) digest: u64,
    pub(super) accesses: u64,
    switches: u64,
}

/// A simulated thread.
pub(super) struct Thread {
    pub(super) name: Option<String>,
    /// `None` while it runs, and when it has ended.
    coroutine: Option<Coroutine<(), (), ()>>,
    /// On the coroutine's stack; null before it has begun.
    yielder: *const Yielder<(), ()>,
    pub(super) clock: u64,
    /// Where it runs, if there is a machine.
    pub(super) processor: usize,
    /// Whether it is neither blocked nor asleep.
    is_running: bool,
    /// What it waits for; `None` if it is in the queue only for its clock.
    pub(super) blocked: Option<BlockedOn>,
    has_ended: bool,
    /// The number of its last entry in the queue, or of its last wait.
    pub(super) wait: u32,
    /// Whether it was unparked and has not parked since.
    pub(super) token: bool,
    /// The lines accessed since the last pause.
    pub(super) reads: Vec<LineUse>,
    /// Whether there were too many of them.
    pub(super) has_read_more: bool,
    /// Whether it has asked for the time since the last pause.
    pub(super) saw_clock: bool,
    /// Pauses since one of the lines that were read has changed, or the thread has made progress.
    pub(super) fruitless: u32,
    /// Lines accessed since then.
    pub(super) seen: Vec<SeenLine>,
    pub(super) locals: Locals,
}

/// A line that a thread has accessed since its last pause.
#[derive(Clone, Copy)]
pub(super) struct LineUse {
    pub(super) line: u32,
    /// The line's version after the last access.
    pub(super) version: u32,
    /// Whether an access was a write.
    pub(super) is_written: bool,
}

/// A line that a thread that spins has accessed, and whether it was written in the last round.
#[derive(Clone, Copy)]
pub(super) struct SeenLine {
    line: u32,
    is_written: bool,
}

/// Which threads are on which processors of the machine; one processor without a machine.
pub(super) struct Processors {
    has_machine: bool,
    cores: usize,
    /// All, in the order in which threads get them: the sockets in turn, a core's second processor
    /// when each core has a thread.
    order: Vec<usize>,
    /// Threads that have not ended, of each processor.
    assigned: Vec<u32>,
    /// Those of them that run.
    running: Vec<u32>,
    /// The processors of each core with a thread that runs.
    busy: Vec<u32>,
    /// What a thread has of a core beside another one, in percent.
    share: u64,
}

impl Processors {
    fn new(model: Option<&Model>) -> Self {
        let machine = model.map(|model| &model.machine);
        let (all, cores) = machine.map_or((1, 1), |m| (m.processors(), m.all_cores()));
        let of_socket = machine.map_or(1, |machine| machine.shape.cores);
        let mut order: Vec<_> = (0..all).collect();
        order.sort_by_key(|processor| {
            let core = processor % cores;
            (processor / cores, core % of_socket, core / of_socket)
        });
        Self {
            has_machine: machine.is_some(),
            cores,
            order,
            assigned: vec![0; all],
            running: vec![0; all],
            busy: vec![0; cores],
            share: machine.map_or(100, |machine| machine.smt_share.clamp(1, 100)),
        }
    }

    /// A processor for a new thread: one with the fewest threads.
    fn assign(&mut self) -> usize {
        let threads = |&&processor: &&usize| self.assigned[processor];
        let processor = self.order.iter().min_by_key(threads).copied().unwrap_or(0);
        self.assigned[processor] += 1;
        processor
    }

    fn leave(&mut self, processor: usize) {
        self.assigned[processor] -= 1;
    }

    #[inline]
    fn set_running(&mut self, processor: usize, runs: bool) {
        let threads = &mut self.running[processor];
        let busy = &mut self.busy[processor % self.cores];
        if runs {
            *threads += 1;
            *busy += u32::from(*threads == 1);
        } else {
            *threads -= 1;
            *busy -= u32::from(*threads == 0);
        }
    }

    /// How long a thread computes that needs some cycles of its core alone.
    #[inline]
    pub(super) fn computing(&self, processor: usize, cycles: u64) -> u64 {
        let cycles = self.waiting(processor, cycles);
        if self.busy[processor % self.cores] > 1 {
            cycles * 100 / self.share
        } else {
            cycles
        }
    }

    /// The same for a wait for memory, in which the core can do something else.
    #[inline]
    pub(super) fn waiting(&self, processor: usize, cycles: u64) -> u64 {
        let threads = if self.has_machine {
            self.running[processor].max(1)
        } else {
            1
        };
        cycles * u64::from(threads)
    }
}

/// Why a thread was not created, and its body, which the caller drops outside of the engine: drops
/// are user code.
pub(super) type NotAdded = (SimError, Box<dyn FnOnce()>);

/// What a simulation has counted.
pub(super) struct Totals {
    cycles: u64,
    digest: u64,
    accesses: u64,
    switches: u64,
    abandoned: usize,
    has_region: bool,
    counts: AccessCounts,
}

impl Totals {
    pub(super) fn of<R>(self, value: R) -> Finished<R> {
        Finished {
            value,
            cycles: self.cycles,
            digest: self.digest,
            accesses: self.accesses,
            switches: self.switches,
            abandoned: self.abandoned,
            has_region: self.has_region,
            counts: self.counts,
        }
    }
}

impl Thread {
    #[inline]
    pub(super) fn has_accessed(&mut self, line: u32, version: u32, is_written: bool) {
        if self.has_read_more {
            return;
        }
        let has_room = self.reads.len() < MAX_READS;
        match self.reads.iter_mut().find(|read| read.line == line) {
            Some(read) => {
                read.version = version;
                read.is_written |= is_written;
            }
            None if has_room => self.reads.push(LineUse {
                line,
                version,
                is_written,
            }),
            None => self.has_read_more = true,
        }
    }

    /// Whether a round does what the thread has not done while it spins: whether it accesses
    /// another line, or writes one that the last round has not written. A loop that writes in each
    /// round, as one that tries a lock, makes no progress by that.
    pub(super) fn makes_progress(&mut self, round: &[LineUse]) -> bool {
        let seen = &mut self.seen;
        let is_new = |read: &LineUse| match seen.iter().find(|seen| seen.line == read.line) {
            Some(seen) => read.is_written && !seen.is_written,
            None => true,
        };
        let is_progress = round.iter().any(is_new);
        if is_progress && seen.len() + round.len() > 2 * MAX_READS {
            seen.clear();
        }
        for seen in &mut *seen {
            seen.is_written = false;
        }
        for &LineUse {
            line, is_written, ..
        } in round
        {
            match seen.iter_mut().find(|seen| seen.line == line) {
                Some(seen) => seen.is_written = is_written,
                None => seen.push(SeenLine { line, is_written }),
            }
        }
        is_progress
    }
}

impl Simulation {
    pub(super) fn new(mut config: Config, region: SimRegion) -> Self {
        let model = config.machine.take().map(|machine| {
            let costs = &mut config.costs;
            (costs.pause, costs.rmw) = (machine.pause, machine.rmw);
            costs.per_us = machine.shape.mhz;
            Box::new(Model::new(machine))
        });
        static LAST: AtomicU64 = AtomicU64::new(0);
        Self {
            // Relaxed: a number that publishes nothing.
            number: LAST.fetch_add(1, Relaxed) + 1,
            region,
            threads: Vec::new(),
            current: 0,
            queue: BinaryHeap::new(),
            next: None,
            limit: (u64::MAX, u32::MAX),
            lines: Lines::new(config.max_lines),
            processors: Processors::new(model.as_deref()),
            model,
            waiting: HashMap::default(),
            statics: Locals::default(),
            stacks: Vec::new(),
            error: None,
            rescues: 0,
            // Not zero, at which the generator would stay.
            random: config.seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1,
            digest: config.seed,
            accesses: 0,
            switches: 0,
            config,
        }
    }

    /// Creates a thread that begins at the current thread's clock.
    pub(super) fn add(
        &mut self,
        name: Option<String>,
        body: Box<dyn FnOnce()>,
    ) -> Result<u32, NotAdded> {
        let id = self.threads.len();
        if id >= self.config.max_threads {
            let error = SimError::Limit(SimLimit::Threads);
            self.fail(error.clone());
            return Err((error, body));
        }
        let stack = self.stacks.pop().map_or_else(
            || DefaultStack::new(self.config.stack_bytes).map_err(|_| SimError::NoMemory),
            Ok,
        );
        let stack = match stack {
            Ok(stack) => stack,
            Err(error) => return Err((error, body)),
        };
        let id = id as u32;
        let clock = self
            .threads
            .get(self.current as usize)
            .map_or(0, |t| t.clock);
        let processor = self.processors.assign();
        self.threads.push(Thread {
            processor,
            is_running: false,
            name,
            coroutine: Some(coroutine(stack, body)),
            yielder: std::ptr::null(),
            clock,
            blocked: None,
            has_ended: false,
            wait: 0,
            token: false,
            reads: Vec::with_capacity(MAX_READS),
            has_read_more: false,
            saw_clock: false,
            fruitless: 0,
            seen: Vec::new(),
            locals: Locals::default(),
        });
        self.set_running(id, true);
        self.enqueue(id, clock);
        Ok(id)
    }

    /// The thread that runs.
    #[inline]
    pub(super) fn here(&mut self) -> &mut Thread {
        &mut self.threads[self.current as usize]
    }

    /// A number from xorshift64* (Vigna 2016), whose upper bits are used.
    #[inline]
    pub(super) fn draw(&mut self) -> u64 {
        let mut x = self.random;
        x ^= x >> 12;
        x ^= x << 25;
        x ^= x >> 27;
        self.random = x;
        x.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33
    }

    /// Lets a thread run from `clock` on.
    pub(super) fn enqueue(&mut self, id: u32, clock: u64) {
        let wait = self.threads[id as usize].wait;
        self.queue.push(Reverse((clock, id, wait)));
        self.limit = self.limit.min((clock, id));
    }

    /// Whether another thread has a smaller clock than the current one, which then waits in the
    /// queue.
    #[inline]
    pub(super) fn must_give_way(&mut self) -> bool {
        let id = self.current;
        let clock = self.here().clock;
        let must = (clock, id) > self.limit;
        if must {
            let entry = Reverse((clock, id, self.here().wait));
            // One pass through the heap, instead of one for each of two entries. There is a first
            // one: it is the limit.
            let first = self.queue.peek_mut();
            self.next = first.map(|mut first| std::mem::replace(&mut *first, entry));
        }
        must
    }

    /// Begins a wait: the entries of the thread in the queue, and those at lines, are over.
    pub(super) fn block(&mut self, on: BlockedOn) -> Watcher {
        let thread = self.current;
        let here = self.here();
        here.wait = here.wait.wrapping_add(1);
        here.blocked = Some(on);
        let wait = here.wait;
        self.set_running(thread, false);
        Watcher { thread, wait }
    }

    /// Ends the wait of a thread, which runs from `clock` on.
    pub(super) fn unblock(&mut self, id: u32, clock: u64) {
        let thread = &mut self.threads[id as usize];
        thread.wait = thread.wait.wrapping_add(1);
        thread.blocked = None;
        let clock = clock.max(thread.clock);
        self.rescues = 0;
        self.enqueue(id, clock);
    }

    #[inline]
    pub(super) fn wake_watcher(&mut self, watcher: Watcher, clock: u64) {
        let thread = &self.threads[watcher.thread as usize];
        if thread.wait == watcher.wait && thread.blocked.is_some() {
            self.unblock(watcher.thread, clock);
        }
    }

    /// A thread that does not run leaves its core to the others.
    #[inline]
    pub(super) fn set_running(&mut self, id: u32, runs: bool) {
        let thread = &mut self.threads[id as usize];
        if thread.is_running != runs {
            thread.is_running = runs;
            self.processors.set_running(thread.processor, runs);
        }
    }

    /// Moves the current thread.
    pub(super) fn pin(&mut self, processor: usize) {
        let id = self.current;
        self.set_running(id, false);
        let here = self.here();
        let old = std::mem::replace(&mut here.processor, processor);
        self.processors.leave(old);
        self.processors.assigned[processor] += 1;
        self.set_running(id, true);
    }

    fn end(&mut self, id: u32) {
        self.set_running(id, false);
        let thread = &mut self.threads[id as usize];
        thread.has_ended = true;
        self.processors.leave(thread.processor);
    }

    pub(super) fn fail(&mut self, error: SimError) {
        self.error.get_or_insert(error);
    }

    /// The thread to run next: the one with the smallest clock.
    fn pick(&mut self) -> Option<u32> {
        let (clock, id) = loop {
            let next = self.next.take().or_else(|| self.queue.pop());
            let Some(Reverse((clock, id, wait))) = next else {
                self.rescue()?;
                continue;
            };
            let thread = &self.threads[id as usize];
            if thread.wait == wait && !thread.has_ended {
                break (clock, id);
            }
        };
        let thread = &mut self.threads[id as usize];
        thread.clock = thread.clock.max(clock);
        thread.wait = thread.wait.wrapping_add(1);
        thread.blocked = None;
        self.current = id;
        self.set_running(id, true);
        let first = self.queue.peek();
        self.limit = first.map_or((u64::MAX, u32::MAX), |&Reverse((clock, id, _))| (clock, id));
        self.switches += 1;
        Some(id)
    }

    /// Puts a thread into the queue that spins and waits for a line: its loop may count its rounds.
    fn rescue(&mut self) -> Option<()> {
        let threads = (0u32..).zip(&self.threads);
        let spins = |thread: &Thread| matches!(thread.blocked, Some(BlockedOn::Lines(_)));
        let spinning = threads.filter(|(_, thread)| spins(thread));
        let count = spinning.clone().count();
        let (id, thread) = spinning.min_by_key(|(id, thread)| (thread.clock, *id))?;
        let clock = thread.clock + self.config.costs.pause;
        if self.rescues >= (count * MAX_RESCUES).min(MAX_RESCUES_IN_ALL) {
            return None;
        }
        self.rescues += 1;
        self.enqueue(id, clock);
        Some(())
    }

    fn deadlock(&self) -> SimError {
        let threads = (0u32..).zip(&self.threads);
        let blocked = threads.filter_map(|(thread, state)| {
            let (on, name) = (state.blocked.clone()?, state.name.clone());
            Some(Blocked { thread, name, on })
        });
        SimError::Deadlock(blocked.collect())
    }

    /// Ends the simulation. Threads that have not ended disappear: their stacks are leaked, because
    /// other memory may refer to them.
    pub(super) fn finish(mut self) -> Totals {
        let cycles = self.threads.first().map_or(0, |thread| thread.clock);
        let mut abandoned = 0;
        for thread in &mut self.threads {
            abandoned += usize::from(!thread.has_ended);
            std::mem::forget(thread.coroutine.take());
            thread.locals.forget();
        }
        self.statics.forget();
        Totals {
            cycles,
            digest: self.digest,
            accesses: self.accesses,
            switches: self.switches,
            abandoned,
            has_region: self.region.is_there(),
            counts: self.model.map(|model| model.counts).unwrap_or_default(),
        }
    }
}

/// The coroutine of a thread. A panic ends in `body`.
fn coroutine(stack: DefaultStack, body: Box<dyn FnOnce()>) -> Coroutine<(), (), ()> {
    Coroutine::with_stack(stack, move |yielder: &Yielder<(), ()>, ()| {
        let blocks = with(|sim| {
            sim.here().yielder = yielder;
            sim.region.blocks_of(sim.current)
        });
        if let Some(blocks) = blocks {
            heap::resume(blocks);
        }
        body();
        super::locals::drop_locals();
        super::locals::free_locals();
        let _ = heap::leave();
    })
}

/// Runs threads until the first one has ended.
pub(super) fn work_off(simulation: *mut Simulation) -> Result<(), SimError> {
    loop {
        // SAFETY: the simulation lives; no coroutine runs, so there is no other reference, and this
        // one ends before one does.
        let sim = unsafe { &mut *simulation };
        let Some(id) = sim.pick() else {
            return Err(sim.deadlock());
        };
        let coroutine = sim.here().coroutine.take();
        let Some(mut coroutine) = coroutine else {
            continue;
        };
        let result = coroutine.resume(());
        // SAFETY: the coroutine is suspended or has ended.
        let sim = unsafe { &mut *simulation };
        match result {
            CoroutineResult::Yield(()) => sim.threads[id as usize].coroutine = Some(coroutine),
            CoroutineResult::Return(()) => {
                sim.stacks.push(coroutine.into_stack());
                sim.end(id);
            }
        }
        if let Some(error) = &sim.error {
            return Err(error.clone());
        }
        if sim.threads[0].has_ended {
            return Ok(());
        }
    }
}

/// Lets the scheduler resume another thread; returns when this one is resumed.
pub(super) fn suspend() {
    let left = heap::leave();
    let simulation = SIMULATION.get();
    // SAFETY: a simulated thread calls this, so there is a simulation, of which no reference is in
    // use; the yielder lies on the stack of the coroutine that runs.
    let yielder = unsafe {
        let sim = &mut *simulation;
        &*sim.here().yielder
    };
    yielder.suspend(());
    heap::resume(left);
}
