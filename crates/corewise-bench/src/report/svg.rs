//! Drawing: scales, axes, and the few marks that the plots are made of.

use std::fmt::Write;

/// Text as it may stand in HTML and SVG.
pub(super) fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => out += "&amp;",
            '<' => out += "&lt;",
            '>' => out += "&gt;",
            '"' => out += "&quot;",
            '\'' => out += "&#39;",
            _ => out.push(letter),
        }
    }
    out
}

/// A number in at most four signs and a unit prefix: `950`, `1.2k`, `34M`.
pub(super) fn short(value: f64) -> String {
    let magnitude = value.abs();
    let (scaled, unit) = match magnitude {
        m if m >= 1e9 => (value / 1e9, "G"),
        m if m >= 1e6 => (value / 1e6, "M"),
        m if m >= 1e3 => (value / 1e3, "k"),
        _ => (value, ""),
    };
    let digits = match scaled.abs() {
        m if m == 0.0 || m >= 99.5 => 0,
        m if m >= 9.95 => 1,
        m if m >= 0.095 => 2,
        _ => 3,
    };
    let text = format!("{scaled:.digits$}");
    let text = if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.')
    } else {
        &text
    };
    format!("{text}{unit}")
}

/// Nanoseconds in a fitting unit.
pub(super) fn duration(ns: f64) -> String {
    match ns {
        ns if ns >= 1e9 => format!("{} s", short(ns / 1e9)),
        ns if ns >= 1e6 => format!("{} ms", short(ns / 1e6)),
        ns if ns >= 1e3 => format!("{} µs", short(ns / 1e3)),
        ns => format!("{} ns", short(ns)),
    }
}

/// Bytes in a fitting unit.
pub(super) fn bytes(value: f64) -> String {
    match value.abs() {
        b if b >= 1024.0 * 1024.0 * 1024.0 => {
            format!("{} GiB", short(value / 1024.0 / 1024.0 / 1024.0))
        }
        b if b >= 1024.0 * 1024.0 => format!("{} MiB", short(value / 1024.0 / 1024.0)),
        b if b >= 1024.0 => format!("{} KiB", short(value / 1024.0)),
        _ => format!("{} B", short(value)),
    }
}

/// How values become places.
#[derive(Clone, Debug)]
pub(super) enum Scale {
    /// Evenly, from the first value to the second.
    Linear(f64, f64),
    /// By their logarithms.
    Log(f64, f64),
    /// So many categories side by side.
    Slots(Vec<String>),
}

impl Scale {
    /// From 0 to a round number above all values.
    pub(super) fn from_zero(values: impl IntoIterator<Item = f64>) -> Self {
        let most = values
            .into_iter()
            .filter(|v| v.is_finite())
            .fold(0.0, f64::max);
        let step = step(if most > 0.0 { most } else { 1.0 });
        Self::Linear(0.0, (most / step).ceil().max(1.0) * step)
    }

    /// A logarithmic scale around all positive values.
    pub(super) fn log(values: impl IntoIterator<Item = f64>) -> Self {
        let positive = values.into_iter().filter(|v| v.is_finite() && *v > 0.0);
        let (least, most) = positive.fold((f64::MAX, 0.0f64), |(a, b), v| (a.min(v), b.max(v)));
        if most == 0.0 {
            return Self::Log(1.0, 10.0);
        }
        let (least, most) = (least / 1.15, most * 1.15);
        Self::Log(
            least,
            if most / least < 2.0 {
                least * 2.0
            } else {
                most
            },
        )
    }

    /// Where a value lies, from 0 to 1.
    pub(super) fn place(&self, value: f64) -> f64 {
        let share = match self {
            Self::Linear(from, to) => (value - from) / (to - from),
            Self::Log(from, to) => (value.max(*from) / from).ln() / (to / from).ln(),
            Self::Slots(names) => (value + 0.5) / names.len().max(1) as f64,
        };
        if share.is_finite() {
            share.clamp(0.0, 1.0)
        } else {
            0.0
        }
    }

    /// Values to be marked, and what is written there.
    fn ticks(&self, label: &dyn Fn(f64) -> String) -> Vec<(f64, String)> {
        match self {
            Self::Slots(names) => names
                .iter()
                .enumerate()
                .map(|(at, name)| (at as f64, name.clone()))
                .collect(),
            Self::Linear(from, to) => {
                let step = step(to - from);
                let first = (from / step).ceil() as i64;
                let last = (to / step + 1e-9).floor() as i64;
                (first..=last)
                    .map(|n| n as f64 * step)
                    .map(|v| (v, label(v)))
                    .collect()
            }
            Self::Log(from, to) => log_ticks(*from, *to)
                .into_iter()
                .map(|v| (v, label(v)))
                .collect(),
        }
    }
}

/// A round step that cuts a span into four to ten parts.
fn step(span: f64) -> f64 {
    let power = 10f64.powf((span / 5.0).log10().floor());
    let factor = [1.0, 2.0, 5.0, 10.0]
        .into_iter()
        .find(|factor| span / (power * factor) <= 6.0);
    power * factor.unwrap_or(10.0)
}

