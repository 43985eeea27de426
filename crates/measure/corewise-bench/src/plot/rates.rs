//! Rates as dots and medians.

use crate::plot::chart::{self, Curve, Spot};
use crate::plot::style::Looks;
use crate::plot::svg::rate;
use crate::record::Interval;
use crate::results::{CellResults, RowResults, by_key};

/// A curve for each table: `x` gives the position of a cell, and `words` names it.
pub(crate) fn curves<'a>(
    rows: impl Iterator<Item = (&'a CellResults, &'a RowResults)>,
    looks: &Looks,
    x: impl Fn(&CellResults) -> f64,
    words: impl Fn(&CellResults) -> String,
) -> Vec<Curve> {
    let tables = by_key(rows.map(|(cell, row)| (&*row.label, (cell, row))));
    let curve = |(label, rows): (&str, Vec<(&CellResults, &RowResults)>)| {
        let mut curve = Curve::new(looks.look(rows[0].1), label);
        for (cell, row) in rows {
            rate_spots(
                &mut curve,
                row,
                x(cell),
                &format!("{label}, {}", words(cell)),
            );
        }
        curve.sort();
        curve
    };
    chart::sorted(looks, tables.into_iter().map(curve).collect())
}

/// Adds the repetitions and the median of a row to a curve at `x`; for a void row, only a mark.
pub(crate) fn rate_spots(curve: &mut Curve, row: &RowResults, x: f64, what: &str) {
    if row.void() {
        return curve.add_void(x, row);
    }
    let spot = |(rate, text)| Spot {
        at: (x, rate),
        text,
    };
    curve
        .dots
        .extend(repetitions(row, what).into_iter().map(spot));
    let median = median(row, what).map(|(of, text)| (of.value, text));
    curve.medians.extend(median.map(spot));
}

/// Returns the rate of each repetition of a row, with its tooltip.
pub(crate) fn repetitions(row: &RowResults, what: &str) -> Vec<(f64, String)> {
    let rates = row.rates().into_iter().enumerate();
    let named = rates.map(|(at, of)| (of, format!("{what}, repetition {at}: {}", rate(of))));
    named.collect()
}

/// Returns the median rate of a row, with its tooltip.
pub(crate) fn median(row: &RowResults, what: &str) -> Option<(Interval, String)> {
    let of = row.row.rate.filter(|rate| rate.value.is_finite())?;
    let (value, low, high) = (rate(of.value), rate(of.low), rate(of.high));
    Some((of, format!("{what}: {value} ({low} to {high})")))
}
