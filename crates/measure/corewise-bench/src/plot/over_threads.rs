//! Charts of rates over numbers of threads, with the ideal line.

use crate::plot::Plot;
use crate::plot::chart::Curve;
use crate::plot::lines::{Axis, Lines};
use crate::plot::svg::{Anchor, Canvas, Frame, rate};
use crate::results::{CellResults, Results};

/// Returns the CPUs of the largest machine.
pub(crate) fn most_cpus(results: &Results) -> usize {
    let cpus = results.files.iter().map(|f| f.manifest.machine.cpus);
    cpus.max().unwrap_or(0)
}

/// Returns the numbers of threads that fill the first NUMA node, the first two, and so on, of the
/// largest machine, if threads are placed so; the last is all of its CPUs.
pub(crate) fn node_ends(results: &Results, pin: &str) -> Vec<usize> {
    let machines = results.files.iter().map(|file| &file.manifest.machine);
    let largest = machines.max_by_key(|machine| machine.cpus);
    let ends = largest.map_or(&[][..], |machine| &machine.node_ends);
    match (pin, ends) {
        ("compact", [_, ..]) => ends.to_vec(),
        _ => vec![most_cpus(results)],
    }
}

/// The note on dots and the dashed line of every chart over threads.
pub(crate) const NOTE: &str = "Dots are repetitions, lines join their medians. The dashed line is what \
     the best would reach if every thread added as much as its first.";

/// The position of a cell in a chart over threads.
pub(crate) fn by_threads(cell: &CellResults) -> f64 {
    cell.cell.threads as f64
}

/// Draws curves over numbers of threads, which have a name; `None` if no row is valid. `ends` are
/// the numbers at which nodes are full, and at last the machine.
pub(crate) fn over_threads(
    (kind, title, note): (&'static str, String, String),
    x_title: &str,
    curves: &[Curve],
    ends: &[usize],
) -> Option<Plot> {
    let voids = curves.iter().flat_map(|curve| &curve.voids);
    let tried = curves.iter().flat_map(Curve::values).map(|(x, _)| x);
    let lines = Lines {
        kind,
        title,
        note,
        x: Axis::At(tried.chain(voids.map(|(x, _)| *x)).collect()),
        x_title,
        values: None,
    };
    lines.draw(curves, |canvas, frame| {
        let (cpus, nodes) = ends.split_last().unwrap_or((&0, &[]));
        limit(canvas, frame, *cpus);
        for (end, node) in nodes.iter().zip(2..) {
            boundary(canvas, frame, *end, node);
        }
        ideal(canvas, frame, curves);
    })
}

/// Marks the region with more threads than CPUs.
fn limit(canvas: &mut Canvas, frame: &Frame, cpus: usize) {
    let most = cpus as f64 + 0.5;
    if cpus == 0 || !frame.x.holds(most) {
        return;
    }
    frame.guide(canvas, most, "");
    let text = format!("more threads than the {cpus} CPUs →");
    let (x, right) = (frame.x(most), frame.right());
    let (at, anchor) = if right - x > 220.0 {
        (x, Anchor::Start)
    } else {
        (right, Anchor::End)
    };
    canvas.text("remark", (at, frame.top - 8.0), anchor, &text);
}

/// Marks where threads begin to use one more NUMA node, the `node`th. The mark tells its name when
/// it is pointed at; text above the frame would run into that of the [limit].
fn boundary(canvas: &mut Canvas, frame: &Frame, end: usize, node: usize) {
    let most = end as f64 + 0.5;
    if frame.x.holds(most) {
        frame.guide(canvas, most, &format!("{node} nodes →"));
    }
}

/// Draws the ideal line from the best table at the least number of threads, as far as the frame
/// goes.
fn ideal(canvas: &mut Canvas, frame: &Frame, curves: &[Curve]) {
    let firsts = || curves.iter().filter_map(|curve| curve.medians.first());
    let Some(least) = firsts().map(|spot| spot.at.0).reduce(f64::min) else {
        return;
    };
    let at_least = firsts()
        .filter(|spot| spot.at.0 == least)
        .map(|spot| spot.at.1);
    let slope = at_least.fold(0.0, f64::max) / least;
    let (_, top) = frame.y.ends();
    let (_, right) = frame.x.ends();
    let end = right.min(top / slope);
    if !(slope > 0.0 && end > least) {
        return;
    }
    let from = frame.at((least, slope * least));
    let to = frame.at((end, slope * end));
    canvas.open("ideal");
    let d = crate::plot::svg::through(&[from, to]);
    canvas.path("guide", &d, &format!("ideal: {} a thread", rate(slope)));
    let near = (to.0 - 4.0, (to.1 - 5.0).max(frame.top + 12.0));
    canvas.text("remark", near, Anchor::End, "ideal");
    canvas.close();
}
