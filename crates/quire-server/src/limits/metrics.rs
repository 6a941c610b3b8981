//! Counting what the shared limiter does: a decorator of the port, so that the adapter holds no metrics.
//!
//! Every handle is resolved once at start-up. No label ever names a source.

use std::{sync::Arc, time::Instant};

use prometheus::{Histogram, HistogramOpts, IntCounter, IntCounterVec, IntGauge, Opts, Registry};
use quire_core::{
    ports::{Admission, Fault, Grant, Limits, PortError, PortFuture},
    source::SourceKey,
};

use crate::metrics::latency_buckets;

/// What is counted of the shared limiter and of its fallback.
#[derive(Clone)]
pub struct LimiterMetrics {
    admitted: IntCounter,
    refused: IntCounter,
    given_back: IntCounter,
    pub(super) unavailable: IntCounter,
    pub(super) unknown_outcome: IntCounter,
    seconds: Histogram,
    pub(super) local_decisions: IntCounter,
    pub(super) breaker_open: IntGauge,
}

impl LimiterMetrics {
    /// Registers them.
    ///
    /// # Errors
    /// A name is registered twice: a mistake in the program.
    pub fn register(registry: &Registry) -> prometheus::Result<Self> {
        let calls = IntCounterVec::new(
            Opts::new("quire_limiter_calls_total", "Calls of the shared limiter, by what came of them."),
            &["outcome"],
        )?;
        let seconds = Histogram::with_opts(
            HistogramOpts::new("quire_limiter_seconds", "How long the shared limiter took to answer.")
                .buckets(latency_buckets()?),
        )?;
        let local_decisions = IntCounter::new(
            "quire_limiter_local_decisions_total",
            "Creates decided by this app alone because the shared limiter could not be asked.",
        )?;
        let breaker_open = IntGauge::new(
            "quire_limiter_breaker_open",
            "1 while creates do not wait for the shared limiter because it fails.",
        )?;
        registry.register(Box::new(calls.clone()))?;
        registry.register(Box::new(seconds.clone()))?;
        registry.register(Box::new(local_decisions.clone()))?;
        registry.register(Box::new(breaker_open.clone()))?;
        let call = |outcome| calls.with_label_values(&[outcome]);
        Ok(Self {
            admitted: call("admitted"),
            refused: call("refused"),
            given_back: call("given_back"),
            unavailable: call("unavailable"),
            unknown_outcome: call("unknown_outcome"),
            seconds,
            local_decisions,
            breaker_open,
        })
    }

    const fn of_admission<'a>(&'a self, admission: &Admission) -> &'a IntCounter {
        match admission {
            Admission::Admitted(_) => &self.admitted,
            Admission::Refused(_) => &self.refused,
        }
    }

    async fn observe<T>(
        &self,
        call: PortFuture<'_, T>,
        counter: impl for<'a> FnOnce(&'a Self, &T) -> &'a IntCounter,
    ) -> Result<T, PortError> {
        let began = Instant::now();
        let outcome = call.await;
        self.seconds.observe(began.elapsed().as_secs_f64());
        let counter = match &outcome {
            Ok(answer) => counter(self, answer),
            Err(error) if error.fault() == Fault::UnknownOutcome => &self.unknown_outcome,
            Err(_) => &self.unavailable,
        };
        counter.inc();
        outcome
    }
}

/// A shared limiter whose calls are counted.
pub struct MeteredLimits {
    inner: Arc<dyn Limits>,
    metrics: LimiterMetrics,
}

impl MeteredLimits {
    /// Counts the calls of `inner`.
    #[must_use]
    pub fn new(inner: Arc<dyn Limits>, metrics: LimiterMetrics) -> Self {
        Self { inner, metrics }
    }
}

impl Limits for MeteredLimits {
    fn admit_create(&self, source: SourceKey, bytes: u64) -> PortFuture<'_, Admission> {
        Box::pin(self.metrics.observe(self.inner.admit_create(source, bytes), LimiterMetrics::of_admission))
    }

    fn give_back(&self, grant: Grant) -> PortFuture<'_, ()> {
        Box::pin(self.metrics.observe(self.inner.give_back(grant), |metrics, ()| &metrics.given_back))
    }
}
