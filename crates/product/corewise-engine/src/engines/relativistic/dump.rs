//! Scans over all items. The cursor is the table's position (`corewise_maps::relativistic`,
//! `scan`).

use super::Relativistic;
use super::heap::Ptr;
use crate::engine::{Cursor, ScanStep};
use crate::item::Item;
use corewise_maps::relativistic::Link;
use corewise_ops::{ItemFlags, ItemView, Now};
use std::ptr::NonNull;

impl Relativistic {
    /// Implements [`Engine::scan`](crate::Engine::scan), one section per step. An item that is
    /// moved or overwritten keeps its hash, so it is shown once.
    pub(super) fn scan_step(
        &self,
        cursor: Cursor,
        most_looks: usize,
        now: Now,
        show: &mut dyn FnMut(&ItemView<'_>),
    ) -> ScanStep {
        // A larger number lies behind the last position.
        let from = u32::try_from(cursor.to_bits()).unwrap_or(u32::MAX);
        let guard = self.table.domain().pin();
        let generation = self.generation().number;
        let visit = |link: NonNull<Link>| {
            let node: Ptr = link.cast();
            // SAFETY: the guard keeps visited items alive.
            let found: Item<'_, Link> = unsafe { Item::from_raw(node) };
            let is_flushed = self.heap.generation(self.heap.segment_of(node)) < generation;
            if !is_flushed && !found.deadline().is_past(now) {
                let bytes = self.heap.footprint(found);
                show(&found.view(found.before(now), ItemFlags::NONE, bytes));
            }
        };
        // SAFETY: the guard is of the table's domain and outlives the visits.
        let next = unsafe { self.table.scan(&guard, from, most_looks, visit) };
        match next {
            Some(position) => ScanStep::More(Cursor::from_bits(u64::from(position))),
            None => ScanStep::Done,
        }
    }
}
