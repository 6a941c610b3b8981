//! The limits: six budgets, where the limiter keeps its state, and whose word is taken for a client's address.
//!
//! `quire plan` takes the budgets too, so that what it prints is what `serve` would do.

use std::{fmt, num::NonZeroU32};

use clap::Args;
use http::Uri;
use quire_core::{
    admission::{AdmissionBudgets, Budget, Budgets, CreateBudgets},
    source::TrustedProxies,
};

use super::{ConfigError, Problem, quantity, stores::StoreName, units};

/// The six budgets, and how many apps share two of them.
#[derive(Args, Clone, Debug)]
pub struct BudgetArgs {
    /// Creates of one source, per second and at once; or 'off'
    #[arg(
        long,
        env = "QUIRE_SOURCE_CREATES",
        value_name = "RATE,BURST",
        default_value = "1,10",
        help_heading = "Limits"
    )]
    pub source_creates: String,

    /// Bytes one source may create, per second and at once; or 'off'
    #[arg(
        long,
        env = "QUIRE_SOURCE_BYTES",
        value_name = "RATE,BURST",
        default_value = "100KB,2MB",
        help_heading = "Limits"
    )]
    pub source_bytes: String,

    /// Creates of everybody together, per second and at once; or 'off'
    #[arg(
        long,
        env = "QUIRE_SERVICE_CREATES",
        value_name = "RATE,BURST",
        default_value = "350,100",
        help_heading = "Limits"
    )]
    pub service_creates: String,

    /// Bytes everybody together may create, per second and at once; or 'off'
    #[arg(
        long,
        env = "QUIRE_SERVICE_BYTES",
        value_name = "RATE,BURST",
        default_value = "10MB,20MB",
        help_heading = "Limits"
    )]
    pub service_bytes: String,

    /// Reads of one source from this process, per second and at once; or 'off'
    #[arg(
        long,
        env = "QUIRE_SOURCE_READS",
        value_name = "RATE,BURST",
        default_value = "50,100",
        help_heading = "Limits"
    )]
    pub source_reads: String,

    /// Deletes of one source in this process, per second and at once; or 'off'
    #[arg(
        long,
        env = "QUIRE_SOURCE_DELETES",
        value_name = "RATE,BURST",
        default_value = "5,20",
        help_heading = "Limits"
    )]
    pub source_deletes: String,

    /// How many apps share the service's budgets when the limiter's store is down; needed with redis://
    #[arg(long, env = "QUIRE_FLEET_SIZE", value_name = "APPS", help_heading = "Limits")]
    pub fleet_size: Option<String>,
}

impl BudgetArgs {
    /// The six budgets.
    ///
    /// # Errors
    /// Names the first flag that is wrong.
    pub fn check(&self) -> Result<Budgets, ConfigError> {
        Ok(Budgets {
            creates: AdmissionBudgets {
                source: CreateBudgets {
                    creates: counts("--source-creates", &self.source_creates)?,
                    bytes: bytes("--source-bytes", &self.source_bytes)?,
                },
                service: CreateBudgets {
                    creates: counts("--service-creates", &self.service_creates)?,
                    bytes: bytes("--service-bytes", &self.service_bytes)?,
                },
            },
            source_reads: counts("--source-reads", &self.source_reads)?,
            source_deletes: counts("--source-deletes", &self.source_deletes)?,
        })
    }

    /// The number of apps, if it was given.
    ///
    /// # Errors
    /// It is no count of at least one.
    pub fn check_fleet_size(&self) -> Result<Option<NonZeroU32>, ConfigError> {
        let Some(written) = &self.fleet_size else { return Ok(None) };
        match written.parse() {
            Ok(apps) => Ok(Some(apps)),
            Err(_) => Err(ConfigError::new(FLEET_SIZE, Problem::NotACountOfApps(written.clone()))),
        }
    }
}

const FLEET_SIZE: &str = "--fleet-size";
const LIMITS: &str = "--limits";

/// The flags of the limiter.
#[derive(Args, Clone, Debug)]
pub struct AdmissionArgs {
    /// The budgets.
    #[command(flatten)]
    pub budgets: BudgetArgs,

    /// Where the state of the create limits is kept.
    #[arg(
        long,
        env = "QUIRE_LIMITS",
        value_name = "STORE",
        default_value = "memory:",
        hide_env_values = true,
        help_heading = "Limits",
        help = "Where the state of the create limits is kept: memory: for one app, \
                redis://[USER:PASSWORD@]HOST[:PORT][/DB] (rediss:// with TLS) for a fleet"
    )]
    pub limits: StoreName,

    /// Networks of your own proxies, as in 10.0.0.0/8, whose X-Forwarded-For is believed; repeatable or
    /// comma-separated
    #[arg(
        long,
        env = "QUIRE_TRUSTED_PROXY",
        value_name = "NETWORK",
        value_delimiter = ',',
        help_heading = "Limits"
    )]
    pub trusted_proxy: Vec<String>,
}

