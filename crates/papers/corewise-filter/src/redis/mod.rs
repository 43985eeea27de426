//! The cuckoo filter of RedisBloom, for a server that has its `CF.*` commands: the same answers and
//! the same bytes in a dump, but lookups take no lock.
//!
//! ```
//! use corewise_filter::redis::{CuckooSettings, RedisCuckoo, WhileCompacting, item_hash};
//!
//! let no_bound = &mut |_| true;
//! let filter = RedisCuckoo::new(CuckooSettings::default(), no_bound)?;
//! let hash = item_hash(b"item");
//! filter.add(hash, WhileCompacting::Refuse, no_bound)?;
//! assert!(filter.contains(hash));
//! assert!(filter.remove(hash, WhileCompacting::Refuse)?.is_removed);
//! assert!(!filter.contains(hash));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Programs use [`CuckooFilter`](crate::CuckooFilter) or [`GrowingFilter`](crate::GrowingFilter):
//! their fingerprints have the width that a rate of false positives needs, and their hash is keyed.
//! Here a fingerprint has 8 bits: with b slots in a bucket 2b/255 of absent items are found in a
//! full subfilter, 1.6 % by default, and the same again in each further one.
//!
//! # Source
//!
//! \[RedisBloom\]: its documentation, its wire format, and the behaviour of version 2.8.2, whose
//! dumps are in `tests/data`. The structure is that of \[CuckooFilter\]; lookups follow \[MemC3\].
//!
//! An item's hash h is \[MurmurHash64A\] with seed 0. Its fingerprint is h mod 255 + 1, its buckets
//! are h and h ⊕ fingerprint · 0x5bd1e995, modulo the buckets of a subfilter. A filter has up to 32
//! subfilters, each with e times the buckets of the one before. An insertion takes the first free
//! slot, of the newest subfilter first; else it swaps fingerprints in the newest (`kick`); else
//! the filter grows. A removal takes the newest copy. When more than a tenth of the items were
//! removed, items move from the newest subfilter to older ones (`compaction`).
//!
//! Deviations:
//!
//! - Swaps are planned before any of them is made, so a failing insertion stores nothing. The
//!   result is that of RedisBloom, which swaps back.
//! - Compaction runs in bounded steps. Between them updates are refused, or run beside it if their
//!   caller cannot wait: [`WhileCompacting`].
//! - A chunk of a dump begins at its iterator. RedisBloom returns a whole small subfilter for every
//!   iterator inside it, which is the same for iterators that it has returned.
//! - Counts of items saturate: a header may claim any number of items.
//!
//! # Memory
//!
//! ```text
//! RedisCuckoo ─┬─ subfilters [32] ─▶ pieces of 1 MiB ─▶ words of eight slots of a byte
//!              ├─ count      of them in use; the others are absent, or spare and zero
//!              ├─ versions   [u64; ≤ 64], one for each stripe of buckets
//!              └─ lock       items, deletions, compaction, bytes
//! ```
//!
//! All memory of a subfilter is asked of the caller and allocated before the filter uses it. A
//! subfilter that compaction has emptied is kept as a *spare*, because a lookup may still read it.
//! The filter takes it again when it grows, without asking. [`RedisCuckoo::bytes`] counts spares.
//! [`RedisCuckoo::take_spares`] and [`RedisCuckoo::into_memory`] give memory back, to be freed in
//! steps.
//!
//! # Guarantees
//!
//! 1. *No false negative*, beyond those of the structure: if an item was inserted before a call of
//!    `contains` begins, and its copy is not removed before it ends, the call returns true,
//!    whatever other threads insert, remove, swap or compact. The removal of an item that was not
//!    inserted may remove the copy of another, as in every cuckoo filter. Otherwise a removal hides
//!    no other item: items that look alike in a subfilter do so in all older ones, and the newest
//!    copy goes first.
//! 2. *Atomicity.* Insertions, removals, counts and negative answers of one item are linearizable,
//!    where items with the same fingerprint and buckets are one. `load_chunk` is no insertion:
//!    lookups beside it see some of its slots.
//! 3. *Progress.* `contains` and `count` take no lock and write nothing, unless 64 rounds were
//!    disturbed; then they wait for the lock. A miss waits for no compaction and no removal. It
//!    repeats while an insertion stores a path that visits a slot twice, or a chunk is loaded.
//!    All others wait for the lock, under which no other code runs but the caller's permission to
//!    allocate. It is held for at most MAXITERATIONS swaps, [`STEP_WORK`], the work that the caller
//!    asks of a step, one chunk, or the allocation of a subfilter.
//! 4. *Determinism.* The same calls by one thread leave the same bytes, those of RedisBloom. With
//!    several threads the order of the lock is the sequence.
//! 5. *Full.* A refused item changes nothing.
//! 6. *Hostile input.* No item, header or chunk makes a method panic. Nothing is allocated for a
//!    header before it was checked and its bytes were permitted.
//!
//! # Lookups beside stores
//!
//! A lookup:
//!
//! 1. reads the versions of the item's two stripes, *Acquire*;
//! 2. reads the number of subfilters, *Acquire*, and the buckets in all of them, *Relaxed*. A match
//!    is the answer;
//! 3. *Acquire* fence; reads the versions again. If they are equal and not UNSETTLED, the item is
//!    absent. Otherwise it repeats.
//!
//! A store that may clear or overwrite a copy:
//!
//! 10. stores MOVING or UNSETTLED in the versions of all stripes of the path, *Release*; fence;
//! 11. from the end of the path: adds a change to the stripe's version, *Release*; fence; stores
//!     the slot, *Relaxed*;
//! 12. removes the state from the versions and adds a change, *Release*.
//!
//! A lookup that misses a copy has read its new slot before 11 stored it, and its old slot after
//! another 11 overwrote it. Its fence pairs with the one before the second store, so its second
//! look sees that change. Its first look cannot have seen the change, or it would have seen the
//! first store. So the versions differ. A count needs more: it must not see both copies, so it is
//! right only where neither look has a state. A path that visits a slot twice has no order in which
//! 11 keeps all copies, so it is UNSETTLED, and no miss is right meanwhile.
//!
//! An insertion into a free slot is one store without a change. A removal is 11 alone. Both keep
//! all other copies where they are.
//!
//! Growth: the subfilter is set, then `count` is stored, *Release*, which pairs with the load in 2.
//! When `count` falls, all copies have been moved before, so a lookup that reads the new number
//! reads them, and one that reads the old number reads zeros.

