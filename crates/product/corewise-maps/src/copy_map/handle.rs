//! The handle of a map, and its operations.

use std::hash::BuildHasher;
use std::ptr;

use corewise_rcu::{Guard, Section};

use super::iter::{Iter, Keys, Values};
use super::table_version::EntryChange;
use super::{CopyMap, Full, Limit, Put, Table, TryInsertError, Unlimited};
use crate::batch;
use crate::relativistic::{DefaultHasher, Operation};

/// A handle to a [`CopyMap`], in a read-side critical section.
///
#[doc = operations!("CopyMapRef")]
///
/// What inserts returns a `Result` if the map has a byte limit: see [`Limit`].
///
/// ```
/// use corewise_maps::clht::LockBased;
///
/// let stock = LockBased::new();
/// let stock = stock.pin();
/// assert_eq!(stock.insert('a', 3), None);
/// assert_eq!(stock.update(&'a', |n| n - 1), Some(2));
/// assert_eq!(stock.remove(&'a'), Some(2));
/// assert_eq!(stock.get(&'a'), None);
/// ```
pub struct CopyMapRef<'m, T, S = DefaultHasher, G = Guard<'m>, L = Unlimited> {
    pub(super) map: &'m CopyMap<T, S, L>,
    pub(super) section: G,
}

/// The outcome of [`CopyMapRef::compute`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Computed<V, R = ()> {
    /// The key was absent and now has this value.
    Inserted(V),
    /// The value was replaced.
    Updated {
        /// The value before.
        old: V,
        /// The value that the key has now.
        new: V,
    },
    /// The entry was removed; it had this value.
    Removed(V),
    /// Nothing was changed: the closure aborted, or removed an absent entry (`None`).
    Aborted(Option<R>),
}

impl<'m, T: Table, S, G: Section, L> CopyMapRef<'m, T, S, G, L> {
    /// The caller's section is one of the map's domain.
    pub(super) fn of(map: &'m CopyMap<T, S, L>, section: G) -> Self {
        Self { map, section }
    }

    /// The map that this is a handle of.
    ///
    /// ```
    /// let map = corewise_maps::clht::LockBased::<u64, u64>::new();
    /// assert!(std::ptr::eq(map.pin().map(), &map));
    /// ```
    pub fn map(&self) -> &'m CopyMap<T, S, L> {
        self.map
    }

    /// As [`CopyMap::len`].
    ///
    /// ```
    /// # use corewise_maps::clht::LockBased;
    /// assert_eq!(LockBased::from([(1, 2)]).pin().len(), 1);
    /// ```
    pub fn len(&self) -> usize {
        self.map.len()
    }

    /// As [`CopyMap::is_empty`].
    ///
    /// ```
    /// # use corewise_maps::clht::LockBased;
    /// assert!(!LockBased::from([(1, 2)]).pin().is_empty());
    /// ```
    pub fn is_empty(&self) -> bool {
        self.map.is_empty()
    }
}

/// Lookups.
impl<T: Table, S: BuildHasher, G: Section, L> CopyMapRef<'_, T, S, G, L> {
    /// Returns the value of a key. Writes nothing; the table's module states how many cache lines
    /// it reads and when it retries a bucket.
    ///
    /// ```
    /// # use corewise_maps::clht::LockBased;
    /// let squares = LockBased::from([(2, 4), (3, 9)]);
    /// assert_eq!(squares.pin().get(&3), Some(9));
    /// ```
    #[inline]
    pub fn get(&self, key: &T::Key) -> Option<T::Value> {
        self.get_hashed(self.hash(key), key)
    }

    /// Looks up several keys, in order: each result is what [`get`](Self::get) would return, with
    /// its progress guarantee.
    ///
    /// The lookups of 64 keys at a time overlap their cache misses. That pays in tables larger than
    /// the caches, for batches of 16 keys and more; smaller tables are faster with single lookups.
    /// Each lookup is linearizable by itself and takes effect between the call and the return.
    /// Together they are no snapshot: updates of other threads may take effect between them.
    ///
    /// # Panics
    ///
    /// If the length of `out` differs from the number of keys; then nothing is looked up.
    ///
    /// ```
    /// # use corewise_maps::clht::LockBased;
    /// let squares: LockBased<u64, u64> = (0..10).map(|n| (n, n * n)).collect();
    /// let mut values = [None; 3];
    /// squares.pin().get_many(&[9, 10, 3], &mut values);
    /// assert_eq!(values, [Some(81), None, Some(9)]);
    /// ```
    pub fn get_many<'q>(
        &self,
        keys: impl IntoIterator<Item = &'q T::Key, IntoIter: ExactSizeIterator>,
        out: &mut [Option<T::Value>],
    ) where
        T::Key: 'q,
    {
        batch::in_groups(keys, out, |keys, out| {
            let version = self.version();
            batch::in_stages(
                keys,
                out,
                |key| self.hash(key),
                |hash| version.table().prefetch(hash),
                |hash| version.table().prefetch_more(hash),
                |_| {},
                |hash, key| T::get(version, hash, key),
            );
        });
    }

    /// Whether the key is present; as [`get`](Self::get).
    ///
    /// ```
    /// # use corewise_maps::cuckoo::CuckooMap;
    /// let primes = CuckooMap::from([(2, ()), (3, ())]);
    /// assert!(primes.pin().contains_key(&3) && !primes.pin().contains_key(&4));
    /// ```
    #[inline]
    pub fn contains_key(&self, key: &T::Key) -> bool {
        self.get(key).is_some()
    }
}

