//! memcached's binary protocol, server side. Requests and responses are written byte by byte here;
//! a test of the server compares them with those of a memcached.

use bumpalo::Bump;
use corewise_ops::{Absence, Deadline, Outcome, Verb};
use corewise_wire::binary::Codec;
use corewise_wire::memcached::{Admin, Limits, StatsRequest};
use corewise_wire::{Step, Tally};
use proptest::prelude::*;

use crate::binary_driver::{self as driver, Connection, NOW, error};

const GET: u8 = 0x00;
const SET: u8 = 0x01;
const ADD: u8 = 0x02;
const REPLACE: u8 = 0x03;
const DELETE: u8 = 0x04;
const INCREMENT: u8 = 0x05;
const DECREMENT: u8 = 0x06;
const QUIT: u8 = 0x07;
const FLUSH: u8 = 0x08;
const NOOP: u8 = 0x0a;
const VERSION: u8 = 0x0b;
const APPEND: u8 = 0x0e;
const PREPEND: u8 = 0x0f;
const STAT: u8 = 0x10;
const VERBOSITY: u8 = 0x1b;
const TOUCH: u8 = 0x1c;
/// Items of up to 141 bytes of key, flags and value are accepted.
fn limits() -> Limits {
    Limits {
        max_item_size: 200,
        ..Limits::default()
    }
}

/// The `number`-th cas value that the model gives; 0 means none.
fn cas(number: u64) -> u64 {
    if number == 0 { 0 } else { 1_000 + number }
}

/// A request, with the number of its cas value.
fn request(opcode: u8, number: u64, parts: [&[u8]; 3]) -> Vec<u8> {
    driver::request(opcode, cas(number), parts)
}

/// A response, with the number of its cas value.
fn response(opcode: u8, status: u16, number: u64, parts: [&[u8]; 3]) -> Vec<u8> {
    driver::response(opcode, status, cas(number), parts)
}

/// The state of a new connection after `requests`.
fn talk(requests: &[Vec<u8>]) -> Connection {
    let mut connection = Connection::new(limits());
    connection.feed(&requests.concat());
    connection
}

fn store(opcode: u8, cas: u64, value: &[u8]) -> Vec<u8> {
    request(opcode, cas, [&[0, 0, 0, 7, 0, 0, 0, 0], b"k", value])
}

fn get(opcode: u8) -> Vec<u8> {
    request(opcode, 0, [b"", b"k", b""])
}

fn count(opcode: u8, cas: u64, numbers: [u64; 2], exptime: u32) -> Vec<u8> {
    let [delta, initial] = numbers.map(u64::to_be_bytes);
    let extras = [&delta[..], &initial, &exptime.to_be_bytes()].concat();
    request(opcode, cas, [&extras, b"k", b""])
}

fn success(opcode: u8, cas: u64) -> Vec<u8> {
    response(opcode, 0, cas, [b"", b"", b""])
}

fn hit(opcode: u8, cas: u64, key: &[u8], value: &[u8]) -> Vec<u8> {
    response(opcode, 0, cas, [&[0, 0, 0, 7], key, value])
}

fn not_found(opcode: u8) -> Vec<u8> {
    error(opcode, 1, "Not found")
}

/// Sends all requests at once, expects these responses, and that the connection stays open.
fn expect(requests: &[Vec<u8>], responses: &[Vec<u8>]) {
    let connection = talk(requests);
    assert_eq!(connection.out, responses.concat());
    assert!(!connection.closed && connection.unread.is_empty());
}

#[test]
fn reads_return_flags_and_cas_and_the_key_if_asked() {
    let touched = |opcode| request(opcode, 0, [&[0, 0, 0, 9], b"k", b""]);
    let set = store(SET, 0, b"hello");
    for (opcode, ask, key) in [
        (GET, get(GET), &b""[..]),
        (0x09, get(0x09), b""),
        (0x0c, get(0x0c), b"k"),
        (0x0d, get(0x0d), b"k"),
        (0x1d, touched(0x1d), b""),
        (0x1e, touched(0x1e), b""),
        (0x23, touched(0x23), b"k"),
        (0x24, touched(0x24), b"k"),
    ] {
        let found = [success(SET, 1), hit(opcode, 1, key, b"hello")];
        expect(&[set.clone(), ask.clone()], &found);
        let is_quiet = [0x09, 0x0d, 0x1e, 0x24].contains(&opcode);
        let missing = match (is_quiet, key) {
            (true, _) => vec![],
            (false, b"") => not_found(opcode),
            (false, key) => response(opcode, 1, 0, [b"", key, b""]),
        };
        expect(&[ask], &[missing]);
    }
    let found = [success(SET, 1), hit(TOUCH, 1, b"", b"")];
    expect(&[set, touched(TOUCH)], &found);
    expect(&[touched(TOUCH)], &[not_found(TOUCH)]);
}

