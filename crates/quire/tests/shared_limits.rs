//! Four apps that share their limits in a real Redis: together they admit what one would, and what they admit
//! when it is killed, frozen, flushed and restarted stays within the documented bounds, without a restart.

#![expect(clippy::expect_used, reason = "a test fails by panicking")]

use std::{
    net::SocketAddr,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    thread,
    time::{Duration, Instant},
};

use quire_testkit::{
    client::{Client, ask, create, request},
    eventually, pass,
    redis::{Program, Store},
    server::Server,
    slow::SlowProxy,
};

const QUIRE: &str = env!("CARGO_BIN_EXE_quire");
const APPS: usize = 4;
const WAIT_MAX: Duration = Duration::from_secs(30);
/// Small enough to be used up at once, large enough to be measured.
const SERVICE_BURST: f64 = 20.0;
/// Four budgets of a call, each way.
const DELAY: Duration = Duration::from_millis(20);
/// Between two creates of an app: many times as often as is admitted, and no more than the machine can bear.
const CREATE_EVERY: Duration = Duration::from_millis(2);
/// A second.
const SERVICE_RATE: f64 = 40.0;

/// Four apps behind a proxy at 127.0.0.1, with the given budgets and no others.
fn fleet(url: &str, limits: &[&str]) -> anyhow::Result<Vec<Server>> {
    let mut flags = vec!["--limits", url, "--fleet-size", "4", "--trusted-proxy", "127.0.0.1"];
    for flag in
        ["--source-creates", "--source-bytes", "--service-creates", "--service-bytes", "--source-reads"]
    {
        if !limits.contains(&flag) {
            flags.extend([flag, "off"]);
        }
    }
    flags.extend(["--source-in-flight", "off"]);
    flags.extend(limits);
    (0..APPS).map(|_| Server::start(QUIRE, &flags)).collect()
}

/// A create that says whether it was admitted; anything but 201 and 429 is an error.
fn post(client: &mut Client, source: &str) -> anyhow::Result<bool> {
    let answer =
        client.exchange(request("POST", "/v1/pastes", &[("X-Forwarded-For", source)], Some(b"x")))?;
    match answer.status {
        201 => Ok(true),
        429 => Ok(false),
        other => anyhow::bail!("answered {other}: {}", answer.text()?),
    }
}

/// How many creates all apps admit together to a demand that never ends, each create of the source that
/// `source` names.
fn admitted(
    apps: &[Server],
    time: Duration,
    source: impl Fn(usize, u64) -> String + Sync,
) -> anyhow::Result<(u32, Duration)> {
    let began = Instant::now();
    let one = |app: usize, address: SocketAddr| -> anyhow::Result<u32> {
        let mut client = Client::connect(address)?;
        let mut count = 0;
        for number in 0.. {
            if began.elapsed() >= time {
                break;
            }
            count += u32::from(post(&mut client, &source(app, number))?);
            pass(CREATE_EVERY);
        }
        Ok(count)
    };
    let total = thread::scope(|scope| {
        let one = &one;
        let threads: Vec<_> = apps
            .iter()
            .enumerate()
            .map(|(app, server)| scope.spawn(move || one(app, server.public)))
            .collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).sum::<anyhow::Result<u32>>()
    })?;
    Ok((total, began.elapsed()))
}

/// A source of its own for every create.
fn anyone(app: usize, number: u64) -> String {
    format!("10.{app}.{}.{}", number / 250 % 250, number % 250)
}

/// The sum of a counter over all apps.
fn sum(apps: &[Server], series: &str) -> anyhow::Result<u64> {
    let mut total = 0;
    for app in apps {
        let all = ask(app.admin, "GET", "/metrics", &[], None)?;
        let value = all.text()?.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
        total += value.ok_or_else(|| anyhow::anyhow!("no {series}"))?.parse::<u64>()?;
    }
    Ok(total)
}

/// Creates until every app asks the shared state again.
fn healed(apps: &[Server]) -> anyhow::Result<()> {
    eventually("every app asks the shared state again", WAIT_MAX, || {
        for app in apps {
            post(&mut Client::connect(app.public)?, "10.9.9.9")?;
        }
        Ok(sum(apps, "quire_limiter_breaker_open")? == 0)
    })
}

