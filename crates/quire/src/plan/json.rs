//! A report for machines: whole numbers are exact, `null` where nothing bounds.

use std::collections::BTreeMap;

use quire_core::plan::{ID_CHARACTERS_COMPARED, Plan, advice::Advice, bounds::Bound, ratio::Ratio};
use serde::Serialize;

use super::{Report, text::budgets_by_name};

#[derive(Serialize)]
struct Json<'a> {
    plan: Sizes,
    #[serde(rename = "ten_times_the_plan")]
    larger: Option<Sizes>,
    fleet_size: Option<u32>,
    free_disk_bytes: Option<u64>,
    budgets: BTreeMap<&'static str, Option<BudgetJson>>,
    worst_cases: BTreeMap<&'static str, CaseJson>,
    not_stopped: Vec<Said<'a>>,
    warnings: Vec<Said<'a>>,
}

#[derive(Serialize)]
struct Sizes {
    creates_per_day: u64,
    mean_body_bytes: u64,
    retention_seconds: u64,
    creates_per_second: f64,
    peak_creates_per_second: f64,
    bytes_per_day: u128,
    bytes_per_second: f64,
    peak_bytes_per_second: f64,
    live_pastes: u128,
    live_body_bytes: u128,
    live_row_bytes: u128,
    capacity_bytes: u128,
    ids_in_ten_years: u128,
    /// By the number of characters of an id.
    id_collisions_in_ten_years: BTreeMap<u32, f64>,
}

#[derive(Serialize)]
struct BudgetJson {
    rate_per_second: u64,
    burst: u64,
}

#[derive(Serialize)]
struct CaseJson {
    creates_per_day: Option<u128>,
    body_bytes_per_day: Option<u128>,
    body_bytes_per_day_if_counts_only: Option<u128>,
    disk_bytes_per_day: Option<u128>,
    fills_plan_after_seconds: Option<u128>,
    fills_free_disk_after_seconds: Option<u128>,
}

#[derive(Serialize)]
struct Said<'a> {
    about: &'static str,
    text: &'a str,
}

/// The report as one object, without a line break at its end.
pub(super) fn of(report: &Report) -> serde_json::Result<String> {
    let budgets = budgets_by_name(report).map(|(limit, budget)| {
        let json = |budget: quire_core::admission::Budget| BudgetJson {
            rate_per_second: budget.rate_per_s(),
            burst: budget.burst(),
        };
        (limit.as_str(), budget.map(json))
    });
    serde_json::to_string_pretty(&Json {
        plan: sizes(&report.plan),
        larger: report.larger.as_ref().map(sizes),
        fleet_size: report.apps.map(Into::into),
        free_disk_bytes: report.free_disk_bytes,
        budgets: budgets.into_iter().collect(),
        worst_cases: worst_cases(report),
        not_stopped: said(&report.not_stopped),
        warnings: said(&report.warnings),
    })
}

fn sizes(plan: &Plan) -> Sizes {
    let collisions =
        ID_CHARACTERS_COMPARED.map(|characters| (characters, number(plan.id_collisions(characters))));
    Sizes {
        creates_per_day: plan.creates_per_day(),
        mean_body_bytes: plan.mean_body_bytes(),
        retention_seconds: plan.retention().as_secs(),
        creates_per_second: number(plan.creates_per_s()),
        peak_creates_per_second: number(plan.peak_creates_per_s()),
        bytes_per_day: plan.bytes_per_day(),
        bytes_per_second: number(plan.bytes_per_s()),
        peak_bytes_per_second: number(plan.peak_bytes_per_s()),
        live_pastes: plan.live_pastes(),
        live_body_bytes: plan.live_body_bytes(),
        live_row_bytes: plan.live_row_bytes(),
        capacity_bytes: plan.capacity_bytes(),
        ids_in_ten_years: plan.ids_in_ten_years(),
        id_collisions_in_ten_years: collisions.into_iter().collect(),
    }
}

fn worst_cases(report: &Report) -> BTreeMap<&'static str, CaseJson> {
    let json = |case: &super::Case| {
        let flood = &case.worst.flood;
        let disk = flood.disk_bytes();
        let in_a_day = Bound::in_a_day;
        let json = CaseJson {
            creates_per_day: in_a_day(&flood.creates),
            body_bytes_per_day: in_a_day(&flood.body_bytes),
            body_bytes_per_day_if_counts_only: in_a_day(&case.worst.body_bytes_if_counts_only),
            disk_bytes_per_day: in_a_day(&disk),
            fills_plan_after_seconds: disk.seconds_to(report.plan.capacity_bytes()),
            fills_free_disk_after_seconds: report
                .free_disk_bytes
                .and_then(|free| disk.seconds_to(free.into())),
        };
        (case.key, json)
    };
    report.worst_cases.iter().map(json).collect()
}

/// To twelve digits, which is more than a plan knows. By way of its digits, since whole numbers cannot be cast
/// into a float without looking.
fn number(ratio: Ratio) -> f64 {
    ratio.show(12).parse().unwrap_or(f64::NAN)
}

fn said(advice: &[Advice]) -> Vec<Said<'_>> {
    advice.iter().map(|advice| Said { about: advice.about(), text: &advice.text }).collect()
}
