//! Servers: started on a free port of this machine, stopped when dropped.

use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use super::args::Engine;
use super::row::Point;
use crate::error::BenchError;

/// Longest wait until a server listens.
const PATIENCE: Duration = Duration::from_secs(20);

/// A listening server.
pub(super) struct Server {
    child: Child,
    pub(super) address: SocketAddr,
}

impl Drop for Server {
    fn drop(&mut self) {
        stop(&mut self.child);
    }
}

fn stop(child: &mut Child) {
    // It may have ended already; then nothing is left to do.
    let _ = child.kill();
    let _ = child.wait();
}

impl Server {
    /// Starts the server, and waits until it listens.
    pub(super) fn start(point: &Point<'_>, connections: usize) -> Result<Self, BenchError> {
        let (mut child, address) = match point.engine {
            Engine::Memcached => memcached(point, connections)?,
            _ => corewise(point, connections)?,
        };
        match address {
            Some(address) => Ok(Self { child, address }),
            None => {
                let what = format!("the engine {} did not start", point.engine);
                Err(failed(&what, &mut child))
            }
        }
    }

    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Fails if the server has ended.
    pub(super) fn check(&mut self) -> Result<(), BenchError> {
        match self.child.try_wait() {
            Ok(None) => Ok(()),
            _ => Err(failed("the server ended", &mut self.child)),
        }
    }
}

fn spawn(command: &mut Command) -> Result<Child, BenchError> {
    let child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    child.map_err(|error| {
        let program = command.get_program().display();
        BenchError::Failed(format!("cannot start {program}: {error}"))
    })
}

/// An error with the last message of a server.
fn failed(what: &str, child: &mut Child) -> BenchError {
    stop(child);
    let mut said = String::new();
    if let Some(mut errors) = child.stderr.take() {
        let _ = errors.read_to_string(&mut said); // partial output is enough
    }
    BenchError::Failed(format!("{what}: {}", last_line(&said)))
}

/// The last line that is not empty.
pub(super) fn last_line(text: &str) -> &str {
    let mut lines = text.lines().rev().map(str::trim);
    lines
        .find(|line| !line.is_empty())
        .unwrap_or("it says nothing")
}

fn corewise(
    point: &Point<'_>,
    connections: usize,
) -> Result<(Child, Option<SocketAddr>), BenchError> {
    let mut child = spawn(
        Command::new(point.program)
            .args(["serve", "--listen", "127.0.0.1:0"])
            .args(["--engine", &point.engine.to_string()])
            .args(["--threads", &point.threads.to_string()])
            .args(["--memory", &format!("{}m", point.args.memory_mib)])
            .args(["--max-connections", &connections.to_string()]),
    )?;
    // The server prints its address once it listens, or ends.
    let address = child.stdout.as_mut().and_then(|out| {
        let mut lines = BufReader::new(out).lines().map_while(Result::ok);
        lines.find_map(|line| line.strip_prefix("listening on ")?.parse().ok())
    });
    Ok((child, address))
}

/// Starts memcached, which writes its port to a file.
fn memcached(
    point: &Point<'_>,
    connections: usize,
) -> Result<(Child, Option<SocketAddr>), BenchError> {
    static STARTED: AtomicU32 = AtomicU32::new(0);
    // Relaxed: only the uniqueness of the number matters.
    let number = STARTED.fetch_add(1, Ordering::Relaxed);
    let name = format!("corewise-bench-{}-{number}.port", std::process::id());
    let port_file = std::env::temp_dir().join(name);
    let _ = std::fs::remove_file(&port_file); // usually there is none
    let mut command = Command::new("memcached");
    command
        .args(["-l", "127.0.0.1", "-p", "-1", "-U", "0"])
        .args(["-t", &point.threads.to_string()])
        .args(["-m", &point.args.memory_mib.to_string()])
        .args(["-c", &connections.to_string()])
        .env("MEMCACHED_PORT_FILENAME", &port_file);
    if rustix::process::geteuid().is_root() {
        command.args(["-u", "root"]);
    }
    let mut child = spawn(&mut command)?;
    let start = Instant::now();
    let mut address = None;
    while address.is_none() && start.elapsed() < PATIENCE && matches!(child.try_wait(), Ok(None)) {
        std::thread::sleep(Duration::from_millis(10));
        address = port_in(&port_file);
    }
    let _ = std::fs::remove_file(&port_file); // a leftover file is harmless
    Ok((child, address))
}

/// Parses memcached's port file: `TCP INET: 12345`
fn port_in(file: &Path) -> Option<SocketAddr> {
    let text = std::fs::read_to_string(file).ok()?;
    let mut lines = text.lines();
    let port = lines.find_map(|line| line.strip_prefix("TCP INET: "))?;
    Some(([127, 0, 0, 1], port.trim().parse().ok()?).into())
}
