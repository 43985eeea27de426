//! A B+ tree over the ids of the records, in the order of scores and members, with the number of
//! members in each subtree.
//!
//! ```text
//! Inner: | keys [u64; 64] | ids [u32; 64] | children [u32; 64] | counts [u32; 64] | len |
//! Leaf:  | base 8 | residues [u32; 64] | ids [u32; 64] | previous | next | len 1 | shift 1 |
//! ```
//!
//! An *entry* is a key (see [`score`](super::score)), the bytes of a member, and the id of its
//! record. Entries are sorted by key, then by bytes. A leaf keeps of each key the *residue*
//! `(key >> shift) - base`; the shift is the least with which all fit, or was when the leaf
//! was filled. Of entries with equal residues the records are read, which have key and member
//! side by side. Callers pass a closure, `order`, that orders a record relative to the entry
//! wanted. It is called only for equal residues and equal keys.
//!
//! # Guarantees
//!
//! 1. Child `i` of an inner node has its first entry in `keys[i]` and `ids[i]`, and its number of
//!    entries in `counts[i]`. So no node names an id that was removed.
//! 2. All leaves have the same depth, and no node is empty, except for a root without members.
//! 3. Each node has at least [`LEAST`] entries or children, except for the last node of a level,
//!    because a split at the end of a level leaves the left node full: ascending insertions fill
//!    the nodes.
//! 4. Every operation on one entry visits `O(log n)` nodes, and reads the records of at most two
//!    leaves.
//! 5. No room for nodes is free but at the end: the last node takes the place of one that is freed.
//!    So the room follows the number of entries.

use std::cmp::Ordering;
use std::ops::Range;

use super::cut::Cut;
use super::mover::Mover;
use super::pages::Pages;
use super::records::Records;
use super::score::key;
use super::{Array, TINY};
use crate::SetMemory;

/// Entries of a leaf, and children of an inner node. Small in tests, so that each splits and merges
/// nodes; but with less than 8, a node would be merged when it is empty only.
pub(super) const FANOUT: usize = if TINY { 8 } else { 64 };
/// A node with fewer entries after a removal is merged, or gets entries of its neighbour.
const LEAST: usize = FANOUT / 4;
/// The most entries of a node that was just merged: room for insertions before the next split.
const MERGED: usize = FANOUT / 4 * 3;
/// Children of the inner nodes that are built at once.
const BUILT: usize = FANOUT / 8 * 7 + FANOUT % 8 / 2;
/// Levels above the leaves. A tree grows when its root has `FANOUT` children; by guarantee 3 a tree
/// of 2^32 entries has seven levels above its leaves.
const MAX_HEIGHT: usize = if TINY { 32 } else { 8 };

/// Bits of the residues of a leaf that was just split or merged; with fewer, its records are read
/// to have a lower shift.
const PRECISE: u32 = 16;

/// No node.
const NONE: u32 = u32::MAX;

/// Stands in the unused places of `keys`; no score but a NaN has this key.
const UNUSED: u64 = u64::MAX;

/// Stands in the unused places of `residues`; no entry has this residue.
const UNUSED_RESIDUE: u32 = u32::MAX;

#[derive(Clone, Debug)]
struct Leaf {
    base: u64,
    residues: [u32; FANOUT],
    ids: [u32; FANOUT],
    previous: u32,
    next: u32,
    len: u8,
    shift: u8,
}

#[derive(Clone, Debug)]
struct Inner {
    keys: [u64; FANOUT],
    ids: [u32; FANOUT],
    children: [u32; FANOUT],
    counts: [u32; FANOUT],
    len: u32,
}

const _: () = {
    assert!(size_of::<Leaf>() == (8 * FANOUT + 18).next_multiple_of(align_of::<u64>()));
    assert!(size_of::<Inner>() == (20 * FANOUT + 4).next_multiple_of(align_of::<u64>()));
    assert!(FANOUT.is_multiple_of(line::<u32>()) && FANOUT.is_multiple_of(line::<u64>()));
    assert!(LEAST >= 2 && MERGED < FANOUT && BUILT <= FANOUT && BUILT > LEAST);
};

/// The number of entries of the left one of two neighbours after they were merged, or have shared
/// their entries.
fn shared(len: usize, others: usize) -> usize {
    let both = len + others;
    if both <= MERGED { both } else { both / 2 }
}

/// Inserts into the first `len` elements of an array that has room.
fn insert_at<T: Copy>(array: &mut [T], len: usize, at: usize, value: T) {
    array.copy_within(at..len, at + 1);
    array[at] = value;
}

/// Removes from the first `len` elements of an array.
fn remove_at<T: Copy>(array: &mut [T], len: usize, at: usize) {
    array.copy_within(at + 1..len, at);
}

/// Moves the last `moved` of `left` elements to the front of `right` ones.
fn move_right<T: Copy>(from: &mut [T], left: usize, to: &mut [T], right: usize, moved: usize) {
    to.copy_within(0..right, moved);
    to[..moved].copy_from_slice(&from[left - moved..left]);
}

/// Moves the first `moved` of `right` elements to the end of `left` ones.
fn move_left<T: Copy>(to: &mut [T], left: usize, from: &mut [T], right: usize, moved: usize) {
    to[left..left + moved].copy_from_slice(&from[..moved]);
    from.copy_within(moved..right, 0);
}

/// Keys in a cache line.
const fn line<K>() -> usize {
    if TINY { 2 } else { 64 / size_of::<K>() }
}

/// The number of keys that are lower than `key`. Unused keys are the highest.
///
/// Looks at the first key of each cache line, then at one line. These loads do not depend on each
/// other, so the lines of a node that is not cached arrive together.
#[inline]
fn keys_below<K: Copy + Ord>(keys: &[K; FANOUT], key: K) -> usize {
    let line = const { line::<K>() };
    let is_below = |found: &K| usize::from(*found < key);
    let lines: usize = keys.iter().step_by(line).skip(1).map(is_below).sum();
    let start = lines * line;
    start
        + keys[start..start + line]
            .iter()
            .map(is_below)
            .sum::<usize>()
}

