//! RESP, server side and client side: framing, the error texts of Redis, limits, and replies.

use crate::resp_driver;

use bumpalo::Bump;
use corewise_ops::{
    Deadline, Edit, Get, ItemFlags, ItemView, Now, Outcome, Store, StoreMode, Verb,
};
use corewise_testkit::random::is_short;
use corewise_wire::resp::{
    Codec, CommandCodec, Encoder, Limits, Parsed, Refusal, Replies, ReplyReader, Value, Version,
    encode_request,
};
use corewise_wire::{Call, Step};
use proptest::prelude::*;
use resp_driver::{Connection, Event, receive, reference};

/// Limits that random input reaches.
fn small_limits() -> Limits {
    Limits {
        max_elements: 20,
        max_bulk: 100,
        max_inline: 60,
        max_request: 150,
    }
}

fn request(elements: &[&str]) -> Event {
    Event::Request(
        elements
            .iter()
            .map(|text| text.as_bytes().to_vec())
            .collect(),
    )
}

fn events(input: &[u8]) -> Vec<Event> {
    receive(Limits::default(), [input]).events
}

/// The error that closes the connection after `input`.
#[track_caller]
fn error(input: &[u8]) -> String {
    match &events(input)[..] {
        [Event::Close(text)] => text.clone(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_request_is_an_array_of_bulk_strings() {
    let input = b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$5\r\na\r\nb\0\r\n*1\r\n$0\r\n\r\n";
    assert_eq!(
        events(input),
        [request(&["SET", "k", "a\r\nb\0"]), request(&[""])]
    );
}

#[test]
fn empty_requests_are_skipped() {
    assert_eq!(
        events(b"*0\r\n*-1\r\n\r\n\n  \r\n*-7\r\nPING\r\n"),
        [request(&["PING"])]
    );
}

#[test]
fn inline_requests_are_words_with_quotes() {
    for (line, expected) in [
        (&b"PING\r\n"[..], &["PING"][..]),
        (b"  get\t k \n", &["get", "k"]),
        (b"set k \"a b\"\r\n", &["set", "k", "a b"]),
        (b"set k '' \"\"\r\n", &["set", "k", "", ""]),
        (b"a\"b c\"\r\n", &["ab c"]),
        (
            br#"e "\n\r\t\a\b\x41\x4g\"\\\q""#,
            &["e", "\n\r\t\x07\x08Ax4g\"\\q"],
        ),
        (br#"e '\'\n"'"#, &["e", "'\\n\""]),
        (b"a\x0bb \x0c c", &["a\x0bb", "c"]),
        (b"nul \0 k", &["nul", "\0", "k"]),
    ] {
        let line = [line.strip_suffix(b"\r\n").unwrap_or(line), b"\r\n"].concat();
        assert_eq!(
            events(&line),
            [request(expected)],
            "{}",
            line.escape_ascii()
        );
    }
}

#[test]
fn malformed_input_gets_the_errors_of_redis() {
    for (input, text) in [
        (&b"*1x\r\n"[..], "invalid multibulk length"),
        (b"*\r\n", "invalid multibulk length"),
        (b"*+1\r\n", "invalid multibulk length"),
        (b"*01\r\n", "invalid multibulk length"),
        (b"*1048577\r\n", "invalid multibulk length"),
        (b"*99999999999999999999\r\n", "invalid multibulk length"),
        (b"*1\r\n$-1\r\n", "invalid bulk length"),
        (b"*1\r\n$\r\n", "invalid bulk length"),
        (b"*1\r\n$536870913\r\n", "invalid bulk length"),
        (b"*1\r\n$999999999999\r\n", "invalid bulk length"),
        (b"*1\r\n$99999999999999999999\r\n", "invalid bulk length"),
        (b"*2\r\n$3\r\nGET\r\n$x\r\n", "invalid bulk length"),
        (b"*1\r\nGET\r\n", "expected '$', got 'G'"),
        (b"*1\r\n*1\r\n$1\r\na\r\n", "expected '$', got '*'"),
        (b"*1\r\n:1\r\n", "expected '$', got ':'"),
        (b"*1\r\n\r\n", "expected '$', got ' '"),
        (b"*1\r\n\n\r\n", "expected '$', got ' '"),
        (b"set k \"v\r\n", "unbalanced quotes in request"),
        (b"set k 'v\r\n", "unbalanced quotes in request"),
        (b"set k \"v\"w\r\n", "unbalanced quotes in request"),
        (b"set k 'v'w\r\n", "unbalanced quotes in request"),
        (b"set k \"v\\\"\r\n", "unbalanced quotes in request"),
    ] {
        let expected = format!("-ERR Protocol error: {text}\r\n");
        assert_eq!(error(input), expected, "{}", input.escape_ascii());
    }
}

#[test]
fn lines_have_a_limit_however_they_arrive() {
    for (begin, text) in [
        (&b"*"[..], "too big mbulk count string"),
        (b"*1\r\n$", "too big bulk count string"),
        (b"*1\r\nx", "too big bulk count string"),
        (b"a", "too big inline request"),
    ] {
        let line = [begin, &[b'1'; 65_537], b"\r\n"].concat();
        let expected = format!("-ERR Protocol error: {text}\r\n");
        assert_eq!(error(&line), expected);
        let pieces = receive(Limits::default(), line.chunks(1000));
        assert_eq!(pieces.events, [Event::Close(expected)]);
        assert!(pieces.most_kept <= 66_600, "{}", pieces.most_kept);
    }
    let longest = [&[b'a'; 65_536][..], b"\n"].concat();
    let Event::Request(words) = &events(&longest)[0] else {
        panic!()
    };
    assert_eq!(words[0].len(), 65_536);
}

#[test]
fn nested_arrays_are_refused_at_the_first() {
    let nested = b"*1\r\n".repeat(1_000_000);
    assert_eq!(
        error(&nested),
        "-ERR Protocol error: expected '$', got '*'\r\n"
    );
}

#[test]
fn a_client_that_has_not_authenticated_sends_little() {
    let after = |input: &[u8]| {
        let mut connection = Connection::new(false, Limits::default());
        connection.feed(input);
        connection.events
    };
    let close = |text: &str| [Event::Close(format!("-ERR Protocol error: {text}\r\n"))];
    assert_eq!(after(b"*11\r\n"), close("unauthenticated multibulk length"));
    assert_eq!(
        after(b"*1\r\n$16385\r\n"),
        close("unauthenticated bulk length")
    );
    assert_eq!(after(b"*10\r\n$16384\r\n"), []);
    let mut connection = Connection::new(false, Limits::default());
    connection.codec.set_authenticated();
    connection.feed(b"*11\r\n$16385\r\n");
    assert_eq!(connection.events, []);
}

const INVALID: &str = "-ERR Protocol error: invalid bulk length\r\n";

/// The line of the last length begins at every distance before the limit; one of 101 is invalid.
#[test]
fn a_request_over_the_limit_is_discarded_and_refused() {
    let most = small_limits().max_request;
    for (first, last) in (0..=100).flat_map(|first| [(first, 100), (first, 101)]) {
        let mut input = Vec::new();
        let elements = [&vec![b'v'; first][..], &[b'u'; 30], &vec![b'w'; last]];
        encode_request(&elements, &mut input);
        if input.len() <= most {
            continue;
        }
        encode_request(&[b"PING"], &mut input);
        let expected = match last {
            100 => vec![Event::Refused(Refusal::TooLong), request(&["PING"])],
            _ => vec![Event::Close(INVALID.to_owned())],
        };
        for size in 1..=input.len() {
            let connection = receive(small_limits(), input.chunks(size));
            assert_eq!(connection.events, expected, "pieces of {size} bytes");
            let kept = connection.most_kept;
            // The driver keeps what arrived with the byte that closes the connection.
            let is_exact = size == 1 || last == 100;
            assert!(!is_exact || kept <= most, "{kept}, {first}, {last}, {size}");
        }
    }
}

#[test]
fn a_request_without_memory_is_discarded_and_refused() {
    let (limits, scratch) = (Limits::default(), Bump::new());
    let mut input = Vec::new();
    encode_request(&[b"SET", b"key", b"value", b"KEEPTTL"], &mut input);
    let len = input.len();
    input.extend_from_slice(b"PING\r\n");
    for cut in 4..len {
        let mut connection = Connection::new(true, limits);
        connection.feed(&input[..cut]);
        assert_eq!(connection.events, []);
        let kept = connection.unread.len();
        let Parsed::Skip { consumed } = connection.codec.refuse(&input[..kept], &limits, &scratch)
        else {
            panic!("cut at {cut}")
        };
        assert!(connection.codec.is_swallowing());
        connection.unread.drain(..consumed);
        connection.feed(&input[cut..]);
        let expected = [Event::Refused(Refusal::NoMemory), request(&["PING"])];
        assert_eq!(connection.events, expected, "cut at {cut}");
        assert!(!connection.codec.is_swallowing());
    }
    for line in [&b"*"[..], b"*3\r", b"get k"] {
        let Parsed::Close { reply } = Codec::new(true).refuse(line, &limits, &scratch) else {
            panic!()
        };
        assert_eq!(reply, Refusal::NoMemory.line());
    }
}

#[test]
fn need_is_the_end_of_the_element_that_has_begun() {
    let (limits, scratch) = (Limits::default(), Bump::new());
    let mut codec = Codec::new(true);
    for (input, expected) in [
        (&b"*2\r"[..], 4),
        (b"*2\r\n$10", 8),
        (b"*2\r\n$10\r\n", 21),
        (b"*2\r\n$10\r\n0123456789\r\n$1", 24),
    ] {
        let Parsed::Incomplete { need } = codec.next(input, &limits, &scratch) else {
            panic!()
        };
        assert_eq!(need, expected, "{}", input.escape_ascii());
    }
}

/// A piece of a conversation: mostly well-formed, of sizes around the small limits.
fn piece() -> impl Strategy<Value = Vec<u8>> {
    let element = prop_oneof![
        4 => prop::collection::vec(any::<u8>(), 0..12),
        1 => prop::collection::vec(Just(b'v'), 40..105),
    ];
    let multibulk = prop::collection::vec(element, 0..6).prop_map(|elements| {
        let elements: Vec<&[u8]> = elements.iter().map(Vec::as_slice).collect();
        let mut out = Vec::new();
        encode_request(&elements, &mut out);
        out
    });
    let pattern = |text| prop::string::string_regex(text).expect("a pattern");
    let inline = prop_oneof![
        6 => pattern(r#"([a-z]{1,4}|"([a-z ]|\\[nxq"]|\\x[0-9a-g]{2})*"|'([a-z ]|\\['n])*'| ){1,5}"#),
        1 => pattern("[a-z\"' \\\\\x0b\x0c\0]{0,70}"),
    ];
    let inline = (inline, prop_oneof![Just("\r\n"), Just("\n")]);
    let odd = pattern("[*$]-?[0-9]{0,3}(\r\n|\n|\r|)[$*:a]?[0-9]{0,3}(\r\n)?");
    prop_oneof![
        8 => multibulk,
        4 => inline.prop_map(|(line, end)| (line + end).into_bytes()),
        1 => odd.prop_map(String::into_bytes),
        1 => prop::collection::vec(any::<u8>(), 0..4),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), ..ProptestConfig::default() })]

    /// Guarantee 2, and agreement with the second parser.
    #[test]
    fn splits_change_nothing_and_the_second_parser_agrees(
        pieces in prop::collection::vec(piece(), 0..8),
        sizes in prop::collection::vec(1_usize..30, 1..6),
    ) {
        let input = pieces.concat();
        let whole = receive(small_limits(), [&input[..]]);
        prop_assert_eq!(&whole.events, &reference(&input, small_limits()));
        let bytewise = receive(small_limits(), input.chunks(1));
        prop_assert_eq!(&bytewise.events, &whole.events);
        let mut rest = &input[..];
        let mut sizes = sizes.iter().cycle();
        let cut = std::iter::from_fn(|| {
            let (piece, tail) = rest.split_at(rest.len().min(*sizes.next()?));
            rest = tail;
            (!piece.is_empty()).then_some(piece)
        });
        prop_assert_eq!(&receive(small_limits(), cut).events, &whole.events);
        let most = small_limits().max_request.max(small_limits().max_inline + 4);
        prop_assert!(bytewise.most_kept <= most, "{} bytes kept", bytewise.most_kept);
    }

    #[test]
    fn requests_are_parsed_as_they_were_encoded(
        elements in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 1..20)
    ) {
        let slices: Vec<&[u8]> = elements.iter().map(Vec::as_slice).collect();
        let mut out = Vec::new();
        encode_request(&slices, &mut out);
        prop_assert_eq!(events(&out), [Event::Request(elements)]);
    }

    #[test]
    fn replies_of_version_3_are_read_as_they_were_printed(reply in reply()) {
        let printed = printed(Version::Resp3, &reply);
        prop_assert_eq!(read_all(&printed), expected(Version::Resp3, &reply));
    }

    #[test]
    fn replies_of_version_2_are_read_as_what_redis_replaces_them_with(reply in reply()) {
        let printed = printed(Version::Resp2, &reply);
        prop_assert_eq!(read_all(&printed), expected(Version::Resp2, &reply));
    }

    #[test]
    fn doubles_are_read_as_they_were_printed(bits in any::<u64>()) {
        let value = f64::from_bits(bits);
        let printed = printed(Version::Resp3, &Reply::Double(value));
        let (_, read) = ReplyReader::default().next(&printed).unwrap().unwrap();
        let Value::Double(read) = read else { panic!("{read:?}") };
        prop_assert!(read.to_bits() == bits || read.is_nan() && value.is_nan());
    }

    #[test]
    fn a_reader_never_panics(bytes in prop::collection::vec(
        prop_oneof![Just(b'\r'), Just(b'\n'), Just(b'1'), Just(b'$'), Just(b'*'), any::<u8>()], 0..40,
    )) {
        let mut reader = ReplyReader::default();
        let mut at = 0;
        while let Ok(Some((consumed, _))) = reader.next(&bytes[at..]) {
            prop_assert!(consumed > 0);
            at += consumed;
        }
    }
}

/// Cases of a property: fewer under sanitizers.
fn cases() -> u32 {
    if is_short() { 100 } else { 2000 }
}

/// A reply as its writer thinks of it.
#[derive(Clone, Debug)]
enum Reply {
    Simple(String),
    Error(String),
    Integer(i64),
    Bulk(Vec<u8>),
    Null,
    NullArray,
    Double(f64),
    Boolean(bool),
    BigNumber(String),
    Verbatim(String),
    Array(Vec<Reply>),
    Map(Vec<(Reply, Reply)>),
    Set(Vec<Reply>),
    Push(Vec<Reply>),
}

fn reply() -> impl Strategy<Value = Reply> {
    let leaf = prop_oneof![
        "[a-zA-Z\r\n ]{0,9}".prop_map(Reply::Simple),
        "ERR [a-z\r\n ]{0,9}".prop_map(Reply::Error),
        any::<i64>().prop_map(Reply::Integer),
        prop::collection::vec(any::<u8>(), 0..20).prop_map(Reply::Bulk),
        Just(Reply::Null),
        Just(Reply::NullArray),
        any::<f64>().prop_map(Reply::Double),
        any::<bool>().prop_map(Reply::Boolean),
        "-?[1-9][0-9]{0,40}".prop_map(Reply::BigNumber),
        "[a-z\r\n]{0,9}".prop_map(Reply::Verbatim),
    ];
    leaf.prop_recursive(4, 40, 6, |inner| {
        let list = || prop::collection::vec(inner.clone(), 0..6);
        prop_oneof![
            list().prop_map(Reply::Array),
            list().prop_map(Reply::Set),
            list().prop_map(Reply::Push),
            prop::collection::vec((inner.clone(), inner.clone()), 0..4).prop_map(Reply::Map),
        ]
    })
}

fn printed(version: Version, reply: &Reply) -> Vec<u8> {
    let mut out = Vec::new();
    print(&mut Encoder::new(version, &mut out), reply);
    out
}

fn print(to: &mut Encoder<'_>, reply: &Reply) {
    match reply {
        Reply::Simple(text) => to.simple(text),
        Reply::Error(text) => to.error(&[text.as_bytes()]),
        Reply::Integer(value) => to.integer(*value),
        Reply::Bulk(bytes) => to.bulk(bytes),
        Reply::Null => to.null(),
        Reply::NullArray => to.null_array(),
        Reply::Double(value) => to.double(*value),
        Reply::Boolean(value) => to.boolean(*value),
        Reply::BigNumber(digits) => to.big_number(digits),
        Reply::Verbatim(text) => to.verbatim(*b"txt", text.as_bytes()),
        Reply::Array(list) | Reply::Set(list) | Reply::Push(list) => {
            match reply {
                Reply::Array(_) => to.array(list.len()),
                Reply::Set(_) => to.set(list.len()),
                _ => to.push(list.len()),
            }
            list.iter().for_each(|element| print(to, element));
        }
        Reply::Map(pairs) => {
            to.map(pairs.len());
            for (key, value) in pairs {
                print(to, key);
                print(to, value);
            }
        }
    }
}

/// The values that a reader must report, as their debug texts.
fn expected(version: Version, reply: &Reply) -> Vec<String> {
    let text = |value: Value<'_>| vec![format!("{value:?}")];
    let line = |text: &str| text.replace(['\r', '\n'], " ");
    let heads = |two: usize, three: Value<'_>| match version {
        Version::Resp2 => text(Value::Array(two)),
        Version::Resp3 => text(three),
    };
    match (version, reply) {
        (_, Reply::Simple(words)) => text(Value::Simple(line(words).as_bytes())),
        (_, Reply::Error(words)) => text(Value::Error(line(words).as_bytes())),
        (_, Reply::Integer(value)) => text(Value::Integer(*value)),
        (_, Reply::Bulk(bytes)) => text(Value::Bulk(bytes)),
        (_, Reply::Null | Reply::NullArray) => text(Value::Null),
        (Version::Resp3, Reply::Double(value)) => text(Value::Double(*value)),
        (Version::Resp2, Reply::Double(_)) => {
            let three = printed(Version::Resp3, reply);
            text(Value::Bulk(&three[1..three.len() - 2]))
        }
        (Version::Resp3, Reply::Boolean(value)) => text(Value::Boolean(*value)),
        (Version::Resp2, Reply::Boolean(value)) => text(Value::Integer(i64::from(*value))),
        (Version::Resp3, Reply::BigNumber(digits)) => text(Value::BigNumber(digits.as_bytes())),
        (Version::Resp2, Reply::BigNumber(digits)) => text(Value::Bulk(digits.as_bytes())),
        (Version::Resp3, Reply::Verbatim(words)) => {
            text(Value::Verbatim(*b"txt", words.as_bytes()))
        }
        (Version::Resp2, Reply::Verbatim(words)) => text(Value::Bulk(words.as_bytes())),
        (_, Reply::Array(list) | Reply::Set(list) | Reply::Push(list)) => {
            let len = list.len();
            let mut all = heads(
                len,
                match reply {
                    Reply::Array(_) => Value::Array(len),
                    Reply::Set(_) => Value::Set(len),
                    _ => Value::Push(len),
                },
            );
            all.extend(list.iter().flat_map(|element| expected(version, element)));
            all
        }
        (_, Reply::Map(pairs)) => {
            let mut all = heads(2 * pairs.len(), Value::Map(pairs.len()));
            let each = pairs.iter().flat_map(|(key, value)| [key, value]);
            all.extend(each.flat_map(|element| expected(version, element)));
            all
        }
    }
}

