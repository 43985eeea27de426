//! `CpHash` from outside: clients and servers that come, go and panic, and hostile use.

use std::collections::HashMap;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher, Hasher};
use std::ops::RangeInclusive;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, mpsc};

use corewise_cphash::{
    CacheRequest, Client, Colocated, Config, ConfigError, CpHash, Eviction, InsertError, Key,
    MAX_BUCKETS, MAX_SERVER_THREADS, PinPolicy, PipelineFull, Replace, Reply,
};
use corewise_testkit::random::{Random, fewer};

/// Panics, without the message and the backtrace of a panic that is a mistake.
fn expected_panic() -> ! {
    std::panic::resume_unwind(Box::new("expected"))
}

fn config() -> Config {
    Config::new(400_000).partitions(4).pipeline(64)
}

/// Submits, and polls if the client is full.
fn submit<S: BuildHasher>(
    client: &mut Client<S>,
    token: u64,
    request: CacheRequest<'_>,
    mut deliver: impl FnMut(u64, Reply<'_>),
) {
    while client.submit(token, request) == Err(PipelineFull) {
        if client.poll(&mut deliver) == 0 {
            std::thread::yield_now();
        }
    }
}

fn settle<S: BuildHasher>(client: &mut Client<S>, mut deliver: impl FnMut(u64, Reply<'_>)) {
    while client.outstanding() > 0 {
        if client.poll(&mut deliver) == 0 {
            std::thread::yield_now();
        }
    }
}

/// Hashes all byte keys to one of 4 IDs, which numbers have, too.
#[derive(Default)]
struct Colliding(u64);

impl Hasher for Colliding {
    fn finish(&self) -> u64 {
        self.0 & 3
    }
    fn write(&mut self, bytes: &[u8]) {
        bytes
            .iter()
            .for_each(|&byte| self.0 = self.0.wrapping_mul(31) + u64::from(byte));
    }
}

/// With and without server threads.
fn both(test: impl Fn(&mut CpHash)) {
    for servers in [0, 2] {
        test(&mut CpHash::new(&config(), servers).unwrap());
    }
}

/// As for `LockHash`: an element of a sixteenth of the budget fits, or of 1 MiB.
#[test]
fn a_large_value_fits_into_a_budget_of_every_size() {
    for shift in 7..=28 {
        for budget in [1usize << shift, (1 << shift) + (63 << shift >> 6)] {
            let config = Config::new(budget).element_bytes(4096).pipeline(64);
            let table = CpHash::new(&config, 0).unwrap();
            let mut client = table.client();
            let value = vec![7; (budget / 16).clamp(128, 1 << 20) / 64 * 64 - 72];
            for key in 0..20 {
                assert_eq!(client.insert(key, &value), Ok(()), "{key} in {budget}");
                assert_eq!(client.get(key, <[u8]>::len), Some(value.len()));
            }
        }
    }
}

#[test]
fn blocking_operations_see_each_other() {
    both(|table| {
        let mut one = table.client();
        let mut other = table.client();
        for key in [0, 1, (1 << 60) - 1, 1 << 60, u64::MAX] {
            let bytes = key.to_le_bytes();
            one.insert(key, b"number").unwrap();
            one.insert(&bytes, b"bytes").unwrap();
            assert_eq!(other.get(key, <[u8]>::to_vec), Some(b"number".to_vec()));
            assert_eq!(other.get(&bytes, <[u8]>::to_vec), Some(b"bytes".to_vec()));
            other.insert(key, &[7; 5000]).unwrap();
            let value = one.get_ref(key).unwrap();
            assert!(other.remove(key) && !other.remove(key));
            assert_eq!(&*value, [7; 5000]);
            drop(value);
            assert_eq!(one.get(key, |_| ()), None);
            assert!(one.remove(&bytes));
        }
        assert_eq!(one.insert(1, &vec![0; 100_000]), Err(InsertError::TooLarge));
        let count = |entry: &mut corewise_cphash::Entry<'_>| {
            let count = entry.get().map_or(0, |value| value[0]) + 1;
            entry.insert(&[count]).map(|()| count)
        };
        assert_eq!(one.execute("count", count), Ok(1));
        assert_eq!(other.execute("count", count), Ok(2));
        assert!(other.execute("count", |entry| entry.remove()));
        assert!(!other.execute("count", |entry| entry.get().is_some()));
    });
}

/// Guarantee 1, for a random mixture of operations that are all on their way at the same time.
#[test]
fn operations_of_a_client_take_effect_in_their_order() {
    for servers in [0, 2] {
        check_order(&CpHash::new(&config(), servers).unwrap());
        let early = config().early_outcomes(true).inline_values(false);
        check_order(&CpHash::new(&early, servers).unwrap());
        let hasher = BuildHasherDefault::<Colliding>::default();
        check_order(&CpHash::with_hasher(&config(), servers, hasher).unwrap());
    }
}

fn check_order<S: BuildHasher>(table: &CpHash<S>) {
    {
        let mut client = table.client();
        let mut random = Random(7);
        let mut expected = HashMap::new();
        let mut replies = HashMap::new();
        let mut model: HashMap<u64, Vec<u8>> = HashMap::new();
        let mut keep = |token, reply: Reply<'_>| {
            let reply = match reply {
                Reply::Found(value) => Some(value.to_vec()),
                Reply::Missing | Reply::Removed(false) => None,
                Reply::Inserted(result) => result.map(|()| None).unwrap(),
                Reply::Removed(true) => Some(b"removed".to_vec()),
                other => panic!("{other:?}"),
            };
            assert!(replies.insert(token, reply).is_none());
        };
        for token in 0..fewer(4_000) {
            let key = random.below(40);
            let text = key.to_string();
            let name = if key < 20 {
                Key::from(key)
            } else {
                Key::from(&*text)
            };
            let value = vec![token as u8; random.below(200) as usize];
            let (request, outcome) = match random.below(4) {
                0 => {
                    model.insert(key, value.clone());
                    (CacheRequest::Insert(name, &value), None)
                }
                1 => {
                    let removed = model.remove(&key).map(|_| b"removed".to_vec());
                    (CacheRequest::Remove(name), removed)
                }
                _ => (CacheRequest::Get(name), model.get(&key).cloned()),
            };
            expected.insert(token, outcome);
            submit(&mut client, token, request, &mut keep);
        }
        settle(&mut client, &mut keep);
        assert_eq!(replies, expected);
    }
}

