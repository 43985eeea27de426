//! The first part of the page: which table to take for which workload, as far as noise allows.
//!
//! Each section gives a line for each kind of keys. A line orders tables by the geometric mean of
//! their ratios to the reference over all cells of the section. Tables that lack a row in one of
//! the cells are not in the line, which counts neither for nor against them; a table with a void
//! row is not in the line either, which counts against it. All tables that the A/A spread does not
//! separate from the first are named together. Latencies and memory have a line each.
//!
//! A line without a verdict (see [`Noise`]) is drawn and counts for no table. How many there are,
//! and why, is the first that the page says.

use corewise_measure::number::three_digits;
use maud::{Markup, PreEscaped, html};

use crate::judge::{self, LEAST_REPETITIONS, Noise};
use crate::plot::chart::WIDTH;
use crate::plot::group::contenders;
use crate::plot::numbers::{geometric_means, table};
use crate::plot::style::{Look, Looks};
use crate::plot::svg::{Anchor, Canvas, Frame, Scale, count, plain, shorten, time};
use crate::plot::{Part, Plot};
use crate::record::Role;
use crate::results::{CellResults, Results, RowResults, SectionResults, by_key, distinct};
use crate::sections;

/// A difference in memory or latency under this factor counts as none.
const NEAR: f64 = 1.05;

/// Tables that are named in a field beside the best.
const MOST_NAMED: usize = 4;

/// Places that a sentence names, with all tables that share the last.
const PLACES: usize = 3;

/// A table with its value.
type Ranked<'a> = (&'a str, f64);

/// Tables with their values, the best first.
struct Line<'a> {
    section: &'a str,
    /// Its name in the chart.
    short: &'a str,
    what: String,
    ranked: Vec<Ranked<'a>>,
    /// Tables with a void row.
    void: Vec<&'a str>,
    /// Tables within its factor of the best are as good.
    noise: Noise,
    text: fn(f64) -> String,
}

impl<'a> Line<'a> {
    /// Returns the tables that are as good as the best, and the others.
    fn split(&self) -> (&[Ranked<'a>], &[Ranked<'a>]) {
        let best = self.ranked.first().map_or(1.0, |(_, value)| *value);
        let spread = self.noise.factor().unwrap_or(f64::INFINITY);
        let near = |(_, value): &(&str, f64)| (best / value).max(value / best) <= spread;
        let end = self.ranked.iter().position(|entry| !near(entry));
        self.ranked.split_at(end.unwrap_or(self.ranked.len()))
    }

    /// Returns whether some table is worse than the best by more than the noise.
    fn is_decided(&self) -> bool {
        !self.split().1.is_empty()
    }

    /// Returns the share of the best that each table reaches.
    fn shares(&self) -> impl Iterator<Item = Ranked<'a>> {
        let top = self.ranked.first().map_or(1.0, |(_, value)| *value);
        let share = move |(label, value): &Ranked<'a>| (*label, (top / value).min(value / top));
        self.ranked.iter().map(share)
    }
}

/// How a table did in several lines.
#[derive(Debug, PartialEq)]
struct Standing<'a> {
    label: &'a str,
    /// Decided lines in which it is among the best.
    best: usize,
    /// Decided lines that measured it.
    decided: usize,
    /// All lines that measured it.
    measured: usize,
    /// The mean share of the best that it reaches in all lines; `None` unless it is ranked in each.
    mean: Option<f64>,
}

impl Standing<'_> {
    /// Returns the share of the decided lines in which it is among the best, none if most lines did
    /// not measure it.
    fn rank(&self, lines: usize) -> f64 {
        if self.measured * 2 < lines {
            return 0.0;
        }
        self.best as f64 / self.decided.max(1) as f64
    }
}

/// The decision, if there is anything to decide.
pub(super) struct Decision<'a> {
    lines: Vec<Line<'a>>,
    /// Of lines that are not about locks; the best first.
    standings: Vec<Standing<'a>>,
    /// Whether a table is one of this project's.
    is_ours: Box<dyn Fn(&str) -> bool + 'a>,
    noise: Option<f64>,
}

