//! Expired items go by themselves, in every engine: with a clock that is set by hand and the
//! engine's own upkeep, against an oracle.

use crate::common;

use common::{Cache, NOW, Setup, TestEngine, fewer, later, stamped, store};
use corewise_engine::{EngineStats, Session};
use corewise_ops::{Change, Deadline, Delete, Get, ItemView, Now, Store, StoreMode, Update, Verb};
use corewise_testkit::random::Random;
use std::collections::HashMap;
use std::sync::Arc;

for_every_engine! {
    what_expires_goes_at_every_size_and_number
    what_expires_goes_whatever_is_done_meanwhile
    what_expires_goes_while_every_step_is_short
    a_full_cache_empties_when_everything_has_expired
    deadlines_that_were_moved_are_kept
    a_step_removes_a_bounded_number_of_items
}

/// How late an item may go in a cache of less than some hundred MiB: the end of its second, and the
/// pause of its segment or shard.
const LATE_MS: u64 = 2_000;

fn until<'v>(value: &'v [u8], deadline: Deadline) -> Store<'v> {
    store(StoreMode::Set, value).until(deadline)
}

/// Advances the clock second by second until `ms`, with the upkeep of one session.
fn idle<E: TestEngine>(cache: &mut Cache<E>, ms: u64) {
    let from = cache.now.ms - NOW.ms;
    for ms in (from..ms).step_by(1_000).skip(1).chain([ms]) {
        cache.now = later(ms);
        cache.maintain();
    }
}

/// Checks that gauges and the gauges of classes are those of the live items, and returns them.
fn exact<E: TestEngine>(cache: &Cache<E>) -> EngineStats {
    let (mut items, mut bytes) = (0, 0);
    cache.scan(1_000, |item| {
        items += 1;
        bytes += item.footprint as u64;
    });
    let stats = cache.engine.stats();
    assert_eq!(
        (stats.items, stats.bytes - stats.table_bytes),
        (items, bytes)
    );
    let classes = cache.engine.size_classes();
    let sums = classes.iter().fold((0, 0), |(items, bytes), class| {
        (items + class.items, bytes + class.bytes)
    });
    assert_eq!(sums, (items, bytes));
    stats
}

fn what_expires_goes_at_every_size_and_number<E: TestEngine>() {
    for (length, counts) in [
        (10, &[1, 3, 1_000, 30_000][..]),
        (6_000, &[1, 20, 3_000]),
        (40_000, &[1, 3, 200]),
        (300_000, &[1, 20]),
    ] {
        let value = stamped(7, length);
        for &count in counts {
            let mut cache = Cache::<E>::roomy();
            cache.maintain();
            for key in 0..fewer(count) {
                let deadline = Deadline::after_ms(NOW, 300 + key % 1_500);
                cache.store(&key.to_le_bytes(), until(&value, deadline));
            }
            let stats = exact(&cache);
            assert_eq!((stats.items, stats.evictions), (fewer(count), 0));
            idle(&mut cache, 1_800 + LATE_MS);
            let stats = exact(&cache);
            let seen = (
                stats.items,
                stats.expired_reclaimed,
                stats.expired_unfetched,
            );
            assert_eq!(seen, (0, fewer(count), fewer(count)), "{length} bytes");
        }
    }
}

/// A change of an item's deadline alone, as by `EXPIRE` and `PERSIST`.
struct Touching(Deadline);

impl Update for Touching {
    fn update(&mut self, _: Option<&ItemView<'_>>) -> Change<'_> {
        Change::Touch(self.0)
    }
}

/// A cache with several sessions, and the deadlines of its items.
struct Watched<E: TestEngine> {
    sessions: Vec<Cache<E>>,
    now: Now,
    deadlines: HashMap<u64, Deadline>,
    random: Random,
}

impl<E: TestEngine> Watched<E> {
    fn new(setup: Setup, sessions: usize, seed: u64) -> Self {
        let engine = Arc::new(E::make(setup));
        Self {
            sessions: (0..sessions).map(|_| Cache::over(&engine)).collect(),
            now: NOW,
            deadlines: HashMap::new(),
            random: Random::from_seed(seed),
        }
    }

    /// One of the sessions.
    fn any(&mut self) -> &mut Cache<E> {
        let index = self.random.index(self.sessions.len());
        let session = &mut self.sessions[index];
        session.now = self.now;
        session
    }

    /// Near, far, past, or none.
    fn deadline(&mut self) -> Deadline {
        let ms = match self.random.below(5) {
            0 => return Deadline::NEVER,
            1 => self.random.below(200),
            2 => self.random.below(3_000),
            3 => 60_000 + self.random.below(60_000),
            _ => self.random.below(30_000),
        };
        Deadline::after_ms(self.now, ms)
    }

    /// Stores, reads, deletes, or moves a deadline.
    fn change(&mut self, keys: u64) {
        let (key, deadline) = (self.random.below(keys), self.deadline());
        let length = self.random.choose(&[10, 50, 500, 5_000, 70_000]);
        let length = if self.random.below(50) > 0 {
            length % 1_000
        } else {
            length
        };
        let (bytes, what) = (key.to_le_bytes(), self.random.below(10));
        let now = self.now;
        let is_there = self.deadlines.get(&key).is_some_and(|at| !at.is_past(now));
        let cache = self.any();
        match what {
            0 => _ = cache.get(&bytes),
            1 => _ = cache.delete(&bytes, Delete::default()),
            2 | 3 => {
                let get = Get::touching(deadline);
                cache.run(&bytes, Verb::Get(get));
            }
            4 | 5 => _ = cache.session.update(now, &bytes, &mut Touching(deadline)),
            _ => assert!(
                cache
                    .store(&bytes, until(&stamped(key, length), deadline))
                    .is_stored()
            ),
        }
        match what {
            0 => {}
            1 => _ = self.deadlines.remove(&key),
            2..=5 if !is_there => {}
            _ => _ = self.deadlines.insert(key, deadline),
        }
    }