/// Reads one reply, and checks that every prefix of it is incomplete.
fn read_all(bytes: &[u8]) -> Vec<String> {
    let mut reader = ReplyReader::default();
    let mut values = Vec::new();
    let mut at = 0;
    while at == 0 || !reader.is_complete() {
        let (consumed, value) = reader.next(&bytes[at..]).unwrap().expect("a whole reply");
        for cut in 0..consumed {
            let mut copy = ReplyReader::default();
            assert_eq!(copy.next(&bytes[at..at + cut]), Ok(None));
        }
        values.push(format!("{value:?}"));
        at += consumed;
    }
    assert_eq!(at, bytes.len());
    values
}

#[test]
fn doubles_have_the_form_of_redis() {
    for (value, text) in [
        (0.0, "0"),
        (-0.0, "-0"),
        (1.0, "1"),
        (-1.5, "-1.5"),
        (0.1, "0.1"),
        (3.0e7, "30000000"),
        (1.0e8, "1e+8"),
        (1.0e7, "10000000"),
        (123_456_789_012.0, "123456789012"),
        (1.0e-3, "0.001"),
        (1.0e-6, "0.000001"),
        (1.0e-7, "1e-7"),
        (1.25e-7, "1.25e-7"),
        (1.0e21, "1e+21"),
        (1.7e308, "1.7e+308"),
        (5e-324, "5e-324"),
        (f64::INFINITY, "inf"),
        (f64::NEG_INFINITY, "-inf"),
    ] {
        let printed = printed(Version::Resp3, &Reply::Double(value));
        assert_eq!(String::from_utf8_lossy(&printed), format!(",{text}\r\n"));
    }
}

