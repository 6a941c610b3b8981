//! Keeps the write-ahead log short without making commits wait.
//!
//! Two means, because neither is enough alone. A thread of its own copies the log into the database
//! (`PASSIVE`: it waits for nobody and nobody waits for it) whenever the log has grown by some pages. But
//! under steady writes it never quite catches up, and only a log that was copied to its end begins anew;
//! so past a bound the writer itself copies the little that is left, between two batches, and the log begins
//! anew with the next one.
//!
//! The file keeps its length: writing over blocks it already has makes a sync cheaper than growing it. A
//! reader that holds an old snapshot (a backup) makes the log grow beyond the bound for as long as it reads.
//!
//! A failure here loses nothing and fails no call: the log is the truth until it is copied.

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use crossbeam_channel::{Receiver, Sender, bounded};
use rusqlite::Connection;

use super::schema::{self, Access, BUSY_TIMEOUT, OpenError};

/// How long the writer waits for readers to let go of the log. Ours hold it for microseconds; one that holds
/// it for longer is not waited for, and asked again when the log has grown further.
const READERS_WAIT_MAX: Duration = Duration::from_millis(50);

/// When to do what, in pages of the log.
#[derive(Clone, Copy, Debug)]
pub struct LogBounds {
    /// The thread copies the log when it has grown by this many.
    pub copy_every_pages: u32,
    /// The writer makes the log begin anew when it is longer than this.
    pub restart_after_pages: u32,
}

impl Default for LogBounds {
    fn default() -> Self {
        // 8 MB and 256 MB of 4 KB pages.
        Self { copy_every_pages: 2_048, restart_after_pages: 65_536 }
    }
}

/// The writer's side.
pub(super) struct LogKeeper {
    bounds: LogBounds,
    signal: Sender<()>,
    /// How long the log was after the last commit; SQLite's hook writes it.
    pages: Arc<AtomicU32>,
    signalled_at: u32,
    restart_tried_at: u32,
}

impl LogKeeper {
    /// Watches the commits of this connection. The hook takes the place of SQLite's own checkpoints, which
    /// would run inside a commit.
    pub(super) fn watch(
        connection: &mut Connection,
        bounds: LogBounds,
        signal: Sender<()>,
    ) -> rusqlite::Result<Self> {
        let pages = Arc::new(AtomicU32::new(0));
        let seen = Arc::clone(&pages);
        connection.wal_hook(Some(move |_: &mut rusqlite::hooks::Wal, now: i32| {
            seen.store(u32::try_from(now).unwrap_or(0), Ordering::Relaxed);
            Ok(())
        }))?;
        Ok(Self { bounds, signal, pages, signalled_at: 0, restart_tried_at: 0 })
    }

    /// To be called between two transactions.
    pub(super) fn after_batch(&mut self, connection: &Connection) {
        let pages = self.pages.load(Ordering::Relaxed);
        if pages < self.signalled_at || pages < self.restart_tried_at {
            // The log began anew.
            (self.signalled_at, self.restart_tried_at) = (0, 0);
        }
        if pages > self.bounds.restart_after_pages {
            // Not at every batch: while a long reader is in the way each try costs a sync. And the thread is
            // left alone meanwhile, since the two exclude each other.
            if self.restart_tried_at == 0 || pages - self.restart_tried_at >= self.bounds.copy_every_pages {
                self.restart_tried_at = pages;
                restart(connection);
            }
        } else if pages - self.signalled_at >= self.bounds.copy_every_pages {
            // Full means that it has been told already.
            let _ = self.signal.try_send(());
            self.signalled_at = pages;
        }
    }
}

/// Starts the thread; it ends when the sender is gone.
pub(super) fn spawn(path: &Path) -> Result<(Sender<()>, JoinHandle<()>), OpenError> {
    let connection = schema::connect_to_store(path, Access::Write)?;
    connection.pragma_update(None, "synchronous", "FULL").map_err(|error| OpenError::sqlite(path, error))?;
    let (signal, signals) = bounded(1);
    let thread = thread::Builder::new()
        .name("rows-checkpoint".into())
        .spawn(move || run(&connection, &signals))
        .map_err(|error| OpenError::io(path, error))?;
    Ok((signal, thread))
}

fn run(connection: &Connection, signals: &Receiver<()>) {
    while signals.recv().is_ok() {
        if let Err(error) = checkpoint(connection, "PASSIVE") {
            tracing::error!(%error, "the log of the row store could not be copied into it");
        }
    }
}

fn restart(connection: &Connection) {
    let waited = connection
        .busy_timeout(READERS_WAIT_MAX)
        .and_then(|()| checkpoint(connection, "RESTART"))
        .and_then(|()| connection.busy_timeout(BUSY_TIMEOUT));
    if let Err(error) = waited {
        // The longer patience must come back whatever happened.
        let restored = connection.busy_timeout(BUSY_TIMEOUT);
        tracing::error!(%error, restored = restored.is_ok(), "the log of the row store could not begin anew");
    }
}

/// What the writer does when the disk is full: one try to copy the log, which lets it begin anew. Where the copy
/// needs new blocks too it fails, and whoever frees some is served by the next try.
pub(super) fn make_room(connection: &Connection) {
    let made = connection
        .busy_timeout(READERS_WAIT_MAX)
        .and_then(|()| checkpoint(connection, "RESTART"))
        .and_then(|()| connection.busy_timeout(BUSY_TIMEOUT));
    if let Err(error) = made {
        let restored = connection.busy_timeout(BUSY_TIMEOUT);
        // The caller has the error that led here.
        tracing::debug!(%error, restored = restored.is_ok(), "the log could not be copied on a full disk");
    }
}

/// That somebody was in the way is a column of the answer and no error.
fn checkpoint(connection: &Connection, mode: &str) -> rusqlite::Result<()> {
    connection.query_row(&format!("PRAGMA wal_checkpoint({mode})"), [], |_| Ok(()))
}
