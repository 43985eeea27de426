//! A driver that feeds the model of memcached from a codec, like a server without sockets, threads
//! or eviction.
#![allow(dead_code, reason = "each user takes a part")]

use bumpalo::Bump;
use corewise_ops::{Flow, Now, Op};
use corewise_testkit::memcached::MemcachedModel;
use corewise_wire::cphash;
use corewise_wire::memcached::{self, Admin, Limits, ReplyWriter, StatsRequest, Step, reply};

pub(crate) const NOW: Now = Now::new(1_000_000, 1_800_000_000);

/// The codec of a connection to a model.
#[derive(Clone, Copy)]
pub(crate) enum Codec {
    Memcached(memcached::Codec),
    Cphash(cphash::Codec),
}

impl From<memcached::Codec> for Codec {
    fn from(codec: memcached::Codec) -> Self {
        Self::Memcached(codec)
    }
}

impl From<cphash::Codec> for Codec {
    fn from(codec: cphash::Codec) -> Self {
        Self::Cphash(codec)
    }
}

impl Codec {
    pub(crate) fn next<'i>(
        &mut self,
        input: &'i [u8],
        limits: &Limits,
        now: Now,
        scratch: &'i Bump,
    ) -> Step<'i> {
        match self {
            Self::Memcached(codec) => codec.next(input, limits, now, scratch),
            Self::Cphash(codec) => codec.next(input, limits, scratch),
        }
    }

    pub(crate) fn is_swallowing(&self) -> bool {
        match self {
            Self::Memcached(codec) => codec.is_swallowing(),
            Self::Cphash(codec) => codec.is_swallowing(),
        }
    }

    fn refuse<'i>(&mut self, input: &'i [u8], limits: &Limits, scratch: &'i Bump) -> Step<'i> {
        match self {
            Self::Memcached(codec) => codec.refuse(input, limits, NOW, scratch),
            Self::Cphash(codec) => codec.refuse(input, limits, scratch),
        }
    }
}

/// One connection to a model.
pub(crate) struct Session {
    pub(crate) codec: Codec,
    pub(crate) limits: Limits,
    pub(crate) model: MemcachedModel,
    pub(crate) unread: Vec<u8>,
    pub(crate) out: Vec<u8>,
    pub(crate) closed: bool,
    /// Whether unfinished requests are refused.
    pub(crate) no_room: bool,
    /// The minimum length of input for another step.
    need: usize,
}

impl Session {
    /// A client of memcached's protocol.
    pub(crate) fn new(authentication_required: bool, limits: Limits) -> Self {
        Self::with(memcached::Codec::new(authentication_required), limits)
    }

    /// A client of \[CPHASH\]'s protocol.
    pub(crate) fn cphash(limits: Limits) -> Self {
        Self::with(cphash::Codec::default(), limits)
    }

    fn with(codec: impl Into<Codec>, limits: Limits) -> Self {
        Self {
            codec: codec.into(),
            limits,
            model: MemcachedModel::default(),
            unread: Vec::new(),
            out: Vec::new(),
            closed: false,
            no_room: false,
            need: 1,
        }
    }

    /// Takes input, executes the complete requests, and keeps the rest.
    pub(crate) fn feed(&mut self, bytes: &[u8]) {
        if self.closed {
            return;
        }
        self.unread.extend_from_slice(bytes);
        if self.unread.len() < self.need {
            return;
        }
        let scratch = Bump::new();
        let mut at = 0;
        self.need = loop {
            let mut step = self
                .codec
                .next(&self.unread[at..], &self.limits, NOW, &scratch);
            let rest = self.unread.len() - at;
            if self.no_room && rest > 0 && matches!(step, Step::Incomplete { .. }) {
                step = self
                    .codec
                    .refuse(&self.unread[at..], &self.limits, &scratch);
            }
            at += match step {
                Step::Incomplete { need } => {
                    assert!(need > rest, "asked for {need} bytes with {rest} there");
                    break need;
                }
                Step::Skip { consumed } => consumed,
                Step::Frame { consumed, bytes } => {
                    self.out.extend_from_slice(bytes);
                    consumed
                }
                Step::Call { consumed, call } => {
                    if let Admin::Binary(request) = call {
                        self.out.extend_from_slice(&request.refusal());
                        self.closed = true;
                        break 1;
                    }
                    admin_reply(&mut self.codec, call, &mut self.model, &mut self.out);
                    consumed
                }
                Step::Close { reply } => {
                    self.out.extend_from_slice(reply);
                    self.closed = true;
                    break 1;
                }
                Step::Op {
                    consumed,
                    key,
                    verb,
                    form,
                } => {
                    assert!((1..=250).contains(&key.len()));
                    let mut sink =
                        ReplyWriter::new(std::slice::from_ref(&form), NOW, &mut self.out);
                    let op = Op::new(0, key, verb);
                    let flow = self.model.run(NOW, &op, &mut sink);
                    assert_eq!((flow, sink.completed()), (Flow::Continue, 1));
                    consumed
                }
            };
            assert!(at <= self.unread.len(), "consumed more than there is");
        };
        self.unread.drain(..at);
    }
}

/// A short reply to each admin command, so that sessions can be compared.
fn admin_reply(codec: &mut Codec, admin: Admin<'_>, model: &mut MemcachedModel, out: &mut Vec<u8>) {
    let silent = match admin {
        Admin::FlushAll { at, noreply } => {
            if at.is_none() {
                model.items.clear();
            }
            noreply
        }
        Admin::Verbosity { noreply, .. } | Admin::CacheMemlimit { noreply, .. } => noreply,
        _ => false,
    };
    let bytes = match admin {
        Admin::Stats(StatsRequest::Reset) => reply::RESET,
        Admin::Stats(StatsRequest::Unknown(_)) => reply::ERROR,
        Admin::Stats(StatsRequest::DetailOn | StatsRequest::DetailOff) => reply::OK,
        Admin::Stats(_) | Admin::Dump { .. } => reply::END,
        Admin::Authenticate {
            payload: b"ann secret",
        } => {
            if let Codec::Memcached(codec) = codec {
                codec.set_authenticated();
            }
            reply::STORED
        }
        Admin::Authenticate { .. } => reply::AUTH_FAILURE,
        _ => reply::OK,
    };
    if !silent {
        out.extend_from_slice(bytes);
    }
}

/// The whole transcript of a connection that sends `input` at once.
pub(crate) fn talk(input: &[u8]) -> String {
    talk_with(Limits::default(), input)
}

/// Like [`talk`], with other limits.
pub(crate) fn talk_with(limits: Limits, input: &[u8]) -> String {
    let mut session = Session::new(false, limits);
    session.feed(input);
    transcript(&session)
}

/// The replies, and whether the connection was closed.
pub(crate) fn transcript(session: &Session) -> String {
    let mut text = String::from_utf8_lossy(&session.out).into_owned();
    if session.closed {
        text.push_str("<closed>");
    }
    text
}

/// Checks a conversation: sends all input at once and compares all replies.
#[track_caller]
pub(crate) fn says(input: &str, expected: &str) {
    assert_eq!(talk(input.as_bytes()), expected, "to {input:?}");
}
