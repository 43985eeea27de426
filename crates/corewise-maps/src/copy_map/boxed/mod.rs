//! Maps with values of any type: values are boxed, the table holds their addresses, and RCU frees
//! them.
//!
//! # Correctness
//!
//! - *A reference is to a value that was in the map during the call.* A lookup returns an address
//!   that was in the table at some time during the lookup. The thread that finds an address sees
//!   everything written before it was inserted ([`Table`]).
//! - *A reference stays valid as long as the handle lives.* A value is retired after it was removed
//!   or replaced. A lookup that still finds its address later began its section before that, and
//!   the grace period waits for that section: an update in a moved bucket goes to the successor,
//!   and a reader in the old bucket came before.
//! - *A value is freed once*: by the operation that took its address out, or with the map, which
//!   walks the slots of its tables and calls no hasher. Foreign code can panic only before an
//!   operation has changed anything, or after the value that it took out was retired.

#[cfg(test)]
mod models;

use std::fmt;
use std::hash::BuildHasher;
use std::marker::PhantomData;
use std::ptr::NonNull;

use corewise_atomic::mutant;
use corewise_rcu::{Domain, Guard, Section};

use super::{Builder, CopyMap, CopyMapRef, Full, Put, Table};
use crate::batch;
use crate::panics::Panics;
use crate::relativistic::{DefaultHasher, ResizeError};
use crate::shared::Shared;

/// A map of `Copy` keys to values of any type, in any table of [`CopyMap`]; the table holds the
/// addresses of the values, each boxed separately.
///
/// A lookup costs what the table's lookup costs, plus the cache line of the value if the caller
/// reads it. Removed and replaced values are freed by RCU: [`BoxMapRef`]s may go on reading them,
/// and any thread may drop them some time after the last handle that may have seen them is gone.
/// Values must therefore own what they refer to (`'static`). See [`corewise_rcu::Domain::defer`]
/// for when this happens and what bounds their number; a retired value is accounted with its own
/// size, without the memory that it owns.
///
/// [`RelativisticMap`](crate::RelativisticMap) stores values in its nodes, takes keys of any type,
/// and needs one memory access less for a hit whose value is read.
///
/// ```
/// use corewise_maps::clht::Boxed;
///
/// let towns: Boxed<u32, String> = Boxed::new();
/// let towns = towns.pin();
/// towns.insert(3500, "Utrecht".into()).unwrap();
/// let before = towns.get(&3500).unwrap();
/// towns.update(&3500, |name| name.to_uppercase());
/// assert_eq!((before.as_str(), towns.get(&3500).unwrap().as_str()), ("Utrecht", "UTRECHT"));
/// ```
pub struct BoxMap<V, T, S = DefaultHasher>
where
    V: Send + Sync + 'static,
    T: Table<Value = NonNull<V>>,
    S: BuildHasher,
{
    map: CopyMap<T, S>,
    _values: PhantomData<V>,
}

// SAFETY: it owns its values; keys are copied, and so are the addresses of values, which are `Send`
// and `Sync`.
unsafe impl<V, T, S> Send for BoxMap<V, T, S>
where
    V: Send + Sync + 'static,
    T: Table<Value = NonNull<V>, Key: Send>,
    S: BuildHasher + Send,
{
}
// SAFETY: shared references to it give copies of keys and shared references to values.
unsafe impl<V, T, S> Sync for BoxMap<V, T, S>
where
    V: Send + Sync + 'static,
    T: Table<Value = NonNull<V>, Key: Send>,
    S: BuildHasher + Sync,
{
}

impl<V, T, S> Builder<T, S>
where
    V: Send + Sync + 'static,
    T: Table<Value = NonNull<V>>,
    S: BuildHasher,
{
    /// Builds the map, with boxed values.
    ///
    /// # Panics
    ///
    /// As [`build`](Self::build).
    pub fn build_boxed(self) -> BoxMap<V, T, S> {
        BoxMap {
            map: self.build(),
            _values: PhantomData,
        }
    }
}

