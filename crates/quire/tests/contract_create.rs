//! `POST /v1/pastes` as any client sees it (contract, Create).

mod common;

use std::{net::SocketAddr, time::Duration};

use anyhow::Context as _;
use common::start;
use quire_testkit::{
    client::{Answer, Client, ask, create, created, request},
    pass,
    server::Server,
};

/// Bytes of the largest paste.
const LARGEST: usize = 1_000_000;

fn post(address: SocketAddr, headers: &[(&str, &str)], body: &[u8]) -> anyhow::Result<Answer> {
    ask(address, "POST", "/v1/pastes", headers, Some(body))
}

/// A request whose head is exactly this, to which nothing is added.
fn raw(address: SocketAddr, head: &str, body: &[u8]) -> anyhow::Result<Answer> {
    let mut client = Client::connect(address)?;
    client.send(format!("POST /v1/pastes HTTP/1.1\r\nHost: paste.test\r\n{head}\r\n"))?;
    // A refusal may come and the connection close before all is sent.
    let _ = client.send(body);
    client.answer()
}

fn rows(server: &Server) -> anyhow::Result<i64> {
    let rows = rusqlite::Connection::open(server.data().join("rows.db"))?;
    Ok(rows.query_row("SELECT count(*) FROM pastes", [], |row| row.get(0))?)
}

fn read(address: SocketAddr, id: &str) -> anyhow::Result<Answer> {
    ask(address, "GET", &format!("/v1/pastes/{id}"), &[], None)
}

#[test]
fn the_answer_has_exactly_these_headers_and_fields() -> anyhow::Result<()> {
    let server = start(&[])?;
    let answer = post(server.public, &[], b"hello")?;
    let paste = created(&answer)?;
    assert_eq!(paste.id.len(), 12);
    assert!(paste.id.bytes().all(|byte| byte.is_ascii_alphanumeric()));
    assert_eq!(paste.url, format!("http://{}/{}", server.public, paste.id));
    assert_eq!(paste.expires_at.len(), "2026-11-02T17:44:00Z".len());
    assert_eq!(paste.delete_token.len(), 22);
    let body = format!(
        r#"{{"id":"{}","url":"{}","expires_at":"{}","delete_token":"{}"}}"#,
        paste.id, paste.url, paste.expires_at, paste.delete_token
    );
    assert_eq!(
        answer.without_date(),
        format!(
            "HTTP/1.1 201 Created\r\ncontent-type: application/json\r\ncache-control: no-store\r\n\
             location: {}\r\ncontent-length: {}\r\n\r\n{body}",
            paste.url,
            body.len()
        )
    );
    assert!(answer.header("date")?.is_some());
    Ok(())
}

#[test]
fn links_begin_with_the_public_url_and_have_one_slash() -> anyhow::Result<()> {
    for (public_url, begins_with) in [
        ("https://paste.example", "https://paste.example/"),
        ("https://paste.example/", "https://paste.example/"),
        ("https://example.org/paste/", "https://example.org/paste/"),
    ] {
        let server = start(&["--public-url", public_url])?;
        let headers = [("X-Forwarded-Proto", "http"), ("X-Forwarded-Host", "evil.example")];
        let answer = post(server.public, &headers, b"hello")?;
        let paste = created(&answer)?;
        assert_eq!(paste.url, format!("{begins_with}{}", paste.id));
        assert_eq!(answer.header("location")?, Some(paste.url.as_str()));
    }
    Ok(())
}