#[test]
fn stores_say_why_they_are_refused() {
    let exists = |opcode| error(opcode, 2, "Data exists for key.");
    let set = store(SET, 0, b"1");
    expect(&[store(ADD, 0, b"1")], &[success(ADD, 1)]);
    expect(&[store(REPLACE, 0, b"1")], &[not_found(REPLACE)]);
    let answers = [success(SET, 1), exists(ADD)];
    expect(&[set.clone(), store(ADD, 0, b"2")], &answers);
    for opcode in [SET, ADD, REPLACE] {
        let again = store(opcode, 1, b"2");
        expect(std::slice::from_ref(&again), &[not_found(opcode)]);
        let answers = [success(SET, 1), success(opcode, 2), exists(opcode)];
        expect(&[set.clone(), again.clone(), again], &answers);
    }
    for (opcode, value) in [(APPEND, b"1+"), (PREPEND, b"+1")] {
        let join = |cas| request(opcode, cas, [b"", b"k", b"+"]);
        expect(&[join(0)], &[error(opcode, 5, "Not stored.")]);
        expect(&[join(9)], &[error(opcode, 5, "Not stored.")]);
        let answers = [success(SET, 1), exists(opcode)];
        expect(&[set.clone(), join(9)], &answers);
        let answers = [success(SET, 1), success(opcode, 2), hit(GET, 2, b"", value)];
        expect(&[set.clone(), join(1), get(GET)], &answers);
    }
}

#[test]
fn a_delete_may_compare_the_cas_value() {
    let delete = |cas| request(DELETE, cas, [b"", b"k", b""]);
    expect(&[delete(0)], &[not_found(DELETE)]);
    let exists = error(DELETE, 2, "Data exists for key.");
    let answers = [success(SET, 1), exists, success(DELETE, 0), not_found(GET)];
    expect(
        &[store(SET, 0, b"1"), delete(9), delete(1), get(GET)],
        &answers,
    );
}

#[test]
fn counters_are_created_unless_the_expiry_time_forbids_it() {
    let number =
        |opcode, cas, value: u64| response(opcode, 0, cas, [b"", b"", &value.to_be_bytes()]);
    let many = u64::MAX - 1;
    expect(
        &[
            count(INCREMENT, 0, [5, many], 0),
            count(INCREMENT, 0, [3, 0], 0),
            count(DECREMENT, 9, [9, 0], 0),
            count(DECREMENT, 2, [9, 0], u32::MAX),
            get(GET),
        ],
        &[
            number(INCREMENT, 1, many),
            number(INCREMENT, 2, 1),
            error(DECREMENT, 2, "Data exists for key."),
            // The model has used a cas value for the refusal.
            number(DECREMENT, 4, 0),
            response(GET, 0, 4, [&[0; 4], b"", b"0                   "]),
        ],
    );
    expect(
        &[count(DECREMENT, 0, [5, 8], u32::MAX)],
        &[not_found(DECREMENT)],
    );
    // A cas value does not prevent the creation.
    expect(
        &[count(DECREMENT, 77, [5, 8], 1)],
        &[number(DECREMENT, 1, 8)],
    );
    let text = "Non-numeric server-side value for incr or decr";
    let answers = [success(SET, 1), error(INCREMENT, 6, text)];
    expect(
        &[store(SET, 0, b"x"), count(INCREMENT, 0, [1, 1], 0)],
        &answers,
    );
}

