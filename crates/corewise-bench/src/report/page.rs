//! What stands around the plots.

use std::fmt::Write;

use super::Plot;
use super::svg::{bytes, escape, short};
use crate::record::{Interval, Manifest, Role, Row};
use crate::results::Results;

/// Style of the plots, for the page and for a plot alone.
const PLOT_STYLE: &str = "
:root{color-scheme:light dark;--ink:#1a1c1f;--soft:#5c636b;--line:#d9dde2;--back:#fff;--raised:#f5f6f8;--heat:#0077bb}
@media(prefers-color-scheme:dark){:root{--ink:#e6e8ea;--soft:#9aa3ac;--line:#343a41;--back:#15181b;--raised:#1e2226;--heat:#4fa8dd}}
.plot{font:12px system-ui,sans-serif;font-variant-numeric:tabular-nums;width:100%;height:auto;display:block}
.plot text{fill:var(--ink)}.plot .tick{fill:var(--soft);font-size:11px}.plot .title{fill:var(--soft);font-size:12px}
.plot .grid{stroke:var(--line)}.plot .axis{stroke:var(--soft)}.plot .mark{stroke:var(--soft);stroke-dasharray:3 3}
.plot .ideal{stroke:var(--soft);stroke-dasharray:6 4}.plot .series{fill:none;stroke-width:1.8;stroke-linejoin:round}
.plot .area{opacity:.35}.plot .stall{fill:var(--ink);opacity:.75}.plot .band{fill:var(--soft);opacity:.10}
.plot .heat{fill:var(--heat)}
";

const PAGE_STYLE: &str = "
body{font:15px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--back);max-width:940px;margin:2.5rem auto;padding:0 1.2rem}
h1{font-size:1.6rem;margin:0 0 .3rem}h2{font-size:1.15rem;margin:2.6rem 0 .6rem}h3{font-size:1rem;margin:1.8rem 0 .3rem}
.soft,figcaption{color:var(--soft);font-size:.9rem}figure{margin:1.4rem 0 2.2rem}figcaption{margin-top:.3rem}
table{border-collapse:collapse;width:100%;font-size:.86rem;font-variant-numeric:tabular-nums}
th,td{text-align:left;padding:.22rem .6rem .22rem 0;border-bottom:1px solid var(--line);vertical-align:top}
th{font-weight:600}td.n,th.n{text-align:right}code{font:12px ui-monospace,monospace}
.scroll{overflow-x:auto}.faster{color:#00805d}.slower{color:#c24400}.undecided,.equivalent{color:var(--soft)}
.void td{text-decoration:line-through;opacity:.7}.void td:last-child{text-decoration:none}.void .verdict{color:#c1121f;font-weight:600}
@media(prefers-color-scheme:dark){.faster{color:#2dc297}.slower{color:#ff8a4c}.void .verdict{color:#ff6b6b}}
details{margin:1rem 0}summary{cursor:pointer;font-weight:600}
";

/// The whole page.
pub(super) fn page(results: &Results, plots: Vec<Plot>) -> String {
    let mut out = format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width\">\n<link rel=\"icon\" href=\"data:,\">\n\
         <title>CHTBench</title>\n<style>{PLOT_STYLE}{PAGE_STYLE}</style>\n</head>\n<body>\n"
    );
    head(&mut out, results);
    if !plots.is_empty() {
        out += "<h2 id=\"plots\">Plots</h2>\n";
    }
    for plot in plots {
        let _ = writeln!(out, "<figure>\n<h3>{}</h3>", escape(&plot.title));
        out += &plot.svg.finish(&plot.id, plot.kind, &plot.title);
        let _ = writeln!(
            out,
            "<figcaption>{}</figcaption>\n</figure>",
            escape(&plot.note)
        );
    }
    verdicts(&mut out, results);
    cards(&mut out, results);
    environment(&mut out, results);
    out + "</body>\n</html>\n"
}

/// A plot as a file of its own.
pub(super) fn alone(results: &Results, plot: Plot) -> String {
    let origin = results.manifests.first().map(origin).unwrap_or_default();
    let (id, kind, title, mut svg) = (plot.id, plot.kind, plot.title, plot.svg);
    svg.caption(&title, &origin);
    svg.finish(&id, kind, &title).replacen(
        "<title>",
        &format!("<style>{PLOT_STYLE}</style><title>"),
        1,
    )
}

/// Where results come from, in a line.
fn origin(manifest: &Manifest) -> String {
    format!(
        "commit {}{}, {}, {} ({} CPUs), allocator {}, pages {}",
        manifest.commit.get(..10).unwrap_or(&manifest.commit),
        if manifest.dirty { " and changes" } else { "" },
        manifest.date.get(..10).unwrap_or(&manifest.date),
        manifest.machine.cpu,
        manifest.machine.cpus,
        manifest.allocator,
        manifest.pages
    )
}

fn head(out: &mut String, results: &Results) {
    *out += "<h1>CHTBench</h1>\n";
    for manifest in &results.manifests {
        let _ = writeln!(
            out,
            "<p class=\"soft\">Suite {}: {}</p>",
            escape(&manifest.suite),
            escape(&origin(manifest))
        );
    }
    let void = results
        .rows
        .iter()
        .filter(|row| row.verdict == "void")
        .count();
    let _ = writeln!(
        out,
        "<p id=\"summary\">{} rows, {} of them void. A row is void if any check of its results failed; it is in no plot. \
         A verdict compares a table with the reference in the same repetitions: <em>equivalent</em> is within 3 %, \
         <em>undecided</em> needs more repetitions.</p>",
        results.rows.len(),
        void
    );
    for name in &results.truncated {
        let _ = writeln!(
            out,
            "<p class=\"slower\">{} was cut off: the run did not end.</p>",
            escape(name)
        );
    }
}

fn verdicts(out: &mut String, results: &Results) {
    *out += "<h2 id=\"verdicts\">Verdicts</h2>\n";
    for section in results.sections() {
        let _ = writeln!(
            out,
            "<h3>{}</h3>\n<div class=\"scroll\"><table class=\"verdicts\">",
            escape(section)
        );
        *out += "<thead><tr><th>cell</th><th>table</th><th class=\"n\">Mops/s</th><th class=\"n\">95 %</th>\
                 <th class=\"n\">ratio</th><th class=\"n\">95 %</th><th>verdict</th></tr></thead>\n<tbody>\n";
        let mut last = "";
        for row in results
            .rows
            .iter()
            .filter(|row| row.cell.section == section)
        {
            let cell = if last == row.cell.id {
                ""
            } else {
                row.cell.id.as_str()
            };
            last = &row.cell.id;
            verdict(
                out,
                cell.trim_start_matches(section).trim_start_matches('/'),
                row,
            );
        }
        *out += "</tbody></table></div>\n";
    }
}

fn verdict(out: &mut String, cell: &str, row: &Row) {
    let pair = |interval: Option<Interval>, scale: f64| match interval {
        None => (String::new(), String::new()),
        Some(i) => (
            short(i.value / scale),
            format!("{} – {}", short(i.low / scale), short(i.high / scale)),
        ),
    };
    let (rate, rate_interval) = pair(row.rate, 1e6);
    let (ratio, ratio_interval) = pair(row.ratio, 1.0);
    let word = match row.role {
        Role::Reference if row.verdict.is_empty() => "reference",
        Role::Null if row.verdict.is_empty() => "cost of the harness",
        _ => &row.verdict,
    };
    let why = if row.problems.is_empty() {
        String::new()
    } else {
        format!(": {}", row.problems.join("; "))
    };
    let void = if row.verdict == "void" {
        " class=\"void\""
    } else {
        ""
    };
    let contention = row.contention.map(contention).unwrap_or_default();
    let _ = writeln!(
        out,
        "<tr{void}><td>{}</td><td>{}</td><td class=\"n\">{rate}</td><td class=\"n\">{rate_interval}</td>\
         <td class=\"n\">{ratio}</td><td class=\"n\">{ratio_interval}</td>\
         <td><span class=\"verdict {}\">{}</span>{}{}</td></tr>",
        escape(cell),
        escape(&row.table),
        escape(&row.verdict),
        escape(word),
        escape(&why),
        escape(&contention)
    );
}

fn contention(seen: crate::table::Contention) -> String {
    let all = seen.acquisitions.max(1) as f64;
    format!(
        " ({} % contended, {} % elided, {} aborts per section)",
        short(seen.contended as f64 / all * 100.0),
        short(seen.elided as f64 / all * 100.0),
        short(seen.aborts as f64 / all)
    )
}

fn cards(out: &mut String, results: &Results) {
    *out += "<h2 id=\"cards\">Fairness cards</h2>\n<p class=\"soft\">What each table is, and what its adapter does.</p>\n";
    let mut shown: Vec<&str> = Vec::new();
    for card in results
        .manifests
        .iter()
        .flat_map(|manifest| &manifest.cards)
    {
        let used = results
            .rows
            .iter()
            .any(|row| row.table.trim_end_matches(" (again)") == card.name);
        if !used || shown.contains(&card.name.as_str()) {
            continue;
        }
        shown.push(&card.name);
        let _ = writeln!(
            out,
            "<details class=\"card\"><summary>{}: {}</summary><table>",
            escape(&card.name),
            escape(&card.about)
        );
        for (name, text) in [
            ("version", &card.version),
            ("language", &card.language),
            ("hash function", &card.hasher),
            ("reclamation", &card.reclamation),
            ("guarantees", &card.guarantees),
            ("settings", &card.settings),
            ("adapter", &card.adapter),
            ("memory", &card.memory),
        ] {
            let _ = writeln!(out, "<tr><th>{name}</th><td>{}</td></tr>", escape(text));
        }
        *out += "</table></details>\n";
    }
}

fn environment(out: &mut String, results: &Results) {
    *out += "<h2 id=\"environment\">Environment</h2>\n";
    for (manifest, file) in results.manifests.iter().zip(&results.files) {
        let machine = &manifest.machine;
        let caches: Vec<String> = machine
            .caches
            .iter()
            .map(|cache| {
                format!(
                    "L{} {} (shared by {})",
                    cache.level,
                    bytes(cache.size_bytes as f64),
                    cache.shared_by
                )
            })
            .collect();
        let commands = format!(
            "{} (rows again: corewise bench replay '{file}#CELL#TABLE')",
            manifest.command.join(" ")
        );
        *out += "<table>\n";
        for (name, text) in [
            ("command", commands),
            ("date", manifest.date.clone()),
            (
                "commit",
                format!(
                    "{}{}",
                    manifest.commit,
                    if manifest.dirty { " and changes" } else { "" }
                ),
            ),
            (
                "compiler",
                format!("{}; {}", manifest.rustc, manifest.build),
            ),
            ("features", manifest.features.join(", ")),
            ("allocator", manifest.allocator.clone()),
            ("pages", manifest.pages.clone()),
            (
                "processor",
                format!(
                    "{}: {} CPUs, {} cores, {} sockets",
                    machine.cpu, machine.cpus, machine.cores, machine.sockets
                ),
            ),
            ("caches", caches.join(", ")),
            ("memory", bytes(machine.memory_bytes as f64)),
            (
                "kernel",
                format!(
                    "{}{}",
                    machine.kernel,
                    if machine.virtual_machine {
                        ", in a virtual machine"
                    } else {
                        ""
                    }
                ),
            ),
            ("load at the start", short(machine.load_1min)),
            (
                "timing",
                format!(
                    "{} GHz counter, {} ns for a timed operation (subtracted)",
                    short(machine.tsc_hz / 1e9),
                    short(machine.timing_overhead_ns)
                ),
            ),
            ("seed", manifest.seed.to_string()),
        ] {
            let _ = writeln!(out, "<tr><th>{name}</th><td>{}</td></tr>", escape(&text));
        }
        *out += "</table>\n";
        let _ = writeln!(
            out,
            "<details><summary>The suite as run</summary><pre><code>{}</code></pre></details>",
            escape(&manifest.plan)
        );
    }
}
