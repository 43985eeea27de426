//! `SortedSet` against a sorted vector, over random operations; and what its documentation
//! promises.
#![cfg(not(any(corewise_loom, corewise_shuttle)))]

use std::cmp::Ordering;
use std::ops::Bound;

use corewise_nr::Sequential;
use corewise_nr::sorted_set::operation::{self, Read, Response, ScoredMember, Write};
use corewise_nr::sorted_set::{
    Bounds, Conditions, Direction, Inserted, Presence, ScoreChange, SortedSet, SortedSetError,
};
use corewise_testkit::random::{Random, is_short};

use Direction::{Ascending, Descending};

fn fewer() -> usize {
    if is_short() { 8 } else { 1 }
}

/// The specification: a vector that is searched from its start.
#[derive(Clone, Debug, Default)]
struct Oracle {
    entries: Vec<ScoredMember>,
    limit: usize,
}

fn order(a: &ScoredMember, b: &ScoredMember) -> Ordering {
    let by_score = a.1.partial_cmp(&b.1).expect("no score is NaN");
    by_score.then_with(|| a.0.cmp(&b.0))
}

fn is_inside<T: PartialOrd + ?Sized>(value: &T, lower: Bound<&T>, upper: Bound<&T>) -> bool {
    let is_above = match lower {
        Bound::Included(lower) => value >= lower,
        Bound::Excluded(lower) => value > lower,
        Bound::Unbounded => true,
    };
    let is_below = match upper {
        Bound::Included(upper) => value <= upper,
        Bound::Excluded(upper) => value < upper,
        Bound::Unbounded => true,
    };
    is_above && is_below
}

impl Oracle {
    fn position(&self, member: &[u8]) -> Option<usize> {
        self.entries.iter().position(|entry| *entry.0 == *member)
    }

    fn put(&mut self, member: &[u8], score: f64) {
        if let Some(at) = self.position(member) {
            self.entries.remove(at);
        }
        let entry = (member.into(), score);
        let at = self
            .entries
            .partition_point(|other| order(other, &entry).is_lt());
        self.entries.insert(at, entry);
    }

    fn directed(&self, direction: Direction) -> Vec<ScoredMember> {
        let mut entries = self.entries.clone();
        if direction == Descending {
            entries.reverse();
        }
        entries
    }

    /// As Redis defines it, see the documentation of `ZRANGE`.
    fn range(&self, bounds: &operation::OwnedBounds, direction: Direction) -> Vec<ScoredMember> {
        let entries = self.directed(direction);
        let len = entries.len() as i64;
        let lowest = self.entries.first().map(|entry| entry.1);
        let is_wanted = |(rank, entry): &(usize, ScoredMember)| match bounds {
            operation::OwnedBounds::Rank(first, last) => {
                let absolute = |rank: i64| if rank < 0 { rank + len } else { rank };
                (absolute(*first)..=absolute(*last)).contains(&(*rank as i64))
            }
            operation::OwnedBounds::Score(lower, upper) => {
                is_inside(&entry.1, lower.as_ref(), upper.as_ref())
            }
            operation::OwnedBounds::Lex(lower, upper) if Some(entry.1) == lowest => {
                is_inside(&entry.0, lower.as_ref(), upper.as_ref())
            }
            // Above all members that have the lowest score.
            operation::OwnedBounds::Lex(_, upper) => *upper == Bound::Unbounded,
        };
        let wanted = entries.into_iter().enumerate().filter(is_wanted);
        wanted.map(|(_, entry)| entry).collect()
    }

    fn insert(&mut self, member: &[u8], score: f64, conditions: Conditions) -> Response {
        let old = self.position(member).map(|at| self.entries[at].1);
        Response::Inserted(match old {
            _ if score.is_nan() => Err(SortedSetError::NotANumber),
            None if conditions.presence == Presence::Present => Ok(Inserted::Refused),
            None if self.entries.len() >= self.limit => Err(SortedSetError::Full),
            None => {
                self.put(member, score);
                Ok(Inserted::Added)
            }
            Some(_) if conditions.presence == Presence::Absent => Ok(Inserted::Refused),
            Some(old) if conditions.change == ScoreChange::Greater && score <= old => {
                Ok(Inserted::Refused)
            }
            Some(old) if conditions.change == ScoreChange::Less && score >= old => {
                Ok(Inserted::Refused)
            }
            Some(old) if old == score => Ok(Inserted::Unchanged),
            Some(old) => {
                self.put(member, score);
                Ok(Inserted::Changed { old })
            }
        })
    }

