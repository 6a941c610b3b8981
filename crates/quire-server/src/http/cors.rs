//! What pages of other sites may do.
//!
//! Anyone's page may read a paste. Creating and deleting from a page is for this service's own pages and for
//! sites the operator named (`--allow-origin`): else any page could turn its visitors into a flood (C2).
//! Promises: `Access-Control-Allow-Origin` stands on reads of a paste, and for a named site on its creates
//! and deletes, errors included, and nowhere else (H1).

use http::{
    HeaderMap, HeaderValue, Method, StatusCode, Uri,
    header::{
        ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
        ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, ACCESS_CONTROL_REQUEST_METHOD, ALLOW, HOST,
        ORIGIN, VARY,
    },
};

use super::{Answer, Route};

/// How long a browser may remember what a preflight said.
const PREFLIGHT_SECONDS: HeaderValue = HeaderValue::from_static("3600");
const ANYONE: HeaderValue = HeaderValue::from_static("*");
const READ_EXPOSED: HeaderValue = HeaderValue::from_static("X-Paste-Expires-At, X-Paste-Syntax");
const WRITE_HEADERS: HeaderValue =
    HeaderValue::from_static("X-Paste-TTL, X-Paste-Syntax, X-Delete-Token, Content-Type");

/// Who may create and delete from a browser.
pub(super) struct Sites {
    /// The origin of the public URL.
    own: String,
    /// What the operator named.
    named: Vec<String>,
}

impl Sites {
    /// The site of `public_url`, and those the operator named. They are compared as browsers write them:
    /// lower case, no default port, no path.
    pub(super) fn new(public_url: &str, named: &[String]) -> Self {
        Self { own: as_origin(public_url), named: named.iter().map(|site| as_origin(site)).collect() }
    }

    /// The request's origin, if it is one that the operator named.
    pub(super) fn named_origin<'a>(&self, headers: &'a HeaderMap) -> Option<&'a HeaderValue> {
        if self.named.is_empty() {
            return None;
        }
        let mut origins = headers.get_all(ORIGIN).iter();
        let origin = origins.next()?;
        let is_named =
            |origin: &[u8]| self.named.iter().any(|site| site.as_bytes().eq_ignore_ascii_case(origin));
        (origins.next().is_none() && is_named(origin.as_bytes())).then_some(origin)
    }

    /// Whether a request comes from a page of another site (C2). A request that no browser sent carries
    /// neither header and does not.
    pub(super) fn is_cross_site(&self, uri: &Uri, headers: &HeaderMap) -> bool {
        if self.named_origin(headers).is_some() {
            return false;
        }
        let mut says = headers.get_all("sec-fetch-site").iter().peekable();
        if says.peek().is_some() {
            return says.any(|site| site.as_bytes().eq_ignore_ascii_case(b"cross-site"));
        }
        headers.get_all(ORIGIN).iter().any(|origin| !self.is_own(origin.as_bytes(), uri, headers))
    }

    fn is_own(&self, origin: &[u8], uri: &Uri, headers: &HeaderMap) -> bool {
        if self.own.as_bytes().eq_ignore_ascii_case(origin) {
            return true;
        }
        // The scheme does not count: a proxy may have taken TLS off.
        let Some(host) = origin.strip_prefix(b"https://").or_else(|| origin.strip_prefix(b"http://")) else {
            return false;
        };
        let asked = uri.authority().map(|authority| authority.as_str().as_bytes());
        asked
            .or_else(|| headers.get(HOST).map(HeaderValue::as_bytes))
            .is_some_and(|own| own.eq_ignore_ascii_case(host))
    }

    /// The answer to `OPTIONS` of a known path.
    pub(super) fn preflight(&self, route: Route, headers: &HeaderMap) -> Answer {
        let mut answer = Answer::default();
        *answer.status_mut() = StatusCode::NO_CONTENT;
        let out = answer.headers_mut();
        out.insert(ALLOW, route.allow());
        let wanted = headers.get(ACCESS_CONTROL_REQUEST_METHOD).map(HeaderValue::as_bytes);
        let Some(wanted) = wanted.and_then(|method| Method::from_bytes(method).ok()) else { return answer };
        let may_write = self.named_origin(headers);
        match (route, &wanted, may_write) {
            (Route::Paste(_) | Route::ShortLink(_), &Method::GET | &Method::HEAD, _) => {
                out.insert(ACCESS_CONTROL_ALLOW_ORIGIN, ANYONE);
                out.insert(ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static("GET, HEAD"));
                out.insert(ACCESS_CONTROL_ALLOW_HEADERS, ANYONE);
                out.insert(ACCESS_CONTROL_MAX_AGE, PREFLIGHT_SECONDS);
            }
            (Route::Pastes, &Method::POST, Some(origin))
            | (Route::Paste(_), &Method::DELETE, Some(origin)) => {
                let method = if wanted == Method::POST { "POST" } else { "DELETE" };
                out.insert(ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static(method));
                out.insert(ACCESS_CONTROL_ALLOW_HEADERS, WRITE_HEADERS);
                out.insert(ACCESS_CONTROL_MAX_AGE, PREFLIGHT_SECONDS);
                allow(origin.clone(), out);
            }
            _ => {}
        }
        answer
    }
}

