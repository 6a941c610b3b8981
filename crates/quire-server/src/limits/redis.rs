//! The limiter that a fleet shares: one script call on Redis or Valkey decides all four buckets (contract A5).
//!
//! Promises:
//! - A decision is the one that `quire_core::admission::take_create` makes, by the store's own clock.
//! - A call is answered within [`CALL_BUDGET`], or it is an error.
//! - Every key vanishes by itself soon after its buckets are full again.
//! - A create that reaches the store long after its caller gave up takes nothing: what was sent to a store
//!   that is frozen must not empty the buckets when it thaws.
//!
//! It must never wait longer, try a decision twice (the first try may have taken the tokens), or put an
//! address, a key or the store's own words into an error: a source's key is made of its address.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use quire_core::{
    admission::{AdmissionBudgets, BUDGET_MAX, Budget, CreateBudgets, Limit, Refusal},
    ports::{Admission, Clock, Grant, GrantedBy, Limits, PortError, PortFuture},
    source::SourceKey,
};
use redis::{
    Cmd, ErrorKind, FromRedisValue, IntoConnectionInfo as _, RedisError, ServerErrorKind,
    aio::{ConnectionManager, ConnectionManagerConfig},
};
use tokio::time::timeout;

mod failure;
#[cfg(test)]
mod tests;

use failure::StoreFailure;

/// How long a create waits for the shared state.
pub const CALL_BUDGET: Duration = Duration::from_millis(5);
/// What every key begins with. The number goes up when the meaning of what is stored changes.
pub const KEY_PREFIX: &str = "quire:1:";

/// A decision that the store makes so long after it was asked for is wanted by nobody any more. Far above
/// the error of what is known of its clock, which is the time of one answer and the drift since.
const LATE_AFTER: Duration = Duration::from_secs(1);
/// How long the first connection is waited for at start-up. Without one the server starts all the same.
const START_TIME_MAX: Duration = Duration::from_secs(1);
/// One attempt to connect, the handshake included. The breaker's next probe begins another.
const CONNECT_TIME_MAX: Duration = Duration::from_millis(500);
/// Unacknowledged data for so long means that the machine behind the connection is gone: the kernel then ends
/// the connection and the next probe makes a new one. A frozen server still acknowledges.
const SILENCE_TIME_MAX: Duration = Duration::from_secs(2);
/// Calls that wait to be written; every create in flight fits.
const QUEUE_CALLS_MAX: usize = 1_024;

/// Why the URL of the shared state cannot be used. It does not repeat the URL, which may hold a password.
#[derive(Debug, thiserror::Error)]
#[error("is not the URL of a Redis server; write redis://HOST:PORT or rediss://HOST:PORT")]
pub struct StoreUrlError;

/// A script and the digest by which the server knows it.
struct Script {
    code: &'static str,
    digest: String,
}

impl Script {
    fn new(code: &'static str) -> Self {
        Self { code, digest: redis::Script::new(code).get_hash().to_owned() }
    }
}

/// What the script said.
struct Answer {
    code: u8,
    wait_us: u64,
    /// The store's time at which it decided; the test of equality decides again at this time.
    #[cfg_attr(not(test), expect(dead_code, reason = "read by the test of equality"))]
    now_us: u64,
}

/// The shared limiter.
pub struct RedisLimits {
    connection: ConnectionManager,
    clock: Arc<dyn Clock>,
    /// [`CALL_BUDGET`] but in tests.
    call_budget: Duration,
    admit: Script,
    give_back: Script,
    key_prefix: &'static str,
    service_key: String,
    source_budgets: Vec<u8>,
    service_budgets: Vec<u8>,
    /// The store's clock less ours, in microseconds; zero until the first answer.
    clock_offset_us: AtomicU64,
}

