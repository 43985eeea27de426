//! The protocol of \[CPHASH\], server side, as `docs/CPHASH-PROTOCOL.md` specifies it. Requests are
//! written byte by byte here; the encoders of the client's side are compared with them.

use crate::common;

use bumpalo::Bump;
use common::{NOW, Session};
use corewise_ops::{ItemKind, ItemView, Outcome, StoreMode, Verb};
use corewise_wire::cphash::{self, Codec, KeyNumber, max_value_len};
use corewise_wire::memcached::Limits;
use corewise_wire::{Announced, Step, Tally};
use proptest::prelude::*;

/// Values of up to 126 bytes are accepted.
fn limits() -> Limits {
    Limits {
        max_item_size: 200,
        ..Limits::default()
    }
}

fn request(operation: u32, size: u32, key: u64) -> Vec<u8> {
    let mut bytes = operation.to_le_bytes().to_vec();
    bytes.extend(size.to_le_bytes());
    bytes.extend(key.to_le_bytes());
    bytes
}

fn lookup(key: u64) -> Vec<u8> {
    request(1, 0, key)
}

fn insert(key: u64, value: &[u8]) -> Vec<u8> {
    [request(2, value.len() as u32, key), value.to_vec()].concat()
}

fn hit(value: &[u8]) -> Vec<u8> {
    [&(value.len() as u32).to_le_bytes(), value].concat()
}

const MISS: [u8; 4] = [0; 4];

/// The state of a new session after `input`.
fn talk(input: &[u8]) -> Session {
    let mut session = Session::cphash(limits());
    session.feed(input);
    session
}

#[test]
fn requests_have_the_specified_bytes() {
    let key = KeyNumber::new(0x0123_4567_89ab_cdef).unwrap();
    let mut out = Vec::new();
    cphash::encode_lookup(key, &mut out);
    assert_eq!(out, *b"\x01\0\0\0\0\0\0\0\xef\xcd\xab\x89\x67\x45\x23\x01");
    assert_eq!(out, lookup(key.get()));
    out.clear();
    cphash::encode_insert(key, 0x0102, &mut out);
    assert_eq!(
        out,
        *b"\x02\0\0\0\x02\x01\0\0\xef\xcd\xab\x89\x67\x45\x23\x01"
    );
    assert_eq!(cphash::decode_size([1, 2, 3, 4]), 0x0403_0201);
}

#[test]
fn a_key_is_fifteen_hexadecimal_digits() {
    for (number, text) in [
        (0, "000000000000000"),
        (1, "000000000000001"),
        (0x0123_4567_89ab_cdef, "123456789abcdef"),
        (KeyNumber::MAX, "fffffffffffffff"),
    ] {
        assert_eq!(KeyNumber::new(number).unwrap().text(), text.as_bytes());
    }
    assert_eq!(KeyNumber::new(KeyNumber::MAX + 1), None);
    assert_eq!(
        KeyNumber::of_hash(KeyNumber::MAX + 2),
        KeyNumber::new(1).unwrap()
    );
}

#[test]
fn a_lookup_finds_what_was_inserted_and_an_insert_has_no_reply() {
    let session = talk(&[insert(7, b"hello"), lookup(7), lookup(8)].concat());
    assert_eq!(session.out, [hit(b"hello"), MISS.to_vec()].concat());
    let item = &session.model.items[&b"000000000000007"[..]];
    assert_eq!((&item.value[..], item.client_flags), (&b"hello"[..], 0));
    assert!(item.deadline.remaining_ms(NOW).is_none());
}

#[test]
fn an_empty_value_is_stored_and_looks_like_a_miss() {
    let session = talk(&[insert(7, b""), lookup(7)].concat());
    assert_eq!(session.out, MISS);
    assert!(session.model.items.contains_key(&b"000000000000007"[..]));
}

#[test]
fn malformed_headers_close_after_the_replies_to_earlier_requests() {
    for bad in [
        request(0, 0, 1),
        request(3, 0, 1),
        request(0x0100_0000, 0, 1), // the other byte order
        request(1, 1, 1),
        request(1, 0, 1 << 60),
        request(2, 3, u64::MAX),
        b"get k\r\nget k\r\n".to_vec(),
    ] {
        let before = [insert(7, b"hello"), lookup(7)].concat();
        let session = talk(&[&before[..], &bad, &lookup(7)].concat());
        assert!(session.closed, "{bad:?}");
        assert_eq!(session.out, hit(b"hello"), "{bad:?}");
    }
}

#[test]
fn an_unknown_operation_is_seen_after_four_bytes() {
    assert!(!talk(b"get").closed);
    assert!(talk(b"get ").closed);
}

