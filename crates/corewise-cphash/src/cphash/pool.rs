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
use corewise_atomic::{Backoff, hint};
use corewise_topology::{CpuId, PinPolicy, Topology, pin_current_thread, plan};

use super::load::Load;
use super::server::Server;
use super::table::Table;
use crate::config::ConfigError;

/// Polls without work before a thread begins to yield, some tens of microseconds.
const SPINS: u32 = 1000;

/// Polls between two reports of a thread's load.
const REPORT_POLLS: u32 = 1 << 12;

pub(super) struct Pool {
    table: Arc<Table>,
    placement: PinPolicy,
    threads: Vec<Member>,
    shared: Arc<Shared>,
}

struct Member {
    stop: Arc<AtomicBool>,
    handle: JoinHandle<()>,
}

/// What the threads share.
struct Shared {
    /// Threads with an index below this serve.
    serving: AtomicUsize,
    load: Mutex<Option<Load>>,
    /// To wake threads that shall serve, or serve no longer.
    threads: Mutex<Vec<Thread>>,
}

impl Shared {
    fn set_serving(&self, count: usize) {
        // Release: pairs with the Acquire in `serve_while`.
        self.serving.store(count, Release);
        self.threads.lock().iter().for_each(thread::unpark);
    }

    /// Takes the report of a serving thread into account, unless another thread reports just now.
    fn report(&self, busy: u32, polls: u32) {
        let decision = self.load.try_lock().and_then(|mut load| {
            // Relaxed: changed under the lock only, while the pool is adaptive.
            let serving = self.serving.load(Relaxed);
            load.as_mut()?.report(busy, polls, serving)
        });
        if let Some(serving) = decision {
            self.set_serving(serving);
        }
    }
}

impl Pool {
    pub(super) fn new(table: Arc<Table>, placement: PinPolicy) -> Self {
        Self {
            table,
            placement,
            threads: Vec::new(),
            shared: Arc::new(Shared {
                serving: AtomicUsize::new(0),
                load: Mutex::new(None),
                threads: Mutex::new(Vec::new()),
            }),
        }
    }

    /// Makes a fixed number of threads serve.
    pub(super) fn set_threads(&mut self, count: usize) -> Result<(), ConfigError> {
        *self.shared.load.lock() = None;
        self.shared.set_serving(count);
        self.resize(count)
    }

    /// Makes the number of serving threads follow the load.
    pub(super) fn adapt(&mut self, range: RangeInclusive<usize>) -> Result<(), ConfigError> {
        let (least, most) = (
            *range.start().max(&1),
            *range.end().max(range.start()).max(&1),
        );
        self.resize(most)?;
        *self.shared.load.lock() = Some(Load::new(least..=most));
        self.shared.set_serving(least);
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
        stop(self.threads.split_off(count));
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
            PinPolicy::SmtPair => cpu_of(&self.placement, 2 * index),
            _ => cpu_of(&self.placement, self.threads.len() + index),
        }
    }
}

/// The CPU of a server thread: that of the second hardware thread of a core if clients have the
/// first ones.
fn server_cpu(placement: &PinPolicy, index: usize) -> Option<CpuId> {
    match placement {
        PinPolicy::SmtPair => cpu_of(placement, 2 * index + 1),
        _ => cpu_of(placement, index),
    }
}

fn cpu_of(placement: &PinPolicy, index: usize) -> Option<CpuId> {
    if *placement == PinPolicy::None {
        return None;
    }
    plan(&Topology::detect(), placement, index + 1)[index]
}

/// Tells threads to end when they have nothing to do, and waits for that.
fn stop(threads: Vec<Member>) {
    for member in &threads {
        // Release: pairs with the Acquire in `serve_while`.
        member.stop.store(true, Release);
        thread::unpark(member.handle.thread());
    }
    for member in threads {
        // A closure that runs on a server thread may drop the table.
        if member.handle.thread().id() != thread::current().id() {
            let ended = member.handle.join();
            debug_assert!(ended.is_ok(), "server threads do not panic");
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        stop(std::mem::take(&mut self.threads));
    }
}

/// A server thread, which serves while it is among the threads that shall.
fn run(table: &Arc<Table>, shared: &Shared, index: usize, stop: &AtomicBool) {
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
fn serve_while(table: &Arc<Table>, shared: &Shared, goes_on: impl Fn() -> bool) {
    let this = thread::current();
    let mut server = Server::new(table.clone(), move || thread::unpark(&this));
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

#[cfg(all(test, not(any(corewise_loom, corewise_shuttle))))]
mod tests {
    use super::*;

    /// Without threads, so that the reports are the only ones.
    #[test]
    fn reports_change_the_number_of_serving_threads() {
        let shared = Shared {
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