/// Guarantee 3: nothing that a client leaves behind keeps memory or holds others up.
#[test]
fn clients_leave_at_any_time_and_leak_nothing() {
    both(|table| {
        for round in 0..60 {
            let mut client = table.client();
            for token in 0..64 {
                let key = Key::from(token % 9);
                let value = vec![1; 1 + round * 3];
                let request = match (token + round as u64) % 3 {
                    0 => CacheRequest::Insert(key, &value),
                    1 => CacheRequest::Get(key),
                    _ => CacheRequest::Remove(key),
                };
                if client.submit(token, request).is_err() {
                    break;
                }
            }
            let _ = client.submit_execute(99, 5, |_| DropNoisily);
            match round % 4 {
                0 => drop(client),
                1 => {
                    client.flush();
                    drop(client);
                }
                2 => {
                    client.poll(|_, reply| std::mem::forget(reply));
                    drop(client);
                }
                _ => {
                    let leave = AssertUnwindSafe(move || {
                        let _client = client;
                        expected_panic();
                    });
                    assert!(catch_unwind(leave).is_err());
                }
            }
        }
        let mut last = table.client();
        (0..9).for_each(|key| {
            last.remove(key);
        });
        // The lanes of the clients that have left may be served after the removals.
        for _ in 0..10_000 {
            (0..9).for_each(|key| {
                last.remove(key);
            });
            if table.stats().used_bytes == 0 {
                break;
            }
        }
        assert_eq!(table.stats().used_bytes, 0);
    });
}

/// Panics when it is dropped, unless the thread panics already.
struct DropNoisily;

impl Drop for DropNoisily {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            expected_panic();
        }
    }
}

#[test]
fn panics_in_closures_concern_their_callers_only() {
    both(|table| {
        let mut client = table.client();
        let failed = catch_unwind(AssertUnwindSafe(|| {
            client.execute(1, |entry| {
                entry.insert(b"before").unwrap();
                expected_panic();
            })
        }));
        assert_eq!(failed.unwrap_err().downcast_ref(), Some(&"expected"));
        client
            .submit_execute(5, 1, |_| -> u8 { expected_panic() })
            .unwrap();
        client
            .submit_execute(6, 1, |entry| entry.get().map(<[u8]>::len))
            .unwrap();
        let mut tokens = Vec::new();
        settle(&mut client, |token, reply| match reply {
            Reply::Executed(Ok(len)) => {
                tokens.push((token, len.downcast_ref() == Some(&Some(6usize))))
            }
            Reply::Executed(Err(_)) => tokens.push((token, false)),
            other => panic!("{other:?}"),
        });
        assert_eq!(tokens, [(5, false), (6, true)]);
        assert!(client.remove(1));
    });
}

/// Panics when it is dropped, with such a payload again.
struct DropPanicsForever;

