//! Updates: which buckets they lock, and what they change there.

use corewise_atomic::mutant;

use super::bucket::{CuckooEntry, LockedBucket, SlotRef};
use super::overflow::Spare;
use super::path;
use super::state::{Homes, Side, State};
use super::table::CuckooTable;
use crate::copy_map::{EntryChange, Full, Put, TableVersion};

/// How often one insertion makes room before it overflows: concurrent insertions may take the room
/// that it made.
const ATTEMPTS: u32 = 8;

/// Where a bucket of a key is: its table, how many tables after the one the search began in, and
/// its number there.
struct CurrentBucket<'t, K, V> {
    table: &'t CuckooTable<K, V>,
    after: u32,
    bucket: usize,
}

impl<'t, K: Copy, V: Copy> CurrentBucket<'t, K, V> {
    fn of(at: &'t TableVersion<CuckooTable<K, V>>, homes: Homes, side: Side) -> Self {
        let (mut at, mut after) = (at, 0);
        loop {
            let table = at.table();
            let bucket = homes.bucket(side, table.mask());
            if !table.state(bucket).is_moved() || mutant!("cuckoo_ignores_moved") {
                return Self {
                    table,
                    after,
                    bucket,
                };
            }
            // A thread that sees the mark sees the successor: it was linked before.
            at = at.next().expect("moved to a successor");
            after += 1;
        }
    }

    /// The lock order: by table, then by bucket.
    fn order(&self) -> (u32, usize) {
        (self.after, self.bucket)
    }
}

/// The buckets of a key: the first one locked, the second one where necessary. The lock of the
/// first bucket covers the key: no other thread inserts or removes it, or moves it, except from an
/// overflow bucket of its second bucket into that bucket.
struct LockedHomes<'t, K: Copy, V: Copy> {
    // Dropped in this order: see `unlock`.
    second: Option<LockedBucket<'t, K, V>>,
    first: LockedBucket<'t, K, V>,
    after: u32,
}

/// Which of its two buckets a key is in, and the slot there.
type KeySlot<'t, K, V> = (Side, SlotRef<'t, K, V>);

/// Result of locking the second bucket in addition to the first.
#[derive(PartialEq, Eq)]
enum SecondLock {
    /// It is locked.
    Locked,
    /// Both are the same bucket.
    Same,
    /// Another thread holds it; we must not wait for it while we hold the first.
    Busy,
}

impl<'t, K: Copy + Eq, V: Copy> LockedHomes<'t, K, V> {
    fn first(at: &'t TableVersion<CuckooTable<K, V>>, homes: Homes) -> Self {
        loop {
            let current = CurrentBucket::of(at, homes, Side::First);
            if let Ok(first) = current.table.lock(current.bucket) {
                return Self {
                    first,
                    second: None,
                    after: current.after,
                };
            }
        }
    }

    fn both(at: &'t TableVersion<CuckooTable<K, V>>, homes: Homes) -> Self {
        loop {
            let [one, other] =
                [Side::First, Side::Second].map(|side| CurrentBucket::of(at, homes, side));
            let after = one.after;
            if one.order() == other.order() {
                return Self::first(at, homes);
            }
            let turned = one.order() > other.order();
            let (one, other) = if turned { (other, one) } else { (one, other) };
            let Ok(one) = one.table.lock(one.bucket) else {
                continue;
            };
            let Ok(other) = other.table.lock(other.bucket) else {
                continue;
            };
            let (first, second) = if turned { (other, one) } else { (one, other) };
            return Self {
                first,
                second: Some(second),
                after,
            };
        }
    }

    /// Also locks the second bucket, unless it is locked already.
    fn lock_second(&mut self, at: &'t TableVersion<CuckooTable<K, V>>, homes: Homes) -> SecondLock {
        if self.second.is_some() {
            return SecondLock::Locked;
        }
        loop {
            let current = CurrentBucket::of(at, homes, Side::Second);
            let first = (self.after, self.first.bucket());
            if current.order() == first {
                return SecondLock::Same;
            }
            // In the lock order the thread may wait; against it, it only tries.
            let second = if current.order() > first || mutant!("cuckoo_locks_in_any_order") {
                current.table.lock(current.bucket).map(Some)
            } else {
                current.table.try_lock(current.bucket)
            };
            match second {
                Ok(Some(second)) => {
                    self.second = Some(second);
                    return SecondLock::Locked;
                }
                Ok(None) => return SecondLock::Busy,
                // It is in the next table now.
                Err(_) => {}
            }
        }
    }

