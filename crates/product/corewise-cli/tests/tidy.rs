//! The style of the whole repository: what neither rustfmt nor clippy checks.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs};

/// Columns of a line with a comment.
const WIDTH: usize = 100;
/// Lines of a function.
const LONGEST_FUNCTION: usize = 70;
/// Lines above an atomic ordering in which its comment may stand.
const COMMENT_REACH: usize = 6;
/// The orderings of atomic accesses.
const ORDERINGS: &[&str] = &["Relaxed", "Acquire", "Release", "AcqRel", "SeqCst"];
/// Phrases that are unidiomatic or name an actor that does not exist.
const BANNED: &[&str] = &[
    "whoever",
    "so many",
    "for what",
    "says so",
    "somebody",
    "as many as",
    "those who",
];

/// What a SAFETY comment must not consist of.
const REFERENCES: &[&str] = &["as above", "as before", "see above"];

/// Names that several public types have, with the reason; every other name is that of one type.
const SHARED_NAMES: &[(&str, &str)] = &[
    (
        "roles that the name of their module completes",
        "Builder Codec Config Entry Eviction IntoIter Iter Keys Limits Step Values",
    ),
    (
        "errors of the operations that they name",
        "BuildError InsertError LoadError",
    ),
    (
        "what a replicated structure can be asked for, and answers",
        "Read Response Write",
    ),
    (
        "an operation on an entry, or on a replicated structure",
        "Operation",
    ),
    ("a cache of programs, and one of a CPU", "Cache"),
];

/// Folders of the server that work for all protocols, and words that only a protocol has.
const NEUTRAL: [&str; 2] = ["turn", "event_loop"];
const WORDS_OF_PROTOCOLS: &[&str] = &["admin", "binary", "cphash", "memcached", "redis", "resp"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .nth(3)
        .expect("the crate lies in crates/FOLDER/")
        .to_path_buf()
}

/// All files of the repository with this extension, without build output and hidden directories.
fn files(extension: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut directories = vec![root()];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            if name.starts_with('.') || name == "target" {
                continue;
            }
            if path.is_dir() {
                directories.push(path);
            } else if path.extension().is_some_and(|found| found == extension) {
                found.push(path);
            }
        }
    }
    assert!(!found.is_empty(), "no .{extension} files");
    found.sort();
    found
}

/// Lists what `check` finds in the files, as `path:line: complaint`.
fn complaints(extension: &str, check: impl Fn(&str) -> Vec<(usize, String)>) -> String {
    complaints_about(files(extension), check)
}

fn complaints_about(
    files: impl IntoIterator<Item = PathBuf>,
    check: impl Fn(&str) -> Vec<(usize, String)>,
) -> String {
    let mut list = String::new();
    for path in files {
        let text = fs::read_to_string(&path).unwrap();
        let name = path.strip_prefix(root()).unwrap().display().to_string();
        for (line, complaint) in check(&text) {
            writeln!(list, "{name}:{line}: {complaint}").unwrap();
        }
    }
    list
}

#[track_caller]
fn assert_none(complaints: &str) {
    assert!(complaints.is_empty(), "\n{complaints}");
}

/// The lines of a text with a comment, each with its number and the comment.
fn comments(text: &str) -> impl Iterator<Item = (usize, &str, &str)> {
    text.lines().enumerate().filter_map(|(index, line)| {
        let start = line.find("//")?;
        Some((index + 1, line, &line[start..]))
    })
}

fn too_wide(text: &str) -> Vec<(usize, String)> {
    let is_exempt = |line: &str| line.contains('|') || line.contains("http");
    comments(text)
        .filter(|(_, line, _)| line.chars().count() > WIDTH && !is_exempt(line))
        .map(|(number, ..)| (number, format!("wider than {WIDTH} columns")))
        .collect()
}

