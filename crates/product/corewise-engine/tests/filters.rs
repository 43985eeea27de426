//! Filters in every engine: their meaning beside filters that stand alone, their memory, and
//! hostile dumps.

use crate::common;

use common::{Cache, Seen, Setup, TestEngine, fewer, later};
use corewise_filter::redis::{AddError, RedisCuckoo, STEP_WORK};
use corewise_ops::filter::{
    CuckooSettings, FilterOp, FilterRead, FilterResult, FilterWrite, HEADER_BYTES, MAX_CHUNK,
    WhileCompacting, item_hash,
};
use corewise_ops::sorted::{Conditions, SortedOp, SortedRead, SortedWrite};
use corewise_ops::{Deadline, Delete, Get, ItemKind, Verb};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use std::collections::BTreeMap;
use std::sync::Arc;

for_every_engine! {
    operations_agree_with_filters_that_stand_alone
    a_long_compaction_runs_in_steps_beside_reads
    filters_that_fill_the_memory_are_evicted_and_counted
    a_filter_beyond_its_share_is_refused_and_evicts_nothing
    growth_without_room_is_refused_and_changes_nothing
    hostile_dumps_are_refused_or_bounded
    flushed_expired_and_replaced_filters_are_freed
    items_of_several_sessions_are_all_found
}

const REFUSE: WhileCompacting = WhileCompacting::Refuse;

fn hash(number: u64) -> u64 {
    item_hash(&number.to_le_bytes())
}

fn settings(capacity: u64, bucket_slots: u16, expansion: u16) -> CuckooSettings {
    CuckooSettings {
        capacity,
        bucket_slots,
        expansion,
        ..CuckooSettings::default()
    }
}

fn alone(settings: CuckooSettings) -> RedisCuckoo {
    RedisCuckoo::new(settings, &mut |_| true).expect("memory")
}

fn insertion(number: u64, only_new: bool, create: Option<CuckooSettings>) -> FilterWrite<'static> {
    FilterWrite::Add {
        hash: hash(number),
        only_new,
        create,
        beside: REFUSE,
    }
}

/// The parts of a dump: the iterator that comes with each, and its bytes.
type Dump = Vec<(i64, Vec<u8>)>;

fn dump_alone(filter: &RedisCuckoo, most: usize) -> Dump {
    let (mut parts, mut iterator) = (Dump::new(), 0);
    loop {
        let mut bytes = Vec::new();
        iterator = filter
            .dump(iterator, most, REFUSE, &mut bytes)
            .expect("settled");
        if iterator == 0 {
            return parts;
        }
        parts.push((iterator, bytes));
    }
}

impl<E: TestEngine> Cache<E> {
    fn read_filter(&mut self, key: &[u8], read: FilterRead) -> Seen {
        self.run(key, Verb::Filter(&FilterOp::Read(read)))
    }

    fn write_filter(&mut self, key: &[u8], write: FilterWrite<'_>) -> Seen {
        self.run(key, Verb::Filter(&FilterOp::Write(write)))
    }

    fn reserve(&mut self, key: &[u8], settings: CuckooSettings) -> Seen {
        self.write_filter(key, FilterWrite::Reserve(settings))
    }

    fn add_item(&mut self, key: &[u8], number: u64) -> Seen {
        self.write_filter(
            key,
            insertion(number, false, Some(CuckooSettings::default())),
        )
    }

    fn has_item(&mut self, key: &[u8], number: u64) -> bool {
        let seen = self.read_filter(key, FilterRead::Contains(hash(number)));
        seen == filter_result(FilterResult::Flag(true))
    }

    fn dump_filter(&mut self, key: &[u8], most: usize) -> Dump {
        let (mut parts, mut iterator) = (Dump::new(), 0);
        loop {
            let read = FilterRead::Dump {
                iterator,
                most,
                beside: REFUSE,
            };
            let Seen::Filter(FilterResult::Dump { next, .. }, bytes) = self.read_filter(key, read)
            else {
                panic!("the filter is there and settled");
            };
            if next == 0 {
                return parts;
            }
            parts.push((next, bytes));
            iterator = next;
        }
    }

    fn load_filter(&mut self, key: &[u8], dump: &Dump) {
        for (iterator, bytes) in dump {
            let write = match iterator {
                1 => FilterWrite::LoadHeader(bytes),
                _ => FilterWrite::LoadChunk {
                    iterator: *iterator,
                    chunk: bytes,
                    beside: REFUSE,
                },
            };
            assert_eq!(
                self.write_filter(key, write),
                filter_result(FilterResult::Done)
            );
        }
    }
}