#[test]
fn four_apps_admit_together_what_one_would() -> anyhow::Result<()> {
    for program in [Program::Redis, Program::Valkey] {
        if program == Program::Valkey && program.find().is_err() {
            println!("SKIPPED: there is no Valkey for this machine");
            continue;
        }
        let store = Store::start(program)?;
        let apps = fleet(&store.url(), &["--service-creates", "40,20"])?;
        let before = sum(&apps, "quire_limiter_local_decisions_total")?;
        let (count, took) = admitted(&apps, Duration::from_secs(4), anyone)?;
        let local = sum(&apps, "quire_limiter_local_decisions_total")? - before;
        let most = SERVICE_BURST + SERVICE_RATE * took.as_secs_f64();
        // A call that came too late on a busy machine was decided by a local share, within its own bound.
        let most = most + if local > 0 { 1.25 * most } else { 0.0 };
        // Not all of it, since a demand on a busy machine pauses and what refills then may not fit in.
        let least = SERVICE_BURST + SERVICE_RATE;
        println!(
            "{program:?}: {count} admitted by {APPS} apps in {took:?}, at most {most:.0}; {local} decided locally"
        );
        anyhow::ensure!(f64::from(count) <= most && f64::from(count) >= least, "{count} of {least}..{most}");

        let one_source = fleet(&store.url(), &["--source-creates", "5,10"])?;
        let before = sum(&one_source, "quire_limiter_local_decisions_total")?;
        let (count, took) = admitted(&one_source, Duration::from_secs(3), |_, _| "192.0.2.77".to_owned())?;
        let local = sum(&one_source, "quire_limiter_local_decisions_total")? - before;
        let budget = 10.0 + 5.0 * took.as_secs_f64();
        let most = if local > 0 { 5.0 * budget } else { budget };
        anyhow::ensure!(f64::from(count) <= most && count >= 10, "one source: {count} of {most}");
    }
    Ok(())
}

/// The store and the way to it, in the middle of traffic.
struct Outside {
    store: Store,
    proxy: SlowProxy,
}

/// What happens to it.
type Change = fn(&mut Outside) -> anyhow::Result<()>;

/// What the apps did in a window of traffic in which something happened.
struct Seen {
    admitted: u32,
    took: Duration,
    reads: u64,
    slowest_read: Duration,
    failed_calls: u64,
}

/// Calls of the limiter's store that were waited for in vain.
fn failed_calls(apps: &[Server]) -> anyhow::Result<u64> {
    let of = |outcome: &str| sum(apps, &format!("quire_limiter_calls_total{{outcome=\"{outcome}\"}}"));
    Ok(of("unavailable")? + of("unknown_outcome")?)
}

/// Four seconds of creates at every app and of reads at one; in the middle two something is broken.
fn through(
    outside: &mut Outside,
    apps: &[Server],
    hot: &str,
    break_it: Change,
    mend_it: Change,
) -> anyhow::Result<Seen> {
    let (stop, reads, slowest_us) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
    let before = failed_calls(apps)?;
    let address = apps.first().expect("an app").public;
    let (admitted, took) = thread::scope(|scope| -> anyhow::Result<_> {
        // Reads go on all the while, and none fails.
        let reader = scope.spawn(|| -> anyhow::Result<()> {
            let mut client = Client::connect(address)?;
            while !stop.load(Ordering::SeqCst) {
                let began = Instant::now();
                let status = client.exchange(request("GET", &format!("/{hot}"), &[], None))?.status;
                anyhow::ensure!(status == 200, "a read was answered {status}");
                slowest_us.fetch_max(u64::try_from(began.elapsed().as_micros())?, Ordering::SeqCst);
                reads.fetch_add(1, Ordering::SeqCst);
                pass(Duration::from_millis(5));
            }
            Ok(())
        });
        let demand = scope.spawn(|| admitted(apps, Duration::from_secs(4), anyone));
        pass(Duration::from_secs(1));
        break_it(outside)?;
        pass(Duration::from_secs(2));
        mend_it(outside)?;
        let counted = demand.join().expect("no panic");
        stop.store(true, Ordering::SeqCst);
        reader.join().expect("no panic")?;
        counted
    })?;
    Ok(Seen {
        admitted,
        took,
        reads: reads.into_inner(),
        slowest_read: Duration::from_micros(slowest_us.into_inner()),
        failed_calls: failed_calls(apps)? - before,
    })
}

