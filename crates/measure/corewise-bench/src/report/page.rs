//! The page around the plots, and the frame of a standalone plot.

use std::collections::BTreeSet;

use maud::{DOCTYPE, Markup, PreEscaped, html};

use crate::plot::chart::WIDTH;
use crate::plot::numbers::MOST_HEADS;
use crate::plot::style::{DEFS, Looks, plot_css};
use crate::plot::svg::{Anchor, Canvas, escape, num, shorten};
use crate::plot::{Part, Plot};
use crate::report::decision::swatch;
use crate::report::{numbered, tables};
use crate::results::{Results, RowResults, SourceFile};
use crate::suite::Suite;

const CSS: &str = include_str!("page.css");

/// The properties of a table that is not chosen.
const REST: &str = "--c:var(--rest);--wide:1.2;--faint:0;--bold:400;--ink:var(--muted);\
--good:var(--muted);--bad:var(--muted);--same:var(--muted);--unsure:var(--muted);--tint:0%";

/// Clicks on a table in a plot or in the verdicts choose it, and hovering over its box dims the
/// others. The boxes themselves work without the script.
const SCRIPT: &str = include_str!("page.js");

/// Returns a document with the styles of pages and plots.
fn document(title: &str, looks: &Looks, body: &Markup) -> String {
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width,initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (title) }
                style {
                    (PreEscaped(plot_css(":root", looks)))
                    (PreEscaped(CSS))
                    (PreEscaped(heads()))
                    (PreEscaped(rest(looks)))
                }
            }
            body {
                svg.defs width="0" height="0" aria-hidden="true" { (PreEscaped(DEFS)) }
                (body)
            }
        }
    };
    page.into_string()
}

/// Returns the rules that choose the head of a field, see [`table`](crate::plot::numbers::table).
fn heads() -> String {
    let columns = 2..=MOST_HEADS;
    let rules = columns.map(|at| format!("td:nth-child({at}){{--h:var(--h{at})}}"));
    rules.collect()
}

/// Returns the rules that grey the tables whose boxes are not checked.
fn rest(looks: &Looks) -> String {
    let selector = |at| format!("body:has(#t{at}:not(:checked)) .s{at}");
    let selectors: Vec<_> = (0..looks.all().count()).map(selector).collect();
    if selectors.is_empty() {
        return String::new();
    }
    format!("{}{{{REST}}}", selectors.join(","))
}

/// Returns a page of plots and their text.
pub(crate) fn plain(
    title: &str,
    lead: &[String],
    (looks, plots): (&Looks, &[Plot]),
    text: &str,
) -> String {
    let body = html! {
        header #summary {
            h1 { (title) }
            @for line in lead { p.sub { (line) } }
        }
        main {
            div.figures { @for (at, plot) in plots.iter().enumerate() { (figure(at + 1, plot)) } }
            pre { (text) }
        }
    };
    document(title, looks, &body)
}

/// Returns the whole page, with the verdicts on claims, a note, and what has no verdict.
pub(crate) fn page(
    results: &Results,
    looks: &Looks,
    parts: &[Part],
    [no_verdict, claims, note]: &[Markup; 3],
) -> String {
    let mut numbers = numbered(parts);
    let body = html! {
        (head(results, no_verdict))
        (navigation(parts, looks))
        main {
            (notes(results))
            (note)
            @let has_decision = parts.first().is_some_and(|part| part.id == "decision");
            @let (decision, rest) = parts.split_at(usize::from(has_decision));
            @for part in decision { (section(part, &mut numbers)) }
            (claims)
            @for part in rest { (section(part, &mut numbers)) }
            (verdicts(results, looks))
            (ending(results))
        }
        footer {
            "Made by corewise bench report. Rates are medians over repetitions, ratios \
             Hodges-Lehmann estimates. The ends of their 95 % intervals are the ranks that Wilcoxon's \
             signed-rank test accepts; with fewer than six repetitions, an interval also covers \
             Student's."
        }
        script { (PreEscaped(SCRIPT)) }
    };
    document(&title(results), looks, &body)
}

fn title(results: &Results) -> String {
    let suites = results.each(|file| file.manifest.suite.clone());
    format!("corewise bench: {suites}")
}

/// Returns what the suites measure.
fn subtitle(file: &SourceFile) -> String {
    let about = Suite::parse(&file.manifest.plan).map(|suite| suite.about);
    let about = about.ok().filter(|about| !about.is_empty());
    about.unwrap_or_else(|| "Concurrent hash tables".to_owned())
}

fn head(results: &Results, no_verdict: &Markup) -> Markup {
    let rows = results.rows().count();
    let void = results.rows().filter(|row| row.void()).count();
    let is_void = match void {
        0 => String::new(),
        _ => format!(", {void} void: hatched below, not to be used"),
    };
    let machine = results.each(|file| file.manifest.machine.named());
    html! {
        header #summary {
            h1 { (title(results)) }
            (no_verdict)
            p.lead { (results.each(subtitle)) "." }
            p.sub {
                (results.each(SourceFile::name)) ", "
                (results.each(|file| tables::day(&file.manifest).to_owned())) ", commit "
                (results.each(|file| tables::short_commit(&file.manifest))) "; " (machine) "; "
                (rows) " rows" (is_void)
            }
        }
    }
}

fn navigation(parts: &[Part], looks: &Looks) -> Markup {
    html! {
        nav aria-label="Sections" {
            div.menu {
                (choice(looks))
                div.links {
                    a href="#summary" { "Top" }
                    @for part in parts { a href={ "#" (part.id) } { (part.heading) } }
                    a href="#verdicts" { "Verdicts" }
                    a href="#fairness" { "Fairness" }
                    a href="#environment" { "Environment" }
                    a href="#commands" { "Commands" }
                }
            }
        }
    }
}

