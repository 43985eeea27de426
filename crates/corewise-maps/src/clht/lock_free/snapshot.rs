//! The word that an update of a bucket is decided in: the paper's `snapshot_t`.

use corewise_atomic::mutant;

use crate::clht::bucket::{SLOTS, State};

/// What a slot is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Slot {
    /// The paper's INVALID.
    Free,
    /// One insertion has it; nobody else looks at it.
    Inserting,
    /// It has an entry.
    Valid,
    /// The same, and one thread is storing another value.
    Replacing,
}

/// A slot of a bucket that overflows, as the snapshot of the first bucket names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Position {
    /// Counted from the first bucket, which is 0.
    pub(super) bucket: usize,
    pub(super) slot: usize,
}

/// Drawn in the module's header.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Snapshot(u64);

impl Snapshot {
    const MOVED: u64 = 1;
    pub(super) const FROZEN: u64 = 1 << 1;
    /// Of slot 0: two bits, of which the higher one says that there is an entry.
    const SLOT: u64 = 1 << 2;
    const PENDING: u64 = 1 << (2 + 2 * SLOTS);
    const PENDING_BITS: u32 = 16;
    const VERSION: u64 = Self::PENDING << Self::PENDING_BITS;
    /// The higher bits of all slots.
    const ENTRIES: u64 = 0b10_10_10 * Self::SLOT;
    /// How many buckets a position can count.
    pub(super) const LONGEST: usize = (1 << Self::PENDING_BITS) / SLOTS - 1;

    pub(super) fn is_frozen(self) -> bool {
        self.0 & Self::FROZEN != 0
    }

    pub(super) fn frozen(self) -> Self {
        Self(self.0 | Self::FROZEN)
    }

    /// What to add to the word to make an update of a slot final that nobody else can end.
    fn step(slot: usize, from: Slot, to: Slot) -> u64 {
        (to as u64).wrapping_sub(from as u64) << (2 + 2 * slot)
    }

    /// Added: the insertion that has the slot gives it back.
    pub(super) fn unclaimed(slot: usize) -> u64 {
        Self::step(slot, Slot::Inserting, Slot::Free)
    }

    /// Added: the replacement that has the slot is done.
    pub(super) fn replaced(slot: usize, from: Slot) -> u64 {
        let version = match mutant!("clht_lf_replaces_uncounted") {
            true => 0,
            false => Self::VERSION,
        };
        Self::step(slot, from, Slot::Valid).wrapping_add(version)
    }

    pub(super) fn slot(self, slot: usize) -> Slot {
        match self.0 >> (2 + 2 * slot) & 3 {
            0 => Slot::Free,
            1 => Slot::Inserting,
            2 => Slot::Valid,
            _ => Slot::Replacing,
        }
    }

    pub(super) fn with_slot(self, slot: usize, to: Slot) -> Self {
        Self(self.0.wrapping_add(Self::step(slot, self.slot(slot), to)))
    }

    /// Without the entry of a slot.
    pub(super) fn without(self, slot: usize) -> Self {
        let without = self.with_slot(slot, Slot::Free);
        match mutant!("clht_uncounted") {
            true => without,
            false => without.changed(),
        }
    }

    fn changed(self) -> Self {
        Self(self.0.wrapping_add(Self::VERSION))
    }

    pub(super) fn is_replacing(self) -> bool {
        (0..SLOTS).any(|slot| self.slot(slot) == Slot::Replacing)
    }

    /// The slot whose insertion is decided, and may not be told of in the slot's own bucket yet.
    pub(super) fn pending(self) -> Option<Position> {
        let number = (self.0 / Self::PENDING) as usize & ((1 << Self::PENDING_BITS) - 1);
        let at = Position {
            bucket: number / SLOTS,
            slot: number % SLOTS,
        };
        (number != 0).then_some(at)
    }

    /// With an insertion decided. There is none before.
    pub(super) fn with_pending(self, at: Position) -> Self {
        let number = (at.bucket * SLOTS + at.slot) as u64;
        let with = Self(self.0 + number * Self::PENDING);
        match mutant!("clht_lf_uncounted_insertion") {
            true => with,
            false => with.changed(),
        }
    }

    pub(super) fn without_pending(self) -> Self {
        let mask = (Self::VERSION - 1) & !(Self::PENDING - 1);
        Self(self.0 & !mask)
    }

    /// Whether an insertion may be decided now that looked through the chain after `seen`, in which none was
    /// pending: there was no other one in between.
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

impl State for Snapshot {
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
        self.slot(slot) == Slot::Free
    }
    fn with(self, slot: usize) -> Self {
        self.with_slot(slot, Slot::Valid)
    }
    #[inline(always)]
    fn version(self) -> u64 {
        self.0 / Self::VERSION
    }
}