fn filter_result(result: FilterResult<'static>) -> Seen {
    Seen::Filter(result, Vec::new())
}

/// What a key has.
enum ModelItem {
    String,
    Set,
    /// A filter, and how often each item was inserted and not removed.
    Filter(Box<RedisCuckoo>, BTreeMap<u64, u64>),
}

type Model = BTreeMap<Vec<u8>, ModelItem>;

fn draw_settings(random: &mut SmallRng) -> CuckooSettings {
    CuckooSettings {
        capacity: random.random_range(4..200),
        bucket_slots: random.random_range(1..5),
        max_iterations: random.random_range(1..30),
        expansion: random.random_range(0..4),
    }
}

fn check_add<E: TestEngine>(
    cache: &mut Cache<E>,
    random: &mut SmallRng,
    model: &mut Model,
    key: &[u8],
) {
    let (number, only_new) = (random.random_range(0..400), random.random_bool(0.3));
    let create = random.random_bool(0.7).then(|| draw_settings(random));
    let seen = cache.write_filter(key, insertion(number, only_new, create));
    if !model.contains_key(key) {
        let Some(create) = create else {
            assert_eq!(seen, filter_result(FilterResult::Missing));
            return;
        };
        let empty = ModelItem::Filter(Box::new(alone(create)), BTreeMap::new());
        model.insert(key.to_vec(), empty);
    }
    let Some(ModelItem::Filter(filter, items)) = model.get_mut(key) else {
        return assert_eq!(seen, Seen::WrongKind);
    };
    let may = &mut |_| true;
    let added = if only_new {
        filter.add_nx(hash(number), REFUSE, may)
    } else {
        filter.add(hash(number), REFUSE, may).map(|()| true)
    };
    *items.entry(number).or_default() += u64::from(added == Ok(true));
    let expected = match added {
        Ok(is_added) => FilterResult::Flag(is_added),
        Err(AddError::Full) => FilterResult::Full,
        Err(AddError::MaxSubfilters) => FilterResult::MaxSubfilters,
        Err(error) => panic!("{error}"),
    };
    assert_eq!(seen, filter_result(expected));
}

fn check_remove<E: TestEngine>(
    cache: &mut Cache<E>,
    random: &mut SmallRng,
    model: &mut Model,
    key: &[u8],
) {
    let mut number = random.random_range(0..400);
    // One that was not inserted could take the copy of another.
    if let Some(ModelItem::Filter(_, items)) = model.get(key) {
        let present = items
            .iter()
            .find(|(at, count)| **at >= number && **count > 0);
        let Some((present, _)) = present else { return };
        number = *present;
    }
    let seen = cache.write_filter(
        key,
        FilterWrite::Remove {
            hash: hash(number),
            beside: REFUSE,
        },
    );
    match model.get_mut(key) {
        None => assert_eq!(seen, filter_result(FilterResult::Missing)),
        Some(ModelItem::Filter(filter, items)) => {
            let removal = filter.remove(hash(number), REFUSE).expect("settled");
            while filter.compact_step(STEP_WORK) {}
            let expected = FilterResult::Removed {
                is_removed: true,
                must_compact: removal.must_compact,
            };
            assert_eq!(seen, filter_result(expected));
            *items.get_mut(&number).expect("inserted") -= 1;
            while removal.must_compact
                && cache.write_filter(key, FilterWrite::Step) != filter_result(FilterResult::Done)
            {
            }
        }
        Some(_) => assert_eq!(seen, Seen::WrongKind),
    }
}

fn check_transfer<E: TestEngine>(
    cache: &mut Cache<E>,
    model: &mut Model,
    [from, to]: [&[u8]; 2],
    copies: bool,
) {
    let moved = cache.transfer_set(from, to, copies);
    assert_eq!(moved, Ok(model.contains_key(from)));
    let item = match model.get(from) {
        Some(ModelItem::Filter(filter, items)) if copies => {
            let copy = Box::new(filter.try_clone().expect("memory"));
            Some(ModelItem::Filter(copy, items.clone()))
        }
        Some(ModelItem::Set) if copies => Some(ModelItem::Set),
        _ => model.remove(from),
    };
    if let Some(item) = item {
        model.insert(to.to_vec(), item);
    }
}

