//! The trait of tables, and the link from a table to its successor.

use std::hash::Hash;
use std::ops::Range;
use std::ptr::{self, NonNull};

use corewise_atomic::alloc::{self, HUGE_PAGE};
use corewise_atomic::sync::Arc;
use corewise_atomic::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use corewise_atomic::sync::atomic::{AtomicPtr, AtomicUsize};
use corewise_atomic::{Backoff, CachePadded, mutant};
#[cfg(feature = "raw")]
use corewise_rcu::Section;

use super::Full;
use super::memory_budget::MemoryBudget;

/// The entries of this bucket are in the table's successor.
#[derive(Debug, PartialEq, Eq)]
pub struct Moved;

/// There is no memory for the entries to be moved.
#[derive(Debug, PartialEq, Eq)]
pub struct NoMemory;

/// What [`Table::put`] found.
#[derive(Debug, PartialEq, Eq)]
pub enum Put<V> {
    /// The key was absent, and the pair was inserted.
    New {
        /// Whether it was hard to find a place.
        crowded: bool,
    },
    /// The key was present, with this value.
    There(V),
}

/// What becomes of an entry; the decision that [`Table::change`] carries out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryChange<V> {
    /// It stays as it is.
    Keep,
    /// It gets this value.
    Replace(V),
    /// It goes.
    Remove,
}

impl<V> EntryChange<V> {
    /// The same decision, with its value converted.
    pub fn map<W>(self, convert: impl FnOnce(V) -> W) -> EntryChange<W> {
        match self {
            EntryChange::Keep => EntryChange::Keep,
            EntryChange::Replace(value) => EntryChange::Replace(convert(value)),
            EntryChange::Remove => EntryChange::Remove,
        }
    }
}

/// A table of [`CopyMap`](super::CopyMap). Sealed: without the feature
/// `raw`, other crates cannot implement it.
///
/// ```
/// use corewise_maps::copy_map::{CopyMap, Table};
///
/// fn sum<T: Table<Key = u64, Value = u64>>(map: &CopyMap<T>, keys: &[u64]) -> u64 {
///     let map = map.pin();
///     keys.iter().filter_map(|key| map.get(key)).sum()
/// }
/// let map = corewise_maps::clht::LockBased::new();
/// map.pin().insert(7, 70);
/// assert_eq!(sum(&map, &[6, 7, 7]), 140);
/// ```
///
/// # Safety
///
/// Values may be addresses, of which the caller that takes one out frees what it refers to:
///
/// 1. An operation returns values only that were in the table, and a thread that is given a value
///    has seen everything written before the value was inserted.
/// 2. `put` inserts its value unless it returns an error or, without `replace`, `Put::There`.
///    `change` returns the last argument and the last result of `decide`, if it returns anything:
///    then it has carried out this decision, and otherwise it has changed nothing. Each value is
///    taken out once: by one `remove`, one `change`, or one `put` with `replace`.
/// 3. If no thread changes the table, `for_each_in` visits every entry of a bucket once.
/// 4. `arrays` are memory of the table without destructors.
// Any thread may call any safe operation at any time. Each operation takes the table as a
// `TableVersion`, and answers for the table and its successors together. Foreign code runs before
// an operation changes anything: if it panics, nothing has happened.
#[diagnostic::on_unimplemented(
    message = "`{Self}` has no place for keys or values of these types",
    note = "`clht::LockBased` takes `WordKey`s and `Word`s, `cuckoo::CuckooMap` all `Copy` types",
    note = "`RelativisticMap` takes any types"
)]
pub unsafe trait Table: Sized {
    /// The type of keys; equal keys must have equal hashes.
    type Key: Copy + Eq + Hash;
    /// The type of values.
    type Value: Copy;
    /// A pair, with what is known of its place in any table.
    #[doc(hidden)]
    type Entry;
    /// A bucket that no other thread updates or moves until this is dropped.
    #[doc(hidden)]
    type HeldBucket<'t>: HeldBucket<Self::Entry>
    where
        Self: 't;

    /// Buckets of a map that was given no number.
    #[doc(hidden)]
    const FEWEST_BUCKETS: usize;
    /// Groups that an update moves during a resize.
    #[doc(hidden)]
    const SHARE: usize;

