//! Points in time as the stores keep them: whole milliseconds since the Unix epoch, UTC.
//!
//! This module computes and formats; it never asks what time it is.

use std::time::Duration;

use crate::paste::Ttl;

/// Milliseconds in a second.
const MS_PER_SECOND: i64 = 1_000;
/// Seconds in a UTC day; Unix time has no leap seconds.
const SECONDS_PER_DAY: i64 = 86_400;

/// A wall-clock instant in Unix milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(i64);

impl Timestamp {
    /// The instant `unix_ms` milliseconds after the Unix epoch.
    #[must_use]
    pub const fn from_unix_ms(unix_ms: i64) -> Self {
        Self(unix_ms)
    }

    /// Milliseconds since the Unix epoch.
    #[must_use]
    pub const fn unix_ms(self) -> i64 {
        self.0
    }

    /// The UTC day this instant lies in, counted from 1970-01-01.
    #[must_use]
    pub const fn unix_day(self) -> i64 {
        self.0.div_euclid(MS_PER_SECOND * SECONDS_PER_DAY)
    }

    /// This instant moved forward, saturating at the end of the range.
    #[must_use]
    pub fn plus(self, by: Duration) -> Self {
        Self(self.0.saturating_add(i64::try_from(by.as_millis()).unwrap_or(i64::MAX)))
    }

    /// How long after `earlier` this instant is; zero if it is not.
    #[must_use]
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }

    /// When a paste made now expires: no calendar arithmetic, truncated to a whole second (contract M4).
    #[must_use]
    pub fn expiry(self, ttl: Ttl) -> Self {
        let exact_ms = self.plus(ttl.duration()).0;
        Self(exact_ms - exact_ms.rem_euclid(MS_PER_SECOND))
    }

    /// RFC 3339 in UTC with whole seconds, as in `2026-11-02T17:44:00Z`.
    #[must_use]
    pub fn to_rfc3339(self) -> String {
        let seconds = self.0.div_euclid(MS_PER_SECOND);
        // Out of jiff's range (year -9999 to 9999) only if a store was tampered with.
        jiff::Timestamp::from_second(seconds).unwrap_or(jiff::Timestamp::MAX).to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expiry_is_truncated_to_whole_seconds() {
        let made = Timestamp::from_unix_ms(1_793_641_440_999);
        assert_eq!(made.expiry(Ttl::Day), Timestamp::from_unix_ms((1_793_641_440 + 86_400) * 1_000));
        assert_eq!(made.expiry(Ttl::Year), Timestamp::from_unix_ms((1_793_641_440 + 31_536_000) * 1_000));
    }

    #[test]
    fn formats_whole_seconds_in_utc() {
        assert_eq!(Timestamp::from_unix_ms(1_793_641_440_999).to_rfc3339(), "2026-11-02T17:44:00Z");
        assert_eq!(Timestamp::from_unix_ms(-1).to_rfc3339(), "1969-12-31T23:59:59Z");
    }

    #[test]
    fn days_are_counted_from_the_epoch() {
        assert_eq!(Timestamp::from_unix_ms(0).unix_day(), 0);
        assert_eq!(Timestamp::from_unix_ms(86_400_000 - 1).unix_day(), 0);
        assert_eq!(Timestamp::from_unix_ms(86_400_000).unix_day(), 1);
        assert_eq!(Timestamp::from_unix_ms(-1).unix_day(), -1);
    }

    #[test]
    fn since_never_underflows() {
        let (a, b) = (Timestamp::from_unix_ms(5), Timestamp::from_unix_ms(9));
        assert_eq!(b.since(a), Duration::from_millis(4));
        assert_eq!(a.since(b), Duration::ZERO);
    }
}
