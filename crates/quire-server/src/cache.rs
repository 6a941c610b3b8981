//! Hot pastes in memory: decorators of the two store ports, with singleflight (contract R9).
//!
//! Promises:
//! - A cached row is checked for expiry on every hit (R3).
//! - A delete that has returned is seen by every read that begins afterwards. A row that was being loaded
//!   while it was deleted is neither kept nor handed to anyone who comes later.
//! - Reads of one cold id that come together cost one lookup and one body fetch.
//! - Only what was found is kept: an absent row, or an error, is asked for again.
//!
//! Rows may be cached only where every delete passes through this process, which is one box; in a fleet
//! only [`CachedBodies`] is used, since bodies never change under an id.

use std::{future::ready, sync::Arc};

use bytes::Bytes;
use quick_cache::{Weighter, sync::Cache};
use quire_core::{
    paste::{BodyRef, Id, StoredRow},
    ports::{Bodies, Clock, Insert, NewBody, NewRow, PortError, PortFuture, Put, Rows},
    time::Timestamp,
};

mod flight;
#[cfg(test)]
mod tests;

use flight::SingleFlight;

/// What an entry costs beside its payload: key, value, hash table and eviction queue, rounded up.
const ENTRY_OVERHEAD_BYTES: u64 = 160;
/// A row with its texts, beside its label.
const ROW_BYTES: u64 = 400;
/// Size the cache's table is first laid out for; it grows.
const ENTRIES_ESTIMATE: usize = 4_096;
/// Of the whole budget, one part in this many is for rows: a row weighs a sixteenth of a mean body.
const ROWS_PART: u64 = 8;

type RowFound = Result<Option<Arc<StoredRow>>, PortError>;
type BodyFound = Result<Option<Bytes>, PortError>;

/// How `--cache-bytes` is shared out.
#[derive(Clone, Copy, Debug)]
pub struct CacheBudget {
    /// Bytes for rows.
    pub rows_bytes: u64,
    /// Bytes for bodies.
    pub bodies_bytes: u64,
}

impl CacheBudget {
    /// Shares out a budget.
    #[must_use]
    pub const fn of(total_bytes: u64) -> Self {
        let rows_bytes = total_bytes / ROWS_PART;
        Self { rows_bytes, bodies_bytes: total_bytes - rows_bytes }
    }
}

#[derive(Clone)]
struct ByBytes;

impl Weighter<Id, Arc<StoredRow>> for ByBytes {
    fn weight(&self, _: &Id, stored: &Arc<StoredRow>) -> u64 {
        let label = stored.row.syntax.as_ref().map_or(0, |syntax| syntax.as_str().len());
        ENTRY_OVERHEAD_BYTES + ROW_BYTES + u64::try_from(label).unwrap_or(0)
    }
}

impl Weighter<Id, Bytes> for ByBytes {
    fn weight(&self, _: &Id, body: &Bytes) -> u64 {
        ENTRY_OVERHEAD_BYTES + u64::try_from(body.len()).unwrap_or(u64::MAX / 2)
    }
}

/// A row store that remembers live rows. For one box only.
pub struct CachedRows {
    inner: Arc<dyn Rows>,
    clock: Arc<dyn Clock>,
    kept: Arc<Cache<Id, Arc<StoredRow>, ByBytes>>,
    flights: Arc<SingleFlight<RowFound>>,
}

impl CachedRows {
    /// Remembers at most `bytes` of rows; `clock` is the one that `inner` judges expiry by.
    #[must_use]
    pub fn new(inner: Arc<dyn Rows>, clock: Arc<dyn Clock>, bytes: u64) -> Self {
        let kept = Arc::new(Cache::with_weighter(ENTRIES_ESTIMATE, bytes, ByBytes));
        Self { inner, clock, kept, flights: SingleFlight::new() }
    }

