//! Progress over time: for each table its operations and its longest stalls.

use crate::plot::Plot;
use crate::plot::chart::WIDTH;
use crate::plot::group::describe;
use crate::plot::style::Looks;
use crate::plot::svg::{
    Anchor, Canvas, Frame, Point, Scale, Tick, num, plain, rate, shorten, through, ticks_as, time,
};
use crate::record::Role;
use crate::results::{CellResults, Results, RowResults};
use crate::sections::growth::Timeline;

const LEFT: f64 = 74.0;
const RIGHT: f64 = 14.0;
const NAME: f64 = 20.0;
const AREA: f64 = 46.0;
const BARS: f64 = 40.0;
const LANE: f64 = NAME + AREA + BARS + 26.0;

/// The time axis ends at this multiple of the median lane's length, so that a single slow table
/// does not compress the others.
const LONGEST_LANE: f64 = 3.0;

/// Maximum number of bins, so that pages stay small.
const MOST_BINS: usize = 300;

/// A plot for each cell that has timelines.
pub(crate) fn plots(results: &Results, looks: &Looks) -> Vec<Plot> {
    let draw = |cell| plot(cell, looks);
    results.cells().filter_map(draw).collect()
}

fn plot(cell: &CellResults, looks: &Looks) -> Option<Plot> {
    let rows = rows(cell, looks);
    let lanes: Vec<Option<Bins>> = rows
        .iter()
        .map(|row| shown(row).map(|line| Bins::of(&line)))
        .collect();
    if rows.is_empty() {
        return None;
    }
    let bins = || lanes.iter().flatten();
    let length = time_limit(bins().map(Bins::length_ms).collect());
    let fastest = bins().flat_map(|bins| &bins.rates).copied();
    let longest = bins().flat_map(|bins| &bins.longest_ns).copied();
    let scales = Scales {
        time: Scale::linear(0.0, length),
        rate: Scale::from_zero(fastest),
        longest: Scale::log_over(
            longest
                .filter(|ns| *ns > 0.0)
                .flat_map(|ns| [ns / 2.0, ns * 1.3]),
        ),
    };
    let mut canvas = Canvas::default();
    for (at, (row, bins)) in rows.iter().zip(&lanes).enumerate() {
        canvas.open(&looks.look(row).class());
        lane(
            &mut canvas,
            LANE * at as f64 + 12.0,
            row,
            (bins.as_ref(), &scales),
        );
        canvas.close();
    }
    let bottom = LANE * rows.len() as f64 - 6.0;
    time_axis(&mut canvas, &scales, bottom);
    Some(Plot {
        kind: "growth",
        title: format!("Progress over time: {}", describe(cell, &[])),
        note: "Above, operations per second; below, the longest operation that ended in each bin, \
               on a logarithmic scale. All lanes have the same scales, which end where most lanes do; \
               an arrow names the end of a longer one. The first repetition is shown."
            .to_owned(),
        height: bottom + 52.0,
        body: canvas.out,
    })
}

/// Returns the rows with timelines, without the null table, whose rate would compress the scale,
/// and without the reference's second measurement.
fn rows<'a>(cell: &'a CellResults, looks: &Looks) -> Vec<&'a RowResults> {
    let shown = |row: &&RowResults| matches!(row.row.role, Role::DynTable | Role::Reference);
    let rows = cell.rows.iter().filter(shown);
    let mut rows: Vec<&RowResults> = rows.filter(|row| row.has::<Timeline>()).collect();
    rows.sort_by_key(|row| looks.place(&row.label));
    rows
}

/// Returns the end of the time axis for lanes of these lengths.
fn time_limit(mut lengths: Vec<f64>) -> f64 {
    lengths.sort_by(f64::total_cmp);
    let median = lengths.get(lengths.len() / 2).copied().unwrap_or(1.0);
    let longest = lengths.last().copied().unwrap_or(1.0);
    longest.min(LONGEST_LANE * median).max(1.0)
}

struct Scales {
    time: Scale,
    rate: Scale,
    longest: Scale,
}

/// Returns the timeline of the first repetition, unless the row is void.
fn shown(row: &RowResults) -> Option<Timeline> {
    let first = row.details::<Timeline>().min_by_key(|line| line.repetition);
    first.filter(|_| !row.void())
}

/// A timeline with at most [`MOST_BINS`] bins.
struct Bins {
    width_ms: f64,
    rates: Vec<f64>,
    longest_ns: Vec<f64>,
}

impl Bins {
    fn of(line: &Timeline) -> Self {
        let each = line.operations.len().div_ceil(MOST_BINS).max(1);
        let bin_ms = if line.bin_ms > 0.0 { line.bin_ms } else { 1.0 };
        let rate = |bins: &[u64]| {
            let operations: u64 = bins.iter().sum();
            operations as f64 * 1e3 / (bin_ms * bins.len() as f64)
        };
        let longest = |bins: &[u64]| bins.iter().max().map_or(0.0, |ns| *ns as f64);
        Self {
            width_ms: bin_ms * each as f64,
            rates: line.operations.chunks(each).map(rate).collect(),
            longest_ns: line.longest_ns.chunks(each).map(longest).collect(),
        }
    }

