//! `CpHash` from outside: clients and servers that come, go and panic, and hostile use.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, DefaultHasher, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, mpsc};

use corewise_cphash::{
    Client, Colocated, Config, ConfigError, CpHash, Eviction, Full, InsertError, Key, PinPolicy,
    Replace, Reply, Request,
};

/// A small pseudo-random sequence.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 20) % bound
    }
}

fn config() -> Config {
    Config::new(400_000).partitions(4).pipeline(64)
}

/// Submits, and polls if the client is full.
fn submit<S: std::hash::BuildHasher>(
    client: &mut Client<S>,
    token: u64,
    request: Request<'_>,
    mut deliver: impl FnMut(u64, Reply<'_>),
) {
    while client.submit(token, request) == Err(Full) {
        if client.poll(&mut deliver) == 0 {
            std::thread::yield_now();
        }
    }
}

fn settle<S: std::hash::BuildHasher>(
    client: &mut Client<S>,
    mut deliver: impl FnMut(u64, Reply<'_>),
) {
    while client.outstanding() > 0 {
        if client.poll(&mut deliver) == 0 {
            std::thread::yield_now();
        }
    }
}

/// With and without server threads.
fn both(test: impl Fn(&mut CpHash)) {
    for servers in [0, 2] {
        test(&mut CpHash::new(&config(), servers).unwrap());
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
    both(|table| {
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
        for token in 0..20_000 {
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
                    (Request::Insert(name, &value), None)
                }
                1 => {
                    let removed = model.remove(&key).map(|_| b"removed".to_vec());
                    (Request::Remove(name), removed)
                }
                _ => (Request::Get(name), model.get(&key).cloned()),
            };
            expected.insert(token, outcome);
            submit(&mut client, token, request, &mut keep);
        }
        settle(&mut client, &mut keep);
        assert_eq!(replies, expected);
    });
}

/// All keys have one ID, so every second lookup finds the wrong element first.
#[test]
fn keys_with_one_id_are_kept_apart() {
    #[derive(Default)]
    struct Zero;
    impl Hasher for Zero {
        fn finish(&self) -> u64 {
            3
        }
        fn write(&mut self, _: &[u8]) {}
    }
    let hasher = BuildHasherDefault::<Zero>::default();
    for servers in [0, 1] {
        let table = CpHash::with_hasher(&config(), servers, hasher.clone()).unwrap();
        let mut client = table.client();
        let names: Vec<String> = (0..20).map(|number| number.to_string()).collect();
        for name in &names {
            submit(
                &mut client,
                0,
                Request::Insert((&**name).into(), name.as_bytes()),
                |_, _| (),
            );
        }
        settle(&mut client, |_, _| ());
        for (token, name) in (0..).zip(&names) {
            assert_eq!(
                client.get(&**name, <[u8]>::to_vec),
                Some(name.as_bytes().to_vec())
            );
            client
                .submit(token, Request::Get((&**name).into()))
                .unwrap();
        }
        let mut found = 0;
        settle(&mut client, |token, reply| {
            let wanted = names[token as usize].as_bytes();
            assert!(matches!(reply, Reply::Found(value) if value == wanted));
            found += 1;
        });
        assert_eq!(found, names.len());
        assert_eq!(client.get("20", |_| ()), None);
        assert!(client.remove("7"));
        assert_eq!(client.get("7", |_| ()), None);
        assert!(client.get("8", |_| ()).is_some());
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
                    0 => Request::Insert(key, &value),
                    1 => Request::Get(key),
                    _ => Request::Remove(key),
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
                        panic!("expected");
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
            panic!("expected");
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
                panic!("expected");
            })
        }));
        assert_eq!(failed.unwrap_err().downcast_ref(), Some(&"expected"));
        client
            .submit_execute(5, 1, |_| -> u8 { panic!("expected") })
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
        // So does a panic while an outcome is delivered.
        client.submit(1, Request::Get(1.into())).unwrap();
        client.submit(2, Request::Get(1.into())).unwrap();
        let mut seen = 0;
        while seen < 2 {
            let poll = AssertUnwindSafe(|| {
                client.poll(|_, _| {
                    seen += 1;
                    panic!("expected");
                })
            });
            let _ = catch_unwind(poll);
        }
        assert_eq!(client.outstanding(), 0);
        assert!(client.remove(1));
    });
}

/// Panics when it is dropped, with such a payload again.
struct DropPanicsForever;