mod compaction;
mod dump;
mod hash;
mod kick;
#[cfg(test)]
mod models;
#[cfg(all(test, not(any(corewise_loom, corewise_shuttle))))]
mod stress;
mod subfilter;
#[cfg(all(test, not(any(corewise_loom, corewise_shuttle))))]
mod tests;
mod versions;

use std::error::Error;
use std::fmt;
use std::sync::OnceLock;

use corewise_atomic::lock::Mutex;
use corewise_atomic::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use corewise_atomic::sync::atomic::{AtomicU64, AtomicUsize};
use corewise_atomic::{Backoff, Slots, mutant};

use compaction::CompactionCursor;
use hash::FiledItem;
use kick::KickPath;
use subfilter::{Subfilter, SubfilterSize};
use versions::{MOVING, StripeVersions, UNSETTLED};

pub use compaction::STEP_WORK;
pub use dump::{ChunkError, HEADER_BYTES, HeaderError, MAX_CHUNK};
pub use hash::item_hash;

/// The most subfilters. A filter with as many takes no more items, even if slots are free.
pub const MAX_SUBFILTERS: usize = 32;
/// The most slots in a bucket.
pub const MAX_BUCKET_SLOTS: u16 = 255;
/// The greatest expansion.
pub const MAX_EXPANSION: u16 = 1 << 15;

/// Rounds after which a lookup that is disturbed each time takes the lock.
const LOOKUP_ROUNDS: u32 = if cfg!(corewise_loom) { 3 } else { 64 };

/// What `CF.RESERVE` is told. The default is that of `CF.ADD` to a missing key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CuckooSettings {
    /// Items of the first subfilter. Its buckets are `capacity / bucket_slots`, rounded up to a
    /// power of two.
    pub capacity: u64,
    /// Slots in a bucket, 1 to [`MAX_BUCKET_SLOTS`].
    pub bucket_slots: u16,
    /// The most swaps of an insertion, at least 1.
    pub max_iterations: u16,
    /// How many times the buckets of the newest subfilter the next one has, at most
    /// [`MAX_EXPANSION`]; rounded up to a power of two. With 0 the filter does not grow.
    pub expansion: u16,
}

