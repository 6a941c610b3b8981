//! Step 2 of a create: asking the limiter, and giving back what a create did not use (contract A2).
//!
//! Promises: what a create took from the service's buckets is given back exactly once, by `Drop`, unless the
//! create was [spent](Ticket::spend): so however a refused request ends, a client that hangs up in the middle
//! of its body included, nothing stays taken. Nobody waits for a give-back.

use std::sync::Arc;

use quire_core::{
    ports::{Admission, Grant, Limits},
    source::SourceKey,
};
use tokio_util::task::TaskTracker;

use super::{Api, error::ErrorCode, metrics::Metrics};

/// A create that was admitted, and what it took.
pub(super) struct Ticket {
    /// `None` once it is spent.
    grant: Option<Grant>,
    limits: Arc<dyn Limits>,
    work: TaskTracker,
    metrics: Arc<Metrics>,
}

/// Asks the limiter for one create of `declared` bytes.
///
/// # Errors
/// A bucket is empty, or the limiter itself failed.
pub(super) async fn admit_create(api: &Api, source: SourceKey, declared: usize) -> Result<Ticket, ErrorCode> {
    let bytes = u64::try_from(declared).unwrap_or(u64::MAX);
    match api.limits.admit_create(source, bytes).await {
        Ok(Admission::Admitted(grant)) => Ok(Ticket {
            grant: Some(grant),
            limits: Arc::clone(&api.limits),
            work: api.drain.work().clone(),
            metrics: Arc::clone(&api.metrics),
        }),
        Ok(Admission::Refused(refusal)) => Err(api.metrics.rate_limited(refusal)),
        Err(error) => {
            // A limiter in this process does not fail, and a shared one is given a fallback that does not.
            tracing::error!(%error, "the limiter failed and has no fallback");
            Err(ErrorCode::Unavailable)
        }
    }
}

impl Ticket {
    /// The create may have stored its body, so that what it took stays taken.
    pub(super) fn spend(mut self) {
        self.grant = None;
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let Some(grant) = self.grant.take() else { return };
        let (limits, metrics) = (Arc::clone(&self.limits), Arc::clone(&self.metrics));
        self.work.spawn(async move {
            // Tried once: what an unreachable store did not get back refills on its own.
            if limits.give_back(grant).await.is_err() {
                metrics.give_backs_failed.inc();
            }
        });
    }
}
