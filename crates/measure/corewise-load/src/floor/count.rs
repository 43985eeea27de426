//! Counts requests by their lines, with as little parsing as possible.
//!
//! | protocol | first line starts with | lines | reply |
//! |---|---|---|---|
//! | memcached | `g` / `s` | 1 / 2 | get / set |
//! | meta | `mg` / `ms` / `mn` | 1 / 2 / 1 | get (none if quiet) / set / all of a multiget |
//! | resp | `*N` | 1 + 2 N | set if N is 3 and a get has not that many, else get |
//!
//! Values contain no line break (see the module `value`), so counting lines suffices. A request of
//! the CPHASH protocol has a header of 16 bytes; the first eight state its kind and length.

use crate::config::Protocol;
use corewise_wire::cphash;

/// Bytes of a line that determine its kind.
const HEAD: usize = 8;

/// The reply that a request needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AwaitedReply {
    Get,
    Set,
    /// It has no reply: a quiet get, which the `mn` behind it ends, or an INSERT.
    Quiet,
}

/// The state of one connection between two reads.
#[derive(Debug)]
pub(crate) struct Counter {
    protocol: Protocol,
    multiget: u32,
    /// The start of a line that the last read divided.
    head: [u8; HEAD],
    head_len: usize,
    kind: AwaitedReply,
    lines_left: u32,
    /// Bytes of a binary request that are yet to come.
    bytes_left: usize,
}

impl Counter {
    pub(crate) fn new(protocol: Protocol, multiget: u32) -> Self {
        Self {
            protocol,
            multiget,
            head: [0; HEAD],
            head_len: 0,
            kind: AwaitedReply::Get,
            lines_left: 0,
            bytes_left: 0,
        }
    }

    /// Calls `answer` for every request that ends in `buf`.
    #[inline]
    pub(crate) fn feed(&mut self, buf: &[u8], mut answer: impl FnMut(AwaitedReply)) {
        if self.protocol == Protocol::Cphash {
            return self.feed_binary(buf, answer);
        }
        let mut start = 0;
        for end in memchr::memchr_iter(b'\n', buf) {
            if self.lines_left == 0 {
                self.begin(&buf[start..end]);
            }
            self.head_len = 0;
            start = end + 1;
            self.lines_left -= 1;
            if self.lines_left == 0 && self.kind != AwaitedReply::Quiet {
                answer(self.kind);
            }
        }
        self.keep(&buf[start..]);
    }

    /// [`feed`](Self::feed) for the protocol of \[CPHASH\].
    fn feed_binary(&mut self, mut buf: &[u8], mut answer: impl FnMut(AwaitedReply)) {
        loop {
            let passed = self.bytes_left.min(buf.len());
            self.bytes_left -= passed;
            buf = &buf[passed..];
            if passed > 0 && self.bytes_left == 0 && self.kind == AwaitedReply::Get {
                answer(AwaitedReply::Get);
            }
            if buf.is_empty() {
                return;
            }
            let before = self.head_len;
            self.keep(buf);
            buf = &buf[self.head_len - before..];
            if self.head_len < HEAD {
                return;
            }
            self.head_len = 0;
            let [o0, o1, o2, o3, size @ ..] = self.head;
            let is_insert = u32::from_le_bytes([o0, o1, o2, o3]) == cphash::INSERT;
            self.kind = if is_insert {
                AwaitedReply::Quiet
            } else {
                AwaitedReply::Get
            };
            let size = u32::from_le_bytes(size) as usize;
            self.bytes_left = (cphash::HEADER_LEN - HEAD).saturating_add(size);
        }
    }

    /// Stores the first bytes of an incomplete line or header.
    fn keep(&mut self, rest: &[u8]) {
        let n = rest.len().min(HEAD - self.head_len);
        self.head[self.head_len..self.head_len + n].copy_from_slice(&rest[..n]);
        self.head_len += n;
    }

    /// Reads the first line of a request, which determines its kind and length.
    #[inline]
    fn begin(&mut self, line: &[u8]) {
        if self.head_len == 0 {
            (self.kind, self.lines_left) = self.judge(line);
        } else {
            self.keep(line);
            let head = self.head;
            (self.kind, self.lines_left) = self.judge(&head[..self.head_len]);
        }
    }

