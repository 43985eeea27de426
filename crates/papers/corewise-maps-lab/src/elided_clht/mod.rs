//! HTM-CLHT: a cache-line hash table whose updates are sections of an elided lock (thesis §4.4.4).
//!
//! [`Coarse`] has one lock for the whole table, and [`Fine`] one for each bucket (§4.5.4).
//! [`Versioned`] is for processors without transactions: its updates are optimistic
//! sections with a version for each group. The layout of a bucket, the order of its stores and the
//! lookup are those of [`clht`](corewise_maps::clht); here no bucket has a lock bit.
//!
//! ```text
//!  bucket: 64 bytes at a multiple of 64
//! ┌───────┬───────┬───────┬───────┬─────────┬─────────┬─────────┬──────┐
//! │ state │ key 0 │ key 1 │ key 2 │ value 0 │ value 1 │ value 2 │ next ├──▶ index of the overflow
//! └───┬───┴───────┴───────┴───────┴─────────┴─────────┴─────────┴──────┘    bucket plus one, or 0
//!     │  bit 63 ..... 3   2    1    0
//!     └▶ removals         slot is used
//!
//! tables: current ──▶ arrays[current] ──▶ heads | overflow buckets of each group
//! ```
//!
//! # Operations
//!
//! A *lookup* takes no lock and is no transaction: it reads the state, compares keys, reads the
//! value and the state again, as in CLHT. [`Coarse::get_elided`] is a lookup as a transaction, for
//! comparison.
//!
//! An *update* is a section. Overflow buckets exist before, because a transaction that allocates is
//! likely to abort. A section that needs one and finds none returns, and the table grows under the
//! lock. In [`Fine`] the thread takes an unused one, and runs the section again.
//!
//! A *resize* copies all entries to an array of twice the size, under the lock. Sections wait
//! meanwhile; lookups do not: the old array does not change any more. Old arrays are freed with the
//! table, because a lookup, or a transaction of SLR, may be in one of them. Together they are
//! smaller than the current one.
//!
//! # Guarantees
//!
//! 1. *Linearizable.*
//! 2. *Lookups* write nothing and never wait. They are lock-free: a bucket is searched again if an
//!    entry of it was removed meanwhile.
//! 3. *Updates* block as sections of [`Elided`] do.
//! 4. *Bounds.* [`Coarse`] grows up to 2^[`GENERATIONS`] times its first size. [`Fine`] does not
//!    grow: an insertion that needs an overflow bucket when none is left returns [`TableFull`].

mod versioned;

use std::ptr;

use corewise_atomic::Slots;
use corewise_atomic::sync::Arc;
use corewise_atomic::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use corewise_atomic::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, fence};
use corewise_locks::elide::{
    Counts, Elided, ElidedParts, Policy, Retry, Rtm, Scm, ScmOpt, Slr, SlrScm, Subscribe,
    Transaction, Tx,
};
use corewise_locks::{Lock, Mcs, Ttas};

pub use versioned::{ATTEMPTS, Versioned};

const SLOTS: usize = 3;
/// Heads for each overflow bucket.
const SHARE: usize = 8;
/// The smallest number of heads.
const FEWEST_HEADS: usize = if cfg!(any(corewise_loom, corewise_shuttle)) {
    1
} else {
    16
};
/// The number of arrays that a table can have in its life.
pub const GENERATIONS: usize = 40;
/// Bits of the state that say which slots are used; the rest counts removals.
const USED: u64 = (1 << SLOTS) - 1;
const REMOVAL: u64 = USED + 1;

/// The global locks of §4.5.3: `mcs` is [`SlrScmMcs`] without transactions.
pub type SlrMcs<B = Rtm> = Coarse<Mcs, Slr, B>;
/// HTM-retry: ten attempts, then a test-and-test-and-set lock.
pub type HtmRetry<B = Rtm> = Coarse<Ttas, Retry<10>, B>;
/// scm-ttas.
pub type ScmTtas<B = Rtm> = Coarse<Ttas, Scm, B>;
/// slr-scm-mcs, which the thesis recommends.
pub type SlrScmMcs<B = Rtm> = Coarse<Mcs, SlrScm, B>;
/// scm-ttas-opt.
pub type ScmTtasOpt<B = Rtm> = Coarse<Ttas, ScmOpt, B>;