#[test]
fn the_versions_differ_as_in_redis() {
    for (reply, two, three) in [
        (Reply::Null, "$-1\r\n", "_\r\n"),
        (Reply::NullArray, "*-1\r\n", "_\r\n"),
        (Reply::Boolean(true), ":1\r\n", "#t\r\n"),
        (Reply::Boolean(false), ":0\r\n", "#f\r\n"),
        (Reply::BigNumber("-12".into()), "$3\r\n-12\r\n", "(-12\r\n"),
        (
            Reply::Verbatim("hi".into()),
            "$2\r\nhi\r\n",
            "=6\r\ntxt:hi\r\n",
        ),
        (
            Reply::Map(vec![(Reply::Null, Reply::Null)]),
            "*2\r\n$-1\r\n$-1\r\n",
            "%1\r\n_\r\n_\r\n",
        ),
        (Reply::Set(vec![]), "*0\r\n", "~0\r\n"),
        (Reply::Push(vec![]), "*0\r\n", ">0\r\n"),
        (Reply::Double(f64::INFINITY), "$3\r\ninf\r\n", ",inf\r\n"),
    ] {
        let text = |version| String::from_utf8(printed(version, &reply)).unwrap();
        assert_eq!(text(Version::Resp2), two);
        assert_eq!(text(Version::Resp3), three);
    }
}

