//! The engine's memory guarantees, as properties over limits, sessions, sizes and operations, with
//! an oracle that knows every acknowledged item. Invariants are checked after every batch, not only
//! at the end: a cache that empties itself now and then is full at most ends.
//!
//! Sessions take turns in one thread, so a run is determined by its seed. `COREWISE_SEED=n` runs
//! the random mixture with another seed.

use super::heap::ItemSizeClass;
use super::*;
use corewise_atomic::alloc;
use corewise_ops::{Arith, Delete, Get, Outcome, Store, StoreMode, Token, Verb};
use corewise_testkit::random::{fewer, is_short};
use std::collections::HashMap;

const MIB: u64 = 1 << 20;
/// Bytes stored between two checks.
const BATCH: u64 = 32 << 10;

/// Bytes that an item takes beside its value.
const HEAD: usize = 48;

// ---- a cache and what should be in it

/// The last outcome.
#[derive(Debug, PartialEq)]
enum LastOutcome {
    /// Stamp and length of the value.
    Value(u64, usize),
    Number(u64),
    Stored,
    Deleted,
    Missing,
    OutOfMemory,
}

struct Sink(Option<LastOutcome>);

impl ReplySink for Sink {
    fn complete(&mut self, _: Token, outcome: Outcome<'_>) -> Flow {
        self.0 = Some(match outcome {
            Outcome::Found(view) => LastOutcome::Value(stamp_of(view.value), view.value.len()),
            Outcome::Stored(_) => LastOutcome::Stored,
            Outcome::Counter { value, .. } => LastOutcome::Number(value),
            Outcome::Deleted => LastOutcome::Deleted,
            Outcome::Missing(_) | Outcome::NotStored => LastOutcome::Missing,
            Outcome::OutOfMemory => LastOutcome::OutOfMemory,
            Outcome::Exists
            | Outcome::NonNumeric
            | Outcome::TooLarge
            | Outcome::Edited { .. }
            | Outcome::WrongKind
            | Outcome::Sorted { .. }
            | Outcome::Filter { .. }
            | Outcome::Refused(_) => {
                panic!("an outcome that no operation here has")
            }
        });
        Flow::Continue
    }
}

/// The stamp of a value: its first eight bytes, which must equal its last eight.
fn stamp_of(value: &[u8]) -> u64 {
    let Some(first) = value.first_chunk() else {
        return 0;
    };
    assert_eq!(Some(first), value.last_chunk(), "a value is whole");
    u64::from_le_bytes(*first)
}

/// A plain `set`.
fn set_of(value: &[u8], deadline: Deadline) -> Verb<'_> {
    Verb::Store(Store::new(StoreMode::Set, value).until(deadline))
}

/// Fills `value` with `length` bytes that begin and end with the stamp.
fn stamp_value(value: &mut Vec<u8>, stamp: u64, length: usize) {
    value.resize(length, 7);
    value[..8].copy_from_slice(&stamp.to_le_bytes());
    value[length - 8..].copy_from_slice(&stamp.to_le_bytes());
}

struct Cache {
    engine: Arc<Relativistic>,
    sessions: Vec<RelativisticSession>,
    turn: usize,
    now: Now,
    /// Stamp and length of the value, by key.
    oracle: HashMap<u64, (u64, usize)>,
    stamps: u64,
    value: Vec<u8>,
    stored_bytes: u64,
    checked: Checked,
}

/// What the last check saw.
#[derive(Clone, Copy, Default)]
struct Checked {
    evictions: u64,
    stored_bytes: u64,
    held: u64,
    /// Bytes of the table, including the growth that it was granted.
    arrays: u64,
}

impl Cache {
    fn new(memory: u64, sessions: usize, eviction: Eviction) -> Self {
        let engine = Arc::new(Relativistic::new(Config {
            memory,
            max_item_bytes: memory as usize / 2,
            eviction,
            huge_pages: false,
        }));
        Self {
            sessions: (0..sessions).map(|_| engine.session()).collect(),
            engine,
            turn: 0,
            now: Now::new(10_000, 1_700_000_000),
            oracle: HashMap::new(),
            stamps: 0,
            value: Vec::new(),
            stored_bytes: 0,
            checked: Checked::default(),
        }
    }

    fn run(&mut self, key: u64, verb: Verb<'_>) -> LastOutcome {
        self.turn = (self.turn + 1) % self.sessions.len();
        let mut sink = Sink(None);
        let key = key.to_le_bytes();
        let ops = [Op::new(0, &key, verb)];
        self.sessions[self.turn].submit(self.now, &ops, &mut sink);
        sink.0.expect("an outcome")
    }

