//! The null table for any kind of keys.

use std::sync::Arc;

use crate::dyn_table::{DynTable, make};
use crate::table::{Bytes, Handle, Kind, Setup, Table, U64};

/// Returns the null table for a kind of keys.
pub(crate) fn nothing(kind: &str) -> Arc<dyn DynTable> {
    let setup = Setup::default();
    match kind {
        "bytes" => make::<Bytes, Nothing>(&setup),
        _ => make::<U64, Nothing>(&setup),
    }
}

/// The null table for any kind of key: the empty loop.
struct Nothing;

impl<K: Kind> Table<K> for Nothing {
    type Handle<'t> = Self;

    fn build(_: &Setup) -> Self {
        Self
    }
    fn handle(&self) -> Self {
        Self
    }
    fn size(&self) -> Option<usize> {
        None
    }
}

impl<K: Kind> Handle<K> for Nothing {
    #[inline(always)]
    fn get(&mut self, key: &K::Query) -> Option<u64> {
        std::hint::black_box(key);
        None
    }
    #[inline(always)]
    fn insert(&mut self, key: &K::Query, value: K::Value) -> bool {
        std::hint::black_box((key, &value));
        true
    }
    #[inline(always)]
    fn remove(&mut self, key: &K::Query) -> Option<u64> {
        std::hint::black_box(key);
        None
    }
}
