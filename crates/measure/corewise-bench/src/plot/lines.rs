//! The line plot: a line for each table over a number, with the repetitions as dots.

use crate::plot::Plot;
use crate::plot::chart::{self, Curve, NAMES, WIDTH};
use crate::plot::svg::{Canvas, Frame, Scale, Tick, extent, rate_unit, ticks_in};

/// The axis of a line plot.
pub(crate) enum Axis {
    /// Numbers that were measured, with a tick at each that fits.
    At(Vec<f64>),
    /// A scale, with ticks as their formatter writes them.
    Over(Scale, fn(f64) -> String),
}

/// A line plot of rates without its lines.
pub(crate) struct Lines<'a> {
    pub(crate) kind: &'static str,
    pub(crate) title: String,
    pub(crate) note: String,
    pub(crate) x: Axis,
    pub(crate) x_title: &'a str,
}

impl Lines<'_> {
    /// Draws curves above what `behind` draws; `None` if there is no value.
    pub(crate) fn draw(
        self,
        curves: &[Curve],
        behind: impl FnOnce(&mut Canvas, &Frame),
    ) -> Option<Plot> {
        let values = || curves.iter().flat_map(Curve::values).map(|(_, y)| y);
        let highest = values().reduce(f64::max)?;
        let (unit, y_title) = rate_unit(highest);
        let y = Scale::from_zero(values());
        let y_ticks = ticks_in(&y, 6, unit);
        let x = match &self.x {
            Axis::At(numbers) => {
                let (least, most) = extent(numbers.iter().copied())?;
                let pad = ((most - least) * 0.03).max(0.15);
                Scale::linear(least - pad, most + pad)
            }
            Axis::Over(scale, _) => *scale,
        };
        let frame = Frame {
            left: chart::LEFT,
            top: 28.0,
            width: WIDTH - chart::LEFT - NAMES,
            height: chart::height_for(curves.len()),
            x,
            y,
        };
        let x_ticks = match self.x {
            Axis::At(numbers) => ticks_at(numbers, &frame),
            Axis::Over(scale, label) => crate::plot::svg::ticks_as(&scale, 5, label),
        };
        let mut canvas = Canvas::default();
        frame.axes(&mut canvas, (&x_ticks, &y_ticks), (self.x_title, y_title));
        behind(&mut canvas, &frame);
        chart::curves(&mut canvas, &frame, curves);
        chart::names(&mut canvas, &frame, curves);
        Some(Plot {
            kind: self.kind,
            title: self.title,
            note: self.note,
            height: frame.bottom() + 50.0,
            body: canvas.out,
        })
    }
}

/// Returns ticks at these numbers, as far as they fit.
fn ticks_at(mut numbers: Vec<f64>, frame: &Frame) -> Vec<Tick> {
    numbers.sort_by(f64::total_cmp);
    numbers.dedup();
    let mut ticks: Vec<Tick> = Vec::new();
    for number in numbers {
        let x = frame.x(number);
        let free = |(last, _): &Tick| x - frame.x(*last) >= 26.0;
        if ticks.last().is_none_or(free) {
            ticks.push((number, crate::plot::svg::plain(number)));
        }
    }
    ticks
}
