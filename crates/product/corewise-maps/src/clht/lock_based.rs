//! CLHT-lb: an update locks its chain.

use std::ptr;

use corewise_atomic::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use corewise_atomic::{Backoff, mutant, ordering};

use super::bucket::{Bucket, BucketState, SLOTS};
use super::overflow::SpareBucket;
use super::table::{ClhtVariant, SpareMemory};
use crate::copy_map::{EntryChange, Full, HeldBucket, Moved, Moving, NoMemory, Put};
use crate::word::Raw;

/// The lock-based variant.
pub struct LockBasedForm;

// SAFETY: lookups read values only from slots that have entries; see `BucketState` and
// *Correctness* in the module's header (1). Entries are changed under the chain's lock, by the
// operation that reports them (2).
unsafe impl ClhtVariant for LockBasedForm {
    type State = LockState;
    type Stopped<'b> = LockedChain<'b>;
    const LONGEST: usize = usize::MAX;

    unsafe fn put(
        head: &Bucket<LockState>,
        memory: &mut SpareMemory<'_, LockState>,
        (key, value): (Raw, Raw),
        replace: bool,
    ) -> Result<Result<Put<Raw>, Full>, Moved> {
        let mut reserved = Ok(());
        loop {
            let locked = head.lock()?;
            match locked.find(key) {
                ChainSearch::At(slot) => {
                    let there = locked.value(slot);
                    if replace {
                        // SAFETY: `find` returned a slot of this locked chain that has an entry
                        // (1).
                        unsafe { locked.replace(slot, value) };
                    }
                    return Ok(Ok(Put::There(there)));
                }
                ChainSearch::Free(slot) => {
                    // SAFETY: `find` returned a slot of this locked chain that has no entry (1).
                    unsafe { locked.insert(slot, key, value) };
                    return Ok(Ok(Put::New { crowded: false }));
                }
                ChainSearch::Full(last) => {
                    if let Some(spare) = memory.take() {
                        // SAFETY: `find` returned the last bucket of this locked chain (1). The
                        // spare bucket is from the memory of the chain's table, by the contract of
                        // this function (2).
                        unsafe { locked.append(last, spare, key, value) };
                        return Ok(Ok(Put::New { crowded: true }));
                    }
                    // The chain may have been moved meanwhile, or have a free slot.
                    if let Err(full) = reserved {
                        return Ok(Err(full));
                    }
                }
            }
            // Memory is allocated without the lock.
            drop(locked);
            reserved = memory.reserve();
        }
    }

    fn remove(head: &Bucket<LockState>, key: Raw) -> Result<Option<Raw>, Moved> {
        if head.look_up(key)?.is_none() {
            return Ok(None);
        }
        let locked = head.lock()?;
        let ChainSearch::At(slot) = locked.find(key) else {
            return Ok(None);
        };
        let value = locked.value(slot);
        // SAFETY: `find` returned a slot of this locked chain that has an entry (1).
        unsafe { locked.remove(slot) };
        Ok(Some(value))
    }

    fn change(
        head: &Bucket<LockState>,
        key: Raw,
        mut decide: impl FnMut(Raw) -> EntryChange<Raw>,
    ) -> Result<Option<(Raw, EntryChange<Raw>)>, Moved> {
        loop {
            let Some(old) = head.look_up(key)? else {
                return Ok(None);
            };
            let change = decide(old);
            // A decision to keep the value takes effect at the lookup, without the lock.
            if change == EntryChange::Keep {
                return Ok(Some((old, change)));
            }
            let locked = head.lock()?;
            let ChainSearch::At(slot) = locked.find(key) else {
                return Ok(None);
            };
            // Otherwise another thread has replaced the value since the lookup: decide again.
            if locked.value(slot) == old {
                // SAFETY: `find` returned a slot of this locked chain that has an entry (1).
                unsafe {
                    match change {
                        EntryChange::Keep => {}
                        EntryChange::Replace(value) => locked.replace(slot, value),
                        EntryChange::Remove => locked.remove(slot),
                    }
                }
                return Ok(Some((old, change)));
            }
        }
    }

    fn try_stop(head: &Bucket<LockState>) -> Result<Option<LockedChain<'_>>, Moved> {
        head.try_lock()
    }

    fn stop(head: &Bucket<LockState>) -> LockedChain<'_> {
        head.lock().expect("who moves it is the only one")
    }
}

