//! What the tests must know of an engine. One is added by an `impl TestEngine` and a line in
//! [`for_every_engine`].

use corewise_cache::Engine;
use corewise_cache::alloc::GlobalHeap;
use corewise_cache::engines::{locked, relativistic};

/// What every engine can be told.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    /// Bytes.
    pub memory: u64,
    /// Bytes of the largest item, header and key included.
    pub max_item_bytes: usize,
    /// Whether items may be evicted; otherwise stores are refused.
    pub evicts: bool,
    /// Threads that will use the engine.
    pub threads: usize,
}

impl Setup {
    /// Memory that no test of behaviour fills.
    pub fn roomy() -> Self {
        Self {
            memory: 64 << 20,
            max_item_bytes: 1 << 20,
            evicts: true,
            threads: 4,
        }
    }

    /// The least memory in which `sessions` sessions can work; it evicts.
    pub fn tight<E: TestEngine>(sessions: usize) -> Self {
        let memory = E::smallest(sessions);
        Self {
            memory,
            max_item_bytes: memory as usize / 16,
            evicts: true,
            threads: sessions,
        }
    }

    /// The same without eviction.
    pub fn refusing<E: TestEngine>(sessions: usize) -> Self {
        Self {
            evicts: false,
            ..Self::tight::<E>(sessions)
        }
    }
}

/// An engine as the tests make one.
pub trait TestEngine: Engine {
    /// An engine of this kind.
    fn make(setup: Setup) -> Self;

    /// The smallest memory in bytes with which it keeps its promises to so many sessions, items of
    /// a sixteenth of it included. Tests that fill the cache take so much.
    fn smallest(sessions: usize) -> u64;
}

impl<R: locked::References> TestEngine for locked::Locked<GlobalHeap, R> {
    fn make(setup: Setup) -> Self {
        Self::new(locked::Config {
            memory: setup.memory,
            max_item_bytes: setup.max_item_bytes,
            eviction: if setup.evicts {
                locked::Eviction::Lru
            } else {
                locked::Eviction::Refuse
            },
            threads: setup.threads,
        })
    }

    /// A shard of so much; sessions hold nothing.
    fn smallest(_sessions: usize) -> u64 {
        256 << 10
    }
}

impl TestEngine for relativistic::Relativistic {
    fn make(setup: Setup) -> Self {
        Self::new(relativistic::Config {
            memory: setup.memory,
            max_item_bytes: setup.max_item_bytes,
            eviction: if setup.evicts {
                relativistic::Eviction::S3Fifo
            } else {
                relativistic::Eviction::Refuse
            },
            huge_pages: false,
        })
    }

    /// A session may have some segments open, of 16 KiB each here.
    fn smallest(sessions: usize) -> u64 {
        (1 << 20) + ((sessions as u64) << 18)
    }
}

/// Makes a test `engine::name` of each `fn name<E: TestEngine>()` for every engine.
macro_rules! for_every_engine {
    ($($test:ident)+) => {
        for_engine!(locked, corewise_cache::engines::locked::Locked, $($test)+);
        for_engine!(global_lock, corewise_cache::engines::global_lock::GlobalLock, $($test)+);
        for_engine!(relativistic, corewise_cache::engines::relativistic::Relativistic, $($test)+);
    };
}

macro_rules! for_engine {
    ($name:ident, $engine:ty, $($test:ident)+) => {
        mod $name {
            $(
                #[test]
                fn $test() {
                    super::$test::<$engine>();
                }
            )+
        }
    };
}
