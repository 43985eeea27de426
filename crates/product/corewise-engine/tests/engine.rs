//! The effect of each operation, on one thread, in every engine.

use crate::common;

use common::{
    Cache, Collect, NOW, Seen, Setup, TestEngine, client_flags, incr, later, stamped, store,
};
use corewise_engine::Session;
use corewise_ops::database::stored;
use corewise_ops::{
    Absence, Arith, Deadline, Delete, Get, ItemFlags, Op, Store, StoreMode, Verb, Vivify,
};
use std::collections::HashSet;

for_every_engine! {
    a_value_comes_back_as_it_was_stored
    keys_and_values_of_every_length_come_back_whole
    add_stores_only_what_is_absent_and_replace_only_what_is_present
    append_and_prepend_keep_flags_and_deadline
    compare_and_swap_stores_only_over_the_value_that_was_read
    a_key_is_never_given_the_same_cas_value_again
    an_older_cas_with_stale_if_older_stores_a_stale_item
    callers_may_bring_their_own_cas_values
    an_item_dies_at_its_deadline_and_not_before
    a_touch_replaces_the_deadline
    a_touch_and_a_win_token_leave_value_flags_and_cas_as_they_are
    exactly_one_reader_wins_a_missing_stale_or_expiring_item
    a_delete_may_require_a_cas_value_and_may_keep_the_item
    a_delete_that_keeps_the_item_reports_the_rest_of_it
    a_quiet_read_leaves_no_trace
    counters_wrap_stop_pad_and_refuse_text
    a_counter_keeps_what_is_not_its_value
    a_flush_hides_everything_stored_before_it_and_nothing_after
    a_delayed_flush_comes_with_the_first_operation_after_its_time
    a_later_flush_replaces_one_that_has_not_come
    items_are_counted_by_the_databases_of_their_keys
    an_item_over_the_limit_is_refused
    a_long_batch_completes_in_order
    operations_on_one_key_see_those_before_them_in_their_batch
    a_paused_batch_tells_how_far_it_came
}

fn a_value_comes_back_as_it_was_stored<E: TestEngine>() {
    let mut cache = Cache::<E>::roomy();
    assert!(cache.get(b"k").is_absent());
    let stored = cache.store(b"k", store(StoreMode::Set, b"v").with_flags(9));
    let seen = cache.get(b"k");
    assert_eq!((seen.value(), client_flags(&seen)), (Some(&b"v"[..]), 9));
    assert_eq!(
        (seen.cas(), seen.deadline()),
        (stored.cas(), Deadline::NEVER)
    );
    assert_eq!(seen.flags(), ItemFlags::NONE);
    assert!(cache.get(b"k").flags().contains(ItemFlags::FETCHED));
}

/// A key and a value of these lengths. No other lengths give the same pair, except for the
/// shortest.
fn pair(key_length: usize, value_length: usize) -> (Vec<u8>, Vec<u8>) {
    let stamp = (key_length << 32 | value_length) as u64;
    let bytes = |from: u64, length| stamped(stamp ^ from, length)[..length].to_vec();
    (bytes(u64::MAX, key_length), bytes(0, value_length))
}

/// Includes lengths near which an item's size passes a power of two; the engine adds bytes that the
/// test does not know.
fn keys_and_values_of_every_length_come_back_whole<E: TestEngine>() {
    let mut cache = Cache::<E>::roomy();
    let near = |power: usize| (1 << power) - 100..=(1 << power) + 10;
    let values = (0..=2_000).chain((11..=15).flat_map(near));
    let values = values.chain((16..20).map(|power| 1 << power));
    let lengths: Vec<_> = values.map(|length| (8 + length % 243, length)).collect();
    for &(key_length, value_length) in &lengths {
        let (key, value) = pair(key_length, value_length);
        let request = store(StoreMode::Set, &value).with_flags(value_length as u32 % 3);
        assert_eq!(cache.store(&key, request).value(), Some(&value[..]));
    }
    for &(key_length, value_length) in &lengths {
        let (key, expected) = pair(key_length, value_length);
        match cache.get(&key) {
            Seen::Found {
                value,
                client_flags,
                ..
            } => assert_eq!((value, client_flags), (expected, value_length as u32 % 3)),
            other => panic!("{other:?} for a value of {value_length} bytes"),
        }
    }
    for length in (1..=8).chain(245..=260) {
        let (key, value) = pair(length, length);
        cache.set(&key, &value);
        assert_eq!(cache.get(&key).value(), Some(&value[..]));
    }
}

