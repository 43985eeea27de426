//! Growth from empty over time: a lane for each table.

use super::{LEFT, TOP, WIDTH, begin};
use crate::record::{Row, Timeline};
use crate::report::svg::{Frame, Scale, Svg, duration, short};
use crate::report::{Looks, Plot, plotted, words};
use crate::results::Results;

/// Height of a lane.
const LANE: f64 = 74.0;

/// One plot for each cell: of every table its first repetition.
pub(super) fn timelines(results: &Results, looks: &Looks) -> Vec<Plot> {
    let rows = plotted(results, "growth");
    let mut cells: Vec<Vec<&Row>> = Vec::new();
    for row in rows {
        match cells.iter_mut().find(|cell| cell[0].cell.id == row.cell.id) {
            Some(cell) => cell.push(row),
            None => cells.push(vec![row]),
        }
    }
    cells
        .iter()
        .enumerate()
        .map(|(number, rows)| one(results, looks, number, rows))
        .collect()
}

fn one(results: &Results, looks: &Looks, number: usize, rows: &[&Row]) -> Plot {
    let line = |row: &&Row| {
        let mut lines = results.timelines.iter();
        lines.find(|line| {
            line.cell == row.cell.id && line.table == row.table && line.repetition == 0
        })
    };
    let lines: Vec<(&Row, &Timeline)> = rows
        .iter()
        .filter_map(|row| line(row).map(|line| (*row, line)))
        .collect();
    let end = lines
        .iter()
        .map(|(_, line)| line.operations.len() as f64 * line.bin_ms)
        .fold(1.0, f64::max);
    let longest = lines
        .iter()
        .flat_map(|(_, line)| &line.longest_ns)
        .copied()
        .max()
        .unwrap_or(1) as f64;
    let busiest = lines
        .iter()
        .flat_map(|(_, line)| &line.operations)
        .copied()
        .max()
        .unwrap_or(1) as f64;
    let what = words(&rows[0].cell, &["initial", "updates", "distribution"]);
    let title = format!(
        "Growth from empty to {} entries: {what}",
        short(rows[0].cell.range as f64)
    );
    let height = lines.len() as f64 * LANE + 60.0;
    let mut plot = begin("growth", number, title, height);
    for (at, (row, line)) in lines.iter().enumerate() {
        let corner = (LEFT + 60.0, TOP + at as f64 * LANE);
        let frame = Frame {
            corner,
            size: (WIDTH - LEFT - 100.0, LANE - 14.0),
            x: Scale::Linear(0.0, end),
            y: Scale::Linear(0.0, busiest),
        };
        lane(&mut plot.svg, looks, row, line, &frame, longest);
    }
    let axis = Frame {
        corner: (LEFT + 60.0, TOP),
        size: (WIDTH - LEFT - 100.0, lines.len() as f64 * LANE),
        x: Scale::Linear(0.0, end),
        y: Scale::Slots(Vec::new()),
    };
    axis.draw(&mut plot.svg, ("milliseconds", ""));
    plot.note = format!(
        "Area: inserts done in each {} ms (full height {}). Dark bars: the longest insert that ended then, from 1 µs to {} \
         on a logarithmic scale.",
        lines.first().map_or(10.0, |(_, line)| line.bin_ms),
        short(busiest),
        duration(longest)
    );
    plot
}

fn lane(svg: &mut Svg, looks: &Looks, row: &Row, line: &Timeline, frame: &Frame, longest: f64) {
    let look = looks.of_table(&row.table);
    let scale = Scale::Log(1_000.0, longest.max(10_000.0));
    let time = |bin: usize| frame.x((bin as f64 + 0.5) * line.bin_ms);
    let area: Vec<_> = line
        .operations
        .iter()
        .enumerate()
        .map(|(bin, &n)| (time(bin), frame.y(n as f64)))
        .collect();
    svg.area(look, &area, frame.bottom());
    for (bin, &ns) in line
        .longest_ns
        .iter()
        .enumerate()
        .filter(|(_, ns)| **ns > 1_000)
    {
        let height = scale.place(ns as f64) * frame.size.1;
        let tip = format!(
            "{}, {} ms: {}",
            row.table,
            bin as f64 * line.bin_ms,
            duration(ns as f64)
        );
        svg.rect(
            "class=\"stall\"",
            (time(bin) - 1.0, frame.bottom() - height),
            (2.0, height),
            &tip,
        );
    }
    let most = line.longest_ns.iter().copied().max().unwrap_or(0);
    svg.text(
        "label",
        (frame.corner.0 - 8.0, frame.corner.1 + 26.0),
        "end",
        &row.table,
    );
    svg.text(
        "tick",
        (frame.corner.0 - 8.0, frame.corner.1 + 42.0),
        "end",
        &format!("max {}", duration(most as f64)),
    );
    svg.line(
        "grid",
        (frame.corner.0, frame.bottom()),
        (frame.right(), frame.bottom()),
    );
}