/// The number of entries that are lower than the one wanted, and among those with an equal key
/// have a record for which `is_before`.
#[inline]
fn entries_below<K: Copy + Ord>(
    keys: &[K; FANOUT],
    ids: &[u32; FANOUT],
    key: K,
    is_before: impl Fn(u32) -> bool,
) -> usize {
    let start = keys_below(keys, key);
    if start == FANOUT || keys[start] != key {
        return start;
    }
    // A binary search with branches: a comparison of records waits for memory, and a predicted
    // branch lets the next one start. `partition_point` has conditional moves instead.
    let (mut from, mut to) = (start, FANOUT);
    while from < to {
        let middle = from.midpoint(to);
        if keys[middle] == key && is_before(ids[middle]) {
            from = middle + 1;
        } else {
            to = middle;
        }
    }
    from
}

impl Leaf {
    fn new() -> Self {
        Self {
            base: 0,
            residues: [UNUSED_RESIDUE; FANOUT],
            ids: [0; FANOUT],
            previous: NONE,
            next: NONE,
            len: 0,
            shift: 0,
        }
    }

    fn len(&self) -> usize {
        self.len as usize
    }

    /// The residue of a key, or the order of all entries relative to it if it has none here.
    #[inline]
    fn residue(&self, key: u64) -> Result<u32, Ordering> {
        let above_base = (key >> self.shift).checked_sub(self.base);
        let residue = above_base.ok_or(Ordering::Greater)?;
        if residue < u64::from(UNUSED_RESIDUE) {
            Ok(residue as u32)
        } else {
            Err(Ordering::Less)
        }
    }

    /// The number of entries below the one wanted.
    #[inline]
    fn position(&self, key: u64, order: impl Fn(u32) -> Ordering) -> usize {
        match self.residue(key) {
            Ok(residue) => {
                entries_below(&self.residues, &self.ids, residue, |id| order(id).is_lt())
            }
            Err(Ordering::Less) => self.len(),
            Err(_) => 0,
        }
    }

    /// Orders an entry of this leaf relative to the one wanted.
    fn order_at(&self, at: usize, key: u64, order: impl Fn(u32) -> Ordering) -> Ordering {
        match self.residue(key) {
            Ok(residue) => self.residues[at]
                .cmp(&residue)
                .then_with(|| order(self.ids[at])),
            Err(order) => order,
        }
    }

    /// The index of an entry, which must be in this leaf. Unlike a binary search it reads no
    /// records of entries with equal keys.
    #[inline]
    fn position_of(&self, id: u32) -> usize {
        let ids = &self.ids[..self.len()];
        let found = ids.iter().position(|other| *other == id);
        found.expect("the entry is in this leaf")
    }

    /// The key of the first entry.
    fn first_key(&self, records: &Records) -> u64 {
        if self.shift == 0 {
            self.base + u64::from(self.residues[0])
        } else {
            records.key(self.ids[0])
        }
    }

    /// An entry's key as far as the leaf knows it: the bits below the shift are 0.
    fn known_key(&self, at: usize) -> u64 {
        (self.base + u64::from(self.residues[at])) << self.shift
    }

    /// Gives all entries residues of a higher shift, or with another base.
    fn rebase(&mut self, shift: u8, base: u64) {
        for at in 0..self.len() {
            self.residues[at] = ((self.known_key(at) >> shift) - base) as u32;
        }
        (self.shift, self.base) = (shift, base);
    }

    /// Lets the keys between these two have residues.
    fn cover(&mut self, mut low: u64, mut high: u64) {
        if self.len == 0 {
            self.base = low >> self.shift;
        }
        if self.residue(low).is_ok() && self.residue(high).is_ok() {
            return;
        }
        if let Some(last) = self.len().checked_sub(1) {
            low = low.min(self.known_key(0));
            high = high.max(self.known_key(last));
        }
        let shift = self.shift.max(needed_shift(low, high));
        self.rebase(shift, low >> shift);
    }

    /// Reads the keys of all entries if too few bits of them are known.
    fn refine(&mut self, records: &Records) {
        let len = self.len();
        if self.shift == 0
            || len == 0
            || (self.residues[len - 1] - self.residues[0]) >> PRECISE != 0
        {
            return;
        }
        let ids = &self.ids[..len];
        ids.iter().for_each(|id| records.prefetch(*id));
        let (low, high) = (records.key(ids[0]), records.key(ids[len - 1]));
        self.shift = needed_shift(low, high);
        self.base = low >> self.shift;
        for (residue, id) in self.residues.iter_mut().zip(ids) {
            *residue = ((records.key(*id) >> self.shift) - self.base) as u32;
        }
    }

    fn set_key(&mut self, at: usize, key: u64) {
        self.cover(key, key);
        self.residues[at] = self.residue(key).expect("the key is covered");
    }

    fn insert(&mut self, at: usize, key: u64, id: u32) {
        self.cover(key, key);
        let residue = self.residue(key).expect("the key is covered");
        let len = self.len();
        insert_at(&mut self.residues, len, at, residue);
        insert_at(&mut self.ids, len, at, id);
        self.len += 1;
    }

    fn remove(&mut self, at: usize) {
        let len = self.len();
        remove_at(&mut self.residues, len, at);
        remove_at(&mut self.ids, len, at);
        self.len -= 1;
        self.residues[len - 1] = UNUSED_RESIDUE;
    }

    fn remove_some(&mut self, removed: Range<usize>) {
        let (len, left) = (self.len(), self.len() - removed.len());
        self.residues.copy_within(removed.end..len, removed.start);
        self.ids.copy_within(removed.end..len, removed.start);
        self.residues[left..len].fill(UNUSED_RESIDUE);
        self.len = left as u8;
    }