/// The first of the banned phrases in these words.
fn banned_phrase<'w>(words: impl Iterator<Item = &'w str>) -> Option<&'static str> {
    let words = words.filter(|word| !word.is_empty());
    let words: Vec<String> = words.map(str::to_lowercase).collect();
    let sentence = format!(" {} ", words.join(" "));
    let is_there = |phrase: &&&str| sentence.contains(&format!(" {phrase} "));
    BANNED.iter().find(is_there).copied()
}

fn banned_phrases(text: &str) -> Vec<(usize, String)> {
    let find = |comment| banned_phrase(words(comment));
    comments(text)
        .filter_map(|(number, _, comment)| Some((number, format!("\"{}\"", find(comment)?))))
        .collect()
}

/// Identifiers of several words with a banned phrase.
fn banned_names(text: &str) -> Vec<(usize, String)> {
    let is_banned = |name: &&str| banned_phrase(name.split('_')).is_some();
    let banned = |line| {
        words(line)
            .filter(|name| name.contains('_'))
            .find(is_banned)
    };
    let lines = (1..).zip(text.lines());
    lines
        .filter_map(|(number, line)| Some((number, banned(line)?.to_owned())))
        .collect()
}

/// The comments of a shell script with a banned phrase.
fn banned_in_script(text: &str) -> Vec<(usize, String)> {
    let lines = (1..).zip(text.lines());
    let comments = lines.filter(|(_, line)| line.trim_start().starts_with('#'));
    comments
        .filter_map(|(number, line)| Some((number, banned_phrase(words(line))?.to_owned())))
        .collect()
}

/// Lines by which a crate includes a file of another crate.
fn foreign_files(text: &str) -> Vec<(usize, String)> {
    let is_foreign = |line: &str| {
        let line = line.trim_start();
        let ways = ["#[path", "include!(", "include_str!("];
        ways.iter().any(|way| line.starts_with(way)) && line.contains("/corewise-")
    };
    (1..)
        .zip(text.lines())
        .filter(|(_, line)| is_foreign(line))
        .map(|(number, line)| (number, line.to_owned()))
        .collect()
}

/// SAFETY comments that state no reason.
fn empty_safety_comments(text: &str) -> Vec<(usize, String)> {
    let lines: Vec<&str> = text.lines().map(str::trim_start).collect();
    let comment = |index: usize| {
        let first = lines[index].strip_prefix("// SAFETY:")?;
        let rest = lines[index + 1..]
            .iter()
            .map_while(|line| line.strip_prefix("//"));
        let words = std::iter::once(first).chain(rest).flat_map(|line| {
            let words = line.split(|c: char| !c.is_alphanumeric());
            words.filter(|word| !word.is_empty()).map(str::to_lowercase)
        });
        Some(words.collect::<Vec<_>>().join(" "))
    };
    (0..lines.len())
        .filter_map(|index| {
            let comment = comment(index)?;
            let is_empty = comment.is_empty() || REFERENCES.contains(&comment.as_str());
            is_empty.then(|| (index + 1, format!("SAFETY comment \"{comment}\"")))
        })
        .collect()
}

/// Whether the line begins a function.
fn is_function(code: &str) -> bool {
    let mut parts = code.split(' ').take_while(|part| !part.contains('('));
    !code.starts_with("//") && !code.contains(" = ") && parts.any(|part| part == "fn")
}

/// Relies on rustfmt: a function ends at the first line with a closing brace in its column.
fn long_functions(text: &str) -> Vec<(usize, String)> {
    let lines: Vec<&str> = text.lines().collect();
    let mut found = Vec::new();
    for (index, line) in lines.iter().enumerate() {
        let code = line.trim_start();
        if !is_function(code) || code.ends_with(';') {
            continue;
        }
        let indent = &line[..line.len() - code.len()];
        let end = format!("{indent}}}");
        // A declaration without a body.
        let ends_at_once = |line: &str| {
            let rest = line.strip_prefix(indent).unwrap_or_default();
            rest.ends_with(';') && !rest.starts_with(' ')
        };
        let last = |line: &&str| *line == end || ends_at_once(line);
        let length = lines[index..].iter().position(last);
        if let Some(length) = length.map(|length| length + 1)
            && length > LONGEST_FUNCTION
        {
            found.push((index + 1, format!("a function of {length} lines")));
        }
    }
    found
}

