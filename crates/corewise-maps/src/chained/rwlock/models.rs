//! Lookups and updates beside each other and beside a resize.

use super::super::modelled::{Set, beside};
use super::*;

fn resize_to(buckets: usize) -> impl FnOnce(&Set<RwLocked>) + Send {
    move |set| {
        set.table.resize(buckets).unwrap();
    }
}

#[test]
fn lookups_do_not_notice_resizes() {
    for (from, to) in [(1, 2), (2, 1)] {
        corewise_atomic::model_bounded(2, move || {
            let set = Set::new(from, [1, 2, 3].into_iter());
            let set = beside(set, resize_to(to), |set| assert!(set.has(3) && set.has(2)));
            assert_eq!(set.take(), [1, 2, 3]);
        });
    }
}

#[test]
fn updates_beside_a_resize() {
    for (from, to) in [(1, 2), (2, 1)] {
        corewise_atomic::model_bounded(2, move || {
            let set = Set::new(from, [1, 2, 3].into_iter());
            let set = beside(set, resize_to(to), |set| {
                assert!(set.insert(4) && !set.insert(3));
                assert!(set.remove(2) && !set.has(2));
            });
            assert_eq!(set.take(), [1, 3, 4]);
        });
    }
}

#[test]
fn two_updates_of_a_bucket_have_effect() {
    corewise_atomic::model_bounded(2, || {
        let set = Set::<RwLocked>::new(1, [1].into_iter());
        let set = beside(
            set,
            |set| assert!(set.insert(2)),
            |set| assert!(set.insert(3) && set.remove(1)),
        );
        assert_eq!(set.take(), [2, 3]);
    });
}

#[test]
fn a_removed_node_is_freed_after_its_readers() {
    corewise_atomic::model_bounded(2, || {
        let set = Set::<RwLocked>::new(1, [1, 2].into_iter());
        beside(set, |set| assert!(set.remove(1)), |set| assert!(set.has(2)));
    });
}
