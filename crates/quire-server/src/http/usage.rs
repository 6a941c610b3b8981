//! `GET /`: how to use the service, as text for a terminal.

use bytes::Bytes;
use http::{
    HeaderValue, Response,
    header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS},
};
use http_body_util::Full;

use super::Answer;

/// The text, for the URL that links begin with.
pub(super) fn text(public_url: &str) -> Bytes {
    Bytes::from(format!(
        "quire: a pastebin\n\
         \n\
         Create (UTF-8 text, at most 1,000,000 bytes; the answer has the link and the delete token):\n\
         \n\
         \x20   curl --data-binary @FILE {public_url}/v1/pastes\n\
         \x20   curl --data-binary @FILE -H 'X-Paste-TTL: 7d' -H 'X-Paste-Syntax: rust' {public_url}/v1/pastes\n\
         \n\
         X-Paste-TTL is 1d, 7d, 30d (what it is if absent) or 365d. X-Paste-Syntax is a label that is given back.\n\
         \n\
         Read:\n\
         \n\
         \x20   curl {public_url}/ID\n\
         \n\
         Delete:\n\
         \n\
         \x20   curl -X DELETE -H 'X-Delete-Token: TOKEN' {public_url}/v1/pastes/ID\n"
    ))
}

/// The answer.
pub(super) fn answer(text: &Bytes) -> Answer {
    let mut answer = Response::new(Full::new(text.clone()));
    let headers = answer.headers_mut();
    for (name, value) in [
        (CONTENT_TYPE, "text/plain; charset=utf-8"),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (CONTENT_SECURITY_POLICY, "default-src 'none'; sandbox"),
        (REFERRER_POLICY, "no-referrer"),
        (CACHE_CONTROL, "public, max-age=300"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    answer
}