    fn length_ms(&self) -> f64 {
        self.width_ms * self.rates.len().max(self.longest_ns.len()) as f64
    }
}

fn lane(canvas: &mut Canvas, top: f64, row: &RowResults, (bins, scales): (Option<&Bins>, &Scales)) {
    let class = if bins.is_some() { "label" } else { "gone" };
    let name = shorten(&row.label, 30);
    canvas.text(class, (LEFT, top + 12.0), Anchor::Start, &name);
    let width = WIDTH - LEFT - RIGHT;
    let top = top + NAME;
    let Some(bins) = bins else {
        let why = row.problem().unwrap_or("no timeline");
        let height = AREA + BARS + 8.0;
        canvas.rect("hatched void", (LEFT, top), (width, height), why);
        canvas.text("gone", (12.0, top + 14.0), Anchor::Start, "void");
        return;
    };
    let frame = |top: f64, height: f64, y: Scale| Frame {
        left: LEFT,
        top,
        width,
        height,
        x: scales.time,
        y,
    };
    let above = frame(top, AREA, scales.rate);
    let below = frame(top + AREA + 8.0, BARS, scales.longest);
    let rates: Vec<Tick> = ticks_as(&above.y, 2, rate);
    above.axes(canvas, (&[], &rates), ("", ""));
    let times: Vec<Tick> = ticks_as(&below.y, 2, time);
    below.axes(canvas, (&[], &times), ("", ""));
    area(canvas, &above, bins);
    bars(canvas, &below, bins, &row.label);
    canvas.text(
        "remark",
        (above.right(), top - 8.0),
        Anchor::End,
        &summary(bins, scales),
    );
}

/// Returns the longest operation of a lane, and its length if the time axis is shorter.
fn summary(bins: &Bins, scales: &Scales) -> String {
    let longest = bins.longest_ns.iter().copied().fold(0.0, f64::max);
    let (_, end) = scales.time.ends();
    let length = bins.length_ms();
    let arrow = if length > end {
        format!(", ends at {} →", time(length * 1e6))
    } else {
        String::new()
    };
    format!("longest {}{arrow}", time(longest))
}

fn area(canvas: &mut Canvas, frame: &Frame, bins: &Bins) {
    let mut edge: Vec<Point> = Vec::new();
    for (at, rate) in bins.rates.iter().enumerate() {
        if bins.width_ms * at as f64 >= frame.x.ends().1 {
            break;
        }
        let y = frame.y(*rate);
        edge.push((frame.x(bins.width_ms * at as f64), y));
        edge.push((
            frame.right().min(frame.x(bins.width_ms * (at + 1) as f64)),
            y,
        ));
    }
    let (Some(first), Some(last)) = (edge.first(), edge.last()) else {
        return;
    };
    let (first, last) = (first.0, last.0);
    let d = through(&edge);
    let closed = format!(
        "{d}L{} {b}L{} {b}Z",
        num(last),
        num(first),
        b = num(frame.bottom())
    );
    canvas.path("area", &closed, "");
    canvas.path("areaedge", &d, "");
}

fn bars(canvas: &mut Canvas, frame: &Frame, bins: &Bins, label: &str) {
    let mut d = String::new();
    for (at, ns) in bins
        .longest_ns
        .iter()
        .enumerate()
        .filter(|(_, ns)| **ns > 0.0)
    {
        let left = frame.x(bins.width_ms * at as f64);
        if left >= frame.right() {
            break;
        }
        let right = frame.x(bins.width_ms * (at + 1) as f64);
        let (top, bottom) = (frame.y(*ns).min(frame.bottom()), frame.bottom());
        let width = ((right - left) * 0.86).max(0.6);
        d += &format!(
            "M{} {}H{}V{}H{}Z",
            num(left),
            num(bottom),
            num(left + width),
            num(top),
            num(left)
        );
    }
    let longest = bins.longest_ns.iter().copied().fold(0.0, f64::max);
    if !d.is_empty() {
        canvas.path("bars", &d, &format!("{label}: longest {}", time(longest)));
    }
}

fn time_axis(canvas: &mut Canvas, scales: &Scales, bottom: f64) {
    let frame = Frame {
        left: LEFT,
        top: 12.0,
        width: WIDTH - LEFT - RIGHT,
        height: bottom - 12.0,
        x: scales.time,
        y: Scale::linear(0.0, 1.0),
    };
    let (_, length) = scales.time.ends();
    let (unit, title) = if length > 5_000.0 {
        (1_000.0, "time (s)")
    } else {
        (1.0, "time (ms)")
    };
    let ticks = ticks_as(&frame.x, 6, |ms| plain(ms / unit));
    frame.axes(canvas, (&ticks, &[]), (title, ""));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_single_slow_table_does_not_compress_the_others() {
        assert_eq!(time_limit(vec![100.0, 900.0, 90.0]), 300.0);
        assert_eq!(time_limit(vec![100.0, 150.0, 90.0]), 150.0);
        assert_eq!(time_limit(vec![]), 1.0);
    }
}
