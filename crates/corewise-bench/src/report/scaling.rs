//! Throughput against threads.

use crate::report::chart::{self, Curve, NAMES, Spot, WIDTH};
use crate::report::group::{Group, groups, named, threads};
use crate::report::style::Looks;
use crate::report::svg::{Anchor, Canvas, Frame, Scale, Tick, extent, rate, rate_unit, ticks_in};
use crate::report::{Plot, curves};
use crate::results::{CellResults, Results};

/// A plot for each workload of the section `scaling`.
pub(super) fn plots(results: &Results, looks: &Looks) -> Vec<Plot> {
    let cells = named(&results.sections, "scaling");
    let groups = groups(cells, &["threads"]);
    let draw = |group| plot(group, looks, most_cpus(results));
    groups.iter().filter_map(draw).collect()
}

/// The CPUs of the largest of the machines.
pub(super) fn most_cpus(results: &Results) -> usize {
    let cpus = results.files.iter().map(|f| f.manifest.machine.cpus);
    cpus.max().unwrap_or(0)
}

fn plot(group: &Group<'_>, looks: &Looks, cpus: usize) -> Option<Plot> {
    let spec = Spec {
        kind: "scaling",
        title: format!("Throughput against threads: {}", group.title),
        note: NOTE.to_owned(),
        threads: "threads",
    };
    let words = |cell: &CellResults| threads(cell.cell.threads);
    over_threads(spec, &curves(group.rows(), looks, by_threads, words), cpus)
}

/// What every chart over threads says of its dots and its dashed line.
pub(super) const NOTE: &str = "Dots are repetitions, lines join their medians. The dashed line is what \
     the best would reach if every thread added as much as its first.";

/// A chart over threads, without its curves.
pub(super) struct Spec {
    pub(super) kind: &'static str,
    pub(super) title: String,
    pub(super) note: String,
    /// What the threads are called.
    pub(super) threads: &'static str,
}

/// Where a cell lies in a chart over threads.
pub(super) fn by_threads(cell: &CellResults) -> f64 {
    cell.cell.threads as f64
}

/// Curves over numbers of threads; none if no row is valid.
pub(super) fn over_threads(spec: Spec, curves: &[Curve], cpus: usize) -> Option<Plot> {
    let values = || curves.iter().flat_map(Curve::values);
    let highest = values().map(|(_, y)| y).reduce(f64::max)?;
    let voids = curves.iter().flat_map(|curve| &curve.voids);
    let tried: Vec<f64> = values()
        .map(|(x, _)| x)
        .chain(voids.map(|(x, _)| *x))
        .collect();
    let (least, most) = extent(tried.iter().copied())?;
    let pad = ((most - least) * 0.03).max(0.15);
    let frame = Frame {
        left: 76.0,
        top: 28.0,
        width: WIDTH - 76.0 - NAMES,
        height: chart::height_for(curves.len()),
        x: Scale::linear(least - pad, most + pad),
        y: Scale::from_zero(values().map(|(_, y)| y)),
    };
    let mut canvas = Canvas::default();
    let (unit, name) = rate_unit(highest);
    let x_ticks = ticks_at(tried.iter().map(|&x| x as usize), &frame);
    let y_ticks = ticks_in(&frame.y, 6, unit);
    frame.axes(&mut canvas, (&x_ticks, &y_ticks), (spec.threads, name));
    limit(&mut canvas, &frame, cpus);
    ideal(&mut canvas, &frame, curves);
    chart::curves(&mut canvas, &frame, curves);
    chart::names(&mut canvas, &frame, curves);
    Some(Plot {
        kind: spec.kind,
        title: spec.title,
        note: spec.note,
        height: frame.bottom() + 50.0,
        body: canvas.out,
    })
}

/// Ticks at numbers, as far as they find room.
pub(super) fn ticks_at(numbers: impl Iterator<Item = usize>, frame: &Frame) -> Vec<Tick> {
    let mut tried: Vec<usize> = numbers.collect();
    tried.sort_unstable();
    tried.dedup();
    let mut ticks: Vec<Tick> = Vec::new();
    for number in tried {
        let x = frame.x(number as f64);
        let free = |(last, _): &Tick| x - frame.x(*last) >= 26.0;
        if ticks.last().is_none_or(free) {
            ticks.push((number as f64, number.to_string()));
        }
    }
    ticks
}

/// Marks where there are more threads than CPUs.
fn limit(canvas: &mut Canvas, frame: &Frame, cpus: usize) {
    if cpus == 0 || !frame.x.holds(cpus as f64 + 0.5) {
        return;
    }
    let x = frame.x(cpus as f64 + 0.5);
    canvas.line("guide", (x, frame.top), (x, frame.bottom()));
    let text = format!("more threads than the {cpus} CPUs →");
    let fits = frame.right() - x > 240.0;
    let (at, anchor) = if fits {
        (x, Anchor::Start)
    } else {
        (frame.right(), Anchor::End)
    };
    canvas.text("remark", (at, frame.top - 8.0), anchor, &text);
}

/// The line of the best table at the least number of threads, as far as the frame goes.
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
    let d = crate::report::svg::through(&[from, to]);
    canvas.path("guide", &d, &format!("ideal: {} a thread", rate(slope)));
    let near = (to.0 + 6.0, (to.1 + 14.0).min(frame.bottom()));
    canvas.text("remark", near, Anchor::Start, "ideal");
    canvas.close();
}

/// A point with its text.
pub(super) fn spot(x: f64, y: f64, what: &str) -> Spot {
    Spot {
        at: (x, y),
        text: format!("{what}: {}", rate(y)),
    }
}