/// An insertion found no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableFull;

impl std::fmt::Display for TableFull {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("no overflow bucket is left, and the table cannot grow")
    }
}

impl std::error::Error for TableFull {}

#[repr(C, align(64))]
struct Bucket {
    state: AtomicU64,
    keys: [AtomicU64; SLOTS],
    values: [AtomicU64; SLOTS],
    next: AtomicU64,
}

#[cfg(not(any(corewise_loom, corewise_shuttle)))]
const _: () = assert!(size_of::<Bucket>() == 64);

impl Bucket {
    fn new() -> Self {
        Self {
            state: AtomicU64::new(0),
            keys: std::array::from_fn(|_| AtomicU64::new(0)),
            values: std::array::from_fn(|_| AtomicU64::new(0)),
            next: AtomicU64::new(0),
        }
    }

    /// Removes the entry in a slot and returns its value.
    fn remove<'t, B: Transaction>(&'t self, tx: &Tx<'t, B>, slot: usize) -> u64 {
        let value = tx.load(&self.values[slot]);
        let state = tx.load(&self.state);
        tx.store(&self.state, (state & !(1 << slot)).wrapping_add(REMOVAL));
        value
    }
}

fn is_used(state: u64, slot: usize) -> bool {
    state >> slot & 1 != 0
}

/// One size of the table.
struct Array {
    heads: Slots<Bucket>,
    /// The overflow buckets of each group lie together.
    overflow: Slots<Bucket>,
    /// Overflow buckets in use, for each group.
    taken: Slots<AtomicU64>,
}

