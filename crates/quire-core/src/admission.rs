//! Token buckets: who may create, read or delete how much (contract section 5). Pure arithmetic, and the one
//! truth about it: the in-process limiter calls it and the shared one is held equal to it by a test.
//!
//! # Units and error
//!
//! Time is whole microseconds of whichever clock the caller keeps; tokens are counted in millionths. A rate
//! of `r` tokens a second adds exactly `r` millionths a microsecond, so refilling is integer multiplication
//! without rounding: the largest error is the microsecond to which the clock is read, that is `r`
//! millionths of a token a call, and never in the client's favour. The largest level, 20 MB of byte tokens,
//! is 2e13 and stays exact in the double-precision numbers of a script too (2^53 = 9e15).

use std::{
    num::{NonZeroU32, NonZeroU64},
    time::Duration,
};

use crate::paste::BODY_BYTES_MAX;

/// Millionths in a token, and microseconds in a second.
const MICRO: u64 = 1_000_000;

/// A local share is this much of its app's part: 1.25.
const SHARE_NUMERATOR: u64 = 5;
const SHARE_DENOMINATOR: u64 = 4;

/// A bucket's two numbers: it refills continuously at `rate_per_s` up to `burst`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    rate_per_s: NonZeroU64,
    burst: NonZeroU64,
}

/// Why two numbers make no budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BudgetError {
    /// A bucket that never refills would refuse for ever.
    #[error("the rate must be at least 1 a second")]
    RateZero,
    /// A bucket that holds nothing would refuse everything.
    #[error("the burst must be at least 1")]
    BurstZero,
    /// Past this the arithmetic would not be exact.
    #[error("rate and burst must be at most {BUDGET_MAX}")]
    TooLarge,
}

/// Largest rate and burst: a thousand times the plan, and a level that is still exact in a double.
pub const BUDGET_MAX: u64 = 4_000_000_000;

impl Budget {
    /// A budget of `rate_per_s` tokens a second and at most `burst` at once.
    ///
    /// # Errors
    /// The numbers make no budget.
    pub fn new(rate_per_s: u64, burst: u64) -> Result<Self, BudgetError> {
        if rate_per_s > BUDGET_MAX || burst > BUDGET_MAX {
            return Err(BudgetError::TooLarge);
        }
        Ok(Self {
            rate_per_s: NonZeroU64::new(rate_per_s).ok_or(BudgetError::RateZero)?,
            burst: NonZeroU64::new(burst).ok_or(BudgetError::BurstZero)?,
        })
    }

    /// Tokens a second.
    #[must_use]
    pub const fn rate_per_s(self) -> u64 {
        self.rate_per_s.get()
    }

    /// Most tokens at once.
    #[must_use]
    pub const fn burst(self) -> u64 {
        self.burst.get()
    }

    /// What one app of a fleet enforces while the shared state cannot be reached (contract A5): its part of
    /// rate and burst, times 1.25 for an uneven balancer, but no burst under `burst_min`. Rounded down, so
    /// that the parts of a fleet together stay under 1.25 times the whole.
    fn local_share(self, fleet_size: NonZeroU32, burst_min: u64) -> Self {
        let part = |whole: NonZeroU64, min: u64| {
            // Both are bounded by `BUDGET_MAX`, so that the product is far from overflowing.
            let part = whole.get() * SHARE_NUMERATOR / (SHARE_DENOMINATOR * u64::from(fleet_size.get()));
            NonZeroU64::new(part.max(min)).unwrap_or(NonZeroU64::MIN)
        };
        Self { rate_per_s: part(self.rate_per_s, 1), burst: part(self.burst, burst_min) }
    }

    /// Whether the largest body fits into a bucket of bytes; one that does not could never be admitted.
    #[must_use]
    pub fn holds_one_body(self) -> bool {
        usize::try_from(self.burst()).is_ok_and(|burst| burst >= BODY_BYTES_MAX)
    }

    const fn full_micro(self) -> u64 {
        self.burst.get() * MICRO
    }

    /// After so many microseconds an empty bucket is full.
    const fn fill_time_us(self) -> u64 {
        self.full_micro().div_ceil(self.rate_per_s.get())
    }
}

/// What a bucket holds, and when that was true.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bucket {
    /// Tokens in millionths.
    pub level_micro: u64,
    /// The caller's clock in microseconds.
    pub at_us: u64,
}

impl Bucket {
    /// A bucket nobody has taken from.
    #[must_use]
    pub const fn full(budget: Budget, now_us: u64) -> Self {
        Self { level_micro: budget.full_micro(), at_us: now_us }
    }

