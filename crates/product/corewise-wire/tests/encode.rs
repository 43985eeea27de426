//! The reply to each outcome, including those that a model engine never has; and the sink.

use crate::common;

use bumpalo::Bump;
use common::NOW;
use corewise_ops::{Absence, Deadline, Flow, ItemFlags, ItemKind, ItemView, Outcome, ReplySink};
use corewise_wire::Tally;
use corewise_wire::memcached::{Codec, Limits, ReplyEncoder, ReplyWriter, Step};

/// Calls `look` with the encoder of a request that is one operation.
#[track_caller]
fn with_form<T>(request: &str, limits: Limits, look: impl FnOnce(ReplyEncoder<'_>) -> T) -> T {
    match Codec::new(false).next(request.as_bytes(), &limits, NOW, &Bump::new()) {
        Step::Op { form, .. } => look(form),
        other => panic!("{request:?}: {other:?}"),
    }
}

#[track_caller]
fn prints(request: &str, outcome: Outcome<'_>, expected: &str) {
    let (mut out, mut parts) = (Vec::new(), Vec::new());
    with_form(request, Limits::default(), |form| {
        form.encode(&outcome, NOW, &mut out);
        if let Some((value, tail)) = form.encode_parts(&outcome, NOW, &mut parts) {
            parts.extend_from_slice(value);
            parts.extend_from_slice(tail);
        }
    });
    for bytes in [out, parts] {
        assert_eq!(
            String::from_utf8(bytes).unwrap(),
            expected,
            "{outcome:?} of {request:?}"
        );
    }
}

fn item(value: &[u8]) -> ItemView<'_> {
    ItemView {
        key: b"k",
        value,
        client_flags: u32::MAX,
        cas: u64::MAX,
        deadline: Deadline::after_ms(NOW, 1_500),
        idle_s: 123,
        flags: ItemFlags::FETCHED,
        footprint: 100,
        size_class: 42,
        kind: ItemKind::String,
    }
}

const MISSING: Outcome<'_> = Outcome::Missing(Absence::Expired);

#[test]
fn the_longest_numbers_are_printed_whole() {
    prints(
        "gets k\r\n",
        Outcome::Found(item(b"v")),
        "VALUE k 4294967295 1 18446744073709551615\r\nv\r\nEND\r\n",
    );
    prints(
        "mg k f c h l s t v\r\n",
        Outcome::Found(item(b"v")),
        "VA 1 f4294967295 c18446744073709551615 h1 l123 s1 t2\r\nv\r\n",
    );
    prints(
        "me k\r\n",
        Outcome::Found(item(b"v")),
        "ME k exp=2 la=123 cas=18446744073709551615 fetch=yes cls=42 size=100\r\n",
    );
}

#[test]
fn only_replies_with_a_value_of_an_item_come_in_parts() {
    let found = || Outcome::Found(item(b"v"));
    let counter = Outcome::Counter {
        value: 7,
        view: item(b"7"),
    };
    for (request, outcome, shows) in [
        ("get k\r\n", found(), true),
        ("get k b\r\n", found(), true),
        ("gets k\r\n", found(), true),
        ("gat 9 k\r\n", found(), true),
        ("mg k v q k\r\n", found(), true),
        ("get k\r\n", MISSING, false),
        ("mg k v\r\n", MISSING, false),
        ("mg k s\r\n", found(), false),
        ("me k\r\n", found(), false),
        ("touch k 9\r\n", found(), false),
        ("ma k v\r\n", counter, false),
        ("ms k 1 k\r\nv\r\n", Outcome::Stored(item(b"v")), false),
    ] {
        let parts = with_form(request, Limits::default(), |form| {
            form.encode_parts(&outcome, NOW, &mut Vec::new()).is_some()
        });
        assert_eq!(parts, shows, "{request:?}");
    }
    prints("gat 9 k b\r\n", found(), "VALUE k 4294967295 1\r\nv\r\n");
    prints("mg k v k\r\n", found(), "VA 1 kk\r\nv\r\n");
}

#[test]
fn a_failing_store_says_why() {
    let store = "set k 0 0 1\r\nx\r\n";
    prints(
        store,
        Outcome::TooLarge,
        "SERVER_ERROR object too large for cache\r\n",
    );
    prints(
        store,
        Outcome::OutOfMemory,
        "SERVER_ERROR out of memory storing object\r\n",
    );
    prints(
        store,
        Outcome::Deleted,
        "SERVER_ERROR Unhandled storage type.\r\n",
    );
    let quiet = "set k 0 0 1 noreply\r\nx\r\n";
    prints(quiet, Outcome::OutOfMemory, "");
    let meta = "ms k 1 k q\r\nx\r\n";
    prints(
        meta,
        Outcome::TooLarge,
        "SERVER_ERROR object too large for cache\r\n",
    );
    prints(
        meta,
        Outcome::OutOfMemory,
        "SERVER_ERROR out of memory storing object\r\n",
    );
    prints(
        meta,
        Outcome::NonNumeric,
        "CLIENT_ERROR cannot increment or decrement non-numeric value\r\n",
    );
}

#[test]
fn what_cannot_be_appended_to_is_not_stored() {
    for outcome in [
        Outcome::TooLarge,
        Outcome::OutOfMemory,
        Outcome::NotStored,
        MISSING,
    ] {
        prints("append k 0 0 1\r\nx\r\n", outcome, "NOT_STORED\r\n");
        prints("prepend k 0 0 1\r\nx\r\n", outcome, "NOT_STORED\r\n");
        prints("ms k 1 MA k\r\nx\r\n", outcome, "NS kk\r\n");
        prints("ms k 1 MP k\r\nx\r\n", outcome, "NS kk\r\n");
    }
}