#[test]
fn an_insert_over_the_limit_is_skipped_and_removes_the_old_item() {
    let most = max_value_len(&limits());
    let (fits, large) = (vec![b'x'; most], vec![b'y'; most + 1]);
    let input = [
        insert(7, &fits),
        lookup(7),
        insert(7, &large),
        lookup(7),
        insert(8, b"next"),
        lookup(8),
    ];
    let session = talk(&input.concat());
    assert_eq!(
        session.out,
        [hit(&fits), MISS.to_vec(), hit(b"next")].concat()
    );
    assert!(!session.closed && session.unread.is_empty());
}

#[test]
fn the_largest_size_is_skipped_without_waiting_for_it() {
    let mut session = talk(&[request(2, u32::MAX, 7), vec![0; 1000]].concat());
    assert!(session.unread.is_empty() && session.codec.is_swallowing());
    let chunk = vec![1; 1 << 20];
    for _ in 0..4095 {
        session.feed(&chunk);
    }
    session.feed(&chunk[..(1 << 20) - 1 - 1000]);
    assert!(!session.codec.is_swallowing());
    session.feed(&[insert(9, b"in step"), lookup(9)].concat());
    assert_eq!(session.out, hit(b"in step"));
}

#[test]
fn without_memory_an_insert_is_skipped_and_an_unfinished_header_closes() {
    let mut session = talk(&insert(7, b"old"));
    session.no_room = true;
    session.feed(&insert(7, b"hello")[..20]);
    assert!(session.codec.is_swallowing() && !session.closed);
    session.feed(&[b"o".to_vec(), lookup(7)].concat());
    assert_eq!(session.out, MISS);
    session.feed(&lookup(7)[..9]);
    assert!(session.closed);
}

#[test]
fn a_refused_insert_is_counted_as_such_and_not_answered() {
    let scratch = Bump::new();
    let input = request(2, 127, 7);
    let step = Codec::default().next(&input, &limits(), &scratch);
    let Step::Op {
        consumed,
        verb: Verb::Delete(_),
        form,
        ..
    } = step
    else {
        panic!("{step:?}");
    };
    assert_eq!((consumed, form.tally()), (16, Tally::Refused));
    let mut out = Vec::new();
    form.encode(&Outcome::Deleted, NOW, &mut out);
    assert!(out.is_empty());
}

#[test]
fn every_split_gives_the_same_replies_and_items() {
    let large = vec![b'y'; 127];
    let input = [
        insert(7, b"hello"),
        lookup(7),
        insert(7, &large),
        lookup(7),
        insert(u64::MAX >> 4, b"\x01\0\0\0"),
        lookup(u64::MAX >> 4),
        insert(1, b""),
        lookup(1),
        request(9, 9, 9),
        lookup(7),
    ]
    .concat();
    let whole = talk(&input);
    for a in 0..=input.len() {
        for b in a..=input.len() {
            let mut pieces = talk(&input[..a]);
            pieces.feed(&input[a..b]);
            pieces.feed(&input[b..]);
            assert_eq!(pieces.out, whole.out, "{a} {b}");
            assert!(pieces.closed, "{a} {b}");
        }
    }
    let mut bytes = talk(b"");
    input.iter().for_each(|byte| bytes.feed(&[*byte]));
    assert_eq!((&bytes.out, bytes.closed), (&whole.out, true));
}

#[test]
fn the_parts_of_a_large_reply_are_the_reply() {
    let scratch = Bump::new();
    let input = lookup(7);
    let Step::Op { form, key, .. } = Codec::default().next(&input, &limits(), &scratch) else {
        panic!("a lookup is an operation")
    };
    assert_eq!(form.tally(), Tally::Get);
    let session = talk(&insert(7, b"hello"));
    let item = &session.model.items[key];
    let view = ItemView {
        key,
        value: &item.value,
        client_flags: 0,
        cas: item.cas,
        deadline: item.deadline,
        idle_s: 0,
        flags: item.flags,
        footprint: 64,
        size_class: 1,
        kind: ItemKind::String,
    };
    let (mut head, mut whole) = (Vec::new(), Vec::new());
    let parts = form.encode_parts(&Outcome::Found(view), NOW, &mut head);
    assert_eq!(
        (head, parts),
        (vec![5, 0, 0, 0], Some((&b"hello"[..], &b""[..])))
    );
    form.encode(&Outcome::Found(view), NOW, &mut whole);
    assert_eq!(whole, hit(b"hello"));
    for outcome in [Outcome::OutOfMemory, Outcome::NotStored, Outcome::TooLarge] {
        whole.clear();
        assert!(form.encode_parts(&outcome, NOW, &mut whole).is_none());
        assert_eq!(whole, MISS);
    }
}

