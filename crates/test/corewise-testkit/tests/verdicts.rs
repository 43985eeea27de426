//! Histories made by hand: which the checker accepts, which it refuses, when it gives up.

use corewise_testkit::history::models::EntryOp::{
    CompareExchange, Get, Insert, Remove, TryInsert, Update,
};
use corewise_testkit::history::models::EntryOutcome::{Done, Held, Present, Silent, Updated};
use corewise_testkit::history::models::{EntryOp, EntryOutcome, EvictingEntry, MapEntry};
use corewise_testkit::history::{CallRecord, History, MAX_OPEN, Reason, Verdict, Violation};
use std::ops::Range;
use std::slice;

type Entry = CallRecord<u8, EntryOp<u64>, EntryOutcome<u64>>;

fn done(thread: usize, time: Range<u64>, op: EntryOp<u64>, outcome: EntryOutcome<u64>) -> Entry {
    CallRecord::new(thread, 0, op, time.start).returning(outcome, time.end)
}

fn pending(thread: usize, invoked: u64, op: EntryOp<u64>) -> Entry {
    CallRecord::new(thread, 0, op, invoked)
}

fn check(operations: &[Entry]) -> Verdict {
    History::new(operations.to_vec()).check(&MapEntry::new())
}

#[track_caller]
fn accepted(operations: &[Entry]) {
    let summary = check(operations).assert_linearizable();
    assert_eq!(summary.operations, operations.len());
}

#[track_caller]
fn refused(operations: &[Entry]) -> Violation {
    let verdict = check(operations);
    let printed = verdict.to_string();
    verdict.violation().unwrap_or_else(|| panic!("{printed}"))
}

#[test]
fn a_stale_read_is_refused_and_an_overlapping_one_is_not() {
    let first = done(0, 0..1, Insert(1), Held(None));
    let second = done(0, 2..4, Insert(2), Held(Some(1)));
    let stale = done(1, 5..6, Get, Held(Some(1)));
    let overlapping = done(1, 3..6, Get, Held(Some(1)));
    accepted(&[first.clone(), second.clone(), overlapping]);
    assert_eq!(
        refused(&[first, second, stale]).operation(),
        "Get -> Held(Some(1))"
    );
}

#[test]
fn operations_that_share_a_time_stamp_overlap() {
    let insert = done(0, 0..5, Insert(1), Held(None));
    accepted(&[insert.clone(), done(1, 5..6, Get, Held(None))]);
    refused(&[insert, done(1, 6..7, Get, Held(None))]);
}

#[test]
fn a_lost_update_is_refused() {
    let lost = |second_old| {
        [
            done(0, 0..1, Insert(0), Silent),
            done(0, 2..5, Insert(10), Silent),
            done(1, 3..6, Insert(20), Held(Some(second_old))),
            done(0, 7..8, Get, Held(Some(10))),
        ]
    };
    accepted(&lost(0)); // 20, then 10
    refused(&lost(10)); // 10, then 20, and 20 is lost
}

#[test]
fn readers_that_see_new_and_then_old_are_refused() {
    let readers = |second_invoked| {
        [
            done(0, 0..9, Insert(1), Held(None)),
            done(1, 1..3, Get, Held(Some(1))),
            done(2, second_invoked..5, Get, Held(None)),
        ]
    };
    accepted(&readers(2));
    let inversion = refused(&readers(4));
    assert_eq!(inversion.operation(), "Get -> Held(None)");
}

#[test]
fn an_increment_in_two_steps_is_refused() {
    let increment = |old, new| {
        let (old, new) = (Some(old), Some(new));
        Updated { old, new }
    };
    let start = done(0, 0..1, Insert(7), Silent);
    let one = done(1, 2..5, Update, increment(7, 8));
    let next = done(2, 3..6, Update, increment(8, 9));
    let same = done(2, 3..6, Update, increment(7, 8));
    accepted(&[start.clone(), one.clone(), next]);
    refused(&[start, one, same]);
}

#[test]
fn an_insert_that_succeeds_twice_is_refused() {
    let first = done(0, 0..3, TryInsert(1), Done(true));
    let second = done(1, 1..4, TryInsert(2), Done(true));
    refused(&[first.clone(), second.clone()]);
    accepted(&[first, second, done(2, 2..5, Remove, Done(true))]);
}

#[test]
fn a_value_that_was_never_written_is_refused() {
    let insert = done(0, 0..3, Insert(1), Silent);
    refused(&[insert, done(1, 1..2, Get, Held(Some(3)))]);
}

