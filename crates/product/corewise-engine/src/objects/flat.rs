//! Flat sets: small sorted sets in the value of an item.
//!
//! ```text
//! [score 8, little endian | length of the member 1 | member]*     sorted by (score, member)
//! ```

use corewise_nr::sorted_set::{Bounds, Direction};
use std::cmp::Ordering;
use std::ops::{Bound, Range};

/// The most bytes of a flat set.
pub(super) const MOST_BYTES: usize = 1 << 10;
/// The longest member of a flat set.
pub(super) const LONGEST_MEMBER: usize = 64;
/// Bytes before a member.
const HEAD: usize = 9;
/// The most members.
const MOST_MEMBERS: usize = MOST_BYTES / HEAD;

/// The entry at `start`: the score, the member, and where the next entry begins.
fn entry(bytes: &[u8], start: usize) -> (f64, &[u8], usize) {
    let mut score = [0; 8];
    score.copy_from_slice(&bytes[start..start + 8]);
    let member = start + HEAD;
    let end = member + usize::from(bytes[start + 8]);
    (f64::from_le_bytes(score), &bytes[member..end], end)
}

/// The order of entries. Scores are numbers, and -0 equals 0.
fn order(a: (f64, &[u8]), b: (f64, &[u8])) -> Ordering {
    let scores = a.0.partial_cmp(&b.0).unwrap_or(Ordering::Equal);
    scores.then_with(|| a.1.cmp(b.1))
}

/// Where a member is in a flat set.
#[derive(Clone, Copy)]
struct Found {
    start: usize,
    end: usize,
    rank: usize,
    score: f64,
}

fn find(bytes: &[u8], wanted: &[u8]) -> Option<Found> {
    let (mut start, mut rank) = (0, 0);
    while start < bytes.len() {
        let (score, member, end) = entry(bytes, start);
        if member == wanted {
            return Some(Found {
                start,
                end,
                rank,
                score,
            });
        }
        (start, rank) = (end, rank + 1);
    }
    None
}

/// The score of a member, and the number of members before it.
pub(super) fn score_and_rank(bytes: &[u8], member: &[u8]) -> Option<(f64, usize)> {
    find(bytes, member).map(|found| (found.score, found.rank))
}

/// Adds a member that is absent. Returns false if there is no room.
pub(super) fn add(bytes: &mut Vec<u8>, member: &[u8], score: f64) -> bool {
    let len = HEAD + member.len();
    if member.len() > LONGEST_MEMBER || bytes.len() + len > MOST_BYTES {
        return false;
    }
    let mut at = 0;
    while at < bytes.len() {
        let (other, name, end) = entry(bytes, at);
        if order((other, name), (score, member)) == Ordering::Greater {
            break;
        }
        at = end;
    }
    let old_len = bytes.len();
    bytes.resize(old_len + len, 0);
    bytes.copy_within(at..old_len, at + len);
    bytes[at..at + 8].copy_from_slice(&score.to_le_bytes());
    bytes[at + 8] = member.len() as u8;
    bytes[at + HEAD..at + len].copy_from_slice(member);
    true
}

/// Whether all of these members can be added, one after the other.
pub(super) fn has_room<'m>(bytes: &[u8], members: impl Iterator<Item = &'m [u8]>) -> bool {
    let mut len = bytes.len();
    { members }.all(|member| {
        len += HEAD + member.len();
        member.len() <= LONGEST_MEMBER && len <= MOST_BYTES
    })
}

/// Removes a member. Returns whether it was there.
pub(super) fn remove(bytes: &mut Vec<u8>, member: &[u8]) -> bool {
    let Some(found) = find(bytes, member) else {
        return false;
    };
    bytes.drain(found.start..found.end);
    true
}

