//! The handle of a map of boxes, and its operations.

use std::hash::BuildHasher;
use std::marker::PhantomData;
use std::ptr::NonNull;

use corewise_atomic::mutant;
use corewise_rcu::{Guard, Section};

use super::{BoxIter, BoxMap, Refused};
use crate::batch;
use crate::copy_map::{
    Computed, CopyMapRef, EntryChange, Full, Keys, Limit, Put, Table, Unlimited,
};
use crate::relativistic::{DefaultHasher, Operation};
use crate::shared::Shared;

/// A handle to a [`BoxMap`], in a read-side critical section. References that it
/// returns are valid as long as the handle is borrowed.
///
#[doc = operations!("BoxMapRef")]
///
/// What inserts returns a `Result` if the map has a byte limit: see [`Limit`].
///
/// ```
/// use corewise_maps::clht::Boxed;
///
/// let towns: Boxed<u32, String> = Boxed::from([(3500, "Utrecht".into())]);
/// let towns = towns.pin();
/// let before = towns.get(&3500).unwrap();
/// assert_eq!(towns.remove(&3500), Some(before));
/// assert_eq!((before.as_str(), towns.get(&3500)), ("Utrecht", None));
/// ```
pub struct BoxMapRef<'m, V, T, S = DefaultHasher, G = Guard<'m>, L = Unlimited> {
    map: CopyMapRef<'m, T, S, G, L>,
    _values: PhantomData<&'m V>,
}

// SAFETY: it is a reference to the map, which threads may share although a table of pointers is not
// `Sync`, and a section that may be sent.
unsafe impl<V, T, S, G, L> Send for BoxMapRef<'_, V, T, S, G, L>
where
    V: Send + Sync + 'static,
    T: Table<Value = NonNull<V>>,
    S: BuildHasher,
    BoxMap<V, T, S, L>: Sync,
    G: Send,
{
}

/// A value that is in no map yet.
type Fresh<V> = Shared<V>;

