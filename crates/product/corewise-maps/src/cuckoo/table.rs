//! One table: its memory, lookups, and locks.

use std::ops::Range;

use corewise_atomic::sync::Arc;
use corewise_atomic::sync::atomic::AtomicU64;
use corewise_atomic::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
use corewise_atomic::sync::atomic::fence;
use corewise_atomic::{Backoff, Slots, hint, mutant};

use super::bucket::{Cells, CuckooEntry, LockedBucket, Part};
use super::overflow::Overflow;
use super::state::{Homes, SLOTS, Side, State};
use crate::copy_map::memory_budget::{self, Heads, MemoryBudget};
use crate::copy_map::{Moved, TableVersion};
use crate::pair_cell::Torn;

/// Most change counts of a table: 64 KiB of them stay in a core's private cache.
#[cfg(not(corewise_stress))]
const MOST_STRIPES: usize = 1 << 13;
/// Under `corewise_stress` neighbouring buckets disturb each other.
#[cfg(corewise_stress)]
const MOST_STRIPES: usize = 2;

/// The table of [`CuckooMap`](super::CuckooMap).
pub struct CuckooTable<K, V> {
    /// One word for each bucket.
    states: Slots<AtomicU64>,
    /// The cells of each bucket.
    cells: Heads<Cells<K, V>>,
    /// For each stripe of buckets, how often an entry was removed, moved or overwritten.
    counts: Slots<AtomicU64>,
    overflow: Overflow<K, V>,
    budget: Arc<MemoryBudget>,
}

/// A pair that was in the table, with the words it was read from.
pub(super) struct PairSnapshot<K: Copy, V: Copy> {
    words: Torn<K, V>,
    pub(super) pair: (K, V),
}

impl<K: Copy, V: Copy> PairSnapshot<K, V> {
    /// Whether these are the same words.
    pub(super) fn is(&self, words: &Torn<K, V>) -> bool {
        self.words.is_same(words)
    }
}

/// The words read may be of different times: retry.
struct Disturbed;

/// The first look of a lookup at both buckets of a key.
struct HomesView {
    at: [usize; 2],
    counts: [u64; 2],
    states: [State; 2],
}

impl<K: Copy, V: Copy> CuckooTable<K, V> {
    /// Larger pairs do not compile.
    const FITS: () = assert!(size_of::<(K, V)>() <= 32, "a pair has at most 32 bytes");

    pub(super) fn bytes(buckets: usize) -> usize {
        let words = buckets.saturating_add(buckets.min(MOST_STRIPES));
        let words = words.saturating_mul(size_of::<AtomicU64>());
        Heads::<Cells<K, V>>::bytes(buckets).saturating_add(words)
    }

    /// As [`Table::try_new`](crate::copy_map::Table::try_new).
    pub(super) fn with_buckets(buckets: usize, budget: &Arc<MemoryBudget>) -> Option<Self> {
        let () = Self::FITS;
        assert!(buckets.is_power_of_two());
        if !budget.take(Self::bytes(buckets)) {
            return None;
        }
        let table = || {
            Some(Self {
                states: Slots::try_zeroed(buckets)?,
                cells: Heads::try_new(buckets)?,
                counts: Slots::try_zeroed(buckets.min(MOST_STRIPES))?,
                overflow: Overflow::new(budget),
                budget: budget.clone(),
            })
        };
        let table = table();
        if table.is_none() {
            budget.give(Self::bytes(buckets));
        }
        table
    }

    #[inline(always)]
    pub(super) fn mask(&self) -> u64 {
        self.states.len() as u64 - 1
    }

    pub(super) fn overflow(&self) -> &Overflow<K, V> {
        &self.overflow
    }

    /// The address ranges of the large arrays.
    pub(super) fn ranges(&self) -> [Range<*const u8>; 2] {
        [self.cells.range(), memory_budget::range_of(&self.states)]
    }

