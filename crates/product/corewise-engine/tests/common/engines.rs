//! What the tests must know about an engine. To add one, write an `impl TestEngine` and a line in
//! [`for_every_engine`].

use corewise_engine::Engine;
use corewise_engine::alloc::GlobalHeap;
use corewise_engine::engines::{locked, lockhash, relativistic};

/// The settings that every engine understands.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    /// Memory in bytes.
    pub memory: u64,
    /// Size of the largest item in bytes, header and key included.
    pub max_item_bytes: usize,
    /// Whether items may be evicted; otherwise stores are refused.
    pub evicts: bool,
    /// Threads that will use the engine.
    pub threads: usize,
}

impl Setup {
    /// More memory than any test of behaviour fills.
    pub fn roomy() -> Self {
        Self {
            memory: 64 << 20,
            max_item_bytes: 1 << 20,
            evicts: true,
            threads: 4,
        }
    }

    /// The least memory in which `sessions` sessions can work, with eviction.
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

/// An engine that the tests can make.
pub trait TestEngine: Engine {
    /// Makes an engine of this kind.
    fn make(setup: Setup) -> Self;

    /// The smallest memory in bytes with which the engine keeps its guarantees to `sessions`
    /// sessions, for items of up to a sixteenth of it. Tests that fill the cache use this size.
    fn smallest(sessions: usize) -> u64;
}

/// The settings of the engines that share `locked`'s configuration.
fn with_shards(setup: Setup) -> locked::Config {
    locked::Config {
        memory: setup.memory,
        max_item_bytes: setup.max_item_bytes,
        eviction: if setup.evicts {
            locked::Eviction::Lru
        } else {
            locked::Eviction::Refuse
        },
        threads: setup.threads,
    }
}

impl<R: locked::References> TestEngine for locked::Locked<GlobalHeap, R> {
    fn make(setup: Setup) -> Self {
        Self::new(with_shards(setup))
    }

    /// The size of one shard; sessions hold nothing.
    fn smallest(_sessions: usize) -> u64 {
        256 << 10
    }
}

impl TestEngine for lockhash::LockHashEngine {
    fn make(setup: Setup) -> Self {
        Self::new(with_shards(setup))
    }

    /// The size of one partition; sessions hold nothing.
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

    /// A session may have some segments open, of 32 KiB each here.
    fn smallest(sessions: usize) -> u64 {
        (1 << 20) + ((sessions as u64) << 18)
    }
}

/// Makes a test `engine::name` of each `fn name<E: TestEngine>()` for every engine.
macro_rules! for_every_engine {
    ($($test:ident)+) => {
        for_engine!(locked, corewise_engine::engines::locked::Locked, $($test)+);
        for_engine!(global_lock, corewise_engine::engines::global_lock::GlobalLock, $($test)+);
        for_engine!(lockhash, corewise_engine::engines::lockhash::LockHashEngine, $($test)+);
        for_engine!(relativistic, corewise_engine::engines::relativistic::Relativistic, $($test)+);
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
