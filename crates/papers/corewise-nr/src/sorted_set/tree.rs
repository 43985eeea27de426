//! A B+ tree over the ids of the members, in the order of scores and members, with the number of
//! members in each subtree.
//!
//! ```text
//! Inner: | keys [u64; 64] | ids [u32; 64] | children [u32; 64] | counts [u32; 64] | len |
//! Leaf:  | keys [u64; 64] | ids [u32; 64] | len | previous | next |
//! ```
//!
//! An *entry* is a key (see [`score`](super::score)) and an id. Entries are sorted by key, then by
//! the bytes of the member. The tree does not know members: callers pass a closure that compares
//! the member of an id with the one wanted. It is called only for equal keys.
//!
//! # Guarantees
//!
//! 1. Child `i` of an inner node has its first entry in `keys[i]` and `ids[i]`, and its number of
//!    entries in `counts[i]`. So no node names an id that was removed.
//! 2. All leaves have the same depth, and no node is empty, except for a root without members.
//! 3. Each node has at least [`LEAST`] entries or children, except for the last node of a level,
//!    because a split at the end of a level leaves the left node full: ascending insertions fill
//!    the nodes.
//! 4. Every operation on one entry visits `O(log n)` nodes.

use std::cmp::Ordering;
use std::ops::Range;

use super::items::grow_by_an_eighth;

/// Entries of a leaf, and children of an inner node. Small in a stress build, so that each test
/// splits and merges nodes.
pub(super) const FANOUT: usize = if cfg!(corewise_stress) { 4 } else { 64 };
/// A node with fewer entries after a removal is merged, or gets entries of its neighbour.
const LEAST: usize = FANOUT / 4;
/// The most entries of a node that was just merged: room for insertions before the next split.
const MERGED: usize = FANOUT / 4 * 3;
/// Entries of the nodes of a tree that is built at once.
const BUILT: usize = FANOUT / 8 * 7 + FANOUT % 8 / 2;
/// Levels above the leaves. A tree grows when its root has `FANOUT` children; by guarantee 3 a tree
/// of 2^32 entries has seven levels above its leaves.
const MAX_HEIGHT: usize = if cfg!(corewise_stress) { 32 } else { 8 };

/// Keys in a cache line.
const LINE: usize = if cfg!(corewise_stress) { 2 } else { 8 };

/// No node.
const NONE: u32 = u32::MAX;

/// Stands in the unused places of `keys`; no score but a NaN has this key.
const UNUSED: u64 = u64::MAX;

#[derive(Clone, Debug)]
struct Leaf {
    keys: [u64; FANOUT],
    ids: [u32; FANOUT],
    len: u32,
    previous: u32,
    next: u32,
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
    assert!(size_of::<Leaf>() == (12 * FANOUT + 12).next_multiple_of(align_of::<u64>()));
    assert!(size_of::<Inner>() == (20 * FANOUT + 4).next_multiple_of(align_of::<u64>()));
    assert!(FANOUT.is_multiple_of(LINE));
    assert!(LEAST >= 1 && MERGED < FANOUT && BUILT <= FANOUT && BUILT > LEAST);
};

/// Inserts into the first `len` elements of an array that has room.
fn insert_at<T: Copy>(array: &mut [T], len: usize, at: usize, value: T) {
    array.copy_within(at..len, at + 1);
    array[at] = value;
}

/// Removes from the first `len` elements of an array.
fn remove_at<T: Copy>(array: &mut [T], len: usize, at: usize) {
    array.copy_within(at + 1..len, at);
}

