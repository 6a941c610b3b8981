//! `GET` and `HEAD` of a paste.
//!
//! Promises: a paste is answered with exactly its bytes and the headers of R1; whatever is not there is
//! answered as one constant (R2); no shared cache may keep a paste past its expiry or the bound (R8). On the
//! way of a cached paste there is no task, no timer and no formatting but of an unusual `s-maxage`.

use std::{
    future::{Future, poll_fn},
    pin::pin,
    sync::Arc,
    task::Poll,
    time::Duration,
};

use bytes::Bytes;
use http::{
    HeaderMap, HeaderName, HeaderValue, Response, StatusCode,
    header::{
        CACHE_CONTROL, CONTENT_LENGTH, CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG, IF_NONE_MATCH,
        REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
    },
};
use http_body_util::Full;
use quire_core::{
    paste::{Id, StoredRow},
    ports::Fault,
    service::ReadError,
};
use tokio::time::timeout;

use super::{
    Answer, Api, cors,
    error::ErrorCode,
    guard::{Kind, Share, Source},
    metrics::Shed,
    record::{Connection, Held},
};

const X_PASTE_EXPIRES_AT: HeaderName = HeaderName::from_static("x-paste-expires-at");
const X_PASTE_SYNTAX: HeaderName = HeaderName::from_static("x-paste-syntax");
const X_ROBOTS_TAG: HeaderName = HeaderName::from_static("x-robots-tag");

/// Answers up to this size need no room of their own: requests in flight bound them.
const SMALL_ANSWER_BYTES: usize = 16_384;

/// What is asked of a paste.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asked {
    /// Headers and body.
    Body,
    /// The headers of the same answer.
    Headers,
}

/// Answers a read. `headers` are the request's; their memory becomes the answer's.
pub(super) async fn read(
    api: &Api,
    connection: &Connection,
    source: &Arc<Source>,
    id: Id,
    asked: Asked,
    headers: HeaderMap,
) -> Result<Answer, ErrorCode> {
    let in_flight = api.enter(source, Kind::Other)?;
    // Charged before any look-up, whatever the answer will be (A6).
    let admitted = api.source_limits.admit_read(source.key());
    let mut room = None;
    let outcome = match admitted {
        Ok(()) => look_up(api, id, asked, headers, &mut room).await,
        Err(refusal) => Err(api.metrics.rate_limited(refusal)),
    };
    // A slow reader keeps its place, and its body's room, until the last byte has left.
    connection.hold(Held { _in_flight: in_flight, _answer: room });
    outcome
}

/// The answer, and in `room` what a large one takes.
async fn look_up(
    api: &Api,
    id: Id,
    asked: Asked,
    headers: HeaderMap,
    room: &mut Option<Share>,
) -> Result<Answer, ErrorCode> {
    // HEAD and a condition that holds need the row alone (R6).
    if asked == Asked::Headers || headers.contains_key(IF_NONE_MATCH) {
        let stored = wait(api, api.service.find(id)).await?.ok_or(ErrorCode::NotFound)?;
        if is_held_already(&headers, &stored.entity_tag) {
            return Ok(answer(api, headers, &stored, StatusCode::NOT_MODIFIED, Bytes::new()));
        }
        if asked == Asked::Headers {
            let mut answer = answer(api, headers, &stored, StatusCode::OK, Bytes::new());
            answer.headers_mut().insert(CONTENT_LENGTH, HeaderValue::from(stored.row.size_bytes));
            return Ok(answer);
        }
    }
    let paste = wait(api, api.service.read(id)).await?.ok_or(ErrorCode::NotFound)?;
    if paste.body.len() > SMALL_ANSWER_BYTES {
        *room = Some(api.guard.answer(paste.body.len()).map_err(|reason| api.shed(reason))?);
    }
    Ok(answer(api, headers, &paste.row, StatusCode::OK, paste.body))
}

/// Waits for the stores, but not for ever.
async fn wait<T>(
    api: &Api,
    reading: impl Future<Output = Result<Option<T>, ReadError>>,
) -> Result<Option<T>, ErrorCode> {
    match within(api.bounds.read_wait_max, reading).await {
        Some(Ok(found)) => Ok(found),
        Some(Err(error)) => Err(fault(api, &error)),
        None => {
            tracing::error!("a paste was not read in time");
            Err(ErrorCode::Unavailable)
        }
    }
}

/// The future's output, or `None` after `time_max`. What is ready at once costs no timer.
async fn within<F: Future>(time_max: Duration, future: F) -> Option<F::Output> {
    let mut future = pin!(future);
    let at_once = poll_fn(|context| Poll::Ready(future.as_mut().poll(context))).await;
    match at_once {
        Poll::Ready(output) => Some(output),
        Poll::Pending => timeout(time_max, future).await.ok(),
    }
}

/// The one place where a failed read is logged; the answer says nothing of the cause.
fn fault(api: &Api, error: &ReadError) -> ErrorCode {
    match error {
        // A full queue is load, not a fault, and a line for each would only add to it.
        ReadError::Row(cause) | ReadError::Body(cause) if cause.fault() == Fault::Overloaded => {
            return api.shed(Shed::Queue);
        }
        _ => tracing::error!(%error, "a paste could not be read"),
    }
    match error {
        ReadError::Row(_) | ReadError::Body(_) => ErrorCode::Unavailable,
        ReadError::BodyMissing => {
            api.metrics.bodies_missing.inc();
            ErrorCode::BodyMissing
        }
        ReadError::BodyCorrupt(_) => {
            api.metrics.bodies_corrupt.inc();
            ErrorCode::BodyCorrupt
        }
    }
}

