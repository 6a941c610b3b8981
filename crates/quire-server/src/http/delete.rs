//! `DELETE /v1/pastes/{id}`.
//!
//! Promises: 204 only for what the service says is gone; a wrong, missing or malformed token is answered like
//! a paste that is not there (D2). Once begun it goes on in a task of its own, whether or not the client is
//! still there; it is answered as soon as the row is gone, however long the body takes (D3). It must never say
//! which of the reasons for a 404 it was.

use std::sync::Arc;

use http::{HeaderMap, HeaderValue, StatusCode, header::CACHE_CONTROL};
use quire_core::{
    paste::{DeleteToken, Id},
    ports::Fault,
    service::{DeleteError, Deleted, Service},
};
use tokio::{sync::oneshot, time::timeout};

use super::{
    Answer, Api,
    error::ErrorCode,
    guard::{Kind, Source},
    metrics::{Metrics, Shed},
};

/// Answers a delete.
pub(super) async fn delete(
    api: &Api,
    source: &Arc<Source>,
    id: Id,
    headers: &HeaderMap,
) -> Result<Answer, ErrorCode> {
    let in_flight = api.enter(source, Kind::Other)?;
    api.source_limits.admit_delete(source.key()).map_err(|refusal| api.metrics.rate_limited(refusal))?;

    let token = token(headers).ok_or(ErrorCode::NotFound)?;
    let (service, metrics) = (Arc::clone(&api.service), Arc::clone(&api.metrics));
    let (tell, told) = oneshot::channel();
    api.drain.work().spawn(async move {
        work(&service, &metrics, id, &token, tell).await;
        drop(in_flight);
    });
    match timeout(api.bounds.delete_wait_max, told).await {
        Ok(Ok(Ok(()))) => {
            let mut answer = Answer::default();
            *answer.status_mut() = StatusCode::NO_CONTENT;
            answer.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
            Ok(answer)
        }
        Ok(Ok(Err(code))) => Err(code),
        // The work ended without a word, so nobody knows how far it came.
        Ok(Err(_)) => Err(ErrorCode::Unavailable),
        Err(_) => {
            tracing::error!("a paste was not deleted in time; it may still be");
            Err(ErrorCode::Unavailable)
        }
    }
}

/// Deletes the paste, tells the outcome to whoever still waits for it, and then removes the body. What is
/// counted and logged is so here and not where the outcome is awaited: the client may be gone.
async fn work(
    service: &Service,
    metrics: &Metrics,
    id: Id,
    token: &DeleteToken,
    tell: oneshot::Sender<Result<(), ErrorCode>>,
) {
    let (outcome, body) = match service.delete(id, token).await {
        Ok(Deleted::Gone(body)) => (Ok(()), Some(body)),
        Ok(Deleted::NotFound) => (Err(ErrorCode::NotFound), None),
        // A full queue is load, not a fault.
        Err(DeleteError::Row(error)) if error.fault() == Fault::Overloaded => {
            metrics.shed(Shed::Queue);
            (Err(ErrorCode::Overloaded), None)
        }
        Err(error) => {
            tracing::error!(%error, "a paste was not deleted for certain");
            (Err(ErrorCode::Unavailable), None)
        }
    };
    // Whoever waited may have gone.
    let _ = tell.send(outcome);
    if let Some(body) = body
        && let Err(error) = service.remove_body(body).await
    {
        metrics.orphans_left.inc();
        tracing::warn!(%error, "a deleted paste's body is left to the janitor");
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
