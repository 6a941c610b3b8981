//! The most that can be stored under the budgets, by whoever does their worst.
//!
//! Every bucket bounds what it counts by a straight line, `burst + rate * t` (contract A1). Pastes and their bytes
//! are bounded by several at once: a source's bytes by its own bucket of bytes, by its creates times the
//! largest body, and by both of the service's. The least of the lines is the bound.

use std::num::NonZeroU32;

use super::{DAY_S, ROW_BYTES};
use crate::{
    admission::{AdmissionBudgets, Budget, CreateBudgets},
    paste::BODY_BYTES_MAX,
};

/// While the limiter's store is down, the shares of all apps together are 5/4 of the service's budgets, because a
/// balancer does not share evenly (contract A5).
const OUTAGE_NUMERATOR: u128 = 5;
const OUTAGE_DENOMINATOR: u128 = 4;

/// The largest body, in the numbers used here.
pub(super) fn body_bytes_max() -> u128 {
    u128::try_from(BODY_BYTES_MAX).unwrap_or(u128::MAX)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Line {
    burst: u128,
    rate_per_s: u128,
}

impl Line {
    fn after_s(self, seconds: u64) -> u128 {
        self.burst.saturating_add(self.rate_per_s.saturating_mul(u128::from(seconds)))
    }

    /// In which whole second the amount is reached.
    fn seconds_to(self, amount: u128) -> u128 {
        amount.saturating_sub(self.burst).checked_div(self.rate_per_s).unwrap_or(u128::MAX)
    }
}

/// The least of several straight lines over time; without any, no bound at all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bound(Vec<Line>);

impl Bound {
    fn of(budget: Option<Budget>) -> Self {
        let line = |budget: Budget| Line {
            burst: u128::from(budget.burst()),
            rate_per_s: u128::from(budget.rate_per_s()),
        };
        Self(budget.map(line).into_iter().collect())
    }

    /// The most there can be after so many seconds, in which everything was tried; `None` without bound.
    #[must_use]
    pub fn after_s(&self, seconds: u64) -> Option<u128> {
        self.0.iter().map(|line| line.after_s(seconds)).min()
    }

    /// The most in a day, the burst that it may begin with included.
    #[must_use]
    pub fn in_a_day(&self) -> Option<u128> {
        self.after_s(DAY_S)
    }

    /// The first second in which there can be so much; `None` if nothing bounds it, so that it may be at once.
    #[must_use]
    pub fn seconds_to(&self, amount: u128) -> Option<u128> {
        self.0.iter().map(|line| line.seconds_to(amount)).max()
    }

    /// Bounded by both.
    fn and(mut self, other: &Self) -> Self {
        self.0.extend(other.0.iter().copied().filter(|line| !self.0.contains(line)).collect::<Vec<_>>());
        self
    }

    fn times(&self, factor: u128) -> Self {
        self.each(|line| Line {
            burst: line.burst.saturating_mul(factor),
            rate_per_s: line.rate_per_s.saturating_mul(factor),
        })
    }

    fn each(&self, change: impl FnMut(Line) -> Line) -> Self {
        Self(self.0.iter().copied().map(change).collect())
    }

    /// The bound of a sum. The least of one plus the least of the other is the least over all pairs; if one has
    /// no bound, the sum has none.
    fn plus(&self, other: &Self) -> Self {
        let sum = |one: &Line, two: &Line| Line {
            burst: one.burst.saturating_add(two.burst),
            rate_per_s: one.rate_per_s.saturating_add(two.rate_per_s),
        };
        Self(self.0.iter().flat_map(|one| other.0.iter().map(move |two| sum(one, two))).collect())
    }

    /// What the local shares of an outage give out in all: 5/4 of the budget, but every app at least
    /// `share_burst_min` at once and one a second, since a share of less would refuse for ever.
    fn shared_out(&self, apps: u128, share_burst_min: u128) -> Self {
        let widened = |number: u128| number.saturating_mul(OUTAGE_NUMERATOR).div_ceil(OUTAGE_DENOMINATOR);
        self.each(|line| Line {
            burst: widened(line.burst).max(apps.saturating_mul(share_burst_min)),
            rate_per_s: widened(line.rate_per_s).max(apps),
        })
    }
}

/// What somebody can store who does their worst.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flood {
    /// Pastes.
    pub creates: Bound,
    /// Bytes of their bodies.
    pub body_bytes: Bound,
}

impl Flood {
    fn of(budgets: CreateBudgets) -> Self {
        Self::under(&Bound::of(budgets.creates), &Bound::of(budgets.bytes))
    }

