//! The figures of the contract, and what must hold for every plan and every set of budgets.

use std::num::NonZeroU32;

use proptest::prelude::*;

use super::{
    advice::{not_stopped, warnings},
    bounds::{Bound, WorstCase},
    *,
};
use crate::admission::{AdmissionBudgets, Budget, Budgets, CreateBudgets, Limit};

const DAYS_45: Duration = Duration::from_hours(45 * 24);
const GB: u128 = 1_000_000_000;
const TB: u128 = 1_000 * GB;

fn plan() -> Plan {
    Plan::new(10_000_000, 10_000, DAYS_45).unwrap()
}

fn budget(rate: u64, burst: u64) -> Option<Budget> {
    Budget::new(rate, burst).ok()
}

fn budgets() -> Budgets {
    Budgets {
        creates: AdmissionBudgets {
            source: CreateBudgets { creates: budget(1, 10), bytes: budget(100_000, 2_000_000) },
            service: CreateBudgets { creates: budget(350, 100), bytes: budget(10_000_000, 20_000_000) },
        },
        source_reads: budget(50, 100),
        source_deletes: budget(5, 20),
    }
}

fn apps(number: u32) -> NonZeroU32 {
    NonZeroU32::new(number).unwrap()
}

fn said(advice: &[advice::Advice]) -> String {
    let lines: Vec<_> = advice.iter().map(|advice| format!("{}: {}", advice.about(), advice.text)).collect();
    lines.join("\n")
}

#[test]
fn the_plan_of_the_contract() {
    let plan = plan();
    assert_eq!(plan.creates_per_s().floor(), 115);
    assert_eq!(plan.peak_creates_per_s().show(2), "350");
    assert_eq!(plan.peak_creates_per_s().show(4), "347.2");
    assert_eq!(plan.bytes_per_day(), 100 * GB);
    assert_eq!(plan.bytes_per_s().show(2), "1.2e6");
    assert_eq!(plan.peak_bytes_per_s().show(2), "3.5e6");
    assert_eq!(plan.live_pastes(), 450_000_000);
    assert_eq!(plan.live_body_bytes(), 4_500 * GB);
    assert_eq!(plan.live_row_bytes(), 135 * GB);
    assert_eq!(plan.capacity_bytes(), 4_635 * GB);
    assert_eq!(plan.ids_in_ten_years(), 36_500_000_000);
    let ten_times = plan.times(10).unwrap();
    assert_eq!(ten_times.peak_creates_per_s().show(2), "3500");
    assert_eq!(ten_times.ids_in_ten_years(), 365_000_000_000);
}

#[test]
fn the_collisions_of_the_contract() {
    let plan = plan();
    assert_eq!(ids_of(ID_CHARACTERS), 3_226_266_762_397_899_821_056);
    assert_eq!(plan.id_collisions(ID_CHARACTERS).show(1), "0.2");
    assert_eq!(plan.times(10).unwrap().id_collisions(ID_CHARACTERS).show(1), "20");
    let shown = ID_CHARACTERS_COMPARED.map(|characters| plan.id_collisions(characters).show(3));
    assert_eq!(shown, ["3.05e6", "794", "0.206", "1.4e-8"]);
    let ten_times = plan.times(10).unwrap();
    let shown = ID_CHARACTERS_COMPARED.map(|characters| ten_times.id_collisions(characters).show(3));
    assert_eq!(shown, ["3.05e8", "79400", "20.6", "1.4e-6"]);
}

