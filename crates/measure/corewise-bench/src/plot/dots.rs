//! The dot plot: a lane for each table, with its value as a mark and single measurements as dots,
//! for dimensions without an order.

use crate::plot::Plot;
use crate::plot::chart::WIDTH;
use crate::plot::group::{Group, describe, groups, named};
use crate::plot::numbers::geometric_means;
use crate::plot::rates;
use crate::plot::style::{Looks, measured_once};
use crate::plot::svg::{
    Anchor, Canvas, Frame, Scale, Shape, Tick, rate, rate_unit, shorten, text_width, through,
    ticks_in,
};
use crate::record::{Interval, Role};
use crate::results::{CellResults, Results, RowResults};

const LANE: f64 = 20.0;
const HEADING: f64 = 30.0;
const LEFT: f64 = 158.0;

/// Width of the values on the right.
const SIDE: f64 = 70.0;

/// The values of a table, each with its tooltip.
pub(crate) struct Lane<'a> {
    pub(crate) row: &'a RowResults,
    pub(crate) dots: Vec<(f64, String)>,
    /// The value that is marked, with a bar from end to end.
    pub(crate) all: Option<(Interval, String)>,
}

/// A heading with its lanes.
pub(crate) type Block<'a> = (String, Vec<Lane<'a>>);

/// A dot plot without its lanes.
pub(crate) struct Dots<'a> {
    pub(crate) kind: &'static str,
    pub(crate) title: String,
    pub(crate) note: String,
    pub(crate) x: Scale,
    pub(crate) ticks: Vec<Tick>,
    pub(crate) x_title: &'a str,
    /// Formats the value beside a lane.
    pub(crate) text: fn(f64) -> String,
    /// A value with a line across all lanes, and its tooltip.
    pub(crate) guide: Option<(f64, &'a str)>,
}

impl Dots<'_> {
    /// Draws blocks, one below the other; `None` if there is no lane.
    pub(crate) fn draw(self, blocks: &[Block<'_>], looks: &Looks) -> Option<Plot> {
        let lanes: usize = blocks.iter().map(|(_, lanes)| lanes.len()).sum();
        if lanes == 0 {
            return None;
        }
        let frame = Frame {
            left: LEFT,
            top: 4.0,
            width: WIDTH - LEFT - SIDE,
            height: lanes as f64 * LANE + blocks.len() as f64 * HEADING,
            x: self.x,
            y: Scale::linear(0.0, 1.0),
        };
        let mut canvas = Canvas::default();
        frame.x_grid(&mut canvas, &self.ticks);
        frame.axes(&mut canvas, (&self.ticks, &[]), (self.x_title, ""));
        if let Some((value, what)) = self.guide {
            frame.guide(&mut canvas, value, what);
        }
        let (mut marks, mut rules) = (Canvas::default(), String::new());
        let mut y = frame.top;
        for (heading, lanes) in blocks {
            let heading = shorten(heading, 60);
            canvas.text("panel", (4.0, y + 20.0), Anchor::Start, &heading);
            y += HEADING;
            for lane in lanes {
                let (look, middle) = (looks.look(lane.row), y + LANE / 2.0);
                rules += &through(&[(frame.left, middle), (frame.right(), middle)]);
                marks.open(&look.class());
                self.lane(&mut marks, (&frame, middle), lane, look.shape());
                marks.close();
                y += LANE;
            }
        }
        // One path for the lines of all lanes: an element for each would swell the page.
        canvas.path("grid", &rules, "");
        canvas.out += &marks.out;
        Some(Plot {
            kind: self.kind,
            title: self.title,
            note: self.note,
            height: frame.bottom() + 50.0,
            body: canvas.out,
        })
    }

    fn lane(&self, canvas: &mut Canvas, (frame, y): (&Frame, f64), lane: &Lane<'_>, shape: Shape) {
        let row = lane.row;
        let again = match row.row.role {
            Role::Again => " again",
            _ => "",
        };
        let name = shorten(measured_once(&row.label), 21 - again.len()) + again;
        let class = if row.void() { "gone" } else { "label" };
        canvas.text(class, (LEFT - 12.0, y + 4.0), Anchor::End, &name);
        if row.void() {
            return void(canvas, (frame, y), row);
        }
        let at = |value: f64| (frame.x(value).clamp(frame.left, frame.right()), y);
        for (value, title) in &lane.dots {
            canvas.mark(shape, "dot", at(*value), 3.2, title);
        }
        if let Some((all, title)) = &lane.all {
            canvas.line("interval", at(all.low), at(all.high));
            canvas.mark(shape, "median", at(all.value), 5.0, title);
            let side = (frame.right() + SIDE - 6.0, y + 4.0);
            canvas.text("value", side, Anchor::End, &(self.text)(all.value));
        }
    }
}

