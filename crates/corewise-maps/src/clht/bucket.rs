//! A bucket: one cache line, and the chain of those that overflow from it. What both forms do alike: looking.

use std::ptr;

use corewise_atomic::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use corewise_atomic::sync::atomic::{AtomicPtr, AtomicU64, fence};
use corewise_atomic::{hint, mutant, ordering};

use super::overflow::Spare;
use crate::copy_map::space;
use crate::copy_map::{Moved, Moving, NoMemory};
use crate::pair::FENCED_LOAD;
use crate::word::Raw;

/// Pairs in a bucket.
pub(super) const SLOTS: usize = 3;
/// The concurrency word of a bucket, of which each form has its own kind. Zero: no entries.
pub trait State: Copy + Eq + Send + Sync + 'static {
    const STRIDE: usize;
    fn of_bits(bits: u64) -> Self;
    fn bits(self) -> u64;
    /// Of the first bucket of a chain: the entries are in the table's successor.
    fn is_moved(self) -> bool;
    /// A bit for each slot that has an entry, [`STRIDE`](Self::STRIDE) bits from that of the slot before.
    fn entries(self) -> u64;
    /// Whether the slot can be given an entry.
    fn is_free(self, slot: usize) -> bool;
    /// With an entry in a slot that was free.
    fn with(self, slot: usize) -> Self;
    /// A number that grows before a slot is used for another entry.
    fn version(self) -> u64;

    /// Whether the slot has an entry.
    #[inline(always)]
    fn holds(self, slot: usize) -> bool {
        self.entries() >> (slot * Self::STRIDE) & 1 != 0
    }

    fn free(self) -> Option<usize> {
        (0..SLOTS).find(|slot| self.is_free(*slot))
    }
}

/// Drawn in the module's header. All bytes zero: no entries, nothing after it.
#[repr(C, align(64))]
pub struct Bucket<S> {
    pub(super) state: AtomicU64,
    pub(super) keys: [AtomicPtr<()>; SLOTS],
    pub(super) values: [AtomicPtr<()>; SLOTS],
    pub(super) next: AtomicPtr<Bucket<S>>,
}

#[cfg(not(any(corewise_loom, corewise_shuttle)))]
const _: () = assert!(size_of::<Bucket<u64>>() == 64 && align_of::<Bucket<u64>>() == 64);

// SAFETY: its atomics have the layout of the integers and pointers they hold.
unsafe impl<S> space::Bucket for Bucket<S> {
    fn empty() -> Self {
        Self {
            state: AtomicU64::new(0),
            keys: std::array::from_fn(|_| AtomicPtr::new(ptr::null_mut())),
            values: std::array::from_fn(|_| AtomicPtr::new(ptr::null_mut())),
            next: AtomicPtr::new(ptr::null_mut()),
        }
    }
}

/// An entry as a bucket had it.
#[derive(Clone, Copy)]
pub(super) struct Held<S> {
    pub(super) slot: usize,
    pub(super) value: Raw,
    /// The bucket's word when it did.
    pub(super) state: S,
}

impl<S: State> Bucket<S> {
    #[inline(always)]
    pub(super) fn state(&self) -> S {
        // Acquire: pairs with the Release of whoever has changed the word, so that the pairs it tells of are seen,
        // or the successor and what was moved to it. (Who has changed it since without Release has exchanged it,
        // which carries on what was released.)
        S::of_bits(self.state.load(Acquire))
    }

    /// The bucket that overflows from this one.
    #[inline(always)]
    pub(super) fn next(&self) -> Option<&Self> {
        // Acquire: pairs with the Release of whoever has hung it there.
        // SAFETY: what is hung on a bucket lives as long as that, and is not changed but through atomics.
        unsafe { self.next.load(Acquire).as_ref() }
    }

    /// Asks for the bucket that overflows from this one, if one does.
    #[inline(always)]
    pub(super) fn prefetch_next(&self) {
        if let Some(next) = self.next() {
            hint::prefetch(next);
        }
    }

    /// This one and those that overflow from it.
    pub(super) fn chain(&self) -> impl Iterator<Item = &Self> {
        std::iter::successors(Some(self), |bucket| bucket.next())
    }

    /// Of the first bucket of a chain: the value of a key. Writes nothing and waits for nobody.
    #[inline]
    pub(super) fn look_up(&self, key: Raw) -> Result<Option<Raw>, Moved> {
        let mut state = self.state();
        if state.is_moved() {
            return Err(Moved);
        }
        let mut bucket = self;
        loop {
            if let Some(held) = bucket.held(state, key) {
                return Ok(Some(held.value));
            }
            let Some(next) = bucket.next() else {
                return Ok(None);
            };
            bucket = next;
            state = bucket.state();
        }
    }

