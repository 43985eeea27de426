//! One table: its memory, lookups, and locks.

use std::ops::Range;

use corewise_atomic::sync::Arc;
use corewise_atomic::sync::atomic::AtomicU64;
use corewise_atomic::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
use corewise_atomic::sync::atomic::fence;
use corewise_atomic::{Slots, hint, mutant};

use super::bucket::{Cells, Entry, Locked, Part};
use super::overflow::Overflow;
use super::state::{Homes, SLOTS, Side, State};
use crate::copy_map::space::{self, Heads, Space};
use crate::copy_map::{Moved, Stage};
use crate::pair::Torn;
use crate::waiting::Waiting;

/// The most counters of changes that a table has: 64 KiB of them stay in a processor's own cache.
#[cfg(not(corewise_stress))]
const MOST_STRIPES: usize = 1 << 13;
/// Under stress neighbours disturb each other.
#[cfg(corewise_stress)]
const MOST_STRIPES: usize = 2;

/// The table of [`CuckooMap`](super::CuckooMap).
pub struct CuckooTable<K, V> {
    /// A word for each bucket.
    states: Slots<AtomicU64>,
    /// Its cells.
    cells: Heads<Cells<K, V>>,
    /// For each stripe of buckets, how often an entry of them was removed, moved or overwritten.
    counts: Slots<AtomicU64>,
    overflow: Overflow<K, V>,
    space: Arc<Space>,
}

/// A pair that was in the table, with its words.
pub(super) struct Seen<K: Copy, V: Copy> {
    words: Torn<K, V>,
    pub(super) pair: (K, V),
}

impl<K: Copy, V: Copy> Seen<K, V> {
    /// Whether these are the same words.
    pub(super) fn is(&self, words: &Torn<K, V>) -> bool {
        self.words.is_same(words)
    }
}

/// What was read may be of different times: look again.
struct Disturbed;

/// What a lookup begins with: both buckets of a key.
struct View {
    at: [usize; 2],
    counts: [u64; 2],
    states: [State; 2],
}

impl<K: Copy, V: Copy> CuckooTable<K, V> {
    /// Pairs of more bytes do not compile.
    const FITS: () = assert!(size_of::<(K, V)>() <= 32, "a pair has at most 32 bytes");

    pub(super) fn bytes(buckets: usize) -> usize {
        let words = buckets.saturating_add(buckets.min(MOST_STRIPES));
        let words = words.saturating_mul(size_of::<AtomicU64>());
        Heads::<Cells<K, V>>::bytes(buckets).saturating_add(words)
    }

    /// As [`Table::try_new`](crate::copy_map::Table::try_new).
    pub(super) fn with_buckets(buckets: usize, space: &Arc<Space>) -> Option<Self> {
        let () = Self::FITS;
        assert!(buckets.is_power_of_two());
        if !space.take(Self::bytes(buckets)) {
            return None;
        }
        let table = || {
            Some(Self {
                states: Slots::try_zeroed(buckets)?,
                cells: Heads::try_new(buckets)?,
                counts: Slots::try_zeroed(buckets.min(MOST_STRIPES))?,
                overflow: Overflow::new(space),
                space: space.clone(),
            })
        };
        let table = table();
        if table.is_none() {
            space.give(Self::bytes(buckets));
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

    /// Where the large arrays lie.
    pub(super) fn ranges(&self) -> [Range<*const u8>; 2] {
        [self.cells.range(), space::range_of(&self.states)]
    }

    /// A bucket, without those that hang on it.
    #[inline(always)]
    pub(super) fn part(&self, bucket: usize) -> Part<'_, K, V> {
        // SAFETY: the array has as many as `word` has looked for.
        let cells = unsafe { self.cells.get_unchecked(self.within(bucket)) };
        Part {
            word: self.word(bucket),
            cells,
        }
    }

    /// The number of a bucket, whatever is asked for.
    #[inline(always)]
    fn within(&self, bucket: usize) -> usize {
        bucket & (self.states.len() - 1)
    }

    #[inline(always)]
    fn word(&self, bucket: usize) -> &AtomicU64 {
        // SAFETY: their number is a power of two, and the index a remainder of it.
        unsafe { self.states.get_unchecked(self.within(bucket)) }
    }

    #[inline(always)]
    pub(super) fn state(&self, bucket: usize) -> State {
        // Acquire: as in `Part::state`.
        State(self.word(bucket).load(Acquire))
    }

    /// Asks for a bucket's word.
    pub(super) fn prefetch_word(&self, bucket: usize) {
        hint::prefetch(self.word(bucket));
    }

    /// Asks for the first pair that a lookup may compare.
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
        // SAFETY: their number is a power of two, and the index a remainder of it.
        unsafe { self.counts.get_unchecked(stripe) }
    }

