//! What each operation does, on one thread.

mod common;

use common::{Cache, Collect, NOW, Seen, incr, later, store};
use corewise_cache::engines::locked::{Config, Eviction, Locked, WINDOW};
use corewise_cache::{Engine, Session};
use corewise_ops::{
    Absence, Arith, Deadline, Delete, Get, ItemFlags, Op, Store, StoreMode, Verb, Vivify,
};
use std::sync::Arc;

const ABSENT: Seen = Seen::Missing(Absence::Unknown);

#[test]
fn a_value_comes_back_as_it_was_stored() {
    let mut cache = Cache::small();
    assert_eq!(cache.get(b"k"), ABSENT);
    let stored = cache.store(
        b"k",
        Store {
            client_flags: 9,
            ..store(StoreMode::Set, b"v")
        },
    );
    let Seen::Found {
        value,
        client_flags,
        cas,
        deadline,
        flags,
    } = cache.get(b"k")
    else {
        panic!("not found")
    };
    assert_eq!((value, client_flags, cas), (b"v".to_vec(), 9, stored.cas()));
    assert_eq!((deadline, flags), (Deadline::NEVER, ItemFlags::NONE));
    assert!(cache.get(b"k").flags().contains(ItemFlags::FETCHED));
}

#[test]
fn add_stores_only_what_is_absent_and_replace_only_what_is_present() {
    let mut cache = Cache::small();
    assert_eq!(
        cache.store(b"k", store(StoreMode::Replace, b"1")),
        Seen::NotStored
    );
    assert_eq!(
        cache.store(b"k", store(StoreMode::Add, b"2")).value(),
        Some(&b"2"[..])
    );
    assert_eq!(
        cache.store(b"k", store(StoreMode::Add, b"3")),
        Seen::NotStored
    );
    assert_eq!(
        cache.store(b"k", store(StoreMode::Replace, b"4")).value(),
        Some(&b"4"[..])
    );
}

#[test]
fn append_and_prepend_keep_flags_and_deadline() {
    let mut cache = Cache::small();
    assert_eq!(
        cache.store(b"k", store(StoreMode::Append, b"x")),
        Seen::NotStored
    );
    let deadline = Deadline::after_ms(NOW, 60_000);
    cache.store(
        b"k",
        Store {
            client_flags: 5,
            deadline,
            ..store(StoreMode::Set, b"b")
        },
    );
    cache.store(
        b"k",
        Store {
            client_flags: 6,
            ..store(StoreMode::Append, b"c")
        },
    );
    cache.store(b"k", store(StoreMode::Prepend, b"a"));
    let Seen::Found {
        value,
        client_flags,
        deadline: now,
        ..
    } = cache.get(b"k")
    else {
        panic!("not found")
    };
    assert_eq!((value, client_flags, now), (b"abc".to_vec(), 5, deadline));
    let vivified = Store {
        vivify: Some(Deadline::NEVER),
        ..store(StoreMode::Append, b"new")
    };
    assert_eq!(cache.store(b"absent", vivified).value(), Some(&b"new"[..]));
}

#[test]
fn compare_and_swap_stores_only_over_the_value_that_was_read() {
    let mut cache = Cache::small();
    let with = |cas| Store {
        compare_cas: Some(cas),
        ..store(StoreMode::Set, b"w")
    };
    assert_eq!(cache.store(b"k", with(1)), ABSENT);
    let first = cache.set(b"k", b"v").cas();
    assert_eq!(cache.store(b"k", with(first + 1)), Seen::Exists);
    let second = cache.store(b"k", with(first)).cas();
    assert!(second > first);
    assert_eq!(cache.store(b"k", with(first)), Seen::Exists);
    let given = Store {
        new_cas: Some(77),
        ..with(second)
    };
    assert_eq!(cache.store(b"k", given).cas(), 77);
}