    fn increment(&mut self, member: &[u8], delta: f64, conditions: Conditions) -> Response {
        let old = self.position(member).map(|at| self.entries[at].1);
        if delta.is_nan() {
            return Response::Incremented(Err(SortedSetError::NotANumber));
        }
        if old.is_some() && conditions.presence == Presence::Absent {
            return Response::Incremented(Ok(None));
        }
        let score = old.map_or(delta, |old| old + delta);
        Response::Incremented(match self.insert(member, score, conditions) {
            Response::Inserted(Ok(Inserted::Refused)) => Ok(None),
            Response::Inserted(Ok(_)) => Ok(Some(score)),
            Response::Inserted(Err(error)) => Err(error),
            other => panic!("{other:?}"),
        })
    }

    fn write(&mut self, write: &Write) -> Response {
        match write {
            Write::Insert {
                member,
                score,
                conditions,
            } => self.insert(member, *score, *conditions),
            Write::Increment {
                member,
                delta,
                conditions,
            } => self.increment(member, *delta, *conditions),
            Write::Remove(member) => {
                let at = self.position(member);
                Response::Score(at.map(|at| self.entries.remove(at).1))
            }
            Write::RemoveRange(bounds) => {
                let removed = self.range(bounds, Ascending);
                self.entries.retain(|entry| !removed.contains(entry));
                Response::Count(removed.len())
            }
            Write::Pop { direction, count } => {
                let popped: Vec<ScoredMember> =
                    self.directed(*direction).into_iter().take(*count).collect();
                self.entries.retain(|entry| !popped.contains(entry));
                Response::Entries(popped)
            }
            Write::Clear => Response::Count(std::mem::take(&mut self.entries).len()),
        }
    }

    fn read(&self, read: &Read) -> Response {
        match read {
            Read::Len => Response::Count(self.entries.len()),
            Read::Score(member) => {
                Response::Score(self.position(member).map(|at| self.entries[at].1))
            }
            Read::Rank(member, direction) => {
                let entries = self.directed(*direction);
                let rank = entries.iter().position(|entry| entry.0 == *member);
                Response::Rank(rank.map(|rank| (rank, entries[rank].1)))
            }
            Read::At(rank, direction) => {
                let entry = self.directed(*direction).get(*rank).cloned();
                Response::Entries(entry.into_iter().collect())
            }
            Read::Count(bounds) => Response::Count(self.range(bounds, Ascending).len()),
            Read::Range {
                bounds,
                direction,
                offset,
                limit,
            } => {
                let range = self.range(bounds, *direction).into_iter();
                Response::Entries(range.skip(*offset).take(*limit).collect())
            }
            Read::Scan { .. } => unreachable!("scans are tested on their own"),
        }
    }
}

/// What random operations are made of.
struct Workload {
    random: Random,
    members: usize,
    scores: Vec<f64>,
    /// Percent of the writes that insert or increment.
    growth: usize,
}

const SPECIAL: [f64; 10] = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    1.5,
    f64::INFINITY,
    f64::NEG_INFINITY,
    f64::MAX,
    f64::MIN_POSITIVE,
    f64::NAN,
];

impl Workload {
    /// Scores are special ones, a few equal ones, all equal, or many.
    fn new(seed: u64, members: usize) -> Self {
        let mut random = Random::from_seed(seed * 2 + 1);
        let scores = match seed % 4 {
            0 => SPECIAL.to_vec(),
            1 => vec![7.0],
            2 => (0..6).map(|score| f64::from(score) - 3.0).collect(),
            _ => (0..1000)
                .map(|_| random.below(1 << 40) as f64 / 1e6)
                .collect(),
        };
        let growth = 60;
        Self {
            random,
            members,
            scores,
            growth,
        }
    }