impl<V, T> BoxMap<V, T>
where
    V: Send + Sync + 'static,
    T: Table<Value = NonNull<V>>,
{
    /// Makes an empty map, which grows.
    pub fn new() -> Self {
        Self::builder().build_boxed()
    }

    /// Starts a builder for other settings; [`Builder::build_boxed`] makes the map.
    pub fn builder() -> Builder<T> {
        CopyMap::builder()
    }
}

impl<V, T> Default for BoxMap<V, T>
where
    V: Send + Sync + 'static,
    T: Table<Value = NonNull<V>>,
{
    fn default() -> Self {
        Self::new()
    }
}

impl<V, T, S> BoxMap<V, T, S>
where
    V: Send + Sync + 'static,
    T: Table<Value = NonNull<V>>,
    S: BuildHasher,
{
    /// Enters a read-side critical section and returns a handle; what the handle finds stays valid
    /// while it lives. Wait-free.
    #[inline]
    pub fn pin(&self) -> BoxMapRef<'_, V, T, S> {
        BoxMapRef {
            map: self.map.pin(),
            domain: self.map.domain(),
            _values: PhantomData,
        }
    }

    /// Returns a handle in a section that the caller already has.
    ///
    /// # Panics
    ///
    /// If the section is not one of this map's domain.
    #[inline]
    pub fn within<'g, G: Section>(&'g self, section: &'g G) -> BoxMapRef<'g, V, T, S, &'g G> {
        BoxMapRef {
            map: self.map.within(section),
            domain: self.map.domain(),
            _values: PhantomData,
        }
    }

    /// As [`CopyMap::len`].
    pub fn len(&self) -> usize {
        self.map.len()
    }

    /// As [`CopyMap::is_empty`].
    pub fn is_empty(&self) -> bool {
        self.map.is_empty()
    }

    /// As [`CopyMap::buckets`].
    pub fn buckets(&self) -> usize {
        self.map.buckets()
    }

    /// Bytes of buckets, as [`CopyMap::bytes`], without the values.
    pub fn bytes(&self) -> usize {
        self.map.bytes()
    }

    /// As [`CopyMap::resize_to`].
    ///
    /// # Errors
    ///
    /// As there.
    pub fn resize_to(&self, buckets: usize) -> Result<(), ResizeError> {
        self.map.resize_to(buckets)
    }

    /// The domain whose sections protect readers.
    pub fn domain(&self) -> &Domain {
        self.map.domain()
    }
}

impl<V, T, S> Drop for BoxMap<V, T, S>
where
    V: Send + Sync + 'static,
    T: Table<Value = NonNull<V>>,
    S: BuildHasher,
{
    /// If values panic when they are dropped, the others are dropped all the same, and the first
    /// panic is resumed.
    fn drop(&mut self) {
        let mut panics = Panics::default();
        self.map.for_each_mut(|_, value| {
            // SAFETY: the operation that inserted the value kept it, and each value is visited
            // once (3 of `Table`). No other thread has the map, so there is no reference to its
            // values.
            let value = unsafe { Shared::of(value) };
            panics.catch(|| drop(value));
        });
        panics.resume();
    }
}

impl<V, T, S> fmt::Debug for BoxMap<V, T, S>
where
    V: Send + Sync + 'static,
    T: Table<Value = NonNull<V>>,
    S: BuildHasher,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BoxMap")
            .field("len", &self.len())
            .field("buckets", &self.buckets())
            .finish_non_exhaustive()
    }
}

/// Why a value was not inserted; the value is handed back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused<'h, V> {
    /// The key has a value already ([`BoxMapRef::try_insert`]).
    Occupied {
        /// The value in the map.
        there: &'h V,
        /// The caller's value.
        value: V,
    },
    /// See [`Full`].
    Full(V),
}

impl<V> fmt::Display for Refused<'_, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refused::Occupied { .. } => f.write_str("the key is there"),
            Refused::Full(_) => Full.fmt(f),
        }
    }
}

impl<V: fmt::Debug> std::error::Error for Refused<'_, V> {}

