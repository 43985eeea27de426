//! Parses listen addresses: from `host:port` to socket addresses.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs, UdpSocket};

use crate::value::not_a_port;

/// One listen address, as written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ListenAddress {
    /// A name or an address; `None` for all addresses of this machine.
    pub(super) host: Option<String>,
    /// The port, if there is one.
    pub(super) port: Option<u16>,
}

/// Parses `host`, `host:port`, `[::1]:port`, `::1`, `*`, and several of them separated by commas.
///
/// # Errors
///
/// One line that quotes the invalid part.
pub(super) fn parse(text: &str) -> Result<Vec<ListenAddress>, String> {
    text.split(',')
        .map(str::trim)
        .filter(|part| !part.is_empty())
        .map(parse_one)
        .collect()
}

fn parse_one(text: &str) -> Result<ListenAddress, String> {
    // memcached accepts this prefix for addresses without TLS when other addresses use TLS.
    let text = text.strip_prefix("notls:").unwrap_or(text);
    let (host, port) = split_port(text)?;
    let port = port
        .map(|port| port.parse().map_err(|_| not_a_port(port)))
        .transpose()?;
    let host = (!host.is_empty() && host != "*").then(|| host.to_owned());
    Ok(ListenAddress { host, port })
}

fn split_port(text: &str) -> Result<(&str, Option<&str>), String> {
    if let Some(rest) = text.strip_prefix('[') {
        let (host, rest) = rest
            .split_once(']')
            .ok_or_else(|| format!("`{text}` lacks a `]`"))?;
        return match rest.strip_prefix(':') {
            None if !rest.is_empty() => Err(format!("`{text}` has `{rest}` after its address")),
            port => Ok((host, port)),
        };
    }
    match text.split_once(':') {
        // Two colons without brackets: an IPv6 address without a port.
        Some((_, rest)) if rest.contains(':') => Ok((text, None)),
        Some((host, port)) => Ok((host, Some(port))),
        None => Ok((text, None)),
    }
}

/// Resolves a host, or all addresses of this machine, to socket addresses. If a name has several,
/// addresses that do not belong to this machine are left out, unless none would remain.
///
/// # Errors
///
/// The name has no address.
pub(super) fn resolve(host: Option<&str>, port: u16) -> Result<Vec<SocketAddr>, String> {
    let found: Vec<SocketAddr> = match host {
        None => everywhere(port),
        Some(host) => match host.parse::<IpAddr>() {
            Ok(ip) => return Ok(vec![(ip, port).into()]),
            Err(_) => (host, port)
                .to_socket_addrs()
                .map_err(|error| format!("cannot resolve `{host}`: {error}"))?
                .collect(),
        },
    };
    let ours: Vec<SocketAddr> = found.iter().copied().filter(is_ours).collect();
    Ok(if ours.is_empty() { found } else { ours })
}

fn everywhere(port: u16) -> Vec<SocketAddr> {
    vec![
        (Ipv4Addr::UNSPECIFIED, port).into(),
        (Ipv6Addr::UNSPECIFIED, port).into(),
    ]
}

/// Whether a socket can be bound to the address, on a port that the system chooses.
fn is_ours(address: &SocketAddr) -> bool {
    UdpSocket::bind((address.ip(), 0)).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(text: &str) -> Vec<(Option<String>, Option<u16>)> {
        parse(text)
            .unwrap()
            .into_iter()
            .map(|place| (place.host, place.port))
            .collect()
    }

    fn host(name: &str) -> Option<String> {
        Some(name.into())
    }

    #[test]
    fn places_are_read_in_every_notation() {
        assert_eq!(places("127.0.0.1"), [(host("127.0.0.1"), None)]);
        assert_eq!(places("localhost:0"), [(host("localhost"), Some(0))]);
        assert_eq!(places("[::1]:11212"), [(host("::1"), Some(11_212))]);
        assert_eq!(places("[::1]"), [(host("::1"), None)]);
        assert_eq!(places("::1"), [(host("::1"), None)]);
        assert_eq!(places("*"), [(None, None)]);
        assert_eq!(places(":7"), [(None, Some(7))]);
        assert_eq!(places("notls:a:7"), [(host("a"), Some(7))]);
        assert_eq!(
            places("a,b:5, [::1]:6,"),
            [
                (host("a"), None),
                (host("b"), Some(5)),
                (host("::1"), Some(6)),
            ]
        );
    }

    #[test]
    fn a_wrong_place_is_quoted() {
        for (text, part) in [
            ("a:b", "`b`"),
            ("a:70000", "`70000`"),
            ("[::1", "`]`"),
            ("[::1]7", "`7`"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
    }

    #[test]
    fn every_address_is_the_ipv4_one_at_least() {
        let all = resolve(None, 5).unwrap();
        assert!(all.contains(&"0.0.0.0:5".parse().unwrap()));
    }

    #[test]
    fn a_name_without_address_is_an_error() {
        let error = resolve(Some("no-such-host.invalid"), 5).unwrap_err();
        assert!(error.contains("cannot resolve `no-such-host.invalid`"));
    }
}
