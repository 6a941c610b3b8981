//! The limits from outside: exact in counts and in bytes, true about the wait, deaf to what clients claim.

#![expect(clippy::expect_used, reason = "a test fails by panicking")]

use std::{
    net::SocketAddr,
    thread,
    time::{Duration, Instant},
};

use quire_testkit::{
    client::{Client, ask, create, request},
    eventually, pass,
    server::{NO_LIMITS, Server},
};

const BINARY: &str = env!("CARGO_BIN_EXE_quire");
/// Long enough for refills to count, short enough for the suite.
const TIME: Duration = Duration::from_secs(4);
const THREADS: usize = 4;

/// A server with every limit off but those given, behind a proxy at 127.0.0.1.
fn start(limits: &[&str]) -> anyhow::Result<Server> {
    // A flag may be given once, so what is given takes the place of what is off.
    let (off, _) = NO_LIMITS.as_chunks::<2>();
    let mut flags: Vec<&str> =
        off.iter().filter(|[flag, _]| !limits.contains(flag)).flatten().copied().collect();
    flags.extend(limits);
    flags.extend(["--trusted-proxy", "127.0.0.1"]);
    Server::start(BINARY, &flags)
}

/// A pause in the demand from which on it is not steady: a bucket may have been full in it.
const PAUSE: Duration = Duration::from_millis(50);

/// What was admitted of a demand, for how long it was made, and for how much of that without a pause.
struct Demand {
    admitted: u64,
    refused: u64,
    took: Duration,
    steady: Duration,
}

impl Demand {
    /// Asks as fast as it can from several threads, for [`TIME`].
    fn make(
        address: SocketAddr,
        admitted: u16,
        ask: impl Fn(usize, u64) -> Vec<u8> + Sync,
    ) -> anyhow::Result<Self> {
        let began = Instant::now();
        let one = |thread: usize| -> anyhow::Result<(u64, u64, Vec<Duration>)> {
            let mut client = Client::connect(address)?;
            let (mut yes, mut no, mut asked_at) = (0, 0, Vec::new());
            for number in 0.. {
                if began.elapsed() >= TIME {
                    break;
                }
                asked_at.push(began.elapsed());
                let answer = client.exchange(ask(thread, number))?;
                match answer.status {
                    status if status == admitted => yes += 1,
                    429 => no += 1,
                    other => anyhow::bail!("answered {other}"),
                }
            }
            Ok((yes, no, asked_at))
        };
        let counts = thread::scope(|scope| {
            let threads: Vec<_> = (0..THREADS).map(|thread| scope.spawn(move || one(thread))).collect();
            threads
                .into_iter()
                .map(|thread| thread.join().expect("no panic"))
                .collect::<anyhow::Result<Vec<_>>>()
        })?;
        let mut demand = Self { admitted: 0, refused: 0, took: began.elapsed(), steady: Duration::ZERO };
        let mut asked_at = Vec::new();
        for (yes, no, times) in counts {
            demand.admitted += yes;
            demand.refused += no;
            asked_at.extend(times);
        }
        asked_at.sort();
        let pauses =
            asked_at.iter().zip(asked_at.iter().skip(1)).map(|(one, next)| next.saturating_sub(*one));
        demand.steady = pauses.filter(|pause| *pause < PAUSE).sum();
        Ok(demand)
    }

    /// At most burst + rate * t, and that much but for one request.
    fn is_exact(&self, rate: f64, burst: f64, cost: f64) -> anyhow::Result<()> {
        let admitted = f64::from(u32::try_from(self.admitted)?) * cost;
        let most = burst + rate * self.took.as_secs_f64();
        // What refilled while nobody asked, on a machine that had other things to do, may not have fitted in.
        let least = burst + rate * self.steady.as_secs_f64() - cost;
        anyhow::ensure!(self.refused > 0, "the demand was never refused");
        anyhow::ensure!(admitted <= most, "admitted {admitted}, at most {most}");
        anyhow::ensure!(admitted >= least, "admitted {admitted}, at least {least}");
        Ok(())
    }
}

fn post(source: &str, body: &[u8]) -> Vec<u8> {
    request("POST", "/v1/pastes", &[("X-Forwarded-For", source)], Some(body))
}

