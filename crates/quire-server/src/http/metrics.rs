//! What the public listener counts, with every label resolved before the first request.
//!
//! Promises: counting is a few atomic additions, with no lock and no look-up by label; no label comes from a
//! request, so that their number is bounded and no address or id can get into one (A9, P3).

use std::time::Duration;

use http::StatusCode;
use prometheus::{
    Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, Opts, Registry,
};

use quire_core::admission::{Limit, Refusal};

use super::error::ErrorCode;

/// Upper bounds of the latency buckets in seconds: a cached read is far under the first.
const LATENCY_BUCKETS_SECONDS: [f64; 12] =
    [0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0, 30.0];

/// Which call a request was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Call {
    Create,
    Read,
    Delete,
    Other,
}

/// Why something was turned away rather than queued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shed {
    /// Too many connections.
    Connections,
    /// A connection that was closed because its peer held most of them.
    Hog,
    /// Too many requests in flight.
    Requests,
    /// Too many of one source.
    SourceRequests,
    /// Too many creates of one source.
    SourceCreates,
    /// Too many bytes declared by creates in flight.
    DeclaredBytes,
    /// Too many bytes waiting for slow readers.
    AnswerBytes,
    /// A store's queue was full.
    Queue,
    /// Free disk is under the reserve.
    Disk,
}

impl Shed {
    const ALL: [Self; 9] = [
        Self::Connections,
        Self::Hog,
        Self::Requests,
        Self::SourceRequests,
        Self::SourceCreates,
        Self::DeclaredBytes,
        Self::AnswerBytes,
        Self::Queue,
        Self::Disk,
    ];

    const fn label(self) -> &'static str {
        match self {
            Self::Connections => "connections",
            Self::Hog => "hog",
            Self::Requests => "requests",
            Self::SourceRequests => "source_requests",
            Self::SourceCreates => "source_creates",
            Self::DeclaredBytes => "declared_bytes",
            Self::AnswerBytes => "answer_bytes",
            Self::Queue => "queue",
            Self::Disk => "disk",
        }
    }
}

/// The counters of one call.
struct OfCall {
    success: IntCounter,
    not_modified: IntCounter,
    client_error: IntCounter,
    server_error: IntCounter,
    seconds: Histogram,
}

impl OfCall {
    fn new(call: &str, requests: &IntCounterVec, seconds: &HistogramVec) -> Result<Self, prometheus::Error> {
        let class = |class: &str| requests.get_metric_with_label_values(&[call, class]);
        Ok(Self {
            success: class("2xx")?,
            not_modified: class("3xx")?,
            client_error: class("4xx")?,
            server_error: class("5xx")?,
            seconds: seconds.get_metric_with_label_values(&[call])?,
        })
    }
}

/// All counters of the public listener.
pub struct Metrics {
    create: OfCall,
    read: OfCall,
    delete: OfCall,
    other: OfCall,
    created: IntCounter,
    refused: Vec<(&'static str, IntCounter)>,
    rate_limited: Vec<(Limit, IntCounter)>,
    sheds: Vec<(Shed, IntCounter)>,
    stored_bytes: IntCounter,
    pub(super) bodies_missing: IntCounter,
    pub(super) bodies_corrupt: IntCounter,
    pub(super) orphans_left: IntCounter,
    pub(super) give_backs_failed: IntCounter,
    pub(super) forwarded_by_strangers: IntCounter,
    pub(super) connections: IntGauge,
}

impl Metrics {
    /// Makes the counters and registers them.
    ///
    /// # Errors
    /// If a metric of the same name is registered already.
    pub fn new(registry: &Registry) -> Result<Self, prometheus::Error> {
        let requests = IntCounterVec::new(
            Opts::new("quire_http_requests_total", "Requests answered, by call and class of status."),
            &["call", "class"],
        )?;
        let seconds = HistogramVec::new(
            HistogramOpts::new(
                "quire_http_request_seconds",
                "From the end of a request's head to its answer being ready, by call.",
            )
            .buckets(LATENCY_BUCKETS_SECONDS.to_vec()),
            &["call"],
        )?;
        let creates = IntCounterVec::new(
            Opts::new("quire_creates_total", "Creates, by outcome: created, or the error code."),
            &["outcome"],
        )?;
        let sheds = IntCounterVec::new(
            Opts::new("quire_shed_total", "What was turned away because of a bound, by the bound."),
            &["reason"],
        )?;
        let refusals = IntCounterVec::new(
            Opts::new(
                "quire_rate_limited_total",
                "Requests answered 429, by the bucket with the longest wait.",
            ),
            &["limit"],
        )?;
        for family in [&requests, &creates, &sheds, &refusals] {
            registry.register(Box::new(family.clone()))?;
        }
        registry.register(Box::new(seconds.clone()))?;

        let of_call = |call| OfCall::new(call, &requests, &seconds);
        let outcome = |code: &str| creates.get_metric_with_label_values(&[code]);
        let connections =
            IntGauge::new("quire_http_connections", "Open connections of the public listener.")?;
        registry.register(Box::new(connections.clone()))?;
        Ok(Self {
            create: of_call("create")?,
            read: of_call("read")?,
            delete: of_call("delete")?,
            other: of_call("other")?,
            created: outcome("created")?,
            refused: ErrorCode::ALL
                .into_iter()
                .map(|code| Ok((code.code(), outcome(code.code())?)))
                .collect::<Result<_, prometheus::Error>>()?,
            rate_limited: Limit::ALL
                .into_iter()
                .map(|limit| Ok((limit, refusals.get_metric_with_label_values(&[limit.as_str()])?)))
                .collect::<Result<_, prometheus::Error>>()?,
            sheds: Shed::ALL
                .into_iter()
                .map(|shed| Ok((shed, sheds.get_metric_with_label_values(&[shed.label()])?)))
                .collect::<Result<_, prometheus::Error>>()?,
            stored_bytes: counter(registry, "quire_stored_bytes_total", "Bytes of pastes acknowledged.")?,
            bodies_missing: counter(
                registry,
                "quire_bodies_missing_total",
                "Reads of a live paste whose body is not there. Must stay zero.",
            )?,
            bodies_corrupt: counter(
                registry,
                "quire_bodies_corrupt_total",
                "Reads of a live paste whose body is not the one that was stored. Must stay zero.",
            )?,
            orphans_left: counter(
                registry,
                "quire_delete_orphans_total",
                "Deletes whose body could not be removed at once; the janitor will.",
            )?,
            give_backs_failed: counter(
                registry,
                "quire_give_backs_failed_total",
                "Tokens of refused creates that could not be given back to the service's buckets.",
            )?,
            forwarded_by_strangers: counter(
                registry,
                "quire_forwarded_by_strangers_total",
                "Requests with X-Forwarded-For from a peer that is no trusted proxy.",
            )?,
            connections,
        })
    }

