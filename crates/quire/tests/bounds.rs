//! What a connection may do (contract H2): with hostile clients of every kind, a new one is answered within a
//! second, memory stays bounded, and the hostile ones are closed in time.

mod common;

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    thread,
    time::{Duration, Instant},
};

use anyhow::ensure;
use common::{BINARY, start};
use quire_testkit::{
    client::{Client, ask, created, request},
    eventually,
    hold::{First, Holder, descriptors_max, serve_if_asked},
    pass,
    server::Server,
};

/// The contract's times.
const HEAD_TIME: Duration = Duration::from_secs(10);
const IDLE_TIME: Duration = Duration::from_secs(75);
const BODY_GRACE: Duration = Duration::from_secs(5);
/// A loaded machine may be late, never early.
const SLACK: Duration = Duration::from_secs(12);
/// Timers may ring a moment before a clock read elsewhere says so.
const EARLY: Duration = Duration::from_millis(200);
/// How much memory any of it may take.
const GROWTH_BYTES_MAX: u64 = 200_000_000;
/// Connections the server takes at most, if it may have the descriptors.
const CONNECTIONS_MAX: u64 = 10_000;
/// Descriptors it keeps for everything else.
const DESCRIPTORS_KEPT: u64 = 512;

/// A new client, from another address than the hostile ones, is answered within a second.
fn answers_a_stranger(server: &Server) -> anyhow::Result<()> {
    let began = Instant::now();
    let mut stranger = Client::connect_from(IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2)), server.public)?;
    let answer = stranger.exchange(request("GET", "/", &[], None))?;
    let took = began.elapsed();
    ensure!(answer.status == 200, "answered {}", answer.status);
    ensure!(took < Duration::from_secs(1), "answered after {took:?}");
    Ok(())
}

fn grown(server: &Server, before: u64) -> anyhow::Result<()> {
    let grown = server.resident_bytes()?.saturating_sub(before);
    ensure!(grown < GROWTH_BYTES_MAX, "memory grew by {grown} bytes");
    Ok(())
}

fn in_time(what: &str, took: Duration, time: Duration) -> anyhow::Result<()> {
    ensure!(took + EARLY >= time, "{what}: closed early, after {took:?}");
    ensure!(took <= time + SLACK, "{what}: closed late, after {took:?}");
    Ok(())
}

/// Sends `bytes` again and again at this pace until the peer has closed.
fn trickle(client: &mut Client, bytes: &str, pace: Duration) -> anyhow::Result<Duration> {
    let began = Instant::now();
    while client.send(bytes).is_ok() {
        ensure!(began.elapsed() < Duration::from_mins(2), "nobody closed it");
        pass(pace);
    }
    Ok(began.elapsed())
}

fn sends_nothing(address: SocketAddr) -> anyhow::Result<()> {
    let took = Client::connect(address)?.closed_after()?;
    in_time("a connection that sends nothing", took, HEAD_TIME)
}

fn sends_a_head_byte_by_byte(address: SocketAddr) -> anyhow::Result<()> {
    let took = trickle(&mut Client::connect(address)?, "X", Duration::from_secs(1))?;
    in_time("a head at a byte a second", took, HEAD_TIME)
}

fn begins_a_second_head(address: SocketAddr) -> anyhow::Result<()> {
    let mut client = Client::connect(address)?;
    client.exchange(request("GET", "/", &[], None))?;
    client.send("GET / HTTP/1.1\r\nHost")?;
    in_time("a second head that never ends", client.closed_after()?, HEAD_TIME)
}

fn stalls_its_body(address: SocketAddr, begins_with: &str) -> anyhow::Result<()> {
    let mut client = Client::connect(address)?;
    let began = Instant::now();
    client.send(request("POST", "/v1/pastes", &[("Content-Length", "1000000")], None))?;
    client.send(begins_with)?;
    let answer = client.answer()?;
    in_time("a stalled body", began.elapsed(), BODY_GRACE)?;
    ensure!(answer.error()? == "incomplete_body", "{answer:?}");
    client.finish_sending()?;
    client.closed_after().map(|_| ())
}

fn trickles_its_body(address: SocketAddr) -> anyhow::Result<()> {
    let mut client = Client::connect(address)?;
    client.send(request("POST", "/v1/pastes", &[("Content-Length", "1000000")], None))?;
    // A thousandth of the rate that is asked for.
    let took = trickle(&mut client, "x", Duration::from_millis(100))?;
    in_time("a body at ten bytes a second", took, BODY_GRACE)
}

fn keeps_the_rate(address: SocketAddr) -> anyhow::Result<()> {
    let mut client = Client::connect(address)?;
    client.send(request("POST", "/v1/pastes", &[("Content-Length", "150000")], None))?;
    for _ in 0..10 {
        client.send("x".repeat(15_000))?;
        pass(Duration::from_secs(1));
    }
    created(&client.answer()?).map(|_| ())
}

#[test]
fn slow_clients_of_every_kind_are_closed_in_time() -> anyhow::Result<()> {
    let server = start(&[])?;
    let address = server.public;
    let before = server.resident_bytes()?;
    thread::scope(|scope| {
        let clients = [
            scope.spawn(move || sends_nothing(address)),
            scope.spawn(move || sends_a_head_byte_by_byte(address)),
            scope.spawn(move || begins_a_second_head(address)),
            scope.spawn(move || stalls_its_body(address, "")),
            scope.spawn(move || stalls_its_body(address, "begun")),
            scope.spawn(move || trickles_its_body(address)),
            scope.spawn(move || keeps_the_rate(address)),
        ];
        answers_a_stranger(&server)?;
        for client in clients {
            client.join().map_err(|_| anyhow::anyhow!("a client panicked"))??;
        }
        grown(&server, before)
    })
}

