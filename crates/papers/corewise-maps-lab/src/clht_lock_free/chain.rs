//! The steps of an update: search, claim, commit, help, and freezing a chain for a move.

use std::mem;
use std::ptr;

use corewise_atomic::sync::atomic::Ordering::{self, Acquire, Relaxed, Release};
use corewise_atomic::{Backoff, mutant, ordering};

use corewise_maps::parts::clht::{self, BucketState, SpareBucket};
use corewise_maps::parts::{HeldBucket, Moved, Moving, NoMemory, Raw};

use super::snapshot::{Position, SlotState, Snapshot};

pub(super) type Bucket = clht::Bucket<Snapshot>;

/// A bucket, with the operations of this variant. Those that are described for a chain are called
/// on its first bucket.
#[derive(Clone, Copy)]
pub(super) struct Chain<'b>(pub(super) &'b Bucket);

/// An entry: its position, and the snapshot of its bucket in which it was valid, with this value.
pub(super) struct Entry<'b> {
    head: Chain<'b>,
    bucket: Chain<'b>,
    at: Position,
    snapshot: Snapshot,
    pub(super) value: Raw,
}

/// The result of a search by an insertion.
pub(super) enum InsertionSearch<'b> {
    /// The key was found.
    At(Entry<'b>),
    /// The key is absent; the first free slot.
    Free(Vacancy<'b>),
    /// The key is absent and there is no free slot; the last bucket and its number.
    Full(&'b Bucket, usize),
}

/// A free slot.
pub(super) struct Vacancy<'b> {
    bucket: Chain<'b>,
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
        let claimed = snapshot.with_slot(at.slot, SlotState::Inserting);
        // Acquire: pairs with the Release of the removal, or of the drop of a `Claim`, that freed
        // the slot: our stores come after theirs.
        if snapshot.is_frozen() || !bucket.exchange(snapshot, claimed, Acquire) {
            return None;
        }
        // SAFETY: free in the snapshot that the exchange replaced, and now claimed by us (1).
        unsafe { bucket.0.store(at.slot, key, value) };
        Some(Claim {
            bucket: bucket.0,
            at,
        })
    }
}

/// A claimed slot, with a pair that is not in the table yet. Dropping it gives the slot back.
pub(super) struct Claim<'b> {
    bucket: &'b Bucket,
    at: Position,
}

impl<'b> Claim<'b> {
    /// Links a bucket with the pair to the last one of a chain, which is the `number`th. Gives the
    /// bucket back if another one has been linked meanwhile.
    ///
    /// # Safety
    ///
    /// 1. `spare` is a bucket of the table of `last`.
    pub(super) unsafe fn append<'s>(
        last: &'b Bucket,
        number: usize,
        spare: SpareBucket<'s, Snapshot>,
        (key, value): (Raw, Raw),
    ) -> Result<Self, SpareBucket<'s, Snapshot>> {
        let claimed = Snapshot::of_bits(0).with_slot(0, SlotState::Inserting);
        // Relaxed: no other thread can reach it yet.
        spare.state.store(claimed.bits(), Relaxed);
        spare.keys[0].store(key, Relaxed);
        spare.values[0].store(value, Relaxed);
        let next = &last.next;
        // Release: pairs with the Acquire in `next`, so the bucket is seen whole.
        let hung = next.compare_exchange(ptr::null_mut(), spare.as_ptr(), Release, Relaxed);
        if hung.is_err() {
            return Err(spare);
        }
        // SAFETY: from now on it lives as long as the chain, by 1.
        let bucket = unsafe { spare.into_ptr().as_ref() };
        let at = Position {
            bucket: number + 1,
            slot: 0,
        };
        Ok(Self { bucket, at })
    }

    /// Commits the insertion. Gives the claim back if another insertion has committed since `seen`,
    /// or the chain is frozen.
    pub(super) fn commit(self, head: Chain<'_>, seen: Snapshot) -> Result<(), Self> {
        let mut now = head.0.state();
        while now.may_commit(seen) {
            let decided = match self.at.bucket {
                0 => now.with_slot(self.at.slot, SlotState::Valid),
                _ => now.with_pending(self.at),
            };
            // Release: pairs with the Acquire in `state`: a thread that sees the slot valid, or
            // helps, sees the pair.
            if head.exchange(now, decided, ordering!(Release, "clht_lf_relaxed_commit")) {
                if self.at.bucket != 0 {
                    head.finish_pending();
                }
                mem::forget(self);
                return Ok(());
            }
            now = head.0.state();
        }
        Err(self)
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        // Release: the next thread to claim the slot writes to it after us. (Not a
        // compare-and-swap: no other thread changes the slot, and in a frozen bucket it does not
        // matter.)
        let back = Snapshot::unclaimed(self.at.slot);
        self.bucket.state.fetch_add(back, Release);
    }
}