impl Default for CuckooSettings {
    fn default() -> Self {
        Self {
            capacity: 1_024,
            bucket_slots: 2,
            max_iterations: 20,
            expansion: 1,
        }
    }
}

/// What all subfilters have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct CuckooShape {
    /// Of the first subfilter: a power of two.
    buckets: u64,
    bucket_slots: u16,
    max_iterations: u16,
    /// A power of two, or 0.
    expansion: u16,
}

impl CuckooShape {
    /// `None` if a number is out of range.
    fn checked(self) -> Option<Self> {
        let is_right = self.buckets.is_power_of_two()
            && (1..=MAX_BUCKET_SLOTS).contains(&self.bucket_slots)
            && self.max_iterations > 0
            && (self.expansion == 0 || self.expansion.is_power_of_two());
        is_right.then_some(self)
    }

    /// The size of the subfilter with this index; `None` if it has no such.
    fn subfilter(self, index: usize) -> Option<SubfilterSize> {
        let growth = u64::from(self.expansion).checked_pow(index as u32)?;
        let size = SubfilterSize {
            buckets: self.buckets.checked_mul(growth)?,
            bucket_slots: self.bucket_slots.into(),
        };
        (growth > 0 && size.slots().is_some()).then_some(size)
    }
}

/// A number of the settings is out of range, or there is no memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CreateError {
    /// A number is out of range.
    Range,
    /// The permission was refused, or the system has no memory.
    NoMemory,
}

/// Why an item was not inserted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddError {
    /// A compaction runs: try again after its next steps.
    Busy,
    /// No slot was found, and the filter does not grow.
    Full,
    /// The filter has [`MAX_SUBFILTERS`].
    MaxSubfilters,
    /// The permission was refused, or the system has no memory.
    NoMemory,
}

/// A compaction runs: try again after its next steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompactionRuns;

impl fmt::Display for CreateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Range => "a setting of the filter is out of range",
            Self::NoMemory => "no memory for the filter",
        })
    }
}

impl fmt::Display for AddError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Busy => "the filter is being compacted",
            Self::Full => "the filter is full",
            Self::MaxSubfilters => "the filter has its most subfilters",
            Self::NoMemory => "no memory for another subfilter",
        })
    }
}

impl fmt::Display for CompactionRuns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the filter is being compacted")
    }
}

impl Error for CreateError {}
impl Error for AddError {}
impl Error for CompactionRuns {}

impl From<CompactionRuns> for AddError {
    fn from(_: CompactionRuns) -> Self {
        Self::Busy
    }
}

/// What an update does while a compaction runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhileCompacting {
    /// Nothing: it is refused.
    Refuse,
    /// It runs beside the compaction. Its answer is the same, but items may end in other slots than
    /// those of RedisBloom, so dumps may differ.
    Proceed,
}

/// What a removal has done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CuckooRemoval {
    /// Whether a copy was found.
    pub is_removed: bool,
    /// Whether a compaction has begun that the caller must finish by
    /// [`compact_step`](RedisCuckoo::compact_step).
    pub must_compact: bool,
}

/// What `CF.INFO` tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CuckooInfo {
    /// The bytes that RedisBloom would report: not those of this filter, see
    /// [`RedisCuckoo::bytes`].
    pub size: u64,
    /// Buckets of the first subfilter.
    pub buckets: u64,
    /// Subfilters.
    pub subfilters: u64,
    /// Items that were inserted and not removed.
    pub items: u64,
    /// Items that were removed since the last compaction.
    pub deletions: u64,
    /// Slots in a bucket.
    pub bucket_slots: u16,
    /// The expansion.
    pub expansion: u16,
    /// The most swaps of an insertion.
    pub max_iterations: u16,
}

/// What only the holder of the lock reads and changes.
struct WriterState {
    items: u64,
    deletions: u64,
    /// Of all subfilters, spares included.
    bytes: u64,
    compaction: Option<CompactionCursor>,
}

impl WriterState {
    fn ready(&self, beside: WhileCompacting) -> Result<(), CompactionRuns> {
        match beside {
            WhileCompacting::Refuse if self.compaction.is_some() => Err(CompactionRuns),
            _ => Ok(()),
        }
    }

