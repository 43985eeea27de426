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

type RelativisticKeys<T> = RelativisticMap<T, u64>;
type RelativisticValues<T> = RelativisticMap<u64, T>;
type RelativisticHasher<T> = RelativisticMap<u64, u64, T>;
type RelIter<T> = rel::Iter<'static, T, u64>;
type RelIterValues<T> = rel::Iter<'static, u64, T>;
type RelKeys<T> = rel::Keys<'static, T, u64>;
type RelValues<T> = rel::Values<'static, u64, T>;
type RelBuilder<T> = rel::Builder<u64, u64, T>;
type RelBuilderContents<T> = rel::Builder<T, T>;
type RelOccupied<T> = rel::OccupiedError<'static, T>;
type RelCompute<T> = rel::Compute<'static, T, T>;
type RelOperation<T> = rel::Operation<T>;
type RelIterMut<T> = rel::IterMut<'static, T, u64>;
type RelIterMutValues<T> = rel::IterMut<'static, u64, T>;
type RelValuesMut<T> = rel::ValuesMut<'static, u64, T>;
type RelIntoIter<T> = rel::IntoIter<u64, T, DefaultHasher>;
type RelDrainMut<T> = rel::DrainMut<'static, u64, T, DefaultHasher>;
type Set<T> = rel::RelativisticSet<T>;
type SetIter<T> = rel::set::Iter<'static, T>;
type SetIntoIter<T> = rel::set::IntoIter<T, DefaultHasher>;
/// A handle that may move is sent if the map may be shared.
type RelOwned<T> = MapRef<'static, u64, T, DefaultHasher, OwnedGuard<'static>>;
type SetOwned<T> = rel::SetRef<'static, T, DefaultHasher, OwnedGuard<'static>>;

#[test]
fn relativistic_maps_are_shared_and_sent_if_their_contents_are_both() {
    expect_of_contents! {
        RelativisticKeys: (true true), (false false), (false false), (false false);
        RelativisticValues: (true true), (false false), (false false), (false false);
        RelativisticHasher: (true true), (true false), (false true), (false false);
        // They lend references.
        RelIter: (true true), (false false), (true true), (false false);
        RelIterValues: (true true), (false false), (true true), (false false);
        RelKeys: (true true), (false false), (true true), (false false);
        RelValues: (true true), (false false), (true true), (false false);
        RelBuilder: (true true), (true false), (false true), (false false);
        // It has no entries.
        RelBuilderContents: (true true), (true true), (true true), (true true);
        // It contains a reference and a value.
        RelOccupied: (true true), (false false), (false true), (false false);
        RelCompute: (true true), (false false), (true true), (false false);
        RelOperation: (true true), (true false), (false true), (false false);
        // They lend values exclusively.
        RelIterMut: (true true), (true false), (false true), (false false);
        RelIterMutValues: (true true), (true false), (false true), (false false);
        RelValuesMut: (true true), (true false), (false true), (false false);
        // They own a map, or have it alone.
        RelIntoIter: (true false), (false false), (false false), (false false);
        RelDrainMut: (true true), (false false), (false false), (false false);
        Set: (true true), (false false), (false false), (false false);
        SetIter: (true true), (false false), (true true), (false false);
        SetIntoIter: (true false), (false false), (false false), (false false);
        RelOwned: (true false), (false false), (false false), (false false);
        SetOwned: (true false), (false false), (false false), (false false);
    }
}

#[test]
fn handles_and_entries_belong_to_their_thread() {
    type G = Guard<'static>;
    type S = DefaultHasher;
    expect_traits! {
        MapRef<'static, u64, u64>: false false,
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
    type S = DefaultHasher;
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
    type RawTableOf<T> = rel::RawTable<T>;
    type Iter<T> = rel::RawIter<'static, T>;
    expect_of_contents! {
        RawTableOf: (true true), (true false), (false true), (false false);
        // It contains a reference to an arena.
        Iter: (true true), (false false), (true true), (false false);
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

type LockBased<T> = clht::LockBased<u64, u64, T>;
type LockFree<T> = clht_lock_free::LockFree<u64, u64, T>;
type LockBasedPointers<T> = clht::LockBased<NonNull<T>, *const T>;
type CuckooKeys<T> = cuckoo::CuckooMap<T, u64>;
type CuckooValues<T> = cuckoo::CuckooMap<u64, T>;
type CuckooHasher<T> = cuckoo::CuckooMap<u64, u64, T>;
type HopscotchKeys<T> = hopscotch::HopscotchMap<T, u64>;
type HopscotchValues<T> = hopscotch::HopscotchMap<u64, T>;
type HopscotchHasher<T> = hopscotch::HopscotchMap<u64, u64, T>;
type CopyIter<T> = copy_map::Iter<'static, CuckooTable<u64, T>, DefaultHasher>;
type CopyIterHasher<T> = copy_map::Iter<'static, HopscotchTable<u64, u64>, T>;
type CopyKeys<T> = copy_map::Keys<'static, CuckooTable<u64, T>, DefaultHasher>;
type CopyValues<T> = copy_map::Values<'static, CuckooTable<u64, T>, DefaultHasher>;
type CopyIntoIter<T> = copy_map::IntoIter<CuckooTable<u64, T>, DefaultHasher, copy_map::Limited>;
type CopyComputed<T> = copy_map::Computed<T>;
type CopyLimited<T> = cuckoo::CuckooMap<u64, T, DefaultHasher, copy_map::Limited>;
type CopyBuilder<T> = copy_map::Builder<CuckooTable<T, T>>;
type CopyBuilderHasher<T> = copy_map::Builder<CuckooTable<u64, u64>, T>;
type TryInsert<T> = TryInsertError<T>;

#[test]
fn maps_of_copies_are_shared_and_sent_if_their_contents_may_be_sent() {
    expect_of_contents! {
        LockBased: (true true), (true false), (false true), (false false);
        LockFree: (true true), (true false), (false true), (false false);
        // As for `AtomicPtr`: code that dereferences a pointer is responsible for it.
        LockBasedPointers: (true true), (true true), (true true), (true true);
        // They return copies and no references.
        CuckooKeys: (true true), (true true), (false false), (false false);
        CuckooValues: (true true), (true true), (false false), (false false);
        CuckooHasher: (true true), (true false), (false true), (false false);
        HopscotchKeys: (true true), (true true), (false false), (false false);
        HopscotchValues: (true true), (true true), (false false), (false false);
        HopscotchHasher: (true true), (true false), (false true), (false false);
        // It contains a reference to a map, and pairs.
        CopyIter: (true true), (true false), (false false), (false false);
        CopyIterHasher: (true true), (false false), (true true), (false false);
        CopyKeys: (true true), (true false), (false false), (false false);
        CopyValues: (true true), (true false), (false false), (false false);
        // It owns a map, and pairs.
        CopyIntoIter: (true true), (true false), (false false), (false false);
        CopyComputed: (true true), (true false), (false true), (false false);
        CopyLimited: (true true), (true true), (false false), (false false);
        CopyBuilder: (true true), (true true), (true true), (true true);
        CopyBuilderHasher: (true true), (true false), (false true), (false false);
        TryInsert: (true true), (true false), (false true), (false false);
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
    type ParIter<T> = rel::ParIter<'static, T, T>;
    type CopyParIter<T> = copy_map::ParIter<'static, CuckooTable<u64, T>, DefaultHasher>;
    expect_of_contents! {
        ParIter: (true true), (false false), (true true), (false false);
        CopyParIter: (true true), (true false), (false false), (false false);
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
