//! A bucket of one cache line, the chain of its overflow buckets, and the searches that all
//! variants share.

use std::ptr;

use corewise_atomic::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use corewise_atomic::sync::atomic::{AtomicPtr, AtomicU64, fence};
use corewise_atomic::{hint, mutant, ordering};

use super::overflow::SpareBucket;
use crate::copy_map::memory_budget;
use crate::copy_map::{Moved, Moving, NoMemory};
use crate::pair_cell::FENCED_LOAD;
use crate::word::Raw;

/// The number of slots in a bucket.
pub const SLOTS: usize = 3;
/// The state word of a bucket; each variant has its own format.
///
/// # Safety
///
/// 1. Zero bits mean no entries.
/// 2. `of_bits` and `bits` are inverses, and `with` adds one entry.
/// 3. `version` differs once a slot is reused.
pub unsafe trait BucketState: Copy + Eq + Send + Sync + 'static {
    /// The distance between the bits of two slots in [`entries`](Self::entries).
    const STRIDE: usize;
    /// The state with these bits.
    fn of_bits(bits: u64) -> Self;
    /// The bits of the state.
    fn bits(self) -> u64;
    /// In the first bucket of a chain: the entries are in the table's successor.
    fn is_moved(self) -> bool;
    /// One bit per slot, set if the slot has an entry; the bits are [`STRIDE`](Self::STRIDE) apart.
    fn entries(self) -> u64;
    /// Whether an entry can be inserted into the slot.
    fn is_free(self, slot: usize) -> bool;
    /// This state, with an entry in a slot that was free.
    fn with(self, slot: usize) -> Self;
    /// A number that grows before a slot is reused for another entry.
    fn version(self) -> u64;

    /// Whether the slot has an entry.
    #[inline(always)]
    fn holds(self, slot: usize) -> bool {
        self.entries() >> (slot * Self::STRIDE) & 1 != 0
    }

    /// The first slot that an entry can be inserted into.
    fn free(self) -> Option<usize> {
        (0..SLOTS).find(|slot| self.is_free(*slot))
    }
}

/// The layout is drawn in the module's header. All bytes zero: no entries and no overflow bucket.
#[repr(C, align(64))]
pub struct Bucket<S> {
    /// A [`BucketState`].
    pub state: AtomicU64,
    /// The key of each slot.
    pub keys: [AtomicPtr<()>; SLOTS],
    /// The value of each slot.
    pub values: [AtomicPtr<()>; SLOTS],
    /// The overflow bucket of this one, or null.
    pub next: AtomicPtr<Bucket<S>>,
}

#[cfg(not(any(corewise_loom, corewise_shuttle)))]
const _: () = assert!(size_of::<Bucket<u64>>() == 64 && align_of::<Bucket<u64>>() == 64);

// SAFETY: the atomics have the layout of the integers and pointers that they hold, and a state of
// zero has no entries, by 1 of `BucketState`.
unsafe impl<S: BucketState> memory_budget::ZeroedBucket for Bucket<S> {
    fn empty() -> Self {
        Self {
            state: AtomicU64::new(0),
            keys: std::array::from_fn(|_| AtomicPtr::new(ptr::null_mut())),
            values: std::array::from_fn(|_| AtomicPtr::new(ptr::null_mut())),
            next: AtomicPtr::new(ptr::null_mut()),
        }
    }
}

/// An entry, as it was read from a bucket.
#[derive(Clone, Copy)]
pub struct SlotEntry<S> {
    /// Its slot.
    pub slot: usize,
    /// Its value.
    pub value: Raw,
    /// The state of the bucket at that time.
    pub state: S,
}

impl<S: BucketState> Bucket<S> {
    /// The state of this bucket.
    #[inline(always)]
    pub fn state(&self) -> S {
        // Acquire: pairs with the Release of the store that changed the word, so the pairs it
        // announces are seen, or the successor and the entries moved to it. (A later change without
        // Release is an exchange, which continues the release sequence.)
        S::of_bits(self.state.load(Acquire))
    }

    /// The overflow bucket that is linked to this one.
    #[inline(always)]
    pub fn next(&self) -> Option<&Self> {
        // Acquire: pairs with the Release of the store that linked it.
        // SAFETY: a linked bucket lives as long as this one, and is changed through atomics only.
        unsafe { self.next.load(Acquire).as_ref() }
    }

    /// Prefetches the overflow bucket of this one, if there is one.
    #[inline(always)]
    pub fn prefetch_next(&self) {
        if let Some(next) = self.next() {
            hint::prefetch(next);
        }
    }

    /// This bucket and its overflow buckets.
    pub fn chain(&self) -> impl Iterator<Item = &Self> {
        std::iter::successors(Some(self), |bucket| bucket.next())
    }

    /// On the first bucket of a chain: returns the value of a key. Writes nothing and never waits.
    #[inline]
    pub fn look_up(&self, key: Raw) -> Result<Option<Raw>, Moved> {
        let mut state = self.state();
        if state.is_moved() {
            return Err(Moved);
        }
        let mut bucket = self;
        loop {
            if let Some(held) = bucket.find_entry(state, key) {
                return Ok(Some(held.value));
            }
            let Some(next) = bucket.next() else {
                return Ok(None);
            };
            bucket = next;
            state = bucket.state();
        }
    }

    /// Finds the entry of a key in this bucket; `state` was read within the same operation.
    #[inline(always)]
    pub fn find_entry(&self, mut state: S, key: Raw) -> Option<SlotEntry<S>> {
        loop {
            let slot = self.slot_of(state, key)?;
            // Relaxed, here and in `slot_of`: the fence orders them.
            let value = self.values[slot].load(FENCED_LOAD);
            if self.is_unchanged(state) || mutant!("clht_no_second_look") {
                return Some(SlotEntry { slot, value, state });
            }
            state = self.state();
        }
    }

