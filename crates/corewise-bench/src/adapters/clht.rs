//! CLHT of `corewise-maps`, lock-based: buckets of a cache line, entries in place. Words only.

use std::hash::BuildHasher;

use corewise_maps::clht::{LockBased, LockBasedTable};
use corewise_maps::copy_map::CopyMapRef;
use corewise_maps::relativistic::DefaultHasher;

use crate::adapters::{rust, versions};
use crate::hash::Common;
use crate::subject::Entry;
use crate::table::{Handle, Resize, Setup, Table, U64};

/// The map.
pub(crate) struct Clht<S> {
    map: LockBased<u64, u64, S>,
}

impl<S: BuildHasher + Default + Send + Sync + 'static> Table<U64> for Clht<S> {
    type Handle<'t> = ClhtHandle<'t, S>;

    fn build(setup: &Setup) -> Self {
        let builder = LockBased::<u64, u64>::builder().capacity(setup.capacity);
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

impl<S: BuildHasher + Default + Send + Sync + 'static> Resize<U64> for Clht<S> {
    fn resize_to(&self, buckets: usize) {
        self.map.set_automatic_resize(false);
        self.map.resize_to(buckets).expect("there is memory");
    }
    fn buckets(&self) -> usize {
        self.map.buckets()
    }
}

pub(crate) struct ClhtHandle<'t, S> {
    map: &'t LockBased<u64, u64, S>,
}

impl<S> ClhtHandle<'_, S> {
    #[inline]
    fn pin(&self) -> CopyMapRef<'_, LockBasedTable<u64, u64>, S> {
        self.map.pin()
    }
}

impl<S: BuildHasher> Handle<U64> for ClhtHandle<'_, S> {
    #[inline]
    fn get(&mut self, key: &u64) -> Option<u64> {
        self.pin().get(key)
    }
    #[inline]
    fn get_many<'q>(
        &mut self,
        keys: impl ExactSizeIterator<Item = &'q u64>,
        out: &mut [Option<u64>],
    ) {
        self.pin().get_many(keys, out);
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

pub(super) fn entry() -> Entry {
    let mut card = rust(
        "clht-lb",
        versions::OURS,
        "lock-based cache-line hash table of corewise-maps (ASPLOS 2015)",
    );
    card.reclamation = "entries in place; bucket arrays by RCU with membarrier".into();
    card.guarantees =
        "lookups write nothing and wait for nobody, also while it is resized; updates \
                       lock a bucket, those without effect do not"
            .into();
    card.adapter = "one handle per operation or batch, as pin() makes".into();
    card.batch = "get_many: asks for the buckets of up to 64 keys, then looks each up".into();
    Entry::new(card)
        .u64::<Clht<Common>>()
        .u64_resize::<Clht<Common>>()
        .u64_native::<Clht<DefaultHasher>>()
}