    /// Checks that what is there is what is alive, and perhaps what has expired lately.
    fn check(&self) {
        let alive = |ms| {
            let now = Now { ms, ..self.now };
            self.deadlines
                .values()
                .filter(|at| !at.is_past(now))
                .count() as u64
        };
        let stats = self.sessions[0].engine.stats();
        let most = alive(self.now.ms - LATE_MS);
        let range = alive(self.now.ms)..=most;
        assert!(range.contains(&stats.items), "{range:?}: {stats:?}");
        assert_eq!(stats.evictions, 0);
    }

    fn advance(&mut self, ms: u64) {
        self.now.ms += ms;
    }
}

fn what_expires_goes_whatever_is_done_meanwhile<E: TestEngine>() {
    for (seed, sessions) in [(1, 1), (2, 3), (3, 8)] {
        let mut cache = Watched::<E>::new(Setup::roomy(), sessions, seed);
        for round in 0..fewer(400) {
            // Busy and idle times.
            for _ in 0..if round % 20 < 10 { 200 } else { 1 } {
                cache.change(5_000);
            }
            let ms = cache.random.below(500);
            cache.advance(ms);
            cache.any().maintain();
            cache.check();
        }
        cache.advance(125_000);
        cache.any().maintain();
        let never = cache
            .deadlines
            .values()
            .filter(|at| **at == Deadline::NEVER);
        let never = never.count() as u64;
        let first = &mut cache.sessions[0];
        first.now = cache.now;
        assert_eq!(exact(first).items, never);
    }
}

/// As when every turn of a loop has requests: a step of upkeep for each.
fn what_expires_goes_while_every_step_is_short<E: TestEngine>() {
    let mut cache = Watched::<E>::new(Setup::roomy(), 3, 4);
    for _ in 0..fewer(2_000) {
        for _ in 0..10 {
            cache.change(3_000);
        }
        cache.advance(20);
        let now = cache.now;
        cache.any().session.maintain(now);
        cache.check();
    }
}

fn a_full_cache_empties_when_everything_has_expired<E: TestEngine>() {
    let setup = Setup::tight::<E>(2);
    for length in [100, 3_000, setup.max_item_bytes / 2] {
        let first = Cache::<E>::new(setup);
        let mut caches = [Cache::over(&first.engine), first];
        let most = 3 * setup.memory / length as u64;
        for key in 0..most {
            let deadline = Deadline::after_ms(NOW, 2_000 + key % 20_000);
            let cache = &mut caches[key as usize % 2];
            cache.store(&key.to_le_bytes(), until(&stamped(key, length), deadline));
            if key % 3 == 0 {
                cache.get(&(key / 2).to_le_bytes());
            }
        }
        let cache = &mut caches[0];
        assert!(cache.engine.stats().evictions > 0, "it is full");
        idle(cache, 22_000 + LATE_MS);
        assert_eq!(exact(cache).items, 0, "{length} bytes");
    }
}

fn deadlines_that_were_moved_are_kept<E: TestEngine>() {
    let mut cache = Cache::<E>::roomy();
    let keys = 0..fewer(4_000);
    for key in keys.clone() {
        cache.store(
            &key.to_le_bytes(),
            until(b"v", Deadline::after_ms(NOW, 900_000)),
        );
    }
    idle(&mut cache, 5_000);
    // A fourth each: sooner by a get, sooner by a change, never, as it is.
    let soon = Deadline::after_ms(cache.now, 1_500);
    for key in keys.clone() {
        let bytes = key.to_le_bytes();
        let (now, get) = (cache.now, Get::touching(soon));
        match key % 4 {
            0 => _ = cache.run(&bytes, Verb::Get(get)),
            1 => _ = cache.session.update(now, &bytes, &mut Touching(soon)),
            2 => {
                _ = cache
                    .session
                    .update(now, &bytes, &mut Touching(Deadline::NEVER))
            }
            _ => {}
        }
    }
    idle(&mut cache, 6_400);
    assert_eq!(exact(&cache).items, keys.end);
    idle(&mut cache, 6_500 + LATE_MS);
    assert_eq!(exact(&cache).items, keys.end / 2);
    idle(&mut cache, 899_000);
    assert_eq!(exact(&cache).items, keys.end / 2);
    idle(&mut cache, 900_000 + LATE_MS);
    assert_eq!(exact(&cache).items, keys.end / 4);
    assert!(
        keys.skip(2)
            .step_by(4)
            .all(|key| !cache.get(&key.to_le_bytes()).is_absent())
    );
}

/// Guarantee of [`Session::maintain`]: no thread is held up for long.
fn a_step_removes_a_bounded_number_of_items<E: TestEngine>() {
    let mut cache = Cache::<E>::roomy();
    for key in 0..30_000u64 {
        let deadline = Deadline::after_ms(NOW, 300);
        cache.store(&key.to_le_bytes(), until(b"v", deadline));
    }
    cache.now = later(10_000);
    let mut before = cache.engine.stats().items;
    while cache.session.maintain(cache.now) {
        let items = cache.engine.stats().items;
        assert!(before - items <= 512, "{before} to {items}");
        before = items;
    }
    assert_eq!(cache.engine.stats().items, 0);
}
