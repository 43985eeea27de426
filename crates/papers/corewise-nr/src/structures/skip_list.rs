//! A sequential skip list (W. Pugh, *Skip lists: a probabilistic alternative to balanced trees*,
//! CACM 33(6), 1990), the structure that §4.1 of the paper replicates.
//!
//! ```text
//! Node: | key, value | links of levels 0-3 [u32; 4] | links of higher levels: Box<[u32]> |
//! ```
//!
//! Nodes lie in a slab and are linked by index; a quarter of the nodes of a level is also on the
//! next one.
//!
//! # Guarantees
//!
//! 1. *Order.* Keys are unique and ascending.
//! 2. *Determinism.* Heights come from a generator that belongs to the list, is seeded with a
//!    constant, and is cloned with it. So replicas have equal shapes. (Do not use it for keys that
//!    an adversary chooses: the heights can be predicted.)
//! 3. *Cost.* Expected `O(log n)`; first key: `O(1)`.

#![forbid(unsafe_code)]

/// The most entries of a list.
pub const MAX_ENTRIES: usize = u32::MAX as usize - 1;

/// Levels; with a quarter of the nodes on each, enough for 4^16 nodes.
const LEVELS: usize = 16;
/// Levels whose links lie in the node itself. One node in 256 has more.
const INLINE: usize = 4;

/// The end of a level; as a predecessor, the head.
const NONE: u32 = u32::MAX;

#[derive(Clone, Debug)]
struct Node<K, V> {
    /// `None` while the node is not in use.
    entry: Option<(K, V)>,
    low: [u32; INLINE],
    high: Box<[u32]>,
}

impl<K, V> Node<K, V> {
    fn height(&self) -> usize {
        // A node of less than `INLINE` levels has no successors on the levels above its own, so it
        // may count as one of `INLINE` levels where links are removed.
        INLINE + self.high.len()
    }

    fn link(&mut self, level: usize) -> &mut u32 {
        if level < INLINE {
            &mut self.low[level]
        } else {
            &mut self.high[level - INLINE]
        }
    }
}

/// A map with sorted keys; see the [module](self).
///
/// ```
/// let mut list = corewise_nr::structures::skip_list::SkipList::new();
/// assert_eq!(list.insert(2, "two"), None);
/// assert_eq!(list.insert(1, "one"), None);
/// assert_eq!(list.first(), Some((&1, &"one")));
/// assert_eq!(list.remove(&2), Some("two"));
/// ```
#[derive(Clone, Debug)]
pub struct SkipList<K, V> {
    nodes: Vec<Node<K, V>>,
    free: Vec<u32>,
    head: [u32; LEVELS],
    /// Levels in use.
    level: usize,
    len: usize,
    random: u64,
}

/// The last node before a place, on each level.
type Path = [u32; LEVELS];

/// A place in a list, from which keys behind it are found in fewer steps: the last node before it,
/// on each level. Each search moves it. Keys must not descend, and the list must change by this
/// finger only.
#[derive(Debug)]
pub(super) struct Finger(Path);

impl Finger {
    /// Before all keys.
    pub(super) const fn start() -> Self {
        Self([NONE; LEVELS])
    }
}

