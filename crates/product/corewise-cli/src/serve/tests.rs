//! Tests of the way from command lines and configuration files to the configuration of the server.

use std::io::Write;
use std::path::Path;
use std::time::Duration;

use corewise_server::{BindingProtocol, Config, Eviction, ProtocolKind, ScriptKeys};
use corewise_topology::{PinPolicy, Topology};
use tempfile::NamedTempFile;

use super::plan::{ServePlan, about_memory, default_memory, make};
use super::{CliMode, open_to_all};
use crate::cli::parse_serve;
use crate::failure::Failure;

fn plan_as(mode: CliMode, words: &str) -> Result<ServePlan, Failure> {
    let words: Vec<&str> = words.split_whitespace().collect();
    make(parse_serve(&words)?, mode, &machine(64 << 10))
}

/// A machine with two CPUs and this much memory, since defaults depend on it.
fn machine(memory_mib: u64) -> Topology {
    Topology {
        memory_bytes: Some(memory_mib * MIB),
        ..Topology::flat(2)
    }
}

fn plan(words: &str) -> ServePlan {
    plan_as(CliMode::Corewise, words).unwrap_or_else(|failure| panic!("{words}: {failure:?}"))
}

fn config(words: &str) -> Config {
    plan(words).config
}

fn memcached(words: &str) -> Config {
    plan_as(CliMode::Memcached, words).unwrap().config
}

fn error(words: &str) -> String {
    match plan_as(CliMode::Corewise, words) {
        Ok(_) => panic!("{words}: accepted"),
        Err(failure) => failure.line().to_owned(),
    }
}

/// The TCP addresses of this protocol.
fn addresses_of(kind: ProtocolKind, config: &Config) -> Vec<String> {
    let of_kind = config.tcp_addresses().filter(|(other, _)| *other == kind);
    of_kind.map(|(_, address)| address.to_string()).collect()
}

fn addresses(config: &Config) -> Vec<String> {
    addresses_of(ProtocolKind::Memcached, config)
}

fn toml(text: &str) -> NamedTempFile {
    let mut file = NamedTempFile::new().unwrap();
    file.write_all(text.as_bytes()).unwrap();
    file
}

fn with_file(text: &str, words: &str) -> Result<ServePlan, Failure> {
    let file = toml(text);
    plan_as(
        CliMode::Corewise,
        &format!("--config {} {words}", file.path().display()),
    )
}