impl Drop for DropPanicsForever {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            std::panic::panic_any(DropPanicsForever);
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
                    std::panic::panic_any(DropPanicsForever)
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

/// Guarantee 5: the test would not end if a wake-up were lost.
#[test]
fn sleeping_servers_are_woken() {
    let table = CpHash::new(&config(), 2).unwrap();
    let mut client = table.client();
    for round in 0..200 {
        client.insert(round, b"value").unwrap();
        if round % 10 == 0 {
            // Long enough for servers to fall asleep; what happens if they do not is the same.
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        client.submit(round, Request::Get(round.into())).unwrap();
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
/// and the budget is kept.
#[test]
fn everything_comes_and_goes() {
    for (eviction, replace) in [
        (Eviction::Lru, Replace::WhenReady),
        (Eviction::Random, Replace::AtAllocation),
    ] {
        let config = Config::new(100_000).partitions(5).pipeline(64);
        let config = config.eviction(eviction).replace(replace);
        let mut table = CpHash::new(&config, 1).unwrap();
        let stop = AtomicBool::new(false);
        for round in 0..12 {
            table.set_server_threads(round % 4).unwrap();
            let (table, stop) = (&table, &stop);
            stop.store(false, Relaxed);
            std::thread::scope(|scope| {
                let polled = scope.spawn(move || come_and_go(table, stop));
                let clients: Vec<_> = (1..3)
                    .map(|seed| {
                        scope.spawn(move || use_for_a_while(table, seed + round as u64 * 5))
                    })
                    .collect();
                clients
                    .into_iter()
                    .for_each(|client| client.join().unwrap());
                stop.store(true, Relaxed);
                polled.join().unwrap();
            });
            let stats = table.stats();
            assert!(stats.held_bytes <= stats.budget_bytes, "{stats:?}");
        }
    }
}

/// Polls a server for a short time, drops it, and starts again.
fn come_and_go(table: &CpHash, stop: &AtomicBool) {
    let mut random = Random(99);
    while !stop.load(Relaxed) {
        let this = std::thread::current();
        let mut server = table.server(move || this.unpark());
        let turns = random.below(300);
        let leave = AssertUnwindSafe(|| {
            for _ in 0..turns {
                if server.poll() == 0 && server.may_sleep() {
                    std::thread::park_timeout(std::time::Duration::from_micros(50));
                }
            }
            let _server = server;
            assert!(turns.is_multiple_of(2), "expected");
        });
        let _ = catch_unwind(leave);
    }
}

fn use_for_a_while(table: &CpHash, seed: u64) {
    let mut random = Random(seed);
    for _ in 0..6 {
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
            for step in 0..1500 {
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
                    0..4 => submit(&mut client, token, Request::Insert(name, &value), check),
                    4 => submit(&mut client, token, Request::Remove(name), check),
                    5 => {
                        let touch = move |entry: &mut corewise_cphash::Entry<'_>| {
                            let _ = entry.insert(&value);
                        };
                        let _ = client.submit_execute(token, name, touch);
                    }
                    6 if step % 20 == 0 => {
                        client.get(name, |value| check(token, Reply::Found(value)));
                    }
                    _ => submit(&mut client, token, Request::Get(name), check),
                }
            }
            let _client = client;
            assert!(random.below(2) == 0, "expected");
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
fn pipelines_beyond_the_limits_are_refused() {
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
        let coming = scope.spawn(|| come_and_go(&table, &stop));
        let loops: Vec<_> = (0..2)
            .map(|seed| {
                let table = &table;
                scope.spawn(move || run_event_loop(table, seed))
            })
            .collect();
        loops.into_iter().for_each(|thread| thread.join().unwrap());
        stop.store(true, Relaxed);
        coming.join().unwrap();
    });
    let stats = table.stats();
    assert!(stats.held_bytes <= stats.budget_bytes);
    // Alone, a loop executes everything itself.
    let mut alone = table.colocated(|| ());
    assert_eq!(alone.partitions(), 7);
    (0..50).for_each(|key| alone.submit(key, Request::Remove(key.into())).unwrap());
    assert_eq!(alone.outstanding(), 50);
    assert_eq!(
        alone.poll(|_, reply| assert!(matches!(reply, Reply::Removed(_)))),
        50
    );
    assert!(alone.may_sleep());
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
    for token in 0..15_000u64 {
        let key = seed * 1000 + random.below(100);
        loop {
            let submitted = match random.below(5) {
                0 => {
                    let mut value = vec![0; 8 + random.below(100) as usize];
                    value[..8].copy_from_slice(&token.to_le_bytes());
                    let result = event_loop.submit(token, Request::Insert(key.into(), &value));
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
                    let result = event_loop.submit(token, Request::Remove(key.into()));
                    result.map(|()| {
                        let _ = model.remove(&key);
                    })
                }
                _ => {
                    let result = event_loop.submit(token, Request::Get(key.into()));
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

/// Large values under few keys, so that partitions differ in what they need. How much depends on
/// the seed of the table, so there are several.
#[test]
fn memory_moves_to_the_partition_that_needs_it() {
    let is_moved = (0..100).any(|_| {
        let config = Config::new(400_000).partitions(4).pipeline(64);
        let mut table = CpHash::new(&config.moving_budgets(true), 1).unwrap();
        let mut client = table.client();
        let mut random = Random(3);
        for step in 0..1500u64 {
            let key = random.below(30);
            let value = vec![1; if key < 25 { 20_000 } else { 10 }];
            submit(
                &mut client,
                step,
                Request::Insert(key.into(), &value),
                |_, _| (),
            );
        }
        settle(&mut client, |_, _| ());
        // Without servers nothing moves, so the numbers belong together.
        table.set_server_threads(0).unwrap();
        let stats = table.stats();
        assert!(stats.budget_bytes <= 400_000, "{stats:?}");
        assert!(stats.held_bytes <= 400_000, "{stats:?}");
        let budgets: Vec<u64> = table
            .partition_stats()
            .map(|stats| stats.budget_bytes)
            .collect();
        assert!(
            budgets
                .iter()
                .all(|bytes| (50_000..=200_000).contains(bytes))
        );
        table.set_server_threads(1).unwrap();
        table.set_budget_bytes(200_000).unwrap();
        while table.stats().held_bytes > 200_000 {
            std::thread::yield_now();
        }
        budgets.iter().any(|bytes| *bytes > 100_000)
    });
    assert!(is_moved);
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
            Request::Insert((key % 100).into(), b"value"),
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

#[test]
fn servers_and_clients_have_their_places() {
    for policy in [PinPolicy::SmtPair, PinPolicy::Compact, PinPolicy::Balanced] {
        let table = CpHash::new(&config().placement(policy), 1).unwrap();
        let mut client = table.client();
        client.insert(1, b"value").unwrap();
        assert!(
            (0..3)
                .all(|number| table.client_cpu(number).is_some() || cfg!(not(target_os = "linux")))
        );
    }
    assert_eq!(CpHash::new(&config(), 0).unwrap().client_cpu(0), None);
}
