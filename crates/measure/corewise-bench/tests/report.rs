//! Tests the text of a report.

use crate::common;

use std::collections::{HashMap, HashSet};

use common::{BROKEN, NASTY, Run, TABLES, VARIANTS, card, cell, set_updates};
use corewise_bench::compare::LEAST_REPETITIONS;
use corewise_bench::params::Params;
use corewise_bench::record::{Record, Role};
use corewise_bench::report;
use corewise_bench::suite::Suite;
use corewise_bench::table::TableInfo;
use corewise_topology::Topology;

const KINDS: [&str; 18] = [
    "decision",
    "scaling",
    "updates",
    "workingset",
    "distribution",
    "resizing",
    "batch",
    "resize-fixed",
    "resize-moving",
    "resize-table",
    "resize",
    "latency",
    "paced",
    "growth",
    "memory",
    "garbage",
    "pinning",
    "sync",
];

/// Fails unless every tag is closed in order; returns the names of all elements.
fn balanced(page: &str) -> Vec<String> {
    const VOID: [&str; 4] = ["meta", "!DOCTYPE", "br", "input"];
    let mut open: Vec<String> = Vec::new();
    let mut seen = Vec::new();
    let mut rest = page;
    while let Some(start) = rest.find('<') {
        let end = start + rest[start..].find('>').expect("a tag ends");
        let tag = &rest[start + 1..end];
        assert!(!tag.contains('<'), "an unescaped < in {tag:?}");
        let name = tag.trim_start_matches('/').split([' ', '/', '\n']).next();
        let name = name.expect("a name").to_owned();
        rest = &rest[end + 1..];
        if tag.starts_with('/') {
            assert_eq!(open.pop().as_deref(), Some(&*name), "closes the innermost");
        } else if !tag.ends_with('/') && !VOID.contains(&&*name) {
            open.push(name.clone());
        }
        if tag.starts_with("script") || tag.starts_with("style") {
            rest = &rest[rest.find("</").expect("scripts and styles end")..];
        }
        seen.push(name);
    }
    assert!(open.is_empty(), "never closed: {open:?}");
    seen
}

#[test]
fn a_full_result_has_every_section_and_plot() {
    let page = report::html(&Run::full().results());
    for kind in KINDS {
        assert!(
            page.contains(&format!(
                "<svg id=\"plot-{kind}-1\" class=\"plot plot-{kind}\" role=\"img\""
            )),
            "{kind}"
        );
    }
    for id in [
        "summary",
        "verdicts",
        "memory",
        "fairness",
        "environment",
        "commands",
    ] {
        assert!(page.contains(&format!("id=\"{id}\"")), "{id}");
    }
    for text in [
        "2026-11-24T09:12:44Z",
        "3f9c2ab1 with changes",
        "Example CPU 9000",
        "open loop at 1.00 M/s",
        "<th scope=\"col\">batch over single</th>",
        "style=\"--h1:&quot;subject&quot;;--h2:&quot;workload&quot;;",
        "<td>1.75 (1.50",
        "<td>groups of 16</td>",
    ] {
        assert!(page.contains(text), "{text}");
    }
    assert!(page.contains("corewise bench replay FILE#CELL#TABLE"));
    assert!(page.contains("again (A/A)") && page.contains("harness (null)"));
    for verdict in ["faster", "slower", "equivalent", "undecided", "void"] {
        assert!(
            page.contains(&format!("<tr class=\"{verdict}")),
            "{verdict}"
        );
    }
}

#[test]
fn the_page_is_well_formed_and_escaped() {
    let page = report::html(&Run::full().results());
    let elements = balanced(&page);
    assert_eq!(
        elements.iter().filter(|name| *name == "script").count(),
        2,
        "ours, opened and closed"
    );
    assert!(!page.contains(NASTY) && !page.contains("<&map>"));
    assert!(page.contains("&lt;script&gt;alert(&quot;a &amp; b&quot;)"));
    assert!(!page.contains("NaN") && !page.contains("inf\""));
    let fetched = ["src=", "@import", "url(http", "<link"];
    assert!(
        fetched.iter().all(|way| !page.contains(way)),
        "nothing is fetched"
    );
    let ids: Vec<_> = page
        .split(" id=\"")
        .skip(1)
        .filter_map(|s| s.split('"').next())
        .collect();
    let different: HashSet<_> = ids.iter().collect();
    assert_eq!(ids.len(), different.len(), "{ids:?}");
}

