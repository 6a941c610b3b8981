//! `quire rm`: deletes a paste with the token that `quire put` remembered, or one given by hand.

use std::process::ExitCode;

use anyhow::bail;
use clap::Args;
use quire_core::paste::DeleteToken;

use super::{
    ServerArgs,
    http::{Answer, Client, ExchangeError},
    link::Link,
    tokens::Tokens,
};
use crate::tell;

/// The flags of `quire rm`.
#[derive(Args, Debug)]
pub(crate) struct RmArgs {
    /// Id or link of the paste
    #[arg(value_name = "ID|URL")]
    paste: String,

    /// Delete token, if this user did not post the paste from this machine
    #[arg(long, value_name = "TOKEN", env = "QUIRE_TOKEN", hide_env_values = true)]
    token: Option<String>,

    #[command(flatten)]
    server: ServerArgs,
}

/// Deletes.
pub(crate) fn run(args: &RmArgs) -> anyhow::Result<ExitCode> {
    let link = Link::parse(&args.paste, &args.server.url()?)?;
    let tokens = Tokens::of_user();
    let (token, is_remembered) = match &args.token {
        Some(token) => (token.clone(), false),
        None => match tokens.as_ref().map_err(|error| anyhow::anyhow!("{error:#}"))?.find(&link)? {
            Some(token) => (token, true),
            None => bail!(
                "no delete token is remembered for {}; give the one that its creator was shown with --token",
                link.url()
            ),
        },
    };
    if DeleteToken::parse(token.as_bytes()).is_none() {
        bail!("a delete token is 22 letters, digits, '-' or '_'; this one cannot be right");
    }
    let answer = delete(&link, &token)?;
    let is_gone = match answer.status() {
        204 => true,
        404 if answer.error().is_some_and(|body| body.error == "not_found") => false,
        _ => bail!("{}. The paste is perhaps still there; the token is kept.", answer.describe()),
    };
    // A token given by hand that does not fit says nothing of the remembered one.
    if (is_gone || is_remembered)
        && let Err(error) = tokens.and_then(|tokens| tokens.forget(&link))
    {
        tell(&format!("warning: the delete token could not be forgotten: {error:#}"));
    }
    if !is_gone {
        bail!(
            "{} has no such paste with this token: it has expired or was deleted, or the token is not its token",
            link.server
        );
    }
    tell(&format!("deleted {}", link.url()));
    Ok(ExitCode::SUCCESS)
}

fn delete(link: &Link, token: &str) -> anyhow::Result<Answer> {
    let exchange = Client::new().delete(&link.api_url(), ("x-delete-token", token));
    exchange.map_err(|error| match error {
        ExchangeError::NotSent(_) => {
            anyhow::Error::new(error).context(format!("{} cannot be reached", link.server))
        }
        // Sending it again does no harm: the paste is gone then, or goes now.
        ExchangeError::Lost(_) => anyhow::Error::new(error)
            .context("the paste is perhaps deleted; run the command again to be sure"),
    })
}
