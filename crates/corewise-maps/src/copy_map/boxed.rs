//! Values of any type: boxed, their addresses in the table, and freed by RCU.
//!
//! # Why it is right
//!
//! - *A reference is to a value that was in the map during the call.* Tables answer with an address that was there at
//!   some time during the lookup, and what was written before an address was put in is seen by who finds it
//!   ([`Table`]).
//! - *It stays valid for as long as the handle lives.* A value is handed to RCU after it was taken out, or replaced. Who
//!   finds its address later than that was in a section before, and that section is waited for: an update in a bucket
//!   that was moved goes to where it was moved, and who is in the old bucket came before.
//! - *A value is freed once*: by the one whose operation took its address out, or with the map, which looks at the slots
//!   of its tables and asks no hasher. Foreign code that panics does so before an operation has changed something, or after
//!   what it took out was handed on.

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

/// A map of `Copy` keys to values of any type, in any table of [`CopyMap`]: the table holds the addresses of the
/// values, each in a box of its own.
///
/// A lookup costs what the table's costs, and the cache line of the value if that is looked at. What is removed or
/// replaced is freed by RCU: [`BoxMapRef`]s may go on looking at it, and values are dropped by any thread, some time
/// after the last handle that may have seen them is gone; so they must own what they refer to (`'static`). See
/// [`corewise_rcu::Domain::defer`] for when, and for what bounds their number; what waits is counted as the size of
/// a value, without what that owns.
///
/// [`RelativisticMap`](crate::RelativisticMap) has values in its nodes, keys of any type, and one access to memory
/// less for a hit whose value is looked at.
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

// SAFETY: it owns its values; keys are copied, and so are addresses of values that may be shared and sent.
unsafe impl<V, T, S> Send for BoxMap<V, T, S>
where
    V: Send + Sync + 'static,
    T: Table<Value = NonNull<V>, Key: Send>,
    S: BuildHasher + Send,
{
}
// SAFETY: as above.
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
    /// The map, of boxed values.
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
    /// An empty map, which grows.
    pub fn new() -> Self {
        Self::builder().build_boxed()
    }

    /// A map with other settings; [`Builder::build_boxed`] makes it.
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
    /// A handle, and a read-side critical section; what it has found stays valid while it lives. Wait-free.
    #[inline]
    pub fn pin(&self) -> BoxMapRef<'_, V, T, S> {
        BoxMapRef {
            map: self.map.pin(),
            domain: self.map.domain(),
            _values: PhantomData,
        }
    }

    /// A handle in a section that the caller has.
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

    /// Bytes of buckets, as [`CopyMap::bytes`]; without the values.
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
    /// If values panic when they are dropped, the others are dropped all the same, and the first panic goes on.
    fn drop(&mut self) {
        let mut panics = Panics::default();
        self.map.for_each_mut(|_, value| {
            // SAFETY: kept by the operation that put it in, and met once. Nobody else has the map any more, so no
            // reference to what is in it.
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

/// Why a value was not put in. It is handed back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused<'h, V> {
    /// The key has a value already ([`BoxMapRef::try_insert`]).
    Occupied {
        /// That of the map.
        there: &'h V,
        /// That of the caller.
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

/// A handle of a [`BoxMap`], in a read-side critical section.
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
    /// The value of a key, valid while the handle lives. Costs and progress are those of the table's lookups.
    #[inline]
    pub fn get(&self, key: &T::Key) -> Option<&V> {
        self.map.get(key).map(|value| self.value(value))
    }

    /// The values of several keys, as [`CopyMapRef::get_many`]; what the values refer to is not asked for.
    ///
    /// # Panics
    ///
    /// If there are not as many places in `out` as keys; then nothing is looked up.
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
                *place = value.map(|value| self.value(value));
            }
        });
    }

    /// Whether the key is there.
    #[inline]
    pub fn contains_key(&self, key: &T::Key) -> bool {
        self.map.contains_key(key)
    }

    /// Inserts a pair; the value that it replaces, if the key is there.
    ///
    /// # Errors
    ///
    /// [`Refused::Full`] with the value, and with nothing changed.
    pub fn insert(&self, key: T::Key, value: V) -> Result<Option<&V>, Refused<'_, V>> {
        let value = Shared::new(value);
        match self.map.put_alone(key, value.address(), true) {
            Ok(put) => {
                value.keep();
                let old = match put {
                    Put::New { .. } => None,
                    Put::There(old) => Some(self.retire(old)),
                };
                self.map.after_put(&put);
                Ok(old)
            }
            // SAFETY: it was not put in.
            Err(Full) => Err(Refused::Full(unsafe { value.into_inner() })),
        }
    }

    /// Inserts a pair unless the key is there.
    ///
    /// # Errors
    ///
    /// [`Refused`] with the value.
    pub fn try_insert(&self, key: T::Key, value: V) -> Result<&V, Refused<'_, V>> {
        let value = Shared::new(value);
        // SAFETY: called if it was not put in.
        let back = |value: Shared<V>| unsafe { value.into_inner() };
        match self.map.put_alone(key, value.address(), false) {
            Ok(Put::There(there)) => Err(Refused::Occupied {
                there: self.value(there),
                value: back(value),
            }),
            Ok(put) => {
                let value = value.keep();
                self.map.after_put(&put);
                Ok(self.value(value))
            }
            Err(Full) => Err(Refused::Full(back(value))),
        }
    }

    /// Replaces the value of a key by what `f` makes of it; the new value, or `None` if the key is not there. `f` is
    /// called without a lock, again if the value was replaced meanwhile.
    pub fn update(&self, key: &T::Key, mut f: impl FnMut(&V) -> V) -> Option<&V> {
        // What was made and not put in is dropped.
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
        self.retire(old);
        self.map.help();
        Some(self.value(new))
    }

    /// Removes a key; its value, valid while the handle lives.
    pub fn remove(&self, key: &T::Key) -> Option<&V> {
        let value = self.map.remove_alone(key)?;
        let value = self.retire(value);
        self.map.help();
        Some(value)
    }

    /// All entries, as [`CopyMapRef::iter`].
    pub fn iter(&self) -> impl Iterator<Item = (T::Key, &V)> {
        let pairs = self.map.iter();
        pairs.map(|(key, value)| (key, self.value(value)))
    }

    #[inline(always)]
    fn value(&self, value: NonNull<V>) -> &V {
        // SAFETY: it is in the table, or was found there within our section: freed after that (`retire`).
        unsafe { &*value.as_ptr() }
    }

    /// Frees a value, which our operation has taken out of the table, when no reader has it any more.
    fn retire(&self, value: NonNull<V>) -> &V {
        // SAFETY: it was kept when it was put in, and taken out by us alone; dropped when nobody reads it.
        let owned = unsafe { Shared::of(value) };
        if mutant!("boxed_frees_at_once") {
            drop(owned);
        } else {
            let free = move || drop(owned);
            // Its answer is advice to wait; we are in a section.
            let _ = self.domain.defer(size_of::<V>(), free);
        }
        self.value(value)
    }
}
