//! The steps of updates: finding, claiming a slot, deciding, helping, and stopping a chain for a move.

use std::mem;
use std::ptr;

use corewise_atomic::sync::atomic::Ordering::{self, Acquire, Relaxed, Release};
use corewise_atomic::{mutant, ordering};

use super::snapshot::{Position, Slot, Snapshot};
use crate::clht::bucket::{self, State};
use crate::clht::overflow::Spare;
use crate::copy_map::{Held, Moved, Moving, NoMemory};
use crate::waiting::Waiting;
use crate::word::Raw;

pub(super) type Bucket = bucket::Bucket<Snapshot>;

/// An entry, where it is, and the snapshot of its bucket in which it was valid, with this value.
pub(super) struct Entry<'b> {
    head: &'b Bucket,
    bucket: &'b Bucket,
    at: Position,
    snapshot: Snapshot,
    pub(super) value: Raw,
}

/// What an insertion found.
pub(super) enum Found<'b> {
    /// The key.
    At(Entry<'b>),
    /// Not the key; the first free slot.
    Free(Vacancy<'b>),
    /// Not the key, and no free slot; the last bucket, and its number.
    Full(&'b Bucket, usize),
}

/// A free slot.
pub(super) struct Vacancy<'b> {
    bucket: &'b Bucket,
    at: Position,
    snapshot: Snapshot,
}

impl<'b> Vacancy<'b> {
    /// Claims the slot and writes the pair, unless something in the bucket has changed.
    pub(super) fn claim(self, key: Raw, value: Raw) -> Option<Claim<'b>> {
        let Self {
            bucket,
            at,
            snapshot,
        } = self;
        let claimed = snapshot.with_slot(at.slot, Slot::Inserting);
        // Acquire: pairs with the Release of the removal, or of who gave the slot back: we write after them.
        if snapshot.is_frozen() || !bucket.exchange(snapshot, claimed, Acquire) {
            return None;
        }
        bucket.store(at.slot, key, value);
        Some(Claim { bucket, at })
    }
}

/// A slot with a pair that is not in the table yet. Given back when dropped.
pub(super) struct Claim<'b> {
    bucket: &'b Bucket,
    at: Position,
}

impl<'b> Claim<'b> {
    /// Hangs a bucket with the pair on the last one of a chain, which is the `number`th. The bucket comes back if
    /// another is there by now.
    pub(super) fn append<'s>(
        last: &'b Bucket,
        number: usize,
        spare: Spare<'s, Snapshot>,
        (key, value): (Raw, Raw),
    ) -> Result<Self, Spare<'s, Snapshot>> {
        let claimed = Snapshot::of_bits(0).with_slot(0, Slot::Inserting);
        // Relaxed: nobody else has it yet.
        spare.state.store(claimed.bits(), Relaxed);
        spare.keys[0].store(key, Relaxed);
        spare.values[0].store(value, Relaxed);
        let next = &last.next;
        // Release: pairs with the Acquire in `next`, so that the bucket is seen whole.
        let hung = next.compare_exchange(ptr::null_mut(), spare.as_ptr(), Release, Relaxed);
        if hung.is_err() {
            return Err(spare);
        }
        // SAFETY: from now on it lives as long as the chain.
        let bucket = unsafe { spare.into_ptr().as_ref() };
        let at = Position {
            bucket: number + 1,
            slot: 0,
        };
        Ok(Self { bucket, at })
    }

    /// Decides the insertion, unless there was another since `seen`, or the chain is stopped: then the claim comes back.
    pub(super) fn commit(self, head: &Bucket, seen: Snapshot) -> Result<(), Self> {
        let mut now = head.state();
        while now.may_commit(seen) {
            let decided = match self.at.bucket {
                0 => now.with_slot(self.at.slot, Slot::Valid),
                _ => now.with_pending(self.at),
            };
            // Release: pairs with the Acquire in `state`: who sees the slot valid sees the pair, and who helps does.
            if head.exchange(now, decided, ordering!(Release, "clht_lf_relaxed_commit")) {
                if self.at.bucket != 0 {
                    head.finish_pending();
                }
                mem::forget(self);
                return Ok(());
            }
            now = head.state();
        }
        Err(self)
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        // Release: the next one to claim the slot writes it after us. (No exchange: nobody else changes the slot,
        // and in a bucket that was stopped it does not matter.)
        let back = Snapshot::unclaimed(self.at.slot);
        self.bucket.state.fetch_add(back, Release);
    }
}