/// Iteration, and operations on all entries.
impl<T: Table, S: BuildHasher, G: Section, L> CopyMapRef<'_, T, S, G, L> {
    /// Iterates over all entries, in no particular order.
    ///
    /// An entry that is present from the first call of `next` to the last is returned once, with a
    /// value that it has during the iteration. An entry that is inserted or removed meanwhile may
    /// or may not be returned, and a key that is removed and inserted again may be returned twice.
    /// A resize changes none of this. The iterator copies one bucket of the table, and what it was
    /// split or merged into since, at a time.
    ///
    /// ```
    /// # use corewise_maps::cuckoo::CuckooMap;
    /// let squares = CuckooMap::from([(2, 4), (3, 9)]);
    /// let mut pairs: Vec<_> = squares.pin().iter().collect();
    /// pairs.sort();
    /// assert_eq!(pairs, [(2, 4), (3, 9)]);
    /// ```
    pub fn iter(&self) -> Iter<'_, T, S> {
        Iter::new(self.map.hasher(), self.version())
    }

    /// Iterates over the keys, as [`iter`](Self::iter).
    ///
    /// ```
    /// # use corewise_maps::cuckoo::CuckooMap;
    /// let squares = CuckooMap::from([(2, 4), (3, 9)]);
    /// assert_eq!(squares.pin().keys().max(), Some(3));
    /// ```
    pub fn keys(&self) -> Keys<'_, T, S> {
        Keys(self.iter())
    }

    /// Iterates over the values, as [`iter`](Self::iter).
    ///
    /// ```
    /// # use corewise_maps::cuckoo::CuckooMap;
    /// let squares = CuckooMap::from([(2, 4), (3, 9)]);
    /// assert_eq!(squares.pin().values().sum::<i32>(), 13);
    /// ```
    pub fn values(&self) -> Values<'_, T, S> {
        Values(self.iter())
    }

    /// Removes the entries for which `is_to_stay` returns false.
    ///
    /// It visits the keys that [`iter`](Self::iter) returns, and decides about the value that the
    /// key has then: an entry is removed only with a value for which `is_to_stay` returned false.
    /// It calls `is_to_stay` once for each entry, and again if the value is changed meanwhile. If
    /// `is_to_stay` panics, the entries that it has not decided about stay.
    ///
    /// ```
    /// # use corewise_maps::clht::LockBased;
    /// let squares: LockBased<u64, u64> = (0..10).map(|n| (n, n * n)).collect();
    /// squares.pin().retain(|_, square| square % 2 == 0);
    /// assert_eq!(squares.len(), 5);
    /// ```
    pub fn retain(&self, mut is_to_stay: impl FnMut(T::Key, T::Value) -> bool) {
        for key in self.keys() {
            self.change(&key, |value| {
                if is_to_stay(key, value) {
                    EntryChange::Keep
                } else {
                    EntryChange::Remove
                }
            });
        }
    }

    /// Removes each key that is present from the beginning to the end; one that is inserted
    /// meanwhile may or may not stay. The table keeps its size.
    ///
    /// ```
    /// # use corewise_maps::clht::LockBased;
    /// let map = LockBased::from([(1, 2), (3, 4)]);
    /// map.pin().clear();
    /// assert!(map.is_empty());
    /// ```
    pub fn clear(&self) {
        self.drain().for_each(drop);
    }

    /// Removes the entries one by one, as the iterator reaches them, and returns what it has
    /// removed: each entry that it returns, no other operation has removed. It reaches the keys
    /// that [`iter`](Self::iter) does.
    ///
    /// An iterator that is dropped leaves the entries that it has not returned. (Other threads use
    /// the map, so there is no time at which it could take all of them. The owner of a map can: by
    /// `into_iter`, or by [`std::mem::take`].)
    ///
    /// ```
    /// # use corewise_maps::clht::LockBased;
    /// let jobs: LockBased<u64, char> = (0..).zip('a'..='e').collect();
    /// assert_eq!(jobs.pin().drain().take(2).count(), 2);
    /// assert_eq!(jobs.len(), 3);
    /// ```
    pub fn drain(&self) -> impl Iterator<Item = (T::Key, T::Value)> {
        self.keys()
            .filter_map(|key| Some((key, self.remove(&key)?)))
    }

    /// Removes the entries for which `is_to_go` returns true, one by one, as the iterator reaches
    /// them, and returns what it has removed. An iterator that is dropped leaves the rest.
    ///
    /// It visits keys and calls `is_to_go` as [`retain`](Self::retain) does its closure, and what
    /// it returns, no other operation has removed, as for [`drain`](Self::drain).
    ///
    /// ```
    /// # use corewise_maps::clht::LockBased;
    /// let squares: LockBased<u64, u64> = (0..10).map(|n| (n, n * n)).collect();
    /// let handle = squares.pin();
    /// assert_eq!(handle.extract_if(|_, square| square % 2 == 0).count(), 5);
    /// assert_eq!(handle.len(), 5);
    /// ```
    #[must_use = "nothing is removed until the iterator is used; `retain` removes at once"]
    pub fn extract_if(
        &self,
        mut is_to_go: impl FnMut(T::Key, T::Value) -> bool,
    ) -> impl Iterator<Item = (T::Key, T::Value)> {
        self.keys().filter_map(move |key| {
            let removed = self.remove_if(&key, |value| is_to_go(key, value));
            Some((key, removed.ok()??))
        })
    }
}

