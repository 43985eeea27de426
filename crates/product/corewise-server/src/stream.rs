//! A client's socket, TCP or Unix.

use mio::event::Source;
use mio::unix::SourceFd;
use mio::{Interest, Registry, Token};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::{RecvFlags, SendFlags, Shutdown, recv, send, shutdown};
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::time::Duration;

/// A client's socket, which is non-blocking.
pub(crate) struct Stream {
    socket: OwnedFd,
}

impl From<OwnedFd> for Stream {
    fn from(socket: OwnedFd) -> Self {
        Self { socket }
    }
}

impl Stream {
    pub(crate) fn fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }

    /// Number of bytes that can be read now.
    pub(crate) fn readable_bytes(&self) -> usize {
        let bytes = rustix::io::ioctl_fionread(&self.socket);
        bytes.map_or(0, |bytes| bytes as usize)
    }

    /// Reads into `into`, which need not be initialised. Returns how many bytes were read; these
    /// are initialised then.
    pub(crate) fn read(&mut self, into: &mut [MaybeUninit<u8>]) -> io::Result<usize> {
        // `recv`, because `read` and `readv` take a longer way through the kernel: 3 % of a small
        // request.
        retry(|| {
            let received = recv(&self.socket, &mut *into, RecvFlags::empty());
            received.map(|(_, bytes)| bytes).map_err(Into::into)
        })
    }

    /// Reads into `first` and then into `behind`, neither of which need be initialised. Returns how
    /// many bytes were read; these are initialised then, those of `first` before those of `behind`.
    pub(crate) fn read_parts(
        &mut self,
        first: &mut [MaybeUninit<u8>],
        behind: &mut [MaybeUninit<u8>],
    ) -> io::Result<usize> {
        if behind.is_empty() {
            return self.read(first);
        }
        let parts = [first, behind].map(|part| libc::iovec {
            iov_base: part.as_mut_ptr().cast(),
            iov_len: part.len(),
        });
        let fd = self.fd();
        // SAFETY: both parts are valid for writes of their lengths while they are borrowed, and the
        // kernel writes nothing else. The descriptor is open as long as `self` is.
        retry(|| match unsafe { libc::readv(fd, parts.as_ptr(), 2) } {
            n if n >= 0 => Ok(n as usize),
            _ => Err(io::Error::last_os_error()),
        })
    }

    pub(crate) fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        retry(|| Ok(send(&self.socket, from, SendFlags::NOSIGNAL)?))
    }

    pub(crate) fn write_vectored(&mut self, from: &[IoSlice<'_>]) -> io::Result<usize> {
        retry(|| Ok(rustix::io::writev(&self.socket, from)?))
    }

    /// Waits until the socket takes more bytes, for at most `time`. Returns false if the time is
    /// over.
    pub(crate) fn wait_until_writable(&self, time: Duration) -> bool {
        let Ok(time) = time.try_into() else {
            return false;
        };
        let mut fds = [PollFd::new(&self.socket, PollFlags::OUT)];
        // A signal ends the wait early; the caller tries to write and asks again.
        !matches!(poll(&mut fds, Some(&time)), Ok(0))
    }

    pub(crate) fn close_writing(&self) {
        // The peer may be gone already, so an error does not matter.
        let _ = shutdown(&self.socket, Shutdown::Write);
    }
}

/// Maximum number of calls when signals interrupt them.
const MOST_CALLS: usize = 100;

/// Repeats a call that a signal interrupted. After [`MOST_CALLS`] calls it returns the error, and
/// the connection is closed.
fn retry(mut call: impl FnMut() -> io::Result<usize>) -> io::Result<usize> {
    let mut result = call();
    for _ in 1..MOST_CALLS {
        match result {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => result = call(),
            _ => break,
        }
    }
    result
}

impl Source for Stream {
    fn register(&mut self, r: &Registry, token: Token, interests: Interest) -> io::Result<()> {
        SourceFd(&self.fd()).register(r, token, interests)
    }
    fn reregister(&mut self, r: &Registry, token: Token, interests: Interest) -> io::Result<()> {
        SourceFd(&self.fd()).reregister(r, token, interests)
    }
    fn deregister(&mut self, r: &Registry) -> io::Result<()> {
        SourceFd(&self.fd()).deregister(r)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_that_is_always_interrupted_ends_in_an_error() {
        let mut calls = 0;
        let error = retry(|| {
            calls += 1;
            Err(io::ErrorKind::Interrupted.into())
        });
        assert_eq!(error.unwrap_err().kind(), io::ErrorKind::Interrupted);
        assert_eq!(calls, MOST_CALLS);
        let mut left = 3;
        let answer = retry(|| {
            left -= 1;
            if left > 0 {
                return Err(io::ErrorKind::Interrupted.into());
            }
            Ok(7)
        });
        assert_eq!(answer.unwrap(), 7);
    }
}
