//! The two kinds of address a user may write: what links begin with, and a site that may call from a browser.
//!
//! Neither error carries what was written: a URL may hold a password.

use std::fmt;

use http::Uri;

/// What links begin with, or where a server is: `http` or `https`, a host, perhaps a port and a sub-path; no
/// slash at the end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BaseUrl {
    text: String,
    origin_len: usize,
}

impl BaseUrl {
    /// Accepts an absolute URL without user, query or fragment. A trailing slash is taken off, a sub-path kept.
    ///
    /// # Errors
    /// Says which part is wrong.
    pub fn parse(written: &str) -> Result<Self, UrlError> {
        let (origin, path) = split(written)?;
        let path = path.strip_suffix('/').unwrap_or(path);
        if path.split('/').skip(1).any(|segment| matches!(segment, "" | "." | "..")) {
            return Err(UrlError::Path);
        }
        Ok(Self { origin_len: origin.len(), text: format!("{origin}{path}") })
    }

    /// The URL without a slash at its end.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Scheme, host and port, as a browser writes them in `Origin`.
    #[must_use]
    pub fn origin(&self) -> &str {
        self.text.get(..self.origin_len).unwrap_or(&self.text)
    }

    /// The sub-path, with a slash at its beginning and none at its end; empty if there is none.
    #[must_use]
    pub fn path(&self) -> &str {
        self.text.get(self.origin_len..).unwrap_or_default()
    }
}

impl fmt::Display for BaseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// A site whose pages may create and delete from a browser, written as a browser writes `Origin`: lower case,
/// without a default port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin(String);

impl Origin {
    /// Accepts `http` or `https`, a host and perhaps a port.
    ///
    /// # Errors
    /// Says which part is wrong.
    pub fn parse(written: &str) -> Result<Self, UrlError> {
        if matches!(written, "*" | "null") {
            return Err(UrlError::NotASite);
        }
        let (origin, path) = split(written)?;
        if path.is_empty() { Ok(Self(origin)) } else { Err(UrlError::OriginWithPath) }
    }

    /// The value that an `Origin` header of that site has.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Why something is not the URL of a server or of a site.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UrlError {
    /// Another scheme or none.
    #[error("must begin with http:// or https://, as in https://paste.example")]
    Scheme,
    /// Not a URL.
    #[error(
        "is not a URL; write it as in https://paste.example (a host with other letters than ASCII as xn--...)"
    )]
    Malformed,
    /// A user or password.
    #[error("must not carry a user or a password")]
    UserInfo,
    /// A query or a fragment.
    #[error("must end before any '?' or '#'")]
    QueryOrFragment,
    /// Empty or dot segments.
    #[error("has an empty, '.' or '..' segment in its path")]
    Path,
    /// A path where only a site may be.
    #[error("names a page; write only scheme, host and port, as in https://notes.example")]
    OriginWithPath,
    /// `*` or `null`.
    #[error("must name one site, as in https://notes.example; every site would turn visitors into a flood")]
    NotASite,
}

