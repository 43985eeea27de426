//! Two threads on one key, in every engine, under the model checkers.
//!
//! The mutant `split_section` reads the counter in one critical section and writes it in another,
//! as a server without read-modify-write operations would. The mutant `frees_what_is_held` is a
//! `global-lock` that ignores the references of items that it unlinks.

#[macro_use]
mod common;

use common::{Collect, NOW, Seen, Setup, TestEngine, store};
use corewise_atomic::{mutant, thread};
use corewise_engine::alloc::{GlobalHeap, ItemAllocator};
use corewise_engine::engines::global_lock::GlobalLock;
use corewise_engine::engines::locked::Config;
use corewise_engine::{Engine, Session};
use corewise_ops::{Flow, Get, Op, Outcome, ReplySink, StoreMode, Token, Verb};
use std::ptr::NonNull;
use std::sync::{Arc, Mutex};

for_every_engine! {
    no_increment_is_lost
    of_two_swaps_from_the_same_value_one_succeeds
}

fn run<E: TestEngine>(engine: &Arc<E>, verb: Verb<'_>) -> Seen {
    let mut sink = Collect::new();
    let ops = [Op::new(0, b"n", verb)];
    assert_eq!(engine.session().submit(NOW, &ops, &mut sink), 1);
    sink.seen.remove(0).1
}

fn small<E: TestEngine>() -> Arc<E> {
    Arc::new(E::make(Setup::tight::<E>(2)))
}

fn increment<E: TestEngine>(engine: &Arc<E>) {
    if !mutant!("split_section") {
        run(engine, Verb::Arith(common::incr(1)));
        return;
    }
    let seen = run(engine, Verb::Get(Get::default()));
    let text = std::str::from_utf8(seen.value().unwrap())
        .unwrap()
        .trim_end()
        .to_owned();
    let next = (text.parse::<u64>().unwrap() + 1).to_string();
    run(engine, Verb::Store(store(StoreMode::Set, next.as_bytes())));
}

fn no_increment_is_lost<E: TestEngine>() {
    corewise_atomic::model(|| {
        let engine = small::<E>();
        run(&engine, Verb::Store(store(StoreMode::Set, b"0")));
        let other = Arc::clone(&engine);
        let handle = thread::spawn(move || increment(&other));
        increment(&engine);
        handle.join().unwrap();
        let seen = run(&engine, Verb::Get(Get::default()));
        assert_eq!(seen.value(), Some(&b"2"[..]));
    });
}

fn of_two_swaps_from_the_same_value_one_succeeds<E: TestEngine>() {
    corewise_atomic::model(|| {
        let engine = small::<E>();
        let cas = run(&engine, Verb::Store(store(StoreMode::Set, b"0"))).cas();
        let compare_cas = (!mutant!("no_compare")).then_some(cas);
        let swap = move |engine: &Arc<E>| {
            let request = corewise_ops::Store {
                compare_cas,
                ..store(StoreMode::Set, b"1")
            };
            matches!(run(engine, Verb::Store(request)), Seen::Stored { .. })
        };
        let other = Arc::clone(&engine);
        let handle = thread::spawn(move || swap(&other));
        let mine = swap(&engine);
        let theirs = handle.join().unwrap();
        assert!(mine ^ theirs, "{mine} {theirs}");
    });
}

/// An allocator that never reuses memory: freed items stay until the end.
#[derive(Clone, Default)]
struct Quarantine(Arc<Mutex<Freed>>);

#[derive(Default)]
struct Freed(Vec<(NonNull<u8>, usize)>);

// SAFETY: nothing else has the pointers.
unsafe impl Send for Freed {}

impl Drop for Freed {
    fn drop(&mut self) {
        for (ptr, size) in self.0.drain(..) {
            // SAFETY: from `alloc(size)` of the same heap, and no longer used by the engine that
            // freed it.
            unsafe { GlobalHeap.dealloc(ptr, size) }
        }
    }
}

// SAFETY: memory is the global heap's, and is given back to it only when the engine no longer
// exists.
unsafe impl ItemAllocator for Quarantine {
    fn alloc(&self, size: usize) -> Option<(NonNull<u8>, usize)> {
        GlobalHeap.alloc(size)
    }

    unsafe fn dealloc(&self, ptr: NonNull<u8>, size: usize) {
        self.0.lock().unwrap().0.push((ptr, size));
    }

    fn name(&self) -> &'static str {
        "quarantine"
    }
}

impl Quarantine {
    fn holds(&self, address: usize) -> bool {
        let freed = self.0.lock().unwrap();
        let mut ranges = freed.0.iter().map(|&(ptr, size)| (ptr.addr().get(), size));
        ranges.any(|(at, size)| (at..at + size).contains(&address))
    }
}

/// A sink that checks that its item is still there after other threads have run.
struct Looks<'q>(&'q Quarantine);

impl ReplySink for Looks<'_> {
    fn complete(&mut self, _: Token, outcome: Outcome<'_>) -> Flow {
        if let Outcome::Found(view) = outcome {
            thread::yield_now();
            let address = view.key.as_ptr().addr();
            assert!(!self.0.holds(address), "it has been freed");
        }
        Flow::Continue
    }
}

#[test]
fn a_held_item_is_not_freed_while_its_reply_is_made() {
    corewise_atomic::model(|| {
        let heap = Quarantine::default();
        let config = Config {
            memory: 1 << 20,
            ..Config::default()
        };
        let engine = Arc::new(GlobalLock::with_allocator(config, heap.clone()));
        let submit = |engine: &Arc<GlobalLock<Quarantine>>, verb: Verb<'_>, heap: &Quarantine| {
            let ops = [Op::new(0, b"n", verb)];
            engine.session().submit(NOW, &ops, &mut Looks(heap));
        };
        submit(&engine, Verb::Store(store(StoreMode::Set, b"0")), &heap);
        let (other, seen) = (Arc::clone(&engine), heap.clone());
        let handle = thread::spawn(move || {
            submit(&other, Verb::Store(store(StoreMode::Set, b"1")), &seen);
        });
        submit(&engine, Verb::Get(Get::default()), &heap);
        handle.join().unwrap();
        drop(engine);
        assert_eq!(heap.0.lock().unwrap().0.len(), 2, "both items in the end");
    });
}