/// The limiter's settings, checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Admission {
    pub(super) budgets: Budgets,
    pub(super) limits: LimitStore,
    pub(super) fleet_size: Option<NonZeroU32>,
    pub(super) trusted_proxies: TrustedProxies,
}

impl AdmissionArgs {
    pub(super) fn check(&self) -> Result<Admission, ConfigError> {
        let limits = LimitStore::parse(self.limits.written())?;
        let fleet_size = self.budgets.check_fleet_size()?;
        match (&limits, fleet_size) {
            (LimitStore::Redis(_), None) => {
                return Err(ConfigError::new(FLEET_SIZE, Problem::FleetSizeMissing));
            }
            // Every app would have the whole service budgets to itself, so that the fleet admits as many
            // times what the flags say as there are apps, and nothing would show it.
            (LimitStore::Memory, Some(apps)) if apps.get() > 1 => {
                return Err(ConfigError::new(FLEET_SIZE, Problem::FleetInMemory));
            }
            _ => {}
        }
        Ok(Admission {
            budgets: self.budgets.check()?,
            limits,
            fleet_size,
            trusted_proxies: trusted_proxies("--trusted-proxy", &self.trusted_proxy)?,
        })
    }
}

/// Where the limiter's state is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LimitStore {
    /// In this process.
    Memory,
    /// In a Redis or Valkey that the fleet shares, by its URL.
    Redis(SecretUrl),
}

impl LimitStore {
    fn parse(written: &str) -> Result<Self, ConfigError> {
        if written == "memory:" {
            return Ok(Self::Memory);
        }
        let wrong = |problem| Err(ConfigError::new(LIMITS, problem));
        if !["redis://", "rediss://"].iter().any(|scheme| written.starts_with(scheme)) {
            return wrong(Problem::UnknownStore("memory: or redis://HOST[:PORT][/DB]"));
        }
        // What stands behind could switch the check of certificates off, or the protocol.
        if written.contains(['?', '#']) {
            return wrong(Problem::LimitsUrl);
        }
        let parts = written.parse::<Uri>().map(Uri::into_parts);
        let is_whole = parts.is_ok_and(|parts| {
            let database = parts.path_and_query.as_ref().map_or("/", |path| path.as_str());
            let database = database.strip_prefix('/').unwrap_or(database);
            parts.authority.is_some_and(|authority| names_a_server(&authority))
                && (database.is_empty() || database.parse::<u16>().is_ok())
        });
        if is_whole { Ok(Self::Redis(SecretUrl(written.to_owned()))) } else { wrong(Problem::LimitsUrl) }
    }
}

/// Whether there is a host, and a port that could be connected to if there is one.
fn names_a_server(authority: &http::uri::Authority) -> bool {
    let server = authority.as_str().rsplit('@').next().unwrap_or_default();
    let port = server.strip_prefix(authority.host()).unwrap_or_default();
    let is_port = port.is_empty()
        || port.strip_prefix(':').is_some_and(|port| port.parse::<u16>().is_ok_and(|p| p > 0));
    !authority.host().is_empty() && is_port
}

/// A URL that may carry a password. It is never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct SecretUrl(String);

impl SecretUrl {
    /// The URL with all it carries, for whoever connects.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for SecretUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretUrl(..)")
    }
}

fn counts(flag: &'static str, written: &str) -> Result<Option<Budget>, ConfigError> {
    budget(flag, written, "1,10", units::parse_count)
}

fn bytes(flag: &'static str, written: &str) -> Result<Option<Budget>, ConfigError> {
    let budget = budget(flag, written, "100KB,2MB", units::parse_size_bytes)?;
    if budget.is_none_or(Budget::holds_one_body) {
        Ok(budget)
    } else {
        Err(ConfigError::new(flag, Problem::BurstUnderOnePaste(written.to_owned())))
    }
}

fn budget(
    flag: &'static str,
    written: &str,
    example: &'static str,
    parse: impl Fn(&str) -> Result<u64, units::UnitError>,
) -> Result<Option<Budget>, ConfigError> {
    if written == "off" {
        return Ok(None);
    }
    let not_two = || ConfigError::new(flag, Problem::NotTwoNumbers(written.to_owned(), example));
    let (rate, burst) = written.split_once(',').ok_or_else(not_two)?;
    let (rate, burst) = (quantity(flag, rate, &parse)?, quantity(flag, burst, &parse)?);
    let not_a_budget = |error| ConfigError::new(flag, Problem::NotABudget(written.to_owned(), error));
    Budget::new(rate, burst).map(Some).map_err(not_a_budget)
}

fn trusted_proxies(flag: &'static str, written: &[String]) -> Result<TrustedProxies, ConfigError> {
    // One by one first, so that the error can show which it was.
    for network in written {
        let wrong = |error| ConfigError::new(flag, Problem::NotANetwork(network.clone(), error));
        TrustedProxies::parse([network.as_str()]).map_err(wrong)?;
    }
    TrustedProxies::parse(written.iter().map(String::as_str))
        .map_err(|error| ConfigError::new(flag, Problem::NotANetwork(written.join(","), error)))
}

#[cfg(test)]
mod tests;
