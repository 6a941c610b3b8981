//! What every black-box test begins with.

use quire_testkit::server::Server;

/// The built command.
pub(crate) const BINARY: &str = env!("CARGO_BIN_EXE_quire");

/// All requests of a test come from one address, which bounds per source would take for a flood. Tests of
/// those bounds start a server of their own.
const OPEN: &[&str] = &["--source-in-flight", "off"];

/// A server in a folder of its own.
pub(crate) fn start(arguments: &[&str]) -> anyhow::Result<Server> {
    Server::start(BINARY, &[OPEN, arguments].concat())
}
