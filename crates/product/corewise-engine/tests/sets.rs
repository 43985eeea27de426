//! Sorted sets in every engine: their meaning beside a model, their memory, and several sessions.

use crate::common;

use common::{Cache, Seen, Setup, TestEngine, fewer, later};
use corewise_engine::Session;
use corewise_ops::sorted::{
    Bounds, Conditions, Direction, MemberRange, Presence, ScoreChange, SetSlot, SortedOp,
    SortedRead, SortedResult, SortedWrite, Taken,
};
use corewise_ops::{
    Deadline, Delete, Flow, Get, ItemKind, Op, Outcome, ReplySink, StoreMode, Verb,
};
use corewise_testkit::memcached::SeenSet;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

for_every_engine! {
    operations_agree_with_a_model
    sets_that_fill_the_memory_are_evicted_and_counted
    a_set_that_outgrows_its_share_is_refused_and_stays
    sets_are_refused_where_nothing_is_evicted
    a_write_that_adds_nothing_or_too_much_evicts_nothing
    an_increment_by_nothing_keeps_the_cas_value
    a_pop_that_is_not_shown_removes_nothing
    a_removal_of_nearly_all_members_keeps_the_others
    members_drawn_from_a_large_set_are_distinct
    pages_of_sets_that_are_deleted_in_part_are_counted
    maintenance_frees_the_members_that_a_range_had
    removals_from_flat_sets_need_no_room
    a_lower_limit_is_kept_without_a_write
    a_set_that_has_no_room_under_another_key_stays
    a_copy_is_counted_before_it_is_put
    a_copy_without_room_is_refused
    a_new_set_is_counted_while_it_grows
    a_new_set_without_room_leaves_the_item
    a_lower_limit_takes_sets_and_no_strings
    a_set_that_exceeds_a_lower_limit_is_evicted_alone
    a_large_set_that_is_evicted_takes_no_other_with_it
    limits_that_fall_and_rise_are_kept_by_sets_and_strings
    flushed_and_expired_sets_are_freed
    increments_of_several_sessions_are_all_counted
    sessions_that_write_and_evict_count_every_byte
}

impl<E: TestEngine> Cache<E> {
    fn read_set(&mut self, key: &[u8], read: SortedRead<'_>) -> Seen {
        self.run(key, Verb::Sorted(&SortedOp::Read(read)))
    }

    fn write_set(&mut self, key: &[u8], write: SortedWrite<'_>) -> Seen {
        self.run(key, Verb::Sorted(&SortedOp::Write(write)))
    }

    fn add(&mut self, key: &[u8], pairs: &[(f64, &[u8])]) -> Seen {
        let conditions = Conditions::default();
        self.write_set(key, SortedWrite::Add { pairs, conditions })
    }

    fn len_of_set(&mut self, key: &[u8]) -> u64 {
        match self.read_set(key, SortedRead::Len) {
            Seen::Sorted(SeenSet::Number(len)) => len,
            other => panic!("{other:?}"),
        }
    }

    /// Moves or copies a set, as `RENAME` and `COPY` do: whether the second key has it, or why
    /// nothing was done.
    pub(crate) fn transfer_set(
        &mut self,
        from: &[u8],
        to: &[u8],
        copies: bool,
    ) -> Result<bool, Seen> {
        let slot = &SetSlot::new();
        let take = |taken| SortedWrite::Take { slot, taken };
        let deadline = Deadline::NEVER;
        let put = SortedWrite::Put { slot, deadline };
        let number = |seen: Seen| match seen {
            Seen::Sorted(SeenSet::Number(number)) => Ok(number),
            other => Err(other),
        };
        let first = if copies { Taken::Copy } else { Taken::Claim };
        if number(self.write_set(from, take(first)))? == 0 {
            return Ok(false);
        }
        let put_first = number(self.write_set(to, put));
        if copies {
            assert_eq!(
                number(self.write_set(from, SortedWrite::EndCopy(slot))),
                Ok(0)
            );
            return put_first.map(|_| true);
        }
        put_first?;
        // Fails only if another session has stored a string meanwhile. `to` is not left without it.
        let moved = number(self.write_set(from, take(Taken::Set)));
        self.write_set(to, put);
        Ok(moved? > 0)
    }

    /// Makes a set of these members in parts of `at_once`, which replaces what the key has: whether
    /// there was room for it.
    fn replace_set(&mut self, key: &[u8], pairs: &[(f64, &[u8])], at_once: usize) -> bool {
        let slot = &SetSlot::new();
        let deadline = Deadline::NEVER;
        let (mut len, mut has_room) = (0, true);
        for pairs in pairs.chunks(at_once) {
            match self.write_set(key, SortedWrite::Gather { slot, pairs }) {
                Seen::Sorted(SeenSet::Number(number)) => len = number,
                seen => {
                    assert_eq!(seen, Seen::OutOfMemory);
                    has_room = false;
                    break;
                }
            }
        }
        if has_room {
            match self.write_set(key, SortedWrite::Put { slot, deadline }) {
                Seen::OutOfMemory => has_room = false,
                seen => assert_eq!(seen, Seen::Sorted(SeenSet::Number(len))),
            }
        }
        let ended = self.write_set(key, SortedWrite::EndCopy(slot));
        assert_eq!(ended, Seen::Sorted(SeenSet::Number(0)));
        assert!(slot.take().is_none());
        has_room
    }

    /// The bytes and the number of sets that the engine counts are those of the sets that it has.
    /// All that is dying must have been freed.
    pub(crate) fn assert_sets_are_counted(&mut self) {
        let mut keys = Vec::new();
        self.scan(64, |item| {
            if item.kind.owns_object() {
                assert!(item.value.is_empty(), "no pointer is shown");
                keys.push((item.key.to_vec(), item.footprint as u64));
            }
        });
        keys.sort();
        keys.dedup();
        let mut sum = 0;
        for (key, footprint) in &keys {
            match self.read_set(key, SortedRead::Usage) {
                Seen::Sorted(SeenSet::Number(bytes)) => sum += bytes - footprint,
                other => panic!("{other:?}"),
            }
        }
        let stats = self.engine.stats();
        assert_eq!((stats.sets, stats.set_bytes), (keys.len() as u64, sum));
    }

    /// Fails unless all memory that the engine holds lies within the budget.
    pub(crate) fn assert_memory_within_budget(&self) {
        self.assert_within_budget();
        let stats = self.engine.stats();
        let segments = (stats.segments - stats.segments_free) * stats.segment_bytes;
        let sets = stats.set_bytes + stats.set_slack_bytes;
        let held = segments + stats.table_bytes + sets;
        assert!(held <= self.engine.memory_limit(), "{held}: {stats:?}");
    }

    pub(crate) fn assert_no_sets(&self) {
        let stats = self.engine.stats();
        assert_eq!((stats.sets, stats.set_bytes), (0, 0), "{stats:?}");
    }
}

// ---- meaning

type Model = BTreeMap<Vec<u8>, ModelItem>;

#[derive(Clone)]
enum ModelItem {
    String,
    Set(Vec<(f64, Vec<u8>)>),
}

fn sort(set: &mut [(f64, Vec<u8>)]) {
    set.sort_by(|a, b| a.0.total_cmp(&b.0).then_with(|| a.1.cmp(&b.1)));
}

/// What an addition does to a set of the model: whether it adds and whether it changes.
fn model_add(
    set: &mut Vec<(f64, Vec<u8>)>,
    score: f64,
    member: &[u8],
    conditions: Conditions,
) -> (bool, bool) {
    let present = set.iter_mut().find(|(_, name)| name == member);
    let result = match present {
        Some((old, _)) => {
            let may_change = conditions.presence != Presence::Absent
                && match conditions.change {
                    ScoreChange::Any => true,
                    ScoreChange::Greater => score > *old,
                    ScoreChange::Less => score < *old,
                };
            let changes = may_change && *old != score;
            if changes {
                *old = score;
            }
            (false, changes)
        }
        None if conditions.presence == Presence::Present => (false, false),
        None => {
            set.push((score, member.to_vec()));
            (true, false)
        }
    };
    sort(set);
    result
}

