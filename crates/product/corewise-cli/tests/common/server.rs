//! Starts and stops a server.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use super::{Client, PATIENCE, wait_until};

pub(super) const COREWISE: &str = env!("CARGO_BIN_EXE_corewise");

/// The server to test. Both take the same short options.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Corewise,
    Memcached,
}

impl Kind {
    /// The server that `COREWISE_TEST_SERVER` names.
    pub(crate) fn under_test() -> Self {
        match std::env::var_os("COREWISE_TEST_SERVER") {
            None => Self::Corewise,
            Some(path) => {
                let name = Path::new(&path).file_name().and_then(OsStr::to_str);
                let memcached = name.is_some_and(|name| name.starts_with("memcached"));
                if memcached {
                    Self::Memcached
                } else {
                    Self::Corewise
                }
            }
        }
    }

    /// Whether there is a memcached to compare with.
    pub(crate) fn memcached_is_installed() -> bool {
        Command::new(Self::Memcached.program())
            .arg("-V")
            .output()
            .is_ok()
    }

    fn program(self) -> PathBuf {
        let chosen = std::env::var_os("COREWISE_TEST_SERVER").map(PathBuf::from);
        match (self, chosen) {
            (kind, Some(path)) if kind == Self::under_test() => path,
            (Self::Corewise, _) => COREWISE.into(),
            (Self::Memcached, _) => "memcached".into(),
        }
    }
}

/// A process; killed on drop.
pub(crate) struct Running(pub(crate) Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A running server. On drop it must be well, unless it was to end, and is killed.
pub(crate) struct TestServer {
    child: Running,
    is_to_end: AtomicBool,
    /// Whether clients can ask for its version without a user.
    is_open: bool,
    /// Whether there may be no room for another client.
    may_be_full: bool,
    address: Option<SocketAddr>,
    /// Its output to standard output and standard error.
    said: Arc<Mutex<Vec<u8>>>,
    /// The folder of the file in which memcached writes its port.
    _folder: TempDir,
}

impl TestServer {
    /// Starts the server under test with two threads and 64 MB, on a free port.
    pub(crate) fn start() -> Self {
        Self::with(&[])
    }

    /// Like [`start`](Self::start), with further options, which come last and take precedence.
    pub(crate) fn with(options: &[&str]) -> Self {
        Self::of(Kind::under_test(), options)
    }

    /// Starts a server of this kind.
    pub(crate) fn of(kind: Kind, options: &[&str]) -> Self {
        Self::on(kind, "127.0.0.1:0", options)
    }

    /// Starts a server on this address.
    pub(crate) fn at(address: SocketAddr, options: &[&str]) -> Self {
        Self::on(Kind::under_test(), &address.to_string(), options)
    }

    fn on(kind: Kind, address: &str, options: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let port_file = folder.path().join("port");
        let mut command = Command::new(kind.program());
        match kind {
            Kind::Corewise => command.args(["serve", "-l", address]),
            Kind::Memcached => command.args(memcacheds_address(address)),
        };
        if kind == Kind::Memcached {
            // It writes the file as this user.
            let user = if rustix::process::geteuid().is_root() {
                "root"
            } else {
                "nobody"
            };
            command
                .args(["-U", "0", "-u", user])
                .env("MEMCACHED_PORT_FILENAME", &port_file);
        }
        let mut child = command
            .args(["-t", "2", "-m", "64"])
            .args(options)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("{}: {error}", kind.program().display()));
        let said = Arc::new(Mutex::new(Vec::new()));
        collect(child.stdout.take().unwrap(), &said);
        collect(child.stderr.take().unwrap(), &said);
        let restricts = ["-Y", "--auth-file", "binary"];
        let mut server = Self {
            child: Running(child),
            is_to_end: AtomicBool::new(false),
            is_open: !options.iter().any(|option| restricts.contains(option)),
            may_be_full: options.contains(&"-c"),
            address: None,
            said,
            _folder: folder,
        };
        let unix = options
            .iter()
            .position(|option| *option == "-s")
            .map(|at| Path::new(options[at + 1]));
        wait_until("the server listens", || {
            assert!(!server.has_stopped(), "{}", server.said());
            match (kind, unix) {
                (Kind::Memcached, Some(path)) => UnixStream::connect(path).is_ok(),
                (Kind::Memcached, None) => {
                    server.address = port_in(&port_file);
                    server.address.is_some()
                }
                (Kind::Corewise, _) => {
                    let said = server.said();
                    server.address = address_in(&said);
                    server.address.is_some() || (unix.is_some() && said.contains("unix:"))
                }
            }
        });
        server
    }

    /// The first TCP address.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address.expect("the server listens on TCP")
    }

    /// All TCP addresses.
    pub(crate) fn addresses(&self) -> Vec<SocketAddr> {
        self.said().lines().filter_map(address_in_line).collect()
    }

    /// The address of the first listener for the protocol of \[CPHASH\].
    pub(crate) fn cphash_address(&self) -> SocketAddr {
        self.address_for("cphash")
    }

    /// The address of the first listener for RESP.
    pub(crate) fn resp_address(&self) -> SocketAddr {
        self.address_for("resp")
    }

    fn address_for(&self, protocol: &str) -> SocketAddr {
        let prefix = format!("listening for {protocol} on ");
        let find = || {
            let said = self.said();
            let addresses = said.lines().filter_map(|line| line.split_once(&prefix));
            let mut addresses = addresses.filter_map(|(_, address)| address.parse().ok());
            addresses.next()
        };
        wait_until("the server listens for the protocol", || find().is_some());
        find().expect("an address")
    }

    /// Opens a new connection to the first TCP address.
    pub(crate) fn connect(&self) -> Client {
        Client::connect(self.address())
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.0.id()
    }

    /// Resident memory.
    pub(crate) fn rss_kib(&self) -> u64 {
        self.status_field("VmRSS:")
    }

    /// Maximum resident memory so far.
    pub(crate) fn peak_rss_kib(&self) -> u64 {
        self.status_field("VmHWM:")
    }

    /// The part of the resident memory that is the program's and its libraries' files.
    pub(crate) fn file_rss_kib(&self) -> u64 {
        self.status_field("RssFile:")
    }

    fn status_field(&self, name: &str) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        let kib = line.and_then(|line| line.split_whitespace().next());
        kib.expect("a size in kB").parse().unwrap()
    }

    /// Its output to standard output and standard error so far.
    pub(crate) fn said(&self) -> String {
        String::from_utf8_lossy(&self.said.lock().unwrap()).into_owned()
    }

    pub(crate) fn has_stopped(&mut self) -> bool {
        self.child.0.try_wait().unwrap().is_some()
    }

    /// Asks the server to stop.
    pub(crate) fn terminate(&self) {
        self.is_to_end.store(true, Ordering::Relaxed); // one thread
        let pid = Pid::from_raw(self.pid() as i32).expect("a process id");
        kill_process(pid, Signal::TERM).unwrap();
    }

    /// Waits until the server has stopped.
    pub(crate) fn wait(&mut self) -> ExitStatus {
        self.is_to_end.store(true, Ordering::Relaxed); // one thread
        let start = Instant::now();
        loop {
            if let Some(status) = self.child.0.try_wait().unwrap() {
                return status;
            }
            assert!(start.elapsed() < PATIENCE, "the server goes on running");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Fails unless the server has not panicked, and answers `version` on a new connection if it
    /// was not to end.
    pub(crate) fn assert_well(&mut self) {
        let said = self.said();
        assert!(!said.contains("panicked"), "{said}");
        if self.is_to_end.load(Ordering::Relaxed) {
            return;
        }
        assert!(!self.has_stopped(), "the server is gone: {said}");
        let Some(address) = self.address.filter(|_| self.is_open) else {
            return;
        };
        let mut is_answered = false;
        let mut ask = || {
            let mut client = Client::connect(address);
            let is_sent = client.try_send(b"version\r\n").is_ok();
            let line = client.try_line().filter(|_| is_sent);
            is_answered = line.is_some_and(|line| line.starts_with("VERSION "));
            // The clients of a test may not have left yet.
            is_answered || !self.may_be_full
        };
        wait_until("the server tells its version", &mut ask);
        assert!(is_answered, "the server does not tell its version");
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.assert_well();
        }
    }
}