#[test]
fn replies_nested_a_million_times_are_read_in_constant_memory() {
    let bytes = [b"*1\r\n".repeat(1_000_000), b":1\r\n".to_vec()].concat();
    let mut reader = ReplyReader::default();
    let (mut at, mut values) = (0, 0);
    while at == 0 || !reader.is_complete() {
        let (consumed, _) = reader.next(&bytes[at..]).unwrap().unwrap();
        at += consumed;
        values += 1;
    }
    assert_eq!((at, values), (bytes.len(), 1_000_001));
}

#[test]
fn attributes_belong_to_the_value_behind_them() {
    let bytes = b"|1\r\n+ttl\r\n:3\r\n*1\r\n$1\r\na\r\n";
    assert_eq!(
        read_all(bytes),
        [
            "Attributes(1)",
            "Simple([116, 116, 108])",
            "Integer(3)",
            "Array(1)",
            "Bulk([97])"
        ]
    );
}

#[test]
fn input_that_is_not_a_reply_is_malformed() {
    for bytes in [
        &b"x\r\n"[..],
        b"\r\n",
        b":1\n",
        b":\r\n",
        b"$x\r\n",
        b"$-2\r\n",
        b"$1\r\nabc",
        b"*-2\r\n",
        b"#x\r\n",
        b"_x\r\n",
        b"(\r\n",
        b"(1x\r\n",
        b",x\r\n",
        b"=3\r\nabc\r\n",
        b"%-1\r\n",
        b"$9223372036854775807\r\n\r\n",
        b"*18446744073709551616\r\n",
        b"$?\r\n",
    ] {
        let read = ReplyReader::default().next(bytes);
        let is_waiting = bytes.starts_with(b"$9") && read == Ok(None);
        assert!(
            read.is_err() || is_waiting,
            "{}: {read:?}",
            bytes.escape_ascii()
        );
    }
    let endless = [b":", &[b'1'; 70_000][..]].concat();
    assert!(ReplyReader::default().next(&endless).is_err());
}

