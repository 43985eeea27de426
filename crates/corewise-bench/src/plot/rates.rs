//! Curves of rates: the repetitions and the median of each row.

use crate::plot::chart::{self, Curve, Spot};
use crate::plot::style::Looks;
use crate::plot::svg::{self, rate};
use crate::results::{CellResults, RowResults};

/// A curve for each table: `x` gives the position of a cell, and `words` names it.
pub(crate) fn curves<'a>(
    rows: impl Iterator<Item = (&'a CellResults, &'a RowResults)>,
    looks: &Looks,
    x: impl Fn(&CellResults) -> f64,
    words: impl Fn(&CellResults) -> String,
) -> Vec<Curve> {
    let mut curves: Vec<Curve> = Vec::new();
    for (cell, row) in rows {
        let at = curves.iter().position(|curve| curve.name == row.label);
        let at = at.unwrap_or_else(|| {
            curves.push(Curve::new(looks.look(row), &row.label));
            curves.len() - 1
        });
        let what = format!("{}, {}", row.label, words(cell));
        rate_spots(&mut curves[at], row, x(cell), &what);
    }
    curves.iter_mut().for_each(Curve::sort);
    chart::sorted(looks, curves)
}

/// Adds the repetitions and the median of a row to a curve at `x`; for a void row, only a mark.
pub(crate) fn rate_spots(curve: &mut Curve, row: &RowResults, x: f64, what: &str) {
    if row.void() {
        let why = row.problem().unwrap_or_default().to_owned();
        curve.voids.push((x, why));
        return;
    }
    let repetitions = row.rates().into_iter().enumerate();
    let spots = repetitions.map(|(at, rate)| {
        let what = format!("{what}, repetition {at}");
        spot(x, rate, &what)
    });
    curve.dots.extend(spots);
    let median = row.row.rate.filter(|rate| rate.value.is_finite());
    curve.medians.extend(median.map(|rate| {
        let mut spot = spot(x, rate.value, what);
        spot.text += &format!(" ({} to {})", svg::rate(rate.low), svg::rate(rate.high));
        spot
    }));
}

/// A point with its tooltip.
pub(crate) fn spot(x: f64, y: f64, what: &str) -> Spot {
    Spot {
        at: (x, y),
        text: format!("{what}: {}", rate(y)),
    }
}
