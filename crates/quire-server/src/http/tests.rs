//! The listener on a real socket over stores in memory, with its times shortened: what a black-box test of
//! the built binary could only wait for, or could not make happen.

mod admission;
mod fakes;
mod places;
mod sent_ahead;

use std::{
    sync::atomic::Ordering,
    thread,
    time::{Duration, Instant},
};

use quire_core::source::SourceKey;
use quire_testkit::{
    client::{Client, ask, created, request},
    eventually,
};

use self::fakes::{LONG, Server};
use super::{Bounds, SourceInFlight, guard::Kind};

const ID: &str = "7Kq2mP9xL0aB";
const SOON: Duration = Duration::from_millis(300);
/// More than the kernel takes off a server's hands for a client that does not read.
const PIPELINED: usize = 24;

fn path() -> String {
    format!("/v1/pastes/{ID}")
}

fn post(headers: &[(&str, &str)], body: &str) -> Vec<u8> {
    request("POST", "/v1/pastes", headers, Some(body.as_bytes()))
}

fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    eventually(what, Duration::from_secs(10), || Ok(is_so())).unwrap();
}

#[test]
fn a_paste_is_answered_with_exactly_these_headers() {
    let server = Server::start(Bounds::default());
    server.store.put(ID, "hello\n", LONG);
    for (method, target, body) in
        [("GET", path(), "hello\n"), ("GET", format!("/{ID}?x=1"), "hello\n"), ("HEAD", path(), "")]
    {
        let answer = ask(server.address, method, &target, &[], None).unwrap();
        let expires_at = answer.header("x-paste-expires-at").unwrap().unwrap().to_owned();
        assert_eq!(
            answer.without_date(),
            format!(
                "HTTP/1.1 200 OK\r\n\
                 content-type: text/plain; charset=utf-8\r\n\
                 x-content-type-options: nosniff\r\n\
                 content-security-policy: default-src 'none'; sandbox\r\n\
                 referrer-policy: no-referrer\r\n\
                 x-robots-tag: noindex\r\n\
                 cache-control: public, max-age=0, s-maxage=30, must-revalidate\r\n\
                 etag: \"5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03\"\r\n\
                 x-paste-expires-at: {expires_at}\r\n\
                 access-control-allow-origin: *\r\n\
                 access-control-expose-headers: X-Paste-Expires-At, X-Paste-Syntax\r\n\
                 content-length: 6\r\n\r\n{body}"
            )
        );
    }
    let tag = "W/\"5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03\"";
    let same = ask(server.address, "GET", &path(), &[("If-None-Match", tag)], None).unwrap();
    assert_eq!(same.status, 304);
    assert_eq!(same.header("content-length").unwrap(), None);
    assert_eq!(server.metric(r#"quire_http_requests_total{call="read",class="3xx"}"#), 1);
}

#[test]
fn caches_are_told_to_let_go_before_a_paste_expires() {
    let server = Server::start(Bounds::default());
    for (lives, allowed) in [(10, 8..=9), (1, 0..=0), (3_600, 30..=30)] {
        server.store.put(ID, "hello", Duration::from_secs(lives));
        let answer = ask(server.address, "GET", &path(), &[], None).unwrap();
        let told = answer.header("cache-control").unwrap().unwrap().to_owned();
        assert!(
            allowed.clone().any(|seconds| told.contains(&format!(" s-maxage={seconds},"))),
            "{lives}: {told}"
        );
    }
}

#[test]
fn a_fault_of_a_store_is_never_a_404_and_says_nothing_of_its_cause() {
    let server = Server::start(Bounds::default());
    server.store.put(ID, "hello", LONG);
    let store = &server.store;
    for (switch, read, write, delete) in [
        (&store.rows_down, (503, "unavailable"), Some((500, "storage_failed")), Some((503, "unavailable"))),
        (&store.bodies_down, (503, "unavailable"), Some((500, "storage_failed")), None),
        (&store.bodies_gone, (500, "body_missing"), None, None),
        (&store.bodies_corrupt, (500, "body_corrupt"), None, None),
        (&store.disk_low, (200, ""), Some((503, "unavailable")), None),
    ] {
        switch.store(true, Ordering::Relaxed);
        let answers = [
            (Some(read), ask(server.address, "GET", &path(), &[], None).unwrap()),
            (write, ask(server.address, "POST", "/v1/pastes", &[], Some(b"x")).unwrap()),
            (
                delete,
                ask(server.address, "DELETE", &path(), &[("X-Delete-Token", "AAAAAAAAAAAAAAAAAAAAAA")], None)
                    .unwrap(),
            ),
        ];
        for (expected, answer) in answers {
            let Some((status, code)) = expected else { continue };
            assert_eq!(answer.status, status);
            assert_eq!(answer.header("retry-after").unwrap().is_some(), status == 503);
            if status != 200 {
                assert_eq!(answer.error().unwrap(), code);
            }
        }
        switch.store(false, Ordering::Relaxed);
    }
    assert_eq!(server.metric("quire_bodies_missing_total"), 1);
    assert_eq!(server.metric("quire_bodies_corrupt_total"), 1);
    assert_eq!(server.metric(r#"quire_shed_total{reason="disk"}"#), 1);
}

#[test]
fn a_store_that_does_not_answer_is_not_waited_for_and_creates_go_on() {
    let bounds =
        Bounds { read_wait_max: SOON, create_wait_max: SOON, delete_wait_max: SOON, ..Bounds::default() };
    let server = Server::start(bounds);
    server.store.set_open(false);
    let token = [("X-Delete-Token", "AAAAAAAAAAAAAAAAAAAAAA")];
    assert_eq!(ask(server.address, "GET", &path(), &[], None).unwrap().error().unwrap(), "unavailable");
    assert_eq!(ask(server.address, "HEAD", &path(), &[], None).unwrap().status, 503);
    assert_eq!(ask(server.address, "DELETE", &path(), &token, None).unwrap().status, 503);
    assert_eq!(
        ask(server.address, "POST", "/v1/pastes", &[], Some(b"x")).unwrap().error().unwrap(),
        "storage_failed"
    );
    assert_eq!(server.store.count(), 0);
    server.store.set_open(true);
    wait_until("the create ends without its client", || server.store.count() == 1);
}

#[test]
fn a_client_that_hangs_up_takes_its_place_along_only_when_the_work_is_done() {
    let bounds = Bounds {
        source_in_flight: Some(SourceInFlight { requests_max: 8, creates_max: 2 }),
        ..Bounds::default()
    };
    let server = Server::start(bounds);
    server.store.set_open(false);
    for round in 1..=2 {
        let mut client = server.client();
        client.send(post(&[], "x")).unwrap();
        // The store is asked before the client goes; only then is it a hang-up in the middle.
        wait_until("the create is in flight", || server.api.drain().work().len() == round);
        drop(client);
    }
    let refused = ask(server.address, "POST", "/v1/pastes", &[], Some(b"x")).unwrap();
    assert_eq!((refused.status, refused.error().unwrap().as_str()), (503, "overloaded"));
    assert_eq!(server.metric(r#"quire_shed_total{reason="source_creates"}"#), 1);
    server.store.set_open(true);
    wait_until("both are stored", || server.store.count() == 2);
    wait_until("places are free", || {
        ask(server.address, "POST", "/v1/pastes", &[], Some(b"x")).unwrap().status == 201
    });
}

#[test]
fn what_is_in_flight_is_bounded_and_the_rest_is_refused_at_once() {
    let server = Server::start(Bounds { requests_max: 1, declared_bytes_max: 10, ..Bounds::default() });
    let big = ask(server.address, "POST", "/v1/pastes", &[], Some(b"01234567890")).unwrap();
    assert_eq!((big.status, big.header("retry-after").unwrap()), (503, Some("1")));
    assert_eq!(server.metric(r#"quire_shed_total{reason="declared_bytes"}"#), 1);

    server.store.set_open(false);
    let elsewhere = server.api.guard.source(SourceKey::V4([192, 0, 2, 9]));
    let mut waiting = server.client();
    waiting.send(request("GET", &path(), &[], None)).unwrap();
    let is_full = || ask(server.address, "GET", &path(), &[], None).unwrap().status == 503;
    // Until the first is in flight, the second would be and would have to wait.
    wait_until("the first is at work", || server.api.guard.enter(&elsewhere, Kind::Other).is_err());
    assert!(is_full());
    // Whatever needs no store needs a place as well, for as long as its answer is on the way.
    for (method, target) in [("GET", "/nothing"), ("GET", "/"), ("PUT", "/"), ("OPTIONS", "/")] {
        let refused = ask(server.address, method, target, &[], None).unwrap();
        assert_eq!((refused.status, refused.error().unwrap().as_str()), (503, "overloaded"), "{method}");
    }
    server.store.set_open(true);
    assert_eq!(waiting.answer().unwrap().status, 404);
    wait_until("its place is free", || ask(server.address, "GET", &path(), &[], None).unwrap().status == 404);
}

/// A client that asks for more than its socket holds and reads none of it, and is stuck by now.
fn stuck_client(server: &Server) -> Client {
    server.store.put(ID, "a".repeat(1_000_000), LONG);
    let mut client = server.client();
    client.send(request("GET", &path(), &[], None).repeat(PIPELINED)).unwrap();
    let mut before = 0;
    // Counted and not asked for, since asking would take a place.
    wait_until("its answers are stuck", || {
        quire_testkit::pass(SOON);
        let now = server.metric(r#"quire_http_requests_total{call="read",class="2xx"}"#);
        now > 0 && now == std::mem::replace(&mut before, now)
    });
    client
}

#[test]
fn a_slow_reader_is_in_flight_until_the_last_byte_has_left() {
    let server = Server::start(Bounds { requests_max: 1, ..Bounds::default() });
    let mut slow = stuck_client(&server);
    let status = || ask(server.address, "GET", &path(), &[], None).unwrap().status;
    assert_eq!(status(), 503);
    for _ in 0..PIPELINED {
        assert_eq!(slow.answer().unwrap().body.len(), 1_000_000);
    }
    wait_until("its place is free", || status() == 200);
}

#[test]
fn large_answers_for_slow_readers_are_bounded_and_small_ones_go_on() {
    let server = Server::start(Bounds { answer_bytes_max: 1_500_000, ..Bounds::default() });
    let _slow = stuck_client(&server);
    server.store.put("000000000000", "small", LONG);
    let status = |id: &str| ask(server.address, "GET", &format!("/{id}"), &[], None).unwrap().status;
    assert_eq!((status(ID), status("000000000000")), (503, 200));
}

#[test]
fn a_peer_that_takes_no_bytes_is_cut_off() {
    let server = Server::start(Bounds { write_stall_max: SOON * 4, ..Bounds::default() });
    let _stuck = stuck_client(&server);
    wait_until("it is cut off", || server.metric("quire_http_connections") == 0);
    assert_eq!(ask(server.address, "GET", "/", &[], None).unwrap().status, 200);
}

#[test]
fn heads_and_idle_times_are_bounded_each_by_its_own_time() {
    let (head_time_max, idle_time_max) = (SOON, SOON * 5);
    let server = Server::start(Bounds { head_time_max, idle_time_max, ..Bounds::default() });
    thread::scope(|scope| {
        scope.spawn(|| {
            let took = server.client().closed_after().unwrap();
            assert!(took >= head_time_max, "a silent connection was closed after {took:?}");
        });
        scope.spawn(|| {
            let mut client = server.client();
            let began = Instant::now();
            // It keeps sending, and that does not help.
            while client.send("X").is_ok() && began.elapsed() < Duration::from_secs(5) {
                quire_testkit::pass(Duration::from_millis(20));
            }
            let took = began.elapsed();
            assert!((head_time_max..Duration::from_secs(5)).contains(&took), "{took:?}");
        });
        scope.spawn(|| {
            let mut client = server.client();
            for _ in 0..3 {
                assert_eq!(client.exchange(request("GET", "/", &[], None)).unwrap().status, 200);
                // Longer than a head may take, and no head is on its way.
                quire_testkit::pass(head_time_max * 2);
            }
            client.exchange(request("GET", "/", &[], None)).unwrap();
            let took = client.closed_after().unwrap();
            assert!(took >= idle_time_max, "an idle connection was closed after {took:?}");
        });
        scope.spawn(|| {
            let mut client = server.client();
            client.exchange(request("GET", "/", &[], None)).unwrap();
            client.send("GET / HT").unwrap();
            let took = client.closed_after().unwrap();
            assert!(
                (head_time_max..idle_time_max).contains(&took),
                "a second head was closed after {took:?}"
            );
        });
    });
}

#[test]
fn a_body_comes_in_time_or_not_at_all() {
    let server = Server::start(Bounds {
        body_grace: SOON,
        body_time_max: SOON * 3,
        body_rate_bytes_per_second: 1_000,
        ..Bounds::default()
    });
    let head = "POST /v1/pastes HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n";
    thread::scope(|scope| {
        for begins_with in ["", "x"] {
            let server = &server;
            scope.spawn(move || {
                let mut client = server.client();
                let began = Instant::now();
                let answer = client.exchange(format!("{head}{begins_with}")).unwrap();
                assert_eq!((answer.status, answer.error().unwrap().as_str()), (400, "incomplete_body"));
                assert!(began.elapsed() >= SOON);
                assert_eq!(answer.header("connection").unwrap(), Some("close"));
                client.closed_after().unwrap();
            });
        }
        // Fast enough at every moment, but the time for all of it ends.
        scope.spawn(|| {
            let mut client = server.client();
            client.send(head).unwrap();
            let began = Instant::now();
            while client.send("x".repeat(200)).is_ok() && began.elapsed() < Duration::from_secs(10) {
                quire_testkit::pass(Duration::from_millis(50));
            }
            let took = began.elapsed();
            assert!((SOON * 3..Duration::from_secs(10)).contains(&took), "{took:?}");
        });
        scope.spawn(|| {
            let mut client = server.client();
            client.send(format!("{head}short")).unwrap();
            client.finish_sending().unwrap();
            assert_eq!(client.answer().unwrap().error().unwrap(), "incomplete_body");
        });
    });
    assert_eq!(server.store.count(), 0);
}

#[test]
fn a_refused_body_is_read_within_bounds_so_that_the_answer_arrives() {
    let server = Server::start(Bounds { discard_time_max: SOON, ..Bounds::default() });
    let mut client = server.client();
    let answer = client.exchange(post(&[], &"a".repeat(5_000_000))).unwrap();
    assert_eq!((answer.status, answer.error().unwrap().as_str()), (413, "too_large"));
    assert_eq!(
        client.exchange(post(&[], "x")).unwrap().status,
        201,
        "all was read, so the connection goes on"
    );

    let answer =
        client.exchange("POST /v1/pastes HTTP/1.1\r\nHost: a\r\nContent-Length: 2000000\r\n\r\nx").unwrap();
    assert_eq!((answer.status, answer.header("connection").unwrap()), (413, Some("close")));
    client.closed_after().unwrap();

    let endless = "POST /v1/pastes HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n4\r\ntext\r\n";
    let mut client = server.client();
    let answer = client.exchange(endless).unwrap();
    assert_eq!((answer.status, answer.error().unwrap().as_str()), (400, "length_required"));
    client.closed_after().unwrap();
    let ended = server.client().exchange(format!("{endless}0\r\n\r\n")).unwrap();
    assert_eq!((ended.status, ended.header("connection").unwrap()), (400, None));
}

#[test]
fn too_many_refused_bodies_are_not_read() {
    let server = Server::start(Bounds { discards_max: 0, ..Bounds::default() });
    let mut client = server.client();
    let answer =
        client.exchange("POST /v1/pastes HTTP/1.1\r\nHost: a\r\nContent-Length: 2000000\r\n\r\nx").unwrap();
    assert_eq!((answer.status, answer.header("connection").unwrap()), (413, Some("close")));
    // What is sent after the answer does not turn it into a reset.
    let _ = client.send("x".repeat(100_000));
    client.finish_sending().unwrap();
    client.closed_after().unwrap();
}

#[test]
fn who_waits_for_continue_is_told_to_only_when_the_body_is_wanted() {
    let server = Server::start(Bounds::default());
    let head = |length: &str| {
        format!(
            "POST /v1/pastes HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: {length}\r\n\r\n"
        )
    };
    let mut client = server.client();
    client.send(head("1000001")).unwrap();
    let refused = client.answer().unwrap();
    assert_eq!((refused.status, refused.header("connection").unwrap()), (413, Some("close")));
    client.closed_after().unwrap();

    let mut client = server.client();
    client.send(head("5")).unwrap();
    let interim = quire_testkit::client::Client::answer_to_head(&mut client).unwrap();
    assert_eq!(interim.status, 100);
    client.send("hello").unwrap();
    created(&client.answer().unwrap()).unwrap();
}

#[test]
fn what_the_parser_refuses_is_answered_and_closed() {
    let server = Server::start(Bounds::default());
    let nines = "9".repeat(40);
    for (sent, status, json) in [
        (format!("POST /v1/pastes HTTP/1.1\r\nContent-Length: {nines}\r\n\r\n"), 413, true),
        ("POST /v1/pastes HTTP/1.1\r\nContent-Length: 18446744073709551615\r\n\r\n".to_owned(), 413, true),
        (
            "POST /v1/pastes HTTP/1.1\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello".to_owned(),
            400,
            false,
        ),
        ("nonsense\r\n\r\n".to_owned(), 400, false),
        (format!("GET /{} HTTP/1.1\r\n\r\n", "a".repeat(100_000)), 431, false),
        (format!("GET / HTTP/1.1\r\n{}\r\n", "A: b\r\n".repeat(1_000)), 431, false),
        (format!("GET / HTTP/1.1\r\nA: {}\r\n\r\n", "b".repeat(17_000)), 431, false),
    ] {
        let mut client = server.client();
        // It may close before all is sent.
        let _ = client.send(&sent);
        let answer = client.answer().unwrap();
        assert_eq!(answer.status, status, "{}", &sent[..60.min(sent.len())]);
        assert_eq!(answer.header("connection").unwrap(), Some("close"));
        if json {
            assert_eq!(answer.error().unwrap(), "too_large");
        }
        client.finish_sending().unwrap();
        client.closed_after().unwrap();
    }
    // In pieces, and after another request.
    let mut client = server.client();
    client.exchange(request("GET", "/", &[], None)).unwrap();
    for piece in ["POST /v1/pastes HTTP/1.1\r\nConte", "nt-Length: ", &nines, "\r\n", "\r\n"] {
        client.send(piece).unwrap();
        quire_testkit::pass(Duration::from_millis(5));
    }
    assert_eq!(client.answer().unwrap().error().unwrap(), "too_large");
}

#[test]
fn draining_says_so_finishes_what_is_in_flight_and_closes_what_is_idle() {
    let server = Server::start(Bounds::default());
    let mut idle = server.client();
    idle.exchange(request("GET", "/", &[], None)).unwrap();
    let silent = server.client();
    server.store.set_open(false);
    let mut working = server.client();
    working.send(post(&[], "x")).unwrap();
    let drain = server.api.drain();
    wait_until("the create is in flight", || drain.work().len() == 1);

    drain.start();
    let told = ask(server.address, "GET", "/", &[], None).unwrap();
    assert_eq!((told.status, told.header("connection").unwrap()), (200, Some("close")), "still accepting");

    assert!(!server.runtime.block_on(drain.finish(SOON)), "a create is in flight");
    idle.closed_after().unwrap();
    drop(silent);
    assert!(Client::connect(server.address).is_err(), "nobody is accepted any more");
    server.store.set_open(true);
    let answer = working.answer().unwrap();
    assert_eq!((answer.status, answer.header("connection").unwrap()), (201, Some("close")));
    assert!(server.runtime.block_on(drain.finish(Duration::from_secs(10))));
    assert_eq!(server.store.count(), 1);
}

#[test]
fn a_named_site_may_create_and_delete_and_sees_errors() {
    let server = Server::start_with(Bounds::default(), &["https://tools.example"]);
    let named = [("Origin", "https://tools.example"), ("Sec-Fetch-Site", "cross-site")];
    let answer = ask(server.address, "POST", "/v1/pastes", &named, Some(b"x")).unwrap();
    let paste = created(&answer).unwrap();
    assert_eq!(answer.header("access-control-allow-origin").unwrap(), Some("https://tools.example"));
    assert_eq!(answer.header("vary").unwrap(), Some("Origin"));
    let answer = ask(server.address, "POST", "/v1/pastes", &named, Some(b"")).unwrap();
    assert_eq!(answer.error().unwrap(), "empty_body");
    assert_eq!(answer.header("access-control-allow-origin").unwrap(), Some("https://tools.example"));

    let target = format!("/v1/pastes/{}", paste.id);
    let preflight = |origin: &str, method: &str| {
        let headers = [("Origin", origin), ("Access-Control-Request-Method", method)];
        let answer = ask(server.address, "OPTIONS", &target, &headers, None).unwrap();
        assert_eq!(answer.status, 204);
        answer.header("access-control-allow-origin").unwrap().map(str::to_owned)
    };
    assert_eq!(preflight("https://tools.example", "DELETE").as_deref(), Some("https://tools.example"));
    assert_eq!(preflight("https://evil.example", "DELETE"), None);
    assert_eq!(preflight("https://evil.example", "GET").as_deref(), Some("*"));

    let token = [named[0], ("X-Delete-Token", paste.delete_token.as_str())];
    let answer = ask(server.address, "DELETE", &target, &token, None).unwrap();
    assert_eq!((answer.status, answer.header("vary").unwrap()), (204, Some("Origin")));
    let foreign = [("Origin", "https://evil.example")];
    let answer = ask(server.address, "POST", "/v1/pastes", &foreign, Some(b"x")).unwrap();
    assert_eq!((answer.status, answer.header("access-control-allow-origin").unwrap()), (403, None));
}