#[test]
fn the_bytes_stored_are_the_bytes_sent() -> anyhow::Result<()> {
    let server = start(&[])?;
    let every_character: String = (0..=0xFFFF).step_by(7).filter_map(char::from_u32).collect();
    for text in [
        "a",
        " ",
        "\n",
        "\0",
        "a\0b\0\0",
        "\u{FEFF}begins with a byte order mark",
        "\r\nlines\rof\nall\r\n\r\nkinds\n\r",
        "  leading and trailing blanks\t \n\n\n",
        "no newline at the end",
        "e\u{301} is not \u{e9}, and \u{212B} is not \u{c5}",
        "\u{1F468}\u{200D}\u{1F469}\u{200D}\u{1F467}\u{200D}\u{1F466} \u{1F1E9}\u{1F1EA} \u{1F44D}\u{1F3FD}",
        "\u{202E}right to left\u{202C} \u{200B}\u{2060}\u{FFFD}\u{FFFF}\u{10FFFF}",
        "<script>alert(1)</script>",
        "--boundary\r\nContent-Disposition: form-data; name=\"f\"\r\n\r\ntext",
        "a=b&c=%20+",
        "0\r\n\r\n",
        "HTTP/1.1 200 OK\r\n\r\n",
        &every_character,
    ] {
        let paste = create(server.public, text, &[])?;
        for target in [format!("/v1/pastes/{}", paste.id), format!("/{}", paste.id)] {
            let answer = ask(server.public, "GET", &target, &[], None)?;
            assert_eq!(answer.body, text.as_bytes(), "{text:?}");
        }
    }
    Ok(())
}

#[test]
fn text_is_whole_wherever_the_network_cuts_it() -> anyhow::Result<()> {
    let server = start(&[])?;
    let text = "a\u{e9}\u{20AC}\u{1F600}e\u{301}z";
    for cut in 0..=text.len() {
        let (before, after) = text.as_bytes().split_at(cut);
        let mut client = Client::connect(server.public)?;
        client.send(request("POST", "/v1/pastes", &[("Content-Length", &text.len().to_string())], None))?;
        client.send(before)?;
        pass(Duration::from_millis(2));
        client.send(after)?;
        let paste = created(&client.answer()?)?;
        assert_eq!(read(server.public, &paste.id)?.text()?, text, "cut at {cut}");
    }
    let mut client = Client::connect(server.public)?;
    for byte in request("POST", "/v1/pastes", &[], Some(text.as_bytes())) {
        client.send([byte])?;
    }
    assert_eq!(read(server.public, &created(&client.answer()?)?.id)?.text()?, text, "byte by byte");
    // Whatever the size of the server's own buffers, one of these shifts puts a border into a character.
    for shift in 0..4 {
        let text = "a".repeat(shift) + &"\u{1F600}".repeat(30_000);
        let paste = create(server.public, &text, &[])?;
        assert_eq!(read(server.public, &paste.id)?.text()?, text, "shifted by {shift}");
    }
    Ok(())
}

#[test]
fn the_largest_paste_fits_and_one_byte_more_does_not() -> anyhow::Result<()> {
    let server = start(&[])?;
    let largest = "\u{e9}".repeat(LARGEST / 2);
    let paste = create(server.public, &largest, &[])?;
    assert_eq!(read(server.public, &paste.id)?.text()?, largest);
    let before = rows(&server)?;
    for length in [LARGEST + 1, 2 * LARGEST, 5 * LARGEST] {
        // The client sends all of it before it reads, and still receives the answer.
        let answer = post(server.public, &[], &vec![b'a'; length])?;
        assert_eq!((answer.status, answer.error()?.as_str()), (413, "too_large"), "{length}");
        assert_eq!(answer.header("cache-control")?, Some("no-store"));
    }
    assert_eq!(rows(&server)?, before);
    Ok(())
}

