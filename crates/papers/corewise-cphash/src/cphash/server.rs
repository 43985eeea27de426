//! Servers: the thread that polls one serves its partitions.

use std::cell::Cell;

use corewise_atomic::barrier;
use corewise_atomic::mutant;
use corewise_atomic::sync::Arc;

use super::foreign;
use super::shard::OwnerId;
use super::table::PartitionTable;
use crate::partition::Partition;

corewise_atomic::thread_local! {
    /// Whether this thread is serving partitions at the moment.
    static SERVING: Cell<bool> = const { Cell::new(false) };
}

/// Whether the calling thread is serving partitions, so it must not wait for one.
pub(super) fn is_serving() -> bool {
    SERVING.with(Cell::get)
}

/// Marks the thread as serving.
pub(super) struct Serving(bool);

impl Serving {
    #[inline]
    pub(super) fn begin() -> Self {
        Self(SERVING.with(|serving| serving.replace(true)))
    }
}

impl Drop for Serving {
    #[inline]
    fn drop(&mut self) {
        SERVING.with(|serving| serving.set(self.0));
    }
}

/// Serves partitions of a [`CpHash`](crate::CpHash) whenever it is polled, such as by an event loop
/// between its own polls.
///
/// Partitions are shared out evenly among all servers, and anew when one joins or leaves. Dropping
/// a server hands its partitions to the others. While a server exists, it must be polled, or
/// clients wait for its partitions; before a pause it asks [`may_sleep`](Self::may_sleep).
///
/// ```
/// use corewise_cphash::{Config, CpHash, Reply, CacheRequest};
///
/// let table = CpHash::new(&Config::new(1 << 20).partitions(2), 0)?; // no threads
/// let mut server = table.server(|| {}); // nothing here sleeps
/// let mut client = table.client();
/// client.submit(7, CacheRequest::Insert("key".into(), &[1; 1000]))?;
/// client.flush();
/// server.poll(); // allocates
/// assert_eq!(client.poll(|_, _| ()), 0); // copies the value
/// server.poll(); // makes it READY
/// assert_eq!(table.stats().elements, 1);
/// client.poll(|token, reply| assert!(matches!((token, reply), (7, Reply::Inserted(Ok(()))))));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct PartitionServer {
    table: Arc<PartitionTable>,
    slot: usize,
    /// The partitions that this server has claimed.
    owned: Vec<usize>,
    /// The same for each partition.
    is_owned: Vec<bool>,
    /// Whether a partition that should be ours was owned by another thread when we looked.
    is_waiting: bool,
    epoch: usize,
    /// Whether `asleep` may be set in owned partitions.
    is_offline: bool,
    /// Polls that found messages since budgets were looked at.
    busy_polls: u32,
}

/// Polls with messages between two looks at the budgets.
const BUDGET_POLLS: u32 = 256;

impl PartitionServer {
    pub(super) fn new(table: Arc<PartitionTable>, wake: impl Fn() + Send + Sync + 'static) -> Self {
        let slot = table.join(foreign::waker(wake));
        let mut server = Self {
            epoch: table.epoch().wrapping_sub(1),
            is_owned: vec![false; table.shards.len()],
            table,
            slot,
            owned: Vec::new(),
            is_waiting: false,
            is_offline: false,
            busy_polls: 0,
        };
        server.follow();
        server
    }

    /// Executes what clients have sent to the partitions of this server, and returns the number of
    /// messages. Wait-free, but for closures of users and the global allocator.
    #[inline]
    pub fn poll(&mut self) -> usize {
        if self.is_waiting || self.epoch != self.table.epoch() {
            self.follow();
        }
        if self.is_offline {
            self.go_online();
        }
        let _serving = Serving::begin();
        let mut served = 0;
        for &index in &self.owned {
            // SAFETY: `owned` has the partitions that this server has claimed (1).
            served += unsafe { self.table.shards[index].serve() };
        }
        self.count(served);
        served
    }

    /// Looks at the budgets from time to time, while there is work.
    #[inline]
    fn count(&mut self, served: usize) {
        self.busy_polls += u32::from(served > 0);
        if self.busy_polls == BUDGET_POLLS {
            self.busy_polls = 0;
            self.table.move_budget();
        }
    }

