//! Encodes requests and decodes replies. No I/O happens here.
//!
//! The text protocols write a get as `head (before key after)+ tail` and a set as
//! `set_head key set_mid LENGTH \r\n VALUE \r\n`, so [`Words`] is a table of bytes that is made
//! once per target. Replies differ in their heads, which [`reply`] classifies, and in how they end,
//! which [`scan`] handles.

pub(crate) mod reply;
pub(crate) mod scan;

use crate::config::{LoadConfig, Protocol, ReplayConfig};
use crate::keys::{KeyFormat, hash_key};
use crate::value::Values;
use corewise_wire::cphash;

/// How requests are written.
#[derive(Clone, Debug)]
enum Wire {
    Text(Words),
    Cphash,
}

/// The constant bytes around keys and values in requests of one protocol.
#[derive(Clone, Debug)]
struct Words {
    head: Vec<u8>,
    before: Vec<u8>,
    after: Vec<u8>,
    tail: Vec<u8>,
    set_head: Vec<u8>,
    set_mid: Vec<u8>,
}

impl Wire {
    fn new(protocol: Protocol, key_bytes: usize, multiget: u32) -> Self {
        Self::Text(match protocol {
            Protocol::Cphash => return Self::Cphash,
            Protocol::Memcached => Words::table("get", " ", "", "\r\n", "set ", " 0 0 "),
            Protocol::Meta if multiget == 1 => Words::table("", "mg ", " v\r\n", "", "ms ", " "),
            Protocol::Meta => Words::table("", "mg ", " k q v\r\n", "mn\r\n", "ms ", " "),
            Protocol::Resp => {
                let head = match multiget {
                    1 => "*2\r\n$3\r\nGET\r\n".into(),
                    n => format!("*{}\r\n$4\r\nMGET\r\n", n + 1),
                };
                let before = format!("${key_bytes}\r\n");
                let set_head = format!("*3\r\n$3\r\nSET\r\n{before}");
                Words::table(&head, &before, "\r\n", "", &set_head, "\r\n$")
            }
        })
    }
}

impl Words {
    fn table(h: &str, before: &str, after: &str, tail: &str, set: &str, mid: &str) -> Self {
        Self {
            head: h.into(),
            before: before.into(),
            after: after.into(),
            tail: tail.into(),
            set_head: set.into(),
            set_mid: mid.into(),
        }
    }
}

/// Encodes requests to one target and decodes its replies.
#[derive(Clone, Debug)]
pub(crate) struct Codec {
    pub(crate) protocol: Protocol,
    pub(crate) multiget: u32,
    /// Whether keys and values of replies are checked. They are not for the empty responder, whose
    /// replies are canned.
    pub(crate) verify: bool,
    /// Whether missed keys are recorded for the caller to store, and the server may refuse to
    /// store.
    pub(crate) fills: bool,
    keys: KeyFormat,
    values: Values,
    wire: Wire,
}

impl Codec {
    pub(crate) fn new(config: &LoadConfig, protocol: Protocol, verify: bool) -> Self {
        Self {
            protocol,
            multiget: config.multiget,
            verify,
            fills: false,
            keys: KeyFormat::new(&config.key_prefix, config.key_size),
            values: Values::new(config.value_size),
            wire: Wire::new(protocol, config.key_size, config.multiget),
        }
    }

    /// A codec for the replay of a trace.
    pub(crate) fn for_trace(config: &ReplayConfig) -> Self {
        let protocol = config.target.protocol;
        Self {
            protocol,
            multiget: 1,
            verify: true,
            fills: true,
            keys: KeyFormat::new(&config.key_prefix, config.key_size),
            values: Values::of_trace(config.trace),
            wire: Wire::new(protocol, config.key_size, 1),
        }
    }

    /// Bytes of `key` and its value.
    pub(crate) fn bytes(&self, key: u32) -> u64 {
        self.keys.len() as u64 + u64::from(self.values.len(key))
    }

    /// Appends one get of all keys that `keys` yields; there must be `multiget` of them.
    #[inline]
    pub(crate) fn get(&self, keys: impl Iterator<Item = u32>, out: &mut Vec<u8>) {
        let Wire::Text(words) = &self.wire else {
            return keys.for_each(|key| cphash::encode_lookup(hash_key(key), out));
        };
        out.extend_from_slice(&words.head);
        for key in keys {
            out.extend_from_slice(&words.before);
            self.keys.render(key, out);
            out.extend_from_slice(&words.after);
        }
        out.extend_from_slice(&words.tail);
    }