#[test]
fn a_page_shows_only_what_there_is() {
    let mut run = Run::empty();
    run.row(
        &cell("scaling", "one"),
        "dashmap",
        Role::Reference,
        1e6,
        None,
    );
    run.end();
    let page = report::html(&run.results());
    balanced(&page);
    assert!(page.contains("plot-scaling-1") && !page.contains("plot-updates-1"));
    assert!(!page.contains("id=\"memory\"") && !page.contains("class=\"warn\""));
    let empty = report::html(&Run::empty().results());
    balanced(&empty);
    assert!(empty.contains("there is no end marker"));
}

#[test]
fn a_page_has_what_was_counted_and_names_what_was_not() {
    let mut run = Run::empty();
    let cell = cell("scaling", "one");
    run.row(&cell, "dashmap", Role::Reference, 1e6, None);
    for record in &mut run.records {
        match record {
            Record::Slice(slice) => slice.hardware.processor_ns = Some(2 * slice.elapsed_ns),
            Record::Row(row) => drop(row.per_operation.insert("L1 load misses".into(), 3.25)),
            _ => {}
        }
    }
    run.end();
    let page = report::html(&run.results());
    assert!(page.contains("3.25 L1 load misses") && page.contains("2.00 processors in use"));
    let (_, missing) = page.split_once("Not counted (n/a): ").expect("a sentence");
    let missing: Vec<&str> = missing
        .split_once('.')
        .expect("its end")
        .0
        .split(", ")
        .collect();
    let names = [
        "LLC load misses",
        "MB/s from memory",
        "branch misses",
        "cache misses",
        "cycles",
        "instructions",
        "transaction aborts",
        "transactions",
    ];
    assert_eq!(missing, names);
}

#[test]
fn a_page_names_tables_that_were_not_built_and_decides_claims() {
    let mut run = Run::empty();
    let claim = |says: &str, to: &str, rest: &str| {
        format!(
            "[[claim]]\nfigure='1'\nsays='{says}'\ncell='scaling/'\nof='dashmap'\nto='{to}'\n\
             least=0.1\n{rest}\n"
        )
    };
    if let Record::Manifest(manifest) = &mut run.records[0] {
        let claims = [
            claim("sure", "papaya", ""),
            claim("elided", "papaya", "transactions=true"),
            claim("many", "papaya", "processors=99"),
            claim("other", "absent", ""),
        ];
        let tables = "tables=['dashmap?', 'absent?']";
        let claims = claims.concat();
        manifest.plan = format!(
            "name='x'\nabout='three tables & a paper'\n[[section]]\nkind='scaling'\n{tables}\n{claims}"
        );
    }
    let mut scaling = cell("scaling", "i=1");
    scaling.left_out = vec!["hashbrown".into()];
    run.row(&scaling, "papaya", Role::Reference, 1e6, None);
    run.row(&scaling, "papaya (again)", Role::Again, 1e6, None);
    run.row(&scaling, "dashmap", Role::DynTable, 1e6, None);
    run.end();
    let page = report::html(&run.results());
    assert!(page.contains("<td>absent</td>"));
    assert!(page.contains("<p class=\"lead\">three tables &amp; a paper.</p>"));
    assert!(page.contains("left out</th><td colspan=\"3\">hashbrown</td>"));
    let verdict = |says: &str| {
        let from = page.find(says).expect(says);
        let word = page[from..].split("class=\"word\">").nth(1);
        word.and_then(|word| word.split('<').next())
    };
    for (says, word) in [
        ("sure", "confirmed"),
        ("elided", "needs hardware transactions"),
        ("other", "not measured"),
    ] {
        assert_eq!(verdict(&format!("<td>{says}")), Some(word), "{says}");
    }
    assert!(page.contains(
        "1 claim</th><td colspan=\"3\"><span class=\"word\">needs 99 processors</span><small>1</small>"
    ));
    assert_eq!(
        report::brief(&run.results()).matches(">confirmed<").count(),
        1
    );
}