/// Powers of ten; if they are few, with twos and fives; if they are many, some of them.
fn log_ticks(from: f64, to: f64) -> Vec<f64> {
    let (first, last) = (from.log10().floor() as i32, to.log10().ceil() as i32);
    let decades = (to / from).log10();
    let factors: &[f64] = if decades < 2.5 {
        &[1.0, 2.0, 5.0]
    } else {
        &[1.0]
    };
    let every = ((last - first) / 8 + 1) as usize;
    let powers = (first..=last).step_by(every);
    let ticks =
        powers.flat_map(|power| factors.iter().map(move |factor| factor * 10f64.powi(power)));
    ticks
        .filter(|tick| *tick >= from * 0.999 && *tick <= to * 1.001)
        .collect()
}

/// Colours that are told apart by people who see colours differently, on white and on black
/// (after Okabe and Ito, with the yellow darkened).
const COLOURS: [&str; 8] = [
    "#0077bb", "#d55e00", "#009e73", "#cc6fa6", "#8a6d00", "#4fa8dd", "#7a5195", "#888888",
];
/// With each colour used up the lines change.
const DASHES: [&str; 4] = ["", "7 3", "2 3", "8 3 2 3"];

/// The look of a table, the same in all plots of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Look(pub(super) usize);

impl Look {
    pub(super) fn colour(self) -> &'static str {
        COLOURS[self.0 % COLOURS.len()]
    }
    pub(super) fn dash(self) -> &'static str {
        DASHES[self.0 / COLOURS.len() % DASHES.len()]
    }
}

/// A drawing that grows.
#[derive(Debug)]
pub(super) struct Svg {
    body: String,
    width: f64,
    height: f64,
}

impl Svg {
    pub(super) fn new(width: f64, height: f64) -> Self {
        Self {
            body: String::new(),
            width,
            height,
        }
    }

    /// The whole element.
    pub(super) fn finish(self, id: &str, kind: &str, title: &str) -> String {
        format!(
            "<svg id=\"{id}\" class=\"plot {kind}\" role=\"img\" viewBox=\"0 0 {:.0} {:.0}\" \
             xmlns=\"http://www.w3.org/2000/svg\"><title>{}</title>\n{}</svg>\n",
            self.width,
            self.height,
            escape(title),
            self.body
        )
    }

    pub(super) fn line(&mut self, class: &str, from: (f64, f64), to: (f64, f64)) {
        let _ = writeln!(
            self.body,
            "<line class=\"{class}\" x1=\"{:.1}\" y1=\"{:.1}\" x2=\"{:.1}\" y2=\"{:.1}\"/>",
            from.0, from.1, to.0, to.1
        );
    }

    /// A line in a table's look.
    pub(super) fn path(&mut self, look: Look, points: &[(f64, f64)]) {
        if points.is_empty() {
            return;
        }
        let mut d = String::new();
        for (at, (x, y)) in points.iter().enumerate() {
            let _ = write!(d, "{}{x:.1} {y:.1}", if at == 0 { "M" } else { "L" });
        }
        let (colour, dash) = (look.colour(), look.dash());
        let _ = writeln!(
            self.body,
            "<path class=\"series\" d=\"{d}\" stroke=\"{colour}\" stroke-dasharray=\"{dash}\"/>"
        );
    }

    /// A title above and a line of small print below, for a plot that stands alone.
    pub(super) fn caption(&mut self, title: &str, small: &str) {
        let (width, height) = (self.width, self.height);
        let body = std::mem::take(&mut self.body);
        self.text("label", (8.0, 18.0), "start", title);
        let _ = writeln!(self.body, "<g transform=\"translate(0 26)\">\n{body}</g>");
        self.text("tick", (width - 8.0, height + 42.0), "end", small);
        self.height = height + 52.0;
    }

    /// A filled area below points.
    pub(super) fn area(&mut self, look: Look, points: &[(f64, f64)], base: f64) {
        let (Some(first), Some(last)) = (points.first(), points.last()) else {
            return;
        };
        let mut d = format!("M{:.1} {base:.1}", first.0);
        for (x, y) in points {
            let _ = write!(d, "L{x:.1} {y:.1}");
        }
        let _ = writeln!(
            self.body,
            "<path class=\"area\" d=\"{d}L{:.1} {base:.1}Z\" fill=\"{}\"/>",
            last.0,
            look.colour()
        );
    }

    pub(super) fn dot(&mut self, look: Look, at: (f64, f64), radius: f64, tip: &str) {
        let _ = writeln!(
            self.body,
            "<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"{radius}\" fill=\"{}\"><title>{}</title></circle>",
            at.0,
            at.1,
            look.colour(),
            escape(tip)
        );
    }

    /// A bar or a cell.
    pub(super) fn rect(&mut self, style: &str, corner: (f64, f64), size: (f64, f64), tip: &str) {
        let _ = writeln!(
            self.body,
            "<rect {style} x=\"{:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{:.1}\"><title>{}</title></rect>",
            corner.0,
            corner.1,
            size.0.max(0.5),
            size.1.max(0.5),
            escape(tip)
        );
    }

