//! The report: one HTML page of a result, and single plots as SVG files.
//!
//! The page stands alone: no network, no fonts from elsewhere, every plot an inline SVG that can be
//! read without JavaScript, in light and in dark. What a result does not have, the page does not
//! show. A table has the same colour and shape in all plots. Rows that are void are hatched and
//! never drawn as if they were valid.
//!
//! | section | plot | shows |
//! |---|---|---|
//! | scaling | `plot-scaling-N` | throughput against threads, with the ideal line |
//! | updates | `plot-updates-N` | heat map of tables by share of updates |
//! | workingset | `plot-workingset-N` | throughput against entries, with the caches |
//! | distribution | `plot-distribution-N` | throughput by distribution |
//! | resizing | `plot-resizing-N` | throughput while resizing |
//! | latency | `plot-latency-N` | percentiles by operation, closed loop |
//! | paced | `plot-paced-N` | the same in open loop |
//! | batch | `plot-batch-N` | lookups in batches, by their size |
//! | hot | `plot-hot-N` | pairs of remove and insert of the same key |
//! | resize | `plot-resize-fixed-N`, `plot-resize-moving-N`, `plot-resize-table-N` | figures 3 to 7 of ATC 2011 |
//! | resize | `plot-resize-N` | operations beside a resizer, and at both sizes at rest |
//! | growth | `plot-growth-N` | operations and stalls over time |
//! | tails | `plot-tails-N` | inserts beside a reader, and slow operations |
//! | memory | `plot-memory-N`, `plot-garbage-N` | bytes per entry; bytes while churned |
//! | pinning | `plot-pinning-N` | throughput by pin policy |
//! | sync | `plot-sync-N` | throughput by lock, with contention |
//! | any other | `plot-rates-N` | throughput |

mod atc11;
mod batch;
mod chart;
mod dots;
mod group;
mod growth;
mod hot;
mod latency;
mod memory;
mod page;
mod resize;
mod scaling;
mod server;
mod slim;
mod style;
mod svg;
mod sync;
mod tables;
mod tails;
mod updates;
mod workingset;

use crate::record::Manifest;
use crate::report::chart::Curve;
use crate::report::style::Looks;
use crate::results::{CellResults, Results, RowResults};

/// Sections that have a plot of their own, or records that do.
const KNOWN: [&str; 15] = [
    "scaling",
    "updates",
    "workingset",
    "distribution",
    "resizing",
    "hot",
    "batch",
    "resize",
    "latency",
    "paced",
    "growth",
    "tails",
    "memory",
    "pinning",
    "sync",
];

/// The report as one HTML file.
pub fn html(results: &Results) -> String {
    let looks = Looks::of(results);
    page::page(results, &looks, &parts(results, &looks), Extent::Full)
}

/// The same in a fraction of the bytes, for a page that is to be committed: without single repetitions,
/// latencies between the named percentiles, texts under the mouse, and a command for each row.
pub fn brief(results: &Results) -> String {
    let mut results = results.clone();
    let cells = results
        .sections
        .iter_mut()
        .flat_map(|section| &mut section.cells);
    for row in cells.flat_map(|cell| &mut cell.rows) {
        if !row.void() {
            row.slices.clear();
        }
        // Curves of latencies go through the named percentiles then.
        for histogram in &mut row.histograms {
            histogram.buckets.clear();
        }
    }
    let looks = Looks::of(&results);
    let mut parts = parts(&results, &looks);
    for plot in parts.iter_mut().flat_map(|part| &mut part.plots) {
        plot.body = slim::without_titles(&plot.body);
    }
    page::page(&results, &looks, &parts, Extent::Brief)
}

/// How much a page tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Extent {
    Full,
    Brief,
}

/// One plot as an SVG file of its own, with its title, and a caption that says where its numbers
/// are from. `plot` is the id that it has in the page, with or without `plot-`; without a number it
/// is the first of its kind. `None` if the result has no such plot.
pub fn svg(results: &Results, plot: &str) -> Option<String> {
    let looks = Looks::of(results);
    let wanted = plot.strip_prefix("plot-").unwrap_or(plot);
    let parts = parts(results, &looks);
    let mut numbered = numbered(&parts);
    let (_, plot) = numbered.find(|(number, plot)| {
        wanted == format!("{}-{number}", plot.kind) || (*number == 1 && wanted == plot.kind)
    })?;
    Some(page::standalone(results, plot))
}

