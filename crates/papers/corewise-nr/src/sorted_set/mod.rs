//! A sorted set: members with scores, in the order of their scores.
//!
//! [`SortedSet`] is the data structure behind leaderboards, the sorted set of Redis (`ZADD`,
//! `ZRANK` and the other commands that begin with `Z`). It is sequential;
//! [`operation`] makes it one that can be replicated. Redis couples a hash table and a skip list
//! (§4.2 of the paper: "underlying data structures must be updated atomically"); this module
//! couples a hash table and a B+ tree with the size of each subtree in the inner nodes.
//!
//! ```text
//! member ──► hash table of ids ──► slab: [score, member] by id
//!                                    ▲
//! rank, score, bytes ──► B+ tree ────┘ ids in the order of (score, member)
//! ```
//!
//! | operation | cost, for `n` members |
//! |---|---|
//! | [`score`](SortedSet::score), [`contains`](SortedSet::contains) | `O(1)`, expected |
//! | [`insert`](SortedSet::insert), [`increment`](SortedSet::increment), [`remove`](SortedSet::remove), [`rank`](SortedSet::rank), [`at`](SortedSet::at), [`count`](SortedSet::count) | `O(log n)`, amortized if they write |
//! | [`range`](SortedSet::range) | `O(log n)`, then `O(1)` for each member; `nth` is `O(log n)` |
//! | [`remove_range`](SortedSet::remove_range) of `k` members | the lesser of `O(k log n)` and `O(n)` |
//! | [`scan`](SortedSet::scan) of `k` slots | `O(k)` |
//!
//! A member of 16 bytes costs about 85 bytes in a large set: 24 in the slab, 32 for its bytes and
//! the allocator, 11 in the hash table, and 18 in the tree. A set without members has no memory;
//! the first member costs about 1 KiB (`--example sorted_set` of commit d6f25cd).
//!
//! # Guarantees
//!
//! 1. *Order.* Members are sorted by score, and members with equal scores by their bytes. -0 and +0
//!    are equal. No score is NaN.
//! 2. *Both or neither.* The hash table and the tree have the same members after every operation,
//!    and an operation that returns an error has changed nothing.
//! 3. *Determinism.* Sets with equal histories, or a set and its clone with equal histories since,
//!    return the same results, cursors included. (So the hash table is not iterated, and no
//!    decision depends on a capacity: neither is equal in a clone.)
//! 4. *Memory follows the size.* When members occupy less than a quarter of the slab, the slab,
//!    the hash table and the tree are rebuilt without free room.

#![forbid(unsafe_code)]

mod items;
pub mod operation;
mod range;
mod score;
mod tree;

use std::cmp::Ordering;
use std::fmt;
use std::ops::{self, Bound};

use items::Items;
pub use range::Range;
use score::key;
use tree::Tree;

/// The most members of a set, whatever its [limit](SortedSet::with_limit).
pub const MAX_MEMBERS: usize = u32::MAX as usize - 1;

/// A slab with fewer slots is not compacted.
const LEAST_COMPACTED: usize = if cfg!(corewise_stress) { 4 } else { 64 };

/// A range of at least one in this number of members is removed by building a tree of the others.
const REBUILT_FROM: usize = 8;

/// The end of the order at which something starts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Direction {
    /// From the lowest score to the highest.
    #[default]
    Ascending,
    /// From the highest score to the lowest.
    Descending,
}

/// A part of a set that is contiguous in its order.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Bounds<'a> {
    /// From the first to the second rank, both included. Ranks start at 0; negative ones count from
    /// the end: -1 is the last member. A bound beyond an end is moved to that end, but bounds that
    /// are both beyond the same end contain nothing. Ranks are counted in the direction of the
    /// operation, as with `ZREVRANGE`.
    Rank(i64, i64),
    /// Scores from a lower to an upper bound, whatever the direction. A bound that is NaN contains
    /// nothing.
    Score(Bound<f64>, Bound<f64>),
    /// Members from a lower to an upper bound, by bytes, among the members that have the lowest
    /// score of the set; an unbounded end is the end of the set. It is meant for sets in which all
    /// scores are equal.
    Lex(Bound<&'a [u8]>, Bound<&'a [u8]>),
}

