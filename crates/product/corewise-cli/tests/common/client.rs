//! A client that sends and expects bytes.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use memchr::memmem;

use super::{PATIENCE, show};

/// A blocking connection.
pub(crate) struct Client {
    stream: TcpStream,
    /// Bytes received and not yet consumed.
    ahead: Vec<u8>,
}

impl Client {
    pub(crate) fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect_timeout(&address, PATIENCE)
            .unwrap_or_else(|error| panic!("connecting to {address}: {error}"));
        stream.set_nodelay(true).unwrap();
        Self::over(stream)
    }

    pub(crate) fn connect_unix(path: &Path) -> Self {
        let stream = UnixStream::connect(path).unwrap();
        // Reading and writing are the same for every kind of socket.
        Self::over(TcpStream::from(OwnedFd::from(stream)))
    }

    fn over(stream: TcpStream) -> Self {
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        Self {
            stream,
            ahead: Vec::new(),
        }
    }

    /// The socket, for use by a second thread.
    pub(crate) fn socket(&self) -> TcpStream {
        self.stream.try_clone().unwrap()
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) {
        self.try_send(bytes).expect("to send");
    }

    /// Sends to a server that may have hung up.
    pub(crate) fn try_send(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.stream.write_all(bytes)
    }

    /// Closes the sending side.
    pub(crate) fn finish(&mut self) {
        // The server may have hung up already.
        let _ = self.stream.shutdown(Shutdown::Write);
    }

    /// Sends a request and expects exactly this reply.
    pub(crate) fn ask(&mut self, request: impl AsRef<[u8]>, reply: impl AsRef<[u8]>) {
        self.send(request.as_ref());
        self.expect(reply);
    }

    /// Expects these bytes next.
    pub(crate) fn expect(&mut self, reply: impl AsRef<[u8]>) {
        let expected = reply.as_ref();
        let mut compared = 0;
        while self.ahead.len() < expected.len() {
            // A wrong reply is often shorter too, so the prefix is compared before more is awaited.
            let so_far = &self.ahead[..];
            assert!(
                expected[compared..].starts_with(&so_far[compared..]),
                "expected {}, got {}",
                show(expected),
                show(so_far)
            );
            compared = so_far.len();
            let more = self.receive();
            assert!(
                more > 0,
                "expected {}, got {} and the end",
                show(expected),
                show(&self.ahead)
            );
        }
        let got = self.take(expected.len());
        assert!(
            got == expected,
            "expected {}, got {}",
            show(expected),
            show(&got)
        );
    }

    /// Reads the next line, and returns it without its line break.
    pub(crate) fn line(&mut self) -> String {
        let line = self.read_until(b"\r\n");
        String::from_utf8_lossy(&line[..line.len() - 2]).into_owned()
    }

    /// Reads the next `count` bytes, and pauses after each read from the socket.
    pub(crate) fn bytes_slowly(&mut self, count: usize, pause: Duration) -> Vec<u8> {
        while self.ahead.len() < count {
            let more = self.receive();
            assert!(more > 0, "the end after {} of {count}", self.ahead.len());
            std::thread::sleep(pause);
        }
        self.take(count)
    }

    /// Takes bytes that were received. Not with an iterator, which is slow without optimization.
    fn take(&mut self, count: usize) -> Vec<u8> {
        let taken = self.ahead[..count].to_vec();
        self.ahead.drain(..count);
        taken
    }

    /// Reads the next line; `None` if the server hangs up before its end.
    pub(crate) fn try_line(&mut self) -> Option<String> {
        while !self.ahead.contains(&b'\n') {
            match self.try_receive() {
                Ok(0) => return None,
                Ok(_) => {}
                Err(error) if hung_up(&error) => return None,
                Err(error) => panic!("{error}"),
            }
        }
        Some(self.line())
    }

    /// Whether the server has hung up and everything it sent was read.
    pub(crate) fn is_closed(&mut self) -> bool {
        self.stream.set_nonblocking(true).unwrap();
        let received = self.try_receive();
        self.stream.set_nonblocking(false).unwrap();
        match received {
            Ok(count) => count == 0,
            Err(error) => hung_up(&error),
        }
    }

    /// Reads up to and including `end`.
    pub(crate) fn read_until(&mut self, end: &[u8]) -> Vec<u8> {
        let mut searched = 0;
        loop {
            if let Some(at) = memmem::find(&self.ahead[searched..], end) {
                return self.take(searched + at + end.len());
            }
            searched = (self.ahead.len() + 1).saturating_sub(end.len());
            let more = self.receive();
            assert!(more > 0, "the end after {}", show(&self.ahead));
        }
    }

    /// The lines of `stats`, or of one of its parts.
    pub(crate) fn stats(&mut self, part: &str) -> String {
        self.send(format!("stats {part}\r\n").as_bytes());
        String::from_utf8(self.read_until(b"END\r\n")).expect("statistics are text")
    }

    /// One of them.
    pub(crate) fn stat_of(&mut self, part: &str, name: &str) -> String {
        let stats = self.stats(part);
        let start = format!("STAT {name} ");
        let value = stats.lines().find_map(|line| line.strip_prefix(&start));
        value
            .unwrap_or_else(|| panic!("no {name} in {stats}"))
            .to_owned()
    }

    /// A number of the general statistics.
    pub(crate) fn stat(&mut self, name: &str) -> u64 {
        self.stat_of("", name).parse().expect("a number")
    }

    /// Reads until nothing has arrived for `idle`, or the server hangs up.
    pub(crate) fn read_until_idle(&mut self, idle: Duration) -> Vec<u8> {
        self.stream.set_read_timeout(Some(idle)).unwrap();
        while self.try_receive().is_ok_and(|more| more > 0) {}
        self.stream.set_read_timeout(Some(PATIENCE)).unwrap();
        std::mem::take(&mut self.ahead)
    }

    /// Reads until the server hangs up.
    pub(crate) fn read_to_end(&mut self) -> Vec<u8> {
        let start = Instant::now();
        loop {
            match self.try_receive() {
                Ok(0) => break,
                Ok(_) => assert!(start.elapsed() < 2 * PATIENCE, "the server goes on sending"),
                Err(error) if hung_up(&error) => break,
                Err(error) => panic!("{error}, after {}", show(&self.ahead)),
            }
        }
        std::mem::take(&mut self.ahead)
    }

    /// Expects that the server hangs up without sending anything more.
    pub(crate) fn expect_end(&mut self) {
        let rest = self.read_to_end();
        assert!(rest.is_empty(), "expected the end, got {}", show(&rest));
    }

    fn receive(&mut self) -> usize {
        self.try_receive()
            .unwrap_or_else(|error| panic!("{error}, after {}", show(&self.ahead)))
    }

    fn try_receive(&mut self) -> std::io::Result<usize> {
        let mut buffer = [0; 65_536];
        let count = loop {
            match self.stream.read(&mut buffer) {
                // A stop and its end interrupt reads of a socket that has a timeout.
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                done => break done?,
            }
        };
        self.ahead.extend_from_slice(&buffer[..count]);
        Ok(count)
    }
}

/// Whether an error means that the other side is gone.
pub(crate) fn hung_up(error: &std::io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::ConnectionReset | ErrorKind::BrokenPipe | ErrorKind::ConnectionAborted
    )
}
