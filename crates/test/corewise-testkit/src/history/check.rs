//! The search for an order that explains a key's operations.
//!
//! A *step* is the return of an operation. A configuration describes the search just before a step:
//! the order contains all operations that returned earlier, and those open operations that are in
//! `placed`. The operation that is about to return must be placed now, after any number of the
//! other open ones. The search is depth-first
//! with an explicit stack, and first tries to place the operation that returns first. The stack
//! holds the alternatives left along one path: at most the open operations of each step.
//!
//! 1. *Every order is tried*, as far as it decides at which step an operation is placed. In any
//!    order, the operations before the one that a step forces were invoked before that return. So
//!    they are open at the step, and the search can place them there.
//! 2. *No configuration is visited twice*: nothing else determines what can follow.
//! 3. *Reads are placed at once*: see [`Model`].

use crate::history::timeline::{Timeline, TooManyOpen};
use crate::history::{CallRecord, MAX_OPEN, Model, Reason, Summary, Undecided, Verdict, Violation};
use std::collections::HashSet;
use std::fmt::Debug;

/// Most configurations that [`History::check`](crate::history::History::check) visits for a key
/// before it gives up. With a state of one word each takes some 64 bytes.
pub const DEFAULT_LIMIT: usize = 4_000_000;

/// Most states shown with a violation.
const STATES_SHOWN: usize = 4;

#[derive(Clone, PartialEq, Eq, Hash)]
struct Configuration<S> {
    step: usize,
    /// Bits of the open operations that have been placed.
    placed: u128,
    state: S,
}

struct Search<'a, K, M: Model> {
    model: &'a M,
    timeline: &'a Timeline<'a, K, M::Op, M::Outcome>,
    stack: Vec<Configuration<M::State>>,
    visited: HashSet<Configuration<M::State>>,
    /// The last step that a configuration has reached, and some of the states there.
    furthest: usize,
    states: Vec<M::State>,
}

enum SearchOutcome {
    Order,
    NoOrder,
    Limit,
}

/// Checks the operations on one key, of which there is at least one.
pub(crate) fn check_key<K: Debug, M: Model>(
    model: &M,
    operations: &[&CallRecord<K, M::Op, M::Outcome>],
    limit: usize,
) -> Verdict {
    let key = || format!("{:?}", operations[0].key);
    let undecided = |reason| {
        Verdict::Undecided(Undecided {
            key: key(),
            operations: operations.len(),
            reason,
        })
    };
    let timeline = match Timeline::new(operations) {
        Ok(timeline) => timeline,
        Err(TooManyOpen) => return undecided(Reason::Open(MAX_OPEN)),
    };
    let mut search = Search::new(model, &timeline);
    match search.run(limit) {
        SearchOutcome::Order => Verdict::Linearizable(search.summary()),
        SearchOutcome::NoOrder => Verdict::Violation(search.violation(key())),
        SearchOutcome::Limit => undecided(Reason::Configurations {
            limit,
            explained: search.furthest,
        }),
    }
}

impl<'a, K: Debug, M: Model> Search<'a, K, M> {
    fn new(model: &'a M, timeline: &'a Timeline<'a, K, M::Op, M::Outcome>) -> Self {
        let start = Configuration {
            step: 0,
            placed: 0,
            state: model.initial(),
        };
        Self {
            model,
            timeline,
            stack: vec![start],
            visited: HashSet::new(),
            furthest: 0,
            states: Vec::new(),
        }
    }

    fn run(&mut self, limit: usize) -> SearchOutcome {
        while let Some(mut configuration) = self.stack.pop() {
            self.take_forced_steps(&mut configuration);
            if configuration.step == self.timeline.steps() {
                return SearchOutcome::Order;
            }
            if self.visited.contains(&configuration) {
                continue;
            }
            if self.visited.len() == limit {
                return SearchOutcome::Limit;
            }
            self.note(&configuration);
            self.expand(&configuration);
            self.visited.insert(configuration);
        }
        SearchOutcome::NoOrder
    }

    /// Takes all steps without a choice: passes returns of placed operations, and places reads.
    fn take_forced_steps(&self, configuration: &mut Configuration<M::State>) {
        while configuration.step < self.timeline.steps() {
            let open = self.timeline.open(configuration.step);
            let returning = self.timeline.bits[open[0]];
            if configuration.placed & returning == 0 {
                configuration.placed |= self.reads(open, configuration);
            }
            if configuration.placed & returning == 0 {
                return;
            }
            configuration.placed &= !returning;
            configuration.step += 1;
        }
    }

    /// The bits of the operations in `open` that are reads and may come next.
    fn reads(&self, open: &[usize], configuration: &Configuration<M::State>) -> u128 {
        let Configuration { placed, state, .. } = configuration;
        let left = open
            .iter()
            .map(|&operation| (operation, self.timeline.bits[operation]));
        let left = left.filter(|(_, bit)| placed & bit == 0);
        // A model's state may stand for several states, which a read may narrow down.
        let may_come_next = |operation| self.after(operation, state).as_ref() == Some(state);
        left.filter(|&(operation, _)| self.is_read(operation) && may_come_next(operation))
            .fold(0, |bits, (_, bit)| bits | bit)
    }

    fn is_read(&self, operation: usize) -> bool {
        let operation = self.timeline.operations[operation];
        let response = operation.response.as_ref();
        response.is_some_and(|r| self.model.only_reads(&operation.op, &r.outcome))
    }

    /// The state after a returned operation, or `None` if the model does not allow it here. `None`
    /// also for an operation that never returned.
    fn after(&self, operation: usize, state: &M::State) -> Option<M::State> {
        let operation = self.timeline.operations[operation];
        let outcome = &operation.response.as_ref()?.outcome;
        self.model.step(state, &operation.op, outcome)
    }

    /// The states after an operation that never returned, except `state` itself: an operation
    /// without effect need not be placed.
    fn after_pending(&self, operation: usize, state: &M::State) -> Vec<M::State> {
        let operation = self.timeline.operations[operation];
        if operation.response.is_some() {
            return Vec::new();
        }
        let mut states = self.model.pending(state, &operation.op);
        states.retain(|after| after != state);
        states
    }

    /// Pushes each configuration with one more open operation placed; the one with the operation
    /// that returns first ends on top.
    fn expand(&mut self, configuration: &Configuration<M::State>) {
        let timeline = self.timeline;
        let state = &configuration.state;
        for &operation in timeline.open(configuration.step).iter().rev() {
            let bit = timeline.bits[operation];
            if configuration.placed & bit != 0 {
                continue;
            }
            let pending = self.after_pending(operation, state);
            let states = self.after(operation, state).into_iter().chain(pending);
            let next = states.map(|state| Configuration {
                step: configuration.step,
                placed: configuration.placed | bit,
                state,
            });
            self.stack.extend(next);
        }
    }

    /// Remembers a configuration if none has reached a later step.
    fn note(&mut self, configuration: &Configuration<M::State>) {
        if configuration.step > self.furthest {
            self.furthest = configuration.step;
            self.states.clear();
        }
        let here = configuration.step == self.furthest;
        if here && self.states.len() < STATES_SHOWN && !self.states.contains(&configuration.state) {
            self.states.push(configuration.state.clone());
        }
    }

    fn summary(&self) -> Summary {
        Summary {
            keys: 1,
            operations: self.timeline.operations.len(),
            concurrent: self.timeline.concurrent,
            configurations: self.visited.len(),
        }
    }

    fn violation(&self, key: String) -> Violation {
        Violation::new(key, self.timeline, self.furthest, &self.states)
    }
}
