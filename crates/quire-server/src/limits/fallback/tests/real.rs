//! A fleet of apps in one process over a real store that is killed, frozen, emptied and started again while
//! creates go on. Waits are counted; latencies are reported and not judged, since the machine has other work.

use std::sync::atomic::AtomicBool;

use quire_testkit::redis::{Program, Store};
use tokio::runtime::{Builder, Runtime};

use super::{
    super::super::{
        metrics::MeteredLimits,
        redis::{CALL_BUDGET, KEY_PREFIX, RedisLimits},
    },
    *,
};
use crate::system::SystemClock;

const APPS: u32 = 4;
const TASKS_PER_APP: u32 = 4;
const PATIENCE: Duration = Duration::from_secs(20);

/// One app's limiter.
struct App {
    limits: FallbackLimits,
    metrics: LimiterMetrics,
    slowest_us: AtomicUsize,
}

impl App {
    async fn new(store: &Store, budgets: Budgets, call_budget: Duration) -> Arc<Self> {
        let clock = Arc::new(SystemClock::new());
        let metrics = LimiterMetrics::register(&Registry::new()).unwrap();
        let redis = RedisLimits::connect(&store.url(), KEY_PREFIX, budgets.creates, clock.clone()).await;
        let redis = redis.unwrap().with_call_budget(call_budget);
        let shared = Arc::new(MeteredLimits::new(Arc::new(redis), metrics.clone()));
        let limits = FallbackLimits::new(shared, budgets, fleet(APPS), clock, metrics.clone());
        Arc::new(Self { limits, metrics, slowest_us: AtomicUsize::new(0) })
    }

    async fn create(&self, number: u32) -> Option<GrantedBy> {
        let began = Instant::now();
        let admission = self.limits.admit_create(source(number), 1).await.expect("never fails");
        let took_us = usize::try_from(began.elapsed().as_micros()).unwrap();
        self.slowest_us.fetch_max(took_us, Ordering::SeqCst);
        granted_by(admission)
    }

    /// Calls of the shared state that failed, that is creates that may have waited for nothing.
    fn failed_calls(&self) -> u64 {
        self.metrics.unavailable.get() + self.metrics.unknown_outcome.get()
    }
}

fn runtime() -> Runtime {
    Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

async fn apps(store: &Store, budgets: Budgets, call_budget: Duration) -> Vec<Arc<App>> {
    let mut apps = Vec::new();
    for _ in 0..APPS {
        apps.push(App::new(store, budgets, call_budget).await);
    }
    apps
}

/// Creates from many sources through every app until told to stop.
struct Traffic {
    stop: Arc<AtomicBool>,
    tasks: Vec<tokio::task::JoinHandle<()>>,
}

impl Traffic {
    fn through(apps: &[Arc<App>]) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let mut tasks = Vec::new();
        for app in apps {
            for task in 0..TASKS_PER_APP {
                let (app, stop) = (Arc::clone(app), Arc::clone(&stop));
                tasks.push(tokio::spawn(async move {
                    for number in (task * 1_000_000).. {
                        if stop.load(Ordering::SeqCst) {
                            return;
                        }
                        app.create(number).await;
                        tokio::time::sleep(Duration::from_millis(2)).await;
                    }
                }));
            }
        }
        Self { stop, tasks }
    }

    async fn end(self) {
        self.stop.store(true, Ordering::SeqCst);
        for task in self.tasks {
            task.await.expect("no create fails");
        }
    }
}

