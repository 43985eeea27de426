//! Tests that every table meets the contract of the harness.

use std::collections::HashMap;
use std::sync::Arc;

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::registry;
use crate::dyn_table::DynTable;
use crate::entry::Entry;
use crate::plan::{KeyMap, Plan};
use crate::table::{Setup, Shape};
use crate::work::{Part, Sums};

const SHAPE: Shape = Shape {
    key_bytes: (16, 64),
    value_bytes: 24,
};

fn setup(capacity: usize) -> Setup {
    Setup {
        capacity,
        threads: 4,
        value_bytes: 24,
        key_bytes: 64,
        ..Setup::default()
    }
}

/// The thread of a phase that has one.
const ALONE: Part = Part {
    thread: 0,
    threads: 1,
};

/// Every maker of every table that stores something, with its name.
fn all(capacity: usize) -> Vec<(String, Entry, Arc<dyn DynTable>)> {
    let mut dyn_tables = Vec::new();
    for entry in registry().entries().iter().filter(|entry| !entry.null) {
        for kind in ["u64", "bytes"] {
            if let Some(maker) = entry.maker(kind) {
                let name = format!("{} {kind}", entry.card.name);
                dyn_tables.push((name, entry.clone(), maker(&setup(capacity))));
            }
        }
    }
    dyn_tables
}

fn plan(range: u32, initial: u32) -> Plan {
    Plan::new(SHAPE, range, initial, 1, KeyMap::Mixed)
}

/// Runs a phase on the maximum number of threads that the table allows, at most four.
fn on_threads<R: Send>(entry: &Entry, phase: impl Fn(Part) -> R + Sync) -> Vec<R> {
    let threads = entry.max_threads.unwrap_or(4).min(4);
    std::thread::scope(|scope| {
        let phase = &phase;
        let threads: Vec<_> = (0..threads)
            .map(|thread| scope.spawn(move || phase(Part { thread, threads })))
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().expect("no panic"))
            .collect()
    })
}

fn add(sums: impl IntoIterator<Item = Sums>) -> Sums {
    sums.into_iter().fold(Sums::default(), |mut all, some| {
        all.add(&some);
        all
    })
}

#[test]
fn what_is_put_in_is_found_and_what_is_taken_out_is_not() {
    for capacity in [0, 3_000] {
        for (name, entry, dyn_table) in all(capacity) {
            let plan = plan(6_000, 3_000);
            let mut booked = add(on_threads(&entry, |part| dyn_table.fill(&plan, part).sums));
            assert_eq!(booked.entries, 3_000, "{name}");
            assert_eq!(dyn_table.size().unwrap_or(3_000), 3_000, "{name}");
            booked.add(&add(on_threads(&entry, |part| {
                dyn_table.churn(&plan, part, 2_000).sums
            })));
            let found = add(on_threads(&entry, |part| dyn_table.probe(&plan, part)));
            assert_eq!(found, booked, "{name}");
            let emptied = add(on_threads(&entry, |part| dyn_table.empty(&plan, part).sums));
            assert_eq!(emptied.entries, -3_000, "{name}");
            dyn_table.settle();
            assert_eq!(dyn_table.size().unwrap_or(0), 0, "{name}");
            assert_eq!(dyn_table.probe(&plan, ALONE).entries, 0, "{name}");
        }
    }
}

#[test]
fn outcomes_are_those_of_a_map_with_other_threads_next_door() {
    let mut audited = 0;
    for (name, entry, dyn_table) in all(0) {
        let plan = plan(4_000, 2_000);
        on_threads(&entry, |part| dyn_table.fill(&plan, part));
        for report in on_threads(&entry, |part| dyn_table.audit(&plan, part, 5_000, 7)) {
            assert_eq!(report.problem, None, "{name}");
            assert!(report.audited <= 5_000, "{name}");
            audited += report.audited;
        }
    }
    // Where other programs use the processors, those of queue locks end early.
    assert!(audited >= 5_000, "{audited}");
}

#[test]
fn one_of_many_inserts_of_a_key_wins() {
    for (name, entry, dyn_table) in all(0) {
        // Every thread inserts every key; in total each key must have been inserted once.
        let plan = plan(500, 500);
        let inserted: u64 = on_threads(&entry, |_| dyn_table.fill(&plan, ALONE).counts.inserted)
            .iter()
            .sum();
        assert_eq!(inserted, 500, "{name}");
        let removed: u64 = on_threads(&entry, |_| dyn_table.empty(&plan, ALONE).counts.removed)
            .iter()
            .sum();
        assert_eq!(removed, 500, "{name}");
    }
}

#[test]
fn tables_that_resize_on_request_keep_their_entries_and_have_the_size() {
    let registry = registry();
    let mut resized = 0;
    for entry in registry.entries().iter().filter(|entry| entry.resizes()) {
        for kind in ["u64", "bytes"] {
            let name = format!("{} {kind}", entry.card.name);
            let Some(maker) = entry.resizable_maker(kind) else {
                continue;
            };
            let (dyn_table, plan) = (maker(&setup(40_000)), plan(40_000, 40_000));
            let booked = add(on_threads(entry, |part| dyn_table.fill(&plan, part).sums));
            for buckets in [8_192, 32_768, 8_192] {
                assert_eq!(dyn_table.resize_to(buckets), Some(()), "{name}");
                assert_eq!(dyn_table.buckets(), Some(buckets), "{name}");
                let found = add(on_threads(entry, |part| dyn_table.probe(&plan, part)));
                assert_eq!(found, booked, "{name}");
            }
            resized += 1;
        }
    }
    assert!(resized >= 4);
    let other = registry.find("hashbrown").expect("it is always there");
    assert!(!other.resizes() && other.resizable_maker("u64").is_none());
}

