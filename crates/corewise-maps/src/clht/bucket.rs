//! A bucket: one cache line, and the chain of those that overflow from it.

use std::ptr::{self, NonNull};

use corewise_atomic::alloc::{self, Layout, Node};
use corewise_atomic::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use corewise_atomic::sync::atomic::{AtomicPtr, AtomicU64, fence};
use corewise_atomic::{hint, mutant, ordering, thread};

use crate::copy_map::Moved;
use crate::copy_map::space::{self, Space};
use crate::word::Raw;

/// Pairs in a bucket.
pub(super) const SLOTS: usize = 3;
/// Failed attempts at a lock before the thread gives way.
const SPINS: u32 = 64;

/// Drawn in the module's header. All bytes zero: no entries, nothing after it.
#[repr(C, align(64))]
pub(super) struct Bucket {
    state: AtomicU64,
    keys: [AtomicPtr<()>; SLOTS],
    values: [AtomicPtr<()>; SLOTS],
    next: AtomicPtr<Bucket>,
}

#[cfg(not(any(corewise_loom, corewise_shuttle)))]
const _: () = assert!(size_of::<Bucket>() == 64 && align_of::<Bucket>() == 64);

/// The concurrency word. [`LOCK`](Self::LOCK) and [`MOVED`](Self::MOVED) mean something in the first bucket of a
/// chain only.
#[derive(Clone, Copy, PartialEq, Eq)]
struct State(u64);

impl State {
    const LOCK: u64 = 1;
    const MOVED: u64 = 1 << 1;
    /// Of slot 0.
    const HELD: u64 = 1 << 2;
    /// How often an entry was removed: 59 bits.
    const REMOVAL: u64 = 1 << (2 + SLOTS);

    fn is_locked(self) -> bool {
        self.0 & Self::LOCK != 0
    }

    fn is_moved(self) -> bool {
        self.0 & Self::MOVED != 0
    }

    /// A bit for each slot.
    fn held(self) -> u64 {
        (self.0 / Self::HELD) & ((1 << SLOTS) - 1)
    }

    fn holds(self, slot: usize) -> bool {
        self.0 & Self::HELD << slot != 0
    }

    fn free(self) -> Option<usize> {
        (0..SLOTS).find(|slot| !self.holds(*slot))
    }

    fn removals(self) -> u64 {
        self.0 / Self::REMOVAL
    }

