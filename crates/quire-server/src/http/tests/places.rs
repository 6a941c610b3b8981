//! Who may hold connections and places, and for how long: clients that ask and do not read above all.

use std::{
    io::Write as _,
    net::{IpAddr, Ipv4Addr},
    sync::atomic::Ordering,
    time::{Duration, Instant},
};

use quire_testkit::client::{Client, ask, created, request};

use super::{ID, path, wait_until};
use crate::http::{
    Bounds,
    tests::fakes::{LONG, Server},
};

fn client_from(last: u8, server: &Server) -> Client {
    Client::connect_from(IpAddr::V4(Ipv4Addr::new(127, 0, 0, last)), server.address).unwrap()
}

#[test]
fn past_the_bound_on_connections_a_newcomer_is_told_at_once() {
    let server = Server::start(Bounds { connections_max: 4, ..Bounds::default() });
    let held: Vec<_> = (0..4)
        .map(|_| {
            let mut client = server.client();
            client.exchange(request("GET", "/", &[], None)).unwrap();
            client
        })
        .collect();
    let mut newcomer = server.client();
    let answer = newcomer.exchange(request("GET", "/", &[], None)).unwrap();
    assert_eq!((answer.status, answer.error().unwrap().as_str()), (503, "overloaded"));
    assert_eq!(answer.header("retry-after").unwrap(), Some("1"));
    newcomer.finish_sending().unwrap();
    newcomer.closed_after().unwrap();

    // Whoever is not the one that holds them all gets one of its places.
    let mut other = Client::connect_from("127.0.0.2".parse().unwrap(), server.address).unwrap();
    assert_eq!(other.exchange(request("GET", "/", &[], None)).unwrap().status, 200);
    assert_eq!(server.metric(r#"quire_shed_total{reason="hog"}"#), 1);
    assert_eq!(server.metric(r#"quire_shed_total{reason="connections"}"#), 1);
    drop(held);
    wait_until("their places are free", || server.metric("quire_http_connections") == 1);
    assert_eq!(ask(server.address, "GET", "/", &[], None).unwrap().status, 200);
}

/// A client that sends requests for as long as the server takes any, and reads no answer.
fn client_that_never_reads(last: u8, sent: &[u8], server: &Server) -> Client {
    let client = client_from(last, server);
    client.socket().set_write_timeout(Some(Duration::from_millis(500))).unwrap();
    let began = Instant::now();
    // Once the answers are stuck nothing more is read, and in the end nothing more can be sent.
    while client.socket().write_all(&sent.repeat(1_000)).is_ok() {
        assert!(began.elapsed() < Duration::from_mins(1), "it is never stuck");
    }
    client
}

#[test]
fn whoever_never_reads_makes_room_for_a_stranger() {
    for (method, target) in [("GET", "/"), ("GET", "/nothing"), ("PUT", "/"), ("OPTIONS", "/")] {
        let server = Server::start(Bounds { connections_max: 4, ..Bounds::default() });
        let get = request(method, target, &[], None);
        let _held: Vec<_> = (0..4).map(|_| client_that_never_reads(2, &get, &server)).collect();
        wait_until("they are stuck for long enough", || {
            client_from(3, &server).exchange(&get).unwrap().status != 503
        });
        assert!(server.metric(r#"quire_shed_total{reason="hog"}"#) > 0);
        // The hog itself gets no more than it has.
        let _strangers: Vec<_> = (0..2)
            .map(|_| {
                let mut stranger = client_from(3, &server);
                assert_ne!(stranger.exchange(&get).unwrap().status, 503);
                stranger
            })
            .collect();
        assert_eq!(client_from(2, &server).answer().unwrap().status, 503);
    }
}

#[test]
fn two_sources_that_hold_half_each_lock_nobody_out() {
    let server = Server::start(Bounds { connections_max: 8, ..Bounds::default() });
    let get = request("GET", "/", &[], None);
    let connect = |last: u8| {
        let mut client = client_from(last, &server);
        let status = client.exchange(&get).unwrap().status;
        (client, status)
    };
    let _held: Vec<_> = (0..8).map(|number| connect(2 + number % 2)).collect();
    let strangers: Vec<_> = (0..3).map(|_| connect(9)).collect();
    assert_eq!(strangers.iter().map(|(_, status)| *status).collect::<Vec<_>>(), [200, 200, 503]);
    assert_eq!(connect(2).1, 503, "it had its share");
}

#[test]
fn answers_of_every_kind_are_in_flight_until_they_have_left() {
    let server = Server::start(Bounds { requests_max: 1, ..Bounds::default() });
    for (method, target) in
        [("GET", "/"), ("GET", "/nothing"), ("PUT", "/"), ("OPTIONS", "/"), ("HEAD", "/nothing")]
    {
        let stuck = client_that_never_reads(2, &request(method, target, &[], None), &server);
        assert_eq!(ask(server.address, "GET", "/", &[], None).unwrap().status, 503, "{method} {target}");
        drop(stuck);
        wait_until("its place is free", || ask(server.address, "GET", "/", &[], None).unwrap().status == 200);
    }
}

#[test]
fn one_large_answer_that_nobody_reads_is_in_flight() {
    let server = Server::start(Bounds { requests_max: 1, ..Bounds::default() });
    server.store.put(ID, "a".repeat(1_000_000), LONG);
    let mut slow = server.client();
    slow.send(request("GET", &path(), &[], None)).unwrap();
    wait_until("it is answered", || {
        server.metric(r#"quire_http_requests_total{call="read",class="2xx"}"#) == 1
    });
    quire_testkit::pass(Duration::from_millis(300));
    assert_eq!(
        ask(server.address, "GET", "/", &[], None).unwrap().status,
        503,
        "the kernel did not take it all"
    );
    assert_eq!(slow.answer().unwrap().body.len(), 1_000_000);
    wait_until("its place is free", || ask(server.address, "GET", "/", &[], None).unwrap().status == 200);
}

#[test]
fn a_full_queue_of_a_store_is_load_and_no_fault() {
    let server = Server::start(Bounds::default());
    server.store.put(ID, "hello", LONG);
    server.store.queue_full.store(true, Ordering::Relaxed);
    let token = [("X-Delete-Token", "AAAAAAAAAAAAAAAAAAAAAA")];
    let answers = [
        ask(server.address, "GET", &path(), &[], None).unwrap(),
        ask(server.address, "GET", &path(), &[("If-None-Match", "*")], None).unwrap(),
        ask(server.address, "DELETE", &path(), &token, None).unwrap(),
        ask(server.address, "POST", "/v1/pastes", &[], Some(b"x")).unwrap(),
    ];
    for (number, answer) in (1..).zip(&answers) {
        assert_eq!((answer.status, answer.error().unwrap().as_str()), (503, "overloaded"), "{number}");
        assert_eq!(answer.header("retry-after").unwrap(), Some("1"));
    }
    assert_eq!(server.metric(r#"quire_shed_total{reason="queue"}"#), 4);
}

#[test]
fn a_delete_is_answered_when_the_row_is_gone_however_long_the_body_takes() {
    let server = Server::start(Bounds { delete_wait_max: Duration::from_secs(2), ..Bounds::default() });
    let create = || created(&ask(server.address, "POST", "/v1/pastes", &[], Some(b"x")).unwrap()).unwrap();
    let delete = |paste: &quire_testkit::client::Created| {
        let token = [("X-Delete-Token", paste.delete_token.as_str())];
        ask(server.address, "DELETE", &format!("/v1/pastes/{}", paste.id), &token, None).unwrap().status
    };
    let (slow, down) = (create(), create());
    server.store.hold_removals(true);
    assert_eq!(delete(&slow), 204);
    assert_eq!(ask(server.address, "GET", &format!("/{}", slow.id), &[], None).unwrap().status, 404);
    assert_eq!(server.store.bodies(), 2, "the row went first");
    assert_eq!(server.api.drain().work().len(), 1, "a server that drains waits for the rest");
    server.store.hold_removals(false);
    wait_until("the body is removed too", || server.store.bodies() == 1);

    server.store.bodies_down.store(true, Ordering::Relaxed);
    assert_eq!(delete(&down), 204);
    wait_until("what stays is counted", || server.metric("quire_delete_orphans_total") == 1);
}
