//! The cache: what lookups read is in the map, what updates share is in [`Policy`].

use corewise_maps::relativistic::DefaultHasher;
use std::collections::HashMap;
use std::hash::{BuildHasher, Hash};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use corewise_maps::relativistic::MapRef;
use corewise_maps::{Equivalent, RelativisticMap};

use crate::builder::{Builder, Clock, Listener, Weigher};
use crate::flight::{Flight, lock};
use crate::policy::{Item, Policy};
use crate::stats::{Counters, Statistics};

const MAX_FREQUENCY: u8 = 3;
/// How many expired entries an update reclaims.
const RECLAIMED_PER_UPDATE: usize = 4;

/// Why a value left the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RemovalCause {
    /// Another value was inserted for the key.
    Replaced,
    /// `remove` or `clear` removed it.
    Removed,
    /// It made room for others.
    Evicted,
    /// Its time was over.
    Expired,
}

/// The entry is heavier than the whole cache: it was not inserted, and an older value is removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooHeavy;

impl std::fmt::Display for TooHeavy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the entry is heavier than the cache")
    }
}

impl std::error::Error for TooHeavy {}

pub(crate) struct Entry<V> {
    value: V,
    id: u64,
    weight: u64,
    /// In milliseconds of the clock.
    inserted: u64,
    accessed: AtomicU64,
    frequency: AtomicU8,
    /// Which queue has it; read and written under the lock.
    in_main: AtomicBool,
}

// All accesses are Relaxed: these are hints for eviction, or are ordered by the lock.
impl<V> Entry<V> {
    fn frequency(&self) -> u8 {
        // Relaxed: a hint.
        self.frequency.load(Ordering::Relaxed)
    }

    fn set_frequency(&self, frequency: u8) {
        // Relaxed: a hint.
        self.frequency.store(frequency, Ordering::Relaxed);
    }

    fn accessed(&self) -> u64 {
        // Relaxed: a hint.
        self.accessed.load(Ordering::Relaxed)
    }

    fn in_main(&self) -> bool {
        // Relaxed: the lock orders it.
        self.in_main.load(Ordering::Relaxed)
    }
}

pub(crate) struct CacheState<K, V, S> {
    map: RelativisticMap<K, Entry<V>, S>,
    policy: Mutex<Policy<K>>,
    pub(crate) flights: Mutex<HashMap<K, Arc<Flight<V>>, S>>,
    counters: Counters,
    max_weight: u64,
    weigher: Option<Weigher<K, V>>,
    listener: Option<Listener<K, V>>,
    time_to_live: Option<u64>,
    time_to_idle: Option<u64>,
    clock: Clock,
}

/// A handle of a bounded cache; clones share it. See the [crate] for the guarantees.
pub struct Cache<K, V, S = DefaultHasher> {
    pub(crate) shared: Arc<CacheState<K, V, S>>,
}

impl<K, V, S> Clone for Cache<K, V, S> {
    fn clone(&self) -> Self {
        Self {
            shared: Arc::clone(&self.shared),
        }
    }
}

impl<K: Hash + Eq + Clone, V: Clone> Cache<K, V> {
    /// A cache of at most `max_weight` entries that weigh 1 each.
    pub fn new(max_weight: u64) -> Self {
        Self::builder(max_weight).build()
    }

    /// Settings of a cache. `max_weight` is at most 2^63 - 1; more is taken for that.
    pub fn builder(max_weight: u64) -> Builder<K, V> {
        Builder::new(max_weight)
    }
}

type Pinned<'m, K, V, S> = MapRef<'m, K, Entry<V>, S>;
/// The entries that an update took out, for the listener.
type Notices<'h, K, V> = Vec<(&'h K, &'h Entry<V>, RemovalCause)>;

fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

impl<K: Hash + Eq + Clone, V: Clone, S: BuildHasher + Clone> CacheState<K, V, S> {
    pub(crate) fn new(settings: Builder<K, V, S>) -> Self {
        Self {
            map: RelativisticMap::with_hasher(settings.hasher.clone()),
            policy: Mutex::new(Policy::new()),
            flights: Mutex::new(HashMap::with_hasher(settings.hasher)),
            counters: Counters::default(),
            // Nothing overflows: the cache exceeds its weight by one entry at most.
            max_weight: settings.max_weight.min(u64::MAX / 2),
            weigher: settings.weigher,
            listener: settings.listener,
            time_to_live: settings.time_to_live.map(milliseconds),
            time_to_idle: settings.time_to_idle.map(milliseconds),
            clock: settings.clock,
        }
    }

    fn expires(&self) -> bool {
        self.time_to_live.is_some() || self.time_to_idle.is_some()
    }

    fn now(&self) -> u64 {
        if self.expires() {
            milliseconds((self.clock)())
        } else {
            0
        }
    }

    fn is_expired(&self, entry: &Entry<V>, now: u64) -> bool {
        let past = |since: u64, limit: Option<u64>| {
            limit.is_some_and(|limit| now.saturating_sub(since) >= limit)
        };
        past(entry.inserted, self.time_to_live) || past(entry.accessed(), self.time_to_idle)
    }

