//! Connections of the protocol of \[CPHASH\], alone and beside memcached's.

use super::*;
use corewise_wire::cphash::{self, KeyNumber};

fn key(number: u64) -> KeyNumber {
    KeyNumber::new(number).unwrap()
}

fn lookup(number: u64) -> Vec<u8> {
    let mut out = Vec::new();
    cphash::encode_lookup(key(number), &mut out);
    out
}

fn insert(number: u64, value: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    cphash::encode_insert(key(number), value.len() as u32, &mut out);
    out.extend_from_slice(value);
    out
}

fn found(value: &[u8]) -> Vec<u8> {
    [&(value.len() as u32).to_le_bytes(), value].concat()
}

const MISS: [u8; 4] = [0; 4];

fn text(number: u64) -> String {
    String::from_utf8(key(number).text().to_vec()).unwrap()
}

/// Sends `request` and returns all replies, once nothing more happens.
fn talk(server: &mut TestServer, client: &mut Client, request: &[u8]) -> Vec<u8> {
    let (mut sent, mut replies) = (0, Vec::new());
    for _ in 0..100_000 {
        let more = client.send_some(&request[sent..]);
        sent += more;
        server.turn();
        let before = replies.len();
        client.take(&mut replies);
        if server.event_loop.ready.is_empty() && more == 0 && replies.len() == before {
            return replies;
        }
    }
    panic!("the server answers and answers");
}

#[test]
fn both_protocols_share_items_and_batches() {
    let mut server = TestServer::new();
    let mut memcached = server.connect();
    let mut binary = server.connect_with(cphash::Codec::default());
    memcached.send(format!("set {} 5 0 1\r\na\r\nget {}\r\n", text(1), text(2)).as_bytes());
    binary.send(&[insert(2, b"bb"), lookup(1), lookup(2), lookup(3)].concat());
    let before = server.counters().batches;
    server.turn();
    assert_eq!(server.counters().batches, before + 1);
    // The connections are served in the order in which they became ready.
    assert_eq!(memcached.taken(), "STORED\r\nEND\r\n");
    let mut replies = Vec::new();
    binary.take(&mut replies);
    let expected = [found(b"a"), found(b"bb"), MISS.to_vec()].concat();
    assert_eq!(replies, expected);
    let replies = server.talk(&mut memcached, format!("get {}\r\n", text(2)).as_bytes());
    assert_eq!(replies, hit(&text(2), "bb"));
}

#[test]
fn lookups_and_inserts_are_counted_as_gets_and_sets() {
    let mut server = TestServer::new();
    let mut client = server.connect_with(cphash::Codec::default());
    let most = cphash::max_value_len(&server.event_loop.shared.limits.memcached);
    let request = [
        insert(1, b"a"),
        lookup(1),
        lookup(2),
        insert(3, &vec![b'x'; most + 1]),
    ];
    assert_eq!(
        talk(&mut server, &mut client, &request.concat()),
        [found(b"a"), MISS.to_vec()].concat()
    );
    let counts = server.counters();
    assert_eq!((counts.cmd_set, counts.store_too_large), (1, 1));
    assert_eq!(
        (counts.cmd_get, counts.get_hits, counts.get_misses),
        (2, 1, 1)
    );
}

#[test]
fn a_client_that_reads_nothing_is_paused_and_rewound() {
    const TIMES: usize = 300;
    for bytes in [600, LARGE + 5] {
        let mut server = TestServer::new();
        let mut slow = server.connect_with(cphash::Codec::default());
        let value = vec![b'v'; bytes];
        server.set(&text(1), &value);
        let mut expected = Vec::new();
        let mut request = Vec::new();
        for n in 0..TIMES {
            request.extend(insert(2, n.to_string().as_bytes()));
            request.extend([lookup(2), lookup(1)].concat());
            expected.extend([found(n.to_string().as_bytes()), found(&value)].concat());
        }
        let (mut sent, mut replies, mut turns) = (0, Vec::new(), 0);
        while replies.len() < expected.len() {
            sent += slow.send_some(&request[sent..]);
            server.turn();
            let bound = OUTPUT_PAUSE + bytes + 100;
            assert!(server.waiting_bytes() <= bound);
            turns += 1;
            // It begins to read after a while.
            if turns > 20 {
                slow.take(&mut replies);
            }
            assert!(turns < 1_000_000, "the server stopped answering");
        }
        assert!(replies == expected, "{bytes}");
        assert!(bytes < LARGE || server.counters().conn_yields > 0);
    }
}

