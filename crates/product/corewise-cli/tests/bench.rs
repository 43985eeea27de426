//! `corewise bench` from outside: its errors for bad input, a run of every section, its page in a
//! browser, a comparison and a replay.
#![cfg(feature = "bench")]

use std::path::Path;
use std::process::{Command, Output, Stdio};

const PROGRAM: &str = env!("CARGO_BIN_EXE_corewise");

fn bench(arguments: &[&str]) -> Output {
    let mut command = Command::new(PROGRAM);
    let command = command.arg("bench").args(arguments);
    command.output().expect("the program starts")
}

/// The words of a line, and further arguments.
fn words<'a>(line: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    line.split_whitespace()
        .chain(more.iter().copied())
        .collect()
}

/// Standard error of a call that must fail with this status.
fn complaint(arguments: &[&str], status: i32) -> String {
    let output = bench(arguments);
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(status), "{arguments:?}: {text}");
    text
}

fn succeed(arguments: &[&str]) -> String {
    let output = bench(arguments);
    let error = String::from_utf8_lossy(&output.stderr);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{arguments:?}: {error}\n{said}");
    said
}

/// Arguments that `bench` refuses, and a word of its error message.
const REFUSED: &[(&str, &str)] = &[
    ("run --suite slow", "slow"),
    ("run --suite missing.toml", "missing.toml"),
    ("run --section speed", "speed"),
    ("run --tables btree", "btree"),
    ("run --reference btree", "btree"),
    ("run -n 300", "300 threads"),
    ("run -n 9999 --oversubscribe", "9999"),
    ("run -u 101", "updates"),
    ("run --distribution normal", "normal"),
    ("run --section resize --buckets 16384-8192", "buckets"),
    ("run --buckets many", "buckets"),
    ("run -n 99s", "no cell"),
    ("run --section paced --loads NaN", "loads"),
    ("run --section paced --rates=-1", "rates"),
    ("run --section filter -i 8", "initial: 8"),
    ("run --section filter --load 110", "110"),
    (
        "run --section cache -i 10 --range 1000",
        "all keys are stored",
    ),
    (
        "run --section hot --distribution zipf:0.99",
        "single, uniform",
    ),
    (
        "run --section hot -i 1 -n 2 --oversubscribe",
        "a key for each thread",
    ),
    ("replay nothing", "FILE#CELL"),
    ("resize --buckets 16384-8192", "buckets"),
    ("resize --tables btree", "btree"),
    ("resize -n 300", "300 threads"),
    ("resize --quick --repetitions 3", "--quick"),
    ("resize -u 10 --distribution single", "uniform"),
    ("resize --rates 5", "--rates"),
    ("resize -o a.html --report a.html", "results go"),
    ("server", "--figure"),
    ("server --figure atc11-9", "atc11-9"),
    ("server --figure atc11-8 --engine btree", "btree"),
    ("server --figure atc11-8 --clients 4-2", "4-2"),
];

/// Expects one line that contains the word, and status 2.
fn refused(arguments: &[&str], word: &str) {
    let text = complaint(arguments, 2);
    assert!(text.contains(word), "{arguments:?}: {text}");
    assert_eq!(text.trim_end().lines().count(), 1, "{arguments:?}: {text}");
}

#[test]
fn bad_input_is_one_clear_line_and_status_2() {
    for (line, word) in REFUSED {
        refused(&words(line, &[]), word);
    }
    if !succeed(&["list"]).contains("oneTBB") {
        let folder = tempfile::tempdir().expect("a folder");
        let results = folder.path().join("t.jsonl").display().to_string();
        let text = complaint(&["run", "--tables", "tbb", "-o", &results], 2);
        assert!(
            text.contains("feature `peers`") || text.contains("not found"),
            "{text}"
        );
    }
}