/// Three workloads: the tables of this project and `tbb` share the first place, then `tbb` has no
/// row, then it is the fastest.
fn contest() -> Run {
    let ours = ["relativistic", "clht-lb", "cuckoo", "hopscotch"];
    let others = ["papaya", "scc", "dashmap", "sharded64"];
    let mut run = Run::empty();
    if let Record::Manifest(manifest) = &mut run.records[0] {
        let of_ours = ours.map(|name| TableInfo {
            version: env!("CARGO_PKG_VERSION").into(),
            ..card(name)
        });
        manifest.cards = of_ours.into();
        manifest.cards.extend(["tbb", "rwlock"].map(card));
    }
    for (section, peer) in [
        ("scaling", Some(3e6)),
        ("updates", None),
        ("distribution", Some(4e6)),
    ] {
        let cell = cell(section, "x");
        run.row(&cell, "rwlock", Role::Reference, 1e6, None);
        run.row(&cell, "rwlock (again)", Role::Again, 1.05e6, None);
        for name in others {
            run.row(&cell, name, Role::DynTable, 2e6, None);
        }
        for name in ours {
            run.row(&cell, name, Role::DynTable, 3e6, None);
        }
        if let Some(rate) = peer {
            run.row(&cell, "tbb", Role::DynTable, rate, None);
        }
    }
    run.end();
    run
}

#[test]
fn a_peer_that_ties_wins_and_lacks_a_section_has_its_place_and_its_colour() {
    let page = report::html(&contest().results());
    let (_, said) = page
        .split_once("alone or within the noise: ")
        .expect("a sentence");
    let (said, rest) = said
        .split_once(". Of the best, in the mean over all 3")
        .expect("means");
    let mut places: Vec<&str> = said.split(", ").collect();
    assert_eq!(places.remove(0), "tbb in 2 of 2");
    places.sort_unstable();
    let ours = ["clht-lb", "cuckoo", "hopscotch", "relativistic"];
    assert_eq!(places, ours.map(|name| format!("{name} in 2 of 3")));
    assert!(rest.contains("for want of a valid row in some: tbb."));
    let (before, _) = page.split_once("</svg>tbb</label>").expect("its box");
    let its_box = &before[before.rfind("<input").expect("a box")..];
    assert!(its_box.contains(" checked>"), "{its_box}");
    assert!(!page.contains("class=\"noverdict\""));
    let (_, legend) = page
        .split_once(">share of the best<")
        .expect("the first chart");
    for name in ours.into_iter().chain(["tbb", "papaya", "sharded64"]) {
        assert!(legend.contains(&format!(">{name}</text>")), "{name}");
    }
}

#[test]
fn a_page_of_few_repetitions_begins_with_the_lack_of_a_verdict() {
    let mut run = contest();
    for record in &mut run.records {
        if let Record::Row(row) = record {
            row.repetitions = LEAST_REPETITIONS - 1;
        }
    }
    let page = report::html(&run.results());
    let first =
        page.find("<p class=\"noverdict\" role=\"note\">No verdict: 4 of 5 repetitions.</p>");
    assert!(first < page.find("id=\"decision\"") && first.is_some());
    for part in [
        "Which table to take",
        "Among the best",
        "class=\"faster",
        "class=\"slower",
    ] {
        assert!(!page.contains(part), "{part}");
    }
    assert!(page.contains("undecided: 4 repetitions"));
}

#[test]
fn a_page_names_a_machine_that_was_busy() {
    let mut run = contest();
    assert!(!report::html(&run.results()).contains("bench doctor"));
    if let Record::Manifest(manifest) = &mut run.records[0] {
        manifest.machine.load_1min = 9.0;
    }
    let page = report::html(&run.results());
    assert!(page.contains("the machine was busy when the run began (a load of 9.0 on 12 CPUs)"));
}

#[test]
fn a_section_of_the_users_own_is_shown_too() {
    let mut run = Run::empty();
    run.row(
        &cell("my <own>", "x"),
        "dashmap",
        Role::Reference,
        1e6,
        None,
    );
    let page = report::html(&run.results());
    balanced(&page);
    assert!(page.contains("plot-rates-1") && page.contains("my &lt;own&gt;"));
}

/// Returns all rates in millions that a plot names.
fn shown_rates(plot: &str) -> impl Iterator<Item = f64> {
    let named = plot.match_indices(" M/s").map(|(at, _)| &plot[..at]);
    named.map(|before| {
        let digits = before.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
        before[digits.len()..].parse().expect("a number")
    })
}

#[test]
fn void_rows_are_marked_and_never_plotted() {
    let mut run = Run::empty();
    for section in [
        "scaling",
        "updates",
        "workingset",
        "distribution",
        "resizing",
        "pinning",
        "sync",
    ] {
        let cell = cell(section, "x");
        run.row(&cell, "good", Role::Reference, 1e6, None);
        run.row(&cell, BROKEN, Role::DynTable, 987e6, Some("loses keys"));
    }
    let results = run.results();
    let page = report::html(&results);
    assert!(page.contains("14 rows, 7 void: hatched below"));
    assert!(page.contains("<tr class=\"void col s"));
    assert!(page.contains("<b>void</b>: loses keys"));
    for (id, _) in report::plots(&results) {
        let plot = report::svg(&results, &id).expect("the plot");
        assert!(plot.contains("class=\"hatched void\""), "{id} marks it");
        assert!(
            shown_rates(&plot).all(|rate| rate < 2.0),
            "{id} must not show its rate"
        );
    }
    assert_eq!(report::plots(&results).len(), 7);
}

