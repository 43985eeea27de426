//! All partitions, and the registry of servers.

use corewise_atomic::lock::Mutex;
use corewise_atomic::sync::Arc;
use corewise_atomic::sync::atomic::AtomicUsize;
use corewise_atomic::sync::atomic::Ordering::{Acquire, Release};
use corewise_atomic::{CachePadded, Slots};

use super::budgets::Budgets;
use super::foreign::{Waker, call};
use super::server::Serving;
use super::shard::{OwnerId, Shard};
use crate::config::{Config, ConfigError};
use crate::partition::Settings;

pub(super) struct PartitionTable {
    pub(super) shards: Slots<CachePadded<Shard>>,
    registry: Mutex<Registry>,
    /// Changes whenever partitions are distributed anew.
    epoch: CachePadded<AtomicUsize>,
    /// The most operations that a client may have outstanding.
    pub(super) pipeline: usize,
    /// Whether the outcome of an insertion is delivered when READY was sent.
    pub(super) early_outcomes: bool,
    /// Whether messages carry short values.
    pub(super) is_inline: bool,
    /// Locked while budgets change. `Some` if they move.
    budgets: Mutex<Option<Budgets>>,
    /// The process that has the server threads.
    process: u32,
}

#[derive(Default)]
struct Registry {
    /// The wakers of the servers; a server's slot is its index.
    servers: Vec<Option<Waker>>,
}

impl PartitionTable {
    pub(super) fn new(
        count: usize,
        settings: &Settings,
        pipeline: usize,
        config: &Config,
    ) -> Result<Arc<Self>, ConfigError> {
        corewise_atomic::barrier::prepare();
        let shard = |_| Shard::new(settings).map(CachePadded::new);
        Ok(Arc::new(Self {
            shards: (0..count).map(shard).collect::<Result<_, _>>()?,
            registry: Mutex::new(Registry::default()),
            epoch: CachePadded::new(AtomicUsize::new(0)),
            pipeline,
            early_outcomes: config.early_outcomes,
            is_inline: config.inline_values,
            budgets: Mutex::new(
                config
                    .moving_budgets
                    .then(|| Budgets::new(count, settings.budget)),
            ),
            process: std::process::id(),
        }))
    }

    /// Sets the budget of every partition.
    pub(super) fn set_budgets(&self, share: usize) {
        // The lock keeps moves away, and other calls, so all partitions get the same share.
        let mut budgets = self.budgets.lock();
        if let Some(budgets) = &mut *budgets {
            budgets.reset(share);
        }
        self.shards.iter().for_each(|shard| shard.set_budget(share));
        drop(budgets);
        self.shards.iter().for_each(|shard| self.call(shard));
    }

    /// Moves some memory to a partition that is short of it, if budgets move and no other thread
    /// changes them at the moment.
    pub(super) fn move_budget(&self) {
        let changed = self.budgets.try_lock().and_then(|mut budgets| {
            let budgets = budgets.as_mut()?;
            budgets.step(|index| &self.shards[index])
        });
        if let Some(changed) = changed {
            self.call(&self.shards[changed]);
        }
    }

    /// The number of times that partitions were distributed.
    #[inline]
    pub(super) fn epoch(&self) -> usize {
        // Acquire: pairs with the Release in `distribute`, so the new owners are seen.
        self.epoch.load(Acquire)
    }

    /// The number of servers.
    pub(super) fn servers(&self) -> usize {
        self.registry.lock().servers.iter().flatten().count()
    }

    /// Adds a server and returns its slot.
    pub(super) fn join(&self, waker: Waker) -> usize {
        let mut registry = self.registry.lock();
        let free = registry.servers.iter().position(Option::is_none);
        let slot = free.unwrap_or(registry.servers.len());
        if slot == registry.servers.len() {
            registry.servers.push(None);
        }
        registry.servers[slot] = Some(waker);
        let wakers = self.distribute(&registry);
        drop(registry);
        wakers.iter().for_each(call);
        slot
    }

    /// Removes a server, so that others claim its partitions once it has released them. Returns its
    /// waker, and those of all others, which the caller calls and drops when it has released them:
    /// they are foreign code, which may wait for these partitions.
    pub(super) fn leave(&self, slot: usize) -> (Option<Waker>, Vec<Waker>) {
        let mut registry = self.registry.lock();
        let left = registry.servers[slot].take();
        (left, self.distribute(&registry))
    }

    /// Shares the partitions out among the servers: each gets its share, rounded up or down, and as
    /// few as possible move. Returns the wakers of all servers.
    fn distribute(&self, registry: &Registry) -> Vec<Waker> {
        let slots = &registry.servers;
        let now: Vec<Option<usize>> = self.shards.iter().map(|shard| shard.desired()).collect();
        let active: Vec<bool> = slots.iter().map(Option::is_some).collect();
        for (shard, slot) in self.shards.iter().zip(share_out(&now, &active)) {
            if shard.desired() != slot {
                shard.set_desired(slot);
            }
        }
        // Release: pairs with the Acquire in `epoch`.
        self.epoch.fetch_add(1, Release);
        slots.iter().flatten().cloned().collect()
    }

