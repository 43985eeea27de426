//! What clients ask to find out what kind of server they have: the replies are those of a
//! redis-server that stands alone.

use crate::common;

use common::resp::{connect, start};
use common::{Client, Engine, Redis, show, skip};

for_every_engine! { of corewise:
    probes_are_answered_as_by_a_redis_that_stands_alone
    slow_requests_are_logged_as_by_redis
}

const PROBES: &[&str] = &[
    "role",
    "role x",
    "cluster",
    "cluster info",
    "cluster nodes",
    "cluster slots",
    "CLUSTER keyslot a",
    "cluster keyslot",
    "cluster help",
    "cluster foo",
    "readonly",
    "readwrite",
    "wait 0 0",
    "wait x 0",
    "wait 0 x",
    "wait 0 -1",
    "latency latest",
    "latency history foo",
    "latency reset",
    "latency reset a b",
    "latency graph foo",
    "latency foo",
    "acl whoami",
    "acl list",
    "acl users",
    "acl cat",
    "acl cat foo",
    "acl cat a b",
    "acl getuser default",
    "acl getuser foo",
    "acl log",
    "acl log 5",
    "acl log reset",
    "acl log x",
    "acl log 5 x",
    "acl load",
    "acl save",
    "acl foo",
    "module",
    "module list",
    "module foo",
    "client tracking off",
    "client tracking foo",
    "client tracking off foo",
    "client getredir",
    "client caching yes",
    "client trackinginfo",
    "client kill user foo",
    "publish a b",
    "publish a",
    "pubsub channels",
    "pubsub channels a",
    "pubsub channels a b",
    "pubsub numsub",
    "pubsub numsub a b",
    "pubsub numpat",
    "pubsub shardchannels",
    "pubsub shardnumsub a",
    "pubsub foo",
    "config set timeout 0",
    "config set appendonly no",
    "config set save ''",
    "config set notify-keyspace-events '' timeout 0",
    "config get notify-keyspace-events",
    "config set databases 17",
    "config set timeout 0 timeout 0",
    "config set timeout 0 foo 1",
    "config set slowlog-log-slower-than x",
    "config set slowlog-log-slower-than -2",
    "config set slowlog-log-slower-than -1 slowlog-max-len 7",
    "config get slowlog-max-len",
    "config get slowlog-log-slower-than",
    "slowlog reset",
    "slowlog len",
    "slowlog get",
    "slowlog get -1",
    "slowlog get -2",
    "slowlog get x",
    "slowlog get 1 2",
    "slowlog foo",
    "slowlog",
    "command getkeys publish a b",
    "object freq none",
];

/// The reply to a line.
fn reply(client: &mut Client, line: &str) -> Vec<u8> {
    const END: &[u8] = b"+PONG\r\n";
    client.send(format!("{line}\r\nping\r\n").as_bytes());
    let mut reply = client.read_until(END);
    reply.truncate(reply.len() - END.len());
    reply
}

fn probes_are_answered_as_by_a_redis_that_stands_alone(engine: Engine) {
    let server = start(engine, &[]);
    let Some(redis) = Redis::start() else {
        return skip("redis-server is not installed");
    };
    let (mut ours, mut theirs) = (connect(&server), redis.connect());
    for version in ["2", "3"] {
        for client in [&mut ours, &mut theirs] {
            reply(client, &format!("hello {version}"));
        }
        for line in PROBES {
            let [our, their] = [&mut ours, &mut theirs].map(|client| reply(client, line));
            assert_eq!(show(&our), show(&their), "{line}");
        }
    }
    // What is of one server only.
    for (line, expected) in [
        (
            "config set timeout 5",
            "-ERR CONFIG SET failed (possibly related to argument 'timeout') - can't set immutable config\r\n",
        ),
        (
            "config set slowlog-max-len 1025",
            "-ERR CONFIG SET failed (possibly related to argument 'slowlog-max-len') - argument must be between 0 and 1024 inclusive\r\n",
        ),
        (
            "client tracking on",
            "-ERR this server does not track keys for client-side caching\r\n",
        ),
        (
            "subscribe a",
            "-ERR this server has no publish and subscribe\r\n",
        ),
        ("latency histogram", "%0\r\n"),
    ] {
        let reply = reply(&mut ours, line);
        assert_eq!(String::from_utf8_lossy(&reply), expected, "{line}");
    }
    let saved = reply(&mut ours, "lastsave");
    assert!(saved.starts_with(b":1") && saved.len() > 10, "{saved:?}");
    let list = |client: &mut Client| {
        let listed = String::from_utf8(reply(client, "acl cat bitmap")).unwrap();
        let mut names: Vec<String> = listed.lines().map(str::to_owned).collect();
        names.sort();
        names
    };
    assert_eq!(list(&mut ours), list(&mut theirs));
}

/// The slow log without numbers, times and addresses.
fn slow_log(client: &mut Client) -> Vec<String> {
    let log = String::from_utf8(reply(client, "slowlog get -1")).unwrap();
    let depends = |line: &&str| {
        line.starts_with(':')
            || line.starts_with('$')
            || line.contains(":0")
            || line.contains("127.0.0.1:")
    };
    log.lines()
        .filter(|line| !depends(line))
        .map(str::to_owned)
        .collect()
}

fn slow_requests_are_logged_as_by_redis(engine: Engine) {
    let server = start(engine, &[]);
    let Some(redis) = Redis::start() else {
        return skip("redis-server is not installed");
    };
    let mut clients = [connect(&server), redis.connect()];
    let many = format!("del {}", "k ".repeat(40));
    let long = format!("set k {}", "v".repeat(200));
    let logs = clients.each_mut().map(|client| {
        for line in [
            "client setname me",
            "config set slowlog-log-slower-than 0",
            "slowlog reset",
            "set k v",
            "get k",
            "mget a b",
            "incr k",
            "multi\r\nincr n\r\nexec",
            "foo",
            "get",
            "hello 2 setname you",
            "hello 2 auth default secret setname me",
            "auth default secret",
            &many,
            &long,
        ] {
            reply(client, line);
        }
        slow_log(client)
    });
    let [ours, theirs] = &logs;
    assert_eq!(ours, theirs);
    assert!(
        ours.iter().any(|line| line == "... (10 more arguments)"),
        "{ours:?}"
    );
    for client in &mut clients {
        reply(client, "config set slowlog-max-len 2");
        assert_eq!(reply(client, "slowlog len"), b":2\r\n");
        reply(client, "config set slowlog-log-slower-than -1");
        reply(client, "slowlog reset");
        reply(client, "get k");
        assert_eq!(reply(client, "slowlog len"), b":0\r\n");
    }
}
