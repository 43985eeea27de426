//! Values that are received separately from their lines: the operations and replies equal those of
//! the same bytes in one piece.

use bumpalo::Bump;
use corewise_ops::{Now, StoreMode, Verb};
use corewise_wire::memcached::{Announced, Codec, Limits, Step};
use proptest::prelude::*;

const NOW: Now = Now::new(1_000_000, 1_800_000_000);
/// The time at which the data has arrived.
const LATER: Now = Now::new(1_007_000, 1_800_000_007);

fn limits() -> Limits {
    Limits {
        max_item_size: 200,
        ..Limits::default()
    }
}

/// The line of a store, valid or nearly so, that announces `length` bytes.
fn line(length: usize) -> impl Strategy<Value = String> {
    let key = prop_oneof![Just("a".to_owned()), "[a-z]{1,12}", Just("x".repeat(251))];
    let number = prop_oneof![
        Just("0".to_owned()),
        "[0-9]{1,9}",
        Just("-1".to_owned()),
        Just("y".to_owned()),
    ];
    let word = prop_oneof![
        Just("set"),
        Just("add"),
        Just("replace"),
        Just("append"),
        Just("prepend"),
        Just("cas"),
    ];
    let end = prop_oneof![4 => Just("\r\n"), 1 => Just("\n"), 1 => Just(" noreply\r\n")];
    let classic = (word, key, number.clone(), number, "[0-9]{1,4}", end).prop_map(
        move |(word, key, flags, exptime, cas, end)| {
            let cas = if word == "cas" {
                format!(" {cas}")
            } else {
                String::new()
            };
            format!("{word} {key} {flags} {exptime} {length}{cas}{end}")
        },
    );
    let flag = prop_oneof![
        "[TFCEN][0-9]{1,5}",
        "M[SERAP]",
        Just("I".to_owned()),
        Just("q".to_owned()),
        Just("k".to_owned()),
        Just("c".to_owned()),
        Just("s".to_owned()),
        Just("b".to_owned()),
        Just("Oab".to_owned()),
        Just("Mx".to_owned()),
        Just("?".to_owned()),
    ];
    let key = prop_oneof!["[a-z]{4}", Just("Zm9v".to_owned()), Just("a".to_owned())];
    let meta = (key, prop::collection::vec(flag, 0..6))
        .prop_map(move |(key, flags)| format!("ms {key} {length} {}\r\n", flags.join(" ")));
    prop_oneof![classic, meta]
}

/// A store's line, its value, and the two bytes after it.
fn request() -> impl Strategy<Value = (String, Vec<u8>, [u8; 2])> {
    let end = prop_oneof![
        6 => Just(*b"\r\n"), 1 => Just(*b"ab"), 1 => Just(*b"\n\r"), 1 => Just(*b"\rx"), 1 => any::<[u8; 2]>(),
    ];
    (0..220usize).prop_flat_map(move |length| {
        (
            line(length),
            prop::collection::vec(any::<u8>(), length),
            end.clone(),
        )
    })
}

/// A step as text, with the operation's value inserted if it was received separately.
fn text(step: Step<'_>, apart: Option<&[u8]>) -> String {
    match (step, apart) {
        (
            Step::Op {
                consumed,
                key,
                verb: Verb::Store(mut store),
                form,
            },
            Some(value),
        ) => {
            assert!(store.value.is_empty());
            store.value = value;
            let verb = Verb::Store(store);
            format!(
                "{:?}",
                Step::Op {
                    consumed,
                    key,
                    verb,
                    form
                }
            )
        }
        (step, _) => format!("{step:?}"),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4000, ..ProptestConfig::default() })]

    #[test]
    fn a_value_received_apart_is_stored_as_one_in_the_input(
        (line, value, end) in request(),
        arrived in 0..250usize,
        behind in "[a-z \r\n]{0,9}",
    ) {
        let (limits, scratch) = (limits(), Bump::new());
        let input = [line.as_bytes(), &value, &end, behind.as_bytes()].concat();
        let arrived = &input[..arrived.min(input.len())];
        let mut waiting = Codec::new(false);
        let first = waiting.next(arrived, &limits, NOW, &scratch);
        let announced = waiting.announced(arrived, &limits, NOW, &scratch);
        if !matches!(first, Step::Incomplete { .. }) {
            return Ok(());
        }
        let mut whole = waiting;
        let step = whole.next(&input, &limits, LATER, &scratch);
        let Some(Announced { line_len, value_len, end_len, key, client_flags }) = announced else {
            let joins = match step {
                Step::Op { verb: Verb::Store(store), .. } =>
                    matches!(store.mode, StoreMode::Append | StoreMode::Prepend),
                // A bad end, from which the kind of the store cannot be told.
                _ => line.starts_with("append") || line.starts_with("prepend")
                    || line.contains(" MA") || line.contains(" MP"),
            };
            prop_assert!(joins || arrived.len() < line.len(), "{line:?} is not announced");
            return Ok(());
        };
        prop_assert_eq!((line_len, value_len, end_len), (line.len(), value.len(), 2));
        let mut apart = waiting;
        let finished = apart.next_apart(&arrived[..line_len], end, &limits, LATER, &scratch);
        if let Step::Op { key: stored, verb: Verb::Store(store), .. } = finished {
            prop_assert_eq!((stored, store.client_flags), (key, client_flags));
        }
        prop_assert_eq!(text(finished, Some(&value)), text(step, None));
        prop_assert_eq!(format!("{apart:?}"), format!("{whole:?}"));
    }
}

#[test]
fn only_stores_that_wait_for_their_data_are_announced() {
    let (limits, scratch) = (Limits::default(), Bump::new());
    let announced = |input: &[u8]| {
        let announced = Codec::new(false).announced(input, &limits, NOW, &scratch);
        announced.map(|announced| (announced.key.to_vec(), announced.value_len))
    };
    assert_eq!(announced(b"set k 0 0 3\r\nab"), Some((b"k".to_vec(), 3)));
    assert_eq!(announced(b"set k 0 0 3\r\nabc\r"), Some((b"k".to_vec(), 3)));
    assert_eq!(announced(b"ms Zm9v 3 b\r\n"), Some((b"foo".to_vec(), 3)));
    for input in [
        "",
        "set k 0 0 3",
        "get k\r\nab",
        "append k 0 0 3\r\na",
        "ms k 3 MA\r\na",
        "set k 0 0 3\r\nabc\r\n",
        "set k 0 0 2000000\r\nabc",
        "set k x 0 3\r\nab",
        "mn\r\n",
    ] {
        assert_eq!(announced(input.as_bytes()), None, "{input}");
    }
    let secret = Codec::new(true).announced(b"set k 0 0 9\r\nab", &limits, NOW, &scratch);
    assert_eq!(secret, None, "credentials are not a value");
}
