//! Requests that arrive in parts: what their memory is charged, and that it is not refused.

use super::*;
use crate::commands::RespSession;
use crate::spare_inputs::input_capacity;
use corewise_wire::cphash::{self, KeyNumber};

/// A page of memory.
const PAGE: usize = 4 << 10;

/// Requests of about `len` bytes, each with the codec of its protocol and whether its length is
/// known from its start.
fn requests(len: usize) -> Vec<(Codec, Vec<u8>, bool)> {
    let value = "x".repeat(len.saturating_sub(50).max(1));
    let count = value.len();
    let keys = " k".repeat(len / 2 - 3);
    let count_of_keys = (len.saturating_sub(30) / 7).max(1);
    let each = "$1\r\nk\r\n".repeat(count_of_keys);
    let elements = 1 + count_of_keys;
    let mut insert = Vec::new();
    let key = KeyNumber::new(7).unwrap();
    cphash::encode_insert(key, count as u32, &mut insert);
    insert.extend_from_slice(value.as_bytes());
    cphash::encode_lookup(key, &mut insert);
    let memcached = || memcached::Codec::new(false).into();
    let resp = || RespSession::new(true).into();
    vec![
        (memcached(), format!("get{keys}\r\n").into(), false),
        (
            memcached(),
            format!("append k 0 0 {count}\r\n{value}\r\n").into(),
            true,
        ),
        (
            resp(),
            format!("*{elements}\r\n$6\r\nEXISTS\r\n{each}").into(),
            false,
        ),
        (
            resp(),
            format!("*3\r\n$6\r\nAPPEND\r\n$1\r\nk\r\n${count}\r\n{value}\r\n").into(),
            true,
        ),
        (cphash::Codec::default().into(), insert, true),
    ]
}

/// A server whose connections have only the memory that each of them is promised.
fn strict_server() -> TestServer {
    let config = Config {
        connection_memory: Some(0),
        ..Config::default()
    };
    let server = TestServer::with(config);
    server.engine.script.lock().reserves = false;
    server
}

#[test]
fn a_request_of_the_promised_length_is_never_refused_however_it_arrives() {
    for (len, parts) in [(12, 12), (100, 40), (3_000, 300), (20_000, 9), (FREE, 5)] {
        for (which, (_, request, _)) in requests(len).iter().enumerate() {
            assert!(request.len() <= FREE, "{which}: {}", request.len());
            let mut server = strict_server();
            server.set("k", b"");
            let mut clients: Vec<Client> = (0..3)
                .map(|_| server.connect_with(requests(len)[which].0))
                .collect();
            let part = request.len().div_ceil(parts);
            for (i, bytes) in request.chunks(part).enumerate() {
                for client in &mut clients {
                    let mut sent = client.send_some(bytes);
                    for _ in 0..3 {
                        server.turn();
                        sent += client.send_some(&bytes[sent..]);
                    }
                    assert_eq!(sent, bytes.len(), "{which}: part {i} of {len} bytes");
                }
                server.now.ms += WAIT_MS;
            }
            for _ in 0..3 {
                server.turn();
            }
            assert_eq!(server.counters().read_buf_oom, 0, "{which}: {len} bytes");
            for client in &mut clients {
                let mut replies = Vec::new();
                client.take(&mut replies);
                assert!(!client.is_closed && !replies.is_empty(), "{which}: {len}");
            }
        }
    }
}

#[test]
fn an_unfinished_request_is_charged_what_has_arrived_of_it() {
    const CLIENTS: usize = 20;
    for (len, steps) in [(12, 12), (2_000, 200), (40_000, 12), (300_000, 40)] {
        for (which, (codec, request, is_known)) in requests(len).iter().enumerate() {
            let mut server = TestServer::new();
            server.engine.script.lock().reserves = false;
            let mut clients: Vec<Client> =
                (0..CLIENTS).map(|_| server.connect_with(*codec)).collect();
            let unfinished = &request[..request.len() - 20.min(request.len() / 2)];
            let mut arrived = 0;
            for bytes in unfinished.chunks(unfinished.len().div_ceil(steps)) {
                for client in &mut clients {
                    let mut sent = client.send_some(bytes);
                    while sent < bytes.len() {
                        server.turn();
                        sent += client.send_some(&bytes[sent..]);
                    }
                    server.turn();
                }
                arrived += bytes.len();
                server.turn();
                server.turn();
                let info = &server.event_loop.shared.loops[0];
                // Relaxed: one thread.
                let charged = info.input_bytes.load(Ordering::Relaxed) as usize;
                let most = CLIENTS * (arrived + PAGE);
                assert!(charged <= most, "{which}: {charged} for {arrived} bytes");
                let conns = server.event_loop.conns.iter();
                let held = conns.map(|(_, conn)| conn.held().sum()).max().unwrap();
                let least = 2 * arrived + PAGE;
                let most = if *is_known && (arrived > FREE || arrived * 5 >= len) {
                    least.max(input_capacity(request.len()))
                } else {
                    least
                };
                assert!(held <= most, "{which}: {held} for {arrived} of {len} bytes");
            }
            assert_eq!(server.counters().read_buf_oom, 0);
        }
    }
}