/// Lookups, and iteration.
impl<'m, V, T, S, G, L> BoxMapRef<'m, V, T, S, G, L>
where
    V: Send + Sync + 'static,
    T: Table<Value = NonNull<V>>,
    S: BuildHasher,
    G: Section,
{
    pub(super) fn of(map: CopyMapRef<'m, T, S, G, L>) -> Self {
        Self {
            map,
            _values: PhantomData,
        }
    }

    /// As [`CopyMap::len`](crate::copy_map::CopyMap::len).
    ///
    /// ```
    /// # use corewise_maps::clht::Boxed;
    /// let names: Boxed<u32, &str> = Boxed::from([(1, "one")]);
    /// assert_eq!(names.pin().len(), 1);
    /// ```
    pub fn len(&self) -> usize {
        self.map.len()
    }

    /// As [`CopyMap::is_empty`](crate::copy_map::CopyMap::is_empty).
    ///
    /// ```
    /// # use corewise_maps::clht::Boxed;
    /// let names: Boxed<u32, &str> = Boxed::new();
    /// assert!(names.pin().is_empty());
    /// ```
    pub fn is_empty(&self) -> bool {
        self.map.is_empty()
    }

    /// Returns the value of a key, valid while the handle lives. Cost and progress are those of the
    /// table's lookups.
    ///
    /// ```
    /// # use corewise_maps::clht::Boxed;
    /// let names: Boxed<u32, String> = Boxed::from([(1, "one".into())]);
    /// assert_eq!(names.pin().get(&1).unwrap(), "one");
    /// ```
    #[inline]
    pub fn get(&self, key: &T::Key) -> Option<&V> {
        // SAFETY: 1: found just now.
        self.map.get(key).map(|value| unsafe { self.value(value) })
    }

    /// Looks up several keys, as [`CopyMapRef::get_many`]; the values themselves are not
    /// prefetched.
    ///
    /// # Panics
    ///
    /// If the length of `out` differs from the number of keys; then nothing is looked up.
    ///
    /// ```
    /// # use corewise_maps::clht::Boxed;
    /// let names: Boxed<u32, &str> = Boxed::from([(1, "one"), (2, "two")]);
    /// let (names, mut out) = (names.pin(), [None; 2]);
    /// names.get_many(&[2, 3], &mut out);
    /// assert_eq!(out, [Some(&"two"), None]);
    /// ```
    pub fn get_many<'h, 'q>(
        &'h self,
        keys: impl IntoIterator<Item = &'q T::Key, IntoIter: ExactSizeIterator>,
        out: &mut [Option<&'h V>],
    ) where
        T::Key: 'q,
    {
        batch::in_groups(keys, out, |keys, out| {
            let mut found = [None; batch::GROUP];
            let found = &mut found[..out.len()];
            self.map.get_many(keys.take(out.len()), found);
            for (place, value) in out.iter_mut().zip(found) {
                // SAFETY: 1: found just now.
                *place = value.map(|value| unsafe { self.value(value) });
            }
        });
    }

    /// Whether the key is present.
    ///
    /// ```
    /// # use corewise_maps::clht::Boxed;
    /// let names: Boxed<u32, String> = Boxed::from([(1, "one".into())]);
    /// assert!(names.pin().contains_key(&1));
    /// ```
    #[inline]
    pub fn contains_key(&self, key: &T::Key) -> bool {
        self.map.contains_key(key)
    }

    /// Iterates over all entries, as [`CopyMapRef::iter`].
    ///
    /// ```
    /// # use corewise_maps::clht::Boxed;
    /// let names: Boxed<u32, String> = Boxed::from([(1, "one".into()), (2, "two".into())]);
    /// assert_eq!(names.pin().iter().filter(|(_, name)| name.starts_with('t')).count(), 1);
    /// ```
    pub fn iter(&self) -> BoxIter<'_, V, T, S> {
        // SAFETY: 1: this handle's, which is borrowed.
        unsafe { BoxIter::of(self.map.iter()) }
    }

    /// Iterates over the keys, as [`iter`](Self::iter).
    ///
    /// ```
    /// # use corewise_maps::clht::Boxed;
    /// let names: Boxed<u32, String> = Boxed::from([(1, "one".into()), (2, "two".into())]);
    /// assert_eq!(names.pin().keys().sum::<u32>(), 3);
    /// ```
    pub fn keys(&self) -> Keys<'_, T, S> {
        self.map.keys()
    }

    /// Iterates over the values, as [`iter`](Self::iter).
    ///
    /// ```
    /// # use corewise_maps::clht::Boxed;
    /// let names: Boxed<u32, String> = Boxed::from([(1, "one".into()), (2, "two".into())]);
    /// assert_eq!(names.pin().values().max().unwrap(), "two");
    /// ```
    pub fn values(&self) -> impl Iterator<Item = &V> {
        self.iter().map(|(_, value)| value)
    }

    /// Removes the entries for which `is_to_stay` returns false, as [`CopyMapRef::retain`].
    ///
    /// ```
    /// # use corewise_maps::clht::Boxed;
    /// let names: Boxed<u32, String> = Boxed::from([(1, "one".into()), (2, "two".into())]);
    /// names.pin().retain(|_, name| name.starts_with('t'));
    /// assert_eq!(names.len(), 1);
    /// ```
    pub fn retain(&self, mut is_to_stay: impl FnMut(T::Key, &V) -> bool) {
        for key in self.keys() {
            let is_to_go = |value: &V| !is_to_stay(key, value);
            let _ = self.remove_if(&key, is_to_go);
        }
    }

    /// Removes each key that is present from the beginning to the end, as [`CopyMapRef::clear`].
    ///
    /// ```
    /// # use corewise_maps::clht::Boxed;
    /// let names: Boxed<u32, String> = Boxed::from([(1, "one".into())]);
    /// names.pin().clear();
    /// assert!(names.is_empty());
    /// ```
    pub fn clear(&self) {
        self.drain().for_each(|_| {});
    }

    /// Removes the entries one by one, as the iterator reaches them, and returns what it has
    /// removed, as [`CopyMapRef::drain`].
    ///
    /// ```
    /// # use corewise_maps::clht::Boxed;
    /// let names: Boxed<u32, String> = Boxed::from([(1, "one".into()), (2, "two".into())]);
    /// let handle = names.pin();
    /// let all: usize = handle.drain().map(|(_, name)| name.len()).sum();
    /// assert_eq!((all, handle.len()), (6, 0));
    /// ```
    pub fn drain(&self) -> impl Iterator<Item = (T::Key, &V)> {
        self.keys()
            .filter_map(|key| Some((key, self.remove(&key)?)))
    }

    /// Removes the entries for which `is_to_go` returns true, one by one, as the iterator reaches
    /// them, and returns what it has removed, as [`CopyMapRef::extract_if`].
    ///
    /// ```
    /// # use corewise_maps::clht::Boxed;
    /// let names: Boxed<u32, String> = Boxed::from([(1, "one".into()), (2, "two".into())]);
    /// let handle = names.pin();
    /// let mut removed = handle.extract_if(|_, name| name.starts_with('t'));
    /// assert_eq!(removed.next().unwrap().1, "two");
    /// assert_eq!((removed.next(), handle.len()), (None, 1));
    /// ```
    #[must_use = "nothing is removed until the iterator is used; `retain` removes at once"]
    pub fn extract_if(
        &self,
        mut is_to_go: impl FnMut(T::Key, &V) -> bool,
    ) -> impl Iterator<Item = (T::Key, &V)> {
        self.keys().filter_map(move |key| {
            let removed = self.remove_if(&key, |value| is_to_go(key, value));
            Some((key, removed.ok()??))
        })
    }
}