/// Until every app's creates are decided by the shared state again.
async fn healed(apps: &[Arc<App>]) {
    let until = Instant::now() + PATIENCE;
    for app in apps {
        while app.create(77).await != Some(GrantedBy::Service) || app.metrics.breaker_open.get() != 0 {
            assert!(Instant::now() < until, "does not heal");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

/// Traffic, an outage of a second in the middle of it, and traffic again.
async fn outage(mut store: Store, breaks: fn(&mut Store), mends: fn(&mut Store)) {
    let apps = apps(&store, budgets(), CALL_BUDGET).await;
    let traffic = Traffic::through(&apps);
    tokio::time::sleep(Duration::from_millis(300)).await;
    breaks(&mut store);
    let began = Instant::now();
    let failed_before: Vec<u64> = apps.iter().map(|app| app.failed_calls()).collect();
    let local_before: Vec<u64> = apps.iter().map(|app| app.metrics.local_decisions.get()).collect();
    for app in &apps {
        app.slowest_us.store(0, Ordering::SeqCst);
    }

    // Meanwhile one source tries as hard as it can, through every app.
    let mut admitted = vec![0_u64; apps.len()];
    while began.elapsed() < Duration::from_secs(1) {
        for (app, admitted) in apps.iter().zip(&mut admitted) {
            *admitted += u64::from(app.create(999_999_999).await.is_some());
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let elapsed = began.elapsed();
    for (app, (failed_before, local_before)) in apps.iter().zip(failed_before.iter().zip(&local_before)) {
        let waits = app.failed_calls() - failed_before;
        let probes = elapsed.as_millis() / PROBE_EVERY.as_millis() + 2;
        let in_flight = u64::from(TASKS_PER_APP) + 1;
        let waits_max = u64::from(FAILURES_TO_OPEN) + in_flight + u64::try_from(probes).unwrap();
        let local = app.metrics.local_decisions.get() - local_before;
        let slowest_us = app.slowest_us.load(Ordering::SeqCst);
        println!(
            "{local} creates decided locally, {waits} waited (at most {waits_max}), slowest {slowest_us} us"
        );
        assert!(waits <= waits_max, "{waits} > {waits_max}");
        assert!(local > 10 * waits, "{local} {waits}");
        assert_eq!(app.metrics.breaker_open.get(), 1);
    }
    let budget = 10 + elapsed.as_secs() + 1;
    assert!(admitted.iter().all(|admitted| (10..=budget).contains(admitted)), "{admitted:?}");

    mends(&mut store);
    healed(&apps).await;
    traffic.end().await;
}

#[test]
fn creates_go_on_while_the_store_is_dead_and_it_heals_by_itself() {
    let store = Store::start(Program::Redis).unwrap();
    runtime().block_on(outage(store, |store| store.kill().unwrap(), |store| store.start_again().unwrap()));
}

#[test]
fn creates_go_on_while_the_store_is_frozen_and_it_heals_by_itself() {
    let store = Store::start(Program::Redis).unwrap();
    runtime().block_on(outage(store, |store| store.freeze().unwrap(), |store| store.thaw().unwrap()));
}

#[test]
fn a_store_that_dies_frozen_is_replaced() {
    let store = Store::start(Program::Redis).unwrap();
    let end = |store: &mut Store| {
        store.kill().unwrap();
        store.start_again().unwrap();
    };
    runtime().block_on(outage(store, |store| store.freeze().unwrap(), end));
}

/// Nobody is timed out here, so that what is admitted is exact on a busy machine too.
async fn patient_apps(store: &Store) -> Vec<Arc<App>> {
    let mut budgets = budgets();
    // As slow as can be, so that the burst alone is seen.
    budgets.creates.service.creates = Some(Budget::new(1, 100).unwrap());
    apps(store, budgets, PATIENCE).await
}

async fn admitted_by_all(apps: &[Arc<App>], numbers: std::ops::Range<u32>) -> u64 {
    let mut tasks = Vec::new();
    for (number, app) in numbers.zip(apps.iter().cycle()) {
        let app = Arc::clone(app);
        tasks.push(tokio::spawn(async move { u64::from(app.create(number).await.is_some()) }));
    }
    let mut admitted = 0;
    for task in tasks {
        admitted += task.await.unwrap();
    }
    admitted
}

#[test]
fn four_apps_admit_what_one_would_and_a_flush_grants_one_burst_again() {
    let store = Store::start(Program::Redis).unwrap();
    runtime().block_on(async {
        let apps = patient_apps(&store).await;
        let began = Instant::now();
        let admitted = admitted_by_all(&apps, 0..400).await;
        assert!((100..=101 + began.elapsed().as_secs()).contains(&admitted), "{admitted}");
        store.flush().unwrap();
        let began = Instant::now();
        let admitted = admitted_by_all(&apps, 0..400).await;
        assert!((100..=101 + began.elapsed().as_secs()).contains(&admitted), "{admitted}");
        // One source through all of them.
        store.flush().unwrap();
        let began = Instant::now();
        let mut admitted = 0;
        for app in apps.iter().cycle().take(60) {
            admitted += u64::from(app.create(5).await.is_some());
        }
        assert!((10..=11 + began.elapsed().as_secs()).contains(&admitted), "{admitted}");
        let local: u64 = apps.iter().map(|app| app.metrics.local_decisions.get()).sum();
        assert_eq!(local, 0);
    });
}

#[test]
fn all_is_exact_again_after_an_outage() {
    let mut store = Store::start(Program::Redis).unwrap();
    runtime().block_on(async {
        let apps = patient_apps(&store).await;
        assert_eq!(admitted_by_all(&apps, 0..20).await, 20);
        store.kill().unwrap();
        let admitted = admitted_by_all(&apps, 100..1_000).await;
        // Four shares of 1.25 * 100 / 4, and what refills meanwhile.
        assert!((4 * 31..=4 * 33).contains(&admitted), "{admitted}");
        store.start_again().unwrap();
        healed(&apps).await;
        store.flush().unwrap();
        let began = Instant::now();
        let admitted = admitted_by_all(&apps, 2_000..2_400).await;
        assert!((100..=101 + began.elapsed().as_secs()).contains(&admitted), "{admitted}");
    });
}