/// Where a key is, or where it would be inserted.
#[derive(Clone, Copy)]
enum KeyLocation<'t> {
    /// The slot that has the key.
    Key(&'t Bucket, usize),
    /// The first free slot of the chain.
    Free(&'t Bucket, usize),
    /// Behind the last bucket of the chain, which is full.
    Behind(&'t Bucket),
}

/// What a section with a bucket did.
enum Put {
    New,
    /// The value that was there.
    There(u64),
    /// No overflow bucket is left in the array with this number.
    Crowded(usize),
}

impl Array {
    /// Both numbers are powers of two, and there are not more groups than heads.
    fn new(heads: usize, groups: usize) -> Self {
        let of_group = (heads / groups).div_ceil(SHARE) + 1;
        Self {
            heads: Slots::from_fn(heads, |_| Bucket::new()),
            overflow: Slots::from_fn(of_group * groups, |_| Bucket::new()),
            taken: Slots::from_fn(groups, |_| AtomicU64::new(0)),
        }
    }

    fn index(&self, hash: u64) -> usize {
        hash as usize & (self.heads.len() - 1)
    }

    fn head(&self, hash: u64) -> &Bucket {
        &self.heads[self.index(hash)]
    }

    fn group(&self, hash: u64) -> usize {
        hash as usize & (self.taken.len() - 1)
    }

    /// The bucket behind one whose `next` is `link`.
    fn follow(&self, link: u64) -> Option<&Bucket> {
        let index = (link as usize).checked_sub(1)?;
        Some(&self.overflow[index])
    }

    /// A lookup without a lock; see the header.
    fn look_up(&self, hash: u64, key: u64) -> Option<u64> {
        let mut bucket = self.head(hash);
        loop {
            // Acquire: pairs with the Release store of the state, after those of key and value.
            let state = bucket.state.load(Acquire);
            // Relaxed: a key of a later entry is found out by the state.
            let has_key = |slot: &usize| bucket.keys[*slot].load(Relaxed) == key;
            let slot = (0..SLOTS)
                .filter(|slot| is_used(state, *slot))
                .find(has_key);
            if let Some(slot) = slot {
                // Acquire: pairs with the Release store of the value.
                let value = bucket.values[slot].load(Acquire);
                // Acquire: if the key or the value is that of a later entry, the load below sees
                // the removal of the earlier one.
                fence(Acquire);
                // Relaxed: ordered by the fence.
                if bucket.state.load(Relaxed) / REMOVAL == state / REMOVAL {
                    return Some(value);
                }
                continue;
            }
            // Acquire: pairs with the Release store of the link, after the bucket was filled.
            bucket = self.follow(bucket.next.load(Acquire))?;
        }
    }

    /// The place of a key.
    fn place<'t, B: Transaction>(&'t self, tx: &Tx<'t, B>, hash: u64, key: u64) -> KeyLocation<'t> {
        let (mut bucket, mut free) = (self.head(hash), None);
        loop {
            let state = tx.load(&bucket.state);
            for slot in 0..SLOTS {
                if !is_used(state, slot) {
                    free = free.or(Some(KeyLocation::Free(bucket, slot)));
                } else if tx.load(&bucket.keys[slot]) == key {
                    return KeyLocation::Key(bucket, slot);
                }
            }
            match self.follow(tx.load(&bucket.next)) {
                Some(next) => bucket = next,
                None => return free.unwrap_or(KeyLocation::Behind(bucket)),
            }
        }
    }

    /// Inserts a key that is absent at its place; false if that needs an overflow bucket and its
    /// group has none left.
    fn insert_at<'t, B: Transaction>(
        &'t self,
        tx: &Tx<'t, B>,
        place: KeyLocation<'t>,
        pair: (u64, u64),
    ) -> bool {
        let KeyLocation::Behind(_) = place else {
            return self.insert_with(tx, place, pair, None);
        };
        let group = self.group(hash_of(pair.0));
        let of_group = self.overflow.len() / self.taken.len();
        let taken = tx.load(&self.taken[group]);
        if taken as usize >= of_group {
            return false;
        }
        tx.store(&self.taken[group], taken + 1);
        self.insert_with(tx, place, pair, Some(group * of_group + taken as usize))
    }

    /// As [`insert_at`](Self::insert_at), with the index of an unused overflow bucket, or none.
    fn insert_with<'t, B: Transaction>(
        &'t self,
        tx: &Tx<'t, B>,
        place: KeyLocation<'t>,
        (key, value): (u64, u64),
        unused: Option<usize>,
    ) -> bool {
        let last = match place {
            KeyLocation::Key(bucket, slot) | KeyLocation::Free(bucket, slot) => {
                tx.store(&bucket.keys[slot], key);
                tx.store(&bucket.values[slot], value);
                // Last: a lookup reads the slot once it has seen the bit.
                tx.store(&bucket.state, tx.load(&bucket.state) | 1 << slot);
                return true;
            }
            KeyLocation::Behind(last) => last,
        };
        let Some(index) = unused else {
            return false;
        };
        let new = &self.overflow[index];
        tx.store(&new.keys[0], key);
        tx.store(&new.values[0], value);
        tx.store(&new.state, 1);
        // Last: a lookup reads the bucket once it has seen the link.
        tx.store(&last.next, index as u64 + 1);
        true
    }

    /// All entries; consistent only while no section runs.
    fn for_each(&self, mut each: impl FnMut(u64, u64)) {
        for bucket in self.heads.iter().chain(&*self.overflow) {
            // Acquire: as in `look_up`. Relaxed: the state orders.
            let state = bucket.state.load(Acquire);
            for slot in (0..SLOTS).filter(|slot| is_used(state, *slot)) {
                let (key, value) = (&bucket.keys[slot], &bucket.values[slot]);
                each(key.load(Relaxed), value.load(Relaxed));
            }
        }
    }
}

