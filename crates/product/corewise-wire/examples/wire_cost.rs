//! Measures the cost of parsing and encoding, per request, on one core.
//!
//! ```text
//! cargo run --release -p corewise-wire --example wire_cost             # nanoseconds
//! cargo run --release -p corewise-wire --example wire_cost -- get 1000 # one workload (callgrind)
//! ```
//!
//! Keys of 12 bytes, values of 32, requests in batches of 32. "parse" is `Codec::next` over the
//! whole batch, "encode" is `ReplyEncoder::encode` of a hit (or of a successful store) into a
//! buffer that has grown to size.

use std::hint::black_box;
use std::time::Instant;

use bumpalo::Bump;
use corewise_ops::{Absence, Deadline, ItemFlags, ItemView, Now, Outcome};
use corewise_wire::memcached::{Codec, Limits, ReplyEncoder, Step};

const NOW: Now = Now {
    ms: 1_000_000,
    unix_s: 1_800_000_000,
};
const BATCH: usize = 32;

/// A batch of requests, and the engine's outcome for each.
struct Workload {
    name: &'static str,
    input: Vec<u8>,
    outcome: Outcome<'static>,
}

fn item() -> ItemView<'static> {
    ItemView {
        key: b"key:00000001",
        value: b"0123456789abcdef0123456789abcdef",
        client_flags: 0,
        cas: 123_456_789,
        deadline: Deadline::NEVER,
        idle_s: 5,
        flags: ItemFlags::NONE,
        footprint: 104,
        size_class: 2,
    }
}

fn workloads() -> Vec<Workload> {
    let value = "0123456789abcdef0123456789abcdef";
    let found = Outcome::Found(item());
    let stored = Outcome::Stored(item());
    let multiget = {
        let keys: Vec<_> = (0..50).map(|i| format!("key:{i:08}")).collect();
        format!("get {}\r\n", keys.join(" "))
    };
    let one = |name, request: &str, outcome| Workload {
        name,
        input: request.repeat(BATCH).into_bytes(),
        outcome,
    };
    vec![
        one("get", "get key:00000001\r\n", found),
        one(
            "get_miss",
            "get key:00000001\r\n",
            Outcome::Missing(Absence::Unknown),
        ),
        one(
            "set",
            &format!("set key:00000001 0 0 32\r\n{value}\r\n"),
            stored,
        ),
        one("mg", "mg key:00000001 v\r\n", found),
        one("mg_flags", "mg key:00000001 v f c t k Oabc\r\n", found),
        one(
            "ms",
            &format!("ms key:00000001 32 T0\r\n{value}\r\n"),
            stored,
        ),
        one(
            "incr",
            "incr key:00000001 1\r\n",
            Outcome::Counter {
                value: 12345,
                view: item(),
            },
        ),
        one("delete", "delete key:00000001\r\n", Outcome::Deleted),
        Workload {
            name: "multiget50",
            input: multiget.into_bytes(),
            outcome: found,
        },
    ]
}

/// Parses the whole input and counts its operations.
#[inline(never)]
fn parse<'i>(
    input: &'i [u8],
    limits: &Limits,
    scratch: &'i Bump,
    forms: &mut Vec<ReplyEncoder<'i>>,
) {
    let mut codec = Codec::new(false);
    let mut at = 0;
    while let Step::Op {
        consumed,
        key,
        verb,
        form,
    } = codec.next(&input[at..], limits, NOW, scratch)
    {
        black_box((key, verb));
        forms.push(form);
        at += consumed;
    }
}

/// Prints all replies.
#[inline(never)]
fn encode(forms: &[ReplyEncoder<'_>], outcome: &Outcome<'_>, out: &mut Vec<u8>) {
    for form in forms {
        form.encode(black_box(outcome), NOW, out);
    }
}

/// Nanoseconds per request: the best of several samples.
fn measure(rounds: usize, requests: usize, mut work: impl FnMut()) -> f64 {
    let sample = |work: &mut dyn FnMut()| {
        let start = Instant::now();
        (0..rounds).for_each(|_| work());
        start.elapsed().as_nanos() as f64 / (rounds * requests) as f64
    };
    (0..15)
        .map(|_| sample(&mut work))
        .fold(f64::INFINITY, f64::min)
}

fn main() {
    let mut args = std::env::args().skip(1);
    let only = args.next();
    let rounds = args.next().and_then(|n| n.parse().ok());
    let limits = Limits::default();
    let scratch = Bump::new();
    for w in workloads()
        .iter()
        .filter(|w| only.as_deref().is_none_or(|name| name == w.name))
    {
        let mut forms = Vec::new();
        parse(&w.input, &limits, &scratch, &mut forms);
        let requests = forms.len();
        let (mut again, mut out) = (Vec::with_capacity(requests), Vec::new());
        encode(&forms, &w.outcome, &mut out);
        if let Some(rounds) = rounds {
            for _ in 0..rounds {
                again.clear();
                parse(&w.input, &limits, &scratch, &mut again);
                out.clear();
                encode(&forms, &w.outcome, &mut out);
            }
            continue;
        }
        let parse_ns = measure(2000, requests, || {
            again.clear();
            parse(black_box(&w.input), &limits, &scratch, &mut again);
        });
        let encode_ns = measure(2000, requests, || {
            out.clear();
            encode(&forms, &w.outcome, black_box(&mut out));
        });
        println!(
            "{:<12} parse {parse_ns:6.1} ns   encode {encode_ns:6.1} ns",
            w.name
        );
    }
}
