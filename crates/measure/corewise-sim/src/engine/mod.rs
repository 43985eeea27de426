//! The engine: simulated threads, the scheduler, and what programs call.
//!
//! Outside of [`run`] the functions do nothing, and there is one thread with the number 0.
//!
//! [`run`] starts an OS thread for the simulation. The engine's state is reached by a thread-local
//! of it, and borrowed for short steps only: never while a coroutine is resumed or suspended.

mod locals;
mod scheduler;
#[cfg(test)]
mod tests;
mod wait;

use std::any::Any;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
#[cfg(test)]
use std::ptr::NonNull;
use std::rc::Rc;

use crate::heap::{self, SimRegion};
use crate::lines::LINE_SHIFT;
use crate::model::Request;
use crate::{AccessKind, Config, Finished, SimError, SimLimit};
use scheduler::Simulation;

#[cfg(corewise_sim)]
pub(crate) use locals::drop_locals;
pub use locals::{DropTime, DropValue, PerThread, Slot, local, set_local};
pub use wait::{park, pause, sleep, unpark, wait, wake, yield_now};

/// Announced accesses of more lines than this are announced for their first ones only.
const MAX_LINES_AT_ONCE: usize = 64;

std::thread_local! {
    /// The simulation that this OS thread runs; null if none.
    static SIMULATION: Cell<*mut Simulation> = const { Cell::new(ptr::null_mut()) };
}

/// Simulates a program: `body`, and the threads that it starts, until it returns.
///
/// Everything happens on a new OS thread. What the program returns may refer to memory of a
/// [`SimHeap`](crate::SimHeap), but not to simulated threads.
///
/// # Errors
///
/// See [`SimError`].
pub fn run<R: Send + 'static>(
    config: Config,
    body: impl FnOnce() -> R + Send + 'static,
) -> Result<Finished<R>, SimError> {
    let host = std::thread::Builder::new().name("simulation".to_owned());
    let host = host.spawn(move || simulate(config, body));
    let host = host.map_err(|_| SimError::NoMemory)?;
    host.join()
        .unwrap_or_else(|payload| Err(SimError::Panicked(message_of(&*payload))))
}

fn simulate<R: 'static>(
    config: Config,
    body: impl FnOnce() -> R + 'static,
) -> Result<Finished<R>, SimError> {
    let simulation = Box::into_raw(Box::new(Simulation::new(config, SimRegion::take())));
    let value = Rc::new(Cell::new(None));
    let place = value.clone();
    let first = Box::new(move || place.set(Some(catch_unwind(AssertUnwindSafe(body)))));
    SIMULATION.set(simulation);
    #[cfg(corewise_sim)]
    crate::facade::enter();
    let added = with(|sim| sim.add(None, first));
    let (end, unused) = match added {
        Some(Ok(_)) => (scheduler::work_off(simulation), None),
        Some(Err((error, body))) => (Err(error), Some(body)),
        None => (Ok(()), None),
    };
    #[cfg(corewise_sim)]
    crate::facade::leave();
    SIMULATION.set(ptr::null_mut());
    // SAFETY: from the box above, and no coroutine runs any more.
    let simulation = unsafe { Box::from_raw(simulation) };
    let totals = simulation.finish();
    // Here, because its drops may call the engine, which has no thread then.
    drop(unused);
    end?;
    match value.take() {
        Some(Ok(value)) => Ok(totals.of(value)),
        Some(Err(payload)) => Err(SimError::Panicked(message_of(&*payload))),
        None => Err(SimError::NoMemory),
    }
}

fn message_of(payload: &(dyn Any + Send)) -> String {
    let text = payload
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned());
    text.or_else(|| payload.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "a panic without a message".to_owned())
}

/// One step of the engine; `None` outside of a simulation. `step` calls nothing that suspends.
#[inline]
fn with<T>(step: impl FnOnce(&mut Simulation) -> T) -> Option<T> {
    let simulation = SIMULATION.get();
    if simulation.is_null() {
        return None;
    }
    let left = heap::leave();
    // SAFETY: it lives until the thread-local is null again; the reference ends with the step,
    // which calls neither user code nor anything that suspends, so it is the only one.
    let result = step(unsafe { &mut *simulation });
    heap::resume(left);
    Some(result)
}

