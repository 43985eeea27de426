//! Sorted sets and filters as values of items.
//!
//! ```text
//!  flat set   kind FlatSet   value: the members, at most 113, of 1,024 bytes in all
//!  set        kind Set       value: a pointer ──▶ SortedSet
//!  filter     kind Filter    value: a pointer ──▶ Filter
//! ```
//!
//! A flat set is written as an append is: a changed copy replaces the item. A set that outgrows it
//! becomes a [`SortedSet`], which is changed in place, and stays one until it is empty. A
//! [`Filter`] is changed in place too.
//!
//! Sets and filters are *objects*. An engine knows them as [`Object`]s: what it counts, evicts and
//! frees. Where it names sets, it means both.
//!
//! # Guarantees
//!
//! 1. *One owner.* An object belongs to the one linked item that points to it. The thread that
//!    unlinks the item, or replaces it, takes the object. An engine that moves an item lets the
//!    copy be the owner. An item that was not linked owns nothing.
//! 2. *Exclusion.* A thread that follows the pointer excludes all others that may: it holds the
//!    stripe, shard or partition of the item's key, or only it can reach the item. So an object
//!    needs neither a lock nor a grace period, and reads of one object do not run side by side.
//!    Threads that exclude no others may read the header, the key, and a flat set.
//! 3. *Accounting.* An engine counts [the bytes](Object::bytes) of each object that a linked item
//!    owns, and of those that it has yet to free.
//! 4. *Room first.* A write makes room for its largest [growth] before it changes a set, and for a
//!    whole filter, or part of one, before it is allocated.

mod draft;
mod filter;
mod flat;
mod heap;
mod object;
mod verb;

use crate::item::Item;
use corewise_atomic::sync::atomic::{AtomicUsize, Ordering};
use corewise_nr::sorted_set::{MostMoved, SortedSet};
use std::sync::Arc;

pub(crate) use filter::{Filter, execute as execute_filter};
pub(crate) use heap::{ObjectMemory, SetHeap};
pub(crate) use object::{Object, Set, bytes_of, set_of, take};
use object::{ObjectRef, object_of, set_pointer};
pub(crate) use verb::execute;

/// The share of an engine's memory that one set may take, in quarters: a larger one could only
/// grow by evicting itself.
pub(crate) const MOST_QUARTERS: u64 = 3;

/// Whether a set may take this number of bytes of a memory that no other part of the engine has.
pub(crate) fn may_take(bytes: usize, memory: usize) -> bool {
    bytes as u64 <= memory as u64 / 4 * MOST_QUARTERS
}

/// What a compaction does to a set while others are excluded.
const LOOKED: usize = 1 << 10;

/// Moves up to `moves` parts of a set off the condemned regions of its heap, from the part with the
/// number `from` on. Returns the number to go on from, or `None` if there are no more.
///
/// # Safety
///
/// 1. As of [`set_of`], 1 and 2. The item's value is read by nothing at the same time.
pub(crate) unsafe fn compact<L>(
    item: Item<'_, L>,
    heap: &SetHeap,
    from: usize,
    moves: &mut usize,
) -> Option<usize> {
    if from == 0 && heap.is_condemned(set_pointer(item).addr()) {
        // SAFETY: the item gets the set again before it is used as one that owns a set (1). No
        // reference to it exists (2).
        let moved = Set::into_inner(unsafe { object::take_set(item) }).boxed();
        let pointer = Set::into_raw(moved).expose_provenance();
        // SAFETY: the value is a pointer, and read by nothing else, by 1 (1).
        unsafe { item.overwrite_value(&pointer.to_ne_bytes()) };
    }
    // SAFETY: by 1.
    let set = unsafe { set_of(item) };
    let most = MostMoved {
        looks: LOOKED,
        moves: *moves,
    };
    set.move_arrays(from, most, &mut |address| {
        let leaves = heap.is_condemned(address);
        *moves -= usize::from(leaves);
        leaves
    })
}

/// Frees a part of an object that no item owns; returns the bytes freed, and what is left.
pub(crate) fn free_part(object: Object) -> (usize, Option<Object>) {
    let before = object.bytes();
    let mut rest = object.free_some();
    // The first step on a set makes the list of what is left, which may take more than small arrays
    // did.
    while let Some(more) = rest.take_if(|rest| rest.bytes() > before) {
        rest = more.free_some();
    }
    let after = rest.as_ref().map_or(0, Object::bytes);
    (before - after, rest)
}

/// Steps of a set's work after removals that maintenance does at once: they free 512 members, or
/// move 256.
const SETTLED_AT_ONCE: usize = 64;

/// Frees some memory of members that were removed from a set in a long range; returns whether there
/// may be more.
pub(crate) fn settle(set: &mut SortedSet) -> bool {
    set.settle(SETTLED_AT_ONCE)
}

/// The sets, by the hashes of their keys, that maintenance is to [settle]. Those for which there is
/// no room settle when they are used.
#[derive(Default)]
pub(crate) struct Unsettled(Vec<u64>);

impl Unsettled {
    const MOST: usize = 1 << 12;

    /// Adds a set; returns whether there was room.
    pub(crate) fn add(&mut self, hash: u64) -> bool {
        let has_room = self.0.len() < Self::MOST;
        if has_room {
            self.0.push(hash);
        }
        has_room
    }

    /// Removes the set that was added last.
    pub(crate) fn take(&mut self) -> Option<u64> {
        self.0.pop()
    }
}

