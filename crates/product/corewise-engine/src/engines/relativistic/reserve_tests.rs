//! Values that come later: what a get finds, what is held, and what other sessions may do
//! meanwhile.

use super::*;
use corewise_ops::{Get, Store, StoreMode, Verb};
use corewise_testkit::memcached::Seen;
use heap::ItemSizeClass;

const MEMORY: u64 = 16 << 20;
const NOW: Now = Now::new(10_000, 1_700_000_000);
const LATER: Now = Now::new(17_000, 1_700_000_007);

fn engine(memory: u64, eviction: Eviction) -> Arc<Relativistic> {
    Arc::new(Relativistic::new(Config {
        memory,
        max_item_bytes: memory as usize / 4,
        eviction,
        huge_pages: false,
    }))
}

fn store(mode: StoreMode) -> Store<'static> {
    Store::new(mode, b"")
}

fn op<'a>(key: &'a [u8], verb: Verb<'a>) -> Op<'a> {
    Op::new(0, key, verb)
}

fn get(session: &mut RelativisticSession, key: &[u8]) -> Seen {
    Seen::by(|sink| session.submit(LATER, &[op(key, Verb::Get(Get::default()))], sink))
}

fn set(session: &mut RelativisticSession, key: &[u8], value: &[u8]) -> Seen {
    let verb = Verb::Store(Store::new(StoreMode::Set, value));
    Seen::by(|sink| session.submit(NOW, &[op(key, verb)], sink))
}

fn finish(
    session: &mut RelativisticSession,
    key: &[u8],
    store: Store<'static>,
    reservation: Reservation,
) -> Seen {
    let op = op(key, Verb::Store(store));
    Seen::by(|sink| assert!(session.submit_reserved(LATER, &op, reservation, sink)))
}

/// The value without client flags and deadline. Does not print it, since it may be long.
#[track_caller]
fn assert_holds(session: &mut RelativisticSession, key: &[u8], value: &[u8]) {
    assert_has(&get(session, key), value, 0, Deadline::NEVER);
}

#[track_caller]
fn assert_has(seen: &Seen, value: &[u8], flags: u32, until: Deadline) {
    let is_whole = seen.value() == Some(value);
    let is_same =
        matches!(seen, Seen::Found { client_flags, .. } if is_whole && *client_flags == flags);
    assert!(is_same && seen.deadline() == until);
}

fn value(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at * 7 + at / 251) as u8).collect()
}

fn reserve(session: &mut RelativisticSession, key: &[u8], value: &[u8]) -> Reservation {
    let mut reservation = session.reserve(NOW, key, value.len(), 0, 0).expect("room");
    assert_eq!(reservation.extend(value), value.len());
    reservation
}

#[test]
fn a_value_that_comes_later_is_stored_where_it_lies() {
    let engine = engine(MEMORY, Eviction::S3Fifo);
    let mut session = engine.session();
    let value = value(100_000);
    let mut reservation = session
        .reserve(NOW, b"key", value.len(), 77, 0)
        .expect("room");
    let place = reservation.spare().as_ptr().addr();
    for part in value.chunks(777) {
        assert!(get(&mut session, b"key").is_absent());
        assert_eq!(reservation.extend(part), part.len());
    }
    assert_eq!(reservation.extend(b"more"), 0);
    let deadline = Deadline::at_ms(500_000);
    let store = store(StoreMode::Set).with_flags(77).until(deadline);
    assert!(finish(&mut session, b"key", store, reservation).is_stored());
    assert_has(&get(&mut session, b"key"), &value, 77, deadline);
    let guard = engine.table.domain().pin();
    // SAFETY: the guard is of the table's domain (1).
    let node = unsafe { engine.find_any(&guard, engine.hash(b"key"), b"key") }.unwrap();
    // SAFETY: the guard keeps the item alive.
    let found: Item<'_, Link> = unsafe { Item::from_raw(node) };
    assert_eq!(found.value().as_ptr().addr(), place, "it was not copied");
    assert_eq!(found.idle_s(LATER), 0, "its life begins when it is stored");
    assert_eq!(engine.heap.awaited(), 0);
}