/// Compacts, reserves, copies or moves a filter, or stores another kind.
fn check_other<E: TestEngine>(
    cache: &mut Cache<E>,
    random: &mut SmallRng,
    model: &mut Model,
    key: &[u8],
    other: &[u8],
) {
    match random.random_range(0..7) {
        0 => {
            let settings = draw_settings(random);
            let seen = cache.reserve(key, settings);
            match model.get(key) {
                None => {
                    assert_eq!(seen, filter_result(FilterResult::Done));
                    let filter = ModelItem::Filter(Box::new(alone(settings)), BTreeMap::new());
                    model.insert(key.to_vec(), filter);
                }
                Some(ModelItem::Filter(..)) => {
                    assert_eq!(seen, filter_result(FilterResult::Exists));
                }
                Some(_) => assert_eq!(seen, Seen::WrongKind),
            }
        }
        1 => {
            let seen = cache.write_filter(key, FilterWrite::StartCompaction);
            if let Some(ModelItem::Filter(filter, _)) = model.get(key) {
                assert_eq!(seen, filter_result(FilterResult::Done));
                filter.start_compaction().expect("none runs");
                while filter.compact_step(STEP_WORK) {}
                while cache.write_filter(key, FilterWrite::Step)
                    != filter_result(FilterResult::Done)
                {}
            }
        }
        2 | 3 if key != other && !matches!(model.get(key), Some(ModelItem::String)) => {
            check_transfer(cache, model, [key, other], random.random_bool(0.5));
        }
        4 => {
            let seen = cache.delete(key, Delete::default());
            assert_eq!(seen == Seen::Deleted, model.remove(key).is_some());
        }
        5 => {
            assert!(cache.set(key, b"value").is_stored());
            model.insert(key.to_vec(), ModelItem::String);
        }
        _ => {
            let pairs: &[(f64, &[u8])] = &[(1.0, b"member")];
            let conditions = Conditions::default();
            let add = SortedOp::Write(SortedWrite::Add { pairs, conditions });
            let seen = cache.run(key, Verb::Sorted(&add));
            if let Some(ModelItem::Filter(..) | ModelItem::String) = model.get(key) {
                assert_eq!(seen, Seen::WrongKind);
            } else {
                model.insert(key.to_vec(), ModelItem::Set);
            }
        }
    }
}

/// All that can be read of a key.
fn check_reads<E: TestEngine>(
    cache: &mut Cache<E>,
    random: &mut SmallRng,
    model: &Model,
    key: &[u8],
) {
    let number = random.random_range(0..400);
    let contains = cache.read_filter(key, FilterRead::Contains(hash(number)));
    let Some(ModelItem::Filter(filter, items)) = model.get(key) else {
        let expected = match model.get(key) {
            None => filter_result(FilterResult::Missing),
            Some(_) => Seen::WrongKind,
        };
        return assert_eq!(contains, expected);
    };
    let flag = FilterResult::Flag(filter.contains(hash(number)));
    assert_eq!(contains, filter_result(flag));
    let count = FilterResult::Count(filter.count(hash(number)));
    let seen = cache.read_filter(key, FilterRead::Count(hash(number)));
    assert_eq!(seen, filter_result(count));
    let info = filter.info(REFUSE).expect("settled");
    let seen = cache.read_filter(key, FilterRead::Info(REFUSE));
    assert_eq!(seen, filter_result(FilterResult::Info(info)));
    // A filter that nothing but its own items were removed from loses none.
    for (number, _) in items.iter().filter(|(_, count)| **count > 0) {
        assert!(cache.has_item(key, *number), "{number} was inserted");
    }
    assert!(cache.dump_filter(key, 100) == dump_alone(filter, 100));
    assert_eq!(cache.get(key), Seen::WrongKind);
    let mut kind = ItemKind::String;
    cache.scan(64, |item| {
        if item.key == key {
            kind = item.kind;
        }
    });
    assert_eq!(kind, ItemKind::Filter);
}