    /// Lets the leaf cover these entries of another one, and returns their residues here.
    fn adopt(&mut self, other: &Self, entries: Range<usize>) -> [u32; FANOUT] {
        if other.shift > self.shift {
            let base = if self.len == 0 {
                0
            } else {
                self.known_key(0) >> other.shift
            };
            self.rebase(other.shift, base);
        }
        let (low, high) = (entries.start, entries.end - 1);
        self.cover(other.known_key(low), other.known_key(high));
        let mut residues = [UNUSED_RESIDUE; FANOUT];
        for (residue, at) in residues.iter_mut().zip(entries) {
            *residue = ((other.known_key(at) >> self.shift) - self.base) as u32;
        }
        residues
    }

    fn move_right(&mut self, right: &mut Self, moved: usize, records: &Records) {
        let (len, others) = (self.len(), right.len());
        let mut residues = right.adopt(self, len - moved..len);
        move_right(&mut residues, moved, &mut right.residues, others, moved);
        move_right(&mut self.ids, len, &mut right.ids, others, moved);
        self.len -= moved as u8;
        right.len += moved as u8;
        self.residues[len - moved..len].fill(UNUSED_RESIDUE);
        self.refine(records);
        right.refine(records);
    }

    fn move_left(&mut self, right: &mut Self, moved: usize, records: &Records) {
        let (len, others) = (self.len(), right.len());
        let residues = self.adopt(right, 0..moved);
        self.residues[len..len + moved].copy_from_slice(&residues[..moved]);
        right.residues.copy_within(moved..others, 0);
        move_left(&mut self.ids, len, &mut right.ids, others, moved);
        self.len += moved as u8;
        right.len -= moved as u8;
        right.residues[others - moved..others].fill(UNUSED_RESIDUE);
        self.refine(records);
        right.refine(records);
    }
}

/// The least shift with which the keys from `low` to `high` have residues.
fn needed_shift(low: u64, high: u64) -> u8 {
    let bits = u64::BITS - (high - low).leading_zeros();
    let shift = bits.saturating_sub(u32::BITS);
    // The bits that are shifted out may add one to the difference.
    let is_too_low = (high >> shift) - (low >> shift) >= u64::from(UNUSED_RESIDUE);
    (shift + u32::from(is_too_low)) as u8
}

/// What an inner node keeps about a child.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Summary {
    key: u64,
    id: u32,
    count: u32,
}

impl Inner {
    fn new() -> Self {
        Self {
            keys: [UNUSED; FANOUT],
            ids: [0; FANOUT],
            children: [NONE; FANOUT],
            counts: [0; FANOUT],
            len: 0,
        }
    }

    fn len(&self) -> usize {
        self.len as usize
    }

    /// The child in which the entry wanted is, or its place.
    #[inline]
    fn child(&self, key: u64, order: impl Fn(u32) -> Ordering) -> usize {
        // The last child whose first entry is not above the one wanted.
        let is_not_above = |id| order(id).is_le();
        entries_below(&self.keys, &self.ids, key, is_not_above).saturating_sub(1)
    }

    /// The number of entries in the children before this one.
    #[inline]
    fn before(&self, index: usize) -> usize {
        self.counts[..index].iter().sum::<u32>() as usize
    }

    fn total(&self) -> u32 {
        self.counts[..self.len()].iter().sum()
    }

    fn set(&mut self, index: usize, summary: Summary) {
        self.keys[index] = summary.key;
        self.ids[index] = summary.id;
        self.counts[index] = summary.count;
    }

    fn insert(&mut self, at: usize, child: u32, summary: Summary) {
        let len = self.len();
        insert_at(&mut self.keys, len, at, summary.key);
        insert_at(&mut self.ids, len, at, summary.id);
        insert_at(&mut self.children, len, at, child);
        insert_at(&mut self.counts, len, at, summary.count);
        self.len += 1;
    }

    fn remove(&mut self, at: usize) {
        let len = self.len();
        remove_at(&mut self.keys, len, at);
        remove_at(&mut self.ids, len, at);
        remove_at(&mut self.children, len, at);
        remove_at(&mut self.counts, len, at);
        self.len -= 1;
        self.keys[len - 1] = UNUSED;
    }

    fn move_right(&mut self, right: &mut Self, moved: usize) {
        let (len, others) = (self.len(), right.len());
        move_right(&mut self.keys, len, &mut right.keys, others, moved);
        move_right(&mut self.ids, len, &mut right.ids, others, moved);
        move_right(&mut self.children, len, &mut right.children, others, moved);
        move_right(&mut self.counts, len, &mut right.counts, others, moved);
        self.len -= moved as u32;
        right.len += moved as u32;
        self.keys[len - moved..len].fill(UNUSED);
    }

    fn move_left(&mut self, right: &mut Self, moved: usize) {
        let (len, others) = (self.len(), right.len());
        move_left(&mut self.keys, len, &mut right.keys, others, moved);
        move_left(&mut self.ids, len, &mut right.ids, others, moved);
        move_left(&mut self.children, len, &mut right.children, others, moved);
        move_left(&mut self.counts, len, &mut right.counts, others, moved);
        self.len += moved as u32;
        right.len -= moved as u32;
        right.keys[others - moved..others].fill(UNUSED);
    }
}

/// An entry that is wanted.
#[derive(Clone, Copy, Debug)]
pub(super) struct TreeEntry<'a> {
    pub(super) key: u64,
    pub(super) member: &'a [u8],
    pub(super) id: u32,
}

impl<'a> TreeEntry<'a> {
    /// The entry of a record.
    pub(super) fn of(records: &'a Records, id: u32) -> Self {
        let (member, score) = records.item(id);
        let key = key(score);
        Self { key, member, id }
    }

    /// Orders records relative to this entry.
    #[inline]
    fn order(self, records: &Records) -> impl Fn(u32) -> Ordering {
        move |id| records.compare(id, (self.key, self.member))
    }
}

/// An inner node of each level, from the root, and the index of the child that was chosen.
type Steps = [(u32, u32); MAX_HEIGHT];

/// The way from the root to a place in a leaf.
#[derive(Clone, Copy, Debug)]
pub(super) struct Path {
    steps: Steps,
    leaf: u32,
    at: usize,
}

