//! Models of the algorithms of \[ATC11\] for the checkers. They test what the explorer assumes: a
//! thread that sees a link also sees what was written before it. As ordinary tests each runs once.

use std::cell::RefCell;

use super::algorithm::{Algorithm, Stripes};
use super::model_set::{self, PRESENT, Set, every_operation_beside_a_resize, every_pair};
use super::paper::{
    Cut, InPlaceForm, NoAuxiliaryForm, OutOfPlaceForm, Paper, ResizeVariant, ReversedForm,
};
use super::paper::{InPlace, NoAuxiliary, OutOfPlace, SortedByReversedHash};

/// One thread looks for keys while another runs `what` on the table; `left` are the keys that
/// remain.
fn beside<A: Algorithm>(
    buckets: usize,
    keys: &'static [u64],
    what: fn(&Set<A>),
    look: fn(&Set<A>),
    left: &'static [u64],
) {
    corewise_atomic::model_bounded(2, move || {
        let set = Set::<A>::new(buckets, keys);
        model_set::beside(set, &[look, what], left);
    });
}

fn has_both<A: Algorithm>(set: &Set<A>) {
    assert!(set.has(1) && set.has(2));
}

#[test]
fn an_inserted_node_is_seen_whole() {
    let look = |set: &Set<OutOfPlace>| {
        let _ = set.has(3);
        has_both(set);
    };
    beside(1, &[1, 2], |set| assert!(set.insert(3)), look, &[1, 2, 3]);
}

#[test]
fn a_removed_node_outlives_its_readers() {
    let look = |set: &Set<OutOfPlace>| {
        let _ = set.has(3);
        has_both(set);
    };
    beside(1, &[1, 3, 2], |set| set.drop_key(3), look, &[1, 2]);
}

#[test]
fn lookups_do_not_notice_an_expansion() {
    beside::<OutOfPlace>(1, &[1, 2], |set| set.resize(2), has_both, &[1, 2]);
}

#[test]
fn lookups_do_not_notice_an_expansion_without_auxiliary_storage() {
    beside::<NoAuxiliary>(1, &[1, 2], |set| set.resize(2), has_both, &[1, 2]);
}

#[test]
fn lookups_do_not_notice_an_expansion_in_place() {
    beside::<InPlace>(1, &[1, 2], |set| set.resize(2), has_both, &[1, 2]);
}

#[test]
fn lookups_do_not_notice_an_expansion_of_sorted_chains() {
    beside::<SortedByReversedHash>(1, &[1, 2], |set| set.resize(2), has_both, &[1, 2]);
}

#[test]
fn lookups_do_not_notice_a_shrink() {
    beside::<OutOfPlace>(2, &[1, 2], |set| set.resize(1), has_both, &[1, 2]);
}

#[test]
fn lookups_do_not_notice_a_shrink_in_place() {
    beside::<InPlace>(2, &[1, 2], |set| set.resize(1), has_both, &[1, 2]);
}

/// The updates are in the stripe that is divided.
#[test]
fn updates_go_on_beside_an_expansion() {
    let look = |set: &Set<OutOfPlace>| {
        assert!(set.insert(4));
        assert!(set.has(4));
        has_both(set);
    };
    beside(1, &[1, 2], |set| set.resize(2), look, &[1, 2, 4]);
}

/// An update that has chosen its stripe before a resize merges buckets chooses again: otherwise it
/// would share the bucket with an update that holds the new stripe.
#[test]
fn a_stripe_that_was_chosen_before_a_resize_is_chosen_again() {
    corewise_atomic::model_bounded(2, || {
        let (stripes, seen) = (Stripes::new(1), RefCell::new(Vec::new()));
        drop(stripes.lock(|log2| {
            seen.borrow_mut().push(log2);
            if log2 == 1 {
                stripes.lock_all().set_for_buckets(0);
            }
            log2 as usize
        }));
        assert_eq!(seen.into_inner(), [1, 0]);
    });
}

fn at_rest<A: Algorithm>() -> Set<A> {
    Set::new(1, &PRESENT)
}

/// A set whose chain is zipped, after `CUTS` passes.
fn zipped<F: ResizeVariant, const CUTS: usize>() -> Set<Paper<F>> {
    let begin = |table: &Paper<F>| {
        // No reader is in the smaller table.
        // SAFETY: no other thread has the table yet, so none resizes (1) or reads (2).
        drop(unsafe { table.zip(1) }.unwrap());
        for _ in 0..CUTS {
            // SAFETY: no other thread has the table yet, so none resizes (1), and it was zipped
            // above (2).
            assert!(unsafe { table.unzip() } == Cut::More);
        }
    };
    Set::under_way(1, &PRESENT, begin, |table| {
        // SAFETY: no other thread resizes (1). It is zipped, until nothing is left to cut (2).
        unsafe {
            while table.unzip() == Cut::More {}
            table.end_unzip(1);
        }
    })
}

#[test]
fn every_pair_at_rest() {
    every_pair(at_rest::<OutOfPlace>);
    every_pair(at_rest::<SortedByReversedHash>);
}

#[test]
fn every_pair_while_chains_are_zipped() {
    every_pair(zipped::<OutOfPlaceForm, 0>);
    every_pair(zipped::<InPlaceForm, 0>);
    every_pair(zipped::<NoAuxiliaryForm, 0>);
    every_pair(zipped::<ReversedForm, 0>);
}

#[test]
fn every_pair_between_two_cuts() {
    every_pair(zipped::<OutOfPlaceForm, 1>);
    every_pair(zipped::<InPlaceForm, 1>);
    every_pair(zipped::<NoAuxiliaryForm, 1>);
}

#[test]
fn every_operation_beside_a_resize_out_of_place() {
    every_operation_beside_a_resize::<OutOfPlace>();
}

#[test]
fn every_operation_beside_a_resize_in_place() {
    every_operation_beside_a_resize::<InPlace>();
}

#[test]
fn every_operation_beside_a_resize_without_auxiliary_storage() {
    every_operation_beside_a_resize::<NoAuxiliary>();
}

#[test]
fn every_operation_beside_a_resize_of_sorted_chains() {
    every_operation_beside_a_resize::<SortedByReversedHash>();
}
