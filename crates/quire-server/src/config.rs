//! The settings of `quire serve`: flags and `QUIRE_*` variables, checked as a whole before anything is opened.
//!
//! [`ServeArgs`] is what was written, [`Config`] what was meant. Between them stands [`ServeArgs::check`], whose
//! every error names a flag. Nothing here touches the file system or the network, and what might be a secret
//! is shown neither by an error nor by `Debug`.

use std::{net::SocketAddr, num::NonZeroU32, time::Duration};

use clap::{Args, ValueEnum};
use quire_core::{admission::Budgets, source::TrustedProxies};

pub mod admission;
mod error;
pub mod stores;
pub mod units;
pub mod url;

use admission::{Admission, AdmissionArgs, LimitStore};
pub use error::ConfigError;
use error::{DEADLINES_PER_GRACE, ORPHAN_GRACE, Problem};
use stores::{StoreArgs, Stores};
use units::UnitError;
use url::{BaseUrl, Origin};

/// The flags of `quire serve`.
#[derive(Args, Clone, Debug)]
pub struct ServeArgs {
    /// Public listener, IP:PORT; port 0 picks a free one and logs it
    #[arg(
        long,
        env = "QUIRE_LISTEN",
        value_name = "ADDR",
        default_value = "127.0.0.1:8080",
        help_heading = "Listening"
    )]
    pub listen: String,

    /// Listener for metrics and health, IP:PORT; keep it private
    #[arg(
        long,
        env = "QUIRE_ADMIN_LISTEN",
        value_name = "ADDR",
        default_value = "127.0.0.1:8081",
        help_heading = "Listening"
    )]
    pub admin_listen: String,

    /// What links begin with.
    #[arg(
        long,
        env = "QUIRE_PUBLIC_URL",
        value_name = "URL",
        hide_env_values = true,
        help_heading = "Listening",
        help = "What links begin with, as in https://paste.example or https://example.org/paste \
                [default: http:// and the address listened on]"
    )]
    pub public_url: Option<String>,

    /// The stores.
    #[command(flatten)]
    pub stores: StoreArgs,

    /// Free disk space under which creates are refused with 503: a size or a share, as in 20GB or 5%
    #[arg(
        long,
        env = "QUIRE_DISK_RESERVE",
        value_name = "SIZE|SHARE",
        default_value = "5%",
        help_heading = "Storage"
    )]
    pub disk_reserve: String,

    /// How long a create may take from its first step to its commit, as in 60s
    #[arg(
        long,
        env = "QUIRE_COMMIT_DEADLINE",
        value_name = "DURATION",
        default_value = "60s",
        help_heading = "Storage"
    )]
    pub commit_deadline: String,

    /// The limiter.
    #[command(flatten)]
    pub admission: AdmissionArgs,

    /// Requests, and creates among them, that one source may have in flight; or 'off'
    #[arg(
        long,
        env = "QUIRE_SOURCE_IN_FLIGHT",
        value_name = "REQUESTS,CREATES",
        default_value = "64,16",
        help_heading = "Limits"
    )]
    pub source_in_flight: String,

    /// Sites whose pages may create and delete from a browser; repeatable or comma-separated
    #[arg(
        long,
        env = "QUIRE_ALLOW_ORIGIN",
        value_name = "ORIGIN",
        value_delimiter = ',',
        help_heading = "Limits"
    )]
    pub allow_origin: Vec<String>,

    /// How long a shared cache may hold a paste, in whole seconds; 0s makes caches ask every time
    #[arg(
        long,
        env = "QUIRE_CACHE_MAX_AGE",
        value_name = "DURATION",
        default_value = "30s",
        help_heading = "Caching"
    )]
    pub cache_max_age: String,

    /// Memory for hot pastes; 0 switches the cache off
    #[arg(
        long,
        env = "QUIRE_CACHE_BYTES",
        value_name = "SIZE",
        default_value = "64MB",
        help_heading = "Caching"
    )]
    pub cache_bytes: String,

    /// How long after SIGTERM or SIGINT to go on accepting while /readyz says 503
    #[arg(
        long,
        env = "QUIRE_DRAIN_WAIT",
        value_name = "DURATION",
        default_value = "0s",
        help_heading = "Operations"
    )]
    pub drain_wait: String,

    /// Form of the log lines: text for people, json for machines
    #[arg(
        long,
        env = "QUIRE_LOG",
        value_name = "FORM",
        value_enum,
        default_value = "text",
        help_heading = "Operations"
    )]
    pub log: LogFormat,

    /// The least important lines that are logged
    #[arg(
        long,
        env = "QUIRE_LOG_LEVEL",
        value_name = "LEVEL",
        value_enum,
        default_value = "info",
        help_heading = "Operations"
    )]
    pub log_level: LogLevel,
}

