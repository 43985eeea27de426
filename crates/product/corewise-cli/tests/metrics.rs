//! Metrics and probes over HTTP (`--metrics`), as scrapers, load balancers and attackers see them.

use crate::common;

use std::collections::HashSet;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use common::{PATIENCE, TestServer, wait_until};
use corewise_testkit::prometheus::Exposition;

fn start(options: &[&str]) -> TestServer {
    TestServer::with(&[&["--metrics", ":0"], options].concat())
}

/// Where the server answers HTTP.
fn address(server: &TestServer) -> SocketAddr {
    let find = || {
        let said = server.said();
        let (_, rest) = said.split_once("metrics on http://")?;
        rest.split_once("/metrics\n")?.0.parse().ok()
    };
    wait_until("the server serves metrics", || find().is_some());
    find().expect("an address")
}

/// The body of the reply to a GET, and its status. A reply of HTTP/1.0 has no chunks.
fn get(address: SocketAddr, path: &str, fields: &str) -> (u16, String) {
    let mut socket = TcpStream::connect(address).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let request = format!("GET {path} HTTP/1.0\r\nHost: {address}\r\n{fields}\r\n");
    socket.write_all(request.as_bytes()).unwrap();
    let mut reply = String::new();
    socket.read_to_string(&mut reply).unwrap();
    let (head, body) = reply.split_once("\r\n\r\n").expect(&reply);
    let status = head.split(' ').nth(1).expect(head).parse().unwrap();
    (status, body.to_owned())
}

fn scrape(address: SocketAddr) -> Exposition {
    let (status, text) = get(address, "/metrics", "");
    assert_eq!(status, 200);
    Exposition::parse(&text, false).unwrap_or_else(|rule| panic!("{rule}\n{text}"))
}

/// Requests that move many counters: 10 hits and 5 misses.
fn talk(server: &TestServer) {
    let mut client = server.connect();
    for key in 0..10 {
        client.ask(format!("set k{key} 0 0 1\r\nx\r\n"), "STORED\r\n");
        client.ask(
            format!("get k{key}\r\n"),
            format!("VALUE k{key} 0 1\r\nx\r\nEND\r\n"),
        );
    }
    for key in 0..5 {
        client.ask(format!("get z{key}\r\n"), "END\r\n");
    }
    client.ask("delete k0\r\n", "DELETED\r\n");
    client.ask(
        "incr k1 1\r\n",
        "CLIENT_ERROR cannot increment or decrement non-numeric value\r\n",
    );
}

