//! The machine's clocks and its random generator: the only place that asks the operating system for
//! either (see `clippy.toml`).

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use quire_core::{
    ports::{Clock, Entropy, Fault, PortError},
    time::Timestamp,
};

/// The machine's clocks.
#[derive(Debug)]
pub struct SystemClock {
    started: Instant,
}

impl SystemClock {
    /// Clocks whose monotonic time counts from now.
    #[must_use]
    pub fn new() -> Self {
        Self { started: Instant::now() }
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "this is the one place that reads the wall clock")]
    fn wall(&self) -> Timestamp {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Timestamp::from_unix_ms(0).plus(since_epoch)
    }

    fn monotonic(&self) -> Duration {
        self.started.elapsed()
    }
}

/// The operating system's random generator.
#[derive(Debug, Default)]
pub struct SystemEntropy;

impl Entropy for SystemEntropy {
    #[expect(clippy::disallowed_methods, reason = "this is the one place that asks for randomness")]
    fn fill(&self, buffer: &mut [u8]) -> Result<(), PortError> {
        getrandom::fill(buffer).map_err(|error| PortError::because(Fault::Unavailable, error))
    }
}
