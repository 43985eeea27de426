//! `LockHash` beside other caches, in all cells of keys, insertions and threads.

use std::sync::Barrier;
use std::time::Instant;

use corewise_cphash::{
    AndersonLock, CacheRequest, Config, Eviction, LockHash, PartitionLock, Reply, SpinLock,
};
use corewise_measure::draw::mix;
use foldhash::fast::RandomState;

use crate::report::{Candidate, Options, SLICE, compare};

const SHARDS: usize = 4096;
/// Operations between two looks at the clock.
const ROUND: u64 = 4096;

trait Cache: Sync {
    fn get(&self, key: u64) -> Option<u64>;
    fn insert(&self, key: u64, value: u64);
}

impl<L: PartitionLock> Cache for LockHash<RandomState, L> {
    fn get(&self, key: u64) -> Option<u64> {
        LockHash::get(self, key, |value| {
            u64::from_le_bytes(*value.first_chunk().expect("all values have 8 bytes"))
        })
    }
    fn insert(&self, key: u64, value: u64) {
        LockHash::insert(self, key, &value.to_le_bytes()).expect("there is room");
    }
}

fn ours<L: PartitionLock>(
    keys: u64,
    eviction: Eviction,
    partitions: usize,
) -> LockHash<RandomState, L> {
    // Room for the fullest partition.
    let budget = (keys as usize * 128).max(partitions * 1024);
    let config = Config::new(budget).partitions(partitions).element_bytes(64);
    LockHash::with_hasher(&config.eviction(eviction), RandomState::default())
        .expect("within limits")
}

#[cfg(feature = "peers")]
mod peers {
    use super::*;
    use std::hash::BuildHasher;
    use std::num::NonZeroUsize;

    type Shard = parking_lot::Mutex<lru::LruCache<u64, u64, RandomState>>;

    pub(super) struct Sharded(RandomState, Vec<Shard>);

    impl Sharded {
        pub(super) fn new(keys: u64) -> Self {
            let hasher = RandomState::default();
            let capacity = (keys as usize * 3 / 2 / SHARDS).max(16);
            let capacity = NonZeroUsize::new(capacity).expect("at least 16");
            let shard = |_| lru::LruCache::with_hasher(capacity, hasher.clone()).into();
            Self(hasher.clone(), (0..SHARDS).map(shard).collect())
        }

        fn shard(&self, key: u64) -> &Shard {
            &self.1[(self.0.hash_one(key) >> 40) as usize % SHARDS]
        }
    }

    impl Cache for Sharded {
        fn get(&self, key: u64) -> Option<u64> {
            self.shard(key).lock().get(&key).copied()
        }
        fn insert(&self, key: u64, value: u64) {
            self.shard(key).lock().put(key, value);
        }
    }

    pub(super) struct Quick(
        quick_cache::sync::Cache<u64, u64, quick_cache::UnitWeighter, RandomState>,
    );

    impl Quick {
        pub(super) fn new(keys: u64) -> Self {
            let capacity = (keys as usize * 3 / 2).max(4096);
            Self(quick_cache::sync::Cache::with(
                capacity,
                capacity as u64,
                quick_cache::UnitWeighter,
                RandomState::default(),
                Default::default(),
            ))
        }
    }

    impl Cache for Quick {
        fn get(&self, key: u64) -> Option<u64> {
            self.0.get(&key)
        }
        fn insert(&self, key: u64, value: u64) {
            self.0.insert(key, value);
        }
    }
}

