//! What every black-box test begins with.

use quire_testkit::server::{NO_LIMITS, Server};

/// The built command.
pub(crate) const BINARY: &str = env!("CARGO_BIN_EXE_quire");

/// A server in a folder of its own.
pub(crate) fn start(arguments: &[&str]) -> anyhow::Result<Server> {
    Server::start(BINARY, &[NO_LIMITS, arguments].concat())
}