impl<'a> Decision<'a> {
    pub(super) fn of(results: &'a Results) -> Self {
        let mut lines: Vec<Line<'_>> = results.sections.iter().flat_map(rates).collect();
        lines.extend(latency(results));
        lines.extend(memory(results));
        lines.retain(|line| line.ranked.len() > 1);
        let tables = |label: &str| results.rows().find(|row| row.label == label);
        let cards = || results.files.iter().flat_map(|file| &file.manifest.cards);
        let is_ours = move |label: &str| {
            let name = tables(label).map(|row| &row.row.table);
            cards().any(|card| name == Some(&card.name) && card.is_ours())
        };
        Self {
            standings: standings(&rated(&lines)),
            lines,
            is_ours: Box::new(is_ours),
            noise: judge::spread(results.cells()),
        }
    }

    /// Returns the best table of another project.
    pub(super) fn peer(&self) -> Option<&'a str> {
        self.strongest().map(|standing| standing.label)
    }

    fn strongest(&self) -> Option<&Standing<'a>> {
        let mut peers = (self.standings.iter()).filter(|standing| !(self.is_ours)(standing.label));
        peers.next()
    }

    /// Returns what has no verdict and why; `None` if every workload has one.
    pub(super) fn without_verdict(&self) -> Option<String> {
        let open = || self.lines.iter().filter(|line| !line.is_decided());
        let (all, count) = (self.lines.len(), open().count());
        let reasons = distinct(open().map(|line| match line.noise {
            Noise::TooFew(few) => format!("{few} of {LEAST_REPETITIONS} repetitions"),
            Noise::NoControl => "the reference was not measured twice".to_owned(),
            Noise::Within(_) => "the tables differ by no more than the noise".to_owned(),
        }));
        let of = match count {
            0 => return None,
            _ if count == all => String::new(),
            _ => format!(" on {count} of {all} workloads"),
        };
        Some(format!("No verdict{of}: {}.", reasons.join("; ")))
    }

    /// The part of the page: a sentence, a chart, and the numbers; `None` if nothing is compared.
    pub(super) fn part(&self, looks: &Looks) -> Option<Part> {
        let lines = &self.lines;
        if lines.is_empty() {
            return None;
        }
        let heading = if lines.iter().any(Line::is_decided) {
            "Which table to take"
        } else {
            "What was measured"
        };
        let noise = self.noise.map_or(String::new(), |factor| {
            let factor = three_digits(factor);
            format!(" The reference measured twice differs from itself by up to {factor}×.")
        });
        let lead = self.headline() + &noise;
        Some(Part {
            below: self.numbers(looks),
            ..Part::new("decision", heading, &lead, vec![chart(lines, looks)])
        })
    }

    /// Returns a sentence that counts how often tables are among the best, and one with the mean
    /// shares of the best. Both name the strongest table of another project.
    fn headline(&self) -> String {
        let rated = rated(&self.lines);
        let decided = rated.iter().filter(|line| line.is_decided()).count();
        let rank = |of: &Standing<'_>| of.rank(rated.len());
        let named = self.places(|of| Some(rank(of)).filter(|rank| *rank > 0.0));
        let named = named.map(|of| format!("{} in {} of {}", of.label, of.best, of.decided));
        let named = named.collect::<Vec<_>>().join(", ");
        let first = match decided {
            0 => String::new(),
            _ => format!(
                "Among the best of the workloads that measured it, alone or within the noise: \
                 {named}."
            ),
        };
        let kept = self.standings.iter().filter(|of| of.mean.is_some()).count();
        if rated.len() < 2 || kept == 0 {
            return first;
        }
        let means = self.places(|of| of.mean);
        let text = |of: &Standing<'_>| {
            let mean = of.mean.map_or(String::new(), three_digits);
            format!("{} {mean}", of.label)
        };
        let means = means.map(text).collect::<Vec<_>>().join(", ");
        let lacking = (self.standings.iter()).filter(|of| of.mean.is_none());
        let lacking = lacking.map(|of| of.label).collect::<Vec<_>>().join(", ");
        let without = match &*lacking {
            "" => String::new(),
            names => format!(" Not in this mean, for want of a valid row in some: {names}."),
        };
        format!(
            "{first} Of the best, in the mean over all {} workloads, the {kept} tables with a row in \
             each reach: {means}.{without}",
            rated.len()
        )
    }

    /// Returns the tables of the first places by a value, all that share the last place, and the
    /// strongest of another project; the greatest value first.
    fn places(
        &self,
        value: impl Fn(&Standing<'a>) -> Option<f64>,
    ) -> impl Iterator<Item = &Standing<'a>> {
        let all = self.standings.iter();
        let mut all: Vec<_> = all.filter_map(|of| Some((value(of)?, of))).collect();
        all.sort_by(|a, b| b.0.total_cmp(&a.0));
        let least = all.get(PLACES - 1).map_or(0.0, |(last, _)| *last);
        let peer = self.peer();
        let is_named =
            move |(value, of): &(f64, &Standing<'_>)| *value >= least || Some(of.label) == peer;
        all.into_iter().filter(is_named).map(|(_, of)| of)
    }

    /// The tables by rank, closed until a reader opens them.
    fn numbers(&self, looks: &Looks) -> Markup {
        let standing = |of: &Standing<'_>| {
            let mean = of.mean.map_or("–".to_owned(), three_digits);
            let best = format!("{} of {}", of.best, of.decided);
            vec![of.label.to_owned(), best, of.measured.to_string(), mean]
        };
        let standings: Vec<_> = self.standings.iter().map(standing).collect();
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
                    tbody { @for line in &self.lines { (row(line, looks)) } }
                }
                p.sub {
                    "Rates are geometric means over the cells of a section, as multiples of the \
                     reference's. Tables in the same field are not separated by the A/A spread. The \
                     fairness cards name what each table can hold."
                }
                (table("numbers", &["table", "among the best", "measured in", "mean share"], &standings))
            }
        }
    }
}