/// Whether an attribute compiles what follows only in tests.
fn is_test_attribute(line: &str) -> bool {
    let is_cfg = line.starts_with("#[cfg(test") || line.starts_with("#[cfg(all(test");
    is_cfg || line.starts_with("#[cfg(doctest")
}

/// Whether the line with this index has an attribute of that kind.
fn is_for_tests(lines: &[&str], index: usize) -> bool {
    let above = lines[..index].iter().rev().map(|line| line.trim());
    above
        .take_while(|line| line.starts_with("#["))
        .any(is_test_attribute)
}

/// The files of the modules that `file` declares for tests.
fn test_modules(file: &Path) -> Vec<PathBuf> {
    let text = fs::read_to_string(file).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    let parent = file.parent().unwrap();
    let directory = match file.file_stem().and_then(|stem| stem.to_str()) {
        Some("lib" | "main" | "mod") => parent.to_path_buf(),
        Some(stem) => parent.join(stem),
        None => return Vec::new(),
    };
    let modules = (0..lines.len()).filter(|&index| is_for_tests(&lines, index));
    modules
        .filter_map(|index| {
            let name = lines[index].split("mod ").nth(1)?.strip_suffix(';')?;
            let path = lines[index - 1].strip_prefix("#[path = \"");
            let named = path.and_then(|path| path.strip_suffix("\"]"));
            Some(match named {
                Some(path) => parent.join(path),
                None => directory.join(name).with_extension("rs"),
            })
        })
        .collect()
}

/// The source files of the crates, without tests.
fn sources() -> Vec<PathBuf> {
    let crates = root().join("crates");
    let is_source = |path: &PathBuf| {
        let inside = path.strip_prefix(&crates).ok();
        inside.is_some_and(|path| path.iter().nth(2).is_some_and(|part| part == "src"))
    };
    let all: Vec<PathBuf> = files("rs").into_iter().filter(is_source).collect();
    let tests: HashSet<PathBuf> = all.iter().flat_map(|path| test_modules(path)).collect();
    let is_test = |path: &PathBuf| {
        let directory = |test: &PathBuf| path.starts_with(test.with_extension(""));
        tests.contains(path) || tests.iter().any(directory)
    };
    all.into_iter().filter(|path| !is_test(path)).collect()
}

/// The lines of a source file but those of modules of tests within it.
fn without_tests(text: &str) -> usize {
    let mut lines = text.lines().peekable();
    let mut count = 0;
    while let Some(line) = lines.next() {
        let is_module = |next: &&str| next.contains("mod ") && next.ends_with('{');
        if line.starts_with("#[cfg(test)]") && lines.peek().is_some_and(is_module) {
            lines.find(|line| line.starts_with('}'));
        } else {
            count += 1;
        }
    }
    count
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_alphanumeric() && c != '_')
}

/// An ordering in a line of code that none of these comments explains.
fn bare_ordering(code: &str, comments: &[&str]) -> Option<&'static str> {
    let code = code.split("//").next().unwrap_or_default();
    let explains = |word: &str, ordering: &str| {
        word == ordering || ["orders", "Orders", "pairs", "Pairs"].contains(&word)
    };
    ORDERINGS.iter().copied().find(|ordering| {
        let is_used = !code.contains("use ") && words(code).any(|word| word == *ordering);
        let mut comments = comments.iter().flat_map(|comment| words(comment));
        is_used && !comments.any(|word| explains(word, ordering))
    })
}

