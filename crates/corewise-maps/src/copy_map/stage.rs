//! A table and the way to its successor; and what a table is.

use std::hash::Hash;
use std::ops::Range;
use std::ptr::{self, NonNull};

use corewise_atomic::alloc::{self, HUGE_PAGE};
use corewise_atomic::sync::Arc;
use corewise_atomic::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use corewise_atomic::sync::atomic::{AtomicPtr, AtomicUsize};
use corewise_atomic::{CachePadded, mutant};

use super::Full;
use super::space::Space;

/// What this place had is in the table's successor.
#[derive(Debug, PartialEq, Eq)]
pub struct Moved;

/// There is no memory for what is to be moved.
#[derive(Debug, PartialEq, Eq)]
pub struct NoMemory;

/// What [`Table::put`] found.
#[derive(Debug, PartialEq, Eq)]
pub enum Put<V> {
    /// Nothing: the pair is new; whether it was hard to find a place for it.
    New { crowded: bool },
    /// The key, with this value.
    There(V),
}

/// A table of [`CopyMap`](super::CopyMap): the parameter by which its forms differ. Others cannot implement it.
///
/// ```
/// use corewise_maps::copy_map::{CopyMap, Table};
///
/// fn sum<T: Table<Key = u64, Value = u64>>(map: &CopyMap<T>, keys: &[u64]) -> u64 {
///     let map = map.pin();
///     keys.iter().filter_map(|key| map.get(key)).sum()
/// }
/// let map = corewise_maps::clht::LockBased::new();
/// map.pin().insert(7, 70).unwrap();
/// assert_eq!(sum(&map, &[6, 7, 7]), 140);
/// ```
// All operations are safe for any threads to call at any time. Each is given the table as a `Stage`, and answers
// for what is there and in its successors together. Who is told of a value has seen all that was written before it was
// put in. Foreign code is called before an operation has changed something: if it panics, nothing has happened.
pub trait Table: Sized {
    /// Keys; equal ones have equal hashes.
    type Key: Copy + Eq + Hash;
    /// Values.
    type Value: Copy;
    /// A pair, with what is known of its place in any table.
    #[doc(hidden)]
    type Entry;
    /// A bucket that nobody else updates or moves until this is dropped.
    #[doc(hidden)]
    type Held<'t>: Held<Self::Entry>
    where
        Self: 't;

    /// Of a map that was given no number.
    #[doc(hidden)]
    const FEWEST_BUCKETS: usize;
    /// Groups that an update moves while there is a resize.
    #[doc(hidden)]
    const SHARE: usize;

    /// Enough buckets for so many entries not to be crowded; any number.
    #[doc(hidden)]
    fn buckets_for(entries: usize) -> usize;

    /// An empty table of so many buckets, a power of two, if there is memory, and room in `space`, to which it
    /// gives it back when it is dropped.
    #[doc(hidden)]
    fn try_new(buckets: usize, space: &Arc<Space>) -> Option<Self>;

    #[doc(hidden)]
    fn buckets(&self) -> usize;

    /// The value of a key. Writes nothing, waits for nobody.
    #[doc(hidden)]
    fn get(at: &Stage<Self>, hash: u64, key: &Self::Key) -> Option<Self::Value>;

    /// Asks for the cache lines that `get` of this hash reads first; nothing by default. Before others of
    /// [`CopyMapRef::get_many`](super::CopyMapRef::get_many), see [`crate::batch`].
    #[doc(hidden)]
    #[inline(always)]
    fn prefetch(&self, hash: u64) {
        let _ = hash;
    }

    /// Reads those, and asks for what `get` may read after them; nothing by default.
    #[doc(hidden)]
    #[inline(always)]
    fn prefetch_more(&self, hash: u64) {
        let _ = hash;
    }

    /// Puts a pair in; if the key is there, replaces its value or, without `replace`, writes nothing.
    #[doc(hidden)]
    fn put(
        at: &Stage<Self>,
        hash: u64,
        key: Self::Key,
        value: Self::Value,
        replace: bool,
    ) -> Result<Put<Self::Value>, Full>;

    /// Removes a key; its value. Writes nothing if it is not there.
    #[doc(hidden)]
    fn remove(at: &Stage<Self>, hash: u64, key: &Self::Key) -> Option<Self::Value>;

