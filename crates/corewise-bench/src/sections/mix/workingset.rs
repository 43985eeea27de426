//! Throughput against entries, with the sizes of the caches.

use crate::plot::Plot;
use crate::plot::chart::{self, Curve, NAMES, WIDTH};
use crate::plot::group::{Group, groups, named};
use crate::plot::rates::curves;
use crate::plot::style::Looks;
use crate::plot::svg::{
    Anchor, Canvas, Frame, Scale, bytes, count, count_tick, rate_unit, ticks_as, ticks_in,
};
use crate::record::CacheFacts;
use crate::results::{CellResults, Results};
use crate::sections::memory::MemoryPoint;

/// Height of the line of marks of a cache.
const LANE: f64 = 18.0;

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
    let values = || curves.iter().flat_map(Curve::values);
    let highest = values().map(|(_, y)| y).reduce(f64::max)?;
    let entries = group.cells.iter().map(|cell| cell.cell.initial as f64);
    let caches = caches(results);
    let frame = Frame {
        left: chart::LEFT,
        top: 46.0 + LANE * caches.len() as f64,
        width: WIDTH - chart::LEFT - NAMES,
        height: chart::height_for(curves.len()),
        x: Scale::log_over(entries.flat_map(|e| [e / 1.3, e * 1.3])),
        y: Scale::from_zero(values().map(|(_, y)| y)),
    };
    let mut canvas = Canvas::default();
    let (unit, name) = rate_unit(highest);
    let x_ticks = ticks_as(&frame.x, 5, count_tick);
    let y_ticks = ticks_in(&frame.y, 6, unit);
    frame.axes(&mut canvas, (&x_ticks, &y_ticks), ("entries", name));
    for (contender, cache) in caches.iter().enumerate() {
        let y = 38.0 + LANE * contender as f64;
        mark_cache(&mut canvas, (&frame, y), cache, payload(group));
        mark_tables(&mut canvas, (&frame, y), cache, (&curves, results));
    }
    if !caches.is_empty() {
        let text = "where a table outgrows a cache (dashed: keys and values alone)";
        canvas.text("remark", (4.0, 12.0), Anchor::Start, text);
    }
    chart::curves(&mut canvas, &frame, &curves);
    chart::names(&mut canvas, &frame, &curves);
    Some(Plot {
        kind: "workingset",
        title: format!("Throughput against entries: {}", group.title),
        note: format!(
            "Dashed lines stand where {} B × entries exceed a cache; the marks above the plot stand \
             where a table's measured bytes per entry × entries do.",
            payload(group)
        ),
        height: frame.bottom() + 50.0,
        body: canvas.out,
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

/// The caches of the first file's machine.
fn caches(results: &Results) -> Vec<CacheFacts> {
    let first = results.files.first();
    let mut caches = first.map_or(Vec::new(), |file| file.manifest.machine.caches.clone());
    caches.sort_by_key(|cache| cache.level);
    caches
}

fn mark_cache(canvas: &mut Canvas, (frame, y): (&Frame, f64), cache: &CacheFacts, payload: usize) {
    canvas.line("grid", (frame.left, y - 4.0), (frame.right(), y - 4.0));
    let name = format!("L{}", cache.level);
    canvas.text("strong", (frame.left - 8.0, y), Anchor::End, &name);
    let size = bytes(cache.size_bytes as f64);
    let right = (frame.right() + 8.0, y);
    canvas.text("remark", right, Anchor::Start, &size);
    let limit = cache.size_bytes as f64 / payload as f64;
    if frame.x.holds(limit) {
        let x = frame.x(limit);
        let d = crate::plot::svg::through(&[(x, y - 10.0), (x, frame.bottom())]);
        let title = format!("{payload} B × {} entries = {name}", count(limit as u64));
        canvas.path("guide cachemark", &d, &title);
    }
}

fn mark_tables(
    canvas: &mut Canvas,
    (frame, y): (&Frame, f64),
    cache: &CacheFacts,
    (curves, results): (&[Curve], &Results),
) {
    for curve in curves {
        let Some(each) = bytes_per_entry(results, &curve.name, cache.size_bytes as f64) else {
            continue;
        };
        let limit = cache.size_bytes as f64 / each;
        if frame.x.holds(limit) {
            let title = format!(
                "{}: {each:.1} B × {} entries exceed L{}",
                curve.name,
                count(limit as u64),
                cache.level
            );
            let at = (frame.x(limit), y - 4.0);
            canvas.open(&curve.look.class());
            canvas.mark(curve.look.shape(), "median tablemark", at, 5.0, &title);
            canvas.close();
        }
    }
}

/// Returns the bytes per entry of a table, measured at the size nearest to `size` bytes.
fn bytes_per_entry(results: &Results, label: &str, size: f64) -> Option<f64> {
    let rows = results
        .rows()
        .filter(|row| row.label == label && !row.void());
    let points = rows.flat_map(|row| row.details::<MemoryPoint>());
    let points = points.filter(|p| p.entries > 0);
    let taken = |p: &MemoryPoint| p.live_bytes.unwrap_or(p.resident_bytes) as f64;
    let points = points.filter(|p| taken(p) > 0.0);
    let off = |p: &MemoryPoint| (taken(p) / size).ln().abs();
    let nearest = points.min_by(|a, b| off(a).total_cmp(&off(b)))?;
    Some(taken(&nearest) / nearest.entries as f64)
}
