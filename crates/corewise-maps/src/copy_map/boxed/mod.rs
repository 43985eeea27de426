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

mod handle;
mod iter;
#[cfg(test)]
mod models;

use std::fmt;
use std::hash::BuildHasher;
use std::marker::PhantomData;
use std::ptr::NonNull;

use corewise_rcu::{Domain, Guard, OwnedGuard, Section};

use super::{Builder, CopyMap, Full, Table, Unlimited};
use crate::panics::Panics;
use crate::relativistic::{DefaultHasher, ResizeError};
use crate::shared::Shared;

pub use handle::BoxMapRef;
#[cfg(feature = "rayon")]
pub use iter::BoxParIter;
pub use iter::{BoxIntoIter, BoxIter};

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
/// towns.insert(3500, "Utrecht".into());
/// let before = towns.get(&3500).unwrap();
/// towns.update(&3500, |name| name.to_uppercase());
/// assert_eq!((before.as_str(), towns.get(&3500).unwrap().as_str()), ("Utrecht", "UTRECHT"));
/// ```
pub struct BoxMap<V, T, S = DefaultHasher, L = Unlimited>
where
    V: Send + Sync + 'static,
    T: Table<Value = NonNull<V>>,
    S: BuildHasher,
{
    map: CopyMap<T, S, L>,
    _values: PhantomData<V>,
}

// SAFETY: it owns its values; keys are copied, and so are the addresses of values, which are `Send`
// and `Sync`.
unsafe impl<V, T, S, L> Send for BoxMap<V, T, S, L>
where
    V: Send + Sync + 'static,
    T: Table<Value = NonNull<V>, Key: Send>,
    S: BuildHasher + Send,
{
}
// SAFETY: shared references to it give copies of keys and shared references to values.
unsafe impl<V, T, S, L> Sync for BoxMap<V, T, S, L>
where
    V: Send + Sync + 'static,
    T: Table<Value = NonNull<V>, Key: Send>,
    S: BuildHasher + Sync,
{
}

