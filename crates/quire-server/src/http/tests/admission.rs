//! The limiter's place in the order of C2, over stores that note every call, and what goes back to it.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use prometheus::Registry;
use quire_core::{
    admission::{AdmissionBudgets, Budget, Budgets, CreateBudgets},
    ports::GrantedBy,
    source::TrustedProxies,
    testing::{faults, world::World},
};
use quire_testkit::client::{Answer, Client, ask, request};
use tokio::{net::TcpListener, runtime::Runtime};

use super::wait_until;
use crate::{
    http::{Api, Bounds, Metrics, Settings, serve},
    limits::memory::MemoryLimits,
    system::SystemClock,
};

const TRUSTED: &str = "127.0.0.1";

struct Limited {
    _runtime: Runtime,
    address: SocketAddr,
    world: Arc<World>,
}

/// A server over a world whose clock stands still, so that no bucket refills.
fn limited(source: CreateBudgets, service: CreateBudgets) -> Limited {
    let runtime = Runtime::new().unwrap();
    let world = World::new();
    let one = Some(Budget::new(1, 3).unwrap());
    let budgets =
        Budgets { creates: AdmissionBudgets { source, service }, source_reads: one, source_deletes: one };
    let limits = Arc::new(MemoryLimits::new(budgets, GrantedBy::Service, world.clone()));
    let api = Api::new(Settings {
        service: Arc::new(world.service()),
        public_url: "https://paste.example".to_owned(),
        allow_origins: Vec::new(),
        cache_max_age: Duration::ZERO,
        bounds: Bounds::default(),
        limits: limits.clone(),
        source_limits: limits,
        trusted_proxies: TrustedProxies::parse([TRUSTED]).unwrap(),
        clock: Arc::new(SystemClock::new()),
        is_disk_low: Arc::new(|| false),
        metrics: Metrics::new(&Registry::new()).unwrap(),
    });
    let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
    let address = listener.local_addr().unwrap();
    runtime.spawn(serve(listener, api));
    Limited { _runtime: runtime, address, world }
}

const NO_LIMIT: CreateBudgets = CreateBudgets { creates: None, bytes: None };

fn creates(burst: u64) -> CreateBudgets {
    CreateBudgets { creates: Some(Budget::new(1, burst).unwrap()), bytes: None }
}

impl Limited {
    fn post(&self, source: &str, headers: &[(&str, &str)], body: &[u8]) -> Answer {
        let headers = [headers, &[("X-Forwarded-For", source)]].concat();
        ask(self.address, "POST", "/v1/pastes", &headers, Some(body)).unwrap()
    }
}

#[test]
fn a_refused_create_calls_no_store_and_mints_no_id() {
    let server = limited(creates(1), NO_LIMIT);
    assert_eq!(server.post("192.0.2.1", &[], b"x").status, 201);
    let calls = server.world.script.made().len();
    let refused = server.post("192.0.2.1", &[], b"x");
    assert_eq!((refused.status, refused.error().unwrap().as_str()), (429, "rate_limited"));
    assert_eq!(refused.json().unwrap()["limit"], "source_creates");
    assert_eq!(refused.header("retry-after").unwrap(), Some("1"));
    assert_eq!(server.world.script.made().len(), calls, "nothing was asked of anyone");
    assert_eq!(server.post("192.0.2.2", &[], b"x").status, 201, "nobody else is refused");
}

#[test]
fn the_limiter_comes_after_length_and_site_and_before_the_other_headers() {
    let server = limited(creates(1), NO_LIMIT);
    let cross_site = [("Sec-Fetch-Site", "cross-site")];
    assert_eq!(server.post("192.0.2.1", &cross_site, b"x").status, 403);
    let too_large = ask(
        server.address,
        "POST",
        "/v1/pastes",
        &[("X-Forwarded-For", "192.0.2.1"), ("Content-Length", "1000001"), ("Expect", "100-continue")],
        None,
    );
    assert_eq!(too_large.unwrap().status, 413);
    // None of these took anything; this one does, and keeps the source's token although it is refused.
    assert_eq!(server.post("192.0.2.1", &[("X-Paste-TTL", "2d")], b"x").status, 400);
    assert_eq!(server.post("192.0.2.1", &[("X-Paste-TTL", "2d")], b"x").status, 429);
    assert!(server.world.script.made().is_empty());
}

#[test]
fn who_waits_for_continue_is_refused_without_being_asked_for_the_body() {
    let server = limited(creates(1), NO_LIMIT);
    assert_eq!(server.post("192.0.2.1", &[], b"x").status, 201);
    let mut client = Client::connect(server.address).unwrap();
    let head = "POST /v1/pastes HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: 192.0.2.1\r\n\
                Content-Length: 1000\r\nExpect: 100-continue\r\n\r\n";
    client.send(head).unwrap();
    // An interim answer would come first.
    assert_eq!(client.answer().unwrap().status, 429);
}

