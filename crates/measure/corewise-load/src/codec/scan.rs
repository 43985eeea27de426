//! Follows the replies of one connection, regardless of how reads divide them.
//!
//! Guarantees: (1) a request is complete only when its reply was read to the end, or, if it has
//! none, when the reply to a later request begins; (2) every byte of
//! every value is compared; (3) a reply that names a key must name one of its request, in order;
//! (4) bytes that answer no request are an error; (5) memory is bounded by one line, [`MAX_LINE`].

use std::collections::VecDeque;

use super::Codec;
use super::reply::ReplyHead;
use crate::config::Protocol;
use crate::load_stats::LoadStats;
use corewise_wire::cphash;

/// Longest line of a reply in bytes.
pub(crate) const MAX_LINE: usize = 1024;

/// A request that was sent and is not fully answered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request {
    /// Its start in nanoseconds: when its batch was sent, or when it was due.
    pub(crate) at: u64,
    /// Unanswered keys of a get; zero for a set.
    pub(crate) keys_left: u32,
    pub(crate) is_set: bool,
    /// Whether the array header of the reply was read (several keys, Redis protocol).
    pub(crate) opened: bool,
}

/// The requests of one connection, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Pending {
    pub(crate) requests: VecDeque<Request>,
    /// The unanswered keys of all pending gets.
    pub(crate) keys: VecDeque<u32>,
    /// Keys that were not found, if the codec records them. The caller removes them.
    pub(crate) missed: Vec<u32>,
}

impl Pending {
    pub(crate) fn push_set(&mut self, at: u64) {
        self.requests.push_back(Request {
            at,
            keys_left: 0,
            is_set: true,
            opened: false,
        });
    }

    pub(crate) fn push_get(&mut self, at: u64, keys_left: u32) {
        self.requests.push_back(Request {
            at,
            keys_left,
            is_set: false,
            opened: false,
        });
    }
}

/// A value that is being read.
#[derive(Clone, Copy, Debug)]
struct Body {
    key: u32,
    len: u32,
    at: u32,
    good: bool,
}

/// The state of one connection's replies between two reads.
#[derive(Debug, Default)]
pub(crate) struct Scanner {
    body: Option<Body>,
}

impl Scanner {
    /// Reads all complete parts at the start of `buf`, and returns how many bytes it consumed.
    /// The rest, which is shorter than a line, must come first in the next `buf`. `Err` describes a
    /// reply that violates the protocol.
    pub(crate) fn feed(
        &mut self,
        codec: &Codec,
        buf: &[u8],
        pending: &mut Pending,
        stats: &mut LoadStats,
    ) -> Result<usize, String> {
        let mut used = 0;
        loop {
            if let Some(body) = &mut self.body {
                let Some(n) = body.read(codec, &buf[used..])? else {
                    return Ok(used);
                };
                used += n;
                if (body.at as usize) < body.len as usize + codec.value_end().len() {
                    return Ok(used);
                }
                let body = *body;
                self.body = None;
                stats.hit(body.good, body.len, || wrong_value(codec, body));
                finish_key(codec, pending, stats);
                continue;
            }
            let Some(head) = head(codec, &buf[used..])? else {
                return Ok(used);
            };
            used += head.len();
            self.head(codec, head, pending, stats)?;
        }
    }

    #[inline]
    fn head(
        &mut self,
        codec: &Codec,
        line: &[u8],
        pending: &mut Pending,
        stats: &mut LoadStats,
    ) -> Result<(), String> {
        if codec.has_silent_sets() {
            complete_silent_sets(pending, stats);
        }
        let Some(request) = pending.requests.front_mut() else {
            return Err(format!("{} answers no request", show(line)));
        };
        let bad = |wanted: &str| Err(format!("{} where {wanted} was expected", show(line)));
        let kind = match line.strip_suffix(b"\r\n") {
            _ if codec.protocol == Protocol::Cphash => codec.classify(line),
            Some(text) => codec.classify(text),
            None => return bad("a full line end"),
        };
        if request.is_set {
            match kind {
                Some(ReplyHead::Stored) => stats.sets += 1,
                Some(ReplyHead::Refused) if codec.fills => stats.refused += 1,
                _ => return bad("the reply to a set"),
            }
            complete(pending, stats);
            return Ok(());
        }
        let awaits_array = !codec.has_end_line() && codec.multiget > 1 && !request.opened;
        match kind {
            Some(ReplyHead::Array(n)) if awaits_array && n == request.keys_left => {
                request.opened = true
            }
            Some(ReplyHead::Value { key, len }) if !awaits_array && request.keys_left > 0 => {
                return self.value(codec, key, len, pending, stats);
            }
            Some(ReplyHead::Miss) if !awaits_array && request.keys_left > 0 => {
                let key = take_key(pending);
                miss(codec, key, pending, stats);
                finish_key(codec, pending, stats);
            }
            Some(ReplyHead::End) if codec.has_end_line() => {
                for _ in 0..request.keys_left {
                    let key = take_key(pending);
                    miss(codec, key, pending, stats);
                }
                complete(pending, stats);
            }
            _ => return bad("the reply to a get"),
        }
        Ok(())
    }