struct Draw(SmallRng);

impl Draw {
    fn key(&mut self) -> &'static [u8] {
        [&b"a"[..], b"b", b"c"][self.0.random_range(0..3)]
    }

    fn member(&mut self) -> Vec<u8> {
        let number: u32 = match self.0.random_range(0..3) {
            0 => self.0.random_range(0..400),
            _ => self.0.random_range(0..10),
        };
        let mut member = format!("m{number}").into_bytes();
        if self.0.random_ratio(1, 60) {
            member.resize(70, b'x'); // too long for a flat set
        }
        member
    }

    fn score(&mut self) -> f64 {
        f64::from(self.0.random_range(-4_i32..5))
    }

    fn conditions(&mut self) -> Conditions {
        Conditions {
            presence: [
                Presence::Any,
                Presence::Any,
                Presence::Absent,
                Presence::Present,
            ][self.0.random_range(0..4)],
            change: [
                ScoreChange::Any,
                ScoreChange::Any,
                ScoreChange::Greater,
                ScoreChange::Less,
            ][self.0.random_range(0..4)],
        }
    }

    fn bound(&mut self) -> Bound<f64> {
        match self.0.random_range(0..3) {
            0 => Bound::Unbounded,
            1 => Bound::Included(self.score()),
            _ => Bound::Excluded(self.score()),
        }
    }

    fn direction(&mut self) -> Direction {
        [Direction::Ascending, Direction::Descending][self.0.random_range(0..2)]
    }
}

fn is_above(bound: Bound<f64>, score: f64) -> bool {
    match bound {
        Bound::Included(bound) => score >= bound,
        Bound::Excluded(bound) => score > bound,
        Bound::Unbounded => true,
    }
}

fn is_below(bound: Bound<f64>, score: f64) -> bool {
    match bound {
        Bound::Included(bound) => score <= bound,
        Bound::Excluded(bound) => score < bound,
        Bound::Unbounded => true,
    }
}

/// The members of a range in the model.
fn model_range(set: &[(f64, Vec<u8>)], range: &MemberRange<'_>) -> Vec<(Vec<u8>, f64)> {
    let mut members: Vec<_> = set
        .iter()
        .map(|(score, name)| (name.clone(), *score))
        .collect();
    if range.direction == Direction::Descending {
        members.reverse();
    }
    match range.bounds {
        Bounds::Rank(first, last) => {
            let len = members.len() as i64;
            let place = |rank: i64| if rank < 0 { rank + len } else { rank };
            let (first, last) = (place(first).max(0), place(last).min(len - 1));
            members = (first..=last)
                .map(|rank| members[rank as usize].clone())
                .collect();
        }
        Bounds::Score(lower, upper) => {
            members.retain(|(_, score)| is_above(lower, *score) && is_below(upper, *score));
        }
        Bounds::Lex(..) => unreachable!("not drawn"),
    }
    members
        .into_iter()
        .skip(range.skip)
        .take(range.most)
        .collect()
}

fn check_reads<E: TestEngine>(cache: &mut Cache<E>, draw: &mut Draw, model: &Model, key: &[u8]) {
    let set: &[(f64, Vec<u8>)] = match model.get(key) {
        None => &[],
        Some(ModelItem::Set(set)) => set,
        Some(ModelItem::String) => {
            assert_eq!(cache.read_set(key, SortedRead::Len), Seen::WrongKind);
            return;
        }
    };
    assert_eq!(cache.len_of_set(key), set.len() as u64);
    let member = draw.member();
    let place = set.iter().position(|(_, name)| *name == member);
    let score = place.map(|place| set[place].0);
    let seen = cache.read_set(key, SortedRead::Score(&member));
    assert_eq!(seen, Seen::Sorted(SeenSet::Score(score)));
    let seen = cache.read_set(key, SortedRead::Scores(&[&member, b"none"]));
    assert_eq!(seen, Seen::Sorted(SeenSet::Scores(vec![score, None])));
    let seen = cache.read_set(key, SortedRead::Rank(&member, Direction::Ascending));
    let rank = place.map(|place| place as u64);
    assert_eq!(seen, Seen::Sorted(SeenSet::Rank(rank)));
    let seen = cache.read_set(key, SortedRead::Rank(&member, Direction::Descending));
    let rank = place.map(|place| (set.len() - 1 - place) as u64);
    assert_eq!(seen, Seen::Sorted(SeenSet::Rank(rank)));
    check_draws(cache, draw, set, key);
    let bounds = if draw.0.random() {
        Bounds::Score(draw.bound(), draw.bound())
    } else {
        Bounds::Rank(draw.0.random_range(-9..9), draw.0.random_range(-9..9))
    };
    let range = MemberRange {
        bounds,
        direction: draw.direction(),
        skip: draw.0.random_range(0..3),
        most: draw.0.random_range(0..9),
    };
    let seen = cache.read_set(key, SortedRead::Range(range));
    let expected = model_range(set, &range);
    assert_eq!(seen, Seen::Sorted(SeenSet::Members(expected)), "{range:?}");
    if let Bounds::Score(..) = bounds {
        let all = MemberRange {
            skip: 0,
            most: usize::MAX,
            ..range
        };
        let count = model_range(set, &all).len() as u64;
        let seen = cache.read_set(key, SortedRead::Count(bounds));
        assert_eq!(seen, Seen::Sorted(SeenSet::Number(count)));
    }
}

/// Random members, and a scan.
fn check_draws<E: TestEngine>(
    cache: &mut Cache<E>,
    draw: &mut Draw,
    set: &[(f64, Vec<u8>)],
    key: &[u8],
) {
    let mut all: Vec<_> = set
        .iter()
        .map(|(score, name)| (name.clone(), *score))
        .collect();
    all.sort_by(|a, b| a.0.cmp(&b.0));
    let (count, are_distinct) = (draw.0.random_range(0..12), draw.0.random());
    let random = SortedRead::Random {
        count,
        are_distinct,
        seed: draw.0.random(),
    };
    let Seen::Sorted(SeenSet::Members(mut drawn)) = cache.read_set(key, random) else {
        panic!("no members");
    };
    assert!(drawn.iter().all(|member| all.contains(member)));
    let expected = match (set.len(), are_distinct) {
        (0, _) => 0,
        (len, true) => len.min(count as usize),
        _ => count as usize,
    };
    assert_eq!(drawn.len(), expected);
    if are_distinct {
        drawn.sort_by(|a, b| a.0.cmp(&b.0));
        drawn.dedup();
        assert_eq!(drawn.len(), expected);
    }
    let Seen::Sorted(SeenSet::Scanned(mut scanned)) = cache.read_set(key, SortedRead::Scan) else {
        panic!("no scan");
    };
    scanned.sort_by(|a, b| a.0.cmp(&b.0));
    assert_eq!(scanned, all);
}