#[test]
fn bad_files_are_one_clear_line_and_status_2() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).display().to_string();
    let bad = path("bad.toml");
    std::fs::write(
        &bad,
        "name = 'x'\n[[section]]\nkind = 'scaling'\nthreds = [1]\n",
    )
    .expect("written");
    let taken = path("taken.jsonl");
    std::fs::write(&taken, "").expect("written");
    let missing = path("none/page.html");
    let cases: [(&[&str], &str); 7] = [
        (&["run", "--suite", &bad], "threds"),
        (&["run", "-o", &taken], "exists"),
        (&["report", &taken], "taken.jsonl"),
        (&["compare", &taken, &taken], "taken.jsonl"),
        (&["resize", "-o", &taken], "exists"),
        (&["resize", "--report", &taken], "exists"),
        (&["resize", "--report", &missing], "No such file"),
    ];
    for (arguments, word) in cases {
        refused(arguments, word);
    }
    let server = "server --figure atc11-8 --engine locked -o";
    refused(&words(server, &[&taken]), "exists");
}

/// Every section, as small as possible.
const SUITE: &str = "
    name = 'all'
    [defaults]
    repetitions = 2
    duration-ms = 10
    slices = 2
    warm-ms = 1
    initial = [3000]
    reference = 'rwlock'
    tables = ['papaya', 'dashmap', 'scc']
    pin = ['default']
    [[section]]
    kind = 'scaling'
    initial = [1000, 3000]
    threads = ['1..cpus']
    [[section]]
    kind = 'distribution'
    distribution = ['uniform', 'zipf:0.99', 'hotspot', 'single', 'sequential']
    [[section]]
    kind = 'resizing'
    [[section]]
    kind = 'updates'
    updates = [0.0, 50.0, 100.0]
    [[section]]
    kind = 'workingset'
    initial = [100, 1000, 10000, 30000]
    [[section]]
    kind = 'latency'
    duration-ms = 40
    [[section]]
    kind = 'pinning'
    pin = ['default', 'compact', 'balanced']
    [[section]]
    kind = 'sync'
    reference = 'lock:std-mutex'
    tables = ['lock:mcs', 'lock:elided-ttas']
    [[section]]
    kind = 'growth'
    initial = [100000]
    [[section]]
    kind = 'tails'
    initial = [100000]
    [[section]]
    kind = 'hot'
    initial = [1000]
    threads = ['1..cpus']
    [[section]]
    kind = 'resize'
    reference = 'relativistic'
    initial = [65536]
    slices = 5
    repetitions = 3
    threads = [1]
    [[section]]
    kind = 'paced'
    rates = [200000.0]
    duration-ms = 40
    [[section]]
    kind = 'memory'
    initial = [1000, 100000]
";

/// The plots of its page.
const PLOTS: [&str; 16] = [
    "scaling-1",
    "scaling-2",
    "updates-1",
    "workingset-1",
    "distribution-1",
    "resizing-1",
    "tails-1",
    "hot-1",
    "resize-1",
    "pinning-1",
    "sync-1",
    "latency-1",
    "paced-1",
    "growth-1",
    "memory-1",
    "garbage-1",
];

#[test]
fn a_run_is_verified_drawn_compared_and_replayed() {
    let folder = tempfile::tempdir().expect("a folder");
    let results = folder.path().join("all.jsonl").display().to_string();
    run_and_verify(folder.path(), &results);
    draw_the_page(folder.path(), &results);
    draw_one_picture(folder.path(), &results);
    let compared = succeed(&["compare", &results, &results]);
    assert!(
        compared.contains("papaya") && !compared.contains(" slower"),
        "{compared}"
    );
    replay_rows(folder.path(), &results);
}

fn run_and_verify(folder: &Path, results: &str) {
    let suite = folder.join("all.toml").display().to_string();
    std::fs::write(&suite, SUITE).expect("written");
    let files = ["--suite", &suite, "-o", results];
    let said = succeed(&words("run --allocator system", &files));
    assert!(
        said.contains(", 0 void,") && said.contains("allocator system"),
        "{said}"
    );
    for word in [
        "cannot resize on request: papaya, scc",
        ", in progress ",
        "(15 pairs)",
        "  pair ",
        "thread writer, operations ",
        "thread reader, operations ",
        "over 100 µs ",
        "hot/i=1000,single,n=1",
    ] {
        assert!(said.contains(word), "{word}: {said}");
    }
    let written = std::fs::read_to_string(results).expect("results");
    assert!(
        written
            .lines()
            .next()
            .is_some_and(|line| line.contains("\"manifest\""))
    );
    assert!(
        written
            .lines()
            .last()
            .is_some_and(|line| line.contains("\"type\":\"end\""))
    );
}