const NOW: Now = Now {
    ms: 1_000_000,
    unix_s: 1_800_000_000,
};

/// The steps of one connection, as texts, with the input in pieces of `size` bytes. Every step is
/// taken twice, the first time with a copy of the codec.
fn steps(mut codec: CommandCodec, limits: &Limits, input: &[u8], size: usize) -> Vec<String> {
    let mut steps = Vec::new();
    let (mut unread, mut at) = (Vec::new(), 0);
    for piece in input.chunks(size) {
        unread.extend_from_slice(piece);
        loop {
            let scratch = Bump::new();
            let mut copy = codec;
            let rehearsal = copy.next(&unread[at..], limits, NOW, &scratch);
            let step = codec.next(&unread[at..], limits, NOW, &scratch);
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
                        Verb::Get(_) => format!("other get {key}"),
                        Verb::Delete(_) => format!("delete {key}"),
                        Verb::Arith(_) => panic!("a counter of memcached"),
                    });
                    consumed
                }
                Step::Frame { consumed, bytes } => {
                    steps.push(format!("frame {}", bytes.escape_ascii()));
                    consumed
                }
                Step::Call {
                    consumed,
                    call: Call::Resp(request),
                } => {
                    steps.push(format!("{request:?}"));
                    consumed
                }
                Step::Call { call, .. } => panic!("{call:?}"),
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
        let steps = steps(CommandCodec::new(true), &Limits::default(), input, size);
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
        ("set k v KEEPTTL", "edit k 281474976710656 v"),
        ("set k v nx GET", "edit k 562949953421312 v"),
        ("set k v get xx PX 5", "edit k 1125899907842629 v"),
        ("del k", "delete k"),
        ("UNLINK k", "delete k"),
        ("strlen k", "get k"),
        ("touch k", "get k"),
        ("exists k", "other get k"),
        ("type k", "other get k"),
        ("ttl k", "other get k"),
        ("pttl k", "other get k"),
        ("expire k 5", "other get k"),
        ("pexpire k 5", "other get k"),
        ("ping", "frame +PONG\\r\\n"),
    ] {
        assert_steps(format!("{request}\r\n").as_bytes(), &[step]);
    }
}

