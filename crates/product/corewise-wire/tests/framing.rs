//! Guarantees 1, 2, 3 and 5: totality, independence of splits, linear work, rewinding. The
//! properties run over random mixes of valid and invalid requests.

use crate::common;

use bumpalo::Bump;
use common::{NOW, Session, talk, transcript};
use corewise_wire::memcached::{Codec, Limits, Step, reply};
use proptest::prelude::*;

fn small_limits() -> Limits {
    Limits {
        max_item_size: 200,
        max_line: 4096,
        ..Limits::default()
    }
}

/// Feeds `input` in the given pieces.
fn in_pieces<'a>(authentication: bool, pieces: impl Iterator<Item = &'a [u8]>) -> Session {
    let mut session = Session::new(authentication, small_limits());
    pieces.for_each(|piece| session.feed(piece));
    session
}

/// Checks guarantee 2 for one input: whole, byte by byte, and split once at every place.
fn split_blind(authentication: bool, input: &[u8]) {
    let whole = in_pieces(authentication, std::iter::once(input));
    let bytewise = in_pieces(authentication, input.chunks(1));
    assert_eq!(
        transcript(&bytewise),
        transcript(&whole),
        "byte by byte: {input:?}"
    );
    assert_eq!(bytewise.closed, whole.closed);
    for cut in 0..=input.len() {
        let (head, tail) = input.split_at(cut);
        let cut_once = in_pieces(authentication, [head, tail].into_iter());
        assert_eq!(
            transcript(&cut_once),
            transcript(&whole),
            "cut at {cut}: {input:?}"
        );
        assert_eq!(
            cut_once.unread,
            if whole.closed {
                cut_once.unread.clone()
            } else {
                whole.unread.clone()
            }
        );
    }
}

#[test]
fn splits_do_not_matter_to_a_long_mixed_conversation() {
    let big = "x".repeat(190);
    let conversation = format!(
        "set a 0 0 2\r\nhi\r\nget a b  c \r\ngets a\ngat 9 a b\r\nset a 0 0 190\r\n{big}\r\n\
         get a\r\nms b 3 T0 Oab k q\r\nabc\r\nmg b v Oq k\r\nms c 190 q\r\n{big}\r\nma n N0 v\r\n\
         set k x 0 3\r\nabc\r\nset k 0 0 1\r\nxyz\r\nincr n 5\r\ndelete a 0 noreply\r\nfoo\r\n\
         stats\r\nmn\r\nquit\r\nmn\r\n"
    );
    split_blind(false, conversation.as_bytes());
    split_blind(
        true,
        b"get a\r\nset x 0 0 7\r\nann foo\r\nset x 0 0 10\r\nann secret\r\nmn\r\n",
    );
}

/// A piece of a request: often a whole valid one, sometimes noise.
fn fragment() -> impl Strategy<Value = Vec<u8>> {
    let key = prop_oneof![Just("a".to_owned()), Just("bb".to_owned()), "[a-z]{1,12}"];
    let good = (key, "[0-9]{1,3}", "[a-z \r\n]{0,20}", 0..16usize).prop_map(|(k, n, v, kind)| {
        let len = v.len();
        match kind {
            0 => format!("get {k}\r\n"),
            1 => format!("get {k} a {k}  b\n"),
            2 => format!("gats {n} {k} a\r\n"),
            3 => format!("set {k} {n} 0 {len}\r\n{v}\r\n"),
            4 => format!("set {k} {n} 0 {len} noreply\r\n{v}\r\n"),
            5 => format!("cas {k} 0 0 {len} {n}\r\n{v}\r\n"),
            6 => format!("append {k} 0 0 {n}\r\n{v}\r\n"),
            7 => format!("incr {k} {n}\r\n"),
            8 => format!("delete {k} {n}\r\n"),
            9 => format!("mg {k} v t Oq k T{n}\r\n"),
            10 => format!("ms {k} {len} c k F{n} q\r\n{v}\r\n"),
            11 => format!("ms {k} {n} k k\r\n{v}\r\n"),
            12 => format!("ma {k} N0 v D{n}\r\n"),
            13 => format!("md {k} q I T{n}\r\n"),
            14 => format!("touch {k} {n}\r\nme {k}\r\nmn\r\n"),
            _ => format!("stats {k}\r\nverbosity {n}\r\nset {k} 0 0 {n}\r\n"),
        }
        .into_bytes()
    });
    let noise = prop_oneof![
        prop::collection::vec(any::<u8>(), 0..40),
        "(get|set|ms|mg|gat|\r\n| |0|1|noreply|a|\n|\t|-1|b){1,12}".prop_map(String::into_bytes),
    ];
    prop_oneof![5 => good, 1 => noise]
}

fn conversation() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(fragment(), 0..10).prop_map(|parts| parts.concat())
}

