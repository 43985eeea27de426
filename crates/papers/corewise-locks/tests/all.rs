//! The guarantees of the locks and of elision.
#![cfg(not(any(corewise_loom, corewise_shuttle)))]

/// A module for each lock, with a test for each named function.
macro_rules! for_every_lock {
    ($($test:ident)+) => {
        corewise_testkit::for_every! {
            tas: corewise_locks::Tas,
            ttas: corewise_locks::Ttas,
            backoff: corewise_locks::TtasBackoff,
            ticket: corewise_locks::Ticket,
            anderson: corewise_locks::Anderson,
            anderson_with_fewer_slots_than_threads: corewise_locks::Anderson<2>,
            anderson_with_one_slot: corewise_locks::Anderson<1>,
            clh: corewise_locks::Clh,
            mcs: corewise_locks::Mcs,
            parking: corewise_locks::Parking,
            adaptive: corewise_locks::Adaptive,
            distributed: corewise_locks::DistributedRw,
            distributed_without_slots: corewise_locks::DistributedRw<1>,
            => { $($test)+ }
        }
    };
}

mod elide;
mod locks;
mod promises;