    fn set_until(&mut self, key: u64, length: usize, deadline: Deadline) -> bool {
        self.stamps += 1;
        let (stamp, length) = (self.stamps, length.max(16));
        let mut value = std::mem::take(&mut self.value);
        stamp_value(&mut value, stamp, length);
        let verb = set_of(&value, deadline);
        let seen = self.run(key, verb);
        self.value = value;
        match seen {
            LastOutcome::Stored => {
                self.stored_bytes += (length + HEAD) as u64;
                self.oracle.insert(key, (stamp, length));
                true
            }
            LastOutcome::OutOfMemory => {
                // A refused set removes the item that it would have overwritten.
                self.oracle.remove(&key);
                false
            }
            other => panic!("{other:?}"),
        }
    }

    fn set(&mut self, key: u64, length: usize) -> bool {
        self.set_until(key, length, Deadline::NEVER)
    }

    /// The same for a value that is received in place, if the engine reserves room for it.
    fn set_in_place(&mut self, key: u64, length: usize) -> bool {
        let (turn, bytes) = ((self.turn + 1) % self.sessions.len(), key.to_le_bytes());
        let reserved = self.sessions[turn].reserve(self.now, &bytes, length, 0, length / 2);
        let Some(mut reservation) = reserved else {
            return self.set(key, length);
        };
        self.turn = turn;
        self.stamps += 1;
        let stamp = self.stamps;
        let mut value = Vec::new();
        stamp_value(&mut value, stamp, length);
        reservation.extend(&value);
        let op = Op::new(0, &bytes, set_of(b"", Deadline::NEVER));
        let mut sink = Sink(None);
        self.sessions[turn].submit_reserved(self.now, &op, reservation, &mut sink);
        let is_stored = sink.0 == Some(LastOutcome::Stored);
        if is_stored {
            self.stored_bytes += (length + HEAD) as u64;
            self.oracle.insert(key, (stamp, length));
        } else {
            self.oracle.remove(&key);
        }
        is_stored
    }

    /// Whether the key is present. If so, checks that it has the value stored last.
    fn get(&mut self, key: u64) -> bool {
        match self.run(key, Verb::Get(Get::default())) {
            LastOutcome::Value(stamp, length) => {
                assert_eq!(self.oracle.get(&key), Some(&(stamp, length)), "key {key}");
                true
            }
            LastOutcome::Missing => false,
            other => panic!("{other:?}"),
        }
    }

    fn incr(&mut self, key: u64) -> LastOutcome {
        let verb = Verb::Arith(Arith::new(1));
        self.run(key, verb)
    }

    fn touch(&mut self, key: u64, deadline: Deadline) -> LastOutcome {
        let get = Get::touching(deadline);
        self.run(key, Verb::Get(get))
    }

    fn delete(&mut self, key: u64) {
        self.run(key, Verb::Delete(Delete::default()));
        self.oracle.remove(&key);
    }

    fn flush(&mut self) {
        self.engine.flush_all(Deadline::PAST, self.now);
        self.oracle.clear();
    }

    fn copied_bytes(&self) -> u64 {
        let mut sum = 0;
        let registry = self.engine.counters.lock();
        registry.sum(|counters| sum += counters.copied_bytes.get());
        sum
    }

    // ---- what must hold at any time

    /// Bytes of items and tables as a share of the limit.
    fn share(&self) -> f64 {
        self.engine.stats().bytes as f64 / self.engine.memory_limit() as f64
    }

    /// The least share that must be in use once the cache is full of items of up to `bytes` bytes.
    /// Where only some items fit, up to one item's bytes may be missing.
    fn least_share(&self, bytes: usize) -> f64 {
        let limit = self.engine.memory_limit();
        let least = if limit < 16 * MIB { 0.60 } else { 0.80 };
        let item = (bytes + HEAD) as f64 / limit as f64;
        if item > 1.0 / 16.0 {
            least - item
        } else {
            least
        }
    }

    /// Checks that segments, tables and the policy's data lie within the limit, and so do the
    /// resident bytes.
    fn assert_budget(&mut self) {
        let engine = &self.engine;
        let fixed = engine.table.array_bytes() as u64 + engine.policy.bytes();
        let (held, resident) = (
            engine.heap.held_bytes() + fixed,
            engine.heap.resident() + fixed,
        );
        // A shrinking table has its new array in addition for a while.
        let state = engine.table.resize_state();
        let smaller = state.building.filter(|building| *building < state.buckets);
        // Bytes held beyond the limit were held before the limit fell.
        let most = engine.memory_limit().max(self.checked.held) + array_bytes(smaller.unwrap_or(0));
        assert!(held <= most, "{held} bytes held, {most} allowed");
        assert!(
            resident <= most,
            "{resident} bytes resident, {most} allowed"
        );
        self.checked.held = held;
    }

