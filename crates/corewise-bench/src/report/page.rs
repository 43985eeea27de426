//! The page around the plots, and the frame of a standalone plot.

use maud::{DOCTYPE, Markup, PreEscaped, html};

use crate::claims;
use crate::plot::chart::WIDTH;
use crate::plot::style::{DEFS, Looks, plot_css};
use crate::plot::svg::{Anchor, Canvas, escape, num, shorten};
use crate::plot::{Part, Plot};
use crate::report::decision::swatch;
use crate::report::{Extent, numbered, tables};
use crate::results::{Results, SourceFile};

const CSS: &str = "\
*{box-sizing:border-box}html{scroll-behavior:smooth;-webkit-text-size-adjust:100%}\
body{margin:0;background:var(--bg);color:var(--ink);\
font:16px/1.5 system-ui,-apple-system,'Segoe UI',Roboto,'Noto Sans','DejaVu Sans',sans-serif}\
main,header,footer{max-width:1240px;margin:0 auto;padding:0 24px}\
header{padding-top:30px}h1{font-size:28px;line-height:1.2;margin:0 0 6px;letter-spacing:-.015em}\
h2{font-size:22px;line-height:1.25;margin:44px 0 4px;letter-spacing:-.01em}\
#decision h2{margin-top:22px}\
.lead,.sub{color:var(--muted);margin:0 0 14px;max-width:80ch;overflow-wrap:anywhere}\
.sub{font-size:14px;margin-top:8px}\
nav{position:sticky;top:0;z-index:3;background:var(--bg);border-bottom:1px solid var(--grid)}\
.menu{max-width:1240px;margin:0 auto;padding:8px 24px;display:flex;gap:14px;font-size:14px}\
.links{display:flex;gap:14px;overflow-x:auto;white-space:nowrap;scrollbar-width:none}\
a{color:var(--accent);text-decoration:none}a:hover{text-decoration:underline}\
section{scroll-margin-top:48px}\
.pick{margin:0;flex:none}.pick form{position:absolute;left:0;right:0;top:100%;padding:12px 24px;\
background:var(--bg);border-bottom:1px solid var(--edge);max-height:70vh;overflow-y:auto}\
.pick p{margin:10px auto 0;max-width:1192px}\
.warn{border-left:4px solid var(--bad);background:var(--card);padding:10px 14px;margin:16px 0;\
border-radius:0 6px 6px 0}.warn p{margin:0}\
.chips{display:flex;flex-wrap:wrap;gap:6px 8px;margin:0 auto;max-width:1192px}\
.chip,button{font:inherit;font-size:14px;display:inline-flex;align-items:center;gap:6px;\
color:var(--muted);background:var(--card);border:1px solid var(--grid);border-radius:999px;\
padding:3px 11px 3px 8px;cursor:pointer}\
.chip:has(:checked){color:var(--ink);border-color:var(--edge)}\
.chip input{accent-color:var(--accent);margin:0}button[hidden]{display:none}\
.swatch{width:14px;height:14px;flex:none;vertical-align:-2px}\
.figures{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,460px),1fr));gap:18px;\
align-items:start;margin:14px 0}\
figure{margin:0;min-width:0;border:1px solid var(--grid);border-radius:10px;padding:14px 16px 8px}\
.figures figure:only-child{max-width:760px}\
figcaption b{display:block;font-size:15px;line-height:1.35}\
figcaption{font-size:13px;color:var(--muted);margin-bottom:10px}figcaption b{color:var(--ink)}\
.scroll{overflow-x:auto;max-width:100%}svg.plot{display:block;width:100%;height:auto}\
.series,.lines .col{cursor:pointer}\
table{border-collapse:collapse;font-size:14px;font-variant-numeric:tabular-nums}\
caption{text-align:left;padding:16px 0 6px}caption b{font-weight:650}\
caption span{color:var(--muted);margin-left:10px}\
th,td{padding:6px 10px;text-align:left;vertical-align:top;border-bottom:1px solid var(--grid);\
color:var(--ink)}\
thead th{white-space:nowrap;vertical-align:bottom;border-bottom:2px solid var(--edge)}\
th small,td small{display:block;font-weight:400;color:var(--muted);font-size:12px}\
.decision{width:100%}.decision th small{max-width:34ch}\
.entry{display:inline-block;margin-right:16px;white-space:nowrap}.entry .swatch{margin-right:4px}\
.more{color:var(--muted);white-space:nowrap}\
.verdicts summary span{color:var(--muted);font-weight:400;font-size:14px;margin-left:10px}\
.lines{width:100%;table-layout:fixed}.lines th:first-child{width:30%;overflow-wrap:anywhere}\
.lines .cell th{padding-top:18px;border-bottom:2px solid var(--edge)}\
.lines .cell th:not(:first-child){color:var(--muted);font-weight:400;font-size:13px}\
.lines th[scope=row]{font-weight:500}.word{display:block;font-size:13px;font-weight:600}\
.faster .word{color:var(--good)}.slower .word{color:var(--bad)}\
.equivalent .word,.within .word{color:var(--same);font-weight:400}.undecided .word{color:var(--unsure)}\
.plain .word{color:var(--muted);font-weight:400}\
.faster{background:color-mix(in srgb,var(--good) var(--tint,9%),transparent)}\
.slower{background:color-mix(in srgb,var(--bad) var(--tint,9%),transparent)}\
.aa,.null{font-style:italic}\
.void td{background:repeating-linear-gradient(45deg,transparent 0 5px,\
color-mix(in srgb,var(--void) 28%,transparent) 5px 7px)}\
.cards td{min-width:140px;max-width:320px}.facts th{white-space:nowrap;font-weight:500;\
color:var(--muted)}.facts td{overflow-wrap:anywhere}.replay code{white-space:nowrap}\
.numbers td{text-align:right;white-space:nowrap}\
details{margin:14px 0}summary{cursor:pointer;font-weight:600}\
pre{background:var(--card);border:1px solid var(--grid);border-radius:8px;padding:12px 14px;\
overflow-x:auto;font-size:13px;line-height:1.5}\
code{font-family:ui-monospace,'Cascadia Mono','SF Mono',Menlo,'DejaVu Sans Mono',monospace}\
footer{color:var(--muted);font-size:14px;padding-top:40px;padding-bottom:48px}\
.defs{position:absolute}\
@media(max-width:600px){main,header,footer,.menu,.pick form{padding-left:10px;padding-right:10px}\
header{padding-top:18px}h1{font-size:23px}h2{margin-top:34px}.plot text{font-size:13px}\
figure{padding:10px 0;border-width:1px 0 0;border-radius:0}\
th,td{padding:5px 4px}table{font-size:13px}\
.decision,.decision tbody,.decision tr,.decision th,.decision td{display:block;border:0}\
.decision thead{display:none}.decision tr{border-bottom:1px solid var(--grid);padding:6px 0}\
.decision th,.decision td{padding:1px 0}.entry{margin-right:12px}}\
@media print{nav{display:none}figure{break-inside:avoid}}";

