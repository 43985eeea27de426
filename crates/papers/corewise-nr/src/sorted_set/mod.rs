//! A sorted set: members with scores, in the order of their scores.
//!
//! [`SortedSet`] is the data structure behind leaderboards, the sorted set of Redis (`ZADD`,
//! `ZRANK` and the other commands that begin with `Z`). It is sequential;
//! [`operation`] makes it one that can be replicated. Redis couples a hash table and a skip list
//! (§4.2 of the paper: "underlying data structures must be updated atomically"); this module
//! couples a hash table and a B+ tree with the size of each subtree in the inner nodes.
//!
//! ```text
//! member ──► index: hash ──► id ──► record: score, member
//!                                     ▲
//! rank, score, bytes ──► B+ tree ─────┘ ids in the order of (score, member)
//! ```
//!
//! | operation | cost, for `n` members |
//! |---|---|
//! | [`score`](SortedSet::score), [`contains`](SortedSet::contains) | `O(1)`, expected |
//! | [`insert`](SortedSet::insert), [`increment`](SortedSet::increment), [`remove`](SortedSet::remove), [`rank`](SortedSet::rank), [`at`](SortedSet::at), [`count`](SortedSet::count) | `O(log n)` |
//! | [`range`](SortedSet::range) | `O(log n)`, then `O(1)` for each member; `nth` is `O(log n)` |
//! | [`remove_range`](SortedSet::remove_range) of `k` members | `O(k log n)` |
//! | [`detach_range`](SortedSet::detach_range) of `k` members | `O(min(n / 64, k log n))`, and `O(k)` in steps |
//! | [`scan`](SortedSet::scan) of `k` members | `O(k)` |
//!
//! These are for short members: to hash, compare or copy one takes as long as it has bytes.
//!
//! # Guarantees
//!
//! 1. *Order.* Members are sorted by score, and members with equal scores by their bytes. -0 and +0
//!    are equal. No score is NaN.
//! 2. *Both or neither.* The index and the tree have the same members after every operation, and an
//!    operation that returns an error has changed nothing.
//! 3. *Determinism.* Sets with equal seeds and histories, or a set and its clone with equal
//!    histories since, return the same results, cursors included. (So no decision depends on a
//!    capacity, which a clone does not have.)
//! 4. *Memory follows the size.* While a quarter of the records' room is free, a removal moves up
//!    to four records, and chunks without records are freed; the index and the tree shrink as they
//!    grew. (Not those of members that were [detached](SortedSet::detach_range): they follow in
//!    steps.)
//! 5. *Steps.* No insertion or removal of one member, or change of its score, does more than to
//!    split an array of about 512 entries at most, to split or merge a node on each level of the
//!    tree, to move four records, and to free eight chunks. Nothing is copied as a whole when the
//!    set grows but lists of chunks and of pages. ([`remove_range`](SortedSet::remove_range) and
//!    [`clear`](SortedSet::clear) take as long as their result is large; see
//!    [`drop_some`](SortedSet::drop_some).)
//!
//!    Most splits read no members, but while the number of arrays doubles for the 4th, 8th, 12th
//!    time and so on, each split hashes all members of its array. With members of 20 bytes these
//!    are 8 KB; with members of 100 KB they are 40 MB, and one insertion takes as long as to read
//!    them. A set whose insertions must be short needs short members.
//!
//! In a set of five million, a member of 20 bytes costs 45 bytes in all with ascending scores, and
//! 49 with random ones (`--example sorted_set_memory`). A set without members has no memory, but
//! what is left to be freed in later steps: by `drop_some`, or a part by each removal.

#![forbid(unsafe_code)]

mod cut;
mod index;
mod items;
mod mover;
pub mod operation;
mod pages;
mod range;
mod records;
mod replicated;
mod score;
mod tree;

use std::cmp::Ordering;
use std::fmt;
use std::ops::{self, Bound};

use cut::Cut;
use items::Items;
pub use mover::MostMoved;
use mover::Mover;
pub use range::Range;
use records::Compaction;
use score::key;
use tree::{Tree, TreeEntry};

use crate::SetMemory;

/// An array in the memory of a set.
type Array<T> = allocator_api2::vec::Vec<T, SetMemory>;

