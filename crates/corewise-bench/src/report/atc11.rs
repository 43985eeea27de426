//! Figures 3 to 7 of the relativistic table's paper (Triplett, McKenney, Walpole, ATC 2011, section 7),
//! of the section `resize`: rates over the number of readers.
//!
//! | figure | curves | plot |
//! |---|---|---|
//! | 3 | each table, at the smaller size, never resized | `plot-resize-fixed-1` |
//! | 4 | each table, resized without pause | `plot-resize-moving-1` |
//! | 5 to 7 | one table: at both sizes, and resized | `plot-resize-table-N` |
//!
//! Figure 5 is of the paper's own algorithm (`chained:atc11`, and what became of it, `relativistic`), 6
//! of DDDS, 7 of the readers-writer lock; other tables have the same plot without a number. The paper
//! leaves the lock out of figure 4, as it vanishes at the lower edge; here it is in. The larger size at
//! rest, and the mixes with updates, are not in the paper and are drawn in the same way.

use crate::report::Plot;
use crate::report::chart::Curve;
use crate::report::group::{self, Group, groups, named};
use crate::report::resize::busy;
use crate::report::scaling::{self, Spec, by_threads};
use crate::report::style::Looks;
use crate::report::svg::count;
use crate::report::{curves, rate_spots};
use crate::resize::MOVING;
use crate::results::{CellResults, Results, RowResults};

/// Tables that the paper has a figure of, and which.
const FIGURES: [(&str, usize); 4] = [
    ("chained:atc11", 5),
    ("relativistic", 5),
    ("chained:ddds", 6),
    ("chained:rwlock", 7),
];

/// A row with its cell.
type Placed<'a> = (&'a CellResults, &'a RowResults);

/// What a cell's buckets do; ordered as the paper's figures are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Buckets {
    Fixed(u64),
    Moving,
}

impl Buckets {
    fn of(cell: &CellResults) -> Option<Self> {
        let words = &*cell.cell.variant;
        if words.starts_with(MOVING) {
            return Some(Self::Moving);
        }
        let number = words.split(' ').next()?.parse().ok()?;
        Some(Self::Fixed(number))
    }

    fn words(self) -> String {
        match self {
            Self::Fixed(number) => format!("{} buckets", count(number)),
            Self::Moving => "resizing".to_owned(),
        }
    }
}

/// The figures of every workload of the section `resize`: those that compare tables, then those of one
/// table each.
pub(super) fn plots(results: &Results, looks: &Looks) -> Vec<Plot> {
    let cells = named(&results.sections, "resize");
    let groups = groups(cells, &["threads", "variant"]);
    let cpus = scaling::most_cpus(results);
    let of_group = |group: &Group<'_>| {
        let mut plots = compared(group, looks, cpus);
        plots.extend(alone(group, looks, cpus));
        plots
    };
    groups.iter().flat_map(of_group).collect()
}

/// Whether it is what the paper measures: lookups only.
fn is_papers(group: &Group<'_>) -> bool {
    let updates = |cell: &&CellResults| cell.cell.update_percent > 0.0;
    !group.cells.iter().any(updates)
}

/// A title that begins with the paper's figure, if it has that one.
fn title(group: &Group<'_>, figure: Option<usize>, what: &str) -> String {
    let figure = figure.map_or(String::new(), |number| match is_papers(group) {
        true => format!("Figure {number}: "),
        false => format!("As figure {number}, with updates: "),
    });
    format!("{figure}{what}: {}", group.title)
}

