//! The limiter of one process: a bounded table of sources, and the service's two buckets.
//!
//! Promises (contract A7):
//! - Memory is bounded by [`SOURCES_MAX`], whoever comes.
//! - A source is forgotten only when all its buckets are full again, so that forgetting changes nothing.
//! - When a shard is full of sources that are not, newcomers to it share one overflow entry: a flood of new
//!   sources cannot make one that is over its budget be forgotten.
//!
//! Sources are spread over shards with a lock each; no lock is held across anything that waits. The
//! service's buckets are one pair for everybody by their nature and stand behind a lock of their own that is
//! held for the arithmetic alone.

use std::{
    future::ready,
    hash::{BuildHasher as _, RandomState},
    sync::{Arc, Mutex, PoisonError},
};

use quire_core::{
    admission::{Bucket, Budget, Budgets, CreateBuckets, Limit, Refusal, take_create, take_one},
    ports::{Admission, Clock, Grant, GrantedBy, Limits, PortFuture, SourceLimits},
    source::SourceKey,
};

mod shard;
#[cfg(test)]
mod tests;

use shard::{Shard, SourceBuckets, SourceBudgets};

/// Sources remembered at once: at about 100 bytes each, 100 MB.
pub const SOURCES_MAX: usize = 1_000_000;
/// Locks the sources are spread over; far more than there are cores.
const SHARDS: usize = 64;

/// The in-process limiter.
pub struct MemoryLimits {
    budgets: Budgets,
    granted_by: GrantedBy,
    clock: Arc<dyn Clock>,
    hasher: RandomState,
    shards: Vec<Mutex<Shard>>,
    service: Mutex<CreateBuckets>,
}

impl MemoryLimits {
    /// A limiter that has seen nobody yet. `granted_by` is what its grants say.
    #[must_use]
    pub fn new(budgets: Budgets, granted_by: GrantedBy, clock: Arc<dyn Clock>) -> Self {
        Self::with_sources_max(budgets, granted_by, clock, SOURCES_MAX)
    }

    fn with_sources_max(
        budgets: Budgets,
        granted_by: GrantedBy,
        clock: Arc<dyn Clock>,
        sources_max: usize,
    ) -> Self {
        let now_us = micros(&*clock);
        let of_source = SourceBudgets {
            creates: budgets.creates.source,
            reads: budgets.source_reads,
            deletes: budgets.source_deletes,
        };
        let shard = || Mutex::new(Shard::new(of_source, sources_max.div_ceil(SHARDS), now_us));
        Self {
            budgets,
            granted_by,
            hasher: RandomState::new(),
            shards: (0..SHARDS).map(|_| shard()).collect(),
            service: Mutex::new(CreateBuckets::full(budgets.creates.service, now_us)),
            clock,
        }
    }

    /// Runs `decide` on a source's buckets, under its shard's lock.
    fn with_source<T>(
        &self,
        source: SourceKey,
        decide: impl FnOnce(&mut SourceBuckets, u64) -> T,
    ) -> Option<T> {
        let spread = usize::try_from(self.hasher.hash_one(source) >> 32).unwrap_or(0);
        let shard = self.shards.get(spread % SHARDS)?;
        let mut shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
        // Read under the lock: a time from before it was waited for would look like a clock that stepped back.
        let now_us = micros(&*self.clock);
        Some(shard.with(source, now_us, |buckets| decide(buckets, now_us)))
    }

    /// Charges a source for a create that somebody else let in, as far as it has something left.
    pub fn charge_source(&self, source: SourceKey, bytes: u64) {
        let budgets = self.budgets.creates.source;
        self.with_source(source, |buckets, now_us| {
            buckets.creates = buckets.creates.charged(budgets, now_us, bytes);
        });
    }

    fn take_single(
        &self,
        source: SourceKey,
        budget: Option<Budget>,
        limit: Limit,
        of: impl FnOnce(&mut SourceBuckets) -> &mut Bucket,
    ) -> Result<(), Refusal> {
        let Some(budget) = budget else { return Ok(()) };
        let taken = self.with_source(source, |buckets, now_us| take_one(budget, of(buckets), limit, now_us));
        taken.unwrap_or(Ok(()))
    }

    fn decide_create(&self, source: SourceKey, bytes: u64) -> Admission {
        let decided = self.with_source(source, |buckets, now_us| {
            let mut service = self.service.lock().unwrap_or_else(PoisonError::into_inner);
            take_create(&self.budgets.creates, &mut buckets.creates, &mut service, bytes, now_us)
        });
        match decided {
            Some(Err(refusal)) => Admission::Refused(refusal),
            _ => Admission::Admitted(Grant { granted_by: self.granted_by, bytes }),
        }
    }
}

impl Limits for MemoryLimits {
    fn admit_create(&self, source: SourceKey, bytes: u64) -> PortFuture<'_, Admission> {
        Box::pin(ready(Ok(self.decide_create(source, bytes))))
    }

    fn give_back(&self, grant: Grant) -> PortFuture<'_, ()> {
        let mut service = self.service.lock().unwrap_or_else(PoisonError::into_inner);
        *service = service.given_back(self.budgets.creates.service, micros(&*self.clock), grant.bytes);
        Box::pin(ready(Ok(())))
    }
}

impl SourceLimits for MemoryLimits {
    fn admit_read(&self, source: SourceKey) -> Result<(), Refusal> {
        self.take_single(source, self.budgets.source_reads, Limit::SourceReads, |buckets| &mut buckets.reads)
    }

    fn admit_delete(&self, source: SourceKey) -> Result<(), Refusal> {
        self.take_single(source, self.budgets.source_deletes, Limit::SourceDeletes, |buckets| {
            &mut buckets.deletes
        })
    }
}

/// The monotonic clock in the unit of the arithmetic; good for 584,000 years.
fn micros(clock: &dyn Clock) -> u64 {
    u64::try_from(clock.monotonic().as_micros()).unwrap_or(u64::MAX)
}
