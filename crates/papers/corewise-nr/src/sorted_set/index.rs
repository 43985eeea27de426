//! The hash table of a sorted set: from a member to the id of its record.
//!
//! ```text
//! hash | place in the order of arrays: depth bits | … |
//!      | base: depth rounded down to 4 |  tag 16  | … |
//! array 0: [tag 2 | id 4]*  array 1: …          sorted by tag
//! ```
//!
//! An array has the entries whose hashes begin with the same `depth` bits, its *prefix*. There are
//! `2^level + split` arrays: those with the first `split` prefixes of `level` bits are split in
//! two, the others are not. So arrays are split in the order of their prefixes, one after [`MEAN`]
//! insertions, and no directory is needed (linear hashing, Litwin 1980, with the first bits of the
//! hash in place of the last ones, so that the arrays have the order of the hashes). An array that
//! is to be split next has at most `2 * MEAN` entries on average; more than 512 are six standard
//! deviations away.
//!
//! A split leaves the lower half in its place, and appends the upper one. So the array with the
//! prefix `p`, which ends with `z` zeros, was appended when the depth was `depth - z - 1`, and has
//! the number `2^(depth - z - 1) + (p >> z + 1)`.
//!
//! All entries are sorted by the hash, up to ties. So an entry is found near the place that its tag
//! predicts, and a scan's cursor is a hash.
//!
//! A split needs the next bit of the hash. It is in the tag, of which the bits before `depth` are
//! equal in an array. After four splits the tags are computed anew, from the members.
//!
//! # Guarantees
//!
//! 1. *Steps.* An insertion moves at most the entries of one array by one place, and splits at most
//!    one array. A split reads no members, unless its halves have a depth of 4, 8, 12 or another
//!    multiple of four: then it hashes all members of the array, about `2 * MEAN`, and takes as
//!    long as these have bytes in all. A removal merges at most two arrays, and reads no members.
//! 2. *Room.* Arrays grow by an eighth, and shrink when a quarter is free. The mean array has at
//!    least a quarter of [`MEAN`] entries, or there is one array only.
//! 3. *Scan.* From the cursor 0 to the next, each entry that stays in the table is visited at least
//!    once. One is visited twice only if arrays were merged, or it was removed and inserted again.
//! 4. *Determinism.* Clones, and tables with equal seeds and histories, return the same ids and
//!    cursors.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::OnceLock;

use corewise_atomic::hint::prefetch;
use foldhash::SharedSeed;
use foldhash::quality::SeedableRandomState;

use super::mover::Mover;
use super::pages::Pages;
use super::records::Records;
use super::{Array, TINY};
use crate::SetMemory;

/// Entries of an array, on average, from which on the next array is split.
const MEAN: usize = if TINY { 3 } else { 192 };
/// Bits of a tag that splits use up before tags are computed anew.
const REUSED: u32 = 4;
/// Bits of a cursor: a client that has floating-point numbers only represents it exactly.
const CURSOR_BITS: u32 = 48;

/// A tag, and the two halves of an id.
#[derive(Clone, Copy, Debug, PartialEq)]
struct TaggedId {
    tag: u16,
    id: [u16; 2],
}

const _: () = assert!(size_of::<TaggedId>() == 6);

impl TaggedId {
    #[inline]
    fn new(tag: u16, id: u32) -> Self {
        let id = [id as u16, (id >> 16) as u16];
        Self { tag, id }
    }

    #[inline]
    fn id(self) -> u32 {
        u32::from(self.id[0]) | u32::from(self.id[1]) << 16
    }
}

/// An array's number, and the bits of the hash that choose it.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Position {
    array: u32,
    depth: u32,
}

/// See the module.
#[derive(Debug)]
pub(super) struct HashIndex {
    arrays: Pages<Array<TaggedId>>,
    level: u32,
    /// Arrays of the depth `level` that are split.
    split: usize,
    len: usize,
    /// The capacities of all arrays together.
    capacity: usize,
    hasher: SeedableRandomState,
}