/// The properties of a table that is not chosen.
const REST: &str = "--c:var(--rest);--wide:1.2;--faint:0;--bold:400;--ink:var(--muted);\
--good:var(--muted);--bad:var(--muted);--same:var(--muted);--unsure:var(--muted);--tint:0%";

/// Clicks on a table in a plot or in the verdicts choose it, and hovering over its box dims the
/// others. The boxes themselves work without the script.
const SCRIPT: &str = "\
const boxes=[...document.querySelectorAll('.chip input')];\
document.addEventListener('click',e=>{const part=e.target.closest('.series,.col');\
const at=part&&/\\bs(\\d+)\\b/.exec(part.getAttribute('class'));\
const box=at&&document.getElementById('t'+at[1]);if(box)box.checked=!box.checked});\
const dim=(at,on)=>document.querySelectorAll('.plot .series:not(.s'+at+')').forEach(\
e=>e.classList.toggle('dim',on));\
for(const box of boxes){const chip=box.closest('.chip'),at=box.id.slice(1);\
chip.addEventListener('pointerenter',()=>dim(at,true));\
chip.addEventListener('pointerleave',()=>dim(at,false))}\
const all=document.getElementById('all');if(all){all.hidden=false;\
all.addEventListener('click',()=>boxes.forEach(box=>{box.checked=true}))}";

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
                style { (PreEscaped(plot_css(":root", looks))) (PreEscaped(CSS)) (PreEscaped(rest(looks))) }
            }
            body {
                svg.defs width="0" height="0" aria-hidden="true" { (PreEscaped(DEFS)) }
                (body)
            }
        }
    };
    page.into_string()
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