/// The state word of a bucket. [`LOCK`](Self::LOCK) and [`MOVED`](Self::MOVED) are used only in the
/// first bucket of a chain.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct LockState(u64);

impl LockState {
    const LOCK: u64 = 1;
    const MOVED: u64 = 1 << 1;
    /// The bit of slot 0.
    const HELD: u64 = 1 << 2;
    /// The unit of the count of removed entries, which has 59 bits.
    const REMOVAL: u64 = 1 << (2 + SLOTS);

    fn is_locked(self) -> bool {
        self.0 & Self::LOCK != 0
    }

    fn without(self, slot: usize) -> Self {
        let more = if mutant!("clht_uncounted") {
            0
        } else {
            Self::REMOVAL
        };
        Self((self.0 & !(Self::HELD << slot)).wrapping_add(more))
    }
}

// SAFETY: a word of zeros has no `HELD` bit, so it has no entries (1). The type wraps the bits, and
// `with` sets the bit of one entry (2). A removal adds to the version, and a slot must be freed
// before it is used again (3).
unsafe impl BucketState for LockState {
    const STRIDE: usize = 1;

    fn of_bits(bits: u64) -> Self {
        Self(bits)
    }
    fn bits(self) -> u64 {
        self.0
    }
    fn is_moved(self) -> bool {
        self.0 & Self::MOVED != 0
    }
    #[inline(always)]
    fn entries(self) -> u64 {
        (self.0 / Self::HELD) & ((1 << SLOTS) - 1)
    }
    fn is_free(self, slot: usize) -> bool {
        !self.holds(slot)
    }
    fn with(self, slot: usize) -> Self {
        Self(self.0 | Self::HELD << slot)
    }
    fn version(self) -> u64 {
        self.0 / Self::REMOVAL
    }
}

impl Bucket<LockState> {
    /// Locks the chain whose first bucket this is. Waits while another thread has the lock.
    fn lock(&self) -> Result<LockedChain<'_>, Moved> {
        let mut backoff = Backoff::new();
        loop {
            if let Some(locked) = self.try_lock()? {
                return Ok(locked);
            }
            backoff.snooze();
        }
    }

    /// Locks the chain whose first bucket this is. `None` if it is locked or its word changes
    /// meanwhile.
    fn try_lock(&self) -> Result<Option<LockedChain<'_>>, Moved> {
        let state = self.state();
        if state.is_moved() && !mutant!("clht_ignores_moved") {
            return Err(Moved);
        }
        if state.is_locked() && !mutant!("clht_no_exclusion") {
            return Ok(None);
        }
        let locked = state.0 | LockState::LOCK;
        // Acquire: pairs with the Release of the last owner, in `LockedChain::drop`.
        let taken = self
            .state
            .compare_exchange_weak(state.0, locked, Acquire, Relaxed);
        let taken = taken.is_ok() || mutant!("clht_no_exclusion");
        // Not `then_some`: that would construct, and drop, a `LockedChain` for a lock that was not
        // taken.
        Ok(taken.then(|| LockedChain { head: self, state }))
    }
}

/// A slot of a bucket in a chain.
#[derive(Clone, Copy)]
struct ChainSlot<'b> {
    bucket: &'b Bucket<LockState>,
    slot: usize,
}

