//! A partition with its lanes, and who serves it.
//!
//! # Hand-off
//!
//! The owner word names the thread that serves the partition: a server, or a client that helps
//! itself because there is no server. A thread claims the partition by changing the word from
//! nobody to itself, and gives it up by changing it back. A partition moves together with the
//! server's ends of all its lanes, so clients send on without noticing, and no message is ever
//! with the wrong server.
//!
//! ```text
//!   registry: desired = B        A, at its next poll             B, at its next poll
//!   ───────────────────▶  desired ≠ A: owner = nobody, ───────▶  desired = B, owner = nobody:
//!                         wakes B                                owner = B, serves
//! ```
//!
//! 1. *Exclusion.* Between a claim and the release no other thread touches partition or lanes, and
//!    everything before a release happens before everything after the next claim.
//! 2. *No lost claim.* If B finds the partition owned, its owner sees after its release that B
//!    wants it, and wakes B.
//!
//! # Sleep
//!
//! A server that wants to sleep sets `asleep` of its partitions, issues a heavy barrier, and looks
//! at all its lanes again. A client that has sent something issues a light barrier and looks at
//! `asleep`. So either the server sees the message, or the client sees that it must wake the
//! server.

use corewise_atomic::cell::DataCell;
use corewise_atomic::lock::Mutex;
use corewise_atomic::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use corewise_atomic::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, fence};
use corewise_atomic::{CachePadded, mutant, ordering};

use super::lane::{Lane, Life};
use crate::config::ConfigError;
use crate::partition::{Partition, Settings, Stats};

/// Who serves a partition: an owner word that is not zero.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct OwnerId(usize);

impl OwnerId {
    /// A client that helps itself.
    pub(super) const HELPER: Self = Self(usize::MAX);

    pub(super) fn server(slot: usize) -> Self {
        Self(slot + 1)
    }

    /// The server's slot.
    fn slot_of(word: usize) -> Option<usize> {
        (word != 0 && word != Self::HELPER.0).then(|| word - 1)
    }
}

const NOBODY: usize = 0;

pub(super) struct Shard {
    /// Read by clients at every flush, written when a server sleeps or wakes.
    asleep: CachePadded<AtomicBool>,
    owner: AtomicUsize,
    desired: AtomicUsize,
    /// Set when `inbox` or `budget` has changed, or a client has left.
    news: AtomicBool,
    /// Lanes of new clients.
    inbox: Mutex<Vec<Lane>>,
    budget: AtomicUsize,
    published: CachePadded<Published>,
    served: CachePadded<DataCell<Served>>,
}

/// What only the owner touches.
struct Served {
    partition: Partition,
    lanes: Vec<Lane>,
    /// Whether the statistics have changed without a message.
    has_changed: bool,
}

// SAFETY: `served` is used by the owner only, and may be sent.
unsafe impl Sync for Shard {}

impl Shard {
    pub(super) fn new(settings: &Settings) -> Result<Self, ConfigError> {
        let served = Served {
            partition: Partition::new(settings)?,
            lanes: Vec::new(),
            has_changed: false,
        };
        let published = Published::default();
        published.publish(served.partition.stats());
        Ok(Self {
            asleep: CachePadded::new(AtomicBool::new(false)),
            owner: AtomicUsize::new(NOBODY),
            desired: AtomicUsize::new(NOBODY),
            news: AtomicBool::new(false),
            inbox: Mutex::new(Vec::new()),
            budget: AtomicUsize::new(settings.budget),
            published: CachePadded::new(published),
            served: CachePadded::new(DataCell::new(served)),
        })
    }

    /// Takes the partition if nobody serves it.
    pub(super) fn claim(&self, me: OwnerId) -> bool {
        // Relaxed: a guess.
        if self.owner.load(Relaxed) != NOBODY {
            return false;
        }
        // Acquire: pairs with the Release in `release`. Relaxed on failure: nothing is read.
        let claim = ordering!(Acquire, "handoff_relaxed_claim");
        self.owner
            .compare_exchange(NOBODY, me.0, claim, Relaxed)
            .is_ok()
    }