    /// Counts a change that a lookup might see half of.
    pub(super) fn count(&self, bucket: usize) {
        // AcqRel: pairs with the Acquire in `view`: who begins with this count sees what was before it. What is
        // stored with Release afterwards shows the count to whoever sees that, at the second look.
        self.count_of(bucket).fetch_add(1, AcqRel);
    }

    #[inline(always)]
    fn view(&self, homes: Homes) -> View {
        let at = [Side::First, Side::Second].map(|side| homes.bucket(side, self.mask()));
        // Now, and not when the words have come and say which pair it is: that is one wait instead of two.
        for bucket in at {
            self.part(bucket).prefetch(0);
        }
        // Acquire: pairs with the AcqRel in `count`.
        let counts = at.map(|bucket| self.count_of(bucket).load(Acquire));
        let states = at.map(|bucket| self.state(bucket));
        View { at, counts, states }
    }

    /// Whether nothing was removed, moved or overwritten in the stripe of one of the buckets, between the view and
    /// the loads before this one.
    #[inline(always)]
    fn is_undisturbed(&self, view: &View, side: usize) -> bool {
        // Acquire: pairs with the fence (Release) in `Part::fill`, and orders the loads of cells before the second
        // look.
        fence(Acquire);
        // Relaxed: only to be compared.
        self.count_of(view.at[side]).load(Relaxed) == view.counts[side]
    }

    /// Whether both stripes are as they were.
    #[inline(always)]
    fn is_all_undisturbed(&self, view: &View) -> bool {
        let second = self.is_undisturbed(view, 1) || mutant!("cuckoo_one_stripe");
        self.is_undisturbed(view, 0) && second
    }