    /// Begins a value: finds its key, and counts the keys before it as misses.
    #[inline]
    fn value(
        &mut self,
        codec: &Codec,
        named: Option<u32>,
        len: u32,
        pending: &mut Pending,
        stats: &mut LoadStats,
    ) -> Result<(), String> {
        let key = loop {
            let left = pending.requests.front().map_or(0, |r| r.keys_left);
            if left == 0 {
                return Err(format!(
                    "a value for key {named:?}, which was not asked for"
                ));
            }
            let key = take_key(pending);
            if named.is_none_or(|named| named == key) {
                break key;
            }
            miss(codec, key, pending, stats);
        };
        let good = !codec.verify || len == codec.values.len(key);
        self.body = Some(Body {
            key,
            len,
            at: 0,
            good,
        });
        Ok(())
    }
}

impl Body {
    /// Reads and compares bytes of `buf`; `None` if the line break is incomplete.
    #[inline]
    fn read(&mut self, codec: &Codec, buf: &[u8]) -> Result<Option<usize>, String> {
        let mut used = 0;
        if self.at < self.len {
            used = buf.len().min((self.len - self.at) as usize);
            if codec.verify && self.good {
                self.good = codec.values.matches(self.key, self.at, &buf[..used]);
            }
            self.at += used as u32;
            if self.at < self.len {
                return Ok(Some(used));
            }
        }
        match &buf[used..] {
            _ if codec.value_end().is_empty() => Ok(Some(used)),
            [b'\r', b'\n', ..] => {
                self.at += 2;
                Ok(Some(used + 2))
            }
            [] | [b'\r'] if used == 0 => Ok(None),
            [] | [b'\r'] => Ok(Some(used)),
            other => Err(format!(
                "{} after a value of {} bytes",
                show(other),
                self.len
            )),
        }
    }
}

/// The head of a reply at the start of `buf`: a line, or the size of a value. `None` if it is
/// incomplete.
#[inline]
fn head<'b>(codec: &Codec, buf: &'b [u8]) -> Result<Option<&'b [u8]>, String> {
    if codec.protocol == Protocol::Cphash {
        return Ok(buf.get(..cphash::REPLY_HEADER_LEN));
    }
    match memchr::memchr(b'\n', buf) {
        Some(end) => Ok(Some(&buf[..=end])),
        None if buf.len() < MAX_LINE => Ok(None),
        None => {
            let start = show(buf);
            Err(format!("a line longer than {MAX_LINE} bytes: {start}"))
        }
    }
}

/// Records that the sets before the oldest get were executed, since its reply has arrived.
#[inline]
fn complete_silent_sets(pending: &mut Pending, stats: &mut LoadStats) {
    while pending.requests.front().is_some_and(|r| r.is_set) {
        stats.sets += 1;
        complete(pending, stats);
    }
}

/// The next key of the first request, which has one.
#[inline]
fn take_key(pending: &mut Pending) -> u32 {
    if let Some(request) = pending.requests.front_mut() {
        request.keys_left -= 1;
    }
    pending.keys.pop_front().unwrap_or_default()
}

/// Records that `key` was not found.
#[inline]
fn miss(codec: &Codec, key: u32, pending: &mut Pending, stats: &mut LoadStats) {
    stats.misses += 1;
    if codec.fills {
        pending.missed.push(key);
    }
}

