//! Drawing: a canvas that writes SVG, and scales with round ticks.

use std::fmt::Write;

use corewise_measure::number::trimmed;
pub(crate) use corewise_measure::number::{bytes, count, count_tick, grouped, plain, rate, time};
use maud::html;

/// A point on a canvas or in a plot.
pub(crate) type Point = (f64, f64);

/// Escapes text for an element or an attribute in double quotes.
pub(crate) fn escape(text: &str) -> String {
    // XML cannot represent the other control characters.
    let is_refused = |char: char| char.is_control() && !matches!(char, '\n' | '\t');
    html! { (text.replace(is_refused, "\u{fffd}")) }.into_string()
}

/// Formats a coordinate; a value that is not finite becomes 0, so that a page stays valid.
pub(crate) fn num(value: f64) -> String {
    trimmed(if value.is_finite() { value } else { 0.0 }, 2)
}

/// Estimates the width of a bold text of 12 pixels, rather too large than too small.
pub(crate) fn text_width(text: &str) -> f64 {
    text.chars().count() as f64 * 7.7
}

/// Cuts a text to a number of characters.
pub(crate) fn shorten(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_owned();
    }
    text.chars().take(most - 1).chain(['…']).collect()
}

/// The anchor of a text.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Anchor {
    Start,
    Middle,
    End,
}

/// The shapes of marks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    Circle,
    Square,
    Triangle,
    Diamond,
    Wedge,
    Plus,
    Cross,
}

/// The content of an SVG element under construction.
#[derive(Debug, Default)]
pub(crate) struct Canvas {
    pub(crate) out: String,
}

impl Canvas {
    pub(crate) fn open(&mut self, class: &str) {
        let _ = write!(self.out, "<g class=\"{class}\">");
    }

    pub(crate) fn close(&mut self) {
        self.out.push_str("</g>\n");
    }

    /// Writes an element with numbers as attributes.
    fn element(&mut self, name: &str, class: &str, numbers: &[(&str, f64)], title: &str) {
        let _ = write!(self.out, "<{name} class=\"{class}\"");
        for (attribute, value) in numbers {
            let _ = write!(self.out, " {attribute}=\"{}\"", num(*value));
        }
        self.out += &ending(name, title);
    }

    pub(crate) fn line(&mut self, class: &str, from: Point, to: Point) {
        let ends = [("x1", from.0), ("y1", from.1), ("x2", to.0), ("y2", to.1)];
        self.element("line", class, &ends, "");
    }

    /// Writes a text; nothing if it is empty.
    pub(crate) fn text(&mut self, class: &str, at: Point, anchor: Anchor, text: &str) {
        self.text_at(
            class,
            &format!("x=\"{}\" y=\"{}\"", num(at.0), num(at.1)),
            anchor,
            text,
        );
    }

    /// Writes a centred text that reads upwards; nothing if it is empty.
    pub(crate) fn upright(&mut self, class: &str, (x, y): Point, text: &str) {
        let at = format!("transform=\"translate({} {}) rotate(-90)\"", num(x), num(y));
        self.text_at(class, &at, Anchor::Middle, text);
    }

    fn text_at(&mut self, class: &str, at: &str, anchor: Anchor, text: &str) {
        if text.is_empty() {
            return;
        }
        let anchor = match anchor {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        };
        let text = escape(text);
        let _ = write!(
            self.out,
            "<text class=\"{class}\" {at} text-anchor=\"{anchor}\">{text}</text>"
        );
    }

    /// Draws a rectangle; `title` is its tooltip.
    pub(crate) fn rect(&mut self, class: &str, at: Point, size: (f64, f64), title: &str) {
        let (width, height) = (size.0.max(0.0), size.1.max(0.0));
        let numbers = [
            ("x", at.0),
            ("y", at.1),
            ("width", width),
            ("height", height),
        ];
        self.element("rect", class, &numbers, title);
    }

    pub(crate) fn path(&mut self, class: &str, d: &str, title: &str) {
        let _ = write!(
            self.out,
            "<path class=\"{class}\" d=\"{d}\"{}",
            ending("path", title)
        );
    }

    pub(crate) fn polyline(&mut self, class: &str, points: &[Point]) {
        if points.len() > 1 {
            self.path(class, &through(points), "");
        }
    }

