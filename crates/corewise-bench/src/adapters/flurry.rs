//! flurry: a port of Java's ConcurrentHashMap.

use std::borrow::Borrow;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;

use flurry::HashMap;

use crate::adapters::{library_map, rust, versions};
use crate::dyn_table::Entry;
use crate::hash::Common;
use crate::table::{Bytes, Handle, Kind, Setup, Table, TableInfo, U64};

library_map! {
    /// A flurry map.
    Flurry: HashMap, RandomState;
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
    let mut card = rust(
        "flurry",
        versions::FLURRY,
        "Java's ConcurrentHashMap: chains, a lock per bucket for writes",
    );
    card.reclamation = "hyaline (seize 0.3), in batches of its default size".into();
    card.guarantees = "lock-free reads; all threads help a resize".into();
    card.settings += "; never shrinks, so it takes no part in the section resize";
    card.adapter =
        "one guard per operation, as pin() takes; an insert owns its key before it looks".into();
    Flurry::entry(card)
}
