//! Two threads on one key, in every engine, under the model checkers.
//!
//! The mutant `split_section` reads the counter in one critical section and writes it in another,
//! as a server would that had no read-modify-write operations.

#[macro_use]
mod common;

use common::{Collect, NOW, Seen, Setup, TestEngine, store};
use corewise_atomic::thread;
use corewise_cache::Session;
use corewise_ops::{Get, Op, StoreMode, Verb};
use std::sync::Arc;

for_every_engine! {
    no_increment_is_lost
    of_two_swaps_from_the_same_value_one_succeeds
}

fn run<E: TestEngine>(engine: &Arc<E>, verb: Verb<'_>) -> Seen {
    let mut sink = Collect::new();
    let ops = [Op {
        token: 0,
        key: b"n",
        verb,
    }];
    assert_eq!(engine.session().submit(NOW, &ops, &mut sink), 1);
    sink.seen.remove(0).1
}

fn small<E: TestEngine>() -> Arc<E> {
    Arc::new(E::make(Setup::tight::<E>(2)))
}

#[cfg(not(corewise_mutant = "split_section"))]
fn increment<E: TestEngine>(engine: &Arc<E>) {
    run(engine, Verb::Arith(common::incr(1)));
}

#[cfg(corewise_mutant = "split_section")]
fn increment<E: TestEngine>(engine: &Arc<E>) {
    let seen = run(engine, Verb::Get(Get::default()));
    let text = std::str::from_utf8(seen.value().unwrap())
        .unwrap()
        .trim_end()
        .to_owned();
    let next = (text.parse::<u64>().unwrap() + 1).to_string();
    run(engine, Verb::Store(store(StoreMode::Set, next.as_bytes())));
}

fn no_increment_is_lost<E: TestEngine>() {
    corewise_atomic::model(|| {
        let engine = small::<E>();
        run(&engine, Verb::Store(store(StoreMode::Set, b"0")));
        let other = Arc::clone(&engine);
        let handle = thread::spawn(move || increment(&other));
        increment(&engine);
        handle.join().unwrap();
        let seen = run(&engine, Verb::Get(Get::default()));
        assert_eq!(seen.value(), Some(&b"2"[..]));
    });
}

fn of_two_swaps_from_the_same_value_one_succeeds<E: TestEngine>() {
    corewise_atomic::model(|| {
        let engine = small::<E>();
        let cas = run(&engine, Verb::Store(store(StoreMode::Set, b"0"))).cas();
        let compare_cas = if cfg!(corewise_mutant = "no_compare") {
            None
        } else {
            Some(cas)
        };
        let swap = move |engine: &Arc<E>| {
            let request = corewise_ops::Store {
                compare_cas,
                ..store(StoreMode::Set, b"1")
            };
            matches!(run(engine, Verb::Store(request)), Seen::Stored { .. })
        };
        let other = Arc::clone(&engine);
        let handle = thread::spawn(move || swap(&other));
        let mine = swap(&engine);
        let theirs = handle.join().unwrap();
        assert!(mine ^ theirs, "{mine} {theirs}");
    });
}