fn check_add<E: TestEngine>(cache: &mut Cache<E>, draw: &mut Draw, model: &mut Model, key: &[u8]) {
    let conditions = draw.conditions();
    let count = if draw.0.random_ratio(1, 12) {
        150
    } else {
        draw.0.random_range(1..4)
    };
    let members: Vec<_> = (0..count).map(|_| (draw.score(), draw.member())).collect();
    let pairs: Vec<_> = members
        .iter()
        .map(|(score, name)| (*score, &name[..]))
        .collect();
    let pairs = &pairs[..];
    let seen = cache.write_set(key, SortedWrite::Add { pairs, conditions });
    if let Some(ModelItem::String) = model.get(key) {
        return assert_eq!(seen, Seen::WrongKind);
    }
    let item = model.entry(key.to_vec());
    let ModelItem::Set(set) = item.or_insert_with(|| ModelItem::Set(Vec::new())) else {
        unreachable!("checked above");
    };
    let (mut added, mut changed) = (0, 0);
    for (score, name) in pairs {
        let (adds, changes) = model_add(set, *score, name, conditions);
        added += u64::from(adds);
        changed += u64::from(changes);
    }
    if set.is_empty() {
        model.remove(key);
    }
    assert_eq!(seen, Seen::Sorted(SeenSet::Inserted(added, changed)));
}

fn check_increment<E: TestEngine>(
    cache: &mut Cache<E>,
    draw: &mut Draw,
    model: &mut Model,
    key: &[u8],
) {
    let (member, delta) = (draw.member(), draw.score());
    let conditions = Conditions::default();
    let increment = SortedWrite::Increment {
        delta,
        member: &member,
        conditions,
    };
    let seen = cache.write_set(key, increment);
    if let Some(ModelItem::String) = model.get(key) {
        return assert_eq!(seen, Seen::WrongKind);
    }
    let item = model.entry(key.to_vec());
    let ModelItem::Set(set) = item.or_insert_with(|| ModelItem::Set(Vec::new())) else {
        unreachable!("checked above");
    };
    let old = set
        .iter()
        .find(|(_, name)| *name == member)
        .map(|(score, _)| *score);
    let score = old.unwrap_or(0.0) + delta;
    model_add(set, score, &member, conditions);
    assert_eq!(seen, Seen::Sorted(SeenSet::Score(Some(score))));
}

fn check_remove<E: TestEngine>(
    cache: &mut Cache<E>,
    draw: &mut Draw,
    model: &mut Model,
    key: &[u8],
) {
    let names: Vec<_> = match model.get(key) {
        // All of them, sometimes: the set is gone then.
        Some(ModelItem::Set(set)) if draw.0.random_ratio(1, 8) => {
            set.iter().map(|(_, name)| name.clone()).collect()
        }
        _ => (0..3).map(|_| draw.member()).collect(),
    };
    let members: Vec<&[u8]> = names.iter().map(|name| &name[..]).collect();
    let seen = cache.write_set(key, SortedWrite::Remove(&members));
    let mut removed = 0;
    match model.get_mut(key) {
        Some(ModelItem::String) => return assert_eq!(seen, Seen::WrongKind),
        None => {}
        Some(ModelItem::Set(set)) => {
            for name in &names {
                let before = set.len();
                set.retain(|(_, other)| other != name);
                removed += (before - set.len()) as u64;
            }
            if set.is_empty() {
                model.remove(key);
            }
        }
    }
    assert_eq!(seen, Seen::Sorted(SeenSet::Number(removed)));
}

/// Removes a range, or pops.
fn check_remove_range<E: TestEngine>(
    cache: &mut Cache<E>,
    draw: &mut Draw,
    model: &mut Model,
    key: &[u8],
) {
    let (pops, direction) = (draw.0.random::<bool>(), draw.direction());
    let bounds = match (pops, draw.0.random_range(0..8)) {
        (true, _) => Bounds::ALL,
        (false, 0) => Bounds::Score(Bound::Unbounded, Bound::Unbounded),
        (false, 1..4) => Bounds::Score(draw.bound(), draw.bound()),
        (false, _) => Bounds::Rank(draw.0.random_range(-5..9), draw.0.random_range(-9..5)),
    };
    let most = match draw.0.random_range(0..6) {
        0 if pops => 200,
        _ if pops => draw.0.random_range(0..4),
        _ => usize::MAX,
    };
    let seen = cache.write_set(
        key,
        if pops {
            SortedWrite::Pop { direction, most }
        } else {
            SortedWrite::RemoveRange(bounds)
        },
    );
    let mut removed = Vec::new();
    match model.get_mut(key) {
        Some(ModelItem::String) => return assert_eq!(seen, Seen::WrongKind),
        None => {}
        Some(ModelItem::Set(set)) => {
            let range = MemberRange {
                bounds,
                direction: if pops {
                    direction
                } else {
                    Direction::Ascending
                },
                skip: 0,
                most,
            };
            removed = model_range(set, &range);
            set.retain(|(_, name)| removed.iter().all(|(other, _)| other != name));
            if set.is_empty() {
                model.remove(key);
            }
        }
    }
    let expected = if pops {
        SeenSet::Members(removed)
    } else {
        SeenSet::Number(removed.len() as u64)
    };
    assert_eq!(
        seen,
        Seen::Sorted(expected),
        "{bounds:?} {direction:?} {most}"
    );
}

/// Moves or copies a set.
fn check_transfer<E: TestEngine>(
    cache: &mut Cache<E>,
    draw: &mut Draw,
    model: &mut Model,
    from: &[u8],
) {
    let (to, copies) = (draw.key(), draw.0.random());
    if to == from {
        return;
    }
    let transferred = cache.transfer_set(from, to, copies);
    match model.get(from).cloned() {
        Some(ModelItem::String) => assert_eq!(transferred, Err(Seen::WrongKind)),
        None => assert_eq!(transferred, Ok(false)),
        Some(set) => {
            assert_eq!(transferred, Ok(true));
            if !copies {
                model.remove(from);
            }
            model.insert(to.to_vec(), set);
        }
    }
}

/// Replaces an item of any kind by a new set.
fn check_replace<E: TestEngine>(
    cache: &mut Cache<E>,
    draw: &mut Draw,
    model: &mut Model,
    key: &[u8],
) {
    let count = if draw.0.random_ratio(1, 4) { 150 } else { 5 };
    // Of a member that comes twice, the last score stays.
    let members: BTreeMap<Vec<u8>, f64> = (0..count)
        .map(|_| (draw.member(), draw.score() + 0.0))
        .collect();
    let mut set: Vec<(f64, Vec<u8>)> = members
        .into_iter()
        .map(|(member, score)| (score, member))
        .collect();
    let pairs: Vec<(f64, &[u8])> = set
        .iter()
        .map(|(score, member)| (*score, &member[..]))
        .collect();
    assert!(cache.replace_set(key, &pairs, draw.0.random_range(1..60)));
    sort(&mut set);
    model.insert(key.to_vec(), ModelItem::Set(set));
}

fn operations_agree_with_a_model<E: TestEngine>() {
    let (mut cache, mut model) = (Cache::<E>::roomy(), Model::new());
    let mut draw = Draw(SmallRng::seed_from_u64(55));
    let (mut sets, mut flat) = (0, 0);
    for step in 0..fewer(12_000) {
        let key = draw.key();
        match draw.0.random_range(0..21) {
            20 => check_replace(&mut cache, &mut draw, &mut model, key),
            0..8 => check_add(&mut cache, &mut draw, &mut model, key),
            8..11 => check_increment(&mut cache, &mut draw, &mut model, key),
            11..13 => check_remove(&mut cache, &mut draw, &mut model, key),
            13..15 => check_remove_range(&mut cache, &mut draw, &mut model, key),
            15 => check_transfer(&mut cache, &mut draw, &mut model, key),
            16 => {
                assert!(cache.set(key, b"value").is_stored());
                model.insert(key.to_vec(), ModelItem::String);
            }
            17 => {
                let seen = cache.delete(key, Delete::default());
                let is_present = model.remove(key).is_some();
                assert_eq!(seen == Seen::Deleted, is_present);
            }
            18 => {
                let seen = cache.store(key, common::store(StoreMode::Append, b""));
                match model.get(key) {
                    Some(ModelItem::Set(_)) => assert_eq!(seen, Seen::WrongKind),
                    Some(ModelItem::String) => assert!(seen.is_stored()),
                    None => assert_eq!(seen, Seen::NotStored),
                }
            }
            _ => {
                let seen = cache.get(key);
                match model.get(key) {
                    Some(ModelItem::Set(_)) => assert_eq!(seen, Seen::WrongKind),
                    Some(ModelItem::String) => assert_eq!(seen.value(), Some(&b"value"[..])),
                    None => assert!(matches!(seen, Seen::Missing(_))),
                }
            }
        }
        check_reads(&mut cache, &mut draw, &model, key);
        if step % 64 == 0 {
            cache.maintain();
            cache.assert_sets_are_counted();
            cache.scan(64, |item| {
                sets += u32::from(item.kind == ItemKind::Set);
                flat += u32::from(item.kind == ItemKind::FlatSet);
            });
        }
    }
    assert!(sets > 1 && flat > 1, "{sets} sets and {flat} flat ones");
    for key in model.keys() {
        assert_eq!(cache.delete(key, Delete::default()), Seen::Deleted);
    }
    cache.maintain();
    cache.assert_no_sets();
}