/// Whether the caller is a simulated thread.
#[inline]
#[must_use]
pub fn is_inside() -> bool {
    !SIMULATION.get().is_null()
}

/// The number of the simulation: from 1, in the order in which those of the process begin. It
/// differs from run to run, so a program must not depend on it. 0 outside of a simulation.
#[must_use]
pub fn simulation() -> u64 {
    with(|sim| sim.number).unwrap_or(0)
}

/// The number of the calling thread: 0 for the program, then in the order of [`spawn`].
#[must_use]
pub fn current() -> u32 {
    with(|sim| sim.current).unwrap_or(0)
}

/// The clock of the calling thread, in cycles, before the call. The call takes time, so that a loop
/// that waits for a time ends.
#[must_use]
pub fn now_cycles() -> u64 {
    settle();
    let clock = with(|sim| {
        sim.count();
        let cost = sim.config.costs.clock;
        let thread = sim.here();
        // A thread that spins on the clock waits for no line.
        thread.saw_clock = true;
        let clock = thread.clock;
        thread.clock += cost;
        clock
    });
    stop_if_ended();
    clock.unwrap_or(0)
}

/// The clock of the calling thread in nanoseconds.
#[must_use]
pub fn now_ns() -> u64 {
    let cycles = u128::from(now_cycles());
    let ns = with(|sim| cycles * 1000 / u128::from(sim.config.costs.per_us.max(1)));
    u64::try_from(ns.unwrap_or(0)).unwrap_or(u64::MAX)
}

/// Starts a thread; returns its number. It begins at the caller's clock.
///
/// # Errors
///
/// The limit of threads ends the simulation, so this does not return then; a missing stack does.
pub fn spawn(name: Option<String>, body: impl FnOnce() + Send + 'static) -> Result<u32, SimError> {
    let body = Box::new(body);
    settle();
    let made = with(move |sim| {
        sim.count();
        let cost = sim.config.costs.system_call;
        sim.here().clock += cost;
        sim.add(name, body)
    });
    let made = made.unwrap_or_else(|| Err((SimError::NoMemory, Box::new(|| ()))));
    let made = made.map_err(|(error, body)| {
        drop(body);
        error
    });
    stop_if_ended();
    made
}

/// The name of a thread.
#[must_use]
pub fn name_of(thread: u32) -> Option<String> {
    with(|sim| sim.threads.get(thread as usize)?.name.clone()).flatten()
}

/// Announces an access to shared memory, directly before it takes place.
#[inline]
pub fn access(address: *const u8, bytes: usize, kind: AccessKind) {
    loop {
        match with(|sim| sim.try_access(address.addr(), bytes, kind)) {
            None | Some(AccessStep::Done) => return,
            Some(AccessStep::GiveWay) => scheduler::suspend(),
            Some(AccessStep::Ended) => return stop_if_ended(),
        }
    }
}

/// What follows an attempt to make an access.
enum AccessStep {
    Done,
    /// Another thread is to run first.
    GiveWay,
    /// The simulation has failed.
    Ended,
}

/// Announces that memory was written, for a write that lasted: the second announcement after
/// [`access`], which has the costs. Lets no other thread run.
pub fn written(address: *const u8, bytes: usize) {
    with(|sim| {
        sim.count();
        sim.written(address.addr(), bytes);
    });
    stop_if_ended();
}

/// A number for an address that is the same in every run: the place in the page, and the number of
/// the page in the order of their first use.
#[must_use]
pub fn number_of(address: *const u8) -> usize {
    let number = with(|sim| {
        let node = sim.node();
        let line = sim.lines.number_at(address.addr() >> LINE_SHIFT, node);
        if line.is_none() {
            sim.fail(SimError::Limit(SimLimit::Lines));
        }
        let within = address.addr() % (1 << LINE_SHIFT);
        (line.unwrap_or(0) as usize) << LINE_SHIFT | within
    });
    stop_if_ended();
    number.unwrap_or_else(|| address.addr())
}

