//! Reading result files, complete and damaged ones.

use crate::common;

use std::path::{Path, PathBuf};

use common::{BROKEN, Run, TABLES, cell};
use corewise_bench::error::BenchError;
use corewise_bench::record::{Record, Role, SCHEMA};
use corewise_bench::results::Results;

fn parse(text: &str) -> Result<Results, BenchError> {
    Results::parse(Path::new("x.jsonl"), text.as_bytes())
}

fn small() -> Run {
    let mut run = Run::empty();
    run.row(&cell("scaling", "a"), "dashmap", Role::Reference, 1e6, None);
    run.row(&cell("scaling", "a"), "dashmap", Role::Again, 1e6, None);
    run.row(&cell("scaling", "b"), "papaya", Role::DynTable, 2e6, None);
    run.end();
    run
}

#[test]
fn everything_is_given_to_its_row() {
    let run = Run::full();
    let results = run.results();
    let file = &results.files[0];
    assert_eq!(
        (file.orphans, file.truncated, file.notes().len()),
        (0, false, 0)
    );
    let written = |is: fn(&Record) -> bool| run.records.iter().filter(|r| is(r)).count();
    let sum = |of: fn(&corewise_bench::results::RowResults) -> usize| {
        results.rows().map(of).sum::<usize>()
    };
    assert_eq!(
        results.rows().count(),
        written(|r| matches!(r, Record::Row(_)))
    );
    assert_eq!(
        sum(|r| r.slices.len()),
        written(|r| matches!(r, Record::Slice(_)))
    );
    assert_eq!(
        sum(|r| r.histograms.len()),
        written(|r| matches!(r, Record::Histogram(_)))
    );
    assert_eq!(sum(|r| r.memory.len()), 5 * TABLES.len());
    let names: Vec<_> = results.sections.iter().map(|s| &*s.name).collect();
    let in_order = [
        "scaling",
        "updates",
        "workingset",
        "hot",
        "batch",
        "resize",
        "distribution",
        "resizing",
        "pinning",
        "sync",
        "latency",
        "growth",
        "tails",
        "memory",
    ];
    assert_eq!(names, in_order);
}

#[test]
fn the_reference_again_has_its_own_slices_and_no_histograms() {
    let results = Run::full().results();
    let again = results.rows().filter(|row| row.row.role == Role::Again);
    for row in again {
        assert_eq!((row.slices.len(), row.histograms.len()), (7, 0));
        assert!(row.slices.iter().all(|slice| slice.role == Role::Again));
    }
}

#[test]
fn rows_are_numbered_as_they_are_in_the_file() {
    let results = small().results();
    let numbers: Vec<_> = results.rows().map(|row| row.number).collect();
    assert_eq!(numbers, [1, 2, 3]);
}

#[test]
fn void_rows_are_known() {
    let results = Run::full().results();
    let void = results.rows().filter(|row| row.void());
    let count = void
        .inspect(|row| assert_eq!(row.row.table, BROKEN))
        .count();
    assert_eq!(Some(count), results.files[0].end.map(|end| end.void));
}

#[test]
fn a_last_line_that_is_cut_off_is_skipped_at_any_byte() {
    let whole = small().lines();
    let last = whole.trim_end().rfind('\n').expect("lines") + 1;
    for cut in last + 1..whole.len() - 1 {
        let results = parse(&whole[..cut]).expect("readable");
        let file = &results.files[0];
        assert!(file.truncated && file.end.is_none(), "cut at {cut}");
        assert_eq!((results.rows().count(), file.notes().len()), (3, 2));
    }
    let unended = parse(&whole[..last]).expect("readable");
    assert!(!unended.files[0].truncated);
    assert_eq!(
        unended.files[0].notes(),
        ["there is no end marker: the run did not finish"]
    );
    let without_newline = parse(whole.trim_end()).expect("readable");
    assert!(without_newline.files[0].notes().is_empty());
}

#[test]
fn a_character_cut_in_half_is_no_error() {
    let mut run = small();
    run.records.pop();
    let mut bytes = run.lines().into_bytes();
    bytes.extend("{\"type\":\"row\",\"table\":\"µ".as_bytes());
    bytes.pop();
    let results = Results::parse(Path::new("x"), &bytes).expect("readable");
    assert!(results.files[0].truncated);
}

#[test]
fn a_run_that_died_within_a_row_leaves_orphans() {
    let mut run = small();
    run.records.truncate(run.records.len() - 2);
    let results = parse(&run.lines()).expect("readable");
    assert_eq!((results.rows().count(), results.files[0].orphans), (2, 7));
    assert!(
        results.files[0]
            .notes()
            .iter()
            .any(|note| note.starts_with("7 records"))
    );
}