impl Bounds<'_> {
    /// The whole set.
    pub const ALL: Self = Bounds::Rank(0, -1);
}

/// Which members an insertion may change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Presence {
    /// Adds the member if it is absent, otherwise changes its score.
    #[default]
    Any,
    /// Only adds (`NX`).
    Absent,
    /// Only changes the score of a member (`XX`).
    Present,
}

/// How an insertion may change the score of a member that is present.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ScoreChange {
    /// To any score.
    #[default]
    Any,
    /// To a greater score (`GT`).
    Greater,
    /// To a lower score (`LT`).
    Less,
}

/// Conditions of [`SortedSet::insert_if`] and [`SortedSet::increment_if`]; the default allows all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Conditions {
    /// Which members may change.
    pub presence: Presence,
    /// How the score of a member that is present may change.
    pub change: ScoreChange,
}

impl Conditions {
    fn allow_adding(self) -> bool {
        self.presence != Presence::Present
    }

    fn allow(self, old: f64, new: f64) -> bool {
        let may_change = match self.change {
            ScoreChange::Any => true,
            ScoreChange::Greater => new > old,
            ScoreChange::Less => new < old,
        };
        self.presence != Presence::Absent && may_change
    }
}

/// What an insertion did.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Inserted {
    /// The member was absent.
    Added,
    /// The member was present with another score.
    Changed {
        /// The score before.
        old: f64,
    },
    /// The member has the score already.
    Unchanged,
    /// A condition does not hold, and nothing was changed.
    Refused,
}

/// Why an operation changed nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SortedSetError {
    /// The score is not a number, or would become one that is not (infinity minus infinity).
    NotANumber,
    /// The number of members is at the limit of the set.
    Full,
}

impl fmt::Display for SortedSetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotANumber => "the score is not a number",
            Self::Full => "the sorted set is full",
        })
    }
}

impl std::error::Error for SortedSetError {}

/// Members with scores, sorted by score; see the [module](self).
///
/// ```
/// use corewise_nr::sorted_set::{Bounds, Direction::Descending, SortedSet};
///
/// let mut scores = SortedSet::new();
/// scores.insert(b"ada", 300.0)?;
/// scores.insert(b"grace", 250.0)?;
/// scores.insert(b"alan", 200.0)?;
/// assert_eq!(scores.increment(b"alan", 75.0)?, 275.0);
/// assert_eq!(scores.rank(b"alan", Descending), Some(1));
/// let top: Vec<_> = scores.range(Bounds::Rank(0, 1), Descending).collect();
/// assert_eq!(top, [(&b"ada"[..], 300.0), (b"alan", 275.0)]);
/// # Ok::<(), corewise_nr::sorted_set::SortedSetError>(())
/// ```
#[derive(Clone)]
pub struct SortedSet {
    items: Items,
    tree: Tree,
    limit: usize,
}

/// Compares members of the set with this one.
#[inline]
fn compare_with<'a>(items: &'a Items, member: &'a [u8]) -> impl Fn(u32) -> Ordering + 'a {
    move |id| items.member(id).cmp(member)
}

impl SortedSet {
    /// A set without members, and without memory.
    #[must_use]
    pub fn new() -> Self {
        Self::with_limit(MAX_MEMBERS)
    }

    /// A set that refuses to have more than `limit` members: an insertion of another one returns
    /// [`SortedSetError::Full`]. A limit above [`MAX_MEMBERS`] counts as `MAX_MEMBERS`.
    #[must_use]
    pub fn with_limit(limit: usize) -> Self {
        Self {
            items: Items::new(),
            tree: Tree::new(),
            limit: limit.min(MAX_MEMBERS),
        }
    }

    /// The number of members (`ZCARD`).
    #[must_use]
    pub fn len(&self) -> usize {
        self.tree.len()
    }

