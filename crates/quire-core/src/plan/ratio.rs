//! Exact quotients of whole numbers.
//!
//! A float would do for most of them, but not for comparing a rate with a plan exactly, and integers cannot be
//! turned into floats here without a cast that may lose digits.

use std::{cmp::Ordering, fmt};

/// A quotient that is not negative, kept as its two whole numbers.
#[derive(Clone, Copy, Debug)]
pub struct Ratio {
    numerator: u128,
    /// At least 1.
    denominator: u128,
}

impl Ratio {
    /// A quotient. A denominator of 0 counts as 1: no rate here is by nothing.
    #[must_use]
    pub fn new(numerator: u128, denominator: u128) -> Self {
        Self { numerator, denominator: denominator.max(1) }
    }

    /// A whole number.
    #[must_use]
    pub fn whole(number: u128) -> Self {
        Self::new(number, 1)
    }

    /// So many times as much.
    #[must_use]
    pub fn times(self, factor: u64) -> Self {
        Self { numerator: self.numerator.saturating_mul(u128::from(factor)), ..self }
    }

    /// One of so many equal parts.
    #[must_use]
    pub fn per(self, parts: u128) -> Self {
        Self { denominator: self.denominator.saturating_mul(parts.max(1)), ..self }
    }

    /// The largest whole number that is not over it.
    #[must_use]
    pub const fn floor(self) -> u128 {
        // Never 0, by construction.
        match self.numerator.checked_div(self.denominator) {
            Some(whole) => whole,
            None => 0,
        }
    }

    /// The smallest whole number that is not under it.
    #[must_use]
    pub const fn ceil(self) -> u128 {
        self.numerator.div_ceil(self.denominator)
    }

    /// How it compares with a whole number, exactly.
    #[must_use]
    pub fn compare(self, whole: u64) -> Ordering {
        let whole = u128::from(whole);
        let rest = self.numerator.checked_rem(self.denominator).unwrap_or(0);
        self.floor().cmp(&whole).then(rest.cmp(&0))
    }

    /// Its first digits, rounded half up: a number of exactly `digits` digits, and by which power of ten it is
    /// to be multiplied. `None` for zero.
    fn rounded(self, digits: u32) -> Option<(u128, i32)> {
        if self.numerator == 0 {
            return None;
        }
        let (least, past) = (10_u128.saturating_pow(digits - 1), 10_u128.saturating_pow(digits));
        let Self { mut numerator, mut denominator } = self;
        let mut power = 0;
        while numerator.div_euclid(denominator) >= past {
            // Where it no longer fits, the digits that go are far behind those that are shown.
            match denominator.checked_mul(10) {
                Some(larger) => denominator = larger,
                None => numerator /= 10,
            }
            power += 1;
        }
        while numerator.div_euclid(denominator) < least {
            match numerator.checked_mul(10) {
                Some(larger) => numerator = larger,
                None => denominator = (denominator / 10).max(1),
            }
            power -= 1;
        }
        let (whole, rest) = (numerator.div_euclid(denominator), numerator.rem_euclid(denominator));
        let rounded = whole + u128::from(rest >= denominator.div_ceil(2));
        Some(if rounded == past { (least, power + 1) } else { (rounded, power) })
    }

    /// As people read it, with so many significant digits (1 to 18): `0.206`, `347.2`, `3.65e10`.
    #[must_use]
    pub fn show(self, digits: u32) -> String {
        /// What is smaller or larger than this is shown with a power of ten.
        const PLAIN: std::ops::Range<i32> = -3..6;
        let Some((rounded, power)) = self.rounded(digits.clamp(1, 18)) else { return "0".to_owned() };
        let written = rounded.to_string();
        let digits = i32::try_from(written.len()).unwrap_or(i32::MAX);
        // Of its first digit.
        let magnitude = power + digits - 1;
        if !PLAIN.contains(&magnitude) {
            return format!("{}e{magnitude}", with_point(&written, 1));
        }
        match usize::try_from(magnitude) {
            Ok(magnitude) => with_point(&written, magnitude + 1),
            Err(_) => with_point(&format!("{}{written}", zeros(-magnitude)), 1),
        }
    }
}

fn zeros(count: i32) -> String {
    "0".repeat(usize::try_from(count).unwrap_or(0))
}

