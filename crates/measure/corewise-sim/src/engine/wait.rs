//! Waiting: spinning, parking, sleeping, and waiting for an address.

use super::scheduler::{self, LineUse, Simulation};
use super::{settle, stop_if_ended, with};
use crate::{BlockedOn, SimError};

/// Pauses without a change after which a thread that spins sleeps until there is one. More than the
/// rounds after which locks stop spinning, and park: those are to last as long as they do.
const ENDLESS_AFTER: u32 = 1024;

/// A number of spin hints.
///
/// If none of the lines that the caller has read since the last pause has changed, the caller
/// sleeps until one is written, or until the pauses have passed. After 1,024 calls without a change
/// it sleeps until there is one, or until no other thread can run. So a loop that counts its rounds
/// ends, unless it has more than 100,000 of them in which no thread makes progress. A thread makes
/// progress when it accesses other lines than before, or writes one that the round before has not
/// written.
pub fn pause(hints: u32) {
    spin(|sim| u64::from(hints.max(1)) * sim.config.costs.pause);
}

/// Gives the processor to another thread; as a [`pause`] that lasts a system call.
pub fn yield_now() {
    spin(|sim| sim.config.costs.system_call);
}

/// Sleeps.
pub fn sleep(ns: u64) {
    settle();
    with(|sim| {
        sim.count();
        let cycles = sim.cycles_of(ns);
        sim.here().clock += cycles;
        let here = sim.current;
        sim.set_running(here, false);
    });
    stop_if_ended();
    settle();
    with(|sim| {
        let here = sim.current;
        sim.set_running(here, true);
    });
}

fn spin(cost: impl FnOnce(&Simulation) -> u64) {
    settle();
    let must_sleep = with(|sim| {
        sim.count();
        let cost = cost(sim);
        sim.begin_spin(cost)
    });
    stop_if_ended();
    if must_sleep == Some(true) {
        suspend_blocked();
    }
}

/// Waits until the thread is unparked, at most for some nanoseconds.
pub fn park(ns: Option<u64>) {
    settle();
    let must_sleep = with(|sim| {
        sim.count();
        let cost = sim.config.costs.system_call;
        let deadline = ns.map(|ns| sim.here().clock.saturating_add(sim.cycles_of(ns)));
        let here = sim.here();
        if std::mem::take(&mut here.token) {
            return false;
        }
        here.clock += cost;
        sim.block(BlockedOn::Park);
        if let Some(deadline) = deadline {
            let (id, clock) = (sim.current, sim.here().clock);
            sim.enqueue(id, deadline.max(clock));
        }
        true
    });
    stop_if_ended();
    if must_sleep == Some(true) {
        suspend_blocked();
        with(|sim| sim.here().token = false);
    }
}

/// Wakes a thread from [`park`], or makes its next one return at once. Does nothing if the
/// simulation has no thread with this number.
pub fn unpark(thread: u32) {
    settle();
    with(|sim| {
        sim.count();
        let costs = &sim.config.costs;
        let (call, wake) = (costs.system_call, costs.wake);
        let Some(target) = sim.threads.get_mut(thread as usize) else {
            return;
        };
        target.token = true;
        if target.blocked == Some(BlockedOn::Park) {
            sim.here().clock += call;
            let clock = sim.here().clock + wake;
            sim.unblock(thread, clock);
        }
    });
    stop_if_ended();
}

/// Waits for a [`wake`] with the same address: for a lock to be released, a thread to end. A waker
/// that comes before the time that locks spin costs nothing, a later one as much as an unpark.
pub fn wait(address: *const u8) {
    let is_inside = with(|sim| {
        sim.count();
        let here = sim.current;
        sim.block(BlockedOn::Address(address.addr()));
        sim.waiting
            .entry(address.addr())
            .or_default()
            .push_back(here);
    });
    stop_if_ended();
    if is_inside.is_some() {
        suspend_blocked();
    }
}

/// Wakes the threads that [`wait`] for this address: the first one, or all. Costs a call of the
/// system if one of them sleeps in it. Lets no other thread run.
pub fn wake(address: *const u8, all: bool) {
    with(|sim| {
        sim.count();
        let costs = &sim.config.costs;
        let (spin, wake, mut call) = (costs.lock_spin, costs.wake, costs.system_call);
        let Some(mut waiting) = sim.waiting.remove(&address.addr()) else {
            return;
        };
        while let Some(thread) = waiting.pop_front() {
            let since = sim.threads[thread as usize].clock;
            let sleeps = sim.here().clock.saturating_sub(since) > spin;
            let delay = if sleeps {
                sim.here().clock += std::mem::take(&mut call);
                wake
            } else {
                0
            };
            let clock = sim.here().clock.max(since) + delay;
            sim.unblock(thread, clock);
            if !all {
                break;
            }
        }
        if !waiting.is_empty() {
            sim.waiting.insert(address.addr(), waiting);
        }
    });
    stop_if_ended();
}

/// Suspends a thread that waits until it is in the queue again.
fn suspend_blocked() {
    if std::thread::panicking() {
        with(|sim| sim.fail(SimError::BlockedInUnwind));
        stop_if_ended();
    }
    scheduler::suspend();
}

impl Simulation {
    fn cycles_of(&self, ns: u64) -> u64 {
        let cycles = u128::from(ns) * u128::from(self.config.costs.per_us) / 1000;
        u64::try_from(cycles)
            .unwrap_or(u64::MAX / 4)
            .min(u64::MAX / 4)
    }

    /// Whether the current thread sleeps. It does not if a line that it has read has changed, or if
    /// it waits for something else than lines.
    fn begin_spin(&mut self, cost: u64) -> bool {
        let here = self.here();
        let reads = std::mem::take(&mut here.reads);
        let other = std::mem::take(&mut here.has_read_more) | std::mem::take(&mut here.saw_clock);
        let is_changed = |read: &LineUse| self.lines.version(read.line) != read.version;
        let changed = reads.is_empty() || other || reads.iter().any(is_changed);
        let here = self.here();
        if changed {
            here.seen.clear();
        }
        if changed || here.makes_progress(&reads) {
            here.fruitless = 0;
            self.rescues = 0;
        } else {
            here.fruitless += 1;
        }
        let here = self.here();
        if changed || std::thread::panicking() {
            here.clock += cost;
            here.reads = reads;
            here.reads.clear();
            return false;
        }
        let deadline = (here.fruitless <= ENDLESS_AFTER).then_some(here.clock + cost);
        let lines = if deadline.is_none() {
            reads.iter().map(|read| read.line).collect()
        } else {
            // Shown in a deadlock only, where no thread has a deadline.
            Vec::new()
        };
        let watcher = self.block(BlockedOn::Lines(lines));
        for read in &reads {
            self.lines.watch(read.line, watcher);
        }
        if let Some(deadline) = deadline {
            self.enqueue(watcher.thread, deadline);
        }
        let here = self.here();
        here.reads = reads;
        here.reads.clear();
        true
    }
}
