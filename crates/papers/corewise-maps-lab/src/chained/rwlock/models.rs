//! Lookups and updates, concurrent with each other and with a resize.

use super::super::model_set::{PRESENT, Set, beside, both, every_pair};
use super::*;

#[test]
fn lookups_do_not_notice_resizes() {
    for (from, to) in [(1, 2), (2, 1)] {
        corewise_atomic::model_bounded(2, move || {
            let set = Set::<RwLocked>::new(from, &[3, 2, 1]);
            let look = |set: &Set<_>| assert!(set.has(3) && set.has(2));
            both(set, move |set| set.resize(to), look, &[1, 2, 3]);
        });
    }
}

#[test]
fn updates_beside_a_resize() {
    for (from, to) in [(1, 2), (2, 1)] {
        corewise_atomic::model_bounded(2, move || {
            let set = Set::<RwLocked>::new(from, &[3, 2, 1]);
            let update = |set: &Set<_>| {
                assert!(set.insert(4) && !set.insert(3));
                set.drop_key(2);
                assert!(!set.has(2));
            };
            both(set, move |set| set.resize(to), update, &[1, 3, 4]);
        });
    }
}

#[test]
fn two_updates_of_a_bucket_have_effect() {
    corewise_atomic::model_bounded(2, || {
        let set = Set::<RwLocked>::new(1, &[1]);
        let insert_and_remove = |set: &Set<_>| {
            assert!(set.insert(3));
            set.drop_key(1);
        };
        beside(
            set,
            &[|set| assert!(set.insert(2)), insert_and_remove],
            &[2, 3],
        );
    });
}

#[test]
fn a_removed_node_is_freed_after_its_readers() {
    corewise_atomic::model_bounded(2, || {
        let set = Set::<RwLocked>::new(1, &[2, 1]);
        beside(
            set,
            &[|set| set.drop_key(1), |set| assert!(set.has(2))],
            &[2],
        );
    });
}

#[test]
fn every_pair_at_rest() {
    every_pair(|| Set::<RwLocked>::new(1, &PRESENT));
}
