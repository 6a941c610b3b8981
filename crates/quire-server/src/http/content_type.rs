//! Whether a `Content-Type` says that the body is something else than UTF-8 text.
//!
//! The type is not a switch: curl sends a form's by default, and the bytes are taken as they are. Refused are
//! only an envelope around the text (`multipart/*`) and another charset, since storing either would be
//! storing a wrong paste (contract, Create). What cannot be parsed is ignored.

/// Whether the header's value names a multipart envelope or a charset that is not UTF-8.
pub(super) fn is_foreign(value: &[u8]) -> bool {
    let Some((media_type, parameters)) = media_type(value) else { return false };
    media_type.eq_ignore_ascii_case(b"multipart") || has_foreign_charset(parameters).unwrap_or(false)
}

/// The type before the slash, and what follows the subtype.
fn media_type(value: &[u8]) -> Option<(&[u8], &[u8])> {
    let (media_type, rest) = token(value.trim_ascii_start())?;
    let (_subtype, parameters) = token(rest.strip_prefix(b"/")?)?;
    Some((media_type, parameters))
}

/// Whether any `charset` among the parameters is not UTF-8; `None` if they are no parameters.
fn has_foreign_charset(mut rest: &[u8]) -> Option<bool> {
    let mut foreign = false;
    loop {
        rest = rest.trim_ascii_start();
        if rest.is_empty() {
            return Some(foreign);
        }
        rest = rest.strip_prefix(b";")?.trim_ascii_start();
        // Empty parameters, as in a trailing semicolon, are allowed (RFC 9110, 5.6.6).
        if rest.is_empty() || rest.starts_with(b";") {
            continue;
        }
        let (name, after_name) = token(rest)?;
        let (value, after_value) = parameter_value(after_name.strip_prefix(b"=")?)?;
        if name.eq_ignore_ascii_case(b"charset") {
            foreign |= !(value.eq_ignore_ascii_case(b"utf-8") || value.eq_ignore_ascii_case(b"utf8"));
        }
        rest = after_value;
    }
}

/// A token or a quoted string, without its quotes.
fn parameter_value(from: &[u8]) -> Option<(Vec<u8>, &[u8])> {
    let Some(quoted) = from.strip_prefix(b"\"") else {
        return token(from).map(|(value, rest)| (value.to_vec(), rest));
    };
    let mut value = Vec::new();
    let mut bytes = quoted.iter();
    loop {
        match bytes.next()? {
            b'"' => return Some((value, bytes.as_slice())),
            b'\\' => value.push(*bytes.next()?),
            byte => value.push(*byte),
        }
    }
}

/// A non-empty token (RFC 9110, 5.6.2) and what follows it.
fn token(from: &[u8]) -> Option<(&[u8], &[u8])> {
    let is_token = |byte: &u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(byte);
    let length = from.iter().take_while(|byte| is_token(byte)).count();
    (length > 0).then(|| from.split_at(length))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn text_by_any_name_is_taken() {
        for value in [
            "text/plain",
            "application/x-www-form-urlencoded",
            "application/octet-stream",
            "image/png",
            "text/plain; charset=utf-8",
            "text/plain;charset=UTF-8",
            "text/plain ; CharSet=\"Utf-8\"",
            "text/plain; charset=utf8",
            "text/plain; charset=\"UTF8\"",
            "text/plain; charset=\"u\\tf-8\"",
            "text/plain; format=flowed; charset=utf-8;",
            "text/plain;; charset=utf-8",
            "text/plain; title=\"charset=latin1; multipart/form-data\"",
        ] {
            assert!(!is_foreign(value.as_bytes()), "{value}");
        }
    }

    #[test]
    fn an_envelope_or_another_charset_is_not() {
        for value in [
            "multipart/form-data; boundary=x",
            "MultiPart/mixed",
            "multipart/form-data; boundary=",
            "text/plain; charset=iso-8859-1",
            "text/plain; charset=\"latin1\"",
            "text/plain; charset=utf-16",
            "text/plain; charset=utf-8; charset=latin1",
            "text/plain; CHARSET=us-ascii",
            "text/plain; charset='utf-8'",
            "text/plain; charset=\"\"",
        ] {
            assert!(is_foreign(value.as_bytes()), "{value}");
        }
    }

    #[test]
    fn what_cannot_be_parsed_is_ignored() {
        for value in [
            "",
            "text",
            "/plain; charset=latin1",
            "text/; charset=latin1",
            "text/plain charset=latin1",
            "text/plain; charset",
            "text/plain; charset=",
            "text/plain; charset = latin1",
            "text/plain; charset=\"latin1",
            "text/plain; charset=latin1; =",
            "text/plain, charset=latin1",
        ] {
            assert!(!is_foreign(value.as_bytes()), "{value}");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_break_it(value in proptest::collection::vec(any::<u8>(), 0..80)) {
            let _ = is_foreign(&value);
            let _ = is_foreign(&[b"text/plain; charset=", &value[..]].concat());
        }
    }
}
