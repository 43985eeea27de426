//! The client threads. Each owns a key stream and one driver per target, and executes the
//! coordinator's orders one slice at a time.

use std::io;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use rustix::thread::{CpuSet, sched_setaffinity};
use rustix::time::{ClockId, clock_gettime};

use crate::codec::Codec;
use crate::config::{Address, LoadConfig};
use crate::conn::Fault;
use crate::driver::{Driver, Work};
use crate::error::LoadError;
use crate::keys::KeyStream;
use crate::load_stats::LoadStats;

/// A target as the client threads see it.
#[derive(Clone, Debug)]
pub(crate) struct Endpoint {
    pub(crate) address: Address,
    pub(crate) codec: Codec,
}

/// Work for one target; `None` only renews the key stream.
type Order = Option<(usize, Work)>;

struct Worker {
    orders: Option<Sender<Order>>,
    results: Receiver<Result<LoadStats, LoadError>>,
    handle: Option<JoinHandle<()>>,
    conns: u32,
}

/// All client threads.
pub(crate) struct ThreadPool {
    workers: Vec<Worker>,
    conns: u32,
}

/// Pins the calling thread to one of `cpus`, unless the list is empty.
pub(crate) fn pin(cpus: &[usize], turn: usize) -> Result<(), LoadError> {
    let Some(&cpu) = cpus.get(turn % cpus.len().max(1)) else {
        return Ok(());
    };
    if cpu >= CpuSet::MAX_CPU {
        return Err(LoadError::config(format!("there is no CPU {cpu}")));
    }
    let mut set = CpuSet::new();
    set.set(cpu);
    sched_setaffinity(None, &set)
        .map_err(|e| LoadError::io(format!("cannot pin a thread to CPU {cpu}"), e.into()))
}

impl ThreadPool {
    /// Starts the threads and opens all connections.
    pub(crate) fn start(config: &LoadConfig, endpoints: &[Endpoint]) -> Result<Self, LoadError> {
        let workers = (0..config.threads)
            .map(|turn| Worker::start(config, endpoints, turn))
            .collect::<Result<Vec<_>, _>>()?;
        let pool = Self {
            workers,
            conns: config.connections,
        };
        pool.gather()?;
        Ok(pool)
    }

    /// Executes one piece of work on one target, divided between the threads by connections.
    pub(crate) fn run(&self, target: usize, work: &Work) -> Result<LoadStats, LoadError> {
        let mut before = 0;
        for worker in &self.workers {
            let share = share(work, before, worker.conns, self.conns);
            worker.order(Some((target, share)));
            before += worker.conns;
        }
        self.gather()
    }

    /// Renews the key streams, while no target is under load.
    pub(crate) fn renew(&self) -> Result<(), LoadError> {
        self.workers.iter().for_each(|worker| worker.order(None));
        self.gather().map(|_| ())
    }

    /// Merges the results of all threads; returns the first error if any failed.
    fn gather(&self) -> Result<LoadStats, LoadError> {
        let mut all = LoadStats::new();
        let mut failure = None;
        for worker in &self.workers {
            match worker.results.recv() {
                Ok(Ok(stats)) => all.merge(&stats),
                Ok(Err(e)) => failure = failure.or(Some(e)),
                Err(_) => {
                    let gone = io::Error::other("a client thread panicked");
                    failure = failure.or(Some(LoadError::io("load", gone)));
                }
            }
        }
        failure.map_or(Ok(all), Err)
    }
}

/// The part of `work` that belongs to connections `before..before + mine`.
fn share(work: &Work, before: u32, mine: u32, all: u32) -> Work {
    let (before, mine, all) = (u64::from(before), u64::from(mine), u64::from(all));
    match *work {
        Work::Prefill {
            next,
            end,
            keys,
            batch,
        } => {
            let cut = |conns: u64| next + (end - next) * conns / all;
            Work::Prefill {
                next: cut(before),
                end: cut(before + mine),
                keys,
                batch,
            }
        }
        Work::Closed { .. } => work.clone(),
        Work::Open {
            ns,
            rate,
            arrivals,
            max_outstanding,
        } => {
            let rate = rate * mine as f64 / all as f64;
            Work::Open {
                ns,
                rate,
                arrivals,
                max_outstanding,
            }
        }
    }
}