/// A reservation that is not stored gives its memory back: dropped, refused, or copied because it
/// does not fit the store.
#[test]
fn reservations_leave_nothing_behind() {
    let engine = engine(MEMORY, Eviction::S3Fifo);
    let mut session = engine.session();
    let value = value(50_000);
    let empty = engine.heap.held_bytes();
    drop(session.reserve(NOW, b"a", 50_000, 0, 0).expect("room"));
    let partly = session.reserve(NOW, b"a", 50_000, 0, 0);
    partly.expect("room").extend(b"part");
    assert_eq!(
        (engine.heap.held_bytes(), engine.heap.awaited()),
        (empty, 0)
    );
    let refused = reserve(&mut session, b"a", &value);
    let seen = finish(&mut session, b"a", store(StoreMode::Replace), refused);
    assert_eq!(seen, Seen::NotStored);
    engine.heap.collect(engine.table.domain());
    assert_eq!(
        (engine.heap.held_bytes(), engine.heap.awaited()),
        (empty, 0)
    );
    // A reservation for another key, one that is not full, and one of another engine are copied.
    let other = reserve(&mut session, b"b", &value);
    assert!(finish(&mut session, b"a", store(StoreMode::Add), other).is_stored());
    let mut short = session.reserve(NOW, b"b", 50_000, 0, 0).expect("room");
    short.extend(b"short");
    assert!(finish(&mut session, b"b", store(StoreMode::Set), short).is_stored());
    let mut stranger = self::engine(MEMORY, Eviction::S3Fifo).session();
    let foreign = reserve(&mut stranger, b"c", &value);
    drop(stranger);
    assert!(finish(&mut session, b"c", store(StoreMode::Set), foreign).is_stored());
    assert_holds(&mut session, b"a", &value);
    assert_holds(&mut session, b"b", b"short");
    assert_holds(&mut session, b"c", &value);
    assert_eq!(engine.heap.awaited(), 0);
}

#[test]
fn conditions_hold_when_the_value_has_come() {
    let engine = engine(MEMORY, Eviction::S3Fifo);
    let mut session = engine.session();
    let value = value(40_000);
    let early = reserve(&mut session, b"k", &value);
    let cas = set(&mut session, b"k", b"meanwhile").cas();
    assert_eq!(
        finish(&mut session, b"k", store(StoreMode::Add), early),
        Seen::NotStored
    );
    let with = |cas| store(StoreMode::Set).if_cas(cas);
    let old = reserve(&mut session, b"k", &value);
    assert_eq!(finish(&mut session, b"k", with(cas + 1), old), Seen::Exists);
    let right = reserve(&mut session, b"k", &value);
    assert!(finish(&mut session, b"k", with(cas), right).cas() > cas);
    assert_holds(&mut session, b"k", &value);
}

/// Mutant `publishes_in_any_generation`.
#[test]
fn a_flush_before_the_value_has_come_takes_nothing_of_it() {
    let engine = engine(MEMORY, Eviction::S3Fifo);
    let mut session = engine.session();
    let value = value(70_000);
    let reservation = reserve(&mut session, b"k", &value);
    engine.flush_all(Deadline::PAST, NOW);
    // The flush is completed although the reservation is older: nothing waits for a slow client.
    for _ in 0..1_000 {
        session.maintain(NOW);
    }
    assert!(
        !engine.generation().has_older,
        "maintenance would look for more without end"
    );
    assert!(finish(&mut session, b"k", store(StoreMode::Set), reservation).is_stored());
    assert_holds(&mut session, b"k", &value);
    assert_eq!(engine.heap.awaited(), 0);
    engine.flush_all(Deadline::PAST, NOW);
    assert!(get(&mut session, b"k").is_absent());
}