    /// Counts an item that was inserted, which a compaction may not have seen.
    fn count_added(&mut self) {
        self.items = self.items.saturating_add(1);
        self.keep_subfilter();
    }

    /// Tells a compaction that its subfilter may have slots that it has passed.
    fn keep_subfilter(&mut self) {
        if let Some(cursor) = &mut self.compaction
            && !mutant!("redis_pops_unseen")
        {
            cursor.keeps = true;
        }
    }
}

/// A permission to allocate that many bytes.
pub type Permission<'p> = &'p mut dyn FnMut(u64) -> bool;

/// The cuckoo filter of RedisBloom. See the [module](self).
pub struct RedisCuckoo {
    /// The first `count` are in use. `OnceLock` is `std`'s: what orders the accesses of other
    /// threads is `count`.
    subfilters: [OnceLock<Box<Subfilter>>; MAX_SUBFILTERS],
    count: AtomicUsize,
    versions: StripeVersions,
    writer: Mutex<WriterState>,
    shape: CuckooShape,
}

/// A slot and what is stored in it.
#[derive(Clone, Copy)]
struct SlotStore<'f> {
    subfilter: &'f Subfilter,
    slot: u64,
    value: u8,
}

impl RedisCuckoo {
    /// An empty filter.
    ///
    /// # Errors
    ///
    /// If a setting is out of range, the permission for [`bytes`](Self::bytes) is refused, or the
    /// system has no memory.
    ///
    /// Complexity: allocates the first subfilter, zeroed by the system.
    pub fn new(settings: CuckooSettings, may: Permission<'_>) -> Result<Self, CreateError> {
        let slots = u64::from(settings.bucket_slots.max(1));
        let shape = CuckooShape {
            buckets: (settings.capacity / slots)
                .checked_next_power_of_two()
                .ok_or(CreateError::Range)?,
            bucket_slots: settings.bucket_slots,
            max_iterations: settings.max_iterations,
            // Too great a number becomes none at all, or one that is refused.
            expansion: match settings.expansion {
                0 => 0,
                expansion => expansion
                    .checked_next_power_of_two()
                    .ok_or(CreateError::Range)?,
            },
        };
        let shape = shape.checked().ok_or(CreateError::Range)?;
        shape.subfilter(0).ok_or(CreateError::Range)?;
        Self::with_subfilters(shape, 1, may).ok_or(CreateError::NoMemory)
    }

    /// `None` if the bytes are not permitted, or there is no memory. The shape has that many
    /// subfilters.
    fn with_subfilters(shape: CuckooShape, count: usize, may: Permission<'_>) -> Option<Self> {
        let sizes = || (0..count).map(|index| shape.subfilter(index));
        let bytes = sizes().try_fold(0_u64, |sum, size| sum.checked_add(size?.bytes()?))?;
        let stripes = 8 * shape.buckets.min(versions::MAX_STRIPES);
        if !may(bytes.checked_add(size_of::<Self>() as u64 + stripes)?) {
            return None;
        }
        let subfilters = [const { OnceLock::new() }; MAX_SUBFILTERS];
        for (cell, size) in subfilters.iter().zip(sizes()) {
            let _ = cell.set(Box::new(Subfilter::new(size?)?));
        }
        Some(Self {
            subfilters,
            count: AtomicUsize::new(count),
            versions: StripeVersions::new(shape.buckets)?,
            writer: Mutex::new(WriterState {
                items: 0,
                deletions: 0,
                bytes,
                compaction: None,
            }),
            shape,
        })
    }

    /// Whether the item with this [hash](item_hash) is in the filter, or looks like one that is.
    ///
    /// Complexity: reads two buckets of each subfilter. Lock-free, see the [module](self), 3.
    #[inline]
    #[must_use]
    pub fn contains(&self, hash: u64) -> bool {
        let item = FiledItem::new(hash);
        self.look(&item, UNSETTLED, || self.finds(&item).then_some(true))
            .unwrap_or(false)
    }

    /// The copies of the item with this hash, and of those that look like it. Those whose two
    /// buckets are the same are counted twice, as in RedisBloom.
    ///
    /// Complexity: as [`contains`](Self::contains).
    #[must_use]
    pub fn count(&self, hash: u64) -> u64 {
        let item = FiledItem::new(hash);
        let mut copies = 0;
        let states = if mutant!("redis_counts_moves") {
            UNSETTLED
        } else {
            UNSETTLED | MOVING
        };
        self.look(&item, states, || {
            copies = self.copies(&item);
            None::<()>
        });
        copies
    }

