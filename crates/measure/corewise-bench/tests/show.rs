//! Output of `bench show` on a made-up result.

use crate::common;

use common::{BROKEN, Run, cell, set_updates};
use corewise_bench::record::{HardwareCounters, Record, Role};
use corewise_bench::results::Results;
use corewise_bench::show::{Query, show, text};

fn words(of: &[&str]) -> Vec<String> {
    of.iter().map(|word| (*word).to_owned()).collect()
}

/// Two shares of updates in which the second table has half and a quarter of the first's rate.
fn results() -> Results {
    let mut run = Run::empty();
    for (updates, factor) in [(0.0, 0.5), (50.0, 0.25)] {
        let mut cell = cell("updates", &format!("u={updates}"));
        set_updates(&mut cell, updates);
        run.row(&cell, "one", Role::Reference, 8e6, None);
        run.row(&cell, "two", Role::DynTable, 8e6 * factor, None);
        run.row(&cell, "one", Role::Again, 8e6, None);
        run.row(&cell, BROKEN, Role::DynTable, 80e6, Some("loses keys"));
    }
    run.end();
    run.results()
}

/// Ratios by table, with their intervals.
fn ratios(query: &Query) -> Vec<(String, f64, f64, f64)> {
    let lines = show(&results(), query).expect("it is there");
    let lines = serde_json::to_value(lines).expect("JSON");
    let lines = lines.as_array().expect("a list").iter();
    let some = lines.filter(|line| line["ratio"].is_number());
    let number = |value: &serde_json::Value| value.as_f64().expect("a number");
    some.map(|line| {
        let name = line["table"].as_str().expect("a name").to_owned();
        let spread = &line["ratio_spread"];
        (
            name,
            number(&line["ratio"]),
            number(&spread[0]),
            number(&spread[1]),
        )
    })
    .collect()
}

#[test]
fn ratios_are_to_a_table_or_to_a_cell() {
    let beside = Query {
        cells: words(&["u=50"]),
        to: Some("one".into()),
        ..Query::default()
    };
    let between = Query {
        tables: words(&["two"]),
        to: None,
        to_cell: Some("updates/u=0".into()),
        ..beside.clone()
    };
    let (beside, between) = (ratios(&beside), ratios(&between));
    let names: Vec<&str> = beside.iter().map(|of| &*of.0).collect();
    assert_eq!(
        names,
        ["one", "two"],
        "neither void rows nor the second appearance"
    );
    assert_eq!(beside[0].1, 1.0);
    assert_eq!(between.len(), 1);
    for ((_, value, low, high), wanted) in [(&beside[1], 0.25), (&between[0], 0.5)] {
        assert!((value / wanted - 1.0).abs() < 0.04, "{value}");
        assert!(
            low <= value && value <= high && high - low < 0.1,
            "{low} - {high}"
        );
        assert!((low / wanted - 1.0).abs() < 0.08, "{low}");
    }
}

#[test]
fn void_rows_have_a_reason_and_no_figure() {
    let lines = show(&results(), &Query::default()).expect("rows");
    let text = text(&lines);
    let void: Vec<&str> = text.lines().filter(|line| line.contains("void")).collect();
    assert_eq!(void.len(), 2);
    assert!(
        void[0].contains("loses keys") && !void[0].contains("/s"),
        "{text}"
    );
    assert_eq!(
        text.matches("updates/u=").count(),
        2,
        "a heading for each cell"
    );
}

/// A cell of one table with some counters, two processors and a load of a line each 64 ns, and one
/// without any.
fn counted() -> Run {
    let mut run = Run::empty();
    let cell = cell("updates", "u=0");
    run.row(&cell, "with", Role::Reference, 8e6, None);
    run.row(&cell, "without", Role::DynTable, 8e6, None);
    for record in &mut run.records {
        match record {
            Record::Slice(slice) if slice.table == "with" => {
                slice.hardware.processor_ns = Some(2 * slice.elapsed_ns);
                slice.hardware.last_level_load_misses = Some(slice.elapsed_ns / 64);
            }
            Record::Row(row) if row.table == "with" => {
                row.per_operation.insert("L1 load misses".into(), 3.25);
            }
            _ => {}
        }
    }
    run.end();
    run
}

