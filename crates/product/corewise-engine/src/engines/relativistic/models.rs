//! Small cases under shuttle, with mutants: they show why the engine needs its stripes, generations
//! and grace periods. (The table's guarantees have models in `corewise-maps`.)

use super::evict::Purpose;
use super::heap::Claim;
use super::queues::Segment;
use super::*;
use crate::engines::verbs::ItemStore;
use corewise_atomic::thread;
use corewise_ops::sorted::{Conditions, SortedOp, SortedWrite};
use corewise_ops::{Arith, Delete, Get, Outcome, Store, StoreMode, Verb};

const NOW: Now = Now::new(5_000, 0);

/// The result of a get.
#[derive(Clone, Debug, PartialEq, Eq)]
struct GetResult {
    value: Vec<u8>,
    deadline: Deadline,
}

/// A sink that takes its time over a value, as one that copies it does.
#[derive(Default)]
struct Slow(Option<GetResult>);

impl ReplySink for Slow {
    fn complete(&mut self, _: u32, outcome: Outcome<'_>) -> Flow {
        if let Outcome::Found(view) = outcome {
            thread::yield_now();
            self.0 = Some(GetResult {
                value: view.value.to_vec(),
                deadline: view.deadline,
            });
        }
        Flow::Continue
    }
}

fn run(session: &mut RelativisticSession, key: &[u8], verb: Verb<'_>) -> Option<GetResult> {
    let mut sink = Slow::default();
    let ops = [Op::new(0, key, verb)];
    assert_eq!(session.submit(NOW, &ops, &mut sink), 1);
    sink.0
}

fn store(mode: StoreMode, value: &[u8]) -> Verb<'_> {
    Verb::Store(Store::new(mode, value))
}

fn get(touch: Option<Deadline>) -> Verb<'static> {
    Verb::Get(Get {
        touch,
        ..Get::default()
    })
}

fn engine() -> Arc<Relativistic> {
    Arc::new(Relativistic::new(Config {
        memory: MIN_MEMORY,
        max_item_bytes: 1 << 12,
        huge_pages: false,
        ..Config::default()
    }))
}

impl RelativisticSession {
    /// Seals the open segments.
    fn seal(&mut self) {
        self.engine.seal_older(u32::MAX);
    }

    /// Walks every sealed segment.
    fn walk_all(&mut self, purpose: Purpose) {
        let engine = &*self.engine;
        let (mut from, mut looks): (Segment, u32) = (1, engine.heap.used_segments());
        let mut claims: Vec<Claim> = Vec::new();
        while let Some(claim) = engine.heap.claim_where(&mut from, &mut looks, |_| true) {
            claims.push(claim);
        }
        for claim in claims {
            let site = self.session_state.site(engine, NOW);
            let mut evictor = site.evictor.lock();
            evictor.walk_all(&site, claim, purpose);
        }
    }
}

/// Mutant `moves_without_stripe`: an item is copied while others may change it.
#[test]
fn a_touch_is_not_lost_when_its_item_is_moved() {
    corewise_atomic::model(|| {
        let engine = engine();
        let mut mine = engine.session();
        run(&mut mine, b"k", store(StoreMode::Set, b"v"));
        mine.seal();
        let mut other = engine.session();
        let deadline = Deadline::after_ms(NOW, 60_000);
        let toucher = thread::spawn(move || run(&mut other, b"k", get(Some(deadline))));
        mine.walk_all(Purpose::Compact);
        assert!(
            toucher.join().unwrap().is_some(),
            "it was there all the time"
        );
        let seen = run(&mut mine, b"k", get(None)).expect("it is there");
        assert_eq!(
            (seen.value.as_slice(), seen.deadline),
            (&b"v"[..], deadline)
        );
    });
}

/// Mutant `evicts_sets_without_stripe`: a set is taken while another thread changes it. The engine
/// asserts that the stripe is held by the thread that takes a set.
#[test]
fn a_set_is_not_taken_while_it_is_changed() {
    corewise_atomic::model(|| {
        let engine = engine();
        let mut mine = engine.session();
        // Too long for a flat set.
        let member = [b'm'; 100];
        let increment = move |session: &mut RelativisticSession| {
            let op = SortedOp::Write(SortedWrite::Increment {
                delta: 1.0,
                member: &member,
                conditions: Conditions::default(),
            });
            run(session, b"k", Verb::Sorted(&op));
        };
        increment(&mut mine);
        assert_eq!(engine.stats().sets, 1);
        mine.seal();
        let mut other = engine.session();
        let writer = thread::spawn(move || increment(&mut other));
        mine.walk_all(Purpose::Evict);
        writer.join().unwrap();
        // The writer was first, or has made a new set.
        let stats = engine.stats();
        assert!(
            stats.sets <= 1 && (stats.sets == 0) == (stats.set_bytes == 0),
            "{stats:?}"
        );
    });
}

/// Mutant `publishes_in_any_generation`: an item made before a flush replaces one stored after it,
/// and both are lost. Runs step by step: schedulers seldom stop one thread for that long.
#[test]
fn what_is_stored_after_a_flush_is_not_lost_to_a_store_from_before() {
    corewise_atomic::model(|| {
        let engine = engine();
        let [mut mine, mut other] = [(); 2].map(|()| engine.session());
        run(&mut mine, b"k", store(StoreMode::Set, b"old"));
        let Verb::Store(replace) = store(StoreMode::Replace, b"replaced") else {
            unreachable!("a store is one")
        };
        let mut flush = || {
            engine.flush_all(Deadline::PAST, NOW);
            run(&mut mine, b"k", store(StoreMode::Set, b"new"));
        };
        let mut exec = Exec {
            engine: &engine,
            session_state: &mut other.session_state,
            hash: engine.hash(b"k"),
            now: NOW,
        };
        let mut flushed = false;
        let _ = exec.store_after(b"k", &replace, &mut |_| Flow::Continue, || {
            if !std::mem::replace(&mut flushed, true) {
                flush();
            }
        });
        let seen = run(&mut mine, b"k", get(None)).expect("it was stored after the flush");
        assert_eq!(seen.value, b"replaced");
    });
}