    /// No body is larger than the largest, and none is empty: each of the two bounds the other.
    fn under(creates: &Bound, bytes: &Bound) -> Self {
        Self {
            body_bytes: bytes.clone().and(&creates.times(body_bytes_max())),
            creates: creates.clone().and(bytes),
        }
    }

    fn within(self, other: &Self) -> Self {
        Self { creates: self.creates.and(&other.creates), body_bytes: self.body_bytes.and(&other.body_bytes) }
    }

    fn times(&self, factor: u128) -> Self {
        Self { creates: self.creates.times(factor), body_bytes: self.body_bytes.times(factor) }
    }

    /// Bytes on disk: bodies and rows.
    #[must_use]
    pub fn disk_bytes(&self) -> Bound {
        self.body_bytes.plus(&self.creates.times(u128::from(ROW_BYTES)))
    }
}

/// A flood, and what its bodies would be if budgets counted creates alone, as most limits do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorstCase {
    /// Under the budgets as they are.
    pub flood: Flood,
    /// Bytes of bodies, if bytes were not budgeted.
    pub body_bytes_if_counts_only: Bound,
}

impl WorstCase {
    fn new(budgets: &AdmissionBudgets, flood: impl Fn(&AdmissionBudgets) -> Flood) -> Self {
        let counts_only = |budgets: CreateBudgets| CreateBudgets { bytes: None, ..budgets };
        let counts_only =
            AdmissionBudgets { source: counts_only(budgets.source), service: counts_only(budgets.service) };
        Self { flood: flood(budgets), body_bytes_if_counts_only: flood(&counts_only).body_bytes }
    }

    /// One source alone.
    #[must_use]
    pub fn of_source(budgets: &AdmissionBudgets) -> Self {
        Self::new(budgets, |budgets| Flood::of(budgets.source).within(&Flood::of(budgets.service)))
    }

    /// Everybody together.
    #[must_use]
    pub fn of_service(budgets: &AdmissionBudgets) -> Self {
        Self::new(budgets, |budgets| Flood::of(budgets.service))
    }

    /// Everybody together, while no app of the fleet reaches the limiter's store.
    #[must_use]
    pub fn of_outage(budgets: &AdmissionBudgets, apps: NonZeroU32) -> Self {
        Self::new(budgets, |budgets| in_outage(budgets, apps))
    }

    /// Everybody together, while all apps but one do not reach the limiter's store: the one may give out the
    /// whole budget beside the shares of the others. Worse than if nobody reaches it.
    #[must_use]
    pub fn of_partial_outage(budgets: &AdmissionBudgets, apps: NonZeroU32) -> Self {
        let cut_off = u128::from(apps.get() - 1);
        Self::new(budgets, |budgets| {
            let of_all = |bound: &Bound, shared_out: &Bound| {
                let mut shares = shared_out.0.iter();
                bound.each(|line| {
                    let shares = shares.next().copied().unwrap_or(line);
                    let part = |all: u128| all.saturating_mul(cut_off).div_ceil(u128::from(apps.get()));
                    Line {
                        burst: line.burst.saturating_add(part(shares.burst)),
                        rate_per_s: line.rate_per_s.saturating_add(part(shares.rate_per_s)),
                    }
                })
            };
            let (creates, bytes) = (Bound::of(budgets.service.creates), Bound::of(budgets.service.bytes));
            let (creates_shared, bytes_shared) = shared_out(budgets.service, apps);
            Flood::under(&of_all(&creates, &creates_shared), &of_all(&bytes, &bytes_shared))
        })
    }

    /// One source, while no app reaches the limiter's store: it has a budget in each of them.
    #[must_use]
    pub fn of_source_in_outage(budgets: &AdmissionBudgets, apps: NonZeroU32) -> Self {
        Self::new(budgets, |budgets| {
            Flood::of(budgets.source).times(u128::from(apps.get())).within(&in_outage(budgets, apps))
        })
    }
}

fn shared_out(service: CreateBudgets, apps: NonZeroU32) -> (Bound, Bound) {
    let apps = u128::from(apps.get());
    let creates = Bound::of(service.creates).shared_out(apps, 1);
    (creates, Bound::of(service.bytes).shared_out(apps, body_bytes_max()))
}

fn in_outage(budgets: &AdmissionBudgets, apps: NonZeroU32) -> Flood {
    let (creates, bytes) = shared_out(budgets.service, apps);
    Flood::under(&creates, &bytes)
}
