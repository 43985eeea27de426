//! Verdicts of comparisons.

use crate::common;

use common::{Run, cell};
use corewise_bench::compare::{Comparison, RowVerdict, compare};
use corewise_bench::record::{Record, Role};
use corewise_bench::results::Results;

/// A result with one row of these repetitions.
fn rates(rates: &[f64]) -> Results {
    let mut run = Run::empty();
    run.row(&cell("scaling", "x"), "papaya", Role::DynTable, 1e6, None);
    let mut left = rates.iter();
    run.records.retain_mut(|record| match record {
        Record::Slice(slice) => left.next().map(|rate| slice.rate = *rate).is_some(),
        _ => true,
    });
    run.end();
    run.results()
}

fn verdict(old: &[f64], new: &[f64]) -> RowVerdict {
    compare(&rates(old), &rates(new)).rows[0].verdict
}

fn with_void(why: Option<&str>) -> Results {
    let mut run = Run::empty();
    run.row(&cell("scaling", "x"), "papaya", Role::DynTable, 1e6, why);
    run.end();
    run.results()
}

#[test]
fn the_whole_interval_decides() {
    let at = |middle: f64| [0.99, 0.995, 1.0, 1.005, 1.01].map(|share| share * middle);
    assert_eq!(verdict(&at(100.0), &at(100.0)), RowVerdict::Equivalent);
    assert_eq!(verdict(&at(100.0), &at(120.0)), RowVerdict::Faster);
    assert_eq!(verdict(&at(100.0), &at(80.0)), RowVerdict::Slower);
    assert_eq!(verdict(&at(100.0), &at(104.0)), RowVerdict::Faster);
    let spread = |middle: f64| [0.96, 0.98, 1.0, 1.02, 1.04].map(|share| share * middle);
    assert_eq!(
        verdict(&spread(100.0), &spread(102.0)),
        RowVerdict::Undecided
    );
    let wide = [50.0, 80.0, 100.0, 120.0, 150.0];
    assert_eq!(verdict(&wide, &wide), RowVerdict::Undecided);
    assert_eq!(verdict(&[100.0; 5], &[102.0; 5]), RowVerdict::Equivalent);
    assert_eq!(verdict(&[100.0; 5], &[104.0; 5]), RowVerdict::Faster);
    assert_eq!(verdict(&[100.0; 5], &[96.0; 5]), RowVerdict::Slower);
}

#[test]
fn fewer_than_five_repetitions_decide_nothing() {
    assert_eq!(
        verdict(&[100.0, 101.0], &[10.0, 11.0, 10.5]),
        RowVerdict::Undecided
    );
    assert_eq!(verdict(&[100.0; 5], &[10.0; 4]), RowVerdict::Undecided);
    assert_eq!(verdict(&[100.0; 5], &[10.0; 5]), RowVerdict::Slower);
}

#[test]
fn equal_inputs_give_equal_comparisons() {
    let (old, new) = (Run::full().results(), Run::full().results());
    let (first, second) = (compare(&old, &new), compare(&old, &new));
    assert_eq!(first, second);
    assert!(
        first
            .rows
            .iter()
            .all(|row| !matches!(row.verdict, RowVerdict::Slower | RowVerdict::Faster))
    );
    assert!(first.only_old.is_empty() && first.only_new.is_empty());
    assert!(
        !first.without_rate.is_empty(),
        "rows of memory have no rate"
    );
}

#[test]
fn ratios_are_new_over_old() {
    let mut slow = Run::empty();
    slow.speed = 0.5;
    slow.row(&cell("scaling", "x"), "papaya", Role::DynTable, 1e6, None);
    slow.end();
    let comparison = compare(&with_void(None), &slow.results());
    let ratio = comparison.rows[0].ratio.expect("a ratio");
    assert!(
        (0.48..0.52).contains(&ratio.value)
            && ratio.low <= ratio.value
            && ratio.value <= ratio.high
    );
    assert!(comparison.fails());
}