/// An entry's place, until the tree changes.
#[derive(Clone, Copy, Debug)]
pub(super) struct TreePosition {
    leaf: u32,
    at: u32,
}

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct Tree {
    leaves: Pages<Leaf>,
    inners: Pages<Inner>,
    /// Nodes that the current removal has freed.
    free_leaves: Array<u32>,
    free_inners: Array<u32>,
    /// A leaf if the height is 0; [`NONE`] until the first insertion.
    root: u32,
    /// Levels above the leaves.
    height: usize,
    len: usize,
}

impl Tree {
    pub(super) fn new(memory: &SetMemory) -> Self {
        Self {
            leaves: Pages::new(memory),
            inners: Pages::new(memory),
            free_leaves: Array::new_in(memory.clone()),
            free_inners: Array::new_in(memory.clone()),
            root: NONE,
            height: 0,
            len: 0,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn move_arrays(&mut self, mover: &mut Mover<'_>) {
        self.leaves.move_arrays(mover, |_, _| ());
        self.inners.move_arrays(mover, |_, _| ());
        mover.visit(&mut self.free_leaves);
        mover.visit(&mut self.free_inners);
    }

    pub(super) fn memory(&self) -> usize {
        let free = self.free_leaves.capacity() + self.free_inners.capacity();
        self.leaves.memory() + self.inners.memory() + free * size_of::<u32>()
    }

    /// Descends to the leaf of the entry with this key whose record `order` calls equal, or to the
    /// place where it would be. Calls `step` with the inner nodes on the way and the indices of
    /// the chosen children. The tree must have a root.
    #[inline]
    fn find_leaf(
        &self,
        key: u64,
        order: impl Fn(u32) -> Ordering,
        mut step: impl FnMut(u32, &Inner, usize),
    ) -> u32 {
        let mut node = self.root;
        for _ in 0..self.height {
            let inner = &self.inners[node];
            let index = inner.child(key, &order);
            step(node, inner, index);
            node = inner.children[index];
        }
        node
    }

    /// The number of entries below the wanted one, which `order` defines; it must be monotone, and
    /// agree with the order of the keys.
    pub(super) fn rank(&self, key: u64, order: impl Fn(u32) -> Ordering) -> usize {
        if self.len == 0 {
            return 0;
        }
        let mut rank = 0;
        let leaf = self.find_leaf(key, &order, |_, inner, index| rank += inner.before(index));
        rank + self.leaves[leaf].position(key, order)
    }

    /// Whether an entry exists.
    pub(super) fn contains(&self, entry: TreeEntry<'_>, records: &Records) -> bool {
        if self.len == 0 {
            return false;
        }
        let leaf = self.find_leaf(entry.key, entry.order(records), |_, _, _| ());
        let leaf = &self.leaves[leaf];
        leaf.ids[..leaf.len()].contains(&entry.id)
    }

    /// The rank of an entry, which must exist. Reads fewer records than [`rank`](Self::rank).
    #[inline]
    pub(super) fn rank_of(&self, entry: TreeEntry<'_>, records: &Records) -> usize {
        let mut rank = 0;
        let leaf = self.find_leaf(entry.key, entry.order(records), |_, inner, index| {
            rank += inner.before(index);
        });
        rank + self.leaves[leaf].position_of(entry.id)
    }

    /// The way to an entry, which must exist.
    #[inline]
    pub(super) fn path_to(&self, entry: TreeEntry<'_>, records: &Records) -> Path {
        let (steps, leaf) = self.steps(entry, records);
        let at = self.leaves[leaf].position_of(entry.id);
        Path { steps, leaf, at }
    }

    /// The way to the leaf of an entry, or of its place.
    #[inline]
    fn steps(&self, entry: TreeEntry<'_>, records: &Records) -> (Steps, u32) {
        let mut steps = [(NONE, 0); MAX_HEIGHT];
        let mut level = 0;
        let leaf = self.find_leaf(entry.key, entry.order(records), |node, _, index| {
            steps[level] = (node, index as u32);
            level += 1;
        });
        (steps, leaf)
    }

    /// The way to the entry of this rank, which must be below the number of entries.
    pub(super) fn path_to_rank(&self, mut rank: usize) -> Path {
        assert!(rank < self.len, "the rank is too high");
        let mut steps = [(NONE, 0); MAX_HEIGHT];
        let mut node = self.root;
        for step in &mut steps[..self.height] {
            let inner = &self.inners[node];
            let mut index = 0;
            while rank >= inner.counts[index] as usize {
                rank -= inner.counts[index] as usize;
                index += 1;
            }
            *step = (node, index as u32);
            node = inner.children[index];
        }
        Path {
            steps,
            leaf: node,
            at: rank,
        }
    }

    /// The place of the entry of this rank, which must be below the number of entries.
    pub(super) fn place(&self, rank: usize) -> TreePosition {
        let Path { leaf, at, .. } = self.path_to_rank(rank);
        TreePosition {
            leaf,
            at: at as u32,
        }
    }

    /// The id at a place.
    #[inline]
    pub(super) fn id(&self, place: TreePosition) -> u32 {
        self.leaves[place.leaf].ids[place.at as usize]
    }

    /// The place after this one.
    #[inline]
    pub(super) fn next(&self, place: TreePosition) -> Option<TreePosition> {
        let leaf = &self.leaves[place.leaf];
        let (leaf, at) = if place.at + 1 < u32::from(leaf.len) {
            (place.leaf, place.at + 1)
        } else {
            (leaf.next, 0)
        };
        (leaf != NONE).then_some(TreePosition { leaf, at })
    }

    /// The place before this one.
    #[inline]
    pub(super) fn previous(&self, place: TreePosition) -> Option<TreePosition> {
        if let Some(at) = place.at.checked_sub(1) {
            let leaf = place.leaf;
            return Some(TreePosition { leaf, at });
        }
        let leaf = self.leaves[place.leaf].previous;
        (leaf != NONE).then(|| TreePosition {
            leaf,
            at: u32::from(self.leaves[leaf].len) - 1,
        })
    }

    /// The ids of the entries of these ranks.
    pub(super) fn ids(&self, ranks: Range<usize>) -> impl Iterator<Item = u32> {
        let first = (!ranks.is_empty()).then(|| self.place(ranks.start));
        std::iter::successors(first, |&place| self.next(place))
            .take(ranks.len())
            .map(|place| self.id(place))
    }

    /// Changes the key of the entry at the end of the path to that of `entry`, if it keeps its
    /// place among its neighbours. Returns whether it does. It looks at neighbours in
    /// the same leaf only, so the answer may be no without need.
    pub(super) fn change_in_place(
        &mut self,
        path: &Path,
        entry: TreeEntry<'_>,
        records: &Records,
    ) -> bool {
        let leaf = &mut self.leaves[path.leaf];
        let order = |at: usize| leaf.order_at(at, entry.key, entry.order(records));
        // The first key of a leaf is also in inner nodes.
        let is_above = path.at > 0 && order(path.at - 1).is_lt();
        let next = path.at + 1;
        let is_below = if next < leaf.len() {
            order(next).is_gt()
        } else {
            leaf.next == NONE
        };
        if is_above && is_below {
            leaf.set_key(path.at, entry.key);
        }
        is_above && is_below
    }

    /// Gives an entry, which must exist, another id. Both ids have a record.
    pub(super) fn replace(&mut self, old: u32, new: u32, records: &Records) {
        let path = self.path_to(TreeEntry::of(records, old), records);
        self.leaves[path.leaf].ids[path.at] = new;
        // The first entry of a node is also in its parent.
        let mut is_first = path.at == 0;
        for &(node, index) in path.steps[..self.height].iter().rev() {
            if !is_first {
                break;
            }
            self.inners[node].ids[index as usize] = new;
            is_first = index == 0;
        }
    }

    /// Inserts an entry.
    pub(super) fn insert(&mut self, entry: TreeEntry<'_>, records: &Records) {
        if self.root == NONE {
            self.root = self.leaves.push(Leaf::new());
        }
        let TreeEntry { key, id, .. } = entry;
        let (steps, leaf) = self.steps(entry, records);
        let at = self.leaves[leaf].position(key, entry.order(records));
        let mut split = self.insert_into_leaf(leaf, at, (key, id), records);
        let is_last = split.is_some_and(|right| self.leaves[right].next == NONE);
        let mut is_first = at == 0;
        for level in (0..self.height).rev() {
            let (node, index) = (steps[level].0, steps[level].1 as usize);
            if let Some(right) = split {
                self.refresh(level, node, index, records);
                let summary = self.summary(level + 1, right, records);
                split = self.insert_child(node, index + 1, (right, summary), is_last);
            } else {
                let inner = &mut self.inners[node];
                inner.counts[index] += 1;
                if is_first {
                    (inner.keys[index], inner.ids[index]) = (key, id);
                }
            }
            is_first &= index == 0;
        }
        if let Some(right) = split {
            self.grow(right, records);
        }
        self.len += 1;
    }

    /// Puts a new root above the old one and its right neighbour.
    fn grow(&mut self, right: u32, records: &Records) {
        let mut root = Inner::new();
        root.insert(0, self.root, self.summary(0, self.root, records));
        root.insert(1, right, self.summary(0, right, records));
        self.root = self.inners.push(root);
        self.height += 1;
        assert!(self.height <= MAX_HEIGHT, "the tree is too high");
    }

    /// The first entry and the number of entries of a node of this level.
    fn summary(&self, level: usize, node: u32, records: &Records) -> Summary {
        let (key, id, count) = if level == self.height {
            let leaf = &self.leaves[node];
            (leaf.first_key(records), leaf.ids[0], u32::from(leaf.len))
        } else {
            let inner = &self.inners[node];
            (inner.keys[0], inner.ids[0], inner.total())
        };
        Summary { key, id, count }
    }

    /// Restores guarantee 1 for a child of `node`, which is an inner node of this level.
    fn refresh(&mut self, level: usize, node: u32, index: usize, records: &Records) {
        let summary = self.summary(level + 1, self.inners[node].children[index], records);
        self.inners[node].set(index, summary);
    }

    /// Returns the new right neighbour if the leaf was split.
    fn insert_into_leaf(
        &mut self,
        node: u32,
        at: usize,
        (key, id): (u64, u32),
        records: &Records,
    ) -> Option<u32> {
        let leaf = &mut self.leaves[node];
        if leaf.len() < FANOUT {
            leaf.insert(at, key, id);
            return None;
        }
        let is_at_the_end = at == FANOUT && leaf.next == NONE;
        let mut right = Leaf::new();
        if is_at_the_end {
            right.insert(0, key, id);
        } else {
            leaf.move_right(&mut right, FANOUT / 2, records);
            match at.checked_sub(leaf.len()) {
                Some(at) if at > 0 => right.insert(at, key, id),
                _ => leaf.insert(at, key, id),
            }
        }
        (right.previous, right.next) = (node, leaf.next);
        let after = leaf.next;
        let right = self.leaves.push(right);
        self.leaves[node].next = right;
        if after != NONE {
            self.leaves[after].previous = right;
        }
        Some(right)
    }

    /// Returns the new right neighbour if the node was split. `is_last` tells that the child is the
    /// last of its level.
    fn insert_child(
        &mut self,
        node: u32,
        at: usize,
        (child, summary): (u32, Summary),
        is_last: bool,
    ) -> Option<u32> {
        let inner = &mut self.inners[node];
        if inner.len() < FANOUT {
            inner.insert(at, child, summary);
            return None;
        }
        let mut right = Inner::new();
        if at == FANOUT && is_last {
            right.insert(0, child, summary);
        } else {
            inner.move_right(&mut right, FANOUT / 2);
            match at.checked_sub(inner.len()) {
                Some(at) if at > 0 => right.insert(at, child, summary),
                _ => inner.insert(at, child, summary),
            }
        }
        Some(self.inners.push(right))
    }

    /// Removes the entry at the end of the path, and returns its id.
    pub(super) fn remove(&mut self, path: &Path, records: &Records) -> u32 {
        let leaf = &mut self.leaves[path.leaf];
        let id = leaf.ids[path.at];
        leaf.remove(path.at);
        self.len -= 1;
        let mut is_first = path.at == 0;
        for level in (0..self.height).rev() {
            let (node, index) = (path.steps[level].0, path.steps[level].1 as usize);
            let child = self.inners[node].children[index];
            match self.node_len(level + 1, child) {
                0 => {
                    self.free(level + 1, child);
                    self.inners[node].remove(index);
                }
                len if len < LEAST && self.inners[node].len() > 1 => {
                    self.balance(level, node, index, records);
                }
                _ if is_first => self.refresh(level, node, index, records),
                _ => self.inners[node].counts[index] -= 1,
            }
            is_first &= index == 0;
        }
        while self.height > 0 && self.inners[self.root].len() == 1 {
            let child = self.inners[self.root].children[0];
            self.free_inners.push(self.root);
            self.root = child;
            self.height -= 1;
        }
        self.fill_holes(records);
        id
    }

    /// Guarantee 5: moves the last nodes to the places of those that were freed.
    fn fill_holes(&mut self, records: &Records) {
        self.free_inners.sort_unstable();
        while let Some(hole) = self.free_inners.pop() {
            let last = self.inners.len() as u32 - 1;
            if hole != last {
                let Inner { keys, ids, .. } = &self.inners[last];
                let (key, member, id) = (keys[0], records.member(ids[0]), ids[0]);
                self.rename(
                    TreeEntry { key, member, id },
                    last,
                    hole,
                    self.height,
                    records,
                );
                self.inners[hole] = self.inners[last].clone();
            }
            self.inners.pop();
        }
        while let Some(hole) = self.free_leaves.pop() {
            let last = self.leaves.len() as u32 - 1;
            if hole != last {
                let first = TreeEntry::of(records, self.leaves[last].ids[0]);
                self.rename(first, last, hole, self.height + 1, records);
            }
            self.move_last_leaf(hole);
        }
    }

    /// Lets the parent of a node name another place. The node has this first entry, and is above
    /// the level `below`.
    fn rename(
        &mut self,
        first: TreeEntry<'_>,
        old: u32,
        new: u32,
        below: usize,
        records: &Records,
    ) {
        let is_leaf = below > self.height;
        if self.root == old && is_leaf == (self.height == 0) {
            self.root = new;
            return;
        }
        let (steps, _) = self.steps(first, records);
        let parents = if is_leaf {
            &steps[self.height - 1..self.height]
        } else {
            &steps[..self.height - 1]
        };
        for &(node, index) in parents {
            let child = &mut self.inners[node].children[index as usize];
            if *child == old {
                *child = new;
                return;
            }
        }
        unreachable!("the node has a parent");
    }

    fn node_len(&self, level: usize, node: u32) -> usize {
        if level == self.height {
            self.leaves[node].len()
        } else {
            self.inners[node].len()
        }
    }

    /// Frees a node that has no entries any more.
    fn free(&mut self, level: usize, node: u32) {
        if level < self.height {
            self.free_inners.push(node);
            return;
        }
        let Leaf { previous, next, .. } = self.leaves[node];
        if previous != NONE {
            self.leaves[previous].next = next;
        }
        if next != NONE {
            self.leaves[next].previous = previous;
        }
        self.free_leaves.push(node);
    }

    /// Merges child `index` of `node` with a neighbour, or moves entries between the two.
    fn balance(&mut self, level: usize, node: u32, index: usize, records: &Records) {
        let inner = &self.inners[node];
        let left = if index + 1 < inner.len() {
            index
        } else {
            index - 1
        };
        let (a, b) = (inner.children[left], inner.children[left + 1]);
        let (len, others) = (self.node_len(level + 1, a), self.node_len(level + 1, b));
        let wanted = shared(len, others);
        if level + 1 == self.height {
            let (a, b) = self.leaves.pair(a, b);
            if wanted > len {
                a.move_left(b, wanted - len, records);
            } else {
                a.move_right(b, len - wanted, records);
            }
        } else {
            let (a, b) = self.inners.pair(a, b);
            if wanted > len {
                a.move_left(b, wanted - len);
            } else {
                a.move_right(b, len - wanted);
            }
        }
        self.refresh(level, node, left, records);
        if self.node_len(level + 1, b) == 0 {
            self.free(level + 1, b);
            self.inners[node].remove(left + 1);
        } else {
            self.refresh(level, node, left + 1, records);
        }
    }

    /// Removes the entries of these ranks, and adds their ids to `cut`. Takes time in proportion to
    /// the number of leaves: whole ones are unlinked, and the inner nodes are built anew.
    pub(super) fn cut(&mut self, ranks: Range<usize>, cut: &mut Cut, records: &Records) {
        if ranks.is_empty() {
            return;
        }
        let TreePosition { leaf, at } = self.place(ranks.start);
        let (mut node, mut at, mut left) = (leaf, at as usize, ranks.len());
        let before = self.leaves[node].previous;
        // The first leaf that is left, and leaves with few entries.
        let mut first = if before == NONE {
            NONE
        } else {
            self.place(0).leaf
        };
        let mut partial = [NONE; 2];
        while left > 0 {
            let leaf = &mut self.leaves[node];
            let (len, next) = (leaf.len(), leaf.next);
            let end = len.min(at + left);
            cut.push(&leaf.ids[at..end]);
            left -= end - at;
            if end - at == len {
                self.free(self.height, node);
            } else {
                leaf.remove_some(at..end);
                partial[usize::from(at == 0)] = node;
                if first == NONE {
                    first = node;
                }
            }
            (node, at) = (next, 0);
        }
        if first == NONE {
            first = node;
        }
        self.len -= ranks.len();
        for node in partial {
            if node != NONE {
                self.fill_leaf(node, records);
            }
        }
        let none = Array::new_in(records.source().clone());
        let mut holes = std::mem::replace(&mut self.free_leaves, none);
        holes.sort_unstable();
        while let Some(hole) = holes.pop() {
            if self.move_last_leaf(hole) == first {
                first = hole;
            }
        }
        self.build_inners(first, records);
    }

    /// Restores guarantee 3 for a leaf, with entries of those behind it. The inner nodes do not
    /// know of it.
    fn fill_leaf(&mut self, node: u32, records: &Records) {
        loop {
            let (len, right) = (self.leaves[node].len(), self.leaves[node].next);
            if len == 0 || len >= LEAST || right == NONE {
                return;
            }
            let moved = shared(len, self.leaves[right].len()) - len;
            let (leaf, next) = self.leaves.pair(node, right);
            leaf.move_left(next, moved, records);
            if next.len() == 0 {
                self.free(self.height, right);
            }
        }
    }

    /// Removes the last leaf; if it is not that of this number, moves it there. Returns its old
    /// number.
    fn move_last_leaf(&mut self, hole: u32) -> u32 {
        let last = self.leaves.len() as u32 - 1;
        if hole != last {
            self.leaves[hole] = self.leaves[last].clone();
            let Leaf { previous, next, .. } = self.leaves[hole];
            if previous != NONE {
                self.leaves[previous].next = hole;
            }
            if next != NONE {
                self.leaves[next].previous = hole;
            }
        }
        self.leaves.pop();
        last
    }

    /// Builds the levels above the leaves, of which this is the first.
    fn build_inners(&mut self, first: u32, records: &Records) {
        self.inners = Pages::new(records.source());
        self.height = 0;
        let next = |&leaf: &u32| Some(self.leaves[leaf].next).filter(|next| *next != NONE);
        let mut level: Vec<u32> = std::iter::successors(Some(first), next).collect();
        while level.len() > 1 {
            // The children's level is that of the leaves, or their parents', as long as no level is
            // above.
            let above = level.chunks(BUILT);
            level = above
                .map(|children| self.add_parent(children, records))
                .collect();
            self.height += 1;
        }
        self.root = level[0];
    }

    /// Adds an inner node above nodes of the highest level.
    fn add_parent(&mut self, children: &[u32], records: &Records) -> u32 {
        let mut inner = Inner::new();
        for (index, &child) in children.iter().enumerate() {
            inner.insert(index, child, self.summary(0, child, records));
        }
        self.inners.push(inner)
    }

    /// Panics if a guarantee is broken, or the entries are not sorted.
    pub(super) fn assert_valid(&self, records: &Records) {
        let (mut leaves, mut inners) = (Vec::new(), 0);
        if self.root != NONE {
            let total = self.assert_node(0, self.root, true, (&mut leaves, &mut inners), records);
            assert_eq!(total as usize, self.len, "the number of entries");
        }
        assert_eq!(leaves.len(), self.leaves.len(), "a leaf is lost");
        assert_eq!(inners, self.inners.len(), "an inner node is lost");
        assert!(self.free_leaves.is_empty() && self.free_inners.is_empty());
        let mut previous = NONE;
        for (index, &leaf) in leaves.iter().enumerate() {
            assert_eq!(self.leaves[leaf].previous, previous);
            let next = leaves.get(index + 1).copied().unwrap_or(NONE);
            assert_eq!(self.leaves[leaf].next, next);
            previous = leaf;
        }
        let entry = |id| (records.key(id), records.member(id));
        let entries: Vec<_> = self.ids(0..self.len).map(entry).collect();
        assert_eq!(entries.len(), self.len, "the leaves' list");
        assert!(
            entries.windows(2).all(|pair| pair[0] < pair[1]),
            "the order of the entries"
        );
    }

    /// Frees a page of nodes, and returns whether there was one. The tree is of no use any more.
    pub(super) fn drop_page(&mut self) -> bool {
        self.leaves.drop_page() || self.inners.drop_page()
    }

    /// Checks a subtree, and returns its number of entries. `is_last` tells that its root is the
    /// last node of its level.
    fn assert_node(
        &self,
        level: usize,
        node: u32,
        is_last: bool,
        (leaves, inners): (&mut Vec<u32>, &mut usize),
        records: &Records,
    ) -> u32 {
        let len = self.node_len(level, node);
        assert!(len <= FANOUT && (len > 0 || self.len == 0), "an empty node");
        assert!(is_last || len >= LEAST, "a node of {len} entries");
        if level == self.height {
            let leaf = &self.leaves[node];
            let unused = &leaf.residues[len..];
            assert!(unused.iter().all(|residue| *residue == UNUSED_RESIDUE));
            for (residue, id) in leaf.residues[..len].iter().zip(leaf.ids) {
                assert_eq!(leaf.residue(records.key(id)), Ok(*residue));
            }
            leaves.push(node);
            return len as u32;
        }
        *inners += 1;
        assert!(level > 0 || len > 1, "a root with one child");
        let inner = &self.inners[node];
        assert!(inner.keys[len..].iter().all(|key| *key == UNUSED));
        for (index, &child) in inner.children[..len].iter().enumerate() {
            let (key, id) = (inner.keys[index], inner.ids[index]);
            assert_eq!(key, records.key(id), "a key is not the score's");
            let is_last = is_last && index + 1 == len;
            let count = self.assert_node(level + 1, child, is_last, (leaves, inners), records);
            let expected = Summary { key, id, count };
            assert_eq!(self.summary(level + 1, child, records), expected);
            assert_eq!(inner.counts[index], count);
        }
        inner.total()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Scores of all magnitudes in clusters, so that leaves have outliers, equal residues of keys
    /// that differ, and equal keys.
    fn score() -> impl Strategy<Value = f64> {
        prop_oneof![
            3 => (0..40_i32).prop_map(f64::from),
            3 => (0..40_u32).prop_map(|step| 1.0 + f64::from(step) * f64::EPSILON),
            3 => (0..40_u64).prop_map(|step| 1e9 + step as f64 * 1e-5),
            1 => prop_oneof![Just(f64::INFINITY), Just(f64::NEG_INFINITY), Just(-0.0), Just(f64::MAX)],
            2 => any::<f64>().prop_filter("no score is NaN", |score| !score.is_nan()),
        ]
    }

    #[derive(Clone, Debug)]
    enum Step {
        Insert(u8, f64),
        Remove(usize),
        Change(usize, f64),
        Replace(usize),
        Cut(usize, usize),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let phase = |inserts: u32, removes: u32| {
            let step = prop_oneof![
                inserts => (any::<u8>(), score()).prop_map(|(member, score)| Step::Insert(member, score)),
                removes => any::<usize>().prop_map(Step::Remove),
                4 => (any::<usize>(), score()).prop_map(|(rank, score)| Step::Change(rank, score)),
                2 => any::<usize>().prop_map(Step::Replace),
                1 => (any::<usize>(), 1..60_usize).prop_map(|(rank, len)| Step::Cut(rank, len)),
            ];
            prop::collection::vec(step, 0..200)
        };
        (phase(20, 2), phase(2, 20), phase(8, 8)).prop_map(|(a, b, c)| [a, b, c].concat())
    }

    /// A tree beside a sorted vector of keys, members and ids.
    struct Pair {
        records: Records,
        tree: Tree,
        oracle: Vec<(u64, Vec<u8>, u32)>,
    }

    impl Pair {
        fn insert(&mut self, member: Vec<u8>, score: f64) {
            if self.oracle.iter().any(|(_, other, _)| *other == member) {
                return;
            }
            let id = self.records.insert(&member, score).expect("room");
            self.tree
                .insert(TreeEntry::of(&self.records, id), &self.records);
            self.oracle.push((key(score), member, id));
            self.oracle.sort();
        }

        fn remove(&mut self, rank: usize) {
            let (_, _, id) = self.oracle.remove(rank);
            let entry = TreeEntry::of(&self.records, id);
            let path = self.tree.path_to(entry, &self.records);
            assert_eq!(self.tree.remove(&path, &self.records), id);
            self.records.remove(id);
        }

        fn change(&mut self, rank: usize, score: f64) {
            let (_, member, id) = self.oracle.remove(rank);
            let old = TreeEntry::of(&self.records, id);
            let path = self.tree.path_to(old, &self.records);
            let new = TreeEntry {
                key: key(score),
                ..old
            };
            let keeps_place = self.tree.change_in_place(&path, new, &self.records);
            if !keeps_place {
                self.tree.remove(&path, &self.records);
            }
            self.records.set_score(id, score);
            if !keeps_place {
                self.tree
                    .insert(TreeEntry::of(&self.records, id), &self.records);
            }
            self.oracle.push((key(score), member, id));
            self.oracle.sort();
        }

        fn replace(&mut self, rank: usize) {
            let (_, member, old) = &mut self.oracle[rank];
            let score = self.records.score(*old);
            let new = self.records.insert(member, score).expect("room");
            self.tree.replace(*old, new, &self.records);
            self.records.remove(std::mem::replace(old, new));
        }

        fn cut(&mut self, rank: usize, len: usize) {
            let ranks = rank..self.oracle.len().min(rank + len);
            // A tree is not cut as a whole.
            if ranks.len() == self.oracle.len() {
                return;
            }
            let mut cut = Cut::new(&SetMemory::default());
            self.tree.cut(ranks.clone(), &mut cut, &self.records);
            assert_eq!(cut.len(), ranks.len());
            let removed: Vec<u32> = self.oracle.drain(ranks).map(|(_, _, id)| id).collect();
            assert!(cut.iter().eq(removed.iter().copied()));
            let popped = std::iter::from_fn(|| cut.pop());
            assert!(popped.eq(removed.iter().rev().copied()));
            assert_eq!((cut.len(), cut.memory()), (0, 0));
            for id in removed {
                let entry = TreeEntry::of(&self.records, id);
                assert!(!self.tree.contains(entry, &self.records));
                self.records.remove(id);
            }
        }

        fn assert_equal(&self) {
            self.tree.assert_valid(&self.records);
            let ids = self.oracle.iter().map(|(_, _, id)| *id);
            assert!(self.tree.ids(0..self.tree.len()).eq(ids));
            for (rank, (key, member, id)) in self.oracle.iter().enumerate() {
                let (key, id) = (*key, *id);
                let entry = TreeEntry { key, member, id };
                assert!(self.tree.contains(entry, &self.records));
                assert_eq!(self.tree.rank_of(entry, &self.records), rank);
                assert_eq!(self.tree.rank(key, entry.order(&self.records)), rank);
                assert_eq!(self.tree.id(self.tree.place(rank)), id);
                let below = self.oracle.iter().filter(|(other, ..)| *other < key);
                let by_key = |id| self.records.key(id).cmp(&key).then(Ordering::Greater);
                assert_eq!(self.tree.rank(key, by_key), below.count());
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(96))]

        /// Guarantees 1 to 3 and 5 beside a sorted vector.
        #[test]
        fn entries_keep_their_order(steps in steps()) {
            let (records, tree) = (Records::new(&SetMemory::default()), Tree::new(&SetMemory::default()));
            let mut pair = Pair { records, tree, oracle: Vec::new() };
            for (number, step) in steps.into_iter().enumerate() {
                let rank = |rank: usize| rank.checked_rem(pair.oracle.len());
                match step {
                    Step::Insert(member, score) => pair.insert(vec![b'm', member], score),
                    Step::Remove(at) => if let Some(at) = rank(at) { pair.remove(at) },
                    Step::Change(at, score) => if let Some(at) = rank(at) { pair.change(at, score) },
                    Step::Replace(at) => if let Some(at) = rank(at) { pair.replace(at) },
                    Step::Cut(at, len) => if let Some(at) = rank(at) { pair.cut(at, len) },
                }
                if number % 16 == 0 {
                    pair.assert_equal();
                }
            }
            pair.assert_equal();
        }

        /// A leaf has a residue for any keys, in their order.
        #[test]
        fn a_shift_is_the_least_that_fits(low in any::<u64>(), high in any::<u64>()) {
            let (low, high) = (low.min(high), low.max(high));
            let fits = |shift: u8| (high >> shift) - (low >> shift) < u64::from(UNUSED_RESIDUE);
            let shift = needed_shift(low, high);
            prop_assert!(fits(shift));
            prop_assert!(shift == 0 || !fits(shift - 1));
        }
    }
}