    /// Checks that nothing was evicted without need since the last check, if all items have `bytes`
    /// bytes.
    fn assert_evicted_no_more_than_stored(&mut self, bytes: usize) {
        let evictions = self.engine.stats().evictions;
        let evicted = (evictions - self.checked.evictions) * bytes as u64;
        let stored = self.stored_bytes - self.checked.stored_bytes;
        let engine = &self.engine;
        let active = engine.active.load(Ordering::Relaxed) as u64;
        let arrays = engine.table.array_bytes() as u64 + engine.granted_bytes();
        let grown = arrays.saturating_sub(self.checked.arrays);
        let most = stored + engine.reserve() + active * engine.heap.segment_bytes() + grown;
        assert!(
            evicted <= most,
            "{evicted} bytes evicted for {stored} stored"
        );
        self.checked.evictions = evictions;
        self.checked.stored_bytes = self.stored_bytes;
        self.checked.arrays = arrays;
    }
}

/// A reproducible random number generator.
struct Draw(u64);

impl Draw {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        ((u128::from(self.0 >> 11) * u128::from(bound)) >> 53) as u64
    }

    /// A size from `least` to `most`, each power of two equally often.
    fn size(&mut self, least: usize, most: usize) -> usize {
        let (from, to) = ((least as f64).ln(), (most as f64).ln());
        let at = self.below(1 << 20) as f64 / f64::from(1u32 << 20);
        (from + (to - from) * at).exp() as usize
    }
}

/// The step with which a list is tried: `step`, or larger with `COREWISE_FEWER`.
fn every(step: usize) -> usize {
    if is_short() { 8 * step } else { step }
}

/// Value sizes from 50 bytes to a quarter of the limit: some per power of two, and those at which
/// an item changes its kind.
fn sizes(memory: u64) -> Vec<usize> {
    let segment = Heap::new(memory, false, false).unwrap().segment_bytes() as usize;
    let mut sizes = vec![
        segment / 16,
        segment / 2,
        segment / 3,
        segment / 4,
        segment / 13,
        segment,
    ];
    for edge in sizes.clone() {
        sizes.push(edge - HEAD);
        sizes.push(edge + 1);
    }
    let mut size = 50.0;
    while size < memory as f64 / 4.0 {
        sizes.push(size as usize);
        size *= 2.7;
    }
    sizes.push(memory as usize / 4 - 100);
    sizes.sort_unstable();
    sizes
}

/// Writes `bytes` bytes of new keys, with sizes from `size`. After every batch, checks that the
/// cache has stayed full since it first was.
fn write_through(
    cache: &mut Cache,
    keys: &mut u64,
    bytes: u64,
    mut size: impl FnMut(u64) -> usize,
    mut check: impl FnMut(&mut Cache),
) {
    let end = cache.stored_bytes + bytes;
    let (mut written, mut batch) = (0, 0);
    while cache.stored_bytes < end {
        let length = size(written);
        *keys += 1;
        written += 1;
        batch += length as u64;
        assert!(
            cache.set(*keys, length),
            "a store of {length} bytes is refused"
        );
        if batch >= BATCH {
            batch = 0;
            let turn = cache.turn;
            let now = cache.now;
            cache.sessions[turn].maintain(now);
            cache.assert_budget();
            check(cache);
        }
        if cache.oracle.len() > 1 << 20 {
            cache.oracle.clear(); // the caller asks for no key
        }
    }
}

fn assert_full(cache: &Cache, bytes: usize, what: &str) {
    if cache.engine.stats().evictions > 0 {
        let (share, least) = (cache.share(), cache.least_share(bytes));
        assert!(share >= least, "{what}: {share:.3} of the limit in use");
    }
}

// ---- full and staying full

fn stays_full(memory: u64, sessions: usize, sizes: impl Iterator<Item = usize>) {
    for size in sizes {
        let what = format!("{} MiB, {sessions} sessions, {size} bytes", memory / MIB);
        let mut cache = Cache::new(memory, sessions, Eviction::S3Fifo);
        let footprint = cache.engine.heap.rounded(size.max(8) + 8 + 32);
        write_through(
            &mut cache,
            &mut 0,
            3 * memory,
            |_| size,
            |cache| {
                assert_full(cache, size, &what);
                cache.assert_evicted_no_more_than_stored(footprint);
            },
        );
        assert!(cache.engine.stats().evictions > 0, "{what}: it was filled");
    }
}

