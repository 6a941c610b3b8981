//! Contract A7 in a process of its own, so that nothing else's memory is counted.

use std::{fs, net::Ipv4Addr, sync::Arc};

use quire_core::{
    admission::{AdmissionBudgets, Budget, Budgets, CreateBudgets},
    ports::{GrantedBy, Limits as _, SourceLimits as _},
    source::SourceKey,
    testing::exec::run_or_drop,
};
use quire_server::{limits::memory::MemoryLimits, system::SystemClock};

/// More than the table has room for, so that the shared entries are used too.
const SOURCES: u32 = 1_100_000;
const GROWTH_BYTES_MAX: u64 = 150_000_000;

#[test]
fn a_million_sources_cost_less_than_150_megabytes() {
    // Slow to refill, so that no source is forgotten while the test runs.
    let budget = |burst| Some(Budget::new(1, burst).unwrap());
    let slow = CreateBudgets { creates: budget(10), bytes: budget(2_000_000) };
    let budgets = Budgets {
        creates: AdmissionBudgets { source: slow, service: CreateBudgets { creates: None, bytes: None } },
        source_reads: budget(100),
        source_deletes: budget(20),
    };
    let limits = MemoryLimits::new(budgets, GrantedBy::Service, Arc::new(SystemClock::new()));
    let before = resident_bytes();
    for number in 0..SOURCES {
        let source = SourceKey::of(Ipv4Addr::from(number).into());
        run_or_drop(limits.admit_create(source, 1_000_000)).unwrap().unwrap();
        // All that can be refused later is remembered in the same place.
        let _ = limits.admit_read(source);
    }
    let growth_bytes = resident_bytes().saturating_sub(before);
    println!("{SOURCES} sources: {growth_bytes} bytes more");
    assert!(growth_bytes < GROWTH_BYTES_MAX, "{growth_bytes}");
    assert!(growth_bytes > 30_000_000, "the sources were not remembered: {growth_bytes}");
}

fn resident_bytes() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or_default();
    line.trim().trim_end_matches("kB").trim().parse::<u64>().unwrap_or(0) * 1_024
}
