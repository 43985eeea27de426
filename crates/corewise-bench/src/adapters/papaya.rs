//! papaya: lock-free open addressing with entries behind pointers.

use std::borrow::Borrow;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;

use papaya::{Guard, HashMap};

use crate::adapters::{library_map, rust, versions};
use crate::dyn_table::Entry;
use crate::hash::Common;
use crate::table::{Bytes, Handle, Kind, Setup, Table, TableInfo, U64};

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
    let mut card = rust(
        "papaya",
        versions::PAPAYA,
        "lock-free, entries behind pointers",
    );
    card.reclamation = "hyaline (seize), in batches of its default size".into();
    card.guarantees = "lock-free reads and writes; incremental resize (its default)".into();
    card.settings += "; reserve can only grow it, so it takes no part in the section resize";
    card.adapter =
        "one local guard per operation, as pin() takes; an insert owns its key before it looks"
            .into();
    Papaya::entry(card)
}
