//! `POST /v1/pastes`: headers to domain types, in the order of C2, then the body, then the service.
//!
//! Promises: nothing is asked of any store before steps 1 to 3 have passed; the paste that is stored is the
//! bytes that came; once the service has begun, it goes on in a task of its own, with all that the request
//! counted for, whether or not the client is still there. It must never answer 201 but for what the service
//! acknowledged.

use std::sync::Arc;

use bytes::Bytes;
use http::{
    HeaderMap, HeaderValue, Response, StatusCode,
    header::{CACHE_CONTROL, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, LOCATION},
    request::Parts,
};
use http_body_util::Full;
use hyper::body::Incoming;
use quire_core::{
    paste::{BODY_BYTES_MAX, Syntax, Text, TextError, Ttl},
    service::{CreateError, Created, NewPaste},
};
use tokio::time::timeout;

use super::{
    Answer, Api,
    admission::{Ticket, admit_create},
    body::{self, Incomplete},
    content_type,
    error::ErrorCode,
    guard::{InFlight, Kind, Share, Source},
    metrics::Shed,
    wire::CreatedAnswer,
};

/// What a create counts for until its work is done.
struct Permits {
    _in_flight: InFlight,
    _declared: Share,
}

/// What the headers ask for.
struct Wish {
    ttl: Ttl,
    syntax: Option<Syntax>,
}

/// Answers a create, and counts a refusal.
pub(super) async fn create(
    api: &Api,
    source: &Arc<Source>,
    parts: &Parts,
    body: &mut Incoming,
) -> Result<Answer, ErrorCode> {
    let outcome = steps(api, source, parts, body).await;
    if let Err(code) = outcome {
        api.metrics.create_refused(code);
    }
    outcome
}

async fn steps(
    api: &Api,
    source: &Arc<Source>,
    parts: &Parts,
    body: &mut Incoming,
) -> Result<Answer, ErrorCode> {
    // 1 length, then load, then the site it comes from
    let declared = declared_length(&parts.headers)?;
    let permits = admit(api, source, declared)?;
    if api.sites.is_cross_site(&parts.uri, &parts.headers) {
        return Err(ErrorCode::CrossSite);
    }

    // 2 limiter
    let ticket = admit_create(api, source.key(), declared).await?;

    // 3 headers
    let wish = wish(&parts.headers)?;

    // 4 body
    let bytes =
        body::read(body, declared, &api.bounds).await.map_err(|Incomplete| ErrorCode::IncompleteBody)?;
    let text = Text::new(bytes).map_err(|error| match error {
        TextError::Empty => ErrorCode::EmptyBody,
        TextError::NotUtf8 => ErrorCode::BadUtf8,
        TextError::TooLarge => ErrorCode::TooLarge,
    })?;

    // 5 store
    let created = store(api, NewPaste { ttl: wish.ttl, syntax: wish.syntax, text }, permits, ticket).await?;
    Ok(answer(api, &created))
}

/// The declared length. What hyper's parser refuses never gets here; a chunked body has no length here.
fn declared_length(headers: &HeaderMap) -> Result<usize, ErrorCode> {
    let length = headers.get(CONTENT_LENGTH).map(HeaderValue::as_bytes).unwrap_or_default();
    let digits =
        std::str::from_utf8(length).ok().filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
    let digits = digits.filter(|digits| !digits.is_empty()).ok_or(ErrorCode::LengthRequired)?;
    // Digits that are no number of this machine's are a number too large for it.
    digits.parse().ok().filter(|length| *length <= BODY_BYTES_MAX).ok_or(ErrorCode::TooLarge)
}

/// Takes what the create counts for, if the server has room for it and the disk has room for anybody.
fn admit(api: &Api, source: &Arc<Source>, declared: usize) -> Result<Permits, ErrorCode> {
    let in_flight = api.enter(source, Kind::Create)?;
    let declared = api.guard.declare(declared).map_err(|reason| api.shed(reason))?;
    if (api.is_disk_low)() {
        api.metrics.shed(Shed::Disk);
        return Err(ErrorCode::NoSpace);
    }
    Ok(Permits { _in_flight: in_flight, _declared: declared })
}

