//! The one table from error code to status, message and headers.
//!
//! Promises: every error body is JSON (H1); a 404 is the same bytes whatever was asked (R2); 429 and 503
//! carry `Retry-After`; no error may be cached (R8). It must never carry a cause: what went wrong inside is
//! for the log.

use std::{borrow::Cow, time::Duration};

use bytes::Bytes;
use http::{
    HeaderValue, Response, StatusCode,
    header::{CACHE_CONTROL, CONTENT_TYPE, RETRY_AFTER},
};
use http_body_util::Full;
use quire_core::admission::{Limit, Refusal};

use super::{Answer, wire::ErrorBody};

/// The body of every 404 (R2).
const NOT_FOUND_BODY: &[u8] = br#"{"error":"not_found"}"#;

/// Everything that can be answered but success.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ErrorCode {
    /// No usable `Content-Length`.
    LengthRequired,
    /// A declared length over the largest paste.
    TooLarge,
    /// Shed: too much is in flight.
    Overloaded,
    /// Shed: free disk is under the reserve.
    NoSpace,
    /// A bucket is empty.
    RateLimited(Refusal),
    /// From a page of another site.
    CrossSite,
    /// Not one of the four lifetimes.
    BadTtl,
    /// Not a label.
    BadSyntax,
    /// A form, a foreign charset or an encoded body.
    BadContentType,
    /// Fewer bytes than declared, or too slowly.
    IncompleteBody,
    /// No bytes.
    EmptyBody,
    /// Not UTF-8.
    BadUtf8,
    /// Not stored for certain.
    StorageFailed,
    /// A store did not answer.
    Unavailable,
    /// A live row without its body.
    BodyMissing,
    /// A live row with another body.
    BodyCorrupt,
    /// A known path with a wrong method.
    MethodNotAllowed,
    /// Whatever is not there.
    NotFound,
}

/// One line of the table.
struct Line {
    status: StatusCode,
    code: &'static str,
    message: &'static str,
    retry_after_seconds: Option<u64>,
}

impl ErrorCode {
    /// Every code, for whoever counts them. One refusal stands for all of them.
    pub(super) const ALL: [Self; 18] = [
        Self::LengthRequired,
        Self::TooLarge,
        Self::Overloaded,
        Self::NoSpace,
        Self::RateLimited(Refusal { limit: Limit::SourceCreates, wait: Duration::ZERO }),
        Self::CrossSite,
        Self::BadTtl,
        Self::BadSyntax,
        Self::BadContentType,
        Self::IncompleteBody,
        Self::EmptyBody,
        Self::BadUtf8,
        Self::StorageFailed,
        Self::Unavailable,
        Self::BodyMissing,
        Self::BodyCorrupt,
        Self::MethodNotAllowed,
        Self::NotFound,
    ];

    fn line(self) -> Line {
        const BAD: StatusCode = StatusCode::BAD_REQUEST;
        const FAULT: StatusCode = StatusCode::INTERNAL_SERVER_ERROR;
        const BUSY: StatusCode = StatusCode::SERVICE_UNAVAILABLE;
        let (status, code, message, retry_after_seconds) = match self {
            Self::LengthRequired => {
                (BAD, "length_required", "Content-Length is required; chunked bodies are not taken.", None)
            }
            Self::TooLarge => {
                (StatusCode::PAYLOAD_TOO_LARGE, "too_large", "A paste is at most 1,000,000 bytes.", None)
            }
            Self::Overloaded => (BUSY, "overloaded", "Too much is in flight; try again shortly.", Some(1)),
            Self::NoSpace => (BUSY, "unavailable", "No paste can be stored at the moment.", Some(60)),
            Self::RateLimited(refusal) => (
                StatusCode::TOO_MANY_REQUESTS,
                "rate_limited",
                "Too much for now; wait as long as Retry-After says.",
                Some(refusal.retry_after_s()),
            ),
            Self::CrossSite => (
                StatusCode::FORBIDDEN,
                "cross_site",
                "A page of another site may not create pastes here.",
                None,
            ),
            Self::BadTtl => (BAD, "bad_ttl", "X-Paste-TTL must be one of 1d, 7d, 30d, 365d.", None),
            Self::BadSyntax => {
                (BAD, "bad_syntax", "X-Paste-Syntax must be at most 32 bytes of visible ASCII.", None)
            }
            Self::BadContentType => (
                BAD,
                "bad_content_type",
                "Send the text itself, as UTF-8: no multipart form, no other charset, no content encoding.",
                None,
            ),
            Self::IncompleteBody => {
                (BAD, "incomplete_body", "The body was shorter than declared, or came too slowly.", None)
            }
            Self::EmptyBody => (BAD, "empty_body", "The body is empty.", None),
            Self::BadUtf8 => (BAD, "bad_utf8", "The body is not UTF-8 text.", None),
            Self::StorageFailed => (
                FAULT,
                "storage_failed",
                "The paste was not stored for certain; you may send it again.",
                None,
            ),
            Self::Unavailable => {
                (BUSY, "unavailable", "The service cannot answer this now; try again shortly.", Some(5))
            }
            Self::BodyMissing => (FAULT, "body_missing", "The paste cannot be read.", None),
            Self::BodyCorrupt => (FAULT, "body_corrupt", "The paste cannot be read.", None),
            Self::MethodNotAllowed => (
                StatusCode::METHOD_NOT_ALLOWED,
                "method_not_allowed",
                "This method is not known here; see Allow.",
                None,
            ),
            Self::NotFound => (StatusCode::NOT_FOUND, "not_found", "", None),
        };
        Line { status, code, message, retry_after_seconds }
    }

