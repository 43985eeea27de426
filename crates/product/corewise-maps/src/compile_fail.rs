//! Programs that must not compile: each example occurs twice, with the line that must be refused
//! and with a line that must be accepted.
//!
//! These are documentation examples rather than files for `trybuild`, which compares the compiler's
//! messages literally; those change between compiler versions. Here a test is one program in two
//! versions. The accepted version is compiled and run, so only its changed line can be the reason
//! that the other one is refused. Rustdoc checks the error code in a nightly compiler.
//!
//! `Send` and `Sync` need no such tests: `tests/auto_traits.rs` checks both for every public type.

use corewise_testkit::{invariant, refused};

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
    relativistic_modified:
        "relativistic::ModifiedEntry<'m, 'm, u64, Wide, (), corewise_rcu::Guard<'m>, ()>",
        "relativistic::ModifiedEntry<'m, 'm, u64, Narrow, (), corewise_rcu::Guard<'m>, ()>";
    relativistic_drain:
        "relativistic::Drain<'m, 'm, u64, Wide, (), corewise_rcu::Guard<'m>>",
        "relativistic::Drain<'m, 'm, u64, Narrow, (), corewise_rcu::Guard<'m>>";
    relativistic_extract_if:
        "relativistic::ExtractIf<'m, 'm, u64, Wide, (), corewise_rcu::Guard<'m>, ()>",
        "relativistic::ExtractIf<'m, 'm, u64, Narrow, (), corewise_rcu::Guard<'m>, ()>";
    relativistic_values_mut:
        "relativistic::IterMut<'m, u64, Wide>", "relativistic::IterMut<'m, u64, Narrow>";
    relativistic_drain_mut:
        "relativistic::DrainMut<'m, u64, Wide, ()>", "relativistic::DrainMut<'m, u64, Narrow, ()>";
    relativistic_owned_handle:
        "relativistic::MapRef<'m, u64, Wide, (), corewise_rcu::OwnedGuard<'m>>",
        "relativistic::MapRef<'m, u64, Narrow, (), corewise_rcu::OwnedGuard<'m>>";
    relativistic_set: "RelativisticSet<Wide>", "RelativisticSet<Narrow>";
    relativistic_set_handle: "relativistic::SetRef<'m, Wide>", "relativistic::SetRef<'m, Narrow>";
    lock_based_values: "clht::LockBased<u64, &'static Wide>", "clht::LockBased<u64, &'static Narrow>";
    cuckoo_keys: "cuckoo::CuckooMap<Wide, u64>", "cuckoo::CuckooMap<Narrow, u64>";
    cuckoo_values: "cuckoo::CuckooMap<u64, Wide>", "cuckoo::CuckooMap<u64, Narrow>";
    copy_map_handle:
        "CopyMapRef<'m, cuckoo::CuckooTable<u64, Wide>>", "CopyMapRef<'m, cuckoo::CuckooTable<u64, Narrow>>";
    copy_iter: "IntoIter<cuckoo::CuckooTable<u64, Wide>, (), Limited>", "IntoIter<cuckoo::CuckooTable<u64, Narrow>, (), Limited>";
}

refused! {
    insertions_return_a_result_only_with_a_limit: "E0308",
    "use corewise_maps::clht::LockBased;
let map = LockBased::<u64, u64>::builder().build();",
    "let before: Option<u64> = map.pin().insert(1, 2);",
    "let before: Result<Option<u64>, corewise_maps::copy_map::Full> = map.pin().insert(1, 2);",
    "drop(before);";
    insertions_return_a_result_with_a_limit: "E0308",
    "use corewise_maps::clht::LockBased;
let map = LockBased::<u64, u64>::builder().max_bytes(4096).build();",
    "let before: Result<Option<u64>, corewise_maps::copy_map::Full> = map.pin().insert(1, 2);",
    "let before: Option<u64> = map.pin().insert(1, 2);",
    "drop(before);";
    maps_with_a_limit_are_not_collected: "E0277",
    "use corewise_maps::clht::LockBased;
use corewise_maps::copy_map::{Limited, Unlimited};
use corewise_maps::relativistic::DefaultHasher;",
    "let map: LockBased<u64, u64, DefaultHasher, Unlimited> = [(1, 2)].into_iter().collect();",
    "let map: LockBased<u64, u64, DefaultHasher, Limited> = [(1, 2)].into_iter().collect();",
    "drop(map);";
    clht_stores_words: "E0277",
    "use corewise_maps::clht::LockBased;",
    "drop(LockBased::<u64, char>::new());",
    "drop(LockBased::<String, char>::new());",
    "";
    cuckoo_stores_copies: "E0277",
    "use corewise_maps::cuckoo::CuckooMap;",
    "drop(CuckooMap::<u64, &str>::new());",
    "drop(CuckooMap::<u64, String>::new());",
    "";
    references_do_not_outlive_their_handle: "E0505",
    "let map = corewise_maps::RelativisticMap::from([(1, 2)]);
let handle = map.pin();
let mut values = handle.drain();",
    "assert!(values.next().is_some()); drop(values); drop(handle);",
    "drop(handle); assert!(values.next().is_some());",
    "";
}

refused! {
    exclusive_access_excludes_handles: "E0502",
        "let mut map = corewise_maps::RelativisticMap::from([(1, 2)]);",
        "map.iter_mut().next(); let handle = map.pin();",
        "let handle = map.pin(); map.iter_mut().next();",
        "drop(handle);";
    a_lent_value_borrows_the_map: "E0499",
        "let mut map = corewise_maps::RelativisticMap::from([(1, 2), (3, 4)]);",
        "let one = map.get_mut(&1); drop(one); let other = map.get_mut(&3);",
        "let one = map.get_mut(&1); let other = map.get_mut(&3); drop(one);",
        "drop(other);";
    an_entry_borrows_its_map: "E0505",
        "let map = corewise_maps::RelativisticMap::from([(1, 2)]);",
        "let entry = map.get_cloned(&1);",
        "let entry = map.get(&1);",
        "drop(map); drop(entry);";
    an_entry_stays_on_its_thread: "E0277",
        "let map = corewise_maps::RelativisticMap::from([(1, 2)]);",
        "std::thread::scope(|scope| { scope.spawn(|| { map.insert(3, 4); }); });",
        "std::thread::scope(|scope| { scope.spawn(|| map.insert(3, 4)); });",
        "drop(map);";
    a_map_that_moves_may_hold_what_is_not_shared: "E0277",
        "let map = corewise_maps::RelativisticMap::from([(1, std::cell::Cell::new(2))]);",
        "std::thread::scope(|scope| { scope.spawn(move || map.get(&1).unwrap().set(3)); });",
        "std::thread::scope(|scope| { scope.spawn(|| map.get(&1).unwrap().set(3)); });",
        "";
    an_owned_handle_serves_one_thread_at_a_time: "E0277",
        "let map = corewise_maps::RelativisticMap::from([(1, 2)]); let handle = map.pin_owned();",
        "std::thread::scope(|scope| { scope.spawn(move || drop(handle)); });",
        "std::thread::scope(|scope| { scope.spawn(|| { handle.get(&1); }); });",
        "";
}
