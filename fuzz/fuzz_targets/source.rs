//! Which source a request counts against, with headers of any bytes (contract A4).
//!
//! - It never panics.
//! - From a peer that is no trusted proxy, no header changes the key.
//! - From one that is, whatever stands in front of the entry that the first proxy appended changes nothing, in one
//!   header line or in several, and however many proxies passed it on.
//! - Of a header of any kind, the key is the peer's or that of an address that is not trusted.

#![no_main]

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use arbitrary::Arbitrary;
use libfuzzer_sys::fuzz_target;
use quire_core::source::{SourceKey, TrustedProxies};

#[derive(Arbitrary, Debug)]
struct Request<'a> {
    peer: IpAddr,
    /// Header lines that a client wrote.
    lines: Vec<&'a [u8]>,
    client: IpAddr,
    form: Form,
    /// Which proxies passed the request on, as bytes that choose from the trusted networks.
    hops: Vec<u8>,
    /// Whether each proxy begins a line of its own.
    own_lines: bool,
}

/// How a proxy writes an address.
#[derive(Arbitrary, Clone, Copy, Debug)]
enum Form {
    Plain,
    WithPort(u16),
    Bracketed,
    Spaced,
}

impl Form {
    fn write(self, address: IpAddr) -> String {
        match (self, address) {
            (Self::WithPort(port), _) => SocketAddr::new(address, port).to_string(),
            (Self::Bracketed, IpAddr::V6(v6)) => format!("[{v6}]"),
            (Self::Spaced, _) => format!(" \t{address}\t "),
            _ => address.to_string(),
        }
    }
}

/// An address of one of the trusted networks.
fn proxy(chosen: u8) -> IpAddr {
    if chosen % 2 == 0 {
        IpAddr::V4(Ipv4Addr::new(10, chosen, 0, 1))
    } else {
        IpAddr::V6(Ipv6Addr::new(0xfd00, u16::from(chosen), 0, 0, 0, 0, 0, 1))
    }
}

fuzz_target!(|request: Request| {
    let Ok(proxies) = TrustedProxies::parse(["10.0.0.0/8", "fd00::/8"]) else { return };
    let of_headers = proxies.source(request.peer, request.lines.iter().copied());
    if !proxies.contain(request.peer) {
        assert_eq!(of_headers, SourceKey::of(request.peer), "a header of an untrusted peer was believed");
    }

    if !proxies.contain(request.client) {
        // The first proxy appends the client, every further one the proxy before it.
        let appended = std::iter::once(request.form.write(request.client))
            .chain(request.hops.iter().map(|hop| proxy(*hop).to_string()));
        let mut lines: Vec<Vec<u8>> = request.lines.iter().map(|line| line.to_vec()).collect();
        for entry in appended {
            match lines.last_mut().filter(|_| !request.own_lines) {
                Some(line) => line.extend_from_slice(format!(", {entry}").as_bytes()),
                None => lines.push(entry.into_bytes()),
            }
        }
        let source = proxies.source(proxy(0), lines.iter().map(Vec::as_slice));
        assert_eq!(source, SourceKey::of(request.client), "what a client wrote was believed");
    }

    // A trusted peer and nothing but the client's own lines: whoever it is, it is not another proxy.
    let peer = proxy(1);
    let source = proxies.source(peer, request.lines.iter().copied());
    let is_a_proxy = (0..=u8::MAX).map(proxy).any(|proxy| SourceKey::of(proxy) == source);
    assert!(!is_a_proxy || source == SourceKey::of(peer), "a trusted address became a source");
});
