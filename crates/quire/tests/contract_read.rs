//! `GET` and `HEAD` of a paste as any client sees them (contract, Read).

mod common;

use std::thread;

use common::start;
use quire_testkit::{
    client::{Client, ask, create, request},
    server::Server,
};

/// The SHA-256 of `hello`, as the entity tag of every paste with that text.
const HELLO_TAG: &str = "\"2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824\"";

/// How every 404 begins.
const NOT_FOUND_HEAD: &str = "HTTP/1.1 404 Not Found\r\ncontent-type: application/json\r\n\
                              cache-control: no-store\r\ncontent-length: 21\r\n\r\n";

/// Moves a paste's expiry to `ms` after its creation, as if time had passed. It must not have been read yet.
fn expire_after(server: &Server, id: &str, ms: i64) -> anyhow::Result<()> {
    let rows = rusqlite::Connection::open(server.data().join("rows.db"))?;
    rows.busy_timeout(std::time::Duration::from_secs(10))?;
    let changed = rows.execute("UPDATE pastes SET expires_at = created_at + ?2 WHERE id = ?1", (id, ms))?;
    anyhow::ensure!(changed == 1, "no such row");
    Ok(())
}

#[test]
fn a_paste_is_answered_with_exactly_these_headers() -> anyhow::Result<()> {
    let server = start(&[])?;
    for syntax in [None, Some("rust")] {
        let headers: Vec<_> = syntax.iter().map(|&label| ("X-Paste-Syntax", label)).collect();
        let paste = create(server.public, "hello", &headers)?;
        let label = syntax.map_or_else(String::new, |label| format!("x-paste-syntax: {label}\r\n"));
        for (method, target, body) in [
            ("GET", format!("/v1/pastes/{}", paste.id), "hello"),
            ("GET", format!("/{}", paste.id), "hello"),
            ("HEAD", format!("/v1/pastes/{}", paste.id), ""),
            ("HEAD", format!("/{}", paste.id), ""),
        ] {
            assert_eq!(
                ask(server.public, method, &target, &[], None)?.without_date(),
                format!(
                    "HTTP/1.1 200 OK\r\ncontent-type: text/plain; charset=utf-8\r\n\
                     x-content-type-options: nosniff\r\n\
                     content-security-policy: default-src 'none'; sandbox\r\n\
                     referrer-policy: no-referrer\r\nx-robots-tag: noindex\r\n\
                     cache-control: public, max-age=0, s-maxage=30, must-revalidate\r\n\
                     etag: {HELLO_TAG}\r\nx-paste-expires-at: {}\r\n{label}\
                     access-control-allow-origin: *\r\n\
                     access-control-expose-headers: X-Paste-Expires-At, X-Paste-Syntax\r\n\
                     content-length: 5\r\n\r\n{body}",
                    paste.expires_at
                ),
                "{method} {target}"
            );
        }
    }
    Ok(())
}

#[test]
fn whatever_is_not_there_is_answered_with_the_same_bytes() -> anyhow::Result<()> {
    let server = start(&[])?;
    let live = create(server.public, "hello", &[])?;
    let expired = create(server.public, "hello", &[])?;
    expire_after(&server, &expired.id, -1)?;
    let deleted = create(server.public, "hello", &[])?;
    let token = [("X-Delete-Token", deleted.delete_token.as_str())];
    assert_eq!(
        ask(server.public, "DELETE", &format!("/v1/pastes/{}", deleted.id), &token, None)?.status,
        204
    );

    let id = &live.id;
    let escaped = id.bytes().map(|byte| format!("%{byte:02x}")).collect::<Vec<_>>().concat();
    let segments = [
        "000000000000".to_owned(),
        expired.id,
        deleted.id,
        id.chars().rev().collect(),
        id[..11].to_owned(),
        format!("{id}0"),
        format!("{id}/"),
        format!("/{id}"),
        format!("./{id}"),
        format!("x/../{id}"),
        format!("{id}%00"),
        format!("{id}%20"),
        format!("{id}#"),
        format!("{id}#fragment"),
        format!("%{:02X}{}", id.as_bytes()[0], &id[1..]),
        escaped,
        format!("{}%", &id[..11]),
        format!("{}-", &id[..11]),
        format!("{}.", &id[..11]),
        format!("{id}.txt"),
        format!("{};x", &id[..10]),
        format!("{}\u{e9}", &id[..10]),
        format!("{}\u{1F600}", &id[..8]),
        "\u{ff10}".repeat(4),
        "..%2f..%2fetc%2fpasswd".to_owned(),
        String::new(),
    ];
    let mut client = Client::connect(server.public)?;
    for segment in &segments {
        // `/` alone is the front page.
        let short_links = (!segment.is_empty()).then(|| format!("/{segment}"));
        for target in
            short_links.into_iter().chain([format!("/v1/pastes/{segment}"), format!("//{segment}x")])
        {
            client.send(request("HEAD", &target, &[], None))?;
            assert_eq!(client.answer_to_head()?.without_date(), NOT_FOUND_HEAD, "HEAD {target}");
            for headers in [&[][..], &[("If-None-Match", "*")], &[("Origin", "https://evil.example")]] {
                let answer = client.exchange(request("GET", &target, headers, None))?;
                assert_eq!(
                    answer.without_date(),
                    format!("{NOT_FOUND_HEAD}{{\"error\":\"not_found\"}}"),
                    "GET {target}"
                );
            }
        }
    }
    assert_eq!(
        client.exchange(request("GET", &format!("/{id}"), &[], None))?.status,
        200,
        "the live one lives"
    );
    Ok(())
}

