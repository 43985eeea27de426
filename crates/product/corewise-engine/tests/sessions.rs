//! What several sessions may do concurrently, on one thread and on several.

use crate::common;

use common::{
    Cache, NOW, Seen, Setup, TestEngine, Worker, fewer, incr, later, stamp_of, stamped, store,
};
use corewise_engine::{Cursor, ScanStep, Session};
use corewise_ops::{
    Arith, Deadline, Delete, Flow, Get, ItemFlags, Op, Outcome, ReplySink, StoreMode, Token, Verb,
    Vivify,
};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

for_every_engine! {
    one_thread_may_use_several_sessions_in_turn
    an_idle_session_holds_nobody_up
    a_session_may_move_to_another_thread
    sessions_may_come_and_go_while_others_work
    a_view_is_whole_for_as_long_as_the_sink_looks_at_it
    what_is_there_is_found_while_others_come_and_go
    several_sessions_keep_to_the_budget
    what_several_sessions_stored_before_one_was_refused_is_there
    a_flush_among_writers_hides_all_that_was_stored_before_it
    a_delayed_flush_among_writers_hides_all_that_was_stored_before_it
    flushed_items_are_given_back_by_any_session
    of_several_conditional_writes_one_succeeds
    no_append_and_no_increment_is_lost
    cas_values_tell_the_order_of_stores
    one_reader_wins_what_is_missing_stale_or_expiring
    no_version_of_an_item_has_two_winners
    a_touch_is_not_lost_to_win_tokens_nor_to_stale_marks
    a_scan_beside_writers_shows_whole_items
    a_scan_beside_writers_shows_all_that_stays
}

const THREADS: u64 = 3;

fn roomy<E: TestEngine>() -> Arc<E> {
    Arc::new(E::make(Setup::roomy()))
}