/// The ids of all plots that [`svg`] can make, each with its title.
pub fn plots(results: &Results) -> Vec<(String, String)> {
    let parts = parts(results, &Looks::of(results));
    numbered(&parts)
        .map(|(number, plot)| (plot.id(number), plot.title.clone()))
        .collect()
}

/// The page of `bench server`.
pub(crate) fn server_page(
    facts: &Manifest,
    plan: &str,
    notes: &[String],
    rows: &[crate::server::Row],
) -> String {
    server::page(facts, plan, notes, rows)
}

/// A rate in words, for other reports.
pub(crate) fn rate_text(rate: f64) -> String {
    svg::rate(rate)
}

/// A time in words, for other reports.
pub(crate) fn time_text(ns: f64) -> String {
    svg::time(ns)
}

/// A plot, without the element around it.
#[derive(Debug)]
struct Plot {
    kind: &'static str,
    title: String,
    note: String,
    height: f64,
    body: String,
}

impl Plot {
    fn id(&self, number: usize) -> String {
        format!("plot-{}-{number}", self.kind)
    }
}

/// A section of the page.
#[derive(Debug)]
struct Part {
    id: String,
    heading: String,
    lead: &'static str,
    plots: Vec<Plot>,
}

/// All plots with their numbers among their kind.
fn numbered(parts: &[Part]) -> impl Iterator<Item = (usize, &Plot)> {
    let mut seen = std::collections::HashMap::new();
    let plots = parts.iter().flat_map(|part| &part.plots);
    plots.map(move |plot| {
        let number = seen.entry(plot.kind).or_insert(0);
        *number += 1;
        (*number, plot)
    })
}

/// The sections that there is something to show of.
fn parts(results: &Results, looks: &Looks) -> Vec<Part> {
    let mut memory = memory::plots(results, looks);
    memory.extend(memory::garbage(results, looks));
    let mut parts = throughput(results, looks);
    parts.extend(
        [
            (
                "latency",
                "Latency",
                "Threads work as fast as they can; each timed operation is one of theirs.",
                latency::plots(results, looks),
            ),
            (
                "paced",
                "Latency at a rate",
                "Operations fall due at a rate; latency counts from the due time, so that waiting \
                 behind a stall is seen.",
                latency::paced(results, looks),
            ),
            (
                "growth",
                "Growth",
                "Tables that start empty and grow: what their growing costs the operations that \
                 meet it.",
                growth::plots(results, looks),
            ),
            (
                "tails",
                "Slow operations in a growth",
                "One writer grows the table, one reader looks up what is there by then; an empty \
                 loop says how many slow operations the machine makes by itself.",
                tails::plots(results, looks),
            ),
            ("memory", "Memory", "What an entry takes.", memory),
        ]
        .map(part),
    );
    parts.extend([pinning(results, looks), sync(results, looks)].map(part));
    parts.extend(others(results, looks));
    parts.retain(|part| !part.plots.is_empty());
    parts
}

