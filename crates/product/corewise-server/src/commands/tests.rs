//! Which requests are operations, what they do, and what their replies are.

use super::session::Replies;
use super::table;
use super::{CommandCounts, CommandSums, RespSession};
use crate::codec::{Limits, Parse, Protocol};
use bumpalo::Bump;
use corewise_ops::{
    Absence, Deadline, Edit, Get, ItemFlags, ItemKind, ItemView, Now, Outcome, Store, StoreMode,
    Verb,
};
use corewise_wire::Step;
use corewise_wire::resp::{self, Refusal, Version, encode_request};
use std::time::Duration;

const NOW: Now = Now::new(1_000_000, 1_800_000_000);

fn parse<'i>(limits: &'i Limits, scratch: &'i Bump) -> Parse<'i> {
    Parse {
        limits,
        now: NOW,
        unix_ms: 1000 * NOW.unix_s,
        is_timed: false,
        scratch,
    }
}

/// Limits with this one.
fn limited(max_request: usize) -> Limits {
    let resp = resp::Limits {
        max_request,
        ..resp::Limits::default()
    };
    Limits {
        resp,
        ..Limits::default()
    }
}

/// The steps of one connection, as texts, with the input in pieces of `size` bytes. Every step is
/// taken twice, the first time with a copy of the codec.
fn steps(mut codec: RespSession, limits: &Limits, input: &[u8], size: usize) -> Vec<String> {
    let mut steps = Vec::new();
    let (mut unread, mut at) = (Vec::new(), 0);
    for piece in input.chunks(size) {
        unread.extend_from_slice(piece);
        loop {
            let scratch = Bump::new();
            let mut copy = codec;
            let rehearsal = copy.next(&unread[at..], &parse(limits, &scratch));
            let step = codec.next(&unread[at..], &parse(limits, &scratch));
            assert_eq!(format!("{rehearsal:?}"), format!("{step:?}"));
            at += match step {
                Step::Incomplete { need } => {
                    assert!(need > unread.len() - at);
                    break;
                }
                Step::Skip { consumed } => consumed,
                Step::Op {
                    consumed,
                    key,
                    verb,
                    form,
                } => {
                    assert_eq!(form.key(), key);
                    let key = key.escape_ascii();
                    steps.push(match verb {
                        Verb::Get(get) if get == Get::default() => format!("get {key}"),
                        Verb::Store(store) if store.mode == StoreMode::Overwrite => {
                            let ttl = store.deadline.remaining_ms(NOW);
                            let value = store.value.escape_ascii();
                            format!("set {key} {value} {ttl:?}")
                        }
                        Verb::Store(Store { mode, value, .. }) => {
                            format!("{mode:?} {key} {}", value.escape_ascii())
                        }
                        Verb::Edit(Edit { number, value, .. }) => {
                            format!("edit {key} {number} {}", value.escape_ascii())
                        }
                        Verb::Get(Get {
                            any_kind: true,
                            quiet: false,
                            touch: None,
                            ..
                        }) => format!("use {key}"),
                        Verb::Get(_) => format!("other get {key}"),
                        Verb::Delete(_) => format!("delete {key}"),
                        Verb::Sorted(op) => format!("{op:?} {key}"),
                        Verb::Filter(op) => format!("{op:?} {key}"),
                        Verb::Arith(_) => panic!("a counter of memcached"),
                    });
                    consumed
                }
                Step::Frame { consumed, bytes } => {
                    steps.push(format!("frame {}", bytes.escape_ascii()));
                    consumed
                }
                Step::Call { consumed, call } => {
                    steps.push(format!("{call:?}"));
                    consumed
                }
                Step::Close { reply } => {
                    steps.push(format!("close {}", reply.escape_ascii()));
                    return steps;
                }
            };
        }
    }
    steps
}

#[track_caller]
fn assert_steps(input: &[u8], expected: &[&str]) {
    for size in [input.len(), 1, 3, 7] {
        let steps = steps(RespSession::new(true), &Limits::default(), input, size);
        assert_eq!(
            steps,
            expected,
            "in pieces of {size}: {}",
            input.escape_ascii()
        );
    }
}

