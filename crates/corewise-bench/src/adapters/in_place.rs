//! Maps of `corewise-maps` with entries in place: whatever their table, one façade and so one adapter.

use std::hash::BuildHasher;

use corewise_maps::copy_map::{self, CopyMap, CopyMapRef};

use crate::table::{Handle, Resize, Setup, Table, U64};

/// A map whose table is a `T`.
pub(crate) struct InPlace<T, S> {
    map: CopyMap<T, S>,
}

impl<T, S> Table<U64> for InPlace<T, S>
where
    T: copy_map::Table<Key = u64, Value = u64> + Send + Sync + 'static,
    S: BuildHasher + Default + Send + Sync + 'static,
{
    type Handle<'t> = InPlaceHandle<'t, T, S>;

    fn build(setup: &Setup) -> Self {
        let builder = CopyMap::<T>::builder().capacity(setup.capacity);
        Self {
            map: builder.hasher(S::default()).build(),
        }
    }
    fn handle(&self) -> Self::Handle<'_> {
        InPlaceHandle { map: &self.map }
    }
    fn size(&self) -> Option<usize> {
        Some(self.map.len())
    }
    fn settle(&self) {
        self.map.settle();
    }
}

impl<T, S> Resize<U64> for InPlace<T, S>
where
    T: copy_map::Table<Key = u64, Value = u64> + Send + Sync + 'static,
    S: BuildHasher + Default + Send + Sync + 'static,
{
    fn resize_to(&self, buckets: usize) {
        self.map.set_automatic_resize(false);
        self.map.resize_to(buckets).expect("there is memory");
    }
    fn buckets(&self) -> usize {
        self.map.buckets()
    }
}

pub(crate) struct InPlaceHandle<'t, T, S> {
    map: &'t CopyMap<T, S>,
}

impl<T: copy_map::Table, S> InPlaceHandle<'_, T, S> {
    #[inline]
    fn pin(&self) -> CopyMapRef<'_, T, S> {
        self.map.pin()
    }
}

impl<T, S> Handle<U64> for InPlaceHandle<'_, T, S>
where
    T: copy_map::Table<Key = u64, Value = u64>,
    S: BuildHasher,
{
    #[inline]
    fn get(&mut self, key: &u64) -> Option<u64> {
        self.pin().get(key)
    }
    #[inline]
    fn insert(&mut self, key: &u64, value: u64) -> bool {
        self.pin().try_insert(*key, value).is_ok()
    }
    #[inline]
    fn remove(&mut self, key: &u64) -> Option<u64> {
        self.pin().remove(key)
    }
}