    /// Gives the partition up. Returns the server that wants it.
    ///
    /// # Safety
    ///
    /// 1. The caller has claimed the partition and does not use it afterwards.
    pub(super) unsafe fn release(&self) -> Option<usize> {
        // Relaxed: cleared for the next owner, whom the store below tells.
        self.asleep.store(false, Relaxed);
        // Release: pairs with the claim of the next owner.
        let release = ordering!(Release, "handoff_relaxed_release");
        self.owner.store(NOBODY, release);
        // SeqCst: pairs with the fence in `set_desired`, which happens before the claim of the
        // server that is named there. So either this load sees the name, or that claim sees that
        // the partition is free.
        if !mutant!("handoff_without_fence") {
            fence(SeqCst);
        }
        // Relaxed: ordered by the fence.
        OwnerId::slot_of(self.desired.load(Relaxed))
    }

    /// The server that should own the partition, if any.
    pub(super) fn desired(&self) -> Option<usize> {
        // Relaxed: who acts on it synchronizes by claiming.
        OwnerId::slot_of(self.desired.load(Relaxed))
    }

    /// Names the server that should own the partition. Called under the registry's lock.
    pub(super) fn set_desired(&self, slot: Option<usize>) {
        let word = slot.map_or(NOBODY, |slot| OwnerId::server(slot).0);
        // Relaxed: followed by a fence.
        self.desired.store(word, Relaxed);
        // SeqCst: pairs with the fence in `release`.
        fence(SeqCst);
    }

    /// The server to wake for a message: the owner, or the one that should be.
    pub(super) fn server(&self) -> Option<usize> {
        // Relaxed: a server that takes over looks at all lanes by itself.
        OwnerId::slot_of(self.owner.load(Relaxed)).or_else(|| self.desired())
    }

    /// Whether nobody serves the partition at the moment.
    pub(super) fn is_free(&self) -> bool {
        // Relaxed: a hint; claiming decides.
        self.owner.load(Relaxed) == NOBODY
    }

    /// Whether nobody serves the partition, and no server is going to.
    pub(super) fn is_abandoned(&self) -> bool {
        // Relaxed: a hint; claiming decides.
        self.owner.load(Relaxed) == NOBODY && self.desired.load(Relaxed) == NOBODY
    }

    /// Owner: whether no server is going to serve the partition next.
    pub(super) fn is_left(&self) -> bool {
        self.desired().is_none()
    }

    /// Client: whether the server must be woken after a message was sent. True for one of the
    /// clients that ask.
    #[inline]
    pub(super) fn must_wake(&self) -> bool {
        corewise_atomic::barrier::light();
        // Relaxed: ordered by the barrier, which pairs with the one in
        // `PartitionServer::may_sleep`.
        self.asleep.load(Relaxed) && self.asleep.swap(false, Relaxed)
    }

    /// Owner: announces that it is about to sleep, or that it is awake.
    pub(super) fn set_asleep(&self, asleep: bool) {
        // Relaxed: ordered by the barrier in `PartitionServer::may_sleep`.
        self.asleep.store(asleep, Relaxed);
    }

    /// Adds a lane.
    pub(super) fn connect(&self, lane: Lane) {
        self.inbox.lock().push(lane);
        self.publish_news();
    }

    /// Asks the owner to change the partition's budget.
    pub(super) fn set_budget(&self, bytes: usize) {
        // Relaxed: published below.
        self.budget.store(bytes, Relaxed);
        self.publish_news();
    }

    /// Whether there is news. Ordered by the fence in `release`, after a release.
    pub(super) fn has_news(&self) -> bool {
        // Relaxed: ordered by the fence.
        self.news.load(Relaxed)
    }

    /// Client: says that it has left, so that another client that serves the partition at the
    /// moment looks again.
    pub(super) fn leave(&self) {
        if mutant!("leave_without_news") {
            return;
        }
        self.publish_news();
        // SeqCst: pairs with the fence in `release`. Either the other client sees the news after
        // its release, or our claim, which follows, succeeds.
        fence(SeqCst);
    }

