//! Where budgets contradict each other or a plan, and what none of them stops.
//!
//! In words, because both are for people: each says which budget, by the name it has in a 429, and gives the two
//! numbers that do not fit.

use std::num::NonZeroU32;

use super::{
    Plan,
    bounds::{WorstCase, body_bytes_max},
    ratio::Ratio,
    show,
};
use crate::admission::{AdmissionBudgets, Budget, Budgets, Limit};

/// What is to be said of a budget, or of all of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Advice {
    /// The budget; `None` if it is said of all.
    pub limit: Option<Limit>,
    /// What is to be said.
    pub text: String,
}

impl Advice {
    fn of(limit: Limit, text: String) -> Self {
        Self { limit: Some(limit), text }
    }

    /// The budget's name, or what stands for all.
    #[must_use]
    pub fn about(&self) -> &'static str {
        self.limit.map_or("all", Limit::as_str)
    }
}

/// Where the budgets contradict the plan, if there is one, and each other. Empty for the contract's table and its
/// plan.
#[must_use]
pub fn warnings(budgets: &Budgets, plan: Option<&Plan>, apps: Option<NonZeroU32>) -> Vec<Advice> {
    let mut warnings = Vec::new();
    if let Some(plan) = plan {
        under_the_peak(&budgets.creates, plan, &mut warnings);
        bytes_under_counts(&budgets.creates, plan, &mut warnings);
    }
    source_over_service(&budgets.creates, &mut warnings);
    if let Some(apps) = apps {
        small_shares(&budgets.creates, apps, &mut warnings);
    }
    switched_off(budgets, &mut warnings);
    warnings
}

fn under_the_peak(budgets: &AdmissionBudgets, plan: &Plan, warnings: &mut Vec<Advice>) {
    let peaks = [
        (Limit::ServiceCreates, budgets.service.creates, plan.peak_creates_per_s()),
        (Limit::ServiceBytes, budgets.service.bytes, plan.peak_bytes_per_s()),
    ];
    for (limit, budget, peak) in peaks {
        if let Some(budget) = budget.filter(|budget| peak.compare(budget.rate_per_s()).is_gt()) {
            let (rate, peak) = (amount(limit, budget.rate_per_s()), ratio(limit, peak));
            let text = format!("{rate} a second is under the plan's peak of {peak}: honest creates get 429");
            warnings.push(Advice::of(limit, text));
        }
    }
}

/// At the plan's mean body the bytes run out before the creates do, so that the count promises what it cannot
/// give.
fn bytes_under_counts(budgets: &AdmissionBudgets, plan: &Plan, warnings: &mut Vec<Advice>) {
    for (counts, limit, budgets) in [
        (Limit::SourceCreates, Limit::SourceBytes, budgets.source),
        (Limit::ServiceCreates, Limit::ServiceBytes, budgets.service),
    ] {
        let (Some(creates), Some(bytes)) = (budgets.creates, budgets.bytes) else { continue };
        // Bytes under the plan's peak have been warned of; this would be the same once more.
        if warnings.iter().any(|warning| warning.limit == Some(limit)) {
            continue;
        }
        let needed = u128::from(creates.rate_per_s()) * u128::from(plan.mean_body_bytes());
        if u128::from(bytes.rate_per_s()) < needed {
            let text = format!(
                "{} a second cannot carry {} of {}/s at the plan's mean body, which needs {} a second",
                amount(limit, bytes.rate_per_s()),
                counts.as_str(),
                creates.rate_per_s(),
                show::bytes(needed)
            );
            warnings.push(Advice::of(limit, text));
        }
    }
}

fn source_over_service(budgets: &AdmissionBudgets, warnings: &mut Vec<Advice>) {
    for (limit, source, service) in [
        (Limit::SourceCreates, budgets.source.creates, budgets.service.creates),
        (Limit::SourceBytes, budgets.source.bytes, budgets.service.bytes),
    ] {
        let (Some(source), Some(service)) = (source, service) else { continue };
        for (what, of_source, of_service) in
            [("rate", source.rate_per_s(), service.rate_per_s()), ("burst", source.burst(), service.burst())]
        {
            if of_source > of_service {
                let text = format!(
                    "its {what} of {} is over the service's {}: one source can take what is everybody's",
                    amount(limit, of_source),
                    amount(limit, of_service)
                );
                warnings.push(Advice::of(limit, text));
            }
        }
    }
}