/// The hash function of a seed: the same one for equal seeds, in one process.
///
/// A member's first bytes are combined with the seed, before they are multiplied by something that
/// depends on the last bytes. Bytes that are equal to the seed give the product 0, whatever
/// follows. So a seed that a client knows would let it choose members with equal hashes, and a
/// secret of the process is mixed in.
fn hasher(seed: u64) -> SeedableRandomState {
    static SECRET: OnceLock<RandomState> = OnceLock::new();
    let secret = SECRET.get_or_init(RandomState::new);
    SeedableRandomState::with_seed(secret.hash_one(seed), SharedSeed::global_random())
}

/// The first bits of a hash, 63 at most.
#[inline(always)]
fn first_bits(hash: u64, bits: u32) -> u64 {
    // In two steps, because a shift by 64 is not defined.
    hash >> 1 >> (63 - bits)
}

/// The number of the array with this prefix.
#[inline(always)]
fn number(prefix: u64, depth: u32) -> u32 {
    // The first 1 stands for the power of two; the array with the prefix 0 has the number 0.
    let prefix = prefix | 1 << depth;
    (prefix >> (prefix.trailing_zeros() + 1)) as u32
}

/// The number of leading bits of a hash that are not in the tags of an array of this depth.
#[inline(always)]
fn base(depth: u32) -> u32 {
    depth & !(REUSED - 1)
}

#[inline(always)]
fn tag(hash: u64, depth: u32) -> u16 {
    (hash << base(depth) >> 48) as u16
}

/// The index of the first entry with this tag or a higher one.
#[inline]
fn lower_bound(entries: &[TaggedId], hash: u64, depth: u32) -> usize {
    let tag = tag(hash, depth);
    // Hashes are uniform, so the rest of the hash predicts the place.
    let rest = hash << depth >> 32;
    let mut at = ((rest * entries.len() as u64) >> 32) as usize;
    while at < entries.len() && entries[at].tag < tag {
        at += 1;
    }
    while at > 0 && entries[at - 1].tag >= tag {
        at -= 1;
    }
    at
}

/// The place in an array of the entry with this id, and with the tag of this hash.
fn place_of(entries: &[TaggedId], hash: u64, depth: u32, id: u32) -> usize {
    let at = lower_bound(entries, hash, depth);
    let wanted = TaggedId::new(tag(hash, depth), id);
    let found = entries[at..].iter().position(|entry| *entry == wanted);
    at + found.expect("the member has an entry")
}

impl HashIndex {
    /// An empty table. Tables of one process with equal seeds have equal cursors.
    pub(super) fn new(seed: u64, memory: &SetMemory) -> Self {
        Self {
            arrays: Pages::new(memory),
            level: 0,
            split: 0,
            len: 0,
            capacity: 0,
            hasher: hasher(seed),
        }
    }

    /// The number of entries.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Bytes requested from the allocator.
    pub(super) fn memory(&self) -> usize {
        self.arrays.memory() + self.capacity * size_of::<TaggedId>()
    }

    pub(super) fn move_arrays(&mut self, mover: &mut Mover<'_>) {
        self.arrays
            .move_arrays(mover, |array, mover| mover.visit(array));
    }

    #[inline]
    pub(super) fn hash(&self, member: &[u8]) -> u64 {
        let mut hasher = self.hasher.build_hasher();
        hasher.write(member);
        hasher.finish()
    }

    #[inline(always)]
    fn position(&self, hash: u64) -> Position {
        let is_split = first_bits(hash, self.level) < self.split as u64;
        let depth = self.level + u32::from(is_split);
        let array = number(first_bits(hash, depth), depth);
        Position { array, depth }
    }

    /// The id of a member with this hash.
    #[inline]
    pub(super) fn find(&self, hash: u64, is_member: impl Fn(u32) -> bool) -> Option<u32> {
        if self.len == 0 {
            return None;
        }
        let Position { array, depth } = self.position(hash);
        let entries = &self.arrays[array][..];
        let tag = tag(hash, depth);
        for entry in &entries[lower_bound(entries, hash, depth)..] {
            if entry.tag != tag {
                break;
            }
            if is_member(entry.id()) {
                return Some(entry.id());
            }
        }
        None
    }

