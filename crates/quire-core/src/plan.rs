//! What a plan needs, and what the budgets bound: the arithmetic of `quire plan` and of the line at start-up.
//!
//! Pure functions over integers. A quantity that is no whole number is a [`Ratio`], exact until it is shown, so
//! that nothing here is a float that has lost its last digits. What is bounded is bounded from above: a rest is
//! rounded against the operator, never in their favour.
//!
//! | module | what lives there |
//! | --- | --- |
//! | this one | a plan, and what it needs in rates, bytes and ids |
//! | [`bounds`] | the most that anyone can store under the budgets, and how long until that fills a disk |
//! | [`advice`] | where budgets contradict each other or the plan, and what none of them stops |
//! | [`ratio`] | exact quotients |
//! | [`show`] | quantities as people read them |

use std::time::Duration;

use crate::paste::BODY_BYTES_MAX;

pub mod advice;
pub mod bounds;
pub mod ratio;
pub mod show;
#[cfg(test)]
mod tests;

use ratio::Ratio;

/// Seconds in a day.
pub const DAY_S: u64 = 86_400;
/// How much more comes at the busiest time than on average.
pub const PEAK_FACTOR: u64 = 3;
/// What a row takes on disk, its index entries included: about.
pub const ROW_BYTES: u64 = 300;
/// For how long ids are counted: none is ever used again.
const ID_DAYS: u128 = 10 * 365;
/// Letters and digits that an id is made of.
const ID_ALPHABET: u128 = 62;
/// Characters of an id of quire (contract M1).
pub const ID_CHARACTERS: u32 = 12;
/// Lengths that the table of collisions compares.
pub const ID_CHARACTERS_COMPARED: [u32; 4] = [8, 10, ID_CHARACTERS, 16];
/// The longest that a paste lives (contract section 1).
const RETENTION_MAX: Duration = Duration::from_hours(365 * 24);
/// A hundred thousand times the plan of the contract; the squares of ids in ten years then fit into 128 bits
/// with room to spare.
pub const CREATES_PER_DAY_MAX: u64 = 1_000_000_000_000;

/// What a service is sized for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    creates_per_day: u64,
    mean_body_bytes: u64,
    retention: Duration,
}

/// Why three numbers make no plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// Nothing to plan, or more than can be counted.
    #[error("must be at least 1 and at most {CREATES_PER_DAY_MAX} creates a day")]
    Creates,
    /// No paste is empty, none is larger than the largest.
    #[error("must be at least 1 byte and at most {BODY_BYTES_MAX} bytes")]
    Body,
    /// No paste lives longer than the longest lifetime.
    #[error("must be longer than nothing and at most 365d, which is the longest that a paste lives")]
    Retention,
}

impl Plan {
    /// A plan for so many creates a day, of so many bytes on average, that live for `retention` on average.
    ///
    /// # Errors
    /// Says which of the three makes no plan.
    pub fn new(creates_per_day: u64, mean_body_bytes: u64, retention: Duration) -> Result<Self, PlanError> {
        let body_max = u64::try_from(BODY_BYTES_MAX).unwrap_or(u64::MAX);
        if !(1..=CREATES_PER_DAY_MAX).contains(&creates_per_day) {
            Err(PlanError::Creates)
        } else if !(1..=body_max).contains(&mean_body_bytes) {
            Err(PlanError::Body)
        } else if retention.is_zero() || retention > RETENTION_MAX {
            Err(PlanError::Retention)
        } else {
            Ok(Self { creates_per_day, mean_body_bytes, retention })
        }
    }

    /// The same kind of pastes, `factor` times as many.
    ///
    /// # Errors
    /// That would be more than can be counted, or nothing.
    pub fn times(self, factor: u64) -> Result<Self, PlanError> {
        let creates_per_day = self.creates_per_day.checked_mul(factor).ok_or(PlanError::Creates)?;
        Self::new(creates_per_day, self.mean_body_bytes, self.retention)
    }

    /// New pastes a day.
    #[must_use]
    pub const fn creates_per_day(self) -> u64 {
        self.creates_per_day
    }

    /// Bytes of a body, on average.
    #[must_use]
    pub const fn mean_body_bytes(self) -> u64 {
        self.mean_body_bytes
    }

    /// How long a paste lives, on average.
    #[must_use]
    pub const fn retention(self) -> Duration {
        self.retention
    }

    /// Creates a second, on average over a day.
    #[must_use]
    pub fn creates_per_s(self) -> Ratio {
        Ratio::new(u128::from(self.creates_per_day), u128::from(DAY_S))
    }

    /// Creates a second at the busiest time.
    #[must_use]
    pub fn peak_creates_per_s(self) -> Ratio {
        self.creates_per_s().times(PEAK_FACTOR)
    }

    /// Bytes of new bodies a day.
    #[must_use]
    pub fn bytes_per_day(self) -> u128 {
        u128::from(self.creates_per_day) * u128::from(self.mean_body_bytes)
    }

    /// Bytes of new bodies a second, on average over a day.
    #[must_use]
    pub fn bytes_per_s(self) -> Ratio {
        Ratio::new(self.bytes_per_day(), u128::from(DAY_S))
    }

    /// Bytes of new bodies a second at the busiest time.
    #[must_use]
    pub fn peak_bytes_per_s(self) -> Ratio {
        self.bytes_per_s().times(PEAK_FACTOR)
    }

    /// Pastes that are alive at once when as many expire as are made.
    #[must_use]
    pub fn live_pastes(self) -> u128 {
        let day_ms = u128::from(DAY_S) * 1_000;
        (u128::from(self.creates_per_day) * self.retention.as_millis()).div_ceil(day_ms)
    }

    /// Bytes of the bodies alive at once.
    #[must_use]
    pub fn live_body_bytes(self) -> u128 {
        self.live_pastes() * u128::from(self.mean_body_bytes)
    }

    /// Bytes of the rows alive at once.
    #[must_use]
    pub fn live_row_bytes(self) -> u128 {
        self.live_pastes() * u128::from(ROW_BYTES)
    }

    /// What the stores must hold: bodies and rows alive at once.
    #[must_use]
    pub fn capacity_bytes(self) -> u128 {
        self.live_body_bytes() + self.live_row_bytes()
    }

    /// Ids minted in ten years.
    #[must_use]
    pub fn ids_in_ten_years(self) -> u128 {
        u128::from(self.creates_per_day) * ID_DAYS
    }

    /// How often an id is expected to be minted that was minted before, in ten years, if ids had so many
    /// characters: the birthday bound n²/(2·62^k).
    #[must_use]
    pub fn id_collisions(self, characters: u32) -> Ratio {
        let minted = self.ids_in_ten_years();
        Ratio::new(minted.saturating_mul(minted), ids_of(characters).saturating_mul(2))
    }
}

/// How many ids of so many characters there are; past 21 characters, as many as can be counted.
#[must_use]
pub const fn ids_of(characters: u32) -> u128 {
    ID_ALPHABET.saturating_pow(characters)
}
