//! Constructors of every engine for tests, and a session that executes one operation at a time and
//! returns what a sink saw.
#![allow(dead_code, unused_imports, unused_macros, unreachable_pub)] // each test uses a part

mod thread_pool;
#[macro_use]
mod engines;

pub use corewise_testkit::memcached::{Collect, Seen};
pub use corewise_testkit::random::fewer;
pub use engines::{Setup, TestEngine};
pub use thread_pool::{Worker, at_once};

use corewise_engine::{Cursor, Engine, ScanStep, Session};
use corewise_ops::{Arith, Delete, Get, ItemView, Now, Op, Store, StoreMode, Verb};
use std::sync::Arc;

pub const NOW: Now = Now::new(10_000, 1_700_000_000);

pub fn later(ms: u64) -> Now {
    Now::new(NOW.ms + ms, NOW.unix_s + ms / 1_000)
}

pub struct Cache<E: Engine> {
    pub engine: Arc<E>,
    pub session: E::Session,
    pub now: Now,
}

impl<E: TestEngine> Cache<E> {
    pub fn new(setup: Setup) -> Self {
        Self::over(&Arc::new(E::make(setup)))
    }

    /// A cache with more memory than the test uses.
    pub fn roomy() -> Self {
        Self::new(Setup::roomy())
    }

    /// Another session of an engine.
    pub fn over(engine: &Arc<E>) -> Self {
        Self {
            session: engine.session(),
            engine: Arc::clone(engine),
            now: NOW,
        }
    }

    pub fn run(&mut self, key: &[u8], verb: Verb<'_>) -> Seen {
        let mut sink = Collect::new();
        let ops = [Op::new(7, key, verb)];
        assert_eq!(self.session.submit(self.now, &ops, &mut sink), 1);
        assert_eq!(self.session.poll(self.now, &mut sink), 0);
        let (token, seen) = sink.seen.pop().expect("one outcome");
        assert_eq!((token, sink.seen.len()), (7, 0));
        seen
    }

    /// Shows all items, in steps.
    pub fn scan(&self, most_looks: usize, mut show: impl FnMut(&ItemView<'_>)) {
        let mut step = ScanStep::More(Cursor::START);
        while let ScanStep::More(cursor) = step {
            step = self.engine.scan(cursor, most_looks, self.now, &mut show);
        }
        assert_eq!(step, ScanStep::Done);
    }

    pub fn get(&mut self, key: &[u8]) -> Seen {
        self.run(key, Verb::Get(Get::default()))
    }

    pub fn set(&mut self, key: &[u8], value: &[u8]) -> Seen {
        self.run(key, Verb::Store(store(StoreMode::Set, value)))
    }

    pub fn store(&mut self, key: &[u8], store: Store<'_>) -> Seen {
        self.run(key, Verb::Store(store))
    }

    pub fn delete(&mut self, key: &[u8], delete: Delete) -> Seen {
        self.run(key, Verb::Delete(delete))
    }

    pub fn arith(&mut self, key: &[u8], arith: Arith) -> Seen {
        self.run(key, Verb::Arith(arith))
    }

    /// Runs housekeeping until none is left; returns the number of steps.
    pub fn maintain(&mut self) -> usize {
        let mut steps = 0;
        while self.session.maintain(self.now) {
            steps += 1;
            assert!(steps < 1_000_000, "maintenance ends");
        }
        steps
    }

    /// Fails unless the charged bytes lie within the budget.
    pub fn assert_within_budget(&self) {
        let (stats, limit) = (self.engine.stats(), self.engine.memory_limit());
        assert!(stats.bytes <= limit, "a budget of {limit}: {stats:?}");
    }
}

pub fn store(mode: StoreMode, value: &[u8]) -> Store<'_> {
    Store::new(mode, value)
}

pub fn incr(delta: u64) -> Arith {
    Arith::new(delta)
}

/// A value of at least eight bytes, each of which depends on `stamp`. [`stamp_of`] recovers the
/// stamp.
pub fn stamped(stamp: u64, length: usize) -> Vec<u8> {
    let mut value = stamp.to_le_bytes().to_vec();
    value.extend((8..length.max(8)).map(|at| filler(stamp, at)));
    value
}

fn filler(stamp: u64, at: usize) -> u8 {
    (stamp
        .wrapping_add(at as u64)
        .wrapping_mul(0x9e37_79b9_7f4a_7c15)
        >> 56) as u8
}

/// The stamp of a value. Checks that the value is whole.
pub fn stamp_of(value: &[u8]) -> u64 {
    let (stamp, rest) = value.split_first_chunk().expect("eight bytes");
    let stamp = u64::from_le_bytes(*stamp);
    let torn = (8..)
        .zip(rest)
        .find(|&(at, byte)| *byte != filler(stamp, at));
    assert_eq!(torn, None, "stamp {stamp}, {} bytes", value.len());
    stamp
}

/// The client flags of an item that was found.
pub fn client_flags(seen: &Seen) -> u32 {
    match seen {
        Seen::Found { client_flags, .. } => *client_flags,
        other => panic!("{other:?}"),
    }
}

/// The number of which a value is the decimal form.
pub fn number(seen: &Seen) -> Option<u64> {
    let text = std::str::from_utf8(seen.value()?).unwrap();
    Some(text.trim_end().parse().unwrap())
}
