//! What `serve` says of its limits when it starts (contract A8): what they bound, how long that takes to fill the
//! disk, and what they do not stop.
//!
//! The arithmetic and the words are those of `quire plan`. No address and no secret is in it.

use std::num::NonZeroU32;

use quire_core::{
    admission::Budgets,
    plan::{
        advice::{self, Advice},
        bounds::WorstCase,
        show,
    },
};

/// What is said of the limits at start-up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Announcement {
    /// Bytes of bodies in a day from one source; `None` without bound.
    pub source_bytes_per_day: Option<u128>,
    /// From everybody together.
    pub service_bytes_per_day: Option<u128>,
    /// From everybody while no app reaches the limiter's store; `None` without bound, and where there is no
    /// store that could fail.
    pub outage_bytes_per_day: Option<u128>,
    /// Seconds until bodies and rows can fill the disk; `None` without bound, or if nobody knows its room.
    pub fills_disk_after_s: Option<u128>,
    /// All of it in words.
    pub bounds: String,
    /// What the limits do not stop.
    pub not_stopped: Vec<Advice>,
    /// Where they contradict each other.
    pub warnings: Vec<Advice>,
}

impl Announcement {
    /// What is to be said of these budgets. `apps` share them if their state is in a shared store, and is `None`
    /// if it is in this process; `room_bytes` is what creates may still take of the disk, if it can be known.
    #[must_use]
    pub fn new(budgets: &Budgets, apps: Option<NonZeroU32>, room_bytes: Option<u64>) -> Self {
        let source = WorstCase::of_source(&budgets.creates);
        let service = WorstCase::of_service(&budgets.creates);
        let outage = apps.map(|apps| WorstCase::of_outage(&budgets.creates, apps));
        let fills_disk_after_s =
            room_bytes.and_then(|room| service.flood.disk_bytes().seconds_to(u128::from(room)));

        let in_outage = match &outage {
            Some(outage) => both(outage),
            None => "as without one (their state is in this process)".to_owned(),
        };
        let fills = match (room_bytes, fills_disk_after_s) {
            (None, _) => "the room on the disk is not known".to_owned(),
            (Some(room), None) => {
                format!("nothing bounds how soon {} of disk are full", show::bytes(room.into()))
            }
            (Some(room), Some(seconds)) => {
                format!("which fills the {} of disk in {}", show::bytes(room.into()), show::seconds(seconds))
            }
        };
        let bounds = format!(
            "the limits bound what a day can bring: from one source {}; from everybody {}; in a limiter outage \
             {in_outage}; {fills}",
            both(&source),
            both(&service)
        );
        Self {
            source_bytes_per_day: source.flood.body_bytes.in_a_day(),
            service_bytes_per_day: service.flood.body_bytes.in_a_day(),
            outage_bytes_per_day: outage.and_then(|outage| outage.flood.body_bytes.in_a_day()),
            fills_disk_after_s,
            bounds,
            not_stopped: advice::not_stopped(budgets, apps),
            warnings: advice::warnings(budgets, None, apps),
        }
    }

    /// Logs it: a line of what is bounded, a line of what is not stopped, a warning for each contradiction.
    pub fn log(&self) {
        // What is not bounded has no number, and so no field. In 64 bits, because the JSON form of the log writes
        // larger ones as strings.
        let number = |bytes: Option<u128>| bytes.map(|bytes| u64::try_from(bytes).unwrap_or(u64::MAX));
        tracing::info!(
            source_bytes_per_day = number(self.source_bytes_per_day),
            service_bytes_per_day = number(self.service_bytes_per_day),
            outage_bytes_per_day = number(self.outage_bytes_per_day),
            fills_disk_after_s = number(self.fills_disk_after_s),
            "{}",
            self.bounds
        );
        tracing::info!("the limits do not stop: {}", in_words(&self.not_stopped));
        for warning in &self.warnings {
            tracing::warn!(limit = warning.about(), "{}", warning.text);
        }
    }
}

/// The bound of a worst case in words, and what it would be with counts alone.
fn both(case: &WorstCase) -> String {
    let day = |bytes: Option<u128>| bytes.map_or("without bound".to_owned(), show::bytes);
    let (bytes, if_counts_only) =
        (day(case.flood.body_bytes.in_a_day()), day(case.body_bytes_if_counts_only.in_a_day()));
    if bytes == if_counts_only {
        bytes
    } else {
        format!("{bytes} ({if_counts_only} if only counts were limited)")
    }
}

fn in_words(advice: &[Advice]) -> String {
    let said: Vec<_> = advice.iter().map(|advice| format!("{}: {}", advice.about(), advice.text)).collect();
    said.join("; ")
}

#[cfg(test)]
mod tests {
    use quire_core::admission::{AdmissionBudgets, Budget, CreateBudgets};

    use super::*;

    fn budgets() -> Budgets {
        let budget = |rate, burst| Budget::new(rate, burst).ok();
        Budgets {
            creates: AdmissionBudgets {
                source: CreateBudgets { creates: budget(1, 10), bytes: budget(100_000, 2_000_000) },
                service: CreateBudgets { creates: budget(350, 100), bytes: budget(10_000_000, 20_000_000) },
            },
            source_reads: budget(50, 100),
            source_deletes: budget(5, 20),
        }
    }

    #[test]
    fn one_box_says_what_the_contract_says() {
        let said = Announcement::new(&budgets(), None, Some(1_000_000_000_000));
        assert_eq!(
            said.bounds,
            "the limits bound what a day can bring: from one source 8.64 GB (86.4 GB if only counts were limited); \
             from everybody 864 GB (30.2 TB if only counts were limited); in a limiter outage as without one (their \
             state is in this process); which fills the 1 TB of disk in 27.5 hours"
        );
        assert_eq!(said.source_bytes_per_day, Some(8_642_000_000));
        assert_eq!(said.service_bytes_per_day, Some(864_020_000_000));
        assert_eq!(said.outage_bytes_per_day, None);
        assert_eq!(said.warnings, []);
        assert!(in_words(&said.not_stopped).contains("strangers behind one NAT share one budget"));
    }

    #[test]
    fn a_fleet_says_what_an_outage_brings() {
        let said = Announcement::new(&budgets(), NonZeroU32::new(4), None);
        assert!(said.bounds.contains("in a limiter outage 1.08 TB (37.8 TB"), "{}", said.bounds);
        assert!(said.bounds.ends_with("the room on the disk is not known"), "{}", said.bounds);
        assert_eq!(said.outage_bytes_per_day, Some(1_080_025_000_000));
    }

    #[test]
    fn what_is_not_bounded_is_said_to_be_so() {
        let off = CreateBudgets { creates: None, bytes: None };
        let off = Budgets {
            creates: AdmissionBudgets { source: off, service: off },
            source_reads: None,
            source_deletes: None,
        };
        let said = Announcement::new(&off, None, Some(5_000_000_000));
        assert!(said.bounds.contains("from everybody without bound"), "{}", said.bounds);
        assert!(said.bounds.ends_with("nothing bounds how soon 5 GB of disk are full"), "{}", said.bounds);
        assert_eq!(said.fills_disk_after_s, None);
        assert_eq!(said.warnings.len(), 6);
        said.log();
    }
}
