//! `INFO` and `CLIENT INFO` beside those of redis-server: the same fields, in the same order, with
//! the same values where these do not depend on the program or on time.

use crate::common;

use common::resp::{connect, converse, read_element, start};
use common::{Client, Engine, Redis, TestServer, skip, wait_until};

for_every_engine! { of corewise:
    info_has_the_sections_and_fields_of_redis
    commands_and_errors_are_counted_as_by_redis
    a_client_is_described_with_the_fields_of_redis
}

#[test]
fn what_others_do_is_told_within_a_sweep() {
    let server = TestServer::with(&["--resp", "127.0.0.1:0"]);
    let (mut client, mut other) = (connect(&server), connect(&server));
    other.ask("client setname other\r\nmulti\r\n", "+OK\r\n+OK\r\n");
    other.ask("set k 1\r\nget k\r\n", "+QUEUED\r\n+QUEUED\r\n");
    wait_until("the other client's transaction is listed", || {
        let list = text(&mut client, "client list");
        let mut lines = list.lines();
        let line = lines.find(|line| line.contains(" name=other "));
        let line = line.expect("the client is listed");
        line.contains(" flags=x ") && line.contains(" multi=2 ") && line.contains(" cmd=get ")
    });
    other.ask("exec\r\n", "*2\r\n+OK\r\n$1\r\n1\r\n");
    // A rate is more than 0 as long as there are requests.
    wait_until("there is a rate", || {
        let info = text(&mut client, "info stats");
        !info.contains("instantaneous_ops_per_sec:0\r\n")
    });
}

/// Fields of `INFO` that Redis does not have.
const OURS: &[&str] = &[
    "corewise_version",
    "corewise_engine",
    "io_threads",
    "corewise_operations",
    "corewise_resp_calls",
];

/// Fields whose values depend on the program, the machine or time.
const DIFFERENT: &[&str] = &[
    "redis_build_id",
    "atomicvar_api",
    "gcc_version",
    "process_id",
    "run_id",
    "server_time_usec",
    "uptime_in_seconds",
    "hz",
    "configured_hz",
    "lru_clock",
    "executable",
    "maxclients",
    "client_recent_max_input_buffer",
    "client_recent_max_output_buffer",
    "used_memory",
    "used_memory_human",
    "used_memory_rss",
    "used_memory_rss_human",
    "used_memory_peak",
    "used_memory_peak_human",
    "used_memory_peak_perc",
    "used_memory_overhead",
    "used_memory_startup",
    "used_memory_dataset",
    "used_memory_dataset_perc",
    "allocator_allocated",
    "allocator_active",
    "allocator_resident",
    "used_memory_lua",
    "used_memory_vm_eval",
    "used_memory_lua_human",
    "used_memory_vm_functions",
    "used_memory_vm_total",
    "used_memory_vm_total_human",
    "used_memory_functions",
    "used_memory_scripts",
    "used_memory_scripts_human",
    "maxmemory",
    "maxmemory_human",
    "maxmemory_policy",
    "allocator_frag_ratio",
    "allocator_frag_bytes",
    "allocator_rss_ratio",
    "allocator_rss_bytes",
    "rss_overhead_ratio",
    "rss_overhead_bytes",
    "mem_fragmentation_ratio",
    "mem_fragmentation_bytes",
    "mem_clients_normal",
    "mem_allocator",
    "rdb_changes_since_last_save",
    "rdb_last_save_time",
    "instantaneous_ops_per_sec",
    "total_net_input_bytes",
    "total_net_output_bytes",
    "instantaneous_input_kbps",
    "instantaneous_output_kbps",
    "expire_cycle_cpu_milliseconds",
    "total_reads_processed",
    "total_writes_processed",
    "reply_buffer_shrinks",
    "reply_buffer_expands",
    "master_replid",
    "repl_backlog_size",
    "used_cpu_sys",
    "used_cpu_user",
    "used_cpu_sys_main_thread",
    "used_cpu_user_main_thread",
    "db0",
];

/// The text that is the reply to a request.
fn text(client: &mut Client, request: &str) -> String {
    client.send(format!("{request}\r\n").as_bytes());
    let reply = String::from_utf8(read_element(client)).expect("text");
    let (_, text) = reply.split_once("\r\n").expect("a bulk string");
    text.trim_end_matches("\r\n").to_owned() + "\r\n"
}

/// The sections and fields of `INFO`, without those of ours; the fields of sections whose fields
/// depend on what was done are left out.
fn fields(client: &mut Client, request: &str) -> Vec<(String, String)> {
    let mut fields = Vec::new();
    for line in text(client, request).lines() {
        let (name, value) = line.split_once(':').unwrap_or((line, ""));
        let depends = ["cmdstat_", "errorstat_", "latency_percentiles"];
        let is_left_out = depends.iter().any(|prefix| name.starts_with(prefix));
        if !is_left_out && !OURS.contains(&name) {
            fields.push((name.to_owned(), value.to_owned()));
        }
    }
    fields
}

fn is_number(value: &str) -> bool {
    value.trim_end_matches('%').parse::<f64>().is_ok()
}