/// The origin in the form a browser gives it, and the path as it was written.
fn split(written: &str) -> Result<(String, &str), UrlError> {
    // `Uri` forgets a fragment without a word, so it has to be looked for before.
    if written.contains(['?', '#']) {
        return Err(UrlError::QueryOrFragment);
    }
    let (scheme, rest) = written.split_once("://").ok_or(UrlError::Scheme)?;
    let scheme = scheme.to_ascii_lowercase();
    let default_port = match scheme.as_str() {
        "http" => 80,
        "https" => 443,
        _ => return Err(UrlError::Scheme),
    };
    let path = rest.find('/').and_then(|slash| rest.get(slash..)).unwrap_or_default();
    if rest.strip_suffix(path).unwrap_or(rest).contains('@') {
        return Err(UrlError::UserInfo);
    }
    let uri: Uri = written.parse().map_err(|_| UrlError::Malformed)?;
    let authority = uri.authority().ok_or(UrlError::Malformed)?;
    let host = authority.host().to_ascii_lowercase();
    let port_written = authority.as_str().get(host.len()..).unwrap_or_default();
    let port = match port_written.strip_prefix(':') {
        None => None,
        Some(digits) => Some(digits.parse::<u16>().map_err(|_| UrlError::Malformed)?),
    };
    if host.is_empty() {
        return Err(UrlError::Malformed);
    }
    let port = port.filter(|port| *port != default_port).map(|port| format!(":{port}")).unwrap_or_default();
    Ok((format!("{scheme}://{host}{port}"), path))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_trailing_slash_goes_and_a_sub_path_stays() {
        for (written, text, origin, path) in [
            ("https://paste.example", "https://paste.example", "https://paste.example", ""),
            ("https://paste.example/", "https://paste.example", "https://paste.example", ""),
            ("https://paste.example/a/b/", "https://paste.example/a/b", "https://paste.example", "/a/b"),
            ("HTTP://Paste.Example:80/A", "http://paste.example/A", "http://paste.example", "/A"),
            ("http://127.0.0.1:8080", "http://127.0.0.1:8080", "http://127.0.0.1:8080", ""),
            ("https://[::1]:8443/q", "https://[::1]:8443/q", "https://[::1]:8443", "/q"),
            ("https://paste.example:443", "https://paste.example", "https://paste.example", ""),
        ] {
            let url = BaseUrl::parse(written).unwrap();
            assert_eq!((url.as_str(), url.origin(), url.path()), (text, origin, path), "{written}");
        }
    }

    #[test]
    fn what_could_not_begin_a_link_is_refused() {
        for (written, error) in [
            ("", UrlError::Scheme),
            ("paste.example", UrlError::Scheme),
            ("ftp://paste.example", UrlError::Scheme),
            ("https://", UrlError::Malformed),
            ("https:///x", UrlError::Malformed),
            ("https://paste.example:99999", UrlError::Malformed),
            ("https://paste.example:", UrlError::Malformed),
            ("https://pa ste.example", UrlError::Malformed),
            ("https://p\u{e4}ste.example", UrlError::Malformed),
            ("https://me:secret@paste.example", UrlError::UserInfo),
            ("https://paste.example/?a=b", UrlError::QueryOrFragment),
            ("https://paste.example/#top", UrlError::QueryOrFragment),
            ("https://paste.example//", UrlError::Path),
            ("https://paste.example/a//b", UrlError::Path),
            ("https://paste.example/a/../b", UrlError::Path),
        ] {
            assert_eq!(BaseUrl::parse(written), Err(error), "{written}");
        }
    }

    #[test]
    fn an_origin_is_written_as_browsers_write_it() {
        assert_eq!(Origin::parse("https://Notes.Example:443").unwrap().as_str(), "https://notes.example");
        assert_eq!(Origin::parse("http://localhost:3000").unwrap().as_str(), "http://localhost:3000");
        for (written, error) in [
            ("*", UrlError::NotASite),
            ("null", UrlError::NotASite),
            ("notes.example", UrlError::Scheme),
            ("https://notes.example/", UrlError::OriginWithPath),
            ("https://notes.example/app", UrlError::OriginWithPath),
        ] {
            assert_eq!(Origin::parse(written), Err(error), "{written}");
        }
    }

    proptest! {
        #[test]
        fn parsing_what_was_parsed_changes_nothing(written in "https?://[a-zA-Z0-9.]{1,9}(:[0-9]{1,5})?(/[a-z]{1,3}){0,2}/?") {
            if let Ok(url) = BaseUrl::parse(&written) {
                prop_assert_eq!(&BaseUrl::parse(url.as_str()).unwrap(), &url);
                prop_assert!(!url.as_str().ends_with('/'));
                prop_assert_eq!(format!("{}{}", url.origin(), url.path()), url.as_str());
            }
        }

        #[test]
        fn nothing_panics(written in "(https?://)?.{0,12}") {
            let _ = BaseUrl::parse(&written);
            let _ = Origin::parse(&written);
        }
    }
}
