//! One connection to the server under test: sends requests and reads replies, with a timeout.
//!
//! A session writes a whole batch before it parses the first reply. While the server takes no more
//! bytes, the session buffers the replies that have arrived. So a batch of large sets and large
//! gets cannot deadlock.

use std::io::{self, Read, Write};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::config::Address;
use crate::error::LoadError;
use crate::socket::Socket;

/// Bytes of one read from the socket.
const READ_BYTES: usize = 64 << 10;
/// Capacity that an empty buffer keeps.
const KEPT_BYTES: usize = 1 << 20;
/// Maximum length of a reply line.
const LINE_BYTES: usize = 4 << 10;

/// The first line of a reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Reply {
    Stored,
    NotStored,
    Deleted,
    Touched,
    NotFound,
    Ok,
    /// `SERVER_ERROR out of memory …`: the server refuses for lack of memory.
    NoMemory,
    End,
    Number(u64),
    /// The value of the requested key follows.
    Value {
        len: usize,
    },
    /// Anything else, shortened.
    Other(String),
}

pub(super) struct Session {
    socket: Socket,
    target: String,
    timeout_ms: u64,
    /// Requests that wait for [`Session::flush`].
    pub(super) out: Vec<u8>,
    input: Vec<u8>,
    /// Bytes of `input` that are consumed.
    at: usize,
    buf: Vec<u8>,
}

impl Session {
    pub(super) fn connect(address: &Address, timeout_ms: u64) -> Result<Self, LoadError> {
        let target = address.to_string();
        let socket = Socket::connect(address).map_err(|source| LoadError::Connect {
            target: target.clone(),
            source,
        })?;
        Ok(Self {
            socket,
            target,
            timeout_ms,
            out: Vec::new(),
            input: Vec::new(),
            at: 0,
            buf: vec![0; READ_BYTES],
        })
    }

    /// The error for a reply that the protocol does not allow here.
    pub(super) fn wrong(&self, detail: impl Into<String>) -> LoadError {
        LoadError::Protocol {
            target: self.target.clone(),
            detail: detail.into(),
        }
    }

    /// Sends everything in `out`.
    pub(super) fn flush(&mut self) -> Result<(), LoadError> {
        let mut out = std::mem::take(&mut self.out);
        let mut sent = 0;
        while sent < out.len() {
            match self.socket.write(&out[sent..]) {
                Ok(0) => return Err(self.io("write", io::ErrorKind::WriteZero.into())),
                Ok(n) => sent += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                    self.wait(PollFlags::IN | PollFlags::OUT)?;
                    self.receive()?;
                }
                Err(e) => return Err(self.io("write", e)),
            }
        }
        out.clear();
        out.shrink_to(KEPT_BYTES);
        self.out = out;
        Ok(())
    }

    /// Sends `command` and reads the first line of its reply.
    pub(super) fn ask(&mut self, command: &str) -> Result<Reply, LoadError> {
        self.out.extend_from_slice(command.as_bytes());
        self.out.extend_from_slice(b"\r\n");
        self.flush()?;
        self.reply(b"")
    }

    /// The general statistics, as names and values.
    pub(super) fn stats(&mut self) -> Result<Vec<(String, String)>, LoadError> {
        self.out.extend_from_slice(b"stats\r\n");
        self.flush()?;
        let mut all = Vec::new();
        loop {
            let line = String::from_utf8_lossy(self.line()?).into_owned();
            if line == "END" {
                return Ok(all);
            }
            let Some((name, value)) = line
                .strip_prefix("STAT ")
                .and_then(|rest| rest.split_once(' '))
            else {
                return Err(self.wrong(format!("'{line}' in the statistics")));
            };
            all.push((name.into(), value.into()));
        }
    }

    /// Reads the next line, as the reply to a request for `key`.
    pub(super) fn reply(&mut self, key: &[u8]) -> Result<Reply, LoadError> {
        self.line().map(|line| classify(line, key))
    }

    /// Reads the whole reply to a `get` of `key`: its value, or `None` for a miss.
    pub(super) fn value(&mut self, key: &[u8]) -> Result<Option<&[u8]>, LoadError> {
        let len = match self.reply(key)? {
            Reply::End => return Ok(None),
            Reply::Value { len } => len,
            other => return Err(self.wrong(format!("{other:?} to a get"))),
        };
        const TAIL: &[u8] = b"\r\nEND\r\n";
        let whole = len + TAIL.len();
        while self.input.len() - self.at < whole {
            self.wait_and_receive()?;
        }
        let start = self.at;
        self.at += whole;
        if self.input[start + len..start + whole] != *TAIL {
            return Err(self.wrong("a value is longer than its length"));
        }
        Ok(Some(&self.input[start..start + len]))
    }

    /// Waits for the next line, and returns it without its line break.
    fn line(&mut self) -> Result<&[u8], LoadError> {
        let mut searched = self.at;
        loop {
            if let Some(n) = memchr::memchr(b'\n', &self.input[searched..]) {
                let (start, end) = (self.at, searched + n);
                self.at = end + 1;
                if end == start || self.input[end - 1] != b'\r' {
                    return Err(self.wrong("a line that does not end with CR LF"));
                }
                return Ok(&self.input[start..end - 1]);
            }
            if self.input.len() - self.at > LINE_BYTES {
                return Err(self.wrong("a line without end"));
            }
            let seen = self.input.len() - self.at;
            self.wait_and_receive()?;
            searched = self.at + seen;
        }
    }

    fn wait_and_receive(&mut self) -> Result<(), LoadError> {
        self.compact();
        while !self.receive()? {
            self.wait(PollFlags::IN)?;
        }
        Ok(())
    }

    /// Drops consumed bytes before more are appended.
    fn compact(&mut self) {
        if self.at == self.input.len() {
            self.input.clear();
            self.input.shrink_to(KEPT_BYTES);
            self.at = 0;
        } else if self.at >= KEPT_BYTES {
            self.input.drain(..self.at);
            self.at = 0;
        }
    }

    /// Appends the bytes that have arrived to `input`. Returns whether there were any.
    fn receive(&mut self) -> Result<bool, LoadError> {
        let mut any = false;
        loop {
            match self.socket.read(&mut self.buf) {
                Ok(0) => return Err(self.wrong("the server closed a connection")),
                Ok(n) => {
                    self.input.extend_from_slice(&self.buf[..n]);
                    any = true;
                    if n < self.buf.len() {
                        return Ok(true);
                    }
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(any),
                Err(e) => return Err(self.io("read", e)),
            }
        }
    }

    /// Waits until the socket is ready.
    fn wait(&self, flags: PollFlags) -> Result<(), LoadError> {
        let timeout = Timespec {
            tv_sec: (self.timeout_ms / 1000) as i64,
            tv_nsec: (self.timeout_ms % 1000 * 1_000_000) as _,
        };
        loop {
            let mut fds = [PollFd::new(&self.socket, flags)];
            match poll(&mut fds, Some(&timeout)) {
                Ok(0) => {
                    return Err(LoadError::Stall {
                        target: self.target.clone(),
                        waited_ms: self.timeout_ms,
                        outstanding: 1,
                    });
                }
                Ok(_) => return Ok(()),
                Err(rustix::io::Errno::INTR) => {}
                Err(e) => return Err(self.io("poll", e.into())),
            }
        }
    }

    fn io(&self, what: &str, source: io::Error) -> LoadError {
        LoadError::io(format!("{}: {what}", self.target), source)
    }
}