    /// Appends one set of `key`.
    pub(crate) fn set(&self, key: u32, out: &mut Vec<u8>) {
        let len = self.values.len(key);
        let Wire::Text(words) = &self.wire else {
            cphash::encode_insert(hash_key(key), len, out);
            return self.values.render(key, len, out);
        };
        let ttl_s = self.values.ttl_s(key);
        if ttl_s != 0 {
            return self.set_expiring(words, key, ttl_s, out);
        }
        out.extend_from_slice(&words.set_head);
        self.keys.render(key, out);
        out.extend_from_slice(&words.set_mid);
        out.extend_from_slice(itoa::Buffer::new().format(len).as_bytes());
        out.extend_from_slice(b"\r\n");
        self.values.render(key, len, out);
        out.extend_from_slice(b"\r\n");
    }

    fn set_expiring(&self, words: &Words, key: u32, ttl_s: u32, out: &mut Vec<u8>) {
        let (len, ttl) = (self.values.len(key), ttl_s.to_string());
        let (middle, end) = match self.protocol {
            // Cphash has no expiry times, and its requests are no text.
            Protocol::Memcached | Protocol::Cphash => (format!(" 0 {ttl} {len}"), String::new()),
            Protocol::Meta => (format!(" {len} T{ttl}"), String::new()),
            Protocol::Resp => (
                format!("\r\n${len}"),
                format!("$2\r\nEX\r\n${}\r\n{ttl}\r\n", ttl.len()),
            ),
        };
        match self.protocol {
            Protocol::Resp => {
                let head = format!("*5\r\n$3\r\nSET\r\n${}\r\n", self.keys.len());
                out.extend_from_slice(head.as_bytes());
            }
            _ => out.extend_from_slice(&words.set_head),
        }
        self.keys.render(key, out);
        out.extend_from_slice(middle.as_bytes());
        out.extend_from_slice(b"\r\n");
        self.values.render(key, len, out);
        out.extend_from_slice(b"\r\n");
        out.extend_from_slice(end.as_bytes());
    }

    /// Whether a reply to a get ends with a separate line rather than with the last key.
    fn has_end_line(&self) -> bool {
        match self.protocol {
            Protocol::Memcached => true,
            Protocol::Meta => self.multiget > 1,
            Protocol::Resp | Protocol::Cphash => false,
        }
    }

    /// Whether sets have no replies. A set then counts as done when the reply to a later get of its
    /// connection arrives, because the server executes requests in order.
    #[inline]
    pub(crate) fn has_silent_sets(&self) -> bool {
        self.protocol == Protocol::Cphash
    }