fn info_has_the_sections_and_fields_of_redis(engine: Engine) {
    let server = start(engine, &[]);
    let Some(redis) = Redis::start() else {
        return skip("redis-server is not installed");
    };
    let mut clients = [connect(&server), redis.connect()];
    for client in &mut clients {
        converse(
            client,
            &[
                (
                    "config resetstat\r\nset a 1\r\nset b 2 ex 1000",
                    "+OK\r\n+OK\r\n+OK\r\n",
                ),
                (
                    "get a\r\nget none\r\nget",
                    "$1\r\n1\r\n$-1\r\n-ERR wrong number of arguments for 'get' command\r\n",
                ),
            ],
        );
    }
    for request in [
        "info",
        "info default",
        "info all",
        "INFO Everything",
        "info server",
        "info stats CLIENTS stats",
        "info default commandstats",
        "info modules",
        "info latencystats foo",
        "info foo",
        "info keyspace",
        "info replication cpu cluster memory persistence errorstats",
    ] {
        let [ours, theirs] = clients.each_mut().map(|client| fields(client, request));
        let names = |fields: &[(String, String)]| -> Vec<String> {
            fields.iter().map(|(name, _)| name.clone()).collect()
        };
        assert_eq!(names(&ours), names(&theirs), "{request}");
        for ((name, our_value), (_, their_value)) in ours.iter().zip(&theirs) {
            if name == "os" || name == "tcp_port" {
                continue; // redis-server has a Unix socket only, here
            }
            if !DIFFERENT.contains(&&**name) {
                assert_eq!(our_value, their_value, "{name}");
            } else if !["redis_build_id", "run_id", "master_replid"].contains(&&**name) {
                assert_eq!(
                    is_number(our_value),
                    is_number(their_value),
                    "{name}: {our_value}"
                );
            }
        }
    }
    let keyspace = text(&mut clients[0], "info keyspace");
    let (_, rest) = keyspace
        .split_once("db0:keys=2,expires=1,avg_ttl=")
        .expect(&keyspace);
    let ttl: u32 = rest.trim_end().parse().unwrap();
    assert!((900_000..=1_000_000).contains(&ttl), "{ttl}");
    let server_section = text(&mut clients[0], "info server");
    let port = format!("tcp_port:{}\r\n", server.resp_address().port());
    assert!(server_section.contains(&port), "{server_section}");
}

/// The lines of `Commandstats` and `Errorstats`, without times and sorted.
fn counts(client: &mut Client) -> Vec<String> {
    let text = text(client, "info commandstats errorstats");
    let lines = text.lines().filter(|line| line.contains("stat_"));
    let without_times = |line: &str| {
        let fields = line.split(',').filter(|field| !field.starts_with("usec"));
        fields.collect::<Vec<_>>().join(",")
    };
    let mut lines: Vec<String> = lines.map(without_times).collect();
    lines.sort();
    lines
}

fn commands_and_errors_are_counted_as_by_redis(engine: Engine) {
    let server = start(engine, &[]);
    let Some(redis) = Redis::start() else {
        return skip("redis-server is not installed");
    };
    let [ours, theirs] = [connect(&server), redis.connect()].map(|mut client| {
        client.ask("config resetstat\r\n", "+OK\r\n");
        let requests = "set a x\r\nget a\r\nget a\r\nget none\r\nincr a\r\nget\r\nmget a b c\r\n\
                        foo\r\nclient foo\r\nclient getname\r\nclient setname\r\nset a 1 ex 0\r\n\
                        set a 1 foo\r\ndel a b\r\nping\r\nobject encoding none\r\nexec\r\nmulti\r\n\
                        set n 1\r\nget\r\nexec\r\nmulti\r\nset n 1\r\nincr n\r\nincrby n x\r\n\
                        exec\r\nconfig get foo\r\nobject freq none\r\nhello 9\r\nauth x\r\n";
        client.send(requests.as_bytes());
        // The last two.
        client.read_until(b"-NOPROTO unsupported protocol version\r\n");
        client.read_until(b"\r\n");
        counts(&mut client)
    });
    assert_eq!(ours, theirs);
    let mut client = connect(&server);
    let info = text(&mut client, "info stats");
    assert!(info.contains("total_error_replies:"), "{info}");
    // Calls are timed, and so are the first operations.
    let info = text(&mut client, "info commandstats");
    for command in ["cmdstat_config|get:", "cmdstat_get:"] {
        let mut lines = info.lines();
        let line = lines.find(|line| line.starts_with(command));
        let line = line.expect("a line");
        assert!(!line.contains("usec_per_call=0.00"), "{line}");
    }
}

/// The names of the fields of a line on a client.
fn names(line: &str) -> Vec<&str> {
    let fields = line.trim_end().split(' ');
    fields
        .map(|field| field.split('=').next().unwrap())
        .collect()
}

fn a_client_is_described_with_the_fields_of_redis(engine: Engine) {
    let server = start(engine, &[]);
    let Some(redis) = Redis::start() else {
        return skip("redis-server is not installed");
    };
    let (mut ours, mut theirs) = (connect(&server), redis.connect());
    for version in ["2", "3"] {
        let [own, other] = [&mut ours, &mut theirs].map(|client| {
            client.send(format!("hello {version}\r\n").as_bytes());
            client.send(b"echo end\r\n");
            client.read_until(b"end\r\n");
            client.send(b"multi\r\nset k v\r\n");
            client.read_until(b"+QUEUED\r\n");
            client.send(b"discard\r\n");
            client.read_until(b"+OK\r\n");
            text(client, "client info")
        });
        assert_eq!(names(&own), names(&other));
        for field in [
            format!(" resp={version}\n"),
            " cmd=client|info user=default ".to_owned(),
            " flags=N db=0 sub=0 psub=0 ssub=0 multi=-1 ".to_owned(),
        ] {
            let has = |line: &str| line.replace('\r', "").contains(&field);
            assert!(has(&own), "{field}: {own}");
        }
        let list = text(&mut ours, "client list");
        assert_eq!(list.trim_end().lines().count(), 1, "{list}");
        assert_eq!(names(&list), names(&other));
    }
}
