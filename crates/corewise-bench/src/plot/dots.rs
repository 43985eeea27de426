//! Dot plots: one table per line, a dot for each repetition, for sections whose dimension has no
//! order.

use crate::plot::Plot;
use crate::plot::chart::WIDTH;
use crate::plot::group::{describe, groups, named};
use crate::plot::numbers::geometric_means;
use crate::plot::style::{Looks, measured_once};
use crate::plot::svg::{
    Anchor, Canvas, Frame, Scale, rate, rate_unit, shorten, text_width, ticks_in,
};
use crate::record::Role;
use crate::results::{CellResults, Results, RowResults};

const LANE: f64 = 20.0;
const HEADING: f64 = 30.0;
const LEFT: f64 = 158.0;

/// Width of the values on the right.
const SIDE: f64 = 70.0;

/// A heading with its rows.
type Block<'a> = (String, Vec<&'a RowResults>);

/// A plot for each workload of a section, with a block for each value of these fields.
pub(crate) fn by(
    results: &Results,
    looks: &Looks,
    (kind, section, what): (&'static str, &str, &str),
    vary: &[&str],
    heading: fn(&CellResults) -> String,
) -> Vec<Plot> {
    let groups = groups(named(&results.sections, section), vary);
    let draw = |group: &crate::plot::group::Group<'_>| {
        let cells = group.cells.iter();
        let blocks: Vec<Block<'_>> = cells
            .map(|cell| (heading(cell), contenders(cell)))
            .collect();
        plot((kind, format!("{what}: {}", group.title)), &blocks, looks)
    };
    groups.iter().filter_map(draw).collect()
}

/// A plot of all cells of a section, each a block.
pub(crate) fn all(
    results: &Results,
    looks: &Looks,
    (kind, section, what): (&'static str, &str, &str),
) -> Option<Plot> {
    let cells = named(&results.sections, section);
    let blocks: Vec<Block<'_>> = cells
        .map(|cell| (describe(cell, &[]), contenders(cell)))
        .collect();
    plot((kind, what.to_owned()), &blocks, looks)
}

/// Returns the rows of a cell that have a rate or are void, without the null table, whose rate
/// would compress the scale.
fn contenders(cell: &CellResults) -> Vec<&RowResults> {
    let rows = cell.rows.iter().filter(|row| row.row.role != Role::Null);
    rows.filter(|row| row.row.rate.is_some() || row.void())
        .collect()
}

fn plot(
    (kind, title): (&'static str, String),
    blocks: &[Block<'_>],
    looks: &Looks,
) -> Option<Plot> {
    let valid = blocks
        .iter()
        .flat_map(|(_, rows)| rows)
        .filter(|row| !row.void());
    let mut values: Vec<f64> = valid.clone().flat_map(|row| row.rates()).collect();
    values.extend(valid.filter_map(|row| row.row.rate).map(|rate| rate.high));
    let contenders: usize = blocks.iter().map(|(_, rows)| rows.len()).sum();
    if contenders == 0 {
        return None;
    }
    let frame = Frame {
        left: LEFT,
        top: 4.0,
        width: WIDTH - LEFT - SIDE,
        height: contenders as f64 * LANE + blocks.len() as f64 * HEADING,
        x: Scale::from_zero(values.iter().copied()),
        y: Scale::linear(0.0, 1.0),
    };
    let mut canvas = Canvas::default();
    let (unit, name) = rate_unit(values.into_iter().fold(0.0, f64::max));
    let ticks = ticks_in(&frame.x, 4, unit);
    frame.x_grid(&mut canvas, &ticks);
    frame.axes(&mut canvas, (&ticks, &[]), (name, ""));
    let order = order(blocks);
    let mut y = frame.top;
    for (heading, rows) in blocks {
        let heading = shorten(heading, 60);
        canvas.text("panel", (4.0, y + 20.0), Anchor::Start, &heading);
        y += HEADING;
        let mut rows = rows.clone();
        let place = |row: &RowResults| order.iter().position(|label| *label == row.label);
        rows.sort_by_key(|row| place(row).unwrap_or(usize::MAX));
        for row in rows {
            contender(&mut canvas, (&frame, y + LANE / 2.0), row, looks);
            y += LANE;
        }
    }
    Some(Plot {
        kind,
        title,
        note: "Small dots are repetitions, the large mark is their median, the bar its 95 % interval. \
               A hollow mark is the reference measured again."
            .to_owned(),
        height: frame.bottom() + 50.0,
        body: canvas.out,
    })
}

/// Orders tables by their mean rate over all blocks, the fastest first; all blocks share the order.
fn order<'a>(blocks: &[Block<'a>]) -> Vec<&'a str> {
    let rows = blocks.iter().flat_map(|(_, rows)| rows);
    let valid = rows.filter(|row| !row.void());
    let rates = valid.filter_map(|row| Some((&*row.label, row.row.rate?.value)));
    let mut means = geometric_means(rates);
    means.sort_by(|a, b| b.1.total_cmp(&a.1));
    means.into_iter().map(|(label, ..)| label).collect()
}

fn contender(canvas: &mut Canvas, (frame, y): (&Frame, f64), row: &RowResults, looks: &Looks) {
    let look = looks.look(row);
    let again = if row.row.role == Role::Again {
        " again"
    } else {
        ""
    };
    canvas.open(&look.class());
    let name = shorten(measured_once(&row.label), 21 - again.len()) + again;
    let class = if row.void() { "gone" } else { "label" };
    canvas.text(class, (LEFT - 12.0, y + 4.0), Anchor::End, &name);
    canvas.line("grid", (frame.left, y), (frame.right(), y));
    if row.void() {
        let why = row.problem().unwrap_or_default();
        let corner = (frame.left, y - 8.0);
        canvas.rect("hatched void", corner, (frame.width, 16.0), why);
        let text = format!("void: {}", shorten(why, 30));
        canvas.rect(
            "backing",
            (frame.left + 20.0, y - 8.0),
            (text_width(&text), 16.0),
            "",
        );
        canvas.text(
            "gone strong",
            (frame.left + 26.0, y + 4.0),
            Anchor::Start,
            &text,
        );
    } else {
        valid(canvas, (frame, y), row, look);
    }
    canvas.close();
}

fn valid(
    canvas: &mut Canvas,
    (frame, y): (&Frame, f64),
    row: &RowResults,
    look: crate::plot::style::Look,
) {
    for (at, value) in row.rates().into_iter().enumerate() {
        let title = format!("{}, repetition {at}: {}", row.label, rate(value));
        canvas.mark(look.shape(), "dot", (frame.x(value), y), 3.2, &title);
    }
    if let Some(all) = row.row.rate {
        canvas.line("interval", (frame.x(all.low), y), (frame.x(all.high), y));
        let title = format!(
            "{}: {} ({} to {})",
            row.label,
            rate(all.value),
            rate(all.low),
            rate(all.high)
        );
        canvas.mark(look.shape(), "median", (frame.x(all.value), y), 5.0, &title);
        let at = (frame.right() + SIDE - 6.0, y + 4.0);
        canvas.text("value", at, Anchor::End, &rate(all.value));
    }
}