    /// Replaces a value by what `new` makes of it, which is called without a lock, again if the value was
    /// changed meanwhile; the new one, which is what it has made last. Writes nothing if the key is not there.
    #[doc(hidden)]
    fn update(
        at: &Stage<Self>,
        hash: u64,
        key: &Self::Key,
        new: impl FnMut(Self::Value) -> Self::Value,
    ) -> Option<Self::Value>;

    /// Calls `each` with every entry of a bucket.
    #[doc(hidden)]
    fn for_each_in(&self, bucket: usize, each: impl FnMut(Self::Entry)) -> Result<(), Moved>;

    #[doc(hidden)]
    fn pair(entry: &Self::Entry) -> (Self::Key, Self::Value);

    /// The number of the bucket that an entry lies in, before it is cut to a table's size.
    #[doc(hidden)]
    fn home_of(entry: &Self::Entry, hash_of: &impl Fn(&Self::Key) -> u64) -> u64;

    /// Somebody begins to iterate over the map, with this table.
    #[doc(hidden)]
    fn begin_walk(&self) {}

    /// Somebody who has called [`begin_walk`](Self::begin_walk) is through.
    #[doc(hidden)]
    fn end_walk(&self) {}

    /// Holds a bucket, unless somebody else does or it was moved.
    #[doc(hidden)]
    fn try_hold(&self, bucket: usize) -> Option<Self::Held<'_>>;

    /// Holds a bucket that nobody else moves.
    #[doc(hidden)]
    fn hold(&self, bucket: usize) -> Self::Held<'_>;

    /// Puts entries in buckets that no hash leads to yet; after an error they are empty.
    #[doc(hidden)]
    fn take_in(&self, entries: &mut [Moving<Self::Entry>]) -> Result<(), NoMemory>;

    /// Empties a bucket that no hash leads to yet. What overflowed from it is kept for what comes.
    #[doc(hidden)]
    fn wipe(&self, bucket: usize);

    /// Where its largest arrays lie. They are plain memory, which needs nothing to be done when the table is dropped.
    #[doc(hidden)]
    fn arrays(&self) -> [Range<*const u8>; 2];

    /// Frees a share of what lies elsewhere; false if there is no more of it. The table is good for nothing afterwards
    /// but more of this, and to be dropped.
    #[doc(hidden)]
    fn free_share(&mut self) -> bool {
        false
    }

    /// Whether to double it, with so many entries. Asked after a [`put`](Self::put) that said `crowded`.
    #[doc(hidden)]
    fn is_crowded(&self, entries: usize) -> bool;
}

/// See [`Table::Held`].
pub trait Held<E> {
    /// Appends all entries.
    fn copy(&self, to: &mut Vec<Moving<E>>) -> Result<(), NoMemory>;
    /// Marks the bucket, whose entries are all in the table's successor: nobody updates it any more.
    fn set_moved(self);
    /// The mistake of a mutant: readers leave before the entries do.
    fn set_moved_early(&self);
}

/// An entry on its way to a bucket of another table.
pub struct Moving<E> {
    pub(crate) bucket: usize,
    /// What [`Table::home_of`] said.
    pub(crate) number: u64,
    pub(crate) entry: E,
}

impl<E> Moving<E> {
    /// Where to is not known yet.
    pub(crate) fn new(entry: E) -> Self {
        Self {
            bucket: 0,
            number: 0,
            entry,
        }
    }
}

/// A table, and while it is resized the way to its successor.
pub struct Stage<T> {
    /// Null, or the table that entries are moved to. It is there for as long as this one.
    next: AtomicPtr<Stage<T>>,
    table: T,
    progress: CachePadded<Progress>,
    /// Read with every use and written at the end: to loom, a use after that is a race.
    #[cfg(corewise_loom)]
    alive: corewise_atomic::cell::DataCell<bool>,
}

struct Progress {
    /// The next group to be moved, modulo their number: whoever finds all moved has gone round.
    cursor: AtomicUsize,
    moved: AtomicUsize,
    /// Pages of the successor that were put in place before they are needed, see [`Stage::prepare`].
    prepared: AtomicUsize,
}

/// What [`Stage::step`] did.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// There is no resize under way, or all that is left to do is done by others.
    Idle,
    /// It moved something.
    Working,
    /// It moved the last group: the successor is whole.
    Last,
}

