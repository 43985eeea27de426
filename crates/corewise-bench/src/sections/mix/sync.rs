//! Throughput by lock, with the share of contended acquisitions.

use crate::plot::Plot;
use crate::plot::dots::{SIDE, Spec, contenders, draw};
use crate::plot::group::{groups, named};
use crate::plot::style::Looks;
use crate::plot::svg::{Anchor, Canvas, Frame};
use crate::results::{Results, RowResults};

/// Width of the bars.
const BARS: f64 = 44.0;

/// A plot for each workload of the section `sync`.
pub(crate) fn plots(results: &Results, looks: &Looks) -> Vec<Plot> {
    let groups = groups(named(&results.sections, "sync"), &["threads"]);
    let draw_group = |group: &crate::plot::group::Group<'_>| {
        let heading = |threads| crate::plot::group::threads(threads);
        let cells = group.cells.iter();
        let blocks: Vec<_> = cells
            .map(|cell| (heading(cell.cell.threads), contenders(cell)))
            .collect();
        let spec = Spec {
            kind: "sync",
            title: format!("Throughput by lock: {}", group.title),
            side: SIDE + BARS + 106.0,
        };
        let mut canvas = Canvas::default();
        let (frame, placed) = draw(&mut canvas, &spec, &blocks, looks)?;
        shares(&mut canvas, &frame, &placed, looks);
        Some(Plot {
            kind: spec.kind,
            title: spec.title,
            note:
                "On the right, the share of critical sections that found the lock taken (full) and \
                   of transactions that aborted (pale)."
                    .to_owned(),
            height: frame.bottom() + 50.0,
            body: canvas.out,
        })
    };
    groups.iter().filter_map(draw_group).collect()
}

fn shares(canvas: &mut Canvas, frame: &Frame, placed: &[(&RowResults, f64)], looks: &Looks) {
    let left = frame.right() + SIDE + 14.0;
    let bottom = frame.bottom();
    for (share, label) in [(0.0, "0 %"), (1.0, "100 %")] {
        let x = left + BARS * share;
        canvas.line("grid", (x, frame.top + 30.0), (x, bottom));
        canvas.text("tick", (x, bottom + 19.0), Anchor::Middle, label);
    }
    canvas.line("axis", (left, bottom), (left + BARS, bottom));
    let middle = (left + BARS / 2.0, bottom + 40.0);
    canvas.text("axistitle", middle, Anchor::Middle, "contended, aborted");
    for (row, y) in placed.iter().filter(|(row, _)| !row.void()) {
        bars(canvas, row, (left, *y), looks);
    }
}

fn bars(canvas: &mut Canvas, row: &RowResults, (left, y): (f64, f64), looks: &Looks) {
    let Some(seen) = row.row.contention else {
        canvas.text(
            "remark",
            (left + 6.0, y + 4.0),
            Anchor::Start,
            "not counted",
        );
        return;
    };
    let of = |part: u64, all: u64| {
        if all == 0 {
            0.0
        } else {
            part as f64 / all as f64
        }
    };
    let contended = of(seen.contended, seen.acquisitions);
    let aborted = of(seen.aborts, seen.elided + seen.aborts);
    canvas.open(&looks.look(row).class());
    let title = format!(
        "{}: {} of {} sections contended, {} elided, {} aborted",
        row.label, seen.contended, seen.acquisitions, seen.elided, seen.aborts
    );
    canvas.rect(
        "share",
        (left, y - 7.0),
        (BARS * contended.min(1.0), 7.0),
        &title,
    );
    canvas.rect(
        "share abort",
        (left, y),
        (BARS * aborted.min(1.0), 7.0),
        &title,
    );
    let mut text = format!("{:.1}", contended * 100.0);
    if seen.aborts + seen.elided > 0 {
        text += &format!(", {:.1}", aborted * 100.0);
    }
    text += " %";
    let at = (left + BARS + 8.0, y + 4.0);
    canvas.text("value", at, Anchor::Start, &text);
    canvas.close();
}