    /// The bytes behind a value.
    #[inline]
    fn value_end(&self) -> &'static [u8] {
        match self.protocol {
            Protocol::Cphash => b"",
            _ => b"\r\n",
        }
    }

    /// The reply to a get in which all keys hit, with the first key of the key space and values of
    /// `len` bytes, and the reply to a set. The empty responder sends them.
    pub(crate) fn canned(&self, len: u32) -> (Vec<u8>, Vec<u8>) {
        if self.protocol == Protocol::Cphash {
            let mut get = len.to_le_bytes().to_vec();
            self.values.render(0, len, &mut get);
            return (get, Vec::new());
        }
        let mut key = Vec::new();
        self.keys.render(0, &mut key);
        let key = String::from_utf8_lossy(&key);
        let many = self.multiget > 1;
        let (head, line, end, stored) = match self.protocol {
            Protocol::Memcached => (
                None,
                format!("VALUE {key} 0 {len}"),
                "END\r\n",
                "STORED\r\n",
            ),
            Protocol::Meta if many => (None, format!("VA {len} k{key}"), "MN\r\n", "HD\r\n"),
            Protocol::Meta => (None, format!("VA {len}"), "", "HD\r\n"),
            Protocol::Resp if many => (Some(self.multiget), format!("${len}"), "", "+OK\r\n"),
            Protocol::Resp | Protocol::Cphash => (None, format!("${len}"), "", "+OK\r\n"),
        };
        let mut get = head
            .map(|n| format!("*{n}\r\n"))
            .unwrap_or_default()
            .into_bytes();
        for _ in 0..self.multiget {
            get.extend_from_slice(line.as_bytes());
            get.extend_from_slice(b"\r\n");
            self.values.render(0, len, &mut get);
            get.extend_from_slice(b"\r\n");
        }
        get.extend_from_slice(end.as_bytes());
        (get, stored.into())
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::config::ValueSize;

    pub(crate) fn codec(protocol: Protocol, multiget: u32, len: u32) -> Codec {
        let value_size = ValueSize { min: len, max: len };
        let config = LoadConfig {
            multiget,
            value_size,
            ..LoadConfig::default()
        };
        Codec::new(&config, protocol, true)
    }

    fn text(bytes: Vec<u8>) -> String {
        String::from_utf8(bytes).expect("printable")
    }

    fn get(protocol: Protocol, keys: &[u32]) -> String {
        let mut out = Vec::new();
        codec(protocol, keys.len() as u32, 4).get(keys.iter().copied(), &mut out);
        text(out)
    }

    fn set(protocol: Protocol) -> (String, String) {
        let codec = codec(protocol, 1, 4);
        let (mut out, mut value) = (Vec::new(), Vec::new());
        codec.set(7, &mut out);
        codec.values.render(7, 4, &mut value);
        (text(out), text(value))
    }

    #[test]
    fn gets_are_written_as_each_protocol_demands() {
        use Protocol::{Memcached, Meta, Resp};
        assert_eq!(get(Memcached, &[7]), "get key:00000007\r\n");
        assert_eq!(get(Memcached, &[7, 8]), "get key:00000007 key:00000008\r\n");
        assert_eq!(get(Meta, &[7]), "mg key:00000007 v\r\n");
        let quiet = "mg key:00000007 k q v\r\nmg key:00000008 k q v\r\nmn\r\n";
        assert_eq!(get(Meta, &[7, 8]), quiet);
        assert_eq!(
            get(Resp, &[7]),
            "*2\r\n$3\r\nGET\r\n$12\r\nkey:00000007\r\n"
        );
        let mget = "*3\r\n$4\r\nMGET\r\n$12\r\nkey:00000007\r\n$12\r\nkey:00000008\r\n";
        assert_eq!(get(Resp, &[7, 8]), mget);
        let mut out = Vec::new();
        codec(Protocol::Cphash, 1, 4).get([1].into_iter(), &mut out);
        // The low 60 bits of 0x9e3779b97f4a7c15.
        let key = *b"\x15\x7c\x4a\x7f\xb9\x79\x37\x0e";
        assert_eq!(out, [*b"\x01\0\0\0\0\0\0\0", key].concat());
        out.clear();
        codec(Protocol::Cphash, 1, 4).set(1, &mut out);
        assert_eq!(out[..16], [*b"\x02\0\0\0\x04\0\0\0", key].concat());
        assert!(
            codec(Protocol::Cphash, 1, 4)
                .values
                .matches(1, 0, &out[16..])
                && out.len() == 20
        );
    }

    #[test]
    fn sets_are_written_as_each_protocol_demands() {
        let (line, value) = set(Protocol::Memcached);
        assert_eq!(line, format!("set key:00000007 0 0 4\r\n{value}\r\n"));
        let (line, value) = set(Protocol::Meta);
        assert_eq!(line, format!("ms key:00000007 4\r\n{value}\r\n"));
        let (line, value) = set(Protocol::Resp);
        let head = "*3\r\n$3\r\nSET\r\n$12\r\nkey:00000007\r\n$4\r\n";
        assert_eq!(line, format!("{head}{value}\r\n"));
    }

    #[test]
    fn times_to_live_are_written_as_each_protocol_demands() {
        let short = |protocol| {
            let mut config = ReplayConfig::default();
            config.target.protocol = protocol;
            config.trace.model = "short-ttl".parse().expect("a model");
            let codec = Codec::for_trace(&config);
            let key = (0..)
                .find(|&key| codec.values.ttl_s(key) > 9)
                .expect("one that expires");
            let (mut out, mut value) = (Vec::new(), Vec::new());
            codec.set(key, &mut out);
            let (len, ttl) = (codec.values.len(key), codec.values.ttl_s(key));
            codec.values.render(key, len, &mut value);
            (format!("key:{key:08}"), len, ttl, text(value), text(out))
        };
        let (key, len, ttl, value, out) = short(Protocol::Memcached);
        assert_eq!(out, format!("set {key} 0 {ttl} {len}\r\n{value}\r\n"));
        let (key, len, ttl, value, out) = short(Protocol::Meta);
        assert_eq!(out, format!("ms {key} {len} T{ttl}\r\n{value}\r\n"));
        let (key, len, ttl, value, out) = short(Protocol::Resp);
        let head = format!("*5\r\n$3\r\nSET\r\n$12\r\n{key}\r\n${len}\r\n");
        let tail = format!("$2\r\nEX\r\n$2\r\n{ttl}\r\n");
        assert_eq!(out, format!("{head}{value}\r\n{tail}"));
    }
}
