//! The fallback over a fake that fails when told to, and over a real store in all its states.

use std::{
    collections::VecDeque,
    net::Ipv4Addr,
    pin::{Pin, pin},
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use prometheus::{Encoder as _, Registry, TextEncoder};
use quire_core::{
    admission::{Budget, CreateBudgets, Limit},
    testing::{
        exec::{run_or_drop, run_until_stuck},
        faults::Gate,
        world::World,
    },
};

use super::{
    super::breaker::{FAILURES_TO_OPEN, PROBE_EVERY},
    *,
};

mod real;

/// What the fake shared limiter says to a call.
#[derive(Clone)]
enum Says {
    Admitted,
    Refused,
    Fails(Fault),
    /// Nothing until the gate opens; then it admits.
    Waits(Gate),
}

/// A shared limiter that says what it is told to, the last of it again and again.
struct Fake {
    says: Mutex<VecDeque<Says>>,
    asked: AtomicUsize,
    given_back: AtomicUsize,
}

const REFUSAL: Refusal = Refusal { limit: Limit::SourceBytes, wait: Duration::from_secs(7) };

impl Fake {
    fn new(says: Says) -> Arc<Self> {
        let says = Mutex::new(VecDeque::from([says]));
        Arc::new(Self { says, asked: AtomicUsize::new(0), given_back: AtomicUsize::new(0) })
    }

    fn says(&self, says: Says) {
        *self.says.lock().unwrap() = VecDeque::from([says]);
    }

    fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }

    fn given_back(&self) -> usize {
        self.given_back.load(Ordering::SeqCst)
    }

    async fn answer(&self) -> Result<bool, PortError> {
        let says = self.says.lock().unwrap().front().unwrap().clone();
        match says {
            Says::Admitted => Ok(true),
            Says::Refused => Ok(false),
            Says::Fails(fault) => Err(PortError::new(fault)),
            Says::Waits(gate) => {
                gate.passed().await;
                Ok(true)
            }
        }
    }
}

impl Limits for Fake {
    fn admit_create(&self, _: SourceKey, bytes: u64) -> PortFuture<'_, Admission> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        Box::pin(async move {
            let admitted = self.answer().await?;
            let grant = Grant { granted_by: GrantedBy::Service, bytes };
            Ok(if admitted { Admission::Admitted(grant) } else { Admission::Refused(REFUSAL) })
        })
    }

    fn give_back(&self, _: Grant) -> PortFuture<'_, ()> {
        self.given_back.fetch_add(1, Ordering::SeqCst);
        Box::pin(async move { self.answer().await.map(|_| ()) })
    }
}

fn budgets() -> Budgets {
    let budget = |rate, burst| Some(Budget::new(rate, burst).unwrap());
    Budgets {
        creates: AdmissionBudgets {
            source: CreateBudgets { creates: budget(1, 10), bytes: budget(100_000, 2_000_000) },
            service: CreateBudgets { creates: budget(350, 100), bytes: budget(10_000_000, 20_000_000) },
        },
        source_reads: budget(50, 100),
        source_deletes: budget(5, 20),
    }
}

fn fleet(size: u32) -> NonZeroU32 {
    NonZeroU32::new(size).unwrap()
}

fn source(number: u32) -> SourceKey {
    SourceKey::of(Ipv4Addr::from(number).into())
}

struct Bench {
    world: Arc<World>,
    fake: Arc<Fake>,
    limits: FallbackLimits,
    registry: Registry,
}

impl Bench {
    fn new(says: Says, fleet_size: u32) -> Self {
        let (world, fake, registry) = (World::new(), Fake::new(says), Registry::new());
        let metrics = LimiterMetrics::register(&registry).unwrap();
        let limits = FallbackLimits::new(fake.clone(), budgets(), fleet(fleet_size), world.clone(), metrics);
        Self { world, fake, limits, registry }
    }

    /// In an outage whose breaker is open.
    fn in_outage(fleet_size: u32) -> Self {
        let bench = Self::new(Says::Fails(Fault::Unavailable), fleet_size);
        bench.come((0..FAILURES_TO_OPEN).map(|_| 999));
        bench.world.pass(PROBE_EVERY / 2);
        bench
    }

    fn create(&self, number: u32, bytes: u64) -> Admission {
        run_or_drop(self.limits.admit_create(source(number), bytes)).expect("stuck").unwrap()
    }

    /// Somebody creates, whatever the answer is.
    fn come(&self, numbers: impl IntoIterator<Item = u32>) {
        for number in numbers {
            self.create(number, 1);
        }
    }

    fn admitted(&self, number: u32, times: usize) -> usize {
        (0..times).filter(|_| matches!(self.create(number, 1), Admission::Admitted(_))).count()
    }

    fn metrics(&self) -> String {
        let mut text = Vec::new();
        TextEncoder::new().encode(&self.registry.gather(), &mut text).unwrap();
        String::from_utf8(text).unwrap()
    }
}

fn granted_by(admission: Admission) -> Option<GrantedBy> {
    match admission {
        Admission::Admitted(grant) => Some(grant.granted_by),
        Admission::Refused(_) => None,
    }
}