/// Atomic orderings without a comment that names them, or tells what they order or pair with: on
/// the line, in the lines above, or in the documentation of the function. Skips modules of tests,
/// which relies on rustfmt.
fn bare_orderings(text: &str) -> Vec<(usize, String)> {
    let lines: Vec<&str> = text.lines().collect();
    let mut found = Vec::new();
    let mut documentation: Vec<&str> = Vec::new();
    let mut index = 0;
    while index < lines.len() {
        let line = lines[index];
        let code = line.trim_start();
        if code.ends_with('{') && code.contains("mod ") && is_for_tests(&lines, index) {
            let end = format!("{}}}", &line[..line.len() - code.len()]);
            let length = lines[index..].iter().position(|line| *line == end);
            index += length.unwrap_or(lines.len());
            continue;
        }
        if is_function(code) {
            let above = lines[..index].iter().rev();
            let is_above =
                |line: &&&str| line.trim().starts_with("///") || line.trim().starts_with("#[");
            documentation = above.take_while(is_above).copied().collect();
        }
        let near = &lines[index.saturating_sub(COMMENT_REACH)..=index];
        let comments = near
            .iter()
            .filter_map(|line| line.find("//").map(|at| &line[at..]));
        let comments: Vec<&str> = comments.chain(documentation.iter().copied()).collect();
        if let Some(ordering) = bare_ordering(code, &comments) {
            found.push((index + 1, format!("{ordering} without a comment")));
        }
        index += 1;
    }
    found
}

/// The words of an identifier, in lower case: `RespSession` and `resp_session` have the same two.
fn words_of_name(name: &str) -> Vec<String> {
    let mut list = vec![String::new()];
    for c in name.chars() {
        if c == '_' || c.is_uppercase() {
            list.push(String::new());
        }
        if let Some(word) = list.last_mut().filter(|_| c != '_') {
            word.extend(c.to_lowercase());
        }
    }
    list
}

/// Lines that name a protocol, or the module with the commands of one.
fn named_protocols(text: &str) -> Vec<(usize, String)> {
    let names_one = |line: &str| {
        let mut words = words(line).flat_map(words_of_name);
        words.any(|word| WORDS_OF_PROTOCOLS.contains(&&*word)) || line.contains("crate::commands")
    };
    let lines = (1..).zip(text.lines());
    lines
        .filter(|(_, line)| names_one(line))
        .map(|(number, line)| (number, format!("names a protocol: {}", line.trim())))
        .collect()
}

/// The test programs that a manifest names.
fn test_programs(manifest: &str) -> HashSet<&str> {
    let sections = manifest.split("[[test]]").skip(1);
    sections
        .filter_map(|section| {
            section
                .trim_start()
                .strip_prefix("name = \"")?
                .split('"')
                .next()
        })
        .collect()
}

/// The files in `tests/`, by their names without the extension, that no test program contains:
/// neither a `[[test]]` of the manifest nor a module of one. Expects `autotests = false`.
fn tests_left_out<'a>(manifest: &str, files: &'a [(String, String)]) -> Vec<&'a str> {
    let programs = test_programs(manifest);
    let is_program = |name: &str| programs.contains(name);
    let is_module = |name: &str| {
        let declaration = format!("mod {name};");
        let mut roots = files.iter().filter(|(root, _)| is_program(root));
        roots.any(|(_, text)| text.lines().any(|line| line == declaration))
    };
    let names = files.iter().map(|(name, _)| name.as_str());
    names
        .filter(|name| !is_program(name) && !is_module(name))
        .collect()
}

/// The Rust files directly in a folder: their names without the extension, and their texts.
fn rust_files(folder: &Path) -> Vec<(String, String)> {
    let paths = fs::read_dir(folder).unwrap().map(|e| e.unwrap().path());
    paths
        .filter(|path| path.extension().is_some_and(|extension| extension == "rs"))
        .map(|path| {
            let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
            (name, fs::read_to_string(&path).unwrap())
        })
        .collect()
}