#[test]
fn rare_options_and_wrong_arguments_are_calls() {
    for call in [
        "set k",
        "set k v NX NX",
        "set k v NX XX",
        "set k v EX 5 KEEPTTL",
        "set k v KEEPTTL PX 5",
        "set k v KEEP",
        "set k v EX 5 PX 5",
        "set k v EX",
        "set k v NX EX",
        "incr",
        "incr k l",
        "incrby k",
        "incrby k x",
        "decrby k -9223372036854775808",
        "setrange k -1 v",
        "setrange k 4096 v",
        "setrange k 9223372036854775807 v",
        "setex k 0 v",
        "expire k 0",
        "expire k -1",
        "expire k 5 NX",
        "pexpire k 9223372036854775807",
        "expireat k 5",
        "del k l",
        "exists k l",
        "touch",
        "getex k ex 0",
        "getex k ex x",
        "getex k exat 5",
        "getex k nx",
        "getrange k 0 x",
        "nosuch k",
        "a name that is longer k",
        "ping hi",
        "set k v EX 0",
        "set k v EX -1",
        "set k v EX 1x",
        "set k v EX 9223372036854775807",
        "set k v PX 9223372036854775807",
        "set k v EXAT 5",
        "set k v ex 9223372036854775",
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
            "frame +PONG\\r\\n",
        ],
    );
}

