//! Iteration over a map of boxes.

use std::fmt;
use std::hash::BuildHasher;
use std::iter::FusedIterator;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ptr::{self, NonNull};

use corewise_rcu::Section;

use super::{BoxMap, BoxMapRef};
use crate::copy_map::{IntoIter, Iter, Table};
use crate::panics::Panics;
use crate::shared::Shared;

/// The entries of a map; from [`BoxMapRef::iter`].
pub struct BoxIter<'h, V, T: Table<Value = NonNull<V>>, S> {
    pairs: Iter<'h, T, S>,
    _values: PhantomData<&'h V>,
}

impl<'h, V, T: Table<Value = NonNull<V>>, S> BoxIter<'h, V, T, S> {
    /// # Safety
    ///
    /// 1. `pairs` are those of a `BoxMap`, from a handle that is borrowed for `'h`.
    pub(super) unsafe fn of(pairs: Iter<'h, T, S>) -> Self {
        Self {
            pairs,
            _values: PhantomData,
        }
    }
}

impl<'h, V, T: Table<Value = NonNull<V>>, S: BuildHasher> Iterator for BoxIter<'h, V, T, S> {
    type Item = (T::Key, &'h V);

    fn next(&mut self) -> Option<Self::Item> {
        let (key, value) = self.pairs.next()?;
        // SAFETY: in the map during the handle's section, which lasts for `'h` (1 of `of`): freed
        // after that (`BoxMapRef::retire`).
        Some((key, unsafe { &*value.as_ptr() }))
    }
}

impl<V, T: Table<Value = NonNull<V>>, S: BuildHasher> FusedIterator for BoxIter<'_, V, T, S> {}

impl<V, T: Table<Value = NonNull<V>>, S> fmt::Debug for BoxIter<'_, V, T, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("BoxIter(..)")
    }
}

/// As [`BoxMapRef::iter`].
impl<'h, V, T, S, G, L> IntoIterator for &'h BoxMapRef<'_, V, T, S, G, L>
where
    V: Send + Sync + 'static,
    T: Table<Value = NonNull<V>>,
    S: BuildHasher,
    G: Section,
{
    type Item = (T::Key, &'h V);
    type IntoIter = BoxIter<'h, V, T, S>;

    fn into_iter(self) -> BoxIter<'h, V, T, S> {
        self.iter()
    }
}

/// The entries of a map that is used up; from [`BoxMap::into_iter`]. It owns the values that it has
/// not returned.
pub struct BoxIntoIter<V, T: Table<Value = NonNull<V>>, S, L> {
    pairs: IntoIter<T, S, L>,
    _values: PhantomData<V>,
}

// SAFETY: as for `BoxMap`: it owns values, which are `Send`.
unsafe impl<V, T, S, L> Send for BoxIntoIter<V, T, S, L>
where
    V: Send + Sync + 'static,
    T: Table<Value = NonNull<V>, Key: Send>,
    S: BuildHasher + Send,
{
}

// SAFETY: a shared reference to it gives nothing.
unsafe impl<V, T, S, L> Sync for BoxIntoIter<V, T, S, L>
where
    V: Send + Sync + 'static,
    T: Table<Value = NonNull<V>, Key: Send>,
    S: BuildHasher + Sync,
{
}

impl<V, T: Table<Value = NonNull<V>>, S, L> BoxIntoIter<V, T, S, L> {
    fn next_shared(&mut self) -> Option<(T::Key, Shared<V>)> {
        let (key, value) = self.pairs.next()?;
        // SAFETY: 1: the operation that inserted it kept it, and the iterator returns each value
        // once (3 of `Table`). 2: no other thread has the map, so there is no reference to it.
        Some((key, unsafe { Shared::of(value) }))
    }
}

impl<V, T, S, L> IntoIterator for BoxMap<V, T, S, L>
where
    V: Send + Sync + 'static,
    T: Table<Value = NonNull<V>>,
    S: BuildHasher,
{
    type Item = (T::Key, V);
    type IntoIter = BoxIntoIter<V, T, S, L>;

    fn into_iter(self) -> BoxIntoIter<V, T, S, L> {
        // The values are the iterator's from now on: `BoxMap::drop` must not run.
        let this = ManuallyDrop::new(self);
        // SAFETY: moved out once, since `this` is neither used nor dropped after this.
        let map = unsafe { ptr::read(&this.map) };
        BoxIntoIter {
            pairs: map.into_iter(),
            _values: PhantomData,
        }
    }
}