fn answer(
    api: &Api,
    mut headers: HeaderMap,
    stored: &Arc<StoredRow>,
    status: StatusCode,
    body: Bytes,
) -> Answer {
    // The request's map has room for about as many headers; a new one would be two allocations.
    headers.clear();
    if status == StatusCode::OK {
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    }
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static("default-src 'none'; sandbox"));
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    headers.insert(X_ROBOTS_TAG, HeaderValue::from_static("noindex"));
    headers.insert(CACHE_CONTROL, api.cache_control.of(stored, api));
    // None of these three can fail: their text is visible ASCII by construction.
    if let Ok(entity_tag) = HeaderValue::from_maybe_shared(stored.entity_tag.clone()) {
        headers.insert(ETAG, entity_tag);
    }
    if let Ok(expires_at) = HeaderValue::from_maybe_shared(stored.expires_at_text.clone()) {
        headers.insert(X_PASTE_EXPIRES_AT, expires_at);
    }
    if let Some(syntax) = &stored.row.syntax
        && let Ok(syntax) = HeaderValue::from_str(syntax.as_str())
    {
        headers.insert(X_PASTE_SYNTAX, syntax);
    }
    cors::allow_read(&mut headers);
    let mut answer = Response::new(Full::new(body));
    *answer.status_mut() = status;
    *answer.headers_mut() = headers;
    answer
}

/// How long a shared cache may hold a paste (R8).
pub(super) struct CacheControl {
    bound_seconds: u64,
    /// The value for a paste that lives longer than the bound, which is nearly every one.
    at_bound: HeaderValue,
}

impl CacheControl {
    pub(super) fn new(bound: Duration) -> Self {
        let bound_seconds = bound.as_secs();
        Self { bound_seconds, at_bound: Self::value(bound_seconds) }
    }

    fn value(seconds: u64) -> HeaderValue {
        let text = format!("public, max-age=0, s-maxage={seconds}, must-revalidate");
        // ASCII always is a header value; `no-store` would be the safe side.
        HeaderValue::try_from(text).unwrap_or(HeaderValue::from_static("no-store"))
    }

    /// Whole seconds that are left, less one, so that no cache serves an expired paste.
    fn of(&self, stored: &StoredRow, api: &Api) -> HeaderValue {
        let left = stored.row.expires_at.since(api.clock.wall()).as_secs().saturating_sub(1);
        if left >= self.bound_seconds { self.at_bound.clone() } else { Self::value(left) }
    }
}

/// Whether `If-None-Match` names the tag, compared weakly, or any (R6).
fn is_held_already(headers: &HeaderMap, entity_tag: &[u8]) -> bool {
    headers.get_all(IF_NONE_MATCH).iter().any(|value| names(value.as_bytes().trim_ascii(), entity_tag))
}

fn names(value: &[u8], entity_tag: &[u8]) -> bool {
    if value == b"*" {
        return true;
    }
    let mut rest = value;
    loop {
        rest = rest.trim_ascii_start();
        if let Some(after_comma) = rest.strip_prefix(b",") {
            rest = after_comma;
            continue;
        }
        let strong = rest.strip_prefix(b"W/").unwrap_or(rest);
        // A tag reaches from one quote to the next; anything else ends the list.
        let Some(opaque) = strong.strip_prefix(b"\"") else { return false };
        let Some(length) = opaque.iter().position(|byte| *byte == b'"') else { return false };
        let (Some(tag), Some(after)) = (strong.get(..length + 2), strong.get(length + 2..)) else {
            return false;
        };
        if tag == entity_tag {
            return true;
        }
        rest = after;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TAG: &[u8] = b"\"abc\"";

    #[test]
    fn a_condition_names_the_tag_weakly_or_any() {
        for value in
            ["\"abc\"", "W/\"abc\"", "*", "\"x\", \"abc\"", ", ,W/\"x,y\" ,W/\"abc\",", "\"x\"\"abc\""]
        {
            assert!(names(value.as_bytes(), TAG), "{value}");
        }
        for value in [
            "",
            "abc",
            "\"ab\"",
            "w/\"abc\"",
            "\"abc",
            "\"x\", *",
            "*, \"x\"",
            "\"\\\"abc\\\"\"",
            "\"x\", abc",
        ] {
            assert!(!names(value.as_bytes(), TAG), "{value}");
        }
    }

    #[test]
    fn any_of_several_lines_will_do() {
        let mut headers = HeaderMap::new();
        headers.append(IF_NONE_MATCH, HeaderValue::from_static("\"x\""));
        assert!(!is_held_already(&headers, TAG));
        headers.append(IF_NONE_MATCH, HeaderValue::from_static("W/\"abc\""));
        assert!(is_held_already(&headers, TAG));
    }

    #[tokio::test]
    async fn what_never_comes_is_given_up() {
        assert_eq!(within(Duration::from_millis(5), std::future::pending::<()>()).await, None);
        assert_eq!(within(Duration::ZERO, async { 7 }).await, Some(7));
    }

    proptest! {
        #[test]
        fn no_bytes_break_it(value in proptest::collection::vec(any::<u8>(), 0..60)) {
            let _ = names(&value, TAG);
        }
    }
}
