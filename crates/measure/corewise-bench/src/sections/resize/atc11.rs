//! Figures 3 to 7 of \[ATC11\] §7, from the section `resize`: rates over the number of readers.
//!
//! | figure | curves | plot |
//! |---|---|---|
//! | 3 | each table, at the smaller size, never resized | `plot-resize-fixed-1` |
//! | 4 | each table, resized without pause | `plot-resize-moving-1` |
//! | 5 to 7 | one table: at both sizes, and resized | `plot-resize-table-N` |
//!
//! Figure 5 shows the paper's algorithm (`chained:atc11`, and its successor `relativistic`), 6
//! DDDS, and 7 the readers-writer lock; other tables have the same plot without a number. The paper
//! omits the lock from figure 4, as it vanishes at the lower edge; this figure includes it. The
//! larger size at rest, and the mixes with updates, are not in the paper and are drawn in the same
//! way.

use itertools::Itertools;

use crate::plot::Plot;
use crate::plot::chart::Curve;
use crate::plot::group::{self, Group, groups, named};
use crate::plot::over_threads::{NOTE, by_threads, most_cpus, over_threads};
use crate::plot::rates::{curves, rate_spots};
use crate::plot::style::Looks;
use crate::plot::svg::count;
use crate::results::{CellResults, Results, RowResults, by_key, distinct};
use crate::sections::resize::busy;
use crate::sections::resize::cells::MOVING;

/// Tables with a figure in the paper, and its number.
const FIGURES: [(&str, usize); 4] = [
    ("chained:atc11", 5),
    ("relativistic", 5),
    ("chained:ddds", 6),
    ("chained:rwlock", 7),
];

/// A row with its cell.
type Placed<'a> = (&'a CellResults, &'a RowResults);

/// The state of a cell's buckets, in the order of the paper's figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum BucketState {
    Fixed(u64),
    Moving,
}

impl BucketState {
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

/// Draws the figures of every workload of the section `resize`: comparisons of tables first, then
/// those of one table each.
pub(crate) fn plots(results: &Results, looks: &Looks) -> Vec<Plot> {
    let cells = named(&results.sections, "resize");
    let groups = groups(cells, &["threads", "variant"]);
    let cpus = most_cpus(results);
    let of_group = |group: &Group<'_>| {
        let mut plots = compared(group, looks, cpus);
        plots.extend(alone(group, looks, cpus));
        plots
    };
    groups.iter().flat_map(of_group).collect()
}

/// Returns whether the workload is the paper's: lookups only.
fn is_papers(group: &Group<'_>) -> bool {
    let updates = |cell: &&CellResults| cell.cell.update_percent > 0.0;
    !group.cells.iter().any(updates)
}

/// A title that begins with the paper's figure, if the paper has it.
fn title(group: &Group<'_>, figure: Option<usize>, what: &str) -> String {
    let figure = figure.map_or(String::new(), |number| {
        if is_papers(group) {
            format!("Figure {number}: ")
        } else {
            format!("As figure {number}, with updates: ")
        }
    });
    format!("{figure}{what}: {}", group.title)
}

/// Plots of all tables at each size, and resized.
fn compared(group: &Group<'_>, looks: &Looks, cpus: usize) -> Vec<Plot> {
    let all = group.cells.iter().filter_map(|c| BucketState::of(c));
    let all = all.sorted_unstable().dedup();
    let plot = |(at, buckets): (usize, BucketState)| {
        let rows = || {
            let rows = group.rows();
            rows.filter(move |(cell, _)| BucketState::of(cell) == Some(buckets))
        };
        let (kind, figure, what) = match buckets {
            BucketState::Fixed(_) => (
                "resize-fixed",
                (at == 0).then_some(3),
                format!("{}, never resized", buckets.words()),
            ),
            BucketState::Moving => ("resize-moving", Some(4), "resized without pause".to_owned()),
        };
        let about = (kind, title(group, figure, &what), note(rows()));
        over_threads(
            about,
            "readers",
            &curves(rows(), looks, by_threads, readers),
            &[cpus],
        )
    };
    all.enumerate().filter_map(plot).collect()
}

/// Plots of each table at both sizes and resized, the paper's tables first.
fn alone(group: &Group<'_>, looks: &Looks, cpus: usize) -> Vec<Plot> {
    let mut labels = distinct(group.rows().map(|(_, row)| &*row.label));
    let figure = |label: &str| {
        let of = |(name, _): &&(&str, usize)| label.split(' ').next() == Some(*name);
        FIGURES.iter().find(of).map(|(_, number)| *number)
    };
    labels.sort_by_key(|label| (figure(label).unwrap_or(usize::MAX), looks.place(label)));
    let plot = |label: &str| {
        let rows = || group.rows().filter(move |(_, row)| row.label == label);
        let what = format!("{label}, at both sizes and resized without pause");
        let about = (
            "resize-table",
            title(group, figure(label), &what),
            note(rows()),
        );
        over_threads(about, "readers", &states(rows(), looks), &[cpus])
    };
    labels.into_iter().filter_map(plot).collect()
}

/// A curve for each state of the buckets, in the colour of the table.
fn states<'a>(rows: impl Iterator<Item = Placed<'a>>, looks: &Looks) -> Vec<Curve> {
    let with = rows.filter_map(|(cell, row)| Some((BucketState::of(cell)?, (cell, row))));
    let mut all: Vec<(BucketState, Vec<Placed<'a>>)> = by_key(with);
    // The resizing curve first: its line has no gaps.
    all.sort_unstable_by_key(|(buckets, _)| std::cmp::Reverse(*buckets));
    let curve = |(line, (buckets, rows)): (usize, (BucketState, Vec<Placed<'a>>))| {
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

/// The note below a plot, with a sentence about rows that were not being resized for most of the
/// time, if there are any.
fn note<'a>(rows: impl Iterator<Item = Placed<'a>>) -> String {
    let valid = rows.filter(|(_, row)| !row.void());
    let paused = valid.filter_map(|(cell, row)| {
        let of = row.row.fields.resize.as_ref();
        let of = of.filter(|of| !of.is_continuous())?;
        let (label, readers, busy) = (&row.label, readers(cell), busy(of));
        Some(format!("{label} with {readers} ({busy})"))
    });
    let paused: Vec<String> = paused.collect();
    if paused.is_empty() {
        NOTE.to_owned()
    } else {
        format!("{NOTE} Not resized all the time: {}.", paused.join("; "))
    }
}
