//! Which public types are `Send` and `Sync`, with contents that are both, one of the two, or
//! neither.

use corewise_maps::relativistic::DefaultHasher;
use corewise_maps_lab::chained::{self, ChainedMap, ChainedRef};
use corewise_maps_lab::cross_link::CrossLinkMap;
use corewise_maps_lab::rename::{self, RenameMap, RenameRef};
use corewise_rcu::Guard;

use corewise_testkit::{expect_of_contents, expect_traits};

type ChainedKeys<T> = ChainedMap<T, u64, chained::PerEntry>;
type ChainedValues<T> = ChainedMap<u64, T, chained::RwLocked>;
type ChainedHasher<T> = ChainedMap<u64, u64, chained::Ddds, T>;

#[test]
fn chained_maps_are_shared_and_sent_if_their_contents_are_both() {
    expect_of_contents! {
        ChainedKeys: (true true), (false false), (false false), (false false);
        ChainedValues: (true true), (false false), (false false), (false false);
        ChainedHasher: (true true), (true false), (false true), (false false);
    }
    expect_traits! {
        // Handles belong to their thread.
        ChainedRef<'static, u64, u64, chained::OutOfPlace>: false false,
        chained::OutOfPlace: true true,
        chained::Atc11: true true,
        chained::InPlace: true true,
        chained::NoAuxiliary: true true,
        chained::SortedByReversedHash: true true,
        chained::SortedByHighBits: true true,
        chained::SplitOrdered: true true,
        chained::PerEntry: true true,
        chained::Ddds: true true,
        chained::LiteralDdds: true true,
        chained::RwLocked: true true,
        chained::Resized: true true,
    }
}

#[test]
fn maps_with_renaming_are_shared_and_sent_if_their_contents_are_both() {
    type Keys<T> = RenameMap<T, u64>;
    type Values<T> = RenameMap<u64, T>;
    type WithHasher<T> = RenameMap<u64, u64, T>;
    type Iter<T> = rename::Iter<'static, u64, T>;
    expect_of_contents! {
        Keys: (true true), (false false), (false false), (false false);
        Values: (true true), (false false), (false false), (false false);
        WithHasher: (true true), (true false), (false true), (false false);
        // A name owns its share of a value.
        Iter: (true true), (false false), (false false), (false false);
    }
    expect_traits! {
        RenameRef<'static, u64, u64>: false false,
        RenameRef<'static, u64, u64, DefaultHasher, &'static Guard<'static>>: false false,
        rename::RenameError: true true,
    }
}

#[test]
fn maps_with_moves_are_shared_and_sent_if_their_contents_are_both() {
    type WithHasher<T> = CrossLinkMap<u64, T>;
    expect_of_contents! {
        CrossLinkMap: (true true), (false false), (false false), (false false);
        WithHasher: (true true), (true false), (false true), (false false);
    }
}
