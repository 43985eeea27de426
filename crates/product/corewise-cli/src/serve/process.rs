//! Changes that the process makes to itself: limits, background, identity, memory lock, pid file.
//!
//! The order in `serve::run` is: limits (they may need root); background (before any thread is
//! started, because a fork keeps only the calling thread); identity and bind (`serve::bind_as`
//! explains their order); memory lock (a fork does not inherit it); pid file; and then the threads.

use std::ffi::CString;
use std::fs::{self, File};
use std::io::{self, PipeWriter, Read, Write};
use std::net::SocketAddr;
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::ptr;

use corewise_server::Server;
use rustix::process::{Resource, Rlimit, WaitOptions, getrlimit, setrlimit, waitpid};
use sd_notify::NotifyState;

use crate::failure::{Failure, complain};

/// Raises the limit of open files to `connections` + `others`. Warns if the system allows fewer.
pub(super) fn raise_open_files(connections: usize, others: u64) {
    let wanted = connections as u64 + others;
    let now = getrlimit(Resource::Nofile);
    let Some(current) = now.current else { return };
    if current >= wanted {
        return;
    }
    let maximum = now.maximum.map(|maximum| maximum.max(wanted));
    let raised = Rlimit {
        current: Some(wanted),
        maximum,
    };
    let clamped = Rlimit {
        current: now.maximum,
        maximum: now.maximum,
    };
    // Only root may raise the maximum.
    if setrlimit(Resource::Nofile, raised).is_err() && setrlimit(Resource::Nofile, clamped).is_ok()
    {
        let allowed = now.maximum.unwrap_or(wanted);
        if allowed < connections as u64 {
            complain(&format!(
                "warning: the system allows {allowed} open files, too few for {connections} \
                 connections; start as root or ask for fewer (-c)"
            ));
        }
    }
}

/// Raises the limit of core files as far as the system allows.
///
/// # Errors
///
/// The limit stays at 0, so there would be no core files.
pub(super) fn raise_core_files() -> Result<(), Failure> {
    let unlimited = Rlimit {
        current: None,
        maximum: None,
    };
    if setrlimit(Resource::Core, unlimited).is_err() {
        let maximum = getrlimit(Resource::Core).maximum;
        let _ = setrlimit(
            Resource::Core,
            Rlimit {
                current: maximum,
                maximum,
            },
        );
    }
    match getrlimit(Resource::Core).current {
        Some(0) => Err(Failure::start("cannot raise the limit of core files (-r)")),
        _ => Ok(()),
    }
}

/// Lets the process lock any amount of memory, even after it has given up root.
pub(super) fn raise_locked_memory() {
    let _ = setrlimit(
        Resource::Memlock,
        Rlimit {
            current: None,
            maximum: None,
        },
    );
}

/// Locks all current and future memory when it is first touched, because far more addresses are
/// reserved than memory will be used. A failure is only a warning, as in memcached.
pub(super) fn lock_memory() {
    use rustix::mm::{MlockAllFlags, mlockall};
    if let Err(error) =
        mlockall(MlockAllFlags::CURRENT | MlockAllFlags::FUTURE | MlockAllFlags::ONFAULT)
    {
        complain(&format!("warning: cannot lock memory (-k): {error}"));
    }
}

/// Tells the service manager, if one started this process and waits for it (`Type=notify` of
/// systemd). A failure is only a warning.
pub(super) fn notify(state: NotifyState<'_>) {
    if let Err(error) = sd_notify::notify(&[state]) {
        complain(&format!(
            "warning: cannot tell the service manager: {error}"
        ));
    }
}

/// Reports to the service manager's watchdog at twice the rate that it asks for.
pub(super) fn tell_watchdog(server: &mut Server) {
    if let Some(limit) = sd_notify::watchdog_enabled() {
        server.watch(limit / 2, || notify(NotifyState::Watchdog));
    }
}

/// Tells the waiting parent process that the child has started.
#[derive(Debug)]
pub(super) struct Daemon(PipeWriter);

/// Continues in a child process, in a new session.
///
/// The parent waits. When the child calls [`Daemon::started`], the parent exits with 0. If the
/// child exits before that, it has printed the reason on the standard error that both still share,
/// and the parent exits with the child's status. So the caller sees a failed start.
///
/// # Errors
///
/// The system refuses; then nothing was forked.
pub(super) fn daemonise() -> Result<Daemon, Failure> {
    let refused =
        |error: io::Error| Failure::start(format!("cannot go to the background: {error}"));
    let (reader, writer) = io::pipe().map_err(refused)?;
    // SAFETY: no thread has been started yet (see the module's order), so the child has all
    // threads, and its locks are free.
    match unsafe { libc::fork() } {
        -1 => Err(refused(io::Error::last_os_error())),
        0 => {
            drop(reader);
            // A child that was just forked leads no process group, so this cannot fail.
            let _ = rustix::process::setsid();
            Ok(Daemon(writer))
        }
        child => {
            drop(writer);
            std::process::exit(wait_for_start(reader, child))
        }
    }
}

/// Waits for the child to start, and returns the parent's exit status.
fn wait_for_start(mut reader: io::PipeReader, child: libc::pid_t) -> i32 {
    if reader.read_exact(&mut [0]).is_ok() {
        return 0;
    }
    let child = rustix::process::Pid::from_raw(child);
    match waitpid(child, WaitOptions::empty()) {
        Ok(Some((_, status))) => status.exit_status().unwrap_or(1),
        _ => 1,
    }
}

