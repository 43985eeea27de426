//! Models of the table that moves entries one by one. The key inserted last is the first of its
//! chain.

use corewise_atomic::model_bounded;

use super::super::model_set::{PRESENT, Set, beside, every_pair};
use super::{PerEntry, PerEntryBuckets};

type Moved = Set<PerEntry>;

#[test]
fn lookups_beside_an_expansion() {
    model_bounded(2, || {
        let set = Moved::new(1, &[1, 2, 3]);
        beside(
            set,
            &[|set| set.resize(2), |set| assert!(set.has(1))],
            &[1, 2, 3],
        );
    });
}

#[test]
fn lookups_beside_a_shrink() {
    model_bounded(2, || {
        let set = Moved::new(2, &[1, 3, 2]);
        beside(
            set,
            &[|set| set.resize(1), |set| assert!(set.has(1) && set.has(2))],
            &[1, 2, 3],
        );
    });
}

#[test]
fn updates_beside_an_expansion() {
    model_bounded(2, || {
        let set = Moved::new(1, &[1, 2]);
        beside(
            set,
            &[
                |set| set.resize(2),
                |set| {
                    assert!(set.insert(3));
                    assert!(!set.insert(1));
                    assert!(set.has(3));
                    set.drop_key(2);
                    assert!(!set.has(2));
                },
            ],
            &[1, 3],
        );
    });
}

#[test]
fn updates_beside_a_shrink() {
    model_bounded(2, || {
        let set = Moved::new(2, &[1, 2]);
        beside(
            set,
            &[
                |set| set.resize(1),
                |set| {
                    assert!(set.insert(3));
                    set.drop_key(1);
                    assert!(!set.has(1) && set.has(2));
                },
            ],
            &[2, 3],
        );
    });
}

#[test]
fn one_of_two_insertions_wins_beside_a_resize() {
    model_bounded(1, || {
        let set = Moved::new(1, &[1]);
        let insert_or_remove = |set: &Moved| {
            if !set.insert(3) {
                set.drop_key(3);
            }
        };
        beside(
            set,
            &[insert_or_remove, insert_or_remove, |set| set.resize(2)],
            &[1],
        );
    });
}

#[test]
fn a_removed_node_is_freed_after_its_readers() {
    model_bounded(2, || {
        let set = Moved::new(1, &[0x102, 0x202]);
        beside(
            set,
            &[|set| set.drop_key(0x202), |set| assert!(set.has(0x102))],
            &[0x102],
        );
    });
}

/// A set in which a resize has moved the entries of `MOVED` buckets.
fn under_way<const FROM: usize, const TO: usize, const MOVED: usize>() -> Moved {
    let begin = |table: &PerEntry| {
        // SAFETY: only this thread resizes; here and below.
        let old = unsafe { table.current() };
        let new = PerEntryBuckets::try_new(TO.ilog2()).unwrap();
        // SAFETY: no other thread resizes, and it is the first resize (1).
        unsafe { table.attach(old, new) };
        for bucket in 0..MOVED {
            let tables = (old, old.future().unwrap());
            // SAFETY: only this thread resizes.
            unsafe { table.move_bucket(tables, bucket, &mut Vec::new()) };
        }
    };
    // SAFETY: only this thread resizes.
    Set::under_way(FROM, &PRESENT, begin, |table| unsafe { table.move_on() })
}

#[test]
fn every_pair_at_rest() {
    every_pair(|| Moved::new(1, &PRESENT));
}

#[test]
fn every_pair_beside_two_tables() {
    every_pair(under_way::<1, 2, 0>);
    every_pair(under_way::<1, 2, 1>);
    every_pair(under_way::<2, 1, 0>);
    every_pair(under_way::<2, 1, 1>);
}

/// Resizes, lookups and updates together, for the checker of long schedules.
#[test]
fn updates_and_lookups_beside_resizes() {
    model_bounded(1, || {
        let set = Moved::new(1, &[1, 2, 3, 4, 6]);
        beside(
            set,
            &[
                |set| {
                    [4, 1, 2, 1]
                        .into_iter()
                        .for_each(|buckets| set.resize(buckets))
                },
                |set| {
                    for key in [4, 1, 6, 4, 1] {
                        assert!(set.has(key), "{key:#x} is missing");
                    }
                },
                |set| {
                    for key in [3, 2, 3] {
                        set.drop_key(key);
                        assert!(!set.has(key));
                        assert!(set.insert(key));
                    }
                },
            ],
            &[1, 2, 3, 4, 6],
        );
    });
}