#[test]
fn a_length_must_be_given_and_be_digits() -> anyhow::Result<()> {
    let server = start(&[])?;
    let nines = "9".repeat(60);
    for (head, status, code) in [
        ("", 400, Some("length_required")),
        ("Transfer-Encoding: chunked\r\n", 400, Some("length_required")),
        ("Transfer-Encoding: chunked\r\nContent-Length: 5\r\n", 400, Some("length_required")),
        ("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", 400, Some("length_required")),
        ("Content-Length: 1000001\r\n", 413, Some("too_large")),
        ("Content-Length: 18446744073709551615\r\n", 413, Some("too_large")),
        ("Content-Length: 18446744073709551616\r\n", 413, Some("too_large")),
        (&format!("Content-Length: {nines}\r\n"), 413, Some("too_large")),
        (&format!("Content-Length: {nines}\r\nContent-Length: {nines}\r\n"), 413, Some("too_large")),
        ("Content-Length: 0\r\n", 400, Some("empty_body")),
        // These the parser refuses on its own.
        ("Content-Length: five\r\n", 400, None),
        ("Content-Length: -5\r\n", 400, None),
        ("Content-Length: +5\r\n", 400, None),
        ("Content-Length: 5 5\r\n", 400, None),
        ("Content-Length: 5, 5\r\n", 400, None),
        ("Content-Length: \r\n", 400, None),
        ("Content-Length: 5\r\nContent-Length: 6\r\n", 400, None),
    ] {
        let body = if head.starts_with("Transfer") { "5\r\nhello\r\n0\r\n\r\n" } else { "" };
        let answer = raw(server.public, head, body.as_bytes()).with_context(|| head.to_owned())?;
        assert_eq!(answer.status, status, "{head}");
        if let Some(code) = code {
            assert_eq!(answer.error()?, code, "{head}");
        }
    }
    let old = "POST /v1/pastes HTTP/1.0\r\nHost: a\r\n\r\n";
    assert_eq!(Client::connect(server.public)?.exchange(old)?.error()?, "length_required");
    assert_eq!(rows(&server)?, 0);
    for head in
        ["Content-Length: 5\r\nContent-Length: 5\r\n", "Content-Length: 0000000000000000000000005\r\n"]
    {
        created(&raw(server.public, head, b"hello")?).with_context(|| head.to_owned())?;
    }
    Ok(())
}

#[test]
fn a_lifetime_is_one_of_four_to_the_second() -> anyhow::Result<()> {
    let server = start(&[])?;
    for (headers, seconds) in [
        (&[][..], 2_592_000),
        (&[("X-Paste-TTL", "1d")], 86_400),
        (&[("x-paste-ttl", " 7d ")], 604_800),
        (&[("X-Paste-TTL", "30d")], 2_592_000),
        (&[("X-Paste-TTL", "365d")], 31_536_000),
    ] {
        let paste = create(server.public, "hello", headers)?;
        let rows = rusqlite::Connection::open(server.data().join("rows.db"))?;
        let (created_at, expires_at): (i64, i64) =
            rows.query_row("SELECT created_at, expires_at FROM pastes WHERE id = ?1", [&paste.id], |row| {
                Ok((row.get(0)?, row.get(1)?))
            })?;
        let exact = created_at + seconds * 1_000;
        assert_eq!(expires_at, exact - exact % 1_000, "whole seconds, cut off: {headers:?}");
        let told = read(server.public, &paste.id)?.header("x-paste-expires-at")?.map(str::to_owned);
        assert_eq!(told, Some(paste.expires_at));
    }
    for bad in ["", "1", "1D", "2d", "1 d", "01d", "24h", "86400", "1d,7d", "1d;", "\"1d\"", "forever"] {
        let answer = post(server.public, &[("X-Paste-TTL", bad)], b"hello")?;
        assert_eq!((answer.status, answer.error()?.as_str()), (400, "bad_ttl"), "{bad:?}");
    }
    let twice = [("X-Paste-TTL", "1d"), ("X-Paste-TTL", "1d")];
    assert_eq!(post(server.public, &twice, b"hello")?.error()?, "bad_ttl");
    Ok(())
}

