//! Lookups and updates beside the phases of a resize, which are entered directly.

use super::super::modelled::{Set, beside};
use super::*;

type Phase = fn(&Ddds);

/// A resize, from its beginning to its end.
const PHASES: [Phase; 3] = [Ddds::start_to_move, Ddds::move_all, Ddds::finish];

/// A set whose resize is so many phases after its beginning.
fn under_way(from: usize, to: u32, keys: &[u64], phases: usize) -> Set<Ddds> {
    let set = Set::<Ddds>::new(from, keys.iter().copied());
    set.table.begin(to).unwrap();
    PHASES[..phases].iter().for_each(|phase| phase(&set.table));
    set
}

/// The rest of the resize, and what is in the set then.
fn finish(set: Set<Ddds>, phases: usize) -> Vec<u64> {
    PHASES[phases..].iter().for_each(|phase| phase(&set.table));
    set.take()
}

/// Two keys in one chain; who looks for the second may stand on the first when that is moved.
fn look_beside_moves(from: usize, to: u32, keys: [u64; 2]) {
    for key in keys {
        corewise_atomic::model_bounded(2, move || {
            let set = under_way(from, to, &keys, 1);
            let set = beside(
                set,
                |set| set.table.move_all(),
                move |set| assert!(set.has(key), "{key} is missing"),
            );
            assert_eq!(finish(set, 2), keys);
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
        let set = under_way(1, 1, &[1, 3], 1);
        beside(
            set,
            |set| {
                set.table.move_all();
                set.table.finish();
            },
            |set| assert!(!set.has(5)),
        );
    });
}

/// From a table at rest to a table at rest.
fn look_beside_a_resize(from: usize, to: usize, key: u64) {
    corewise_atomic::model_bounded(2, move || {
        let set = Set::<Ddds>::new(from, [1, 3].into_iter());
        let set = beside(
            set,
            move |set| {
                set.table.resize(to).unwrap();
            },
            move |set| assert!(set.has(key), "{key} is missing"),
        );
        assert_eq!(set.take(), [1, 3]);
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
                let set = under_way(from, to, &[1, 2], phases);
                let set = beside(set, move |set| phase(&set.table), update);
                assert_eq!(finish(set, phases + 1), then);
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
            assert!(set.remove(2), "2 is there");
            assert!(!set.has(2));
        },
        &[1],
    );
}

/// The removal moves its bucket.
#[test]
fn a_lookup_beside_a_removal_that_moves() {
    corewise_atomic::model_bounded(2, || {
        let set = under_way(1, 1, &[1, 2], 1);
        let set = beside(
            set,
            |set| assert!(set.remove(1)),
            |set| assert!(set.has(2), "2 is missing"),
        );
        assert_eq!(finish(set, 1), [2]);
    });
}

#[test]
fn lookups_and_updates_during_resizes() {
    corewise_atomic::model_bounded(3, || {
        let set = Set::<Ddds>::new(1, 1..=6);
        let updates = |set: &Set<Ddds>| {
            for key in [3, 2, 5, 3, 2] {
                assert!(set.remove(key));
                assert!(!set.has(key));
                assert!(set.insert(key));
                assert!([1, 4, 6].iter().all(|key| set.has(*key)));
            }
        };
        let resizes = |set: &Set<Ddds>| {
            for buckets in [2, 8, 4, 1] {
                set.table.resize(buckets).unwrap();
            }
        };
        assert_eq!(beside(set, resizes, updates).take(), [1, 2, 3, 4, 5, 6]);
    });
}