fn crate_folders() -> Vec<PathBuf> {
    let inside = |folder: &Path| -> Vec<PathBuf> {
        let entries = fs::read_dir(folder).unwrap();
        entries.map(|entry| entry.unwrap().path()).collect()
    };
    let groups = inside(&root().join("crates"));
    groups.iter().flat_map(|group| inside(group)).collect()
}

/// With `autotests = false`, cargo ignores a file that nothing names.
#[test]
fn every_test_file_is_in_a_program() {
    let mut left_out = String::new();
    for folder in crate_folders() {
        let manifest = fs::read_to_string(folder.join("Cargo.toml")).unwrap();
        if !manifest.lines().any(|line| line == "autotests = false") {
            continue;
        }
        for name in tests_left_out(&manifest, &rust_files(&folder.join("tests"))) {
            writeln!(left_out, "{}/tests/{name}.rs", folder.display()).unwrap();
        }
    }
    assert_none(&left_out);
}

/// The public types that a file defines outside of inner modules.
fn public_types(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter_map(|line| {
        let item = line.strip_prefix("pub ")?;
        let item = item.strip_prefix("unsafe ").unwrap_or(item);
        let (keyword, name) = item.split_once(' ')?;
        let is_type = ["struct", "enum", "trait", "type", "union"].contains(&keyword);
        let end = name.find(|c: char| !c.is_alphanumeric() && c != '_');
        is_type.then(|| &name[..end.unwrap_or(name.len())])
    })
}

/// Names that public types of several files have, unless they are among `allowed`.
fn repeated_types<'t>(files: &'t [(String, String)], allowed: &[&str]) -> Vec<(&'t str, String)> {
    let mut places: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (file, text) in files {
        for name in public_types(text) {
            places.entry(name).or_default().insert(file);
        }
    }
    places.retain(|name, files| files.len() > 1 && !allowed.contains(name));
    let list = |files: BTreeSet<&str>| files.into_iter().collect::<Vec<_>>().join(", ");
    let repeated = places.into_iter();
    repeated.map(|(name, files)| (name, list(files))).collect()
}

#[test]
fn no_two_public_types_have_one_name() {
    let is_source = |path: &PathBuf| path.components().any(|part| part.as_os_str() == "src");
    let files: Vec<_> = files("rs")
        .into_iter()
        .filter(is_source)
        .map(|path| {
            let text = fs::read_to_string(&path).unwrap();
            let path = path.strip_prefix(root()).unwrap();
            (path.display().to_string(), text)
        })
        .collect();
    let names = SHARED_NAMES.iter().map(|(_, names)| names);
    let allowed: Vec<_> = names.flat_map(|names| names.split(' ')).collect();
    let repeated = repeated_types(&files, &allowed);
    assert!(repeated.is_empty(), "types of one name: {repeated:#?}");
}

#[test]
fn comments_fit_the_width() {
    assert_none(&complaints("rs", too_wide));
}

#[test]
fn comments_are_free_of_banned_phrases() {
    assert_none(&complaints("rs", banned_phrases));
}

#[test]
fn names_are_free_of_banned_phrases() {
    assert_none(&complaints("rs", banned_names));
}

#[test]
fn scripts_are_free_of_banned_phrases() {
    let entries = fs::read_dir(root().join("scripts")).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    assert_none(&complaints_about(
        paths.filter(|path| path.is_file()),
        banned_in_script,
    ));
}

#[test]
fn safety_comments_state_their_reasons() {
    assert_none(&complaints("rs", empty_safety_comments));
}

#[test]
fn functions_are_short() {
    assert_none(&complaints("rs", long_functions));
}

#[test]
fn atomic_orderings_have_comments() {
    assert_none(&complaints_about(sources(), bare_orderings));
}

/// What differs between protocols stands behind `codec` and `call`.
#[test]
fn turns_and_loops_name_no_protocol() {
    let source = root().join("crates/product/corewise-server/src");
    for folder in NEUTRAL {
        let mut files = sources();
        files.retain(|path| path.starts_with(source.join(folder)));
        assert!(!files.is_empty(), "{folder} has no files");
        assert_none(&complaints_about(files, named_protocols));
    }
}