impl Entry<'_> {
    /// Whether somebody else is at it for a few stores, or for a move.
    pub(super) fn is_busy(&self) -> bool {
        let slot = self.snapshot.slot(self.at.slot);
        let frozen = self.snapshot.is_frozen() && !mutant!("clht_lf_ignores_frozen");
        frozen || slot == Slot::Replacing
    }

    /// Replaces the value, unless something in the bucket has changed. The entry is not busy.
    pub(super) fn replace(&self, value: Raw) -> bool {
        let Self { bucket, at, .. } = self;
        let through = match mutant!("clht_replaces_by_removal") {
            true => Slot::Inserting,
            false => Slot::Replacing,
        };
        let mine = self.snapshot.with_slot(at.slot, through);
        // Acquire: pairs with the Release of the one who replaced before us: our store is after theirs.
        if !bucket.exchange(self.snapshot, mine, Acquire) {
            return false;
        }
        // Release: pairs with the fence in `is_unchanged`: who has read it sees us replacing, or more. And for a
        // value that refers to memory.
        let release = ordering!(Release, "clht_relaxed_value");
        bucket.values[at.slot].store(value, release);
        // Release: pairs with the Acquire in `state`: who goes on from here knows the value.
        let order = ordering!(Release, "clht_lf_relaxed_replacement");
        bucket
            .state
            .fetch_add(Snapshot::replaced(at.slot, through), order);
        true
    }

    /// Removes it, unless something in the bucket has changed. The entry is not busy.
    pub(super) fn remove(&self) -> bool {
        let Self { bucket, at, .. } = self;
        // Acquired after the snapshot in which the entry was valid: its insertion is not pending any more, or we see
        // that it is. It must not be when the slot is free again: see the header.
        let head = self.head.state();
        if head.pending() == Some(*at) && !mutant!("clht_lf_removes_pending") {
            self.head.finish(head, *at);
            return false;
        }
        // Release: pairs with the Acquire in `state`: a helper that sees the slot claimed again sees, too, that
        // nothing is pending there.
        let order = ordering!(Release, "clht_lf_relaxed_removal");
        bucket.exchange(self.snapshot, self.snapshot.without(at.slot), order)
    }
}

impl Bucket {
    fn exchange(&self, from: Snapshot, to: Snapshot, order: Ordering) -> bool {
        let (from, to) = (from.bits(), to.bits());
        if mutant!("clht_no_exclusion") {
            self.state.store(to, Release);
            return true;
        }
        // The partner is named where this is called.
        self.state
            .compare_exchange(from, to, order, Relaxed)
            .is_ok()
    }