#[test]
fn a_paste_is_readable_until_the_instant_it_expires() -> anyhow::Result<()> {
    let server = start(&[])?;
    let paste = create(server.public, "hello", &[])?;
    expire_after(&server, &paste.id, 10_000)?;
    let target = format!("/{}", paste.id);
    let answer = ask(server.public, "GET", &target, &[], None)?;
    assert_eq!(answer.status, 200);
    // No shared cache may keep it past its expiry.
    let told = answer.header("cache-control")?.unwrap_or_default().to_owned();
    let seconds = told.split("s-maxage=").nth(1).and_then(|rest| rest.split(',').next());
    assert!(matches!(seconds.map(str::parse::<u32>), Some(Ok(0..=9))), "{told}");
    let mut client = Client::connect(server.public)?;
    quire_testkit::eventually("it expires", std::time::Duration::from_secs(20), || {
        Ok(client.exchange(request("GET", &target, &[], None))?.status == 404)
    })
}

#[test]
fn a_condition_that_holds_is_answered_without_the_body() -> anyhow::Result<()> {
    let server = start(&[])?;
    let paste = create(server.public, "hello", &[("X-Paste-Syntax", "rust")])?;
    let target = format!("/{}", paste.id);
    let weak = format!("W/{HELLO_TAG}");
    let listed = format!("\"x\", {HELLO_TAG}");
    for method in ["GET", "HEAD"] {
        for value in ["*", HELLO_TAG, &weak, &listed] {
            assert_eq!(
                ask(server.public, method, &target, &[("If-None-Match", value)], None)?.without_date(),
                format!(
                    "HTTP/1.1 304 Not Modified\r\nx-content-type-options: nosniff\r\n\
                     content-security-policy: default-src 'none'; sandbox\r\n\
                     referrer-policy: no-referrer\r\nx-robots-tag: noindex\r\n\
                     cache-control: public, max-age=0, s-maxage=30, must-revalidate\r\n\
                     etag: {HELLO_TAG}\r\nx-paste-expires-at: {}\r\nx-paste-syntax: rust\r\n\
                     access-control-allow-origin: *\r\n\
                     access-control-expose-headers: X-Paste-Expires-At, X-Paste-Syntax\r\n\r\n",
                    paste.expires_at
                ),
                "{method} {value}"
            );
        }
    }
    let lines = [("If-None-Match", "\"x\""), ("If-None-Match", HELLO_TAG)];
    assert_eq!(ask(server.public, "GET", &target, &lines, None)?.status, 304);
    for other in ["\"x\"", "", "2cf24d", "\"*\""] {
        let answer = ask(server.public, "GET", &target, &[("If-None-Match", other)], None)?;
        assert_eq!((answer.status, answer.text()?), (200, "hello"), "{other}");
    }
    Ok(())
}

#[test]
fn ranges_queries_and_other_wishes_change_nothing() -> anyhow::Result<()> {
    let server = start(&[])?;
    let paste = create(server.public, "<html><script>alert(1)</script>", &[])?;
    let target = format!("/{}", paste.id);
    let plain = ask(server.public, "GET", &target, &[], None)?.without_date();
    for query in ["?", "?raw=1", "?a/b?c", "?%00", "?x#y"] {
        // Also one with a `#`: whatever follows the `?` is ignored.
        let answer = ask(server.public, "GET", &format!("{target}{query}"), &[], None)?;
        assert_eq!(answer.without_date(), plain, "{query}");
    }
    for header in [
        ("Range", "bytes=0-1"),
        ("Accept", "text/html"),
        ("Accept-Encoding", "gzip, br"),
        ("Origin", "https://evil.example"),
        ("If-Modified-Since", "Mon, 30 Nov 2099 00:00:00 GMT"),
        ("If-Match", "\"x\""),
    ] {
        assert_eq!(ask(server.public, "GET", &target, &[header], None)?.without_date(), plain, "{header:?}");
    }
    Ok(())
}

#[test]
fn ids_that_differ_in_case_only_are_different() -> anyhow::Result<()> {
    let server = start(&[])?;
    let paste = create(server.public, "hello", &[])?;
    let swap = |character: char| {
        if character.is_ascii_lowercase() {
            character.to_ascii_uppercase()
        } else {
            character.to_ascii_lowercase()
        }
    };
    let other: String = paste.id.chars().map(swap).collect();
    // One in a hundred million ids has no letters.
    assert_ne!(other, paste.id);
    assert_eq!(ask(server.public, "GET", &format!("/{other}"), &[], None)?.status, 404);
    Ok(())
}

#[test]
fn many_readers_of_one_paste_get_all_of_it() -> anyhow::Result<()> {
    let server = start(&[])?;
    let text = "\u{1F600}".repeat(100_000);
    let paste = create(server.public, &text, &[])?;
    thread::scope(|scope| {
        let readers: Vec<_> = (0..32)
            .map(|_| scope.spawn(|| ask(server.public, "GET", &format!("/{}", paste.id), &[], None)))
            .collect();
        for reader in readers {
            let answer = reader.join().map_err(|_| anyhow::anyhow!("a reader panicked"))??;
            assert!(answer.body == text.as_bytes());
        }
        Ok(())
    })
}