    /// Calls `read` until it returns something, or nothing was cleared and no state was set
    /// meanwhile.
    #[inline(always)]
    fn look<R>(
        &self,
        item: &FiledItem,
        states: u64,
        mut read: impl FnMut() -> Option<R>,
    ) -> Option<R> {
        let mut backoff = Backoff::new();
        for _ in 0..LOOKUP_ROUNDS {
            let seen = self.versions.read(item.buckets);
            let found = read();
            if found.is_some() || self.versions.is_unchanged(item.buckets, seen, states) {
                return found;
            }
            backoff.spin();
        }
        let _writer = self.writer.lock();
        read()
    }

    /// The subfilters in use, from the oldest.
    #[inline(always)]
    fn in_use(&self) -> impl DoubleEndedIterator<Item = &Subfilter> {
        // Acquire: pairs with the Release in `grow` and `pop`: the subfilters are set, and what
        // left a popped one is in the others.
        let count = self.count.load(Acquire);
        let subfilters = self.subfilters[..count].iter();
        subfilters.map(|cell| &**cell.get().expect("the first `count` are set"))
    }

    #[inline(always)]
    fn finds(&self, item: &FiledItem) -> bool {
        let [first, second] = item.buckets;
        self.in_use().rev().any(|subfilter| {
            subfilter.find(first, item.fingerprint).is_some()
                || subfilter.find(second, item.fingerprint).is_some()
        })
    }

    fn copies(&self, item: &FiledItem) -> u64 {
        let buckets = item.buckets.iter();
        let slots = buckets.map(|&bucket| {
            let copies = self.in_use();
            copies.map(move |subfilter| subfilter.count(bucket, item.fingerprint))
        });
        slots.flatten().sum()
    }

    /// Inserts a copy of the item with this hash. If the filter must grow, it asks for the bytes of
    /// the new subfilter: see [`growth_bytes`](Self::growth_bytes).
    ///
    /// # Errors
    ///
    /// See [`AddError`]. Nothing has changed.
    ///
    /// Complexity: MAXITERATIONS swaps, and the allocation of a subfilter.
    pub fn add(
        &self,
        hash: u64,
        beside: WhileCompacting,
        may: Permission<'_>,
    ) -> Result<(), AddError> {
        let mut state = self.writer.lock();
        state.ready(beside)?;
        self.check_subfilters()?;
        self.insert(&mut state, &FiledItem::new(hash), may)
    }

    /// Inserts the item with this hash unless it is found; returns whether it was inserted.
    ///
    /// # Errors
    ///
    /// See [`add`](Self::add); [`AddError::MaxSubfilters`] also if the item is found, as in
    /// RedisBloom.
    pub fn add_nx(
        &self,
        hash: u64,
        beside: WhileCompacting,
        may: Permission<'_>,
    ) -> Result<bool, AddError> {
        let mut state = self.writer.lock();
        state.ready(beside)?;
        self.check_subfilters()?;
        let item = FiledItem::new(hash);
        if self.finds(&item) {
            return Ok(false);
        }
        self.insert(&mut state, &item, may)?;
        Ok(true)
    }

    fn check_subfilters(&self) -> Result<(), AddError> {
        // Relaxed: only the holder of the lock stores it.
        let count = self.count.load(Relaxed);
        let is_right = count < MAX_SUBFILTERS;
        is_right.then_some(()).ok_or(AddError::MaxSubfilters)
    }

    fn insert(
        &self,
        state: &mut WriterState,
        item: &FiledItem,
        may: Permission<'_>,
    ) -> Result<(), AddError> {
        let is_stored = self.store_in_free_slot(item) || self.kick(item);
        if !is_stored {
            if self.shape.expansion == 0 {
                return Err(AddError::Full);
            }
            self.grow(state, may)?;
            self.store_in_free_slot(item);
        }
        state.count_added();
        Ok(())
    }

    /// The first slot of the item's buckets with this value.
    fn find_slot(subfilter: &Subfilter, item: &FiledItem, value: u8) -> Option<u64> {
        let slots = item.buckets.iter();
        slots
            .filter_map(|&bucket| subfilter.find(bucket, value))
            .next()
    }