    /// Whether the second bucket certainly does not have the key. A bucket that has, or had, an
    /// overflow bucket may: its entries move into their bucket without the lock of their first one.
    fn rules_out_second(at: &TableVersion<CuckooTable<K, V>>, homes: Homes) -> bool {
        let table = at.table();
        let state = table.state(homes.bucket(Side::Second, table.mask()));
        State::are_plain([state; 2]) && state.matches(homes.tag).is_empty()
    }

    /// Locks the first bucket, and the second one if the key may be there or if `both` are wanted;
    /// also returns where the key is.
    fn find(
        at: &'t TableVersion<CuckooTable<K, V>>,
        homes: Homes,
        key: &K,
        both: bool,
    ) -> (Self, Option<KeySlot<'t, K, V>>) {
        let mut held = if both {
            Self::both(at, homes)
        } else {
            Self::first(at, homes)
        };
        loop {
            if let Some(place) = held.find_in_held(homes, key) {
                return (held, Some(place));
            }
            // Both buckets were searched, or one is enough: the key is absent.
            if held.second.is_some() || Self::rules_out_second(at, homes) {
                return (held, None);
            }
            match held.lock_second(at, homes) {
                SecondLock::Locked => {} // search again, in both
                SecondLock::Same => return (held, None),
                // Lock both in the lock order. The first one is unlocked meanwhile.
                SecondLock::Busy => {
                    drop(held);
                    held = Self::both(at, homes);
                }
            }
        }
    }

    fn find_in_held(&self, homes: Homes, key: &K) -> Option<KeySlot<'t, K, V>> {
        let first = self.first.find(homes.tag, key);
        first.map(|place| (Side::First, place)).or_else(|| {
            let second = self.second.as_ref()?.find(homes.tag, key);
            second.map(|place| (Side::Second, place))
        })
    }

    /// Publishes what was inserted in the second bucket before it unlocks the first one: the next
    /// owner of the first bucket relies on the word of the second.
    fn unlock(self) {
        let Self { first, second, .. } = self;
        if mutant!("cuckoo_unlocks_first") {
            drop(first);
            drop(second);
        } else {
            drop(second);
            drop(first);
        }
    }

    fn of(&mut self, side: Side) -> &mut LockedBucket<'t, K, V> {
        match side {
            Side::First => &mut self.first,
            Side::Second => self.second.as_mut().expect("what was found there"),
        }
    }

    /// A free slot of the locked buckets or, if `in_overflow`, of their overflow buckets.
    fn free_slot(&self, in_overflow: bool) -> Option<KeySlot<'t, K, V>> {
        let free = |bucket: &LockedBucket<'t, K, V>| {
            if in_overflow {
                bucket.free_overflow()
            } else {
                bucket.free()
            }
        };
        let first = free(&self.first).map(|place| (Side::First, place));
        first.or_else(|| {
            let place = free(self.second.as_ref()?)?;
            Some((Side::Second, place))
        })
    }
}

/// Result of an attempt to insert.
enum Attempt<'t, K, V> {
    Done(Put<V>),
    /// Both buckets are full; holds the table that the first one is in.
    NoRoom(&'t CuckooTable<K, V>),
}

impl<K: Copy + Eq, V: Copy> CuckooTable<K, V> {
    /// As [`Table::put`](crate::copy_map::Table::put).
    pub(super) fn put_pair(
        at: &TableVersion<Self>,
        homes: Homes,
        pair: (K, V),
        replace: bool,
    ) -> Result<Put<V>, Full> {
        let mut spare = None;
        let mut attempts = 0;
        // Set when there is no memory for a spare bucket: the key's overflow buckets may have room.
        let mut uses_overflow_room = false;
        loop {
            if !replace && let Some(there) = Self::look_up(at, homes, &pair.0) {
                return Ok(Put::There(there.pair.1));
            }
            let table =
                match Self::try_put(at, homes, pair, replace, &mut spare, uses_overflow_room) {
                    Attempt::Done(Put::New { crowded }) => {
                        // Room that other entries had to make counts as crowded, too.
                        let crowded = crowded || attempts > 0;
                        return Ok(Put::New { crowded });
                    }
                    Attempt::Done(put) => return Ok(put),
                    Attempt::NoRoom(table) => table,
                };
            attempts += 1;
            if attempts <= ATTEMPTS && path::make_room(at, homes) {
                continue;
            }
            // Allocate without a lock.
            drop(spare.take());
            spare = table.overflow().spare();
            if spare.is_none() {
                if uses_overflow_room || mutant!("cuckoo_is_full_early") {
                    return Err(Full);
                }
                uses_overflow_room = true;
            }
        }
    }

