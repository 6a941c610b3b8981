//! `quire get`: writes the raw bytes of a paste to standard output, all of them or none.

use std::{
    io::{self, Write as _},
    process::ExitCode,
};

use anyhow::{Context as _, bail};
use clap::Args;

use super::{ServerArgs, http::Client, link::Link};

/// The flags of `quire get`.
#[derive(Args, Debug)]
pub(crate) struct GetArgs {
    /// Id or link of the paste
    #[arg(value_name = "ID|URL")]
    paste: String,

    #[command(flatten)]
    server: ServerArgs,
}

/// Reads.
pub(crate) fn run(args: &GetArgs) -> anyhow::Result<ExitCode> {
    let link = Link::parse(&args.paste, &args.server.url()?)?;
    let answer = Client::new().get(&link.api_url()).with_context(|| {
        format!(
            "{} did not answer; is it running, and is it the right server? (--server, or a whole link)",
            link.server
        )
    })?;
    let is_quires_404 = answer.error().is_some_and(|body| body.error == "not_found");
    match answer.status() {
        // Every paste comes with its expiry; a page of some other server does not.
        200 if answer.header("x-paste-expires-at").is_some() => {}
        404 if is_quires_404 => {
            bail!("{} has no such paste: it never existed, has expired or was deleted", link.server)
        }
        429 | 503 => bail!(
            "{}. Try again in {} s.",
            answer.describe(),
            super::http::shown(answer.header("retry-after").unwrap_or("a few"))
        ),
        _ if answer.error().is_none() => bail!("{}. Check the link or --server.", answer.describe()),
        _ => bail!("{}", answer.describe()),
    }
    let mut stdout = io::stdout().lock();
    match stdout.write_all(answer.body()).and_then(|()| stdout.flush()) {
        // Whoever reads has seen enough, as in `quire get ID | head`.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(ExitCode::SUCCESS),
        outcome => outcome.context("cannot write to standard output").map(|()| ExitCode::SUCCESS),
    }
}