/// A full fence: waits until the stores before it have left their buffer.
pub fn fence() {
    work_of(|sim| {
        let processor = sim.here().processor;
        let drained = sim.model.as_ref().map_or(0, |m| m.drained_at(processor));
        let here = sim.here();
        here.clock = here.clock.max(drained);
        sim.config.costs.rmw
    });
}

/// Makes every running thread execute a fence (`membarrier`).
pub fn fence_all() {
    work_of(|sim| sim.config.costs.system_call);
}

/// Computes for some cycles of a core; longer if, when it begins, other threads share it.
pub fn work(cycles: u32) {
    settle();
    work_of(|_| cycles.into());
}

fn work_of(cost: impl FnOnce(&mut Simulation) -> u64) {
    with(|sim| {
        sim.count();
        let (cost, processor) = (cost(sim), sim.here().processor);
        let cost = sim.processors.computing(processor, cost);
        sim.here().clock += cost;
    });
    stop_if_ended();
}

/// Moves the calling thread to a processor of the machine: they are numbered by their place in a
/// core, then by socket, then by core. Without a call, threads are spread over sockets, then over
/// cores. Threads of one processor have equal parts of its time, without time slices. Does nothing
/// if the machine has no such processor.
pub fn pin(processor: usize) {
    settle();
    with(|sim| {
        sim.count();
        let machine = sim.model.as_ref().map(|model| &model.machine);
        if machine.is_some_and(|machine| processor < machine.processors()) {
            sim.pin(processor);
        }
    });
    stop_if_ended();
}

/// Waits until no other thread has a smaller clock. Does nothing in a thread that unwinds: the
/// others would seem to unwind, too.
#[inline]
fn settle() {
    while !std::thread::panicking() && with(Simulation::must_give_way) == Some(true) {
        scheduler::suspend();
    }
}

/// Suspends the caller for ever if the simulation has failed.
#[inline]
fn stop_if_ended() {
    while with(|sim| sim.error.is_some()) == Some(true) {
        scheduler::suspend();
    }
}

impl Simulation {
    /// Counts a call, and notes if there are too many.
    #[inline]
    fn count(&mut self) {
        self.accesses += 1;
        if self.accesses > self.config.max_accesses {
            self.fail(SimError::Limit(SimLimit::Accesses));
        }
    }

    /// Makes an access if no other thread has to run first.
    #[inline]
    fn try_access(&mut self, address: usize, bytes: usize, kind: AccessKind) -> AccessStep {
        if self.model.is_some() {
            if self.hit(address, bytes, kind) {
                self.count();
            } else if !std::thread::panicking() && self.must_give_way() {
                return AccessStep::GiveWay;
            } else {
                self.access_machine(address, bytes, kind);
            }
        } else if kind.is_prefetch() {
            self.count();
        } else if !std::thread::panicking() && self.must_give_way() {
            return AccessStep::GiveWay;
        } else {
            self.access_flat(address, bytes, kind);
        }
        if self.error.is_some() {
            AccessStep::Ended
        } else {
            AccessStep::Done
        }
    }

    /// An access that needs nothing but the first level of its core. It may take place before
    /// accesses of other threads with a smaller clock, which cannot write this line before it.
    #[inline]
    fn hit(&mut self, address: usize, bytes: usize, kind: AccessKind) -> bool {
        let line = address >> LINE_SHIFT;
        let thread = &self.threads[self.current as usize];
        let (clock, processor) = (thread.clock, thread.processor);
        let Some(model) = &mut self.model else {
            return false;
        };
        // A read-modify-write has its turn: if the thread that releases a lock took it again ahead
        // of those that it has woken, they would never get it.
        let is_early = if kind == AccessKind::Rmw {
            (clock, self.current) > self.limit
        } else {
            clock > self.limit.0.saturating_add(model.lookahead())
        };
        if is_early || (address + bytes.max(1) - 1) >> LINE_SHIFT != line {
            return false;
        }
        // Also if the page was not found lately: what is in that table depends on addresses.
        let node = model.socket_of(model.core_of(processor)) as u8;
        let Some(number) = self.lines.number_at(line, node) else {
            return false;
        };
        let request = Request {
            processor,
            line: number,
            kind,
            clock,
            now: clock,
            random: 0,
        };
        let Some(timing) = model.hit(&mut self.lines.lines, request) else {
            return false;
        };
        let cost = self.processors.computing(processor, timing.resumes - clock);
        self.here().clock += cost;
        self.note(number, kind, clock, clock + cost);
        true
    }

