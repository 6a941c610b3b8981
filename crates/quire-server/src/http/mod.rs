//! The public listener: HTTP/1.1 over hyper, without a router (ADR 0006).
//!
//! A request is read top to bottom: [`answer`] finds the route by the raw path and calls one handler;
//! `create`, `read` and `delete` turn headers into domain types and call the service; `error` is the one
//! table from error to status. Around them stand the bounds of H2: `listener` and `registry` for
//! connections, `connection`, `record`, `stream` and `inbound` for what one connection may do with time, `guard`
//! for what is in flight, `body` for bodies.
//!
//! Promises: handlers hold no rules of the domain; every bound refuses at once and queues nothing; a server
//! fault is logged once, here at the edge. It must never log or count anything that tells an id, a token, a
//! body or an address (P3, A9).

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use http::{
    HeaderValue, Method, Request, Response,
    header::{ALLOW, CONNECTION},
    request::Parts,
};
use http_body_util::Full;
use hyper::body::{Body as _, Incoming};
use quire_core::{
    paste::Id,
    ports::{Clock, Limits, SourceLimits},
    service::Service,
    source::TrustedProxies,
};
use tokio::time::Instant;

mod admission;
mod body;
mod bounds;
mod connection;
mod content_type;
mod cors;
mod create;
mod delete;
mod error;
mod guard;
mod inbound;
mod listener;
mod metrics;
mod parser_refusal;
mod peer;
mod read;
mod record;
mod registry;
mod stream;
mod usage;
pub mod wire;

#[cfg(test)]
mod tests;

use self::{
    body::Expectation,
    cors::Sites,
    error::ErrorCode,
    guard::{Guard, InFlight, Kind, Source},
    metrics::{Call, Shed},
    peer::{Peer, Proxies},
    read::{Asked, CacheControl},
    record::{Connection, Held},
};
pub use self::{
    bounds::{Bounds, SourceInFlight},
    listener::{Drain, serve},
    metrics::Metrics,
};

/// What every handler returns: an answer that is whole before the first byte of it is sent.
type Answer = Response<Full<Bytes>>;

/// What the public listener is made of.
pub struct Settings {
    /// The use cases.
    pub service: Arc<Service>,
    /// What links begin with; a trailing slash is dropped.
    pub public_url: String,
    /// Sites whose pages may create and delete (`--allow-origin`).
    pub allow_origins: Vec<String>,
    /// How long a shared cache may hold a paste (`--cache-max-age`).
    pub cache_max_age: Duration,
    /// The bounds of H2.
    pub bounds: Bounds,
    /// The limiter of creates.
    pub limits: Arc<dyn Limits>,
    /// The ceilings of reads and deletes.
    pub source_limits: Arc<dyn SourceLimits>,
    /// The operator's own proxies (`--trusted-proxy`).
    pub trusted_proxies: TrustedProxies,
    /// For how long a paste still lives, and only for what caches are told.
    pub clock: Arc<dyn Clock>,
    /// Whether free disk is under the reserve; asked once per create, so it must answer from memory.
    pub is_disk_low: Arc<dyn Fn() -> bool + Send + Sync>,
    /// Where requests are counted.
    pub metrics: Metrics,
}

/// The public API, ready to be served by [`serve`].
pub struct Api {
    service: Arc<Service>,
    public_url: String,
    sites: Sites,
    cache_control: CacheControl,
    bounds: Bounds,
    limits: Arc<dyn Limits>,
    source_limits: Arc<dyn SourceLimits>,
    proxies: Proxies,
    guard: Guard,
    clock: Arc<dyn Clock>,
    is_disk_low: Arc<dyn Fn() -> bool + Send + Sync>,
    metrics: Arc<Metrics>,
    drain: Drain,
    usage: Bytes,
}

impl Api {
    /// Puts the API together.
    #[must_use]
    pub fn new(settings: Settings) -> Arc<Self> {
        let public_url = settings.public_url.trim_end_matches('/').to_owned();
        Arc::new(Self {
            service: settings.service,
            sites: Sites::new(&public_url, &settings.allow_origins),
            usage: usage::text(&public_url),
            public_url,
            cache_control: CacheControl::new(settings.cache_max_age),
            guard: Guard::new(&settings.bounds),
            drain: Drain::new(settings.bounds.connections_max),
            bounds: settings.bounds,
            limits: settings.limits,
            source_limits: settings.source_limits,
            proxies: Proxies::new(settings.trusted_proxies),
            clock: settings.clock,
            is_disk_low: settings.is_disk_low,
            metrics: Arc::new(settings.metrics),
        })
    }

    /// The handle that brings its listener to an end.
    #[must_use]
    pub fn drain(&self) -> Drain {
        self.drain.clone()
    }

    /// A place for a request; without one it is answered 503.
    fn enter(&self, source: &Arc<Source>, kind: Kind) -> Result<InFlight, ErrorCode> {
        self.guard.enter(source, kind).map_err(|reason| self.shed(reason))
    }

    /// Counts something that is turned away, and gives the code to answer.
    fn shed(&self, reason: Shed) -> ErrorCode {
        self.metrics.shed(reason);
        ErrorCode::Overloaded
    }
}