    /// Short and long members, many with a common prefix; one is empty.
    fn member(&mut self) -> Box<[u8]> {
        let number = self.random.index(self.members);
        let text = match number % 3 {
            0 => format!("{number}"),
            1 => format!("member:{number:08}"),
            _ => format!("{:x>1$}", number, 20 + number % 7),
        };
        if number == 0 {
            Box::default()
        } else {
            text.into_bytes().into()
        }
    }

    fn bound<T>(&mut self, value: T) -> Bound<T> {
        match self.random.index(5) {
            0 => Bound::Unbounded,
            1 | 2 => Bound::Excluded(value),
            _ => Bound::Included(value),
        }
    }

    fn bounds(&mut self) -> operation::OwnedBounds {
        match self.random.index(3) {
            0 => {
                let span = self.members as i64 + 3;
                let mut rank = || self.random.below(2 * span as u64) as i64 - span;
                operation::OwnedBounds::Rank(rank(), rank())
            }
            1 => {
                let (lower, upper) = (self.score(), self.score());
                operation::OwnedBounds::Score(self.bound(lower), self.bound(upper))
            }
            _ => {
                let (lower, upper) = (self.member(), self.member());
                operation::OwnedBounds::Lex(self.bound(lower), self.bound(upper))
            }
        }
    }

    /// A narrow part, so that the set is not emptied all the time.
    fn few(&mut self) -> operation::OwnedBounds {
        let first = self.random.index(self.members) as i64;
        operation::OwnedBounds::Rank(first, first + self.random.index(4) as i64)
    }

    fn score(&mut self) -> f64 {
        self.random.choose(&self.scores)
    }

    fn conditions(&mut self) -> Conditions {
        let presence = self.random.choose(&[
            Presence::Any,
            Presence::Any,
            Presence::Absent,
            Presence::Present,
        ]);
        let change = self.random.choose(&[
            ScoreChange::Any,
            ScoreChange::Any,
            ScoreChange::Greater,
            ScoreChange::Less,
        ]);
        Conditions { presence, change }
    }

    fn direction(&mut self) -> Direction {
        self.random.choose(&[Ascending, Descending])
    }

    fn write(&mut self) -> Write {
        let (member, score) = (self.member(), self.score());
        let conditions = if self.random.index(100) < 70 {
            Conditions::default()
        } else {
            self.conditions()
        };
        if self.random.index(100) < self.growth {
            return if self.random.index(100) < 70 {
                Write::Insert {
                    member,
                    score,
                    conditions,
                }
            } else {
                let delta = score;
                Write::Increment {
                    member,
                    delta,
                    conditions,
                }
            };
        }
        match self.random.index(100) {
            0..80 => Write::Remove(member),
            80..89 => Write::RemoveRange(self.few()),
            89 => Write::RemoveRange(self.bounds()),
            90 if self.random.index(100) < 10 => Write::Clear,
            _ => {
                let (direction, count) = (self.direction(), self.random.index(3));
                Write::Pop { direction, count }
            }
        }
    }

    fn read(&mut self) -> Read {
        match self.random.index(7) {
            0 => Read::Len,
            1 => Read::Score(self.member()),
            2 => Read::Rank(self.member(), self.direction()),
            3 => Read::At(self.random.index(self.members + 2), self.direction()),
            4 => Read::Count(self.bounds()),
            _ => Read::Range {
                bounds: self.bounds(),
                direction: self.direction(),
                offset: if self.random.index(100) < 50 {
                    0
                } else {
                    self.random.index(20)
                },
                limit: if self.random.index(100) < 50 {
                    usize::MAX
                } else {
                    self.random.index(20)
                },
            },
        }
    }
}

/// Every member in both directions; `rank` and `at` are inverse.
fn assert_equal(set: &SortedSet, oracle: &Oracle) {
    set.assert_valid();
    assert_eq!(set.len(), oracle.entries.len());
    assert!(
        set.iter()
            .map(|(member, score)| (member.into(), score))
            .eq(oracle.entries.clone())
    );
    let reversed: Vec<_> = set.range(Bounds::ALL, Descending).collect();
    assert!(set.iter().rev().eq(reversed));
    for (rank, (member, score)) in set.iter().enumerate() {
        let other = set.len() - 1 - rank;
        assert_eq!(set.rank(member, Ascending), Some(rank));
        assert_eq!(set.rank(member, Descending), Some(other));
        assert_eq!(set.at(rank, Ascending), Some((member, score)));
        assert_eq!(set.at(other, Descending), Some((member, score)));
        assert_eq!(set.score(member), Some(score));
    }
    assert_eq!(set.at(set.len(), Ascending), None);
    assert_eq!(set.at(usize::MAX, Descending), None);
}