fn draw_the_page(folder: &Path, results: &str) {
    let page = folder.join("all.html").display().to_string();
    succeed(&["report", results, "-o", &page]);
    let html = std::fs::read_to_string(&page).expect("a page");
    for kind in PLOTS {
        assert!(
            html.contains(&format!("id=\"plot-{kind}\"")),
            "no plot {kind}"
        );
    }
    assert!(
        !html.contains("http://")
            || html.matches("http://").count()
                == html.matches("http://www.w3.org/2000/svg").count()
    );
    look_at_it(folder, &html, (PLOTS.len(), 21));
}

fn draw_one_picture(folder: &Path, results: &str) {
    let picture = folder.join("one.svg").display().to_string();
    succeed(&["report", results, "--svg", "plot-scaling-1", "-o", &picture]);
    assert!(
        std::fs::read_to_string(&picture)
            .expect("a picture")
            .contains("commit")
    );
    assert!(
        complaint(&["report", results, "--svg", "plot-x-9", "-o", &picture], 2)
            .contains("plot-x-9")
    );
}

fn replay_rows(folder: &Path, results: &str) {
    let path = |name: &str| folder.join(name).display().to_string();
    for cell in ["8192", "8192-16384"] {
        let row = format!("{results}#resize/i=65536,n=1,b={cell}#dashmap");
        let said = succeed(&["replay", &row, "-o", &path(&format!("resize-{cell}.jsonl"))]);
        assert!(said.contains("dashmap"), "{said}");
    }

    let again = path("again.jsonl");
    let row = format!(
        "{results}#updates/i=3000,u=50,uniform,n={},default#papaya",
        cpus()
    );
    let said = succeed(&["replay", &row, "-o", &again]);
    assert!(
        said.contains("papaya") && !said.contains("dashmap"),
        "{said}"
    );
}

#[test]
fn the_papers_resize_benchmark_is_measured_and_drawn() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).display().to_string();
    let (results, page) = (path("resize.jsonl"), path("resize.html"));
    let tiny = "resize -n 1 --repetitions 3 -d 50 --warm-ms 1 --buckets 512-1024 -i 4096 --tables \
                relativistic,chained:atc11,chained:rwlock,dashmap,papaya";
    let files = ["-o", &results, "--report", &page];
    let arguments = words(tiny, &files);
    let said = succeed(&arguments);
    // Lookups and the mix, three cells each; DDDS twice and four more.
    for word in [
        "36 rows, 0 void,",
        "cannot resize on request: papaya",
        "resize/i=4096,n=1,b=512-1024 ",
        "resize/i=4096,r=4312,u=10(9+1),uniform,n=1,b=512-1024 ",
        "in progress",
        "(15 pairs)",
        &page,
    ] {
        assert!(said.contains(word), "{word}: {said}");
    }
    let written = std::fs::read_to_string(&results).expect("results");
    let records = written
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).expect("a record"));
    let mut resized = 0;
    for row in records.filter(|record| record["type"] == "row") {
        assert_eq!(row["problems"], serde_json::json!([]), "{row}");
        if row["cell"]["variant"] == "resizing between 512 and 1024 buckets" {
            let of = &row["resize"];
            assert_eq!(of["buckets"], serde_json::json!([512, 1024]), "{row}");
            assert_eq!(of["pairs"], 15, "{row}");
            assert!(of["resizes_per_s"]["value"].as_f64() > Some(0.0), "{row}");
            resized += 1;
        }
    }
    assert_eq!(resized, 12);
    let html = std::fs::read_to_string(&page).expect("a page");
    for (number, what) in [
        (3, "512 buckets, never resized"),
        (4, "resized without pause"),
        (5, "relativistic, at both sizes"),
        (5, "chained:atc11, at both sizes"),
        (6, "chained:ddds, at both sizes"),
        (7, "chained:rwlock, at both sizes"),
    ] {
        for start in [
            format!("<b>Figure {number}: {what}"),
            format!("<b>As figure {number}, with updates: {what}"),
        ] {
            assert!(html.contains(&start), "{start}");
        }
    }
    // For each mix: two sizes at rest, one while resizing, five tables, and the dots.
    look_at_it(folder.path(), &html, (18, 6));
    let again = complaint(&arguments, 2);
    assert!(again.contains("--replace"), "{again}");
}

