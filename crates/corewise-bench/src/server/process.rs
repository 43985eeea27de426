//! Servers: started on a free port of this machine, stopped when dropped.

use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::args::{Engine, ServerPlan};
use crate::error::BenchError;

/// Longest wait until a server listens.
const PATIENCE: Duration = Duration::from_secs(20);

/// The `corewise` to start.
#[derive(Clone, Debug)]
pub(super) struct Program(pub(super) PathBuf);

/// A child process that is killed on drop.
pub(super) struct Guarded(pub(super) Child);

impl Drop for Guarded {
    fn drop(&mut self) {
        // It may have ended already; then nothing is left to do.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A listening server.
pub(super) struct Server {
    child: Guarded,
    pub(super) address: SocketAddr,
    /// The directory of memcached's port file.
    _folder: Option<Folder>,
}

impl Server {
    /// Starts the server, and waits until it listens.
    pub(super) fn start(
        program: &Program,
        engine: Engine,
        plan: &ServerPlan,
        connections: usize,
    ) -> Result<Self, BenchError> {
        match engine {
            Engine::Memcached => memcached(plan, connections),
            _ => corewise(program, engine, plan, connections),
        }
    }

    pub(super) fn pid(&self) -> u32 {
        self.child.0.id()
    }

    /// Fails if the server has ended.
    pub(super) fn check(&mut self) -> Result<(), BenchError> {
        match self.child.0.try_wait() {
            Ok(None) => Ok(()),
            _ => Err(failed("the server ended", &mut self.child.0)),
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
    let _ = child.kill();
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
    program: &Program,
    engine: Engine,
    plan: &ServerPlan,
    connections: usize,
) -> Result<Server, BenchError> {
    let mut child = Guarded(spawn(
        Command::new(program)
            .args(["serve", "--listen", "127.0.0.1:0"])
            .args(["--engine", &engine.to_string()])
            .args(["--threads", &plan.threads.to_string()])
            .args(["--memory", &format!("{}m", plan.memory_mib)])
            .args(["--max-connections", &connections.to_string()]),
    )?);
    // The server prints its address once it listens, or ends.
    let mut address = None;
    if let Some(out) = child.0.stdout.as_mut() {
        let lines = BufReader::new(out).lines().map_while(Result::ok);
        let mut places = lines.filter_map(|line| line.strip_prefix("listening on ")?.parse().ok());
        address = places.next();
    }
    match address {
        Some(address) => Ok(Server {
            child,
            address,
            _folder: None,
        }),
        None => Err(failed(
            &format!("the engine {engine} did not start"),
            &mut child.0,
        )),
    }
}

fn memcached(plan: &ServerPlan, connections: usize) -> Result<Server, BenchError> {
    let folder = Folder::new()?;
    let port_file = folder.0.join("port");
    let mut command = Command::new("memcached");
    command
        .args(["-l", "127.0.0.1", "-p", "-1", "-U", "0"])
        .args(["-t", &plan.threads.to_string()])
        .args(["-m", &plan.memory_mib.to_string()])
        .args(["-c", &connections.to_string()])
        .env("MEMCACHED_PORT_FILENAME", &port_file);
    if rustix::process::geteuid().is_root() {
        command.args(["-u", "root"]);
    }
    let mut child = Guarded(spawn(&mut command)?);
    let start = Instant::now();
    while start.elapsed() < PATIENCE && matches!(child.0.try_wait(), Ok(None)) {
        if let Some(address) = port_in(&port_file) {
            return Ok(Server {
                child,
                address,
                _folder: Some(folder),
            });
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Err(failed("memcached did not start", &mut child.0))
}

/// Parses memcached's port file: `TCP INET: 12345`
fn port_in(file: &Path) -> Option<SocketAddr> {
    let text = std::fs::read_to_string(file).ok()?;
    let port = text
        .lines()
        .find_map(|line| line.strip_prefix("TCP INET: "))?;
    Some(([127, 0, 0, 1], port.trim().parse().ok()?).into())
}

/// A temporary directory of this process, removed on drop.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Result<Self, BenchError> {
        static MADE: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        // Relaxed: only the uniqueness of the number matters.
        let number = MADE.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let name = format!("corewise-bench-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir(&path).map_err(|error| BenchError::File {
            path: path.display().to_string(),
            error,
        })?;
        Ok(Self(path))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0); // a leftover directory is harmless
    }
}
