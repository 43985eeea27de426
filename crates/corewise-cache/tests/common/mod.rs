//! Constructors of every engine for tests, and a session that executes one operation at a time and
//! returns what a sink saw.
#![allow(dead_code, unused_imports, unused_macros, unreachable_pub)] // each test uses a part

mod thread_pool;
#[macro_use]
mod engines;

pub use engines::{Setup, TestEngine};
pub use thread_pool::{Worker, at_once};

use corewise_cache::{Cursor, Engine, ScanStep, Session};
use corewise_ops::{
    Absence, Arith, Deadline, Delete, Flow, Get, ItemFlags, ItemView, Now, Op, Outcome, ReplySink,
    Store, StoreMode, Token, Verb,
};
use std::sync::Arc;

pub const NOW: Now = Now {
    ms: 10_000,
    unix_s: 1_700_000_000,
};

pub fn later(ms: u64) -> Now {
    Now {
        ms: NOW.ms + ms,
        unix_s: NOW.unix_s + ms / 1_000,
    }
}

/// An owned copy of an outcome.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Seen {
    Found {
        value: Vec<u8>,
        client_flags: u32,
        cas: u64,
        deadline: Deadline,
        flags: ItemFlags,
    },
    Stored {
        value: Vec<u8>,
        cas: u64,
    },
    Counter {
        value: u64,
        text: Vec<u8>,
    },
    Deleted,
    Missing(Absence),
    NotStored,
    Exists,
    NonNumeric,
    TooLarge,
    OutOfMemory,
    Edited {
        number: i64,
        old: Option<Vec<u8>>,
    },
    Refused(&'static str),
}

impl Seen {
    pub fn of(outcome: &Outcome<'_>) -> Self {
        match *outcome {
            Outcome::Found(v) => Self::Found {
                value: v.value.to_vec(),
                client_flags: v.client_flags,
                cas: v.cas,
                deadline: v.deadline,
                flags: v.flags,
            },
            Outcome::Stored(v) => Self::Stored {
                value: v.value.to_vec(),
                cas: v.cas,
            },
            Outcome::Counter { value, view } => Self::Counter {
                value,
                text: view.value.to_vec(),
            },
            Outcome::Deleted => Self::Deleted,
            Outcome::Missing(absence) => Self::Missing(absence),
            Outcome::NotStored => Self::NotStored,
            Outcome::Exists => Self::Exists,
            Outcome::NonNumeric => Self::NonNumeric,
            Outcome::TooLarge => Self::TooLarge,
            Outcome::OutOfMemory => Self::OutOfMemory,
            Outcome::Edited { number, old, .. } => Self::Edited {
                number,
                old: old.map(<[u8]>::to_vec),
            },
            Outcome::Refused(why) => Self::Refused(why),
        }
    }

    pub fn value(&self) -> Option<&[u8]> {
        match self {
            Self::Found { value, .. } | Self::Stored { value, .. } => Some(value),
            _ => None,
        }
    }

    pub fn cas(&self) -> u64 {
        match self {
            Self::Found { cas, .. } | Self::Stored { cas, .. } => *cas,
            other => panic!("{other:?} has no cas value"),
        }
    }

    pub fn deadline(&self) -> Deadline {
        match self {
            Self::Found { deadline, .. } => *deadline,
            other => panic!("{other:?} has no deadline"),
        }
    }

    /// Whether a read or a conditional write found nothing. Engines may differ in the reported
    /// reason.
    pub fn is_absent(&self) -> bool {
        matches!(self, Self::Missing(_))
    }

    pub fn is_stored(&self) -> bool {
        matches!(self, Self::Stored { .. })
    }

    pub fn flags(&self) -> ItemFlags {
        match self {
            Self::Found { flags, .. } => *flags,
            other => panic!("{other:?} has no flags"),
        }
    }
}

/// A sink that collects outcomes, and pauses once it has `pause_after`.
pub struct Collect {
    pub seen: Vec<(Token, Seen)>,
    pub pause_after: usize,
}

impl Collect {
    pub fn new() -> Self {
        Self {
            seen: Vec::new(),
            pause_after: usize::MAX,
        }
    }
}

impl ReplySink for Collect {
    fn complete(&mut self, token: Token, outcome: Outcome<'_>) -> Flow {
        self.seen.push((token, Seen::of(&outcome)));
        if self.seen.len() >= self.pause_after {
            Flow::Pause
        } else {
            Flow::Continue
        }
    }
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
        let ops = [Op {
            token: 7,
            key,
            verb,
        }];
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
    Store {
        mode,
        value,
        client_flags: 0,
        deadline: Deadline::NEVER,
        compare_cas: None,
        stale_if_older: false,
        new_cas: None,
        vivify: None,
    }
}

pub fn incr(delta: u64) -> Arith {
    Arith {
        delta,
        decrement: false,
        compare_cas: None,
        new_cas: None,
        touch: None,
        vivify: None,
    }
}

/// Reduces work where everything is slow, as under a sanitizer.
pub fn fewer(count: u64) -> u64 {
    match std::env::var_os("COREWISE_FEWER") {
        Some(_) => count.div_ceil(8),
        None => count,
    }
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

/// The number of which a value is the decimal form.
pub fn number(seen: &Seen) -> Option<u64> {
    let text = std::str::from_utf8(seen.value()?).unwrap();
    Some(text.trim_end().parse().unwrap())
}