/// What a path names. A path that is none of these is not there, whatever the method.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Route {
    /// `/`
    Home,
    /// `/v1/pastes`
    Pastes,
    /// `/v1/pastes/{id}`
    Paste(Id),
    /// `/{id}`
    ShortLink(Id),
}

impl Route {
    /// The path must be as it came, undecoded: an escape, a trailing or a doubled slash is not an id (R2), so
    /// that one paste has one address.
    fn of(path: &str) -> Option<Self> {
        match path {
            "/" => Some(Self::Home),
            "/v1/pastes" => Some(Self::Pastes),
            _ => match path.strip_prefix("/v1/pastes/") {
                Some(segment) => Id::parse(segment.as_bytes()).map(Self::Paste),
                None => Id::parse(path.strip_prefix('/')?.as_bytes()).map(Self::ShortLink),
            },
        }
    }

    /// The methods it knows.
    fn allow(self) -> HeaderValue {
        HeaderValue::from_static(match self {
            Self::Home | Self::ShortLink(_) => "GET, HEAD, OPTIONS",
            Self::Pastes => "POST, OPTIONS",
            Self::Paste(_) => "GET, HEAD, DELETE, OPTIONS",
        })
    }
}

/// Answers one request.
async fn answer(api: &Api, connection: &Connection, peer: &Peer, request: Request<Incoming>) -> Answer {
    let began = Instant::now();
    // What was cut off as a fragment belonged to the raw path and made it malformed.
    let has_fragment = connection.request_begins(request.body().size_hint().exact());
    let source = &peer.source_of(api, request.headers());
    let route = Route::of(request.uri().path()).filter(|_| !has_fragment);
    let expectation = Expectation::of(&request);
    let may_write = match (route, request.method()) {
        // A malformed id is a paste that is not there, and for a page it must look the same.
        (Some(Route::Pastes), &Method::POST) | (Some(Route::Paste(_)) | None, &Method::DELETE) => {
            api.sites.named_origin(request.headers()).cloned()
        }
        _ => None,
    };

    let (parts, mut body) = request.into_parts();
    let (call, outcome) = match (route, &parts.method) {
        (Some(Route::Pastes), &Method::POST) => {
            // Boxed, since its state is large and every connection has room for the largest.
            let outcome = Box::pin(create::create(api, source, &parts, &mut body)).await;
            keep_place_for_answer(api, connection, source);
            (Call::Create, outcome)
        }
        (Some(Route::Paste(id) | Route::ShortLink(id)), &Method::GET) => {
            (Call::Read, read::read(api, connection, source, id, Asked::Body, parts.headers).await)
        }
        (Some(Route::Paste(id) | Route::ShortLink(id)), &Method::HEAD) => {
            (Call::Read, read::read(api, connection, source, id, Asked::Headers, parts.headers).await)
        }
        (Some(Route::Paste(id)), &Method::DELETE) => {
            let outcome = Box::pin(delete::delete(api, source, id, &parts.headers)).await;
            keep_place_for_answer(api, connection, source);
            (Call::Delete, outcome)
        }
        _ => {
            let outcome = api.enter(source, Kind::Other).and_then(|in_flight| {
                connection.hold(Held { _in_flight: in_flight, _answer: None });
                constant_answer(api, route, &parts)
            });
            (Call::Other, outcome)
        }
    };

    // A sender who is behind its own promise is not waited for a second time.
    let is_read_whole = outcome.as_ref().err() != Some(&ErrorCode::IncompleteBody)
        && (body.is_end_stream()
            || Box::pin(body::discard(&mut body, expectation, &api.guard, &api.bounds)).await);
    let mut answer = outcome.unwrap_or_else(ErrorCode::answer);
    if let Some(origin) = may_write {
        cors::allow_written(origin, answer.headers_mut());
    }
    if !is_read_whole || api.drain.is_draining() {
        answer.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
    api.metrics.answered(call, answer.status(), began.elapsed());
    connection.answer_ready(!is_read_whole);
    answer
}

/// What needs no work: the text at `/`, what a method may do, and that there is nothing.
fn constant_answer(api: &Api, route: Option<Route>, parts: &Parts) -> Result<Answer, ErrorCode> {
    match (route, &parts.method) {
        (None, _) => Err(ErrorCode::NotFound),
        (Some(Route::Home), &Method::GET | &Method::HEAD) => Ok(usage::answer(&api.usage)),
        (Some(route), &Method::OPTIONS) => Ok(api.sites.preflight(route, &parts.headers)),
        (Some(route), _) => {
            let mut answer = ErrorCode::MethodNotAllowed.answer();
            answer.headers_mut().insert(ALLOW, route.allow());
            Ok(answer)
        }
    }
}

/// The place of a create or a delete goes with its work, which may take longer than its answer; so the answer
/// takes one of its own until it has left. If there is none it goes out without: what was done is done.
fn keep_place_for_answer(api: &Api, connection: &Connection, source: &Arc<Source>) {
    if let Ok(in_flight) = api.guard.enter(source, Kind::Other) {
        connection.hold(Held { _in_flight: in_flight, _answer: None });
    }
}