impl Drop for DropPanicsForever {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            std::panic::resume_unwind(Box::new(DropPanicsForever));
        }
    }
}

#[test]
fn a_server_outlives_the_results_that_a_client_left_behind() {
    both(|table| {
        for token in 0..10 {
            let mut client = table.client();
            // Nobody reads the outcomes.
            client
                .submit_execute(token, token, |_| DropPanicsForever)
                .unwrap();
            client
                .submit_execute(token, token, |_| -> u8 {
                    std::panic::resume_unwind(Box::new(DropPanicsForever))
                })
                .unwrap();
            client.flush();
            drop(client);
        }
        let mut client = table.client();
        (0..100).for_each(|key| client.insert(key, b"value").unwrap());
        assert!((0..100).all(|key| client.get(key, |value| value == b"value") == Some(true)));
    });
}

#[test]
fn a_closure_that_waits_for_its_table_panics_instead() {
    both(|table| {
        let mut inner = table.client();
        let mut client = table.client();
        let waited = client.execute(1, move |_| {
            catch_unwind(AssertUnwindSafe(|| inner.get(1, |_| ()))).is_err()
        });
        assert!(waited);
    });
}

#[test]
fn references_pin_memory_until_they_are_dropped() {
    let table = CpHash::new(&Config::new(4096).partitions(1), 1).unwrap();
    let (mut one, mut other) = (table.client(), table.client());
    one.insert(1, &[1; 2000]).unwrap();
    let pinned = one.get_ref(1).unwrap();
    assert_eq!(other.insert(1, &[2; 3000]), Err(InsertError::NoRoom));
    other.insert(1, &[2; 1000]).unwrap();
    assert_eq!(&*pinned, [1; 2000]);
    drop(pinned);
    while other.insert(1, &[3; 3000]).is_err() {
        std::thread::yield_now();
    }
    std::mem::forget(one.get_ref(1));
    assert_eq!(other.insert(2, &[3; 3000]), Err(InsertError::NoRoom));
}

/// Guarantee 5: the test would not end if a wake-up were lost. Each message is sent when the server
/// has said that it may sleep, or is about to.
#[test]
fn sleeping_servers_are_woken() {
    let table = CpHash::new(&config(), 0).unwrap();
    let (sleeps, stop) = (AtomicUsize::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let server = scope.spawn(|| {
            let this = std::thread::current();
            let mut server = table.server(move || this.unpark());
            while !stop.load(Relaxed) {
                if server.poll() == 0 && server.may_sleep() {
                    sleeps.fetch_add(1, Relaxed);
                    std::thread::park();
                }
            }
        });
        let mut client = table.client();
        let mut seen = 0;
        for round in 0..fewer(300) {
            if round % 2 == 0 {
                // What was sent before has woken it, so it falls asleep again.
                while sleeps.load(Relaxed) == seen {
                    std::thread::yield_now();
                }
                seen = sleeps.load(Relaxed);
            }
            client
                .submit(round, CacheRequest::Get(round.into()))
                .unwrap();
            client.flush();
            settle(&mut client, |_, reply| {
                assert!(matches!(reply, Reply::Missing))
            });
        }
        stop.store(true, Relaxed);
        server.thread().unpark();
    });
}

/// The same for the threads of a table, which are or are not asleep.
#[test]
fn sleeping_server_threads_are_woken() {
    let table = CpHash::new(&config(), 2).unwrap();
    let mut client = table.client();
    for round in 0..fewer(300) {
        client.insert(round, b"value").unwrap();
        client
            .submit(round, CacheRequest::Get(round.into()))
            .unwrap();
        settle(&mut client, |_, reply| {
            assert!(matches!(reply, Reply::Found(b"value")))
        });
    }
}

#[test]
fn a_table_that_is_dropped_drains_and_its_clients_go_on() {
    let table = CpHash::new(&config(), 2).unwrap();
    let mut client = table.client();
    let executed = Arc::new(AtomicUsize::new(0));
    for token in 0..50 {
        let executed = executed.clone();
        let run = move |_: &mut corewise_cphash::Entry<'_>| executed.fetch_add(1, Relaxed);
        client.submit_execute(token, token, run).unwrap();
    }
    client.flush();
    drop(table);
    assert_eq!(executed.load(Relaxed), 50);
    let mut done = 0;
    settle(&mut client, |_, _| done += 1);
    assert_eq!(done, 50);
    client.insert(1, b"still here").unwrap();
    assert_eq!(client.get(1, <[u8]>::len), Some(10));
}

