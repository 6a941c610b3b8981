//! What time it is for the row store, without asking it on every create.
//!
//! A create's deadline is judged by the row store's clock (O5), so it has to be told in that clock's time: a
//! recent sample of it plus the monotonic time since. A sample that is a little old is harmless; the
//! deadline is 60 s and the grace that depends on it is a day.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use crate::{
    ports::{Clock, PortError, Rows},
    time::Timestamp,
};

/// How old a sample may be before the row store is asked again.
const SAMPLE_AGE_MAX: Duration = Duration::from_secs(10);

/// A sampled view of the row store's clock.
pub(super) struct RowClock {
    clock: Arc<dyn Clock>,
    sample: Mutex<Option<Sample>>,
}

#[derive(Clone, Copy)]
struct Sample {
    row_store: Timestamp,
    taken_at: Duration,
}

impl RowClock {
    pub(super) fn new(clock: Arc<dyn Clock>) -> Self {
        Self { clock, sample: Mutex::new(None) }
    }

    /// What the row store's clock says now. But for a step of that clock since the sample it is never ahead:
    /// the sample counts from when the answer came, which is after the store read its clock.
    pub(super) async fn estimate(&self, rows: &dyn Rows) -> Result<Timestamp, PortError> {
        let asked_at = self.clock.monotonic();
        let sample = *self.sample.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(Sample { row_store, taken_at }) = sample {
            let since = asked_at.saturating_sub(taken_at);
            if since <= SAMPLE_AGE_MAX {
                return Ok(row_store.plus(since));
            }
        }
        let row_store = rows.now().await?;
        let taken = Sample { row_store, taken_at: self.clock.monotonic() };
        *self.sample.lock().unwrap_or_else(PoisonError::into_inner) = Some(taken);
        Ok(row_store)
    }

    /// Makes the next estimate ask the row store.
    pub(super) fn forget(&self) {
        *self.sample.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}
