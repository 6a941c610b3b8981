//! The promises of the contract as properties of any trace.

use proptest::prelude::*;

use super::*;

const NO_LIMIT: CreateBudgets = CreateBudgets { creates: None, bytes: None };

fn budget(rate_per_s: u64, burst: u64) -> Budget {
    Budget::new(rate_per_s, burst).unwrap()
}

fn source_defaults() -> CreateBudgets {
    CreateBudgets { creates: Some(budget(1, 10)), bytes: Some(budget(100_000, 2_000_000)) }
}

fn service_defaults() -> CreateBudgets {
    CreateBudgets { creates: Some(budget(350, 100)), bytes: Some(budget(10_000_000, 20_000_000)) }
}

/// One source and the service, with a clock of their own.
#[derive(Clone, Copy)]
struct Gate {
    budgets: AdmissionBudgets,
    source: CreateBuckets,
    service: CreateBuckets,
}

impl Gate {
    fn new(source: CreateBudgets, service: CreateBudgets) -> Self {
        Self {
            budgets: AdmissionBudgets { source, service },
            source: CreateBuckets::full(source, 0),
            service: CreateBuckets::full(service, 0),
        }
    }

    fn take(&mut self, bytes: u64, now_us: u64) -> Result<(), Refusal> {
        take_create(&self.budgets, &mut self.source, &mut self.service, bytes, now_us)
    }
}

/// Requests as (microseconds since the last, bytes).
fn trace() -> impl Strategy<Value = Vec<(u64, u64)>> {
    prop::collection::vec((0..3_000_000_u64, 1..=1_000_000_u64), 1..200)
}

proptest! {
    #[test]
    fn over_any_window_at_most_burst_and_refill_are_admitted(requests in trace()) {
        let (source, service) = (source_defaults(), service_defaults());
        let mut gate = Gate::new(source, service);
        let mut now_us = 0;
        let mut admitted: Vec<(u64, u64)> = Vec::new();
        for (pause_us, bytes) in requests {
            now_us += pause_us;
            if gate.take(bytes, now_us).is_ok() {
                admitted.push((now_us, bytes));
            }
        }
        for (first, (from_us, _)) in admitted.iter().enumerate() {
            let (mut count, mut total_bytes) = (0_u64, 0_u64);
            for (at_us, bytes) in &admitted[first..] {
                count += 1;
                total_bytes += bytes;
                let window_us = at_us - from_us;
                for (limit, used) in [
                    (source.creates, count), (source.bytes, total_bytes),
                    (service.creates, count), (service.bytes, total_bytes),
                ] {
                    let limit = limit.unwrap();
                    // Exactly: compared in millionths, without a rounding.
                    prop_assert!(used * MICRO <= limit.burst() * MICRO + limit.rate_per_s() * window_us);
                }
            }
        }
    }

    #[test]
    fn steady_demand_gets_burst_and_refill_but_for_one_request(
        rate in 1..1_000_u64, burst in 2..1_000_u64, pause_us in 1..100_000_u64
    ) {
        let creates = CreateBudgets { creates: Some(budget(rate, burst)), bytes: None };
        let mut gate = Gate::new(creates, NO_LIMIT);
        let mut admitted = 0;
        let mut now_us = 0;
        // More than can be admitted at every moment, and moments so close that no refill is lost to a full
        // bucket.
        let pause_us = pause_us.min(MICRO * (burst - 1) / rate).max(1);
        for _ in 0..200 {
            while gate.take(1, now_us).is_ok() {
                admitted += 1;
            }
            now_us += pause_us;
        }
        let elapsed_us = now_us - pause_us;
        let most_micro = burst * MICRO + rate * elapsed_us;
        prop_assert!(admitted * MICRO <= most_micro);
        prop_assert!((admitted + 1) * MICRO > most_micro);
    }

    #[test]
    fn a_refusal_changes_nothing_and_its_wait_is_true(requests in trace()) {
        let mut gate = Gate::new(source_defaults(), service_defaults());
        let mut now_us = 0;
        for (pause_us, bytes) in requests {
            now_us += pause_us;
            let before = (gate.source, gate.service);
            let Err(refusal) = gate.take(bytes, now_us) else { continue };
            prop_assert_eq!((gate.source, gate.service), before);
            let wait_us = u64::try_from(refusal.wait.as_micros()).unwrap();
            prop_assert!(gate.take(bytes, now_us + wait_us - 1).is_err(), "not a moment earlier");
            let mut later = gate;
            prop_assert!(later.take(bytes, now_us + refusal.retry_after_s() * MICRO).is_ok());
            prop_assert!(gate.take(bytes, now_us + wait_us).is_ok());
            now_us += wait_us;
        }
    }

    #[test]
    fn what_is_given_back_is_never_above_the_burst(
        pauses in prop::collection::vec(0..2_000_000_u64, 1..50), bytes in 1..=1_000_000_u64
    ) {
        let service = service_defaults();
        let mut buckets = CreateBuckets::full(service, 0);
        let mut now_us = 0;
        for pause_us in pauses {
            now_us += pause_us;
            buckets = buckets.given_back(service, now_us, bytes);
            prop_assert!(buckets.creates.level_micro <= 100 * MICRO);
            prop_assert!(buckets.bytes.level_micro <= 20_000_000 * MICRO);
        }
    }

    #[test]
    fn a_clock_that_jumps_anywhere_neither_overflows_nor_overfills(times in prop::collection::vec(any::<u64>(), 1..100)) {
        let mut gate = Gate::new(source_defaults(), service_defaults());
        for now_us in times {
            let _ = gate.take(1_000_000, now_us);
            prop_assert!(gate.source.bytes.level_micro <= 2_000_000 * MICRO);
            prop_assert!(gate.service.bytes.level_micro <= 20_000_000 * MICRO);
        }
    }
}