#[test]
fn a_closure_may_drop_the_table() {
    let table = Arc::new(CpHash::new(&config(), 1).unwrap());
    let mut client = table.client();
    let weak = Arc::downgrade(&table);
    let (sender, receiver) = mpsc::channel();
    client
        .submit_execute(1, 1, move |_| {
            receiver.recv().unwrap();
            drop(table);
        })
        .unwrap();
    client.flush();
    sender.send(()).unwrap();
    settle(&mut client, |_, reply| {
        assert!(matches!(reply, Reply::Executed(Ok(_))))
    });
    assert!(weak.upgrade().is_none());
}

/// Clients, server threads and polled servers join, leave and panic at random; values are checked,
/// the budget is kept, and at the end nothing is left.
#[test]
fn everything_comes_and_goes() {
    let hasher = BuildHasherDefault::<Colliding>::default();
    for (eviction, replace) in [
        (Eviction::Lru, Replace::WhenReady),
        (Eviction::Random, Replace::AtAllocation),
    ] {
        let config = Config::new(100_000).partitions(5).pipeline(64);
        let config = config.eviction(eviction).replace(replace);
        let early = config.clone().early_outcomes(true).moving_budgets(true);
        let config = config.inline_values(false);
        come_and_go(CpHash::new(&config, 1).unwrap());
        come_and_go(CpHash::with_hasher(&early, 1, hasher.clone()).unwrap());
    }
}

fn come_and_go<S: BuildHasher + Send + Sync>(mut table: CpHash<S>) {
    for round in 0..4 {
        table.set_server_threads(round as usize % 4).unwrap();
        let (table, stop) = (&table, &AtomicBool::new(false));
        std::thread::scope(|scope| {
            let polled = scope.spawn(move || serve_now_and_then(table, stop, 20));
            let clients: Vec<_> = (1..3)
                .map(|seed| scope.spawn(move || use_for_a_while(table, seed + round * 5)))
                .collect();
            clients
                .into_iter()
                .for_each(|client| client.join().unwrap());
            stop.store(true, Relaxed);
            polled.thread().unpark();
        });
        let stats = table.stats();
        assert!(stats.held_bytes <= stats.budget_bytes, "{stats:?}");
    }
    table.set_server_threads(0).unwrap();
    let mut last = table.client();
    for key in 0..300 {
        last.remove(key);
        last.remove(&*key.to_string());
    }
    assert_eq!(table.stats().used_bytes, 0);
}

/// Polls a server for a short time, drops it, and starts again: for some times, or until `stop`.
fn serve_now_and_then<S: BuildHasher>(table: &CpHash<S>, stop: &AtomicBool, times: u64) {
    let mut random = Random(99);
    for _ in 0..times {
        let this = std::thread::current();
        let mut server = table.server(move || this.unpark());
        let turns = random.below(300);
        let leave = AssertUnwindSafe(|| {
            for _ in 0..turns {
                if server.poll() == 0 && server.may_sleep() && !stop.load(Relaxed) {
                    std::thread::park();
                }
            }
            let _server = server;
            if !turns.is_multiple_of(2) {
                expected_panic();
            }
        });
        let _ = catch_unwind(leave);
        if stop.load(Relaxed) {
            break;
        }
    }
}

fn use_for_a_while<S: BuildHasher>(table: &CpHash<S>, seed: u64) {
    let mut random = Random(seed);
    for _ in 0..3 {
        let mut client = table.client();
        let leave = AssertUnwindSafe(|| {
            let check = |token: u64, reply: Reply<'_>| match reply {
                Reply::Found(value) => {
                    let key = (token % 300).to_le_bytes();
                    assert_eq!(value[..8], key);
                    assert!(value[8..].iter().all(|byte| *byte == key[0]));
                }
                Reply::Executed(result) => assert!(result.is_ok()),
                _ => {}
            };
            for step in 0..fewer(400) {
                let key = random.below(300);
                let token = step * 300 + key;
                let mut value = vec![key as u8; 8 + random.below(400) as usize];
                value[..8].copy_from_slice(&key.to_le_bytes());
                let text = key.to_string();
                let name = if key < 150 {
                    Key::from(key)
                } else {
                    Key::from(&*text)
                };
                match random.below(10) {
                    0..4 => submit(
                        &mut client,
                        token,
                        CacheRequest::Insert(name, &value),
                        check,
                    ),
                    4 => submit(&mut client, token, CacheRequest::Remove(name), check),
                    5 => {
                        let touch = move |entry: &mut corewise_cphash::Entry<'_>| {
                            let _ = entry.insert(&value);
                        };
                        let _ = client.submit_execute(token, name, touch);
                    }
                    6 if step % 20 == 0 => {
                        client.get(name, |value| check(token, Reply::Found(value)));
                    }
                    _ => submit(&mut client, token, CacheRequest::Get(name), check),
                }
            }
            let _client = client;
            if random.below(2) > 0 {
                expected_panic();
            }
        });
        let left = catch_unwind(leave);
        if let Err(payload) = left {
            assert_eq!(payload.downcast_ref(), Some(&"expected"));
        }
    }
}

