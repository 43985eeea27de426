//! Throughput against entries, with the sizes of the caches.

use crate::plot::Plot;
use crate::plot::group::{Group, groups, named};
use crate::plot::lines::{Axis, Lines};
use crate::plot::rates::curves;
use crate::plot::style::Looks;
use crate::plot::svg::{Anchor, Canvas, Frame, Scale, bytes, count, count_tick};
use crate::record::CacheFacts;
use crate::results::{CellResults, Results};

/// A plot for each workload of the section `workingset`.
pub(crate) fn plots(results: &Results, looks: &Looks) -> Vec<Plot> {
    let cells = named(&results.sections, "workingset");
    let groups = groups(cells, &["initial", "range"]);
    let draw = |group: &Group<'_>| plot(group, results, looks);
    groups.iter().filter_map(draw).collect()
}

fn plot(group: &Group<'_>, results: &Results, looks: &Looks) -> Option<Plot> {
    let words = |cell: &CellResults| format!("{} entries", count(cell.cell.initial));
    let curves = curves(group.rows(), looks, |cell| cell.cell.initial as f64, words);
    let entries = group.cells.iter().map(|cell| cell.cell.initial as f64);
    let payload = payload(group);
    let lines = Lines {
        kind: "workingset",
        title: format!("Throughput against entries: {}", group.title),
        note: format!(
            "A dashed line stands where keys and values, {payload} B × entries, exceed a cache."
        ),
        x: Axis::Over(
            Scale::log_over(entries.flat_map(|e| [e / 1.3, e * 1.3])),
            count_tick,
        ),
        x_title: "entries",
    };
    let machine = results.files.first().map(|file| &file.manifest.machine);
    let caches = machine.map_or(&[][..], |machine| &machine.caches);
    lines.draw(&curves, |canvas, frame| {
        caches
            .iter()
            .for_each(|cache| mark(canvas, frame, cache, payload));
    })
}

/// Bytes of a key and a value.
fn payload(group: &Group<'_>) -> usize {
    let cell = group.cells.first().map(|cell| &cell.cell);
    let bytes = cell.filter(|cell| cell.kind != "u64");
    bytes.map_or(16, |cell| {
        usize::midpoint(cell.key_bytes.0, cell.key_bytes.1) + cell.value_bytes
    })
}

fn mark(canvas: &mut Canvas, frame: &Frame, cache: &CacheFacts, payload: usize) {
    let limit = cache.size_bytes as f64 / payload as f64;
    if !frame.x.holds(limit) {
        return;
    }
    let name = format!("L{}", cache.level);
    let size = bytes(cache.size_bytes as f64);
    let title = format!(
        "{payload} B × {} entries = {name}, {size}",
        count(limit as u64)
    );
    frame.guide(canvas, limit, &title);
    let above = (frame.x(limit), frame.top - 6.0);
    canvas.text("remark", above, Anchor::Middle, &name);
}