    /// Buckets, not rounded, that hold `entries` without being crowded.
    #[doc(hidden)]
    fn buckets_for(entries: usize) -> usize;

    /// Makes an empty table of `buckets` buckets, a power of two, if there is memory and room in
    /// `budget`. The table gives the bytes back to `budget` when it is dropped.
    #[doc(hidden)]
    fn try_new(buckets: usize, budget: &Arc<MemoryBudget>) -> Option<Self>;

    #[doc(hidden)]
    fn buckets(&self) -> usize;

    /// Returns the value of a key. Writes nothing, waits for no thread.
    #[doc(hidden)]
    fn get(at: &TableVersion<Self>, hash: u64, key: &Self::Key) -> Option<Self::Value>;

    /// Prefetches the cache lines that `get` of this hash reads first; nothing by default.
    /// [`CopyMapRef::get_many`](super::CopyMapRef::get_many) calls it before the lookups, see
    /// [`crate::batch`].
    #[doc(hidden)]
    #[inline(always)]
    fn prefetch(&self, hash: u64) {
        let _ = hash;
    }

    /// Reads those lines and prefetches what `get` may read after them; nothing by default.
    #[doc(hidden)]
    #[inline(always)]
    fn prefetch_more(&self, hash: u64) {
        let _ = hash;
    }

    /// Inserts a pair; if the key is present, replaces its value or, without `replace`, writes
    /// nothing.
    #[doc(hidden)]
    fn put(
        at: &TableVersion<Self>,
        hash: u64,
        key: Self::Key,
        value: Self::Value,
        replace: bool,
    ) -> Result<Put<Self::Value>, Full>;

    /// Removes a key and returns its value. Writes nothing if the key is absent.
    #[doc(hidden)]
    fn remove(at: &TableVersion<Self>, hash: u64, key: &Self::Key) -> Option<Self::Value>;

    /// Keeps, replaces or removes an entry, as `decide` says of its value; returns that value and
    /// the decision. `decide` runs without a lock, and runs again if the value was changed
    /// meanwhile. Writes nothing if the key is absent or the entry is kept.
    #[doc(hidden)]
    fn change(
        at: &TableVersion<Self>,
        hash: u64,
        key: &Self::Key,
        decide: impl FnMut(Self::Value) -> EntryChange<Self::Value>,
    ) -> Option<(Self::Value, EntryChange<Self::Value>)>;

    /// Replaces a value with `new(old)` and returns the new value, the last result of `new`; as
    /// [`change`](Self::change).
    #[doc(hidden)]
    #[inline]
    fn update(
        at: &TableVersion<Self>,
        hash: u64,
        key: &Self::Key,
        mut new: impl FnMut(Self::Value) -> Self::Value,
    ) -> Option<Self::Value> {
        match Self::change(at, hash, key, |old| EntryChange::Replace(new(old)))? {
            (_, EntryChange::Replace(value)) => Some(value),
            (_, EntryChange::Keep | EntryChange::Remove) => unreachable!("it was to be replaced"),
        }
    }

    /// Calls `each` with every entry of a bucket.
    #[doc(hidden)]
    fn for_each_in(&self, bucket: usize, each: impl FnMut(Self::Entry)) -> Result<(), Moved>;

    /// # Safety
    ///
    /// 1. The entry is one of a table of this type.
    #[doc(hidden)]
    unsafe fn pair(entry: &Self::Entry) -> (Self::Key, Self::Value);

    /// The number of the bucket that an entry belongs in, before it is reduced to a table's size.
    ///
    /// # Safety
    ///
    /// 1. The entry is one of a table of this type.
    #[doc(hidden)]
    unsafe fn home_of(entry: &Self::Entry, hash_of: &impl Fn(&Self::Key) -> u64) -> u64;

    /// The numbers of the buckets in which a key of this hash may be, as of [`home_of`].
    ///
    /// [`home_of`]: Self::home_of
    #[doc(hidden)]
    fn homes(hash: u64) -> [u64; 2] {
        [hash, hash]
    }

    /// An iteration over the map begins with this table.
    #[doc(hidden)]
    fn begin_walk(&self) {}