#[test]
fn while_it_answers_the_shared_state_alone_decides() {
    let bench = Bench::new(Says::Admitted, 4);
    // Far more than the local buckets hold.
    assert_eq!(bench.admitted(1, 500), 500);
    bench.fake.says(Says::Refused);
    assert_eq!(bench.create(2, 1), Admission::Refused(REFUSAL));
    assert!(bench.metrics().contains("quire_limiter_local_decisions_total 0"));
}

#[test]
fn every_kind_of_failure_is_decided_locally() {
    for fault in [Fault::Unavailable, Fault::UnknownOutcome, Fault::Overloaded, Fault::Corrupt] {
        let bench = Bench::new(Says::Fails(fault), 4);
        assert_eq!(granted_by(bench.create(1, 1)), Some(GrantedBy::LocalShare), "{fault:?}");
    }
}

#[test]
fn a_source_has_one_budget_an_app_and_it_is_true_in_what_it_says() {
    let bench = Bench::in_outage(4);
    assert_eq!(bench.admitted(1, 40), 10);
    let Admission::Refused(refusal) = bench.create(1, 1) else { panic!("over its budget") };
    assert_eq!(refusal.limit, Limit::SourceCreates);
    bench.world.pass(refusal.wait);
    assert_eq!(bench.admitted(1, 2), 1);
    assert_eq!(bench.admitted(2, 1), 1, "nobody else is refused");
}

#[test]
fn an_app_enforces_its_share_of_the_service() {
    // 1.25 * 100 / 4 = 31, of which the failures that opened the breaker have taken some.
    let bench = Bench::in_outage(4);
    let left = 31 - usize::try_from(FAILURES_TO_OPEN).unwrap();
    // 109 a second in the half interval that has passed.
    let refilled = 5;
    let admitted = (0..100).filter(|n| bench.admitted(*n, 1) == 1).count();
    assert!((left..=left + refilled).contains(&admitted), "{admitted}");
    let Admission::Refused(refusal) = bench.create(1_000, 1) else { panic!("over the share") };
    assert_eq!(refusal.limit, Limit::ServiceCreates);
}

#[test]
fn a_share_always_has_room_for_one_paste() {
    let bench = Bench::in_outage(1_000_000);
    bench.world.pass(Duration::from_mins(30));
    assert_eq!(granted_by(bench.create(1, 1_000_000)), Some(GrantedBy::LocalShare));
    assert!(matches!(bench.create(2, 1_000_000), Admission::Refused(_)));
}

#[test]
fn levels_are_kept_from_one_outage_to_the_next() {
    let bench = Bench::in_outage(1);
    assert_eq!(bench.admitted(1, 20), 10);
    for _ in 0..5 {
        bench.fake.says(Says::Admitted);
        bench.world.pass(PROBE_EVERY);
        assert_eq!(granted_by(bench.create(2, 1)), Some(GrantedBy::Service));
        bench.fake.says(Says::Fails(Fault::UnknownOutcome));
        bench.come((0..FAILURES_TO_OPEN).map(|_| 3));
        assert_eq!(bench.admitted(1, 5), 0, "an outage is no new budget");
    }
}

#[test]
fn what_the_shared_state_lets_in_is_charged_here_too() {
    let bench = Bench::new(Says::Admitted, 1);
    assert_eq!(bench.admitted(1, 10), 10);
    bench.fake.says(Says::Fails(Fault::UnknownOutcome));
    assert_eq!(bench.admitted(1, 20), 0, "its budget was spent through this app");
    assert_eq!(bench.admitted(2, 20), 10);
    // And the other way round it is not held against anybody.
    bench.fake.says(Says::Admitted);
    bench.world.pass(PROBE_EVERY);
    assert_eq!(bench.admitted(2, 3), 3);
    // What is refused is not charged.
    bench.fake.says(Says::Refused);
    assert_eq!(bench.admitted(4, 20), 0);
    bench.fake.says(Says::Fails(Fault::UnknownOutcome));
    assert_eq!(bench.admitted(4, 20), 10);
}

#[test]
fn failures_that_come_and_go_give_no_more_than_the_shared_and_the_local_budget() {
    let bench = Bench::new(Says::Fails(Fault::UnknownOutcome), 1);
    // The shared state as it would be, for one source: a bucket of its own.
    let shared = MemoryLimits::new(budgets(), GrantedBy::Service, bench.world.clone());
    let (mut local_grants, mut shared_grants) = (0, 0);
    for round in 0..6_000_u32 {
        bench.world.pass(Duration::from_millis(10));
        // Every third call fails for reasons of the attacker's; the others are decided truly.
        let fails = round % 3 == 0;
        if fails {
            bench.fake.says(Says::Fails(Fault::UnknownOutcome));
        } else {
            let truly = run_or_drop(shared.admit_create(source(1), 1)).unwrap().unwrap();
            bench.fake.says(if granted_by(truly).is_some() { Says::Admitted } else { Says::Refused });
        }
        match granted_by(bench.create(1, 1)) {
            Some(GrantedBy::LocalShare) => local_grants += 1,
            Some(GrantedBy::Service) => shared_grants += 1,
            None => {}
        }
    }
    // A minute: each is at most one budget, whatever the order.
    assert!(local_grants <= 10 + 60 && shared_grants <= 10 + 60, "{local_grants} {shared_grants}");
}

