//! Progress over time: the operations of each table, and its longest operation.

use crate::plot::Plot;
use crate::plot::chart::{Curve, Spot, sorted};
use crate::plot::group::describe;
use crate::plot::lines::{Axis, Lines};
use crate::plot::style::Looks;
use crate::plot::svg::{Scale, plain, rate, time};
use crate::record::Role;
use crate::results::{CellResults, Results, RowResults};
use crate::sections::growth::Timeline;

/// The time axis ends at this multiple of the median table's length, so that a single slow table
/// does not compress the others.
const LONGEST: f64 = 3.0;

/// Points of a line.
const POINTS: usize = 60;

/// A plot for each cell that has timelines.
pub(crate) fn plots(results: &Results, looks: &Looks) -> Vec<Plot> {
    let draw = |cell| plot(cell, looks);
    results.cells().filter_map(draw).collect()
}

fn plot(cell: &CellResults, looks: &Looks) -> Option<Plot> {
    let shown = |row: &&RowResults| {
        matches!(row.row.role, Role::DynTable | Role::Reference) && !row.timelines.is_empty()
    };
    let rows: Vec<&RowResults> = cell.rows.iter().filter(shown).collect();
    let lengths = rows.iter().filter_map(|row| first(row));
    let end = time_limit(lengths.map(length_ms).collect());
    let curve = |row: &&RowResults| {
        let mut curve = Curve::new(looks.look(row), &row.label);
        match first(row) {
            Some(line) => curve.medians = points(line, end, &row.label),
            None => curve.add_void(0.0, row),
        }
        curve
    };
    let curves = sorted(looks, rows.iter().map(curve).collect());
    let lines = Lines {
        kind: "growth",
        title: format!("Progress over time: {}", describe(cell, &[])),
        note: "Operations per second in the first repetition. A mark is the longest operation of \
               the table. The axis ends where most tables do."
            .to_owned(),
        x: Axis::Over(Scale::linear(0.0, end * 1.02), |ms| plain(ms / 1e3)),
        x_title: "time (s)",
        values: None,
    };
    lines.draw(&curves, |_, _| {})
}

/// Returns the first repetition of a valid row.
fn first(row: &RowResults) -> Option<&Timeline> {
    let first = row.timelines.iter().min_by_key(|of| of.repetition);
    first.filter(|_| !row.void())
}

fn length_ms(line: &Timeline) -> f64 {
    line.bin_ms * line.operations.len() as f64
}

/// Returns the end of the time axis for lines of these lengths.
fn time_limit(mut lengths: Vec<f64>) -> f64 {
    lengths.sort_by(f64::total_cmp);
    let median = lengths.get(lengths.len() / 2).copied().unwrap_or(1.0);
    let longest = lengths.last().copied().unwrap_or(1.0);
    longest.min(LONGEST * median).max(1.0)
}

/// Returns at most [`POINTS`] rates up to `end` ms, of which one has a mark: the one in whose time
/// the longest operation ended.
fn points(line: &Timeline, end: f64, label: &str) -> Vec<Spot> {
    let each = line.operations.len().div_ceil(POINTS).max(1);
    let width_ms = (line.bin_ms * each as f64).max(1e-6);
    let longest = line.longest_ns.iter().copied().max().unwrap_or(0);
    let slowest = line.longest_ns.iter().position(|ns| *ns == longest);
    let bins = line.operations.chunks(each).enumerate();
    let spot = |(at, bins): (usize, &[u64])| {
        let bin_ms = line.bin_ms.max(1e-6) * bins.len() as f64;
        let value = bins.iter().sum::<u64>() as f64 * 1e3 / bin_ms;
        let is_slowest = slowest.is_some_and(|slowest| slowest / each == at);
        let (longest, speed) = (time(longest as f64), rate(value));
        let text = is_slowest.then(|| format!("{label}: longest {longest}, at {speed}"));
        Spot {
            at: (width_ms * (at as f64 + 0.5), value),
            text: text.unwrap_or_default(),
        }
    };
    let spots = bins.map(spot);
    spots.take_while(|spot| spot.at.0 <= end).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_single_slow_table_does_not_compress_the_others() {
        assert_eq!(time_limit(vec![100.0, 900.0, 90.0]), 300.0);
        assert_eq!(time_limit(vec![100.0, 150.0, 90.0]), 150.0);
        assert_eq!(time_limit(vec![]), 1.0);
    }
}
