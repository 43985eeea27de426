//! The transport of a connection: a socket, TCP or Unix.

use mio::event::Source;
use mio::unix::SourceFd;
use mio::{Interest, Registry, Token};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::writev;
use rustix::net::{RecvFlags, SendFlags, Shutdown, recv, send, shutdown};
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::time::Duration;

/// Carries the bytes of a connection: its socket, which is non-blocking.
pub(crate) struct Transport {
    socket: OwnedFd,
    /// In tests: whether the socket takes one byte, and nothing at the next call.
    #[cfg(test)]
    pub(crate) trickles: Option<bool>,
}

/// What one call of [`Transport::receive`] has found.
pub(crate) struct Received {
    /// Bytes received; none at the end of the stream.
    pub(crate) bytes: usize,
    /// There may be more bytes, which the poller does not report again.
    pub(crate) has_more: bool,
}

impl From<OwnedFd> for Transport {
    fn from(socket: OwnedFd) -> Self {
        Self {
            socket,
            #[cfg(test)]
            trickles: None,
        }
    }
}

impl Transport {
    pub(crate) fn fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }

    /// Number of bytes that can be received now.
    pub(crate) fn readable_bytes(&self) -> usize {
        let bytes = rustix::io::ioctl_fionread(&self.socket);
        bytes.map_or(0, |bytes| bytes as usize)
    }

    /// Receives into the first of `into` and then into the second, neither of which need be
    /// initialised. The bytes that were received are initialised then.
    pub(crate) fn receive(&mut self, into: [&mut [MaybeUninit<u8>]; 2]) -> io::Result<Received> {
        let asked = into[0].len() + into[1].len();
        let [first, behind] = into;
        let bytes = if behind.is_empty() {
            // `recv`, because `read` and `readv` take a longer way through the kernel: 3 % of a
            // small request.
            retry(|| Ok(recv(&self.socket, &mut *first, RecvFlags::empty())?.1))?
        } else {
            let parts = [first, behind].map(|part| libc::iovec {
                iov_base: part.as_mut_ptr().cast(),
                iov_len: part.len(),
            });
            let fd = self.fd();
            // SAFETY: both parts are valid for writes of their lengths while they are borrowed, and
            // the kernel writes nothing else. The descriptor is open as long as `self` is.
            retry(|| match unsafe { libc::readv(fd, parts.as_ptr(), 2) } {
                n if n >= 0 => Ok(n as usize),
                _ => Err(io::Error::last_os_error()),
            })?
        };
        Ok(Received {
            bytes,
            has_more: bytes == asked,
        })
    }

    /// Sends the front of `parts`, and takes it off them. Returns its length.
    pub(crate) fn send(&mut self, parts: &mut [&[u8]; 3]) -> io::Result<usize> {
        #[cfg(test)]
        if let Some(takes_byte) = &mut self.trickles {
            *takes_byte = !*takes_byte;
            if !*takes_byte {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            let first = parts.iter().find(|part| !part.is_empty());
            let byte = &first.map_or(&b""[..], |part| &part[..1]);
            let taken = send(&self.socket, byte, SendFlags::NOSIGNAL)?;
            skip(parts, taken);
            return Ok(taken);
        }
        let taken = retry(|| {
            Ok(match &*parts {
                [bytes, [], []] => send(&self.socket, bytes, SendFlags::NOSIGNAL)?,
                parts => writev(&self.socket, &parts.map(IoSlice::new))?,
            })
        })?;
        skip(parts, taken);
        Ok(taken)
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

/// Bytes of all `parts`.
pub(crate) fn length(parts: &[&[u8]; 3]) -> usize {
    parts.iter().map(|part| part.len()).sum()
}

/// Takes `n` bytes off the front of `parts`.
fn skip(parts: &mut [&[u8]; 3], mut n: usize) {
    for part in parts {
        let gone = n.min(part.len());
        *part = &part[gone..];
        n -= gone;
    }
}

impl Source for Transport {
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

    #[test]
    fn parts_are_skipped_as_if_they_were_one() {
        for n in 0..=6 {
            let mut parts = [&b"ab"[..], b"cdef", b""];
            skip(&mut parts, n);
            assert_eq!(parts.concat(), b"abcdef"[n..]);
        }
    }
}