#[test]
fn what_the_machine_does_not_count_is_not_available() {
    let results = counted().results();
    let lines = |figures: &[&str]| {
        let query = Query {
            figures: words(figures),
            ..Query::default()
        };
        let lines = text(&show(&results, &query).expect("rows"));
        let words = lines.lines().skip(1).map(|line| line.split_whitespace());
        words
            .map(|line| line.collect::<Vec<_>>().join(" "))
            .collect::<Vec<_>>()
    };
    assert_eq!(
        lines(&["L1 load", "transactions"]),
        [
            "with L1 load misses 3.25",
            "with transactions n/a",
            "without L1 load misses n/a",
            "without transactions n/a"
        ]
    );
    assert_eq!(
        lines(&["processors", "MB/s from"]),
        [
            "with processors in use 2.00",
            "with MB/s from memory 1000",
            "without processors in use n/a",
            "without MB/s from memory n/a"
        ]
    );
    let all = lines(&[]);
    let missing: Vec<_> = all.iter().filter(|line| line.contains("n/a")).collect();
    assert_eq!(missing, ["without counters n/a"], "one line for all");
}

/// Files of versions that counted less.
#[test]
fn rows_of_older_files_lack_the_newer_counters() {
    let mut lines = counted().lines();
    for field in ["l1d_load_misses", "last_level_load_misses", "processor_ns"] {
        let (before, after) = (lines.len(), lines.replace(field, "unknown"));
        assert_ne!(before, after.len(), "{field} is in the file");
        lines = after;
    }
    let results = Results::parse("x.jsonl".as_ref(), lines.as_bytes()).expect("it is readable");
    let hardware = results.rows().next().expect("a row").slices[0].hardware;
    assert_eq!(hardware, HardwareCounters::default());
    let query = Query {
        figures: words(&["processors"]),
        ..Query::default()
    };
    let lines = text(&show(&results, &query).expect("rows"));
    assert_eq!(lines.matches("n/a").count(), 2, "{lines}");
}

#[test]
fn every_section_has_its_figures() {
    let results = Run::full().results();
    for (cell, figure) in [
        ("scaling/", "rate"),
        ("hot/", "pair"),
        ("latency/", "get hit 99 %"),
        ("latency/", "remove fail 50 %"),
        ("memory/", "live"),
        ("memory/", "resident, most"),
        ("memory/", "garbage, most"),
        ("growth/", "longest"),
        ("tails/", "writer > 50 µs"),
        ("tails/", "reader, empty loop > 50 µs"),
        ("resize/", "of the slower size"),
        ("resize/", "in progress"),
        ("sync/", "contended"),
        ("sync/", "aborts"),
        ("sync/", "under the lock"),
        ("sync/", "conflicts"),
        ("sync/", "other aborts"),
    ] {
        let query = Query {
            cells: words(&[cell]),
            figures: words(&[figure]),
            ..Query::default()
        };
        let lines = show(&results, &query).unwrap_or_else(|why| panic!("{cell} {figure}: {why}"));
        assert!(text(&lines).contains(figure), "{cell} {figure}");
    }
    let share = Query {
        cells: words(&["tails/"]),
        figures: words(&["writer > 50"]),
        tables: words(&["papaya"]),
        ..Query::default()
    };
    // 7 of 2,000,000.
    let line = serde_json::to_value(show(&results, &share).expect("a row")).expect("JSON");
    assert_eq!(line[0]["value"], 0.035);
}

#[test]
fn what_is_not_there_is_said() {
    for (query, word) in [
        (
            Query {
                cells: words(&["nowhere"]),
                ..Query::default()
            },
            "no row",
        ),
        (
            Query {
                figures: words(&["colour"]),
                tables: words(&["one"]),
                ..Query::default()
            },
            "no row",
        ),
        (
            Query {
                to: Some("three".into()),
                ..Query::default()
            },
            "`three`",
        ),
        (
            Query {
                to_cell: Some("u=".into()),
                ..Query::default()
            },
            "2 cells",
        ),
        (
            Query {
                to_cell: Some("u=7".into()),
                ..Query::default()
            },
            "no cell",
        ),
    ] {
        let why = show(&results(), &query).expect_err(word);
        assert!(why.contains(word) && !why.contains('\n'), "{why}");
    }
}
