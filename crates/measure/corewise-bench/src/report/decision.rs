//! The first part of the page: which table to take for which workload.
//!
//! Each section gives a line for each kind of keys. A line orders tables by the geometric mean of
//! their ratios to the reference over all cells of the section. Tables that lack a valid row in one
//! of the cells are left out. All tables that the A/A spread does not separate from the first are
//! named together. Latencies and memory have a line each.

use corewise_measure::number::three_digits;
use maud::{Markup, PreEscaped, html};

use crate::plot::chart::WIDTH;
use crate::plot::numbers::geometric_means;
use crate::plot::style::{CHOSEN, Look, Looks};
use crate::plot::svg::{Anchor, Canvas, Frame, Scale, count, plain, shorten, time};
use crate::plot::{Part, Plot};
use crate::record::Role;
use crate::results::{CellResults, Results, RowResults, SectionResults, by_key};
use crate::sections;

/// A difference in memory or latency under this factor counts as none.
const NEAR: f64 = 1.05;

/// Tables that are named in a field.
const MOST_NAMED: usize = 4;

/// A table with its value.
type Ranked<'a> = (&'a str, f64);

/// Tables with their values, the best first.
struct Line<'a> {
    section: &'a str,
    /// Its name in the chart.
    short: &'a str,
    what: String,
    ranked: Vec<Ranked<'a>>,
    /// Tables within this factor of the best are as good.
    spread: f64,
    text: fn(f64) -> String,
}

impl<'a> Line<'a> {
    /// Returns the tables that are as good as the best, and the others.
    fn split(&self) -> (&[Ranked<'a>], &[Ranked<'a>]) {
        let best = self.ranked.first().map_or(1.0, |(_, value)| *value);
        let near = |(_, value): &(&str, f64)| (best / value).max(value / best) <= self.spread;
        let end = self.ranked.iter().position(|entry| !near(entry));
        self.ranked.split_at(end.unwrap_or(self.ranked.len()))
    }
}

/// Returns the factor that the reference differs from itself by, over the cells; `None` if no cell
/// measured the reference again.
pub(crate) fn spread<'a>(cells: impl IntoIterator<Item = &'a CellResults>) -> Option<f64> {
    let rows = cells.into_iter().flat_map(|cell| &cell.rows);
    let again = rows.filter(|row| row.row.role == Role::Again && !row.void());
    let factors = again.filter_map(|row| row.row.ratio.map(|r| r.high.max(1.0 / r.low)));
    factors.filter(|factor| factor.is_finite()).reduce(f64::max)
}

/// The decision, if there is anything to decide: a sentence, a chart, and the numbers.
pub(crate) fn decision(results: &Results, looks: &Looks) -> Option<Part> {
    let mut lines: Vec<Line<'_>> = results.sections.iter().flat_map(rates).collect();
    lines.extend(latency(results));
    lines.extend(memory(results));
    lines.retain(|line| line.ranked.len() > 1);
    if lines.is_empty() {
        return None;
    }
    let noise = spread(results.cells()).map_or(String::new(), |factor| {
        let factor = three_digits(factor);
        format!(" The reference measured twice differs from itself by up to {factor}×.")
    });
    let lead = headline(&lines) + &noise;
    let plots = vec![chart(&lines, looks)];
    Some(Part {
        below: numbers(&lines, looks),
        ..Part::new("decision", "Which table to take", &lead, plots)
    })
}

