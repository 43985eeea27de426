//! A session that executes one operation at a time and hands back what a sink saw.
#![allow(dead_code, unreachable_pub)] // each test program uses its own part of this

use corewise_cache::engines::locked::{Config, Eviction, Locked, LockedSession};
use corewise_cache::{Engine, Session};
use corewise_ops::{
    Absence, Arith, Deadline, Delete, Flow, Get, ItemFlags, Now, Op, Outcome, ReplySink, Store,
    StoreMode, Token, Verb,
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

/// An outcome without its borrow.
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
            _ => unreachable!("an outcome these tests do not know"),
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

    pub fn flags(&self) -> ItemFlags {
        match self {
            Self::Found { flags, .. } => *flags,
            other => panic!("{other:?} has no flags"),
        }
    }
}

/// Collects outcomes; pauses once it has `pause_after`.
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

pub struct Cache {
    pub engine: Arc<Locked>,
    pub session: LockedSession,
    pub now: Now,
}

impl Cache {
    pub fn new(config: Config) -> Self {
        let engine = Arc::new(Locked::new(config));
        Self {
            session: engine.session(),
            engine,
            now: NOW,
        }
    }

    pub fn small() -> Self {
        Self::new(Config {
            memory: 64 << 20,
            ..Config::default()
        })
    }

    /// One shard of `memory` bytes.
    pub fn tiny(memory: u64, eviction: Eviction) -> Self {
        Self::new(Config {
            memory,
            max_item_bytes: memory as usize / 16,
            eviction,
            threads: 1,
        })
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
