//! Identifies a server before it is put under load.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::str::FromStr;
use std::time::Duration;

use serde::Serialize;

use crate::config::{Address, Protocol, Target};
use crate::error::LoadError;

/// Maximum wait for an answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// Maximum number of bytes read of an answer.
const ANSWER_LIMIT: usize = 256 << 10;

/// What a server reports about itself. What it does not report is absent.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Identity {
    /// Version, with the server's name if it reports one.
    pub version: Option<String>,
    /// Process ID, as the server reports it.
    pub pid: Option<u32>,
    /// Number of server threads.
    pub threads: Option<u32>,
    /// Allocator.
    pub allocator: Option<String>,
}

trait Stream: Read + Write {}
impl<T: Read + Write> Stream for T {}

fn connect(address: &Address) -> io::Result<Box<dyn Stream>> {
    match address {
        Address::Tcp(addr) => {
            let stream = TcpStream::connect_timeout(addr, PATIENCE)?;
            stream.set_read_timeout(Some(PATIENCE))?;
            Ok(Box::new(stream))
        }
        Address::Unix(path) => {
            let stream = UnixStream::connect(path)?;
            stream.set_read_timeout(Some(PATIENCE))?;
            Ok(Box::new(stream))
        }
    }
}

/// Sends `question` and reads until `ended` holds.
fn ask(
    stream: &mut dyn Stream,
    question: &str,
    ended: impl Fn(&str) -> bool,
) -> io::Result<String> {
    stream.write_all(question.as_bytes())?;
    let (mut answer, mut buf) = (Vec::new(), [0; 4096]);
    loop {
        let text = String::from_utf8_lossy(&answer).into_owned();
        if ended(&text) || answer.len() > ANSWER_LIMIT {
            return Ok(text);
        }
        match stream.read(&mut buf) {
            Ok(0) => return Ok(text),
            Ok(n) => answer.extend_from_slice(&buf[..n]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// Identifies the server. A server that does not know a question is no error.
pub(crate) fn identify(target: &Target) -> Result<Identity, LoadError> {
    let address = target.address.to_string();
    let mut stream = connect(&target.address).map_err(|source| LoadError::Connect {
        target: address.clone(),
        source,
    })?;
    let identity = match target.protocol {
        Protocol::Resp => redis(&mut *stream),
        Protocol::Memcached | Protocol::Meta => memcached(&mut *stream),
        // It has no command for that.
        Protocol::Cphash => Ok(Identity::default()),
    };
    identity.map_err(|e| LoadError::io(format!("{address}: no answer to a version request"), e))
}

fn memcached(stream: &mut dyn Stream) -> io::Result<Identity> {
    let version = ask(stream, "version\r\n", |text| text.ends_with('\n'))?;
    let stats = stats(stream)?;
    Ok(Identity {
        version: version
            .trim_end()
            .strip_prefix("VERSION ")
            .map(str::to_string),
        pid: stat(&stats, "pid"),
        threads: stat(&stats, "threads"),
        allocator: None,
    })
}

fn stats(stream: &mut dyn Stream) -> io::Result<String> {
    let over = |text: &str| text.ends_with("END\r\n") || text.starts_with("ERROR");
    ask(stream, "stats\r\n", over)
}

fn stat<N: FromStr>(stats: &str, name: &str) -> Option<N> {
    let mut lines = stats.lines();
    let value = lines.find_map(|line| {
        let of_name = line.strip_prefix("STAT ")?.strip_prefix(name)?;
        of_name.strip_prefix(' ')
    });
    value?.parse().ok()
}

/// Returns a statistic of a server of memcached's protocols; `None` if the server does not report
/// it.
pub fn statistic<N: FromStr>(target: &Target, name: &str) -> Option<N> {
    if !matches!(target.protocol, Protocol::Memcached | Protocol::Meta) {
        return None;
    }
    let mut stream = connect(&target.address).ok()?;
    stat(&stats(&mut *stream).ok()?, name)
}

fn redis(stream: &mut dyn Stream) -> io::Result<Identity> {
    let (server, memory) = (info(stream, "server")?, info(stream, "memory")?);
    Ok(Identity {
        version: value(&server, "redis_version").map(|v| format!("redis {v}")),
        pid: value(&server, "process_id").and_then(|v| v.parse().ok()),
        threads: None,
        allocator: value(&memory, "mem_allocator").map(str::to_string),
    })
}

fn info(stream: &mut dyn Stream, section: &str) -> io::Result<String> {
    let question = format!("*2\r\n$4\r\nINFO\r\n${}\r\n{section}\r\n", section.len());
    ask(stream, &question, info_is_over)
}

/// Whether a bulk string, or an error, is complete.
fn info_is_over(text: &str) -> bool {
    let Some((head, rest)) = text.split_once("\r\n") else {
        return false;
    };
    match head.strip_prefix('$').and_then(|n| n.parse::<usize>().ok()) {
        Some(len) => rest.len() >= len + 2,
        None => true,
    }
}

fn value<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    info.lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
        .map(str::trim)
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Script(&'static [u8]);
    impl Read for Script {
        fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
            let n = buf.len().min(7).min(self.0.len());
            buf[..n].copy_from_slice(&self.0[..n]);
            self.0 = &self.0[n..];
            Ok(n)
        }
    }
    impl Write for Script {
        fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
            Ok(buf.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn redis_is_identified() {
        let info =
            b"$34\r\nredis_version:7.0.15\r\nprocess_id:5\r\n$24\r\nmem_allocator:jemalloc-5\r\n";
        let identity = redis(&mut Script(info)).expect("answers");
        assert_eq!(identity.version.as_deref(), Some("redis 7.0.15"));
        assert_eq!(identity.pid, Some(5));
    }

    #[test]
    fn statistics_are_read_by_their_whole_names() {
        let answer = b"STAT lock_wait_us2 7\r\nSTAT lock_wait_us 42\r\nSTAT version 1.2\r\nEND\r\n";
        let stats = stats(&mut Script(answer)).expect("answers");
        assert_eq!(stat(&stats, "lock_wait_us"), Some(42));
        assert_eq!(stat::<u64>(&stats, "version"), None);
        assert_eq!(stat::<u64>(&stats, "lock_wait"), None);
    }

    #[test]
    fn an_error_is_an_answer_too() {
        assert!(info_is_over("-ERR unknown\r\n"));
        assert!(!info_is_over("$10\r\nabc\r\n"));
        assert!(info_is_over("$3\r\nabc\r\n"));
        let identity = memcached(&mut Script(b"ERROR\r\n")).expect("answers");
        assert!(identity.version.is_none() && identity.pid.is_none());
    }
}