#[test]
fn the_worst_cases_of_the_contract() {
    let creates = budgets().creates;
    let day = |bound: &Bound| bound.in_a_day().unwrap();
    let source = WorstCase::of_source(&creates);
    assert_eq!(day(&source.flood.body_bytes), 8_640_000_000 + 2_000_000);
    assert_eq!(day(&source.body_bytes_if_counts_only), 86_400_000_000 + 10_000_000);
    assert_eq!(day(&source.flood.creates), 86_410);
    let service = WorstCase::of_service(&creates);
    assert_eq!(day(&service.flood.body_bytes), 864 * GB + 20_000_000);
    assert_eq!(day(&service.body_bytes_if_counts_only), 30_240 * GB + 100_000_000);
    assert_eq!(day(&service.flood.creates), 30_240_100);
    for fleet in [1, 4, 25] {
        let outage = WorstCase::of_outage(&creates, apps(fleet));
        assert_eq!(day(&outage.flood.body_bytes), 1_080 * GB + 25_000_000);
        assert_eq!(outage.flood.creates.after_s(100), Some(125 + 438 * 100));
    }
    // 1 + 1.25 k/n of the caps, for three of four apps.
    let partial = WorstCase::of_partial_outage(&creates, apps(4));
    assert_eq!(day(&partial.flood.body_bytes), (864 * GB + 20_000_000) * 31 / 16);
    let source = WorstCase::of_source_in_outage(&creates, apps(4));
    assert_eq!(day(&source.flood.body_bytes), 4 * (8_640_000_000 + 2_000_000));
}

#[test]
fn how_long_it_takes_to_fill() {
    let service = WorstCase::of_service(&budgets().creates).flood;
    // 864 GB of bodies and 30 million rows a day.
    let rows_a_day = 30_240_100 * 300;
    assert_eq!(service.disk_bytes().in_a_day(), Some(864 * GB + 20_000_000 + rows_a_day));
    assert_eq!(service.body_bytes.seconds_to(TB), Some(99_998));
    assert_eq!(service.body_bytes.seconds_to(20_000_000), Some(0));
    let capacity_s = service.disk_bytes().seconds_to(plan().capacity_bytes()).unwrap();
    assert_eq!(show::seconds(capacity_s), "5.31 days");
}

#[test]
fn without_budgets_nothing_is_bounded() {
    let off = CreateBudgets { creates: None, bytes: None };
    let service = WorstCase::of_service(&AdmissionBudgets { source: off, service: off });
    assert_eq!(service.flood.disk_bytes().in_a_day(), None);
    assert_eq!(service.flood.disk_bytes().seconds_to(1), None);
    // Bytes alone bound the number too: no paste is empty. Counts alone bound bytes: none is over 1 MB.
    let bytes_only = CreateBudgets { creates: None, bytes: budget(10, 1_000_000) };
    let flood = WorstCase::of_service(&AdmissionBudgets { source: off, service: bytes_only }).flood;
    assert_eq!(flood.creates.after_s(5), Some(1_000_050));
    let counts_only = CreateBudgets { creates: budget(2, 3), bytes: None };
    let flood = WorstCase::of_source(&AdmissionBudgets { source: counts_only, service: off }).flood;
    assert_eq!(flood.body_bytes.after_s(5), Some(13_000_000));
}

#[test]
fn what_makes_no_plan_is_refused() {
    let day = Duration::from_hours(24);
    assert_eq!(Plan::new(0, 1, day), Err(PlanError::Creates));
    assert_eq!(Plan::new(CREATES_PER_DAY_MAX + 1, 1, day), Err(PlanError::Creates));
    assert_eq!(Plan::new(1, 0, day), Err(PlanError::Body));
    assert_eq!(Plan::new(1, 1_000_001, day), Err(PlanError::Body));
    assert_eq!(Plan::new(1, 1, Duration::ZERO), Err(PlanError::Retention));
    assert_eq!(Plan::new(1, 1, 366 * day), Err(PlanError::Retention));
    assert_eq!(plan().times(u64::MAX), Err(PlanError::Creates));
    assert!(Plan::new(CREATES_PER_DAY_MAX, 1_000_000, 365 * day).is_ok());
}

#[test]
fn the_contracts_budgets_fit_its_plan() {
    for fleet in [None, Some(apps(1)), Some(apps(25))] {
        assert_eq!(warnings(&budgets(), Some(&plan()), fleet), []);
    }
}

