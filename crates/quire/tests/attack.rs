//! The attack that fills other pastebins: 2,000 sources, each under its own budget, post the largest bodies as
//! fast as they can. The service's byte budget bounds what is stored, readers are served, memory is bounded.
//!
//! `QUIRE_ATTACK_SECONDS` sets how long; 10 s here, 30 s with `scripts/attack`.

use std::{
    env,
    net::SocketAddr,
    sync::atomic::{AtomicU64, Ordering},
    thread,
    time::{Duration, Instant},
};

use quire_testkit::{
    client::{Client, create, request},
    pass,
    server::Server,
};

const SOURCES: u64 = 2_000;
const ATTACKERS: u64 = 32;
const BODY_BYTES: usize = 1_000_000;
/// The default budget of the service: 10 MB/s with a burst of 20 MB.
const BURST_BYTES: u64 = 20_000_000;
const RATE_BYTES_PER_S: u64 = 10_000_000;
const MEMORY_GROWTH_MAX: u64 = 400_000_000;
/// Between two reads of the hot paste: 20 a second, well under the ceiling of one source.
const READ_EVERY: Duration = Duration::from_millis(50);

fn attack(address: SocketAddr, attacker: u64, until: Instant, stored: &AtomicU64) -> anyhow::Result<u64> {
    let body = vec![b'x'; BODY_BYTES];
    let mut client = Client::connect(address)?;
    let mut asked = 0;
    while Instant::now() < until {
        let source = (attacker + asked * ATTACKERS) % SOURCES;
        let forwarded = format!("10.0.{}.{}", source / 250, source % 250);
        let asked_for = request("POST", "/v1/pastes", &[("X-Forwarded-For", &forwarded)], Some(&body));
        asked += 1;
        let Ok(answer) = client.exchange(asked_for) else {
            // Cut off in the middle of a body that nobody wanted; it comes back at once.
            client = Client::connect(address)?;
            continue;
        };
        if answer.header("connection")?.is_some_and(|value| value == "close") {
            client = Client::connect(address)?;
        }
        if answer.status == 201 {
            stored.fetch_add(u64::try_from(BODY_BYTES)?, Ordering::Relaxed);
        }
    }
    Ok(asked)
}

/// Reads the paste until told to stop; how long each read took. Every one must succeed.
fn read(address: SocketAddr, id: &str, until: Instant) -> anyhow::Result<Vec<Duration>> {
    let mut client = Client::connect(address)?;
    let mut took = Vec::new();
    while Instant::now() < until {
        let began = Instant::now();
        let answer = client.exchange(request("GET", &format!("/{id}"), &[], None))?;
        took.push(began.elapsed());
        anyhow::ensure!(
            answer.status == 200 && answer.body == b"hot",
            "a read was answered {}",
            answer.status
        );
        pass(READ_EVERY);
    }
    took.sort();
    Ok(took)
}

fn p99(sorted: &[Duration]) -> Duration {
    sorted.get(sorted.len() * 99 / 100).copied().unwrap_or_default()
}

#[test]
fn a_flood_from_many_sources_stores_no_more_than_the_services_budget() -> anyhow::Result<()> {
    let time =
        Duration::from_secs(env::var("QUIRE_ATTACK_SECONDS").ok().map_or(Ok(10), |text| text.parse())?);
    // The attackers' addresses come from a trusted header; the readers connect from one that is not trusted.
    let server = Server::start(env!("CARGO_BIN_EXE_quire"), &["--trusted-proxy", "127.0.0.1"])?;
    let hot = create(server.public, "hot", &[])?.id;
    let quiet = read(server.public, &hot, Instant::now() + Duration::from_secs(3))?;
    let before = server.resident_bytes()?;

    let stored = AtomicU64::new(0);
    let began = Instant::now();
    let until = began + time;
    let (asked, loud, grown) = thread::scope(|scope| -> anyhow::Result<_> {
        let attackers: Vec<_> = (0..ATTACKERS)
            .map(|attacker| {
                scope.spawn({
                    let stored = &stored;
                    move || attack(server.public, attacker, until, stored)
                })
            })
            .collect();
        let reader = scope.spawn(|| read(server.public, &hot, until));
        let mut peak = before;
        while Instant::now() < until {
            peak = peak.max(server.resident_bytes()?);
            pass(Duration::from_millis(200));
        }
        let asked: u64 = attackers
            .into_iter()
            .map(|attacker| attacker.join().expect("no panic"))
            .sum::<anyhow::Result<u64>>()?;
        Ok((asked, reader.join().expect("no panic")?, peak.saturating_sub(before)))
    })?;
    let took = began.elapsed();
    let stored = stored.into_inner();
    let bound = BURST_BYTES + RATE_BYTES_PER_S * u64::try_from(took.as_millis())? / 1_000;
    println!(
        "{SOURCES} sources asked {asked} times in {took:?}: {stored} bytes stored, bound {bound}; {} reads, all \
         answered, p99 {:?} (quiet {:?}); memory grew by {grown} bytes",
        loud.len(),
        p99(&loud),
        p99(&quiet)
    );
    anyhow::ensure!(stored <= bound, "{stored} bytes stored, {bound} is the bound");
    // And the attack was one: the budget was used up, and far more was asked for.
    anyhow::ensure!(
        stored + 2 * RATE_BYTES_PER_S >= bound,
        "{stored} of {bound}: the budget was not used up"
    );
    anyhow::ensure!(asked * u64::try_from(BODY_BYTES)? > 2 * bound, "only {asked} creates were asked for");
    anyhow::ensure!(grown < MEMORY_GROWTH_MAX, "memory grew by {grown} bytes");
    Ok(())
}