    /// Lets the part of the array in which a hash is likely to be arrive in the cache.
    pub(super) fn prefetch(&self, hash: u64) {
        if self.len == 0 {
            return;
        }
        let Position { array, depth } = self.position(hash);
        let entries = &self.arrays[array];
        let rest = hash << depth >> 32;
        let at = ((rest * entries.len() as u64) >> 32) as usize;
        // The entry may be some places before or after; a line has ten entries.
        for at in [at.saturating_sub(4), at + 4] {
            if let Some(entry) = entries.get(at) {
                prefetch(entry);
            }
        }
    }

    /// The ids of the members that may have this hash.
    pub(super) fn candidates(&self, hash: u64) -> impl Iterator<Item = u32> {
        let entries = (self.len > 0).then(|| {
            let Position { array, depth } = self.position(hash);
            let entries = &self.arrays[array][..];
            let tag = tag(hash, depth);
            let from = &entries[lower_bound(entries, hash, depth)..];
            from.iter().take_while(move |entry| entry.tag == tag)
        });
        entries.into_iter().flatten().map(|entry| entry.id())
    }

    /// Adds an entry for a member that is absent. The record must be there already.
    pub(super) fn insert(&mut self, hash: u64, id: u32, records: &Records) {
        if self.arrays.len() == 0 {
            self.arrays.push(self.array(0));
        }
        let Position { array, depth } = self.position(hash);
        let entries = &mut self.arrays[array];
        let at = lower_bound(entries, hash, depth);
        if entries.len() == entries.capacity() {
            let old = entries.capacity();
            entries.reserve_exact((old / 8).max(4));
            self.capacity += entries.capacity() - old;
        }
        entries.insert(at, TaggedId::new(tag(hash, depth), id));
        self.len += 1;
        if self.len > self.arrays.len() * MEAN {
            self.split_next(records);
        }
    }

    /// Removes the entry of a member.
    pub(super) fn remove(&mut self, hash: u64, id: u32) {
        let Position { array, depth } = self.position(hash);
        let entries = &mut self.arrays[array];
        entries.remove(place_of(entries, hash, depth, id));
        self.len -= 1;
        let old = entries.capacity();
        if entries.len() < old / 4 * 3 {
            entries.shrink_to(entries.len() + entries.len() / 16);
            self.capacity -= old - entries.capacity();
        }
        if self.len == 0 {
            self.remove_arrays();
        } else if self.len < (self.arrays.len() - 1) * MEAN / 2 {
            self.merge_last();
        }
    }

    /// Removes the arrays of an empty table. There is one, or few in a test.
    fn remove_arrays(&mut self) {
        self.arrays = Pages::new(self.arrays.source());
        (self.level, self.split, self.capacity) = (0, 0, 0);
    }

    /// Lets the entry of a record name its copy.
    pub(super) fn replace(&mut self, hash: u64, old: u32, new: u32) {
        let Position { array, depth } = self.position(hash);
        let entries = &mut self.arrays[array];
        let place = place_of(entries, hash, depth, old);
        entries[place] = TaggedId::new(tag(hash, depth), new);
    }

    /// Splits the next array in the order of their prefixes.
    fn split_next(&mut self, records: &Records) {
        let depth = self.level + 1;
        let array = number(self.split as u64, self.level);
        let none = self.array(0);
        let entries = std::mem::replace(&mut self.arrays[array], none);
        self.capacity -= entries.capacity();
        let (lower, upper) = if base(depth) == depth {
            self.split_by_member(&entries, depth, records)
        } else {
            // The first bit that the two halves do not share.
            let bit = 15 - (self.level - base(self.level));
            let middle = entries.partition_point(|entry| entry.tag >> bit & 1 == 0);
            let (lower, upper) = entries.split_at(middle);
            (self.array_of(lower), self.array_of(upper))
        };
        self.capacity += lower.capacity() + upper.capacity();
        self.arrays[array] = lower;
        self.arrays.push(upper);
        self.split += 1;
        if self.split == 1 << self.level {
            (self.level, self.split) = (depth, 0);
        }
    }

    /// An array without entries.
    fn array(&self, capacity: usize) -> Array<TaggedId> {
        Array::with_capacity_in(capacity, self.arrays.source().clone())
    }