/// An app's share is 5/4 of the budget over the number of apps, but never less than one create, one a second, and
/// one largest paste at once. Where that lifts it, the fleet gives out more than 5/4 in an outage.
fn small_shares(budgets: &AdmissionBudgets, apps: NonZeroU32, warnings: &mut Vec<Advice>) {
    let of_all = |number: u64| u128::from(number) * 5;
    let lifted = |number: u64, least: u128| of_all(number) < u128::from(apps.get()) * 4 * least;
    let mut warn = |limit, what: &str, number: u64, least: String| {
        let text = format!(
            "shared out over {apps} apps, its {what} of {} is under {least} an app: in an outage of the limiter's \
             store the fleet gives out more than 1.25 times it",
            amount(limit, number)
        );
        warnings.push(Advice::of(limit, text));
    };
    if let Some(creates) = budgets.service.creates {
        if lifted(creates.rate_per_s(), 1) {
            warn(Limit::ServiceCreates, "rate", creates.rate_per_s(), "one a second".to_owned());
        }
        if lifted(creates.burst(), 1) {
            warn(Limit::ServiceCreates, "burst", creates.burst(), "one create".to_owned());
        }
    }
    if let Some(bytes) = budgets.service.bytes
        && lifted(bytes.burst(), body_bytes_max())
    {
        let least = show::bytes(body_bytes_max());
        warn(Limit::ServiceBytes, "burst", bytes.burst(), least);
    }
}

fn switched_off(budgets: &Budgets, warnings: &mut Vec<Advice>) {
    let day =
        |case: WorstCase| case.flood.body_bytes.in_a_day().map_or("without bound".to_owned(), show::bytes);
    let of_source = || format!("one source may store {} a day", day(WorstCase::of_source(&budgets.creates)));
    let of_service =
        || format!("everybody together may store {} a day", day(WorstCase::of_service(&budgets.creates)));
    let off = [
        (Limit::SourceCreates, budgets.creates.source.creates, of_source()),
        (Limit::SourceBytes, budgets.creates.source.bytes, of_source()),
        (Limit::ServiceCreates, budgets.creates.service.creates, of_service()),
        (Limit::ServiceBytes, budgets.creates.service.bytes, of_service()),
        (Limit::SourceReads, budgets.source_reads, "one source may read as fast as it can".to_owned()),
        (
            Limit::SourceDeletes,
            budgets.source_deletes,
            "one source may guess at tokens as fast as it can".to_owned(),
        ),
    ];
    for (limit, budget, so) in off {
        if budget.is_none() {
            warnings.push(Advice::of(limit, format!("is off: {so}")));
        }
    }
}

/// What the budgets do not stop (contract A8), each by its own numbers.
#[must_use]
pub fn not_stopped(budgets: &Budgets, apps: Option<NonZeroU32>) -> Vec<Advice> {
    let mut said = Vec::new();
    for (limit, budget) in [
        (Limit::SourceCreates, budgets.creates.source.creates),
        (Limit::SourceBytes, budgets.creates.source.bytes),
    ] {
        if let Some(budget) = budget {
            let (rate, burst) = (amount(limit, budget.rate_per_s()), amount(limit, budget.burst()));
            let text =
                format!("strangers behind one NAT share one budget: {rate} a second and {burst} at once");
            said.push(Advice::of(limit, text));
        }
    }
    for (limit, source, service) in [
        (Limit::ServiceCreates, budgets.creates.source.creates, budgets.creates.service.creates),
        (Limit::ServiceBytes, budgets.creates.source.bytes, budgets.creates.service.bytes),
    ] {
        if let Some(service) = service {
            said.push(Advice::of(limit, many_addresses(source, service)));
        }
    }
    for (limit, budget) in
        [(Limit::SourceReads, budgets.source_reads), (Limit::SourceDeletes, budgets.source_deletes)]
    {
        if let Some(budget) = budget {
            let all = u64::from(apps.map_or(1, NonZeroU32::get)).saturating_mul(budget.rate_per_s());
            let text = format!(
                "every app counts for itself ({all} a second in all), and many addresses together have no limit"
            );
            said.push(Advice::of(limit, text));
        }
    }
    let text = "a flushed or restarted limiter store grants every burst again".to_owned();
    said.push(Advice { limit: None, text });
    said
}

fn many_addresses(source: Option<Budget>, service: Budget) -> String {
    match source {
        Some(source) => {
            let addresses = service.rate_per_s().div_ceil(source.rate_per_s());
            let who =
                if addresses == 1 { "address can" } else { "addresses can, each within its own budget," };
            format!("{} {who} take all of it, the honest peak too", show::count(u128::from(addresses)))
        }
        None => "one address can take all of it, the honest peak too".to_owned(),
    }
}

/// Bytes for a budget of bytes, a count for the others.
fn amount(limit: Limit, number: u64) -> String {
    match limit {
        Limit::SourceBytes | Limit::ServiceBytes => show::bytes(u128::from(number)),
        _ => show::count(u128::from(number)),
    }
}

fn ratio(limit: Limit, number: Ratio) -> String {
    match limit {
        Limit::SourceBytes | Limit::ServiceBytes => show::byte_ratio(number),
        _ => number.show(4),
    }
}
