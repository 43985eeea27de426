//! The null table: its rate is the cost of the harness.

use crate::adapters::rust;
use crate::dyn_table::Entry;
use crate::stamp::stamp;
use crate::table::{Handle, Setup, Table, U64};

pub(crate) struct Null;

pub(crate) struct NullHandle;

pub(super) fn entry() -> Entry {
    let mut card = rust("null", "-", "no table: the cost of the harness");
    card.hasher = "none".into();
    card.guarantees = "none: half of all keys are said to be there, whatever happened".into();
    card.settings = "none".into();
    Entry::new(card).u64::<Null>().u64_native::<Null>().null()
}

/// True for half of the keys, without a branch.
#[inline(always)]
fn present(key: u64) -> bool {
    key >> 40 & 1 == 0
}

impl Table<U64> for Null {
    type Handle<'t> = NullHandle;

    fn build(_: &Setup) -> Self {
        Self
    }
    fn handle(&self) -> NullHandle {
        NullHandle
    }
    fn size(&self) -> Option<usize> {
        None
    }
}

impl Handle<U64> for NullHandle {
    #[inline(always)]
    fn get(&mut self, key: &u64) -> Option<u64> {
        present(*key).then_some(stamp(*key, 0))
    }
    #[inline(always)]
    fn insert(&mut self, key: &u64, _: u64) -> bool {
        present(*key)
    }
    #[inline(always)]
    fn remove(&mut self, key: &u64) -> Option<u64> {
        present(*key).then_some(stamp(*key, 0))
    }
}
