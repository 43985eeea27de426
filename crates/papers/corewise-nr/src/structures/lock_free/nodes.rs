//! Nodes of the lock-free skip list, and the memory that they come from.
//!
//! A *shard* counts and lists the nodes that some of the threads have allocated, so that threads do
//! not meet on one counter.

use std::ptr;

use corewise_atomic::cell::DataCell;
use corewise_atomic::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use corewise_atomic::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize};
use corewise_atomic::{CachePadded, Slots, mutant, ordering};

use crate::discard::Drops;

/// Levels of a list; half of the nodes of a level are also on the next one.
pub(super) const LEVELS: usize = if cfg!(any(corewise_loom, corewise_shuttle)) {
    2
} else {
    24
};
/// Levels whose links lie in the node itself. One node in 16 has more.
const INLINE: usize = if cfg!(any(corewise_loom, corewise_shuttle)) {
    2
} else {
    4
};
const SHARDS: usize = if cfg!(any(corewise_loom, corewise_shuttle)) {
    1
} else {
    64
};
/// Nodes that a shard takes from the budget at once.
const LEASE: usize = 64;

/// A budget from which single nodes are taken.
const SMALL: usize = SHARDS * LEASE;

/// The bit of a link that marks the node in which the link is as removed from the link's level.
const MARK: usize = 1;

/// A link with its mark. The node may be null: the end of the level.
pub(super) struct Link<K, V>(*mut Node<K, V>);

impl<K, V> Clone for Link<K, V> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K, V> Copy for Link<K, V> {}

impl<K, V> PartialEq for Link<K, V> {
    fn eq(&self, other: &Self) -> bool {
        ptr::eq(self.0, other.0)
    }
}

impl<K, V> Link<K, V> {
    pub(super) const NULL: Self = Self(ptr::null_mut());

    /// Without the mark.
    pub(super) fn to(node: *mut Node<K, V>) -> Self {
        Self(node)
    }

    pub(super) fn is_marked(self) -> bool {
        self.0.addr() & MARK != 0
    }

    pub(super) fn marked(self) -> Self {
        Self(self.0.map_addr(|address| address | MARK))
    }

    pub(super) fn unmarked(self) -> Self {
        Self(self.0.map_addr(|address| address & !MARK))
    }

    pub(super) fn node(self) -> *mut Node<K, V> {
        self.unmarked().0
    }
}

/// The links of a node, or of the head.
pub(super) struct Tower<K, V> {
    low: [AtomicPtr<Node<K, V>>; INLINE],
    high: Slots<AtomicPtr<Node<K, V>>>,
    height: usize,
}

impl<K, V> Tower<K, V> {
    pub(super) fn new(height: usize) -> Self {
        Self {
            low: std::array::from_fn(|_| AtomicPtr::new(ptr::null_mut())),
            high: Slots::from_fn(height.saturating_sub(INLINE), |_| {
                AtomicPtr::new(ptr::null_mut())
            }),
            height,
        }
    }

    pub(super) fn height(&self) -> usize {
        self.height
    }

    #[inline]
    fn place(&self, level: usize) -> &AtomicPtr<Node<K, V>> {
        if level < INLINE {
            &self.low[level]
        } else {
            &self.high[level - INLINE]
        }
    }

    /// Loads a link; see the orderings in the parent module.
    #[inline]
    pub(super) fn load(&self, level: usize) -> Link<K, V> {
        // SeqCst: pairs with the exchange that published the node, and guarantee 1 of the parent.
        let order = ordering!(SeqCst, "list_relaxed_load");
        Link(self.place(level).load(order))
    }

    /// Replaces a link; `Err` if another thread was faster.
    #[inline]
    pub(super) fn exchange(
        &self,
        level: usize,
        old: Link<K, V>,
        new: Link<K, V>,
    ) -> Result<(), ()> {
        // SeqCst: publishes what the link leads to; pairs with `load`, and guarantee 1 of the
        // parent.
        let order = ordering!(SeqCst, "list_relaxed_publication");
        // Relaxed on failure: the caller searches again.
        let exchanged = self
            .place(level)
            .compare_exchange(old.0, new.0, order, Relaxed);
        exchanged.map(drop).map_err(drop)
    }

