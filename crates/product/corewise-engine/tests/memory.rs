//! The guarantees about memory: the budget, eviction, refusal, and that dead items are not kept.

use crate::common;

use common::{Cache, NOW, Seen, Setup, TestEngine, fewer, incr, later, stamp_of, stamped, store};
use corewise_engine::ScanStep;
use corewise_ops::{Deadline, Delete, StoreMode};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

for_every_engine! {
    every_store_is_made_room_for_and_the_budget_holds
    a_full_cache_takes_items_up_to_the_largest
    many_items_without_a_value_stay_within_the_budget
    what_has_just_been_stored_is_there
    what_was_evicted_stays_away
    an_item_may_be_changed_when_it_is_next_to_leave
    chains_of_changes_go_on_or_break_off_while_others_are_evicted
    a_smaller_budget_is_reached_and_a_larger_one_used
    what_the_owner_uses_is_taken_from_the_items_but_never_more_than_half
    a_refused_store_takes_nothing_away_but_what_a_set_would_have_overwritten
    refused_changes_leave_the_item
    a_few_keys_can_be_overwritten_for_ever
    many_keys_can_be_overwritten_in_any_order
    what_is_deleted_makes_room
    room_for_small_items_becomes_room_for_large_ones_and_back
    what_has_expired_makes_room
    what_has_expired_makes_room_behind_what_has_not
    what_was_flushed_makes_room
    sessions_that_end_keep_no_memory
    every_item_is_counted_once
    the_statistics_of_size_classes_add_up
    counters_only_grow_while_sessions_end
    a_scan_shows_what_is_alive_and_no_more
    a_scan_from_within_shows_the_rest
}

/// The largest value that certainly fits an item of the largest size with a key of up to eight
/// bytes.
fn largest(setup: &Setup) -> usize {
    setup.max_item_bytes - 512
}

/// Length of values where the length does not matter.
const LENGTH: usize = 400;

/// Stores values of [`LENGTH`] or `length` bytes under the numbers from `from` on until one is
/// refused; returns that number.
fn fill<E: TestEngine>(cache: &mut Cache<E>, from: u64, length: usize) -> u64 {
    fill_until(cache, from, length, Deadline::NEVER)
}

fn fill_until<E: TestEngine>(
    cache: &mut Cache<E>,
    from: u64,
    length: usize,
    deadline: Deadline,
) -> u64 {
    let most = from + 2 * cache.engine.memory_limit() / length as u64;
    for i in from..most {
        let value = stamped(i, length);
        let request = store(StoreMode::Set, &value).until(deadline);
        match cache.store(&i.to_le_bytes(), request) {
            Seen::Stored { .. } => {}
            Seen::OutOfMemory => return i,
            other => panic!("{other:?}"),
        }
    }
    panic!("twice the budget was stored");
}

/// A cache without eviction, and the number of items of [`LENGTH`] that it takes: at least a
/// quarter of its budget.
fn refusing<E: TestEngine>() -> (Cache<E>, u64) {
    let setup = Setup::refusing::<E>(1);
    let count = fill(&mut Cache::<E>::new(setup), 0, LENGTH);
    assert!(count * LENGTH as u64 > setup.memory / 4, "{count} items");
    (Cache::new(setup), count)
}

/// The stamp of a number's value, if it is present.
fn stamp<E: TestEngine>(cache: &mut Cache<E>, i: u64) -> Option<u64> {
    cache.get(&i.to_le_bytes()).value().map(stamp_of)
}

fn assert_all_there<E: TestEngine>(cache: &mut Cache<E>, numbers: impl Iterator<Item = u64>) {
    for i in numbers {
        assert_eq!(stamp(cache, i), Some(i));
    }
}

