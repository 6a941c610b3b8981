//! One exchange with a server, and what is known after it failed.
//!
//! It uses no proxy from the environment, follows no redirect and sends nothing twice: what was stored where
//! must never be in doubt because of something the person did not ask for.

use std::{
    error::Error,
    fmt,
    io::{self, Read as _},
    time::Duration,
};

use quire_core::paste::BODY_BYTES_MAX;
use quire_server::http::wire::ErrorBody;
use ureq::http::{HeaderMap, Response};

/// Longest answer that is read; the longest that quire sends is a whole paste.
const ANSWER_BYTES_MAX: usize = BODY_BYTES_MAX;
/// Longest text of a server that is shown to a person.
const SHOWN_CHARACTERS_MAX: usize = 300;

/// Sends requests, each on a connection of its own.
pub(crate) struct Client(ureq::Agent);

/// A whole answer.
pub(crate) struct Answer {
    status: u16,
    headers: HeaderMap,
    body: Vec<u8>,
}

/// No answer came.
#[derive(Debug)]
pub(crate) enum ExchangeError {
    /// The request was not sent: nothing happened.
    NotSent(String),
    /// The request may have been taken, but there is no whole answer.
    Lost(String),
}

impl fmt::Display for ExchangeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotSent(why) => write!(f, "cannot connect: {why}"),
            Self::Lost(why) => write!(f, "no whole answer: {why}"),
        }
    }
}

impl Error for ExchangeError {}

impl Client {
    pub(crate) fn new() -> Self {
        let config = ureq::Agent::config_builder()
            .user_agent(concat!("quire/", env!("CARGO_PKG_VERSION")))
            .http_status_as_error(false)
            .proxy(None)
            .max_redirects(0)
            .max_idle_connections(0)
            .timeout_resolve(Some(Duration::from_secs(10)))
            .timeout_connect(Some(Duration::from_secs(10)))
            // A server reads a body for 60 s at most, then has another 60 s to store it.
            .timeout_send_body(Some(Duration::from_secs(75)))
            .timeout_recv_response(Some(Duration::from_secs(90)))
            .timeout_recv_body(Some(Duration::from_secs(90)))
            .build();
        Self(config.new_agent())
    }

    /// `POST`s bytes with these headers.
    pub(crate) fn post(
        &self,
        url: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> Result<Answer, ExchangeError> {
        let mut body = Watched { length: body.len(), rest: body };
        let request =
            headers.iter().fold(self.0.post(url), |request, (name, value)| request.header(*name, *value));
        let request = request.header("content-length", body.length.to_string());
        let outcome = request.send(ureq::SendBody::from_reader(&mut body));
        match outcome {
            // Whatever failed before the first byte of the body was taken, the server has no body to store.
            Err(error) if body.is_untouched() => Err(ExchangeError::NotSent(why(&error))),
            outcome => Answer::read(outcome),
        }
    }

    /// `GET`s.
    pub(crate) fn get(&self, url: &str) -> Result<Answer, ExchangeError> {
        Answer::read(self.0.get(url).call())
    }

    /// `DELETE`s with this header.
    pub(crate) fn delete(&self, url: &str, (name, value): (&str, &str)) -> Result<Answer, ExchangeError> {
        Answer::read(self.0.delete(url).header(name, value).call())
    }
}

impl Answer {
    fn read(outcome: Result<Response<ureq::Body>, ureq::Error>) -> Result<Self, ExchangeError> {
        let mut response = outcome.map_err(ExchangeError::from)?;
        let mut body = Vec::new();
        let limit = u64::try_from(ANSWER_BYTES_MAX).unwrap_or(u64::MAX).saturating_add(1);
        response
            .body_mut()
            .as_reader()
            .take(limit)
            .read_to_end(&mut body)
            .map_err(|error| ExchangeError::Lost(error.to_string()))?;
        if body.len() > ANSWER_BYTES_MAX {
            return Err(ExchangeError::Lost("the answer is longer than any of quire's".to_owned()));
        }
        let (parts, _) = response.into_parts();
        Ok(Self { status: parts.status.as_u16(), headers: parts.headers, body })
    }

