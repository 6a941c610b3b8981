//! Heads as they really come: after empty lines, before the last answer, in pieces, with lengths of any size.

use std::time::Duration;

use quire_testkit::client::request;

use super::{ID, SOON, path, post};
use crate::http::{
    Bounds,
    tests::fakes::{LONG, Server},
};

const NINES: &str = "99999999999999999999999";

fn get(target: &str) -> Vec<u8> {
    request("GET", target, &[], None)
}

#[test]
fn a_fragment_in_front_of_the_query_is_a_malformed_path_wherever_it_comes() {
    let server = Server::start(Bounds::default());
    server.store.put(ID, "hello", LONG);
    for (target, status) in [
        (path(), 200),
        (format!("{}#x", path()), 404),
        (format!("/{ID}#x?y"), 404),
        (format!("/{ID}?y#x"), 200),
        ("/#x".to_owned(), 404),
        (path(), 200),
    ] {
        let plain = get(&target);
        let large_body = "#".repeat(50_000);
        for (before, status_before) in [
            (Vec::new(), None),
            (b"\r\n".to_vec(), None),
            (b"\n\r\n\n".to_vec(), None),
            (get("/"), Some(200)),
            (get("/#"), Some(404)),
            (post(&[], "#"), Some(201)),
            (post(&[], &large_body), Some(201)),
            (post(&[], ""), Some(400)),
        ] {
            let mut client = server.client();
            let sent = [before, plain.clone()].concat();
            client.send(&sent).unwrap();
            if let Some(status) = status_before {
                assert_eq!(client.answer().unwrap().status, status);
            }
            assert_eq!(client.answer().unwrap().status, status, "{target}");
            // The connection has lost count of nothing.
            assert_eq!(client.exchange(&plain).unwrap().status, status, "{target}");
        }
    }
}

#[test]
fn many_requests_sent_at_once_are_each_judged_by_their_own_target() {
    let server = Server::start(Bounds::default());
    server.store.put(ID, "hello", LONG);
    let mut client = server.client();
    let targets: Vec<_> =
        (0..2_000).map(|number| (format!("/{ID}{}", ["", "#x", "?#"][number % 3]), number)).collect();
    let sent: Vec<u8> = targets.iter().flat_map(|(target, _)| get(target)).collect();
    client.send(sent).unwrap();
    for (target, number) in targets {
        let status = if number % 3 == 1 { 404 } else { 200 };
        assert_eq!(client.answer().unwrap().status, status, "{number}: {target}");
    }
}

#[test]
fn a_head_that_was_begun_before_the_last_answer_has_no_longer_than_others() {
    let (head_time_max, idle_time_max) = (SOON, SOON * 10);
    let server = Server::start(Bounds { head_time_max, idle_time_max, ..Bounds::default() });
    let chunked =
        "POST /v1/pastes HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n";
    for first in [get("/"), get("/nothing"), post(&[], "x"), chunked.as_bytes().to_vec()] {
        let mut client = server.client();
        client.send([&first[..], b"GET / HTTP/1.1\r\nHost"].concat()).unwrap();
        client.answer().unwrap();
        let took = client.closed_after().unwrap();
        assert!(took < idle_time_max / 2, "closed after {took:?}");
    }
    // Nothing was begun: the time between requests holds.
    let mut client = server.client();
    client.exchange(post(&[], "x")).unwrap();
    let took = client.closed_after().unwrap();
    assert!(took >= idle_time_max, "closed after {took:?}");
}

#[test]
fn a_length_of_any_size_is_judged_by_the_path() {
    let server = Server::start(Bounds::default());
    let head =
        |line: &str, digits: &str| format!("{line} HTTP/1.1\r\nHost: a\r\nContent-Length: {digits}\r\n\r\n");
    let long = "9".repeat(12_000);
    for digits in ["2000000", NINES, &long] {
        for (line, code) in [
            ("POST /v1/pastes", "too_large"),
            ("POST /v1/pastes?a=b", "too_large"),
            ("\r\nPOST /v1/pastes", "too_large"),
            ("POST /nope", "not_found"),
            ("POST /v1/pastes/", "not_found"),
        ] {
            for before in [Vec::new(), get("/")] {
                let mut client = server.client();
                let is_second = !before.is_empty();
                client.send([before, head(line, digits).into_bytes()].concat()).unwrap();
                if is_second {
                    assert_eq!(client.answer().unwrap().status, 200);
                }
                client.finish_sending().unwrap();
                let answer = client.answer().unwrap();
                assert_eq!(answer.error().unwrap(), code, "{line} {} digits {is_second}", digits.len());
                client.closed_after().unwrap();
            }
        }
    }
    let mut client = server.client();
    client.send(format!("POST /v1/pastes HTTP/1.1\nHost: a\nContent-Length: {NINES}\n\n")).unwrap();
    assert_eq!(client.answer().unwrap().error().unwrap(), "too_large");
}

#[test]
fn a_byte_that_is_not_ascii_is_refused_in_a_path() {
    let server = Server::start(Bounds::default());
    for byte in [0x80, 0xC3, 0xFF] {
        for place in ["/", "/v1/pastes/"] {
            let mut client = server.client();
            let sent = [b"GET ", place.as_bytes(), b"7Kq2mP9xL0a", &[byte], b" HTTP/1.1\r\nHost: a\r\n\r\n"];
            client.send(sent.concat()).unwrap();
            let answer = client.answer().unwrap();
            assert_eq!(
                (answer.status, answer.header("connection").unwrap()),
                (400, Some("close")),
                "{byte:x}"
            );
            client.finish_sending().unwrap();
            client.be_patient(Duration::from_secs(10)).unwrap();
            client.closed_after().unwrap();
        }
    }
}