#[test]
fn every_engine_prints_pages_that_parse_and_whose_counters_never_fall() {
    for engine in ["relativistic", "locked", "lockhash", "global-lock"] {
        let server = start(&["--engine", engine, "--resp", "127.0.0.1:0"]);
        let address = address(&server);
        let build = format!(r#"corewise_build_info{{version="0.1.0",engine="{engine}"}}"#);
        let mut before = Exposition::default();
        for round in 1..4 {
            talk(&server);
            if round == 2 {
                server.connect().ask("stats reset\r\n", "RESET\r\n");
            }
            let page = scrape(address);
            assert_eq!(page.value(&build), Some(1.0));
            for (name, count) in before.counters() {
                assert!(page.value(name) >= Some(count), "{engine}: {name} fell");
            }
            let lookups = |result| {
                page.value(&format!(
                    r#"corewise_lookups_total{{command="get",result="{result}"}}"#
                ))
            };
            let rounds = f64::from(round);
            assert_eq!(lookups("hit"), Some(10.0 * rounds));
            assert_eq!(lookups("miss"), Some(5.0 * rounds));
            assert_eq!(page.value("corewise_items"), Some(9.0));
            assert_eq!(
                page.value("corewise_items_stored_total"),
                Some(10.0 * rounds)
            );
            before = page;
        }
        let accept = "Accept: application/openmetrics-text; version=1.0.0\r\n";
        let (_, open) = get(address, "/metrics", accept);
        Exposition::parse(&open, true).unwrap();
        assert!(open.len() < 256 << 10, "{} bytes", open.len());
    }
}

#[test]
fn listeners_and_the_process_are_told() {
    let server = start(&["--resp", "127.0.0.1:0"]);
    let address = address(&server);
    let clients = [(); 3].map(|()| {
        let mut client = server.connect();
        client.ask("mn\r\n", "MN\r\n");
        client
    });
    let page = scrape(address);
    let open = |listener| {
        page.value(&format!(
            r#"corewise_listener_connections{{listener="{listener}"}}"#
        ))
    };
    assert_eq!(open(format!("tcp:{}", server.address())), Some(3.0));
    assert_eq!(open(format!("resp:{}", server.resp_address())), Some(0.0));
    assert_eq!(page.value("corewise_connections"), Some(3.0));
    drop(clients);
    let files = std::fs::read_dir(format!("/proc/{}/fd", server.pid())).unwrap();
    let files = files.count() as f64;
    let told = page.value("process_open_fds").unwrap();
    assert!((told - files).abs() < 8.0, "{told} and {files}");
    let resident = page.value("process_resident_memory_bytes").unwrap() / 1_024.0;
    let rss = server.rss_kib() as f64;
    assert!(
        resident > rss / 2.0 && resident < rss * 2.0,
        "{resident} and {rss}"
    );
    assert!(page.value("process_cpu_seconds_total").unwrap() < 60.0);
}

/// Words of an expression that could be metrics.
fn metrics_in(expression: &str) -> impl Iterator<Item = &str> {
    let words = expression.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words.filter(|word| word.starts_with("corewise_") || word.starts_with("process_"))
}

fn expressions(value: &serde_json::Value, found: &mut Vec<String>) {
    match value {
        serde_json::Value::Array(values) => values.iter().for_each(|v| expressions(v, found)),
        serde_json::Value::Object(fields) => {
            for (name, value) in fields {
                match value {
                    serde_json::Value::String(text) if name == "expr" || name == "definition" => {
                        found.push(text.clone());
                    }
                    _ => expressions(value, found),
                }
            }
        }
        _ => {}
    }
}

/// The dashboard and the alerts of docs/OPERATING.md name no metric that does not exist.
#[test]
fn the_dashboard_and_the_alerts_name_metrics_that_exist() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../docs");
    let dashboard = std::fs::read_to_string(docs.join("grafana.json")).unwrap();
    assert!(dashboard.len() < 200 << 10);
    let mut found = Vec::new();
    expressions(&serde_json::from_str(&dashboard).unwrap(), &mut found);
    assert!(found.len() > 40, "{} expressions", found.len());
    let operating = std::fs::read_to_string(docs.join("OPERATING.md")).unwrap();
    let alerts = operating
        .lines()
        .filter_map(|line| line.trim().strip_prefix("expr: "));
    let alerts: Vec<String> = alerts.map(str::to_owned).collect();
    assert!(alerts.len() > 4, "{} alerts", alerts.len());
    let server = start(&[]);
    talk(&server); // so that a size class is in use
    let page = scrape(address(&server));
    let families: HashSet<&str> = page.families.iter().map(|one| &*one.name).collect();
    for expression in found.iter().chain(&alerts) {
        let mut metrics = metrics_in(expression).peekable();
        let is_up = expression.starts_with("up{");
        assert!(is_up || metrics.peek().is_some(), "{expression}");
        for metric in metrics {
            assert!(families.contains(metric), "{metric} in {expression}");
        }
    }
}

#[test]
fn a_server_that_serves_is_healthy_and_ready_and_stops_beside_open_scrapes() {
    let mut server = start(&[]);
    let address = address(&server);
    assert_eq!(get(address, "/healthz", ""), (200, "ok\n".into()));
    assert_eq!(get(address, "/readyz", ""), (200, "ready\n".into()));
    // An idle server stays healthy: its loops sleep without a timeout.
    std::thread::sleep(Duration::from_millis(1_500));
    assert_eq!(get(address, "/healthz", ""), (200, "ok\n".into()));
    let mut scrapes = [(); 12].map(|()| TcpStream::connect(address).unwrap());
    for scrape in &mut scrapes[..4] {
        scrape.write_all(b"GET /metrics HTTP/1.1\r\n").unwrap();
    }
    let start = Instant::now();
    server.terminate();
    assert_eq!(server.wait().code(), Some(0));
    assert!(start.elapsed() < Duration::from_secs(5));
}

