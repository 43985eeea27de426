//! The null table: its rate is the cost of the harness.

use std::sync::Arc;

use crate::adapters::listed;
use crate::dyn_table::DynTable;
use crate::entry::{Entry, make};
use crate::stamp::stamp;
use crate::subject::{
    Answers, CacheHandle, CacheSubject, FilterSubject, LockSubject, MeasuredFilter, MeasuredLock,
    QueueHandle, QueueSubject, SortedSetHandle, SortedSetSubject, WithHandles,
};
use crate::table::{Bytes, Kind, MapHandle, MeasuredMap, Setup, U64};
use crate::work::Part;

pub(crate) struct Null;

pub(crate) struct NullHandle;

pub(super) fn entry() -> Entry {
    listed("null")
        .map::<U64, Null>()
        .subject::<FilterSubject<Null>>()
        .subject::<LockSubject<Null>>()
        .subject::<QueueSubject<Null>>()
        .subject::<SortedSetSubject<Null>>()
        .subject::<CacheSubject<Null>>()
        .null()
}

/// True for half of the keys, without a branch.
#[inline(always)]
fn present(key: u64) -> bool {
    key >> 40 & 1 == 0
}

/// Returns the null table for a kind of keys.
pub(crate) fn of_kind(kind: &str) -> Arc<dyn DynTable> {
    match kind {
        "bytes" => make::<Bytes, Null>(&Setup::default()),
        _ => make::<U64, Null>(&Setup::default()),
    }
}

impl<K: Kind> MeasuredMap<K> for Null {
    type Handle<'t> = NullHandle;

    fn build(_: &Setup) -> Self {
        Self
    }
    fn handle(&self) -> NullHandle {
        NullHandle
    }
}

impl<K: Kind> MapHandle<K> for NullHandle {
    #[inline(always)]
    fn get(&mut self, key: &K::Query) -> Option<u64> {
        let key = K::number(key);
        present(key).then_some(stamp(key, 0))
    }
    #[inline(always)]
    fn insert(&mut self, key: &K::Query, _: K::Value) -> bool {
        present(K::number(key))
    }
    #[inline(always)]
    fn remove(&mut self, key: &K::Query) -> Option<u64> {
        MapHandle::<K>::get(self, key)
    }
}

impl MeasuredFilter for Null {
    fn build(_: &Setup) -> Self {
        Self
    }
    #[inline(always)]
    fn insert(&self, _: u64) -> bool {
        true
    }
    #[inline(always)]
    fn remove(&self, _: u64) -> bool {
        true
    }
    #[inline(always)]
    fn contains(&self, item: u64) -> bool {
        present(item)
    }
    fn false_positive_rate(&self) -> f64 {
        0.5
    }
    fn slots(&self) -> usize {
        0
    }
    fn bytes(&self) -> usize {
        0
    }
}

impl MeasuredLock for Null {
    fn build() -> Self {
        Self
    }
    #[inline(always)]
    fn exclusive(&self, mut section: impl FnMut()) {
        section();
    }
}

impl WithHandles for Null {
    type Handle<'s> = NullHandle;
    fn build(_: &Setup) -> Self {
        Self
    }
    fn handle(&self, _: Part) -> NullHandle {
        NullHandle
    }
}

impl QueueHandle for NullHandle {
    #[inline(always)]
    fn insert(&mut self, _: u64) -> bool {
        true
    }
    #[inline(always)]
    fn delete_min(&mut self) -> Option<u64> {
        Some(0)
    }
    #[inline(always)]
    fn find_min(&mut self) -> Option<u64> {
        Some(0)
    }
}

impl SortedSetHandle for NullHandle {
    #[inline(always)]
    fn rank(&mut self, member: u32) -> Option<u64> {
        Some(member.into())
    }
    #[inline(always)]
    fn increment(&mut self, _: u32, delta: i64) -> Option<i64> {
        Some(delta)
    }
}

impl CacheHandle for NullHandle {
    #[inline(always)]
    fn submit(&mut self, key: u64, value: Option<u64>, answers: &mut Answers) {
        match value {
            Some(_) => answers.stored(true),
            None => answers.looked_up(key, present(key).then_some(stamp(key, 0))),
        }
    }
}