// ---- memory

/// A key's set gets a member; its number is part of the member.
fn add_number<E: TestEngine>(cache: &mut Cache<E>, key: u32, number: u32) -> Seen {
    let member = format!("member of twenty by{number:>5}");
    let score = f64::from(number % 100);
    cache.add(
        format!("key {key}").as_bytes(),
        &[(score, member.as_bytes())],
    )
}

fn sets_that_fill_the_memory_are_evicted_and_counted<E: TestEngine>() {
    for factor in [1, 4] {
        let mut setup = Setup::tight::<E>(1);
        setup.memory *= factor;
        let mut cache = Cache::<E>::new(setup);
        let mut random = SmallRng::seed_from_u64(factor);
        for step in 0..3_000 * factor {
            if step % 8 == 0 {
                let seen = cache.set(format!("string {step}").as_bytes(), &[7; 300]);
                assert!(seen.is_stored(), "{seen:?}");
                continue;
            }
            let key = format!("key {}", random.random_range(0..40 * factor));
            let members: Vec<String> = (0..20)
                .map(|_| format!("a member of twenty{:>3}", random.random_range(0..800)))
                .collect();
            let pairs: Vec<_> = members.iter().map(|name| (1.0, name.as_bytes())).collect();
            let seen = cache.add(key.as_bytes(), &pairs);
            // Each set is far smaller than the memory, so all have room.
            let stats = cache.engine.stats();
            assert!(
                matches!(seen, Seen::Sorted(_)),
                "{seen:?} in step {step}: {stats:?}"
            );
            if step % 512 == 1 {
                cache.assert_memory_within_budget();
                cache.maintain();
                cache.assert_sets_are_counted();
            }
        }
        let stats = cache.engine.stats();
        assert!(stats.evictions > 0 && stats.sets > 0, "{stats:?}");
        cache.engine.flush_all(Deadline::PAST, cache.now);
        cache.maintain();
        cache.assert_no_sets();
    }
}

/// Sets whose members were added in turn share their pages. When most of them are deleted, the
/// pages of the others count, so that strings do not take their memory as well; and compaction
/// gives back what is on them beside the sets.
fn pages_of_sets_that_are_deleted_in_part_are_counted<E: TestEngine>() {
    let mut cache = Cache::<E>::new(Setup {
        memory: 8 << 20,
        max_item_bytes: 64 << 10,
        ..Setup::roomy()
    });
    let sets = 600;
    for number in 0..130 {
        for key in 0..sets {
            let seen = add_number(&mut cache, key, number);
            assert_eq!(seen, Seen::Sorted(SeenSet::Inserted(1, 0)));
        }
    }
    // A small shard may have evicted some meanwhile.
    let full = cache.engine.stats();
    assert!(full.sets > 500 && full.set_bytes > 4 << 20, "{full:?}");
    let names: Vec<String> = (0..sets).map(|key| format!("key {key}")).collect();
    let lens: Vec<u64> = names
        .iter()
        .map(|name| cache.len_of_set(name.as_bytes()))
        .collect();
    for key in (0..sets).filter(|key| key % 4 > 0) {
        cache.delete(format!("key {key}").as_bytes(), Delete::default());
    }
    for number in 0..10_000 {
        let stored = cache.set(format!("string {number}").as_bytes(), &[7; 1_000]);
        assert!(stored.is_stored(), "{stored:?}");
        let key = format!("key {}", number % sets / 4 * 4);
        cache.read_set(key.as_bytes(), SortedRead::Score(b"none"));
        if number % 64 == 0 {
            cache.assert_memory_within_budget();
        }
    }
    cache.maintain();
    cache.assert_memory_within_budget();
    cache.assert_sets_are_counted();
    let stats = cache.engine.stats();
    assert!(stats.sets > 20 && stats.evictions > 1_000, "{stats:?}");
    let held = stats.bytes + stats.set_slack_bytes;
    assert!(held <= cache.engine.memory_limit(), "{stats:?}");
    if cache.engine.name() == "relativistic" {
        let most = stats.set_bytes / 3 + (256 << 10);
        assert!(stats.set_slack_bytes < most, "{stats:?}");
    }
    // The sets are what they were.
    for (name, before) in names.iter().zip(lens) {
        let len = cache.len_of_set(name.as_bytes());
        assert!(len == 0 || len == before, "{len} members, {before} before");
    }
}

/// The records of the members lie among those of the others.
fn maintenance_frees_the_members_that_a_range_had<E: TestEngine>() {
    let mut cache = Cache::<E>::roomy();
    let len = 6_000;
    for number in 0..len {
        add_number(&mut cache, 0, number);
    }
    let full = cache.engine.stats().set_bytes;
    let upper = Bounds::Score(Bound::Included(50.0), Bound::Unbounded);
    let removed = cache.write_set(b"key 0", SortedWrite::RemoveRange(upper));
    assert_eq!(removed, Seen::Sorted(SeenSet::Number(u64::from(len) / 2)));
    // Nothing uses the set meanwhile.
    cache.maintain();
    let stats = cache.engine.stats();
    assert!(
        stats.set_bytes < full * 2 / 3,
        "{full} bytes before: {stats:?}"
    );
    assert_eq!(cache.len_of_set(b"key 0"), u64::from(len / 2));
    cache.assert_sets_are_counted();
    // One that is gone, or under another key.
    let rest = SortedWrite::RemoveRange(Bounds::Rank(0, 1_499));
    cache.write_set(b"key 0", rest);
    assert_eq!(cache.transfer_set(b"key 0", b"key 1", false), Ok(true));
    cache.maintain();
    assert!(cache.engine.stats().set_bytes < full * 2 / 5);
    cache.assert_sets_are_counted();
    cache.write_set(b"key 1", SortedWrite::RemoveRange(Bounds::Rank(0, 699)));
    cache.delete(b"key 1", Delete::default());
    cache.maintain();
    cache.assert_no_sets();
}