#[test]
fn steady_demand_admits_exactly_burst_and_refill() {
    // One request a millisecond against 350/s with a burst of 100, for ten seconds.
    let creates = CreateBudgets { creates: Some(budget(350, 100)), bytes: None };
    let mut gate = Gate::new(creates, NO_LIMIT);
    let admitted = (0..=10_000_u64).filter(|ms| gate.take(1, ms * 1_000).is_ok()).count();
    assert!((100 + 3_500 - 1..=100 + 3_500).contains(&admitted), "{admitted}");
}

#[test]
fn what_is_given_back_can_be_taken_again_once() {
    let creates = CreateBudgets { creates: Some(budget(1, 2)), bytes: Some(budget(1, 1_000_000)) };
    let mut gate = Gate::new(NO_LIMIT, creates);
    assert!(gate.take(600_000, 0).is_ok());
    assert!(gate.take(600_000, 0).is_err());
    gate.service = gate.service.given_back(creates, 0, 600_000);
    assert!(gate.take(600_000, 0).is_ok());
    assert!(gate.take(600_000, 0).is_err());
}

#[test]
fn the_longest_wait_is_named() {
    let mut gate = Gate::new(source_defaults(), service_defaults());
    assert!(gate.take(1_000_000, 0).is_ok());
    assert!(gate.take(1_000_000, 0).is_ok());
    let refusal = gate.take(1_000_000, 0).unwrap_err();
    assert_eq!((refusal.limit, refusal.retry_after_s()), (Limit::SourceBytes, 10));
    // The bytes are gone, but not the creates: a single byte is there again after ten microseconds.
    assert!((1..=8_u64).all(|tenth| gate.take(1, tenth * 10).is_ok()));
    let refusal = gate.take(1, 80).unwrap_err();
    assert_eq!((refusal.limit, refusal.retry_after_s()), (Limit::SourceCreates, 1));
}

#[test]
fn a_wait_is_rounded_up_and_never_zero() {
    let refusal = |micros| Refusal { limit: Limit::SourceReads, wait: Duration::from_micros(micros) };
    assert_eq!(refusal(1).retry_after_s(), 1);
    assert_eq!(refusal(1_000_000).retry_after_s(), 1);
    assert_eq!(refusal(1_000_001).retry_after_s(), 2);
}

#[test]
fn a_clock_that_steps_back_refills_nothing_and_then_goes_on() {
    let reads = budget(50, 1);
    let mut bucket = Bucket::full(reads, 10 * MICRO);
    assert!(take_one(reads, &mut bucket, Limit::SourceReads, 10 * MICRO).is_ok());
    let refusal = take_one(reads, &mut bucket, Limit::SourceReads, 5 * MICRO).unwrap_err();
    assert_eq!(refusal.wait, Duration::from_millis(20));
    assert!(take_one(reads, &mut bucket, Limit::SourceReads, 5 * MICRO + 20_000).is_ok());
}

#[test]
fn no_limit_admits_everything() {
    let mut gate = Gate::new(NO_LIMIT, NO_LIMIT);
    assert!((0..10_000).all(|_| gate.take(1_000_000, 0).is_ok()));
    assert!(gate.source.are_full(NO_LIMIT, 0));
}

#[test]
fn numbers_that_make_no_budget_are_refused() {
    assert_eq!(Budget::new(0, 1), Err(BudgetError::RateZero));
    assert_eq!(Budget::new(1, 0), Err(BudgetError::BurstZero));
    assert_eq!(Budget::new(BUDGET_MAX + 1, 1), Err(BudgetError::TooLarge));
    assert!(!budget(1, 999_999).holds_one_body());
    assert!(budget(1, 1_000_000).holds_one_body());
}

#[test]
fn one_source_in_a_day_stores_its_burst_and_its_rate() {
    let mut gate = Gate::new(source_defaults(), service_defaults());
    let mut stored = 0;
    for second in 0..86_400_u64 {
        // As often as it may, as large as it may.
        for bytes in [1_000_000, 100_000] {
            if gate.take(bytes, second * MICRO).is_ok() {
                stored += bytes;
            }
        }
    }
    assert!(stored <= 2_000_000 + 100_000 * 86_400);
    assert!(stored >= 100_000 * 86_000, "and that much it does get: {stored}");
}

#[test]
fn local_shares_are_a_quarter_more_than_a_part_and_hold_one_paste() {
    let of = |fleet_size: u32| service_defaults().local_share(NonZeroU32::new(fleet_size).unwrap());
    let share = |rate, burst, bytes_rate, bytes_burst| CreateBudgets {
        creates: Some(budget(rate, burst)),
        bytes: Some(budget(bytes_rate, bytes_burst)),
    };
    assert_eq!(of(1), share(437, 125, 12_500_000, 25_000_000));
    assert_eq!(of(4), share(109, 31, 3_125_000, 6_250_000));
    assert_eq!(of(1_000), share(1, 1, 12_500, 1_000_000));
    assert_eq!(NO_LIMIT.local_share(NonZeroU32::MIN), NO_LIMIT);
}

#[test]
fn a_charge_takes_what_there_is_and_no_more() {
    let budgets = source_defaults();
    let buckets = CreateBuckets::full(budgets, 0).charged(budgets, 0, 1_500_000);
    assert_eq!(buckets.creates.level_micro, 9 * MICRO);
    assert_eq!(buckets.bytes.level_micro, 500_000 * MICRO);
    let drained = buckets.charged(budgets, 0, 1_000_000);
    assert_eq!(drained.bytes.level_micro, 0);
    assert_eq!(drained.charged(budgets, 2_000_000, 0).bytes.level_micro, 200_000 * MICRO);
}
