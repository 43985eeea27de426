//! A table of chains, and the interface of a variant of its updates to it: the lock-based one is
//! here, the lock-free one in `corewise-maps-lab`.

use std::marker::PhantomData;
use std::ops::Range;
use std::ptr;

use corewise_atomic::sync::Arc;
use corewise_atomic::{CachePadded, hint};

use super::bucket::{Bucket, BucketState, SLOTS};
use super::overflow::{Overflow, SpareBucket};
use crate::copy_map::memory_budget::{Heads, MemoryBudget};
use crate::copy_map::{
    EntryChange, Full, HeldBucket, Moved, Moving, NoMemory, Put, Table, TableVersion,
};
use crate::word::{Raw, Word, WordKey};

/// The table grows when one bucket in `OVERFLOWING` has overflowed.
const OVERFLOWING: usize = 8;

/// How concurrent updates of a chain are synchronized. `head` is the first bucket of the chain; an
/// operation that returns [`Moved`] must continue in the successor.
///
/// # Safety
///
/// 1. An operation returns values only that were in the chain.
/// 2. 2 of [`Table`] holds for the operations of a chain.
pub unsafe trait ClhtVariant: Sized + 'static {
    /// The state of a bucket.
    type State: BucketState;
    /// A chain whose updates are blocked until this is dropped.
    type Stopped<'b>: HeldBucket<(Raw, Raw)>;
    /// The maximum number of overflow buckets in a chain.
    const LONGEST: usize;

    /// Inserts a pair. If the key is present, replaces its value or, without `replace`, changes
    /// nothing.
    ///
    /// # Safety
    ///
    /// 1. `memory` is that of the chain's table.
    unsafe fn put(
        head: &Bucket<Self::State>,
        memory: &mut SpareMemory<'_, Self::State>,
        pair: (Raw, Raw),
        replace: bool,
    ) -> Result<Result<Put<Raw>, Full>, Moved>;

    /// Removes a key and returns its value. Writes nothing if the key is absent.
    fn remove(head: &Bucket<Self::State>, key: Raw) -> Result<Option<Raw>, Moved>;

    /// Keeps, replaces or removes an entry, as described for [`Table::change`].
    fn change(
        head: &Bucket<Self::State>,
        key: Raw,
        decide: impl FnMut(Raw) -> EntryChange<Raw>,
    ) -> Result<Option<(Raw, EntryChange<Raw>)>, Moved>;

    /// Blocks the updates of a chain. `None` if another thread has done so, or for no reason.
    fn try_stop(head: &Bucket<Self::State>) -> Result<Option<Self::Stopped<'_>>, Moved>;

    /// Blocks the updates of a chain that no other thread moves.
    fn stop(head: &Bucket<Self::State>) -> Self::Stopped<'_>;
}

/// The source of overflow buckets for an insertion.
pub struct SpareMemory<'t, S: BucketState> {
    overflow: &'t Overflow<S>,
    spare: Option<SpareBucket<'t, S>>,
}

impl<'t, S: BucketState> SpareMemory<'t, S> {
    /// Ensures that [`take`](Self::take) returns a bucket.
    pub fn reserve(&mut self) -> Result<(), Full> {
        if self.spare.is_none() {
            self.spare = Some(self.overflow.spare().ok_or(Full)?);
        }
        Ok(())
    }

    /// Takes the reserved bucket.
    pub fn take(&mut self) -> Option<SpareBucket<'t, S>> {
        self.spare.take()
    }

    /// Puts back a bucket that was taken and not needed.
    pub fn give_back(&mut self, spare: SpareBucket<'t, S>) {
        self.spare = Some(spare);
    }
}

/// The table of each variant: an array of chains.
pub struct ClhtTable<F: ClhtVariant, K, V> {
    heads: Heads<Bucket<F::State>>,
    budget: Arc<MemoryBudget>,
    overflow: CachePadded<Overflow<F::State>>,
    // Any thread may have the words, see `Word`.
    _words: PhantomData<fn() -> (K, V)>,
}

impl<F: ClhtVariant, K: WordKey, V: Word> ClhtTable<F, K, V> {
    #[inline(always)]
    fn mask(&self) -> u64 {
        self.heads.len() as u64 - 1
    }

