//! The table under floods, and the limiter's promises over it.

use std::{net::Ipv4Addr, time::Duration};

use quire_core::{
    admission::{AdmissionBudgets, CreateBudgets},
    testing::exec::run_or_drop,
    testing::world::World,
};

use super::*;

fn budgets() -> Budgets {
    let budget = |rate, burst| Some(Budget::new(rate, burst).unwrap());
    Budgets {
        creates: AdmissionBudgets {
            source: CreateBudgets { creates: budget(1, 10), bytes: budget(100_000, 2_000_000) },
            service: CreateBudgets { creates: None, bytes: None },
        },
        source_reads: budget(50, 100),
        source_deletes: budget(5, 20),
    }
}

fn source(number: u32) -> SourceKey {
    SourceKey::of(Ipv4Addr::from(number).into())
}

fn create(limits: &MemoryLimits, source: SourceKey) -> bool {
    let admission = run_or_drop(limits.admit_create(source, 1_000)).unwrap().unwrap();
    matches!(admission, Admission::Admitted(_))
}

fn sources(limits: &MemoryLimits) -> usize {
    limits.shards.iter().map(|shard| shard.lock().unwrap().len()).sum()
}

#[test]
fn a_flood_of_new_sources_does_not_make_an_exhausted_one_be_forgotten() {
    let world = World::new();
    let limits = MemoryLimits::with_sources_max(budgets(), GrantedBy::Service, world, 6_400);
    let exhausted = source(1);
    assert!((0..10).all(|_| create(&limits, exhausted)));
    assert!(!create(&limits, exhausted));
    for number in 2..100_000 {
        create(&limits, source(number));
    }
    assert!(!create(&limits, exhausted));
    assert!(sources(&limits) <= 6_400);
}

#[test]
fn past_the_bound_newcomers_share_one_budget_a_shard() {
    let world = World::new();
    let limits = MemoryLimits::with_sources_max(budgets(), GrantedBy::Service, world.clone(), 640);
    let admitted = (0..100_000).filter(|number| create(&limits, source(*number))).count();
    // Everybody who got a place is admitted once; the overflow entries admit ten each.
    assert_eq!(admitted, 640 + SHARDS * 10);
    assert_eq!(sources(&limits), 640);
    // When the buckets are full again there is room for others.
    world.pass(Duration::from_mins(1));
    assert!((200_000..200_600).filter(|number| create(&limits, source(*number))).count() >= 590);
}

#[test]
fn a_source_is_forgotten_only_when_every_bucket_is_full_again() {
    let world = World::new();
    let limits = MemoryLimits::with_sources_max(budgets(), GrantedBy::Service, world.clone(), 6_400);
    for number in 0..1_000 {
        assert!(create(&limits, source(number)));
    }
    assert_eq!(sources(&limits), 1_000);
    world.pass(Duration::from_millis(999));
    for number in 1_000..3_000 {
        limits.admit_read(source(number)).unwrap();
    }
    assert_eq!(sources(&limits), 3_000, "a create takes a second to come back");
    world.pass(Duration::from_secs(1));
    for number in 3_000..4_500 {
        limits.admit_read(source(number)).unwrap();
    }
    assert!(sources(&limits) < 2_500, "{}", sources(&limits));
}

#[test]
fn reads_and_deletes_have_ceilings_of_their_own() {
    let limits = MemoryLimits::new(budgets(), GrantedBy::Service, World::new());
    assert!((0..100).all(|_| limits.admit_read(source(1)).is_ok()));
    assert_eq!(limits.admit_read(source(1)).unwrap_err().limit, Limit::SourceReads);
    assert!((0..20).all(|_| limits.admit_delete(source(1)).is_ok()));
    assert_eq!(limits.admit_delete(source(1)).unwrap_err().limit, Limit::SourceDeletes);
    assert!(create(&limits, source(1)), "neither takes from creates");
    assert!(limits.admit_read(source(2)).is_ok());
}

#[test]
fn service_tokens_that_come_back_can_be_taken_by_others() {
    let mut budgets = budgets();
    budgets.creates.service.creates = Some(Budget::new(1, 2).unwrap());
    let limits = MemoryLimits::new(budgets, GrantedBy::LocalShare, World::new());
    let Admission::Admitted(grant) = limits.decide_create(source(1), 5) else { panic!("admitted") };
    assert_eq!(grant, Grant { granted_by: GrantedBy::LocalShare, bytes: 5 });
    assert!(create(&limits, source(2)));
    assert!(!create(&limits, source(3)));
    run_or_drop(limits.give_back(grant)).unwrap().unwrap();
    assert!(create(&limits, source(3)));
    assert!(!create(&limits, source(4)));
}

#[test]
fn threads_together_get_exactly_the_burst() {
    let mut budgets = budgets();
    budgets.creates.service.creates = Some(Budget::new(1, 1_000).unwrap());
    let limits = MemoryLimits::new(budgets, GrantedBy::Service, World::new());
    let admitted: usize = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4_u32)
            .map(|thread| {
                let limits = &limits;
                scope.spawn(move || (0..500).filter(|n| create(limits, source(thread * 1_000 + n))).count())
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    assert_eq!(admitted, 1_000);
}