#[test]
fn a_byte_key_hashed_elsewhere_is_found_by_every_client() {
    let hasher = BuildHasherDefault::<DefaultHasher>::default();
    let table = CpHash::with_hasher(&config(), 1, hasher).unwrap();
    std::thread::scope(|scope| {
        for seed in 0..3 {
            let mut client = table.client();
            scope.spawn(move || client.insert(&*format!("key {seed}"), b"value").unwrap());
        }
    });
    let mut client = table.client();
    for seed in 0..3 {
        assert!(client.get(&*format!("key {seed}"), |_| ()).is_some());
    }
}

#[test]
fn configurations_beyond_the_limits_are_refused() {
    let huge = Config::new(1 << 44).partitions(1);
    let most = MAX_BUCKETS;
    assert_eq!(
        CpHash::new(&huge, 0).err(),
        Some(ConfigError::Buckets { most })
    );
    for pipeline in [0, 63, 16_385] {
        let refused = CpHash::new(&config().pipeline(pipeline), 0).err();
        assert_eq!(refused, Some(ConfigError::Pipeline));
    }
}

#[test]
fn a_smaller_budget_takes_effect_when_servers_poll() {
    let table = CpHash::new(&config(), 1).unwrap();
    let mut client = table.client();
    (0..3000).for_each(|key| client.insert(key, b"value").unwrap());
    assert!(table.stats().used_bytes > 200_000);
    table.set_budget_bytes(40_000).unwrap();
    while table.stats().held_bytes > 40_000 {
        std::thread::yield_now();
    }
    assert!(table.stats().elements > 200);
}

/// Event loops that serve their own partitions and send to each other's, and a loop that comes and
/// goes, so that partitions move while operations are on their way.
#[test]
fn event_loops_serve_their_own_partitions() {
    let config = Config::new(200_000).partitions(7).pipeline(64);
    let table = CpHash::new(&config, 0).unwrap();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let coming = scope.spawn(|| serve_now_and_then(&table, &stop, 20));
        let loops: Vec<_> = (0..2)
            .map(|seed| {
                let table = &table;
                scope.spawn(move || run_event_loop(table, seed))
            })
            .collect();
        loops.into_iter().for_each(|thread| thread.join().unwrap());
        stop.store(true, Relaxed);
        coming.thread().unpark();
    });
    let stats = table.stats();
    assert!(stats.held_bytes <= stats.budget_bytes);
    // Alone, a loop executes everything itself.
    let mut alone = table.colocated(|| ());
    assert_eq!(alone.partitions(), 7);
    (0..50).for_each(|key| alone.submit(key, CacheRequest::Remove(key.into())).unwrap());
    assert_eq!(alone.outstanding(), 50);
    assert_eq!(
        alone.poll(|_, reply| assert!(matches!(reply, Reply::Removed(_)))),
        50
    );
    assert!(alone.may_sleep());
}

/// The first words of a message are readable when it crosses a line, and the others when they are
/// flushed: till then the server has nothing to do, and then it is woken.
#[test]
fn servers_sleep_beside_half_a_message() {
    let table = CpHash::new(&Config::new(1024).partitions(1), 0).unwrap();
    let woken = Arc::new(AtomicBool::new(false));
    let wake = woken.clone();
    let mut server = table.server(move || wake.store(true, Relaxed));
    let mut client = table.client();
    let mut halves = 0;
    for token in 0..50 {
        let insert = CacheRequest::Insert(token.into(), &[7; 32]);
        client.submit(token, insert).unwrap();
        while server.poll() > 0 {}
        // The first time the lane is new; then nothing has come but halves of messages.
        assert!(server.may_sleep());
        woken.store(false, Relaxed);
        client.flush();
        // What was readable as a whole has been served.
        let served = server.poll();
        assert!(served <= 1);
        halves += served;
        assert!(served == 0 || woken.load(Relaxed));
        client.poll(|_, reply| assert!(matches!(reply, Reply::Inserted(Ok(())))));
    }
    assert!(halves > 0);
    assert_eq!(client.outstanding(), 0);
}

