//! What must not compile: each example twice, once as it is refused and once with the offending line changed.
//!
//! These are examples of documentation and not files for `trybuild`: that compares the compiler's messages word
//! for word, which change with its versions. Here a test is one program, given once with the line that must be accepted
//! and once with the line that must be refused. The first one is compiled and run, so the second one cannot be
//! refused for another reason than its line. The error's code is checked where rustdoc checks it, in a nightly compiler.
//!
//! `Send` and `Sync` need no such tests: `tests/auto_traits.rs` asks for both of every public type.

/// A program with `$accepted` compiles and runs, and with `$refused` in its place it does not compile.
macro_rules! refused {
    ($($name:ident: $code:literal, $before:expr, $accepted:expr, $refused:expr, $after:expr;)+) => {
        $(
            #[doc = concat!("```\n", $before, "\n", $accepted, "\n", $after, "\n```\n")]
            #[doc = concat!("```compile_fail,", $code, "\n", $before, "\n", $refused, "\n", $after, "\n```")]
            pub mod $name {}
        )+
    };
}

/// A type whose contents can be changed through `&self` is no subtype of itself with other contents: otherwise a
/// short-lived reference could be put where one that lives for ever is taken out. `$wide` and `$narrow` are the type
/// with `Wide` and with `Narrow` in the place in question; a `Wide` is a `Narrow`, but a map of the one is not a map of the
/// other, in either direction.
macro_rules! invariant {
    ($($name:ident: $wide:literal, $narrow:literal;)+) => {
        refused! {
            $(
                $name: "E0308",
                "#![allow(dead_code, unused_imports)]
use std::ptr::NonNull;
use corewise_maps::{*, chained::*, copy_map::*};
#[cfg(feature = \"rename\")] use corewise_maps::relativistic::rename::*;
type Wide = for<'a> fn(&'a String);
type Narrow = fn(&'static String);",
                concat!("fn narrow<'m>(one: ", $wide, ") -> ", $wide, " { one }"),
                concat!("fn narrow<'m>(one: ", $wide, ") -> ", $narrow, " { one }"),
                "fn main() {}";
            )+
        }
    };
}

invariant! {
    chained_keys: "ChainedMap<Wide, u64, InPlace>", "ChainedMap<Narrow, u64, InPlace>";
    chained_values: "ChainedMap<u64, Wide, InPlace>", "ChainedMap<u64, Narrow, InPlace>";
    chained_handle_keys: "ChainedRef<'m, Wide, u64, InPlace>", "ChainedRef<'m, Narrow, u64, InPlace>";
    chained_handle_values: "ChainedRef<'m, u64, Wide, InPlace>", "ChainedRef<'m, u64, Narrow, InPlace>";
    relativistic_keys: "RelativisticMap<Wide, u64>", "RelativisticMap<Narrow, u64>";
    relativistic_values: "RelativisticMap<u64, Wide>", "RelativisticMap<u64, Narrow>";
    relativistic_handle_keys: "relativistic::MapRef<'m, Wide, u64>", "relativistic::MapRef<'m, Narrow, u64>";
    relativistic_handle_values: "relativistic::MapRef<'m, u64, Wide>", "relativistic::MapRef<'m, u64, Narrow>";
    relativistic_entry:
        "relativistic::Entry<'m, 'm, u64, Wide, (), corewise_rcu::Guard<'m>>",
        "relativistic::Entry<'m, 'm, u64, Narrow, (), corewise_rcu::Guard<'m>>";
    relativistic_occupied:
        "relativistic::OccupiedEntry<'m, 'm, u64, Wide, (), corewise_rcu::Guard<'m>>",
        "relativistic::OccupiedEntry<'m, 'm, u64, Narrow, (), corewise_rcu::Guard<'m>>";
    relativistic_vacant:
        "relativistic::VacantEntry<'m, 'm, u64, Wide, (), corewise_rcu::Guard<'m>>",
        "relativistic::VacantEntry<'m, 'm, u64, Narrow, (), corewise_rcu::Guard<'m>>";
    lock_based_values: "clht::LockBased<u64, &'static Wide>", "clht::LockBased<u64, &'static Narrow>";
    lock_free_values: "clht::LockFree<u64, &'static Wide>", "clht::LockFree<u64, &'static Narrow>";
    hopscotch_keys: "hopscotch::HopscotchMap<Wide, u64>", "hopscotch::HopscotchMap<Narrow, u64>";
    hopscotch_values: "hopscotch::HopscotchMap<u64, Wide>", "hopscotch::HopscotchMap<u64, Narrow>";
    cuckoo_keys: "cuckoo::CuckooMap<Wide, u64>", "cuckoo::CuckooMap<Narrow, u64>";
    cuckoo_values: "cuckoo::CuckooMap<u64, Wide>", "cuckoo::CuckooMap<u64, Narrow>";
    copy_map_handle:
        "CopyMapRef<'m, cuckoo::CuckooTable<u64, Wide>>", "CopyMapRef<'m, cuckoo::CuckooTable<u64, Narrow>>";
    boxed_lock_based: "clht::Boxed<u64, Wide>", "clht::Boxed<u64, Narrow>";
    boxed_lock_free:
        "BoxMap<Wide, clht::LockFreeTable<u64, NonNull<Wide>>>",
        "BoxMap<Narrow, clht::LockFreeTable<u64, NonNull<Narrow>>>";
    boxed_hopscotch: "hopscotch::Boxed<u64, Wide>", "hopscotch::Boxed<u64, Narrow>";
    boxed_cuckoo: "cuckoo::Boxed<u64, Wide>", "cuckoo::Boxed<u64, Narrow>";
    boxed_cuckoo_keys: "cuckoo::Boxed<Wide, u64>", "cuckoo::Boxed<Narrow, u64>";
    boxed_handle:
        "BoxMapRef<'m, Wide, cuckoo::CuckooTable<u64, NonNull<Wide>>>",
        "BoxMapRef<'m, Narrow, cuckoo::CuckooTable<u64, NonNull<Narrow>>>";
}

#[cfg(feature = "rename")]
invariant! {
    rename_keys: "RenameMap<Wide, u64>", "RenameMap<Narrow, u64>";
    rename_values: "RenameMap<u64, Wide>", "RenameMap<u64, Narrow>";
    rename_handle: "RenameRef<'m, u64, Wide>", "RenameRef<'m, u64, Narrow>";
}
