//! Lookups and updates during the phases of a resize, which the models enter directly.

use super::super::model_set::{PRESENT, Set, beside, both, every_pair, every_pair_bounded};
use super::*;

type Phase = fn(&Ddds);

/// The phases of a resize, in order.
const PHASES: [Phase; 3] = [Ddds::start_to_move, Ddds::move_all, Ddds::finish];

/// A set whose resize has begun and completed `phases` phases; it continues at the end with phase
/// `then`.
fn under_way(from: usize, to: u32, keys: &[u64], phases: usize, then: usize) -> Set<Ddds> {
    let begin = |table: &Ddds| {
        table.begin(to).unwrap();
        PHASES[..phases].iter().for_each(|phase| phase(table));
    };
    Set::under_way(from, keys, begin, move |table| {
        PHASES[then..].iter().for_each(|phase| phase(table));
    })
}

/// Two keys in one chain: a lookup of the second may stand on the first when that is moved.
fn look_beside_moves(from: usize, to: u32, keys: [u64; 2]) {
    for key in keys {
        corewise_atomic::model_bounded(2, move || {
            let [first, second] = keys;
            both(
                under_way(from, to, &[second, first], 1, 2),
                |set| set.table.move_all(),
                move |set| assert!(set.has(key), "{key} is missing"),
                &keys,
            );
        });
    }
}

#[test]
fn a_lookup_beside_an_expansion_never_misses_a_present_key() {
    look_beside_moves(1, 1, [1, 2]);
}

#[test]
fn a_lookup_beside_a_shrink_never_misses_a_present_key() {
    look_beside_moves(2, 0, [1, 3]);
}

#[test]
fn a_lookup_beside_moves_misses_an_absent_key() {
    corewise_atomic::model_bounded(2, || {
        let set = under_way(1, 1, &[3, 1], 1, 3);
        beside(
            set,
            &[
                |set| {
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
fn look_beside_a_resize(from: usize, to: usize, key: u64) {
    corewise_atomic::model_bounded(2, move || {
        both(
            Set::<Ddds>::new(from, &[3, 1]),
            move |set| set.resize(to),
            move |set| assert!(set.has(key), "{key} is missing"),
            &[1, 3],
        );
    });
}

#[test]
fn lookups_do_not_notice_an_expansion() {
    look_beside_a_resize(1, 2, 1);
    look_beside_a_resize(1, 2, 3);
}

#[test]
fn lookups_do_not_notice_a_shrink() {
    look_beside_a_resize(2, 1, 1);
    look_beside_a_resize(2, 1, 3);
}

fn beside_each_phase(update: fn(&Set<Ddds>), then: &'static [u64]) {
    for (from, to) in [(1, 1), (2, 0)] {
        for (phases, phase) in PHASES.into_iter().enumerate() {
            corewise_atomic::model_bounded(2, move || {
                let set = under_way(from, to, &[2, 1], phases, phases + 1);
                both(set, move |set| phase(&set.table), update, then);
            });
        }
    }
}

#[test]
fn an_insert_beside_each_phase() {
    beside_each_phase(
        |set| {
            assert!(!set.insert(2), "2 is there");
            assert!(set.insert(4));
            assert!(set.has(4));
        },
        &[1, 2, 4],
    );
}

#[test]
fn a_removal_beside_each_phase() {
    beside_each_phase(
        |set| {
            set.drop_key(2);
            assert!(!set.has(2));
        },
        &[1],
    );
}

/// The removal moves its bucket.
#[test]
fn a_lookup_beside_a_removal_that_moves() {
    corewise_atomic::model_bounded(2, || {
        let set = under_way(1, 1, &[2, 1], 1, 1);
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

#[test]
fn lookups_and_updates_during_resizes() {
    corewise_atomic::model_bounded(3, || {
        let set = Set::<Ddds>::new(1, &[6, 5, 4, 3, 2, 1]);
        let updates = |set: &Set<Ddds>| {
            for key in [3, 2, 5, 3, 2] {
                set.drop_key(key);
                assert!(!set.has(key));
                assert!(set.insert(key));
                assert!([1, 4, 6].iter().all(|key| set.has(*key)));
            }
        };
        let resizes = |set: &Set<Ddds>| {
            for buckets in [2, 8, 4, 1] {
                set.resize(buckets);
            }
        };
        beside(set, &[resizes, updates], &[1, 2, 3, 4, 5, 6]);
    });
}

#[test]
fn every_pair_at_rest() {
    every_pair(|| Set::<Ddds>::new(1, &PRESENT));
}

#[test]
fn every_pair_in_each_phase_of_a_shrink() {
    every_pair(|| under_way(2, 0, &PRESENT, 0, 0));
    every_pair(|| under_way(2, 0, &PRESENT, 1, 1));
    every_pair(|| under_way(2, 0, &PRESENT, 2, 2));
}

#[test]
fn every_pair_in_each_phase_of_an_expansion() {
    every_pair(|| under_way(1, 1, &PRESENT, 0, 0));
    every_pair(|| under_way(1, 1, &PRESENT, 2, 2));
}

/// All three entries are in one bucket: an update moves them all, and a concurrent lookup restarts
/// after each move.
#[test]
fn every_pair_while_an_expansion_moves() {
    every_pair_bounded(|| under_way(1, 1, &PRESENT, 1, 1), 1);
}