#[test]
fn get_and_plain_set_are_operations() {
    assert_steps(
        b"GET k\r\nget k\r\ngEt k l\r\nget\r\n",
        &["get k", "get k", "Request(gEt, k, l)", "Request(get)"],
    );
    assert_steps(
        b"SET k v\r\nset k v EX 10\r\nset k v pX 10\r\n",
        &["set k v None", "set k v Some(10000)", "set k v Some(10)"],
    );
}

#[test]
fn every_command_on_one_key_is_one_operation() {
    for (request, step) in [
        ("set k v NX", "Add k v"),
        ("SET k v EX 5 xx", "Replace k v"),
        ("setnx k v", "Add k v"),
        ("SETEX k 5 v", "set k v Some(5000)"),
        ("psetex k 5 v", "set k v Some(5)"),
        ("append k v", "Append k v"),
        ("INCR k", "edit k 1 "),
        ("decr k", "edit k -1 "),
        ("IncrBy k -7", "edit k -7 "),
        ("decrby k -7", "edit k 7 "),
        ("setrange k 4 v", "edit k 4 v"),
        ("setrange k 4095 v", "edit k 4095 v"),
        ("getset k v", "edit k 0 v"),
        ("getdel k", "edit k 0 "),
        ("persist k", "edit k 0 "),
        ("getex k", "get k"),
        ("GETEX k EX 5", "other get k"),
        ("getex k px 5", "other get k"),
        ("getex k Persist", "edit k 0 "),
        ("getrange k 0 -1", "get k"),
        ("SUBSTR k -9223372036854775808 5", "get k"),
        ("set k v KEEPTTL", "edit k 0 v"),
        ("set k v nx GET", "edit k 0 v"),
        ("set k v get xx PX 5", "edit k 0 v"),
        ("set k v NX NX", "Add k v"),
        ("set k v EXAT 1800000005", "set k v Some(5000)"),
        ("set k v pxat 1800000005001", "set k v Some(5001)"),
        ("set k v EX 7 ex 5", "set k v Some(5000)"),
        ("del k", "delete k"),
        ("UNLINK k", "delete k"),
        ("strlen k", "get k"),
        ("touch k", "use k"),
        ("exists k", "other get k"),
        ("type k", "other get k"),
        ("ttl k", "other get k"),
        ("pttl k", "other get k"),
        ("expire k 5", "other get k"),
        ("pexpire k 5", "other get k"),
        ("expireat k 1800000005", "other get k"),
        ("getex k exat 1800000005", "other get k"),
        ("expire k 0", "edit k 0 "),
        ("expire k -1", "edit k 0 "),
        ("expire k 5 NX", "edit k 1 "),
        ("pexpireat k 1 xx GT", "edit k 6 "),
    ] {
        assert_steps(format!("{request}\r\n").as_bytes(), &[step]);
    }
}

/// The error that a command finds in the arguments of a request.
fn error(request: &str) -> String {
    let (limits, scratch) = (Limits::default(), Bump::new());
    let input = format!("{request}\r\n");
    let framed = resp::Codec::new(true).next(input.as_bytes(), &limits.resp, &scratch);
    let resp::Parsed::Request { request, .. } = framed else {
        panic!("{framed:?}");
    };
    let command = table::find(request.name()).unwrap();
    let failure = (command.parse)(request.args(), &parse(&limits, &scratch)).unwrap_err();
    String::from_utf8(failure.0.concat()).unwrap()
}