    pub(crate) fn mark(&mut self, shape: Shape, class: &str, at: Point, radius: f64, title: &str) {
        if !(at.0.is_finite() && at.1.is_finite()) {
            return;
        }
        if let Shape::Circle = shape {
            let numbers = [("cx", at.0), ("cy", at.1), ("r", radius)];
            self.element("circle", class, &numbers, title);
        } else {
            self.path(class, &outline(shape, at, radius), title);
        }
    }

    pub(crate) fn void_mark(&mut self, at: Point, title: &str) {
        let corner = (at.0 - 5.0, at.1 - 5.0);
        self.rect("hatched void", corner, (10.0, 10.0), title);
        self.path("voidcross", &outline(Shape::Cross, at, 5.0), "");
    }
}

fn ending(element: &str, title: &str) -> String {
    if title.is_empty() {
        "/>".to_owned()
    } else {
        format!("><title>{}</title></{element}>", escape(title))
    }
}

pub(crate) fn through(points: &[Point]) -> String {
    let mut d = String::new();
    for (at, (x, y)) in points.iter().enumerate() {
        let command = if at == 0 { 'M' } else { 'L' };
        let _ = write!(d, "{command}{} {}", num(*x), num(*y));
    }
    d
}

/// The corners of a plus sign.
const PLUS: [Point; 12] = [
    (-0.4, -1.15),
    (0.4, -1.15),
    (0.4, -0.4),
    (1.15, -0.4),
    (1.15, 0.4),
    (0.4, 0.4),
    (0.4, 1.15),
    (-0.4, 1.15),
    (-0.4, 0.4),
    (-1.15, 0.4),
    (-1.15, -0.4),
    (-0.4, -0.4),
];

fn outline(shape: Shape, (x, y): Point, r: f64) -> String {
    let corners: &[Point] = match shape {
        Shape::Square => &[(-0.9, -0.9), (0.9, -0.9), (0.9, 0.9), (-0.9, 0.9)],
        Shape::Triangle => &[(0.0, -1.2), (1.1, 0.8), (-1.1, 0.8)],
        Shape::Wedge => &[(0.0, 1.2), (1.1, -0.8), (-1.1, -0.8)],
        Shape::Circle | Shape::Diamond => &[(0.0, -1.25), (1.25, 0.0), (0.0, 1.25), (-1.25, 0.0)],
        Shape::Plus => &PLUS,
        Shape::Cross => {
            let (a, b) = ((x - r, y - r), (x + r, y + r));
            let (c, d) = ((x - r, y + r), (x + r, y - r));
            return through(&[a, b]) + &through(&[c, d]);
        }
    };
    let corners = corners.iter().map(|(dx, dy)| (x + dx * r, y + dy * r));
    through(&corners.collect::<Vec<_>>()) + "Z"
}

/// An axis: maps values between two ends, linearly or by their logarithm.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scale {
    log: bool,
    low: f64,
    high: f64,
}

impl Scale {
    pub(crate) fn linear(low: f64, high: f64) -> Self {
        let high = if high > low { high } else { low + 1.0 };
        let log = false;
        Self { log, low, high }
    }

    /// A logarithmic scale; both ends are made positive and different.
    pub(crate) fn log(low: f64, high: f64) -> Self {
        let low = if low > 0.0 { low } else { 1.0 };
        let (low, high) = if high > low * 1.001 {
            (low, high)
        } else {
            (low / 2.0, low * 2.0)
        };
        let log = true;
        Self { log, low, high }
    }

    /// A scale from 0 to a little more than the greatest value.
    pub(crate) fn from_zero(values: impl IntoIterator<Item = f64>) -> Self {
        let (_, high) = extent(values).unwrap_or((0.0, 1.0));
        Self::linear(0.0, high * 1.06)
    }

    /// A logarithmic scale over all values.
    pub(crate) fn log_over(values: impl IntoIterator<Item = f64>) -> Self {
        let positive = values.into_iter().filter(|value| *value > 0.0);
        let (low, high) = extent(positive).unwrap_or((1.0, 10.0));
        Self::log(low, high)
    }

    /// Returns the lower and the upper end.
    pub(crate) fn ends(&self) -> (f64, f64) {
        (self.low, self.high)
    }

