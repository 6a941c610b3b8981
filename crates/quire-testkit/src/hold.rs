//! A second process that holds many connections open.
//!
//! One process may not have enough file descriptors for both ends of thousands of connections. So a test
//! binary runs itself again: a test that calls [`serve_if_asked`] does nothing in an ordinary run, and holds
//! connections when [`Holder::start`] has started it.

use std::{
    env,
    io::{BufRead as _, BufReader, Write as _},
    net::SocketAddr,
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
};

use anyhow::{Context as _, ensure};
use rustix::process::{Resource, getrlimit};

use crate::client::{Client, request};

const ASKED: &str = "QUIRE_TESTKIT_HOLD";
/// Marks the lines that matter among what the test harness prints.
const MARK: &str = "holder:";
/// File descriptors a process needs for itself.
const DESCRIPTORS_KEPT: u64 = 64;

/// What is sent on each connection before it is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum First {
    /// Nothing at all.
    Nothing,
    /// One request, whose answer is read.
    Request,
}

/// The other process; it ends, and its connections with it, when dropped.
#[derive(Debug)]
pub struct Holder {
    child: Child,
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
    /// How many connections it holds.
    pub held: u64,
}

/// How many file descriptors a process may have here.
#[must_use]
pub fn descriptors_max() -> u64 {
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

impl Holder {
    /// Runs this test binary again, in the test named `test`, to open `count` connections.
    ///
    /// # Errors
    /// If they cannot be opened.
    pub fn start(test: &str, address: SocketAddr, count: u64, first: First) -> anyhow::Result<Self> {
        let first = if first == First::Nothing { "nothing" } else { "request" };
        let mut child = Command::new(env::current_exe()?)
            .args(["--exact", test, "--nocapture", "--include-ignored"])
            .env(ASKED, format!("{address} {count} {first}"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("start the holder")?;
        let orders = child.stdin.take().context("no standard input")?;
        let answers = BufReader::new(child.stdout.take().context("no standard output")?);
        let mut holder = Self { child, orders, answers, held: 0 };
        holder.held = holder.answer()?;
        Ok(holder)
    }

    /// How many of them the server has closed by now.
    ///
    /// # Errors
    /// If the other process is gone.
    pub fn closed(&mut self) -> anyhow::Result<u64> {
        self.orders.write_all(b"closed\n")?;
        self.answer()
    }

    fn answer(&mut self) -> anyhow::Result<u64> {
        let mut line = String::new();
        loop {
            line.clear();
            ensure!(self.answers.read_line(&mut line)? > 0, "the holder is gone");
            // The harness may have begun the line with the test's name.
            if let Some((_, number)) = line.split_once(MARK) {
                return number.trim().parse().context("the holder's answer");
            }
        }
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        // It may be gone already; then there is nothing to end.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Holds connections if this process was started by [`Holder::start`]; else does nothing.
///
/// # Errors
/// If the connections cannot be opened.
pub fn serve_if_asked() -> anyhow::Result<()> {
    let Ok(asked) = env::var(ASKED) else { return Ok(()) };
    let mut words = asked.split(' ');
    let address: SocketAddr = words.next().context("no address")?.parse()?;
    let wanted: u64 = words.next().context("no count")?.parse()?;
    let sends = words.next() == Some("request");
    let mut held = Vec::new();
    for _ in 0..wanted.min(descriptors_max().saturating_sub(DESCRIPTORS_KEPT)) {
        let mut client = Client::connect(address)?;
        if sends {
            client.exchange(request("GET", "/nothing-here", &[], None))?;
        }
        client.socket().set_nonblocking(true)?;
        held.push(client);
    }
    say(held.len())?;
    for order in std::io::stdin().lines() {
        order?;
        // A closed connection reads as its end or as a reset; an open one has nothing to read.
        let closed = held.iter().filter(|client| {
            let peeked = client.socket().peek(&mut [0]);
            !matches!(peeked, Err(error) if error.kind() == std::io::ErrorKind::WouldBlock)
        });
        say(closed.count())?;
    }
    Ok(())
}

fn say(number: usize) -> anyhow::Result<()> {
    let mut out = std::io::stdout();
    writeln!(out, "\n{MARK}{number}")?;
    out.flush().context("say")
}