/// Mixes all bits of a key into all bits of its hash (Stafford's variant 13 of MurmurHash3's
/// finalizer).
pub(crate) fn hash_of(key: u64) -> u64 {
    let mixed = (key ^ key >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ mixed >> 31
}

/// The arrays of a table.
struct Tables {
    current: AtomicUsize,
    /// Those up to `current` are set and never change.
    arrays: [AtomicPtr<Array>; GENERATIONS],
}

impl Tables {
    fn new(capacity: usize, groups: usize) -> Self {
        // Half of the slots are used then, as in CLHT.
        let heads = (capacity / SLOTS * 2).max(FEWEST_HEADS).max(groups);
        let tables = Self {
            current: AtomicUsize::new(0),
            arrays: std::array::from_fn(|_| AtomicPtr::new(ptr::null_mut())),
        };
        tables.set(0, Array::new(heads.next_power_of_two(), groups));
        tables
    }

    fn set(&self, generation: usize, array: Array) {
        let array = Box::into_raw(Box::new(array));
        // Release: pairs with the Acquire in `array`.
        self.arrays[generation].store(array, Release);
    }

    /// The array with a number that `current` has had.
    fn array(&self, generation: usize) -> &Array {
        // Acquire: pairs with the Release in `set`.
        let array = self.arrays[generation].load(Acquire);
        // SAFETY: null, or set once and freed with the table.
        unsafe { array.as_ref() }.expect("it was set before `current` had this number")
    }

    fn current_array(&self) -> &Array {
        // Acquire: pairs with the Release store of `current`, after its array was filled.
        self.array(self.current.load(Acquire))
    }

    fn get(&self, key: u64) -> Option<u64> {
        let hash = hash_of(key);
        self.current_array().look_up(hash, key)
    }

    /// The place of a key in the current array, whose number is returned, too.
    fn place<'t, B: Transaction>(&'t self, tx: &Tx<'t, B>, key: u64) -> (usize, KeyLocation<'t>) {
        let generation = tx.load(&self.current);
        let place = self.array(generation).place(tx, hash_of(key), key);
        (generation, place)
    }

    fn put<'t, B: Transaction>(&'t self, tx: &Tx<'t, B>, pair: (u64, u64), replaces: bool) -> Put {
        self.put_at(tx, self.place(tx, pair.0), pair, replaces)
    }

    /// Writes a pair to the place of its key.
    fn put_at<'t, B: Transaction>(
        &'t self,
        tx: &Tx<'t, B>,
        (generation, place): (usize, KeyLocation<'t>),
        pair: (u64, u64),
        replaces: bool,
    ) -> Put {
        if let KeyLocation::Key(bucket, slot) = place {
            let old = tx.load(&bucket.values[slot]);
            if replaces {
                tx.store(&bucket.values[slot], pair.1);
            }
            return Put::There(old);
        }
        if self.array(generation).insert_at(tx, place, pair) {
            Put::New
        } else {
            Put::Crowded(generation)
        }
    }

    fn remove<'t, B: Transaction>(&'t self, tx: &Tx<'t, B>, key: u64) -> Option<u64> {
        match self.place(tx, key).1 {
            KeyLocation::Key(bucket, slot) => Some(bucket.remove(tx, slot)),
            _ => None,
        }
    }

    /// Copies all entries to a larger array. Under the lock.
    fn grow<'t, B: Transaction>(
        &'t self,
        tx: &Tx<'t, B>,
        generation: usize,
    ) -> Result<(), TableFull> {
        if tx.load(&self.current) != generation {
            return Ok(()); // another thread was faster
        }
        let next = generation + 1;
        if next == GENERATIONS {
            return Err(TableFull);
        }
        let old = self.array(generation);
        let mut heads = old.heads.len() * 2;
        let new = loop {
            let new = Array::new(heads, old.taken.len());
            let mut fits = true;
            old.for_each(|key, value| {
                let direct: Tx<'_, B> = Tx::direct();
                let place = new.place(&direct, hash_of(key), key);
                fits = fits && new.insert_at(&direct, place, (key, value));
            });
            if fits {
                break new;
            }
            heads *= 2;
        };
        self.set(next, new);
        tx.store(&self.current, next);
        Ok(())
    }

    fn len(&self) -> usize {
        let mut number = 0;
        self.current_array().for_each(|_, _| number += 1);
        number
    }
}