#[test]
fn an_older_cas_with_stale_if_older_stores_a_stale_item() {
    let mut cache = Cache::small();
    let old = cache.set(b"k", b"1").cas();
    cache.set(b"k", b"2");
    let stale = Store {
        compare_cas: Some(old),
        stale_if_older: true,
        ..store(StoreMode::Set, b"3")
    };
    assert_eq!(cache.store(b"k", stale).value(), Some(&b"3"[..]));
    assert!(cache.get(b"k").flags().contains(ItemFlags::STALE));
}

#[test]
fn an_item_dies_at_its_deadline_and_not_before() {
    let mut cache = Cache::small();
    let deadline = Deadline::after_ms(NOW, 1_000);
    cache.store(
        b"k",
        Store {
            deadline,
            ..store(StoreMode::Set, b"v")
        },
    );
    cache.now = later(999);
    assert_eq!(cache.get(b"k").value(), Some(&b"v"[..]));
    cache.now = later(1_000);
    assert_eq!(cache.get(b"k"), Seen::Missing(Absence::Expired));
    assert_eq!(cache.get(b"k"), ABSENT);
    assert_eq!(cache.engine.stats().items, 0);
}

#[test]
fn a_touch_replaces_the_deadline() {
    let mut cache = Cache::small();
    cache.set(b"k", b"v");
    let touch = Some(Deadline::after_ms(NOW, 500));
    cache.run(
        b"k",
        Verb::Get(Get {
            touch,
            ..Get::default()
        }),
    );
    cache.now = later(500);
    assert_eq!(cache.get(b"k"), Seen::Missing(Absence::Expired));
}

#[test]
fn exactly_one_reader_wins_a_missing_stale_or_expiring_item() {
    let mut cache = Cache::small();
    let vivify = Some(Vivify {
        deadline: Deadline::after_ms(NOW, 30_000),
        new_cas: None,
    });
    let get = Verb::Get(Get {
        vivify,
        claim_stale: true,
        ..Get::default()
    });
    assert!(cache.run(b"k", get).flags().contains(ItemFlags::WON));
    assert!(cache.run(b"k", get).flags().contains(ItemFlags::WIN_SENT));

    cache.set(b"k", b"v");
    cache.delete(
        b"k",
        Delete {
            mark_stale: true,
            ..Delete::default()
        },
    );
    assert!(
        !cache.get(b"k").flags().contains(ItemFlags::WON),
        "a plain read claims nothing"
    );
    let won = cache.run(b"k", get).flags();
    assert!(won.contains(ItemFlags::WON.with(ItemFlags::STALE)));
    assert!(cache.run(b"k", get).flags().contains(ItemFlags::WIN_SENT));

    let deadline = Deadline::after_ms(NOW, 5_000);
    cache.store(
        b"e",
        Store {
            deadline,
            ..store(StoreMode::Set, b"v")
        },
    );
    let early = Verb::Get(Get {
        recache_below_ms: Some(1_000),
        ..Get::default()
    });
    let late = Verb::Get(Get {
        recache_below_ms: Some(9_000),
        ..Get::default()
    });
    assert_eq!(cache.run(b"e", early).flags(), ItemFlags::NONE);
    assert!(cache.run(b"e", late).flags().contains(ItemFlags::WON));
    assert!(cache.run(b"e", late).flags().contains(ItemFlags::WIN_SENT));
}

#[test]
fn a_delete_may_require_a_cas_value_and_may_keep_the_item() {
    let mut cache = Cache::small();
    assert_eq!(cache.delete(b"k", Delete::default()), ABSENT);
    let cas = cache
        .store(
            b"k",
            Store {
                client_flags: 3,
                ..store(StoreMode::Set, b"v")
            },
        )
        .cas();
    let other = Delete {
        compare_cas: Some(cas + 1),
        ..Delete::default()
    };
    assert_eq!(cache.delete(b"k", other), Seen::Exists);
    let emptied = cache.delete(
        b"k",
        Delete {
            drop_value: true,
            ..Delete::default()
        },
    );
    assert_eq!(emptied.value(), Some(&b""[..]));
    assert_eq!(cache.delete(b"k", Delete::default()), Seen::Deleted);
    assert_eq!(cache.get(b"k"), ABSENT);
}