/// The objects of a shard that maintenance has to do with: the dying ones, which no item owns and
/// which are not yet freed, and sets that are to be [settled](settle).
#[derive(Default)]
pub(crate) struct Graveyard {
    objects: Vec<Object>,
    bytes: usize,
    unsettled: Unsettled,
    /// The number of such objects of all shards.
    of_all: Arc<AtomicUsize>,
    memory: ObjectMemory,
}

impl Graveyard {
    pub(crate) fn new(of_all: &Arc<AtomicUsize>, memory: &ObjectMemory) -> Self {
        Self {
            objects: Vec::new(),
            bytes: 0,
            unsettled: Unsettled::default(),
            of_all: Arc::clone(of_all),
            memory: memory.clone(),
        }
    }

    /// The memory of the shard's objects.
    pub(crate) fn memory(&self) -> &ObjectMemory {
        &self.memory
    }

    /// Bytes that dying objects still take.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Frees a part of an object and keeps the rest for later steps; returns the bytes freed.
    pub(crate) fn add(&mut self, object: Object) -> usize {
        let (freed, rest) = free_part(object);
        if let Some(rest) = rest {
            self.bytes += rest.bytes();
            self.objects.push(rest);
            // Relaxed: the objects are reached through their shard's lock.
            self.of_all.fetch_add(1, Ordering::Relaxed);
        }
        freed
    }

    /// Does a step; returns the bytes freed, or `None` if there is nothing to free.
    pub(crate) fn free_some(&mut self) -> Option<usize> {
        let object = self.objects.pop()?;
        self.bytes -= object.bytes();
        // Relaxed: see `add`.
        self.of_all.fetch_sub(1, Ordering::Relaxed);
        Some(self.add(object))
    }

    /// Adds the set of a key with this hash, to be settled.
    pub(crate) fn note_unsettled(&mut self, hash: u64) {
        let is_added = usize::from(self.unsettled.add(hash));
        // Relaxed: see `add`.
        self.of_all.fetch_add(is_added, Ordering::Relaxed);
    }

    /// The hash of the key of a set that is to be settled. If there is more to do afterwards, it is
    /// to be added again.
    pub(crate) fn next_unsettled(&mut self) -> Option<u64> {
        let hash = self.unsettled.take()?;
        // Relaxed: see `add`.
        self.of_all.fetch_sub(1, Ordering::Relaxed);
        Some(hash)
    }
}

/// Bytes that a set takes.
pub(crate) fn bytes(set: &SortedSet) -> usize {
    size_of::<SortedSet>() + set.memory()
}

/// The most bytes by which a set of `bytes` bytes grows when `count` members of `member_bytes`
/// bytes in all are added to it.
///
/// A set grows by chunks, arrays and pages, each by an eighth of what there is; the largest are a
/// chunk of 64 KiB, and a page of 41 KiB. A test compares this with the growth of sets.
pub(crate) fn growth(bytes: usize, count: usize, member_bytes: usize) -> usize {
    const LEAST: usize = 8 << 10;
    const MOST: usize = 160 << 10;
    const EACH: usize = 96;
    (bytes / 2).min(MOST) + LEAST + 2 * (member_bytes + EACH * count)
}

#[cfg(test)]
mod tests {
    use super::*;
    use corewise_nr::sorted_set::Bounds;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 1 } else { 64 }))]

        /// Parts take together what the set has taken, however small the arrays are of which it
        /// consists.
        #[test]
        fn parts_of_a_dying_set_sum_up(
            members in 1_u32..4_000,
            ranges in prop::collection::vec((any::<u16>(), 1_i64..40), 0..400),
        ) {
            let mut set = SortedSet::new().boxed();
            for number in 0..members {
                set.insert(&number.to_be_bytes(), number.into()).unwrap();
            }
            for (first, count) in ranges {
                let first = i64::from(first) % set.len().max(1) as i64;
                set.detach_range(Bounds::Rank(first, first + count - 1));
            }
            let (all, mut freed, mut rest) = (bytes(&set), 0, Some(Object::Set(set)));
            while let Some(object) = rest {
                let part;
                (part, rest) = free_part(object);
                freed += part;
            }
            prop_assert_eq!(freed, all);
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 1 } else { 24 }))]

        /// Guarantee 4: no write takes more than was asked for.
        #[test]
        fn a_set_grows_by_no_more_than_its_growth(
            seed in any::<u64>(), len in 1_usize..200, at_once in 1_usize..50,
        ) {
            let mut set = SortedSet::new();
            let mut draw = seed | 1;
            let mut next = || {
                draw = draw.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                draw >> 33
            };
            for _ in 0..3_000 / at_once {
                let members: Vec<Vec<u8>> = (0..at_once)
                    .map(|_| {
                        let mut member = next().to_le_bytes().to_vec();
                        member.resize(8 + next() as usize % len, 7);
                        member
                    })
                    .collect();
                let (before, sum) = (bytes(&set), members.iter().map(Vec::len).sum());
                for member in &members {
                    set.insert(member, next() as f64).unwrap();
                }
                let grown = bytes(&set).saturating_sub(before);
                let most = growth(before, at_once, sum);
                prop_assert!(grown <= most, "{grown} of {most} bytes, {before} before");
                if next() % 3 == 0 {
                    for member in &members {
                        set.remove(member);
                    }
                    prop_assert!(bytes(&set) <= before + most);
                }
            }
        }
    }
}
