//! One connection: its requests, the replies that it expects, and its buffers.

use std::io::{self, Read};

use mio::{Interest, Registry, Token};

use crate::codec::Codec;
use crate::codec::scan::{Pending, Scanner};
use crate::config::Address;
use crate::keys::KeyStream;
use crate::load_stats::LoadStats;
use crate::socket::{Outbox, Socket};

/// Why a slice failed, before the target's name is known.
#[derive(Debug)]
pub(crate) enum Fault {
    Io(&'static str, io::Error),
    Protocol(String),
    Stall { outstanding: u64 },
}

#[derive(Debug)]
pub(crate) struct Conn {
    socket: Socket,
    token: Token,
    outbox: Outbox,
    /// The start of an incomplete line.
    carry: Vec<u8>,
    scanner: Scanner,
    /// The key of the last set.
    last_set: u32,
    pub(crate) pending: Pending,
}

impl Conn {
    pub(crate) fn open(address: &Address, registry: &Registry, token: Token) -> io::Result<Self> {
        let mut socket = Socket::connect(address)?;
        registry.register(&mut socket, token, Interest::READABLE)?;
        Ok(Self {
            socket,
            token,
            outbox: Outbox::default(),
            carry: Vec::new(),
            scanner: Scanner::default(),
            last_set: 0,
            pending: Pending::default(),
        })
    }

    /// Whether every request is answered.
    #[inline]
    pub(crate) fn is_idle(&self) -> bool {
        self.pending.requests.is_empty()
    }

    /// Prepares the next request of the stream; its latency counts from `at`.
    #[inline]
    pub(crate) fn push_next(&mut self, codec: &Codec, stream: &mut KeyStream, at: u64) {
        if stream.next_is_set() {
            self.push_set(codec, stream.next_key(), at);
            return;
        }
        self.pending.push_get(at, codec.multiget);
        let asked = &mut self.pending.keys;
        let keys = (0..codec.multiget).map(|_| {
            let key = stream.next_key();
            asked.push_back(key);
            key
        });
        codec.get(keys, &mut self.outbox.bytes);
    }

    /// Prepares a get of one `key`; its latency counts from `at`.
    pub(crate) fn push_get(&mut self, codec: &Codec, key: u32, at: u64) {
        self.pending.push_get(at, 1);
        self.pending.keys.push_back(key);
        codec.get(std::iter::once(key), &mut self.outbox.bytes);
    }

    /// Prepares a set of `key`; its latency counts from `at`.
    pub(crate) fn push_set(&mut self, codec: &Codec, key: u32, at: u64) {
        self.pending.push_set(at);
        self.last_set = key;
        codec.set(key, &mut self.outbox.bytes);
    }

    /// Sends prepared requests as far as the socket takes them. If the last of them is a set
    /// without a reply, a get of its key follows, whose reply shows that the set was executed.
    pub(crate) fn flush(&mut self, codec: &Codec, registry: &Registry) -> Result<(), Fault> {
        if codec.has_silent_sets()
            && let Some(last) = self.pending.requests.back().filter(|last| last.is_set)
        {
            self.push_get(codec, self.last_set, last.at);
        }
        self.outbox
            .flush(&mut self.socket, registry, self.token)
            .map_err(|e| Fault::Io("write", e))
    }

    /// Reads all replies that have arrived. Returns the time of the last read that returned any;
    /// `None` if no read did.
    pub(crate) fn receive(
        &mut self,
        codec: &Codec,
        buf: &mut [u8],
        clock: impl Fn() -> u64,
        stats: &mut LoadStats,
    ) -> Result<Option<u64>, Fault> {
        let mut latest = None;
        loop {
            let held = self.carry.len();
            buf[..held].copy_from_slice(&self.carry);
            let n = match self.socket.read(&mut buf[held..]) {
                Ok(0) => return Err(Fault::Protocol("the server closed a connection".into())),
                Ok(n) => n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(latest),
                Err(e) => return Err(Fault::Io("read", e)),
            };
            let now = clock();
            latest = Some(now);
            stats.read_at(now);
            let filled = held + n;
            let used = self
                .scanner
                .feed(codec, &buf[..filled], &mut self.pending, stats)
                .map_err(Fault::Protocol)?;
            self.carry.clear();
            self.carry.extend_from_slice(&buf[used..filled]);
            // A short read took all available bytes; more bytes will raise another event.
            if filled < buf.len() {
                return Ok(latest);
            }
        }
    }
}