/// The tables by rank, closed until a reader opens them.
fn numbers(lines: &[Line<'_>], looks: &Looks) -> Markup {
    html! {
        details {
            summary { "The decision as numbers" }
            table.decision {
                thead {
                    tr {
                        th scope="col" { "workload" }
                        th scope="col" { "take" }
                        th scope="col" { "then" }
                    }
                }
                tbody { @for line in lines { (row(line, looks)) } }
            }
            p.sub {
                "Rates are geometric means over the cells of a section, as multiples of the \
                 reference's. Tables in the same field are not separated by the A/A spread. The \
                 fairness cards name what each table can hold."
            }
        }
    }
}

/// Height of a workload in the chart.
const LANE: f64 = 26.0;
/// Left edge of the chart's frame.
const LEFT: f64 = 120.0;
/// Width of the names of the best tables.
const RIGHT: f64 = 150.0;

/// One lane for each workload. The mark of a table is at its rate divided by the best rate.
fn chart(lines: &[Line<'_>], looks: &Looks) -> Plot {
    let mut canvas = Canvas::default();
    let frame = Frame {
        left: LEFT,
        top: 8.0,
        width: WIDTH - LEFT - RIGHT,
        height: lines.len() as f64 * LANE,
        x: Scale::linear(0.0, 1.05),
        y: Scale::linear(0.0, 1.0),
    };
    let ticks = [0.0, 0.25, 0.5, 0.75, 1.0].map(|share| (share, plain(share)));
    frame.x_grid(&mut canvas, &ticks);
    frame.axes(&mut canvas, (&ticks, &[]), ("share of the best", ""));
    for (at, line) in lines.iter().enumerate() {
        let y = frame.top + LANE * (at as f64 + 0.5);
        lane(&mut canvas, (&frame, y), line, looks);
    }
    Plot {
        kind: "decision",
        title: "Each table by its share of the best, workload by workload".to_owned(),
        note:
            "Rates, and the reciprocals of latencies and of bytes. The name is that of the best; \
               tables on the bar are not separated from it by the A/A spread."
                .to_owned(),
        height: frame.bottom() + 46.0,
        body: canvas.out,
    }
}

/// Draws a workload: the tables as marks, those in colour above the others.
fn lane(canvas: &mut Canvas, (frame, y): (&Frame, f64), line: &Line<'_>, looks: &Looks) {
    let Some((winner, top)) = line.ranked.first() else {
        return;
    };
    let name = shorten(line.short, 14);
    canvas.text("tick", (LEFT - 10.0, y + 4.0), Anchor::End, &name);
    let near = frame.x(1.0 / line.spread.max(1.0));
    let size = (frame.x(1.0) - near, 12.0);
    canvas.rect("frame", (near, y - 6.0), size, "");
    let mut marks: Vec<&Ranked<'_>> = line.ranked.iter().collect();
    marks.sort_by_key(|(label, _)| std::cmp::Reverse(looks.place(label)));
    for (label, value) in marks {
        let Some(look) = look_of(looks, label) else {
            continue;
        };
        let share = (top / value).min(value / top);
        let title = format!("{}, {label}: {}", line.section, (line.text)(*value));
        canvas.open(&look.class());
        canvas.mark(look.shape(), "median", (frame.x(share), y), 5.0, &title);
        canvas.close();
    }
    let level = line.split().0.len() - 1;
    let class = look_of(looks, winner).map_or("series cn".to_owned(), Look::class);
    let winner = winner.trim_start_matches("lock:");
    let text = match level {
        0 => shorten(winner, 18),
        _ => format!("{} + {level}", shorten(winner, 14)),
    };
    let at = (frame.right() + 10.0, y + 4.0);
    canvas.open(&class);
    canvas.text("label", at, Anchor::Start, &text);
    canvas.close();
}

fn look_of(looks: &Looks, label: &str) -> Option<Look> {
    let mut all = looks.all();
    all.find(|(name, _)| *name == label).map(|(_, look)| look)
}

/// Returns a sentence that counts how often tables are among the best.
fn headline(lines: &[Line<'_>]) -> String {
    let is_lock = |line: &&Line<'_>| line.ranked[0].0.starts_with("lock:");
    let rated: Vec<_> = lines.iter().filter(|line| !is_lock(line)).collect();
    let mut wins = by_key(rated.iter().flat_map(|line| line.split().0.iter().copied()));
    wins.sort_by_key(|(_, times)| std::cmp::Reverse(times.len()));
    let named = wins.iter().take(3);
    let named: Vec<_> = named
        .map(|(label, times)| format!("{label} in {}", times.len()))
        .collect();
    format!(
        "Among the best of {} workloads, alone or within the noise: {}.{}",
        rated.len(),
        named.join(", "),
        shares(&rated)
    )
}

/// Returns a sentence with the mean share of the best that tables reach in all workloads that
/// measure rates.
fn shares<'a>(lines: &[&Line<'a>]) -> String {
    let of_line = |line: &&Line<'a>| {
        let top = line.ranked[0].1;
        let share = move |(label, value): Ranked<'a>| (label, (top / value).min(value / top));
        line.ranked.clone().into_iter().map(share)
    };
    let mut means = geometric_means(lines.iter().flat_map(of_line));
    means.retain(|(.., times)| *times == lines.len());
    means.sort_by(|a, b| b.1.total_cmp(&a.1));
    if lines.len() < 2 || means.is_empty() {
        return String::new();
    }
    let named = means.iter().take(CHOSEN);
    let named = named.map(|(label, mean, _)| format!("{label} {}", three_digits(*mean)));
    let named = named.collect::<Vec<_>>().join(", ");
    format!(" Over all of them a table reaches, of the best, in the mean: {named}.")
}

