//! The order of modules: a module uses modules of the same layer and of lower layers only.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// The layers that are in order, lowest first. Above them is what reads a suite or runs one.
const LAYERS: [&[&str]; 10] = [
    &["clock", "error", "stamp", "distribution", "allocator"],
    &["table", "stream", "plan", "hash"],
    &["record", "latencies", "counters", "payload", "manifest"],
    &["work"],
    &[
        "subject",
        "dyn_table",
        "entry",
        "registry",
        "sink",
        "progress",
    ],
    &["results", "plot", "figure", "compare", "judge"],
    &["workload", "verify", "contender", "claim", "format"],
    &["params", "task", "cell_run"],
    &["price", "closed_loop", "in_turn"],
    &["section"],
];

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

/// Returns the modules that a source names after `crate::`, outside of its tests and comments.
fn uses(text: &str) -> Vec<String> {
    let code = text.split("#[cfg(test)]\nmod").next().unwrap_or(text);
    let lines = code
        .lines()
        .filter(|line| !line.trim_start().starts_with("//"));
    let words = lines.flat_map(|line| line.split("crate::").skip(1));
    let name = |rest: &str| -> String {
        let is_part = |letter: &char| letter.is_alphanumeric() || *letter == '_';
        rest.chars().take_while(is_part).collect()
    };
    words.map(name).collect()
}

#[test]
fn no_module_uses_a_higher_layer() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let layer_of: BTreeMap<&str, usize> = LAYERS
        .iter()
        .enumerate()
        .flat_map(|(layer, modules)| modules.iter().map(move |module| (*module, layer)))
        .collect();
    let mut files = Vec::new();
    sources(&root, &mut files);
    let (mut checked, mut upward) = (0, Vec::new());
    for file in files {
        let below = file.strip_prefix(&root).expect("below the root");
        let first = below.iter().next().and_then(|first| first.to_str());
        let module = first.unwrap_or_default().trim_end_matches(".rs");
        let Some(layer) = layer_of.get(module) else {
            continue;
        };
        checked += 1;
        let text = fs::read_to_string(&file).expect("a source");
        for used in uses(&text) {
            let is_lower = layer_of.get(&*used).is_some_and(|other| other <= layer);
            if used.chars().next().is_some_and(char::is_lowercase) && !is_lower {
                upward.push(format!("{} uses {used}", below.display()));
            }
        }
    }
    assert!(checked > 20, "{checked} files");
    assert!(upward.is_empty(), "{}", upward.join("\n"));
}
