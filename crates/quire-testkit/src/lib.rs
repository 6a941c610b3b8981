//! What black-box tests need: the server as a process, and a client that shows exact bytes.
//!
//! | module | what lives there |
//! | --- | --- |
//! | [`server`] | starts the built binary on free ports, stops or kills it by its process id |
//! | [`client`] | HTTP/1.1 over a raw socket: what is sent is what the test wrote, what came is kept whole |
//! | [`redis`] | starts Redis or Valkey on a free port; freezes, kills, empties and restarts it |
//! | [`slow`] | a network that is slow |
//! | [`hold`] | a second process that holds many connections open |
//!
//! Nothing here knows quire's code: a test sees what any client sees. Whatever is waited for is waited for
//! with a bound, and a missed bound is an error that says what was awaited.

pub mod client;
pub mod hold;
pub mod redis;
pub mod server;
pub mod slow;

use std::{
    thread,
    time::{Duration, Instant},
};

/// Lets time pass, for tests whose subject is time itself. Everything else waits for an event.
pub fn pass(time: Duration) {
    let until = Instant::now() + time;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return;
        }
        thread::park_timeout(left);
    }
}

/// Asks again and again until the answer is yes.
///
/// # Errors
/// If it is not within `time_max`.
pub fn eventually(
    what: &str,
    time_max: Duration,
    mut is_so: impl FnMut() -> anyhow::Result<bool>,
) -> anyhow::Result<()> {
    let until = Instant::now() + time_max;
    loop {
        if is_so()? {
            return Ok(());
        }
        anyhow::ensure!(Instant::now() < until, "not within {time_max:?}: {what}");
        pass(Duration::from_millis(10));
    }
}