/// A quiet command, on the item `k`, and one of the same opcode that fails, with its status.
fn quiet_changes() -> Vec<(Vec<u8>, Vec<u8>, u16)> {
    let on = |opcode, cas, extras: &[u8], value: &[u8]| request(opcode, cas, [extras, b"k", value]);
    let new = request(0x12, 0, [&[0; 8], b"new", b"v"]);
    vec![
        (on(0x11, 0, &[0; 8], b"v"), on(0x11, 99, &[0; 8], b"v"), 2),
        (new, on(0x12, 0, &[0; 8], b"v"), 2),
        (on(0x13, 0, &[0; 8], b"v"), on(0x13, 99, &[0; 8], b"v"), 2),
        (on(0x14, 0, b"", b""), on(0x14, 99, b"", b""), 2),
        (on(0x15, 0, &[0; 20], b""), on(0x15, 99, &[0; 20], b""), 2),
        (on(0x16, 0, &[0; 20], b""), on(0x16, 99, &[0; 20], b""), 2),
        (on(0x19, 0, b"", b"v"), on(0x19, 0, b"", &[b'v'; 141]), 3),
        (on(0x1a, 0, b"", b"v"), on(0x1a, 99, b"", b"v"), 2),
    ]
}

#[test]
fn quiet_commands_answer_to_errors_only() {
    for (sound, failing, status) in quiet_changes() {
        let opcode = sound[1];
        let connection = talk(&[store(SET, 0, b"1"), sound]);
        assert_eq!(connection.out, success(SET, 1), "{opcode:#x}");
        let items = &connection.model.items;
        let changed = items.len() != 1 || items.values().any(|item| item.cas > cas(1));
        assert!(changed, "{opcode:#x}");
        let answers = talk(&[store(SET, 0, b"1"), failing]).out;
        assert_eq!(answers[24..26], [0x81, opcode]);
        assert_eq!(answers[30..32], status.to_be_bytes(), "{opcode:#x}");
    }
}

#[test]
fn the_connection_ends_with_quit() {
    for (opcode, answer) in [(QUIT, success(QUIT, 0)), (0x17, vec![])] {
        let connection = talk(&[request(opcode, 0, [b""; 3]), get(GET)]);
        assert!(connection.closed);
        assert_eq!(connection.out, answer);
    }
}

#[test]
fn commands_without_a_key_are_answered() {
    let version = b"1.6.45-corewise-";
    let connection = talk(&[request(VERSION, 0, [b""; 3])]);
    assert_eq!(connection.out[24..][..version.len()], *version);
    assert!(!connection.out.ends_with(b"\n"));
    let requests = [
        request(NOOP, 0, [b""; 3]),
        request(VERBOSITY, 0, [&[0, 0, 0, 1], b"", b""]),
        store(SET, 0, b"1"),
        request(0x18, 0, [b""; 3]),
        get(GET),
        request(FLUSH, 0, [&[0; 4], b"", b""]),
    ];
    let responses = [
        success(NOOP, 0),
        success(VERBOSITY, 0),
        success(SET, 1),
        not_found(GET),
        success(FLUSH, 0),
    ];
    expect(&requests, &responses);
    let mut connection = Connection::new(Limits {
        flush_enabled: false,
        ..limits()
    });
    connection.feed(&requests[3]);
    assert_eq!(connection.out, error(0x18, 0x20, "Auth failure."));
}

