//! Drives the codec of memcached's binary protocol over the model of memcached, and builds requests
//! and responses.
#![allow(dead_code, reason = "each user takes a part")]

use bumpalo::Bump;
use corewise_ops::{Flow, Now, Op, Outcome, ReplySink, Token};
use corewise_testkit::memcached::MemcachedModel;
use corewise_wire::Step;
use corewise_wire::binary::{Codec, ReplyForm};
use corewise_wire::memcached::{Admin, Limits};

pub(crate) const NOW: Now = Now::new(1_000_000, 1_800_000_000);

/// The opaque value of all requests.
pub(crate) const OPAQUE: [u8; 4] = [1, 2, 0xfe, 0xff];

fn message(magic: u8, opcode: u8, status: u16, cas: u64, parts: [&[u8]; 3]) -> Vec<u8> {
    let [extras, key, value] = parts;
    let mut bytes = vec![magic, opcode];
    bytes.extend((key.len() as u16).to_be_bytes());
    bytes.extend([extras.len() as u8, 0]);
    bytes.extend(status.to_be_bytes());
    bytes.extend(((extras.len() + key.len() + value.len()) as u32).to_be_bytes());
    bytes.extend(OPAQUE);
    bytes.extend(cas.to_be_bytes());
    bytes.extend(parts.concat());
    bytes
}

/// A request with these extras, key and value.
pub(crate) fn request(opcode: u8, cas: u64, parts: [&[u8]; 3]) -> Vec<u8> {
    message(0x80, opcode, 0, cas, parts)
}

/// A response with these extras, key and value.
pub(crate) fn response(opcode: u8, status: u16, cas: u64, parts: [&[u8]; 3]) -> Vec<u8> {
    message(0x81, opcode, status, cas, parts)
}

/// An error.
pub(crate) fn error(opcode: u8, status: u16, text: &str) -> Vec<u8> {
    response(opcode, status, 0, [b"", b"", text.as_bytes()])
}

/// One connection to a model.
pub(crate) struct Connection {
    pub(crate) codec: Codec,
    pub(crate) limits: Limits,
    pub(crate) model: MemcachedModel,
    pub(crate) unread: Vec<u8>,
    pub(crate) out: Vec<u8>,
    pub(crate) closed: bool,
    /// Whether unfinished requests are refused.
    pub(crate) no_room: bool,
    /// Whether the replies are printed in parts.
    pub(crate) in_parts: bool,
}

/// Prints one outcome.
struct Printer<'p, 'i> {
    form: ReplyForm<'i>,
    in_parts: bool,
    out: &'p mut Vec<u8>,
}

impl ReplySink for Printer<'_, '_> {
    fn complete(&mut self, _: Token, outcome: Outcome<'_>) -> Flow {
        if !self.in_parts {
            self.form.encode(&outcome, self.out);
        } else if let Some((value, tail)) = self.form.encode_parts(&outcome, self.out) {
            self.out.extend_from_slice(value);
            self.out.extend_from_slice(tail);
        }
        Flow::Continue
    }
}

impl Connection {
    pub(crate) fn new(limits: Limits) -> Self {
        Self {
            codec: Codec::default(),
            limits,
            model: MemcachedModel::default(),
            unread: Vec::new(),
            out: Vec::new(),
            closed: false,
            no_room: false,
            in_parts: false,
        }
    }

    /// Takes input, executes the complete requests, and keeps the rest.
    pub(crate) fn feed(&mut self, piece: &[u8]) {
        self.unread.extend_from_slice(piece);
        let mut at = 0;
        while !self.closed
            && let Some(consumed) = self.step(at)
        {
            at += consumed;
            assert!(consumed > 0 && at <= self.unread.len());
        }
        self.unread.drain(..at);
    }

    /// Executes one step; `None` if the connection must wait or is closed.
    fn step(&mut self, at: usize) -> Option<usize> {
        let scratch = Bump::new();
        let input = &self.unread[at..];
        let (limits, mut again) = (self.limits, self.codec);
        let mut step = self.codec.next(input, &limits, NOW, &scratch);
        let repeated = again.next(input, &limits, NOW, &scratch);
        assert_eq!(format!("{repeated:?}"), format!("{step:?}"), "rewound");
        if self.no_room && !input.is_empty() && matches!(step, Step::Incomplete { .. }) {
            step = self.codec.refuse(input, &limits, NOW, &scratch);
        }
        match step {
            Step::Incomplete { need } => {
                assert!(need > input.len(), "asked for {need} bytes");
                None
            }
            Step::Skip { consumed } => Some(consumed),
            Step::Frame { consumed, bytes } => {
                self.out.extend_from_slice(bytes);
                Some(consumed)
            }
            Step::Close { reply } => {
                self.out.extend_from_slice(reply);
                self.closed = true;
                None
            }
            Step::Call { consumed, call } => {
                if let Admin::FlushAll { at: None, .. } = call.admin {
                    self.model.items.clear();
                }
                call.encode(b"STAT pid 42\r\nSTAT version 1 2\r\nEND\r\n", &mut self.out);
                Some(consumed)
            }
            Step::Op {
                consumed,
                key,
                verb,
                form,
            } => {
                assert!((1..=250).contains(&key.len()));
                let op = Op::new(0, key, verb);
                let mut printer = Printer {
                    form,
                    in_parts: self.in_parts,
                    out: &mut self.out,
                };
                assert_eq!(self.model.run(NOW, &op, &mut printer), Flow::Continue);
                Some(consumed)
            }
        }
    }
}
