//! Moves the sets off the sparse pages of their heap.
//!
//! When sets were evicted, or have shrunk, the others may lie on pages with much free room, which
//! count as much as full ones ([`SetHeap`](crate::objects::SetHeap)). A *compaction* condemns the
//! sparsest regions of the heap, goes round the table once, moves what the sets have in those
//! regions, and lets their pages go back.
//!
//! # Guarantees
//!
//! 1. *Steps.* A step moves at most [`MOVES`] arrays, and holds a stripe for as long as it takes to
//!    look at the arrays of one set and to move some.
//! 2. *Nothing changes* but where the arrays of sets lie, and the pointers in their items.
//! 3. *It ends*: a compaction is due only while it gains.

use super::Relativistic;
use super::heap::Ptr;
use crate::item::Item;
use crate::objects;
use corewise_maps::relativistic::Link;
use corewise_ops::ItemKind;
use std::ptr::NonNull;

/// Items and buckets that one step visits.
const LOOKS: usize = 1 << 8;
/// Arrays that one step moves: at most 64 KiB each, most of a few hundred bytes.
const MOVES: usize = 32;

/// A compaction, if one is being made. See the [module](self).
#[derive(Default)]
pub(super) struct Compactor {
    is_running: bool,
    /// Where the table was visited up to.
    position: u32,
    /// The set behind it that was reached, by its hash, and the number of its first array that was
    /// not looked at.
    reached: Option<(u64, usize)>,
}

impl Relativistic {
    /// Does a step of a compaction, if one is due. Returns whether there is more to do. Must be
    /// called outside sections and stripes.
    pub(super) fn compact_sets(&self) -> bool {
        // Without the lock at first, because most calls have nothing to do.
        let Some(mut compactor) = self.sets.compactor() else {
            return false;
        };
        if !compactor.is_running {
            if !self.sets.heap().begin() {
                return false;
            }
            *compactor = Compactor {
                is_running: true,
                ..Compactor::default()
            };
        }
        compactor.step(self);
        if !compactor.is_running {
            self.sets.heap().end();
        }
        self.sets.set_compacting(compactor.is_running);
        self.budget_for_sets();
        true
    }
}

impl Compactor {
    fn step(&mut self, engine: &Relativistic) {
        let (mut moves, mut is_cut) = (MOVES, false);
        let guard = engine.table.domain().pin();
        let visit = |link: NonNull<Link>| {
            let node: Ptr = link.cast();
            // SAFETY: the guard keeps visited items alive.
            let (item, link): (Item<'_, Link>, &Link) =
                unsafe { (Item::from_raw(node), &(*node.as_ptr()).links) };
            if is_cut || item.kind() != ItemKind::Set {
                return;
            }
            let hash = link.reduced_hash();
            let from = match self.reached {
                Some((reached, from)) if reached == hash => from,
                Some(_) => return, // done before
                None => 0,
            };
            let next = if moves == 0 {
                Some(from)
            } else {
                // SAFETY: the guard keeps the item, which was found in the table (1).
                unsafe { engine.compact_set(node, from, &mut moves) }
            };
            self.reached = next.map(|from| (hash, from));
            is_cut = self.reached.is_some();
        };
        // SAFETY: the guard is of the table's domain and outlives the visits.
        let next = unsafe { engine.table.scan(&guard, self.position, LOOKS, visit) };
        if !is_cut {
            // The set that was reached may have been removed meanwhile.
            self.reached = None;
            self.position = next.unwrap_or(0);
            self.is_running = next.is_some();
        }
    }
}

impl Relativistic {
    /// Moves some arrays of a set; returns the number of the next one, if there are more.
    ///
    /// # Safety
    ///
    /// 1. The caller's section keeps the item, which is of the kind `Set` and was linked.
    unsafe fn compact_set(&self, node: Ptr, from: usize, moves: &mut usize) -> Option<usize> {
        // SAFETY: the caller's section keeps the item alive, by 1.
        let (item, link): (Item<'_, Link>, &Link) =
            unsafe { (Item::from_raw(node), &(*node.as_ptr()).links) };
        let _stripe = self.stripe(link.reduced_hash()).lock();
        if link.is_removed() {
            return None;
        }
        // SAFETY: the item was linked and is not removed, so it owns its set. The stripe excludes
        // all others that follow or copy the pointer, and who holds it otherwise has no reference
        // to the set (1).
        unsafe { objects::compact(item, self.sets.heap(), from, moves) }
    }
}