fn operations_agree_with_filters_that_stand_alone<E: TestEngine>() {
    const KEYS: [&[u8]; 4] = [b"a", b"b", b"c", b"d"];
    let (mut cache, mut model) = (Cache::<E>::roomy(), Model::new());
    let mut random = SmallRng::seed_from_u64(1);
    let mut filters = 0;
    for step in 0..fewer(4_000) {
        let key = KEYS[random.random_range(0..KEYS.len())];
        let other = KEYS[random.random_range(0..KEYS.len())];
        match random.random_range(0..40) {
            0 => check_other(&mut cache, &mut random, &mut model, key, other),
            1..14 => check_remove(&mut cache, &mut random, &mut model, key),
            _ => check_add(&mut cache, &mut random, &mut model, key),
        }
        if step % 8 == 0 {
            check_reads(&mut cache, &mut random, &model, key);
        }
        if step % 64 == 0 {
            cache.maintain();
            cache.assert_sets_are_counted();
            let is_filter = |item: &&ModelItem| matches!(item, ModelItem::Filter(..));
            filters += model.values().filter(is_filter).count();
        }
    }
    assert!(filters > 1, "{filters} filters");
    for key in model.keys() {
        assert_eq!(cache.delete(key, Delete::default()), Seen::Deleted);
    }
    cache.maintain();
    cache.assert_no_sets();
}

/// A filter of two subfilters, the second empty, whose compaction takes several steps.
fn a_long_compaction_runs_in_steps_beside_reads<E: TestEngine>() {
    let mut setup = Setup::roomy();
    setup.memory *= 4;
    let settings = settings(1 << 16, 2, 32);
    let (mut cache, filter) = (Cache::<E>::new(setup), alone(settings));
    assert_eq!(
        cache.reserve(b"k", settings),
        filter_result(FilterResult::Done)
    );
    let mut number = 0;
    while filter.info(REFUSE).expect("settled").subfilters < 2 {
        number += 1;
        let added = filter.add(hash(number), REFUSE, &mut |_| true);
        assert_eq!(added, Ok(()));
        let seen = cache.add_item(b"k", number);
        assert_eq!(seen, filter_result(FilterResult::Flag(true)));
    }
    let remove = |number| FilterWrite::Remove {
        hash: hash(number),
        beside: REFUSE,
    };
    let removed = filter_result(FilterResult::Removed {
        is_removed: true,
        must_compact: false,
    });
    filter.remove(hash(number), REFUSE).expect("settled");
    assert_eq!(cache.write_filter(b"k", remove(number)), removed);
    cache.assert_sets_are_counted();
    let two = cache.engine.stats().set_bytes;
    filter.start_compaction().expect("none runs");
    let mut steps = 1;
    while filter.compact_step(STEP_WORK) {
        steps += 1;
    }
    filter.remove(hash(1), REFUSE).expect("settled");
    let busy = filter_result(FilterResult::Busy);
    let started = cache.write_filter(b"k", FilterWrite::StartCompaction);
    assert_eq!(started, filter_result(FilterResult::Done));
    assert_eq!(cache.write_filter(b"k", FilterWrite::StartCompaction), busy);
    assert_eq!(cache.read_filter(b"k", FilterRead::Info(REFUSE)), busy);
    assert!(cache.has_item(b"k", 1) && cache.has_item(b"k", number - 1));
    let beside = FilterRead::Info(WhileCompacting::Proceed);
    let seen = cache.read_filter(b"k", beside);
    assert!(
        matches!(seen, Seen::Filter(FilterResult::Info(_), _)),
        "{seen:?}"
    );
    // It has made one step, and has refused two operations. Those that wait make the other steps,
    // one of 64 refusals each.
    let refusals = 64 * (steps - 1);
    assert!(refusals > 2);
    for _ in 2..refusals {
        assert_eq!(cache.write_filter(b"k", remove(1)), busy);
    }
    assert_eq!(cache.write_filter(b"k", remove(1)), removed);
    while cache.write_filter(b"k", FilterWrite::Step) == busy {}
    assert!(cache.dump_filter(b"k", MAX_CHUNK) == dump_alone(&filter, MAX_CHUNK));
    cache.assert_sets_are_counted();
    let one = cache.engine.stats().set_bytes;
    assert!(one < two / 8, "what was emptied is freed: {one} of {two}");
    cache.delete(b"k", Delete::default());
    cache.maintain();
    cache.assert_no_sets();
}