/// Classifies a line. A `VALUE` line must name `key` and have no flags.
fn classify(line: &[u8], key: &[u8]) -> Reply {
    let other = || Reply::Other(String::from_utf8_lossy(&line[..line.len().min(80)]).into_owned());
    match line {
        b"STORED" => Reply::Stored,
        b"NOT_STORED" => Reply::NotStored,
        b"DELETED" => Reply::Deleted,
        b"TOUCHED" => Reply::Touched,
        b"NOT_FOUND" => Reply::NotFound,
        b"OK" => Reply::Ok,
        b"END" => Reply::End,
        _ if line.starts_with(b"SERVER_ERROR out of memory")
            || line.starts_with(b"SERVER_ERROR Out of memory during read") =>
        {
            Reply::NoMemory
        }
        _ if line.starts_with(b"VALUE ") => {
            value_len(&line[6..], key).map_or_else(other, |len| Reply::Value { len })
        }
        _ => number(line).map_or_else(other, Reply::Number),
    }
}

fn value_len(rest: &[u8], key: &[u8]) -> Option<usize> {
    let len = number(rest.strip_prefix(key)?.strip_prefix(b" 0 ")?)?;
    (len <= u64::from(crate::config::MAX_VALUE_BYTES)).then_some(len as usize)
}

fn number(digits: &[u8]) -> Option<u64> {
    // memcached pads with spaces when `decr` makes a number shorter.
    let text = std::str::from_utf8(digits).ok()?.trim_end_matches(' ');
    text.bytes()
        .all(|b| b.is_ascii_digit())
        .then(|| text.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_classified_and_a_value_must_name_the_key() {
        let key = b"key:1";
        assert_eq!(classify(b"STORED", key), Reply::Stored);
        assert_eq!(
            classify(b"18446744073709551615", key),
            Reply::Number(u64::MAX)
        );
        assert_eq!(classify(b"99 ", key), Reply::Number(99));
        assert_eq!(classify(b"VALUE key:1 0 12", key), Reply::Value { len: 12 });
        for full in [
            &b"SERVER_ERROR out of memory storing object"[..],
            b"SERVER_ERROR Out of memory during read",
        ] {
            assert_eq!(classify(full, key), Reply::NoMemory);
        }
        for bad in [
            &b"VALUE key:2 0 12"[..],
            b"VALUE key:1 7 12",
            b"VALUE key:1 0 999999999999",
            b"ERROR",
            b"",
        ] {
            assert!(matches!(classify(bad, key), Reply::Other(_)), "{bad:?}");
        }
    }
}
