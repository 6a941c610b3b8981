//! `quire plan`: what a plan needs, what the budgets bound under attack, and where the two do not fit.
//!
//! It asks nobody and opens nothing. Text for people, or JSON with exact numbers.

use std::{
    io::{self, Write as _},
    num::NonZeroU32,
    process::ExitCode,
};

use anyhow::{Context as _, anyhow};
use clap::Args;
use quire_core::{
    admission::Budgets,
    plan::{
        Plan, PlanError,
        advice::{self, Advice},
        bounds::WorstCase,
    },
};
use quire_server::config::{admission::BudgetArgs, units};

mod json;
mod text;

/// What `quire plan --help` ends with.
pub(crate) const NOTES: &str = "\
Counts take K, M, G (thousands, millions, billions), sizes KB, MB, GB (powers of ten), durations ms, s, m, h, d.
The budgets are those of `quire serve`, their QUIRE_ variables included.

Exit status: 0, with warnings too; 2 if a flag is wrong.

Examples:
  quire plan
  quire plan --creates-per-day 100M --service-creates 3500,1000 --service-bytes 100MB,200MB --fleet-size 8
  quire plan --creates-per-day 50K --mean-body 2KB --retention 10d --free-disk 40GB";

/// Exit status for a setting that makes no plan, as for a flag that cannot be read.
const WRONG_USAGE: u8 = 2;

/// The flags of `quire plan`.
#[derive(Args, Debug)]
pub(crate) struct PlanArgs {
    /// New pastes a day
    #[arg(long, value_name = "COUNT", default_value = "10M", help_heading = "Plan")]
    creates_per_day: String,

    /// Size of a body, on average
    #[arg(long, value_name = "SIZE", default_value = "10KB", help_heading = "Plan")]
    mean_body: String,

    /// How long a paste lives, on average
    #[arg(long, value_name = "DURATION", default_value = "45d", help_heading = "Plan")]
    retention: String,

    /// Disk that creates may take, to say when a flood fills it
    #[arg(long, value_name = "SIZE", help_heading = "Plan")]
    free_disk: Option<String>,

    #[command(flatten)]
    budgets: BudgetArgs,

    /// Print JSON, with exact numbers
    #[arg(long)]
    json: bool,
}

/// How many times larger the second column of the tables is.
const TIMES: u64 = 10;

/// All that is printed, in either form.
struct Report {
    plan: Plan,
    /// The plan as often as [`TIMES`] says, if that can be counted.
    larger: Option<Plan>,
    budgets: Budgets,
    apps: Option<NonZeroU32>,
    free_disk_bytes: Option<u64>,
    worst_cases: Vec<Case>,
    not_stopped: Vec<Advice>,
    warnings: Vec<Advice>,
}

/// A worst case and its name, for people and for machines.
struct Case {
    name: String,
    key: &'static str,
    worst: WorstCase,
}

/// Prints the arithmetic.
pub(crate) fn run(args: &PlanArgs) -> ExitCode {
    let printed = report(args).map_err(|error| (WRONG_USAGE, error)).and_then(|report| {
        print(&report, args.json).context("the plan could not be printed").map_err(|error| (1, error))
    });
    match printed {
        Ok(()) => ExitCode::SUCCESS,
        Err((status, error)) => {
            crate::tell(&crate::in_words(&error));
            ExitCode::from(status)
        }
    }
}

fn print(report: &Report, as_json: bool) -> anyhow::Result<()> {
    let mut printed = if as_json { json::of(report)? } else { text::of(report) };
    printed.push('\n');
    let mut out = io::stdout().lock();
    match out.write_all(printed.as_bytes()).and_then(|()| out.flush()) {
        // Whoever reads has seen enough, as in `quire plan | head`.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        done => Ok(done?),
    }
}

fn report(args: &PlanArgs) -> anyhow::Result<Report> {
    let plan = plan(args)?;
    let budgets = args.budgets.check()?;
    let apps = args.budgets.check_fleet_size()?;
    let free_disk_bytes = match &args.free_disk {
        Some(written) => Some(read("--free-disk", written, units::parse_size_bytes)?),
        None => None,
    };
    Ok(Report {
        plan,
        larger: plan.times(TIMES).ok(),
        budgets,
        apps,
        free_disk_bytes,
        worst_cases: worst_cases(&budgets, apps),
        not_stopped: advice::not_stopped(&budgets, apps),
        warnings: advice::warnings(&budgets, Some(&plan), apps),
    })
}

fn plan(args: &PlanArgs) -> anyhow::Result<Plan> {
    let creates_per_day = read("--creates-per-day", &args.creates_per_day, units::parse_count)?;
    let mean_body_bytes = read("--mean-body", &args.mean_body, units::parse_size_bytes)?;
    let retention = read("--retention", &args.retention, units::parse_duration)?;
    Plan::new(creates_per_day, mean_body_bytes, retention).map_err(|error| {
        let (flag, written) = match error {
            PlanError::Creates => ("--creates-per-day", &args.creates_per_day),
            PlanError::Body => ("--mean-body", &args.mean_body),
            PlanError::Retention => ("--retention", &args.retention),
        };
        anyhow!("{flag}: '{written}' {error}")
    })
}

fn read<T>(
    flag: &str,
    written: &str,
    parse: impl FnOnce(&str) -> Result<T, units::UnitError>,
) -> anyhow::Result<T> {
    parse(written).map_err(|error| anyhow!("{flag}: '{written}' {error}"))
}

/// An outage is part of every report, as what a fleet would have to expect; how many apps there are matters for
/// the rest alone.
fn worst_cases(budgets: &Budgets, apps: Option<NonZeroU32>) -> Vec<Case> {
    let creates = &budgets.creates;
    let case = |name: &str, key, case| Case { name: name.to_owned(), key, worst: case };
    let mut cases = vec![
        case("one source", "source", WorstCase::of_source(creates)),
        case("everybody together", "service", WorstCase::of_service(creates)),
        case(
            "everybody, limiter outage (x1.25)",
            "outage",
            WorstCase::of_outage(creates, apps.unwrap_or(NonZeroU32::MIN)),
        ),
    ];
    if let Some(apps) = apps.filter(|apps| apps.get() > 1) {
        cases.push(Case {
            name: format!("everybody, {} of {apps} apps cut off", apps.get() - 1),
            key: "partial_outage",
            worst: WorstCase::of_partial_outage(creates, apps),
        });
        cases.push(case(
            "one source, limiter outage",
            "source_in_outage",
            WorstCase::of_source_in_outage(creates, apps),
        ));
    }
    cases
}
