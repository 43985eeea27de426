//! Models of the split-ordered list. The order of small hashes is 0 4 2 6 1 5 3 7.

use corewise_atomic::model_bounded;

use super::super::model_set::{PRESENT, Set, beside, every_operation_beside_a_resize, every_pair};
use super::SplitOrdered;

type List = Set<SplitOrdered>;

#[test]
fn an_inserted_node_is_seen_whole() {
    model_bounded(3, || {
        let set = List::new(1, &[1]);
        beside(
            set,
            &[
                |set| assert!(set.insert(0x101)),
                |set| {
                    set.has(0x101);
                    assert!(set.has(1));
                },
            ],
            &[1, 0x101],
        );
    });
}

#[test]
fn an_insertion_beside_the_removal_of_its_predecessor() {
    model_bounded(2, || {
        let set = List::new(1, &[4, 1]);
        beside(
            set,
            &[
                |set| set.drop_key(4),
                |set| {
                    assert!(set.insert(2));
                    assert!(set.has(2));
                },
            ],
            &[1, 2],
        );
    });
}

/// The reader may stand on the removed node while another is inserted behind it.
#[test]
fn a_lookup_beside_a_removal_and_an_insertion() {
    model_bounded(1, || {
        let set = List::new(1, &[4, 1]);
        beside(
            set,
            &[
                |set| assert!(set.has(1)),
                |set| set.leave_key(4),
                |set| assert!(set.insert(2)),
            ],
            &[1, 2],
        );
    });
}

#[test]
fn one_of_two_insertions_wins() {
    model_bounded(2, || {
        let set = List::new(1, &[0x102]);
        let insert_or_remove = |set: &List| {
            if !set.insert(0x202) {
                set.drop_key(0x202);
            }
        };
        beside(set, &[insert_or_remove, insert_or_remove], &[0x102]);
    });
}

#[test]
fn different_keys_of_one_hash_are_both_inserted() {
    model_bounded(2, || {
        let set = List::new(1, &[]);
        beside(
            set,
            &[
                |set| assert!(set.insert(0x102)),
                |set| assert!(set.insert(0x202)),
            ],
            &[0x102, 0x202],
        );
    });
}

/// The second removal finds that the key is absent.
#[test]
fn one_of_two_removals_wins() {
    model_bounded(2, || {
        let set = List::new(1, &[4, 2]);
        let remove_and_insert = |set: &List| match set.remove(2) {
            Some(removed) => set.free(removed),
            None => assert!(!set.has(2)),
        };
        beside(set, &[remove_and_insert, remove_and_insert], &[4]);
    });
}

/// Its old node is behind one that is being removed; its new node is in front of that one.
#[test]
fn a_key_comes_back() {
    model_bounded(2, || {
        let set = List::new(1, &[0x102, 0x202]);
        beside(
            set,
            &[
                |set| {
                    set.drop_key(0x102);
                    assert!(set.insert(0x102));
                    assert!(set.has(0x102));
                },
                |set| {
                    set.drop_key(0x202);
                    assert!(!set.has(0x202));
                },
            ],
            &[0x102],
        );
    });
}

/// Each removal may find that the other has changed the word before its node.
#[test]
fn neighbours_are_removed() {
    model_bounded(2, || {
        let set = List::new(1, &[0x102, 0x202, 0x302]);
        beside(
            set,
            &[
                |set| set.drop_key(0x302),
                |set| {
                    set.drop_key(0x202);
                    assert!(set.has(0x102));
                },
            ],
            &[0x102],
        );
    });
}

#[test]
fn a_removed_node_is_freed_after_its_readers() {
    model_bounded(2, || {
        let set = List::new(1, &[0x102, 0x202]);
        beside(
            set,
            &[|set| set.drop_key(0x202), |set| assert!(set.has(0x102))],
            &[0x102],
        );
    });
}

#[test]
fn lookups_start_from_an_ancestor() {
    model_bounded(2, || {
        // The key is older than its bucket and that bucket's parent, and neither was made ready.
        let set = List::new(1, &[3]);
        // SAFETY: the set is not shared yet; it has one segment, then those of 4 buckets (1, both).
        unsafe {
            set.table.add_segments(1, 2).unwrap();
            set.table.set_log2(2);
        }
        beside(
            set,
            &[|set| assert!(set.insert(7)), |set| assert!(set.has(3))],
            &[3, 7],
        );
    });
}

#[test]
fn updates_and_lookups_beside_an_expansion() {
    model_bounded(2, || {
        let set = List::new(1, &[2, 1]);
        beside(
            set,
            &[
                |set| set.resize(2),
                |set| {
                    assert!(set.insert(3));
                    assert!(set.has(3) && set.has(1));
                    set.drop_key(1);
                },
            ],
            &[2, 3],
        );
    });
}

#[test]
fn updates_beside_a_shrink() {
    model_bounded(2, || {
        // Bucket 1 is not ready.
        let set = List::new(2, &[2]);
        beside(
            set,
            &[
                |set| set.resize(1),
                |set| {
                    assert!(set.insert(3));
                    assert!(set.has(3) && set.has(2));
                },
            ],
            &[2, 3],
        );
    });
}

#[test]
fn lookups_beside_a_shrink() {
    model_bounded(2, || {
        let set = List::new(2, &[2, 3]);
        beside(
            set,
            &[|set| set.resize(1), |set| assert!(set.has(3))],
            &[2, 3],
        );
    });
}

#[test]
fn every_pair_at_rest() {
    every_pair(|| List::new(1, &PRESENT));
}

/// Only the first bucket is ready.
#[test]
fn every_pair_before_buckets_are_ready() {
    every_pair(|| {
        let begin = |table: &SplitOrdered| {
            // SAFETY: the set is not shared yet; it has one segment, then two (1, both).
            unsafe {
                table.add_segments(1, 1).unwrap();
                table.set_log2(1);
            }
        };
        List::under_way(1, &PRESENT, begin, |_| ())
    });
}

/// No operation starts from the removed bucket.
#[test]
fn every_pair_before_buckets_are_removed() {
    every_pair(|| {
        // SAFETY: the set is not shared yet; it has the segment of one bucket (1).
        let begin = |table: &SplitOrdered| unsafe { table.set_log2(0) };
        // SAFETY: no other thread resizes; there were two buckets before `begin` (1).
        List::under_way(2, &PRESENT, begin, |table| unsafe {
            table.remove_buckets(1, 0)
        })
    });
}

#[test]
fn every_operation_beside_each_resize() {
    every_operation_beside_a_resize::<SplitOrdered>();
}

/// Resizes, lookups and updates together, for the checker of long schedules.
#[test]
fn updates_and_lookups_beside_resizes() {
    model_bounded(1, || {
        let set = List::new(1, &[1, 2, 3, 4, 0x104, 6]);
        beside(
            set,
            &[
                |set| {
                    [4, 1, 2, 1]
                        .into_iter()
                        .for_each(|buckets| set.resize(buckets))
                },
                |set| {
                    for key in [4, 1, 6, 4, 0x104] {
                        assert!(set.has(key), "{key:#x} is missing");
                    }
                },
                |set| {
                    for key in [3, 2, 0x204, 3] {
                        let removed = set.remove(key).map(|node| set.free(node));
                        assert_eq!(removed.is_some(), key != 0x204);
                        assert!(set.insert(key));
                        assert!(set.has(key));
                    }
                    set.drop_key(0x204);
                },
            ],
            &[1, 2, 3, 4, 6, 0x104],
        );
    });
}
