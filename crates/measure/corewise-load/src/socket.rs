//! One type for TCP and Unix stream sockets.

use std::io::{self, Read, Write};
use std::net::TcpStream as StdTcp;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream as StdUnix;
use std::time::Duration;

use mio::event::Source;
use mio::net::{TcpStream, UnixStream};
use mio::{Interest, Registry, Token};

use crate::config::Address;

/// A connected, non-blocking stream.
#[derive(Debug)]
pub(crate) enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
}

/// Maximum wait for a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

impl Socket {
    /// Connects and waits until the connection is established. Small writes are sent at once.
    pub(crate) fn connect(address: &Address) -> io::Result<Self> {
        match address {
            Address::Tcp(addr) => {
                let stream = StdTcp::connect_timeout(addr, CONNECT_TIMEOUT)?;
                stream.set_nodelay(true)?;
                stream.set_nonblocking(true)?;
                Ok(Self::Tcp(TcpStream::from_std(stream)))
            }
            Address::Unix(path) => {
                let stream = StdUnix::connect(path)?;
                stream.set_nonblocking(true)?;
                Ok(Self::Unix(UnixStream::from_std(stream)))
            }
        }
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(s) => s.as_fd(),
            Self::Unix(s) => s.as_fd(),
        }
    }
}

impl Read for Socket {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(s) => s.read(buf),
            Self::Unix(s) => s.read(buf),
        }
    }
}

impl Write for Socket {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(s) => s.write(buf),
            Self::Unix(s) => s.write(buf),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Source for Socket {
    fn register(&mut self, r: &Registry, token: Token, interest: Interest) -> io::Result<()> {
        match self {
            Self::Tcp(s) => s.register(r, token, interest),
            Self::Unix(s) => s.register(r, token, interest),
        }
    }

    fn reregister(&mut self, r: &Registry, token: Token, interest: Interest) -> io::Result<()> {
        match self {
            Self::Tcp(s) => s.reregister(r, token, interest),
            Self::Unix(s) => s.reregister(r, token, interest),
        }
    }

    fn deregister(&mut self, r: &Registry) -> io::Result<()> {
        match self {
            Self::Tcp(s) => s.deregister(r),
            Self::Unix(s) => s.deregister(r),
        }
    }
}

/// Bytes that wait to be written to a socket.
///
/// Interest in writability is registered only while bytes are left over. On a Unix socket, every
/// read of the peer would raise an event otherwise.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    pub(crate) bytes: Vec<u8>,
    sent: usize,
    armed: bool,
}

/// Capacity that an empty outbox keeps.
const KEPT_BYTES: usize = 1 << 20;

impl Outbox {
    pub(crate) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Writes until everything is sent or the socket is full.
    pub(crate) fn flush(
        &mut self,
        socket: &mut Socket,
        registry: &Registry,
        token: Token,
    ) -> io::Result<()> {
        while self.sent < self.bytes.len() {
            match socket.write(&self.bytes[self.sent..]) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(n) => self.sent += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                    return self.arm(true, socket, registry, token);
                }
                Err(e) => return Err(e),
            }
        }
        self.sent = 0;
        self.bytes.clear();
        self.bytes.shrink_to(KEPT_BYTES);
        self.arm(false, socket, registry, token)
    }

    fn arm(
        &mut self,
        want: bool,
        socket: &mut Socket,
        registry: &Registry,
        token: Token,
    ) -> io::Result<()> {
        if want == self.armed {
            return Ok(());
        }
        self.armed = want;
        let write = if want { Some(Interest::WRITABLE) } else { None };
        let interest = write.map_or(Interest::READABLE, |w| w | Interest::READABLE);
        socket.reregister(registry, token, interest)
    }
}
