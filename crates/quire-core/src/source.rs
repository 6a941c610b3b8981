//! Which address a request counts against (contract A4).
//!
//! The socket's peer, unless the operator said that it is a proxy; then whoever that proxy says it speaks for.
//! No header that a client can write changes the answer unless its connection comes from a trusted network,
//! and even then only the part to the right of the first address that is not trusted is believed.
//!
//! An address is used in memory and forgotten: it is never stored or logged, and `Debug` does not show it.

use std::{
    fmt,
    net::{IpAddr, Ipv6Addr, SocketAddr},
    str,
};

use ipnet::IpNet;

/// What is counted: an IPv4 address, or the /64 of an IPv6 address, since that is what one subscriber gets.
/// An IPv4 address mapped into IPv6 is the IPv4 address.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum SourceKey {
    /// An IPv4 address.
    V4([u8; 4]),
    /// The first half of an IPv6 address.
    V6Network([u8; 8]),
}

impl SourceKey {
    /// The key of an address.
    #[must_use]
    pub fn of(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V4(v4) => Self::V4(v4.octets()),
            IpAddr::V6(v6) => {
                let mut network = [0; 8];
                network.copy_from_slice(v6.octets().split_at(8).0);
                Self::V6Network(network)
            }
        }
    }

    /// A byte that spreads keys over the shards of a table. Whoever can choose addresses can choose it, so it
    /// must decide nothing but which lock is taken.
    #[must_use]
    pub fn spread(&self) -> u8 {
        let fold = |bytes: &[u8]| bytes.iter().fold(0, |all, byte| all ^ byte);
        match self {
            Self::V4(bytes) => fold(bytes),
            Self::V6Network(bytes) => fold(bytes),
        }
    }
}

impl fmt::Debug for SourceKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SourceKey(..)")
    }
}

/// The networks of the operator's own proxies.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TrustedProxies(Vec<IpNet>);

/// A written network that is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("is not a network; write an address and a prefix length, as in 10.0.0.0/8, or one address")]
pub struct NetworkError;

impl TrustedProxies {
    /// Reads networks such as `10.0.0.0/8`, `2001:db8::/32`, or single addresses.
    ///
    /// # Errors
    /// One of them is not a network.
    pub fn parse<'a>(written: impl IntoIterator<Item = &'a str>) -> Result<Self, NetworkError> {
        written.into_iter().map(parse_network).collect::<Result<_, _>>().map(Self)
    }

    /// Whether an address lies in one of the networks.
    #[must_use]
    pub fn contain(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        self.0.iter().any(|network| network.contains(&address))
    }

    /// The source of a request. `forwarded_for` are the values of the request's `X-Forwarded-For` lines in
    /// the order in which they stand.
    pub fn source<'a>(
        &self,
        peer: IpAddr,
        forwarded_for: impl DoubleEndedIterator<Item = &'a [u8]>,
    ) -> SourceKey {
        let peer_key = SourceKey::of(peer);
        if !self.contain(peer) {
            return peer_key;
        }
        let from_the_right = forwarded_for.rev().flat_map(|line| line.rsplit(|byte| *byte == b','));
        for entry in from_the_right {
            match parse_entry(entry) {
                Some(address) if self.contain(address) => {}
                Some(address) => return SourceKey::of(address),
                // Whoever wrote this entry is inside the trusted part of the path, but cannot be understood.
                None => return peer_key,
            }
        }
        peer_key
    }
}

fn parse_network(written: &str) -> Result<IpNet, NetworkError> {
    let written = written.trim();
    let network = match written.parse::<IpNet>() {
        Ok(network) => network,
        Err(_) => written.parse::<IpAddr>().map(IpNet::from).map_err(|_| NetworkError)?,
    };
    Ok(canonical(network))
}

/// A network of mapped addresses is the IPv4 network, since addresses are compared in that form.
fn canonical(network: IpNet) -> IpNet {
    /// Bits in front of the IPv4 address in a mapped one.
    const MAPPED_PREFIX: u8 = 96;
    let IpNet::V6(v6) = network else { return network };
    let (Some(v4), Some(prefix)) = (v6.addr().to_ipv4_mapped(), v6.prefix_len().checked_sub(MAPPED_PREFIX))
    else {
        return network;
    };
    IpNet::new(IpAddr::V4(v4), prefix).unwrap_or(network)
}

