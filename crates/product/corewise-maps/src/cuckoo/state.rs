//! The word of a bucket, and the possible places of a key.

/// Entries in a bucket.
pub(super) const SLOTS: usize = 4;
/// Bits of an overflow bucket's ID. ID 0 means none.
pub(super) const ID_BITS: u32 = 25;

const TAG_BITS: u32 = 8;
const TAGS: u64 = u32::MAX as u64;
const LOW_BITS: u64 = 0x7f7f_7f7f_7f7f_7f7f;

/// Eight bits of a hash; never 0, which is the tag of a free slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tag(u8);

impl Tag {
    /// The difference of a hash's two bucket numbers, before they are cut to a table's size. Odd,
    /// so the buckets differ.
    #[inline(always)]
    fn offset(self) -> u64 {
        u64::from(self.0).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1
    }

    /// The other bucket of an entry with this tag. Self-inverse.
    #[inline(always)]
    pub(super) fn other(self, bucket: usize, mask: u64) -> usize {
        bucket ^ (self.offset() & mask) as usize
    }
}

/// Which of its two buckets an entry lies in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    First,
    Second,
}

impl Side {
    pub(super) fn other(self) -> Self {
        match self {
            Side::First => Side::Second,
            Side::Second => Side::First,
        }
    }
}

/// The possible places of the entries of a hash.
#[derive(Clone, Copy)]
pub(super) struct Homes {
    hash: u64,
    pub(super) tag: Tag,
}

impl Homes {
    #[inline(always)]
    pub(super) fn new(hash: u64) -> Self {
        // Mixes all bits of the hash into the tag, in case the hash is poor.
        let tag = (hash.wrapping_mul(0xff51_afd7_ed55_8ccd) >> (64 - TAG_BITS)) as u8;
        let tag = Tag(tag.max(1));
        Self { hash, tag }
    }

    /// For a hash that had this tag before.
    pub(super) fn with_tag(hash: u64, tag: Tag) -> Self {
        Self { hash, tag }
    }

    /// The number of a bucket, before it is cut to a table's size.
    #[inline(always)]
    pub(super) fn number(self, side: Side) -> u64 {
        match side {
            Side::First => self.hash,
            Side::Second => self.hash ^ self.tag.offset(),
        }
    }

    #[inline(always)]
    pub(super) fn bucket(self, side: Side, mask: u64) -> usize {
        (self.number(side) & mask) as usize
    }
}

/// The word of a bucket, as drawn in the module's header. [`LOCK`](Self::LOCK) and
/// [`MOVED`](Self::MOVED) are meaningful only in the first bucket of a chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct State(pub(super) u64);

impl State {
    pub(super) const EMPTY: Self = Self(0);
    /// For slot 0: the entry lies in its second bucket.
    const SECOND: u64 = 1 << 32;
    const LOCK: u64 = 1 << 36;
    const MOVED: u64 = 1 << 37;
    /// A pair of this bucket is being replaced, word by word.
    const WRITING: u64 = 1 << 38;
    const NEXT: u32 = 64 - ID_BITS;

    pub(super) fn is_locked(self) -> bool {
        self.0 & Self::LOCK != 0
    }

    #[inline(always)]
    pub(super) fn is_moved(self) -> bool {
        self.0 & Self::MOVED != 0
    }

    pub(super) fn is_writing(self) -> bool {
        self.0 & Self::WRITING != 0
    }

    /// Whether both buckets consist of their slots only: not moved, not being written, without
    /// overflow buckets.
    #[inline(always)]
    pub(super) fn are_plain(states: [Self; 2]) -> bool {
        (states[0].0 | states[1].0) >> 37 == 0
    }

    pub(super) fn locked(self) -> Self {
        Self(self.0 | Self::LOCK)
    }

    pub(super) fn moved(self) -> Self {
        Self(self.0 | Self::MOVED)
    }

    pub(super) fn writing(self) -> Self {
        Self(self.0 | Self::WRITING)
    }

    pub(super) fn written(self) -> Self {
        Self(self.0 & !Self::WRITING)
    }

    /// The ID of the overflow bucket that this one links to.
    #[inline(always)]
    pub(super) fn next(self) -> Option<u32> {
        let id = (self.0 >> Self::NEXT) as u32;
        (id != 0).then_some(id)
    }

    pub(super) fn with_next(self, id: u32) -> Self {
        Self(self.0 & ((1 << Self::NEXT) - 1) | u64::from(id) << Self::NEXT)
    }

    pub(super) fn tag(self, slot: usize) -> Option<Tag> {
        let tag = (self.0 >> (slot as u32 * TAG_BITS)) as u8;
        (tag != 0).then_some(Tag(tag))
    }

    pub(super) fn side(self, slot: usize) -> Side {
        match self.0 & Self::SECOND << slot {
            0 => Side::First,
            _ => Side::Second,
        }
    }