#[test]
fn counters_run_out_of_memory() {
    prints(
        "incr k 1\r\n",
        Outcome::OutOfMemory,
        "SERVER_ERROR out of memory\r\n",
    );
    prints(
        "decr k 1\r\n",
        Outcome::OutOfMemory,
        "SERVER_ERROR out of memory\r\n",
    );
    prints(
        "ma k N0 q\r\n",
        Outcome::OutOfMemory,
        "SERVER_ERROR out of memory\r\n",
    );
    prints("ma k\r\n", Outcome::NotStored, "NS\r\n");
    prints(
        "md k x q\r\n",
        Outcome::OutOfMemory,
        "SERVER_ERROR out of memory\r\n",
    );
}

#[test]
fn a_stub_that_finds_no_room_is_a_miss() {
    prints("mg k N30 k\r\n", Outcome::OutOfMemory, "EN kk\r\n");
    prints("mg k N30 k q\r\n", Outcome::OutOfMemory, "");
}

#[test]
fn an_outcome_that_cannot_be_is_a_server_error_or_a_miss() {
    let unhandled = "SERVER_ERROR Unhandled storage type.\r\n";
    prints("delete k\r\n", Outcome::NonNumeric, unhandled);
    prints("touch k\t 1\r\n", Outcome::Deleted, unhandled);
    prints("incr k 1\r\n", Outcome::Exists, unhandled);
    prints("get k\r\n", Outcome::Deleted, "END\r\n");
}

#[test]
fn a_refused_store_prints_the_same_whatever_became_of_the_old_item() {
    let limits = Limits {
        max_item_size: 50,
        ..Limits::default()
    };
    for (request, expected) in [
        (
            "set k 0 0 9\r\n",
            "SERVER_ERROR object too large for cache\r\n",
        ),
        ("set k 0 0 9 noreply\r\n", ""),
        (
            "ms k 9 q k\r\n",
            "SERVER_ERROR object too large for cache\r\n",
        ),
    ] {
        for outcome in [Outcome::Deleted, MISSING] {
            let mut out = Vec::new();
            with_form(request, limits, |form| {
                assert_eq!(form.tally(), Tally::Refused);
                form.encode(&outcome, NOW, &mut out);
            });
            assert_eq!(out, expected.as_bytes(), "{request}");
        }
    }
}

#[test]
fn every_request_names_what_it_counts_as() {
    for (request, tally, is_meta) in [
        ("get k\r\n", Tally::Get, false),
        ("gets k\r\n", Tally::Get, false),
        ("gat 0 k\r\n", Tally::Gat, false),
        ("gats 0 k\r\n", Tally::Gat, false),
        ("set k 0 0 0\r\n\r\n", Tally::Store, false),
        ("add k 0 0 0\r\n\r\n", Tally::Store, false),
        ("replace k 0 0 0\r\n\r\n", Tally::Store, false),
        ("append k 0 0 0\r\n\r\n", Tally::Store, false),
        ("prepend k 0 0 0\r\n\r\n", Tally::Store, false),
        ("cas k 0 0 0 1\r\n\r\n", Tally::Cas, false),
        ("delete k\r\n", Tally::Delete, false),
        ("incr k 1\r\n", Tally::Incr, false),
        ("decr k 1\r\n", Tally::Decr, false),
        ("touch k 1\r\n", Tally::Touch, false),
        ("mg k\r\n", Tally::Get, true),
        ("mg k T0 N0\r\n", Tally::Gat, true),
        ("ms k 0\r\n\r\n", Tally::Store, true),
        ("ms k 0 C1\r\n\r\n", Tally::Cas, true),
        ("ms k 0 C1 ME\r\n\r\n", Tally::Store, true),
        ("ms k 0 C0 MA\r\n\r\n", Tally::Store, true),
        ("md k T0\r\n", Tally::Delete, true),
        ("ma k T0\r\n", Tally::Incr, true),
        ("ma k MD\r\n", Tally::Decr, true),
        ("me k\r\n", Tally::None, false),
    ] {
        with_form(request, Limits::default(), |form| {
            assert_eq!(
                (form.tally(), form.is_meta()),
                (tally, is_meta),
                "{request}"
            );
            assert_eq!(form.key(), b"k");
            assert!(!form.is_quiet());
        });
    }
}

#[test]
fn the_sink_prints_each_token_with_its_form_and_pauses_above_its_mark() {
    let (limits, scratch) = (Limits::default(), Bump::new());
    let (mut codec, input) = (Codec::new(false), b"get a b\r\nmg c k\r\n");
    let (mut forms, mut at) = (Vec::new(), 0);
    while let Step::Op { consumed, form, .. } = codec.next(&input[at..], &limits, NOW, &scratch) {
        forms.push(form);
        at += consumed;
    }
    let mut out = Vec::new();
    let mut sink = ReplyWriter::new(&forms, NOW, &mut out).pause_above(20);
    assert_eq!(sink.complete(0, Outcome::Found(item(b"1"))), Flow::Pause);
    assert_eq!(sink.complete(1, MISSING), Flow::Pause);
    assert_eq!(sink.complete(2, MISSING), Flow::Pause);
    assert_eq!(sink.completed(), 3);
    assert_eq!(out, b"VALUE a 4294967295 1\r\n1\r\nEND\r\nEN kc\r\n");
}