/// One entry of the header: an address, with or without a port, an IPv6 address with or without brackets.
fn parse_entry(entry: &[u8]) -> Option<IpAddr> {
    let written = str::from_utf8(entry).ok()?.trim_matches([' ', '\t']);
    if let Ok(address) = written.parse::<IpAddr>() {
        return Some(address);
    }
    if let Ok(with_port) = written.parse::<SocketAddr>() {
        return Some(with_port.ip());
    }
    let bracketed = written.strip_prefix('[')?.strip_suffix(']')?;
    bracketed.parse::<Ipv6Addr>().ok().map(IpAddr::V6)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn trusted(networks: &[&str]) -> TrustedProxies {
        TrustedProxies::parse(networks.iter().copied()).unwrap()
    }

    fn ip(written: &str) -> IpAddr {
        written.parse().unwrap()
    }

    fn source(trusted: &TrustedProxies, peer: &str, lines: &[&str]) -> SourceKey {
        trusted.source(ip(peer), lines.iter().map(|line| line.as_bytes()))
    }

    fn key(written: &str) -> SourceKey {
        SourceKey::of(ip(written))
    }

    #[test]
    fn an_untrusted_peer_is_the_source_whatever_it_says() {
        let none = TrustedProxies::default();
        assert_eq!(source(&none, "203.0.113.9", &["198.51.100.1"]), key("203.0.113.9"));
        let some = trusted(&["10.0.0.0/8"]);
        assert_eq!(source(&some, "203.0.113.9", &["198.51.100.1"]), key("203.0.113.9"));
    }

    #[test]
    fn the_first_untrusted_address_from_the_right_is_the_source() {
        let proxies = trusted(&["10.0.0.0/8", "192.0.2.0/24"]);
        for (lines, expected) in [
            (&["198.51.100.1"][..], "198.51.100.1"),
            // What stands further left was written by the client.
            (&["1.1.1.1, 198.51.100.1"], "198.51.100.1"),
            // A CDN in front of the balancer, both trusted.
            (&["1.1.1.1, 198.51.100.1, 192.0.2.7"], "198.51.100.1"),
            (&["198.51.100.1", "192.0.2.7,10.9.9.9"], "198.51.100.1"),
            (&["1.1.1.1", "198.51.100.1"], "198.51.100.1"),
            (&[" \t198.51.100.1:4711 "], "198.51.100.1"),
            (&["[2001:db8:1:2::3]:443"], "2001:db8:1:2::9"),
            (&["[2001:db8:1:2::3]"], "2001:db8:1:2::9"),
            (&["2001:db8:1:2::3"], "2001:db8:1:2::9"),
            (&["::ffff:198.51.100.1"], "198.51.100.1"),
            (&["[::ffff:198.51.100.1]:80"], "198.51.100.1"),
            // Garbage that is not reached does not matter.
            (&["what?, 198.51.100.1"], "198.51.100.1"),
        ] {
            assert_eq!(source(&proxies, "10.0.0.1", lines), key(expected), "{lines:?}");
        }
    }

    #[test]
    fn garbage_absence_and_nothing_but_trusted_fall_back_to_the_peer() {
        let proxies = trusted(&["10.0.0.0/8"]);
        for lines in [
            &[][..],
            &[""],
            &[","],
            &["198.51.100.1,"],
            &["198.51.100.1", ""],
            &["198.51.100.1, unknown"],
            &["198.51.100.1, 1.2.3.4.5"],
            &["198.51.100.1, [10.0.0.1]"],
            &["198.51.100.1, fe80::1%eth0"],
            &["198.51.100.1, \"198.51.100.2\""],
            &["10.1.1.1"],
            &["10.1.1.1, 10.2.2.2:80"],
        ] {
            assert_eq!(source(&proxies, "10.0.0.1", lines), key("10.0.0.1"), "{lines:?}");
        }
        let bytes: [&[u8]; 1] = [b"198.51.100.1, \xFF\xFE"];
        assert_eq!(proxies.source(ip("10.0.0.1"), bytes.into_iter()), key("10.0.0.1"));
    }

    #[test]
    fn keys_are_v4_addresses_and_v6_networks() {
        assert_eq!(key("2001:db8::1"), key("2001:db8::ffff:1"));
        assert_ne!(key("2001:db8::1"), key("2001:db8:0:1::1"));
        assert_eq!(key("::ffff:192.0.2.1"), key("192.0.2.1"));
        assert_ne!(key("192.0.2.1"), key("192.0.2.2"));
        assert!(!format!("{:?}", key("192.0.2.1")).contains("192"));
    }

    #[test]
    fn mapped_peers_and_networks_are_ipv4() {
        for network in ["10.0.0.0/8", "::ffff:10.0.0.0/104"] {
            let proxies = trusted(&[network]);
            assert_eq!(
                source(&proxies, "::ffff:10.0.0.1", &["198.51.100.1"]),
                key("198.51.100.1"),
                "{network}"
            );
        }
    }

    #[test]
    fn what_is_no_network_is_refused() {
        for bad in ["", "10.0.0.0/33", "10.0.0/8", "localhost", "10.0.0.0/8/8"] {
            assert_eq!(TrustedProxies::parse([bad]), Err(NetworkError), "{bad}");
        }
        assert!(trusted(&["10.0.0.1", "::1"]).contain(ip("10.0.0.1")));
    }

    proptest! {
        #[test]
        fn no_header_of_an_untrusted_peer_changes_its_key(
            peer: [u8; 4], lines in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..60), 0..4)
        ) {
            let proxies = trusted(&["10.0.0.0/8", "fd00::/8"]);
            let peer = IpAddr::from(peer);
            prop_assume!(!proxies.contain(peer));
            prop_assert_eq!(proxies.source(peer, lines.iter().map(Vec::as_slice)), SourceKey::of(peer));
        }

        #[test]
        fn what_a_client_puts_in_front_changes_nothing(
            client: [u8; 4], hops in 0..4_usize, forged in prop::collection::vec(any::<u8>(), 0..80)
        ) {
            let proxies = trusted(&["10.0.0.0/8"]);
            let client = IpAddr::from(client);
            prop_assume!(!proxies.contain(client));
            // The first trusted proxy appends the client, each further one the proxy before it.
            let appended = format!(", {client}{}", ", 10.1.1.1".repeat(hops));
            let one_line = [&forged[..], appended.as_bytes()].concat();
            let two_lines = [forged.clone(), appended.trim_start_matches(", ").as_bytes().to_vec()];
            let peer = ip("10.0.0.1");
            prop_assert_eq!(proxies.source(peer, [one_line.as_slice()].into_iter()), SourceKey::of(client));
            prop_assert_eq!(proxies.source(peer, two_lines.iter().map(Vec::as_slice)), SourceKey::of(client));
        }
    }
}