/// Updates that insert nothing.
impl<T: Table, S: BuildHasher, G: Section, L> CopyMapRef<'_, T, S, G, L> {
    /// Replaces the value of a key with `f(old)`; returns the new value, or `None` if the key is
    /// absent, and then writes nothing. `f` runs without a lock, and runs again if the value was
    /// changed meanwhile.
    ///
    /// ```
    /// # use corewise_maps::clht::LockBased;
    /// let stock = LockBased::from([(b'p', 2)]);
    /// assert_eq!(stock.pin().update(&b'p', |n| n + 1), Some(3));
    /// ```
    #[inline]
    pub fn update(
        &self,
        key: &T::Key,
        mut f: impl FnMut(T::Value) -> T::Value,
    ) -> Option<T::Value> {
        match self.change(key, |old| EntryChange::Replace(f(old)))? {
            (_, EntryChange::Replace(new)) => Some(new),
            (old, EntryChange::Keep | EntryChange::Remove) => Some(old),
        }
    }

    /// Removes a key and returns its value. Writes nothing if the key is absent.
    ///
    /// ```
    /// # use corewise_maps::clht::LockBased;
    /// let map = LockBased::from([(1, 2)]);
    /// assert_eq!(map.pin().remove(&1), Some(2));
    /// assert_eq!(map.pin().remove(&1), None);
    /// ```
    #[inline]
    pub fn remove(&self, key: &T::Key) -> Option<T::Value> {
        let value = self.remove_alone(key)?;
        self.help();
        Some(value)
    }

    /// Removes a key if `is_to_go` returns true for its value, and returns that value; `None` if
    /// the key is absent. `is_to_go` runs as the closure of [`update`](Self::update) does.
    ///
    /// # Errors
    ///
    /// The value, if `is_to_go` returned false for it; then nothing is written.
    ///
    /// ```
    /// # use corewise_maps::clht::LockBased;
    /// let stock = LockBased::from([('a', 2), ('b', 0)]);
    /// let is_empty = |n| n == 0;
    /// assert_eq!(stock.pin().remove_if(&'a', is_empty), Err(2));
    /// assert_eq!(stock.pin().remove_if(&'b', is_empty), Ok(Some(0)));
    /// assert_eq!(stock.pin().remove_if(&'b', is_empty), Ok(None));
    /// ```
    pub fn remove_if(
        &self,
        key: &T::Key,
        mut is_to_go: impl FnMut(T::Value) -> bool,
    ) -> Result<Option<T::Value>, T::Value> {
        let changed = self.change(key, |value| {
            if is_to_go(value) {
                EntryChange::Remove
            } else {
                EntryChange::Keep
            }
        });
        match changed {
            None => Ok(None),
            Some((value, EntryChange::Remove)) => Ok(Some(value)),
            Some((value, _)) => Err(value),
        }
    }

    /// [`Table::change`], and help afterwards.
    #[inline]
    fn change(
        &self,
        key: &T::Key,
        decide: impl FnMut(T::Value) -> EntryChange<T::Value>,
    ) -> Option<(T::Value, EntryChange<T::Value>)> {
        self.change_hashed(self.hash(key), key, decide)
    }

    #[inline]
    fn change_hashed(
        &self,
        hash: u64,
        key: &T::Key,
        decide: impl FnMut(T::Value) -> EntryChange<T::Value>,
    ) -> Option<(T::Value, EntryChange<T::Value>)> {
        let changed = self.change_alone(hash, key, decide)?;
        if !matches!(changed.1, EntryChange::Keep) {
            self.help();
        }
        Some(changed)
    }
}