    /// The node of the calling thread.
    fn node(&mut self) -> u8 {
        let processor = self.here().processor;
        let model = self.model.as_ref();
        model.map_or(0, |model| model.socket_of(model.core_of(processor)) as u8)
    }

    /// What lines of one access need is in progress at once, as far as the core has buffers.
    fn access_machine(&mut self, address: usize, bytes: usize, kind: AccessKind) {
        let (clock, processor) = (self.here().clock, self.here().processor);
        let mut ends = [0; MAX_LINES_AT_ONCE];
        let mut last = clock;
        for (index, line) in lines_of(address, bytes).enumerate() {
            self.count();
            let random = self.draw();
            let node = self.node();
            let Some(model) = &mut self.model else {
                return;
            };
            let Some(number) = self.lines.number_at(line, node) else {
                return self.fail(SimError::Limit(SimLimit::Lines));
            };
            let place = index.checked_sub(model.machine.shape.fill_buffers);
            let now = (clock + index as u64).max(place.map_or(0, |place| ends[place]));
            let request = Request {
                processor,
                line: number,
                kind,
                clock,
                now,
                random,
            };
            let timing = model.access(&mut self.lines.lines, request);
            ends[index] = timing.resumes;
            last = last.max(timing.resumes);
            self.note(number, kind, now, timing.visible);
        }
        let processors = &self.processors;
        let is_private = last - clock <= self.model.as_ref().map_or(0, |m| m.machine.l2);
        let cost = if is_private {
            processors.computing(processor, last - clock)
        } else {
            processors.waiting(processor, last - clock)
        };
        self.here().clock = clock + cost;
    }

    /// What an access means for the digest, for threads that wait for the line, and for its own
    /// thread's next pause.
    #[inline]
    fn note(&mut self, number: u32, kind: AccessKind, clock: u64, visible: u64) {
        let what = u64::from(self.current) << 35 | u64::from(number) << 3 | kind as u64;
        self.digest_of(what, clock);
        if kind.is_prefetch() {
            return;
        }
        if kind.writes() {
            self.write_line(number, visible);
        }
        let version = self.lines.version(number);
        self.here().has_accessed(number, version, kind.writes());
    }

    fn access_flat(&mut self, address: usize, bytes: usize, kind: AccessKind) {
        let costs = &self.config.costs;
        let base = match kind {
            AccessKind::Rmw => costs.rmw,
            _ => costs.access,
        };
        let jitter = costs.jitter;
        for line in lines_of(address, bytes) {
            self.count();
            let Some(number) = self.lines.number_at(line, 0) else {
                return self.fail(SimError::Limit(SimLimit::Lines));
            };
            let random = self.draw();
            let clock = self.here().clock;
            let end = clock + base + random % (jitter + 1);
            self.here().clock = end;
            self.note(number, kind, clock, end);
        }
    }

    fn written(&mut self, address: usize, bytes: usize) {
        for line in lines_of(address, bytes) {
            if let Some(number) = self.lines.number_at(line, 0) {
                let clock = self.here().clock;
                self.write_line(number, clock);
            }
        }
    }

    /// Wakes the threads that wait for a write, at the end of the write.
    #[inline]
    fn write_line(&mut self, number: u32, clock: u64) {
        for watcher in self.lines.write(number) {
            self.wake_watcher(watcher, clock);
        }
    }

    fn digest_of(&mut self, what: u64, clock: u64) {
        let mixed = (self.digest ^ what).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        self.digest = (mixed.rotate_left(29) ^ clock).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    }
}

fn lines_of(address: usize, bytes: usize) -> std::ops::RangeInclusive<usize> {
    let first = address >> LINE_SHIFT;
    let last = (address + bytes.max(1) - 1) >> LINE_SHIFT;
    first..=last.min(first + MAX_LINES_AT_ONCE - 1)
}
