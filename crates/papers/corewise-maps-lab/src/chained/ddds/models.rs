//! Lookups and updates during the phases of a resize, which the models enter directly.

use super::super::model_set::{PRESENT, Set, beside, both, every_pair, every_pair_bounded};
use super::*;

type Phase<const LITERAL: bool> = unsafe fn(&DddsTable<LITERAL>);

/// The phases of a resize, in order.
const fn phases<const LITERAL: bool>() -> [Phase<LITERAL>; 3] {
    [
        DddsTable::start_to_move,
        DddsTable::move_all,
        DddsTable::finish,
    ]
}

/// A set whose resize has begun and completed `done` phases; it continues at the end with phase
/// `then`.
fn under_way<const LITERAL: bool>(
    from: usize,
    to: u32,
    keys: &[u64],
    done: usize,
    then: usize,
) -> Set<DddsTable<LITERAL>> {
    let begin = |table: &DddsTable<LITERAL>| {
        // SAFETY: the set is not shared yet, and these are the steps in order (1).
        unsafe {
            table.begin(to).unwrap();
            phases()[..done].iter().for_each(|phase| phase(table));
        }
    };
    Set::under_way(from, keys, begin, move |table| {
        // SAFETY: the models run the phases between `done` and `then` (1).
        unsafe { phases()[then..].iter().for_each(|phase| phase(table)) };
    })
}

/// Two keys in one chain: a lookup of the second may stand on the first when that is moved.
fn look_beside_moves<const LITERAL: bool>(from: usize, to: u32, keys: [u64; 2]) {
    for key in keys {
        corewise_atomic::model_bounded(2, move || {
            let [first, second] = keys;
            both(
                under_way::<LITERAL>(from, to, &[second, first], 1, 2),
                // SAFETY: one phase was run, and no other thread resizes (1).
                |set| unsafe { set.table.move_all() },
                move |set| assert!(set.has(key), "{key} is missing"),
                &keys,
            );
        });
    }
}

#[test]
fn a_lookup_beside_an_expansion_never_misses_a_present_key() {
    look_beside_moves::<false>(1, 1, [1, 2]);
}

#[test]
fn a_literal_lookup_beside_an_expansion_never_misses_a_present_key() {
    look_beside_moves::<true>(1, 1, [1, 2]);
}

#[test]
fn a_lookup_beside_a_shrink_never_misses_a_present_key() {
    look_beside_moves::<false>(2, 0, [1, 3]);
}

#[test]
fn a_literal_lookup_beside_a_shrink_never_misses_a_present_key() {
    look_beside_moves::<true>(2, 0, [1, 3]);
}

#[test]
fn a_lookup_beside_moves_misses_an_absent_key() {
    corewise_atomic::model_bounded(2, || {
        let set = under_way::<false>(1, 1, &[3, 1], 1, 3);
        beside(
            set,
            &[
                // SAFETY: one phase was run, and no other thread resizes (1).
                |set| unsafe {
                    set.table.move_all();
                    set.table.finish();
                },
                |set| assert!(!set.has(5)),
            ],
            &[1, 3],
        );
    });
}

/// A lookup during a whole resize.
fn look_beside_a_resize<const LITERAL: bool>(from: usize, to: usize, key: u64) {
    corewise_atomic::model_bounded(2, move || {
        both(
            Set::<DddsTable<LITERAL>>::new(from, &[3, 1]),
            move |set| set.resize(to),
            move |set| assert!(set.has(key), "{key} is missing"),
            &[1, 3],
        );
    });
}

#[test]
fn lookups_do_not_notice_an_expansion() {
    look_beside_a_resize::<false>(1, 2, 1);
    look_beside_a_resize::<false>(1, 2, 3);
}

#[test]
fn literal_lookups_do_not_notice_an_expansion() {
    look_beside_a_resize::<true>(1, 2, 1);
    look_beside_a_resize::<true>(1, 2, 3);
}

#[test]
fn lookups_do_not_notice_a_shrink() {
    look_beside_a_resize::<false>(2, 1, 1);
    look_beside_a_resize::<false>(2, 1, 3);
}

#[test]
fn literal_lookups_do_not_notice_a_shrink() {
    look_beside_a_resize::<true>(2, 1, 1);
    look_beside_a_resize::<true>(2, 1, 3);
}

