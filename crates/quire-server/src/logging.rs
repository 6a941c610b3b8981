//! Where log lines go and what they look like.
//!
//! Lines go to standard error through a thread of their own, so that a slow terminal or pipe never holds a
//! request; when that thread cannot keep up, lines are dropped. What may stand in a line is everybody's
//! duty: no address, no id, no token, no body (contract P3).

use std::io;

use tracing::level_filters::LevelFilter;
use tracing_appender::non_blocking::WorkerGuard;
use tracing_subscriber::{
    Layer as _, filter::Targets, layer::SubscriberExt as _, util::SubscriberInitExt as _,
};

use crate::config::LogFormat;

/// Starts logging for the whole process. Dropping the guard writes what is still buffered.
///
/// # Errors
/// Logging was started already.
pub fn start(format: LogFormat, level: tracing::Level) -> Result<WorkerGuard, io::Error> {
    let (writer, guard) = tracing_appender::non_blocking(io::stderr());
    // Libraries are heard from when something is wrong; what they say in detail could name a client.
    let filter = Targets::new()
        .with_default(LevelFilter::from_level(level).min(LevelFilter::WARN))
        .with_target("quire", level)
        .with_target("quire_core", level)
        .with_target("quire_server", level);
    let lines = tracing_subscriber::fmt::layer().with_writer(writer).with_target(false);
    let lines = match format {
        LogFormat::Text => lines.with_ansi(false).boxed(),
        LogFormat::Json => lines.json().flatten_event(true).boxed(),
    };
    tracing_subscriber::registry().with(lines.with_filter(filter)).try_init().map_err(io::Error::other)?;
    Ok(guard)
}
