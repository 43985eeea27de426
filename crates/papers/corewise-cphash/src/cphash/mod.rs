//! `CpHash`: partitions that one thread at a time serves, reached by messages (\[CPHASH\] §3).
//!
//! ```text
//!  client                    lane: two rings                 server
//!  ┌──────────┐  LOOKUP id  ┌────────────────────┐          ┌───────────────────────┐
//!  │ submit   │────────────▶│ 8 lookups, or 4    │─────────▶│ polls the lanes of its│
//!  │          │  INSERT id  │ insertions, a line │          │ partitions:           │
//!  │          │             ├────────────────────┤          │  ┌─────────────────┐  │
//!  │ poll     │◀────────────│ pointers           │◀─────────│  │ partition       │  │
//!  └────┬─────┘             └────────────────────┘          │  └─────────────────┘  │
//!       │  reads the value, or copies the new one,          └───────────────────────┘
//!       └─ then sends DECREF or READY
//! ```
//!
//! There is a lane for each pair of a client and a partition, and not of a client and a server as
//! in the paper, which has one partition for each server. So a partition can move to another server
//! together with its lanes: see `shard`.
//!
//! # Guarantees
//!
//! 1. *Order.* Operations on one key are linearizable, and those of one client take effect in the
//!    order of submission. (Until the memory for its insertion of a key has arrived, `submit`
//!    refuses further operations on this key.) `Config::early_outcomes` gives the first part up for
//!    submitted insertions.
//! 2. *Insertions.* The server allocates, the client copies, and sends READY. Until then lookups
//!    find the old value. A message carries up to 40 bytes of key and value, which the server
//!    copies.
//! 3. *Departure.* A client may be dropped or panic at any time. What it has sent is executed,
//!    replies that it has not read are cleaned up, and no other client waits for it. A server may
//!    be dropped at any time; others take over its partitions. Without servers, clients that wait
//!    serve the partitions themselves.
//! 4. *Progress.* Servers wait for no client. Clients wait only in blocking operations. A server
//!    that is not polled delays the operations on its partitions.
//! 5. *Sleep.* Idle server threads sleep, and a message wakes them.
//! 6. *Foreign code.* Wakers run and are dropped outside of all locks. A server drops its waker
//!    after it has released its partitions. Panics of wakers, and of results that no client reads,
//!    are caught.
//!
//! # Deviations from the paper
//!
//! - The old value stays visible until READY; `Replace::AtAllocation` is the paper's way.
//! - READY has a reply, without which a submitted insertion is not linearizable;
//!   `Config::early_outcomes` is the paper's way.
//! - Short values travel in the message, unless `Config::inline_values` is off.
//! - Clients compare keys that are not narrow with the element's, as in §8.2. If several keys have
//!   one ID, the reply leads to all of them, and all are kept.
//! - `EXECUTE` and `REMOVE` messages.

mod budgets;
mod client;
mod colocated;
mod foreign;
mod lane;
mod load;
mod message;
#[cfg(test)]
mod models;
mod outbox;
mod pool;
mod server;
mod shard;
mod table;
mod task;

use std::hash::{BuildHasher, RandomState};

use corewise_atomic::sync::Arc;

use crate::config::{Config, ConfigError};
use crate::element::Layout;
use crate::key::Identifier;
use crate::partition::Stats;
pub use client::{Client, MAX_WAITING_BYTES, PipelineFull, RemoteRef};
pub use colocated::Colocated;
use pool::Pool;
pub use server::PartitionServer;
use table::PartitionTable;
pub use task::{Entry, TaskResult};

/// A cache whose partitions are served by threads and reached by messages: CPHASH (\[CPHASH\] §3).
///
/// ```
/// use corewise_cphash::{Config, CpHash, Reply, CacheRequest};
///
/// let table = CpHash::new(&Config::new(1 << 20).partitions(4), 1)?; // one server thread
/// let mut client = table.client();
///
/// // Blocking:
/// client.insert("greeting", b"hello")?;
/// assert_eq!(client.get("greeting", |value| value.len()), Some(5));
///
/// // Asynchronous: many operations on their way at the same time.
/// for number in 0..100 {
///     client.submit(number, CacheRequest::Insert(number.into(), b"value"))?;
/// }
/// let mut done = 0;
/// while done < 100 {
///     done += client.poll(|_, reply| assert!(matches!(reply, Reply::Inserted(Ok(())))));
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// Dropping the table ends its server threads after they have executed everything that was sent.
/// Clients that are left keep working: they serve the partitions themselves while they wait.
///
/// A child of `fork` has none of the server threads. It may drop the table and its clients, which
/// keeps the memory of the elements until the child ends or executes another program, and executes
/// nothing that other clients have sent. It may do nothing else with them, and nothing with servers
/// that their owners poll, [`Colocated`] included.
pub struct CpHash<S = RandomState> {
    // Dropped first: its threads end.
    pool: Pool,
    table: Arc<PartitionTable>,
    identifier: Arc<Identifier<S>>,
}

impl CpHash {
    /// Creates an empty table with this number of server threads, which may be 0, and the standard
    /// library's hasher.
    ///
    /// # Errors
    ///
    /// If the configuration or the number of server threads exceeds its limits, or the system has
    /// no memory for the buckets or cannot create the threads.
    pub fn new(config: &Config, servers: usize) -> Result<Self, ConfigError> {
        Self::with_hasher(config, servers, RandomState::new())
    }
}

