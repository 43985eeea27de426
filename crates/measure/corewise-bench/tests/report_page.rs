//! Tests the page in a browser: every plot is present, with marks at finite positions, and fits.

use crate::common;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use common::Run;
use corewise_bench::report;
use serde_json::Value;

/// A script that writes the facts about every plot, and every error, into the page.
const PROBE: &str = r#"<script>
const seen = [...document.querySelectorAll('svg.plot')].map(svg => {
  const outer = svg.getBoundingClientRect(), view = svg.viewBox.baseVal;
  const marks = [...svg.querySelectorAll('path,rect,circle')];
  const numbers = e => [...e.attributes].filter(a => ['d', 'x', 'y', 'cx', 'cy', 'r', 'width', 'height'].includes(a.name))
    .flatMap(a => (a.value.match(/[-+a-zA-Z0-9.]+/g) || []).join(' ').replace(/[MLHVZ]/g, ' ').trim().split(/\s+/));
  const bad = marks.filter(e => numbers(e).some(n => n !== '' && !Number.isFinite(Number(n)))).length;
  const texts = [...svg.querySelectorAll('text')].map(e => [e, e.getBoundingClientRect()]);
  const scale = outer.width / view.width;
  const out = texts.filter(([, b]) => b.left < outer.left - 1 || b.right > outer.right + 1 ||
    b.top < outer.top - 1 || b.bottom > outer.bottom + 1).map(([e]) => e.textContent);
  const over = [];
  for (let i = 0; i < texts.length; i++) for (let j = i + 1; j < texts.length; j++) {
    const [a, b] = [texts[i][1], texts[j][1]];
    const x = Math.min(a.right, b.right) - Math.max(a.left, b.left);
    const y = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
    if (x > 2 * scale && y > 4 * scale) over.push(texts[i][0].textContent + ' | ' + texts[j][0].textContent);
  }
  const box = svg.getBBox();
  return { id: svg.id, marks: marks.length, bad, width: box.width, height: box.height,
    shown: [outer.width, outer.height], title: svg.querySelector('title').textContent, out, over };
});
const chip = document.querySelector('.chip');
chip.dispatchEvent(new PointerEvent('pointerenter'));
const dimmed = document.querySelectorAll('.plot .dim').length;
chip.dispatchEvent(new PointerEvent('pointerleave'));
const property = (e, name) => getComputedStyle(e).getPropertyValue(name).trim();
const rest = property(document.documentElement, '--rest');
const greyed = () => [...document.querySelectorAll('.plot .series')].filter(e => property(e, '--c') === rest).length;
const grey = [greyed()];
const box = chip.querySelector('input');
box.click();
grey.push(greyed());
document.querySelector('.plot .s' + box.id.slice(1) + ' .median').dispatchEvent(new MouseEvent('click', { bubbles: true }));
grey.push(greyed());
document.querySelector('#all').click();
grey.push(greyed());
document.querySelector('.pick [type=reset]').click();
grey.push(greyed());
const left = document.querySelectorAll('.plot .dim').length;
const menu = document.querySelector('nav').getBoundingClientRect().height;
document.querySelectorAll('details:not(.pick)').forEach(e => { e.open = true });
const narrow = document.documentElement.clientWidth;
const wide = document.documentElement.scrollWidth > narrow ||
  [...document.querySelectorAll('table.lines,table.decision' + (narrow < 600 ? ',table.numbers,table.cards' : ''))].some(e => e.getBoundingClientRect().right > narrow);
const probe = document.createElement('pre');
probe.id = 'probe';
probe.textContent = JSON.stringify({ seen, errors, dimmed, grey, menu, left, wide });
document.body.append(probe);
if (parent !== window) parent.postMessage(probe.textContent, '*');
</script>"#;

/// A page that shows the probed one as wide as a phone, which a window cannot be, and passes on its
/// report.
const PHONE: &str = r#"<body><iframe src="probed.html" style="width:390px;height:900px"></iframe><script>
addEventListener('message', e => {
  const probe = document.createElement('pre');
  probe.id = 'probe';
  probe.textContent = e.data;
  document.body.append(probe);
});
</script></body>"#;

const CATCH: &str = "<script>const errors = []; addEventListener('error', e => errors.push(String(e.message)));</script>";

fn chromium() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let names = ["chromium", "chromium-browser", "google-chrome"];
    let folders = std::env::split_paths(&path);
    let mut found = folders.flat_map(|folder| names.map(|name| folder.join(name)));
    found.find(|file| file.is_file())
}