    /// Counts an answer.
    pub(super) fn answered(&self, call: Call, status: StatusCode, took: Duration) {
        let of_call = match call {
            Call::Create => &self.create,
            Call::Read => &self.read,
            Call::Delete => &self.delete,
            Call::Other => &self.other,
        };
        let class = match status.as_u16() {
            ..300 => &of_call.success,
            300..400 => &of_call.not_modified,
            400..500 => &of_call.client_error,
            500.. => &of_call.server_error,
        };
        class.inc();
        of_call.seconds.observe(took.as_secs_f64());
    }

    /// Counts a paste that was stored, whether or not its client is still there.
    pub(super) fn created(&self, size_bytes: usize) {
        self.created.inc();
        self.stored_bytes.inc_by(u64::try_from(size_bytes).unwrap_or(u64::MAX));
    }

    /// Counts a create that was answered with an error.
    pub(super) fn create_refused(&self, code: ErrorCode) {
        // A dozen words compared is nothing beside a create.
        find(&self.refused, code.code()).into_iter().for_each(IntCounter::inc);
    }

    /// Counts a request that its source or the service has no budget for, and gives the code to answer.
    pub(super) fn rate_limited(&self, refusal: Refusal) -> ErrorCode {
        find(&self.rate_limited, refusal.limit).into_iter().for_each(IntCounter::inc);
        ErrorCode::RateLimited(refusal)
    }

    /// Counts something that was turned away.
    pub(super) fn shed(&self, reason: Shed) {
        find(&self.sheds, reason).into_iter().for_each(IntCounter::inc);
    }
}

fn find<K: Copy + PartialEq>(of: &[(K, IntCounter)], key: K) -> Option<&IntCounter> {
    of.iter().find(|(candidate, _)| *candidate == key).map(|(_, counter)| counter)
}

fn counter(registry: &Registry, name: &str, help: &str) -> Result<IntCounter, prometheus::Error> {
    let counter = IntCounter::new(name, help)?;
    registry.register(Box::new(counter.clone()))?;
    Ok(counter)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_is_there_before_the_first_request_and_counts() {
        let registry = Registry::new();
        let metrics = Metrics::new(&registry).unwrap();
        metrics.answered(Call::Read, StatusCode::NOT_MODIFIED, Duration::from_micros(10));
        metrics.create_refused(ErrorCode::BadTtl);
        metrics.created(7);
        metrics.shed(Shed::Disk);
        let text = prometheus::TextEncoder::new().encode_to_string(&registry.gather()).unwrap();
        for line in [
            r#"quire_http_requests_total{call="read",class="3xx"} 1"#,
            r#"quire_http_requests_total{call="delete",class="5xx"} 0"#,
            r#"quire_http_request_seconds_count{call="read"} 1"#,
            r#"quire_creates_total{outcome="bad_ttl"} 1"#,
            r#"quire_creates_total{outcome="created"} 1"#,
            "quire_stored_bytes_total 7",
            r#"quire_shed_total{reason="disk"} 1"#,
            r#"quire_shed_total{reason="connections"} 0"#,
            "quire_bodies_missing_total 0",
        ] {
            assert!(text.lines().any(|candidate| candidate == line), "{line} in {text}");
        }
        assert!(Metrics::new(&registry).is_err(), "the same names cannot be registered twice");
    }
}
