//! A table of chains, and what the two forms have to say of theirs.

use std::marker::PhantomData;
use std::ops::Range;
use std::ptr;

use corewise_atomic::sync::Arc;
use corewise_atomic::{CachePadded, hint};

use super::bucket::{Bucket, SLOTS, State};
use super::overflow::{Overflow, Spare};
use crate::copy_map::space::{Heads, Space};
use crate::copy_map::{Full, Held, Moved, Moving, NoMemory, Put, Stage, Table};
use crate::word::{Raw, Word, WordKey};

/// The table is doubled when one bucket of so many has overflowed.
const OVERFLOWING: usize = 8;

/// How the updates of a chain go on beside each other. `head` is its first bucket; who meets [`Moved`] goes on in
/// the successor.
pub trait Form: Sized + 'static {
    type State: State;
    /// A chain that nobody updates until this is dropped.
    type Stopped<'b>: Held<(Raw, Raw)>;
    /// The most buckets that overflow in a chain.
    const LONGEST: usize;

    /// Puts a pair in; if the key is there, replaces its value or, without `replace`, changes nothing.
    fn put(
        head: &Bucket<Self::State>,
        memory: &mut Memory<'_, Self::State>,
        pair: (Raw, Raw),
        replace: bool,
    ) -> Result<Result<Put<Raw>, Full>, Moved>;

    /// Removes a key; its value. Writes nothing if it is not there.
    fn remove(head: &Bucket<Self::State>, key: Raw) -> Result<Option<Raw>, Moved>;

    /// Replaces a value by what `new` makes of it, as [`Table::update`] says.
    fn update(
        head: &Bucket<Self::State>,
        key: Raw,
        new: impl FnMut(Raw) -> Raw,
    ) -> Result<Option<Raw>, Moved>;

    /// Stops the updates of a chain, unless somebody else has, or it was moved.
    fn try_stop(head: &Bucket<Self::State>) -> Option<Self::Stopped<'_>>;

    /// Stops the updates of a chain that nobody else moves.
    fn stop(head: &Bucket<Self::State>) -> Self::Stopped<'_>;
}

/// Where a chain gets another bucket from.
pub struct Memory<'t, S: State> {
    overflow: &'t Overflow<S>,
    spare: Option<Spare<'t, S>>,
}

impl<'t, S: State> Memory<'t, S> {
    /// Sees to it that [`take`](Self::take) has one.
    pub(super) fn reserve(&mut self) -> Result<(), Full> {
        if self.spare.is_none() {
            self.spare = Some(self.overflow.spare().ok_or(Full)?);
        }
        Ok(())
    }

    pub(super) fn take(&mut self) -> Option<Spare<'t, S>> {
        self.spare.take()
    }

    /// What was taken is not needed after all.
    pub(super) fn give_back(&mut self, spare: Spare<'t, S>) {
        self.spare = Some(spare);
    }
}

/// The table of both maps.
pub struct Chains<F: Form, K, V> {
    heads: Heads<Bucket<F::State>>,
    space: Arc<Space>,
    overflow: CachePadded<Overflow<F::State>>,
    // Words may be with any thread, as `Word` says.
    _words: PhantomData<fn() -> (K, V)>,
}

impl<F: Form, K: WordKey, V: Word> Chains<F, K, V> {
    #[inline(always)]
    fn mask(&self) -> u64 {
        self.heads.len() as u64 - 1
    }

    /// The first bucket of a hash.
    #[inline(always)]
    fn head(&self, hash: u64) -> &Bucket<F::State> {
        let index = (hash & self.mask()) as usize;
        // SAFETY: their number is a power of two, and the index a remainder of it.
        unsafe { self.heads.get_unchecked(index) }
    }

    #[cfg(test)]
    pub(super) fn heads(&self) -> &[Bucket<F::State>] {
        &self.heads
    }

    #[inline(always)]
    fn key(key: Raw) -> K {
        // SAFETY: what is in the table is our keys.
        unsafe { K::from_raw(key) }
    }

    #[inline(always)]
    fn value(value: Raw) -> V {
        // SAFETY: what is in the table is our values.
        unsafe { V::from_raw(value) }
    }

    fn give_up(&self, entries: &[Moving<(Raw, Raw)>]) -> NoMemory {
        let filled = entries.iter().map(|entry| &self.heads[entry.bucket]);
        filled.for_each(Bucket::wipe);
        NoMemory
    }
}

impl<F: Form, K: WordKey, V: Word> Table for Chains<F, K, V> {
    type Key = K;
    type Value = V;
    type Entry = (Raw, Raw);
    type Held<'t>
        = F::Stopped<'t>
    where
        Self: 't;

    const FEWEST_BUCKETS: usize = 16;
    const SHARE: usize = 8;