    /// Inserts or replaces, in the room of both buckets or in the spare bucket. With a spare bucket
    /// or if `uses_overflow_room`, also in the room of their overflow buckets.
    fn try_put<'t>(
        at: &'t TableVersion<Self>,
        homes: Homes,
        pair: (K, V),
        replace: bool,
        spare: &mut Option<Spare<'t, K, V>>,
        uses_overflow_room: bool,
    ) -> Attempt<'t, K, V> {
        let mut both = false;
        loop {
            let (mut held, place) = LockedHomes::find(at, homes, &pair.0, both);
            if let Some((side, place)) = place.filter(|_| !mutant!("cuckoo_no_second_scan")) {
                let bucket = held.of(side);
                // SAFETY: the place was found in this bucket or its overflow buckets, under the
                // lock (1).
                let there = unsafe { bucket.pair(place) };
                if replace {
                    // SAFETY: the place was found in this bucket or its overflow buckets, under the
                    // lock (1). The key is the one that was read there (2).
                    unsafe { bucket.replace(place, (there.0, pair.1)) };
                }
                return Attempt::Done(Put::There(there.1));
            }
            let mut room = held.free_slot(false);
            // The first bucket is full: try the second one.
            if room.is_none() {
                if held.lock_second(at, homes) == SecondLock::Busy {
                    both = true;
                    continue;
                }
                room = held.free_slot(false);
            }
            let table = held.first.table();
            let is_crowded = room.is_none();
            let entry = |side| CuckooEntry::new(pair, homes.tag, side);
            // Both are full: use an overflow bucket if the caller has found no cuckoo path.
            if is_crowded {
                let spare = spare.take_if(|spare| spare.is_of(table.overflow()));
                if spare.is_some() || uses_overflow_room {
                    room = held.free_slot(true);
                }
                if room.is_none() {
                    let Some(spare) = spare else {
                        return Attempt::NoRoom(table);
                    };
                    // SAFETY: `is_of` has checked that the spare bucket is of the first bucket's
                    // table (1).
                    unsafe { held.first.append(spare, &entry(Side::First)) };
                }
            }
            if let Some((side, place)) = room {
                // SAFETY: `room` returned a free place of that bucket, under its lock (1).
                unsafe { held.of(side).insert(place, &entry(side)) };
            }
            held.unlock();
            let crowded = is_crowded;
            return Attempt::Done(Put::New { crowded });
        }
    }

    /// As [`Table::remove`](crate::copy_map::Table::remove).
    pub(super) fn remove_key(at: &TableVersion<Self>, homes: Homes, key: &K) -> Option<V> {
        Self::look_up(at, homes, key)?;
        let (mut held, place) = LockedHomes::find(at, homes, key, false);
        let (side, place) = place?;
        let bucket = held.of(side);
        // SAFETY: the place was found in this bucket or its overflow buckets, under the lock (1).
        let value = unsafe {
            let (_, value) = bucket.pair(place);
            bucket.remove(place);
            value
        };
        bucket.refill_from_overflow();
        Some(value)
    }

    /// As [`Table::change`](crate::copy_map::Table::change).
    pub(super) fn change_entry(
        at: &TableVersion<Self>,
        homes: Homes,
        key: &K,
        mut decide: impl FnMut(V) -> EntryChange<V>,
    ) -> Option<(V, EntryChange<V>)> {
        loop {
            let seen = Self::look_up(at, homes, key)?;
            let (there, old) = seen.pair;
            let change = decide(old);
            if let EntryChange::Keep = change {
                return Some((old, change));
            }
            let (mut held, place) = LockedHomes::find(at, homes, key, false);
            let (side, place) = place?;
            let bucket = held.of(side);
            if !seen.is(&bucket.load(place)) {
                continue;
            }
            // SAFETY: the place was found in this bucket or its overflow buckets, under the lock
            // (1). The bytes that were compared are those of the old pair, so its key is still
            // there (2).
            unsafe {
                match change {
                    EntryChange::Keep => {}
                    EntryChange::Replace(value) => bucket.replace(place, (there, value)),
                    EntryChange::Remove => bucket.remove(place),
                }
            }
            if let EntryChange::Remove = change {
                bucket.refill_from_overflow();
            }
            return Some((old, change));
        }
    }
}
