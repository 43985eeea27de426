//! A table that is slower by a known share, and a control that only reads the clock as often. They
//! calibrate the verdict: it must detect the known difference.

use std::sync::RwLock;

use crate::adapters::global::{Global, Uncounted};
use crate::adapters::hashbrown::Map;
use crate::adapters::listed;
use crate::clock;
use crate::entry::Entry;
use crate::table::{MapHandle, MeasuredMap, Setup, U64};

/// Operations between two waits.
const OPERATIONS: u32 = 64;
/// A wait is 1/19 of the time since the last one: 1/19 more time is 5 % less throughput.
const PART: u64 = 19;

type Plain = Global<Uncounted<RwLock<Map<U64>>>>;

/// `rwlock`, but every [`OPERATIONS`] operations the thread reads the clock and, if `SLOW`, waits.
pub(crate) struct Slowed<const SLOW: bool>(Plain);

pub(crate) struct SlowedHandle<'t, const SLOW: bool> {
    inner: <Plain as MeasuredMap<U64>>::Handle<'t>,
    left: u32,
    since: u64,
}

impl<const SLOW: bool> MeasuredMap<U64> for Slowed<SLOW> {
    type Handle<'t> = SlowedHandle<'t, SLOW>;

    fn build(setup: &Setup) -> Self {
        Self(<Plain as MeasuredMap<U64>>::build(setup))
    }
    fn handle(&self) -> SlowedHandle<'_, SLOW> {
        SlowedHandle {
            inner: MeasuredMap::<U64>::handle(&self.0),
            left: OPERATIONS,
            since: clock::coarse(),
        }
    }
    fn size(&self) -> Option<usize> {
        MeasuredMap::<U64>::size(&self.0)
    }
}

impl<const SLOW: bool> SlowedHandle<'_, SLOW> {
    #[inline]
    fn wait(&mut self) {
        self.left -= 1;
        if self.left == 0 {
            self.left = OPERATIONS;
            let now = clock::coarse();
            let pause = now.saturating_sub(self.since) / PART;
            let end = if SLOW { now + pause } else { now };
            while clock::coarse() < end {
                std::hint::spin_loop();
            }
            self.since = end;
        }
    }
}

impl<const SLOW: bool> MapHandle<U64> for SlowedHandle<'_, SLOW> {
    #[inline]
    fn get(&mut self, key: &u64) -> Option<u64> {
        self.wait();
        MapHandle::<U64>::get(&mut self.inner, key)
    }
    #[inline]
    fn insert(&mut self, key: &u64, value: u64) -> bool {
        self.wait();
        MapHandle::<U64>::insert(&mut self.inner, key, value)
    }
    #[inline]
    fn remove(&mut self, key: &u64) -> Option<u64> {
        self.wait();
        MapHandle::<U64>::remove(&mut self.inner, key)
    }
}

pub(super) fn entries() -> [Entry; 2] {
    [
        listed("slowed").map::<U64, Slowed<true>>(),
        listed("unslowed").map::<U64, Slowed<false>>(),
    ]
}
