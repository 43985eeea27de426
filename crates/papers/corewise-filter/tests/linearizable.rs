//! Recorded histories of several threads on a few items of a full filter, checked for
//! linearizability item by item, while other threads move them.
#![cfg(not(any(corewise_loom, corewise_shuttle)))]

use std::sync::atomic::AtomicBool;

use corewise_filter::{CuckooFilter, InsertError};
use corewise_testkit::history::{Model, record_beside};
use corewise_testkit::random::Random;

const THREADS: u64 = 3;
const ITEMS: u64 = 4;
const CALLS: u64 = 2_500;
/// Four slots in a bucket.
const MOST_COPIES: usize = 8;

#[derive(Clone, Copy, Debug)]
enum Op {
    Insert,
    InsertUnique,
    Remove,
    Contains,
    Count,
}

#[derive(Clone, Copy, Debug)]
enum Outcome {
    Inserted(Result<(), InsertError>),
    InsertedUnique(Result<bool, InsertError>),
    Is(bool),
    Copies(usize),
}

/// The copies of an item. Two answers are always allowed: that the filter is full, because of other
/// items, and that an item is present, because it is a filter.
struct Copies;

impl Model for Copies {
    type State = usize;
    type Op = Op;
    type Outcome = Outcome;

    fn initial(&self) -> usize {
        0
    }

    fn step(&self, &copies: &usize, op: &Op, outcome: &Outcome) -> Option<usize> {
        let same_if = |is_allowed: bool| is_allowed.then_some(copies);
        match (*op, *outcome) {
            (Op::Insert, Outcome::Inserted(Ok(()))) => (copies < MOST_COPIES).then_some(copies + 1),
            (Op::Insert, Outcome::Inserted(Err(InsertError::TooManyCopies))) => {
                same_if(copies == MOST_COPIES)
            }
            (_, Outcome::Inserted(Err(_)) | Outcome::InsertedUnique(Err(_))) => Some(copies),
            (_, Outcome::InsertedUnique(Ok(true))) => (copies == 0).then_some(1),
            (_, Outcome::InsertedUnique(Ok(false))) => same_if(copies > 0),
            (Op::Remove, Outcome::Is(true)) => copies.checked_sub(1),
            (Op::Remove, Outcome::Is(false)) => same_if(copies == 0),
            (_, Outcome::Is(is_found)) => same_if(is_found || copies == 0),
            (_, Outcome::Copies(count)) => same_if(copies == count),
            (op, outcome) => unreachable!("{outcome:?} of {op:?}"),
        }
    }

    fn pending(&self, &copies: &usize, _: &Op) -> Vec<usize> {
        vec![copies, copies + 1, copies.saturating_sub(1)]
    }

    fn only_reads(&self, op: &Op, _: &Outcome) -> bool {
        matches!(op, Op::Contains | Op::Count)
    }
}

fn perform(filter: &CuckooFilter, item: u64, op: Op) -> Outcome {
    match op {
        Op::Insert => Outcome::Inserted(filter.insert(&item)),
        Op::InsertUnique => Outcome::InsertedUnique(filter.insert_unique(&item)),
        Op::Remove => Outcome::Is(filter.remove(&item)),
        Op::Contains => Outcome::Is(filter.contains(&item)),
        Op::Count => Outcome::Copies(filter.count(&item)),
    }
}

/// Checks histories of a filter of this shape.
fn check(bits: u32, is_semi_sorted: bool) {
    let builder = CuckooFilter::builder()
        .slots(64)
        .bits(bits)
        .semi_sorted(is_semi_sorted);
    let filter = builder.build().unwrap();
    // Items with the class of another are left out: each key is one class.
    let is_new = |item: u64| !filter.contains(&item) && filter.insert(&item).is_ok();
    let items: Vec<u64> = (0..)
        .filter(|&item| is_new(item))
        .take(ITEMS as usize)
        .collect();
    let others = (1_000..2_000u64).filter(|&item| is_new(item)).take(44);
    let mut background: Vec<(u64, bool)> = others.map(|item| (item, true)).collect();
    items.iter().for_each(|item| assert!(filter.remove(item)));

    // Removes and inserts the others, so that full buckets change.
    let beside = || {
        let mut random = Random(99);
        for _ in 0..CALLS {
            let (item, is_present) = &mut background[random.below(44) as usize];
            if *is_present {
                assert!(filter.remove(item));
                *is_present = false;
            } else {
                *is_present = filter.insert(item).is_ok();
            }
        }
    };
    let is_over = AtomicBool::new(false);
    let history = record_beside(
        THREADS,
        CALLS as usize,
        &is_over,
        beside,
        |thread, recorder| {
            let mut random = Random(thread + 1);
            for _ in 0..CALLS {
                let item = random.choose(&items);
                let op = match random.below(9) {
                    0 | 1 => Op::Insert,
                    2 => Op::InsertUnique,
                    3..6 => Op::Remove,
                    6 | 7 => Op::Contains,
                    _ => Op::Count,
                };
                recorder.record(item, op, || perform(&filter, item, op));
            }
        },
    );
    let summary = history.check(&Copies).assert_linearizable();
    assert_eq!(summary.operations as u64, THREADS * CALLS);
}

#[test]
fn histories_of_packed_filters_are_linearizable() {
    check(12, false);
    check(16, false);
}

#[test]
fn histories_of_semi_sorted_filters_are_linearizable() {
    check(16, true);
}
