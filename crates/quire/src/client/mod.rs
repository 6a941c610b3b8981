//! The client: three calls over HTTP, and a memory for delete tokens.
//!
//! | module | what lives there |
//! | --- | --- |
//! | [`put`] [`get`] [`rm`] | one file a call |
//! | [`http`] | one exchange with a server, and what is known after it failed |
//! | [`retry`] | whether a create may be sent again |
//! | [`link`] | an id or a link, as people write it |
//! | [`tokens`] | what this user may delete |
//!
//! A create is never sent again unless the server has said that it stored nothing. A delete token goes only to
//! the server that gave it out.

use clap::Args;
use quire_server::config::url::BaseUrl;

pub(crate) mod get;
mod http;
mod link;
pub(crate) mod put;
mod retry;
pub(crate) mod rm;
mod tokens;

/// Which server to talk to.
#[derive(Args, Debug)]
pub(crate) struct ServerArgs {
    #[arg(
        long,
        env = "QUIRE_SERVER",
        value_name = "URL",
        default_value = "http://127.0.0.1:8080",
        help = "The server, as in https://paste.example; a link names its own"
    )]
    server: String,
}

impl ServerArgs {
    fn url(&self) -> anyhow::Result<BaseUrl> {
        BaseUrl::parse(&self.server).map_err(|error| anyhow::anyhow!("--server {error}"))
    }
}
