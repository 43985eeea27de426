use super::*;
use corewise_testkit::prometheus::Exposition;
use proptest::collection::vec;
use proptest::prelude::*;

impl Server {
    fn page(&self, format: Format) -> Exposition {
        let text = exposition(&self.shared, &*self.engine, NOW, format);
        let parsed = Exposition::parse(&text, format == Format::OpenMetrics);
        parsed.unwrap_or_else(|rule| panic!("{rule}\n{text}"))
    }
}

/// The series of a row as on a page.
fn series(row: &Sample) -> String {
    match row.labels {
        None => row.family.to_owned(),
        Some(labels) => format!("{}{{{labels}}}", row.family),
    }
}

#[test]
fn every_sample_of_the_table_is_on_the_page_once_with_its_value() {
    let server = Server::new();
    server.count(1_000);
    for format in [Format::Text, Format::OpenMetrics] {
        // The parser refuses a series that occurs twice.
        let page = server.page(format);
        let mut rows = HashSet::new();
        for (metric, value) in server.values() {
            let Some(row) = metric.prom else { continue };
            let series = series(&row);
            let divisor = row.divisor.map_or(1.0, f64::from);
            let value: f64 = value.unwrap().parse().expect(&series);
            assert_eq!(page.value(&series), Some(value / divisor), "{series}");
            assert!(rows.insert(series), "two rows of one series");
        }
        let of_rows = |family: &str| {
            let mut rows = table::METRICS.iter().filter(|metric| metric.is_stable());
            rows.any(|metric| metric.prom.is_some_and(|row| row.family == family))
        };
        for family in &page.families {
            let samples = family.samples.keys();
            let unknown = samples.filter(|name| {
                let family = name.split('{').next().unwrap();
                of_rows(family) && !rows.contains(*name)
            });
            assert_eq!(unknown.count(), 0, "{}", family.name);
        }
    }
}

#[test]
fn every_family_is_described_and_printed() {
    let server = Server::new();
    let rows = || table::METRICS.iter().filter_map(|metric| metric.prom);
    let names: HashSet<&str> = rows().map(|row| row.family).collect();
    let on_page = server.page(Format::Text).families;
    let on_page: HashSet<&str> = on_page.iter().map(|one| &*one.name).collect();
    assert_eq!(on_page, names);
    for name in names {
        let mut of_family = rows().filter(|row| row.family == name);
        let help = of_family.next().and_then(|row| row.help).expect(name);
        assert!(help.ends_with('.'), "{name}");
        assert!(of_family.all(|row| row.help.is_none()), "{name}");
        let is_ours = name.starts_with("corewise_") || name.starts_with("process_");
        assert!(is_ours, "{name}");
        // Base units only.
        let units = ["ms", "us", "ns", "kib", "mib", "milliseconds"];
        assert!(!name.split('_').any(|word| units.contains(&word)), "{name}");
    }
    for metric in table::METRICS {
        if let Some(row) = metric.prom {
            if matches!(metric.reading, Reading::Series(_)) {
                continue;
            }
            let is_monotone =
                ["corewise_grace_periods_total", "process_cpu_seconds_total"].contains(&row.family);
            let is_total = row.family.ends_with("_total");
            assert_eq!(
                is_total,
                metric.is_counter() || is_monotone,
                "{}",
                row.family
            );
        }
    }
}

#[test]
fn loops_listeners_and_classes_have_their_labels() {
    let server = Server::new();
    let at = r#"unix:/a"b\c"#.to_owned();
    let mut open = server.shared.connections.lock();
    for (fd, peer, listener) in [
        (3, at.clone(), None),
        (4, "tcp:[::1]:5".to_owned(), None),
        (5, at.clone(), Some(at.clone())),
        (6, at.clone(), Some(at)),
    ] {
        let info = crate::shared::ConnInfo::new(fd, peer, listener, 0);
        open.insert(fd, Arc::new(info));
    }
    drop(open);
    server.shared.loops[1].connections.store(2, Relaxed);
    server.shared.loops[1].classes.add(7, Column::GetHits);
    server.shared.loops[0].classes.add(7, Column::CmdSet);
    server.engine.script.lock().classes = vec![ClassStats {
        class: 7,
        items: 5,
        bytes: 600,
        max_bytes: 128,
        evictions: 9,
        ..ClassStats::default()
    }];
    let page = server.page(Format::Text);
    for (series, value) in [
        (r#"corewise_build_info{version="0.1.0",engine="fake"}"#, 1.0),
        (
            r#"corewise_listener_connections{listener="unix:/a\"b\\c"}"#,
            2.0,
        ),
        (
            r#"corewise_listener_connections{listener="tcp:[::1]:5"}"#,
            0.0,
        ),
        (r#"corewise_loop_connections{loop="1"}"#, 2.0),
        (r#"corewise_class_items{class="7"}"#, 5.0),
        (r#"corewise_class_bytes{class="7"}"#, 600.0),
        (r#"corewise_class_max_bytes{class="7"}"#, 128.0),
        (r#"corewise_class_evictions_total{class="7"}"#, 9.0),
        (r#"corewise_class_get_hits_total{class="7"}"#, 1.0),
        (r#"corewise_class_stores_total{class="7"}"#, 1.0),
    ] {
        assert_eq!(page.value(series), Some(value), "{series}");
    }
}

#[test]
fn a_client_gets_the_format_that_it_prefers() {
    use Format::{OpenMetrics, Text};
    for (accept, format) in [
        ("", Text),
        ("*/*", Text),
        ("text/plain", Text),
        ("application/openmetrics-text", OpenMetrics),
        ("Application/OpenMetrics-Text; version=1.0.0", OpenMetrics),
        ("application/openmetrics-text;q=0", Text),
        (
            "application/openmetrics-text;q=0.2,text/plain;version=0.0.4;q=0.3",
            Text,
        ),
        (
            "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3,*/*;q=0.2",
            OpenMetrics,
        ),
        ("text/html, application/openmetrics-text;q=x", Text),
    ] {
        assert_eq!(Format::preferred(accept), format, "{accept}");
    }
}

/// What may happen between two scrapes.
#[derive(Clone, Debug)]
enum Step {
    /// A loop publishes more, and so does the engine.
    Count(usize, u64),
    Reset,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let count = (0..2_usize, 0..50_u64).prop_map(|(index, more)| Step::Count(index, more));
    vec(prop_oneof![2 => count, 1 => Just(Step::Reset)], 1..20)
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::with_cases(32)
    })]

    /// `stats` begins at 0 again; the counters of Prometheus are those since the start.
    #[test]
    fn counters_never_fall(steps in steps()) {
        let server = Server::new();
        let (mut counted, mut before) = ([1_000; 2], Vec::new());
        for step in steps {
            match step {
                Step::Reset => reset(&server.shared, &*server.engine, NOW),
                Step::Count(index, more) => {
                    counted[index] += more;
                    let counters = Counters::distinct(counted[index]);
                    server.shared.loops[index].counts.publish(&counters);
                    server.engine.script.lock().stats.evictions += more;
                }
            }
            let page = server.page(Format::Text);
            let now: Vec<_> = page.counters().map(|(name, n)| (name.to_owned(), n)).collect();
            let total = server.shared.counters().cmd_get as f64;
            prop_assert_eq!(page.value(r#"corewise_commands_total{command="get"}"#), Some(total));
            for ((name, n), (_, before)) in now.iter().zip(&before) {
                prop_assert!(n >= before, "{} fell from {} to {}", name, before, n);
            }
            before = now;
        }
    }
}