/// Marks the keys from `len` on as unused, up to the former `end`.
fn clear_keys(keys: &mut [u64; FANOUT], len: u32, end: usize) {
    keys[len as usize..end].fill(UNUSED);
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

/// The number of keys that are lower than `key`. Unused keys are [`UNUSED`].
///
/// Looks at the first key of each cache line, then at one line. These loads do not depend on each
/// other, so the lines of a node that is not cached arrive together.
#[inline]
fn keys_below(keys: &[u64; FANOUT], key: u64) -> usize {
    let is_below = |found: &u64| usize::from(*found < key);
    let lines: usize = keys.iter().step_by(LINE).skip(1).map(is_below).sum();
    let start = lines * LINE;
    start
        + keys[start..start + LINE]
            .iter()
            .map(is_below)
            .sum::<usize>()
}

/// The number of entries that are lower than the one wanted, and among those with an equal key
/// have a member for which `is_before`.
#[inline]
fn entries_below(
    keys: &[u64; FANOUT],
    ids: &[u32; FANOUT],
    key: u64,
    is_before: impl Fn(u32) -> bool,
) -> usize {
    let start = keys_below(keys, key);
    if start == FANOUT || keys[start] != key {
        return start;
    }
    // A binary search with branches: a comparison of members waits for memory, and a predicted
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
            keys: [UNUSED; FANOUT],
            ids: [0; FANOUT],
            len: 0,
            previous: NONE,
            next: NONE,
        }
    }

    fn len(&self) -> usize {
        self.len as usize
    }

    /// The number of entries below the one wanted.
    #[inline]
    fn position(&self, key: u64, compare: impl Fn(u32) -> Ordering) -> usize {
        entries_below(&self.keys, &self.ids, key, |id| compare(id).is_lt())
    }

    /// The index of an entry, which must be in this leaf. Unlike a binary search it reads no
    /// members of entries with equal keys.
    #[inline]
    fn position_of(&self, id: u32) -> usize {
        let ids = &self.ids[..self.len()];
        let found = ids.iter().position(|other| *other == id);
        found.expect("the entry is in this leaf")
    }

    fn insert(&mut self, at: usize, (key, id): (u64, u32)) {
        let len = self.len();
        insert_at(&mut self.keys, len, at, key);
        insert_at(&mut self.ids, len, at, id);
        self.len += 1;
    }

    fn remove(&mut self, at: usize) {
        let len = self.len();
        remove_at(&mut self.keys, len, at);
        remove_at(&mut self.ids, len, at);
        self.len -= 1;
        clear_keys(&mut self.keys, self.len, len);
    }

    fn move_right(&mut self, right: &mut Self, moved: usize) {
        let (len, others) = (self.len(), right.len());
        move_right(&mut self.keys, len, &mut right.keys, others, moved);
        move_right(&mut self.ids, len, &mut right.ids, others, moved);
        self.len -= moved as u32;
        right.len += moved as u32;
        clear_keys(&mut self.keys, self.len, len);
    }

    fn move_left(&mut self, right: &mut Self, moved: usize) {
        let (len, others) = (self.len(), right.len());
        move_left(&mut self.keys, len, &mut right.keys, others, moved);
        move_left(&mut self.ids, len, &mut right.ids, others, moved);
        self.len += moved as u32;
        right.len -= moved as u32;
        clear_keys(&mut right.keys, right.len, others);
    }
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
    fn child(&self, key: u64, compare: impl Fn(u32) -> Ordering) -> usize {
        // The last child whose first entry is not above the one wanted.
        let is_not_above = |id| compare(id).is_le();
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
        clear_keys(&mut self.keys, self.len, len);
    }

    fn move_right(&mut self, right: &mut Self, moved: usize) {
        let (len, others) = (self.len(), right.len());
        move_right(&mut self.keys, len, &mut right.keys, others, moved);
        move_right(&mut self.ids, len, &mut right.ids, others, moved);
        move_right(&mut self.children, len, &mut right.children, others, moved);
        move_right(&mut self.counts, len, &mut right.counts, others, moved);
        self.len -= moved as u32;
        right.len += moved as u32;
        clear_keys(&mut self.keys, self.len, len);
    }

    fn move_left(&mut self, right: &mut Self, moved: usize) {
        let (len, others) = (self.len(), right.len());
        move_left(&mut self.keys, len, &mut right.keys, others, moved);
        move_left(&mut self.ids, len, &mut right.ids, others, moved);
        move_left(&mut self.children, len, &mut right.children, others, moved);
        move_left(&mut self.counts, len, &mut right.counts, others, moved);
        self.len += moved as u32;
        right.len -= moved as u32;
        clear_keys(&mut right.keys, right.len, others);
    }
}