/// Every loop has its keys, so it knows all outcomes.
fn run_event_loop(table: &CpHash, seed: u64) {
    let this = std::thread::current();
    let mut event_loop: Colocated = table.colocated(move || this.unpark());
    let mut random = Random(seed + 50);
    let mut model: HashMap<u64, u64> = HashMap::new();
    let mut expected: HashMap<u64, Option<u64>> = HashMap::new();
    let check = |expected: &mut HashMap<u64, Option<u64>>, token, reply: Reply<'_>| match reply {
        Reply::Found(value) => {
            let value = u64::from_le_bytes(value[..8].try_into().unwrap());
            assert_eq!(expected.remove(&token), Some(Some(value)));
        }
        Reply::Missing => assert_eq!(expected.remove(&token), Some(None)),
        Reply::Inserted(result) => assert_eq!(result, Ok(())),
        Reply::Executed(result) => assert!(result.is_ok()),
        _ => {}
    };
    for token in 0..fewer(6_000) {
        let key = seed * 1000 + random.below(100);
        loop {
            let submitted = match random.below(5) {
                0 => {
                    let mut value = vec![0; 8 + random.below(100) as usize];
                    value[..8].copy_from_slice(&token.to_le_bytes());
                    let result = event_loop.submit(token, CacheRequest::Insert(key.into(), &value));
                    result.map(|()| {
                        let _ = model.insert(key, token);
                    })
                }
                1 => {
                    let result = event_loop.submit_execute(token, key, move |entry| {
                        entry.insert(&token.to_le_bytes()).unwrap();
                    });
                    result.map(|()| {
                        let _ = model.insert(key, token);
                    })
                }
                2 => {
                    let result = event_loop.submit(token, CacheRequest::Remove(key.into()));
                    result.map(|()| {
                        let _ = model.remove(&key);
                    })
                }
                _ => {
                    let result = event_loop.submit(token, CacheRequest::Get(key.into()));
                    result.map(|()| {
                        let _ = expected.insert(token, model.get(&key).copied());
                    })
                }
            };
            if submitted.is_ok() {
                break;
            }
            event_loop.poll(|token, reply| check(&mut expected, token, reply));
        }
    }
    while event_loop.outstanding() > 0 {
        event_loop.poll(|token, reply| check(&mut expected, token, reply));
    }
    assert!(expected.is_empty());
}

/// One partition gets all the large values. Everything happens on one thread, so it is the same in
/// every run, but for the keys.
#[test]
fn memory_moves_to_the_partition_that_needs_it() {
    const TOTAL: u64 = 400_000;
    let config = Config::new(TOTAL as usize).partitions(4).pipeline(64);
    let table = CpHash::new(&config.moving_budgets(true), 0).unwrap();
    let mut server = table.server(|| ());
    let mut client = table.client();
    let mut insert = |key: u64, value: &[u8]| {
        client
            .submit(0, CacheRequest::Insert(key.into(), value))
            .unwrap();
        let mut outcome = Ok(());
        while client.outstanding() > 0 {
            client.poll(|_, reply| {
                if let Reply::Inserted(result) = reply {
                    outcome = result;
                }
            });
            server.poll();
            let stats = table.stats();
            assert!(
                stats.held_bytes <= TOTAL && stats.budget_bytes <= TOTAL,
                "{stats:?}"
            );
        }
        outcome
    };
    let elements = |index: usize| table.partition_stats().nth(index).unwrap().elements;
    // The keys of the first partition are those that add to its elements.
    let mut keys = (0..1000u64).filter(|&key| {
        let before = elements(0);
        insert(key, b"").unwrap();
        elements(0) > before
    });
    let keys: Vec<u64> = keys.by_ref().take(30).collect();
    let share = TOTAL / 4;
    let budgets = || table.partition_stats().map(|stats| stats.budget_bytes);
    assert!(budgets().all(|bytes| bytes == share));
    for round in 0..10_000 {
        insert(keys[round % keys.len()], &[1; 20_000]).unwrap();
    }
    let budgets: Vec<u64> = budgets().collect();
    assert_eq!(budgets[0], 2 * share);
    assert!(
        budgets[1..].iter().all(|&bytes| bytes >= share / 2),
        "{budgets:?}"
    );
    // A share is enough for more values than before, and a new budget is shared out evenly.
    assert!(elements(0) >= 9);
    table.set_budget_bytes(TOTAL as usize / 2).unwrap();
    server.poll();
    let stats = table.stats();
    assert!(
        stats.held_bytes <= TOTAL / 2 && stats.budget_bytes == TOTAL / 2,
        "{stats:?}"
    );
}