/// Updates that insert: they return a `Result` if the map has a byte limit.
impl<T: Table, S: BuildHasher, G: Section, L: Limit> CopyMapRef<'_, T, S, G, L> {
    /// Inserts a pair; returns the value that it replaces, if the key was present.
    ///
    /// The answer is an `Option`, and a `Result` of one in a map with a byte limit: see [`Limit`].
    ///
    /// # Errors
    ///
    /// Only in a map with a byte limit: [`Full`], with nothing changed. The key is absent, it has
    /// no free place, and there is no memory to make one: its buckets are in the table that a
    /// resize in progress moves entries to, unless they need memory, too; and no replaced table
    /// without readers can be freed, except one that another thread is freeing. (In a cuckoo
    /// table, the end of the resize may let entries be displaced for it.)
    ///
    /// # Panics
    ///
    /// Only in a map without a byte limit: if the allocator has no memory, or the entries of one
    /// bucket are more than the table's module allows. Nothing is changed then.
    ///
    /// ```
    /// # use corewise_maps::clht::LockBased;
    /// let map = LockBased::new();
    /// assert_eq!(map.pin().insert(1, 'a'), None);
    /// assert_eq!(map.pin().insert(1, 'b'), Some('a'));
    /// ```
    #[inline]
    pub fn insert(&self, key: T::Key, value: T::Value) -> L::Answer<Option<T::Value>, Full> {
        L::answer(self.put(self.hash(&key), key, value, true))
    }

    /// Inserts a pair unless the key is present; then nothing is written.
    ///
    /// # Errors
    ///
    /// [`TryInsertError::Occupied`]; or [`TryInsertError::Full`] if there is no memory, also in a
    /// map without a byte limit.
    ///
    /// ```
    /// # use corewise_maps::{clht::LockBased, copy_map::TryInsertError};
    /// let map = LockBased::new();
    /// assert_eq!(map.pin().try_insert(1, 'a'), Ok(()));
    /// assert_eq!(map.pin().try_insert(1, 'b'), Err(TryInsertError::Occupied('a')));
    /// ```
    #[inline]
    pub fn try_insert(&self, key: T::Key, value: T::Value) -> Result<(), TryInsertError<T::Value>> {
        match self.put(self.hash(&key), key, value, false) {
            Ok(None) => Ok(()),
            Ok(Some(there)) => Err(TryInsertError::Occupied(there)),
            Err(Full) => Err(TryInsertError::Full),
        }
    }

    /// Returns the value of a key, and inserts `value` if the key is absent.
    ///
    /// Errors and panics are those of [`insert`](Self::insert).
    ///
    /// ```
    /// # use corewise_maps::clht::LockBased;
    /// let map = LockBased::new();
    /// assert_eq!(map.pin().get_or_insert(1, 'a'), 'a');
    /// assert_eq!(map.pin().get_or_insert(1, 'b'), 'a');
    /// ```
    pub fn get_or_insert(&self, key: T::Key, value: T::Value) -> L::Answer<T::Value, Full> {
        let there = self.put(self.hash(&key), key, value, false);
        L::answer(there.map(|there| there.unwrap_or(value)))
    }

    /// Returns the value of a key, and inserts the result of `make` if the key is absent. Several
    /// threads that find the key absent may call their `make` at the same time. If another thread
    /// inserts the key while `make` runs, that value is returned.
    ///
    /// Errors and panics are those of [`insert`](Self::insert).
    ///
    /// ```
    /// # use corewise_maps::clht::LockBased;
    /// let lengths = LockBased::new();
    /// assert_eq!(lengths.pin().get_or_insert_with(1, || "some words".len()), 10);
    /// assert_eq!(lengths.pin().get_or_insert_with(1, || unreachable!()), 10);
    /// ```
    pub fn get_or_insert_with(
        &self,
        key: T::Key,
        make: impl FnOnce() -> T::Value,
    ) -> L::Answer<T::Value, Full> {
        let hash = self.hash(&key);
        if let Some(there) = self.get_hashed(hash, &key) {
            return L::answer(Ok(there));
        }
        let value = make();
        let there = self.put(hash, key, value, false);
        L::answer(there.map(|there| there.unwrap_or(value)))
    }

    /// Replaces the value of a key with `f(old)`, or inserts `value` if the key is absent; returns
    /// the new value.
    ///
    /// Errors and panics are those of [`insert`](Self::insert).
    ///
    /// ```
    /// # use corewise_maps::clht::LockBased;
    /// let counts = LockBased::new();
    /// for letter in "banana".chars() {
    ///     counts.pin().update_or_insert(letter, |n| n + 1, 1);
    /// }
    /// assert_eq!(counts.pin().get(&'a'), Some(3));
    /// ```
    pub fn update_or_insert(
        &self,
        key: T::Key,
        f: impl FnMut(T::Value) -> T::Value,
        value: T::Value,
    ) -> L::Answer<T::Value, Full> {
        self.update_or_insert_with(key, f, || value)
    }

    /// Replaces the value of a key with `f(old)`, or inserts the result of `make` if the key is
    /// absent; returns the new value. `make` runs at most once.
    ///
    /// Errors and panics are those of [`insert`](Self::insert).
    ///
    /// ```
    /// # use corewise_maps::clht::LockBased;
    /// let map = LockBased::from([(1, 10)]);
    /// assert_eq!(map.pin().update_or_insert_with(1, |n| n + 1, || 0), 11);
    /// assert_eq!(map.pin().update_or_insert_with(2, |n| n + 1, || 0), 0);
    /// ```
    pub fn update_or_insert_with(
        &self,
        key: T::Key,
        mut f: impl FnMut(T::Value) -> T::Value,
        make: impl FnOnce() -> T::Value,
    ) -> L::Answer<T::Value, Full> {
        let hash = self.hash(&key);
        let (mut make, mut made) = (Some(make), None);
        L::answer(loop {
            let replaced = self.change_hashed(hash, &key, |old| EntryChange::Replace(f(old)));
            // Otherwise the key is absent.
            if let Some((_, EntryChange::Replace(new))) = replaced {
                break Ok(new);
            }
            made = made.or_else(|| make.take().map(|make| make()));
            let value = made.expect("made once");
            match self.put(hash, key, value, false) {
                Ok(None) => break Ok(value),
                // Another thread has inserted the key meanwhile: change its value.
                Ok(Some(_)) => {}
                Err(full) => break Err(full),
            }
        })
    }

    /// Inserts, replaces or removes the entry of a key as `decide` says, given the present value.
    ///
    /// Errors and panics are those of [`insert`](Self::insert).
    ///
    /// ```
    /// use corewise_maps::clht::LockBased;
    /// use corewise_maps::copy_map::{Computed, Operation};
    ///
    /// let stock = LockBased::from([(b'p', 2)]);
    /// let take = |left| match left {
    ///     None => Operation::Abort("none left"),
    ///     Some(1) => Operation::Remove,
    ///     Some(n) => Operation::Insert(n - 1),
    /// };
    /// let stock = stock.pin();
    /// assert_eq!(stock.compute(b'p', take), Computed::Updated { old: 2, new: 1 });
    /// assert_eq!(stock.compute(b'p', take), Computed::Removed(1));
    /// assert_eq!(stock.compute(b'p', take), Computed::Aborted(Some("none left")));
    /// ```
    pub fn compute<R>(
        &self,
        key: T::Key,
        mut decide: impl FnMut(Option<T::Value>) -> Operation<T::Value, R>,
    ) -> L::Answer<Computed<T::Value, R>, Full> {
        let hash = self.hash(&key);
        L::answer(loop {
            let mut result = None;
            let changed = self.change_hashed(hash, &key, |old| match decide(Some(old)) {
                Operation::Insert(new) => EntryChange::Replace(new),
                Operation::Remove => EntryChange::Remove,
                Operation::Abort(abort) => {
                    result = Some(abort);
                    EntryChange::Keep
                }
            });
            match changed {
                Some((old, EntryChange::Replace(new))) => break Ok(Computed::Updated { old, new }),
                Some((old, EntryChange::Remove)) => break Ok(Computed::Removed(old)),
                Some((_, EntryChange::Keep)) => break Ok(Computed::Aborted(result)),
                None => {} // the key is absent
            }
            match decide(None) {
                Operation::Abort(result) => break Ok(Computed::Aborted(Some(result))),
                // There is nothing to remove.
                Operation::Remove => break Ok(Computed::Aborted(None)),
                Operation::Insert(value) => match self.put(hash, key, value, false) {
                    Ok(None) => break Ok(Computed::Inserted(value)),
                    // Another thread has inserted the key meanwhile: decide again.
                    Ok(Some(_)) => {}
                    Err(full) => break Err(full),
                },
            }
        })
    }
}