#[test]
fn wrong_arguments_are_errors() {
    const SYNTAX: &str = "syntax error";
    const INTEGER: &str = "value is not an integer or out of range";
    let time = |command| format!("invalid expire time in '{command}' command");
    for (request, text) in [
        ("set k v NX XX", SYNTAX),
        ("set k v EX 5 KEEPTTL", SYNTAX),
        ("set k v KEEPTTL PX 5", SYNTAX),
        ("set k v EX 5 PX 5", SYNTAX),
        ("set k v EX 1x", INTEGER),
        ("set k v EX 0", &time("set")),
        ("set k v EX 9223372036854775807", &time("set")),
        ("setex k 0 v", &time("setex")),
        ("pexpire k 9223372036854775807", &time("pexpire")),
        ("expire k x AB", "Unsupported option AB"),
        (
            "expire k x gt lt",
            "GT and LT options at the same time are not compatible",
        ),
        (
            "expire k 1 nx xx",
            "NX and XX, GT or LT options at the same time are not compatible",
        ),
        ("getex k nx", SYNTAX),
        ("incrby k x", INTEGER),
        ("decrby k -9223372036854775808", "decrement would overflow"),
        ("getrange k 0 x", INTEGER),
        ("setrange k -1 v", "offset is out of range"),
        (
            "setrange k 9223372036854775807 v",
            "string exceeds maximum allowed size (proto-max-bulk-len)",
        ),
        (
            "setrange k 1048576 v",
            "key or value exceeds the maximum size of an item",
        ),
    ] {
        let call = format!("Request({})", request.replace(' ', ", "));
        assert_steps(format!("{request}\r\n").as_bytes(), &[&call]);
        assert_eq!(error(request), format!("ERR {text}"), "{request}");
    }
}

#[test]
fn what_is_no_single_operation_is_a_call() {
    for call in [
        "get",
        "get k l",
        "set k",
        "incr",
        "incr k l",
        "incrby k",
        "setrange k 4096 v",
        "del k l",
        "exists k l",
        "touch",
        "getex k ex 0",
        "getex k ex x",
        "nosuch k",
        "a name that is longer k",
        "ping",
        "ping hi",
        "MGET",
    ] {
        let expected = format!("Request({})", call.replace(' ', ", "));
        assert_steps(format!("{call}\r\n").as_bytes(), &[&expected]);
    }
}

#[test]
fn an_mget_is_a_frame_and_an_operation_for_each_key() {
    let mut input = Vec::new();
    encode_request(&[b"MGET", b"a", b"", b"c\r\n"], &mut input);
    input.extend_from_slice(b"mget x 'y z' \"\" \x0b\r\n mget \"q\"\r\nPING\r\n");
    assert_steps(
        &input,
        &[
            "frame *3\\r\\n",
            "get a",
            "get ",
            "get c\\r\\n",
            "frame *3\\r\\n",
            "get x",
            "get y z",
            "get ",
            "frame *1\\r\\n",
            "get q",
            "Request(PING)",
        ],
    );
}

#[test]
fn the_time_of_an_mget_is_that_of_all_its_keys() {
    let (counts, limits, scratch) = (CommandCounts::default(), Limits::default(), Bump::new());
    let input = b"mget a b c\r\nmget d\r\n";
    let (mut codec, mut at) = (RespSession::new(true), 0);
    while at < input.len() {
        at += match codec.next(&input[at..], &parse(&limits, &scratch)) {
            Step::Frame { consumed, .. } => consumed,
            Step::Op { consumed, form, .. } => {
                counts.completed(&form, &Outcome::Missing(Absence::Unknown));
                counts.timed(&form, Duration::from_micros(5));
                consumed
            }
            other => panic!("{other:?}"),
        };
    }
    let (mut sums, mut text) = (CommandSums::default(), String::new());
    counts.add_to(&mut sums);
    sums.print_commands(&mut text);
    let expected = "calls=2,usec=20,usec_per_call=10.00,rejected_calls=0,failed_calls=0";
    assert_eq!(text, format!("cmdstat_mget:{expected}\r\n"));
}

#[test]
fn a_long_inline_mget_takes_memory_in_proportion() {
    let limits = Limits::default();
    let input = [b"mget", &b" k".repeat(30_000)[..], b"\r\n"].concat();
    let (mut codec, scratch) = (RespSession::new(true), Bump::new());
    let (mut at, mut keys) = (0, 0);
    while at < input.len() {
        at += match codec.next(&input[at..], &parse(&limits, &scratch)) {
            Step::Frame { consumed, .. } => consumed,
            Step::Op { consumed, key, .. } => {
                assert_eq!(key, b"k");
                keys += 1;
                consumed
            }
            other => panic!("{other:?}"),
        };
    }
    assert_eq!(keys, 30_000);
    let allocated = scratch.allocated_bytes();
    assert!(allocated < 16 * input.len(), "{allocated} bytes");
}