/// The form of log lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// For people.
    Text,
    /// For machines, an object a line.
    Json,
}

/// How important a line must be to be logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogLevel {
    /// Faults alone.
    Error,
    /// And what may become one.
    Warn,
    /// And what a process does once.
    Info,
    /// And what a request does.
    Debug,
    /// Everything.
    Trace,
}

impl From<LogLevel> for tracing::Level {
    fn from(level: LogLevel) -> Self {
        match level {
            LogLevel::Error => Self::ERROR,
            LogLevel::Warn => Self::WARN,
            LogLevel::Info => Self::INFO,
            LogLevel::Debug => Self::DEBUG,
            LogLevel::Trace => Self::TRACE,
        }
    }
}

/// The settings of a server, every one checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Public listener.
    pub listen: SocketAddr,
    /// Listener for metrics and health.
    pub admin_listen: SocketAddr,
    /// What links begin with; `None` means `http://` and the address that was bound.
    pub public_url: Option<BaseUrl>,
    /// Where everything is kept.
    pub stores: Stores,
    /// Free space that creates leave alone.
    pub disk_reserve: DiskReserve,
    /// How long a create may take to its commit.
    pub commit_deadline: Duration,
    /// The six budgets.
    pub budgets: Budgets,
    /// Where the state of the create limits is kept.
    pub limits: LimitStore,
    /// How many apps share the service's budgets. There with Redis.
    pub fleet_size: Option<NonZeroU32>,
    /// Whose word is taken for a client's address.
    pub trusted_proxies: TrustedProxies,
    /// What one source may have in flight; `None` if it is not bounded.
    pub source_in_flight: Option<InFlight>,
    /// Sites whose pages may create and delete.
    pub allow_origins: Vec<Origin>,
    /// Bound of shared caches, whole seconds.
    pub cache_max_age: Duration,
    /// Memory for hot pastes; 0 if there is no cache.
    pub cache_bytes: u64,
    /// How long to go on accepting after a signal.
    pub drain_wait: Duration,
    /// Form of the log.
    pub log: LogFormat,
    /// How much is logged.
    pub log_level: LogLevel,
}

/// Free space that creates leave alone (contract O8).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiskReserve {
    /// So many bytes.
    Bytes(u64),
    /// So many percent of the file system, under 100.
    Percent(u8),
}

impl DiskReserve {
    /// The reserve on a file system of this size, rounded down.
    #[must_use]
    pub fn bytes_of(self, file_system_bytes: u64) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Percent(percent) => {
                let share = u128::from(file_system_bytes) * u128::from(percent) / 100;
                u64::try_from(share).unwrap_or(u64::MAX)
            }
        }
    }
}

/// What one source may have in flight (contract H2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InFlight {
    /// Requests of any kind.
    pub requests_max: u32,
    /// Creates among them.
    pub creates_max: u32,
}

impl TryFrom<ServeArgs> for Config {
    type Error = ConfigError;

    fn try_from(args: ServeArgs) -> Result<Self, Self::Error> {
        args.check()
    }
}

