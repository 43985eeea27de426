//! A listening socket, TCP or Unix, and the protocol of its connections.

use crate::config::{BindAddress, ListenAt, StartError};
use crate::protocol::ProtocolKind;
use crate::stream::Stream;
use crate::unix_socket::{self, SocketFile};
use rustix::net::sockopt::set_tcp_nodelay;
use rustix::net::{SocketFlags, acceptfrom_with};
use socket2::{Domain, Protocol, Socket, Type};
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

/// A listening socket, and the protocol of its connections.
pub(crate) struct Listener {
    socket: OwnedFd,
    pub(crate) protocol: ProtocolKind,
    address: BindAddress,
    /// Removes the file of a Unix socket once the socket is closed.
    _file: Option<SocketFile>,
}

impl Listener {
    /// Listens as configured, and replaces port 0 by the port that the system chose.
    pub(crate) fn open(at: &mut ListenAt, backlog: u32, mode: u32) -> Result<Self, StartError> {
        let opened = match &mut at.address {
            BindAddress::Tcp(address) => listen(address, backlog).map(|socket| (socket, None)),
            BindAddress::Unix(path) => {
                let listening = unix_socket::listen(path, mode);
                listening.map(|(socket, file)| (socket, Some(file)))
            }
        };
        let (socket, file) = opened.map_err(|error| StartError::Listen {
            place: at.address.to_string(),
            error,
        })?;
        Ok(Self {
            socket,
            protocol: at.protocol,
            address: at.address.clone(),
            _file: file,
        })
    }

    /// The name in statistics. memcached has only the socket's.
    pub(crate) fn place(&self) -> String {
        match (self.protocol, &self.address) {
            (ProtocolKind::Memcached, BindAddress::Tcp(address)) => format!("tcp:{address}"),
            (ProtocolKind::Memcached, unix) => unix.to_string(),
            (other, address) => format!("{other}:{address}"),
        }
    }

    /// The line of the banner about this listener.
    pub(crate) fn announcement(&self) -> String {
        let address = &self.address;
        match self.protocol {
            ProtocolKind::Memcached => format!("listening on {address}\n"),
            other => format!("listening for {other} on {address}\n"),
        }
    }

    /// The line of the banner with a command that talks to this listener.
    pub(crate) fn how_to_try(&self) -> String {
        let try_it = self.protocol.facts().try_it;
        format!("try: {}\n", try_it(&self.address))
    }

    pub(crate) fn fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }

    /// Accepts a connection, with the name of its peer.
    pub(crate) fn accept(&self) -> io::Result<(Stream, String)> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (socket, peer) = acceptfrom_with(&self.socket, flags)?;
        let peer = match &self.address {
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

fn listen(address: &mut SocketAddr, backlog: u32) -> io::Result<OwnedFd> {
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