    /// The pair of a slot, if it has this key.
    #[inline(always)]
    fn compare(
        &self,
        view: &View,
        side: usize,
        (part, slot): (Part<'_, K, V>, usize),
        key: &K,
    ) -> Result<Option<Seen<K, V>>, Disturbed>
    where
        K: Eq,
    {
        let words = part.load(slot);
        if !self.is_undisturbed(view, side) && !mutant!("cuckoo_no_second_look") {
            return Err(Disturbed);
        }
        // SAFETY: the slot was held in a state that was read after the count, and is as it was: what is written to a
        // slot that is used again, or is overwritten, is written after it was counted.
        let pair = unsafe { words.assume_whole() };
        Ok((pair.0 == *key).then_some(Seen { words, pair }))
    }

    /// Compares the slots of both buckets, where there is nothing but these.
    #[inline(always)]
    fn look(&self, view: &View, homes: Homes, key: &K) -> Result<Option<Seen<K, V>>, Disturbed>
    where
        K: Eq,
    {
        for place in State::matches_of(view.states, homes.tag) {
            let (side, slot) = (place / SLOTS, place % SLOTS);
            let slot = (self.part(view.at[side]), slot);
            if let Some(seen) = self.compare(view, side, slot, key)? {
                return Ok(Some(seen));
            }
        }
        if self.is_all_undisturbed(view) {
            Ok(None)
        } else {
            Err(Disturbed)
        }
    }

    /// The pair of a key, in this table and its successors. Writes nothing.
    #[inline]
    pub(super) fn look_up(at: &Stage<Self>, homes: Homes, key: &K) -> Option<Seen<K, V>>
    where
        K: Eq,
    {
        let table = at.table();
        loop {
            let view = table.view(homes);
            if !State::are_plain(view.states) {
                return Self::look_around(at, homes, key, [true; 2]);
            }
            if let Ok(answer) = table.look(&view, homes, key) {
                return answer;
            }
            Self::pause();
        }
    }

    /// As [`look_up`](Self::look_up), in some of both buckets, with what hangs on them and where they were moved to.
    #[cold]
    fn look_around(at: &Stage<Self>, homes: Homes, key: &K, wanted: [bool; 2]) -> Option<Seen<K, V>>
    where
        K: Eq,
    {
        let table = at.table();
        loop {
            let view = table.view(homes);
            let mut moved = [0, 1].map(|side| wanted[side] && view.states[side].is_moved());
            if moved != [false; 2] && Self::move_together(at, homes) {
                // One is marked after the other, but all entries of both are in the successor before: who has met
                // the first mark may have changed them there.
                moved = wanted;
            }
            let mut answer = Ok(None);
            for side in (0..2).filter(|side| wanted[*side] && !moved[*side]) {
                answer = table.look_in_chain(&view, side, homes, key);
                if !matches!(answer, Ok(None)) {
                    break;
                }
            }
            if let Ok(None) = answer
                && moved != [false; 2]
            {
                let next = at.next().expect("moved to a successor");
                answer = Ok(Self::look_around(next, homes, key, moved));
            }
            match answer {
                Ok(Some(seen)) => return Some(seen),
                Ok(None) if table.is_same(&view, wanted, moved) => return None,
                _ => Self::pause(),
            }
        }
    }

    /// Whether both buckets of a key are of one group, in a resize that is under way.
    fn move_together(at: &Stage<Self>, homes: Homes) -> bool {
        let next = at.next().expect("moved to a successor").table();
        let groups = at.table().mask().min(next.mask());
        let [first, second] = [Side::First, Side::Second].map(|side| homes.bucket(side, groups));
        first == second && !mutant!("cuckoo_splits_groups")
    }

    /// Whether both stripes are as they were, and those of the wanted buckets where they were that were not moved.
    fn is_same(&self, view: &View, wanted: [bool; 2], moved: [bool; 2]) -> bool {
        let is_there =
            |side: usize| !wanted[side] || moved[side] || !self.state(view.at[side]).is_moved();
        let unmoved = (0..2).all(is_there) || mutant!("cuckoo_mixes_tables");
        unmoved && self.is_all_undisturbed(view)
    }

    /// Compares the slots of a bucket and of those that hang on it.
    fn look_in_chain(
        &self,
        view: &View,
        side: usize,
        homes: Homes,
        key: &K,
    ) -> Result<Option<Seen<K, V>>, Disturbed>
    where
        K: Eq,
    {
        let (mut part, mut state) = (self.part(view.at[side]), view.states[side]);
        loop {
            for slot in state.matches(homes.tag) {
                if state.is_writing() {
                    return Err(Disturbed);
                }
                if let Some(seen) = self.compare(view, side, (part, slot), key)? {
                    return Ok(Some(seen));
                }
            }
            let Some(name) = state.next() else {
                return Ok(None);
            };
            part = self.overflow.node(name).part();
            state = part.state();
        }
    }

    fn pause() {
        hint::spin_loop();
    }

    /// All entries of a bucket and of those that hang on it, as they are while nobody has it locked. Waits for one
    /// who has.
    pub(super) fn entries(&self, bucket: usize) -> Result<Vec<Entry<K, V>>, Moved> {
        let mut waiting = Waiting::default();
        loop {
            // Acquire: as in `view`.
            let count = self.count_of(bucket).load(Acquire);
            let state = self.state(bucket);
            if state.is_moved() {
                return Err(Moved);
            }
            let is_still = !state.is_locked() || mutant!("cuckoo_walks_on");
            if is_still && let Ok(entries) = self.copy_chain(bucket, count, state) {
                return Ok(entries);
            }
            waiting.a_moment();
        }
    }

    fn copy_chain(
        &self,
        bucket: usize,
        count: u64,
        state: State,
    ) -> Result<Vec<Entry<K, V>>, Disturbed> {
        let mut entries = Vec::new();
        let (mut part, mut state) = (self.part(bucket), state);
        loop {
            if state.is_writing() {
                return Err(Disturbed);
            }
            for (slot, tag) in state.held() {
                let words = part.load(slot);
                // Acquire, Relaxed: as in `is_undisturbed`.
                fence(Acquire);
                if self.count_of(bucket).load(Relaxed) != count {
                    return Err(Disturbed);
                }
                // SAFETY: as in `compare`.
                let pair = unsafe { words.assume_whole() };
                let side = state.side(slot);
                entries.push(Entry::new(pair, tag, side));
            }
            let Some(name) = state.next() else {
                return Ok(entries);
            };
            part = self.overflow.node(name).part();
            state = part.state();
        }
    }

    /// Locks a bucket. Waits for one who has it locked.
    pub(super) fn lock(&self, bucket: usize) -> Result<Locked<'_, K, V>, Moved> {
        let mut waiting = Waiting::default();
        loop {
            if let Some(locked) = self.try_lock(bucket)? {
                return Ok(locked);
            }
            waiting.a_moment();
        }
    }