    pub(crate) const fn status(&self) -> u16 {
        self.status
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    pub(crate) fn body(&self) -> &[u8] {
        &self.body
    }

    /// The error in quire's own form, if the answer has one.
    pub(crate) fn error(&self) -> Option<ErrorBody<'_>> {
        serde_json::from_slice(&self.body).ok()
    }

    /// The answer in a sentence, for a person who did not get what they asked for.
    pub(crate) fn describe(&self) -> String {
        let status = self.status;
        if let Some(location) = self.header("location").filter(|_| (300..400).contains(&status)) {
            return format!("the server redirects to {}; name that server instead", shown(location));
        }
        match self.error() {
            Some(ErrorBody { error, message: Some(message), .. }) => {
                format!("the server answered {status} {}: {}", shown(&error), shown(&message))
            }
            Some(ErrorBody { error, message: None, .. }) => {
                format!("the server answered {status} {}", shown(&error))
            }
            None => format!("the server answered {status}, but not as quire does"),
        }
    }
}

impl From<ureq::Error> for ExchangeError {
    fn from(error: ureq::Error) -> Self {
        use io::ErrorKind::{ConnectionRefused, HostUnreachable, NetworkUnreachable};
        let is_before_request = match &error {
            ureq::Error::HostNotFound
            | ureq::Error::ConnectionFailed
            | ureq::Error::Timeout(ureq::Timeout::Resolve | ureq::Timeout::Connect) => true,
            ureq::Error::Io(cause) => {
                matches!(cause.kind(), ConnectionRefused | HostUnreachable | NetworkUnreachable)
            }
            // Whatever is not known to come before the request may come after it.
            _ => false,
        };
        if is_before_request { Self::NotSent(why(&error)) } else { Self::Lost(why(&error)) }
    }
}

fn why(error: &ureq::Error) -> String {
    match error {
        ureq::Error::HostNotFound => "there is no such host".to_owned(),
        ureq::Error::Io(cause) => cause.to_string(),
        other => other.to_string(),
    }
}

/// A body that knows whether any of it was taken.
struct Watched<'a> {
    length: usize,
    rest: &'a [u8],
}

impl Watched<'_> {
    const fn is_untouched(&self) -> bool {
        self.rest.len() == self.length
    }
}

impl io::Read for Watched<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.rest.read(buffer)
    }
}

/// A server's text made fit for a terminal: bounded, and without control characters that could draw over
/// what else is there.
pub(crate) fn shown(text: &str) -> String {
    text.chars().filter(|character| !character.is_control()).take(SHOWN_CHARACTERS_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_comes_before_the_request_is_certain() {
        let io = |kind: io::ErrorKind| ExchangeError::from(ureq::Error::Io(kind.into()));
        assert!(matches!(io(io::ErrorKind::ConnectionRefused), ExchangeError::NotSent(_)));
        assert!(matches!(ExchangeError::from(ureq::Error::HostNotFound), ExchangeError::NotSent(_)));
        for kind in [io::ErrorKind::ConnectionReset, io::ErrorKind::UnexpectedEof, io::ErrorKind::TimedOut] {
            assert!(matches!(io(kind), ExchangeError::Lost(_)), "{kind}");
        }
        let timeout = ureq::Error::Timeout(ureq::Timeout::RecvResponse);
        assert!(matches!(ExchangeError::from(timeout), ExchangeError::Lost(_)));
    }

    #[test]
    fn a_servers_text_cannot_steer_the_terminal() {
        assert_eq!(shown("a\x1b[2Jb\nc\u{9b}d"), "a[2Jbcd");
        assert_eq!(shown(&"x".repeat(9_999)).len(), SHOWN_CHARACTERS_MAX);
    }
}