impl Daemon {
    /// Lets the parent exit, and leaves the parent's terminal and directory. With `keep_output`,
    /// standard output and error stay open.
    pub(super) fn started(mut self, keep_output: bool) {
        let _ = std::env::set_current_dir("/");
        if let Ok(null) = File::options().read(true).write(true).open("/dev/null") {
            let _ = rustix::stdio::dup2_stdin(&null);
            if !keep_output {
                let _ = rustix::stdio::dup2_stdout(&null);
                let _ = rustix::stdio::dup2_stderr(&null);
            }
        }
        // The parent may have been killed, which is no reason to stop.
        let _ = self.0.write_all(&[1]);
    }
}

/// A user to become.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Identity {
    uid: libc::uid_t,
    gid: libc::gid_t,
}

/// Whether this process runs as root.
pub(super) fn is_root() -> bool {
    rustix::process::geteuid().is_root() || rustix::process::getuid().is_root()
}

/// Finds a user by name.
///
/// # Errors
///
/// There is no user with this name.
pub(super) fn find_user(name: &str) -> Result<Identity, Failure> {
    let unknown = || Failure::usage(format!("cannot find the user `{name}` to become (-u)"));
    let name = CString::new(name).map_err(|_| unknown())?;
    // SAFETY: the name ends with a zero byte. The result is null or points to a record of the C
    // library that stays valid until the next look-up; no other thread exists that could make one.
    let record = unsafe { libc::getpwnam(name.as_ptr()).as_ref() };
    record
        .map(|user| Identity {
            uid: user.pw_uid,
            gid: user.pw_gid,
        })
        .ok_or_else(unknown)
}

impl Identity {
    /// Becomes the user permanently. `sockets`, which root has created, are given to the user.
    ///
    /// # Errors
    ///
    /// The system refuses. The process must then exit.
    pub(super) fn assume(self, sockets: &[PathBuf]) -> Result<(), Failure> {
        let refused = |what: &str, error: io::Error| {
            Failure::start(format!("cannot {what} of the user (-u): {error}"))
        };
        for socket in sockets {
            chown(socket, Some(self.uid), Some(self.gid))
                .map_err(|error| refused("give the socket to the name", error))?;
        }
        drop_groups().map_err(|error| refused("leave the groups for those", error))?;
        // SAFETY: both calls take a number and touch no memory of ours. The group is set first,
        // because that is not allowed after the user has changed.
        let status = unsafe {
            match libc::setgid(self.gid) {
                0 => libc::setuid(self.uid),
                failed => failed,
            }
        };
        match status {
            0 => Ok(()),
            _ => Err(refused("take the identity", io::Error::last_os_error())),
        }
    }
}

/// Drops supplementary groups. A refusal for lack of privilege means that there is nothing to drop.
fn drop_groups() -> io::Result<()> {
    // SAFETY: an empty list has no memory to read.
    let status = unsafe { libc::setgroups(0, ptr::null()) };
    let error = io::Error::last_os_error();
    if status == 0 || error.raw_os_error() == Some(libc::EPERM) {
        Ok(())
    } else {
        Err(error)
    }
}

/// A file that contains the process id; removed when this value is dropped.
#[derive(Debug)]
pub(super) struct Pidfile(PathBuf);

impl Pidfile {
    /// Writes the file atomically. A failure is only a warning, as in memcached.
    pub(super) fn write(path: &Path) -> Option<Self> {
        match write_whole(path, ".tmp", &format!("{}\n", std::process::id())) {
            Ok(()) => Some(Self(path.to_owned())),
            Err(error) => {
                complain(&format!(
                    "warning: cannot write {}: {error}",
                    path.display()
                ));
                None
            }
        }
    }
}

impl Drop for Pidfile {
    fn drop(&mut self) {
        // Another server may have written its process id there.
        let ours = format!("{}\n", std::process::id());
        if fs::read_to_string(&self.0).is_ok_and(|text| text == ours) {
            let _ = fs::remove_file(&self.0);
        }
    }
}

/// Writes the ports that the server listens on to the file that `MEMCACHED_PORT_FILENAME` names, as
/// memcached does: test suites of clients start a server on a free port and read the port there. A
/// failure is only a warning.
pub(super) fn write_ports(addresses: &[SocketAddr]) {
    let Some(path) = std::env::var_os("MEMCACHED_PORT_FILENAME").map(PathBuf::from) else {
        return;
    };
    if addresses.is_empty() {
        return;
    }
    let line = |address: &SocketAddr| match address {
        SocketAddr::V4(address) => format!("TCP INET: {}\n", address.port()),
        SocketAddr::V6(address) => format!("TCP INET6: {}\n", address.port()),
    };
    let text: String = addresses.iter().map(line).collect();
    if let Err(error) = write_whole(&path, ".lck", &text) {
        let shown = path.display();
        complain(&format!("warning: cannot write {shown}: {error}"));
    }
}

/// Writes a file atomically: under another name first, and then renames it.
fn write_whole(path: &Path, suffix: &str, text: &str) -> io::Result<()> {
    let mut temporary = path.as_os_str().to_owned();
    temporary.push(suffix);
    fs::write(&temporary, text).and_then(|()| fs::rename(&temporary, path))
}