    /// The bucket as it is now. A clock that has stepped back refills nothing, and refilling goes on from
    /// the new time: otherwise a bucket would stand still until the clock caught up.
    #[must_use]
    pub fn refilled(self, budget: Budget, now_us: u64) -> Self {
        // Clamped first, so that no idle time is long enough to overflow the product.
        let elapsed_us = now_us.saturating_sub(self.at_us).min(budget.fill_time_us());
        let added_micro = budget.rate_per_s() * elapsed_us;
        let level_micro = (self.level_micro + added_micro).min(budget.full_micro());
        Self { level_micro, at_us: now_us }
    }

    /// Whether it is full now, so that forgetting it changes nothing.
    #[must_use]
    pub fn is_full(self, budget: Budget, now_us: u64) -> bool {
        self.refilled(budget, now_us).level_micro == budget.full_micro()
    }

    /// How long until `cost` tokens are there, if nobody else takes any; zero if they are there now. The
    /// bucket must have been refilled.
    fn wait_us(self, budget: Budget, cost: u64) -> u64 {
        (cost * MICRO).saturating_sub(self.level_micro).div_ceil(budget.rate_per_s())
    }

    /// A wait is counted from now, so a bucket whose time lies ahead of a clock that was set back has to
    /// refill from now on too, or the wait that a refusal names would not be true.
    fn step_back_with_the_clock(&mut self, now_us: u64) {
        self.at_us = self.at_us.min(now_us);
    }

    fn without(self, cost: u64) -> Self {
        Self { level_micro: self.level_micro.saturating_sub(cost * MICRO), ..self }
    }

    /// The bucket with `cost` tokens put back, never above the burst.
    #[must_use]
    pub fn given_back(self, budget: Budget, now_us: u64, cost: u64) -> Self {
        let refilled = self.refilled(budget, now_us);
        let level_micro = refilled.level_micro.saturating_add(cost * MICRO).min(budget.full_micro());
        Self { level_micro, ..refilled }
    }
}

/// Which bucket refused, by the name the client is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// One source's creates.
    SourceCreates,
    /// One source's bytes.
    SourceBytes,
    /// Everybody's creates.
    ServiceCreates,
    /// Everybody's bytes.
    ServiceBytes,
    /// One source's reads.
    SourceReads,
    /// One source's deletes.
    SourceDeletes,
}

impl Limit {
    /// Every bucket.
    pub const ALL: [Self; 6] = [
        Self::SourceCreates,
        Self::SourceBytes,
        Self::ServiceCreates,
        Self::ServiceBytes,
        Self::SourceReads,
        Self::SourceDeletes,
    ];

    /// The name in answers and metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::SourceCreates => "source_creates",
            Self::SourceBytes => "source_bytes",
            Self::ServiceCreates => "service_creates",
            Self::ServiceBytes => "service_bytes",
            Self::SourceReads => "source_reads",
            Self::SourceDeletes => "source_deletes",
        }
    }
}

/// A refusal that is true: after this long, with nobody else taking anything, the same request is admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The bucket with the longest wait.
    pub limit: Limit,
    /// That wait.
    pub wait: Duration,
}

impl Refusal {
    /// The wait in whole seconds, rounded up, at least one: what `Retry-After` says.
    #[must_use]
    pub fn retry_after_s(self) -> u64 {
        let partial = u64::from(self.wait.subsec_nanos() > 0);
        (self.wait.as_secs() + partial).max(1)
    }
}

/// The two budgets of a create, for one source or for the service: creates, and declared bytes. `None` is no
/// limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CreateBudgets {
    /// Creates.
    pub creates: Option<Budget>,
    /// Declared bytes.
    pub bytes: Option<Budget>,
}

impl CreateBudgets {
    /// An app's share of the service's budgets while the shared state cannot be reached. It always has room
    /// for one create and one paste of the largest size.
    #[must_use]
    pub fn local_share(self, fleet_size: NonZeroU32) -> Self {
        let body_bytes_max = u64::try_from(BODY_BYTES_MAX).unwrap_or(u64::MAX);
        Self {
            creates: self.creates.map(|budget| budget.local_share(fleet_size, 1)),
            bytes: self.bytes.map(|budget| budget.local_share(fleet_size, body_bytes_max)),
        }
    }
}

/// The two buckets that go with [`CreateBudgets`]. One without a budget is never looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CreateBuckets {
    /// Creates.
    pub creates: Bucket,
    /// Declared bytes.
    pub bytes: Bucket,
}

impl CreateBuckets {
    /// Buckets nobody has taken from.
    #[must_use]
    pub fn full(budgets: CreateBudgets, now_us: u64) -> Self {
        let full = |budget: Option<Budget>| {
            budget.map_or(Bucket { level_micro: 0, at_us: now_us }, |budget| Bucket::full(budget, now_us))
        };
        Self { creates: full(budgets.creates), bytes: full(budgets.bytes) }
    }

