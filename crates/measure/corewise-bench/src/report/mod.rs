//! The report: one HTML page of a result, and single plots as SVG files.
//!
//! The page stands alone: no network, no external fonts, every plot an inline SVG that is readable
//! without JavaScript, in light and dark mode, on a phone. The page omits what a result lacks. A
//! table has the same colour and shape on all pages. Six tables are in colour until a reader
//! chooses others, which needs no script: the rules follow checkboxes. Void rows are hatched and
//! never drawn as if they were valid.
//! Each section draws its parts of the page (see `sections`); a section that this program does not
//! know has a plot `plot-rates-N` of its throughput.

mod decision;
pub(crate) mod page;
mod tables;

use maud::{Markup, html};

use self::decision::Decision;
use crate::claims;
use crate::plot::style::Looks;
use crate::plot::{Part, Plot, dots, svg};
use crate::results::{Results, SectionResults};
use crate::sections::{self, SECTIONS};

/// Returns the report as one HTML file.
pub fn html(results: &Results) -> String {
    let (looks, parts, no_verdict) = drawn(results);
    let claims = claims::verdicts(results);
    page::page(results, &looks, &parts, &[no_verdict, claims, html! {}])
}

/// Returns the report in a fraction of the bytes, for a page under version control: without single
/// repetitions and tooltips.
pub fn brief(results: &Results) -> String {
    let claims = claims::verdicts(results);
    let mut results = results.clone();
    let cells = results
        .sections
        .iter_mut()
        .flat_map(|section| &mut section.cells);
    for row in cells.flat_map(|cell| &mut cell.rows) {
        if !row.void() {
            row.slices.clear();
        }
    }
    let (looks, mut parts, no_verdict) = drawn(&results);
    for plot in parts.iter_mut().flat_map(|part| &mut part.plots) {
        plot.body = svg::without_titles(&plot.body);
    }
    let note = "A brief page: plots have medians and intervals only, no single repetitions.";
    let note = html! { p.sub { (note) } };
    page::page(&results, &looks, &parts, &[no_verdict, claims, note])
}

/// Returns one plot as a standalone SVG file, with its title, and a caption that names the source
/// of its numbers. `plot` is its id in the page, with or without `plot-`; without a number it is
/// the first of its kind. `None` if the result has no such plot.
pub fn svg(results: &Results, plot: &str) -> Option<String> {
    let (looks, parts, _) = drawn(results);
    let wanted = plot.strip_prefix("plot-").unwrap_or(plot);
    let mut numbered = numbered(&parts);
    let (_, plot) = numbered.find(|(number, plot)| {
        wanted == format!("{}-{number}", plot.kind) || (*number == 1 && wanted == plot.kind)
    })?;
    Some(page::standalone(results, &looks, plot))
}

/// Returns the ids of all plots that [`svg()`] can make, each with its title.
pub fn plots(results: &Results) -> Vec<(String, String)> {
    let (_, parts, _) = drawn(results);
    numbered(&parts)
        .map(|(number, plot)| (plot.id(number), plot.title.clone()))
        .collect()
}

/// Numbers all plots within their kind.
fn numbered(parts: &[Part]) -> impl Iterator<Item = (usize, &Plot)> {
    let mut seen = std::collections::HashMap::new();
    let plots = parts.iter().flat_map(|part| &part.plots);
    plots.map(move |plot| {
        let number = seen.entry(plot.kind).or_insert(0);
        *number += 1;
        (*number, plot)
    })
}

/// Returns the looks of the tables, the nonempty parts of all sections in the order of the page,
/// and in large letters what has no verdict.
fn drawn(results: &Results) -> (Looks, Vec<Part>, Markup) {
    let decision = Decision::of(results);
    let looks = Looks::of(results, decision.peer());
    let no_verdict = html! {
        @if let Some(text) = decision.without_verdict() { p.noverdict role="note" { (text) } }
    };
    let mut sections = SECTIONS.to_vec();
    sections.sort_by_key(|section| section.preset().rank);
    let parts = sections.iter().flat_map(|of| of.parts(results, &looks));
    let mut parts: Vec<Part> = decision.part(&looks).into_iter().chain(parts).collect();
    parts.extend(others(results, &looks));
    parts.retain(|part| !part.plots.is_empty());
    (looks, parts, no_verdict)
}

/// Sections unknown to this program, each with one plot.
fn others(results: &Results, looks: &Looks) -> Vec<Part> {
    let sections = results.sections.iter().enumerate();
    let unknown = sections.filter(|(_, section)| sections::find(&section.name).is_none());
    let part = |(at, section): (usize, &SectionResults)| {
        let name = &*section.name;
        let plot = dots::all(results, looks, ("rates", name, "Throughput"));
        Part::new(
            &format!("section-{at}"),
            name,
            "Throughput of each table in each cell.",
            plot.into_iter().collect(),
        )
    };
    unknown.map(part).collect()
}