impl Drop for Tables {
    fn drop(&mut self) {
        for array in &self.arrays {
            // Relaxed: the table is borrowed exclusively.
            let array = array.load(Relaxed);
            if !array.is_null() {
                // SAFETY: it came from a box, and no other thread has the table.
                drop(unsafe { Box::from_raw(array) });
            }
        }
    }
}

/// A table whose updates are sections of one elided lock. Keys and values are words.
///
/// ```
/// use corewise_locks::elide::Scripted;
/// use corewise_maps_lab::elided_clht::SlrScmMcs;
///
/// let table: SlrScmMcs<Scripted> = SlrScmMcs::new(1_000, Some(Scripted::new()));
/// assert_eq!(table.insert(1, 2), Ok(None));
/// assert_eq!((table.get(1), table.remove(1), table.get(1)), (Some(2), Some(2), None));
/// ```
pub struct Coarse<L, P, B = Rtm> {
    tables: Elided<Arc<Tables>, L, P, B>,
    /// The same, for lookups.
    beside: Arc<Tables>,
}

/// Implements what all tables have. A table has `put` and `remove`.
macro_rules! table_of_words {
    ([$($generics:tt)*] $table:ty, $tables:ident $(.$get:ident())?, $full:literal) => {
        impl<$($generics)*> $table {
            /// The value of a key. Takes no lock.
            pub fn get(&self, key: u64) -> Option<u64> {
                self.$tables$(.$get())?.get(key)
            }

            /// Inserts a pair, and returns the value that it replaces.
            ///
            /// # Errors
            ///
            #[doc = $full]
            pub fn insert(&self, key: u64, value: u64) -> Result<Option<u64>, TableFull> {
                self.put((key, value), true)
            }

            /// Inserts a pair if the key is absent; otherwise returns the value that is there.
            ///
            /// # Errors
            ///
            #[doc = $full]
            pub fn try_insert(&self, key: u64, value: u64) -> Result<Option<u64>, TableFull> {
                match self.get(key) {
                    Some(there) => Ok(Some(there)), // writes nothing, and is no section
                    None => self.put((key, value), false),
                }
            }

            /// The number of entries, counted one by one; exact only while no thread updates the
            /// table.
            pub fn len(&self) -> usize {
                self.$tables$(.$get())?.len()
            }

            /// Whether there is no entry; as [`len`](Self::len).
            pub fn is_empty(&self) -> bool {
                self.len() == 0
            }
        }
    };
}
use table_of_words;

table_of_words! {
    [L: Subscribe, P: Policy, B: Transaction] Coarse<L, P, B>, beside,
    "If the table has grown [`GENERATIONS`] times."
}

impl<L: Subscribe, P: Policy, B: Transaction> Coarse<L, P, B> {
    /// Creates a table for `capacity` entries, with a source of transactions. Without one, every
    /// update takes the lock.
    pub fn new(capacity: usize, backend: Option<B>) -> Self {
        let beside = Arc::new(Tables::new(capacity, 1));
        Self {
            tables: Elided::new(beside.clone(), backend),
            beside,
        }
    }

    /// The value of a key, looked up in a section.
    pub fn get_elided(&self, key: u64) -> Option<u64> {
        self.tables.run(|tables, tx| match tables.place(tx, key).1 {
            KeyLocation::Key(bucket, slot) => Some(tx.load(&bucket.values[slot])),
            _ => None,
        })
    }

