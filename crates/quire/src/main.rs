//! The `quire` command: the server, its client, and the tools that look after a data folder.

use std::{
    io::{self, Write as _},
    process::ExitCode,
};

use clap::{Parser, Subcommand};
use quire_server::config::{ConfigError, ServeArgs};

mod backup;
mod client;
mod plan;
mod serve;
mod verify;

/// Exit status for settings that are wrong, as for a flag that does not exist.
const WRONG_SETTINGS: u8 = 2;

/// A pastebin that can be left open to the public internet.
///
/// Anyone may post text and share the link; nobody can fill the disk, lose a paste that was acknowledged, or
/// learn whether a link ever existed.
#[derive(Debug, Parser)]
#[command(version, propagate_version = true, after_help = EXAMPLES)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "\
Examples:
  quire serve                                    run a server in ./quire-data
  quire put notes.txt                            post a file, print its link
  make 2>&1 | quire put --ttl 1d --syntax log    post what a command prints
  quire get http://127.0.0.1:8080/7Kq2mP9xL0aB   print a paste
  quire rm 7Kq2mP9xL0aB                          delete a paste this machine made
  quire backup /backups/monday                   copy a running server's data
  quire verify --data /backups/monday            check that a copy is whole
  quire plan                                     what the limits bound, under attack too";

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the server
    #[command(after_help = serve::NOTES)]
    Serve(Box<ServeArgs>),
    /// Post text and print its link
    Put(client::put::PutArgs),
    /// Print a paste
    Get(client::get::GetArgs),
    /// Delete a paste
    Rm(client::rm::RmArgs),
    /// Compare rows and bodies, beside a running server too
    #[command(after_help = verify::NOTES)]
    Verify(verify::VerifyArgs),
    /// Copy the data folder, beside a running server too
    Backup(backup::BackupArgs),
    /// Print what a plan needs and what the limits bound, for any plan
    #[command(after_help = plan::NOTES)]
    Plan(plan::PlanArgs),
}

fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Command::Serve(args) => serve::run(&args),
        Command::Put(args) => client::put::run(&args),
        Command::Get(args) => client::get::run(&args),
        Command::Rm(args) => client::rm::run(&args),
        Command::Verify(args) => return verify::run(&args),
        Command::Backup(args) => backup::run(&args),
        Command::Plan(args) => return plan::run(&args),
    };
    done.unwrap_or_else(|error| {
        tell(&in_words(&error));
        if error.is::<ConfigError>() { ExitCode::from(WRONG_SETTINGS) } else { ExitCode::FAILURE }
    })
}

/// An error and its causes, each said once: many an error's own words have its cause in them already.
fn in_words(error: &anyhow::Error) -> String {
    let mut said = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if said.is_empty() {
            said = cause;
        } else if !said.contains(&cause) {
            said.push_str(": ");
            said.push_str(&cause);
        }
    }
    said
}

/// Says something to the person, beside the output. Where nobody can hear it, that is no reason to stop.
fn tell(message: &str) {
    let _ = writeln!(io::stderr(), "quire: {message}");
}

#[cfg(test)]
mod tests {
    use anyhow::{Context as _, anyhow};

    use super::*;

    #[test]
    fn every_cause_is_said_once() {
        let disk = || anyhow!("No space left on device (os error 28)");
        let twice = disk().context("rows.db cannot be used: No space left on device (os error 28)");
        let twice = Err::<(), _>(twice).context("the copy is unfinished").unwrap_err();
        assert_eq!(
            in_words(&twice),
            "the copy is unfinished: rows.db cannot be used: No space left on device (os error 28)"
        );
        assert_eq!(in_words(&disk().context("copying")), "copying: No space left on device (os error 28)");
    }
}