/// A set on the heap, in [its memory](SortedSet::source).
pub type BoxedSet = allocator_api2::boxed::Box<SortedSet, SetMemory>;

/// The most members of a set, whatever its [limit](SortedSet::with_limit). Only members that are
/// short enough can be this many, since their records have at most 8 GiB.
pub const MAX_MEMBERS: usize = u32::MAX as usize - 1;

/// Whether chunks, arrays and pages are tiny, so that each test fills and empties many.
const TINY: bool = cfg!(any(test, corewise_stress));

/// The most records that one removal moves.
const MOVED: usize = 4;

/// The most chunks that the removal of the last member frees.
const FREED: usize = 8;

/// A range of at least one in this number of members is cut out of the tree as a whole. To unlink
/// or to visit a leaf takes about half as long as to remove a member.
const CUT_FROM: usize = if TINY { 8 } else { 128 };

/// The detached members that an insertion or a removal takes out of the index.
const FREED_MEMBERS: usize = 8;

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
    /// Whether a member that is absent may be added.
    #[must_use]
    pub fn allow_adding(self) -> bool {
        self.presence != Presence::Present
    }

    /// Whether the score of a member that is present may change from `old` to `new`.
    #[must_use]
    pub fn allow(self, old: f64, new: f64) -> bool {
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
    /// The number of members is at the limit of the set, or there is [no
    /// room](SortedSet::with_limit) for another member of this length.
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
    /// Of detached members; the index has them still.
    cut: Cut,
    limit: usize,
    seed: u64,
    remains: Remains,
}

/// The members that a set once had, as far as their memory is not freed yet.
struct Parts {
    items: Items,
    tree: Tree,
    cut: Cut,
}

impl Parts {
    fn memory(&self) -> usize {
        self.items.memory() + self.tree.memory() + self.cut.memory()
    }

    /// Frees a page, an array or a chunk, and returns whether there was one. Lists are left.
    fn drop_one(&mut self) -> bool {
        let Items { records, index } = &mut self.items;
        self.cut.drop_some() || self.tree.drop_page() || index.drop_array() || records.drop_chunk()
    }
}

/// What a set will free in later steps. A clone has none.
struct Remains {
    parts: Array<Parts>,
    /// Whether [`SortedSet::drop_some`] has removed the members, and is to be called again.
    is_dropping: bool,
}

impl Clone for Remains {
    fn clone(&self) -> Self {
        Self::new(self.parts.allocator())
    }
}

impl Remains {
    fn new(memory: &SetMemory) -> Self {
        Self {
            parts: Array::new_in(memory.clone()),
            is_dropping: false,
        }
    }

    fn memory(&self) -> usize {
        let list = self.parts.capacity() * size_of::<Parts>();
        list + self.parts.iter().map(Parts::memory).sum::<usize>()
    }

    fn push(&mut self, parts: Parts) {
        grow_by_an_eighth(&mut self.parts);
        self.parts.push(parts);
    }

    /// Makes one step, and returns whether there was something to free.
    fn drop_one(&mut self) -> bool {
        let Some(parts) = self.parts.last_mut() else {
            return false;
        };
        if !parts.drop_one() {
            self.parts.pop();
            if self.parts.is_empty() {
                self.parts.shrink_to_fit();
            }
        }
        true
    }
}

impl SortedSet {
    /// A set without members, and without memory.
    #[must_use]
    pub fn new() -> Self {
        Self::with_limit(MAX_MEMBERS)
    }

    /// A set that refuses to have more than `limit` members: an insertion of another one returns
    /// [`SortedSetError::Full`]. A limit above [`MAX_MEMBERS`] counts as `MAX_MEMBERS`.
    ///
    /// Fewer than `limit` may have room. There are 2^17 chunks at most. Members of up to about
    /// 16 KiB share chunks of 64 KiB, which makes 8 GiB in all, with the room that is free. A
    /// longer member takes a chunk alone, so a set has at most 131,072 of these. An insertion for
    /// which no chunk is left returns `Full` too.
    #[must_use]
    pub fn with_limit(limit: usize) -> Self {
        Self::with_seed(limit, 0)
    }

