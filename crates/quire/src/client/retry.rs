//! Whether a create may be sent again: a pure decision, so that it can be tested without a server.
//!
//! There is no idempotency key, so a create that is sent twice is two pastes. It is sent again only when the
//! server has said that it stored nothing, and only so often.

use std::time::Duration;

/// How often a create is sent, the first time included.
pub(crate) const TRIES_MAX: u32 = 5;
/// How long a command may wait in all.
pub(crate) const WAITS_MAX: Duration = Duration::from_mins(1);
/// How long to wait when the server does not say, and at least.
const WAIT_MIN: Duration = Duration::from_secs(1);

/// What to do after an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Take the answer as it is; nothing can be gained by sending again, or it could store a second paste.
    Take,
    /// Send again after this long.
    Wait(Duration),
    /// Nothing was stored, but there were enough tries; the person may try after this long.
    GiveUp(Duration),
}

/// What is known of an answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Refusal<'a> {
    /// Its status.
    pub(crate) status: u16,
    /// Whether it is quire's own, by its body. A proxy sends its own 503 when it lost the server's answer, and
    /// then the paste may exist.
    pub(crate) is_from_quire: bool,
    /// Its `Retry-After`.
    pub(crate) retry_after: Option<&'a str>,
}

/// Decides after an answer to the `tries`-th try, having waited `waited` so far.
pub(crate) fn next(refusal: Refusal<'_>, tries: u32, waited: Duration) -> Next {
    let stored_nothing = match refusal.status {
        429 => true,
        503 => refusal.is_from_quire,
        _ => false,
    };
    if !stored_nothing {
        return Next::Take;
    }
    let seconds = refusal.retry_after.and_then(|written| written.trim().parse::<u64>().ok());
    let wait = seconds.map_or(WAIT_MIN, Duration::from_secs).max(WAIT_MIN);
    if tries < TRIES_MAX && waited.saturating_add(wait) <= WAITS_MAX {
        Next::Wait(wait)
    } else {
        Next::GiveUp(wait)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn after(status: u16, retry_after: Option<&str>) -> Next {
        next(Refusal { status, is_from_quire: true, retry_after }, 1, Duration::ZERO)
    }

    #[test]
    fn only_429_and_503_are_tried_again() {
        for status in [200, 201, 204, 302, 400, 403, 404, 413, 500, 502, 504] {
            assert_eq!(after(status, Some("1")), Next::Take, "{status}");
        }
        assert_eq!(after(429, Some("3")), Next::Wait(3 * SECOND));
        assert_eq!(after(503, Some("2")), Next::Wait(2 * SECOND));
    }

    #[test]
    fn a_503_of_a_proxy_may_hide_a_stored_paste() {
        let refusal = |status| Refusal { status, is_from_quire: false, retry_after: Some("5") };
        assert_eq!(next(refusal(503), 1, Duration::ZERO), Next::Take);
        assert_eq!(next(refusal(429), 1, Duration::ZERO), Next::Wait(5 * SECOND));
    }

    #[test]
    fn without_a_usable_time_it_waits_a_second() {
        for retry_after in [None, Some(""), Some("0"), Some("-5"), Some("Wed, 21 Oct 2026 07:28:00 GMT")] {
            assert_eq!(after(429, retry_after), Next::Wait(SECOND), "{retry_after:?}");
        }
    }

    #[test]
    fn tries_and_time_are_bounded() {
        let refusal = |retry_after| Refusal { status: 429, is_from_quire: true, retry_after };
        assert_eq!(next(refusal(Some("1")), TRIES_MAX, Duration::ZERO), Next::GiveUp(SECOND));
        assert_eq!(next(refusal(Some("61")), 1, Duration::ZERO), Next::GiveUp(61 * SECOND));
        assert_eq!(next(refusal(Some("10")), 2, 50 * SECOND), Next::Wait(10 * SECOND));
        assert_eq!(next(refusal(Some("10")), 2, 51 * SECOND), Next::GiveUp(10 * SECOND));
    }

    proptest! {
        #[test]
        fn a_server_cannot_make_it_wait_longer_than_the_bound(waits in prop::collection::vec("[0-9]{0,20}", 1..9)) {
            let (mut waited, mut tries) = (Duration::ZERO, 0);
            for retry_after in &waits {
                tries += 1;
                let refusal = Refusal { status: 503, is_from_quire: true, retry_after: Some(retry_after) };
                match next(refusal, tries, waited) {
                    Next::Wait(wait) => waited += wait,
                    _ => break,
                }
            }
            prop_assert!(waited <= WAITS_MAX && tries <= TRIES_MAX);
        }
    }
}