    fn buckets_for(entries: usize) -> usize {
        // Half of the slots: then one bucket of 15 overflows.
        entries / SLOTS * 2 + 2
    }

    fn try_new(buckets: usize, space: &Arc<Space>) -> Option<Self> {
        assert!(buckets.is_power_of_two());
        let bytes = Heads::<Bucket<F::State>>::bytes(buckets);
        if !space.take(bytes) {
            return None;
        }
        let Some(heads) = Heads::try_new(buckets) else {
            space.give(bytes);
            return None;
        };
        Some(Self {
            heads,
            space: space.clone(),
            overflow: CachePadded::new(Overflow::new(buckets, space)),
            _words: PhantomData,
        })
    }

    #[inline(always)]
    fn buckets(&self) -> usize {
        self.heads.len()
    }

    #[inline]
    fn get(at: &Stage<Self>, hash: u64, key: &K) -> Option<V> {
        let value = at.follow(|table| table.head(hash).look_up(key.into_raw()));
        value.map(Self::value)
    }

    #[inline(always)]
    fn prefetch(&self, hash: u64) {
        hint::prefetch(self.head(hash));
    }

    #[inline(always)]
    fn prefetch_more(&self, hash: u64) {
        self.head(hash).prefetch_next();
    }

    fn put(at: &Stage<Self>, hash: u64, key: K, value: V, replace: bool) -> Result<Put<V>, Full> {
        let pair = (key.into_raw(), value.into_raw());
        let put = at.follow(|table| {
            let head = table.head(hash);
            if !replace && let Some(there) = head.look_up(pair.0)? {
                return Ok(Ok(Put::There(there)));
            }
            let mut memory = Memory {
                overflow: &table.overflow,
                spare: None,
            };
            F::put(head, &mut memory, pair, replace)
        });
        Ok(match put? {
            Put::New { crowded } => Put::New { crowded },
            Put::There(there) => Put::There(Self::value(there)),
        })
    }

    fn remove(at: &Stage<Self>, hash: u64, key: &K) -> Option<V> {
        let value = at.follow(|table| F::remove(table.head(hash), key.into_raw()));
        value.map(Self::value)
    }

    fn update(at: &Stage<Self>, hash: u64, key: &K, mut new: impl FnMut(V) -> V) -> Option<V> {
        let mut new = |old| new(Self::value(old)).into_raw();
        let value = at.follow(|table| F::update(table.head(hash), key.into_raw(), &mut new));
        value.map(Self::value)
    }

    fn for_each_in(&self, bucket: usize, mut each: impl FnMut((Raw, Raw))) -> Result<(), Moved> {
        self.heads[bucket].for_each(|key, value| each((key, value)))
    }

    fn pair(&(key, value): &(Raw, Raw)) -> (K, V) {
        (Self::key(key), Self::value(value))
    }

    fn home_of(&(key, _): &(Raw, Raw), hash_of: &impl Fn(&K) -> u64) -> u64 {
        hash_of(&Self::key(key))
    }

    fn try_hold(&self, bucket: usize) -> Option<F::Stopped<'_>> {
        F::try_stop(&self.heads[bucket])
    }

    fn hold(&self, bucket: usize) -> F::Stopped<'_> {
        F::stop(&self.heads[bucket])
    }

    fn take_in(&self, entries: &mut [Moving<(Raw, Raw)>]) -> Result<(), NoMemory> {
        entries.sort_unstable_by_key(|entry| entry.bucket);
        for child in entries.chunk_by(|one, other| one.bucket == other.bucket) {
            let mut tail = &self.heads[child[0].bucket];
            if (child.len() - 1) / SLOTS > F::LONGEST {
                return Err(self.give_up(entries));
            }
            for Moving {
                entry: (key, value),
                ..
            } in child
            {
                let hang = || self.overflow.spare();
                let Some(bucket) = Bucket::fill(tail, *key, *value, hang) else {
                    return Err(self.give_up(entries));
                };
                tail = bucket;
            }
        }
        Ok(())
    }

    fn wipe(&self, bucket: usize) {
        self.heads[bucket].wipe();
    }

    fn arrays(&self) -> [Range<*const u8>; 2] {
        [self.heads.range(), ptr::null()..ptr::null()]
    }

    fn free_share(&mut self) -> bool {
        self.overflow.free_share()
    }

    fn is_crowded(&self, entries: usize) -> bool {
        self.overflow.hung() * OVERFLOWING > self.heads.len() && entries >= self.heads.len()
    }
}

impl<F: Form, K, V> Drop for Chains<F, K, V> {
    fn drop(&mut self) {
        let bytes = Heads::<Bucket<F::State>>::bytes(self.heads.len());
        self.space.give(bytes);
    }
}
