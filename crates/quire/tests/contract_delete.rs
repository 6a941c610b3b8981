//! `DELETE /v1/pastes/{id}` as any client sees it (contract, Delete).

mod common;

use std::{net::SocketAddr, thread};

use common::start;
use quire_testkit::client::{Answer, ask, create};

const NOT_FOUND: &str = "HTTP/1.1 404 Not Found\r\ncontent-type: application/json\r\ncache-control: no-store\r\n\
                         content-length: 21\r\n\r\n{\"error\":\"not_found\"}";

fn delete(address: SocketAddr, id: &str, tokens: &[&str]) -> anyhow::Result<Answer> {
    let headers: Vec<_> = tokens.iter().map(|&token| ("X-Delete-Token", token)).collect();
    ask(address, "DELETE", &format!("/v1/pastes/{id}"), &headers, None)
}

fn status(address: SocketAddr, id: &str) -> anyhow::Result<u16> {
    Ok(ask(address, "GET", &format!("/{id}"), &[], None)?.status)
}

#[test]
fn the_right_token_deletes_once() -> anyhow::Result<()> {
    let server = start(&[])?;
    let paste = create(server.public, "hello", &[])?;
    let other = create(server.public, "hello", &[])?;
    assert_eq!(status(server.public, &paste.id)?, 200, "read, and perhaps cached, before it goes");
    let gone = delete(server.public, &paste.id, &[&paste.delete_token])?;
    assert_eq!(gone.without_date(), "HTTP/1.1 204 No Content\r\ncache-control: no-store\r\n\r\n");
    assert_eq!(status(server.public, &paste.id)?, 404);
    let head =
        ask(server.public, "HEAD", &format!("/v1/pastes/{}", paste.id), &[("If-None-Match", "*")], None)?;
    assert_eq!(head.status, 404);
    assert_eq!(delete(server.public, &paste.id, &[&paste.delete_token])?.without_date(), NOT_FOUND);
    assert_eq!(status(server.public, &other.id)?, 200, "the same text under another id is another paste");
    Ok(())
}

#[test]
fn any_other_token_is_answered_as_if_there_were_no_paste() -> anyhow::Result<()> {
    let server = start(&[])?;
    let paste = create(server.public, "hello", &[])?;
    let other = create(server.public, "hello", &[])?;
    let token = paste.delete_token.as_str();
    let other_letter = if token.starts_with('A') { 'B' } else { 'A' };
    let first_changed = format!("{other_letter}{}", &token[1..]);
    let padded = format!("{token}==");
    let lower = token.to_ascii_lowercase();
    for tokens in [
        &[][..],
        &[""],
        &[&other.delete_token],
        &[&first_changed],
        &[&token[..21]],
        &[&padded],
        &["AAAAAAAAAAAAAAAAAAAAAA"],
        &["+++++++++++++++++++++/"],
        &["\u{e9}AAAAAAAAAAAAAAAAAAAA"],
        &[token, token],
        &[&first_changed, token],
        &[&format!("{token},{token}")],
    ] {
        assert_eq!(delete(server.public, &paste.id, tokens)?.without_date(), NOT_FOUND, "{tokens:?}");
    }
    if lower != token {
        assert_eq!(delete(server.public, &paste.id, &[&lower])?.without_date(), NOT_FOUND);
    }
    for id in ["000000000000", "short", "%41AAAAAAAAAAA", &format!("{}/", paste.id)] {
        assert_eq!(delete(server.public, id, &[token])?.without_date(), NOT_FOUND, "{id}");
    }
    assert_eq!(status(server.public, &paste.id)?, 200);
    Ok(())
}

#[test]
fn an_expired_paste_cannot_be_deleted() -> anyhow::Result<()> {
    let server = start(&[])?;
    let paste = create(server.public, "hello", &[])?;
    let rows = rusqlite::Connection::open(server.data().join("rows.db"))?;
    rows.busy_timeout(std::time::Duration::from_secs(10))?;
    rows.execute("UPDATE pastes SET expires_at = created_at - 1 WHERE id = ?1", [&paste.id])?;
    assert_eq!(delete(server.public, &paste.id, &[&paste.delete_token])?.without_date(), NOT_FOUND);
    Ok(())
}

#[test]
fn nothing_but_delete_deletes() -> anyhow::Result<()> {
    let server = start(&[])?;
    let paste = create(server.public, "hello", &[])?;
    let token = [("X-Delete-Token", paste.delete_token.as_str()), ("X-HTTP-Method-Override", "DELETE")];
    for (method, target, expected) in [
        ("GET", format!("/v1/pastes/{}", paste.id), 200),
        ("GET", format!("/v1/pastes/{}?_method=DELETE", paste.id), 200),
        ("POST", format!("/v1/pastes/{}", paste.id), 405),
        ("DELETE", format!("/{}", paste.id), 405),
        ("DELETE", "/v1/pastes".to_owned(), 405),
    ] {
        let answer = ask(server.public, method, &target, &token, None)?;
        assert_eq!(answer.status, expected, "{method} {target}");
    }
    assert_eq!(status(server.public, &paste.id)?, 200);
    Ok(())
}

#[test]
fn of_racing_deletes_exactly_one_succeeds() -> anyhow::Result<()> {
    let server = start(&[])?;
    for _ in 0..20 {
        let paste = create(server.public, "hello", &[])?;
        let statuses = thread::scope(|scope| {
            let racers: Vec<_> = (0..8)
                .map(|_| scope.spawn(|| delete(server.public, &paste.id, &[&paste.delete_token])))
                .collect();
            let joined = racers.into_iter().map(|racer| {
                racer.join().map_err(|_| anyhow::anyhow!("a racer panicked"))?.map(|answer| answer.status)
            });
            joined.collect::<anyhow::Result<Vec<_>>>()
        })?;
        assert_eq!(statuses.iter().filter(|status| **status == 204).count(), 1, "{statuses:?}");
        assert_eq!(statuses.iter().filter(|status| **status == 404).count(), 7, "{statuses:?}");
    }
    Ok(())
}