/// What the headers ask for, if that can be had.
fn wish(headers: &HeaderMap) -> Result<Wish, ErrorCode> {
    let ttl = match at_most_one(headers, "x-paste-ttl") {
        Ok(None) => Ttl::default(),
        Ok(Some(value)) => Ttl::parse(value.as_bytes()).ok_or(ErrorCode::BadTtl)?,
        Err(Repeated) => return Err(ErrorCode::BadTtl),
    };
    let syntax = match at_most_one(headers, "x-paste-syntax") {
        Ok(Some(value)) if !value.is_empty() => {
            Some(Syntax::parse(value.as_bytes()).ok_or(ErrorCode::BadSyntax)?)
        }
        Ok(_) => None,
        Err(Repeated) => return Err(ErrorCode::BadSyntax),
    };
    let is_foreign = |value: &HeaderValue| content_type::is_foreign(value.as_bytes());
    let is_encoded = |value: &HeaderValue| {
        let mut codings = value.as_bytes().split(|byte| *byte == b',').map(<[u8]>::trim_ascii);
        codings.any(|coding| !coding.is_empty() && !coding.eq_ignore_ascii_case(b"identity"))
    };
    if headers.get_all(CONTENT_TYPE).iter().any(is_foreign)
        || headers.get_all(CONTENT_ENCODING).iter().any(is_encoded)
    {
        return Err(ErrorCode::BadContentType);
    }
    Ok(Wish { ttl, syntax })
}

/// A header that may stand once came more often.
struct Repeated;

fn at_most_one<'a>(headers: &'a HeaderMap, name: &str) -> Result<Option<&'a HeaderValue>, Repeated> {
    let mut values = headers.get_all(name).iter();
    let first = values.next();
    if values.next().is_some() { Err(Repeated) } else { Ok(first) }
}

/// Lets the service store the paste, in a task that a client who hangs up does not end. What the create
/// counts for goes along, so that clients who post and hang up cannot pile up work behind a slow disk.
async fn store(api: &Api, paste: NewPaste, permits: Permits, ticket: Ticket) -> Result<Created, ErrorCode> {
    let (service, metrics) = (Arc::clone(&api.service), Arc::clone(&api.metrics));
    let work = api.drain.work().spawn(async move {
        let size_bytes = paste.text.bytes().len();
        let created = service.create(paste).await;
        drop(permits);
        // Dropped otherwise, and then what it took goes back.
        if !created.as_ref().is_err_and(CreateError::wrote_no_body) {
            ticket.spend();
        }
        // Counted and said here and not where it is awaited: the client may be gone.
        match &created {
            Ok(_) => metrics.created(size_bytes),
            // A full queue is load, not a fault.
            Err(error) if error.is_overload() => metrics.shed(Shed::Queue),
            Err(error) => tracing::error!(%error, "a paste was not stored"),
        }
        created
    });
    match timeout(api.bounds.create_wait_max, work).await {
        Ok(Ok(Ok(created))) => Ok(created),
        Ok(Ok(Err(error))) if error.is_overload() => Err(ErrorCode::Overloaded),
        Ok(Ok(Err(_)) | Err(_)) => Err(ErrorCode::StorageFailed),
        Err(_) => {
            tracing::error!("a paste was not stored in time; it may still be");
            Err(ErrorCode::StorageFailed)
        }
    }
}