/// All tables at each size, and resized.
fn compared(group: &Group<'_>, looks: &Looks, cpus: usize) -> Vec<Plot> {
    let mut all: Vec<Buckets> = group.cells.iter().filter_map(|c| Buckets::of(c)).collect();
    all.sort_unstable();
    all.dedup();
    let plot = |(at, buckets): (usize, Buckets)| {
        let rows = || {
            let rows = group.rows();
            rows.filter(move |(cell, _)| Buckets::of(cell) == Some(buckets))
        };
        let (kind, figure, what) = match buckets {
            Buckets::Fixed(_) => (
                "resize-fixed",
                (at == 0).then_some(3),
                format!("{}, never resized", buckets.words()),
            ),
            Buckets::Moving => ("resize-moving", Some(4), "resized without pause".to_owned()),
        };
        let spec = Spec {
            kind,
            title: title(group, figure, &what),
            note: format!("{}{}", scaling::NOTE, pauses(rows())),
            threads: "readers",
        };
        let words = |cell: &CellResults| readers(cell);
        scaling::over_threads(spec, &curves(rows(), looks, by_threads, words), cpus)
    };
    all.into_iter().enumerate().filter_map(plot).collect()
}

/// Each table at both sizes and resized, those of the paper first.
fn alone(group: &Group<'_>, looks: &Looks, cpus: usize) -> Vec<Plot> {
    let mut labels = group.labels();
    let figure = |label: &str| {
        let of = |(name, _): &&(&str, usize)| label.split(' ').next() == Some(*name);
        FIGURES.iter().find(of).map(|(_, number)| *number)
    };
    labels.sort_by_key(|label| (figure(label).unwrap_or(usize::MAX), looks.place(label)));
    let plot = |label: &str| {
        let rows = || group.rows().filter(move |(_, row)| row.label == label);
        let what = format!("{label}, at both sizes and resized without pause");
        let spec = Spec {
            kind: "resize-table",
            title: title(group, figure(label), &what),
            note: format!("{}{}", scaling::NOTE, pauses(rows())),
            threads: "readers",
        };
        scaling::over_threads(spec, &states(rows(), looks), cpus)
    };
    labels.into_iter().filter_map(plot).collect()
}

/// A curve for each thing that the buckets do, in the colour of the table.
fn states<'a>(rows: impl Iterator<Item = Placed<'a>>, looks: &Looks) -> Vec<Curve> {
    let mut all: Vec<(Buckets, Vec<Placed<'a>>)> = Vec::new();
    for (cell, row) in rows {
        let Some(buckets) = Buckets::of(cell) else {
            continue;
        };
        match all.iter_mut().find(|(known, _)| *known == buckets) {
            Some((_, rows)) => rows.push((cell, row)),
            None => all.push((buckets, vec![(cell, row)])),
        }
    }
    // The one that the paper is about first: its line has no gaps.
    all.sort_unstable_by_key(|(buckets, _)| std::cmp::Reverse(*buckets));
    let curve = |(line, (buckets, rows)): (usize, (Buckets, Vec<Placed<'a>>))| {
        let (_, first) = rows.first()?;
        let mut curve = Curve::new(looks.look(first).line(line), &buckets.words());
        for (cell, row) in rows {
            let what = format!("{}, {}", buckets.words(), readers(cell));
            rate_spots(&mut curve, row, by_threads(cell), &what);
        }
        curve.sort();
        Some(curve)
    };
    all.into_iter().enumerate().filter_map(curve).collect()
}

fn readers(cell: &CellResults) -> String {
    group::counted(cell.cell.threads, "reader")
}

/// A sentence about rows that were not being resized for most of the time, if there are any.
fn pauses<'a>(rows: impl Iterator<Item = Placed<'a>>) -> String {
    let valid = rows.filter(|(_, row)| !row.void());
    let paused = valid.filter_map(|(cell, row)| {
        let of = row.row.resize.as_ref().filter(|of| !of.is_continuous())?;
        Some(format!(
            "{} with {} ({})",
            row.label,
            readers(cell),
            busy(of)
        ))
    });
    let paused: Vec<String> = paused.collect();
    match paused.is_empty() {
        true => String::new(),
        false => format!(" Not resized all the time: {}.", paused.join("; ")),
    }
}