/// The allocator keeps pages of each size.
#[test]
fn inputs_have_few_sizes_however_requests_arrive() {
    let mut server = TestServer::new();
    server.engine.script.lock().reserves = false;
    let mut sizes = std::collections::BTreeSet::new();
    for len in (15_000..40_000).step_by(2_500) {
        for (codec, request, _) in requests(len).into_iter().filter(|request| request.2) {
            let mut client = server.connect_with(codec);
            for bytes in request.repeat(4).chunks(len / 3) {
                let mut sent = 0;
                while sent < bytes.len() && !client.is_closed {
                    sent += client.send_some(&bytes[sent..]);
                    server.turn();
                    let inputs = server.event_loop.conns.iter();
                    sizes.extend(inputs.map(|(_, conn)| conn.input.capacity()));
                    client.take(&mut Vec::new());
                }
            }
        }
    }
    assert!(sizes.len() > 4, "{sizes:?}");
    for size in sizes {
        assert!(size == 0 || size == input_capacity(size), "{size}");
    }
}

/// An engine that has no memory for a value of which little has arrived. RESP announces no values.
#[test]
fn a_value_is_received_in_place_once_a_quarter_of_it_is_there() {
    let [_, mut set, .., insert]: [_; 5] = requests(400_000).try_into().unwrap();
    let text = String::from_utf8(set.1).unwrap();
    set.1 = text.replacen("append", "set", 1).into();
    for (codec, request, _) in [set, insert] {
        let mut server = TestServer::new();
        server.engine.script.lock().least_arrived = 100_000;
        let mut client = server.connect_with(codec);
        for part in request.chunks(50_000) {
            let mut sent = 0;
            while sent < part.len() {
                sent += client.send_some(&part[sent..]);
                server.turn();
            }
            let conns = server.event_loop.conns.iter();
            let held = conns.map(|(_, conn)| conn.input.len()).max().unwrap();
            assert!(held <= 150_000, "{held}");
        }
        server.turn();
        assert_eq!(server.engine.script.lock().stored_reserved, 1);
    }
}

/// Otherwise the loop would let the connection wait between its next turns, too.
#[test]
fn a_connection_whose_value_is_received_in_place_waits_for_no_memory() {
    let mut server = strict_server();
    let mut client = server.connect();
    // So that the loop reads more than is promised to a connection at a time.
    for bytes in ["set a 0 0 20000\r\n".into(), "x".repeat(20_000) + "\r\n"] {
        server.talk(&mut client, bytes.as_bytes());
    }
    for bytes in [
        "set k 0 0 200000\r\n".to_owned() + &"x".repeat(60_000),
        "x".into(),
    ] {
        assert_eq!(client.send_some(bytes.as_bytes()), bytes.len());
        server.turn();
        server.turn();
    }
    assert_eq!(server.event_loop.waiting.len(), 1);

    server.engine.script.lock().reserves = true;
    server.turn();
    let (_, conn) = server.event_loop.conns.iter().next().unwrap();
    assert!(conn.receiving.is_some());
    assert_eq!(conn.waits_since_ms, None);
}

/// The promised memory is for the requests of a transaction, too.
#[test]
fn a_short_transaction_is_never_refused() {
    let mut server = strict_server();
    let mut client = server.connect_with(RespSession::new(true));
    let value = "x".repeat(1_000);
    let queued = format!("set k {value}\r\n").repeat(FREE / 1_100);
    let replies = server.talk(
        &mut client,
        format!("watch k\r\nmulti\r\n{queued}").as_bytes(),
    );
    assert_eq!(
        replies.matches("+QUEUED").count(),
        FREE / 1_100,
        "{replies}"
    );
    let replies = server.talk(&mut client, queued.as_bytes());
    assert!(
        replies.contains("-OOM"),
        "it is promised no more: {replies}"
    );
}
