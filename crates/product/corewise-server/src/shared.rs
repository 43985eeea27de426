//! State shared by all threads of a server.

use crate::auth::Users;
use crate::classes::{Ages, ClassCounts, Sums};
use crate::codec::Limits;
use crate::commands::{Command, CommandCounts, CommandSums, SlowLog};
use crate::complaints::Complaints;
use crate::config::{Config, ProtocolKind};
use crate::metrics::{Baseline, Counters, Published, Rates};
use crate::scripts::Scripts;
use crate::spare_inputs::FREE;
use corewise_atomic::CachePadded;
use corewise_atomic::lock::Mutex;
use corewise_atomic::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use corewise_engine::TimeSource;
use corewise_engine::isolation::Isolation;
use corewise_wire::memcached::MAX_KEY_LEN;
use mio::Waker;
use std::collections::HashMap;
use std::os::fd::RawFd;
use std::sync::Arc;

/// Interval between checks of the timeouts of connections.
pub(crate) const SWEEP_EVERY_MS: u64 = 500;
/// Operations gathered before the engine is called.
pub(crate) const BATCH: usize = 256;
/// Maximum number of prefixes that `stats detail` distinguishes; further ones are not counted.
const MAX_PREFIXES: usize = 10_000;

/// Values of [`Shared::stopping`].
pub(crate) mod stop {
    /// Keep running.
    pub(crate) const NO: u8 = 0;
    /// Answer what was received, then stop.
    pub(crate) const GRACEFUL: u8 = 1;
}

/// State of one event loop that other threads may read.
#[derive(Default)]
pub(crate) struct LoopState {
    /// Connections handed to the loop and not yet closed.
    pub(crate) connections: AtomicUsize,
    /// Memory of its connections, including what it shares between them.
    pub(crate) buffer_bytes: AtomicU64,
    /// The part of it that has not been written, and takes no memory yet.
    pub(crate) unwritten_bytes: AtomicU64,
    /// The part of it in its connections' input buffers, without what has not been written.
    pub(crate) input_bytes: AtomicU64,
    /// The part of it in its connections' output buffers.
    pub(crate) output_bytes: AtomicU64,
    /// Memory of the sorted set that its thread computes.
    pub(crate) computed_bytes: AtomicU64,
    /// The loop's counts.
    pub(crate) counts: Published,
    /// The loop's counts per size class.
    pub(crate) classes: ClassCounts,
    /// The loop's counts per command of RESP.
    pub(crate) commands: CommandCounts,
}

/// What a connection waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ConnState {
    /// The first byte.
    New,
    /// A request, or the rest of a line.
    Line,
    /// The rest of a data block.
    Data,
    /// The rest of a data block that is discarded.
    Swallow,
    /// The client to take replies.
    Output,
    /// Not a connection: a listening socket.
    Listening,
}

impl ConnState {
    /// memcached's names of the states, in the order above.
    const NAMES: [&str; 6] = [
        "conn_new_cmd",
        "conn_read",
        "conn_nread",
        "conn_swallow",
        "conn_mwrite",
        "conn_listening",
    ];
}

/// What `CLIENT LIST` of Redis tells of a connection, beside what never changes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ClientView {
    /// The last command.
    pub(crate) command: Command,
    /// The version of RESP.
    pub(crate) version: u8,
    /// The database that it has selected.
    pub(crate) database: u8,
    /// The requests that wait for `EXEC`, if there is a transaction.
    pub(crate) queued: Option<usize>,
    /// Bytes of requests that have not been executed, and the room behind them.
    pub(crate) query: usize,
    pub(crate) query_room: usize,
    /// Bytes that wait for `EXEC`, and those of watched keys.
    pub(crate) transaction: usize,
    /// Bytes of replies that wait for the client, and of their buffer.
    pub(crate) reply: usize,
    pub(crate) reply_buffer: usize,
    /// Bytes that the connection takes in all.
    pub(crate) total: usize,
}

/// One connection as `stats conns` shows it.
pub(crate) struct ConnInfo {
    pub(crate) fd: RawFd,
    pub(crate) peer: String,
    /// The listener that accepted it; `None` if it is a listening socket itself.
    pub(crate) listener: Option<String>,
    /// The number of a client of RESP, otherwise 0.
    pub(crate) client_id: u64,
    /// The name that a client of RESP has given itself.
    pub(crate) client_name: Mutex<Vec<u8>>,
    /// The user as whom a client of RESP has authenticated; empty if it has not.
    pub(crate) client_user: Mutex<Vec<u8>>,
    /// What other clients are told of it, as of the last sweep of its loop.
    pub(crate) view: Mutex<ClientView>,
    /// When it was accepted, on the server's clock.
    pub(crate) opened_ms: u64,
    /// Time of the last activity, on the server's clock.
    pub(crate) active_ms: AtomicU64,
    /// A [`ConnState`].
    state: AtomicU8,
}

