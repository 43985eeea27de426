//! Servers: started on a free port of this machine, stopped when dropped.

use std::fmt;
use std::io::{BufRead, BufReader, Read};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use clap::ValueEnum;
use corewise_load::config::Protocol;
use corewise_topology::{CpuId, run_on};

use crate::allocator::name_of;
use crate::error::BenchError;

/// Longest wait until a server listens.
const PATIENCE: Duration = Duration::from_secs(20);

/// The server to start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Engine {
    /// Lookups without a lock
    Relativistic,
    /// A lock for each shard
    Locked,
    /// Partitions of LOCKHASH, each with a lock
    Lockhash,
    /// One lock, and references to items: the paper's default engine
    GlobalLock,
    /// The memcached that is installed
    Memcached,
    /// The redis-server that is installed, with as many threads for its sockets
    Redis,
    /// The valkey-server that is installed, likewise
    Valkey,
    /// The dragonfly that is installed
    Dragonfly,
    /// The pogocache that is installed
    Pogocache,
}

impl Engine {
    /// Returns the program of a server that is not ours.
    pub(super) fn rival(self) -> Option<&'static str> {
        match self {
            Self::Memcached => Some("memcached"),
            Self::Redis => Some("redis-server"),
            Self::Valkey => Some("valkey-server"),
            Self::Dragonfly => Some("dragonfly"),
            Self::Pogocache => Some("pogocache"),
            Self::Relativistic | Self::Locked | Self::Lockhash | Self::GlobalLock => None,
        }
    }

    /// Returns whether it can be started.
    pub(super) fn is_installed(self) -> bool {
        self.rival().is_none_or(super::is_installed)
    }

    /// Returns whether it takes part if it is not named: all do, but those that few machines have.
    pub(super) fn is_usual(self) -> bool {
        let is_rare = matches!(self, Self::Valkey | Self::Dragonfly | Self::Pogocache);
        !is_rare || self.is_installed()
    }

    /// Returns the protocol by which it is measured.
    pub(super) fn protocol(self) -> Protocol {
        match self {
            Self::Redis | Self::Valkey | Self::Dragonfly => Protocol::Resp,
            _ => Protocol::Memcached,
        }
    }
}

impl fmt::Display for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&name_of(self))
    }
}

/// The program of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Program {
    Corewise {
        path: PathBuf,
        /// The server's own default if absent.
        engine: Option<Engine>,
    },
    /// Another server, with the options of the engine.
    Rival(Engine, PathBuf),
}

impl Program {
    /// Returns the program of an engine; `corewise` is that of ours.
    pub(super) fn of(engine: Engine, corewise: &Path) -> Self {
        match engine.rival() {
            Some(name) => Self::Rival(engine, name.into()),
            None => Self::Corewise {
                path: corewise.to_owned(),
                engine: Some(engine),
            },
        }
    }

    /// The memcached that is installed.
    pub(super) fn memcached() -> Self {
        Self::Rival(Engine::Memcached, "memcached".into())
    }
}

/// How a server is started.
#[derive(Clone, Debug)]
pub(super) struct Launch {
    pub(super) program: Program,
    pub(super) threads: usize,
    pub(super) memory_kib: u64,
    /// Most connections; the server's own default if absent.
    pub(super) connections: Option<usize>,
    pub(super) cpu: Option<CpuId>,
    /// Whether the address is that of Redis's protocol.
    pub(super) resp: bool,
}

/// A listening server.
#[derive(Debug)]
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

impl Launch {
    /// A server of memcached's protocol that is not pinned.
    pub(super) fn new(program: Program, threads: usize, memory_kib: u64) -> Self {
        Self {
            program,
            threads,
            memory_kib,
            connections: None,
            cpu: None,
            resp: false,
        }
    }

