//! One table: its buckets, operations that go on in its successor, and the way there.

use std::ptr;
use std::ptr::NonNull;

use corewise_atomic::sync::Arc;
use corewise_atomic::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use corewise_atomic::sync::atomic::{AtomicPtr, AtomicUsize};
use corewise_atomic::{CachePadded, mutant};

use super::Full;
use super::bucket::{Bucket, Found, Locked, Moved, Spare};
use super::space::{Heads, Space};
use crate::word::Raw;

/// A table, and while it is resized the way to its successor.
pub(super) struct Table {
    heads: Heads,
    /// Null, or the table that entries are moved to. It is there for as long as this one.
    next: AtomicPtr<Table>,
    space: Arc<Space>,
    /// Buckets that hang on others.
    overflow: CachePadded<AtomicUsize>,
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

/// What [`Table::put`] found.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Put {
    /// Nothing: the pair is new, and in a new bucket or not.
    New { hung: bool },
    /// The key, with this value.
    There(Raw),
}

/// There is no memory for what is to be moved.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct NoMemory;

/// What [`Table::step`] did.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// There is no resize under way, or all that is left to do is done by others.
    Idle,
    /// It moved something.
    Working,
    /// It moved the last group: the successor is whole.
    Last,
}

/// An entry on its way.
struct Moving {
    child: usize,
    key: Raw,
    value: Raw,
}

impl Table {
    /// A table of so many buckets, a power of two, if there is memory.
    pub(super) fn try_new(buckets: usize, space: &Arc<Space>) -> Option<Box<Self>> {
        assert!(buckets.is_power_of_two());
        let bytes = Heads::bytes(buckets);
        if !space.take(bytes) {
            return None;
        }
        let Some(heads) = Heads::try_new(buckets) else {
            space.give(bytes);
            return None;
        };
        Some(Box::new(Self {
            heads,
            next: AtomicPtr::new(ptr::null_mut()),
            space: space.clone(),
            overflow: CachePadded::new(AtomicUsize::new(0)),
            progress: CachePadded::new(Progress {
                cursor: AtomicUsize::new(0),
                moved: AtomicUsize::new(0),
            }),
            #[cfg(corewise_loom)]
            alive: corewise_atomic::cell::DataCell::new(true),
        }))
    }

    #[inline(always)]
    pub(super) fn len(&self) -> usize {
        self.heads.len()
    }

    #[inline(always)]
    pub(super) fn mask(&self) -> u64 {
        self.len() as u64 - 1
    }

    /// The first bucket of a hash.
    #[inline(always)]
    fn head(&self, hash: u64) -> &Bucket {
        #[cfg(corewise_loom)]
        // SAFETY: written when nobody uses the table any more: loom says if not.
        assert!(unsafe { self.alive.read() });
        &self.heads[(hash & self.mask()) as usize]
    }

    #[cfg(all(test, not(any(corewise_loom, corewise_shuttle))))]
    pub(super) fn heads(&self) -> &[Bucket] {
        &self.heads
    }

    /// Buckets that hang on others, give or take those being hung.
    pub(super) fn overflow(&self) -> usize {
        // Relaxed: a number that publishes nothing, here and below.
        self.overflow.load(Relaxed)
    }

    /// The table that this one is resized to, if it is.
    #[inline(always)]
    pub(super) fn next(&self) -> Option<&Table> {
        // Acquire: pairs with the Release in `link`.
        // SAFETY: `link`'s caller answers for its life.
        unsafe { self.next.load(Acquire).as_ref() }
    }

    /// Begins a resize.
    ///
    /// # Safety
    ///
    /// 1. `next` lives for as long as anybody uses this table.
    /// 2. This table has no successor yet, and nobody else gives it one.
    pub(super) unsafe fn link(&self, next: NonNull<Table>) {
        // Release: pairs with the Acquire in `next`: its empty buckets are seen.
        self.next.store(next.as_ptr(), Release);
    }

    pub(super) fn next_ptr(&self) -> *mut Table {
        // Acquire: as in `next`.
        self.next.load(Acquire)
    }