/// Records that a key of the first request is answered, which may complete the request.
#[inline]
fn finish_key(codec: &Codec, pending: &mut Pending, stats: &mut LoadStats) {
    let last = pending.requests.front().is_some_and(|r| r.keys_left == 0);
    if last && !codec.has_end_line() {
        complete(pending, stats);
    }
}

#[inline]
fn complete(pending: &mut Pending, stats: &mut LoadStats) {
    if let Some(request) = pending.requests.pop_front() {
        stats.complete(request.at);
    }
}

fn wrong_value(codec: &Codec, body: Body) -> String {
    let expected = codec.values.len(body.key);
    if expected == body.len {
        return format!("the value of key {} is not what was stored", body.key);
    }
    format!(
        "the value of key {} has {} bytes, not {expected} (stored by a run with another value size?)",
        body.key, body.len
    )
}

/// The start of a reply in printable form.
fn show(bytes: &[u8]) -> String {
    let end = memchr::memchr2(b'\r', b'\n', bytes)
        .unwrap_or(bytes.len())
        .min(80);
    format!("'{}'", bytes[..end].escape_ascii())
}

#[cfg(test)]
mod tests {
    use super::super::tests::codec;
    use super::*;

    /// A stream with hits, misses and sets: the codec, the pending requests, the bytes.
    fn example(protocol: Protocol, multiget: u32) -> (Codec, Pending, Vec<u8>) {
        let codec = codec(protocol, multiget, 11);
        let mut pending = Pending::default();
        let mut bytes = Vec::new();
        for request in 0..4u32 {
            if request == 2 {
                pending.push_set(2);
                bytes.extend_from_slice(&codec.canned(11).1);
                continue;
            }
            pending.push_get(u64::from(request), multiget);
            let keys: Vec<u32> = (0..multiget).map(|k| request * 100 + k).collect();
            pending.keys.extend(&keys);
            // The second get misses all keys, the others every third key.
            let hit = |key: u32| request != 1 && (key % 100) % 3 != 2;
            reply(&codec, &keys, hit, &mut bytes);
        }
        (codec, pending, bytes)
    }

    fn reply(codec: &Codec, keys: &[u32], hit: impl Fn(u32) -> bool, out: &mut Vec<u8>) {
        let many = codec.multiget > 1;
        let mut line = |text: String| out.extend_from_slice(text.as_bytes());
        if codec.protocol == Protocol::Resp && many {
            line(format!("*{}\r\n", keys.len()));
        }
        for &key in keys {
            let mut value = Vec::new();
            codec.values.render(key, 11, &mut value);
            let value = String::from_utf8(value).expect("printable");
            match (codec.protocol, hit(key)) {
                (Protocol::Memcached, true) => {
                    line(format!("VALUE key:{key:08} 0 11\r\n{value}\r\n"))
                }
                (Protocol::Meta, true) if many => {
                    line(format!("VA 11 kkey:{key:08}\r\n{value}\r\n"))
                }
                (Protocol::Meta, true) => line(format!("VA 11\r\n{value}\r\n")),
                (Protocol::Resp, true) => line(format!("$11\r\n{value}\r\n")),
                (Protocol::Cphash, true) => line(format!("\x0b\0\0\0{value}")),
                (Protocol::Cphash, false) => line("\0\0\0\0".into()),
                (Protocol::Meta, false) if !many => line("EN\r\n".into()),
                (Protocol::Resp, false) => line("$-1\r\n".into()),
                _ => {}
            }
        }
        match codec.protocol {
            Protocol::Memcached => line("END\r\n".into()),
            Protocol::Meta if many => line("MN\r\n".into()),
            _ => {}
        }
    }

    /// Feeds `bytes` in these pieces, carrying over unconsumed bytes.
    fn feed(
        codec: &Codec,
        pending: &mut Pending,
        stats: &mut LoadStats,
        pieces: &[&[u8]],
    ) -> Result<usize, String> {
        let mut scanner = Scanner::default();
        let mut carry = Vec::new();
        for piece in pieces {
            carry.extend_from_slice(piece);
            let used = scanner.feed(codec, &carry, pending, stats)?;
            carry.drain(..used);
        }
        Ok(carry.len())
    }

    fn all_examples() -> impl Iterator<Item = (Protocol, u32)> {
        let protocols = [Protocol::Memcached, Protocol::Meta, Protocol::Resp];
        let examples = protocols.into_iter().flat_map(|p| [(p, 1), (p, 5)]);
        examples.chain([(Protocol::Cphash, 1)])
    }