/// Returns the lines that are not about locks.
fn rated<'l, 'a>(lines: &'l [Line<'a>]) -> Vec<&'l Line<'a>> {
    let is_lock = |line: &&Line<'_>| line.ranked[0].0.starts_with("lock:");
    lines.iter().filter(|line| !is_lock(line)).collect()
}

/// Counts for each table how it did, the best first.
fn standings<'a>(lines: &[&Line<'a>]) -> Vec<Standing<'a>> {
    let means = geometric_means(lines.iter().flat_map(|line| line.shares()));
    let mean = |label: &str| {
        let mut of = means.iter().filter(|(name, ..)| *name == label);
        of.next().filter(|of| of.2 == lines.len()).map(|of| of.1)
    };
    let has = |line: &Line<'_>, label: &str| {
        line.ranked.iter().any(|of| of.0 == label) || line.void.contains(&label)
    };
    let names = |line: &&Line<'a>| -> Vec<&'a str> {
        let ranked = line.ranked.iter().map(|of| of.0);
        ranked.chain(line.void.iter().copied()).collect()
    };
    let standing = |label: &'a str| {
        let measured = || lines.iter().filter(|line| has(line, label));
        let decided = || measured().filter(|line| line.is_decided());
        let is_best = |line: &&&Line<'_>| line.split().0.iter().any(|of| of.0 == label);
        Standing {
            label,
            best: decided().filter(is_best).count(),
            decided: decided().count(),
            measured: measured().count(),
            mean: mean(label),
        }
    };
    let mut all: Vec<_> = distinct(lines.iter().flat_map(names))
        .into_iter()
        .map(standing)
        .collect();
    let key = |of: &Standing<'_>| (of.rank(lines.len()), of.mean.unwrap_or(0.0));
    all.sort_by(|a, b| {
        let ((rank, mean), (other, other_mean)) = (key(a), key(b));
        other.total_cmp(&rank).then(other_mean.total_cmp(&mean))
    });
    all
}

/// Height of a workload in the chart.
const LANE: f64 = 26.0;
/// Left edge of the chart's frame.
const LEFT: f64 = 120.0;
/// Width of the names of the best tables.
const RIGHT: f64 = 150.0;
/// Tables in a row of the legend, and its height.
const LEGEND: (usize, f64) = (4, 20.0);

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
    let below = frame.bottom() + 62.0;
    let rows = legend(&mut canvas, below, lines, looks);
    Plot {
        kind: "decision",
        title: "Each table by its share of the best, workload by workload".to_owned(),
        note:
            "Rates, and the reciprocals of latencies and of bytes. The name is that of the best; \
               tables on the bar are not separated from it by the A/A spread."
                .to_owned(),
        height: below + rows as f64 * LEGEND.1 - 8.0,
        body: canvas.out,
    }
}