/// Mutants `keeps_tails`, `an_appender_each`.
#[test]
fn a_full_cache_stays_full_at_every_size() {
    // Other sizes for each number of sessions.
    for memory in [MIB, 2 * MIB, 4 * MIB] {
        for (first, sessions) in [1, 4, 64].into_iter().enumerate() {
            let sizes = sizes(memory).into_iter().skip(first);
            stays_full(memory, sessions, sizes.step_by(every(5)));
        }
    }
    for (memory, sessions) in [(16 * MIB, 1), (16 * MIB, 64), (64 * MIB, 8)] {
        // Without the smallest, of which there are millions.
        let (first, few) = if memory > 16 * MIB { (3, 10) } else { (2, 5) };
        let sizes = sizes(memory).into_iter().skip(first);
        stays_full(memory, sessions, sizes.step_by(every(few)));
    }
}

/// Mutant `counts_unused_as_gain`.
#[test]
fn a_full_cache_stays_full_when_sizes_mix_shift_and_grow() {
    let mut draw = Draw(3);
    for round in 0..fewer(24) {
        let memory = [MIB, 3 * MIB, 16 * MIB, 24 * MIB][round as usize % 4];
        let sessions = [1, 3, 16][draw.below(3) as usize];
        let most = memory as usize / 4 - 100;
        let (a, b) = (draw.size(50, most), draw.size(50, most));
        let what = format!("{memory} bytes, {sessions} sessions, sizes {a} and {b}");
        let mut cache = Cache::new(memory, sessions, Eviction::S3Fifo);
        let mut keys = 0;
        let full = |cache: &mut Cache| assert_full(cache, a.max(b), &what);
        let full_of_any = |cache: &mut Cache| assert_full(cache, most, &what);
        let both = 2 * memory;
        write_through(
            &mut cache,
            &mut keys,
            both,
            |i| if i % 2 == 0 { a } else { b },
            full,
        );
        write_through(&mut cache, &mut keys, both, |_| a, full);
        write_through(&mut cache, &mut keys, both, |_| b, full);
        write_through(
            &mut cache,
            &mut keys,
            both,
            |_| draw.size(50, most),
            full_of_any,
        );
        let grow = |i: u64| ((50.0 * 1.01f64.powi(i.min(4000) as i32)) as usize).min(most);
        write_through(&mut cache, &mut keys, both, grow, full_of_any);
    }
}

/// Overwriting leaves dead items, which must not take the place of live ones.
#[test]
fn a_full_cache_stays_full_while_it_is_overwritten() {
    let mut draw = Draw(5);
    for round in 0..fewer(12) {
        let memory = [2 * MIB, 16 * MIB, 20 * MIB][round as usize % 3];
        let size = draw.size(100, memory as usize / 16);
        let what = format!("{memory} bytes, overwritten with {size} bytes");
        let mut cache = Cache::new(memory, 2, Eviction::S3Fifo);
        let keys = 3 * memory / size as u64;
        let mut stored = 0;
        while stored < 4 * memory {
            cache.set(draw.below(keys), size);
            stored += size as u64;
            if draw.below(16) == 0 {
                cache.assert_budget();
                // Dead items may be part of a segment until they are a sixth of it.
                let least = cache.least_share(size) - 0.10;
                let is_filled = cache.engine.stats().evictions > 0;
                assert!(
                    !is_filled || cache.share() >= least,
                    "{what}: {}",
                    cache.share()
                );
            }
        }
    }
}

// ---- overwriting with room to spare

/// Bytes that an item takes in a full segment, or in its run.
fn packed_bytes(heap: &Heap, bytes: usize) -> f64 {
    let (segment, page) = (heap.segment_bytes() as usize, alloc::page_bytes());
    let items = segment / bytes.min(segment);
    let (held, items) = match heap.size_class(bytes) {
        ItemSizeClass::Small => (segment, items),
        ItemSizeClass::Medium => (items * bytes, items),
        ItemSizeClass::Large => (bytes, 1),
    };
    (held.next_multiple_of(page) / items) as f64
}