/// Updates that insert nothing.
impl<V, T, S, G, L> BoxMapRef<'_, V, T, S, G, L>
where
    V: Send + Sync + 'static,
    T: Table<Value = NonNull<V>>,
    S: BuildHasher,
    G: Section,
{
    /// Replaces the value of a key with `f(old)`; returns the new value, or `None` if the key is
    /// absent. `f` runs without a lock, and runs again if the value was replaced meanwhile.
    ///
    /// ```
    /// # use corewise_maps::clht::Boxed;
    /// let names: Boxed<u32, String> = Boxed::from([(1, "one".into())]);
    /// let handle = names.pin();
    /// assert_eq!(handle.update(&1, |name| name.to_uppercase()).unwrap(), "ONE");
    /// ```
    pub fn update(&self, key: &T::Key, mut f: impl FnMut(&V) -> V) -> Option<&V> {
        match self.change(self.map.hash(key), key, |old| EntryChange::Replace(f(old)))? {
            (_, EntryChange::Replace(new)) => Some(new),
            (old, EntryChange::Keep | EntryChange::Remove) => Some(old),
        }
    }

    /// Removes a key; returns its value, valid while the handle lives.
    ///
    /// ```
    /// # use corewise_maps::clht::Boxed;
    /// let names: Boxed<u32, String> = Boxed::from([(1, "one".into())]);
    /// assert_eq!(names.pin().remove(&1).unwrap(), "one");
    /// ```
    pub fn remove(&self, key: &T::Key) -> Option<&V> {
        let value = self.map.remove_alone(key)?;
        // SAFETY: 1: this operation removed it.
        let value = unsafe { self.retire(value) };
        self.map.help();
        Some(value)
    }

    /// Removes a key if `is_to_go` returns true for its value, and returns that value; `None` if
    /// the key is absent. `is_to_go` runs as the closure of [`update`](Self::update) does.
    ///
    /// # Errors
    ///
    /// The value, if `is_to_go` returned false for it.
    ///
    /// ```
    /// # use corewise_maps::clht::Boxed;
    /// let names: Boxed<u32, String> = Boxed::from([(1, "one".into()), (2, String::new())]);
    /// assert!(names.pin().remove_if(&1, |name| name.is_empty()).is_err());
    /// assert!(names.pin().remove_if(&2, |name| name.is_empty()).is_ok());
    /// ```
    pub fn remove_if(
        &self,
        key: &T::Key,
        mut is_to_go: impl FnMut(&V) -> bool,
    ) -> Result<Option<&V>, &V> {
        let changed = self.change(self.map.hash(key), key, |value| {
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

    /// Keeps, replaces or removes an entry, as [`Table::change`]; returns the old value, and the
    /// decision with the new one.
    fn change(
        &self,
        hash: u64,
        key: &T::Key,
        mut decide: impl FnMut(&V) -> EntryChange<V>,
    ) -> Option<(&V, EntryChange<&V>)> {
        // A value that was made but not inserted is dropped.
        let mut fresh: Option<Fresh<V>> = None;
        let (old, change) = self.map.change_alone(hash, key, |old| {
            fresh = None;
            // SAFETY: an address of the table, found in our section.
            let change = decide(unsafe { old.as_ref() });
            change.map(|new| fresh.insert(Shared::new(new)).address())
        })?;
        let change = match change {
            // SAFETY: 1: found just now.
            EntryChange::Keep => return Some((unsafe { self.value(old) }, EntryChange::Keep)),
            EntryChange::Remove => EntryChange::Remove,
            EntryChange::Replace(new) => {
                let fresh = fresh.take().map(Shared::keep);
                debug_assert_eq!(fresh, Some(new));
                // SAFETY: 1: inserted just now.
                EntryChange::Replace(unsafe { self.value(new) })
            }
        };
        // SAFETY: 1: this operation removed it, or replaced it by the new one (2 of `Table`).
        let old = unsafe { self.retire(old) };
        self.map.help();
        Some((old, change))
    }
}

/// Updates that insert: they return a `Result` if the map has a byte limit.
impl<V, T, S, G, L> BoxMapRef<'_, V, T, S, G, L>
where
    V: Send + Sync + 'static,
    T: Table<Value = NonNull<V>>,
    S: BuildHasher,
    G: Section,
    L: Limit,
{
    /// Inserts a pair; returns the value that it replaces, if the key was present.
    ///
    /// # Errors
    ///
    /// Only in a map with a byte limit (see [`Limit`]): [`Refused::Full`] with the value; nothing
    /// is changed.
    ///
    /// # Panics
    ///
    /// Only in a map without a byte limit: as [`CopyMapRef::insert`].
    ///
    /// ```
    /// # use corewise_maps::clht::Boxed;
    /// let names: Boxed<u32, String> = Boxed::new();
    /// assert_eq!(names.pin().insert(1, "one".into()), None);
    /// assert_eq!(names.pin().insert(1, "uno".into()).unwrap(), "one");
    /// ```
    pub fn insert(&self, key: T::Key, value: V) -> L::Answer<Option<&V>, Refused<'_, V>> {
        let fresh = Shared::new(value);
        let hash = self.map.hash(&key);
        L::answer(match self.map.put_alone(hash, key, fresh.address(), true) {
            Ok(put) => {
                fresh.keep();
                let old = match put {
                    Put::New { .. } => None,
                    // SAFETY: 1: this operation replaced it (2 of `Table`).
                    Put::There(old) => Some(unsafe { self.retire(old) }),
                };
                self.map.after_put(&put);
                Ok(old)
            }
            // SAFETY: 1: it was not inserted (2 of `Table`).
            Err(Full) => Err(Refused::Full(unsafe { fresh.into_inner() })),
        })
    }

    /// Inserts a pair unless the key is present.
    ///
    /// # Errors
    ///
    /// [`Refused`] with the value; [`Refused::Full`] if there is no memory, also in a map without a
    /// byte limit.
    ///
    /// ```
    /// # use corewise_maps::{clht::Boxed, copy_map::Refused};
    /// let names: Boxed<u32, &str> = Boxed::from([(1, "one")]);
    /// let names = names.pin();
    /// assert_eq!(names.try_insert(2, "two"), Ok(&"two"));
    /// let refused = Refused::Occupied { there: &"one", value: "uno" };
    /// assert_eq!(names.try_insert(1, "uno"), Err(refused));
    /// ```
    pub fn try_insert(&self, key: T::Key, value: V) -> Result<&V, Refused<'_, V>> {
        let fresh = Shared::new(value);
        match self.put_fresh(self.map.hash(&key), key, fresh) {
            Ok(value) => Ok(value),
            Err((Some(there), fresh)) => Err(Refused::Occupied {
                there,
                // SAFETY: 1: it was not inserted.
                value: unsafe { fresh.into_inner() },
            }),
            // SAFETY: 1: it was not inserted.
            Err((None, fresh)) => Err(Refused::Full(unsafe { fresh.into_inner() })),
        }
    }

    /// Returns the value of a key, and inserts `value` if the key is absent.
    ///
    /// # Errors
    ///
    /// As [`insert`](Self::insert).
    ///
    /// # Panics
    ///
    /// As [`insert`](Self::insert).
    ///
    /// ```
    /// # use corewise_maps::clht::Boxed;
    /// let names: Boxed<u32, String> = Boxed::new();
    /// assert_eq!(names.pin().get_or_insert(1, "one".into()), "one");
    /// assert_eq!(names.pin().get_or_insert(1, "uno".into()), "one");
    /// ```
    pub fn get_or_insert(&self, key: T::Key, value: V) -> L::Answer<&V, Refused<'_, V>> {
        self.get_or_insert_with(key, || value)
    }

    /// Returns the value of a key, and inserts the result of `make` if the key is absent. If
    /// another thread inserts the key while `make` runs, that value is returned and ours is
    /// dropped.
    ///
    /// # Errors
    ///
    /// As [`insert`](Self::insert).
    ///
    /// # Panics
    ///
    /// As [`insert`](Self::insert).
    ///
    /// ```
    /// # use corewise_maps::clht::Boxed;
    /// let names: Boxed<u32, String> = Boxed::new();
    /// assert_eq!(names.pin().get_or_insert_with(1, || "one".into()), "one");
    /// assert_eq!(names.pin().get_or_insert_with(1, || unreachable!()), "one");
    /// ```
    pub fn get_or_insert_with(
        &self,
        key: T::Key,
        make: impl FnOnce() -> V,
    ) -> L::Answer<&V, Refused<'_, V>> {
        let hash = self.map.hash(&key);
        if let Some(there) = self.map.get_hashed(hash, &key) {
            // SAFETY: 1: found just now.
            return L::answer(Ok(unsafe { self.value(there) }));
        }
        L::answer(match self.put_fresh(hash, key, Shared::new(make())) {
            Ok(value) | Err((Some(value), _)) => Ok(value),
            // SAFETY: 1: it was not inserted.
            Err((None, fresh)) => Err(Refused::Full(unsafe { fresh.into_inner() })),
        })
    }

    /// Replaces the value of a key with `f(old)`, or inserts `value` if the key is absent; returns
    /// the new value.
    ///
    /// # Errors
    ///
    /// As [`insert`](Self::insert).
    ///
    /// # Panics
    ///
    /// As [`insert`](Self::insert).
    ///
    /// ```
    /// # use corewise_maps::clht::Boxed;
    /// let lines: Boxed<u32, String> = Boxed::new();
    /// for word in ["a", "b"] {
    ///     lines.pin().update_or_insert(7, |line| format!("{line} {word}"), word.into());
    /// }
    /// assert_eq!(lines.pin().get(&7).unwrap(), "a b");
    /// ```
    pub fn update_or_insert(
        &self,
        key: T::Key,
        f: impl FnMut(&V) -> V,
        value: V,
    ) -> L::Answer<&V, Refused<'_, V>> {
        self.update_or_insert_with(key, f, || value)
    }

    /// Replaces the value of a key with `f(old)`, or inserts the result of `make` if the key is
    /// absent; returns the new value. `make` runs at most once.
    ///
    /// # Errors
    ///
    /// As [`insert`](Self::insert).
    ///
    /// # Panics
    ///
    /// As [`insert`](Self::insert).
    ///
    /// ```
    /// # use corewise_maps::clht::Boxed;
    /// let lists: Boxed<u32, Vec<u32>> = Boxed::new();
    /// let append = |list: &Vec<u32>| [list.as_slice(), &[7]].concat();
    /// assert_eq!(lists.pin().update_or_insert_with(1, append, Vec::new), &[]);
    /// assert_eq!(lists.pin().update_or_insert_with(1, append, Vec::new), &[7]);
    /// ```
    pub fn update_or_insert_with(
        &self,
        key: T::Key,
        mut f: impl FnMut(&V) -> V,
        make: impl FnOnce() -> V,
    ) -> L::Answer<&V, Refused<'_, V>> {
        let hash = self.map.hash(&key);
        let (mut make, mut made) = (Some(make), None);
        L::answer(loop {
            let replaced = self.change(hash, &key, |old| EntryChange::Replace(f(old)));
            if let Some((_, EntryChange::Replace(new))) = replaced {
                break Ok(new);
            }
            made = made.or_else(|| make.take().map(|make| Shared::new(make())));
            match self.put_fresh(hash, key, made.take().expect("made once")) {
                Ok(value) => break Ok(value),
                Err((Some(_), fresh)) => made = Some(fresh),
                // SAFETY: 1: it was not inserted.
                Err((None, fresh)) => break Err(Refused::Full(unsafe { fresh.into_inner() })),
            }
        })
    }

    /// Inserts, replaces or removes the entry of a key as `decide` says, given the present value.
    ///
    /// # Errors
    ///
    /// As [`insert`](Self::insert).
    ///
    /// # Panics
    ///
    /// As [`insert`](Self::insert).
    ///
    /// ```
    /// use corewise_maps::clht::Boxed;
    /// use corewise_maps::copy_map::{Computed, Operation};
    ///
    /// let words: Boxed<u32, String> = Boxed::from([(1, "ab".into())]);
    /// let shorten = |word: Option<&String>| match word {
    ///     None => Operation::Abort("no word"),
    ///     Some(word) if word.len() == 1 => Operation::Remove,
    ///     Some(word) => Operation::Insert(word[1..].to_string()),
    /// };
    /// let words = words.pin();
    /// assert!(matches!(words.compute(1, shorten), Computed::Updated { .. }));
    /// assert!(matches!(words.compute(1, shorten), Computed::Removed(word) if word == "b"));
    /// assert_eq!(words.compute(1, shorten), Computed::Aborted(Some("no word")));
    /// ```
    pub fn compute<R>(
        &self,
        key: T::Key,
        mut decide: impl FnMut(Option<&V>) -> Operation<V, R>,
    ) -> L::Answer<Computed<&V, R>, Refused<'_, V>> {
        let hash = self.map.hash(&key);
        L::answer(loop {
            let mut result = None;
            let changed = self.change(hash, &key, |old| match decide(Some(old)) {
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
                None => {}
            }
            match decide(None) {
                Operation::Abort(result) => break Ok(Computed::Aborted(Some(result))),
                Operation::Remove => break Ok(Computed::Aborted(None)),
                Operation::Insert(value) => match self.put_fresh(hash, key, Shared::new(value)) {
                    Ok(value) => break Ok(Computed::Inserted(value)),
                    // Dropped; `decide` makes another one.
                    Err((Some(_), _)) => {}
                    // SAFETY: 1: it was not inserted.
                    Err((None, fresh)) => break Err(Refused::Full(unsafe { fresh.into_inner() })),
                },
            }
        })
    }
}