    fn with(self, slot: usize) -> Self {
        Self(self.0 | Self::HELD << slot)
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

// SAFETY: its atomics have the layout of the integers and pointers they hold.
unsafe impl space::Bucket for Bucket {
    fn empty() -> Self {
        Self {
            state: AtomicU64::new(0),
            keys: std::array::from_fn(|_| AtomicPtr::new(ptr::null_mut())),
            values: std::array::from_fn(|_| AtomicPtr::new(ptr::null_mut())),
            next: AtomicPtr::new(ptr::null_mut()),
        }
    }
}

impl Bucket {
    #[inline(always)]
    fn state(&self) -> State {
        // Acquire: pairs with the Release in `publish` and in `Locked::drop`, so that the pairs it tells of
        // are seen, or the successor and what was moved to it. (A lock taken since is an exchange of the
        // same word, which carries on what was released.)
        State(self.state.load(Acquire))
    }

    /// The bucket that overflows from this one.
    #[inline(always)]
    fn next(&self) -> Option<&Bucket> {
        // Acquire: pairs with the Release in `Locked::append`.
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
    pub(super) fn chain(&self) -> impl Iterator<Item = &Bucket> {
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
            if let Some(value) = bucket.value_of(state, key) {
                return Ok(Some(value));
            }
            let Some(next) = bucket.next() else {
                return Ok(None);
            };
            bucket = next;
            state = bucket.state();
        }
    }

    /// The value that this bucket holds for a key; `state` was read within the same lookup.
    #[inline(always)]
    fn value_of(&self, mut state: State, key: Raw) -> Option<Raw> {
        loop {
            let slot = self.slot_of(state, key)?;
            // Relaxed, here and in `slot_of`: the fence orders them.
            let value = self.values[slot].load(Relaxed);
            if self.is_unchanged(state) || mutant!("clht_no_second_look") {
                return Some(value);
            }
            state = self.state();
        }
    }

    #[inline(always)]
    fn slot_of(&self, state: State, key: Raw) -> Option<usize> {
        // All slots at once: which of them it is nobody can predict.
        let mut equal = 0;
        for (slot, there) in self.keys.iter().enumerate() {
            // Relaxed: see `value_of`.
            equal |= u64::from(there.load(Relaxed) == key) << slot;
        }
        let slots = equal & state.held();
        (slots != 0).then(|| slots.trailing_zeros() as usize)
    }

    /// Whether nothing was removed between `state` and the loads before this one: then none of what they have
    /// read belongs to a later entry.
    #[inline(always)]
    fn is_unchanged(&self, state: State) -> bool {
        // Acquire: pairs with the Release of the pair's stores in `Locked::insert`: who has read one sees
        // the removal that was before it.
        fence(Acquire);
        // Relaxed: only to be compared.
        State(self.state.load(Relaxed)).removals() == state.removals()
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

    fn pair(&self, slot: usize) -> (Raw, Raw) {
        // Relaxed: a fence follows, or the caller has the lock.
        let (key, value) = (&self.keys[slot], &self.values[slot]);
        (key.load(Relaxed), value.load(Relaxed))
    }

    /// Locks the chain of which this is the first bucket. Waits for one who has the lock.
    pub(super) fn lock(&self) -> Result<Locked<'_>, Moved> {
        let mut spins = 0;
        loop {
            if let Some(locked) = self.try_lock()? {
                return Ok(locked);
            }
            spins += 1;
            if spins < SPINS {
                hint::spin_loop();
            } else {
                thread::yield_now();
            }
        }
    }

    /// Locks the chain of which this is the first bucket, unless somebody else changes its word.
    pub(super) fn try_lock(&self) -> Result<Option<Locked<'_>>, Moved> {
        let state = self.state();
        if state.is_moved() && !mutant!("clht_ignores_moved") {
            return Err(Moved);
        }
        if state.is_locked() {
            return Ok(None);
        }
        let locked = state.0 | State::LOCK;
        // Acquire: pairs with the Release of the last owner, in `Locked::drop`.
        let taken = self
            .state
            .compare_exchange_weak(state.0, locked, Acquire, Relaxed);
        // Not `then_some`: a lock that we do not have must not be made, and dropped.
        Ok(taken.is_ok().then(|| Locked { head: self, state }))
    }

    /// Adds a pair to a chain that nobody else can reach, from `tail` on, which is of that chain and behind
    /// which only empty buckets are; the bucket that has it now. `None` if there is no memory for another.
    pub(super) fn fill<'b>(
        tail: &'b Bucket,
        key: Raw,
        value: Raw,
        mut hang: impl FnMut() -> Option<Spare<'b>>,
    ) -> Option<&'b Bucket> {
        let mut bucket = tail;
        // Relaxed, all: nobody else is here before the old bucket is marked with Release.
        loop {
            let state = State(bucket.state.load(Relaxed));
            if let Some(slot) = state.free() {
                bucket.keys[slot].store(key, Relaxed);
                bucket.values[slot].store(value, Relaxed);
                bucket.state.store(state.with(slot).0, Relaxed);
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

    /// Frees what overflows from this bucket.
    ///
    /// # Safety
    ///
    /// 1. Nobody else uses the chain, then or later.
    pub(super) unsafe fn free_overflow(&mut self, space: &Space) {
        // Relaxed: nobody else is there, by 1.
        let mut next = self.next.load(Relaxed);
        while let Some(bucket) = NonNull::new(next) {
            // SAFETY: hung by `append` or `fill`, from a `Spare`, and not used by others, by 1.
            next = unsafe { bucket.as_ref() }.next.load(Relaxed);
            drop(Spare { bucket, space });
        }
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

/// A place in a chain.
#[derive(Clone, Copy)]
pub(super) struct Place<'b> {
    bucket: &'b Bucket,
    slot: usize,
}

/// What a chain has of a key.
pub(super) enum Found<'b> {
    /// The key.
    At(Place<'b>),
    /// Not the key; the first free slot.
    Free(Place<'b>),
    /// Not the key, and no free slot; the last bucket.
    Full(&'b Bucket),
}

/// A chain that is locked until this is dropped.
pub(super) struct Locked<'b> {
    head: &'b Bucket,
    /// What the first bucket's word will be when it is unlocked.
    state: State,
}

impl<'b> Locked<'b> {
    pub(super) fn find(&self, key: Raw) -> Found<'b> {
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

    fn state_of(&self, bucket: &Bucket) -> State {
        if ptr::eq(bucket, self.head) {
            return self.state;
        }
        // Relaxed: changed under the lock alone, which we have.
        State(bucket.state.load(Relaxed))
    }

    /// All pairs.
    pub(super) fn for_each(&self, mut each: impl FnMut(Raw, Raw)) {
        for bucket in self.head.chain() {
            let state = self.state_of(bucket);
            let slots = (0..SLOTS).filter(|slot| state.holds(*slot));
            slots
                .map(|slot| bucket.pair(slot))
                .for_each(|(k, v)| each(k, v));
        }
    }

    pub(super) fn value(&self, place: Place<'_>) -> Raw {
        place.bucket.pair(place.slot).1
    }

    pub(super) fn replace(self, place: Place<'_>, value: Raw) {
        // Release: for a value that refers to memory; pairs with the fence in `is_unchanged`. Readers see the old or
        // the new one.
        let release = ordering!(Release, "clht_relaxed_value");
        place.bucket.values[place.slot].store(value, release);
    }

    pub(super) fn insert(mut self, place: Place<'_>, key: Raw, value: Raw) {
        let Place { bucket, slot } = place;
        let order = if mutant!("clht_relaxed_pair") {
            Relaxed
        } else {
            Release
        };
        // Release, both: pairs with the fence in `is_unchanged`. A lookup that takes one of these words for
        // one of the entry before sees that that was removed.
        bucket.keys[slot].store(key, order);
        bucket.values[slot].store(value, order);
        self.publish(bucket, |state| state.with(slot));
    }

    pub(super) fn remove(mut self, place: Place<'_>) {
        self.publish(place.bucket, |state| state.without(place.slot));
    }

    /// Hangs a bucket with a pair on the last one.
    pub(super) fn append(self, last: &Bucket, spare: Spare<'_>, key: Raw, value: Raw) {
        let new = spare.into_ptr();
        // SAFETY: it was ours alone, and from now on lives as long as the chain.
        let bucket = unsafe { new.as_ref() };
        // Relaxed: nobody else has it yet.
        bucket.keys[0].store(key, Relaxed);
        bucket.values[0].store(value, Relaxed);
        bucket.state.store(State(0).with(0).0, Relaxed);
        // Release: pairs with the Acquire in `next`, so that the bucket is seen whole.
        last.next.store(new.as_ptr(), Release);
    }

    /// Changes the word of a bucket of the chain; that of the first one when it is unlocked.
    fn publish(&mut self, bucket: &Bucket, change: impl FnOnce(State) -> State) {
        let state = change(self.state_of(bucket));
        if ptr::eq(bucket, self.head) {
            self.state = state;
        } else {
            // Release: pairs with the Acquire in `state`.
            bucket.state.store(state.0, Release);
        }
    }

    /// Marks the chain, whose entries are all in the table's successor, and unlocks it for good.
    pub(super) fn set_moved(mut self) {
        self.state.0 |= State::MOVED;
    }

    /// The mistake of a mutant: readers leave before the entries do.
    pub(super) fn set_moved_early(&self) {
        let state = self.state.0 | State::MOVED | State::LOCK;
        self.head.state.store(state, Release);
    }
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        let order = if mutant!("clht_relaxed_publish") {
            Relaxed
        } else {
            Release
        };
        // Release: pairs with the Acquire in `state` and in `try_lock`.
        self.head.state.store(self.state.0, order);
    }
}

/// A bucket that is in no chain.
pub(super) struct Spare<'s> {
    bucket: NonNull<Bucket>,
    space: &'s Space,
}

impl<'s> Spare<'s> {
    const LAYOUT: Layout = Layout::new::<Bucket>();

    /// An empty bucket, if there is memory, and room in `space`.
    pub(super) fn new(space: &'s Space) -> Option<Self> {
        if !space.take(Self::LAYOUT.size()) {
            return None;
        }
        let Some(memory) = alloc::alloc(Self::LAYOUT, Node::Local) else {
            space.give(Self::LAYOUT.size());
            return None;
        };
        let bucket = memory.cast::<Bucket>();
        // SAFETY: new memory for a bucket.
        unsafe { bucket.write(space::Bucket::empty()) };
        Some(Self { bucket, space })
    }

    /// The bucket, for a chain: `free_overflow` frees it.
    fn into_ptr(self) -> NonNull<Bucket> {
        let bucket = self.bucket;
        std::mem::forget(self);
        bucket
    }
}

impl Drop for Spare<'_> {
    fn drop(&mut self) {
        // SAFETY: a bucket made by `new`, in no chain (any more), and nobody else has it.
        unsafe {
            self.bucket.drop_in_place();
            alloc::dealloc(self.bucket.cast(), Self::LAYOUT);
        }
        self.space.give(Self::LAYOUT.size());
    }
}