fn filters_that_fill_the_memory_are_evicted_and_counted<E: TestEngine>() {
    let mut setup = Setup::tight::<E>(1);
    setup.memory *= 4;
    let mut cache = Cache::<E>::new(setup);
    let mut random = SmallRng::seed_from_u64(7);
    let most = setup.memory / 16;
    for step in 0..fewer(1_600) {
        if step % 4 == 0 {
            let seen = cache.set(format!("string {step}").as_bytes(), &[7; 300]);
            assert!(seen.is_stored(), "{seen:?}");
        }
        let key = format!("key {step}");
        let capacity = random.random_range(most / 16..most / 4);
        let seen = cache.reserve(key.as_bytes(), settings(capacity, 2, 1));
        // Each filter is far smaller than the memory, so all have room.
        assert_eq!(seen, filter_result(FilterResult::Done));
        for number in 0..20 {
            let seen = cache.add_item(key.as_bytes(), number);
            assert_eq!(seen, filter_result(FilterResult::Flag(true)));
        }
        cache.assert_memory_within_budget();
        if step % 16 == 0 {
            cache.maintain();
            cache.assert_sets_are_counted();
        }
    }
    let stats = cache.engine.stats();
    assert!(stats.evictions > 0 && stats.sets > 0, "{stats:?}");
    cache.engine.flush_all(Deadline::PAST, cache.now);
    cache.maintain();
    cache.assert_no_sets();
}

fn a_filter_beyond_its_share_is_refused_and_evicts_nothing<E: TestEngine>() {
    let mut cache = Cache::<E>::new(Setup::tight::<E>(1));
    assert!(cache.set(b"string", b"value").is_stored());
    let memory = cache.engine.memory_limit();
    for capacity in [memory, 1 << 30, 1 << 62] {
        let seen = cache.reserve(b"k", settings(capacity, 1, 1));
        assert_eq!(seen, Seen::OutOfMemory, "{capacity}");
    }
    let mut header = [0; HEADER_BYTES];
    header[8..16].copy_from_slice(&(1_u64 << 50).to_le_bytes());
    (header[24], header[32], header[34]) = (1, 255, 20);
    let seen = cache.write_filter(b"k", FilterWrite::LoadHeader(&header));
    assert_eq!(seen, Seen::OutOfMemory);
    assert_eq!(cache.get(b"string").value(), Some(&b"value"[..]));
    assert!(matches!(cache.get(b"k"), Seen::Missing(_)));
    assert!(cache.engine.stats().out_of_memory > 0);
    // A small part of the memory is within the share.
    let seen = cache.reserve(b"k", settings(memory / 32, 1, 1));
    assert_eq!(seen, filter_result(FilterResult::Done));
    cache.assert_memory_within_budget();
    cache.assert_sets_are_counted();
}

fn growth_without_room_is_refused_and_changes_nothing<E: TestEngine>() {
    let mut cache = Cache::<E>::new(Setup::tight::<E>(1));
    let capacity = 1 << 12;
    // The second subfilter is larger than the memory.
    let seen = cache.reserve(b"k", settings(capacity, 2, 1 << 15));
    assert_eq!(seen, filter_result(FilterResult::Done));
    let mut number = 0;
    while cache.add_item(b"k", number) == filter_result(FilterResult::Flag(true)) {
        number += 1;
    }
    assert!(number > capacity / 2, "{number}");
    let before = cache.dump_filter(b"k", MAX_CHUNK);
    assert_eq!(cache.add_item(b"k", number), Seen::OutOfMemory);
    assert!(cache.dump_filter(b"k", MAX_CHUNK) == before);
    assert!((0..number).all(|number| cache.has_item(b"k", number)));
    cache.assert_sets_are_counted();
}

/// Bytes of which some are other ones than those of a right header.
fn hostile_header(random: &mut SmallRng, right: &[u8]) -> Vec<u8> {
    let mut header = right.to_vec();
    for _ in 0..random.random_range(0..4) {
        let at = random.random_range(0..header.len());
        header[at] = match random.random_range(0..3) {
            0 => 0,
            1 => 1 << random.random_range(0..8),
            _ => random.random(),
        };
    }
    header.truncate(random.random_range(30..60));
    header
}