/// Overwrites live items that take `percent` of the memory, with values of `size(draw)` bytes, of
/// which the mean is `mean`. Checks that nothing is evicted, that at most `room` times the live
/// bytes are resident, so that dead room is used again before untouched pages are, and that
/// compaction copies little, from the first overwrite on.
fn overwrites(
    memory: u64,
    percent: u64,
    mean: usize,
    room: f64,
    size: impl Fn(&mut Draw) -> usize,
) {
    let what = format!("{} MiB, {mean} bytes, {percent} % live", memory / MIB);
    let mut draw = Draw(mean as u64 + percent);
    let mut cache = Cache::new(memory, 2, Eviction::S3Fifo);
    let engine = cache.engine.clone();
    let heap = &engine.heap;
    // The reserve, and an open segment of each kind.
    let apart = engine.reserve() + 2 * heap.segment_bytes();
    let usable = (heap.allowed() - apart) as f64;
    let packed = packed_bytes(heap, heap.rounded(mean + HEAD - 8));
    // With what the table takes from items when it grows.
    let keys = (usable * percent as f64 / 100.0 / (packed + 16.0)) as u64;
    for key in 0..keys {
        assert!(cache.set(key, size(&mut draw)));
    }
    let overwritten = (2 * keys).max(2 * memory / mean as u64);
    let mut batch = 0;
    for _ in 0..overwritten {
        let length = size(&mut draw);
        batch += length as u64;
        assert!(cache.set(draw.below(keys), length), "{what}");
        if batch < 4 * BATCH {
            continue;
        }
        batch = 0;
        cache.assert_budget();
        let live = (keys as f64 * packed).max(engine.stats().bytes as f64);
        let slack = heap.allowed() as f64 / 16.0 + (2 * apart + packed as u64) as f64;
        let most = live * room + slack;
        let resident = heap.resident() as f64;
        assert!(
            resident <= most,
            "{what}: {resident} bytes resident for {live} live"
        );
    }
    let stats = engine.stats();
    assert_eq!((stats.evictions, stats.items), (0, keys), "{what}");
    let copies = cache.copied_bytes() as f64 / (overwritten as f64 * packed);
    let most_copies = if percent <= 70 { 1.5 } else { 8.0 };
    println!("{what}: {copies:.2} bytes copied for each stored");
    assert!(copies <= most_copies, "{what}: {copies} copies");
    for key in 0..keys {
        assert!(cache.get(key), "{what}: key {key} is gone");
    }
}

/// Mutants `grows_before_it_compacts`, `touches_first`, `forgets_sparse`.
#[test]
fn overwriting_uses_dead_room_and_evicts_nothing() {
    let small = [(2 * MIB, 60), (4 * MIB, 400), (4 * MIB, 1_500)];
    let sizes = [1_000, 3_800, 5_000, 14_000, 30_000, 40_000, 150_000];
    let sizes = sizes.map(|size| (16 * MIB, size));
    for (memory, size) in small.into_iter().chain(sizes) {
        for percent in [20, 39, 70, 90] {
            overwrites(memory, percent, size, 4.0 / 3.0, |_| size);
        }
    }
    for percent in [20, 39, 70] {
        // A quarter may be free in segments of another kind.
        overwrites(16 * MIB, percent, 20_000, 5.0 / 3.0, |draw| {
            100 + draw.below(39_800) as usize
        });
    }
}

/// Mutant `taxes_large_items`.
#[test]
fn what_is_read_twice_between_turnovers_stays() {
    let mut draw = Draw(7);
    for round in 0..fewer(16) {
        let memory = [2 * MIB, 4 * MIB, 16 * MIB][round as usize % 3];
        let (hot, cold) = (draw.size(50, 40_000), draw.size(50, 40_000));
        let what = format!("{memory} bytes, {hot} bytes hot, {cold} cold");
        let mut cache = Cache::new(memory, 2, Eviction::S3Fifo);
        let count = (memory / 10 / (hot + HEAD) as u64).max(1);
        let mut keys = count;
        for key in 0..count {
            cache.set(key, hot);
        }
        for _ in 0..60 {
            for _ in 0..2 {
                for key in 0..count {
                    assert!(cache.get(key), "{what}: key {key} of {count} is gone");
                }
            }
            write_through(&mut cache, &mut keys, memory / 16, |_| cold, |_| {});
        }
    }
}

// ---- nothing may be evicted

/// Mutants `no_slack`, `sweeps_what_lives`.
#[test]
fn without_eviction_nothing_is_lost_and_changes_go_on() {
    for memory in [MIB, 2 * MIB, 16 * MIB] {
        let few = if memory > 2 * MIB { 3 } else { 2 };
        for (index, size) in sizes(memory).into_iter().enumerate().step_by(every(few)) {
            fills_without_loss(memory, 1 + 3 * (index % 2), size);
        }
    }
}