/// Names the mark of each table, those in colour first; returns the number of its rows.
fn legend(canvas: &mut Canvas, top: f64, lines: &[Line<'_>], looks: &Looks) -> usize {
    let ranked = lines.iter().flat_map(|line| &line.ranked);
    let mut labels = distinct(ranked.map(|(label, _)| *label));
    labels.sort_by_key(|label| looks.place(label));
    let (columns, height) = LEGEND;
    for (at, label) in labels.iter().enumerate() {
        let Some(look) = look_of(looks, label) else {
            continue;
        };
        let x = 12.0 + (at % columns) as f64 * WIDTH / columns as f64;
        let y = top + (at / columns) as f64 * height;
        canvas.open(&look.class());
        canvas.mark(look.shape(), "median", (x, y), 5.0, "");
        canvas.text(
            "label",
            (x + 10.0, y + 4.0),
            Anchor::Start,
            &shorten(label, 15),
        );
        canvas.close();
    }
    labels.len().div_ceil(columns)
}

/// Draws a workload: the tables as marks, those in colour above the others.
fn lane(canvas: &mut Canvas, (frame, y): (&Frame, f64), line: &Line<'_>, looks: &Looks) {
    let Some((winner, top)) = line.ranked.first() else {
        return;
    };
    let name = shorten(line.short, 14);
    canvas.text("tick", (LEFT - 10.0, y + 4.0), Anchor::End, &name);
    let near = frame.x(1.0 / line.noise.factor().unwrap_or(f64::INFINITY).max(1.0));
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
    let at = (frame.right() + 10.0, y + 4.0);
    if !line.is_decided() {
        return canvas.text("remark", at, Anchor::Start, "no verdict");
    }
    let level = line.split().0.len() - 1;
    let class = look_of(looks, winner).map_or("series cn".to_owned(), Look::class);
    let winner = winner.trim_start_matches("lock:");
    let text = match level {
        0 => shorten(winner, 18),
        _ => format!("{} + {level}", shorten(winner, 14)),
    };
    canvas.open(&class);
    canvas.text("label", at, Anchor::Start, &text);
    canvas.close();
}

fn look_of(looks: &Looks, label: &str) -> Option<Look> {
    let mut all = looks.all();
    all.find(|(name, _)| *name == label).map(|(_, look)| look)
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
        let (ranked, void) = ranked(&cells, relative, true);
        Line {
            section: &section.name,
            short: &section.name,
            what: format!("{about}{}", keys.unwrap_or_default()),
            noise: Noise::of(cells.iter().copied()),
            ranked,
            void,
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

/// Orders the tables that have a value in every cell by the mean of its logarithm; returns them and
/// the tables with a void row.
fn ranked<'a>(
    cells: &[&'a CellResults],
    value: impl Fn(&RowResults) -> Option<f64>,
    most_first: bool,
) -> (Vec<Ranked<'a>>, Vec<&'a str>) {
    let rows = contenders(cells.iter().copied()).map(|(_, row)| row);
    let (void, valid): (Vec<_>, Vec<_>) = rows.partition(|row| row.void());
    let valid = valid.into_iter();
    let means = geometric_means(valid.filter_map(|row| Some((&*row.label, value(row)?))));
    let complete = means
        .into_iter()
        .filter(|(.., times)| *times == cells.len());
    let mut means: Vec<_> = complete.map(|(label, mean, _)| (label, mean)).collect();
    means.sort_by(|a, b| a.1.total_cmp(&b.1));
    if most_first {
        means.reverse();
    }
    (means, distinct(void.into_iter().map(|row| &*row.label)))
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
    let of_role = |cell: &CellResults, role| {
        let mut rows = cell.rows.iter().filter(|row| row.row.role == role);
        rows.find_map(tail)
    };
    let again = cells.iter().map(|cell| {
        let (one, other) = (of_role(cell, Role::Reference)?, of_role(cell, Role::Again)?);
        Some((one / other).max(other / one))
    });
    let again: Option<Vec<f64>> = again.collect();
    let noise = again.map_or(Noise::NoControl, |all| {
        Noise::Within(all.into_iter().fold(NEAR, f64::max))
    });
    let (ranked, void) = ranked(&cells, tail, false);
    Some(Line {
        section: "latency",
        short: "99.9 % latency",
        what: "99.9 % of lookups within, the least".to_owned(),
        ranked,
        void,
        noise: noise.and(Noise::of(cells)),
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
    let (ranked, void) = ranked(&cells, each, false);
    Some(Line {
        section: "memory",
        short: "bytes an entry",
        what: format!("live bytes of an entry, {} entries, the least", count(size)),
        ranked,
        void,
        // Bytes are counted, once.
        noise: Noise::Within(NEAR),
        text: |bytes| format!("{bytes:.1} B"),
    })
}

fn row(line: &Line<'_>, looks: &Looks) -> Markup {
    let (best, others) = line.split();
    html! {
        tr {
            th scope="row" { a href={ "#" (line.section) } { (line.section) } small { (line.what) } }
            @if line.is_decided() {
                td { (entries(best, line.text, looks)) }
                td {
                    (entries(&others[..others.len().min(MOST_NAMED)], line.text, looks))
                    @if others.len() > MOST_NAMED {
                        span.more { "and " (others.len() - MOST_NAMED) " more" }
                    }
                }
            } @else {
                td { span.more { "no verdict: " (line.noise.reason()) } }
                td { (entries(&line.ranked, line.text, looks)) }
            }
        }
    }
}

fn entries(of: &[Ranked<'_>], text: fn(f64) -> String, looks: &Looks) -> Markup {
    html! {
        @for (label, value) in of {
            span.entry {
                @if let Some(look) = look_of(looks, label) { (swatch(look)) }
                b { (label) } " " (text(*value))
            }
        }
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
            void: Vec::new(),
            noise: Noise::Within(spread),
            text: |_| String::new(),
        }
    }

    fn decision<'a>(lines: Vec<Line<'a>>) -> Decision<'a> {
        Decision {
            standings: standings(&rated(&lines)),
            lines,
            is_ours: Box::new(|label| label.starts_with("our")),
            noise: None,
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
    fn a_tie_is_not_cut_and_a_table_that_was_not_measured_does_not_lose() {
        let tied = || {
            let tied = ["our1", "our2", "our3", "peer"].map(|name| (name, 2.0));
            line([&tied[..], &[("slow", 1.0)]].concat(), 1.05)
        };
        let lines = vec![
            tied(),
            tied(),
            line(vec![("peer", 2.0), ("our1", 1.0), ("our2", 1.0)], 1.05),
            line(vec![("lock:mcs", 2.0), ("lock:tas", 1.0)], 1.05),
        ];
        let of = decision(lines);
        assert_eq!((of.peer(), of.without_verdict()), (Some("peer"), None));
        let said = of.headline();
        for text in [
            "measured it, alone or within the noise: peer in 3 of 3, our3 in 2 of 2, our1 in 2 of 3, our2 in 2 of 3.",
            "over all 3 workloads, the 3 tables with a row in each reach: peer 1.00, our1 0.79, our2 0.79.",
            "for want of a valid row in some: our3, slow.",
        ] {
            assert!(said.contains(text), "{text}: {said}");
        }
        assert!(!said.contains("lock"), "{said}");
    }

    #[test]
    fn a_void_row_counts_against_a_table_and_few_measurements_rank_no_table_first() {
        let with_void = Line {
            void: vec!["our1"],
            ..line(vec![("peer", 2.0), ("slow", 1.0)], 1.0)
        };
        let of = decision(vec![
            line(vec![("our1", 2.0), ("peer", 1.0)], 1.0),
            with_void,
            line(vec![("seldom", 2.0), ("peer", 1.0)], 1.0),
        ]);
        let found: Vec<_> = (of.standings.iter())
            .map(|of| (of.label, of.best, of.decided))
            .collect();
        let expected = [
            ("our1", 1, 2),
            ("peer", 1, 3),
            ("slow", 0, 1),
            ("seldom", 1, 1),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn the_strongest_peer_is_named_although_ours_have_all_places() {
        let ours = [("our1", 9.0), ("our2", 8.0), ("our3", 7.0), ("our4", 6.0)];
        let all = [&ours[..], &[("peer", 5.0), ("weak", 1.0)]].concat();
        let of = decision(vec![line(all.clone(), 1.0), line(all, 1.0)]);
        let said = of.headline();
        assert!(said.contains("our3 0.78, peer 0.56."), "{said}");
        assert!(!said.contains("our4") && !said.contains("weak"), "{said}");
    }

    #[test]
    fn lines_without_a_verdict_count_for_no_table() {
        let rates = || vec![("a", 2.0), ("b", 1.0)];
        let few = Line {
            noise: Noise::TooFew(3),
            ..line(rates(), 1.0)
        };
        let of = decision(vec![line(rates(), 3.0), few]);
        assert_eq!(
            of.without_verdict().as_deref(),
            Some("No verdict: the tables differ by no more than the noise; 3 of 5 repetitions.")
        );
        assert!(!of.headline().contains("Among"), "{}", of.headline());
        let of = decision(vec![line(rates(), 3.0), line(rates(), 1.5)]);
        let said = of.without_verdict().expect("a line has none");
        assert!(
            said.starts_with("No verdict on 1 of 2 workloads:"),
            "{said}"
        );
        assert!(of.headline().contains("a in 1 of 1"), "{}", of.headline());
    }
}