#[test]
fn a_label_is_given_back_as_it_was_sent() -> anyhow::Result<()> {
    let server = start(&[])?;
    let longest = "x".repeat(32);
    for label in ["rust", "C++", "!\"#$%&'()*+,-./:;<=>?@[]^_`{|}~", &longest, "text/html"] {
        let paste = create(server.public, "hello", &[("X-Paste-Syntax", label)])?;
        let answer = read(server.public, &paste.id)?;
        assert_eq!(answer.header("x-paste-syntax")?, Some(label));
        assert_eq!(answer.header("content-type")?, Some("text/plain; charset=utf-8"), "never interpreted");
    }
    for headers in [&[][..], &[("X-Paste-Syntax", "")]] {
        let paste = create(server.public, "hello", headers)?;
        assert_eq!(read(server.public, &paste.id)?.header("x-paste-syntax")?, None);
    }
    for bad in ["a b", "a\tb", "\u{e9}", &"x".repeat(33)] {
        let answer = post(server.public, &[("X-Paste-Syntax", bad)], b"hello")?;
        assert_eq!((answer.status, answer.error()?.as_str()), (400, "bad_syntax"), "{bad:?}");
    }
    for twice in [["a", "a"], ["", ""], ["a", ""]] {
        let headers = twice.map(|label| ("X-Paste-Syntax", label));
        assert_eq!(post(server.public, &headers, b"hello")?.error()?, "bad_syntax");
    }
    Ok(())
}

#[test]
fn the_content_type_is_no_switch() -> anyhow::Result<()> {
    let server = start(&[])?;
    for good in [
        "application/x-www-form-urlencoded",
        "text/html",
        "application/json",
        "text/plain; charset=UTF-8",
        "text/plain; charset=\"utf8\"",
        "text/plain;charset=Utf-8;",
        "not a type; charset=latin1",
        "",
    ] {
        let paste = create(server.public, "a=b", &[("Content-Type", good)])?;
        let answer = read(server.public, &paste.id)?;
        assert_eq!(
            (answer.text()?, answer.header("content-type")?),
            ("a=b", Some("text/plain; charset=utf-8"))
        );
    }
    for bad in [
        ("Content-Type", "multipart/form-data; boundary=x"),
        ("Content-Type", "Multipart/Mixed"),
        ("Content-Type", "text/plain; charset=latin1"),
        ("Content-Type", "text/plain; charset=\"utf-16\""),
        ("Content-Encoding", "gzip"),
        ("Content-Encoding", "identity, br"),
    ] {
        let answer = post(server.public, &[bad], b"hello")?;
        assert_eq!((answer.status, answer.error()?.as_str()), (400, "bad_content_type"), "{bad:?}");
    }
    create(server.public, "hello", &[("Content-Encoding", "Identity")])?;
    Ok(())
}

#[test]
fn only_utf8_is_text() -> anyhow::Result<()> {
    let server = start(&[])?;
    for bad in [
        &b"\xFF"[..],
        b"\x80",
        b"caf\xE9",
        b"\xC0\xAF",
        b"\xE2\x82",
        b"\xED\xA0\x80",
        b"\xF4\x90\x80\x80",
        b"\xFF\xFEa\0",
        b"good until the last byte \xF0\x9F\x98",
    ] {
        let answer = post(server.public, &[], bad)?;
        assert_eq!((answer.status, answer.error()?.as_str()), (400, "bad_utf8"), "{bad:?}");
    }
    assert_eq!(post(server.public, &[], b"")?.error()?, "empty_body");
    assert_eq!(rows(&server)?, 0);
    Ok(())
}

#[test]
fn the_first_check_that_fails_answers() -> anyhow::Result<()> {
    let server = start(&[])?;
    let faults = [
        ("too_large", ("Content-Length", "1000001")),
        ("cross_site", ("Sec-Fetch-Site", "cross-site")),
        ("bad_ttl", ("X-Paste-TTL", "2d")),
        ("bad_syntax", ("X-Paste-Syntax", "a b")),
        ("bad_content_type", ("Content-Type", "multipart/form-data")),
    ];
    for first in 0..faults.len() {
        let rest = &faults[first..];
        let mut headers: Vec<_> = rest.iter().rev().map(|(_, header)| *header).collect();
        if first > 0 {
            headers.push(("Content-Length", "3"));
        }
        let mut client = Client::connect(server.public)?;
        client.send(request("POST", "/v1/pastes", &headers, None))?;
        client.send(b"\xFF\xFF\xFF")?;
        client.finish_sending()?;
        assert_eq!(client.answer()?.error()?, faults[first].0);
    }
    assert_eq!(rows(&server)?, 0);
    Ok(())
}

