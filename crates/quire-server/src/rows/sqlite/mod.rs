//! Rows on one box: a single SQLite file with a write-ahead log.
//!
//! | file | what lives there |
//! | --- | --- |
//! | `schema` | whether a file is one of ours, how a store is made and opened, its pair id |
//! | `record` | a row between SQLite and the domain |
//! | `writer` | the one thread that changes rows, with group commit |
//! | `files` | whether they still stand where they are looked for |
//! | `checkpoint` | keeps the log short |
//! | `reader` | the threads that look rows up |
//! | `audit` | every row for `verify`, and the copy for `backup` |
//!
//! Promises: an insert or a removal is answered after it was synced; a lookup sees all that was answered
//! before it began; "now" is the machine's clock, read right before each statement. Every queue is bounded,
//! and a full one is `Overloaded` at once. Two processes must not open one store for writing: the caller
//! locks the data folder.

use std::{mem, path::Path, sync::Arc, thread::JoinHandle};

use crossbeam_channel::{Sender, TrySendError};
use quire_core::{
    paste::{Id, StoredRow},
    ports::{Clock, Fault, Insert, NewRow, PortError, PortFuture, Rows},
    time::Timestamp,
};
use tokio::sync::oneshot;

mod audit;
mod checkpoint;
mod files;
mod reader;
mod record;
mod schema;
mod writer;

pub use audit::{SqliteAudit, backup_to};
pub use checkpoint::LogBounds;
pub use schema::{OpenError, check_folder, create, pair_id};

use reader::Query;
use writer::{Answer, Job};

/// Bounds that a test or an operator may want to move.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Changes that may wait for the writer.
    pub write_queue_len: usize,
    /// Lookups that may wait for a reader.
    pub read_queue_len: usize,
    /// Threads that look rows up.
    pub readers: usize,
    /// How long the write-ahead log may get.
    pub log: LogBounds,
}

impl Default for Options {
    fn default() -> Self {
        Self { write_queue_len: 4_096, read_queue_len: 4_096, readers: 2, log: LogBounds::default() }
    }
}

/// The row store of one box. Dropping it blocks until all that was accepted is done and the file is closed.
pub struct SqliteRows {
    clock: Arc<dyn Clock>,
    /// `None` only while it is being dropped.
    queues: Option<Queues>,
    readers: Vec<JoinHandle<()>>,
    writer: Option<JoinHandle<()>>,
}

struct Queues {
    changes: Sender<Job>,
    lookups: Sender<Query>,
}

impl SqliteRows {
    /// Opens the store at `path`, which [`create`] has made, and brings an older schema up to date.
    ///
    /// # Errors
    /// There is no row store that this program can use; nothing was changed.
    pub fn open(path: &Path, clock: Arc<dyn Clock>, options: &Options) -> Result<Self, OpenError> {
        let (changes, writer) = writer::spawn(path, Arc::clone(&clock), options)?;
        let (lookups, readers) = reader::spawn(path, &clock, options)?;
        Ok(Self { clock, queues: Some(Queues { changes, lookups }), readers, writer: Some(writer) })
    }

    async fn change<T>(&self, job: impl FnOnce(Answer<T>) -> Job + Send) -> Result<T, PortError> {
        let queues = self.queues.as_ref().ok_or_else(|| PortError::new(Fault::Unavailable))?;
        let (answer, told) = Answer::channel();
        send(&queues.changes, job(answer))?;
        // Without an answer nobody knows what became of it.
        told.await.unwrap_or_else(|lost| Err(PortError::because(Fault::UnknownOutcome, lost)))
    }
}

/// Never waits: who finds the queue full is told so at once.
fn send<T>(queue: &Sender<T>, item: T) -> Result<(), PortError> {
    queue.try_send(item).map_err(|refused| match refused {
        TrySendError::Full(_) => PortError::new(Fault::Overloaded),
        TrySendError::Disconnected(_) => PortError::new(Fault::Unavailable),
    })
}

impl Rows for SqliteRows {
    fn now(&self) -> PortFuture<'_, Timestamp> {
        Box::pin(std::future::ready(Ok(self.clock.wall())))
    }

    fn insert(&self, row: NewRow) -> PortFuture<'_, Insert> {
        Box::pin(self.change(|answer| Job::Insert { row, answer }))
    }

    fn find(&self, id: Id) -> PortFuture<'_, Option<Arc<StoredRow>>> {
        self.find_in_store(id)
    }

    fn find_in_store(&self, id: Id) -> PortFuture<'_, Option<Arc<StoredRow>>> {
        Box::pin(async move {
            let queues = self.queues.as_ref().ok_or_else(|| PortError::new(Fault::Unavailable))?;
            let (answer, found) = oneshot::channel();
            send(&queues.lookups, Query { id, answer })?;
            found.await.unwrap_or_else(|lost| Err(PortError::because(Fault::Unavailable, lost)))
        })
    }

    fn remove(&self, id: Id) -> PortFuture<'_, bool> {
        Box::pin(self.change(move |answer| Job::Remove { id, answer }))
    }
}

impl Drop for SqliteRows {
    fn drop(&mut self) {
        let Some(Queues { changes, lookups }) = self.queues.take() else { return };
        // Without senders the threads finish what waits and end. Readers before the writer: the last
        // connection to close folds the log into the database, and a reader's cannot.
        drop(lookups);
        for reader in mem::take(&mut self.readers) {
            // One that panicked has said so.
            let _ = reader.join();
        }
        drop(changes);
        // A writer that panicked has ended the process.
        let _ = self.writer.take().map(JoinHandle::join);
    }
}

#[cfg(test)]
mod tests;