/// Nodes of one kind, and the indices of those that are not in use.
#[derive(Clone, Debug)]
struct Nodes<T> {
    nodes: Vec<T>,
    free: Vec<u32>,
}

impl<T> Nodes<T> {
    const fn new() -> Self {
        Self {
            nodes: Vec::new(),
            free: Vec::new(),
        }
    }

    fn add(&mut self, node: T) -> u32 {
        if let Some(index) = self.free.pop() {
            self.nodes[index as usize] = node;
            return index;
        }
        grow_by_an_eighth(&mut self.nodes);
        self.nodes.push(node);
        (self.nodes.len() - 1) as u32
    }

    fn pair(&mut self, left: u32, right: u32) -> (&mut T, &mut T) {
        let pair = [left as usize, right as usize];
        let [left, right] = self
            .nodes
            .get_disjoint_mut(pair)
            .expect("two nodes that exist");
        (left, right)
    }

    fn bytes(&self) -> usize {
        self.nodes.capacity() * size_of::<T>() + self.free.capacity() * size_of::<u32>()
    }
}

impl<T> std::ops::Index<u32> for Nodes<T> {
    type Output = T;
    #[inline(always)]
    fn index(&self, index: u32) -> &T {
        &self.nodes[index as usize]
    }
}

impl<T> std::ops::IndexMut<u32> for Nodes<T> {
    #[inline(always)]
    fn index_mut(&mut self, index: u32) -> &mut T {
        &mut self.nodes[index as usize]
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
    leaves: Nodes<Leaf>,
    inners: Nodes<Inner>,
    /// A leaf if the height is 0; [`NONE`] until the first insertion.
    root: u32,
    /// Levels above the leaves.
    height: usize,
    len: usize,
}

impl Tree {
    pub(super) const fn new() -> Self {
        Self {
            leaves: Nodes::new(),
            inners: Nodes::new(),
            root: NONE,
            height: 0,
            len: 0,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn bytes(&self) -> usize {
        self.leaves.bytes() + self.inners.bytes()
    }

    /// Descends to the leaf of the entry with this key whose member `compare` calls equal, or to
    /// the place where it would be. Calls `step` with the inner nodes on the way and the indices of
    /// the chosen children. The tree must have a root.
    #[inline]
    fn find_leaf(
        &self,
        key: u64,
        compare: impl Fn(u32) -> Ordering,
        mut step: impl FnMut(u32, &Inner, usize),
    ) -> u32 {
        let mut node = self.root;
        for _ in 0..self.height {
            let inner = &self.inners[node];
            let index = inner.child(key, &compare);
            step(node, inner, index);
            node = inner.children[index];
        }
        node
    }

    /// The number of entries below the wanted one; `compare` must be monotone along the entries
    /// with this key.
    pub(super) fn rank(&self, key: u64, compare: impl Fn(u32) -> Ordering) -> usize {
        if self.len == 0 {
            return 0;
        }
        let mut rank = 0;
        let leaf = self.find_leaf(key, &compare, |_, inner, index| rank += inner.before(index));
        rank + self.leaves[leaf].position(key, compare)
    }

    /// The rank of an entry, which must exist. Compares fewer members than [`rank`](Self::rank).
    #[inline]
    pub(super) fn rank_of(
        &self,
        (key, id): (u64, u32),
        compare: impl Fn(u32) -> Ordering,
    ) -> usize {
        let mut rank = 0;
        let leaf = self.find_leaf(key, compare, |_, inner, index| rank += inner.before(index));
        rank + self.leaves[leaf].position_of(id)
    }

    /// The way to the place of an entry that does not exist yet.
    fn path_to_place(&self, key: u64, compare: impl Fn(u32) -> Ordering) -> Path {
        let (steps, leaf) = self.steps(key, &compare);
        let at = self.leaves[leaf].position(key, compare);
        Path { steps, leaf, at }
    }

    /// The way to an entry, which must exist.
    #[inline]
    pub(super) fn path_to(&self, (key, id): (u64, u32), compare: impl Fn(u32) -> Ordering) -> Path {
        let (steps, leaf) = self.steps(key, compare);
        let at = self.leaves[leaf].position_of(id);
        Path { steps, leaf, at }
    }

    #[inline]
    fn steps(&self, key: u64, compare: impl Fn(u32) -> Ordering) -> (Steps, u32) {
        let mut steps = [(NONE, 0); MAX_HEIGHT];
        let mut level = 0;
        let leaf = self.find_leaf(key, compare, |node, _, index| {
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
        let (leaf, at) = if place.at + 1 < leaf.len {
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
            at: self.leaves[leaf].len - 1,
        })
    }

    /// All entries in order.
    pub(super) fn entries(&self) -> impl Iterator<Item = (u64, u32)> {
        let first = (self.len > 0).then(|| self.place(0));
        std::iter::successors(first, |&place| self.next(place)).map(|place| {
            let leaf = &self.leaves[place.leaf];
            (leaf.keys[place.at as usize], leaf.ids[place.at as usize])
        })
    }

    /// The ids of the entries of these ranks.
    pub(super) fn ids(&self, ranks: Range<usize>) -> impl Iterator<Item = u32> {
        let first = (!ranks.is_empty()).then(|| self.place(ranks.start));
        std::iter::successors(first, |&place| self.next(place))
            .take(ranks.len())
            .map(|place| self.id(place))
    }

    /// Changes the key of the entry at the end of the path, if the entry keeps its place among its
    /// neighbours; `compare` compares members with that of the entry. Returns whether it does. It
    /// looks at neighbours in the same leaf only, so the answer may be no without need.
    pub(super) fn change_in_place(
        &mut self,
        path: &Path,
        key: u64,
        compare: impl Fn(u32) -> Ordering,
    ) -> bool {
        let leaf = &mut self.leaves[path.leaf];
        let order = |at: usize| leaf.keys[at].cmp(&key).then_with(|| compare(leaf.ids[at]));
        // The first key of a leaf is also in inner nodes.
        let is_above = path.at > 0 && order(path.at - 1).is_lt();
        let next = path.at + 1;
        let is_below = if next < leaf.len() {
            order(next).is_gt()
        } else {
            leaf.next == NONE
        };
        if is_above && is_below {
            leaf.keys[path.at] = key;
        }
        is_above && is_below
    }

    /// Inserts an entry; `compare` compares members with that of the entry.
    pub(super) fn insert(&mut self, key: u64, id: u32, compare: impl Fn(u32) -> Ordering) {
        if self.root == NONE {
            self.root = self.leaves.add(Leaf::new());
        }
        let path = self.path_to_place(key, compare);
        let mut split = self.insert_into_leaf(path.leaf, path.at, (key, id));
        let is_last = split.is_some_and(|right| self.leaves[right].next == NONE);
        for level in (0..self.height).rev() {
            let (node, index) = (path.steps[level].0, path.steps[level].1 as usize);
            self.refresh(level, node, index);
            if let Some(right) = split {
                let summary = self.summary(level + 1, right);
                split = self.insert_child(node, index + 1, (right, summary), is_last);
            }
        }
        if let Some(right) = split {
            self.grow(right);
        }
        self.len += 1;
    }

    /// Puts a new root above the old one and its right neighbour.
    fn grow(&mut self, right: u32) {
        let mut root = Inner::new();
        root.insert(0, self.root, self.summary(0, self.root));
        root.insert(1, right, self.summary(0, right));
        self.root = self.inners.add(root);
        self.height += 1;
        assert!(self.height <= MAX_HEIGHT, "the tree is too high");
    }

    /// The first entry and the number of entries of a node of this level.
    fn summary(&self, level: usize, node: u32) -> Summary {
        let (key, id, count) = if level == self.height {
            let leaf = &self.leaves[node];
            (leaf.keys[0], leaf.ids[0], leaf.len)
        } else {
            let inner = &self.inners[node];
            (inner.keys[0], inner.ids[0], inner.total())
        };
        Summary { key, id, count }
    }

    /// Restores guarantee 1 for a child of `node`, which is an inner node of this level.
    fn refresh(&mut self, level: usize, node: u32, index: usize) {
        let summary = self.summary(level + 1, self.inners[node].children[index]);
        self.inners[node].set(index, summary);
    }

    /// Returns the new right neighbour if the leaf was split.
    fn insert_into_leaf(&mut self, node: u32, at: usize, entry: (u64, u32)) -> Option<u32> {
        let leaf = &mut self.leaves[node];
        if leaf.len() < FANOUT {
            leaf.insert(at, entry);
            return None;
        }
        let is_at_the_end = at == FANOUT && leaf.next == NONE;
        let mut right = Leaf::new();
        if is_at_the_end {
            right.insert(0, entry);
        } else {
            leaf.move_right(&mut right, FANOUT / 2);
            match at.checked_sub(leaf.len()) {
                Some(at) if at > 0 => right.insert(at, entry),
                _ => leaf.insert(at, entry),
            }
        }
        (right.previous, right.next) = (node, leaf.next);
        let after = leaf.next;
        let right = self.leaves.add(right);
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
        Some(self.inners.add(right))
    }

    /// Removes the entry at the end of the path, and returns its id.
    pub(super) fn remove(&mut self, path: &Path) -> u32 {
        let leaf = &mut self.leaves[path.leaf];
        let id = leaf.ids[path.at];
        leaf.remove(path.at);
        self.len -= 1;
        for level in (0..self.height).rev() {
            let (node, index) = (path.steps[level].0, path.steps[level].1 as usize);
            let child = self.inners[node].children[index];
            match self.node_len(level + 1, child) {
                0 => {
                    self.free(level + 1, child);
                    self.inners[node].remove(index);
                }
                len if len < LEAST && self.inners[node].len() > 1 => {
                    self.balance(level, node, index);
                }
                _ => self.refresh(level, node, index),
            }
        }
        while self.height > 0 && self.inners[self.root].len() == 1 {
            let child = self.inners[self.root].children[0];
            self.inners.free.push(self.root);
            self.root = child;
            self.height -= 1;
        }
        id
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
            self.inners.free.push(node);
            return;
        }
        let Leaf { previous, next, .. } = self.leaves[node];
        if previous != NONE {
            self.leaves[previous].next = next;
        }
        if next != NONE {
            self.leaves[next].previous = previous;
        }
        self.leaves.free.push(node);
    }

    /// Merges child `index` of `node` with a neighbour, or moves entries between the two.
    fn balance(&mut self, level: usize, node: u32, index: usize) {
        let inner = &self.inners[node];
        let left = if index + 1 < inner.len() {
            index
        } else {
            index - 1
        };
        let (a, b) = (inner.children[left], inner.children[left + 1]);
        let (len, others) = (self.node_len(level + 1, a), self.node_len(level + 1, b));
        let wanted = if len + others <= MERGED {
            len + others
        } else {
            (len + others) / 2
        };
        if level + 1 == self.height {
            let (a, b) = self.leaves.pair(a, b);
            if wanted > len {
                a.move_left(b, wanted - len);
            } else {
                a.move_right(b, len - wanted);
            }
        } else {
            let (a, b) = self.inners.pair(a, b);
            if wanted > len {
                a.move_left(b, wanted - len);
            } else {
                a.move_right(b, len - wanted);
            }
        }
        self.refresh(level, node, left);
        if self.node_len(level + 1, b) == 0 {
            self.free(level + 1, b);
            self.inners[node].remove(left + 1);
        } else {
            self.refresh(level, node, left + 1);
        }
    }

    /// A tree of these entries, which must be sorted.
    pub(super) fn build(entries: impl Iterator<Item = (u64, u32)>) -> Self {
        let mut tree = Self::new();
        let mut level: Vec<u32> = Vec::new();
        let mut leaf = Leaf::new();
        for entry in entries {
            if leaf.len() == BUILT {
                level.push(tree.append(std::mem::replace(&mut leaf, Leaf::new())));
            }
            leaf.insert(leaf.len(), entry);
            tree.len += 1;
        }
        if leaf.len() > 0 {
            level.push(tree.append(leaf));
        }
        while level.len() > 1 {
            // The children's level is that of the leaves, or their parents', as long as no level is
            // above.
            let above: Vec<u32> = level
                .chunks(BUILT)
                .map(|children| tree.add_parent(children))
                .collect();
            level = above;
            tree.height += 1;
        }
        tree.root = level.first().copied().unwrap_or(NONE);
        tree
    }

    fn append(&mut self, mut leaf: Leaf) -> u32 {
        let last = self.leaves.nodes.len().checked_sub(1);
        leaf.previous = last.map_or(NONE, |last| last as u32);
        let new = self.leaves.add(leaf);
        if let Some(last) = last {
            self.leaves.nodes[last].next = new;
        }
        new
    }

    /// Adds an inner node above nodes of the highest level.
    fn add_parent(&mut self, children: &[u32]) -> u32 {
        let mut inner = Inner::new();
        for (index, &child) in children.iter().enumerate() {
            inner.insert(index, child, self.summary(0, child));
        }
        self.inners.add(inner)
    }

    /// Panics if a guarantee is broken, or the entries are not in the order of `is_less`.
    pub(super) fn assert_valid(&self, is_less: impl Fn((u64, u32), (u64, u32)) -> bool) {
        let (mut leaves, mut inners) = (Vec::new(), 0);
        if self.root != NONE {
            let total = self.assert_node(0, self.root, true, &mut leaves, &mut inners);
            assert_eq!(total as usize, self.len, "the number of entries");
        }
        let in_use = self.leaves.nodes.len() - self.leaves.free.len();
        assert_eq!(leaves.len(), in_use, "a leaf is lost");
        let in_use = self.inners.nodes.len() - self.inners.free.len();
        assert_eq!(inners, in_use, "an inner node is lost");
        let mut previous = NONE;
        for (index, &leaf) in leaves.iter().enumerate() {
            assert_eq!(self.leaves[leaf].previous, previous);
            let next = leaves.get(index + 1).copied().unwrap_or(NONE);
            assert_eq!(self.leaves[leaf].next, next);
            previous = leaf;
        }
        let entries: Vec<_> = self.entries().collect();
        assert_eq!(entries.len(), self.len, "the leaves' list");
        assert!(
            entries.windows(2).all(|pair| is_less(pair[0], pair[1])),
            "the order of the entries"
        );
    }

    /// Checks a subtree, and returns its number of entries. `is_last` tells that its root is the
    /// last node of its level.
    fn assert_node(
        &self,
        level: usize,
        node: u32,
        is_last: bool,
        leaves: &mut Vec<u32>,
        inners: &mut usize,
    ) -> u32 {
        let len = self.node_len(level, node);
        assert!(len <= FANOUT && (len > 0 || self.len == 0), "an empty node");
        assert!(is_last || len >= LEAST, "a node of {len} entries");
        if level == self.height {
            let leaf = &self.leaves[node];
            assert!(leaf.keys[len..].iter().all(|key| *key == UNUSED));
            leaves.push(node);
            return len as u32;
        }
        *inners += 1;
        assert!(level > 0 || len > 1, "a root with one child");
        let inner = &self.inners[node];
        assert!(inner.keys[len..].iter().all(|key| *key == UNUSED));
        for (index, &child) in inner.children[..len].iter().enumerate() {
            let (key, id) = (inner.keys[index], inner.ids[index]);
            let is_last = is_last && index + 1 == len;
            let count = self.assert_node(level + 1, child, is_last, leaves, inners);
            let expected = Summary { key, id, count };
            assert_eq!(self.summary(level + 1, child), expected);
            assert_eq!(inner.counts[index], count);
        }
        inner.total()
    }
}