    /// The word for programs.
    pub(super) fn code(self) -> &'static str {
        self.line().code
    }

    fn body(self) -> Bytes {
        if self == Self::NotFound {
            return Bytes::from_static(NOT_FOUND_BODY);
        }
        let Line { code, message, .. } = self.line();
        let limit = match self {
            Self::RateLimited(refusal) => Some(Cow::Borrowed(refusal.limit.as_str())),
            _ => None,
        };
        let body = ErrorBody { error: Cow::Borrowed(code), limit, message: Some(Cow::Borrowed(message)) };
        // Strings always serialise.
        serde_json::to_vec(&body).map(Bytes::from).unwrap_or_default()
    }

    /// The answer.
    pub(super) fn answer(self) -> Answer {
        let Line { status, retry_after_seconds, .. } = self.line();
        let mut answer = Response::new(Full::new(self.body()));
        *answer.status_mut() = status;
        let headers = answer.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        if let Some(seconds) = retry_after_seconds {
            headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
        answer
    }

    /// The same answer as bytes, for where there is no parsed request to answer. It closes the connection.
    pub(super) fn answer_bytes(self) -> Bytes {
        let Line { status, retry_after_seconds, .. } = self.line();
        let body = self.body();
        let retry_after =
            retry_after_seconds.map_or_else(String::new, |seconds| format!("retry-after: {seconds}\r\n"));
        let mut bytes = format!(
            "HTTP/1.1 {} {}\r\ncontent-type: application/json\r\ncache-control: no-store\r\n{retry_after}\
             connection: close\r\ncontent-length: {}\r\n\r\n",
            status.as_str(),
            status.canonical_reason().unwrap_or_default(),
            body.len(),
        )
        .into_bytes();
        bytes.extend_from_slice(&body);
        Bytes::from(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_is_listed_once() {
        for (place, code) in ErrorCode::ALL.iter().enumerate() {
            assert!(!ErrorCode::ALL[..place].contains(code));
        }
    }

    #[test]
    fn whoever_is_told_to_come_back_is_told_when() {
        for code in ErrorCode::ALL {
            let answer = code.answer();
            let told = answer.headers().contains_key(RETRY_AFTER);
            assert_eq!(told, matches!(answer.status().as_u16(), 429 | 503), "{code:?}");
            assert_eq!(answer.headers()[CACHE_CONTROL], "no-store");
            assert_eq!(answer.headers()[CONTENT_TYPE], "application/json");
        }
    }

    #[test]
    fn a_refusal_names_its_bucket_and_rounds_its_wait_up() {
        let refusal = Refusal { limit: Limit::ServiceBytes, wait: Duration::from_millis(2_001) };
        let code = ErrorCode::RateLimited(refusal);
        assert_eq!(code.answer().headers()[RETRY_AFTER], "3");
        let body = code.body();
        let text = std::str::from_utf8(&body).unwrap();
        assert!(text.starts_with(r#"{"error":"rate_limited","limit":"service_bytes","message":""#), "{text}");
    }

    #[test]
    fn only_not_found_is_without_a_message() {
        assert_eq!(ErrorCode::NotFound.body(), Bytes::from_static(br#"{"error":"not_found"}"#));
        for code in ErrorCode::ALL.into_iter().filter(|code| *code != ErrorCode::NotFound) {
            let body = code.body();
            let read: ErrorBody<'_> = serde_json::from_slice(&body).unwrap();
            assert!(read.message.is_some_and(|message| !message.is_empty()), "{code:?}");
        }
    }

    #[test]
    fn the_answer_without_a_request_says_how_long_it_is_and_that_it_closes() {
        let bytes = ErrorCode::Overloaded.answer_bytes();
        let text = std::str::from_utf8(&bytes).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 503 Service Unavailable\r\n"));
        assert!(head.contains("\r\nretry-after: 1\r\n"));
        assert!(head.contains("\r\nconnection: close\r\n"));
        assert!(head.ends_with(&format!("content-length: {}", body.len())));
    }
}