    /// An iteration that called [`begin_walk`](Self::begin_walk) ends.
    #[doc(hidden)]
    fn end_walk(&self) {}

    /// Holds a bucket. `None` if another thread does; it may also fail so for no reason.
    #[doc(hidden)]
    fn try_hold(&self, bucket: usize) -> Result<Option<Self::HeldBucket<'_>>, Moved>;

    /// Holds a bucket that no other thread moves.
    #[doc(hidden)]
    fn hold(&self, bucket: usize) -> Self::HeldBucket<'_>;

    /// Inserts entries into buckets that are not reachable yet; after an error the buckets are
    /// empty.
    ///
    /// # Safety
    ///
    /// 1. No other thread can reach the entries of these buckets.
    /// 2. The entries are those of a table of this type.
    #[doc(hidden)]
    unsafe fn take_in(&self, entries: &mut [Moving<Self::Entry>]) -> Result<(), NoMemory>;

    /// Empties a bucket that is not reachable yet. Its overflow buckets are kept for later entries.
    ///
    /// # Safety
    ///
    /// 1. No other thread can reach the bucket's entries.
    #[doc(hidden)]
    unsafe fn wipe(&self, bucket: usize);

    /// The largest arrays. They are plain memory, which needs no destructor when the table is
    /// dropped.
    #[doc(hidden)]
    fn arrays(&self) -> [Range<*const u8>; 2];

    /// Frees a share of the memory outside the arrays; false if there is none left.
    ///
    /// # Safety
    ///
    /// 1. Afterwards the caller only calls this and drops the table.
    #[doc(hidden)]
    unsafe fn free_share(&mut self) -> bool {
        false
    }

    /// Whether to enlarge the table, at `entries` entries. Called after a [`put`](Self::put) that
    /// returned `crowded`.
    #[doc(hidden)]
    fn is_crowded(&self, entries: usize) -> bool;
}

/// What an update faults in of arrays that are too small for huge pages.
const SMALL_PAGES: usize = 64 << 10;

/// The least bytes of an array whose pages are likely to be fresh from the system.
const MAPPED: usize = 128 << 10;

/// A table whose arrays take less than this grows by a factor of 4, and not 2.
const QUADRUPLE_BELOW: usize = 512 << 10;

/// The factor by which a table grows.
///
/// A table below 512 KiB quadruples: then it grows half as often, for 2 MiB of memory at most.
/// Checkers' tables double, so that they do not get too large.
pub(crate) fn grows_by<T: Table>(table: &T) -> usize {
    let bytes: usize = table
        .arrays()
        .iter()
        .map(|array| array.end.addr() - array.start.addr())
        .sum();
    let is_checked = cfg!(any(corewise_loom, corewise_shuttle, corewise_stress));
    if bytes < QUADRUPLE_BELOW && !is_checked {
        4
    } else {
        2
    }
}

/// See [`Table::HeldBucket`].
///
/// # Safety
///
/// 1. `copy` appends the entries of the bucket, each once, and nothing else.
/// 2. No other thread updates the bucket before this is dropped, nor after `set_moved`.
pub unsafe trait HeldBucket<E> {
    /// Appends all entries.
    fn copy(&self, to: &mut Vec<Moving<E>>) -> Result<(), NoMemory>;
    /// Marks the bucket, whose entries are all in the table's successor: it is not updated any
    /// more.
    fn set_moved(self);
    /// The bug of a mutant: readers leave before the entries do.
    fn set_moved_early(&self);
}

/// An entry on its way to a bucket of another table.
pub struct Moving<E> {
    /// The bucket that it goes to.
    pub bucket: usize,
    /// The result of [`Table::home_of`].
    pub number: u64,
    /// The entry itself.
    pub entry: E,
}

impl<E> Moving<E> {
    /// The destination is not known yet.
    pub fn new(entry: E) -> Self {
        Self {
            bucket: 0,
            number: 0,
            entry,
        }
    }
}

/// A table, and during a resize the link to its successor.
pub struct TableVersion<T> {
    /// Null, or the table that entries are moved to. It lives as long as this table.
    next: AtomicPtr<TableVersion<T>>,
    table: T,
    progress: CachePadded<MoveProgress>,
    /// Read with every use and written at the end: for loom, a use after that is a race.
    #[cfg(corewise_loom)]
    alive: corewise_atomic::cell::DataCell<bool>,
}

