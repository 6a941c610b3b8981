//! Counting what the stores do: decorators of the two ports, so that adapters hold no metrics.
//!
//! They stand between the cache and the adapter and therefore count real calls alone. Every handle is
//! resolved once at start-up; no label is looked up on a call.

use std::{sync::Arc, time::Instant};

use bytes::Bytes;
use prometheus::{
    Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, Opts, Registry, exponential_buckets,
};
use quire_core::{
    paste::{BodyRef, Id, StoredRow},
    ports::{Bodies, Fault, Insert, NewBody, NewRow, PortError, PortFuture, Put, Rows},
    time::Timestamp,
};

/// Shortest latency that gets a bucket of its own, in seconds; each further one is twice as long.
const SHORTEST_BUCKET_SECONDS: f64 = 0.000_1;
/// From 0.1 ms to 13 s.
const BUCKETS: usize = 18;

/// Buckets for every latency that quire reports, in seconds.
///
/// # Errors
/// Never, with the constants above; the type says so because the library's does.
pub fn latency_buckets() -> prometheus::Result<Vec<f64>> {
    exponential_buckets(SHORTEST_BUCKET_SECONDS, 2.0, BUCKETS)
}

/// The counters both decorators share.
#[derive(Clone)]
pub struct StoreMetrics {
    seconds: HistogramVec,
    errors: IntCounterVec,
    collisions: IntCounter,
}

impl StoreMetrics {
    /// Registers the store metrics.
    ///
    /// # Errors
    /// A name is registered twice: a mistake in the program.
    pub fn register(registry: &Registry) -> prometheus::Result<Self> {
        let seconds = HistogramVec::new(
            HistogramOpts::new("quire_store_seconds", "How long a store took to answer.")
                .buckets(latency_buckets()?),
            &["store", "call"],
        )?;
        let errors = IntCounterVec::new(
            Opts::new("quire_store_errors_total", "Store calls that failed, by what is known of the effect."),
            &["store", "call", "fault"],
        )?;
        let collisions =
            IntCounter::new("quire_id_collisions_total", "Minted ids that were taken; expected to stay 0.")?;
        registry.register(Box::new(seconds.clone()))?;
        registry.register(Box::new(errors.clone()))?;
        registry.register(Box::new(collisions.clone()))?;
        Ok(Self { seconds, errors, collisions })
    }

    fn call(&self, store: &str, call: &str) -> CallMetrics {
        let error = |fault: &str| self.errors.with_label_values(&[store, call, fault]);
        CallMetrics {
            seconds: self.seconds.with_label_values(&[store, call]),
            overloaded: error("overloaded"),
            unavailable: error("unavailable"),
            unknown_outcome: error("unknown_outcome"),
            corrupt: error("corrupt"),
        }
    }
}

struct CallMetrics {
    seconds: Histogram,
    overloaded: IntCounter,
    unavailable: IntCounter,
    unknown_outcome: IntCounter,
    corrupt: IntCounter,
}

impl CallMetrics {
    async fn observe<T>(&self, call: PortFuture<'_, T>) -> Result<T, PortError> {
        let began = Instant::now();
        let outcome = call.await;
        self.seconds.observe(began.elapsed().as_secs_f64());
        if let Err(error) = &outcome {
            let counter = match error.fault() {
                Fault::Overloaded => &self.overloaded,
                Fault::Unavailable => &self.unavailable,
                Fault::UnknownOutcome => &self.unknown_outcome,
                Fault::Corrupt => &self.corrupt,
            };
            counter.inc();
        }
        outcome
    }
}

/// A row store whose calls are counted.
pub struct MeteredRows {
    inner: Arc<dyn Rows>,
    collisions: IntCounter,
    now: CallMetrics,
    insert: CallMetrics,
    find: CallMetrics,
    remove: CallMetrics,
}

impl MeteredRows {
    /// Counts the calls of `inner`.
    #[must_use]
    pub fn new(inner: Arc<dyn Rows>, metrics: &StoreMetrics) -> Self {
        let call = |name| metrics.call("rows", name);
        Self {
            inner,
            collisions: metrics.collisions.clone(),
            now: call("now"),
            insert: call("insert"),
            find: call("find"),
            remove: call("remove"),
        }
    }
}

