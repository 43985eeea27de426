//! papaya: lock-free open addressing with entries behind pointers.

use std::borrow::Borrow;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;

use papaya::{Guard, HashMap};

use crate::adapters::{library_map, listed, with_makers};
use crate::dyn_table::Entry;
use crate::hash::Common;
use crate::table::{Bytes, Handle, Kind, Setup, Table, U64};

library_map! {
    /// A papaya map.
    Papaya: HashMap, RandomState;
    get(map, key) map.get(key, &map.guard()).map(K::stamp);
    insert(map, key, value) map.try_insert(K::own(key), value, &map.guard()).is_ok();
    remove(map, key) map.remove(key, &map.guard()).map(K::stamp);
    visit(map, visit) {
        let guard = map.guard();
        let entries = map.iter(&guard);
        entries.for_each(|(key, value)| visit(key.borrow(), K::stamp(value)));
    };
    settle(map) map.guard().flush();
}

pub(super) fn entry() -> Entry {
    Papaya::entry("papaya")
}