fn fills_without_loss(memory: u64, sessions: usize, size: usize) {
    let what = format!("{} MiB, {sessions} sessions, {size} bytes", memory / MIB);
    let mut cache = Cache::new(memory, sessions, Eviction::Refuse);
    cache.set(1, 20);
    let mut keys = 1;
    while cache.set(keys + 1, size) {
        keys += 1;
        assert!(
            cache.stored_bytes < 2 * memory,
            "{what}: it is refused at last"
        );
    }
    cache.assert_budget();
    // A store is refused when less is left than its item and the slack that lets others be
    // overwritten.
    let (used, slack) = (cache.engine.stats().bytes, (size as u64).min(memory / 4));
    let room = memory as f64 * (1.0 - cache.least_share(0));
    assert!(
        used as f64 + (2 * slack) as f64 + room >= memory as f64,
        "{what}: {used} used"
    );
    let all = |cache: &mut Cache| {
        for key in 1..=keys {
            assert!(cache.get(key), "{what}: key {key} of {keys} is lost");
        }
    };
    all(&mut cache);
    let mut draw = Draw(size as u64);
    let rounds = (2 * memory / (size + HEAD) as u64).clamp(8, 4_000);
    for _ in 0..rounds {
        let key = 2 + draw.below(keys.saturating_sub(1).max(1));
        if key <= keys {
            assert!(
                cache.set(key, size),
                "{what}: key {key} of {keys} is overwritten"
            );
            let seen = cache.touch(key, Deadline::NEVER);
            assert!(matches!(seen, LastOutcome::Value(..)), "{what}: {seen:?}");
        }
        cache.assert_budget();
    }
    all(&mut cache);
    counts(&mut cache, &what);
    assert_eq!(cache.engine.stats().evictions, 0, "{what}");
}

/// Checks that counters keep working in a full cache.
fn counts(cache: &mut Cache, what: &str) {
    let verb = |value| set_of(value, Deadline::NEVER);
    assert_eq!(
        cache.run(1, verb(b"10000000000000000000")),
        LastOutcome::Stored,
        "{what}"
    );
    for i in 1..2_000 {
        assert_eq!(
            cache.incr(1),
            LastOutcome::Number(10_000_000_000_000_000_000 + i),
            "{what}"
        );
    }
}

/// A counter that grows by a digit may need a larger item.
#[test]
fn counters_of_a_full_cache_go_on_when_they_need_more_digits() {
    for memory in [2 * MIB, 16 * MIB] {
        let mut cache = Cache::new(memory, 2, Eviction::Refuse);
        let counters = 0..500;
        for key in counters.clone() {
            let nine = set_of(b"9", Deadline::NEVER);
            assert_eq!(cache.run(key, nine), LastOutcome::Stored);
        }
        for size in [3_000, 16] {
            for key in 1_000.. {
                if !cache.set(key * 10 + u64::from(size == 16), size) {
                    break;
                }
            }
        }
        let mut number = 9;
        while number < 9_000_000_000_000_000_000 {
            let more = (number + 1) * 9;
            for key in counters.clone() {
                let arith = Arith::new(more);
                let seen = cache.run(key, Verb::Arith(arith));
                assert_eq!(
                    seen,
                    LastOutcome::Number(number + more),
                    "{memory} bytes, {key}"
                );
            }
            number += more;
        }
        cache.assert_budget();
    }
}

#[test]
fn a_limit_below_what_lives_refuses_at_once_and_loses_nothing() {
    let memory = 32 * MIB;
    let mut cache = Cache::new(memory, 2, Eviction::Refuse);
    let mut keys = 0;
    while cache.set(keys, 900) {
        keys += 1;
    }
    for key in (0..keys).step_by(5) {
        cache.delete(key);
    }
    cache.engine.set_memory_limit(memory / 2);
    let now = cache.now;
    let mut steps = 0..10_000;
    let ends = steps.any(|_| !cache.sessions[0].maintain(now));
    assert!(ends, "maintenance goes on although nothing can be done");
    let before = cache.copied_bytes();
    for key in (1..keys).step_by(5).take(50) {
        // There is no room for a copy beside the old item.
        assert!(!cache.set(key, 900), "key {key} is overwritten");
    }
    let copied = cache.copied_bytes() - before;
    assert_eq!(copied, 0, "nothing is gained by copying");
    // A refused set removes the item that it would have overwritten, and nothing else.
    assert_eq!(cache.oracle.len() as u64, keys - keys.div_ceil(5) - 50);
    for key in 0..keys {
        let is_kept = cache.oracle.contains_key(&key);
        assert_eq!(cache.get(key), is_kept, "key {key} of {keys}");
    }
}

/// A full cache that does not evict may have nothing to compact either. It must not examine all of
/// its segments to find that out, at every store. Mutant `forgets_sparse` (which finds nothing).
#[test]
fn a_full_cache_that_refuses_looks_at_few_segments() {
    let mut cache = Cache::new(64 * MIB, 2, Eviction::Refuse);
    let mut draw = Draw(9);
    let mut keys = 0;
    while cache.set(keys, draw.size(50, 30_000)) {
        keys += 1;
    }
    let copied = cache.copied_bytes();
    let looks = cache.engine.heap.looks.load(Ordering::Relaxed);
    let operations = 8 * fewer(10_000);
    for _ in 0..operations {
        let (key, length) = (draw.below(keys), draw.size(50, 30_000));
        match draw.below(8) {
            0 => cache.delete(key),
            _ => _ = cache.set(key, length),
        }
    }
    let mut stored: Vec<u64> = cache.oracle.keys().copied().collect();
    stored.sort_unstable();
    for key in stored {
        assert!(cache.get(key), "key {key} is lost");
    }
    let looks = cache.engine.heap.looks.load(Ordering::Relaxed) - looks;
    let each = looks as f64 / operations as f64;
    println!("{each} looks an operation");
    assert!(each < 32.0, "{each} looks an operation");
    assert!(cache.copied_bytes() > copied, "nothing was compacted");
}

