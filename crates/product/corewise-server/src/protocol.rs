//! The protocols, and what the server must know of each before its first request.

use crate::codec::Codec;
use crate::commands::RespSession;
use crate::config::{BindAddress, BindingProtocol, ProtocolKind};
use corewise_wire::memcached::{self, reply};
use corewise_wire::{binary, cphash};
use std::fmt;

impl ProtocolKind {
    /// All protocols, in the order in which they are shown.
    pub(crate) const ALL: [Self; 3] = [Self::Memcached, Self::Resp, Self::Cphash];

    pub(crate) fn facts(self) -> &'static Facts {
        match self {
            Self::Memcached => &MEMCACHED,
            Self::Resp => &RESP,
            Self::Cphash => &CPHASH,
        }
    }

    /// Whether its clients can authenticate.
    #[must_use]
    pub fn authenticates(self) -> bool {
        self.facts().authenticates
    }
}

impl fmt::Display for ProtocolKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.facts().name)
    }
}

/// What the accepting thread must know of a protocol.
pub(crate) struct Facts {
    /// The name in options, settings and messages.
    name: &'static str,
    /// The codec of a new connection, whose client need not authenticate if it is `admitted`.
    pub(crate) codec: fn(admitted: bool, BindingProtocol) -> Codec,
    /// The reply to a connection that is turned away.
    pub(crate) refusal: &'static [u8],
    /// A command that talks to a listener at this address.
    pub(crate) try_it: fn(&BindAddress) -> String,
    /// Text that bash can send in place of that command, where its program is missing.
    pub(crate) try_text: Option<&'static str>,
    authenticates: bool,
    /// Whether its clients have numbers.
    pub(crate) numbers_clients: bool,
}

const TRY_TEXT: &str = r"set k 0 0 5\r\nhello\r\nget k\r\nquit\r\n";

static MEMCACHED: Facts = Facts {
    name: "memcached",
    codec: |admitted, binding| match binding {
        BindingProtocol::Binary => binary::Codec::default().into(),
        // The turn that finds a binary request changes the codec.
        BindingProtocol::Auto | BindingProtocol::Ascii => memcached::Codec::new(!admitted).into(),
    },
    refusal: reply::TOO_MANY_CONNECTIONS,
    try_it: |address| {
        let netcat = match address {
            BindAddress::Tcp(address) => format!("nc {} {}", address.ip(), address.port()),
            BindAddress::Unix(path) => format!("nc -U {}", path.display()),
        };
        format!("printf '{TRY_TEXT}' | {netcat}")
    },
    try_text: Some(TRY_TEXT),
    authenticates: true,
    numbers_clients: false,
};

static RESP: Facts = Facts {
    name: "resp",
    codec: |admitted, _| RespSession::new(admitted).into(),
    refusal: b"-ERR max number of clients reached\r\n",
    try_it: |address| match address {
        BindAddress::Tcp(address) => {
            let (ip, port) = (address.ip(), address.port());
            format!("redis-cli -h {ip} -p {port} set k hello")
        }
        BindAddress::Unix(path) => format!("redis-cli -s {} set k hello", path.display()),
    },
    try_text: Some(r"set k hello\r\nquit\r\n"),
    authenticates: true,
    numbers_clients: true,
};

static CPHASH: Facts = Facts {
    name: "cphash",
    codec: |_, _| cphash::Codec::default().into(),
    // The protocol has no replies but values.
    refusal: b"",
    try_it: |address| format!("corewise load {address} --protocol cphash --pipeline 32"),
    try_text: None,
    authenticates: false,
    numbers_clients: false,
};
