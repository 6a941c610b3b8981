//! What the limiter costs a create: calls a second and latency of both adapters, with one task and with 64,
//! and what the shared one costs when its server is frozen.
//!
//! `cargo run --release -p quire-server --example limiter-bench`; it needs `redis-server` (`scripts/tools`).

#![expect(clippy::print_stdout, reason = "printing figures is what it is for")]

use std::{
    net::Ipv4Addr,
    num::NonZeroU32,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::Context as _;
use prometheus::Registry;
use quire_core::{
    admission::{AdmissionBudgets, BUDGET_MAX, Budget, Budgets, CreateBudgets},
    ports::{GrantedBy, Limits},
    source::SourceKey,
};
use quire_server::{
    limits::{
        fallback::FallbackLimits,
        memory::MemoryLimits,
        metrics::{LimiterMetrics, MeteredLimits},
        redis::{KEY_PREFIX, RedisLimits},
    },
    system::SystemClock,
};
use quire_testkit::redis::{Program, Store};

const RUN_TIME: Duration = Duration::from_secs(3);
const SOURCES: u32 = 10_000;
const FLEET_SIZE: NonZeroU32 = NonZeroU32::MIN;

#[tokio::main(worker_threads = 2)]
async fn main() -> anyhow::Result<()> {
    // So large that every call is admitted and writes.
    let budget = Some(Budget::new(BUDGET_MAX, BUDGET_MAX)?);
    let both = CreateBudgets { creates: budget, bytes: budget };
    let creates = AdmissionBudgets { source: both, service: both };
    let budgets = Budgets { creates, source_reads: None, source_deletes: None };
    let clock = Arc::new(SystemClock::new());

    let memory = Arc::new(MemoryLimits::new(budgets, GrantedBy::Service, clock.clone()));
    for tasks in [1, 64] {
        measure("in process", memory.clone(), tasks).await?;
    }
    for program in [Program::Redis, Program::Valkey] {
        let Ok(store) = Store::start(program) else {
            println!("{program:?} is not installed");
            continue;
        };
        let redis = RedisLimits::connect(&store.url(), KEY_PREFIX, creates, clock.clone()).await?;
        let redis = Arc::new(redis);
        for tasks in [1, 64] {
            measure(&format!("{program:?}"), redis.clone(), tasks).await?;
        }
        let metrics = LimiterMetrics::register(&Registry::new())?;
        let metered = Arc::new(MeteredLimits::new(redis, metrics.clone()));
        let fallback = FallbackLimits::new(metered, budgets, FLEET_SIZE, clock.clone(), metrics);
        store.freeze()?;
        measure(&format!("{program:?}, frozen, behind the fallback"), Arc::new(fallback), 64).await?;
        store.thaw()?;
    }
    Ok(())
}

async fn measure(name: &str, limits: Arc<dyn Limits>, tasks: u32) -> anyhow::Result<()> {
    let began = Instant::now();
    let mut running = Vec::new();
    for task in 0..tasks {
        let limits = Arc::clone(&limits);
        running.push(tokio::spawn(async move {
            let (mut latencies_us, mut failures) = (Vec::new(), 0_u32);
            for number in (task * 7_919).. {
                let source = SourceKey::of(Ipv4Addr::from(number % SOURCES).into());
                let asked = Instant::now();
                failures += u32::from(limits.admit_create(source, 10_000).await.is_err());
                latencies_us.push(asked.elapsed().as_nanos() / 1_000);
                if began.elapsed() > RUN_TIME {
                    break;
                }
                // The in-process limiter never waits, and tasks must take turns.
                tokio::task::yield_now().await;
            }
            (latencies_us, failures)
        }));
    }
    let (mut latencies_us, mut failures) = (Vec::new(), 0);
    for task in running {
        let (of_task, failures_of_task) = task.await?;
        latencies_us.extend(of_task);
        failures += failures_of_task;
    }
    let elapsed_ms = began.elapsed().as_millis().max(1);
    latencies_us.sort_unstable();
    let calls = latencies_us.len();
    let quantile = |thousandths: usize| latencies_us.get(calls * thousandths / 1_000).context("no calls");
    println!(
        "{name}, {tasks} tasks: {} calls/s, p50 {} us, p99 {} us, slowest {} us, {failures} of {calls} failed",
        u128::try_from(calls)? * 1_000 / elapsed_ms,
        quantile(500)?,
        quantile(990)?,
        latencies_us.last().context("no calls")?,
    );
    Ok(())
}