/// Removes the members within the bounds; returns their number.
pub(super) fn remove_range(bytes: &mut Vec<u8>, bounds: Bounds<'_>) -> usize {
    let view = FlatView::new(bytes);
    let ranks = view.ranks(bounds, Direction::Ascending);
    let place = |rank: usize| match view.starts[..view.len].get(rank) {
        Some(start) => usize::from(*start),
        None => bytes.len(),
    };
    let removed = place(ranks.start)..place(ranks.end);
    bytes.drain(removed);
    ranks.len()
}

/// Every entry in its order.
pub(super) fn entries(bytes: &[u8]) -> impl Iterator<Item = (f64, &[u8])> {
    let mut start = 0;
    std::iter::from_fn(move || {
        if start == bytes.len() {
            return None;
        }
        let (score, member, end) = entry(bytes, start);
        start = end;
        Some((score, member))
    })
}

/// A flat set with the places of its entries.
#[derive(Clone, Copy)]
pub(super) struct FlatView<'f> {
    bytes: &'f [u8],
    starts: [u16; MOST_MEMBERS],
    len: usize,
}

impl<'f> FlatView<'f> {
    pub(super) fn new(bytes: &'f [u8]) -> Self {
        let mut view = Self {
            bytes,
            starts: [0; MOST_MEMBERS],
            len: 0,
        };
        let mut start = 0;
        while start < bytes.len() {
            view.starts[view.len] = start as u16;
            view.len += 1;
            start = entry(bytes, start).2;
        }
        view
    }

    /// The member of a rank, and its score.
    pub(super) fn at(&self, rank: usize) -> (&'f [u8], f64) {
        let (score, member, _) = entry(self.bytes, self.starts[rank].into());
        (member, score)
    }

    /// The number of members before the first one that is not `below`, as the order has them.
    fn partition(&self, below: impl Fn((&[u8], f64)) -> bool) -> usize {
        self.starts[..self.len].partition_point(|start| {
            below({
                let (score, member, _) = entry(self.bytes, (*start).into());
                (member, score)
            })
        })
    }

    /// The ranks, in ascending order, of the members within the bounds, as
    /// [`SortedSet::range`](corewise_nr::sorted_set::SortedSet::range) has them.
    pub(super) fn ranks(&self, bounds: Bounds<'_>, direction: Direction) -> Range<usize> {
        let (start, end) = match bounds {
            Bounds::Rank(first, last) => {
                let len = self.len as i64;
                let absolute = |rank: i64| if rank < 0 { rank + len } else { rank };
                let first = absolute(first).clamp(0, len);
                let end = absolute(last).saturating_add(1).clamp(0, len).max(first);
                let (first, end) = match direction {
                    Direction::Ascending => (first, end),
                    Direction::Descending => (len - end, len - first),
                };
                (first as usize, end as usize)
            }
            Bounds::Score(lower, upper) => {
                if [lower, upper].iter().any(is_nan) {
                    return 0..0;
                }
                let below = |end: f64, or_equal: bool| {
                    self.partition(|(_, score)| score < end || (or_equal && score == end))
                };
                self.between(lower, upper, below)
            }
            Bounds::Lex(lower, upper) => {
                let lowest = if self.len == 0 { 0.0 } else { self.at(0).1 };
                let below = |end: &[u8], or_equal: bool| {
                    self.partition(|(member, score)| {
                        score == lowest && (member < end || (or_equal && member == end))
                    })
                };
                self.between(lower, upper, below)
            }
        };
        start..end.max(start)
    }

    fn between<T>(
        &self,
        lower: Bound<T>,
        upper: Bound<T>,
        below: impl Fn(T, bool) -> usize,
    ) -> (usize, usize) {
        let start = match lower {
            Bound::Included(end) => below(end, false),
            Bound::Excluded(end) => below(end, true),
            Bound::Unbounded => 0,
        };
        let end = match upper {
            Bound::Included(end) => below(end, true),
            Bound::Excluded(end) => below(end, false),
            Bound::Unbounded => self.len,
        };
        (start, end)
    }
}

fn is_nan(bound: &Bound<f64>) -> bool {
    matches!(bound, Bound::Included(end) | Bound::Excluded(end) if end.is_nan())
}
