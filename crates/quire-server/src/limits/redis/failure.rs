//! What went wrong at the shared state, in words that hold nothing of anybody's: the server's own may have
//! an address or a key in them.

use quire_core::ports::Fault;
use redis::{ErrorKind, RedisError, ServerErrorKind};

use super::{CALL_BUDGET, LATE_AFTER};

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum StoreFailure {
    #[error("no answer within {CALL_BUDGET:?}")]
    TimedOut,
    /// Also what a step of the store's clock looks like, once.
    #[error("the call came to the store more than {LATE_AFTER:?} late")]
    TooLate,
    #[error("the store could not be connected to")]
    NotConnected,
    #[error("the connection to the store broke")]
    Broken,
    #[error("the store refuses to work: {0}")]
    Refused(&'static str),
    #[error("the store answered something else than a decision")]
    NotUnderstood,
}

impl StoreFailure {
    pub(super) fn of(error: &RedisError) -> Self {
        match error.kind() {
            ErrorKind::Io if error.is_connection_refusal() => Self::NotConnected,
            ErrorKind::Io => Self::Broken,
            ErrorKind::AuthenticationFailed => Self::Refused("it does not accept the credentials"),
            ErrorKind::Server(ServerErrorKind::BusyLoading) => Self::Refused("it is loading its data"),
            ErrorKind::Server(ServerErrorKind::ReadOnly) => Self::Refused("it is a read-only replica"),
            ErrorKind::Server(ServerErrorKind::MasterDown) => Self::Refused("it lost its primary"),
            ErrorKind::Server(ServerErrorKind::NoPerm) => Self::Refused("its access rules forbid the call"),
            ErrorKind::Server(ServerErrorKind::Moved | ServerErrorKind::CrossSlot) => {
                Self::Refused("it is a cluster")
            }
            ErrorKind::Extension => match error.code() {
                Some("OOM") => Self::Refused("it is out of memory"),
                Some("MISCONF") => Self::Refused("it cannot write its snapshots"),
                Some("NOAUTH" | "WRONGPASS") => Self::Refused("it does not accept the credentials"),
                _ => Self::NotUnderstood,
            },
            _ => Self::NotUnderstood,
        }
    }

    pub(super) const fn fault(&self) -> Fault {
        match self {
            Self::TooLate | Self::NotConnected | Self::Refused(_) => Fault::Unavailable,
            Self::TimedOut | Self::Broken | Self::NotUnderstood => Fault::UnknownOutcome,
        }
    }
}
