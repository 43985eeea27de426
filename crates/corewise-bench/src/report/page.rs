//! The page around the plots, and the frame of a standalone plot.

use std::fmt::Write;

use crate::plot::chart::WIDTH;
use crate::plot::style::{DEFS, Looks, plot_css};
use crate::plot::svg::{Anchor, Canvas, escape, num, shorten};
use crate::plot::{Part, Plot};
use crate::report::{Extent, numbered, tables};
use crate::results::Results;

const CSS: &str = "\
*{box-sizing:border-box}html{scroll-behavior:smooth;-webkit-text-size-adjust:100%}\
body{margin:0;background:var(--bg);color:var(--ink);\
font:16px/1.55 system-ui,-apple-system,'Segoe UI',Roboto,'Noto Sans','DejaVu Sans',sans-serif}\
main,header,footer{max-width:1100px;margin:0 auto;padding:0 24px}\
header{padding-top:44px}h1{font-size:30px;line-height:1.2;margin:0 0 6px;letter-spacing:-.015em}\
h2{font-size:22px;line-height:1.25;margin:60px 0 4px;letter-spacing:-.01em}\
.lead,.sub{color:var(--muted);margin:0 0 14px;max-width:72ch}\
nav{position:sticky;top:0;z-index:3;background:var(--bg);border-bottom:1px solid var(--grid)}\
nav div{max-width:1100px;margin:0 auto;padding:9px 24px;display:flex;flex-wrap:wrap;gap:4px 16px;\
font-size:14px}a{color:var(--accent);text-decoration:none}a:hover{text-decoration:underline}\
section{scroll-margin-top:48px}\
.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(190px,1fr));gap:12px;margin:24px 0}\
.tile{background:var(--card);border:1px solid var(--grid);border-radius:8px;padding:12px 14px;\
min-width:0}\
.tile dt{font-size:13px;color:var(--muted)}\
.tile dd{margin:2px 0 0;font-weight:600;font-size:15px;line-height:1.4;overflow-wrap:anywhere;font-variant-numeric:tabular-nums}\
.tile small{display:block;font-weight:400;color:var(--muted)}dl{margin:0}\
.warn{border-left:4px solid var(--bad);background:var(--card);padding:10px 14px;margin:16px 0;\
border-radius:0 6px 6px 0}.warn p{margin:0}\
.chips{display:flex;flex-wrap:wrap;gap:6px 8px;margin:0}.hint{color:var(--muted);font-size:14px;margin:26px 0 8px}\
.chip{font:inherit;font-size:14px;display:inline-flex;align-items:center;gap:6px;color:var(--ink);\
background:var(--card);border:1px solid var(--grid);border-radius:999px;padding:3px 11px 3px 8px;\
cursor:pointer}.chip[aria-pressed=false]{opacity:.45;text-decoration:line-through}\
.chip svg{width:14px;height:14px;flex:none}\
figure{margin:18px 0 34px;background:var(--bg);border:1px solid var(--grid);border-radius:10px;\
padding:16px 18px 10px}\
figcaption b{display:block;font-size:16px;line-height:1.35}\
figcaption{font-size:14px;color:var(--muted);margin-bottom:12px}figcaption b{color:var(--ink)}\
.scroll{overflow-x:auto;max-width:100%}svg.plot{display:block;width:100%;min-width:680px;height:auto}\
table{border-collapse:collapse;font-size:14px;font-variant-numeric:tabular-nums}\
caption{text-align:left;padding:16px 0 6px}caption b{font-weight:650}\
caption span{color:var(--muted);margin-left:10px}\
th,td{padding:6px 10px;text-align:left;vertical-align:top;border-bottom:1px solid var(--grid)}\
thead th{white-space:nowrap;vertical-align:bottom;border-bottom:2px solid var(--edge)}\
th small,td small{display:block;font-weight:400;color:var(--muted);font-size:12px}\
.verdicts{min-width:100%}\
.verdicts td{min-width:104px}.verdicts th.cell{position:sticky;left:0;background:var(--bg);\
min-width:170px;max-width:300px;font-weight:500}\
.verdicts td small{white-space:nowrap}.word{display:block;font-size:13px;font-weight:600}.verdicts td b{white-space:nowrap}\
.faster .word{color:var(--good)}.slower .word{color:var(--bad)}\
.equivalent .word{color:var(--same)}.undecided .word{color:var(--unsure)}\
.plain .word{color:var(--muted);font-weight:400}\
.faster{background:color-mix(in srgb,var(--good) 9%,transparent)}\
.slower{background:color-mix(in srgb,var(--bad) 9%,transparent)}\
.null{border-left:1px dashed var(--edge)}.aa{border-right:1px dashed var(--edge)}td.aa,td.null{font-style:italic}\
td.void{background:repeating-linear-gradient(45deg,transparent 0 5px,\
color-mix(in srgb,var(--void) 28%,transparent) 5px 7px)}\
.verdicts td.void small{white-space:normal;max-width:180px}td.none{color:var(--muted)}\
.cards td{min-width:140px;max-width:320px}.facts th{white-space:nowrap;font-weight:500;\
color:var(--muted)}.facts td{overflow-wrap:anywhere}.replay code{white-space:nowrap}\
.numbers td{text-align:right}\
details{margin:14px 0}summary{cursor:pointer;font-weight:600}\
pre{background:var(--card);border:1px solid var(--grid);border-radius:8px;padding:12px 14px;\
overflow-x:auto;font-size:13px;line-height:1.5}\
code{font-family:ui-monospace,'Cascadia Mono','SF Mono',Menlo,'DejaVu Sans Mono',monospace}\
footer{color:var(--muted);font-size:14px;padding-top:40px;padding-bottom:48px}\
.defs{position:absolute}\
@media(max-width:600px){main,header,footer,nav div{padding-left:14px;padding-right:14px}\
figure{padding:12px 10px}h1{font-size:25px}}\
@media print{nav,.chips{display:none}figure{break-inside:avoid}}";