#[test]
fn after_a_few_failures_nobody_asks_but_one_probe_at_a_time() {
    let bench = Bench::new(Says::Fails(Fault::UnknownOutcome), 4);
    let opens = usize::try_from(FAILURES_TO_OPEN).unwrap();
    bench.come(0..1_000);
    assert_eq!(bench.fake.asked(), opens);
    assert!(bench.metrics().contains("quire_limiter_breaker_open 1"));
    // A probe an interval, whoever comes.
    for probes in 1..=20 {
        bench.world.pass(PROBE_EVERY);
        bench.come(0..50);
        assert_eq!(bench.fake.asked(), opens + probes);
    }
    // A probe that hangs keeps others from probing, and its own end lets them.
    let gate = Gate::default();
    bench.fake.says(Says::Waits(gate.clone()));
    bench.world.pass(PROBE_EVERY);
    let asked = bench.fake.asked();
    {
        let mut probe = pin!(bench.limits.admit_create(source(1), 1));
        assert!(run_until_stuck(probe.as_mut()).is_none());
        bench.world.pass(PROBE_EVERY * 10);
        bench.come(0..50);
        assert_eq!(bench.fake.asked(), asked + 1);
        // Its client hangs up.
    }
    let mut probe = pin!(bench.limits.admit_create(source(1), 1));
    assert!(run_until_stuck(probe.as_mut()).is_none());
    assert_eq!(bench.fake.asked(), asked + 2);
    gate.open();
    assert_eq!(granted_by(run_until_stuck(probe).unwrap().unwrap()), Some(GrantedBy::Service));
    // The first answer closes it: everybody asks again.
    assert!(bench.metrics().contains("quire_limiter_breaker_open 0"));
    assert_eq!(bench.admitted(2, 30), 30);
    assert_eq!(bench.fake.asked(), asked + 32);
}

#[test]
fn failures_between_successes_do_not_open_it() {
    let bench = Bench::new(Says::Admitted, 4);
    for number in 0..100 {
        bench.fake.says(Says::Fails(Fault::UnknownOutcome));
        bench.come((1..FAILURES_TO_OPEN).map(|_| number));
        bench.fake.says(Says::Admitted);
        assert_eq!(granted_by(bench.create(number, 1)), Some(GrantedBy::Service));
    }
}

#[test]
fn calls_given_up_while_it_opens_neither_prolong_nor_end_the_outage() {
    let bench = Bench::new(Says::Fails(Fault::UnknownOutcome), 4);
    let gate = Gate::default();
    bench.fake.says(Says::Waits(gate));
    let mut in_flight = Vec::new();
    for number in 0..20 {
        let mut create = bench.limits.admit_create(source(number), 1);
        assert!(run_until_stuck(Pin::new(&mut create)).is_none());
        in_flight.push(create);
    }
    bench.fake.says(Says::Fails(Fault::UnknownOutcome));
    bench.come((0..FAILURES_TO_OPEN).map(|_| 1));
    drop(in_flight);
    assert!(bench.metrics().contains("quire_limiter_breaker_open 1"));
    bench.world.pass(PROBE_EVERY);
    let asked = bench.fake.asked();
    bench.come(0..10);
    assert_eq!(bench.fake.asked(), asked + 1);
}

#[test]
fn tokens_go_back_to_whoever_granted_them() {
    let bench = Bench::in_outage(1_000);
    let give_back =
        |granted_by, bytes| run_or_drop(bench.limits.give_back(Grant { granted_by, bytes })).unwrap();
    bench.world.pass(Duration::from_mins(5));
    assert_eq!(granted_by(bench.create(1, 1_000_000)), Some(GrantedBy::LocalShare));
    assert!(matches!(bench.create(2, 1_000_000), Admission::Refused(_)));
    give_back(GrantedBy::LocalShare, 1_000_000).unwrap();
    assert_eq!(bench.fake.given_back(), 0);
    assert_eq!(granted_by(bench.create(2, 1_000_000)), Some(GrantedBy::LocalShare));
    // What the shared state granted it gets, but nobody waits for that in an outage.
    assert_eq!(give_back(GrantedBy::Service, 1).unwrap_err().fault(), Fault::Unavailable);
    assert_eq!(bench.fake.given_back(), 0);
    bench.fake.says(Says::Admitted);
    bench.world.pass(PROBE_EVERY);
    bench.create(3, 1);
    give_back(GrantedBy::Service, 1).unwrap();
    assert_eq!(bench.fake.given_back(), 1);
}

#[test]
fn reads_and_deletes_never_ask_the_shared_state() {
    let bench = Bench::new(Says::Fails(Fault::Unavailable), 4);
    assert_eq!((0..200).filter(|_| bench.limits.admit_read(source(1)).is_ok()).count(), 100);
    assert_eq!((0..200).filter(|_| bench.limits.admit_delete(source(1)).is_ok()).count(), 20);
    assert_eq!(bench.fake.asked(), 0);
}
