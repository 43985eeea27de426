//! The responder's process: one thread accepts, the others answer.
//!
//! ```text
//! main: accept ──queue + waker──▶ answer threads: poll → read → count → write
//! stdin watcher: end of file (the parent is gone) → exit
//! ```

use std::io::{self, Read, Write};
use std::net::TcpListener;
use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

use mio::net::{TcpStream, UnixStream};
use mio::{Events, Interest, Poll, Registry, Token, Waker};

use super::FloorSpec;
use super::count::{AwaitedReply, Counter};
use crate::clients::pin;
use crate::socket::{Outbox, Socket};

const READ_BYTES: usize = 64 << 10;
/// A connection with more bytes of unsent replies is not read.
const UNSENT_LIMIT: usize = 1 << 20;
const EVENTS: usize = 256;
const WAKE: Token = Token(usize::MAX - 1);

enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener),
}

impl Listener {
    fn open(spec: &FloorSpec) -> io::Result<(Self, String)> {
        match &spec.unix {
            None => {
                let listener = TcpListener::bind("127.0.0.1:0")?;
                let address = listener.local_addr()?.to_string();
                Ok((Self::Tcp(listener), address))
            }
            Some(path) => {
                let _ = std::fs::remove_file(path);
                Ok((
                    Self::Unix(UnixListener::bind(path)?),
                    format!("unix:{path}"),
                ))
            }
        }
    }

    fn accept(&self) -> io::Result<Socket> {
        match self {
            Self::Tcp(listener) => {
                let (stream, _) = listener.accept()?;
                stream.set_nodelay(true)?;
                stream.set_nonblocking(true)?;
                Ok(Socket::Tcp(TcpStream::from_std(stream)))
            }
            Self::Unix(listener) => {
                let (stream, _) = listener.accept()?;
                stream.set_nonblocking(true)?;
                Ok(Socket::Unix(UnixStream::from_std(stream)))
            }
        }
    }
}

/// Listens, prints the address on standard output, and serves until standard input ends.
pub(super) fn run(spec: &FloorSpec) -> Result<(), String> {
    // Otherwise the soft limit may end the accept loop early. Best effort.
    corewise_measure::machine::raise_file_limit();
    let (listener, address) = Listener::open(spec).map_err(|e| format!("cannot listen: {e}"))?;
    let mut queues = Vec::new();
    for turn in 0..spec.threads as usize {
        queues.push(Answerer::spawn(spec, turn)?);
    }
    std::thread::spawn(|| {
        let _ = io::copy(&mut io::stdin(), &mut io::sink());
        std::process::exit(0);
    });
    println!("listening {address}");
    io::stdout().flush().map_err(|e| e.to_string())?;
    for turn in 0.. {
        let socket = listener
            .accept()
            .map_err(|e| format!("cannot accept: {e}"))?;
        let (queue, waker): &(Sender<Socket>, Arc<Waker>) = &queues[turn % queues.len()];
        queue
            .send(socket)
            .map_err(|_| "an answer thread ended".to_string())?;
        waker.wake().map_err(|e| e.to_string())?;
    }
    Ok(())
}

/// The canned replies.
struct Replies {
    get: Vec<u8>,
    set: Vec<u8>,
}

struct Peer {
    socket: Socket,
    outbox: Outbox,
    counter: Counter,
}

struct Answerer {
    poll: Poll,
    peers: Vec<Option<Peer>>,
    inbox: Receiver<Socket>,
    spec: FloorSpec,
    replies: Replies,
    buf: Vec<u8>,
}

impl Answerer {
    fn spawn(spec: &FloorSpec, turn: usize) -> Result<(Sender<Socket>, Arc<Waker>), String> {
        let poll = Poll::new().map_err(|e| e.to_string())?;
        let waker = Waker::new(poll.registry(), WAKE).map_err(|e| e.to_string())?;
        let (queue, inbox) = channel();
        let spec = spec.clone();
        std::thread::spawn(move || {
            let buf = vec![0; READ_BYTES];
            let (get, set) = spec.replies();
            let replies = Replies { get, set };
            let mut answerer = Self {
                replies,
                poll,
                peers: Vec::new(),
                inbox,
                spec,
                buf,
            };
            let pinned = pin(&answerer.spec.pin, turn).map_err(|e| e.to_string());
            if let Err(e) = pinned.and_then(|()| answerer.serve().map_err(|e| e.to_string())) {
                eprintln!("empty responder: {e}");
                std::process::exit(1);
            }
        });
        Ok((queue, Arc::new(waker)))
    }

    fn serve(&mut self) -> io::Result<()> {
        let mut events = Events::with_capacity(EVENTS);
        loop {
            match self.poll.poll(&mut events, None) {
                Err(e) if e.kind() != io::ErrorKind::Interrupted => return Err(e),
                _ => {}
            }
            for event in &events {
                match event.token() {
                    WAKE => self.adopt()?,
                    Token(at) => self.answer(at),
                }
            }
        }
    }

    /// Takes over accepted connections.
    fn adopt(&mut self) -> io::Result<()> {
        while let Ok(mut socket) = self.inbox.try_recv() {
            let token = Token(self.peers.len());
            self.poll
                .registry()
                .register(&mut socket, token, Interest::READABLE)?;
            let counter = Counter::new(self.spec.protocol, self.spec.multiget);
            self.peers.push(Some(Peer {
                socket,
                outbox: Outbox::default(),
                counter,
            }));
        }
        Ok(())
    }

    /// Answers what a connection has sent. Drops the connection when it fails or ends.
    fn answer(&mut self, at: usize) {
        let Some(Some(peer)) = self.peers.get_mut(at) else {
            return;
        };
        if peer
            .answer(
                &self.replies,
                &mut self.buf,
                self.poll.registry(),
                Token(at),
            )
            .is_err()
        {
            self.peers[at] = None;
        }
    }
}

impl Peer {
    fn answer(
        &mut self,
        replies: &Replies,
        buf: &mut [u8],
        registry: &Registry,
        token: Token,
    ) -> io::Result<()> {
        if !self.outbox.is_empty() {
            self.outbox.flush(&mut self.socket, registry, token)?;
        }
        while self.outbox.bytes.len() < UNSENT_LIMIT {
            let n = match self.socket.read(buf) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(n) => n,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                Err(e) => return Err(e),
            };
            let out = &mut self.outbox.bytes;
            self.counter.feed(&buf[..n], |kind| match kind {
                AwaitedReply::Set => out.extend_from_slice(&replies.set),
                _ => out.extend_from_slice(&replies.get),
            });
            self.outbox.flush(&mut self.socket, registry, token)?;
            if n < buf.len() {
                return Ok(());
            }
        }
        Ok(())
    }
}
