//! The word in which an update of a bucket takes effect: the `snapshot_t` of \[CLHT\].

use corewise_atomic::mutant;

use corewise_maps::parts::clht::{BucketState, SLOTS};

/// The state of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SlotState {
    /// The paper's INVALID.
    Free,
    /// Claimed by one insertion; no other thread reads it.
    Inserting,
    /// The slot has an entry.
    Valid,
    /// The slot has an entry, and one thread is storing another value.
    Replacing,
}

/// A slot of an overflow bucket, as the snapshot of the first bucket identifies it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Position {
    /// Counted from the first bucket, which is 0.
    pub(super) bucket: usize,
    pub(super) slot: usize,
}

/// The layout is drawn in the module's header.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Snapshot(u64);

impl Snapshot {
    const MOVED: u64 = 1;
    pub(super) const FROZEN: u64 = 1 << 1;
    /// Slot 0: two bits, of which the higher one means that there is an entry.
    const SLOT: u64 = 1 << 2;
    const PENDING: u64 = 1 << (2 + 2 * SLOTS);
    const PENDING_BITS: u32 = 16;
    const VERSION: u64 = Self::PENDING << Self::PENDING_BITS;
    /// The higher bits of all slots.
    const ENTRIES: u64 = 0b10_10_10 * Self::SLOT;
    /// The maximum number of overflow buckets that a position can address.
    pub(super) const LONGEST: usize = (1 << Self::PENDING_BITS) / SLOTS - 1;

    pub(super) fn is_frozen(self) -> bool {
        self.0 & Self::FROZEN != 0
    }

    pub(super) fn frozen(self) -> Self {
        Self(self.0 | Self::FROZEN)
    }

    /// The number to add to the word to move a slot from one state to another, for an update that
    /// no other thread can complete.
    fn step(slot: usize, from: SlotState, to: SlotState) -> u64 {
        (to as u64).wrapping_sub(from as u64) << (2 + 2 * slot)
    }

    /// The number to add when the insertion that claimed the slot gives it back.
    pub(super) fn unclaimed(slot: usize) -> u64 {
        Self::step(slot, SlotState::Inserting, SlotState::Free)
    }

    /// The number to add when the replacement that claimed the slot is done.
    pub(super) fn replaced(slot: usize, from: SlotState) -> u64 {
        let version = if mutant!("clht_lf_replaces_uncounted") {
            0
        } else {
            Self::VERSION
        };
        Self::step(slot, from, SlotState::Valid).wrapping_add(version)
    }

    pub(super) fn slot(self, slot: usize) -> SlotState {
        match self.0 >> (2 + 2 * slot) & 3 {
            0 => SlotState::Free,
            1 => SlotState::Inserting,
            2 => SlotState::Valid,
            _ => SlotState::Replacing,
        }
    }

    pub(super) fn with_slot(self, slot: usize, to: SlotState) -> Self {
        Self(self.0.wrapping_add(Self::step(slot, self.slot(slot), to)))
    }

    /// This snapshot without the entry of a slot.
    pub(super) fn without(self, slot: usize) -> Self {
        let without = self.with_slot(slot, SlotState::Free);
        if mutant!("clht_uncounted") {
            without
        } else {
            without.changed()
        }
    }

    fn changed(self) -> Self {
        Self(self.0.wrapping_add(Self::VERSION))
    }

    pub(super) fn is_replacing(self) -> bool {
        (0..SLOTS).any(|slot| self.slot(slot) == SlotState::Replacing)
    }

    /// The slot whose insertion has taken effect but may not be marked valid in its bucket yet.
    pub(super) fn pending(self) -> Option<Position> {
        let number = (self.0 / Self::PENDING) as usize & ((1 << Self::PENDING_BITS) - 1);
        let at = Position {
            bucket: number / SLOTS,
            slot: number % SLOTS,
        };
        (number != 0).then_some(at)
    }

    /// This snapshot with a pending insertion. There must be none before.
    pub(super) fn with_pending(self, at: Position) -> Self {
        let number = (at.bucket * SLOTS + at.slot) as u64;
        let with = Self(self.0 + number * Self::PENDING);
        if mutant!("clht_lf_uncounted_insertion") {
            with
        } else {
            with.changed()
        }
    }

    pub(super) fn without_pending(self) -> Self {
        let mask = (Self::VERSION - 1) & !(Self::PENDING - 1);
        Self(self.0 & !mask)
    }

    /// Whether an insertion may commit that searched the chain after `seen`, in which none was
    /// pending. It may if no other insertion has committed in between.
    pub(super) fn may_commit(self, seen: Self) -> bool {
        let same = self.version() == seen.version()
            && self.entries() == seen.entries()
            && self.pending().is_none();
        let frozen = self.is_frozen() && !mutant!("clht_lf_ignores_frozen");
        !frozen && (same || mutant!("clht_lf_blind_commit"))
    }

    pub(super) const fn moved_bit() -> u64 {
        Self::MOVED
    }
}

// SAFETY: zero is `SlotState::Free` (1). A wrapper of the bits (2). `without`, by which a slot
// loses its entry, raises the version (3).
unsafe impl BucketState for Snapshot {
    const STRIDE: usize = 2;

    #[inline(always)]
    fn of_bits(bits: u64) -> Self {
        Self(bits)
    }
    #[inline(always)]
    fn bits(self) -> u64 {
        self.0
    }
    #[inline(always)]
    fn is_moved(self) -> bool {
        self.0 & Self::MOVED != 0
    }
    #[inline(always)]
    fn entries(self) -> u64 {
        (self.0 & Self::ENTRIES) / (2 * Self::SLOT)
    }
    #[inline(always)]
    fn is_free(self, slot: usize) -> bool {
        self.slot(slot) == SlotState::Free
    }
    fn with(self, slot: usize) -> Self {
        self.with_slot(slot, SlotState::Valid)
    }
    #[inline(always)]
    fn version(self) -> u64 {
        self.0 / Self::VERSION
    }
}