/// A click on a table hides it, hovering dims the others. Nothing else depends on the script.
const SCRIPT: &str = "\
for(const chip of document.querySelectorAll('.chip')){const mine='.s'+chip.dataset.s;\
const each=(pick,name,on)=>document.querySelectorAll('.plot '+pick).forEach(\
e=>e.classList.toggle(name,on));\
chip.addEventListener('click',()=>{const off=chip.getAttribute('aria-pressed')!=='false';\
chip.setAttribute('aria-pressed',String(!off));each(mine,'off',off)});\
chip.addEventListener('pointerenter',()=>each('.series:not('+mine+')','dim',true));\
chip.addEventListener('pointerleave',()=>each('.series','dim',false))}";

/// Returns everything before the body's first element.
fn opening(title: &str) -> String {
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n<title>{}</title>\n\
         <style>{}{CSS}</style>\n</head>\n<body>\n\
         <svg class=\"defs\" width=\"0\" height=\"0\" aria-hidden=\"true\">{DEFS}</svg>\n",
        escape(title),
        plot_css(":root")
    )
}

/// Returns a page of plots and their text.
pub(crate) fn plain(title: &str, lead: &[String], plots: &[Plot], text: &str) -> String {
    let mut out = opening(title);
    let title = escape(title);
    let _ = writeln!(out, "<header id=\"summary\"><h1>{title}</h1>");
    for line in lead {
        let _ = writeln!(out, "<p class=\"sub\">{}</p>", escape(line));
    }
    out.push_str("</header>\n<main>\n");
    for (at, plot) in plots.iter().enumerate() {
        out.push_str(&figure(at + 1, plot));
    }
    let _ = writeln!(
        out,
        "<pre>{}</pre>\n</main>\n</body>\n</html>",
        escape(text)
    );
    out
}

