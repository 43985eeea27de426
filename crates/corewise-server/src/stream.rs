//! A client's socket, TCP or Unix.

use mio::event::Source;
use mio::net::{TcpStream, UnixStream};
use mio::{Interest, Registry, Token};
use std::io::{self, IoSlice, Read, Write};
use std::os::fd::{AsRawFd, RawFd};

/// A client's socket.
pub(crate) enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

macro_rules! each {
    ($self:expr, $stream:ident => $call:expr) => {
        match $self {
            Self::Tcp($stream) => $call,
            Self::Unix($stream) => $call,
        }
    };
}

impl Stream {
    pub(crate) fn fd(&self) -> RawFd {
        each!(self, s => s.as_raw_fd())
    }

    pub(crate) fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        retry(|| each!(self, s => s.read(into)))
    }

    pub(crate) fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        retry(|| each!(self, s => s.write(from)))
    }

    pub(crate) fn write_vectored(&mut self, from: &[IoSlice<'_>]) -> io::Result<usize> {
        retry(|| each!(self, s => s.write_vectored(from)))
    }

    pub(crate) fn close_writing(&self) {
        // The peer may be gone already; there is nobody to tell.
        let _ = each!(self, s => s.shutdown(std::net::Shutdown::Write));
    }
}

/// Repeats a call that a signal interrupted.
fn retry(mut call: impl FnMut() -> io::Result<usize>) -> io::Result<usize> {
    loop {
        match call() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

impl Source for Stream {
    fn register(&mut self, r: &Registry, token: Token, interests: Interest) -> io::Result<()> {
        each!(self, s => s.register(r, token, interests))
    }
    fn reregister(&mut self, r: &Registry, token: Token, interests: Interest) -> io::Result<()> {
        each!(self, s => s.reregister(r, token, interests))
    }
    fn deregister(&mut self, r: &Registry) -> io::Result<()> {
        each!(self, s => s.deregister(r))
    }
}
