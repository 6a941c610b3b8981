//! An id or a link, as people write it.

use quire_core::paste::Id;
use quire_server::config::url::{BaseUrl, UrlError};

/// Where the calls of the API are, below a server's URL.
const API_PATH: &str = "/v1/pastes";

/// A paste on a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Link {
    /// The server's URL, a sub-path included.
    pub(crate) server: BaseUrl,
    /// The paste's id.
    pub(crate) id: Id,
}

/// Why something names no paste. It does not repeat what was written; a link is a secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum LinkError {
    /// No id and no link.
    #[error("that is neither an id (12 letters and digits) nor a link (http://... or https://...)")]
    Neither,
    /// A URL that does not end in an id.
    #[error("that URL does not end in an id (12 letters and digits)")]
    NoId,
    /// Not a URL to begin with.
    #[error("the link {0}")]
    Url(UrlError),
}

impl Link {
    /// Accepts an id on `server`, a short link, or the URL of the API's own call. What follows a `?` or `#` is
    /// not part of a paste's name.
    pub(crate) fn parse(written: &str, server: &BaseUrl) -> Result<Self, LinkError> {
        if let Some(id) = Id::parse(written.as_bytes()) {
            return Ok(Self { server: server.clone(), id });
        }
        if !written.contains("://") {
            return Err(LinkError::Neither);
        }
        let name = written.split(['?', '#']).next().unwrap_or(written);
        let url = BaseUrl::parse(name).map_err(LinkError::Url)?;
        let (server, last) = url.as_str().rsplit_once('/').ok_or(LinkError::NoId)?;
        let id = Id::parse(last.as_bytes()).filter(|_| !url.path().is_empty()).ok_or(LinkError::NoId)?;
        let server = server.strip_suffix(API_PATH).unwrap_or(server);
        Ok(Self { server: BaseUrl::parse(server).map_err(LinkError::Url)?, id })
    }

    /// The short link.
    pub(crate) fn url(&self) -> String {
        format!("{}/{}", self.server, self.id.as_str())
    }

    /// The URL of the API's calls for this paste.
    pub(crate) fn api_url(&self) -> String {
        format!("{}/{}", api_url(&self.server), self.id.as_str())
    }
}

/// The URL that creates on this server.
pub(crate) fn api_url(server: &BaseUrl) -> String {
    format!("{server}{API_PATH}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(written: &str) -> Result<Link, LinkError> {
        Link::parse(written, &BaseUrl::parse("http://127.0.0.1:8080").unwrap())
    }

    #[test]
    fn an_id_or_any_url_of_a_paste_names_it() {
        for (written, server) in [
            ("7Kq2mP9xL0aB", "http://127.0.0.1:8080"),
            ("https://paste.example/7Kq2mP9xL0aB", "https://paste.example"),
            ("https://paste.example/7Kq2mP9xL0aB/", "https://paste.example"),
            ("https://paste.example/7Kq2mP9xL0aB?a=b#c", "https://paste.example"),
            ("https://paste.example/v1/pastes/7Kq2mP9xL0aB", "https://paste.example"),
            ("http://example.org:81/sub/path/7Kq2mP9xL0aB", "http://example.org:81/sub/path"),
            ("http://example.org/sub/v1/pastes/7Kq2mP9xL0aB", "http://example.org/sub"),
        ] {
            let link = parse(written).unwrap();
            assert_eq!((link.server.as_str(), link.id.as_str()), (server, "7Kq2mP9xL0aB"), "{written}");
            assert_eq!(link.url(), format!("{server}/7Kq2mP9xL0aB"));
            assert_eq!(link.api_url(), format!("{server}/v1/pastes/7Kq2mP9xL0aB"));
        }
    }

    #[test]
    fn anything_else_is_refused_without_being_repeated() {
        for (written, error) in [
            ("", LinkError::Neither),
            ("7Kq2mP9xL0a", LinkError::Neither),
            ("7Kq2mP9xL0a-", LinkError::Neither),
            ("paste.example/7Kq2mP9xL0aB", LinkError::Neither),
            ("https://7Kq2mP9xL0aB", LinkError::NoId),
            ("https://paste.example", LinkError::NoId),
            ("https://paste.example/about", LinkError::NoId),
            ("https://paste.example/v1/pastes", LinkError::NoId),
            ("ftp://paste.example/7Kq2mP9xL0aB", LinkError::Url(UrlError::Scheme)),
            ("https://me:hunter2@paste.example/7Kq2mP9xL0aB", LinkError::Url(UrlError::UserInfo)),
        ] {
            assert_eq!(parse(written), Err(error), "{written}");
            assert!(!error.to_string().contains("hunter2"));
        }
    }
}