    /// The slot that holds `key`, among the slots that are in use in `state`.
    #[inline(always)]
    pub fn slot_of(&self, state: S, key: Raw) -> Option<usize> {
        // All slots at once: which slot matches is unpredictable for the branch predictor.
        let mut equal = 0;
        for (slot, there) in self.keys.iter().enumerate() {
            // Relaxed: see `find_entry`.
            equal |= u64::from(there.load(Relaxed) == key) << (slot * S::STRIDE);
        }
        let slots = equal & state.entries();
        (slots != 0).then(|| slots.trailing_zeros() as usize / S::STRIDE)
    }

    /// Whether no slot was reused between the load of `state` and the loads before this call. If
    /// so, none of them has read a word of a later entry.
    #[inline(always)]
    fn is_unchanged(&self, state: S) -> bool {
        // Acquire: pairs with the Release of the stores in `store`: a thread that has read one of
        // these words sees the change of version before it.
        fence(Acquire);
        // Relaxed: only to be compared.
        S::of_bits(self.state.load(Relaxed)).version() == state.version()
    }

    /// On the first bucket of a chain: calls `each` with every pair, each as it was at some time
    /// during the call.
    pub fn for_each(&self, mut each: impl FnMut(Raw, Raw)) -> Result<(), Moved> {
        if self.state().is_moved() {
            return Err(Moved);
        }
        for bucket in self.chain() {
            let pairs = bucket.pairs();
            pairs.into_iter().flatten().for_each(|(k, v)| each(k, v));
        }
        Ok(())
    }

    fn pairs(&self) -> [Option<(Raw, Raw)>; SLOTS] {
        loop {
            let state = self.state();
            let pairs = std::array::from_fn(|slot| state.holds(slot).then(|| self.pair(slot)));
            if self.is_unchanged(state) {
                return pairs;
            }
        }
    }

    /// The pair of a slot, which may be a mixture of two.
    pub fn pair(&self, slot: usize) -> (Raw, Raw) {
        // Relaxed: a fence follows, or no other thread can change the pair.
        let (key, value) = (&self.keys[slot], &self.values[slot]);
        (key.load(Relaxed), value.load(FENCED_LOAD))
    }

    /// Appends the pairs of this bucket, which has this state and is not being changed.
    pub fn copy(&self, state: S, to: &mut Vec<Moving<(Raw, Raw)>>) -> Result<(), NoMemory> {
        to.try_reserve(SLOTS).map_err(|_| NoMemory)?;
        let slots = (0..SLOTS).filter(|slot| state.holds(*slot));
        to.extend(slots.map(|slot| Moving::new(self.pair(slot))));
        Ok(())
    }

    /// Writes a pair to a slot.
    ///
    /// # Safety
    ///
    /// 1. The slot has no entry, and the caller owns it: no other thread writes to it.
    pub unsafe fn store(&self, slot: usize, key: Raw, value: Raw) {
        // Release, both: pairs with the fence in `is_unchanged`. A lookup that reads one of these
        // words in place of the previous entry's sees that that entry was removed.
        let order = ordering!(Release, "clht_relaxed_pair");
        self.keys[slot].store(key, order);
        self.values[slot].store(value, order);
    }

    /// Adds a pair to a chain that no other thread can reach, from its bucket `tail` on; all
    /// buckets behind `tail` are empty. Returns the bucket that has the pair, or `None` if there is
    /// no memory for an overflow bucket.
    ///
    /// # Safety
    ///
    /// 1. Only the caller can reach the chain.
    /// 2. `spare` returns overflow buckets of the chain's table.
    pub unsafe fn fill<'b>(
        tail: &'b Self,
        key: Raw,
        value: Raw,
        mut spare: impl FnMut() -> Option<SpareBucket<'b, S>>,
    ) -> Option<&'b Self> {
        let mut bucket = tail;
        // Relaxed, all: no other thread is here before the old bucket is marked with Release.
        loop {
            let state = S::of_bits(bucket.state.load(Relaxed));
            if let Some(slot) = state.free() {
                bucket.keys[slot].store(key, Relaxed);
                bucket.values[slot].store(value, Relaxed);
                bucket.state.store(state.with(slot).bits(), Relaxed);
                return Some(bucket);
            }
            if bucket.next().is_none() {
                let next = spare()?.into_ptr();
                // Relaxed: as above.
                bucket.next.store(next.as_ptr(), Relaxed);
            }
            bucket = bucket.next()?;
        }
    }

    /// Empties a chain that no other thread can reach; its buckets stay linked.
    ///
    /// # Safety
    ///
    /// 1. Only the caller can reach the chain.
    pub unsafe fn wipe(&self) {
        // Relaxed: as in `fill`.
        self.chain()
            .for_each(|bucket| bucket.state.store(0, Relaxed));
    }

    /// The contents of its words, for tests that check what is written.
    #[cfg(all(feature = "raw", not(any(corewise_loom, corewise_shuttle))))]
    pub fn words(&self) -> [usize; 8] {
        // Relaxed, all: they are read while no thread changes the bucket.
        let [k0, k1, k2] = [0, 1, 2].map(|slot| self.keys[slot].load(Relaxed).addr());
        let [v0, v1, v2] = [0, 1, 2].map(|slot| self.values[slot].load(Relaxed).addr());
        let next = self.next.load(Relaxed).addr();
        [
            self.state.load(Relaxed) as usize,
            k0,
            k1,
            k2,
            v0,
            v1,
            v2,
            next,
        ]
    }
}
