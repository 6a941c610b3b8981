//! Which source a request counts against.
//!
//! A key stands for whoever can be told apart from outside: one IPv4 address, or one IPv6 /64, which is what
//! a single customer is given. It lives in memory only and is never shown: `Debug` does not tell the address
//! (contract A9).

use std::{fmt, net::IpAddr};

/// Who a request counts against.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SourceKey {
    /// One IPv4 address.
    V4([u8; 4]),
    /// The first 64 bits of an IPv6 address.
    V6Network([u8; 8]),
}

impl SourceKey {
    /// The key of a socket's peer: IPv4-mapped IPv6 counts as IPv4, IPv6 by its /64.
    #[must_use]
    pub fn of_peer(peer: IpAddr) -> Self {
        match peer.to_canonical() {
            IpAddr::V4(address) => Self::V4(address.octets()),
            IpAddr::V6(address) => {
                // Sixteen bytes have a first eight.
                Self::V6Network(address.octets().first_chunk().copied().unwrap_or_default())
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

#[cfg(test)]
mod tests {
    use super::*;

    fn key(address: &str) -> SourceKey {
        SourceKey::of_peer(address.parse().unwrap())
    }

    #[test]
    fn an_ipv6_network_is_one_source() {
        assert_eq!(key("2001:db8:1:2::1"), key("2001:db8:1:2:ffff::9"));
        assert_ne!(key("2001:db8:1:2::1"), key("2001:db8:1:3::1"));
    }

    #[test]
    fn a_mapped_address_is_the_ipv4_address() {
        assert_eq!(key("::ffff:192.0.2.7"), key("192.0.2.7"));
        assert_ne!(key("192.0.2.7"), key("192.0.2.8"));
    }

    #[test]
    fn an_address_does_not_show_in_debug_output() {
        let shown = format!("{:?} {:?}", key("192.0.2.7"), key("2001:db8:1:2::1"));
        assert_eq!(shown, "SourceKey(..) SourceKey(..)");
    }
}
