//! Sorted sets as values of items.
//!
//! ```text
//!  flat set   kind FlatSet   value: the members, at most 113, of 1,024 bytes in all
//!  set        kind Set       value: a pointer ──▶ SortedSet
//! ```
//!
//! A flat set is written as an append is: a changed copy replaces the item. A set that outgrows it
//! becomes a [`SortedSet`], which is changed in place, and stays one until it is empty.
//!
//! # Guarantees
//!
//! 1. *One owner.* A `SortedSet` belongs to the one linked item that points to it. The thread that
//!    unlinks the item, or replaces it, takes the set. An engine that moves an item lets the copy
//!    be the owner. An item that was not linked owns nothing.
//! 2. *Exclusion.* A thread that follows the pointer excludes all others that may: it holds the
//!    stripe, shard or partition of the item's key, or only it can reach the item. So a set needs
//!    neither a lock nor a grace period, and reads of one set do not run side by side. Threads
//!    that exclude no others may read the header, the key, and a flat set.
//! 3. *Accounting.* An engine counts [`bytes`] of each set that a linked item owns, and of those
//!    that it has yet to free.
//! 4. *Room first.* A write makes room for its largest [growth] before it changes a set.

mod draft;
mod flat;
mod heap;
mod verb;

use crate::item::Item;
use corewise_atomic::sync::atomic::{AtomicUsize, Ordering};
use corewise_nr::SetMemory;
use corewise_nr::sorted_set::{BoxedSet, MostMoved, SortedSet};
use std::ptr;
use std::sync::Arc;

pub(crate) use heap::SetHeap;
pub(crate) use verb::execute;

/// The set of an item.
pub(crate) type Set = BoxedSet;

/// The share of an engine's memory that one set may take, in quarters: a larger one could only
/// grow by evicting itself.
pub(crate) const MOST_QUARTERS: u64 = 3;

/// Whether a set may take this number of bytes of a memory that no other part of the engine has.
pub(crate) fn may_take(bytes: usize, memory: usize) -> bool {
    bytes as u64 <= memory as u64 / 4 * MOST_QUARTERS
}

/// The pointer in an item of the kind `Set`.
fn pointer<L>(item: Item<'_, L>) -> *mut SortedSet {
    let mut bytes = [0; size_of::<usize>()];
    bytes.copy_from_slice(item.value());
    ptr::with_exposed_provenance_mut(usize::from_ne_bytes(bytes))
}

/// The set of an item.
///
/// # Safety
///
/// 1. The item is of the kind `Set` and was linked, and its set was not [taken](take).
/// 2. During `'s` no other reference to the set exists (guarantee 2), and it is not taken.
pub(crate) unsafe fn set_of<'s, L>(item: Item<'_, L>) -> &'s mut SortedSet {
    // SAFETY: the pointer is that of a box that became the item's when it was linked, and which
    // nothing has freed, by 1. 2.
    unsafe { &mut *pointer(item) }
}

/// Takes the set out of an item, which is no longer used as one that owns a set.
///
/// # Safety
///
/// 1. The item is of the kind `Set` and was linked; its set was not taken, and is not taken again.
/// 2. No reference to the set exists.
pub(crate) unsafe fn take<L>(item: Item<'_, L>) -> Set {
    // SAFETY: the pointer is that of a box that became the item's when it was linked; nothing else
    // owns it, by 1 and 2. The box was in the set's own memory.
    unsafe {
        let set = pointer(item);
        Set::from_raw_in(set, (*set).source().clone())
    }
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
    if from == 0 && heap.is_condemned(pointer(item).addr()) {
        // SAFETY: the item gets the set again before it is used as one that owns a set (1). No
        // reference to it exists (2).
        let moved = Set::into_inner(unsafe { take(item) }).boxed();
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

/// Chunks, arrays and pages of a set that are freed in one step: 512 KiB at most.
const FREED_AT_ONCE: usize = 8;

/// Frees a part of a set that no item owns; returns the bytes freed, and what is left.
pub(crate) fn free_part(mut set: Set) -> (usize, Option<Set>) {
    let before = bytes(&set);
    let mut has_more = set.drop_some(FREED_AT_ONCE);
    // The first step makes the list of what is left, which may take more than small arrays did.
    while has_more && bytes(&set) > before {
        has_more = set.drop_some(FREED_AT_ONCE);
    }
    let after = if has_more { bytes(&set) } else { 0 };
    (before - after, has_more.then_some(set))
}

/// The dying sets of a shard: those that no item owns and that are not yet freed.
#[derive(Default)]
pub(crate) struct Graveyard {
    sets: Vec<Set>,
    bytes: usize,
    /// The number of dying sets of all shards.
    of_all: Arc<AtomicUsize>,
    memory: SetMemory,
}

impl Graveyard {
    pub(crate) fn new(of_all: &Arc<AtomicUsize>, memory: &SetMemory) -> Self {
        Self {
            sets: Vec::new(),
            bytes: 0,
            of_all: Arc::clone(of_all),
            memory: memory.clone(),
        }
    }

    /// The memory of the shard's sets.
    pub(crate) fn memory(&self) -> &SetMemory {
        &self.memory
    }

    /// Bytes that dying sets still take.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Frees a part of a set and keeps the rest for later steps; returns the bytes freed.
    pub(crate) fn add(&mut self, set: Set) -> usize {
        let (freed, rest) = free_part(set);
        if let Some(rest) = rest {
            self.bytes += bytes(&rest);
            self.sets.push(rest);
            // Relaxed: the sets are reached through their shard's lock.
            self.of_all.fetch_add(1, Ordering::Relaxed);
        }
        freed
    }

    /// Does a step; returns the bytes freed, or `None` if there is nothing to free.
    pub(crate) fn free_some(&mut self) -> Option<usize> {
        let set = self.sets.pop()?;
        self.bytes -= bytes(&set);
        // Relaxed: see `add`.
        self.of_all.fetch_sub(1, Ordering::Relaxed);
        Some(self.add(set))
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
            let (all, mut freed, mut rest) = (bytes(&set), 0, Some(set));
            while let Some(set) = rest {
                let part;
                (part, rest) = free_part(set);
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