impl Rows for MeteredRows {
    fn now(&self) -> PortFuture<'_, Timestamp> {
        Box::pin(self.now.observe(self.inner.now()))
    }

    fn insert(&self, row: NewRow) -> PortFuture<'_, Insert> {
        Box::pin(async move {
            let outcome = self.insert.observe(self.inner.insert(row)).await;
            if matches!(outcome, Ok(Insert::Conflict)) {
                self.collisions.inc();
            }
            outcome
        })
    }

    fn find(&self, id: Id) -> PortFuture<'_, Option<Arc<StoredRow>>> {
        Box::pin(self.find.observe(self.inner.find(id)))
    }

    fn find_in_store(&self, id: Id) -> PortFuture<'_, Option<Arc<StoredRow>>> {
        Box::pin(self.find.observe(self.inner.find_in_store(id)))
    }

    fn remove(&self, id: Id) -> PortFuture<'_, bool> {
        Box::pin(self.remove.observe(self.inner.remove(id)))
    }
}

/// A body store whose calls are counted.
pub struct MeteredBodies {
    inner: Arc<dyn Bodies>,
    collisions: IntCounter,
    put: CallMetrics,
    get: CallMetrics,
    remove: CallMetrics,
}

impl MeteredBodies {
    /// Counts the calls of `inner`.
    #[must_use]
    pub fn new(inner: Arc<dyn Bodies>, metrics: &StoreMetrics) -> Self {
        let call = |name| metrics.call("bodies", name);
        Self {
            inner,
            collisions: metrics.collisions.clone(),
            put: call("put"),
            get: call("get"),
            remove: call("remove"),
        }
    }
}

impl Bodies for MeteredBodies {
    fn put(&self, body: NewBody) -> PortFuture<'_, Put> {
        Box::pin(async move {
            let outcome = self.put.observe(self.inner.put(body)).await;
            if matches!(outcome, Ok(Put::Exists)) {
                self.collisions.inc();
            }
            outcome
        })
    }

    fn get(&self, body: BodyRef) -> PortFuture<'_, Option<Bytes>> {
        Box::pin(self.get.observe(self.inner.get(body)))
    }

    fn remove(&self, body: BodyRef) -> PortFuture<'_, ()> {
        Box::pin(self.remove.observe(self.inner.remove(body)))
    }
}

#[cfg(test)]
mod tests {
    use quire_core::{
        paste::{Digest, Text, Ttl},
        testing::{exec::run_or_drop, faults, world::World},
    };

    use super::*;

    fn body() -> NewBody {
        let text = Text::new(Bytes::from_static(b"text")).unwrap();
        NewBody {
            id: Id::parse(b"000000000000").unwrap(),
            sha256: Digest::of(text.bytes()),
            text,
            expires_near: Timestamp::from_unix_ms(0).expiry(Ttl::Day),
        }
    }

    #[test]
    fn failures_are_counted_by_their_meaning_and_collisions_apart() {
        let registry = Registry::new();
        let metrics = StoreMetrics::register(&registry).unwrap();
        let world = World::new();
        let bodies = MeteredBodies::new(world.clone(), &metrics);

        world.script.fail_at(0, faults::Fault::Refused);
        world.script.fail_at(1, faults::Fault::AnswerLost { done: false });
        assert!(run_or_drop(bodies.put(body())).unwrap().is_err());
        assert!(run_or_drop(bodies.put(body())).unwrap().is_err());
        assert_eq!(run_or_drop(bodies.put(body())).unwrap().unwrap(), Put::Stored(None));
        assert_eq!(run_or_drop(bodies.put(body())).unwrap().unwrap(), Put::Exists);

        let errors = |fault: &str| metrics.errors.with_label_values(&["bodies", "put", fault]).get();
        assert_eq!((errors("unavailable"), errors("unknown_outcome"), errors("overloaded")), (1, 1, 0));
        assert_eq!(metrics.collisions.get(), 1);
        assert_eq!(bodies.put.seconds.get_sample_count(), 4);
    }
}