/// Under `-M`, also where the memory is exceeded.
fn removals_from_flat_sets_need_no_room<E: TestEngine>() {
    let mut cache = Cache::<E>::new(Setup::refusing::<E>(1));
    let members = [&b"one"[..], b"two", b"three", b"four"];
    let names: Vec<String> = (0..20).map(|number| format!("flat {number}")).collect();
    for name in &names {
        let pairs = members.map(|member| (1.0, member));
        cache.add(name.as_bytes(), &pairs);
    }
    fill_set(&mut cache, 0);
    while cache
        .set(
            format!("string {}", cache.engine.stats().items).as_bytes(),
            b"",
        )
        .is_stored()
    {}
    let number = |number| Seen::Sorted(SeenSet::Number(number));
    let remove = |cache: &mut Cache<E>, member: &[u8]| {
        for name in &names {
            let seen = cache.write_set(name.as_bytes(), SortedWrite::Remove(&[member]));
            assert_eq!(seen, number(1), "{name}: {:?}", cache.engine.stats());
        }
    };
    remove(&mut cache, b"one");
    // Of connections. (An engine that has its items in segments writes the copy to free memory.)
    if cache.engine.name() != "relativistic" {
        let limit = cache.engine.memory_limit();
        cache.engine.set_overhead(limit / 4);
        assert_eq!(cache.add(b"flat", &[(1.0, b"one")]), Seen::OutOfMemory);
        remove(&mut cache, b"two");
        let lowest = SortedWrite::RemoveRange(Bounds::Rank(0, 0));
        for name in &names {
            assert_eq!(cache.write_set(name.as_bytes(), lowest), number(1));
            assert_eq!(cache.len_of_set(name.as_bytes()), 1);
        }
    }
    assert_eq!(cache.engine.stats().evictions, 0);
    cache.assert_sets_are_counted();
}

fn a_set_that_outgrows_its_share_is_refused_and_stays<E: TestEngine>() {
    let mut cache = Cache::<E>::new(Setup::tight::<E>(1));
    let mut len = 0;
    for number in 0..1_000_000 {
        match add_number(&mut cache, 0, number) {
            Seen::Sorted(_) => len += 1,
            seen => {
                assert_eq!(seen, Seen::OutOfMemory);
                break;
            }
        }
    }
    assert!((500..100_000).contains(&len), "{len} members");
    cache.maintain();
    cache.assert_memory_within_budget();
    cache.assert_sets_are_counted();
    assert_eq!(
        cache.len_of_set(b"key 0"),
        len,
        "a write that fails changes nothing"
    );
    // A removal needs no room, and others may have some.
    let member = format!("member of twenty by{:>5}", 0);
    let removed = cache.write_set(b"key 0", SortedWrite::Remove(&[member.as_bytes()]));
    assert_eq!(removed, Seen::Sorted(SeenSet::Number(1)));
    assert!(cache.set(b"k", b"v").is_stored());
}

fn sets_are_refused_where_nothing_is_evicted<E: TestEngine>() {
    let mut cache = Cache::<E>::new(Setup::refusing::<E>(1));
    let (mut refused, mut added) = (0, 0);
    for number in 0..60_000 {
        match add_number(&mut cache, number % 50, number / 50) {
            Seen::Sorted(_) => added += 1,
            seen => {
                assert_eq!(seen, Seen::OutOfMemory);
                refused += 1;
                if refused > 20 {
                    break;
                }
            }
        }
    }
    assert!(refused > 0 && added > 500, "{added} members");
    assert_eq!(cache.engine.stats().evictions, 0);
    let len: u64 = (0..50)
        .map(|key| cache.len_of_set(format!("key {key}").as_bytes()))
        .sum();
    assert_eq!(len, added);
    cache.maintain();
    cache.assert_memory_within_budget();
    cache.assert_sets_are_counted();
    for key in 0..50 {
        cache.delete(format!("key {key}").as_bytes(), Delete::default());
    }
    cache.maintain();
    cache.assert_no_sets();
    assert!(matches!(add_number(&mut cache, 0, 0), Seen::Sorted(_)));
}

fn a_write_that_adds_nothing_or_too_much_evicts_nothing<E: TestEngine>() {
    let mut cache = Cache::<E>::new(Setup::tight::<E>(1));
    let names: Vec<String> = (0..20_000).map(|number| format!("name {number}")).collect();
    let pairs: Vec<_> = names.iter().map(|name| (1.0, name.as_bytes())).collect();
    for number in 0..60_000 {
        let seen = cache.set(format!("string {number}").as_bytes(), &[7; 300]);
        assert!(seen.is_stored());
    }
    for number in 0..300 {
        add_number(&mut cache, 0, number);
    }
    cache.maintain();
    let (len, evictions) = (cache.len_of_set(b"key 0"), cache.engine.stats().evictions);
    assert!(len > 0 && evictions > 0, "{len} members, {evictions}");
    let conditions = Conditions {
        presence: Presence::Present,
        ..Conditions::default()
    };
    for key in [&b"none"[..], b"key 0"] {
        let pairs = &pairs[..];
        let seen = cache.write_set(key, SortedWrite::Add { pairs, conditions });
        assert_eq!(seen, Seen::Sorted(SeenSet::Inserted(0, 0)));
    }
    // More than three quarters of all memory.
    let long = vec![b'm'; cache.engine.memory_limit() as usize / 2];
    for key in [&b"none"[..], b"key 0"] {
        assert_eq!(cache.add(key, &[(1.0, &long)]), Seen::OutOfMemory);
    }
    assert_eq!(cache.engine.stats().evictions, evictions);
    assert_eq!(cache.len_of_set(b"key 0"), len);
}

fn an_increment_by_nothing_keeps_the_cas_value<E: TestEngine>() {
    let mut cache = Cache::<E>::roomy();
    let cas = |cache: &mut Cache<E>, delta: f64| {
        let increment = SortedWrite::Increment {
            delta,
            member: b"member of twenty by    0",
            conditions: Conditions::default(),
        };
        cache.write_set(b"key 0", increment);
        let mut cas = 0;
        cache.scan(64, |item| cas = item.cas);
        cas
    };
    for members in [1, 500] {
        for number in 0..members {
            add_number(&mut cache, 0, number);
        }
        let before = cas(&mut cache, 1e17);
        assert_eq!(
            [0.0, -0.0, 1.0].map(|delta| cas(&mut cache, delta)),
            [before; 3]
        );
        assert_ne!(cas(&mut cache, 64.0), before);
    }
}

/// A sink that has room for this number of members only.
struct Cramped(usize);

impl ReplySink for Cramped {
    fn complete(&mut self, _: u32, outcome: Outcome<'_>) -> Flow {
        let Outcome::Sorted { result, .. } = outcome else {
            panic!("{outcome:?}");
        };
        let SortedResult::Members(members) = result else {
            panic!("{result:?}");
        };
        let mut shown = 0;
        members.show(&mut |_, _| {
            shown += 1;
            shown <= self.0
        });
        Flow::Continue
    }
}

fn a_pop_that_is_not_shown_removes_nothing<E: TestEngine>() {
    let mut cache = Cache::<E>::roomy();
    let len = 500;
    for number in 0..len {
        add_number(&mut cache, 0, number);
    }
    let pop = |cache: &mut Cache<E>, most, room| {
        let direction = Direction::Descending;
        let pop = SortedOp::Write(SortedWrite::Pop { direction, most });
        let ops = [Op::new(0, b"key 0", Verb::Sorted(&pop))];
        cache.session.submit(cache.now, &ops, &mut Cramped(room));
        cache.len_of_set(b"key 0")
    };
    assert_eq!(pop(&mut cache, 100, 99), 500);
    assert_eq!(pop(&mut cache, 500, 0), 500);
    assert_eq!(pop(&mut cache, 100, 100), 400);
    assert_eq!(pop(&mut cache, 1_000, 400), 0);
    cache.maintain();
    cache.assert_no_sets();
}

/// A set of this many members, `00000` and so on, with their numbers as scores.
fn numbered<E: TestEngine>(cache: &mut Cache<E>, len: u32) -> Vec<(Vec<u8>, f64)> {
    let members = (0..len).map(|number| (format!("{number:05}").into_bytes(), f64::from(number)));
    let members = Vec::from_iter(members);
    for part in members.chunks(1_000) {
        let pairs: Vec<_> = part
            .iter()
            .map(|(name, score)| (*score, &name[..]))
            .collect();
        cache.add(b"key 0", &pairs);
    }
    members
}

