//! A redis-server to compare with.

use std::path::Path;
use std::process::{Command, Stdio};

use super::server::Running;
use super::{Client, wait_until};

/// A redis-server on a Unix socket; killed on drop.
pub(crate) struct Redis {
    _running: Running,
    folder: tempfile::TempDir,
}

impl Redis {
    /// Starts one, if it is installed.
    pub(crate) fn start() -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let child = Command::new("redis-server")
            .args(["--port", "0", "--save", "", "--appendonly", "no"])
            .arg("--unixsocket")
            .arg(Self::socket(folder.path()))
            .arg("--dir")
            .arg(folder.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .ok()?;
        let _running = Running(child);
        let redis = Self { _running, folder };
        wait_until("redis-server listens", || {
            std::os::unix::net::UnixStream::connect(Self::socket(redis.folder.path())).is_ok()
        });
        Some(redis)
    }

    fn socket(folder: &Path) -> std::path::PathBuf {
        folder.join("redis.sock")
    }

    pub(crate) fn connect(&self) -> Client {
        Client::connect_unix(&Self::socket(self.folder.path()))
    }
}