    /// Sets a link of a node that no other thread knows.
    pub(super) fn set(&self, level: usize, link: Link<K, V>) {
        // Relaxed: the exchange that publishes the node orders it.
        self.place(level).store(link.0, Relaxed);
    }
}

pub(super) struct Node<K, V> {
    pub(super) key: K,
    pub(super) value: DataCell<V>,
    pub(super) tower: Tower<K, V>,
    /// The node of the same shard that was published before.
    older: AtomicPtr<Node<K, V>>,
}

struct Shard<K, V> {
    /// Nodes that may be allocated without asking the budget.
    left: AtomicUsize,
    /// The state of a generator of random numbers, and the source of unique numbers.
    calls: AtomicU64,
    /// Exchanges of links that found another value.
    failed: AtomicU64,
    /// The node that was published last.
    newest: AtomicPtr<Node<K, V>>,
}

/// Allocates nodes within a limit, and frees them when it is dropped.
pub(super) struct Nodes<K, V> {
    /// What no shard has taken yet.
    budget: CachePadded<AtomicUsize>,
    shards: Slots<CachePadded<Shard<K, V>>>,
}

/// The number of the thread's shard.
fn shard_of_this_thread() -> usize {
    #[cfg(not(any(corewise_loom, corewise_shuttle)))]
    {
        corewise_atomic::static_cell! {
            static THREADS: AtomicUsize = const { AtomicUsize::new(0) };
        }
        corewise_atomic::thread_local! {
            // Relaxed: any number will do.
            static SHARD: usize = THREADS.fetch_add(1, Relaxed) % SHARDS;
        }
        // While the thread ends, the first shard.
        SHARD.try_with(|shard| *shard).unwrap_or(0)
    }
    #[cfg(any(corewise_loom, corewise_shuttle))]
    {
        0
    }
}

/// A node that no other thread knows. Dropping it frees it, and returns it to the budget.
pub(super) struct Unpublished<'a, K, V> {
    node: *mut Node<K, V>,
    shard: &'a Shard<K, V>,
}

impl<K, V> Unpublished<'_, K, V> {
    pub(super) fn node(&self) -> &Node<K, V> {
        // SAFETY: allocated by `Nodes::allocate`, and freed only by `drop`.
        unsafe { &*self.node }
    }

    pub(super) fn pointer(&self) -> *mut Node<K, V> {
        self.node
    }

    /// Hands the node to the list: it is freed with the [`Nodes`]. Returns it.
    pub(super) fn published(self) -> *mut Node<K, V> {
        let node = self.node().older_link();
        let mut newest = self.shard.newest.load(Relaxed); // Relaxed: only compared.
        loop {
            // Relaxed: read when the list is dropped, which the owner has ordered.
            node.store(newest, Relaxed);
            // Release: pairs with the owner's exclusive access in `Nodes::drop`, through whatever
            // gave the owner the access. Relaxed on failure: only compared.
            let exchanged = self
                .shard
                .newest
                .compare_exchange_weak(newest, self.node, Release, Relaxed);
            match exchanged {
                Ok(_) => break,
                Err(found) => newest = found,
            }
        }
        let node = self.node;
        std::mem::forget(self);
        node
    }
}

impl<K, V> Node<K, V> {
    fn older_link(&self) -> &AtomicPtr<Self> {
        &self.older
    }
}

impl<K, V> Drop for Unpublished<'_, K, V> {
    fn drop(&mut self) {
        // Relaxed: a counter.
        self.shard.left.fetch_add(1, Relaxed);
        // SAFETY: from `Box::into_raw` in `allocate`; no other thread knows it, and `published`
        // does not drop.
        drop(unsafe { Box::from_raw(self.node) });
    }
}

impl<K, V> Nodes<K, V> {
    pub(super) fn with_limit(limit: usize) -> Self {
        Self {
            budget: CachePadded::new(AtomicUsize::new(limit)),
            shards: Slots::from_fn(SHARDS, |_| {
                CachePadded::new(Shard {
                    left: AtomicUsize::new(0),
                    calls: AtomicU64::new(0),
                    failed: AtomicU64::new(0),
                    newest: AtomicPtr::new(ptr::null_mut()),
                })
            }),
        }
    }

