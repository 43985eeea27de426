//! The methods of a replicated sorted set, and of its handles, beside those of a sequential one.
#![cfg(not(any(corewise_loom, corewise_shuttle)))]

use std::ops::Bound;

use corewise_nr::sorted_set::{Bounds, Conditions, Direction, Presence, ScoreChange, SortedSet};
use corewise_nr::{Builder, Handle, NodeReplicated};
use corewise_testkit::random::{Random, fewer};

use Direction::{Ascending, Descending};

/// Few, so that most operations find some of them.
const MEMBERS: [&[u8]; 6] = [b"a", b"b", b"c", b"d", b"e", b"f"];

fn score(random: &mut Random) -> f64 {
    random.choose(&[
        -1.0,
        0.0,
        1.5,
        2.0,
        f64::INFINITY,
        f64::NEG_INFINITY,
        f64::NAN,
    ])
}

fn conditions(random: &mut Random) -> Conditions {
    let presence = [Presence::Any, Presence::Absent, Presence::Present];
    let change = [ScoreChange::Any, ScoreChange::Greater, ScoreChange::Less];
    Conditions {
        presence: random.choose(&presence),
        change: random.choose(&change),
    }
}

fn bounds(random: &mut Random) -> Bounds<'static> {
    let (one, other) = (random.choose(&MEMBERS), random.choose(&MEMBERS));
    match random.index(4) {
        0 => Bounds::ALL,
        1 => Bounds::Rank(random.below(4) as i64 - 1, random.below(6) as i64 - 3),
        2 => Bounds::Score(Bound::Included(score(random)), Bound::Unbounded),
        _ => Bounds::Lex(Bound::Excluded(one), Bound::Included(other)),
    }
}

/// What `range` and `pop_many` return, for comparison: no two scores that compare as equal differ.
fn entries<'a>(range: impl Iterator<Item = (&'a [u8], f64)>) -> Vec<(Box<[u8]>, f64)> {
    range
        .map(|(member, score)| (member.into(), score))
        .collect()
}

macro_rules! one_operation {
    ($name:ident, $type:ty) => {
        fn $name(shared: &$type, model: &mut SortedSet, random: &mut Random) {
            let member = random.choose(&MEMBERS);
            let direction = random.choose(&[Ascending, Descending]);
            match random.index(14) {
                0 | 1 => {
                    let score = score(random);
                    assert_eq!(shared.insert(member, score), model.insert(member, score));
                }
                2 => {
                    let (score, conditions) = (score(random), conditions(random));
                    let expected = model.insert_if(member, score, conditions);
                    assert_eq!(shared.insert_if(member, score, conditions), expected);
                }
                3 | 4 => {
                    let delta = score(random);
                    let expected = model.increment(member, delta);
                    assert_eq!(shared.increment(member, delta), expected);
                }
                5 => {
                    let (delta, conditions) = (score(random), conditions(random));
                    let expected = model.increment_if(member, delta, conditions);
                    assert_eq!(shared.increment_if(member, delta, conditions), expected);
                }
                6 => assert_eq!(shared.remove(member), model.remove(member)),
                7 => {
                    let bounds = bounds(random);
                    // Not all of them, most of the time.
                    if bounds != Bounds::ALL || random.index(8) == 0 {
                        assert_eq!(shared.remove_range(bounds), model.remove_range(bounds));
                    }
                }
                8 => {
                    let count = random.index(3);
                    let expected = model.pop_many(direction, count);
                    assert_eq!(shared.pop_many(direction, count), expected);
                }
                9 if random.index(8) == 0 => {
                    assert_eq!(shared.clear(), model.len());
                    model.clear();
                }
                10 => {
                    let bounds = bounds(random);
                    assert_eq!(shared.count(bounds), model.count(bounds));
                    let (offset, limit) = (random.index(3), random.index(4));
                    let range = model.range(bounds, direction).skip(offset).take(limit);
                    let got = shared.range(bounds, direction, offset, limit);
                    assert_eq!(got, entries(range));
                }
                _ => {
                    assert_eq!(shared.score(member), model.score(member));
                    assert_eq!(
                        shared.rank(member, direction),
                        model.rank(member, direction)
                    );
                    assert_eq!(shared.len(), model.len());
                    assert_eq!(shared.is_empty(), model.is_empty());
                }
            }
        }
    };
}

one_operation!(operate, NodeReplicated<SortedSet>);
one_operation!(operate_by, Handle<'_, SortedSet>);

#[test]
fn methods_of_a_replicated_set_return_what_those_of_a_set_do() {
    for seed in 0..fewer(16) {
        let mut random = Random::from_seed(seed);
        let mut model = SortedSet::new();
        let builder = Builder::new().replicas(2).log(4).max_log(16);
        let shared = builder.build(|_| SortedSet::new()).unwrap();
        let ids = shared.replicas();
        let handles: Vec<_> = ids
            .iter()
            .map(|id| shared.handle(Some(*id)).unwrap())
            .collect();
        for _ in 0..1_000 {
            match random.index(3) {
                0 => operate(&shared, &mut model, &mut random),
                handle => operate_by(&handles[handle - 1], &mut model, &mut random),
            }
        }
    }
}