impl<K: Ord, V> SkipList<K, V> {
    /// An empty list.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            nodes: Vec::new(),
            free: Vec::new(),
            head: [NONE; LEVELS],
            level: 1,
            len: 0,
            random: 0x2545_f491_4f6c_dd1d,
        }
    }

    /// The number of entries.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no entries.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    fn entry(&self, node: u32) -> &(K, V) {
        let entry = self.nodes[node as usize].entry.as_ref();
        entry.expect("a linked node is in use")
    }

    #[inline]
    fn next(&self, node: u32, level: usize) -> u32 {
        match self.nodes.get(node as usize) {
            None => self.head[level],
            Some(node) if level < INLINE => node.low[level],
            Some(node) => node.high[level - INLINE],
        }
    }

    fn link(&mut self, node: u32, level: usize) -> &mut u32 {
        match self.nodes.get_mut(node as usize) {
            None => &mut self.head[level],
            Some(node) => node.link(level),
        }
    }

    /// Moves the finger to the place of the key. Returns the node with the key, or the first one
    /// behind it.
    fn search(&self, Finger(path): &mut Finger, key: &K) -> u32 {
        let (mut node, mut next, mut is_ahead) = (NONE, NONE, false);
        for level in (0..self.level).rev() {
            // A node that was reached on a higher level is farther than the finger is on this one.
            if !is_ahead {
                node = path[level];
            }
            next = self.next(node, level);
            while next != NONE && self.entry(next).0 < *key {
                (node, is_ahead) = (next, true);
                next = self.next(node, level);
            }
            path[level] = node;
        }
        next
    }

    /// The node that a search found, if it has the key.
    fn with_key(&self, found: u32, key: &K) -> Option<u32> {
        (found != NONE && self.entry(found).0 == *key).then_some(found)
    }

    /// The value of a key.
    #[must_use]
    pub fn get(&self, key: &K) -> Option<&V> {
        self.get_from(&mut Finger::start(), key)
    }

    /// As [`get`](Self::get), from a finger on.
    pub(super) fn get_from(&self, finger: &mut Finger, key: &K) -> Option<&V> {
        let found = self.search(finger, key);
        Some(&self.entry(self.with_key(found, key)?).1)
    }

    /// The entry with the lowest key, in `O(1)`.
    #[must_use]
    pub fn first(&self) -> Option<(&K, &V)> {
        let (key, value) = (self.head[0] != NONE).then(|| self.entry(self.head[0]))?;
        Some((key, value))
    }

    /// All entries, in the order of their keys.
    pub fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        let first = Some(self.head[0]).filter(|node| *node != NONE);
        let next = |node: &u32| Some(self.next(*node, 0)).filter(|node| *node != NONE);
        std::iter::successors(first, next).map(|node| {
            let (key, value) = self.entry(node);
            (key, value)
        })
    }

    fn random_height(&mut self) -> usize {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random.trailing_zeros() as usize / 2 + 1).min(LEVELS)
    }

    /// Inserts or replaces the value of a key, and returns the old one.
    ///
    /// # Panics
    ///
    /// If the list has [`MAX_ENTRIES`] entries, and the key is not one of them.
    pub fn insert(&mut self, key: K, value: V) -> Option<V> {
        self.insert_from(&mut Finger::start(), key, value)
    }

    /// As [`insert`](Self::insert), from a finger on.
    pub(super) fn insert_from(&mut self, finger: &mut Finger, key: K, value: V) -> Option<V> {
        let found = self.search(finger, &key);
        let Finger(path) = finger;
        if found != NONE && self.entry(found).0 == key {
            let entry = self.nodes[found as usize].entry.as_mut()?;
            return Some(std::mem::replace(&mut entry.1, value));
        }
        assert!(self.len < MAX_ENTRIES, "the skip list is full");
        let height = self.random_height();
        let mut node = Node {
            entry: Some((key, value)),
            low: [NONE; INLINE],
            high: vec![NONE; height.saturating_sub(INLINE)].into(),
        };
        // On levels that were not in use, the path is the head.
        self.level = self.level.max(height);
        for (level, &previous) in path.iter().enumerate().take(height) {
            *node.link(level) = self.next(previous, level);
        }
        let index = match self.free.pop() {
            Some(index) => {
                self.nodes[index as usize] = node;
                index
            }
            None => {
                self.nodes.push(node);
                self.nodes.len() as u32 - 1
            }
        };
        for (level, &previous) in path.iter().enumerate().take(height) {
            *self.link(previous, level) = index;
        }
        self.len += 1;
        None
    }

    /// Removes a key, and returns its value.
    pub fn remove(&mut self, key: &K) -> Option<V> {
        self.remove_from(&mut Finger::start(), key)
    }

    /// As [`remove`](Self::remove), from a finger on.
    pub(super) fn remove_from(&mut self, finger: &mut Finger, key: &K) -> Option<V> {
        let found = self.search(finger, key);
        let node = self.with_key(found, key)?;
        Some(self.unlink(&finger.0, node)?.1)
    }

    /// Removes and returns the entry with the lowest key.
    pub fn pop_first(&mut self) -> Option<(K, V)> {
        let first = self.head[0];
        if first == NONE {
            return None;
        }
        self.unlink(&[NONE; LEVELS], first)
    }

    fn unlink(&mut self, path: &Path, node: u32) -> Option<(K, V)> {
        let height = self.nodes[node as usize].height();
        for (level, &previous) in path.iter().enumerate().take(height) {
            if self.next(previous, level) == node {
                *self.link(previous, level) = self.next(node, level);
            }
        }
        self.free.push(node);
        self.len -= 1;
        self.nodes[node as usize].entry.take()
    }
}

impl<K: Ord, V> Default for SkipList<K, V> {
    fn default() -> Self {
        Self::new()
    }
}
