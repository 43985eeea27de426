//! Large tables with entries in place: how their memory is faulted in and freed.
#![cfg(feature = "raw")]

use std::ptr::NonNull;

use corewise_atomic::alloc::HUGE_PAGE;
use corewise_atomic::sync::Arc;
use corewise_maps::clht::LockBasedTable;
use corewise_maps::copy_map::{CopyMap, Table};
use corewise_maps::cuckoo::CuckooTable;
use corewise_maps::parts::{MemoryBudget, ResizeStep, TableVersion};
use corewise_maps_lab::clht_lock_free::LockFreeTable;
use corewise_maps_lab::hopscotch::HopscotchTable;
use corewise_rcu::Domain;

use corewise_testkit::for_every;

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

/// A replaced table costs an update no more than one huge page, and finally all of it is freed.
fn a_replaced_table_is_freed_in_shares<T: Table<Key = u64, Value = u64>>() {
    let builder = CopyMap::<T>::builder()
        .buckets(LARGE)
        .automatic_resize(false);
    let map = builder.domain(Domain::new()).build();
    (0..10_000).for_each(|key| assert_eq!(map.pin().insert(key, key), None));
    let (large, shares) = {
        let handle = map.pin();
        let arrays = array_bytes(handle.table_version().table());
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
        assert_eq!(map.pin().insert(7, 7), Some(7));
        updates += 1;
        assert!(updates < 1_000, "{} bytes of {both} are left", map.bytes());
    }
    assert!(updates >= shares, "{updates} for {shares}");
    assert_eq!(map.bytes(), both - large);
    assert!((0..10_000).all(|key| map.pin().get(&key) == Some(key)));
}

/// A separate step, which moves nothing, faults in every huge page of both arrays.
fn pages_are_put_in_place_one_by_one<T: Table<Key = u64, Value = u64>>() {
    let budget = Arc::new(MemoryBudget::new(usize::MAX));
    let version = TableVersion::new(T::try_new(LARGE / 2, &budget).unwrap());
    let next = Box::into_raw(TableVersion::new(T::try_new(LARGE, &budget).unwrap()));
    // SAFETY: freed below, and the table has no successor yet.
    unsafe { version.link(NonNull::new_unchecked(next)) };
    let pages: usize = {
        let arrays = array_bytes(version.next().unwrap().table());
        let large = arrays.iter().filter(|bytes| **bytes >= HUGE_PAGE);
        large.map(|bytes| bytes / HUGE_PAGE).sum()
    };
    let share = 64;
    let mut steps = 0;
    while version.step(share, &|key: &u64| *key) != Ok(ResizeStep::Last) {
        steps += 1;
    }
    let prepared = steps + 1 - LARGE / 2 / share;
    assert!(
        prepared >= pages && prepared <= 3 * pages,
        "{prepared} for {pages}"
    );
    // SAFETY: from a box, and no longer used.
    drop(unsafe { Box::from_raw(next) });
}