#[test]
fn each_contradiction_is_said_once() {
    type Change = fn(&mut Budgets);
    let cases: [(Limit, Change, &str); 12] = [
        (Limit::ServiceCreates, |b| b.creates.service.creates = budget(347, 100), "peak of 347.2"),
        (Limit::ServiceBytes, |b| b.creates.service.bytes = budget(3_472_222, 20_000_000), "peak of 3.47 MB"),
        (Limit::SourceBytes, |b| b.creates.source.bytes = budget(9_999, 2_000_000), "needs 10 KB a second"),
        (
            Limit::SourceCreates,
            |b| b.creates.source.creates = budget(10, 101),
            "burst of 101 is over the service's 100",
        ),
        (
            Limit::SourceBytes,
            |b| b.creates.source.bytes = budget(10_000_001, 2_000_000),
            "rate of 10 MB is over",
        ),
        (
            Limit::SourceBytes,
            |b| b.creates.source.bytes = budget(100_000, 21_000_000),
            "burst of 21 MB is over",
        ),
        (Limit::SourceCreates, |b| b.creates.source.creates = None, "one source may store 8.64 GB a day"),
        (Limit::SourceBytes, |b| b.creates.source.bytes = None, "one source may store 86.4 GB a day"),
        (
            Limit::ServiceCreates,
            |b| b.creates.service.creates = None,
            "everybody together may store 864 GB a day",
        ),
        (
            Limit::ServiceBytes,
            |b| b.creates.service.bytes = None,
            "everybody together may store 30.2 TB a day",
        ),
        (Limit::SourceReads, |b| b.source_reads = None, "read as fast"),
        (Limit::SourceDeletes, |b| b.source_deletes = None, "guess"),
    ];
    for (limit, change, text) in cases {
        let mut budgets = budgets();
        change(&mut budgets);
        let warnings = warnings(&budgets, Some(&plan()), None);
        assert_eq!(warnings.len(), 1, "{}", said(&warnings));
        assert_eq!(warnings[0].limit, Some(limit));
        assert!(warnings[0].text.contains(text), "{}", warnings[0].text);
    }
}

#[test]
fn shares_that_are_too_small_are_said() {
    assert!(said(&warnings(&budgets(), None, Some(apps(26)))).contains("is under 1 MB an app"));
    let many = said(&warnings(&budgets(), None, Some(apps(438))));
    assert!(many.contains("service_creates: shared out over 438 apps, its rate of 350"), "{many}");
    assert!(many.contains("its burst of 100 is under one create"), "{many}");
}

#[test]
fn what_is_not_stopped_has_its_numbers() {
    let text = said(&not_stopped(&budgets(), NonZeroU32::new(4)));
    for expected in [
        "source_creates: strangers behind one NAT share one budget: 1 a second and 10 at once",
        "source_bytes: strangers behind one NAT share one budget: 100 KB a second and 2 MB at once",
        "service_creates: 350 addresses can",
        "service_bytes: 100 addresses can",
        "source_reads: every app counts for itself (200 a second in all)",
        "all: a flushed or restarted limiter store grants every burst again",
    ] {
        assert!(text.contains(expected), "{expected}\n{text}");
    }
}

fn any_budget() -> impl Strategy<Value = Option<Budget>> {
    prop::option::of(
        (1_u64..=4_000_000_000, 1_u64..=4_000_000_000)
            .prop_map(|(rate, burst)| Budget::new(rate, burst).unwrap()),
    )
}

fn any_budgets() -> impl Strategy<Value = AdmissionBudgets> {
    (any_budget(), any_budget(), any_budget(), any_budget()).prop_map(|(a, b, c, d)| AdmissionBudgets {
        source: CreateBudgets { creates: a, bytes: b },
        service: CreateBudgets { creates: c, bytes: d },
    })
}

fn raised(budget: Option<Budget>, rate: u64, burst: u64) -> Option<Budget> {
    let limit = |number: u64| number.min(crate::admission::BUDGET_MAX);
    budget.and_then(|old| Budget::new(limit(old.rate_per_s() + rate), limit(old.burst() + burst)).ok())
}

/// No bound is more than any bound.
fn at_most(small: Option<u128>, large: Option<u128>) -> bool {
    large.is_none_or(|large| small.is_some_and(|small| small <= large))
}