/// The lines of a section, one for each kind of keys.
fn rates<'a>(section: &'a SectionResults) -> Vec<Line<'a>> {
    let cells = section.cells.iter();
    let mut kinds = by_key(cells.map(|cell| (&*cell.cell.kind, cell)));
    kinds.sort_by_key(|(kind, _)| std::cmp::Reverse(*kind));
    let has_kinds = kinds.len() > 1;
    let about = sections::find(&section.name).map_or("", |of| &*of.preset().about);
    let line = |(kind, cells): (&'a str, Vec<&'a CellResults>)| {
        let keys = has_kinds.then(|| format!(" ({kind})"));
        Line {
            section: &section.name,
            short: &section.name,
            what: format!("{about}{}", keys.unwrap_or_default()),
            spread: spread(cells.iter().copied()).unwrap_or(1.0),
            ranked: ranked(&cells, relative, true),
            text: |ratio| format!("{}×", three_digits(ratio)),
        }
    };
    kinds.into_iter().map(line).collect()
}

/// Returns the rate of a row over that of the reference.
fn relative(row: &RowResults) -> Option<f64> {
    match row.row.role {
        Role::Reference => row.row.rate.map(|_| 1.0),
        _ => row.row.ratio.map(|ratio| ratio.value),
    }
}

/// Orders the tables that have a value in every cell by the mean of its logarithm.
fn ranked<'a>(
    cells: &[&'a CellResults],
    value: impl Fn(&RowResults) -> Option<f64>,
    most_first: bool,
) -> Vec<Ranked<'a>> {
    let rows = cells.iter().flat_map(|cell| &cell.rows);
    let tables = rows.filter(|row| matches!(row.row.role, Role::DynTable | Role::Reference));
    let valid = tables.filter(|row| !row.void());
    let means = geometric_means(valid.filter_map(|row| Some((&*row.label, value(row)?))));
    let complete = means
        .into_iter()
        .filter(|(.., times)| *times == cells.len());
    let mut means: Vec<_> = complete.map(|(label, mean, _)| (label, mean)).collect();
    means.sort_by(|a, b| a.1.total_cmp(&b.1));
    if most_first {
        means.reverse();
    }
    means
}

/// The tail of lookups in closed loop.
fn latency(results: &Results) -> Option<Line<'_>> {
    let tail = |row: &RowResults| {
        let mut hits = row.histograms.iter().filter(|h| h.operation == "get hit");
        let hit = hits.find(|hit| hit.count >= 1_000)?;
        hit.percentiles_ns.get("99.9").copied()
    };
    let section = results.sections.iter().find(|s| s.name == "latency")?;
    let cells: Vec<&CellResults> = section.cells.iter().collect();
    Some(Line {
        section: "latency",
        short: "99.9 % latency",
        what: "99.9 % of lookups within, the least".to_owned(),
        ranked: ranked(&cells, tail, false),
        spread: NEAR,
        text: time,
    })
}