impl Entry<'_> {
    /// Whether another thread is replacing the value (for a few stores) or moving the bucket.
    pub(super) fn is_busy(&self) -> bool {
        let slot = self.snapshot.slot(self.at.slot);
        let frozen = self.snapshot.is_frozen() && !mutant!("clht_lf_ignores_frozen");
        frozen || slot == SlotState::Replacing
    }

    /// Replaces the value, unless something in the bucket has changed. The entry must not be busy.
    pub(super) fn replace(&self, value: Raw) -> bool {
        let Self { bucket, at, .. } = self;
        let through = if mutant!("clht_replaces_by_removal") {
            SlotState::Inserting
        } else {
            SlotState::Replacing
        };
        let mine = self.snapshot.with_slot(at.slot, through);
        // Acquire: pairs with the Release of the previous replacement: our store comes after its
        // store.
        if !bucket.exchange(self.snapshot, mine, Acquire) {
            return false;
        }
        // Release: pairs with the fence in `is_unchanged`: a thread that has read the value sees
        // the slot replacing, or a later state. Also for a value that refers to memory.
        let release = ordering!(Release, "clht_relaxed_value");
        bucket.0.values[at.slot].store(value, release);
        // Release: pairs with the Acquire in `state`: a thread that sees this state sees the value.
        let order = ordering!(Release, "clht_lf_relaxed_replacement");
        bucket
            .0
            .state
            .fetch_add(Snapshot::replaced(at.slot, through), order);
        true
    }

    /// Removes the entry, unless something in the bucket has changed. The entry must not be busy.
    pub(super) fn remove(&self) -> bool {
        let Self { bucket, at, .. } = self;
        // Acquired after the snapshot in which the entry was valid: either its insertion is no
        // longer pending, or we see that it is. It must not be pending when the slot is freed: see
        // the header.
        let head = self.head.0.state();
        if head.pending() == Some(*at) && !mutant!("clht_lf_removes_pending") {
            self.head.finish(head, *at);
            return false;
        }
        // Release: pairs with the Acquire in `state`: a helper that sees the slot claimed again
        // also sees that the old insertion is no longer pending.
        let order = ordering!(Release, "clht_lf_relaxed_removal");
        bucket.exchange(self.snapshot, self.snapshot.without(at.slot), order)
    }
}

impl<'b> Chain<'b> {
    fn exchange(self, from: Snapshot, to: Snapshot, order: Ordering) -> bool {
        let (from, to) = (from.bits(), to.bits());
        if mutant!("clht_no_exclusion") {
            // Release: pairs with the Acquire in `state`. The bug: it overwrites other changes.
            self.0.state.store(to, Release);
            return true;
        }
        // The callers name the partner. Relaxed: a failure shows only that the state has changed.
        self.0
            .state
            .compare_exchange(from, to, order, Relaxed)
            .is_ok()
    }

