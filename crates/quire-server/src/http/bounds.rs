//! What the public listener allows itself to be made to do (H2), as numbers.

use std::time::Duration;

/// Bounds on requests of one source (`--source-in-flight`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SourceInFlight {
    /// Requests at once, creates included.
    pub requests_max: usize,
    /// Creates at once.
    pub creates_max: usize,
}

/// Every bound of the listener. The defaults are the contract's; tests shorten the times.
#[derive(Clone, Debug)]
pub struct Bounds {
    /// Connections at once. The caller lowers it to what the open-file limit leaves.
    pub connections_max: usize,
    /// Requests at once, of everybody.
    pub requests_max: usize,
    /// Requests at once, of one source; `None` switches it off.
    pub source_in_flight: Option<SourceInFlight>,
    /// Bytes of bodies that creates at once may have declared.
    pub declared_bytes_max: usize,
    /// Bytes of large answers that may wait for slow readers at once. Small ones are bounded by their number.
    pub answer_bytes_max: usize,
    /// Refused bodies being read and thrown away at once (C3).
    pub discards_max: usize,
    /// Bytes thrown away of one refused body.
    pub discard_bytes_max: usize,
    /// Time for that.
    pub discard_time_max: Duration,
    /// Closed connections at once whose peer is given time to read the last answer.
    pub lingers_max: usize,
    /// That time.
    pub linger_time_max: Duration,
    /// From the first byte of a head, or from the connection's begin, to the head's end.
    pub head_time_max: Duration,
    /// Between an answer and the next head.
    pub idle_time_max: Duration,
    /// Without the peer taking a byte of an answer.
    pub write_stall_max: Duration,
    /// From the end of a head to the last byte of the answer: a backstop behind all the other times.
    pub busy_time_max: Duration,
    /// Until a body's first byte, and the grace on its rate from then on.
    pub body_grace: Duration,
    /// Bytes a second a body must come at.
    pub body_rate_bytes_per_second: u64,
    /// For a whole body.
    pub body_time_max: Duration,
    /// How long a read waits for the stores.
    pub read_wait_max: Duration,
    /// How long a create waits for the stores. The work goes on without it.
    pub create_wait_max: Duration,
    /// How long a delete waits for the stores. The work goes on without it.
    pub delete_wait_max: Duration,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            connections_max: 10_000,
            requests_max: 4_096,
            source_in_flight: Some(SourceInFlight { requests_max: 64, creates_max: 16 }),
            declared_bytes_max: 256_000_000,
            answer_bytes_max: 512_000_000,
            discards_max: 64,
            discard_bytes_max: 8_000_000,
            discard_time_max: Duration::from_secs(5),
            lingers_max: 256,
            linger_time_max: Duration::from_secs(2),
            head_time_max: Duration::from_secs(10),
            idle_time_max: Duration::from_secs(75),
            write_stall_max: Duration::from_secs(30),
            busy_time_max: Duration::from_mins(10),
            body_grace: Duration::from_secs(5),
            body_rate_bytes_per_second: 10_000,
            body_time_max: Duration::from_mins(1),
            read_wait_max: Duration::from_secs(2),
            create_wait_max: Duration::from_secs(30),
            delete_wait_max: Duration::from_secs(5),
        }
    }
}