/// Executes a write on both, also as a read if it changes nothing.
fn write_both(set: &mut SortedSet, oracle: &mut Oracle, write: &Write, digest: bool) {
    let as_read = set.write_as_read(write);
    let before = (digest && as_read.is_some()).then(|| set.digest());
    let response = set.write(write);
    assert_eq!(response, oracle.write(write), "{write:?}");
    if let Some(as_read) = as_read {
        assert_eq!(as_read, response, "{write:?} as a read");
    }
    if let Some(before) = before {
        assert_eq!(before, set.digest(), "{write:?} changed the set");
    }
}

#[test]
fn small_sets_are_right_after_every_step() {
    for seed in 0..640 / fewer() as u64 {
        let members = 1 + seed as usize % 24;
        let mut workload = Workload::new(seed, members);
        let limit = if seed % 5 == 0 {
            members / 2 + 1
        } else {
            usize::MAX
        };
        let mut set = SortedSet::with_limit(limit);
        let mut oracle = Oracle {
            limit,
            ..Oracle::default()
        };
        for _ in 0..150 {
            let write = workload.write();
            write_both(&mut set, &mut oracle, &write, true);
            let read = workload.read();
            assert_eq!(set.read(&read), oracle.read(&read), "{read:?} in {set:?}");
            assert_equal(&set, &oracle);
        }
    }
}

/// Grows and shrinks in turns, so that nodes split and merge, and the slab is compacted.
#[test]
fn larger_sets_grow_and_shrink() {
    for seed in 0..24 / fewer() as u64 + 1 {
        let members = [200, 700, 2_000, 300][seed as usize % 4] / fewer() + 50;
        let mut workload = Workload::new(seed + 5, members);
        let (mut set, mut oracle) = (
            SortedSet::new(),
            Oracle {
                limit: usize::MAX,
                ..Oracle::default()
            },
        );
        for phase in 0..6 {
            workload.growth = if phase % 2 == 0 { 95 } else { 20 };
            for _ in 0..members {
                let write = workload.write();
                write_both(&mut set, &mut oracle, &write, false);
                if workload.random.index(100) < 10 {
                    let read = workload.read();
                    assert_eq!(set.read(&read), oracle.read(&read), "{read:?}");
                }
            }
            assert_equal(&set, &oracle);
        }
    }
}

/// Thousands of members in several orders of insertion and removal; several levels of nodes.
#[test]
fn orders_of_insertion_and_removal() {
    let count = 12_000 / fewer();
    let name = |number: usize| format!("member:{number:08}").into_bytes();
    type Order = fn(usize, usize) -> usize;
    let orders: [(&str, Order); 4] = [
        ("ascending", |i, _| i),
        ("descending", |i, n| n - 1 - i),
        ("scattered", |i, n| i * 7_919 % n),
        ("from both ends", |i, n| {
            if i % 2 == 0 { i / 2 } else { n - 1 - i / 2 }
        }),
    ];
    for (inserting, insert_order) in orders {
        for equal_scores in [false, true] {
            let mut set = SortedSet::new();
            for i in 0..count {
                let number = insert_order(i, count);
                let score = if equal_scores { 0.0 } else { number as f64 };
                assert_eq!(set.insert(&name(number), score), Ok(Inserted::Added));
            }
            set.assert_valid();
            let expected = (0..count).map(name);
            assert!(
                set.iter().map(|(member, _)| member.to_vec()).eq(expected),
                "{inserting}"
            );
            for (removing, remove_order) in orders {
                let mut set = set.clone();
                for i in 0..count {
                    let number = remove_order(i, count);
                    if i % (count / 8) == 0 {
                        set.assert_valid();
                    }
                    assert!(
                        set.remove(&name(number)).is_some(),
                        "{inserting}, {removing}"
                    );
                }
                assert!(set.is_empty() && set.memory() == 0);
            }
        }
    }
}