#[test]
fn a_compare_exchange_takes_effect_only_on_what_it_expects() {
    let swap = |expected, new| CompareExchange {
        expected: Some(expected),
        new: Some(new),
    };
    let start = done(0, 0..1, Insert(1), Silent);
    let won = done(0, 2..5, swap(1, 2), Done(true));
    let lost = done(1, 3..6, swap(1, 3), Held(Some(2)));
    accepted(&[start.clone(), won.clone(), lost]);
    refused(&[start, won, done(1, 3..6, swap(1, 3), Done(true))]);
}

#[test]
fn keys_are_independent() {
    let on = |key, operation: Entry| Entry { key, ..operation };
    let history = [
        on(1, done(0, 0..1, Insert(1), Held(None))),
        on(2, done(0, 2..3, Insert(2), Held(None))),
        on(3, done(0, 4..5, Get, Present(false))),
    ];
    let summary = check(&history).assert_linearizable();
    assert_eq!((summary.keys, summary.concurrent), (3, 0));
}

#[test]
fn a_pending_operation_may_take_effect_at_any_time_or_never() {
    let get = |time, held| done(1, time, Get, Held(held));
    let lost = pending(0, 0, Insert(1));
    accepted(&[lost.clone(), get(1..2, None), get(3..4, None)]);
    accepted(&[lost.clone(), get(1..2, None), get(3..4, Some(1))]);
    accepted(&[lost.clone(), get(1..2, Some(1))]);
    refused(&[lost, get(1..2, Some(1)), get(3..4, None)]);
    refused(&[get(1..2, Some(1)), pending(0, 3, Insert(1))]);
}

#[test]
fn a_pending_update_may_have_stored_anything_once() {
    let get = |time, held| done(1, time, Get, Held(held));
    let lost = pending(0, 0, Update);
    accepted(&[lost.clone(), get(1..2, None), get(3..4, Some(9))]);
    refused(&[lost, get(1..2, Some(8)), get(3..4, Some(9))]);
}

fn check_evicting(operations: &[Entry]) -> Verdict {
    History::new(operations.to_vec()).check(&EvictingEntry::new())
}

#[track_caller]
fn accepted_if_evicted(operations: &[Entry]) {
    refused(operations);
    check_evicting(operations).assert_linearizable();
}

#[track_caller]
fn refused_even_if_evicted(operations: &[Entry]) {
    assert!(check_evicting(operations).violation().is_some());
}

#[test]
fn a_value_may_vanish_from_a_cache_at_any_time() {
    let insert = done(0, 0..1, Insert(1), Done(true));
    let start = slice::from_ref(&insert);
    for missed in [
        done(0, 4..5, Get, Held(None)),
        done(0, 4..5, TryInsert(2), Done(true)),
        done(0, 4..5, Remove, Done(false)),
        done(0, 4..5, Insert(2), Held(None)),
    ] {
        accepted_if_evicted(&[start, slice::from_ref(&missed)].concat());
        let seen = done(1, 2..3, Get, Held(Some(1)));
        accepted_if_evicted(&[start, &[seen, missed]].concat());
    }
}

#[test]
fn what_has_vanished_from_a_cache_does_not_come_back() {
    let insert = |value, at| done(0, at..at + 1, Insert(value), Done(true));
    let get = |held, at| done(1, at..at + 1, Get, Held(held));
    let missed = [insert(1, 0), get(None, 2), get(Some(1), 4)];
    refused_even_if_evicted(&missed);
    let overwritten = [insert(1, 0), insert(2, 2), get(Some(1), 4)];
    refused_even_if_evicted(&overwritten);
    let evicted_first = [insert(1, 0), insert(2, 2), get(None, 4), get(Some(1), 6)];
    refused_even_if_evicted(&evicted_first);
    let removed = done(0, 2..3, Remove, Silent);
    refused_even_if_evicted(&[insert(1, 0), removed, get(Some(1), 4)]);
    let added = done(0, 2..3, TryInsert(2), Done(true));
    refused_even_if_evicted(&[insert(1, 0), added, get(Some(1), 4)]);
    check_evicting(&[insert(1, 0), get(None, 2), insert(1, 4), get(Some(1), 6)])
        .assert_linearizable();
}

