//! The JSON that crosses the wire, for the server that writes it and the command-line client that reads it.
//!
//! Field names and their order are the contract's (C1, H1). Nothing else of quire knows JSON.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

/// The answer to a create. The token is shown once and here only, so `Debug` is not offered.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CreatedAnswer {
    /// The id to read it by.
    pub id: String,
    /// The link to give to others.
    pub url: String,
    /// RFC 3339 in UTC, whole seconds.
    pub expires_at: String,
    /// What deletes it.
    pub delete_token: String,
}

/// The body of every error.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorBody<'a> {
    /// A word for programs.
    pub error: Cow<'a, str>,
    /// With `rate_limited`: the bucket with the longest wait.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<Cow<'a, str>>,
    /// A sentence for people; the one error without it is `not_found` (R2).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<Cow<'a, str>>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_come_in_the_order_of_the_contract() {
        let answer = CreatedAnswer {
            id: "7Kq2mP9xL0aB".into(),
            url: "https://paste.example/7Kq2mP9xL0aB".into(),
            expires_at: "2026-11-02T17:44:00Z".into(),
            delete_token: "t".into(),
        };
        assert_eq!(
            serde_json::to_string(&answer).unwrap(),
            r#"{"id":"7Kq2mP9xL0aB","url":"https://paste.example/7Kq2mP9xL0aB","expires_at":"2026-11-02T17:44:00Z","delete_token":"t"}"#
        );
    }

    #[test]
    fn a_client_reads_an_error_with_or_without_a_message() {
        let bare: ErrorBody<'_> = serde_json::from_str(r#"{"error":"not_found"}"#).unwrap();
        assert_eq!((bare.error.as_ref(), bare.message), ("not_found", None));
        let full: ErrorBody<'_> = serde_json::from_str(r#"{"error":"e","limit":"x","message":"m"}"#).unwrap();
        assert_eq!((full.limit.as_deref(), full.message.as_deref()), (Some("x"), Some("m")));
    }
}
