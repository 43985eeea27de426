//! Latencies as dots: the median, 99 % and 99.9 % of each table, a block for each operation.

use crate::latencies::OUTCOMES;
use crate::plot::Plot;
use crate::plot::dots::{Block, Dots, Lane};
use crate::plot::group::describe;
use crate::plot::style::Looks;
use crate::plot::svg::{Scale, extent, grouped, ticks_as, time};
use crate::record::{Histogram, Interval, Role};
use crate::results::{CellResults, Results, RowResults, distinct};

/// The percentiles that are shown, by their names in results, and the samples that they need.
const PERCENTILES: [(&str, u64); 3] = [("50", 1), ("99", 100), ("99.9", 1_000)];

/// A plot for each cell that has latencies.
pub(crate) fn plots(results: &Results, looks: &Looks, what: (&'static str, &str)) -> Vec<Plot> {
    let draw = |cell| plot(cell, looks, what);
    results.cells().filter_map(draw).collect()
}

fn plot(cell: &CellResults, looks: &Looks, (kind, what): (&'static str, &str)) -> Option<Plot> {
    let timed = cell.rows.iter().filter(|row| row.row.role != Role::Null);
    let timed = timed.filter(|row| !row.histograms.is_empty());
    let mut rows: Vec<&RowResults> = timed.collect();
    rows.sort_by_key(|row| looks.place(&row.label));
    let valid = || rows.iter().filter(|row| !row.void());
    let times = valid()
        .flat_map(|row| &row.histograms)
        .flat_map(percentiles);
    let (least, most) = extent(times.flatten()).unwrap_or((10.0, 1e4));
    let x = Scale::log(least / 1.2, most * 1.2);
    let counts = valid().flat_map(|row| &row.histograms).map(|of| of.count);
    let samples = grouped(counts.fold(0, u64::saturating_add));
    let block = |operation: &str| -> Block<'_> {
        let lanes = rows.iter().filter_map(|row| lane(row, operation));
        (operation.to_owned(), lanes.collect())
    };
    let blocks: Vec<_> = operations(&rows).into_iter().map(block).collect();
    let plot = Dots {
        kind,
        title: format!("{what}: {}", describe(cell, &[])),
        note: format!(
            "{samples} operations timed. The large mark is the median, the dot 99 %, and the bar ends at \
             99.9 %; the scale is logarithmic. A percentile without enough samples is left out."
        ),
        x,
        ticks: ticks_as(&x, 5, time),
        x_title: "",
        text: time,
        guide: None,
    };
    plot.draw(&blocks, looks)
}

/// Returns the operations that were timed, in display order.
fn operations<'a>(rows: &[&'a RowResults]) -> Vec<&'a str> {
    let histograms = rows.iter().flat_map(|row| &row.histograms);
    let timed = histograms.filter(|histogram| histogram.count > 0);
    let mut found = distinct(timed.map(|histogram| &*histogram.operation));
    found.sort_by_key(|name| place(name));
    found
}

/// Returns the rank of an operation in the display order; unknown ones come last.
fn place(operation: &str) -> usize {
    let known = OUTCOMES.iter().position(|known| *known == operation);
    known.unwrap_or(OUTCOMES.len())
}

/// The percentiles of an operation of a row, with a tooltip; `None` if it was not timed.
fn lane<'a>(row: &'a RowResults, operation: &str) -> Option<Lane<'a>> {
    let mut lane = Lane {
        row,
        dots: Vec::new(),
        all: None,
    };
    if row.void() {
        return Some(lane);
    }
    let of = row.histograms.iter().find(|of| of.operation == operation)?;
    let [median, tail, far] = percentiles(of);
    let (low, high) = (median?, far.or(tail).or(median)?);
    let named = PERCENTILES.iter().zip([median, tail, far]);
    let named = named.filter_map(|((name, _), ns)| Some(format!("{name} % {}", time(ns?))));
    let title = format!(
        "{}, {operation}: {} (mean {}, greatest {}, {} samples)",
        row.label,
        named.collect::<Vec<_>>().join(", "),
        time(of.mean_ns),
        time(of.max_ns),
        of.count
    );
    lane.dots.extend(tail.map(|ns| (ns, title.clone())));
    let value = low;
    lane.all = Some((Interval { value, low, high }, title));
    Some(lane)
}

/// Returns the shown percentiles of a histogram in nanoseconds, as far as it has samples for them.
fn percentiles(histogram: &Histogram) -> [Option<f64>; 3] {
    PERCENTILES.map(|(name, samples)| {
        let ns = histogram.percentiles_ns.get(name);
        ns.filter(|_| histogram.count >= samples)
            .map(|ns| ns.max(1.0))
    })
}

/// Returns the percentiles of a row's lookups in a line; `–` if they were not timed.
pub(crate) fn line(row: &RowResults) -> String {
    let mut histograms = row.histograms.iter();
    let Some(histogram) = histograms.find(|of| of.operation == "get hit") else {
        return "–".to_owned();
    };
    let shown = percentiles(histogram).map(|ns| ns.map_or("–".to_owned(), time));
    shown.join(" / ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn histogram(count: u64) -> Histogram {
        Histogram {
            cell: String::new(),
            table: String::new(),
            operation: "get hit".into(),
            count,
            mean_ns: 1.0,
            min_ns: 1.0,
            max_ns: 1.0,
            percentiles_ns: [("50", 70.0), ("99", 100.0), ("99.9", 900.0)]
                .map(|(name, ns)| (name.to_owned(), ns))
                .into(),
            buckets: Vec::new(),
        }
    }

    #[test]
    fn percentiles_need_enough_samples() {
        assert_eq!(percentiles(&histogram(99)), [Some(70.0), None, None]);
        assert_eq!(
            percentiles(&histogram(100)),
            [Some(70.0), Some(100.0), None]
        );
        let all = [Some(70.0), Some(100.0), Some(900.0)];
        assert_eq!(percentiles(&histogram(1000)), all);
    }
}