    /// The entry of a key in this chain. Only reads.
    pub(super) fn entry(self, key: Raw) -> Result<Option<Entry<'b>>, Moved> {
        let snapshot = self.0.state();
        if snapshot.is_moved() {
            return Err(Moved);
        }
        match self.find(snapshot, key) {
            InsertionSearch::At(entry) => Ok(Some(entry)),
            _ => Ok(None),
        }
    }

    /// Searches this chain, whose first snapshot was `seen`.
    pub(super) fn find(self, seen: Snapshot, key: Raw) -> InsertionSearch<'b> {
        let (mut free, mut last) = (None, (self.0, 0));
        for (number, bucket) in self.0.chain().enumerate() {
            let snapshot = if number == 0 { seen } else { bucket.state() };
            let at = |slot| Position {
                bucket: number,
                slot,
            };
            if let Some(held) = bucket.find_entry(snapshot, key) {
                return InsertionSearch::At(Entry {
                    head: self,
                    bucket: Self(bucket),
                    at: at(held.slot),
                    snapshot: held.state,
                    value: held.value,
                });
            }
            free = free.or_else(|| {
                let slot = snapshot.free()?;
                Some(Vacancy {
                    bucket: Self(bucket),
                    at: at(slot),
                    snapshot,
                })
            });
            last = (bucket, number);
        }
        free.map_or(InsertionSearch::Full(last.0, last.1), InsertionSearch::Free)
    }

    /// The snapshot of this chain once no insertion is pending and it is not frozen. Completes a
    /// pending insertion, and waits while the chain is frozen.
    pub(super) fn at_rest(self) -> Result<Snapshot, Moved> {
        let mut backoff = Backoff::new();
        loop {
            let snapshot = self.0.state();
            if snapshot.is_moved() {
                return Err(Moved);
            }
            if snapshot.is_frozen() && !mutant!("clht_lf_ignores_frozen") {
                backoff.snooze();
            } else if let Some(at) = snapshot.pending().filter(|_| !mutant!("clht_lf_no_help")) {
                self.finish(snapshot, at);
            } else {
                return Ok(snapshot);
            }
        }
    }

    /// Completes any pending insertion.
    pub(super) fn finish_pending(self) {
        loop {
            let snapshot = self.0.state();
            let Some(at) = snapshot.pending() else {
                return;
            };
            self.finish(snapshot, at);
        }
    }

    /// Completes the insertion that is pending in `seen`, unless the chain's snapshot has changed.
    pub(super) fn finish(self, seen: Snapshot, at: Position) {
        let bucket = self.0.chain().nth(at.bucket);
        let bucket = Self(bucket.expect("it was hung before a slot of it was claimed"));
        loop {
            // Acquire, in `state`: the next load comes later.
            let snapshot = bucket.0.state();
            if snapshot.slot(at.slot) != SlotState::Inserting {
                break;
            }
            // If the slot was claimed again since the insertion was completed, we see here that it
            // was completed.
            if self.0.state() != seen && !mutant!("clht_lf_hasty_help") {
                return;
            }
            let valid = snapshot.with_slot(at.slot, SlotState::Valid);
            // Release: pairs with the Acquire in `state`: we have seen the pair, by `seen`.
            if bucket.exchange(snapshot, valid, ordering!(Release, "clht_lf_relaxed_help")) {
                break;
            }
        }
        // Release: a thread that sees no pending insertion sees the slot valid.
        let order = ordering!(Release, "clht_lf_relaxed_finish");
        // On failure another thread has done it, or something else has changed: the caller looks
        // again.
        let _ = self.exchange(seen, seen.without_pending(), order);
    }

    /// Freezes this chain, unless another thread has done so or is replacing a value in the first
    /// bucket.
    pub(super) fn try_freeze(self) -> Result<Option<Frozen<'b>>, Moved> {
        loop {
            let snapshot = self.0.state();
            if snapshot.is_moved() {
                return Err(Moved);
            }
            if snapshot.is_frozen() {
                return Ok(None);
            }
            if let Some(at) = snapshot.pending() {
                self.finish(snapshot, at);
                continue;
            }
            if snapshot.is_replacing() && !mutant!("clht_lf_freezes_replacing") {
                return Ok(None);
            }
            // Acquire: pairs with the Release of all changes of the word, so that we copy what they
            // wrote.
            if self.exchange(snapshot, snapshot.frozen(), Acquire) {
                break;
            }
        }
        // From here on no insertion commits in this chain: buckets that are linked to it later have
        // no entries.
        let overflow = self.0.chain().skip(1);
        overflow.for_each(|bucket| Self(bucket).freeze_overflow());
        Ok(Some(Frozen { head: self.0 }))
    }

    fn freeze_overflow(self) {
        let mut backoff = Backoff::new();
        loop {
            let snapshot = self.0.state();
            // Acquire, in the exchange: as in `try_freeze`.
            if snapshot.is_replacing() && !mutant!("clht_lf_freezes_replacing") {
                backoff.snooze();
            } else if self.exchange(snapshot, snapshot.frozen(), Acquire) {
                return;
            }
        }
    }

    /// As [`try_freeze`](Self::try_freeze), but waits for a thread that replaces a value.
    pub(super) fn freeze(self) -> Frozen<'b> {
        let mut backoff = Backoff::new();
        loop {
            match self.try_freeze().expect("who moves it is the only one") {
                Some(frozen) => return frozen,
                None => backoff.snooze(),
            }
        }
    }
}

/// A chain in which no update takes effect until this is dropped.
pub struct Frozen<'b> {
    head: &'b Bucket,
}

// SAFETY: the entries of the chain's buckets (1). No update takes effect in a frozen chain, and a
// chain that was moved stays frozen (2).
unsafe impl HeldBucket<(Raw, Raw)> for Frozen<'_> {
    fn copy(&self, to: &mut Vec<Moving<(Raw, Raw)>>) -> Result<(), NoMemory> {
        let mut chain = self.head.chain();
        chain.try_for_each(|bucket| bucket.copy(bucket.state(), to))
    }

    fn set_moved(self) {
        self.set_moved_early();
        // The chain stays frozen.
        mem::forget(self);
    }

    fn set_moved_early(&self) {
        // Release: pairs with the Acquire in `state`: the entries that were moved are seen in the
        // successor.
        let order = ordering!(Release, "clht_lf_relaxed_moved");
        self.head.state.fetch_or(Snapshot::moved_bit(), order);
    }
}

impl Drop for Frozen<'_> {
    fn drop(&mut self) {
        // The first bucket last: once it is thawed, another thread may freeze them all again.
        for bucket in self.head.chain().skip(1) {
            // Release: pairs with the Acquire in `state`.
            bucket.state.fetch_and(!Snapshot::FROZEN, Release);
        }
        // Release: pairs with the Acquire in `state`.
        self.head.state.fetch_and(!Snapshot::FROZEN, Release);
    }
}