struct MoveProgress {
    /// The next group to move, modulo the number of groups: when all are moved, it has wrapped
    /// around.
    cursor: AtomicUsize,
    moved: AtomicUsize,
    /// Pages of the successor that were faulted in before they are needed, see
    /// [`TableVersion::prepare`].
    prepared: AtomicUsize,
}

/// What [`TableVersion::step`] did.
#[derive(Debug, PartialEq, Eq)]
pub enum ResizeStep {
    /// There is no resize in progress, or other threads are doing all that is left.
    Idle,
    /// It moved something.
    Working,
    /// It moved the last group: the successor is complete.
    Last,
}

impl<T> TableVersion<T> {
    /// A table without a successor.
    pub fn new(table: T) -> Box<Self> {
        Box::new(Self {
            next: AtomicPtr::new(ptr::null_mut()),
            table,
            progress: CachePadded::new(MoveProgress {
                cursor: AtomicUsize::new(0),
                moved: AtomicUsize::new(0),
                prepared: AtomicUsize::new(0),
            }),
            #[cfg(corewise_loom)]
            alive: corewise_atomic::cell::DataCell::new(true),
        })
    }

    /// The table itself.
    #[inline(always)]
    pub fn table(&self) -> &T {
        #[cfg(corewise_loom)]
        // SAFETY: written only when no thread uses the table any more; otherwise loom reports it.
        self.alive.with(|alive| assert!(unsafe { *alive }));
        &self.table
    }

    /// The successor, if this table is being resized.
    #[inline(always)]
    pub fn next(&self) -> Option<&TableVersion<T>> {
        // Acquire: pairs with the Release in `link`.
        // SAFETY: the caller of `link` guarantees its lifetime.
        unsafe { self.next.load(Acquire).as_ref() }
    }

    /// The address of the successor, or null.
    pub fn next_ptr(&self) -> *mut TableVersion<T> {
        // Acquire: as in `next`.
        self.next.load(Acquire)
    }

    /// Begins a resize.
    ///
    /// # Safety
    ///
    /// 1. `next` lives as long as any thread uses this table.
    /// 2. This table has no successor yet, and no other thread gives it one.
    /// 3. `next` has no entries, and no other thread can reach it yet.
    pub unsafe fn link(&self, next: NonNull<TableVersion<T>>) {
        // Release: pairs with the Acquire in `next`, so the empty buckets are seen.
        self.next.store(next.as_ptr(), Release);
    }

    /// Calls `act` with this table, or with the successor that the wanted entries were moved to.
    #[inline(always)]
    pub fn follow<'t, R>(&'t self, mut act: impl FnMut(&'t T) -> Result<R, Moved>) -> R {
        let mut at = self;
        loop {
            match act(at.table()) {
                Ok(answer) => return answer,
                // A thread that sees the mark sees the successor: it was linked before.
                Err(Moved) => at = at.next().expect("moved to a successor"),
            }
        }
    }
}

impl<T: Table> TableVersion<T> {
    /// Moves `share` groups to the successor, if there is one. Does not wait for other threads that
    /// move groups. Groups without memory stay; an error says that no other group was moved.
    pub fn step(
        &self,
        share: usize,
        hash_of: &impl Fn(&T::Key) -> u64,
    ) -> Result<ResizeStep, NoMemory> {
        let Some(next) = self.next() else {
            return Ok(ResizeStep::Idle);
        };
        let (from, to) = (self.table(), next.table());
        let groups = from.buckets().min(to.buckets());
        // Relaxed: a hint; the buckets record which groups are moved.
        if self.progress.moved.load(Relaxed) == groups {
            return Ok(ResizeStep::Idle);
        }
        if self.prepare(to, groups) {
            return Ok(ResizeStep::Working);
        }
        let share = share.min(groups);
        // Relaxed: only spreads the threads over the groups; the buckets record which are moved.
        let first = self.progress.cursor.fetch_add(share, Relaxed);
        // One allocation for all groups of the share.
        let mut entries = Vec::new();
        self.move_each(groups, first..first + share, |group| {
            entries.clear();
            // SAFETY: `to` is the table that `next` returned, so it was linked to `from` (1).
            unsafe { move_group(from, to, group, hash_of, &mut entries) }
        })
    }