    /// A set with a limit whose hashes depend on `seed`, and on a secret of the process. All sets
    /// that are made without a seed have the same one, so that replicas return the same cursors.
    #[must_use]
    pub fn with_seed(limit: usize, seed: u64) -> Self {
        Self::with_memory(limit, seed, &SetMemory::default())
    }

    /// A set with a limit and a seed that takes its memory from this source, as its clones do.
    #[must_use]
    pub fn with_memory(limit: usize, seed: u64, memory: &SetMemory) -> Self {
        Self {
            items: Items::new(seed, memory),
            tree: Tree::new(memory),
            cut: Cut::new(memory),
            limit: limit.min(MAX_MEMBERS),
            seed,
            remains: Remains::new(memory),
        }
    }

    /// Where the set takes its memory from.
    #[must_use]
    pub fn source(&self) -> &SetMemory {
        self.items.records.source()
    }

    /// The set in a box that has the same memory.
    #[must_use]
    pub fn boxed(self) -> BoxedSet {
        let memory = self.source().clone();
        BoxedSet::new_in(self, memory)
    }

    /// An empty set with the limit, the seed and the memory of this one.
    #[must_use]
    pub fn emptied(&self) -> Self {
        Self::with_memory(self.limit, self.seed, self.source())
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

    /// The bytes that the set has requested from the allocator, without the set itself, in `O(1)`.
    /// The allocator's own overhead is not included. A clone may have fewer.
    #[must_use]
    pub fn memory(&self) -> usize {
        let parts = self.items.memory() + self.tree.memory() + self.cut.memory();
        parts + self.remains.memory()
    }

    /// Moves arrays of the set to other memory of its [source](Self::source): passes over `from` of
    /// them, and moves the ones whose address `leaves`. Returns the number to go on from, or `None`
    /// if all were looked at. An array has at most 64 KiB, or the size of one member, except the
    /// lists of chunks and of pages.
    ///
    /// Takes time in proportion to all arrays of the set, and to the bytes of those moved. If the
    /// set changes between two calls, some arrays may be looked at twice or not at all.
    ///
    /// ```
    /// use corewise_nr::sorted_set::{MostMoved, SortedSet};
    ///
    /// let mut set = SortedSet::new();
    /// set.insert(b"member", 1.0)?;
    /// let most = MostMoved { looks: 1_000, moves: 1_000 };
    /// assert_eq!(set.move_arrays(0, most, &mut |_address| true), None);
    /// assert_eq!(set.score(b"member"), Some(1.0));
    /// # Ok::<(), corewise_nr::sorted_set::SortedSetError>(())
    /// ```
    pub fn move_arrays(
        &mut self,
        from: usize,
        most: MostMoved,
        leaves: &mut dyn FnMut(usize) -> bool,
    ) -> Option<usize> {
        let mover = &mut Mover::new(from, most, leaves);
        self.items.move_arrays(mover);
        self.tree.move_arrays(mover);
        self.cut.move_arrays(mover);
        mover.visit(&mut self.remains.parts);
        for parts in &mut self.remains.parts {
            parts.items.move_arrays(mover);
            parts.tree.move_arrays(mover);
            parts.cut.move_arrays(mover);
        }
        mover.cut_after().map(|looked| from + looked)
    }

    /// Removes all members, and frees their memory. Keeps the limit and the seed.
    pub fn clear(&mut self) {
        *self = self.emptied();
    }

    /// Removes all members like [`clear`](Self::clear), but frees their memory in steps, of which
    /// this call makes at most `n`. Returns whether there are more, which the next calls make.
    /// Members that are added before the call that returns `false` stay.
    ///
    /// A large set that is dropped in steps does not hold up its thread. A step frees a chunk of
    /// records, a page of nodes, or an array of the index and sometimes the page that it was in:
    /// together at most 64 KiB, or the size of one member. The last step frees the lists of chunks
    /// and pages, which grow with the set: 24 or 32 bytes for each chunk and page. The list of the
    /// index's pages is also copied whenever half of them are freed.
    ///
    /// ```
    /// use corewise_nr::sorted_set::SortedSet;
    ///
    /// let mut set = SortedSet::new();
    /// for number in 0..1_000_u32 {
    ///     set.insert(&number.to_be_bytes(), 0.0)?;
    /// }
    /// while set.drop_some(4) {}
    /// assert!(set.is_empty() && set.memory() == 0);
    /// # Ok::<(), corewise_nr::sorted_set::SortedSetError>(())
    /// ```
    pub fn drop_some(&mut self, n: usize) -> bool {
        if !self.remains.is_dropping && !self.is_empty() {
            let parts = self.take_parts();
            self.remains.push(parts);
        }
        let has_more = (0..n).all(|_| self.remains.drop_one()) && !self.remains.parts.is_empty();
        self.remains.is_dropping = has_more;
        has_more
    }

    /// Leaves a set without members, with what an earlier [`drop_some`](Self::drop_some) left.
    fn take_parts(&mut self) -> Parts {
        let memory = self.source().clone();
        let items = std::mem::replace(&mut self.items, Items::new(self.seed, &memory));
        let tree = std::mem::replace(&mut self.tree, Tree::new(&memory));
        let cut = std::mem::replace(&mut self.cut, Cut::new(&memory));
        Parts { items, tree, cut }
    }

    /// The id of a member.
    #[inline]
    fn find(&self, member: &[u8]) -> Option<u32> {
        self.locate(member).ok()
    }

    /// The id of a member, or the hash under which to add it.
    #[inline]
    fn locate(&self, member: &[u8]) -> Result<u32, u64> {
        if self.cut.is_empty() {
            return self.items.locate(member);
        }
        self.locate_attached(member)
    }

    /// The same while the index also has detached members: it may have a member several times.
    #[cold]
    fn locate_attached(&self, member: &[u8]) -> Result<u32, u64> {
        let Items { index, records } = &self.items;
        let hash = index.hash(member);
        let is_member = |id: u32| records.member(id) == member && self.is_attached(id);
        index.find(hash, is_member).ok_or(hash)
    }

    /// Whether the tree has the record of this id.
    fn is_attached(&self, id: u32) -> bool {
        let records = &self.items.records;
        self.cut.is_empty() || self.tree.contains(TreeEntry::of(records, id), records)
    }

    /// Whether the member is in the set.
    #[must_use]
    pub fn contains(&self, member: &[u8]) -> bool {
        self.find(member).is_some()
    }

    /// The member's score (`ZSCORE`), or `None` if it is absent.
    #[must_use]
    pub fn score(&self, member: &[u8]) -> Option<f64> {
        let id = self.find(member)?;
        Some(self.items.records.score(id))
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
        match self.locate(member) {
            Ok(id) => {
                let old = self.items.records.score(id);
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

    /// Adds to the score of a member several times, and moves it once. Returns the score after each
    /// addition. `None` if nothing was done: one of the scores is no normal number, or a single
    /// [`increment`](Self::increment) would be an error.
    ///
    /// ```
    /// use corewise_nr::SortedSet;
    ///
    /// let mut scores = SortedSet::new();
    /// assert_eq!(scores.increment_all(b"ada", [2.0, 5.0]), Some(vec![2.0, 7.0]));
    /// assert_eq!(scores.increment_all(b"ada", [f64::NAN]), None);
    /// assert_eq!(scores.score(b"ada"), Some(7.0));
    /// ```
    pub fn increment_all(
        &mut self,
        member: &[u8],
        deltas: impl IntoIterator<Item = f64>,
    ) -> Option<Vec<f64>> {
        let mut score = self.score(member);
        let add = |delta| {
            let sum = score.map_or(delta, |score| score + delta);
            score = Some(sum);
            sum
        };
        let scores: Vec<f64> = deltas.into_iter().map(add).collect();
        // Of the others, zeros have two signs, of which a set may keep the first.
        if !scores.iter().all(|score| score.is_normal()) {
            return None;
        }
        self.insert(member, *scores.last()?).ok()?;
        Some(scores)
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
        let scores = self.increment_from(member, delta, conditions)?;
        Ok(scores.map(|(_, score)| score))
    }

    /// Like [`increment_if`](Self::increment_if), and returns the score before, if the member was
    /// present, and after.
    ///
    /// # Errors
    ///
    /// As [`increment`](Self::increment).
    pub fn increment_from(
        &mut self,
        member: &[u8],
        delta: f64,
        conditions: Conditions,
    ) -> Result<Option<(Option<f64>, f64)>, SortedSetError> {
        if delta.is_nan() {
            return Err(SortedSetError::NotANumber);
        }
        match self.locate(member) {
            Ok(id) => {
                let old = self.items.records.score(id);
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
                Ok(Some((Some(old), score)))
            }
            Err(_) if !conditions.allow_adding() => Ok(None),
            Err(hash) => {
                self.add(member, delta, hash)?;
                Ok(Some((None, delta)))
            }
        }
    }

    /// Adds an absent member.
    fn add(&mut self, member: &[u8], score: f64, hash: u64) -> Result<(), SortedSetError> {
        if self.len() >= self.limit {
            return Err(SortedSetError::Full);
        }
        let id = self.items.insert(member, score, hash);
        let id = id.ok_or(SortedSetError::Full)?;
        let key = key(score);
        let entry = TreeEntry { key, member, id };
        self.tree.insert(entry, &self.items.records);
        self.free_detached(FREED_MEMBERS);
        Ok(())
    }

    /// Gives a member another score.
    fn change(&mut self, id: u32, score: f64) {
        let Self { items, tree, .. } = self;
        let records = &items.records;
        let (member, old) = records.item(id);
        let [old, new] = [old, score].map(|score| TreeEntry {
            key: key(score),
            member,
            id,
        });
        let path = tree.path_to(old, records);
        let keeps_place = tree.change_in_place(&path, new, records);
        if !keeps_place {
            tree.remove(&path, records);
        }
        items.records.set_score(id, score);
        if !keeps_place {
            tree.insert(TreeEntry::of(&items.records, id), &items.records);
        }
    }

    /// Removes a member (`ZREM`). Returns its score, or `None` if it was absent.
    pub fn remove(&mut self, member: &[u8]) -> Option<f64> {
        let id = self.find(member)?;
        let records = &self.items.records;
        let (member, score) = records.item(id);
        let key = key(score);
        let path = self.tree.path_to(TreeEntry { key, member, id }, records);
        self.tree.remove(&path, records);
        self.items.remove(id);
        self.compact();
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
        let id = self.find(member)?;
        let records = &self.items.records;
        let (member, score) = records.item(id);
        let key = key(score);
        let rank = self.tree.rank_of(TreeEntry { key, member, id }, records);
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
        Some(self.items.records.item(self.tree.id(self.tree.place(rank))))
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
        let removed = self.count(bounds);
        if removed == self.len() {
            drop(self.take_parts());
        } else {
            self.detach_range(bounds);
        }
        if removed > 0 {
            while self.compact() {}
        }
        removed
    }

    /// Removes members like [`remove_range`](Self::remove_range), but those of a long range leave
    /// the index, and their memory is freed, in steps: some with each member that is added or
    /// removed, others by [`free_detached`](Self::free_detached) or [`settle`](Self::settle). Until
    /// then it takes longer to find a member.
    ///
    /// ```
    /// use corewise_nr::sorted_set::{Bounds, SortedSet};
    ///
    /// let mut set = SortedSet::new();
    /// for number in 0..1_000_u32 {
    ///     set.insert(&number.to_be_bytes(), number.into())?;
    /// }
    /// let before = set.memory();
    /// assert_eq!(set.detach_range(Bounds::Rank(0, 899)), 900);
    /// assert_eq!(set.len(), 100);
    /// while set.free_detached(100) {}
    /// assert!(set.memory() < before);
    /// # Ok::<(), corewise_nr::sorted_set::SortedSetError>(())
    /// ```
    pub fn detach_range(&mut self, bounds: Bounds<'_>) -> usize {
        let ranks = self.ranks(bounds, Direction::Ascending);
        if ranks.is_empty() {
            return 0;
        }
        if ranks.len() == self.len() {
            self.free_empty();
        } else if ranks.len() >= self.len() / CUT_FROM {
            let records = &self.items.records;
            self.tree.cut(ranks.clone(), &mut self.cut, records);
            self.compact();
        } else {
            for _ in ranks.clone() {
                let path = self.tree.path_to_rank(ranks.start);
                let id = self.tree.remove(&path, &self.items.records);
                self.items.remove(id);
                self.compact();
            }
        }
        ranks.len()
    }

    /// Whether there are [detached](Self::detach_range) members that are not yet freed.
    #[must_use]
    pub fn has_detached(&self) -> bool {
        !self.cut.is_empty()
    }

    /// Frees up to `count` [detached](Self::detach_range) members, and returns whether there are
    /// more.
    pub fn free_detached(&mut self, count: usize) -> bool {
        for _ in 0..count {
            let Some(id) = self.cut.pop() else {
                return false;
            };
            self.items.remove(id);
        }
        !self.cut.is_empty()
    }

    /// Does up to `steps` steps of what removals have left to do: a step frees some detached
    /// members, or moves a few records to the room of others, as a removal does (guarantee 4).
    /// Returns whether there may be more to do.
    ///
    /// ```
    /// use corewise_nr::sorted_set::{Bounds, SortedSet};
    ///
    /// let mut set = SortedSet::new();
    /// for number in 0..1_000_u32 {
    ///     set.insert(&number.to_be_bytes(), number.into())?;
    /// }
    /// set.detach_range(Bounds::Rank(0, 899));
    /// while set.settle(10) {}
    /// assert!(!set.has_detached());
    /// # Ok::<(), corewise_nr::sorted_set::SortedSetError>(())
    /// ```
    pub fn settle(&mut self, steps: usize) -> bool {
        (0..steps).all(|_| self.compact())
    }

    /// A copy without the members within the bounds; ranks are counted from the lowest score. Takes
    /// time in proportion to the others. Scans of this set can be continued in the copy.
    ///
    /// ```
    /// use corewise_nr::sorted_set::{Bounds, SortedSet};
    ///
    /// let mut set = SortedSet::new();
    /// for number in 0..9_u8 {
    ///     set.insert(&[number], number.into())?;
    /// }
    /// let rest = set.without(Bounds::Rank(2, -2));
    /// assert_eq!(Vec::from_iter(rest.iter().map(|(_, score)| score)), [0.0, 1.0, 8.0]);
    /// # Ok::<(), corewise_nr::sorted_set::SortedSetError>(())
    /// ```
    #[must_use]
    pub fn without(&self, bounds: Bounds<'_>) -> Self {
        let ranks = self.ranks(bounds, Direction::Ascending);
        let mut copy = self.emptied();
        let ids = self.tree.ids(0..ranks.start);
        for id in ids.chain(self.tree.ids(ranks.end..self.len())) {
            let (member, score) = self.items.records.item(id);
            copy.insert(member, score)
                .expect("the copy has no more members, and none is NaN");
        }
        copy
    }

    /// Removes and returns the first member of the direction and its score (`ZPOPMIN`, `ZPOPMAX`).
    pub fn pop(&mut self, direction: Direction) -> Option<(Box<[u8]>, f64)> {
        let last = self.len().checked_sub(1)?;
        let rank = match direction {
            Direction::Ascending => 0,
            Direction::Descending => last,
        };
        let path = self.tree.path_to_rank(rank);
        let id = self.tree.remove(&path, &self.items.records);
        let (member, score) = self.items.records.item(id);
        let popped = (member.into(), score);
        self.items.remove(id);
        self.compact();
        Some(popped)
    }

    /// Removes the first members of the direction, at most `count`, and returns them in this order.
    pub fn pop_many(&mut self, direction: Direction, count: usize) -> Vec<(Box<[u8]>, f64)> {
        (0..count).map_while(|_| self.pop(direction)).collect()
    }

    /// Visits a part of the members, in no particular order (`ZSCAN`): at least `count` of those
    /// that are left, one at least, in the order of their hashes. Starts with the cursor 0, and
    /// returns the cursor for the next call, or 0 if this was the last. A cursor is below 2^48.
    ///
    /// The calls from a 0 to the next visit each member that stays in the set meanwhile at least
    /// once, also if the set changes between two calls. A member is visited twice only if the index
    /// has shrunk meanwhile, or it was removed and added again. [Detached](Self::detach_range)
    /// members count, but are not visited.
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
        self.items.index.scan(cursor, count, |id| {
            if self.is_attached(id) {
                let (member, score) = self.items.records.item(id);
                visit(member, score);
            }
        })
    }

    /// Lets what an operation on these members needs first arrive in the cache: for all of them the
    /// index, then the records.
    pub fn prefetch<'a>(&self, members: impl Iterator<Item = &'a [u8]> + Clone) {
        let Items { index, records } = &self.items;
        for member in members.clone() {
            index.prefetch(index.hash(member));
        }
        for member in members {
            for id in index.candidates(index.hash(member)) {
                records.prefetch(id);
            }
        }
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
        let wanted = key(score);
        self.tree.rank(wanted, |id| {
            let key = self.items.records.key(id);
            key.cmp(&wanted).then(order)
        })
    }

    /// The number of members with the lowest score and lower bytes, or also equal ones.
    fn below_member(&self, member: &[u8], or_equal: bool) -> usize {
        let records = &self.items.records;
        let Some(lowest) = self.tree.ids(0..self.len().min(1)).next() else {
            return 0;
        };
        let lowest = records.key(lowest);
        self.tree
            .rank(lowest, |id| match records.compare(id, (lowest, member)) {
                Ordering::Equal if or_equal => Ordering::Less,
                order => order,
            })
    }

    /// Guarantee 4: moves some records, if a quarter of their room is free. Returns whether there
    /// may be more to do.
    fn compact(&mut self) -> bool {
        // One step, so that these are freed also if `drop_some` is not called.
        self.remains.drop_one();
        if self.is_empty() {
            self.free_empty();
            return false;
        }
        // Only attached records can move.
        if self.free_detached(FREED_MEMBERS) {
            return true;
        }
        let Self { items, tree, .. } = self;
        for _ in 0..MOVED {
            match items.next_to_move() {
                Compaction::Move((old, new)) => {
                    tree.replace(old, new, &items.records);
                    items.records.bury(old);
                }
                Compaction::Stepped => return true,
                Compaction::Done => return false,
            }
        }
        true
    }

    /// Frees what a set has kept whose last member was removed; a large rest in later steps.
    fn free_empty(&mut self) {
        let mut parts = self.take_parts();
        if (0..FREED).all(|_| parts.drop_one()) {
            self.remains.push(parts);
        }
    }

    /// Checks guarantees 1 and 2 and the internal structure, in `O(n log n)`; for tests.
    ///
    /// # Panics
    ///
    /// If one is broken.
    pub fn assert_valid(&self) {
        self.items.assert_valid();
        assert_eq!(self.items.index.len(), self.tree.len() + self.cut.len());
        assert!(self.cut.iter().all(|id| !self.is_attached(id)));
        assert!(self.len() <= self.limit);
        self.tree.assert_valid(&self.items.records);
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

/// Makes room for another element. `push` alone would double its capacity; in a large set that is
/// half of the memory.
fn grow_by_an_eighth<T>(elements: &mut Array<T>) {
    if elements.len() == elements.capacity() {
        elements.reserve_exact((elements.len() / 8).max(1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn numbers(count: u32) -> SortedSet {
        let mut set = SortedSet::new();
        for number in 0..count {
            set.insert(&number.to_be_bytes(), f64::from(number))
                .expect("a number, and room");
        }
        set
    }

    /// Guarantee 5, where the compaction is far behind.
    #[test]
    fn the_last_removal_frees_few_chunks() {
        let mut set = numbers(1_000);
        // Like `remove`, but without the steps of the compaction.
        while set.len() > 1 {
            let path = set.tree.path_to_rank(0);
            let id = set.tree.remove(&path, &set.items.records);
            set.items.remove(id);
        }
        let before = set.memory();
        assert!(set.pop(Direction::Ascending).is_some() && set.is_empty());
        set.assert_valid();
        let kept = set.memory();
        assert!(kept > before / 2, "{before} bytes, then {kept}");
        // `drop_some` was not called yet, so it removes this one.
        set.insert(b"stays", 1.0).expect("a number, and room");
        set.insert(b"goes", 2.0).expect("a number, and room");
        set.remove(b"goes");
        assert!(set.remains.memory() < kept, "a removal frees a chunk");
        assert!(set.drop_some(1), "more than two chunks are kept");
        assert!(
            set.is_empty(),
            "members that were there at the first call are removed"
        );
        while set.drop_some(1) {}
        assert_eq!(set.memory(), 0);
    }

    #[test]
    fn detached_members_can_be_added_again() {
        let mut set = numbers(1_000);
        assert_eq!(set.detach_range(Bounds::Rank(0, 499)), 500);
        for number in 0..20_u32 {
            let member = number.to_be_bytes();
            assert!(set.items.locate(&member).is_ok() && !set.contains(&member));
            let score = f64::from(number) + 0.5;
            assert_eq!(set.insert(&member, score), Ok(Inserted::Added));
            assert_eq!(set.score(&member), Some(score));
            set.assert_valid();
        }
        let full = set.memory();
        assert_eq!(set.len(), 520);
        assert!(set.cut.len() > 300, "an insertion frees few");
        while set.free_detached(10) {}
        assert_eq!(set.items.index.len(), 520);
        // Removals move records then.
        for number in 0..20_u32 {
            assert_eq!(
                set.remove(&number.to_be_bytes()),
                Some(f64::from(number) + 0.5)
            );
        }
        assert!(set.memory() < full, "{} of {full} bytes", set.memory());
        set.assert_valid();
    }

    proptest::proptest! {
        #![proptest_config(proptest::prelude::ProptestConfig::with_cases(if cfg!(miri) { 2 } else { 64 }))]

        /// Detached members are absent, also those that were added again, whatever is freed when.
        #[test]
        fn detached_members_are_absent(
            steps in proptest::collection::vec((0..10_u8, 0..90_u8, 0..9_u8), 1..400),
        ) {
            let (mut set, mut oracle) = (numbers(60), BTreeMap::new());
            oracle.extend((0..60_u32).map(|number| (number, f64::from(number))));
            for (kind, number, other) in steps {
                let (number, score) = (u32::from(number), f64::from(other));
                let member = number.to_be_bytes();
                match kind {
                    0..4 => {
                        set.insert(&member, score).expect("a number, and room");
                        oracle.insert(number, score);
                    }
                    4 => assert_eq!(set.remove(&member), oracle.remove(&number)),
                    5 => _ = set.free_detached(usize::from(other)),
                    6 => set = set.clone(),
                    _ => {
                        let first = (set.len() * usize::from(other) / 9) as i64;
                        let bounds = Bounds::Rank(first, first + i64::from(number) / 4);
                        for (member, _) in set.range(bounds, Direction::Ascending) {
                            oracle.remove(&u32::from_be_bytes(member.try_into().expect("4 bytes")));
                        }
                        set.detach_range(bounds);
                    }
                }
                assert_eq!(set.len(), oracle.len());
                for number in 0..90_u32 {
                    assert_eq!(set.score(&number.to_be_bytes()), oracle.get(&number).copied());
                }
                let mut scanned = 0;
                assert_eq!(set.scan(0, usize::MAX, |_, _| scanned += 1), 0);
                assert_eq!(scanned, oracle.len());
                set.assert_valid();
            }
            while set.free_detached(1) {}
            // Also what a removal that emptied the set has left.
            while set.drop_some(1) {}
            assert_eq!(set.memory(), 0);
        }
    }

    /// What `drop_some` has left is not freed at once by a removal of what was added meanwhile.
    #[test]
    fn a_removal_that_empties_the_set_keeps_the_remains() {
        type Removal = fn(&mut SortedSet);
        let removals: [Removal; 3] = [
            |set| assert_eq!(set.remove(b"new"), Some(1.0)),
            |set| assert_eq!(set.pop_many(Direction::Descending, 2).len(), 1),
            |set| assert_eq!(set.remove_range(Bounds::ALL), 1),
        ];
        for remove in removals {
            let mut set = numbers(1_000);
            assert!(set.drop_some(1) && set.is_empty());
            let before = set.memory();
            set.insert(b"new", 1.0).expect("a number, and room");
            remove(&mut set);
            assert!(set.is_empty());
            let kept = set.memory();
            assert!(kept > before - before / 10, "{before} bytes, then {kept}");
            set.insert(b"stays", 1.0).expect("a number, and room");
            let mut steps = 0;
            while set.drop_some(1) {
                steps += 1;
            }
            assert!(steps > 100, "{steps}");
            assert_eq!(set.score(b"stays"), Some(1.0));
            set.clear();
            assert_eq!(set.memory(), 0);
        }
    }
}