#[test]
fn byte_strings_and_native_hashes_are_verified_too() {
    let folder = tempfile::tempdir().expect("a folder");
    let results = folder.path().join("r.jsonl").display().to_string();
    let kind = "run --kind bytes --key-bytes 16-250 --value-bytes 8,100,4096 --hash native -i 500";
    let short = "-d 10 --slices 1 -n 1 --repetitions 1 -u 50 --pin default -o";
    let said = succeed(&words(kind, &words(short, &[&results])));
    assert!(
        said.contains(", 0 void,") && said.contains("v=4096"),
        "{said}"
    );
}

/// A run of a moment, on one thread.
const SHORT: &str = "run -d 5 --slices 1 -n 1 --repetitions 1 -o";

#[test]
fn overwriting_or_losing_results_is_reported() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).display().to_string();
    let (results, page) = (path("r.jsonl"), path("r.html"));
    let tables = "mutex,mutex,cphash:lockhash";
    let said = succeed(&words(SHORT, &[&results, "-i", "500", "--tables", tables]));
    // One row of a table that is named twice; a table that the section cannot measure is named.
    assert_eq!(said.matches("\n  mutex ").count(), 1, "{said}");
    assert!(said.contains("left out: cphash:lockhash"), "{said}");
    let written = std::fs::read(&results).expect("results");
    assert!(complaint(&["report", &results, "-o", &results], 2).contains("--replace"));
    assert_eq!(std::fs::read(&results).expect("results"), written);
    succeed(&["report", &results, "-o", &page]);
    assert!(complaint(&["report", &results, "-o", &page], 2).contains("--replace"));
    succeed(&["report", &results, "-o", &page, "--replace"]);
    // Without its end, the file is not whole.
    let text = String::from_utf8(written).expect("text");
    let (all_but_end, _) = text.trim_end().rsplit_once('\n').expect("lines");
    std::fs::write(&results, all_but_end.to_owned() + "\n").expect("written");
    let noted = String::from_utf8(bench(&["show", &results]).stderr).expect("text");
    assert!(noted.contains("no end marker"), "{noted}");
    let full = std::fs::File::options().write(true).open("/dev/full");
    let mut show = Command::new(PROGRAM);
    let show = show.args(["bench", "show", &results]);
    let lost = show.stdout(full.expect("Linux has it")).output();
    let lost = lost.expect("the program starts");
    assert_eq!(lost.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&lost.stderr).contains("standard output"));
}

#[test]
fn an_interrupted_run_names_what_it_keeps() {
    let folder = tempfile::tempdir().expect("a folder");
    let results = folder.path().join("r.jsonl").display().to_string();
    // Long enough to be interrupted after its first cell.
    let updates: Vec<String> = (0..=100).map(|percent| percent.to_string()).collect();
    let line = "bench run --section updates -n 1 -i 1000 --tables mutex --reference mutex \
                --repetitions 1 --duration-ms 500";
    let mut run = Command::new(PROGRAM)
        .args(words(line, &["-u", &updates.join(","), "-o", &results]))
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    let has_row = || {
        let text = std::fs::read_to_string(&results).unwrap_or_default();
        text.contains("\"type\":\"row\"")
    };
    while !has_row() {
        assert_eq!(run.try_wait().expect("a child"), None, "it ended");
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    let kill = Command::new("kill")
        .args(["-INT", &run.id().to_string()])
        .status();
    assert!(kill.expect("it starts").success());
    let output = run.wait_with_output().expect("its end");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(130), "{said}");
    let report = format!("rows of finished cells: corewise bench report {results}");
    assert!(said.contains(&report), "{said}");
    let shown = succeed(&["show", &results, "--figure", "rate"]);
    assert!(shown.contains("updates/i=1000,u=0,"), "{shown}");
}

