//! A listening socket, TCP or Unix, and the protocol of its connections.

use crate::config::{BindAddress, ListenAt, ProtocolKind, StartError};
use crate::transport::Transport;
use rustix::net::sockopt::set_tcp_nodelay;
use rustix::net::{SocketFlags, acceptfrom_with};
use socket2::{Domain, Protocol, SockAddr, Socket, Type};
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// A listening socket, and the protocol of its connections.
pub(crate) struct Listener {
    socket: OwnedFd,
    pub(crate) at: ListenAt,
    /// Removes the file of a Unix socket once the socket is closed.
    _file: Option<SocketFile>,
}

impl Listener {
    /// Listens as configured, and replaces port 0 by the port that the system chose.
    pub(crate) fn open(at: &mut ListenAt, backlog: u32, mode: u32) -> Result<Self, StartError> {
        let opened = match &mut at.address {
            BindAddress::Tcp(address) => listen_tcp(address, backlog).map(|socket| (socket, None)),
            BindAddress::Unix(path) => {
                listen_unix(path, backlog, mode).map(|(socket, file)| (socket, Some(file)))
            }
        };
        let (socket, file) = opened.map_err(|error| StartError::Listen {
            place: at.address.to_string(),
            error,
        })?;
        Ok(Self {
            socket,
            at: at.clone(),
            _file: file,
        })
    }

    /// The name in statistics. memcached has only the socket's.
    pub(crate) fn place(&self) -> String {
        match (self.at.protocol, &self.at.address) {
            (ProtocolKind::Memcached, BindAddress::Tcp(address)) => format!("tcp:{address}"),
            (ProtocolKind::Memcached, unix) => unix.to_string(),
            (other, address) => format!("{other}:{address}"),
        }
    }

    /// The line of the banner about this listener.
    pub(crate) fn announcement(&self) -> String {
        let address = &self.at.address;
        match self.at.protocol {
            ProtocolKind::Memcached => format!("listening on {address}\n"),
            other => format!("listening for {other} on {address}\n"),
        }
    }

    /// The line of the banner with a command that talks to this listener.
    pub(crate) fn how_to_try(&self) -> String {
        let facts = self.at.protocol.facts();
        let mut text = format!("try: {}\n", (facts.try_it)(&self.at.address));
        if let (BindAddress::Tcp(at), Some(send)) = (&self.at.address, facts.try_text) {
            let (ip, port) = (at.ip(), at.port());
            text += &format!(
                " or: bash -c 'exec 3<>/dev/tcp/{ip}/{port}; printf \"{send}\" >&3; cat <&3'\n"
            );
        }
        text
    }

    pub(crate) fn fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }

    /// Accepts a connection, with the name of its peer.
    pub(crate) fn accept(&self) -> io::Result<(Transport, String)> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (socket, peer) = acceptfrom_with(&self.socket, flags)?;
        let peer = match &self.at.address {
            BindAddress::Tcp(_) => {
                // Without it, replies are delayed. A socket that is already closed shows later.
                let _ = set_tcp_nodelay(&socket, true);
                let peer = peer.and_then(|peer| SocketAddr::try_from(peer).ok());
                format!("tcp:{}", peer.ok_or(io::ErrorKind::ConnectionAborted)?)
            }
            unix @ BindAddress::Unix(_) => unix.to_string(),
        };
        Ok((socket.into(), peer))
    }
}

/// Listens on a TCP address, and replaces port 0 by the port that the system chose.
pub(crate) fn listen_tcp(address: &mut SocketAddr, backlog: u32) -> io::Result<OwnedFd> {
    let domain = Domain::for_address(*address);
    let socket = Socket::new(domain, Type::STREAM, Some(Protocol::TCP))?;
    if address.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&(*address).into())?;
    socket.listen(i32::try_from(backlog).unwrap_or(i32::MAX))?;
    *address = socket.local_addr()?.as_socket().unwrap_or(*address);
    Ok(socket.into())
}

/// The file of a listening socket. Dropping this value removes the file, unless another one has
/// taken its place.
struct SocketFile {
    path: PathBuf,
    /// Device and inode.
    file: (u64, u64),
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

/// Listens on `path`, and gives the file these permissions. Removes a socket that a killed server
/// has left there; any other file stays.
fn listen_unix(path: &Path, backlog: u32, mode: u32) -> io::Result<(OwnedFd, SocketFile)> {
    if std::fs::symlink_metadata(path).is_ok_and(|meta| meta.file_type().is_socket()) {
        if is_live(path)? {
            let what = "another process listens there";
            return Err(io::Error::new(io::ErrorKind::AddrInUse, what));
        }
        std::fs::remove_file(path)?;
    }
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    socket.set_nonblocking(true)?;
    socket.bind(&SockAddr::unix(path)?)?;
    let file = SocketFile {
        path: path.to_owned(),
        file: identity(path)?,
    };
    // Before `listen`: until then, connections are refused, whatever mode the umask has left.
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))?;
    socket.listen(i32::try_from(backlog).unwrap_or(i32::MAX))?;
    Ok((socket.into(), file))
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;

    #[test]
    fn each_protocol_listens_on_each_kind_of_socket() {
        let folder = tempfile::tempdir().unwrap();
        for protocol in ProtocolKind::ALL {
            let path = folder.path().join("socket");
            for address in [
                BindAddress::Tcp(([127, 0, 0, 1], 0).into()),
                BindAddress::Unix(path),
            ] {
                let mut at = ListenAt { protocol, address };
                let listener = Listener::open(&mut at, 8, 0o700).unwrap();
                let (place, shown) = (listener.place(), at.address.to_string());
                let (_client, expected): (OwnedFd, _) = match &at.address {
                    BindAddress::Tcp(address) => {
                        let client = std::net::TcpStream::connect(address).unwrap();
                        let peer = format!("tcp:{}", client.local_addr().unwrap());
                        (client.into(), peer)
                    }
                    BindAddress::Unix(path) => {
                        (UnixStream::connect(path).unwrap().into(), shown.clone())
                    }
                };
                assert_eq!(listener.accept().unwrap().1, expected);
                assert!(place.ends_with(&shown), "{place}");
                assert!(listener.announcement().ends_with(&format!("on {shown}\n")));
                assert!(listener.how_to_try().starts_with("try: "));
            }
        }
        assert!(!folder.path().join("socket").exists());
    }
}