    fn store_in_free_slot(&self, item: &FiledItem) -> bool {
        let free = self.in_use().rev().find_map(|subfilter| {
            let slot = Self::find_slot(subfilter, item, 0)?;
            Some((subfilter, slot))
        });
        if let Some((subfilter, slot)) = free {
            subfilter.set(slot, item.fingerprint);
        }
        free.is_some()
    }

    fn kick(&self, item: &FiledItem) -> bool {
        let newest = self.in_use().next_back().expect("there is at least one");
        let Some(path) = KickPath::find(newest, item, self.shape.max_iterations) else {
            return false;
        };
        let as_store = |&(slot, value)| SlotStore {
            subfilter: newest,
            slot,
            value,
        };
        let stores = path.stores().iter();
        if mutant!("redis_kicks_forward") {
            self.store(stores.map(as_store), MOVING);
        } else if path.has_repeats() && !mutant!("redis_settled_repeats") {
            self.store(stores.rev().map(as_store), UNSETTLED);
        } else {
            self.store(stores.rev().map(as_store), MOVING);
        }
        true
    }

    /// Makes stores so that lookups miss nothing that is stored before it is overwritten; or
    /// nothing at all, with UNSETTLED.
    fn store<'f>(&'f self, stores: impl Iterator<Item = SlotStore<'f>> + Clone, state: u64) {
        let stripes = stores
            .clone()
            .fold(0, |set, store| set | 1 << self.stripe_of(&store));
        self.versions.open(stripes, state);
        for store in stores {
            if state != UNSETTLED && !mutant!("redis_unannounced") {
                self.versions.announce(self.stripe_of(&store));
            }
            store.subfilter.set(store.slot, store.value);
            // Tests make the moment long in which a path is stored in part.
            #[cfg(all(test, not(any(corewise_loom, corewise_shuttle))))]
            std::thread::yield_now();
        }
        self.versions.close(stripes);
    }

    fn stripe_of(&self, store: &SlotStore<'_>) -> usize {
        let bucket = store.subfilter.bucket_of_slot(store.slot);
        self.versions.stripe(bucket)
    }

    /// Adds a subfilter, or takes the spare one.
    fn grow(&self, state: &mut WriterState, may: Permission<'_>) -> Result<(), AddError> {
        // Relaxed: only the holder of the lock stores it.
        let count = self.count.load(Relaxed);
        let cell = &self.subfilters[count];
        if cell.get().is_none() {
            let size = self.shape.subfilter(count).ok_or(AddError::NoMemory)?;
            let bytes = size.bytes().ok_or(AddError::NoMemory)?;
            let subfilter = may(bytes).then(|| Subfilter::new(size)).flatten();
            let _ = cell.set(Box::new(subfilter.ok_or(AddError::NoMemory)?));
            state.bytes += bytes;
        }
        // Release: pairs with the Acquire in `in_use`, so that the subfilter is set.
        self.count.store(count + 1, Release);
        Ok(())
    }

    /// Removes a copy of the item with this hash, from the newest subfilter that has one.
    ///
    /// If more than a tenth of the items have been removed, this begins a compaction, and does
    /// [`STEP_WORK`] of it.
    ///
    /// # Errors
    ///
    /// If a compaction runs.
    pub fn remove(
        &self,
        hash: u64,
        beside: WhileCompacting,
    ) -> Result<CuckooRemoval, CompactionRuns> {
        let mut state = self.writer.lock();
        state.ready(beside)?;
        let item = FiledItem::new(hash);
        let found = self.in_use().rev().find_map(|subfilter| {
            let slot = Self::find_slot(subfilter, &item, item.fingerprint)?;
            Some((subfilter, slot))
        });
        let Some((subfilter, slot)) = found else {
            return Ok(CuckooRemoval {
                is_removed: false,
                must_compact: false,
            });
        };
        let bucket = subfilter.bucket_of_slot(slot);
        if !mutant!("redis_removes_unannounced") {
            self.versions.announce(self.versions.stripe(bucket));
        }
        subfilter.set(slot, 0);
        state.items = state.items.saturating_sub(1);
        state.deletions = state.deletions.saturating_add(1);
        Ok(CuckooRemoval {
            is_removed: true,
            must_compact: self.compact_after_removal(&mut state),
        })
    }

    /// What `CF.INFO` tells.
    ///
    /// # Errors
    ///
    /// If a compaction runs.
    pub fn info(&self, beside: WhileCompacting) -> Result<CuckooInfo, CompactionRuns> {
        let state = self.writer.lock();
        state.ready(beside)?;
        let slots: u64 = self.in_use().map(Subfilter::slots).sum();
        let subfilters = self.in_use().count() as u64;
        Ok(CuckooInfo {
            size: 40 + 16 * subfilters + slots,
            buckets: self.shape.buckets,
            subfilters,
            items: state.items,
            deletions: state.deletions,
            bucket_slots: self.shape.bucket_slots,
            expansion: self.shape.expansion,
            max_iterations: self.shape.max_iterations,
        })
    }

    /// The bytes that the filter takes, spares included.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        size_of::<Self>() as u64 + self.versions.bytes() + self.writer.lock().bytes
    }

    /// The bytes that the next growth asks for; 0 if it asks for none. So a caller can reserve them
    /// before an insertion.
    #[must_use]
    pub fn growth_bytes(&self) -> u64 {
        let _writer = self.writer.lock();
        // Relaxed: only the holder of the lock stores it.
        let count = self.count.load(Relaxed);
        let cell = self.subfilters.get(count);
        let size = cell
            .filter(|cell| cell.get().is_none())
            .and_then(|_| self.shape.subfilter(count));
        size.and_then(SubfilterSize::bytes).unwrap_or(0)
    }

    /// Takes the memory of the subfilters that compaction has emptied.
    pub fn take_spares(&mut self) -> CuckooMemory {
        let state = self.writer.get_mut();
        // Relaxed: the filter is exclusively borrowed.
        let count = self.count.load(Relaxed);
        let cells = self.subfilters[count..].iter_mut();
        let mut memory = CuckooMemory { pieces: Vec::new() };
        for subfilter in cells.filter_map(OnceLock::take) {
            state.bytes -= subfilter.size().bytes().expect("it was counted");
            memory.pieces.push(subfilter.into_pieces());
        }
        memory
    }

    /// A copy without spares; `None` if there is no memory. A compaction that runs goes on in the
    /// copy too.
    ///
    /// Complexity: copies all subfilters, under the lock.
    #[must_use]
    pub fn try_clone(&self) -> Option<Self> {
        let state = self.writer.lock();
        let count = self.in_use().count();
        let mut copy = Self::with_subfilters(self.shape, count, &mut |_| true)?;
        for (to, from) in copy.in_use().zip(self.in_use()) {
            to.copy_from(from);
        }
        let copied = copy.writer.get_mut();
        copied.items = state.items;
        copied.deletions = state.deletions;
        copied.compaction = state.compaction;
        drop(state);
        Some(copy)
    }

    /// The memory of the filter, to be freed in steps.
    #[must_use]
    pub fn into_memory(self) -> CuckooMemory {
        let subfilters = self.subfilters.into_iter().filter_map(OnceLock::into_inner);
        CuckooMemory {
            pieces: subfilters
                .map(|subfilter| subfilter.into_pieces())
                .collect(),
        }
    }
}

impl fmt::Debug for RedisCuckoo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisCuckoo")
            .field("shape", &self.shape)
            .finish_non_exhaustive()
    }
}

/// Memory of a filter that is not used any more. Dropping it frees it at once.
#[derive(Debug)]
pub struct CuckooMemory {
    pieces: Vec<Vec<Slots<AtomicU64>>>,
}

impl CuckooMemory {
    /// The bytes of the pieces that are left.
    ///
    /// Complexity: looks at each piece.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        let pieces = self.pieces.iter().flatten();
        pieces.map(|piece| size_of_val::<[_]>(piece) as u64).sum()
    }

    /// Adds the memory of another filter.
    pub fn append(&mut self, mut other: Self) {
        self.pieces.append(&mut other.pieces);
    }

    /// Frees up to `pieces` pieces of up to 1 MiB; returns whether there are more.
    ///
    /// Complexity: a system call for each piece, which frees up to 256 pages of 4 KiB.
    pub fn free_some(&mut self, pieces: usize) -> bool {
        for _ in 0..pieces {
            while self.pieces.pop_if(|last| last.is_empty()).is_some() {}
            self.pieces.last_mut().and_then(Vec::pop);
        }
        self.pieces.iter().any(|pieces| !pieces.is_empty())
    }
}