impl ConnInfo {
    pub(crate) fn new(fd: RawFd, peer: String, listener: Option<String>, now_ms: u64) -> Self {
        let state = match listener {
            Some(_) => ConnState::New,
            None => ConnState::Listening,
        };
        Self {
            fd,
            peer,
            listener,
            client_id: 0,
            client_name: Mutex::default(),
            client_user: Mutex::default(),
            view: Mutex::default(),
            opened_ms: now_ms,
            active_ms: AtomicU64::new(now_ms),
            state: AtomicU8::new(state as u8),
        }
    }

    pub(crate) fn set_state(&self, state: ConnState) {
        // Relaxed: a statistic.
        self.state.store(state as u8, Ordering::Relaxed);
    }

    /// memcached's name of the state.
    pub(crate) fn state(&self) -> &'static str {
        // Relaxed: a statistic.
        ConnState::NAMES[usize::from(self.state.load(Ordering::Relaxed))]
    }
}

/// Counts per key prefix: get, hit, set, delete.
pub(crate) type PrefixCounts = HashMap<Vec<u8>, [u64; 4]>;

/// State shared by the accepting thread and all event loops.
pub(crate) struct Shared {
    pub(crate) config: Config,
    pub(crate) limits: Limits,
    pub(crate) clock: Arc<dyn TimeSource>,
    /// Makes operations on several keys atomic.
    pub(crate) isolation: Arc<Isolation>,
    /// The scripts that clients have sent.
    pub(crate) scripts: Arc<Scripts>,
    /// The users that may authenticate; `None` if all clients are admitted. Replaced when the file
    /// is read again.
    pub(crate) users: Mutex<Option<Arc<Users>>>,
    pub(crate) loops: Vec<CachePadded<LoopState>>,
    pub(crate) connections: Mutex<HashMap<RawFd, Arc<ConnInfo>>>,
    /// Bytes that connections may take.
    pub(crate) buffer_limit: u64,
    /// Held while a loop reports the memory of connections to the engine.
    pub(crate) reporting: Mutex<()>,
    pub(crate) total_connections: AtomicU64,
    /// Clients of RESP that were accepted.
    pub(crate) clients: AtomicU64,
    /// Messages about clients that speak memcached's binary protocol.
    pub(crate) binary_clients: Mutex<Complaints>,
    pub(crate) rejected_connections: AtomicU64,
    pub(crate) listen_disabled: AtomicU64,
    /// Whether connections are being accepted.
    pub(crate) accepting: AtomicBool,
    /// How long no connections were accepted, in microseconds.
    pub(crate) listen_disabled_us: AtomicU64,
    /// How often a reply was put off for lack of memory.
    pub(crate) replies_put_off: AtomicU64,
    /// Dumps in progress.
    pub(crate) dumps: AtomicU64,
    pub(crate) ages: Ages,
    /// One of [`stop`].
    pub(crate) stopping: AtomicU8,
    /// Wakes the accepting thread.
    pub(crate) main_waker: Waker,
    pub(crate) detail: AtomicBool,
    pub(crate) prefixes: Mutex<PrefixCounts>,
    pub(crate) baseline: Mutex<Baseline>,
    pub(crate) rates: Rates,
    pub(crate) slow_log: SlowLog,
    /// The most bytes that items and tables have taken, and those that they took at the start.
    pub(crate) peak_bytes: AtomicU64,
    pub(crate) startup_bytes: AtomicU64,
    /// When the server started, since 1970.
    pub(crate) started_s: u64,
    /// What tells this run of the server, and its data, from others.
    pub(crate) run_id: String,
    pub(crate) replication_id: String,
}

impl Shared {
    /// Counts of all loops since the start.
    pub(crate) fn counters(&self) -> Counters {
        let mut sum = Counters::default();
        for one in &self.loops {
            one.counts.add_to(&mut sum);
        }
        sum
    }

    /// Counts per size class of all loops since the start.
    pub(crate) fn class_sums(&self) -> Sums {
        let mut sums = Sums::new();
        for one in &self.loops {
            one.classes.add_to(&mut sums);
        }
        sums
    }

    /// Counts per command of RESP of all loops since the start.
    pub(crate) fn command_sums(&self) -> CommandSums {
        let mut sums = CommandSums::default();
        for one in &self.loops {
            one.commands.add_to(&mut sums);
        }
        sums
    }

    /// The first TCP port at which clients of RESP are accepted, 0 if there is none.
    pub(crate) fn resp_port(&self) -> u16 {
        let mut addresses = self.config.addresses_of(ProtocolKind::Resp);
        addresses.next().map_or(0, |address| address.port())
    }