/// Draws the lane of a void row, with the reason.
fn void(canvas: &mut Canvas, (frame, y): (&Frame, f64), row: &RowResults) {
    let why = row.problem().unwrap_or_default();
    let text = format!("void: {}", shorten(why, 30));
    let (left, top) = (frame.left, y - 8.0);
    canvas.rect("hatched void", (left, top), (frame.width, 16.0), why);
    let size = (text_width(&text), 16.0);
    canvas.rect("backing", (left + 20.0, top), size, "");
    let at = (left + 26.0, y + 4.0);
    canvas.text("gone strong", at, Anchor::Start, &text);
}

/// A plot of rates for each workload of a section, with a block for each value of these fields.
pub(crate) fn by(
    results: &Results,
    looks: &Looks,
    (section, what): (&'static str, &str),
    vary: &[&str],
    heading: fn(&CellResults) -> String,
) -> Vec<Plot> {
    let groups = groups(named(&results.sections, section), vary);
    let draw = |group: &Group<'_>| {
        let blocks = group.cells.iter().map(|cell| (heading(cell), lanes(cell)));
        let title = format!("{what}: {}", group.title);
        rates_plot((section, title), blocks.collect(), looks)
    };
    groups.iter().filter_map(draw).collect()
}

/// A plot of the rates of all cells of a section, each a block.
pub(crate) fn all(
    results: &Results,
    looks: &Looks,
    (kind, section, what): (&'static str, &str, &str),
) -> Option<Plot> {
    let cells = named(&results.sections, section);
    let blocks = cells.map(|cell| (describe(cell, &[]), lanes(cell)));
    rates_plot((kind, what.to_owned()), blocks.collect(), looks)
}

/// Returns the rates of a cell, without the null table, whose rate would compress the scale.
fn lanes(cell: &CellResults) -> Vec<Lane<'_>> {
    let rows = cell.rows.iter().filter(|row| row.row.role != Role::Null);
    let shown = rows.filter(|row| row.row.rate.is_some() || row.void());
    let lane = |row| Lane {
        row,
        dots: rates::repetitions(row, &row.label),
        all: rates::median(row, &row.label),
    };
    shown.map(lane).collect()
}

fn rates_plot(
    (kind, title): (&'static str, String),
    mut blocks: Vec<Block<'_>>,
    looks: &Looks,
) -> Option<Plot> {
    let order = order(&blocks);
    let place = |lane: &Lane<'_>| order.iter().position(|label| *label == lane.row.label);
    for (_, lanes) in &mut blocks {
        lanes.sort_by_key(|lane| place(lane).unwrap_or(usize::MAX));
    }
    let lanes = blocks.iter().flat_map(|(_, lanes)| lanes);
    let valid = lanes.filter(|lane| !lane.row.void());
    let values = valid.flat_map(|lane| {
        let high = lane.all.iter().map(|(all, _)| all.high);
        lane.dots.iter().map(|(rate, _)| *rate).chain(high)
    });
    let x = Scale::from_zero(values.clone());
    let (unit, x_title) = rate_unit(values.fold(0.0, f64::max));
    let plot = Dots {
        kind,
        title,
        note: "Small dots are repetitions, the large mark is their median, the bar its 95 % interval. \
               A hollow mark is the reference measured again."
            .to_owned(),
        x,
        ticks: ticks_in(&x, 4, unit),
        x_title,
        text: rate,
        guide: None,
    };
    plot.draw(&blocks, looks)
}

/// Orders tables by their mean rate over all blocks, the fastest first; all blocks share the order.
fn order<'a>(blocks: &[Block<'a>]) -> Vec<&'a str> {
    let lanes = blocks.iter().flat_map(|(_, lanes)| lanes);
    let valid = lanes.map(|lane| lane.row).filter(|row| !row.void());
    let rates = valid.filter_map(|row| Some((&*row.label, row.row.rate?.value)));
    let mut means = geometric_means(rates);
    means.sort_by(|a, b| b.1.total_cmp(&a.1));
    means.into_iter().map(|(label, ..)| label).collect()
}