/// Returns every entry once, whatever its hash is now.
impl<V, T: Table<Value = NonNull<V>>, S, L> Iterator for BoxIntoIter<V, T, S, L> {
    type Item = (T::Key, V);

    fn next(&mut self) -> Option<Self::Item> {
        let (key, value) = self.next_shared()?;
        // SAFETY: 1: no other thread has the map.
        Some((key, unsafe { value.into_inner() }))
    }
}

impl<V, T: Table<Value = NonNull<V>>, S, L> FusedIterator for BoxIntoIter<V, T, S, L> {}

impl<V, T: Table<Value = NonNull<V>>, S, L> Drop for BoxIntoIter<V, T, S, L> {
    /// As the drop of a [`BoxMap`], for the values that were not returned.
    fn drop(&mut self) {
        let mut panics = Panics::default();
        while let Some((_, value)) = self.next_shared() {
            panics.catch(|| drop(value));
        }
        panics.resume();
    }
}

impl<V, T: Table<Value = NonNull<V>>, S, L> fmt::Debug for BoxIntoIter<V, T, S, L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("BoxIntoIter(..)")
    }
}

#[cfg(feature = "rayon")]
mod parallel {
    //! Parallel iteration: the handle's section keeps the tables and values for all threads.

    use rayon::iter::ParallelIterator;
    use rayon::iter::plumbing::{Folder, UnindexedConsumer, UnindexedProducer, bridge_unindexed};

    use super::*;
    use crate::copy_map::iter::GRAIN;

    /// Parallel iterator over the entries of a map; from [`BoxMapRef::par_iter`].
    pub struct BoxParIter<'h, V, T: Table<Value = NonNull<V>>, S>(BoxIter<'h, V, T, S>);

    // SAFETY: it returns copies of keys and shared references to values. A thread needs no section
    // to read the table: that of the handle, which is borrowed, keeps it.
    unsafe impl<V, T, S> Send for BoxParIter<'_, V, T, S>
    where
        V: Send + Sync,
        T: Table<Value = NonNull<V>, Key: Send>,
        S: Sync,
    {
    }

    impl<V, T, S, G, L> BoxMapRef<'_, V, T, S, G, L>
    where
        V: Send + Sync + 'static,
        T: Table<Value = NonNull<V>>,
        S: BuildHasher,
        G: Section,
    {
        /// A parallel iterator over the entries that [`iter`](Self::iter) returns.
        ///
        /// ```
        /// use corewise_maps::clht::Boxed;
        /// use rayon::iter::ParallelIterator;
        ///
        /// let names: Boxed<u64, String> = (0..1_000).map(|n| (n, n.to_string())).collect();
        /// let bytes: usize = names.pin().par_iter().map(|(_, name)| name.len()).sum();
        /// assert_eq!(bytes, 10 + 2 * 90 + 3 * 900);
        /// ```
        pub fn par_iter(&self) -> BoxParIter<'_, V, T, S> {
            BoxParIter(self.iter())
        }
    }

    impl<'h, V, T, S> ParallelIterator for BoxParIter<'h, V, T, S>
    where
        V: Send + Sync,
        T: Table<Value = NonNull<V>, Key: Send>,
        S: BuildHasher + Sync,
    {
        type Item = (T::Key, &'h V);

        fn drive_unindexed<C: UnindexedConsumer<Self::Item>>(self, consumer: C) -> C::Result {
            bridge_unindexed(self, consumer)
        }
    }

    impl<'h, V, T, S> UnindexedProducer for BoxParIter<'h, V, T, S>
    where
        V: Send + Sync,
        T: Table<Value = NonNull<V>, Key: Send>,
        S: BuildHasher + Sync,
    {
        type Item = (T::Key, &'h V);

        fn split(mut self) -> (Self, Option<Self>) {
            let pairs = self.0.pairs.split(2 * GRAIN);
            // SAFETY: 1: the rest of this iterator's pairs.
            let second = pairs.map(|pairs| Self(unsafe { BoxIter::of(pairs) }));
            (self, second)
        }

        fn fold_with<F: Folder<Self::Item>>(self, folder: F) -> F {
            folder.consume_iter(self.0)
        }
    }
}

#[cfg(feature = "rayon")]
pub use parallel::BoxParIter;
