//! `DELETE /v1/pastes/{id}`.
//!
//! Promises: 204 only for what the service says is gone; a wrong, missing or malformed token is answered like
//! a paste that is not there (D2). Once begun it goes on in a task of its own, whether or not the client is
//! still there. It must never say which of the reasons for a 404 it was.

use std::sync::Arc;

use http::{HeaderMap, HeaderValue, StatusCode, header::CACHE_CONTROL};
use quire_core::{
    paste::{DeleteToken, Id},
    service::Deleted,
};
use tokio::time::timeout;

use super::{
    Answer, Api,
    error::ErrorCode,
    guard::{Kind, Source},
};

/// Answers a delete.
pub(super) async fn delete(
    api: &Api,
    source: &Arc<Source>,
    id: Id,
    headers: &HeaderMap,
) -> Result<Answer, ErrorCode> {
    let in_flight = api.guard.enter(source, Kind::Other).map_err(|reason| {
        api.metrics.shed(reason);
        ErrorCode::Overloaded
    })?;

    api.source_limits.admit_delete(source.key()).map_err(|refusal| api.metrics.rate_limited(refusal))?;

    let token = token(headers).ok_or(ErrorCode::NotFound)?;
    let (service, metrics) = (Arc::clone(&api.service), Arc::clone(&api.metrics));
    let work = api.drain.work().spawn(async move {
        let deleted = service.delete(id, &token).await;
        drop(in_flight);
        // Said here and not where it is awaited: the client may be gone.
        match &deleted {
            Ok(Deleted::Gone { body_left: Some(error) }) => {
                metrics.orphans_left.inc();
                tracing::warn!(%error, "a deleted paste's body is left to the janitor");
            }
            Ok(_) => {}
            Err(error) => tracing::error!(%error, "a paste was not deleted for certain"),
        }
        deleted
    });
    match timeout(api.bounds.delete_wait_max, work).await {
        Ok(Ok(Ok(Deleted::Gone { .. }))) => {
            let mut answer = Answer::default();
            *answer.status_mut() = StatusCode::NO_CONTENT;
            answer.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
            Ok(answer)
        }
        Ok(Ok(Ok(Deleted::NotFound))) => Err(ErrorCode::NotFound),
        Ok(Ok(Err(_)) | Err(_)) => Err(ErrorCode::Unavailable),
        Err(_) => {
            tracing::error!("a paste was not deleted in time; it may still be");
            Err(ErrorCode::Unavailable)
        }
    }
}

/// The token, if there is exactly one and it is well formed.
fn token(headers: &HeaderMap) -> Option<DeleteToken> {
    let mut values = headers.get_all("x-delete-token").iter();
    let token = values.next()?;
    if values.next().is_some() {
        return None;
    }
    DeleteToken::parse(token.as_bytes())
}