    fn load(&self, id: Id) -> PortFuture<'static, Option<Arc<StoredRow>>> {
        let inner = Arc::clone(&self.inner);
        Box::pin(async move { inner.find(id).await })
    }
}

fn live(found: Option<Arc<StoredRow>>, now: Timestamp) -> Option<Arc<StoredRow>> {
    found.filter(|stored| stored.row.expires_at > now)
}

/// Forgets a row when dropped, so that no way out of a delete leaves it cached.
struct ForgetRow<'a>(&'a CachedRows, Id);

impl Drop for ForgetRow<'_> {
    fn drop(&mut self) {
        let Self(cached, id) = self;
        cached.flights.detach(*id, || drop(cached.kept.remove(id)));
    }
}

impl Rows for CachedRows {
    fn now(&self) -> PortFuture<'_, Timestamp> {
        self.inner.now()
    }

    fn insert(&self, row: NewRow) -> PortFuture<'_, Insert> {
        self.inner.insert(row)
    }

    fn find(&self, id: Id) -> PortFuture<'_, Option<Arc<StoredRow>>> {
        if let Some(stored) = self.kept.get(&id) {
            return Box::pin(ready(Ok(live(Some(stored), self.clock.wall()))));
        }
        let kept = Arc::clone(&self.kept);
        let flight = self.flights.join(id, self.load(id), move |found| {
            if let Ok(Some(stored)) = found {
                kept.insert(id, Arc::clone(stored));
            }
        });
        // The load may have been joined long after it began, so its judgement of expiry may be old.
        Box::pin(async move { Ok(live(flight.await?, self.clock.wall())) })
    }

    fn find_in_store(&self, id: Id) -> PortFuture<'_, Option<Arc<StoredRow>>> {
        self.inner.find_in_store(id)
    }

    fn remove(&self, id: Id) -> PortFuture<'_, bool> {
        Box::pin(async move {
            let _forget = ForgetRow(self, id);
            self.inner.remove(id).await
        })
    }
}

/// A body store that remembers bodies.
pub struct CachedBodies {
    inner: Arc<dyn Bodies>,
    kept: Arc<Cache<Id, Bytes, ByBytes>>,
    flights: Arc<SingleFlight<BodyFound>>,
}

impl CachedBodies {
    /// Remembers at most `bytes` of bodies.
    #[must_use]
    pub fn new(inner: Arc<dyn Bodies>, bytes: u64) -> Self {
        let kept = Arc::new(Cache::with_weighter(ENTRIES_ESTIMATE, bytes, ByBytes));
        Self { inner, kept, flights: SingleFlight::new() }
    }

    fn load(&self, body: BodyRef) -> PortFuture<'static, Option<Bytes>> {
        let inner = Arc::clone(&self.inner);
        Box::pin(async move { inner.get(body).await })
    }
}

/// Forgets a body when dropped: after its removal, so that no load under way can keep it.
struct ForgetBody<'a>(&'a CachedBodies, Id);

impl Drop for ForgetBody<'_> {
    fn drop(&mut self) {
        let Self(cached, id) = self;
        cached.flights.detach(*id, || drop(cached.kept.remove(id)));
    }
}

impl Bodies for CachedBodies {
    fn put(&self, body: NewBody) -> PortFuture<'_, Put> {
        self.inner.put(body)
    }

    fn get(&self, body: BodyRef) -> PortFuture<'_, Option<Bytes>> {
        if let Some(found) = self.kept.get(&body.id) {
            return Box::pin(ready(Ok(Some(found))));
        }
        let kept = Arc::clone(&self.kept);
        let flight = self.flights.join(body.id, self.load(body), move |found| {
            if let Ok(Some(found)) = found {
                kept.insert(body.id, found.clone());
            }
        });
        Box::pin(flight)
    }

    fn remove(&self, body: BodyRef) -> PortFuture<'_, ()> {
        Box::pin(async move {
            let _forget = ForgetBody(self, body.id);
            self.inner.remove(body).await
        })
    }
}