/// Returns the whole page.
pub(crate) fn page(results: &Results, looks: &Looks, parts: &[Part], extent: Extent) -> String {
    let mut out = opening(&title(results));
    out.push_str(&head(results));
    out.push_str(&navigation(parts));
    out.push_str("<main>\n");
    out.push_str(&notes(results));
    if extent == Extent::Brief {
        out.push_str(
            "<p class=\"sub\">A brief page: plots have medians and intervals only, no single repetitions.</p>\n",
        );
    }
    out.push_str(&verdicts(results, looks));
    let mut numbers = numbered(parts);
    for part in parts {
        section(&mut out, part, &mut numbers);
    }
    out.push_str(&ending(results, extent));
    let _ = writeln!(out, "<script>{SCRIPT}</script>\n</body>\n</html>");
    out
}

fn title(results: &Results) -> String {
    let suites = each(results, |file| file.manifest.suite.clone());
    format!("CHTBench: {suites}")
}

/// Returns the distinct values of a property of the files.
fn each(results: &Results, of: impl Fn(&crate::results::SourceFile) -> String) -> String {
    let mut answers: Vec<String> = Vec::new();
    for answer in results.files.iter().map(of) {
        if !answers.contains(&answer) {
            answers.push(answer);
        }
    }
    answers.join(" and ")
}

fn head(results: &Results) -> String {
    let mut out = format!(
        "<header id=\"summary\"><h1>{}</h1>\n<p class=\"sub\">Concurrent hash tables, measured by \
         corewise bench</p>\n<dl class=\"tiles\">",
        escape(&title(results))
    );
    let rows = results.rows().count();
    let void = results.rows().filter(|row| row.void()).count();
    let machine = |file: &crate::results::SourceFile| {
        let machine = &file.manifest.machine;
        format!("{}, {} CPUs", machine.cpu, machine.cpus)
    };
    let broken = if void == 0 {
        "none void"
    } else {
        "void: hatched below, not to be used"
    };
    let void_text = format!("{rows} rows, {void} void");
    let tiles = [
        (
            "Run",
            each(results, |file| file.name()),
            each(results, |f| f.manifest.suite.clone()),
        ),
        (
            "Machine",
            each(results, machine),
            each(results, |f| f.manifest.machine.kernel.clone()),
        ),
        (
            "Date (UTC)",
            each(results, |f| f.manifest.date.clone()),
            String::new(),
        ),
        (
            "Commit",
            each(results, |f| tables::commit(&f.manifest)),
            each(results, |f| f.manifest.rustc.clone()),
        ),
        (
            "Rows",
            void_text,
            if void == 0 {
                String::new()
            } else {
                broken.to_owned()
            },
        ),
    ];
    for (name, value, more) in tiles {
        let _ = write!(
            out,
            "<div class=\"tile\"><dt>{name}</dt><dd>{}<small>{}</small></dd></div>",
            escape(&value),
            escape(&more)
        );
    }
    out + "</dl></header>\n"
}

fn navigation(parts: &[Part]) -> String {
    let mut out =
        String::from("<nav aria-label=\"Sections\"><div><a href=\"#verdicts\">Verdicts</a>");
    for part in parts {
        let _ = write!(
            out,
            "<a href=\"#{}\">{}</a>",
            part.id,
            escape(&part.heading)
        );
    }
    out + "<a href=\"#fairness\">Fairness</a><a href=\"#environment\">Environment</a>\
           <a href=\"#commands\">Commands</a></div></nav>\n"
}

/// Returns what is wrong with the files.
fn notes(results: &Results) -> String {
    let mut out = String::new();
    for file in &results.files {
        for note in file.notes() {
            let name = escape(&file.name());
            let _ = write!(out, "<p><b>{name}</b>: {}.</p>", escape(&note));
        }
    }
    if results.files.len() > 1 {
        out.push_str(
            "<p>Several files are shown together; [1], [2] after a table's name is the file.</p>",
        );
    }
    if out.is_empty() {
        return out;
    }
    format!("<div class=\"warn\" role=\"note\">{out}</div>\n")
}