    /// Calls `move_one` with these numbers of groups, up to the last group of all, and counts what
    /// was moved. There are `groups`; numbers wrap around.
    fn move_each(
        &self,
        groups: usize,
        these: impl IntoIterator<Item = usize>,
        mut move_one: impl FnMut(usize) -> Result<GroupMove, NoMemory>,
    ) -> Result<ResizeStep, NoMemory> {
        let mut step = Ok(ResizeStep::Idle);
        for number in these {
            match move_one(number & (groups - 1)) {
                Ok(GroupMove::Done) => {
                    // AcqRel: the thread that counts the last group sees what all have moved.
                    if self.progress.moved.fetch_add(1, AcqRel) + 1 == groups {
                        return Ok(ResizeStep::Last);
                    }
                    step = Ok(ResizeStep::Working);
                }
                Ok(GroupMove::DoneBefore | GroupMove::Busy) => {}
                // Reported only if no group is moved.
                Err(NoMemory) if step == Ok(ResizeStep::Idle) => step = Err(NoMemory),
                Err(NoMemory) => {}
            }
        }
        step
    }

    /// Moves the groups of the buckets in which a key of this hash may be, if there is a successor.
    /// Waits for a thread that holds one of these buckets. Then they are moved, unless there is no
    /// memory.
    pub fn move_homes(
        &self,
        hash: u64,
        hash_of: &impl Fn(&T::Key) -> u64,
    ) -> Result<ResizeStep, NoMemory> {
        let Some(next) = self.next() else {
            return Ok(ResizeStep::Idle);
        };
        let (from, to) = (self.table(), next.table());
        let groups = from.buckets().min(to.buckets());
        let [one, other] = T::homes(hash).map(|home| home as usize & (groups - 1));
        let homes = std::iter::once(one).chain((other != one).then_some(other));
        self.move_each(groups, homes, |group| {
            let mut backoff = Backoff::new();
            loop {
                // SAFETY: `to` is the table that `next` returned, so it was linked to `from` (1).
                match unsafe { move_group(from, to, group, hash_of, &mut Vec::new()) } {
                    Ok(GroupMove::Busy) => backoff.snooze(),
                    moved => break moved,
                }
            }
        })
    }

    /// Copies some groups into a table that is not linked yet, to find out whether there is memory
    /// for its overflow buckets, and to allocate it. The caller wipes `to` afterwards, or drops it.
    pub fn rehearse(
        &self,
        to: &mut T,
        these: Range<usize>,
        hash_of: &impl Fn(&T::Key) -> u64,
    ) -> Result<(), NoMemory> {
        let from = self.table();
        let groups = from.buckets().min(to.buckets());
        for group in these {
            let mut entries = Vec::new();
            let mut no_memory = false;
            for bucket in (group..from.buckets()).step_by(groups) {
                let copied = from.for_each_in(bucket, |entry| {
                    no_memory |= entries.try_reserve(1).is_err();
                    if !no_memory {
                        entries.push(Moving::new(entry));
                    }
                });
                debug_assert_eq!(copied, Ok(()), "there is no successor");
            }
            if no_memory {
                return Err(NoMemory);
            }
            // SAFETY: the entries are copies of those of `from`, a table of this type. `to` is
            // borrowed exclusively, so no other thread can reach its entries.
            unsafe {
                place::<T>(&mut entries, to.buckets(), (groups, group), hash_of);
                to.take_in(&mut entries)?;
            }
        }
        Ok(())
    }