#[test]
fn before_authentication_everything_is_a_call() {
    let input = b"GET k\r\nSET k v\r\nMGET a b\r\n";
    let steps = steps(
        RespSession::new(false),
        &Limits::default(),
        input,
        input.len(),
    );
    assert_eq!(
        steps,
        [
            "Request(GET, k)",
            "Request(SET, k, v)",
            "Request(MGET, a, b)"
        ]
    );
}

#[test]
fn a_discarded_request_is_an_error_between_other_replies() {
    let mut input = b"GET a\r\n".to_vec();
    encode_request(&[b"SET", b"k", &[b'v'; 90], &[b'w'; 90]], &mut input);
    input.extend_from_slice(b"GET b\r\n");
    let limits = limited(150);
    for size in [1, 5, input.len()] {
        let steps = steps(RespSession::new(true), &limits, &input, size);
        let refused = format!("frame {}", Refusal::TooLong.line().escape_ascii());
        assert_eq!(steps, ["get a", &refused, "get b"]);
    }
}

fn item(value: &[u8], deadline: Deadline) -> ItemView<'_> {
    ItemView {
        key: b"k",
        value,
        client_flags: 7,
        cas: 1,
        deadline,
        idle_s: 0,
        flags: ItemFlags::NONE,
        footprint: 64,
        size_class: 1,
        kind: ItemKind::String,
    }
}

const MISSING: Outcome<'_> = Outcome::Missing(Absence::Unknown);

/// Prints the outcome of a request in both versions, and compares with what is expected.
fn assert_printed(request: &str, outcome: &Outcome<'_>, two: &str, three: &str) {
    let (limits, scratch) = (Limits::default(), Bump::new());
    for (version, expected) in [(Version::Resp2, two), (Version::Resp3, three)] {
        let input = format!("{request}\r\n");
        let mut codec = RespSession::new(true);
        codec.set_version(version);
        let Step::Op { form, .. } = codec.next(input.as_bytes(), &parse(&limits, &scratch)) else {
            panic!("{request}")
        };
        let (mut out, mut parts) = (Vec::new(), Vec::new());
        form.encode(outcome, NOW, &mut out);
        assert_eq!(String::from_utf8_lossy(&out), expected, "{request}");
        if let Some((value, tail)) = form.encode_parts(outcome, NOW, &mut parts) {
            parts.extend_from_slice(value);
            parts.extend_from_slice(tail);
        }
        assert_eq!(parts, out);
    }
}

#[test]
fn outcomes_are_printed_in_the_version_of_the_connection() {
    let item = item(b"ab", Deadline::NEVER);
    let nothing = Outcome::Edited {
        number: 0,
        old: None,
        is_changed: false,
    };
    for (request, outcome, two, three) in [
        ("GET k", MISSING, "$-1\r\n", "_\r\n"),
        ("SET k v NX", Outcome::NotStored, "$-1\r\n", "_\r\n"),
        ("GETSET k v", nothing, "$-1\r\n", "_\r\n"),
        ("SET k v GET", nothing, "$-1\r\n", "_\r\n"),
        ("SET k v KEEPTTL XX", nothing, "$-1\r\n", "_\r\n"),
    ] {
        assert_printed(request, &outcome, two, three);
    }
    let oom = "-OOM command not allowed when used memory > 'maxmemory'.\r\n";
    let large = "-ERR key or value exceeds the maximum size of an item\r\n";
    for (request, outcome, reply) in [
        ("GET k", Outcome::Found(item), "$2\r\nab\r\n"),
        ("GET k", Outcome::OutOfMemory, oom),
        ("SET k v", Outcome::Stored(item), "+OK\r\n"),
        ("SET k v", Outcome::OutOfMemory, oom),
        ("SET k v", Outcome::TooLarge, large),
        ("SET k v NX", Outcome::Stored(item), "+OK\r\n"),
        ("SETNX k v", Outcome::Stored(item), ":1\r\n"),
        ("SETNX k v", Outcome::NotStored, ":0\r\n"),
        ("APPEND k b", Outcome::Stored(item), ":2\r\n"),
        ("APPEND k b", Outcome::TooLarge, large),
        ("STRLEN k", Outcome::Found(item), ":2\r\n"),
        ("STRLEN k", MISSING, ":0\r\n"),
        ("EXISTS k", Outcome::Found(item), ":1\r\n"),
        ("EXPIRE k 5", Outcome::Found(item), ":1\r\n"),
        ("EXPIRE k 5", MISSING, ":0\r\n"),
        ("DEL k", Outcome::Deleted, ":1\r\n"),
        ("DEL k", MISSING, ":0\r\n"),
        ("TYPE k", Outcome::Found(item), "+string\r\n"),
        ("TYPE k", MISSING, "+none\r\n"),
    ] {
        assert_printed(request, &outcome, reply, reply);
    }
}