    /// Takes an entry out of the map and of the weight; its item in a queue becomes stale.
    fn take<'h, Q>(
        &self,
        map: &'h Pinned<'_, K, V, S>,
        policy: &mut Policy<K>,
        key: &Q,
        id: Option<u64>,
    ) -> Option<(&'h K, &'h Entry<V>)>
    where
        Q: ?Sized + Hash + Equivalent<K>,
    {
        let found = map.get(key)?;
        if id.is_some_and(|id| id != found.id) {
            return None;
        }
        let (key, entry) = map.remove_entry(key)?;
        policy.subtract_weight(entry.in_main(), entry.weight);
        Some((key, entry))
    }

    /// Removes entries until `more` fits; keeps the entry with the number `keep`.
    fn make_room<'h>(
        &self,
        map: &'h Pinned<'_, K, V, S>,
        policy: &mut Policy<K>,
        (more, keep): (u64, u64),
        notices: &mut Notices<'h, K, V>,
    ) {
        while policy.weight().saturating_add(more) > self.max_weight {
            let small = policy.small_weight > self.max_weight / 10 || policy.main.is_empty();
            let queue = if small {
                &mut policy.small
            } else {
                &mut policy.main
            };
            let Some(item) = queue.pop_front() else {
                return;
            };
            let Some(entry) = map.get(&item.key).filter(|e| e.id == item.id) else {
                continue;
            };
            let stays = entry.frequency() > 0;
            if stays || item.id == keep {
                entry.set_frequency(if small {
                    0
                } else {
                    entry.frequency().saturating_sub(1)
                });
                policy.subtract_weight(!small, entry.weight);
                policy.add_weight(true, entry.weight);
                // Relaxed: the lock orders it.
                entry.in_main.store(true, Ordering::Relaxed);
                policy.main.push_back(item);
                continue;
            }
            if small {
                let limit = policy.ghost_limit(map.len(), self.max_weight);
                policy.add_ghost(map.map().hasher().hash_one(&item.key), limit);
            }
            if let Some((key, entry)) = self.take(map, policy, &item.key, Some(item.id)) {
                // Relaxed: a statistic.
                self.counters.evictions.fetch_add(1, Ordering::Relaxed);
                notices.push((key, entry, RemovalCause::Evicted));
            }
        }
    }

    /// A bounded step of reclamation.
    fn reclaim_expired<'h>(
        &self,
        map: &'h Pinned<'_, K, V, S>,
        policy: &mut Policy<K>,
        now: u64,
        notices: &mut Notices<'h, K, V>,
    ) {
        policy.drop_stale(map.len(), |i| map.get(&i.key).is_some_and(|e| e.id == i.id));
        for _ in 0..RECLAIMED_PER_UPDATE {
            let Some(item) = policy.expiring.pop_front() else {
                return;
            };
            match map.get(&item.key).filter(|e| e.id == item.id) {
                None => {}
                Some(entry) if self.is_expired(entry, now) => {
                    if let Some((key, entry)) = self.take(map, policy, &item.key, Some(item.id)) {
                        // Relaxed: a statistic.
                        self.counters.expirations.fetch_add(1, Ordering::Relaxed);
                        notices.push((key, entry, RemovalCause::Expired));
                    }
                }
                // It has not expired: it is looked at again after the others.
                Some(_) => policy.expiring.push_back(item),
            }
        }
    }

    fn notify(&self, notices: Notices<'_, K, V>) {
        if let Some(listener) = &self.listener {
            for (key, entry, cause) in notices {
                listener(key, &entry.value, cause);
            }
        }
    }

    /// Puts the entry into the map and a queue, after room was made for a new key.
    fn put<'h>(
        &self,
        map: &'h Pinned<'_, K, V, S>,
        policy: &mut Policy<K>,
        (key, value, weight): (K, V, u64),
        notices: &mut Notices<'h, K, V>,
    ) {
        let now = self.now();
        self.reclaim_expired(map, policy, now, notices);
        let old = map.get_key_value(&key);
        let (id, frequency, in_main) = match old {
            Some((_, old)) => (old.id, old.frequency(), old.in_main()),
            None => {
                self.make_room(map, policy, (weight, u64::MAX), notices);
                policy.next_id += 1;
                let ghost = policy.take_ghost(map.map().hasher().hash_one(&key));
                (policy.next_id, 0, ghost)
            }
        };
        let entry = Entry {
            value,
            id,
            weight,
            inserted: now,
            accessed: AtomicU64::new(now),
            frequency: AtomicU8::new(frequency),
            in_main: AtomicBool::new(in_main),
        };
        // Before the entry is in the map: if a clone panics, no entry is there without its place in
        // a queue.
        let queued = old.is_none().then(|| key.clone());
        let expiring = (old.is_none() && self.expires()).then(|| key.clone());
        map.insert(key, entry);
        policy.add_weight(in_main, weight);
        if let Some((old_key, old)) = old {
            policy.subtract_weight(in_main, old.weight);
            let cause = if self.is_expired(old, now) {
                RemovalCause::Expired
            } else {
                RemovalCause::Replaced
            };
            notices.push((old_key, old, cause));
            self.make_room(map, policy, (0, id), notices);
            return;
        }
        if let Some(key) = expiring {
            policy.expiring.push_back(Item { key, id });
        }
        let queue = if in_main {
            &mut policy.main
        } else {
            &mut policy.small
        };
        queue.extend(queued.map(|key| Item { key, id }));
    }
}