/// Parts of updates.
impl<V, T, S, G, L> BoxMapRef<'_, V, T, S, G, L>
where
    V: Send + Sync + 'static,
    T: Table<Value = NonNull<V>>,
    S: BuildHasher,
    G: Section,
{
    /// Inserts a value unless the key is present. Otherwise, and without memory, gives it back,
    /// with the value that is present.
    fn put_fresh(
        &self,
        hash: u64,
        key: T::Key,
        fresh: Fresh<V>,
    ) -> Result<&V, (Option<&V>, Fresh<V>)> {
        match self.map.put_alone(hash, key, fresh.address(), false) {
            // SAFETY: 1: found just now.
            Ok(Put::There(there)) => Err((Some(unsafe { self.value(there) }), fresh)),
            Ok(put) => {
                let value = fresh.keep();
                self.map.after_put(&put);
                // SAFETY: 1: inserted just now.
                Ok(unsafe { self.value(value) })
            }
            Err(Full) => Err((None, fresh)),
        }
    }

    /// # Safety
    ///
    /// 1. The value was in the table at some time since this handle was made.
    #[inline(always)]
    unsafe fn value(&self, value: NonNull<V>) -> &V {
        // SAFETY: by 1 it is retired in or after our section, and freed after that (`retire`).
        unsafe { &*value.as_ptr() }
    }

    /// Frees a value after a grace period.
    ///
    /// # Safety
    ///
    /// 1. The calling operation took the value out of the table, in this handle.
    unsafe fn retire(&self, value: NonNull<V>) -> &V {
        // SAFETY: it was kept when it was inserted, and only the caller took it out, by 1; it is
        // dropped when no reader has it.
        let owned = unsafe { Shared::of(value) };
        if mutant!("boxed_frees_at_once") {
            drop(owned);
        } else {
            let free = move || drop(owned);
            // The result only advises to wait, and we are in a section.
            let _ = self.map.map().domain().defer(size_of::<V>(), free);
        }
        // SAFETY: 1.
        unsafe { self.value(value) }
    }
}