/// Parts of operations.
impl<T: Table, S: BuildHasher, G: Section, L> CopyMapRef<'_, T, S, G, L> {
    #[inline(always)]
    fn hash(&self, key: &T::Key) -> u64 {
        self.map.hash(key)
    }

    #[inline(always)]
    fn get_hashed(&self, hash: u64, key: &T::Key) -> Option<T::Value> {
        T::get(self.version(), hash, key)
    }

    /// Inserts a pair; returns the value that was present.
    #[inline]
    fn put(
        &self,
        hash: u64,
        key: T::Key,
        value: T::Value,
        replace: bool,
    ) -> Result<Option<T::Value>, Full> {
        let put = self.put_alone(hash, key, value, replace)?;
        // A refused `try_insert` has written nothing, and writes nothing here.
        if replace || matches!(put, Put::New { .. }) {
            self.after_put(&put);
        }
        Ok(match put {
            Put::New { .. } => None,
            Put::There(there) => Some(there),
        })
    }

    /// [`put`](Self::put) without [`after_put`](Self::after_put). If foreign code panics, nothing
    /// was inserted.
    #[inline]
    fn put_alone(
        &self,
        hash: u64,
        key: T::Key,
        value: T::Value,
        replace: bool,
    ) -> Result<Put<T::Value>, Full> {
        let mut settled = ptr::null();
        let put = loop {
            let version = self.version();
            match T::put(version, hash, key, value, replace) {
                Err(Full) if self.makes_room(version, hash, &mut settled) => {}
                answer => break answer?,
            }
        };
        if let Put::New { .. } = put {
            self.map.count(&self.section, 1);
        }
        Ok(put)
    }

    /// [`Table::change`] without [`help`](Self::help). If foreign code panics, nothing was changed.
    #[inline]
    fn change_alone(
        &self,
        hash: u64,
        key: &T::Key,
        decide: impl FnMut(T::Value) -> EntryChange<T::Value>,
    ) -> Option<(T::Value, EntryChange<T::Value>)> {
        let changed = T::change(self.version(), hash, key, decide)?;
        if let EntryChange::Remove = changed.1 {
            self.map.count(&self.section, -1);
        }
        Some(changed)
    }

    /// [`remove`](Self::remove) without [`help`](Self::help). If foreign code panics, nothing was
    /// removed.
    #[inline]
    fn remove_alone(&self, key: &T::Key) -> Option<T::Value> {
        let value = T::remove(self.version(), self.hash(key), key)?;
        self.map.count(&self.section, -1);
        Some(value)
    }
}
