//! Recorded histories of several threads, checked for linearizability.
//!
//! Linearizability is local (Herlihy and Wing 1990, theorem 1): a history is linearizable if its
//! part on each key is. So each round works on one key. The checker is Wing and Gong's search with
//! Lowe's memoisation: try as the next operation any whose invocation comes before the first
//! return among those left, and never visit a pair of (operations done, state) twice.
//!
//! The checker itself is tested with a cache that increments by reading and writing back.

mod common;

use common::{Collect, NOW, Seen, incr, store};
use corewise_cache::engines::locked::{Config, Locked, LockedSession};
use corewise_cache::{Engine, Session};
use corewise_ops::{Deadline, Delete, Get, Op, StoreMode, Verb};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const THREADS: usize = 3;
const PER_THREAD: usize = 12;
const ROUNDS: u64 = 400;

#[derive(Clone, Copy, Debug)]
enum Call {
    Get,
    Set(u64),
    Add(u64),
    Incr,
    Delete,
    Flush,
}

/// What a call returned, as far as the checker cares: a value, or none.
type Return = Option<u64>;

#[derive(Clone, Copy, Debug)]
struct Event {
    call: Call,
    returned: Return,
    invoked: u64,
    done: u64,
}

/// The state after `call` in `state`, if it may return `returned` there.
fn step(state: Option<u64>, call: Call, returned: Return) -> Option<Option<u64>> {
    let (after, expected) = match call {
        Call::Get => (state, state),
        Call::Set(value) => (Some(value), Some(value)),
        Call::Add(value) if state.is_none() => (Some(value), Some(value)),
        Call::Add(_) => (state, None),
        Call::Incr => {
            let next = state.map(|value| value + 1);
            (next, next)
        }
        Call::Delete => (None, state.map(|_| 0)),
        Call::Flush => (None, None),
    };
    (expected == returned).then_some(after)
}

/// Whether some order of `events` that respects real time explains every return.
fn is_linearizable(events: &[Event]) -> bool {
    assert!(events.len() <= 64, "the set of operations done is one word");
    let mut visited = HashSet::new();
    let mut stack = vec![(0u64, None)];
    let all = u64::MAX >> (64 - events.len());
    while let Some((done, state)) = stack.pop() {
        if done == all {
            return true;
        }
        if !visited.insert((done, state)) {
            continue;
        }
        let left = || (0..events.len()).filter(|i| done & (1 << i) == 0);
        let first_return = left().map(|i| events[i].done).min().unwrap_or(u64::MAX);
        for i in left().filter(|&i| events[i].invoked <= first_return) {
            if let Some(after) = step(state, events[i].call, events[i].returned) {
                stack.push((done | 1 << i, after));
            }
        }
    }
    false
}

/// How a thread performs calls.
trait Perform {
    fn perform(&mut self, call: Call) -> Return;
}

struct Real {
    engine: Arc<Locked>,
    session: LockedSession,
}

impl Real {
    fn run(&mut self, verb: Verb<'_>) -> Seen {
        let mut sink = Collect::new();
        let ops = [Op {
            token: 0,
            key: b"key",
            verb,
        }];
        assert_eq!(self.session.submit(NOW, &ops, &mut sink), 1);
        sink.seen.remove(0).1
    }

    fn write(&mut self, mode: StoreMode, value: u64) -> Seen {
        self.run(Verb::Store(store(mode, value.to_string().as_bytes())))
    }
}

fn number(seen: &Seen) -> Return {
    let text = std::str::from_utf8(seen.value()?).unwrap();
    Some(text.trim_end().parse().unwrap())
}

impl Perform for Real {
    fn perform(&mut self, call: Call) -> Return {
        match call {
            Call::Get => number(&self.run(Verb::Get(Get::default()))),
            Call::Set(value) => number(&self.write(StoreMode::Set, value)),
            Call::Add(value) => number(&self.write(StoreMode::Add, value)),
            Call::Incr => match self.run(Verb::Arith(incr(1))) {
                Seen::Counter { value, .. } => Some(value),
                _ => None,
            },
            Call::Delete => {
                let seen = self.run(Verb::Delete(Delete::default()));
                (seen == Seen::Deleted).then_some(0)
            }
            Call::Flush => {
                self.engine.flush_all(Deadline::PAST, NOW);
                None
            }
        }
    }
}

/// A cache whose increment is a read and a write, with another thread's turn in between.
struct Mutant(Real);

impl Perform for Mutant {
    fn perform(&mut self, call: Call) -> Return {
        let Call::Incr = call else {
            return self.0.perform(call);
        };
        let value = self.0.perform(Call::Get)?;
        std::thread::yield_now();
        self.0.perform(Call::Set(value + 1))
    }
}

fn random_call(random: &mut SmallRng, unique: u64) -> Call {
    match random.random_range(0..16) {
        0..4 => Call::Get,
        4..7 => Call::Set(unique),
        7 => Call::Add(unique),
        8..14 => Call::Incr,
        14 => Call::Delete,
        _ => Call::Flush,
    }
}

fn record<P: Perform + Send>(seed: u64, performers: Vec<P>) -> Vec<Event> {
    let clock = AtomicU64::new(0);
    let start = std::sync::Barrier::new(performers.len());
    std::thread::scope(|scope| {
        let (clock, start) = (&clock, &start);
        let spawn = |(thread, mut performer): (usize, P)| {
            scope.spawn(move || {
                let mut random = SmallRng::seed_from_u64(seed * 64 + thread as u64);
                start.wait();
                let mut events = Vec::with_capacity(PER_THREAD);
                for i in 0..PER_THREAD {
                    let call = random_call(&mut random, (thread * PER_THREAD + i) as u64 * 1_000);
                    // SeqCst: one order of all invocations and returns.
                    let invoked = clock.fetch_add(1, Ordering::SeqCst);
                    let returned = performer.perform(call);
                    let done = clock.fetch_add(1, Ordering::SeqCst);
                    events.push(Event {
                        call,
                        returned,
                        invoked,
                        done,
                    });
                }
                events
            })
        };
        let threads: Vec<_> = performers.into_iter().enumerate().map(spawn).collect();
        threads
            .into_iter()
            .flat_map(|thread| thread.join().unwrap())
            .collect()
    })
}

fn performers() -> Vec<Real> {
    let engine = Arc::new(Locked::new(Config::default()));
    let real = |_| Real {
        engine: Arc::clone(&engine),
        session: engine.session(),
    };
    (0..THREADS).map(real).collect()
}

#[test]
fn every_recorded_history_is_linearizable() {
    for seed in 0..ROUNDS {
        let events = record(seed, performers());
        assert!(is_linearizable(&events), "seed {seed}: {events:#?}");
    }
}

#[test]
fn a_cache_that_increments_in_two_steps_is_found_out() {
    let caught = (0..20 * ROUNDS).any(|seed| {
        let mutants = performers().into_iter().map(Mutant).collect();
        !is_linearizable(&record(seed, mutants))
    });
    assert!(caught, "no lost increment in {} histories", 20 * ROUNDS);
}

#[test]
fn a_stale_read_is_no_linearizable_history() {
    let event = |call, returned, invoked, done| Event {
        call,
        returned,
        invoked,
        done,
    };
    let history = [
        event(Call::Set(1), Some(1), 0, 1),
        event(Call::Set(2), Some(2), 2, 3),
        event(Call::Get, Some(1), 4, 5),
    ];
    assert!(!is_linearizable(&history));
    let overlapping = [history[0], history[1], event(Call::Get, Some(1), 2, 5)];
    assert!(is_linearizable(&overlapping));
}