    /// Whether there are no members.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The bytes that the set has requested from the allocator, without the set itself. The
    /// allocator's own overhead is not included. A clone may have fewer.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.items.bytes() + self.tree.bytes()
    }

    /// Removes all members, and frees their memory. Keeps the limit.
    pub fn clear(&mut self) {
        *self = Self::with_limit(self.limit);
    }

    /// Whether the member is in the set.
    #[must_use]
    pub fn contains(&self, member: &[u8]) -> bool {
        self.items.find(member).is_some()
    }

    /// The member's score (`ZSCORE`), or `None` if it is absent.
    #[must_use]
    pub fn score(&self, member: &[u8]) -> Option<f64> {
        let id = self.items.find(member)?;
        Some(self.items.item(id).1)
    }

    /// Adds a member, or changes its score (`ZADD`).
    ///
    /// # Errors
    ///
    /// If the score is NaN, or the member is absent and the set is full. The set is unchanged then.
    pub fn insert(&mut self, member: &[u8], score: f64) -> Result<Inserted, SortedSetError> {
        self.insert_if(member, score, Conditions::default())
    }

    /// Like [`insert`](Self::insert), under conditions (`ZADD` with `NX`, `XX`, `GT`, `LT`).
    ///
    /// ```
    /// use corewise_nr::sorted_set::{ScoreChange, Conditions, Inserted, SortedSet};
    ///
    /// let mut best = SortedSet::new();
    /// let if_better = Conditions { change: ScoreChange::Greater, ..Conditions::default() };
    /// assert_eq!(best.insert_if(b"ada", 3.0, if_better), Ok(Inserted::Added));
    /// assert_eq!(best.insert_if(b"ada", 2.0, if_better), Ok(Inserted::Refused));
    /// assert_eq!(best.insert_if(b"ada", 4.0, if_better), Ok(Inserted::Changed { old: 3.0 }));
    /// ```
    ///
    /// # Errors
    ///
    /// As [`insert`](Self::insert). A NaN is an error also where a condition would refuse.
    pub fn insert_if(
        &mut self,
        member: &[u8],
        score: f64,
        conditions: Conditions,
    ) -> Result<Inserted, SortedSetError> {
        if score.is_nan() {
            return Err(SortedSetError::NotANumber);
        }
        match self.items.locate(member) {
            Ok(id) => {
                let old = self.items.item(id).1;
                Ok(if !conditions.allow(old, score) {
                    Inserted::Refused
                } else if old == score {
                    Inserted::Unchanged
                } else {
                    self.change(id, score);
                    Inserted::Changed { old }
                })
            }
            Err(_) if !conditions.allow_adding() => Ok(Inserted::Refused),
            Err(hash) => {
                self.add(member, score, hash)?;
                Ok(Inserted::Added)
            }
        }
    }

    /// Adds `delta` to a member's score, or adds the member with the score `delta`. Returns the new
    /// score (`ZINCRBY`).
    ///
    /// # Errors
    ///
    /// If `delta` or the new score is NaN, or the member is absent and the set is full. The set is
    /// unchanged then.
    pub fn increment(&mut self, member: &[u8], delta: f64) -> Result<f64, SortedSetError> {
        let result = self.increment_if(member, delta, Conditions::default())?;
        Ok(result.expect("nothing is refused without a condition"))
    }

    /// Like [`increment`](Self::increment), under conditions (`ZADD` with `INCR`). Returns `None`
    /// if a condition does not hold.
    ///
    /// # Errors
    ///
    /// As [`increment`](Self::increment).
    pub fn increment_if(
        &mut self,
        member: &[u8],
        delta: f64,
        conditions: Conditions,
    ) -> Result<Option<f64>, SortedSetError> {
        if delta.is_nan() {
            return Err(SortedSetError::NotANumber);
        }
        match self.items.locate(member) {
            Ok(id) => {
                let old = self.items.item(id).1;
                let score = old + delta;
                if conditions.presence == Presence::Absent {
                    return Ok(None);
                }
                if score.is_nan() {
                    return Err(SortedSetError::NotANumber);
                }
                if !conditions.allow(old, score) {
                    return Ok(None);
                }
                if old != score {
                    self.change(id, score);
                }
                Ok(Some(score))
            }
            Err(_) if !conditions.allow_adding() => Ok(None),
            Err(hash) => {
                self.add(member, delta, hash)?;
                Ok(Some(delta))
            }
        }
    }

    /// Adds an absent member.
    fn add(&mut self, member: &[u8], score: f64, hash: u64) -> Result<(), SortedSetError> {
        if self.len() >= self.limit {
            return Err(SortedSetError::Full);
        }
        let id = self.items.insert(member, score, hash);
        let compare = compare_with(&self.items, member);
        self.tree.insert(key(score), id, compare);
        Ok(())
    }

    /// Gives a member another score.
    fn change(&mut self, id: u32, score: f64) {
        let Self { items, tree, .. } = self;
        let (member, old) = items.item(id);
        let path = tree.path_to((key(old), id), compare_with(items, member));
        let new = key(score);
        if !tree.change_in_place(&path, new, compare_with(items, member)) {
            tree.remove(&path);
            tree.insert(new, id, compare_with(items, member));
        }
        items.set_score(id, score);
    }

    /// Removes a member (`ZREM`). Returns its score, or `None` if it was absent.
    pub fn remove(&mut self, member: &[u8]) -> Option<f64> {
        let id = self.items.find(member)?;
        let (member, score) = self.items.item(id);
        let path = self
            .tree
            .path_to((key(score), id), compare_with(&self.items, member));
        self.tree.remove(&path);
        self.items.remove(id);
        self.compact_if_sparse();
        Some(score)
    }

    /// The number of members before this one (`ZRANK`, `ZREVRANK`), or `None` if it is absent.
    #[must_use]
    pub fn rank(&self, member: &[u8], direction: Direction) -> Option<usize> {
        Some(self.rank_and_score(member, direction)?.0)
    }

    /// The member's rank and score (`ZRANK` with `WITHSCORE`), or `None` if it is absent.
    #[must_use]
    pub fn rank_and_score(&self, member: &[u8], direction: Direction) -> Option<(usize, f64)> {
        let id = self.items.find(member)?;
        let score = self.items.item(id).1;
        let rank = self
            .tree
            .rank_of((key(score), id), compare_with(&self.items, member));
        Some(match direction {
            Direction::Ascending => (rank, score),
            Direction::Descending => (self.len() - 1 - rank, score),
        })
    }

    /// The member of a rank and its score, or `None` if the set has no more than `rank` members.
    #[must_use]
    pub fn at(&self, rank: usize, direction: Direction) -> Option<(&[u8], f64)> {
        let other = self.len().checked_sub(rank)?.checked_sub(1)?;
        let rank = match direction {
            Direction::Ascending => rank,
            Direction::Descending => other,
        };
        Some(self.items.item(self.tree.id(self.tree.place(rank))))
    }

    /// Iterates over the members within the bounds (`ZRANGE`). The direction is both that of the
    /// iteration and, with [`Bounds::Rank`], that in which ranks are counted.
    ///
    /// [`nth`](Iterator::nth) and [`skip`](Iterator::skip) take `O(log n)`, so the `LIMIT` of Redis
    /// is `.skip(offset).take(count)`.
    ///
    /// ```
    /// use corewise_nr::sorted_set::{Bounds, Direction, SortedSet};
    /// use std::ops::Bound::{Excluded, Included};
    ///
    /// let mut set = SortedSet::new();
    /// for (member, score) in [("a", 1.0), ("b", 2.0), ("c", 3.0)] {
    ///     set.insert(member.as_bytes(), score)?;
    /// }
    /// let bounds = Bounds::Score(Excluded(1.0), Included(f64::INFINITY));
    /// let found: Vec<_> = set.range(bounds, Direction::Ascending).collect();
    /// assert_eq!(found, [(&b"b"[..], 2.0), (b"c", 3.0)]);
    /// # Ok::<(), corewise_nr::sorted_set::SortedSetError>(())
    /// ```
    #[must_use]
    pub fn range(&self, bounds: Bounds<'_>, direction: Direction) -> Range<'_> {
        Range::new(self, self.ranks(bounds, direction), direction)
    }

    /// Iterates over all members, from the lowest score to the highest.
    #[must_use]
    pub fn iter(&self) -> Range<'_> {
        self.range(Bounds::ALL, Direction::Ascending)
    }

    /// The number of members within the bounds (`ZCOUNT`, `ZLEXCOUNT`).
    #[must_use]
    pub fn count(&self, bounds: Bounds<'_>) -> usize {
        self.ranks(bounds, Direction::Ascending).len()
    }

    /// Removes the members within the bounds (`ZREMRANGEBYRANK` and its siblings; ranks are counted
    /// from the lowest score), and returns their number.
    pub fn remove_range(&mut self, bounds: Bounds<'_>) -> usize {
        let ranks = self.ranks(bounds, Direction::Ascending);
        if ranks.len() == self.len() {
            self.clear();
        } else if ranks.len() >= self.len() / REBUILT_FROM {
            self.rebuild_without(ranks.clone());
        } else {
            for _ in ranks.clone() {
                let path = self.tree.path_to_rank(ranks.start);
                self.items.remove(self.tree.remove(&path));
            }
        }
        self.compact_if_sparse();
        ranks.len()
    }

    /// Removes and returns the first member of the direction and its score (`ZPOPMIN`, `ZPOPMAX`).
    pub fn pop(&mut self, direction: Direction) -> Option<(Box<[u8]>, f64)> {
        let last = self.len().checked_sub(1)?;
        let rank = match direction {
            Direction::Ascending => 0,
            Direction::Descending => last,
        };
        let path = self.tree.path_to_rank(rank);
        let popped = self.items.remove(self.tree.remove(&path));
        self.compact_if_sparse();
        Some(popped)
    }

    /// Removes the first members of the direction, at most `count`, and returns them in this order.
    pub fn pop_many(&mut self, direction: Direction, count: usize) -> Vec<(Box<[u8]>, f64)> {
        (0..count).map_while(|_| self.pop(direction)).collect()
    }

    /// Visits a part of the members, in no particular order (`ZSCAN`): looks at `count` slots, one
    /// at least, and calls `visit` for the members in them. Starts with the cursor 0, and returns
    /// the cursor for the next call, or 0 if this was the last.
    ///
    /// The calls from a 0 to the next visit each member that stays in the set meanwhile at least
    /// once, also if the set changes between two calls. A member is visited twice only if removals
    /// have compacted the slab meanwhile, or it was removed and added again.
    ///
    /// ```
    /// use corewise_nr::sorted_set::SortedSet;
    ///
    /// let mut set = SortedSet::new();
    /// for member in 0..20_u8 {
    ///     set.insert(&[member], 0.0)?;
    /// }
    /// let (mut cursor, mut seen) = (0, Vec::new());
    /// loop {
    ///     cursor = set.scan(cursor, 8, |member, _| seen.push(member[0]));
    ///     if cursor == 0 {
    ///         break;
    ///     }
    /// }
    /// seen.sort();
    /// assert_eq!(seen, Vec::from_iter(0..20));
    /// # Ok::<(), corewise_nr::sorted_set::SortedSetError>(())
    /// ```
    pub fn scan(&self, cursor: u64, count: usize, mut visit: impl FnMut(&[u8], f64)) -> u64 {
        // From the highest id downwards, because a compaction lowers ids: a member that was not
        // visited stays below the cursor.
        let slots = self.items.slots() as u64;
        let start = if cursor == 0 {
            slots
        } else {
            cursor.min(slots)
        };
        let end = start.saturating_sub(count.max(1) as u64);
        for id in (end..start).rev() {
            if let Some((member, score)) = self.items.get(id as u32) {
                visit(member, score);
            }
        }
        end
    }

    /// The ranks, in ascending order, of the members within the bounds.
    fn ranks(&self, bounds: Bounds<'_>, direction: Direction) -> ops::Range<usize> {
        let ranks = match bounds {
            Bounds::Rank(first, last) => self.absolute(first, last, direction),
            Bounds::Score(lower, upper) if is_nan(lower) || is_nan(upper) => 0..0,
            Bounds::Score(lower, upper) => {
                self.between(lower, upper, |score, included| self.below(score, included))
            }
            Bounds::Lex(lower, upper) => self.between(lower, upper, |member, included| {
                self.below_member(member, included)
            }),
        };
        // A lower bound above the upper one contains nothing.
        ranks.start..ranks.end.max(ranks.start)
    }

    fn absolute(&self, first: i64, last: i64, direction: Direction) -> ops::Range<usize> {
        let len = self.len();
        let absolute = |rank: i64| {
            let from_end = if rank < 0 { len as i64 } else { 0 };
            rank + from_end
        };
        let first = absolute(first).clamp(0, len as i64) as usize;
        let end = absolute(last).saturating_add(1).clamp(0, len as i64) as usize;
        match direction {
            Direction::Ascending => first..end,
            Direction::Descending => len - end.max(first)..len - first,
        }
    }

    /// The ranks between two bounds, where `below` counts the members below an end, which is
    /// included or not.
    fn between<T>(
        &self,
        lower: Bound<T>,
        upper: Bound<T>,
        below: impl Fn(T, bool) -> usize,
    ) -> ops::Range<usize> {
        let start = match lower {
            Bound::Included(end) => below(end, false),
            Bound::Excluded(end) => below(end, true),
            Bound::Unbounded => 0,
        };
        let end = match upper {
            Bound::Included(end) => below(end, true),
            Bound::Excluded(end) => below(end, false),
            Bound::Unbounded => self.len(),
        };
        start..end
    }

    /// The number of members with lower scores, or also equal ones.
    fn below(&self, score: f64, or_equal: bool) -> usize {
        let order = if or_equal {
            Ordering::Less
        } else {
            Ordering::Greater
        };
        self.tree.rank(key(score), |_| order)
    }

    /// The number of members with the lowest score and lower bytes, or also equal ones.
    fn below_member(&self, member: &[u8], or_equal: bool) -> usize {
        let Some((lowest, _)) = self.tree.entries().next() else {
            return 0;
        };
        let compare = compare_with(&self.items, member);
        self.tree.rank(lowest, |id| match compare(id) {
            Ordering::Equal if or_equal => Ordering::Less,
            order => order,
        })
    }

    fn rebuild_without(&mut self, ranks: ops::Range<usize>) {
        let removed: Vec<u32> = self.tree.ids(ranks.clone()).collect();
        let entries = self.tree.entries().enumerate();
        let kept = entries.filter(|(rank, _)| !ranks.contains(rank));
        self.tree = Tree::build(kept.map(|(_, entry)| entry));
        for id in removed {
            self.items.remove(id);
        }
    }

    /// Guarantee 4.
    fn compact_if_sparse(&mut self) {
        let slots = self.items.slots();
        if self.is_empty() {
            self.clear();
        } else if slots >= LEAST_COMPACTED && self.len() < slots / 4 {
            let new_ids = self.items.compact();
            let entries = self.tree.entries();
            self.tree = Tree::build(entries.map(|(key, id)| (key, new_ids[id as usize])));
        }
    }

    /// Checks guarantees 1 and 2 and the internal structure, in `O(n log n)`; for tests.
    ///
    /// # Panics
    ///
    /// If one is broken.
    pub fn assert_valid(&self) {
        self.items.assert_valid();
        assert_eq!(self.items.len(), self.tree.len());
        assert!(self.len() <= self.limit);
        let full = |(key, id)| (key, self.items.member(id));
        self.tree.assert_valid(|a, b| full(a) < full(b));
        for (entry_key, id) in self.tree.entries() {
            assert_eq!(
                entry_key,
                key(self.items.item(id).1),
                "a key is not the score's"
            );
        }
    }
}

fn is_nan(bound: Bound<f64>) -> bool {
    matches!(bound, Bound::Included(score) | Bound::Excluded(score) if score.is_nan())
}

impl Default for SortedSet {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for SortedSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let escaped = |(member, score): (&[u8], f64)| (member.escape_ascii().to_string(), score);
        f.debug_map().entries(self.iter().map(escaped)).finish()
    }
}

/// Equal if both have the same members with equal scores. Limits and ids are not compared.
impl PartialEq for SortedSet {
    fn eq(&self, other: &Self) -> bool {
        self.len() == other.len() && self.iter().eq(other)
    }
}

impl<'a> IntoIterator for &'a SortedSet {
    type Item = (&'a [u8], f64);
    type IntoIter = Range<'a>;

    fn into_iter(self) -> Range<'a> {
        self.iter()
    }
}