    /// Returns the position of a value between the ends, from 0 to 1.
    pub(crate) fn share(&self, value: f64) -> f64 {
        let share = if self.log {
            let (low, high) = (self.low.ln(), self.high.ln());
            (value.max(self.low * 1e-9).ln() - low) / (high - low)
        } else {
            (value - self.low) / (self.high - self.low)
        };
        share.clamp(-0.5, 1.5)
    }

    /// Returns whether a value is between the ends.
    pub(crate) fn holds(&self, value: f64) -> bool {
        (self.low..=self.high).contains(&value)
    }

    /// Returns about `about` round values between the ends.
    pub(crate) fn ticks(&self, about: usize) -> Vec<f64> {
        let candidates = if self.log {
            self.log_ticks(about)
        } else {
            self.even_ticks(about)
        };
        let slack = (self.high - self.low) * 1e-9;
        let within = |v: &f64| *v >= self.low - slack && *v <= self.high + slack;
        candidates.into_iter().filter(within).collect()
    }

    fn even_ticks(&self, about: usize) -> Vec<f64> {
        let rough = (self.high - self.low) / about.max(1) as f64;
        let power = 10f64.powf(rough.log10().floor());
        let steps = [1.0, 2.0, 5.0, 10.0].map(|step| step * power);
        let step = steps.into_iter().find(|step| *step >= rough * 0.999);
        let step = step.unwrap_or(rough);
        let first = (self.low / step).ceil() as i64;
        let last = (self.high / step).floor() as i64;
        (first..=last).map(|at| at as f64 * step).collect()
    }

    fn log_ticks(&self, about: usize) -> Vec<f64> {
        let first = self.low.log10().floor() as i32;
        let last = self.high.log10().ceil() as i32;
        let decades = (self.high / self.low).log10();
        let factors: &[f64] = match about as f64 / decades {
            many if many >= 3.0 => &[1.0, 2.0, 5.0],
            some if some >= 2.0 => &[1.0, 3.0],
            _ => &[1.0],
        };
        let every = (decades / about as f64).ceil().max(1.0) as usize;
        let powers = (first..=last).step_by(every).map(|p| 10f64.powi(p));
        powers
            .flat_map(|p| factors.iter().map(move |f| f * p))
            .collect()
    }
}

/// Returns the least and the greatest finite value.
pub(crate) fn extent(values: impl IntoIterator<Item = f64>) -> Option<(f64, f64)> {
    let values = values.into_iter().filter(|value| value.is_finite());
    values.fold(None, |ends, value| {
        let (low, high) = ends.unwrap_or((value, value));
        Some((low.min(value), high.max(value)))
    })
}

/// The inner rectangle of a plot with its scales.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Frame {
    pub(crate) left: f64,
    pub(crate) top: f64,
    pub(crate) width: f64,
    pub(crate) height: f64,
    pub(crate) x: Scale,
    pub(crate) y: Scale,
}

/// A value and its label.
pub(crate) type Tick = (f64, String);

impl Frame {
    pub(crate) fn x(&self, value: f64) -> f64 {
        self.left + self.width * self.x.share(value)
    }

    pub(crate) fn y(&self, value: f64) -> f64 {
        self.top + self.height * (1.0 - self.y.share(value))
    }

    pub(crate) fn at(&self, (x, y): Point) -> Point {
        (self.x(x), self.y(y))
    }

    pub(crate) fn right(&self) -> f64 {
        self.left + self.width
    }

    pub(crate) fn bottom(&self) -> f64 {
        self.top + self.height
    }

    /// Draws a dashed vertical line at a value.
    pub(crate) fn guide(&self, canvas: &mut Canvas, value: f64, title: &str) {
        let x = self.x(value);
        let line = through(&[(x, self.top), (x, self.bottom())]);
        canvas.path("guide", &line, title);
    }

    /// Draws a vertical line at each tick.
    pub(crate) fn x_grid(&self, canvas: &mut Canvas, ticks: &[Tick]) {
        for (value, _) in ticks {
            let x = self.x(*value);
            canvas.line("grid", (x, self.top), (x, self.bottom()));
        }
    }

