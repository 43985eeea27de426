//! `get_with` and its relatives.

use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::hash::{BuildHasher, Hash};
use std::sync::Arc;

use crate::cache::Cache;
use crate::flight::{Flight, lock};

/// What a call does for a key that the cache did not have.
enum CallRole<'c, K: Hash + Eq + Clone, V: Clone, S: BuildHasher + Clone> {
    /// Returns the value that another call has inserted meanwhile.
    Found(V),
    /// Waits for the call that runs the initialiser.
    Wait(Arc<Flight<V>>),
    /// Runs the initialiser.
    Run(Lead<'c, K, V, S>),
}

/// The right to run the initialiser of a key; dropped without a value, it wakes the others to try.
struct Lead<'c, K: Hash + Eq + Clone, V: Clone, S: BuildHasher + Clone> {
    cache: &'c Cache<K, V, S>,
    key: K,
    flight: Arc<Flight<V>>,
    value: Option<V>,
}

impl<K: Hash + Eq + Clone, V: Clone, S: BuildHasher + Clone> Lead<'_, K, V, S> {
    fn finish(mut self, value: V) -> V {
        self.value = Some(value.clone());
        // The entry is in the map before the flight ends, so that no later call runs again. The
        // value is handed out also if it is too heavy to be kept.
        let _too_heavy = self.cache.insert(self.key.clone(), value.clone());
        value
    }
}

impl<K: Hash + Eq + Clone, V: Clone, S: BuildHasher + Clone> Drop for Lead<'_, K, V, S> {
    fn drop(&mut self) {
        lock(&self.cache.shared.flights).remove(&self.key);
        self.flight.finish(self.value.take());
    }
}

impl<K: Hash + Eq + Clone, V: Clone, S: BuildHasher + Clone> Cache<K, V, S> {
    fn role(&self, key: &K) -> CallRole<'_, K, V, S> {
        let mut flights = lock(&self.shared.flights);
        if let Some(flight) = flights.get(key) {
            return CallRole::Wait(Arc::clone(flight));
        }
        // Again, under the lock: the last flight may have landed since the first lookup.
        if let Some(value) = self.peek(key) {
            return CallRole::Found(value);
        }
        let flight = Arc::new(Flight::new());
        flights.insert(key.clone(), Arc::clone(&flight));
        CallRole::Run(Lead {
            cache: self,
            key: key.clone(),
            flight,
            value: None,
        })
    }

    /// The value, or what `make` returns, which is inserted. One call runs for a key at a time, the
    /// others wait for its value. If it panics, the others try again.
    pub fn get_with(&self, key: K, make: impl FnOnce() -> V) -> V {
        let made = self.try_get_with(key, || Ok::<V, Infallible>(make()));
        match made {
            Ok(value) => value,
            Err(never) => match never {},
        }
    }

    /// As [`get_with`](Self::get_with), of an initialiser that may fail.
    ///
    /// # Errors
    ///
    /// What `make` returned in this call; the others that waited try again.
    pub fn try_get_with<E>(&self, key: K, make: impl FnOnce() -> Result<V, E>) -> Result<V, E> {
        if let Some(value) = self.get(&key) {
            return Ok(value);
        }
        loop {
            match self.role(&key) {
                CallRole::Found(value) => return Ok(value),
                CallRole::Run(lead) => return make().map(|value| lead.finish(value)),
                CallRole::Wait(flight) => {
                    if let Some(value) = flight.wait() {
                        return Ok(value);
                    }
                }
            }
        }
    }

    /// As [`get_with`](Self::get_with), for tasks: no lock is held over an `await`. If the future
    /// that runs `make` is dropped, another one that waits runs its own.
    pub async fn get_with_async(&self, key: K, make: impl Future<Output = V>) -> V {
        if let Some(value) = self.get(&key) {
            return value;
        }
        loop {
            match self.role(&key) {
                CallRole::Found(value) => return value,
                CallRole::Run(lead) => {
                    let value = make.await;
                    return lead.finish(value);
                }
                CallRole::Wait(flight) => {
                    if let Some(value) = poll_fn(|context| flight.poll(context)).await {
                        return value;
                    }
                }
            }
        }
    }
}
