//! The share of a turn that one connection has. The clock moves with what the engine executes.

use super::*;
use crate::budget::SHARE;
use corewise_wire::resp::CommandCodec;

/// What an operation takes on the clock of a [`slow_server`].
const OPERATION: Duration = Duration::from_micros(100);

/// A server with an engine whose operations take long.
fn slow_server(completion: Completion) -> TestServer {
    let mut server = TestServer::new(completion);
    let engine = Arc::clone(&server.engine);
    let clock = move || OPERATION * engine.script.lock().executed.len() as u32;
    server.event_loop.budget.clock = Box::new(clock);
    server
}

/// The most operations in a turn, for a connection whose steps have this number of them. A queue
/// of the engine is executed to its end.
fn most(step: usize, completion: Completion) -> usize {
    let share = SHARE.as_nanos() / OPERATION.as_nanos();
    share as usize + 2 * step + queue_of(completion)
}

#[test]
fn a_connection_has_a_share_of_a_turn_for_its_calls() {
    const REQUESTS: usize = 50;
    for &completion in COMPLETIONS {
        let mut server = slow_server(completion);
        let mut clients: Vec<Client> = (0..3)
            .map(|_| server.connect_with(CommandCodec::new(true)))
            .collect();
        let mut other = server.connect();
        server.set("w", b"w");
        let request = format!("exists{}\r\necho x\r\n", " k".repeat(8));
        for client in &mut clients {
            client.send(request.repeat(REQUESTS).as_bytes());
        }
        let mut replies = vec![Vec::new(); clients.len()];
        while replies.iter().any(|replies| replies.len() < 11 * REQUESTS) {
            other.send(b"get w\r\n");
            let before = server.executed().len();
            server.turn();
            assert_eq!(other.taken(), hit("w", "w"), "{completion:?}");
            let executed = server.executed().len() - before - 1;
            assert!(
                executed <= clients.len() * most(8, completion),
                "{executed}"
            );
            for (client, replies) in clients.iter_mut().zip(&mut replies) {
                let before = replies.len();
                client.take(replies);
                assert!(replies.len() > before, "a connection was not served");
            }
        }
        for replies in replies {
            let expected = ":0\r\n$1\r\nx\r\n".repeat(REQUESTS);
            assert_same(&String::from_utf8(replies).unwrap(), &expected);
        }
        assert!(server.counters().conn_yields > 0);
    }
}

#[test]
fn a_connection_has_a_share_of_a_turn_for_operations_on_large_values() {
    const REQUESTS: usize = 300;
    const STEP: usize = 3;
    for &completion in COMPLETIONS {
        let mut server = slow_server(completion);
        let (mut client, mut other) = (server.connect(), server.connect());
        server.set("v", &vec![b'v'; OUTPUT_PAUSE / STEP]);
        server.set("w", b"w");
        // The last requests depend on the state of the codec.
        let request = "append v 0 0 1\r\nx\r\nmn\r\n".repeat(REQUESTS) + "get w w\r\n";
        client.send(request.as_bytes());
        let mut replies = String::new();
        while !replies.ends_with("END\r\n") {
            other.send(b"get w\r\n");
            let before = server.executed().len();
            server.turn();
            assert_eq!(other.taken(), hit("w", "w"), "{completion:?}");
            let executed = server.executed().len() - before - 1;
            assert!(executed <= most(STEP, completion), "{executed}");
            replies += &client.taken();
        }
        let expected = "STORED\r\nMN\r\n".repeat(REQUESTS) + &hit("w", "w").replace("END\r\n", "");
        let expected = expected + &hit("w", "w");
        assert_same(&replies, &expected);
        assert_eq!(
            server
                .executed()
                .iter()
                .filter(|line| *line == "store v")
                .count(),
            REQUESTS
        );
    }
}

#[test]
fn a_multiget_goes_on_where_its_share_ended() {
    for &completion in COMPLETIONS {
        let mut server = slow_server(completion);
        let mut client = server.connect();
        server.set("v", b"v");
        let times = 3 * BATCH + 5;
        let line = format!("get{}\r\n", " v".repeat(times));
        let replies = server.talk(&mut client, line.as_bytes());
        assert_same(
            &replies,
            &("VALUE v 0 1\r\nv\r\n".repeat(times) + "END\r\n"),
        );
        assert!(server.counters().conn_yields > 0);
    }
}

#[test]
fn a_stopping_loop_does_not_wait_for_all_requests_of_a_pipeline() {
    let mut server = slow_server(Completion::InSubmit);
    let mut client = server.connect_with(CommandCodec::new(true));
    let request = format!("exists{}\r\n", " k".repeat(40));
    client.send(request.repeat(100).as_bytes());
    server.inbox.close();
    server.turn();
    assert_eq!(client.taken(), ":0\r\n");
    assert!(!server.event_loop.is_drained(server.now));
    server.now.ms += DRAIN_MS;
    server.turn();
    assert_eq!(client.taken(), ":0\r\n");
    assert!(server.event_loop.is_drained(server.now));
}