/// A handle to a [`BoxMap`], in a read-side critical section.
pub struct BoxMapRef<'m, V, T, S = DefaultHasher, G = Guard<'m>> {
    map: CopyMapRef<'m, T, S, G>,
    domain: &'m Domain,
    _values: PhantomData<&'m V>,
}

impl<V, T, S, G> BoxMapRef<'_, V, T, S, G>
where
    V: Send + Sync + 'static,
    T: Table<Value = NonNull<V>>,
    S: BuildHasher,
    G: Section,
{
    /// Returns the value of a key, valid while the handle lives. Cost and progress are those of the
    /// table's lookups.
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
    #[inline]
    pub fn contains_key(&self, key: &T::Key) -> bool {
        self.map.contains_key(key)
    }

    /// Inserts a pair; returns the value that it replaces, if the key was present.
    ///
    /// # Errors
    ///
    /// [`Refused::Full`] with the value; nothing is changed.
    pub fn insert(&self, key: T::Key, value: V) -> Result<Option<&V>, Refused<'_, V>> {
        let value = Shared::new(value);
        match self.map.put_alone(key, value.address(), true) {
            Ok(put) => {
                value.keep();
                let old = match put {
                    Put::New { .. } => None,
                    // SAFETY: 1: this operation replaced it (2 of `Table`).
                    Put::There(old) => Some(unsafe { self.retire(old) }),
                };
                self.map.after_put(&put);
                Ok(old)
            }
            // SAFETY: it was not inserted (2 of `Table`).
            Err(Full) => Err(Refused::Full(unsafe { value.into_inner() })),
        }
    }

    /// Inserts a pair unless the key is present.
    ///
    /// # Errors
    ///
    /// [`Refused`] with the value.
    pub fn try_insert(&self, key: T::Key, value: V) -> Result<&V, Refused<'_, V>> {
        let value = Shared::new(value);
        // SAFETY: called only if the value was not inserted (2 of `Table`).
        let back = |value: Shared<V>| unsafe { value.into_inner() };
        match self.map.put_alone(key, value.address(), false) {
            Ok(Put::There(there)) => Err(Refused::Occupied {
                // SAFETY: 1: found just now.
                there: unsafe { self.value(there) },
                value: back(value),
            }),
            Ok(put) => {
                let value = value.keep();
                self.map.after_put(&put);
                // SAFETY: 1: inserted just now.
                Ok(unsafe { self.value(value) })
            }
            Err(Full) => Err(Refused::Full(back(value))),
        }
    }

    /// Replaces the value of a key with `f(old)`; returns the new value, or `None` if the key is
    /// absent. `f` runs without a lock, and runs again if the value was replaced meanwhile.
    pub fn update(&self, key: &T::Key, mut f: impl FnMut(&V) -> V) -> Option<&V> {
        // A value that was made but not inserted is dropped.
        let mut last = None;
        self.map.update_alone(key, |old| {
            last = None;
            // SAFETY: an address of the table, found in our section.
            let new = Shared::new(f(unsafe { old.as_ref() }));
            let (_, new) = last.insert((old, new));
            new.address()
        })?;
        let (old, new) = last?;
        let new = new.keep();
        // SAFETY: 1: this operation replaced it by the new one (2 of `Table`).
        unsafe { self.retire(old) };
        self.map.help();
        // SAFETY: 1: inserted just now.
        Some(unsafe { self.value(new) })
    }

    /// Removes a key; returns its value, valid while the handle lives.
    pub fn remove(&self, key: &T::Key) -> Option<&V> {
        let value = self.map.remove_alone(key)?;
        // SAFETY: 1: this operation removed it.
        let value = unsafe { self.retire(value) };
        self.map.help();
        Some(value)
    }

    /// Iterates over all entries, as [`CopyMapRef::iter`].
    pub fn iter(&self) -> impl Iterator<Item = (T::Key, &V)> {
        let pairs = self.map.iter();
        // SAFETY: 1: found just now.
        pairs.map(|(key, value)| (key, unsafe { self.value(value) }))
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
            let _ = self.domain.defer(size_of::<V>(), free);
        }
        // SAFETY: 1.
        unsafe { self.value(value) }
    }
}
