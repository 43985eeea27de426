//! Programs that must not compile: each example occurs twice, with the line that must be refused
//! and with a line that must be accepted.
//!
//! These are documentation examples rather than files for `trybuild`, which compares the compiler's
//! messages literally; those change between compiler versions. Here a test is one program in two
//! versions. The accepted version is compiled and run, so only its changed line can be the reason
//! that the other one is refused. Rustdoc checks the error code in a nightly compiler.
//!
//! `Send` and `Sync` need no such tests: `tests/auto_traits.rs` checks both for every public type.

use crate::refused::{invariant, refused};

invariant! {
    "use corewise_maps::{*, copy_map::*};";
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
    "use corewise_maps::relativistic::rename::*;";
    rename_keys: "RenameMap<Wide, u64>", "RenameMap<Narrow, u64>";
    rename_values: "RenameMap<u64, Wide>", "RenameMap<u64, Narrow>";
    rename_handle: "RenameRef<'m, u64, Wide>", "RenameRef<'m, u64, Narrow>";
}
