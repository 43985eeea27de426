//! A table made slower by a known share: what the calibration plants, to see whether the verdict
//! finds it.

use std::sync::RwLock;

use crate::adapters::global::{Global, Map};
use crate::adapters::{rust, versions};
use crate::clock;
use crate::hash::Common;
use crate::subject::Entry;
use crate::table::{Handle, Setup, Table, U64};

/// Operations between two waits.
const OPERATIONS: u32 = 64;
/// A wait is this part of the time since the one before: 1/19 more time is 5 % less throughput.
const PART: u64 = 19;

type Plain = Global<RwLock<Map<U64, Common>>, Common>;

/// `rwlock`, but every [`OPERATIONS`] operations the thread waits.
pub(crate) struct Slowed(Plain);

pub(crate) struct SlowedHandle<'t> {
    inner: <Plain as Table<U64>>::Handle<'t>,
    left: u32,
    since: u64,
}

impl Table<U64> for Slowed {
    type Handle<'t> = SlowedHandle<'t>;

    fn build(setup: &Setup) -> Self {
        Self(<Plain as Table<U64>>::build(setup))
    }
    fn handle(&self) -> SlowedHandle<'_> {
        SlowedHandle {
            inner: Table::<U64>::handle(&self.0),
            left: OPERATIONS,
            since: clock::coarse(),
        }
    }
    fn size(&self) -> Option<usize> {
        Table::<U64>::size(&self.0)
    }
}

impl SlowedHandle<'_> {
    #[inline]
    fn wait(&mut self) {
        self.left -= 1;
        if self.left == 0 {
            self.left = OPERATIONS;
            let now = clock::coarse();
            let end = now + now.saturating_sub(self.since) / PART;
            while clock::coarse() < end {
                std::hint::spin_loop();
            }
            self.since = end;
        }
    }
}

impl Handle<U64> for SlowedHandle<'_> {
    #[inline]
    fn get(&mut self, key: &u64) -> Option<u64> {
        self.wait();
        Handle::<U64>::get(&mut self.inner, key)
    }
    #[inline]
    fn insert(&mut self, key: &u64, value: u64) -> bool {
        self.wait();
        Handle::<U64>::insert(&mut self.inner, key, value)
    }
    #[inline]
    fn remove(&mut self, key: &u64) -> Option<u64> {
        self.wait();
        Handle::<U64>::remove(&mut self.inner, key)
    }
}

pub(super) fn entry() -> Entry {
    let mut card = rust(
        "slowed",
        versions::HASHBROWN,
        "rwlock made 5 % slower, to calibrate the verdicts",
    );
    card.reclamation = "as rwlock".into();
    card.guarantees = "as rwlock".into();
    card.adapter = "waits for a nineteenth of its time, every 64 operations".into();
    Entry::new(card).u64::<Slowed>()
}