/// Chunks that are wrong or that no filter has, and other operations between them.
fn load_hostile_chunks<E: TestEngine>(cache: &mut Cache<E>, random: &mut SmallRng) {
    for _ in 0..8 {
        let chunk = vec![random.random(); random.random_range(0..80)];
        let iterator = match random.random_range(0..4) {
            0 => random.random(),
            1 => -random.random_range(0..100_i64),
            _ => random.random_range(0..2_000_i64),
        };
        let beside = REFUSE;
        let load = FilterWrite::LoadChunk {
            iterator,
            chunk: &chunk,
            beside,
        };
        let remove = FilterWrite::Remove {
            hash: random.random(),
            beside,
        };
        let (start, step) = (FilterWrite::StartCompaction, FilterWrite::Step);
        for write in [load, remove, start, step] {
            let seen = cache.write_filter(b"k", write);
            assert!(matches!(seen, Seen::Filter(..)), "{seen:?}");
        }
        let read = FilterRead::Dump {
            iterator,
            most: 50,
            beside: WhileCompacting::Proceed,
        };
        let seen = cache.read_filter(b"k", read);
        assert!(matches!(seen, Seen::Filter(..)), "{seen:?}");
        let seen = cache.add_item(b"k", random.random());
        let is_right = matches!(seen, Seen::Filter(..) | Seen::OutOfMemory);
        assert!(is_right, "{seen:?}");
    }
}

fn hostile_dumps_are_refused_or_bounded<E: TestEngine>() {
    let mut cache = Cache::<E>::new(Setup::tight::<E>(1));
    let mut random = SmallRng::seed_from_u64(3);
    let filter = alone(settings(64, 2, 2));
    for number in 0..300 {
        let added = filter.add(hash(number), REFUSE, &mut |_| true);
        assert_eq!(added, Ok(()));
    }
    let dump = dump_alone(&filter, 50);
    cache.load_filter(b"right", &dump);
    assert!(cache.dump_filter(b"right", 50) == dump);
    let (mut loaded, mut refused) = (0, 0);
    for _ in 0..fewer(2_000) {
        let header = hostile_header(&mut random, &dump[0].1);
        cache.delete(b"k", Delete::default());
        match cache.write_filter(b"k", FilterWrite::LoadHeader(&header)) {
            Seen::Filter(FilterResult::Done, _) => loaded += 1,
            Seen::Filter(FilterResult::Invalid, _) | Seen::OutOfMemory => {
                refused += 1;
                continue;
            }
            other => panic!("{other:?}"),
        }
        load_hostile_chunks(&mut cache, &mut random);
        cache.assert_memory_within_budget();
    }
    assert!(
        loaded > 10 && refused > 10,
        "{loaded} loaded, {refused} refused"
    );
}

fn flushed_expired_and_replaced_filters_are_freed<E: TestEngine>() {
    let mut cache = Cache::<E>::roomy();
    let fill = |cache: &mut Cache<E>, key: &[u8]| {
        let seen = cache.reserve(key, settings(1 << 17, 2, 1));
        assert_eq!(seen, filter_result(FilterResult::Done));
        cache.assert_sets_are_counted();
    };
    fill(&mut cache, b"replaced");
    assert!(cache.set(b"replaced", b"value").is_stored());
    fill(&mut cache, b"expired");
    let touch = Get {
        any_kind: true,
        ..Get::touching(Deadline::after_ms(cache.now, 1_000))
    };
    cache.run(b"expired", Verb::Get(touch));
    cache.now = later(2_000);
    assert!(!cache.has_item(b"expired", 0));
    cache.maintain();
    cache.assert_no_sets();
    fill(&mut cache, b"flushed");
    let usage = SortedOp::Read(SortedRead::Usage);
    assert!(matches!(
        cache.run(b"flushed", Verb::Sorted(&usage)),
        Seen::Sorted(_)
    ));
    cache.engine.flush_all(Deadline::PAST, cache.now);
    cache.maintain();
    cache.assert_no_sets();
}

fn items_of_several_sessions_are_all_found<E: TestEngine>() {
    const THREADS: u64 = 4;
    let engine = Arc::new(E::make(Setup::roomy()));
    let each = fewer(2_000);
    let run = |thread: u64| {
        let mut cache = Cache::over(&engine);
        for number in 0..each {
            let item = thread * each + number;
            let seen = cache.add_item(b"k", item);
            assert_eq!(seen, filter_result(FilterResult::Flag(true)));
            assert!(cache.has_item(b"k", item));
        }
    };
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            scope.spawn(move || run(thread));
        }
    });
    let mut cache = Cache::over(&engine);
    assert!((0..THREADS * each).all(|item| cache.has_item(b"k", item)));
    let Seen::Filter(FilterResult::Info(info), _) =
        cache.read_filter(b"k", FilterRead::Info(REFUSE))
    else {
        panic!("the filter is there");
    };
    assert_eq!(info.items, THREADS * each);
    cache.maintain();
    cache.assert_sets_are_counted();
}