/// Millions of operations per second, of all threads.
fn measure<C: Cache>(cache: &C, keys: u64, inserts_percent: u64, threads: u64) -> f64 {
    let barrier = Barrier::new(threads as usize);
    let work = |thread: u64| {
        let mut draw = mix(thread + 1);
        let (mut count, mut sum) = (0, 0u64);
        barrier.wait();
        let start = Instant::now();
        while start.elapsed() < SLICE {
            for _ in 0..ROUND {
                draw = draw
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1_442_695_040_888_963_407);
                let key = ((draw >> 32) * keys) >> 32;
                if (draw >> 20) % 100 < inserts_percent {
                    cache.insert(key, key);
                } else {
                    sum = sum.wrapping_add(cache.get(key).expect("it was inserted"));
                }
            }
            count += ROUND;
        }
        std::hint::black_box(sum);
        count as f64 / start.elapsed().as_secs_f64() / 1e6
    };
    std::thread::scope(|scope| {
        let others: Vec<_> = (1..threads)
            .map(|thread| scope.spawn(move || work(thread)))
            .collect();
        let own = work(0);
        others
            .into_iter()
            .map(|other| other.join().expect("it does not panic"))
            .sum::<f64>()
            + own
    })
}

fn filled<C: Cache>(cache: C, keys: u64) -> C {
    (0..keys).for_each(|key| cache.insert(mix(key) % keys, key));
    (0..keys).for_each(|key| cache.insert(key, key));
    cache
}

pub(crate) fn run(options: &Options) {
    for keys in [1000, 1_000_000] {
        let lru = filled(ours::<SpinLock>(keys, Eviction::Lru, SHARDS), keys);
        let few = filled(ours::<SpinLock>(keys, Eviction::Lru, 64), keys);
        let random = filled(ours::<SpinLock>(keys, Eviction::Random, SHARDS), keys);
        #[cfg(feature = "peers")]
        let (quick, sharded) = (
            filled(peers::Quick::new(keys), keys),
            filled(peers::Sharded::new(keys), keys),
        );
        for inserts in [0, 10, 50] {
            for threads in [1, 2] {
                let candidates = vec![
                    Candidate::new("LockHash lru", || measure(&lru, keys, inserts, threads)),
                    Candidate::new("LockHash lru, 64 partitions", || {
                        measure(&few, keys, inserts, threads)
                    }),
                    Candidate::new("LockHash random", || {
                        measure(&random, keys, inserts, threads)
                    }),
                    #[cfg(feature = "peers")]
                    Candidate::new("quick_cache", || measure(&quick, keys, inserts, threads)),
                    #[cfg(feature = "peers")]
                    Candidate::new("4096 locked lru", || {
                        measure(&sharded, keys, inserts, threads)
                    }),
                ];
                let title = format!(
                    "lockhash: millions of operations per second, {keys} keys, {inserts} % \
                     insertions, {threads} threads"
                );
                compare(&title, options, 3, candidates);
            }
        }
    }
}

/// The variants of the lock, and batches, beside one lock for each operation (\[CPHASH\] §6.2).
pub(crate) fn run_locks(options: &Options) {
    for keys in [1000, 1_000_000] {
        let spin = filled(ours::<SpinLock>(keys, Eviction::Lru, SHARDS), keys);
        let anderson = filled(ours::<AndersonLock>(keys, Eviction::Lru, SHARDS), keys);
        let batches = |size: usize| {
            let (start, mut count, mut draw) = (Instant::now(), 0, mix(7));
            while start.elapsed() < SLICE {
                let batch: Vec<CacheRequest<'_>> = (0..size)
                    .map(|_| {
                        draw = mix(draw);
                        CacheRequest::Get((draw % keys).into())
                    })
                    .collect();
                spin.execute_batch(&batch, |_, reply| assert!(matches!(reply, Reply::Found(_))));
                count += size;
            }
            count as f64 / start.elapsed().as_secs_f64() / 1e6
        };
        let candidates = vec![
            Candidate::new("spin lock", || measure(&spin, keys, 0, 1)),
            Candidate::new("Anderson's lock", || measure(&anderson, keys, 0, 1)),
            Candidate::new("batches of 1,000", || batches(1000)),
            Candidate::new("batches of 16,000", || batches(16_000)),
        ];
        let title = format!("locks: millions of lookups per second, {keys} keys, 1 thread");
        compare(&title, options, 1, candidates);
    }
}