fn a_removal_of_nearly_all_members_keeps_the_others<E: TestEngine>() {
    let bounds = |bounds| SortedWrite::RemoveRange(bounds);
    let pop = |direction| SortedWrite::Pop {
        direction,
        most: 5_980,
    };
    for (write, kept) in [
        (bounds(Bounds::Rank(7, -13)), [0..7, 5_988..6_000]),
        (bounds(Bounds::Rank(0, -2)), [0..0, 5_999..6_000]),
        (bounds(Bounds::Rank(0, -101)), [0..0, 5_900..6_000]),
        (
            bounds(Bounds::Score(Bound::Excluded(30.0), Bound::Unbounded)),
            [0..31, 0..0],
        ),
        (pop(Direction::Ascending), [0..0, 5_980..6_000]),
        (pop(Direction::Descending), [0..20, 0..0]),
    ] {
        let mut cache = Cache::<E>::roomy();
        let members = numbered(&mut cache, 6_000);
        let get = Get {
            touch: Some(Deadline::at_ms(cache.now.ms + 500)),
            any_kind: true,
            ..Get::default()
        };
        cache.run(b"key 0", Verb::Get(get));
        let item = |cache: &mut Cache<E>| {
            let mut seen = None;
            cache.scan(64, |item| {
                seen = Some((item.deadline, item.client_flags, item.cas))
            });
            seen.expect("the key has an item")
        };
        let before = item(&mut cache);
        cache.write_set(b"key 0", write);
        let after = item(&mut cache);
        assert_eq!((after.0, after.1), (before.0, before.1));
        assert!(after.2 > before.2);
        let all = MemberRange {
            bounds: Bounds::ALL,
            direction: Direction::Ascending,
            skip: 0,
            most: usize::MAX,
        };
        let expected = kept.map(|part| members[part].to_vec()).concat();
        let seen = cache.read_set(b"key 0", SortedRead::Range(all));
        assert_eq!(seen, Seen::Sorted(SeenSet::Members(expected)));
        cache.maintain();
        cache.assert_sets_are_counted();
        cache.engine.flush_all(Deadline::PAST, cache.now);
        cache.maintain();
        cache.assert_no_sets();
    }
}

fn members_drawn_from_a_large_set_are_distinct<E: TestEngine>() {
    let mut cache = Cache::<E>::roomy();
    let members = numbered(&mut cache, 4_000);
    for count in [1, 20, 21, 1_000, 3_999, 4_000] {
        let random = SortedRead::Random {
            count: count as u64,
            are_distinct: true,
            seed: count as u64,
        };
        let Seen::Sorted(SeenSet::Members(mut drawn)) = cache.read_set(b"key 0", random) else {
            panic!("no members");
        };
        drawn.sort_by(|a, b| a.0.cmp(&b.0));
        drawn.dedup();
        assert_eq!(drawn.len(), count);
        assert!(drawn.iter().all(|member| {
            members
                .binary_search_by(|other| other.0.cmp(&member.0))
                .is_ok()
        }));
    }
}

fn a_lower_limit_is_kept_without_a_write<E: TestEngine>() {
    let (mut cache, tight, strings) = with_sets::<E>(20);
    let before = cache.engine.stats().set_bytes;
    cache.engine.set_memory_limit(tight);
    cache.maintain();
    cache.assert_memory_within_budget();
    cache.assert_sets_are_counted();
    let stats = cache.engine.stats();
    assert!(stats.set_bytes < before && stats.sets > 0, "{stats:?}");
    assert_eq!(stats.out_of_memory, 0);
    assert_eq!(strings_left(&mut cache, strings), strings);
}

/// Adds members to a set until there is no room; their number.
fn fill_set<E: TestEngine>(cache: &mut Cache<E>, key: u32) -> u64 {
    let added = (0..1_000_000)
        .take_while(|number| matches!(add_number(cache, key, *number), Seen::Sorted(_)))
        .count();
    added as u64
}

fn a_copy_is_counted_before_it_is_put<E: TestEngine>() {
    let mut cache = Cache::<E>::roomy();
    numbered(&mut cache, 2_000);
    let of_one = cache.engine.stats().set_bytes;
    let slot = &SetSlot::new();
    let (taken, deadline) = (Taken::Copy, Deadline::NEVER);
    for other in [None, Some(b"key 1"), Some(b"key 2"), Some(b"key 3")] {
        let before = cache.engine.stats().set_bytes;
        let seen = cache.write_set(b"key 0", SortedWrite::Take { slot, taken });
        assert_eq!(seen, Seen::Sorted(SeenSet::Number(2_000)));
        assert_eq!(cache.engine.stats().set_bytes, before + of_one);
        if let Some(key) = other {
            let seen = cache.write_set(key, SortedWrite::Put { slot, deadline });
            assert_eq!(seen, Seen::Sorted(SeenSet::Number(2_000)));
            assert_eq!(cache.len_of_set(key), 2_000);
        }
        let seen = cache.write_set(b"key 0", SortedWrite::EndCopy(slot));
        assert_eq!(seen, Seen::Sorted(SeenSet::Number(0)));
        assert!(slot.take().is_none());
        cache.assert_sets_are_counted();
    }
}

fn a_copy_without_room_is_refused<E: TestEngine>() {
    let mut cache = Cache::<E>::new(Setup::refusing::<E>(1));
    let len = fill_set(&mut cache, 0);
    // In every shard.
    for other in 1..100 {
        fill_set(&mut cache, other);
    }
    let before = cache.engine.stats().set_bytes;
    for other in 0..20 {
        let key = format!("copy {other}").into_bytes();
        let seen = cache.transfer_set(b"key 0", &key, true);
        assert_eq!(seen, Err(Seen::OutOfMemory));
        assert_eq!(cache.len_of_set(&key), 0);
        assert_eq!(cache.engine.stats().set_bytes, before);
    }
    assert_eq!(cache.len_of_set(b"key 0"), len);
    cache.assert_sets_are_counted();
}

fn a_new_set_is_counted_while_it_grows<E: TestEngine>() {
    let mut cache = Cache::<E>::roomy();
    assert!(cache.set(b"key", b"value").is_stored());
    let slot = &SetSlot::new();
    let mut last = 0;
    for part in 0..20_u64 {
        let members: Vec<String> = (0..100).map(|number| format!("{part} {number}")).collect();
        let pairs: Vec<(f64, &[u8])> = members.iter().map(|name| (1.0, name.as_bytes())).collect();
        let gather = SortedWrite::Gather {
            slot,
            pairs: &pairs,
        };
        let len = 100 * (part + 1);
        assert_eq!(
            cache.write_set(b"key", gather),
            Seen::Sorted(SeenSet::Number(len))
        );
        let bytes = cache.engine.stats().set_bytes;
        assert!(
            bytes >= last && bytes > 8 * len,
            "{bytes} bytes of {len} members"
        );
        last = bytes;
    }
    assert_eq!(cache.get(b"key").value(), Some(&b"value"[..]));
    // The command has failed, for another reason.
    cache.write_set(b"key", SortedWrite::EndCopy(slot));
    cache.assert_no_sets();
    assert_eq!(cache.get(b"key").value(), Some(&b"value"[..]));
}

