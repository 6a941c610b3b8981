//! What a create is told while the shared limiter cannot be asked (contract A5): a decorator of it.
//!
//! Promises:
//! - An answer of the shared state is final: whoever it lets in is let in, whoever it refuses is refused.
//! - When it fails, this app decides alone: the source's budgets by this app's own buckets, the service's by
//!   this app's share of them. Both keep their level from one outage to the next.
//! - While it keeps failing, creates do not wait for it, but for one at a time that probes; the first answer
//!   ends that. Opening and closing are logged once each.
//! - Tokens go back to whoever granted them.
//!
//! It must never refuse because the shared state failed, and reads never come here for anything but their
//! own ceilings, which wait for nothing.
//!
//! # What an attacker gains
//!
//! Five milliseconds pass by CPU load alone, so a client may be able to cause a failure; it must not be worth
//! much. Let a source's budget over a time `t` be `burst + rate*t`, and N the number of apps.
//!
//! - A create that the shared state admits is charged to the source's local buckets too, as far as they have
//!   something left; they do not decide. So a source that uses up its budget through an app finds nothing fresh
//!   in that app when an outage begins, however often outages begin. From any moment of full buckets to the end
//!   of the outage that follows, an app lets through one budget by both ways together, and the fleet N.
//! - The other direction is not charged: the shared state does not learn what was let in without it, and when
//!   it returns the source may still have its whole shared budget. Refusing then, by the local buckets, would
//!   refuse somebody whom the shared state lets in, and two clocks never run alike. So over windows that mix
//!   both ways the bound is N local budgets and the shared one: whoever causes failures gains N budgets and
//!   never more. In practice less: a call that only came too late for us was made all the same, and charged.
//! - For the service the contract has the sum: the shared caps, and 1.25/N of them for each app that fails
//!   over. Shared grants are not charged to the local share, or an app that the balancer favours would have
//!   nothing left at the very moment of an outage.

use std::{num::NonZeroU32, sync::Arc};

use quire_core::{
    admission::{AdmissionBudgets, Budgets, Refusal},
    ports::{Admission, Clock, Fault, Grant, GrantedBy, Limits, PortError, PortFuture, SourceLimits},
    source::SourceKey,
};
use tracing::{info, warn};

use super::{
    breaker::{Attempt, Breaker},
    memory::MemoryLimits,
    metrics::LimiterMetrics,
};

#[cfg(test)]
mod tests;

/// The shared limiter with what stands in for it, and the ceilings of reads and deletes.
pub struct FallbackLimits {
    shared: Arc<dyn Limits>,
    local: MemoryLimits,
    breaker: Breaker,
    metrics: LimiterMetrics,
}

impl FallbackLimits {
    /// A fallback for one of `fleet_size` apps. `budgets` are those of the whole service; `shared` enforces
    /// them, and answers or fails within a bounded time.
    #[must_use]
    pub fn new(
        shared: Arc<dyn Limits>,
        budgets: Budgets,
        fleet_size: NonZeroU32,
        clock: Arc<dyn Clock>,
        metrics: LimiterMetrics,
    ) -> Self {
        let AdmissionBudgets { source, service } = budgets.creates;
        let creates = AdmissionBudgets { source, service: service.local_share(fleet_size) };
        let local =
            MemoryLimits::new(Budgets { creates, ..budgets }, GrantedBy::LocalShare, Arc::clone(&clock));
        Self { shared, local, breaker: Breaker::new(clock), metrics }
    }

    async fn decide(&self, source: SourceKey, bytes: u64) -> Result<Admission, PortError> {
        if let Some(attempt) = self.breaker.attempt() {
            match self.shared.admit_create(source, bytes).await {
                Ok(admission) => {
                    self.shared_answered(attempt);
                    if let Admission::Admitted(_) = admission {
                        self.local.charge_source(source, bytes);
                    }
                    return Ok(admission);
                }
                Err(error) => self.shared_failed(attempt, &error),
            }
        }
        self.metrics.local_decisions.inc();
        self.local.admit_create(source, bytes).await
    }

    /// A give-back is no probe and waits for none: in an outage the tokens are lost, which refills.
    async fn give_back_shared(&self, grant: Grant) -> Result<(), PortError> {
        if self.breaker.is_open() {
            return Err(PortError::new(Fault::Unavailable));
        }
        let Some(attempt) = self.breaker.attempt() else {
            return Err(PortError::new(Fault::Unavailable));
        };
        let outcome = self.shared.give_back(grant).await;
        match &outcome {
            Ok(()) => self.shared_answered(attempt),
            Err(error) => self.shared_failed(attempt, error),
        }
        outcome
    }

    fn shared_answered(&self, attempt: Attempt<'_>) {
        if attempt.succeeded() {
            self.metrics.breaker_open.set(0);
            info!("the limiter's store answers again; budgets are shared again");
        }
    }

    fn shared_failed(&self, attempt: Attempt<'_>, error: &PortError) {
        if attempt.failed() {
            self.metrics.breaker_open.set(1);
            warn!(%error, "the limiter's store fails; creates are limited by this app alone until it answers");
        }
    }
}

impl Limits for FallbackLimits {
    fn admit_create(&self, source: SourceKey, bytes: u64) -> PortFuture<'_, Admission> {
        Box::pin(self.decide(source, bytes))
    }

    fn give_back(&self, grant: Grant) -> PortFuture<'_, ()> {
        match grant.granted_by {
            GrantedBy::LocalShare => self.local.give_back(grant),
            GrantedBy::Service => Box::pin(self.give_back_shared(grant)),
        }
    }
}

impl SourceLimits for FallbackLimits {
    fn admit_read(&self, source: SourceKey) -> Result<(), Refusal> {
        self.local.admit_read(source)
    }

    fn admit_delete(&self, source: SourceKey) -> Result<(), Refusal> {
        self.local.admit_delete(source)
    }
}