/// All apps together admit what one would, without a restart. A window in which a call came too late on a busy
/// machine was decided in part by local shares and proves nothing, so there are several tries; `false` if all were such.
fn is_exact_again(name: &str, apps: &[Server]) -> anyhow::Result<bool> {
    for _ in 0..5 {
        healed(apps)?;
        pass(Duration::from_secs(1));
        let before = sum(apps, "quire_limiter_local_decisions_total")?;
        let (count, took) = admitted(apps, Duration::from_secs(1), anyone)?;
        if sum(apps, "quire_limiter_local_decisions_total")? == before {
            let most = SERVICE_BURST + SERVICE_RATE * took.as_secs_f64();
            anyhow::ensure!(f64::from(count) <= most, "{name}, healed: {count} admitted, at most {most}");
            return Ok(true);
        }
    }
    Ok(false)
}

#[test]
fn whatever_happens_to_redis_the_bounds_hold_and_it_heals() -> anyhow::Result<()> {
    let changes: [(&str, Change, Change); 4] = [
        ("killed", |outside| outside.store.kill(), |outside| outside.store.start_again()),
        ("frozen", |outside| outside.store.freeze(), |outside| outside.store.thaw()),
        ("slow", |outside| outside.proxy.delay(DELAY), |outside| outside.proxy.delay(Duration::ZERO)),
        ("flushed", |outside| outside.store.flush(), |_| Ok(())),
    ];
    let store = Store::start(Program::Redis)?;
    let proxy = SlowProxy::start(store.address())?;
    let apps = fleet(&format!("redis://{}", proxy.address()), &["--service-creates", "40,20"])?;
    let hot = create(apps.first().expect("an app").public, "hot", &[("X-Forwarded-For", "10.8.8.8")])?;
    let mut outside = Outside { store, proxy };
    for (name, break_it, mend_it) in changes {
        let seen = through(&mut outside, &apps, &hot.id, break_it, mend_it)?;
        let Seen { admitted, took, reads, slowest_read, failed_calls } = seen;
        let seconds = took.as_secs_f64();
        // The shared caps and one more burst for a store that forgot, and 1.25 times the caps by local shares.
        let once = SERVICE_BURST + SERVICE_RATE * seconds;
        let most = once + SERVICE_BURST + 1.25 * once;
        // Each app: three failures open its breaker, then one probe in 100 ms; twice, if it opens anew.
        let waits_max = f64::from(u32::try_from(APPS)?) * 2.0 * (3.0 + 10.0 * seconds);
        println!(
            "{name}: {admitted} admitted in {took:?}, at most {most:.0}; {failed_calls} creates waited for the store in \
             vain, at most {waits_max:.0}; {reads} reads, the slowest {slowest_read:?}"
        );
        anyhow::ensure!(f64::from(admitted) <= most, "{name}: {admitted} admitted, at most {most}");
        anyhow::ensure!(f64::from(admitted) >= SERVICE_RATE, "{name}: creates went on: {admitted}");
        anyhow::ensure!(f64::from(u32::try_from(failed_calls)?) <= waits_max, "{name}: {failed_calls} waits");
        anyhow::ensure!(reads > 10, "{name}: only {reads} reads");
        if !is_exact_again(name, &apps)? {
            println!("{name}, healed: SKIPPED exactness: in every try a call came too late on this machine");
        }
    }
    Ok(())
}

#[test]
fn a_source_gets_at_most_a_budget_an_app_when_redis_is_gone() -> anyhow::Result<()> {
    let mut store = Store::start(Program::Redis)?;
    let apps = fleet(&store.url(), &["--source-creates", "1,5"])?;
    store.kill()?;
    let (count, took) = admitted(&apps, Duration::from_secs(3), |_, _| "192.0.2.5".to_owned())?;
    let most = 4.0 * (5.0 + took.as_secs_f64());
    println!("one source without Redis: {count} admitted by {APPS} apps in {took:?}, at most {most:.0}");
    anyhow::ensure!(f64::from(count) <= most, "{count} of at most {most}");
    anyhow::ensure!(count >= 4 * 5, "fails open: {count}");
    Ok(())
}

#[test]
fn a_server_starts_without_its_redis_and_says_nothing_of_its_password() -> anyhow::Result<()> {
    let flags = ["--limits", "redis://user:hunter2@127.0.0.1:1", "--fleet-size", "4"];
    let server = Server::start(QUIRE, &flags)?;
    eventually("the outage is noticed and said", WAIT_MAX, || {
        create(server.public, "x", &[])?;
        Ok(server.log().contains("the limiter's store fails"))
    })?;
    anyhow::ensure!(!server.log().contains("hunter2"));
    Ok(())
}
