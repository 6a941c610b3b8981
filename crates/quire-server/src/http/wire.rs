//! The JSON bodies of the API: what the server writes and what the command-line client reads.

use serde::{Deserialize, Serialize};

/// The answer to a create (contract C1). It carries the one copy of the delete token, so it has no `Debug`.
#[derive(Clone, Deserialize, Serialize)]
pub struct CreatedBody {
    /// The paste's id.
    pub id: String,
    /// The link to it.
    pub url: String,
    /// When it expires, RFC 3339 in UTC with whole seconds.
    pub expires_at: String,
    /// The token to delete it with.
    pub delete_token: String,
}

/// The body of an answer that is no success (contract H1, R2).
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub struct ErrorBody {
    /// A word for programs, as in `too_large`.
    pub error: String,
    /// A sentence for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}
