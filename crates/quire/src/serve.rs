//! `quire serve`: checks the settings, then hands over to the server.

use std::{process::ExitCode, time::Duration};

use anyhow::Context as _;
use clap::CommandFactory as _;
use quire_server::{
    assemble,
    config::{Config, ServeArgs},
    logging,
};

/// What `quire serve --help` ends with.
pub(crate) const NOTES: &str = "\
Sizes are bytes or take KB, MB, GB (powers of ten); durations take ms, s, m, h, d.
Every flag can be given in the environment as QUIRE_ and its name.

Examples:
  quire serve
  quire serve --listen 0.0.0.0:80 --public-url https://paste.example --data /var/lib/quire
  QUIRE_CACHE_BYTES=256MB quire serve --log json";

/// How long calls into the operating system may keep the process from ending.
const SHUTDOWN_MAX: Duration = Duration::from_secs(1);

/// Runs the server until it is told to stop.
pub(crate) fn run(args: &ServeArgs) -> anyhow::Result<ExitCode> {
    let config = args.check().context("the settings are wrong, nothing was started")?;
    serve(config)?;
    Ok(ExitCode::SUCCESS)
}

/// `QUIRE_*` variables that no flag of any command reads: a mistyped limit would otherwise go unnoticed.
fn unknown_variables() -> Vec<String> {
    let command = crate::Cli::command();
    let commands = std::iter::once(&command).chain(command.get_subcommands());
    let known: Vec<_> =
        commands.flat_map(clap::Command::get_arguments).filter_map(clap::Arg::get_env).collect();
    std::env::vars_os()
        .map(|(name, _)| name)
        .filter(|name| name.to_string_lossy().starts_with("QUIRE_") && !known.contains(&name.as_os_str()))
        .map(|name| name.to_string_lossy().into_owned())
        .collect()
}

fn serve(config: Config) -> anyhow::Result<()> {
    // Held until the very end: dropping it writes the last lines.
    let _logging = logging::start(config.log, config.log_level.into()).context("logging could not start")?;
    for variable in unknown_variables() {
        // Its name alone: the value may be a secret.
        tracing::warn!(variable, "this variable of the environment names no flag, and nothing reads it");
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("the runtime could not start")?;
    let ended = runtime.block_on(assemble::run(config));
    // Not dropped, because that waits for blocking calls, and one may hang on a frozen disk.
    runtime.shutdown_timeout(SHUTDOWN_MAX);
    ended?;
    Ok(())
}