#[test]
fn every_name_of_a_protocol_is_found() {
    for line in [
        "use corewise_wire::{Step, binary};",
        "(Call::Memcached(call), _) => {}",
        "let session = RespSession::new();",
        "counters.resp_calls += 1;",
        "fn administer(&mut self, admin: Admin<'_>) {}",
        "use crate::commands;",
    ] {
        assert_eq!(named_protocols(line).len(), 1, "{line}");
    }
    let neutral = "let response = administrative(Responses, &state.commands, binaries);";
    assert!(named_protocols(neutral).is_empty());
}

#[test]
fn no_crate_includes_files_of_another() {
    // The fuzz targets are tests of corewise-wire with another source of input, and share its
    // drivers. They are no part of the workspace.
    let mut files = files("rs");
    files.retain(|path| !path.starts_with(root().join("fuzz")));
    assert_none(&complaints_about(files, foreign_files));
}

#[test]
fn every_way_to_include_a_foreign_file_is_found() {
    let ways = "#[path = \"../CRATE/a.rs\"]\n include!(\"../CRATE/a\");";
    let foreign = ways.replace("CRATE", "corewise-maps");
    assert_eq!(foreign_files(&foreign).len(), 2);
    assert!(foreign_files("#[path = \"common/a.rs\"]\nmod a;").is_empty());
}

#[test]
fn links_between_documents_lead_somewhere() {
    let mut dead = String::new();
    for path in files("md") {
        let text = fs::read_to_string(&path).unwrap();
        for link in text.split("](").skip(1) {
            let target = link.split([')', '#']).next().unwrap_or_default();
            let is_local = !target.is_empty() && !target.contains("://");
            if is_local && !path.parent().unwrap().join(target).exists() {
                writeln!(dead, "{}: {target}", path.display()).unwrap();
            }
        }
    }
    assert_none(&dead);
}

/// The dependencies of this workspace that a manifest has, without those of tests and builds.
fn dependencies(manifest: &str) -> BTreeSet<&str> {
    let sections = manifest.split("\n[").skip(1);
    let normal = sections.filter(|section| {
        let name = section.split(']').next().unwrap_or_default();
        name == "dependencies" || name.starts_with("target.") && name.ends_with(".dependencies")
    });
    normal
        .flat_map(str::lines)
        .filter_map(|line| line.strip_prefix("corewise-"))
        .map(|line| line.split(['.', ' ', '=']).next().unwrap_or_default())
        .collect()
}

/// The arrows of the graph of crates: from each crate to those that it depends on.
fn arrows(document: &str) -> BTreeMap<&str, BTreeSet<&str>> {
    let graph = document.split("```text").nth(1).unwrap_or_default();
    let graph = graph.split("```").next().unwrap_or_default();
    let mut arrows = BTreeMap::new();
    for line in graph.lines() {
        let Some((from, to)) = line.split_once('▶') else {
            continue;
        };
        // Two blanks or more end what stands in the margin.
        let from = from.trim_end_matches([' ', '─']);
        let from = from.rsplit("  ").next().unwrap_or_default();
        let to: BTreeSet<&str> = to.split(',').map(str::trim).collect();
        for name in from.split(',') {
            assert_eq!(arrows.insert(name.trim(), to.clone()), None, "{name}");
        }
    }
    arrows
}

#[test]
fn the_graph_of_crates_is_that_of_the_manifests() {
    let document = fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let mut arrows = arrows(&document);
    for folder in crate_folders() {
        let manifest = fs::read_to_string(folder.join("Cargo.toml")).unwrap();
        let name = folder.file_name().unwrap().to_string_lossy();
        let name = name.strip_prefix("corewise-").unwrap();
        let drawn = arrows.remove(name).unwrap_or_default();
        assert_eq!(drawn, dependencies(&manifest), "of {name}");
    }
    assert!(arrows.is_empty(), "{arrows:?}");
}