/// A flush between the read of the generation and the publication, which the reservation survives.
#[test]
fn an_item_that_entered_and_was_flushed_is_copied() {
    let engine = engine(MEMORY, Eviction::S3Fifo);
    let mut session = engine.session();
    let value = value(70_000);
    let empty = engine.heap.held_bytes();
    let reservation = reserve(&mut session, b"k", &value);
    let node: Ptr = reservation
        .item_of(Arc::as_ptr(&engine).cast())
        .unwrap()
        .cast();
    // SAFETY: the item is the reservation's.
    let bytes = engine
        .heap
        .footprint(unsafe { Item::<Link>::from_raw(node) });
    engine.flush_all(Deadline::PAST, NOW);
    let queue = queues::Queue::Main;
    engine.heap.enter(engine.table.domain(), node, bytes, queue);
    session.maintain(NOW);
    assert!(
        engine.generation().has_older,
        "what has entered is waited for"
    );
    drop(reservation);
    for _ in 0..1_000 {
        session.maintain(NOW);
    }
    assert!(!engine.generation().has_older);
    assert_eq!(
        (engine.heap.held_bytes(), engine.heap.awaited()),
        (empty, 0)
    );
}

#[test]
fn an_eighth_of_the_memory_may_be_reserved_and_the_rest_goes_on() {
    let engine = engine(MEMORY, Eviction::S3Fifo);
    let (mut session, mut slow) = (engine.session(), engine.session());
    let mut reserved = Vec::new();
    while let Some(reservation) = slow.reserve(NOW, &[reserved.len() as u8], 60_000, 0, 0) {
        reserved.push(reservation);
    }
    let share = engine.heap.allowed() / 8;
    assert!((share - (60 << 10)..=share).contains(&engine.heap.awaited()));
    let value = value(60_000);
    for key in 0..2_000u32 {
        let seen = set(&mut session, &key.to_le_bytes(), &value);
        assert!(seen.is_stored(), "store {key}: {seen:?}");
        session.maintain(NOW);
    }
    assert!(engine.heap.held_bytes() <= engine.heap.allowed());
    let used = engine.stats().bytes as f64 / MEMORY as f64;
    assert!(
        used > 0.7,
        "{used} of the memory in use beside what is reserved"
    );
    for (key, mut reservation) in reserved.into_iter().enumerate() {
        reservation.extend(&value);
        let seen = finish(
            &mut session,
            &[key as u8],
            store(StoreMode::Set),
            reservation,
        );
        assert!(seen.is_stored(), "{seen:?}");
    }
    assert_holds(&mut session, &[3], &value);
    assert_eq!(engine.heap.awaited(), 0);
}

/// Values of which much has arrived would otherwise lie in receive buffers, which take memory from
/// the items as well.
#[test]
fn half_of_the_memory_may_be_reserved_for_values_of_which_a_quarter_has_arrived() {
    let reserved = |eviction, arrived: usize| {
        let engine = engine(MEMORY, eviction);
        let mut session = engine.session();
        let mut reserved = Vec::new();
        let key = |reserved: &Vec<_>| [reserved.len() as u8];
        while let Some(next) = session.reserve(NOW, &key(&reserved), 200_000, 0, arrived) {
            reserved.push(next);
        }
        // The largest item has room beside them.
        let largest = vec![0; engine.max_item_bytes - 200];
        let seen = set(&mut session, b"largest", &largest);
        assert!(seen.is_stored(), "{seen:?}");
        assert!(engine.heap.held_bytes() <= engine.heap.allowed());
        engine.heap.awaited() as f64 / engine.heap.allowed() as f64
    };
    let few = reserved(Eviction::S3Fifo, 49_999);
    let many = reserved(Eviction::S3Fifo, 50_000);
    assert!((0.1..=0.125).contains(&few), "{few}");
    assert!((0.34..=0.5).contains(&many), "{many}");
    assert!(reserved(Eviction::Refuse, 200_000) <= 0.125);
}