fn verdicts(results: &Results, looks: &Looks) -> String {
    let mut out = String::from(
        "<section id=\"verdicts\"><h2>Verdicts</h2>\n<p class=\"lead\">Rates over the reference's rate \
         in the same repetitions, with 95 % intervals. The reference again (A/A) shows the noise: no \
         difference smaller than its own means anything. The harness without a table (null) is what \
         measuring alone allows.</p>\n",
    );
    out.push_str(&tables::verdicts(results, looks));
    out.push_str(
        "<p class=\"hint\">Tables in the plots: point at one to see it stand out, click to hide it.</p>",
    );
    out.push_str("<div class=\"chips\" role=\"group\" aria-label=\"Tables in the plots\">");
    for (at, (name, look)) in looks.all().enumerate() {
        let mut mark = Canvas::default();
        mark.mark(look.shape(), "median", (8.0, 8.0), 6.0, "");
        let _ = write!(
            out,
            "<button type=\"button\" class=\"chip\" data-s=\"{at}\" aria-pressed=\"true\">\
             <svg class=\"c{}\" viewBox=\"0 0 16 16\" aria-hidden=\"true\">{}</svg>{}</button>",
            at % 8,
            mark.out,
            escape(name)
        );
    }
    out + "</div></section>\n"
}

fn section<'a>(
    out: &mut String,
    part: &Part,
    numbers: &mut impl Iterator<Item = (usize, &'a Plot)>,
) {
    let _ = writeln!(
        out,
        "<section id=\"{}\"><h2>{}</h2>\n<p class=\"lead\">{}</p>",
        part.id,
        escape(&part.heading),
        escape(part.lead)
    );
    for (number, plot) in numbers.take(part.plots.len()) {
        out.push_str(&figure(number, plot));
    }
    out.push_str(&part.below);
    out.push_str("</section>\n");
}

fn figure(number: usize, plot: &Plot) -> String {
    format!(
        "<figure><figcaption><b>{title}</b>{note}</figcaption><div class=\"scroll\">\
         <svg id=\"{id}\" class=\"plot plot-{kind}\" role=\"img\" viewBox=\"0 0 {width} {height}\">\
         <title>{title}</title>\n{body}</svg></div></figure>\n",
        title = escape(&plot.title),
        note = escape(&plot.note),
        id = plot.id(number),
        kind = plot.kind,
        width = num(WIDTH),
        height = num(plot.height),
        body = plot.body,
    )
}

fn ending(results: &Results, extent: Extent) -> String {
    format!(
        "<section id=\"fairness\"><h2>Fairness</h2>\n{}</section>\n\
         <section id=\"environment\"><h2>Environment</h2>\n{}</section>\n\
         <section id=\"commands\"><h2>Commands</h2>\n{}</section>\n</main>\n\
         <footer>Made by corewise bench report. Medians over repetitions; intervals are 95 % \
         bootstrap intervals.</footer>",
        tables::cards(results),
        tables::environment(results),
        tables::commands(results, extent)
    )
}

/// Returns a plot as a standalone file.
pub(crate) fn standalone(results: &Results, plot: &Plot) -> String {
    let mut canvas = Canvas::default();
    let (above, below) = (44.0, 30.0);
    let height = above + plot.height + below;
    canvas.rect("paper", (0.0, 0.0), (WIDTH + 24.0, height), "");
    canvas.text(
        "heading",
        (14.0, 28.0),
        Anchor::Start,
        &shorten(&plot.title, 118),
    );
    let caption = each(results, |file| {
        let of = &file.manifest;
        let machine = &of.machine;
        let commit = tables::commit(of);
        format!(
            "commit {commit}, {}, {}, {} CPUs",
            of.date, machine.cpu, machine.cpus
        )
    });
    let low = height - 14.0;
    canvas.text(
        "caption",
        (14.0, low),
        Anchor::Start,
        &shorten(&caption, 165),
    );
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"plot plot-{kind}\" role=\"img\" \
         viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\">\n\
         <title>{title}</title>\n<style>{css}.paper{{fill:var(--bg)}}</style>\n{DEFS}\n{frame}\n\
         <g transform=\"translate(12 {above})\">\n{body}</g>\n</svg>\n",
        kind = plot.kind,
        width = num(WIDTH + 24.0),
        height = num(height),
        title = escape(&plot.title),
        css = plot_css("svg"),
        frame = canvas.out,
        above = num(above),
        body = plot.body,
    )
}