#[test]
fn only_inserts_that_wait_for_their_values_are_announced() {
    let (limits, scratch) = (limits(), Bump::new());
    let input = insert(7, b"hello");
    for arrived in 16..input.len() {
        let announced = Codec::default().announced(&input[..arrived], &limits, &scratch);
        let expected = Announced {
            line_len: 16,
            value_len: 5,
            end_len: 0,
            key: b"000000000000007",
            client_flags: 0,
        };
        assert_eq!(announced, Some(expected));
    }
    for other in [
        &input[..],
        &input[..15],
        &lookup(7),
        &request(2, 127, 7),
        &request(3, 9, 7),
    ] {
        assert_eq!(Codec::default().announced(other, &limits, &scratch), None);
    }
    let mut codec = Codec::default();
    codec.next(&request(2, 127, 7), &limits, &scratch);
    assert_eq!(
        codec.announced(&input[..20], &limits, &scratch),
        None,
        "inside a value"
    );
}

#[test]
fn a_value_received_apart_is_stored_as_one_in_the_input() {
    let (limits, scratch) = (limits(), Bump::new());
    let input = insert(7, b"hello");
    let (mut apart, mut whole) = (Codec::default(), Codec::default());
    let expected = whole.next(&input, &limits, &scratch);
    let step = apart.next_apart(&input[..16], &limits, &scratch);
    let (
        Step::Op {
            key,
            consumed,
            verb: Verb::Store(store),
            ..
        },
        Step::Op {
            key: key_2,
            consumed: consumed_2,
            verb: Verb::Store(store_2),
            ..
        },
    ) = (step, expected)
    else {
        panic!("{step:?} {expected:?}")
    };
    assert_eq!((key, consumed, apart), (key_2, consumed_2, whole));
    assert_eq!((store.value, store_2.value), (&b""[..], &b"hello"[..]));
    assert_eq!(
        (store.mode, store.deadline),
        (StoreMode::Set, store_2.deadline)
    );
}

/// What a client of the specification expects.
#[derive(Clone, Debug)]
enum Sent {
    Lookup(u64),
    Insert(u64, Vec<u8>),
}

fn sent() -> impl Strategy<Value = Sent> {
    let key = prop_oneof![0..6u64, Just(KeyNumber::MAX)];
    // Sizes around the limit, so that some are refused.
    let size = prop_oneof![0..5usize, 120..135usize];
    prop_oneof![
        key.clone().prop_map(Sent::Lookup),
        (key, size, any::<u8>()).prop_map(|(key, size, byte)| Sent::Insert(key, vec![byte; size])),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn replies_are_those_of_a_table(
        requests in prop::collection::vec(sent(), 0..40),
        sizes in prop::collection::vec(1..60usize, 1..10),
    ) {
        let mut table = std::collections::HashMap::new();
        let (mut input, mut expected) = (Vec::new(), Vec::new());
        for request in requests {
            match request {
                Sent::Lookup(key) => {
                    input.extend(lookup(key));
                    expected.extend(table.get(&key).map_or(MISS.to_vec(), |v: &Vec<u8>| hit(v)));
                }
                Sent::Insert(key, value) => {
                    input.extend(insert(key, &value));
                    if value.len() <= max_value_len(&limits()) {
                        table.insert(key, value);
                    } else {
                        table.remove(&key);
                    }
                }
            }
        }
        let mut session = Session::cphash(limits());
        let mut rest = &input[..];
        for size in sizes.iter().cycle() {
            if rest.is_empty() {
                break;
            }
            let (piece, tail) = rest.split_at(rest.len().min(*size));
            session.feed(piece);
            rest = tail;
        }
        prop_assert_eq!(session.out, expected);
        prop_assert!(!session.closed && session.unread.is_empty());
    }

    #[test]
    fn arbitrary_bytes_are_consumed_or_close(
        input in prop::collection::vec(prop_oneof![3 => 0..4u8, 1 => any::<u8>()], 0..200),
        cut in 0..200usize,
    ) {
        let whole = talk(&input);
        let cut = cut.min(input.len());
        let mut pieces = talk(&input[..cut]);
        pieces.feed(&input[cut..]);
        prop_assert_eq!(&pieces.out, &whole.out);
        prop_assert_eq!(pieces.closed, whole.closed);
        if !whole.closed {
            prop_assert_eq!(pieces.unread, whole.unread);
        }
    }
}