fn a_new_set_without_room_leaves_the_item<E: TestEngine>() {
    let mut cache = Cache::<E>::new(Setup::refusing::<E>(1));
    for key in 0..100 {
        fill_set(&mut cache, key);
    }
    let before = cache.engine.stats().set_bytes;
    let members: Vec<String> = (0..400).map(|number| format!("member {number}")).collect();
    let pairs: Vec<(f64, &[u8])> = members.iter().map(|name| (1.0, name.as_bytes())).collect();
    for key in 0..20 {
        let key = format!("key {key}");
        let len = cache.len_of_set(key.as_bytes());
        assert!(!cache.replace_set(key.as_bytes(), &pairs, 16));
        assert_eq!(cache.len_of_set(key.as_bytes()), len);
        assert_eq!(cache.engine.stats().set_bytes, before);
    }
    cache.assert_sets_are_counted();
    for key in 0..100 {
        cache.delete(format!("key {key}").as_bytes(), Delete::default());
    }
    cache.maintain();
    assert!(cache.replace_set(b"key 0", &pairs, 16));
    assert_eq!(cache.len_of_set(b"key 0"), 400);
    cache.assert_sets_are_counted();
}

fn a_set_that_has_no_room_under_another_key_stays<E: TestEngine>() {
    let mut cache = Cache::<E>::new(Setup::refusing::<E>(1));
    for number in 0..3 {
        add_number(&mut cache, 1, number);
    }
    let lens = [fill_set(&mut cache, 0), 3];
    assert!(lens[0] > 500, "{lens:?}");
    let string = |number: u32| format!("string {number}");
    let strings = (0..100_000)
        .take_while(|number| cache.set(string(*number).as_bytes(), &[1; 500]).is_stored())
        .count() as u32;
    while cache
        .set(
            format!("short {}", cache.engine.stats().items).as_bytes(),
            b"",
        )
        .is_stored()
    {}
    let mut names = [b"key 0".to_vec(), b"key 1".to_vec()];
    // Of connections: what it leaves to sets may be less than the first has.
    let mut overhead = 0;
    let (mut moved, mut refused) = (0, 0);
    for round in 0..40_u32 {
        if round == 20 {
            for number in 0..strings / 2 {
                cache.delete(string(number).as_bytes(), Delete::default());
            }
            cache.maintain();
        }
        for (name, len) in names.iter_mut().zip(lens) {
            let other = format!("{len} {round:0>200}").into_bytes();
            match cache.transfer_set(name, &other, false) {
                Ok(is_moved) => {
                    assert!(is_moved);
                    assert_eq!(cache.len_of_set(name), 0);
                    *name = other;
                    moved += 1;
                }
                Err(seen) => {
                    assert_eq!(seen, Seen::OutOfMemory);
                    let is_short = round < 20 || overhead > 0;
                    assert!(is_short, "there is room for an item");
                    refused += 1;
                }
            }
            assert_eq!(cache.len_of_set(name), len);
            let short = format!("set {len}").into_bytes();
            if *name != short && cache.transfer_set(name, &short, false).is_ok() {
                *name = short;
            }
            assert_eq!(cache.len_of_set(name), len);
        }
        cache.assert_sets_are_counted();
        overhead = if round % 2 == 0 {
            cache.engine.memory_limit() / 2
        } else {
            0
        };
        cache.engine.set_overhead(overhead);
    }
    assert!(moved > 0 && refused > 0, "{moved} and {refused}");
    for name in &names {
        assert_eq!(cache.delete(name, Delete::default()), Seen::Deleted);
    }
    cache.maintain();
    cache.assert_no_sets();
}

/// Stores strings of 300 bytes, the numbers from 0 on, of `bytes` bytes in all. Returns how many.
fn set_strings<E: TestEngine>(cache: &mut Cache<E>, bytes: u64) -> u32 {
    let count = (bytes / 300) as u32;
    for number in 0..count {
        let seen = cache.set(format!("string {number}").as_bytes(), &[7; 300]);
        assert!(seen.is_stored(), "{seen:?}");
    }
    count
}

fn strings_left<E: TestEngine>(cache: &mut Cache<E>, count: u32) -> u32 {
    let is_there = |number: &u32| {
        let get = cache.get(format!("string {number}").as_bytes());
        get.value().is_some()
    };
    (0..count).filter(is_there).count() as u32
}

/// A cache of four times the least memory, whose sets take more than that. Its strings, which
/// were stored last, take a thirtieth of it.
fn with_sets<E: TestEngine>(sets: u32) -> (Cache<E>, u64, u32) {
    let tight = Setup::tight::<E>(1);
    // One shard, which the limit concerns as a whole.
    let mut cache = Cache::<E>::new(Setup {
        memory: 4 * tight.memory,
        max_item_bytes: 4 * tight.max_item_bytes,
        ..tight
    });
    let mut number = 0;
    while cache.engine.stats().set_bytes < tight.memory * 3 / 2 {
        assert!(matches!(
            add_number(&mut cache, number % sets, number / sets),
            Seen::Sorted(_)
        ));
        number += 1;
    }
    let strings = set_strings(&mut cache, tight.memory / 30);
    assert_eq!(cache.engine.stats().evictions, 0);
    (cache, tight.memory, strings)
}

fn a_lower_limit_takes_sets_and_no_strings<E: TestEngine>() {
    for overhead in [false, true] {
        let (mut cache, tight, strings) = with_sets::<E>(20);
        if overhead {
            // Connections take half of the memory.
            cache.engine.set_memory_limit(2 * tight);
            cache.engine.set_overhead(2 * tight);
        } else {
            cache.engine.set_memory_limit(tight);
        }
        cache.maintain();
        let seen = add_number(&mut cache, 100, 0);
        assert!(matches!(seen, Seen::Sorted(_)), "{seen:?}");
        assert!(matches!(add_number(&mut cache, 19, 5_000), Seen::Sorted(_)));
        cache.assert_memory_within_budget();
        cache.maintain();
        cache.assert_sets_are_counted();
        assert_eq!(strings_left(&mut cache, strings), strings);
        let stats = cache.engine.stats();
        assert!(stats.set_bytes <= tight, "{stats:?}");
        assert!((1..20).contains(&stats.evictions), "{stats:?}");
        // What the limit leaves can be used again when it rises.
        cache.engine.set_overhead(0);
        cache.engine.set_memory_limit(4 * tight);
        for number in 0..20_000 {
            add_number(&mut cache, number % 20, number);
        }
        assert!(cache.engine.stats().set_bytes > tight);
        cache.maintain();
        cache.assert_memory_within_budget();
    }
}

fn a_set_that_exceeds_a_lower_limit_is_evicted_alone<E: TestEngine>() {
    for way in 0..3 {
        let (mut cache, tight, strings) = with_sets::<E>(1);
        let small: u32 = 10;
        for number in 0..10 * small {
            add_number(&mut cache, 1 + number % small, number);
        }
        // The largest set is the one that is in use.
        for _ in 0..5 {
            cache.len_of_set(b"key 0");
        }
        cache.engine.set_memory_limit(tight);
        match way {
            0 => {}
            1 => {
                let seen = add_number(&mut cache, 1, 5_000);
                assert!(matches!(seen, Seen::Sorted(_)), "{seen:?}");
            }
            _ => {
                // It is what makes room that is in the way.
                let seen = cache.set(b"key 0", b"value");
                assert!(seen.is_stored(), "{seen:?}");
            }
        }
        cache.maintain();
        for key in 1..=small {
            let seen = add_number(&mut cache, key, 6_000);
            assert!(matches!(seen, Seen::Sorted(_)), "{seen:?}");
            let len = cache.len_of_set(format!("key {key}").as_bytes());
            assert!(len > 10, "{len} members of set {key}");
        }
        cache.maintain();
        cache.assert_memory_within_budget();
        cache.assert_sets_are_counted();
        assert_eq!(strings_left(&mut cache, strings), strings);
        let stats = cache.engine.stats();
        // A store over it may evict it before.
        assert!(stats.evictions == 1 || way == 2, "{stats:?}");
        assert!(stats.evictions <= 1, "{stats:?}");
    }
}

