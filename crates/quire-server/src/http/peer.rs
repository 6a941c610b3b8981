//! Whose request it is: the connection's peer, or whom a trusted proxy speaks for (contract A4).
//!
//! Promises: a header of a peer that is no trusted proxy changes nothing; it is counted, and warned of once,
//! since it is what a proxy that was not configured looks like. It must never keep an address longer than
//! its connection.

use std::{
    net::IpAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use http::{HeaderMap, HeaderValue};
use quire_core::source::{SourceKey, TrustedProxies};

use super::{Api, guard::Source};

const X_FORWARDED_FOR: &str = "x-forwarded-for";

/// The other end of a connection.
pub(super) struct Peer {
    address: IpAddr,
    is_proxy: bool,
    source: Arc<Source>,
}

/// Which peers are the operator's own proxies.
pub(super) struct Proxies {
    trusted: TrustedProxies,
    has_warned: AtomicBool,
}

impl Proxies {
    pub(super) fn new(trusted: TrustedProxies) -> Self {
        Self { trusted, has_warned: AtomicBool::new(false) }
    }

    /// Whether a peer speaks for others.
    pub(super) fn contain(&self, peer: IpAddr) -> bool {
        self.trusted.contain(peer)
    }
}

impl Peer {
    pub(super) fn new(api: &Api, address: IpAddr) -> Self {
        let source = api.guard.source(SourceKey::of(address));
        Self { address, is_proxy: api.proxies.contain(address), source }
    }

    /// Whom a request with these headers counts against.
    pub(super) fn source_of(&self, api: &Api, headers: &HeaderMap) -> Arc<Source> {
        if !headers.contains_key(X_FORWARDED_FOR) {
            return Arc::clone(&self.source);
        }
        if self.is_proxy {
            let lines = headers.get_all(X_FORWARDED_FOR).iter().map(HeaderValue::as_bytes);
            return api.guard.source(api.proxies.trusted.source(self.address, lines));
        }
        api.metrics.forwarded_by_strangers.inc();
        if !api.proxies.has_warned.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                "X-Forwarded-For came from a peer that is no trusted proxy and is ignored; if that is your proxy, \
                 name its network with --trusted-proxy, or all its clients share one budget"
            );
        }
        Arc::clone(&self.source)
    }
}