/// The section `resize` of some tables with 1, 2 and 4 readers, lookups and a mix.
fn resizes() -> Run {
    let tables = ["dashmap", "relativistic", "chained:ddds", "chained:rwlock"];
    let mut run = Run::empty();
    for (updates, readers) in [0.0, 10.0].iter().flat_map(|&u| [1, 2, 4].map(|n| (u, n))) {
        for variant in VARIANTS {
            let mut cell = cell("resize", &format!("{updates},{readers},{variant}"));
            cell.threads = readers;
            cell.variant = variant.to_owned();
            set_updates(&mut cell, updates);
            for (at, table) in tables.iter().enumerate() {
                let role = if at == 0 {
                    Role::Reference
                } else {
                    Role::DynTable
                };
                let void = (*table == "chained:rwlock" && readers == 4).then_some("loses keys");
                run.row(&cell, table, role, 1e6 * (at + readers) as f64, void);
            }
        }
    }
    run.summarise_resizes();
    run
}

#[test]
fn the_papers_figures_are_drawn_of_the_section_resize() {
    let results = resizes().results();
    let named = |start: &str| {
        let plots = report::plots(&results).into_iter();
        let mut found = plots.filter(|(_, title)| title.starts_with(start));
        let first = found.next().unwrap_or_else(|| panic!("no plot {start}"));
        assert_eq!(found.next(), None, "{start}");
        report::svg(&results, &first.0).expect("the plot")
    };
    let medians = |plot: &str| plot.matches("class=\"median\"").count();
    for prefix in ["Figure ", "As figure "] {
        let with = match prefix {
            "Figure " => "",
            _ => ", with updates",
        };
        let figure = |number: usize, what: &str| named(&format!("{prefix}{number}{with}: {what}"));
        // Four tables with three readers, except the void row; and a mark beside each name.
        let fixed = figure(3, "8Ki buckets, never resized");
        let moving = figure(4, "resized without pause");
        for plot in [&fixed, &moving] {
            assert_eq!(medians(plot), 4 * 3 - 1 + 4);
            assert!(plot.contains(">readers<") && plot.contains("void: loses keys"));
        }
        for (number, table, marks) in [
            (5, "relativistic", 3 * 3 + 3),
            (6, "chained:ddds", 3 * 3 + 3),
            (7, "chained:rwlock", 3 * 2 + 3),
        ] {
            let plot = figure(number, &format!("{table}, at both sizes"));
            assert_eq!(medians(&plot), marks, "{table}");
            for curve in [">8Ki buckets<", ">16Ki buckets<", ">resizing<"] {
                assert!(plot.contains(curve), "{table}: {curve}");
            }
        }
    }
    let page = report::html(&results);
    balanced(&page);
    for text in [
        ">dashmap, at both sizes and resized without pause: ",
        ">16Ki buckets, never resized: ",
        "Not resized all the time: dashmap with 1 reader (81.2 %, less than 90 %); dashmap with 2 readers",
    ] {
        assert!(page.contains(text), "{text}");
    }
}

#[test]
fn a_row_whose_slice_has_a_problem_is_void() {
    let mut run = Run::empty();
    run.row(&cell("scaling", "x"), "good", Role::Reference, 1e6, None);
    for record in &mut run.records {
        if let Record::Slice(slice) = record {
            slice.checks.problems = vec!["a key was lost".into()];
        }
    }
    let page = report::html(&run.results());
    assert!(page.contains("<b>void</b>: a key was lost") && page.contains("1 void"));
}

#[test]
fn a_table_has_one_colour_in_all_plots() {
    let results = Run::full().results();
    let mut colours: HashMap<&str, String> = HashMap::new();
    for (id, _) in report::plots(&results) {
        let plot = report::svg(&results, &id).expect("the plot");
        for (name, ..) in TABLES {
            let named = format!(">{name}</text>");
            for (before, _) in plot.match_indices(&named) {
                let group = plot[..before].rfind("<g class=\"").expect("a group") + 10;
                let class = plot[group..].split('"').next().expect("a class");
                let colour = class.split(' ').find(|class| class.starts_with('c'));
                let Some(colour) = colour.filter(|_| class.starts_with("series")) else {
                    continue;
                };
                let known = colours.entry(name).or_insert_with(|| colour.to_owned());
                assert_eq!(known, colour, "{id}: {name}");
            }
        }
    }
    let different: HashSet<&String> = colours.values().collect();
    // The name of the broken table is escaped in a page.
    assert_eq!((colours.len(), different.len()), (8, 8), "{colours:?}");
}

