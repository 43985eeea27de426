//! RESP, server side and client side: framing, the error texts of Redis, limits, and replies.

use crate::resp_driver;

use bumpalo::Bump;
use corewise_testkit::random::is_short;
use corewise_wire::resp::{
    Codec, Encoder, Limits, Parsed, Refusal, ReplyReader, Value, Version, encode_request,
};
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
        (0.1, "0.10000000000000001"),
        (3.0e7, "30000000"),
        (1.0e8, "100000000"),
        (123_456_789_012.0, "123456789012"),
        (1.0e-3, "0.001"),
        (1.0e-4, "0.0001"),
        (1.0e-5, "1.0000000000000001e-05"),
        (1.25e-7, "1.2499999999999999e-07"),
        (1.0e15, "1000000000000000"),
        (1.0e16, "10000000000000000"),
        (99_999_999_999_999_984.0, "99999999999999984"),
        (1.0e17, "1e+17"),
        (123_456_789_012_345_680_000.0, "1.2345678901234568e+20"),
        (0.5e15, "500000000000000"),
        (1.5e14, "150000000000000"),
        (1.0e21, "1e+21"),
        (1.7e308, "1.6999999999999999e+308"),
        (5e-324, "4.9406564584124654e-324"),
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
