//! The client threads. Each has a key stream and one driver for each target, and executes the
//! coordinator's work one slice at a time.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use corewise_measure::thread_pool::{PhaseError, PoolError, ThreadPool};
use corewise_topology::{CpuId, pin_current_thread};
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

/// What one thread works with.
struct Client {
    drivers: Vec<Driver>,
    stream: KeyStream,
    /// Connections of the threads before it, and of itself.
    conns: (u32, u32),
}

/// All client threads.
pub(crate) struct Clients {
    threads: ThreadPool,
    /// Each is locked by its thread only; none before the thread has connected.
    clients: Arc<[Mutex<Option<Client>>]>,
    config: LoadConfig,
    endpoints: Arc<[Endpoint]>,
}

/// The CPU of a thread; `None` if the list is empty.
fn place(cpus: &[usize], turn: usize) -> Option<CpuId> {
    cpus.get(turn % cpus.len().max(1)).copied().map(CpuId)
}

/// Pins the calling thread to one of `cpus`, unless the list is empty.
pub(crate) fn pin(cpus: &[usize], turn: usize) -> Result<(), LoadError> {
    place(cpus, turn).map_or(Ok(()), |cpu| {
        pin_current_thread(cpu).map_err(|e| refused(&PoolError::Pin(cpu, e)))
    })
}

fn refused(error: &PoolError) -> LoadError {
    LoadError::config(error.to_string())
}

impl Clients {
    /// Starts the threads and opens all connections.
    pub(crate) fn start(config: &LoadConfig, endpoints: Vec<Endpoint>) -> Result<Self, LoadError> {
        let threads = config.threads as usize;
        let places = (0..threads).map(|turn| place(&config.pin, turn)).collect();
        let all = Self {
            threads: ThreadPool::start("load", places).map_err(|error| refused(&error))?,
            clients: (0..threads).map(|_| Mutex::new(None)).collect(),
            config: config.clone(),
            endpoints: endpoints.into(),
        };
        let (config, endpoints) = (config.clone(), all.endpoints.clone());
        all.each(move |turn, client| {
            *client = Some(Client::connect(&config, &endpoints, turn)?);
            Ok(LoadStats::new())
        })?;
        Ok(all)
    }

    /// Executes one piece of work on one target, divided between the threads by connections.
    pub(crate) fn run(&self, target: usize, work: &Work) -> Result<LoadStats, LoadError> {
        let (work, all) = (work.clone(), self.config.connections);
        let (endpoints, waited_ms) = (self.endpoints.clone(), self.config.reply_timeout_ms);
        self.with_clients(move |client| {
            let (before, mine) = client.conns;
            let work = share(&work, before, mine, all);
            timed(|| client.drivers[target].run(&work, &mut client.stream))
                .map_err(|fault| name(fault, &endpoints[target].address.to_string(), waited_ms))
        })
    }

    /// Renews the key streams, while no target is under load.
    pub(crate) fn renew(&self) -> Result<(), LoadError> {
        self.with_clients(|client| {
            client.stream.renew();
            Ok(LoadStats::new())
        })?;
        Ok(())
    }

    fn with_clients(
        &self,
        task: impl Fn(&mut Client) -> Result<LoadStats, LoadError> + Send + Sync + 'static,
    ) -> Result<LoadStats, LoadError> {
        self.each(move |_, client| client.as_mut().map_or(Ok(LoadStats::new()), &task))
    }

    /// Merges the results of all threads; returns the first error if any failed.
    fn each(
        &self,
        task: impl Fn(usize, &mut Option<Client>) -> Result<LoadStats, LoadError>
        + Send
        + Sync
        + 'static,
    ) -> Result<LoadStats, LoadError> {
        let clients = self.clients.clone();
        // A driver has its own limit for each reply.
        let run = self
            .threads
            .run("load", clients.len(), Duration::MAX, move |part| {
                let client = clients[part.thread].lock();
                task(
                    part.thread,
                    &mut client.unwrap_or_else(PoisonError::into_inner),
                )
            });
        let failed = |error| match error {
            PhaseError::Failed(text) => LoadError::io("load", std::io::Error::other(text)),
            PhaseError::Stuck(phase) => LoadError::io("load", std::io::Error::other(phase)),
        };
        let mut all = LoadStats::new();
        for result in run.map_err(failed)? {
            all.merge(&result?);
        }
        Ok(all)
    }
}

impl Client {
    fn connect(
        config: &LoadConfig,
        endpoints: &[Endpoint],
        turn: usize,
    ) -> Result<Self, LoadError> {
        let (threads, number) = (config.threads, turn as u32);
        let (each, extra) = (config.connections / threads, config.connections % threads);
        let mine = each + u32::from(number < extra);
        let stream = KeyStream::new(
            config.seed,
            turn as u64,
            config.keys,
            config.distribution,
            config.set_ratio,
        );
        let connect = |endpoint: &Endpoint| {
            let codec = endpoint.codec.clone();
            Driver::connect(
                &endpoint.address,
                codec,
                mine as usize,
                config.reply_timeout_ms,
            )
            .map_err(|source| LoadError::Connect {
                target: endpoint.address.to_string(),
                source,
            })
        };
        Ok(Self {
            drivers: endpoints.iter().map(connect).collect::<Result<_, _>>()?,
            stream,
            conns: (each * number + number.min(extra), mine),
        })
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