/// Lengths with a realistic mix: many short, some longer, a few of the greatest length.
fn mixed(i: u64, largest: usize) -> usize {
    let random = (i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize;
    match i % 100 {
        0 => random % largest,
        1..10 => random % 4_000,
        _ => random % 300,
    }
}

/// Numbers until values of [`mixed`] lengths amount to `times` the memory.
fn mixed_numbers(setup: &Setup, times: u64) -> impl Iterator<Item = (u64, usize)> + use<> {
    let (largest, memory) = (largest(setup).min(setup.memory as usize / 16), setup.memory);
    let mut left = (fewer(times) * memory) as usize;
    (0u64..).map_while(move |i| {
        let length = mixed(i, largest).max(8);
        left = left.checked_sub(length)?;
        Some((i, length))
    })
}

fn every_store_is_made_room_for_and_the_budget_holds<E: TestEngine>() {
    let tight = Setup::tight::<E>(1);
    for divisor in [1, 16] {
        // With smaller items an engine may divide its memory more finely.
        let setup = Setup {
            max_item_bytes: tight.max_item_bytes / divisor,
            ..tight
        };
        let mut cache = Cache::<E>::new(setup);
        for (i, length) in mixed_numbers(&setup, 20) {
            let length = length.min(largest(&setup));
            let seen = cache.set(&i.to_le_bytes(), &stamped(i, length));
            assert!(seen.is_stored(), "{seen:?} for {length} bytes");
            if i % 64 == 0 || i < 20_000 {
                cache.assert_within_budget();
            }
        }
        cache.assert_within_budget();
        let stats = cache.engine.stats();
        assert!(stats.evictions > 0);
        assert_eq!(stats.out_of_memory, 0);
        assert!(stats.bytes > setup.memory / 4, "it keeps what it can");
    }
}

fn a_full_cache_takes_items_up_to_the_largest<E: TestEngine>() {
    let setup = Setup::tight::<E>(1);
    let mut cache = Cache::<E>::new(setup);
    let mut small = 0..;
    for round in 0..6u64 {
        // From the second round on, the small items are in the way of the large ones.
        for i in small.by_ref().take(setup.memory as usize / LENGTH) {
            cache.set(&u64::to_le_bytes(i), &stamped(i, LENGTH));
        }
        for length in [largest(&setup), largest(&setup) / 2 + round as usize] {
            let seen = cache.set(b"large", &stamped(round, length));
            assert!(seen.is_stored(), "{length} bytes: {seen:?}");
            let seen = cache.get(b"large");
            let value = seen.value().expect("what has just been stored");
            assert_eq!((value.len(), stamp_of(value)), (length, round));
            cache.assert_within_budget();
        }
        let seen = cache.set(b"too large", &vec![0; setup.max_item_bytes]);
        assert_eq!(seen, Seen::TooLarge);
    }
}

fn many_items_without_a_value_stay_within_the_budget<E: TestEngine>() {
    let setup = Setup::tight::<E>(1);
    for setup in [setup, Setup::refusing::<E>(1)] {
        let mut cache = Cache::<E>::new(setup);
        let mut refused = 0;
        for i in 0..setup.memory / 8 {
            refused += u64::from(cache.set(&i.to_le_bytes(), b"") == Seen::OutOfMemory);
            if i % 64 == 0 || i < 20_000 {
                cache.assert_within_budget();
            }
        }
        cache.assert_within_budget();
        let stats = cache.engine.stats();
        assert_eq!(stats.out_of_memory, refused);
        assert_eq!(setup.evicts, refused == 0, "{refused} refused");
        assert_eq!(setup.evicts, stats.evictions > 0);
    }
}

fn what_has_just_been_stored_is_there<E: TestEngine>() {
    let setup = Setup::tight::<E>(1);
    let mut cache = Cache::<E>::new(setup);
    for (i, length) in mixed_numbers(&setup, 5) {
        cache.set(&i.to_le_bytes(), &stamped(i, length));
        assert_eq!(stamp(&mut cache, i), Some(i));
    }
}

/// One number in three is stored twice, so that an older value could come back.
fn what_was_evicted_stays_away<E: TestEngine>() {
    let setup = Setup::tight::<E>(1);
    let mut cache = Cache::<E>::new(setup);
    let count = setup.memory / 100;
    let new = |i| i + count;
    for i in (0..count).step_by(3) {
        cache.set(&i.to_le_bytes(), &stamped(i, 50));
        cache.set(&i.to_le_bytes(), &stamped(new(i), 60));
    }
    let mut there: Vec<u64> = (0..count).step_by(3).collect();
    for round in 0..10 {
        there.retain(|&i| match stamp(&mut cache, i) {
            Some(stamp) => stamp == new(i) || panic!("{i} has its old value {stamp}"),
            None => false,
        });
        let gone = (0..count)
            .step_by(3)
            .filter(|i| there.binary_search(i).is_err());
        for i in gone.step_by(7) {
            assert_eq!(stamp(&mut cache, i), None, "{i} is back in round {round}");
        }
        let fresh = 3 * count + round * count / 10;
        for i in fresh..fresh + count / 10 {
            cache.set(&i.to_le_bytes(), &stamped(i, 70));
        }
    }
}

/// In a full cache every change needs room. The engine must not take it from the item itself.
fn an_item_may_be_changed_when_it_is_next_to_leave<E: TestEngine>() {
    let mut cache = Cache::<E>::new(Setup::tight::<E>(1));
    let count = cache.engine.memory_limit() / 100;
    let mut changed = [0; 4];
    for (round, change) in (0..).zip(&mut changed) {
        let numbers = round * count..(round + 1) * count;
        for i in numbers.clone() {
            cache.set(&i.to_le_bytes(), i.to_string().as_bytes());
        }
        for i in numbers {
            let (key, text) = (i.to_le_bytes(), i.to_string());
            let long = "1".repeat(1_000);
            let (seen, expected) = match round {
                0 => (
                    cache.store(&key, store(StoreMode::Append, long.as_bytes())),
                    text + &long,
                ),
                1 => (
                    cache.store(&key, store(StoreMode::Prepend, long.as_bytes())),
                    long + &text,
                ),
                2 => (
                    cache.store(&key, store(StoreMode::Replace, long.as_bytes())),
                    long,
                ),
                _ => (
                    cache.arith(&key, incr(1 << 50)),
                    (i + (1 << 50)).to_string(),
                ),
            };
            match seen {
                Seen::Stored { value, .. } => assert_eq!(value, expected.as_bytes()),
                Seen::Counter { text, .. } => assert_eq!(text, expected.as_bytes()),
                Seen::NotStored | Seen::Missing(_) => continue,
                other => panic!("{other:?}"),
            }
            assert_eq!(cache.get(&key).value(), Some(expected.as_bytes()));
            *change += 1;
        }
        cache.assert_within_budget();
    }
    assert!(changed.iter().all(|count| *count > 0), "{changed:?}");
}

/// A value that is appended to, one that is prepended to, and a counter. Each advances by one step,
/// or starts again.
fn chains_of_changes_go_on_or_break_off_while_others_are_evicted<E: TestEngine>() {
    let setup = Setup::tight::<E>(1);
    let mut cache = Cache::<E>::new(setup);
    let (mut behind, mut before, mut count) = (Vec::new(), Vec::new(), 0);
    let mut broken = 0;
    for (i, length) in mixed_numbers(&setup, 10) {
        cache.set(&i.to_le_bytes(), &stamped(i, length));
        let part = stamped(i, 8 + i as usize % 30);
        for (mode, chain) in [
            (StoreMode::Append, &mut behind),
            (StoreMode::Prepend, &mut before),
        ] {
            let key: &[u8] = if mode == StoreMode::Append {
                b"behind"
            } else {
                b"before"
            };
            let at = if mode == StoreMode::Append {
                chain.len()
            } else {
                0
            };
            chain.splice(at..at, part.iter().copied());
            match cache.store(key, store(mode, &part)) {
                Seen::Stored { value, .. } => assert_eq!(&value, chain),
                Seen::NotStored => {
                    broken += 1;
                    chain.clear();
                    cache.set(key, b"");
                }
                other => panic!("{other:?}"),
            }
            if chain.len() > 3_000 {
                chain.clear();
                cache.set(key, b"");
            }
        }
        match cache.arith(b"count", incr(1)) {
            Seen::Counter { value, .. } => assert_eq!(value, count + 1),
            other => {
                assert!(other.is_absent(), "{other:?}");
                cache.set(b"count", b"0");
            }
        }
        count = common::number(&cache.get(b"count")).unwrap_or(0);
    }
    println!("{broken} chains broke off");
    assert!(cache.engine.stats().evictions > 0);
}

fn a_smaller_budget_is_reached_and_a_larger_one_used<E: TestEngine>() {
    let setup = Setup::tight::<E>(1);
    let mut cache = Cache::<E>::new(Setup {
        memory: 4 * setup.memory,
        ..setup
    });
    let mut numbers = 0u64..;
    for budget in [4, 1, 3].map(|times| times * setup.memory) {
        cache.engine.set_memory_limit(budget);
        assert_eq!(cache.engine.memory_limit(), budget);
        for i in numbers.by_ref().take(2 * budget as usize / LENGTH) {
            let seen = cache.set(&i.to_le_bytes(), &stamped(i, LENGTH));
            assert!(seen.is_stored(), "{seen:?}");
        }
        cache.assert_within_budget();
        let bytes = cache.engine.stats().bytes;
        assert!(bytes > budget / 2, "{bytes} of {budget}");
    }
}

fn what_the_owner_uses_is_taken_from_the_items_but_never_more_than_half<E: TestEngine>() {
    let setup = Setup::tight::<E>(1);
    let mut cache = Cache::<E>::new(setup);
    let mut next = 0;
    let mut fill = |overhead: u64| {
        cache.engine.set_overhead(overhead);
        let end = next + 4 * setup.memory / 200;
        for i in next..end {
            assert!(cache.set(&i.to_le_bytes(), &stamped(i, 200)).is_stored());
        }
        next = end;
        cache.engine.stats().bytes
    };
    let memory = setup.memory;
    let all = fill(0);
    let less = fill(memory / 4);
    assert!(less <= memory * 3 / 4 && less < all, "{less} after {all}");
    let least = fill(memory);
    assert!(least <= memory / 2 && least < less, "{least} after {less}");
    assert!(least > memory / 4, "{least} of {memory}");
    let again = fill(0);
    assert!(again > all - all / 16, "{again} after {all}");
    assert_eq!(cache.engine.memory_limit(), memory);
}

fn a_refused_store_takes_nothing_away_but_what_a_set_would_have_overwritten<E: TestEngine>() {
    let (mut cache, _) = refusing::<E>();
    let count = fill(&mut cache, 0, LENGTH);
    let mut refused = 1;
    // Absent keys, with every mode.
    for i in count + 1..count + 1_000 {
        for mode in [StoreMode::Set, StoreMode::Add] {
            let seen = cache.store(&i.to_le_bytes(), store(mode, &stamped(i, 4_000)));
            assert_eq!(seen, Seen::OutOfMemory, "{mode:?}");
            refused += 1;
        }
        assert!(cache.get(&i.to_le_bytes()).is_absent());
    }
    assert_all_there(&mut cache, 0..count);
    cache.assert_within_budget();
    let stats = cache.engine.stats();
    assert_eq!((stats.items, stats.evictions), (count, 0));
    assert_eq!(stats.out_of_memory, refused);

    let large = stamped(0, cache_largest::<E>());
    assert_eq!(cache.set(&0u64.to_le_bytes(), &large), Seen::OutOfMemory);
    assert_eq!(stamp(&mut cache, 0), None);
    assert_all_there(&mut cache, 1..count);
}

fn cache_largest<E: TestEngine>() -> usize {
    largest(&Setup::refusing::<E>(1))
}

fn refused_changes_leave_the_item<E: TestEngine>() {
    let (mut cache, _) = refusing::<E>();
    let count = fill(&mut cache, 0, LENGTH);
    let large = stamped(0, cache_largest::<E>() - LENGTH - 100);
    let key = 7u64.to_le_bytes();
    let compared = store(StoreMode::Set, &large).if_cas(cache.get(&key).cas());
    for request in [
        compared,
        store(StoreMode::Replace, &large),
        store(StoreMode::Append, &large),
        store(StoreMode::Prepend, &large),
    ] {
        let mode = request.mode;
        assert_eq!(cache.store(&key, request), Seen::OutOfMemory, "{mode:?}");
        assert_eq!(stamp(&mut cache, 7), Some(7), "{mode:?}");
    }
    assert_all_there(&mut cache, 0..count);
}

fn a_few_keys_can_be_overwritten_for_ever<E: TestEngine>() {
    let setup = Setup::refusing::<E>(1);
    let mut cache = Cache::<E>::new(setup);
    for (i, length) in mixed_numbers(&setup, 20) {
        let length = length.min(2_000);
        let seen = cache.set(&[i as u8 % 8], &stamped(i, length));
        assert!(seen.is_stored(), "{seen:?} after {i} values");
        let seen = cache.get(&[i as u8 % 8]);
        assert_eq!(seen.value().map(stamp_of), Some(i));
    }
    cache.assert_within_budget();
}

fn many_keys_can_be_overwritten_in_any_order<E: TestEngine>() {
    let (mut cache, count) = refusing::<E>();
    let keys = count / 2;
    let mut stamps: Vec<u64> = (0..keys).collect();
    for &i in &stamps {
        assert!(cache.set(&i.to_le_bytes(), &stamped(i, LENGTH)).is_stored());
    }
    for new in keys..keys + fewer(20) * count {
        let key = (new.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20) % keys;
        stamps[key as usize] = new;
        let seen = cache.set(&key.to_le_bytes(), &stamped(new, LENGTH));
        assert!(seen.is_stored(), "{seen:?} for number {new}");
    }
    for (key, expected) in (0..).zip(stamps) {
        assert_eq!(stamp(&mut cache, key), Some(expected));
    }
    cache.assert_within_budget();
}

fn what_is_deleted_makes_room<E: TestEngine>() {
    let (mut cache, _) = refusing::<E>();
    let mut from = 0;
    let count = fill(&mut cache, from, LENGTH);
    let mut end = count;
    for _ in 0..4 {
        for i in from..end {
            let seen = cache.delete(&i.to_le_bytes(), Delete::default());
            assert_eq!(seen, Seen::Deleted);
        }
        assert_eq!(cache.engine.stats().items, 0);
        from = end + 1;
        end = fill(&mut cache, from, LENGTH);
        assert!(end - from > count * 3 / 4, "{} after {count}", end - from);
        assert_all_there(&mut cache, from..end);
    }
    // Every second number.
    for i in (from..end).step_by(2) {
        cache.delete(&i.to_le_bytes(), Delete::default());
    }
    let more = fill(&mut cache, end + 1, LENGTH) - end - 1;
    assert!(more > count / 4, "{more} where half of {count} were");
    assert_all_there(&mut cache, (from + 1..end).step_by(2));
    assert_all_there(&mut cache, end + 1..end + 1 + more);
}

fn room_for_small_items_becomes_room_for_large_ones_and_back<E: TestEngine>() {
    let setup = Setup::refusing::<E>(1);
    let mut cache = Cache::<E>::new(setup);
    let mut from = 0;
    for length in [10, largest(&setup), 100, 1_000, largest(&setup) / 3, 10] {
        let end = fill(&mut cache, from, length);
        let bytes = (end - from) * length as u64;
        // With the smallest items, header and table take most of the memory.
        let least = if length == 10 { 32 } else { 4 };
        assert!(bytes > setup.memory / least, "{bytes} with {length} each");
        assert_all_there(&mut cache, from..end);
        for i in from..end {
            cache.delete(&i.to_le_bytes(), Delete::default());
        }
        from = end + 1;
    }
}

fn what_has_expired_makes_room<E: TestEngine>() {
    let (mut cache, count) = refusing::<E>();
    let (mut from, mut ms) = (0, 0);
    for _ in 0..4 {
        let deadline = Deadline::after_ms(cache.now, 1_000);
        let end = fill_until(&mut cache, from, LENGTH, deadline);
        assert!(end - from > count * 3 / 4, "{} after {count}", end - from);
        assert_all_there(&mut cache, from..end);
        ms += 1_000;
        cache.now = later(ms);
        assert_eq!(stamp(&mut cache, from), None);
        from = end + 1;
    }
    assert_eq!(cache.engine.stats().evictions, 0);
}

fn what_has_expired_makes_room_behind_what_has_not<E: TestEngine>() {
    let (mut cache, count) = refusing::<E>();
    for i in 0..10 {
        cache.set(&[i], &stamped(u64::from(i), LENGTH));
    }
    let deadline = Deadline::after_ms(NOW, 1_000);
    let end = fill_until(&mut cache, 0, LENGTH, deadline);
    cache.now = later(1_000);
    let again = fill(&mut cache, end + 1, LENGTH) - end - 1;
    assert!(again > count * 3 / 4, "{again} after {count}");
    for i in 0..10 {
        let seen = cache.get(&[i]);
        assert_eq!(seen.value().map(stamp_of), Some(u64::from(i)));
    }
}

fn what_was_flushed_makes_room<E: TestEngine>() {
    let (mut cache, count) = refusing::<E>();
    let mut from = 0;
    for round in 0..5 {
        let end = fill(&mut cache, from, LENGTH);
        assert!(end - from > count * 3 / 4, "{} after {count}", end - from);
        cache.assert_within_budget();
        if round % 2 == 0 {
            cache.engine.flush_all(Deadline::PAST, cache.now);
        } else {
            let at = Deadline::after_ms(cache.now, 500);
            cache.engine.flush_all(at, cache.now);
            cache.now = later(round * 1_000);
        }
        assert_eq!(stamp(&mut cache, from), None);
        from = end + 1;
    }
}

fn sessions_that_end_keep_no_memory<E: TestEngine>() {
    let (cache, count) = refusing::<E>();
    for i in 0..fewer(5_000) {
        let mut other = Cache::over(&cache.engine);
        let key = (i % (count / 4)).to_le_bytes();
        let seen = other.set(&key, &stamped(i, LENGTH));
        assert!(seen.is_stored(), "{seen:?} in session {i}");
    }
    let mut cache = cache;
    let end = fill(&mut cache, count, LENGTH);
    assert!(end - count > count / 2, "{} of {count}", end - count);
}

fn every_item_is_counted_once<E: TestEngine>() {
    let (mut cache, count) = refusing::<E>();
    let keys = count / 2;
    let key = |i: u64| (i % keys).to_le_bytes();
    for i in 0..2 * keys {
        match i % 5 {
            0 => drop(cache.delete(&key(i * 7), Delete::default())),
            1 => drop(cache.store(&key(i * 3), store(StoreMode::Add, &stamped(i, LENGTH)))),
            2 => drop(cache.store(&key(i), store(StoreMode::Append, b"more"))),
            _ => drop(cache.set(&key(i), &stamped(i, i as usize % LENGTH))),
        }
    }
    let there = (0..keys).filter(|&i| !cache.get(&key(i)).is_absent());
    let there = there.count() as u64;
    assert!(there > keys / 4);
    assert_eq!(cache.engine.stats().items, there);
    assert_eq!(cache.engine.stats().evictions, 0);
}

fn the_statistics_of_size_classes_add_up<E: TestEngine>() {
    let mut cache = Cache::<E>::roomy();
    for i in 0u64..1_000 {
        cache.set(&i.to_le_bytes(), &vec![b'x'; (i % 500) as usize]);
    }
    let (stats, classes) = (cache.engine.stats(), cache.engine.size_classes());
    assert_eq!((stats.items, stats.total_items), (1_000, 1_000));
    assert_eq!(classes.iter().map(|class| class.items).sum::<u64>(), 1_000);
    assert!(classes.is_sorted_by(|one, next| one.class < next.class));
    let bytes: u64 = classes.iter().map(|class| class.bytes).sum();
    assert!(bytes <= stats.bytes - stats.table_bytes);
    assert!(bytes > 250 * 1_000, "{bytes}");
    let mut shown = 0;
    cache.scan(100, |item| {
        let class = classes.iter().find(|class| class.class == item.size_class);
        let class = class.expect("a class with items is listed");
        assert!(item.footprint as u64 <= class.max_bytes);
        assert!(item.footprint > item.key.len() + item.value.len());
        shown += 1;
    });
    assert_eq!(shown, 1_000);
}

fn counters_only_grow_while_sessions_end<E: TestEngine>() {
    let mut cache = Cache::<E>::roomy();
    let engine = cache.engine.clone();
    let stores = fewer(100_000);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut before = 0;
            while !stop.load(Relaxed) {
                let total = engine.stats().total_items;
                assert!((before..=stores).contains(&total), "{before} {total}");
                before = total;
            }
        });
        for i in 0..stores {
            if i % 100 == 0 {
                cache = Cache::over(&engine);
            }
            cache.set(&(i % 100).to_le_bytes(), b"value");
        }
        stop.store(true, Relaxed);
        assert!(reader.join().is_ok());
    });
    assert_eq!(engine.stats().total_items, stores);
}