    /// Starts the server, and waits until it listens.
    pub(super) fn start(&self) -> Result<Server, BenchError> {
        let start = || match &self.program {
            Program::Corewise { path, engine } => self.corewise(path, *engine),
            Program::Rival(engine, path) => self.rival(*engine, path),
        };
        let cpus: Vec<CpuId> = self.cpu.into_iter().collect();
        // The server inherits the CPUs of the thread that starts it.
        let (mut child, address) = if cpus.is_empty() {
            start()
        } else {
            run_on(&cpus, start)
        }?;
        match address {
            Some(address) => Ok(Server { child, address }),
            None => Err(failed(
                &format!("{} did not start", self.name()),
                &mut child,
            )),
        }
    }

    pub(super) fn name(&self) -> String {
        match &self.program {
            Program::Corewise { engine, .. } => {
                engine.map_or("corewise".into(), |engine| format!("the engine {engine}"))
            }
            Program::Rival(engine, _) => engine.to_string(),
        }
    }

    fn corewise(
        &self,
        path: &Path,
        engine: Option<Engine>,
    ) -> Result<(Child, Option<SocketAddr>), BenchError> {
        let mut command = Command::new(path);
        command
            .args(["serve", "--listen", "127.0.0.1:0"])
            .args(["--threads", &self.threads.to_string()])
            .args(["--memory", &format!("{}k", self.memory_kib)]);
        if let Some(most) = self.connections {
            command.args(["--max-connections", &most.to_string()]);
        }
        if let Some(engine) = engine {
            command.args(["--engine", &engine.to_string()]);
        }
        if self.resp {
            command.args(["--resp", "127.0.0.1:0"]);
        }
        let head = ["listening on ", "listening for resp on "][usize::from(self.resp)];
        let mut child = spawn(&mut command)?;
        // The server prints its addresses once it listens, or ends.
        let address = child.stdout.as_mut().and_then(|out| {
            let mut lines = BufReader::new(out).lines().map_while(Result::ok);
            lines.find_map(|line| line.strip_prefix(head)?.parse().ok())
        });
        Ok((child, address))
    }

    /// Starts a server that has to be given its port, and waits until it accepts connections.
    fn rival(
        &self,
        engine: Engine,
        path: &Path,
    ) -> Result<(Child, Option<SocketAddr>), BenchError> {
        let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|free| free.local_addr());
        let address = free.map_err(|error| BenchError::Failed(format!("no free port: {error}")))?;
        let mut memory = (self.memory_kib >> 10).to_string();
        // Options of the port, the threads, the memory and the connections, and others.
        let (options, others): ([&str; 4], &[&str]) = match engine {
            Engine::Pogocache => (["-p", "--threads", "--maxmemory", "--maxconns"], &[]),
            Engine::Dragonfly => (
                [
                    "--port",
                    "--proactor_threads",
                    "--maxmemory",
                    "--maxclients",
                ],
                &["--bind=127.0.0.1", "--cache_mode=true", "--dbfilename="],
            ),
            Engine::Redis | Engine::Valkey => (
                ["--port", "--io-threads", "--maxmemory", "--maxclients"],
                &[
                    "--maxmemory-policy",
                    "allkeys-lru",
                    "--save",
                    "",
                    "--appendonly",
                    "no",
                ],
            ),
            _ => (["-p", "-t", "-m", "-c"], &["-l", "127.0.0.1", "-U", "0"]),
        };
        if engine != Engine::Memcached {
            memory += "mb";
        }
        let mut command = Command::new(path);
        command.args(others);
        if engine == Engine::Memcached && rustix::process::geteuid().is_root() {
            command.args(["-u", "root"]);
        }
        let [port, threads, limit, connections] = options;
        command.args([port, &address.port().to_string()]);
        command.args([threads, &self.threads.to_string(), limit, &memory]);
        if let Some(most) = self.connections {
            command.args([connections, &most.to_string()]);
        }
        let mut child = spawn(&mut command)?;
        let start = Instant::now();
        while start.elapsed() < PATIENCE && matches!(child.try_wait(), Ok(None)) {
            if TcpStream::connect(address).is_ok() {
                return Ok((child, Some(address)));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok((child, None))
    }
}

impl Server {
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
    let mut lines = said.lines().rev().map(str::trim);
    let last = lines
        .find(|line| !line.is_empty())
        .unwrap_or("it says nothing");
    BenchError::Failed(format!("{what}: {last}"))
}