/// Overwrites with values of other sizes leave dead bytes everywhere. What they leave must be
/// usable: a store is refused only while the live bytes, the item and the slack fill the memory.
/// Mutants `forgets_sparse`, `seals_when_full`.
#[test]
fn overwrites_with_other_sizes_leave_the_memory_usable() {
    let mixes: [&[usize]; 4] = [
        &[500, 5_000, 20_000],
        &[500, 5_000, 30_000, 32_768, 33_000, 100_000],
        &[50, 2_000, 60_000],
        &[3_000, 3_100],
    ];
    for (index, mix) in mixes.into_iter().enumerate() {
        for (memory, sessions) in [(8 * MIB, 1), (16 * MIB, 16), (MIB, 2)] {
            if mix[mix.len() - 1] as u64 > memory / 8 {
                continue;
            }
            let mut cache = Cache::new(memory, sessions, Eviction::Refuse);
            let mut draw = Draw(index as u64 + 4);
            let mean = mix.iter().sum::<usize>() as u64 / mix.len() as u64;
            let keys = 4 * memory / mean;
            let what = format!("{} MiB, {sessions} sessions, {mix:?}", memory / MIB);
            for round in 0..6 {
                for _ in 0..keys {
                    let length = mix[draw.below(mix.len() as u64) as usize];
                    cache.set_in_place(draw.below(keys), length);
                }
                let (heap, live) = (&cache.engine.heap, cache.engine.stats().bytes);
                let allowed = heap.allowed();
                let slack = allowed / 20 + 2 * heap.largest_bytes() + 4 * cache.engine.spare();
                assert!(
                    live + slack >= allowed * 9 / 10,
                    "{what}: round {round}: {live} live bytes of {allowed}"
                );
            }
        }
    }
}

// ---- flushes

/// Mutant `sweeps_what_lives`.
#[test]
fn what_is_stored_after_a_flush_stays() {
    for memory in [MIB, 4 * MIB, 16 * MIB] {
        for size in sizes(memory).into_iter().step_by(every(2)) {
            let what = format!("{} MiB, {size} bytes", memory / MIB);
            let mut cache = Cache::new(memory, 3, Eviction::S3Fifo);
            let mut keys = 0;
            write_through(&mut cache, &mut keys, 2 * memory, |_| size, |_| {});
            for round in 0..3 {
                cache.flush();
                let first = keys + 1;
                let begun = cache.engine.stats().evictions;
                write_through(&mut cache, &mut keys, memory / 2, |_| size, |_| {});
                let evicted = cache.engine.stats().evictions - begun;
                assert_eq!(
                    evicted, 0,
                    "{what}: evicted from half a cache, flush {round}"
                );
                for key in first..=keys {
                    assert!(cache.get(key), "{what}: key {key} from {first} on is gone");
                }
            }
        }
    }
}

// ---- everything at once

/// Mutant `claims_unsettled` is for the models; here sessions take turns.
#[test]
fn any_mixture_of_operations_keeps_budget_and_answers() {
    let seed = std::env::var("COREWISE_SEED").ok();
    let seed = seed.and_then(|seed| seed.parse().ok()).unwrap_or(0);
    for round in 0..fewer(48) {
        mixture(seed * 1_000 + round);
    }
}

fn mixture(seed: u64) {
    let mut draw = Draw(seed);
    let memory = MIB + draw.below(7 * MIB);
    let refuses = draw.below(3) == 0;
    let eviction = [
        [Eviction::S3Fifo, Eviction::Lru, Eviction::Random][seed as usize % 3],
        Eviction::Refuse,
    ][usize::from(refuses)];
    let mut cache = Cache::new(memory, 1 + draw.below(20) as usize, eviction);
    let most = draw.size(200, memory as usize / 4);
    let keys = 1 + draw.below(2 * memory / (most as u64 / 3 + 60));
    let mut lost = 0u64;
    for _ in 0..fewer(6_000) {
        let key = draw.below(keys);
        match draw.below(100) {
            0..50 => {
                let length = draw.size(8, most);
                cache.set(key, length);
            }
            50..85 => {
                let there = cache.get(key);
                lost += u64::from(!there && cache.oracle.contains_key(&key));
            }
            85..93 => cache.delete(key),
            93..98 => {
                let turn = draw.below(cache.sessions.len() as u64) as usize;
                let now = cache.now;
                cache.sessions[turn].maintain(now);
            }
            98 if draw.below(10) == 0 => cache.flush(),
            98 if !refuses && draw.below(4) == 0 => {
                let limit = MIB + draw.below(2 * memory);
                cache.engine.set_memory_limit(limit);
            }
            98 => {
                let session = cache.engine.session();
                let index = draw.below(cache.sessions.len() as u64) as usize;
                cache.sessions[index] = session;
            }
            _ => cache.now.ms += draw.below(3_000),
        }
        cache.assert_budget();
    }
    assert!(!refuses || lost == 0, "seed {seed}: {lost} items lost");
}

