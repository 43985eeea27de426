//! The statistics that a server reports.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use corewise_measure::machine::CpuTimes;

use crate::error::BenchError;

/// Longest wait for an answer of a server under load.
const PATIENCE: Duration = Duration::from_secs(20);
/// More lines than any server prints.
const MOST_LINES: usize = 10_000;

/// A connection for the command `stats`.
pub(super) struct Asker(BufReader<TcpStream>);

/// A server's counters at one time.
pub(super) struct Reading {
    at: Instant,
    stats: HashMap<String, String>,
    cpu: CpuTimes,
}

fn failed(what: impl std::fmt::Display) -> BenchError {
    BenchError::Failed(format!("the server's statistics: {what}"))
}

impl Asker {
    pub(super) fn connect(address: SocketAddr) -> Result<Self, BenchError> {
        let connect = || {
            let stream = TcpStream::connect_timeout(&address, PATIENCE)?;
            stream.set_read_timeout(Some(PATIENCE))?;
            stream.set_nodelay(true)?;
            Ok(Self(BufReader::new(stream)))
        };
        connect().map_err(|error: std::io::Error| failed(error))
    }

    /// Reads the counters, and the CPU time of the process.
    pub(super) fn read(&mut self, pid: u32) -> Result<Reading, BenchError> {
        self.0.get_mut().write_all(b"stats\r\n").map_err(failed)?;
        let mut stats = HashMap::new();
        let mut line = String::new();
        for _ in 0..MOST_LINES {
            line.clear();
            if self.0.read_line(&mut line).map_err(failed)? == 0 {
                return Err(failed("it hung up"));
            }
            let mut words = line.split_ascii_whitespace();
            match (words.next(), words.next(), words.next()) {
                (Some("STAT"), Some(name), Some(value)) => {
                    stats.insert(name.to_owned(), value.to_owned());
                }
                (Some("END"), ..) => {
                    return Ok(Reading {
                        at: Instant::now(),
                        stats,
                        cpu: CpuTimes::of(pid).map_err(failed)?,
                    });
                }
                _ => return Err(failed(format!("`{}`", line.trim()))),
            }
        }
        Err(failed("they do not end"))
    }
}

impl Reading {
    /// Returns a counter; `None` if the server does not have it.
    pub(super) fn number(&self, name: &str) -> Option<u64> {
        self.stats.get(name)?.parse().ok()
    }

    /// Returns the growth of a counter since an earlier reading.
    pub(super) fn grown(&self, name: &str, since: &Self) -> Option<u64> {
        Some(self.number(name)?.saturating_sub(since.number(name)?))
    }

    pub(super) fn seconds(&self, since: &Self) -> f64 {
        (self.at - since.at).as_secs_f64()
    }

    /// Returns the growth of a counter per second.
    pub(super) fn rate(&self, name: &str, since: &Self) -> Result<f64, BenchError> {
        let grown = self.grown(name, since);
        let grown = grown.ok_or_else(|| failed(format!("there is no `{name}`")))?;
        Ok(grown as f64 / self.seconds(since))
    }

    /// Returns user and kernel time since an earlier reading, in nanoseconds.
    pub(super) fn cpu_ns(&self, since: &Self) -> (u64, u64) {
        (
            self.cpu.user_ns.saturating_sub(since.cpu.user_ns),
            self.cpu.kernel_ns.saturating_sub(since.cpu.kernel_ns),
        )
    }

    /// Returns the version that the server reports.
    pub(super) fn version(&self) -> String {
        self.stats.get("version").cloned().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    /// A server that gives these answers.
    fn answers(texts: &'static [&'static str]) -> Asker {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("a client");
            for text in texts {
                let mut line = String::new();
                BufReader::new(stream.try_clone().expect("a stream"))
                    .read_line(&mut line)
                    .expect("a question");
                assert_eq!(line, "stats\r\n");
                stream.write_all(text.as_bytes()).expect("an answer");
            }
        });
        Asker::connect(address).expect("a connection")
    }

    #[test]
    fn counters_are_compared_with_an_earlier_reading() {
        let mut asker = answers(&[
            "STAT cmd_get 100\r\nSTAT version 1.2 3\r\nEND\r\n",
            "STAT cmd_get 350\r\nSTAT version 1.2 3\r\nEND\r\n",
        ]);
        let me = std::process::id();
        let first = asker.read(me).expect("statistics");
        let second = asker.read(me).expect("statistics");
        assert_eq!(second.grown("cmd_get", &first), Some(250));
        assert_eq!(second.grown("lock_wait_us", &first), None);
        assert_eq!(second.version(), "1.2");
        let rate = second.rate("cmd_get", &first).expect("it is there");
        assert_eq!((rate * second.seconds(&first)).round(), 250.0);
        assert!(second.rate("cmd_set", &first).is_err());
    }

    #[test]
    fn what_is_no_statistics_is_an_error() {
        for text in ["ERROR\r\n", "STAT a\r\n", ""] {
            let mut asker = answers(vec![text].leak());
            assert!(asker.read(std::process::id()).is_err(), "{text:?}");
        }
    }
}