    /// What this bucket has of a key; `state` was read within the same operation.
    #[inline(always)]
    pub(super) fn held(&self, mut state: S, key: Raw) -> Option<Held<S>> {
        loop {
            let slot = self.slot_of(state, key)?;
            // Relaxed, here and in `slot_of`: the fence orders them.
            let value = self.values[slot].load(FENCED_LOAD);
            if self.is_unchanged(state) || mutant!("clht_no_second_look") {
                return Some(Held { slot, value, state });
            }
            state = self.state();
        }
    }

    #[inline(always)]
    pub(super) fn slot_of(&self, state: S, key: Raw) -> Option<usize> {
        // All slots at once: which of them it is nobody can predict.
        let mut equal = 0;
        for (slot, there) in self.keys.iter().enumerate() {
            // Relaxed: see `held`.
            equal |= u64::from(there.load(Relaxed) == key) << (slot * S::STRIDE);
        }
        let slots = equal & state.entries();
        (slots != 0).then(|| slots.trailing_zeros() as usize / S::STRIDE)
    }

    /// Whether no slot was used again between `state` and the loads before this one: then none of what they have
    /// read belongs to a later entry.
    #[inline(always)]
    fn is_unchanged(&self, state: S) -> bool {
        // Acquire: pairs with the Release of the pair's stores in `store`: who has read one sees the change of
        // version that was before it.
        fence(Acquire);
        // Relaxed: only to be compared.
        S::of_bits(self.state.load(Relaxed)).version() == state.version()
    }

    /// Of the first bucket of a chain: calls `each` with every pair, each as it was at some time during the call.
    pub(super) fn for_each(&self, mut each: impl FnMut(Raw, Raw)) -> Result<(), Moved> {
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

    pub(super) fn pair(&self, slot: usize) -> (Raw, Raw) {
        // Relaxed: a fence follows, or nobody can change the pair.
        let (key, value) = (&self.keys[slot], &self.values[slot]);
        (key.load(Relaxed), value.load(FENCED_LOAD))
    }

    /// Appends the pairs of this bucket, which has this state and is not changed.
    pub(super) fn copy(&self, state: S, to: &mut Vec<Moving<(Raw, Raw)>>) -> Result<(), NoMemory> {
        to.try_reserve(SLOTS).map_err(|_| NoMemory)?;
        let slots = (0..SLOTS).filter(|slot| state.holds(*slot));
        to.extend(slots.map(|slot| Moving::new(self.pair(slot))));
        Ok(())
    }

    /// Writes a pair into a slot that no entry has, and that is ours.
    pub(super) fn store(&self, slot: usize, key: Raw, value: Raw) {
        let order = ordering!(Release, "clht_relaxed_pair");
        // Release, both: pairs with the fence in `is_unchanged`. A lookup that takes one of these words for
        // one of the entry before sees that that was removed.
        self.keys[slot].store(key, order);
        self.values[slot].store(value, order);
    }

    /// Adds a pair to a chain that nobody else can reach, from `tail` on, which is of that chain and behind
    /// which only empty buckets are; the bucket that has it now. `None` if there is no memory for another.
    pub(super) fn fill<'b>(
        tail: &'b Self,
        key: Raw,
        value: Raw,
        mut hang: impl FnMut() -> Option<Spare<'b, S>>,
    ) -> Option<&'b Self> {
        let mut bucket = tail;
        // Relaxed, all: nobody else is here before the old bucket is marked with Release.
        loop {
            let state = S::of_bits(bucket.state.load(Relaxed));
            if let Some(slot) = state.free() {
                bucket.keys[slot].store(key, Relaxed);
                bucket.values[slot].store(value, Relaxed);
                bucket.state.store(state.with(slot).bits(), Relaxed);
                return Some(bucket);
            }
            if bucket.next().is_none() {
                let next = hang()?.into_ptr();
                bucket.next.store(next.as_ptr(), Relaxed);
            }
            bucket = bucket.next()?;
        }
    }

    /// Empties a chain that nobody else can reach; its buckets stay.
    pub(super) fn wipe(&self) {
        // Relaxed: as in `fill`.
        self.chain()
            .for_each(|bucket| bucket.state.store(0, Relaxed));
    }

    /// The addresses of its words, for tests of what is written.
    #[cfg(all(test, not(any(corewise_loom, corewise_shuttle))))]
    pub(super) fn words(&self) -> [usize; 8] {
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
