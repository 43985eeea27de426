//! Which public types are `Send` and `Sync`, with contents that are both, one of the two, or
//! neither.
//!
//! Constants hold the answers at compile time, so that one program covers negative answers as well
//! as positive ones: a type that becomes `Send` by mistake fails a test here, rather than merely
//! stopping some test from failing to compile. Variance cannot be tested this way: see
//! `src/compile_fail.rs`.

use std::ptr::NonNull;

use corewise_maps::clht::{self, LockBasedTable};
use corewise_maps::copy_map::{self, CopyMap, CopyMapRef, TryInsertError};
use corewise_maps::cuckoo::{self, CuckooTable};
use corewise_maps::relativistic::{self as rel, DefaultHasher, MapRef, RelativisticMap};
use corewise_maps_lab::clht_lock_free::{self, LockFreeTable};
use corewise_maps_lab::hopscotch::{self, HopscotchTable};
use corewise_rcu::{Guard, OwnedGuard, QsbrGuard};

use corewise_testkit::auto_traits::{Both, Neither, OnlySend, OnlySync};
use corewise_testkit::{expect_of_contents, expect_traits, implements};

#[test]
fn the_probe_tells_the_traits_apart() {
    expect_traits! {
        Both: true true,
        OnlySend: true false,
        OnlySync: false true,
        Neither: false false,
        Guard<'static>: false false,
        &'static Guard<'static>: false false,
        OwnedGuard<'static>: true false,
        &'static OwnedGuard<'static>: false false,
        QsbrGuard<'static>: false false,
    }
}

type S = DefaultHasher;

#[test]
fn relativistic_maps_are_sent_as_their_contents_are_and_shared_if_these_are_both() {
    expect_of_contents! {
        // A map that moves takes all its entries along; removed ones are dropped by any thread
        // that shares it.
        RelativisticMap<T, u64>: both, send, neither, neither;
        RelativisticMap<u64, T>: both, send, neither, neither;
        RelativisticMap<u64, u64, T>: both, send, sync, neither;
        // They lend references.
        rel::Iter<'static, T, u64>: both, neither, both, neither;
        rel::Iter<'static, u64, T>: both, neither, both, neither;
        rel::Keys<'static, T, u64>: both, neither, both, neither;
        rel::Values<'static, u64, T>: both, neither, both, neither;
        rel::Builder<u64, u64, T>: both, send, sync, neither;
        // It has no entries.
        rel::Builder<T, T>: both, both, both, both;
        // It contains a reference and a value.
        rel::OccupiedError<'static, T>: both, neither, sync, neither;
        rel::Compute<'static, T, T>: both, neither, both, neither;
        rel::Operation<T>: both, send, sync, neither;
        // They lend values exclusively.
        rel::IterMut<'static, T, u64>: both, send, sync, neither;
        rel::IterMut<'static, u64, T>: both, send, sync, neither;
        rel::ValuesMut<'static, u64, T>: both, send, sync, neither;
        // They own a map, or have it alone.
        rel::IntoIter<u64, T, S>: send, send, neither, neither;
        rel::DrainMut<'static, u64, T, S>: both, neither, neither, neither;
        rel::RelativisticSet<T>: both, send, neither, neither;
        rel::set::Iter<'static, T>: both, neither, both, neither;
        rel::set::IntoIter<T, S>: send, send, neither, neither;
        // A handle that may move is sent if the map may be shared.
        MapRef<'static, u64, T, S, OwnedGuard<'static>>: send, neither, neither, neither;
        rel::SetRef<'static, T, S, OwnedGuard<'static>>: send, neither, neither, neither;
    }
}

#[test]
fn handles_and_entries_belong_to_their_thread() {
    type G = Guard<'static>;
    expect_traits! {
        MapRef<'static, u64, u64>: false false,
        rel::Ref<'static, u64, u64>: false false,
        rel::RefIter<'static, u64, u64>: false false,
        MapRef<'static, u64, u64, S, &'static G>: false false,
        MapRef<'static, u64, u64, S, QsbrGuard<'static>>: false false,
        rel::Entry<'static, 'static, u64, u64, S, G>: false false,
        rel::OccupiedEntry<'static, 'static, u64, u64, S, G>: false false,
        rel::VacantEntry<'static, 'static, u64, u64, S, G>: false false,
        rel::VacantEntry<'static, 'static, u64, u64, S, &'static G>: false false,
        MapRef<'static, u64, u64, S, &'static OwnedGuard<'static>>: false false,
        rel::Entry<'static, 'static, u64, u64, S, OwnedGuard<'static>>: false false,
        rel::ModifiedEntry<'static, 'static, u64, u64, S, G, fn(&mut u64)>: false false,
        rel::Drain<'static, 'static, u64, u64, S, G>: false false,
        rel::Drain<'static, 'static, u64, u64, S, OwnedGuard<'static>>: false false,
        rel::ExtractIf<'static, 'static, u64, u64, S, G, fn(&u64, &u64) -> bool>: false false,
        rel::SetRef<'static, u64>: false false,
        CopyMapRef<'static, LockBasedTable<u64, u64>>: false false,
        CopyMapRef<'static, LockFreeTable<u64, u64>, S, &'static G>: false false,
        CopyMapRef<'static, CuckooTable<u64, u64>, S, QsbrGuard<'static>>: false false,
        CopyMapRef<'static, HopscotchTable<u64, u64>>: false false,
        CopyMapRef<'static, HopscotchTable<u64, u64>, S, G, copy_map::Limited>: false false,
    }
}