/// Runs `work` with one session in each of `threads` threads, which start together.
fn at_once<E: TestEngine, R: Send>(
    engine: &Arc<E>,
    threads: u64,
    work: impl Fn(&mut Cache<E>, &Worker<'_>) -> R + Sync,
) -> Vec<R> {
    let sessions = (0..threads).map(|_| Cache::over(engine));
    common::at_once(sessions, |mut cache, worker| work(&mut cache, &worker))
}

fn key(i: u64) -> [u8; 8] {
    i.to_le_bytes()
}

fn stamp<E: TestEngine>(cache: &mut Cache<E>, i: u64) -> Option<u64> {
    cache.get(&key(i)).value().map(stamp_of)
}

/// Overwrites a few keys until `times` the memory has been stored.
fn churn<E: TestEngine>(cache: &mut Cache<E>, times: u64) {
    let memory = cache.engine.memory_limit();
    for i in 0..fewer(times) * memory / 1_000 {
        let seen = cache.set(&key(1_000 + i % 50), &stamped(i, 1_000));
        assert!(seen.is_stored(), "{seen:?} after {i} values");
    }
}

fn one_thread_may_use_several_sessions_in_turn<E: TestEngine>() {
    for setup in [Setup::tight::<E>(3), Setup::refusing::<E>(3)] {
        let engine = Arc::new(E::make(setup));
        let mut sessions = [(); 3].map(|()| Cache::over(&engine));
        for i in 0..fewer(10) * setup.memory / 500 {
            let [writer, reader] = [i, i + 1 + i / 7 % 2].map(|n| n as usize % 3);
            let seen = sessions[writer].set(&key(i % 20), &stamped(i, 500));
            assert!(seen.is_stored(), "{seen:?} after {i} values");
            assert_eq!(stamp(&mut sessions[reader], i % 20), Some(i));
        }
        sessions[0].assert_within_budget();
    }
}

/// Neither a session that waits for work nor one that has gone offline.
fn an_idle_session_holds_nobody_up<E: TestEngine>() {
    let engine = Arc::new(E::make(Setup::refusing::<E>(3)));
    let [mut busy, mut online, mut offline] = [(); 3].map(|()| Cache::over(&engine));
    for cache in [&mut busy, &mut online, &mut offline] {
        cache.set(&key(1), &stamped(1, 100));
    }
    for _ in 0..3 {
        offline.session.offline();
        churn(&mut busy, 4);
        engine.flush_all(Deadline::PAST, NOW);
        busy.maintain();
        // An idle session may keep the item that it stored last until it next runs.
        let dead = engine.stats().dead_bytes;
        assert!(dead < 2 * 400, "{dead}");
        churn(&mut busy, 4);
        offline.session.online();
        for cache in [&mut online, &mut offline] {
            assert_eq!(stamp(cache, 1), None);
            assert!(stamp(cache, 1_000).is_some());
        }
    }
}

fn a_session_may_move_to_another_thread<E: TestEngine>() {
    let engine = Arc::new(E::make(Setup::tight::<E>(3)));
    at_once(&engine, 2, |other, worker| {
        if worker.thread == 0 {
            while !worker.is_over() {
                churn(other, 1);
            }
            return;
        }
        let mut cache = Cache::over(&engine);
        for i in 0..fewer(200) {
            let moved = std::thread::spawn(move || {
                let seen = cache.set(&key(i), &stamped(i, 3_000));
                assert!(seen.is_stored(), "{seen:?}");
                cache
            });
            cache = moved.join().expect("no panic");
            let seen = stamp(&mut cache, i);
            assert!(seen.is_none_or(|stamp| stamp == i));
        }
        worker.finish();
    });
}

fn sessions_may_come_and_go_while_others_work<E: TestEngine>() {
    let engine = Arc::new(E::make(Setup::tight::<E>(2 * THREADS as usize)));
    at_once(&engine, THREADS, |cache, &Worker { thread, .. }| {
        for i in 0..fewer(2_000) {
            let mut short = Cache::over(&engine);
            let one = key(i % 100);
            assert!(short.set(&one, &stamped(i, 700)).is_stored());
            assert!(cache.set(&one, &stamped(i, 300)).is_stored());
            let seen = stamp(&mut short, (i + thread) % 100);
            assert!(seen.is_none_or(|stamp| stamp % 100 == (i + thread) % 100));
        }
    });
    Cache::over(&engine).assert_within_budget();
}

/// A sink that looks at a value, lets other threads run, and looks again.
struct Linger {
    stamp: Option<u64>,
}

impl ReplySink for Linger {
    fn complete(&mut self, _: Token, outcome: Outcome<'_>) -> Flow {
        let Outcome::Found(view) = outcome else {
            return Flow::Continue;
        };
        let before = (stamp_of(view.value), view.key.to_vec());
        for _ in 0..before.0 % 4 {
            std::thread::yield_now();
        }
        assert_eq!(before, (stamp_of(view.value), view.key.to_vec()));
        self.stamp = Some(before.0);
        Flow::Continue
    }
}

/// Some items are overwritten, some deleted, some evicted, while readers look at them.
fn a_view_is_whole_for_as_long_as_the_sink_looks_at_it<E: TestEngine>() {
    const KEYS: u64 = 40;
    let setup = Setup::tight::<E>(THREADS as usize);
    let engine = Arc::new(E::make(setup));
    let found = AtomicU64::new(0);
    // Threads may be scheduled for some milliseconds at a time, in which much is written.
    let enough = |written| found.load(Ordering::Relaxed) > fewer(500) || written > 1 << 32;
    at_once(&engine, THREADS, |cache, worker| {
        let random = |i: u64| (i << 8 | worker.thread).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 33;
        if worker.thread == 0 {
            let mut written = 0;
            for one in (0..).map(random).take_while(|_| !worker.is_over()) {
                written += overwrite(cache, &setup, one, KEYS);
                if written > fewer(8) * setup.memory && enough(written) {
                    worker.finish();
                }
            }
        }
        for one in (0..).map(random).take_while(|_| !worker.is_over()) {
            let mut sink = Linger { stamp: None };
            let key = key(one % KEYS);
            let ops = [Op::new(0, &key, Verb::Get(Get::default()))];
            cache.session.submit(NOW, &ops, &mut sink);
            if let Some(stamp) = sink.stamp {
                assert_eq!(stamp % KEYS, one % KEYS, "another key's value");
                found.fetch_add(1, Ordering::Relaxed);
            }
        }
    });
    assert!(enough(0), "values were seen");
}

/// Stores or deletes one of `keys` keys, and stores another one that displaces others. Returns the
/// number of bytes that this took.
fn overwrite<E: TestEngine>(cache: &mut Cache<E>, setup: &Setup, one: u64, keys: u64) -> u64 {
    let largest = setup.max_item_bytes as u64 - 512;
    let length = if one.is_multiple_of(61) {
        largest
    } else {
        2_000
    };
    let value = stamped(one, (one / 61 % length) as usize);
    let seen = cache.set(&key(one % keys), &value);
    assert!(seen.is_stored(), "{seen:?}");
    let seen = cache.set(&key(keys + one % 1_009), &value);
    assert!(seen.is_stored(), "{seen:?}");
    if one.is_multiple_of(8) {
        std::thread::yield_now(); // so that the other threads get to run
    }
    if one.is_multiple_of(7) {
        cache.delete(&key(one / 7 % keys), Delete::default());
    }
    2 * value.len() as u64
}

fn what_is_there_is_found_while_others_come_and_go<E: TestEngine>() {
    const STABLE: u64 = 300;
    let engine = roomy::<E>();
    let mut cache = Cache::over(&engine);
    for i in 0..STABLE {
        cache.set(&key(i), &stamped(i, 50));
    }
    at_once(&engine, 3, |cache, worker| {
        if worker.thread == 0 {
            let others = || (STABLE..STABLE + fewer(30_000)).map(key);
            for other in others() {
                cache.set(&other, b"another");
            }
            for other in others() {
                assert_eq!(cache.delete(&other, Delete::default()), Seen::Deleted);
            }
            return worker.finish();
        }
        for i in (0..STABLE).cycle().take_while(|_| !worker.is_over()) {
            assert_eq!(stamp(cache, i), Some(i));
        }
    });
    assert_eq!(engine.stats().items, STABLE);
}

fn several_sessions_keep_to_the_budget<E: TestEngine>() {
    let setup = Setup::tight::<E>(THREADS as usize);
    let engine = Arc::new(E::make(setup));
    for _ in 0..4 {
        at_once(&engine, THREADS, |cache, &Worker { thread, .. }| {
            for i in 0..fewer(4) * setup.memory / 600 {
                let one = i * THREADS + thread;
                let length = (one.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize % 1_200;
                let seen = cache.set(&key(one), &stamped(one, length));
                assert!(seen.is_stored(), "{seen:?} after {i} values");
                assert!(stamp(cache, one).is_none_or(|stamp| stamp == one));
            }
        });
        Cache::over(&engine).assert_within_budget();
    }
    assert_eq!(engine.stats().out_of_memory, 0);
}

fn what_several_sessions_stored_before_one_was_refused_is_there<E: TestEngine>() {
    let setup = Setup::refusing::<E>(THREADS as usize);
    let engine = Arc::new(E::make(setup));
    for round in 0..3 {
        let stored = at_once(&engine, THREADS, |cache, &Worker { thread, .. }| {
            let first = thread << 32 | round << 24;
            let refused = |i: &u64| !cache.set(&key(*i), &stamped(*i, 400)).is_stored();
            let end = (first..first + (1 << 24)).find(refused).unwrap();
            (first, end)
        });
        let mut cache = Cache::over(&engine);
        let mut bytes = 0;
        for (first, end) in stored {
            for i in first..end {
                assert_eq!(stamp(&mut cache, i), Some(i));
                assert_eq!(cache.delete(&key(i), Delete::default()), Seen::Deleted);
            }
            bytes += (end - first) * 400;
        }
        assert!(bytes > setup.memory / 4, "{bytes} in round {round}");
        assert_eq!(engine.stats().items, 0);
    }
    assert_eq!(engine.stats().evictions, 0);
}

/// Keys of each writer.
const OWN: u64 = 30;

fn own_key(thread: u64, i: u64) -> [u8; 8] {
    key(thread * OWN + i % OWN)
}

/// Progress of the writers: the number of the last value that each has certainly stored.
struct Writers {
    stored: Vec<AtomicU64>,
}

impl Writers {
    fn new() -> Self {
        Self {
            stored: (0..THREADS).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    /// Stores numbers under the thread's keys until the test is over.
    fn write<E: TestEngine>(&self, cache: &mut Cache<E>, worker: &Worker<'_>, now_ms: &AtomicU64) {
        let thread = worker.thread;
        for i in (1..).take_while(|_| !worker.is_over()) {
            cache.now.ms = now_ms.load(Ordering::Acquire);
            let seen = cache.set(&own_key(thread, i), &stamped(i, 30 + i as usize % 100));
            assert!(seen.is_stored(), "{seen:?}");
            // Release: pairs with the Acquire in `stored`, so that a thread that reads the number
            // sees the store.
            self.stored[thread as usize].store(i, Ordering::Release);
        }
    }

    fn stored(&self) -> Vec<u64> {
        let load = |number: &AtomicU64| number.load(Ordering::Acquire);
        self.stored.iter().map(load).collect()
    }
}

fn assert_hidden<E: TestEngine>(cache: &mut Cache<E>, stored_before: &[u64]) {
    for (thread, &before) in (0..).zip(stored_before) {
        for i in 0..OWN {
            let seen = cache.get(&own_key(thread, i));
            let Some(number) = seen.value().map(stamp_of) else {
                continue;
            };
            assert!(number > before, "{number}, {before} was flushed");
        }
    }
}

fn a_flush_among_writers_hides_all_that_was_stored_before_it<E: TestEngine>() {
    let (engine, writers) = (roomy::<E>(), Writers::new());
    let now = AtomicU64::new(NOW.ms);
    at_once(&engine, THREADS + 1, |cache, worker| {
        if worker.thread < THREADS {
            return writers.write(cache, worker, &now);
        }
        for round in 0..fewer(3_000) {
            let before = writers.stored();
            engine.flush_all(Deadline::PAST, NOW);
            assert_hidden(cache, &before);
            cache.set(b"mine", &key(round));
            assert_eq!(cache.get(b"mine").value(), Some(&key(round)[..]));
        }
        worker.finish();
    });
    assert_quiet_flush_hides_everything(&engine);
}

fn assert_quiet_flush_hides_everything<E: TestEngine>(engine: &Arc<E>) {
    let mut cache = Cache::over(engine);
    cache.now = later(1_000_000);
    assert!(!cache.get(b"mine").is_absent());
    engine.flush_all(Deadline::PAST, cache.now);
    cache.maintain();
    let stats = engine.stats();
    assert_eq!((stats.items, stats.dead_bytes), (0, 0));
}

fn a_delayed_flush_among_writers_hides_all_that_was_stored_before_it<E: TestEngine>() {
    let (engine, writers) = (roomy::<E>(), Writers::new());
    let now = AtomicU64::new(NOW.ms);
    at_once(&engine, THREADS + 1, |cache, worker| {
        if worker.thread < THREADS {
            return writers.write(cache, worker, &now);
        }
        for round in 1..=fewer(2_000) {
            let at = NOW.ms + 10 * round;
            engine.flush_all(Deadline::at_ms(at), cache.now);
            cache.set(b"mine", &key(round));
            assert!(!cache.get(b"mine").is_absent(), "a flush before its time");
            let before = writers.stored();
            now.store(at, Ordering::Release);
            cache.now.ms = at;
            assert!(cache.get(b"mine").is_absent(), "no flush at its time");
            assert_hidden(cache, &before);
            cache.set(b"mine", &key(round));
            assert_eq!(cache.get(b"mine").value(), Some(&key(round)[..]));
        }
        worker.finish();
    });
    assert_quiet_flush_hides_everything(&engine);
}

fn flushed_items_are_given_back_by_any_session<E: TestEngine>() {
    let engine = roomy::<E>();
    at_once(&engine, THREADS, |cache, &Worker { thread, .. }| {
        for round in 0..fewer(20) {
            for i in 0..1_000 {
                cache.set(&key(thread << 32 | i), &stamped(i, 100));
            }
            if round % THREADS == thread {
                engine.flush_all(Deadline::PAST, NOW);
            }
            cache.maintain();
        }
    });
    engine.flush_all(Deadline::PAST, NOW);
    Cache::over(&engine).maintain();
    let stats = engine.stats();
    assert_eq!((stats.items, stats.dead_bytes), (0, 0));
}

/// Runs the same work on all threads at once, `rounds` times, and hands each round's outcomes to
/// `check`. Before each round one thread prepares it.
fn rounds<E: TestEngine>(
    engine: &Arc<E>,
    rounds: u64,
    prepare: impl Fn(&mut Cache<E>, u64) + Sync,
    act: impl Fn(&mut Cache<E>, u64) -> Seen + Sync,
    check: impl Fn(u64, &[Seen]),
) {
    let mut seen = at_once(engine, THREADS, |cache, worker| {
        let one = |round| {
            if worker.thread == 0 {
                prepare(cache, round);
            }
            worker.meet();
            let seen = act(cache, round);
            worker.meet();
            seen
        };
        (0..rounds).map(one).collect::<Vec<_>>().into_iter()
    });
    for round in 0..rounds {
        let outcomes: Vec<Seen> = seen.iter_mut().filter_map(Iterator::next).collect();
        assert_eq!(outcomes.len() as u64, THREADS);
        check(round, &outcomes);
    }
}

fn exactly_one(what: impl Fn(&Seen) -> bool) -> impl Fn(u64, &[Seen]) {
    move |round, seen| {
        let count = seen.iter().filter(|seen| what(seen)).count();
        assert_eq!(count, 1, "round {round}: {seen:?}");
    }
}

fn of_several_conditional_writes_one_succeeds<E: TestEngine>() {
    let engine = roomy::<E>();
    let count = fewer(400);
    let nothing = |_: &mut Cache<E>, _: u64| ();
    let write =
        |mode| move |cache: &mut Cache<E>, round| cache.store(&key(round), store(mode, b"1"));
    let add = write(StoreMode::Add);
    rounds(&engine, count, nothing, add, exactly_one(Seen::is_stored));
    let swap = |cache: &mut Cache<E>, round: u64| {
        let request = store(StoreMode::Set, b"2")
            .if_cas(round + 1)
            .given_cas(round + 2);
        cache.store(b"swapped", request)
    };
    let first = store(StoreMode::Set, b"1").given_cas(1);
    Cache::over(&engine).store(b"swapped", first);
    rounds(&engine, count, nothing, swap, exactly_one(Seen::is_stored));
    let delete = |cache: &mut Cache<E>, round| cache.delete(&key(round), Delete::default());
    let deleted = exactly_one(|seen| *seen == Seen::Deleted);
    rounds(&engine, count, nothing, delete, deleted);
    let vivify = |cache: &mut Cache<E>, round| {
        let vivify = Some((0, Deadline::NEVER));
        cache.arith(&key(round), Arith { vivify, ..incr(1) })
    };
    let first = exactly_one(|seen| matches!(seen, Seen::Counter { value: 0, .. }));
    rounds(&engine, count, nothing, vivify, first);
}

fn no_append_and_no_increment_is_lost<E: TestEngine>() {
    let engine = roomy::<E>();
    let mut cache = Cache::over(&engine);
    cache.set(b"count", b"0");
    cache.set(b"text", b"");
    let each = fewer(2_000);
    at_once(&engine, THREADS, |cache, &Worker { thread, .. }| {
        for i in 0..each {
            cache.arith(b"count", incr(1));
            let mode = if thread == 0 {
                StoreMode::Prepend
            } else {
                StoreMode::Append
            };
            let part = [b'a' + thread as u8, b'0' + (i % 10) as u8];
            assert!(cache.store(b"text", store(mode, &part)).is_stored());
        }
    });
    assert_eq!(common::number(&cache.get(b"count")), Some(each * THREADS));
    let seen = cache.get(b"text");
    let (parts, rest) = seen.value().unwrap().as_chunks::<2>();
    assert_eq!((parts.len() as u64, rest.len()), (each * THREADS, 0));
    for thread in 0..THREADS {
        let of_thread = parts.iter().filter(|part| part[0] == b'a' + thread as u8);
        let digits: Vec<u64> = of_thread.map(|part| u64::from(part[1] - b'0')).collect();
        let expected = (0..each).map(|i| i % 10);
        let in_order = if thread == 0 {
            digits.into_iter().rev().eq(expected)
        } else {
            digits.into_iter().eq(expected)
        };
        assert!(in_order, "thread {thread}'s parts");
    }
}

fn cas_values_tell_the_order_of_stores<E: TestEngine>() {
    let engine = roomy::<E>();
    Cache::over(&engine).set(b"k", &stamped(0, 8));
    let stores_and_reads = at_once(&engine, THREADS + 1, |cache, &Worker { thread, .. }| {
        let one = |i: u64| {
            if thread == THREADS {
                let seen = cache.get(b"k");
                return (seen.cas(), stamp_of(seen.value().unwrap()));
            }
            let number = 1 + i * THREADS + thread;
            let length = 8 + number as usize % 50;
            (cache.set(b"k", &stamped(number, length)).cas(), number)
        };
        (0..fewer(5_000)).map(one).collect::<Vec<_>>()
    });
    let (reads, stores) = stores_and_reads.split_last().unwrap();
    for of_thread in stores {
        assert!(of_thread.is_sorted_by(|one, next| one.0 < next.0));
    }
    assert!(reads.is_sorted_by(|one, next| one.0 <= next.0), "backwards");
    let count = stores.iter().map(Vec::len).sum::<usize>();
    let by_cas: HashMap<u64, u64> = stores.iter().flatten().copied().collect();
    assert_eq!(by_cas.len(), count, "a cas value was given twice");
    for (cas, number) in reads {
        assert!(*number == 0 || by_cas[cas] == *number, "{number} has {cas}");
    }
}

fn ask(vivify: bool) -> Get {
    let vivify = vivify.then_some(Vivify {
        deadline: Deadline::after_ms(NOW, 30_000),
        new_cas: None,
    });
    Get {
        vivify,
        claim_stale: true,
        recache_below_ms: Some(1_000),
        ..Get::default()
    }
}

fn one_reader_wins_what_is_missing_stale_or_expiring<E: TestEngine>() {
    let engine = roomy::<E>();
    let won = || exactly_one(|seen: &Seen| seen.flags().contains(ItemFlags::WON));
    let get = |cache: &mut Cache<E>, round| cache.run(&key(round), Verb::Get(ask(true)));
    let count = fewer(1_000);
    rounds(&engine, count, |_, _| (), get, won());
    let mark = |cache: &mut Cache<E>, round| {
        cache.set(&key(round), b"v");
        let stale = Delete::STALE;
        cache.delete(&key(round), stale);
    };
    rounds(&engine, count, mark, get, won());
    let soon = |cache: &mut Cache<E>, round| {
        let request = store(StoreMode::Set, b"v").until(Deadline::after_ms(NOW, 500));
        cache.store(&key(round), request);
    };
    rounds(&engine, count, soon, get, won());
}

/// Holds while one thread stores and marks stale again and again.
fn no_version_of_an_item_has_two_winners<E: TestEngine>() {
    let engine = roomy::<E>();
    Cache::over(&engine).set(b"k", b"v");
    let wins = AtomicU64::new(0);
    // Threads may be scheduled for some milliseconds at a time, in which much is stored.
    let go_on = |round| {
        let few = wins.load(Ordering::Relaxed) < fewer(200);
        round < fewer(2_000) || few && round < 1_000_000
    };
    let won = at_once(&engine, THREADS, |cache, worker| {
        let mut won = Vec::new();
        if worker.thread == 0 {
            let rounds = (0..).take_while(|round| go_on(*round));
            rounds.for_each(|round| store_or_mark(cache, round));
            worker.finish();
        }
        while !worker.is_over() {
            let seen = cache.run(b"k", Verb::Get(ask(false)));
            if seen.flags().contains(ItemFlags::WON) {
                won.push(seen.cas());
                wins.fetch_add(1, Ordering::Relaxed);
            } else {
                std::thread::yield_now();
            }
        }
        won
    });
    let won = won.concat();
    let versions: HashSet<u64> = won.iter().copied().collect();
    assert_eq!(versions.len(), won.len(), "one was won twice");
    assert!(!won.is_empty());
}

fn store_or_mark<E: TestEngine>(cache: &mut Cache<E>, round: u64) {
    std::thread::yield_now(); // so that the other threads get to run
    if round.is_multiple_of(4) {
        let request =
            store(StoreMode::Set, b"v").until(Deadline::after_ms(NOW, 500 + round % 8 * 1_000));
        cache.store(b"k", request);
        return;
    }
    let stale = Delete {
        mark_stale: true,
        drop_value: round % 4 == 3,
        ..Delete::default()
    };
    cache.delete(b"k", stale);
}

fn a_touch_is_not_lost_to_win_tokens_nor_to_stale_marks<E: TestEngine>() {
    let engine = roomy::<E>();
    Cache::over(&engine).set(b"k", b"v");
    at_once(&engine, THREADS, |cache, worker| {
        if worker.thread > 0 {
            let stale = Delete::STALE;
            while !worker.is_over() {
                match worker.thread {
                    1 => drop(cache.run(b"k", Verb::Get(ask(false)))),
                    _ => drop(cache.delete(b"k", stale)),
                }
            }
            return;
        }
        for i in 0..fewer(10_000) {
            let deadline = Deadline::after_ms(NOW, 100_000 + i);
            let touch = Get::touching(deadline);
            assert_eq!(cache.run(b"k", Verb::Get(touch)).deadline(), deadline);
            assert_eq!(cache.get(b"k").deadline(), deadline, "touch {i} was lost");
        }
        worker.finish();
    });
}

fn a_scan_beside_writers_shows_whole_items<E: TestEngine>() {
    const KEYS: u64 = 500;
    let engine = Arc::new(E::make(Setup::tight::<E>(THREADS as usize)));
    let writers = AtomicU64::new(THREADS - 1);
    let shown = at_once(&engine, THREADS, |cache, worker| {
        let mut shown = 0u64;
        if worker.thread == 0 {
            while !worker.is_over() && (shown == 0 || writers.load(Ordering::Relaxed) > 0) {
                shown += scan(cache, KEYS);
            }
            return shown;
        }
        for i in 0..fewer(40_000) {
            let one = (i << 8 | worker.thread).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 33;
            let length = 8 + one as usize % 600;
            match i % 16 {
                0 => drop(cache.delete(&key(one % KEYS), Delete::default())),
                _ => drop(cache.set(&key(one % KEYS), &stamped(one, length))),
            }
        }
        writers.fetch_sub(1, Ordering::Relaxed);
        shown
    });
    println!("{} items were shown", shown[0]);
    assert!(engine.stats().items <= KEYS);
}

/// Keys that stay, and keys that come and go so that tables grow.
const STAY: u64 = 2_000;
const COME: u64 = 10_000;

/// Overwrites the keys that stay, and stores and deletes the others.
fn come_and_go<E: TestEngine>(cache: &mut Cache<E>, worker: &Worker<'_>) {
    for round in 0.. {
        for i in STAY..STAY + fewer(COME) {
            if worker.is_over() {
                return;
            }
            let mine = i * THREADS + worker.thread;
            match round % 2 {
                0 => drop(cache.set(&key(mine + (1 << 40)), &stamped(mine, 20))),
                _ => drop(cache.delete(&key(mine + (1 << 40)), Delete::default())),
            }
            let one = mine.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 33;
            if one.is_multiple_of(4) {
                let length = 8 + one as usize % 300;
                drop(cache.set(&key(one / 4 % STAY), &stamped(one / 4 % STAY, length)));
            }
        }
        cache.maintain();
    }
}

/// Checks what `Engine::scan` guarantees while other threads store and delete, and so resize the
/// table.
fn a_scan_beside_writers_shows_all_that_stays<E: TestEngine>() {
    let engine = roomy::<E>();
    let mut cache = Cache::over(&engine);
    for i in 0..STAY {
        cache.set(&key(i), &stamped(i, 50));
    }
    let exactly = engine.name() == "relativistic";
    at_once(&engine, THREADS, |cache, worker| {
        if worker.thread > 0 {
            return come_and_go(cache, worker);
        }
        let (mut scans, mut lost) = (0, 0);
        while scans < fewer(5) {
            let (mut shown, mut step) = (HashMap::new(), ScanStep::More(Cursor::START));
            while let ScanStep::More(cursor) = step {
                step = engine.scan(cursor, 500, NOW, &mut |item| {
                    let number = u64::from_le_bytes(item.key.try_into().unwrap());
                    if number < STAY {
                        assert_eq!(stamp_of(item.value), number);
                        *shown.entry(number).or_insert(0u32) += 1;
                    }
                });
                std::thread::yield_now();
            }
            if step == ScanStep::Lost {
                lost += 1;
                assert!(!exactly && lost < 100, "{lost} scans were lost");
                continue;
            }
            let all = (0..STAY).all(|i| shown.contains_key(&i));
            assert!(all, "{} of {STAY} shown", shown.len());
            assert!(!exactly || shown.values().all(|times| *times == 1));
            scans += 1;
        }
        println!("{lost} scans were lost");
        worker.finish();
    });
}

/// Scans all items; returns how many were shown.
fn scan<E: TestEngine>(cache: &Cache<E>, keys: u64) -> u64 {
    let mut shown = 0;
    cache.scan(20, |item| {
        let number = u64::from_le_bytes(item.key.try_into().unwrap());
        assert_eq!(stamp_of(item.value) % keys, number);
        shown += 1;
    });
    shown
}