impl ServeArgs {
    /// Checks every flag, alone and against the others; opens nothing.
    ///
    /// # Errors
    /// Names the first flag that is wrong.
    pub fn check(&self) -> Result<Config, ConfigError> {
        let listen = address("--listen", &self.listen)?;
        let admin_listen = address("--admin-listen", &self.admin_listen)?;
        if listen == admin_listen && listen.port() != 0 {
            return Err(ConfigError::new("--admin-listen", Problem::SameAs("--listen")));
        }
        let wrong_url = |flag| move |error| ConfigError::new(flag, Problem::Url(error));
        let public_url = self.public_url.as_deref().map(BaseUrl::parse).transpose();
        let allow_origins = self.allow_origin.iter().map(|written| Origin::parse(written)).collect();
        let Admission { budgets, limits, fleet_size, trusted_proxies } = self.admission.check()?;
        Ok(Config {
            listen,
            admin_listen,
            public_url: public_url.map_err(wrong_url("--public-url"))?,
            stores: self.stores.check()?,
            disk_reserve: disk_reserve("--disk-reserve", &self.disk_reserve)?,
            commit_deadline: commit_deadline("--commit-deadline", &self.commit_deadline)?,
            budgets,
            limits,
            fleet_size,
            trusted_proxies,
            source_in_flight: in_flight("--source-in-flight", &self.source_in_flight)?,
            allow_origins: Result::map_err(allow_origins, wrong_url("--allow-origin"))?,
            cache_max_age: whole_seconds("--cache-max-age", &self.cache_max_age)?,
            cache_bytes: quantity("--cache-bytes", &self.cache_bytes, units::parse_size_bytes)?,
            drain_wait: quantity("--drain-wait", &self.drain_wait, units::parse_duration)?,
            log: self.log,
            log_level: self.log_level,
        })
    }
}

fn address(flag: &'static str, written: &str) -> Result<SocketAddr, ConfigError> {
    written.parse().map_err(|_| ConfigError::new(flag, Problem::NotAnAddress(written.to_owned())))
}

fn quantity<T>(
    flag: &'static str,
    written: &str,
    parse: impl FnOnce(&str) -> Result<T, UnitError>,
) -> Result<T, ConfigError> {
    parse(written).map_err(|error| ConfigError::new(flag, Problem::NotAQuantity(written.to_owned(), error)))
}

fn disk_reserve(flag: &'static str, written: &str) -> Result<DiskReserve, ConfigError> {
    if written.ends_with('%') {
        quantity(flag, written, units::parse_share_percent).map(DiskReserve::Percent)
    } else {
        quantity(flag, written, units::parse_size_bytes).map(DiskReserve::Bytes)
    }
}

fn commit_deadline(flag: &'static str, written: &str) -> Result<Duration, ConfigError> {
    let deadline = quantity(flag, written, units::parse_duration)?;
    let longest = ORPHAN_GRACE / DEADLINES_PER_GRACE;
    if deadline.is_zero() {
        Err(ConfigError::new(flag, Problem::Zero))
    } else if deadline > longest {
        Err(ConfigError::new(flag, Problem::TooLong(longest)))
    } else {
        Ok(deadline)
    }
}

fn whole_seconds(flag: &'static str, written: &str) -> Result<Duration, ConfigError> {
    let duration = quantity(flag, written, units::parse_duration)?;
    if duration.subsec_nanos() == 0 {
        Ok(duration)
    } else {
        Err(ConfigError::new(flag, Problem::PartsOfSeconds))
    }
}

fn in_flight(flag: &'static str, written: &str) -> Result<Option<InFlight>, ConfigError> {
    if written == "off" {
        return Ok(None);
    }
    let count = |written: &str| written.parse::<u32>().ok().filter(|count| *count > 0);
    let counts = written.split_once(',').and_then(|(requests, creates)| {
        let (requests_max, creates_max) = (count(requests)?, count(creates)?);
        (creates_max <= requests_max).then_some(InFlight { requests_max, creates_max })
    });
    match counts {
        Some(counts) => Ok(Some(counts)),
        None => Err(ConfigError::new(flag, Problem::NotInFlight(written.to_owned()))),
    }
}

#[cfg(test)]
mod tests;