#[test]
fn ranges_of_all_kinds_are_removed() {
    for count in [1, 5, 100, 3_000 / fewer()] {
        for first in [0, 1, count / 3, count - 1] {
            for removed in [1, 2, count / 9, count / 2, count] {
                let mut set = SortedSet::new();
                for number in 0..count {
                    set.insert(&number.to_be_bytes(), number as f64).unwrap();
                }
                let end = (first + removed).min(count);
                let bounds =
                    Bounds::Score(Bound::Included(first as f64), Bound::Excluded(end as f64));
                assert_eq!(set.remove_range(bounds), end - first);
                set.assert_valid();
                let left: Vec<f64> = set.iter().map(|(_, score)| score).collect();
                let expected: Vec<f64> = (0..first)
                    .chain(end..count)
                    .map(|number| number as f64)
                    .collect();
                assert_eq!(left, expected);
            }
        }
    }
}

#[test]
fn negative_zero_is_kept_and_equals_zero() {
    let mut set = SortedSet::new();
    set.insert(b"b", -0.0).unwrap();
    set.insert(b"a", 0.0).unwrap();
    assert_eq!(set.insert(b"b", 0.0), Ok(Inserted::Unchanged));
    let scores: Vec<_> = set
        .iter()
        .map(|(member, score)| (member, score.to_bits()))
        .collect();
    assert_eq!(
        scores,
        [(&b"a"[..], 0.0_f64.to_bits()), (b"b", (-0.0_f64).to_bits())]
    );
    assert_eq!(
        set.count(Bounds::Score(Bound::Included(0.0), Bound::Included(-0.0))),
        2
    );
    assert_eq!(
        set.count(Bounds::Score(Bound::Excluded(-0.0), Bound::Unbounded)),
        0
    );
    let if_greater = Conditions {
        change: ScoreChange::Greater,
        ..Conditions::default()
    };
    assert_eq!(set.insert_if(b"b", 0.0, if_greater), Ok(Inserted::Refused));
}

#[test]
fn a_score_that_is_not_a_number_is_an_error() {
    let mut set = SortedSet::new();
    assert_eq!(set.insert(b"a", f64::NAN), Err(SortedSetError::NotANumber));
    assert_eq!(
        set.increment(b"a", f64::NAN),
        Err(SortedSetError::NotANumber)
    );
    set.insert(b"a", f64::INFINITY).unwrap();
    assert_eq!(
        set.increment(b"a", f64::NEG_INFINITY),
        Err(SortedSetError::NotANumber)
    );
    assert_eq!(set.score(b"a"), Some(f64::INFINITY));
    for nan in [Bound::Included(f64::NAN), Bound::Excluded(f64::NAN)] {
        assert_eq!(set.count(Bounds::Score(nan, Bound::Unbounded)), 0);
        assert_eq!(set.count(Bounds::Score(Bound::Unbounded, nan)), 0);
    }
    set.assert_valid();
}

#[test]
fn a_full_set_refuses_new_members_only() {
    let mut set = SortedSet::with_limit(2);
    set.insert(b"a", 1.0).unwrap();
    set.insert(b"b", 2.0).unwrap();
    assert_eq!(set.insert(b"c", 3.0), Err(SortedSetError::Full));
    assert_eq!(set.increment(b"c", 3.0), Err(SortedSetError::Full));
    assert_eq!(set.increment(b"a", 3.0), Ok(4.0));
    set.assert_valid();
    set.clear();
    set.insert(b"c", 3.0).unwrap();
    set.insert(b"d", 3.0).unwrap();
    assert_eq!(set.insert(b"a", 1.0), Err(SortedSetError::Full));
}