    /// The first bucket of a hash's chain.
    #[inline(always)]
    fn head(&self, hash: u64) -> &Bucket<F::State> {
        let index = (hash & self.mask()) as usize;
        // SAFETY: the number of buckets is a power of two, and the mask keeps the index below it.
        unsafe { self.heads.get_unchecked(index) }
    }

    /// The first buckets of all chains.
    #[cfg(any(test, feature = "raw"))]
    pub fn heads(&self) -> &[Bucket<F::State>] {
        &self.heads
    }

    /// # Safety
    ///
    /// 1. The word is a key of a table of this type.
    #[inline(always)]
    unsafe fn key(key: Raw) -> K {
        // SAFETY: the word is a key of a table of this type, which contains only words of such
        // keys, by 1.
        unsafe { K::from_raw(key) }
    }

    /// # Safety
    ///
    /// 1. The word is a value of a table of this type.
    #[inline(always)]
    unsafe fn value(value: Raw) -> V {
        // SAFETY: the word is a value of a table of this type, which contains only words of such
        // values, by 1.
        unsafe { V::from_raw(value) }
    }

    /// # Safety
    ///
    /// 1. No other thread can reach the buckets of the entries.
    unsafe fn give_up(&self, entries: &[Moving<(Raw, Raw)>]) -> NoMemory {
        let filled = entries.iter().map(|entry| &self.heads[entry.bucket]);
        // SAFETY: no other thread can reach the buckets of the entries, by 1.
        filled.for_each(|bucket| unsafe { bucket.wipe() });
        NoMemory
    }
}

// SAFETY: the operations of a chain return and change values as a table must, by the contract of
// `ClhtVariant`, and the Acquire load of a state shows what was written before an entry was
// announced (1, 2). `for_each_in` reads every slot of the chain (3). The buckets of the arrays are
// atomics (4).
unsafe impl<F: ClhtVariant, K: WordKey, V: Word> Table for ClhtTable<F, K, V> {
    type Key = K;
    type Value = V;
    type Entry = (Raw, Raw);
    type HeldBucket<'t>
        = F::Stopped<'t>
    where
        Self: 't;

    const FEWEST_BUCKETS: usize = 16;
    const SHARE: usize = 8;

    fn buckets_for(entries: usize) -> usize {
        // Half of the slots are used: then one bucket of 15 overflows.
        entries / SLOTS * 2 + 2
    }

    fn try_new(buckets: usize, budget: &Arc<MemoryBudget>) -> Option<Self> {
        assert!(buckets.is_power_of_two());
        let bytes = Heads::<Bucket<F::State>>::bytes(buckets);
        if !budget.take(bytes) {
            return None;
        }
        let Some(heads) = Heads::try_new(buckets) else {
            budget.give(bytes);
            return None;
        };
        Some(Self {
            heads,
            budget: budget.clone(),
            overflow: CachePadded::new(Overflow::new(buckets, budget)),
            _words: PhantomData,
        })
    }

    #[inline(always)]
    fn buckets(&self) -> usize {
        self.heads.len()
    }

    #[inline]
    fn get(at: &TableVersion<Self>, hash: u64, key: &K) -> Option<V> {
        let value = at.follow(|table| table.head(hash).look_up(key.into_raw()));
        // SAFETY: the value was found in a table of this type (1).
        value.map(|value| unsafe { Self::value(value) })
    }

    #[inline(always)]
    fn prefetch(&self, hash: u64) {
        hint::prefetch(self.head(hash));
    }

    #[inline(always)]
    fn prefetch_more(&self, hash: u64) {
        self.head(hash).prefetch_next();
    }

    fn put(
        at: &TableVersion<Self>,
        hash: u64,
        key: K,
        value: V,
        replace: bool,
    ) -> Result<Put<V>, Full> {
        let pair = (key.into_raw(), value.into_raw());
        let put = at.follow(|table| {
            let head = table.head(hash);
            if !replace && let Some(there) = head.look_up(pair.0)? {
                return Ok(Ok(Put::There(there)));
            }
            let mut memory = SpareMemory {
                overflow: &table.overflow,
                spare: None,
            };
            // SAFETY: the memory and the chain are those of the same table (1).
            unsafe { F::put(head, &mut memory, pair, replace) }
        });
        Ok(match put? {
            Put::New { crowded } => Put::New { crowded },
            // SAFETY: the value was found in a table of this type (1).
            Put::There(there) => Put::There(unsafe { Self::value(there) }),
        })
    }

