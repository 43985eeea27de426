//! A table and the way to its successor; and what a table is.

use std::hash::Hash;
use std::ptr::{self, NonNull};

use corewise_atomic::CachePadded;
use corewise_atomic::sync::Arc;
use corewise_atomic::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use corewise_atomic::sync::atomic::{AtomicPtr, AtomicUsize};

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
// put in.
pub trait Table: Sized {
    /// Keys; equal ones have equal hashes.
    type Key: Copy + Eq + Hash;
    /// Values.
    type Value: Copy;

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
        hash_of: &impl Fn(&Self::Key) -> u64,
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

    /// Calls `each` with every pair whose hash is `index` under `mask`: with those of one bucket of this table or
    /// of one that was before it, wherever they are.
    #[doc(hidden)]
    fn for_each(
        at: &Stage<Self>,
        of: (u64, u64),
        hash_of: &impl Fn(&Self::Key) -> u64,
        each: &mut impl FnMut(Self::Key, Self::Value),
    );

    /// Somebody begins to iterate over the map, with this table.
    #[doc(hidden)]
    fn begin_walk(&self) {}

    /// Somebody who has called [`begin_walk`](Self::begin_walk) is through.
    #[doc(hidden)]
    fn end_walk(&self) {}

    /// Into how many groups this table is divided when it is resized to another.
    #[doc(hidden)]
    fn groups(&self, to: &Self) -> usize {
        self.buckets().min(to.buckets())
    }

    /// Moves the entries of a group; false if somebody else has, or is at it. If there is no memory or `hash_of`
    /// panics nothing has happened.
    ///
    /// Nobody but who moves entries there can reach the places of `to` that a group leads to, before the group is
    /// marked as moved.
    #[doc(hidden)]
    fn move_group(
        &self,
        to: &Self,
        group: usize,
        hash_of: &impl Fn(&Self::Key) -> u64,
    ) -> Result<bool, NoMemory>;

    /// Whether to double it, with so many entries. Asked after a [`put`](Self::put) that said `crowded`.
    #[doc(hidden)]
    fn is_crowded(&self, entries: usize) -> bool;
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
        let groups = from.groups(to);
        // Relaxed: a hint; which groups are moved is in their buckets.
        if self.progress.moved.load(Relaxed) == groups {
            return Ok(Step::Idle);
        }
        let share = share.min(groups);
        let first = self.progress.cursor.fetch_add(share, Relaxed);
        let mut step = Step::Idle;
        for group in first..first + share {
            if !from.move_group(to, group % groups, hash_of)? {
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
}

#[cfg(corewise_loom)]
impl<T> Drop for Stage<T> {
    fn drop(&mut self) {
        // SAFETY: nobody uses it any more; loom says if not.
        self.alive.with_mut(|alive| unsafe { *alive = false });
    }
}
