//! What a volume is called: on disk a day and a sequence number that people can read, in a row one integer.
//!
//! Promises that the two forms map to each other one to one, and that only the exact written form of a name
//! is one, so that stray files in the folder are never taken for volumes.

use std::{fs, io, path::Path};

use jiff::{civil::Date, tz::TimeZone};
use quire_core::paste::Locator;

use super::record::HEADER_BYTES;

const SECONDS_PER_DAY: i64 = 86_400;
const SUFFIX: &str = ".vol";
/// No file gets near it; beyond, the system takes offsets for nonsense instead of for past the end.
const OFFSET_MAX: u64 = 1 << 62;

/// A volume: the `sequence`-th of those whose bodies expire on UTC day `day`. Ordered by day, then sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct VolumeName {
    day: i32,
    sequence: u32,
}

impl VolumeName {
    /// `None` for a day outside the years that a date can be written for.
    pub(super) fn new(day: i64, sequence: u32) -> Option<Self> {
        let day = i32::try_from(day).ok()?;
        date_of(day)?;
        Some(Self { day, sequence })
    }

    /// The UTC day on which its bodies expire, counted from 1970-01-01.
    pub(super) fn day(self) -> i64 {
        i64::from(self.day)
    }

    /// Its place in the day's series.
    pub(super) const fn sequence(self) -> u32 {
        self.sequence
    }

    /// As a row keeps it: the day in the upper half, the sequence in the lower.
    pub(super) fn to_number(self) -> i64 {
        (i64::from(self.day) << 32) | i64::from(self.sequence)
    }

    /// The inverse of [`to_number`](Self::to_number).
    pub(super) fn from_number(number: i64) -> Option<Self> {
        Self::new(number >> 32, u32::try_from(number & 0xFFFF_FFFF).ok()?)
    }

    /// As the folder shows it: `2026-12-30.000001.vol`.
    pub(super) fn file_name(self) -> String {
        let date = date_of(self.day).unwrap_or(Date::ZERO);
        format!("{date}.{:06}{SUFFIX}", self.sequence)
    }

    /// The inverse of [`file_name`](Self::file_name).
    pub(super) fn parse(file_name: &str) -> Option<Self> {
        let (date, sequence) = file_name.strip_suffix(SUFFIX)?.split_once('.')?;
        let midnight = TimeZone::UTC.to_timestamp(date.parse::<Date>().ok()?.at(0, 0, 0, 0)).ok()?;
        let name = Self::new(midnight.as_second().div_euclid(SECONDS_PER_DAY), sequence.parse().ok()?)?;
        (name.file_name() == file_name).then_some(name)
    }
}

/// The volume that a locator names, and the offset in it; `None` where no record can be.
pub(super) fn place(locator: Locator) -> Option<(VolumeName, u64)> {
    let offset = u64::try_from(locator.offset).ok()?;
    let name = VolumeName::from_number(locator.volume)?;
    (HEADER_BYTES..OFFSET_MAX).contains(&offset).then_some((name, offset))
}

/// Every volume in the folder, in order. Whatever else is there is passed over.
pub(super) fn list(folder: &Path) -> io::Result<Vec<VolumeName>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(folder)? {
        names.extend(entry?.file_name().to_str().and_then(VolumeName::parse));
    }
    names.sort_unstable();
    Ok(names)
}

fn date_of(day: i32) -> Option<Date> {
    let midnight = jiff::Timestamp::from_second(i64::from(day) * SECONDS_PER_DAY).ok()?;
    Some(TimeZone::UTC.to_datetime(midnight).date())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_name_is_a_date_and_a_sequence() {
        let name = VolumeName::new(20_817, 1).unwrap();
        assert_eq!(name.file_name(), "2026-12-30.000001.vol");
        assert_eq!((name.day(), name.sequence()), (20_817, 1));
    }

    #[test]
    fn only_the_exact_form_is_a_name() {
        for stray in [
            "",
            "pair",
            "pair.tmp",
            "removal.lock",
            "2026-12-30.vol",
            "2026-12-30.1.vol",
            "2026-12-30.+00001.vol",
            "2026-12-30.0000001.vol",
            "2026-12-30.000001.vol~",
            "2026-02-30.000001.vol",
            "20261230.000001.vol",
        ] {
            assert_eq!(VolumeName::parse(stray), None, "{stray}");
        }
    }

    #[test]
    fn days_that_no_date_has_are_refused() {
        for day in [i64::MIN, i64::MAX, i64::from(i32::MAX), i64::from(i32::MIN)] {
            assert_eq!(VolumeName::new(day, 1), None);
        }
        assert_eq!(VolumeName::from_number(i64::MAX), None);
        assert_eq!(VolumeName::from_number(i64::MIN), None);
    }

    proptest! {
        #[test]
        fn both_forms_map_back(day in -1_000_i64..2_000_000, sequence: u32) {
            let name = VolumeName::new(day, sequence).unwrap();
            prop_assert_eq!(VolumeName::from_number(name.to_number()), Some(name));
            prop_assert_eq!(VolumeName::parse(&name.file_name()), Some(name));
            prop_assert_eq!(name.day(), day);
        }
    }
}