#[test]
fn the_excess_is_what_eviction_gives_back() {
    let engine = engine(MEMORY, Eviction::S3Fifo);
    let mut session = engine.session();
    let value = value(10_000);
    for key in 0..2_000u32 {
        set(&mut session, &key.to_le_bytes(), &value);
    }
    assert_eq!(engine.excess(), 0);
    engine.set_overhead(MEMORY / 4);
    let excess = engine.excess();
    assert!((MEMORY / 8..=MEMORY / 4).contains(&excess), "{excess}");
    while engine.excess() > 0 {
        session.maintain(NOW);
    }
    assert!(engine.heap.held_bytes() <= engine.heap.allowed());
    // What is reserved cannot be evicted.
    let mut reserved = Vec::new();
    while let Some(next) = session.reserve(NOW, &[reserved.len() as u8], 100_000, 0, 100_000) {
        reserved.push(next);
    }
    engine.set_overhead(MEMORY / 2);
    while session.maintain(NOW) {}
    assert_eq!(engine.excess(), 0);
}

/// A full cache receives values in place, too: it makes room when the value is announced.
#[test]
fn a_full_cache_makes_room_for_announced_items() {
    let engine = engine(MEMORY, Eviction::S3Fifo);
    let mut session = engine.session();
    let value = value(500_000);
    for key in 0..200u32 {
        let reservation = reserve(&mut session, &key.to_le_bytes(), &value);
        let seen = finish(
            &mut session,
            &key.to_le_bytes(),
            store(StoreMode::Set),
            reservation,
        );
        assert!(seen.is_stored(), "{seen:?}");
        assert_holds(&mut session, &key.to_le_bytes(), &value);
    }
    assert!(engine.stats().evictions > 100);
}

/// Where nothing may be evicted, an announced value displaces no item, and is refused in the end
/// like any other.
#[test]
fn a_full_cache_that_refuses_reserves_nothing_more() {
    let engine = engine(MEMORY, Eviction::Refuse);
    let mut session = engine.session();
    let value = value(100_000);
    let mut keys = 0u32;
    let last = loop {
        let key = keys.to_le_bytes();
        let Some(mut reservation) = session.reserve(NOW, &key, value.len(), 0, 0) else {
            break set(&mut session, &key, &value);
        };
        reservation.extend(&value);
        finish(&mut session, &key, store(StoreMode::Set), reservation);
        keys += 1;
    };
    assert_eq!(last, Seen::OutOfMemory);
    assert!(keys > 100, "{keys} items");
    // Overwriting at the same size keeps working.
    for round in 0..500u32 {
        let key = (round % keys).to_le_bytes();
        let seen = match session.reserve(NOW, &key, value.len(), 0, 0) {
            Some(mut reservation) => {
                reservation.extend(&value);
                finish(&mut session, &key, store(StoreMode::Set), reservation)
            }
            None => set(&mut session, &key, &value),
        };
        assert!(seen.is_stored(), "round {round}: {seen:?}");
    }
    for key in 0..keys {
        assert_holds(&mut session, &key.to_le_bytes(), &value);
    }
    assert_eq!(engine.stats().evictions, 0);
}

#[test]
fn items_are_large_as_far_as_addresses_reach() {
    let edge = |memory: u64| {
        let heap = Heap::new(memory, false, false).expect("addresses");
        let large = |bytes: &usize| heap.size_class(*bytes) == ItemSizeClass::Large;
        let edge = (0..1 << 18).step_by(8).find(large).expect("some are") - 8;
        (heap.segment_bytes() as usize, edge)
    };
    for (memory, segment, above) in [
        (1 << 20, 32 << 10, 16 << 10),
        (16 << 20, 64 << 10, 32 << 10),
        (64 << 20, 128 << 10, 32 << 10),
        (256 << 20, 256 << 10, 32 << 10),
        (1 << 30, 256 << 10, 32 << 10),
        (8 << 30, 256 << 10, 128 << 10),
        (64 << 30, 256 << 10, 128 << 10),
    ] {
        assert_eq!(edge(memory), (segment, above), "{memory} bytes");
    }
}

/// No granted reservation holds addresses that others need: the memory is filled with the smallest
/// large items.
#[test]
fn the_smallest_large_items_fill_the_memory() {
    let engine = engine(64 << 20, Eviction::S3Fifo);
    let mut session = engine.session();
    let value = value(32 << 10);
    for key in 0..4_000u32 {
        assert!(set(&mut session, &key.to_le_bytes(), &value).is_stored());
    }
    assert!(engine.stats().bytes as f64 > 0.8 * (64 << 20) as f64);
}