#[test]
fn an_end_marker_that_counts_otherwise_is_noted() {
    let mut run = small();
    run.records
        .retain(|r| !matches!(r, Record::Row(row) if row.table == "papaya"));
    let notes = parse(&run.lines()).expect("readable").files[0].notes();
    assert!(
        notes
            .iter()
            .any(|note| note == "the end marker counts 3 rows, the file has 2"),
        "{notes:?}"
    );
}

#[test]
fn damage_is_named_by_its_line() {
    let whole = small().lines();
    let lines: Vec<&str> = whole.lines().collect();
    for at in 1..lines.len() {
        for garbage in [
            "",
            "{\"type\":\"row\"",
            "{\"type\":\"nonsense\"}",
            "\u{0}\u{0}",
        ] {
            let mut broken = lines.clone();
            broken[at] = garbage;
            let text = broken.join("\n") + "\n";
            match parse(&text) {
                Err(error) => {
                    let start = format!("x.jsonl: line {} is damaged: ", at + 1);
                    assert!(error.to_string().starts_with(&start), "{error}");
                }
                other => panic!("line {at} as {garbage:?}: {other:?}"),
            }
        }
    }
    let doubled = format!("{whole}{}\n", lines[1]);
    let error = parse(&doubled).expect_err("records after the end");
    assert!(
        error.to_string().contains("after the end marker"),
        "{error}"
    );
    let error = parse(&format!("{}\n{}\n", lines[0], lines[0])).expect_err("two manifests");
    assert_eq!(
        error.to_string(),
        "x.jsonl: line 2 is damaged: a second manifest"
    );
}

#[test]
fn other_files_are_refused() {
    for text in [
        "",
        "\n",
        "hello\n",
        "[1]\n",
        "{}\n",
        "7",
        "{\"type\":\"row\"}\n",
        "{\"type\":\"manifest\"}\n",
        "{\"type\":\"mani",
    ] {
        let error = parse(text).expect_err("not results");
        assert!(
            error.to_string().contains("not a result file"),
            "{text:?}: {error}"
        );
        assert!(!error.to_string().contains('\n'));
    }
    let error = parse("{\"type\":\"manifest\",\"schema\":1}\n").expect_err("no manifest");
    assert!(error.to_string().contains("line 1 is damaged"), "{error}");
}

#[test]
fn a_newer_format_is_refused_even_if_all_else_changed() {
    let text = format!("{{\"type\":\"manifest\",\"schema\":{}}}\n", SCHEMA + 1);
    let error = parse(&text).expect_err("newer");
    assert_eq!(
        error.to_string(),
        format!(
            "x.jsonl: written in format {}, this program reads up to {SCHEMA}; use a newer one",
            SCHEMA + 1
        )
    );
}

#[test]
fn files_are_read_from_disk() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("results.jsonl");
    std::fs::write(&path, small().lines()).expect("written");
    assert_eq!(Results::read(&[&path]).expect("readable").rows().count(), 3);
    let missing = Results::read(&[folder.path().join("none")]).expect_err("missing");
    assert!(
        missing.to_string().ends_with("none: no such file"),
        "{missing}"
    );
    let error = Results::read(&[folder.path()]).expect_err("a folder");
    assert!(error.to_string().contains("cannot be read"), "{error}");
    let none = Results::read::<PathBuf>(&[]).expect_err("no file");
    assert_eq!(none.to_string(), "no result file given");
}

#[test]
fn files_that_measured_the_same_are_told_apart() {
    let folder = tempfile::tempdir().expect("a folder");
    let paths = ["a.jsonl", "b.jsonl"].map(|name| folder.path().join(name));
    let mut other = Run::empty();
    other.row(&cell("scaling", "a"), "dashmap", Role::Reference, 3e6, None);
    other.row(&cell("scaling", "a"), "scc", Role::DynTable, 3e6, None);
    other.end();
    std::fs::write(&paths[0], small().lines()).expect("written");
    std::fs::write(&paths[1], other.lines()).expect("written");
    let results = Results::read(&paths).expect("readable");
    assert_eq!(results.sections[0].cells.len(), 2);
    let labels: Vec<_> = results.rows().map(|row| &*row.label).collect();
    assert_eq!(
        labels,
        ["dashmap [1]", "dashmap [1]", "dashmap [2]", "scc", "papaya"]
    );
    assert!(results.rows().all(|row| row.slices.len() == 7));
    assert_eq!(
        results.rows().map(|row| row.file).collect::<Vec<_>>(),
        [0, 0, 1, 1, 0]
    );
}
