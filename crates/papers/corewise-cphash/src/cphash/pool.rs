//! The server threads of a table: where they run, when they sleep, and how many serve.
//!
//! Threads beyond the number that serves are parked and own no partitions. An adaptive pool changes
//! that number with the load (\[CPHASH\] §8.1), see `load`.

use std::ops::RangeInclusive;

use corewise_atomic::lock::Mutex;
use corewise_atomic::sync::Arc;
use corewise_atomic::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use corewise_atomic::sync::atomic::{AtomicBool, AtomicUsize};
use corewise_atomic::thread::{self, JoinHandle, Thread};
use corewise_atomic::{Backoff, hint, mutant};
use corewise_topology::{CpuId, PinPolicy, Topology, pin_current_thread, plan};

use super::load::Load;
use super::server::PartitionServer;
use super::table::PartitionTable;
use crate::config::{ConfigError, MAX_SERVER_THREADS};

/// Polls without work before a thread begins to yield, some tens of microseconds.
const SPINS: u32 = 1000;

/// Polls between two reports of a thread's load.
const REPORT_POLLS: u32 = 1 << 12;

pub(super) struct Pool {
    table: Arc<PartitionTable>,
    placement: PinPolicy,
    threads: Vec<Member>,
    shared: Arc<PoolState>,
}

struct Member {
    stop: Arc<AtomicBool>,
    handle: JoinHandle<()>,
}

/// What the threads share.
struct PoolState {
    /// Threads with an index below this serve.
    serving: AtomicUsize,
    load: Mutex<Option<Load>>,
    /// To wake threads that shall serve, or serve no longer.
    threads: Mutex<Vec<Thread>>,
}

impl PoolState {
    /// Called with `load` locked, so that no earlier decision undoes a later one.
    fn set_serving(&self, count: usize) {
        // Release: pairs with the Acquire in `serve_while`.
        self.serving.store(count, Release);
        self.threads.lock().iter().for_each(thread::unpark);
    }

    /// Takes the report of a serving thread into account, unless another thread reports just now.
    fn report(&self, busy: u32, polls: u32) {
        let Some(mut load) = self.load.try_lock() else {
            return;
        };
        // Relaxed: changed under the lock only.
        let serving = self.serving.load(Relaxed);
        let decision = load
            .as_mut()
            .and_then(|load| load.report(busy, polls, serving));
        if mutant!("cphash_decides_late") {
            drop(load);
        }
        if let Some(serving) = decision {
            self.set_serving(serving);
        }
    }

    /// Makes `serving` threads serve; the load changes that number if there is one.
    fn follow(&self, load: Option<Load>, serving: usize) {
        let mut current = self.load.lock();
        *current = load;
        self.set_serving(serving);
    }
}

impl Pool {
    pub(super) fn new(table: Arc<PartitionTable>, placement: PinPolicy) -> Self {
        Self {
            table,
            placement,
            threads: Vec::new(),
            shared: Arc::new(PoolState {
                serving: AtomicUsize::new(0),
                load: Mutex::new(None),
                threads: Mutex::new(Vec::new()),
            }),
        }
    }

    /// Makes a fixed number of threads serve.
    pub(super) fn set_threads(&mut self, count: usize) -> Result<(), ConfigError> {
        check_threads(0..=count)?;
        self.shared.follow(None, count);
        self.resize(count)
    }

    /// Makes the number of serving threads follow the load.
    pub(super) fn adapt(&mut self, range: RangeInclusive<usize>) -> Result<(), ConfigError> {
        check_threads(range.clone())?;
        if range.contains(&0) {
            return Err(TOO_MANY_OR_NONE);
        }
        let (least, most) = range.into_inner();
        self.resize(most)?;
        self.shared.follow(Some(Load::new(least..=most)), least);
        Ok(())
    }

    fn resize(&mut self, count: usize) -> Result<(), ConfigError> {
        while self.threads.len() < count {
            let member = self.start()?;
            self.shared
                .threads
                .lock()
                .push(member.handle.thread().clone());
            self.threads.push(member);
        }
        self.shared.threads.lock().truncate(count);
        stop(&self.table, self.threads.split_off(count));
        Ok(())
    }