impl<K: Hash + Eq + Clone, V: Clone, S: BuildHasher + Clone> Cache<K, V, S> {
    fn find<Q, T>(&self, key: &Q, read: impl FnOnce(&Entry<V>, u64) -> T) -> Option<T>
    where
        Q: ?Sized + Hash + Equivalent<K>,
    {
        let map = self.shared.map.pin();
        let entry = map.get(key)?;
        let now = self.shared.now();
        (!self.shared.is_expired(entry, now)).then(|| read(entry, now))
    }

    /// A clone of the value; counts as a use of the entry. Wait-free but for the clone.
    pub fn get<Q>(&self, key: &Q) -> Option<V>
    where
        Q: ?Sized + Hash + Equivalent<K>,
    {
        let found = self.find(key, |entry, now| {
            let frequency = entry.frequency();
            if frequency < MAX_FREQUENCY {
                entry.set_frequency(frequency + 1);
            }
            if self.shared.time_to_idle.is_some() && entry.accessed() < now {
                // Relaxed: a hint.
                entry.accessed.store(now, Ordering::Relaxed);
            }
            entry.value.clone()
        });
        self.shared.counters.count_lookup(found.is_some());
        found
    }

    /// As [`get`](Self::get), without a use of the entry and without counting.
    pub fn peek<Q>(&self, key: &Q) -> Option<V>
    where
        Q: ?Sized + Hash + Equivalent<K>,
    {
        self.find(key, |entry, _| entry.value.clone())
    }

    /// Whether the key has a value; not a use of the entry.
    pub fn contains_key<Q>(&self, key: &Q) -> bool
    where
        Q: ?Sized + Hash + Equivalent<K>,
    {
        self.find(key, |_, _| ()).is_some()
    }

    /// Inserts or replaces a value. It may be evicted at once, as any other.
    ///
    /// # Errors
    ///
    /// [`TooHeavy`] if the entry is heavier than the cache.
    pub fn insert(&self, key: K, value: V) -> Result<(), TooHeavy> {
        let shared = &*self.shared;
        let weight = shared
            .weigher
            .as_ref()
            .map_or(1, |weigh| weigh(&key, &value));
        let map = shared.map.pin();
        let mut notices = Vec::new();
        let result = {
            let mut policy = lock(&shared.policy);
            if weight > shared.max_weight {
                if let Some((key, old)) = shared.take(&map, &mut policy, &key, None) {
                    notices.push((key, old, RemovalCause::Replaced));
                }
                Err(TooHeavy)
            } else {
                shared.put(&map, &mut policy, (key, value, weight), &mut notices);
                Ok(())
            }
        };
        shared.notify(notices);
        result
    }

    /// Removes a key and returns its value, unless that is expired.
    pub fn remove<Q>(&self, key: &Q) -> Option<V>
    where
        Q: ?Sized + Hash + Equivalent<K>,
    {
        let shared = &*self.shared;
        let map = shared.map.pin();
        let (now, mut notices) = (shared.now(), Vec::new());
        let removed = {
            let mut policy = lock(&shared.policy);
            shared.reclaim_expired(&map, &mut policy, now, &mut notices);
            shared.take(&map, &mut policy, key, None)
        };
        let value = removed.and_then(|(key, entry)| {
            let expired = shared.is_expired(entry, now);
            let cause = if expired {
                RemovalCause::Expired
            } else {
                RemovalCause::Removed
            };
            notices.push((key, entry, cause));
            (!expired).then(|| entry.value.clone())
        });
        shared.notify(notices);
        value
    }

    /// Removes all entries that are present during the whole call.
    pub fn clear(&self) {
        let shared = &*self.shared;
        let keys: Vec<K> = shared.map.pin().keys().cloned().collect();
        for key in keys {
            self.remove(&key);
        }
    }

    /// Clones of all entries that are present and not expired. Entries that are inserted or removed
    /// meanwhile may be among them.
    pub fn entries(&self) -> Vec<(K, V)> {
        let now = self.shared.now();
        let map = self.shared.map.pin();
        map.iter()
            .filter(|(_, entry)| !self.shared.is_expired(entry, now))
            .map(|(key, entry)| (key.clone(), entry.value.clone()))
            .collect()
    }

    /// The number of entries, with those that are expired and not yet reclaimed.
    pub fn len(&self) -> usize {
        self.shared.map.len()
    }

    /// Whether there is no entry.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The weight of all entries. Waits for updates.
    pub fn weight(&self) -> u64 {
        lock(&self.shared.policy).weight()
    }

    /// The greatest weight.
    pub fn max_weight(&self) -> u64 {
        self.shared.max_weight
    }

    /// What was counted so far.
    pub fn statistics(&self) -> Statistics {
        self.shared.counters.read()
    }
}