    /// A bucket, without its overflow buckets.
    #[inline(always)]
    pub(super) fn part(&self, bucket: usize) -> Part<'_, K, V> {
        // SAFETY: `cells` has one element for each bucket, as `states`, and the index is below that
        // number, as in `word`.
        let cells = unsafe { self.cells.get_unchecked(self.within(bucket)) };
        Part {
            word: self.word(bucket),
            cells,
        }
    }

    /// Cuts a bucket number to the table's size.
    #[inline(always)]
    fn within(&self, bucket: usize) -> usize {
        bucket & (self.states.len() - 1)
    }

    #[inline(always)]
    fn word(&self, bucket: usize) -> &AtomicU64 {
        // SAFETY: the length is a power of two, and the index a remainder modulo it.
        unsafe { self.states.get_unchecked(self.within(bucket)) }
    }

    #[inline(always)]
    pub(super) fn state(&self, bucket: usize) -> State {
        // Acquire: as in `Part::state`.
        State(self.word(bucket).load(Acquire))
    }

    /// Prefetches a bucket's word.
    pub(super) fn prefetch_word(&self, bucket: usize) {
        hint::prefetch(self.word(bucket));
    }

    /// Prefetches the first pair that a lookup may compare.
    #[inline(always)]
    pub(super) fn prefetch_pair(&self, homes: Homes) {
        let at = [Side::First, Side::Second].map(|side| homes.bucket(side, self.mask()));
        let states = at.map(|bucket| self.state(bucket));
        if let Some(place) = State::matches_of(states, homes.tag).next() {
            self.part(at[place / SLOTS]).prefetch(place % SLOTS);
        }
    }

    #[inline(always)]
    fn count_of(&self, bucket: usize) -> &AtomicU64 {
        let stripe = bucket & (self.counts.len() - 1);
        // SAFETY: the length is a power of two, and the index a remainder modulo it.
        unsafe { self.counts.get_unchecked(stripe) }
    }

    /// Counts a change that a lookup might see half of.
    pub(super) fn count(&self, bucket: usize) {
        // AcqRel: pairs with the Acquire in `view`: a lookup that begins with this count sees what
        // was before it. A thread that sees a later Release store also sees the count at its second
        // look.
        self.count_of(bucket).fetch_add(1, AcqRel);
    }

    #[inline(always)]
    fn view(&self, homes: Homes) -> HomesView {
        let at = [Side::First, Side::Second].map(|side| homes.bucket(side, self.mask()));
        // Prefetch now, instead of after the words show which pair it is: one wait instead of two.
        for bucket in at {
            self.part(bucket).prefetch(0);
        }
        // Acquire: pairs with the AcqRel in `count`.
        let counts = at.map(|bucket| self.count_of(bucket).load(Acquire));
        let states = at.map(|bucket| self.state(bucket));
        HomesView { at, counts, states }
    }

    /// Whether nothing was removed, moved or overwritten in the stripe of one bucket, between the
    /// view and the loads before this call.
    #[inline(always)]
    fn is_undisturbed(&self, view: &HomesView, side: usize) -> bool {
        // Acquire: pairs with the Release fence in `Part::fill`, and orders the loads of cells
        // before the second look.
        fence(Acquire);
        // Relaxed: only compared.
        self.count_of(view.at[side]).load(Relaxed) == view.counts[side]
    }

    /// Whether both stripes are unchanged.
    #[inline(always)]
    fn is_all_undisturbed(&self, view: &HomesView) -> bool {
        let second = self.is_undisturbed(view, 1) || mutant!("cuckoo_one_stripe");
        self.is_undisturbed(view, 0) && second
    }

    /// Returns the pair of a slot, if it has this key.
    ///
    /// # Safety
    ///
    /// 1. `view` is one of this table.
    /// 2. The slot is one of the bucket on this side or of its overflow buckets, and was held, and
    ///    not [being written](State::is_writing), in a state that was read after the view's counts.
    #[inline(always)]
    unsafe fn compare(
        &self,
        view: &HomesView,
        side: usize,
        (part, slot): (Part<'_, K, V>, usize),
        key: &K,
    ) -> Result<Option<PairSnapshot<K, V>>, Disturbed>
    where
        K: Eq,
    {
        let words = part.load(slot);
        if !self.is_undisturbed(view, side) && !mutant!("cuckoo_no_second_look") {
            return Err(Disturbed);
        }
        // SAFETY: the slot was held in a state that was read after the count, by 1 and 2, and the
        // count is unchanged: stores that reuse or overwrite a slot come after the change was
        // counted.
        let pair = unsafe { words.assume_whole() };
        Ok((pair.0 == *key).then_some(PairSnapshot { words, pair }))
    }

    /// Compares the slots of both buckets, which have no overflow buckets.
    ///
    /// # Safety
    ///
    /// 1. `view` is one of this table, and its states are [plain](State::are_plain).
    #[inline(always)]
    unsafe fn search_view(
        &self,
        view: &HomesView,
        homes: Homes,
        key: &K,
    ) -> Result<Option<PairSnapshot<K, V>>, Disturbed>
    where
        K: Eq,
    {
        for place in State::matches_of(view.states, homes.tag) {
            let (side, slot) = (place / SLOTS, place % SLOTS);
            let slot = (self.part(view.at[side]), slot);
            // SAFETY: the view is one of this table, by 1. The slot has a tag in the view's state,
            // which was read after the counts and is plain, so it was held and not being written
            // (2).
            if let Some(seen) = unsafe { self.compare(view, side, slot, key) }? {
                return Ok(Some(seen));
            }
        }
        if self.is_all_undisturbed(view) {
            Ok(None)
        } else {
            Err(Disturbed)
        }
    }

    /// Returns the pair of a key, in this table and its successors. Writes nothing.
    #[inline]
    pub(super) fn look_up(
        at: &TableVersion<Self>,
        homes: Homes,
        key: &K,
    ) -> Option<PairSnapshot<K, V>>
    where
        K: Eq,
    {
        let table = at.table();
        let mut backoff = Backoff::new();
        loop {
            let view = table.view(homes);
            if !State::are_plain(view.states) {
                return Self::look_up_slowly(at, homes, key, [true; 2]);
            }
            // SAFETY: `view` has read this table, and its states are plain (1).
            if let Ok(answer) = unsafe { table.search_view(&view, homes, key) } {
                return answer;
            }
            backoff.snooze();
        }
    }

    /// As [`look_up`](Self::look_up), in the wanted buckets, with their overflow buckets and the
    /// buckets they were moved to.
    #[cold]
    fn look_up_slowly(
        at: &TableVersion<Self>,
        homes: Homes,
        key: &K,
        wanted: [bool; 2],
    ) -> Option<PairSnapshot<K, V>>
    where
        K: Eq,
    {
        let table = at.table();
        let mut backoff = Backoff::new();
        loop {
            let view = table.view(homes);
            let mut moved = [0, 1].map(|side| wanted[side] && view.states[side].is_moved());
            if moved != [false; 2] && Self::move_together(at, homes) {
                // One is marked after the other, but all entries of both are in the successor
                // before: a thread that met the first mark may have changed them there.
                moved = wanted;
            }
            // In this table, the wanted buckets that were not moved; then, in the next table, those
            // that were.
            let mut answer = Ok(None);
            for side in (0..2).filter(|side| wanted[*side] && !moved[*side]) {
                // SAFETY: `view` has read this table (1).
                answer = unsafe { table.search_chain(&view, side, homes, key) };
                if !matches!(answer, Ok(None)) {
                    break;
                }
            }
            if let Ok(None) = answer
                && moved != [false; 2]
            {
                let next = at.next().expect("moved to a successor");
                answer = Ok(Self::look_up_slowly(next, homes, key, moved));
            }
            match answer {
                Ok(Some(seen)) => return Some(seen),
                // The key is absent only if the buckets are still as they were read.
                Ok(None) if table.is_same(&view, wanted, moved) => return None,
                _ => backoff.snooze(),
            }
        }
    }

    /// Whether both buckets of a key are in one group of the resize in progress.
    fn move_together(at: &TableVersion<Self>, homes: Homes) -> bool {
        let next = at.next().expect("moved to a successor").table();
        let groups = at.table().mask().min(next.mask());
        let [first, second] = [Side::First, Side::Second].map(|side| homes.bucket(side, groups));
        first == second && !mutant!("cuckoo_splits_groups")
    }

    /// Whether both stripes are unchanged, and the wanted buckets that were not moved still are
    /// not.
    fn is_same(&self, view: &HomesView, wanted: [bool; 2], moved: [bool; 2]) -> bool {
        let is_there =
            |side: usize| !wanted[side] || moved[side] || !self.state(view.at[side]).is_moved();
        let unmoved = (0..2).all(is_there) || mutant!("cuckoo_mixes_tables");
        unmoved && self.is_all_undisturbed(view)
    }

    /// Compares the slots of a bucket and of its overflow buckets.
    ///
    /// # Safety
    ///
    /// 1. `view` is one of this table.
    unsafe fn search_chain(
        &self,
        view: &HomesView,
        side: usize,
        homes: Homes,
        key: &K,
    ) -> Result<Option<PairSnapshot<K, V>>, Disturbed>
    where
        K: Eq,
    {
        let (mut part, mut state) = (self.part(view.at[side]), view.states[side]);
        loop {
            for slot in state.matches(homes.tag) {
                if state.is_writing() {
                    return Err(Disturbed);
                }
                // SAFETY: the view is one of this table, by 1. The slot has a tag in this state,
                // which is the view's or was read after it, and is not being written (2).
                if let Some(seen) = unsafe { self.compare(view, side, (part, slot), key) }? {
                    return Ok(Some(seen));
                }
            }
            let Some(id) = state.next() else {
                return Ok(None);
            };
            part = self.overflow.node(id).part();
            state = part.state();
        }
    }

    /// Copies all entries of a bucket and its overflow buckets, as they are while the bucket is
    /// unlocked. Waits for the owner of the lock.
    pub(super) fn entries(&self, bucket: usize) -> Result<Vec<CuckooEntry<K, V>>, Moved> {
        let mut backoff = Backoff::new();
        loop {
            // Acquire: as in `view`.
            let count = self.count_of(bucket).load(Acquire);
            let state = self.state(bucket);
            if state.is_moved() {
                return Err(Moved);
            }
            let is_still = !state.is_locked() || mutant!("cuckoo_walks_on");
            // SAFETY: the state was read after the count of its stripe (1).
            if is_still && let Ok(entries) = unsafe { self.copy_chain(bucket, count, state) } {
                return Ok(entries);
            }
            backoff.snooze();
        }
    }

    /// # Safety
    ///
    /// 1. `state` is the bucket's, read after its stripe's count was `count`.
    unsafe fn copy_chain(
        &self,
        bucket: usize,
        count: u64,
        state: State,
    ) -> Result<Vec<CuckooEntry<K, V>>, Disturbed> {
        let mut entries = Vec::new();
        let (mut part, mut state) = (self.part(bucket), state);
        loop {
            if state.is_writing() {
                return Err(Disturbed);
            }
            for (slot, tag) in state.used_slots() {
                let words = part.load(slot);
                self.check_count(count, bucket)?;
                // SAFETY: as in `compare`: held in a state read after the count, by 1, and the
                // count is unchanged.
                let pair = unsafe { words.assume_whole() };
                let side = state.side(slot);
                entries.push(CuckooEntry::new(pair, tag, side));
            }
            let Some(id) = state.next() else {
                break;
            };
            part = self.overflow.node(id).part();
            state = part.state();
        }
        // The entry of an overflow bucket that was seen empty may have moved into the bucket
        // meanwhile.
        if !mutant!("cuckoo_walks_past_draws") {
            self.check_count(count, bucket)?;
        }
        Ok(entries)
    }

    /// Returns an error if a change of a bucket's stripe was counted between the load of `count`
    /// and the loads before this call.
    fn check_count(&self, count: u64, bucket: usize) -> Result<(), Disturbed> {
        // Acquire, Relaxed: as in `is_undisturbed`. An overflow bucket's state without an entry
        // that has moved into the bucket is stored after the first count of that move, with
        // Release.
        fence(Acquire);
        if self.count_of(bucket).load(Relaxed) == count {
            Ok(())
        } else {
            Err(Disturbed)
        }
    }

    /// Locks a bucket. Waits for the owner of the lock.
    pub(super) fn lock(&self, bucket: usize) -> Result<LockedBucket<'_, K, V>, Moved> {
        let mut backoff = Backoff::new();
        loop {
            if let Some(locked) = self.try_lock(bucket)? {
                return Ok(locked);
            }
            backoff.snooze();
        }
    }

    /// Locks a bucket, unless another thread changes its word.
    pub(super) fn try_lock(&self, bucket: usize) -> Result<Option<LockedBucket<'_, K, V>>, Moved> {
        let word = &self.states[bucket];
        // Acquire: as in `Part::state`.
        let state = State(word.load(Acquire));
        if state.is_moved() && !mutant!("cuckoo_ignores_moved") {
            return Err(Moved);
        }
        if state.is_locked() {
            return Ok(None);
        }
        // Acquire: pairs with the Release of the previous owner, in `LockedBucket::drop`.
        let taken = word.compare_exchange_weak(state.0, state.locked().0, Acquire, Relaxed);
        if taken.is_err() {
            return Ok(None);
        }
        // SAFETY: the exchange above has locked the bucket, in this state (1).
        Ok(Some(unsafe { LockedBucket::new(self, bucket, state) }))
    }

    /// Whether an iteration over the map is in progress. (Its tables share the number: a walk
    /// continues in a successor.)
    pub(super) fn is_walked(&self) -> bool {
        // Acquire: pairs with the Release in `let_moves`. (Whether a walk that begins now is seen,
        // a fence before this decides.)
        self.budget.walks().load(Acquire) != 0
    }

    /// From now on no entry moves to its other bucket. Moves in progress hold the locks of their
    /// buckets.
    pub(super) fn hold_moves(&self) {
        // Relaxed: the fence orders it.
        self.budget.walks().fetch_add(1, Relaxed);
        // SeqCst: pairs with the fence in `displace`.
        fence(SeqCst);
    }

    pub(super) fn let_moves(&self) {
        // Release: pairs with the Acquire in `is_walked`: the walk's reads come before the next
        // move.
        self.budget.walks().fetch_sub(1, Release);
    }

    /// All words and counts, to test what is written.
    #[cfg(all(test, not(any(corewise_loom, corewise_shuttle))))]
    pub(super) fn words(&self) -> Vec<u64> {
        let all = self.states.iter().chain(self.counts.iter());
        // Relaxed: no other thread has it.
        all.map(|word| word.load(Relaxed)).collect()
    }
}

impl<K, V> Drop for CuckooTable<K, V> {
    fn drop(&mut self) {
        let words = self.states.len() + self.counts.len();
        let cells = Heads::<Cells<K, V>>::bytes(self.states.len());
        self.budget.give(cells + words * size_of::<AtomicU64>());
    }
}