    /// Whether both are full, so that forgetting them changes nothing.
    #[must_use]
    pub fn are_full(self, budgets: CreateBudgets, now_us: u64) -> bool {
        let full = |bucket: Bucket, budget: Option<Budget>| {
            budget.is_none_or(|budget| bucket.is_full(budget, now_us))
        };
        full(self.creates, budgets.creates) && full(self.bytes, budgets.bytes)
    }

    fn refilled(self, budgets: CreateBudgets, now_us: u64) -> Self {
        let refilled = |bucket: Bucket, budget: Option<Budget>| {
            budget.map_or(bucket, |budget| bucket.refilled(budget, now_us))
        };
        Self { creates: refilled(self.creates, budgets.creates), bytes: refilled(self.bytes, budgets.bytes) }
    }

    fn step_back_with_the_clock(&mut self, now_us: u64) {
        self.creates.step_back_with_the_clock(now_us);
        self.bytes.step_back_with_the_clock(now_us);
    }

    fn without(self, bytes: u64) -> Self {
        Self { creates: self.creates.without(1), bytes: self.bytes.without(bytes) }
    }

    /// The buckets after a create of `bytes` that somebody else let in: charged for it as far as there is
    /// something to take.
    #[must_use]
    pub fn charged(self, budgets: CreateBudgets, now_us: u64, bytes: u64) -> Self {
        self.refilled(budgets, now_us).without(bytes)
    }

    /// Puts one create of `bytes` back, never above the bursts (contract A2).
    #[must_use]
    pub fn given_back(self, budgets: CreateBudgets, now_us: u64, bytes: u64) -> Self {
        let put_back = |bucket: Bucket, budget: Option<Budget>, cost: u64| {
            budget.map_or(bucket, |budget| bucket.given_back(budget, now_us, cost))
        };
        Self {
            creates: put_back(self.creates, budgets.creates, 1),
            bytes: put_back(self.bytes, budgets.bytes, bytes),
        }
    }
}

/// What bounds a create: its source's budgets and the service's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AdmissionBudgets {
    /// Of one source.
    pub source: CreateBudgets,
    /// Of everybody together.
    pub service: CreateBudgets,
}

/// The six budgets (contract section 5). `None` is no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budgets {
    /// Of creates.
    pub creates: AdmissionBudgets,
    /// Of one source's reads.
    pub source_reads: Option<Budget>,
    /// Of one source's deletes.
    pub source_deletes: Option<Budget>,
}

/// Decides a create of `bytes` over all four buckets at once, all or nothing (contract A2): either one
/// create and its bytes are taken from source and service, or nothing is taken from anyone.
///
/// # Errors
/// The refusal names the bucket with the longest wait. No level has changed.
pub fn take_create(
    budgets: &AdmissionBudgets,
    source: &mut CreateBuckets,
    service: &mut CreateBuckets,
    bytes: u64,
    now_us: u64,
) -> Result<(), Refusal> {
    let source_now = source.refilled(budgets.source, now_us);
    let service_now = service.refilled(budgets.service, now_us);
    let wait_us = |bucket: Bucket, budget: Option<Budget>, cost: u64| {
        budget.map_or(0, |budget| bucket.wait_us(budget, cost))
    };
    let waits = [
        (Limit::SourceCreates, wait_us(source_now.creates, budgets.source.creates, 1)),
        (Limit::SourceBytes, wait_us(source_now.bytes, budgets.source.bytes, bytes)),
        (Limit::ServiceCreates, wait_us(service_now.creates, budgets.service.creates, 1)),
        (Limit::ServiceBytes, wait_us(service_now.bytes, budgets.service.bytes, bytes)),
    ];
    let longest = waits.into_iter().filter(|(_, wait_us)| *wait_us > 0).max_by_key(|(_, wait_us)| *wait_us);
    if let Some((limit, wait_us)) = longest {
        source.step_back_with_the_clock(now_us);
        service.step_back_with_the_clock(now_us);
        return Err(Refusal { limit, wait: Duration::from_micros(wait_us) });
    }
    *source = source_now.without(bytes);
    *service = service_now.without(bytes);
    Ok(())
}

/// Takes one token from a single bucket: a read or a delete.
///
/// # Errors
/// The refusal names `limit`; the bucket has not changed.
pub fn take_one(budget: Budget, bucket: &mut Bucket, limit: Limit, now_us: u64) -> Result<(), Refusal> {
    let now = bucket.refilled(budget, now_us);
    match now.wait_us(budget, 1) {
        0 => {
            *bucket = now.without(1);
            Ok(())
        }
        wait_us => {
            bucket.step_back_with_the_clock(now_us);
            Err(Refusal { limit, wait: Duration::from_micros(wait_us) })
        }
    }
}

#[cfg(test)]
mod tests;