    #[inline]
    fn judge(&self, line: &[u8]) -> (AwaitedReply, u32) {
        match (self.protocol, line) {
            (Protocol::Memcached, [b's', ..]) | (Protocol::Meta, [_, b's', ..]) => {
                (AwaitedReply::Set, 2)
            }
            (Protocol::Meta, [_, b'g', ..]) if self.multiget > 1 => (AwaitedReply::Quiet, 1),
            (Protocol::Resp, [b'*', n @ ..]) => {
                let n = n.iter().take_while(|b| b.is_ascii_digit());
                let n = n.fold(0, |n, b| n * 10 + u32::from(b - b'0'));
                let set = n == 3 && self.multiget != 2;
                (
                    if set {
                        AwaitedReply::Set
                    } else {
                        AwaitedReply::Get
                    },
                    1 + 2 * n,
                )
            }
            _ => (AwaitedReply::Get, 1),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::tests::codec;

    fn requests(protocol: Protocol, multiget: u32) -> (Vec<u8>, Vec<AwaitedReply>) {
        let codec = codec(protocol, multiget, 20);
        let mut bytes = Vec::new();
        let kinds = vec![
            AwaitedReply::Get,
            AwaitedReply::Set,
            AwaitedReply::Set,
            AwaitedReply::Get,
            AwaitedReply::Get,
        ];
        for &kind in &kinds {
            match kind {
                AwaitedReply::Set => codec.set(5, &mut bytes),
                _ => codec.get(0..multiget, &mut bytes),
            }
        }
        (bytes, kinds)
    }

    #[test]
    fn every_split_gives_the_same_requests() {
        for protocol in [Protocol::Memcached, Protocol::Meta, Protocol::Resp] {
            for multiget in [1, 3, 10] {
                let (bytes, kinds) = requests(protocol, multiget);
                for cut in 0..=bytes.len() {
                    let mut counter = Counter::new(protocol, multiget);
                    let mut seen = Vec::new();
                    counter.feed(&bytes[..cut], |kind| seen.push(kind));
                    counter.feed(&bytes[cut..], |kind| seen.push(kind));
                    assert_eq!(seen, kinds, "{protocol} {multiget} cut at {cut}");
                }
            }
        }
    }

    #[test]
    fn one_byte_at_a_time_is_enough() {
        for protocol in [Protocol::Memcached, Protocol::Meta, Protocol::Resp] {
            let (bytes, kinds) = requests(protocol, 1);
            let mut counter = Counter::new(protocol, 1);
            let mut seen = Vec::new();
            for byte in bytes {
                counter.feed(&[byte], |kind| seen.push(kind));
            }
            assert_eq!(seen, kinds);
        }
    }

    #[test]
    fn lookups_are_counted_wherever_the_bytes_are_cut() {
        let (bytes, kinds) = requests(Protocol::Cphash, 1);
        let expected: Vec<AwaitedReply> = kinds
            .into_iter()
            .filter(|kind| *kind == AwaitedReply::Get)
            .collect();
        for cut in 0..=bytes.len() {
            let mut counter = Counter::new(Protocol::Cphash, 1);
            let mut seen = Vec::new();
            counter.feed(&bytes[..cut], |kind| seen.push(kind));
            counter.feed(&bytes[cut..], |kind| seen.push(kind));
            assert_eq!(seen, expected, "cut at {cut}");
        }
        let mut counter = Counter::new(Protocol::Cphash, 1);
        let mut seen = Vec::new();
        bytes
            .iter()
            .for_each(|byte| counter.feed(&[*byte], |kind| seen.push(kind)));
        assert_eq!(seen, expected);
    }

    #[test]
    fn a_pair_of_resp_gets_counts_as_one_get() {
        let mut counter = Counter::new(Protocol::Resp, 2);
        let mut seen = Vec::new();
        let mut bytes = Vec::new();
        codec(Protocol::Resp, 2, 20).get(0..2, &mut bytes);
        counter.feed(&bytes, |kind| seen.push(kind));
        assert_eq!(seen, [AwaitedReply::Get]);
    }
}
