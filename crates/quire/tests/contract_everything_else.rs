//! What is neither create nor read nor delete (contract, Everything else).

mod common;

use std::time::Duration;

use common::start;
use quire_testkit::{
    client::{Client, ask, create, request},
    eventually,
};

#[test]
fn a_known_path_with_a_wrong_method_says_which_are_right() -> anyhow::Result<()> {
    let server = start(&[])?;
    for (target, allow) in [
        ("/", "GET, HEAD, OPTIONS"),
        ("/v1/pastes", "POST, OPTIONS"),
        ("/v1/pastes/000000000000", "GET, HEAD, DELETE, OPTIONS"),
        ("/000000000000", "GET, HEAD, OPTIONS"),
    ] {
        for method in ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "TRACE", "BREW", "get"] {
            let knows = allow.split(", ").any(|known| known == method);
            let answer = ask(server.public, method, target, &[], None)?;
            assert_eq!(answer.status == 405, !knows, "{method} {target}");
            if !knows {
                assert_eq!(answer.header("allow")?, Some(allow), "{method} {target}");
                if method != "HEAD" {
                    assert_eq!(answer.error()?, "method_not_allowed");
                }
                assert_eq!(answer.header("cache-control")?, Some("no-store"));
                assert_eq!(answer.header("access-control-allow-origin")?, None);
            }
        }
    }
    Ok(())
}

#[test]
fn an_unknown_path_is_not_there_whatever_the_method() -> anyhow::Result<()> {
    let server = start(&[])?;
    let body = "content-length: 21\r\n\r\n{\"error\":\"not_found\"}";
    for target in
        ["/v1", "/v1/", "/v1/pastes/", "/v2/pastes", "/V1/pastes", "/favicon.ico", "/metrics", "/livez", "*"]
    {
        for method in ["GET", "POST", "PUT", "DELETE", "OPTIONS", "BREW"] {
            let answer = ask(server.public, method, target, &[], None)?;
            let expected = format!(
                "HTTP/1.1 404 Not Found\r\ncontent-type: application/json\r\ncache-control: no-store\r\n{body}"
            );
            assert_eq!(answer.without_date(), expected, "{method} {target}");
        }
    }
    Ok(())
}

#[test]
fn anyones_page_may_read_and_only_named_sites_may_write() -> anyhow::Result<()> {
    let server = start(&["--allow-origin", "https://tools.example"])?;
    let paste = create(server.public, "hello", &[])?;
    let item = format!("/v1/pastes/{}", paste.id);
    let link = format!("/{}", paste.id);
    for (target, method, origin, allowed) in [
        (&*item, "GET", "https://evil.example", Some("*")),
        (&*item, "HEAD", "https://evil.example", Some("*")),
        (&*link, "GET", "https://evil.example", Some("*")),
        (&*item, "DELETE", "https://evil.example", None),
        (&*item, "DELETE", "https://tools.example", Some("https://tools.example")),
        (&*link, "DELETE", "https://tools.example", None),
        ("/v1/pastes", "POST", "https://tools.example", Some("https://tools.example")),
        ("/v1/pastes", "POST", "https://evil.example", None),
        ("/v1/pastes", "POST", "https://tools.example.evil.example", None),
        ("/v1/pastes", "POST", "null", None),
        ("/v1/pastes", "PUT", "https://tools.example", None),
        ("/", "GET", "https://tools.example", None),
    ] {
        let headers = [("Origin", origin), ("Access-Control-Request-Method", method)];
        let answer = ask(server.public, "OPTIONS", target, &headers, None)?;
        assert_eq!(answer.status, 204, "{method} {target} {origin}");
        assert_eq!(answer.header("access-control-allow-origin")?, allowed, "{method} {target} {origin}");
        assert!(answer.header("allow")?.is_some());
        if allowed == Some(origin) {
            assert_eq!(answer.header("vary")?, Some("Origin"));
            assert_eq!(answer.header("access-control-allow-methods")?, Some(method));
            assert!(answer.header("access-control-max-age")?.is_some());
            let headers = answer.header("access-control-allow-headers")?.unwrap_or_default();
            for needed in ["X-Paste-TTL", "X-Paste-Syntax", "X-Delete-Token", "Content-Type"] {
                assert!(headers.contains(needed), "{headers}");
            }
        }
    }
    let named = [("Origin", "https://tools.example"), ("Sec-Fetch-Site", "cross-site")];
    for body in ["hello", ""] {
        let answer = ask(server.public, "POST", "/v1/pastes", &named, Some(body.as_bytes()))?;
        assert_eq!(answer.status, if body.is_empty() { 400 } else { 201 });
        assert_eq!(answer.header("access-control-allow-origin")?, Some("https://tools.example"));
        assert_eq!(answer.header("vary")?, Some("Origin"));
    }
    let foreign = [("Origin", "https://evil.example")];
    let answer = ask(server.public, "POST", "/v1/pastes", &foreign, Some(b"hello"))?;
    assert_eq!((answer.status, answer.header("access-control-allow-origin")?), (403, None));
    Ok(())
}