    fn start(&self) -> Result<Member, ConfigError> {
        let stop = Arc::new(AtomicBool::new(false));
        let index = self.threads.len();
        let cpu = server_cpu(&self.placement, index);
        let (table, stopped, shared) = (self.table.clone(), stop.clone(), self.shared.clone());
        let handle = thread::spawn_named(format!("cphash-{index}"), move || {
            if let Some(cpu) = cpu {
                // A refusal costs speed, not correctness.
                let _ = pin_current_thread(cpu);
            }
            run(&table, &shared, index, &stopped);
        });
        let handle = handle.map_err(|_| ConfigError::Threads)?;
        Ok(Member { stop, handle })
    }

    pub(super) fn client_cpu(&self, index: usize) -> Option<CpuId> {
        match self.placement {
            PinPolicy::SmtPair => cpu_of(&self.placement, 2, index, 0),
            _ => cpu_of(&self.placement, 1, index, self.threads.len()),
        }
    }
}

const TOO_MANY_OR_NONE: ConfigError = ConfigError::ServerThreads {
    most: MAX_SERVER_THREADS,
};

/// Checks the range of the number of threads.
fn check_threads(range: RangeInclusive<usize>) -> Result<(), ConfigError> {
    let fits = !range.is_empty() && *range.end() <= MAX_SERVER_THREADS;
    if fits { Ok(()) } else { Err(TOO_MANY_OR_NONE) }
}

/// The CPU of a server thread: that of the second hardware thread of a core if clients have the
/// first ones.
fn server_cpu(placement: &PinPolicy, index: usize) -> Option<CpuId> {
    match placement {
        PinPolicy::SmtPair => cpu_of(placement, 2, index, 1),
        _ => cpu_of(placement, 1, index, 0),
    }
}

/// The CPU at the position `factor * index + offset` of the policy's order, which starts over
/// behind its end.
fn cpu_of(placement: &PinPolicy, factor: usize, index: usize, offset: usize) -> Option<CpuId> {
    let topology = Topology::detect();
    let round = match placement {
        PinPolicy::None => return None,
        PinPolicy::List(cpus) => cpus.len(),
        _ => topology.allowed().count(),
    };
    // `factor` and `offset` are small, and `index` is any number.
    let position = (factor * index.checked_rem(round)? + offset) % round;
    plan(&topology, placement, round)[position]
}