fn answer(api: &Api, created: &Created) -> Answer {
    let url = format!("{}/{}", api.public_url, created.id.as_str());
    let location = HeaderValue::from_str(&url);
    let body = CreatedAnswer {
        id: created.id.as_str().to_owned(),
        url,
        expires_at: created.expires_at.to_rfc3339(),
        delete_token: created.delete_token.as_str().to_owned(),
    };
    // Four strings always serialise.
    let body = serde_json::to_vec(&body).map(Bytes::from).unwrap_or_default();
    let mut answer = Response::new(Full::new(body));
    *answer.status_mut() = StatusCode::CREATED;
    let headers = answer.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    // The public URL was checked to be fit for a header when the server was put together.
    if let Ok(location) = location {
        headers.insert(LOCATION, location);
    }
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(fields: &[(&'static str, &'static [u8])]) -> HeaderMap {
        let mut map = HeaderMap::new();
        for (name, value) in fields {
            map.append(*name, HeaderValue::from_bytes(value).unwrap());
        }
        map
    }

    fn wished(fields: &[(&'static str, &'static [u8])]) -> Result<(Ttl, Option<String>), ErrorCode> {
        wish(&headers(fields)).map(|wish| (wish.ttl, wish.syntax.map(|label| label.as_str().to_owned())))
    }

    #[test]
    fn a_length_is_digits_and_not_too_many_bytes() {
        let declared = |value: &'static [u8]| declared_length(&headers(&[("content-length", value)]));
        assert_eq!(declared(b"0"), Ok(0));
        assert_eq!(declared(b"1000000"), Ok(1_000_000));
        assert_eq!(declared(b"0000001000000"), Ok(1_000_000));
        assert_eq!(declared(b"1000001"), Err(ErrorCode::TooLarge));
        assert_eq!(declared(b"18446744073709551615"), Err(ErrorCode::TooLarge));
        for bad in [&b""[..], b"-1", b"+1", b"1.0", b"1 ", b"0x10", b"1, 1"] {
            assert_eq!(declared(bad), Err(ErrorCode::LengthRequired), "{bad:?}");
        }
        assert_eq!(declared_length(&HeaderMap::new()), Err(ErrorCode::LengthRequired));
    }

    #[test]
    fn a_lifetime_is_one_of_four_written_once() {
        assert_eq!(wished(&[]), Ok((Ttl::Month, None)));
        assert_eq!(wished(&[("x-paste-ttl", b"365d")]), Ok((Ttl::Year, None)));
        for bad in [&b""[..], b"30D", b"1h", b"30", b"1d, 1d", b"\xFF"] {
            assert_eq!(wished(&[("x-paste-ttl", bad)]), Err(ErrorCode::BadTtl), "{bad:?}");
        }
        assert_eq!(wished(&[("x-paste-ttl", b"1d"), ("x-paste-ttl", b"1d")]), Err(ErrorCode::BadTtl));
    }

    #[test]
    fn a_label_is_short_and_visible_and_written_once() {
        assert_eq!(wished(&[("x-paste-syntax", b"rust")]), Ok((Ttl::Month, Some("rust".to_owned()))));
        assert_eq!(wished(&[("x-paste-syntax", b"")]), Ok((Ttl::Month, None)));
        for bad in [&b"a b"[..], b"\xC3\xA9", b"123456789012345678901234567890123"] {
            assert_eq!(wished(&[("x-paste-syntax", bad)]), Err(ErrorCode::BadSyntax), "{bad:?}");
        }
        let twice = [("x-paste-syntax", &b""[..]), ("x-paste-syntax", b"")];
        assert_eq!(wished(&twice), Err(ErrorCode::BadSyntax));
    }

    #[test]
    fn an_encoded_body_is_refused_and_the_first_bad_header_answers() {
        for good in [&b"identity"[..], b"Identity, identity", b""] {
            assert!(wished(&[("content-encoding", good)]).is_ok(), "{good:?}");
        }
        for bad in [&b"gzip"[..], b"identity, br", b"aws-chunked"] {
            assert_eq!(wished(&[("content-encoding", bad)]), Err(ErrorCode::BadContentType), "{bad:?}");
        }
        let all = [
            ("content-type", &b"multipart/form-data"[..]),
            ("x-paste-syntax", b"a b"),
            ("x-paste-ttl", b"2d"),
        ];
        assert_eq!(wished(&all), Err(ErrorCode::BadTtl));
        assert_eq!(wished(&all[..2]), Err(ErrorCode::BadSyntax));
        assert_eq!(wished(&all[..1]), Err(ErrorCode::BadContentType));
    }
}
