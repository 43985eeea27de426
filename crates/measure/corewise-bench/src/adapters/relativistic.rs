//! The relativistic table of `corewise-maps`: RCU, chained, resized while readers read.

use std::time::Duration;

use corewise_maps::RelativisticMap;
use corewise_maps::relativistic::MapRef;
use corewise_rcu::{Pressure, Qsbr, QsbrGuard};

use crate::adapters::{listed, stamps_of, with_makers};
use crate::entry::Entry;
use crate::hash::Common;
use crate::table::{Bytes, Kind, MapHandle, MeasuredMap, Resize, Setup, U64};

pub(crate) struct Relativistic<K: Kind> {
    map: RelativisticMap<K::Key, K::Value, Common>,
}

impl<K: Kind> MeasuredMap<K> for Relativistic<K> {
    fn build(setup: &Setup) -> Self {
        Self {
            map: RelativisticMap::with_capacity_and_hasher(setup.capacity, Common),
        }
    }
    shared_by_threads!();
    fn size(&self) -> Option<usize> {
        Some(self.map.len())
    }
    fn settle(&self) {
        self.map.settle().expect("no guard is held");
    }
}

impl<K: Kind> Resize<K> for Relativistic<K> {
    fn resize_to(&self, buckets: usize) {
        self.map.set_automatic_resize(false);
        self.map
            .resize_to(buckets)
            .expect("there is memory, and no guard is held");
    }
    fn buckets(&self) -> usize {
        self.map.resize_state().buckets
    }
}

pins_each_time! {
    [K: Kind] Relativistic<K>, |map, key, value| map.try_insert(key, value).is_ok()
}

/// The same map, read by threads that announce quiescent states: the readers of \[ATC11\] ran in a
/// kernel, where a section costs nothing either.
pub(crate) struct RelativisticQsbr<K: Kind>(Relativistic<K>);

/// A thread that announces quiescent states. It is online as long as it has the handle.
pub(crate) struct OnlineHandle<'t, K: Kind> {
    map: &'t RelativisticMap<K::Key, K::Value, Common>,
    qsbr: Qsbr<'t>,
    operations: u32,
}

/// Operations of a handle for each quiescent state, as in the adapter of liburcu's QSBR.
const OPERATIONS_EACH: u32 = 64;

/// The longest wait for readers, of whom one may be waiting for this thread.
const PATIENCE: Duration = Duration::from_millis(10);

impl<K: Kind> OnlineHandle<'_, K> {
    /// Runs an operation in a section, and announces a quiescent state if it is time.
    #[inline(always)]
    fn run<R>(
        &mut self,
        operate: impl FnOnce(MapRef<'_, K::Key, K::Value, Common, &QsbrGuard<'_>>) -> R,
    ) -> R {
        let answer = operate(self.map.within(&self.qsbr.section()));
        self.operations = self.operations.wrapping_add(1);
        if self.operations.is_multiple_of(OPERATIONS_EACH) {
            self.announce();
        }
        answer
    }

    /// Above the soft limit of the backlog, also waits for the other readers: their quiescent
    /// states end the grace period, and a later update of the map reclaims.
    fn announce(&mut self) {
        // False only while the thread has another section, whose end is then the quiescent state.
        let _ = self.qsbr.quiescent();
        if self.map.pressure() != Pressure::Fine {
            let domain = self.map.domain();
            let _ = (self.qsbr).offline(|| domain.synchronize_timeout(PATIENCE));
        }
    }
}

impl<K: Kind> MeasuredMap<K> for RelativisticQsbr<K> {
    type Handle<'t> = OnlineHandle<'t, K>;

    fn build(setup: &Setup) -> Self {
        Self(Relativistic::build(setup))
    }
    fn handle(&self) -> OnlineHandle<'_, K> {
        OnlineHandle {
            map: &self.0.map,
            qsbr: self.0.map.domain().qsbr(),
            operations: 0,
        }
    }
    fn size(&self) -> Option<usize> {
        self.0.size()
    }
    fn settle(&self) {
        self.0.settle();
    }
}

impl<K: Kind> Resize<K> for RelativisticQsbr<K> {
    fn resize_to(&self, buckets: usize) {
        self.0.resize_to(buckets);
    }
    fn buckets(&self) -> usize {
        self.0.buckets()
    }
}

impl<K: Kind> MapHandle<K> for OnlineHandle<'_, K> {
    #[inline]
    fn get(&mut self, key: &K::Query) -> Option<u64> {
        self.run(|map| map.get(key).map(K::stamp))
    }
    #[inline]
    fn get_many<'q>(
        &mut self,
        keys: impl ExactSizeIterator<Item = &'q K::Query>,
        out: &mut [Option<u64>],
    ) where
        K::Query: 'q,
    {
        self.run(|map| stamps_of::<K>(out, |found| map.get_many(keys, found)));
    }
    #[inline]
    fn insert(&mut self, key: &K::Query, value: K::Value) -> bool {
        self.run(|map| map.try_insert(K::own(key), value).is_ok())
    }
    #[inline]
    fn remove(&mut self, key: &K::Query) -> Option<u64> {
        self.run(|map| map.remove(key).map(K::stamp))
    }
}

pub(super) fn entries() -> [Entry; 2] {
    [
        with_makers!(resize listed("relativistic"), Relativistic),
        with_makers!(resize listed("relativistic:qsbr"), RelativisticQsbr),
    ]
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    #[test]
    fn quiescent_states_and_nothing_else_end_grace_periods() {
        let table = RelativisticQsbr::<U64>::build(&Setup::default());
        let mut handle = MeasuredMap::<U64>::handle(&table);
        let domain = table.0.map.domain();
        let cookie = domain.start_poll();
        for _ in 1..OPERATIONS_EACH {
            assert!(!domain.poll(cookie), "the thread is online");
            assert_eq!(MapHandle::<U64>::get(&mut handle, &1), None);
        }
        // Threads of other tests have sections of the same domain.
        let end = Instant::now() + Duration::from_secs(60);
        while !domain.poll(cookie) {
            assert!(Instant::now() < end, "no quiescent state was announced");
            assert_eq!(MapHandle::<U64>::get(&mut handle, &1), None);
        }
    }
}