    /// The entry of a key, of this chain. Only looks.
    pub(super) fn entry(&self, key: Raw) -> Result<Option<Entry<'_>>, Moved> {
        let snapshot = self.state();
        if snapshot.is_moved() {
            return Err(Moved);
        }
        match self.find(snapshot, key) {
            Found::At(entry) => Ok(Some(entry)),
            _ => Ok(None),
        }
    }

    /// Looks through this chain, whose first snapshot was `seen`.
    pub(super) fn find(&self, seen: Snapshot, key: Raw) -> Found<'_> {
        let (mut free, mut last) = (None, (self, 0));
        for (number, bucket) in self.chain().enumerate() {
            let snapshot = if number == 0 { seen } else { bucket.state() };
            let at = |slot| Position {
                bucket: number,
                slot,
            };
            if let Some(held) = bucket.held(snapshot, key) {
                return Found::At(Entry {
                    head: self,
                    bucket,
                    at: at(held.slot),
                    snapshot: held.state,
                    value: held.value,
                });
            }
            free = free.or_else(|| {
                let slot = snapshot.free()?;
                Some(Vacancy {
                    bucket,
                    at: at(slot),
                    snapshot,
                })
            });
            last = (bucket, number);
        }
        free.map_or(Found::Full(last.0, last.1), Found::Free)
    }

    /// The snapshot of this chain when nothing is pending and it is not stopped. Helps with the one and waits for
    /// the other.
    pub(super) fn settled(&self) -> Result<Snapshot, Moved> {
        let mut waiting = Waiting::default();
        loop {
            let snapshot = self.state();
            if snapshot.is_moved() {
                return Err(Moved);
            }
            if snapshot.is_frozen() && !mutant!("clht_lf_ignores_frozen") {
                waiting.a_moment();
            } else if let Some(at) = snapshot.pending().filter(|_| !mutant!("clht_lf_no_help")) {
                self.finish(snapshot, at);
            } else {
                return Ok(snapshot);
            }
        }
    }

    /// Ends whatever insertion is pending.
    pub(super) fn finish_pending(&self) {
        loop {
            let snapshot = self.state();
            let Some(at) = snapshot.pending() else {
                return;
            };
            self.finish(snapshot, at);
        }
    }

    /// Ends the insertion that is pending in `seen`, unless this chain's snapshot is another by now.
    pub(super) fn finish(&self, seen: Snapshot, at: Position) {
        let bucket = self.chain().nth(at.bucket);
        let bucket = bucket.expect("it was hung before a slot of it was claimed");
        loop {
            // Acquire, in `state`: the next load is later.
            let snapshot = bucket.state();
            if snapshot.slot(at.slot) != Slot::Inserting {
                break;
            }
            // If the slot was claimed again since the insertion was finished, we see here that it was.
            if self.state() != seen && !mutant!("clht_lf_hasty_help") {
                return;
            }
            let valid = snapshot.with_slot(at.slot, Slot::Valid);
            // Release: pairs with the Acquire in `state`: we have seen the pair, by `seen`.
            if bucket.exchange(snapshot, valid, ordering!(Release, "clht_lf_relaxed_help")) {
                break;
            }
        }
        // Release: who sees that nothing is pending sees the slot valid.
        let order = ordering!(Release, "clht_lf_relaxed_finish");
        // If it fails somebody else has done it, or something else has changed: the caller looks again.
        let _ = self.exchange(seen, seen.without_pending(), order);
    }

    /// Freezes this chain, unless somebody else has, or is replacing a value in the first bucket.
    pub(super) fn try_freeze(&self) -> Option<Frozen<'_>> {
        loop {
            let snapshot = self.state();
            if snapshot.is_moved() || snapshot.is_frozen() {
                return None;
            }
            if let Some(at) = snapshot.pending() {
                self.finish(snapshot, at);
                continue;
            }
            if snapshot.is_replacing() && !mutant!("clht_lf_freezes_replacing") {
                return None;
            }
            // Acquire: pairs with the Release of all who have changed the word. What they wrote is to be copied.
            if self.exchange(snapshot, snapshot.frozen(), Acquire) {
                break;
            }
        }
        // From here on no insertion is decided in this chain: buckets that are hung on it later have no entries.
        self.chain().skip(1).for_each(Self::freeze_overflow);
        Some(Frozen { head: self })
    }

    fn freeze_overflow(&self) {
        let mut waiting = Waiting::default();
        loop {
            let snapshot = self.state();
            if snapshot.is_replacing() && !mutant!("clht_lf_freezes_replacing") {
                waiting.a_moment();
            } else if self.exchange(snapshot, snapshot.frozen(), Acquire) {
                // Acquire: as in `try_freeze`.
                return;
            }
        }
    }

    /// As [`try_freeze`](Self::try_freeze), and waits for one who replaces a value.
    pub(super) fn freeze(&self) -> Frozen<'_> {
        let mut waiting = Waiting::default();
        loop {
            match self.try_freeze() {
                Some(frozen) => return frozen,
                None => waiting.a_moment(),
            }
        }
    }
}

/// A chain in which no update is decided until this is dropped.
pub struct Frozen<'b> {
    head: &'b Bucket,
}

impl Held<(Raw, Raw)> for Frozen<'_> {
    fn copy(&self, to: &mut Vec<Moving<(Raw, Raw)>>) -> Result<(), NoMemory> {
        let mut chain = self.head.chain();
        chain.try_for_each(|bucket| bucket.copy(bucket.state(), to))
    }

    fn set_moved(self) {
        self.set_moved_early();
        // It stays as it is.
        mem::forget(self);
    }

    fn set_moved_early(&self) {
        // Release: pairs with the Acquire in `state`: what was moved is seen in the successor.
        let order = ordering!(Release, "clht_lf_relaxed_moved");
        self.head.state.fetch_or(Snapshot::moved_bit(), order);
    }
}

impl Drop for Frozen<'_> {
    fn drop(&mut self) {
        // The first bucket last: with it the next one may freeze them again.
        for bucket in self.head.chain().skip(1) {
            // Release: pairs with the Acquire in `state`.
            bucket.state.fetch_and(!Snapshot::FROZEN, Release);
        }
        // Release: as above.
        self.head.state.fetch_and(!Snapshot::FROZEN, Release);
    }
}