fn add_stores_only_what_is_absent_and_replace_only_what_is_present<E: TestEngine>() {
    let mut cache = Cache::<E>::roomy();
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

fn append_and_prepend_keep_flags_and_deadline<E: TestEngine>() {
    let mut cache = Cache::<E>::roomy();
    assert_eq!(
        cache.store(b"k", store(StoreMode::Append, b"x")),
        Seen::NotStored
    );
    let deadline = Deadline::after_ms(NOW, 60_000);
    cache.store(
        b"k",
        store(StoreMode::Set, b"b").with_flags(5).until(deadline),
    );
    cache.store(b"k", store(StoreMode::Append, b"c").with_flags(6));
    cache.store(b"k", store(StoreMode::Prepend, b"a"));
    let seen = cache.get(b"k");
    assert_eq!((seen.value(), client_flags(&seen)), (Some(&b"abc"[..]), 5));
    assert_eq!(seen.deadline(), deadline);
    let vivified = Store {
        vivify: Some(Deadline::NEVER),
        ..store(StoreMode::Append, b"new")
    };
    assert_eq!(cache.store(b"absent", vivified).value(), Some(&b"new"[..]));
}

fn compare_and_swap_stores_only_over_the_value_that_was_read<E: TestEngine>() {
    let mut cache = Cache::<E>::roomy();
    let with = |cas| store(StoreMode::Set, b"w").if_cas(cas);
    assert!(cache.store(b"k", with(1)).is_absent());
    let first = cache.set(b"k", b"v").cas();
    assert_eq!(cache.store(b"k", with(first + 1)), Seen::Exists);
    let second = cache.store(b"k", with(first)).cas();
    assert!(second > first);
    assert_eq!(cache.store(b"k", with(first)), Seen::Exists);
    let given = with(second).given_cas(77);
    assert_eq!(cache.store(b"k", given).cas(), 77);
}

/// Otherwise a client could overwrite an item that it has never seen.
fn a_key_is_never_given_the_same_cas_value_again<E: TestEngine>() {
    let mut cache = Cache::<E>::roomy();
    let mut given = HashSet::new();
    for round in 0..200u64 {
        let mut new = |cas| assert!(given.insert(cas), "{cas} again, in round {round}");
        new(cache.set(b"k", b"1").cas());
        new(cache.store(b"k", store(StoreMode::Append, b"2")).cas());
        cache.arith(b"k", incr(1));
        new(cache.get(b"k").cas());
        let stale = Delete::STALE;
        new(cache.delete(b"k", stale).cas());
        match round % 3 {
            0 => assert_eq!(cache.delete(b"k", Delete::default()), Seen::Deleted),
            1 => cache.engine.flush_all(Deadline::PAST, cache.now),
            _ => {
                let touch = Some(Deadline::after_ms(cache.now, 1));
                let get = Get {
                    touch,
                    ..Get::default()
                };
                cache.run(b"k", Verb::Get(get));
                cache.now = later(round);
            }
        }
    }
}

fn an_older_cas_with_stale_if_older_stores_a_stale_item<E: TestEngine>() {
    let mut cache = Cache::<E>::roomy();
    let deadline = Deadline::after_ms(NOW, 60_000);
    let with = |deadline, compare_cas, value| Store {
        deadline,
        compare_cas,
        stale_if_older: true,
        ..store(StoreMode::Set, value)
    };
    let old = cache.set(b"k", b"1").cas();
    cache.store(b"k", with(deadline, None, b"2"));
    let claim = Verb::Get(Get {
        claim_stale: true,
        ..Get::default()
    });
    for (value, flag) in [(b"3", ItemFlags::WON), (b"4", ItemFlags::WIN_SENT)] {
        let stale = with(Deadline::NEVER, Some(old), value);
        assert_eq!(cache.store(b"k", stale).value(), Some(&value[..]));
        let seen = cache.run(b"k", claim);
        // A client that was sent to refresh the item still is, and the item lives no longer than
        // before.
        assert!(seen.flags().contains(ItemFlags::STALE.with(flag)));
        assert_eq!(seen.deadline(), deadline);
    }
    let newer = cache.get(b"k").cas() + 1;
    let refused = with(deadline, Some(newer), b"5");
    assert_eq!(cache.store(b"k", refused), Seen::Exists);
    cache.set(b"k", b"6");
    assert_eq!(cache.get(b"k").flags(), ItemFlags::NONE);
}

fn callers_may_bring_their_own_cas_values<E: TestEngine>() {
    let mut cache = Cache::<E>::roomy();
    let new_cas = Some(1_000_000);
    let vivify = Vivify {
        deadline: Deadline::NEVER,
        new_cas,
    };
    let stored = |mode| Store {
        new_cas,
        ..store(mode, b"1")
    };
    let deleted = |mark_stale, drop_value| Delete {
        mark_stale,
        drop_value,
        new_cas,
        ..Delete::default()
    };
    let counted = Arith { new_cas, ..incr(1) };
    let first = Arith {
        vivify: Some((5, Deadline::NEVER)),
        ..counted
    };
    let absent = [
        Verb::Get(Get {
            vivify: Some(vivify),
            ..Get::default()
        }),
        Verb::Store(stored(StoreMode::Set)),
        Verb::Store(stored(StoreMode::Add)),
        Verb::Arith(first),
    ];
    let present = [
        Verb::Store(stored(StoreMode::Replace)),
        Verb::Store(stored(StoreMode::Append)),
        Verb::Delete(deleted(true, false)),
        Verb::Delete(deleted(false, true)),
        Verb::Arith(counted),
    ];
    for (before, verbs) in [(false, &absent[..]), (true, &present[..])] {
        for &verb in verbs {
            cache.delete(b"k", Delete::default());
            if before {
                cache.set(b"k", b"7");
            }
            cache.run(b"k", verb);
            assert_eq!(Some(cache.get(b"k").cas()), new_cas, "{verb:?}");
        }
    }
}

fn an_item_dies_at_its_deadline_and_not_before<E: TestEngine>() {
    let mut cache = Cache::<E>::roomy();
    let deadline = Deadline::after_ms(NOW, 1_000);
    let request = store(StoreMode::Set, b"v").until(deadline);
    cache.store(b"k", request);
    cache.now = later(999);
    assert_eq!(cache.get(b"k").value(), Some(&b"v"[..]));
    assert_eq!(cache.get(b"k").deadline(), deadline);
    cache.now = later(1_000);
    assert_eq!(cache.get(b"k"), Seen::Missing(Absence::Expired));
    assert!(cache.delete(b"k", Delete::default()).is_absent());
    for mode in [StoreMode::Replace, StoreMode::Append, StoreMode::Prepend] {
        assert_eq!(cache.store(b"k", store(mode, b"w")), Seen::NotStored);
    }
    assert!(cache.store(b"k", store(StoreMode::Add, b"w")).is_stored());
    assert_eq!(cache.get(b"k").value(), Some(&b"w"[..]));
    assert_eq!(cache.engine.stats().items, 1);
}

fn a_touch_replaces_the_deadline<E: TestEngine>() {
    let mut cache = Cache::<E>::roomy();
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

fn a_touch_and_a_win_token_leave_value_flags_and_cas_as_they_are<E: TestEngine>() {
    let mut cache = Cache::<E>::roomy();
    let request = store(StoreMode::Set, b"value")
        .with_flags(7)
        .until(Deadline::after_ms(NOW, 100));
    let stored = cache.store(b"k", request);
    let later = Deadline::after_ms(NOW, 100_000);
    for (touch, recache_below_ms) in [(None, Some(1_000)), (Some(later), None)] {
        let get = Get {
            touch,
            recache_below_ms,
            ..Get::default()
        };
        cache.run(b"k", Verb::Get(get));
        let seen = cache.get(b"k");
        assert_eq!(seen.value(), Some(&b"value"[..]));
        assert_eq!((client_flags(&seen), seen.cas()), (7, stored.cas()));
    }
    assert_eq!(cache.get(b"k").deadline(), later);
}

fn exactly_one_reader_wins_a_missing_stale_or_expiring_item<E: TestEngine>() {
    let mut cache = Cache::<E>::roomy();
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
    let stale = Delete::STALE;
    for _ in 0..2 {
        cache.delete(b"k", stale);
        assert!(
            !cache.get(b"k").flags().contains(ItemFlags::WON),
            "a plain read claims nothing"
        );
        let won = cache.run(b"k", get).flags();
        assert!(won.contains(ItemFlags::WON.with(ItemFlags::STALE)));
        assert!(cache.run(b"k", get).flags().contains(ItemFlags::WIN_SENT));
    }

    let deadline = Deadline::after_ms(NOW, 5_000);
    cache.store(b"e", store(StoreMode::Set, b"v").until(deadline));
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

fn a_delete_may_require_a_cas_value_and_may_keep_the_item<E: TestEngine>() {
    let mut cache = Cache::<E>::roomy();
    assert!(cache.delete(b"k", Delete::default()).is_absent());
    let cas = cache
        .store(b"k", store(StoreMode::Set, b"v").with_flags(3))
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
    assert!(cache.get(b"k").is_absent());
}

fn a_delete_that_keeps_the_item_reports_the_rest_of_it<E: TestEngine>() {
    let mut cache = Cache::<E>::roomy();
    let (old, new) = [30_000, 90_000]
        .map(|ms| Deadline::after_ms(NOW, ms))
        .into();
    for (mark_stale, drop_value) in [(true, false), (false, true), (true, true)] {
        let request = store(StoreMode::Set, b"value").with_flags(8).until(old);
        let before = cache.store(b"k", request).cas();
        let delete = Delete {
            mark_stale,
            drop_value,
            touch: Some(new),
            ..Delete::default()
        };
        cache.delete(b"k", delete);
        let seen = cache.get(b"k");
        let (kept, kept_flags) = if drop_value {
            (&b""[..], 0)
        } else {
            (&b"value"[..], 8)
        };
        assert_eq!(
            (seen.value(), client_flags(&seen)),
            (Some(kept), kept_flags)
        );
        assert_eq!(seen.deadline(), if mark_stale { new } else { old });
        assert_eq!(seen.flags().contains(ItemFlags::STALE), mark_stale);
        assert!(seen.cas() > before);
    }
}

fn a_quiet_read_leaves_no_trace<E: TestEngine>() {
    let mut cache = Cache::<E>::roomy();
    cache.set(b"k", b"v");
    let quiet = Verb::Get(Get::QUIET);
    for _ in 0..2 {
        assert_eq!(cache.run(b"k", quiet).flags(), ItemFlags::NONE);
    }
    cache.get(b"k");
    assert_eq!(cache.run(b"k", quiet).flags(), ItemFlags::FETCHED);
}

fn counters_wrap_stop_pad_and_refuse_text<E: TestEngine>() {
    let mut cache = Cache::<E>::roomy();
    let decr = |delta| Arith {
        decrement: true,
        ..incr(delta)
    };
    assert!(cache.arith(b"n", incr(1)).is_absent());
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

fn a_counter_keeps_what_is_not_its_value<E: TestEngine>() {
    let mut cache = Cache::<E>::roomy();
    let (soon, late) = (NOW.ms + 1_000, NOW.ms + 90_000);
    let request = store(StoreMode::Set, b"8")
        .with_flags(5)
        .until(Deadline::at_ms(soon));
    let mut cas = cache.store(b"n", request).cas();
    // The third value needs one more digit.
    let touches = [None, Some(Deadline::at_ms(late)), None, None];
    for (step, touch) in (9u64..).zip(touches) {
        let wrong = Some(cas + 1);
        let with = |compare_cas| Arith {
            compare_cas,
            touch,
            ..incr(1)
        };
        assert_eq!(cache.arith(b"n", with(wrong)), Seen::Exists);
        let seen = cache.arith(b"n", with(Some(cas)));
        assert!(
            matches!(seen, Seen::Counter { value, .. } if value == step),
            "{seen:?}"
        );
        let seen = cache.get(b"n");
        let text = step.to_string();
        assert_eq!(seen.value(), Some(text.as_bytes()));
        assert_eq!(client_flags(&seen), 5);
        let deadline = Deadline::at_ms(if step == 9 { soon } else { late });
        assert_eq!(seen.deadline(), deadline);
        assert!(seen.cas() > cas, "a counter's cas value grows");
        cas = seen.cas();
    }
}

fn a_flush_hides_everything_stored_before_it_and_nothing_after<E: TestEngine>() {
    let mut cache = Cache::<E>::roomy();
    let keys = || (0u32..5_000).map(u32::to_le_bytes);
    for key in keys() {
        cache.set(&key, b"v");
    }
    cache.engine.flush_all(Deadline::PAST, NOW);
    cache.set(b"new", b"v");
    assert!(keys().all(|key| cache.get(&key).is_absent()));
    assert_eq!(cache.engine.stats().items, 1);
    for mode in [StoreMode::Replace, StoreMode::Append] {
        let request = store(mode, b"w");
        assert_eq!(cache.store(&7u32.to_le_bytes(), request), Seen::NotStored);
    }
    assert!(cache.arith(&7u32.to_le_bytes(), incr(1)).is_absent());
    cache.maintain();
    assert_eq!(cache.engine.stats().dead_bytes, 0);
    assert_eq!(cache.get(b"new").value(), Some(&b"v"[..]));
    assert_eq!(cache.engine.stats().items, 1);
}

fn a_delayed_flush_comes_with_the_first_operation_after_its_time<E: TestEngine>() {
    let mut cache = Cache::<E>::roomy();
    cache.set(b"k", b"v");
    cache.engine.flush_all(Deadline::after_ms(NOW, 1_000), NOW);
    assert_eq!(cache.get(b"k").value(), Some(&b"v"[..]));
    cache.now = later(1_000);
    assert!(cache.get(b"k").is_absent());
    cache.set(b"k", b"w");
    cache.now = later(2_000);
    assert_eq!(cache.get(b"k").value(), Some(&b"w"[..]), "it comes once");
}

fn a_later_flush_replaces_one_that_has_not_come<E: TestEngine>() {
    let mut cache = Cache::<E>::roomy();
    cache.set(b"k", b"v");
    for ms in [1_000, 5_000] {
        let at = Deadline::after_ms(NOW, ms);
        cache.engine.flush_all(at, NOW);
    }
    cache.now = later(4_999);
    assert_eq!(cache.get(b"k").value(), Some(&b"v"[..]));
    cache.now = later(5_000);
    assert!(cache.get(b"k").is_absent());
}

fn an_item_over_the_limit_is_refused<E: TestEngine>() {
    let mut cache = Cache::<E>::new(Setup {
        max_item_bytes: 1_000,
        ..Setup::roomy()
    });
    cache.set(b"k", b"v");
    assert_eq!(cache.set(b"k", &[0; 1_000]), Seen::TooLarge);
    assert!(
        cache.get(b"k").is_absent(),
        "what was to be overwritten goes"
    );
    let cas = cache.set(b"k", &[0; 900]).cas();
    let large = [1; 1_000];
    let compared = store(StoreMode::Set, &large).if_cas(cas);
    for request in [
        store(StoreMode::Append, &large[..500]),
        store(StoreMode::Prepend, &large[..500]),
        store(StoreMode::Replace, &large),
        compared,
    ] {
        let mode = request.mode;
        assert_eq!(cache.store(b"k", request), Seen::TooLarge, "{mode:?}");
        assert_eq!(cache.get(b"k").value(), Some(&[0; 900][..]), "{mode:?}");
    }
    // One limit for all ways to store: 1,000 bytes with the key.
    let (largest, over) = ([2; 999], [2; 1_000]);
    for mode in [StoreMode::Append, StoreMode::Prepend] {
        assert!(cache.set(b"k", &[2; 900]).is_stored());
        assert_eq!(cache.store(b"k", store(mode, &over[..100])), Seen::TooLarge);
        assert!(cache.store(b"k", store(mode, &over[..99])).is_stored());
        assert_eq!(cache.get(b"k").value(), Some(&largest[..]));
        assert!(cache.set(b"k", &largest).is_stored());
        assert_eq!(cache.set(b"k", &over), Seen::TooLarge);
    }
}

fn a_long_batch_completes_in_order<E: TestEngine>() {
    let mut cache = Cache::<E>::roomy();
    let keys: Vec<[u8; 4]> = (0..400u32).map(u32::to_le_bytes).collect();
    let mut ops = Vec::new();
    for key in &keys {
        for verb in [
            Verb::Store(store(StoreMode::Set, key)),
            Verb::Get(Get::default()),
        ] {
            let token = ops.len() as u32;
            ops.push(Op::new(token, key, verb));
        }
    }
    let mut sink = Collect::new();
    assert_eq!(cache.session.submit(NOW, &ops, &mut sink), ops.len());
    for (index, (token, seen)) in sink.seen.iter().enumerate() {
        assert_eq!(*token as usize, index);
        assert_eq!(seen.value(), Some(&keys[index / 2][..]));
    }
}

fn operations_on_one_key_see_those_before_them_in_their_batch<E: TestEngine>() {
    let mut cache = Cache::<E>::roomy();
    let changes = [
        Verb::Store(store(StoreMode::Set, b"1")),
        Verb::Store(store(StoreMode::Append, b"2")),
        Verb::Arith(incr(3)),
        Verb::Delete(Delete::default()),
        Verb::Store(store(StoreMode::Replace, b"4")),
        Verb::Store(store(StoreMode::Add, b"5")),
    ];
    let held: [&[u8]; 6] = [b"1", b"12", b"15", b"", b"", b"5"];
    let verbs = changes.map(|change| [change, Verb::Get(Get::default())]);
    let op = |(token, &verb)| Op::new(token, b"k", verb);
    let ops: Vec<Op<'_>> = (0..).zip(verbs.as_flattened()).map(op).collect();
    let mut sink = Collect::new();
    assert_eq!(cache.session.submit(NOW, &ops, &mut sink), ops.len());
    for (step, expected) in held.into_iter().enumerate() {
        let seen = &sink.seen[2 * step + 1].1;
        assert_eq!(seen.value().unwrap_or_default(), expected, "step {step}");
    }
}

fn a_paused_batch_tells_how_far_it_came<E: TestEngine>() {
    let op = |token| {
        Op::new(
            token,
            b"n",
            Verb::Arith(Arith {
                vivify: Some((0, Deadline::NEVER)),
                ..incr(1)
            }),
        )
    };
    let ops: Vec<Op<'_>> = (0..100).map(op).collect();
    for first in [1, 31, 32, 33, 40, 64, 99] {
        let mut cache = Cache::<E>::roomy();
        let mut sink = Collect {
            pause_after: first,
            ..Collect::new()
        };
        assert_eq!(cache.session.submit(NOW, &ops, &mut sink), first);
        sink.pause_after = usize::MAX;
        let rest = cache.session.submit(NOW, &ops[first..], &mut sink);
        assert_eq!(rest, ops.len() - first);
        let last = &sink.seen[99].1;
        assert!(matches!(last, Seen::Counter { value: 99, .. }), "{last:?}");
    }
}

fn items_are_counted_by_the_databases_of_their_keys<E: TestEngine>() {
    let mut cache = Cache::<E>::roomy();
    let sizes = |cache: &Cache<E>| {
        let stats = cache.engine.stats();
        [0, 1, 15].map(|database| stats.items_of(database))
    };
    let keys: [(u8, &[u8]); 7] = [
        (0, b"a"),
        (0, b""),
        (0, b"\x01a"),
        (1, b"a"),
        (1, b""),
        (15, b"a"),
        (15, b"\x01"),
    ];
    let request = store(StoreMode::Set, b"v");
    for value in [b"v", b"w"] {
        for (database, key) in keys {
            let request = store(StoreMode::Set, value);
            assert!(cache.store(&stored(database, key), request).is_stored());
        }
        assert_eq!(sizes(&cache), [3, 2, 2]);
    }
    cache.delete(&stored(1, b"a"), Delete::default());
    cache.delete(b"absent", Delete::default());
    assert_eq!(sizes(&cache), [3, 1, 2]);
    assert!(!cache.engine.stats().is_empty(1));
    assert!(cache.engine.stats().is_empty(2));
    cache.engine.flush_all(Deadline::PAST, NOW);
    assert_eq!(sizes(&cache), [0; 3]);
    // Flushed items are still there, and are replaced and removed.
    assert!(cache.store(&stored(15, b"a"), request).is_stored());
    assert_eq!(sizes(&cache), [0, 0, 1]);
    cache.maintain();
    assert_eq!(sizes(&cache), [0, 0, 1]);
    let stats = cache.engine.stats();
    assert_eq!([1, 15].map(|n| stats.is_empty(n)), [true, false]);
}