#[test]
fn small_caches_are_no_smaller_than_they_are_asked_for() {
    let folder = tempfile::tempdir().expect("a folder");
    let results = folder.path().join("r.jsonl").display().to_string();
    for entries in ["100", "3000", "20000"] {
        let tables = "cphash:lockhash,cphash:lockhash-random,cphash:lockhash-batch";
        let cache = words("--section cache --load 200 --batch 8 --tables", &[tables]);
        let results = [&results, "--replace", "-i", entries];
        let said = succeed(&words(SHORT, &[&results[..], &cache].concat()));
        assert!(said.contains(", 0 void,"), "{said}");
    }
}

#[test]
fn edited_numbers_are_no_reason_to_panic() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).display().to_string();
    let (results, edited) = (path("r.jsonl"), path("e.jsonl"));
    let section = words("--section latency -i 500 --tables mutex", &[]);
    succeed(&words(SHORT, &[&[&*results][..], &section].concat()));
    let text = std::fs::read_to_string(&results).expect("results");
    for field in [
        "initial",
        "elapsed_ns",
        "processor_ns",
        "count",
        "operations",
    ] {
        let start = format!("\"{field}\":");
        let with_most = |line: &str| match line.split_once(&start) {
            Some((before, after)) if after.starts_with(|first: char| first.is_ascii_digit()) => {
                let rest = after.trim_start_matches(|digit: char| digit.is_ascii_digit());
                format!("{before}{start}{}{rest}\n", u64::MAX)
            }
            _ => format!("{line}\n"),
        };
        let all: String = text.lines().map(with_most).collect();
        assert_ne!(all, text, "{field}");
        std::fs::write(&edited, all).expect("written");
        for command in [
            &["show", &edited][..],
            &["report", &edited, "-o", &path("p.html"), "--replace"],
            &["compare", &results, &edited],
        ] {
            let status = bench(command).status.code();
            assert!(
                matches!(status, Some(0 | 2)),
                "{field}: {command:?}: {status:?}"
            );
        }
    }
}

#[test]
fn list_and_doctor_answer_in_both_formats() {
    let text = succeed(&["list"]);
    for word in [
        "papaya",
        "scaling",
        "quick",
        "zipf",
        "CPUs",
        "resizes on request",
    ] {
        assert!(text.contains(word), "{word}");
    }
    for command in ["list", "doctor"] {
        let json = succeed(&[command, "--format", "json"]);
        assert!(
            serde_json::from_str::<serde_json::Value>(&json).is_ok(),
            "{command}: {json}"
        );
    }
    assert!(succeed(&["doctor"]).lines().count() > 5);
}

fn cpus() -> usize {
    std::thread::available_parallelism().map_or(1, |n| n.get())
}

/// Runs in the page and records errors, and for each plot its size, its marks, and the elements
/// with numbers that are NaN or infinite.
const PROBE: &str = r#"<script>
window.addEventListener('load', () => {
  const plots = [...document.querySelectorAll('svg.plot')].map(svg => {
    const box = svg.getBBox();
    return { id: svg.id, width: box.width, height: box.height,
             marks: svg.querySelectorAll('circle,rect,path').length,
             broken: [...svg.querySelectorAll('*')].filter(e => [...e.attributes].some(a => /NaN|inf/.test(a.value))).length };
  });
  const rows = document.querySelectorAll('details.verdicts tr.cell').length;
  const probe = document.createElement('pre');
  probe.id = 'probe';
  probe.textContent = JSON.stringify({ errors: window.errors, plots, rows });
  document.body.append(probe);
});
</script></body>"#;