    /// A number that no other call returns (before 2^58 calls).
    pub(super) fn unique(&self) -> u64 {
        let shard = shard_of_this_thread();
        // Relaxed: a counter.
        let call = self.shards[shard].calls.fetch_add(1, Relaxed);
        call * SHARDS as u64 + shard as u64
    }

    /// Counts an exchange that failed, and returns the result of any.
    #[inline]
    pub(super) fn counted<T, E>(&self, exchanged: Result<T, E>) -> Result<T, E> {
        // The model checkers would try all orders of counts.
        if exchanged.is_err() && !cfg!(any(corewise_loom, corewise_shuttle)) {
            // Relaxed: a counter.
            self.shards[shard_of_this_thread()]
                .failed
                .fetch_add(1, Relaxed);
        }
        exchanged
    }

    /// The exchanges that failed.
    pub(super) fn failed(&self) -> u64 {
        // Relaxed: counters.
        self.shards
            .iter()
            .map(|shard| shard.failed.load(Relaxed))
            .sum()
    }

    /// A height, `h` with probability 2^-h.
    pub(super) fn random_height(&self) -> usize {
        // SplitMix64 (Steele, Lea, Flood 2014) of a counter.
        let mut bits = (self.unique() + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^= bits >> 31;
        (bits.trailing_zeros() as usize + 1).min(LEVELS)
    }

    /// `None` if the limit is reached; gives key and value back.
    pub(super) fn allocate(&self, key: K, value: V) -> Result<Unpublished<'_, K, V>, (K, V)> {
        let shard = &*self.shards[shard_of_this_thread()];
        if !self.take_one(shard) {
            return Err((key, value));
        }
        let node = Box::new(Node {
            key,
            value: DataCell::new(value),
            tower: Tower::new(self.random_height()),
            older: AtomicPtr::new(ptr::null_mut()),
        });
        let node = Box::into_raw(node);
        Ok(Unpublished { node, shard })
    }

    /// Takes the right to allocate a node: from the shard, the budget, or any other shard.
    fn take_one(&self, shard: &Shard<K, V>) -> bool {
        let one = |_| 1;
        // A lease is in no counter until it is added to the shard. So a small budget is not leased,
        // because another thread would find nothing left.
        let lease = |left: usize| match left {
            0..=SMALL if mutant!("list_leases_a_small_budget") => left,
            0..=SMALL => 1,
            _ => LEASE,
        };
        if take(&shard.left, one) == 1 {
            return true;
        }
        let taken = take(&self.budget, lease);
        if taken > 1 {
            // Relaxed: a counter.
            shard.left.fetch_add(taken - 1, Relaxed);
        }
        taken > 0 || self.shards.iter().any(|other| take(&other.left, one) == 1)
    }
}

/// Takes the wanted part of what is left in a counter, if something is.
fn take(counter: &AtomicUsize, wanted: impl Fn(usize) -> usize) -> usize {
    let mut left = counter.load(Relaxed); // Relaxed: a counter.
    while left > 0 {
        let taken = wanted(left);
        // Relaxed: a counter.
        match counter.compare_exchange_weak(left, left - taken, Relaxed, Relaxed) {
            Ok(_) => return taken,
            Err(found) => left = found,
        }
    }
    0
}

impl<K, V> Drop for Nodes<K, V> {
    fn drop(&mut self) {
        let mut drops = Drops::default();
        for shard in self.shards.iter() {
            // Acquire: pairs with the Release in `published`.
            let mut node = shard.newest.load(Acquire);
            while !node.is_null() {
                // SAFETY: from `Box::into_raw`; each published node is in the list of one shard
                // once, and `&mut self` shows that no other thread uses it.
                let node_box = unsafe { Box::from_raw(node) };
                node = node_box.older.load(Relaxed); // Relaxed: ordered by the Acquire above.
                drops.drop(node_box);
            }
        }
        drops.finish();
    }
}
