//! Throughput against threads.

use crate::report::chart::{self, Curve, NAMES, Spot, WIDTH};
use crate::report::group::{Group, groups, named, threads};
use crate::report::style::Looks;
use crate::report::svg::{Anchor, Canvas, Frame, Scale, Tick, extent, rate, rate_unit, ticks_in};
use crate::report::{Plot, rate_spots};
use crate::results::Results;

/// A plot for each workload of the section `scaling`.
pub(super) fn plots(results: &Results, looks: &Looks) -> Vec<Plot> {
    let cells = named(&results.sections, "scaling");
    let groups = groups(cells, &["threads"]);
    let most = results.files.iter().map(|f| f.manifest.machine.cpus).max();
    let draw = |group| plot(group, looks, most.unwrap_or(0));
    groups.iter().filter_map(draw).collect()
}

fn plot(group: &Group<'_>, looks: &Looks, cpus: usize) -> Option<Plot> {
    let curves = curves(group, looks);
    let values = || curves.iter().flat_map(Curve::values);
    let highest = values().map(|(_, y)| y).reduce(f64::max)?;
    let tried = group.cells.iter().map(|cell| cell.cell.threads as f64);
    let (least, most) = extent(tried)?;
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
    let y_ticks = ticks_in(&frame.y, 6, unit);
    frame.axes(
        &mut canvas,
        (&thread_ticks(group, &frame), &y_ticks),
        ("threads", name),
    );
    limit(&mut canvas, &frame, cpus);
    ideal(&mut canvas, &frame, &curves);
    chart::curves(&mut canvas, &frame, &curves);
    chart::names(&mut canvas, &frame, &curves);
    Some(Plot {
        kind: "scaling",
        title: format!("Throughput against threads: {}", group.title),
        note: "Dots are repetitions, lines join their medians. The dashed line is what the best \
               table would reach if every thread added as much as its first."
            .to_owned(),
        height: frame.bottom() + 50.0,
        body: canvas.out,
    })
}

fn curves(group: &Group<'_>, looks: &Looks) -> Vec<Curve> {
    let mut curves: Vec<Curve> = Vec::new();
    for (cell, row) in group.rows() {
        let at = curves.iter().position(|curve| curve.name == row.label);
        let at = at.unwrap_or_else(|| {
            curves.push(Curve::new(looks.look(row), &row.label));
            curves.len() - 1
        });
        let x = cell.cell.threads as f64;
        let what = format!("{}, {}", row.label, threads(cell.cell.threads));
        rate_spots(&mut curves[at], row, x, &what);
    }
    for curve in &mut curves {
        curve.medians.sort_by(|a, b| a.at.0.total_cmp(&b.at.0));
    }
    chart::sorted(looks, curves)
}

/// Ticks at the numbers of threads that were tried.
fn thread_ticks(group: &Group<'_>, frame: &Frame) -> Vec<Tick> {
    ticks_at(group.cells.iter().map(|c| c.cell.threads), frame)
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