impl<S: BuildHasher> CpHash<S> {
    /// As [`new`](CpHash::new), with a hasher of the caller's choice. It is used for byte keys
    /// only, by clients.
    ///
    /// # Errors
    ///
    /// As [`new`](CpHash::new).
    pub fn with_hasher(config: &Config, servers: usize, hasher: S) -> Result<Self, ConfigError> {
        let identifier = Identifier::new(hasher);
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        let (count, settings) = config.settings(cpus, Layout::Split, identifier.mixer)?;
        let pipeline = config.pipeline_checked()?;
        let table = PartitionTable::new(count, &settings, pipeline, config)?;
        let mut pool = Pool::new(table.clone(), config.placement.clone());
        pool.set_threads(servers)?;
        Ok(Self {
            pool,
            table,
            identifier: Arc::new(identifier),
        })
    }

    /// Creates a client for one thread. It takes memory for each partition that it uses: 24 bytes
    /// for each operation of the pipeline, up to twice as much because of rounding.
    pub fn client(&self) -> Client<S> {
        Client::new(self.table.clone(), self.identifier.clone())
    }

    /// Creates a server that its owner polls. `wake` is called when the server has said that it
    /// [`may sleep`](PartitionServer::may_sleep) and a client has sent something; on any thread,
    /// and perhaps more than once. `wake` must not wait for this table. The table catches its
    /// panics, both when it is called and when it is dropped.
    pub fn server(&self, wake: impl Fn() + Send + Sync + 'static) -> PartitionServer {
        PartitionServer::new(self.table.clone(), wake)
    }

    /// Creates a server and a client for one thread, such as an event loop, which polls both at
    /// once. `wake` is as for [`server`](Self::server).
    pub fn colocated(&self, wake: impl Fn() + Send + Sync + 'static) -> Colocated<S> {
        Colocated::new(self.server(wake), self.client())
    }

    /// Changes the number of server threads. Partitions move to threads that start, and away from
    /// threads that end, while clients go on.
    ///
    /// # Errors
    ///
    /// [`ConfigError::Threads`] if the system cannot create a thread; those that were created
    /// remain. [`ConfigError::ServerThreads`] if there would be more than
    /// [`MAX_SERVER_THREADS`](crate::MAX_SERVER_THREADS); then nothing has changed.
    pub fn set_server_threads(&mut self, count: usize) -> Result<(), ConfigError> {
        self.pool.set_threads(count)
    }

    /// Makes the number of server threads follow the load, within a range (\[CPHASH\] §8.1).
    ///
    /// The most threads are started; those that the load does not need are parked and have no
    /// partitions. The number grows when more than three quarters of the polls of the serving
    /// threads find messages for some time, and shrinks when less than a quarter do.
    ///
    /// ```
    /// use corewise_cphash::{Config, CpHash};
    /// let mut table = CpHash::new(&Config::new(1 << 20).partitions(8), 0)?;
    /// table.adapt_server_threads(1..=4)?;
    /// # Ok::<(), corewise_cphash::ConfigError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`set_server_threads`](Self::set_server_threads), which also ends the adaptation. A range
    /// that is empty or contains 0 is refused, too.
    pub fn adapt_server_threads(
        &mut self,
        range: std::ops::RangeInclusive<usize>,
    ) -> Result<(), ConfigError> {
        self.pool.adapt(range)
    }

    /// The CPU on which the thread of a client should run according to the placement of the
    /// configuration, for the caller to pin it; clients are counted from 0. `None` means that the
    /// system should choose. When every CPU has a thread, the order of the CPUs starts over.
    ///
    /// With `PinPolicy::SmtPair` it is the other hardware thread of the core of the server thread
    /// with this number (\[CPHASH\] §6.1).
    pub fn client_cpu(&self, client: usize) -> Option<corewise_topology::CpuId> {
        self.pool.client_cpu(client)
    }

    /// The number of servers: threads, and those that their owners poll.
    pub fn servers(&self) -> usize {
        self.table.servers()
    }

    /// The number of partitions.
    pub fn partitions(&self) -> usize {
        self.table.shards.len()
    }

    /// Changes the budget of the whole table. Servers evict what is too much at their next poll. An
    /// element with a reference, or whose insertion is in progress, is evicted when its client has
    /// given the reference up or made it READY, if its partition exceeds the budget then.
    ///
    /// # Errors
    ///
    /// [`ConfigError::Budget`], as for [`new`](CpHash::new).
    pub fn set_budget_bytes(&self, bytes: usize) -> Result<(), ConfigError> {
        let share = crate::config::share_of_budget(bytes, self.table.shards.len())?;
        self.table.set_budgets(share);
        Ok(())
    }

    /// Sums over the partitions, each as it was when its server was last busy.
    pub fn stats(&self) -> Stats {
        let mut sum = Stats::default();
        self.partition_stats().for_each(|stats| sum += stats);
        sum
    }

    /// The statistics of each partition as it was when its server was last busy.
    pub fn partition_stats(&self) -> impl Iterator<Item = Stats> {
        self.table.shards.iter().map(|shard| shard.stats())
    }
}

#[cfg(all(test, not(any(corewise_loom, corewise_shuttle))))]
impl<S> CpHash<S> {
    /// Lowers the limit of keys, before there are clients.
    pub(crate) fn set_longest_key(&mut self, bytes: usize) {
        let identifier = Arc::get_mut(&mut self.identifier);
        identifier.expect("there is no client").longest = bytes;
    }
}

impl<S> std::fmt::Debug for CpHash<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "CpHash({} partitions)", self.table.shards.len())
    }
}