#[test]
fn the_front_page_tells_how_to_use_it() -> anyhow::Result<()> {
    let server = start(&["--public-url", "https://paste.example/"])?;
    let answer = ask(server.public, "GET", "/", &[], None)?;
    assert_eq!(answer.status, 200);
    assert!(answer.text()?.contains("https://paste.example/v1/pastes"));
    assert_eq!(answer.header("x-content-type-options")?, Some("nosniff"));
    let head = ask(server.public, "HEAD", "/", &[], None)?;
    assert_eq!(head.headers.len(), answer.headers.len());
    assert_eq!(head.header("content-length")?, answer.header("content-length")?);
    Ok(())
}

#[test]
fn one_connection_serves_many_requests_and_survives_their_errors() -> anyhow::Result<()> {
    let server = start(&[])?;
    let mut client = Client::connect(server.public)?;
    for _ in 0..3 {
        for (sent, status) in [
            (request("POST", "/v1/pastes", &[], Some(b"hello")), 201),
            (request("POST", "/v1/pastes", &[("X-Paste-TTL", "2d")], Some(b"hello")), 400),
            (request("POST", "/v1/pastes", &[], Some(b"\xFF")), 400),
            (request("POST", "/v1/pastes", &[], Some(&vec![b'a'; 1_500_000])), 413),
            (request("GET", "/000000000000", &[], None), 404),
            (request("PUT", "/", &[], Some(b"hello")), 405),
            (request("GET", "/", &[], Some(b"a body that nobody asked for")), 200),
        ] {
            let answer = client.exchange(sent)?;
            assert_eq!((answer.status, answer.header("connection")?), (status, None));
        }
    }
    client.send(request("GET", "/", &[], None).repeat(50))?;
    for _ in 0..50 {
        assert_eq!(client.answer()?.status, 200, "pipelined");
    }
    client.exchange(request("GET", "/", &[("Connection", "close")], None))?;
    client.closed_after()?;
    Ok(())
}

#[test]
fn a_client_that_has_said_all_it_has_to_say_is_answered() -> anyhow::Result<()> {
    let server = start(&[])?;
    let made = create(server.public, "half closed", &[])?;
    for (bytes, status) in [
        (request("GET", &format!("/{}", made.id), &[], None), 200),
        (request("POST", "/v1/pastes", &[], Some(b"and then no more")), 201),
    ] {
        let mut client = Client::connect(server.public)?;
        client.send(bytes)?;
        client.finish_sending()?;
        assert_eq!(client.answer()?.status, status);
    }
    Ok(())
}