/// `nth` from both ends, mixed with single steps, in both directions.
#[test]
fn ranges_skip_from_both_ends() {
    let mut set = SortedSet::new();
    for number in 0..1_000_u32 {
        set.insert(&number.to_be_bytes(), f64::from(number))
            .unwrap();
    }
    let all: Vec<_> = set.iter().collect();
    let mut random = Random::from_seed(3);
    for _ in 0..200 {
        let (first, last) = (random.index(1_000), random.index(1_000));
        let bounds = Bounds::Rank(first as i64, last as i64);
        let mut expected = all[first.min(last + 1)..=last.max(first.saturating_sub(1))].iter();
        if first > last {
            expected = [].iter();
        }
        let mut range = set.range(bounds, Ascending);
        while expected.len() > 0 {
            let n = if random.index(100) < 60 {
                0
            } else {
                random.index(60)
            };
            if random.index(100) < 50 {
                assert_eq!(range.nth(n), expected.nth(n).copied());
            } else {
                assert_eq!(range.nth_back(n), expected.nth_back(n).copied());
            }
            assert_eq!(range.len(), expected.len());
        }
        assert_eq!(
            (range.next(), range.next_back(), range.nth(50)),
            (None, None, None)
        );
    }
    let last = set.range(Bounds::Rank(100, 299), Descending).nth(199);
    assert_eq!(last, Some(all[700]));
    let lowest = set.range(Bounds::Rank(0, -1), Descending).nth_back(10);
    assert_eq!(lowest, Some(all[10]));
}

/// Members that stay are visited, whatever happens between two calls, compactions included.
#[test]
fn a_scan_visits_members_that_stay() {
    for seed in 1..40 / fewer() as u64 + 2 {
        let mut random = Random::from_seed(seed);
        let mut set = SortedSet::new();
        for number in 0..600_u32 {
            set.insert(&number.to_be_bytes(), f64::from(number))
                .unwrap();
        }
        // The even ones below a bound stay.
        let stays = |number: u32| number.is_multiple_of(2) && u64::from(number) < 30 * seed;
        let mut seen = std::collections::HashSet::new();
        let mut cursor = 0;
        let mut leaving: Vec<u32> = (0..600).filter(|&number| !stays(number)).collect();
        loop {
            cursor = set.scan(cursor, 1 + random.index(60), |member, score| {
                let number = u32::from_be_bytes(member.try_into().unwrap());
                if number < 600 {
                    assert_eq!(score, f64::from(number));
                }
                seen.insert(number);
            });
            if cursor == 0 {
                break;
            }
            for _ in 0..random.index(120).min(leaving.len()) {
                let number = leaving.swap_remove(random.index(leaving.len()));
                assert!(set.remove(&number.to_be_bytes()).is_some());
            }
            if random.index(100) < 30 {
                let number = 10_000 + random.index(1_000) as u32;
                set.insert(&number.to_be_bytes(), -1.0).unwrap();
            }
            set.assert_valid();
        }
        let missed = (0..600).find(|number| stays(*number) && !seen.contains(number));
        assert_eq!(missed, None, "seed {seed}");
    }
}

#[test]
fn a_scan_of_an_unchanged_set_visits_each_member_once() {
    let mut set = SortedSet::new();
    assert_eq!(set.scan(0, 10, |_, _| panic!("there is no member")), 0);
    for number in 0..100_u8 {
        set.insert(&[number], 0.0).unwrap();
    }
    for count in [0, 1, 7, 100, usize::MAX] {
        let (mut cursor, mut visits) = (0, vec![0; 100]);
        loop {
            cursor = set.scan(cursor, count, |member, _| {
                visits[usize::from(member[0])] += 1
            });
            if cursor == 0 {
                break;
            }
        }
        assert_eq!(visits, vec![1; 100]);
    }
    // Cursors that no scan returned: a part of the set, and nothing.
    let mut found = 0;
    assert_eq!(set.scan(1 << 47, 1_000, |_, _| found += 1), 0);
    assert!((1..100).contains(&found));
    assert_eq!(
        set.scan(u64::MAX, 1_000, |_, _| panic!("it is too high")),
        0
    );
}