    /// Wakes the server of a partition.
    #[cold]
    pub(super) fn wake_server_of(&self, shard: &Shard) {
        if let Some(slot) = shard.server() {
            self.wake(slot);
        }
    }

    /// Whether a `fork` copied the table into this process, but not its server threads. They may
    /// have held its locks.
    pub(super) fn is_inherited(&self) -> bool {
        self.process != std::process::id()
    }

    pub(super) fn wake(&self, slot: usize) {
        if self.is_inherited() {
            return;
        }
        let waker = self.registry.lock().servers.get(slot).cloned().flatten();
        if let Some(waker) = waker {
            call(&waker);
        }
    }

    /// Client: wakes the partition's server if it sleeps, after something was sent.
    #[inline]
    pub(super) fn call(&self, shard: &Shard) {
        if shard.must_wake() {
            self.wake_server_of(shard);
        }
    }

    /// Client: serves a partition, if nobody does and no server is going to. Again if another
    /// client has left meanwhile, which found the partition claimed.
    pub(super) fn help(&self, shard: &Shard) {
        while shard.is_abandoned() && shard.claim(OwnerId::HELPER) {
            let release = Helping { table: self, shard };
            let serving = Serving::begin();
            // SAFETY: this client has claimed the partition, until `release` is dropped (1).
            unsafe { shard.serve() };
            drop((serving, release));
            if !shard.has_news() {
                break;
            }
        }
    }
}

/// Releases a partition that a client serves.
struct Helping<'a> {
    table: &'a PartitionTable,
    shard: &'a Shard,
}

impl Drop for Helping<'_> {
    fn drop(&mut self) {
        // SAFETY: `help` has claimed the partition, and does not serve it any more (1).
        if let Some(slot) = unsafe { self.shard.release() } {
            self.table.wake(slot);
        }
    }
}

/// For each partition the server that should own it: each active server gets an equal share, and a
/// partition stays where it is if that server's share allows.
fn share_out(now: &[Option<usize>], active: &[bool]) -> Vec<Option<usize>> {
    let servers: Vec<usize> = (0..active.len()).filter(|&slot| active[slot]).collect();
    if servers.is_empty() {
        return vec![None; now.len()];
    }
    let held = |slot: usize| now.iter().filter(|owner| **owner == Some(slot)).count();
    // Servers with more partitions get the larger shares.
    let mut by_held = servers;
    by_held.sort_by_key(|&slot| std::cmp::Reverse(held(slot)));
    let (share, larger) = (now.len() / by_held.len(), now.len() % by_held.len());
    let mut room = vec![0; active.len()];
    for (rank, &slot) in by_held.iter().enumerate() {
        room[slot] = share + usize::from(rank < larger);
    }
    let mut shared: Vec<Option<usize>> = now
        .iter()
        .map(|owner| {
            owner.filter(|&slot| {
                let fits = room.get(slot).is_some_and(|&room| room > 0);
                if fits {
                    room[slot] -= 1;
                }
                fits
            })
        })
        .collect();
    let mut next = by_held.into_iter().flat_map(|slot| vec![slot; room[slot]]);
    for owner in shared.iter_mut().filter(|owner| owner.is_none()) {
        *owner = next.next();
    }
    shared
}

#[cfg(all(test, not(any(corewise_loom, corewise_shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn partitions_are_shared_out_evenly_and_move_little() {
        let mut now = vec![None; 10];
        let mut active = vec![false; 6];
        for changed in [0, 1, 2, 1, 5, 0, 3, 4, 2, 5, 3, 4, 0] {
            active[changed] = !active[changed];
            let next = share_out(&now, &active);
            let servers = active.iter().filter(|&&active| active).count();
            for (slot, &is_active) in active.iter().enumerate() {
                let share = next.iter().filter(|owner| **owner == Some(slot)).count();
                let wanted = match is_active {
                    true => 10 / servers..=10usize.div_ceil(servers),
                    false => 0..=0,
                };
                assert!(wanted.contains(&share), "{next:?}");
            }
            assert_eq!(next.contains(&None), servers == 0);
            let moved = (0..10).filter(|&i| now[i].is_some() && now[i] != next[i]);
            let most = if active[changed] {
                10usize.div_ceil(servers)
            } else {
                now.iter().filter(|owner| **owner == Some(changed)).count()
            };
            // A share may also be rounded the other way.
            assert!(moved.count() <= most + servers, "{now:?} {next:?}");
            now = next;
        }
    }
}