#[test]
fn other_forms_of_a_request_are_understood() -> anyhow::Result<()> {
    let server = start(&[])?;
    let paste = create(server.public, "hello", &[])?;
    let mut client = Client::connect(server.public)?;
    let absolute = client.exchange(request("GET", &format!("http://paste.test/{}", paste.id), &[], None))?;
    assert_eq!((absolute.status, absolute.text()?), (200, "hello"));
    let old = format!("GET /{} HTTP/1.0\r\n\r\n", paste.id);
    let answer = client.exchange(old)?;
    assert_eq!((answer.status, answer.text()?), (200, "hello"));
    client.closed_after()?;
    Ok(())
}

#[test]
fn what_the_parser_refuses_is_answered_and_does_no_harm() -> anyhow::Result<()> {
    let server = start(&[])?;
    for sent in [
        "\0\0\0\0\r\n\r\n".to_owned(),
        "GET\r\n\r\n".to_owned(),
        "GET / HTTP/9.9\r\n\r\n".to_owned(),
        "GET /\0 HTTP/1.1\r\n\r\n".to_owned(),
        "GET / HTTP/1.1\r\nno colon\r\n\r\n".to_owned(),
        "GET / HTTP/1.1\r\nA : b\r\n\r\n".to_owned(),
        "POST /v1/pastes HTTP/1.1\r\nTransfer-Encoding: gzip\r\n\r\n".to_owned(),
        "POST /v1/pastes HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n".to_owned(),
        format!("{} / HTTP/1.1\r\n\r\n", "A".repeat(20_000)),
    ] {
        let mut client = Client::connect(server.public)?;
        // It may close before all is sent.
        let _ = client.send(&sent);
        let answer = client.answer()?;
        assert!((400..=431).contains(&answer.status), "{} for {sent:.40}", answer.status);
        assert_eq!(answer.header("connection")?, Some("close"));
    }
    let mut client = Client::connect(server.public)?;
    client.send("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")?;
    client.rest()?;
    create(server.public, "hello", &[])?;
    Ok(())
}

#[test]
fn a_log_tells_nothing_that_opens_anything() -> anyhow::Result<()> {
    let server = start(&["--log-level", "trace"])?;
    let paste = create(server.public, "secret words", &[("X-Paste-Syntax", "secretlabel")])?;
    let target = format!("/v1/pastes/{}", paste.id);
    ask(server.public, "GET", &target, &[], None)?;
    ask(server.public, "GET", &format!("/{}?secretquery", paste.id), &[], None)?;
    ask(server.public, "POST", "/v1/pastes", &[], Some(b"secret \xFF"))?;
    ask(server.public, "DELETE", &target, &[("X-Delete-Token", &paste.delete_token)], None)?;
    let log = server.log();
    let lines: Vec<_> = log.lines().filter(|line| !line.contains("listening")).collect();
    for secret in [paste.id.as_str(), &paste.delete_token, "secret", "127.0.0.1"] {
        assert!(!lines.iter().any(|line| line.contains(secret)), "{secret} in {lines:#?}");
    }
    Ok(())
}

#[test]
fn it_ends_when_told_and_finishes_what_is_in_flight() -> anyhow::Result<()> {
    let mut server = start(&[])?;
    let mut idle = Client::connect(server.public)?;
    idle.exchange(request("GET", "/", &[], None))?;
    let mut working = Client::connect(server.public)?;
    working.send(request("POST", "/v1/pastes", &[("Content-Length", "10")], None))?;
    working.send("hello")?;
    // That it has begun shows when another request, sent later, is answered.
    ask(server.public, "GET", "/", &[], None)?;
    server.terminate()?;
    idle.closed_after()?;
    eventually(
        "nobody is accepted",
        Duration::from_secs(10),
        || Ok(Client::connect(server.public).is_err()),
    )?;
    working.send("world")?;
    let answer = working.answer()?;
    assert_eq!((answer.status, answer.header("connection")?), (201, Some("close")));
    assert!(server.ended(Duration::from_secs(20))?.success());
    Ok(())
}