/// Replicas: a clone that executes the same operations gives the same cursors.
#[test]
fn clones_agree_on_cursors() {
    for seed in 0..16 {
        let mut workload = Workload::new(seed, 300);
        let mut set = SortedSet::new();
        let mut clone = set.clone();
        let mut cursor = 0;
        for step in 0..1_500 / fewer() {
            workload.growth = if step / 300 % 2 == 0 { 90 } else { 20 };
            if step % 100 == 50 {
                clone = set.clone();
            }
            let write = workload.write();
            assert_eq!(set.write(&write), clone.write(&write));
            let scan = Read::Scan { cursor, count: 10 };
            let response = set.read(&scan);
            assert_eq!(response, clone.read(&scan));
            if let Response::Scanned { cursor: next, .. } = response {
                cursor = next;
            }
        }
        assert_eq!(set.digest(), clone.digest());
        set.write(&Write::Insert {
            member: (*b"another").into(),
            score: 1.0,
            conditions: Conditions::default(),
        });
        assert_ne!(set.digest(), clone.digest());
    }
}

/// Guarantee 3, for sets that share no history as clones do.
#[test]
fn sets_of_one_seed_and_history_agree_on_cursors() {
    for seed in 0..8 {
        let mut workload = Workload::new(seed, 300);
        let [mut set, mut other, mut unlike] =
            [seed, seed, seed + 1].map(|seed| SortedSet::with_seed(usize::MAX, seed));
        let (mut cursor, mut differs) = (0, false);
        for step in 0..1_200 / fewer() {
            workload.growth = if step / 300 % 2 == 0 { 90 } else { 20 };
            let write = workload.write();
            let response = set.write(&write);
            assert_eq!(response, other.write(&write));
            assert_eq!(response, unlike.write(&write));
            let scan = Read::Scan { cursor, count: 10 };
            let response = set.read(&scan);
            assert_eq!(response, other.read(&scan));
            differs |= response != unlike.read(&scan);
            if let Response::Scanned { cursor: next, .. } = response {
                cursor = next;
            }
            if step % 50 == 0 {
                assert_eq!(set.digest(), other.digest());
            }
        }
        assert!(differs, "the seed is not used");
        assert_eq!(set.digest(), other.digest());
    }
}

/// The members in the order of a scan, which is that of their hashes.
fn scanned(set: &SortedSet) -> Vec<u8> {
    let mut order = Vec::new();
    set.scan(0, usize::MAX, |member, _| order.push(member[0]));
    order
}

#[test]
fn a_set_that_is_emptied_keeps_its_seed() {
    fn fill(mut set: SortedSet) -> SortedSet {
        for number in 0..100_u8 {
            set.insert(&[number], f64::from(number)).unwrap();
        }
        set
    }
    let emptied: [fn(&mut SortedSet); 6] = [
        |set| set.clear(),
        |set| assert_eq!(set.remove_range(Bounds::ALL), 100),
        |set| assert_eq!(set.pop_many(Ascending, 100).len(), 100),
        |set| (0..100).for_each(|number| assert!(set.remove(&[number]).is_some())),
        |set| while set.drop_some(1) {},
        |set| assert!(set.drop_some(1)),
    ];
    let expected = scanned(&fill(SortedSet::with_seed(100, 7)));
    assert_ne!(expected, scanned(&fill(SortedSet::new())));
    for empty in emptied {
        let mut set = fill(SortedSet::with_seed(100, 7));
        empty(&mut set);
        assert!(set.is_empty());
        let mut set = fill(set);
        assert_eq!(scanned(&set), expected);
        assert_eq!(set.insert(b"too many", 1.0), Err(SortedSetError::Full));
        set.assert_valid();
    }
}

/// Of members that are there, of others, and of none; whatever the size of the set.
#[test]
fn prefetching_changes_nothing() {
    let long = vec![b'x'; 100_000];
    let absent: [&[u8]; 4] = [b"", b"absent", &[0xff; 16], &long];
    let mut set = SortedSet::new();
    set.prefetch(absent.into_iter());
    assert_eq!(set.memory(), 0);
    let name = |number: u32| format!("{number:016}").into_bytes();
    for count in [1, 2, 100, 4_000 / fewer() as u32] {
        for number in 0..count {
            set.insert(&name(number), f64::from(number)).unwrap();
        }
        for of_special in [false, true] {
            if of_special {
                set.insert(b"", 0.5).unwrap();
                set.insert(&long, 0.5).unwrap();
            }
            let (digest, memory) = (set.digest(), set.memory());
            let members: Vec<_> = (0..count + 50).map(name).collect();
            set.prefetch(std::iter::empty());
            set.prefetch(members.iter().map(Vec::as_slice).chain(absent));
            assert_eq!((set.digest(), set.memory()), (digest, memory));
        }
    }
    while set.pop(Descending).is_some() {}
    set.prefetch(absent.into_iter());
    assert_eq!(set.memory(), 0);
}