/// A client that leaves a reply unread keeps the server from ending for seconds.
#[test]
fn a_server_that_stops_is_not_ready() {
    let server = start(&[]);
    let address = address(&server);
    let mut slow = server.connect();
    let value = "x".repeat(1_000_000);
    slow.ask(format!("set a 0 0 1000000\r\n{value}\r\n"), "STORED\r\n");
    let mut socket = slow.socket();
    socket.write_all(&b"get a\r\n".repeat(30)).unwrap();
    std::thread::sleep(Duration::from_millis(300));
    server.terminate();
    wait_until("the server is not ready", || {
        get(address, "/readyz", "") == (503, "stopping\n".into())
    });
    assert_eq!(get(address, "/healthz", "").0, 200);
}

#[test]
fn hostile_clients_of_the_metrics_leave_the_cache_alone() {
    let server = start(&[]);
    let address = address(&server);
    let silent: Vec<_> = (0..40)
        .map_while(|_| TcpStream::connect(address).ok())
        .collect();
    let mut flood = TcpStream::connect(address).unwrap();
    flood
        .set_write_timeout(Some(Duration::from_millis(200)))
        .unwrap();
    while flood.write_all(&[b'x'; 4_096]).is_ok() {}
    let mut client = server.connect();
    let start = Instant::now();
    for _ in 0..100 {
        client.ask("mn\r\n", "MN\r\n");
    }
    assert!(start.elapsed() < Duration::from_secs(1));
    drop(silent);
    wait_until("scrapes are answered", || {
        get(address, "/readyz", "").0 == 200
    });
}

/// Kills the program at the end of a test.
struct Exporter(Child);

impl Drop for Exporter {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The path of the first of these programs that is installed.
fn installed(names: &[&str]) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let folders: Vec<PathBuf> = std::env::split_paths(&path).collect();
    let mut files = names
        .iter()
        .flat_map(|name| folders.iter().map(move |one| one.join(name)));
    files.find(|file| file.is_file())
}

/// The page that an exporter prints about the server; `options` follow the name of an option by
/// the address on which it is to listen.
fn export(program: &Path, listen: &str, options: &[String]) -> String {
    let free = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = free.local_addr().unwrap();
    drop(free);
    let mut exporter = Command::new(program);
    exporter.args(options).arg(format!("{listen}={at}"));
    let exporter = exporter.stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    let _exporter = Exporter(exporter.unwrap());
    wait_until("the exporter listens", || TcpStream::connect(at).is_ok());
    let (status, page) = get(at, "/metrics", "");
    assert_eq!(status, 200, "{page}");
    page
}

/// The exporters of Prometheus for memcached and Redis find nothing wrong. Those that are not
/// installed are left out.
#[test]
fn the_exporters_for_memcached_and_redis_work_unchanged() {
    let server = start(&["--resp", "127.0.0.1:0"]);
    talk(&server);
    if let Some(program) = installed(&["memcached_exporter", "prometheus-memcached-exporter"]) {
        let options = [format!("--memcached.address={}", server.address())];
        let page = export(&program, "--web.listen-address", &options);
        assert!(page.contains("\nmemcached_up 1\n"), "{page}");
        assert!(
            page.contains("\nmemcached_slab_items_evicted_unfetched_total{"),
            "{page}"
        );
    }
    if let Some(program) = installed(&["redis_exporter", "prometheus-redis-exporter"]) {
        let options = [format!("-redis.addr=redis://{}", server.resp_address())];
        let page = export(&program, "-web.listen-address", &options);
        assert!(page.contains("\nredis_up 1\n"), "{page}");
        assert!(
            page.contains("\nredis_exporter_last_scrape_error{err=\"\"} 0\n"),
            "{page}"
        );
    }
}
