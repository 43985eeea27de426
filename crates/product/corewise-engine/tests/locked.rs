//! The guarantees of the engine `locked` beyond those of every engine.

use crate::common;

use common::{Cache, NOW, Seen, Setup, later, store};
use corewise_engine::engines::locked::Locked;
use corewise_engine::{Engine, Session};
use corewise_ops::{Absence, Deadline, Flow, Get, Op, Outcome, ReplySink, StoreMode, Token, Verb};

/// A cache with one shard.
fn tight() -> Cache<Locked> {
    let cache = Cache::<Locked>::new(Setup::tight::<Locked>(1));
    assert_eq!(cache.engine.stats().shards, 1);
    cache
}

#[test]
fn the_least_recently_used_items_are_evicted() {
    let mut cache = tight();
    for i in 0u64..20_000 {
        let size = (i * 37 % 900) as usize;
        cache.set(&i.to_le_bytes(), &vec![b'x'; size]);
    }
    let stats = cache.engine.stats();
    assert!(stats.evictions > 10_000);
    let is_there = |i: &u64| cache.get(&i.to_le_bytes()).value().is_some();
    let kept: Vec<u64> = (0..20_000).filter(is_there).collect();
    assert_eq!(kept.len() as u64, stats.items);
    assert_eq!(kept[0], 20_000 - stats.items, "the last ones, no others");
}

#[test]
fn a_read_item_outlives_its_unread_contemporaries() {
    let mut cache = tight();
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
fn the_first_lookup_removes_an_expired_item() {
    let mut cache = Cache::<Locked>::roomy();
    let request = store(StoreMode::Set, b"v").until(Deadline::after_ms(NOW, 1_000));
    cache.store(b"k", request);
    cache.now = later(1_000);
    assert_eq!(cache.get(b"k"), Seen::Missing(Absence::Expired));
    assert_eq!(cache.get(b"k"), Seen::Missing(Absence::Unknown));
    assert_eq!(cache.engine.stats().items, 0);
}

#[test]
fn flushed_items_are_freed_in_steps() {
    let mut cache = Cache::<Locked>::roomy();
    for i in 0u32..5_000 {
        cache.set(&i.to_le_bytes(), b"v");
    }
    cache.engine.flush_all(Deadline::PAST, NOW);
    assert!(cache.engine.stats().dead_bytes > 0);
    assert!(cache.maintain() > 5, "maintenance is done in steps");
    assert_eq!(cache.engine.stats().dead_bytes, 0);
}

#[test]
fn the_bytes_of_the_size_classes_and_the_tables_are_all_that_is_charged() {
    let mut cache = Cache::<Locked>::roomy();
    for i in 0u64..1_000 {
        cache.set(&i.to_le_bytes(), &vec![b'x'; (i % 500) as usize]);
    }
    let (stats, classes) = (cache.engine.stats(), cache.engine.size_classes());
    let bytes: u64 = classes.iter().map(|class| class.bytes).sum();
    assert_eq!(bytes, stats.bytes - stats.table_bytes);
}

/// A sink that tells another thread that the lock is held, and keeps it for a while.
struct Lingers(std::sync::mpsc::SyncSender<()>);

impl ReplySink for Lingers {
    fn complete(&mut self, _: Token, _: Outcome<'_>) -> Flow {
        self.0.send(()).expect("the other is there");
        std::thread::sleep(std::time::Duration::from_millis(2));
        Flow::Continue
    }
}

#[test]
fn the_time_for_which_others_wait_for_the_lock_is_counted() {
    let mut cache = tight();
    cache.set(b"k", b"v");
    assert_eq!(cache.engine.stats().lock_waits, 0);
    let wait_once = || {
        let (tell, told) = std::sync::mpsc::sync_channel(0);
        let mut holder = cache.engine.session();
        let mut waiter = Cache::over(&cache.engine);
        std::thread::scope(|scope| {
            scope.spawn(move || {
                let verb = Verb::Get(Get::default());
                let ops = [Op::new(0, b"k", verb)];
                holder.submit(NOW, &ops, &mut Lingers(tell));
            });
            told.recv().expect("the holder replies");
            waiter.get(b"k");
        });
        let stats = cache.engine.stats();
        (stats.lock_waits > 0).then_some(stats.lock_wait_ns)
    };
    // A thread that starts late finds the lock free, but not every time.
    let waited = (0..10_000).find_map(|_| wait_once());
    assert!(waited.is_some_and(|ns| ns > 0), "{waited:?}");
}