type Raw = (&'static str, &'static str, &'static str, Vec<Plot>);

fn part((id, heading, lead, plots): Raw) -> Part {
    Part {
        id: id.to_owned(),
        heading: heading.to_owned(),
        lead,
        plots,
    }
}

fn throughput(results: &Results, looks: &Looks) -> Vec<Part> {
    let distribution = ("distribution", "distribution", "Throughput by distribution");
    let resizing = ("resizing", "resizing", "Throughput while resizing");
    let heading = dots::distribution_heading;
    let by_distribution = dots::by(results, looks, distribution, &["distribution"], heading);
    let while_resizing = dots::all(results, looks, resizing);
    [
        (
            "scaling",
            "Scaling",
            "What more threads bring.",
            scaling::plots(results, looks),
        ),
        (
            "updates",
            "Updates",
            "What writing costs.",
            updates::plots(results, looks),
        ),
        (
            "workingset",
            "Working set",
            "What happens as tables outgrow the caches.",
            workingset::plots(results, looks),
        ),
        (
            "distribution",
            "Distributions",
            "What popular keys do.",
            by_distribution,
        ),
        (
            "resizing",
            "Resizing",
            "Operations while the table grows and shrinks underneath.",
            while_resizing.into_iter().collect(),
        ),
        (
            "hot",
            "Hot keys",
            "A thread removes a key and puts it back, again and again.",
            hot::plots(results, looks),
        ),
        (
            "batch",
            "Batches",
            "Lookups of several keys in one call, against single lookups in the same table and round: a table that \
             knows the keys can ask for their cache lines together. The cards say which tables do.",
            batch::plots(results, looks),
        ),
        (
            "atc11",
            "Figures 3 to 7 of the relativistic table's paper",
            "Rates over readers, as the paper draws them (Triplett, McKenney, Walpole, ATC 2011: 65,536 entries, \
             8,192 and 16,384 buckets): at a fixed size, while one more thread resizes the table, and both for \
             each table.",
            atc11::plots(results, looks),
        ),
        (
            "resize",
            "Beside a resizer",
            "One more thread resizes the table back and forth without pause; beside another's, it \
             resizes another table, which shows what the machine takes of the larger size's rate.",
            resize::plots(results, looks),
        ),
    ]
    .map(part)
    .into()
}

fn pinning(results: &Results, looks: &Looks) -> Raw {
    let what = ("pinning", "pinning", "Throughput by pin policy");
    let plots = dots::by(results, looks, what, &["pin"], dots::pin_heading);
    let lead = "Where the threads were put.";
    ("pinning", "Pinning", lead, plots)
}

fn sync(results: &Results, looks: &Looks) -> Raw {
    let lead = "One table under different locks, and how often they were found taken.";
    ("sync", "Synchronisation", lead, sync::plots(results, looks))
}

/// Sections that this program does not know, each with one plot.
fn others(results: &Results, looks: &Looks) -> Vec<Part> {
    let sections = results.sections.iter().enumerate();
    let unknown = sections.filter(|(_, section)| !KNOWN.contains(&&*section.name));
    unknown
        .map(|(at, section)| Part {
            id: format!("section-{at}"),
            heading: section.name.clone(),
            lead: "Throughput of each table in each cell.",
            plots: dots::all(results, looks, ("rates", &section.name, "Throughput"))
                .into_iter()
                .collect(),
        })
        .collect()
}

/// A curve for each table of some rows: over what `x` gives for a cell, which `words` names.
fn curves<'a>(
    rows: impl Iterator<Item = (&'a CellResults, &'a RowResults)>,
    looks: &Looks,
    x: impl Fn(&CellResults) -> f64,
    words: impl Fn(&CellResults) -> String,
) -> Vec<Curve> {
    let mut curves: Vec<Curve> = Vec::new();
    for (cell, row) in rows {
        let at = curves.iter().position(|curve| curve.name == row.label);
        let at = at.unwrap_or_else(|| {
            curves.push(Curve::new(looks.look(row), &row.label));
            curves.len() - 1
        });
        let what = format!("{}, {}", row.label, words(cell));
        rate_spots(&mut curves[at], row, x(cell), &what);
    }
    curves.iter_mut().for_each(Curve::sort);
    chart::sorted(looks, curves)
}

/// Adds the repetitions and the median of a row to a curve at a place; of a void row, only that.
fn rate_spots(curve: &mut Curve, row: &RowResults, x: f64, what: &str) {
    if row.void() {
        let why = row.problem().unwrap_or_default().to_owned();
        curve.voids.push((x, why));
        return;
    }
    let repetitions = row.rates().into_iter().enumerate();
    let spots = repetitions.map(|(at, rate)| {
        let what = format!("{what}, repetition {at}");
        scaling::spot(x, rate, &what)
    });
    curve.dots.extend(spots);
    let median = row.row.rate.filter(|rate| rate.value.is_finite());
    curve.medians.extend(median.map(|rate| {
        let mut spot = scaling::spot(x, rate.value, what);
        spot.text += &format!(" ({} to {})", svg::rate(rate.low), svg::rate(rate.high));
        spot
    }));
}