impl RedisLimits {
    /// A limiter on the server of this URL. A server that cannot be reached is no error: calls fail until it
    /// can be. `key_prefix` is [`KEY_PREFIX`] unless several services share a server.
    ///
    /// # Errors
    /// The URL is none.
    pub async fn connect(
        url: &str,
        key_prefix: &'static str,
        budgets: AdmissionBudgets,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, StoreUrlError> {
        // Fails only if the process has chosen one already.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let connection = open(url).map_err(|_| StoreUrlError)?;
        let mut first = connection.clone();
        // A task of its own, so that connecting goes on when we stop waiting for it.
        let connecting = tokio::spawn(async move { first.send_packed_command(&redis::cmd("PING")).await });
        // Whether it worked, the first create will see.
        let _ = timeout(START_TIME_MAX, connecting).await;
        Ok(Self {
            connection,
            clock,
            call_budget: CALL_BUDGET,
            admit: Script::new(concat!(include_str!("redis/bucket.lua"), include_str!("redis/admit.lua"))),
            give_back: Script::new(concat!(
                include_str!("redis/bucket.lua"),
                include_str!("redis/give_back.lua")
            )),
            key_prefix,
            service_key: format!("{key_prefix}service"),
            source_budgets: packed(budgets.source),
            service_budgets: packed(budgets.service),
            clock_offset_us: AtomicU64::new(0),
        })
    }

    /// For tests of what is decided, which must not fail on a busy machine.
    #[cfg(test)]
    pub(super) fn with_call_budget(self, call_budget: Duration) -> Self {
        Self { call_budget, ..self }
    }

    async fn decide(&self, source: SourceKey, bytes: u64) -> Result<Admission, StoreFailure> {
        let Answer { code, wait_us, .. } = self.ask(source, bytes).await?;
        let limit = match code {
            0 => return Ok(Admission::Admitted(Grant { granted_by: GrantedBy::Service, bytes })),
            1 => Limit::SourceCreates,
            2 => Limit::SourceBytes,
            3 => Limit::ServiceCreates,
            4 => Limit::ServiceBytes,
            5 => return Err(StoreFailure::TooLate),
            _ => return Err(StoreFailure::NotUnderstood),
        };
        Ok(Admission::Refused(Refusal { limit, wait: Duration::from_micros(wait_us) }))
    }

    async fn ask(&self, source: SourceKey, bytes: u64) -> Result<Answer, StoreFailure> {
        let source_key = source_key(self.key_prefix, source);
        let deadline_us = self.deadline_us();
        let arguments = |command: &mut Cmd| {
            command.arg(2).arg(&source_key).arg(&self.service_key).arg(bytes).arg(deadline_us);
            command.arg(&self.source_budgets).arg(&self.service_budgets);
        };
        let (code, wait_us, now_us) = self.call(&self.admit, arguments).await?;
        self.remember_the_time(now_us);
        Ok(Answer { code, wait_us, now_us })
    }

    /// The store's time when it did so.
    async fn put_back(&self, bytes: u64) -> Result<u64, StoreFailure> {
        let arguments = |command: &mut Cmd| {
            command.arg(1).arg(&self.service_key).arg(bytes).arg(&self.service_budgets);
        };
        let now_us = self.call(&self.give_back, arguments).await?;
        self.remember_the_time(now_us);
        Ok(now_us)
    }

    /// Runs a script by its digest; a server that does not know it is sent the whole of it, once.
    async fn call<T: FromRedisValue>(
        &self,
        script: &Script,
        arguments: impl Fn(&mut Cmd),
    ) -> Result<T, StoreFailure> {
        let run = |name: &str, script: &str| {
            let mut command = redis::cmd(name);
            command.arg(script);
            arguments(&mut command);
            command
        };
        let mut connection = self.connection.clone();
        let answered = timeout(self.call_budget, async {
            match run("EVALSHA", &script.digest).query_async(&mut connection).await {
                Err(error) if is_unknown_script(&error) => {
                    run("EVAL", script.code).query_async(&mut connection).await
                }
                answer => answer,
            }
        });
        answered.await.map_err(|_| StoreFailure::TimedOut)?.map_err(|error| StoreFailure::of(&error))
    }

    /// By the store's clock; zero, which is none, while that is not known.
    fn deadline_us(&self) -> u64 {
        match self.clock_offset_us.load(Ordering::Relaxed) {
            0 => 0,
            offset_us => (self.clock.monotonic() + LATE_AFTER)
                .as_micros()
                .try_into()
                .unwrap_or(u64::MAX)
                .saturating_add(offset_us),
        }
    }

    /// Every answer says what time it is at the store, so that a step of that clock costs one call at most.
    fn remember_the_time(&self, now_us: u64) {
        let ours_us = u64::try_from(self.clock.monotonic().as_micros()).unwrap_or(u64::MAX);
        self.clock_offset_us.store(now_us.saturating_sub(ours_us), Ordering::Relaxed);
    }
}

impl Limits for RedisLimits {
    fn admit_create(&self, source: SourceKey, bytes: u64) -> PortFuture<'_, Admission> {
        Box::pin(async move { self.decide(source, bytes).await.map_err(port_error) })
    }

    fn give_back(&self, grant: Grant) -> PortFuture<'_, ()> {
        Box::pin(async move { self.put_back(grant.bytes).await.map(|_| ()).map_err(port_error) })
    }
}

fn port_error(failure: StoreFailure) -> PortError {
    PortError::because(failure.fault(), failure)
}

fn open(url: &str) -> Result<ConnectionManager, RedisError> {
    let info = url.into_connection_info()?;
    let tcp = info.tcp_settings().clone().set_nodelay(true).set_user_timeout(SILENCE_TIME_MAX);
    let client = redis::Client::open(info.set_tcp_settings(tcp))?;
    let config = ConnectionManagerConfig::new()
        .set_number_of_retries(0)
        .set_connection_timeout(Some(CONNECT_TIME_MAX))
        // The whole call has a budget already.
        .set_response_timeout(None)
        .set_pipeline_buffer_size(QUEUE_CALLS_MAX);
    ConnectionManager::new_lazy_with_config(client, config)
}

/// The key of a source's pair of buckets: its bytes in hexadecimal behind the address family, so that no two
/// sources share one.
fn source_key(prefix: &str, source: SourceKey) -> String {
    match source {
        SourceKey::V4(address) => format!("{prefix}4:{:08x}", u32::from_be_bytes(address)),
        SourceKey::V6Network(network) => format!("{prefix}6:{:016x}", u64::from_be_bytes(network)),
    }
}

/// Rate and burst of creates, then of bytes, as the script unpacks them; zeros are no limit. Every number of a
/// budget fits ([`BUDGET_MAX`]).
fn packed(budgets: CreateBudgets) -> Vec<u8> {
    let numbers =
        |budget: Option<Budget>| budget.map_or([0, 0], |budget| [budget.rate_per_s(), budget.burst()]);
    let [creates, bytes] = [budgets.creates, budgets.bytes].map(numbers);
    let narrow = |number: u64| u32::try_from(number).unwrap_or(u32::MAX).to_le_bytes();
    creates.into_iter().chain(bytes).flat_map(narrow).collect()
}

const _: () = assert!(BUDGET_MAX <= 0xFFFF_FFFF, "the script takes numbers of 32 bits");

fn is_unknown_script(error: &RedisError) -> bool {
    error.kind() == ErrorKind::Server(ServerErrorKind::NoScript)
}
