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

/// How far the machine's wall clock may move against its monotonic one before a sample is thrown away. Slewing moves
/// it by milliseconds in a sample's life; a step is what would make an honest create miss its deadline.
const STEP_MAX: Duration = Duration::from_secs(5);

/// A sampled view of the row store's clock.
pub(super) struct RowClock {
    clock: Arc<dyn Clock>,
    sample: Mutex<Option<Sample>>,
}

#[derive(Clone, Copy)]
struct Sample {
    row_store: Timestamp,
    taken_at: Duration,
    /// This machine's wall clock at that moment.
    wall: Timestamp,
}

impl Sample {
    /// Whether the machine's wall clock has been set since. On one box it is the row store's as well.
    fn is_stepped_over(&self, since: Duration, wall: Timestamp) -> bool {
        let expected = self.wall.plus(since);
        wall.since(expected).max(expected.since(wall)) > STEP_MAX
    }
}

impl RowClock {
    pub(super) fn new(clock: Arc<dyn Clock>) -> Self {
        Self { clock, sample: Mutex::new(None) }
    }

    /// What the row store's clock says now. But for a step of that clock alone since the sample it is never ahead:
    /// the sample counts from when the answer came, which is after the store read its clock.
    pub(super) async fn estimate(&self, rows: &dyn Rows) -> Result<Timestamp, PortError> {
        let asked_at = self.clock.monotonic();
        let sample = *self.sample.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(sample) = sample {
            let since = asked_at.saturating_sub(sample.taken_at);
            if since <= SAMPLE_AGE_MAX && !sample.is_stepped_over(since, self.clock.wall()) {
                return Ok(sample.row_store.plus(since));
            }
        }
        let row_store = rows.now().await?;
        let taken = Sample { row_store, taken_at: self.clock.monotonic(), wall: self.clock.wall() };
        *self.sample.lock().unwrap_or_else(PoisonError::into_inner) = Some(taken);
        Ok(row_store)
    }

    /// Makes the next estimate ask the row store.
    pub(super) fn forget(&self) {
        *self.sample.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}