    /// Faults in one huge page of the successor that groups are about to be moved to, or
    /// [`SMALL_PAGES`] of a smaller one; false if all these pages are present.
    ///
    /// A huge page takes the time to clear it, and on a virtual machine also the time for the host
    /// to find the memory: 0.1 ms, or 5. A thread that moves a share would wait for several in
    /// turn, one for each stretch of each array that a group goes to. Instead one update waits for
    /// one page and moves nothing, and the others continue to move.
    ///
    /// Small pages take less time together than one by one. And if the first access to one is a
    /// load, the system maps the page of zeros, and at the first store replaces it and interrupts
    /// all threads of the process: two threads that filled 1 MiB took four times as long.
    fn prepare(&self, to: &T, groups: usize) -> bool {
        let arrays = to.arrays();
        let bytes = arrays
            .each_ref()
            .map(|array| array.end.addr() - array.start.addr());
        let largest = bytes.iter().copied().max().unwrap_or(0);
        let page = match largest {
            HUGE_PAGE.. => HUGE_PAGE,
            MAPPED.. => SMALL_PAGES,
            // Memory that an allocator is likely to have at hand.
            _ => return false,
        };
        let most = largest.div_ceil(page);
        let stretches = (to.buckets() / groups).min(most);
        let steps = most.div_ceil(stretches);
        // Each step has a page in every stretch of both arrays.
        let (of_step, all) = (arrays.len() * stretches, steps * arrays.len() * stretches);
        // Relaxed, all: hints; a thread that comes too late waits for the page itself.
        let prepared = self.progress.prepared.load(Relaxed);
        let reached = self.progress.cursor.load(Relaxed).min(groups);
        let wanted = reached * all / groups + of_step;
        if prepared >= wanted.min(all) {
            return false;
        }
        // Relaxed: as above; each step is given to one thread.
        let next = self.progress.prepared.fetch_add(1, Relaxed);
        let (step, stretch, array) = (
            next / of_step,
            next % of_step / arrays.len(),
            next % arrays.len(),
        );
        if bytes[array] < page || step >= steps {
            return false;
        }
        let part = bytes[array] / (steps * stretches);
        let offset = part * (stretch * steps + step);
        // Of a huge page, any byte will do.
        let bytes = if page == HUGE_PAGE { 1 } else { part };
        alloc::populate(arrays[array].start.wrapping_add(offset), bytes);
        true
    }

    /// Frees a share of a table that is no longer used, starting `from` bytes into its arrays.
    /// Returns the new offset, or `None` if little is left.
    ///
    /// # Safety
    ///
    /// 1. No other thread uses the table, now or later, and the caller only calls this and drops
    ///    the table.
    pub unsafe fn free_share(&mut self, from: usize) -> Option<usize> {
        // SAFETY: no other thread uses the table, and the caller only calls this and drops it, by
        // 1.
        if unsafe { self.table.free_share() } {
            return Some(from);
        }
        let mut before = 0;
        for array in self.table.arrays() {
            let bytes = array.end.addr() - array.start.addr();
            let at = from.saturating_sub(before);
            // The checkers' atomics are not plain memory.
            if at + HUGE_PAGE < bytes && !cfg!(any(corewise_loom, corewise_shuttle)) {
                let first = array.start.wrapping_add(at).cast_mut();
                // SAFETY: by 1, this part of the array is ours alone; it needs no destructor (4 of
                // `Table`).
                unsafe { alloc::discard(first, HUGE_PAGE) };
                return Some(before + at + HUGE_PAGE);
            }
            before += bytes;
        }
        None
    }

    /// Calls `each` with the pairs that are in a bucket of this table and were not moved out of it.
    pub fn for_each_unmoved(&self, bucket: usize, each: &mut impl FnMut(T::Key, T::Value)) {
        let _moved = self.table().for_each_in(bucket, |entry| {
            // SAFETY: `for_each_in` yields entries of this table (1).
            let (key, value) = unsafe { T::pair(&entry) };
            each(key, value);
        });
    }

    /// Calls `each` with every pair that belongs to a bucket whose number is `index` under `mask`,
    /// in this table or in its successors. The bucket is one of this table or of a predecessor.
    pub fn for_each(
        &self,
        (mask, index): (u64, u64),
        hash_of: &impl Fn(&T::Key) -> u64,
        each: &mut impl FnMut(T::Key, T::Value),
    ) {
        let table = self.table();
        let own = table.buckets() as u64 - 1;
        let first = (index & own) as usize;
        for bucket in (first..table.buckets()).step_by(mask.min(own) as usize + 1) {
            let moved = table.for_each_in(bucket, |entry| {
                // If the table before had more buckets, one of ours has the entries of several.
                // SAFETY: `for_each_in` yields entries of this table (1).
                if mask <= own || unsafe { T::home_of(&entry, hash_of) } & mask == index {
                    // SAFETY: `for_each_in` yields entries of this table (1).
                    let (key, value) = unsafe { T::pair(&entry) };
                    each(key, value);
                }
            });
            if let Err(Moved) = moved {
                let next = self.next().expect("moved to a successor");
                let of = if own > mask {
                    (own, bucket as u64)
                } else {
                    (mask, index)
                };
                next.for_each(of, hash_of, each);
            }
        }
    }
}