    /// Text; `anchor` is start, middle or end.
    pub(super) fn text(&mut self, class: &str, at: (f64, f64), anchor: &str, text: &str) {
        let _ = writeln!(
            self.body,
            "<text class=\"{class}\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"{anchor}\">{}</text>",
            at.0,
            at.1,
            escape(text)
        );
    }

    /// Text that reads upwards.
    pub(super) fn upright(&mut self, at: (f64, f64), text: &str) {
        let _ = writeln!(
            self.body,
            "<text class=\"title\" transform=\"translate({:.1} {:.1}) rotate(-90)\" text-anchor=\"middle\">{}</text>",
            at.0,
            at.1,
            escape(text)
        );
    }

    /// Names beside their colours, one below the other.
    pub(super) fn legend(&mut self, at: (f64, f64), names: &[(String, Look)]) {
        for (row, (name, look)) in names.iter().enumerate() {
            let y = at.1 + row as f64 * 17.0;
            self.path(*look, &[(at.0, y), (at.0 + 22.0, y)]);
            self.dot(*look, (at.0 + 11.0, y), 3.0, name);
            self.text("label", (at.0 + 28.0, y + 4.0), "start", name);
        }
    }
}

/// A field with two axes.
#[derive(Debug)]
pub(super) struct Frame {
    pub(super) corner: (f64, f64),
    pub(super) size: (f64, f64),
    pub(super) x: Scale,
    pub(super) y: Scale,
}

impl Frame {
    pub(super) fn at(&self, x: f64, y: f64) -> (f64, f64) {
        (self.x(x), self.y(y))
    }
    pub(super) fn x(&self, x: f64) -> f64 {
        self.corner.0 + self.x.place(x) * self.size.0
    }
    pub(super) fn y(&self, y: f64) -> f64 {
        self.corner.1 + (1.0 - self.y.place(y)) * self.size.1
    }
    pub(super) fn bottom(&self) -> f64 {
        self.corner.1 + self.size.1
    }
    pub(super) fn right(&self) -> f64 {
        self.corner.0 + self.size.0
    }

    /// Axes with their titles.
    pub(super) fn draw(&self, svg: &mut Svg, titles: (&str, &str)) {
        self.draw_with(svg, titles, &short, &short);
    }

    /// As [`Frame::draw`], with other words for the values.
    pub(super) fn draw_with(
        &self,
        svg: &mut Svg,
        titles: (&str, &str),
        x_label: &dyn Fn(f64) -> String,
        y_label: &dyn Fn(f64) -> String,
    ) {
        for (value, label) in self.y.ticks(y_label) {
            let y = self.y(value);
            svg.line("grid", (self.corner.0, y), (self.right(), y));
            svg.text("tick", (self.corner.0 - 7.0, y + 4.0), "end", &label);
        }
        for (value, label) in self.x.ticks(x_label) {
            let x = self.x(value);
            svg.line("axis", (x, self.bottom()), (x, self.bottom() + 4.0));
            svg.text("tick", (x, self.bottom() + 17.0), "middle", &label);
        }
        svg.line(
            "axis",
            (self.corner.0, self.bottom()),
            (self.right(), self.bottom()),
        );
        svg.text(
            "title",
            (self.corner.0 + self.size.0 / 2.0, self.bottom() + 36.0),
            "middle",
            titles.0,
        );
        svg.upright(
            (self.corner.0 - 46.0, self.corner.1 + self.size.1 / 2.0),
            titles.1,
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        let pairs = [
            (0.0, "0"),
            (950.0, "950"),
            (1234.0, "1.23k"),
            (34e6, "34M"),
            (0.5, "0.5"),
            (99.6, "100"),
            (2.5e9, "2.5G"),
        ];
        for (value, text) in pairs {
            assert_eq!(short(value), text);
        }
        assert_eq!(
            (duration(1_500.0), duration(2e6)),
            ("1.5 µs".into(), "2 ms".into())
        );
        assert_eq!(bytes(2048.0), "2 KiB");
    }

    #[test]
    fn scales_have_some_ticks_within_their_ends() {
        let scales = [
            Scale::from_zero([0.3]),
            Scale::from_zero([17.0, 4.0]),
            Scale::from_zero([f64::NAN]),
            Scale::log([1.0]),
            Scale::log([30.0, 70.0]),
            Scale::log([1e3, 1e7]),
            Scale::log([1.0, 1e12]),
            Scale::log([]),
        ];
        for scale in scales {
            let ticks = scale.ticks(&short);
            assert!((1..=12).contains(&ticks.len()), "{scale:?}: {ticks:?}");
            assert!(
                ticks
                    .iter()
                    .all(|(value, _)| (0.0..=1.0).contains(&scale.place(*value)))
            );
        }
        assert!(Scale::log([1.0, 2.0]).place(f64::NAN).is_finite());
    }

    #[test]
    fn text_cannot_break_out() {
        let mut svg = Svg::new(1.0, 1.0);
        svg.text("label", (0.0, 0.0), "start", "<script>\"&'");
        assert!(!svg.finish("a", "b", "</title>").contains("<script>"));
    }
}