    /// Whether the server may sleep: nothing waits to be served. After `true`, the server's waker
    /// is called when there is something to do, until the next [`poll`](Self::poll).
    ///
    /// Costs a system call (`membarrier`); call it after some polls that returned 0.
    pub fn may_sleep(&mut self) -> bool {
        for &index in &self.owned {
            self.table.shards[index].set_asleep(true);
        }
        self.is_offline = true;
        if !mutant!("sleep_without_barrier") {
            // Pairs with the light barrier in `Shard::must_wake`.
            barrier::heavy();
        }
        if self.epoch != self.table.epoch() || (self.is_waiting && self.can_claim()) {
            self.go_online();
            return false;
        }
        // SAFETY: `owned` has the partitions that this server has claimed (1).
        let has_requests = |&index: &usize| unsafe { self.table.shards[index].has_requests() };
        if !mutant!("sleep_without_second_look") && self.owned.iter().any(has_requests) {
            self.go_online();
            return false;
        }
        true
    }

    /// The number of partitions that this server serves at the moment.
    pub fn partitions(&self) -> usize {
        self.owned.len()
    }

    /// Whether this server serves the partition with this index.
    #[inline]
    pub(super) fn owns(&self, index: usize) -> bool {
        self.is_owned[index]
    }

    /// Calls `body` with a partition if this server serves it. Requests that were sent to it may
    /// not have been executed.
    #[inline]
    pub(super) fn with_partition<R>(
        &mut self,
        index: usize,
        body: impl FnOnce(&mut Partition) -> R,
    ) -> Option<R> {
        if !self.owns(index) {
            return None;
        }
        let _serving = Serving::begin();
        // SAFETY: this server has claimed it, and serves none while it is borrowed (1).
        Some(unsafe { self.table.shards[index].with_partition(body) })
    }

    /// Executes what clients have sent to one partition of this server.
    pub(super) fn serve(&mut self, index: usize) {
        if self.owns(index) {
            let _serving = Serving::begin();
            // SAFETY: this server has claimed it (1).
            unsafe { self.table.shards[index].serve() };
        }
    }

    fn go_online(&mut self) {
        self.is_offline = false;
        for &index in &self.owned {
            self.table.shards[index].set_asleep(false);
        }
    }

    fn can_claim(&self) -> bool {
        let mut shards = self.table.shards.iter();
        shards.any(|shard| shard.desired() == Some(self.slot) && shard.is_free())
    }

    /// Releases the partitions that others should have, and claims those that this server should.
    #[cold]
    fn follow(&mut self) {
        self.epoch = self.table.epoch();
        let (table, slot, is_owned) = (&self.table, self.slot, &mut self.is_owned);
        self.owned.retain(|&index| {
            let shard = &table.shards[index];
            let stays = shard.desired() == Some(slot);
            if !stays {
                is_owned[index] = false;
                // SAFETY: claimed, and given up.
                if let Some(next) = unsafe { shard.release() } {
                    table.wake(next);
                }
            }
            stays
        });
        self.is_waiting = false;
        for (index, shard) in table.shards.iter().enumerate() {
            if shard.desired() == Some(slot) && !is_owned[index] {
                match shard.claim(OwnerId::server(slot)) {
                    true => {
                        is_owned[index] = true;
                        self.owned.push(index);
                    }
                    false => self.is_waiting = true,
                }
            }
        }
    }
}

impl Drop for PartitionServer {
    fn drop(&mut self) {
        let (_left, others) = self.table.leave(self.slot);
        let mut next = Vec::new();
        for &index in &self.owned {
            let shard = &self.table.shards[index];
            if shard.is_left() && !std::thread::panicking() {
                // No server follows, and perhaps no client: what was sent is executed.
                let _serving = Serving::begin();
                // SAFETY: this server has claimed it, and gives it up below (1).
                unsafe { shard.serve() };
            }
            // SAFETY: claimed, and given up.
            next.extend(unsafe { shard.release() });
        }
        // Those that the registry had, and those that have joined since.
        others.iter().for_each(foreign::call);
        next.into_iter().for_each(|slot| self.table.wake(slot));
    }
}

impl std::fmt::Debug for PartitionServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "PartitionServer({} partitions)", self.owned.len())
    }
}
