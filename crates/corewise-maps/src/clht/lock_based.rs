//! CLHT-lb: updates of a chain lock it.

use std::ptr;

use corewise_atomic::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use corewise_atomic::{mutant, ordering};

use super::bucket::{Bucket, SLOTS, State};
use super::overflow::Spare;
use super::table::{Form, Memory};
use crate::copy_map::{Full, Held, Moved, Moving, NoMemory, Put};
use crate::waiting::Waiting;
use crate::word::Raw;

/// The form.
pub struct LockBasedForm;

impl Form for LockBasedForm {
    type State = Lock;
    type Stopped<'b> = Locked<'b>;
    const LONGEST: usize = usize::MAX;

    fn put(
        head: &Bucket<Lock>,
        memory: &mut Memory<'_, Lock>,
        (key, value): (Raw, Raw),
        replace: bool,
    ) -> Result<Result<Put<Raw>, Full>, Moved> {
        loop {
            let locked = head.lock()?;
            match locked.find(key) {
                Found::At(place) => {
                    let there = locked.value(place);
                    if replace {
                        locked.replace(place, value);
                    }
                    return Ok(Ok(Put::There(there)));
                }
                Found::Free(place) => {
                    locked.insert(place, key, value);
                    return Ok(Ok(Put::New { crowded: false }));
                }
                Found::Full(last) => {
                    if let Some(spare) = memory.take() {
                        locked.append(last, spare, key, value);
                        return Ok(Ok(Put::New { crowded: true }));
                    }
                }
            }
            // Memory is asked for without the lock.
            drop(locked);
            if let Err(full) = memory.reserve() {
                return Ok(Err(full));
            }
        }
    }

    fn remove(head: &Bucket<Lock>, key: Raw) -> Result<Option<Raw>, Moved> {
        if head.look_up(key)?.is_none() {
            return Ok(None);
        }
        let locked = head.lock()?;
        let Found::At(place) = locked.find(key) else {
            return Ok(None);
        };
        let value = locked.value(place);
        locked.remove(place);
        Ok(Some(value))
    }

    fn update(
        head: &Bucket<Lock>,
        key: Raw,
        mut new: impl FnMut(Raw) -> Raw,
    ) -> Result<Option<Raw>, Moved> {
        loop {
            let Some(old) = head.look_up(key)? else {
                return Ok(None);
            };
            let value = new(old);
            let locked = head.lock()?;
            let Found::At(place) = locked.find(key) else {
                return Ok(None);
            };
            if locked.value(place) == old {
                locked.replace(place, value);
                return Ok(Some(value));
            }
        }
    }

    fn try_stop(head: &Bucket<Lock>) -> Option<Locked<'_>> {
        head.try_lock().ok().flatten()
    }

    fn stop(head: &Bucket<Lock>) -> Locked<'_> {
        head.lock().expect("who moves it is the only one")
    }
}

/// The concurrency word. [`LOCK`](Self::LOCK) and [`MOVED`](Self::MOVED) mean something in the first bucket of a
/// chain only.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Lock(u64);

impl Lock {
    const LOCK: u64 = 1;
    const MOVED: u64 = 1 << 1;
    /// Of slot 0.
    const HELD: u64 = 1 << 2;
    /// How often an entry was removed: 59 bits.
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

impl State for Lock {
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

impl Bucket<Lock> {
    /// Locks the chain of which this is the first bucket. Waits for one who has the lock.
    fn lock(&self) -> Result<Locked<'_>, Moved> {
        let mut waiting = Waiting::default();
        loop {
            if let Some(locked) = self.try_lock()? {
                return Ok(locked);
            }
            waiting.a_moment();
        }
    }

    /// Locks the chain of which this is the first bucket, unless somebody else changes its word.
    fn try_lock(&self) -> Result<Option<Locked<'_>>, Moved> {
        let state = self.state();
        if state.is_moved() && !mutant!("clht_ignores_moved") {
            return Err(Moved);
        }
        if state.is_locked() && !mutant!("clht_no_exclusion") {
            return Ok(None);
        }
        let locked = state.0 | Lock::LOCK;
        // Acquire: pairs with the Release of the last owner, in `Locked::drop`.
        let taken = self
            .state
            .compare_exchange_weak(state.0, locked, Acquire, Relaxed);
        let taken = taken.is_ok() || mutant!("clht_no_exclusion");
        // Not `then_some`: a lock that we do not have must not be made, and dropped.
        Ok(taken.then(|| Locked { head: self, state }))
    }
}