/// Returns the whole page.
pub(crate) fn page(results: &Results, looks: &Looks, parts: &[Part], extent: Extent) -> String {
    let mut numbers = numbered(parts);
    let body = html! {
        (head(results))
        (navigation(parts, looks))
        main {
            (notes(results))
            @if extent == Extent::Brief {
                p.sub {
                    "A brief page: plots have medians and intervals only, no single repetitions."
                }
            }
            @let (decision, rest) = parts.split_at(first_screen(parts));
            @for part in decision { (section(part, &mut numbers)) }
            (claims::verdicts(results))
            @for part in rest { (section(part, &mut numbers)) }
            (verdicts(results, looks))
            (ending(results, extent))
        }
        footer {
            "Made by corewise bench report. Medians over repetitions; intervals are 95 % bootstrap \
             intervals."
        }
        script { (PreEscaped(SCRIPT)) }
    };
    document(&title(results), looks, &body)
}

/// Returns the number of parts before the claims.
fn first_screen(parts: &[Part]) -> usize {
    usize::from(parts.first().is_some_and(|part| part.id == "decision"))
}

fn title(results: &Results) -> String {
    let suites = each(results, |file| file.manifest.suite.clone());
    format!("corewise bench: {suites}")
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
    let is_void = match void {
        0 => String::new(),
        _ => format!(", {void} void: hatched below, not to be used"),
    };
    let machine = each(results, |file| {
        let machine = &file.manifest.machine;
        format!("{}, {} CPUs", machine.cpu, machine.cpus)
    });
    html! {
        header #summary {
            h1 { (title(results)) }
            p.sub {
                "Concurrent hash tables. " (each(results, SourceFile::name)) ", "
                (each(results, |file| tables::day(&file.manifest).to_owned())) ", commit "
                (each(results, |file| tables::short_commit(&file.manifest))) "; " (machine) "; "
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
    let is_counted = results.rows().any(|row| !row.row.per_operation.is_empty());
    html! {
        section #verdicts {
            h2 { "Verdicts" }
            p.lead {
                "Rates over the reference's rate in the same repetitions, with 95 % intervals. The \
                 reference again (A/A) shows the noise: only ratios whose interval is beyond it are \
                 coloured. The harness without a table (null) is what measuring alone allows. "
                @if is_counted {
                    "Counters of the processor, for an operation, stand below a rate."
                } @else {
                    "Counters of the processor: n/a."
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

fn ending(results: &Results, extent: Extent) -> Markup {
    html! {
        section #fairness { h2 { "Fairness" } (tables::cards(results)) }
        section #environment { h2 { "Environment" } (tables::environment(results)) }
        section #commands { h2 { "Commands" } (tables::commands(results, extent)) }
    }
}

/// Returns a plot as a standalone file.
pub(crate) fn standalone(results: &Results, looks: &Looks, plot: &Plot) -> String {
    let mut canvas = Canvas::default();
    let heading = wrapped(&plot.title, 57);
    let caption = each(results, |file| {
        let of = &file.manifest;
        let machine = &of.machine;
        format!(
            "commit {}, {}, {}, {} CPUs",
            tables::short_commit(of),
            tables::day(of),
            machine.cpu,
            machine.cpus
        )
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