#[test]
fn counters_wrap_stop_pad_and_refuse_text() {
    let mut cache = Cache::small();
    let decr = |delta| Arith {
        decrement: true,
        ..incr(delta)
    };
    assert_eq!(cache.arith(b"n", incr(1)), ABSENT);
    let vivify = Some((10, Deadline::NEVER));
    assert_eq!(
        cache.arith(b"n", Arith { vivify, ..incr(1) }),
        Seen::Counter {
            value: 10,
            text: b"10".to_vec()
        }
    );
    assert_eq!(
        cache.arith(b"n", decr(1)),
        Seen::Counter {
            value: 9,
            text: b"9 ".to_vec()
        }
    );
    assert_eq!(
        cache.arith(b"n", decr(99)),
        Seen::Counter {
            value: 0,
            text: b"0 ".to_vec()
        }
    );
    cache.set(b"n", b"18446744073709551615");
    let Seen::Counter { value, text } = cache.arith(b"n", incr(2)) else {
        panic!("no counter")
    };
    assert_eq!((value, text.len()), (1, 20));
    cache.set(b"n", b"text");
    assert_eq!(cache.arith(b"n", incr(1)), Seen::NonNumeric);
}

#[test]
fn a_flush_hides_everything_stored_before_it_and_nothing_after() {
    let mut cache = Cache::small();
    for i in 0u32..5_000 {
        cache.set(&i.to_le_bytes(), b"v");
    }
    cache.engine.flush_all(Deadline::PAST, NOW);
    assert_eq!(cache.get(&7u32.to_le_bytes()), ABSENT);
    cache.set(b"new", b"v");
    let before = cache.engine.stats();
    assert_eq!(before.items, 1);
    assert!(before.dead_bytes > 0);
    let mut steps = 0;
    while cache.session.maintain(cache.now) {
        steps += 1;
        assert!(steps < 1_000, "maintenance ends");
    }
    assert!(steps > 5, "maintenance is done in steps");
    assert_eq!(cache.engine.stats().dead_bytes, 0);
    assert_eq!(cache.get(b"new").value(), Some(&b"v"[..]));
}

#[test]
fn a_delayed_flush_comes_with_the_first_operation_after_its_time() {
    let mut cache = Cache::small();
    cache.set(b"k", b"v");
    cache.engine.flush_all(Deadline::after_ms(NOW, 1_000), NOW);
    assert_eq!(cache.get(b"k").value(), Some(&b"v"[..]));
    cache.now = later(1_000);
    assert_eq!(cache.get(b"k"), ABSENT);
    cache.set(b"k", b"w");
    assert_eq!(cache.get(b"k").value(), Some(&b"w"[..]), "it comes once");
}

#[test]
fn the_least_recently_used_items_are_evicted_and_the_budget_holds() {
    let budget = 256 << 10;
    let mut cache = Cache::tiny(budget, Eviction::Lru);
    assert_eq!(cache.engine.stats().shards, 1);
    for i in 0u64..20_000 {
        let size = (i * 37 % 900) as usize;
        cache.set(&i.to_le_bytes(), &vec![b'x'; size]);
    }
    let stats = cache.engine.stats();
    assert!(stats.evictions > 10_000);
    assert!(stats.bytes <= budget + stats.table_bytes, "{stats:?}");
    assert_eq!(cache.get(&0u64.to_le_bytes()), ABSENT);
    assert!(cache.get(&19_999u64.to_le_bytes()).value().is_some());
}

#[test]
fn a_read_item_outlives_its_unread_contemporaries() {
    let mut cache = Cache::tiny(256 << 10, Eviction::Lru);
    cache.set(b"kept", b"v");
    for i in 0u64..20_000 {
        cache.set(&i.to_le_bytes(), &[b'x'; 100]);
        // Time passes, so that a read is later than the move before it.
        cache.now = later(i);
        assert!(cache.get(b"kept").value().is_some(), "evicted at {i}");
    }
    assert!(cache.engine.stats().evictions > 10_000);
}