/// The server's command that a request stands for.
fn admin(request: &[u8], check: impl FnOnce(Admin<'_>)) {
    let (limits, scratch) = (limits(), Bump::new());
    match Codec::default().next(request, &limits, NOW, &scratch) {
        Step::Call { consumed, call } => {
            assert_eq!(consumed, request.len());
            check(call.admin);
        }
        step => panic!("{step:?}"),
    }
}

#[test]
fn a_flush_may_be_delayed() {
    let date = (NOW.unix_s as u32 + 4).to_be_bytes();
    let past = (NOW.unix_s as u32 - 4).to_be_bytes();
    for (delay, at) in [
        (&b""[..], None),
        (&[0; 4], None),
        (&[0, 0, 0, 9], Some(NOW.ms + 9_000)),
        (&date, Some(NOW.ms + 4_000)),
        (&past, Some(0)),
    ] {
        admin(&request(FLUSH, 0, [delay, b"", b""]), |admin| {
            let at = at.map(Deadline::at_ms);
            assert_eq!(admin, Admin::FlushAll { at, noreply: false });
        });
    }
}

#[test]
fn statistics_are_a_list_of_responses() {
    let part = |name: &[u8], value: &[u8]| response(STAT, 0, 0, [b"", name, value]);
    let list = [
        part(b"pid", b"42"),
        part(b"version", b"1 2"),
        part(b"", b""),
    ];
    expect(&[request(STAT, 0, [b""; 3])], &list);
    let text = b"STAT pid 42\r\nSTAT version 1 2\r\nEND\r\n";
    let dump = request(STAT, 0, [b"", b"detail dump", b""]);
    expect(&[dump], &[part(b"detailed", text), part(b"", b"")]);
    for name in [
        "nothing",
        "detail",
        "detail x",
        "item",
        "itemss",
        "cachedump 1 1",
        "conns",
    ] {
        let unknown = request(STAT, 0, [b"", name.as_bytes(), b""]);
        expect(&[unknown], &[not_found(STAT)]);
    }
    for (name, group) in [
        ("items", StatsRequest::Items),
        ("slabs", StatsRequest::Slabs),
        ("sizes", StatsRequest::Sizes),
        ("sizes_enable", StatsRequest::SizesEnable),
        ("sizes_disable", StatsRequest::SizesDisable),
        ("reset", StatsRequest::Reset),
        ("settings", StatsRequest::Settings),
        ("detail on", StatsRequest::DetailOn),
        ("detail off", StatsRequest::DetailOff),
        ("detail dump", StatsRequest::DetailDump),
    ] {
        let request = request(STAT, 0, [b"", name.as_bytes(), b""]);
        admin(&request, |admin| assert_eq!(admin, Admin::Stats(group)));
    }
    let mut secretive = Connection::new(Limits {
        dump_enabled: false,
        ..limits()
    });
    secretive.feed(&request(STAT, 0, [b"", b"detail on", b""]));
    assert_eq!(secretive.out, not_found(STAT));
}

#[test]
fn the_body_of_an_unknown_command_is_discarded() {
    for opcode in (0..=255).filter(|opcode| matches!(opcode, 0x1f | 0x21 | 0x22 | 0x25..)) {
        let unknown = request(opcode, 5, [b"", b"PLAIN", b"\x80user\0secret"]);
        let answers = [error(opcode, 0x81, "Unknown command"), not_found(GET)];
        expect(&[unknown, get(GET)], &answers);
    }
    let list = request(0x20, 0, [b""; 3]);
    let answers = [error(0x20, 0x81, "Unknown command"), not_found(GET)];
    expect(&[list, get(GET)], &answers);
}

/// Lengths of extras, key and body.
type Shape = (u8, u16, usize);

/// A request with these lengths, as its header shows them, and a body of about that length.
fn shape(opcode: u8, extras: u8, key: u16, body: usize) -> Vec<u8> {
    let mut bytes = request(opcode, 0, [b"", b"", &vec![b'x'; body.min(1 << 20)]]);
    bytes[2..4].copy_from_slice(&key.to_be_bytes());
    bytes[4] = extras;
    bytes[8..12].copy_from_slice(&(body as u32).to_be_bytes());
    bytes
}

#[test]
fn requests_of_a_wrong_shape_close_the_connection() {
    let mut table = vec![
        // Longer than the body.
        (shape(GET, 0, 2, 1), 0x81, "Unknown command"),
        (shape(SET, 8, 1, 8), 0x81, "Unknown command"),
        (shape(0xee, 1, 0, 0), 0x81, "Unknown command"),
        // Too long.
        (shape(GET, 0, 251, 251), 4, "Invalid arguments"),
        (shape(0xee, 0, 251, 251), 4, "Invalid arguments"),
        (shape(SET, 8, 1, (1 << 30) + 1), 4, "Invalid arguments"),
    ];
    let shapes: [(&[u8], &[Shape]); 9] = [
        (
            &[0, 9, 0x0c, 0x0d, 4, 0x14],
            &[(0, 0, 0), (1, 1, 2), (0, 1, 2)],
        ),
        (
            &[1, 2, 3, 0x11, 0x12, 0x13],
            &[(8, 0, 9), (7, 1, 9), (9, 1, 10)],
        ),
        (
            &[5, 6, 0x15, 0x16],
            &[(20, 0, 20), (19, 1, 20), (20, 1, 22)],
        ),
        (
            &[7, 0x0a, 0x0b, 0x17, 0x20],
            &[(0, 0, 1), (1, 0, 1), (0, 1, 1)],
        ),
        (&[8, 0x18], &[(4, 1, 5), (1, 0, 1), (0, 0, 1), (8, 0, 8)]),
        (
            &[0x0e, 0x0f, 0x19, 0x1a, 0x21, 0x22],
            &[(0, 0, 1), (1, 1, 2)],
        ),
        (&[0x10], &[(1, 0, 1)]),
        (
            &[0x1c, 0x1d, 0x1e, 0x23, 0x24],
            &[(4, 0, 4), (0, 1, 1), (8, 1, 9)],
        ),
        (&[0x1b], &[(0, 0, 0), (4, 1, 5), (4, 0, 5)]),
    ];
    for (opcodes, shapes) in shapes {
        for &opcode in opcodes {
            let wrong = |&(extras, key, body)| shape(opcode, extras, key, body);
            table.extend(shapes.iter().map(|s| (wrong(s), 4, "Invalid arguments")));
        }
    }
    for (bytes, status, text) in table {
        let connection = talk(&[get(GET), bytes.clone(), get(GET)]);
        assert!(connection.closed, "{bytes:x?}");
        let expected = [not_found(GET), error(bytes[1], status, text)].concat();
        assert_eq!(connection.out, expected, "{:x?}", &bytes[..24]);
    }
}

#[test]
fn another_first_byte_closes_after_the_replies_to_earlier_requests() {
    for first in (0..=255u8).filter(|&first| first != 0x80) {
        let connection = talk(&[get(GET), vec![first]]);
        assert!(connection.closed);
        assert_eq!(connection.out, not_found(GET));
    }
}

#[test]
fn what_follows_a_key_where_no_value_can_be_is_the_next_request() {
    let touch = request(TOUCH, 0, [&[0; 4], b"k", &get(GET)]);
    expect(&[touch], &[not_found(TOUCH), not_found(GET)]);
}

#[test]
fn a_store_over_the_limit_is_discarded_and_a_set_removes_the_old_item() {
    // A key of one byte and four of flags.
    let (fits, large) = (vec![b'x'; 136], vec![b'y'; 137]);
    let too_large = |opcode| error(opcode, 3, "Too large.");
    for (opcode, after) in [
        (SET, not_found(GET)),
        (0x11, not_found(GET)),
        (ADD, hit(GET, 1, b"", &fits)),
        (0x13, hit(GET, 1, b"", &fits)),
    ] {
        let requests = [store(SET, 0, &fits), store(opcode, 0, &large), get(GET)];
        expect(&requests, &[success(SET, 1), too_large(opcode), after]);
    }
    let joined = |length| request(APPEND, 0, [b"", b"k", &vec![b'z'; length]]);
    expect(&[joined(141)], &[too_large(APPEND)]);
    expect(&[joined(140)], &[error(APPEND, 5, "Not stored.")]);
}

#[test]
fn without_memory_a_value_is_discarded_and_an_unfinished_header_closes() {
    let text = "Out of memory allocating item";
    for (opcode, remains) in [(SET, false), (ADD, true), (APPEND, true)] {
        let mut connection = talk(&[store(SET, 0, b"old")]);
        connection.no_room = true;
        let next = match opcode {
            APPEND => request(APPEND, 0, [b"", b"k", b"hello"]),
            _ => store(opcode, 0, b"hello"),
        };
        let (most, last) = next.split_at(next.len() - 1);
        connection.feed(most);
        assert!(connection.codec.is_swallowing() && !connection.closed);
        connection.feed(last);
        assert!(!connection.codec.is_swallowing());
        let expected = [success(SET, 1), error(opcode, 0x82, text)].concat();
        assert_eq!(connection.out, expected);
        assert_eq!(connection.model.items.len(), usize::from(remains));
        connection.feed(&get(GET)[..9]);
        assert!(connection.closed);
    }
}

/// The operation of a request, and what it counts as.
fn operation(request: &[u8], check: impl FnOnce(Verb<'_>, Tally)) {
    let (limits, scratch) = (limits(), Bump::new());
    match Codec::default().next(request, &limits, NOW, &scratch) {
        Step::Op { verb, form, .. } => {
            assert_eq!(form.key(), b"k");
            check(verb, form.tally());
        }
        step => panic!("{step:?}"),
    }
}

#[test]
fn expiry_times_are_unsigned() {
    let date = NOW.unix_s as u32 + 4;
    for (exptime, deadline) in [
        (0, Deadline::NEVER),
        (1, Deadline::at_ms(NOW.ms + 1_000)),
        (2_592_000, Deadline::at_ms(NOW.ms + 2_592_000_000)),
        (2_592_001, Deadline::PAST),
        (date, Deadline::at_ms(NOW.ms + 4_000)),
        (date - 4, Deadline::PAST),
        (
            u32::MAX,
            Deadline::after_ms(NOW, (u64::from(u32::MAX) - NOW.unix_s) * 1_000),
        ),
    ] {
        let bytes = u32::to_be_bytes(exptime);
        let extras = [[0; 4], bytes].concat();
        operation(&request(SET, 0, [&extras, b"k", b"v"]), |verb, _| {
            assert!(matches!(verb, Verb::Store(store) if store.deadline == deadline));
        });
        operation(&request(TOUCH, 0, [&bytes, b"k", b""]), |verb, _| {
            assert!(matches!(verb, Verb::Get(get) if get.touch == Some(deadline)));
        });
        operation(&count(INCREMENT, 0, [1, 2], exptime), |verb, _| {
            let initial = (exptime != u32::MAX).then_some((2, deadline));
            assert!(matches!(verb, Verb::Arith(arith) if arith.vivify == initial));
        });
    }
}

#[test]
fn operations_are_counted() {
    let touched = |opcode| request(opcode, 0, [&[0; 4], b"k", b""]);
    for (request, tally) in [
        (get(GET), Tally::Get),
        (get(0x0d), Tally::Get),
        (touched(TOUCH), Tally::Touch),
        (touched(0x1d), Tally::Gat),
        (touched(0x24), Tally::Gat),
        (store(SET, 0, b""), Tally::Store),
        (store(ADD, 0, b""), Tally::Store),
        (store(REPLACE, 3, b""), Tally::Cas),
        (store(SET, 0, &[0; 141]), Tally::Refused),
        (get(DELETE), Tally::Delete),
        (count(INCREMENT, 0, [1, 1], 0), Tally::Incr),
        (count(0x16, 0, [1, 1], 0), Tally::Decr),
        (request(APPEND, 0, [b"", b"k", b""]), Tally::Store),
    ] {
        operation(&request, |_, counted| {
            assert_eq!(counted, tally, "{request:x?}")
        });
    }
}

#[test]
fn failures_of_an_engine_have_texts() {
    let answer = |request: &[u8], outcome: Outcome<'_>| {
        let (limits, scratch) = (limits(), Bump::new());
        let mut out = Vec::new();
        match Codec::default().next(request, &limits, NOW, &scratch) {
            Step::Op { form, .. } => form.encode(&outcome, &mut out),
            step => panic!("{step:?}"),
        }
        out
    };
    let set = store(SET, 0, b"v");
    let joined = request(APPEND, 0, [b"", b"k", b"v"]);
    let counted = count(INCREMENT, 0, [1, 1], 0);
    assert_eq!(answer(&set, Outcome::TooLarge), error(SET, 3, "Too large."));
    for (request, status, text) in [
        (&set, 0x82, "Out of memory allocating item"),
        (&joined, 5, "Not stored."),
        (&counted, 0x82, "Out of memory incrementing value"),
    ] {
        let expected = error(request[1], status, text);
        assert_eq!(answer(request, Outcome::OutOfMemory), expected);
    }
    assert_eq!(
        answer(&joined, Outcome::TooLarge),
        error(APPEND, 5, "Not stored.")
    );
    let replaced = store(REPLACE, 0, b"v");
    let missing = Outcome::Missing(Absence::Expired);
    assert_eq!(answer(&replaced, missing), not_found(REPLACE));
    assert_eq!(answer(&replaced, Outcome::NotStored), not_found(REPLACE));
}

/// One request, sound or not.
fn any_request() -> impl Strategy<Value = Vec<u8>> {
    let key = prop_oneof![4 => Just(vec![b'k']), 1 => Just(vec![]), 1 => Just(vec![b'l'; 251])];
    let extras = prop_oneof![0..25usize, Just(0), Just(4), Just(8), Just(20)];
    let value = prop_oneof![Just(0..1usize), Just(1..30), Just(120..160)];
    let value = value.prop_flat_map(|range| prop::collection::vec(any::<u8>(), range));
    let cas = prop_oneof![Just(0u64), 1..4u64];
    (0..0x28u8, extras, key, value, cas, any::<bool>()).prop_map(
        |(opcode, mut extras, mut key, mut value, cas, is_sound)| {
            if is_sound {
                let joins = matches!(opcode, 0x0e | 0x0f | 0x19 | 0x1a);
                extras = match opcode {
                    1..=3 | 0x11..=0x13 => 8,
                    5 | 6 | 0x15 | 0x16 => 20,
                    0x1c..=0x1e | 0x23 | 0x24 => 4,
                    _ => 0,
                };
                key.truncate(1);
                if extras != 8 && !joins {
                    value.clear();
                }
            }
            request(opcode, cas, [&vec![0; extras], &key, &value])
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, ..ProptestConfig::default() })]

    #[test]
    fn every_split_gives_the_same_replies_and_items(
        requests in prop::collection::vec(any_request(), 1..12),
        sizes in prop::collection::vec(1..40usize, 1..5),
    ) {
        let whole = talk(&requests);
        let mut pieces = Connection::new(limits());
        pieces.in_parts = true;
        let (input, mut at) = (requests.concat(), 0);
        for size in sizes.iter().cycle() {
            let end = input.len().min(at + size);
            pieces.feed(&input[at..end]);
            at = end;
            if at == input.len() { break; }
        }
        prop_assert_eq!(&pieces.out, &whole.out);
        prop_assert_eq!(pieces.closed, whole.closed);
        prop_assert_eq!(format!("{:?}", pieces.model.items), format!("{:?}", whole.model.items));
        if !whole.closed {
            prop_assert_eq!(pieces.unread, whole.unread);
        }
    }

    #[test]
    fn a_value_received_apart_is_stored_as_one_in_the_input(
        request in any_request(),
        arrived in 0..300usize,
        behind in prop::collection::vec(any::<u8>(), 0..9),
    ) {
        let (limits, scratch) = (limits(), Bump::new());
        let input = [&request[..], &behind].concat();
        let arrived = &request[..arrived.min(request.len())];
        let mut waiting = Codec::default();
        let first = waiting.next(arrived, &limits, NOW, &scratch);
        let head_len = 24 + usize::from(request[4]) + usize::from(request[3]);
        let announced = waiting.announced(arrived, &limits);
        let stores = matches!(request[1], 1..=3 | 0x11..=0x13);
        let awaits_value = matches!(first, Step::Incomplete { .. }) && arrived.len() >= head_len;
        prop_assert_eq!(announced.is_some(), stores && awaits_value);
        let Some(announced) = announced else { return Ok(()); };
        prop_assert_eq!((announced.line_len, announced.end_len), (head_len, 0));
        let (mut whole, mut apart) = (waiting, waiting);
        let step = whole.next(&input, &limits, NOW, &scratch);
        let head = &arrived[..head_len];
        let Step::Op { consumed, key, verb: Verb::Store(mut store), form } =
            apart.next_apart(head, &limits, NOW, &scratch)
        else { panic!("no store") };
        prop_assert_eq!((key, store.client_flags), (announced.key, announced.client_flags));
        prop_assert!(store.value.is_empty());
        store.value = &request[head_len..];
        prop_assert_eq!(store.value.len(), announced.value_len);
        let verb = Verb::Store(store);
        let finished = Step::Op { consumed, key, verb, form };
        let same: Step<'_, _, corewise_wire::binary::Call<'_>> = finished;
        prop_assert_eq!(format!("{same:?}"), format!("{step:?}"));
        prop_assert_eq!(apart, whole);
    }
}

#[test]
fn a_pipeline_may_be_cut_at_every_byte() {
    let requests = [
        store(SET, 0, b"hello"),
        get(0x0d),
        store(0x11, 0, &[b'y'; 150]),
        request(0x21, 0, [b"", b"PLAIN", b"secret"]),
        count(INCREMENT, 0, [1, 1], 0),
        request(STAT, 0, [b""; 3]),
        request(0x17, 0, [b""; 3]),
    ];
    let whole = talk(&requests);
    let input = requests.concat();
    for cut in 0..=input.len() {
        let mut connection = Connection::new(limits());
        connection.feed(&input[..cut]);
        connection.feed(&input[cut..]);
        assert_eq!(connection.out, whole.out, "cut at {cut}");
        assert!(connection.closed);
    }
}