    /// The slots in use, with their tags.
    pub(super) fn used_slots(self) -> impl Iterator<Item = (usize, Tag)> {
        (0..SLOTS).filter_map(move |slot| Some((slot, self.tag(slot)?)))
    }

    /// A free slot.
    pub(super) fn free(self) -> Option<usize> {
        Places(zero_bytes(self.0 | !TAGS)).next()
    }

    pub(super) fn with(self, slot: usize, tag: Tag, side: Side) -> Self {
        let second = match side {
            Side::First => 0,
            Side::Second => Self::SECOND << slot,
        };
        Self(self.without(slot).0 | u64::from(tag.0) << (slot as u32 * TAG_BITS) | second)
    }

    pub(super) fn without(self, slot: usize) -> Self {
        let tag = u64::from(u8::MAX) << (slot as u32 * TAG_BITS);
        Self(self.0 & !tag & !(Self::SECOND << slot))
    }

    /// The slots of one bucket with this tag.
    #[inline(always)]
    pub(super) fn matches(self, tag: Tag) -> Places {
        Self::matches_of([self, Self::EMPTY], tag)
    }

    /// The places in two buckets with this tag: slots of the first bucket, and from [`SLOTS`] on
    /// slots of the second.
    #[inline(always)]
    pub(super) fn matches_of(states: [Self; 2], tag: Tag) -> Places {
        let tags = states[0].0 & TAGS | states[1].0 << 32;
        let wanted = u64::from(tag.0) * 0x0101_0101_0101_0101;
        Places(zero_bytes(tags ^ wanted))
    }
}

/// The top bit of each byte that is zero.
#[inline(always)]
const fn zero_bytes(word: u64) -> u64 {
    // No byte carries into the next: each sum is at most 0x7f + 0x7f.
    !(((word & LOW_BITS) + LOW_BITS) | word | LOW_BITS)
}

/// Places whose tags are equal, as the top bits of bytes.
pub(super) struct Places(u64);

impl Places {
    #[inline(always)]
    pub(super) fn is_empty(&self) -> bool {
        self.0 == 0
    }
}

impl Iterator for Places {
    type Item = usize;

    #[inline(always)]
    fn next(&mut self) -> Option<usize> {
        if self.0 == 0 {
            return None;
        }
        let place = self.0.trailing_zeros() / u8::BITS;
        self.0 &= self.0 - 1;
        Some(place as usize)
    }
}

#[cfg(all(test, not(any(corewise_loom, corewise_shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn both_buckets_lead_to_each_other_and_differ() {
        for hash in (0..10_000).map(|n: u64| n.wrapping_mul(0x2545_f491_4f6c_dd1d)) {
            let homes = Homes::new(hash);
            for mask in [1, 7, 255, (1 << 22) - 1] {
                let [one, other] = [Side::First, Side::Second].map(|side| homes.bucket(side, mask));
                assert_ne!(one, other);
                assert_eq!(homes.tag.other(one, mask), other);
                assert_eq!(homes.tag.other(other, mask), one);
            }
        }
    }

    /// On a resize, an entry moves between buckets whose numbers end alike, whatever the tables'
    /// sizes.
    #[test]
    fn buckets_of_a_larger_table_end_in_those_of_a_smaller_one() {
        for hash in (0..1_000).map(|n: u64| n.wrapping_mul(0x2545_f491_4f6c_dd1d)) {
            let homes = Homes::new(hash);
            for side in [Side::First, Side::Second] {
                let small = homes.bucket(side, 63);
                assert_eq!(homes.bucket(side, 1023) & 63, small);
                assert_eq!(homes.bucket(side, 127) & 63, small);
            }
        }
    }

    #[test]
    fn slots_are_found_by_their_tags_and_no_others() {
        let tags = [1, 2, 127, 128, 129, 254, 255].map(Tag);
        for tag in tags {
            for slot in 0..SLOTS {
                let mut state = State::EMPTY.locked().with_next(77);
                assert!(state.matches(tag).is_empty());
                for other in tags.into_iter().filter(|other| *other != tag) {
                    state = State::EMPTY.locked().with_next(77);
                    for all in 0..SLOTS {
                        state = state.with(all, other, Side::Second);
                    }
                    assert!(state.matches(tag).is_empty());
                }
                state = state.with(slot, tag, Side::First);
                assert!(state.matches(tag).eq([slot]));
                assert!(State::matches_of([State::EMPTY, state], tag).eq([SLOTS + slot]));
                assert!(State::matches_of([state, state], tag).eq([slot, SLOTS + slot]));
                assert_eq!(
                    (state.tag(slot), state.side(slot)),
                    (Some(tag), Side::First)
                );
                assert_eq!((state.free(), state.next()), (None, Some(77)));
                let free = state.without(slot);
                assert_eq!(
                    (free.free(), free.used_slots().count()),
                    (Some(slot), SLOTS - 1)
                );
                assert!(free.is_locked() && !free.is_moved() && !free.is_writing());
            }
        }
    }
}
