//! The interface as it is documented: every method has an example, and every method that
//! `docs/METHODS.md` names exists.

use std::collections::BTreeSet;

/// The sources with public methods of the map and of the set.
const SOURCES: &[(&str, &str)] = &[
    (
        "copy_map/builder",
        include_str!("../src/copy_map/builder.rs"),
    ),
    ("copy_map/direct", include_str!("../src/copy_map/direct.rs")),
    ("copy_map/handle", include_str!("../src/copy_map/handle.rs")),
    ("copy_map/iter", include_str!("../src/copy_map/iter.rs")),
    ("copy_map/map", include_str!("../src/copy_map/map.rs")),
    ("builder", include_str!("../src/relativistic/builder.rs")),
    ("bulk", include_str!("../src/relativistic/bulk.rs")),
    ("direct", include_str!("../src/relativistic/direct.rs")),
    ("entry", include_str!("../src/relativistic/entry.rs")),
    (
        "exclusive",
        include_str!("../src/relativistic/exclusive.rs"),
    ),
    ("handle", include_str!("../src/relativistic/handle.rs")),
    ("iter", include_str!("../src/relativistic/iter.rs")),
    ("lookup", include_str!("../src/relativistic/lookup.rs")),
    ("map", include_str!("../src/relativistic/map.rs")),
    ("ops", include_str!("../src/relativistic/ops.rs")),
    ("set", include_str!("../src/relativistic/set/mod.rs")),
    (
        "set/traits",
        include_str!("../src/relativistic/set/traits.rs"),
    ),
];

const METHODS: &str = include_str!("../docs/METHODS.md");

const TYPES: &[&str] = &[
    "Builder",
    "CopyMap",
    "CopyMapRef",
    "Entry",
    "MapRef",
    "ModifiedEntry",
    "OccupiedEntry",
    "Ref",
    "RelativisticMap",
    "RelativisticSet",
    "SetRef",
    "VacantEntry",
];

/// A public method, and whether its documentation has an example.
struct Method {
    of: &'static str,
    name: String,
    has_example: bool,
}

/// The type of an inherent `impl`.
fn implemented(line: &str) -> Option<&'static str> {
    let line = line.trim_start();
    if !line.starts_with("impl") || line.contains(" for ") {
        return None;
    }
    let is_of = |name: &&&str| line.contains(&format!(" {name}<"));
    TYPES.iter().find(is_of).copied()
}

fn methods() -> Vec<Method> {
    let mut found = Vec::new();
    for (_, source) in SOURCES {
        let (mut of, mut has_example) = (None, false);
        for line in source.lines() {
            let text = line.trim_start();
            if text.starts_with("impl") {
                of = implemented(line);
            }
            if let Some(doc) = text.strip_prefix("///") {
                has_example |= doc.trim_start().starts_with("```");
            } else if let Some(rest) = text.strip_prefix("pub fn ") {
                let end = rest.find(['(', '<']).unwrap();
                let (of, name) = (of.expect(rest), rest[..end].to_owned());
                found.push(Method {
                    of,
                    name,
                    has_example,
                });
                has_example = false;
            } else if !text.starts_with("#[") {
                has_example = false;
            }
        }
    }
    found
}

#[test]
fn every_method_has_an_example() {
    let all = methods();
    assert!(all.len() > 100, "only {} methods are found", all.len());
    let without: Vec<String> = all
        .iter()
        .filter(|method| !method.has_example)
        .map(|method| format!("{}::{}", method.of, method.name))
        .collect();
    assert!(without.is_empty(), "without an example: {without:#?}");
}

/// The names in backquotes of the last column, such as `map.get`.
fn named() -> Vec<(&'static str, &'static str)> {
    let rows = METHODS.lines().filter(|line| line.starts_with("| "));
    let cells = rows.filter_map(|row| row.trim_end_matches([' ', '|']).rsplit('|').next());
    let quoted = cells.flat_map(|cell| cell.split('`').skip(1).step_by(2));
    quoted.filter_map(|name| name.split_once('.')).collect()
}

#[test]
fn every_method_that_the_table_names_exists() {
    let all = methods();
    let exists = |types: &[&str], name: &str| {
        let is_it = |method: &Method| types.contains(&method.of) && method.name == name;
        all.iter().any(is_it)
    };
    let named = named();
    assert!(named.len() > 60, "only {} names are found", named.len());
    for (on, name) in &named {
        let types: &[&str] = match *on {
            "map" => &["RelativisticMap"],
            "handle" => &["MapRef"],
            "entry" => &["Entry"],
            "set" => &["SetRef", "RelativisticSet"],
            other => panic!("{other}.{name}: of which type?"),
        };
        assert!(exists(types, name), "{on}.{name} does not exist");
    }
}

/// The table is complete: what a user calls on a handle stands in it.
#[test]
fn the_table_names_every_operation_of_a_handle() {
    let named: BTreeSet<_> = named().into_iter().map(|(_, name)| name).collect();
    for method in methods() {
        if ["MapRef", "Entry"].contains(&method.of) && method.name != "map" {
            assert!(
                named.contains(&*method.name),
                "{}::{}",
                method.of,
                method.name
            );
        }
    }
}