/// The boxes that choose the tables in colour.
fn choice(looks: &Looks) -> Markup {
    let mut tables: Vec<_> = looks.all().enumerate().collect();
    tables.sort_by_key(|(_, (name, _))| looks.place(name));
    html! {
        details.pick {
            summary { "Tables" }
            form autocomplete="off" {
                div.chips role="group" aria-label="Tables in colour" {
                    @for (at, (name, look)) in tables {
                        label.chip {
                            input type="checkbox" id={ "t" (at) } checked[looks.is_chosen(name)];
                            (swatch(look))
                            (name)
                        }
                    }
                }
                p {
                    button type="reset" { "as at first" } " "
                    button #all type="button" hidden { "all" }
                }
            }
        }
    }
}

/// Returns what is wrong with the files.
fn notes(results: &Results) -> Markup {
    let files = results.files.iter();
    let notes: Vec<_> = files
        .flat_map(|file| file.notes().into_iter().map(|note| (file.name(), note)))
        .collect();
    html! {
        @if !notes.is_empty() || results.files.len() > 1 {
            div.warn role="note" {
                @for (name, note) in &notes { p { b { (name) } ": " (note) "." } }
                @if results.files.len() > 1 {
                    p {
                        "Several files are shown together; [1], [2] after a table's name is the file."
                    }
                }
            }
        }
    }
}

fn verdicts(results: &Results, looks: &Looks) -> Markup {
    let counted: Vec<_> = results.rows().flat_map(RowResults::counted).collect();
    let has = |name: &str| counted.iter().any(|of| of.0 == name && of.1.is_some());
    let names = counted.iter().map(|of| of.0).filter(|name| !has(name));
    let missing: BTreeSet<&str> = names.collect();
    html! {
        section #verdicts {
            h2 { "Verdicts" }
            p.lead {
                "Rates over the reference's rate in the same repetitions, with 95 % intervals. The \
                 reference again (A/A) shows the noise: a ratio whose interval is not beyond it is \
                 undecided, and so is every one of fewer than five repetitions. The harness without a table (null) is what measuring alone allows. "
                "Below a rate are the counters of the processor, for an operation, and what the \
                 measured threads used. "
                @if !missing.is_empty() {
                    "Not counted (n/a): " (Vec::from_iter(missing).join(", ")) "."
                }
            }
            (tables::verdicts(results, looks))
        }
    }
}

fn section<'a>(part: &Part, numbers: &mut impl Iterator<Item = (usize, &'a Plot)>) -> Markup {
    html! {
        section id=(part.id) {
            h2 { (part.heading) }
            p.lead { (part.lead) }
            div.figures {
                @for (number, plot) in numbers.take(part.plots.len()) { (figure(number, plot)) }
            }
            (part.below)
        }
    }
}

fn figure(number: usize, plot: &Plot) -> Markup {
    let id = plot.id(number);
    let class = format!("plot plot-{}", plot.kind);
    let view = format!("0 0 {} {}", num(WIDTH), num(plot.height));
    html! {
        figure {
            figcaption { b { (plot.title) } (plot.note) }
            svg id=(id) class=(class) role="img" viewBox=(view) {
                title { (plot.title) }
                (PreEscaped(&plot.body))
            }
        }
    }
}

fn ending(results: &Results) -> Markup {
    html! {
        section #fairness { h2 { "Fairness" } (tables::cards(results)) }
        section #environment { h2 { "Environment" } (tables::environment(results)) }
        section #commands { h2 { "Commands" } (tables::commands(results)) }
    }
}

/// Returns a plot as a standalone file.
pub(crate) fn standalone(results: &Results, looks: &Looks, plot: &Plot) -> String {
    let mut canvas = Canvas::default();
    let heading = wrapped(&plot.title, 57);
    let caption = results.each(|file| {
        let of = &file.manifest;
        let (commit, machine) = (tables::short_commit(of), of.machine.named());
        format!("commit {commit}, {}, {machine}", tables::day(of))
    });
    let caption = wrapped(&caption, 88);
    let above = 26.0 + 18.0 * heading.len() as f64;
    let below = 16.0 + 14.0 * caption.len() as f64;
    let height = above + plot.height + below;
    canvas.rect("paper", (0.0, 0.0), (WIDTH + 24.0, height), "");
    for (at, line) in heading.iter().enumerate() {
        let at = (14.0, 28.0 + 18.0 * at as f64);
        canvas.text("heading", at, Anchor::Start, line);
    }
    for (at, line) in caption.iter().rev().enumerate() {
        let at = (14.0, height - 14.0 - 14.0 * at as f64);
        canvas.text("caption", at, Anchor::Start, line);
    }
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"plot plot-{kind}\" role=\"img\" \
         viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\">\n\
         <title>{title}</title>\n<style>{css}.paper{{fill:var(--bg)}}</style>\n{DEFS}\n{frame}\n\
         <g transform=\"translate(12 {above})\">\n{body}</g>\n</svg>\n",
        kind = plot.kind,
        width = num(WIDTH + 24.0),
        height = num(height),
        title = escape(&plot.title),
        css = plot_css("svg", looks),
        frame = canvas.out,
        above = num(above),
        body = plot.body,
    )
}

/// Breaks a text into lines of at most `most` characters, at spaces where there are any.
fn wrapped(text: &str, most: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split(' ').map(|word| shorten(word, most)) {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= most => {
                line.push(' ');
                line.push_str(&word);
            }
            _ => lines.push(word),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_texts_are_broken_at_spaces() {
        assert_eq!(wrapped("one two three", 7), ["one two", "three"]);
        assert_eq!(wrapped("abcdefgh i", 4), ["abc…", "i"]);
        assert_eq!(wrapped("", 4), [""]);
    }
}