    /// Announces that there is news.
    fn publish_news(&self) {
        // Release: pairs with the Acquire in `read_news`. A read-modify-write, because a plain
        // store would end the release sequences of news that were not read yet.
        self.news.swap(true, Release);
    }

    pub(super) fn stats(&self) -> Stats {
        self.published.read()
    }

    /// Executes what clients have sent, and returns the number of messages.
    ///
    /// # Safety
    ///
    /// 1. The caller has claimed the partition.
    #[inline]
    pub(super) unsafe fn serve(&self) -> usize {
        self.served.with_mut(|served| {
            // SAFETY: only the owner gets here (1).
            let served = unsafe { &mut *served };
            // Relaxed: a hint; `read_news` synchronizes.
            if self.news.load(Relaxed) {
                self.read_news(served);
            }
            let count = served.serve();
            if count > 0 || std::mem::take(&mut served.has_changed) {
                self.published.publish(served.partition.stats());
            }
            count
        })
    }

    #[cold]
    fn read_news(&self, served: &mut Served) {
        // Acquire: pairs with the Release in `tell`. News that come later set it again.
        self.news.swap(false, Acquire);
        served.lanes.append(&mut self.inbox.lock());
        // Relaxed: ordered by the swap.
        let budget = self.budget.load(Relaxed);
        if budget as u64 != served.partition.stats().budget_bytes {
            served.partition.set_budget(budget);
            self.published.publish(served.partition.stats());
        }
    }

    /// Whether something waits to be served.
    ///
    /// # Safety
    ///
    /// 1. The caller has claimed the partition.
    pub(super) unsafe fn has_requests(&self) -> bool {
        // Relaxed: ordered by the barrier in `PartitionServer::may_sleep`.
        let has_news = self.news.load(Relaxed);
        has_news
            || self.served.with(|served| {
                // SAFETY: only the owner gets here (1).
                let lanes = unsafe { &(*served).lanes };
                lanes.iter().any(Lane::has_requests)
            })
    }
}

/// For servers that are clients, too.
impl Shard {
    /// Calls `body` with the partition.
    ///
    /// # Safety
    ///
    /// 1. The caller has claimed the partition, and does not serve it at the moment.
    #[inline]
    pub(super) unsafe fn with_partition<R>(&self, body: impl FnOnce(&mut Partition) -> R) -> R {
        self.served.with_mut(|served| {
            // SAFETY: only the owner gets here (1).
            let served = unsafe { &mut *served };
            served.has_changed = true;
            body(&mut served.partition)
        })
    }
}

impl Drop for Shard {
    /// Ends the lanes of clients that left when nobody served the partition. No client is left.
    fn drop(&mut self) {
        // SAFETY: the exclusive borrow stands for a claim.
        unsafe { self.serve() };
    }
}

impl Served {
    #[inline]
    fn serve(&mut self) -> usize {
        let mut count = 0;
        let mut index = 0;
        while let Some(lane) = self.lanes.get_mut(index) {
            match lane.serve(&mut self.partition, &mut count) {
                Life::Open => index += 1,
                Life::Over => drop(self.lanes.swap_remove(index)),
            }
        }
        count
    }
}

/// The last statistics, for threads that do not own the partition.
#[derive(Default)]
struct Published([AtomicU64; 7]);

impl Published {
    fn publish(&self, stats: Stats) {
        let Stats {
            elements,
            used_bytes,
            held_bytes,
            budget_bytes,
            hits,
            misses,
            evictions,
        } = stats;
        let numbers = [
            elements,
            used_bytes,
            held_bytes,
            budget_bytes,
            hits,
            misses,
            evictions,
        ];
        for (place, number) in self.0.iter().zip(numbers) {
            // Relaxed: each number stands for itself.
            place.store(number, Relaxed);
        }
    }

    fn read(&self) -> Stats {
        // Relaxed: each number stands for itself.
        let number = |index: usize| self.0[index].load(Relaxed);
        Stats {
            elements: number(0),
            used_bytes: number(1),
            held_bytes: number(2),
            budget_bytes: number(3),
            hits: number(4),
            misses: number(5),
            evictions: number(6),
        }
    }
}