fn beside_each_phase<const LITERAL: bool>(
    update: fn(&Set<DddsTable<LITERAL>>),
    then: &'static [u64],
) {
    for (from, to) in [(1, 1), (2, 0)] {
        for (done, phase) in phases::<LITERAL>().into_iter().enumerate() {
            corewise_atomic::model_bounded(2, move || {
                let set = under_way(from, to, &[2, 1], done, done + 1);
                // SAFETY: the phases before it were run, and no other thread resizes (1).
                both(set, move |set| unsafe { phase(&set.table) }, update, then);
            });
        }
    }
}

#[test]
fn an_insert_beside_each_phase() {
    fn update<const LITERAL: bool>(set: &Set<DddsTable<LITERAL>>) {
        assert!(!set.insert(2), "2 is there");
        assert!(set.insert(4));
        assert!(set.has(4));
    }
    beside_each_phase::<false>(update, &[1, 2, 4]);
    beside_each_phase::<true>(update, &[1, 2, 4]);
}

#[test]
fn a_removal_beside_each_phase() {
    fn update<const LITERAL: bool>(set: &Set<DddsTable<LITERAL>>) {
        set.drop_key(2);
        assert!(!set.has(2));
    }
    beside_each_phase::<false>(update, &[1]);
    beside_each_phase::<true>(update, &[1]);
}

/// The removal moves its bucket.
#[test]
fn a_lookup_beside_a_removal_that_moves() {
    corewise_atomic::model_bounded(2, || {
        let set = under_way::<false>(1, 1, &[2, 1], 1, 1);
        beside(
            set,
            &[
                |set| set.drop_key(1),
                |set| assert!(set.has(2), "2 is missing"),
            ],
            &[2],
        );
    });
}

fn look_and_update_during_resizes<const LITERAL: bool>() {
    corewise_atomic::model_bounded(3, || {
        let set = Set::<DddsTable<LITERAL>>::new(1, &[6, 5, 4, 3, 2, 1]);
        let updates = |set: &Set<DddsTable<LITERAL>>| {
            for key in [3, 2, 5, 3, 2] {
                set.drop_key(key);
                assert!(!set.has(key));
                assert!(set.insert(key));
                assert!([1, 4, 6].iter().all(|key| set.has(*key)));
            }
        };
        let resizes = |set: &Set<DddsTable<LITERAL>>| {
            for buckets in [2, 8, 4, 1] {
                set.resize(buckets);
            }
        };
        beside(set, &[resizes, updates], &[1, 2, 3, 4, 5, 6]);
    });
}

#[test]
fn lookups_and_updates_during_resizes() {
    look_and_update_during_resizes::<false>();
}

#[test]
fn literal_lookups_and_updates_during_resizes() {
    look_and_update_during_resizes::<true>();
}

#[test]
fn every_pair_at_rest() {
    every_pair(|| Set::<Ddds>::new(1, &PRESENT));
}

#[test]
fn every_pair_in_each_phase_of_a_shrink() {
    every_pair(|| under_way::<false>(2, 0, &PRESENT, 0, 0));
    every_pair(|| under_way::<false>(2, 0, &PRESENT, 1, 1));
    every_pair(|| under_way::<false>(2, 0, &PRESENT, 2, 2));
}

#[test]
fn every_pair_in_each_phase_of_an_expansion() {
    every_pair(|| under_way::<false>(1, 1, &PRESENT, 0, 0));
    every_pair(|| under_way::<false>(1, 1, &PRESENT, 2, 2));
}

/// All three entries are in one bucket: an update moves them all, and a concurrent lookup restarts
/// after each move.
#[test]
fn every_pair_while_an_expansion_moves() {
    every_pair_bounded(|| under_way::<false>(1, 1, &PRESENT, 1, 1), 1);
}

/// Runs each pair twice: before entries are moved, and while two threads may move them.
#[test]
fn every_literal_pair_while_an_expansion_moves() {
    every_pair_bounded(|| under_way::<true>(1, 1, &PRESENT, 0, 0), 1);
    every_pair_bounded(|| under_way::<true>(1, 1, &PRESENT, 1, 1), 1);
}
