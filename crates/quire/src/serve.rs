//! `quire serve`: checks the settings, then hands over to the server.

use std::process::ExitCode;

use anyhow::Context as _;
use quire_server::config::{Config, ServeArgs};

/// What `quire serve --help` ends with.
pub(crate) const NOTES: &str = "\
Sizes are bytes or take KB, MB, GB (powers of ten); durations take ms, s, m, h, d.
Every flag can be given in the environment as QUIRE_ and its name.

Examples:
  quire serve
  quire serve --listen 0.0.0.0:80 --public-url https://paste.example --data /var/lib/quire
  QUIRE_CACHE_BYTES=256MB quire serve --log json";

/// Runs the server until it is told to stop.
pub(crate) fn run(args: &ServeArgs) -> anyhow::Result<ExitCode> {
    let config = args.check().context("the settings are wrong, nothing was started")?;
    Ok(serve(&config))
}

fn serve(_config: &Config) -> ExitCode {
    crate::tell("this build has no server in it");
    ExitCode::FAILURE
}