#[test]
fn what_edits_and_deadlines_report_is_printed() {
    let endless = Outcome::Found(item(b"ab", Deadline::NEVER));
    let ending = Outcome::Found(item(b"ab", Deadline::after_ms(NOW, 1_500)));
    let stored = Outcome::Edited {
        number: 1,
        old: None,
        is_changed: true,
    };
    let counted = Outcome::Edited {
        number: -3,
        old: Some(b"old"),
        is_changed: true,
    };
    let oom = "-OOM command not allowed when used memory > 'maxmemory'.\r\n";
    for (request, outcome, reply) in [
        ("TTL k", MISSING, ":-2\r\n"),
        ("TTL k", endless, ":-1\r\n"),
        ("TTL k", ending, ":2\r\n"),
        ("PTTL k", ending, ":1500\r\n"),
        ("INCR k", counted, ":-3\r\n"),
        ("INCR k", Outcome::Refused("ERR no"), "-ERR no\r\n"),
        ("INCR k", Outcome::OutOfMemory, oom),
        ("GETDEL k", counted, "$3\r\nold\r\n"),
        ("SET k v GET", counted, "$3\r\nold\r\n"),
        ("SET k v KEEPTTL", stored, "+OK\r\n"),
    ] {
        assert_printed(request, &outcome, reply, reply);
    }
}

#[test]
fn ranges_include_their_end_and_may_count_from_the_end() {
    let (least, most) = (i64::MIN, i64::MAX);
    for (start, end, expected) in [
        (0, -1, "hello"),
        (1, 3, "ell"),
        (-3, -1, "llo"),
        (-100, 2, "hel"),
        (0, 100, "hello"),
        (3, 2, ""),
        (-1, -3, ""),
        (5, 9, ""),
        (-9, -8, "h"),
        (least, most, "hello"),
        (most, least, ""),
        (least + 1, least, ""),
        (least, least + 1, "h"),
        (4, 4, "o"),
    ] {
        let request = format!("GETRANGE k {start} {end}");
        for (value, expected) in [("hello", expected), ("", "")] {
            let found = Outcome::Found(item(value.as_bytes(), Deadline::NEVER));
            let reply = format!("${}\r\n{expected}\r\n", expected.len());
            assert_printed(&request, &found, &reply, &reply);
        }
        assert_printed(&request, &MISSING, "$0\r\n\r\n", "$0\r\n\r\n");
    }
}

#[test]
fn requests_without_a_reply_are_calls() {
    let limits = limited(30);
    let input =
        b"ping\r\n*2\r\n$3\r\nget\r\n$30\r\n012345678901234567890123456789\r\nping\r\n*x\r\n";
    let mut next = RespSession::new(true);
    next.set_replies(Replies::AllButNext);
    let (refused, closed) = (
        "frame -ERR request exceeds the maximum length\\r\\n",
        "close -ERR Protocol error: invalid multibulk length\\r\\n",
    );
    let pong = "Request(ping)";
    for size in [input.len(), 1] {
        let mut none = RespSession::new(true);
        none.set_replies(Replies::None);
        let silent = steps(none, &limits, input, size);
        assert_eq!(silent, [pong, refused, pong, closed]);
        none.begin_calls();
        assert!(!none.end_calls() && none.takes_silence());
        none.set_replies(Replies::All);
        let all = steps(none, &limits, input, size);
        assert_eq!(all, [pong, refused, pong, closed]);
        // The request that is refused is the next one. Its error is not printed, but counted.
        let next = steps(next, &limits, &input[6..], size);
        assert_eq!(next, [refused, pong, closed]);
    }
}

