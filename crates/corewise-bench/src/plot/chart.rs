//! Curves in a frame, with marks, labels at their ends, and legends.

use crate::plot::style::{Look, Looks};
use crate::plot::svg::{Anchor, Canvas, Frame, Point, shorten, spread, text_width};

/// Width of every plot.
pub(crate) const WIDTH: f64 = 1000.0;

/// Width of the labels at the right ends of curves.
pub(crate) const NAMES: f64 = 204.0;

/// A value with its tooltip.
#[derive(Clone, Debug)]
pub(crate) struct Spot {
    pub(crate) at: Point,
    pub(crate) text: String,
}

/// The curve of one table.
#[derive(Clone, Debug)]
pub(crate) struct Curve {
    pub(crate) look: Look,
    pub(crate) name: String,
    /// Points joined by a line, each with a mark.
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

    /// Sorts the joined points.
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
    let x = frame.right() + 30.0;
    for (curve, y) in curves.iter().zip(placed) {
        canvas.open(&curve.look.class());
        let near = last(curve).filter(|(end, _)| frame.right() - end < 40.0);
        if let Some((end, from)) = near {
            canvas.line("leader", (end + 6.0, from), (x - 7.0, y));
        }
        let mut name = shorten(&curve.name, 19);
        if curve.medians.is_empty() {
            canvas.void_mark((x, y), "void");
            name += " (void)";
        } else {
            canvas.mark(curve.look.shape(), "median", (x, y), 4.2, "");
        }
        let class = if curve.medians.is_empty() {
            "gone"
        } else {
            "label"
        };
        canvas.text(class, (x + 10.0, y + 4.0), Anchor::Start, &name);
        canvas.close();
    }
}

/// Returns the height at which all labels of a chart fit.
pub(crate) fn height_for(names: usize) -> f64 {
    (names as f64 * 15.0 + 20.0).max(300.0)
}

/// Draws a legend in rows; returns its height.
pub(crate) fn legend(canvas: &mut Canvas, at: Point, entries: &[(String, Look, bool)]) -> f64 {
    let (mut x, mut y) = at;
    for (name, look, void) in entries {
        let name = shorten(name, 26) + if *void { " (void)" } else { "" };
        let width = text_width(&name) + 30.0;
        if x + width > WIDTH && x > at.0 {
            (x, y) = (at.0, y + 20.0);
        }
        canvas.open(&look.class());
        let place = (x + 7.0, y - 4.0);
        if *void {
            canvas.void_mark(place, "void");
        } else {
            canvas.mark(look.shape(), "median", place, 5.0, "");
        }
        let class = if *void { "gone" } else { "label" };
        canvas.text(class, (x + 18.0, y), Anchor::Start, &name);
        canvas.close();
        x += width;
    }
    y - at.1 + 20.0
}

/// Sorts curves by the order of tables.
pub(crate) fn sorted(looks: &Looks, mut curves: Vec<Curve>) -> Vec<Curve> {
    curves.sort_by_key(|curve| looks.place(&curve.name));
    curves
}