/// What [`move_group`] did.
enum GroupMove {
    /// It moved the group.
    Done,
    /// Nothing: the group was moved before.
    DoneBefore,
    /// Nothing: another thread holds the group's first bucket.
    Busy,
}

/// Moves the entries of a group. If there is no memory or `hash_of` panics, nothing has happened.
/// `entries` is empty memory.
///
/// A group is all buckets whose numbers end in `group`: one of the smaller table, and those of the
/// other whose entries go there or come from there. No other thread can reach those of `to`: it
/// would need to see a mark on one of our buckets, which we hold, or `to` as the current table,
/// which it becomes only after all groups are moved.
///
/// # Safety
///
/// 1. `to` was [linked](TableVersion::link) to `from`.
unsafe fn move_group<T: Table>(
    from: &T,
    to: &T,
    group: usize,
    hash_of: &impl Fn(&T::Key) -> u64,
    entries: &mut Vec<Moving<T::Entry>>,
) -> Result<GroupMove, NoMemory> {
    let groups = from.buckets().min(to.buckets());
    // The first bucket decides which thread moves the group.
    let first = match from.try_hold(group) {
        Ok(Some(first)) => first,
        Ok(None) => return Ok(GroupMove::Busy),
        Err(Moved) => return Ok(GroupMove::DoneBefore),
    };
    // If the table shrinks, the group has further buckets in it, which no other thread moves.
    let mut others = Vec::new();
    let many = from.buckets() / groups - 1;
    others.try_reserve_exact(many).map_err(|_| NoMemory)?;
    let buckets = (group..from.buckets()).step_by(groups).skip(1);
    others.extend(buckets.map(|bucket| from.hold(bucket)));
    let all = || std::iter::once(&first).chain(&others);
    if mutant!("moves_early") {
        all().for_each(HeldBucket::set_moved_early);
    }
    for held in all() {
        held.copy(entries)?;
    }
    // SAFETY: `copy` yields entries of `from`, by 1 of `HeldBucket`. `to` was linked to `from`, and
    // the buckets are not marked yet, so no other thread can reach their new ones; see above.
    unsafe {
        place::<T>(entries, to.buckets(), (groups, group), hash_of);
        to.take_in(entries)?;
    }
    // From here on other threads follow the marks to the new buckets.
    first.set_moved();
    others.into_iter().for_each(HeldBucket::set_moved);
    Ok(GroupMove::Done)
}

/// Determines the destination bucket of each entry of a group.
///
/// # Safety
///
/// 1. The entries are those of a table of this type.
unsafe fn place<T: Table>(
    entries: &mut [Moving<T::Entry>],
    buckets: usize,
    (groups, group): (usize, usize),
    hash_of: &impl Fn(&T::Key) -> u64,
) {
    for moving in entries {
        // SAFETY: the entries are those of a table of this type, by 1.
        moving.number = unsafe { T::home_of(&moving.entry, hash_of) };
        // Whatever the hasher returns, this is a bucket of the group.
        let home = moving.number as usize & (buckets - 1);
        moving.bucket = home & !(groups - 1) | group;
    }
}

#[cfg(feature = "raw")]
impl<T: Table, S, G: Section, L> super::CopyMapRef<'_, T, S, G, L> {
    /// The table that operations begin with.
    #[inline(always)]
    pub fn table_version(&self) -> &TableVersion<T> {
        self.version()
    }
}

#[cfg(corewise_loom)]
impl<T> Drop for TableVersion<T> {
    fn drop(&mut self) {
        // SAFETY: no thread uses it any more; otherwise loom reports it.
        self.alive.with_mut(|alive| unsafe { *alive = false });
    }
}
