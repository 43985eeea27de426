//! Settings of a cache.

use corewise_maps::relativistic::DefaultHasher;
use std::hash::{BuildHasher, Hash};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::cache::{Cache, RemovalCause};

pub(crate) type Weigher<K, V> = Box<dyn Fn(&K, &V) -> u64 + Send + Sync>;
pub(crate) type Listener<K, V> = Box<dyn Fn(&K, &V, RemovalCause) + Send + Sync>;
pub(crate) type Clock = Box<dyn Fn() -> Duration + Send + Sync>;

/// Makes a [`Cache`] with settings; from [`Cache::builder`].
pub struct Builder<K, V, S = DefaultHasher> {
    pub(crate) max_weight: u64,
    pub(crate) weigher: Option<Weigher<K, V>>,
    pub(crate) listener: Option<Listener<K, V>>,
    pub(crate) time_to_live: Option<Duration>,
    pub(crate) time_to_idle: Option<Duration>,
    pub(crate) clock: Clock,
    pub(crate) hasher: S,
}

impl<K, V> Builder<K, V> {
    pub(crate) fn new(max_weight: u64) -> Self {
        let start = Instant::now();
        Self {
            max_weight,
            weigher: None,
            listener: None,
            time_to_live: None,
            time_to_idle: None,
            clock: Box::new(move || start.elapsed()),
            hasher: DefaultHasher::default(),
        }
    }
}

impl<K, V, S> Builder<K, V, S> {
    /// The weight of an entry, asked once for each insertion; without it every entry weighs 1.
    pub fn weigher(mut self, weigh: impl Fn(&K, &V) -> u64 + Send + Sync + 'static) -> Self {
        self.weigher = Some(Box::new(weigh));
        self
    }

    /// Called for each value that leaves the cache, in the thread that removed it.
    pub fn eviction_listener(
        mut self,
        f: impl Fn(&K, &V, RemovalCause) + Send + Sync + 'static,
    ) -> Self {
        self.listener = Some(Box::new(f));
        self
    }

    /// How long an entry is found after its insertion, in whole milliseconds: it may expire up to a
    /// millisecond early. A lookup then reads the clock.
    pub fn time_to_live(mut self, time: Duration) -> Self {
        self.time_to_live = Some(time);
        self
    }

    /// How long an entry is found after it was last read or inserted, as in
    /// [`time_to_live`](Self::time_to_live).
    pub fn time_to_idle(mut self, time: Duration) -> Self {
        self.time_to_idle = Some(time);
        self
    }

    /// The clock, as the time since any fixed moment: for tests, or a coarser one that is cheaper
    /// to read. The default is [`Instant`].
    pub fn clock(mut self, clock: impl Fn() -> Duration + Send + Sync + 'static) -> Self {
        self.clock = Box::new(clock);
        self
    }

    /// Another hasher.
    pub fn hasher<T>(self, hasher: T) -> Builder<K, V, T> {
        Builder {
            max_weight: self.max_weight,
            weigher: self.weigher,
            listener: self.listener,
            time_to_live: self.time_to_live,
            time_to_idle: self.time_to_idle,
            clock: self.clock,
            hasher,
        }
    }
}

impl<K: Hash + Eq + Clone, V: Clone, S: BuildHasher + Clone> Builder<K, V, S> {
    /// Makes the cache.
    pub fn build(self) -> Cache<K, V, S> {
        Cache {
            shared: Arc::new(crate::cache::CacheState::new(self)),
        }
    }
}
