//! Maps of `corewise-maps` with entries in place. All tables share one façade, hence one adapter.

use corewise_maps::clht::LockBasedTable;
use corewise_maps::copy_map::{self, CopyMap};
use corewise_maps::cuckoo::CuckooTable;
use corewise_maps_lab::clht_lock_free::LockFreeTable;
use corewise_maps_lab::hopscotch::HopscotchTable;

use crate::adapters::listed;
use crate::entry::Entry;
use crate::hash::Common;
use crate::table::{MapHandle, MeasuredMap, Resize, Setup, U64};

pub(crate) struct InPlace<T> {
    map: CopyMap<T, Common>,
}

impl<T> MeasuredMap<U64> for InPlace<T>
where
    T: copy_map::Table<Key = u64, Value = u64> + Send + Sync + 'static,
{
    fn build(setup: &Setup) -> Self {
        let builder = CopyMap::<T>::builder().capacity(setup.capacity);
        Self {
            map: builder.hasher(Common).build(),
        }
    }
    shared_by_threads!();
    fn size(&self) -> Option<usize> {
        Some(self.map.len())
    }
    fn settle(&self) {
        self.map.settle();
    }
}

impl<T> Resize<U64> for InPlace<T>
where
    T: copy_map::Table<Key = u64, Value = u64> + Send + Sync + 'static,
{
    fn resize_to(&self, buckets: usize) {
        self.map.set_automatic_resize(false);
        self.map.resize_to(buckets).expect("there is memory");
    }
    fn buckets(&self) -> usize {
        self.map.buckets()
    }
}

impl<T> MapHandle<U64> for &InPlace<T>
where
    T: copy_map::Table<Key = u64, Value = u64>,
{
    // Always inlined into the measured loop, as the compiler does with hashbrown's.
    #[inline(always)]
    fn get(&mut self, key: &u64) -> Option<u64> {
        self.map.pin().get(key)
    }
    #[inline]
    fn get_many<'q>(
        &mut self,
        keys: impl ExactSizeIterator<Item = &'q u64>,
        out: &mut [Option<u64>],
    ) {
        self.map.pin().get_many(keys, out);
    }
    #[inline]
    fn insert(&mut self, key: &u64, value: u64) -> bool {
        self.map.pin().try_insert(*key, value).is_ok()
    }
    #[inline]
    fn remove(&mut self, key: &u64) -> Option<u64> {
        self.map.pin().remove(key)
    }
}

fn entry<T>(name: &str) -> Entry
where
    T: copy_map::Table<Key = u64, Value = u64> + Send + Sync + 'static,
{
    listed(name)
        .map::<U64, InPlace<T>>()
        .resized::<U64, InPlace<T>>()
}

pub(super) fn entries() -> [Entry; 4] {
    [
        entry::<LockBasedTable<u64, u64>>("clht-lb"),
        entry::<LockFreeTable<u64, u64>>("clht-lf"),
        entry::<HopscotchTable<u64, u64>>("hopscotch"),
        entry::<CuckooTable<u64, u64>>("cuckoo"),
    ]
}
