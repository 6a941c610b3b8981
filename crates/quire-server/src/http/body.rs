//! Reading a request's body against the clock, and throwing a refused one away.
//!
//! Promises: memory grows with what has come, never with what was declared; a body that stalls or trickles
//! ends within a bounded time (C2); a refused body is read only as far as bounds allow, so that its sender
//! receives the answer and not a reset (C3). It must never ask for a body whose sender waits for `100
//! Continue` and whose request is refused: asking is what makes hyper say "continue".

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::{HeaderValue, Request, header::EXPECT};
use http_body_util::BodyExt as _;
use hyper::body::{Body as _, Incoming};
use tokio::time::{Instant, timeout_at};

use super::{bounds::Bounds, guard::Guard};

/// A body was shorter than declared, or came too slowly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Incomplete;

/// Reads a body of exactly `declared` bytes.
///
/// # Errors
/// It is [`Incomplete`] when it ends early or when it falls behind: its first byte may take the grace, from
/// then on the rate must hold over everything received, and there is a time for all of it.
pub(super) async fn read(body: &mut Incoming, declared: usize, bounds: &Bounds) -> Result<Bytes, Incomplete> {
    let began = Instant::now();
    let mut gathered = BytesMut::new();
    while gathered.len() < declared {
        let deadline = began + time_for(gathered.len(), bounds);
        // A frame that is there already is taken without a timer being set.
        let Ok(Some(Ok(frame))) = timeout_at(deadline, body.frame()).await else { return Err(Incomplete) };
        let Ok(data) = frame.into_data() else { continue };
        // A body that comes in one piece is used as it is.
        if gathered.is_empty() && data.len() == declared {
            return Ok(data);
        }
        reserve(&mut gathered, data.len(), declared);
        gathered.extend_from_slice(&data);
    }
    Ok(gathered.freeze())
}

/// Doubles, but not past what was declared: then the last doubling is exact.
fn reserve(gathered: &mut BytesMut, more: usize, declared: usize) {
    let needed = gathered.len().saturating_add(more);
    if needed > gathered.capacity() {
        let target = needed.max(gathered.capacity().saturating_mul(2)).min(declared).max(needed);
        gathered.reserve(target - gathered.len());
    }
}

/// How long after its begin a body of which `received` bytes have come may still be waited for.
fn time_for(received: usize, bounds: &Bounds) -> Duration {
    let received = u64::try_from(received).unwrap_or(u64::MAX);
    let paid_ms = received.saturating_mul(1_000) / bounds.body_rate_bytes_per_second.max(1);
    bounds.body_grace.saturating_add(Duration::from_millis(paid_ms)).min(bounds.body_time_max)
}

/// Throws away what is left of a body whose request has been answered for. Says whether nothing is left, so
/// that the connection can go on.
pub(super) async fn discard(
    body: &mut Incoming,
    expectation: Expectation,
    guard: &Guard,
    bounds: &Bounds,
) -> bool {
    if body.is_end_stream() {
        return true;
    }
    if expectation.waits_for_continue {
        return false;
    }
    let Some(_place) = guard.discard() else { return false };
    let deadline = Instant::now() + bounds.discard_time_max;
    let mut thrown_away = 0_usize;
    while thrown_away <= bounds.discard_bytes_max {
        match timeout_at(deadline, body.frame()).await {
            Ok(Some(Ok(frame))) => {
                thrown_away = thrown_away.saturating_add(frame.data_ref().map_or(0, Bytes::len));
            }
            Ok(None) => return true,
            Ok(Some(Err(_))) | Err(_) => return false,
        }
        if body.is_end_stream() {
            return true;
        }
    }
    false
}

/// Whether the sender holds its body back.
#[derive(Clone, Copy, Debug)]
pub(super) struct Expectation {
    waits_for_continue: bool,
}

impl Expectation {
    pub(super) fn of(request: &Request<Incoming>) -> Self {
        let says = |value: &HeaderValue| value.as_bytes().eq_ignore_ascii_case(b"100-continue");
        let has_body = !request.body().is_end_stream();
        Self { waits_for_continue: has_body && request.headers().get_all(EXPECT).iter().any(says) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_is_earned_by_bytes_within_a_bound() {
        let bounds = Bounds::default();
        assert_eq!(time_for(0, &bounds), Duration::from_secs(5));
        assert_eq!(time_for(10_000, &bounds), Duration::from_secs(6));
        assert_eq!(time_for(1_000_000, &bounds), Duration::from_mins(1));
        assert_eq!(time_for(usize::MAX, &bounds), Duration::from_mins(1));
    }

    #[test]
    fn memory_follows_what_came() {
        let mut gathered = BytesMut::new();
        let mut arrived = 0;
        while arrived < 1_000_000 {
            let piece = vec![b'a'; 8_000.min(1_000_000 - arrived)];
            reserve(&mut gathered, piece.len(), 1_000_000);
            gathered.extend_from_slice(&piece);
            arrived += piece.len();
            assert!(gathered.capacity() <= (2 * arrived).max(8_192), "{} for {arrived}", gathered.capacity());
        }
        assert_eq!(gathered.len(), 1_000_000);
    }
}
