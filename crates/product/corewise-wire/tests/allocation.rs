//! Guarantee 4: parsing and encoding allocate nothing in steady state.

mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use bumpalo::Bump;
use common::{Codec, NOW};
use corewise_ops::{Absence, Deadline, ItemFlags, ItemKind, ItemView, Outcome};
use corewise_wire::{Step, cphash, memcached, resp};

/// The system's allocator, counting the allocations of this thread.
struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
}

fn count() {
    // Allocations during thread teardown are not counted.
    let _ = ALLOCATIONS.try_with(|n| n.set(n.get() + 1));
}

// SAFETY: every call is passed on unchanged to the system's allocator, which upholds the contract;
// counting touches no heap.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller upholds `alloc`'s contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: `ptr` came from `System` through `alloc` or `realloc`.
        unsafe { System.dealloc(ptr, layout) }
    }

    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        count();
        // SAFETY: `ptr` came from `System`; the caller guarantees the sizes.
        unsafe { System.realloc(ptr, layout, new_size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const CONVERSATION: &[u8] = b"get key:00000001\r\nget a b c d e\r\ngats 5 a b\r\n\
    set key:00000001 0 0 8\r\n12345678\r\nset k 1 2 3 noreply\r\nabc\r\ncas k 1 2 3 4\r\nabc\r\n\
    incr n 1\r\ndelete k\r\ntouch k 5\r\nmg k v t s f c k Oabc l h\r\nms k 3 T0 F1 c k Oab\r\nabc\r\n\
    mg YWJj b k v\r\nms YWJj 3 b k\r\nabc\r\nmd k q\r\nma k N0 J5 v\r\nme k\r\nme YWJj b\r\nmn\r\n\
    foo\r\nset a b c 3\r\nabc\r\nset k 0 0 9\r\nabc456789abc\r\nstats\r\nmg k z\r\n";

/// A LOOKUP, and two INSERTs with their LOOKUPs.
const BINARY: &[u8] = b"\x01\0\0\0\0\0\0\0\x2a\0\0\0\0\0\0\0\
    \x02\0\0\0\x05\0\0\0\x2a\0\0\0\0\0\0\0hello\x01\0\0\0\0\0\0\0\x2a\0\0\0\0\0\0\0\
    \x02\0\0\0\x03\0\0\0\x2b\0\0\0\0\0\0\0bye\x01\0\0\0\0\0\0\0\x2b\0\0\0\0\0\0\0";

/// Parses the conversation and encodes a hit and a miss for each operation.
fn round(
    codec: impl Into<Codec>,
    conversation: &[u8],
    scratch: &mut Bump,
    out: &mut Vec<u8>,
) -> usize {
    let limits = memcached::Limits::default();
    let item = ItemView {
        key: b"key",
        value: &[b'v'; 100],
        client_flags: 77,
        cas: u64::MAX,
        deadline: Deadline::at_ms(99_000_000),
        idle_s: 5,
        flags: ItemFlags::STALE.with(ItemFlags::WON),
        footprint: 200,
        size_class: 3,
        kind: ItemKind::String,
    };
    let outcomes = [
        Outcome::Found(item),
        Outcome::Stored(item),
        Outcome::Counter {
            value: u64::MAX,
            view: item,
        },
        Outcome::Missing(Absence::Unknown),
        Outcome::TooLarge,
    ];
    let mut codec = codec.into();
    let (mut at, mut operations) = (0, 0);
    out.clear();
    loop {
        at += match codec.next(&conversation[at..], &limits, NOW, scratch) {
            Step::Incomplete { .. } | Step::Close { .. } => break,
            Step::Skip { consumed } | Step::Call { consumed, .. } => consumed,
            Step::Frame { consumed, bytes } => {
                out.extend_from_slice(bytes);
                consumed
            }
            Step::Op { consumed, form, .. } => {
                for outcome in &outcomes {
                    form.encode(outcome, NOW, out);
                }
                operations += 1;
                consumed
            }
        };
    }
    assert_eq!(at, conversation.len());
    scratch.reset();
    operations
}

fn assert_allocates_nothing(codec: impl Into<Codec>, conversation: &[u8], expected: usize) {
    let codec = codec.into();
    let (mut scratch, mut out) = (Bump::new(), Vec::new());
    let operations = round(codec, conversation, &mut scratch, &mut out);
    assert_eq!(operations, expected);
    let before = ALLOCATIONS.with(Cell::get);
    for _ in 0..100 {
        round(codec, conversation, &mut scratch, &mut out);
    }
    assert_eq!(ALLOCATIONS.with(Cell::get), before);
}

#[test]
fn parsing_and_encoding_allocate_nothing_in_steady_state() {
    assert_allocates_nothing(memcached::Codec::new(false), CONVERSATION, 22);
    assert_allocates_nothing(cphash::Codec::default(), BINARY, 5);
}

/// Requests of RESP in both forms, some over the limits, and one malformed.
const RESP: &[u8] = b"*1\r\n$4\r\nPING\r\n*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$2\r\nab\r\n*0\r\n\
    get \"a\\x20b\" 'c'\r\n*2\r\n$3\r\nGET\r\n$40\r\n0123456789012345678901234567890123456789\r\n\
    *1\r\n:1\r\n";

/// Parses the requests and prints replies of every type.
fn resp_round(scratch: &mut Bump, out: &mut Vec<u8>) -> usize {
    let limits = resp::Limits {
        max_request: 40,
        ..resp::Limits::default()
    };
    let mut codec = resp::Codec::new(true);
    let (mut at, mut requests) = (0, 0);
    out.clear();
    loop {
        at += match codec.next(&RESP[at..], &limits, scratch) {
            resp::Parsed::Incomplete { .. } => panic!("nothing is missing"),
            resp::Parsed::Close { reply } => {
                out.extend_from_slice(reply);
                break;
            }
            resp::Parsed::Skip { consumed } | resp::Parsed::Refused { consumed, .. } => consumed,
            resp::Parsed::Request { consumed, request } => {
                requests += 1;
                for version in [resp::Version::Resp2, resp::Version::Resp3] {
                    let mut reply = resp::Encoder::new(version, out);
                    reply.array(request.args().len());
                    request.args().for_each(|arg| reply.bulk(arg));
                    reply.error(&[b"ERR unknown command '", request.name(), b"'"]);
                    reply.map(1);
                    reply.double(1.0 / 3.0);
                    reply.integer(i64::MIN);
                    reply.verbatim(*b"txt", b"text");
                    reply.boolean(true);
                }
                consumed
            }
        };
    }
    scratch.reset();
    requests
}

#[test]
fn resp_allocates_nothing_in_steady_state() {
    let (mut scratch, mut out) = (Bump::new(), Vec::new());
    assert_eq!(resp_round(&mut scratch, &mut out), 3);
    let before = ALLOCATIONS.with(Cell::get);
    for _ in 0..100 {
        resp_round(&mut scratch, &mut out);
    }
    assert_eq!(ALLOCATIONS.with(Cell::get), before);
}