/// Opens the page in a browser and checks its elements: at least `plots` plots and `rows` rows of
/// verdicts.
fn look_at_it(folder: &Path, html: &str, (plots, rows): (usize, u64)) {
    let Some(browser) = browser() else {
        assert!(
            std::env::var_os("COREWISE_NO_SKIP").is_none(),
            "no chromium"
        );
        println!("SKIPPED: the page was not opened, there is no chromium");
        return;
    };
    let listening = "<head>\n<script>window.errors=[];window.addEventListener('error',e=>errors.push(e.message));\
                     for(const k of ['error','warn']){console[k]=(...a)=>errors.push(a.join(' '))}</script>";
    let probed = html
        .replacen("<head>", listening, 1)
        .replacen("</body>", PROBE, 1);
    let page = folder.join("probed.html");
    std::fs::write(&page, probed).expect("written");
    let output = Command::new(browser)
        .args([
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--enable-logging=stderr",
            "--virtual-time-budget=10000",
            "--dump-dom",
        ])
        .arg(format!(
            "--user-data-dir={}",
            folder.join("browser").display()
        ))
        .arg(format!("file://{}", page.display()))
        .output()
        .expect("the browser starts");
    let log = String::from_utf8_lossy(&output.stderr);
    assert!(!log.contains("CONSOLE"), "{log}");
    let dom = String::from_utf8_lossy(&output.stdout);
    let probe = dom
        .split_once("<pre id=\"probe\">")
        .and_then(|(_, rest)| rest.split_once("</pre>"));
    let (probe, _) = probe.unwrap_or_else(|| panic!("the page did not load: {log}"));
    let found: serde_json::Value = serde_json::from_str(probe).expect("what the probe found");
    assert_eq!(found["errors"], serde_json::json!([]));
    assert!(found["rows"].as_u64() >= Some(rows), "{}", found["rows"]);
    let drawn = found["plots"].as_array().expect("plots");
    assert!(drawn.len() >= plots, "{} of {plots}", drawn.len());
    for plot in drawn {
        let number = |name: &str| plot[name].as_f64().unwrap_or(0.0);
        assert!(number("width") > 300.0 && number("height") > 50.0, "{plot}");
        assert!(number("marks") >= 4.0 && number("broken") == 0.0, "{plot}");
    }
}

fn browser() -> Option<&'static str> {
    let names = ["chromium", "chromium-browser", "google-chrome"];
    names.into_iter().find(|name| {
        Command::new(name)
            .arg("--version")
            .output()
            .is_ok_and(|output| output.status.success())
    })
}

/// The smallest run of a figure's experiment.
const TINY: &str = "server --figure atc11-8 --quick --warmup 0.2 --sample 0.3 --keys 1000";

#[test]
fn the_papers_server_experiment_is_measured_and_drawn() {
    let folder = tempfile::tempdir().expect("a folder");
    let page = folder.path().join("figure.html").display().to_string();
    let chosen = "--operation get --clients 1-2 --engine memcached --engine global-lock -o";
    let said = succeed(&words(TINY, &words(chosen, &[&page])));
    let has_memcached = Command::new("memcached").arg("-V").output().is_ok();
    for word in ["commit ", "4 connections a client,", "3 samples of 0.3 s"] {
        assert!(said.contains(word), "{word}: {said}");
    }
    for clients in [1, 2] {
        let point = format!("GET, clients: {clients}\n");
        let (_, rows) = said.split_once(&point).expect(&said);
        let row = |engine: &str| {
            let line = rows.lines().find(|line| line.trim().starts_with(engine));
            let line = line.unwrap_or_else(|| panic!("{engine}: {said}"));
            line.split_whitespace()
                .map(str::to_owned)
                .collect::<Vec<_>>()
        };
        // Two rates with their units, two times, the share with its sign, hits, memory.
        let ours = row("global-lock");
        assert_eq!(ours.len(), 11, "{ours:?}");
        assert_eq!((&*ours[8], &*ours[9]), ("%", "1.0000"), "{ours:?}");
        assert!(ours[10].parse::<f64>().is_ok_and(|ratio| ratio > 0.0));
        if has_memcached {
            let theirs = row("memcached");
            assert_eq!((&*theirs[7], &*theirs[8]), ("-", "1.0000"), "{theirs:?}");
        }
    }
    assert!(said.contains(&format!("0 void; drawn in {page}")), "{said}");
    let html = std::fs::read_to_string(&page).expect("a page");
    assert!(html.contains("id=\"plot-server-1\"") && html.contains("global-lock"));
}