#[test]
fn a_long_inline_mget_takes_memory_in_proportion() {
    let limits = Limits::default();
    let input = [b"mget", &b" k".repeat(30_000)[..], b"\r\n"].concat();
    let (mut codec, scratch) = (CommandCodec::new(true), Bump::new());
    let (mut at, mut keys) = (0, 0);
    while at < input.len() {
        at += match codec.next(&input[at..], &limits, NOW, &scratch) {
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
        CommandCodec::new(false),
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
    for size in [1, 5, input.len()] {
        let steps = steps(CommandCodec::new(true), &small_limits(), &input, size);
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
    }
}

const MISSING: Outcome<'_> = Outcome::Missing(corewise_ops::Absence::Unknown);

/// Prints the outcome of a request in both versions, and compares with what is expected.
fn assert_printed(request: &str, outcome: &Outcome<'_>, two: &str, three: &str) {
    let (limits, scratch) = (Limits::default(), Bump::new());
    for (version, expected) in [(Version::Resp2, two), (Version::Resp3, three)] {
        let input = format!("{request}\r\n");
        let mut codec = CommandCodec::new(true);
        codec.set_version(version);
        let Step::Op { form, .. } = codec.next(input.as_bytes(), &limits, NOW, &scratch) else {
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
    let limits = Limits {
        max_request: 30,
        ..Limits::default()
    };
    let input =
        b"ping\r\n*2\r\n$3\r\nget\r\n$30\r\n012345678901234567890123456789\r\nping\r\n*x\r\n";
    let mut next = CommandCodec::new(true);
    next.set_replies(Replies::AllButNext);
    let (refused, closed) = (
        "frame -ERR request exceeds the maximum length\\r\\n",
        "close -ERR Protocol error: invalid multibulk length\\r\\n",
    );
    let pong = "frame +PONG\\r\\n";
    for size in [input.len(), 1] {
        let mut none = CommandCodec::new(true);
        none.set_replies(Replies::None);
        let silent = steps(none, &limits, input, size);
        assert_eq!(silent, ["Request(ping)", "Request(ping)", "close "]);
        none.begin_calls();
        assert!(!none.end_calls() && none.takes_silence());
        none.set_replies(Replies::All);
        let all = steps(none, &limits, input, size);
        assert_eq!(all, [pong, refused, pong, closed]);
        // The request that is refused is the next one.
        let next = steps(next, &limits, &input[6..], size);
        assert_eq!(next, [pong, closed]);
    }
}

/// The new value and the number, or the error, of the edit that a request is.
fn edited(request: &str, old: Option<&str>) -> Result<(String, i64), &'static str> {
    let (limits, scratch) = (Limits::default(), Bump::new());
    let input = format!("{request}\r\n");
    let mut codec = CommandCodec::new(true);
    let step = codec.next(input.as_bytes(), &limits, NOW, &scratch);
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
    let most = "9223372036854775807";
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
        ("getset k v", Some("abc"), fresh, "v", 0),
        ("getdel k", Some("abc"), "Remove", "", 0),
        ("persist k", Some("abc"), "Touch(Deadline(0))", "", 1),
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