/// A point behind the first `whole` digits, without zeros that say nothing; zeros up to the point if there are
/// fewer digits.
fn with_point(digits: &str, whole: usize) -> String {
    match digits.split_at_checked(whole) {
        Some((whole, fraction)) => match fraction.trim_end_matches('0') {
            "" => whole.to_owned(),
            fraction => format!("{whole}.{fraction}"),
        },
        None => format!("{digits:0<whole$}"),
    }
}

impl PartialEq for Ratio {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Ratio {}

impl PartialOrd for Ratio {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Ratio {
    /// Exact: whole parts first, then the rests turned over, as in the continued fraction, so that no product
    /// can overflow.
    fn cmp(&self, other: &Self) -> Ordering {
        let (mut a, mut b) = (*self, *other);
        let mut turned = false;
        loop {
            let order = a.floor().cmp(&b.floor());
            let rest = |ratio: Self| ratio.numerator.rem_euclid(ratio.denominator);
            let (rest_a, rest_b) = (rest(a), rest(b));
            let order = match (order, rest_a, rest_b) {
                (Ordering::Equal, 0, 0) => return Ordering::Equal,
                (Ordering::Equal, 0, _) => Ordering::Less,
                (Ordering::Equal, _, 0) => Ordering::Greater,
                (Ordering::Equal, _, _) => {
                    (a, b) = (Self::new(a.denominator, rest_a), Self::new(b.denominator, rest_b));
                    turned = !turned;
                    continue;
                }
                (order, _, _) => order,
            };
            return if turned { order.reverse() } else { order };
        }
    }
}

impl fmt::Display for Ratio {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.show(3))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn digits_are_rounded_half_up_and_zeros_that_say_nothing_go() {
        for (numerator, denominator, shown) in [
            (0, 7, "0"),
            (1, 1, "1"),
            (10, 1, "10"),
            (1, 3, "0.333"),
            (2, 3, "0.667"),
            (1, 1_000, "0.001"),
            (1, 10_000, "1e-4"),
            (999_500, 1_000_000, "1"),
            (999_499, 1_000_000, "0.999"),
            (10_000_000, 86_400, "116"),
            (123_456, 1, "123000"),
            (999_999, 1, "1e6"),
            (36_500_000_000, 1, "3.65e10"),
            (u128::MAX, 1, "3.4e38"),
            (1, u128::MAX, "2.94e-39"),
            (u128::MAX, u128::MAX, "1"),
        ] {
            assert_eq!(Ratio::new(numerator, denominator).show(3), shown, "{numerator}/{denominator}");
        }
        assert_eq!(Ratio::new(30_000_000, 86_400).show(4), "347.2");
        assert_eq!(Ratio::new(3, 2).show(1), "2");
        assert_eq!(Ratio::new(3, 0), Ratio::whole(3));
    }

    proptest! {
        #[test]
        fn what_is_shown_is_near(numerator in 1_u64..u64::MAX, denominator in 1_u64..u64::MAX) {
            let ratio = Ratio::new(u128::from(numerator), u128::from(denominator));
            let shown: f64 = ratio.show(3).parse().unwrap();
            let exact = format!("{numerator}").parse::<f64>().unwrap() / format!("{denominator}").parse::<f64>().unwrap();
            prop_assert!((shown / exact - 1.0).abs() <= 0.005_001, "{shown} {exact}");
        }

        #[test]
        fn order_is_that_of_the_products(a: u64, b in 1_u64.., c: u64, d in 1_u64..) {
            let wide = u128::from;
            let (left, right) = (Ratio::new(wide(a), wide(b)), Ratio::new(wide(c), wide(d)));
            prop_assert_eq!(left.cmp(&right), (wide(a) * wide(d)).cmp(&(wide(c) * wide(b))));
            prop_assert_eq!(left.compare(c), (wide(a)).cmp(&(wide(c) * wide(b))));
            prop_assert!(Ratio::whole(left.floor()) <= left && left <= Ratio::whole(left.ceil()));
        }

        #[test]
        fn nothing_panics(a: u128, b: u128, c: u128, d: u128, digits in 0_u32..20) {
            let (left, right) = (Ratio::new(a, b), Ratio::new(c, d));
            let _ = (left.show(digits), left.cmp(&right), left.times(7).show(2));
        }
    }
}