    /// Inserts, and lets the table grow while that finds no room.
    fn put(&self, pair: (u64, u64), replaces: bool) -> Result<Option<u64>, TableFull> {
        loop {
            match self.tables.run(|tables, tx| tables.put(tx, pair, replaces)) {
                Put::New => return Ok(None),
                Put::There(old) => return Ok(Some(old)),
                Put::Crowded(generation) => self.tables.run(|tables, tx| {
                    // Copying everything does not fit into a transaction.
                    tx.leave_transaction::<GROWS>();
                    tables.grow(tx, generation)
                })?,
            }
        }
    }

    /// Removes a key and returns its value.
    pub fn remove(&self, key: u64) -> Option<u64> {
        self.get(key)?; // an update without effect is no transaction
        self.tables.run(|tables, tx| tables.remove(tx, key))
    }

    /// The counts of the lock.
    pub fn counts(&self) -> Counts {
        self.tables.counts()
    }
}

/// The code with which a section that grows the table leaves its transaction.
const GROWS: u8 = 1;

/// A table with an elided MCS lock for each bucket (§4.5.4). It does not grow.
///
/// ```
/// use corewise_locks::elide::{Scripted, SlrScm};
/// use corewise_maps_lab::elided_clht::Fine;
///
/// let table: Fine<SlrScm, Scripted> = Fine::new(1_000, Some(Scripted::new()));
/// assert_eq!(table.insert(1, 2), Ok(None));
/// assert_eq!((table.get(1), table.remove(1), table.get(1)), (Some(2), Some(2), None));
/// ```
pub struct Fine<P, B = Rtm> {
    tables: ElidedParts<Tables, Mcs, P, B>,
    /// The indices of the overflow buckets that are in no chain. Sections of different buckets
    /// would race for them, so a thread takes one outside of sections.
    unused: Lock<Vec<usize>, Mcs>,
}

table_of_words! {
    [P: Policy, B: Transaction] Fine<P, B>, tables.get(), "If no overflow bucket is left."
}

impl<P: Policy, B: Transaction> Fine<P, B> {
    /// Creates a table for `capacity` entries, with a source of transactions or without.
    pub fn new(capacity: usize, backend: Option<B>) -> Self {
        let tables = Tables::new(capacity, 1);
        let array = tables.current_array();
        let (buckets, overflow) = (array.heads.len(), array.overflow.len());
        Self {
            tables: ElidedParts::new(tables, buckets, backend),
            unused: Lock::new((0..overflow).rev().collect()),
        }
    }

    /// The number of the key's bucket, which is that of its lock.
    fn bucket(&self, key: u64) -> usize {
        self.tables.get().current_array().index(hash_of(key))
    }

    fn put(&self, pair: (u64, u64), replaces: bool) -> Result<Option<u64>, TableFull> {
        let mut unused = None;
        loop {
            let (put, is_behind) = self.tables.run(self.bucket(pair.0), |tables, tx| {
                let (generation, place) = tables.place(tx, pair.0);
                let put = match place {
                    KeyLocation::Key(..) => tables.put_at(tx, (generation, place), pair, replaces),
                    _ if tables
                        .array(generation)
                        .insert_with(tx, place, pair, unused) =>
                    {
                        Put::New
                    }
                    _ => Put::Crowded(generation),
                };
                (put, matches!(place, KeyLocation::Behind(_)))
            });
            let old = match put {
                Put::New => None,
                Put::There(old) => Some(old),
                Put::Crowded(_) => {
                    unused = Some(self.unused.lock().pop().ok_or(TableFull)?);
                    continue;
                }
            };
            // What is not behind a chain needed no bucket: another thread has made room since.
            if let Some(index) = unused.filter(|_| !is_behind) {
                self.unused.lock().push(index);
            }
            return Ok(old);
        }
    }

    /// Removes a key and returns its value.
    pub fn remove(&self, key: u64) -> Option<u64> {
        self.get(key)?; // an update without effect is no transaction
        let bucket = self.bucket(key);
        self.tables.run(bucket, |tables, tx| tables.remove(tx, key))
    }

    /// The counts of all locks together.
    pub fn counts(&self) -> Counts {
        self.tables.counts()
    }
}