impl<T> Stage<T> {
    pub(crate) fn new(table: T) -> Box<Self> {
        Box::new(Self {
            next: AtomicPtr::new(ptr::null_mut()),
            table,
            progress: CachePadded::new(Progress {
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
    pub(crate) fn table(&self) -> &T {
        #[cfg(corewise_loom)]
        // SAFETY: written when nobody uses the table any more: loom says if not.
        self.alive.with(|alive| assert!(unsafe { *alive }));
        &self.table
    }

    /// What this table is resized to, if it is.
    #[inline(always)]
    pub(crate) fn next(&self) -> Option<&Stage<T>> {
        // Acquire: pairs with the Release in `link`.
        // SAFETY: `link`'s caller answers for its life.
        unsafe { self.next.load(Acquire).as_ref() }
    }

    pub(crate) fn next_ptr(&self) -> *mut Stage<T> {
        // Acquire: as in `next`.
        self.next.load(Acquire)
    }

    /// Begins a resize.
    ///
    /// # Safety
    ///
    /// 1. `next` lives for as long as anybody uses this table.
    /// 2. This table has no successor yet, and nobody else gives it one.
    pub(crate) unsafe fn link(&self, next: NonNull<Stage<T>>) {
        // Release: pairs with the Acquire in `next`: its empty buckets are seen.
        self.next.store(next.as_ptr(), Release);
    }

    /// Calls `act` with this table, or the successor that what it wants was moved to.
    #[inline(always)]
    pub(crate) fn follow<'t, R>(&'t self, mut act: impl FnMut(&'t T) -> Result<R, Moved>) -> R {
        let mut at = self;
        loop {
            match act(at.table()) {
                Ok(answer) => return answer,
                // Who sees the mark sees the successor: it was linked before.
                Err(Moved) => at = at.next().expect("moved to a successor"),
            }
        }
    }
}

impl<T: Table> Stage<T> {
    /// Moves a share of so many groups to the successor, if there is one. Waits for nobody who does the same.
    pub(crate) fn step(
        &self,
        share: usize,
        hash_of: &impl Fn(&T::Key) -> u64,
    ) -> Result<Step, NoMemory> {
        let Some(next) = self.next() else {
            return Ok(Step::Idle);
        };
        let (from, to) = (self.table(), next.table());
        let groups = from.buckets().min(to.buckets());
        // Relaxed: a hint; which groups are moved is in their buckets.
        if self.progress.moved.load(Relaxed) == groups {
            return Ok(Step::Idle);
        }
        if self.prepare(to, groups) {
            return Ok(Step::Working);
        }
        let share = share.min(groups);
        let first = self.progress.cursor.fetch_add(share, Relaxed);
        let mut step = Step::Idle;
        for group in first..first + share {
            if !move_group(from, to, group & (groups - 1), hash_of)? {
                continue;
            }
            step = Step::Working;
            // AcqRel: whoever counts the last one sees what all others have moved.
            if self.progress.moved.fetch_add(1, AcqRel) + 1 == groups {
                return Ok(Step::Last);
            }
        }
        Ok(step)
    }

    /// Puts copies of some groups in a table that is not linked yet, in order to find out whether there is memory for
    /// what overflows there, and to have it. `to` is wiped afterwards, or dropped.
    pub(crate) fn rehearse(
        &self,
        to: &T,
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
            place::<T>(&mut entries, to.buckets(), (groups, group), hash_of);
            to.take_in(&mut entries)?;
        }
        Ok(())
    }

    /// Has a page of the successor put in place that groups are about to be moved to; false if they all are.
    ///
    /// A huge page takes as long as clearing it, and on a machine that is itself lent out as long as finding so much
    /// memory: 0.1 ms, or 5. Whoever moves a share would wait for one after the other of each array, as many as it
    /// has stretches that a group goes to; so one update waits for one of them, moves nothing, and the others move on.
    fn prepare(&self, to: &T, groups: usize) -> bool {
        let arrays = to.arrays();
        let bytes = arrays
            .each_ref()
            .map(|array| array.end.addr() - array.start.addr());
        // Smaller arrays have small pages.
        if bytes.iter().all(|bytes| *bytes < HUGE_PAGE) {
            return false;
        }
        let most = bytes
            .iter()
            .max()
            .map_or(0, |bytes| bytes.div_ceil(HUGE_PAGE));
        let stretches = (to.buckets() / groups).min(most);
        let steps = most.div_ceil(stretches);
        // Each step of the way has a page in every stretch of both arrays.
        let (of_step, all) = (arrays.len() * stretches, steps * arrays.len() * stretches);
        // Relaxed, all: hints; who comes too late waits for the page itself.
        let prepared = self.progress.prepared.load(Relaxed);
        let reached = self.progress.cursor.load(Relaxed).min(groups);
        let wanted = reached * all / groups + of_step;
        if prepared >= wanted.min(all) {
            return false;
        }
        let next = self.progress.prepared.fetch_add(1, Relaxed);
        let (step, stretch, array) = (
            next / of_step,
            next % of_step / arrays.len(),
            next % arrays.len(),
        );
        if bytes[array] < HUGE_PAGE || step >= steps {
            return false;
        }
        let page = stretch * steps + step;
        let offset = bytes[array] / (steps * stretches) * page;
        alloc::populate(arrays[array].start.wrapping_add(offset));
        true
    }

    /// Frees a share of a table that nobody uses any more, from `from` bytes of its arrays on: how far that is now, or
    /// `None` if the rest is soon done.
    ///
    /// # Safety
    ///
    /// 1. Nobody else uses the table, then or later, and the caller does no more than this and to drop it.
    pub(crate) unsafe fn free_share(&mut self, from: usize) -> Option<usize> {
        if self.table.free_share() {
            return Some(from);
        }
        let mut before = 0;
        for array in self.table.arrays() {
            let bytes = array.end.addr() - array.start.addr();
            let at = from.saturating_sub(before);
            // The checkers' atomics are not plain memory.
            if at + HUGE_PAGE < bytes && !cfg!(any(corewise_loom, corewise_shuttle)) {
                let first = array.start.wrapping_add(at).cast_mut();
                // SAFETY: a part of the array, which nobody else uses, by 1.
                unsafe { alloc::discard(first, HUGE_PAGE) };
                return Some(before + at + HUGE_PAGE);
            }
            before += bytes;
        }
        None
    }

    /// Calls `each` with every pair that belongs to a bucket whose number is `index` under `mask`: to one of this table
    /// or of one that was before it, wherever it is.
    pub(crate) fn for_each(
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
                // A bucket of ours has the entries of several, if there were more in the table before.
                if mask <= own || T::home_of(&entry, hash_of) & mask == index {
                    let (key, value) = T::pair(&entry);
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

/// Moves the entries of a group; false if somebody else has, or is at it. If there is no memory or `hash_of` panics
/// nothing has happened.
///
/// A group is all buckets whose numbers end in `group`: one of the smaller table, and those of the other whose entries
/// go there or come from there. Nobody but us can reach those of `to`: the way there is a mark on one of ours, which
/// we hold, or being the map's table, which `to` is not before all is moved.
fn move_group<T: Table>(
    from: &T,
    to: &T,
    group: usize,
    hash_of: &impl Fn(&T::Key) -> u64,
) -> Result<bool, NoMemory> {
    let groups = from.buckets().min(to.buckets());
    // The first one decides who moves the group.
    let Some(first) = from.try_hold(group) else {
        return Ok(false);
    };
    let mut others = Vec::new();
    let many = from.buckets() / groups - 1;
    others.try_reserve_exact(many).map_err(|_| NoMemory)?;
    let buckets = (group..from.buckets()).step_by(groups).skip(1);
    others.extend(buckets.map(|bucket| from.hold(bucket)));
    let all = || std::iter::once(&first).chain(&others);
    if mutant!("moves_early") {
        all().for_each(Held::set_moved_early);
    }
    let mut entries = Vec::new();
    for held in all() {
        held.copy(&mut entries)?;
    }
    place::<T>(&mut entries, to.buckets(), (groups, group), hash_of);
    to.take_in(&mut entries)?;
    first.set_moved();
    others.into_iter().for_each(Held::set_moved);
    Ok(true)
}

/// Says which of the buckets the entries of a group go to.
fn place<T: Table>(
    entries: &mut [Moving<T::Entry>],
    buckets: usize,
    (groups, group): (usize, usize),
    hash_of: &impl Fn(&T::Key) -> u64,
) {
    for moving in entries {
        moving.number = T::home_of(&moving.entry, hash_of);
        // Whatever the hasher says, it is a bucket of the group.
        let home = moving.number as usize & (buckets - 1);
        moving.bucket = home & !(groups - 1) | group;
    }
}

#[cfg(corewise_loom)]
impl<T> Drop for Stage<T> {
    fn drop(&mut self) {
        // SAFETY: nobody uses it any more; loom says if not.
        self.alive.with_mut(|alive| unsafe { *alive = false });
    }
}