/// A place in a chain.
#[derive(Clone, Copy)]
struct Place<'b> {
    bucket: &'b Bucket<Lock>,
    slot: usize,
}

/// What a chain has of a key.
enum Found<'b> {
    /// The key.
    At(Place<'b>),
    /// Not the key; the first free slot.
    Free(Place<'b>),
    /// Not the key, and no free slot; the last bucket.
    Full(&'b Bucket<Lock>),
}

/// A chain that is locked until this is dropped.
pub struct Locked<'b> {
    head: &'b Bucket<Lock>,
    /// What the first bucket's word will be when it is unlocked.
    state: Lock,
}

impl<'b> Locked<'b> {
    fn find(&self, key: Raw) -> Found<'b> {
        let (mut free, mut last) = (None, self.head);
        for bucket in self.head.chain() {
            let state = self.state_of(bucket);
            let slot = bucket.slot_of(state, key);
            if let Some(slot) = slot.filter(|_| !mutant!("clht_no_second_scan")) {
                return Found::At(Place { bucket, slot });
            }
            free = free.or_else(|| state.free().map(|slot| Place { bucket, slot }));
            last = bucket;
        }
        free.map_or(Found::Full(last), Found::Free)
    }

    fn state_of(&self, bucket: &Bucket<Lock>) -> Lock {
        if ptr::eq(bucket, self.head) {
            return self.state;
        }
        // Relaxed: changed under the lock alone, which we have.
        Lock(bucket.state.load(Relaxed))
    }

    fn value(&self, place: Place<'_>) -> Raw {
        place.bucket.pair(place.slot).1
    }

    fn replace(self, place: Place<'_>, value: Raw) {
        if mutant!("clht_replaces_by_removal") {
            let state = self.state_of(place.bucket).without(place.slot);
            place.bucket.state.store(state.0 | Lock::LOCK, Release);
        }
        // Release: for a value that refers to memory; pairs with the fence in `is_unchanged`. Readers see the old or
        // the new one.
        let release = ordering!(Release, "clht_relaxed_value");
        place.bucket.values[place.slot].store(value, release);
    }

    fn insert(mut self, place: Place<'_>, key: Raw, value: Raw) {
        let Place { bucket, slot } = place;
        bucket.store(slot, key, value);
        self.publish(bucket, |state| state.with(slot));
    }

    fn remove(mut self, place: Place<'_>) {
        self.publish(place.bucket, |state| state.without(place.slot));
    }

    /// Hangs a bucket with a pair on the last one.
    fn append(self, last: &Bucket<Lock>, spare: Spare<'_, Lock>, key: Raw, value: Raw) {
        let new = spare.into_ptr();
        // SAFETY: it was ours alone, and from now on lives as long as the chain.
        let bucket = unsafe { new.as_ref() };
        // Relaxed: nobody else has it yet.
        bucket.keys[0].store(key, Relaxed);
        bucket.values[0].store(value, Relaxed);
        bucket.state.store(Lock(0).with(0).0, Relaxed);
        // Release: pairs with the Acquire in `next`, so that the bucket is seen whole.
        last.next.store(new.as_ptr(), Release);
    }

    /// Changes the word of a bucket of the chain; that of the first one when it is unlocked.
    fn publish(&mut self, bucket: &Bucket<Lock>, change: impl FnOnce(Lock) -> Lock) {
        let state = change(self.state_of(bucket));
        if ptr::eq(bucket, self.head) {
            self.state = state;
        } else {
            // Release: pairs with the Acquire in `state`.
            bucket.state.store(state.0, Release);
        }
    }
}

impl Held<(Raw, Raw)> for Locked<'_> {
    fn copy(&self, to: &mut Vec<Moving<(Raw, Raw)>>) -> Result<(), NoMemory> {
        let mut chain = self.head.chain();
        chain.try_for_each(|bucket| bucket.copy(self.state_of(bucket), to))
    }

    fn set_moved(mut self) {
        self.state.0 |= Lock::MOVED;
    }

    fn set_moved_early(&self) {
        let state = self.state.0 | Lock::MOVED | Lock::LOCK;
        self.head.state.store(state, Release);
    }
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        let order = ordering!(Release, "clht_relaxed_publish");
        // Release: pairs with the Acquire in `state` and in `try_lock`.
        self.head.state.store(self.state.0, order);
    }
}