/// All steps of an input, as text, through one of the two entry points of the codec.
fn steps(input: &[u8], authentication: bool) -> Vec<String> {
    let (limits, scratch) = (small_limits(), Bump::new());
    let mut codec = Codec::new(authentication);
    let (mut at, mut seen) = (0, Vec::new());
    loop {
        let before = codec;
        let step = codec.next(&input[at..], &limits, NOW, &scratch);
        let text = format!("{step:?}");
        // Guarantee 5: the copy taken before the step repeats it.
        let mut again = before;
        assert_eq!(
            format!("{:?}", again.next(&input[at..], &limits, NOW, &scratch)),
            text
        );
        seen.push(text);
        at += match step {
            Step::Incomplete { .. } | Step::Close { .. } => return seen,
            Step::Skip { consumed }
            | Step::Op { consumed, .. }
            | Step::Frame { consumed, .. }
            | Step::Call { consumed, .. } => consumed,
        };
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn no_input_panics_and_every_step_makes_progress(
        input in prop::collection::vec(any::<u8>(), 0..300),
        authentication in any::<bool>(),
    ) {
        in_pieces(authentication, std::iter::once(&input[..]));
    }

    #[test]
    fn a_conversation_does_not_depend_on_how_it_was_split(
        input in conversation(),
        authentication in prop::bool::weighted(0.1),
        sizes in prop::collection::vec(1..30usize, 1..8),
    ) {
        let whole = in_pieces(authentication, std::iter::once(&input[..]));
        let bytewise = in_pieces(authentication, input.chunks(1));
        prop_assert_eq!(transcript(&bytewise), transcript(&whole));
        let (mut rest, mut pieces, mut turn) = (&input[..], Vec::new(), 0);
        while !rest.is_empty() {
            let (piece, tail) = rest.split_at(sizes[turn % sizes.len()].min(rest.len()));
            pieces.push(piece);
            (rest, turn) = (tail, turn + 1);
        }
        let pieced = in_pieces(authentication, pieces.into_iter());
        prop_assert_eq!(transcript(&pieced), transcript(&whole));
        if !whole.closed {
            prop_assert_eq!(&pieced.unread, &whole.unread);
        }
    }

    #[test]
    fn a_copy_of_the_codec_repeats_the_step(
        input in conversation(),
        authentication in any::<bool>(),
    ) {
        steps(&input, authentication);
    }
}

/// The `need` that the codec reports for an incomplete input.
#[track_caller]
fn need(input: &[u8]) -> usize {
    match Codec::new(false).next(input, &Limits::default(), NOW, &Bump::new()) {
        Step::Incomplete { need } => need,
        other => panic!("{input:?}: {other:?}"),
    }
}

#[test]
fn an_unfinished_line_needs_one_byte_more() {
    for input in [
        &b""[..],
        b"g",
        b"get",
        b"get a",
        b"get a\r",
        b"set a 0 0 1",
        b"mg a v",
    ] {
        assert_eq!(need(input), input.len() + 1, "{input:?}");
    }
}

#[test]
fn an_unfinished_store_needs_its_whole_length() {
    assert_eq!(need(b"set a 0 0 1000\r\n"), 16 + 1002);
    assert_eq!(need(b"set a 0 0 1000\r\nabc"), 16 + 1002);
    assert_eq!(need(b"set a 0 0 1000 noreply\r\nabc"), 24 + 1002);
    assert_eq!(need(b"  set a 0 0 1000 noreply\nabc"), 25 + 1002);
    assert_eq!(need(b"ms a 1000\r\n"), 11 + 1002);
    assert_eq!(need(b"ms a 1000 q\r\nx"), 13 + 1002);
}

#[test]
fn the_largest_length_there_is_asks_for_that_much_if_the_limit_allows() {
    let limits = Limits {
        max_item_size: usize::MAX,
        ..Limits::default()
    };
    let input = b"set a 0 0 2147483645\r\n";
    match Codec::new(false).next(input, &limits, NOW, &Bump::new()) {
        Step::Incomplete { need } => assert_eq!(need, input.len() + 2_147_483_647),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_refused_store_is_answered_before_its_data_and_swallows_exactly_that() {
    let (limits, scratch) = (Limits::default(), Bump::new());
    let mut codec = Codec::new(false);
    let line = b"add a 0 0 2000000\r\n";
    assert!(matches!(
        codec.next(line, &limits, NOW, &scratch),
        Step::Frame {
            consumed: 19,
            bytes: reply::TOO_LARGE
        }
    ));
    let mut left = 2_000_002;
    assert!(codec.is_swallowing());
    assert!(matches!(
        codec.next(b"", &limits, NOW, &scratch),
        Step::Incomplete { need: 1 }
    ));
    let chunk = vec![b'\n'; 65_536];
    while left > 0 {
        let Step::Skip { consumed } = codec.next(&chunk, &limits, NOW, &scratch) else {
            panic!("data of a refused store was not skipped");
        };
        assert_eq!(consumed, left.min(chunk.len()));
        left -= consumed;
    }
    assert!(!codec.is_swallowing());
    assert!(matches!(
        codec.next(b"mn\r\n", &limits, NOW, &scratch),
        Step::Frame { .. }
    ));
}

/// Refuses the first step for lack of memory, then sends the rest of the data and one more request.
/// Returns the replies, and whether `a` still exists.
fn refused(start: &str, rest: &str) -> (String, bool) {
    let mut session = Session::new(false, Limits::default());
    session.feed(b"set a 0 0 3\r\nold\r\n");
    session.out.clear();
    session.no_room = true;
    session.feed(start.as_bytes());
    session.no_room = false;
    session.feed(rest.as_bytes());
    session.feed(b"mn\r\n");
    let there = session.model.items.contains_key(&b"a"[..]);
    (transcript(&session), there)
}

#[test]
fn a_store_without_memory_to_read_it_is_answered_and_swallowed() {
    const ERROR: &str = "SERVER_ERROR out of memory reading request\r\n";
    let error = format!("{ERROR}MN\r\n");
    // A value that its owner meant to overwrite is removed; `append`, `cas` and `add` leave it.
    assert_eq!(
        refused("set a 0 0 9\r\nab", "cdefghi\r\n"),
        (error.clone(), false)
    );
    assert_eq!(
        refused(" set  a 0 0 9\nab", "cdefghi\r\n"),
        (error.clone(), false)
    );
    assert_eq!(
        refused("ms a 9 q\r\n", "abcdefghi\r\n"),
        (error.clone(), false)
    );
    for line in ["add a 0 0 9", "append a 0 0 9", "cas a 0 0 9 1"] {
        let start = format!("{line}\r\nabcdefghi\r");
        assert_eq!(refused(&start, "\n"), (error.clone(), true), "{line}");
    }
    let silent = ("MN\r\n".to_owned(), false);
    assert_eq!(refused("set a 0 0 9 noreply\r\n", "abcdefghi\r\n"), silent);
    // An unfinished line may be anything.
    let closed = (format!("{ERROR}<closed>"), true);
    assert_eq!(refused("get a b c", " d\r\n"), closed);
}

#[test]
fn what_is_complete_is_not_refused() {
    let (line, swallowed) = ("set a 0 0 1\r\nx\r\nset b 0 0 2000\r\nx", "y".repeat(1_999));
    let (text, there) = refused(line, &format!("{swallowed}\r\n"));
    assert_eq!(
        text,
        "STORED\r\nSERVER_ERROR out of memory reading request\r\nMN\r\n"
    );
    assert!(there);
}

#[test]
fn a_line_without_end_hangs_up_after_2048_bytes() {
    assert_eq!(need(&[b'x'; 2048]), 2049);
    assert_eq!(talk(&[b'x'; 2049]), "<closed>");
    let mut line = vec![b'x'; 2048];
    line.extend_from_slice(b"\r\n");
    assert_eq!(talk(&line), "<closed>");
    line.remove(0);
    assert_eq!(talk(&line), "ERROR\r\n");
}

#[test]
fn a_multiget_may_be_long_but_not_endless() {
    let keys = "key ".repeat(10_000);
    for word in ["get", "gets", "gat 0", "gats 0", "  get"] {
        assert_eq!(talk(format!("{word} {keys}\r\n").as_bytes()), "END\r\n");
    }
    let keys = "key ".repeat(300_000);
    let closed = "SERVER_ERROR out of memory reading request\r\n<closed>";
    assert_eq!(talk(format!("get {keys}\r\n").as_bytes()), closed);
    assert_eq!(talk(format!("get {keys}").as_bytes()), closed);
    assert_eq!(
        talk(format!("{}get {keys}", " ".repeat(101)).as_bytes()),
        "<closed>"
    );
    assert_eq!(talk(format!("mg {keys}").as_bytes()), "<closed>");
}

#[test]
fn a_multiget_can_be_left_between_any_two_keys() {
    let (limits, scratch) = (Limits::default(), Bump::new());
    let input = b"gat 60 a  bb ccc \r\nmn\r\n";
    let mut codec = Codec::new(false);
    let (mut at, mut keys) = (0, Vec::new());
    while let Step::Op { consumed, key, .. } = codec.next(&input[at..], &limits, NOW, &scratch) {
        keys.push(key);
        at += consumed;
    }
    assert_eq!(keys, [&b"a"[..], b"bb", b"ccc"]);
    assert_eq!(&input[at..], b"mn\r\n");
}

#[test]
fn drip_fed_lines_are_searched_once() {
    // 2^20 calls over a line of 2^20 bytes: if each call searched from the start, this would read
    // 2^39 bytes and not finish.
    let line = format!("get {}", "0123456 ".repeat((1 << 17) - 1));
    let (limits, scratch) = (Limits::default(), Bump::new());
    let mut codec = Codec::new(false);
    for len in 1..=line.len() {
        let step = codec.next(&line.as_bytes()[..len], &limits, NOW, &scratch);
        assert!(matches!(step, Step::Incomplete { .. }));
    }
}