#[test]
fn six_tables_are_chosen_at_first_and_boxes_choose_others_without_a_script() {
    let page = report::html(&Run::full().results());
    let count = |part: &str| page.matches(part).count();
    let boxes = count("<input type=\"checkbox\"");
    // Four locks beside the tables; they are chosen among themselves.
    let tables = TABLES.len();
    assert_eq!((boxes, count(" checked>")), (tables + 4, 6));
    for at in 0..boxes {
        assert!(page.contains(&format!("body:has(#t{at}:not(:checked)) .s{at}")));
        assert!(page.contains(&format!("id=\"t{at}\"")));
    }
}

#[test]
fn the_page_begins_with_the_decision_and_a_short_commit_and_day() {
    let page = report::html(&Run::full().results());
    let place = |part: &str| page.find(part).unwrap_or_else(|| panic!("{part}"));
    assert!(page.contains("<title>corewise bench: paper</title>"));
    assert!(place("2026-11-24, commit 3f9c2ab1 with changes") < place("id=\"decision\""));
    assert!(place("id=\"decision\"") < place("id=\"scaling\""));
    assert!(place("id=\"decision\"") < place("id=\"verdicts\""));
}

#[test]
fn every_plot_stands_alone() {
    let results = Run::full().results();
    let plots = report::plots(&results);
    assert!(plots.len() >= KINDS.len());
    for (id, _) in plots {
        let plot = report::svg(&results, &id).expect("the plot");
        balanced(&plot);
        for part in [
            "xmlns=",
            "<style>",
            "prefers-color-scheme",
            "commit 3f9c2ab1",
            "2026-11-24",
            "Example CPU",
        ] {
            assert!(plot.contains(part), "{id}: {part}");
        }
    }
    assert_eq!(
        report::svg(&results, "scaling"),
        report::svg(&results, "plot-scaling-1")
    );
    assert_ne!(
        report::svg(&results, "scaling-2"),
        report::svg(&results, "scaling-1")
    );
    assert_eq!(report::svg(&results, "nothing"), None);
    assert_eq!(report::svg(&results, "scaling-99"), None);
}

/// Every cell of the suite of all tables, on two CPUs with all tables in the build.
fn choosing() -> Run {
    let suite = Suite::find("choosing").expect("it is shipped");
    let tasks = suite.tasks(&Params::default(), &Topology::flat(2), false);
    let own = suite.defaults.tables.expect("it names its tables");
    let own = own.iter().map(|name| name.trim_end_matches('?'));
    let tables: Vec<&str> = ["dashmap", "dashmap"]
        .into_iter()
        .chain(own)
        .chain(["null", "peer-null"])
        .collect();
    Run::of_tasks(&tasks.expect("valid"), &tables)
}

#[test]
fn the_brief_page_of_the_suite_of_all_tables_can_be_committed() {
    let results = choosing().results();
    let page = report::brief(&results);
    balanced(&page);
    assert!(page.len() < 1 << 20, "{} bytes", page.len());
    for (id, _) in report::plots(&results) {
        assert!(page.contains(&format!("<svg id=\"{id}\"")), "{id}");
    }
}

#[test]
fn a_brief_page_has_all_medians_and_verdicts_and_marks_what_is_void() {
    let results = Run::full().results();
    let (full, brief) = (report::html(&results), report::brief(&results));
    balanced(&brief);
    let count = |page: &str, part: &str| page.matches(part).count();
    for part in [
        "class=\"median\"",
        "<tr class=\"void",
        "hatched void",
        "×</b>",
    ] {
        assert!(count(&full, part) > 0, "{part}");
        assert_eq!(count(&brief, part), count(&full, part), "{part}");
    }
    assert!(count(&full, "class=\"dot\"") > 0);
    assert_eq!(count(&brief, "class=\"dot\""), 0);
    assert!(brief.contains("FILE#CELL#TABLE"));
    assert!(
        !brief.contains(NASTY) && brief.len() < full.len() / 2,
        "{} {}",
        brief.len(),
        full.len()
    );
}