#[test]
fn without_eviction_stores_are_refused_and_set_removes_what_it_could_not_overwrite() {
    let mut cache = Cache::tiny(64 << 10, Eviction::Refuse);
    let mut refused = 0;
    for i in 0u64..2_000 {
        refused += u32::from(cache.set(&i.to_le_bytes(), &[b'x'; 100]) == Seen::OutOfMemory);
    }
    assert!(refused > 1_000);
    let stats = cache.engine.stats();
    assert_eq!(stats.evictions, 0);
    assert_eq!(stats.out_of_memory, u64::from(refused));
    let first = 0u64.to_le_bytes();
    assert!(cache.get(&first).value().is_some());
    assert_eq!(cache.set(&first, &[b'y'; 3_000]), Seen::OutOfMemory);
    assert_eq!(cache.get(&first), ABSENT);
}

#[test]
fn an_item_over_the_limit_is_refused() {
    let mut cache = Cache::new(Config {
        max_item_bytes: 1_000,
        ..Config::default()
    });
    cache.set(b"k", b"v");
    assert_eq!(cache.set(b"k", &[0; 1_000]), Seen::TooLarge);
    assert_eq!(cache.get(b"k"), ABSENT);
    cache.set(b"k", &[0; 900]);
    assert_eq!(
        cache.store(b"k", store(StoreMode::Append, &[1; 500])),
        Seen::TooLarge
    );
    assert_eq!(
        cache.get(b"k").value(),
        Some(&[0; 900][..]),
        "an append leaves the item"
    );
}

#[test]
fn a_batch_longer_than_the_window_completes_in_order() {
    let engine = Arc::new(Locked::new(Config::default()));
    let mut session = engine.session();
    let keys: Vec<[u8; 4]> = (0..5 * WINDOW as u32).map(u32::to_le_bytes).collect();
    let mut ops = Vec::new();
    for key in &keys {
        let verb = Verb::Store(store(StoreMode::Set, key));
        ops.push(Op {
            token: ops.len() as u32,
            key,
            verb,
        });
        ops.push(Op {
            token: ops.len() as u32,
            key,
            verb: Verb::Get(Get::default()),
        });
    }
    let mut sink = Collect::new();
    assert_eq!(session.submit(NOW, &ops, &mut sink), ops.len());
    for (index, (token, seen)) in sink.seen.iter().enumerate() {
        assert_eq!(*token as usize, index);
        assert_eq!(seen.value(), Some(&keys[index / 2][..]));
    }
}

#[test]
fn a_paused_batch_tells_how_far_it_came() {
    let engine = Arc::new(Locked::new(Config::default()));
    let mut session = engine.session();
    let op = |token| Op {
        token,
        key: b"n",
        verb: Verb::Arith(Arith {
            vivify: Some((0, Deadline::NEVER)),
            ..incr(1)
        }),
    };
    let ops: Vec<Op<'_>> = (0..100).map(op).collect();
    let mut sink = Collect {
        pause_after: 40,
        ..Collect::new()
    };
    assert_eq!(session.submit(NOW, &ops, &mut sink), 40);
    sink.pause_after = usize::MAX;
    assert_eq!(session.submit(NOW, &ops[40..], &mut sink), 60);
    let last = &sink.seen[99].1;
    assert!(matches!(last, Seen::Counter { value: 99, .. }), "{last:?}");
}

#[test]
fn statistics_add_up() {
    let mut cache = Cache::small();
    for i in 0u64..1_000 {
        cache.set(&i.to_le_bytes(), &vec![b'x'; (i % 500) as usize]);
    }
    let (stats, classes) = (cache.engine.stats(), cache.engine.size_classes());
    assert_eq!(stats.items, 1_000);
    assert_eq!(classes.iter().map(|class| class.items).sum::<u64>(), 1_000);
    let bytes: u64 = classes.iter().map(|class| class.bytes).sum();
    assert_eq!(bytes, stats.bytes - stats.table_bytes);
    let mut shown = 0;
    for class in &classes {
        cache.engine.sample(class.class, 100_000, NOW, &mut |item| {
            assert!(item.footprint as u64 <= class.max_bytes);
            shown += 1;
        });
    }
    assert!(shown > 500, "{shown}");
}