/// Arguments, and a check of the resulting configuration.
type Reaches = (&'static str, fn(&Config) -> bool);

const OF_LIMITS: &[Reaches] = &[
    ("-t 3", |c| c.threads == 3),
    ("--threads 3", |c| c.threads == 3),
    ("-m 64", |c| c.memory == 64 << 20),
    ("--memory-limit=64", |c| c.memory == 64 << 20),
    ("--memory 1g", |c| c.memory == 1 << 30),
    ("-m 512 -I 128m", |c| c.max_item_size == 128 << 20),
    ("-t 2 --connection-memory 20m", |c| {
        c.connection_limit() == 20 << 20
    }),
    // The default: 2m for each thread, a quarter at most; plus the largest of an eighth, of 16m or
    // a quarter, and of an item with another one or an eighth.
    ("-t 2 -m 64", |c| c.connection_limit() == 20 << 20),
    ("-t 4 -m 1024", |c| c.connection_limit() == 136 << 20),
    ("-t 1 -m 512 -I 128m", |c| c.connection_limit() == 194 << 20),
    ("-t 16 -m 16", |c| c.connection_limit() == 8 << 20),
    ("-t 16 -m 16 -I 4m", |c| c.connection_limit() == 10 << 20),
    ("-t 1 -m 2 -I 512k", |c| {
        c.connection_limit() == (5 << 20) / 4
    }),
    ("-I 1k", |c| c.max_item_size == 1 << 10),
    ("-I 2M", |c| c.max_item_size == 2 << 20),
    ("-I 1048577", |c| c.max_item_size == 1_048_577),
    ("--max-item-size 64k", |c| c.max_item_size == 64 << 10),
    ("-c 77", |c| c.max_connections == 77),
    ("--conn-limit 77", |c| c.max_connections == 77),
    ("--max-connections 77", |c| c.max_connections == 77),
    ("-b 55", |c| c.backlog == 55),
    ("--backlog 55", |c| c.backlog == 55),
    ("--listen-backlog 55", |c| c.backlog == 55),
    ("--idle-timeout 5m", |c| {
        c.idle_timeout == Some(Duration::from_secs(300))
    }),
    ("--idle-timeout 0", |c| c.idle_timeout.is_none()),
    ("--slow-reader-timeout 250ms", |c| {
        c.slow_reader_timeout == Duration::from_millis(250)
    }),
    ("--script-time 250ms", |c| {
        c.script_time == Duration::from_millis(250)
    }),
    ("--databases 3", |c| c.databases == 3),
    ("--script-memory 2m", |c| c.script_memory == 2 << 20),
    ("--script-keys all", |c| c.script_keys == ScriptKeys::All),
    ("", |c| c.script_keys == ScriptKeys::Declared),
];

const OF_SWITCHES: &[Reaches] = &[
    ("-M", |c| c.eviction == Eviction::None),
    ("--disable-scripts", |c| !c.enable_scripts),
    ("--disable-scripts=false", |c| c.enable_scripts),
    ("--disable-evictions", |c| c.eviction == Eviction::None),
    ("--eviction none", |c| c.eviction == Eviction::None),
    ("--eviction lru", |c| c.eviction == Eviction::Lru),
    ("--engine locked", |c| c.engine.to_string() == "locked"),
    ("--engine lockhash", |c| c.engine.to_string() == "lockhash"),
    ("--engine global-lock", |c| {
        c.engine.to_string() == "global-lock"
    }),
    ("--pin list:0,2-3", |c| {
        c.pin == PinPolicy::List(vec![0, 2, 3])
    }),
    ("-Y /etc/users", |c| {
        c.auth_file.as_deref() == Some(Path::new("/etc/users"))
    }),
    ("-A", |c| c.enable_shutdown),
    ("", |c| {
        !c.enable_shutdown && c.enable_flush && c.enable_cas && c.enable_dump
    }),
    ("-F", |c| !c.enable_flush),
    ("-C", |c| !c.enable_cas),
    ("-X", |c| !c.enable_dump),
    ("-D /", |c| c.prefix_delimiter == b'/' && c.detail_stats),
    ("-D -", |c| c.prefix_delimiter == b'-'),
    ("", |c| c.prefix_delimiter == b':' && !c.detail_stats),
    ("-v", |c| c.verbosity == 1),
    ("-vv", |c| c.verbosity == 2),
    ("-vvv", |c| c.verbosity == 3),
    ("-v -v --verbose", |c| c.verbosity == 3),
    ("-o idle_timeout=10", |c| {
        c.idle_timeout == Some(Duration::from_secs(10))
    }),
    ("-o maxconns_fast", |c| c.maxconns_fast),
    ("-o no_maxconns_fast", |c| !c.maxconns_fast),
    ("--maxconns-fast=false", |c| !c.maxconns_fast),
    ("-o modern,idle_timeout=7,no_maxconns_fast", |c| {
        !c.maxconns_fast && c.idle_timeout == Some(Duration::from_secs(7))
    }),
    ("-s /run/c.sock -a 0770", |c| {
        c.unix_path() == Some(Path::new("/run/c.sock")) && c.unix_mode == 0o770
    }),
    ("--unixsocket /run/r.sock", |c| {
        let resp = (ProtocolKind::Resp, Path::new("/run/r.sock"));
        c.unix_path().is_none() && c.unix_paths().eq([resp]) && c.tcp_addresses().count() == 1
    }),
    ("", |c| c.binding == BindingProtocol::Auto),
    ("-B auto", |c| c.binding == BindingProtocol::Auto),
    ("-B ascii", |c| c.binding == BindingProtocol::Ascii),
    ("-B binary", |c| c.binding == BindingProtocol::Binary),
];

#[test]
fn each_option_reaches_the_server() {
    for (words, check) in OF_LIMITS.iter().chain(OF_SWITCHES) {
        let config = config(words);
        assert!(check(&config), "{words}: {config:?}");
    }
}

#[test]
fn places_to_listen_on_follow_the_options() {
    let table: &[(&str, &[&str])] = &[
        ("", &["127.0.0.1:11211"]),
        ("-p 11300", &["127.0.0.1:11300"]),
        ("-p -1", &["127.0.0.1:0"]),
        ("-l 127.0.0.2", &["127.0.0.2:11211"]),
        ("-l 127.0.0.2 -p 5", &["127.0.0.2:5"]),
        (
            "--listen 127.0.0.1:0 --listen 127.0.0.1:0",
            &["127.0.0.1:0", "127.0.0.1:0"],
        ),
        (
            "-l 127.0.0.1,127.0.0.1:7,[::1]:8",
            &["127.0.0.1:11211", "127.0.0.1:7", "[::1]:8"],
        ),
        ("-l 127.0.0.1 -l 127.0.0.1", &["127.0.0.1:11211"]),
        ("-l127.0.0.1 -p11300", &["127.0.0.1:11300"]),
        ("-s /run/c.sock", &[]),
        ("-s /run/c.sock -p 5", &[]),
        ("-s /run/c.sock -l 127.0.0.1:5", &["127.0.0.1:5"]),
        ("-s /run/c.sock -p 0", &[]),
    ];
    for (words, expected) in table {
        assert_eq!(addresses(&config(words)), *expected, "{words}");
    }
}

#[test]
fn other_protocols_listen_only_where_they_are_told_to() {
    let cphash: &[(&str, &[&str])] = &[
        ("", &[]),
        ("-l 127.0.0.1:5", &[]),
        ("--cphash-listen 127.0.0.1:5", &["127.0.0.1:5"]),
        (
            "-p 0 --cphash-listen 127.0.0.1:5,[::1]:0",
            &["127.0.0.1:5", "[::1]:0"],
        ),
        ("--cphash-listen *:5", &["0.0.0.0:5", "[::]:5"]),
    ];
    let resp: &[(&str, &[&str])] = &[
        ("", &[]),
        ("-l 127.0.0.1:5", &[]),
        ("--resp 127.0.0.1", &["127.0.0.1:6379"]),
        (
            "-p 0 --resp 127.0.0.1:5,[::1]:0",
            &["127.0.0.1:5", "[::1]:0"],
        ),
        ("--resp *", &["0.0.0.0:6379", "[::]:6379"]),
    ];
    for (kind, table) in [(ProtocolKind::Cphash, cphash), (ProtocolKind::Resp, resp)] {
        for (words, expected) in table {
            for config in [config(words), memcached(words)] {
                assert_eq!(addresses_of(kind, &config), *expected, "{words}");
            }
        }
    }
}

#[test]
fn memcached_listens_everywhere_and_a_socket_turns_tcp_off() {
    assert!(addresses(&memcached("")).contains(&"0.0.0.0:11211".to_string()));
    assert_eq!(addresses(&memcached("-l 127.0.0.1")), ["127.0.0.1:11211"]);
    assert!(addresses(&memcached("-s /run/c.sock -l 127.0.0.1")).is_empty());
}

#[test]
fn the_memory_is_what_the_help_says_and_what_memcached_takes() {
    assert_eq!(config("").memory, 1 << 30);
    assert_eq!(memcached("").memory, 64 << 20);
    assert_eq!(memcached("-m 100").memory, 100 << 20);
    assert_eq!(config("").threads, 2);
    // A fifth and 32 MiB are left to others.
    let small = make(parse_serve(&[]).unwrap(), CliMode::Corewise, &machine(200)).unwrap();
    assert_eq!(small.config.memory, 128 * MIB);
    assert!(small.about_memory.is_some());
}

#[test]
fn flags_may_be_written_together_and_options_repeated() {
    let config = config("-AFCXvv -t 2 -t 5 -m64 -m 128");
    assert!(config.enable_shutdown && !config.enable_flush && !config.enable_cas);
    assert_eq!(
        (config.verbosity, config.threads, config.memory),
        (2, 5, 128 << 20)
    );
}

#[test]
fn each_option_about_the_process_reaches_it() {
    let process = plan("-d -u nobody -P /run/c.pid -k -r").process;
    assert!(process.daemon && process.lock_memory && process.core_dumps);
    assert_eq!(process.user.as_deref(), Some("nobody"));
    assert_eq!(process.pidfile.as_deref(), Some(Path::new("/run/c.pid")));
    assert_eq!(plan("").process, super::ProcessPlan::default());
}

/// The lines of Debian's memcached.conf that are not commented out, as Debian's scripts pass them
/// on.
#[test]
fn debians_configuration_is_understood() {
    let words = "-m 64 -p 11211 -u memcache -l 127.0.0.1 -P /var/run/memcached/memcached.pid";
    let plan = plan_as(CliMode::Memcached, words).unwrap();
    assert_eq!(plan.config.memory, 64 << 20);
    assert_eq!(addresses(&plan.config), ["127.0.0.1:11211"]);
    assert_eq!(plan.process.user.as_deref(), Some("memcache"));
    assert_eq!(plan.notes, [""; 0]);
    // Lines that are commented out by default.
    let config = memcached("-l 127.0.0.1 -vv -c 1024 -k -M -r -d -l ::1 -o modern");
    assert_eq!(
        (config.verbosity, config.max_connections, config.eviction),
        (2, 1024, Eviction::None)
    );
    assert_eq!(addresses(&config), ["127.0.0.1:11211", "[::1]:11211"]);
}

#[test]
fn options_that_change_nothing_are_noted() {
    let note = |words| plan(words).notes.join("; ");
    assert!(note("-f 1.25").starts_with("-f changes nothing here"));
    assert!(note("-n 48").starts_with("-n "));
    assert!(note("-R 20").starts_with("-R "));
    assert!(note("-N 2").starts_with("-N "));
    assert_eq!(
        note("-o hashpower=20,slab_reassign")
            .matches("changes nothing")
            .count(),
        2
    );
    assert_eq!(note("-U 0 -B ascii -W"), "");
    assert_eq!(note("-B auto"), "");
}

#[test]
fn what_is_out_of_scope_is_refused_by_name() {
    let table = [
        ("-U 11211", "UDP"),
        ("-U -1", "UDP"),
        ("-S", "SASL"),
        ("-Z", "TLS"),
        ("-e /mnt/file", "kept in a file"),
        ("-o ext_path=/mnt/x:1G", "external storage is out of scope"),
        ("-o ssl_key=x", "TLS is out of scope"),
        ("-o proxy_config=x", "proxy is out of scope"),
    ];
    for (words, name) in table {
        let line = error(words);
        assert!(
            line.contains(name) && line.contains("out of scope"),
            "{words}: {line}"
        );
    }
}

#[test]
fn a_bad_option_is_named_in_one_line() {
    let table = [
        ("--no-such", "--no-such"),
        ("extra", "extra"),
        ("-t 0", "above 0"),
        ("-t 1025", "more than 1024"),
        ("-t", "-t"),
        ("-m x", "`x`"),
        ("-m 1", "memory (-m) must be at least 2m"),
        ("-m 64 --memory 1g", "cannot be used"),
        ("-I 1023", "1k to 128m"),
        ("-I 129m", "1k to 128m"),
        ("-m 100 -I 60m", "60m of 100m"),
        ("-c 0", "above 0"),
        ("-p 70000", "`70000`"),
        ("-p 0", "nothing to listen on"),
        ("-l 127.0.0.1:x", "`x`"),
        ("-l ,", "names no address"),
        ("--cphash-listen 127.0.0.1", "needs a port"),
        ("--cphash-listen 127.0.0.1:x", "`x`"),
        ("--cphash-listen ,", "names no address"),
        ("--metrics 127.0.0.1", "metrics needs a port"),
        ("--metrics :x", "`x`"),
        ("--metrics ,", "metrics names no address"),
        ("--resp 127.0.0.1:x", "`x`"),
        ("--resp ,", "names no address"),
        ("-a 999", "octal"),
        ("-B tcp", "`tcp`"),
        ("-B binary -Y /etc/users", "exclude each other"),
        ("-R 0", "above 0"),
        ("-f fast", "fast"),
        ("--engine warp", "`warp`"),
        ("--eviction fifo", "`fifo`"),
        ("--pin list:9-1", "ends before it starts"),
        ("--idle-timeout soon", "`soon`"),
        ("-M --eviction lru", "cannot be used"),
        ("-o idle_timeout", "lacks a number"),
        ("-o idle_timeout=x", "idle_timeout: `x`"),
        ("-o no_such_word", "no_such_word is not an option"),
        ("-f 1", "greater than 1"),
        ("-f nan", "greater than 1"),
        ("-m 0", "above 0"),
        ("-m -1", "-1"),
        ("--memory 20000000t", "`20000000t`"),
        ("-c -1", "-1"),
        ("-b 0", "above 0"),
        ("-n 0", "above 0"),
        ("-N 0", "above 0"),
        ("-U x", "invalid digit"),
        ("--databases 0", "above 0"),
        ("--databases 17", "from 1 to 16"),
        ("-D é", "one visible ASCII character"),
        ("--connection-memory 1", "at least"),
        ("--pin list:9999", "`9999`"),
        ("--slow-reader-timeout soon", "`soon`"),
        ("--maxconns-fast=perhaps", "perhaps"),
        ("-I 1.5m", "`1.5m`"),
        ("--config /no/such/file", "cannot read /no/such/file"),
    ];
    for (words, part) in table {
        let line = error(words);
        assert!(line.contains(part), "{words}: {line}");
        assert_eq!(line.lines().count(), 1, "{words}: {line}");
    }
}

#[test]
fn a_file_holds_the_same_options() {
    let text = r#"
        listen = ["127.0.0.1:7", "127.0.0.2"]
        port = 9
        memory = "1g"
        threads = 3
        max-item-size = 65536
        eviction = "none"
        pin = "compact"
        idle-timeout = 60
        unix-mask = "0770"
        verbose = 2
        enable-shutdown = true
        disable-flush-all = true
        extended = "no_maxconns_fast"
        cphash-listen = "127.0.0.1:9"
        resp = "127.0.0.1:10"
        metrics = ["127.0.0.1:11", ":12"]
        user = "nobody"
    "#;
    let plan = with_file(text, "").unwrap();
    let config = plan.config;
    let of = |kind| addresses_of(kind, &config);
    assert_eq!(of(ProtocolKind::Cphash), ["127.0.0.1:9"]);
    assert_eq!(of(ProtocolKind::Resp), ["127.0.0.1:10"]);
    let metrics: Vec<String> = config.metrics.iter().map(ToString::to_string).collect();
    assert_eq!(metrics, ["127.0.0.1:11", "127.0.0.1:12"]);
    assert_eq!(addresses(&config), ["127.0.0.1:7", "127.0.0.2:9"]);
    assert_eq!(
        (config.memory, config.threads, config.max_item_size),
        (1 << 30, 3, 65_536)
    );
    assert_eq!(
        (config.eviction, config.pin),
        (Eviction::None, PinPolicy::Compact)
    );
    assert_eq!(
        (config.idle_timeout, config.unix_mode),
        (Some(Duration::from_secs(60)), 0o770)
    );
    assert!(config.enable_shutdown && !config.enable_flush && !config.maxconns_fast);
    assert_eq!(
        (config.verbosity, plan.process.user.as_deref()),
        (2, Some("nobody"))
    );
}

#[test]
fn the_command_line_wins_over_the_file() {
    let text =
        "memory = '1g'\ndisable-evictions = true\nlisten = 'localhost'\nenable-shutdown = true";
    let config = with_file(
        text,
        "-m 64 --eviction lru -l 127.0.0.9:1 --enable-shutdown=false",
    );
    let config = config.unwrap().config;
    assert_eq!((config.memory, config.eviction), (64 << 20, Eviction::Lru));
    assert_eq!(addresses(&config), ["127.0.0.9:1"]);
    assert!(!config.enable_shutdown);
}

#[test]
fn a_wrong_file_is_one_line_with_a_place() {
    let line = |text| with_file(text, "").unwrap_err().line().to_owned();
    assert!(
        line("threads = 2\nthreds = 3")
            .contains("line 2: `threds` is not an option; did you mean `threads`?")
    );
    assert!(line("\n\nthreads = 0").contains("line 3: threads: `0` is not a whole number"));
    assert!(line("memory = true").contains("line 1"));
    assert!(line("memory = ").contains("line 1"));
    assert!(line("config = 'other.toml'").contains("`config` is not an option"));
    assert!(line("memory = '1g'\nmemory-limit = 5").contains("cannot both be given"));
    assert!(!line("a = [\n1,").contains('\n'));
}

/// The message names none of our types, and names what is expected.
#[test]
fn a_wrong_type_in_a_file_is_said_in_plain_words() {
    let texts = "a text or a list of texts";
    let value = "a text or a number";
    for (name, expected) in [
        ("listen", texts),
        ("extended", texts),
        ("port", value),
        ("unix-mode", value),
        ("threads", value),
        ("memory", value),
        ("memory-limit", value),
        ("max-item-size", value),
        ("connection-memory", value),
        ("max-connections", value),
        ("idle-timeout", value),
        ("slow-reader-timeout", value),
        ("engine", value),
        ("eviction", value),
        ("pin", value),
        ("backlog", value),
        ("prefix-delimiter", value),
        ("udp-port", value),
        ("slab-growth-factor", value),
        ("napi-ids", value),
        ("unix", "path string"),
        ("auth-file", "path string"),
        ("pidfile", "path string"),
        ("user", "a string"),
        ("protocol", value),
        ("unixsocket", "path string"),
        ("daemon", "a boolean"),
        ("enable-shutdown", "a boolean"),
        ("maxconns-fast", "a boolean"),
        ("verbose", "a whole number from 0 to 3"),
    ] {
        // `true` is invalid for all options but booleans, and a table is invalid for all.
        let line = match expected {
            "a boolean" => format!("{name} = 5"),
            _ => format!("{name} = true"),
        };
        for line in [line, format!("{name} = {{ a = 1 }}")] {
            let said = with_file(&line, "").unwrap_err().line().to_owned();
            let start = format!("line 1: {name}: invalid type");
            let clear = said.contains(&start) && said.contains(expected);
            assert!(clear, "{line}: {said}");
            // The part behind the random name of the file.
            let (_, reason) = said.split_once("line 1: ").unwrap();
            assert!(!reason.contains("enum") && !reason.contains("u8"), "{said}");
        }
    }
    for line in [
        "listen = 5",
        "listen = ['a', 5]",
        "verbose = 4",
        "verbose = -1",
    ] {
        let said = with_file(line, "").unwrap_err().line().to_owned();
        assert!(
            said.contains(": invalid") && said.contains("expected a"),
            "{line}: {said}"
        );
    }
}

#[test]
fn strangers_at_the_door_are_warned_about() {
    let warning = |words| open_to_all(&config(words));
    assert!(warning("").is_none());
    assert!(warning("-l [::1]:5").is_none());
    assert!(
        warning("-l 127.0.0.1,0.0.0.0:5")
            .unwrap()
            .contains("listening on 0.0.0.0:5 without")
    );
    assert!(warning("-l [::ffff:127.0.0.1]:5").is_none());
    assert!(warning("-l 0.0.0.0 -Y /etc/users").is_none());
    assert!(warning("-s /run/c.sock").is_none());
    assert!(warning("--cphash-listen 127.0.0.1:5").is_none());
    let of_cphash = warning("--cphash-listen 0.0.0.0:5").unwrap();
    assert!(of_cphash.contains("0.0.0.0:5") && !of_cphash.contains("--auth-file"));
    assert!(warning("--resp 127.0.0.1").is_none());
    let of_resp = warning("--resp 0.0.0.0").unwrap();
    assert!(of_resp.contains("0.0.0.0:6379") && of_resp.contains("--auth-file"));
}

/// What a user most likely meant is named; so is the option that an error is about.
#[test]
fn errors_name_the_option_and_what_was_meant() {
    let cases = [
        ("--memroy 1g", &["did you mean `--memory`?"][..]),
        ("--engine relativstic", &["--engine", "relativistic"]),
        ("-m 1g", &["--memory-limit", "did you mean `--memory 1g`?"]),
        ("-m x", &["`x` is not a whole number of megabytes above 0"]),
        ("-m 0", &["--memory-limit", "above 0"]),
        ("--memory 0", &["memory (-m) must be at least 2m"]),
        ("--memory 1m", &["memory (-m) must be at least 2m"]),
        ("-m 64 -I 64m", &["max-item-size (-I)", "64m of 64m"]),
        ("-l [::1", &["listen (-l): `[::1` lacks a `]`"]),
        ("--resp localhost:x", &["resp: `x` is not a port"]),
        ("--cphash-listen 127.0.0.1", &["cphash-listen needs a port"]),
    ];
    for (words, parts) in cases {
        let line = error(words);
        for part in parts {
            assert!(line.contains(part), "{words}: {line}");
        }
    }
    assert!(!error("--memory 0").contains("-I"), "which was not given");
    let files = [
        (
            "memroy = '1g'",
            "line 1: `memroy` is not an option; did you mean `memory`?",
        ),
        ("memory = '1g'\nxyz = 1", "line 2: `xyz` is not an option"),
        ("memory = 'much'", "line 1: memory: `much` is not a size"),
        (
            "threads = 0",
            "line 1: threads: `0` is not a whole number above 0",
        ),
    ];
    for (text, part) in files {
        let failure = with_file(text, "").expect_err(text);
        assert!(failure.line().contains(part), "{text}: {}", failure.line());
        assert!(failure.line().len() < 200, "no list of all keys");
    }
}

#[test]
fn metrics_are_off_and_stay_on_this_machine_unless_told() {
    let addresses = |words| {
        let addresses = config(words).metrics;
        addresses
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>()
    };
    assert!(addresses("").is_empty());
    assert_eq!(addresses("--metrics :9150"), ["127.0.0.1:9150"]);
    assert_eq!(addresses("--metrics [::1]:9150"), ["[::1]:9150"]);
    assert_eq!(addresses("--metrics *:9150"), ["0.0.0.0:9150", "[::]:9150"]);
    assert_eq!(
        addresses("--metrics 10.0.0.1:9150,:9151 --metrics :9152"),
        ["10.0.0.1:9150", "127.0.0.1:9151", "127.0.0.1:9152"]
    );
}

const MIB: u64 = 1 << 20;

#[test]
fn without_a_limit_the_memory_follows_the_machine() {
    // (the usual limit, the available memory, the largest item, the limit), all in MiB, and what is
    // said about it
    let cases = [
        (1024, 1 << 20, 1, 1024, ""),
        (1024, 1320, 1, 1024, ""),
        (1024, 1319, 1, 1023, "note"),
        (1024, 512, 1, 377, "note"),
        (64, 512, 1, 64, ""),
        (64, 100, 1, 48, "note"),
        (1024, 64, 1, 19, "note"),
        // At least two of the largest items.
        (1024, 64, 16, 32, "note"),
        (1024, 40, 1, 2, "note"),
        (1024, 1, 1, 2, "warning"),
        (64, 1, 128, 64, "warning"),
    ];
    for (usual, available, item, limit, kind) in cases {
        let found = default_memory(usual * MIB, available * MIB, item * MIB);
        assert_eq!(found, limit * MIB, "{usual} {available} {item}");
        let config = Config {
            memory: found,
            ..Config::default()
        };
        let said = about_memory(&config, Some(usual * MIB), available * MIB);
        let said = said.unwrap_or_default();
        let found = said.split(':').next().unwrap();
        assert_eq!(found, kind, "{usual} {available} {item}: {said}");
    }
}

#[test]
fn a_limit_beyond_the_machine_is_a_warning() {
    let config = |memory| Config {
        memory,
        ..Config::default()
    };
    let said = |limit: u64, available: u64| about_memory(&config(limit), None, available);
    // A twentieth of the limit and 8 MiB come on top of it.
    assert_eq!(said(1000 * MIB, 1058 * MIB), None);
    let warning = said(1000 * MIB, 1058 * MIB - 1).unwrap();
    assert!(warning.starts_with("warning: with a memory limit of 1000m"));
    assert!(warning.contains("1058m") && warning.contains("allows 1057m"));
    assert!(said(u64::MAX, u64::MAX - 1).is_some());
    assert_eq!(plan("-m 16").about_memory, None);
    assert!(plan("--memory 900g").about_memory.is_some());
}

/// The options of `serve` that the configuration file has, with all their names.
fn keys() -> Vec<Vec<String>> {
    let command = crate::cli::command();
    let serve = command.find_subcommand("serve").unwrap();
    let is_of_file = |option: &&clap::Arg| {
        let of_command_line = ["config", "check_config", "license"];
        option.get_help_heading() != Some(super::options::OTHERS)
            && !of_command_line.contains(&option.get_id().as_str())
    };
    let options = serve.get_arguments().filter(is_of_file);
    let names = options.map(|option| option.get_long_and_visible_aliases().unwrap_or_default());
    let owned = |names: Vec<&str>| names.into_iter().map(str::to_owned).collect();
    names.map(owned).collect()
}

/// A line `#key = value` has a default; if ` # example` follows, the option has none.
#[test]
fn the_sample_configuration_has_every_key_with_its_default() {
    let sample = include_str!("../../../../../packaging/corewise.toml");
    assert!(with_file(sample, "").is_ok());
    let commented = sample.lines().filter_map(|line| line.strip_prefix('#'));
    let settings = commented.filter(|line| line.starts_with(|first: char| first.is_lowercase()));
    let (examples, defaults): (Vec<&str>, Vec<&str>) =
        settings.partition(|line| line.ends_with(" # example"));
    let words = "--memory 1g -t 2";
    let usual = plan(words);
    let same = |found: &ServePlan| {
        format!("{:?}", found.config) == format!("{:?}", usual.config)
            && found.process == usual.process
    };
    let all = with_file(&defaults.join("\n"), words).unwrap();
    assert!(same(&all), "{:#?}\n{:#?}", all.config, usual.config);
    for example in &examples {
        let with = with_file(example, words);
        let with = with.unwrap_or_else(|failure| panic!("{example}: {failure:?}"));
        let key = example.split(' ').next().unwrap();
        let is_overridden = ["threads", "memory-limit"].contains(&key);
        assert!(is_overridden || !same(&with), "{example}");
    }
    let key = |line: &&str| line.split(' ').next().unwrap().to_owned();
    let mut found: Vec<String> = defaults.iter().chain(&examples).map(key).collect();
    found.sort();
    for names in keys() {
        let of_option = found.iter().filter(|key| names.contains(key)).count();
        assert_eq!(of_option, 1, "{names:?} in the sample configuration");
    }
    assert_eq!(found.len(), keys().len());
}