/// Tells threads to end when they have nothing to do, and waits for that.
fn stop(table: &PartitionTable, threads: Vec<Member>) {
    for member in &threads {
        // Release: pairs with the Acquire in `serve_while`.
        member.stop.store(true, Release);
        thread::unpark(member.handle.thread());
    }
    for member in threads {
        // There is no such thread to wait for. It left its half of the handle, which never changes
        // again.
        let is_gone = table.is_inherited();
        // A closure that runs on a server thread may drop the table.
        let is_this = member.handle.thread().id() == thread::current().id();
        if is_gone {
            std::mem::forget(member.handle);
        } else if !is_this {
            let ended = member.handle.join();
            debug_assert!(ended.is_ok(), "server threads do not panic");
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        stop(&self.table, std::mem::take(&mut self.threads));
    }
}

/// A server thread, which serves while it is among the threads that shall.
fn run(table: &Arc<PartitionTable>, shared: &PoolState, index: usize, stop: &AtomicBool) {
    // Acquire, both: pair with the Release in `set_serving` and `stop`.
    let is_serving = || index < shared.serving.load(Acquire);
    let is_stopped = || stop.load(Acquire);
    loop {
        if is_serving() {
            serve_while(table, shared, || is_serving() && !is_stopped());
        }
        if is_stopped() {
            return;
        }
        if !is_serving() {
            thread::park();
        }
    }
}

/// Serves until `goes_on` returns false, and then what was sent before.
fn serve_while(table: &Arc<PartitionTable>, shared: &PoolState, goes_on: impl Fn() -> bool) {
    let this = thread::current();
    let mut server = PartitionServer::new(table.clone(), move || thread::unpark(&this));
    let (mut busy, mut polls, mut spins) = (0, 0, 0);
    let mut backoff = Backoff::new();
    loop {
        let served = server.poll();
        polls += 1;
        if polls == REPORT_POLLS {
            shared.report(busy, polls);
            (busy, polls) = (0, 0);
        }
        if served > 0 {
            busy += 1;
            spins = 0;
            backoff.reset();
            // Under load, too, a thread ends when it shall.
            if polls % 64 != 0 {
                continue;
            }
        }
        if !goes_on() {
            // What was sent before is executed. What comes later is for other servers.
            (0..SPINS).any(|_| server.poll() == 0);
            return;
        }
        spins += 1;
        if spins < SPINS && !cfg!(any(corewise_loom, corewise_shuttle)) {
            hint::spin_loop();
        } else if !backoff.is_completed() {
            backoff.snooze();
        } else if server.may_sleep() {
            thread::park();
            // It slept because it had nothing to do.
            polls = polls.max(REPORT_POLLS / 2);
        }
    }
}

#[cfg(test)]
mod models {
    use super::*;
    use corewise_atomic::model_bounded;

    /// A thread that decides by its load does not undo a number that is set meanwhile.
    #[test]
    fn a_fixed_number_of_serving_threads_stays() {
        model_bounded(3, || {
            let shared = Arc::new(PoolState {
                serving: AtomicUsize::new(1),
                load: Mutex::new(Some(Load::new(1..=3))),
                threads: Mutex::new(Vec::new()),
            });
            // The next report decides on two.
            (0..3).for_each(|_| shared.report(900, 1000));
            let reporting = shared.clone();
            let server = thread::spawn(move || reporting.report(900, 1000));
            shared.follow(None, 3);
            server.join().unwrap();
            // Relaxed: the other thread is over.
            assert_eq!(shared.serving.load(Relaxed), 3);
        });
    }
}

#[cfg(all(test, not(any(corewise_loom, corewise_shuttle))))]
mod tests {
    use super::*;

    /// The positions of the first threads are those of one long plan, and all numbers have one.
    #[test]
    fn any_number_of_threads_has_cpus() {
        let topology = Topology::detect();
        let list = PinPolicy::List((0..7).collect());
        for policy in [
            PinPolicy::Compact,
            PinPolicy::Balanced,
            PinPolicy::SmtPair,
            list,
        ] {
            let long = plan(&topology, &policy, 400);
            for (factor, offset) in [(1, 0), (1, 3), (1, MAX_SERVER_THREADS), (2, 0), (2, 1)] {
                for index in 0..100 {
                    let expected = long.get(factor * index + offset);
                    let cpu = cpu_of(&policy, factor, index, offset);
                    assert!(expected.is_none_or(|expected| *expected == cpu));
                }
                for index in [
                    usize::MAX,
                    usize::MAX - 1,
                    usize::MAX / 2,
                    usize::MAX / 2 + 1,
                ] {
                    assert!(long.contains(&cpu_of(&policy, factor, index, offset)));
                }
            }
        }
        for policy in [PinPolicy::None, PinPolicy::List(Vec::new())] {
            assert_eq!(cpu_of(&policy, 2, usize::MAX, 1), None);
        }
    }

    /// Without threads, so that the reports are the only ones.
    #[test]
    fn reports_change_the_number_of_serving_threads() {
        let shared = PoolState {
            serving: AtomicUsize::new(1),
            load: Mutex::new(Some(Load::new(1..=3))),
            threads: Mutex::new(Vec::new()),
        };
        let report = |busy: u32, count: usize| {
            (0..count).for_each(|_| shared.report(busy, 1000));
            // Relaxed: one thread.
            shared.serving.load(Relaxed)
        };
        // A round has a report for each serving thread, and four rounds decide.
        assert_eq!(report(900, 3), 1);
        assert_eq!(report(900, 1), 2);
        assert_eq!(report(500, 100), 2);
        assert_eq!(report(900, 8), 3);
        assert_eq!(report(1000, 99), 3);
        assert_eq!(report(100, 12), 2);
        assert_eq!(report(100, 8), 1);
        assert_eq!(report(0, 100), 1);
        // A fixed number of threads ignores reports.
        *shared.load.lock() = None;
        assert_eq!(report(1000, 100), 1);
    }
}