/// Guarantee 4, in requested bytes.
#[test]
fn memory_follows_the_size() {
    /// More than the slab and the hash table for 64 members and a few nodes of the tree occupy.
    const SMALLEST: f64 = 8_192.0;
    let mut set = SortedSet::new();
    assert_eq!(set.memory(), 0);
    let count = 40_000 / fewer() as u32;
    let name = |number: u32| format!("{number:016}").into_bytes();
    for number in 0..count {
        // In a scattered order, as random scores.
        set.insert(&name(number), f64::from(number.wrapping_mul(0x9e37_79b9)))
            .unwrap();
    }
    let full = set.memory();
    if !cfg!(corewise_stress) {
        assert!(full < 80 * count as usize, "{full} bytes");
    }
    for number in 0..count - 40 {
        set.remove(&name(number)).unwrap();
        // At most four slots for a member, and what the smallest set has. The small nodes of a
        // stress build are emptier once the tree is rebuilt.
        let slots = if cfg!(corewise_stress) { 8.0 } else { 5.0 };
        let most = full as f64 / f64::from(count) * slots * set.len() as f64 + SMALLEST;
        assert!(
            (set.memory() as f64) < most,
            "{} members, {} bytes",
            set.len(),
            set.memory()
        );
    }
    set.assert_valid();
    set.clear();
    assert_eq!(set.memory(), 0);
}

/// Guarantee 4, where many members go at once. What is left are twenty members, and few chunks.
#[test]
fn memory_follows_the_size_after_a_range_is_removed() {
    let count = 40_000 / fewer() as u32;
    let name = |number: u32| format!("{number:016}").into_bytes();
    // In the order of the scores, and in a scattered one.
    for factor in [1, 0x9e37_79b9] {
        let mut set = SortedSet::new();
        for number in 0..count {
            let score = f64::from(number.wrapping_mul(factor));
            set.insert(&name(number), score).unwrap();
        }
        let mut trimmed = set.clone();
        let full = set.memory();
        let removed = set.remove_range(Bounds::Rank(10, -11));
        assert_eq!((removed, set.len()), (count as usize - 20, 20));
        // A chunk was opened while there were more, so it may be a full one.
        let most = (64 << 10) + 8_192;
        assert!(set.memory() < most, "{full} bytes, then {}", set.memory());
        set.assert_valid();
        // A ninth is removed one by one, without a rebuilt tree, and a list that is trimmed loses
        // less each time.
        while trimmed.len() > 400 {
            let last = trimmed.len() as i64 / 9 - 1;
            trimmed.remove_range(Bounds::Rank(0, last));
            let (len, memory) = (trimmed.len(), trimmed.memory());
            let most = full / count as usize * 2 * len + 2 * (64 << 10);
            assert!(memory < most, "{len} of {count} members, {memory} bytes");
        }
        trimmed.assert_valid();
    }
}

#[test]
fn sets_compare_and_print_by_content() {
    let (mut a, mut b) = (SortedSet::new(), SortedSet::with_limit(10));
    a.insert(b"x", 1.0).unwrap();
    a.insert(b"\xff", 2.0).unwrap();
    b.insert(b"\xff", 2.0).unwrap();
    assert_ne!(a, b);
    b.insert(b"x", 1.0).unwrap();
    assert_eq!(a, b);
    assert_eq!(format!("{a:?}"), r#"{"x": 1.0, "\\xff": 2.0}"#);
    let pairs: Vec<_> = (&a).into_iter().collect();
    assert_eq!(pairs, [(&b"x"[..], 1.0), (b"\xff", 2.0)]);
    assert_eq!(
        a.pop_many(Descending, 5),
        [((*b"\xff").into(), 2.0), ((*b"x").into(), 1.0)]
    );
    assert_eq!(a.pop(Ascending), None);
}
