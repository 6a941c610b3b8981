//! Sizes, durations and shares as they are written on the command line.
//!
//! Whole numbers only, and exact: what does not fit is refused, never rounded or wrapped. A unit is written
//! one way, because `1Mb` or `1M` could be meant differently than it is read.

use std::time::Duration;

/// Units of a size, powers of ten. A plain number is bytes.
const SIZE_UNITS: &[(&str, u64)] = &[("", 1), ("KB", 1_000), ("MB", 1_000_000), ("GB", 1_000_000_000)];

/// Units of a count. They are no units of a size, so that bytes and counts cannot be taken for each other.
const COUNT_UNITS: &[(&str, u64)] = &[("", 1), ("K", 1_000), ("M", 1_000_000), ("G", 1_000_000_000)];

/// Units of a duration in milliseconds. There is no plain number: it would be taken for seconds by some and
/// for milliseconds by others.
const DURATION_UNITS: &[(&str, u64)] =
    &[("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000)];

/// Why something is not a quantity. It does not carry what was written; whoever reports it has that.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnitError {
    /// Neither a size nor bytes.
    #[error("is not a size; write bytes or a unit, as in 64MB (KB, MB, GB are powers of ten)")]
    NotASize,
    /// Not a count.
    #[error("is not a count; write a whole number, perhaps with K, M or G (thousands, millions, billions)")]
    NotACount,
    /// Not a duration.
    #[error("is not a duration; write a number and one of ms, s, m, h, d, as in 30s")]
    NotADuration,
    /// Not a whole percentage.
    #[error("is not a share; write a whole percentage from 0% to 99%, as in 5%")]
    NotAShare,
    /// More than can be counted.
    #[error("is too large")]
    TooLarge,
}

/// Reads a size in bytes, as in `64MB`.
///
/// # Errors
/// It is not a size, or more bytes than 64 bits can count.
pub fn parse_size_bytes(written: &str) -> Result<u64, UnitError> {
    parse(written, SIZE_UNITS, UnitError::NotASize)
}

/// Reads a count, as in `350` or `10M`.
///
/// # Errors
/// It is not a count, or more than 64 bits can count.
pub fn parse_count(written: &str) -> Result<u64, UnitError> {
    parse(written, COUNT_UNITS, UnitError::NotACount)
}

/// Reads a duration, as in `30s`.
///
/// # Errors
/// It is not a duration, or more milliseconds than 64 bits can count.
pub fn parse_duration(written: &str) -> Result<Duration, UnitError> {
    parse(written, DURATION_UNITS, UnitError::NotADuration).map(Duration::from_millis)
}

/// Reads a share of something, as in `5%`, as whole percent under 100.
///
/// # Errors
/// It is not a whole percentage from 0% to 99%.
pub fn parse_share_percent(written: &str) -> Result<u8, UnitError> {
    let (number, unit) = split(written);
    match number.parse::<u8>() {
        Ok(percent @ 0..=99) if unit == "%" => Ok(percent),
        _ => Err(UnitError::NotAShare),
    }
}

fn parse(written: &str, units: &[(&str, u64)], malformed: UnitError) -> Result<u64, UnitError> {
    let (number, unit) = split(written);
    let factor = units.iter().find(|(name, _)| *name == unit).map(|(_, factor)| *factor);
    let Some(factor) = factor.filter(|_| !number.is_empty()) else { return Err(malformed) };
    // Only digits are left, so that the number can be wrong in one way alone.
    let number: u64 = number.parse().map_err(|_| UnitError::TooLarge)?;
    number.checked_mul(factor).ok_or(UnitError::TooLarge)
}

/// The digits something begins with, and the rest.
fn split(written: &str) -> (&str, &str) {
    let digits = written.bytes().take_while(u8::is_ascii_digit).count();
    // A digit is one byte, so this splits between characters.
    written.split_at_checked(digits).unwrap_or((written, ""))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn sizes_are_powers_of_ten() {
        assert_eq!(parse_size_bytes("0"), Ok(0));
        assert_eq!(parse_size_bytes("1234"), Ok(1_234));
        assert_eq!(parse_size_bytes("100KB"), Ok(100_000));
        assert_eq!(parse_size_bytes("64MB"), Ok(64_000_000));
        assert_eq!(parse_size_bytes("18GB"), Ok(18_000_000_000));
    }

    #[test]
    fn counts_are_no_sizes() {
        assert_eq!(parse_count("0"), Ok(0));
        assert_eq!(parse_count("350"), Ok(350));
        assert_eq!(parse_count("10K"), Ok(10_000));
        assert_eq!(parse_count("10M"), Ok(10_000_000));
        assert_eq!(parse_count("18G"), Ok(18_000_000_000));
        assert_eq!(parse_count("18446744074G"), Err(UnitError::TooLarge));
        for wrong in ["", "K", "1k", "1KB", "1 K", "+1", "-1", "1.5M", "1T", "1e6"] {
            assert_eq!(parse_count(wrong), Err(UnitError::NotACount), "{wrong:?}");
        }
    }

    #[test]
    fn durations_have_units() {
        assert_eq!(parse_duration("1500ms"), Ok(Duration::from_millis(1_500)));
        assert_eq!(parse_duration("0s"), Ok(Duration::ZERO));
        assert_eq!(parse_duration("2m"), Ok(Duration::from_mins(2)));
        assert_eq!(parse_duration("24h"), Ok(Duration::from_hours(24)));
        assert_eq!(parse_duration("1d"), Ok(Duration::from_hours(24)));
        assert_eq!(parse_duration("30"), Err(UnitError::NotADuration));
    }

    #[test]
    fn shares_are_whole_percentages_under_a_hundred() {
        assert_eq!(parse_share_percent("5%"), Ok(5));
        assert_eq!(parse_share_percent("0%"), Ok(0));
        assert_eq!(parse_share_percent("99%"), Ok(99));
        for wrong in ["100%", "5", "%", "5.5%", "-1%", "256%", "5 %"] {
            assert_eq!(parse_share_percent(wrong), Err(UnitError::NotAShare), "{wrong}");
        }
    }

    #[test]
    fn other_spellings_are_refused() {
        for wrong in
            ["", "KB", "1kb", "1K", "1 KB", " 1KB", "1KB ", "+1", "-1", "1.5MB", "1TB", "1KiB", "\u{661}KB"]
        {
            assert_eq!(parse_size_bytes(wrong), Err(UnitError::NotASize), "{wrong:?}");
        }
        for wrong in ["", "s", "1S", "1sec", "1 s", "1.5s", "-1s", "1w", "1m30s"] {
            assert_eq!(parse_duration(wrong), Err(UnitError::NotADuration), "{wrong:?}");
        }
    }

    #[test]
    fn the_largest_values_are_exact_and_the_next_are_refused() {
        assert_eq!(parse_size_bytes("18446744073709551615"), Ok(u64::MAX));
        assert_eq!(parse_size_bytes("18446744073709551616"), Err(UnitError::TooLarge));
        assert_eq!(parse_size_bytes("18446744073GB"), Ok(18_446_744_073_000_000_000));
        assert_eq!(parse_size_bytes("18446744074GB"), Err(UnitError::TooLarge));
        assert_eq!(parse_duration("18446744073709551615ms"), Ok(Duration::from_millis(u64::MAX)));
        assert_eq!(parse_duration("18446744073709552s"), Err(UnitError::TooLarge));
    }

    proptest! {
        #[test]
        fn a_size_is_its_number_times_its_unit(number: u64, unit in 0..SIZE_UNITS.len()) {
            let (name, factor) = SIZE_UNITS[unit];
            let expected = number.checked_mul(factor).ok_or(UnitError::TooLarge);
            prop_assert_eq!(parse_size_bytes(&format!("{number}{name}")), expected);
        }

        #[test]
        fn a_duration_is_its_number_times_its_unit(number: u64, unit in 0..DURATION_UNITS.len()) {
            let (name, factor) = DURATION_UNITS[unit];
            let expected = number.checked_mul(factor).map(Duration::from_millis).ok_or(UnitError::TooLarge);
            prop_assert_eq!(parse_duration(&format!("{number}{name}")), expected);
        }

        #[test]
        fn nothing_panics_and_only_digits_and_a_unit_are_read(written in ".{0,12}") {
            let digits = written.trim_start_matches(|character: char| character.is_ascii_digit());
            if parse_size_bytes(&written).is_ok() {
                prop_assert!(SIZE_UNITS.iter().any(|(name, _)| *name == digits));
            }
            if parse_duration(&written).is_ok() {
                prop_assert!(DURATION_UNITS.iter().any(|(name, _)| *name == digits));
            }
            if parse_share_percent(&written).is_ok() {
                prop_assert_eq!(digits, "%");
            }
        }
    }
}