#[test]
fn a_page_of_another_site_may_not_create() -> anyhow::Result<()> {
    let server = start(&["--public-url", "https://paste.example"])?;
    for foreign in [
        &[("Sec-Fetch-Site", "cross-site")][..],
        &[("Sec-Fetch-Site", "cross-site"), ("Origin", "https://paste.example")],
        &[("Origin", "https://evil.example")],
        &[("Origin", "null")],
        &[("Origin", "http://paste.example")],
    ] {
        let answer = post(server.public, foreign, b"hello")?;
        assert_eq!((answer.status, answer.error()?.as_str()), (403, "cross_site"), "{foreign:?}");
        assert_eq!(answer.header("access-control-allow-origin")?, None);
    }
    for own in [
        &[][..],
        &[("Origin", "https://paste.example")],
        // The client's `Host` is paste.test.
        &[("Origin", "https://paste.test")],
        &[("Sec-Fetch-Site", "same-origin"), ("Origin", "https://evil.example")],
        &[("Sec-Fetch-Site", "none")],
    ] {
        create(server.public, "hello", own)?;
    }
    Ok(())
}

#[test]
fn who_waits_for_continue_never_sends_what_is_refused() -> anyhow::Result<()> {
    let server = start(&[])?;
    for (headers, code) in [
        (&[("Content-Length", "1000001")][..], "too_large"),
        (&[("Content-Length", "5"), ("X-Paste-TTL", "2d")], "bad_ttl"),
        (&[("Content-Length", "5"), ("Content-Encoding", "gzip")], "bad_content_type"),
        (&[("Content-Length", "5"), ("Sec-Fetch-Site", "cross-site")], "cross_site"),
        (&[("Transfer-Encoding", "chunked")], "length_required"),
    ] {
        let mut client = Client::connect(server.public)?;
        client.send(request(
            "POST",
            "/v1/pastes",
            &[headers, &[("Expect", "100-continue")]].concat(),
            None,
        ))?;
        // The first answer is the last one: it is not 100.
        let answer = client.answer()?;
        assert_eq!(answer.error()?, code);
        assert_eq!(answer.header("connection")?, Some("close"));
        client.finish_sending()?;
        client.closed_after()?;
    }
    let mut client = Client::connect(server.public)?;
    let headers = [("Content-Length", "5"), ("Expect", "100-continue")];
    client.send(request("POST", "/v1/pastes", &headers, None))?;
    assert_eq!(client.answer_to_head()?.status, 100);
    client.send("hello")?;
    assert_eq!(read(server.public, &created(&client.answer()?)?.id)?.text()?, "hello");
    Ok(())
}

#[test]
fn a_body_shorter_than_declared_is_not_a_paste() -> anyhow::Result<()> {
    let server = start(&[])?;
    let mut client = Client::connect(server.public)?;
    client.send(request("POST", "/v1/pastes", &[("Content-Length", "10")], None))?;
    client.send("hello")?;
    client.finish_sending()?;
    assert_eq!(client.answer()?.error()?, "incomplete_body");
    // What comes after the declared length is another request, not more of the paste.
    let mut client = Client::connect(server.public)?;
    let paste = created(
        &client.exchange([&request("POST", "/v1/pastes", &[], Some(b"hello"))[..], b"more"].concat())?,
    )?;
    assert_eq!(read(server.public, &paste.id)?.text()?, "hello");
    assert_eq!(rows(&server)?, 1);
    Ok(())
}

#[test]
fn the_same_text_twice_is_two_pastes_and_a_query_means_nothing() -> anyhow::Result<()> {
    let server = start(&[])?;
    let first = create(server.public, "hello", &[])?;
    let second = created(&ask(server.public, "POST", "/v1/pastes?ttl=1d&x", &[], Some(b"hello"))?)?;
    assert_ne!(first.id, second.id);
    assert_ne!(first.delete_token, second.delete_token);
    Ok(())
}
