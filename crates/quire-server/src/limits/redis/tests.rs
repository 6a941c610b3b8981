//! The script against the pure function, on real servers, and what the adapter makes of their failures.

use std::{
    collections::HashMap,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use proptest::{
    prelude::*,
    test_runner::{Config, TestRunner},
};
use quire_core::{
    admission::{Bucket, CreateBuckets, take_create},
    ports::Fault,
    testing::world::World,
};
use quire_testkit::{
    eventually,
    redis::{Program, Store},
};
use tokio::runtime::{Builder, Runtime};

use super::*;
use crate::system::SystemClock;

const NO_LIMIT: CreateBudgets = CreateBudgets { creates: None, bytes: None };
const PATIENCE: Duration = Duration::from_secs(20);

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

fn budget(rate_per_s: u64, burst: u64) -> Budget {
    Budget::new(rate_per_s, burst).unwrap()
}

fn defaults() -> AdmissionBudgets {
    AdmissionBudgets {
        source: CreateBudgets { creates: Some(budget(1, 10)), bytes: Some(budget(100_000, 2_000_000)) },
        service: CreateBudgets {
            creates: Some(budget(350, 100)),
            bytes: Some(budget(10_000_000, 20_000_000)),
        },
    }
}

fn source(number: u32) -> SourceKey {
    SourceKey::of(Ipv4Addr::from(number).into())
}

async fn connect(store: &Store, budgets: AdmissionBudgets) -> RedisLimits {
    let clock = Arc::new(SystemClock::new());
    let limits = RedisLimits::connect(&store.url(), KEY_PREFIX, budgets, clock).await;
    limits.unwrap().with_call_budget(PATIENCE)
}

/// One thing that happens in a trace.
#[derive(Clone, Debug)]
struct Step {
    /// The clock goes on by so much first, or back.
    gap_us: i64,
    /// Which of two apps with different numbers asks.
    app: usize,
    source: u32,
    bytes: u64,
    gives_back: bool,
}

fn any_budget() -> impl Strategy<Value = (u64, u64)> {
    let number = || prop_oneof![1..5_u64, 1..1_000_u64, 1..30_000_000_u64, BUDGET_MAX - 3..=BUDGET_MAX];
    (number(), number())
}

/// The budgets of two apps: other numbers, but the same ones are off.
fn any_budgets() -> impl Strategy<Value = [AdmissionBudgets; 2]> {
    let four = || prop::array::uniform4(any_budget());
    (four(), four(), prop::array::uniform4(prop::bool::weighted(0.85))).prop_map(|(first, second, on)| {
        [first, second].map(|numbers| {
            let [creates, bytes, service_creates, service_bytes] =
                [0, 1, 2, 3].map(|n| on[n].then(|| Budget::new(numbers[n].0, numbers[n].1).unwrap()));
            AdmissionBudgets {
                source: CreateBudgets { creates, bytes },
                service: CreateBudgets { creates: service_creates, bytes: service_bytes },
            }
        })
    })
}

fn any_step() -> impl Strategy<Value = Step> {
    let gap_us = prop_oneof![
        Just(0),
        0..2_000_i64,
        0..3_000_000_i64,
        -3_000_000..0_i64,
        0..10_000_000_000_000_i64,
        -1_000_000_000_i64..0_i64
    ];
    let bytes = prop_oneof![8 => 0..=1_000_000_u64, 1 => 0..10_u64, 1 => 0..=BUDGET_MAX];
    (gap_us, 0..2_usize, 0..3_u32, bytes, prop::bool::weighted(0.2))
        .prop_map(|(gap_us, app, source, bytes, gives_back)| Step { gap_us, app, source, bytes, gives_back })
}

/// What the pure function knows of a store.
#[derive(Default)]
struct Model {
    sources: HashMap<u32, CreateBuckets>,
    service: Option<CreateBuckets>,
}

/// Time passes by making what is stored older: the store's clock is its own, as in production.
async fn let_pass(connection: &mut ConnectionManager, model: &mut Model, gap_us: i64) {
    let shift = |at_us: u64| at_us.saturating_add_signed(-gap_us);
    let shift_bucket = |bucket: &mut Bucket| bucket.at_us = shift(bucket.at_us);
    for buckets in model.sources.values_mut().chain(&mut model.service) {
        shift_bucket(&mut buckets.creates);
        shift_bucket(&mut buckets.bytes);
    }
    let keys: Vec<String> = redis::cmd("KEYS").arg("*").query_async(connection).await.unwrap();
    for key in keys {
        let stored: Option<Vec<u8>> = redis::cmd("GET").arg(&key).query_async(connection).await.unwrap();
        let Some(stored) = stored else { continue };
        let mut numbers: Vec<f64> =
            stored.chunks(8).map(|number| f64::from_le_bytes(number.try_into().unwrap())).collect();
        for at in [1, 3] {
            // A bucket that is off has no time.
            if numbers[at] > 0.0 {
                numbers[at] -= gap_us.to_string().parse::<f64>().unwrap();
            }
        }
        let shifted: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
        let mut set = redis::cmd("SET");
        set.arg(&key).arg(shifted).arg("KEEPTTL");
        let () = set.query_async(connection).await.unwrap();
    }
}

async fn play(store: &Store, budgets: [AdmissionBudgets; 2], steps: Vec<Step>) -> Result<(), TestCaseError> {
    store.flush().unwrap();
    let apps = [connect(store, budgets[0]).await, connect(store, budgets[1]).await];
    let mut connection = apps[0].connection.clone();
    let mut model = Model::default();
    for step in steps {
        let_pass(&mut connection, &mut model, step.gap_us).await;
        let (app, budgets) = (&apps[step.app], &budgets[step.app]);
        if step.gives_back {
            let now_us = app.put_back(step.bytes).await.unwrap();
            let service = model.service.as_mut();
            if let Some(buckets) = service {
                *buckets = buckets.given_back(budgets.service, now_us, step.bytes);
            }
            continue;
        }
        let Answer { code, wait_us, now_us } = app.ask(source(step.source), step.bytes).await.unwrap();
        // What nobody has taken from is not stored, and full by the budgets of whoever looks.
        let known = model.sources.get(&step.source).copied();
        let mut source = known.unwrap_or_else(|| CreateBuckets::full(budgets.source, now_us));
        let mut service = model.service.unwrap_or_else(|| CreateBuckets::full(budgets.service, now_us));
        let decided = take_create(budgets, &mut source, &mut service, step.bytes, now_us);
        if decided.is_ok() || known.is_some() {
            model.sources.insert(step.source, source);
        }
        if decided.is_ok() || model.service.is_some() {
            model.service = Some(service);
        }
        let expected = match decided {
            Ok(()) => (0, 0),
            Err(Refusal { limit, wait }) => {
                let limits =
                    [Limit::SourceCreates, Limit::SourceBytes, Limit::ServiceCreates, Limit::ServiceBytes];
                let place = limits.iter().position(|candidate| *candidate == limit).unwrap();
                (place + 1, u64::try_from(wait.as_micros()).unwrap())
            }
        };
        prop_assert_eq!((usize::from(code), wait_us), expected);
    }
    Ok(())
}

fn decides_as_the_pure_function(program: Program) {
    let store = Store::start(program).unwrap();
    let runtime = runtime();
    let config = Config { cases: 150, failure_persistence: None, ..Config::default() };
    let steps = prop::collection::vec(any_step(), 1..60);
    let trace = (any_budgets(), steps);
    let played = TestRunner::new(config)
        .run(&trace, |(budgets, steps)| runtime.block_on(play(&store, budgets, steps)));
    played.unwrap();
}

#[test]
fn on_redis_the_script_decides_as_the_pure_function() {
    decides_as_the_pure_function(Program::Redis);
}

#[test]
fn on_valkey_the_script_decides_as_the_pure_function() {
    // Set by scripts/test where there is no Valkey to be had, after saying so.
    if std::env::var_os("QUIRE_WITHOUT_VALKEY").is_none() {
        decides_as_the_pure_function(Program::Valkey);
    }
}

#[test]
fn keys_vanish_once_their_buckets_are_full() {
    let store = Store::start(Program::Redis).unwrap();
    runtime().block_on(async {
        let source_budgets =
            CreateBudgets { creates: Some(budget(5, 1)), bytes: Some(budget(10_000_000, 1_000_000)) };
        let limits = connect(&store, AdmissionBudgets { source: source_budgets, service: NO_LIMIT }).await;
        for number in 0..10 {
            limits.decide(source(number), 1_000).await.unwrap();
        }
        assert!(store.command("DBSIZE").unwrap().starts_with(":10\r"));
        // 0.2 s to fill and the margin.
        let ttl = store.command(&format!("PTTL {}", source_key(KEY_PREFIX, source(1)))).unwrap();
        let ttl_ms: u64 = ttl.trim_start_matches(':').trim().parse().unwrap();
        assert!(ttl_ms <= 1_200, "{ttl_ms}");
        eventually("the keys vanish", PATIENCE, || Ok(store.command("DBSIZE")?.starts_with(":0\r"))).unwrap();

        let limits = connect(&store, defaults()).await;
        limits.decide(source(1), 1_000_000).await.unwrap();
        for key in [source_key(KEY_PREFIX, source(1)), format!("{KEY_PREFIX}service")] {
            let ttl = store.command(&format!("PTTL {key}")).unwrap();
            let ttl_ms: i64 = ttl.trim_start_matches(':').trim().parse().unwrap();
            assert!((1_000..=11_000).contains(&ttl_ms), "{key}: {ttl_ms}");
        }
    });
}

#[test]
fn a_bucket_that_was_off_is_full_when_it_is_switched_on() {
    let store = Store::start(Program::Redis).unwrap();
    runtime().block_on(async {
        let off = CreateBudgets { creates: None, bytes: Some(budget(1, 1_000_000)) };
        let on = CreateBudgets { creates: Some(budget(1, 2)), ..off };
        let before = connect(&store, AdmissionBudgets { source: off, service: NO_LIMIT }).await;
        let after = connect(&store, AdmissionBudgets { source: on, service: NO_LIMIT }).await;
        for _ in 0..5 {
            assert!(matches!(before.decide(source(1), 1).await.unwrap(), Admission::Admitted(_)));
        }
        for _ in 0..2 {
            assert!(matches!(after.decide(source(1), 1).await.unwrap(), Admission::Admitted(_)));
        }
        // What the one does not look at, it carries along for the other.
        assert!(matches!(before.decide(source(1), 1).await.unwrap(), Admission::Admitted(_)));
        let Admission::Refused(refusal) = after.decide(source(1), 1).await.unwrap() else { panic!("full") };
        assert_eq!(refusal.limit, Limit::SourceCreates);
    });
}

#[test]
fn a_server_that_forgot_the_scripts_is_told_again() {
    let store = Store::start(Program::Redis).unwrap();
    runtime().block_on(async {
        let limits = connect(&store, defaults()).await;
        for _ in 0..2 {
            assert!(store.command("SCRIPT FLUSH").unwrap().starts_with("+OK"));
            assert!(matches!(limits.decide(source(1), 1).await.unwrap(), Admission::Admitted(_)));
            limits.put_back(1).await.unwrap();
        }
    });
}

#[test]
fn what_is_not_a_bucket_in_the_store_counts_as_full() {
    let store = Store::start(Program::Redis).unwrap();
    runtime().block_on(async {
        let limits = connect(&store, defaults()).await;
        // The last one has the length of a pair, and is NaN four times.
        let not_a_number = "\\xff".repeat(32);
        for command in [
            format!("SET {KEY_PREFIX}service x"),
            format!("RPUSH {KEY_PREFIX}service x"),
            format!("SET {KEY_PREFIX}service \"{not_a_number}\""),
        ] {
            store.flush().unwrap();
            store.command(&command).unwrap();
            assert!(
                matches!(limits.decide(source(1), 1).await.unwrap(), Admission::Admitted(_)),
                "{command}"
            );
        }
    });
}

#[test]
fn a_call_that_comes_too_late_takes_nothing_and_the_next_one_is_in_time() {
    let store = Store::start(Program::Redis).unwrap();
    runtime().block_on(async {
        let limits = connect(&store, defaults()).await;
        // As if the store's clock had been far behind when it was last heard of.
        limits.clock_offset_us.store(1, Ordering::Relaxed);
        let failure = limits.decide(source(1), 1).await.unwrap_err();
        assert_eq!(failure.fault(), Fault::Unavailable, "{failure}");
        assert!(store.command("DBSIZE").unwrap().starts_with(":0\r"));
        assert!(matches!(limits.decide(source(1), 1).await.unwrap(), Admission::Admitted(_)));
    });
}

#[test]
fn creates_sent_to_a_frozen_store_do_not_drain_it_when_it_thaws() {
    let store = Store::start(Program::Redis).unwrap();
    runtime().block_on(async {
        let mut limits = connect(&store, defaults()).await;
        limits.decide(source(1), 1).await.unwrap();
        limits.call_budget = Duration::from_millis(1);
        store.freeze().unwrap();
        for _ in 0..9 {
            assert_eq!(limits.decide(source(1), 1).await.unwrap_err().fault(), Fault::UnknownOutcome);
        }
        tokio::time::sleep(LATE_AFTER + Duration::from_millis(200)).await;
        store.thaw().unwrap();
        limits.call_budget = PATIENCE;
        // Nine are left of ten, and a little has refilled.
        for _ in 0..9 {
            let admission = decide_in_time(&limits, 1).await;
            assert!(matches!(admission, Admission::Admitted(_)));
        }
    });
}

/// Decides again after "too late", which says nothing but what time it is at the store.
async fn decide_in_time(limits: &RedisLimits, number: u32) -> Admission {
    loop {
        match limits.decide(source(number), 1).await {
            Err(StoreFailure::TooLate) => {}
            decided => return decided.unwrap(),
        }
    }
}

#[test]
fn failures_say_what_is_known_and_nothing_of_anybody() {
    let mut store = Store::start(Program::Redis).unwrap();
    runtime().block_on(async {
        let limits = connect(&store, defaults()).await;
        let port = store.address().port().to_string();
        let failed = async |expected: Fault| {
            let error = limits.admit_create(source(0x0A01_0203), 1).await.unwrap_err();
            assert_eq!(error.fault(), expected, "{error}");
            let text = format!("{error} {error:?}");
            for secret in ["127.0.0.1", &port, "0a010203", "10.1.2.3", KEY_PREFIX] {
                assert!(!text.contains(secret), "{text}");
            }
        };
        limits.admit_create(source(1), 1).await.unwrap();
        store.command("REPLICAOF 127.0.0.1 1").unwrap();
        failed(Fault::Unavailable).await;
        store.command("REPLICAOF NO ONE").unwrap();
        limits.admit_create(source(1), 1).await.unwrap();
        store.command("CONFIG SET maxmemory 1").unwrap();
        failed(Fault::Unavailable).await;
        store.command("CONFIG SET maxmemory 0").unwrap();
        limits.admit_create(source(1), 1).await.unwrap();
        store.kill().unwrap();
        failed(Fault::UnknownOutcome).await;
        failed(Fault::Unavailable).await;
    });
}

#[test]
fn a_store_that_is_not_there_yet_does_not_keep_the_server_from_starting() {
    let mut store = Store::start(Program::Redis).unwrap();
    store.kill().unwrap();
    runtime().block_on(async {
        let limits = connect(&store, defaults()).await;
        assert_eq!(limits.decide(source(1), 1).await.unwrap_err().fault(), Fault::Unavailable);
        store.start_again().unwrap();
        let mut answered = false;
        for _ in 0..50 {
            answered |= limits.decide(source(1), 1).await.is_ok();
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        assert!(answered);
    });
}

#[test]
fn a_url_is_checked_and_never_repeated() {
    runtime().block_on(async {
        for url in ["", "memory:", "http://host", "redis://:secret@", "redis://host:port/"] {
            let clock = World::new();
            let connected = RedisLimits::connect(url, KEY_PREFIX, defaults(), clock).await;
            assert!(!connected.err().unwrap().to_string().contains("secret"), "{url}");
        }
    });
}

#[test]
fn tls_to_a_server_without_it_is_a_failure_like_others() {
    let store = Store::start(Program::Redis).unwrap();
    runtime().block_on(async {
        let url = store.url().replace("redis://", "rediss://");
        let limits = RedisLimits::connect(&url, KEY_PREFIX, defaults(), World::new()).await.unwrap();
        assert!(limits.decide(source(1), 1).await.is_err());
    });
}

proptest! {
    #[test]
    fn two_sources_never_share_a_key(first: [u8; 16], second: [u8; 16], shared in 0..16_usize, v4: [bool; 2]) {
        // Alike in a random number of leading bytes, of either family.
        let mut second = second;
        second[..shared].copy_from_slice(&first[..shared]);
        let key = |bytes: [u8; 16], v4: bool| {
            let [a, b, c, d, ..] = bytes;
            let v6 = IpAddr::from(Ipv6Addr::from(bytes));
            SourceKey::of(if v4 { IpAddr::from([a, b, c, d]) } else { v6 })
        };
        let (first, second) = (key(first, v4[0]), key(second, v4[1]));
        let keys = [first, second].map(|source| source_key(KEY_PREFIX, source));
        prop_assert_eq!(first == second, keys[0] == keys[1]);
        let service_key = format!("{KEY_PREFIX}service");
        prop_assert!(!keys.contains(&service_key));
    }
}
