//! What is said of a wrong setting.

use std::{fmt, time::Duration};

use quire_core::{admission::BudgetError, paste::BODY_BYTES_MAX, source::NetworkError};

use super::{units::UnitError, url::UrlError};

/// The grace that protects a fresh body from the janitor (contract O5).
pub(super) const ORPHAN_GRACE: Duration = Duration::from_hours(24);
/// How many deadlines must fit into the grace.
pub(super) const DEADLINES_PER_GRACE: u32 = 10;

/// A flag whose value is wrong or contradicts another.
#[derive(Debug, thiserror::Error)]
#[error("{flag}: {problem}")]
pub struct ConfigError {
    flag: &'static str,
    problem: Problem,
}

impl ConfigError {
    pub(super) const fn new(flag: &'static str, problem: Problem) -> Self {
        Self { flag, problem }
    }

    /// The flag, as it is written on the command line.
    #[must_use]
    pub const fn flag(&self) -> &'static str {
        self.flag
    }
}

/// What is wrong. A value is repeated only where it cannot hold a secret.
#[derive(Debug)]
pub(super) enum Problem {
    NotAnAddress(String),
    NotAQuantity(String, UnitError),
    NotInFlight(String),
    NotTwoNumbers(String, &'static str),
    NotABudget(String, BudgetError),
    BurstUnderOnePaste(String),
    NotACountOfApps(String),
    FleetSizeMissing,
    FleetInMemory,
    LimitsUrl,
    NotANetwork(String, NetworkError),
    Url(UrlError),
    EmptyPath,
    UnknownStore(&'static str),
    NotYet(&'static str),
    SameAs(&'static str),
    TooLong(Duration),
    Zero,
    PartsOfSeconds,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotAnAddress(written) => {
                write!(f, "'{written}' is not an address; write IP:PORT, as in 127.0.0.1:8080 or [::1]:8080")
            }
            Self::NotAQuantity(written, error) => write!(f, "'{written}' {error}"),
            Self::NotInFlight(written) => write!(
                f,
                "'{written}' is not two counts of at least 1, creates not above requests, as in 64,16, nor 'off'"
            ),
            Self::NotTwoNumbers(written, example) => {
                write!(f, "'{written}' is not RATE,BURST a second, as in {example}, nor 'off'")
            }
            Self::NotABudget(written, error) => write!(f, "'{written}': {error}"),
            Self::BurstUnderOnePaste(written) => write!(
                f,
                "'{written}': the burst must be at least {BODY_BYTES_MAX} bytes, or the largest paste would be \
                 refused for ever"
            ),
            Self::NotACountOfApps(written) => {
                write!(f, "'{written}' is not a number of apps; write a whole number of at least 1")
            }
            Self::FleetSizeMissing => f.write_str(
                "is needed when --limits names a Redis: it says which share of the service's budgets this app \
                 may give out while that cannot be reached",
            ),
            Self::FleetInMemory => f.write_str(
                "contradicts --limits memory:, with which every app would have the whole service budgets to \
                 itself; name a Redis that the fleet shares, or leave the flag out",
            ),
            Self::LimitsUrl => f.write_str(
                "is not the URL of a Redis; write redis://[USER:PASSWORD@]HOST[:PORT][/DB], with what \
                 is not a letter or a digit in USER and PASSWORD as %XX",
            ),
            Self::NotANetwork(written, error) => write!(f, "'{written}' {error}"),
            Self::Url(error) => error.fmt(f),
            Self::EmptyPath => f.write_str("must not be empty"),
            Self::UnknownStore(form) => write!(f, "names no store of this version; write {form}"),
            Self::NotYet(store) => write!(f, "this version does not have {store} yet; leave the flag out"),
            Self::SameAs(other) => write!(f, "is the same as {other}"),
            Self::TooLong(longest) => write!(
                f,
                "must be at most {} s, so that a body's grace of {} h is {DEADLINES_PER_GRACE} times as long",
                longest.as_secs(),
                ORPHAN_GRACE.as_secs() / 3_600
            ),
            Self::Zero => f.write_str("must be longer than zero"),
            Self::PartsOfSeconds => f.write_str("must be whole seconds: caches count nothing smaller"),
        }
    }
}