#[test]
fn void_rows_have_no_ratio_and_fail_only_if_they_are_new() {
    let (good, bad) = (with_void(None), with_void(Some("loses keys")));
    let broke = compare(&good, &bad);
    let mended = compare(&bad, &good);
    assert_eq!(
        (broke.rows[0].verdict, broke.rows[0].ratio),
        (RowVerdict::Void, None)
    );
    assert_eq!(
        (mended.rows[0].verdict, mended.rows[0].ratio),
        (RowVerdict::VoidBefore, None)
    );
    assert_eq!(
        (broke.rows[0].new_rate, mended.rows[0].old_rate),
        (None, None)
    );
    assert!(broke.fails() && !mended.fails());
}

#[test]
fn rows_of_one_side_are_listed_and_an_empty_comparison_fails() {
    let mut other = Run::empty();
    other.row(&cell("scaling", "y"), "papaya", Role::DynTable, 1e6, None);
    let comparison = compare(&with_void(None), &other.results());
    assert_eq!(comparison.only_old[0].cell, "scaling/x");
    assert_eq!(comparison.only_new[0].cell, "scaling/y");
    assert!(comparison.fails(), "nothing was compared");
    let text = comparison.text();
    assert!(
        text.contains("only in the old file: scaling/x papaya"),
        "{text}"
    );
    assert!(
        text.contains("only in the new file: scaling/y papaya"),
        "{text}"
    );
}

#[test]
fn the_reference_again_is_compared_with_itself() {
    let both = |first: f64, again: f64| {
        let mut run = Run::empty();
        run.row(&cell("scaling", "x"), "a", Role::Reference, first, None);
        run.row(&cell("scaling", "x"), "a", Role::Again, again, None);
        run.end();
        run.results()
    };
    let comparison = compare(&both(1e6, 2e6), &both(1e6, 1e6));
    let verdicts: Vec<_> = comparison
        .rows
        .iter()
        .map(|row| (row.name.again, row.verdict))
        .collect();
    assert_eq!(verdicts[1], (true, RowVerdict::Slower));
    assert_ne!(verdicts[0].1, RowVerdict::Slower);
}

#[test]
fn differing_circumstances_are_warned_about() {
    let mut run = Run::empty();
    if let Record::Manifest(manifest) = &mut run.records[0] {
        manifest.machine.cpu = "another".into();
        manifest.allocator = "system".into();
        manifest.pages = "huge".into();
        manifest.commit = "0000".into();
        manifest.command = ["run", "--numa=membind:0"].map(Into::into).into();
    }
    run.row(&cell("scaling", "x"), "papaya", Role::DynTable, 1e6, None);
    let warnings = compare(&with_void(None), &run.results()).warnings;
    let unnamed = "slices, warm-up, churn or NUMA policy";
    for what in ["machine", "allocator", "page policy", "commit", unnamed] {
        let start = format!("the {what} differs: ");
        assert!(
            warnings.iter().any(|warning| warning.starts_with(&start)),
            "{what}: {warnings:?}"
        );
    }
    assert!(
        warnings
            .iter()
            .any(|w| w == "in the new file there is no end marker: the run did not finish")
    );
    assert_eq!(warnings.len(), 6);
}

#[test]
fn both_forms_say_the_same() {
    let comparison: Comparison = compare(&rates(&[100.0; 5]), &rates(&[80.0; 5]));
    let text = comparison.text();
    let line = text.lines().nth(1).expect("a row");
    for word in [
        "scaling/x",
        "papaya",
        "100/s",
        "80.0/s",
        "0.800 [0.800, 0.800]",
        "slower",
    ] {
        assert!(line.contains(word), "{word}: {line}");
    }
    assert!(text.contains("1 rows: 1 slower"), "{text}");
    let json: serde_json::Value = serde_json::from_str(&comparison.json()).expect("JSON");
    assert_eq!(json["rows"][0]["cell"], "scaling/x");
    assert_eq!(json["rows"][0]["verdict"], "slower");
    let ratio = json["rows"][0]["ratio"]["value"].as_f64().expect("a ratio");
    assert!((ratio - 0.8).abs() < 1e-12, "{ratio}");
}