    /// Locks a bucket, unless somebody else changes its word.
    pub(super) fn try_lock(&self, bucket: usize) -> Result<Option<Locked<'_, K, V>>, Moved> {
        let word = &self.states[bucket];
        // Acquire: as in `Part::state`.
        let state = State(word.load(Acquire));
        if state.is_moved() && !mutant!("cuckoo_ignores_moved") {
            return Err(Moved);
        }
        if state.is_locked() {
            return Ok(None);
        }
        // Acquire: pairs with the Release of the last owner, in `Locked::drop`.
        let taken = word.compare_exchange_weak(state.0, state.locked().0, Acquire, Relaxed);
        if taken.is_err() {
            return Ok(None);
        }
        // SAFETY: 1: just now.
        Ok(Some(unsafe { Locked::new(self, bucket, state) }))
    }

    /// Whether somebody iterates over the map. (Its tables share the number: a walk goes on in a successor.)
    pub(super) fn is_walked(&self) -> bool {
        // Relaxed: a fence is before it.
        self.space.walks().load(Relaxed) != 0
    }

    /// From now on no entry moves to its other bucket. Those that are moving are in buckets that are locked.
    pub(super) fn hold_moves(&self) {
        // Relaxed: the fence orders it.
        self.space.walks().fetch_add(1, Relaxed);
        // SeqCst: pairs with the one in `displace`.
        fence(SeqCst);
    }

    pub(super) fn let_moves(&self) {
        // Release: what the walk has read is before what moves next.
        self.space.walks().fetch_sub(1, Release);
    }

    /// All words and counts, for tests of what is written.
    #[cfg(all(test, not(any(corewise_loom, corewise_shuttle))))]
    pub(super) fn words(&self) -> Vec<u64> {
        let all = self.states.iter().chain(self.counts.iter());
        // Relaxed: nobody else is there.
        all.map(|word| word.load(Relaxed)).collect()
    }
}

impl<K, V> Drop for CuckooTable<K, V> {
    fn drop(&mut self) {
        let words = self.states.len() + self.counts.len();
        let cells = Heads::<Cells<K, V>>::bytes(self.states.len());
        self.space.give(cells + words * size_of::<AtomicU64>());
    }
}