/// Runs the browser on a page; returns its standard output.
fn browse(browser: &Path, page: &Path, options: &[&str]) -> String {
    let profile = tempfile::tempdir().expect("a folder");
    let out = tempfile::NamedTempFile::new().expect("a file");
    let mut child = Command::new(browser)
        .args([
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--no-first-run",
        ])
        .args([
            "--disable-dev-shm-usage",
            "--hide-scrollbars",
            "--disable-background-networking",
        ])
        .arg(format!("--user-data-dir={}", profile.path().display()))
        .args(options)
        .arg(format!("file://{}", page.display()))
        .stdout(out.reopen().expect("a handle"))
        .stderr(std::process::Stdio::null())
        .spawn()
        .expect("the browser starts");
    let start = Instant::now();
    while child.try_wait().expect("a child").is_none() {
        if start.elapsed() > Duration::from_secs(120) {
            let _ = child.kill();
            let _ = child.wait();
            panic!("the browser did not finish in 120 s");
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    std::fs::read_to_string(out.path()).expect("output")
}

/// Returns the probe's report on the page at a width.
fn probe(browser: &Path, page: &Path, width: usize) -> Value {
    let size = format!("--window-size={width},900");
    let dom = browse(browser, page, &["--dump-dom", &size]);
    let start = dom.find("<pre id=\"probe\">").expect("the probe ran") + 16;
    let json = &dom[start..start + dom[start..].find("</pre>").expect("an end")];
    let json = json
        .replace("&lt;", "<")
        .replace("&gt;", ">")
        .replace("&amp;", "&");
    serde_json::from_str(&json).expect("JSON")
}

fn write_pages(folder: &Path) -> (PathBuf, PathBuf) {
    let page = report::html(&Run::full().results());
    let (plain, probed) = (folder.join("report.html"), folder.join("probed.html"));
    std::fs::write(&plain, &page).expect("written");
    let with_catch = page.replacen("<head>", &format!("<head>{CATCH}"), 1);
    let with_probe = with_catch.replacen("</body>", &format!("{PROBE}</body>"), 1);
    std::fs::write(&probed, with_probe).expect("written");
    (plain, probed)
}

/// Fails unless everything that was written is present and visible.
fn check(seen: &Value, wanted: &[(String, String)]) {
    assert_eq!(
        seen["errors"].as_array().map(Vec::len),
        Some(0),
        "{}",
        seen["errors"]
    );
    let plots = seen["seen"].as_array().expect("plots");
    assert_eq!(plots.len(), wanted.len());
    for (plot, (id, title)) in plots.iter().zip(wanted) {
        assert_eq!(
            (plot["id"].as_str(), plot["title"].as_str()),
            (Some(&**id), Some(&**title))
        );
        assert!(
            plot["marks"].as_u64() >= Some(8),
            "{id} has {} marks",
            plot["marks"]
        );
        assert_eq!(
            plot["bad"], 0,
            "{id} has marks at places that are no numbers"
        );
        for side in [
            &plot["width"],
            &plot["height"],
            &plot["shown"][0],
            &plot["shown"][1],
        ] {
            assert!(side.as_f64() > Some(50.0), "{id} is {side} wide or high");
        }
        assert_eq!(
            plot["out"].as_array().map(Vec::len),
            Some(0),
            "{id}: outside: {}",
            plot["out"]
        );
        assert_eq!(
            plot["over"].as_array().map(Vec::len),
            Some(0),
            "{id}: overlapping: {}",
            plot["over"]
        );
    }
    assert!(seen["dimmed"].as_u64() > Some(10));
    let grey: Vec<u64> = serde_json::from_value(seen["grey"].clone()).expect("counts");
    let [first, without, again, all, reset] = grey[..] else {
        panic!("{grey:?}")
    };
    assert!(first > 10, "some tables are grey at first: {grey:?}");
    assert!(without > first, "a box greys its table: {grey:?}");
    assert_eq!(again, first, "a click on its mark chooses it again");
    assert_eq!((all, reset), (0, first));
    assert!(
        seen["menu"].as_f64() < Some(50.0),
        "one line: {}",
        seen["menu"]
    );
    assert_eq!(
        (&seen["left"], &seen["wide"]),
        (&Value::from(0), &Value::from(false))
    );
}

#[test]
fn a_browser_shows_every_plot() {
    let Some(browser) = chromium() else {
        assert!(
            std::env::var("COREWISE_NO_SKIP").as_deref() != Ok("1"),
            "no chromium"
        );
        println!("SKIPPED: no chromium on this machine, the page was not looked at");
        return;
    };
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    let (plain, probed) = write_pages(&folder);
    let wanted = report::plots(&Run::full().results());
    check(&probe(&browser, &probed, 1280), &wanted);
    let phone = folder.join("phone.html");
    std::fs::write(&phone, PHONE).expect("written");
    check(&probe(&browser, &phone, 600), &wanted);
    let picture = folder.join("report.png");
    let _ = std::fs::remove_file(&picture);
    let into = format!("--screenshot={}", picture.display());
    browse(&browser, &plain, &[&into, "--window-size=1280,2400"]);
    let length = std::fs::metadata(&picture).expect("a screenshot").len();
    assert!(length > 50_000, "the screenshot has {length} bytes");
}