/// Live bytes per entry at the greatest size.
fn memory(results: &Results) -> Option<Line<'_>> {
    let cells = || results.cells().filter(|cell| cell.cell.kind == "u64");
    let points = cells()
        .flat_map(|cell| &cell.rows)
        .flat_map(|row| &row.memory);
    let size = points.map(|point| point.entries).max();
    let size = size.filter(|size| *size > 0)?;
    let each = |row: &RowResults| {
        let point = row.memory.iter().find(|point| point.entries == size)?;
        Some(point.live_bytes? as f64 / size as f64)
    };
    let has_size = |cell: &&CellResults| cell.rows.iter().any(|row| each(row).is_some());
    let cells: Vec<_> = cells().filter(has_size).collect();
    Some(Line {
        section: "memory",
        short: "bytes an entry",
        what: format!("live bytes of an entry, {} entries, the least", count(size)),
        ranked: ranked(&cells, each, false),
        spread: NEAR,
        text: |bytes| format!("{bytes:.1} B"),
    })
}

fn row(line: &Line<'_>, looks: &Looks) -> Markup {
    let (best, others) = line.split();
    html! {
        tr {
            th scope="row" { a href={ "#" (line.section) } { (line.section) } small { (line.what) } }
            td { (entries(best, line.text, looks)) }
            td { (entries(others, line.text, looks)) }
        }
    }
}

fn entries(of: &[Ranked<'_>], text: fn(f64) -> String, looks: &Looks) -> Markup {
    html! {
        @for (label, value) in of.iter().take(MOST_NAMED) {
            span.entry {
                @if let Some(look) = look_of(looks, label) { (swatch(look)) }
                b { (label) } " " (text(*value))
            }
        }
        @if of.len() > MOST_NAMED { span.more { "and " (of.len() - MOST_NAMED) " more" } }
    }
}

/// Returns the mark that a table has in the plots.
pub(crate) fn swatch(look: Look) -> Markup {
    let mut mark = Canvas::default();
    mark.mark(look.shape(), "median", (8.0, 8.0), 6.0, "");
    html! {
        svg class={ "swatch " (look.colour()) } viewBox="0 0 16 16" aria-hidden="true" {
            (PreEscaped(mark.out))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(ranked: Vec<Ranked<'_>>, spread: f64) -> Line<'_> {
        Line {
            section: "scaling",
            short: "scaling",
            what: String::new(),
            ranked,
            spread,
            text: |_| String::new(),
        }
    }

    #[test]
    fn tables_within_the_spread_of_the_best_are_as_good() {
        let rates = vec![("a", 2.0), ("b", 1.95), ("c", 1.5)];
        let named = |line: &Line<'_>| -> Vec<String> {
            line.split().0.iter().map(|of| of.0.to_owned()).collect()
        };
        assert_eq!(named(&line(rates.clone(), 1.05)), ["a", "b"]);
        assert_eq!(named(&line(rates.clone(), 1.0)), ["a"]);
        assert_eq!(named(&line(rates, 2.0)), ["a", "b", "c"]);
        assert_eq!(
            named(&line(vec![("x", 20.0), ("y", 20.5)], 1.05)),
            ["x", "y"]
        );
        assert_eq!(named(&line(Vec::new(), 1.05)), [""; 0]);
    }

    #[test]
    fn the_headline_counts_the_best_of_each_line() {
        let lines = [
            line(vec![("a", 2.0), ("b", 1.99)], 1.05),
            line(vec![("b", 2.0), ("a", 1.0)], 1.05),
            line(vec![("lock:mcs", 2.0), ("lock:tas", 1.0)], 1.05),
        ];
        let said = headline(&lines);
        assert!(
            said.contains("2 workloads") && said.contains("b in 2, a in 1"),
            "{said}"
        );
        assert!(!said.contains("lock"), "{said}");
    }
}
