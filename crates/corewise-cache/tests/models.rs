//! Two threads on one key, under the model checkers.
//!
//! The mutant `split_section` reads the counter in one critical section and writes it in another,
//! as a server would that had no read-modify-write operations.

mod common;

use common::{Collect, NOW, Seen, store};
use corewise_atomic::thread;
use corewise_cache::engines::locked::{Config, Eviction, Locked};
use corewise_cache::{Engine, Session};
use corewise_ops::{Get, Op, StoreMode, Verb};
use std::sync::Arc;

fn run(engine: &Arc<Locked>, verb: Verb<'_>) -> Seen {
    let mut sink = Collect::new();
    let ops = [Op {
        token: 0,
        key: b"n",
        verb,
    }];
    assert_eq!(engine.session().submit(NOW, &ops, &mut sink), 1);
    sink.seen.remove(0).1
}

fn one_shard() -> Arc<Locked> {
    let config = Config {
        memory: 1 << 20,
        max_item_bytes: 1 << 16,
        eviction: Eviction::Lru,
        threads: 1,
    };
    Arc::new(Locked::new(config))
}

#[cfg(not(corewise_mutant = "split_section"))]
fn increment(engine: &Arc<Locked>) {
    run(engine, Verb::Arith(common::incr(1)));
}

#[cfg(corewise_mutant = "split_section")]
fn increment(engine: &Arc<Locked>) {
    let seen = run(engine, Verb::Get(Get::default()));
    let text = std::str::from_utf8(seen.value().unwrap())
        .unwrap()
        .trim_end()
        .to_owned();
    let next = (text.parse::<u64>().unwrap() + 1).to_string();
    run(engine, Verb::Store(store(StoreMode::Set, next.as_bytes())));
}

#[test]
fn no_increment_is_lost() {
    corewise_atomic::model(|| {
        let engine = one_shard();
        run(&engine, Verb::Store(store(StoreMode::Set, b"0")));
        let other = Arc::clone(&engine);
        let handle = thread::spawn(move || increment(&other));
        increment(&engine);
        handle.join().unwrap();
        let seen = run(&engine, Verb::Get(Get::default()));
        assert_eq!(seen.value(), Some(&b"2"[..]));
    });
}

#[test]
fn of_two_swaps_from_the_same_value_one_succeeds() {
    corewise_atomic::model(|| {
        let engine = one_shard();
        let cas = run(&engine, Verb::Store(store(StoreMode::Set, b"0"))).cas();
        let compare_cas = if cfg!(corewise_mutant = "no_compare") {
            None
        } else {
            Some(cas)
        };
        let swap = move |engine: &Arc<Locked>| {
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