/// At every limit items of all sizes are stored, found, overwritten, and expire, and the memory
/// that is fixed stays small. (Sanitizers leave fewer addresses.)
#[test]
fn limits_up_to_the_largest_serve() {
    if is_short() {
        return;
    }
    for memory in [1 << 26, 64 << 30, (64 << 30) + 1, 300 << 30, MAX_MEMORY] {
        let mut cache = Cache::new(memory, 3, Eviction::S3Fifo);
        let fixed = memory - cache.engine.heap.allowed();
        assert!(fixed <= memory / 64, "{memory}: {fixed} bytes for tables");
        let lengths = [20, 900, 5_000, 40_000, 300_000, 2 << 20];
        for round in 0..2 {
            for key in 0..300u64 {
                let length = lengths[(key + round) as usize % lengths.len()];
                let length = if key < 30 { length } else { length % 3_000 };
                assert!(cache.set(key, length));
            }
            assert!((0..300).all(|key| cache.get(key)));
        }
        let soon = Deadline::after_ms(cache.now, 500);
        for key in (0..300).step_by(2) {
            cache.touch(key, soon);
        }
        for _ in 0..3 {
            cache.now.ms += 1_000;
            let now = cache.now;
            while cache.sessions[0].maintain(now) {}
        }
        let stats = cache.engine.stats();
        assert_eq!((stats.items, stats.evictions), (150, 0), "{memory}");
        cache.engine.set_memory_limit(memory / 2);
        assert!((1..300).step_by(2).all(|key| cache.get(key)));
    }
}

/// While a reader keeps memory from being reused, sessions that need some try again and again. They
/// claim no more segments than there are evictors of sessions, and when the reader is gone, every
/// store finds room. Mutant `others_begin_walks`.
#[test]
fn a_reader_in_the_way_leaves_few_segments_claimed() {
    for (memory, sessions) in [(1, 1), (2, 3), (2, 17), (16, 4), (64, 16)] {
        let mut cache = Cache::new(memory << 20, sessions, Eviction::S3Fifo);
        let keys = (memory << 20) / 1_500;
        for key in 0..keys {
            assert!(cache.set(key, 700));
        }
        // So that they are kept, in memory that is to be found for their copies.
        for key in (0..keys).chain(0..keys) {
            cache.get(key);
        }
        let engine = cache.engine.clone();
        let guard = engine.table.domain().pin();
        for _ in 0..200 {
            for session in &mut cache.sessions {
                session
                    .session_state
                    .drive_evictors(&engine, cache.now, i64::MAX);
            }
        }
        let walks = engine.evictors.iter();
        let walks = walks.filter(|evictor| evictor.lock().is_walking());
        let (walks, used) = (walks.count(), engine.active.load(Ordering::Relaxed));
        assert!(walks <= used, "{walks} of {used} at {memory} MiB");
        drop(guard);
        for key in 0..2 * keys {
            assert!(cache.set(key, 700), "key {key} at {memory} MiB");
        }
    }
}

/// The table of a full cache takes little from small items: its load is above
/// [`FULL_LOAD`] / 2, less what its last growth displaced. Mutant `grows_at_any_load`.
#[test]
fn the_table_of_a_full_cache_takes_little_from_its_items() {
    let sizes: [(u64, &[usize]); 3] = [
        (2 * MIB, &[50, 70, 100, 140, 200, 280]),
        (16 * MIB, &[70, 200]),
        (24 * MIB, &[100, 280]),
    ];
    for (memory, sizes) in sizes {
        for &size in sizes {
            let mut cache = Cache::new(memory, 2, Eviction::S3Fifo);
            let mut keys = 0;
            write_through(&mut cache, &mut keys, 2 * memory, |_| size, |_| {});
            let items = cache.engine.stats().items;
            let array = 8 * cache.engine.table.resize_state().buckets as u64;
            let most = items * 8 * 2 * 2 / 3 * 5 / 4;
            assert!(
                array <= most,
                "{array} bytes for {items} items of {size} bytes in {memory} bytes"
            );
        }
    }
}