/// The result of a search for a key in a chain.
enum ChainSearch<'b> {
    /// The key was found.
    At(ChainSlot<'b>),
    /// The key is absent; the first free slot.
    Free(ChainSlot<'b>),
    /// The key is absent and there is no free slot; the last bucket.
    Full(&'b Bucket<LockState>),
}

/// A chain that is locked until this is dropped.
pub struct LockedChain<'b> {
    head: &'b Bucket<LockState>,
    /// The state that unlocking stores to the first bucket.
    state: LockState,
}

impl<'b> LockedChain<'b> {
    fn find(&self, key: Raw) -> ChainSearch<'b> {
        let (mut free, mut last) = (None, self.head);
        for bucket in self.head.chain() {
            let state = self.state_of(bucket);
            let slot = bucket.slot_of(state, key);
            if let Some(slot) = slot.filter(|_| !mutant!("clht_no_second_scan")) {
                return ChainSearch::At(ChainSlot { bucket, slot });
            }
            free = free.or_else(|| state.free().map(|slot| ChainSlot { bucket, slot }));
            last = bucket;
        }
        free.map_or(ChainSearch::Full(last), ChainSearch::Free)
    }

    fn state_of(&self, bucket: &Bucket<LockState>) -> LockState {
        if ptr::eq(bucket, self.head) {
            return self.state;
        }
        // Relaxed: changed only under the lock, which we hold.
        LockState(bucket.state.load(Relaxed))
    }

    fn value(&self, slot: ChainSlot<'_>) -> Raw {
        slot.bucket.pair(slot.slot).1
    }

    /// # Safety
    ///
    /// 1. The slot is one of this chain and has an entry.
    unsafe fn replace(self, slot: ChainSlot<'_>, value: Raw) {
        if mutant!("clht_replaces_by_removal") {
            let state = self.state_of(slot.bucket).without(slot.slot);
            // Release: pairs with the Acquire in `state`. The bug: lookups may miss the key.
            slot.bucket.state.store(state.0 | LockState::LOCK, Release);
        }
        // Release: for a value that refers to memory; pairs with the fence in `is_unchanged`.
        // Readers see the old value or the new one.
        let release = ordering!(Release, "clht_relaxed_value");
        slot.bucket.values[slot.slot].store(value, release);
    }

    /// # Safety
    ///
    /// 1. The slot is one of this chain and has no entry.
    unsafe fn insert(mut self, slot: ChainSlot<'_>, key: Raw, value: Raw) {
        let ChainSlot { bucket, slot } = slot;
        // SAFETY: the slot has no entry, by 1, and only the owner of the chain's lock writes to
        // free slots (1).
        unsafe { bucket.store(slot, key, value) };
        self.publish(bucket, |state| state.with(slot));
    }

    /// # Safety
    ///
    /// 1. The slot is one of this chain and has an entry.
    unsafe fn remove(mut self, slot: ChainSlot<'_>) {
        self.publish(slot.bucket, |state| state.without(slot.slot));
    }

    /// Links a bucket with a pair to the last one.
    ///
    /// # Safety
    ///
    /// 1. `last` is the last bucket of this chain.
    /// 2. `spare` is a bucket of the chain's table.
    unsafe fn append(
        self,
        last: &Bucket<LockState>,
        spare: SpareBucket<'_, LockState>,
        key: Raw,
        value: Raw,
    ) {
        let new = spare.into_ptr();
        // SAFETY: only we could reach it, and from now on it lives as long as the chain, by 2.
        let bucket = unsafe { new.as_ref() };
        // Relaxed: no other thread can reach it yet.
        bucket.keys[0].store(key, Relaxed);
        bucket.values[0].store(value, Relaxed);
        bucket.state.store(LockState(0).with(0).0, Relaxed);
        // Release: pairs with the Acquire in `next`, so the bucket is seen whole.
        last.next.store(new.as_ptr(), Release);
    }

    /// Changes the state of a bucket of the chain. That of the first bucket is stored when it is
    /// unlocked.
    fn publish(&mut self, bucket: &Bucket<LockState>, change: impl FnOnce(LockState) -> LockState) {
        let state = change(self.state_of(bucket));
        if ptr::eq(bucket, self.head) {
            self.state = state;
        } else {
            // Release: pairs with the Acquire in `state`.
            bucket.state.store(state.0, Release);
        }
    }
}

// SAFETY: `copy` visits the buckets of the chain, and appends the entries of each (1). The lock is
// held until the drop, and a chain that is marked is not locked again (2).
unsafe impl HeldBucket<(Raw, Raw)> for LockedChain<'_> {
    fn copy(&self, to: &mut Vec<Moving<(Raw, Raw)>>) -> Result<(), NoMemory> {
        let mut chain = self.head.chain();
        chain.try_for_each(|bucket| bucket.copy(self.state_of(bucket), to))
    }

    fn set_moved(mut self) {
        self.state.0 |= LockState::MOVED;
    }

    fn set_moved_early(&self) {
        let state = self.state.0 | LockState::MOVED | LockState::LOCK;
        // Release: pairs with the Acquire in `state`.
        self.head.state.store(state, Release);
    }
}

impl Drop for LockedChain<'_> {
    fn drop(&mut self) {
        // Release: pairs with the Acquire in `state` and in `try_lock`.
        let order = ordering!(Release, "clht_relaxed_publish");
        self.head.state.store(self.state.0, order);
    }
}