#[test]
fn a_large_value_is_received_in_place_and_nothing_follows_it() {
    for reserves in [true, false] {
        let mut server = TestServer::new();
        server.engine.script.lock().reserves = reserves;
        let mut client = server.connect_with(cphash::Codec::default());
        let value = vec![b'l'; 100_000];
        let behind = [lookup(1), insert(2, b"x"), lookup(2)].concat();
        let request = [insert(1, &value), behind].concat();
        let expected = [found(&value), found(b"x")].concat();
        assert!(talk(&mut server, &mut client, &request) == expected);
        let stored = server.engine.script.lock().stored_reserved;
        assert_eq!(
            (stored, server.engine.reservations()),
            (usize::from(reserves), 0)
        );
    }
}

/// Where a request is cut makes no difference, nor whether values are received in place.
#[test]
fn cuts_change_nothing() {
    let value = vec![b'l'; 40_000];
    let request = [
        lookup(1),
        insert(1, &value),
        lookup(1),
        insert(1, b"s"),
        lookup(1),
    ]
    .concat();
    let expected = [MISS.to_vec(), found(&value), found(b"s")].concat();
    let end = request.len();
    let cuts = (0..40)
        .chain([1_000, 33_000])
        .chain(40_020..40_045)
        .chain(end - 20..end);
    for cut in cuts {
        for reserves in [true, false] {
            let mut server = TestServer::new();
            server.engine.script.lock().reserves = reserves;
            let mut client = server.connect_with(cphash::Codec::default());
            let mut replies = talk(&mut server, &mut client, &request[..cut]);
            replies.extend(talk(&mut server, &mut client, &request[cut..]));
            assert!(replies == expected, "cut at {cut}");
        }
    }
}

#[test]
fn a_malformed_header_closes_behind_the_replies_to_earlier_requests() {
    let mut server = TestServer::new();
    let mut client = server.connect_with(cphash::Codec::default());
    let request = [insert(1, b"a"), lookup(1), vec![9; 16], insert(1, b"b")].concat();
    assert_eq!(talk(&mut server, &mut client, &request), found(b"a"));
    assert!(client.is_closed);
    assert_eq!(
        server.executed(),
        [format!("store {}", text(1)), format!("get {}", text(1))]
    );
}

#[test]
fn what_is_received_before_the_end_is_answered() {
    for rest in [0, 1, 4, 15, 17] {
        let mut server = TestServer::new();
        let mut client = server.connect_with(cphash::Codec::default());
        client.send(
            &[
                insert(1, b"a"),
                lookup(1),
                insert(2, b"bb")[..rest].to_vec(),
            ]
            .concat(),
        );
        client.stream.shutdown(std::net::Shutdown::Write).unwrap();
        let mut replies = Vec::new();
        for _ in 0..10 {
            server.turn();
            client.take(&mut replies);
        }
        assert_eq!(replies, found(b"a"));
        assert!(client.is_closed, "{rest}");
        assert_eq!(
            server.engine.script.lock().model.items.len(),
            1,
            "an unfinished request is dropped"
        );
    }
}

#[test]
fn a_value_for_which_connections_have_no_memory_is_skipped_and_leaves_a_miss() {
    let config = Config {
        connection_memory: Some(FREE as u64),
        ..Config::default()
    };
    let mut server = TestServer::with(config.clone());
    let mut client = server.connect_with(cphash::Codec::default());
    server.engine.script.lock().reserves = false;
    server.set(&text(1), b"old");
    let request = [insert(1, &vec![b'l'; 100_000]), lookup(1), lookup(2)].concat();
    // It waits for memory; meanwhile the socket's buffer may fill up.
    client.send(&request[..40_000]);
    for _ in 0..10 {
        server.turn();
    }
    assert_eq!(client.taken(), "");
    server.now.ms += WAIT_MS;
    let replies = talk(&mut server, &mut client, &request[40_000..]);
    assert_eq!(replies, MISS.repeat(2));
    let executed = ["delete", "get"].map(|verb| format!("{verb} {}", text(1)));
    assert_eq!(server.executed()[..2], executed);
    assert_eq!(server.counters().read_buf_oom, 1);
}