#[test]
fn the_number_of_server_threads_may_follow_the_load() {
    let mut table = CpHash::new(&config(), 3).unwrap();
    table.adapt_server_threads(1..=3).unwrap();
    let mut client = table.client();
    for key in 0..20_000 {
        submit(
            &mut client,
            key,
            CacheRequest::Insert((key % 100).into(), b"value"),
            |_, _| (),
        );
    }
    settle(&mut client, |_, _| ());
    table.set_server_threads(1).unwrap();
    while table.servers() != 1 {
        std::thread::yield_now();
    }
    assert_eq!(client.get(7, <[u8]>::len), Some(5));
}

/// Nothing changes if a number of threads is refused.
#[test]
fn numbers_of_server_threads_have_limits() {
    let most = MAX_SERVER_THREADS;
    let refused = Err(ConfigError::ServerThreads { most });
    for count in [most + 1, 1 << 40, usize::MAX] {
        assert_eq!(CpHash::new(&config(), count).err(), refused.err());
    }
    let mut table = CpHash::new(&config(), 1).unwrap();
    let mut client = table.client();
    client.insert(1, b"value").unwrap();
    for count in [most + 1, usize::MAX] {
        assert_eq!(table.set_server_threads(count), refused);
    }
    let empty = RangeInclusive::new(2, 1);
    for range in [
        0..=0,
        0..=3,
        empty,
        1..=most + 1,
        1..=usize::MAX,
        usize::MAX..=usize::MAX,
    ] {
        assert_eq!(table.adapt_server_threads(range), refused);
    }
    while table.servers() != 1 {
        std::thread::yield_now();
    }
    table.adapt_server_threads(1..=1).unwrap();
    assert_eq!(client.get(1, <[u8]>::len), Some(5));
    table.set_server_threads(0).unwrap();
    assert_eq!((client.get(1, <[u8]>::len), table.servers()), (Some(5), 0));
}

#[test]
fn servers_and_clients_have_their_places() {
    for policy in [PinPolicy::SmtPair, PinPolicy::Compact, PinPolicy::Balanced] {
        let table = CpHash::new(&config().placement(policy), 1).unwrap();
        let mut client = table.client();
        client.insert(1, b"value").unwrap();
        assert!(
            [0, 1, 2, usize::MAX / 2, usize::MAX]
                .into_iter()
                .all(|number| table.client_cpu(number).is_some() || cfg!(not(target_os = "linux")))
        );
    }
    assert_eq!(CpHash::new(&config(), 0).unwrap().client_cpu(0), None);
}

/// The limits of both rings: the client fills its pipeline while the server does not poll, and the
/// server replies to everything while the client does not poll. Neither ever waits, and everything
/// completes.
#[test]
fn full_rings_stop_nobody() {
    for mode in 0..4 {
        let config = Config::new(1 << 20)
            .partitions(1)
            .early_outcomes(mode % 2 > 0);
        let config = config.inline_values(mode / 2 > 0);
        let table = CpHash::new(&config.pipeline(64), 0).unwrap();
        let mut server = table.server(|| ());
        let mut client = table.client();
        let (mut submitted, mut done) = (0, 0);
        let mut ring_was_full = false;
        for round in 0..20u64 {
            loop {
                let key = Key::from(submitted % 300);
                let request = match round % 3 {
                    0 => CacheRequest::Insert(key, b"value"),
                    _ => CacheRequest::Get(key),
                };
                if client.submit(submitted, request).is_err() {
                    break;
                }
                submitted += 1;
            }
            // READY and DECREF messages take room of the requests.
            assert!((20..=64).contains(&client.outstanding()));
            ring_was_full |= client.outstanding() < 64;
            // The client stays away while the server goes on, and the other way round.
            client.flush();
            let outstanding = client.outstanding();
            (0..3).for_each(|_| _ = server.poll());
            assert_eq!(client.outstanding(), outstanding);
            for _ in 0..round % 5 {
                done += client.poll(|_, _| ());
            }
        }
        while client.outstanding() > 0 {
            done += client.poll(|_, _| ());
            server.poll();
        }
        assert_eq!(done as u64, submitted);
        assert!(ring_was_full);
    }
}

/// The same in every order of steps that a random walk takes.
#[test]
fn no_order_of_polls_hangs() {
    for seed in 1..fewer(40) {
        let mut random = Random(seed);
        let config = Config::new(20_000)
            .partitions(2)
            .early_outcomes(seed % 2 == 0)
            .inline_values(seed % 4 > 1);
        let table = CpHash::new(&config.pipeline(64), 0).unwrap();
        let mut server = table.server(|| ());
        let mut clients = [table.client(), table.client()];
        let (mut submitted, mut done) = (0, 0);
        for token in 0..3000 {
            let client = &mut clients[random.below(2) as usize];
            match random.below(40) {
                0 => _ = server.poll(),
                1 => done += client.poll(|_, _| ()),
                2 => client.flush(),
                step => {
                    let key = random.below(500);
                    let text = key.to_string();
                    let request = match step % 4 {
                        0 => CacheRequest::Get(key.into()),
                        1 => CacheRequest::Remove(key.into()),
                        2 => CacheRequest::Insert(key.into(), b"value"),
                        _ => CacheRequest::Get((&*text).into()),
                    };
                    submitted += usize::from(client.submit(token, request).is_ok());
                }
            }
        }
        for _ in 0..10 {
            clients
                .iter_mut()
                .for_each(|client| done += client.poll(|_, _| ()));
            server.poll();
        }
        assert!(clients.iter().all(|client| client.outstanding() == 0));
        assert_eq!(done, submitted);
    }
}