impl Worker {
    fn start(config: &LoadConfig, endpoints: &[Endpoint], turn: u32) -> Result<Self, LoadError> {
        let extra = u32::from(turn < config.connections % config.threads);
        let conns = config.connections / config.threads + extra;
        let (orders, inbox) = channel();
        let (outbox, results) = channel();
        let (config, endpoints) = (config.clone(), endpoints.to_vec());
        let handle = std::thread::Builder::new()
            .name(format!("load-{turn}"))
            .spawn(move || serve(&config, &endpoints, turn, conns as usize, &inbox, &outbox))
            .map_err(|e| LoadError::io("cannot start a client thread", e))?;
        Ok(Self {
            orders: Some(orders),
            results,
            handle: Some(handle),
            conns,
        })
    }

    fn order(&self, order: Order) {
        if let Some(orders) = &self.orders {
            // A thread that has ended is detected in `gather`.
            let _ = orders.send(order);
        }
    }
}

impl Drop for ThreadPool {
    fn drop(&mut self) {
        for worker in &mut self.workers {
            worker.orders = None;
        }
        for handle in self.workers.iter_mut().filter_map(|w| w.handle.take()) {
            let _ = handle.join();
        }
    }
}

/// Body of a client thread: connects, reports, and executes orders until the channel closes.
fn serve(
    config: &LoadConfig,
    endpoints: &[Endpoint],
    turn: u32,
    conns: usize,
    inbox: &Receiver<Order>,
    outbox: &Sender<Result<LoadStats, LoadError>>,
) {
    let (mut drivers, mut stream) = match prepare(config, endpoints, turn, conns) {
        Ok(ready) => ready,
        Err(e) => return drop(outbox.send(Err(e))),
    };
    if outbox.send(Ok(LoadStats::new())).is_err() {
        return;
    }
    for order in inbox {
        let result = match order {
            None => {
                stream.renew();
                Ok(LoadStats::new())
            }
            Some((target, work)) => {
                timed(|| drivers[target].run(&work, &mut stream)).map_err(|fault| {
                    let address = endpoints[target].address.to_string();
                    name(fault, &address, config.reply_timeout_ms)
                })
            }
        };
        if outbox.send(result).is_err() {
            return;
        }
    }
}

fn prepare(
    config: &LoadConfig,
    endpoints: &[Endpoint],
    turn: u32,
    conns: usize,
) -> Result<(Vec<Driver>, KeyStream), LoadError> {
    pin(&config.pin, turn as usize)?;
    let (seed, turn) = (config.seed, u64::from(turn));
    let stream = KeyStream::new(
        seed,
        turn,
        config.keys,
        config.distribution,
        config.set_ratio,
    );
    let drivers = endpoints
        .iter()
        .map(|endpoint| {
            let codec = endpoint.codec.clone();
            Driver::connect(&endpoint.address, codec, conns, config.reply_timeout_ms).map_err(
                |source| LoadError::Connect {
                    target: endpoint.address.to_string(),
                    source,
                },
            )
        })
        .collect::<Result<Vec<_>, _>>()?;
    Ok((drivers, stream))
}

/// Adds the CPU time that this thread used.
fn timed(work: impl FnOnce() -> Result<LoadStats, Fault>) -> Result<LoadStats, Fault> {
    let before = thread_ns();
    let mut stats = work()?;
    stats.client_ns = thread_ns() - before;
    Ok(stats)
}

fn thread_ns() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// The error for a target at `address`.
pub(crate) fn name(fault: Fault, address: &str, waited_ms: u64) -> LoadError {
    let target = address.to_owned();
    match fault {
        Fault::Io(what, source) => LoadError::io(format!("{target}: {what}"), source),
        Fault::Protocol(detail) => LoadError::Protocol { target, detail },
        Fault::Stall { outstanding } => LoadError::Stall {
            target,
            waited_ms,
            outstanding,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_of_a_prefill_cover_every_key_once() {
        let work = Work::Prefill {
            next: 0,
            end: 1_000_003,
            keys: 1_000_003,
            batch: 1,
        };
        let mut at = 0;
        for (before, mine) in [(0, 17), (17, 17), (34, 16)] {
            let Work::Prefill { next, end, .. } = share(&work, before, mine, 50) else {
                panic!("another kind of work");
            };
            assert_eq!(next, at);
            at = end;
        }
        assert_eq!(at, 1_000_003);
    }

    #[test]
    fn an_absent_cpu_is_refused() {
        assert!(pin(&[100_000], 0).is_err());
        pin(&[], 3).expect("nothing to do");
    }
}