#[test]
fn the_rows_of_the_servers_are_printed_for_programs_too() {
    let folder = tempfile::tempdir().expect("a folder");
    let page = folder.path().join("figure.html").display().to_string();
    let chosen = "--clients 2 --engine relativistic --format json -o";
    let said = succeed(&words(TINY, &words(chosen, &[&page])));
    let lines = said
        .lines()
        .map(|line| serde_json::from_str(line).expect(line));
    let lines: Vec<serde_json::Value> = lines.collect();
    assert_eq!(lines.len(), 3, "{said}");
    assert_eq!(lines[0]["type"], "manifest");
    for (row, operation) in lines[1..].iter().zip(["get", "set"]) {
        assert_eq!(row["type"], "server");
        assert_eq!(row["operation"], operation);
        assert_eq!(
            (&row["engine"], &row["clients"]),
            (&"relativistic".into(), &2.into())
        );
        let samples = row["samples_per_s"].as_array().expect("samples");
        assert_eq!(samples.len(), 3);
        assert!(
            samples.iter().all(|rate| rate.as_f64() > Some(0.0)),
            "{row}"
        );
        let number = |name: &str| {
            row[name]
                .as_f64()
                .unwrap_or_else(|| panic!("{name}: {row}"))
        };
        assert!(number("user_ns_per_request") + number("kernel_ns_per_request") > 0.0);
        assert!(number("lock_wait_share") >= 0.0 && number("resident_over_limit") > 0.0);
        assert_eq!(
            row["hit_ratio"].as_f64(),
            (operation == "get").then_some(1.0)
        );
        assert_eq!(row["problems"], serde_json::json!([]));
    }
}

#[test]
fn the_highest_rate_is_one_that_held() {
    // Every reply of this load comes within a minute, and none within a nanosecond.
    for (bound, holds) in [("60000", true), ("0.000001", false)] {
        let search = format!(
            "server --saturate {bound} --engine redis,locked --operation get --clients 1 --threads 1 \
             --warmup 0.1 --sample 0.1 --samples 1 --keys 100 --format json"
        );
        let output = bench(&words(&search, &[]));
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{said}");
        let lines = said
            .lines()
            .map(|line| serde_json::from_str(line).expect(line));
        let lines: Vec<serde_json::Value> = lines.collect();
        assert_eq!(lines[0]["type"], "manifest");
        let rows: Vec<_> = lines[1..]
            .iter()
            .map(|row| row["engine"].as_str())
            .collect();
        assert!(rows.contains(&Some("locked")), "{said}");
        for row in &lines[1..] {
            let number = |of: &serde_json::Value, name: &str| of[name].as_f64().expect(name);
            assert!(number(row, "closed_per_s") > 0.0, "{row}");
            let offered = row["offered"].as_array().expect("rates");
            let held = offered.iter().filter(|of| of["holds"] == true);
            let highest = held.map(|of| number(of, "rate_per_s")).fold(0.0, f64::max);
            assert_eq!(number(row, "rate_per_s"), highest, "{row}");
            for of in offered {
                let is_within = number(of, "p999_ms") <= number(row, "p999_ms_bound");
                assert_eq!(of["holds"], is_within && of["unsent"] == 0, "{row}");
            }
            assert!(holds || highest == 0.0, "{row}");
        }
    }
}

#[test]
fn a_wrong_reply_voids_the_row_of_a_server() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).display().to_string();
    // It refuses the values of this row.
    let program = path("refusing");
    let script = format!("#!/bin/sh\nexec '{PROGRAM}' \"$@\" --max-item-size 1k\n");
    std::fs::write(&program, script).expect("written");
    let runs = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(&program, runs).expect("set");
    let page = path("figure.html");
    let chosen = "--operation set --clients 1 --engine locked --value-size 3000";
    let files = ["-o", &page, "--program", &program];
    let output = bench(&words(TINY, &words(chosen, &files)));
    let said = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert!(said.contains("wrong reply: "), "{said}");
    assert!(said.contains("1 rows, 1 void"), "{said}");
}

#[test]
fn a_memcached_that_is_missing_is_skipped_unless_nothing_may_be() {
    let folder = tempfile::tempdir().expect("a folder");
    let page = folder.path().join("figure.html");
    let run = |no_skip: &str| {
        let chosen = words("--engine memcached,locked --clients 1 --operation get", &[]);
        let output = Command::new(PROGRAM)
            .arg("bench")
            .args(words(TINY, &chosen))
            .arg("-o")
            .arg(&page)
            .env("PATH", "")
            .env("COREWISE_NO_SKIP", no_skip)
            .output()
            .expect("the program starts");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(said.contains("SKIPPED: memcached"), "{said}");
        (output.status.code(), page.exists())
    };
    assert_eq!(run("1"), (Some(1), false));
    assert_eq!(run("0"), (Some(0), true));
}
