//! Compares the checker with one that tries every order, on small random histories.

use corewise_testkit::history::models::{Content, EntryOp, EntryOutcome, EvictingEntry, MapEntry};
use corewise_testkit::history::{CallRecord, History, Model};
use rand::rngs::SmallRng;
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use std::collections::VecDeque;

type Op = EntryOp<u8>;
type Outcome = EntryOutcome<u8>;
type Entry = CallRecord<(), Op, Outcome>;

const HISTORIES: u64 = 20_000;
const VALUES: u8 = 2;

/// Whether some order of `left`, all of them except pending ones, can start in `state`. If eviction
/// is allowed, the value may be evicted between two operations.
fn some_order(model: &MapEntry<u8>, state: &Content<u8>, left: &[Entry], evicts: bool) -> bool {
    let first_return = left
        .iter()
        .filter_map(|o| Some(o.response.as_ref()?.returned));
    let first_return = first_return.min().unwrap_or(u64::MAX);
    let empty = Content::Holds(None);
    if evicts && *state != empty && some_order(model, &empty, left, evicts) {
        return true;
    }
    left.iter().all(|o| o.response.is_none())
        || (0..left.len()).any(|i| {
            let mut rest = left.to_vec();
            let next = rest.remove(i);
            let after = match &next.response {
                Some(response) => model
                    .step(state, &next.op, &response.outcome)
                    .into_iter()
                    .collect(),
                None => model.pending(state, &next.op),
            };
            next.invoked <= first_return
                && after
                    .iter()
                    .any(|state| some_order(model, state, &rest, evicts))
        })
}

fn random_op(random: &mut SmallRng) -> Op {
    let value = random.random_range(0..VALUES);
    match random.random_range(0..6) {
        0 => EntryOp::Insert(value),
        1 => EntryOp::TryInsert(value),
        2 => EntryOp::Remove,
        3 => EntryOp::Update,
        4 => EntryOp::CompareExchange {
            expected: random_held(random),
            new: random_held(random),
        },
        _ => EntryOp::Get,
    }
}

fn random_held(random: &mut SmallRng) -> Option<u8> {
    random
        .random_bool(0.7)
        .then(|| random.random_range(0..VALUES))
}

fn random_outcome(random: &mut SmallRng, op: &Op) -> Outcome {
    match (op, random.random_range(0..5)) {
        (EntryOp::Update, _) => EntryOutcome::Updated {
            old: random_held(random),
            new: random_held(random),
        },
        (_, 0) => EntryOutcome::Silent,
        (_, 1) => EntryOutcome::Done(random.random()),
        (_, 2) => EntryOutcome::Present(random.random()),
        _ => EntryOutcome::Held(random_held(random)),
    }
}

/// Random intervals of up to seven operations, some pending. Half of the histories take their
/// outcomes from an order that exists, with at most one exception.
fn random_history(random: &mut SmallRng, evicts: bool) -> Vec<Entry> {
    let count = random.random_range(1..=7);
    let spread = random.random_range(1..=12);
    let mut operations: Vec<Entry> = (0..count)
        .map(|thread| {
            let invoked = 2 * thread as u64 + random.random_range(0..spread);
            let op = random_op(random);
            let outcome = random_outcome(random, &op);
            let returned = invoked + random.random_range(0..spread);
            if random.random_bool(0.15) {
                CallRecord::new(thread, (), op, invoked)
            } else {
                CallRecord::new(thread, (), op, invoked).returning(outcome, returned)
            }
        })
        .collect();
    if random.random() {
        explain(random, &mut operations, evicts);
    }
    operations.shuffle(random);
    operations
}

/// Gives each operation, in the order of their returns or invocations, an outcome that fits; then
/// perhaps spoils one. Evicts the value now and then, if eviction is allowed.
fn explain(random: &mut SmallRng, operations: &mut [Entry], evicts: bool) {
    let model = MapEntry::new();
    let mut state = model.initial();
    let by_invocation: bool = random.random();
    operations.sort_by_key(|o| match &o.response {
        Some(response) if !by_invocation => response.returned,
        _ => o.invoked,
    });
    for operation in operations.iter_mut() {
        let Some(response) = &mut operation.response else {
            continue;
        };
        if evicts && random.random_bool(0.3) {
            state = Content::Holds(None);
        }
        state = loop {
            response.outcome = random_outcome(random, &operation.op);
            if let Some(after) = model.step(&state, &operation.op, &response.outcome) {
                break after;
            }
        };
    }
    let spoilt = random.random_range(0..2 * operations.len());
    if let Some(CallRecord {
        op,
        response: Some(response),
        ..
    }) = operations.get_mut(spoilt)
    {
        response.outcome = random_outcome(random, op);
    }
}

/// Compares the verdicts of `checked` with those of a search through all orders.
fn compare<M: Model<Op = Op, Outcome = Outcome>>(checked: &M, evicts: bool) {
    let model = MapEntry::new();
    let mut linearizable = 0;
    for seed in 0..HISTORIES {
        let operations = random_history(&mut SmallRng::seed_from_u64(seed), evicts);
        let expected = some_order(&model, &model.initial(), &operations, evicts);
        let verdict = History::new(operations.clone()).check(checked);
        let found = verdict.violation().is_none();
        assert_eq!(found, expected, "seed {seed}: {operations:?}");
        linearizable += u64::from(expected);
    }
    println!("{linearizable} of {HISTORIES} histories are linearizable");
    let both = HISTORIES / 5..HISTORIES * 4 / 5;
    assert!(
        both.contains(&linearizable),
        "{linearizable} of {HISTORIES}"
    );
}

#[test]
fn the_checker_agrees_with_one_that_tries_every_order() {
    compare(&MapEntry::new(), false);
}

#[test]
fn the_checker_agrees_with_one_that_tries_every_order_and_every_eviction() {
    compare(&EvictingEntry::new(), true);
}

/// A first-in, first-out queue, which has more states than values.
struct Queue;

impl Model for Queue {
    type State = VecDeque<u8>;
    type Op = Option<u8>;
    type Outcome = Option<u8>;

    fn initial(&self) -> VecDeque<u8> {
        VecDeque::new()
    }

    fn step(
        &self,
        state: &VecDeque<u8>,
        op: &Option<u8>,
        outcome: &Option<u8>,
    ) -> Option<VecDeque<u8>> {
        let mut after = state.clone();
        let expected = match op {
            Some(pushed) => {
                after.push_back(*pushed);
                None
            }
            None => after.pop_front(),
        };
        (expected == *outcome).then_some(after)
    }

    fn pending(&self, state: &VecDeque<u8>, op: &Option<u8>) -> Vec<VecDeque<u8>> {
        let outcomes = [None, state.front().copied()];
        outcomes
            .iter()
            .filter_map(|outcome| self.step(state, op, outcome))
            .collect()
    }
}

#[test]
fn models_of_ones_own_work_for_objects_without_keys() {
    let push = |value, from, to| CallRecord::new(0, (), Some(value), from).returning(None, to);
    let pop = |value, from, to| CallRecord::new(1, (), None, from).returning(Some(value), to);
    let in_order = vec![push(1, 0, 3), push(2, 1, 4), pop(2, 5, 6), pop(1, 7, 8)];
    History::new(in_order).check(&Queue).assert_linearizable();
    let swapped = vec![push(1, 0, 1), push(2, 2, 4), pop(2, 3, 6), pop(1, 7, 8)];
    assert!(History::new(swapped).check(&Queue).violation().is_some());
}
