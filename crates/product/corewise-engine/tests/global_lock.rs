//! The guarantees of the engine `global-lock` beyond those of every engine: it makes a reply
//! outside the lock, from an item that a reference keeps alive.

use crate::common;

use common::{Cache, NOW, Seen, Setup, TestEngine, store};
use corewise_engine::alloc::{GlobalHeap, ItemAllocator};
use corewise_engine::engines::global_lock::GlobalLock;
use corewise_engine::engines::locked::Config;
use corewise_engine::{Engine, Session};
use corewise_ops::{Deadline, Delete, Flow, Get, Op, Outcome, ReplySink, StoreMode, Token, Verb};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

/// The global heap, with a count of the items in use.
#[derive(Clone, Default)]
struct Counting(Arc<AtomicI64>);

// SAFETY: memory is the global heap's, whose guarantees are the same.
unsafe impl ItemAllocator for Counting {
    fn alloc(&self, bytes: usize) -> Option<(NonNull<u8>, usize)> {
        let memory = GlobalHeap.alloc(bytes)?;
        // Relaxed, all: one thread.
        self.0.fetch_add(1, Ordering::Relaxed);
        Some(memory)
    }

    unsafe fn dealloc(&self, memory: NonNull<u8>, bytes: usize) {
        self.0.fetch_sub(1, Ordering::Relaxed);
        // SAFETY: the memory came from `alloc`, which took it from the global heap, and is not used
        // again.
        unsafe { GlobalHeap.dealloc(memory, bytes) }
    }

    fn name(&self) -> &'static str {
        "counting"
    }
}

/// Runs a function while a reply is made, and compares the item before and afterwards.
struct Meanwhile<F>(F);

impl<F: FnMut()> ReplySink for Meanwhile<F> {
    fn complete(&mut self, _: Token, outcome: Outcome<'_>) -> Flow {
        let before = Seen::of(&outcome);
        (self.0)();
        assert_eq!(Seen::of(&outcome), before);
        assert_eq!(before.value(), Some(&b"value"[..]));
        Flow::Continue
    }
}

/// Gets the key `k`, and lets another session act on the engine while the reply is made.
fn get_and_meanwhile(engine: &Arc<GlobalLock<Counting>>, act: impl Fn(&Arc<GlobalLock<Counting>>)) {
    let mut session = engine.session();
    let verb = Verb::Get(Get::default());
    let ops = [Op::new(0, b"k", verb)];
    let mut sink = Meanwhile(|| act(engine));
    assert_eq!(session.submit(NOW, &ops, &mut sink), 1);
}

fn run(engine: &Arc<GlobalLock<Counting>>, key: &[u8], verb: Verb<'_>) -> Seen {
    let mut sink = common::Collect::new();
    let ops = [Op::new(0, key, verb)];
    assert_eq!(engine.session().submit(NOW, &ops, &mut sink), 1);
    sink.seen.remove(0).1
}

fn set(engine: &Arc<GlobalLock<Counting>>, key: &[u8], value: &[u8]) {
    let seen = run(engine, key, Verb::Store(store(StoreMode::Set, value)));
    assert!(seen.is_stored(), "{seen:?}");
}

/// Something that may happen to a key while its item is in a reply.
type Act = fn(&Arc<GlobalLock<Counting>>);

#[test]
fn an_item_outlives_its_key_until_its_reply_is_made_and_no_longer() {
    let deleted: Act = |engine| {
        let delete = Verb::Delete(Delete::default());
        assert_eq!(run(engine, b"k", delete), Seen::Deleted);
    };
    let replaced: Act = |engine| set(engine, b"k", b"another");
    let flushed: Act = |engine| {
        engine.flush_all(Deadline::PAST, NOW);
        while engine.session().maintain(NOW) {}
    };
    let evicted: Act = |engine| {
        let before = engine.stats().evictions;
        for i in 0u64..20_000 {
            set(engine, &i.to_le_bytes(), &[b'x'; 100]);
        }
        assert!(engine.stats().evictions > before + 10_000);
    };
    for (act, stays) in [(deleted, 0), (replaced, 1), (flushed, 0)] {
        let (heap, engine) = made();
        set(&engine, b"k", b"value");
        get_and_meanwhile(&engine, |engine| {
            act(engine);
            // The item in the reply, and the item that replaced it, if any.
            assert_eq!(heap.0.load(Ordering::Relaxed), 1 + stays);
        });
        assert_eq!(heap.0.load(Ordering::Relaxed), stays);
        assert_eq!(engine.stats().items, stays as u64);
    }
    let (heap, engine) = made();
    set(&engine, b"k", b"value");
    get_and_meanwhile(&engine, evicted);
    assert_eq!(
        heap.0.load(Ordering::Relaxed),
        engine.stats().items as i64,
        "nothing else is left"
    );
    drop(engine);
    assert_eq!(heap.0.load(Ordering::Relaxed), 0);
}

fn made() -> (Counting, Arc<GlobalLock<Counting>>) {
    let heap = Counting::default();
    let config = Config {
        memory: GlobalLock::<GlobalHeap>::smallest(1),
        ..Config::default()
    };
    let engine = Arc::new(GlobalLock::with_allocator(config, heap.clone()));
    (heap, engine)
}

#[test]
fn there_is_one_lock_whatever_the_threads_and_it_is_lru() {
    let mut cache = Cache::<GlobalLock>::new(Setup {
        threads: 64,
        ..Setup::roomy()
    });
    assert_eq!(cache.engine.stats().shards, 1);
    assert_eq!(cache.engine.name(), "global-lock");
    let request = store(StoreMode::Set, b"v").until(Deadline::after_ms(NOW, 1_000));
    assert!(cache.store(b"k", request).is_stored());
    let mut tight = Cache::<GlobalLock>::new(Setup::tight::<GlobalLock>(1));
    for i in 0u64..20_000 {
        tight.set(&i.to_le_bytes(), &[b'x'; 100]);
    }
    let items = tight.engine.stats().items;
    for i in [20_000 - items, 19_999] {
        assert!(tight.get(&i.to_le_bytes()).value().is_some(), "{i}");
    }
    assert!(tight.get(&(19_999 - items).to_le_bytes()).is_absent());
}