    fn remove(at: &TableVersion<Self>, hash: u64, key: &K) -> Option<V> {
        let value = at.follow(|table| F::remove(table.head(hash), key.into_raw()));
        // SAFETY: the value was found in a table of this type (1).
        value.map(|value| unsafe { Self::value(value) })
    }

    fn change(
        at: &TableVersion<Self>,
        hash: u64,
        key: &K,
        mut decide: impl FnMut(V) -> EntryChange<V>,
    ) -> Option<(V, EntryChange<V>)> {
        let mut last = None;
        // `decide` is not called again for the same value, in a successor neither.
        let mut decide = |old| match last {
            Some((decided, change)) if decided == old => change,
            _ => {
                // SAFETY: the value was found in a table of this type (1).
                let change = decide(unsafe { Self::value(old) }).map(V::into_raw);
                last = Some((old, change));
                change
            }
        };
        let (old, change) =
            at.follow(|table| F::change(table.head(hash), key.into_raw(), &mut decide))?;
        // SAFETY: both values are of a table of this type: one was found there, the other inserted
        // (1).
        let value = |raw| unsafe { Self::value(raw) };
        Some((value(old), change.map(value)))
    }

    fn for_each_in(&self, bucket: usize, mut each: impl FnMut((Raw, Raw))) -> Result<(), Moved> {
        self.heads[bucket].for_each(|key, value| each((key, value)))
    }

    unsafe fn pair(&(key, value): &(Raw, Raw)) -> (K, V) {
        // SAFETY: the entry is one of a table of this type, by the contract of `Table::pair`.
        unsafe { (Self::key(key), Self::value(value)) }
    }

    unsafe fn home_of(&(key, _): &(Raw, Raw), hash_of: &impl Fn(&K) -> u64) -> u64 {
        // SAFETY: the entry is one of a table of this type, by the contract of `Table::home_of`.
        hash_of(&unsafe { Self::key(key) })
    }

    fn try_hold(&self, bucket: usize) -> Result<Option<F::Stopped<'_>>, Moved> {
        F::try_stop(&self.heads[bucket])
    }

    fn hold(&self, bucket: usize) -> F::Stopped<'_> {
        F::stop(&self.heads[bucket])
    }

    unsafe fn take_in(&self, entries: &mut [Moving<(Raw, Raw)>]) -> Result<(), NoMemory> {
        entries.sort_unstable_by_key(|entry| entry.bucket);
        for child in entries.chunk_by(|one, other| one.bucket == other.bucket) {
            let mut tail = &self.heads[child[0].bucket];
            if (child.len() - 1) / SLOTS > F::LONGEST {
                // SAFETY: no other thread can reach these buckets, by the contract of
                // `Table::take_in`.
                return Err(unsafe { self.give_up(entries) });
            }
            for Moving {
                entry: (key, value),
                ..
            } in child
            {
                let spare = || self.overflow.spare();
                // SAFETY: no other thread can reach these buckets, by the contract of
                // `Table::take_in` (1). The spare buckets are this table's, as the chain is (2).
                let Some(bucket) = (unsafe { Bucket::fill(tail, *key, *value, spare) }) else {
                    // SAFETY: no other thread can reach these buckets, by the contract of
                    // `Table::take_in`.
                    return Err(unsafe { self.give_up(entries) });
                };
                tail = bucket;
            }
        }
        Ok(())
    }

    unsafe fn wipe(&self, bucket: usize) {
        // SAFETY: no other thread can reach the bucket's entries, by the contract of `Table::wipe`.
        unsafe { self.heads[bucket].wipe() };
    }

    fn arrays(&self) -> [Range<*const u8>; 2] {
        [self.heads.range(), ptr::null()..ptr::null()]
    }

    unsafe fn free_share(&mut self) -> bool {
        // SAFETY: the caller only calls this and drops the table from now on, by the contract of
        // `Table::free_share`.
        unsafe { self.overflow.free_share() }
    }

    fn is_crowded(&self, entries: usize) -> bool {
        self.overflow.linked() * OVERFLOWING > self.heads.len() && entries >= self.heads.len()
    }
}

impl<F: ClhtVariant, K, V> Drop for ClhtTable<F, K, V> {
    fn drop(&mut self) {
        let bytes = Heads::<Bucket<F::State>>::bytes(self.heads.len());
        self.budget.give(bytes);
    }
}
