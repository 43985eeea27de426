//! CLHT of `corewise-maps`, lock-based and lock-free: buckets of a cache line, entries in place. Words only.

use std::hash::BuildHasher;

use corewise_maps::clht::{LockBasedTable, LockFreeTable};
use corewise_maps::copy_map::{self, CopyMap, CopyMapRef};
use corewise_maps::relativistic::DefaultHasher;

use crate::adapters::{rust, versions};
use crate::hash::Common;
use crate::subject::Entry;
use crate::table::{Handle, Resize, Setup, Table, U64};

/// A form's table of numbers.
pub(crate) trait Form:
    copy_map::Table<Key = u64, Value = u64> + Send + Sync + 'static
{
}

impl Form for LockBasedTable<u64, u64> {}
impl Form for LockFreeTable<u64, u64> {}

/// The map.
pub(crate) struct Clht<T, S> {
    map: CopyMap<T, S>,
}

impl<T: Form, S: BuildHasher + Default + Send + Sync + 'static> Table<U64> for Clht<T, S> {
    type Handle<'t> = ClhtHandle<'t, T, S>;

    fn build(setup: &Setup) -> Self {
        let builder = CopyMap::<T>::builder().capacity(setup.capacity);
        Self {
            map: builder.hasher(S::default()).build(),
        }
    }
    fn handle(&self) -> Self::Handle<'_> {
        ClhtHandle { map: &self.map }
    }
    fn size(&self) -> Option<usize> {
        Some(self.map.len())
    }
    fn settle(&self) {
        self.map.settle();
    }
}

impl<T: Form, S: BuildHasher + Default + Send + Sync + 'static> Resize<U64> for Clht<T, S> {
    fn resize_to(&self, buckets: usize) {
        self.map.set_automatic_resize(false);
        self.map.resize_to(buckets).expect("there is memory");
    }
    fn buckets(&self) -> usize {
        self.map.buckets()
    }
}

pub(crate) struct ClhtHandle<'t, T, S> {
    map: &'t CopyMap<T, S>,
}

impl<T: Form, S> ClhtHandle<'_, T, S> {
    #[inline]
    fn pin(&self) -> CopyMapRef<'_, T, S> {
        self.map.pin()
    }
}

impl<T: Form, S: BuildHasher> Handle<U64> for ClhtHandle<'_, T, S> {
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

fn entry<T: Form>(name: &str, form: &str, updates: &str) -> Entry {
    let what = format!("{form} cache-line hash table of corewise-maps (ASPLOS 2015)");
    let mut card = rust(name, versions::OURS, &what);
    card.reclamation = "entries in place; bucket arrays by RCU with membarrier".into();
    card.guarantees =
        format!("lookups write nothing and wait for nobody, also while it is resized; {updates}");
    card.adapter = "one handle per operation, as pin() makes".into();
    Entry::new(card)
        .u64::<Clht<T, Common>>()
        .u64_resize::<Clht<T, Common>>()
        .u64_native::<Clht<T, DefaultHasher>>()
}

pub(super) fn entries() -> [Entry; 2] {
    [
        entry::<LockBasedTable<u64, u64>>(
            "clht-lb",
            "lock-based",
            "updates lock a bucket, those without effect do not",
        ),
        entry::<LockFreeTable<u64, u64>>(
            "clht-lf",
            "lock-free",
            "insertions and removals lock nothing, and wait only for a bucket that is being moved",
        ),
    ]
}
