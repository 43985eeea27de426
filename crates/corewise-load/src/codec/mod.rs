//! Encodes requests and decodes replies. No I/O happens here.
//!
//! All three protocols write a get as `head (before key after)+ tail` and a set as
//! `set_head key set_mid LENGTH \r\n VALUE \r\n`, so [`Wire`] is a table of bytes that is made once
//! per target. Replies differ in their lines, which [`reply`] classifies, and in how they end,
//! which [`scan`] handles.

pub(crate) mod reply;
pub(crate) mod scan;

use crate::config::{LoadConfig, Protocol, ReplayConfig};
use crate::keys::KeyFormat;
use crate::value::Values;

/// The constant bytes around keys and values in requests of one protocol.
#[derive(Clone, Debug)]
struct Wire {
    head: Vec<u8>,
    before: Vec<u8>,
    after: Vec<u8>,
    tail: Vec<u8>,
    set_head: Vec<u8>,
    set_mid: Vec<u8>,
}

impl Wire {
    fn new(protocol: Protocol, key_bytes: usize, multiget: u32) -> Self {
        match protocol {
            Protocol::Memcached => Self::table("get", " ", "", "\r\n", "set ", " 0 0 "),
            Protocol::Meta if multiget == 1 => Self::table("", "mg ", " v\r\n", "", "ms ", " "),
            Protocol::Meta => Self::table("", "mg ", " k q v\r\n", "mn\r\n", "ms ", " "),
            Protocol::Resp => {
                let head = match multiget {
                    1 => "*2\r\n$3\r\nGET\r\n".into(),
                    n => format!("*{}\r\n$4\r\nMGET\r\n", n + 1),
                };
                let before = format!("${key_bytes}\r\n");
                let set_head = format!("*3\r\n$3\r\nSET\r\n{before}");
                Self::table(&head, &before, "\r\n", "", &set_head, "\r\n$")
            }
        }
    }

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
        out.extend_from_slice(&self.wire.head);
        for key in keys {
            out.extend_from_slice(&self.wire.before);
            self.keys.render(key, out);
            out.extend_from_slice(&self.wire.after);
        }
        out.extend_from_slice(&self.wire.tail);
    }

    /// Appends one set of `key`.
    pub(crate) fn set(&self, key: u32, out: &mut Vec<u8>) {
        let len = self.values.len(key);
        let ttl_s = self.values.ttl_s(key);
        if ttl_s != 0 {
            return self.set_expiring(key, len, ttl_s, out);
        }
        out.extend_from_slice(&self.wire.set_head);
        self.keys.render(key, out);
        out.extend_from_slice(&self.wire.set_mid);
        out.extend_from_slice(itoa::Buffer::new().format(len).as_bytes());
        out.extend_from_slice(b"\r\n");
        self.values.render(key, len, out);
        out.extend_from_slice(b"\r\n");
    }

    fn set_expiring(&self, key: u32, len: u32, ttl_s: u32, out: &mut Vec<u8>) {
        let ttl = ttl_s.to_string();
        let (middle, end) = match self.protocol {
            Protocol::Memcached => (format!(" 0 {ttl} {len}"), String::new()),
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
            _ => out.extend_from_slice(&self.wire.set_head),
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
            Protocol::Resp => false,
        }
    }

    /// The reply to a get in which all keys hit, with the first key of the key space and values of
    /// `len` bytes, and the reply to a set. The empty responder sends them.
    pub(crate) fn canned(&self, len: u32) -> (Vec<u8>, Vec<u8>) {
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
            Protocol::Resp => (None, format!("${len}"), "", "+OK\r\n"),
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