proptest! {
    #[test]
    fn more_of_anything_needs_no_less(
        creates in 1..CREATES_PER_DAY_MAX / 2, body in 1_u64..500_000, hours in 1_u64..4_000,
        more_creates in 0..CREATES_PER_DAY_MAX / 2, more_body in 0_u64..500_000, more_hours in 0_u64..4_000
    ) {
        let small = Plan::new(creates, body, Duration::from_hours(hours)).unwrap();
        let large =
            Plan::new(creates + more_creates, body + more_body, Duration::from_hours(hours + more_hours)).unwrap();
        prop_assert!(small.peak_creates_per_s() <= large.peak_creates_per_s());
        prop_assert!(small.creates_per_s() <= small.peak_creates_per_s());
        prop_assert!(small.peak_bytes_per_s() <= large.peak_bytes_per_s());
        prop_assert!(small.capacity_bytes() <= large.capacity_bytes());
        for characters in 1..=21 {
            prop_assert!(small.id_collisions(characters) <= large.id_collisions(characters));
            prop_assert!(small.id_collisions(characters + 1) <= small.id_collisions(characters));
        }
    }

    #[test]
    fn looser_budgets_and_longer_times_bound_no_less(
        budgets in any_budgets(), rate in 0_u64..1_000_000, burst in 0_u64..1_000_000,
        seconds in 0_u64..10_000_000, fleet in 1_u32..1_000
    ) {
        let looser = |old: CreateBudgets| CreateBudgets {
            creates: raised(old.creates, rate, burst), bytes: raised(old.bytes, rate, burst),
        };
        let loose = AdmissionBudgets { source: looser(budgets.source), service: looser(budgets.service) };
        let fleet = apps(fleet);
        let cases = |budgets: &AdmissionBudgets| [
            WorstCase::of_source(budgets),
            WorstCase::of_service(budgets),
            WorstCase::of_source_in_outage(budgets, fleet),
            WorstCase::of_outage(budgets, fleet),
            WorstCase::of_partial_outage(budgets, fleet),
        ];
        let (tight, loose) = (cases(&budgets), cases(&loose));
        for (tight, loose) in tight.iter().zip(&loose) {
            for (tight, loose) in [
                (&tight.flood.body_bytes, &loose.flood.body_bytes),
                (&tight.flood.creates, &loose.flood.creates),
                (&tight.flood.disk_bytes(), &loose.flood.disk_bytes()),
                // Bytes are one more bound, never one less.
                (&tight.flood.body_bytes, &tight.body_bytes_if_counts_only),
            ] {
                prop_assert!(at_most(tight.after_s(seconds), loose.after_s(seconds)));
                prop_assert!(at_most(tight.after_s(seconds), tight.after_s(seconds + 1)));
            }
        }
        let [source, service, source_in_outage, outage, partial] = &tight;
        for (smaller, larger) in [(source, service), (source, source_in_outage), (source_in_outage, outage), (service, outage), (service, partial)] {
            prop_assert!(at_most(
                smaller.flood.body_bytes.after_s(seconds), larger.flood.body_bytes.after_s(seconds)
            ));
        }
    }

    #[test]
    fn a_disk_is_filled_in_the_second_that_is_named_and_not_before(budgets in any_budgets(), amount in 1_u64..u64::MAX) {
        let disk = WorstCase::of_source(&budgets).flood.disk_bytes();
        if let Some(seconds) = disk.seconds_to(u128::from(amount)) {
            let seconds = u64::try_from(seconds).unwrap();
            prop_assert!(disk.after_s(seconds + 1) >= Some(u128::from(amount)));
            if seconds > 0 {
                prop_assert!(disk.after_s(seconds - 1) < Some(u128::from(amount)));
            }
        }
    }

    #[test]
    fn advice_never_panics(budgets in any_budgets(), reads in any_budget(), deletes in any_budget(), fleet: u32,
                           creates in 1..CREATES_PER_DAY_MAX, body in 1_u64..=1_000_000) {
        let budgets = Budgets { creates: budgets, source_reads: reads, source_deletes: deletes };
        let plan = Plan::new(creates, body, DAYS_45).unwrap();
        let _ = (warnings(&budgets, Some(&plan), NonZeroU32::new(fleet)), not_stopped(&budgets, NonZeroU32::new(fleet)));
    }
}