/// The new value and the number, or the error, of the edit that a request is.
fn edited(request: &str, old: Option<&str>) -> Result<(String, i64), &'static str> {
    let (limits, scratch) = (Limits::default(), Bump::new());
    let input = format!("{request}\r\n");
    let mut codec = RespSession::new(true);
    let step = codec.next(input.as_bytes(), &parse(&limits, &scratch));
    let Step::Op {
        verb: Verb::Edit(edit),
        ..
    } = step
    else {
        panic!("{step:?}")
    };
    let old = old.map(|value| item(value.as_bytes(), Deadline::after_ms(NOW, 5)));
    let mut new = Vec::new();
    let decided = (edit.decide)(&edit, old.as_ref(), &mut new)?;
    let new = String::from_utf8(new).unwrap();
    Ok((format!("{:?} {new}", decided.decision), decided.number))
}

#[test]
fn edits_change_values_as_redis_does() {
    let kept = "Write { client_flags: 7, deadline: Deadline(1000005) }";
    let fresh = "Write { client_flags: 0, deadline: Deadline(0) }";
    let ended = "Write { client_flags: 0, deadline: Deadline(1000005) }";
    let ending = "Write { client_flags: 0, deadline: Deadline(1005000) }";
    for (request, old, decision, new, number) in [
        ("incr k", None, fresh, "1", 1),
        ("incr k", Some("41"), kept, "42", 42),
        ("decr k", Some("10  "), kept, "9", 9),
        (
            "incrby k -9223372036854775808",
            None,
            fresh,
            "-9223372036854775808",
            i64::MIN,
        ),
        ("setrange k 2 x", None, fresh, "\0\0x", 3),
        ("setrange k 1 x", Some("abc"), kept, "axc", 3),
        ("setrange k 3 ''", Some("abc"), "Keep", "", 3),
        ("getset k v", Some("abc"), fresh, "v", 1),
        ("getdel k", Some("abc"), "Remove", "", 0),
        ("persist k", Some("abc"), "Touch(Deadline(0))", "", 1),
        ("expire k 0", Some("abc"), "Remove", "", 1),
        ("expire k 0", None, "Keep", "", 0),
        ("expire k 9 nx", Some("abc"), "Keep", "", 0),
        (
            "expire k 9 xx gt",
            Some("abc"),
            "Touch(Deadline(1009000))",
            "",
            1,
        ),
        ("pexpire k 5 gt", Some("abc"), "Keep", "", 0),
        (
            "pexpire k 4 lt",
            Some("abc"),
            "Touch(Deadline(1000004))",
            "",
            1,
        ),
        ("persist k", None, "Keep", "", 0),
        ("set k v get", Some("abc"), fresh, "v", 1),
        ("set k v get ex 5", None, ending, "v", 1),
        ("set k v get nx", Some("abc"), "Keep", "", 0),
        ("set k v get xx", None, "Keep", "", 0),
        ("set k v keepttl", Some("abc"), ended, "v", 1),
        ("set k v keepttl nx", None, fresh, "v", 1),
    ] {
        let expected = (format!("{decision} {new}"), number);
        assert_eq!(edited(request, old), Ok(expected), "{request} {old:?}");
    }
}

#[test]
fn only_integers_are_added() {
    let most = "9223372036854775807";
    for text in [
        "",
        "x",
        "01",
        "+1",
        "-0",
        "1.0",
        " 1",
        "9223372036854775808",
    ] {
        let error = edited("incr k", Some(text));
        assert_eq!(
            error,
            Err("ERR value is not an integer or out of range"),
            "{text:?}"
        );
    }
    let overflow = Err("ERR increment or decrement would overflow");
    assert_eq!(edited("incr k", Some(most)), overflow);
    assert_eq!(edited("decrby k 2", Some("-9223372036854775807")), overflow);
}