/// Mutant `claims_unsettled`: a segment is walked while an item in it is still being written. Runs
/// step by step.
#[test]
fn a_segment_is_not_claimed_before_its_items_are_linked() {
    corewise_atomic::model(|| {
        let engine = engine();
        let [mut mine, mut other] = [(); 2].map(|()| engine.session());
        let Verb::Store(set) = store(StoreMode::Set, b"value") else {
            unreachable!("a store is one")
        };
        let mut exec = Exec {
            engine: &engine,
            session_state: &mut other.session_state,
            hash: engine.hash(b"k"),
            now: NOW,
        };
        let claim = || engine.heap.claim_where(&mut 1, &mut 8, |_| true);
        let _ = exec.store_after(b"k", &set, &mut |_| Flow::Continue, || {
            mine.seal();
            assert!(claim().is_none(), "an item in it is being written");
        });
        assert!(claim().is_some(), "all its items are linked");
    });
}

/// Mutant `forgets_the_eviction`: an item that was seen to be gone comes back, with a change. The
/// operation must begin again. Runs step by step, as above.
#[test]
fn nothing_is_made_of_an_item_that_is_evicted_meanwhile() {
    corewise_atomic::model(|| {
        let engine = engine();
        let [mut mine, mut other] = [(); 2].map(|()| engine.session());
        run(&mut mine, b"k", store(StoreMode::Set, b"1"));
        mine.seal();
        let mut exec = Exec {
            engine: &engine,
            session_state: &mut other.session_state,
            hash: engine.hash(b"k"),
            now: NOW,
        };
        let contents = Contents::new(b"k", b"2", 0, Deadline::NEVER);
        let bytes = engine.size(&contents).unwrap();
        let wanted = Wanted {
            bytes,
            old_bytes: 0,
            counts: false,
        };
        assert!(exec.session_state.make_room(&engine, NOW, wanted));
        exec.inside(b"k", |inside| {
            let old = inside.find().expect("it was stored");
            mine.walk_all(Purpose::Evict);
            assert_eq!(run(&mut mine, b"k", get(None)), None, "it is evicted");
            let fresh = inside.create(&contents).unwrap();
            // SAFETY: `fresh` was made and `old` found above, by the same operation (1).
            let published = unsafe { inside.publish(fresh, Some(old), None) };
            assert_eq!(published, Err(NoItem::NotYet(bytes)));
        });
        assert_eq!(run(&mut mine, b"k", get(None)), None, "it came back");
        // Now the counter is gone.
        let incr = Verb::Arith(Arith::new(1));
        run(&mut other, b"k", incr);
        assert_eq!(run(&mut mine, b"k", get(None)), None);
    });
}

/// A sink that changes the cache while it is handed a value.
struct Meanwhile<F>(F);

impl<F: FnMut(&[u8])> ReplySink for Meanwhile<F> {
    fn complete(&mut self, _: u32, outcome: Outcome<'_>) -> Flow {
        if let Outcome::Found(view) = outcome {
            (self.0)(view.value);
        }
        Flow::Continue
    }
}

/// Mutant `no_grace_period`: a segment is reused at once.
#[test]
fn a_value_stays_whole_while_it_is_read() {
    corewise_atomic::model(|| {
        let engine = engine();
        let mut mine = engine.session();
        run(&mut mine, b"k", store(StoreMode::Set, &[1; 100]));
        mine.seal();
        let mut reads = 0;
        let mut sink = Meanwhile(|value: &[u8]| {
            reads += 1;
            run(&mut mine, b"k", Verb::Delete(Delete::default()));
            assert!(engine.heap.waiting_bytes() > 0, "its segment is given up");
            for key in [b"a", b"b"] {
                run(&mut mine, key, store(StoreMode::Set, &[2; 100]));
            }
            engine.heap.collect(engine.table.domain());
            mine.seal();
            for key in [b"a", b"b"] {
                run(&mut mine, key, store(StoreMode::Set, &[3; 100]));
            }
            assert_eq!(value, [1; 100]);
        });
        let ops = [Op::new(0, b"k", get(None))];
        engine.session().submit(NOW, &ops, &mut sink);
        assert_eq!(reads, 1);
    });
}

/// Mutant `walks_unsettled`: an open segment is searched while an item in it is still being
/// written, and the item's deadline is forgotten. Runs step by step.
#[test]
fn an_item_stored_beside_a_search_is_not_forgotten() {
    corewise_atomic::model(|| {
        let engine = engine();
        let [mut mine, mut other] = [(); 2].map(|()| engine.session());
        let set = Store::new(StoreMode::Set, b"v").until(Deadline::at_ms(5_500));
        run(&mut mine, b"k", Verb::Store(set));
        let search = |second: u64| {
            let now = Now::new(second * 1_000, 0);
            let site = mine.session_state.site(&engine, now);
            while engine.search.lock().step(&site, MAINTENANCE_BYTES) {}
        };
        let mut exec = Exec {
            engine: &engine,
            session_state: &mut other.session_state,
            hash: engine.hash(b"n"),
            now: NOW,
        };
        // The writer's clock is behind that of the search.
        let _ = exec.store_after(b"n", &set, &mut |_| Flow::Continue, || search(6));
        search(7);
        assert_eq!(engine.stats().items, 0);
    });
}
