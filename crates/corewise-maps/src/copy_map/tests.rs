//! Large tables: how their memory is put in place, and given back.

use std::ptr::NonNull;

use corewise_atomic::alloc::HUGE_PAGE;
use corewise_atomic::sync::Arc;
use corewise_rcu::Domain;

use super::space::Space;
use super::{CopyMap, Stage, Step, Table};
use crate::clht::{LockBasedTable, LockFreeTable};
use crate::cuckoo::CuckooTable;
use crate::every::for_every;
use crate::hopscotch::HopscotchTable;

for_every! {
    clht_lock_based: LockBasedTable<u64, u64>,
    clht_lock_free: LockFreeTable<u64, u64>,
    hopscotch: HopscotchTable<u64, u64>,
    cuckoo: CuckooTable<u64, u64>,
    => {
        a_replaced_table_is_freed_in_shares
        pages_are_put_in_place_one_by_one
    }
}

const LARGE: usize = 1 << 18;
const SMALL: usize = 1 << 14;

fn array_bytes<T: Table>(table: &T) -> Vec<usize> {
    let bytes = |array: &std::ops::Range<*const u8>| array.end.addr() - array.start.addr();
    table.arrays().iter().map(bytes).collect()
}

/// A table that nobody has any more costs an update no more than one huge page, and in the end all of it is back.
fn a_replaced_table_is_freed_in_shares<T: Table<Key = u64, Value = u64>>() {
    let builder = CopyMap::<T>::builder()
        .buckets(LARGE)
        .automatic_resize(false);
    let map = builder.domain(Domain::new()).build();
    (0..10_000).for_each(|key| assert_eq!(map.pin().insert(key, key), Ok(None)));
    let (large, shares) = {
        let section = map.domain().pin();
        let arrays = array_bytes(map.stage(&section).table());
        (map.bytes(), arrays.iter().sum::<usize>() / HUGE_PAGE - 1)
    };
    assert!(shares >= 2, "{shares}");
    let handle = map.pin();
    map.resize_to(SMALL).unwrap();
    let both = map.bytes();
    assert!(both > large);
    drop(handle);
    map.domain().synchronize();
    let mut updates = 0;
    while map.bytes() + large > both {
        assert_eq!(map.pin().insert(7, 7), Ok(Some(7)));
        updates += 1;
        assert!(updates < 1_000, "{} bytes of {both} are left", map.bytes());
    }
    assert!(updates >= shares, "{updates} for {shares}");
    assert_eq!(map.bytes(), both - large);
    assert!((0..10_000).all(|key| map.pin().get(&key) == Some(key)));
}

/// Every huge page of both arrays is put in place by a step of its own, which moves nothing.
fn pages_are_put_in_place_one_by_one<T: Table<Key = u64, Value = u64>>() {
    let space = Arc::new(Space::new(usize::MAX));
    let stage = Stage::new(T::try_new(LARGE / 2, &space).unwrap());
    let next = Box::into_raw(Stage::new(T::try_new(LARGE, &space).unwrap()));
    // SAFETY: freed below, and the table has no successor yet.
    unsafe { stage.link(NonNull::new_unchecked(next)) };
    let pages: usize = {
        let arrays = array_bytes(stage.next().unwrap().table());
        let large = arrays.iter().filter(|bytes| **bytes >= HUGE_PAGE);
        large.map(|bytes| bytes / HUGE_PAGE).sum()
    };
    let share = 64;
    let mut steps = 0;
    while stage.step(share, &|key: &u64| *key) != Ok(Step::Last) {
        steps += 1;
    }
    let prepared = steps + 1 - LARGE / 2 / share;
    assert!(
        prepared >= pages && prepared <= 3 * pages,
        "{prepared} for {pages}"
    );
    // SAFETY: from a box, and nobody uses it any more.
    drop(unsafe { Box::from_raw(next) });
}