#[test]
fn what_is_refused_after_the_limiter_gives_the_service_its_tokens_back() {
    let server = limited(NO_LIMIT, creates(2));
    let take_back = |what: &str, refuse: &dyn Fn() -> u16, status: u16| {
        for _ in 0..5 {
            // What went before may still be on its way back.
            wait_until(what, || match refuse() {
                429 => false,
                answered => {
                    assert_eq!(answered, status, "{what}");
                    true
                }
            });
        }
    };
    let post = |headers: &[(&str, &str)], body: &[u8]| server.post("192.0.2.1", headers, body).status;
    take_back("a bad lifetime", &|| post(&[("X-Paste-TTL", "2d")], b"x"), 400);
    take_back("an empty body", &|| post(&[], b""), 400);
    take_back("a body that is not UTF-8", &|| post(&[], b"\xFF"), 400);
    take_back(
        "a body store that is down",
        &|| {
            // The time and the id are asked for first; the script counts every call.
            for call in 0..4 {
                server.world.script.fail_at(call, faults::Fault::Refused);
            }
            post(&[], b"x")
        },
        500,
    );
    take_back(
        "a client that hangs up in its body",
        &|| {
            let mut client = Client::connect(server.address).unwrap();
            client.send("POST /v1/pastes HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nhalf").unwrap();
            client.finish_sending().unwrap();
            client.answer().unwrap().status
        },
        400,
    );
    wait_until("the last token is back", || post(&[], b"") == 400);
}

#[test]
fn what_was_stored_or_may_be_stays_taken() {
    let server = limited(NO_LIMIT, creates(3));
    assert_eq!(server.post("192.0.2.1", &[], b"x").status, 201);
    // mint, mint, body, row: the row store is down.
    server.world.script.fail_at(3, faults::Fault::Refused);
    assert_eq!(server.post("192.0.2.1", &[], b"x").status, 500);
    // The body's outcome is unknown.
    server.world.script.fail_at(2, faults::Fault::AnswerLost { done: true });
    assert_eq!(server.post("192.0.2.1", &[], b"x").status, 500);
    let refused = server.post("192.0.2.1", &[], b"x");
    assert_eq!(refused.json().unwrap()["limit"], "service_creates");
}

#[test]
fn reads_are_charged_to_their_source_before_any_look_up() {
    let server = limited(NO_LIMIT, NO_LIMIT);
    let read = |method: &str, source: &str| {
        ask(server.address, method, "/000000000000", &[("X-Forwarded-For", source)], None).unwrap()
    };
    // Absent pastes count, and so do questions for the headers alone.
    assert_eq!(read("GET", "192.0.2.1").status, 404);
    assert_eq!(read("HEAD", "192.0.2.1").status, 404);
    assert_eq!(read("GET", "192.0.2.1").status, 404);
    let calls = server.world.script.made().len();
    let refused = read("GET", "192.0.2.1");
    assert_eq!((refused.status, refused.json().unwrap()["limit"].as_str()), (429, Some("source_reads")));
    assert_eq!(server.world.script.made().len(), calls);
    assert_eq!(read("GET", "192.0.2.2").status, 404);
    assert_eq!(server.post("192.0.2.1", &[], b"x").status, 201, "creates have buckets of their own");
}

#[test]
fn deletes_are_charged_to_their_source() {
    let server = limited(NO_LIMIT, NO_LIMIT);
    let delete = || ask(server.address, "DELETE", "/v1/pastes/000000000000", &[], None).unwrap();
    assert!((0..3).all(|_| delete().status == 404));
    assert_eq!(delete().json().unwrap()["limit"], "source_deletes");
}

#[test]
fn only_a_trusted_peer_speaks_for_others() {
    let server = limited(creates(1), NO_LIMIT);
    let from = |peer: [u8; 4], forwarded: &str| {
        let mut client = Client::connect_from(peer.into(), server.address).unwrap();
        client
            .exchange(request("POST", "/v1/pastes", &[("X-Forwarded-For", forwarded)], Some(b"x")))
            .unwrap()
            .status
    };
    assert_eq!(from([127, 0, 0, 2], "192.0.2.1"), 201);
    assert_eq!(from([127, 0, 0, 2], "192.0.2.2"), 429, "another name does not help");
    assert_eq!(from([127, 0, 0, 3], "192.0.2.2"), 201);
    assert_eq!(from([127, 0, 0, 1], "192.0.2.1"), 201, "the strangers' claims cost nobody anything");
    assert_eq!(from([127, 0, 0, 1], "1.1.1.1, 192.0.2.1"), 429, "what stands left of the client is its own");
    assert_eq!(from([127, 0, 0, 1], "127.0.0.2"), 429, "and a client is one source by every way");
}