/// The numbers that a scan in steps of `most_looks` shows. Checks that each is shown once and with
/// its value.
fn scan<E: TestEngine>(cache: &Cache<E>, most_looks: usize) -> Vec<u64> {
    let mut shown = Vec::new();
    cache.scan(most_looks, |item| {
        let number = u64::from_le_bytes(item.key.try_into().unwrap());
        assert_eq!(stamp_of(item.value), number);
        shown.push(number);
    });
    shown.sort_unstable();
    assert!(shown.is_sorted_by(|one, next| one < next), "one twice");
    shown
}

fn a_scan_shows_what_is_alive_and_no_more<E: TestEngine>() {
    let mut cache = Cache::<E>::roomy();
    for i in 0..1_000u64 {
        let value = stamped(i, LENGTH);
        let deadline = if i % 4 == 0 {
            Deadline::after_ms(NOW, 1_000)
        } else {
            Deadline::NEVER
        };
        let request = store(StoreMode::Set, &value).until(deadline);
        cache.store(&i.to_le_bytes(), request);
    }
    for most_looks in [0, 1, 10, 100_000] {
        assert_eq!(scan(&cache, most_looks), (0..1_000).collect::<Vec<_>>());
    }
    for i in (1..1_000u64).step_by(4) {
        cache.delete(&i.to_le_bytes(), Delete::default());
    }
    cache.now = later(1_000);
    let alive: Vec<u64> = (0..1_000).filter(|i| i % 4 > 1).collect();
    assert_eq!(scan(&cache, 64), alive);
    cache.engine.flush_all(Deadline::PAST, cache.now);
    assert_eq!(scan(&cache, 64), []);
    cache.set(&5u64.to_le_bytes(), &stamped(5, LENGTH));
    assert_eq!(scan(&cache, 64), [5]);
}

/// Half of the items lie behind half of a scan, or so: the bounds are 15 standard deviations away.
fn a_scan_from_within_shows_the_rest<E: TestEngine>() {
    let mut cache = Cache::<E>::roomy();
    for i in 0..1_000u64 {
        cache.set(&i.to_le_bytes(), &stamped(i, LENGTH));
    }
    let rest = |fraction: u32| {
        let (mut cursor, mut shown) = (cache.engine.position(fraction), 0);
        while let ScanStep::More(next) = cache.engine.scan(cursor, 100, NOW, &mut |_| shown += 1) {
            cursor = next;
        }
        shown
    };
    let rests: Vec<usize> = (0..8).map(|eighth| rest(eighth << 29)).collect();
    assert_eq!(rests[0], 1_000);
    assert!(rests.is_sorted_by(|one, next| one >= next), "{rests:?}");
    assert!((260..740).contains(&rests[4]), "{rests:?}");
    assert!(rest(u32::MAX) < 260);
}