    /// The largest of a kind of buffer over all connections, in bytes.
    pub(crate) fn largest_buffer(&self, bytes: impl Fn(&ClientView) -> usize) -> usize {
        let connections = self.connections.lock();
        let sizes = connections.values().map(|info| bytes(&info.view.lock()));
        sizes.max().unwrap_or(0)
    }

    /// Number of open connections.
    pub(crate) fn open_connections(&self) -> usize {
        // Relaxed: each is a statistic. Only the accepting thread adds to them, and it decides by
        // the sum.
        self.loops
            .iter()
            .map(|one| one.connections.load(Ordering::Relaxed))
            .sum()
    }

    /// Bytes of connections' memory, which the limit bounds.
    pub(crate) fn buffer_bytes(&self) -> u64 {
        self.sum(|one| &one.buffer_bytes)
    }

    /// The part of it that is resident.
    pub(crate) fn resident_buffer_bytes(&self) -> u64 {
        let unwritten = self.sum(|one| &one.unwritten_bytes);
        self.buffer_bytes().saturating_sub(unwritten)
    }

    /// Whether a client's transaction may have `bytes` of requests and keys, if its memory may grow
    /// by `growth`.
    pub(crate) fn has_room(&self, bytes: usize, growth: usize) -> bool {
        bytes <= FREE || self.buffer_bytes() + growth as u64 <= self.buffer_limit
    }

    /// The sum of a gauge over all loops.
    pub(crate) fn sum(&self, gauge: impl Fn(&LoopState) -> &AtomicU64) -> u64 {
        // Relaxed: gauges.
        self.loops
            .iter()
            .map(|one| gauge(one).load(Ordering::Relaxed))
            .sum()
    }

    /// Whether clients must authenticate.
    pub(crate) fn asks_for_users(&self) -> bool {
        self.config.auth_file.is_some()
    }

    /// Reads the authentication file again, if there is one. A missing or malformed file changes
    /// nothing.
    pub(crate) fn reload_users(&self) {
        let Some(path) = &self.config.auth_file else {
            tracing::info!("SIGHUP: there is no authentication file to read again");
            return;
        };
        match Users::read(path) {
            Ok(users) => {
                *self.users.lock() = Some(Arc::new(users));
                tracing::info!(path = %path.display(), "SIGHUP: read the authentication file again");
            }
            Err(error) => tracing::warn!("SIGHUP: the users stay as they were: {error}"),
        }
    }

    /// Records that a dump is complete, or that its client is gone.
    pub(crate) fn end_dump(&self) {
        // Relaxed: a gauge.
        self.dumps.fetch_sub(1, Ordering::Relaxed);
    }

    /// Closes the connection of another client. Returns false if it is closed already.
    pub(crate) fn hang_up(&self, info: &Arc<ConnInfo>) -> bool {
        let connections = self.connections.lock();
        let is_open = connections
            .get(&info.fd)
            .is_some_and(|open| Arc::ptr_eq(open, info));
        if is_open {
            // SAFETY: the file is open and this connection's: a loop removes a connection from
            // `connections`, which is locked, before it closes the file.
            let done = unsafe { libc::shutdown(info.fd, libc::SHUT_RDWR) };
            // The peer may be gone already; then the loop closes the connection anyway.
            let _ = done;
        }
        is_open
    }

    /// Asks the accepting thread to stop the server. The loops go on until that thread has closed
    /// their inboxes.
    pub(crate) fn stop(&self) {
        // Release: pairs with the Acquire in `is_stopping`.
        self.stopping.store(stop::GRACEFUL, Ordering::Release);
        if let Err(error) = self.main_waker.wake() {
            tracing::error!(%error, "the accepting thread cannot be woken");
        }
    }

    /// Whether the server was asked to stop.
    pub(crate) fn is_stopping(&self) -> bool {
        // Acquire: pairs with the Release in `stop`.
        self.stopping.load(Ordering::Acquire) != stop::NO
    }

    /// Counts an operation under its key's prefix, unless it is a prefix of RESP that memcached's
    /// protocol cannot show.
    #[cold]
    pub(crate) fn count_prefix(&self, key: &[u8], column: usize, hit: bool) {
        let delimiter = self.config.prefix_delimiter;
        let Some(end) = key.iter().position(|&c| c == delimiter) else {
            return;
        };
        if end > MAX_KEY_LEN || !key[..end].iter().all(u8::is_ascii_graphic) {
            return;
        }
        let mut prefixes = self.prefixes.lock();
        if prefixes.len() >= MAX_PREFIXES && !prefixes.contains_key(&key[..end]) {
            return;
        }
        let counts = prefixes.entry(key[..end].to_vec()).or_default();
        counts[column] += 1;
        counts[1] += u64::from(hit);
    }
}