    #[test]
    fn every_split_into_three_gives_the_same_counts() {
        for (protocol, multiget) in all_examples() {
            let (_, _, bytes) = example(protocol, multiget);
            let step = if multiget > 1 { 7 } else { 1 };
            for a in 0..=bytes.len() {
                for b in (a..=bytes.len()).step_by(step) {
                    let (codec, mut pending, bytes) = example(protocol, multiget);
                    let mut stats = LoadStats::new();
                    let pieces = [&bytes[..a], &bytes[a..b], &bytes[b..]];
                    let left = feed(&codec, &mut pending, &mut stats, &pieces).expect("good");
                    assert_counts(&stats, multiget, (protocol, a, b));
                    assert_eq!(
                        (left, pending.keys.len(), pending.requests.len()),
                        (0, 0, 0)
                    );
                }
            }
        }
    }

    fn assert_counts(stats: &LoadStats, multiget: u32, place: (Protocol, usize, usize)) {
        let hits = (0..multiget).filter(|k| k % 3 != 2).count() as u64 * 2;
        let keys = u64::from(multiget) * 3;
        assert_eq!((stats.requests, stats.sets), (4, 1), "{place:?}");
        assert_eq!((stats.hits, stats.misses), (hits, keys - hits), "{place:?}");
        assert_eq!(stats.mismatches, 0, "{place:?}");
    }

    #[test]
    fn one_byte_at_a_time_is_enough() {
        for (protocol, multiget) in all_examples() {
            let (codec, mut pending, bytes) = example(protocol, multiget);
            let mut stats = LoadStats::new();
            let pieces: Vec<&[u8]> = bytes.chunks(1).collect();
            feed(&codec, &mut pending, &mut stats, &pieces).expect("good");
            assert_counts(&stats, multiget, (protocol, 0, 0));
        }
    }

    #[test]
    fn a_changed_byte_never_passes_unseen() {
        for (protocol, multiget) in all_examples() {
            let (_, _, good) = example(protocol, multiget);
            for at in 0..good.len() {
                let (codec, mut pending, mut bytes) = example(protocol, multiget);
                bytes[at] ^= 4;
                let mut stats = LoadStats::new();
                let outcome = feed(&codec, &mut pending, &mut stats, &[&bytes]);
                let clean = outcome.is_ok() && stats.mismatches == 0;
                assert!(
                    !clean || !pending.requests.is_empty(),
                    "{protocol} {multiget} byte {at}"
                );
            }
        }
    }

    fn refused(protocol: Protocol, bytes: &[u8]) -> String {
        let codec = codec(protocol, 1, 11);
        let mut pending = Pending::default();
        pending.push_get(0, 1);
        pending.keys.push_back(1);
        let mut stats = LoadStats::new();
        feed(&codec, &mut pending, &mut stats, &[bytes]).expect_err("must be refused")
    }

    #[test]
    fn replies_that_break_the_protocol_are_refused() {
        let text = Protocol::Memcached;
        assert!(refused(text, b"STORED\r\n").contains("reply to a get"));
        assert!(refused(text, b"END\n").contains("line end"));
        assert!(refused(text, b"END\r\nEND\r\n").contains("no request"));
        assert!(refused(text, b"VALUE key:00000009 0 11\r\n").contains("not asked for"));
        assert!(refused(text, &[b'x'; MAX_LINE]).contains("longer"));
        assert!(refused(text, b"SERVER_ERROR busy\r\n").contains("SERVER_ERROR busy"));
        assert!(refused(Protocol::Resp, b"*1\r\n").contains("reply to a get"));
        assert!(refused(Protocol::Meta, b"VA 1\r\nabc").contains("after a value"));
    }

    #[test]
    fn a_value_of_another_length_is_a_mismatch_with_a_hint() {
        let codec = codec(Protocol::Resp, 1, 11);
        let mut pending = Pending::default();
        pending.push_get(0, 1);
        pending.keys.push_back(1);
        let mut stats = LoadStats::new();
        feed(&codec, &mut pending, &mut stats, &[b"$3\r\nabc\r\n"]).expect("well formed");
        assert_eq!(stats.mismatches, 1);
        assert!(
            stats
                .first_mismatch
                .expect("kept")
                .contains("another value size")
        );
    }
}