    /// Draws grid, ticks and titles; an empty title is left out.
    pub(crate) fn axes(
        &self,
        canvas: &mut Canvas,
        ticks: (&[Tick], &[Tick]),
        titles: (&str, &str),
    ) {
        canvas.open("axes");
        for (value, label) in ticks.1 {
            let y = self.y(*value);
            canvas.line("grid", (self.left, y), (self.right(), y));
            canvas.text("tick", (self.left - 8.0, y + 4.0), Anchor::End, label);
        }
        let bottom = self.bottom();
        for (value, label) in ticks.0 {
            let x = self.x(*value);
            canvas.line("axis", (x, bottom), (x, bottom + 5.0));
            canvas.text("tick", (x, bottom + 19.0), Anchor::Middle, label);
        }
        canvas.line("axis", (self.left, bottom), (self.right(), bottom));
        let middle = self.left + self.width / 2.0;
        let below = (middle, bottom + 40.0);
        canvas.text("axistitle", below, Anchor::Middle, titles.0);
        let beside = (self.left - 56.0, self.top + self.height / 2.0);
        canvas.upright("axistitle", beside, titles.1);
        canvas.close();
    }
}

/// Moves positions at least `apart` from each other and within the limits, as far as they fit, near
/// the wanted ones.
pub(crate) fn spread(wanted: &[f64], apart: f64, (top, bottom): (f64, f64)) -> Vec<f64> {
    let mut order: Vec<usize> = (0..wanted.len()).collect();
    order.sort_by(|a, b| wanted[*a].total_cmp(&wanted[*b]));
    let mut placed = wanted.to_vec();
    let mut least = top;
    for &at in &order {
        placed[at] = placed[at].max(least);
        least = placed[at] + apart;
    }
    let mut most = bottom;
    for &at in order.iter().rev() {
        placed[at] = placed[at].min(most);
        most = placed[at] - apart;
    }
    placed
}

/// Returns the divisor of rates on an axis, and its unit.
pub(crate) fn rate_unit(most: f64) -> (f64, &'static str) {
    match most {
        most if most >= 2e9 => (1e9, "billion operations/s"),
        most if most >= 2e6 => (1e6, "million operations/s"),
        most if most >= 2e3 => (1e3, "thousand operations/s"),
        _ => (1.0, "operations/s"),
    }
}

pub(crate) fn ticks_in(scale: &Scale, about: usize, unit: f64) -> Vec<Tick> {
    ticks_as(scale, about, |value| plain(value / unit))
}

/// Returns ticks with labels made by a function.
pub(crate) fn ticks_as(scale: &Scale, about: usize, label: impl Fn(f64) -> String) -> Vec<Tick> {
    let ticks = scale.ticks(about);
    ticks
        .into_iter()
        .map(|value| (value, label(value)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_cannot_leave_its_element() {
        assert_eq!(
            escape("<a b=\"c\">&'\u{1}"),
            "&lt;a b=&quot;c&quot;&gt;&amp;'\u{fffd}"
        );
    }

    #[test]
    fn coordinates_are_short_and_finite() {
        assert_eq!(num(1.0), "1");
        assert_eq!(num(-0.001), "0");
        assert_eq!(num(f64::NAN), "0");
    }

    #[test]
    fn ticks_are_round_and_inside() {
        assert_eq!(Scale::linear(0.0, 10.6).ticks(5), [0.0, 5.0, 10.0]);
        assert_eq!(Scale::log(1.0, 1e4).ticks(5), [1.0, 10.0, 100.0, 1e3, 1e4]);
        assert_eq!(Scale::log(10.0, 60.0).ticks(6), [10.0, 20.0, 50.0]);
        assert!(Scale::log(1.0, 1e12).ticks(5).len() <= 7);
        assert!(!Scale::linear(3.0, 3.0).ticks(4).is_empty());
        assert!(!Scale::log(0.0, 0.0).ticks(4).is_empty());
    }

    #[test]
    fn labels_do_not_overlap() {
        let placed = spread(&[10.0, 11.0, 99.0, 100.0], 14.0, (0.0, 100.0));
        let mut sorted = placed.clone();
        sorted.sort_by(f64::total_cmp);
        assert!(
            sorted.windows(2).all(|pair| pair[1] - pair[0] >= 13.99),
            "{placed:?}"
        );
        assert!(sorted[0] >= 0.0 && sorted[3] <= 100.0);
    }
}