#[test]
fn large_heads_are_refused_at_once() -> anyhow::Result<()> {
    let server = start(&[])?;
    let before = server.resident_bytes()?;
    for _ in 0..200 {
        for sent in [
            format!("GET /{} HTTP/1.1\r\nHost: a\r\n\r\n", "a".repeat(100_000)),
            format!("GET / HTTP/1.1\r\n{}\r\n", "A: b\r\n".repeat(1_000)),
            format!("GET / HTTP/1.1\r\n{}\r\n", "A: b\r\n".repeat(100_000)),
        ] {
            let mut client = Client::connect(server.public)?;
            // What is sent after the answer is thrown away for a while, so that the answer is not lost.
            client.send(sent)?;
            let answer = client.answer()?;
            ensure!(matches!(answer.status, 414 | 431), "answered {}", answer.status);
            ensure!(answer.header("connection")? == Some("close"), "{answer:?}");
        }
    }
    answers_a_stranger(&server)?;
    grown(&server, before)
}

#[test]
fn what_was_declared_and_never_came_takes_no_memory() -> anyhow::Result<()> {
    let server = start(&[])?;
    let before = server.resident_bytes()?;
    let mut held = Vec::new();
    // More than may be declared at once: 256 MB.
    for _ in 0..400 {
        let mut client = Client::connect(server.public)?;
        client.send(request("POST", "/v1/pastes", &[("Content-Length", "1000000")], None))?;
        client.send("begun")?;
        held.push(client);
    }
    let large = "a".repeat(1_000_000);
    let post = || ask(server.public, "POST", "/v1/pastes", &[], Some(large.as_bytes()));
    let mut refused = post()?;
    // The last of them may not have been read yet.
    eventually("no more is taken", BODY_GRACE, || {
        if refused.status == 201 {
            refused = post()?;
        }
        Ok(refused.status == 503)
    })?;
    assert!(refused.header("retry-after")?.is_some());
    answers_a_stranger(&server)?;
    grown(&server, before)?;
    eventually("they gave up their places", BODY_GRACE + SLACK, || {
        Ok(ask(server.public, "POST", "/v1/pastes", &[], Some(b"hello"))?.status == 201)
    })
}

#[test]
fn one_source_has_a_bound_on_creates_in_flight() -> anyhow::Result<()> {
    let server = Server::start(BINARY, &["--source-in-flight", "8,2"])?;
    let mut begun = Vec::new();
    for _ in 0..2 {
        let mut client = Client::connect(server.public)?;
        // Asked to continue, it is known to be in flight.
        let headers = [("Content-Length", "5"), ("Expect", "100-continue")];
        client.send(request("POST", "/v1/pastes", &headers, None))?;
        assert_eq!(client.answer_to_head()?.status, 100);
        begun.push(client);
    }
    let third = ask(server.public, "POST", "/v1/pastes", &[], Some(b"hello"))?;
    assert_eq!((third.status, third.error()?.as_str()), (503, "overloaded"));
    assert!(third.header("retry-after")?.is_some());
    assert_eq!(ask(server.public, "GET", "/000000000000", &[], None)?.status, 404, "a read is no create");
    let mut stranger = Client::connect_from(IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2)), server.public)?;
    created(&stranger.exchange(request("POST", "/v1/pastes", &[], Some(b"hello")))?)?;
    for mut client in begun {
        client.send("hello")?;
        created(&client.answer()?)?;
    }
    created(&ask(server.public, "POST", "/v1/pastes", &[], Some(b"hello"))?)?;
    Ok(())
}

/// Fills the server's connections from one address, and looks at it from another.
fn hold_up_to_the_bound(first: First, time: Duration) -> anyhow::Result<()> {
    let server = start(&[])?;
    let before = server.resident_bytes()?;
    let bound = CONNECTIONS_MAX.min(descriptors_max().saturating_sub(DESCRIPTORS_KEPT));
    let began = Instant::now();
    let mut holder = Holder::start("holds_connections_when_asked", server.public, bound, first)?;
    ensure!(holder.held == bound, "held only {} of {bound}", holder.held);
    let opened = began.elapsed();
    // One more from the same address is told at once that there is no room.
    let refused = ask(server.public, "GET", "/", &[], None)?;
    ensure!(refused.status == 503 && refused.header("retry-after")?.is_some(), "{refused:?}");
    for _ in 0..20 {
        answers_a_stranger(&server)?;
    }
    grown(&server, before)?;
    ensure!(began.elapsed() < time, "this machine is too slow for this test: opened after {opened:?}");
    let closed = holder.closed()?;
    ensure!(closed <= 20, "{closed} closed although only 20 strangers needed a place");

    eventually("all are closed", time + opened + SLACK, || Ok(holder.closed()? == bound))?;
    in_time("a held connection", began.elapsed(), time)?;
    ensure!(ask(server.public, "GET", "/", &[], None)?.status == 200, "there is room again");
    Ok(())
}

#[test]
fn silent_connections_up_to_the_bound() -> anyhow::Result<()> {
    hold_up_to_the_bound(First::Nothing, HEAD_TIME)
}

#[test]
fn idle_connections_up_to_the_bound() -> anyhow::Result<()> {
    hold_up_to_the_bound(First::Request, IDLE_TIME)
}

/// The other process of the two tests above; by itself it does nothing.
#[test]
fn holds_connections_when_asked() -> anyhow::Result<()> {
    serve_if_asked()
}
