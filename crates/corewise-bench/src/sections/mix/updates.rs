//! A heat map of tables by their share of updates.

use crate::plot::Plot;
use crate::plot::chart::WIDTH;
use crate::plot::group::{Group, groups, named, updates};
use crate::plot::style::Looks;
use crate::plot::svg::{Anchor, Canvas, rate, shorten};
use crate::results::{CellResults, Results, RowResults};

const LEFT: f64 = 150.0;
const TOP: f64 = 34.0;
const LANE: f64 = 26.0;

/// A heat map for each workload of the section `updates`.
pub(crate) fn plots(results: &Results, looks: &Looks) -> Vec<Plot> {
    let cells = named(&results.sections, "updates");
    let groups = groups(
        cells,
        &["update_percent", "insert_percent", "remove_percent"],
    );
    groups
        .into_iter()
        .filter_map(|group| plot(group, looks))
        .collect()
}

fn plot(mut group: Group<'_>, looks: &Looks) -> Option<Plot> {
    group
        .cells
        .sort_by(|a, b| a.cell.update_percent.total_cmp(&b.cell.update_percent));
    let mut labels = group.labels();
    labels.sort_by_key(|label| looks.place(label));
    if labels.is_empty() {
        return None;
    }
    let width = (WIDTH - LEFT - 10.0) / group.cells.len() as f64;
    let mut canvas = Canvas::default();
    for (at, cell) in group.cells.iter().enumerate() {
        let left = LEFT + width * at as f64;
        let middle = (left + width / 2.0, TOP - 10.0);
        let heading = shorten(&heading(cell), (width / 7.4) as usize);
        canvas.text("strong", middle, Anchor::Middle, &heading);
        column(&mut canvas, &labels, cell, (left, width));
    }
    for (at, label) in labels.iter().enumerate() {
        let y = TOP + LANE * at as f64 + LANE / 2.0 + 4.0;
        let look = looks.all().find(|(name, _)| name == label);
        canvas.open(&look.map_or(String::new(), |(_, look)| look.class()));
        canvas.text("label", (LEFT - 10.0, y), Anchor::End, &shorten(label, 20));
        canvas.close();
    }
    let bottom = TOP + LANE * labels.len() as f64;
    scale(&mut canvas, bottom + 22.0);
    Some(Plot {
        kind: "updates",
        title: format!("Throughput by share of updates: {}", group.title),
        note: "Operations per second; the shade compares a table with the best of its column."
            .to_owned(),
        height: bottom + 46.0,
        body: canvas.out,
    })
}

/// Returns the head of a column: the title names what it is a share of.
fn heading(cell: &CellResults) -> String {
    updates(cell).replace(" updates", "")
}

fn column(canvas: &mut Canvas, labels: &[&str], cell: &CellResults, span: (f64, f64)) {
    let find = |label: &str| {
        cell.rows
            .iter()
            .find(|row| row.label == label && is_table(row))
    };
    let valid = labels
        .iter()
        .filter_map(|l| find(l))
        .filter(|row| !row.void());
    let best = valid.filter_map(|row| row.row.rate).map(|rate| rate.value);
    let best = best.fold(0.0, f64::max);
    for (at, label) in labels.iter().enumerate() {
        let place = (span.0, TOP + LANE * at as f64);
        if let Some(row) = find(label) {
            square(canvas, row, best, (place, span.1));
        }
    }
}

fn is_table(row: &RowResults) -> bool {
    use crate::record::Role;
    matches!(row.row.role, Role::DynTable | Role::Reference)
}

fn square(canvas: &mut Canvas, row: &RowResults, best: f64, (at, width): ((f64, f64), f64)) {
    let middle = (at.0 + width / 2.0, at.1 + LANE / 2.0 + 4.0);
    if row.void() {
        let why = format!("{}: void: {}", row.label, row.problem().unwrap_or_default());
        canvas.rect("hatched void", at, (width - 2.0, LANE - 2.0), &why);
        canvas.text("gone strong", middle, Anchor::Middle, "void");
        return;
    }
    let Some(interval) = row.row.rate else {
        return;
    };
    let share = if best > 0.0 {
        interval.value / best
    } else {
        0.0
    };
    let shade = (share * 5.0).round() as usize;
    let title = format!(
        "{}: {} ({} to {}), {:.0} % of the best",
        row.label,
        rate(interval.value),
        rate(interval.low),
        rate(interval.high),
        share * 100.0
    );
    canvas.open(&format!("heatcell h{shade}"));
    shaded(canvas, at, (width, LANE), (share, &title));
    let ink = match share {
        most if most > 0.85 => "heatdark",
        more if more > 0.75 => "heatmid",
        _ => "heatlight",
    };
    canvas.text(ink, middle, Anchor::Middle, &rate(interval.value));
    canvas.close();
}

/// Draws a rectangle whose darkness is its share.
fn shaded(canvas: &mut Canvas, at: (f64, f64), size: (f64, f64), (share, title): (f64, &str)) {
    let before = canvas.out.len();
    canvas.rect("heat", at, size, title);
    let opacity = format!(
        "<rect fill-opacity=\"{:.3}\"",
        0.06 + 0.94 * share.powf(1.5)
    );
    let drawn = canvas.out.split_off(before);
    canvas.out.push_str(&drawn.replacen("<rect", &opacity, 1));
}

fn scale(canvas: &mut Canvas, y: f64) {
    canvas.text("remark", (LEFT, y), Anchor::Start, "of the best: 0 %");
    let left = LEFT + 98.0;
    for step in 0..20 {
        let share = f64::from(step) / 19.0;
        let at = (left + 8.0 * f64::from(step), y - 11.0);
        shaded(canvas, at, (8.5, 14.0), (share, ""));
    }
    canvas.text("remark", (left + 168.0, y), Anchor::Start, "100 %");
}
