//! The page around the plots, and the frame of a standalone plot.

use maud::{DOCTYPE, Markup, PreEscaped, html};

use crate::plot::chart::WIDTH;
use crate::plot::style::{DEFS, Look, Looks, plot_css};
use crate::plot::svg::{Anchor, Canvas, escape, num, shorten};
use crate::plot::{Part, Plot};
use crate::report::{Extent, numbered, tables};
use crate::results::{Results, SourceFile};

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

/// Returns a document with the styles of pages and plots.
fn document(title: &str, body: &Markup) -> String {
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width,initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (title) }
                style { (PreEscaped(plot_css(":root"))) (PreEscaped(CSS)) }
            }
            body {
                svg.defs width="0" height="0" aria-hidden="true" { (PreEscaped(DEFS)) }
                (body)
            }
        }
    };
    page.into_string()
}

/// Returns a page of plots and their text.
pub(crate) fn plain(title: &str, lead: &[String], plots: &[Plot], text: &str) -> String {
    let body = html! {
        header #summary {
            h1 { (title) }
            @for line in lead { p.sub { (line) } }
        }
        main {
            @for (at, plot) in plots.iter().enumerate() { (figure(at + 1, plot)) }
            pre { (text) }
        }
    };
    document(title, &body)
}

/// Returns the whole page.
pub(crate) fn page(results: &Results, looks: &Looks, parts: &[Part], extent: Extent) -> String {
    let mut numbers = numbered(parts);
    let body = html! {
        (head(results))
        (navigation(parts))
        main {
            (notes(results))
            @if extent == Extent::Brief {
                p.sub {
                    "A brief page: plots have medians and intervals only, no single repetitions."
                }
            }
            (verdicts(results, looks))
            @for part in parts { (section(part, &mut numbers)) }
            (ending(results, extent))
        }
        footer {
            "Made by corewise bench report. Medians over repetitions; intervals are 95 % bootstrap \
             intervals."
        }
        script { (PreEscaped(SCRIPT)) }
    };
    document(&title(results), &body)
}

fn title(results: &Results) -> String {
    let suites = each(results, |file| file.manifest.suite.clone());
    format!("CHTBench: {suites}")
}

/// Returns the distinct values of a property of the files.
fn each(results: &Results, of: impl Fn(&SourceFile) -> String) -> String {
    let mut answers: Vec<String> = Vec::new();
    for answer in results.files.iter().map(of) {
        if !answers.contains(&answer) {
            answers.push(answer);
        }
    }
    answers.join(" and ")
}

fn head(results: &Results) -> Markup {
    let rows = results.rows().count();
    let void = results.rows().filter(|row| row.void()).count();
    let machine = |file: &SourceFile| {
        let machine = &file.manifest.machine;
        format!("{}, {} CPUs", machine.cpu, machine.cpus)
    };
    let is_void = match void {
        0 => "",
        _ => "void: hatched below, not to be used",
    };
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
        ("Rows", format!("{rows} rows, {void} void"), is_void.into()),
    ];
    html! {
        header #summary {
            h1 { (title(results)) }
            p.sub { "Concurrent hash tables, measured by corewise bench" }
            dl.tiles {
                @for (name, value, more) in &tiles {
                    div.tile { dt { (name) } dd { (value) small { (more) } } }
                }
            }
        }
    }
}

fn navigation(parts: &[Part]) -> Markup {
    html! {
        nav aria-label="Sections" {
            div {
                a href="#verdicts" { "Verdicts" }
                @for part in parts { a href={ "#" (part.id) } { (part.heading) } }
                a href="#fairness" { "Fairness" }
                a href="#environment" { "Environment" }
                a href="#commands" { "Commands" }
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
    html! {
        section #verdicts {
            h2 { "Verdicts" }
            p.lead {
                "Rates over the reference's rate in the same repetitions, with 95 % intervals. The \
                 reference again (A/A) shows the noise: no difference smaller than its own means \
                 anything. The harness without a table (null) is what measuring alone allows."
            }
            (tables::verdicts(results, looks))
            p.hint {
                "Tables in the plots: point at one to see it stand out, click to hide it."
            }
            div.chips role="group" aria-label="Tables in the plots" {
                @for (at, (name, look)) in looks.all().enumerate() {
                    button.chip type="button" data-s=(at) aria-pressed="true" {
                        svg class={ "c" (at % 8) } viewBox="0 0 16 16" aria-hidden="true" {
                            (mark(&look))
                        }
                        (name)
                    }
                }
            }
        }
    }
}

/// Returns the mark that a table has in the plots.
fn mark(look: &Look) -> PreEscaped<String> {
    let mut mark = Canvas::default();
    mark.mark(look.shape(), "median", (8.0, 8.0), 6.0, "");
    PreEscaped(mark.out)
}

fn section<'a>(part: &Part, numbers: &mut impl Iterator<Item = (usize, &'a Plot)>) -> Markup {
    html! {
        section id=(part.id) {
            h2 { (part.heading) }
            p.lead { (part.lead) }
            @for (number, plot) in numbers.take(part.plots.len()) { (figure(number, plot)) }
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
            div.scroll {
                svg id=(id) class=(class) role="img" viewBox=(view) {
                    title { (plot.title) }
                    (PreEscaped(&plot.body))
                }
            }
        }
    }
}

fn ending(results: &Results, extent: Extent) -> Markup {
    html! {
        section #fairness { h2 { "Fairness" } (tables::cards(results)) }
        section #environment { h2 { "Environment" } (tables::environment(results)) }
        section #commands { h2 { "Commands" } (tables::commands(results, extent)) }
    }
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