#[test]
fn a_flush_that_follows_a_flush_is_the_same() {
    for resp in [false, true] {
        let mut server = TestServer::new(Completion::InSubmit);
        let (mut client, flush, get) = if resp {
            let client = server.connect_with(CommandCodec::new(true));
            (client, "flushall\r\nflushdb async\r\n", "get k\r\n")
        } else {
            (
                server.connect(),
                "flush_all\r\nflush_all 0\r\n",
                "get k\r\n",
            )
        };
        let flushes = flush.repeat(100);
        let request = format!("{flushes}{get}{flushes}bogus\r\n{flushes}verbosity 1\r\n{flushes}");
        let replies = server.talk(&mut client, request.as_bytes());
        assert_eq!(replies.matches("OK\r\n").count(), 800 + usize::from(!resp));
        let executed = ["flush", "get k", "flush", "flush", "flush"];
        assert_eq!(server.executed(), executed);
        assert_eq!(server.counters().cmd_flush, 800);
        // What is between two flushes is executed between them, also if it is in a transaction.
        if resp {
            let request =
                "flushall\r\nmulti\r\nflushall\r\nset k v\r\nexec\r\nflushall\r\nget k\r\n";
            let replies = server.talk(&mut client, request.as_bytes());
            assert!(replies.ends_with("+OK\r\n$-1\r\n"), "{replies}");
        }
    }
}

/// Serves both clients until `client` has its reply, with a `get w` of the other client in each
/// turn, and returns the reply and the number of turns.
fn converse(server: &mut TestServer, client: &mut Client, other: &mut Client) -> (String, usize) {
    let (mut reply, mut turns) = (String::new(), 0);
    while reply.is_empty() {
        other.send(b"get w\r\n");
        let before = server.executed().len();
        server.turn();
        turns += 1;
        assert_eq!(other.taken(), hit("w", "w"));
        let executed = server.executed().len() - before - 1;
        assert!(executed <= most(64, Completion::InSubmit), "{executed}");
        reply = client.taken();
    }
    (reply, turns)
}

#[test]
fn a_long_call_goes_on_where_its_share_ended() {
    const KEYS: usize = 500;
    let mut server = slow_server(Completion::InSubmit);
    let (mut client, mut other) = (
        server.connect_with(CommandCodec::new(true)),
        server.connect(),
    );
    server.set("w", b"w");
    let keys: Vec<String> = (0..KEYS).map(|i| format!("k{i:04}")).collect();
    for key in &keys {
        server.set(key, b"v");
    }
    let all = keys.join(" ");
    for (name, count) in [
        ("touch", KEYS),
        ("exists", KEYS),
        ("del", KEYS),
        ("unlink", 0),
    ] {
        client.send(format!("client reply skip\r\necho x\r\n{name} {all} none\r\n").as_bytes());
        let (reply, turns) = converse(&mut server, &mut client, &mut other);
        assert_eq!(reply, format!(":{count}\r\n"), "{name}");
        assert!(turns > 5, "{turns}");
    }
    let calls = server.counters().resp_calls;
    client.send(format!("client reply skip\r\ndel {all}\r\nget w\r\n").as_bytes());
    let (reply, turns) = converse(&mut server, &mut client, &mut other);
    assert_eq!(reply, "$1\r\nw\r\n");
    assert!(turns > 5, "{turns}");
    assert_eq!(server.counters().resp_calls, calls + 2);
}

#[test]
fn keys_are_listed_in_steps() {
    const KEYS: usize = 20_000;
    let mut server = slow_server(Completion::InSubmit);
    let (mut client, mut other) = (
        server.connect_with(CommandCodec::new(true)),
        server.connect(),
    );
    server.set("w", b"w");
    let keys: Vec<String> = (0..KEYS).map(|i| format!("k{i:05}")).collect();
    for key in &keys {
        server.set(key, b"v");
    }
    client.send(b"keys k0*5\r\n");
    let (mut reply, turns) = converse(&mut server, &mut client, &mut other);
    assert!(turns > 10, "{turns}");
    let held = |server: &TestServer| {
        server
            .event_loop
            .conns
            .iter()
            .map(|(_, conn)| conn.held().input)
            .sum::<usize>()
    };
    let wanted: Vec<&String> = keys
        .iter()
        .filter(|key| key.starts_with("k0") && key.ends_with('5'))
        .collect();
    let expected = format!("*{}\r\n", wanted.len())
        + &wanted
            .iter()
            .map(|key| format!("$6\r\n{key}\r\n"))
            .collect::<String>();
    reply += &server.talk(&mut client, b"");
    assert_same(&reply, &expected);
    // What is found counts as memory of the connection until then.
    client.send(b"keys *\r\n");
    server.turn();
    server.turn();
    let early = held(&server);
    assert!(early > 20 * 64 * 12, "{early}");
    let reply = server.talk(&mut client, b"");
    assert!(reply.starts_with(&format!("*{}\r\n", KEYS + 1)));
    assert!(held(&server) < early);
}