impl<V, T, S, L> Builder<T, S, L>
where
    V: Send + Sync + 'static,
    T: Table<Value = NonNull<V>>,
    S: BuildHasher,
{
    /// Builds the map, with boxed values.
    ///
    /// ```
    /// # use corewise_maps::clht::Boxed;
    /// let names: Boxed<u32, String> = Boxed::builder().capacity(100).build_boxed();
    /// names.pin().insert(7, "seven".into());
    /// assert_eq!(names.pin().get(&7).unwrap(), "seven");
    /// ```
    ///
    /// # Panics
    ///
    /// As [`build`](Self::build).
    pub fn build_boxed(self) -> BoxMap<V, T, S, L> {
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
    ///
    /// ```
    /// # use corewise_maps::clht::Boxed;
    /// let names: Boxed<u32, String> = Boxed::new();
    /// assert!(names.is_empty());
    /// ```
    pub fn new() -> Self {
        Self::builder().build_boxed()
    }

    /// Makes an empty map with room for `entries` before it grows.
    ///
    /// # Panics
    ///
    /// As [`Builder::build`].
    ///
    /// ```
    /// # use corewise_maps::clht::Boxed;
    /// let names: Boxed<u32, String> = Boxed::with_capacity(1_000);
    /// assert!(names.buckets() >= 1_000 / 3);
    /// ```
    pub fn with_capacity(entries: usize) -> Self {
        Self::builder().capacity(entries).build_boxed()
    }

    /// Starts a builder for other settings; [`Builder::build_boxed`] makes the map.
    ///
    /// ```
    /// # use corewise_maps::clht::Boxed;
    /// let names: Boxed<u32, String> = Boxed::builder().buckets(64).build_boxed();
    /// assert_eq!(names.buckets(), 64);
    /// ```
    pub fn builder() -> Builder<T> {
        CopyMap::builder()
    }
}

impl<V, T, S> BoxMap<V, T, S>
where
    V: Send + Sync + 'static,
    T: Table<Value = NonNull<V>>,
    S: BuildHasher,
{
    /// Makes an empty map with this hasher.
    ///
    /// ```
    /// use std::hash::RandomState;
    /// # use corewise_maps::clht::Boxed;
    /// let names = Boxed::with_hasher(RandomState::new());
    /// assert_eq!(names.pin().insert(7, "seven"), None);
    /// ```
    pub fn with_hasher(hasher: S) -> Self {
        CopyMap::<T>::builder().hasher(hasher).build_boxed()
    }

    /// Makes an empty map with this hasher and room for `entries` before it grows.
    ///
    /// ```
    /// use std::hash::RandomState;
    /// # use corewise_maps::clht::Boxed;
    /// let names = Boxed::<u32, String, _>::with_capacity_and_hasher(100, RandomState::new());
    /// assert_eq!(names.pin().insert(7, "seven".into()), None);
    /// ```
    ///
    /// # Panics
    ///
    /// As [`Builder::build`].
    pub fn with_capacity_and_hasher(entries: usize, hasher: S) -> Self {
        let builder = CopyMap::<T>::builder().capacity(entries);
        builder.hasher(hasher).build_boxed()
    }
}

impl<V, T, S, L> BoxMap<V, T, S, L>
where
    V: Send + Sync + 'static,
    T: Table<Value = NonNull<V>>,
    S: BuildHasher,
{
    pub(super) fn builder_of_copy(&self) -> Builder<T, S>
    where
        S: Clone,
    {
        self.map.builder_of_copy()
    }

    /// Enters a read-side critical section and returns a handle; what the handle finds stays valid
    /// while it lives. Wait-free.
    ///
    /// ```
    /// # use corewise_maps::clht::Boxed;
    /// let names: Boxed<u32, String> = Boxed::from([(1, "one".into())]);
    /// let handle = names.pin();
    /// let one = handle.get(&1);
    /// names.pin().remove(&1);
    /// assert_eq!(one.unwrap(), "one");
    /// ```
    #[inline]
    pub fn pin(&self) -> BoxMapRef<'_, V, T, S, Guard<'_>, L> {
        BoxMapRef::of(self.map.pin())
    }

    /// As [`pin`](Self::pin), with a handle that may be sent to another thread, and held over an
    /// `.await`; as [`CopyMap::pin_owned`].
    ///
    /// ```
    /// # use corewise_maps::clht::Boxed;
    /// async fn name(names: &Boxed<u32, String>) -> Option<String> {
    ///     let names = names.pin_owned();
    ///     let one = names.get(&1)?;
    ///     std::future::ready(()).await;
    ///     Some(one.clone())
    /// }
    /// fn send<T: Send>(_: T) {}
    /// send(name(&Boxed::from([(1, "one".into())])));
    /// ```
    pub fn pin_owned(&self) -> BoxMapRef<'_, V, T, S, OwnedGuard<'_>, L> {
        BoxMapRef::of(self.map.pin_owned())
    }

    /// Returns a handle in a section that the caller already has.
    ///
    /// # Panics
    ///
    /// If the section is not one of this map's domain.
    ///
    /// ```
    /// # use corewise_maps::clht::Boxed;
    /// let names: Boxed<u32, &str> = Boxed::from([(1, "one")]);
    /// let guard = corewise_rcu::pin();
    /// assert_eq!(names.within(&guard).get(&1), Some(&"one"));
    /// ```
    #[inline]
    pub fn within<'g, G: Section>(&'g self, section: &'g G) -> BoxMapRef<'g, V, T, S, &'g G, L> {
        BoxMapRef::of(self.map.within(section))
    }

    /// As [`CopyMap::len`].
    ///
    /// ```
    /// # use corewise_maps::clht::Boxed;
    /// let names: Boxed<u32, &str> = Boxed::from([(1, "one")]);
    /// assert_eq!(names.len(), 1);
    /// ```
    pub fn len(&self) -> usize {
        self.map.len()
    }

    /// As [`CopyMap::is_empty`].
    ///
    /// ```
    /// # use corewise_maps::clht::Boxed;
    /// let names: Boxed<u32, &str> = Boxed::new();
    /// assert!(names.is_empty());
    /// ```
    pub fn is_empty(&self) -> bool {
        self.map.is_empty()
    }

    /// As [`CopyMap::buckets`].
    ///
    /// ```
    /// # use corewise_maps::clht::Boxed;
    /// let names: Boxed<u32, &str> = Boxed::with_capacity(1_000);
    /// assert!(names.buckets().is_power_of_two());
    /// ```
    pub fn buckets(&self) -> usize {
        self.map.buckets()
    }

    /// Bytes of buckets, as [`CopyMap::bytes`], without the values.
    ///
    /// ```
    /// # use corewise_maps::clht::Boxed;
    /// // A bucket is a cache line.
    /// assert_eq!(Boxed::<u32, &str>::builder().buckets(64).build_boxed().bytes(), 64 * 64);
    /// ```
    pub fn bytes(&self) -> usize {
        self.map.bytes()
    }

    /// As [`CopyMap::resize_to`].
    ///
    /// # Errors
    ///
    /// As there.
    ///
    /// ```
    /// # use corewise_maps::clht::Boxed;
    /// let names: Boxed<u32, &str> = Boxed::from([(1, "one")]);
    /// names.resize_to(1_024).unwrap();
    /// assert_eq!(names.buckets(), 1_024);
    /// ```
    pub fn resize_to(&self, buckets: usize) -> Result<(), ResizeError> {
        self.map.resize_to(buckets)
    }

    /// As [`CopyMap::reserve`].
    ///
    /// # Errors
    ///
    /// As there.
    ///
    /// ```
    /// # use corewise_maps::clht::Boxed;
    /// let names: Boxed<u32, &str> = Boxed::new();
    /// names.reserve(1_000).unwrap();
    /// assert!(names.buckets() >= 1_000 / 3);
    /// ```
    pub fn reserve(&self, additional: usize) -> Result<(), ResizeError> {
        self.map.reserve(additional)
    }

    /// As [`CopyMap::settle`]. Removed values are freed by their domain, which has
    /// [`barrier`](Domain::barrier) to wait for that.
    ///
    /// ```
    /// # use corewise_maps::clht::Boxed;
    /// let names: Boxed<u32, &str> = Boxed::from([(1, "one")]);
    /// names.settle();
    /// assert_eq!(names.len(), 1);
    /// ```
    pub fn settle(&self) {
        self.map.settle();
    }

    /// As [`CopyMap::set_automatic_resize`].
    ///
    /// ```
    /// # use corewise_maps::clht::Boxed;
    /// let names: Boxed<u64, u64> = Boxed::new();
    /// names.set_automatic_resize(false);
    /// let buckets = names.buckets();
    /// (0..1_000).for_each(|key| assert_eq!(names.pin().insert(key, key), None));
    /// assert_eq!(names.buckets(), buckets);
    /// ```
    pub fn set_automatic_resize(&self, automatic: bool) {
        self.map.set_automatic_resize(automatic);
    }

    /// The hasher.
    ///
    /// ```
    /// # use corewise_maps::clht::Boxed;
    /// use std::hash::BuildHasher;
    /// let names: Boxed<u32, &str> = Boxed::new();
    /// assert_eq!(names.hasher().hash_one(7), names.hasher().hash_one(7));
    /// ```
    pub fn hasher(&self) -> &S {
        self.map.hasher()
    }

    /// The domain whose sections protect readers.
    ///
    /// ```
    /// # use corewise_maps::clht::Boxed;
    /// let names: Boxed<u32, &str> = Boxed::from([(1, "one")]);
    /// names.pin().remove(&1);
    /// // Waits until it is freed.
    /// names.domain().barrier();
    /// ```
    pub fn domain(&self) -> &Domain {
        self.map.domain()
    }
}

impl<V, T, S, L> Drop for BoxMap<V, T, S, L>
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