/// The modules that a file names as `crate::MODULE`, outside of comments and of its tests, which
/// come last.
fn modules_named(text: &str) -> impl Iterator<Item = &str> {
    let lines = text.lines().take_while(|line| *line != "mod tests {");
    let code = lines.filter(|line| !line.trim_start().starts_with("//"));
    code.flat_map(|line| line.split("crate::").skip(1))
        .map(|rest| words(rest).next().unwrap_or_default())
}

/// What can be reached from a node, by one arrow or more.
fn reachable<'g>(graph: &BTreeMap<&'g str, BTreeSet<&'g str>>, from: &'g str) -> BTreeSet<&'g str> {
    let mut found = BTreeSet::new();
    let mut new: Vec<&str> = vec![from];
    while let Some(node) = new.pop() {
        let next = graph.get(node).into_iter().flatten();
        new.extend(next.filter(|next| found.insert(**next)));
    }
    found
}

#[test]
fn the_circle_of_the_modules_of_the_server_is_that_of_the_document() {
    let source = root().join("crates/product/corewise-server/src");
    let mut texts: Vec<(String, String)> = Vec::new();
    for path in sources() {
        if let Ok(inside) = path.strip_prefix(&source) {
            let module = inside.iter().next().unwrap().to_string_lossy();
            let module = module.trim_end_matches(".rs").to_owned();
            texts.push((module, fs::read_to_string(&path).unwrap()));
        }
    }
    let mut graph: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (module, text) in &texts {
        let others = modules_named(text).filter(|other| other != module);
        graph.entry(module).or_default().extend(others);
    }
    let in_circle = |module: &&&str| reachable(&graph, module).contains(**module);
    let circle: BTreeSet<&str> = graph.keys().filter(in_circle).copied().collect();
    let document = fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let list = document.split("with this list: ").nth(1).unwrap();
    let list = list.split('.').next().unwrap();
    let listed: BTreeSet<&str> = list.split('`').skip(1).step_by(2).collect();
    assert_eq!(circle, listed);
}

/// A package is published without what lies above it, so it has the licences in its own folder:
/// links, which cargo follows when it packages. `.ci/package` looks into the packages.
#[test]
fn published_crates_have_the_licences() {
    for name in ["LICENSE-APACHE", "LICENSE-MIT"] {
        let text = fs::read(root().join(name)).unwrap();
        for package in ["atomic", "rcu", "maps", "cache"].map(|name| format!("corewise-{name}")) {
            let path = root().join("crates/product").join(package).join(name);
            assert!(fs::read(&path).unwrap() == text, "{}", path.display());
        }
    }
}

/// Who reads the program of a crate's README also finds there how to depend on the crate.
/// `.ci/package` builds a project with these lines. (The simulator is for this workspace only.)
#[test]
fn readmes_with_a_program_name_the_dependency() {
    let mut found = 0;
    for path in files("md") {
        let text = fs::read_to_string(&path).unwrap();
        let folder = path.parent().unwrap();
        let name = folder.file_name().unwrap().to_str().unwrap();
        let is_of_a_crate = path.ends_with("README.md") && path.starts_with(root().join("crates"));
        if !is_of_a_crate || !text.contains("```rust") || name == "corewise-sim" {
            continue;
        }
        let place = folder.strip_prefix(root()).unwrap().display();
        let line = format!("{name} = {{ path = \"../corewise/{place}\" }}");
        assert!(text.contains(&line), "{}: {line}", path.display());
        found += 1;
    }
    assert!(found >= 8, "{found} READMEs have a program");
}

#[test]
fn the_readme_is_short() {
    let readme = fs::read_to_string(root().join("README.md")).unwrap();
    let lines = readme.lines().count();
    assert!(lines <= 120, "{lines} lines");
}

