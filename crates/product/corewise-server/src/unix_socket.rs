//! A listening Unix socket. Replaces a stale socket file, and removes its file when the server
//! stops.

use mio::net::UnixListener;
use socket2::{Domain, SockAddr, Socket, Type};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// The file of a listening socket. Dropping this value removes the file, unless another one has
/// taken its place.
#[derive(Debug)]
pub(crate) struct SocketFile {
    path: PathBuf,
    /// Device and inode.
    file: (u64, u64),
}

impl SocketFile {
    fn of(path: &Path) -> io::Result<Self> {
        Ok(Self {
            path: path.to_owned(),
            file: identity(path)?,
        })
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if identity(&self.path).is_ok_and(|file| file == self.file) {
            let _ = std::fs::remove_file(&self.path); // an error is fine: the file is gone
        }
    }
}

fn identity(path: &Path) -> io::Result<(u64, u64)> {
    let meta = std::fs::symlink_metadata(path)?;
    Ok((meta.dev(), meta.ino()))
}

/// Listens on `path`, and gives the file these permissions.
///
/// # Errors
///
/// Another process listens there, the file is not a socket, or the system reports an error.
pub(crate) fn listen(path: &Path, mode: u32) -> io::Result<(OwnedFd, SocketFile)> {
    // Removes a socket that a killed server has left; any other file stays.
    if std::fs::symlink_metadata(path).is_ok_and(|meta| meta.file_type().is_socket()) {
        if is_live(path)? {
            let what = "another process listens there";
            return Err(io::Error::new(io::ErrorKind::AddrInUse, what));
        }
        std::fs::remove_file(path)?;
    }
    let listener = UnixListener::bind(path)?;
    let file = SocketFile::of(path)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))?;
    Ok((listener.into(), file))
}

/// Whether a process has the socket open: only a socket without a listener refuses connections.
/// Does not wait.
fn is_live(path: &Path) -> io::Result<bool> {
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    socket.set_nonblocking(true)?;
    match socket.connect(&SockAddr::unix(path)?) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => Ok(false),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        _ => Ok(true), // its queue may be full, or it may not be ours
    }
}