#[test]
fn owned_handles_of_copies_may_be_sent() {
    type G = OwnedGuard<'static>;
    expect_traits! {
        CopyMapRef<'static, LockBasedTable<u64, u64>, S, G>: true false,
        CopyMapRef<'static, LockFreeTable<u64, u64>, S, G>: true false,
        CopyMapRef<'static, CuckooTable<u64, u64>, S, G, copy_map::Limited>: true false,
        CopyMapRef<'static, HopscotchTable<u64, u64>, S, G>: true false,
    }
}

#[cfg(feature = "raw")]
#[test]
fn raw_tables_are_as_their_arenas() {
    expect_of_contents! {
        rel::RawTable<T>: both, send, sync, neither;
        // It contains a reference to an arena.
        rel::RawIter<'static, T>: both, neither, both, neither;
    }
    expect_traits! {
        rel::Link: true true,
        rel::NodeId: true true,
        rel::ResizePolicy: true true,
    }
}

#[test]
fn answers_of_a_resize_are_plain_data() {
    expect_traits! {
        rel::ResizeState: true true,
        rel::ResizeError: true true,
        rel::Changed: true true,
    }
}

#[test]
fn maps_of_copies_are_shared_and_sent_if_their_contents_may_be_sent() {
    expect_of_contents! {
        clht::LockBased<u64, u64, T>: both, send, sync, neither;
        clht_lock_free::LockFree<u64, u64, T>: both, send, sync, neither;
        // As for `AtomicPtr`: code that dereferences a pointer is responsible for it.
        clht::LockBased<NonNull<T>, *const T>: both, both, both, both;
        // They return copies and no references.
        cuckoo::CuckooMap<T, u64>: both, both, neither, neither;
        cuckoo::CuckooMap<u64, T>: both, both, neither, neither;
        cuckoo::CuckooMap<u64, u64, T>: both, send, sync, neither;
        hopscotch::HopscotchMap<T, u64>: both, both, neither, neither;
        hopscotch::HopscotchMap<u64, T>: both, both, neither, neither;
        hopscotch::HopscotchMap<u64, u64, T>: both, send, sync, neither;
        // It contains a reference to a map, and pairs.
        copy_map::Iter<'static, CuckooTable<u64, T>, S>: both, send, neither, neither;
        copy_map::Iter<'static, HopscotchTable<u64, u64>, T>: both, neither, both, neither;
        copy_map::Keys<'static, CuckooTable<u64, T>, S>: both, send, neither, neither;
        copy_map::Values<'static, CuckooTable<u64, T>, S>: both, send, neither, neither;
        // It owns a map, and pairs.
        copy_map::IntoIter<CuckooTable<u64, T>, S, copy_map::Limited>: both, send, neither, neither;
        copy_map::Computed<T>: both, send, sync, neither;
        cuckoo::CuckooMap<u64, T, S, copy_map::Limited>: both, both, neither, neither;
        copy_map::Builder<CuckooTable<T, T>>: both, both, both, both;
        copy_map::Builder<CuckooTable<u64, u64>, T>: both, send, sync, neither;
        TryInsertError<T>: both, send, sync, neither;
    }
}

#[test]
fn maps_of_addresses_are_shared_and_sent_if_addresses_are_words() {
    expect_traits! {
        copy_map::Full: true true,
        copy_map::Limited: true true,
        copy_map::Unlimited: true true,
        CopyMap<LockFreeTable<u64, NonNull<u8>>>: true true,
        // Its pairs are of any type, so an address is not sent.
        CopyMap<CuckooTable<u64, NonNull<u8>>>: false false,
    }
}

#[cfg(feature = "rayon")]
#[test]
fn parallel_iterators_are_sent_if_what_they_lend_is_shared() {
    expect_of_contents! {
        rel::ParIter<'static, T, T>: both, neither, both, neither;
        copy_map::ParIter<'static, CuckooTable<u64, T>, S>: both, send, neither, neither;
    }
}

/// A panic of the user's code leaves maps consistent, so they may cross a `catch_unwind`, if their
/// contents may.
#[test]
fn maps_may_cross_a_catch_if_their_contents_may() {
    use std::cell::Cell;
    use std::panic::{RefUnwindSafe, UnwindSafe};
    type Broken = RelativisticMap<u64, Cell<u64>>;
    assert!(implements!(RelativisticMap<u64, String>: UnwindSafe));
    assert!(implements!(RelativisticMap<u64, String>: RefUnwindSafe));
    assert!(implements!(rel::RelativisticSet<u64>: RefUnwindSafe));
    assert!(implements!(MapRef<'static, u64, String>: UnwindSafe));
    assert!(implements!(MapRef<'static, u64, String>: RefUnwindSafe));
    assert!(!implements!(Broken: RefUnwindSafe) && !implements!(Broken: UnwindSafe));
    assert!(!implements!(MapRef<'static, u64, Cell<u64>>: RefUnwindSafe));
}
