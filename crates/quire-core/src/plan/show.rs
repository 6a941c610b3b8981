//! Quantities as people read them: three digits and a unit that fits.

use super::ratio::Ratio;

const BYTE_UNITS: &[(&str, u128)] = &[
    ("EB", 1_000_000_000_000_000_000),
    ("PB", 1_000_000_000_000_000),
    ("TB", 1_000_000_000_000),
    ("GB", 1_000_000_000),
    ("MB", 1_000_000),
    ("KB", 1_000),
];

/// From the largest: its name, its seconds, and the smallest number of it that is still shown in it. A day and
/// a half reads better as 36 hours.
const TIME_UNITS: &[(&str, u128, u128)] =
    &[("years", 31_536_000, 2), ("days", 86_400, 2), ("hours", 3_600, 2), ("minutes", 60, 2)];

/// Bytes, as in `8.64 GB`.
#[must_use]
pub fn bytes(bytes: u128) -> String {
    byte_ratio(Ratio::whole(bytes))
}

/// Bytes that need not be whole, as in `1.16 MB`.
#[must_use]
pub fn byte_ratio(bytes: Ratio) -> String {
    let unit = BYTE_UNITS.iter().find(|(_, size)| bytes.floor() >= *size);
    match unit {
        Some((name, size)) => format!("{} {name}", bytes.per(*size)),
        None => format!("{bytes} bytes"),
    }
}

/// Seconds, as in `5.36 days`.
#[must_use]
pub fn seconds(seconds: u128) -> String {
    match TIME_UNITS.iter().find(|(_, size, least)| seconds >= size * least) {
        Some((name, size, _)) => format!("{} {name}", Ratio::new(seconds, *size)),
        None => format!("{seconds} s"),
    }
}

/// A whole number with its thousands apart, as in `450,000,000`.
#[must_use]
pub fn count(number: u128) -> String {
    let digits = number.to_string();
    let mut shown = String::with_capacity(digits.len() + digits.len() / 3);
    for (position, digit) in digits.chars().enumerate() {
        if position > 0 && (digits.len() - position).is_multiple_of(3) {
            shown.push(',');
        }
        shown.push(digit);
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_have_three_digits_and_a_unit() {
        for (number, shown) in [
            (0, "0 bytes"),
            (999, "999 bytes"),
            (1_000, "1 KB"),
            (8_642_000_000, "8.64 GB"),
            (864_020_000_000, "864 GB"),
            (1_080_025_000_000, "1.08 TB"),
            (4_500_000_000_000, "4.5 TB"),
            (u128::MAX, "3.4e20 EB"),
        ] {
            assert_eq!(bytes(number), shown);
        }
    }

    #[test]
    fn times_and_counts_are_readable() {
        for (number, shown) in [
            (0, "0 s"),
            (119, "119 s"),
            (120, "2 minutes"),
            (90_000, "25 hours"),
            (172_800, "2 days"),
            (463_400, "5.36 days"),
            (63_072_000, "2 years"),
        ] {
            assert_eq!(seconds(number), shown);
        }
        assert_eq!(count(0), "0");
        assert_eq!(count(999), "999");
        assert_eq!(count(1_000), "1,000");
        assert_eq!(count(450_000_000), "450,000,000");
    }
}