/// Bytes that wait are counted for all partitions together.
#[test]
fn a_client_has_a_limit_of_waiting_bytes() {
    let table = CpHash::new(&Config::new(1 << 30).partitions(64).pipeline(64), 0).unwrap();
    let mut server = table.server(|| ());
    let mut client = table.client();
    let value = vec![1; 12 << 20];
    let mut submitted = 0u64;
    while client
        .submit(0, CacheRequest::Insert(submitted.into(), &value))
        .is_ok()
    {
        submitted += 1;
    }
    assert_eq!(submitted, 5);
    // A large one is refused only if others wait.
    let huge = vec![1; 70 << 20];
    assert_eq!(
        client.submit(0, CacheRequest::Insert(99.into(), &huge)),
        Err(PipelineFull)
    );
    client.submit(0, CacheRequest::Get(100.into())).unwrap();
    while client.outstanding() > 0 {
        client.poll(|_, _| ());
        server.poll();
    }
    client
        .submit(0, CacheRequest::Insert(99.into(), &huge))
        .unwrap();
    let mut too_large = 0;
    while client.outstanding() > 0 {
        server.poll();
        client.poll(|_, reply| match reply {
            Reply::Inserted(Err(InsertError::TooLarge)) => too_large += 1,
            other => panic!("{other:?}"),
        });
    }
    assert_eq!(too_large, 1);
}

/// Guarantee 3: the last server executes what was sent, also by clients that have left.
#[test]
fn the_last_server_leaves_nothing_behind() {
    let table = CpHash::new(&config(), 0).unwrap();
    let server = table.server(|| ());
    let executed = Arc::new(AtomicUsize::new(0));
    for token in 0..10 {
        let mut client = table.client();
        let count = executed.clone();
        client
            .submit_execute(token, token, move |entry| {
                entry.insert(b"value").unwrap();
                count.fetch_add(1, Relaxed)
            })
            .unwrap();
        client.submit(0, CacheRequest::Get(token.into())).unwrap();
        client
            .submit(0, CacheRequest::Insert(token.into(), &[1; 100]))
            .unwrap();
    }
    drop(server);
    assert_eq!(executed.load(Relaxed), 10);
    // Values that were not copied are not there, and take no memory.
    assert_eq!(table.stats().used_bytes, 10 * 128);
}

#[test]
fn a_batch_replies_to_every_request_in_the_order_of_each_key() {
    both(|table| {
        let mut client = table.client();
        client.submit(77, CacheRequest::Get(1000.into())).unwrap();
        let batch: Vec<CacheRequest<'_>> = (0..100u64)
            .flat_map(|key| {
                [
                    CacheRequest::Get(key.into()),
                    CacheRequest::Insert(key.into(), b"first"),
                    CacheRequest::Insert(key.into(), b"second"),
                    CacheRequest::Get(key.into()),
                    CacheRequest::Remove(key.into()),
                    CacheRequest::Get(key.into()),
                ]
            })
            .collect();
        let mut seen = vec![0; batch.len()];
        client.execute_batch(&batch, |index, reply| {
            seen[index] += 1;
            match (index % 6, reply) {
                (0 | 5, Reply::Missing) | (4, Reply::Removed(true)) => {}
                (1 | 2, Reply::Inserted(result)) => assert_eq!(result, Ok(())),
                (3, Reply::Found(value)) => assert_eq!(value, b"second"),
                other => panic!("{other:?}"),
            }
        });
        assert!(seen.iter().all(|&count| count == 1));
        // A panic ends the batch; what was submitted is executed.
        let stopped = catch_unwind(AssertUnwindSafe(|| {
            client.execute_batch(&batch[..6], |_, _| expected_panic());
        }));
        assert!(stopped.is_err());
        assert_eq!(client.outstanding(), 1);
        assert_eq!(client.poll(|token, _| assert_eq!(token, 77)), 1);
        assert_eq!(client.outstanding(), 0);
    });
}