#[test]
fn each_bucket_admits_exactly_its_burst_and_its_rate() -> anyhow::Result<()> {
    let by_one = |_: usize, _: u64| post("192.0.2.1", b"x");
    let by_many =
        |thread: usize, number: u64| post(&format!("10.{thread}.{}.{}", number / 250, number % 250), b"x");
    let large = vec![b'x'; 100_000];
    let large_by_one = |_: usize, _: u64| post("192.0.2.1", &large);
    let large_by_many =
        |thread: usize, number: u64| post(&format!("10.{thread}.{}.{}", number / 250, number % 250), &large);
    let read = |_: usize, _: u64| request("GET", "/000000000000", &[], None);
    let delete = |_: usize, _: u64| request("DELETE", "/v1/pastes/000000000000", &[], None);
    thread::scope(|scope| {
        let mut cases = Vec::new();
        cases.push(scope.spawn(|| {
            let server = start(&["--source-creates", "3,10"])?;
            Demand::make(server.public, 201, by_one)?.is_exact(3.0, 10.0, 1.0)
        }));
        cases.push(scope.spawn(|| {
            let server = start(&["--source-bytes", "500KB,1MB"])?;
            Demand::make(server.public, 201, large_by_one)?.is_exact(500_000.0, 1_000_000.0, 100_000.0)
        }));
        cases.push(scope.spawn(|| {
            let server = start(&["--service-creates", "20,30"])?;
            Demand::make(server.public, 201, by_many)?.is_exact(20.0, 30.0, 1.0)
        }));
        cases.push(scope.spawn(|| {
            let server = start(&["--service-bytes", "500KB,1MB"])?;
            Demand::make(server.public, 201, large_by_many)?.is_exact(500_000.0, 1_000_000.0, 100_000.0)
        }));
        cases.push(scope.spawn(|| {
            let server = start(&["--source-reads", "50,100"])?;
            Demand::make(server.public, 404, read)?.is_exact(50.0, 100.0, 1.0)
        }));
        cases.push(scope.spawn(|| {
            let server = start(&["--source-deletes", "5,20"])?;
            Demand::make(server.public, 404, delete)?.is_exact(5.0, 20.0, 1.0)
        }));
        cases.into_iter().try_for_each(|case| case.join().expect("no panic"))
    })
}

#[test]
fn the_wait_that_is_named_is_true() -> anyhow::Result<()> {
    let server = start(&["--source-bytes", "400KB,1MB", "--source-creates", "1,2"])?;
    create(server.public, vec![b'x'; 1_000_000], &[])?;
    let refused = ask(server.public, "POST", "/v1/pastes", &[], Some(&vec![b'x'; 1_000_000]))?;
    anyhow::ensure!(refused.status == 429 && refused.error()? == "rate_limited");
    anyhow::ensure!(refused.json()?["limit"] == "source_bytes", "the longest wait: {}", refused.text()?);
    let wait: u64 = refused.header("retry-after")?.expect("a wait").parse()?;
    anyhow::ensure!((2..=3).contains(&wait), "1 MB at 400 KB/s, rounded up: {wait}");
    pass(Duration::from_secs(wait));
    create(server.public, vec![b'x'; 1_000_000], &[])?;
    Ok(())
}

#[test]
fn claims_of_a_client_change_nothing() -> anyhow::Result<()> {
    let server = start(&["--source-creates", "1,1"])?;
    let claims: [&[(&str, &str)]; 7] = [
        &[],
        &[("X-Forwarded-For", "198.51.100.1")],
        &[("X-Forwarded-For", "198.51.100.2"), ("X-Forwarded-For", "198.51.100.3")],
        &[("X-Real-IP", "198.51.100.4")],
        &[("Forwarded", "for=198.51.100.5")],
        &[("X-Forwarded-For", "127.0.0.1"), ("X-Forwarded-Host", "a"), ("X-Forwarded-Proto", "https")],
        &[("True-Client-IP", "198.51.100.6"), ("CF-Connecting-IP", "198.51.100.7")],
    ];
    let mut statuses = Vec::new();
    for headers in claims {
        let mut client = Client::connect_from("127.0.0.9".parse()?, server.public)?;
        statuses.push(client.exchange(request("POST", "/v1/pastes", headers, Some(b"x")))?.status);
    }
    // Three seconds have not passed, so more than the first and one refill would be somebody else's budget.
    anyhow::ensure!(statuses.iter().filter(|status| **status == 201).count() <= 2, "{statuses:?}");
    let warnings = server.log().matches("--trusted-proxy").count();
    anyhow::ensure!(warnings == 1, "warned once: {}", server.log());
    anyhow::ensure!(!server.log().contains("198.51") && !server.log().contains("127.0.0.9"));
    Ok(())
}

#[test]
fn sources_that_declare_and_send_nothing_hold_the_services_bytes_for_seconds_only() -> anyhow::Result<()> {
    const SILENT: u8 = 100;
    let server = start(&["--service-bytes", "1KB,20MB", "--source-in-flight", "64,16"])?;
    let mut silent = Vec::new();
    for number in 0..SILENT {
        let mut client = Client::connect(server.public)?;
        client.send(format!(
            "POST /v1/pastes HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: 192.0.2.{number}\r\nContent-Length: 1000000\r\n\r\n"
        ))?;
        silent.push(client);
    }
    let honest = || {
        ask(server.public, "POST", "/v1/pastes", &[], Some(&vec![b'x'; 900_000])).map(|answer| answer.status)
    };
    eventually("the bytes are taken", Duration::from_secs(5), || Ok(honest()? == 429))?;
    // Twenty of the hundred were admitted; they fail for want of a first byte and their bytes come back,
    // which the rate of 1 KB/s could not have brought.
    eventually("the bytes are back", Duration::from_secs(20), || Ok(honest()? == 201))
}
