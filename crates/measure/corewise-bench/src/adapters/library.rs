//! Maps of other crates: the adapters differ in a line for each operation.

use std::hash::BuildHasher;

use papaya::Guard;

use crate::adapters::hashbrown::{GROUP, capacity_of};
use crate::adapters::{listed, with_makers};
use crate::entry::Entry;
use crate::hash::Common;
use crate::table::{Bytes, Kind, MapHandle, MeasuredMap, Resize, Setup, U64};

/// Declares the adapter of a map, all of whose operations need `&map` only.
///
/// `K` is the kind of keys. A line of an operation names its arguments.
macro_rules! library_map {
    (
        $(#[$about:meta])*
        $name:ident: $($map:ident)::+;
        get($get_map:ident, $get_key:ident) $get:expr;
        insert($insert_map:ident, $insert_key:ident, $value:ident) $insert:expr;
        remove($remove_map:ident, $remove_key:ident) $remove:expr;
        $(settle($settle_map:ident) $settle:expr;)?
    ) => {
        $(#[$about])*
        pub(crate) struct $name<K: Kind> {
            map: $($map)::+<K::Key, K::Value, Common>,
        }

        impl<K: Kind> MeasuredMap<K> for $name<K> {
            fn build(setup: &Setup) -> Self {
                Self {
                    map: $($map)::+::with_capacity_and_hasher(setup.capacity, Common),
                }
            }
            shared_by_threads!();
            fn size(&self) -> Option<usize> {
                Some(self.map.len())
            }
            $(fn settle(&self) {
                let $settle_map = &self.map;
                $settle;
            })?
        }

        impl<K: Kind> MapHandle<K> for &$name<K> {
            #[inline]
            fn get(&mut self, $get_key: &K::Query) -> Option<u64> {
                let $get_map = &self.map;
                $get
            }
            #[inline]
            fn insert(&mut self, $insert_key: &K::Query, $value: K::Value) -> bool {
                let $insert_map = &self.map;
                $insert
            }
            #[inline]
            fn remove(&mut self, $remove_key: &K::Query) -> Option<u64> {
                let $remove_map = &self.map;
                $remove
            }
        }
    };
}

library_map! {
    /// papaya: lock-free open addressing with entries behind pointers.
    Papaya: papaya::HashMap;
    get(map, key) map.get(key, &map.guard()).map(K::stamp);
    insert(map, key, value) map.try_insert(K::own(key), value, &map.guard()).is_ok();
    remove(map, key) map.remove(key, &map.guard()).map(K::stamp);
    settle(map) map.guard().flush();
}

library_map! {
    /// dashmap: shards of hashbrown's raw table behind spinning readers-writer locks.
    Dash: dashmap::DashMap;
    get(map, key) map.get(key).map(|entry| K::stamp(entry.value()));
    insert(map, key, value) match map.entry(K::own(key)) {
        dashmap::Entry::Occupied(_) => false,
        dashmap::Entry::Vacant(entry) => {
            entry.insert(value);
            true
        }
    };
    remove(map, key) map.remove(key).map(|(_, value)| K::stamp(&value));
}

impl<K: Kind> Resize<K> for Dash<K> {
    /// Resizes the raw tables of the shards: `shrink_to_fit` shrinks as far as possible, not to a
    /// size.
    fn resize_to(&self, buckets: usize) {
        let shards = self.map.shards();
        let groups = buckets / shards.len();
        let capacity = capacity_of(groups);
        let hash = |key: &K::Key| Common.hash_one(key);
        for shard in shards {
            let mut table = shard.write();
            // Compares buckets, not capacity: tombstones lower the capacity.
            if groups * GROUP > table.buckets() {
                let more = capacity.saturating_sub(table.len());
                table.reserve(more, |(key, _)| hash(key));
            } else {
                table.shrink_to(capacity, |(key, _)| hash(key));
            }
        }
    }
    fn buckets(&self) -> usize {
        let slots = self.map.shards().iter().map(|shard| shard.read().buckets());
        slots.sum::<usize>() / GROUP
    }
}

// Neither map of scc takes part in the section `resize`. `reserve` raises the minimum capacity, and
// dropping its guard lowers it again. But either only starts a resize if a sample finds the table
// more than 13/16 full or less than 1/8: in between the size stays until a later insert finds the
// table full. So a table cannot be resized back and forth between half and double load.

// A key's query is compared through `Borrow`, where scc expects `Equivalent`; hashbrown does the
// same, with the same blanket implementation.

library_map! {
    /// scc's HashMap, with a lock per bucket.
    SccMap: scc::HashMap;
    get(map, key) map.read_sync(key, |_, value| K::stamp(value));
    insert(map, key, value) map.insert_sync(K::own(key), value).is_ok();
    remove(map, key) map.remove_sync(key).map(|(_, value)| K::stamp(&value));
}

library_map! {
    /// scc's HashIndex, with lock-free reads.
    SccIndex: scc::HashIndex;
    get(map, key) map.peek_with(key, |_, value| K::stamp(value));
    insert(map, key, value) map.insert_sync(K::own(key), value).is_ok();
    remove(map, key) {
        let entry = map.get_sync(key)?;
        let stamp = K::stamp(entry.get());
        entry.remove_entry();
        Some(stamp)
    };
}

library_map! {
    /// flurry: a port of Java's ConcurrentHashMap.
    Flurry: flurry::HashMap;
    get(map, key) map.get(key, &map.guard()).map(K::stamp);
    insert(map, key, value) map.try_insert(K::own(key), value, &map.guard()).is_ok();
    remove(map, key) map.remove(key, &map.guard()).map(K::stamp);
    settle(map) map.guard().flush();
}

pub(super) fn entries() -> [Entry; 5] {
    [
        with_makers!(listed("papaya"), Papaya),
        with_makers!(resize listed("dashmap"), Dash),
        with_makers!(listed("scc"), SccMap),
        with_makers!(listed("scc-index"), SccIndex),
        with_makers!(listed("flurry"), Flurry),
    ]
}

#[cfg(test)]
mod tests {
    use scc::{HashIndex, HashMap};

    use super::*;

    /// If this fails, the library has changed, and the section `resize` could have two more tables.
    #[test]
    fn a_table_that_is_neither_full_nor_empty_is_not_resized_on_request() {
        // scc makes twice as many slots as requested.
        let map = HashMap::<u64, u64, Common>::with_capacity_and_hasher(1 << 17, Common);
        let index = HashIndex::<u64, u64, Common>::with_capacity_and_hasher(1 << 17, Common);
        for key in 0..1 << 16 {
            assert!(map.insert_sync(key, key).is_ok() && index.insert_sync(key, key).is_ok());
        }
        assert_eq!((map.capacity(), index.capacity()), (1 << 18, 1 << 18));
        let (map_room, index_room) = (map.reserve(1 << 18), index.reserve(1 << 18));
        assert!(map_room.is_some() && index_room.is_some());
        assert_eq!((map.capacity(), index.capacity()), (1 << 18, 1 << 18));
    }
}