#[test]
fn a_cache_that_loses_an_update_is_refused_even_if_it_evicts() {
    let updated = |old, new| Updated {
        old: Some(old),
        new: Some(new),
    };
    refused_even_if_evicted(&[
        done(0, 0..1, Insert(7), Silent),
        done(1, 2..5, Update, updated(7, 8)),
        done(2, 3..6, Update, updated(7, 8)),
    ]);
    let nothing = Updated {
        old: None,
        new: None,
    };
    check_evicting(&[
        done(0, 0..1, Insert(7), Silent),
        done(1, 2..5, Update, updated(7, 8)),
        done(2, 3..6, Update, nothing),
    ])
    .assert_linearizable();
}

#[test]
fn an_addition_to_a_cache_that_told_nothing_may_have_found_it_empty() {
    let start = [
        done(0, 0..1, Insert(1), Done(true)),
        done(0, 2..3, TryInsert(2), Silent),
    ];
    for (held, then) in [(1, Some(2)), (2, Some(1))] {
        let first = done(1, 4..5, Get, Held(Some(held)));
        let history = [&start[..], &[first]].concat();
        check_evicting(&history).assert_linearizable();
        let other = done(1, 6..7, Get, Held(then));
        refused_even_if_evicted(&[&history[..], &[other]].concat());
    }
}

#[test]
fn an_outcome_of_another_operation_is_refused() {
    refused(&[done(0, 0..1, Update, Silent)]);
    let old_and_new = Updated {
        old: None,
        new: None,
    };
    refused(&[done(0, 0..1, Get, old_and_new)]);
}

/// Writes that all overlap, and a read of a value that none wrote.
fn tangle(writes: usize) -> Vec<Entry> {
    let write = |i: usize| done(i, i as u64..1_000, Insert(i as u64), Silent);
    let read = done(writes, 1_001..1_002, Get, Held(Some(1_000_000)));
    (0..writes).map(write).chain([read]).collect()
}

#[test]
fn the_checker_gives_up_at_its_limit() {
    let history = History::new(tangle(20));
    let verdict = history.check_each(1_000, |_| MapEntry::new());
    let Verdict::Undecided(undecided) = &verdict else {
        panic!("{verdict}");
    };
    let is_limit = |reason| matches!(reason, Reason::Configurations { limit: 1_000, .. });
    assert!(is_limit(undecided.reason), "{verdict}");
    refused(&tangle(6));
}

#[test]
fn the_checker_gives_up_on_too_many_open_operations() {
    let reads = |open: usize| -> Vec<_> {
        let read = |i: usize| done(i, i as u64..1_000, Get, Held(None));
        (0..open).map(read).collect()
    };
    accepted(&reads(MAX_OPEN));
    let Verdict::Undecided(undecided) = check(&reads(MAX_OPEN + 1)) else {
        panic!("decided");
    };
    assert_eq!(undecided.reason, Reason::Open(MAX_OPEN));
}

#[test]
fn a_violation_goes_before_doubt() {
    let doubtful = tangle(20);
    let bad = Entry {
        key: 1,
        ..done(0, 0..1, Get, Held(Some(1)))
    };
    let history = History::new(doubtful.into_iter().chain([bad]).collect());
    let verdict = history.check_each(1_000, |_| MapEntry::new());
    assert_eq!(verdict.violation().unwrap().key(), "1");
}

#[test]
fn a_violation_shows_time_lines() {
    let violation = refused(&[
        done(0, 0..1, Insert(1), Held(None)),
        done(10, 2..10, Insert(2), Held(Some(1))),
        pending(2, 3, Remove),
        done(0, 5..7, Get, Held(Some(2))),
        done(3, 8..12, Get, Held(Some(1))),
    ]);
    let expected = r#"
not linearizable: key 0, once Get -> Held(Some(1)) has returned
before that, the state can be: Holds(Some(2)) or Holds(None)
  thread  0  ├─┤                 Insert(1) -> Held(None)
  thread 10      ├─────────┤     Insert(2) -> Held(Some(1))
  thread  2        ├───────────┄ Remove, pending
  thread  0          ├─┤         Get -> Held(Some(2))
  thread  3              ├───┤   Get -> Held(Some(1))  <- fits nowhere
"#;
    assert_eq!(format!("\n{violation}"), expected, "\n{violation}");
}

#[test]
#[should_panic(expected = "returned earlier")]
fn a_history_that_runs_backwards_is_no_history() {
    let _ = check(&[pending(0, 3, Get).returning(Silent, 2)]);
}