    fn array_of(&self, entries: &[TaggedId]) -> Array<TaggedId> {
        let mut array = self.array(entries.len());
        array.extend_from_slice(entries);
        array
    }

    /// Both halves of an array, with tags for the next depths.
    fn split_by_member(
        &self,
        entries: &[TaggedId],
        depth: u32,
        records: &Records,
    ) -> (Array<TaggedId>, Array<TaggedId>) {
        for entry in entries {
            records.prefetch(entry.id());
        }
        let hash = |entry: &TaggedId| self.hash(records.member(entry.id()));
        let hashes: Vec<u64> = entries.iter().map(hash).collect();
        let is_upper = |hash: u64| first_bits(hash, depth) & 1 == 1;
        let uppers = hashes.iter().filter(|&&hash| is_upper(hash)).count();
        let mut halves = [entries.len() - uppers, uppers].map(|len| self.array(len));
        for (entry, &hash) in entries.iter().zip(&hashes) {
            let half = &mut halves[usize::from(is_upper(hash))];
            let entry = TaggedId::new(tag(hash, depth), entry.id());
            // Entries had equal tags, and may have any order, only where they are neighbours.
            let mut at = half.len();
            while at > 0 && half[at - 1].tag > entry.tag {
                at -= 1;
            }
            half.insert(at, entry);
        }
        let [lower, upper] = halves;
        (lower, upper)
    }

    /// Undoes the last split.
    fn merge_last(&mut self) {
        if self.split == 0 {
            self.level -= 1;
            self.split = 1 << self.level;
        }
        self.split -= 1;
        let depth = self.level + 1;
        let upper = self.arrays.pop().expect("the upper half");
        let lower = &mut self.arrays[number(self.split as u64, self.level)];
        self.capacity -= lower.capacity() + upper.capacity();
        let boundary = lower.len();
        lower.reserve_exact(upper.len());
        lower.extend_from_slice(&upper);
        if base(depth) == depth {
            // The hash's bits before the tags were equal in each half.
            let before = self.split << 1;
            for (at, entry) in lower.iter_mut().enumerate() {
                let bits = before | usize::from(at >= boundary);
                entry.tag = entry.tag >> REUSED | (bits << (16 - REUSED)) as u16;
            }
        }
        self.capacity += lower.capacity();
    }

    /// Calls `visit` for at least `count` entries in the order of their hashes, one at least, from
    /// the cursor on. Returns the cursor of the next entry, or 0 after the last one.
    pub(super) fn scan(&self, cursor: u64, count: usize, mut visit: impl FnMut(u32)) -> u64 {
        if self.len == 0 || cursor >> CURSOR_BITS != 0 {
            return 0;
        }
        let mut left = count.max(1);
        let mut hash = cursor << (64 - CURSOR_BITS);
        loop {
            let Position { array, depth } = self.position(hash);
            let entries = &self.arrays[array][..];
            let mut at = lower_bound(entries, hash, depth);
            while at < entries.len() {
                let tag = entries[at].tag;
                if left == 0 {
                    let base = base(depth);
                    let before = first_bits(hash, base) << 16 | u64::from(tag);
                    return before << (CURSOR_BITS - 16 - base);
                }
                // Entries with equal tags have no order, so all of them are visited.
                while at < entries.len() && entries[at].tag == tag {
                    visit(entries[at].id());
                    left = left.saturating_sub(1);
                    at += 1;
                }
            }
            let next = first_bits(hash, depth) + 1;
            if next == 1 << depth {
                return 0;
            }
            hash = next << (64 - depth);
        }
    }

    /// All ids.
    pub(super) fn ids(&self) -> impl Iterator<Item = u32> {
        self.arrays.iter().flatten().map(|entry| entry.id())
    }

    /// Frees the last array, and returns whether there was one. The table is of no use any more.
    pub(super) fn drop_array(&mut self) -> bool {
        let Some(array) = self.arrays.pop() else {
            return false;
        };
        self.capacity -= array.capacity();
        true
    }