#[test]
fn removals_do_not_make_a_resize_miss_its_size() {
    // The load of hashbrown's shards, of which dashmap has up to 256 here: removals leave
    // tombstones.
    let entries = 93_000;
    for entry in registry().entries().iter().filter(|entry| entry.resizes()) {
        for kind in ["u64", "bytes"] {
            let name = format!("{} {kind}", entry.card.name);
            let Some(maker) = entry.resizable_maker(kind) else {
                continue;
            };
            let (dyn_table, plan) = (maker(&setup(entries as usize)), plan(entries, entries));
            on_threads(entry, |part| dyn_table.fill(&plan, part));
            for buckets in [8_192, 8_192, 16_384] {
                assert_eq!(dyn_table.resize_to(buckets), Some(()), "{name}");
                assert_eq!(dyn_table.buckets(), Some(buckets), "{name}");
                on_threads(entry, |part| dyn_table.churn(&plan, part, 2_000));
                assert_eq!(dyn_table.buckets(), Some(buckets), "{name}");
            }
        }
    }
}

#[test]
fn handles_come_and_go_with_short_threads() {
    for (name, entry, dyn_table) in all(0) {
        let plan = plan(64, 64);
        for _ in 0..20 {
            on_threads(&entry, |part| dyn_table.fill(&plan, part));
            on_threads(&entry, |part| dyn_table.empty(&plan, part));
        }
        assert_eq!(dyn_table.size().unwrap_or(0), 0, "{name}");
    }
}

#[test]
fn cards_say_something_and_names_differ() {
    let registry = registry();
    let mut names = std::collections::HashSet::new();
    for entry in registry.entries() {
        let card = &entry.card;
        assert!(names.insert(card.name.clone()), "{} twice", card.name);
        for field in [
            &card.about,
            &card.version,
            &card.language,
            &card.memory,
            &card.hasher,
            &card.guarantees,
            &card.settings,
            &card.adapter,
            &card.batch,
        ] {
            assert!(!field.is_empty(), "{}", card.name);
            assert!(!field.contains("unknown"), "{card:?}");
            assert!(!field.contains("  ") && !field.contains('\n'), "{field}");
        }
        assert!(entry.null || !card.reclamation.is_empty(), "{}", card.name);
    }
    let missing: Vec<_> = registry
        .missing()
        .iter()
        .map(|missing| missing.name.clone())
        .collect();
    assert!(missing.iter().all(|name| !names.contains(name)));
}

#[test]
fn versions_are_those_of_the_lock_file() {
    let lock = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../../Cargo.lock"))
        .expect("lock file");
    let pairs: HashMap<&str, Vec<&str>> =
        lock.split("[[package]]")
            .fold(HashMap::new(), |mut pairs, part| {
                let field = |name: &str| {
                    let line = part.lines().find_map(|line| line.strip_prefix(name));
                    line.map(|rest| rest.trim_matches([' ', '=', '"']))
                };
                if let (Some(name), Some(version)) = (field("name"), field("version")) {
                    pairs.entry(name).or_default().push(version);
                }
                pairs
            });
    let check = |name: &str, version: &str| {
        assert!(
            pairs.get(name).is_some_and(|all| all.contains(&version)),
            "{name} {version}: {:?}",
            pairs.get(name)
        );
    };
    for (name, version) in &super::CARDS.versions {
        check(name, version);
    }
}

#[test]
fn random_operations_do_what_a_std_map_does() {
    // The audit does this through the harness; this test checks the handle directly, key by key.
    use crate::table::{Kind, MapHandle, MeasuredMap, U64};
    type Plain = super::global::Global<
        super::global::Uncounted<std::sync::RwLock<super::hashbrown::Map<U64>>>,
    >;
    let table = <Plain as MeasuredMap<U64>>::build(&Setup {
        capacity: 0,
        threads: 1,
        value_bytes: 8,
        key_bytes: 8,
        ..Setup::default()
    });
    let mut handle = <Plain as MeasuredMap<U64>>::handle(&table);
    let mut model = HashMap::new();
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(3);
    for number in 0..50_000u64 {
        let key = U64::own(&rng.random_range(1..300));
        match number % 3 {
            0 => assert_eq!(
                MapHandle::<U64>::get(&mut handle, &key),
                model.get(&key).copied()
            ),
            1 => assert_eq!(
                MapHandle::<U64>::insert(&mut handle, &key, number),
                !model.contains_key(&key)
            ),
            _ => assert_eq!(
                MapHandle::<U64>::remove(&mut handle, &key),
                model.remove(&key)
            ),
        }
        if number % 3 == 1 {
            model.entry(key).or_insert(number);
        }
    }
    for key in 0..64 {
        let found = MapHandle::<U64>::get(&mut handle, &key);
        assert_eq!(found, model.get(&key).copied());
    }
}
