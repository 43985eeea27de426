//! Curves in a frame, with marks, labels at their ends, and legends.

use crate::plot::style::{Look, Looks};
use crate::plot::svg::{Anchor, Canvas, Frame, Point, shorten, spread};
use crate::results::RowResults;

/// Width of every plot: a phone shows it without scrolling, a desktop shows two side by side.
pub(crate) const WIDTH: f64 = 520.0;

/// Left edge of the frame of curves.
pub(crate) const LEFT: f64 = 70.0;

/// Width of the labels at the right ends of curves.
pub(crate) const NAMES: f64 = 168.0;

/// A value with its tooltip.
#[derive(Clone, Debug)]
pub(crate) struct Spot {
    pub(crate) at: Point,
    pub(crate) text: String,
}

#[derive(Clone, Debug)]
pub(crate) struct Curve {
    pub(crate) look: Look,
    pub(crate) name: String,
    /// Points joined by a line.
    pub(crate) medians: Vec<Spot>,
    /// Points without a line.
    pub(crate) dots: Vec<Spot>,
    /// Positions of void rows, with the reasons.
    pub(crate) voids: Vec<(f64, String)>,
}

impl Curve {
    /// Returns all values that a scale must hold.
    pub(crate) fn values(&self) -> impl Iterator<Item = Point> + '_ {
        self.medians.iter().chain(&self.dots).map(|spot| spot.at)
    }

    /// Adds the mark of a void row.
    pub(crate) fn add_void(&mut self, x: f64, row: &RowResults) {
        let why = row.problem().unwrap_or_default();
        self.voids.push((x, why.to_owned()));
    }

    pub(crate) fn sort(&mut self) {
        self.medians.sort_by(|a, b| a.at.0.total_cmp(&b.at.0));
    }

    /// An empty curve of a table.
    pub(crate) fn new(look: Look, name: &str) -> Self {
        Self {
            look,
            name: name.to_owned(),
            medians: Vec::new(),
            dots: Vec::new(),
            voids: Vec::new(),
        }
    }
}

/// Draws curves, their dots, medians, and marks of void rows on the lower edge.
pub(crate) fn curves(canvas: &mut Canvas, frame: &Frame, curves: &[Curve]) {
    for curve in curves {
        canvas.open(&curve.look.class());
        for dot in &curve.dots {
            let shape = curve.look.shape();
            canvas.mark(shape, "dot", frame.at(dot.at), 3.2, &dot.text);
        }
        let joined: Vec<_> = curve.medians.iter().map(|m| frame.at(m.at)).collect();
        canvas.polyline("curve", &joined);
        for median in &curve.medians {
            let shape = curve.look.shape();
            canvas.mark(shape, "median", frame.at(median.at), 4.6, &median.text);
        }
        for (x, why) in &curve.voids {
            let title = format!("{}: void: {why}", curve.name);
            canvas.void_mark((frame.x(*x), frame.bottom() - 7.0), &title);
        }
        canvas.close();
    }
}

/// Writes the labels of curves beside their last points.
pub(crate) fn names(canvas: &mut Canvas, frame: &Frame, curves: &[Curve]) {
    let last = |curve: &Curve| curve.medians.last().map(|spot| frame.at(spot.at));
    let low = frame.bottom() - 7.0;
    let wanted: Vec<f64> = curves
        .iter()
        .map(|c| last(c).map_or(low, |at| at.1))
        .collect();
    let limits = (frame.top + 4.0, frame.bottom() + 6.0);
    let placed = spread(&wanted, 15.0, limits);
    let x = frame.right() + 22.0;
    for (curve, y) in curves.iter().zip(placed) {
        canvas.open(&curve.look.class());
        let near = last(curve).filter(|(end, _)| frame.right() - end < 40.0);
        if let Some((end, from)) = near {
            canvas.line("leader", (end + 6.0, from), (x - 7.0, y));
        }
        let (class, name) = if curve.medians.is_empty() {
            canvas.void_mark((x, y), "void");
            ("gone", shorten(&curve.name, 10) + " (void)")
        } else {
            canvas.mark(curve.look.shape(), "median", (x, y), 4.2, "");
            ("label", shorten(&curve.name, 17))
        };
        canvas.text(class, (x + 10.0, y + 4.0), Anchor::Start, &name);
        canvas.close();
    }
}

/// Returns the height at which all labels of a chart fit.
pub(crate) fn height_for(names: usize) -> f64 {
    (names as f64 * 15.0 + 20.0).max(300.0)
}

/// Sorts curves by the order of tables, the most important last, which is above the others.
pub(crate) fn sorted(looks: &Looks, mut curves: Vec<Curve>) -> Vec<Curve> {
    curves.sort_by_key(|curve| std::cmp::Reverse(looks.place(&curve.name)));
    curves
}
