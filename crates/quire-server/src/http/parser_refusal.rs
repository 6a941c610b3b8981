//! What a head asked for that hyper refused before anyone else saw it.
//!
//! hyper counts a body's length in 64 bits and answers a bare 400 or 431 to a longer number, but the contract
//! says 413 for any length written in digits, however long (C2). So the bytes of the head that is being read
//! are kept, and when hyper answers on its own, this module looks whether that was the reason. Where there is
//! nothing that could be created, the answer is that there is nothing.
//!
//! It must never be asked about a head that hyper accepted, and it decides nothing but which error is sent:
//! the connection closes either way.

use http::Uri;
use quire_core::paste::BODY_BYTES_MAX;

use super::{Route, error::ErrorCode, inbound::head_end};

/// The error to send instead of hyper's own, if the head is one the contract has an answer for.
pub(super) fn instead_of_parser(head: &[u8]) -> Option<ErrorCode> {
    let mut lines = head.get(..head_end(head)?)?.split(|byte| *byte == b'\n').map(trim);
    // Leading empty lines are allowed before a request line.
    let request_line = lines.by_ref().find(|line| !line.is_empty())?;
    let refusal = refusal_of_length(request_line)?;
    let mut length: Option<&[u8]> = None;
    for line in lines.take_while(|line| !line.is_empty()) {
        let (name, value) = split_field(line)?;
        if name.eq_ignore_ascii_case(b"transfer-encoding") {
            return None;
        }
        if name.eq_ignore_ascii_case(b"content-length") {
            let digits = significant_digits(value)?;
            if length.is_some_and(|earlier| earlier != digits) {
                return None;
            }
            length = Some(digits);
        }
    }
    length.filter(|digits| is_over(digits, BODY_BYTES_MAX)).map(|_| refusal)
}

/// What a length that is too large is answered with, by method and target; nothing where the parser's own
/// answer is as good as any.
fn refusal_of_length(request_line: &[u8]) -> Option<ErrorCode> {
    let mut words = request_line.split(|byte| *byte == b' ');
    let (method, target) = (words.next()?, words.next()?);
    let has_fragment = target.iter().take_while(|byte| **byte != b'?').any(|byte| *byte == b'#');
    let target = Uri::try_from(target).ok()?;
    match Route::of(target.path()).filter(|_| !has_fragment) {
        None => Some(ErrorCode::NotFound),
        Some(Route::Pastes) if method == b"POST" => Some(ErrorCode::TooLarge),
        Some(_) => None,
    }
}

/// Whether a number without leading zeros is larger than `bound`, however many digits it has.
fn is_over(digits: &[u8], bound: usize) -> bool {
    let bound = bound.to_string();
    // Of two numbers of equally many digits the one that sorts later is the larger.
    digits.len() > bound.len() || (digits.len() == bound.len() && digits > bound.as_bytes())
}

/// The digits after leading zeros; `None` if there is anything but digits.
fn significant_digits(value: &[u8]) -> Option<&[u8]> {
    if value.is_empty() || !value.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let zeros = value.iter().take_while(|byte| **byte == b'0').count();
    value.get(zeros..)
}

fn split_field(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let colon = line.iter().position(|byte| *byte == b':')?;
    Some((line.get(..colon)?, trim(line.get(colon + 1..)?)))
}

fn trim(bytes: &[u8]) -> &[u8] {
    bytes.trim_ascii()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn instead_of(fields: &str) -> Option<ErrorCode> {
        instead_of_parser(format!("POST /v1/pastes HTTP/1.1\r\nHost: a\r\n{fields}\r\n").as_bytes())
    }

    #[test]
    fn a_length_of_any_number_of_digits_is_too_large() {
        for length in
            ["18446744073709551615", "18446744073709551616", "99999999999999999999999999999999", "0001000001"]
        {
            let fields = format!("Content-Length: {length}\r\n");
            assert_eq!(instead_of(&fields), Some(ErrorCode::TooLarge), "{length}");
        }
        let twice = "content-length: 99999999999999999999\r\nCONTENT-LENGTH: 099999999999999999999 \r\n";
        assert_eq!(instead_of(twice), Some(ErrorCode::TooLarge), "the same value twice is one value");
    }

    #[test]
    fn whatever_else_the_parser_refuses_is_left_to_it() {
        for fields in [
            "",
            "Content-Length: 1000000\r\n",
            "Content-Length: 00001\r\n",
            "Content-Length: \r\n",
            "Content-Length: -99999999999999999999\r\n",
            "Content-Length: 99999999999999999999x\r\n",
            "Content-Length: 99999999999999999999, 99999999999999999999\r\n",
            "Content-Length: 99999999999999999999\r\nContent-Length: 99999999999999999998\r\n",
            "Content-Length: 99999999999999999999\r\nTransfer-Encoding: chunked\r\n",
            "Content-Length: 99999999999999999999\r\nno colon\r\n",
        ] {
            assert_eq!(instead_of(fields), None, "{fields}");
        }
        let unfinished = b"POST /v1/pastes HTTP/1.1\r\nContent-Length: 99999999999999999999\r\n";
        assert_eq!(instead_of_parser(unfinished), None);
        let read = b"GET / HTTP/1.1\r\nContent-Length: 99999999999999999999\r\n\r\n";
        assert_eq!(instead_of_parser(read), None);
    }

    #[test]
    fn only_where_pastes_are_created_a_length_is_too_large() {
        let of_line = |line: &str| {
            instead_of_parser(format!("{line}\r\nContent-Length: {}\r\n\r\n", "9".repeat(23)).as_bytes())
        };
        for line in [
            "POST /v1/pastes HTTP/1.1",
            "\r\n\nPOST /v1/pastes?a#b HTTP/1.1",
            "POST http://a/v1/pastes HTTP/1.1",
        ] {
            assert_eq!(of_line(line), Some(ErrorCode::TooLarge), "{line}");
        }
        for line in [
            "POST /nope HTTP/1.1",
            "POST /v1/pastes/ HTTP/1.1",
            "POST /v1/pastes#a HTTP/1.1",
            "DELETE /v1/pastes/x HTTP/1.1",
        ] {
            assert_eq!(of_line(line), Some(ErrorCode::NotFound), "{line}");
        }
        for line in ["GET /v1/pastes HTTP/1.1", "POST / HTTP/1.1", "POST"] {
            assert_eq!(of_line(line), None, "{line}");
        }
    }

    #[test]
    fn lines_may_end_in_a_bare_line_feed() {
        let head = b"POST /v1/pastes HTTP/1.1\nContent-Length: 99999999999999999999\n\n";
        assert_eq!(instead_of_parser(head), Some(ErrorCode::TooLarge));
    }

    proptest! {
        #[test]
        fn comparing_digits_is_comparing_numbers(number: usize, bound: usize) {
            let text = number.to_string();
            let digits = significant_digits(text.as_bytes()).unwrap();
            prop_assert_eq!(is_over(digits, bound), number > bound);
        }

        #[test]
        fn no_bytes_break_it(head in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = instead_of_parser(&head);
            let _ = instead_of_parser(&[b"POST / HTTP/1.1\r\nContent-Length: ", &head[..], b"\r\n\r\n"].concat());
        }
    }
}