/// memcached takes the port separately from the address, and uses -1 for a free port.
fn memcacheds_address(address: &str) -> [String; 4] {
    let (host, port) = address.rsplit_once(':').unwrap();
    let port = if port == "0" { "-1" } else { port };
    ["-p".into(), port.into(), "-l".into(), host.into()]
}

/// Parses the line `TCP INET: 12345`.
fn port_in(file: &Path) -> Option<SocketAddr> {
    let text = std::fs::read_to_string(file).ok()?;
    let port = text
        .lines()
        .find_map(|line| line.strip_prefix("TCP INET: "))?;
    Some(([127, 0, 0, 1], port.trim().parse().ok()?).into())
}

fn address_in(said: &str) -> Option<SocketAddr> {
    // The last line may be incomplete.
    let whole = &said[..said.rfind('\n')?];
    whole.lines().find_map(address_in_line)
}

fn address_in_line(line: &str) -> Option<SocketAddr> {
    let (_, rest) = line.split_once("listening on ")?;
    rest.split([' ', ',']).next()?.parse().ok()
}

fn collect(output: impl Read + Send + 'static, into: &Arc<Mutex<Vec<u8>>>) {
    let into = Arc::clone(into);
    std::thread::spawn(move || {
        let mut output = BufReader::new(output);
        let mut line = Vec::new();
        while output.read_until(b'\n', &mut line).is_ok_and(|n| n > 0) {
            into.lock().unwrap().append(&mut line);
        }
    });
}