/// The benchmark is a part of the project, not most of it. All lines count but those of tests.
#[test]
fn the_benchmark_stays_small() {
    const MOST: usize = 22_000;
    let bench = root().join("crates/measure/corewise-bench/src");
    let of_bench = sources()
        .into_iter()
        .filter(|path| path.starts_with(&bench));
    let lines = |path: PathBuf| without_tests(&fs::read_to_string(path).unwrap());
    let lines: usize = of_bench.map(lines).sum();
    assert!(lines <= MOST, "{lines} lines");
    assert!(lines > MOST / 2, "{lines} lines: most were not found");
    let inside = "a\n#[cfg(test)]\nmod tests {\n    b\n}\nc\n";
    assert_eq!(without_tests(inside), 2);
}

#[test]
fn each_check_finds_what_it_is_for() {
    let wide = format!("fn f() {{}} // {}", "x".repeat(WIDTH));
    assert_eq!(too_wide(&wide).len(), 1);
    let slashes = "///";
    let banned = format!("{slashes} Whoever\n{slashes} so-many whoeverness\n");
    assert_eq!(banned_phrases(&banned).len(), 2);
    let name = format!("fn it_{}_so() {{}}\nfn it_says_something() {{}}\n", "says");
    assert_eq!(banned_names(&name).len(), 1);
    let script = format!("# It {}\n# So many of them\n", "says");
    assert_eq!(banned_in_script(&script).len(), 1);
    let empty = format!(
        "{0} as above.\nf();\n{0}\n// See\n// above:\nf();\n{0}",
        "// SAFETY:"
    );
    assert_eq!(empty_safety_comments(&empty).len(), 3);
    let stated = format!("{0} as above;\n// it is ours.\n", "// SAFETY:");
    assert!(empty_safety_comments(&stated).is_empty());
    let long = format!("fn f() {{\n{}}}\n", "    g();\n".repeat(LONGEST_FUNCTION));
    assert_eq!(long_functions(&long).len(), 1);
    assert!(long_functions("fn f() {\n}\nfn g() {\n}\n").is_empty());
    assert_eq!(
        bare_orderings("fn f() {\n    a.load(Relaxed);\n}\n").len(),
        1
    );
    let tests = [
        ("all", "mod a;\n"),
        ("alone", "mod x;\n"),
        ("a", "mod c;\n"),
    ];
    let left_out = [("b", ""), ("c", "")];
    let file = |(name, text): (&str, &str)| (name.to_owned(), text.to_owned());
    let manifest = "[[test]]\nname = \"all\"\n\n[[test]]\nname = \"alone\"\nharness = false\n";
    let files: Vec<_> = tests.into_iter().chain(left_out).map(file).collect();
    assert_eq!(tests_left_out(manifest, &files), ["b", "c"]);
    let far = "\n".repeat(COMMENT_REACH);
    assert_eq!(
        bare_orderings(&format!("// Relaxed: a hint.\n{far}a.load(Relaxed);\n")).len(),
        1
    );
    assert_eq!(
        bare_orderings("// Relaxed: a hint.\na.store(1, Release);\n").len(),
        1
    );
    let named = |text: &str| {
        (
            text.to_owned(),
            format!("pub {text}\n    pub struct Inner;\n"),
        )
    };
    let files = [
        "enum A {}",
        "unsafe trait A {}",
        "type B<T> = T;",
        "struct B;",
    ]
    .map(named);
    assert_eq!(repeated_types(&files, &["B"]).len(), 1);
    for fine in [
        "a.load(Relaxed); // Relaxed: a hint.",
        "// Pairs with the load in `g`.\na.store(1, Ordering::Release);",
        "/// Acquire: see `g`.\n#[inline]\npub fn f() {\n\n\n\n\n\n\n\n    a.load(Acquire);\n}",
        "#[cfg(test)]\nmod tests {\n    fn f() {\n        a.load(Relaxed);\n    }\n}",
        "use Ordering::Relaxed;",
    ] {
        assert!(bare_orderings(fine).is_empty(), "{fine}");
    }
}