    /// Panics unless each entry is in its array, arrays are sorted, and the counters agree.
    pub(super) fn assert_valid(&self, records: &Records) {
        let arrays = (1 << self.level) + self.split;
        let is_empty = self.arrays.len() == 0 && self.len == 0;
        assert!(self.arrays.len() == arrays || is_empty);
        assert!(self.len <= arrays * MEAN);
        assert!(arrays == 1 || self.len >= (arrays - 1) * MEAN / 2);
        let (mut len, mut capacity) = (0, 0);
        for (number, entries) in self.arrays.iter().enumerate() {
            assert!(entries.is_sorted_by_key(|entry| entry.tag));
            for entry in entries {
                let hash = self.hash(records.member(entry.id()));
                let Position { array, depth } = self.position(hash);
                assert_eq!(array as usize, number, "an entry is in a wrong array");
                assert_eq!(entry.tag, tag(hash, depth));
            }
            len += entries.len();
            capacity += entries.capacity();
        }
        assert_eq!((len, capacity), (self.len, self.capacity));
    }
}

/// The clone has no room for more entries.
impl Clone for HashIndex {
    fn clone(&self) -> Self {
        let arrays = self.arrays.clone();
        Self {
            capacity: arrays.iter().map(Array::capacity).sum(),
            arrays,
            hasher: self.hasher.clone(),
            ..*self
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use proptest::prelude::*;

    use super::*;

    /// A table beside a map from members to ids.
    struct Pair {
        records: Records,
        table: HashIndex,
        oracle: BTreeMap<u32, u32>,
    }

    impl Pair {
        fn new() -> Self {
            Self {
                records: Records::new(&SetMemory::default()),
                table: HashIndex::new(7, &SetMemory::default()),
                oracle: BTreeMap::new(),
            }
        }

        fn insert(&mut self, number: u32) {
            let member = number.to_be_bytes();
            if self.oracle.contains_key(&number) {
                return;
            }
            let id = self.records.insert(&member, 0.0).expect("room");
            self.table
                .insert(self.table.hash(&member), id, &self.records);
            self.oracle.insert(number, id);
        }

        fn remove(&mut self, number: u32) {
            if let Some(id) = self.oracle.remove(&number) {
                let hash = self.table.hash(&number.to_be_bytes());
                self.table.remove(hash, id);
                self.records.remove(id);
            }
        }

        fn assert_equal(&self) {
            self.table.assert_valid(&self.records);
            assert_eq!(self.table.len(), self.oracle.len());
            for number in 0..400_u32 {
                let member = number.to_be_bytes();
                let is_member = |id: u32| self.records.member(id) == member;
                let hash = self.table.hash(&member);
                let found = self.table.find(hash, is_member);
                assert_eq!(found, self.oracle.get(&number).copied());
                let mut candidates = self.table.candidates(hash);
                assert_eq!(candidates.any(is_member), found.is_some());
            }
        }

        /// Scans a part, and adds the numbers that it visits.
        fn scan(&self, cursor: u64, count: usize, seen: &mut BTreeSet<u32>) -> u64 {
            let (mut visits, mut tags) = (0, BTreeSet::new());
            let next = self.table.scan(cursor, count, |id| {
                let member = self.records.member(id);
                seen.insert(u32::from_be_bytes(member.try_into().expect("4 bytes")));
                let hash = self.table.hash(member);
                let Position { array, depth } = self.table.position(hash);
                tags.insert((array, tag(hash, depth)));
                visits += 1;
            });
            assert!(next == 0 || next > cursor, "a cursor goes on");
            assert!(next == 0 || visits >= count.max(1));
            // More than asked for only where tags are equal.
            assert!(tags.len() <= count.max(1));
            next
        }
    }

    #[derive(Clone, Debug)]
    enum Step {
        Insert(u32),
        Remove(u32),
        Replace(u32),
        Scan(usize),
        Clone,
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let phase = |inserts: u32, removes: u32| {
            let step = prop_oneof![
                inserts => (0..400_u32).prop_map(Step::Insert),
                removes => (0..400_u32).prop_map(Step::Remove),
                1 => (0..400_u32).prop_map(Step::Replace),
                4 => (0..12_usize).prop_map(Step::Scan),
                1 => Just(Step::Clone),
            ];
            prop::collection::vec(step, 0..300)
        };
        (phase(20, 2), phase(2, 20), phase(10, 10)).prop_map(|(a, b, c)| [a, b, c].concat())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// Guarantees 3 and 4 beside a map, while the table grows and shrinks.
        #[test]
        fn members_are_found_and_scanned(steps in steps()) {
            let mut pair = Pair::new();
            // What stayed since the scan began, and what it has visited.
            let (mut cursor, mut stayed, mut seen) = (0, BTreeSet::new(), BTreeSet::new());
            for step in steps {
                match step {
                    Step::Insert(number) => pair.insert(number),
                    Step::Remove(number) => {
                        pair.remove(number);
                        stayed.remove(&number);
                    }
                    Step::Replace(number) => if let Some(&old) = pair.oracle.get(&number) {
                        let new = pair.records.insert(&number.to_be_bytes(), 0.0).expect("room");
                        let hash = pair.table.hash(&number.to_be_bytes());
                        pair.table.replace(hash, old, new);
                        pair.records.remove(old);
                        pair.oracle.insert(number, new);
                    },
                    Step::Scan(count) => {
                        if cursor == 0 {
                            stayed = pair.oracle.keys().copied().collect();
                            seen.clear();
                        }
                        cursor = pair.scan(cursor, count, &mut seen);
                        prop_assert!(cursor != 0 || stayed.is_subset(&seen));
                    }
                    Step::Clone => {
                        let clone = pair.table.clone();
                        prop_assert!(clone.ids().eq(pair.table.ids()));
                        prop_assert!(clone.memory() <= pair.table.memory());
                        pair.table = clone;
                    }
                }
            }
            pair.assert_equal();
        }
    }

    /// Tags are computed anew at the depths 4, 8 and 12, and lose bits where arrays are merged.
    #[test]
    fn arrays_split_and_merge_in_the_order_of_hashes() {
        let mut pair = Pair::new();
        let count = (MEAN << 12) as u32 + 400;
        for number in 0..count {
            pair.insert(number);
            if number.is_power_of_two() {
                pair.assert_equal();
            }
        }
        assert!(pair.table.level >= 12);
        pair.assert_equal();
        let (mut cursor, mut seen, mut steps) = (0, BTreeSet::new(), 0);
        loop {
            cursor = pair.scan(cursor, 10, &mut seen);
            steps += 1;
            if cursor == 0 {
                break;
            }
        }
        assert_eq!(seen.len() as u32, count);
        assert!(steps <= count.div_ceil(10));
        for number in (0..count).rev() {
            pair.remove(number);
            if number.is_power_of_two() {
                pair.assert_equal();
            }
        }
        pair.assert_equal();
        assert_eq!(pair.table.memory(), 0);
    }

    #[test]
    fn tables_with_other_seeds_have_other_orders() {
        let ids = |seed| {
            let (mut records, mut table) = (
                Records::new(&SetMemory::default()),
                HashIndex::new(seed, &SetMemory::default()),
            );
            for number in 0..200_u32 {
                let member = number.to_be_bytes();
                let id = records.insert(&member, 0.0).expect("room");
                table.insert(table.hash(&member), id, &records);
            }
            table.ids().collect::<Vec<u32>>()
        };
        assert_eq!(ids(1), ids(1));
        assert_ne!(ids(1), ids(2));
    }

    /// Without a secret the first eight bytes would be those that the seed 0 cancels out, and all
    /// hashes would be 0.
    #[test]
    fn no_member_cancels_out_a_known_seed() {
        let table = HashIndex::new(0, &SetMemory::default());
        for rotated in 0..64 {
            let first = 0x082e_fa98_ec4e_6c89_u64.rotate_right(rotated);
            let hashes: BTreeSet<u64> = (0..1_000_u64)
                .map(|last| {
                    let member = [first.to_le_bytes(), last.to_le_bytes()].concat();
                    table.hash(&member)
                })
                .collect();
            assert_eq!(hashes.len(), 1_000, "rotated by {rotated}");
        }
    }
}
