//! scc: HashMap with a lock per bucket, HashIndex with lock-free reads.

use std::borrow::Borrow;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;

use scc::{Guard, HashIndex, HashMap};

use crate::adapters::{library_map, listed, with_makers};
use crate::dyn_table::Entry;
use crate::hash::Common;
use crate::table::{Bytes, Handle, Kind, Setup, Table, U64};

// Neither map takes part in the section `resize`. `reserve` raises the minimum capacity, and
// dropping its guard lowers it again. But either only starts a resize if a sample finds the table
// more than 13/16 full or less than 1/8: in between the size stays until a later insert finds the
// table full. So a table cannot be resized back and forth between half and double load.

// A key's query is compared through `Borrow`, where scc expects `Equivalent`; hashbrown does the
// same, with the same blanket implementation.

library_map! {
    /// An scc HashMap.
    SccMap: HashMap, RandomState;
    get(map, key) map.read_sync(key, |_, value| K::stamp(value));
    insert(map, key, value) map.insert_sync(K::own(key), value).is_ok();
    remove(map, key) map.remove_sync(key).map(|(_, value)| K::stamp(&value));
    visit(map, visit) {
        map.iter_sync(|key, value| {
            visit(key.borrow(), K::stamp(value));
            true
        });
    };
    settle(_map) {};
}

library_map! {
    /// An scc HashIndex.
    SccIndex: HashIndex, RandomState;
    get(map, key) map.peek_with(key, |_, value| K::stamp(value));
    insert(map, key, value) map.insert_sync(K::own(key), value).is_ok();
    remove(map, key) {
        let entry = map.get_sync(key)?;
        let stamp = K::stamp(entry.get());
        entry.remove_entry();
        Some(stamp)
    };
    visit(map, visit) {
        let guard = Guard::new();
        let entries = map.iter(&guard);
        entries.for_each(|(key, value)| visit(key.borrow(), K::stamp(value)));
    };
    settle(_map) {};
}

pub(super) fn map() -> Entry {
    SccMap::entry("scc")
}

pub(super) fn index() -> Entry {
    SccIndex::entry("scc-index")
}

#[cfg(test)]
mod tests {
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