/// Lets a named site's page see an answer.
fn allow(origin: HeaderValue, out: &mut HeaderMap) {
    out.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    out.insert(VARY, HeaderValue::from_static("Origin"));
}

/// Lets a named site's page see the answer to its create or delete, and when to come back if it is told to.
pub(super) fn allow_written(origin: HeaderValue, out: &mut HeaderMap) {
    allow(origin, out);
    out.insert(ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static("Retry-After"));
}

/// Lets anyone's page see a paste.
pub(super) fn allow_read(out: &mut HeaderMap) {
    out.insert(ACCESS_CONTROL_ALLOW_ORIGIN, ANYONE);
    out.insert(ACCESS_CONTROL_EXPOSE_HEADERS, READ_EXPOSED);
}

/// The origin of a URL, as a browser writes it.
fn as_origin(url: &str) -> String {
    let url = url.trim().to_ascii_lowercase();
    let Some((scheme, rest)) = url.split_once("://") else { return url };
    let host = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let default_port = if scheme == "https" { ":443" } else { ":80" };
    format!("{scheme}://{}", host.strip_suffix(default_port).unwrap_or(host))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(fields: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut map = HeaderMap::new();
        for (name, value) in fields {
            map.append(*name, HeaderValue::from_static(value));
        }
        map
    }

    fn is_cross_site(fields: &[(&'static str, &'static str)]) -> bool {
        let sites = Sites::new("https://Paste.example:443/sub", &["https://Tools.example/".to_owned()]);
        let fields = [fields, &[("host", "localhost:8080")]].concat();
        sites.is_cross_site(&Uri::from_static("/v1/pastes"), &headers(&fields))
    }

    #[test]
    fn what_is_not_of_another_site_passes() {
        for fields in [
            &[][..],
            &[("origin", "https://paste.example")],
            &[("origin", "http://localhost:8080")],
            &[("origin", "https://LOCALHOST:8080")],
            &[("origin", "https://tools.example")],
            &[("sec-fetch-site", "cross-site"), ("origin", "https://tools.example")],
            &[("sec-fetch-site", "same-origin"), ("origin", "https://elsewhere.example")],
            &[("sec-fetch-site", "same-site")],
            &[("sec-fetch-site", "none")],
        ] {
            assert!(!is_cross_site(fields), "{fields:?}");
        }
    }

    #[test]
    fn what_is_of_another_site_does_not() {
        for fields in [
            &[("sec-fetch-site", "cross-site")][..],
            &[("sec-fetch-site", "Cross-Site"), ("origin", "https://paste.example")],
            &[("sec-fetch-site", "none"), ("sec-fetch-site", "cross-site")],
            &[("origin", "null")],
            &[("origin", "")],
            &[("origin", "https://evil.example")],
            &[("origin", "https://paste.example.evil.example")],
            &[("origin", "https://evil-paste.example")],
            &[("origin", "http://paste.example")],
            &[("origin", "https://paste.example:8443")],
            &[("origin", "http://localhost:8081")],
            &[("origin", "ftp://localhost:8080")],
            &[("origin", "https://tools.example"), ("origin", "https://evil.example")],
        ] {
            assert!(is_cross_site(fields), "{fields:?}");
        }
    }

    #[test]
    fn an_absolute_target_names_the_own_host() {
        let sites = Sites::new("https://paste.example", &[]);
        let uri = Uri::from_static("http://inside.example/v1/pastes");
        assert!(!sites.is_cross_site(&uri, &headers(&[("origin", "http://inside.example"), ("host", "x")])));
        assert!(sites.is_cross_site(&uri, &headers(&[("origin", "http://x"), ("host", "x")])));
    }
}