/// It is freed in steps, and is counted until then.
fn a_large_set_that_is_evicted_takes_no_other_with_it<E: TestEngine>() {
    let tight = Setup::tight::<E>(1);
    let mut cache = Cache::<E>::new(Setup {
        memory: 8 * tight.memory,
        max_item_bytes: 8 * tight.max_item_bytes,
        ..tight
    });
    let mut number = 0;
    while cache.engine.stats().set_bytes < tight.memory * 3 {
        add_number(&mut cache, 0, number);
        number += 1;
    }
    let (mut small, most) = (0, cache.engine.stats().set_bytes + tight.memory / 5);
    while cache.engine.stats().set_bytes < most {
        small += 1;
        for number in 0..60 {
            add_number(&mut cache, small, number);
        }
    }
    assert_eq!(cache.engine.stats().evictions, 0);
    cache.engine.set_memory_limit(tight.memory);
    cache.maintain();
    for key in 1..=small {
        assert_eq!(cache.len_of_set(format!("key {key}").as_bytes()), 60);
    }
    assert_eq!(cache.engine.stats().evictions, 1);
    cache.assert_memory_within_budget();
    cache.assert_sets_are_counted();
}

fn limits_that_fall_and_rise_are_kept_by_sets_and_strings<E: TestEngine>() {
    let tight = Setup::tight::<E>(1);
    let mut lowered = 0;
    for seed in 0..fewer(24).max(8) {
        let mut random = SmallRng::seed_from_u64(seed);
        let most = random.random_range(2..9);
        let mut cache = Cache::<E>::new(Setup {
            memory: most * tight.memory,
            max_item_bytes: most as usize * tight.max_item_bytes,
            ..tight
        });
        let sets: u32 = [1, 3, 40, 400][random.random_range(0..4)];
        let strings_in_16 = random.random_range(0..16);
        for round in 0..4 {
            for step in 0..3_000 {
                if random.random_range(0..16) < strings_in_16 {
                    let len = random.random_range(1..2_000);
                    let seen =
                        cache.set(format!("string {round} {step}").as_bytes(), &vec![7; len]);
                    assert!(seen.is_stored(), "{seen:?}");
                    continue;
                }
                let (key, number) = (random.random_range(0..sets), random.random());
                let seen = add_number(&mut cache, key, number);
                let may_be = matches!(seen, Seen::Sorted(_) | Seen::OutOfMemory);
                assert!(may_be, "{seen:?} of seed {seed}");
            }
            let stats = cache.engine.stats();
            let before = stats.bytes + stats.set_slack_bytes;
            let limit = random.random_range(tight.memory..=most * tight.memory);
            cache.engine.set_memory_limit(limit);
            cache.engine.set_overhead(random.random_range(0..limit / 4));
            lowered += u32::from(limit < before);
            if random.random() {
                cache.maintain();
            }
            let (set, string) = (add_number(&mut cache, 1_000, 0), cache.set(b"string", b"1"));
            let stats = cache.engine.stats();
            assert!(
                matches!(set, Seen::Sorted(_)),
                "{set:?}, seed {seed}: {stats:?}"
            );
            assert!(string.is_stored(), "{string:?}, seed {seed}: {stats:?}");
            cache.maintain();
            cache.assert_memory_within_budget();
            cache.assert_sets_are_counted();
        }
    }
    assert!(lowered > 1, "{lowered} limits were below what there was");
}

fn flushed_and_expired_sets_are_freed<E: TestEngine>() {
    let mut cache = Cache::<E>::roomy();
    for round in 0..2 {
        for number in 0..3_000 {
            add_number(&mut cache, number % 10, number);
        }
        assert_eq!(cache.engine.stats().sets, 10);
        if round == 0 {
            cache.engine.flush_all(Deadline::PAST, cache.now);
            assert_eq!(cache.len_of_set(b"key 0"), 0);
        } else {
            for key in 0..10 {
                let get = Get {
                    any_kind: true,
                    ..Get::touching(Deadline::after_ms(cache.now, 500))
                };
                cache.run(format!("key {key}").as_bytes(), Verb::Get(get));
            }
            cache.now = later(5_000);
        }
        cache.maintain();
        cache.assert_no_sets();
    }
    // The last one is dropped with the engine.
    for number in 0..3_000 {
        add_number(&mut cache, 0, number);
    }
    assert_eq!(cache.engine.stats().sets, 1);
}

// ---- sessions

fn increments_of_several_sessions_are_all_counted<E: TestEngine>() {
    const THREADS: usize = 4;
    let engine = Arc::new(E::make(Setup::roomy()));
    let each = fewer(3_000);
    let run = |thread: usize| {
        let mut cache = Cache::over(&engine);
        let mut random = SmallRng::seed_from_u64(thread as u64);
        for _ in 0..each {
            let key: u32 = random.random_range(0..3);
            // Many members, so that the sets are not flat.
            let member = format!("m{}", random.random_range(0..200));
            let increment = SortedWrite::Increment {
                delta: 1.0,
                member: member.as_bytes(),
                conditions: Conditions::default(),
            };
            let seen = cache.write_set(&key.to_le_bytes(), increment);
            assert!(
                matches!(seen, Seen::Sorted(SeenSet::Score(Some(_)))),
                "{seen:?}"
            );
        }
    };
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            scope.spawn(move || run(thread));
        }
    });
    let mut cache = Cache::over(&engine);
    let mut sum = 0.0;
    for key in 0..3_u32 {
        let all = MemberRange {
            bounds: Bounds::ALL,
            direction: Direction::Ascending,
            skip: 0,
            most: usize::MAX,
        };
        match cache.read_set(&key.to_le_bytes(), SortedRead::Range(all)) {
            Seen::Sorted(SeenSet::Members(members)) => {
                sum += members.iter().map(|(_, score)| score).sum::<f64>();
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(sum, (each * THREADS as u64) as f64);
    cache.assert_sets_are_counted();
}

fn sessions_that_write_and_evict_count_every_byte<E: TestEngine>() {
    const THREADS: usize = 4;
    let engine = Arc::new(E::make(Setup::tight::<E>(THREADS)));
    let steps = fewer(20_000);
    let run = |thread: usize| {
        let mut cache = Cache::over(&engine);
        let mut random = SmallRng::seed_from_u64(thread as u64);
        for step in 0..steps {
            let key = random.random_range(0..30);
            let name = format!("key {key}");
            match random.random_range(0..4_000) {
                0 => cache.engine.flush_all(Deadline::PAST, cache.now),
                1..50 => _ = cache.delete(name.as_bytes(), Delete::default()),
                50..90 => _ = cache.set(name.as_bytes(), &[1; 200]),
                90..600 => {
                    let seen = cache.set(format!("string {step} {thread}").as_bytes(), &[2; 8_000]);
                    assert!(seen.is_stored() || seen == Seen::OutOfMemory, "{seen:?}");
                }
                600..1_000 => _ = cache.read_set(name.as_bytes(), SortedRead::Len),
                1_000..1_100 => {
                    // Others write to both keys meanwhile.
                    let copies = random.random();
                    let _ = cache.transfer_set(name.as_bytes(), b"key 3", copies);
                }
                _ => {
                    let seen = add_number(&mut cache, key, random.random_range(0..4_000));
                    let may_be =
                        matches!(seen, Seen::Sorted(_) | Seen::WrongKind | Seen::OutOfMemory);
                    assert!(may_be, "{seen:?}");
                }
            }
            if step % 128 == 0 {
                cache.session.maintain(cache.now);
            }
        }
    };
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            scope.spawn(move || run(thread));
        }
    });
    let mut cache = Cache::over(&engine);
    cache.maintain();
    cache.assert_sets_are_counted();
    assert!(engine.stats().evictions > 0);
    engine.flush_all(Deadline::PAST, cache.now);
    cache.maintain();
    cache.assert_no_sets();
}