    /// Calls `act` with the bucket of a hash, here or in the successor that its entries were moved to.
    #[inline(always)]
    fn on_head<'t, R>(
        &'t self,
        hash: u64,
        mut act: impl FnMut(&'t Table, &'t Bucket) -> Result<R, Moved>,
    ) -> R {
        let mut table = self;
        loop {
            match act(table, table.head(hash)) {
                Ok(answer) => return answer,
                // Who sees the mark sees the successor: it was linked before.
                Err(Moved) => table = table.next().expect("moved to a successor"),
            }
        }
    }

    /// The value of a key. Writes nothing, waits for nobody.
    #[inline]
    pub(super) fn get(&self, hash: u64, key: Raw) -> Option<Raw> {
        self.on_head(hash, |_, head| head.look_up(key))
    }

    /// Puts a pair in; if the key is there, replaces its value or, without `replace`, writes nothing.
    pub(super) fn put(&self, hash: u64, key: Raw, value: Raw, replace: bool) -> Result<Put, Full> {
        let mut spare = None;
        self.on_head(hash, |table, head| {
            if !replace && let Some(there) = head.look_up(key)? {
                return Ok(Ok(Put::There(there)));
            }
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
                        return Ok(Ok(Put::New { hung: false }));
                    }
                    Found::Full(last) => {
                        if let Some(spare) = spare.take() {
                            locked.append(last, spare, key, value);
                            table.overflow.fetch_add(1, Relaxed);
                            return Ok(Ok(Put::New { hung: true }));
                        }
                    }
                }
                // Memory is asked for without the lock.
                drop(locked);
                spare = Spare::new(&self.space);
                if spare.is_none() {
                    return Ok(Err(Full));
                }
            }
        })
    }

    /// Removes a key; its value. Writes nothing if it is not there.
    pub(super) fn remove(&self, hash: u64, key: Raw) -> Option<Raw> {
        self.on_head(hash, |_, head| {
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
        })
    }

    /// Replaces a value by what `new` makes of it, which is called without a lock, again if the value was
    /// changed meanwhile; the new one. Writes nothing if the key is not there.
    pub(super) fn update(
        &self,
        hash: u64,
        key: Raw,
        mut new: impl FnMut(Raw) -> Raw,
    ) -> Option<Raw> {
        self.on_head(hash, |_, head| {
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
        })
    }

    /// Calls `each` with every pair whose hash is `index` under `mask`: with those of one bucket of this table or
    /// of one that was before it, wherever they are.
    pub(super) fn for_each(
        &self,
        (mask, index): (u64, u64),
        hash_of: &impl Fn(Raw) -> u64,
        each: &mut impl FnMut(Raw, Raw),
    ) {
        let step = mask.min(self.mask()) as usize + 1;
        let first = (index & self.mask()) as usize;
        for (head, bucket) in self.heads.iter().enumerate().skip(first).step_by(step) {
            let wanted = |key, value| {
                if hash_of(key) & mask == index {
                    each(key, value);
                }
            };
            if let Err(Moved) = bucket.for_each(wanted) {
                let next = self.next().expect("moved to a successor");
                let (mask, index) = if self.mask() > mask {
                    (self.mask(), head as u64)
                } else {
                    (mask, index)
                };
                next.for_each((mask, index), hash_of, each);
            }
        }
    }

    /// Moves a share of so many groups of buckets to the successor, if there is one. Waits for nobody who does
    /// the same.
    pub(super) fn step(
        &self,
        share: usize,
        hash_of: &impl Fn(Raw) -> u64,
    ) -> Result<Step, NoMemory> {
        let Some(next) = self.next() else {
            return Ok(Step::Idle);
        };
        let groups = self.len().min(next.len());
        // Relaxed: a hint; which groups are moved is in their buckets.
        if self.progress.moved.load(Relaxed) == groups {
            return Ok(Step::Idle);
        }
        let share = share.min(groups);
        let first = self.progress.cursor.fetch_add(share, Relaxed);
        let mut step = Step::Idle;
        for group in first..first + share {
            if !self.move_group(next, group & (groups - 1), hash_of)? {
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

    /// Moves the entries of the buckets whose numbers end in `group`; false if somebody else has, or has the lock.
    ///
    /// The smaller of both tables has one bucket of that ending, and nobody but us can reach those of `to`: the
    /// way there is a mark on one of ours, which we have locked, or being the map's table, which `to` is not before
    /// all is moved.
    fn move_group(
        &self,
        to: &Table,
        group: usize,
        hash_of: &impl Fn(Raw) -> u64,
    ) -> Result<bool, NoMemory> {
        let groups = self.len().min(to.len());
        // The first one decides who moves the group.
        let Ok(Some(first)) = self.heads[group].try_lock() else {
            return Ok(false);
        };
        let mut others = Vec::new();
        let many = self.len() / groups - 1;
        others.try_reserve_exact(many).map_err(|_| NoMemory)?;
        for bucket in self.heads.iter().skip(group).step_by(groups).skip(1) {
            others.push(bucket.lock().expect("only we move it"));
        }
        let all = || std::iter::once(&first).chain(&others);
        if mutant!("clht_moves_early") {
            all().for_each(Locked::set_moved_early);
        }
        let mut entries = Vec::new();
        for locked in all() {
            let mut counted = 0;
            locked.for_each(|_, _| counted += 1);
            entries.try_reserve(counted).map_err(|_| NoMemory)?;
            locked.for_each(|key, value| {
                // Whatever the hasher says, it is a bucket of the group.
                let child = (hash_of(key) & to.mask()) as usize & !(groups - 1) | group;
                entries.push(Moving { child, key, value });
            });
        }
        to.take_in(&mut entries)?;
        first.set_moved();
        others.into_iter().for_each(Locked::set_moved);
        Ok(true)
    }

    /// Fills buckets that nobody else can reach; after an error they are empty.
    fn take_in(&self, entries: &mut [Moving]) -> Result<(), NoMemory> {
        entries.sort_unstable_by_key(|entry| entry.child);
        for child in entries.chunk_by(|one, other| one.child == other.child) {
            let mut tail = &self.heads[child[0].child];
            for entry in child {
                let hang = || {
                    self.overflow.fetch_add(1, Relaxed);
                    Spare::new(&self.space)
                };
                let Some(bucket) = Bucket::fill(tail, entry.key, entry.value, hang) else {
                    self.overflow.fetch_sub(1, Relaxed);
                    let filled = entries.iter().map(|entry| &self.heads[entry.child]);
                    filled.for_each(Bucket::wipe);
                    return Err(NoMemory);
                };
                tail = bucket;
            }
        }
        Ok(())
    }
}

impl Drop for Table {
    fn drop(&mut self) {
        #[cfg(corewise_loom)]
        // SAFETY: as below; loom says if not.
        unsafe {
            self.alive.write(false);
        }
        // SAFETY: nobody else uses the table any more; so neither its chains.
        unsafe {
            for head in self.heads.as_mut() {
                head.free_overflow(&self.space);
            }
        }
        self.space.give(Heads::bytes(self.len()));
    }
}
